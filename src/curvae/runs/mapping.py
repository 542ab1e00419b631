"""`curvae map`: cells of new batches on the map of a run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from ..data import load
from ..errors import CurvaeError, require
from ..training.map_tables import write_tables
from .run import SILENT, Reporter, Step
from .trained import open_for

__all__ = ["map_run"]

LABELS = "labels.csv"
_UNKNOWN = 0.5  # probability from which on a cell counts as unknown


def map_run(
    run: Path,
    path: str,
    output: Path | None = None,
    *,
    epochs: int | None = None,
    k: int = 15,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = SILENT,
) -> tuple[dict[str, Any], list[str], Step]:
    """Train what a run on cells does not know about the batches of a query, and write the run of that.

    Cells of the run stay where they are. If they have labels, those of the query are written to `labels.csv`, with
    their probabilities and with that of belonging to no part of the run.

    Arguments:
        run: folder of the reference.
        path: the query, a `.h5ad` file with the columns that the run was trained with.
        output: folder of the new run, `runs/<name>-mapped` by default.
        epochs: passes over the query.
        k: neighbours that give a cell its label.
        force: overwrite a run.
        device: where to train.
        reporter: takes messages.

    Returns:
        Figures for programs, lines for people, and what to do next.
    """
    from ..estimators.cells import CellVAE  # takes long to import

    file = Path(path)
    folder = Path("runs") / f"{file.name.split('.')[0]}-mapped" if output is None else output
    if folder.exists() and not (force and (folder / "config.json").is_file()):
        raise CurvaeError(
            f"{folder} exists; choose another folder with `output=…`, or overwrite a run with `force=True`"
        )
    schema = open_for(run, only_tables="which has no cells").data
    if schema.kind != "cells":
        raise CurvaeError(
            f"{run} was not trained on cells, and has no batches to add to; place new rows with curvae embed"
        )
    if file.suffix.lower() != ".h5ad":
        raise CurvaeError(f"{file.name} is no .h5ad file, which alone tells the batch of every cell; write such a file")
    load(path, schema=schema)  # which says in one line what is wrong with the file
    query = require("anndata", f"{file.name} needs anndata to be read").read_h5ad(file)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kind = torch.device(device).type
        model = CellVAE.load_query_data(query, CellVAE.load(run, accelerator=kind), accelerator=kind)
        reporter.say(f"training on {query.n_obs:,} cells; run folder {folder}")
        model.train(max_epochs=epochs, accelerator=kind)
    reporter.tell(model.notes_, [str(one.message) for one in caught if one.category is UserWarning])
    model.save(folder, overwrite=force)
    found: dict[str, Any] = {"run": str(folder), "cells": query.n_obs, "warnings": model.warnings_}
    lines = [f"{query.n_obs:,} cells on the map of {run}"]
    if schema.label is not None:
        table = model.transfer_labels(schema.label, k)
        write_tables(folder / LABELS, [table.rename_axis("id").reset_index()])
        unknown = table["curvae_unknown"]
        found |= {"labels": str(folder / LABELS), "counts": table["curvae_label"].value_counts().to_dict()}
        if unknown.notna().all():
            found["unknown"] = int((unknown > _UNKNOWN).sum())
            lines.append(f"{found['unknown']:,} of them are like no part of {run}")
        lines.append(f"labels: {folder / LABELS}")
    return found, lines, Step("view", (str(folder),))
