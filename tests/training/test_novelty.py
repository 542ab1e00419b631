"""Scores of rows under a model, and the probability that nothing like a row is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from curvae.data import Dataset
from curvae.models import Batch
from curvae.training import Config, fit
from curvae.training.novelty import fit_scores, held_out_fit, unknown_probability

GENES = 30


def cells(x, batches=0):
    context = np.eye(batches)[np.arange(len(x)) % batches] if batches else None
    names = tuple(f"g{j}" for j in range(GENES))
    known = {"context": context, "context_names": tuple(f"b{i}" for i in range(batches)), "batch": (0, batches)}
    return Dataset(
        x=x,
        names=names,
        shape=(GENES,),
        ids=np.arange(len(x)).astype(str),
        exposure=x.sum(1).astype(float),
        total=True,
        counts=True,
        **(known if batches else {}),
    )


@pytest.mark.parametrize("settings", [{"likelihood": "nb"}, {"likelihood": "nb", "learn_sizes": True}])
def test_rows_of_the_model_have_standard_scores_whatever_their_size(settings):
    random = np.random.default_rng(0)
    x = random.poisson(random.gamma(2.0, 2.0, (150, GENES)) * random.gamma(0.5, 2.0, GENES)) + 1.0
    fitted = fit(Config(hidden=(8,), epochs=30, **settings), cells(x)).double()
    model, generator = fitted.model, torch.Generator().manual_seed(0)
    with torch.no_grad():
        size = torch.logspace(1.8, 3.5, 300, dtype=torch.float64)
        outputs = model.decode(model.prior().sample((300,)))
        drawn = model.likelihood.sample(outputs, Batch(torch.ones(300, 1), size=size), generator).numpy()
    scores = fit_scores(fitted, cells(drawn))
    low, middle, high = np.quantile(scores, [0.16, 0.5, 0.84])
    assert abs(middle) < 0.4 and 1.5 < high - low < 2.6
    assert abs(spearmanr(scores, size)[0]) < 0.2
    assert np.median(fit_scores(fitted, cells(drawn[:, random.permutation(GENES)]))) < scores.min()


def test_batches_are_not_looked_at():
    x = np.random.default_rng(0).poisson(4.0, (60, GENES)) + 1.0
    data = cells(x, 3)
    fitted = fit(Config(likelihood="nb", hidden=(8,), epochs=2), data)
    other = replace(data, context=np.roll(data.context, 1, 1))
    np.testing.assert_array_equal(fit_scores(fitted, data), fit_scores(fitted, other))
    wider = replace(data, context=np.eye(5)[np.arange(60) % 5], context_names=tuple("abcde"), batch=(0, 5))
    np.testing.assert_array_equal(fit_scores(fitted, data), fit_scores(fitted, wider))
    found = held_out_fit(fitted, data)  # of the training rows, for few are held out
    assert set(found) == {"mean", "deviation"} and found["deviation"] > 0


@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 1.0])
@pytest.mark.parametrize("shift", [0.0, -2.5])
def test_probabilities_are_calibrated(share, shift):
    random = np.random.default_rng(1)
    unknown = np.arange(800) < 800 * share
    scores = random.normal(-0.2 + shift, 2.0, 800) - np.where(unknown, 6 + random.gamma(2.0, 8.0, 800), 0.0)
    found = unknown_probability(scores, -0.2, 2.0)
    bins = np.minimum((found * 10).astype(int), 9)
    errors = [abs(found[bins == i].mean() - unknown[bins == i].mean()) * (bins == i).mean() for i in np.unique(bins)]
    assert sum(errors) < 0.05
    assert not unknown.any() or np.median(found[unknown]) > 0.8
    assert unknown.all() or np.median(found[~unknown]) < 0.05


def test_few_rows_have_probabilities():
    for scores in ([0.0], [-40.0], [0.1, 0.2, -30.0]):
        found = unknown_probability(np.array(scores), 0.0, 1.0)
        np.testing.assert_array_equal(found > 0.5, np.array(scores) < -10)
