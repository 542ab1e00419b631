"""The census of graphs: cells that can be interrupted, and figures that are what they are called."""

from __future__ import annotations

import gzip
import json
import sys

import networkx as nx
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from curvae.data import load_graph, split_edges
from curvae.training import GraphConfig
from paths import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks import census_graphs, graph_census as census


@pytest.fixture
def small(monkeypatch):
    """A short training of our own models."""
    monkeypatch.setattr(census, "GraphConfig", lambda **how: GraphConfig(**how, epochs=2, hidden=(4,)))


@pytest.fixture
def graphs(tmp_path):
    """A folder of some graphs of the census."""
    for name in ("karate", "miserables", "davis"):
        edges = census_graphs.SOURCES[name](census_graphs.Places(tmp_path, tmp_path))
        text = "".join(f"{a},{b}\n" for a, b in edges)
        (tmp_path / f"{name}.edges.csv.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def test_figures_are_those_of_the_hidden_edges(graphs):
    graph = load_graph(graphs / "miserables.edges.csv.gz", header=False)
    split = split_edges(graph, seed=1)
    found = census.compute(census.Cell("miserables", "common neighbours", 2, 1), graphs)
    seen = nx.Graph(split.train.tolist())
    seen.add_nodes_from(range(graph.n_nodes))
    pairs = np.concatenate([split.test, split.test_absent]).tolist()
    scores = [len(list(nx.common_neighbors(seen, a, b))) for a, b in pairs]
    truth = np.repeat([1, 0], len(split.test))
    assert found["auc"] == pytest.approx(roc_auc_score(truth, scores))
    assert found["ap"] == pytest.approx(average_precision_score(truth, scores))
    assert 0 <= found["auc_matched"] <= 1 and found["cpu_seconds"] >= 0


def test_a_census_goes_on_where_it_was(tmp_path, graphs, small, monkeypatch, capsys):
    out = tmp_path / "graphs.json"
    words = [str(graphs), "--graphs", "karate", "--dims", "2,3", "--splits", "2", "--out", str(out)]
    methods = ["--methods", "degree product,singular vectors,spectral,ball,plane,node2vec"]
    census.main([*words, *methods])
    assert "left out: node2vec" in capsys.readouterr().err
    found = json.loads(out.read_text())["graphs"]["karate"]
    assert found["half"] == "choice" and (found["nodes"], found["edges"]) == (34, 78)
    assert set(found["methods"]) == {"degree product", "singular vectors", "spectral", "ball", "plane"}
    assert set(found["methods"]["degree product"]) == {"2"} and set(found["methods"]["ball"]) == {"2", "3"}
    place = found["methods"]["ball"]["3"]
    values = [place["splits"][str(k)]["auc"] for k in (0, 1)]
    assert place["mean"]["auc"][0] == pytest.approx(np.mean(values))
    cell = tmp_path / "graphs.cells" / "karate-ball-3-1.json"
    cell.unlink()
    asked, figures = [], dict.fromkeys(place["mean"], 0.25)
    monkeypatch.setattr(census, "compute", lambda cell, folder, rivals: asked.append(cell) or figures)
    census.main([*words, "--methods", "degree product,singular vectors,spectral,ball,plane"])
    assert asked == [census.Cell("karate", "ball", 3, 1)]


def test_which_cells_there_are():
    every = list(census.cells(list(census.GRAPHS), list(census.METHODS), census.DIMS, 10))
    assert len({cell.name for cell in every}) == len(every)
    featured = {cell.method for cell in every if cell.graph == "cora+features"}
    assert featured == {"vgae", "ball", "plane"}
    assert {cell.graph for cell in every if cell.split == census.WHOLE} == {"phylogenetic", "mammals", "birds"}
    halves = {source.half for source in census.GRAPHS.values()}
    assert halves == {"choice", "verdict"}


def test_nearness_in_the_ball_and_neighbourhoods():
    places = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, -0.9]])
    found = census._ball_nearness(places)(np.array([[0, 1], [0, 2], [1, 2]]))
    expected = [2 * np.arctanh(0.5), 2 * np.arctanh(0.9)]
    np.testing.assert_allclose(-found[:2], expected)
    path = load_graph(nx.path_graph(4))
    line = np.arange(4.0)
    near = census._neighbourhoods(path, lambda pairs: -abs(line[pairs[:, 0]] - line[pairs[:, 1]]))
    assert near == {"map": 1.0, "rank": 1.0}


def test_no_cell_is_begun_after_the_time_is_up_and_graphs_may_be_missing(tmp_path, graphs, capsys):
    out = tmp_path / "graphs.json"
    words = [str(graphs), "--methods", "degree product", "--splits", "2", "--out", str(out), "--graphs", "davis,grid"]
    census.main([*words, "--seconds", "0"])
    assert not json.loads(out.read_text())["graphs"]
    census.main(words)
    found = json.loads(out.read_text())["graphs"]
    assert list(found) == ["davis"] and len(found["davis"]["methods"]["degree product"]["2"]["splits"]) == 2
    assert "left out: grid" in capsys.readouterr().err


def test_edges_between_packages_of_a_kind(tmp_path):
    file = tmp_path / "packages.txt"
    file.write_text(
        "Package: python3-a\nDepends: python3-b (>= 2), libc6, python3-c | other\n\nPackage: b\nDepends: python3-a\n"
    )
    found = census_graphs.SOURCES["python_packages"](census_graphs.Places(tmp_path, file))
    assert list(found) == [("python3-a", "python3-b"), ("python3-a", "python3-c")]
