"""Tables of nodes: names, labels and features."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.io import mmwrite
from scipy.sparse import csr_array, issparse, random_array, save_npz

from curvae.data import Graph, load_graph
from reading import PEOPLE, graph_refusal as refusal, write

TABLE = "id,type,size,age\nann,x,1.5,3\nben,y,2.5,4\ncem,x,0,5\ndan,,4,6\n"


def test_node_table(tmp_path: Path) -> None:
    path, table = write(tmp_path, PEOPLE, "g.edges"), write(tmp_path, TABLE, "nodes.csv")
    graph = load_graph(path, nodes=table, label="type", features=["age", "size"])
    assert graph.labels is not None and graph.labels.tolist() == ["x", "y", "x", ""]
    assert graph.label_name == "type" and graph.feature_names == ("age", "size")
    np.testing.assert_array_equal(graph.features, [[3, 1.5], [4, 2.5], [5, 0], [6, 4]])
    assert graph.notes == ("1 node without a label in column 'type'; the label is left empty.",)
    assert load_graph(path, nodes=table).labels is None


def test_node_tables_of_every_form_agree(tmp_path: Path) -> None:
    path = write(tmp_path, PEOPLE, "g.edges")
    frame = pd.read_csv(write(tmp_path, TABLE, "n.csv"))
    frame.iloc[::-1].to_csv(tmp_path / "n.tsv", sep="\t", index=False)
    frame.to_csv(tmp_path / "n.csv.gz", index=False)
    frame.rename(columns={"id": "who"}).to_csv(tmp_path / "first.csv", index=False)
    frame[["size", "type", "age", "id"]].rename(columns={"id": "Name"}).to_csv(tmp_path / "last.csv", index=False)
    frame.assign(number=range(4))[["number", "id", "size", "type", "age"]].to_csv(tmp_path / "number.csv", index=False)
    frame.rename(columns={"id": "name"}).assign(id=range(4)).to_csv(tmp_path / "both.csv", index=False)
    sources: list[Any] = [
        tmp_path / name for name in ("n.tsv", "n.csv.gz", "first.csv", "last.csv", "number.csv", "both.csv")
    ]
    sources += [str(tmp_path / "n.csv"), frame, frame.set_index("id"), frame.set_index("id").rename_axis(None)]
    options: dict[str, Any] = {"label": "type", "features": ("size",)}
    prints = {load_graph(path, nodes=nodes, **options).fingerprint for nodes in sources}
    assert prints == {load_graph(path, nodes=tmp_path / "n.csv", **options).fingerprint}


def test_node_table_in_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    path, table = write(tmp_path, PEOPLE, "g.edges"), write(tmp_path, TABLE, "n.csv")
    pd.read_csv(table).to_parquet(tmp_path / "n.parquet")
    options: dict[str, Any] = {"label": "type", "features": ("size",)}
    stored = load_graph(path, nodes=tmp_path / "n.parquet", **options)
    assert stored.fingerprint == load_graph(path, nodes=table, **options).fingerprint
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install pyarrow" in refusal(nx.path_graph(3), nodes=tmp_path / "n.parquet")


def test_names_of_a_node_table_keep_their_zeros(tmp_path: Path) -> None:
    path = write(tmp_path, "007 07\n07 7\n", "g.edges")
    for header in ("id,kind", "code,kind"):
        graph = load_graph(path, nodes=write(tmp_path, f"{header}\n7,a\n07,b\n007,c\n"), label="kind")
        assert graph.labels is not None and graph.labels.tolist() == ["c", "b", "a"]


def test_nodes_that_only_the_table_names(tmp_path: Path) -> None:
    path, table = write(tmp_path, PEOPLE, "g.edges"), write(tmp_path, TABLE + "eva,y,1,2\nfee,z,3,4\n", "n.csv")
    message = refusal(path, nodes=table)
    assert "n.csv names 2 nodes that g.edges does not have: 'eva', 'fee'" in message and "isolated=True" in message
    graph = load_graph(path, nodes=table, isolated=True, label="type", features=["size"])
    assert graph.names.tolist() == ["ann", "ben", "cem", "dan", "eva", "fee"] and graph.n_edges == 3
    assert graph.labels is not None and graph.labels.tolist() == ["x", "y", "x", "", "y", "z"]
    np.testing.assert_array_equal(graph.features, [[1.5], [2.5], [0], [4], [1], [3]])
    assert graph.notes[1:] == (
        "kept without an edge: 2 nodes: 'eva', 'fee'.",
        "the graph has 3 components, the largest of 4 nodes.",
    )
    many = write(tmp_path, TABLE + "".join(f"x{i},u,1,1\n" for i in range(1000)), "n.csv")
    message = refusal(path, nodes=many)
    assert "1,000 nodes" in message and "'x4' and 995 more" in message and "'x5'" not in message
    assert "give it with `nodes=…`" in refusal(path, isolated=True)


def test_nodes_that_the_table_lacks(tmp_path: Path) -> None:
    path, table = write(tmp_path, PEOPLE + "dan eva\n", "g.edges"), write(tmp_path, TABLE, "n.csv")
    assert "n.csv has no row for 1 node of g.edges: 'eva'; add them, or use `missing=\"mean\"`" in refusal(
        path, nodes=table, features=["size"]
    )
    graph = load_graph(path, nodes=table, label="type")
    assert graph.warnings == ("n.csv has no row for 1 node of g.edges: 'eva'; add them.",)
    assert graph.labels is not None and graph.labels.tolist() == ["x", "y", "x", "", ""]
    filled = load_graph(path, nodes=table, features=["size"], missing="mean")
    np.testing.assert_array_equal(filled.features, [[1.5], [2.5], [0], [4], [2]])
    assert filled.warnings == graph.warnings and any("replaced by the column's mean" in note for note in filled.notes)


def test_missing_features(tmp_path: Path) -> None:
    path = write(tmp_path, PEOPLE, "g.edges")
    table = write(tmp_path, TABLE.replace("2.5", "").replace("dan,,4", "dan,,inf"), "n.csv")
    message = refusal(path, nodes=table, features=["age", "size"])
    assert "'size' (2)" in message and "'age'" not in message and 'missing="mean"' in message
    filled = load_graph(path, nodes=table, features=["age", "size"], missing="mean")
    np.testing.assert_array_equal(filled.features, [[3, 1.5], [4, 0.75], [5, 0], [6, 0.75]])
    empty = write(tmp_path, "id,size\nann,\nben,\ncem,\ndan,\n", "n.csv")
    assert "without a single value: 'size'" in refusal(path, nodes=empty, features=["size"], missing="mean")


@pytest.mark.parametrize(
    ("table", "options", "part"),
    [
        (TABLE, {"label": "typ"}, "has no column 'typ' for `label=…`; did you mean 'type'?"),
        (TABLE, {"features": ["weight"]}, "has no column 'weight' for `features=…`"),
        (TABLE, {"features": ["size", "type"]}, "text in column 'type' ('x' in row 1); choose columns of numbers"),
        (TABLE, {"features": "size"}, "features is the text 'size'"),
        (TABLE, {"features": ["size"], "missing": "drop"}, "missing is 'drop'; use one of error, mean"),
        (TABLE.replace("cem", "ben"), {}, "column 'id' of n.csv: 'ben' given more than once"),
        (TABLE.replace("cem", ""), {}, "column 'id' of n.csv: 1 row without an id"),
        ("id,type\n1,x\n2,y\n3,z\n", {}, "n.csv names '1', '2' in column 'id' and g.edges has nodes 'ann', 'ben'"),
        ("id,type\n", {}, "header but no rows"),
        ("", {}, "n.csv is empty"),
        (b"\0\1\2", {}, "n.csv is not a text file"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() and len(value) < 30 else "",
)
def test_node_tables_refused(tmp_path: Path, table: str | bytes, options: dict[str, Any], part: str) -> None:
    path = write(tmp_path, PEOPLE, "g.edges")
    assert part in refusal(path, nodes=write(tmp_path, table, "n.csv"), **options)


def test_other_node_tables_refused(tmp_path: Path) -> None:
    path = write(tmp_path, PEOPLE, "g.edges")
    assert "there is no table of nodes" in refusal(path, nodes=tmp_path / "n.csv")
    assert "the table of nodes is empty" in refusal(path, nodes=pd.DataFrame())
    twice = pd.DataFrame([["ann", 1, 2]], columns=["id", "a", "a"])
    assert "columns of the same name: 'a'" in refusal(path, nodes=twice)
    assert "g.edges has no column 'type' of nodes; give a table with `nodes=…`" in refusal(path, label="type")
    assert "has no column 'size' of nodes" in refusal(nx.path_graph(3), features=["size"])
    coloured = nx.path_graph(3)
    nx.set_node_attributes(coloured, "red", "colour")
    assert "has no column 'color' for `label=…`; did you mean 'colour'?" in refusal(coloured, label="color")


# --- features: columns of tables, matrices beside the edges, categories ----------------------------------------------


FEATURES_TABLE = "id,type,size,age,seen\nann,x,1.5,3,true\nben,y,2.5,4,false\ncem,x,0,5,true\ndan,z,4,6,true\n"


RING = [(i, (i + 1) % 30) for i in range(30)]


WORDS = csr_array(random_array((30, 12), density=0.1, rng=np.random.default_rng(0), format="csr"))


def people(folder: Path) -> tuple[Path, Path]:
    return write(folder, PEOPLE, "g.edges"), write(folder, FEATURES_TABLE, "n.csv")


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
    gaps = write(tmp_path, FEATURES_TABLE.replace("2.5", ""), "n.csv")
    graph = load_graph(edges, nodes=gaps)
    assert graph.feature_names == ("age", "seen") and any("with gaps" in note for note in graph.notes)
    filled = load_graph(edges, nodes=gaps, missing="mean")
    assert filled.feature_names == ("size", "age", "seen")
    np.testing.assert_allclose(np.asarray(filled.features)[1, 0], (1.5 + 0 + 4) / 3)
    short = write(tmp_path, "".join(FEATURES_TABLE.splitlines(keepends=True)[:-1]), "n.csv")
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
    gap = write(tmp_path, FEATURES_TABLE.replace("dan,z", "dan,"), "m.csv")
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
