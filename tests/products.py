"""Spaces, alone and in products: what a test of any factor asks of it."""

from __future__ import annotations

import torch

from curvae.models import VAE, Gaussian, Posterior
from curvae.nn import Space, decoder, mlp

__all__ = ["FEATURES", "PRODUCTS", "FactorTests", "vae"]

FEATURES = 4
# As they are written, curved and flat, of one dimension and several, with a learned curvature.
PRODUCTS = ("h2,e3", "h2:0.5,h2:learn", "e1,h3:1.7,e2")
F64 = torch.float64


def vae(space, kind="gyroplane", likelihood=None, seed=0, hidden=6, **options) -> VAE:
    """A model of rows of four numbers in float64; `space` is a text or a `Space`."""
    torch.manual_seed(seed)
    space = Space(space, **options) if isinstance(space, str) else space
    networks = mlp(FEATURES, hidden), decoder(kind, space, (hidden,), FEATURES)
    return VAE(*networks, Posterior(hidden, space), likelihood or Gaussian(FEATURES)).double()


class FactorTests:
    """What must hold for a factor of any kind. A new one inherits these tests and says what it is.

    Attributes:
        text: the factor, as it is written.
        options: further arguments of `Space`.
        tolerance: of draws and divergences, where noise is float32.
    """

    text = ""
    options: dict = {}  # noqa: RUF012 - a subclass replaces it
    tolerance = 1e-5

    def space(self, others="", **options) -> Space:
        return Space(f"{self.text}{others}", **(self.options | options)).double()

    def drawn(self, space, noise=F64, draws=3, rows=5):
        """Outputs of an encoder, noise, and the draws that are made of them."""
        outputs = torch.randn(rows, space.outputs, dtype=F64)
        noise = torch.randn(draws, rows, space.noise_dim, dtype=noise)
        return outputs, noise, space.draw(outputs, noise, F64)

    def test_it_says_what_it_is(self):
        space = self.space()
        (figures,), (factor,) = space.figures(), space
        assert len(space) == 1 and figures.dim == space.dim == factor.dim and figures.name == f"{self.text[0]}1"
        assert space.width == factor.width >= factor.dim and space.outputs == factor.outputs
        assert (figures.c == 0) == factor.flat and figures.c == float(space.curvatures()[0].detach())
        assert set(space.numbers()) == {"c", "prior_scale"}
        second = self.space(f",{self.text}")
        assert [one.name for one in second.figures()] == [f"{self.text[0]}{i}" for i in (1, 2)]
        assert second.dim == 2 * space.dim and second.width == 2 * space.width and second.outputs == 2 * space.outputs
        assert list(second.numbers()) == ["c_1", "prior_scale_1", "c_2", "prior_scale_2"]

    def test_draws_follow_their_distributions(self):
        """A draw is that of the posterior, and its divergence the difference of the two log-densities."""
        space = self.space(prior_scale=1.3)
        outputs, noise, (z, kl) = self.drawn(space)
        q, p = space.posterior(outputs), space.prior()
        torch.testing.assert_close(z, q.transform(noise), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(kl, q.log_prob(z) - p.log_prob(z), rtol=1e-8, atol=1e-8)
        assert bool(q.support.check(z).all())

    def test_single_precision_is_enough_for_noise(self):
        space = self.space()
        outputs, noise, found = self.drawn(space, torch.float32)
        exact = space.draw(outputs, noise.double(), F64)
        torch.testing.assert_close(found, exact, rtol=self.tolerance, atol=self.tolerance)

    def test_in_a_product_it_is_what_it_is_alone(self):
        """Draws are those of the factors one by one, and the divergence is their sum."""
        for noise in (torch.float32, F64):
            space = self.space(",e2,h3:0.4", prior_scale=0.8)
            outputs, noise, (z, kl) = self.drawn(space, noise)
            widths = [[getattr(factor, of) for factor in space] for of in ("outputs", "noise_dim", "width")]
            heads, noises = outputs.split(widths[0], -1), noise.split(widths[1], -1)
            alone = [Space([f]).draw(*parts, F64) for f, *parts in zip(space, heads, noises, strict=True)]
            tolerance = 1e-12 if noise.dtype == F64 else self.tolerance
            torch.testing.assert_close(
                (z, kl),
                (torch.cat([point for point, _ in alone], -1), sum(own for _, own in alone)),
                rtol=tolerance,
                atol=tolerance,
            )
            assert [part.shape[-1] for part in space.split(z)] == widths[2]
            exact = space.posterior(outputs).transform(noise.double())
            torch.testing.assert_close(z, exact, rtol=self.tolerance, atol=self.tolerance)

    def test_gradients(self):
        """By finite differences, in the outputs of an encoder and in the numbers that are learned."""
        space = self.space(",e2", learn_prior_scale=True)
        outputs, noise = (torch.randn(3, n, dtype=F64) for n in (space.outputs, space.noise_dim))
        names, learned = zip(*space.named_parameters(), strict=True)

        def figures(outputs, *values):
            parameters = dict(zip(names, values, strict=True))
            return torch.func.functional_call(_Draw(space), {f"space.{n}": v for n, v in parameters.items()}, outputs)

        class _Draw(torch.nn.Module):
            def __init__(self, space):
                super().__init__()
                self.space = space

            def forward(self, outputs):
                return self.space.draw(outputs, noise.unsqueeze(0), F64)

        leaves = [t.detach().clone().requires_grad_() for t in (outputs, *learned)]
        assert torch.autograd.gradcheck(figures, leaves, atol=1e-6)

    def test_points_are_held_back_where_a_dtype_cannot_hold_them(self):
        space = self.space(",h2")
        far = torch.full((2, space.width), 1e200, dtype=F64)
        assert space.saturate(far, torch.float32, 2.0**12).isfinite().all()
        near = 0.1 * torch.randn(2, space.width, dtype=F64)
        torch.testing.assert_close(space.saturate(near, F64), near)

    def test_a_model_in_it_trains(self):
        model = vae(self.space(",e2"), seed=1)
        x = torch.randn(64, 1, dtype=F64) * torch.tensor([1.0, -2.0, 0.5, 1.5]) + 0.1 * torch.randn(64, FEATURES)
        optimiser, noise = torch.optim.Adam(model.parameters(), 0.02), model.noise(64, 1)
        losses = []
        for _ in range(30):
            optimiser.zero_grad()
            loss = -model.elbo(x, noise=noise).mean()
            loss.backward()
            assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
            optimiser.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] - 0.5
