"""Cell files: what is read of them, which genes are used, and what is refused, in memory and on disk."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

from cell_files import CELLS, counts, describe, write_h5ad
from curvae.data import Schema, load
from curvae.data.disk import in_memory


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def dense(x) -> np.ndarray:
    x = in_memory(x)
    return x if isinstance(x, np.ndarray) else x.toarray()


@pytest.mark.parametrize("make", [csr_array, csc_array, np.asarray], ids=["csr", "csc", "dense"])
@pytest.mark.parametrize("memory", [None, "1MB"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_counts_and_columns_that_describe_cells(make, memory, dtype):
    x, obs = counts(), describe()
    write_h5ad(CELLS, None, obs, layers={"counts": make(x.astype(dtype)), "other": make(2 * x)})
    roles = {"label": "kind", "group": "patient", "batch_key": "plate", "covariates": ["age"]}
    data, schema = load(CELLS, layer="counts", memory=memory, **roles)
    assert data.x.dtype == (np.float32 if dtype is np.float32 else np.float64)
    np.testing.assert_array_equal(dense(data.x), x)
    assert list(data.names) == [f"g{j}" for j in range(40)] and data.ids.tolist() == list(obs.index)
    assert data.labels.tolist() == obs["kind"].tolist() and data.label_name == "kind"
    assert data.groups.tolist() == obs["patient"].astype(str).tolist()
    np.testing.assert_array_equal(data.exposure, x.sum(1, dtype=np.float64))
    assert (data.total, data.counts, data.batch) == (True, True, (1, 3))
    age = obs["age"].to_numpy()
    expected = np.column_stack([(age - age.mean()) / age.std(), np.arange(60)[:, None] % 3 == np.arange(3)])
    np.testing.assert_allclose(data.context, expected, rtol=1e-12)
    assert data.context_names == ("age", "plate=p1", "plate=p2", "plate=p3")
    assert (schema.kind, schema.layer, schema.batch_key, schema.total) == ("cells", "counts", "plate", True)
    assert Schema.from_json(schema.to_json()) == schema
    assert load(CELLS, schema=schema, memory=memory)[0].fingerprint == data.fingerprint
    other = load(CELLS, schema=schema, layer="other")[0]
    np.testing.assert_array_equal(other.exposure, 2 * data.exposure)


def test_a_size_factor_and_ids_of_a_column():
    obs = describe().assign(barcode=[f"b{i}" for i in range(60)])
    data, schema = load(write_h5ad(CELLS, csr_array(counts()), obs), exposure="factor", id="barcode")
    np.testing.assert_array_equal(data.exposure, obs["factor"])
    assert (data.total, schema.total, schema.exposure) == (False, False, "factor") and data.counts
    assert data.ids.tolist() == obs["barcode"].tolist() and data.batch == ()
    assert load(CELLS, schema=schema)[0].exposure.tolist() == obs["factor"].tolist()
