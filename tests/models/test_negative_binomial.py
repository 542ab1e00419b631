"""The negative binomial against mpmath and scipy: values and slopes, dispersions of every kind, and their starts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch
from scipy import sparse, stats
from torch.fx.experimental.proxy_tensor import make_fx

from curvae import CurvaeError
from curvae.data import Arrays, load
from curvae.models import LIKELIHOODS, Batch, Layout, NegativeBinomial, ZeroInflated
from curvae.models.likelihoods import negative_binomial
from curvae.models.likelihoods.negative_binomial import _ZeroInflatedEntries, nb_entries
from curvae.training import Config, fit
from curvae.training.fitted import likelihoods

RATES = (1e-8, 1e-3, 0.3, 5.0, 29.0, 31.0, 1e3, 1e6)
DISPERSIONS = (1e-4, 0.03, 1.0, 40.0, 3e3, 1e6)
COUNTS = (0, 1, 3, 200, 4095, 4096, 10**6)


def exact(log_rate, log_dispersion, x):
    """log p(x) and its derivatives by log μ and log θ, to 50 digits."""
    with mpmath.workdps(50):
        eta, lam = mpmath.mpf(log_rate), mpmath.mpf(log_dispersion)
        mu, theta = mpmath.exp(eta), mpmath.exp(lam)
        gammas = mpmath.loggamma(x + theta) - mpmath.loggamma(theta) - mpmath.loggamma(x + 1)
        value = gammas + x * mpmath.log(mu / (theta + mu)) + theta * mpmath.log(theta / (theta + mu))
        by_dispersion = mpmath.digamma(x + theta) - mpmath.digamma(theta) + mpmath.log(theta / (theta + mu))
        by_dispersion = theta * (by_dispersion + (mu - x) / (theta + mu))
        return [float(one) for one in (value, theta * (x - mu) / (theta + mu), by_dispersion)]


def grid():
    """log μ, log θ and x in single precision, each of shape (1, entries)."""
    every = np.array(list(itertools.product(np.log(RATES), np.log(DISPERSIONS), COUNTS)))
    return (torch.tensor(column, dtype=torch.float32)[None] for column in every.T)


@pytest.fixture(params=["places", "everywhere"])
def anywhere(request, monkeypatch):
    """Both ways to compute: the float64 of what is not 0 alone, or of all entries."""
    if request.param == "everywhere":
        monkeypatch.setattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)


@pytest.mark.usefixtures("anywhere")
def test_values_and_slopes_are_those_of_mpmath():
    log_rate, log_dispersion, x = grid()
    expected = np.array([exact(*map(float, one)) for one in zip(log_rate[0], log_dispersion[0], x[0], strict=True)])
    log_rate.requires_grad_(), log_dispersion.requires_grad_()
    values = nb_entries(log_rate, log_dispersion, x)
    found = values, *torch.autograd.grad(values.sum(), (log_rate, log_dispersion))
    for got, wanted in zip(found, expected.T, strict=True):
        assert got.dtype == torch.float32
        np.testing.assert_allclose(got[0].detach().double(), wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 3)])
def test_slopes_are_finite_differences(shape):
    """Of one log θ for each feature, row or draw; twice."""
    log_rate = torch.randn(2, 4, 3, dtype=torch.float64).requires_grad_()
    log_dispersion = torch.randn(shape, dtype=torch.float64).requires_grad_()
    x = torch.tensor([[0.0, 3.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 7.0], [5000.0, 0.0, 0.0]]).double()
    given = log_rate, log_dispersion
    assert torch.autograd.gradcheck(lambda *both: nb_entries(*both, x), given, rtol=1e-5)
    assert torch.autograd.gradgradcheck(lambda *both: nb_entries(*both, x), given, rtol=1e-5, fast_mode=len(shape) > 1)


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 3)])
@pytest.mark.parametrize("grad", [False, True])
def test_vmap_computes_what_each_computes_alone(shape, grad):
    log_rate, log_dispersion = torch.randn(5, 2, 4, 3), torch.randn(5, *shape)
    x = torch.poisson(torch.full((5, 4, 3), 1.0))
    leaves = log_rate.requires_grad_(), log_dispersion.requires_grad_()
    with torch.set_grad_enabled(grad):
        found = torch.func.vmap(nb_entries)(*leaves, x)
        expected = torch.stack([nb_entries(*one) for one in zip(*leaves, x, strict=True)])
    torch.testing.assert_close(found, expected)
    if grad:
        weights = torch.randn_like(found)
        slopes = (torch.autograd.grad((weights * of).sum(), leaves) for of in (found, expected))
        torch.testing.assert_close(*slopes)


def test_any_order_in_memory_and_no_rows_at_all():
    log_rate, x = torch.randn(3, 4), torch.poisson(torch.full((3, 4), 1.0))
    log_dispersion = torch.randn(3)
    across = nb_entries(log_rate.T.requires_grad_(), log_dispersion, x.T)
    torch.testing.assert_close(across, nb_entries(log_rate.T.contiguous(), log_dispersion, x.T.contiguous()))
    nothing = nb_entries(log_rate[:0].requires_grad_(), torch.randn(4), x[:0])
    nothing.sum().backward()
    assert nothing.shape == (0, 4)


def test_gradients_inside_of_vmap():
    log_rate, log_dispersion = torch.randn(5, 4, 3), torch.randn(5, 3)
    x = torch.poisson(torch.full((5, 4, 3), 1.0))
    slope = torch.func.grad(lambda *one: nb_entries(*one).sum(), argnums=(0, 1))
    found = torch.func.vmap(slope)(log_rate, log_dispersion, x)
    each = [slope(*one) for one in zip(log_rate, log_dispersion, x, strict=True)]
    torch.testing.assert_close(found, tuple(map(torch.stack, zip(*each, strict=True))))


def test_other_numbers_than_counts_are_scored_alike():
    """As in a loop of one's own; and a count larger than all that are tabulated changes no other."""
    log_rate, log_dispersion = torch.randn(1, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    theta = log_dispersion.exp()
    for x in (torch.tensor([[0.0, 0.5, 2.5]]), torch.tensor([[3.0, 7.0, 1e5]])):
        found = nb_entries(log_rate, log_dispersion, x.double())
        negative = torch.distributions.NegativeBinomial(theta, logits=log_rate - log_dispersion, validate_args=False)
        torch.testing.assert_close(found, negative.log_prob(x.double()))


def test_a_traced_graph_computes_the_same():
    """For other zeros than those of the example."""
    log_rate, log_dispersion, x = torch.randn(4, 3), torch.randn(3), torch.poisson(torch.full((4, 3), 1.0))
    traced = make_fx(nb_entries)(log_rate, log_dispersion, torch.zeros(4, 3))
    torch.testing.assert_close(traced(log_rate, log_dispersion, x), nb_entries(log_rate, log_dispersion, x))


# --- shares, and dispersions of every kind ----------------------------------------------------------------------------

ROWS, FEATURES = 6, 4
CONTEXT = torch.tensor([[0.3, 1, 0], [-1, 0, 1], [0, 1, 0], [2, 0, 1], [0, 0.5, 0.5], [1, 0, 1]]).double()


def made(name="nb", total=False, **settings):
    layout = Layout(FEATURES, covariates=3, size=True, total=total, batch=(1, 2))
    likelihood = LIKELIHOODS[name].make(layout, Config(likelihood=name, **settings)).double()
    with torch.no_grad():
        likelihood.log_dispersion.normal_()
    x = torch.poisson(torch.full((ROWS, FEATURES), 2.0)).double()
    return likelihood, torch.randn(2, ROWS, likelihood.outputs).double(), Batch(x, context=CONTEXT, size=x.sum(1) + 1)


def density(x, mean, theta):
    return torch.from_numpy(stats.nbinom.logpmf(x, theta, theta / (theta + mean)))


@pytest.mark.parametrize("dispersion", ["gene", "gene-batch", "gene-cell"])
@pytest.mark.parametrize("total", [False, True])
def test_densities_are_those_of_scipy(dispersion, total):
    likelihood, outputs, batch = made(total=total, dispersion=dispersion)
    own = likelihood.log_dispersion.detach()
    rates, *factors = outputs.split(FEATURES, -1)
    log_theta = {
        "gene": lambda: own,
        "gene-batch": lambda: CONTEXT[:, 1:2] * own[0] + CONTEXT[:, 2:] * own[1],
        "gene-cell": lambda: own + factors[0],
    }[dispersion]()
    mean = batch.size[:, None] * (rates.exp() / rates.exp().sum(-1, keepdim=True) if total else rates.exp())
    expected = density(batch.x, mean, log_theta.exp())
    torch.testing.assert_close(likelihood.entries(outputs, batch).detach(), expected)
    torch.testing.assert_close(likelihood.mean(outputs, batch), mean)


@pytest.mark.parametrize("name", ["nb", "zinb"])
@pytest.mark.parametrize("dispersion", ["gene", "gene-batch", "gene-cell"])
def test_half_precision_is_for_networks(name, dispersion):
    likelihood, outputs, batch = made(name, dispersion=dispersion)
    likelihood, outputs, batch = likelihood.float(), outputs.float(), batch.map(torch.Tensor.float)
    expected = likelihood.log_prob(outputs, batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(likelihood.log_prob(outputs, batch), expected)


def test_batches_must_be_known():
    with pytest.raises(CurvaeError, match='`dispersion="gene-batch"` needs to know the batch of every row'):
        LIKELIHOODS["nb"].make(Layout(3), Config(likelihood="nb", dispersion="gene-batch"))


@pytest.mark.parametrize("dispersion", ["gene", "gene-batch", "gene-cell"])
def test_draws_have_mean_and_variance(dispersion):
    likelihood, outputs, _ = made(total=True, dispersion=dispersion)
    likelihood.unit.fill_(40.0)
    outputs, count = outputs[0, 0], 40_000
    draws = likelihood.sample(outputs.expand(count, -1), None, torch.Generator().manual_seed(0))
    mean = 40 * outputs[:FEATURES].softmax(-1)
    log_theta = likelihood.log_dispersion.detach()
    if dispersion == "gene-batch":
        log_theta = log_theta.mean(0)  # of nobody's batch
    elif dispersion == "gene-cell":
        log_theta = log_theta + outputs[FEATURES:]
    assert ((draws.mean(0) / mean - 1).abs() < 0.05).all()
    assert ((draws.var(0) / (mean + mean**2 / log_theta.exp()) - 1).abs() < 0.2).all()


# --- starts -----------------------------------------------------------------------------------------------------------


def counts(rows, theta, random, depth=1000.0):
    """Counts of one kind of cell, with dispersions of every gene; sizes."""
    share = random.dirichlet(np.full(theta.shape[-1], 2.0))
    size = random.gamma(4.0, depth / 4.0, rows)
    mean = size[:, None] * share
    return random.poisson(mean * random.gamma(theta, 1 / theta, mean.shape)).astype(float), size


def test_starts_on_disk_are_those_in_memory(tmp_path):
    x = np.random.default_rng(0).negative_binomial(2, 0.1, (12_000, 30)).astype(np.float64)
    np.save(tmp_path / "x.npy", x)
    held, _ = load(tmp_path / "x.npy", memory="1MB", cache=tmp_path / "cache")
    one, other = NegativeBinomial(30), NegativeBinomial(30)
    one.prepare(x)
    other.prepare(held.arrays.take(slice(None)).x)
    assert held.arrays.on_disk
    torch.testing.assert_close(other.log_dispersion, one.log_dispersion)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("gaps", [False, True])
def test_dispersions_start_at_moments(form, gaps):
    random = np.random.default_rng(0)
    theta = random.uniform(0.5, 5.0, 60)
    x, size = counts(6000, theta, random)
    x[:, 7] = 0.0
    if gaps:
        x[random.random(x.shape) < 0.2] = np.nan
    likelihood = NegativeBinomial(60)
    likelihood.prepare(form(x), size, None)
    assert float(likelihood.unit) == pytest.approx(np.median(size))
    found = likelihood.log_dispersion.detach().exp().numpy()
    assert np.isfinite(found).all()
    assert np.median(np.abs(np.delete(found / (3 * theta), 7) - 1)) < 0.1
    plain = NegativeBinomial(60)
    plain.prepare(form(random.poisson(3.0, (500, 60)).astype(float)))
    assert plain.unit == 1 and (plain.log_dispersion > 2).all()


def test_every_batch_starts_at_its_own_moments():
    random = np.random.default_rng(0)
    theta, batch = np.array([[0.5], [3.0], [1.0]]) * np.ones(40), random.integers(2, size=4000)
    batch[:3] = 2  # too few rows for an estimate
    x, size = counts(4000, theta[batch], random)
    x[:3] = 0.0
    likelihood = NegativeBinomial(40, dispersion="gene-batch", batch=(1, 3))
    likelihood.prepare(x, size, np.concatenate([np.zeros((4000, 1)), np.eye(3)[batch]], 1))
    found = likelihood.log_dispersion.detach().exp().numpy()
    assert np.median(np.abs(found[:2] / (3 * theta[:2]) - 1)) < 0.15
    assert ((found[2] > found[0].min()) & (found[2] < found[1].max())).all()


def test_genes_and_batches_without_a_count_are_no_trouble():
    random = np.random.default_rng(0)
    x = random.poisson(1.0, (60, 5)).astype(float)
    x[:, 2] = 0.0
    x[:30, 3] = 0.0
    batch = np.eye(2)[np.arange(60) // 30]
    data = Arrays(x, context=batch, size=x.sum(1) + 1.0, total=True, batch=(0, 2))
    for name, dispersion in (("nb", "gene-batch"), ("zinb", "gene-cell")):
        config = Config(likelihood=name, dispersion=dispersion, hidden=(8,), epochs=3, batch_size=16)
        fitted = fit(config, data)
        assert fitted.failure is None and np.isfinite([one["elbo"] for one in fitted.history]).all()
        drawn = fitted.sample(7, batch[:1])
        assert (drawn == drawn.round()).all() and (drawn >= 0).all() and drawn.any()


@pytest.mark.slow
def test_dispersions_of_simulated_cells_are_found():
    random = np.random.default_rng(0)
    theta = random.uniform(0.5, 8.0, 50)
    share = random.dirichlet(np.full(50, 2.0), 3)[random.integers(3, size=2500)]
    size = random.gamma(4.0, 500.0, 2500)
    mean = size[:, None] * share
    x = random.poisson(mean * random.gamma(theta, 1 / theta, mean.shape)).astype(float)
    config = Config(likelihood="nb", hidden=(32,), neighbours="off", steps=200, learning_rate=1e-2)
    fitted = fit(config, Arrays(x, size=x.sum(1), total=True))
    found = fitted.model.likelihood.log_dispersion.detach().exp().numpy()
    assert np.median(np.abs(found / theta - 1)) < 0.2
    moments = NegativeBinomial(50)
    moments.prepare(x, x.sum(1))
    assert np.median(np.abs(moments.log_dispersion.detach().exp().numpy() / theta - 1)) > 0.3


# Counts of which some are lost.


def exact_with_dropouts(n, logit, x):
    """log p(x) and its derivatives by n and by the logit, to 50 digits; n is the log-density without dropouts."""
    with mpmath.workdps(50):
        p, lost = mpmath.exp(mpmath.mpf(n)), 1 / (1 + mpmath.exp(-mpmath.mpf(logit)))
        whole = (1 - lost) * p + (lost if x == 0 else 0)
        by_logit = lost * (1 - lost) * ((1 if x == 0 else 0) - p) / whole
        return [float(one) for one in (mpmath.log(whole), (1 - lost) * p / whole, by_logit)]


def test_values_and_slopes_with_dropouts_are_those_of_mpmath():
    every = itertools.product([0.0, -1e-6, -0.1, -3.0, -40.0, -1e3, -7e5], [-60.0, -9, -1, 0, 0.5, 12, 30], [0, 2])
    n, logits, x = (torch.tensor(column, dtype=torch.float32)[None] for column in zip(*every, strict=True))
    expected = np.array([exact_with_dropouts(*map(float, one)) for one in zip(n[0], logits[0], x[0], strict=True)])
    n.requires_grad_(), logits.requires_grad_()
    values = _ZeroInflatedEntries.call(n, logits, x)
    found = values, *torch.autograd.grad(values.sum(), (n, logits))
    for got, wanted in zip(found, expected.T, strict=True):
        np.testing.assert_allclose(got[0].detach().double(), wanted, rtol=1e-6, atol=1e-6)


def test_slopes_with_dropouts_are_finite_differences():
    likelihood = ZeroInflated(3, dispersion="gene-cell").double()
    outputs = torch.randn(2, 4, 9).double().requires_grad_()
    x = torch.tensor([[0.0, 3.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 7.0], [50.0, 0.0, 0.0]]).double()
    assert torch.autograd.gradcheck(lambda given: likelihood.log_prob(given, Batch(x)), (outputs,))


def test_draws_are_lost_as_often_as_is_said():
    likelihood = ZeroInflated(2, total=True)
    likelihood.unit.fill_(1e4)
    with torch.no_grad():
        likelihood.log_dispersion.fill_(5.0)
    outputs = torch.tensor([0.0, 0.0, -1.0, 1.0]).expand(20_000, -1)
    draws = likelihood.sample(outputs, generator=torch.Generator().manual_seed(0))
    lost = torch.tensor([-1.0, 1.0]).sigmoid()
    torch.testing.assert_close((draws == 0).float().mean(0), lost, rtol=0, atol=0.02)
    torch.testing.assert_close(likelihood.mean(outputs)[0], 5e3 * (1 - lost))


@pytest.mark.slow
def test_dropouts_are_worth_telling_apart():
    """Counts of which a third is lost are more probable with inflated zeros, and others not."""
    random = np.random.default_rng(0)
    share = random.dirichlet(np.full(25, 2.0), 2)[random.integers(2, size=500)]
    whole = random.poisson(400 * share * random.gamma(5.0, 1 / 5.0, share.shape)).astype(float)
    gained = {}
    for name, x in (("lost", whole * (random.random(whole.shape) > 0.3)), ("whole", whole)):
        data, found = Arrays(x, size=x.sum(1), total=True), []
        for likelihood in ("nb", "zinb"):
            config = Config(likelihood=likelihood, hidden=(16,), neighbours="off", dropout=0.0)
            fitted = fit(replace(config, steps=40, batch_size=64, learning_rate=0.02), data)
            found.append(likelihoods(fitted, data.take(fitted.split.validation), samples=20).mean)
        gained[name] = found[1] - found[0]
    assert gained["lost"] > 3.0
    assert abs(gained["whole"]) < 2.0


def test_layouts_say_what_there_is():
    layout = Layout(3, size=True, total=True, batch=(0, 2), covariates=2)
    made = ZeroInflated.of(layout, Config(likelihood="zinb", dispersion="gene-batch"))
    assert (made.outputs, made.total, made.log_dispersion.shape) == (6, True, (2, 3))


@pytest.mark.parametrize("shape", [(7,), (5, 7), (9, 5, 7)], ids=["gene", "batch", "cell"])
def test_draws_in_parts_are_those_of_all(shape, monkeypatch):
    random = torch.Generator().manual_seed(0)
    log_rate, log_dispersion = (torch.randn(shape, generator=random) for shape in ((9, 5, 7), shape))
    x = torch.poisson(2 * torch.rand(5, 7, generator=random), generator=random)
    whole = nb_entries(log_rate.requires_grad_(), log_dispersion, x)
    monkeypatch.setattr(negative_binomial, "_TOGETHER", 70)  # two draws
    with torch.no_grad():
        assert torch.equal(nb_entries(log_rate, log_dispersion, x), whole)
