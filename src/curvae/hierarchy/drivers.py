"""Which columns change on the way from one place of a map to another?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

from ..data.dataset import Scaling
from ..errors import CurvaeError
from ..maps.embedding import Embedding, geodesic_points, point_distances
from ..maps.statistics import Array
from ..models import VAE, Batch, Layout
from .lineages import Lineage

__all__ = ["Drivers", "Expected", "draw_places", "expected_rows", "explain", "explain_along"]

_UNIT_ROWS = 500  # of the map, from which the unit of a column is measured
_DECODED = 2**22  # expected values held at once


class TrainedVAE(Protocol):
    """A trained model of rows, such as `curvae.training.Fitted`."""

    model: VAE
    layout: Layout
    scaling: Scaling

    def reconstruct(self, space: Array, *, context: Array | None = None) -> Array:
        """Return the expected rows at points, in original units."""
        ...


@dataclass(frozen=True)
class Drivers:
    """What the decoder expects along a geodesic, in the columns that change most, in original units.

    Arguments:
        features: places of these columns among all, the one that changes most first, (k,).
        unit: standard deviation of each in the whole data, as the model has them, (k,).
        t: places on the geodesic, from 0 at the start to 1 at the end, (steps,).
        mean: expected values there, (steps, k).
        low, high: interval of the expected values between draws of the posteriors, (steps, k).
        change: by how much each expected value grows from start to end, (k,).
        change_low, change_high: its interval, (k,).
        length: of the geodesic.
    """

    features: NDArray[np.intp]
    unit: Array
    t: Array
    mean: Array
    low: Array
    high: Array
    change: Array
    change_low: Array
    change_high: Array
    length: float

    @property
    def travel(self) -> Array:
        """How far each expected value moves on the way, from its smallest to its largest, in units of its column."""
        return np.ptp(self.mean, axis=0) / self.unit

    @property
    def clear(self) -> NDArray[np.bool_]:
        """For which columns the interval of the change leaves 0 out."""
        return (self.change_low > 0) | (self.change_high < 0)

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """Return JSON values, given the names of all features."""
        columns = [
            {
                "column": str(names[feature]),
                "from": self.mean[0, i],
                "to": self.mean[-1, i],
                "change": self.change[i],
                "interval": [self.change_low[i], self.change_high[i]],
                "travel": travel,
                "clear": bool(clear),
                "path": self.mean[:, i].tolist(),
                "path_interval": [self.low[:, i].tolist(), self.high[:, i].tolist()],
            }
            for i, (feature, travel, clear) in enumerate(zip(self.features, self.travel, self.clear, strict=True))
        ]
        return {"length": self.length, "t": self.t.tolist(), "columns": columns}

    def table(self, names: Sequence[str], column: str = "column", t: str = "t") -> pd.DataFrame:
        """Return expected values with their intervals, a line for each column and place, given the names of all
        features; arguments beside these name columns of the table.
        """
        shown = np.array(names)[self.features]
        values = {name: getattr(self, name).ravel("F") for name in ("mean", "low", "high")}
        return pd.DataFrame({column: shown.repeat(len(self.t)), t: np.tile(self.t, len(shown)), **values})


def explain(
    fitted: TrainedVAE,
    embedding: Embedding,
    end: ArrayLike,
    start: ArrayLike | None = None,
    *,
    columns: int = 20,
    draws: int = 200,
    level: float = 0.9,
    steps: int = 21,
    context: Array | None = None,
    seed: int = 0,
) -> Drivers:
    """Find the columns that change along the geodesic between two rows, or groups of rows, of a map.

    The decoder is asked for the expected row at every step of the geodesic. For the intervals, both ends are drawn many
    times: a row of the group, and a point of its posterior. So they tell how far the answer depends on where exactly
    the rows lie and, of a group, on which of its rows is meant; not how well the model was trained.

    Arguments:
        fitted: a model of rows.
        embedding: its map, of any rows.
        end: places of rows in the map; of several, the geodesic ends at their Fréchet mean.
        start: where it starts, likewise; by default at the Fréchet mean of all rows, which is not drawn.
        columns: how many to return, those that change most beside the standard deviation of the column.
        draws: of the posteriors, for the intervals.
        level: probability of the intervals.
        steps: on the geodesic, with both ends.
        context: covariates, (covariates,), if the model uses some; by default 0.
        seed: of the draws.

    Example:
        >>> from curvae.data import branching_diffusion
        >>> from curvae.training import Config, embed, fit
        >>> x = branching_diffusion().x
        >>> fitted = fit(Config(hidden=(16,), epochs=1), x)
        >>> found = explain(fitted, embed(fitted, x), end=[600], start=[0], columns=3)
        >>> found.features.shape, found.mean.shape
        ((3,), (21, 3))
    """
    random = np.random.default_rng(seed)
    groups = [None if rows is None else _take(embedding, rows) for rows in (start, end)]
    centres = [embedding.centre if group is None else group.centre for group in groups]  # (1, d) each
    contexts, unit = _units(fitted, embedding, context, random)
    ends = [
        np.repeat(centre, draws, 0)
        if group is None
        else draw_places(fitted, group.take(random.integers(len(group), size=draws)), random)
        for group, centre in zip(groups, centres, strict=True)
    ]
    ways = np.stack([np.concatenate(centres), *np.stack(ends, 1)])
    t = np.linspace(0.0, 1.0, steps)
    points = geodesic_points(embedding.placed, t, ways[:, :1], ways[:, 1:])
    length = float(point_distances(embedding.placed, *centres)[0])
    return _along(fitted, points, t, contexts, unit, length, columns=columns, level=level)


def explain_along(
    fitted: TrainedVAE,
    embedding: Embedding,
    lineage: Lineage,
    end: str,
    *,
    columns: int = 20,
    features: NDArray[np.intp] | None = None,
    level: float = 0.9,
    steps: int = 41,
    context: Array | None = None,
    seed: int = 0,
) -> Drivers:
    """Find the columns that change along a tree of groups, from its root to one of them.

    The decoder is asked for the expected row along the way; `t` of the result is the pseudotime. Intervals are those
    between the same ways in the drawn trees: they tell how far the expected row of the way depends on which rows were
    measured and where they lie, and not how much rows differ.

    Arguments:
        fitted: a model of rows.
        embedding: its map, of any rows.
        lineage: the tree.
        end: name of the group at the end.
        columns: how many to return, those that change most beside the standard deviation of the column.
        features: places of the columns to return instead.
        level, steps: as of `explain`.
        context: covariates, (covariates,), or several, over which expected rows are averaged, (·, covariates).
        seed: of the draws that tell standard deviations.
    """
    contexts, unit = _units(fitted, embedding, context, np.random.default_rng(seed))
    nodes = lineage.path(end)
    reached = lineage.tree.height[nodes]
    t = np.linspace(0.0, reached[-1], steps)
    edge = np.searchsorted(reached[1:-1], t, side="right")
    ways = np.concatenate([lineage.nodes.space[None], lineage.drawn])[:, nodes]
    times = (t - reached[edge]) / np.maximum(np.diff(reached)[edge], np.finfo(np.float64).tiny)
    points = geodesic_points(embedding.placed, times, ways[:, edge], ways[:, edge + 1])
    return _along(fitted, points, t, contexts, unit, float(reached[-1]), features, columns=columns, level=level)


def _along(
    fitted: TrainedVAE,
    points: Array,
    t: Array,
    contexts: Array,
    unit: Array,
    length: float,
    features: NDArray[np.intp] | None = None,
    *,
    columns: int,
    level: float,
) -> Drivers:
    """Find the columns that change along a way, the first of points (ways, steps, width); the others are draws of it,
    for the intervals."""
    mean = _expected(fitted, points[0], contexts)
    if features is None:
        features = np.argsort(-np.ptp(mean, axis=0) / unit, kind="stable")[: max(1, columns)]
    # Of all draws at once, (draws, steps, k).
    values = _expected(fitted, np.concatenate(points[1:]), contexts, features).reshape(len(points) - 1, len(t), -1)
    tails = (1 - level) / 2, (1 + level) / 2
    low, high = np.quantile(values, tails, axis=0)
    change_low, change_high = np.quantile(values[:, -1] - values[:, 0], tails, axis=0)
    chosen = mean[:, features]
    change = chosen[-1] - chosen[0]
    return Drivers(features, unit[features], t, chosen, low, high, change, change_low, change_high, length)


class Expected(NamedTuple):
    """What the decoder expects at every row of a map, in the columns that differ most between rows.

    Arguments:
        features: places of these columns among all, (k,).
        mean: expected values, in original units, (rows, k).
        deviation: their standard deviations over draws of the posteriors, (rows, k).
        unit: standard deviation of each column, (k,).
    """

    features: NDArray[np.intp]
    mean: Array
    deviation: Array
    unit: Array


def expected_rows(
    fitted: TrainedVAE,
    embedding: Embedding,
    *,
    columns: int = 12,
    draws: int = 10,
    context: Array | None = None,
    seed: int = 0,
) -> Expected:
    """Return what the decoder expects at every row, and so how any two rows differ; arguments as of `explain`."""
    random = np.random.default_rng(seed)
    covariates, unit = _units(fitted, embedding, context, random)
    some = random.permutation(len(embedding))[:_UNIT_ROWS]
    deviation = _expected(fitted, embedding.space[some], covariates).std(0) / unit
    features = np.argsort(-deviation, kind="stable")[:columns]
    mean = _expected(fitted, embedding.space, covariates, features)
    moments = np.zeros((2, *mean.shape))
    for _ in range(draws):
        off = _expected(fitted, draw_places(fitted, embedding, random), covariates, features) - mean
        moments += [off, off**2]
    first, second = moments / draws
    return Expected(features, mean, np.sqrt(np.maximum(second - first**2, 0.0) * draws / (draws - 1)), unit[features])


def _take(embedding: Embedding, rows: ArrayLike) -> Embedding:
    """Take rows of a map by their places; raise where there are none."""
    places = np.atleast_1d(np.asarray(rows))
    if not (places.size and np.issubdtype(places.dtype, np.integer)):
        raise CurvaeError(f"rows must be given by their places, whole numbers, at least one; got {rows!r}")
    if places.min() < 0 or places.max() >= len(embedding):
        raise CurvaeError(f"the map has rows 0 to {len(embedding) - 1}, got {int(places.max())}")
    return embedding.take(places)


def draw_places(fitted: TrainedVAE, rows: Embedding, random: np.random.Generator) -> Array:
    """Draw a point of the posterior of every row, (rows, d)."""
    points = []
    for part, factor in zip(rows.parts, fitted.model.space, strict=True):
        sigma = torch.from_numpy(part.sigma.reshape(-1, 1))
        q = factor.around(part.points, sigma, part.c)
        points.append(q.transform(torch.from_numpy(random.normal(size=(len(part), q.noise_dim)))))
    return torch.cat(points, -1).numpy()


def _expected(fitted: TrainedVAE, points: Array, contexts: Array, features: Any = slice(None)) -> Array:
    """Compute expected values of features at points, in original units, averaged over covariates (contexts, ·)."""
    parts = np.array_split(points, -(-len(points) * fitted.layout.features // _DECODED))
    return np.concatenate(
        [
            sum(fitted.reconstruct(part, context=np.tile(one, (len(part), 1)))[:, features] for one in contexts)
            / len(contexts)
            for part in parts
        ]
    )


def _units(
    fitted: TrainedVAE, embedding: Embedding, context: Array | None, random: np.random.Generator
) -> tuple[Array, Array]:
    """Return covariates, (contexts, ·), and with them the standard deviation of every column over rows that the model
    makes at points of the map."""
    contexts = np.zeros((1, fitted.layout.covariates)) if context is None else np.atleast_2d(context)
    places = random.permutation(len(embedding))[:_UNIT_ROWS]
    model = fitted.model
    covariates = torch.from_numpy(contexts[np.arange(len(places)) % len(contexts)]).to(model.device, model.dtype)
    points = torch.from_numpy(embedding.space[places]).to(model.device)
    generator = torch.Generator(model.device).manual_seed(int(random.integers(2**31)))
    with torch.no_grad():
        made = model.likelihood.sample(model.decode(points, covariates), Batch(points, context=covariates), generator)
    deviation = fitted.scaling.invert(made.cpu().double().numpy()).std(0)
    return contexts, np.where(deviation > 0, deviation, np.inf)
