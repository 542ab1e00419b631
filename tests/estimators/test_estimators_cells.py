"""`CellVAE` beside what scvi-tools promises: a notebook, every value by other means, and what is refused."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from scipy.special import expit, softmax

from cell_files import counts, describe
from curvae import CellVAE, CurvaeError
from curvae.data import load
from curvae.models import marginal, marginal_likelihood
from curvae.models.marginal import refined_outputs
from curvae.training import embed
from running import curvae

anndata = pytest.importorskip("anndata")
# anndata 0.12 asks pandas 3 for options that are going to be removed.
pytestmark = pytest.mark.filterwarnings("ignore:The '.*' option is deprecated")

CELLS, GENES = 90, 25
KEYS = {"batch_key": "plate", "labels_key": "kind", "continuous_covariate_keys": ["age"]}


def cells(rows=CELLS, seed=0, sparse=False):
    x = counts(rows, GENES, seed)
    x[:, 3] = 0  # a gene without a count is kept
    x[:, 0] += 1
    var = pd.DataFrame(index=[f"g{j}" for j in range(GENES)])
    made = anndata.AnnData(np.log1p(x), obs=describe(rows), var=var)
    made.layers["counts"] = csr_array(x) if sparse else x
    return made


def trained(adata=None, keys=KEYS, epochs=2, **settings):
    adata = cells() if adata is None else adata
    CellVAE.setup_anndata(adata, layer="counts", **keys)
    model = CellVAE(adata, n_hidden=12, **{"n_latent": 3, **settings})
    model.train(max_epochs=epochs)
    return model


@pytest.fixture(scope="module")
def model():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The '.*' option is deprecated")
        return trained(gene_likelihood="zinb", encode_covariates=False)


def decoded(model, n_samples, context=None):
    """Outputs of the decoder, (n_samples, cells, outputs), at the draws that methods make."""
    fitted = model._fitted
    data, network = model._data, fitted.model
    generator = torch.Generator().manual_seed(fitted.config.seed)
    batch = fitted.rows(data).batch(torch.arange(len(data)))
    with torch.no_grad():
        z, _ = network.draw(batch, network.noise(len(data), n_samples, generator))
        return network.decode(z, batch.context if context is None else torch.from_numpy(context)).numpy()


# --- a notebook -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["nb", "zinb", "poisson"])
def test_a_notebook_runs_with_the_import_changed(likelihood, tmp_path):
    adata = cells(sparse=True)
    kept = adata.copy()
    CellVAE.setup_anndata(
        adata,
        layer="counts",
        batch_key="plate",
        labels_key="kind",
        categorical_covariate_keys=["tumour"],
        continuous_covariate_keys=["age"],
    )
    assert adata.uns["curvae_setup"]["categorical_covariate_keys"] == ["tumour"] and not kept.uns
    model = CellVAE(adata, n_hidden=12, n_latent=4, n_layers=2, dropout_rate=0.1, gene_likelihood=likelihood)
    assert not model.is_trained and model.adata is adata
    model.train(max_epochs=3, batch_size=32, train_size=0.8, early_stopping=False, accelerator="cpu", devices=1)
    assert model.is_trained
    for name in ("elbo", "reconstruction_loss", "kl_local"):
        for part in ("train", "validation"):
            frame = model.history[f"{name}_{part}"]
            assert list(frame) == [f"{name}_{part}"] and frame.index.tolist() == [0, 1, 2]
            assert (frame.to_numpy() > 0).all()  # a loss
    totals = model.history["reconstruction_loss_train"].to_numpy() + model.history["kl_local_train"].to_numpy()
    np.testing.assert_allclose(model.history["elbo_train"].to_numpy(), totals, rtol=1e-6)

    latent = model.get_latent_representation()
    assert latent.shape == (CELLS, 4)
    adata.obsm["X_scVI"] = latent
    mean, variance = model.get_latent_representation(return_dist=True)
    assert mean.shape == variance.shape == (CELLS, 4) and (variance > 0).all()
    np.testing.assert_array_equal(mean, latent)

    denoised = model.get_normalized_expression(adata, library_size=1e4, transform_batch=["p1", "p2"])
    assert isinstance(denoised, pd.DataFrame) and denoised.shape == (CELLS, GENES)
    assert denoised.index.tolist() == adata.obs_names.tolist() and list(denoised) == adata.var_names.tolist()
    np.testing.assert_allclose(denoised.sum(axis=1), 1e4, rtol=1e-4)

    elbo, log_prob = model.get_elbo(), model.get_marginal_ll(n_mc_samples=50)
    assert isinstance(elbo, float) and isinstance(log_prob, float) and elbo < log_prob < 0
    assert model.get_elbo(return_mean=False).shape == (CELLS,)
    assert model.get_marginal_ll(indices=[3, 1], n_mc_samples=5, return_mean=False).shape == (2,)
    error = model.get_reconstruction_error()
    assert list(error) == ["reconstruction_loss"] and 0 < error["reconstruction_loss"] < -elbo

    drawn = model.posterior_predictive_sample()
    assert drawn.shape == (CELLS, GENES) and (drawn >= 0).all() and (drawn % 1 == 0).all()
    assert model.posterior_predictive_sample(n_samples=3, gene_list=["g4", "g1"]).shape == (CELLS, 2, 3)
    names = {"nb": {"dispersions"}, "zinb": {"dispersions", "dropout"}, "poisson": set()}[likelihood]
    for draws, shape in ((1, (CELLS, GENES)), (2, (2, CELLS, GENES))):
        found = model.get_likelihood_parameters(n_samples=draws)
        assert found.keys() == {"mean", *names} and {one.shape for one in found.values()} == {shape}

    model.save(tmp_path / "model", save_anndata=True)
    for again in (CellVAE.load(tmp_path / "model", adata=adata), CellVAE.load(tmp_path / "model")):
        np.testing.assert_allclose(again.get_latent_representation(), latent, rtol=1e-4, atol=1e-5)
        assert again.get_elbo() == pytest.approx(elbo, rel=1e-5)
        pd.testing.assert_frame_equal(again.history["elbo_validation"], model.history["elbo_validation"])
    np.testing.assert_array_equal(adata.layers["counts"].toarray(), kept.layers["counts"].toarray())


# --- values by other means --------------------------------------------------------------------------------------------


def test_normalised_expression_by_hand(model):
    outputs = decoded(model, 1)[0]
    shares = softmax(outputs[:, :GENES], axis=1)
    np.testing.assert_allclose(model.get_normalized_expression(library_size=50), 50 * shares, rtol=1e-5)
    totals = model.adata.layers["counts"].sum(1, keepdims=True)
    np.testing.assert_allclose(model.get_normalized_expression(library_size="latent"), totals * shares, rtol=1e-5)
    found = model.get_likelihood_parameters()
    np.testing.assert_allclose(found["mean"], totals * shares, rtol=1e-5)
    np.testing.assert_allclose(found["dropout"], expit(outputs[:, -GENES:]), rtol=1e-5)
    theta = model._fitted.model.likelihood.log_dispersion.detach().exp()
    np.testing.assert_allclose(found["dispersions"], theta.expand(CELLS, -1), rtol=1e-5)
    # Genes are in the order of the model, and cells in that of the indices.
    some = model.get_normalized_expression(gene_list=["g7", "g2"], indices=[5, 2])
    assert list(some) == ["g2", "g7"] and some.index.tolist() == ["cell5", "cell2"]
    assert isinstance(model.get_normalized_expression(return_numpy=True), np.ndarray)


def test_draws_and_their_mean(model):
    every = model.get_normalized_expression(n_samples=4, return_mean=False)
    assert every.shape == (4, CELLS, GENES) and every.std(0).max() > 0
    np.testing.assert_allclose(every, softmax(decoded(model, 4)[..., :GENES], axis=-1), rtol=1e-5)
    np.testing.assert_allclose(model.get_normalized_expression(n_samples=4), every.mean(0), rtol=1e-5)


def test_another_batch_changes_the_decoder_alone(model):
    """The context is age, which stays, and three plates; the places are those of the real batches."""
    context = np.array(model._data.context)
    first, batches = model._schema.batch
    assert batches == 3 and context.shape == (CELLS, 4)
    shares = []
    for place in (0, 2):
        context[:, first : first + batches] = np.eye(batches)[place]
        shares.append(softmax(decoded(model, 1, context)[0][:, :GENES], axis=1))
    for names, expected in (("p1", shares[0]), (["p3"], shares[1]), (["p1", "p3"], np.mean(shares, 0))):
        np.testing.assert_allclose(model.get_normalized_expression(transform_batch=names), expected, rtol=1e-5)
    assert np.abs(shares[0] - shares[1]).max() > 1e-4


def test_size_factors_are_rates_per_unit():
    adata = cells()
    made = trained(adata, {"size_factor_key": "factor"})
    outputs = decoded(made, 1)[0]
    np.testing.assert_allclose(made.get_normalized_expression(), np.exp(outputs), rtol=1e-5)
    factors = adata.obs["factor"].to_numpy()[:, None]
    np.testing.assert_allclose(made.get_normalized_expression(library_size="latent"), factors * np.exp(outputs), 1e-5)


@pytest.mark.parametrize("space", ["h3:0.7", "h2,e2", "e3"])
def test_coordinates(space):
    made = trained(space=space)
    dims = [int(factor[1]) for factor in space.split(",")]
    tangent, ball, ambient = (made.get_latent_representation(coordinates=n) for n in ("tangent", "ball", "ambient"))
    found = embed(made._fitted, made._data)
    np.testing.assert_array_equal(tangent, found.tangent)
    np.testing.assert_array_equal(ball, found.ball)
    assert tangent.shape == ball.shape == (CELLS, sum(dims)) and ambient.shape == (CELLS, sum(dims) + len(dims))
    start = 0
    for dim, factor in zip(dims, found.placed, strict=True):
        time, points = ambient[:, start], ambient[:, start + 1 : start + 1 + dim]
        np.testing.assert_allclose(time**2 - factor.c * (points**2).sum(1), 1.0, rtol=1e-9)
        start += dim + 1
    _, variance = made.get_latent_representation(return_dist=True)
    units = [1.0] if len(dims) == 1 else [factor.unit for factor in found.placed]
    expected = np.concatenate(
        [
            np.tile((s / u)[:, None] ** 2, d)
            for s, u, d in zip(found.sigma.reshape(CELLS, -1).T, units, dims, strict=True)
        ],
        1,
    )
    np.testing.assert_allclose(variance, expected)
    drawn = made.get_latent_representation(give_mean=False)
    assert drawn.shape == tangent.shape and np.abs(drawn - tangent).max() > 0.01


def test_flat_draws_have_the_spread_that_is_told():
    made = trained(curvature=0, n_latent=2)
    mean, variance = made.get_latent_representation(return_dist=True)
    standard = (made.get_latent_representation(give_mean=False) - mean) / np.sqrt(variance)
    assert abs(standard.mean()) < 0.25 and 0.8 < standard.std() < 1.2


# --- differential expression ------------------------------------------------------------------------------------------


def test_populations_are_named_in_every_way(model):
    obs, names = model.adata.obs, model.adata.obs_names
    whole = model.differential_expression()  # of the labels
    kinds = obs["kind"].unique()
    assert len(whole) == len(kinds) * GENES and whole["comparison"].unique().tolist() == [
        f"{kind} vs Rest" for kind in sorted(kinds)
    ]
    assert {"proba_de", "proba_not_de", "bayes_factor", "scale1", "lfc_median", "raw_mean2"} < {*whole}
    one = whole[whole["group1"] == "type 1"].drop(columns=["comparison", "group1", "group2"])
    mask = (obs["kind"] == "type 1").to_numpy()
    for cells in (mask, np.flatnonzero(mask), "kind == 'type 1'"):
        same = model.differential_expression(idx1=cells).drop(columns=["comparison", "group1", "group2"])
        pd.testing.assert_frame_equal(same, one)
    pair = model.differential_expression(groupby="plate", group1="p1", group2="p3", batch_correction=True)
    assert pair["comparison"].unique().tolist() == ["p1 vs p3"]
    kept = model.differential_expression(
        groupby="plate", group1="p1", group2="p3", batch_correction=True, batchid1=["p1"], batchid2=["p3"]
    )
    own = model.differential_expression(groupby="plate", group1="p1", group2="p3")
    np.testing.assert_allclose(kept.loc[own.index, "scale2"], own["scale2"])  # each as of its own batch
    assert not np.allclose(pair.loc[own.index, "scale2"], own["scale2"], rtol=1e-6)

    way = model.differential_expression(path=(names[3], "type 1"))
    back = model.differential_expression(path=("type 1", names[3])).loc[way.index]
    np.testing.assert_allclose(way["lfc_mean"], -back["lfc_mean"], atol=1e-9)
    assert way["comparison"].unique().tolist() == [f"type 1 vs {names[3]}"]
    found = embed(model._fitted, model._data)
    nearest = np.argsort(found.take(np.array([3])).distances(found)[0])[: CELLS // 5]
    expected = model.adata.layers["counts"][nearest].mean(0)
    np.testing.assert_allclose(way["raw_mean2"].loc[model.adata.var_names], expected, rtol=1e-6)


def test_cells_that_are_named_need_no_labels(model):
    bare = model.adata.copy()
    del bare.obs["kind"]
    some = np.arange(10)
    given = model.differential_expression(idx1=some)
    pd.testing.assert_frame_equal(model.differential_expression(bare, idx1=some), given)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"idx1": [0], "path": ("a", "b")}, "and not by two of these"),
        ({"idx2": [0]}, "and not by two of these"),
        ({"idx1": [CELLS]}, "`idx1` must name cells by a mask, by numbers or by a query"),
        ({"idx1": [1, 2]}, "'Group 1' has 2 cells; give populations of 5 or more"),
        ({"path": ("cell1", "nowhere")}, "`path` is no cell and no group, 'nowhere'"),
        ({"groupby": "nothing"}, "'nothing'"),
        ({"batchid1": ["p1"]}, "need `batch_correction=True`"),
        ({"batch_correction": True, "batchid1": ["p9"]}, "`batchid1` names unknown batches 'p9'"),
        ({"weights": "uniform"}, "`weights` means nothing to CellVAE"),
    ],
)
def test_populations_that_are_refused(model, asked, message):
    with pytest.raises(CurvaeError, match=re.escape(message)):
        model.differential_expression(**asked)


# --- refined posteriors -----------------------------------------------------------------------------------------------


def test_refined_posteriors_are_better_in_their_own_family(model, monkeypatch):
    fitted = model._fitted
    network, batch = fitted.model, fitted.rows(model._data).batch(torch.arange(CELLS))

    before, after = network.head_outputs(batch), refined_outputs(network, batch, 40, rows=64)
    noise = network.noise(1, 200, torch.Generator().manual_seed(7))

    def elbo(head):
        with torch.no_grad():
            reconstruction, kl = network.terms(batch, noise, head=head)
        return (reconstruction - kl).mean(0)

    assert after.shape == before.shape
    assert elbo(after).mean() > elbo(before).mean() + 0.05 and (elbo(after) > elbo(before) - 0.1).all()
    np.testing.assert_array_equal(refined_outputs(network, batch, 0).detach(), before.detach())
    # Each row by itself.
    one = refined_outputs(network, batch.map(lambda part: part[4:5]), 40)
    np.testing.assert_allclose(one, after[4:5], atol=1e-6)

    shared = [marginal_likelihood(network, batch, 30, torch.Generator().manual_seed(1), True, refine=5).log_prob]
    monkeypatch.setitem(marginal._CHUNK, "cpu", 1 << 12)  # in pieces of a few rows
    shared.append(marginal_likelihood(network, batch, 30, torch.Generator().manual_seed(1), True, refine=5).log_prob)
    np.testing.assert_allclose(*shared, rtol=1e-9)
    monkeypatch.undo()

    plain, ess = model.get_marginal_ll(n_mc_samples=100, return_ess=True)
    better, more = model.get_marginal_ll(n_mc_samples=100, return_ess=True, refine=40)
    assert more.mean() > 1.3 * ess.mean() and better > plain - 0.05
    assert ess.shape == (CELLS,) and ess.min() >= 1 and more.max() <= 100
    assert model.get_marginal_ll(n_mc_samples=100, refine=0) == plain
    generator = torch.Generator().manual_seed(fitted.config.seed)
    by_hand = marginal_likelihood(network, batch, 100, generator).log_prob
    assert float(by_hand.mean()) == pytest.approx(plain, rel=1e-12)


def test_refined_estimates_agree_with_quadrature():
    made = trained(curvature=0, n_latent=1, neighbours="off", keys={})
    network, batch = made._fitted.model, made._fitted.rows(made._data).batch(torch.arange(CELLS))
    grid = torch.linspace(-8, 8, 801, dtype=torch.float64)
    scale = float(made._fitted.figures[0].prior_scale)
    with torch.no_grad():
        joint = network.reconstruction((scale * grid)[:, None, None].expand(-1, CELLS, 1), batch)
    weights = torch.distributions.Normal(0.0, 1.0).log_prob(grid) + (grid[1] - grid[0]).log()
    exact = torch.logsumexp(joint + weights[:, None], 0).numpy()
    found, ess = made.get_marginal_ll(n_mc_samples=2000, return_mean=False, refine=30, return_ess=True)
    np.testing.assert_allclose(found, exact, atol=0.02)
    assert np.median(ess) > 1700


# --- files ------------------------------------------------------------------------------------------------------------


def test_commands_open_what_was_saved(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model.save("run", save_anndata=True)
    data, _ = load("run/adata.h5ad", schema=model._schema)
    assert data.fingerprint == model._data.fingerprint
    said = curvae("view", "run", "-o", "map.html")
    assert said.code == 0 and Path("map.html").exists(), said
    said = curvae("judge", "run/adata.h5ad", "run", "--layer", "counts", "--batch-key", "plate")
    assert said.code == 0 and f"{CELLS} rows matched by id" in said.out + said.err, said
    assert curvae("embed", "run", "run/adata.h5ad", "-o", "again.csv").code == 0
    table, again = pd.read_csv("run/embedding.csv"), pd.read_csv("again.csv")
    assert table["label"].tolist() == model.adata.obs["kind"].tolist()
    np.testing.assert_allclose(again.filter(like="tangent"), table.filter(like="tangent"), atol=1e-5)
    said = curvae("evaluate", "run", "run/adata.h5ad", "--samples", 40, "--refine", 10, "--json")
    parts = said.json["parts"]
    assert said.json["refine"] == 10 and parts["train"]["rows"] == 81 and parts["validation"]["rows"] == 9, said
    plain = curvae("evaluate", "run", "run/adata.h5ad", "--samples", 40)
    assert "effective sample size" in plain.out and "give --refine 50 or raise --samples" in plain.out
    assert model.get_marginal_ll(n_mc_samples=40, refine=10) == pytest.approx(
        (81 * parts["train"]["log_likelihood"] + 9 * parts["validation"]["log_likelihood"]) / 90, abs=0.3
    )
    model.save("run", overwrite=True)
    for refused in ("run", tmp_path):
        with pytest.raises(CurvaeError, match="exists"):
            model.save(refused)


def test_a_run_of_the_command_line_is_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adata = cells()
    with anndata.settings.override(allow_write_nullable_strings=True):
        adata.write_h5ad("cells.h5ad")
    words = "--layer counts --batch-key plate --genes 20 --hidden 8 --epochs 2 -o run"
    assert curvae("fit", "cells.h5ad", *words.split()).code == 0
    made = CellVAE.load("run", adata)
    assert made.get_latent_representation().shape == (CELLS, 2)
    assert made.get_normalized_expression(transform_batch="p2").shape == (CELLS, 20)
    made.train(max_epochs=1)
    without = CellVAE.load("run")
    assert without.get_latent_representation(adata).shape == (CELLS, 2)
    for call in (without.get_elbo, without.train):
        with pytest.raises(CurvaeError, match="loaded without cells"):
            call()


def test_the_map_is_added_to_cells(model):
    new = cells(40, seed=1)
    model.write(new, n_neighbours=5)
    np.testing.assert_array_equal(new.obsm["X_curvae"], model.get_latent_representation(new))
    assert (np.diff(new.obsp["curvae_distances"].indptr) == 5).all() and "curvae" in new.uns
    assert set(new.obs) - set(describe(1)) == {"curvae_radius", "curvae_sigma"}


# --- new cells --------------------------------------------------------------------------------------------------------


def test_new_cells_are_matched_by_gene(model):
    new = cells(20, seed=2)
    shuffled = new[:, np.random.default_rng(0).permutation(GENES)].copy()
    expected = model.get_latent_representation(new)
    np.testing.assert_allclose(model.get_latent_representation(shuffled), expected, atol=1e-12)
    np.testing.assert_allclose(model.get_latent_representation(new, indices=[7, 3]), expected[[7, 3]], atol=1e-12)
    with pytest.warns(UserWarning, match="lacks 2 genes of those that the model was trained on"):
        model.get_latent_representation(new[:, 2:])


def test_unknown_batches_are_placed_and_not_decoded(model):
    new = cells(20, seed=2)
    new.obs["plate"] = pd.Categorical(["p9", *["p1"] * 19])
    with pytest.warns(UserWarning, match="'plate' holds batches that the model was not trained on: 'p9'"):
        assert model.get_latent_representation(new).shape == (20, 3)
    for call in (model.get_normalized_expression, model.get_elbo, model.get_marginal_ll):
        with pytest.raises(
            CurvaeError, match=r"the batches 'p9' of 'plate'.*load_query_data, decode them as of others.*, or leave"
        ):
            call(new)
    alone = trained(keys={"batch_key": "plate"})
    with pytest.warns(UserWarning, match="p9"):
        assert alone.get_normalized_expression(new, transform_batch="p2").shape == (20, GENES)


def test_an_encoder_that_is_told_batches_refuses_others():
    made = trained(keys={"batch_key": "plate"}, advanced={"encode_covariates": True})
    new = cells(20, seed=2)
    assert made.get_latent_representation(new).shape == (20, 3)
    new.obs["plate"] = "p9"
    with pytest.raises(
        CurvaeError, match=r"does not know the batches 'p9' of 'plate'.*with CellVAE.load_query_data, or leave"
    ):
        made.get_latent_representation(new)


def test_sizes_may_be_unknown(tmp_path):
    adata = cells(60)
    CellVAE.setup_anndata(adata, layer="counts", batch_key="plate")
    model = CellVAE(adata, n_latent=2, use_observed_lib_size=False, hidden=(8,))
    model.train(max_epochs=2)
    settled = model.get_normalized_expression(library_size="latent", return_numpy=True).sum(1)
    totals = adata.layers["counts"].sum(1)
    assert not np.allclose(settled, totals) and np.corrcoef(np.log(settled), np.log(totals))[0, 1] > 0.9
    np.testing.assert_allclose(model.get_normalized_expression(library_size=50, return_numpy=True).sum(1), 50, 1e-4)
    assert model.posterior_predictive_sample().shape == adata.shape
    model.save(tmp_path / "run")
    again = CellVAE.load(tmp_path / "run", adata)
    assert again.get_elbo() == model.get_elbo()


# --- queries ----------------------------------------------------------------------------------------------------------


def query(rows=30, seed=3, plates=("p8", "p9")):
    made = cells(rows, seed)
    made.obs["plate"] = np.array(plates)[np.arange(rows) % len(plates)]
    made.obs_names = [f"q{i}" for i in range(rows)]
    return made


def test_a_query_leaves_the_reference_where_it_is(model, tmp_path):
    own, kept = model.get_latent_representation(), model.get_elbo()
    new = query()[:, ::-1].copy()  # genes in another order
    made = CellVAE.load_query_data(new, model)
    assert not made.is_trained and made.adata is new
    made.train(max_epochs=2, batch_size=16)
    np.testing.assert_array_equal(made.get_latent_representation(model.adata), own)
    assert made.get_elbo(model.adata) == model.get_elbo() == kept
    with pytest.warns(UserWarning, match="p8"):  # the encoder is not told batches
        np.testing.assert_array_equal(made.get_latent_representation(), model.get_latent_representation(new))
    assert made.get_normalized_expression(transform_batch="p9").shape == (30, GENES)
    made.save(tmp_path / "query")
    again = CellVAE.load(tmp_path / "query", new)
    assert again.get_elbo() == pytest.approx(made.get_elbo(), rel=1e-6)
    further = CellVAE.load_query_data(query(20, 4, ("p7", "p1")), tmp_path / "query")
    further.train(max_epochs=1)
    assert further._schema.batches.categories == ("p1", "p2", "p3", "p8", "p9", "p7")
    assert further.get_elbo(model.adata) == pytest.approx(kept, rel=1e-6)


def test_a_reference_of_one_batch_takes_queries():
    adata = cells()
    adata.obs["plate"] = "p1"
    reference = trained(adata, {"batch_key": "plate"}, encode_covariates=True)
    made = CellVAE.load_query_data(query(plates=("p2",)), reference)
    made.train(max_epochs=2)
    np.testing.assert_array_equal(made.get_latent_representation(adata), reference.get_latent_representation())
    assert "encoder.shifts.1.weight" in made._fitted.model.state_dict()


def test_all_is_trained_on_request(model):
    made = CellVAE.load_query_data(query(plates=("p1",)), model, unfrozen=True)
    assert "cells of the reference move" in made.notes_[-1]
    made.train(max_epochs=1)
    assert np.abs(made.get_latent_representation(model.adata) - model.get_latent_representation()).max() > 1e-4


def test_queries_are_given_the_genes_of_a_reference(model):
    new = query()[:, 2:][:, ::-1].copy()
    new.obsm["X_pca"] = np.eye(30)
    expected = query().layers["counts"] * (np.arange(GENES) >= 2)
    assert CellVAE.prepare_query_anndata(new, model, return_reference_var_names=True).tolist() == model._schema.names
    with pytest.warns(UserWarning, match="lacks 2 genes"):
        other = CellVAE.prepare_query_anndata(new, model, inplace=False)
    assert new.n_vars == GENES - 2
    with pytest.warns(UserWarning, match="lacks 2 genes"):
        assert CellVAE.prepare_query_anndata(new, model) is None
    for made in (new, other):
        assert made.var_names.tolist() == model.adata.var_names.tolist() and "X_pca" in made.obsm
        np.testing.assert_array_equal(made.layers["counts"], expected)
    with pytest.warns(UserWarning, match="lacks 2 genes"):
        assert CellVAE.load_query_data(query()[:, 2:].copy(), model).adata.n_vars == GENES - 2


def kinds(rows, plate, without=None, seed=0):
    """Cells of four kinds, of which one may lack, with totals over a decade."""
    random = np.random.default_rng(seed)
    rates = np.random.default_rng(9).gamma(0.5, 1.0, (4, 40)) + 0.05
    rates *= np.where(plate == "p2", np.random.default_rng(8).gamma(20.0, 0.05, 40), 1.0)
    kind = random.choice([one for one in range(4) if one != without], rows)
    share = rates[kind] * random.gamma(8.0, 1 / 8, (rows, 40))
    x = random.poisson(share / share.sum(1, keepdims=True) * random.uniform(60, 600, (rows, 1)))
    obs = pd.DataFrame({"plate": plate, "kind": kind.astype(str)}, index=[f"{plate}-{i}" for i in range(rows)])
    return anndata.AnnData(x.astype(np.float32), obs=obs)


def test_labels_are_transferred_and_unknown_cells_marked(tmp_path):
    reference = kinds(300, "p1", without=3)
    CellVAE.setup_anndata(reference, batch_key="plate", labels_key="kind")
    atlas = CellVAE(reference, n_hidden=24, n_latent=3, neighbours="off")
    atlas.train(max_epochs=30)
    new = kinds(120, "p2", seed=1)
    made = CellVAE.load_query_data(new, atlas)
    made.train(max_epochs=5)
    found = made.transfer_labels("kind")
    assert found.index.tolist() == new.obs_names.tolist()
    pd.testing.assert_frame_equal(new.obs[found.columns], found, check_names=False)
    left_out = (new.obs["kind"] == "3").to_numpy()
    right = (found["curvae_label"] == new.obs["kind"]).to_numpy()
    assert right[~left_out].mean() > 0.95
    unknown = found["curvae_unknown"].to_numpy()
    assert np.median(unknown[left_out]) > 0.8 and np.median(unknown[~left_out]) < 0.2
    assert found["curvae_label_probability"].between(0.33, 1).all()
    made.save(tmp_path / "query")
    again = CellVAE.load(tmp_path / "query")
    pd.testing.assert_frame_equal(again.transfer_labels("kind"), found)
    with pytest.raises(CurvaeError, match="loaded without its reference; call CellVAE.load_query_data again"):
        CellVAE.load(tmp_path / "query", new).train()
    for call, says in (
        (lambda: atlas.transfer_labels("kind"), "the model has no reference"),
        (lambda: made.transfer_labels("plate"), "names 'plate', and the reference has 'kind'"),
        (lambda: made.transfer_labels("kind", k=301), "`k` must lie between 1 and 300"),
        (lambda: CellVAE.load_query_data(new, tmp_path / "query", unfrozen=True), "load it with them"),
    ):
        with pytest.raises(CurvaeError, match=says):
            call()
    # Cells of the query are cells of the reference of a further one.
    further = CellVAE.load_query_data(kinds(30, "p3", seed=2), again)
    further.train(max_epochs=1)
    assert len(further._known) == 420 and (further.transfer_labels("kind")["curvae_label"] == "3").any()
    moved = CellVAE.load_query_data(kinds(30, "p3", seed=2), atlas, unfrozen=True)
    moved.train(max_epochs=1)
    assert len(moved._known) == 300 and not np.allclose(moved._known["tangent_1"], atlas._table["tangent_1"])
    # A run of before these figures were noted.
    del atlas._description["summary"]["fit_scores"]
    old = CellVAE.load_query_data(new, atlas)
    old.train(max_epochs=1)
    assert old.transfer_labels("kind")["curvae_unknown"].isna().all()


def test_queries_that_are_refused(model):
    def changed(change):
        made = query()
        change(made.obs)
        return made

    logs = query()
    logs.layers["counts"] = np.log1p(logs.layers["counts"] * (100 / logs.layers["counts"].sum(1))[:, None])
    without = trained(keys={})
    for adata, reference, says in (
        (query()[:, 6:].copy(), model, "lacks 24 % of the 25 genes that the model was trained on"),
        (
            changed(lambda obs: obs.pop("age")),
            model,
            "adata needs the covariates that the model was trained with",
        ),
        (changed(lambda obs: obs.pop("plate")), model, "has no column 'plate' for `batch_key=…`"),
        (logs, model, "these are no counts but log-normalised values"),
        (query(plates=("p1", "p3")), model, "knows all batches of the query in 'plate', so there is nothing to train"),
        (query(), without, "was trained without batches"),
        (query(), CellVAE.load_query_data(query(), model), "is not trained yet"),
        (query().X, model, "`adata` must be an AnnData object"),
    ):
        with pytest.raises(CurvaeError) as raised:
            CellVAE.load_query_data(adata, reference)
        assert says in str(raised.value) and "\n" not in str(raised.value)
    told = trained(keys={"batch_key": "plate", "categorical_covariate_keys": ["tumour"]})
    with pytest.raises(CurvaeError, match="'tumour' of AnnData holds categories that the model was not trained on"):
        CellVAE.load_query_data(changed(lambda obs: obs.__setitem__("tumour", "unknown")), told)
    with pytest.raises(CurvaeError, match="`freeze_dropout` means nothing to CellVAE.load_query_data"):
        CellVAE.load_query_data(query(), model, freeze_dropout=True)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"latent_distribution": "ln"}, "`latent_distribution` means nothing to CellVAE"),
        ({"gene_likelihood": "normal"}, "`gene_likelihood` must be one of nb, zinb, poisson; got 'normal'"),
        ({"dispersion": "gene-label"}, "`dispersion` must be one of gene, gene-batch, gene-cell"),
        ({"n_latent": 0}, "`n_latent` must be"),
        ({"n_layers": 0}, "`hidden` must hold one or more positive widths"),
        ({"dropout_rate": 2}, "`dropout_rate` must be"),
        ({"advanced": {"nonsense": 1}}, "`nonsense` means nothing to CellVAE"),
    ],
)
def test_settings_that_are_refused(settings, says):
    adata = cells(20)
    CellVAE.setup_anndata(adata, layer="counts")
    with pytest.raises(CurvaeError, match=re.escape(says)) as raised:
        CellVAE(adata, **settings)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"plan_kwargs": {"lr": 1e-3}}, "`plan_kwargs` means nothing to CellVAE.train"),
        ({"datamodule": None}, "`datamodule` means nothing"),
        ({"devices": 2}, "`devices` must be one device"),
        ({"accelerator": "tpu"}, "`accelerator` must be one of"),
        ({"train_size": 0.9, "validation_size": 0.2}, "add up to at most 1"),
        ({"train_size": 0}, "add up to at most 1"),
        ({"max_epochs": 0}, "`epochs` must be"),
    ],
)
def test_trainings_that_are_refused(how, says):
    adata = cells(20)
    CellVAE.setup_anndata(adata, layer="counts")
    with pytest.raises(CurvaeError, match=re.escape(says)) as raised:
        CellVAE(adata).train(**how)
    assert "\n" not in str(raised.value)


def test_other_mistakes_are_one_line(model):
    adata = cells(20)
    for call, says in (
        (lambda: CellVAE(adata), "is not set up; call CellVAE.setup_anndata"),
        (lambda: CellVAE(adata.X), "`adata` must be an AnnData object, got a ndarray"),
        (lambda: CellVAE.setup_anndata(adata, batch_key="plat"), "no column 'plat' for `batch_key=…`; did you mean"),
        (lambda: CellVAE.setup_anndata(adata, categorical_covariate_keys=["no"]), "no column 'no' for `covariates=…`"),
        (lambda: trained_without(adata), "is not trained yet; call `train` first"),
        (lambda: model.get_normalized_expression(gene_list=["g1", "x"]), "genes that the model does not know: 'x'"),
        (
            lambda: model.get_normalized_expression(transform_batch="p7"),
            "unknown batches 'p7'; the model knows 'p1', 'p2'",
        ),
        (lambda: model.get_normalized_expression(n_samples_overall=9), "`n_samples_overall` means nothing"),
        (lambda: model.get_latent_representation(coordinates="flat"), "`coordinates` must be one of tangent, ball, am"),
        (lambda: model.get_marginal_ll(refine=-1), "`refine` must be a whole number of steps from 0 on, got -1"),
        (lambda: CellVAE.setup_anndata(adata, layer="none") or CellVAE(adata), "has no layer 'none'"),
        (lambda: CellVAE.setup_anndata(adata) or CellVAE(adata), "not all values are whole numbers"),
    ):
        with pytest.raises(CurvaeError) as raised:
            call()
        assert says in str(raised.value) and "\n" not in str(raised.value)


def trained_without(adata):
    CellVAE.setup_anndata(adata, layer="counts")
    return CellVAE(adata).get_latent_representation()


def test_anndata_is_asked_for(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "anndata", None)
    with pytest.raises(CurvaeError, match=r"CellVAE needs anndata; pip install anndata or 'curvae\[cells\]'$"):
        CellVAE.setup_anndata(None)


def test_parts_of_the_cells_and_early_stopping():
    adata = cells()
    CellVAE.setup_anndata(adata, layer="counts")
    made = CellVAE(adata, n_hidden=8)
    made.train(max_epochs=2, train_size=0.5, validation_size=0.2)
    assert made._fitted.split.counts == (45, 18) and made._fitted.config.patience is None
    assert made._fitted.config.dim == 10 and made._fitted.config.hidden == (8,)
    made.train(max_epochs=2, train_size=1.0)
    assert "elbo_validation" not in made.history
    made.train(max_epochs=3, early_stopping=True, early_stopping_patience=2)
    assert made._fitted.config.patience == 2 and made._fitted.keeps_best
