"""Features of nodes: columns of tables, matrices beside the edges, categories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.io import mmwrite
from scipy.sparse import csr_array, issparse, random_array, save_npz

from curvae.data import Graph, load_graph
from reading import PEOPLE, write
from reading import graph_refusal as refusal

TABLE = "id,type,size,age,seen\nann,x,1.5,3,true\nben,y,2.5,4,false\ncem,x,0,5,true\ndan,z,4,6,true\n"
RING = [(i, (i + 1) % 30) for i in range(30)]
WORDS = csr_array(random_array((30, 12), density=0.1, rng=np.random.default_rng(0), format="csr"))


def people(folder: Path) -> tuple[Path, Path]:
    return write(folder, PEOPLE, "g.edges"), write(folder, TABLE, "n.csv")


def test_columns_of_numbers_are_features(tmp_path: Path) -> None:
    edges, table = people(tmp_path)
    graph = load_graph(edges, nodes=table, label="type")
    assert graph.feature_names == ("size", "age", "seen")
    frame = pd.read_csv(table)
    np.testing.assert_array_equal(graph.features, frame[["size", "age", "seen"]].astype(float))
    assert any("'size', 'age', 'seen'" in note for note in graph.notes)
    assert load_graph(edges, nodes=table, features=()).features is None
    assert load_graph(edges, nodes=table, features=["age"]).feature_names == ("age",)
    assert load_graph(edges, nodes=table, label="age").feature_names == ("size", "seen")


def test_columns_with_gaps_are_no_features(tmp_path: Path) -> None:
    edges, _ = people(tmp_path)
    gaps = write(tmp_path, TABLE.replace("2.5", ""), "n.csv")
    graph = load_graph(edges, nodes=gaps)
    assert graph.feature_names == ("age", "seen") and any("with gaps" in note for note in graph.notes)
    filled = load_graph(edges, nodes=gaps, missing="mean")
    assert filled.feature_names == ("size", "age", "seen")
    np.testing.assert_allclose(np.asarray(filled.features)[1, 0], (1.5 + 0 + 4) / 3)
    short = write(tmp_path, "".join(TABLE.splitlines(keepends=True)[:-1]), "n.csv")
    assert load_graph(edges, nodes=short).features is None


def test_categories_become_features(tmp_path: Path) -> None:
    edges, table = people(tmp_path)
    graph = load_graph(edges, nodes=table, categorical=["type"])
    assert graph.feature_names == ("size", "age", "seen", "type=x", "type=y", "type=z")
    expected = pd.get_dummies(pd.read_csv(table)["type"]).astype(float)
    np.testing.assert_array_equal(np.asarray(graph.features)[:, 3:], expected)
    alone = load_graph(edges, nodes=table, features=(), categorical={"type": ["w", "x", "y", "z"]})
    assert alone.feature_names == ("type=w", "type=x", "type=y", "type=z")
    np.testing.assert_array_equal(np.asarray(alone.features)[:, 1:], expected)
    assert "'z'; it knows 'x', 'y'" in refusal(edges, nodes=table, categorical={"type": ["x", "y"]})
    gap = write(tmp_path, TABLE.replace("dan,z", "dan,"), "m.csv")
    assert "'type=x' (1)" in refusal(edges, nodes=gap, categorical=["type"])
    filled = load_graph(edges, nodes=gap, features=(), categorical=["type"], missing="mean")
    np.testing.assert_allclose(np.asarray(filled.features)[3], [2 / 3, 1 / 3])
    assert "categorical is the text 'type'" in refusal(edges, nodes=table, categorical="type")


@pytest.mark.parametrize("form", ["npz", "npy", "mtx", "array", "sparse"])
def test_a_matrix_beside_the_edges(tmp_path: Path, form: str) -> None:
    path: Any = tmp_path / f"f.{form}"
    match form:
        case "npz":
            save_npz(path, WORDS)
        case "npy":
            np.save(path, WORDS.toarray())
        case "mtx":
            mmwrite(path, WORDS)
        case "array":
            path = WORDS.toarray()
        case "sparse":
            path = WORDS
    graph = load_graph(RING, features_file=path)
    assert issparse(graph.features) == (form in ("npz", "mtx", "sparse")) and len(graph.feature_names) == 12
    dense: Any = graph.features.toarray() if issparse(graph.features) else graph.features
    np.testing.assert_allclose(dense, WORDS.toarray())


def test_rows_of_a_matrix_belong_to_nodes(tmp_path: Path) -> None:
    dense = np.arange(60.0).reshape(30, 2)
    some = load_graph(RING[5:20], features_file=dense)  # nodes 5 to 20
    np.testing.assert_array_equal(some.features, dense[5:21])
    assert some.notes[0] == "left out: 14 rows of features_file without an edge in the graph of type list."
    counted = load_graph([(i + 1, (i + 1) % 30 + 1) for i in range(30)], features_file=dense)  # from 1
    assert counted.names[0] == "1"
    np.testing.assert_array_equal(counted.features, dense)
    edges, _ = people(tmp_path)
    assert "does not say which row belongs to node 'ann'" in refusal(edges, features_file=dense[:4])
    turned = write(tmp_path, "id\ndan\ncem\nben\nann\n", "n.csv")
    named = load_graph(edges, nodes=turned, features_file=dense[:4])
    np.testing.assert_array_equal(named.features, dense[3::-1])
    assert "5 rows and the table of nodes 4" in refusal(edges, nodes=turned, features_file=dense[:5])
    assert "29 rows, none for node 29" in refusal(RING, features_file=dense[:29])
    assert "leave out one of them" in refusal(edges, nodes=turned, features_file=dense[:4], features=["age"])
    assert "missing or infinite" in refusal(RING, features_file=np.full((30, 1), np.nan))
    assert "there is no file of features" in refusal(RING, features_file=tmp_path / "f.npz")
    assert "is no matrix of features" in refusal(RING, features_file=write(tmp_path, "x", "f.h5"))


def test_a_table_beside_the_edges(tmp_path: Path) -> None:
    edges, table = people(tmp_path)
    pd.read_csv(table).iloc[::-1].to_parquet(tmp_path / "f.parquet")
    for file in (table, tmp_path / "f.parquet", pd.read_csv(table)):
        graph = load_graph(edges, features_file=file)
        assert graph.feature_names == ("size", "age", "seen")
        np.testing.assert_array_equal(np.asarray(graph.features)[:, 1], [3, 4, 5, 6])
    labelled = load_graph(edges, nodes=table, label="type", features_file=table, features=["age"])
    assert labelled.feature_names == ("age",) and labelled.labels is not None
    text = write(tmp_path, "id,type\nann,x\nben,y\ncem,x\ndan,z\n", "t.csv")
    assert "no column of numbers" in refusal(edges, features_file=text)
    assert load_graph(edges, features_file=text, categorical=["type"]).feature_names == ("type=x", "type=y", "type=z")
    gap = write(tmp_path, "id,age\nann,1\ndan,4\nben,NaN\ncem,3\n", "g.csv")
    said = refusal(edges, features_file=gap)
    assert "g.csv has no value in column 'age' of row 3, node 'ben'" in said and 'missing="mean"' in said
    assert load_graph(edges, features_file=gap, missing="mean").feature_names == ("age",)
    missing = write(tmp_path, "id,age\nann,1\nben,2\n", "m.csv")
    assert "m.csv has no row for 2 nodes of g.edges: 'cem', 'dan'" in refusal(edges, features_file=missing)


def test_sparse_features_of_a_graph() -> None:
    names, edges = np.arange(30).astype(str), np.sort(np.array(RING), axis=1)
    edges = edges[np.lexsort(edges.T[::-1])]
    columns = tuple(f"x{i}" for i in range(12))
    graph = Graph(names, edges, features=WORDS, feature_names=columns)
    other = WORDS.copy()
    other.data[0] += 1
    prints = {Graph(names, edges, features=x, feature_names=columns).fingerprint for x in (WORDS.copy(), other)}
    assert graph.fingerprint in prints and len(prints) == 2
    with_few_zeros = load_graph(RING, features_file=csr_array(np.ones((30, 3))))
    assert not issparse(with_few_zeros.features) and "few zeros" in with_few_zeros.notes[0]
