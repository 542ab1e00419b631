"""Independent normals on the factors of a product of spaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints, kl_divergence, register_kl

from .normal import HyperbolicNormal
from .validation import Shape, Validated

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

    def __init__(self, factors: Sequence[HyperbolicNormal]) -> None:
        if len({factor.batch_shape for factor in factors}) != 1:
            shapes = ", ".join(str(tuple(factor.batch_shape)) for factor in factors)
            raise ValueError(f"the factors of a product must have one batch shape, got {shapes or 'no factor'}")
        self.factors = tuple(factors)
        super().__init__(factors[0].batch_shape, torch.Size([sum(self._widths)]), validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.cat([factor.support for factor in self.factors], -1, self._widths)

    @property
    def loc(self) -> Tensor:
        """The centres of the factors."""
        return torch.cat([factor.mean for factor in self.factors], -1)

    mean = loc

    @property
    def _widths(self) -> list[int]:
        return [factor.manifold.dim for factor in self.factors]

    def _parts(self, x: Tensor) -> Iterator[tuple[HyperbolicNormal, Tensor]]:
        """Each factor with its part of x."""
        return zip(self.factors, x.split(self._widths, -1), strict=True)

    def entropy(self) -> Tensor:
        return torch.stack([factor.entropy() for factor in self.factors]).sum(0)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> ProductNormal:
        return ProductNormal([factor.expand(batch_shape) for factor in self.factors])

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density with respect to the product of the Riemannian measures."""
        return torch.stack([factor.log_prob(part) for factor, part in self._parts(self._checked(value))]).sum(0)

    def noise(self, sample_shape: Shape = torch.Size()) -> Tensor:
        """Standard normal noise for draws of the given shape."""
        return torch.cat([factor.noise(sample_shape) for factor in self.factors], -1)

    def transform(self, noise: Tensor) -> Tensor:
        """The draw made from standard normal `noise` of shape (…, d): a pure function."""
        return torch.cat([factor.transform(part) for factor, part in self._parts(noise)], -1)

    def transform_and_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """`transform` together with the log-density of the draw."""
        drawn = (factor.transform_and_log_prob(part) for factor, part in self._parts(noise))
        draws, densities = zip(*drawn, strict=True)
        return torch.cat(draws, -1), torch.stack(densities).sum(0)

    def rsample(self, sample_shape: Shape = torch.Size()) -> Tensor:
        return self.transform(self.noise(sample_shape))

    def rsample_and_log_prob(self, sample_shape: Shape = torch.Size()) -> tuple[Tensor, Tensor]:
        """A draw and its log-density."""
        return self.transform_and_log_prob(self.noise(sample_shape))


@register_kl(ProductNormal, ProductNormal)
def _kl_product(p: ProductNormal, q: ProductNormal) -> Tensor:
    if len(p.factors) != len(q.factors):
        raise NotImplementedError("KL of two products needs the same factors")
    return torch.stack([kl_divergence(a, b) for a, b in zip(p.factors, q.factors, strict=True)]).sum(0)
