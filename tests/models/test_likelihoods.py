"""Every likelihood in the registry; the oracles are the densities of scipy."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from scipy import stats

from curvae import CurvaeError
from curvae.models import LIKELIHOODS, Batch, Layout
from curvae.training import Config, build
from likelihood_checks import FEATURES, ROWS, LikelihoodChecks
from running import refused


class TestBernoulli(LikelihoodChecks):
    name = "bernoulli"
    refused = (([[0.0, 2.0]], r"needs values in \[0, 1\], but they go from 0 to 2"),)

    def data(self, random):
        return random.integers(2, size=(ROWS, FEATURES)).astype(float)

    def densities(self, outputs, x, size):
        return stats.bernoulli.logpmf(x, 1 / (1 + np.exp(-outputs)))

    def column_means(self):
        return super().column_means().clamp(0.05, 0.95)


class TestUnitGaussian(LikelihoodChecks):
    name = "unit_gaussian"

    def data(self, random):
        return random.normal(size=(ROWS, FEATURES))

    def densities(self, outputs, x, size):
        return stats.norm.logpdf(x, outputs, 1.0)


class TestGaussian(TestUnitGaussian):
    name = "gaussian"


class TestPoisson(LikelihoodChecks):
    name = "poisson"
    refused = (
        ([[1.0, -1.0]], "needs counts, but there is a value of -1"),
        ([[1.0, 0.5]], "not all values are whole numbers"),
    )

    def data(self, random):
        return random.poisson(4.0, size=(ROWS, FEATURES)).astype(float)

    def densities(self, outputs, x, size):
        return stats.poisson.logpmf(x, size[:, None] * np.exp(outputs))


def one_hot(random, width):
    return np.eye(width)[random.integers(width, size=ROWS)]


def categories(outputs, x, blocks):
    pieces = np.split(outputs, np.cumsum(blocks)[:-1], -1)
    return x * np.concatenate([p - np.logaddexp.reduce(p, -1, keepdims=True) for p in pieces], -1)


class TestCategorical(LikelihoodChecks):
    name, blocks = "categorical", (2, 4)
    refused = (([[0.5, 0.1]], "needs one-hot columns"),)

    def data(self, random):
        return np.concatenate([one_hot(random, width) for width in self.blocks], 1)

    def densities(self, outputs, x, size):
        return categories(outputs, x, self.blocks)

    def column_means(self):
        mean = super().column_means().clamp(0.05, 0.95)
        for part in mean.split(Layout(FEATURES, self.blocks).widths):
            part /= part.sum() if len(part) > 1 else 1.0
        return mean


class TestMixed(TestCategorical):
    name, blocks, refused = "mixed", (1, 3, 0, 0), ()

    def data(self, random):
        yes = random.permutation([0.0, 1, 1, 0, 1])[:, None]
        return np.concatenate([yes, one_hot(random, 3), random.normal(size=(ROWS, 2))], 1)

    def densities(self, outputs, x, size):
        """The outputs are those of the numbers, of yes and no, of the categories."""
        return np.concatenate(
            [
                stats.bernoulli.logpmf(x[:, :1], 1 / (1 + np.exp(-outputs[..., 2:3]))),
                categories(outputs[..., 3:], x[:, 1:4], (3,)),
                stats.norm.logpdf(x[:, 4:], outputs[..., :2], 1.0),
            ],
            -1,
        )


def test_every_likelihood_is_checked():
    checked = [cls.name for cls in globals().values() if isinstance(cls, type) and "name" in vars(cls)]
    assert sorted(checked) == sorted(LIKELIHOODS)


def test_the_registry_serves_every_face():
    names = ("auto", *LIKELIHOODS)
    with pytest.raises(CurvaeError, match=f"likelihood must be one of {', '.join(names)}; got 'other'"):
        Config(likelihood="other")
    shown = refused("fit", "t.csv", "--likelihood", "other")
    assert re.findall("'([a-z_]+)'", shown) == ["other", *names]
    assert all(family.summary for family in LIKELIHOODS.values())


def test_exposure_scales_the_rate_and_is_taken_out_of_what_the_encoder_sees():
    """A row observed twice as long has twice the counts, and the same posterior."""
    model = build(Config(likelihood="poisson", hidden=(8,)), 3).double()
    x, size = torch.tensor([[2.0, 0.0, 6.0]]).double(), torch.tensor([2.0]).double()
    one, two = Batch(x / 2), Batch(x, size=size)
    torch.testing.assert_close(model.encode(one).loc, model.encode(two).loc)
    outputs = model.decode(model.encode(one).loc)
    torch.testing.assert_close(model.likelihood.mean(outputs, two), 2 * model.likelihood.mean(outputs, one))
