"""Estimators whose latent space is given by its factors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_readonly_memmap_input, check_transformer_general

from curvae import CurvaeError, Lorentz, PoincareBall, PoincareGraphVAE, PoincareVAE

FAST = {"hidden": (8,), "epochs": 3, "batch_size": 16, "advanced": {"importance_samples": 40}, "random_state": 0}
PRODUCT = {**FAST, "space": "h2:0.7,e1,h1:learn", "prior_scale": 1.5}
WIDTHS = [2, 1, 1]
TREE = [(f"n{(i - 1) // 2}", f"n{i}") for i in range(1, 41)]
OUTPUTS = pytest.mark.parametrize("output", ["auto", "ball", "tangent", "lorentz"])


@pytest.fixture(scope="module")
def x():
    random = np.random.default_rng(0)
    return random.normal(size=(50, 1)) * np.arange(1, 5) + random.normal(size=(50, 4))


@pytest.fixture(scope="module")
def model(x):
    return PoincareVAE(**PRODUCT).fit(x)


@pytest.fixture(scope="module")
def graph():
    return PoincareGraphVAE(space="h2,e1", epochs=20, hidden=(8,), random_state=0, device="cpu").fit(TREE)


def test_one_factor_is_the_short_form(x):
    given = PoincareVAE(space="h3:1.4", **FAST).fit(x)
    plain = PoincareVAE(3, curvature=1.4, **FAST).fit(x)
    np.testing.assert_array_equal(given.transform(x), plain.transform(x))
    assert given.get_feature_names_out().tolist() == [f"poincarevae{i}" for i in range(3)]
    assert (
        given.curvature_ == plain.curvature_ == pytest.approx(1.4) and given.inverse_transform(np.zeros((1, 3))).any()
    )
    assert PoincareVAE(space="h2:learn", **FAST).fit(x).curvature_ != 1.0
    flat = PoincareVAE(space="e2", **FAST).fit(x)
    np.testing.assert_array_equal(flat.transform(x), PoincareVAE(curvature=0.0, **FAST).fit_transform(x))


def test_what_was_learned_is_told_by_factor(model):
    assert model.curvature_.shape == model.prior_scale_.shape == model.identifiable_.shape == (3,)
    assert model.curvature_[:2] == pytest.approx([0.7, 0.0]) and model.curvature_[2] != 1.0
    np.testing.assert_allclose(model.prior_scale_, 1.5)
    np.testing.assert_allclose(model.identifiable_, model.curvature_ * 2.25)
    assert {"c_1", "c_3", "prior_scale_2"} <= set(model.history_[-1]) and isinstance(model.warnings_, list)


def test_outputs_are_charts_of_the_factors(x):
    found = {o: PoincareVAE(output=o, **PRODUCT).fit_transform(x) for o in ("auto", "ball", "tangent", "lorentz")}
    np.testing.assert_array_equal(found["auto"], found["tangent"])
    curvatures = PoincareVAE(**PRODUCT).fit(x).curvature_
    parts = {o: torch.from_numpy(z).split(WIDTHS, -1) for o, z in found.items()}
    for i, (dim, c) in enumerate(zip(WIDTHS, curvatures, strict=True)):
        S = parts["lorentz"][i]
        torch.testing.assert_close(PoincareBall(dim, c).to_lorentz(parts["ball"][i]), S)
        torch.testing.assert_close(Lorentz(dim, c).expmap0(1.5 * parts["tangent"][i]), S)


@OUTPUTS
def test_points_lead_back_to_rows(x, model, output):
    fitted = PoincareVAE(output=output, **PRODUCT).fit(x)
    found = fitted.inverse_transform(fitted.transform(x))
    np.testing.assert_allclose(found, model.inverse_transform(model.transform(x)), rtol=1e-6, atol=1e-9)
    with pytest.raises(CurvaeError, match="4 coordinates, got 2"):
        fitted.inverse_transform(np.zeros((1, 2)))


def test_points_outside_a_ball_are_refused(x):
    fitted = PoincareVAE(output="ball", **PRODUCT).fit(x)
    with pytest.raises(ValueError, match="PoincareBall"):
        fitted.inverse_transform([[0.0, 0.0, 9.0, 1e3]])
    assert fitted.inverse_transform([[0.0, 0.0, 9.0, 0.0]]).shape == (1, 4)  # the second is flat


def test_distances_neighbours_scores_and_samples(x, model):
    curvatures, z = model.curvature_, torch.from_numpy(1.5 * model.transform(x))
    each = []
    for c, v in zip(curvatures, z.split(WIDTHS, -1), strict=True):
        factor = Lorentz(v.shape[1], c)
        S = factor.expmap0(v)
        each.append(factor.dist(S.unsqueeze(1), S) / 1.5)
    expected = torch.stack(each).square().sum(0).sqrt().numpy()
    np.testing.assert_allclose(model.distances(x), expected, rtol=1e-6, atol=1e-7)
    far, places = model.kneighbors(k=3)
    np.fill_diagonal(expected, np.inf)
    np.testing.assert_allclose(far, np.sort(expected, 1)[:, :3], rtol=1e-6, atol=1e-7)
    assert places.shape == (50, 3)
    assert np.isfinite(model.score_samples(x)).all() and model.score(x) == pytest.approx(model.score_samples(x).mean())
    assert model.sample(6).shape == (6, 4)


@OUTPUTS
def test_saved_and_loaded(tmp_path, x, output):
    model = PoincareVAE(output=output, **PRODUCT).fit(pd.DataFrame(x, columns=list("abcd")))
    model.save(tmp_path / "run")
    again = PoincareVAE.load(tmp_path / "run")
    rows = pd.DataFrame(x, columns=list("abcd"))
    np.testing.assert_array_equal(again.embedding_, model.embedding_)
    np.testing.assert_allclose(again.transform(rows), model.transform(rows), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(again.curvature_, model.curvature_)
    assert again.space == "h2:0.7,e1,h1:learn" and again.output == output and again.n_components == 2
    np.testing.assert_allclose(again.fit(rows).embedding_, model.embedding_)  # with the same parameters


def test_among_other_estimators(x):
    y = (x[:, 0] > 0).astype(int)
    pipeline = make_pipeline(PoincareVAE(**PRODUCT), LogisticRegression())
    assert pipeline.fit(x, y).score(x, y) > 0.5
    search = GridSearchCV(PoincareVAE(**FAST), {"space": [None, "h2,e1", "e2"]}, cv=2).fit(x)
    assert len(search.cv_results_["mean_test_score"]) == 3 and np.isfinite(search.cv_results_["mean_test_score"]).all()
    check_transformer_general("PoincareVAE", PoincareVAE(**PRODUCT))
    check_readonly_memmap_input("PoincareVAE", PoincareVAE(**PRODUCT))
    assert PoincareVAE(**PRODUCT).set_output(transform="pandas").fit_transform(x).shape == (50, 4)
    assert clone(PoincareVAE(**PRODUCT)).space == PRODUCT["space"]
    assert PoincareVAE(n_init=2, **PRODUCT).fit(x).embedding_.shape == (50, 4)


def test_spaces_that_cannot_be_are_refused(x):
    for given, message in (
        ({"space": "s2"}, "unknown kind s"),
        ({"space": 2}, "space must be a text"),
        ({"space": "h2,e3", "n_components": 4}, "contradicts"),
        ({"space": "h2,e3", "curvature": 0.5}, "contradicts"),
        ({"space": "h2,e3", "output": "balls"}, "output must be one of auto, ball, tangent, lorentz"),
    ):
        with pytest.raises(CurvaeError, match=message):
            PoincareVAE(**FAST | given).fit(x)


# --- graphs ---------------------------------------------------------------------------------------------------------


def test_a_graph_in_a_product(graph):
    assert graph.embedding_.shape == (41, 3) and graph.curvature_.tolist() == [1.0, 0.0]
    z = torch.from_numpy(graph.embedding_)
    S = Lorentz(2).expmap0(z[:, :2])
    expected = (Lorentz(2).dist(S.unsqueeze(1), S).square() + (z[:, None, 2] - z[:, 2]).square()).sqrt().numpy()
    np.testing.assert_allclose(graph.distances(), expected, atol=1e-7)
    radius, temperature = (float(number.detach()) for number in graph._fitted.model.edges.numbers())
    reach = radius + graph._embedding.popularity[[3, 7]].sum() - graph._embedding.side[[3, 7]].prod()
    probability = 1 / (1 + np.exp((expected[3, 7] - reach) / temperature))
    np.testing.assert_allclose(graph.link_probability([(3, 7)]), probability, rtol=1e-5)
    assert graph.kneighbors(["n3"], k=4)[1].shape == (1, 4)
    ball = clone(graph).set_params(output="ball").fit(TREE)
    torch.testing.assert_close(PoincareBall(2).to_lorentz(torch.from_numpy(ball.embedding_[:, :2])), S)
    found = clone(graph).set_params(epochs=3).link_prediction(TREE, n_splits=2)
    assert found["auc"].shape == (2,)


def test_a_saved_graph(tmp_path, graph):
    graph.save(tmp_path / "run")
    again = PoincareGraphVAE.load(tmp_path / "run")
    np.testing.assert_array_equal(again.embedding_, graph.embedding_)
    np.testing.assert_array_equal(again.distances(), graph.distances())
    assert again.space == "h2,e1" and again.nodes_.tolist() == graph.nodes_.tolist()
