"""Runs on directed graphs, from the command line and from the estimator."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from curvae import PoincareGraphVAE
from curvae.data import load_graph
from curvae.errors import CurvaeError
from curvae.training.graph_problem import FittedGraph
from curvae.training.storage import load_fitted
from running import config, curvae, refused, settings

QUICK = ("--set", "hidden=4", "--epochs", "3", "--jobs", "1")


def needs(nodes: int = 24) -> list[tuple[str, str]]:
    random = np.random.default_rng(0)
    return sorted({(f"p{k}", f"p{int(k * random.random() ** 2)}") for k in range(1, nodes) for _ in range(3)})


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = "".join(f"{a},{b},{1 + i % 3}\n" for i, (a, b) in enumerate(needs()))
    Path("needs.csv").write_text("package,depends,weight\n" + lines)


def test_a_directed_run(tmp_path):
    found = curvae("graph", "needs.csv", "--directed", "--weighted", "--splits", "2", "-o", "run", *QUICK)
    assert found.code == 0, found.err
    assert "edges lead from 'package' to 'depends'." in found.err and "The direction is right for" in found.err
    stored, summary = settings(), config()["summary"]
    assert stored["directed"] and config()["data"]["directed"]
    rows = [split["test"]["direction"] for split in summary["splits"]]
    assert summary["direction"] == pytest.approx(np.mean(rows))
    assert "direction" in summary["baselines"]["degree product"]
    page = Path("run/report.html").read_text(encoding="utf-8")
    for text in ("direction of hidden edges", "popularity as a receiver", "Weights are intensities"):
        assert text in page, text
    assert "--set directed=yes" in re.search("<pre>curvae compare [^<]*", page)[0]
    graph = load_fitted(Path("run"), FittedGraph).data
    assert {tuple(edge) for edge in graph.names[graph.edges].tolist()} == set(needs())

    # The same nodes and edges are placed where they were; edges back are others.
    assert curvae("embed", "run", "needs.csv", "-o", "again.csv", "-q").code == 0
    before, again = pd.read_csv("run/embedding.csv"), pd.read_csv("again.csv").set_index("id")
    columns = ["ball_1", "ball_2", "popularity_out", "popularity_in"]
    np.testing.assert_allclose(again.loc[before["id"], columns], before[columns], rtol=1e-6, atol=1e-9)
    Path("back.csv").write_text("".join(f"{b},{a}\n" for a, b in needs()))
    judged = [curvae("evaluate", "run", name, "--json").json for name in ("needs.csv", "back.csv")]
    assert [set(one["parts"]) for one in judged] == [{"train"}, {"new"}]
    assert judged[0]["parts"]["train"]["edges"] == judged[1]["parts"]["new"]["edges"] == len(needs())
    reach = before.set_index("id")[columns[2:]].to_numpy()
    place = {name: i for i, name in enumerate(before["id"])}
    level = reach[:, 0] - reach[:, 1]
    right = np.mean([level[place[a]] > level[place[b]] for a, b in needs()])
    assert judged[0]["parts"]["train"]["direction"] == pytest.approx(right)
    assert judged[1]["parts"]["new"]["direction"] is None  # with those of the run they run both ways

    assert curvae("sample", "run", "-n", "2", "-o", "drawn.csv", "-q").code == 0
    drawn = pd.read_csv("drawn.csv")
    assert (drawn["a"] != drawn["b"]).all() and (drawn["a"] > drawn["b"]).any() and (drawn["a"] < drawn["b"]).any()
    assert curvae("view", "run", "-q").code == 0


def test_mistakes_are_one_line():
    refused(
        "graph",
        "needs.csv",
        "--directed",
        "--set",
        "popularity=off",
        says=["--directed needs --set popularity=learned"],
    )
    Path("both.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n")
    refused("graph", "both.mtx", "--directed", says=["both.mtx have no direction; leave out --directed"])


def test_the_estimator_keeps_directions(tmp_path):
    model = PoincareGraphVAE(directed=True, hidden=(4,), epochs=5, random_state=0).fit(needs())
    there, back = model.link_probability([("p5", "p0"), ("p0", "p5")])
    assert model.graph_.directed and there != back
    rows = model.link_prediction(needs(), n_splits=1)
    assert 0 <= rows["direction"][0] <= 1
    model.save(tmp_path / "run")
    loaded = PoincareGraphVAE.load(tmp_path / "run")
    assert loaded.directed
    np.testing.assert_allclose(loaded.link_probability([("p5", "p0"), ("p0", "p5")]), [there, back])
    with pytest.raises(CurvaeError, match="edges of the graph have no direction"):
        model.fit(load_graph(needs()))
