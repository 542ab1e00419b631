"""One battery for every likelihood in the registry; the oracles are the densities of scipy."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from scipy import sparse, stats

from curvae import CurvaeError
from curvae.models import LIKELIHOODS, Batch, Gaussian, Layout
from curvae.models.likelihoods import choose_likelihood
from curvae.training import Config, build, embed, fit
from curvae.training.evaluate import likelihoods
from running import refused

ROWS, FEATURES = 5, 6
BLOCKS = {"categorical": (2, 4), "mixed": (1, 3, 0, 0)}


def data(name: str) -> torch.Tensor:
    """A target that the likelihood takes."""
    random = np.random.default_rng(3)
    if name in BLOCKS:
        kinds = {0: lambda: random.normal(size=(ROWS, 1)), 1: lambda: random.permutation([0.0, 1, 1, 0, 1])[:, None]}
        blocks = [kinds.get(n, lambda n=n: np.eye(n)[random.integers(n, size=ROWS)])() for n in BLOCKS[name]]
        return torch.from_numpy(np.concatenate(blocks, 1))
    made = {
        "bernoulli": lambda: random.integers(2, size=(ROWS, FEATURES)).astype(float),
        "poisson": lambda: random.poisson(4.0, size=(ROWS, FEATURES)).astype(float),
    }
    return torch.from_numpy(made.get(name, lambda: random.normal(size=(ROWS, FEATURES)))())


def densities(name: str, outputs: np.ndarray, x: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Log-densities of the entries, from scipy."""
    if name == "categorical":
        return categories(outputs, x, BLOCKS[name])
    if name == "mixed":  # the outputs are those of the numbers, of yes and no, of the categories
        return np.concatenate(
            [
                stats.bernoulli.logpmf(x[:, :1], 1 / (1 + np.exp(-outputs[..., 2:3]))),
                categories(outputs[..., 3:], x[:, 1:4], (3,)),
                stats.norm.logpdf(x[:, 4:], outputs[..., :2], 1.0),
            ],
            -1,
        )
    return {
        "bernoulli": lambda: stats.bernoulli.logpmf(x, 1 / (1 + np.exp(-outputs))),
        "gaussian": lambda: stats.norm.logpdf(x, outputs, 1.0),
        "unit_gaussian": lambda: stats.norm.logpdf(x, outputs, 1.0),
        "poisson": lambda: stats.poisson.logpmf(x, size[:, None] * np.exp(outputs)),
    }[name]()


def categories(outputs: np.ndarray, x: np.ndarray, blocks: tuple[int, ...]) -> np.ndarray:
    pieces = np.split(outputs, np.cumsum(blocks)[:-1], -1)
    return x * np.concatenate([p - np.logaddexp.reduce(p, -1, keepdims=True) for p in pieces], -1)


def made(name: str):
    likelihood = LIKELIHOODS[name].make(Layout(FEATURES, BLOCKS.get(name, ()))).double()
    for part in likelihood.modules():
        if isinstance(part, Gaussian) and part.learned:
            with torch.no_grad():
                part.spread.fill_(math.log(math.expm1(1 - part.floor)))  # 1 to the last digit
    return likelihood


@pytest.mark.parametrize("name", LIKELIHOODS)
class TestEveryLikelihood:
    def test_densities_are_those_of_scipy(self, name):
        likelihood, x = made(name), data(name)
        assert likelihood.features == FEATURES
        outputs = torch.randn(3, ROWS, likelihood.outputs, dtype=torch.float64)
        size = torch.rand(ROWS, dtype=torch.float64) + 0.5
        for batch, sizes in ((Batch(x), np.ones(ROWS)), (Batch(x, size=size), size.numpy())):
            expected = densities(name, outputs.numpy(), x.numpy(), sizes)
            entries = likelihood.entries(outputs, batch).detach()
            torch.testing.assert_close(entries, torch.from_numpy(expected), rtol=1e-10, atol=1e-12)
            found = likelihood.log_prob(outputs, batch).detach()
            torch.testing.assert_close(found, torch.from_numpy(expected.sum(-1)), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(likelihood.log_prob(outputs, x), likelihood.log_prob(outputs, Batch(x)))

    def test_only_observed_entries_count(self, name):
        likelihood, x = made(name), data(name)
        outputs = torch.randn(ROWS, likelihood.outputs, dtype=torch.float64)
        observed = (torch.rand(ROWS, FEATURES) < 0.6).double()
        entries = likelihood.entries(outputs, Batch(x))
        expected = (entries * observed).sum(-1)
        torch.testing.assert_close(likelihood.log_prob(outputs, Batch(x, observed=observed)), expected)

    def test_the_target_may_differ_from_what_the_encoder_sees(self, name):
        likelihood, x = made(name), data(name)
        outputs = torch.randn(ROWS, likelihood.outputs, dtype=torch.float64)
        seen = torch.ones(ROWS, 2, dtype=torch.float64)
        batch = Batch(seen, target=x)
        torch.testing.assert_close(likelihood.log_prob(outputs, batch), likelihood.log_prob(outputs, x))
        assert likelihood.inputs(batch).shape == seen.shape

    def test_draws_have_the_mean(self, name):
        likelihood, count = made(name), 20_000
        outputs = torch.linspace(-1.0, 1.0, likelihood.outputs, dtype=torch.float64).expand(count, -1)
        batch = Batch(torch.zeros(count, FEATURES), size=torch.full((count,), 2.0))
        draws = likelihood.sample(outputs, batch, torch.Generator().manual_seed(0))
        mean = likelihood.mean(outputs, batch)[0]
        assert ((draws.mean(0) - mean).abs() <= 4.5 * draws.std(0) / math.sqrt(count) + 1e-6).all()
        again = likelihood.sample(outputs, batch, generator=torch.Generator().manual_seed(0))
        assert torch.equal(draws, again)
        with pytest.warns(DeprecationWarning, match="generator=generator"):
            likelihood.sample(outputs, torch.Generator())

    def test_outputs_start_at_the_mean(self, name):
        likelihood, x = made(name), data(name)
        mean = x.mean(0).clamp(0.05, 0.95) if name in ("bernoulli", *BLOCKS) else x.mean(0).abs() + 0.1
        if name in BLOCKS:
            for part in mean.split(Layout(FEATURES, BLOCKS[name]).widths):
                part /= part.sum() if len(part) > 1 else 1.0
        start = likelihood.start(mean)
        assert start.shape == (likelihood.outputs,)
        torch.testing.assert_close(likelihood.mean(start), mean)

    def test_gradients(self, name):
        likelihood, x = made(name), data(name)
        outputs = torch.randn(ROWS, likelihood.outputs, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda o: likelihood.log_prob(o, Batch(x)), (outputs,))

    def test_a_model_trains_and_is_scored(self, name):
        rows = data(name).repeat(8, 1).numpy()
        blocks = BLOCKS.get(name, ())
        fitted = fit(Config(likelihood=name, hidden=(8,), epochs=2, batch_size=16), rows, blocks=blocks)
        assert all(np.isfinite(record["elbo"]) for record in fitted.history)
        assert np.isfinite(likelihoods(fitted, rows, samples=20).log_prob).all()
        assert np.isfinite(embed(fitted, rows).ball).all()
        assert len(fitted.model.sample(7)) == 7


def test_the_registry_serves_every_face():
    names = ("auto", *LIKELIHOODS)
    with pytest.raises(CurvaeError, match=f"likelihood must be one of {', '.join(names)}; got 'other'"):
        Config(likelihood="other")
    shown = refused("fit", "t.csv", "--likelihood", "other")
    assert re.findall("'([a-z_]+)'", shown) == ["other", *names]
    assert all(family.summary for family in LIKELIHOODS.values())


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("bernoulli", [[0.0, 2.0]], r"needs values in \[0, 1\], but they go from 0 to 2"),
        ("categorical", [[0.5, 0.1]], "needs one-hot columns"),
        ("poisson", [[1.0, -1.0]], "needs counts, but there is a value of -1"),
        ("poisson", [[1.0, 0.5]], "not all values are whole numbers"),
    ],
)
def test_data_that_do_not_fit_are_refused_with_the_reason(name, values, why):
    for x in (np.array(values), sparse.csr_array(values)):
        with pytest.raises(CurvaeError, match=f"likelihood {name} .*{why}"):
            choose_likelihood(x, name)


def test_exposure_scales_the_rate_and_is_taken_out_of_what_the_encoder_sees():
    """A row observed twice as long has twice the counts, and the same posterior."""
    model = build(Config(likelihood="poisson", hidden=(8,)), 3).double()
    x, size = torch.tensor([[2.0, 0.0, 6.0]]).double(), torch.tensor([2.0]).double()
    one, two = Batch(x / 2), Batch(x, size=size)
    torch.testing.assert_close(model.encode(one).loc, model.encode(two).loc)
    outputs = model.decode(model.encode(one).loc)
    torch.testing.assert_close(model.likelihood.mean(outputs, two), 2 * model.likelihood.mean(outputs, one))
