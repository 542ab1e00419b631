"""The estimator on rows that are read in pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from curvae import PoincareVAE
from curvae.data import open_stream
from curvae.errors import CurvaeError
from curvae.training import Config, fit
from curvae.training import streamed as stream_problem
from streaming import COLUMNS, MEMORY, mixed_table, numbered, write_parquet

X = numbered(800)
HOW = {"posterior": "wrapped", "hidden": 8, "epochs": 2, "batch_size": 100, "random_state": 3}


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)


def test_a_stream_trains_the_model_that_fit_trains(monkeypatch):
    monkeypatch.setattr(stream_problem, "HELD_OUT", 50)
    stream = open_stream("x.npy", memory=MEMORY)
    found = PoincareVAE(**HOW).fit(stream)
    config = Config(posterior="wrapped", hidden=(8,), epochs=2, batch_size=100, seed=3)
    expected = fit(config, stream).history
    assert [record["elbo"] for record in found.history_] == [record["elbo"] for record in expected]
    assert 51 <= len(found.embedding_) <= 100 and found.n_features_in_ == COLUMNS
    placed = found.transform(X)
    assert all((np.abs(placed - point) < 1e-6).all(1).any() for point in found.embedding_)
    found.save("run")
    np.testing.assert_allclose(PoincareVAE.load("run").transform(X), placed, atol=1e-12)


def test_a_table_keeps_the_names_of_its_columns():
    table = write_parquet(Path("x.parquet"), X)
    found = PoincareVAE(**HOW).fit(open_stream("x.parquet", label="kind", id="cell", memory=MEMORY))
    assert found.feature_names_in_.tolist() == [f"g{i}" for i in range(COLUMNS)]
    assert found.transform(table.drop(columns=["kind", "cell"])).shape == (800, 2)


def test_covariates_are_those_of_the_stream():
    table = mixed_table(400)[["a", "b", "colour", "batch", "age"]]
    plain = table.drop(columns="colour")
    plain.to_parquet("x.parquet", row_group_size=100, index=False)
    stream = open_stream("x.parquet", covariates=["batch", "age"], memory=MEMORY)
    found = PoincareVAE(**HOW, covariates=["batch", "age"], advanced={"encode_covariates": True}).fit(stream)
    assert [column.name for column in found.covariates_] == ["batch", "age"] and found.n_features_in_ == 2
    placed = found.transform(plain)
    assert all((np.abs(placed - point) < 1e-6).all(1).any() for point in found.embedding_)
    table.to_parquet("x.parquet", row_group_size=100, index=False)
    stream = open_stream("x.parquet", covariates=["batch", "age"], categorical=["colour"], memory=MEMORY)
    found = PoincareVAE(**HOW, covariates=["batch", "age"]).fit(stream)
    assert found.feature_names_in_.tolist() == ["a", "b", "colour"]
    made = found.inverse_transform(found.transform(table), table[["batch", "age"]])
    assert set(made["colour"]) <= set(table["colour"])


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"n_init": 2}, "n_init needs all rows in memory"),
        ({"image_shape": (8, 10)}, "image_shape needs all rows in memory"),
        ({"covariates": ["x1"]}, r"covariates is \['x1'\] of the estimator and \[\] of the rows"),
        ({"missing": "model"}, "missing is 'model' of the estimator and 'error' of the rows"),
    ],
)
def test_what_needs_all_rows_is_refused(how, says):
    stream = open_stream("x.npy", memory=MEMORY)
    with pytest.raises(CurvaeError, match=says):
        PoincareVAE(**HOW, **how).fit(stream)
    with pytest.raises(CurvaeError, match="sample_weight needs all rows"):
        PoincareVAE(**HOW).fit(stream, sample_weight=np.ones(800))


def test_a_stream_is_no_matrix():
    with pytest.raises(CurvaeError, match="rows that are read in pieces are only trained on; give a matrix"):
        PoincareVAE(**HOW).fit(X).transform(open_stream("x.npy", memory=MEMORY))
