"""The map of a graph is there before edges are hidden, and what is advised after it fits the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curvae.runs import graph_run
from running import curvae

QUICK = ("--set", "hidden=4", "--epochs", "3", "--jobs", "1")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("g.csv").write_text("".join(f"n{(i - 1) // 2},n{i}\n" for i in range(1, 41)), encoding="utf-8")


def test_the_map_is_written_before_edges_are_hidden(monkeypatch):
    there = {}
    fit = graph_run.fit_graphs

    def seen(*words, **how):
        there.update({file.name: file.read_bytes() for file in Path("r").iterdir() if file.is_file()})
        return fit(*words, **how)

    monkeypatch.setattr(graph_run, "fit_graphs", seen)
    found = curvae("graph", "g.csv", "-o", "r", "--splits", "2", *QUICK)
    assert found.code == 0 and "the map is in r" in found.err
    for name in ("embedding.csv", "map.png"):
        assert there[name] == Path("r", name).read_bytes()
    assert there["map.png"][:4] == b"\x89PNG" and "report.html" not in there


def test_a_reconstruction_advises_a_comparison_that_can_place_nodes():
    found = curvae("graph", "g.csv", "-o", "r", "--reconstruct", *QUICK)
    assert (
        found.code == 0 and json.loads(Path("r", "config.json").read_text())["config"]["networks"]["encoder"] == "free"
    )
    report = Path("r", "report.html").read_text(encoding="utf-8")
    assert "compare" in report and "encoder=" not in report + found.out


@pytest.mark.parametrize(("words", "advice"), [((), "encoder="), (("--set", "pairs=all"), "a larger weight")])
def test_a_map_that_shows_few_edges_says_what_helps(words, advice, monkeypatch):
    monkeypatch.setattr(graph_run, "_FAITHFUL", 1.1)  # too few, however many
    found = curvae("graph", "g.csv", "-o", "r", "--splits", "0", *words, *QUICK)
    warned = json.loads(Path("r", "config.json").read_text())["summary"]["warnings"]
    assert found.code == 0 and any("shows few of the edges" in text and advice in text for text in warned), warned
