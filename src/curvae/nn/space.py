"""The latent space of a model: a product of factors, each with its curvature, distributions and prior."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..distributions import HyperbolicNormal, ProductNormal, RiemannianNormal, SphericalUniform, WrappedNormal
from ..distributions.step import draw_and_divergence, draw_on_sphere
from ..errors import CurvaeError
from ..geometry import Lorentz, Sphere, hyperboloid as h
from ..geometry.functions import REACH
from ..geometry.pairs import distances, distances_within, sum_over_pairs
from ..settings import DecoderKind, DistributionKind, FactorSettings, parse_space
from .layers import Ball, Curvature, Gyroplane, LogMap0, MobiusLinear, PriorScale

__all__ = ["FACTORS", "Factor", "FactorFigures", "HyperbolicFactor", "Space", "SphericalFactor"]

Distribution = DistributionKind | type[HyperbolicNormal]

_DISTRIBUTIONS: dict[str, type[HyperbolicNormal]] = {"riemannian": RiemannianNormal, "wrapped": WrappedNormal}

# Added to the standard deviation of a posterior, so that its logarithm is finite for any output of a network. Unlike a
# clamp, this keeps the gradient.
_SMALLEST = 1e-8


# Exactly these: a subclass may be another distribution.
_GAUSSIAN_IF_FLAT = {WrappedNormal, RiemannianNormal}


def _distribution(given: Distribution) -> type[HyperbolicNormal]:
    if isinstance(given, type) and issubclass(given, HyperbolicNormal):
        return given
    if given not in _DISTRIBUTIONS:
        raise ValueError(f"distribution must be one of {', '.join(_DISTRIBUTIONS)}, or a class; got {given!r}")
    return _DISTRIBUTIONS[given]


class FactorFigures(NamedTuple):
    """The numbers of a factor; its name is its letter and its place in the product, such as "h1" or "e2"."""

    name: str
    dim: int
    c: float
    prior_scale: float

    @property
    def identifiable(self) -> float:
        """c·σ0²."""
        return self.c * self.prior_scale**2


class Factor(nn.Module, ABC):
    """A factor of a latent space, with the distributions of posteriors and prior on it.

    A point has `width` coordinates, and is drawn from `noise_dim` standard normal numbers. `FACTORS` has the class of
    every letter, which is made with dimension, curvature, whether that is learned, and the options of `Space`.

    Arguments:
        dim: dimension.
        width: number of coordinates of a point.
        curvature: c, for layers and reports.
        prior_scale: the standard deviation σ0 of the prior, or where learning starts.
        learn_prior_scale: whether it is a parameter.
        units: whether networks work in units of the prior scale: their outputs are multiplied by σ0 as it starts, and
            coordinates of points that they are given divided by it. Then models with small σ0 learn as fast as others.

    Attributes:
        unit: of networks, or None for 1.
        located: how many numbers an encoder gives for the centre of a posterior.
    """

    flat = False
    """whether it has no curvature c, and none to learn"""
    closed = False
    """whether it closes up, so that training holds centres to the places where rows start"""

    def __init__(
        self, dim: int, width: int, curvature: Curvature, prior_scale: float, learn_prior_scale: bool, units: bool
    ) -> None:
        super().__init__()
        self.unit: Tensor | None
        self.register_buffer("unit", torch.tensor(float(prior_scale)) if units else None)
        self.dim, self.curvature = dim, curvature
        self.width = self.located = width
        self.scale = PriorScale(prior_scale, learn_prior_scale)

    @property
    def noise_dim(self) -> int:
        """How many standard normal numbers make a draw."""
        return self.dim

    @property
    @abstractmethod
    def letter(self) -> str:
        """The letter of its kind."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Numbers that an encoder gives for the posterior of a row: `located` for its centre, then those for σ."""

    @abstractmethod
    def centre(self, outputs: Tensor) -> Tensor:
        """Return the centres of posteriors, (…, width), in float64."""

    @abstractmethod
    def around(self, points: Tensor, scale: Tensor, c: float) -> Any:
        """Return the distribution of posteriors with these centres and standard deviations."""

    @abstractmethod
    def posterior(self, outputs: Tensor) -> Any:
        """Return the posterior of every row, from the outputs of an encoder; in float64."""

    @abstractmethod
    def prior(self) -> Any:
        """Return the prior, around the origin; in float64."""

    def draw(
        self, outputs: Tensor, noise: Tensor, dtype: torch.dtype, room: float = 1.0, flat: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return a point made from `noise`, shape (k, rows, noise_dim), in `dtype`, and log q − log p there.

        If it is known to be `flat`, it is drawn as in ordinary space.
        """
        z, log_q = self.posterior(outputs).transform_and_log_prob(noise)
        return self.saturate(z, dtype, room), log_q - self.prior().log_prob(z)

    def saturate(self, points: Tensor, dtype: torch.dtype, room: float = 1.0) -> Tensor:
        """Return points in `dtype`, held back to 1/room of what it can hold."""
        return points.clamp(-torch.finfo(dtype).max / room, torch.finfo(dtype).max / room).to(dtype)

    @abstractmethod
    def distances(self, points: Tensor, pairs: Tensor) -> Tensor:
        """Return distances of listed pairs of points (…, n, width)."""

    def distances_within(self, outputs: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """Return distances of the first `count` centres of posteriors from all of them, (…, count, rows)."""
        rows = outputs.shape[-2]
        pairs = torch.cartesian_prod(torch.arange(count), torch.arange(rows)).T.to(outputs.device)
        return self.distances(self.centre(outputs), pairs).unflatten(-1, (count, rows)).to(dtype)

    def sum_over_pairs(self, points: Tensor, term: Callable[..., Any], *numbers: Tensor, dtype: torch.dtype) -> Tensor:
        """Compute Σ term(d) over all pairs of points (…, n, width), the term and its derivative being a function of
        distances and numbers.
        """
        pairs = torch.triu_indices(points.shape[-2], points.shape[-2], 1, device=points.device)
        return term(self.distances(points, pairs).to(dtype), *numbers)[0].sum(-1, dtype=torch.float64)

    def first_layers(self, kind: DecoderKind, width: int, flat: bool) -> list[nn.Module]:
        """Return the layers of a decoder up to its first activation, for the points of the factor."""
        return [nn.Linear(self.width, width)]

    def identifiable(self) -> Tensor:
        """Compute c·σ0², the one number that says how curved the factor is."""
        return self.curvature() * self.scale() ** 2


class HyperbolicFactor(Factor):
    """A space of curvature −c ≤ 0: hyperbolic, or flat with c = 0.

    Where a decoder can follow, as in a `curvae.models.VAE`, only c·σ0² is identifiable: scaling the factor by k
    with c → c/k² and σ → kσ changes nothing.

    Arguments:
        dim: dimension.
        curvature: c, or a module that is shared with other parts.
        learn_curvature: whether c is a parameter.
        distribution: "riemannian", "wrapped", or a subclass of `curvae.distributions.HyperbolicNormal`.
        diagonal: one posterior standard deviation per axis, if the distribution allows it; otherwise one for all.
        prior_scale: the standard deviation σ0 of the prior, or where learning starts.
        learn_prior_scale: whether it is a parameter.
        prior: distribution of the prior; by default that of the posteriors.
        units: as of `Factor`.

    Example:
        >>> factor = HyperbolicFactor(2, 0.5, prior_scale=2.0)
        >>> factor.prior().sample((3,)).shape, float(factor.identifiable())
        (torch.Size([3, 2]), 2.0)
    """

    def __init__(
        self,
        dim: int,
        curvature: float | Curvature = 1.0,
        learn_curvature: bool = False,
        distribution: Distribution = "riemannian",
        diagonal: bool = False,
        prior_scale: float = 1.0,
        learn_prior_scale: bool = False,
        prior: Distribution | None = None,
        units: bool = False,
    ) -> None:
        c = curvature if isinstance(curvature, Curvature) else Curvature(curvature, learn_curvature)
        super().__init__(dim, dim, c, prior_scale, learn_prior_scale, units)
        self.distribution, self.diagonal = _distribution(distribution), diagonal
        self.prior_distribution = self.distribution if prior is None else _distribution(prior)
        if diagonal and not self.distribution.allows_diagonal:
            raise ValueError(
                f'a diagonal posterior needs `distribution="wrapped"`: {self.distribution.__name__} has one standard '
                "deviation for all axes"
            )
        self._require_reach(prior_scale)

    def _require_reach(self, scale: float) -> None:
        """Farther out coordinates saturate, and a divergence computed from them would come out far below 0."""
        root = math.sqrt(float(self.curvature().detach())) * scale
        riemannian = self.prior_distribution is RiemannianNormal
        farthest = root * (9.0 + ((self.dim - 1) * root if riemannian else math.sqrt(self.dim)))
        if farthest > REACH:
            raise CurvaeError(
                f"a {'riemannian' if riemannian else 'wrapped'} prior with c·σ0² = {root * root:.4g} in {self.dim} "
                f"dimensions reaches out to √c·radius {farthest:.0f}, and distances can be computed up to {REACH:.0f}; "
                "lower the curvature or the prior's scale"
            )

    @property
    def flat(self) -> bool:  # type: ignore[override]
        """Whether it is Euclidean, and stays so."""
        return not self.curvature.learnable and float(self.curvature()) == 0

    @property
    def letter(self) -> str:
        return "e" if self.flat else "h"

    @property
    def outputs(self) -> int:
        return self.dim + (self.dim if self.diagonal else 1)

    def _tangent(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """log_0 μ and σ, float64. As in the paper, section 3.2, an encoder gives ball coordinates of log_0 μ."""
        scale = F.softplus(outputs[..., self.dim :].double()) + _SMALLEST
        return self._log_centre(outputs), scale if self.unit is None else scale * self.unit

    def _log_centre(self, outputs: Tensor) -> Tensor:
        """log_0 μ."""
        u = 2.0 * outputs[..., : self.dim].double()
        return u if self.unit is None else u * self.unit

    def centre(self, outputs: Tensor) -> Tensor:
        return h.expmap0(self._log_centre(outputs), self.curvature().double())

    def around(self, points: Tensor, scale: Tensor, c: float) -> HyperbolicNormal:
        return self.distribution(points, scale, Lorentz(self.dim, c))

    def posterior(self, outputs: Tensor) -> HyperbolicNormal:
        """Return the normal around μ = exp_0(2h_μ) with σ = softplus(h_σ), for outputs (h_μ, h_σ) of an encoder."""
        u, scale = self._tangent(outputs)
        manifold = self.curvature.lorentz(self.dim)
        return self.distribution(h.expmap0(u, manifold._c), scale, manifold, validate_args=False)

    def prior(self) -> HyperbolicNormal:
        """Return the normal around the origin, on `Lorentz`, in float64."""
        return self.prior_distribution.centred(self.scale().double(), self.curvature.lorentz(self.dim))

    def draw(
        self, outputs: Tensor, noise: Tensor, dtype: torch.dtype, room: float = 1.0, flat: bool = False
    ) -> tuple[Tensor, Tensor]:
        c = self.curvature().double()
        u, scale = self._tangent(outputs)
        scale0 = self.scale().double()
        if flat and {self.distribution, self.prior_distribution} <= _GAUSSIAN_IF_FLAT:
            noise = noise.double()
            z, log_ratio = torch.addcmul(u, scale, noise), (scale / scale0).log().expand_as(u).sum(-1)
            kl = h.dot(z, z) / (2.0 * scale0 * scale0) - h.dot(noise, noise) / 2.0 - log_ratio
            return h.saturate(z, c, dtype, room), kl
        if self.prior_distribution is self.distribution:
            return draw_and_divergence(u, scale, noise, c, scale0, self.distribution, dtype, room)
        return super().draw(outputs, noise, dtype, room)

    def saturate(self, points: Tensor, dtype: torch.dtype, room: float = 1.0) -> Tensor:
        return h.saturate(points, self.curvature().double(), dtype, room)

    def distances(self, points: Tensor, pairs: Tensor) -> Tensor:
        return distances(points, pairs, self.curvature().double())

    def distances_within(self, outputs: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        return distances_within(self._log_centre(outputs), self.curvature().double(), count, dtype)

    def sum_over_pairs(self, points: Tensor, term: Callable[..., Any], *numbers: Tensor, dtype: torch.dtype) -> Tensor:
        c, learned = self.curvature().double(), self.curvature.learnable
        return sum_over_pairs(points, c, term, *numbers, dtype=dtype, learned=learned)

    def first_layers(self, kind: DecoderKind, width: int, flat: bool) -> list[nn.Module]:
        if kind in ("gyroplane", "gyroplane_scalar"):
            return [Gyroplane(self.width, width, offset="point" if kind == "gyroplane" else "scalar", flat=flat)]
        if kind == "mlp":
            return [Ball(), nn.Linear(self.width, width)]
        if kind == "mobius":
            return [MobiusLinear(self.width, width), LogMap0()]
        return [*([] if self.flat else [LogMap0()]), nn.Linear(self.width, width)]

    def extra_repr(self) -> str:
        return f"{self.dim}, distribution={self.distribution.__name__}, diagonal={self.diagonal}"


class SphericalFactor(Factor):
    """The unit sphere with a uniform prior: points are unit vectors of ℝ^{d+1}, and posteriors Riemannian normals.

    An encoder gives d + 1 numbers that are normalised, for ℝ^d cannot be laid around a sphere without a tear, and one
    for σ. Noise of d + 1 numbers is projected on the tangent space of the centre: no frame of it is without a singular
    point.

    Example:
        >>> space = Space("s1")
        >>> space.dim, space.width, space.prior().sample((4,)).shape
        (1, 2, torch.Size([4, 2]))
    """

    letter = "s"
    flat = closed = True

    def __init__(self, dim: int, curvature: float = 0.0, learn_curvature: bool = False, **options: Any) -> None:
        super().__init__(dim, dim + 1, Curvature(0.0), 1.0, False, False)

    @property
    def noise_dim(self) -> int:
        return self.width

    @property
    def outputs(self) -> int:
        return self.width + 1

    def _scale(self, outputs: Tensor) -> Tensor:
        return F.softplus(outputs[..., self.width :].double()) + _SMALLEST

    def centre(self, outputs: Tensor) -> Tensor:
        return F.normalize(outputs[..., : self.width].double(), dim=-1)

    def around(self, points: Tensor, scale: Tensor, c: float) -> RiemannianNormal:
        return RiemannianNormal(points, scale, Sphere(self.dim), validate_args=False)

    def posterior(self, outputs: Tensor) -> RiemannianNormal:
        return self.around(self.centre(outputs), self._scale(outputs), -1.0)

    def prior(self) -> SphericalUniform:
        return SphericalUniform(self.width, torch.float64, self.scale().device, validate_args=False)

    def draw(
        self, outputs: Tensor, noise: Tensor, dtype: torch.dtype, room: float = 1.0, flat: bool = False
    ) -> tuple[Tensor, Tensor]:
        if noise.dtype == torch.float64:
            return super().draw(outputs, noise, dtype, room)
        return draw_on_sphere(outputs[..., : self.width].double(), self._scale(outputs), noise, dtype)

    def distances(self, points: Tensor, pairs: Tensor) -> Tensor:
        return Sphere(self.dim).dist(*(points.index_select(-2, part) for part in pairs))

    def distances_within(self, outputs: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        x = self.centre(outputs)
        cosine = (x[..., :count, :] @ x.mT).clamp(-1.0, 1.0)
        # Angles below 1e-7, which rounding of the cosine blurs, have no gradient.
        near, far = ((1.0 + sign * cosine) / 2.0 for sign in (-1.0, 1.0))
        clear = (near > 1e-14) & (far > 1e-14)
        angle = 2.0 * torch.atan2(*(torch.where(clear, part, 0.5).sqrt() for part in (near, far)))
        return torch.where(clear, angle, torch.where(near < far, 0.0, math.pi)).to(dtype)

    def extra_repr(self) -> str:
        return f"{self.dim}"


FACTORS: dict[str, type[Any]] = {"h": HyperbolicFactor, "e": HyperbolicFactor, "s": SphericalFactor}
"""the class of every kind of factor, by its letter"""


class Space(nn.Module):
    """The latent space of a model: a product of factors. It owns their curvatures and priors.

    A point has the coordinates of its factors one after the other; of hyperbolic and flat ones these are the space
    parts S on `curvae.Lorentz`, of spheres unit vectors. Distances in a product are
    √Σ(d_i/unit_i)², a unit for each factor.

    Arguments:
        factors: such as "h2", "h2:1.2", "h2:learn" or "h2,e3"; or `Factor` modules.
        options: `distribution`, `diagonal`, `prior_scale`, `learn_prior_scale`, `units` of factors that are no modules;
            of `prior_scale`, one for all or a list with one for each.

    Attributes:
        flat: which factors of a product are computed as ordinary space, at less cost. A space of a single flat factor
            is computed as a curved one, so that models of both can be stacked.

    Example:
        >>> space = Space("h2:0.5,e3", distribution="wrapped")
        >>> space.dim, [float(c) for c in space.curvatures()], space.prior().sample((4,)).shape
        (5, [0.5, 0.0], torch.Size([4, 5]))
    """

    def __init__(self, factors: str | Sequence[Factor | FactorSettings], **options: Any) -> None:
        super().__init__()
        given = parse_space(factors) if isinstance(factors, str) else factors
        if not given:
            raise ValueError("a space needs at least one factor")
        if options and any(isinstance(one, Factor) for one in given):
            raise TypeError(f"give {', '.join(options)} to each Factor: a module has its own")
        scales = options.pop("prior_scale", 1.0)
        each = scales if isinstance(scales, tuple | list) else [scales] * len(given)
        self.factors = nn.ModuleList(
            FACTORS[one.kind](one.dim, one.curvature, one.learned, prior_scale=scale, **options)
            if isinstance(one, FactorSettings)
            else one
            for one, scale in zip(given, each, strict=True)
        )
        self.dim = sum(factor.dim for factor in self)
        self.width = sum(factor.width for factor in self)
        self.noise_dim = sum(factor.noise_dim for factor in self)
        self.outputs = sum(factor.outputs for factor in self)
        # Those of a product that are flat are computed as ordinary space.
        self.flat = tuple(len(self) > 1 and factor.flat for factor in self)
        self._unitless = all(factor.unit is None for factor in self)
        self.register_load_state_dict_post_hook(_require_as_flat)

    def __iter__(self) -> Iterator[Factor]:
        return iter(self.factors)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.factors)

    def curvatures(self) -> tuple[Tensor, ...]:
        """Return c of every factor."""
        return tuple([factor.curvature.forward() for factor in self])

    def in_units(self, S: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return points as networks are given them, and c of every factor there."""
        if self._unitless:
            return S, self.curvatures()
        parts, curvatures = list(self.split(S)), list(self.curvatures())
        for i, factor in enumerate(self):
            if factor.unit is not None:
                parts[i], curvatures[i] = parts[i] / factor.unit.to(S.dtype), curvatures[i] * factor.unit**2
        return torch.cat(parts, -1), tuple(curvatures)

    @property
    def learned(self) -> bool:
        """Whether a curvature is a parameter."""
        return any(factor.curvature.learnable for factor in self)

    def numbers(self) -> dict[str, Tensor]:
        """Compute c and σ0 of the one factor, as `c` and `prior_scale`; of a product as `c_1`, `prior_scale_1`, `c_2`,
        …
        """
        ends = [""] if len(self) == 1 else [f"_{i}" for i in range(1, len(self) + 1)]
        return {
            f"{name}{end}": getattr(factor, part)()
            for end, factor in zip(ends, self, strict=True)
            for name, part in (("c", "curvature"), ("prior_scale", "scale"))
        }

    def figures(self) -> tuple[FactorFigures, ...]:
        """Return the numbers of every factor."""
        with torch.no_grad():
            return tuple(
                FactorFigures(f"{one.letter}{i}", one.dim, float(one.curvature()), float(one.scale()))
                for i, one in enumerate(self, 1)
            )

    def split(self, S: Tensor) -> tuple[Tensor, ...]:
        """Return the coordinates of points by factor."""
        return S.split([factor.width for factor in self], -1)

    def split_outputs(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """Return what an encoder gives, by factor."""
        return outputs.split([factor.outputs for factor in self], -1)

    def posterior(self, outputs: Tensor) -> HyperbolicNormal | ProductNormal:
        """Return the posterior of every row from the outputs of an encoder; on `Lorentz`, in float64."""
        each = [factor.posterior(part) for factor, part in zip(self, self.split_outputs(outputs), strict=True)]
        return each[0] if len(each) == 1 else ProductNormal(each)

    def prior(self) -> HyperbolicNormal | ProductNormal:
        """Return the prior, around the origin; on `Lorentz`, in float64."""
        each = [factor.prior() for factor in self]
        return each[0] if len(each) == 1 else ProductNormal(each)

    def draw(self, outputs: Tensor, noise: Tensor, dtype: torch.dtype, room: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return points of the posteriors made from `noise`, shape (k, rows, noise_dim), in `dtype`, and log q − log p
        there.

        Points beyond 1/room of what `dtype` can hold are pulled back to that limit.
        """
        if len(self) == 1:
            return next(iter(self)).draw(outputs, noise, dtype, room)
        noises = noise.split([factor.noise_dim for factor in self], -1)
        parts = zip(self, self.split_outputs(outputs), noises, self.flat, strict=True)
        points, divergences = zip(
            *(one.draw(head, own, dtype, room, flat) for one, head, own, flat in parts), strict=True
        )
        return torch.cat(points, -1), sum(divergences[1:], divergences[0])

    def centres(self, outputs: Tensor) -> Tensor:
        """Return the centres of the posteriors, shape (…, width), in float64."""
        return torch.cat([one.centre(part) for one, part in zip(self, self.split_outputs(outputs), strict=True)], -1)

    def distances(self, outputs: Tensor, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return distances of the first `count` centres of posteriors from all of them, in units of the factors' prior
        scales; in `dtype`, (…, count, rows).
        """
        each = [
            one.distances_within(part, count, dtype) / one.scale().to(dtype)
            for one, part in zip(self, self.split_outputs(outputs), strict=True)
        ]
        return each[0] if len(each) == 1 else h.norm(torch.stack(each, -1))

    def from_start(self, outputs: Tensor, start: Tensor) -> Tensor:
        """Compute 1 − cos of the angle between centres of posteriors and the places where rows start, (…, rows), summed
        over the factors that close up; `start` has the coordinates of these alone."""
        centres = [one.centre(part) for one, part in zip(self, self.split_outputs(outputs), strict=True) if one.closed]
        return len(centres) - h.dot(torch.cat(centres, -1), start.double())

    def saturate(self, S: Tensor, dtype: torch.dtype, room: float = 1.0) -> Tensor:
        """Return points in `dtype`, held back where it cannot hold them."""
        return torch.cat(
            [one.saturate(part, dtype, room) for one, part in zip(self, self.split(S.double()), strict=True)], -1
        )

    def pair_distances(self, S: Tensor, pairs: Tensor) -> Tensor:
        """Return distances of listed pairs of points (…, n, width)."""
        each = [factor.distances(part, pairs) for factor, part in zip(self, self.split(S), strict=True)]
        return each[0] if len(each) == 1 else h.norm(torch.stack(each, -1))


def _require_as_flat(space: Space, _: Any) -> None:
    """Refuse weights that bend a factor which networks were built to take as flat."""
    if len(space) > 1 and space.flat != tuple(factor.flat for factor in space):
        raise CurvaeError("these weights have other flat factors than the space; build the model with their space")
