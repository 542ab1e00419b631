"""What estimators take: data frames with text and gaps, masked arrays, constant columns, rows read in pieces."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import sparse
from sklearn.base import clone

from curvae import CurvaeError, PoincareGraphVAE, PoincareVAE
from curvae.data import from_arrays, load
from curvae.training import Config, fit
from curvae.training.rows import DiskRows, RowPool, StackedRows
from disk_data import COLUMNS, MEMORY, mixed_table, numbered, write_parquet
from running import SMALL, curvae

FAST = {"hidden": (8,), "epochs": 2, "batch_size": 20, "advanced": {"importance_samples": 20}, "random_state": 0}


X = np.random.default_rng(0).normal(size=(40, 3))


def mixed() -> pd.DataFrame:
    """Numbers, texts, pandas categories that are numbers in an order of their own, booleans, and 0 and 1."""
    table = pd.DataFrame(X, columns=["a", "b", "c"], index=[f"row{i}" for i in range(40)])
    table["ward"] = ["north", "south", "east", "north"] * 10
    table["stage"] = pd.Categorical([3, 1] * 20, categories=[3, 2, 1], ordered=True)
    return table.assign(smokes=table["a"] > 0, urban=(table["b"] > 0).astype(int))


@pytest.fixture(scope="module")
def model():
    return PoincareVAE(**FAST).fit(mixed())


# --- categories and booleans ----------------------------------------------------------------------------------------


def test_a_frame_is_read_as_the_command_line_reads_a_table(model, tmp_path):
    mixed().to_csv(tmp_path / "t.csv", index=False)
    data, schema = load(tmp_path / "t.csv", categorical=["ward", "stage"])
    config = Config(hidden=(8,), epochs=2, batch_size=20, seed=0)
    assert model._schema.blocks == schema.blocks == (0, 0, 0, 3, 2, 1, 1)
    assert [one["elbo"] for one in fit(config, data).history] == [one["elbo"] for one in model.history_]
    assert model.likelihood_ == "mixed" and model.n_features_in_ == 7
    assert model.feature_names_in_.tolist() == list(mixed())
    np.testing.assert_array_equal(model.transform(mixed()), model.embedding_)
    assert np.isfinite(model.score_samples(mixed())).all()


@pytest.mark.parametrize("stored", [False, True])
def test_columns_come_back_as_they_were(model, tmp_path, stored):
    table = mixed()
    if stored:
        model.save(tmp_path / "run")
        embedding, model = model.embedding_, PoincareVAE.load(tmp_path / "run")
        np.testing.assert_array_equal(model.transform(table), embedding)
    for made in (model.inverse_transform(model.embedding_), model.sample(40)):
        assert made.columns.tolist() == table.columns.tolist() and len(made) == 40
        assert made["smokes"].dtype == bool and made["ward"].dtype == table["ward"].dtype
        assert isinstance(made["stage"].dtype, pd.CategoricalDtype)
        assert set(made["ward"]) <= {"north", "south", "east"} and set(made["stage"].astype(int)) <= {1, 3}
        if not stored:
            assert made["stage"].dtype == table["stage"].dtype
    assert set(made["urban"]) == {0, 1}
    assert PoincareVAE(**FAST).fit(table[["a", "b"]]).sample(3).shape == (3, 2)  # numbers alone stay an array


def test_a_stored_type_that_is_none_is_refused(model, tmp_path):
    model.save(tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"smokes": "bool"', '"smokes": "maybe"'))
    with pytest.raises(CurvaeError, match="column 'smokes' is stored with the type 'maybe'; train again"):
        PoincareVAE.load(tmp_path / "run")


def test_the_most_probable_value_is_given(model):
    expected = {"ward": ["east", "south"], "smokes": [False, True]}
    features = np.zeros((2, 10))
    features[:, 3:6] = [[0.5, 0.2, 0.3], [0.2, 0.3, 0.5]]  # of east, north and south
    features[:, 8] = [0.4, 0.6]
    found = model._restored(features)
    assert {name: found[name].tolist() for name in expected} == expected


def test_a_saved_model_reads_tables_of_the_command_line(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mixed().to_csv("t.csv", index=False)
    model.save("run")
    assert curvae("embed", "run", "t.csv", "-q").code == 0
    placed = pd.read_csv("t-embedding.csv")[["ball_1", "ball_2"]]
    np.testing.assert_allclose(placed, model.embedding_, rtol=1e-9)
    assert curvae("fit", "t.csv", "--categorical", "ward", "--categorical", "stage", "-o", "own", *SMALL).code == 0
    own = PoincareVAE.load("own")
    np.testing.assert_allclose(own.transform(mixed()), own.embedding_, atol=1e-9)
    assert own.categorical == ["ward", "stage"] and set(own.sample(9)["stage"]) <= {"1", "3"}


def test_a_loaded_run_takes_the_table_it_was_trained_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.poisson(3, (40, 4)), columns=list("abcd")).assign(
        name=[f"row {i}" for i in range(40)], kind=["x", "y"] * 20, batch=["p", "q", "q", "p"] * 10
    )
    table.insert(0, "same", 1.0)
    table.insert(2, "hours", random.uniform(1, 5, 40))
    table.to_csv("t.csv", index=False)
    roles = ("--id", "name", "--label", "kind", "--covariate", "batch", "--exposure", "hours")
    assert curvae("fit", "t.csv", "-o", "run", "--likelihood", "poisson", *roles, *SMALL).code == 0
    own = PoincareVAE.load("run")
    np.testing.assert_allclose(own.transform(table), own.embedding_, atol=1e-9)
    shuffled = table[table.columns[::-1]].assign(other="text")
    np.testing.assert_array_equal(own.score_samples(shuffled), own.score_samples(table))
    changed = table.assign(hours=2 * table["hours"])
    assert not np.allclose(own.score_samples(changed), own.score_samples(table))
    with pytest.raises(ValueError, match="now missing:\n- c\n"):
        own.transform(table.drop(columns="c"))
    with pytest.raises(CurvaeError, match="exposure for each row"):
        own.transform(table.drop(columns="hours"))
    own.set_params(covariates=None).fit(table[list("abcd")])  # an estimator of one's own is as strict as others
    with pytest.raises(ValueError, match="unseen at fit time"):
        own.transform(table[list("abcd")].assign(e=1.0))


def test_categories_can_be_listed(model):
    table = mixed()
    listed = PoincareVAE(**FAST, categorical=["ward", 4, -1]).fit(table)  # by name and position
    assert listed._schema.blocks == (0, 0, 0, 3, 2, 1, 2)
    assert listed.inverse_transform(listed.embedding_)["urban"].dtype == table["urban"].dtype
    codes = np.column_stack([X[:, 0], np.arange(40) % 3, X[:, 1]])
    array = PoincareVAE(**FAST, categorical=[1]).fit(codes)
    assert array._schema.blocks == (0, 3, 0) and array.n_features_in_ == 3
    np.testing.assert_array_equal(array.transform(codes), array.embedding_)
    assert set(array.sample(30)[1]) == {0.0, 1.0, 2.0}
    told = PoincareVAE(**FAST, covariates=[1], categorical=[1, 2]).fit(
        np.column_stack([X[:, 0], np.arange(40) % 3, np.arange(40) % 2])
    )
    assert told._schema.blocks == (0, 2) and told.covariates_[0].categories == ("0", "1", "2")
    texts = np.array([[1.0, "a"], [2.0, "b"]] * 20, dtype=object)
    assert set(PoincareVAE(**FAST, categorical=[1]).fit(texts).sample(20)[1]) == {"a", "b"}


def test_frames_of_other_libraries(model):
    arrow = pytest.importorskip("pyarrow")
    table = mixed()[["a", "b", "c", "ward", "smokes"]]
    found = PoincareVAE(**FAST).fit(table)
    np.testing.assert_array_equal(
        found.transform(arrow.Table.from_pandas(table, preserve_index=False)), found.embedding_
    )


@pytest.mark.parametrize(
    ("options", "added", "says"),
    [
        ({}, {"name": [f"r{i}" for i in range(40)]}, "column 'name' has a different text in every row, as names do"),
        ({}, {"when": pd.date_range("2020", periods=40)}, "column 'when' holds dates or times; convert it"),
        (
            {"categorical": None},
            {},
            r'text in column \'ward\' \(\'north\' in row 1\).*; use `categorical=\["ward"\]` or',
        ),
        ({"categorical": ["wrad"]}, {}, "X has no column 'wrad' for `categorical=…`; did you mean 'ward'?"),
        ({"categorical": [7]}, {}, "X has no column '7' for `categorical=…`"),
        ({"categorical": "ward"}, {}, "`categorical` is the text 'ward'; give a list of columns"),
        ({"likelihood": "bernoulli"}, {}, "likelihood bernoulli"),
    ],
)
def test_columns_that_are_refused(options, added, says):
    with pytest.raises(CurvaeError, match=says) as caught:
        PoincareVAE(**FAST, **options).fit(mixed().assign(**added))
    assert "\n" not in str(caught.value)


def test_new_rows_that_are_refused(model):
    table = mixed()
    for wrong, says in (
        (
            table.replace("south", "west"),
            "column 'ward' of X holds categories that the model was not .*: 'west'; it knows",
        ),
        (table.assign(urban=2), "0 or 1 in column 'urban'"),
        (table.assign(a="high"), "X has text in column 'a'"),
        (table[:0], "X has no rows"),
    ):
        with pytest.raises(CurvaeError, match=says):
            model.transform(wrong)
    for wrong in (table.drop(columns="ward"), table[table.columns[::-1]]):
        with pytest.raises(ValueError, match="feature names should match"):
            model.score_samples(wrong)
    with pytest.raises(CurvaeError, match="X is an array with text in it, 'a'; give a data frame"):
        PoincareVAE(**FAST).fit(np.array([[1.0, "a"], [2.0, "b"]], dtype=object))
    with pytest.raises(CurvaeError, match="X has columns of the same name: 'a'; rename them"):
        PoincareVAE(**FAST).fit(pd.DataFrame(X, columns=list("aab")))


def test_numbers_with_cells_to_correct_are_no_categories():
    table = mixed().assign(ash=[f"{number:.2f}" for number in X[:, 0]])
    table.loc["row3", "ash"], table.loc["row5", "ash"] = "n.d.", "<2"
    with pytest.raises(CurvaeError, match=r"column 'ash' has numbers, and cells that are none: 'n.d.', '<2'; correct"):
        PoincareVAE(**FAST).fit(table)
    assert PoincareVAE(**FAST, categorical=["ash"]).fit(table[["a", "b", "ash"]]).n_features_in_ == 3


def test_what_is_no_table(model):
    for file in ("wine.csv", Path("wine.csv")):
        with pytest.raises(
            CurvaeError, match=r"X is the name of a file, 'wine.csv'; give what `curvae.data.load` reads"
        ):
            PoincareVAE(**FAST).fit(file)
    with pytest.raises(CurvaeError, match=r"X is a single row or column; give a data frame, of one row `row.to_frame"):
        model.transform(mixed().iloc[0])


def test_frames_of_numbers_are_what_arrays_are():
    array, single, thin = X, X.astype(np.float32), sparse.csr_array(np.where(np.abs(X) < 0.5, 0, X))
    frames = pd.DataFrame(array), pd.DataFrame(single), pd.DataFrame.sparse.from_spmatrix(thin)
    for frame, x in zip(frames, (array, single, thin), strict=True):
        found = PoincareVAE(**FAST).fit(frame)
        assert found.transform(frame).dtype == x.dtype
        np.testing.assert_array_equal(found.embedding_, PoincareVAE(**FAST).fit(x).embedding_)


# --- gaps -----------------------------------------------------------------------------------------------------------


def gapped() -> pd.DataFrame:
    table = mixed()
    table.iloc[[0, 5], 3] = None
    table.iloc[7, 0] = np.nan
    return table


def test_gaps_are_refused_with_all_that_can_be_done():
    for x, where in ((gapped(), r"'a' \(1\), 'ward' \(2\)"), (np.where(X > 2, np.nan, X), r"'x2' \(1\)")):
        with pytest.raises(CurvaeError, match=where) as caught:
            PoincareVAE(**FAST).fit(x)
        assert all(f'missing="{name}"' in str(caught.value) for name in ("model", "mean", "drop"))
    model = PoincareVAE(**FAST).fit(X)
    with pytest.raises(
        CurvaeError, match=r"X has missing or infinite .* 'x2' \(1\); leave these rows out, or fit with"
    ):
        model.transform(np.where(X > 2, np.nan, X))


def test_rows_with_gaps_are_dropped():
    table, weight = gapped(), np.arange(1.0, 41.0)
    model = PoincareVAE(**FAST, missing="drop").fit(table, sample_weight=weight)
    kept = [i for i in range(40) if i not in (0, 5, 7)]
    assert model.sample_indices_.tolist() == kept and model.embedding_.shape == (37, 2)
    alone = PoincareVAE(**FAST).fit(table.iloc[kept], sample_weight=weight[kept])
    np.testing.assert_array_equal(model.embedding_, alone.embedding_)
    assert alone.sample_indices_.tolist() == list(range(37))
    assert model.kneighbors(k=2)[1].max() < 37 and any("3 rows" in note for note in model.notes_)
    with pytest.raises(CurvaeError, match="leave these rows out"):
        model.transform(table)
    with pytest.raises(CurvaeError, match="fit_transform returns a point for every row.* `sample_indices_`"):
        clone(model).fit_transform(table)
    assert clone(model).fit_transform(table.iloc[kept]).shape == (37, 2)


def test_gaps_are_filled_with_means(tmp_path):
    table = gapped()
    model = PoincareVAE(**FAST, missing="mean").fit(table)
    filled = table.fillna({"a": table["a"].mean(), "ward": "north"})
    np.testing.assert_allclose(model.embedding_, model.transform(filled), atol=1e-12)
    model.save(tmp_path / "run")
    again = PoincareVAE.load(tmp_path / "run")
    assert again.missing == "mean" and again.notes_ == model.notes_
    np.testing.assert_array_equal(again.transform(table), model.embedding_)
    with pytest.raises(CurvaeError, match='fitted with `missing="mean"`, so it knows no gaps'):
        model.impute(table)


def test_gaps_of_categories_are_imputed():
    table = gapped()
    model = PoincareVAE(**FAST, missing="model").fit(table)
    filled = model.impute(table)
    assert filled.index.equals(table.index) and not filled.isna().to_numpy().any()
    known = table.notna()
    assert filled.where(known).astype(object).equals(table.where(known).astype(object))


@pytest.mark.parametrize("dtype", [float, np.float32, int])
def test_masked_values_are_missing(dtype):
    x = (10 * X).astype(dtype)
    masked = np.ma.masked_array(x, X > 1.5)
    with pytest.raises(CurvaeError, match=r"missing .*'x1' \(2\), 'x2' \(2\), 'x3' \(5\)"):
        PoincareVAE(**FAST).fit(masked)
    found = PoincareVAE(**FAST, missing="model").fit(masked)
    gaps = np.where(X > 1.5, np.nan, x).astype(float if dtype is int else dtype)
    same = PoincareVAE(**FAST, missing="model").fit(gaps)
    np.testing.assert_array_equal(found.embedding_, same.embedding_)
    with pytest.raises(CurvaeError, match="missing"):
        from_arrays(masked)


# --- constant columns -----------------------------------------------------------------------------------------------


def test_categories_are_a_list_of_columns():
    with pytest.raises(CurvaeError, match='`categorical` must be "auto", None or a list of columns, got 9'):
        PoincareVAE(**FAST, categorical=9).fit(pd.DataFrame(X))


def test_constant_columns():
    for x, names in ((np.ones((20, 2)), "'x1', 'x2'"), (pd.DataFrame({"a": [1.0] * 9, "b": ["u"] * 9}), "'a', 'b'")):
        says = rf"nothing varies in X: every column is constant \({names}\), so there is nothing to learn"
        with pytest.raises(CurvaeError, match=says):
            PoincareVAE(**FAST).fit(x)
    found = PoincareVAE(**FAST).fit(pd.DataFrame(X, columns=["a", "b", "c"]).assign(b=4.0))
    assert found.notes_ == ("column 'b' is constant; it is kept.",)
    np.testing.assert_array_equal(found.sample(5)[:, 1], 4.0)


# --- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [PoincareVAE, PoincareGraphVAE])
def test_misspelt_parameters(estimator):
    name = estimator.__name__
    for wrong, meant in (
        ("curvture", "curvature"),
        ("epoch", "epochs"),
        ("dim", "n_components"),
        ("seed", "random_state"),
    ):
        says = f"^{name} has no parameter '{wrong}'; did you mean {meant}\\?$"
        with pytest.raises(TypeError, match=says):
            estimator(**{wrong: 1})
        with pytest.raises(CurvaeError, match=says):
            estimator().set_params(**{wrong: 1})
    with pytest.raises(TypeError, match=f"{name} has no parameter 'zzz'; it has advanced, "):
        estimator(zzz=1)
    with pytest.raises(TypeError, match=f"{name} has no parameter 'cooldown'; use `advanced={{\"cooldown\": …}}`"):
        estimator(cooldown=0.3)
    with pytest.raises(TypeError, match=f"{name} has no parameter 'learn_curvature'; use `curvature=\"learn\"`"):
        estimator(learn_curvature=True)
    assert estimator(3, curvature=0.5).set_params(epochs=7).epochs == 7


# --- pictures -------------------------------------------------------------------------------------------------------


def dots(ax) -> np.ndarray:
    """The points drawn, in any order."""
    found = max(ax.collections, key=lambda one: len(one.get_offsets())).get_offsets()
    return np.sort(np.asarray(found), axis=0)


def test_the_map_is_drawn(model):
    ax = Figure().subplots()
    assert model.plot(mixed()["ward"], ax) is ax
    np.testing.assert_allclose(dots(ax), np.sort(model.embedding_, axis=0))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["east", "north", "south"]
    assert any(patch.get_radius() == pytest.approx(1.0) for patch in ax.patches)  # the rim
    with pytest.raises(CurvaeError, match="3 labels for 40 points"):
        model.plot([1, 2, 3], Figure().subplots())
    with pytest.raises(CurvaeError, match="needs 1 axes, .*; got 2"):
        model.plot(ax=Figure().subplots(1, 2))


def test_maps_of_other_dimensions_are_drawn():
    import matplotlib.pyplot as plt

    ax = PoincareVAE(3, **FAST).fit(X).plot()
    assert dots(ax).shape == (40, 2) and "projected from 3 dimensions" in ax.get_title().replace("\n", " ")
    axes = PoincareVAE(space="h2,e1", **FAST).fit(X).plot()
    assert [dots(one).shape for one in axes] == [(40, 2)] * 2
    plt.close("all")


def test_the_map_of_a_graph_is_drawn():
    tree = [(i, (i - 1) // 2) for i in range(1, 15)]
    model = PoincareGraphVAE(epochs=2, random_state=0).fit(tree)
    ax = model.plot(["leaf" if i > 6 else "inner" for i in range(15)], Figure().subplots())
    np.testing.assert_allclose(dots(ax), np.sort(model.embedding_, axis=0))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["inner", "leaf"]
    assert any(len(one.get_paths()) == 14 for one in ax.collections)  # the edges


# --- data sets, whose rows may lie on disk ---------------------------------------------------------------------------


STORED_X = numbered(800)
HOW = {"posterior": "wrapped", "hidden": 8, "epochs": 2, "batch_size": 100, "random_state": 3}


@pytest.fixture
def _place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", STORED_X)


@pytest.mark.parametrize("how", [{}, {"n_init": 2, "neighbours": "off"}, {"image_shape": (8, 10), "neighbours": "off"}])
@pytest.mark.usefixtures("_place")
def test_rows_on_disk_train_the_model_that_rows_in_memory_train(how, monkeypatch):
    class MemoryOrder(DiskRows):
        def batches(self, generators, size, own=slice(None)):
            rows = StackedRows(RowPool([self.rows]), [0], self.index.unsqueeze(0), self._neighbours)
            return rows.batches(generators, size, own)

    monkeypatch.setattr("curvae.training.rows.DiskRows", MemoryOrder)
    data, _ = load("x.npy", memory=MEMORY)
    assert data.on_disk
    weight = np.linspace(0.5, 1.5, 800)
    found = PoincareVAE(**HOW, **how).fit(data, sample_weight=weight)
    expected = PoincareVAE(**HOW, **how).fit(STORED_X, sample_weight=weight)
    # Several trainings on rows in memory are stacked, which rounds in another way.
    same = partial(np.testing.assert_allclose, atol=1e-6) if "n_init" in how else np.testing.assert_array_equal
    same(found.embedding_, expected.embedding_)
    same(found.transform(data), expected.transform(STORED_X))
    np.testing.assert_array_equal(found.sample_indices_, expected.sample_indices_)
    np.testing.assert_array_equal(found.score_samples(data.take([5, 3])), found.score_samples(STORED_X[[5, 3]]))
    assert found.n_features_in_ == COLUMNS
    found.save("run")
    np.testing.assert_allclose(PoincareVAE.load("run").transform(data), found.embedding_, atol=1e-12)


@pytest.mark.usefixtures("_place")
def test_a_table_keeps_the_names_of_its_columns():
    table = write_parquet(Path("x.parquet"), STORED_X)
    for memory in (MEMORY, None):
        data, _ = load("x.parquet", label="kind", id="cell", memory=memory)
        found = PoincareVAE(neighbours="off", **HOW | {"epochs": 1}).fit(data)
        assert found.feature_names_in_.tolist() == [f"g{i}" for i in range(COLUMNS)]
        assert found.transform(table.drop(columns=["kind", "cell"])).shape == (800, 2)


@pytest.mark.usefixtures("_place")
def test_covariates_are_those_of_the_data():
    table = mixed_table(400)[["a", "b", "colour", "batch", "age"]]
    plain = table.drop(columns="colour")
    plain.to_parquet("x.parquet", index=False)
    data, _ = load("x.parquet", covariates=["batch", "age"])
    found = PoincareVAE(**HOW, covariates=["batch", "age"], advanced={"encode_covariates": True}).fit(data)
    assert [column.name for column in found.covariates_] == ["batch", "age"] and found.n_features_in_ == 2
    np.testing.assert_allclose(found.transform(plain), found.embedding_, atol=1e-6)
    table.to_parquet("x.parquet", index=False)
    data, _ = load("x.parquet", covariates=["batch", "age"], categorical=["colour"])
    found = PoincareVAE(**HOW, covariates=["batch", "age"]).fit(data)
    assert found.feature_names_in_.tolist() == ["a", "b", "colour"]
    made = found.inverse_transform(found.transform(table), table[["batch", "age"]])
    assert set(made["colour"]) <= set(table["colour"])


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"covariates": ["x1"]}, r"`covariates` is \['x1'\] of the estimator and \[\] of X"),
        ({"missing": "model"}, r"X was read with another value than `missing=.model.`, and the estimator has 'model'"),
    ],
)
@pytest.mark.usefixtures("_place")
def test_data_that_were_read_in_another_way(how, says):
    with pytest.raises(CurvaeError, match=says):
        PoincareVAE(**HOW, **how).fit(load("x.npy")[0])


@pytest.mark.usefixtures("_place")
def test_data_of_another_width_and_with_an_exposure():
    found = PoincareVAE(**HOW).fit(STORED_X)
    with pytest.raises(CurvaeError, match="X has 4 features, and the model was fitted to 80"):
        found.transform(from_arrays(STORED_X[:, :4]))
    mixed_table(100)[["a", "b", "time"]].to_csv("t.csv", index=False)
    with pytest.raises(CurvaeError, match="an estimator knows no `exposure=…`"):
        PoincareVAE(**HOW).fit(load("t.csv", exposure="time")[0])
