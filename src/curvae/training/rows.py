"""Rows as the networks see them, scaled and in float32, and splits of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from ..data import Arrays, Dataset
from ..data.dataset import Scaling
from ..errors import CurvaeError
from ..models import Batch, Layout
from ..models.likelihoods.base import Matrix

__all__ = [
    "Data",
    "HeldOut",
    "Rows",
    "Split",
    "assemble",
    "hold_out",
    "hold_out_groups",
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
    """Rows of data in memory, ready for batches; with `whole`, a sparse matrix is spread out."""

    def __init__(
        self,
        data: Arrays | Matrix,
        scaling: Scaling,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        whole: bool = False,
    ) -> None:
        arrays = Arrays.of(data)
        x = arrays.x
        self.shape, self.layout = x.shape, layout_of(arrays)
        self.device, self._dtype = torch.empty(0, device=device).device, dtype  # "cuda" as the "cuda:0" that it is
        self._scaling = scaling
        self.sparse = sparse.issparse(x) and not whole
        self._x = sparse.csr_array(x) if sparse.issparse(x) else None
        others = {name: part for name, part in arrays.per_row.items() if name != "x"}
        self.parts = {name: torch.tensor(part, device=self.device, dtype=dtype) for name, part in others.items()}
        """what is resident on the device, by name; all but sparse x"""
        if not self.sparse:
            self.parts = {"x": self._scaled(x if self._x is None else self._x), **self.parts}

    def __len__(self) -> int:
        return int(self.shape[0])

    def _scaled(self, x: Matrix) -> Tensor:
        scaled = torch.empty(x.shape, dtype=self._dtype)
        # A block at a time: the arithmetic is float64, the result need not be.
        for start in range(0, x.shape[0], _BLOCK):
            part = x[start : start + _BLOCK]
            part = part.toarray() if sparse.issparse(part) else part
            scaled[start : start + _BLOCK] = torch.from_numpy(self._scaling.apply(part))
        return scaled.to(self.device)

    def batch(self, index: Tensor) -> Batch:
        """Rows by index."""
        parts = {name: part[index] for name, part in self.parts.items()}
        if self.sparse and self._x is not None:
            parts = {"x": self._scaled(self._x[index.cpu().numpy()]), **parts}
        return assemble(parts, self.layout.missing)


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

    def names(self, rows: int) -> NDArray[np.str_]:
        """ "train", "validation" or "test" for each row."""
        names = np.full(rows, "train", dtype="<U10")
        names[self.validation] = "validation"
        names[self.test] = "test"
        return names


def random_split(
    rows: int, validation: float, test: float = 0.0, seed: int = 0, groups: NDArray[Any] | None = None
) -> Split:
    """A random split; rows of one group stay together."""
    keys = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    order, ends = _shuffled(np.bincount(keys), (validation, validation + test), seed)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    held, tested = place[keys] < ends[0], place[keys] < ends[1]
    split = Split(np.flatnonzero(~tested), np.flatnonzero(held), np.flatnonzero(tested & ~held))
    if len(split.train) == 0:
        raise CurvaeError(
            f"no rows are left for training: {rows} rows in {len(order)} groups; hold out a smaller share"
        )
    return split


def _shuffled(counts: NDArray[np.int64], shares: Sequence[float], seed: int) -> tuple[NDArray[np.int64], list[int]]:
    """A random order of groups, and how many of its first groups have about these shares of all rows.

    Arguments:
        counts: rows of each group.
        shares: of the rows; met as nearly as whole groups allow.
        seed: on which the order depends.
    """
    order = np.random.default_rng([seed, 7]).permutation(len(counts))
    sums = np.cumsum([0, *counts[order]])
    return order, [int(np.abs(sums - round(int(sums[-1]) * share)).argmin()) for share in shares]


@dataclass(frozen=True)
class HeldOut:
    """Which of the rows of a stream are held out for validation and test, in ascending order; all others are trained
    on."""

    rows: int
    validation: NDArray[np.int64]
    test: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def counts(self) -> tuple[int, int]:
        """Rows for training and for validation."""
        return self.rows - len(self.validation) - len(self.test), len(self.validation)

    @property
    def all(self) -> NDArray[np.int64]:
        """All rows that are not trained on, in ascending order."""
        return np.union1d(self.validation, self.test)

    def names(self, rows: NDArray[np.int64]) -> NDArray[np.str_]:
        """ "train", "validation" or "test" for each of some rows, given by number."""
        held = [np.isin(rows, part) for part in (self.validation, self.test)]
        return np.select(held, ["validation", "test"], "train")


def hold_out(rows: int, share: float, most: int, seed: int = 0) -> HeldOut:
    """Hold out a random share of the rows of a stream, at most so many, in memory that does not grow with the rows."""
    count = min(round(rows * share), most, rows - 1)
    chosen = np.random.default_rng([seed, 7]).choice(rows, count, replace=False, shuffle=False)
    return HeldOut(rows, np.sort(chosen).astype(np.int64))


def hold_out_groups(groups: Mapping[str, int], share: float, most: int, seed: int = 0) -> list[str]:
    """Choose groups to hold out whose rows are about a share of all and at most so many; the same as of `random_split`
    where those are no more.

    Arguments:
        groups: rows of each group.
        share: of the rows.
        most: rows that may be held out.
        seed: on which the choice depends.
    """
    names = sorted(groups)
    counts = np.array([groups[name] for name in names])
    order, (end,) = _shuffled(counts, (share,), seed)
    if counts[order[:end]].sum() <= most and end < len(names):
        return [names[place] for place in order[:end]]
    chosen: list[str] = []
    rows = 0
    for place, count in zip(order.tolist(), counts[order].tolist(), strict=True):
        if rows + count <= most and len(chosen) + 1 < len(names):
            chosen.append(names[place])
            rows += count
    if not chosen:
        raise CurvaeError(
            f"no group is small enough to be held out: {most:,} rows may be, and the smallest group has "
            f"{int(counts.min()):,}; raise memory=…, or set validation=0"
        )
    return chosen
