"""Maps that start with principal components as places: against singular vectors."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch

from curvae.data import Arrays
from curvae.errors import CurvaeError
from curvae.models import Batch
from curvae.training import Config, fit, fit_many
from curvae.training.rows_problem import plan_rows


@pytest.fixture
def bare(monkeypatch):
    """Without what fresh weights add to the places."""
    monkeypatch.setattr(import_module("curvae.training.fitted"), "_RANDOM", 0.0)


def rows(count=60, columns=5, seed=0):
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
    x = rows()
    config = Config(likelihood="unit_gaussian", standardise=False, init="pca", **settings)
    model, split = begun(config, x)
    found = places(model, x)
    expected = components(x, x[split.train])[:, : len(scales)] * scales
    np.testing.assert_allclose(up_to_signs(found[:, : len(scales)], expected), expected, atol=1e-5)
    np.testing.assert_array_equal(found[:, len(scales) :], 0.0)


def test_the_first_has_the_size_of_the_prior_in_many_dimensions(bare):
    model, split = begun(Config(dim=4, likelihood="unit_gaussian", init="pca"), rows())
    x = rows()[split.train]
    scaled = (x - rows().mean(0)) / rows().std(0)
    spread = places(model, scaled).std(0)
    assert spread[0] == pytest.approx(float(next(iter(model.space)).scale()), rel=1e-4)
    assert (np.diff(spread) < 0).all()


def test_places_do_not_depend_on_the_batch(bare):
    x, batch = rows(80), np.eye(2)[np.arange(80) % 2]
    shift = np.array([4.0, 0.0, -2.0, 0.0, 1.0])
    config = Config(likelihood="unit_gaussian", standardise=False, validation=0.0, init="pca")
    model, _ = begun(config, Arrays(x + batch @ np.stack([shift, -shift]), context=batch))
    moved = np.linalg.pinv(batch - 0.5) @ (x + batch @ np.stack([shift, -shift]))
    here, there = places(model, x), places(model, x + 7.0 * moved[0])
    np.testing.assert_allclose(here, there, atol=1e-4)
    assert here.std(0).min() > 0.1


def test_seeds_share_the_start_and_differ_a_little():
    x = rows()
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
    x = rows()
    x[::7, 2] = np.nan
    config = Config(init="pca", epochs=2, hidden=(6,))
    assert fit(config, Arrays(x, missing=True)).failure is None
    counts = np.random.default_rng(0).poisson(3.0, size=(40, 4))
    assert fit(Config(likelihood="poisson", init="pca", epochs=2, hidden=(6,)), np.float64(counts)).failure is None


def test_what_cannot_start_there_says_so():
    with pytest.raises(CurvaeError, match='`init="pca"` needs `network="mlp"`, not conv'):
        Config(init="pca", network="conv")


def test_the_centre_is_the_exponential_of_the_place(bare):
    x = rows()
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
