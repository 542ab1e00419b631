"""Tables of nodes: names, labels and features."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from curvae.data import load_graph
from reading import PEOPLE, write
from reading import graph_refusal as refusal

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
    assert "give it with nodes=…" in refusal(path, isolated=True)


def test_nodes_that_the_table_lacks(tmp_path: Path) -> None:
    path, table = write(tmp_path, PEOPLE + "dan eva\n", "g.edges"), write(tmp_path, TABLE, "n.csv")
    assert "n.csv has no row for 1 node of g.edges: 'eva'; add them, or use missing=\"mean\"" in refusal(
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
        (TABLE, {"label": "typ"}, "has no column 'typ' for label=…; did you mean 'type'?"),
        (TABLE, {"features": ["weight"]}, "has no column 'weight' for features=…"),
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
    assert "g.edges has no column 'type' of nodes; give a table with nodes=…" in refusal(path, label="type")
    assert "has no column 'size' of nodes" in refusal(nx.path_graph(3), features=["size"])
    coloured = nx.path_graph(3)
    nx.set_node_attributes(coloured, "red", "colour")
    assert "has no column 'color' for label=…; did you mean 'colour'?" in refusal(coloured, label="color")
