"""From unconstrained vectors to the supports of the distributions, as `torch.distributions.biject_to` gives them.

Densities on a manifold are with respect to its Riemannian measure, and so is the Jacobian here. A change of variables
adds log p(y) and log|dy/dx|, and only the two together are a density in x, with respect to Lebesgue's measure: neither
needs the coordinates in which y is written.
"""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor
from torch.distributions import Transform, biject_to, constraints, transform_to

from ..geometry import Manifold
from ..geometry import hyperboloid as h
from ..geometry.functions import logsinhc
from .validation import Inside, UnitSphere

__all__ = ["ExpMap0Transform", "NormalizeTransform"]


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

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ExpMap0Transform({self.manifold})"

    def _call(self, x: Tensor) -> Tensor:
        return self.manifold.expmap0(x / self.manifold._factor0)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.manifold._factor0 * self.manifold.logmap0(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        v = x.double()
        return ((self.manifold.dim - 1) * logsinhc(self.manifold._c * h.dot(v, v))).to(x.dtype)

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        c = self.manifold.c
        batch = torch.broadcast_shapes(shape[:-1], c.shape if isinstance(c, Tensor) else ())
        return torch.Size([*batch, *shape[-1:]])

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

    __hash__ = None  # type: ignore[assignment]

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
    return ExpMap0Transform(constraint.manifold)


@transform_to.register(UnitSphere)
def _to_sphere(constraint: UnitSphere) -> Transform:
    return NormalizeTransform(constraint.dim)


@biject_to.register(UnitSphere)
def _no_bijection(constraint: UnitSphere) -> NoReturn:
    raise NotImplementedError(
        "no bijection leads from unconstrained vectors to a sphere; normalise a vector with "
        "torch.distributions.transform_to, or let the direction be a draw of a standard normal, normalised"
    )
