"""Data sets, schemas, matrices, synthetic trees, and finding them by name."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from curvae.data import Column, Dataset, Schema, branching_diffusion, flat, from_arrays, load, load_graph, memory
from curvae.data.matrices import read_sparse
from curvae.errors import CurvaeError
from paths import ROOT
from reading import refusal, write

RANDOM = np.random.default_rng(0)
DENSE = RANDOM.standard_normal((6, 4)) * (RANDOM.random((6, 4)) < 0.5)


# --- Dataset ----------------------------------------------------------------------------------------------------------


def test_from_arrays() -> None:
    data = from_arrays(DENSE.astype(np.float32), names="abcd", labels=[0, 0, 1, 1, 2, 2], ids=list("uvwxyz"))
    assert data.x.dtype == np.float32 and data.names == ("a", "b", "c", "d") and data.shape == (4,)
    assert data.labels is not None and data.labels.tolist() == ["0", "0", "1", "1", "2", "2"]
    assert data.ids.tolist() == list("uvwxyz") and len(data) == 6
    assert from_arrays(np.arange(6).reshape(2, 3)).x.dtype == np.float64
    assert from_arrays(DENSE.astype(np.float16)).x.dtype == np.float32
    assert from_arrays(DENSE.astype(">f8")).x.dtype.isnative
    assert from_arrays(np.zeros((5, 2, 3))).shape == (2, 3)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_sparse_stays_sparse(make: Any) -> None:
    data = from_arrays(make(DENSE))
    assert isinstance(data.x, sp.csr_array) and data.x.dtype == np.float64
    assert isinstance(data.take([1, 2]).x, sp.csr_array)
    np.testing.assert_array_equal(data.take([5, 0]).x.toarray(), DENSE[[5, 0]])
    assert data.fingerprint == from_arrays(DENSE).fingerprint
    assert from_arrays(make(DENSE.astype(np.float32))).x.dtype == np.float32


@pytest.mark.parametrize(
    ("x", "options", "part"),
    [
        ([["a"], ["b"]], {}, "not real numbers"),
        ([1.0, 2.0], {}, "shape (2,)"),
        ([[1j], [2j]], {}, "not real numbers"),
        ([[1.0, np.nan], [np.inf, np.nan]], {}, "'x1' (1), 'x2' (2)"),
        (sp.csr_array([[0, np.nan], [1.0, 0]]), {}, "'x2' (1)"),
        (DENSE, {"names": ["a"]}, "1 name"),
        (DENSE, {"shape": (3, 3)}, "shape (3, 3)"),
        (DENSE, {"ids": list("uvwxyu")}, "'u' given more than once"),
        (DENSE, {"labels": [1, 2]}, "labels of shape (2,)"),
    ],
)
def test_from_arrays_refuses(x: Any, options: dict[str, Any], part: str) -> None:
    with pytest.raises(CurvaeError, match=re.escape(part)):
        from_arrays(x, **options)


def test_take() -> None:
    data = from_arrays(DENSE, labels=list("abcabc"))
    mask = np.array([True, False, True, False, False, False])
    for part in (data.take(mask), data.take([0, 2]), data.take(mask.tolist())):
        assert part.ids.tolist() == ["0", "2"] and part.labels is not None and part.labels.tolist() == ["a", "c"]
        np.testing.assert_array_equal(part.x, DENSE[[0, 2]])
    assert len(data.take([])) == 0
    grouped = replace(data, groups=data.labels).take([3, 1])
    assert grouped.groups is not None and grouped.groups.tolist() == ["a", "b"]
    with pytest.raises(CurvaeError, match="mask of shape"):
        data.take([True, False])


def test_fingerprint_sees_every_part_and_only_values() -> None:
    x = DENSE.astype(np.float32)
    base = from_arrays(x, labels=list("abcabc"))
    assert base.fingerprint == from_arrays(x.astype(np.float64), labels=list("abcabc")).fingerprint
    assert re.fullmatch(r"[0-9a-f]{64}", base.fingerprint)
    stored_zero = sp.csr_array(x)
    stored_zero.data[0] = 0.0
    changed = x.copy()
    changed.ravel()[np.flatnonzero(x)[0]] = -0.0
    assert from_arrays(stored_zero).fingerprint == from_arrays(changed).fingerprint
    others = [
        from_arrays(changed, labels=list("abcabc")),
        from_arrays(x, labels=list("abcabd")),
        from_arrays(x),
        from_arrays(x, labels=list("abcabc"), ids=list("uvwxyz")),
        from_arrays(x, labels=list("abcabc"), names=list("abcd")),
        from_arrays(x, labels=list("abcabc"), shape=(2, 2)),
        from_arrays(x[::-1], labels=list("abcabc")),
        from_arrays(x[:, ::-1], labels=list("abcabc")),
        Dataset(x, base.names, base.shape, base.ids, base.labels, groups=base.labels),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == len(others) + 1


def test_fingerprint_of_many_rows_does_not_depend_on_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curvae.data.dataset._CHUNK", 8)  # two rows at a time
    assert from_arrays(DENSE).fingerprint == from_arrays(sp.csr_array(DENSE)).fingerprint


# --- Schema -----------------------------------------------------------------------------------------------------------

SCHEMA = Schema("table", (Column("a", None, 1.5), Column("b", ("u", "v"), 1.0)), (3,), label="l", id="i")


def test_schema_survives_json() -> None:
    assert Schema.from_json(json.loads(json.dumps(SCHEMA.to_json()))) == SCHEMA


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {},
        {"kind": "graph"},
        {"columns": 3},
        {"columns": []},
        {"columns": [{"name": "a"}]},
        {"columns": [{"name": 3, "fill": 0.0}]},
        {"columns": [{"name": "a", "fill": "x"}]},
        {"columns": [{"name": "a", "fill": 2, "categories": ["u", "v"]}], "shape": [2]},
        {"columns": [{"name": "a", "fill": 0, "categories": ["u", "u"]}], "shape": [2]},
        {"shape": [4]},
        {"shape": ["x"]},
        {"shape": 3},
        {"label": 3},
    ],
)
def test_a_malformed_schema_is_refused(broken: Any) -> None:
    stored = {**SCHEMA.to_json(), **broken} if isinstance(broken, dict) and broken else broken
    with pytest.raises(CurvaeError, match="malformed"):
        Schema.from_json(stored)


# --- matrices ---------------------------------------------------------------------------------------------------------


def save(path: Path, x: Any) -> Path:
    if path.name.endswith(".npy"):
        np.save(path, x)
    elif path.name.endswith(".npz"):
        sp.save_npz(path, x)
    else:
        with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as stream:
            scipy.io.mmwrite(stream, x)
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, bool])
def test_npy(tmp_path: Path, dtype: Any) -> None:
    x = (DENSE * 10).astype(dtype)
    data, schema = load(save(tmp_path / "m.npy", x))
    assert data.names == ("x1", "x2", "x3", "x4") and schema.kind == "matrix"
    assert data.x.dtype == (np.float32 if dtype == np.float32 else np.float64)
    np.testing.assert_array_equal(data.x, x)
    (tmp_path / "m.npy").unlink()
    assert data.x.flags.writeable and np.isfinite(data.x).all()  # nothing is left on the disk


@pytest.mark.parametrize("name", ["m.npz", "m.mtx", "m.mtx.gz"])
def test_sparse_files(tmp_path: Path, name: str) -> None:
    for stored in (sp.csr_matrix(DENSE), sp.csc_array(DENSE), sp.coo_array(DENSE)):
        data = load(save(tmp_path / name, stored))[0]
        assert isinstance(data.x, sp.csr_array)
        np.testing.assert_array_equal(data.x.toarray(), DENSE)
        assert data.fingerprint == load(save(tmp_path / "m.npy", DENSE))[0].fingerprint


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (DENSE, {}),
        (sp.coo_array((DENSE * 100).astype(int)), {}),
        (sp.coo_array(DENSE != 0), {"field": "pattern"}),
        (sp.coo_array(DENSE.T @ DENSE), {"symmetry": "symmetric"}),
        (sp.coo_array(DENSE[:4] - DENSE[:4].T), {"symmetry": "skew-symmetric"}),
        (sp.coo_array((3, 4)), {}),
    ],
    ids=["array", "integer", "pattern", "symmetric", "skew", "empty"],
)
def test_matrix_market_against_what_was_written(tmp_path: Path, x: Any, options: dict[str, Any]) -> None:
    path = tmp_path / "m.mtx"
    scipy.io.mmwrite(path, x, comment="one\ntwo", **options)
    dense = x.toarray() if sp.issparse(x) else x
    np.testing.assert_array_equal(load(path)[0].x.toarray(), dense)
    path.write_bytes(path.read_bytes().replace(b"\n", b" \r\n"))
    np.testing.assert_array_equal(load(path)[0].x.toarray(), dense)


@pytest.mark.parametrize(
    "body",
    [
        "2 2 2\n1 1 1.5\n",
        "2 2 2\n1 1 1.5\n2 2 1.3E",
        "2 2 2\n1 1 1.5\n2 2",
        "2 2 2\n1 1\n2 2 4\n",
        "2 2 2\n1 1 1.5 7\n2 2 4\n",
        "2 2 1\n1 3 1.5\n",
        "2 2 1\n0 1 1.5\n",
        "2 2 1\n1.5 1 1.5\n",
        "2 2 1\n1 nan 1.5\n",
        "2 2 1\n1 1 x\n",
        "2 2 2\n1 1 1.\0005\n2 2 4\n",
        "2 2 1\n1 1 1,5\n",
        "2 2 1\n1 1 1.5D3\n",
        "2 2\n1 1 1\n",
        "2 2 -1\n",
        "",
    ],
)
def test_broken_matrix_market_is_refused(tmp_path: Path, body: str) -> None:
    path = write(tmp_path, "%%MatrixMarket matrix coordinate real general\n" + body, "m.mtx")
    assert "cannot be read as Matrix Market" in refusal(path)


@pytest.mark.parametrize(
    "rest",
    [
        "coordinate integer general\n2 2 1\n1 1 1.5\n",
        "coordinate integer general\n2 2 1\n1 1 99999999999999999999\n",
        "coordinate pattern general\n2 2 1\n1 1 1.5\n",
        "coordinate real skew-symmetric\n2 2 1\n1 1 1.5\n",
        "array real skew-symmetric\n3 3\n1\n2\n3\n4\n",
        "array real symmetric\n2 2\n1\n2\n3\n4\n",
        "array real general\n2 2\n1\n2\n3\n4\n5\n",
        "array real general\n2 2\n1 2\n3\n4\n",
    ],
)
def test_matrix_market_that_is_not_what_its_banner_says(tmp_path: Path, rest: str) -> None:
    path = write(tmp_path, f"%%MatrixMarket matrix {rest}", "m.mtx")
    assert "cannot be read as Matrix Market" in refusal(path)


@pytest.mark.parametrize("name", ["m.mtx", "m.mtx.gz"])
def test_damaged_matrix_market_never_crashes(tmp_path: Path, name: str) -> None:
    """scipy ends the interpreter at a NUL byte, and at a number without an end of line."""
    x = sp.coo_array([[0, -1.25e-30], [3.5, 0], [0, 7]])
    path = save(tmp_path / name, x)
    whole = path.read_bytes()
    text = gzip.decompress(whole) if name.endswith(".gz") else whole
    random = np.random.default_rng(0)
    damaged = [whole[:cut] for cut in range(len(whole))]
    for _ in range(200):
        place, byte = random.integers(len(text)), random.choice([0, 0, 9, 13, 32, 44, 46, 48, 69, 255])
        changed = text[:place] + bytes([byte]) + text[place + 1 : random.choice([len(text), place + 5])]
        damaged.append(gzip.compress(changed) if name.endswith(".gz") else changed)
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            read = read_sparse(path)
        except CurvaeError:
            refused += 1
        else:
            assert read.shape[1] == 2 and read.nnz <= 3
    assert refused > 0.8 * len(damaged)


@pytest.mark.parametrize(
    ("banner", "body"),
    [
        ("coordinate real symmetric", "4 3 2\n2 1 5\n4 2 7\n"),
        ("coordinate real skew-symmetric", "3 4 1\n2 1 5\n"),
        ("coordinate pattern symmetric", "30 4 2\n2 1\n3 2\n"),
        ("coordinate integer symmetric", "0 4 0\n"),
        ("array real symmetric", "2 3\n1\n2\n3\n"),
        ("array real skew-symmetric", "3 2\n1\n2\n3\n"),
        ("coordinate complex hermitian", "3 4 1\n2 1 5 0\n"),
    ],
)
def test_what_is_symmetric_is_square(tmp_path: Path, banner: str, body: str) -> None:
    path = write(tmp_path, f"%%MatrixMarket matrix {banner}\n{body}", "m.mtx")
    height, width = body.split()[:2]
    symmetry = banner.split()[-1]
    says = f"m.mtx is {symmetry} and {height} × {width}, which is not square"
    says = "complex hermitian" if symmetry == "hermitian" else says
    assert says in refusal(path)
    with pytest.raises(CurvaeError, match=says):
        load_graph(path)


@pytest.mark.parametrize("kind", ["general", "symmetric", "skew-symmetric"])
def test_dense_matrix_market(tmp_path: Path, kind: str) -> None:
    x = np.random.default_rng(0).normal(size=(4, 4))
    x = {"general": x, "symmetric": x + x.T, "skew-symmetric": x - x.T}[kind]
    scipy.io.mmwrite(tmp_path / "m.mtx", x, symmetry=kind, precision=17)
    np.testing.assert_array_equal(load(tmp_path / "m.mtx")[0].x.toarray(), x)


@pytest.mark.parametrize("name", ["m.npy", "m.npz"])
def test_missing_values_of_a_matrix(tmp_path: Path, name: str) -> None:
    x = np.array([[1.0, 0, 2], [np.nan, 4, 0], [3, 0, np.inf], [0, 8, 0]])
    path = save(tmp_path / name, x if name == "m.npy" else sp.csr_array(x))

    def dense(data: Dataset) -> Any:
        return data.x.toarray() if sp.issparse(data.x) else data.x

    assert "'x1' (1), 'x3' (1)" in refusal(path)
    dropped = load(path, missing="drop")[0]
    np.testing.assert_array_equal(dense(dropped), x[[0, 3]])
    assert dropped.ids.tolist() == ["0", "3"]
    filled, schema = load(path, missing="mean")
    np.testing.assert_allclose(dense(filled), [[1, 0, 2], [4 / 3, 4, 0], [3, 0, 2 / 3], [0, 8, 0]])
    again = load(save(tmp_path / "new.npy", np.array([[np.nan, 1, 1]])), schema=schema, missing="mean")[0]
    np.testing.assert_allclose(again.x, [[4 / 3, 1, 1]])


def test_constant_columns_of_a_sparse_matrix_are_noted(tmp_path: Path) -> None:
    x = np.array([[1.0, 0, 5], [2, 0, 5], [0, 0, 5]])
    assert load(save(tmp_path / "m.npz", sp.csr_array(x)))[0].notes == (
        "2 columns are constant; they are kept: 'x2', 'x3'.",
    )


def test_matrices_refused(tmp_path: Path) -> None:
    assert "shape (4,)" in refusal(save(tmp_path / "m.npy", np.zeros(4)))
    assert "shape (2, 2, 2, 3)" in refusal(save(tmp_path / "m.npy", np.zeros((2, 2, 2, 3))))
    assert "only 1 row" in refusal(save(tmp_path / "m.npy", np.zeros((1, 3))))
    assert "not real numbers" in refusal(save(tmp_path / "m.npy", np.array([["a", "b"]])))
    assert "complex" in refusal(save(tmp_path / "m.mtx", sp.coo_array([[1j, 2], [3, 4]])))
    assert "only a table has columns such as 'a'" in refusal(save(tmp_path / "m.npy", DENSE), label="a")
    for name in ("m.npy", "m.npz", "m.mtx", "m.mtx.gz"):
        assert f"{name} cannot be read" in refusal(write(tmp_path, "nonsense", name))
    whole = save(tmp_path / "m.npy", DENSE).read_bytes()
    assert "cannot be read" in refusal(write(tmp_path, whole[:-8], "m.npy"))
    np.savez(tmp_path / "m.npz", DENSE)
    assert "save_npz" in refusal(tmp_path / "m.npz")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return pytest.fail, ("unpickled",)

    np.save(tmp_path / "m.npy", np.array([[Trap()]], dtype=object), allow_pickle=True)
    assert "cannot be read" in refusal(tmp_path / "m.npy")
    np.savez(tmp_path / "m.npz", format=np.array(Trap(), dtype=object), allow_pickle=True)
    assert "cannot be read" in refusal(tmp_path / "m.npz")


def test_sparse_indices_out_of_range_are_refused(tmp_path: Path) -> None:
    parts = {"data": np.ones(1), "indices": np.array([10**6]), "indptr": np.array([0, 1, 1]), "shape": (2, 3)}
    np.savez(tmp_path / "m.npz", format=np.array("csr".encode("ascii")), **parts)
    assert "cannot be read" in refusal(tmp_path / "m.npz")


@pytest.mark.parametrize("name", ["m.npy", "m.npz", "m.mtx"])
def test_matrices_too_large_are_refused_before_they_are_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / name, DENSE if name == "m.npy" else sp.csr_array(DENSE))
    for reader in ("curvae.data.matrices.load_npz", "scipy.io.mmread"):
        monkeypatch.setattr(reader, lambda *_, **__: pytest.fail("read"))
    monkeypatch.setattr(memory, "available", lambda: 100)
    assert "needs about" in refusal(path)


def test_a_huge_header_allocates_nothing(tmp_path: Path) -> None:
    with (tmp_path / "m.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**6)})
    assert "cannot be read" in refusal(tmp_path / "m.npy")
    write(tmp_path, f"%%MatrixMarket matrix coordinate real general\n9 9 {10**13}\n1 1 1\n", "m.mtx")
    assert "10,000,000,000,000 entries" in refusal(tmp_path / "m.mtx")
    write(tmp_path, f"%%MatrixMarket matrix array real symmetric\n{10**9} {10**9}\n1\n", "m.mtx")
    assert "500,000,000,500,000,000 entries" in refusal(tmp_path / "m.mtx")


def test_memory() -> None:
    free = memory.available()
    assert free is not None and free > 10**7
    memory.require(10**6, "this")
    memory.require(10**12, "this", limit=10**12)
    with pytest.raises(CurvaeError, match="this needs about 0.01 GB of memory and 0.001 GB are free"):
        memory.require(10**7, "this", limit=10**6)


def test_new_data_must_have_the_same_kind_and_width(tmp_path: Path) -> None:
    schema = load(save(tmp_path / "m.npy", DENSE))[1]
    assert "rows of 3 values and the model was trained on 4" in refusal(
        save(tmp_path / "n.npy", DENSE[:, :3]), schema=schema
    )
    assert "is images" in refusal(save(tmp_path / "n.npy", np.zeros((3, 2, 2))), schema=schema)
    assert "has no columns 'x1', 'x2'" in refusal(write(tmp_path, "a,b\n1,2\n"), schema=schema)
    np.testing.assert_array_equal(load(write(tmp_path, "1,2,3,5\n"), schema=schema)[0].x, [[1, 2, 3, 5]])
    table = load(write(tmp_path, "a,b\n1,2\n3,4\n"))[1]
    assert "trained on a table with named columns" in refusal(tmp_path / "m.npy", schema=table)


# --- synthetic data ---------------------------------------------------------------------------------------------------


def test_branching_diffusion_has_the_shape_and_the_variances_of_the_paper() -> None:
    tree = branching_diffusion()
    assert tree.x.shape == (635, 50) and tree.nodes.shape == (127, 50)
    assert np.bincount(tree.depth).tolist() == [1, 2, 4, 8, 16, 32, 64] and np.bincount(tree.node).tolist() == [5] * 127
    assert tree.parent[0] == -1 and not tree.nodes[0].any()
    assert (tree.depth[1:] == tree.depth[tree.parent[1:]] + 1).all()
    steps = tree.nodes[1:] - tree.nodes[tree.parent[1:]]
    noise = tree.x - tree.nodes[tree.node]
    for values, variance in ((steps, 1.0), (noise, 0.2)):  # within 5 standard errors
        assert abs(values.mean()) < 5 * (variance / values.size) ** 0.5
        assert abs(values.var() / variance - 1) < 5 * (2 / values.size) ** 0.5


def test_branching_diffusion_options() -> None:
    tree = branching_diffusion(dim=3, depth=2, branching=3, per_node=2, scale=2.0, noise=0.0, seed=4)
    assert len(tree.nodes) == 13 and len(tree.x) == 26
    np.testing.assert_array_equal(tree.x, tree.nodes[tree.node])
    np.testing.assert_allclose(branching_diffusion(scale=2.0).x, 2 * branching_diffusion().x)
    assert not np.array_equal(branching_diffusion(seed=1).x, branching_diffusion(seed=2).x)
    np.testing.assert_array_equal(branching_diffusion(seed=1).x, branching_diffusion(seed=1).x)
    with pytest.raises(CurvaeError, match="dim=0"):
        branching_diffusion(dim=0)


def test_tree_distances() -> None:
    tree = branching_diffusion(dim=2, depth=3, branching=3)
    graph = sp.coo_array(
        (np.ones(len(tree.edges)), np.array(tree.edges, dtype=np.int32).T), shape=(len(tree.parent),) * 2
    )
    hops = sp.csgraph.shortest_path(graph, directed=False, unweighted=True)
    np.testing.assert_array_equal(tree.distances(), hops)


def test_branches_are_subtrees() -> None:
    tree = branching_diffusion()
    data = tree.dataset()
    assert data.labels is not None and data.label_name == "branch"
    names, counts = np.unique(data.labels, return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {
        "root": 5,
        "branch 1": 5,
        "branch 2": 5,
        **{f"branch {i}/{j}": 31 * 5 for i in (1, 2) for j in (1, 2)},
    }
    branches = tree.branches()
    deep = np.flatnonzero(tree.depth > 2)
    assert (branches[deep] == branches[tree.parent[deep]]).all()
    assert data.ids[:6].tolist() == ["node0-1", "node0-2", "node0-3", "node0-4", "node0-5", "node1-1"]
    assert np.unique(data.ids).size == 635


def test_flat() -> None:
    data = flat()
    assert data.x.shape == (635, 50) and data.labels is None
    assert abs(data.x.mean()) < 0.03 and abs(data.x.var() - 1) < 0.05
    with pytest.raises(CurvaeError, match="at least 1"):
        flat(rows=0)


# --- names ------------------------------------------------------------------------------------------------------------


def test_built_in_names() -> None:
    tree, schema = load("branching-diffusion")
    assert tree.fingerprint == branching_diffusion().dataset().fingerprint and schema.kind == "matrix"
    assert tree.warnings == () and load("branching-diffusion", schema=schema)[0].fingerprint == tree.fingerprint
    assert load("flat")[0].fingerprint == flat().fingerprint
    document = (ROOT / "docs" / "data.md").read_text()
    assert tree.fingerprint in document and flat().fingerprint in document


def test_what_lies_on_disk_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flat").mkdir()
    assert "contains no images" in refusal("flat")


def test_unknown_sources(tmp_path: Path) -> None:
    write(tmp_path, "a,b\n1,2\n3,4\n", "cells.csv")
    message = refusal(tmp_path / "cell.csv", label="type")
    assert "there is no file" in message and "did you mean 'cells.csv'?" in message
    assert "branching-diffusion, flat, mnist" in message and ".parquet" in message
    assert "did you mean 'branching-diffusion'?" in refusal("branching_diffusion")
    assert "unknown file extension" in refusal(
        write(tmp_path, "x", "cells.xlsx")
    ) and "unknown file extension" in refusal(write(tmp_path, "x", "cells"))
    assert "there is no file" in refusal(tmp_path / "nowhere" / "cells.csv")
