"""`curvae explain`: the columns that change between rows, or labels, of the map of a run."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data.covariates import average_context
from ..data.messages import quoted
from ..errors import CurvaeError
from ..hierarchy import Drivers, explain
from ..training.storage import Loaded
from .drivers import Explained
from .folders import embedding_path, output_file, read_embedding, write_table
from .kinds import open_run

__all__ = ["explain_run"]


def explain_run(
    run: Path,
    start: str | None = None,
    end: str | None = None,
    *,
    count: int = 10,
    output: Path | None = None,
    seed: int = 0,
    force: bool = False,
    device: torch.device | str = "cpu",
) -> Explained:
    """Which columns change along the geodesic between rows, or labels, of the map of a trained run?

    Arguments:
        run: its folder.
        start: id of a row, or a label; by default the row at the centre of the map, or the Fréchet mean of all rows.
        end: likewise; by default every label in turn.
        count: of columns.
        output: CSV file for the expected values on the way, with their intervals.
        seed: of the draws.
        force: overwrite the file.
        device: where to compute.
    """
    target = None if output is None else output_file(output, Path("path.csv"), force)
    loaded = open_run(run, device).explained()
    known = _Known(run, loaded)
    start = str(loaded.description["root"]) if start is None and loaded.description.get("root") is not None else start
    ends = known.labels if end is None else [end]
    if not ends:
        raise CurvaeError(f"the rows of {run} have no labels; say which one with end=…, such as {known.example}")
    rows = None if start is None else known.rows(start, "start")
    places = {name: known.rows(name, "end") for name in ends}
    how: dict[str, Any] = {"columns": count, "context": average_context(loaded.data.covariates), "seed": seed}
    found = {name: explain(loaded.fitted, loaded.embedding, place, rows, **how) for name, place in places.items()}
    names = loaded.data.names
    if target is not None:
        write_table(target, _table(found, names))
    return Explained("the mean of all rows" if start is None else start, found, names, target)


class _Known:
    """Names of the rows of a run, and their labels."""

    def __init__(self, run: Path, loaded: Loaded) -> None:
        self._run, rows = run, len(loaded.embedding)
        path = embedding_path(run)
        table = (
            read_embedding(path) if path.exists() else pd.DataFrame({"id": np.arange(rows).astype(str), "label": ""})
        )
        self._ids, self._labels = table["id"].to_numpy(), table["label"].to_numpy()
        if len(self._ids) != rows:
            raise CurvaeError(f"{path} has {len(self._ids)} rows, and the model was trained on {rows}; train again")

    @property
    def labels(self) -> list[str]:
        return sorted(set(self._labels) - {""})

    @property
    def example(self) -> str:
        """A row, for messages."""
        return f'end="{self._ids[-1]}"'

    def rows(self, name: str, parameter: str) -> NDArray[np.intp]:
        """The row of this id, or else those of this label."""
        for names in (self._ids, self._labels):
            if (places := np.flatnonzero(names == name)).size:
                return places
        near = get_close_matches(name, [*self.labels, *map(str, self._ids)], 1)
        labels = f"labels are such as {quoted(self.labels[:3])}, " if self.labels else ""
        hint = f"did you mean {near[0]!r}?" if near else f"{labels}ids are such as {quoted(self._ids[:3])}"
        raise CurvaeError(f"{self._run} has no row and no label {name!r} for {parameter}=…; {hint}")


def _table(found: dict[str, Drivers], names: Sequence[str]) -> pd.DataFrame:
    """One row for each column and step."""
    parts = [
        pd.DataFrame(
            {
                "to": name,
                "column": str(names[feature]),
                "t": one.t,
                "mean": one.mean[:, i],
                "low": one.low[:, i],
                "high": one.high[:, i],
            }
        )
        for name, one in found.items()
        for i, feature in enumerate(one.features)
    ]
    return pd.concat(parts, ignore_index=True)
