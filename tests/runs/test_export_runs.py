"""`curvae export`: a run for other programs, with what they must know of its columns."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch

from curvae.training.storage import load_fitted
from running import SMALL, curvae, refused, untouched


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run():
    """A table with gaps, which are filled in, a column of categories and two covariates."""
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(60, 3)) * [1, 5, 100] + [0, 50, 0], columns=["a", "b", "c"])
    table["colour"], table["batch"] = random.choice(["red", "blue"], 60), random.choice(["x", "y"], 60)
    table["age"] = random.uniform(20, 80, 60)
    table.loc[[3, 7], "b"] = np.nan
    table.to_csv("cells.csv", index=False)
    words = ("--categorical", "colour", "--covariate", "batch", "--covariate", "age", "--set", "encode_covariates=yes")
    assert curvae("fit", "cells.csv", *words, "--missing", "mean", "-o", "run", "-q", *SMALL).code == 0
    return table


@pytest.mark.filterwarnings("ignore:`isinstance\\(treespec:FutureWarning")  # of torch itself, while it loads
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.compiled
def test_programs_take_the_columns_that_the_interface_names(run):
    found = curvae("export", "run", "--torch", "-o", "out", "--json")
    assert found.code == 0, found.err
    assert [Path(path).name for path in found.json["files"]] == ["encoder.pt2", "decoder.pt2", "interface.json"]
    interface = json.loads(Path("out/interface.json").read_text(encoding="utf-8"))
    assert interface["features"] == ["a", "b", "c", "colour=blue", "colour=red"]
    assert interface["covariates"] == ["batch=x", "batch=y", "age"] and interface["exposure"] is None
    assert interface["missing"] == "nan, filled in"
    assert interface["graphs"]["encoder"] == {"inputs": {"x": 5, "context": 3}, "outputs": ["space", "ball"]}
    # Whoever has only the interface makes the inputs of it, in the units of the table.
    coded = pd.get_dummies(run, columns=["colour", "batch"], prefix_sep="=", dtype=float)
    x, context = (
        torch.from_numpy(coded[interface[names]].to_numpy(np.float64)) for names in ("features", "covariates")
    )
    encoder, decoder = (torch.export.load(f"out/{name}.pt2").module() for name in ("encoder", "decoder"))
    with torch.no_grad():
        space, ball = encoder(x=x, context=context)
        mean = decoder(space=space, context=context)
    own = pd.read_csv("run/embedding.csv")[["ball_1", "ball_2"]].to_numpy()
    np.testing.assert_allclose(ball.numpy(), own, rtol=1e-5, atol=1e-6)
    age = run["age"]
    told = coded[interface["covariates"]].assign(age=(age - age.mean()) / age.std(ddof=0)).to_numpy(np.float64)
    expected = load_fitted(Path("run")).fitted.reconstruct(space.numpy(), context=told)
    np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_exported_is_refused(run):
    untouched("export", "run", says=["choose what to write with --onnx, --torch or both"])
    Path("taken").write_text("")
    untouched("export", "run", "--torch", "-o", "taken", says=["taken is a file", "-o"])
    Path("out").mkdir()
    Path("out/decoder.pt2").write_text("")
    untouched("export", "run", "--torch", "-o", "out", says=["out/decoder.pt2 exists", "--force"])
    with mock.patch("curvae.training.portable.find_spec", return_value=None):
        untouched("export", "run", "--onnx", says=["pip install onnx"])


def test_a_graph_is_refused():
    Path("edges.csv").write_text("a,b\n" + "".join(f"n{i},n{(i * 7 + 1) % 12}\n" for i in range(12)))
    assert (
        curvae("graph", "edges.csv", "-o", "run", "-q", "--epochs", "1", "--splits", "0", "--set", "hidden=4").code == 0
    )
    refused("export", "run", "--torch", says=["a model of a graph", "give a run of curvae fit"])
