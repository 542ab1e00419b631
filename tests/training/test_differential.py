"""Differential expression: effects beside quadrature, shares beside counts and a bootstrap, and planted changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from curvae import CurvaeError
from curvae.data import Arrays, load
from curvae.training import Config, fit
from curvae.training.differential import (
    Populations,
    compare_populations,
    measure_expression,
    shrink_changes,
    split_groups,
)

GENES = 60


def counts(cells=600, confounded=0.8, seed=0):
    """Cells of two groups in two batches that act on genes; every fourth gene changes by 1 in log2."""
    random = np.random.default_rng(seed)
    share = random.lognormal(0, 0.8, GENES)
    change = np.where(np.arange(GENES) % 4 == 0, random.choice([-1.0, 1.0], GENES), 0.0)
    group = random.random(cells) < 0.5
    batch = random.random(cells) < np.where(group, confounded, 1 - confounded)
    acting = random.normal(0, 0.8, GENES)
    p = share * 2.0 ** (change * group[:, None] + acting * batch[:, None])
    size = random.lognormal(6.5, 0.3, (cells, 1))
    x = random.poisson(size * p / p.sum(1, keepdims=True) * random.gamma(2.0, 0.5, p.shape)).astype(np.float64)
    arrays = Arrays(csr_array(x), size=x.sum(1), total=True, context=np.eye(2)[batch.astype(int)], batch=(0, 2))
    return x, arrays, group, change


@pytest.fixture(scope="module")
def trained():
    x, arrays, group, change = counts()
    config = Config(dim=2, likelihood="nb", hidden=(16,), neighbours="off", epochs=10, dropout=0.0, learning_rate=3e-3)
    return fit(config, arrays).double(), x, arrays, group, change


# --- effects ----------------------------------------------------------------------------------------------------------


def test_effects_are_those_of_quadrature():
    """Under the prior that the mixture implies, posteriors are integrals over a grid."""
    error = np.array([0.1, 0.3, 0.5, 0.2, 0.2, 0.2, 0.2])
    found = np.array([0.05, 1.2, -0.4, 0.0, 0.1, -0.1, 0.05])
    effects = shrink_changes(found, error)
    np.testing.assert_allclose(effects.weight.sum(1), 1.0)
    wide = effects.width[0] > 0
    # Scales of the prior from a component: 1/width² = 1/scale² + 1/error².
    scale = np.sqrt(1 / (1 / effects.width[0, wide] ** 2 - 1 / error[0] ** 2))
    evidence = stats.norm.pdf(found[:, None], 0, np.hypot(error[:, None], np.concatenate([[0.0], scale])))
    share = effects.weight[0] / evidence[0]
    share /= share.sum()
    grid = np.linspace(-4, 4, 16_001)
    for i, (value, noise) in enumerate(zip(found, error, strict=True)):
        density = (share[1:] * stats.norm.pdf(grid[:, None], 0, scale)).sum(1) * stats.norm.pdf(value, grid, noise)
        null = share[0] * stats.norm.pdf(value, 0, noise)
        mass, step = density.sum() * (step := grid[1] - grid[0]) + null, step
        mean = (grid * density).sum() * step / mass
        np.testing.assert_allclose(effects.mean[i], mean, atol=1e-5)
        second = (grid**2 * density).sum() * step / mass
        np.testing.assert_allclose(effects.deviation[i], np.sqrt(second - mean**2), rtol=1e-4)
        below = density[grid < 0.25].sum() * step + null
        np.testing.assert_allclose(effects.below(0.25)[i], below / mass, atol=1e-4)
    np.testing.assert_allclose(effects.below(effects.median)[1], 0.5, atol=1e-6)
    np.testing.assert_allclose(np.delete(effects.median, 1), 0.0, atol=1e-6)  # most of the mass is there


def test_probabilities_of_effects_are_calibrated():
    random = np.random.default_rng(3)
    truth = np.where(random.random(4000) < 0.7, 0.0, random.normal(0, 1.0, 4000))
    error = random.uniform(0.05, 0.6, 4000)
    effects = shrink_changes(truth + error * random.normal(size=4000), error)
    likely, large = effects.below(-0.25) + 1 - effects.below(0.25), np.abs(truth) >= 0.25
    for low, high in pairwise((0.0, 0.2, 0.4, 0.6, 0.8, 1.0)):
        some = (likely > low) & (likely <= high)
        noise = np.sqrt(0.25 / some.sum())
        assert abs(large[some].mean() - likely[some].mean()) < 3 * noise + 0.02


# --- expression -------------------------------------------------------------------------------------------------------


def test_expression_is_that_of_the_counts(trained):
    fitted, x, arrays, group, _ = trained
    members = np.stack([group, ~group])
    found = measure_expression(fitted, arrays, members)
    for population, cells in enumerate(members):
        own, size = x[cells], x[cells].sum(1)
        np.testing.assert_allclose(found.raw_mean[population], own.mean(0))
        np.testing.assert_allclose(found.non_zeros_proportion[population], (own > 0).mean(0))
        np.testing.assert_allclose(found.raw_normalized_mean[population], 1e4 * (own / size[:, None]).mean(0))
        # One count is added to thousands.
        np.testing.assert_allclose(found.share[population], own.sum(0) / size.sum(), rtol=0.02)
        random = np.random.default_rng(0)
        drawn = [random.integers(len(own), size=len(own)) for _ in range(400)]
        rates = np.stack([own[rows].sum(0) / size[rows].sum() for rows in drawn])
        np.testing.assert_allclose(found.error[population], rates.std(0) / rates.mean(0), rtol=0.2)


def test_genes_without_counts_do_not_differ(trained):
    fitted, x, arrays, group, _ = trained
    gone = x.copy()
    gone[:, :2] = 0
    names = [f"g{i}" for i in range(GENES)]
    populations = split_groups(np.where(group, "a", "b"), ["a"], None, "kind")
    table = compare_populations(fitted, replace(arrays, x=csr_array(gone)), populations, names)
    assert (table.loc[["g0", "g1"], "proba_de"] < 0.5).all() and not table.loc[["g0", "g1"], "is_de_fdr_0.05"].any()


def test_batches_are_corrected_for(trained):
    fitted, _, arrays, group, change = trained
    populations = split_groups(np.where(group, "a", "b"), ["a"], None, "kind")
    names, wrong = np.arange(GENES), {}
    for corrected in (False, True):
        every = range(2) if corrected else ()
        table = compare_populations(fitted, arrays, populations, names, (every, every)).sort_index()
        off = table["lfc_mean"].to_numpy() - change
        wrong[corrected] = np.sqrt(np.mean(off**2))
    assert wrong[True] < 0.6 * wrong[False]


def test_planted_changes_are_found_and_halves_do_not_differ(trained):
    fitted, _, _, _, change = trained
    x, arrays, group, change = counts(1500, 0.5, seed=0)
    names, half = np.arange(GENES), np.random.default_rng(1).random(len(x)) < 0.5
    table = compare_populations(fitted, arrays, split_groups(np.where(group, "a", "b"), ["a"], "b", "kind"), names)
    called = table["is_de_fdr_0.05"].to_numpy()
    changed = change[table.index] != 0
    assert called[changed].mean() > 0.9 and called[~changed].mean() < 0.1
    assert (np.sign(table["lfc_mean"][called & changed]) == change[table.index[called & changed]]).all()
    halves = Populations([("one", "two")], [np.stack([group & half, group & ~half])])
    assert compare_populations(fitted, arrays, halves, names)["is_de_fdr_0.05"].mean() <= 0.05
    more = compare_populations(fitted, arrays, halves, names, mode="vanilla", all_stats=False)
    assert list(more) == ["proba_m1", "proba_m2", "bayes_factor", "scale1", "scale2", "comparison", "group1", "group2"]
    np.testing.assert_allclose(more["proba_m1"] + more["proba_m2"], 1.0)


def test_cells_on_disk_are_as_in_memory(trained, tmp_path):
    fitted, x, arrays, group, _ = trained
    np.save(tmp_path / "x.npy", x)
    data, _ = load(tmp_path / "x.npy", memory="1MB")
    data = replace(data, exposure=x.sum(1), context=arrays.context, context_names=("a", "b"))
    members = np.stack([group, ~group])
    one, other = measure_expression(fitted, arrays, members), measure_expression(fitted, data, members)
    np.testing.assert_allclose(one.share, other.share, rtol=1e-6)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_populations_that_cannot_be_compared(trained):
    fitted, _, arrays, group, _ = trained
    kinds = np.where(group, "a", "b")
    kinds[:3] = "c"
    for how, message in (
        ((np.full(9, "a"), None, None), "needs a column with two groups or more; 'kind' holds 'a'"),
        ((kinds, ["z"], None), "`group1` is no group of 'kind': 'z'; it has 'a', 'b', 'c'"),
        ((kinds, None, "y"), "`group2` is no group of 'kind': 'y'"),
        ((kinds, ["c"], None), "'c' has 3 cells; give populations of 5 or more"),
        ((kinds, ["a"], "a"), "'a' and 'a' are the same cells"),
    ):
        with pytest.raises(CurvaeError, match=message):
            split_groups(*how, "kind")
    pair = split_groups(kinds, ["a"], "b", "kind")
    for how, message in (
        ({"delta": 0.0}, "`delta` must be greater than 0"),
        ({"fdr_target": 1.0}, "`fdr_target` must be between 0 and 1"),
        ({"mode": "both"}, "`mode` must be"),
    ):
        with pytest.raises(CurvaeError, match=message):
            compare_populations(fitted, arrays, pair, np.arange(GENES), **how)
    gaussian = fit(Config(hidden=(4,), epochs=1, likelihood="gaussian"), np.random.default_rng(0).normal(size=(40, 3)))
    with pytest.raises(CurvaeError, match="needs a model of counts"):
        measure_expression(gaussian, np.zeros((40, 3)), np.ones((1, 40), bool))
