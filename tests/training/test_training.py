"""The training loop: repeatable, stopped in time, honest about its result; splits, scaling and units."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import sparse, stats

from curvae.errors import CurvaeError
from curvae.maps.embedding import Embedding
from curvae.models import Layout, Terms
from curvae.models.likelihoods import choose_likelihood
from curvae.settings import resolve_defaults
from curvae.training import Config, Rows, Scaling, engine, fit, random_split, stacks
from curvae.training.engine import losses
from curvae.training.evaluate import embed, health, likelihoods

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
    history = fit(replace(SMALL, epochs=50, learning_rate=0.05, batch_size=40), rows()).history
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
    config = replace(SMALL, epochs=80, learning_rate=0.05, batch_size=40)
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


# --- the health of a map --------------------------------------------------------------------------------------------


def fitted(dim=2, kl=3.0, prior_scale=1.0, **more):
    record = {"epoch": 1, "kl": kl, "prior_scale": prior_scale, "c": 1.0, **more}
    figures = [mock.Mock(prior_scale=prior_scale)]
    return mock.Mock(config=Config(dim=dim), history=[record], last=record, figures=figures)


def points(tangent, c=1.0):
    """Points at tangent vectors: their radius is the length."""
    radius = np.linalg.norm(tangent, axis=1, keepdims=True)
    space = np.sinh(np.sqrt(c) * radius) / np.sqrt(c) * tangent / radius if c else tangent
    return Embedding(space, np.ones(len(tangent)), c)


def test_a_good_map_has_no_warnings():
    assert health(fitted(), points(np.random.default_rng(0).normal(size=(50, 2)))) == []


def test_an_empty_map():
    spread = points(np.random.default_rng(0).normal(size=(50, 2)))
    (warning,) = health(fitted(kl=0.09), spread)
    assert "empty" in warning and "0.09 nat" in warning and "lower beta" in warning
    # Rows that were held out know better.
    assert "divergence of validation rows from the prior is 0.05" in health(fitted(validation_kl=0.05), spread)[0]
    assert health(fitted(kl=0.05, validation_kl=2.0), spread) == []


def test_unused_dimensions():
    tangent = np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 1.0, 0.02]
    (warning,) = health(fitted(dim=3), points(tangent))
    assert "only 2 of 3" in warning and "dimension 2 is enough" in warning
    (warning,) = health(fitted(dim=3), points(tangent / 1000))
    assert "all points lie together" in warning and "is enough" not in warning
    # In units of the prior.
    assert health(fitted(dim=3, prior_scale=0.02), points(tangent * 0.02 * [1, 1, 50])) == []


def test_points_at_the_rim():
    far = np.random.default_rng(0).normal(size=(50, 2))
    far *= 9 / np.linalg.norm(far, axis=1, keepdims=True)
    (warning,) = health(fitted(), points(far))
    assert "100% of the points sit at the rim" in warning and "lower the prior's scale" in warning
    assert health(fitted(), points(far, c=0.0)) == []
    assert health(fitted(), points(far, c=0.1)) == []  # √c·r is what fills the disc
    few = np.where(np.arange(50)[:, None] < 20, far, far / 9)
    assert health(fitted(), points(few)) == []


def test_noise_gives_an_empty_map():
    x = np.random.default_rng(0).normal(size=(200, 6))
    config = replace(SMALL, beta=10.0, epochs=40, learning_rate=0.02, batch_size=100)
    found = fit(config, x)
    assert any("empty" in text for text in health(found, embed(found, x)))


# --- splits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("groups", [None, 17])
def test_a_split_is_disjoint_complete_and_sized(seed, groups):
    n = 203
    labels = None if groups is None else np.array([f"g{i % groups}" for i in range(n)])
    split = random_split(n, 0.1, 0.25, seed, labels)
    parts = (split.train, split.validation, split.test)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert all(np.array_equal(part, np.sort(part)) for part in parts)
    if labels is None:
        assert [len(part) for part in parts] == [203 - 71, 20, 51]
    else:
        largest = np.unique(labels, return_counts=True)[1].max()
        assert all(
            abs(len(p) - share * n) <= largest / 2 + 1 for p, share in zip(parts, (0.65, 0.1, 0.25), strict=True)
        )
        names = split.names(n)
        assert all(len(set(names[labels == group])) == 1 for group in set(labels))
    other = random_split(n, 0.1, 0.25, seed + 1, labels)
    assert not np.array_equal(split.train, other.train)
    assert np.array_equal(split.train, random_split(n, 0.1, 0.25, seed, labels).train)
    assert sorted(set(split.names(n))) == ["test", "train", "validation"]


def test_each_row_is_held_out_about_equally_often():
    held = np.zeros(20)
    for seed in range(600):
        held[random_split(20, 0.25, seed=seed).validation] += 1
    assert stats.chisquare(held).pvalue > 1e-4 and held.sum() == 5 * 600


def test_splits_at_the_edge():
    assert len(random_split(7, 0.0).validation) == 0
    assert len(random_split(4, 0.1).train) == 4
    with pytest.raises(CurvaeError, match="no rows are left"):
        random_split(6, 0.95)
    with pytest.raises(CurvaeError, match="1 groups"):
        random_split(6, 0.99999999, groups=np.zeros(6))


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


def test_original_units_by_hand():
    """A model that ignores z has a normal density, of which everything is known."""
    x = rows(30, 1) * 40.0 + 1000.0
    found = fit(replace(SMALL, epochs=1), x).double()
    with torch.no_grad():
        for p in (found.model.posterior.head.weight, found.model.posterior.head.bias, found.model.decoder[-1].weight):
            p.zero_()
        found.model.posterior.head.bias[-1] = np.log(np.expm1(1.0 - 1e-8))  # q = p: every weight is 1
        mean = float(found.model.decoder[-1].bias)
        deviation = float(found.model.likelihood.scale())
    result = likelihoods(found, x, 50)
    scale, shift = found.scaling.scale[0], found.scaling.shift[0]
    expected = stats.norm.logpdf(x[:, 0], shift + mean * scale, deviation * scale)
    np.testing.assert_allclose(result.log_prob + result.log_jacobian, expected, rtol=1e-6)
    np.testing.assert_allclose(result.ess, 50, rtol=1e-6)
    np.testing.assert_allclose(found.reconstruct(np.zeros((1, 2))), shift + mean * scale)


def test_units_change_the_score_by_the_jacobian_alone():
    x = rows()
    factors = np.array([10.0, 0.01, 3.0])
    a, b = (fit(SMALL, data) for data in (x, x * factors + 5.0))
    scores = [likelihoods(f, data, 200) for f, data in ((a, x), (b, x * factors + 5.0))]
    np.testing.assert_allclose(scores[0].log_prob, scores[1].log_prob, atol=1e-3)
    assert scores[1].log_jacobian - scores[0].log_jacobian == pytest.approx(-np.log(factors).sum())


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


def resolved(config, rows, validation):
    """Without neighbours, which have other defaults."""
    return resolve_defaults(replace(config, neighbours="off"), (rows, validation), Layout(4))


def test_epochs_follow_from_the_rows():
    sizes = 10, 1280, 128 * 100, 128 * 1000, 10**6, 10**9
    found = [resolved(Config(), n, 1) for n in sizes]
    # 1,500 steps; from 300 steps a pass on five passes; at most 10,000 steps.
    assert [one.epochs for one in found] == [1000, 150, 15, 50, 102, 100]
    assert [one.epoch_steps for one in found] == [None, None, None, 100, 100, 100]
    assert [one.patience for one in found] == [400, 40, 5, 50, 102, 100]
    # Asked for, they are passes.
    assert [resolved(Config(epochs=7), n, 1).epochs for n in sizes] == [7] * 6
    assert resolved(Config(epochs=7), 10**6, 1).epoch_steps is None
    assert resolved(Config(epochs=7, epoch_steps=50), 10**6, 1).epoch_steps == 50
    assert resolved(Config(steps=200), 1280, 1).epochs == 20
    # Files of before there were steps.
    before = Config(steps=None, batch_size=64)
    assert [resolved(before, n, 1).epochs for n in (10, 640, 64 * 125, 64 * 8000, 10**9)] == [1000, 800, 64, 20, 20]


def test_weight_decay_follows_from_the_rows():
    """Beyond 40 steps a pass, weights shrink as much in a pass as with 40."""
    for rows, decay in ((10, 1.0), (40 * 128, 1.0), (80 * 128, 0.5), (400 * 128, 0.1)):
        assert resolved(Config(), rows, 1).encoder_decay == pytest.approx(decay)
        assert resolved(Config(weight_decay=0.3), rows, 1).encoder_decay == 0.3
    assert resolved(Config(batch_size=64), 80 * 64, 1).encoder_decay == 0.5
    with pytest.raises(ValueError, match='"auto" needs the number of rows'):
        Config().encoder_decay  # noqa: B018


def test_maps_start_at_principal_components_where_neighbours_count():
    x = rows()
    kinds = {"off": "random", "near": "pca", "auto": "pca"}
    for settings, start in (
        *(({"neighbours": kind}, start) for kind, start in kinds.items()),
        ({"init": "pca"}, "pca"),
    ):
        assert fit(replace(SMALL, **settings), x).config.init == start
    assert fit(replace(SMALL, neighbours="near", init="random"), x).config.init == "random"


def test_patience_follows_from_the_rows():
    assert resolved(Config(), 640, 0).patience is None
    assert resolved(Config(patience=3), 640, 70).patience == 3
    for never in (None, "never"):
        assert Config(patience=never).patience is resolved(Config(patience=never), 640, 70).patience is None
    with pytest.raises(CurvaeError, match="patience must be a number or auto or never; got 'often'"):
        Config(patience="often")


def test_a_configuration_survives_json():
    config = Config(hidden=(5, 6), posterior="wrapped", diagonal=True, patience=3, curvature=0.25)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config
    with pytest.raises(CurvaeError, match="unknown settings: depth, width"):
        Config.from_json({"width": 3, "depth": 4})


def test_overfitting_is_told():
    fitted = fit(Config(epochs=2, hidden=(8,), patience=None), np.random.default_rng(0).normal(size=(60, 4)))
    place = embed(fitted, np.zeros((3, 4)))
    record = {**fitted.history[-1], "validation_kl": 1.0, "kl": 1.0}
    history = [{**record, "epoch": k + 1, "validation_elbo": -10.0 - abs(k - 4)} for k in range(12)]
    told = [text for text in health(replace(fitted, history=history), place) if "overfitted" in text]
    assert len(told) == 1 and "since epoch 5 " in told[0] and "7.0 nats" in told[0] and "patience" in told[0]
    steady = [{**entry, "validation_elbo": -10.0} for entry in history]
    assert not [text for text in health(replace(fitted, history=steady), place) if "overfitted" in text]
