"""Maps of cells: in objects of AnnData and in `.h5ad` files, where scanpy and others find them, and with labels of a
reference."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..errors import CurvaeError, require
from .embedding import Embedding
from .statistics import Array

__all__ = [
    "add_map",
    "geodesic_neighbours",
    "log_overlap",
    "transfer_labels",
    "write_map",
]


_DISTANCES = 1 << 21  # that are computed at a time
_FEWEST_KNOWN, _KNOWN = 50, 2000  # rows of a reference that tell how far to trust neighbours, at least and at most
_POWERS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0)  # of overlaps
_PARTS = (0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5)  # of the frequencies of labels in their probabilities


def geodesic_neighbours(
    embedding: Embedding, count: int, among: Embedding | None = None
) -> tuple[NDArray[np.int64], Array]:
    """Find the nearest rows of every row on the map, and their distances, each (rows, count), in their order.

    These are others of the same embedding, or rows `among` those of another one.
    """
    rows, others = np.arange(len(embedding)), embedding if among is None else among
    found = []
    for part in np.array_split(rows, math.ceil(len(rows) * len(others) / _DISTANCES)):
        far = embedding.take(part).distances(others)
        if among is None:
            far[np.arange(len(part)), part] = np.inf
        found.append(np.argpartition(far, count - 1)[:, :count])
    index = np.concatenate(found)
    both = embedding if among is None else among.joined(embedding)
    own = np.repeat(rows + len(both) - len(rows), count)
    distances = both.pairs(own, index.ravel()).reshape(index.shape)
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(index, order, 1), np.take_along_axis(distances, order, 1)


def _map_items(embedding: Embedding, n_neighbours: int) -> dict[str, dict[str, Any]]:
    """Return what a map says about cells, by part of an AnnData object and by name."""
    rows = len(embedding)
    if rows < 2:
        raise CurvaeError("a single cell has no neighbours; give more cells")
    k = min(n_neighbours, rows - 1)
    index, distances = geodesic_neighbours(embedding, k)
    # As of UMAP (McInnes, Healy and Melville, 2018), but for the unit: the mean of what the nearest one leaves.
    further = distances - distances[:, :1]
    chances = np.exp(-further / np.maximum(further.mean(1, keepdims=True), np.finfo(np.float64).tiny))

    order = index.argsort(1)
    columns = np.take_along_axis(index, order, 1).ravel()

    def graph(values: Array) -> csr_array:
        values = np.take_along_axis(values, order, 1)
        return csr_array((values.ravel(), columns, np.arange(0, rows * k + 1, k)), (rows, rows))

    one_way = graph(chances)
    sigma = embedding.sigma.reshape(rows, -1)
    names = ["curvae_sigma"] if sigma.shape[1] == 1 else [f"curvae_sigma_{one.name}" for one in embedding.placed]
    return {
        "obsm": {"X_curvae": embedding.tangent, "X_curvae_ball": embedding.ball},
        "obs": {"curvae_radius": embedding.radius, **dict(zip(names, sigma.T, strict=True))},
        "obsp": {
            "curvae_distances": graph(np.maximum(distances, np.finfo(np.float64).tiny)),
            "curvae_connectivities": csr_array(one_way + one_way.T - one_way * one_way.T),
        },
        "uns": {
            "curvae": {
                "distances_key": "curvae_distances",
                "connectivities_key": "curvae_connectivities",
                "params": {"n_neighbors": k, "method": "umap", "metric": "geodesic", "use_rep": "X_curvae"},
            }
        },
    }


def add_map(adata: Any, embedding: Embedding, n_neighbours: int = 15) -> None:
    """Add a map to an `anndata.AnnData` with the same rows.

    `obsm["X_curvae"]` has tangent coordinates, which Euclidean tools take, and `obsm["X_curvae_ball"]` those in the
    Poincaré ball; `obs["curvae_radius"]` has distances from the origin, `obs["curvae_sigma"]` standard deviations of
    the posteriors, of a product one for each factor. Geodesic neighbours are in `obsp["curvae_distances"]` and
    `obsp["curvae_connectivities"]`, which functions of scanpy take with `neighbors_key="curvae"`.

    Arguments:
        adata: takes the map.
        embedding: the map.
        n_neighbours: nearest neighbours of a row.
    """
    if len(embedding) != adata.n_obs:
        raise CurvaeError(f"the map has {len(embedding):,} rows and the AnnData object {adata.n_obs:,}; give the same")
    for part, items in _map_items(embedding, n_neighbours).items():
        for name, value in items.items():
            getattr(adata, part)[name] = value


def write_map(path: Path, embedding: Embedding, n_neighbours: int = 15) -> None:
    """Add a map to a `.h5ad` file with the same rows; see `add_map`. Nothing else in the file is changed."""
    purpose = "a map in a .h5ad file needs anndata to be written"
    write, h5py = require("anndata", purpose, "io").io.write_elem, require("h5py", purpose)
    items = _map_items(embedding, n_neighbours)
    with h5py.File(path, "r+") as file:
        for part, values in items.items():
            if part not in file:
                write(file, part, {})
            for name, value in values.items():
                write(file[part], name, value)
        columns = file["obs"].attrs
        columns["column-order"] = list(dict.fromkeys([*columns["column-order"], *items["obs"]]))


# Labels of a reference for other rows of the same map, from the posteriors of neighbours.


def log_overlap(embedding: Embedding, pairs: NDArray[np.int64]) -> Array:
    """Return by how much the posteriors of pairs of rows overlap, (·, 2): the logarithm of ∫√(p·q).

    It is that of normals in flat space with their distance and standard deviations.

    Example:
        >>> place = Embedding(np.array([[0.0], [2.0]]), np.ones(2), 0.0)
        >>> log_overlap(place, np.array([[0, 0], [0, 1]]))
        array([ 0. , -0.5])
    """
    total = np.zeros(len(pairs))
    for part in embedding.parts:
        sigma = part.sigma[pairs]
        squares = (sigma**2).sum(1)
        total += part.dim / 2 * np.log(2 * sigma.prod(1) / squares) - part.distances_of(pairs) ** 2 / (4 * squares)
    return total


def transfer_labels(
    query: Embedding, reference: Embedding, labels: NDArray[np.str_], k: int = 15
) -> tuple[NDArray[np.str_], Array]:
    """Return the likeliest label of every row of a query, and its probability.

    The k nearest rows of the reference have weights, a power of the overlap of their posteriors with that of the row.
    The probability of a label is the share of its rows in these weights, mixed with its frequency in the reference. The
    power and the part of the frequencies are those under which rows of the reference, each without itself, most likely
    have their labels; with few rows the overlaps alone count.

    Arguments:
        query, reference: places in the same space.
        labels: of the rows of the reference.
        k: how many neighbours.
    """
    if not 1 <= k <= len(reference):
        raise CurvaeError(f"`k` must lie between 1 and {len(reference):,}, the cells of the reference; got {k}")
    names, codes = np.unique(labels, return_inverse=True)
    frequency = np.bincount(codes) / len(codes)

    def overlaps(rows: Embedding, count: int) -> tuple[NDArray[np.int64], Array]:
        near, _ = geodesic_neighbours(rows, count, reference)
        own = np.repeat(len(reference) + np.arange(len(rows)), count)
        return near, log_overlap(reference.joined(rows), np.stack([own, near.ravel()], 1)).reshape(near.shape)

    def shares(near: NDArray[np.int64], logs: Array, power: float) -> Array:
        weights = np.exp(power * (logs - logs.max(1, keepdims=True)))
        found = np.zeros((len(near), len(names)))
        np.add.at(found, (np.arange(len(near))[:, None], codes[near]), weights / weights.sum(1, keepdims=True))
        return found

    power, part = 1.0, 0.0
    if len(reference) >= _FEWEST_KNOWN:
        known = np.random.default_rng(0).permutation(len(reference))[:_KNOWN]
        near, logs = overlaps(reference.take(known), min(k + 1, len(reference)))
        others = near != known[:, None]  # all but one; the farthest one more where the row itself is not among them
        others[others.all(1), -1] = False
        near, logs = (values[others].reshape(len(known), -1) for values in (near, logs))
        truth = np.arange(len(known)), codes[known]
        fits = {
            (power, part): np.log((1 - part) * told + part * frequency[codes[known]]).sum()
            for power, told in ((power, shares(near, logs, power)[truth]) for power in _POWERS)
            for part in _PARTS
        }
        power, part = max(fits, key=lambda pair: fits[pair])
    probability = (1 - part) * shares(*overlaps(query, k), power) + part * frequency
    best = probability.argmax(1)
    return names[best], np.minimum(probability[np.arange(len(query)), best], 1.0)  # but for rounding
