"""Training one model: repeatable, stopped in time, honest about its result; weights, products and scaling."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import import_module
from itertools import product
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import sparse

from curvae import Lorentz, PoincareBall, PoincareVAE
from curvae.data import Arrays
from curvae.errors import CurvaeError
from curvae.maps.embedding import Embedding, PlacedFactor
from curvae.models import Batch, Layout, Terms
from curvae.models.likelihoods import choose_likelihood
from curvae.training import Config, Rows, Scaling, Split, build, engine, fit, fit_many, random_split, stacks
from curvae.training.engine import losses
from curvae.training.fitted import embed, likelihoods
from curvae.training.fitting import plan_rows
from trainings import (
    SMALL as PRODUCT_SMALL,
    assert_same,
    interrupted,
    rows as product_rows,
    rows as weighted_rows,
    state,
)

SMALL = Config(
    hidden=(8,),
    epochs=4,
    batch_size=16,
    cooldown=0.0,
    noise_rate=1.0,
    weight_decay=0.0,
    patience=None,
    neighbours="off",
)


def rows(n=40, columns=3, seed=0):
    """Points around a line, so that there is something to learn."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n, 1)) * np.arange(1, columns + 1) + 0.3 * random.normal(size=(n, columns))


def weights(fitted):
    return torch.cat([t.flatten() for t in fitted.model.state_dict().values()])


def same(a, b):
    return torch.equal(weights(a), weights(b))


# --- repeatable -----------------------------------------------------------------------------------------------------


def test_same_seed_same_weights():
    a, b = fit(SMALL, rows()), fit(SMALL, rows())
    assert same(a, b)
    strip = [[{k: v for k, v in record.items() if k != "seconds"} for record in f.history] for f in (a, b)]
    assert strip[0] == strip[1] and [record["epoch"] for record in strip[0]] == [1, 2, 3, 4]
    assert not same(a, fit(replace(SMALL, seed=1), rows()))


def test_training_leaves_the_global_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    fit(SMALL, rows())
    assert torch.equal(torch.rand(1), expected)
    # And does not listen to it.
    torch.manual_seed(4)
    a = fit(SMALL, rows())
    torch.manual_seed(5)
    assert same(a, fit(SMALL, rows()))


def test_what_a_seed_decides():
    x = rows()
    assert not same(fit(SMALL, x), fit(replace(SMALL, epochs=5), x))
    # Epochs come from (seed, epoch): the first four of five are the four.
    seen = []
    fit(replace(SMALL, epochs=5), x, progress=lambda record, epochs: seen.append((record["elbo"], epochs)))
    assert [(record["elbo"], 5) for record in fit(SMALL, x).history] == seen[:4]


def test_validation_has_the_same_noise_in_every_epoch():
    # A learning rate that changes no weight: what differs between epochs is noise.
    history = fit(replace(SMALL, learning_rate=1e-30), rows()).history
    assert len({record["validation_elbo"] for record in history}) == 1
    assert len({record["elbo"] for record in history}) == 4


def test_training_improves():
    history = fit(replace(SMALL, epochs=25, learning_rate=0.05, batch_size=40), rows()).history
    assert history[-1]["elbo"] > history[0]["elbo"] + 0.5
    assert history[-1]["validation_elbo"] > history[0]["validation_elbo"] + 0.1
    for record in history:
        assert record["elbo"] == pytest.approx(record["reconstruction"] - record["kl"])


@pytest.mark.parametrize(
    ("decoder", "posterior", "curvature"),
    list(product(("gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius"), ("riemannian", "wrapped"), (0.0, 1.3))),
)
def test_every_combination_trains(decoder, posterior, curvature):
    config = replace(SMALL, decoder=decoder, posterior=posterior, curvature=curvature, dim=3, epochs=1)
    found = fit(config, rows())
    assert np.isfinite(list(found.history[-1].values())).all()
    assert np.isfinite(embed(found, rows()).tangent).all()


# --- objectives -----------------------------------------------------------------------------------------------------


def test_beta_weighs_the_divergence():
    config = replace(SMALL, epochs=40, learning_rate=0.1, batch_size=40)
    free, held = (fit(replace(config, beta=beta), rows()).history[-1] for beta in (0.1, 10.0))
    assert held["kl"] < 0.3 < free["kl"] and held["reconstruction"] < free["reconstruction"]


def test_objectives_and_numbers_of_draws_differ_and_repeat():
    x = rows()
    kinds = [replace(SMALL, objective=o, samples=k) for o, k in (("elbo", 1), ("elbo", 5), ("iwae", 5))]
    found = [fit(config, x) for config in kinds]
    assert all(same(f, fit(config, x)) for f, config in zip(found, kinds, strict=True))
    assert not same(found[0], found[1]) and not same(found[1], found[2])


def test_losses_by_hand():
    reconstruction, kl = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    terms, iwae = Terms(reconstruction, kl), Config(objective="iwae", samples=4)
    bound = torch.log((reconstruction - kl).exp().mean(1)).mean(1)
    torch.testing.assert_close(losses(terms, iwae, 1.0), -bound)
    expected = -(reconstruction - 3 * kl).mean((1, 2))
    torch.testing.assert_close(losses(terms, Config(samples=4), 3.0), expected)
    torch.testing.assert_close(losses(terms, Config(samples=4), torch.full((3, 1, 1), 3.0)), expected)
    # What fills up a batch does not count, and rows count by their weight.
    kept, weight = torch.tensor([1.0] * 5 + [0.0]), torch.rand(6, dtype=torch.float64)
    five = losses(Terms(reconstruction[..., :5], kl[..., :5]), iwae, 1.0)
    torch.testing.assert_close(losses(terms, iwae, 1.0, kept=kept), five)
    by_row = torch.log((reconstruction - kl).exp().mean(1))
    torch.testing.assert_close(losses(terms, iwae, 1.0, weight), -(by_row * weight).sum(1) / 6)
    # One draw: the bound is the ELBO.
    single = Terms(reconstruction[:, :1], kl[:, :1])
    torch.testing.assert_close(losses(single, iwae, 1.0), losses(single, Config(), 1.0))


# --- early stopping -------------------------------------------------------------------------------------------------


def test_early_stopping_keeps_the_best_weights():
    x = rows(30)
    config = replace(SMALL, epochs=100, learning_rate=0.1, validation=0.3, patience=4)
    stopped = fit(config, x)
    best = max(stopped.history, key=lambda record: record["validation_elbo"])
    assert len(stopped.history) == best["epoch"] + 4 < 100 and best["epoch"] > 1
    assert stopped.last is best
    assert same(stopped, fit(replace(config, patience=None, epochs=best["epoch"]), x))


def test_early_stopping_that_runs_to_the_end_keeps_the_best_weights_too():
    x = rows(30)
    config = replace(SMALL, epochs=12, learning_rate=0.1, validation=0.3, patience=50)
    found = fit(config, x)
    assert len(found.history) == 12 and found.last["epoch"] < 12
    assert same(found, fit(replace(config, patience=None, epochs=found.last["epoch"]), x))


def test_early_stopping_without_validation_rows_is_refused():
    with pytest.raises(CurvaeError, match="share of 0.1 of 4 rows holds none"):
        fit(replace(SMALL, patience=2), rows(4))


# --- losses that are no numbers -------------------------------------------------------------------------------------


def test_extreme_values_stop_the_training():
    x = rows()
    x[3] = 1e38
    pattern = r"the loss became (inf|nan) at step \d+ \(epoch 1\): .*no checkpoint.*extreme values"
    with pytest.raises(CurvaeError, match=pattern) as caught:
        fit(replace(SMALL, standardise=False, validation=0), x)
    assert "\n" not in str(caught.value)


def test_a_learning_rate_beyond_reason_stops_the_training():
    for validation in (0.0, 0.2):
        with pytest.raises(CurvaeError, match="lower the learning rate"):
            fit(replace(SMALL, learning_rate=1e30, validation=validation), rows())


@pytest.mark.parametrize("how", ["loss", "gradient"])
def test_the_last_good_checkpoint_stays_and_leads_on(tmp_path, monkeypatch, how):
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
    monkeypatch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)
    # Validation rows would notice bad weights by themselves.
    x, config = rows(), replace(SMALL, epochs=6, validation=0.1 if how == "loss" else 0.0)
    whole = fit(config, x)
    per_epoch = -(-36 // config.batch_size)  # steps
    bad_step, calls = 3 * per_epoch, 0  # the last of the third epoch

    def spoilt(terms, *rest):
        nonlocal calls
        calls += 1
        loss = losses(terms, *rest)
        if calls < bad_step:
            return loss
        # The root of 0 is a number, its gradient is none.
        return loss * np.nan if how == "loss" else loss + (terms.kl.sum() * 0).sqrt()

    seen = []
    with mock.patch.object(engine, "losses", spoilt), pytest.raises(CurvaeError) as caught:
        fit(config, x, folder=tmp_path, progress=lambda *_: seen.append((tmp_path / STATE).read_bytes()))
    message = str(caught.value)
    assert f"at step {bad_step} (epoch 3)" in message
    assert "checkpoint/state.safetensors" in message and "parameter" in message and "is not finite" in message
    # Two epochs were good, and theirs is the checkpoint.
    assert len(seen) == 2 and (tmp_path / STATE).read_bytes() == seen[-1]
    assert same(fit(config, x, folder=tmp_path, resume=True), whole)


STATE = "checkpoint/state.safetensors"


def test_test_rows_take_no_part():
    x = rows()
    split = random_split(40, 0.1, 0.2)
    a = fit(SMALL, x, split=split)
    x[split.test] = 1e6
    b = fit(SMALL, x, split=split)
    assert same(a, b) and np.array_equal(a.scaling.scale, b.scaling.scale)


# --- scaling and units ----------------------------------------------------------------------------------------------


def test_scaling_to_mean_0_and_variance_1():
    x = rows(100) * [1.0, 1e6, 1e-6] + [0.0, 1e9, 3.0]
    scaling = Scaling.standard(x)
    scaled = Rows(x, scaling, dtype=torch.float64).batch(torch.arange(100)).x
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(0, correction=0), 1, rtol=1e-6)
    np.testing.assert_allclose(scaling.invert(scaled.numpy()), x, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -7e12, 1e-300])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_constant_columns_are_only_centred(value, form):
    x = np.column_stack([np.full(1001, value), np.arange(1001.0)])
    scaling = Scaling.standard(form(x))
    assert scaling.scale[0] == 1.0
    np.testing.assert_allclose(scaling.shift[0], value, rtol=1e-12)
    scaled = Rows(form(x), scaling, dtype=torch.float64).batch(torch.arange(1001)).x
    np.testing.assert_allclose(scaled[:, 0], 0, atol=1e-12 * max(1, abs(value)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_rows_equal_dense_ones(dtype):
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 8)) * (random.random((300, 8)) < 0.3)
    x[:, 0] = 1e5 + random.normal(size=300)  # E[x²] − E[x]² would cancel
    x[:, 1] = 0.1
    x = x.astype(dtype)
    dense, thin = Scaling.standard(x), Scaling.standard(sparse.csr_array(x))
    np.testing.assert_allclose(thin.shift, dense.shift, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(thin.scale, dense.scale, rtol=1e-6)
    index = torch.tensor([5, 0, 299, 5])
    a, b = (Rows(form, dense).batch(index).x for form in (x, sparse.csr_matrix(x)))
    torch.testing.assert_close(a, b)
    config = replace(SMALL, epochs=1, batch_size=64)
    assert same(fit(config, x, scaling=dense), fit(config, sparse.csr_array(x), scaling=dense))


def test_entries_given_twice_count_as_their_sum():
    x = sparse.csr_array((np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    scaling = Scaling.standard(x)
    np.testing.assert_allclose(scaling.shift, [1.5, 2.0])
    np.testing.assert_allclose(scaling.scale, [1.5, 2.0])
    assert x.nnz == 3


def test_rows_in_blocks():
    x = rows(9000, 2)
    scaled = Rows(x, Scaling.standard(x)).batch(torch.arange(9000)).x
    np.testing.assert_allclose(scaled, (x - x.mean(0)) / x.std(0), atol=1e-5)


# --- choices --------------------------------------------------------------------------------------------------------


def test_the_likelihood_follows_from_the_data():
    bits = np.array([[0.0, 1.0], [1.0, 1.0]])
    for form in (np.asarray, sparse.csr_array):
        assert choose_likelihood(form(bits), "auto") == ("bernoulli", "all values are 0 or 1")
        assert choose_likelihood(form(bits / 2), "auto")[0] == "gaussian"
        assert choose_likelihood(form(bits / 2), "bernoulli") == ("bernoulli", "as asked")
        with pytest.raises(CurvaeError, match="from .* to 2"):
            choose_likelihood(form(bits * 2), "bernoulli")
        assert choose_likelihood(form(np.eye(4)), "categorical", Layout(4, (4,)))[0] == "categorical"
        with pytest.raises(CurvaeError, match="one-hot"):
            choose_likelihood(form(np.eye(4)), "categorical", Layout(4, (2, 2)))
    assert fit(SMALL, bits.repeat(9, 0)).config.likelihood == "bernoulli"


# --- weights of rows -------------------------------------------------------------------------------------------------


X = weighted_rows(40)


WHOLE = Config(hidden=(8,), epochs=3, batch_size=1000, cooldown=0.0, patience=None, likelihood="unit_gaussian", seed=3)


@torch.no_grad()
@pytest.mark.parametrize("objective", ["elbo", "iwae"])
def test_the_loss_is_a_weighted_mean(objective):
    config = replace(WHOLE, objective=objective, samples=3, beta=0.7 if objective == "elbo" else 1.0)
    model, weight = build(config, 3), np.array([2.0, 0.0, 1.0, 1.0])
    noise = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    terms = model.terms(Batch(torch.from_numpy(X[:4]).float()), noise)
    a, b = (term.detach().double().numpy() for term in terms)
    each = (0.7 * b - a).mean(0) if objective == "elbo" else -np.log(np.exp(a - b).mean(0))
    found = losses(terms, config, config.beta, torch.from_numpy(weight))
    assert float(found) == pytest.approx((weight * each).sum() / weight.sum(), rel=1e-5)
    # Row 0 twice and row 1 not at all.
    twice = [0, 0, 2, 3]
    found = losses(model.terms(Batch(torch.from_numpy(X[twice]).float()), noise[:, twice]), config, config.beta)
    assert float(found) == pytest.approx((weight * each).sum() / weight.sum(), rel=1e-5)
    # What fills up a batch does not count, whatever its weight.
    kept = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    found = losses(terms, config, config.beta, torch.from_numpy(weight), kept=kept)
    assert float(found) == pytest.approx((weight * each)[:3].sum() / 3, rel=1e-5)


def test_only_ratios_matter_and_equal_weights_change_nothing():
    def trained(weight):
        return state(fit(WHOLE, Arrays(X, weight=weight), device="cpu"))

    plain = state(fit(WHOLE, X, device="cpu"))
    for weight in (np.ones(40), np.full(40, 5.0)):
        for name, t in trained(weight)[0].items():
            torch.testing.assert_close(t, plain[0][name], rtol=1e-4, atol=1e-5)
    uneven = np.linspace(0.0, 2.0, 40)
    (one, figures), (other, same) = trained(uneven), trained(8.0 * uneven)
    assert all(torch.allclose(t, other[name], rtol=1e-4, atol=1e-5) for name, t in one.items())
    assert figures[-1]["elbo"] == pytest.approx(same[-1]["elbo"], rel=1e-4)
    assert any(not torch.allclose(t, plain[0][name], rtol=1e-3, atol=1e-4) for name, t in one.items())


@pytest.mark.parametrize("batch_size", [1000, 8])
def test_rows_without_weight_leave_no_trace(batch_size):
    """They share batches with others, but whatever their values are, the model is the same."""
    weight = np.where(np.arange(40) < 25, 1.0, 0.0)
    config, split = replace(WHOLE, batch_size=batch_size, standardise=False), Split(*map(np.arange, (40, 0, 0)))
    changed = np.where(weight[:, None] > 0, X, X + 1.5)
    # The decoder starts at the means of all rows, so these are the same.
    changed[-1] += (X - changed).sum(0)
    found = [state(fit(config, Arrays(x, weight=weight), split=split, device="cpu"))[0] for x in (X, changed)]
    for name, t in found[0].items():
        torch.testing.assert_close(t, found[1][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("wrong", [np.ones(3), np.full(40, -1.0), np.zeros(40), np.full(40, np.nan)])
def test_weights_that_are_none(wrong):
    with pytest.raises(CurvaeError, match="weight must be a number of at least 0 for every row"):
        fit(WHOLE, Arrays(X, weight=wrong))


def test_an_estimator_leaves_out_rows_of_weight_0():
    weight = np.where(np.arange(40) % 4 == 0, 0.0, 1.0)
    settings = {"hidden": (8,), "epochs": 3, "random_state": 0, "device": "cpu"}
    some = PoincareVAE(**settings).fit(X[weight > 0])
    all_rows = PoincareVAE(**settings).fit(X, sample_weight=weight)
    np.testing.assert_allclose(all_rows.transform(X), some.transform(X), rtol=1e-5, atol=1e-6)
    assert all_rows.embedding_.shape == (40, 2)
    np.testing.assert_allclose(
        PoincareVAE(**settings).fit_transform(X, sample_weight=weight), all_rows.transform(X), rtol=1e-9
    )
    with pytest.raises(CurvaeError, match="positive for at least 2 rows"):
        PoincareVAE(**settings).fit(X, sample_weight=np.eye(40)[0])


def test_heavy_rows_are_described_better():
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(size=(40, 4)), random.normal(size=(40, 4)) @ random.normal(size=(4, 4)) + 5.0])
    settings = {"hidden": (16,), "epochs": 15, "learning_rate": 0.01, "random_state": 0, "device": "cpu"}
    settings |= {"validation": 0.0, "neighbours": False}
    weights = np.where(np.arange(80) < 40, 20.0, 1.0)
    first, second = (PoincareVAE(**settings).fit(x, sample_weight=w) for w in (weights, weights[::-1].copy()))
    gain = first.score_samples(x) - second.score_samples(x)
    assert gain[:40].mean() > 0.5 and gain[40:].mean() < -0.5


# --- products of spaces ----------------------------------------------------------------------------------------------


PRODUCT = replace(PRODUCT_SMALL, space="h2:0.7,e1,h2:learn")


@pytest.fixture(scope="module")
def fitted():
    return fit(replace(PRODUCT, epochs=8), product_rows())


def assert_close(found, expected, tolerance):
    for (name, a), b in zip(found.model.state_dict().items(), expected.model.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=name)


# --- trainings ------------------------------------------------------------------------------------------------------


def test_records_name_the_numbers_of_every_factor(fitted):
    first, last = fitted.history[0], fitted.history[-1]
    assert {"c_1", "c_2", "c_3", "prior_scale_1", "prior_scale_2", "prior_scale_3"} <= set(first)
    assert first["c_1"] == last["c_1"] == pytest.approx(0.7) and first["c_2"] == last["c_2"] == 0
    assert last["c_3"] != first["c_3"] and last["c_3"] == pytest.approx(fitted.model.space.figures()[2].c)
    assert last["elbo"] > first["elbo"]


@pytest.mark.parametrize("posterior", ["wrapped", "riemannian"])
def test_a_stack_trains_each_model_as_if_alone(posterior):
    base = replace(PRODUCT, posterior=posterior)
    each = enumerate([(0.7, 1.0), (2.0, 0.8)])
    configs = [replace(base.with_curvature(c), seed=i, prior_scale=s) for i, (c, s) in each]
    many = fit_many([*configs, replace(PRODUCT_SMALL, space="h2,e1")], product_rows(), dtype=torch.float64)
    for config, found in zip(configs, many, strict=False):
        assert_close(found, fit(config, product_rows(), dtype=torch.float64), 1e-9)
    assert many[2].config.dim == 3 and many[2].failure is None


@pytest.mark.usefixtures("often")
def test_an_interrupted_training_goes_on_exactly(tmp_path):
    configs = [PRODUCT, replace(PRODUCT_SMALL, space="h2,e3")]
    whole = fit_many(configs, product_rows())
    for at in (1, 4):
        folder = tmp_path / str(at)
        interrupted(at, configs, product_rows(), folder=folder)
        for found, expected in zip(fit_many(configs, product_rows(), folder=folder, resume=True), whole, strict=True):
            assert_same(state(found), state(expected))


def test_likelihoods_and_reconstructions(fitted):
    x = product_rows()
    found, place = likelihoods(fitted, x, samples=50), embed(fitted, x)
    assert found.log_prob.shape == (40,) and np.isfinite(found.log_prob).all()
    again = fitted.reconstruct(place.space)
    assert again.shape == x.shape
    with torch.no_grad():
        outputs = fitted.model.decode(torch.from_numpy(place.space))
        expected = fitted.scaling.invert(fitted.model.likelihood.mean(outputs).double().numpy())
    np.testing.assert_allclose(again, expected, rtol=1e-6, atol=1e-6)


# --- embeddings -----------------------------------------------------------------------------------------------------


def test_where_rows_lie(fitted):
    """Charts and distances from those of the factors, in units of the prior scales."""
    place, model = embed(fitted, product_rows()), fitted.double().model
    with torch.no_grad():
        q = model.encode(fitted.double().rows(product_rows()).batch(torch.arange(40)))
    np.testing.assert_allclose(place.space, q.loc, rtol=1e-9, atol=1e-12)
    assert place.sigma.shape == (40, 3) and place.dim == 5
    assert [(f.name, f.dim, f.unit) for f in place.placed] == [("h1", 2, 1.0), ("e2", 1, 1.0), ("h3", 2, 1.0)]
    with pytest.raises(ValueError, match="a curvature for each factor"):
        _ = place.c
    manifolds = [Lorentz(f.dim, f.c) for f in place.placed]
    parts = torch.from_numpy(place.space).split([2, 1, 2], -1)
    each = [m.dist(p.unsqueeze(1), p) for m, p in zip(manifolds, parts, strict=True)]
    expected = torch.stack(each).square().sum(0).sqrt()
    np.testing.assert_allclose(place.distances(), expected, atol=1e-9)
    listed = np.array([[0, 3], [5, 2]])
    np.testing.assert_allclose(place.distances_of(listed), expected[listed[:, 0], listed[:, 1]], atol=1e-9)
    np.testing.assert_allclose(place.take([3, 4]).distances(place), expected[[3, 4]], atol=1e-9)
    logs = [m.logmap0(p) for m, p in zip(manifolds, parts, strict=True)]
    np.testing.assert_allclose(place.tangent, torch.cat(logs, -1), atol=1e-9)
    np.testing.assert_allclose(place.radius, torch.cat(logs, -1).norm(dim=-1), atol=1e-9)
    balls = [PoincareBall(f.dim, f.c).from_lorentz(p) for f, p in zip(place.placed, parts, strict=True)]
    np.testing.assert_allclose(place.ball, torch.cat(balls, -1), atol=1e-12)
    assert [part.placed[0].name for part in place.parts] == ["h1", "e2", "h3"]
    for part, own, c in zip(place.parts, parts, model.space.curvatures(), strict=True):
        np.testing.assert_array_equal(part.space, own)
        assert part.c == c.item() and part.sigma.shape == (40,)


def test_distances_are_in_units_of_the_prior_scales():
    factors = PlacedFactor("h1", 1, 0.5, 2.0), PlacedFactor("e2", 1, 0.0, 0.5)
    u = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
    space = np.column_stack([np.sinh(np.sqrt(0.5) * u[:, 0]) / np.sqrt(0.5), u[:, 1]])
    place = Embedding(space, np.ones((4, 2)), factors)
    np.testing.assert_allclose(place.distances()[0], [0, 0.5, 2.0, np.hypot(0.5, 2.0)], atol=1e-12)
    np.testing.assert_allclose(place.tangent, u / [2.0, 0.5], atol=1e-12)
    np.testing.assert_allclose(place.radius, place.distances()[0], atol=1e-12)
    wide = fit(replace(PRODUCT_SMALL, space="h2,e1", prior_scale=1.5, epochs=1), product_rows())
    assert [f.unit for f in embed(wide, product_rows()).placed] == [1.5, 1.5]


# What is chosen for models of rows.


@pytest.fixture
def bare(monkeypatch):
    """Without what fresh weights add to the places."""
    monkeypatch.setattr(import_module("curvae.training.fitted"), "_RANDOM", 0.0)


def some_rows(count=60, columns=5, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, columns)) @ generator.normal(size=(columns, columns)) + 3.0


def begun(config, data):
    """A fresh model, and the split of the rows."""
    problem, tasks = plan_rows([config], data)
    return problem.models(tasks)[0], tasks[0].split


def places(model, x):
    """log_0 of the centres, factor by factor."""
    with torch.no_grad():
        outputs = model.posterior.head(model._features(Batch.of(torch.as_tensor(x, dtype=model.dtype))))
    parts = model.space.split_outputs(outputs)
    return np.concatenate([f._log_centre(p).numpy() for f, p in zip(model.space, parts, strict=True)], -1)


def components(x, known):
    """Principal components of rows, by the singular vectors of the known ones, in units of the first."""
    mean = known.mean(0)
    _, _, axes = np.linalg.svd(known - mean, full_matrices=False)
    return (x - mean) @ axes.T / ((known - mean) @ axes[0]).std()


def up_to_signs(a, b):
    return a * np.sign((a * b).sum(0))


@pytest.mark.parametrize(
    ("settings", "scales"),
    [
        ({"hidden": (8,)}, [1.0, 1.0]),
        ({"hidden": (8, 6, 7), "prior_scale": 0.7}, [0.7, 0.7]),
        ({"hidden": (8,), "prior_scale": 0.7, "curvature": 0.0}, [0.7, 0.7]),
        ({"hidden": (9,), "space": "h2,e1", "prior_scale": 1.3}, [1.3] * 3),
        ({"hidden": (2, 8)}, [1.0]),  # room for one component
    ],
)
def test_rows_start_at_their_principal_components(bare, settings, scales):
    x = some_rows()
    config = Config(likelihood="unit_gaussian", standardise=False, init="pca", **settings)
    model, split = begun(config, x)
    found = places(model, x)
    expected = components(x, x[split.train])[:, : len(scales)] * scales
    np.testing.assert_allclose(up_to_signs(found[:, : len(scales)], expected), expected, atol=1e-5)
    np.testing.assert_array_equal(found[:, len(scales) :], 0.0)


def test_the_first_has_the_size_of_the_prior_in_many_dimensions(bare):
    model, split = begun(Config(dim=4, likelihood="unit_gaussian", init="pca"), some_rows())
    x = some_rows()[split.train]
    scaled = (x - some_rows().mean(0)) / some_rows().std(0)
    spread = places(model, scaled).std(0)
    assert spread[0] == pytest.approx(float(next(iter(model.space)).scale()), rel=1e-4)
    assert (np.diff(spread) < 0).all()


def test_places_do_not_depend_on_the_batch(bare):
    x, batch = some_rows(80), np.eye(2)[np.arange(80) % 2]
    shift = np.array([4.0, 0.0, -2.0, 0.0, 1.0])
    config = Config(likelihood="unit_gaussian", standardise=False, validation=0.0, init="pca")
    model, _ = begun(config, Arrays(x + batch @ np.stack([shift, -shift]), context=batch))
    moved = np.linalg.pinv(batch - 0.5) @ (x + batch @ np.stack([shift, -shift]))
    here, there = places(model, x), places(model, x + 7.0 * moved[0])
    np.testing.assert_allclose(here, there, atol=1e-4)
    assert here.std(0).min() > 0.1


def test_seeds_share_the_start_and_differ_a_little():
    x = some_rows()
    one, other = (
        places(begun(Config(likelihood="unit_gaussian", validation=0.0, init="pca", seed=seed), x)[0], x)
        for seed in (0, 1)
    )
    assert not np.array_equal(one, other)
    assert min(np.corrcoef(a, b)[0, 1] for a, b in zip(one.T, other.T, strict=True)) > 0.9


@pytest.mark.parametrize("x", [np.ones((20, 3)), np.arange(20.0)[:, None], np.eye(20)[:, :3]])
def test_few_and_constant_columns(x):
    fitted = fit(Config(likelihood="unit_gaussian", init="pca", epochs=2, hidden=(4,)), x)
    assert fitted.failure is None


def test_missing_values_and_counts():
    x = some_rows()
    x[::7, 2] = np.nan
    config = Config(init="pca", epochs=2, hidden=(6,))
    assert fit(config, Arrays(x, missing=True)).failure is None
    counts = np.random.default_rng(0).poisson(3.0, size=(40, 4))
    assert fit(Config(likelihood="poisson", init="pca", epochs=2, hidden=(6,)), np.float64(counts)).failure is None


def test_what_cannot_start_there_says_so():
    with pytest.raises(CurvaeError, match='`init="pca"` needs `network="mlp"`, not conv'):
        Config(init="pca", network="conv")


def test_the_centre_is_the_exponential_of_the_place(bare):
    x = some_rows()
    model, split = begun(Config(likelihood="unit_gaussian", standardise=False, init="pca"), x)
    with torch.no_grad():
        centre = model.encode(torch.as_tensor(x, dtype=model.dtype)).loc
    known = components(x, x[split.train])[:, :2]
    length = np.linalg.norm(known, axis=1, keepdims=True)
    expected = known * np.sinh(length) / length
    np.testing.assert_allclose(up_to_signs(centre.numpy(), expected), expected, rtol=1e-4, atol=1e-5)


# --- what is a matrix -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [float, int, bool])
def test_rows_of_an_identity_matrix_train(dtype):
    (found,) = fit_many([Config(epochs=1)], np.eye(30, dtype=dtype))
    (expected,) = fit_many([Config(epochs=1)], np.eye(30))
    assert found.history[0]["elbo"] == expected.history[0]["elbo"]


@pytest.mark.parametrize(
    ("data", "got"),
    [(np.eye(30)[0], r"shape \(30,\)"), ([[1.0, 2.0]], "a list"), (np.eye(4)[None], r"shape \(1, 4, 4\)")],
)
def test_data_that_are_no_matrix_are_refused(data, got):
    with pytest.raises(CurvaeError, match=f"data must be a matrix, .*, got {got}; give"):
        fit_many([Config(epochs=1)], [data] if isinstance(data, list) else data)
