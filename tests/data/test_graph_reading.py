"""Graphs from files and objects: lists of edges, tables, formats and the named graphs."""

from __future__ import annotations

import gzip
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

from curvae.data import Graph, graph_reading as reading, load, load_graph, memory
from curvae.data.graph_reading import GRAPH_FILES, RawGraph
from curvae.errors import CurvaeError
from paths import ROOT
from reading import PEOPLE, PLAIN, graph_refusal as refusal, random_graph, weights, write


def pairs(graph: Graph) -> set[frozenset[str]]:
    """Edges by the names of their nodes."""
    return {frozenset(pair) for pair in graph.names[graph.edges].tolist()}


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
    assert "leave out `header=…`" in refusal([("a", "b")], header=True)
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
        "left out: 3 columns beside the names; use `weighted=True` to read weights."
    )


def test_tables_of_many_columns_name_their_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("ann", "x", "ben", 1), ("ben", "y", "cem", 2), ("cem", "x", "dan", 3)]
    frame = pd.DataFrame(rows, columns=["who", "how", "to whom", "year"])
    frame.to_csv(table := tmp_path / "t.csv", index=False)
    frame.to_parquet(parquet := tmp_path / "t.parquet")
    frame.to_csv(bare := tmp_path / "bare.csv", index=False, header=False)
    for source in (table, parquet, frame):
        message = refusal(source)
        assert "has 4 columns" in message and '`source_column="who"` `target_column="how"`' in message
        assert ("PoincareVAE" if source is frame else f"curvae fit {source} ") in message
        graph = load_graph(source, source_column="to whom", target_column="who", directed=True)
        named = [tuple(pair) for pair in graph.names[graph.edges].tolist()]
        assert sorted(named) == [("ben", "ann"), ("cem", "ben"), ("dan", "cem")]
        assert any("left out: 2 columns" in note for note in graph.notes)
        assert "did you mean 'to whom'?" in refusal(source, source_column="who", target_column="too whom")
    assert '`source_column="1"` `target_column="2"`' in refusal(bare)
    for large in (reading.LARGE, 0):  # the second is read in pieces
        monkeypatch.setattr(reading, "LARGE", large)
        assert pairs(load_graph(bare, source_column="1", target_column="3")) == pairs(graph)
        assert pairs(load_graph(table, source_column="who", target_column="to whom")) == pairs(graph)
    texts = write(tmp_path, "who how whom where\nann x ben y\nben x cem y\ncem x dan y\n", "texts.txt")
    assert pairs(load_graph(texts, source_column="who", target_column="whom")) == pairs(graph)
    # Numbers are those of columns, even where the first nodes are called so.
    numbers = write(tmp_path, "2 1 5 7\n1 3 5 8\n", "n.txt")
    assert load_graph(numbers, source_column="1", target_column="2").edges.tolist() == [[0, 1], [0, 2]]
    assert "both are 'who'" in refusal(table, source_column="who", target_column="who")
    assert "give both" in refusal(table, source_column="who")
    assert "leave out `source_column=…`" in refusal([("a", "b")], source_column="1", target_column="2")


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
    assert part in message and "leave out `weighted=True`" in message


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

    monkeypatch.setattr("curvae.data.graph_reading.open_file", fail)
    assert refusal(write(tmp_path, PLAIN, "g.edges")) == (
        "g.edges cannot be read: Input/output error; check the file and its permissions"
    )


def test_a_list_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curvae.data.graph_reading.pd.read_csv", lambda *_, **__: pytest.fail("read"))
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


# --- lists that are read in pieces, against the general reader and against sets of pairs -----------------------------


@pytest.fixture
def _pyarrow():
    pytest.importorskip("pyarrow")


LISTS = {
    "numbers.csv": "3,1\n1,3\n2,2\n10,3\n3,1\n",
    "header.csv": "source,target\n3,1\n1,2\n10,3\n",
    "quoted_header.csv": '"source","target"\n3,1\n1,2\n10,3\n',
    "named_header.csv": "package,depends\na,b\nb,c\nc,a\nd,b\nd,c\n",
    "more.tsv": "id\tsource\ttarget\tyear\n7\ta\tb\t1\n8\tb\tc\t2\n9\tc\ta\t1\n",
    "weights.csv": "source,target,weight\n1,2,0.5\n2,1,0.25\n3,1,2e1\n2,1,1\n",
    "weights_first.csv": "weight,source,target\n2,1,2\n3,2,3\n0.5,3,1\n",
    "no_header_weights.csv": "1,2,0.5\n2,3,0.25\n3,1,2\n",
    "blanks.txt": "# a comment\n%and another\n\n1 2\n2 3\n3 1\n",
    "two_blanks.txt": "1 2\n2  3\n3 1\n",
    "late_comment.txt": "1 2\n2 3\n# late\n3 1\n",
    "comment_like_edge.csv": "1,2\n2,3\n#3,1\n",
    "spaces.csv": "ann lee, ben\n ben,cem\ncem ,ann lee\n",
    "spaced_numbers.csv": "1, 2\n 2,3\n3 ,1\n",
    "quotes.csv": 'a,b\n"b, c",a\nc,"b, c"\n',
    "zeros.csv": "01,1\n1,2\n2,01\n007,1\n",
    "signs.csv": "-1,0\n0,5\n5,-1\n",
    "minus_zero.csv": "-0,0\n0,5\n5,-0\n",
    "hexadecimal.csv": "0xFF,255\n255,1\n0xFFFFFFFF,1\n",
    "long_numbers.csv": "1234567890123456789,1\n1,2\n999999999999999999,2\n",
    "mixed.csv": "a,1\n1,2\n2,a\n",
    "letters.tsv": "ü\tö\nö\tß\nß\tü\n",
    "last_line.csv": "1,2\n2,3\n3,1",
    "windows.csv": "1,2\r\n2,3\r\n3,1\r\n",
    "blank_lines.csv": "1,2\n\n2,3\n3,1\n\n",
    "mark.csv": "\ufeffsource,target\n1,2\n2,3\n",
    "decimal_commas.csv": "a;b;1,5\nb;c;2,5\nc;a;1\n",
    "loops.csv": "1,1\n2,2\n1,2\n",
    "empty.csv": "1,2\n2,\n3,1\n",
    "widths.csv": "1,2\n2,3,4\n3,1\n",
    "bad_weight.csv": "1,2,1\n2,3,none\n3,1,2\n",
    "negative_weight.csv": "1,2,1\n2,3,-1\n3,1,2\n",
    "one_line.csv": "1,2\n",
    "header_only.csv": "source,target\n",
}


def read(path, large, monkeypatch, **how):
    monkeypatch.setattr(reading, "LARGE", 0 if large else 1 << 40)
    try:
        graph = load_graph(path, **how)
    except CurvaeError as error:
        return str(error)
    weights = None if graph.weights is None else graph.weights.tolist()
    return graph.names.tolist(), graph.edges.tolist(), weights, graph.notes, graph.warnings


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.usefixtures("_pyarrow")
def test_as_the_general_reader(name, packed, tmp_path, monkeypatch):
    path, text = tmp_path / (f"{name}.gz" if packed else name), LISTS[name].encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    for how in ({}, {"header": True}, {"header": False}, {"weighted": True}, {"directed": True})[: 1 if packed else 5]:
        assert read(path, True, monkeypatch, **how) == read(path, False, monkeypatch, **how)


def random_pairs(kind):
    random = np.random.default_rng(3)
    pairs = random.integers(0, 60, (400, 2))
    pairs[:50] = pairs[50:100, ::-1]  # both directions
    pairs[100:120, 1] = pairs[100:120, 0]  # loops
    if kind == "far":
        pairs = pairs * 10**15 - 3
    return np.char.add("node ", pairs.astype(str)) if kind == "texts" else pairs


@pytest.mark.parametrize("kind", ["numbers", "far", "texts"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet"])
@pytest.mark.parametrize("block", [256, 1 << 24])
@pytest.mark.usefixtures("_pyarrow")
def test_edges_against_sets_of_pairs(kind, ending, block, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LARGE", 0)
    monkeypatch.setattr(reading, "_BLOCK", block)
    monkeypatch.setattr(reading.pd, "read_csv", None)  # nothing here needs the general reader
    pairs = random_pairs(kind)
    frame = pd.DataFrame(pairs, columns=["from", "to"]).assign(weight=np.linspace(0.5, 2, len(pairs)), more="x")
    path = tmp_path / f"edges.{ending}"
    if ending == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    graph = load_graph(path, weighted=True)
    expected = {}
    for (a, b), weight in zip(pairs.tolist(), frame["weight"], strict=True):
        if a != b:
            key = frozenset((str(a), str(b)))
            expected[key] = expected.get(key, 0.0) + weight
    found = {frozenset(graph.names[edge].tolist()): w for edge, w in zip(graph.edges, graph.weights, strict=True)}
    assert found.keys() == expected.keys()
    assert all(np.isclose(found[key], expected[key], rtol=1e-12) for key in found)
    seen = dict.fromkeys(pairs.ravel().tolist())
    assert graph.names.tolist() == [str(name) for name in (seen if kind == "texts" else sorted(seen))]
    bare = load_graph(path)
    assert np.array_equal(bare.edges, graph.edges)
    assert bare.weights is None
    assert any(note.startswith("left out: 2 columns beside the names") for note in bare.notes)


@pytest.mark.usefixtures("_pyarrow")
def test_parquet_of_two_columns_and_types(tmp_path):
    frames = {
        "small": pd.DataFrame({"a": np.array([3, 1], np.int32), "b": np.array([1, 2], np.int32)}),
        "texts": pd.DataFrame({"a": ["x ", "y"], "b": ["y", "x"]}),
        "categories": pd.DataFrame({"a": ["x", "y"], "b": ["y", "z"]}).astype("category"),
        "floats": pd.DataFrame({"a": [3.0, 1.0], "b": [1.0, 2.0]}),
        "both": pd.DataFrame({"a": [1, 2], "b": ["2", "x"]}),
    }
    found = {}
    for name, frame in frames.items():
        frame.to_parquet(path := tmp_path / f"{name}.parquet")
        graph = load_graph(path)
        found[name] = graph.names.tolist(), graph.edges.tolist()
        assert found[name] == (load_graph(frame).names.tolist(), load_graph(frame).edges.tolist())
    assert found["small"] == (["1", "2", "3"], [[0, 1], [0, 2]])
    assert found["texts"] == (["x", "y"], [[0, 1]])


@pytest.mark.parametrize(
    ("columns", "how", "said"),
    [
        ({"a": [1]}, {}, "one column or none"),
        ({"a": ["x", None], "b": ["y", "z"]}, {}, "row 2 names only one node"),
        ({"a": ["x", " "], "b": ["y", "z"]}, {}, "row 2 names only one node"),
        ({"a": [1, 2], "b": [2, 3]}, {"weighted": True}, "no third column for weights"),
        ({"a": [1, 2], "b": [2, 3], "weight": [1.0, -2.0]}, {"weighted": True}, "row 2 has weight -2"),
        ({"a": [1, 2], "b": [2, 3]}, {"header": True}, "which alone has a header"),
    ],
)
@pytest.mark.usefixtures("_pyarrow")
def test_parquet_that_is_refused(columns, how, said, tmp_path):
    pd.DataFrame(columns).to_parquet(path := tmp_path / "edges.parquet")
    with pytest.raises(CurvaeError, match=said):
        load_graph(path, **how)


@pytest.mark.usefixtures("_pyarrow")
def test_broken_parquet_is_refused(tmp_path):
    (path := tmp_path / "edges.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(CurvaeError, match="cannot be read as Parquet"):
        load_graph(path)


@pytest.mark.parametrize("scale", [1, 10**6])
@pytest.mark.usefixtures("_pyarrow")
def test_codes_of_numbers(scale):
    numbers = np.random.default_rng(0).integers(-50, 50, (2, 300)) * scale
    names, codes = reading.code_nodes(*map(pd.Series, numbers))
    assert sorted(map(int, names)) == np.unique(numbers).tolist()
    assert codes.dtype.itemsize == 1
    assert np.array_equal(names[codes], numbers.astype(str))


@pytest.mark.usefixtures("_pyarrow")
def test_a_large_file_is_not_looped_over(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LARGE", 0)
    looked = []
    look = reading._Lines
    monkeypatch.setattr(reading, "_Lines", lambda file, whole=True: looked.append(whole) or look(file, whole))
    Path(path := tmp_path / "edges.csv").write_text("".join(f"{i},{i + 1}\n" for i in range(500)))
    assert load_graph(path).n_edges == 500
    assert looked == [False]


# --- loading by name and format --------------------------------------------------------------------------------------


# --- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_all_forms_of_one_graph_agree(tmp_path: Path, weighted: bool) -> None:
    oracle = nx.relabel_nodes(random_graph(), lambda node: node + 1)
    oracle.remove_nodes_from(list(nx.isolates(oracle)))
    oracle = nx.convert_node_labels_to_integers(oracle, 1)
    matrix = nx.to_scipy_sparse_array(oracle)
    nx.write_weighted_edgelist(oracle, tmp_path / "g.edges")
    nx.write_weighted_edgelist(oracle, tmp_path / "g.csv.gz", delimiter=",")
    nx.write_graphml(oracle, tmp_path / "g.graphml")
    nx.write_graphml(nx.to_directed(oracle), tmp_path / "d.graphml.gz")
    scipy.io.mmwrite(tmp_path / "g.mtx", matrix)
    (tmp_path / "g.mtx.gz").write_bytes(gzip.compress((tmp_path / "g.mtx").read_bytes()))
    (tmp_path / "market.txt").write_bytes((tmp_path / "g.mtx").read_bytes())
    scipy.io.mmwrite(tmp_path / "general.mtx", matrix, symmetry="general")
    frame = nx.to_pandas_edgelist(oracle)
    files = ["g.edges", "g.csv.gz", "g.graphml", "d.graphml.gz", "g.mtx", "g.mtx.gz", "market.txt", "general.mtx"]
    sources = {name: tmp_path / name for name in files} | {
        "networkx": oracle,
        "both ways": nx.to_directed(oracle),
        "multi": nx.MultiGraph(oracle),
        "frame": frame,
        "frame, other order": frame[["weight", "target", "source"]],
    }
    if not weighted:
        sources |= {
            "pairs": np.array(oracle.edges()),
            "list": list(oracle.edges()),
            "floats": np.array(oracle.edges(), float),
        }
    expected = np.array([[data["weight"] for *_, data in sorted(oracle.edges(data=True))]])
    for name, source in sources.items():
        graph = load_graph(source, weighted=weighted)
        assert graph.names.tolist() == [str(i) for i in range(1, len(oracle) + 1)], name
        assert (graph.edges + 1).tolist() == sorted([min(pair), max(pair)] for pair in oracle.edges()), name
        if weighted:
            np.testing.assert_allclose(graph.weights, expected[0], rtol=1e-14, err_msg=name)
        assert graph.warnings == () and (weighted or graph.weights is None)
        assert not any("self loop" in note for note in graph.notes), name  # nor the sizes of a matrix


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix])
def test_sparse_matrices(tmp_path: Path, make: Any) -> None:
    oracle = random_graph(30, 20)
    matrix = make(nx.to_scipy_sparse_array(oracle))
    graph = load_graph(matrix, weighted=True)
    assert graph.names.tolist() == [str(i) for i in range(30)]  # also those without an edge
    np.testing.assert_array_equal(graph.adjacency().toarray(), nx.to_numpy_array(oracle))
    sp.save_npz(tmp_path / "g.npz", sp.csr_array(matrix))
    assert load_graph(tmp_path / "g.npz", weighted=True).fingerprint == graph.fingerprint
    unweighted = load_graph(matrix)
    assert unweighted.notes[0] == "weights were left out; use `weighted=True` to read them."
    np.testing.assert_array_equal(unweighted.adjacency().toarray(), nx.to_numpy_array(oracle) > 0)


def test_matrices_of_other_shapes() -> None:
    upper = sp.csr_array([[0, 1, 0], [0, 0, -2], [0, 0, 0]])
    graph = load_graph(upper)
    assert graph.edges.tolist() == [[0, 1], [1, 2]] and graph.notes[1] == (
        "directions were left out: 2 arcs became 2 edges."
    )
    stored_zero = sp.csr_array((np.array([1.0, 0.0]), (np.array([0, 1]), np.array([1, 2]))), shape=(3, 3))
    assert load_graph(stored_zero).n_edges == 1
    both = load_graph(sp.csr_array([[5, 1.0, 0], [2, 0, 4], [0, 4, 0]]), weighted=True)
    assert both.weights is not None and both.weights.tolist() == [3, 8] and "1 self loop" in both.notes[0]
    assert "2 pairs ran both ways, weights summed" in both.notes[1]
    # Values differ and are left out: the graph has no directions.
    assert not any("direction" in note for note in load_graph(sp.csr_array([[0, 1], [2, 0]])).notes)


def test_matrix_market_counts_from_1(tmp_path: Path) -> None:
    write(tmp_path, "%%MatrixMarket matrix coordinate pattern symmetric\n%\n3 3 2\n2 1\n3 2\n", "g.mtx")
    graph = load_graph(tmp_path / "g.mtx")
    assert graph.names.tolist() == ["1", "2", "3"] and graph.edges.tolist() == [[0, 1], [1, 2]] and graph.notes == ()


def test_networkx_of_every_kind() -> None:
    multi = nx.MultiDiGraph([("a", "b"), ("a", "b"), ("b", "a"), ("b", 3)])
    graph = load_graph(multi)
    assert graph.names.tolist() == ["a", "b", "3"] and graph.notes == (
        "merged: 1 repeated edge.",
        "directions were left out: 3 arcs became 2 edges; 1 pair ran both ways.",
    )
    alone = nx.path_graph(3)
    alone.add_node("x")
    assert load_graph(alone).names.tolist() == ["0", "1", "2", "x"]


def test_pairs() -> None:
    assert load_graph(np.array([[7, 3], [3, 5]], dtype=np.uint8)).names.tolist() == ["3", "5", "7"]
    assert load_graph([("b", "a"), ("a", 1)]).names.tolist() == ["b", "a", "1"]
    assert load_graph(np.array([["b", "a"], ["a", None]], dtype=object)[:1]).names.tolist() == ["b", "a"]


# --- GraphML ----------------------------------------------------------------------------------------------------------

HEAD = '<?xml version="1.0"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'


KEYS = (
    '<key id="d0" for="node" attr.name="type" attr.type="string"><default>none</default></key>\n'
    '<key id="d1" for="node" attr.name="size" attr.type="double"/>\n'
    '<key id="d2" for="edge" attr.name="weight" attr.type="double"><default>2</default></key>\n'
)


BODY = (
    '<graph edgedefault="undirected"><desc>x</desc>\n'
    '<node id="a"><data key="d0">u &amp; v</data><data key="d1">1.5</data></node>\n'
    '<node id="b"><data key="d1">2</data></node>\n'
    '<node id="c"><data key="d1"><s:Shape xmlns:s="s"><s:Label>no</s:Label></s:Shape>3</data></node>\n'
    '<edge source="a" target="b"/>\n'
    '<edge source="c" target="b"><data key="d2">0.5</data></edge>\n'
    "</graph></graphml>\n"
)


def test_graphml(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + KEYS + BODY, "g.graphml")
    graph = load_graph(path, label="type", features=["size"], weighted=True)
    assert graph.names.tolist() == ["a", "b", "c"] and graph.label_name == "type"
    assert graph.labels is not None and graph.labels.tolist() == ["u & v", "none", "none"]
    np.testing.assert_array_equal(graph.features, [[1.5], [2], [3]])
    assert weights(graph) == {frozenset("ab"): 2, frozenset("bc"): 0.5} and graph.notes == ()
    assert load_graph(path).notes == ("weights were left out; use `weighted=True` to read them.",)
    bare = (HEAD + KEYS + BODY).replace(' xmlns="http://graphml.graphdrawing.org/xmlns"', "")
    assert (
        load_graph(write(tmp_path, bare, "g.xml"), weighted=True).fingerprint
        == load_graph(path, weighted=True).fingerprint
    )


def test_graphml_against_networkx(tmp_path: Path) -> None:
    oracle = random_graph()
    for node, data in oracle.nodes(data=True):
        data.update(kind="xyz"[node % 3], size=node / 3, even=node % 2 == 0, rank=node)
    nx.write_graphml(oracle, tmp_path / "g.graphml")
    features = ["rank", "size", "even"]
    stored = load_graph(tmp_path / "g.graphml", label="kind", features=features, weighted=True)
    direct = load_graph(oracle, label="kind", features=features, weighted=True)
    assert stored.fingerprint == direct.fingerprint
    assert stored.labels is not None and stored.labels.tolist() == ["xyz"[node % 3] for node in oracle]
    np.testing.assert_array_equal(stored.features, [[i, i / 3, i % 2 == 0] for i in range(len(oracle))])
    assert any("true and false became 1 and 0: 'even'" in note for note in stored.notes)


def test_graphml_of_drawing_programs(tmp_path: Path) -> None:
    """Ports, labels in elements of another namespace, values that are not of their type, and edges with equal ids."""
    space = "http://www.yworks.com/xml/graphml"
    keys = (
        '<key id="d3" for="node" yfiles.type="nodegraphics"/>\n<key id="d4" for="edge" attr.name="weight"/>\n'
        '<key id="d5" for="node" attr.name="age" attr.type="int"><default/></key>\n'
    )
    shape = f'<y:ShapeNode xmlns:y="{space}"><y:NodeLabel>leaf</y:NodeLabel></y:ShapeNode>'
    body = (
        '<graph><node id=" a "><port name="p"/><data key="d3">' + shape + '</data><data key="d5"> 7.5 </data></node>\n'
        '<node id="b"><data key="d5">NA</data></node><node id="c"/>\n'
        '<edge id="e" source="a" target="b"><data key="d4">1</data></edge>\n'
        '<edge id="e" source="a" target="b"><data key="d4">2</data></edge>\n'
        '<edge id="e" source="b" target="c" directed="false"><data key="d4">4</data></edge></graph></graphml>\n'
    )
    path = write(tmp_path, HEAD + keys + body, "g.graphml")
    graph = load_graph(path, label="label", features=["age"], missing="mean", weighted=True)
    assert graph.names.tolist() == ["a", "b", "c"]
    assert graph.labels is not None and graph.labels.tolist() == ["leaf", "", ""]
    np.testing.assert_array_equal(graph.features, [[7.5], [7.5], [7.5]])
    assert weights(graph) == {frozenset("ab"): 3, frozenset("bc"): 4}


def test_a_graphml_file_too_large_is_refused_while_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "g.graphml.gz").write_bytes(gzip.compress((HEAD + BODY).encode() + b" " * 2**24))
    monkeypatch.setattr("curvae.data.memory.available", lambda: 2**26)
    monkeypatch.setattr("curvae.data.graph_reading.ElementTree.XMLParser", lambda **_: pytest.fail("parsed"))
    assert "GB of memory" in refusal(tmp_path / "g.graphml.gz")


def test_graphml_with_directed_edges(tmp_path: Path) -> None:
    directed = load_graph(write(tmp_path, HEAD + BODY.replace('"undirected"', '"directed"'), "g.graphml"))
    single = load_graph(
        write(tmp_path, HEAD + BODY.replace('target="b"/>', 'target="b" directed="true"/>'), "g.graphml")
    )
    for graph in (directed, single):
        assert graph.notes == ("directions were left out: 2 arcs became 2 edges.",)


def test_the_order_of_undirected_edges_says_nothing(tmp_path: Path) -> None:
    again = BODY.replace(
        "</graph>", '<edge source="b" target="a"/><edge source="b" target="c"><data key="d2">.5</data></edge></graph>'
    )
    graph = load_graph(write(tmp_path, HEAD + KEYS + again, "g.graphml"), weighted=True)
    assert weights(graph) == {frozenset("ab"): 4, frozenset("bc"): 1}
    assert graph.notes == ("merged: 2 repeated edges, weights summed.",)


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (HEAD.replace("\n<graphml", f"\n{BOMB}<graphml") + BODY, "has a document type"),
        (HEAD.replace("\n<graphml", '\n<!DOCTYPE x SYSTEM "file:///etc/hosts"><graphml') + BODY, "has a document type"),
        ("<gexf><graph/></gexf>", "<gexf> instead of <graphml>"),
        (HEAD + BODY[:-20], "cannot be read as GraphML"),
        (HEAD + "<graph></edge></graphml>", "mismatched tag"),
        ("", "cannot be read as GraphML: no element found"),
        (HEAD.replace('"1.0"', '"1.0" encoding="none"') + BODY, "cannot be read as GraphML"),
        (HEAD + BODY.replace('id="b"', 'id="a"'), "several nodes 'a'"),
        (HEAD + BODY.replace('<node id="b">', "<node>"), "<node> number 2 has no 'id'"),
        (HEAD + BODY.replace('target="b"', 'target="z"', 1), "nodes that it does not list: 'z'"),
        (HEAD + BODY.replace("</graph>", "</graph><graph/>"), "has 2 graphs"),
        (HEAD + BODY.replace("</graph>", "<hyperedge/></graph>"), "hyperedge"),
        (HEAD + "<graph><node id='a'/></graph></graphml>", "no edges"),
        (HEAD + "</graphml>", "has 0 graphs"),
    ],
    ids=[
        "entities",
        "external",
        "other",
        "cut off",
        "mismatch",
        "empty",
        "encoding",
        "twice",
        "no id",
        "unlisted",
        "two graphs",
        "hyperedge",
        "one node",
        "no graph",
    ],
)
def test_broken_graphml_is_refused(tmp_path: Path, content: str, part: str) -> None:
    assert part in refusal(write(tmp_path, content, "g.graphml"))


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("0.5", "much", "the edge of 'b', 'c' has weight 'much'"),
        ("0.5", "-1", "the edge of 'b', 'c' has weight -1"),
        ("0.5", "nan", "the edge of 'b', 'c' has weight 'nan'"),
        ("<default>2</default>", "", "the edge of 'a', 'b' has no weight"),
    ],
)
def test_wrong_weights_of_graphml_are_refused(tmp_path: Path, old: str, new: str, part: str) -> None:
    path = write(
        tmp_path,
        HEAD + KEYS + BODY.replace(old, new) if old in BODY else HEAD + KEYS.replace(old, new) + BODY,
        "g.graphml",
    )
    assert part in refusal(path, weighted=True)


# --- torch-geometric --------------------------------------------------------------------------------------------------


def test_torch_geometric() -> None:
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data")
    links = torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]])
    x, y = torch.arange(10.0).reshape(5, 2), torch.tensor([0, 1, 1, 0, 2])
    source = data.Data(edge_index=links, x=x, y=y, edge_attr=torch.tensor([[2.0], [2.0], [3.0], [3.0], [1.0]]))
    graph = load_graph(source)
    assert graph.names.tolist() == ["0", "1", "2", "3", "4"] and graph.edges.tolist() == [[0, 1], [1, 2]]
    np.testing.assert_array_equal(graph.features, x.numpy())
    assert graph.feature_names == ("x1", "x2") and graph.label_name == "y"
    assert graph.labels is not None and graph.labels.tolist() == ["0", "1", "1", "0", "2"]
    assert graph.notes[:2] == ("weights were left out; use `weighted=True` to read them.", "left out: 1 self loop.")
    weighted = load_graph(source, weighted=True)
    assert weighted.weights is not None and weighted.weights.tolist() == [2, 3]
    bare = data.Data(edge_index=links[:, :4], num_nodes=4, y=torch.zeros(1))
    assert "y was left out because it does not have one label per node." in load_graph(bare).notes
    assert load_graph(bare).features is None and load_graph(bare).n_nodes == 4
    assert "no edge_weight" in refusal(bare, weighted=True)
    assert "3 nodes and an edge to node 3" in refusal(data.Data(edge_index=links, num_nodes=3))
    table = pd.DataFrame({"node": range(6), "size": np.arange(6.0)})
    assert "leave out `isolated=True`" in refusal(source, nodes=table, isolated=True)
    assert "type HeteroData" in refusal(data.HeteroData())


# --- objects refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "options", "part"),
    [
        (np.zeros((3, 4)), {}, "shape (3, 4); give a file"),
        (np.eye(4), {}, "convert an adjacency matrix to a scipy.sparse.csr_array"),
        (np.array([[0.5, 1]]), {}, "holds float64; give whole numbers or texts"),
        (np.array([[True, False]]), {}, "holds bool"),
        (np.array([["a", None]], dtype=object), {}, "row 1 names only one node"),
        ([], {}, "has no edges"),
        ([("a", "b"), ("c",)], {}, "type list cannot be read; give a file"),
        (3, {}, "type int has shape ()"),
        (None, {}, "type NoneType has shape ()"),
        ([("a", "b")], {"weighted": True}, "has no weights"),
        (sp.csr_array((3, 4)), {}, "3 × 4; give a square matrix"),
        (sp.csr_array((3, 3)), {}, "has no edges"),
        (sp.eye_array(3), {}, "has no edges between different nodes"),
        (sp.csr_array([[0, 1j], [1, 0]]), {}, "not real numbers"),
        (sp.csr_array([[0, np.nan], [1, 0]]), {}, "missing or infinite"),
        (sp.csr_array([[0, -2.0], [-2.0, 0]]), {"weighted": True}, "the edge of '0', '1' has weight -2"),
        (nx.Graph(), {}, "has no edges"),
        (nx.empty_graph(1), {}, "has no edges"),
        (nx.Graph([(1, "1")]), {}, "print alike"),
        (nx.path_graph(3), {"weighted": True}, "has no weight"),
        (nx.Graph([(1, 2, {"weight": "much"})]), {"weighted": True}, "weight 'much'"),
        (nx.Graph([(1, 2, {"weight": -1})]), {"weighted": True}, "the edge of '1', '2' has weight -1"),
        (pd.DataFrame({"a": [1, 2]}), {}, "one column or none"),
        (pd.DataFrame({"a": ["x", "y"], "b": ["y", None]}), {}, "row 2 names only one node"),
        (pd.DataFrame({"a": ["x", "y"], "b": ["y", "z"], "c": [1, 0]}), {"weighted": True}, "row 2 has weight 0"),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), {"weighted": True}, "no third column"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() else "",
)
def test_objects_refused(source: Any, options: dict[str, Any], part: str) -> None:
    assert part in refusal(source, **options)


# --- graphs of the paper ----------------------------------------------------------------------------------------------

SIZES = {"phylogenetic": (344, 343), "csphd": (1025, 1043), "diseases": (516, 1188)}


@pytest.mark.skipif("CURVAE_DATA" not in os.environ, reason="needs the graphs in CURVAE_DATA")
@pytest.mark.parametrize("name", SIZES)
def test_graphs_of_the_paper(name: str) -> None:
    graph = load_graph(name)
    assert (graph.n_nodes, graph.n_edges) == SIZES[name] and graph.components.max() == 0
    assert graph.names.tolist() == [str(i) for i in range(graph.n_nodes)]
    assert graph.notes == graph.warnings == ()
    document = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert graph.fingerprint in document and f"{graph.n_nodes:,}" in document


def test_graphs_are_looked_for_then_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CURVAE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert "graph csphd is neither in CURVAE_DATA nor in" in refusal("csphd")
    fetched: list[tuple[str, str]] = []

    def retrieve(address: str, known_hash: str, fname: str, path: Path) -> None:
        fetched.append((address, known_hash))
        path.mkdir(parents=True, exist_ok=True)
        write(path, PLAIN, fname)

    monkeypatch.setitem(sys.modules, "pooch", types.SimpleNamespace(retrieve=retrieve))  # type: ignore[arg-type]
    plain = load_graph(write(tmp_path, PLAIN)).fingerprint
    assert load_graph("csphd").fingerprint == plain and load_graph("csphd").fingerprint == plain
    ((address, checksum),) = fetched
    assert address.startswith("https://") and address.endswith("/ca-CSphd.edges")
    assert re.fullmatch("sha256:[0-9a-f]{64}", checksum)
    (tmp_path / "data" / "graphs").mkdir(parents=True)
    write(tmp_path / "data" / "graphs", gzip.compress(PEOPLE.encode()), "ca-CSphd.edges.gz")
    assert load_graph("csphd").names[0] == "ann"  # CURVAE_DATA before the cache, packed or not
    write(tmp_path, "a b\n", "csphd")
    assert load_graph("csphd").n_nodes == 2  # what lies on disk comes first

    def fail(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setitem(sys.modules, "pooch", types.SimpleNamespace(retrieve=fail))  # type: ignore[arg-type]
    message = refusal("diseases")
    assert "no network" in message and "put bio-diseasome.edges into a folder 'graphs'" in message


def test_the_checksums_are_those_of_the_document() -> None:
    from curvae.data.graph_reading import BUILT_IN_GRAPHS

    document = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for name, (_, file, checksum) in BUILT_IN_GRAPHS.items():
        assert f"`{name}`" in document and f"| `{file}` |" in document and checksum in document


def test_a_format_of_graphs_is_registered_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = np.array([[0, 1]])
    monkeypatch.setitem(GRAPH_FILES, ".gml", lambda path, weighted: RawGraph(path.name, np.array(["a", "b"]), links))
    for name in ("g.GML", "g.gml.gz"):
        path = tmp_path / name
        path.write_bytes(b"anything")
        assert load_graph(path).names.tolist() == ["a", "b"]
        with pytest.raises(CurvaeError, match="is a graph; use load_graph"):
            load(path)
