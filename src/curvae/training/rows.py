"""Rows of data as the networks see them: scaled, float32, densified a batch at a time when sparse."""

from __future__ import annotations

from typing import Any

import torch
from scipy import sparse
from torch import Tensor

from ..data import Arrays, Dataset
from ..data.scaling import Scaling
from ..models import Batch, Layout
from ..models.likelihoods.base import Matrix

__all__ = ["Data", "Rows", "assemble", "layout_of"]

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
