"""Features of nodes as networks see them, and as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from torch import Tensor

from ...data.graphs.node_features import Matrix
from ...data.scaling import Scaling

__all__ = ["feature_arrays", "feature_scaling", "feature_tensor", "restored_features"]


def feature_scaling(features: Matrix) -> Scaling:
    """To mean 0 and variance 1 of every column. A sparse matrix, which must stay so, is only divided by one number: the
    mean square length of its rows becomes 1, the length of those of the identity matrix, which stands for nodes without
    features. With rows as long as those of standardised columns, models of papers overfit the words in them.

    Example:
        >>> feature_scaling(csr_array(np.array([[0.0, 3.0], [0.0, 4.0], [0.0, 0.0]]))).scale.round(3).tolist()
        [2.887, 2.887]
    """
    if not issparse(features):
        return Scaling.standard(features)
    x: Any = features
    largest = float(abs(x.data).max()) if x.nnz else 0.0
    unit = largest * float(np.sqrt(((x.data / largest) ** 2).sum() / x.shape[0])) if largest else 1.0
    return Scaling(np.zeros(x.shape[1]), np.full(x.shape[1], unit))


def feature_tensor(features: Matrix, scaling: Scaling, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Scaled features, (n, ·), a sparse tensor of those that are sparse."""
    if not issparse(features):
        return torch.from_numpy(scaling.apply(features)).to(device, dtype)
    x: Any = features
    rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    places = torch.from_numpy(np.stack([rows, x.indices.astype(np.int64)]))
    values = torch.from_numpy(x.data / scaling.scale[x.indices])
    sparse = torch.sparse_coo_tensor(places, values.to(dtype), x.shape, check_invariants=False, is_coalesced=True)
    return sparse.to(device)


_SPARSE = ("data", "indices", "indptr")


def feature_arrays(features: Matrix) -> dict[str, NDArray[Any]]:
    """What `restored_features` makes features of, by name."""
    if not issparse(features):
        return {"features": features}
    return {f"features.{name}": getattr(features, name) for name in _SPARSE}


def restored_features(tensors: Mapping[str, Tensor], nodes: int, width: int) -> Matrix | None:
    """The features whose arrays are among these tensors, if there are any."""
    if "features" in tensors:
        return tensors["features"].numpy()
    if "features.data" not in tensors:
        return None
    found = csr_array(tuple(tensors[f"features.{name}"].numpy() for name in _SPARSE), shape=(nodes, width))
    found.check_format(full_check=True)
    return found
