"""Graphs in the files and objects of other programs, and by name."""

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

from curvae.data import load, load_graph
from curvae.data.graphs.graph_loading import GRAPH_FILES
from curvae.data.graphs.raw_graph import RawGraph
from curvae.errors import CurvaeError
from paths import ROOT
from reading import PEOPLE, PLAIN, random_graph, weights, write
from reading import graph_refusal as refusal

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
    assert unweighted.notes[0] == "weights were left out; use weighted=True to read them."
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
    assert load_graph(path).notes == ("weights were left out; use weighted=True to read them.",)
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
    monkeypatch.setattr("curvae.data.graphs.edgelist.ElementTree.XMLParser", lambda **_: pytest.fail("parsed"))
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
    assert graph.notes[:2] == ("weights were left out; use weighted=True to read them.", "left out: 1 self loop.")
    weighted = load_graph(source, weighted=True)
    assert weighted.weights is not None and weighted.weights.tolist() == [2, 3]
    bare = data.Data(edge_index=links[:, :4], num_nodes=4, y=torch.zeros(1))
    assert "y was left out because it does not have one label per node." in load_graph(bare).notes
    assert load_graph(bare).features is None and load_graph(bare).n_nodes == 4
    assert "no edge_weight" in refusal(bare, weighted=True)
    assert "3 nodes and an edge to node 3" in refusal(data.Data(edge_index=links, num_nodes=3))
    table = pd.DataFrame({"node": range(6), "size": np.arange(6.0)})
    assert "leave out isolated=True" in refusal(source, nodes=table, isolated=True)
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
    from curvae.data.graphs.graph_loading import BUILT_IN_GRAPHS

    document = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for name, published in BUILT_IN_GRAPHS.items():
        assert f"`{name}`" in document and f"| `{published.file}` |" in document and published.checksum in document


def test_a_format_of_graphs_is_registered_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = np.array([[0, 1]])
    monkeypatch.setitem(GRAPH_FILES, ".gml", lambda path, weighted: RawGraph(path.name, np.array(["a", "b"]), links))
    for name in ("g.GML", "g.gml.gz"):
        path = tmp_path / name
        path.write_bytes(b"anything")
        assert load_graph(path).names.tolist() == ["a", "b"]
        with pytest.raises(CurvaeError, match="is a graph; use load_graph"):
            load(path)
