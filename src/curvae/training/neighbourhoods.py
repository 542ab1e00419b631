"""Who is near whom in the data, and how far apart rows are: what the map of a model can be held to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from scipy.special import xlogy
from torch import Tensor
from torch.nn import functional as F

from ..data.disk import in_memory
from ..errors import CurvaeError
from ..maps.faithfulness import spectral_places
from ..maps.statistics import Bridge, bridged, neighbour_graph, principal_axes
from ..models import VAE, Batch, Likelihood
from ..settings import COMPONENTS, NeighbourKind
from .fitted import Effects
from .rows import Rows

__all__ = [
    "Neighbourhood",
    "Neighbourhoods",
    "Points",
    "affinities",
    "bridge_between",
    "draws",
    "encoder_inputs",
    "landmark_paths",
    "nearest",
    "neighbourhood",
]


# Nearness and distance of rows in a graph of neighbours.


def affinities(index: NDArray[np.int64], distances: NDArray[np.float64], perplexity: float) -> sparse.csr_array:
    """Return probabilities with which rows choose others as neighbours, (rows, rows), sparse.

    Row i chooses j among its nearest with a chance that falls as exp(−d²/2σ_i²), σ_i such that the choice is as
    uncertain as one among `perplexity` equal rows; entry ij is the mean of the chances that i chooses j and j chooses i
    (van der Maaten and Hinton, 2008, Visualizing data using t-SNE).

    Arguments:
        index, distances: of the nearest rows of every row, (rows, k).
        perplexity: less than k.
    """
    rows, k = index.shape
    squares = distances**2
    squares -= squares.min(1, keepdims=True)
    squares /= np.maximum(squares.mean(1, keepdims=True), np.finfo(np.float64).tiny)
    wanted = np.log(min(perplexity, k))
    low, high = np.full((rows, 1), -50.0), np.full((rows, 1), 50.0)  # of the logarithm of 1/2σ²
    for _ in range(40):
        middle = (low + high) / 2
        chances = np.exp(-np.exp(middle) * squares)
        chances /= chances.sum(1, keepdims=True)
        entropy = -xlogy(chances, chances).sum(1, keepdims=True)
        low, high = np.where(entropy > wanted, middle, low), np.where(entropy > wanted, high, middle)
    one_way = sparse.csr_array((chances.ravel(), index.ravel(), np.arange(0, rows * k + 1, k)), (rows, rows))
    return sparse.csr_array((one_way + one_way.T) / 2)


def draws(chances: sparse.csr_array, count: int, seed: int = 0) -> NDArray[np.int32]:
    """Draw `count` columns for every row, (rows, count), each drawn with a chance in proportion to its entry."""
    rows = chances.shape[0]
    ends = np.cumsum(chances.data)
    bounds = np.concatenate([[0.0], ends])[chances.indptr]
    draw, found = np.random.default_rng(seed), np.empty((rows, count), np.int32)
    for i in range(count):
        places = np.searchsorted(ends, bounds[:-1] + draw.random(rows) * np.diff(bounds), side="right")
        found[:, i] = chances.indices[np.clip(places, chances.indptr[:-1], chances.indptr[1:] - 1)]
    return found


def landmark_paths(graph: sparse.csr_array, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return landmarks, drawn at random, and the lengths of shortest paths from every row to each of them, (rows,
    landmarks), in units of their mean.

    The graph is connected. If `count` is the number of rows, all of them are landmarks, in their order. Landmarks that
    lie as far apart as can be would be the outliers of the data, and the map would be made for these.
    """
    rows = graph.shape[0]
    marks = np.sort(np.random.default_rng(0).permutation(rows)[:count])
    paths = np.empty((rows, len(marks)), np.float32)
    # At most two million lengths are in memory at once in double precision.
    for some in np.array_split(np.arange(len(marks)), math.ceil(rows * len(marks) / 2_000_000)):
        paths[:, some] = dijkstra(graph, indices=marks[some]).T
    paths /= max(float(paths.mean(dtype=np.float64)), np.finfo(np.float32).tiny)
    return marks, paths


# The nearest neighbours of some rows, and bridges between those that are far from each other.

Points = NDArray[np.float32]

_EXACT = 50_000  # rows to which all pairs are looked at on a CPU, even where pynndescent is installed
_BRIDGED, _REST = 512, 20_000  # rows of a component, and of the others, between which a bridge is looked for


def nearest(x: Points, k: int, device: torch.device) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the k nearest other rows of every row, and their distances, each (rows, k); in no particular order."""
    # For few rows no library is imported.
    if device.type == "cuda" or len(x) <= 10_000:
        return _by_blocks(torch.from_numpy(x).to(device, torch.float32 if device.type == "cuda" else torch.float64), k)
    if len(x) > _EXACT and (found := _approximate(x, k)) is not None:
        return found
    from sklearn.neighbors import NearestNeighbors  # takes long to import

    distances, index = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(x).kneighbors()
    return index.astype(np.int64), distances.astype(np.float64)


def _approximate(x: Points, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    try:
        from pynndescent import NNDescent
    except ImportError:
        return None
    index, distances = NNDescent(x, n_neighbors=k + 1, random_state=0).neighbor_graph
    # A row is not always found as the first of its own neighbours.
    own = index == np.arange(len(x))[:, None]
    own[~own.any(1), -1] = True
    return index[~own].reshape(len(x), k).astype(np.int64), distances[~own].reshape(len(x), k).astype(np.float64)


def _by_blocks(x: Tensor, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    square, size = (x * x).sum(1), max(1, (1 << 28 if x.is_cuda else 1 << 22) // len(x))
    index, distances = [], []
    for start in range(0, len(x), size):
        block = x[start : start + size]
        far = torch.addmm(square, block, x.T, alpha=-2.0)
        places = torch.arange(len(block), device=x.device)
        far[places, places + start] = torch.inf
        found = far.topk(k, 1, largest=False).indices
        index.append(found.cpu())
        distances.append((x[found] - block[:, None]).double().norm(dim=2).cpu())
    return torch.cat(index).numpy(), torch.cat(distances).numpy()


def bridge_between(x: Points) -> Bridge:
    """Return what finds bridges between components; in large tables, their ends among some of the rows."""
    draw, count = np.random.default_rng(0), len(x)
    some = np.arange(count) if count <= _REST else np.sort(draw.choice(count, _REST, replace=False))

    def with_squares(rows: Points) -> NDArray[np.float64]:
        exact = rows.astype(np.float64)
        return np.column_stack([exact, np.einsum("ij,ij->i", exact, exact)])

    sampled = some, with_squares(x[some])

    def bridge(inside: NDArray[np.bool_]) -> tuple[int, int, float]:
        own = np.flatnonzero(inside)
        few = count > _REST >= count - len(own)  # of the others: each of them is looked at
        own = own if len(own) <= _BRIDGED else draw.choice(own, _BRIDGED, replace=False)
        rest, points = (outside := np.flatnonzero(~inside), with_squares(x[outside])) if few else sampled
        rows = with_squares(x[own])
        size = rows[:, -1].copy()
        rows *= -2.0
        rows[:, -1] = 1.0
        far = rows @ points.T  # |b|² − 2a·b: what is left of |a − b|², in one product
        far[:, inside[rest]] = np.inf
        nearest_of = far.argmin(1)
        best = int((far[np.arange(len(own)), nearest_of] + size).argmin())
        ends = int(own[best]), int(rest[nearest_of[best]])
        return *ends, float(np.linalg.norm(x[ends[0]].astype(np.float64) - x[ends[1]]))

    return bridge


# The neighbourhoods of some rows, as the encoder of a model sees them.

_ALL_PAIRS = 2048  # rows to which all pairs are held in memory
_LANDMARKS = 300
_BLOCK = 4096
_LARGEST = 1e15  # value whose square may be summed in float32


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Who is near whom among some rows, and how far apart they are.

    Arguments:
        near: with which probability a row chooses another, (rows, rows); None if not asked for, or of too many rows.
        drawn: positions of rows that are drawn with these probabilities, (rows, draws); None if not asked for.
        far: distances from every landmark, (rows, landmarks), −1 from those of other groups. None if not asked for.
        landmarks: their positions; None if all rows are landmarks, in their order.
        group: of each row, (rows,): pairs of different groups do not count; None without covariates.
        start: where rows start on the spheres of the map, (rows, widths); None without spheres.
    """

    near: NDArray[np.float32] | None
    drawn: NDArray[np.int32] | None
    far: NDArray[np.float32] | None
    landmarks: NDArray[np.int64] | None
    group: NDArray[np.int32] | None = None
    start: NDArray[np.float32] | None = None


def neighbourhood(rows: Rows, index: NDArray[np.int64], model: VAE, kind: NeighbourKind, k: int) -> Neighbourhood:
    """Find the neighbourhoods of some rows of the data, each among the rows of the same categories of covariates.

    Rows of different batches, say, lie apart by what the map is to leave out, and it is the decoder that brings them
    together. What numbers among the covariates change is taken out by least squares.

    Arguments:
        rows: the data.
        index: which rows.
        model: whose encoder sees them.
        kind: what is asked for.
        k: nearest neighbours of a row, if there are so many others.
    """
    with np.errstate(over="ignore"):
        x = encoder_inputs(rows, torch.from_numpy(index).to(rows.device), model.likelihood)
    if not bool(np.abs(x).max() < _LARGEST):
        raise CurvaeError(
            f"values beyond {_LARGEST:g} are too large to tell which rows are near each other; scale them, leave "
            'standardise on, or use `neighbours="off"`'
        )
    count, context = len(x), rows.arrays.context
    group = np.zeros(count, np.int32) if context is None else group_rows(in_memory(context[index]), 3 * k + 1)
    groups = [np.flatnonzero(group == number) for number in range(group.max() + 1)]
    k = min(k, count - 1)
    spheres = [factor.width for factor in model.space if factor.closed]
    # Three times as many rows as count for neighbours come closer to all of their chances.
    wide = min(3 * k, count - 1) if kind != "far" else k
    index_of, distances = np.empty((count, wide), np.int64), np.empty((count, wide))
    for own in groups:
        places, distances[own] = nearest(x[own], wide, model.device)
        index_of[own] = own[places]
    near = drawn = far = marks = starts = None
    if spheres:
        found = nearest(x, wide, model.device) if len(groups) > 1 else (index_of, distances)  # or each starts by itself
        starts = spherical_start(affinities(*found, k), spheres)
    if kind in ("near", "both"):
        chances = affinities(index_of, distances, k)
        near, drawn = chances.toarray().astype(np.float32) if count <= _ALL_PAIRS else None, draws(chances, 64)
        del chances  # larger than all that is kept
    if kind in ("far", "both"):
        closest = np.argpartition(distances, k - 1, axis=1)[:, :k]
        graph = neighbour_graph(np.take_along_axis(index_of, closest, 1), np.take_along_axis(distances, closest, 1))
        del index_of, distances, closest
        most = count if count <= _ALL_PAIRS else min(count, _LANDMARKS, max(1, 30_000_000 // count))
        ends = np.round(np.cumsum([0, *map(len, groups)]) * (most / count)).astype(int)
        marks, far = np.empty(most, np.int64), np.full((count, most), -1.0, np.float32)
        for own, start, stop in zip(groups, ends, ends[1:], strict=False):
            if start < stop:
                places, paths = landmark_paths(bridged(graph[own][:, own], bridge_between(x[own])), stop - start)
                marks[start:stop], far[own, start:stop] = own[places], paths
        order = np.argsort(marks)
        marks = marks[order]
        for some in np.array_split(np.arange(count), -(-count // _BLOCK)):  # a copy of all would be the largest array
            far[some] = far[some[:, None], order]
    return Neighbourhood(
        near,
        drawn,
        far,
        None if count <= _ALL_PAIRS else marks,
        None if context is None else group,
        starts,
    )


def spherical_start(chances: sparse.csr_array, widths: Sequence[int]) -> NDArray[np.float32] | None:
    """Return places for rows on spheres of so many coordinates: the slowest vectors of the random walk between
    neighbours, normalised, sphere by sphere. On a closed curve these are cosine and sine of its angle, on a sphere the
    coordinates of its points. None if they are not found."""
    places = spectral_places(chances + 1e-9 * sparse.eye_array(chances.shape[0]), sum(widths))
    if places is None or places.shape[1] < sum(widths):
        return None
    places = places / np.maximum(places.std(0), np.finfo(np.float64).tiny)
    parts = np.split(places, np.cumsum(widths)[:-1], 1)
    return np.concatenate(
        [part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12) for part in parts], 1
    ).astype(np.float32)


def group_rows(context: NDArray[np.float64], fewest: int) -> NDArray[np.int32]:
    """Tell groups of rows with the same categories apart by numbers; groups of fewer rows join the largest.

    Arguments:
        context: covariates as numbers, (rows, covariates), those of 0 and 1 being categories.
        fewest: rows of a group.

    Example:
        >>> group_rows(np.array([[1.0, 0.0, 0.3], [1.0, 0.0, 0.2], [0.0, 1.0, 0.3], [1.0, 0.0, 0.1]]), 1).tolist()
        [1, 1, 0, 1]
        >>> group_rows(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), 2).tolist()
        [0, 0, 0]
    """
    categories = context[:, np.isin(context, (0.0, 1.0)).all(0)]
    _, group, sizes = np.unique(categories, axis=0, return_inverse=True, return_counts=True)
    large = sizes >= fewest
    large[sizes.argmax()] = True
    number = np.cumsum(large) - 1
    return np.where(large, number, number[sizes.argmax()])[group.ravel()].astype(np.int32)


_FEW_COLUMNS = 1000  # of which all products are computed


def encoder_inputs(rows: Rows, index: Tensor, likelihood: Likelihood) -> Points:
    """Return rows as the encoder sees them, missing entries filled in, without the effects of covariates; of more than
    50 columns, 50 principal components, which leave out much of the noise that hides who is near whom."""
    effects: Effects | None = None

    def seen(part: Tensor) -> Points:
        batch = rows.batch(part)
        x: Points = likelihood.inputs(batch).flatten(1).float().cpu().numpy()
        return x if effects is None else effects.removed(x, batch.context.cpu().numpy()).astype(np.float32)

    width = seen(index[:1]).shape[1]
    blocks = index.split(_BLOCK)
    if width > COMPONENTS or rows.layout.covariates:
        # Components and effects are found from some rows, of many columns fewer: all products then take no memory.
        most = 200_000_000 if width <= _FEW_COLUMNS else 20_000_000
        draw = np.random.default_rng(0).permutation(len(index))[: max(_BLOCK, most // width)]
        some = index[torch.from_numpy(np.sort(draw)).to(index.device)]
        known = np.empty((len(some), width), np.float32)
        places = np.split(np.arange(len(some)), range(_BLOCK, len(some), _BLOCK))
        for place in places:
            known[place] = seen(some[place])
    if rows.layout.covariates:
        given = in_memory(rows.arrays.context[some.cpu().numpy()])
        effects = Effects.of(known, given)
        for place in places:
            known[place] = effects.removed(known[place], given[place])
    if width <= COMPONENTS:
        return np.concatenate([seen(block) for block in blocks])
    count = min(COMPONENTS, len(known))
    # From all products of rows or columns, where these are few.
    if min(known.shape) <= _FEW_COLUMNS:
        project: Any = principal_axes(known.astype(np.float64), count).place
    else:
        from sklearn.decomposition import PCA  # takes long to import

        project = PCA(count, random_state=0, copy=False).fit(known).transform
    return np.concatenate([project(seen(block)).astype(np.float32) for block in blocks])


# Neighbourhoods of the rows of a batch, for every model of a stack.

_COMPANIONS, _BATCH_LANDMARKS = 256, 64  # neighbours and landmarks that are placed together with a batch, at most
_CROWDED = 1024  # rows, up to which each batch holds enough neighbours by chance


class Neighbourhoods:
    """What is known about the neighbours of the rows of a batch, for every model of a stack.

    Rows of a large table find few of their neighbours in a batch. There some of these are placed together with it, as
    its companions, and so are some landmarks where the lengths of paths are known to landmarks alone.

    Arguments:
        each: the distinct neighbourhoods, of equally many rows.
        which: of them every model has.
        device: of the batches.
        size: rows of a batch.
    """

    def __init__(self, each: Sequence[Neighbourhood], which: Sequence[int], device: torch.device, size: int) -> None:

        def join(name: str) -> Tensor | None:
            parts = [getattr(one, name) for one in each]
            if any(part is None for part in parts):
                return None
            return torch.from_numpy(parts[0][None] if len(parts) == 1 else np.stack(parts)).to(device)  # no copy of one

        self._near, self._drawn, self._far, self._landmarks, self._group, self.start = map(
            join, ("near", "drawn", "far", "landmarks", "group", "start")
        )
        self._n_companions = (
            min(size, _COMPANIONS) if self._drawn is not None and self._drawn.shape[1] > _CROWDED else 0
        )
        self._own = torch.tensor(list(which), device=device).view(-1, 1, 1)

    def keep(self, places: Sequence[int]) -> Self:
        """Keep the neighbourhoods of some of the models."""
        new = copy(self)
        new._own = self._own[list(places)]
        return new

    def join(
        self, batch: Batch, positions: Tensor, rows: Callable[[Tensor], Batch], kept: Tensor | None = None
    ) -> Batch:
        """Return the batch with its companions, and what is known about their neighbours.

        Arguments:
            batch: of a stack, parts of shape (models, n, …).
            positions: of its rows among those that have neighbourhoods, (models, n).
            rows: from positions, (models, m), to a batch.
            kept: 1 for rows, 0 for what fills up the batch, (n,).
        """
        if self.start is not None:
            batch = batch.joined(start=self.start[self._own[..., 0], positions])
        related = self._near is not None or self._drawn is not None or self._far is not None
        return self._related(batch, positions, rows, kept) if related else batch

    def _related(self, batch: Batch, positions: Tensor, rows: Callable[[Tensor], Batch], kept: Tensor | None) -> Batch:
        """Return the batch with its companions, and how near and far all of them are."""
        turn = positions[:, :1] * 7919  # a prime: the first row of a batch decides on its companions
        companions, marks = [], None
        if self._n_companions:
            companions.append(self._companions(positions, turn))
        if self._landmarks is not None:
            most = self._landmarks.shape[1]
            marks = (turn + torch.arange(min(_BATCH_LANDMARKS, most), device=turn.device)) % most
            companions.append(self._landmarks[self._own[..., 0], marks])
        every = torch.cat([positions, *companions], 1) if companions else positions
        ordered, column = every.sort(dim=1, stable=True) if companions or self._near is None else (None, None)
        left_out = positions.unsqueeze(-1) == every.unsqueeze(1)
        if ordered is not None and column is not None:  # without companions none comes a second time
            again = F.pad(ordered[:, 1:] == ordered[:, :-1], (1, 0))
            left_out |= torch.zeros_like(again).scatter(1, column, again).unsqueeze(1)
        if kept is not None:
            filling = kept == 0
            left_out |= filling.unsqueeze(-1) | F.pad(filling, (0, every.shape[1] - len(kept)))
        if self._group is not None:
            group = self._group[self._own[..., 0], every]
            left_out |= group[:, : positions.shape[1], None] != group.unsqueeze(1)
        parts: dict[str, Tensor | Batch] = {}
        if self._near is not None or self._drawn is not None:
            near = self._nearness(positions, every, ordered, column).masked_fill_(left_out, 0.0)
            near = near.div_(near.sum(-1, keepdim=True).clamp_(min=torch.finfo(near.dtype).tiny))
            parts["near"] = near.masked_fill_(left_out, -1.0)
        if self._far is not None:
            parts["far"] = self._distances(positions, every, marks).masked_fill_(left_out, -1.0)
        if companions:
            parts["companions"] = rows(every[:, positions.shape[1] :])
        return batch.joined(**parts)

    def _companions(self, positions: Tensor, turn: Tensor) -> Tensor:
        """Neighbours of the rows of a batch, of each in turn, (models, count)."""
        drawn: Tensor = self._drawn  # type: ignore[assignment]
        number = torch.arange(self._n_companions, device=positions.device)
        rows = positions[:, number % positions.shape[1]]
        return drawn[self._own[..., 0], rows, (turn + number) % drawn.shape[2]].to(positions.dtype)

    def _nearness(self, positions: Tensor, every: Tensor, ordered: Tensor | None, column: Tensor | None) -> Tensor:
        """Of rows of a batch to all that are placed, (models, n, placed): probabilities, up to a factor for each row;
        or how many of those drawn for the row are which."""
        if self._near is not None:
            return self._near[self._own, positions.unsqueeze(-1), every.unsqueeze(1)]
        assert ordered is not None and column is not None  # `join` sorts wherever rows are drawn
        models, n = positions.shape
        drawn = self._drawn[self._own[..., 0], positions].flatten(1).to(positions.dtype)  # type: ignore[index]
        place = torch.searchsorted(ordered, drawn).clamp(max=ordered.shape[1] - 1)
        met = (ordered.gather(1, place) == drawn).float().view(models, n, -1)
        counts = torch.zeros(models, n, every.shape[1], device=positions.device)
        return counts.scatter_add(2, column.gather(1, place).view(models, n, -1), met)

    def _distances(self, positions: Tensor, every: Tensor, marks: Tensor | None) -> Tensor:
        """Of rows of a batch from all that are placed, (models, n, placed); −1 if unknown."""
        far: Tensor = self._far  # type: ignore[assignment]
        if marks is None:
            return far[self._own, positions.unsqueeze(-1), every.unsqueeze(1)]
        known = far[self._own, positions.unsqueeze(-1), marks.unsqueeze(1)]
        return F.pad(known, (every.shape[1] - marks.shape[1], 0), value=-1.0)
