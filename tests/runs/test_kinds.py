"""Rows and graphs behind one protocol."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import curvae
from curvae import CurvaeError
from curvae.cli.options import shell_command
from curvae.data import Graph, Schema
from curvae.runs import GraphSource, Source, open_run
from curvae.runs.training import RUNS
from curvae.training import Config, FittedGraph, GraphConfig
from paths import DATA


def test_a_run_folder_opens_as_what_it_holds():
    rows, graph = open_run(DATA / "run-format-3-categorical"), open_run(DATA / "run-format-3-graph")
    assert isinstance(rows.loaded.fitted.config, Config) and isinstance(rows.loaded.data, Schema)
    assert isinstance(graph.loaded.fitted, FittedGraph) and isinstance(graph.loaded.data, Graph)
    assert type(rows) is RUNS["vae"].trained and type(graph) is RUNS["graph"].trained
    with pytest.raises(CurvaeError, match="holds a comparison, not a model"):
        open_run(DATA / "run-format-3-comparison")


def test_sources_name_the_kind_of_their_runs():
    for source, config in ((Source("t.csv"), Config), (GraphSource("e.csv"), GraphConfig)):
        assert RUNS[source.kind].fitted.settings is config and RUNS[source.kind].fitted.kind == source.kind
    assert shell_command(Source("t.csv").train_step(curvature=0.0)) == "curvae fit t.csv --curvature 0"
    assert shell_command(GraphSource("e.csv").train_step()) == "curvae graph e.csv"
    compared = shell_command(GraphSource("e.csv", label="team").compare_step())
    assert compared.split("--")[0] == "curvae compare e.csv " and {"--graph", "--label"} < set(compared.split())


def test_nothing_else_asks_for_the_kind():
    """Commands, reports and storage are written once: what depends on the kind is in its own modules."""
    asks = re.compile(r"isinstance\([^)]*(GraphSource|FittedGraph)|type\(source\)|kind_of\(|[!=]= \"graph\"")
    package = Path(curvae.__file__).parent
    known = {"runs/training.py", "training/storage.py", "runs/pages.py"}  # pages: of a diagnosis
    paths = [path for room in ("runs", "training", "estimators") for path in (package / room).rglob("*.py")]
    found = {str(path.relative_to(package)) for path in paths if asks.search(path.read_text())}
    assert found <= known
