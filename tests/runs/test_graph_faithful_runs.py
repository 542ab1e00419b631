"""Reports of graph runs, and `evaluate`, say how faithful the map is."""

import html
from pathlib import Path

import pandas as pd
import pytest

from curvae.data import load_graph
from curvae.hierarchy import graph_faithfulness
from running import config, curvae

TREE = [(f"n{(i - 1) // 2}", f"n{i}") for i in range(1, 31)]


@pytest.fixture
def trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def train(edges):
        Path("t.csv").write_text("".join(f"{a},{b}\n" for a, b in edges), encoding="utf-8")
        return curvae("graph", "t.csv", "--set", "hidden=4", "--epochs", "3", "--splits", "0", "-o", "run")

    return train


def test_figures_are_those_of_the_map(trained):
    said = trained(TREE)
    table = pd.read_csv("run/embedding.csv")
    graph = load_graph(TREE)
    place = {name: i for i, name in enumerate(table["id"])}
    ball = table[["ball_1", "ball_2"]].to_numpy()[[place[name] for name in graph.names]]
    expected = graph_faithfulness(graph, ball, distance="poincare").to_json()
    found, verdict = config()["summary"]["faithfulness"], expected["verdict"]
    for name in ("map", "spectral"):
        for figure in ("qlocal", "qglobal", "rank_correlation"):
            assert found[name][figure] == pytest.approx(expected[name][figure], abs=1e-9)
    assert found["verdict"] == verdict
    assert verdict in " ".join(said.err.split())
    page = html.unescape(Path("run/report.html").read_text(encoding="utf-8"))
    assert "How faithful is the map?" in page and page.count(verdict) == 2  # the sentence at the top, and its section
    assert f"{found['spectral']['qlocal']:.3f}" in page
    assert curvae("evaluate", "run", "t.csv", "--json").json["faithfulness"]["map"] == found["map"]
    assert verdict in curvae("evaluate", "run", "t.csv").out


def test_graphs_that_are_too_small(trained):
    said = trained(TREE[:6])
    assert config()["summary"]["faithfulness"] is None
    assert "The map keeps" not in said.err
    assert "too few to judge a map" in Path("run/report.html").read_text(encoding="utf-8")
    assert curvae("evaluate", "run", "t.csv", "--json").json["faithfulness"] is None
