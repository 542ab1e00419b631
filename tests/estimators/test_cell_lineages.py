"""Lineages of cells: counts along a fork that is known, what is written to the cells, and expression by hand."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from curvae import CellVAE, CurvaeError
from curvae.data import Arrays
from curvae.hierarchy import parse_newick
from curvae.hierarchy.lineages import calibrate, draw_places, find_lineage, times_along
from curvae.training import embed, fit

anndata = pytest.importorskip("anndata")
# anndata 0.12 asks pandas 3 for options that are going to be removed.
pytestmark = pytest.mark.filterwarnings("ignore:The '.*' option is deprecated")

GENES = 16


def cells(rows=240, seed=0):
    """Cells on a fork: up to half of the way all are alike, then genes 0 to 3 grow on the branch a, 4 to 7 on b."""
    random = np.random.default_rng(seed)
    time, branch = random.uniform(0, 1, rows), random.integers(2, size=rows)
    logs = np.full((rows, GENES), np.log(15.0))
    logs[:, 8:12] += 2.0 * np.minimum(time, 0.5)[:, None]
    for one in (0, 1):
        logs[:, 4 * one : 4 * one + 4] += np.where(branch == one, 4.0 * np.maximum(time - 0.5, 0), 0.0)[:, None]
    plate = random.integers(2, size=rows)
    logs[:, 12:] += 0.3 * plate[:, None]
    x = random.poisson(np.exp(logs))
    group = np.where(time < 0.3, "start", np.where(time < 0.6, "fork", np.where(branch == 0, "a", "b")))
    obs = pd.DataFrame({"group": group, "plate": plate.astype(str)}, index=[f"cell{i}" for i in range(rows)])
    obs.loc[obs.index[:3], "group"] = None
    made = anndata.AnnData(
        csr_array(x.astype(np.float32)), obs=obs, var=pd.DataFrame(index=[f"g{i}" for i in range(GENES)])
    )
    return made, time


@pytest.fixture(scope="module")
def model():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The '.*' option is deprecated")
        adata, time = cells()
        CellVAE.setup_anndata(adata, batch_key="plate", labels_key="group")
        made = CellVAE(adata, n_hidden=32, n_latent=2, random_state=0, neighbours="off")
        made.train(max_epochs=30, batch_size=24)
        return made, time


@pytest.fixture(scope="module")
def found(model):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The '.*' option is deprecated")
        return model[0].lineage("start")


def test_a_fork_is_found_and_written(model, found, tmp_path):
    model, time = model
    obs, stored = model.adata.obs, model.adata.uns["curvae_lineage"]
    assert np.corrcoef(obs["curvae_pseudotime"], time)[0, 1] > 0.8
    assert (obs["curvae_pseudotime_low"] <= obs["curvae_pseudotime"]).all()
    assert (obs["curvae_pseudotime"] <= obs["curvae_pseudotime_high"]).all()
    ends = obs["curvae_branch"].astype(str)
    for one, other in ("ab", "ba"):
        assert (ends[obs["group"] == one] == one).mean() > 0.7 > 0.2 > (ends[obs["group"] == other] == one).mean()
    probability = model.adata.obsm["curvae_branch_probability"]
    assert probability.shape == (240, len(stored["branches"])) and np.allclose(probability.sum(1), 1)
    read = parse_newick(stored["newick"])
    assert stored["root"] == "start" and set(read.names) == {"start", "fork", "a", "b"} == {
        "start",
        *stored["edges"]["group"],
    }
    assert found.path("a").tolist()[0] == 0 and not stored["chosen"]
    model.adata.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad").uns["curvae_lineage"]
    assert (
        again["newick"] == stored["newick"] and again["edges"]["length"].tolist() == stored["edges"]["length"].tolist()
    )
    # The draws and the tree are the same each time.
    assert (model.lineage("start").low == found.low).all()


def test_the_root_may_be_a_cell_and_cells_may_be_others(model):
    model, _ = model
    other, time = cells(60, seed=5)
    other.obs["kind"] = np.where(time < 0.5, "early", "late")
    found = model.lineage("cell7", groups="kind", adata=other)
    assert found.root == "cell7" and found.pseudotime[7] == 0.0
    assert len(other.obs["curvae_pseudotime"]) == 60
    assert model.lineage(groups="kind", adata=other[:45].copy(), draws=19).chosen


def test_a_single_training_is_calibrated_and_drawn_once(model, found):
    model, _ = model
    groups = np.asarray(model.adata.obs["group"].astype(object).fillna(""), dtype=str)
    arrays, placed, random = Arrays.of(model._data), embed(model._fitted, model._data), np.random.default_rng(0)
    factor = calibrate(model._fitted, partial(embed, model._fitted), arrays, placed, groups, "start", 0)
    draws = [draw_places(model._fitted, placed, random, factor(arrays)) for _ in range(25)]
    same = find_lineage(placed, groups, "start", draws=draws)
    assert found.calibrated and not same.calibrated and found.newick() == same.newick()
    for name in ("pseudotime", "low", "high", "probability", "branch", "support", "drawn"):
        np.testing.assert_array_equal(getattr(found, name), getattr(same, name))


def test_further_trainings_widen_intervals(model, found, monkeypatch):
    model, time = model
    own, trained = model.adata.copy(), []
    monkeypatch.setattr(
        "curvae.estimators.cells.fit", lambda *how, **more: trained.append((how, more)) or fit(*how, **more)
    )
    pooled = model.lineage("start", repeats=2, adata=own)
    (((config, data), more),) = trained
    assert config == replace(model._fitted.config, seed=1) and data is model._data
    assert more["split"] is model._fitted.split
    widths = [(one.high - one.low).mean() for one in (found, pooled)]
    assert widths[1] >= widths[0] and pooled.times.shape == (50, 240) and pooled.calibrated
    assert (pooled.low <= pooled.pseudotime).all() and (pooled.pseudotime <= pooled.high).all()
    assert np.corrcoef(pooled.pseudotime, time)[0, 1] > 0.8 and (pooled.pseudotime != found.pseudotime).any()
    assert (pooled.tree.height == found.tree.height).all() and (pooled.drawn == found.drawn).all()
    np.testing.assert_allclose(pooled.probability.sum(1), 1)
    # What is written is called as that of a single training.
    assert list(own.obs) == list(model.adata.obs) and own.uns.keys() == model.adata.uns.keys()
    assert (own.obs["curvae_pseudotime"] == pooled.pseudotime).all()


def test_repeats_that_cannot_be(model, tmp_path, monkeypatch):
    model, _ = model
    model.save(tmp_path / "run")
    for loaded in (CellVAE.load(tmp_path / "run"), CellVAE.load(tmp_path / "run", model.adata[::-1].copy())):
        with pytest.raises(CurvaeError, match="`repeats` needs the cells of the training; load the model with them"):
            loaded.lineage("start", draws=19, repeats=2, adata=model.adata.copy())
    query, _ = cells(60, seed=5)
    query.obs["plate"] = "new"
    mapped = CellVAE.load_query_data(query, model)
    mapped.train(max_epochs=1)
    with pytest.raises(CurvaeError, match="`repeats` means nothing to the model of a query"):
        mapped.lineage(groups="group", draws=19, repeats=2)
    with pytest.raises(CurvaeError, match="^`repeats` must be a whole number of at least 1, got 0$") as error:
        model.lineage("start", repeats=0)
    assert error.value.parameter == "repeats"
    failed = replace(model._fitted, failure="the loss is not finite")
    monkeypatch.setattr("curvae.estimators.cells.fit", lambda *how, **more: failed)
    with pytest.raises(CurvaeError, match="^training 2 of 3 ended early: the loss is not finite$"):
        model.lineage("start", repeats=3)


def coverage(place, fitted, cells, found, factor):
    """Share of cells of which 0 lies among the differences of draws of two fresh halves, split gene by gene."""
    random, drawn = np.random.default_rng(123), []
    x = cells.x.toarray().astype(np.int64)
    first = random.binomial(x, 0.5)
    for half in (first, x - first):
        own = replace(cells, x=csr_array(half.astype(np.float32)), size=half.sum(1).astype(np.float64))
        placed, scale = place(fitted, own), factor(own)
        draws = [draw_places(fitted, placed, random, scale) for _ in range(40)]
        drawn.append(times_along(np.concatenate(draws), found.nodes, found.tree)[0].reshape(40, -1))
    low, high = np.quantile(drawn[0] - drawn[1], [0.05, 0.95], axis=0)
    return ((low <= 0) & (high >= 0)).mean()


@pytest.mark.parametrize("wrong", [0.2, 2.0])
def test_intervals_hold_and_widen_as_totals_fall(model, monkeypatch, wrong):
    def place(*how):
        found = embed(*how)
        return replace(found, sigma=found.sigma * wrong)

    model, _ = model
    other, _ = cells(200, seed=5)
    few, x = np.arange(200) % 2 == 0, other.X.toarray().astype(np.int64)
    other.X = csr_array(np.where(few[:, None], np.random.default_rng(6).binomial(x, 0.25), x).astype(np.float32))
    arrays = Arrays.of(model._read(other, None, decode=False))
    factors = []
    monkeypatch.setattr("curvae.estimators.cells.embed", place)
    monkeypatch.setattr(
        "curvae.hierarchy.lineages.calibrate", lambda *how: factors.append(calibrate(*how)) or factors[0]
    )
    found = model.lineage("start", adata=other)
    (factor,) = factors
    raw = coverage(place, model._fitted, arrays, found, lambda _: 1.0)
    widths = found.high - found.low
    assert widths[few].mean() > 1.5 * widths[~few].mean()
    if wrong < 1:
        assert raw < 0.6 and 0.8 < coverage(place, model._fitted, arrays, found, factor) < 0.98
    else:  # draws end with the tree, so that intervals soon hold all of them
        assert raw > 0.98 and factor(arrays)[~few].mean() < 0.6


def test_few_cells_and_rates_are_not_calibrated(model):
    model, _ = model
    few, _ = cells(40, seed=5)
    arrays = Arrays.of(model._read(few, None, decode=False))
    for own in (arrays, replace(Arrays.of(model._data), size=None)):
        how = partial(embed, model._fitted)
        assert calibrate(model._fitted, how, own, model._embedding, few.obs["group"]) is None


def test_expression_is_that_of_the_decoder_in_every_batch(model, found):
    model, _ = model
    table = model.expression_along(found, "a", ["g5", "g0"], steps=7)
    assert table.columns.tolist() == ["gene", "pseudotime", "mean", "low", "high"]
    assert table["gene"].tolist() == ["g0"] * 7 + ["g5"] * 7
    at = table["pseudotime"].to_numpy()[:7]
    assert at[0] == 0 and at[-1] == pytest.approx(found.tree.height[found.path("a")[-1]])
    ends = found.nodes.space[found.path("a")[[0, -1]]]
    plates = [model._fitted.reconstruct(ends, context=np.tile(one, (2, 1))) for one in np.eye(2)]
    np.testing.assert_allclose(table["mean"].to_numpy()[[0, 6]], np.mean(plates, 0)[:, 0], rtol=1e-6)
    assert (table["low"] <= table["high"]).all()
    # Genes of the branch grow along it, and those of the other do not; so they are the ones that change most.
    grown = table.groupby("gene")["mean"].agg(lambda values: values.iloc[-1] / values.iloc[0])
    assert grown["g0"] > 1.3 > 1.15 > grown["g5"]
    assert set(model.expression_along(found, "a", count=4)["gene"]) == {"g0", "g1", "g2", "g3"}
    with pytest.raises(CurvaeError, match="`gene_list` has genes that the model does not know: 'x'"):
        model.expression_along(found, "a", ["x"])


def test_what_is_wrong_is_one_line(model):
    model, _ = model
    for how, says in (
        ({"root": "x"}, r"`root` is no cell and no group, 'x'; groups are"),
        ({"groups": "groop"}, r"has no column 'groop' for `groups=…`; did you mean 'group'\?"),
        ({"groups": "plate", "draws": 3}, "`draws` must be at least 19 for a 90 % interval, got 3"),
    ):
        with pytest.raises(CurvaeError, match=says) as error:
            model.lineage(**how)
        assert "\n" not in str(error.value)
    untrained, _ = cells(60)
    CellVAE.setup_anndata(untrained)
    with pytest.raises(CurvaeError, match="not trained yet"):
        CellVAE(untrained).lineage()
