"""Checks of the arguments and values of distributions; their supports as constraints of torch.distributions, and maps
from unconstrained vectors to them, as `torch.distributions.biject_to` gives them.

Densities on a manifold are with respect to its Riemannian measure, and so is the Jacobian here. A change of variables
adds log p(y) and log|dy/dx|, and only the two together are a density in x, with respect to Lebesgue's measure: neither
needs the coordinates in which y is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, Transform, biject_to, constraints, transform_to
from torch.distributions.constraints import Constraint

from ..geometry import Manifold, Sphere, hyperboloid as h
from ..geometry.checks import broadcast_shapes, got, holds, offender, real
from ..geometry.functions import logsinhc

__all__ = [
    "ExpMap0Transform",
    "Inside",
    "InsideProduct",
    "NormalizeTransform",
    "Shape",
    "UnitSphere",
    "Validated",
    "check_manifold",
    "check_noise",
    "check_scale",
    "parameter",
]

Shape = torch.Size | list[int] | tuple[int, ...]


def parameter(name: str, value: Tensor | float | None, like: Tensor | None = None) -> Tensor:
    """Return a parameter as a tensor; a number takes dtype and device of `like`."""
    if isinstance(value, Tensor):
        return real(name, value)
    if not isinstance(value, int | float):
        raise TypeError(
            f"{name} must be a number or a tensor, got {type(value).__name__}; "
            f"convert an array or a list with torch.as_tensor({name})"
        )
    dtype = torch.get_default_dtype() if like is None else like.dtype
    limits = torch.finfo(dtype)
    if limits.max < abs(value) < math.inf:
        raise ValueError(f"{name} must be a number that {dtype} can hold, at most {limits.max:.3g}, got {value}")
    if 0 < value < (smallest := limits.tiny * limits.eps):
        raise ValueError(f"{name} is too small for {dtype}: it must be at least {smallest:.3g}, got {value}")
    return torch.full((), value, dtype=dtype, device=None if like is None else like.device)


def check_manifold(manifold: object) -> Manifold:
    if not isinstance(manifold, Manifold):
        raise TypeError(f"manifold must be a manifold such as curvae.PoincareBall(2), got {type(manifold).__name__}")
    return manifold


def check_scale(name: str, scale: Tensor, c: Tensor | float, growth: int) -> None:
    """Raise unless standard deviations are positive, and small enough for densities and draws to be finite.

    Arguments:
        name: of the argument.
        scale: the standard deviations.
        c: minus the curvature, which broadcasts against them.
        growth: d − 1 where the mean radius grows as (d−1)·√c·scale², 0 where it grows as the scale.
    """
    scale, root = scale.double(), torch.as_tensor(c, dtype=torch.float64, device=scale.device).detach().abs().sqrt()
    # Squares of scale and √c·scale must not overflow, and (growth·√c·scale)², an exponent, must keep decimal places.
    largest = 1 / (1e-150 * (1 + root) + 1e-6 * growth * root)
    if not holds(valid := (scale > 0) & (scale <= largest)):
        if not holds(valid := (scale > 0) & scale.isfinite()):
            raise ValueError(f"{name} must be positive and finite{got(scale, valid)}")
        valid, largest = torch.broadcast_tensors(scale <= largest, largest)
        limit = offender(largest, valid)
        at_most = "smaller" if limit is None else f"at most {limit.item():.3g}"
        raise ValueError(f"{name} must be {at_most} for this distribution and c{got(scale.expand(valid.shape), valid)}")


def check_noise(noise: Tensor, batch_shape: Sequence[int], dim: int) -> None:
    """Raise unless standard normal noise fits the draws of a distribution."""
    noise = real("noise", noise)
    try:
        fits = noise.shape[-1] == dim and broadcast_shapes(noise.shape[:-1], batch_shape) is not None
    except (IndexError, RuntimeError):
        fits = False
    if not fits:
        expected = ", ".join(["…", *map(str, batch_shape), str(dim)])
        raise ValueError(f"noise must have shape ({expected}), got {tuple(noise.shape)}")


class Validated(Distribution):
    """A distribution whose checks work under vmap too, and say which value is wrong.

    By default arguments and values are checked, as everywhere in torch.distributions; draws only with
    `validate_args=True`, because it makes the host wait.
    """

    def __init__(
        self,
        batch_shape: torch.Size,
        event_shape: torch.Size,
        validate_args: bool | None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        # torch's own check of the arguments fails under vmap: a subclass calls those above instead.
        super().__init__(batch_shape, event_shape, validate_args=False)
        self.dtype, self.device = dtype or torch.get_default_dtype(), device
        self._strict = bool(validate_args)
        self._validate_args = bool(Distribution._validate_args) if validate_args is None else validate_args

    @property
    def noise_dim(self) -> int:
        """How many standard normal numbers make a draw."""
        return self.event_shape[0]

    def noise(self, sample_shape: Shape = torch.Size()) -> Tensor:
        """Return standard normal noise for draws of the given shape."""
        return torch.randn(*sample_shape, *self.batch_shape, self.noise_dim, dtype=self.dtype, device=self.device)

    def transform(self, noise: Tensor) -> Tensor:
        """Return the draw made from standard normal `noise` of shape (…, d): a pure function."""
        raise NotImplementedError

    def transform_and_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Compute `transform` together with the log-density of the draw."""
        z = self.transform(noise)
        return z, self.log_prob(z)

    def rsample(self, sample_shape: Shape = torch.Size()) -> Tensor:
        return self.transform(self.noise(sample_shape))

    def rsample_and_log_prob(self, sample_shape: Shape = torch.Size()) -> tuple[Tensor, Tensor]:
        """Return a draw and its log-density, which is exact however far the draw lies."""
        return self.transform_and_log_prob(self.noise(sample_shape))

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Self:
        """Return a copy with another batch shape, to which a subclass expands its parameters."""
        torch.empty(self._batch_shape, device="meta").expand(batch_shape)  # raises unless it can be
        new = self.__new__(type(self)) if _instance is None else _instance
        new.__dict__.update(self.__dict__)
        new._batch_shape = torch.Size(batch_shape)
        return new

    def _checked(self, value: Any) -> Tensor:
        """`value` as a tensor, and within the support where arguments are validated."""
        value = real("value", value)
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _validate_sample(self, value: Tensor) -> None:
        event_dim, expected = len(self.event_shape), self.batch_shape + self.event_shape
        if value.shape[value.dim() - event_dim :] != self.event_shape:
            raise ValueError(f"value must have shape (…, {self.event_shape[0]}), got {tuple(value.shape)}")
        try:
            broadcast_shapes(value.shape, expected)
        except RuntimeError as error:
            raise ValueError(
                f"value of shape {tuple(value.shape)} does not broadcast against batch_shape + event_shape = "
                f"{tuple(expected)}"
            ) from error
        assert self.support is not None
        if not holds(valid := self.support.check(value)):
            raise ValueError(
                f"Expected value argument (Tensor of shape {tuple(value.shape)}) to be within the support "
                f"({self.support!r}) of the distribution {self!r}, but found invalid values{got(value, valid)}"
            )


class Inside(Constraint):
    """Points that lie in a manifold and within the reach of their dtype."""

    event_dim = 1

    def __init__(self, manifold: Manifold) -> None:
        self.manifold = manifold

    def __repr__(self) -> str:
        return f"Inside({self.manifold})"

    def check(self, value: Tensor) -> Tensor:
        return self.manifold.contains(value)


class InsideProduct(Constraint):
    """Points of a product: within each of the supports, with so many coordinates, one after the other."""

    event_dim = 1

    def __init__(self, supports: Sequence[Constraint], widths: Sequence[int]) -> None:
        self.supports, self.widths = tuple(supports), list(widths)

    def __repr__(self) -> str:
        return f"InsideProduct({', '.join(map(repr, self.supports))})"

    def check(self, value: Tensor) -> Tensor:
        parts = zip(self.supports, value.split(self.widths, -1), strict=True)
        return torch.stack([support.check(part) for support, part in parts]).all(0)


class UnitSphere(Constraint):
    """Unit vectors of ℝ^dim."""

    event_dim = 1

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def __repr__(self) -> str:
        return f"UnitSphere({self.dim})"

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-1] != self.dim:
            return torch.zeros(value.shape[:-1], dtype=torch.bool, device=value.device)
        return (value.double().square().sum(-1).sqrt() - 1).abs() <= 16 * torch.finfo(value.dtype).eps * self.dim


class ExpMap0Transform(Transform):
    r"""The exponential map at the origin, v ↦ exp_0(v): a bijection from ℝ^d to the points of a manifold.

    v is metric: |v| is the distance of the point from the origin, in every chart. `log_abs_det_jacobian` is the volume
    that the map makes of dv in the **Riemannian measure**, (d−1)·log(sinh(√c|v|)/(√c|v|)), and not the Jacobian of the
    coordinates: it belongs to densities with respect to that measure, such as those of `WrappedNormal` and
    `RiemannianNormal`. A normal distribution transformed by it is the wrapped normal around the origin.

    Arguments:
        manifold: `PoincareBall`, `Lorentz` or `Euclidean`; a tensor c broadcasts against the batch shape of v.
        cache_size: as everywhere in torch.distributions.

    Example:
        >>> from curvae import PoincareBall, RiemannianNormal
        >>> p = RiemannianNormal(torch.zeros(2), 1.0, PoincareBall(2))
        >>> to_ball = torch.distributions.biject_to(p.support)
        >>> z = to_ball(torch.tensor([3.0, 4.0]))
        >>> round(float(p.manifold.dist0(z)), 4)
        5.0
    """

    domain = constraints.real_vector
    bijective = True

    def __init__(self, manifold: Manifold, cache_size: int = 0) -> None:
        self.manifold = manifold
        super().__init__(cache_size)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def codomain(self) -> constraints.Constraint:
        return Inside(self.manifold)

    def with_cache(self, cache_size: int = 1) -> ExpMap0Transform:
        return self if self._cache_size == cache_size else ExpMap0Transform(self.manifold, cache_size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpMap0Transform) and _same_coordinates(self.manifold, other.manifold)

    def __repr__(self) -> str:
        return f"ExpMap0Transform({self.manifold})"

    def _call(self, x: Tensor) -> Tensor:
        return self.manifold.expmap0(x / self.manifold._coordinates.lambda0)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.manifold._coordinates.lambda0 * self.manifold.logmap0(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        v = x.double()
        return ((self.manifold.dim - 1) * logsinhc(self.manifold._c * h.dot(v, v))).to(x.dtype)

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        c = self.manifold.c
        return torch.Size([*broadcast_shapes(shape[:-1], c.shape if isinstance(c, Tensor) else ()), *shape[-1:]])

    inverse_shape = forward_shape


def _same_coordinates(a: Manifold, b: Manifold) -> bool:
    """Whether a point is written the same way in both: the same chart, dimension and curvatures."""
    if a is b:
        return True
    c, k = (torch.as_tensor(space.c, dtype=torch.float64) for space in (a, b))
    return type(a) is type(b) and a.dim == b.dim and c.shape == k.shape and bool((c == k).all())


class NormalizeTransform(Transform):
    """x ↦ x/|x|: unit vectors from any vectors; 0 becomes the first unit vector.

    It is not a bijection, and none exists: a sphere is compact and ℝ^d is not.

    Arguments:
        dim: the dimension of the space around the sphere.
        cache_size: as everywhere in torch.distributions.

    Example:
        >>> NormalizeTransform(2)(torch.tensor([3.0, 4.0]))
        tensor([0.6000, 0.8000])
    """

    domain = constraints.real_vector

    def __init__(self, dim: int, cache_size: int = 0) -> None:
        self.dim = dim
        super().__init__(cache_size)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def codomain(self) -> constraints.Constraint:
        return UnitSphere(self.dim)

    def with_cache(self, cache_size: int = 1) -> NormalizeTransform:
        return self if self._cache_size == cache_size else NormalizeTransform(self.dim, cache_size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NormalizeTransform) and self.dim == other.dim

    def __repr__(self) -> str:
        return f"NormalizeTransform({self.dim})"

    def _call(self, x: Tensor) -> Tensor:
        # Divided by its largest entry first, so that no square under- or overflows.
        largest = x.detach().abs().amax(-1, keepdim=True)
        first = torch.eye(1, self.dim, dtype=x.dtype, device=x.device)[0]
        x = torch.where(largest == 0, first, x / torch.where(largest == 0, 1.0, largest))
        return x / x.norm(dim=-1, keepdim=True)

    def _inverse(self, y: Tensor) -> Tensor:
        return y


@biject_to.register(Inside)
@transform_to.register(Inside)
def _to_manifold(constraint: Inside) -> Transform:
    if isinstance(constraint.manifold, Sphere):
        _no_bijection(constraint)
    return ExpMap0Transform(constraint.manifold)


@transform_to.register(UnitSphere)
def _to_sphere(constraint: UnitSphere) -> Transform:
    return NormalizeTransform(constraint.dim)


@biject_to.register(UnitSphere)
def _no_bijection(constraint: Constraint) -> NoReturn:
    raise NotImplementedError(
        "no bijection leads from unconstrained vectors to a sphere; normalise a vector with "
        "torch.distributions.transform_to, or let the direction be a draw of a standard normal, normalised"
    )
