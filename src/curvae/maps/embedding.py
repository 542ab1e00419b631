"""Where rows or nodes lie in the latent space of a model, and from where their map is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from ..data.dataset import Scaling
from ..data.files import count, quoted
from ..distributions import HyperbolicNormal, ProductNormal
from ..errors import CurvaeError
from ..models.likelihoods.base import Matrix
from ..nn import Space
from .charts import CHARTS, Chart, Frame, letter_of
from .statistics import Array, principal_axes

__all__ = [
    "AlignedMaps",
    "Embedding",
    "PlacedFactor",
    "align_maps",
    "by_factor",
    "frames_from_json",
    "frames_to_json",
    "geodesic_points",
    "orient",
    "placed",
    "placed_factors",
    "point_distances",
    "principal_scores",
    "require_finite",
    "sampled_rows",
    "seen_radius",
]


def require_finite(what: str, figures: Sequence[Array], names: Any = None, thing: str = "row") -> None:
    """Raise if a row has a figure that is not finite, and name the rows.

    Arguments:
        what: name of the quantity, for the message.
        figures: arrays of shape (rows,) or (rows, k).
        names: of the rows; row numbers by default.
        thing: what to call a row.

    Example:
        >>> require_finite("likelihood", [np.array([0.5, np.nan, -np.inf])])
        Traceback (most recent call last):
        curvae.errors.CurvaeError: the likelihood is not finite for 2 rows: '1', '2'; correct extreme values there, or leave them out
    """  # noqa: E501 - an error is one line
    finite = np.logical_and.reduce([np.isfinite(part).reshape(len(part), -1).all(1) for part in figures])
    if not finite.all():
        wrong = np.flatnonzero(~finite)
        raise CurvaeError(
            f"the {what} is not finite for {count(len(wrong), thing)}: "
            f"{quoted(wrong if names is None else np.asarray(names)[wrong])}; "
            "correct extreme values there, or leave them out"
        )


class PlacedFactor(NamedTuple):
    """A factor of the space in which points lie.

    In a product, distances along a factor count in its unit: the standard deviation of its prior, since a decoder may
    stretch every factor freely; 1 for a graph, whose likelihood fixes the scale.
    """

    name: str  # its letter and place: "h1", "e2"
    dim: int
    c: float
    unit: float = 1.0

    @property
    def chart(self) -> Chart:
        """How its points are measured, written and drawn."""
        return CHARTS[self.name[0]](self.dim, self.c)


def by_factor(points: Array, factors: Sequence[PlacedFactor]) -> list[Array]:
    """Cut points (…, width) into the coordinates of each factor."""
    return np.split(points, np.cumsum([factor.chart.width for factor in factors])[:-1], -1)


@dataclass(frozen=True)
class Embedding:
    """Where rows lie: centres and standard deviations of their posteriors.

    Arguments:
        space: the coordinates of points in the factors, one after the other, (rows, width); in hyperbolic and flat
            ones these are space parts S on the hyperboloid.
        sigma: standard deviation of the posterior, (rows,), of a product (rows, factors); the geometric mean over axes
            of a diagonal one.
        factors: of the space; a number is the curvature c of a single one.
        popularity: how far the nodes of a graph reach, (rows,), if the model has such numbers; of a directed graph as
            senders and as receivers, (rows, 2).
        side: on which side of a graph that has two, as bipartite ones, its nodes are, (rows,), where popularity is
            known: nodes whose sides have the same sign avoid each other. 0 if not given.

    Example:
        >>> place = Embedding(np.zeros((3, 2)), np.ones(3), 1.0)
        >>> place.distances().shape, place.factors[0].name
        ((3, 3), 'h1')
    """

    space: Array
    sigma: Array
    factors: tuple[PlacedFactor, ...] | float
    popularity: Array | None = None
    side: Array | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.factors, tuple):
            c = float(self.factors)
            object.__setattr__(self, "factors", (PlacedFactor(f"{letter_of(c)}1", int(self.space.shape[1]), c),))

    @classmethod
    def from_tangent(cls, tangent: Array, sigma: Array, factors: tuple[PlacedFactor, ...]) -> Embedding:
        """Return the embedding whose `tangent` this is."""
        parts = np.split(tangent, np.cumsum([factor.dim for factor in factors])[:-1], 1)
        units = [1.0] if len(factors) == 1 else [factor.unit for factor in factors]
        spaces = [
            factor.chart.space.expmap0(torch.from_numpy(unit * part)).numpy()
            for part, unit, factor in zip(parts, units, factors, strict=True)
        ]
        return cls(np.concatenate(spaces, 1), sigma, factors)

    def __len__(self) -> int:
        return len(self.space)

    @property
    def placed(self) -> tuple[PlacedFactor, ...]:
        """The factors of the space."""
        assert isinstance(self.factors, tuple)
        return self.factors

    @property
    def parts(self) -> list[Embedding]:
        """The embedding in every factor."""
        if len(self.placed) == 1:
            return [self]
        return [
            Embedding(np.ascontiguousarray(space), sigma, (factor,), self.popularity, self.side)
            for space, sigma, factor in zip(by_factor(self.space, self.placed), self.sigma.T, self.placed, strict=True)
        ]

    @cached_property
    def centre(self) -> Array:
        """The Fréchet mean of all rows, (1, width)."""
        return torch.cat(self._measured("frechet_mean"))[None].numpy()

    @property
    def dim(self) -> int:
        return sum(factor.dim for factor in self.placed)

    @property
    def c(self) -> float:
        """The curvature of the one factor is −c."""
        if len(self.placed) > 1:
            raise ValueError("a product has a curvature for each factor: ask its parts")
        return self.placed[0].c

    @property
    def chart(self) -> Chart:
        """How points of the one factor are measured, written and drawn."""
        return self.placed[0].chart

    @property
    def points(self) -> Tensor:
        """The points as a tensor, as charts take them."""
        return torch.from_numpy(self.space)

    def _measured(self, name: str) -> list[Tensor]:
        """Return what a method of the spaces gives for the points in every factor."""
        return [getattr(part.chart.space, name)(part.points) for part in self.parts]

    @property
    def ball(self) -> Array:
        """Coordinates for people: in hyperbolic and flat factors those in the Poincaré ball."""
        return torch.cat([part.chart.coordinates(part.points) for part in self.parts], 1).numpy()

    @property
    def tangent(self) -> Array:
        """log_0: metric coordinates in the tangent space at the origin; of a product in the units of its factors."""
        found = self._measured("logmap0")
        if len(found) == 1:
            return found[0].numpy()
        return torch.cat([v / factor.unit for v, factor in zip(found, self.placed, strict=True)], 1).numpy()

    @cached_property
    def radius(self) -> Array:
        """Distance from the origin."""
        return _joined(self._measured("dist0"), self.placed)

    def distances_of(self, pairs: NDArray[np.int64]) -> Array:
        """Compute distances of listed pairs of rows, (·, 2)."""
        blocks = torch.from_numpy(np.ascontiguousarray(pairs.T)).split(1 << 20, 1)
        return _joined(
            [torch.cat([part.chart.pair_distances(part.points, block) for block in blocks]) for part in self.parts],
            self.placed,
        )

    def nearness_of(self, pairs: NDArray[np.int64]) -> Array:
        """By how much the popularity of both exceeds the distance and the product of sides, for listed pairs of nodes,
        (·, 2): the larger, the likelier they are joined; in a directed graph by an edge from the first to the second.
        """
        near, own = -self.distances_of(pairs), self.popularity
        if self.side is not None:
            near = near - self.side[pairs].prod(1)
        if own is None:
            return near
        return near + (own[pairs] if own.ndim == 1 else own[pairs, [0, 1]]).sum(1)

    def pairs(self, first: NDArray[np.intp], second: NDArray[np.intp]) -> Array:
        """Compute distances of the first to the second, one by one."""
        return self.distances_of(np.stack([first, second], 1))

    def require_finite(self, names: Any = None, thing: str = "row") -> Embedding:
        """Return the embedding itself; raise if a coordinate is not finite, which extreme values can cause."""
        # Far out, squares overflow: a point may be finite in one chart and not in the other.
        require_finite("embedding", [self.ball, self.tangent, self.radius, self.sigma], names, thing)
        return self

    def take(self, index: Any) -> Embedding:
        """Take the rows given by an index or a mask."""
        own = (None if numbers is None else numbers[index] for numbers in (self.popularity, self.side))
        return Embedding(self.space[index], self.sigma[index], self.factors, *own)

    def joined(self, other: Embedding) -> Embedding:
        """Return the rows with those of another embedding in the same space after them."""
        return Embedding(
            np.concatenate([self.space, other.space]), np.concatenate([self.sigma, other.sigma]), self.placed
        )

    def distances(self, other: Embedding | None = None) -> Array:
        """Compute geodesic distances, (rows, rows of the other)."""
        pairs = zip(self.parts, (self if other is None else other).parts, strict=True)
        return _joined([part.chart.distance_table(part.points, to.points) for part, to in pairs], self.placed)


def _joined(distances: Sequence[Tensor], factors: Sequence[PlacedFactor]) -> Array:
    """Compute distances from those along the factors."""
    if len(distances) == 1:
        return distances[0].numpy()
    squares = [(d / factor.unit).square() for d, factor in zip(distances, factors, strict=True)]
    return torch.stack(squares).sum(0).sqrt().numpy()


def point_distances(factors: Sequence[PlacedFactor], first: Array, second: Array) -> Array:
    """Compute distances of points, (…, width), to others, one by one."""
    parts = zip(factors, by_factor(first, factors), by_factor(second, factors), strict=True)
    return _joined([factor.chart.space.dist(*map(torch.from_numpy, ends)) for factor, *ends in parts], factors)


def geodesic_points(factors: Sequence[PlacedFactor], t: Array, start: Array, end: Array) -> Array:
    """Return the points at times t, from 0 to 1, on the geodesic from each start to its end, (…, width); times
    broadcast against the geodesics.
    """
    parts = zip(factors, by_factor(start, factors), by_factor(end, factors), strict=True)
    return torch.cat(
        [factor.chart.space.geodesic(*map(torch.from_numpy, (t, *ends))) for factor, *ends in parts], -1
    ).numpy()


def placed_factors(space: Space, units: bool = True) -> tuple[PlacedFactor, ...]:
    """Return the factors of the space of a model, with the prior scales or 1 as units."""
    return tuple(PlacedFactor(f.name, f.dim, f.c, f.prior_scale if units else 1.0) for f in space.figures())


def placed(space: Space, posteriors: Sequence[HyperbolicNormal | ProductNormal], units: bool = True) -> Embedding:
    """Collect centres and standard deviations of posteriors, batch after batch.

    Arguments:
        space: on which they are.
        posteriors: of the rows.
        units: whether distances in a product are in units of the prior scales.
    """
    each = [q.factors if isinstance(q, ProductNormal) else (q,) for q in posteriors]
    sigma = torch.cat([torch.stack([p.scale.log().mean(-1).exp().cpu() for p in parts], -1) for parts in each])
    factors = placed_factors(space, units)
    return Embedding(
        torch.cat([q.loc.cpu() for q in posteriors]).numpy(),
        (sigma[:, 0] if len(factors) == 1 else sigma).numpy(),
        factors,
    )


# How maps are turned to be drawn, and where several trainings place the same rows.
#
# The coordinates of a model stay as they are; a map is only seen from a `Frame`. Its likelihood does not change with an
# isometry of the latent space, so a seed decides how a map is turned, and a rule must.


def sampled_rows(count: int) -> NDArray[np.intp]:
    """Choose those of `count` rows by which maps are turned, the same for every seed."""
    return np.sort(np.random.default_rng(0).permutation(count)[:5000])  # more move nothing that can be seen


def principal_scores(x: Matrix) -> Array:
    """Return the first two principal components of rows, (rows, 2), from columns of unit variance; 0 where there are
    fewer.

    Missing values count as the mean of their column.
    """
    scaling = Scaling.standard(x)
    if sparse.issparse(x) and min(x.shape) > 3:
        from sklearn.decomposition import PCA  # takes long to import

        scaled = sparse.csr_array(x.multiply(1 / scaling.scale))
        found = PCA(2, svd_solver="arpack", random_state=0).fit_transform(scaled)
    else:
        scaled = np.nan_to_num(scaling.apply(x.toarray() if sparse.issparse(x) else x))
        found = principal_axes(scaled, 2).place(scaled)
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1])))


def orient(embedding: Embedding, rows: NDArray[np.intp], scores: Array, root: int | None = None) -> tuple[Frame, ...]:
    """Return the frames from which the factors of a map are drawn; see `picture_frame`.

    Arguments:
        embedding: the map.
        rows: which of its rows have scores.
        scores: of these, (·, 2), `principal_scores` for example.
        root: the row in the middle; the Fréchet mean by default.
    """
    known, wanted = torch.from_numpy(rows), torch.from_numpy(scores)
    return tuple(
        part.chart.frame(part.points[known], wanted, None if root is None else part.points[root].clone())
        for part in embedding.parts
    )


def seen_radius(embedding: Embedding, frames: Sequence[Frame]) -> Array:
    """Return distances of rows from the centres of the frames, (rows,); of a product in the units of its factors."""
    centres = np.concatenate([frame.centre.numpy() for frame in frames])[None]
    centre = Embedding(centres, np.ones((1, len(frames)) if len(frames) > 1 else 1), embedding.placed)
    return embedding.distances(centre)[:, 0]


def frames_to_json(frames: Sequence[Frame]) -> list[dict[str, Any]]:
    """Return what `frames_from_json` reads."""
    return [{"centre": one.centre.tolist(), "axes": one.axes.tolist()} for one in frames]


def frames_from_json(stored: Sequence[Mapping[str, Any]], factors: Sequence[PlacedFactor]) -> tuple[Frame, ...]:
    """Return the frames of the factors; raise ValueError if they have other dimensions."""
    frames = []
    for one, factor in zip(stored, factors, strict=True):
        centre, axes = (torch.tensor(one[name], dtype=torch.float64) for name in ("centre", "axes"))
        if centre.shape != (width := factor.chart.width,) or axes.shape != (width, factor.chart.axes):
            raise ValueError("its orientation has other dimensions than the map")
        frames.append(Frame(centre, axes, factor.c))
    return tuple(frames)


@dataclass(frozen=True)
class AlignedMaps:
    """Maps of the same rows, brought onto the first by the best isometry of every factor.

    Arguments:
        copies: the places of every row in the coordinates of the first map, (maps, rows, d).
        spread: root mean square of the distances of the places of a row from their Fréchet mean, (rows,).
        first: the map onto which the others were brought.
    """

    copies: Array
    spread: Array
    first: Embedding

    @property
    def parts(self) -> list[Array]:
        """The copies in every factor."""
        return by_factor(self.copies, self.first.placed)


def align_maps(maps: Sequence[Embedding]) -> AlignedMaps | None:
    """Bring maps of the same rows onto the first; None if no other has its curvatures, since no isometry leads there.

    Example:
        >>> place = np.random.default_rng(0).normal(size=(20, 2))
        >>> found = align_maps([Embedding(place, np.ones(20), 1.0), Embedding(-place, np.ones(20), 1.0)])
        >>> bool(found.spread.max() < 1e-9)
        True
    """
    first = maps[0]
    curvatures = [factor.c for factor in first.placed]
    others = [one for one in maps[1:] if [factor.c for factor in one.placed] == curvatures]
    if not others:
        return None
    rows = torch.from_numpy(sampled_rows(len(first)))
    copies, squares = [], np.zeros(len(first))
    for place, factor in enumerate(first.placed):
        own, *spaces = (one.parts[place].points for one in (first, *others))
        copies.append(torch.stack([own, *(factor.chart.align(one, own, rows) for one in spaces)]))
        unit = factor.unit if len(first.placed) > 1 else 1.0
        squares += factor.chart.mean_squares(copies[-1]).numpy() / unit**2
    return AlignedMaps(torch.cat(copies, 2).numpy(), np.sqrt(squares), first)
