"""The benchmark of large graphs, in small."""

import json
import sys

import numpy as np
from benchmarks import graph_scale

from curvae.data import Graph


def test_edges_are_a_graph_with_hubs():
    ends = graph_scale.edges_made(500, 3000).T.contiguous().numpy()
    graph = Graph(np.arange(500).astype(str), ends)  # which checks order and repeats
    assert graph.n_edges == 3000
    degree = np.bincount(ends.ravel())
    assert degree.max() > 10 * np.median(degree)


def test_figures_are_added_to_the_file(tmp_path, monkeypatch, capsys):
    file = tmp_path / "found.json"
    file.write_text('{"reading": []}')
    monkeypatch.setattr(
        graph_scale,
        "_apart",
        lambda what, argument, device, seconds: graph_scale.one(what, str(argument), device, seconds),
    )
    words = ["graph_scale", "cuda", str(file), "--edges", "600", "--seconds", "0.1", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", words)
    graph_scale.main()
    found = json.loads(file.read_text())
    assert found["reading"] == []
    assert [row["edges"] for row in found["cuda"]] == [600]
    row = found["cuda"][0]
    assert 0 <= row["auc"] <= 1
    assert json.loads(capsys.readouterr().out)["edges"] == 600
    assert "| CPU | 60 | 600 |" in graph_scale.table(found)
