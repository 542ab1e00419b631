"""Lineages of cells: counts along a fork that is known, what is written to the cells, and expression by hand."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from curvae import CellVAE, CurvaeError
from curvae.hierarchy import parse_newick

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


def test_a_fork_is_found_and_written(model, tmp_path):
    model, time = model
    found = model.lineage("start")
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
    assert model.lineage(groups="kind", adata=other).chosen


def test_expression_is_that_of_the_decoder_in_every_batch(model):
    model, _ = model
    found = model.lineage("start")
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
