"""`curvae differential`: which columns of counts differ between groups of rows, with a table and a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..data.disk import in_memory
from ..data.files import count as counted
from ..data.files import quoted
from ..errors import CurvaeError
from ..plotting.panels import volcano
from ..report import Section, Table
from ..training.differential import compare_populations, split_groups
from ..training.storage import write_tables
from . import pages
from .run import SILENT, Reporter, output_files, write_report
from .trained import open_for, read_rows

__all__ = ["differential_run"]

_FILES = ("differential.csv", "report.html")
_LISTED, _DRAWN = 10, 6  # genes in a table of the report, and comparisons that have a picture
_TARGET = 0.05


def differential_run(
    run: Path,
    path: str,
    groupby: str | None = None,
    *,
    group1: Sequence[str] = (),
    group2: str | None = None,
    delta: float = 0.25,
    batch_correction: bool = False,
    output: Path | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = SILENT,
    **reading: Any,
) -> tuple[dict[str, Any], list[str]]:
    """Find the genes that differ between groups of cells under the model of a run.

    Arguments:
        run: its folder.
        path: the cells.
        groupby: column with the groups; by default the labels of the run.
        group1: groups that are compared; by default each.
        group2: the group that they are compared with; by default all other cells.
        delta: least log2 fold change that counts.
        batch_correction: compare cells as if all were of the same batches.
        output: folder for `differential.csv` and `report.html`, `<run>-differential` by default.
        force: overwrite the files.
        device: where to compute.
        reporter: receives messages and progress.
        reading: `memory`, `cache` and `layer`, as of `embed_run`.

    Returns:
        Figures for programs, and lines for people.
    """
    table_file, page = output_files(output, f"{run.resolve().name}-differential", _FILES, force)
    loaded = open_for(run, device, "whose nodes have no counts", **reading)
    schema = loaded.data if groupby is None else replace(loaded.data, label=groupby)
    if schema.label is None:
        raise CurvaeError(f"the rows of {run} have no labels; name a column of {path} with `groupby=…`")
    data = read_rows(loaded._replace(data=schema), path, None, reporter, True, **reading)
    if data.labels is None:
        raise CurvaeError(f"{path} has no column {schema.label!r}; name one that it has with `groupby=…`")
    labels = np.asarray(in_memory(data.labels)).astype(np.str_)
    populations = split_groups(labels, list(group1) or None, group2, schema.label)
    if batch_correction and not schema.batch:
        raise CurvaeError(f"{run} was trained without batches; leave out `batch_correction=True`")
    every = range(schema.batch[1]) if batch_correction else ()
    found = compare_populations(
        loaded.fitted.double(),
        data,
        populations,
        schema.names,
        (every, every),
        delta=delta,
        fdr_target=_TARGET,
        advance=reporter.counter("comparing", int(np.any(populations.members, axis=(0, 1)).sum())),
    )
    write_tables(table_file, [found.reset_index()])
    each = {name: found[found["comparison"] == name] for name in found["comparison"].unique().tolist()}
    marked = f"is_de_fdr_{_TARGET:g}"
    numbers = {name: int(part[marked].sum()) for name, part in each.items()}
    verdict = "; ".join(f"{name}: {counted(number, 'gene')}" for name, number in numbers.items())
    verdict = f"Of {len(schema.names):,} genes, these many differ at a false discovery rate of 5 %: {verdict}."
    sections = [_section(name, part, place, marked) for place, (name, part) in enumerate(each.items())]
    title = f"Differential expression in {Path(path).name}"
    write_report(page, title, verdict, "neutral", (), sections, 0, reporter.started, words=reporter.words)
    first = {name: part.index[:_LISTED].tolist() for name, part in each.items()}
    lines = [
        f"{name}: {counted(number, 'gene')}" + (f", such as {quoted(first[name][:5])}" if number else "")
        for name, number in numbers.items()
    ]
    files = {"table": str(table_file), "report": str(page)}
    result = {"comparisons": [{"name": name, "genes": numbers[name], "first": first[name]} for name in each]}
    return {**result, "files": files}, [*lines, *(f"{what}: {file}" for what, file in files.items())]


def _section(name: str, found: pd.DataFrame, place: int, marked: str) -> Section:
    """Show one comparison, with a picture if it is among the first."""
    pictures = []
    if place < _DRAWN:
        draw = partial(volcano, table=found, marked=found[marked].to_numpy())
        caption = f"{name}: to the right genes with more counts in the first, above those that surely differ."
        pictures.append(pages.drawing((5.2, 4.2), draw, caption, f"volcano plot of {name}"))
    shown = found.head(_LISTED)
    lines = [
        [
            str(gene),
            f"{one.lfc_mean:+.2f} ± {one.lfc_std:.2f}",
            f"{one.proba_de:.3f}",
            f"{one.raw_mean1:.3g}",
            f"{one.raw_mean2:.3g}",
        ]
        for gene, one in zip(shown.index, shown.itertuples(), strict=True)
    ]
    header = ["gene", "log2 fold change", "probability", "counts a cell, first", "second"]
    return Section(name, [], pictures, [Table(header, lines)])
