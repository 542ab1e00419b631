"""Rows as the networks see them, scaled and in float32, and splits of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from torch import Tensor

from ..data import Arrays, Dataset
from ..data.dataset import Scaling
from ..data.disk import in_memory, text_codes
from ..errors import CurvaeError
from ..models import Batch, Layout
from ..models.likelihoods.base import Matrix

__all__ = [
    "HELD_OUT",
    "Data",
    "Rows",
    "Split",
    "assemble",
    "judged_rows",
    "layout_of",
    "random_split",
]

Data = Arrays | Dataset | Matrix

_BLOCK = 4096


def layout_of(arrays: Arrays) -> Layout:
    """What a model must know about the data to be built for them."""
    covariates = 0 if arrays.context is None else arrays.context.shape[1]
    return Layout(arrays.features, arrays.blocks, arrays.shape, covariates, arrays.missing, arrays.size is not None)


def assemble(parts: dict[str, Any], missing: bool) -> Batch:
    """A batch of the given parts; where entries may be missing they are NaN, and `observed` tells which."""
    if missing:
        observed = ~parts["x"].isnan()
        parts = {**parts, "x": parts["x"].where(observed, 0.0), "observed": observed.to(parts["x"].dtype)}
    return Batch(**parts)


class Rows:
    """Rows of data, ready for batches; those that are sparse or on disk are made dense batch by batch.

    Arguments:
        data: the rows, in original units.
        scaling: of the columns.
        device: where batches are.
        dtype: of batches.
        whole: whether all rows are held as dense ones.

    Attributes:
        parts: what is held on the device, by name.
        on_disk: whether rows are read when a batch is made.
    """

    def __init__(
        self,
        data: Arrays | Matrix,
        scaling: Scaling,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        whole: bool = False,
    ) -> None:
        self.arrays = arrays = Arrays.of(data)
        self.shape, self.layout = arrays.x.shape, layout_of(arrays)
        self.device, self.dtype = torch.empty(0, device=device).device, dtype  # "cuda" as the "cuda:0" that it is
        self._scaling, self.on_disk = scaling, arrays.on_disk and not whole
        per_row = {name: csr_array(part) if issparse(part) else part for name, part in arrays.per_row.items()}
        self._lazy = {} if whole else {name: part for name, part in per_row.items() if not isinstance(part, np.ndarray)}
        self.parts = {name: self._convert(name, part) for name, part in per_row.items() if name not in self._lazy}

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def resident(self) -> bool:
        """Whether all rows are held on the device as the models see them."""
        return not self._lazy

    def _convert(self, name: str, values: Any) -> Tensor:
        """Convert numbers to a tensor, those of x scaled."""
        if name != "x":
            return torch.tensor(in_memory(values), device=self.device, dtype=self.dtype)
        scaled = torch.empty(values.shape, dtype=self.dtype)
        # A block at a time: the arithmetic is float64, the result need not be.
        for start in range(0, values.shape[0], _BLOCK):
            part = values[start : start + _BLOCK]
            part = part if isinstance(part, np.ndarray) else part.toarray()
            scaled[start : start + _BLOCK] = torch.from_numpy(self._scaling.apply(part))
        return scaled.to(self.device)

    def read(self, index: Tensor) -> dict[str, Tensor]:
        """Return the parts of rows by index; missing values are NaN."""
        read = {name: self._convert(name, part[index.cpu().numpy()]) for name, part in self._lazy.items()}
        return read | {name: part[index] for name, part in self.parts.items()}

    def batch(self, index: Tensor) -> Batch:
        """Make a batch of rows by index."""
        return assemble(self.read(index), self.layout.missing)


# Which rows are for what.


def judged_rows(names: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Which rows to judge a model on, by what they were for: test rows, or else validation rows.

    Example:
        >>> judged_rows(np.array(["train", "validation", "test"])).tolist()
        [False, False, True]
        >>> judged_rows(np.array(["train", "validation", "train"])).tolist()
        [False, True, False]
    """
    tested = names == "test"
    return tested if tested.any() else names == "validation"


HELD_OUT = 10_000
"""rows that are held out of a training for validation, and for the report, at most"""


@dataclass(frozen=True)
class Split:
    """Which rows are for training, for validation, and for neither."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def counts(self) -> tuple[int, int]:
        """Rows for training and for validation."""
        return len(self.train), len(self.validation)

    def names(self, rows: int, start: int = 0) -> NDArray[np.str_]:
        """Return "train", "validation" or "test" for each of so many rows, by default from the first one on."""
        names = np.full(rows, "train", dtype="<U10")
        for name in ("validation", "test"):
            part = getattr(self, name)
            names[part[(part >= start) & (part < start + rows)] - start] = name
        return names

    def sample(self, most: int, seed: int) -> NDArray[np.int64]:
        """Choose at most so many rows of every part at random; return all of them in ascending order."""
        random = np.random.default_rng([seed, 11])
        parts = (self.train, self.validation, self.test)
        chosen = [p if len(p) <= most else random.choice(p, most, replace=False, shuffle=False) for p in parts]
        return np.sort(np.concatenate(chosen))

    def within(self, rows: NDArray[np.int64]) -> Split:
        """Return the positions of each part among some rows, which are in ascending order."""
        parts = (np.flatnonzero(np.isin(rows, part)) for part in (self.train, self.validation, self.test))
        return Split(*parts)


def random_split(
    rows: int,
    validation: float,
    test: float = 0.0,
    seed: int = 0,
    groups: Any = None,
    most: int | None = None,
) -> Split:
    """Split rows at random; rows of one group stay together.

    Arguments:
        rows: how many there are.
        validation, test: shares of them; met as nearly as whole groups allow.
        seed: the split depends on it.
        groups: group of each row, or None.
        most: rows for validation, and for test, at most, but for the last group.
    """
    bound = 1.0 if most is None else most / max(1, rows)
    validation, test = min(validation, bound), min(test, bound)
    keys = None if groups is None else text_codes(groups)
    sizes = None if keys is None else np.bincount(keys)
    order = np.random.default_rng([seed, 7]).permutation(rows if sizes is None else len(sizes))
    wanted = (round(rows * share) for share in (validation, validation + test))
    if sizes is None:
        ends = list(wanted)
    else:
        sums = np.concatenate([[0], np.cumsum(sizes[order])])
        ends = [int(np.abs(sums - count).argmin()) for count in wanted]
    part = np.zeros(len(order), np.int8)
    part[order[ends[0] : ends[1]]] = 2
    part[order[: ends[0]]] = 1
    units = len(order)
    del order
    part = part if keys is None else part[keys]
    split = Split(*(np.flatnonzero(part == number) for number in range(3)))
    if len(split.train) == 0:
        raise CurvaeError(f"no rows are left for training: {rows} rows in {units} groups; hold out a smaller share")
    return split
