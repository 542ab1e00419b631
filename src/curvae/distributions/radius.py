"""The law of the distance between a Riemannian normal draw and its centre, and that of its direction."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from . import radial
from .table import stretch
from .validation import Shape, broadcast_shape, check_positive, check_support, parameter, resolve_validation

__all__ = ["HyperbolicRadius", "SphericalUniform"]


class HyperbolicRadius(Distribution):
    r"""Distribution of r = d(μ, z) for a Riemannian normal z on the space of dimension `dim` and curvature −c.

    ρ(r) ∝ exp(−r²/2σ²)·(sinh(√c·r)/√c)^(d−1), r ≥ 0: the χ law at c = 0, half-normal at d = 1.

    Arguments:
        dim: the dimension d of the space.
        scale: the dispersion σ > 0.
        c: minus the curvature, ≥ 0; broadcasts against `scale`.

    References:
        Mathieu et al. (2019), appendix "Maximum entropy hyperbolic normal distribution".

    Example:
        >>> law = HyperbolicRadius(2, scale=1.0, c=1.0)
        >>> round(float(law.mean), 4)
        1.4648
        >>> round(float(law.cdf(law.icdf(torch.tensor(0.25)))), 4)
        0.25
    """

    has_rsample = True

    def __init__(
        self, dim: int, scale: Tensor | float, c: Tensor | float = 1.0, validate_args: bool | None = None
    ) -> None:
        if not isinstance(dim, int) or dim < 1:
            raise ValueError(f"dim must be a positive integer, got {dim!r}")
        self.dim = dim
        self.scale = parameter(scale)
        self.c = torch.as_tensor(c, dtype=self.scale.dtype, device=self.scale.device)
        # Widened once, so that gradients through their many uses are summed in float64.
        self._sigma = self.scale.double()
        self._q = self.c.double() * self._sigma**2
        validate, _ = resolve_validation(validate_args)
        if validate:
            check_positive("scale", self.scale)
            if (self.c < 0).any():
                raise ValueError(f"c must be ≥ 0 (the curvature is −c), got {self.c.min().item()}")
        super().__init__(broadcast_shape(self.scale.shape, self.c.shape), validate_args=False)
        self._validate_args = validate

    arg_constraints: ClassVar = {"scale": constraints.positive, "c": constraints.nonnegative}
    support = constraints.nonnegative

    def expand(self, batch_shape: Shape, _instance: None = None) -> HyperbolicRadius:
        shape = torch.Size(batch_shape)
        return HyperbolicRadius(self.dim, self.scale.expand(shape), self.c.expand(shape), validate_args=False)

    def _result(self, value: Tensor) -> Tensor:
        return value.to(self.scale.dtype)

    def transform(self, noise: Tensor) -> Tensor:
        """The radius of the draw made from standard normal `noise` of shape (…, dim)."""
        square = noise.double().square().sum(-1)
        exact = self.scale.dtype == torch.float64
        return self._result(self._sigma * stretch(square, self._q, self.dim, exact) * square.sqrt())

    def rsample(self, sample_shape: Shape = torch.Size()) -> Tensor:
        shape = self._extended_shape(sample_shape) + (self.dim,)
        return self.transform(torch.randn(shape, dtype=self.scale.dtype, device=self.scale.device))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            check_support("radius", value, value >= 0, "≥ 0")
        q = self._q
        log_density = radial.log_kernel(value.double() / self._sigma, q, self.dim) - radial.log_normaliser(q, self.dim)
        return self._result(log_density - self._sigma.log())

    def cdf(self, value: Tensor) -> Tensor:
        """Probability of a radius below `value`."""
        t = (value.double() / self._sigma).clamp_min(1e-300)
        return self._result(torch.where(value > 0, radial.log_cdfs(t, self._q, self.dim)[0].exp(), 0.0))

    def icdf(self, value: Tensor) -> Tensor:
        """The quantile of probability `value`."""
        if self._validate_args:
            check_support("probability", value, (value >= 0) & (value <= 1), "between 0 and 1")
        p = value.double()
        inner = p.clamp(1e-300, 1 - 2**-53)
        t = radial.quantile(inner.log(), torch.log1p(-inner), self._q, self.dim)
        r = torch.where(p <= 0, 0.0, torch.where(p >= 1, math.inf, self._sigma * t))
        return self._result(r)

    @property
    def mean(self) -> Tensor:
        return self._result((self._sigma * radial.mean_power(self._q, self.dim, 1)).expand(self.batch_shape))

    @property
    def variance(self) -> Tensor:
        q = self._q
        t, weights = radial.bulk(q, self.dim)
        centre = (weights * t).sum(-1, keepdim=True)
        return self._result((self._sigma**2 * (weights * (t - centre) ** 2).sum(-1)).expand(self.batch_shape))

    def entropy(self) -> Tensor:
        q = self._q
        t, weights = radial.bulk(q, self.dim)
        mean_kernel = (weights * radial.log_kernel(t, q.unsqueeze(-1), self.dim)).sum(-1)
        return self._result(
            (radial.log_normaliser(q, self.dim) - mean_kernel + self._sigma.log()).expand(self.batch_shape)
        )


class _UnitSphere(constraints.Constraint):
    event_dim = 1

    def __init__(self, dim: int) -> None:
        self.dim = dim
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-1] != self.dim:
            return torch.zeros(value.shape[:-1], dtype=torch.bool, device=value.device)
        tolerance = 16 * torch.finfo(value.dtype).eps * self.dim
        return (value.double().square().sum(-1).sqrt() - 1).abs() <= tolerance


class SphericalUniform(Distribution):
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
        validate, _ = resolve_validation(validate_args)
        super().__init__(batch_shape, torch.Size([dim]), validate_args=False)
        self._validate_args = validate

    @property
    def support(self) -> constraints.Constraint:
        return _UnitSphere(self.dim)

    def expand(self, batch_shape: Shape, _instance: None = None) -> SphericalUniform:
        return SphericalUniform(
            self.dim, self.dtype, self.device, self._validate_args, batch_shape=torch.Size(batch_shape)
        )

    def transform(self, noise: Tensor) -> Tensor:
        """The direction of standard normal `noise`."""
        return noise / noise.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(noise.dtype).tiny)

    def rsample(self, sample_shape: Shape = torch.Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.transform(torch.randn(shape, dtype=self.dtype, device=self.device))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            check_support("direction", value, self.support.check(value), f"a unit vector of length {self.dim}")
        return value.new_full(value.shape[:-1], -radial.log_area(self.dim))

    @property
    def mean(self) -> Tensor:
        return torch.zeros(self._extended_shape(), dtype=self.dtype, device=self.device)

    @property
    def variance(self) -> Tensor:
        """Of each coordinate: 1/dim."""
        return torch.full(self._extended_shape(), 1 / self.dim, dtype=self.dtype, device=self.device)

    def entropy(self) -> Tensor:
        return torch.full(self.batch_shape, radial.log_area(self.dim), dtype=self.dtype, device=self.device)
