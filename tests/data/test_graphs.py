"""Graphs, lists of edges, and what becomes of them."""

from __future__ import annotations

import gzip
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from curvae.data import Graph, load_graph, memory
from curvae.data.graphs import edgelist
from curvae.errors import CurvaeError
from reading import PEOPLE, PLAIN, weights, write
from reading import graph_refusal as refusal


def pairs(graph: Graph) -> set[frozenset[str]]:
    """Edges by the names of their nodes."""
    return {frozenset(pair) for pair in graph.names[graph.edges].tolist()}


# --- Graph ------------------------------------------------------------------------------------------------------------

NAMES = np.array(["a", "b", "c", "d"])
EDGES = np.array([[0, 1], [1, 2]], dtype=np.int64)


def test_graph() -> None:
    graph = Graph(NAMES, EDGES, weights=np.array([1.0, 2.5]))
    assert (graph.n_nodes, graph.n_edges) == (4, 2)
    adjacency = graph.adjacency()
    assert isinstance(adjacency, sp.csr_array)
    np.testing.assert_array_equal(adjacency.toarray(), [[0, 1, 0, 0], [1, 0, 2.5, 0], [0, 2.5, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(replace(graph, weights=None).adjacency().toarray(), adjacency.toarray() > 0)
    assert graph.components.tolist() == [0, 0, 0, 1] and graph.components.dtype == np.int64


def test_components_and_adjacency_against_networkx() -> None:
    oracle = nx.gnm_random_graph(60, 45, seed=1)
    graph = load_graph(oracle)
    np.testing.assert_array_equal(graph.adjacency().toarray(), nx.to_numpy_array(oracle))
    parts = {frozenset(np.flatnonzero(graph.components == part)) for part in np.unique(graph.components)}
    assert parts == {frozenset(part) for part in nx.connected_components(oracle)}
    assert len(parts) > 5


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"names": np.array([["a"]])}, "array of texts"),
        ({"names": np.arange(4)}, "array of texts"),
        ({"names": np.array(["a", "b", "c", "a"])}, "same name: 'a'"),
        ({"edges": np.zeros((2, 3), dtype=np.int64)}, "(2, 3)"),
        ({"edges": EDGES.astype(float)}, "float64"),
        ({"edges": EDGES + 2}, "not among the 4"),
        ({"edges": EDGES - 1}, "not among the 4"),
        ({"edges": EDGES[::-1]}, "sorted pairs"),
        ({"edges": EDGES[:, ::-1]}, "sorted pairs"),
        ({"edges": np.array([[1, 1]])}, "sorted pairs"),
        ({"edges": np.array([[0, 1], [0, 1]])}, "sorted pairs"),
        ({"weights": np.ones(3)}, "2 edges but weights of shape (3,)"),
        ({"weights": np.array([1.0, 0.0])}, "positive"),
        ({"weights": np.array([1.0, np.nan])}, "positive"),
        ({"features": np.zeros((4, 2))}, "0 feature names"),
        ({"features": np.zeros((3, 1)), "feature_names": ("x",)}, "(3, 1)"),
        ({"features": np.full((4, 1), np.inf), "feature_names": ("x",)}, "infinite"),
        ({"feature_names": ("x",)}, "without features"),
        ({"labels": np.array(["u"])}, "labels of shape (1,)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_graph_refuses(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(CurvaeError, match=re.escape(part)):
        Graph(**{"names": NAMES, "edges": EDGES, **changes})


def test_fingerprint_sees_every_part() -> None:
    base = Graph(NAMES, EDGES)
    labels, features = np.array(list("uuvv")), np.arange(8.0).reshape(4, 2)
    others = [
        Graph(NAMES[::-1].copy(), EDGES),
        Graph(NAMES, np.array([[0, 1], [1, 3]])),
        Graph(NAMES, EDGES[:1]),
        Graph(NAMES, EDGES, weights=np.ones(2)),
        Graph(NAMES, EDGES, weights=np.array([1.0, 2.0])),
        Graph(NAMES, EDGES, labels=labels),
        Graph(NAMES, EDGES, labels=labels[::-1].copy()),
        Graph(NAMES, EDGES, features=features, feature_names=("p", "q")),
        Graph(NAMES, EDGES, features=features, feature_names=("p", "r")),
        Graph(NAMES, EDGES, features=features[::-1].copy(), feature_names=("p", "q")),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == len(others) + 1
    assert re.fullmatch(r"[0-9a-f]{64}", base.fingerprint)
    assert replace(base, notes=("x",)).fingerprint == base.fingerprint  # what was said is not content


# --- lists of edges ---------------------------------------------------------------------------------------------------

FORMS = {
    "blanks": PLAIN,
    "many blanks": "  1   2 \n2  3\n 3 1\n3 \t 4  \n",
    "tabs": PLAIN.replace(" ", "\t"),
    "commas": PLAIN.replace(" ", ","),
    "commas and blanks": PLAIN.replace(" ", ", "),
    "blanks around": PLAIN.replace(" ", " , "),
    "bars": PLAIN.replace(" ", "|"),
    "semicolons": PLAIN.replace(" ", ";"),
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "old Mac": PLAIN.replace("\n", "\r"),
    "BOM": "\ufeff" + PLAIN,
    "UTF-16": PLAIN.encode("utf-16"),
    "no newline at the end": PLAIN.rstrip(),
    "blank lines": "\n\n" + PLAIN.replace("\n", "\n \t\n"),
    "comments": "# one\n%two 3 4 5\n" + PLAIN.replace("3 1\n", "3 1\n  # a b c d e\n") + "%",
    "quotes": '"1","2"\n"2","3"\n"3","1"\n"3","4"\n',
    "quotes and blanks": '"1" "2"\n"2" "3"\n"3" "1"\n"3" "4"\n',
    "other order": "4 3\n1 3\n3 2\n2 1\n",
}
HEADERS = {
    "usual": "source,target\n" + PLAIN.replace(" ", ","),
    "capitals": "Source\tTarget\n" + PLAIN.replace(" ", "\t"),
    "underscores": "node_1 node_2\n" + PLAIN,
    "unusual": "who whom\n" + PLAIN,
    "behind comments": "# 4 nodes\nfrom to\n" + PLAIN,
}
NAMED = {
    "tab": "New York\tParis\nParis\tNA\nNA\tO'Brien\n",
    "comma": 'New York,Paris\nParis,"NA"\nNA,O\'Brien\n',
    "blank": '"New York" Paris\nParis NA\nNA O\'Brien\n',
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_give_the_same_graph(tmp_path: Path, form: str) -> None:
    graph = load_graph(write(tmp_path, FORMS[form], "g.edges"))
    assert graph.names.tolist() == ["1", "2", "3", "4"]
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2], [2, 3]] and graph.edges.dtype == np.int64
    assert graph.notes == graph.warnings == ()
    assert graph.weights is graph.features is graph.labels is None


@pytest.mark.parametrize("form", HEADERS)
def test_headers_are_recognised(tmp_path: Path, form: str) -> None:
    graph = load_graph(write(tmp_path, HEADERS[form], "g.txt"))
    assert graph.fingerprint == load_graph(write(tmp_path, PLAIN)).fingerprint
    assert len(graph.notes) == 1 and "header" in graph.notes[0]


@pytest.mark.parametrize("form", NAMED)
def test_names_are_texts(tmp_path: Path, form: str) -> None:
    graph = load_graph(write(tmp_path, NAMED[form], "g.csv"))
    assert graph.names.tolist() == ["New York", "Paris", "NA", "O'Brien"]
    assert graph.edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert graph.notes == ()


def test_names_keep_their_zeros_and_their_order(tmp_path: Path) -> None:
    assert load_graph(write(tmp_path, "07 7\n7 1\n")).names.tolist() == ["07", "7", "1"]
    assert load_graph(write(tmp_path, "10 9\n9 -1\n")).names.tolist() == ["-1", "9", "10"]
    assert load_graph(write(tmp_path, "b a\nc b\n")).names.tolist() == ["b", "a", "c"]
    huge = str(2**70)
    assert load_graph(write(tmp_path, f"{huge} 1\n1 2\n")).names.tolist() == [huge, "1", "2"]


@pytest.mark.parametrize("name", ["g.edges", "g", "g.csv", "g.TXT", "ca-CSphd.el"])
def test_endings_and_gzip(tmp_path: Path, name: str) -> None:
    plain = load_graph(write(tmp_path, PLAIN, name))
    packed = load_graph(str(write(tmp_path, gzip.compress(PLAIN.encode()), f"{name}.gz")))
    assert plain.fingerprint == packed.fingerprint


def test_latin_1_is_read_with_a_note(tmp_path: Path) -> None:
    graph = load_graph(write(tmp_path, "Köln,Zürich\nZürich,Bern\n".encode("latin-1")))
    assert graph.names.tolist() == ["Köln", "Zürich", "Bern"] and "Latin-1" in graph.notes[0]


@pytest.mark.parametrize(
    ("content", "header"),
    [
        ("u v\nv w\n", False),  # v is a node
        ("u v\nw x\n", True),
        ("protein1 protein2 score\np53 mdm2 900\n", True),
        ("n1 n2\nn3 n4\n", False),
        ("ann ben 3\nben cem 2\n", False),
        ("ann ben kind\nben cem 2\n", False),  # ben is a node
        ("ann,eva,kind\nben,cem,2\n", True),
        ("ann,eva,kind\nben,cem,big\n", False),
        ("ann 1\n2 3\n", False),
    ],
)
def test_what_is_a_header(tmp_path: Path, content: str, header: bool) -> None:
    graph = load_graph(write(tmp_path, content))
    assert any("header" in note for note in graph.notes) == header
    assert graph.n_edges == 2 - header


@pytest.mark.parametrize("name", ["g.csv", "g.TSV", "g.csv.gz"])
def test_a_first_line_apart_is_a_header_of_a_table(tmp_path: Path, name: str) -> None:
    separator = "\t" if "tsv" in name.lower() else ","
    content = ("package depends\n" + PEOPLE).replace(" ", separator)
    path = write(tmp_path, gzip.compress(content.encode()) if name.endswith("gz") else content, name)
    graph = load_graph(path)
    assert graph.names.tolist() == ["ann", "ben", "cem", "dan"] and graph.warnings == ()
    assert "taken as a header: 'package', 'depends'" in graph.notes[0] and "header=False" in graph.notes[0]
    assert load_graph(path, header=True).fingerprint == graph.fingerprint
    assert load_graph(path, header=False).names.tolist()[:2] == ["package", "depends"]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("boss,ann\nann,ben\nben,cem\n", "g.csv"),  # ann is a node
        ("7,8\n1,2\n2,3\n3,1\n", "g.csv"),  # numbers are no names of columns
        ("a,b\nc,d\ne,f\nf,g\nh,i\n", "g.csv"),  # most lines stand apart
        ("boss,worker\nann,ben\nben,cem\n", "g.edges"),
    ],
)
def test_a_first_line_that_is_an_edge(tmp_path: Path, content: str, name: str) -> None:
    path = write(tmp_path, content, name)
    graph = load_graph(path)
    assert graph.n_edges == content.count("\n") and not any("header" in note for note in graph.notes)
    assert load_graph(path, header=True).n_edges == graph.n_edges - 1


def test_a_first_line_apart_is_warned_of(tmp_path: Path) -> None:
    graph = load_graph(write(tmp_path, "boss worker\n" + PEOPLE, "g.edges"))
    assert graph.n_edges == 4 and "'boss' and 'worker'" in graph.warnings[0] and "header=True" in graph.warnings[0]
    assert load_graph(write(tmp_path, PEOPLE)).warnings == ()


def test_a_first_line_of_known_nodes_is_an_edge(tmp_path: Path) -> None:
    path = write(tmp_path, "boss,worker\n" + PEOPLE.replace(" ", ","))
    table = write(tmp_path, "id,team\nann,x\nben,x\ncem,x\ndan,x\nboss,x\nworker,x\n", "n.csv")
    for graph in (load_graph(path, known={"boss", "worker", "eva"}), load_graph(path, nodes=table)):
        assert graph.n_edges == 4 and graph.notes == ("the graph has 2 components, the largest of 4 nodes.",)
    assert load_graph(path, known={"boss"}).n_edges == 3


def test_a_header_is_of_lists_of_edges(tmp_path: Path) -> None:
    assert "leave out header=…" in refusal([("a", "b")], header=True)
    matrix = "%%MatrixMarket matrix coordinate pattern symmetric\n2 2 1\n2 1\n"
    assert "g.mtx is no list of edges" in refusal(write(tmp_path, matrix, "g.mtx"), header=False)
    usual = write(tmp_path, "source,target\nann,ben\n")
    assert load_graph(usual, header=False).n_edges == 2


def test_names_with_blanks_and_other_marks(tmp_path: Path) -> None:
    rows = [("New York", "Los Angeles"), ("Los Angeles", "San José"), ("San José", "New York")]
    oracle = {frozenset(pair) for pair in rows}
    for separator, name in ((",", "g.csv"), ("\t", "g.tsv"), (";", "g.csv"), (",", "g.csv.gz")):
        text = "".join(f"{a}{separator}{b}{separator}1999\n" for a, b in [("from city", "to city"), *rows])
        path = write(tmp_path, gzip.compress(text.encode()) if name.endswith("gz") else text, name)
        assert pairs(load_graph(path)) == oracle
    bars = "a|1,b|2\nb|2,c|3\nc|3,a|1\n"  # bars are parts of names in a .csv
    assert load_graph(write(tmp_path, bars)).names.tolist() == ["a|1", "b|2", "c|3"]
    commas = "a, b\tc, d\nc, d\te, f\n"
    assert load_graph(write(tmp_path, commas, "g.tsv")).names.tolist() == ["a, b", "c, d", "e, f"]


def test_weights_among_more_columns(tmp_path: Path) -> None:
    rows = "ann,ben,2001,7\nben,cem,2002,8\ncem,ann,2003,9\n"
    named: Any = {"weighted": True, "source_column": "who", "target_column": "whom"}
    graph = load_graph(write(tmp_path, "who,whom,time,weight\n" + rows), **named)
    assert sorted(weights(graph).values()) == [7, 8, 9]
    message = refusal(write(tmp_path, "who,whom,time,size\n" + rows), **named)
    assert "several columns beside the names, 'time', 'size'" in message
    numbered = named | {"source_column": "1", "target_column": "2"}
    assert sorted(weights(load_graph(write(tmp_path, rows), **numbered)).values()) == [2001, 2002, 2003]
    swapped = "time,target,weight,source\n1,ben,7,ann\n2,cem,8,ben\n3,ann,9,cem\n"
    assert weights(load_graph(write(tmp_path, swapped), weighted=True)) == weights(graph)


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    gephi = "Id,Source,Target,Type,Weight\n0,a,b,Undirected,2\n1,b,c,Undirected,0.5\n"
    graph = load_graph(write(tmp_path, gephi), weighted=True)
    assert weights(graph) == {frozenset("ab"): 2, frozenset("bc"): 0.5}
    assert load_graph(write(tmp_path, gephi)).notes[1] == (
        "left out: 3 columns beside the names; use weighted=True to read weights."
    )


def test_tables_of_many_columns_name_their_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("ann", "x", "ben", 1), ("ben", "y", "cem", 2), ("cem", "x", "dan", 3)]
    frame = pd.DataFrame(rows, columns=["who", "how", "to whom", "year"])
    frame.to_csv(table := tmp_path / "t.csv", index=False)
    frame.to_parquet(parquet := tmp_path / "t.parquet")
    frame.to_csv(bare := tmp_path / "bare.csv", index=False, header=False)
    for source in (table, parquet, frame):
        message = refusal(source)
        assert "has 4 columns" in message and 'source_column="who" target_column="how"' in message
        assert ("PoincareVAE" if source is frame else f"curvae fit {source} ") in message
        graph = load_graph(source, source_column="to whom", target_column="who", directed=True)
        named = [tuple(pair) for pair in graph.names[graph.edges].tolist()]
        assert sorted(named) == [("ben", "ann"), ("cem", "ben"), ("dan", "cem")]
        assert any("left out: 2 columns" in note for note in graph.notes)
        assert "did you mean 'to whom'?" in refusal(source, source_column="who", target_column="too whom")
    assert 'source_column="1" target_column="2"' in refusal(bare)
    for large in (edgelist.LARGE, 0):  # the second is read in pieces
        monkeypatch.setattr(edgelist, "LARGE", large)
        assert pairs(load_graph(bare, source_column="1", target_column="3")) == pairs(graph)
        assert pairs(load_graph(table, source_column="who", target_column="to whom")) == pairs(graph)
    texts = write(tmp_path, "who how whom where\nann x ben y\nben x cem y\ncem x dan y\n", "texts.txt")
    assert pairs(load_graph(texts, source_column="who", target_column="whom")) == pairs(graph)
    # Numbers are those of columns, even where the first nodes are called so.
    numbers = write(tmp_path, "2 1 5 7\n1 3 5 8\n", "n.txt")
    assert load_graph(numbers, source_column="1", target_column="2").edges.tolist() == [[0, 1], [0, 2]]
    assert "both are 'who'" in refusal(table, source_column="who", target_column="who")
    assert "give both" in refusal(table, source_column="who")
    assert "leave out source_column=…" in refusal([("a", "b")], source_column="1", target_column="2")


def test_weights_of_lists(tmp_path: Path) -> None:
    expected = {frozenset("ab"): 2.0, frozenset("bc"): 0.125}
    for content in ("a b 2\nb c .125\n", "a,b,2\nb,c,1.25e-1\n", "a;b;2,0\nb;c;0,125\n", "a b 2,0\nb c 0,125\n"):
        graph = load_graph(write(tmp_path, content), weighted=True)
        assert weights(graph) == expected
        assert any("decimal commas" in note for note in graph.notes) == (",0" in content)
    unweighted = load_graph(write(tmp_path, "a b likes\nb c knows\n"))
    assert unweighted.weights is None and "1 column beside the names" in unweighted.notes[0]


def test_weights_are_read_exactly(tmp_path: Path) -> None:
    values = np.random.default_rng(0).lognormal(size=200)
    lines = "".join(f"{i} {i + 1} {value!r}\n" for i, value in enumerate(values.tolist()))
    np.testing.assert_array_equal(load_graph(write(tmp_path, lines), weighted=True).weights, values)


# --- what becomes of links --------------------------------------------------------------------------------------------


def test_loops_are_left_out(tmp_path: Path) -> None:
    graph = load_graph(write(tmp_path, "a a\na b\nb c\nd d\nd d\n"))
    assert pairs(graph) == {frozenset("ab"), frozenset("bc")} and graph.names.tolist() == list("abcd")
    assert graph.notes == (
        "left out: 3 self loops.",
        "kept without an edge: 1 node: 'd'.",
        "the graph has 2 components, the largest of 3 nodes.",
    )


def test_repeated_edges_are_merged(tmp_path: Path) -> None:
    path = write(tmp_path, "a b 1\na b 2\nb a 4\nb c 8\n")
    graph = load_graph(path)
    assert graph.n_edges == 2 and graph.notes[1:] == (
        "merged: 1 repeated edge.",
        "given in both directions and merged: 1 edge.",
    )
    summed = load_graph(path, weighted=True)
    assert weights(summed) == {frozenset("ab"): 7, frozenset("bc"): 8}
    assert summed.notes == (
        "merged: 1 repeated edge, weights summed.",
        "given in both directions and merged: 1 edge, weights summed.",
    )


def test_a_list_of_both_directions_keeps_its_weights(tmp_path: Path) -> None:
    graph = load_graph(write(tmp_path, "a b 2\nb a 2\nb c 3\nc b 1\nc b 2\n"), weighted=True)
    assert weights(graph) == {frozenset("ab"): 2, frozenset("bc"): 3}
    assert graph.notes[-1] == "every edge was given in both directions; each is kept once."
    other = load_graph(write(tmp_path, "a b 2\nb a 2\nb c 3\nc b 1\n"), weighted=True)
    assert weights(other) == {frozenset("ab"): 4, frozenset("bc"): 4}


def test_directions_are_left_out() -> None:
    arcs = nx.DiGraph([("a", "b"), ("b", "a"), ("b", "c"), ("d", "c")])
    graph = load_graph(arcs)
    assert pairs(graph) == {frozenset("ab"), frozenset("bc"), frozenset("cd")}
    assert graph.notes == ("directions were left out: 4 arcs became 3 edges; 1 pair ran both ways.",)
    tree = load_graph(nx.DiGraph([("a", "b"), ("b", "c")]))
    assert tree.notes == ("directions were left out: 2 arcs became 2 edges.",)


def test_links_of_every_kind_against_networkx(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    links, values = random.integers(0, 30, (300, 2)), random.integers(1, 9, 300)
    lines = "".join(f"{a} {b} {w}\n" for (a, b), w in zip(links.tolist(), values.tolist(), strict=True))
    graph = load_graph(write(tmp_path, lines), weighted=True)
    expected: dict[frozenset[str], float] = {}
    for (a, b), w in zip(links.tolist(), values.tolist(), strict=True):
        if a != b:
            key = frozenset((str(a), str(b)))
            expected[key] = expected.get(key, 0) + w
    assert weights(graph) == expected
    oracle = nx.Graph([pair for pair in links.tolist() if pair[0] != pair[1]])
    assert pairs(load_graph(links)) == {frozenset(map(str, pair)) for pair in oracle.edges()}
    assert graph.n_edges < 300 - 30
    (loops,), (repeated,), (both,) = (
        [int(n.replace(",", "")) for note in graph.notes if what in note for n in re.findall(r"\d+", note)]
        for what in ("self loop", "repeated", "both directions")
    )
    assert loops == (links[:, 0] == links[:, 1]).sum()
    assert 300 - loops - repeated - both == graph.n_edges


# --- bad input --------------------------------------------------------------------------------------------------------

JUNK = bytes(np.random.default_rng(0).integers(0, 256, 4000, dtype=np.uint8))
BAD = {
    "empty": ("", "g.edges is empty; give two names a line"),
    "blank": ("\n \n\t\n", "g.edges is empty"),
    "comments": ("# a b\n% c d\n", "contains only comments"),
    "header only": ("source,target\n", "has no edges; give at least one"),
    "one column": ("a\nb\nc\n", "has one column"),
    "one node": ("a a\n", "has no edges between different nodes"),
    "short line": (PLAIN + "5\n", "line 5 has 1 field instead of 2"),
    "late short line": (PLAIN * 40 + "# c\n5\n" + PLAIN, "line 162 has 1 field instead of 2"),
    "late long line": (PLAIN * 40 + "# c\n5 6 7\n" + PLAIN, "line 162 has 3 fields instead of 2"),
    "neighbours a line": ("a b c d\nb c\nc d\n", "line 2 has 2 fields instead of 4"),
    "no second name": ("a,b\nb,\nc,d\n", "line 2 names only one node"),
    "no first name": ("# x\na,b\n,c\n", "line 3 names only one node"),
    "arrows": ("a -> b\nb -> c\n", "has '->' instead of a second name"),
    "open quote": ('a b\n"b c\nc d\n', "line 2 opens a quote"),
    "two open quotes": ('a b\nb "c\nc d\n"d e\n', "line 2 opens a quote"),
    "line break in a name": ('a,c\n"a\nb",c\nc,d\n', "close it, or remove the line break from the name"),
    "quote over lines": ('a b\nb "c\nd e"\nc d\n', "line 2 opens a quote"),
    "bytes": (b"a b\n\0\1\2", "g.edges is not a text file"),
    "junk": (JUNK, "g.edges is not a text file"),
    "junk without zeros": (JUNK.replace(b"\0", b"\1"), "g.edges is not a text file"),
    "zip": (b"PK\x03\x04" + JUNK, "g.edges is not a text file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_lists_are_refused(tmp_path: Path, case: str) -> None:
    content, part = BAD[case]
    assert part in refusal(write(tmp_path, content, "g.edges"))


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("a b\nb c\n", "no third column for weights"),
        ("a b 1\n# x\nb c much\n", "line 3 has weight 'much'"),
        ("source target weight\na b 1\nb c much\n", "line 3 has weight 'much'"),
        ("a b likes\nb c knows\n", "line 1 has weight 'likes'"),
        ("a,b,1\nb,c,\n", "line 2 has weight ''"),
        ("a b 1\nb c 0\n", "line 2 has weight 0"),
        ("# x\na b 1\n\nb c -2.5\n", "line 4 has weight -2.5"),
        ("a b 1\nb c inf\n", "line 2 has weight inf"),
        ("a b 1\nb c nan\n", "line 2 has weight 'nan'"),
        ("a;b;1\nb;c;1,000,000\n", "line 2 has weight '1,000,000'"),
    ],
)
def test_wrong_weights_are_refused(tmp_path: Path, content: str, part: str) -> None:
    message = refusal(write(tmp_path, content, "g.edges"), weighted=True)
    assert part in message and "leave out weighted=True" in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, "friends.edges")
    message = refusal(tmp_path / "friend.edges")
    assert "there is no file" in message and "did you mean 'friends.edges'?" in message
    assert "phylogenetic, csphd, diseases" in message
    assert "did you mean 'diseases'?" in refusal("disease")
    assert "there is no file" in refusal(tmp_path / "nowhere" / "g.edges")
    assert "is a folder; give a file" in refusal(tmp_path)
    for name in ("g.gml", "g.gexf", "g.json", "g.pkl", "g.pt", "g.net.gz"):
        assert "save it as GraphML or as a list of edges" in refusal(write(tmp_path, PLAIN, name))
    for name in ("g.edges.gz", "g.graphml.gz", "g.mtx.gz", "g.npz", "g.mtx"):
        assert f"{name} " in refusal(write(tmp_path, PLAIN, name))
    cut = gzip.compress((PLAIN * 5000).encode())[:-20]
    for name in ("g.edges.gz", "g.graphml.gz"):
        assert "not a complete gzip file" in refusal(write(tmp_path, cut, name))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="rights do not bind this user")
def test_a_file_without_rights(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, "g.edges").chmod(0)
    assert "Permission denied" in refusal(tmp_path / "g.edges")


def test_an_error_of_the_system_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error", "g.edges")

    monkeypatch.setattr("curvae.data.graphs.graph_loading.open_file", fail)
    assert refusal(write(tmp_path, PLAIN, "g.edges")) == (
        "g.edges cannot be read: Input/output error; check the file and its permissions"
    )


def test_a_list_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curvae.data.graphs.edgelist.pd.read_csv", lambda *_, **__: pytest.fail("read"))
    monkeypatch.setattr(memory, "available", lambda: 100)
    assert "needs about" in refusal(write(tmp_path, PLAIN, "g.edges"))
    assert "needs about" in refusal(sp.csr_array(nx.to_scipy_sparse_array(nx.path_graph(3))))


def test_many_edges(tmp_path: Path) -> None:
    links = np.random.default_rng(0).integers(0, 20_000, (60_000, 2))
    np.savetxt(tmp_path / "g.edges", np.column_stack([links, np.full(len(links), 3)]), fmt="%d")
    graph = load_graph(tmp_path / "g.edges", weighted=True)
    assert graph.weights is not None
    apart = links[links[:, 0] != links[:, 1]]
    present = np.unique(links)
    keys = np.unique(apart.min(1) * 20_000 + apart.max(1))
    np.testing.assert_array_equal(graph.names, present.astype(np.str_))
    np.testing.assert_array_equal(present[graph.edges], np.stack([keys // 20_000, keys % 20_000], axis=1))
    assert graph.weights.sum() == 3 * len(apart)
