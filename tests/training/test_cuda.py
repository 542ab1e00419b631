"""Captured steps on a CUDA device: those of the plain engine, wherever the rows lie."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import sparse

from curvae.data import load
from curvae.models import Layout
from curvae.settings import resolve_defaults
from curvae.training import Config, Scaling, build, engine, fit, fit_many, fitting
from curvae.training.engine import BatchEngine
from curvae.training.processes import train_distributed
from curvae.training.rows import BatchShard, RowPool
from trainings import CapturedEngine

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SMALL = Config(
    hidden=(16,),
    posterior="wrapped",
    likelihood="gaussian",
    epochs=3,
    batch_size=8,
    learning_rate=0.02,
    cooldown=0.0,
    patience=None,
    prior_scale=1.0,
    neighbours="off",
)


def numbers(rows, columns):
    x = np.random.default_rng(0).normal(size=(rows, columns))
    x[x < 0] = 0.0
    return x


def made(kind, configs, x, device, train):
    """An engine in float64 on CUDA; the rows are on the device that is given."""
    scaling = Scaling.identity(x.shape[1])
    pool = RowPool.of([(x, scaling)] * len(configs), device, torch.float64)
    index = torch.arange(x.shape[0]).expand(len(configs), -1)
    models = [build(config, x.shape[1]).to("cuda", torch.float64) for config in configs]
    counts, layout = (train, x.shape[0] - train), Layout(x.shape[1])
    configs = [resolve_defaults(replace(config, neighbours="off"), counts, layout) for config in configs]
    return kind(models, configs, pool.part(index[:, :train]), pool.part(index[:, train:]))


def trained(own, epochs):
    figures = [(own.epoch(epoch).means, own.validate()) for epoch in range(epochs)]
    return own.step, figures, {name: t.clone() for name, t in own.stack.tensors.items()}


@pytest.mark.parametrize(("form", "device"), [(np.asarray, "cuda"), (np.asarray, "cpu"), (sparse.csr_array, "cpu")])
@pytest.mark.parametrize("window", [1, 40, 1 << 20])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("space", ["h2", "h2:0.5,e3,h1:learn"])
def test_captured_steps_are_the_plain_ones(form, device, window, count, space):
    """Gathered in the graph, or fed from the host; the last batch is smaller than the others."""
    configs = [replace(SMALL, space=space, seed=seed, beta=1.0 + seed) for seed in range(count)]
    x = numbers(44, 5)
    with mock.patch.object(engine, "WINDOW", window), mock.patch.object(engine, "_VALIDATION_ROWS", 3):
        found = trained(made(CapturedEngine, configs, form(x), device, 35), 3)
        expected = trained(made(BatchEngine, configs, x, "cuda", 35), 3)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("all_pairs", [16, 1024])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("settings", [{"neighbours": "both"}, {"neighbours": "near", "space": "h2:0.5,e3,h1:learn"}])
def test_captured_neighbourhoods_are_the_plain_ones(all_pairs, count, settings):
    regular = replace(SMALL, patience=9, dropout=0.3, jitter=0.8)
    configs = [replace(regular, seed=seed, **settings) for seed in range(count)]
    x, found = numbers(44, 5), []
    for form, capture, free in (
        (np.asarray, 10**9, 1 << 40),
        (np.asarray, 0, 1 << 40),
        (np.asarray, 0, 0),
        (sparse.csr_array, 0, 0),
    ):
        with (
            mock.patch("curvae.training.fitting._CAPTURE", capture),
            mock.patch("curvae.training.neighbourhoods._ALL_PAIRS", all_pairs),
            mock.patch("curvae.training.neighbourhoods._CROWDED", 1),
            mock.patch("torch.cuda.mem_get_info", return_value=(free, 1 << 40)),
        ):
            made = fit_many(configs, form(x), device="cuda", dtype=torch.float64)
        found.append([[{**record, "seconds": 0.0} for record in one.history] for one in made])
    for other in found[1:]:
        for histories in zip(found[0], other, strict=True):
            for a, b in zip(*histories, strict=True):
                assert a == pytest.approx(b, rel=1e-6)


@pytest.mark.parametrize("count", [1, 3])
def test_captured_rates_fall_early_as_the_plain_ones_do(count):
    """Each model when its own patience ends."""
    early = replace(SMALL, epochs=60, learning_rate=0.2, cooldown=0.5, validation=0.3, patience=3)
    configs, x, found = [replace(early, seed=seed) for seed in range(count)], numbers(44, 5), []
    for capture in (10**9, 0):
        with mock.patch("curvae.training.fitting._CAPTURE", capture):
            made = fit_many(configs, x, device="cuda", dtype=torch.float64)
        found.append([[record["elbo"] for record in one.history] for one in made])
    assert max(map(len, found[0])) < 30
    for a, b in zip(*found, strict=True):
        assert a == pytest.approx(b, rel=1e-6)


@pytest.mark.parametrize("posterior", ["wrapped", "riemannian"])
def test_products_have_the_loss_and_gradients_of_a_cpu(posterior):
    """From the same weights, rows and noise."""
    config = replace(SMALL, space="h2:0.5,e3,h2:learn", posterior=posterior)
    model = build(config, 5).to(dtype=torch.float64)
    x = torch.from_numpy(numbers(60, 5))
    noise = torch.randn(4, 60, model.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def found(device):
        model.to(device).zero_grad()
        loss = -model.elbo(x.to(device), noise=noise.to(device)).mean()
        loss.backward()
        return loss.detach().cpu(), {name: p.grad.cpu() for name, p in model.named_parameters()}

    torch.testing.assert_close(found("cuda"), found("cpu"), rtol=1e-9, atol=1e-9)


def test_batches_are_not_mixed_up_over_many_steps():
    """Copies of 13 MB a step beside the computation of the step before."""
    configs, x = [replace(SMALL, seed=seed, batch_size=512, epochs=4) for seed in range(4)], numbers(30_000, 784)
    fed, resident = (trained(made(CapturedEngine, configs, x, device, 29_500), 4) for device in ("cpu", "cuda"))
    torch.testing.assert_close(fed, resident, rtol=1e-6, atol=1e-6)


def test_failures_are_found_in_batches_that_are_fed():
    x = numbers(44, 5)
    x[20] = np.inf
    configs = [replace(SMALL, seed=seed) for seed in range(3)]
    steps = []
    for kind, device in ((CapturedEngine, "cpu"), (CapturedEngine, "cuda"), (BatchEngine, "cuda")):
        with mock.patch.object(engine, "WINDOW", 40):
            passed = made(kind, configs, x, device, 35).epoch(0)
        steps.append({i: failure.step for i, failure in passed.failures.items()})
    assert steps[0] == steps[1] == steps[2] and len(steps[0]) == 3


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_that_do_not_fit_stay_on_the_host(form):
    x, settings = numbers(60, 5), {"device": "cuda", "dtype": torch.float64}
    expected = fit(SMALL, x, **settings)
    with mock.patch("torch.cuda.mem_get_info", return_value=(0, 1 << 30)):
        found = fit(SMALL, form(x), **settings)
        many = fit_many([SMALL, replace(SMALL, seed=1)], form(x), **settings)
    for one in (found, many[0]):
        for a, b in zip(one.history, expected.history, strict=True):
            assert {k: v for k, v in a.items() if k != "seconds"} == pytest.approx(
                {k: v for k, v in b.items() if k != "seconds"}, rel=1e-7
            )


@pytest.mark.parametrize("stored", [False, True])
def test_a_single_process_sums_through_nccl(stored, monkeypatch, tmp_path):
    """What several processes do, with all rows in the one that a single GPU allows."""
    np.save(tmp_path / "x.npy", numbers(3000, 5))

    def found(**more):
        x = load(tmp_path / "x.npy", memory="1MB")[0] if stored else np.load(tmp_path / "x.npy")
        return fit(replace(SMALL, batch_size=100), x, device="cuda", dtype=torch.float64, **more)

    def together(problem, tasks, listener, folder, resume):
        return train_distributed(1, problem, tasks, listener, folder, resume)

    expected = found()
    summed, plain = [], torch.distributed.all_reduce
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda t: summed.append(t.device.type) or plain(t))
    monkeypatch.setattr(fitting, "train_stack", together)
    monkeypatch.setattr(BatchShard, "whole", False)
    history = found().history
    assert summed.count("cuda") > 9 and not torch.distributed.is_initialized()
    for record, other in zip(history, expected.history, strict=True):
        assert record | {"seconds": 0} == pytest.approx(other | {"seconds": 0}, rel=1e-7)
