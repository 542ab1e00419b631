"""Distributions as sample sites of Pyro, which is imported only here and only when asked for."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from torch.distributions import Distribution

__all__ = ["to_pyro"]

D = TypeVar("D", bound=Distribution)


def to_pyro(distribution: D) -> D:
    """Return the same distribution with the methods that Pyro needs of a sample site; needs `curvae[pyro]`.

    The result is still an instance of its own class, and now one of Pyro's `TorchDistributionMixin` too. Autoguides and
    NUTS reach its support through `torch.distributions.biject_to`; see `ExpMap0Transform`.

    Arguments:
        distribution: one of `curvae.distributions`.
    """
    plain: Any = type(distribution)
    return _with_class(distribution, _site_class(plain))


def _with_class(distribution: Distribution, cls: Any) -> Any:
    new = cls.__new__(cls)
    new.__dict__.update(distribution.__dict__)
    return new


@cache
def _site_class(cls: Any) -> Any:
    try:
        from pyro.distributions.torch_distribution import TorchDistributionMixin
    except ModuleNotFoundError:
        raise ImportError("to_pyro needs Pyro: pip install pyro-ppl") from None
    if issubclass(cls, TorchDistributionMixin):
        return cls

    class Site(cls, TorchDistributionMixin):
        __doc__ = cls.__doc__

        def __reduce__(self) -> tuple[Any, ...]:
            # The class has no name by which pickle could find it.
            return to_pyro, (_with_class(self, cls),)

    Site.__name__, Site.__qualname__, Site.__module__ = cls.__name__, cls.__qualname__, cls.__module__
    return Site
