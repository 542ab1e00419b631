"""Missing values that are left to the model; the oracles are closed forms, quadrature and numpy's nan-functions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import ClassVar
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse, stats
from scipy.special import expit, softmax
from torch import nn

from curvae import CurvaeError, PoincareVAE
from curvae.data import Arrays, load
from curvae.data.dataset import Dataset, column_statistics
from curvae.data.files import EXACT
from curvae.models import Batch, Layout, Stack
from curvae.models.likelihoods import choose_likelihood
from curvae.training import Config, Fitted, Scaling, Split, build, embed, fit, fit_many, impute
from curvae.training.fitted import likelihoods
from running import SMALL, curvae, refused

NAMES = ("bernoulli", "gaussian", "unit_gaussian", "categorical", "poisson")
BLOCKS = (2, 3)
NAN = math.nan


def holes(x: np.ndarray, share: float = 0.3, seed: int = 0) -> np.ndarray:
    """x without a share of its values; the first of every row stays."""
    gone = np.random.default_rng(seed).random(x.shape) < share
    gone[:, 0] = False
    return np.where(gone, NAN, x)


def linear(name: str, scaling: Scaling | None = None) -> tuple[Fitted, np.ndarray, np.ndarray]:
    """A model with one flat latent dimension and an affine decoder, with its weights and offsets."""
    layout = Layout(5, BLOCKS if name == "categorical" else (), missing=True)
    config = Config(dim=1, curvature=0.0, hidden=(4,), likelihood=name)
    model = build(config, layout).double()
    weights, offsets = np.array([1.0, -0.7, 0.5, 0.3, -1.2]), np.array([0.2, -0.3, 0.1, 0.6, 0.0])
    affine = nn.Linear(1, 5).double()
    with torch.no_grad():
        affine.weight.copy_(torch.from_numpy(weights[:, None]))
        affine.bias.copy_(torch.from_numpy(offsets))
        if name == "gaussian":
            model.likelihood.spread.copy_(torch.tensor([0.5, 0.4, 0.8, 0.6, 0.7]).sub(0.01).expm1().log())
        model.posterior.head.weight.mul_(0.3)
        model.posterior.head.bias[1] = 1.2  # wider than any posterior, so that the weights are bounded
    model.decoder = affine
    none = np.zeros(0, np.int64)
    scaling = scaling or Scaling.identity(5)
    return Fitted(config, model.eval(), scaling, "", Split(none, none, none), [], layout=layout), weights, offsets


ROWS = {
    "bernoulli": [[1, NAN, 0, 1, NAN], [NAN, 0, NAN, NAN, 1], [1, 1, 0, 0, 1]],
    "categorical": [[1, 0, NAN, NAN, NAN], [NAN, NAN, 0, 0, 1], [0, 1, 1, 0, 0]],
    "poisson": [[3, NAN, 0, 1, NAN], [NAN, 5, NAN, NAN, 2], [0, 0, 1, 4, 1]],
    "gaussian": [[1.5, NAN, 0.2, -1.0, NAN], [NAN, 0.8, NAN, NAN, 2.0], [0.1, 0.2, 0.3, 0.4, 0.5]],
}


class TestAgainstQuadrature:
    """p(observed) and E[missing | observed] of a model with one latent dimension, on a fine grid."""

    @pytest.mark.parametrize("name", NAMES)
    def test_every_likelihood(self, name):
        fitted, weights, offsets = linear(name)
        x = np.array(ROWS["gaussian" if name == "unit_gaussian" else name], dtype=float)
        grid = np.linspace(-9, 9, 4001)
        outputs = grid[:, None] * weights + offsets
        filled = np.nan_to_num(x)[:, None]
        scale = [0.5, 0.4, 0.8, 0.6, 0.7] if name == "gaussian" else 1.0
        mean, logs = {
            "bernoulli": lambda: (expit(outputs), stats.bernoulli.logpmf(filled, expit(outputs))),
            "poisson": lambda: (np.exp(outputs), stats.poisson.logpmf(filled, np.exp(outputs))),
            "categorical": lambda: (shares(outputs), filled * np.log(shares(outputs))),
        }.get(name, lambda: (outputs, stats.norm.logpdf(filled, outputs, scale)))()
        joint = np.exp(np.where(np.isnan(x)[:, None], 0.0, logs).sum(-1) + stats.norm.logpdf(grid))  # (rows, grid)
        evidence = joint.sum(1) * (grid[1] - grid[0])
        expected = (joint[:, :, None] * mean).sum(1) * (grid[1] - grid[0]) / evidence[:, None]
        found = likelihoods(fitted, x, samples=50_000)
        np.testing.assert_allclose(found.log_prob, np.log(evidence), atol=0.02)
        np.testing.assert_allclose(impute(fitted, x, 50_000), np.where(np.isnan(x), expected, x), rtol=0.03, atol=0.01)

    def test_a_linear_gaussian_model_in_original_units(self):
        scaling = Scaling(np.array([1.0, -2.0, 0.0, 30.0, 5.0]), np.array([2.0, 0.5, 1.0, 100.0, 3.0]))
        fitted, weights, offsets = linear("gaussian", scaling)
        x = scaling.invert(np.array(ROWS["gaussian"]))
        std = np.array([0.5, 0.4, 0.8, 0.6, 0.7])
        mean = scaling.invert(offsets)
        covariance = (np.outer(weights, weights) + np.diag(std**2)) * np.outer(scaling.scale, scaling.scale)
        scores, filled = likelihoods(fitted, x, 50_000).original.log_prob, impute(fitted, x, 50_000)
        for row, score, full in zip(x, scores, filled, strict=True):
            seen, gone = np.flatnonzero(~np.isnan(row)), np.flatnonzero(np.isnan(row))
            inner = covariance[np.ix_(seen, seen)]
            assert score == pytest.approx(stats.multivariate_normal(mean[seen], inner).logpdf(row[seen]), abs=0.02)
            conditional = mean[gone] + covariance[np.ix_(gone, seen)] @ np.linalg.solve(inner, row[seen] - mean[seen])
            np.testing.assert_allclose((full[gone] - conditional) / scaling.scale[gone], 0.0, atol=0.02)
            np.testing.assert_array_equal(full[seen], row[seen])


def shares(outputs: np.ndarray) -> np.ndarray:
    return np.concatenate([softmax(part, -1) for part in np.split(outputs, np.cumsum(BLOCKS)[:-1], -1)], -1)


@pytest.mark.parametrize("name", NAMES)
class TestTheModel:
    def model(self, name: str, seed: int = 0, missing: bool = True):
        layout = Layout(5, BLOCKS if name == "categorical" else (), missing=missing)
        return build(Config(likelihood=name, hidden=(6,), seed=seed), layout).double()

    def test_what_stands_for_a_missing_value_does_not_matter(self, name):
        found = []
        for other in (0.0, 1.0):
            model = self.model(name)
            observed = torch.ones(3, 5).double()
            observed[0, :2] = observed[1, 2:] = 0.0
            x = torch.ones(3, 5).double() * torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0])
            x = torch.where(observed > 0, x, other)
            terms = model.terms(Batch(x, observed=observed), torch.ones(2, 3, 2))
            (terms.kl - terms.reconstruction).sum().backward()
            found.append([*terms, *(parameter.grad for parameter in model.parameters())])
        for one, other in zip(*found, strict=True):
            assert one.isfinite().all()
            torch.testing.assert_close(one, other, rtol=0, atol=0)

    def test_the_encoder_is_told(self, name):
        model, x = self.model(name), torch.zeros(1, 5).double()
        places = [model.encode(Batch(x, observed=torch.tensor([mask]).double())).loc for mask in ([1.0] * 5, [0.0] * 5)]
        assert not torch.allclose(*places)
        torch.testing.assert_close(places[0], model.encode(x).loc, rtol=0, atol=0)

    def test_a_stack_computes_what_each_model_does(self, name):
        models = [self.model(name, seed) for seed in (0, 1)]
        x = torch.from_numpy(np.tile(np.eye(5)[:3], (2, 1, 1)))
        batch = Batch(x, observed=(torch.rand(2, 3, 5) < 0.6).double())
        noise = torch.randn(2, 1, 3, 2)
        alone = [model.terms(batch.map(lambda t, k=k: t[k]), noise[k]) for k, model in enumerate(models)]
        for stacked, *each in zip(Stack(models).terms(batch, noise), *alone, strict=True):
            torch.testing.assert_close(stacked, torch.stack(each))

    def test_a_model_of_complete_data_has_no_mask(self, name):
        assert self.model(name, missing=False).encoder[1].in_features == 5
        assert self.model(name).encoder[1].in_features == 10


class TestData:
    def test_gaps_stay(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("k,a,b,c\nr,1,,red\ns,inf,2,\nt,3,4,blue\n")
        data, schema = load(path, id="k", categorical=["c"], missing="model")
        expected = [[1, NAN, 0, 1], [NAN, 2, NAN, NAN], [3, 4, 1, 0]]
        np.testing.assert_array_equal(data.x, expected)
        assert data.missing and data.arrays.missing and data.take([0]).arrays.missing
        assert any("left to the model: 'a' (1), 'b' (1), 'c' (1)" in note for note in data.notes)
        assert [column.fill for column in schema.columns] == [2.0, 3.0, 0.0]
        assert not load(path, id="k", categorical=["c"], missing="mean")[0].missing

    def test_a_row_without_values_is_refused(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("k,a,b\nr,1,2\nsilent,,\nt,3,4\n")
        with pytest.raises(CurvaeError, match="t.csv has rows without a single value: 'silent'; remove them"):
            load(path, id="k", missing="model")

    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
    def test_statistics_are_of_values_that_are_there(self, form):
        dense = np.random.default_rng(0).normal(size=(40, 4)) * [1, 10, 0, 0.1] + [0, 5, 3, -1]
        dense[::3, 1] = 0.0
        x = holes(dense)
        made = form(x)
        known = column_statistics(made)
        np.testing.assert_array_equal(known.low, np.nanmin(x, 0))
        np.testing.assert_array_equal(known.high, np.nanmax(x, 0))
        scaling = Scaling.standard(made)
        np.testing.assert_allclose(scaling.shift, np.nanmean(x, 0))
        np.testing.assert_allclose(scaling.scale, np.where(np.nanstd(x, 0) > 1e-9, np.nanstd(x, 0), 1.0))
        assert scaling.constant.tolist() == [False, False, True, False]
        expected = -(~np.isnan(x) * np.log(scaling.scale)).sum(1)
        np.testing.assert_allclose(scaling.log_jacobians(made), expected)
        known = column_statistics(form(np.array([[NAN, NAN], [1.0, NAN], [1.0, 2.0]])))
        assert known.empty.tolist() == [0] and known.complete == 1

    def test_a_column_without_a_value_among_some_rows(self):
        scaling = Scaling.standard(np.array([[1.0, NAN], [3.0, NAN]]))
        assert scaling.shift.tolist() == [2.0, 0.0] and scaling.scale.tolist() == [1.0, 1.0]

    def test_fingerprints_do_not_depend_on_the_bits_of_nan(self):
        x = np.array([[1.0, NAN], [2.0, 3.0]])
        other = x.copy()
        other.view(np.uint64)[0, 1] ^= 1 << 63 | 1
        assert np.isnan(other[0, 1]) and x.tobytes() != other.tobytes()
        made = [Dataset(v, ("a", "b"), (2,), np.array(["0", "1"])) for v in (x, other, np.nan_to_num(x))]
        assert made[0].fingerprint == made[1].fingerprint != made[2].fingerprint

    def test_likelihoods_are_chosen_by_values_that_are_there(self):
        for form in (np.asarray, sparse.csr_array):
            assert choose_likelihood(form(np.array([[1.0, NAN], [0.0, 1.0]])))[0] == "bernoulli"
            assert choose_likelihood(form(np.array([[3.0, NAN], [0.0, 1.0]])), "poisson")[0] == "poisson"
            with pytest.raises(CurvaeError, match="there is a value of -3"):
                choose_likelihood(form(np.array([[-3.0, NAN], [0.0, 1.0]])), "poisson")
        with pytest.raises(CurvaeError, match="from 0.5 to 3"):
            choose_likelihood(np.array([[3.0, NAN], [0.5, 1.0]]), "bernoulli")
        whole, partly = [[1.0, 0.0], [NAN, NAN]], [[1.0, 0.0], [NAN, 1.0]]
        assert choose_likelihood(np.array(whole), "categorical")[0] == "categorical"
        with pytest.raises(CurvaeError, match="missing as a whole"):
            choose_likelihood(np.array(partly), "categorical")


def correlated(rows: int = 120) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.normal(size=(rows, 1)) * [1.0, -1.0, 2.0, 0.5] + 0.1 * rng.normal(size=(rows, 4)) + [0, 3, 0, -1]


class TestTraining:
    config = Config(hidden=(16,), epochs=20, learning_rate=3e-2)

    def test_gaps_are_filled_from_what_goes_with_them(self):
        full = correlated()
        x = holes(full, 0.2)
        fitted = fit(self.config, Arrays(x, missing=True))
        gone = np.isnan(x)
        error = ((impute(fitted, x, 200) - full) / full.std(0))[gone]
        assert np.sqrt(np.mean(error**2)) < 0.5  # a mean would be off by 1

    def test_together_as_alone(self):
        data = [Arrays(holes(correlated(40), seed=seed), missing=True) for seed in (0, 1)]
        configs = [Config(hidden=(8,), epochs=3, seed=seed) for seed in (0, 1)]
        for config, one, together in zip(configs, data, fit_many(configs, data), strict=True):
            assert fit(config, one).last["elbo"] == pytest.approx(together.last["elbo"], rel=1e-5)

    def test_sparse_rows_as_dense_ones(self):
        x = holes(np.where(correlated(40) > 0, correlated(40), 0.0))
        held = [Arrays(form(x), missing=True) for form in (np.asarray, sparse.csr_array)]
        dense, thin = (fit(Config(hidden=(8,), epochs=2), arrays) for arrays in held)
        assert dense.last["elbo"] == pytest.approx(thin.last["elbo"], rel=1e-5)
        filled = impute(dense, sparse.csr_array(x), 50)
        assert sparse.issparse(filled)
        np.testing.assert_allclose(filled.toarray(), impute(dense, x, 50))

    def test_figures_of_a_row_depend_on_nothing_else(self):
        x = holes(correlated(40))
        fitted = fit(Config(hidden=(8,), epochs=2), Arrays(x, missing=True))
        np.testing.assert_allclose(impute(fitted, x, 700)[7:9], impute(fitted, x[7:9], 700), rtol=1e-12)
        np.testing.assert_allclose(embed(fitted, x).space[7:9], embed(fitted, x[7:9]).space, rtol=1e-12)

    def test_other_data_are_noticed_on_resuming(self, tmp_path):
        x, config = correlated(40), Config(hidden=(8,), epochs=2)
        fit(config, Arrays(x, missing=True), folder=tmp_path)
        with pytest.raises(CurvaeError):
            fit(config, x, folder=tmp_path, resume=True)


class TestEstimator:
    settings: ClassVar[dict] = {"hidden": (8,), "epochs": 5, "random_state": 0, "advanced": {"importance_samples": 100}}

    def test_it_takes_gaps(self, tmp_path):
        x = holes(correlated(60))
        model = PoincareVAE(missing="model", **self.settings).fit(x)
        assert np.isfinite(model.transform(x)).all() and np.isfinite(model.score_samples(x)).all()
        filled = model.impute(x)
        np.testing.assert_array_equal(filled[~np.isnan(x)], x[~np.isnan(x)])
        assert np.isfinite(filled).all()
        model.save(tmp_path / "run")
        again = PoincareVAE.load(tmp_path / "run")
        assert again.missing == "model"
        np.testing.assert_allclose(again.impute(x), filled, rtol=1e-6)

    def test_several_trainings(self):
        model = PoincareVAE(missing="model", n_init=2, **self.settings).fit(holes(correlated(60)))
        assert model._fitted.layout.missing

    def test_scores_change_with_units_by_the_values_that_are_there(self):
        x, factors = holes(correlated(60)), np.array([2.0, 0.25, 1024.0, 1.0])
        scores = [PoincareVAE(missing="model", **self.settings).fit(v).score_samples(v) for v in (x, x * factors)]
        expected = -(~np.isnan(x) * np.log(factors)).sum(1)
        np.testing.assert_allclose(scores[1] - scores[0], expected, atol=1e-6)

    def test_a_row_says_less_without_a_value(self):
        x = correlated(60)
        model = PoincareVAE(missing="model", likelihood="unit_gaussian", **self.settings).fit(x)
        fewer = x[:1].copy()
        fewer[0, 1] = NAN
        assert model.score_samples(x[:1]) != model.score_samples(fewer)

    def test_what_is_refused(self):
        x = holes(correlated(60))
        with pytest.raises(
            CurvaeError, match='by column: .*; use `missing="drop"` or `missing="mean"`, .*`missing="model"`'
        ):
            PoincareVAE(**self.settings).fit(x)
        with pytest.raises(CurvaeError, match="`missing` must be one of error, drop, mean, model; got 'median'"):
            PoincareVAE(missing="median", **self.settings).fit(correlated(60))
        x[:, 2] = NAN
        with pytest.raises(CurvaeError, match="X has columns without a single value: 'x3'; remove them"):
            PoincareVAE(missing="model", **self.settings).fit(x)


class TestCommands:
    @pytest.fixture
    def table(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(holes(correlated(40)), columns=list("abcd")).assign(
            count=rng.integers(9, size=40),
            colour=np.where(rng.random(40) < 0.2, None, np.where(correlated(40)[:, 0] > 0, "red", "blue")),
        )
        frame.insert(0, "name", [f"r{i}" for i in range(40)])
        frame["kind"] = rng.choice(["x", "y"], 40)
        frame.to_csv("t.csv", index=False)
        return frame

    read = ("--id", "name", "--label", "kind", "--categorical", "colour")

    def test_from_gaps_to_a_full_table(self, table):
        found = curvae("fit", "t.csv", *self.read, "--missing", "model", *SMALL, "-o", "run", pictures=True)
        assert found.code == 0 and "--missing model" in found.out
        assert len(pd.read_csv("run/embedding.csv")) == 40
        assert curvae("embed", "run", "t.csv", "-o", "e.csv").code == 0
        np.testing.assert_allclose(
            pd.read_csv("e.csv")["tangent_1"], pd.read_csv("run/embedding.csv")["tangent_1"], rtol=1e-6
        )
        parts = curvae("evaluate", "run", "t.csv", "--samples", "20", "--json").json["parts"]
        assert set(parts) == {"train", "validation"}
        found = curvae("impute", "run", "t.csv", "-o", "full.csv", "--samples", "50", "--json").json
        gaps = table.drop(columns=["name", "kind"]).isna()
        assert found == {"imputed": "full.csv", "values": int(gaps.sum().sum()), "rows": int(gaps.any(axis=1).sum())}
        full = pd.read_csv("full.csv", **EXACT)
        assert list(full.columns) == ["name", "kind", "a", "b", "c", "d", "count", "colour"]
        assert not full.isna().any().any() and set(full["colour"]) == {"red", "blue"}
        for name in gaps:
            there = ~gaps[name]
            assert (full[name][there] == table[name][there]).all()
        assert "\nr0," in Path("full.csv").read_text() and full["count"].dtype == np.int64
        refused("impute", "run", "t.csv", "-o", "full.csv", "--quiet", says=["--force"])
        said = curvae("impute", "run", "t.csv", "-o", "full.csv", "--samples", "50", "--force").out
        assert f"{found['values']} values in {found['rows']} rows" in said
        assert "next: curvae diagnose full.csv --label kind --id name --categorical colour\n" in said

    def test_rows_keep_their_names(self, table):
        """Those of the table: of a column without a name too, and no numbers where it has none."""
        curvae("fit", "t.csv", *self.read, "--missing", "model", *SMALL, "-o", "run")
        how = ("-o", "full.csv", "--force", "--samples", "20")
        table.rename(columns={"name": ""}).to_csv("unnamed.csv", index=False)
        table.drop(columns="name").to_csv("bare.csv", index=False)
        for file, first in (("unnamed.csv", "\nr0,"), ("bare.csv", f"\n{table['kind'][0]},")):
            found = curvae("impute", "run", file, *how)
            assert found.code == 0 and first in Path("full.csv").read_text(), found.err
            assert "next: curvae diagnose full.csv --label kind --categorical colour\n" in found.out
        with mock.patch("curvae.training.fitted._expected", return_value=np.full((40, 99), np.nan)):
            name = table["name"][table.drop(columns=["name", "kind"]).isna().any(axis=1)].iloc[0]
            refused("impute", "run", "t.csv", "-q", *how, says=["not finite", f"rows: '{name}', "])

    def test_what_is_refused(self, table):
        table.fillna({"a": 0, "b": 0, "c": 0, "d": 0, "colour": "red"}).to_csv("full.csv", index=False)
        curvae("fit", "full.csv", *self.read, *SMALL, "-o", "run")
        for command in ("embed", "evaluate"):
            refused(command, "run", "t.csv", "--missing", "model", says=["not trained with --missing model"])
        refused("impute", "run", "t.csv", says=["not trained with --missing model"])
        refused("diagnose", "t.csv", *self.read, "--missing", "model", says=["--missing"])

    def test_compare(self, table):
        found = curvae(
            "compare", "t.csv", *self.read, "--missing", "model", *SMALL, "--repeats", "3", "--curvatures", "1",
            "--jobs", "1", "--json",
        )  # fmt: skip
        assert found.code == 0 and all(repeat["pca"] is None for repeat in found.json["repeats"])

    def test_exposure_and_covariates_stay(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        rng = np.random.default_rng(0)
        counts = rng.poisson(4.0, (40, 3)).astype(float)
        counts[3, 1] = counts[8, 2] = NAN
        frame = pd.DataFrame(counts, columns=list("abc")).assign(
            days=rng.integers(1, 9, 40), age=rng.normal(40, 10, 40).round(1), batch=rng.choice(["u", "v"], 40)
        )
        frame.to_csv("t.csv", index=False)
        told = ("--exposure", "days", "--covariate", "age", "--covariate", "batch", "--likelihood", "poisson")
        assert curvae("fit", "t.csv", *told, "--missing", "model", *SMALL, "-o", "run").code == 0
        found = curvae("impute", "run", "t.csv", "-o", "full.csv", "--samples", "20")
        assert found.code == 0 and "2 values in 2 rows\nnext: curvae view run\n" in found.out
        full = pd.read_csv("full.csv")
        pd.testing.assert_frame_equal(full[["days", "age", "batch"]], frame[["days", "age", "batch"]])
        assert (full["a"] == frame["a"]).all() and full["b"].notna().all()

    def test_images(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        images = np.random.default_rng(0).random((30, 4, 3))
        images[0, 1, 2] = images[5, 0, 0] = NAN
        np.save("i.npy", images)
        assert curvae("fit", "i.npy", "--missing", "model", *SMALL, "-o", "run", pictures=True).code == 0
        assert curvae("view", "run", "--data", "i.npy", "--thumbnails").code == 0
        assert curvae("impute", "run", "i.npy", "--json").json == {"imputed": "i-imputed.npy", "values": 2, "rows": 2}
        full = np.load("i-imputed.npy")
        assert np.isfinite(full).all()
        np.testing.assert_array_equal(full[~np.isnan(images)], images[~np.isnan(images)])


def test_what_is_filled_in_are_values_that_data_have(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(40, 3)), columns=list("abc")).assign(smoker=random.integers(2, size=40))
    gaps = frame.mask(random.random(frame.shape) < 0.15)
    gaps.to_csv("t.csv", index=False)
    assert curvae("fit", "t.csv", "-o", "run", "--missing", "model", *SMALL).code == 0
    assert curvae("impute", "run", "t.csv", "-o", "filled.csv").code == 0
    filled = pd.read_csv("filled.csv")
    assert set(filled["smoker"]) == {0, 1} and bool(filled.notna().to_numpy().all())
    known = gaps.notna()
    np.testing.assert_allclose(filled.to_numpy()[known], gaps.to_numpy()[known])
    assert curvae("embed", "run", "filled.csv").code == 0


def test_rows_without_a_value_are_refused_by_the_estimator():
    x = np.random.default_rng(0).normal(size=(20, 3))
    x[4] = np.nan
    with pytest.raises(CurvaeError, match="rows without a single value: '4'"):
        PoincareVAE(missing="model", epochs=1, hidden=(4,)).fit(x)
