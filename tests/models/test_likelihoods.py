"""Every likelihood in the registry; the oracles are the densities of scipy."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from scipy import stats

from curvae import CurvaeError
from curvae.models import LIKELIHOODS, VAE, Batch, Bernoulli, Categorical, Gaussian, Layout, Posterior
from curvae.nn import HyperbolicFactor, Space, decoder, mlp
from curvae.training import Config, build
from likelihood_checks import FEATURES, ROWS, LikelihoodChecks
from running import refused


class TestBernoulli(LikelihoodChecks):
    name = "bernoulli"
    refused = (([[0.0, 2.0]], r"needs values in \[0, 1\], but they go from 0 to 2"),)

    def data(self, random):
        return random.integers(2, size=(ROWS, FEATURES)).astype(float)

    def densities(self, outputs, x, size):
        return stats.bernoulli.logpmf(x, 1 / (1 + np.exp(-outputs)))

    def column_means(self):
        return super().column_means().clamp(0.05, 0.95)


class TestUnitGaussian(LikelihoodChecks):
    name = "unit_gaussian"

    def data(self, random):
        return random.normal(size=(ROWS, FEATURES))

    def densities(self, outputs, x, size):
        return stats.norm.logpdf(x, outputs, 1.0)


class TestGaussian(TestUnitGaussian):
    name = "gaussian"


class TestPoisson(LikelihoodChecks):
    name = "poisson"
    refused = (
        ([[1.0, -1.0]], "needs counts, but there is a value of -1"),
        ([[1.0, 0.5]], "not all values are whole numbers"),
    )

    def data(self, random):
        return random.poisson(4.0, size=(ROWS, FEATURES)).astype(float)

    def densities(self, outputs, x, size):
        return stats.poisson.logpmf(x, size[:, None] * np.exp(outputs))


class TestNegativeBinomial(LikelihoodChecks):
    """The dispersion starts at 1."""

    name = "nb"
    refused = TestPoisson.refused

    def data(self, random):
        return random.negative_binomial(1, 0.3, size=(ROWS, FEATURES)).astype(float)

    def densities(self, outputs, x, size):
        return negative_binomial(size[:, None] * np.exp(outputs), np.ones(FEATURES), x)


class TestZeroInflated(TestNegativeBinomial):
    name = "zinb"

    def densities(self, outputs, x, size):
        rates, logits = np.split(outputs, 2, -1)
        lost, counted = 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(logits))
        found = counted * np.exp(super().densities(rates, x, size))
        return np.log(np.where(x == 0, lost + found, found))


def negative_binomial(mean, theta, x):
    return stats.nbinom.logpmf(x, theta, theta / (theta + mean))


def one_hot(random, width):
    return np.eye(width)[random.integers(width, size=ROWS)]


def categories(outputs, x, blocks):
    pieces = np.split(outputs, np.cumsum(blocks)[:-1], -1)
    return x * np.concatenate([p - np.logaddexp.reduce(p, -1, keepdims=True) for p in pieces], -1)


class TestCategorical(LikelihoodChecks):
    name, blocks = "categorical", (2, 4)
    refused = (([[0.5, 0.1]], "needs one-hot columns"),)

    def data(self, random):
        return np.concatenate([one_hot(random, width) for width in self.blocks], 1)

    def densities(self, outputs, x, size):
        return categories(outputs, x, self.blocks)

    def column_means(self):
        mean = super().column_means().clamp(0.05, 0.95)
        for part in mean.split(Layout(FEATURES, self.blocks).widths):
            part /= part.sum() if len(part) > 1 else 1.0
        return mean


class TestMixed(TestCategorical):
    name, blocks, refused = "mixed", (1, 3, 0, 0), ()

    def data(self, random):
        yes = random.permutation([0.0, 1, 1, 0, 1])[:, None]
        return np.concatenate([yes, one_hot(random, 3), random.normal(size=(ROWS, 2))], 1)

    def densities(self, outputs, x, size):
        """The outputs are those of the numbers, of yes and no, of the categories."""
        return np.concatenate(
            [
                stats.bernoulli.logpmf(x[:, :1], 1 / (1 + np.exp(-outputs[..., 2:3]))),
                categories(outputs[..., 3:], x[:, 1:4], (3,)),
                stats.norm.logpdf(x[:, 4:], outputs[..., :2], 1.0),
            ],
            -1,
        )


def test_every_likelihood_is_checked():
    checked = [cls.name for cls in globals().values() if isinstance(cls, type) and "name" in vars(cls)]
    assert sorted(checked) == sorted(LIKELIHOODS)


def test_the_registry_serves_every_face():
    names = ("auto", *LIKELIHOODS)
    with pytest.raises(CurvaeError, match=f"`likelihood` must be one of {', '.join(names)}; got 'other'"):
        Config(likelihood="other")
    shown = refused("fit", "t.csv", "--likelihood", "other")
    assert re.findall("'([a-z_]+)'", shown) == ["other", *names]
    assert all(family.summary for family in LIKELIHOODS.values())


def test_exposure_scales_the_rate_and_is_taken_out_of_what_the_encoder_sees():
    """A row observed twice as long has twice the counts, and the same posterior."""
    model = build(Config(likelihood="poisson", hidden=(8,)), 3).double()
    x, size = torch.tensor([[2.0, 0.0, 6.0]]).double(), torch.tensor([2.0]).double()
    one, two = Batch(x / 2), Batch(x, size=size)
    torch.testing.assert_close(model.encode(one).loc, model.encode(two).loc)
    outputs = model.decode(model.encode(one).loc)
    torch.testing.assert_close(model.likelihood.mean(outputs, two), 2 * model.likelihood.mean(outputs, one))


# --- values, bounds and starts ---------------------------------------------------------------------------------------


LAWS = pytest.mark.parametrize("law", ["wrapped", "riemannian"])


HALF_LOG_2PI = math.log(2 * math.pi) / 2


def vae(law="wrapped", c=1.0, kind="gyroplane", dim=2, features=5, learn=None, scale=1.0, likelihood=None) -> VAE:
    both = learn == "both"
    space = Space([HyperbolicFactor(dim, c, both or learn == "curvature", law, False, scale, both or learn == "scale")])
    networks = mlp(features, 8), decoder(kind, space, (8,), features)
    return VAE(*networks, Posterior(8, space), likelihood or Gaussian(features))


# --- likelihoods ----------------------------------------------------------------------------------------------------


def outputs(features: int) -> torch.Tensor:
    """Of every size, some of them absurd."""
    return torch.randn(6, 30, features) * 10.0 ** torch.arange(-3, 3)[:, None, None]


def test_likelihoods_equal_scipy():
    eta, x = outputs(4)[:4].double(), torch.rand(30, 4).double()
    unit, learned = Gaussian(4, learned=False), Gaussian(4).double()
    learned.spread.data.normal_()
    for likelihood in (unit, learned):
        deviation = 1.0 if likelihood is unit else 0.01 + np.logaddexp(0, learned.spread.detach().numpy())
        expected = stats.norm(eta.numpy(), deviation).logpdf(x.numpy()).sum(-1)
        np.testing.assert_allclose(likelihood.log_prob(eta, x).detach(), expected, rtol=1e-10)
    p = 1 / (1 + np.exp(-eta.numpy()))
    whole = (x > 0.5).double()
    np.testing.assert_allclose(
        Bernoulli(4).log_prob(eta, whole), stats.bernoulli(p).logpmf(whole.numpy()).sum(-1), rtol=1e-8
    )
    grey = x.numpy() * np.log(p) + (1 - x.numpy()) * np.log1p(-p)
    np.testing.assert_allclose(Bernoulli(4).log_prob(eta, x), grey.sum(-1), rtol=1e-6)
    one_hot = torch.cat([torch.eye(3)[torch.randint(3, (30,))], torch.eye(1).expand(30, 1)], -1).double()
    share = np.exp(eta.numpy()[..., :3])
    expected = np.log((share / share.sum(-1, keepdims=True) * one_hot.numpy()[:, :3]).sum(-1))
    np.testing.assert_allclose(Categorical(4, [3, 1]).log_prob(eta, one_hot), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("floor", [0.01, 0.2])
def test_no_likelihood_beyond_its_bound(floor):
    eta = outputs(50)
    x = eta[3] + torch.randn(30, 50) * 10.0 ** torch.arange(-8, 2).repeat(3)[:, None]
    unit = Gaussian(50, learned=False)
    assert unit.log_prob(eta, x).max() <= -25 * math.log(2 * math.pi) + 1e-4
    torch.testing.assert_close(unit.log_prob(x, x), torch.full((30,), -25 * math.log(2 * math.pi)))
    learned = Gaussian(50, floor=floor)
    with torch.no_grad():
        learned.spread.fill_(-1e4)
    bound = 50 * (-math.log(floor) - HALF_LOG_2PI)
    assert learned.log_prob(eta, x).max() <= bound + 1e-3
    torch.testing.assert_close(learned.log_prob(x, x).detach(), torch.full((30,), bound))
    assert (Gaussian(50).scale() - 1).abs().max() < 1e-6
    grey, shares = torch.rand(30, 50), torch.rand(30, 50).softmax(-1)
    for target in (grey, grey.round()):
        assert Bernoulli(50).log_prob(eta, target).max() <= 0
        assert Bernoulli(50).log_prob(1e4 * (2 * grey.round() - 1), grey.round()).max() <= 0
    for likelihood in (Categorical(50), Categorical(50, [10, 25, 15])):
        assert likelihood.log_prob(eta, shares).max() <= 0


@LAWS
def test_no_objective_beyond_the_bound(law):
    """A perfect decoder of 50 features that a model knows by heart."""
    model = vae(law, features=50, likelihood=Gaussian(50, learned=False))
    x = model.decoder[-1].bias.detach().expand(200, 50)
    with torch.no_grad():
        model.decoder[-1].weight.zero_()
        assert model.elbo(x, k=50).mean() <= -25 * math.log(2 * math.pi)
        assert model.iwae(x, k=50).mean() <= -25 * math.log(2 * math.pi) + 0.05


EACH_LIKELIHOOD = [Bernoulli(4), Gaussian(4, learned=False), Gaussian(4), Categorical(4), Categorical(4, [1, 3])]


@pytest.mark.parametrize("likelihood", EACH_LIKELIHOOD, ids=str)
def test_means_samples_and_starts(likelihood):
    eta, count = torch.tensor([0.3, -1.0, 2.0, 0.5]), 20_000
    draws = likelihood.sample(eta.expand(count, 4), generator=torch.Generator().manual_seed(0))
    mean = likelihood.mean(eta)
    error = draws.std(0) / math.sqrt(count)
    assert ((draws.mean(0) - mean).abs() <= 4 * error + 1e-6).all()
    again = likelihood.sample(eta.expand(count, 4), generator=torch.Generator().manual_seed(0))
    assert torch.equal(draws, again) and likelihood.sample(eta.expand(2, 3, 4)).shape == (2, 3, 4)
    if isinstance(likelihood, Gaussian):
        assert (draws.std(0) - 1).abs().max() < 0.03
    else:
        assert ((draws == 0) | (draws == 1)).all()
    if isinstance(likelihood, Categorical):
        for part in draws.split(likelihood.blocks, -1):
            assert (part.sum(-1) == 1).all()
    torch.testing.assert_close(likelihood.mean(likelihood.start(mean)), mean, rtol=1e-5, atol=1e-6)
    # Columns that are constant, or never seen.
    assert likelihood.start(torch.tensor([0.0, 1.0, 0.0, 0.0])).isfinite().all()


def test_blocks_must_add_up():
    with pytest.raises(ValueError, match=r"\[2, 3\] columns do not add up to 4"):
        Categorical(4, [2, 3])
