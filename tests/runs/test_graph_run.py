"""Runs on graphs by the command line: what they print and write, that they go on exactly, and that they are used."""

from __future__ import annotations

import hashlib
import html
import json
import math
import re
import shlex
import shutil
import sys
from pathlib import Path
from unittest import mock

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from safetensors.torch import load_file, save_file
from scipy.integrate import quad
from sklearn.metrics import average_precision_score, roc_auc_score

from curvae import PoincareBall, PoincareGraphVAE, PoincareVAE
from curvae.cli.commands import app
from curvae.cli.options import typed_options
from curvae.data import Graph, graph_data as centrality, load_graph, split_edges
from curvae.data.files import EXACT
from curvae.data.graph_data import BASELINES, neighbourhood_map
from curvae.errors import CurvaeError
from curvae.hierarchy import graph_faithfulness
from curvae.maps.embedding import Embedding
from curvae.models import FermiDirac
from curvae.plotting import graph_map
from curvae.plotting.pictures import EDGES_DRAWN
from curvae.runs import training, view_run
from curvae.runs.pages import LinkFigures, against_rules, disconnected, links_section, ranking_sentence
from curvae.training import link_baselines, stacks
from curvae.training.fitted import GraphConfig
from curvae.training.graph_problem import (
    FittedGraph,
    GraphEngine,
    build_graph_model,
    embed_graph,
    fit_graph,
    neighbourhood,
)
from curvae.training.storage import load_fitted, save_fitted
from running import SMALL, config, curvae, refused, settings, snapshot, write_table

QUICK = ("--set", "hidden=4", "--epochs", "3", "--jobs", "1")


TREE = [(f"n{(i - 1) // 2}", f"n{i}") for i in range(1, 31)]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write_edges(path, edges=TREE, header=""):
    Path(path).write_text(header + "".join(f"{a},{b}\n" for a, b in edges), encoding="utf-8")
    return Path(path)


def write_nodes(path, names, **columns):
    pd.DataFrame({"node": list(names), **columns}).to_csv(path, index=False)
    return Path(path)


def graph(*words, **how):
    found = curvae("graph", *words, *QUICK, **how)
    assert found.code == 0, found.err
    return found


# --- the run folder -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with real pictures, started with absolute paths, not to be written to."""
    home = tmp_path_factory.mktemp("whole")
    # A loop, an edge twice, one both ways, a part of its own and a node alone.
    edges = [*TREE, ("n3", "n3"), ("n0", "n1"), ("n1", "n0"), ("far", "away")]
    write_edges(home / "friends.csv", edges, "source,target\n")
    names = [*(f"n{i}" for i in range(30, -1, -1)), "far", "away", "alone"]
    write_nodes(home / "people.csv", names, team=["x", "y$", "⟂"] * 11 + ["x"], age=range(34))
    options = ("--nodes", home / "people.csv", "--label", "team", "--set", "no_features=yes", "--set", "isolated=yes")
    options = (*options, f"--output={home / 'run'}")
    graph(home / "friends.csv", *options, "--seed", "5", "--splits", "3", pictures=True)
    return home


@pytest.fixture
def run(whole, tmp_path):
    for name in ("friends.csv", "people.csv"):
        shutil.copy(whole / name, tmp_path)
    return shutil.copytree(whole / "run", tmp_path / "run").relative_to(tmp_path)


def test_contents_of_the_folder(whole):
    found = {name for name, content in snapshot(whole / "run").items() if content is not None}
    assert found == {
        "checkpoint/state.safetensors",
        "config.json",
        "curves.png",
        "embedding.csv",
        "embedding.safetensors",
        "map.png",
        "metrics.jsonl",
        "model.safetensors",
        "report.html",
        "splits/checkpoint/state-0-3.safetensors",
        "splits/metrics.jsonl",
    }
    stored = config(whole / "run")
    assert stored["format"] == 3 and stored["kind"] == "graph" and stored["seed"] == 5 and stored["splits"] == 3
    assert set(stored["versions"]) == {"curvae", "torch", "numpy", "python"}
    assert stored["source"] == {
        "name": "friends.csv",
        "nodes": "people.csv",
        "label": "team",
        "features": [],
        "no_features": True,
        "features_file": None,
        "categorical": [],
        "weighted": False,
        "isolated": True,
        "missing": "error",
        "source_column": None,
        "target_column": None,
        "header": None,
    }
    data = stored["data"]
    assert (data["nodes"], data["edges"], data["components"], data["label"]) == (34, 31, 3, "team")
    assert re.fullmatch("[0-9a-f]{64}", data["fingerprint"])
    assert [row["seed"] for row in stored["summary"]["splits"]] == [5, 6, 7]
    lines = (whole / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3]
    for name in ("map.png", "curves.png"):
        assert (whole / "run" / name).read_bytes().startswith(b"\x89PNG")
    for name, content in snapshot(whole / "run").items():
        assert content is None or str(whole).encode() not in content, name
        assert content is None or not content.startswith((b"\x80\x04", b"\x80\x05", b"PK")), name


def test_embedding_and_tensors(whole):
    table = pd.read_csv(whole / "run/embedding.csv", **EXACT)
    names = ["id", "label", "split", "ball_1", "ball_2", "tangent_1", "tangent_2", "radius", "sigma"]
    assert list(table.columns) == [*names, "popularity", "side", "map_1", "map_2"] and set(table["split"]) == {"train"}
    people = pd.read_csv(whole / "people.csv", index_col="node")
    assert table["label"].tolist() == people["team"].loc[table["id"]].tolist()
    fitted, embedding, _, stored = load_fitted(whole / "run", FittedGraph)
    assert stored.names.tolist() == table["id"].tolist()
    tensor = load_file(whole / "run/model.safetensors")["edges"]
    assert tensor.dtype == torch.int64 and tensor.shape == (2, 31)
    wanted = {tuple(sorted(edge)) for edge in [*TREE, ("far", "away")]}
    assert {tuple(sorted(pair)) for pair in stored.names[tensor.numpy().T].tolist()} == wanted
    np.testing.assert_array_equal(table[["ball_1", "ball_2"]], embedding.ball)
    np.testing.assert_array_equal(table[["popularity", "side"]].T, [embedding.popularity, embedding.side])
    np.testing.assert_array_equal(embed_graph(fitted, stored).space, embedding.space)
    np.testing.assert_allclose(table["radius"], np.linalg.norm(table[["tangent_1", "tangent_2"]], axis=1), rtol=1e-12)


def test_report_says_which_figure_is_from_which_model(whole):
    page = (whole / "run/report.html").read_text(encoding="utf-8")
    stored = config(whole / "run")
    assert page.count('src="data:image/png;base64,') == 3 and "curvae view run" in page
    own = "the model of the map, trained on all edges; all 33 nodes with an edge"
    others = "3 other models, each trained on 85 % of the edges"
    found = stored["summary"]
    assert re.search(rf"mean average precision</th><td[^>]*>{found['neighbourhood_map']:.3f}</td><td[^>]*>{own}", page)
    for name, title in (("auc", "AUC"), ("ap", "average precision")):
        value = f"{100 * found[name]:.1f} ± {100 * found[f'{name}_interval']:.1f} %"
        assert re.search(rf"hidden edges, {title}</th><td[^>]*>{value}</td><td[^>]*>{others}", page), value
    for text in (
        *stored["data"]["notes"],
        "Student",
        "the column 'team'",
        "a forest",
        "an end alone",
        "--seed 5",
        "Mathieu",
    ):
        text = text[1:] if text[0].islower() else text
        assert text in html.unescape(page), text
    # The answer comes first, in plain words; labels have one of their own.
    (verdict,) = re.findall('<p class="verdict[^"]*">(.*?)</p>', page)
    assert verdict.startswith("The model ranks a hidden edge above a pair of nodes without an edge in ")
    assert verdict.count(". ") == 2 and "The map keeps" in verdict
    assert verdict.endswith(f"The 5-NN accuracy of the labels on the map is {found['label_accuracy']:.0%}.")
    assert f"node {found['centre']}" in page and found["graph_centre"] in page
    assert "curvae graph friends.csv --nodes people.csv --label team --set no_features=yes --set isolated=yes" in page
    assert "curvae compare" in page and "--graph" in page


def test_intervals_are_those_of_student(whole):
    found = config(whole / "run")["summary"]
    values = np.array([row["test"]["auc"] for row in found["splits"]])
    assert found["auc"] == pytest.approx(values.mean())
    assert found["auc_interval"] == pytest.approx(4.302653 * values.std(ddof=1) / math.sqrt(3), rel=1e-6)


def test_handling_is_told_line_by_line(whole, tmp_path):
    shutil.copy(whole / "friends.csv", tmp_path)
    shutil.copy(whole / "people.csv", tmp_path)
    found = graph("friends.csv", "--nodes", "people.csv", "--set", "isolated=yes", "-o", "run", "--splits", "0")
    lines = found.err.splitlines()
    for part in ("self loop", "repeated edge", "both directions", "3 components", "without an edge", "header"):
        assert sum(part in line for line in lines) == 1, (part, lines)
    assert "34 nodes, 31 edges, 1 feature" in lines and "nearest to the centre of the map" in found.err
    assert "features are the columns of numbers of people.csv: 'age'." in lines
    assert "run folder run" in lines
    place = next(i for i, line in enumerate(lines) if line.startswith("The nodes nearest to a node on the map"))
    assert "mean average precision" in lines[place] and lines[place + 1].startswith("34 nodes and 31 edges on a map of")
    assert found.out.splitlines()[:2] == ["report: run/report.html", "embedding: run/embedding.csv"]
    assert config()["summary"]["splits"] == [] and config()["summary"]["auc"] is None
    assert "hidden edges" not in Path("run/report.html").read_text(encoding="utf-8")


# --- options --------------------------------------------------------------------------------------------------------


def test_every_option_reaches_the_model():
    write_edges("t.csv", [(a, f"{b},{i + 1}") for i, (a, b) in enumerate(TREE)], "source,target,weight\n")
    write_nodes("n.csv", [f"n{i}" for i in range(31)], age=range(31), height=[1.5, None] + [2.5] * 29)
    given = {
        "dim": 3,
        "curvature": 0.5,
        "prior-scale": 1.3,
        "hidden": "6,5",
        "edges": "fermi_dirac",
        "weight": 3.0,
        "beta": 0.5,
        "epochs": 2,
        "learning-rate": 0.002,
        "seed": 11,
    }
    on = ("diagonal=yes", "learn_curvature=yes", "learn_prior_scale=yes", "tf32=no")
    words = typed_options({name.replace("-", "_"): value for name, value in given.items()}, "graph")
    flags = (*(word for entry in on for word in ("--set", entry)), "--weighted")
    table = ("--nodes", "n.csv", "--features", "age", "--features", "height", "--set", "missing=mean")
    found = curvae("graph", "t.csv", "-o", "run", "-q", *flags, *table, *words, "--splits", 1, "--device", "cpu")
    assert (found.code, found.out) == (0, ""), found.err
    stored = settings()
    assert {name.replace("-", "_"): value for name, value in given.items()} | {"hidden": [6, 5]} == {
        name.replace("-", "_"): stored[name.replace("-", "_")] for name in given
    }
    assert stored["diagonal"] and stored["learn_curvature"] and stored["learn_prior_scale"] and not stored["tf32"]
    assert stored["posterior"] == "wrapped" and config()["data"]["features"] == ["age", "height"]
    # A comparison chooses among fixed curvatures.
    compare = re.search("<pre>curvae compare t.csv [^<]*", Path("run/report.html").read_text(encoding="utf-8"))[0]
    assert "--graph" in compare and "--set weight=3" in compare and "learn_" not in compare
    summary = config()["summary"]
    assert summary["c"] != 0.5 and summary["prior_scale"] != 1.3
    assert len(summary["splits"]) == 1 and summary["auc_interval"] is None and summary["auc"] is not None
    page = Path("run/report.html").read_text(encoding="utf-8")
    for text in ("Projected from 3 dimensions", "Fermi–Dirac", "2 features were centred", "1 other model,", "Weights"):
        assert text in page, text
    assert "nan" not in Path("run/config.json").read_text().lower()
    loaded = load_fitted(Path("run"), FittedGraph).data
    assert loaded.weights.tolist() == list(range(1, 31)) and loaded.features[1, 1] == pytest.approx(
        1.5 / 30 + 2.5 * 29 / 30
    )


def test_a_table_of_rows_is_no_list_of_edges():
    rows = [(a, i, b, "x") for i, (a, b) in enumerate(TREE)]
    pd.DataFrame(rows, columns=["boss", "since", "reports to", "team"]).to_csv("my table.csv", index=False)
    for words in (("graph",), ("compare", "--graph"), ("diagnose", "--graph")):
        line = refused(words[0], "my table.csv", *words[1:], says=["4 columns", "--source boss --target since"])
        assert "curvae fit 'my table.csv' " in line
    columns = ("--source", "boss", "--target", "reports to")
    graph("my table.csv", *columns, "-o", "run", "--splits", "0")
    assert config()["data"]["edges"] == 30 and config()["source"]["target_column"] == "reports to"
    assert "curvae compare 'my table.csv' --source boss" in curvae("graph", "my table.csv", "-o", "run", "--resume").out
    # Other commands read edges as the run does.
    assert "30 edges that it was trained on" in curvae("evaluate", "run", "my table.csv").out
    assert curvae("embed", "run", "my table.csv", "-o", "e.csv").code == 0
    assert curvae("diagnose", "my table.csv", "--graph", *columns).code == 0
    refused("diagnose", "my table.csv", *columns, says=["--source has no meaning without --graph"])


def test_no_features_and_features_contradict_each_other():
    write_edges("t.csv")
    write_nodes("n.csv", [f"n{i}" for i in range(31)], age=range(31))
    both = ("graph", "t.csv", "--nodes", "n.csv", "--set", "no_features=yes")
    refused(*both, "--features", "age", says=["--set no_features=yes and --features contradict each other"])
    refused(*both, "--features-file", "n.csv", says=["--set no_features=yes and --features-file contradict each other"])


LOOP = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")]


def test_small_graphs_have_a_map_without_splits():
    write_edges("t.csv", LOOP)
    found = graph("t.csv", "-o", "run")
    (line,) = [line for line in found.err.splitlines() if line.startswith("warning: no edges are hidden")]
    assert "4 edges" in line
    summary = config()["summary"]
    assert summary["splits"] == [] and any("no edges are hidden" in text for text in summary["warnings"])
    write_edges("two.csv", [("a", "b")])
    assert graph("two.csv", "-o", "two", "--json").json["neighbourhood_map"] == 1.0


@pytest.mark.parametrize("directed", [False, True])
def test_trees_are_drawn_as_they_are(directed):
    write_edges("t.csv", [*TREE, ("far", "away")])
    found = graph("t.csv", "-o", "run", *(["--directed"] if directed else []))
    said = "33 nodes, 31 edges. The graph is a forest and is drawn as it is, no edge hidden: "
    (line,) = [line for line in found.err.splitlines() if line.startswith(said)]
    assert line.endswith("Use --splits 5 to hide edges all the same.") and "warning: no edges" not in found.err
    assert config()["splits"] == 0 and settings()["encoder"] == "free" and not Path("run/splits").exists()
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert "The graph is a forest and is drawn as it is" in page and "hidden edges, AUC" not in page
    # What was chosen is kept where a run goes on, and what was asked for is done.
    assert curvae("graph", "t.csv", "-o", "run", "--resume").code == 0 and settings()["encoder"] == "free"


def test_trees_whose_edges_are_hidden_all_the_same():
    write_edges("t.csv")
    graph("t.csv", "-o", "asked", "--splits", "1")
    assert len(config("asked")["summary"]["splits"]) == 1 and settings("asked")["encoder"] == "convolutions"
    write_nodes("n.csv", [f"n{i}" for i in range(31)], age=range(31))
    graph("t.csv", "--nodes", "n.csv", "-o", "features", "--epochs", "1")
    assert config("features")["splits"] == 5 and settings("features")["encoder"] == "convolutions"


def test_examples_of_the_help_work():
    write_edges("friends.csv", LOOP)
    write_nodes("people.csv", "abcd", team=list("xxyy"))
    pd.DataFrame([(i, a, b, 2020) for i, (a, b) in enumerate(LOOP)]).to_csv(
        "calls.csv", header=["id", "caller", "called", "year"], index=False
    )
    write_edges("taxonomy.csv")
    examples = app.commands["graph"].epilog.partition("Example: ")[2].splitlines()
    for example in examples:
        graph(*example.split()[2:])
    assert len(examples) == 3 and len(pd.read_csv("runs/calls-1/links.csv")) == 6 - len(LOOP)


def test_likely_missing_edges_are_written(run):
    own = ("graph", "friends.csv", "--nodes", "people.csv", "-o", run, "--resume")
    found = curvae(*own, "--links", "12")
    assert found.code == 0 and "links: run/links.csv" in found.out.splitlines()
    table = pd.read_csv("run/links.csv")
    assert list(table.columns) == ["source", "target", "probability"] and len(table) == 12
    assert table["probability"].is_monotonic_decreasing and table["probability"].between(0, 1).all()
    known = {frozenset(edge) for edge in [*TREE, ("far", "away")]}
    pairs = {frozenset(pair) for pair in table[["source", "target"]].to_numpy().tolist()}
    assert len(pairs) == 12 and not pairs & known
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert "links.csv lists the 12 pairs" in page and "The first 10." in page and table["target"][9] in page
    assert "links.csv" not in (run / "config.json").read_text()
    refused("graph", "friends.csv", "--links", "0", says=["--links"])


def test_json_and_quiet():
    write_edges("t.csv")
    found = graph("t.csv", "--splits", "2", "--json")
    assert found.err == "" and found.json == {"run": "runs/t-1", **config("runs/t-1")["summary"]}
    assert graph("t.csv", "--splits", "0", "--quiet").out == "" and Path("runs/t-2").is_dir()
    for words in (("embed", "runs/t-1", "t.csv"), ("sample", "runs/t-1", "-n", 2), ("evaluate", "runs/t-1", "t.csv")):
        shown, silent = curvae(*words, "--json"), curvae(*words, "-q", *(["--force"] * (words[0] != "evaluate")))
        assert shown.code == 0 and shown.err == "" and isinstance(shown.json, dict)
        assert (silent.code, silent.out, silent.err) == (0, "", "")


def test_each_command_prints_the_next_one_and_that_works():
    write_edges("my friends.csv")
    words, seen = ["graph", "my friends.csv", "--splits", "0", "--set", "weight=1.5", *QUICK], []
    for _ in range(5):
        found = curvae(*words)
        assert found.code == 0, found.err
        seen.append(words[0])
        assert ("the graph is a tree: no model can know where" in found.err) == (words[0] == "compare")
        (line,) = [line for line in found.out.splitlines() if line.startswith("next: curvae ")]
        words = shlex.split(line, comments=True)[2:]
        if words == ["view", "runs/my friends-2"]:  # a tree that is drawn as it is: there is nothing to find
            words = ["evaluate", "runs/my friends-2", "my friends.csv"]
        if words[0] in ("graph", "compare"):
            # What was asked for goes along.
            assert "weight=1.5" in words and {"4", "hidden=4"} & set(words)
        if words[0] == "graph":
            assert words[-2:] == ["--curvature", "0"]
    assert seen == ["graph", "compare", "graph", "evaluate", "sample"] and words[0] == "evaluate"


def test_the_next_command_of_a_graph_that_cannot_be_split():
    write_edges("four.csv", LOOP)
    found = graph("four.csv", "-o", "run")
    assert "next: curvae view run " in found.out and "rounds down to no edge" in found.err


def test_a_map_that_shows_few_edges_is_warned_of():
    write_edges("star.csv", [("hub", f"n{i}") for i in range(40)])
    said = graph("star.csv", "--set", "popularity=off", "--splits", "0").err
    assert "shows few of the edges" in said and "or a vector for each node, --set encoder=free" in said
    said = graph("star.csv", "--set", "popularity=off", "--reconstruct").err
    assert "shows few of the edges" in said and "--set encoder=free" not in said


# --- going on -------------------------------------------------------------------------------------------------------

STARTED = ("graph", "t.csv", "--splits", "2", "--set", "hidden=4", "--epochs", "6", "--jobs", "1")


def outcome(folder):
    """What a run ended with, but for times."""
    found = config(folder)
    found["summary"].pop("seconds")
    found.pop("command")
    records = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    figures = [{name: value for name, value in record.items() if name != "seconds"} for record in records]
    return found, figures, Path(folder, "embedding.csv").read_bytes()


@pytest.fixture
def interrupted(monkeypatch):
    """A run stopped after some epochs of the map or of the splits."""
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
    monkeypatch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)
    write_edges("t.csv")

    def stop(folder, epochs):
        done = 0

        def watch(*_):
            nonlocal done
            done += 1
            if done == epochs:
                raise KeyboardInterrupt

        fit_graphs = training.fit_graphs
        with (
            mock.patch.object(training, "epoch_progress", return_value=watch),
            mock.patch.object(training, "fit_graphs", lambda *a, **k: fit_graphs(*a, **{**k, "progress": watch})),
        ):
            return curvae(*STARTED, "-o", folder)

    return stop


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What a run that nothing stops ends with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("uninterrupted"))
        write_edges("t.csv")
        assert curvae(*STARTED, "-o", "run").code == 0
        return outcome("run")


@pytest.mark.parametrize("epochs", [3, 6, 11])
def test_resumed_exactly(uninterrupted, interrupted, epochs):
    """In the training of the map, at its end, and in that of the splits."""
    found = interrupted("run", epochs)
    assert found.code == 130 and "; continue with: curvae graph t.csv" in found.err.splitlines()[-1]
    assert not Path("run/model.safetensors").exists()
    refused("evaluate", "run", "t.csv", says=[f"finish it with: {shlex.join(['curvae', *STARTED])} -o run --resume"])
    with mock.patch.object(GraphEngine, "epoch", autospec=True, side_effect=GraphEngine.epoch) as steps:
        gone_on = curvae("graph", "t.csv", "-o", "run", "--resume")
    assert gone_on.code == 0 and "next: curvae compare t.csv --graph --hidden 4 --epochs 6 " in gone_on.out
    assert ("continued at epoch 4 of 6" in gone_on.err) == (epochs == 3)
    assert outcome("run") == uninterrupted
    # Not all over again: of six steps of the map and six of the splits, those that were not done or not yet written.
    assert steps.call_count <= 13 - epochs + max(0, (epochs - 6) // 2)
    if epochs < 11:
        return
    # And a run that has ended.
    with mock.patch.object(GraphEngine, "epoch", autospec=True, side_effect=GraphEngine.epoch) as steps:
        assert curvae("graph", "t.csv", "-o", "run", "--resume").code == 0
    assert steps.call_count == 0 and outcome("run") == uninterrupted


def test_resume_refuses_what_would_change_the_run(run):
    before = snapshot(Path())
    own = ("friends.csv", "--nodes", "people.csv", "-o", run, "--resume")
    refused("graph", *own, "--epochs", "9", says=["epochs 3, not 9"])
    refused("graph", *own, "--label", "age", says=["label team, not age"])
    refused("graph", *own, "--splits", "4", says=["splits 3, not 4"])
    refused("graph", "friends.csv", "-o", run, "--resume", says=["--nodes people.csv"])
    refused("graph", "friends.csv", "--resume", says=["--resume needs the run folder; give it with -o"])
    refused("fit", "people.csv", "-o", run, "--resume", says=["holds a model of a graph", "curvae fit"])
    assert snapshot(Path()) == before
    write_edges("friends.csv", TREE[:-1])
    refused("graph", *own, says=["is not the data that run was started with"])


def test_force_clears_an_earlier_run(run):
    Path("run/mine.txt").touch()
    refused("graph", "friends.csv", "-o", run, *QUICK, says=["exists", "--force"])
    graph("friends.csv", "-o", run, "--force", "--splits", "0", "-q")
    assert not Path("run/splits").exists() and Path("run/mine.txt").exists()


# --- a run put to use -----------------------------------------------------------------------------------------------


def test_embed_of_the_same_graph_is_the_embedding(run):
    words = ("embed", run, "friends.csv", "--nodes", "people.csv", "-o")
    assert curvae(*words, "e.csv").code == 0
    found, trained = pd.read_csv("e.csv"), pd.read_csv("run/embedding.csv")
    pd.testing.assert_frame_equal(found.drop(columns="split"), trained.drop(columns="split"), check_exact=True)
    assert set(found["split"]) == {"new"}
    # Nodes in another order, edges turned round.
    edges = [(b, a) for a, b in reversed([*TREE, ("far", "away")])]
    write_edges("turned.csv", edges)
    assert curvae("embed", run, "turned.csv", "--nodes", "people.csv", "-o", "t.csv").code == 0
    turned = pd.read_csv("t.csv").set_index("id").loc[found["id"]]
    np.testing.assert_array_equal(turned[["ball_1", "ball_2", "sigma"]], found[["ball_1", "ball_2", "sigma"]])
    # Another edge moves nodes.
    write_edges("other.csv", [*TREE, ("far", "away"), ("n7", "n22")])
    assert curvae("embed", run, "other.csv", "--nodes", "people.csv", "-o", "o.csv").code == 0
    assert (pd.read_csv("o.csv").set_index("id").loc["n7", "ball_1"] != found.set_index("id").loc["n7", "ball_1"]).all()


def test_embed_without_features_knows_its_own_nodes_only(run):
    write_edges("other.csv", [*TREE, ("n3", "stranger")])
    line = refused("embed", run, "other.csv", says=["no features", "adds 1 node ('stranger')", "lacks 3 nodes"])
    assert "--features" in line and not Path("other-embedding.csv").exists()


def test_embed_with_features_takes_any_graph():
    names = [f"n{i}" for i in range(31)]
    write_edges("t.csv")
    write_nodes("n.csv", names, age=np.arange(31) % 7, team=["a", "b"] * 15 + ["c"])
    graph("t.csv", "--nodes", "n.csv", "--features", "age", "--label", "team", "-o", "run", "--splits", "0", "-q")
    # The same tree with other names, in part.
    write_edges("new.csv", [(a.replace("n", "m"), b.replace("n", "m")) for a, b in TREE] + [("m30", "n0")])
    write_nodes("m.csv", [name.replace("n", "m") for name in names] + ["n0"], age=[*(np.arange(31) % 7), 3])
    assert curvae("embed", "run", "new.csv", "--nodes", "m.csv", "-o", "e.csv").code == 0
    found, trained = pd.read_csv("e.csv").set_index("id"), pd.read_csv("run/embedding.csv").set_index("id")
    # Two convolutions reach two steps, and degrees one more: a node far from the new one is where it was.
    np.testing.assert_allclose(found.loc["m7", "ball_1"], trained.loc["n7", "ball_1"], rtol=1e-12)
    assert found.loc["n0", "label"] == "a" and found["label"].isna().sum() == 31
    refused("embed", "run", "new.csv", says=["'age'", "--nodes"])
    write_nodes("bare.csv", [name.replace("n", "m") for name in names] + ["n0"], size=1)
    refused("embed", "run", "new.csv", "--nodes", "bare.csv", says=["no column 'age'"])
    # The features of a node reach those within two steps: n0 – m30 – m14.
    write_nodes("far.csv", [name.replace("n", "m") for name in names] + ["n0"], age=[*(np.arange(31) % 7), 1e300])
    found = curvae("embed", "run", "new.csv", "--nodes", "far.csv", "-o", "far-embedding.csv")
    assert found.code == 2
    assert "the embedding is not finite for 3 nodes: 'm14', 'm30', 'n0'; correct" in found.err.splitlines()[-1]
    assert not Path("far-embedding.csv").exists()


def test_samples_are_graphs_by_seed(run):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert curvae("sample", run, "-n", "4", "--seed", seed, "-o", f"{name}.csv").code == 0
    a, b, c = (pd.read_csv(f"{name}.csv") for name in "abc")
    assert list(a.columns) == ["sample", "a", "b"] and a.equals(b) and not a.equals(c)
    assert (a["a"] < a["b"]).all() and a["a"].min() >= 1 and a["b"].max() <= 34 and set(a["sample"]) == {1, 2, 3, 4}
    assert not a.duplicated().any()
    refused("sample", run, "-n", "0", says=["at least 1"])
    refused("sample", run, "-o", "d.npy", says=["d.npy should end in .csv"])
    with mock.patch("curvae.runs.trained._LARGEST", 33):
        refused("sample", run, "-o", "d.csv", says=["34 nodes", "up to 33"])


def test_density_of_sampled_graphs():
    """In one flat dimension the difference of two nodes is normal, so the chance of an edge is an integral."""
    model = build_graph_model(GraphConfig(dim=1, curvature=0.0, prior_scale=1.5, edges="fermi_dirac"), 60)
    model.edges = FermiDirac(radius=1.0, temperature=0.3)
    deviation = 1.5 * math.sqrt(2)
    expected = quad(
        lambda d: (
            2
            * math.exp(-0.5 * (d / deviation) ** 2)
            / (deviation * math.sqrt(2 * math.pi))
            / (1 + math.exp((d - 1.0) / 0.3))
        ),
        0,
        20,
    )[0]
    generator = torch.Generator().manual_seed(0)
    shares = [model.sample(60, generator).shape[1] / (60 * 59 / 2) for _ in range(200)]
    assert np.mean(shares) == pytest.approx(expected, abs=5 * np.std(shares) / math.sqrt(200))
    assert np.std(shares) / math.sqrt(200) < 0.01
    with mock.patch("curvae.models.graph_vae._AT_ONCE", 7):
        pieces = model.sample(20, torch.Generator().manual_seed(3))
    assert (pieces[0] < pieces[1]).all() and len(set(map(tuple, pieces.T.tolist()))) == pieces.shape[1]
    assert model.sample(1).shape == (2, 0)


def test_evaluation_against_brute_force(run):
    """So many edges that the pairs without one are all drawn."""
    table = pd.read_csv("run/embedding.csv", **EXACT)
    names, points = table["id"].tolist(), table[["ball_1", "ball_2"]].to_numpy()
    popular, side = table["popularity"].to_numpy(), table["side"].to_numpy()
    apart = PoincareBall(2, 1.0).dist(torch.tensor(points)[:, None], torch.tensor(points)).numpy()
    apart -= popular[:, None] + popular - np.outer(side, side)
    own = {tuple(sorted((names.index(a), names.index(b)))) for a, b in [*TREE, ("far", "away")]}
    rest = [pair for pair in zip(*np.triu_indices(34, 1), strict=True) if pair not in own]
    new, absent = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    edges = [(names[i], names[j]) for i, j in new] + TREE[:10]
    write_edges("more.csv", [*edges, ("n1", "stranger")])
    found = curvae("evaluate", run, "more.csv", "--json").json
    assert found["unknown_nodes"] == 1 and found["parts"]["train"]["edges"] == 10
    scores = [-apart[i, j] for i, j in [*new, *absent]]
    truth = [1] * len(new) + [0] * len(absent)
    assert found["parts"]["new"]["edges"] == len(new) == len(absent)
    assert found["parts"]["new"]["auc"] == pytest.approx(roc_auc_score(truth, scores))
    # Nodes that nothing tells apart are tied, but for rounding, which decides about their order.
    assert found["parts"]["new"]["ap"] == pytest.approx(average_precision_score(truth, scores), rel=1e-4)
    whole = np.zeros((34, 34), bool)
    for i, j in [*new, *((names.index(a), names.index(b)) for a, b in TREE[:10])]:
        whole[i, j] = whole[j, i] = True
    precisions = []
    for i in np.flatnonzero(whole.any(1)):
        others = np.arange(34) != i
        precisions.append(average_precision_score(whole[i, others], -apart[i, others]))
    assert found["neighbourhood_map"] == pytest.approx(np.mean(precisions), rel=1e-4)
    shown = curvae("evaluate", run, "more.csv")
    assert "10 edges that it was trained on: AUC" in shown.out and f"{len(new)} new edges: AUC" in shown.out
    assert "'stranger'" in shown.err
    # The names of the run say what the first line is, and no option.
    write_edges("named.csv", [("character", "meets"), *TREE])
    noted = curvae("evaluate", run, "named.csv").err
    assert "taken as a header: 'character', 'meets', which no other line names.\n" in noted and "--" not in noted
    write_edges("else.csv", [("x", "y")])
    refused("evaluate", run, "else.csv", says=["no edge of else.csv", "use the same names"])
    refused("evaluate", run, "more.csv", "--samples", "5", says=["model of a graph", "leave out --samples"])
    refused("evaluate", run, "more.csv", "-o", "s.csv", says=["model of a graph", "leave out -o"])
    refused("view", run, "--rows", "more.csv", says=["model of a graph", "leave out --rows"])


def test_each_kind_of_run_says_what_it_is(run):
    write_table(Path("rows.csv"))
    assert curvae("fit", "rows.csv", "-o", "rows", "-q", *SMALL).code == 0
    refused("graph", "friends.csv", "-o", "rows", "--resume", says=["holds a model of a table", "curvae graph"])
    refused("embed", "rows", "rows.csv", "--nodes", "people.csv", says=["model of a table", "leave out --nodes"])
    with pytest.raises(CurvaeError, match="holds a model of a graph, not a model of a table"):
        PoincareVAE.load(run)
    refused("embed", "nowhere", "friends.csv", says=["curvae fit or curvae graph"])
    with pytest.raises(CurvaeError, match="curvae graph wrote"):
        load_fitted(Path("rows"), FittedGraph)


@pytest.mark.parametrize("more", [(), ("--anonymous",)])
def test_nodes_without_labels_are_coloured_by_steps_from_the_centre(more):
    write_edges("path.csv", [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("x", "y")])
    assert graph("path.csv", "-o", "run", "--splits", "0").code == 0
    _, view = view_run(Path("run"), Path("map.html"), anonymous=bool(more))
    (steps,) = view.columns.values()
    assert sorted(map(str, steps)) == ["0.0", "1.0", "1.0", "2.0", "2.0", "nan", "nan"]
    assert bool(more) or dict(zip(view.ids, steps, strict=True))["c"] == 0
    shown = "the most central node" if more else "c"
    assert f"column steps from {shown};" in curvae("view", "run", "-o", "again.html", *more).err


def test_view_shows_the_edges(run):
    found = curvae("view", run, "-o", "map.html", "--data", "people.csv", "--show", "age")
    assert found.code == 0, found.err
    assert "34 points" in found.err and "31 edges" in found.err and "column team; column age" in found.err
    assert "34 nodes, 31 edges, c = 1" in Path("map.html").read_text(encoding="utf-8")
    # Rows of the table, which are in another order than the nodes of the run, are matched by name.
    _, view = view_run(run, Path("again.html"), show=("age",), data="people.csv")
    people = pd.read_csv("people.csv", index_col="node")
    assert view.columns["age"].tolist() == people["age"].loc[view.ids].tolist()
    np.testing.assert_array_equal(view.edges, load_file(run / "model.safetensors")["edges"].numpy())
    write_nodes("few.csv", ["n1", "n2"], age=1)
    refused("view", run, "-o", "few.html", "--data", "few.csv", "--show", "age", says=["matched by names of nodes"])
    tensors = load_file(run / "model.safetensors")
    save_file({**tensors, "edges": tensors["edges"] + 30}, run / "model.safetensors")
    refused("view", run, "-o", "else.html", says=["no edges between the nodes"])
    stored = config()
    stored.pop("summary")
    (run / "config.json").write_text(json.dumps(stored))
    refused("view", run, "-o", "else.html", says=["is not finished; finish it with: curvae graph ", " --resume"])


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.update(edges=t["edges"][:, :-1].contiguous()), "not the one that was trained on"),
        (lambda t: t.update(edges=t["edges"] + 40), "an edge leads to a node"),
        (lambda t: t.update(names=t["names"][:-1].contiguous()), "whole run"),
        (lambda t: t.pop("names"), "names"),
        (lambda t: t.update(sigma=t["sigma"][:-1].contiguous()), "another number of nodes"),
    ],
)
def test_tensors_that_someone_edited(run, change, says):
    name = "embedding" if "nodes" in says else "model"
    path = run / f"{name}.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    for command in (("embed", run, "friends.csv"), ("sample", run), ("evaluate", run, "friends.csv")):
        refused(*command, says=["checksum"])
    stored = config()
    stored[f"{name}_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (run / "config.json").write_text(json.dumps(stored))
    for command in (("embed", run, "friends.csv"), ("sample", run), ("evaluate", run, "friends.csv")):
        refused(*command, says=["whole run", says, "train again"])


@pytest.mark.parametrize("key", ["config", "data", "source"])
def test_descriptions_that_someone_edited(run, key):
    stored = config()
    stored[key] = None
    (run / "config.json").write_text(json.dumps(stored))
    refused("graph", "friends.csv", "-o", run, "--resume", says=["cannot be resumed", "start a new run"])
    if key != "source":
        refused("evaluate", run, "friends.csv", says=["whole run"])


def test_a_split_is_stored_with_the_model(tmp_path):
    tree = load_graph([(i, (i - 1) // 2) for i in range(1, 41)])
    split = split_edges(tree, seed=3)
    fitted = fit_graph(GraphConfig(epochs=2, hidden=(4,)), tree, split=split)
    embedding = embed_graph(fitted, tree)
    save_fitted(tmp_path / "run", fitted, embedding, {}, tree)
    loaded, place, _, same = load_fitted(tmp_path / "run", FittedGraph)
    assert same.fingerprint == tree.fingerprint
    for name in ("train", "validation", "test", "validation_absent", "test_absent"):
        np.testing.assert_array_equal(getattr(loaded.split, name), getattr(split, name))
    np.testing.assert_array_equal(embed_graph(loaded, tree).space, embedding.space)
    np.testing.assert_array_equal(place.space, embedding.space)


# --- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words", "says"),
    [
        ("", [], ["t.csv", "empty"]),
        ("a\nb\nc\n", [], ["t.csv"]),
        ("a,a\n", [], ["no edges between different nodes", "give at least one"]),
        ("source,target\n", [], ["t.csv"]),
        ("a,b,heavy\nb,c,2\nc,d,3\n", ["--weighted"], ["line 1", "'heavy'", "leave out --weighted"]),
        ("a,b,-1\nb,c,2\n", ["--weighted"], ["line 1", "-1", "positive"]),
        ("a,b\nb,c\n", ["--weighted"], ["no third column"]),
        ("a,b\nb,c\n", ["--label", "team"], ["'team'", "--nodes"]),
        ("a,b\nb,c\n", ["--set", "isolated=yes"], ["--nodes"]),
        ("a,b\nb,c\n", ["--nodes", "none.csv"], ["no table of nodes none.csv"]),
        ("a,b\nb,c\n", ["--nodes", "n.csv"], ["'d'", "--set isolated=yes"]),
        ("a,b\nb,c\nc,d\n", ["--nodes", "n.csv", "--label", "taem"], ["no column 'taem' for --label", "'team'"]),
        ("a,b\nb,c\nc,d\n", ["--nodes", "n.csv", "--features", "team"], ["text in column 'team'"]),
        (
            "a,b\nb,c\nc,e\nc,d\n",
            ["--nodes", "n.csv", "--features", "age"],
            ["has no row for 1 node", "'e'", "--set missing=mean"],
        ),
        (
            "a,b\nb,c\nc,d\n",
            ["--nodes", "n.csv", "--features", "age"],
            ["has missing values of nodes", "'age'", "--set missing=mean"],
        ),
        ("a,b\nb,c\n", ["--curvature", "-1"], ["curvature must be c ≥ 0"]),
        ("a,b\nb,c\n", ["--set", "weight=0"], ["weight must be a positive number"]),
        ("a,b\nb,c\n", ["--set", "hidden=many"], ["--set hidden", "is no list of widths"]),
        ("a,b\nb,c\n", ["--set", "posterior=riemannian", "--set", "diagonal=yes"], ["diagonal"]),
        ("a,b\nb,c\n", ["--set", "prior_scale=90"], ["lower the curvature"]),
        ("a,b\nb,c\n", ["--splits", "-1"], ["--splits"]),
        ("a,b\nb,c\n", ["--set", "edges=straight"], ["--set edges"]),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(content, words, says):
    Path("t.csv").write_text(content)
    write_nodes("n.csv", "abcd", team=["x", "y", "x", "y"], age=[1, None, 3, 4])
    before = snapshot(Path())
    refused("graph", "t.csv", "-o", "run", *words, says=says)
    assert snapshot(Path()) == before


def test_graphs_that_are_not_there():
    refused("graph", "disease", says=["no file disease", "did you mean 'diseases'"])
    refused("graph", ".", says=["is a folder"])
    refused("graph", "t.pkl", says=["no file t.pkl"])


def test_graphs_known_by_name_say_how_to_get_them(monkeypatch):
    monkeypatch.delenv("CURVAE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd()))
    monkeypatch.setitem(sys.modules, "pooch", None)
    refused("graph", "csphd", says=["graph csphd is neither in", "pip install pooch"])


def test_directed_graphs_say_what_became_of_directions():
    nx.write_graphml(nx.gn_graph(40, seed=1), "t.graphml")
    found = graph("t.graphml", "-o", "run", "--splits", "0")
    assert "directions were left out: 39 arcs became 39 edges." in found.err
    assert "Directions were left out: 39 arcs" in Path("run/report.html").read_text(encoding="utf-8")


# --- figures --------------------------------------------------------------------------------------------------------


def test_closeness_is_that_of_networkx(monkeypatch):
    one = nx.disjoint_union(nx.gnp_random_graph(40, 0.08, seed=1), nx.path_graph(5))
    found = load_graph(one)
    expected = nx.harmonic_centrality(one)
    order = [int(name) for name in found.names]
    np.testing.assert_allclose(centrality.closeness(found), [expected[k] / 44 for k in order])
    steps = nx.single_source_shortest_path_length(one, order[3])
    np.testing.assert_array_equal(centrality.steps_from(found, 3), [steps.get(k, math.inf) for k in order])
    # A large graph: some nodes asked, in small blocks, without bias.
    monkeypatch.setattr(centrality, "_ALL", 10)
    monkeypatch.setattr(centrality, "_SAMPLED", 20)
    monkeypatch.setattr(centrality, "_BLOCK", 100)
    tries = np.array([centrality.closeness(found, seed) for seed in range(200)])
    gap = tries.mean(0) - [expected[k] / 44 for k in order]
    assert (abs(gap) <= 5 * tries.std(0) / math.sqrt(200) + 1e-12).all()


def test_neighbourhoods_of_some_nodes():
    found = load_graph(nx.gnp_random_graph(30, 0.15, seed=2))
    points = np.random.default_rng(0).normal(size=(found.n_nodes, 2))
    embedding = Embedding(points, np.ones(found.n_nodes), 1.0)
    table = embedding.distances()
    chosen = np.array([3, 7, 20])
    apart = [neighbourhood_map(found, table[[node]], np.array([node])) for node in chosen]
    assert neighbourhood_map(found, table[chosen], chosen) == pytest.approx(np.mean(apart))
    whole = neighbourhood(embedding, found)
    assert whole.map == pytest.approx(neighbourhood_map(found, table)) and not whole.sampled
    some = neighbourhood(embedding, found, limit=10, seed=1)
    assert some.sampled and some.asked == 10
    near = LinkFigures([])
    page = links_section(found, near, some, None)
    assert "a random sample of 10 nodes" in page.tables[0].rows[0][2]
    lonely = Graph(np.array(list("abc")), np.array([[0, 1]]))
    with pytest.raises(CurvaeError, match="none of the chosen nodes has a neighbour"):
        neighbourhood_map(lonely, np.zeros((1, 3)), np.array([2]))


def contest_rows(own, rules):
    """Splits in which the models, and rules in order, have these AUCs."""
    names = ("auc", "ap", "auc_matched", "ap_matched")
    rows = []
    for seed, auc in enumerate(own):
        others = {rule: dict.fromkeys(names, value[seed]) for rule, value in zip(BASELINES, rules, strict=True)}
        rows.append({"seed": seed, "test": dict.fromkeys(names, auc) | {"baselines": others}})
    return LinkFigures(rows)


def test_the_model_is_compared_with_the_best_rule():
    low = [0.5, 0.52, 0.51]
    better = contest_rows([0.9, 0.91, 0.92], [low, [0.8, 0.82, 0.81], low])
    assert better.best_rule == "common neighbours" and better.standing > 0
    assert against_rules(better).startswith("Better than rules without a model, of which common neighbours is the best")
    assert "AUC 91.0 ± 2.5 % of the model against 81.0 ± 2.5 %" in against_rules(better)
    assert ranking_sentence(better) == (
        "The model ranks a hidden edge above a pair of nodes without an edge in 91 % of cases; the best rule without a "
        "model, common neighbours, in 81 % (the model is better)."
    )
    clearly = contest_rows([0.6, 0.61, 0.6], [[0.8, 0.82, 0.81], low, low])
    assert ranking_sentence(clearly).endswith("degree product, in 81 % (the rule is better).")
    for own in ([0.7, 0.8, 0.75], [0.97, 0.70, 0.90]):  # below; above by chance
        worse = contest_rows(own, [[0.8, 0.82, 0.81], low, low])
        assert worse.standing <= 0 and worse.to_json()["beats_baselines"] is False
        said = against_rules(worse)
        assert said.startswith("No better than a rule without a model, degree product") and "; " in said
        assert "try a larger dimension" in said
        assert ranking_sentence(worse).endswith("in 81 % (no clear difference).")
    assert contest_rows([0.9], [[0.8], [0.7], [0.6]]).standing > 0
    assert contest_rows([0.8], [[0.8], [0.7], [0.6]]).standing <= 0


def test_a_comparison_finds_a_set_of_curvatures():
    write_edges(Path("g.csv"))
    words = ("--curvatures", "auto", "--epochs", "2", "--hidden", "4", "--jobs", "1", "-o", "run")
    found = curvae("compare", "g.csv", "--graph", *words)
    assert found.code == 0 and "; 25 trainings: c = 0, 0.548, 1.25, 2.3, 4 in each of 5 repeats\n" in found.err
    known = json.loads(Path("run/comparison.json").read_text())["curvature"]
    assert len(known["profile"]) == 5 and "Curvature: " in found.err
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert page.count('alt="gain by curvature, and the set of the best"') == 1 and "over 0 on test edges" in page


def test_rules_stand_beside_the_model(whole):
    summary, page = config(whole / "run")["summary"], (whole / "run/report.html").read_text()
    stored = load_graph(whole / "friends.csv", nodes=whole / "people.csv", isolated=True)
    for row in summary["splits"]:
        expected = link_baselines(stored, split_edges(stored, seed=row["seed"]), dim=2)
        for rule, links in expected.items():
            assert row["test"]["baselines"][rule]["auc"] == pytest.approx(links.auc)
            assert row["test"]["baselines"][rule]["ap"] == pytest.approx(links.ap)
    for rule in BASELINES:
        values = [row["test"]["baselines"][rule]["auc"] for row in summary["splits"]]
        assert summary["baselines"][rule]["auc"] == pytest.approx(np.mean(values)) and rule in page
    best = max(BASELINES, key=lambda rule: summary["baselines"][rule]["auc"])
    assert summary["best_baseline"] == best and not summary["beats_baselines"]
    assert "No better than a rule without a model" in page and "AUC, equal degrees" in page


def test_evaluate_names_rules_that_are_better(run):
    found = curvae("evaluate", run, "friends.csv")
    assert found.code == 0 and "degree product, without a model: AUC" in found.out
    parts = curvae("evaluate", run, "friends.csv", "--json").json["parts"]["train"]
    best = max(parts["baselines"], key=lambda rule: parts["baselines"][rule]["auc"])
    worse = parts["auc"] <= parts["baselines"][best]["auc"]
    said = f"edges that it was trained on are found no better than {best}, without a model; "
    assert found.out.startswith(said) == worse == (parts["remark"] is not None)


def test_edges_that_the_training_leaves_apart():
    """A cycle loses no node by one edge; of a path every edge holds the two sides together."""
    cycle = load_graph([(i, (i + 1) % 20) for i in range(20)])
    path = load_graph([(i, i + 1) for i in range(20)])
    kept = split_edges(cycle, validation=0.0, test=0.05)
    assert disconnected(cycle, kept) == {"apart": 0.0, "alone": 0.0, "alone_absent": 0.0}
    star = load_graph([(0, i) for i in range(1, 21)])
    lost = disconnected(star, split_edges(star))
    assert lost["apart"] == lost["alone"] == 1.0 and 0 < lost["alone_absent"] <= 1.0
    lost = disconnected(path, split_edges(path, validation=0.0, test=0.05))
    assert lost["apart"] == 1.0 and lost["alone_absent"] == 0.0


def test_picture_of_a_graph():
    rng = np.random.default_rng(0)
    points = PoincareBall(2).random(400, generator=torch.Generator().manual_seed(0))
    edges = rng.integers(0, 400, size=(6000, 2))
    ax = Figure(figsize=(6, 5)).subplots()
    names = [f"node ${i}$" for i in range(400)]
    steps = np.where(np.arange(400) < 5, np.inf, np.arange(400))
    graph_map(ax, PoincareBall(2), points, edges, steps=(steps, "steps"), names=names, central=range(10))
    lines = [part for part in ax.collections if isinstance(part, LineCollection)]
    assert [len(part.get_segments()) for part in lines] == [EDGES_DRAWN]
    texts = [text.get_text() for text in ax.texts]
    assert texts[0] == r"node \$0\$" and 1 <= len(texts) <= 6
    assert [line.get_marker() for line in ax.lines] == ["o", "s"]
    x, y = points[0].tolist()
    assert ax.lines[0].get_xydata().tolist() == [[x, y]]


# --- how faithful the map is -----------------------------------------------------------------------------------------


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


# --- directed graphs -------------------------------------------------------------------------------------------------


def needs(nodes: int = 24) -> list[tuple[str, str]]:
    random = np.random.default_rng(0)
    return sorted({(f"p{k}", f"p{int(k * random.random() ** 2)}") for k in range(1, nodes) for _ in range(3)})


@pytest.fixture
def _needs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = "".join(f"{a},{b},{1 + i % 3}\n" for i, (a, b) in enumerate(needs()))
    Path("needs.csv").write_text("package,depends,weight\n" + lines)


@pytest.mark.usefixtures("_needs")
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


@pytest.mark.usefixtures("_needs")
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


@pytest.mark.usefixtures("_needs")
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


# --- the map is there before edges are hidden ------------------------------------------------------------------------


@pytest.fixture
def _tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("g.csv").write_text("".join(f"n{(i - 1) // 2},n{i}\n" for i in range(1, 41)), encoding="utf-8")


@pytest.mark.usefixtures("_tree")
def test_the_map_is_written_before_edges_are_hidden(monkeypatch):
    there = {}
    fit = training.fit_graphs

    def seen(*words, **how):
        there.update({file.name: file.read_bytes() for file in Path("r").iterdir() if file.is_file()})
        return fit(*words, **how)

    monkeypatch.setattr(training, "fit_graphs", seen)
    found = curvae("graph", "g.csv", "-o", "r", "--splits", "2", *QUICK)
    assert found.code == 0 and "the map is in r" in found.err
    for name in ("embedding.csv", "map.png"):
        assert there[name] == Path("r", name).read_bytes()
    assert there["map.png"][:4] == b"\x89PNG" and "report.html" not in there


@pytest.mark.usefixtures("_tree")
def test_a_reconstruction_advises_a_comparison_that_can_place_nodes():
    found = curvae("graph", "g.csv", "-o", "r", "--reconstruct", *QUICK)
    assert (
        found.code == 0 and json.loads(Path("r", "config.json").read_text())["config"]["networks"]["encoder"] == "free"
    )
    report = Path("r", "report.html").read_text(encoding="utf-8")
    assert "compare" in report and "encoder=" not in report + found.out


@pytest.mark.parametrize(("words", "advice"), [((), "encoder="), (("--set", "pairs=all"), "a larger weight")])
@pytest.mark.usefixtures("_tree")
def test_a_map_that_shows_few_edges_says_what_helps(words, advice, monkeypatch):
    monkeypatch.setattr(training, "_FAITHFUL", 1.1)  # too few, however many
    found = curvae("graph", "g.csv", "-o", "r", "--splits", "0", *words, *QUICK)
    warned = json.loads(Path("r", "config.json").read_text())["summary"]["warnings"]
    assert found.code == 0 and any("shows few of the edges" in text and advice in text for text in warned), warned
