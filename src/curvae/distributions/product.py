"""Independent normals on the factors of a product of spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints, kl_divergence, register_kl

from ..geometry.checks import real
from .validation import InsideProduct, Shape, Validated, check_noise

__all__ = ["ProductNormal"]


class ProductNormal(Validated):
    """Independent normals on the factors of a product of spaces; a point is the factors' coordinates in one row.

    Arguments:
        factors: a normal for each factor, of one batch shape.

    Example:
        >>> from curvae import Euclidean, Lorentz
        >>> from curvae.distributions import WrappedNormal
        >>> q = ProductNormal([WrappedNormal(torch.zeros(2), 0.5, Lorentz(2)), WrappedNormal(torch.zeros(3), 1.0, Euclidean(3))])
        >>> q.rsample((7,)).shape, q.log_prob(torch.zeros(5)).shape
        (torch.Size([7, 5]), torch.Size([]))
    """  # noqa: E501 - an example is one line

    has_rsample = True
    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    def __init__(self, factors: Sequence[Validated]) -> None:
        if not isinstance(factors, Sequence) or not all(isinstance(factor, Validated) for factor in factors):
            kinds = [type(one).__name__ for one in factors] if isinstance(factors, Sequence) else type(factors).__name__
            raise TypeError(f"factors must be a list of normal distributions, got {kinds}")
        if len({factor.batch_shape for factor in factors}) != 1:
            shapes = ", ".join(str(tuple(factor.batch_shape)) for factor in factors)
            raise ValueError(f"factors must have one batch shape, got {shapes or 'no factor'}")
        self.factors: tuple[Any, ...] = tuple(factors)
        self._widths = [factor.event_shape[0] for factor in factors]
        super().__init__(factors[0].batch_shape, torch.Size([sum(self._widths)]), validate_args=False)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        return InsideProduct([factor.support for factor in self.factors], self._widths)

    @property
    def loc(self) -> Tensor:
        """The centres of the factors."""
        return torch.cat([factor.mean for factor in self.factors], -1)

    mean = mode = loc

    @property
    def noise_dim(self) -> int:
        return sum(factor.noise_dim for factor in self.factors)

    def _noises(self, noise: Tensor) -> Any:
        """Every factor with its part of the noise."""
        check_noise(noise, self.batch_shape, self.noise_dim)
        return zip(self.factors, noise.split([factor.noise_dim for factor in self.factors], -1), strict=True)

    def entropy(self) -> Tensor:
        return torch.stack([factor.entropy() for factor in self.factors]).sum(0)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> ProductNormal:
        new = self._expanded(batch_shape, _instance)
        new.factors = tuple(factor.expand(batch_shape) for factor in self.factors)
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density with respect to the product of the Riemannian measures."""
        value = real("value", value)
        if value.shape[-1:] != self.event_shape:
            raise ValueError(f"value must have shape (…, {self.event_shape[0]}), got {tuple(value.shape)}")
        parts = zip(self.factors, value.split(self._widths, -1), strict=True)
        return torch.stack([factor.log_prob(part) for factor, part in parts]).sum(0)

    def noise(self, sample_shape: Shape = torch.Size()) -> Tensor:
        """Standard normal noise for draws of the given shape."""
        return torch.cat([factor.noise(sample_shape) for factor in self.factors], -1)

    def transform(self, noise: Tensor) -> Tensor:
        """The draw made from standard normal `noise` of shape (…, d): a pure function."""
        return torch.cat([factor.transform(part) for factor, part in self._noises(noise)], -1)

    def transform_and_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """`transform` together with the log-density of the draw."""
        made = [factor.transform_and_log_prob(part) for factor, part in self._noises(noise)]
        draws, densities = zip(*made, strict=True)
        return torch.cat(draws, -1), torch.stack(densities).sum(0)

    def rsample(self, sample_shape: Shape = torch.Size()) -> Tensor:
        return self.transform(self.noise(sample_shape))

    def rsample_and_log_prob(self, sample_shape: Shape = torch.Size()) -> tuple[Tensor, Tensor]:
        """A draw and its log-density."""
        return self.transform_and_log_prob(self.noise(sample_shape))


@register_kl(ProductNormal, ProductNormal)
def _kl_product(p: ProductNormal, q: ProductNormal) -> Tensor:
    if len(p.factors) != len(q.factors):
        raise NotImplementedError(
            f"KL of two products needs the same factors, got {len(p.factors)} and {len(q.factors)} of them"
        )
    return torch.stack([kl_divergence(a, b) for a, b in zip(p.factors, q.factors, strict=True)]).sum(0)
