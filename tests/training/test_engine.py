"""How the learning rate falls, what Adam makes of a single large gradient, and epochs that are parts of a pass."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import sparse

from curvae.errors import CurvaeError
from curvae.models import Layout
from curvae.settings import resolve_defaults
from curvae.training import Config, Scaling, build, engine as engines, fit, fit_many
from curvae.training.engine import Adam, BatchEngine, GroupOptions
from curvae.training.fitting import plan_rows, validation_rows
from curvae.training.rows import RowPool
from trainings import SMALL, CapturedEngine, assert_all_same, assert_same, interrupted, rows, state

pytestmark = pytest.mark.usefixtures("quick_tracing")

# 36 training rows in three steps a pass.
FALLING = replace(SMALL, epochs=6, batch_size=12, cooldown=0.5)
# 80 rows, 72 of which train in nine steps a pass: three epochs of three steps each.
PARTS = replace(SMALL, epochs=7, batch_size=8, epoch_steps=4, cooldown=1.0, validation=0.1, patience=5)


def resolved(configs, rows):
    """Settings with what follows from so many training rows, where neighbours do not count and nothing is watched."""
    configs = [replace(config, neighbours="off", patience="auto") for config in configs]
    return [resolve_defaults(config, (rows, 0), Layout(4)) for config in configs]


def rates_of(adam):
    """The rates of the next step, one for each run of models and parameters that share it."""
    return [float(group.rate) for group in adam._groups]


def engine(kind, configs, x, form=np.asarray):
    data = RowPool.of([(form(x), Scaling.identity(x.shape[1]))] * len(configs), "cpu", torch.float64)
    models = [build(replace(config, likelihood="gaussian"), x.shape[1]).double() for config in configs]
    part = data.part(torch.arange(len(x)).expand(len(configs), -1))
    return kind(models, resolved(configs, len(x)), part)


# --- the rate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "share"), [(BatchEngine, 0.0), (BatchEngine, 0.5), (BatchEngine, 1.0), (CapturedEngine, 0.5)]
)
def test_rates_fall_in_a_straight_line_to_0(kind, share, monkeypatch):
    """18 steps, of models with different rates; for weights of the encoder, the noise of columns, and others."""
    falling = replace(FALLING, cooldown=share, weight_decay=0.5, noise_rate=1.5)
    configs = [falling, replace(falling, seed=1, learning_rate=0.01)]
    own, seen = engine(kind, configs, rows(36)), []
    plain = Adam.step
    monkeypatch.setattr(Adam, "step", lambda adam, gradients: (seen.append(rates_of(adam)), plain(adam, gradients)))
    for epoch in range(6):
        own.epoch(epoch)
    left = 1 - np.arange(18) / 18
    expected = np.ones(18) if share == 0 else np.minimum(1, left / share)
    np.testing.assert_allclose(seen, expected[:, None] * [0.02, 0.02, 0.03, 0.01, 0.01, 0.015], rtol=1e-12)


def test_stacks_captured_steps_and_resumed_trainings_fall_alike(tmp_path):
    configs = [replace(FALLING, seed=seed, learning_rate=rate) for seed, rate in enumerate((0.02, 0.01, 0.02))]
    x = rows()
    together = fit_many(configs, x, dtype=torch.float64)
    for config, one in list(zip(configs, together, strict=True))[1:]:
        alone = fit(config, x, dtype=torch.float64)
        found = [[record["elbo"] for record in other.history] for other in (one, alone)]
        assert found[0] == pytest.approx(found[1], rel=1e-9)
    interrupted(10, configs, x, folder=tmp_path, dtype=torch.float64)
    assert_all_same(fit_many(configs, x, folder=tmp_path, resume=True, dtype=torch.float64), together)
    plain, captured = (engine(kind, configs, x) for kind in (BatchEngine, CapturedEngine))
    for epoch in range(6):
        a, b = plain.epoch(epoch), captured.epoch(epoch)
        torch.testing.assert_close(a.means, b.means, rtol=1e-9, atol=0)


# Models whose patience ends after 6, 7, 9 and 4 epochs, long before the learning rate falls.
EARLY = [replace(FALLING, seed=seed, epochs=60, validation=0.3, patience=3, learning_rate=0.2) for seed in range(4)]


def watched_steps(config, x, monkeypatch):
    """The model, and before each step the share of the learning rate and the weights of a layer."""
    rates, weights, plain = [], [], Adam.step

    def step(adam, gradients):
        rates.append(rates_of(adam)[0])
        weights.append(next(iter(adam._tensors.values())).clone())
        plain(adam, gradients)

    monkeypatch.setattr(Adam, "step", step)
    return fit(config, x, dtype=torch.float64), np.array(rates) / config.learning_rate, weights


@pytest.mark.parametrize("config", EARLY)
def test_without_progress_the_rate_falls_from_the_best_weights_on(config, monkeypatch):
    """As if the best epoch had been the last before it fell: with half of the steps for that, over as many again."""
    found, shares, weights = watched_steps(config, rows(), monkeypatch)
    scores = np.array([record["validation_elbo"] for record in found.history])
    given_up = next(epoch for epoch in range(4, 60) if scores[:epoch].argmax() + 1 == epoch - 3)
    best, a_pass = given_up - 3, 3
    assert len(found.history) == given_up + best < 30
    steps = np.arange(best * a_pass)
    expected = [*np.ones(given_up * a_pass), *(1 - steps / len(steps))]
    np.testing.assert_allclose(shares, expected, rtol=1e-9)
    assert weights[given_up * a_pass].equal(weights[best * a_pass])
    assert found.last["validation_elbo"] == scores.max()


def test_a_rate_that_falls_at_its_time_falls_to_the_end(monkeypatch):
    """Patience ends a training before the fall or never."""
    config = replace(EARLY[0], epochs=6, patience=2)
    found, shares, _ = watched_steps(config, rows(), monkeypatch)
    scores = [record["validation_elbo"] for record in found.history]
    assert len(scores) == 6 and int(np.argmax(scores)) == 2
    np.testing.assert_allclose(shares, np.minimum(1, 2 - np.arange(18) / 9), rtol=1e-9)


def test_early_falls_of_stacks_and_of_resumed_trainings(tmp_path):
    x = rows()
    together = fit_many(EARLY, x, dtype=torch.float64)
    assert len({len(one.history) for one in together}) > 1
    for config, one in list(zip(EARLY, together, strict=True))[2:]:  # whose patience ends at other times
        alone = fit(config, x, dtype=torch.float64)
        assert len(one.history) == len(alone.history)
        found = [[record["validation_elbo"] for record in other.history] for other in (one, alone)]
        assert found[0] == pytest.approx(found[1], rel=1e-7)
    for epochs in (12, 36):  # of all models
        folder = tmp_path / str(epochs)
        interrupted(epochs, EARLY, x, folder=folder, dtype=torch.float64)
        assert_all_same(fit_many(EARLY, x, folder=folder, resume=True, dtype=torch.float64), together)


@pytest.mark.parametrize(("decay", "most"), [(0.99, 1.0), (0.999, 3.16)])
def test_a_single_gradient_moves_a_weight_by_a_step_or_three(decay, most):
    """However large it is: (1 − β1)/√(1 − β2) times the rate, 1 for the default and 3.2 for Adam's usual β2."""
    assert Config().adam_beta2 == 0.99
    own = engine(BatchEngine, [replace(FALLING, adam_beta2=decay, cooldown=0.0, noise_rate=1.0)], rows(36))
    unit = [torch.ones_like(t) for t in own.stack.leaves.values()]
    for step in range(round(3 / (1 - decay))):  # until the means of squares have settled
        own.descend([t * (-1.0) ** step for t in unit])
    before = {name: t.detach().clone() for name, t in own.stack.leaves.items()}
    own.descend([t * 1e6 for t in unit])
    moved = max(float((t.detach() - before[name]).abs().max()) for name, t in own.stack.leaves.items()) / 0.02
    assert moved == pytest.approx(most, rel=0.06)


def test_steps_are_those_of_adam():
    """Of two models with rates of their own, whose parameters decay or learn faster, and gradients with other
    strides."""
    generator = torch.Generator().manual_seed(0)

    def draw():
        return torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)

    options = {
        "weight": GroupOptions(),
        "decaying": GroupOptions(decay=0.7),
        "faster": GroupOptions(1.5),
        "both": GroupOptions(0.5, 0.3),
    }
    tensors = {name: draw() for name in options}
    models = [{name: tensors[name][i].clone().requires_grad_() for name in options} for i in range(2)]
    known = [
        torch.optim.AdamW(
            [
                {"params": [own[name]], "weight_decay": option.decay, "lr": rate * option.factor}
                for name, option in options.items()
            ],
            betas=(0.9, 0.99),
        )
        for own, rate in zip(models, (0.1, 0.02), strict=True)
    ]
    ours = Adam(tensors, tensors, [0.1, 0.02], 0.99, {name: options[name] for name in list(options)[1:]})
    for _ in range(5):
        gradients = {name: draw() for name in options}
        ours.step({name: gradient.mT.contiguous().mT for name, gradient in gradients.items()})
        for i, (own, optimiser) in enumerate(zip(models, known, strict=True)):
            for name, parameter in own.items():
                parameter.grad = gradients[name][i]
            optimiser.step()
    for name, tensor in tensors.items():
        expected = torch.stack([own[name] for own in models]).detach()
        torch.testing.assert_close(tensor, expected, rtol=1e-12, atol=1e-14)


def test_moments_are_never_subnormal_and_steps_are_those_of_torch():
    """Of weights that get no gradient after some steps, and of one that always does."""
    gradient = torch.tensor([[1.0, 1e-3, 1e-15, 0.5]])
    tensors, known = {"w": torch.tensor([[1.0, -2.0, 3.0, 4.0]])}, torch.tensor([[1.0, -2.0, 3.0, 4.0]])
    ours = Adam(tensors, tensors, [0.01], 0.9, {})
    theirs = torch.optim.AdamW([known.requires_grad_()], 0.01, (0.9, 0.9), weight_decay=0.0, fused=True)
    for step in range(1500):
        known.grad = gradient * torch.tensor([step < 3, step < 300, step < 1, True])
        ours.step({"w": known.grad})
        theirs.step()
        held = torch.stack(ours.moments["w"])
        assert bool(((held == 0) | (held.abs() >= torch.finfo(held.dtype).tiny)).all())
    torch.testing.assert_close(tensors["w"], known.detach(), rtol=0, atol=0)
    assert bool((held[..., :3] == 0).all()) and bool((held[..., 3] > 0).all())


def test_weights_of_the_encoder_decay_and_no_others():
    """Without gradients only decay moves anything."""
    x, config = rows(), replace(FALLING, weight_decay=2.0, cooldown=0.0)
    plain, decayed = (engine(BatchEngine, [one], x) for one in (replace(config, weight_decay=0.0), config))
    zero = [torch.zeros_like(t) for t in plain.stack.leaves.values()]
    for own in (plain, decayed):
        own.descend(zero)
    shrunk = {"encoder.1.weight"}
    for name, before in plain.stack.leaves.items():
        factor = 1 - 2.0 * 0.02 if name in shrunk else 1.0
        torch.testing.assert_close(decayed.stack.leaves[name], factor * before, rtol=1e-12, atol=0)


@pytest.mark.parametrize("cooldown", [0.0, 1.0])
def test_the_noise_of_columns_has_a_rate_of_its_own_and_nothing_else(cooldown):
    """The first step of Adam moves every parameter by its learning rate."""
    config = replace(FALLING, likelihood="gaussian", noise_rate=3.0, weight_decay=0.0, cooldown=cooldown)
    own = engine(BatchEngine, [config], rows())
    before = {name: t.detach().clone() for name, t in own.stack.leaves.items()}
    own.descend([torch.ones_like(t) for t in own.stack.leaves.values()])
    for name, t in own.stack.leaves.items():
        rate = 0.06 if name == "likelihood.spread" else 0.02
        torch.testing.assert_close(before[name] - t, torch.full_like(t, rate), rtol=1e-4, atol=0)


def test_an_engine_chooses_the_weight_decay_of_its_rows():
    for batch_size, decay in ((12, 1.0), (1, 40 / 50)):
        own = engine(BatchEngine, [replace(FALLING, weight_decay="auto", batch_size=batch_size)], rows(50))
        assert own.config.encoder_decay == pytest.approx(decay)


def test_decay_that_would_turn_weights_around_is_refused():
    with pytest.raises(CurvaeError, match="change their sign in a step; lower one, such"):
        fit(replace(FALLING, weight_decay=50.0), rows())
    fit(replace(FALLING, weight_decay=49.0, epochs=1), rows())


# --- parts of a pass ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("kind", [BatchEngine, CapturedEngine])
def test_epochs_cut_a_pass(kind, form):
    """Every row once a pass; the order from (seed, pass), so that an epoch can be made again alone."""
    x = np.arange(1.0, 73)[:, None] * np.ones(2)
    own = engine(kind, [PARTS, replace(PARTS, seed=1)], x, form)
    assert (own.steps, own.total) == (3, 21)
    seen = []
    for epoch in range(7):
        orders, _, part = own._drawn(epoch)
        found = [batch.x[..., 0] for batch in own.train.batches(orders, 8, part)]
        assert len(found) == 3
        seen.append(torch.cat(found, 1))
    for first in (0, 3):
        whole = torch.cat(seen[first : first + 3], 1)
        assert torch.equal(whole.sort(1).values, torch.arange(1.0, 73).double().expand(2, -1))
        assert not torch.equal(whole[0], whole[1])
    assert not torch.equal(seen[0], seen[3])


def test_noise_of_epochs_is_their_own():
    own = engine(BatchEngine, [PARTS], rows(72))
    noises = [next(own.windows(own._drawn(epoch)[1], 24, 8)) for epoch in range(6)]
    assert not any(torch.equal(a, b) for a, b in pairwise(noises))


def test_parts_of_a_pass_in_stacks_and_resumed(tmp_path):
    configs = [replace(PARTS, seed=seed) for seed in range(3)]
    x = rows(80)
    together = fit_many(configs, x, dtype=torch.float64)
    assert [record["epoch"] for record in together[0].history] == list(range(1, 8))
    for config, one in list(zip(configs, together, strict=True))[1:]:
        alone = fit(config, x, dtype=torch.float64)
        found = [[record["elbo"] for record in other.history] for other in (one, alone)]
        assert found[0] == pytest.approx(found[1], rel=1e-9)
    interrupted(11, configs, x, folder=tmp_path, dtype=torch.float64)
    assert_all_same(fit_many(configs, x, folder=tmp_path, resume=True, dtype=torch.float64), together)
    plain, captured = (engine(kind, configs, x[:72]) for kind in (BatchEngine, CapturedEngine))
    for epoch in range(7):
        a, b = plain.epoch(epoch), captured.epoch(epoch)
        torch.testing.assert_close(a.means, b.means, rtol=1e-9, atol=0)
    assert plain.step == captured.step == plain.total == 21


def test_a_part_that_is_a_whole_pass_changes_nothing():
    x = rows(80)
    assert_same(state(fit(replace(PARTS, epoch_steps=9), x)), state(fit(replace(PARTS, epoch_steps=None), x)))


def test_few_validation_rows_are_looked_at_after_a_part_of_a_pass():
    x = rows(400)
    _, (task,) = plan_rows([replace(PARTS, validation=0.5, epochs=None, steps=30)], x)
    assert (task.config.epochs, task.config.epoch_steps) == (8, 4)
    watched = validation_rows(task)
    assert len(watched) == len(set(watched)) == 8 and set(watched) <= set(task.split.validation)
    assert watched[0] == task.split.validation[0] and watched[-1] == task.split.validation[-1]
    assert len(validation_rows(plan_rows([replace(PARTS, validation=0.5, epoch_steps=None)], x)[1][0])) == 200


# --- by default -----------------------------------------------------------------------------------------------------


def test_by_default_the_best_weights_are_kept_and_the_training_ends():
    """Noise, of which there is nothing to learn but what few rows have in common by chance."""
    x = np.random.default_rng(0).normal(size=(40, 30))
    found = fit(
        Config(hidden=(64,), steps=60, batch_size=36, learning_rate=0.04, posterior="wrapped", neighbours="off"), x
    )
    watched = [record["validation_elbo"] for record in found.history]
    assert found.config.patience == 60 and found.last["validation_elbo"] == max(watched) > watched[-1] + 1
    without = fit(Config(hidden=(8,), epochs=3, validation=0.0), x)
    assert without.config.patience is None and without.last is without.history[-1]


# --- threads --------------------------------------------------------------------------------------------------------


def test_small_steps_take_one_thread(monkeypatch):
    """And leave to others as many as there were."""
    seen, plain, before = [], BatchEngine.epoch, torch.get_num_threads()
    monkeypatch.setattr(
        BatchEngine, "epoch", lambda own, *args: (seen.append(torch.get_num_threads()), plain(own, *args))[1]
    )
    torch.set_num_threads(2)
    try:
        fit(replace(SMALL, epochs=1), rows(36))
        assert (seen, torch.get_num_threads()) == ([1], 2)
        monkeypatch.setattr(engines, "_SHARED", 1)
        fit(replace(SMALL, epochs=1), rows(36))
        assert seen == [1, 2]
    finally:
        torch.set_num_threads(before)
