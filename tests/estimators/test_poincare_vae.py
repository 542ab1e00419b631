"""The estimator of rows: scikit-learn's own checks in full, and what they do not cover."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_estimators_pickle,
    check_methods_subset_invariance,
    check_readonly_memmap_input,
    check_transformer_general,
    parametrize_with_checks,
)

from curvae import CurvaeError, Lorentz, PoincareBall, PoincareVAE

FAST = {"hidden": (8,), "epochs": 2, "batch_size": 25, "advanced": {"importance_samples": 40}, "random_state": 0}


def rows(n=50, columns=4, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(n, 1)) * np.arange(1, columns + 1) + random.normal(size=(n, columns))


@pytest.fixture(scope="module")
def x():
    return rows()


@pytest.fixture(scope="module")
def model(x):
    return PoincareVAE(curvature=1.4, **FAST).fit(x)


# --- coordinates ----------------------------------------------------------------------------------------------------


def test_outputs_are_charts_of_the_same_points(x):
    found = {}
    for output in ("ball", "tangent", "lorentz"):
        estimator = PoincareVAE(curvature=1.4, output=output, **FAST)
        found[output] = torch.from_numpy(estimator.fit_transform(x))
        np.testing.assert_array_equal(found[output], estimator.embedding_)
        c = estimator.curvature_
    ball, lorentz = PoincareBall(2, c), Lorentz(2, c)
    assert bool(ball.contains(found["ball"]).all())
    torch.testing.assert_close(ball.to_lorentz(found["ball"]), found["lorentz"])
    torch.testing.assert_close(lorentz.expmap0(found["tangent"]), found["lorentz"])
    torch.testing.assert_close(lorentz.logmap0(found["lorentz"]), found["tangent"])


@pytest.mark.parametrize("curvature", [0.0, 1.4])
def test_inverse_transform_is_the_same_in_every_chart_and_in_original_units(x, curvature):
    shifted = x * [1, 10, 100, 1000] + 1e4
    made = []
    for output in ("ball", "tangent", "lorentz"):
        fitted = PoincareVAE(curvature=curvature, output=output, **FAST).fit(shifted)
        found = fitted.inverse_transform(fitted.transform(shifted))
        assert found.shape == shifted.shape
        np.testing.assert_array_less(np.abs(found.mean(0) - shifted.mean(0)), shifted.std(0))
        assert ((found.std(0) / shifted.std(0)) < 2).all()
        np.testing.assert_allclose(found, (made or [found])[0], rtol=1e-6)
        made.append(found)


def test_points_that_are_none_are_refused(model):
    with pytest.raises(ValueError, match=r"1\.4|ball"):
        model.inverse_transform([[0.9, 0.9]])
    with pytest.raises(CurvaeError, match="2 coordinates, got 3"):
        model.inverse_transform(np.zeros((1, 3)))


def test_distances_and_neighbours_by_brute_force(model, x):
    new = rows(7, seed=1)
    ball = PoincareBall(2, model.curvature_)
    points, others = torch.from_numpy(model.transform(x)), torch.from_numpy(model.transform(new))
    table = ball.dist(others.unsqueeze(1), points).numpy()
    np.testing.assert_allclose(model.distances(new, x), table, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.diag(model.distances(x)), 0, atol=1e-7)
    distance, index = model.kneighbors(new, k=4)
    np.testing.assert_array_equal(index, np.argsort(table, axis=1)[:, :4])
    np.testing.assert_allclose(distance, np.sort(table, axis=1)[:, :4], rtol=1e-6)
    # Of the training rows themselves: not oneself.
    own, places = model.kneighbors(k=3)
    assert own.shape == (50, 3) and not (places == np.arange(50)[:, None]).any()
    for k in (0, 50):
        with pytest.raises(CurvaeError, match=f"between 1 and 49, got {k}"):
            model.kneighbors(k=k)


# --- likelihood and draws -------------------------------------------------------------------------------------------


def test_a_score_does_not_depend_on_the_neighbours(model, x):
    scores = model.score_samples(x)
    assert scores.shape == (50,) and np.isfinite(scores).all()
    np.testing.assert_allclose(model.score_samples(x[::-1])[::-1], scores, rtol=1e-12)
    np.testing.assert_allclose([model.score_samples(x[i : i + 1])[0] for i in range(5)], scores[:5], rtol=1e-12)
    np.testing.assert_allclose(model.score_samples(np.tile(x, (30, 1)))[-50:], scores, rtol=1e-12)  # over batches
    assert model.score(x) == pytest.approx(scores.mean())


@pytest.mark.parametrize("output", ["ball", "tangent", "lorentz"])
def test_rows_without_a_finite_place_or_score_are_named(x, output):
    model = PoincareVAE(output=output, **FAST).fit(x)
    extreme = np.repeat(x[:1], 20, 0)
    wrong = [3, 4, 7, 11, 12, 15, 19]
    extreme[wrong, 1] = [1e300, -1e300, 1e300, 1e200, 1e100, 1e300, 1e300]
    for method, what in (
        (model.transform, "embedding"),
        (model.score_samples, "likelihood"),
        (model.score, "likelihood"),
    ):
        message = f"the {what} is not finite for 7 rows: '3', '4', '7', '11', '12' and 2 more; correct extreme values"
        with pytest.raises(CurvaeError, match=message) as caught:
            method(extreme)
        assert "\n" not in str(caught.value)
    with pytest.raises(CurvaeError, match="1 row: '0'"):
        model.kneighbors(extreme[[3]])
    assert np.isfinite(model.transform(extreme[:3])).all() and np.isfinite(model.score_samples(extreme[:3])).all()


def test_a_place_beyond_float32_is_named(x):
    model = PoincareVAE(output="lorentz", **FAST).fit(x)
    far = np.array([x[0], [0, 1e10, 0, 0]])
    assert 1e40 < np.abs(model.transform(far)).max() < np.inf
    with pytest.raises(CurvaeError, match="the embedding is not finite for 1 row: '1'"):
        model.transform(far.astype(np.float32))


def test_scores_are_in_original_units(x):
    plain = PoincareVAE(**FAST).fit(x)
    scaled = PoincareVAE(**FAST).fit(x * 100.0)
    difference = scaled.score_samples(x * 100.0) - plain.score_samples(x)
    np.testing.assert_allclose(difference, -4 * np.log(100), atol=1e-3)


def test_scores_know_the_data_from_others(model, x):
    assert model.score(x) > model.score(x + 30.0)


def test_samples_repeat_by_seed_and_look_like_the_data(model, x):
    np.testing.assert_array_equal(model.sample(300), model.sample(300, random_state=0))
    assert not np.array_equal(model.sample(300), model.sample(300, random_state=1))
    random = np.random.RandomState(3)
    assert not np.array_equal(model.sample(5, random), model.sample(5, random))
    drawn = model.sample(4000)
    assert drawn.shape == (4000, 4)
    assert stats.ks_2samp(drawn[:, 0], x[:, 0]).statistic < 0.35
    with pytest.raises(CurvaeError, match="at least 1, got 0"):
        model.sample(0)
    with pytest.raises(CurvaeError, match="a table of 1,000,000,000,000 samples needs about .* GB of memory"):
        model.sample(10**12)


def test_fitting_again_with_the_same_seed_is_the_same(x):
    a, b = (PoincareVAE(**FAST).fit_transform(x) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    c = PoincareVAE(**{**FAST, "random_state": 1}).fit_transform(x)
    assert not np.array_equal(a, c)
    generators = [PoincareVAE(**{**FAST, "random_state": np.random.RandomState(5)}).fit_transform(x) for _ in range(2)]
    np.testing.assert_array_equal(*generators)


# --- early stopping and learned numbers -----------------------------------------------------------------------------


def test_learned_curvature_is_that_of_the_kept_weights(x):
    options = {
        **FAST,
        "epochs": 30,
        "learning_rate": 0.3,
        "patience": 3,
        "validation": 0.3,
        "neighbours": "off",
        "advanced": {"cooldown": 0.0},
    }
    found = PoincareVAE(curvature="learn", **options).fit(x)
    best = max(found.history_, key=lambda record: record["validation_elbo"])
    assert best["c"] != found.history_[-1]["c"]
    assert found.curvature_ == pytest.approx(best["c"], rel=1e-6)
    assert found.identifiable_ == pytest.approx(found.curvature_ * found.prior_scale_**2)
    # Which the chart depends on.
    ball = PoincareBall(2, found.curvature_)
    table = ball.dist(torch.from_numpy(found.embedding_).unsqueeze(1), torch.from_numpy(found.embedding_))
    np.testing.assert_allclose(found.distances(x), table, rtol=1e-6, atol=1e-6)


def test_warnings_are_kept(x):
    noise = np.random.default_rng(0).normal(size=(60, 5))
    how = {"epochs": 30, "learning_rate": 0.04, "neighbours": "off", "advanced": {"beta": 20.0}}
    found = PoincareVAE(hidden=(8,), random_state=0, **how).fit(noise)
    assert any("empty" in text for text in found.warnings_)


# --- among other estimators -----------------------------------------------------------------------------------------


def test_pipeline_and_search(x):
    y = (x[:, 0] > np.median(x[:, 0])).astype(int)
    pipeline = make_pipeline(StandardScaler(), PoincareVAE(output="tangent", **FAST), LogisticRegression())
    search = GridSearchCV(pipeline, {"poincarevae__curvature": [0.0, 1.0]}, cv=2, error_score="raise").fit(x, y)
    assert search.best_score_ > 0.6
    by_likelihood = GridSearchCV(PoincareVAE(**FAST), {"curvature": np.array([0.0, 1.0])}, cv=2, error_score="raise")
    by_likelihood.fit(x)
    assert np.isfinite(by_likelihood.cv_results_["mean_test_score"]).all()
    assert by_likelihood.best_estimator_.transform(x).shape == (50, 2)


def test_search_over_advanced_settings(x):
    rates = [{"cooldown": 0.0}, {"cooldown": 1.0, "importance_samples": 20}, None]
    model = PoincareVAE(hidden=(8,), epochs=2, batch_size=8, random_state=0)
    search = GridSearchCV(model, {"advanced": rates}, cv=2, error_score="raise", refit=False).fit(x)
    assert len(set(search.cv_results_["mean_test_score"])) == 3
    for advanced in rates:
        model.set_params(advanced=advanced)
        assert clone(model).get_params() == model.get_params() and model.advanced is advanced


def test_numbers_of_numpy_are_numbers(x, tmp_path):
    numbers = {
        "n_components": np.int64(3),
        "curvature": np.float32(0.5),
        "epochs": np.int32(2),
        "hidden": [np.int64(8)],
        "advanced": {"importance_samples": np.int64(5), "cooldown": np.float32(0.5)},
    }
    found = PoincareVAE(**{**FAST, **numbers, "random_state": np.int64(3)}).fit(x)
    found.save(tmp_path / "run")
    loaded = PoincareVAE.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.transform(x), found.transform(x))


def test_clone_is_unfitted_and_equal(model, x):
    copy = clone(model)
    assert not hasattr(copy, "embedding_") and copy.get_params() == model.get_params()
    np.testing.assert_array_equal(copy.fit_transform(x), model.transform(x))


def test_pickle(model, x):
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.transform(x), model.transform(x))
    np.testing.assert_array_equal(copy.score_samples(x), model.score_samples(x))


def test_frames_in_and_out(x):
    frame = pd.DataFrame(x, columns=list("abcd"), index=[f"row{i}" for i in range(50)])
    found = PoincareVAE(**FAST).set_output(transform="pandas").fit(frame)
    table = found.transform(frame)
    assert table.columns.tolist() == ["poincarevae0", "poincarevae1"] == found.get_feature_names_out().tolist()
    assert table.index.equals(frame.index)
    assert found.feature_names_in_.tolist() == list("abcd")


def test_columns_in_another_order_or_fewer_are_refused(x):
    frame = pd.DataFrame(x, columns=list("abcd"))
    found = PoincareVAE(**FAST).fit(frame)
    for method in (found.transform, found.score_samples, found.distances, found.kneighbors):
        with pytest.raises(ValueError, match="feature names should match"):
            method(frame[list("bacd")])
        with pytest.raises(ValueError, match="feature names should match|features"):
            method(frame[list("abc")])


def test_sparse_rows(x):
    thin = sparse.csr_matrix(np.where(np.abs(x) < 1, 0, x))
    a = PoincareVAE(**FAST).fit(thin)
    b = PoincareVAE(**FAST).fit(thin.toarray())
    np.testing.assert_allclose(a.transform(thin), b.transform(thin.toarray()), rtol=1e-3, atol=1e-4)
    for form in (sparse.csc_matrix(thin), sparse.coo_array(thin), sparse.csr_array(thin)):
        np.testing.assert_array_equal(a.transform(form), a.transform(thin))
    np.testing.assert_allclose(a.score_samples(thin), a.score_samples(thin.toarray()), rtol=1e-9)


def test_float32_in_float32_out(x):
    found = PoincareVAE(**FAST).fit(x.astype(np.float32))
    assert found.transform(x.astype(np.float32)).dtype == np.float32
    assert found.transform(x).dtype == np.float64


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"output": "sphere"}, "ball, tangent, lorentz, ambient; got 'sphere'"),
        ({"curvature": -1.0}, "c ≥ 0"),
        ({"curvature": "learn", "advanced": {"learn_prior_scale": True}}, "only c·σ0²"),
        ({"advanced": {"importance_samples": 0}}, "at least 1, got 0"),
        ({"advanced": {"importance_samples": "many"}}, "importance_samples"),
        (
            {"advanced": {"importance_samples": np.int64(10**12)}},
            "`importance_samples` must be at most 1,000,000, got .*: the time",
        ),
        ({"epochs": 10**12}, "`epochs` must be at most 1,000,000, got 1,000,000,000,000: every epoch"),
        ({"batch_size": 10**12}, "`batch_size` must be at most 100,000,000, got .*: all rows of a step"),
        ({"advanced": {"samples": 10**12}}, "`samples` must be at most 100,000, got .*: all draws of a step"),
        ({"advanced": {"samples": 0}}, "`samples` must be a whole number of at least 1, got 0"),
        ({"advanced": {"coldown": 0.3}}, "unknown settings: coldown; did you mean cooldown\\?"),
        ({"advanced": {"zzz": 0.3}}, "unknown settings: zzz$"),
        ({"advanced": {"epochs": 3}}, "`epochs` is a parameter of PoincareVAE; give `epochs=…`, not in `advanced`"),
        ({"advanced": {"n_components": 3}}, "`n_components` is a parameter of PoincareVAE"),
        ({"advanced": {"cooldown": 3}}, "`cooldown` must be a share of the steps, from 0 to 1; got 3"),
        ({"advanced": "cooldown"}, "`advanced` must give settings by name, such as .*; got 'cooldown'"),
        ({"n_init": 10**12}, "`n_init` must be at most 10,000, got .*: each is a training"),
        ({"hidden": ()}, "hidden"),
        ({"posterior": "student"}, "riemannian, wrapped"),
        ({"decoder": "linear"}, "gyroplane"),
        ({"likelihood": "bernoulli"}, r"\[0, 1\]"),
        ({"device": "meta"}, "auto, cpu or cuda"),
        ({"device": "gpu"}, "auto, cpu or cuda, got 'gpu'"),
        ({"n_components": 0}, "^`n_components` must be a whole number of at least 1, got 0"),
        ({"n_components": 3, "space": "h2"}, '^`n_components=3` contradicts `space="h2"`'),
        ({"missing": "modle"}, "`missing` must be one of .*; got 'modle', did you mean 'model'?"),
        ({"decoder": "giroplane"}, "got 'giroplane', did you mean 'gyroplane'?"),
    ],
)
def test_parameters_that_cannot_be(x, options, pattern):
    with pytest.raises(CurvaeError, match=pattern) as caught:
        PoincareVAE(**{**FAST, **options}).fit(x)
    assert "\n" not in str(caught.value)


def test_steps_that_do_not_fit_in_memory_are_refused(x, monkeypatch):
    monkeypatch.setattr("curvae.data.memory.available", lambda: 10**6)
    with pytest.raises(
        CurvaeError, match="10,000 draws of each needs about .* GB .* are free; lower `batch_size` or `samp"
    ):
        PoincareVAE(**{**FAST, "advanced": {"samples": 10_000}}).fit(x)
    PoincareVAE(**{**FAST, "advanced": {"samples": 2}}).fit(x)


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"curvature": 0.0},
        {"curvature": "learn", "learning_rate": 0.1, "output": "tangent"},
        {"advanced": {"learn_curvature": True}, "curvature": 0.5, "learning_rate": 0.1},
        {"n_components": 3, "learning_rate": 0.1, "output": "lorentz", "advanced": {"learn_prior_scale": True}},
        {"posterior": "wrapped", "decoder": "mobius", "patience": 2, "validation": 0.2, "advanced": {"diagonal": True}},
        {
            "likelihood": "unit_gaussian",
            "advanced": {"standardise": False, "objective": "iwae", "samples": 3, "importance_samples": 30},
        },
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_saved_and_loaded_is_the_same_to_the_bit(x, tmp_path, options):
    found = PoincareVAE(**{**FAST, **options}).fit(x)
    found.save(tmp_path / "run")
    loaded = PoincareVAE.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.embedding_, found.embedding_)
    np.testing.assert_array_equal(loaded.transform(x), found.transform(x))
    np.testing.assert_array_equal(loaded.score_samples(x), found.score_samples(x))
    np.testing.assert_array_equal(loaded.sample(5), found.sample(5))
    np.testing.assert_array_equal(loaded.distances(x), found.distances(x))
    points = found.transform(x)
    np.testing.assert_array_equal(loaded.inverse_transform(points), found.inverse_transform(points))
    for name in ("curvature_", "prior_scale_", "identifiable_", "likelihood_", "likelihood_reason_", "history_"):
        assert getattr(loaded, name) == getattr(found, name), name
    assert loaded.warnings_ == found.warnings_ and loaded.n_features_in_ == 4
    chosen = loaded._fitted.config  # for these rows, as the likelihood
    same = {**found.get_params(), "likelihood": found.likelihood_, "patience": chosen.patience}
    resolved = {
        "dropout": 0.0,
        "jitter": 0.0,
        "weight_decay": 1.0,
        "init": "pca",
        "neighbours_weight": pytest.approx(1.2),
    }
    same |= {"neighbours": "both", "advanced": {"importance_samples": 500, **(found.advanced or {}), **resolved}}
    assert loaded.get_params() == same
    # And can be saved again.
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again/model.safetensors").read_bytes() == (tmp_path / "run/model.safetensors").read_bytes()
    np.testing.assert_array_equal(clone(loaded).fit_transform(x), found.transform(x))


def test_names_of_columns_are_saved(x, tmp_path):
    frame = pd.DataFrame(x, columns=list("abcd"))
    PoincareVAE(**FAST).fit(frame).save(tmp_path / "run")
    loaded = PoincareVAE.load(tmp_path / "run")
    loaded.transform(frame)
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.transform(frame[list("bacd")])


def test_a_saved_model_does_for_the_command_line(x, tmp_path, monkeypatch):
    from running import curvae

    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(x, columns=list("abcd"))
    found = PoincareVAE(**FAST).fit(frame)
    found.save("run")
    frame[list("dcba")].assign(other=1.0).to_csv("t.csv", index=False)
    assert curvae("embed", "run", "t.csv").out.endswith("next: curvae evaluate run t.csv\n")  # it has no map
    table = pd.read_csv("t-embedding.csv")[["ball_1", "ball_2"]]
    np.testing.assert_allclose(table, found.transform(frame), rtol=1e-12)
    assert curvae("sample", "run", "-n", "4", "-q").code == 0
    assert pd.read_csv("run-samples.csv").shape == (4, 4)
    assert set(curvae("evaluate", "run", "t.csv", "--samples", "5", "--json").json["parts"]) == {"new"}
    scored = curvae("evaluate", "run", "t.csv", "--samples", "5", "-o", "scores.csv")
    assert scored.code == 2 and "rows have no rank; leave out -o" in scored.err


def test_saving_overwrites_nothing(model, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    for name in ("file", "full"):
        with pytest.raises(CurvaeError, match="choose another name"):
            model.save(tmp_path / name)
    (tmp_path / "empty").mkdir()
    model.save(tmp_path / "empty")
    with pytest.raises(CurvaeError, match="choose another name"):
        model.save(tmp_path / "empty")
    with pytest.raises(CurvaeError, match="cannot write"):
        model.save(tmp_path / "file" / "below")


def test_a_saved_folder_knows_no_place(model, tmp_path):
    model.save(tmp_path / "run")
    for path in (tmp_path / "run").iterdir():
        assert str(tmp_path).encode() not in path.read_bytes()
    description = json.loads(Path(tmp_path, "run", "config.json").read_text())
    assert description["format"] == 3 and "device" not in json.dumps(description)


# --- the conventions of scikit-learn ---------------------------------------------------------------------------------


# A row of weight 2 counts twice in the loss, but is one row in batches and splits, whose order is random.
RANDOM = "batches and splits of other rows are others"


UNEQUAL = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"), RANDOM
)


CHECKED = PoincareVAE(epochs=1, hidden=(8,), advanced={"importance_samples": 5})


@parametrize_with_checks([CHECKED], expected_failed_checks=lambda estimator: UNEQUAL)
def test_scikit_learn_conventions(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it the check of array API inputs is skipped
    check(estimator)


# Of what a map on a sphere has of its own: the width of what it returns, and what is kept of it.
@pytest.mark.parametrize("check", [check_transformer_general, check_methods_subset_invariance, check_estimators_pickle])
def test_conventions_of_maps_on_spheres(check):
    check("PoincareVAE", clone(CHECKED).set_params(space="s1"))


# --- maps that are held to the neighbourhoods of the data ------------------------------------------------------------


X = np.random.default_rng(0).normal(size=(40, 4))


NEIGHBOUR_FAST = {"epochs": 2, "hidden": (8,), "random_state": 0, "device": "cpu"}


FAR = pytest.approx(3.0 * 1.2**1.5)


@pytest.mark.parametrize(("asked", "weights"), [(True, (1.2, FAR)), ("near", (1.2,)), ("far", (FAR,)), (False, ())])
def test_settings_reach_the_training(asked, weights):
    model = PoincareVAE(neighbours=asked, **NEIGHBOUR_FAST).fit(X)
    assert ("neighbours" in model.history_[-1]) == bool(weights)
    assert model._fitted.config.neighbour_weights == weights
    assert model.transform(X).shape == (40, 2)


def test_weight_and_number_of_neighbours():
    first, second, third = (
        PoincareVAE(neighbours="near", **NEIGHBOUR_FAST, advanced=more).fit(X)
        for more in ({}, {"neighbours_weight": 5.0}, {"n_neighbours": 3})
    )
    assert second._fitted.config.neighbour_weights == (5.0,)
    assert first.history_[0]["neighbours"] != third.history_[0]["neighbours"]


# --- latent spaces that are given by their factors -------------------------------------------------------------------


PRODUCT = {**FAST, "space": "h2:0.7,e1,h1:learn", "prior_scale": 1.5}


WIDTHS = [2, 1, 1]


OUTPUTS = pytest.mark.parametrize("output", ["auto", "ball", "tangent", "lorentz"])


@pytest.fixture(scope="module")
def product_x():
    random = np.random.default_rng(0)
    return random.normal(size=(50, 1)) * np.arange(1, 5) + random.normal(size=(50, 4))


@pytest.fixture(scope="module")
def product_model(product_x):
    return PoincareVAE(**PRODUCT).fit(product_x)


def test_one_factor_is_the_short_form(product_x):
    given = PoincareVAE(space="h3:1.4", **FAST).fit(product_x)
    plain = PoincareVAE(3, curvature=1.4, **FAST).fit(product_x)
    np.testing.assert_array_equal(given.transform(product_x), plain.transform(product_x))
    assert given.get_feature_names_out().tolist() == [f"poincarevae{i}" for i in range(3)]
    assert (
        given.curvature_ == plain.curvature_ == pytest.approx(1.4) and given.inverse_transform(np.zeros((1, 3))).any()
    )
    assert PoincareVAE(space="h2:learn", **FAST).fit(product_x).curvature_ != 1.0
    flat = PoincareVAE(space="e2", **FAST).fit(product_x)
    np.testing.assert_array_equal(
        flat.transform(product_x), PoincareVAE(curvature=0.0, **FAST).fit_transform(product_x)
    )


def test_what_was_learned_is_told_by_factor(product_model):
    assert (
        product_model.curvature_.shape == product_model.prior_scale_.shape == product_model.identifiable_.shape == (3,)
    )
    assert product_model.curvature_[:2] == pytest.approx([0.7, 0.0]) and product_model.curvature_[2] != 1.0
    np.testing.assert_allclose(product_model.prior_scale_, 1.5)
    np.testing.assert_allclose(product_model.identifiable_, product_model.curvature_ * 2.25)
    assert {"c_1", "c_3", "prior_scale_2"} <= set(product_model.history_[-1]) and isinstance(
        product_model.warnings_, list
    )


def test_outputs_are_charts_of_the_factors(product_x):
    found = {
        o: PoincareVAE(output=o, **PRODUCT).fit_transform(product_x) for o in ("auto", "ball", "tangent", "lorentz")
    }
    np.testing.assert_array_equal(found["auto"], found["tangent"])
    curvatures = PoincareVAE(**PRODUCT).fit(product_x).curvature_
    parts = {o: torch.from_numpy(z).split(WIDTHS, -1) for o, z in found.items()}
    for i, (dim, c) in enumerate(zip(WIDTHS, curvatures, strict=True)):
        S = parts["lorentz"][i]
        torch.testing.assert_close(PoincareBall(dim, c).to_lorentz(parts["ball"][i]), S)
        torch.testing.assert_close(Lorentz(dim, c).expmap0(1.5 * parts["tangent"][i]), S)


@OUTPUTS
def test_points_lead_back_to_rows(product_x, product_model, output):
    fitted = PoincareVAE(output=output, **PRODUCT).fit(product_x)
    found = fitted.inverse_transform(fitted.transform(product_x))
    np.testing.assert_allclose(
        found, product_model.inverse_transform(product_model.transform(product_x)), rtol=1e-6, atol=1e-9
    )
    with pytest.raises(CurvaeError, match="4 coordinates, got 2"):
        fitted.inverse_transform(np.zeros((1, 2)))


def test_points_outside_a_ball_are_refused(product_x):
    fitted = PoincareVAE(output="ball", **PRODUCT).fit(product_x)
    with pytest.raises(ValueError, match="PoincareBall"):
        fitted.inverse_transform([[0.0, 0.0, 9.0, 1e3]])
    assert fitted.inverse_transform([[0.0, 0.0, 9.0, 0.0]]).shape == (1, 4)  # the second is flat


def test_distances_neighbours_scores_and_samples(product_x, product_model):
    curvatures, z = product_model.curvature_, torch.from_numpy(1.5 * product_model.transform(product_x))
    each = []
    for c, v in zip(curvatures, z.split(WIDTHS, -1), strict=True):
        factor = Lorentz(v.shape[1], c)
        S = factor.expmap0(v)
        each.append(factor.dist(S.unsqueeze(1), S) / 1.5)
    expected = torch.stack(each).square().sum(0).sqrt().numpy()
    np.testing.assert_allclose(product_model.distances(product_x), expected, rtol=1e-6, atol=1e-7)
    far, places = product_model.kneighbors(k=3)
    np.fill_diagonal(expected, np.inf)
    np.testing.assert_allclose(far, np.sort(expected, 1)[:, :3], rtol=1e-6, atol=1e-7)
    assert places.shape == (50, 3)
    assert np.isfinite(product_model.score_samples(product_x)).all() and product_model.score(
        product_x
    ) == pytest.approx(product_model.score_samples(product_x).mean())
    assert product_model.sample(6).shape == (6, 4)


@OUTPUTS
def test_saved_and_loaded(tmp_path, product_x, output):
    model = PoincareVAE(output=output, **PRODUCT).fit(pd.DataFrame(product_x, columns=list("abcd")))
    model.save(tmp_path / "run")
    again = PoincareVAE.load(tmp_path / "run")
    rows = pd.DataFrame(product_x, columns=list("abcd"))
    np.testing.assert_array_equal(again.embedding_, model.embedding_)
    np.testing.assert_allclose(again.transform(rows), model.transform(rows), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(again.curvature_, model.curvature_)
    assert again.space == "h2:0.7,e1,h1:learn" and again.output == output and again.n_components == 2
    np.testing.assert_allclose(again.fit(rows).embedding_, model.embedding_)  # with the same parameters


def test_among_other_estimators(product_x):
    y = (product_x[:, 0] > 0).astype(int)
    pipeline = make_pipeline(PoincareVAE(**PRODUCT), LogisticRegression())
    assert pipeline.fit(product_x, y).score(product_x, y) > 0.5
    search = GridSearchCV(PoincareVAE(**FAST), {"space": [None, "h2,e1", "e2"]}, cv=2).fit(product_x)
    assert len(search.cv_results_["mean_test_score"]) == 3 and np.isfinite(search.cv_results_["mean_test_score"]).all()
    check_transformer_general("PoincareVAE", PoincareVAE(**PRODUCT))
    check_readonly_memmap_input("PoincareVAE", PoincareVAE(**PRODUCT))
    assert PoincareVAE(**PRODUCT).set_output(transform="pandas").fit_transform(product_x).shape == (50, 4)
    assert clone(PoincareVAE(**PRODUCT)).space == PRODUCT["space"]
    assert PoincareVAE(n_init=2, **PRODUCT).fit(product_x).embedding_.shape == (50, 4)


def test_spaces_that_cannot_be_are_refused(product_x):
    for given, message in (
        ({"space": "x2"}, "unknown kind x"),
        ({"space": 2}, "`space` must be a text"),
        ({"space": "h2,e3", "n_components": 4}, "contradicts"),
        ({"space": "h2,e3", "curvature": 0.5}, "contradicts"),
        ({"space": "h2,e3", "output": "balls"}, "`output` must be one of auto, ball, tangent, lorentz"),
    ):
        with pytest.raises(CurvaeError, match=message):
            PoincareVAE(**FAST | given).fit(product_x)
