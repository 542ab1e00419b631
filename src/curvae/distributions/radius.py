"""Distributions of the distance between a Riemannian normal draw and its centre, and of its direction."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import constraints

from ..geometry.checks import batch_shape_of, broadcast_shapes, check_curvature, got, holds, real
from . import radial
from .table import stretch
from .validation import Shape, UnitSphere, Validated, check_noise, check_scale, parameter

__all__ = ["HyperbolicRadius", "Radius", "SphericalRadius", "SphericalUniform"]


class Radius(Validated):
    """Distribution of r = d(μ, z) for a Riemannian normal z; a subclass names the space.

    Arguments:
        dim: the dimension d of the space.
        scale: the dispersion σ > 0.
        c: minus the curvature; broadcasts against `scale`.
    """

    has_rsample = True
    _kernel_type: ClassVar[type[radial.Kernel]]

    def __init__(self, dim: int, scale: Tensor | float, c: Tensor | float, validate_args: bool | None = None) -> None:
        if not isinstance(dim, int) or dim < 1:
            raise ValueError(f"dim must be a positive integer, got {dim!r}")
        self.dim, self._kernel = dim, self._kernel_type(dim)
        self.scale = parameter("scale", scale)
        self.c = parameter("c", c, like=self.scale).to(self.scale)
        # Widened once, so that gradients through their many uses are summed in float64.
        self._sigma, self._wide_c = self.scale.double(), self.c.double()
        super().__init__(batch_shape_of(scale=(self.scale, 0), c=(self.c, 0)), torch.Size(), validate_args)
        if self._validate_args:
            check_curvature(self.c, self._kernel.spherical)
            check_scale("scale", self.scale, self.c, 0 if self._kernel.spherical else dim - 1)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Self:
        new = self._expanded(batch_shape, _instance)
        new.scale, new.c = self.scale.expand(new._batch_shape), self.c.expand(new._batch_shape)
        return new

    @property
    def _q(self) -> Tensor:
        return self._wide_c * self._sigma**2

    @property
    def _largest(self) -> Tensor:
        """The largest radius, or ∞, without gradient."""
        return torch.full_like(self.c, math.inf)

    @property
    def noise_dim(self) -> int:
        return self.dim

    def transform(self, noise: Tensor) -> Tensor:
        """Return the radius of the draw made from standard normal `noise` of shape (…, dim)."""
        check_noise(noise, self.batch_shape, self.dim)
        square = noise.double().square().sum(-1)
        kappa = stretch(square, self._q, self._kernel, exact=self.scale.dtype == torch.float64)
        return (self._sigma * kappa * square.sqrt()).to(self.scale.dtype)

    def noise(self, sample_shape: Shape = torch.Size()) -> Tensor:
        shape = self._extended_shape(sample_shape) + (self.dim,)
        return torch.randn(shape, dtype=self.scale.dtype, device=self.scale.device)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        q, outside = self._q, (value < 0) | (value > self._largest) | (value == math.inf)
        t = torch.where(outside, 1.0, value).double() / self._sigma
        log_density = self._kernel.log(t, q) - radial.log_normaliser(q, self._kernel) - self._sigma.log()
        return torch.where(outside, -math.inf, log_density).to(self.scale.dtype)

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability of a radius below `value`."""
        value = self._checked(value)
        t = self._kernel.hold(value.double() / self._sigma, self._q)
        return torch.where(value <= 0, 0.0, radial.log_cdfs(t, self._q, self._kernel)[0].exp()).to(self.scale.dtype)

    def icdf(self, value: Tensor) -> Tensor:
        """Return the quantile of probability `value`."""
        value = real("value", value)
        if self._validate_args and not holds(valid := (value >= 0) & (value <= 1)):
            raise ValueError(f"value must be a probability, between 0 and 1{got(value, valid)}")
        p = value.double()
        inner = p.clamp(1e-300, 1 - 2**-53)
        t = radial.quantile(inner.log(), torch.log1p(-inner), self._q, self._kernel)
        return torch.where(p <= 0, 0.0, torch.where(p >= 1, self._largest, self._sigma * t)).to(self.scale.dtype)

    @property
    def mean(self) -> Tensor:
        return (self._sigma * radial.mean_power(self._q, self._kernel, 1)).expand(self.batch_shape).to(self.scale.dtype)

    @property
    def variance(self) -> Tensor:
        t, weights = radial.bulk(self._q, self._kernel)
        centre = (weights * t).sum(-1, keepdim=True)
        return (self._sigma**2 * (weights * (t - centre) ** 2).sum(-1)).expand(self.batch_shape).to(self.scale.dtype)

    def entropy(self) -> Tensor:
        q = self._q
        t, weights = radial.bulk(q, self._kernel)
        mean_kernel = (weights * self._kernel.log(t, q.unsqueeze(-1))).sum(-1)
        return (
            (radial.log_normaliser(q, self._kernel) - mean_kernel + self._sigma.log())
            .expand(self.batch_shape)
            .to(self.scale.dtype)
        )


class HyperbolicRadius(Radius):
    r"""Distribution of r = d(μ, z) for a Riemannian normal z on the space of dimension `dim` and curvature −c.

    ρ(r) ∝ exp(−r²/2σ²)·(sinh(√c·r)/√c)^(d−1), r ≥ 0: the χ distribution at c = 0, half-normal at d = 1.

    Arguments:
        dim: the dimension d of the space.
        scale: the dispersion σ > 0.
        c: minus the curvature, ≥ 0; broadcasts against `scale`.

    References:
        Mathieu et al. (2019), appendix "Maximum entropy hyperbolic normal distribution".

    Example:
        >>> radius = HyperbolicRadius(2, scale=1.0, c=1.0)
        >>> round(float(radius.mean), 4)
        1.4648
        >>> round(float(radius.cdf(radius.icdf(torch.tensor(0.25)))), 4)
        0.25
    """

    arg_constraints: ClassVar = {"scale": constraints.positive, "c": constraints.nonnegative}
    support = constraints.nonnegative
    _kernel_type = radial.Kernel

    def __init__(
        self, dim: int, scale: Tensor | float, c: Tensor | float = 1.0, validate_args: bool | None = None
    ) -> None:
        super().__init__(dim, scale, c, validate_args)


class SphericalRadius(Radius):
    r"""Distribution of r = d(μ, z) for a Riemannian normal z on the sphere of dimension `dim` and curvature −c > 0.

    ρ(r) ∝ exp(−r²/2σ²)·(sin(√−c·r)/√−c)^(d−1), 0 ≤ r ≤ π/√−c: a truncated normal on the circle, d = 1, and the radius
    of a uniform point as σ grows.

    Arguments:
        dim: the dimension d of the sphere.
        scale: the dispersion σ > 0.
        c: minus the curvature, < 0; broadcasts against `scale`.

    Example:
        >>> radius = SphericalRadius(2, scale=1.0)
        >>> round(float(radius.mean), 4)
        1.0508
        >>> round(float(radius.cdf(radius.icdf(torch.tensor(0.25)))), 4)
        0.25
    """

    arg_constraints: ClassVar = {"scale": constraints.positive, "c": constraints.less_than(0.0)}
    _kernel_type = radial.SphericalKernel

    def __init__(
        self, dim: int, scale: Tensor | float, c: Tensor | float = -1.0, validate_args: bool | None = None
    ) -> None:
        super().__init__(dim, scale, c, validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.interval(0.0, self._largest)

    @property
    def _largest(self) -> Tensor:
        return math.pi / (-self.c.detach()).sqrt()

    def transform(self, noise: Tensor) -> Tensor:
        return torch.minimum(super().transform(noise), self._largest)


class SphericalUniform(Validated):
    r"""Uniform distribution of a direction: unit vectors of ℝ^dim, density 1/area of the unit sphere.

    Arguments:
        dim: the dimension of the space around the sphere.
        dtype, device: of the draws.

    Example:
        >>> SphericalUniform(3).log_prob(torch.tensor([0.0, 0.0, 1.0]))
        tensor(-2.5310)
    """

    has_rsample = True
    arg_constraints: ClassVar = {}

    def __init__(
        self,
        dim: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        validate_args: bool | None = None,
        *,
        batch_shape: torch.Size = torch.Size(),
    ) -> None:
        if not isinstance(dim, int) or dim < 1:
            raise ValueError(f"dim must be a positive integer, got {dim!r}")
        self.dim, self.dtype, self.device = dim, dtype or torch.get_default_dtype(), device
        super().__init__(batch_shape, torch.Size([dim]), validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        return UnitSphere(self.dim)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Self:
        return self._expanded(batch_shape, _instance)

    def transform(self, noise: Tensor) -> Tensor:
        """Return the direction of standard normal `noise` of shape (…, dim)."""
        check_noise(noise, self.batch_shape, self.dim)
        return noise / noise.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(noise.dtype).tiny)

    def noise(self, sample_shape: Shape = torch.Size()) -> Tensor:
        """Return standard normal noise for draws of the given shape."""
        return torch.randn(self._extended_shape(sample_shape), dtype=self.dtype, device=self.device)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        shape = broadcast_shapes(value.shape[:-1], self.batch_shape)
        return value.new_full(shape, -radial.log_area(self.dim))

    @property
    def mean(self) -> Tensor:
        return torch.zeros(self._extended_shape(), dtype=self.dtype, device=self.device)

    @property
    def variance(self) -> Tensor:
        """Of each coordinate: 1/dim."""
        return torch.full(self._extended_shape(), 1 / self.dim, dtype=self.dtype, device=self.device)

    def entropy(self) -> Tensor:
        return torch.full(self.batch_shape, radial.log_area(self.dim), dtype=self.dtype, device=self.device)
