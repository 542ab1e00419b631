"""What likelihoods of counts share: units, totals, and weights from before there were units."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from curvae.data import Arrays
from curvae.errors import CurvaeError
from curvae.models import LIKELIHOODS, Batch, Layout, NegativeBinomial, Poisson, Stack, ZeroInflated
from curvae.training import Config, build, fit
from curvae.training.fitted import restored_model
from curvae.training.fitting import plan_rows

COUNTED = pytest.mark.parametrize("name", ["poisson", "nb", "zinb"])


@COUNTED
def test_the_encoder_sees_counts_of_a_median_row(name):
    random = np.random.default_rng(0)
    size = random.uniform(500, 2000, 50)
    x = random.poisson(size[:, None] * random.dirichlet(np.ones(4))).astype(float)
    likelihood = fit(Config(likelihood=name, hidden=(4,), epochs=1), Arrays(x, size=size)).model.likelihood
    seen = likelihood.inputs(Batch(torch.tensor([[300.0, 0.0, 7.0, 1.0]]), size=torch.tensor([600.0])))
    train = plan_rows([Config(likelihood=name)], Arrays(x, size=size))[1][0].split.train
    unit = np.median(size[train])
    torch.testing.assert_close(seen, torch.tensor([[300.0, 0.0, 7.0, 1.0]]).mul(unit / 600).log1p().float())
    assert torch.equal(likelihood.inputs(Batch(torch.ones(1, 4))), torch.ones(1, 4).log1p())


def test_preparing_is_done_once_for_all_models(monkeypatch):
    made = []
    prepare = NegativeBinomial.prepare
    monkeypatch.setattr(NegativeBinomial, "prepare", lambda self, *rows: (made.append(self), prepare(self, *rows)))
    x = np.random.default_rng(0).negative_binomial(2, 0.1, (40, 3)).astype(float)
    configs = [Config(likelihood="nb", hidden=(4,), curvature=c) for c in (0.5, 1.0)]
    problem, tasks = plan_rows(configs, Arrays(x, size=x.sum(1), total=True))
    one, other = (model.likelihood for model in problem.models(tasks))
    assert len(made) == 1 and one.log_dispersion is not other.log_dispersion
    assert one.log_dispersion.abs().min() > 0 and torch.equal(one.log_dispersion, other.log_dispersion)
    assert one.unit == other.unit == float(np.median(x[tasks[0].split.train].sum(1)))


def test_a_stack_keeps_units_apart():
    models = [build(Config(likelihood="poisson", hidden=(4,), seed=seed), 3) for seed in range(2)]
    for model, unit in zip(models, (10.0, 1000.0), strict=True):
        model.likelihood.unit.fill_(unit)
    x, size, noise = torch.full((2, 5, 3), 4.0), torch.full((2, 5), 60.0), torch.randn(2, 1, 5, 2)
    expected = [model.terms(Batch(x[0], size=size[0]), noise[i]).kl for i, model in enumerate(models)]
    found = Stack(models).terms(Batch(x, size=size), noise)
    torch.testing.assert_close(found.kl, torch.stack(expected))


@COUNTED
def test_weights_without_a_unit_keep_their_scale(name):
    config = Config(likelihood=name, hidden=(4,))
    state = build(config, 3).state_dict()
    assert float(state.pop("likelihood.unit")) == 1.0

    def fresh():
        model = build(config, 3)
        model.likelihood.unit.fill_(7.0)
        return model

    tensors = {f"model.{key}": value for key, value in state.items()}
    assert restored_model(tensors, (3, 4, 2), fresh).likelihood.unit == 1


@pytest.mark.parametrize("kind", [NegativeBinomial, ZeroInflated])
def test_totals_are_shared_out(kind):
    likelihood = kind(3, total=True).double()
    share = torch.tensor([0.7, 0.3, 0.0]).double()
    outputs = likelihood.start(share)
    assert outputs.isfinite().all()
    counted = 1 - (outputs[3:].sigmoid() if kind is ZeroInflated else 0)
    mean = likelihood.mean(outputs[None], Batch(torch.ones(1, 3).double(), size=torch.tensor([200.0]).double()))
    torch.testing.assert_close(mean[0], 200 * share * counted, rtol=1e-6, atol=1e-5)
    likelihood.unit.fill_(50.0)
    torch.testing.assert_close(likelihood.mean(outputs), 50 * share * counted, rtol=1e-6, atol=1e-5)


@COUNTED
def test_means_grow_with_the_size(name):
    likelihood = LIKELIHOODS[name].make(Layout(3), Config(likelihood=name))
    outputs = torch.randn(2, likelihood.outputs)
    one, two = (Batch(torch.ones(2, 3), size=torch.full((2,), size)) for size in (1.0, 2.0))
    torch.testing.assert_close(likelihood.mean(outputs, two), 2 * likelihood.mean(outputs, one))
    assert isinstance(likelihood, Poisson | NegativeBinomial)


# --- unknown sizes ----------------------------------------------------------------------------------------------------


def integrated(name, x, shares, theta, lost, mean, scale):
    """Return log p(x) with log-normal sizes by the trapezium rule, of SciPy's densities."""
    logs = np.linspace(mean - 12 * scale, mean + 12 * scale, 2001)[:, None]
    rates = np.exp(logs) * shares
    if name == "poisson":
        entries = stats.poisson.logpmf(x, rates)
    else:
        entries = stats.nbinom.logpmf(x, theta, theta / (theta + rates))
    if name == "zinb":
        entries = np.where(x == 0, np.log(lost + (1 - lost) * np.exp(entries)), np.log1p(-lost) + entries)
    joint = entries.sum(1) + stats.norm.logpdf(logs[:, 0], mean, scale)
    return joint.max() + np.log(np.trapezoid(np.exp(joint - joint.max()), logs[:, 0]))


@pytest.mark.parametrize("batches", [0, 2])
@COUNTED
def test_unknown_sizes_are_integrated_out(name, batches):
    random = np.random.default_rng(0)
    totals = np.exp(random.normal(6.0, 0.5, 400))
    context = np.eye(2)[random.integers(0, 2, 400)]
    totals[context[:, 1] > 0] *= 4
    layout = Layout(60, size=True, total=True, covariates=batches, batch=(0, batches) if batches else ())
    config = Config(likelihood=name, learn_sizes=True)
    likelihood = LIKELIHOODS[name].make(layout, config).double()
    x = random.poisson(totals[:, None] * random.dirichlet(np.ones(60), 400)).astype(float)
    likelihood.prepare(x, totals, context if batches else None)

    shares = random.dirichlet(np.ones(60), 5)
    logits = random.normal(-1, 1, (5, 60))
    outputs = torch.tensor(np.hstack([np.log(shares), logits]) if name == "zinb" else np.log(shares))
    outputs = (outputs[None] + torch.zeros(2, 1, 1)).requires_grad_()
    rows = Batch(
        torch.tensor(x[:5]), size=torch.tensor(totals[:5]), context=torch.tensor(context[:5]) if batches else None
    )
    found = likelihood.log_prob(outputs, rows)
    theta = 1.0 if name == "poisson" else likelihood.log_dispersion.detach().exp().numpy()
    lost = 1 / (1 + np.exp(-logits))
    for row in range(5):
        kin = context[:, 1] == context[row, 1] if batches else np.ones(400, bool)
        mean, scale = np.log(totals[kin]).mean(), np.log(totals[kin]).std()
        expected = integrated(name, x[row], shares[row], theta, lost[row], mean, scale)
        np.testing.assert_allclose(found.detach()[:, row], expected, atol=0.02)
    assert found.shape == (2, 5)
    # Slopes by the outputs are those of differences, though the nodes of the quadrature do not move.
    (slope,) = torch.autograd.grad(found.sum(), outputs)
    with torch.no_grad():
        step = torch.zeros_like(outputs)
        step[0, :, 3] = 1e-4
        change = (likelihood.log_prob(outputs + step, rows) - likelihood.log_prob(outputs - step, rows))[0] / 2e-4
    torch.testing.assert_close(slope[0, :, 3], change, atol=0.05, rtol=0.02)


def test_sizes_settle_at_the_likeliest():
    likelihood = Poisson(3, None, True, ())
    likelihood.prepare(np.ones((50, 3)), np.exp(np.random.default_rng(0).normal(5.0, 2.0, 50)))
    outputs = torch.zeros(1, 2, 3)
    rows = Batch(torch.tensor([[900.0, 1000, 1100], [30, 40, 50]]), size=torch.tensor([2000.0, 200.0]))
    settled = likelihood.settle_sizes(outputs, rows).size
    # Under a wide prior the size of independent counts is their total, not the size given.
    torch.testing.assert_close(settled[0], torch.tensor([3000.0, 120.0]), rtol=0.03, atol=0)
    assert torch.equal(Poisson(3, None, True).settle_sizes(outputs, rows).size, rows.size)


def test_sizes_that_are_given_are_not_learned():
    x = np.random.default_rng(0).poisson(3.0, (40, 3)).astype(float)
    with pytest.raises(CurvaeError, match="`learn_sizes` needs rows whose sizes are the totals"):
        fit(Config(likelihood="nb", learn_sizes=True, epochs=1), Arrays(x, size=np.ones(40)))
