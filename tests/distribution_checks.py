"""What every distribution is held to: a class of tests that each inherits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.distributions import Distribution

__all__ = ["DistributionChecks"]


class DistributionChecks:
    """The tests of a distribution; a subclass, or a fixture of it, says how to make it."""

    def make(self, dtype: torch.dtype = torch.float64, **changes: Any) -> Distribution:
        """The distribution with the batch shape (3,), some of its parameters changed."""
        raise NotImplementedError

    def parameters(self) -> dict[str, torch.Tensor]:
        """Parameters in which draws and densities can be differentiated, by the names that `make` takes."""
        return {}

    def outside(self, z: torch.Tensor) -> torch.Tensor:
        """As many values, all of them outside of the support."""
        return torch.full_like(z, math.nan)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_shapes_and_dtypes(self, dtype):
        p = self.make(dtype)
        assert p.batch_shape == (3,)
        for shape in ((), (5,), (2, 4)):
            z = p.rsample(shape)
            assert z.shape == torch.Size(shape) + p.batch_shape + p.event_shape and z.dtype == dtype
            assert p.log_prob(z).shape == torch.Size(shape) + p.batch_shape and p.log_prob(z).dtype == dtype
        assert p.entropy().shape == p.batch_shape and p.entropy().dtype == dtype
        assert p.mean.shape == p.batch_shape + p.event_shape

    def test_expand(self):
        p = self.make()
        q = p.expand((4, 3))
        assert q.batch_shape == (4, 3) and type(q) is type(p)
        z = q.rsample((2,))
        assert z.shape == (2, 4, 3) + p.event_shape
        torch.testing.assert_close(q.log_prob(z), p.log_prob(z))
        torch.testing.assert_close(q.entropy(), p.entropy().expand(4, 3))

    def test_support_accepts_draws_and_rejects_others(self):
        p = self.make()
        z = p.rsample((50,))
        assert p.support.check(z).all()
        assert not p.support.check(self.outside(z)).any()
        with pytest.raises(ValueError, match="to be within the support"):
            p.log_prob(self.outside(z))

    def test_entropy_is_minus_the_mean_log_density(self):
        p, n = self.make(), 10_000
        log_p = p.log_prob(p.rsample((n,)))
        gap = (log_p.mean(0) + p.entropy()) / (log_p.std(0) / math.sqrt(n) + 1e-12)
        assert gap.abs().max() < 5

    def test_float32_agrees_with_float64(self):
        single, double = self.make(torch.float32), self.make()
        z = single.rsample((20,)).double()
        torch.testing.assert_close(
            single.log_prob(z.float()), double.log_prob(z).float(), rtol=2e-5, atol=2e-5, msg=repr(single)
        )

    def test_draws_and_densities_have_the_gradients_of_differences(self):
        leaves = {name: value.clone().requires_grad_() for name, value in self.parameters().items()}
        if not leaves:
            return

        def made(values: tuple[torch.Tensor, ...]) -> Distribution:
            return self.make(**dict(zip(leaves, values, strict=True)), validate_args=False)

        noise = torch.randn(3, getattr(self.make(), "dim", None) or self.make().event_shape[0], dtype=torch.float64)
        point = self.make().sample()
        values = tuple(leaves.values())
        assert torch.autograd.gradcheck(lambda *v: made(v).log_prob(point), values, atol=1e-6)
        assert torch.autograd.gradcheck(lambda *v: made(v).transform(noise), values, atol=1e-6)
