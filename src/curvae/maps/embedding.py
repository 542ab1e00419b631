"""Where rows or nodes lie in the latent space of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.files import count, quoted
from ..distributions import HyperbolicNormal, ProductNormal
from ..errors import CurvaeError
from ..nn import Space
from .charts import CHARTS, Chart, letter_of
from .statistics import Array

__all__ = ["Embedding", "PlacedFactor", "by_factor", "placed", "placed_factors", "require_finite"]

_PAIRS = 1 << 20  # measured at once


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

    name: str
    """its letter and place: "h1", "e2" """
    dim: int
    c: float
    unit: float = 1.0

    @property
    def chart(self) -> Chart:
        """How its points are measured, written and drawn."""
        return CHARTS[self.name[0]](self.dim, self.c)


def by_factor(points: Array, factors: Sequence[PlacedFactor]) -> list[Array]:
    """Points (…, width) cut into the coordinates of each factor."""
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
        found = zip(by_factor(self.space, self.placed), self.sigma.T, self.placed, strict=True)
        return [
            Embedding(np.ascontiguousarray(space), sigma, (factor,), self.popularity, self.side)
            for space, sigma, factor in found
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
        """What a method of the spaces gives for the points in every factor."""
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
        """Distances of listed pairs of rows, (·, 2)."""
        blocks = torch.from_numpy(np.ascontiguousarray(pairs.T)).split(_PAIRS, 1)
        found = [torch.cat([part.chart.pair_distances(part.points, block) for block in blocks]) for part in self.parts]
        return _joined(found, self.placed)

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
        """Distances of the first to the second, one by one."""
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

    def distances(self, other: Embedding | None = None) -> Array:
        """Geodesic distances, (rows, rows of the other)."""
        pairs = zip(self.parts, (self if other is None else other).parts, strict=True)
        return _joined([part.chart.distance_table(part.points, to.points) for part, to in pairs], self.placed)


def _joined(distances: Sequence[Tensor], factors: Sequence[PlacedFactor]) -> Array:
    """Distances from those along the factors."""
    if len(distances) == 1:
        return distances[0].numpy()
    squares = [(d / factor.unit).square() for d, factor in zip(distances, factors, strict=True)]
    return torch.stack(squares).sum(0).sqrt().numpy()


def placed_factors(space: Space, units: bool = True) -> tuple[PlacedFactor, ...]:
    """Return the factors of the space of a model, with the prior scales or 1 as units."""
    return tuple(PlacedFactor(f.name, f.dim, f.c, f.prior_scale if units else 1.0) for f in space.figures())


def placed(space: Space, posteriors: Sequence[HyperbolicNormal | ProductNormal], units: bool = True) -> Embedding:
    """Centres and standard deviations of posteriors, batch after batch.

    Arguments:
        space: on which they are.
        posteriors: of the rows.
        units: whether distances in a product are in units of the prior scales.
    """
    centres = torch.cat([q.loc.cpu() for q in posteriors])
    each = [q.factors if isinstance(q, ProductNormal) else (q,) for q in posteriors]
    sigma = torch.cat([torch.stack([p.scale.log().mean(-1).exp().cpu() for p in parts], -1) for parts in each])
    factors = placed_factors(space, units)
    return Embedding(centres.numpy(), (sigma[:, 0] if len(factors) == 1 else sigma).numpy(), factors)
