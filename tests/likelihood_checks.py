"""What every likelihood is held to: a class of tests that each inherits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import sparse

from curvae import CurvaeError
from curvae.models import LIKELIHOODS, Batch, Gaussian, Layout
from curvae.models.likelihoods import choose_likelihood
from curvae.training import Config, build, embed, fit
from curvae.training.fitted import likelihoods
from stacking import assert_as_alone

__all__ = ["FEATURES", "ROWS", "LikelihoodChecks"]

ROWS, FEATURES = 5, 6


class LikelihoodChecks:
    """The tests of a likelihood in the registry.

    A subclass gives its name, data that fit it and the density of every entry, by scipy; the standard deviations of
    normal columns are 1.
    """

    name: str
    blocks: tuple[int, ...] = ()
    """widths of the blocks of columns, where the likelihood needs to know them"""
    refused: ClassVar[Sequence[tuple[list[list[float]], str]]] = ()
    """values that do not fit, and the reason that must be said"""

    def data(self, random: np.random.Generator) -> np.ndarray:
        """A target of ROWS × FEATURES that the likelihood takes."""
        raise NotImplementedError

    def densities(self, outputs: np.ndarray, x: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Log-densities of the entries of x for outputs of shape (…, ROWS, outputs) and the sizes of the rows."""
        raise NotImplementedError

    def column_means(self) -> torch.Tensor:
        """Means of the columns that the likelihood can have."""
        return self.target().mean(0)

    def target(self) -> torch.Tensor:
        return torch.from_numpy(self.data(np.random.default_rng(3)))

    def likelihood(self):
        made = LIKELIHOODS[self.name].make(Layout(FEATURES, self.blocks), Config(likelihood=self.name)).double()
        for part in made.modules():
            if isinstance(part, Gaussian) and part.learned:
                with torch.no_grad():
                    part.spread.fill_(math.log(math.expm1(1 - part.floor)))  # 1 to the last digit
        return made

    def outputs(self, *leading: int) -> torch.Tensor:
        return torch.randn(*leading, ROWS, self.likelihood().outputs, dtype=torch.float64)

    def test_densities_are_those_of_scipy(self):
        likelihood, x, outputs = self.likelihood(), self.target(), self.outputs(3)
        assert likelihood.features == FEATURES
        size = torch.rand(ROWS, dtype=torch.float64) + 0.5
        for batch, sizes in ((Batch(x), np.ones(ROWS)), (Batch(x, size=size), size.numpy())):
            expected = self.densities(outputs.numpy(), x.numpy(), sizes)
            entries = likelihood.entries(outputs, batch).detach()
            torch.testing.assert_close(entries, torch.from_numpy(expected), rtol=1e-10, atol=1e-12)
            found = likelihood.log_prob(outputs, batch).detach()
            torch.testing.assert_close(found, torch.from_numpy(expected.sum(-1)), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(likelihood.log_prob(outputs, x), likelihood.log_prob(outputs, Batch(x)))

    def test_only_observed_entries_count(self):
        likelihood, x, outputs = self.likelihood(), self.target(), self.outputs()
        observed = (torch.rand(ROWS, FEATURES) < 0.6).double()
        entries = likelihood.entries(outputs, Batch(x))
        expected = (entries * observed).sum(-1)
        torch.testing.assert_close(likelihood.log_prob(outputs, Batch(x, observed=observed)), expected)

    def test_missing_entries_hold_zero_and_are_no_trouble(self):
        likelihood, outputs = self.likelihood(), self.outputs().requires_grad_()
        nothing = torch.zeros(ROWS, FEATURES, dtype=torch.float64)
        found = likelihood.log_prob(outputs, Batch(nothing, observed=nothing))
        (slope,) = torch.autograd.grad(found.sum(), outputs)
        assert not found.any() and not slope.any()

    def test_the_target_may_differ_from_what_the_encoder_sees(self):
        likelihood, x, outputs = self.likelihood(), self.target(), self.outputs()
        seen = torch.ones(ROWS, 2, dtype=torch.float64)
        batch = Batch(seen, target=x)
        torch.testing.assert_close(likelihood.log_prob(outputs, batch), likelihood.log_prob(outputs, x))
        assert likelihood.inputs(batch).shape == seen.shape

    def test_draws_have_the_mean(self):
        likelihood, count = self.likelihood(), 20_000
        outputs = torch.linspace(-1.0, 1.0, likelihood.outputs, dtype=torch.float64).expand(count, -1)
        batch = Batch(torch.zeros(count, FEATURES), size=torch.full((count,), 2.0))
        draws = likelihood.sample(outputs, batch, torch.Generator().manual_seed(0))
        mean = likelihood.mean(outputs, batch)[0]
        assert ((draws.mean(0) - mean).abs() <= 4.5 * draws.std(0) / math.sqrt(count) + 1e-6).all()
        again = likelihood.sample(outputs, batch, generator=torch.Generator().manual_seed(0))
        assert torch.equal(draws, again)

    def test_outputs_start_at_the_mean(self):
        likelihood, mean = self.likelihood(), self.column_means()
        start = likelihood.start(mean)
        assert start.shape == (likelihood.outputs,)
        torch.testing.assert_close(likelihood.mean(start), mean)

    def test_gradients(self):
        likelihood, x, outputs = self.likelihood(), self.target(), self.outputs().requires_grad_()
        assert torch.autograd.gradcheck(lambda o: likelihood.log_prob(o, Batch(x)), (outputs,))

    def test_a_stack_computes_what_each_model_computes_alone(self):
        config = Config(likelihood=self.name, hidden=(4,))
        models = [build(replace(config, seed=seed), FEATURES, self.blocks).double() for seed in range(2)]
        x = self.target().expand(2, ROWS, FEATURES)
        assert_as_alone(models, x, torch.randn(2, 1, ROWS, 2))

    def test_a_model_trains_and_is_scored(self):
        rows = self.target().repeat(8, 1).numpy()
        config = Config(likelihood=self.name, hidden=(8,), epochs=2, batch_size=16)
        fitted = fit(config, rows, blocks=self.blocks)
        assert all(np.isfinite(record["elbo"]) for record in fitted.history)
        assert np.isfinite(likelihoods(fitted, rows, samples=20).log_prob).all()
        assert np.isfinite(embed(fitted, rows).ball).all()
        assert len(fitted.model.sample(7)) == 7

    def test_data_that_fit_are_taken_and_others_refused_with_the_reason(self):
        good = self.target().numpy()
        for form in (np.asarray, sparse.csr_array):
            choose_likelihood(form(good), self.name, Layout(FEATURES, self.blocks))
            for values, why in self.refused:
                with pytest.raises(CurvaeError, match=f"likelihood {self.name} .*{why}"):
                    choose_likelihood(form(np.array(values)), self.name)
