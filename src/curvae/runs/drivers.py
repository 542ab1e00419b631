"""What reports and `curvae explain` say of the columns that change on the way across a map."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data import Dataset
from ..hierarchy import Drivers, explain
from ..report import Section, Table
from ..training.embedding import Embedding
from ..training.fitted import Fitted

__all__ = ["Explained", "driver_lines", "driver_sections"]

_MOST_LABELS = 30  # for a table in a report
_SHOWN = 3  # columns of a label there


class Explained(NamedTuple):
    """What changes on the way to one place, or to each label."""

    start: str
    found: dict[str, Drivers]
    names: Sequence[str]
    path: Path | None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"from": self.start, "to": {name: one.to_json(self.names) for name, one in self.found.items()}}


def _number(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")


def _change(one: Drivers, i: int) -> str:
    """ "+3.2 (+2.8 to +3.5)"."""
    return f"{_number(one.change[i])} ({_number(one.change_low[i])} to {_number(one.change_high[i])})"


def driver_lines(explained: Explained) -> list[str]:
    """For people: the columns of one way, a line each, or those of each label in a line."""
    names = explained.names
    if len(explained.found) > 1:
        return [
            f"{name}: {', '.join(f'{names[j]} {_change(one, i)}' for i, j in enumerate(one.features[:_SHOWN]))}"
            for name, one in explained.found.items()
        ]
    ((name, one),) = explained.found.items()
    lines = [f"from {explained.start} to {name}, distance {one.length:.3g}; change with its 90 % interval:"]
    for i, feature in enumerate(one.features):
        doubt = "" if one.clear[i] else ", unclear"
        way = f"{one.mean[0, i]:.3g} → {one.mean[-1, i]:.3g}".replace("-", "−")
        lines.append(f"  {names[feature]}: {way}, {_change(one, i)}{doubt}")
    return lines


def driver_sections(fitted: Fitted, data: Dataset, embedding: Embedding, context: NDArray[np.float64]) -> list[Section]:
    """The section of a report on the columns that set the labels apart; none where there are no labels or pixels."""
    labels = sorted(set([] if data.labels is None else data.labels.tolist()) - {""})
    if data.labels is None or len(data.shape) > 1 or not 2 <= len(labels) <= _MOST_LABELS:
        return []
    rows = []
    for label in labels:
        places = np.flatnonzero(data.labels == label)
        one = explain(fitted, embedding, places, columns=_SHOWN, steps=2, context=context)
        shown = [f"{data.names[j]} {_change(one, i)}" for i, j in enumerate(one.features)]
        rows.append([label, f"{len(places):,}", *shown, *[""] * (_SHOWN - len(shown))])
    header = [data.label_name or "label", "rows", *(f"column {i}" for i in range(1, _SHOWN + 1))]
    text = (
        "What the decoder expects at the Fréchet mean of each label, less what it expects at that of all rows: the "
        "columns that differ most beside their standard deviation. Intervals hold 90 % of the draws of rows of the "
        "label from their posteriors."
    )
    return [Section("What sets the labels apart", [text], tables=[Table(header, rows)])]
