"""Cell files: what is read of them, which genes are used, and what is refused, in memory and on disk."""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csc_array, csr_array

from cell_files import CELLS, counts, describe, write_10x, write_10x_folder, write_h5ad
from curvae.data import Schema, cells, load, spool
from curvae.data.cells import choose_genes, read_anndata
from curvae.data.disk import DiskMatrix, in_memory
from curvae.data.spool import Storage
from curvae.data.tables import Roles
from curvae.errors import CurvaeError
from processes import child, wait
from reading import refusal


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


def dense(x) -> np.ndarray:
    x = in_memory(x)
    return x if isinstance(x, np.ndarray) else x.toarray()


# What is read.


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
    assert (data.arrays.total, data.arrays.counts, data.arrays.batch) == (True, True, (1, 3))
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


def test_columns_that_may_have_gaps():
    """Nullable columns and categories without a value, as anndata writes them."""
    write_h5ad(CELLS, csr_array(counts(4, 3)))
    with h5py.File(CELLS, "r+") as file:
        obs = file["obs"]
        obs.attrs.create("column-order", ["a", "b", "c", "d"], dtype=h5py.string_dtype())
        for name, kind, values in (("a", "integer", [3, 4, 5, 6]), ("b", "boolean", [True, False, True, True])):
            group = obs.create_group(name)
            group.attrs["encoding-type"], group.attrs["encoding-version"] = f"nullable-{kind}", "0.1.0"
            for part, array in (("values", values), ("mask", [False, True, False, False])):
                group[part] = np.array(array)
                group[part].attrs["encoding-type"], group[part].attrs["encoding-version"] = "array", "0.2.0"
        group = obs.create_group("c")
        group.attrs["encoding-type"], group.attrs["encoding-version"] = "categorical", "0.2.0"
        group["codes"] = np.array([1, -1, 0, 1], np.int8)
        group["categories"] = np.array([10, 20])
        group["categories"].attrs["encoding-type"], group["categories"].attrs["encoding-version"] = "array", "0.2.0"
    assert load(CELLS, label="a")[0].labels.tolist() == ["3", "", "5", "6"]
    assert load(CELLS, label="b")[0].labels.tolist() == ["True", "", "True", "True"]
    data = load(CELLS, label="c")[0]  # nobody asks for d, which is not there
    assert data.labels.tolist() == ["20", "", "10", "20"] and "1 row without a label" in data.notes[-1]


IDS = [f"ENSG{j:011}" for j in range(6)]
NAMES = ["CD8A", "MS4A1", "TBCE", "LYZ", "TBCE", "GAPDH"]
CALLED = ["CD8A", "MS4A1", "ENSG00000000002", "LYZ", "ENSG00000000004", "GAPDH"]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("memory", [None, "1MB"])
def test_files_of_10x(version, memory):
    x = counts(9, 6) + 1
    data, schema = load(write_10x(Path("f.h5"), x, NAMES, IDS, version=version), memory=memory)
    np.testing.assert_array_equal(dense(data.x), x)
    assert list(data.names) == CALLED and data.ids.tolist() == [f"AC{i}-1" for i in range(9)]
    assert "2 genes that share a name are called by their ids." in data.notes and schema.kind == "cells"
    kinds = ["Gene Expression", "Antibody Capture", "Gene Expression", *["Gene Expression"] * 2, "CRISPR Guide Capture"]
    if version == 3:
        data, schema = load(write_10x(Path("g.h5"), x, NAMES, IDS, kinds), memory=memory)
        assert list(data.names) == [CALLED[j] for j in (0, 2, 3, 4)]
        np.testing.assert_array_equal(dense(data.x), x[:, [0, 2, 3, 4]])
        assert "left out because they are no genes: 2 features." in data.notes
        assert "has no layer 'a'" in refusal("g.h5", layer="a")
        np.testing.assert_array_equal(dense(load("g.h5", schema=schema)[0].x), x[:, [0, 2, 3, 4]])


@pytest.mark.parametrize(("version", "packed"), [(2, False), (3, True), (3, False)])
def test_folders_of_10x(version, packed):
    x = counts(9, 6)
    data, _ = load(write_10x_folder(Path("run"), x, NAMES, IDS, packed, version))
    np.testing.assert_array_equal(dense(data.x), x)
    assert list(data.names) == CALLED and data.ids.tolist() == [f"AC{i}-1" for i in range(9)]
    (Path("run") / ("barcodes.tsv.gz" if packed else "barcodes.tsv")).unlink()
    assert "has a matrix.mtx and no barcodes.tsv" in refusal("run")


def test_a_folder_of_10x_whose_files_do_not_fit_each_other():
    folder = write_10x_folder(Path("run"), counts(9, 6), NAMES, IDS, False, 3)
    (folder / "features.tsv").write_text("a\tb\n")
    assert "matrix of 6 genes × 9 cells, 1 gene and 9 barcodes" in refusal("run")


@pytest.mark.filterwarnings("ignore")  # anndata sets options that pandas 3 no longer knows
def test_what_anndata_writes_and_objects_of_it():
    import anndata

    anndata.settings.allow_write_nullable_strings = True  # what pandas 3 makes of texts
    obs = describe()
    obs["visits"] = pd.array([1, None, *range(58)], "Int64")
    made = anndata.AnnData(csr_array(counts()), obs, layers={"raw": csc_array(counts(seed=1))})
    made.write_h5ad(CELLS)
    backed = anndata.read_h5ad(CELLS, backed="r")
    part = anndata.read_h5ad(CELLS, backed="r")[5:25]
    roles = {"label": "visits", "batch_key": "plate"}
    for layer in (None, "raw"):
        data, schema = load(CELLS, layer=layer, genes=20, **roles)
        assert data.labels[:3].tolist() == ["1", "", "0"]
        for given, rows in (
            (made, slice(None)),
            (backed, slice(None)),
            (made[5:25], slice(5, 25)),
            (part, slice(5, 25)),
        ):
            found, own = read_anndata(given, Roles(**roles), layer=layer, genes=20).finish(None, "error")
            if rows == slice(None):
                assert found.fingerprint == data.fingerprint and own == schema
            again, _ = read_anndata(given, Roles(), schema).finish(schema, "error")
            np.testing.assert_array_equal(dense(again.x), dense(data.x)[rows])
            assert again.ids.tolist() == data.ids[rows].tolist()
            assert again.labels.tolist() == data.labels[rows].tolist()
    found = read_anndata(backed, Roles(), storage=Storage(10**4))
    assert isinstance(found.x, DiskMatrix)
    backed.obs["new"] = ["a"] * 30 + ["b"] * 30  # what the object says counts, not what the file says
    assert read_anndata(backed, Roles(label="new")).labels.tolist() == ["a"] * 30 + ["b"] * 30


# The genes in use.


def variances(x: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """The rule, cell by cell."""
    logs = np.log1p(1e4 * x.astype(np.float64) / x.sum(1, dtype=np.float64)[:, None])
    each = [(batches == batch) for batch in np.unique(batches)]
    return sum(rows.sum() * logs[rows].var(0) for rows in each) / len(x)


@pytest.mark.parametrize("make", [csr_array, csc_array, np.asarray], ids=["csr", "csc", "dense"])
def test_genes_that_vary_within_batches(make):
    x, obs = counts(60, 90), describe()
    x[obs["plate"] == "p2", 7] += 200  # which differs between batches alone
    x[:, 11], x[:, 80] = 0, x[:, 3]  # no counts, and a tie
    x[:, :5] *= 30
    write_h5ad(CELLS, make(x), obs)
    found = [load(CELLS, genes=20, batch_key="plate", memory=memory) for memory in (None, "1MB")]
    order = np.argsort(-variances(x, obs["plate"].to_numpy()), kind="stable")
    expected = np.sort(order[:20])
    assert 7 not in expected and 7 in np.argsort(-variances(x, np.zeros(60)), kind="stable")[:20]
    for data, schema in found:
        assert list(data.names) == [f"g{j}" for j in expected] and schema == found[0][1]
        np.testing.assert_array_equal(dense(data.x), x[:, expected])
        np.testing.assert_array_equal(data.exposure, x[:, expected].sum(1))
        assert "left out because no cell has a count of them: 1 gene." in data.notes
        assert "20 genes of 90 are used, those that vary most within batches." in data.notes
    assert found[0][0].fingerprint == found[1][0].fingerprint
    assert len(load(CELLS)[0].names) == 89  # few genes are all used


def test_how_many_genes_are_used_by_default():
    with mock.patch.multiple(cells, _GENES=10, _MANY=40):
        write_h5ad(CELLS, csr_array(counts(60, 40)))
        assert load(CELLS)[0].x.shape == (60, 10)
        assert load(CELLS, genes=100)[0].x.shape == (60, 40)
        write_h5ad(CELLS, csr_array(counts(60, 39)))
        assert load(CELLS)[0].x.shape == (60, 39)


def test_genes_that_are_marked_as_highly_variable():
    x, marked = counts(), np.arange(40) % 2 == 0
    x[:, 4] = 0
    write_h5ad(CELLS, csr_array(x), marked=marked)
    data, _ = load(CELLS)
    assert list(data.names) == [f"g{j}" for j in range(0, 40, 2) if j != 4]
    assert "19 genes of 40 are used, those marked as highly variable." in data.notes
    assert load(CELLS, genes=39)[0].x.shape == (60, 39)  # a number that is asked for counts more
    write_h5ad(CELLS, csr_array(x), marked=np.zeros(40, bool))
    assert load(CELLS)[0].x.shape == (60, 39)


def test_new_cells_are_matched_by_the_names_of_their_genes():
    x = counts()
    _, schema = load(write_h5ad(CELLS, csr_array(x)))
    order = np.random.default_rng(0).permutation(40)
    names = [f"g{j}" for j in order]
    new = np.column_stack([x[:, order], np.full(60, 3.0, np.float32)])
    for make in (csr_array, csc_array, np.asarray):
        data, _ = load(write_h5ad(CELLS, make(new), genes=[*names, "more"]), schema=schema)
        np.testing.assert_array_equal(dense(data.x), x)
        np.testing.assert_array_equal(data.exposure, x.sum(1))
        assert not data.warnings
    data, _ = load(write_h5ad(CELLS, csr_array(x[:, order[8:]]), genes=names[8:]), schema=schema)
    expected = np.where(np.isin(np.arange(40), order[8:]), x, 0)
    np.testing.assert_array_equal(dense(data.x), expected)
    np.testing.assert_array_equal(data.exposure, expected.sum(1))
    (warning,) = data.warnings
    assert "lacks 8 genes of those that the model was trained on (20 %), which count as 0: 'g" in warning
    write_h5ad(CELLS, csr_array(x[:, order[9:]]), genes=names[9:])
    assert "lacks 22.5 % of the 40 genes that the model was trained on, such as 'g" in refusal(CELLS, schema=schema)
    write_h5ad(CELLS, csr_array(x), genes=[f"ENSG{j}" for j in range(40)])
    assert (
        "lacks 100 % of the 40 genes that the model was trained on, such as 'g0' (its own are called as 'ENSG0')"
        in (refusal(CELLS, schema=schema))
    )
    assert "which genes are used was set when the model was trained" in refusal(CELLS, schema=schema, genes=4)
    assert "which column is the batch was set" in refusal(CELLS, schema=schema, batch_key="plate")


def test_genes_are_chosen_with_or_without_zeros_in_between():
    x, places = counts(7, 9), np.array([8, -1, 0, 3])
    expected = np.column_stack([x[:, 8], np.zeros(7), x[:, 0], x[:, 3]])
    for made in (choose_genes(x, places), choose_genes(csr_array(x), places)):
        np.testing.assert_array_equal(dense(made), expected)
        assert made.dtype == np.float32
    assert choose_genes(csr_array(x), places).has_canonical_format


# On disk.


def test_rows_of_a_file_are_read_as_they_are_needed():
    x, obs = counts(3000, 60), describe(3000)
    write_h5ad(CELLS, csr_array(x), obs)
    data, schema = load(CELLS, genes=30, batch_key="plate", label="kind", memory="1MB")
    whole, same = load(CELLS, genes=30, batch_key="plate", label="kind")
    assert data.on_disk and not whole.on_disk and schema == same and data.fingerprint == whole.fingerprint
    assert "3,000 cells are read from disk, in 1MB of memory." in data.notes
    rows = np.random.default_rng(0).permutation(3000)[:50]
    np.testing.assert_array_equal(dense(data.take(rows).x), dense(whole.x)[rows])
    again = pickle.loads(pickle.dumps(data.x))  # as another process has it
    np.testing.assert_array_equal(dense(again[rows]), dense(whole.x)[rows])
    pieces = list(data.pieces())
    assert len(pieces) > 3 and sum(map(len, pieces)) == 3000
    np.testing.assert_array_equal(np.concatenate([piece.exposure for piece in pieces]), whole.exposure)
    write_h5ad(CELLS, csr_array(x + 1), obs)
    with pytest.raises(CurvaeError, match="was changed while it was being read"):
        data.take([0]).load()


def test_columns_of_a_file_are_copied_as_rows_once():
    x = counts(3000, 60)
    write_h5ad(CELLS, csc_array(x), layers={"more": csc_array(2 * x)})
    advanced: list[int] = []

    def counter(task, rows):
        assert task.startswith("copying") and rows == 3060
        return advanced.append

    how = {"memory": "1MB", "cache": "copies", "counter": counter}
    data, _ = load(CELLS, **how)
    np.testing.assert_array_equal(dense(data.x), x)
    assert sum(advanced) == 3060 and len(advanced) > 10
    (folder,) = [path for path in Path("copies").iterdir() if path.is_dir()]
    assert [path.name for path in folder.iterdir()] == ["X.h5"]
    assert load(CELLS, **how)[0].fingerprint == data.fingerprint and sum(advanced) == 3060
    np.testing.assert_array_equal(dense(load(CELLS, layer="more", **how)[0].x), 2 * x)
    assert sum(advanced) == 2 * 3060
    del data


def test_columns_without_room_for_their_rows():
    write_h5ad(CELLS, csc_array(counts(3000, 60)))
    with mock.patch.object(spool.shutil, "disk_usage", return_value=mock.Mock(free=1000)):
        assert "of disk for a copy of its rows, and 1kB are free" in refusal(CELLS, memory="1MB")
    with mock.patch.object(cells.memory, "available", return_value=10**5):
        assert "needs about" in refusal(CELLS)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux, which tells the peak of a process")
def test_memory_of_a_file_that_is_much_larger():
    """Peaks of processes that choose 100 of 8,000 genes: the counts alone would take 75 MB in memory."""
    random, rows, genes = np.random.default_rng(0), 3_000, 8000
    write_h5ad(CELLS, csr_array(counts(4, genes)))
    with h5py.File(CELLS, "r+") as file:
        names = np.array([f"c{i}" for i in range(rows)], object)
        del file["obs/_index"], file["X/data"], file["X/indices"], file["X/indptr"]
        file["obs"].create_dataset("_index", data=names, dtype=h5py.string_dtype())
        file["obs/_index"].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
        stored = rows * 2000
        file["X"].attrs["shape"] = (rows, genes)
        file["X/indptr"] = np.arange(0, stored + 1, 2000)
        for name in ("data", "indices"):
            file["X"].create_dataset(name, (stored,), "i4", chunks=(20000,))
        for start in range(0, rows, 500):
            part = slice(start * 2000, (start + 500) * 2000)
            file["X/data"][part] = random.integers(1, 5, 500 * 2000)
            file["X/indices"][part] = np.sort(random.integers(0, 4, (500, 2000)) + 4 * np.arange(2000), 1).ravel()

    def peak():  # of this process alone; getrusage begins at that of its parent
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1000

    cache = os.environ["XDG_CACHE_HOME"]
    for memory in (None, "1MB"):

        def work(memory=memory):
            os.environ["XDG_CACHE_HOME"] = cache
            before = peak()
            data = load("cells.h5ad", genes=100, memory=memory)[0]
            Path("peak").write_text(f"{data.on_disk} {peak() - before}")

        assert not wait(child(work))
        on_disk, size = Path("peak").read_text().split()
        assert on_disk == str(memory is not None) and int(size) < 110


# What is refused, in one line each.


def test_values_that_are_no_counts():
    for wrong, shown in ((-1.0, "-1"), (np.nan, "nan"), (np.inf, "inf")):
        x = counts()
        x[4, 7] = x[9, 2] = wrong
        for make in (csr_array, csc_array, np.asarray):
            write_h5ad(CELLS, make(x))
            for memory in (None, "1MB"):
                message = refusal(CELLS, memory=memory)
                assert (
                    f"2 values that are negative, NaN or infinite, the first {shown} of gene 'g7' in cell 'cell4'"
                    in (message)
                )
        x[9, 2] = 0
        assert "1 value that is negative" in refusal(write_h5ad(CELLS, csr_array(x)))


def test_values_that_are_logarithms_or_fractions():
    x = counts()
    logs = csr_array(np.log1p(1e4 * x / x.sum(1, keepdims=True)))
    write_h5ad(CELLS, logs, layers={"counts": csr_array(x), "b": logs})
    assert refusal(CELLS) == (
        "cells.h5ad: these are no counts but log-normalised values; name the layer that holds counts with `layer=…`, "
        "which are 'counts', 'b'"
    ).replace("'counts', 'b'", "'b', 'counts'")
    assert load(CELLS, layer="counts")[0].counts
    write_h5ad(CELLS, csr_array(x / 2))
    assert refusal(CELLS) == (
        "cells.h5ad: not all values are whole numbers; name the layer that holds counts with `layer=…`, but the file "
        "has no layers: give other data"
    )
    assert "cells.h5ad: not all values" in refusal(write_h5ad(CELLS, csr_array(np.log1p(x))))
    _, schema = load(write_h5ad(CELLS, csr_array(x)), genes=10)
    assert "no counts but log-normalised values" in refusal(write_h5ad(CELLS, logs), schema=schema)


def test_names_that_are_not_there():
    write_h5ad(CELLS, csr_array(counts()), describe(), layers={"raw": csr_array(counts())})
    assert refusal(CELLS, layer="counts") == "cells.h5ad has no layer 'counts' for `layer=…`; its layers are 'raw'"
    assert "has no column 'plat' for `batch_key=…`; did you mean 'plate'" in refusal(CELLS, batch_key="plat")
    assert "has no column 'size' for `exposure=…`; its columns are 'plate', 'kind'" in refusal(CELLS, exposure="size")
    assert "has no column 'x' for `label=…`" in refusal(CELLS, label="x")
    write_h5ad(CELLS, None, layers={"raw": csr_array(counts())})
    assert "has no matrix X; name the layer that holds counts with `layer=…`: its layers are 'raw'" in refusal(CELLS)
    write_h5ad(CELLS, csr_array(counts(9, 3)), genes=["a", "b", "a"])
    assert "has genes of the same name: 'a'; make them unique" in refusal(CELLS)
    pd.DataFrame({"a": [1, 2]}).to_csv("t.csv", index=False)
    assert "`layer` is about a cell file, and t.csv is none" in refusal("t.csv", layer="a")
    assert "`genes` is about a cell file" in refusal("branching-diffusion", genes=3)


def test_entries_in_any_order_and_given_twice():
    x, random = csr_array(counts()), np.random.default_rng(0)
    data, indices = [], []
    for row in range(60):
        part = slice(x.indptr[row], x.indptr[row + 1])
        order = random.permutation(2 * (part.stop - part.start))
        data.append(np.tile(x.data[part], 2)[order])
        indices.append(np.tile(x.indices[part], 2)[order])
    twice = csr_array((np.concatenate(data), np.concatenate(indices), 2 * x.indptr), x.shape)
    for memory in (None, "1MB"):
        found, _ = load(write_h5ad(CELLS, twice), genes=40, memory=memory)
        np.testing.assert_array_equal(dense(found.x), 2 * counts())
        assert in_memory(found.x).has_canonical_format


def test_cells_and_genes_without_a_count():
    x = counts()
    x[[3, 8]] = 0
    write_h5ad(CELLS, csr_array(x))
    for memory in (None, "1MB"):
        message = refusal(CELLS, memory=memory)
        assert "has 2 cells without a count of the genes in use: 'cell3', 'cell8'" in message
        assert "`genes`" in message and "filter_cells(adata, min_counts=1)" in message
    assert "has 2 cells without a count" in refusal(write_h5ad(CELLS, csr_array(x), describe()), exposure="factor")
    write_h5ad(CELLS, csr_array(np.zeros((5, 4))))
    assert "holds no count but 0" in refusal(CELLS)


def test_batches_and_size_factors_that_cannot_be_used():
    x, obs = csr_array(counts()), describe()
    obs.loc["cell4", "plate"] = None
    obs["factor"] = np.where(np.arange(60) == 2, 0.0, 1.0)
    obs["one"] = "all"
    write_h5ad(CELLS, x, obs)
    message = refusal(CELLS, batch_key="plate")
    assert "covariates of cells.h5ad have missing or infinite values" in message and "'plate' (1)" in message
    assert "exposure column 'factor' of cells.h5ad is not a positive number in 1 row" in refusal(
        CELLS, exposure="factor"
    )
    assert "cannot be a covariate and an id or exposure at once" in refusal(
        CELLS, batch_key="factor", exposure="factor"
    )
    data, schema = load(CELLS, batch_key="one", covariates=["age"])
    assert data.batch == () and data.context_names == ("age",)
    assert (schema.batch_key, schema.only_batch) == ("one", "all") and Schema.from_json(schema.to_json()) == schema
    assert "batch 'one' is 'all' in every row; it is left out." in data.notes
    assert "covariate 'one' has the same value in every row" in refusal(CELLS, covariates=["one"])


def test_a_batch_that_the_model_does_not_know():
    x, obs = csr_array(counts()), describe()
    _, schema = load(write_h5ad(CELLS, x, obs), batch_key="plate")
    write_h5ad(CELLS, x, obs.assign(plate=np.where(np.arange(60) < 2, "p9", obs["plate"].astype(str))))
    data, _ = load(CELLS, schema=schema)
    assert data.context is None
    (warning,) = data.warnings
    assert "batch column 'plate' holds batches that the model was not trained on: 'p9'" in warning
    data, _ = load(write_h5ad(CELLS, x, obs.drop(columns="plate")), schema=schema)
    assert data.context is None and "covariates are absent: 'plate'." in data.notes


def test_other_data_than_the_model_was_trained_on():
    x = counts(9, 4)
    _, schema = load(write_h5ad(CELLS, csr_array(x)))
    np.save("m.npy", x)
    np.save("i.npy", np.zeros((4, 8, 8)))
    assert "m.npy is a matrix and the model was trained on cells" in refusal("m.npy", schema=schema)
    assert "holds counts of cells and the model was trained on a matrix" in refusal(CELLS, schema=load("m.npy")[1])
    assert "the model was trained on images" in refusal(CELLS, schema=load("i.npy")[1])


def test_a_table_of_counts_for_a_model_of_cells():
    x = counts(9, 4)
    _, schema = load(write_h5ad(CELLS, csr_array(x)))
    pd.DataFrame(x[:, ::-1], columns=["g3", "g2", "g1", "g0"]).to_csv("t.csv", index=False)
    data, _ = load("t.csv", schema=schema)
    np.testing.assert_array_equal(data.x, x)
    np.testing.assert_array_equal(data.exposure, x.sum(1))


def test_broken_files():
    x = counts(200, 40)
    write_h5ad(CELLS, csr_array(x))
    whole = CELLS.read_bytes()
    CELLS.write_bytes(whole[: len(whole) // 2])
    assert "cells.h5ad cannot be read as HDF5" in refusal(CELLS)
    CELLS.write_bytes(b"not HDF5")
    assert "cells.h5ad cannot be read as HDF5" in refusal(CELLS)
    Path("f.h5").write_bytes(whole[:100])
    assert "f.h5 cannot be read as HDF5" in refusal("f.h5")
    broken = {
        "X/indptr": np.arange(200, -1, -1),
        "X/indices": np.full(csr_array(x).nnz, 40),
        "X/data": np.array(["a"] * csr_array(x).nnz, "S"),
    }
    for place, values in broken.items():
        write_h5ad(CELLS, csr_array(x))
        with h5py.File(CELLS, "r+") as file:
            del file[place]
            file[place] = values
        for memory in (None, "1MB"):
            assert "cannot be read as HDF5" in refusal(CELLS, memory=memory)
    write_h5ad(CELLS, csr_array(x))
    with h5py.File(CELLS, "r+") as file:
        file["X"].attrs["shape"] = (200, 41)
    assert "X has shape (200, 41), with 200 cells and 40 genes" in refusal(CELLS)
    with h5py.File(CELLS, "r+") as file:
        del file["obs"]
    assert "cannot be read as HDF5" in refusal(CELLS)
    with h5py.File("f.h5", "w") as file:
        file["a"] = 3
        file.create_group("b")
    assert "f.h5 has 0 matrices of 10x Genomics; give a file with one" in refusal("f.h5")


def test_files_of_other_versions():
    changes = {
        "/": ("0.2.0", "holds / in the encoding anndata 0.2.0, which is that of another version of anndata"),
        "obs": ("0.1.0", "holds /obs in the encoding dataframe 0.1.0"),
        "X": ("9", "holds /X in the encoding csr_matrix 9"),
        "obs/kind": (None, "holds /obs/kind without an encoding"),
    }
    for place, (version, message) in changes.items():
        write_h5ad(CELLS, csr_array(counts()), describe())
        with h5py.File(CELLS, "r+") as file:
            if version is None:
                del file[place].attrs["encoding-type"]
            else:
                file[place].attrs["encoding-version"] = version
        assert message in refusal(CELLS, label="kind") and "write it again" in refusal(CELLS, label="kind")


def test_objects_are_not_unpickled():
    write_h5ad(CELLS, csr_array(counts()), describe())
    with h5py.File(CELLS, "r+") as file:
        del file["obs/kind"]
        item = file["obs"].create_dataset("kind", data=np.frombuffer(pickle.dumps(replace), "V1"))
        item.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
    with mock.patch.object(pickle, "loads", side_effect=AssertionError):
        assert "cannot be read as HDF5" in refusal(CELLS, label="kind")


def test_without_h5py():
    write_h5ad(CELLS, csr_array(counts()))
    with mock.patch.dict(sys.modules, {"h5py": None}):
        assert refusal(CELLS) == "cells.h5ad needs h5py to be read; pip install h5py or 'curvae[cells]'"
