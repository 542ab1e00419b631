"""Run folders damaged, tampered with or written by another version; files written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import pickle
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from curvae import PoincareVAE
from curvae.data.files import EXACT
from curvae.errors import CurvaeError
from curvae.training.storage import (
    json_text,
    read_json,
    read_records,
    write_bytes,
    write_json,
    write_records,
)
from make_fixtures import BEGUN, COMPARISONS, FIGURES, FOLDERS, GRAPHS, figures, fixture_table, write_data
from running import curvae, refused, snapshot

# --- the fixture ----------------------------------------------------------------------------------------------------


FOLDER = FOLDERS[-1]
FIXTURES = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("folder", [*FOLDERS, *GRAPHS], ids=lambda folder: folder.name)
def test_the_figures_of_a_fixture_are_those_of_the_version_that_wrote_it(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) < 15_000
    for name, values in json.loads(FIGURES.read_text())[folder.name].items():
        assert len(values) >= 14 and np.ptp(values) > 0
        np.testing.assert_allclose(figures(folder)[name], values, rtol=1e-6, err_msg=name)


@FIXTURES
def test_a_fixture_loads_and_says_the_same_as_when_it_was_written(folder):
    tensors = {"model.safetensors", "embedding.safetensors"}
    assert files(folder) == {"config.json", "embedding.csv", "metrics.jsonl", *tensors}
    model = PoincareVAE.load(folder)
    table, written = fixture_table(colour=True), pd.read_csv(folder / "embedding.csv", **EXACT)
    assert written["id"].tolist() == table["name"].tolist() and written["label"].tolist() == table["kind"].tolist()
    x = table[["a", "b", "c", "colour"]]
    np.testing.assert_array_equal(model.embedding_, written[["ball_1", "ball_2"]])
    np.testing.assert_allclose(model.transform(x), model.embedding_, rtol=1e-9, atol=1e-12)
    assert model.likelihood_ == "mixed" and model.hidden == (4,)
    assert model.curvature == 0.7 != model.curvature_ and model.advanced["learn_curvature"]
    assert [record["epoch"] for record in model.history_] == [1, 2, 3]
    assert model.feature_names_in_.tolist() == list(x)
    # In original units: columns differ by factors of 10.
    spread = pd.DataFrame(model.sample(500)).iloc[:, :3].to_numpy(float).std(0)
    assert 5 < spread[1] / spread[0] < 20 and 5 < spread[2] / spread[1] < 20
    assert np.isfinite(model.score_samples(x)).all()


@FIXTURES
def test_a_fixture_through_the_command_line(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fixture_table(colour=True).to_csv("table.csv", index=False)
    before = snapshot(folder)
    assert curvae("embed", folder, "table.csv", "-q").code == 0
    found, written = pd.read_csv("table-embedding.csv"), pd.read_csv(folder / "embedding.csv")
    pd.testing.assert_frame_equal(found.drop(columns="split"), written.drop(columns="split"), rtol=1e-9)
    parts = curvae("evaluate", folder, "table.csv", "--samples", "20", "--json").json["parts"]
    assert {name: part["rows"] for name, part in parts.items()} == {"train": 22, "validation": 2}
    assert snapshot(folder) == before


@pytest.mark.parametrize("folder", GRAPHS, ids=lambda folder: folder.name)
def test_a_fixture_of_a_graph_through_the_command_line(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    before = snapshot(folder)
    assert curvae("embed", folder, "edges.csv", "--nodes", "nodes.csv", "-q").code == 0
    found, written = pd.read_csv("edges-embedding.csv"), pd.read_csv(folder / "embedding.csv")
    pd.testing.assert_frame_equal(found.drop(columns="split"), written.drop(columns="split"), rtol=1e-9)
    assert curvae("evaluate", folder, "edges.csv", "--json").json["parts"]["train"]["edges"] == 14
    assert curvae("view", folder, "-q").code == 0
    assert snapshot(folder) == before


@pytest.mark.parametrize("folder", BEGUN, ids=lambda folder: folder.name)
def test_a_fixture_of_an_interrupted_training_goes_on(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    shutil.copytree(folder, "run")
    refused("embed", "run", "table.csv", says=["run is not finished"])
    refused("fit", "table.csv", "-o", "run", "--resume", "--set", "beta=0.5", says=["--set beta=1, not 0.5"])
    found = curvae("fit", "table.csv", "-o", "run", "--resume", "--json")
    assert found.code == 0, found.err
    (whole,) = [other for other in FOLDERS if other.name == folder.name.replace("begun", "categorical")]
    records, expected = (read_records(place / "metrics.jsonl") for place in (Path("run"), whole))
    assert records[:2] == read_records(folder / "metrics.jsonl") and len(records) == 3
    for name in expected[-1].keys() - {"seconds"}:
        assert records[-1][name] == pytest.approx(expected[-1][name], rel=1e-5)


@pytest.mark.parametrize("folder", COMPARISONS, ids=lambda folder: folder.name)
def test_a_fixture_of_a_comparison_is_not_trained_again(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    shutil.copytree(folder, "run")
    with mock.patch("curvae.training.stacks._Training.epoch", side_effect=AssertionError):
        found = curvae("compare", "table.csv", "-o", "run", "--resume", "--json", "--jobs", "1")
    assert found.code == 0, found.err
    stored = read_json(folder / "comparison.json")
    assert found.json["outcome"] == stored["outcome"]
    assert found.json["gain"] == pytest.approx(stored["gain"], rel=1e-4)


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fixture_table().to_csv("table.csv", index=False)
    return shutil.copytree(FOLDER, tmp_path / "run").relative_to(tmp_path)


def every_use_is_refused(run, *says):
    """By every command that reads a model, and by the estimator, with nothing written."""
    before = snapshot(Path())
    for words in (("embed", run, "table.csv"), ("sample", run), ("evaluate", run, "table.csv", "--samples", "2")):
        refused(*words, says=says)
    with pytest.raises(CurvaeError) as caught:
        PoincareVAE.load(run)
    assert "\n" not in str(caught.value) and all(part in str(caught.value) for part in says)
    assert snapshot(Path()) == before


def edit(run, change):
    path = run / "config.json"
    description = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(description) or description), encoding="utf-8")


def sign(run):
    """What someone who means harm can do too: the checksum is no signature."""
    for name in ("model", "embedding"):
        digest = hashlib.sha256((run / f"{name}.safetensors").read_bytes()).hexdigest()
        edit(run, lambda d, name=name, digest=digest: d.update({f"{name}_sha256": digest}))


TENSORS = pytest.mark.parametrize("name", ["model.safetensors", "embedding.safetensors"])


@TENSORS
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_truncated_weights(run, name, share):
    content = (run / name).read_bytes()
    (run / name).write_bytes(content[: int(len(content) * share)])
    every_use_is_refused(run, f"{name} is damaged", "train again")


@TENSORS
def test_one_flipped_bit_in_the_weights(run, name):
    content = bytearray((run / name).read_bytes())
    content[-5] ^= 1
    (run / name).write_bytes(content)
    every_use_is_refused(run, f"{name} is not the file that was written", "checksum differs", "train again")


def test_the_model_alone_is_in_its_file(run):
    model, places = (load_file(run / f"{name}.safetensors") for name in ("model", "embedding"))
    assert {name.split(".")[0] for name in model} == {"model", "scaling"}
    assert {name: (t.dtype, len(t)) for name, t in places.items()} == {
        "space": (torch.float64, 24),
        "sigma": (torch.float64, 24),
        "split": (torch.int8, 24),
    }
    np.testing.assert_array_equal(PoincareVAE.load(run)._embedding.space, places["space"])


def test_missing_files(run):
    for name in ("metrics.jsonl", "embedding.safetensors", "model.safetensors", "config.json"):
        (run / name).unlink()
        every_use_is_refused(run, name)
    shutil.rmtree(run)
    every_use_is_refused(run, "not a folder")


def test_a_pickle_in_place_of_the_weights_is_not_opened(run):
    class Harm:
        def __reduce__(self):
            return Path.touch, (Path("harmed"),)

    for content in (pickle.dumps(Harm()), b"PK\x03\x04" + bytes(100)):
        (run / "model.safetensors").write_bytes(content)
        sign(run)
        every_use_is_refused(run, "damaged")
    torch.save({"model": Harm()}, run / "model.safetensors")
    sign(run)
    every_use_is_refused(run, "damaged")
    (run / "model.pkl").write_bytes(pickle.dumps(Harm()))
    shutil.copy(FOLDER / "model.safetensors", run)
    sign(run)
    PoincareVAE.load(run)
    assert not Path("harmed").exists()


@pytest.mark.parametrize(
    ("file", "name"),
    [("model", "model.posterior.head.weight"), ("model", "scaling.scale"), ("embedding", "space")],
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite(run, file, name, value):
    path = run / f"{file}.safetensors"
    tensors = load_file(path)
    tensors[name].view(-1)[-1] = value
    save_file(tensors, path)
    sign(run)
    every_use_is_refused(run, f"{path.name} is damaged", f"tensor '{name}' holds numbers that are not finite")


def test_weights_of_a_type_that_is_not_computed_with(run):
    tensors = load_file(run / "model.safetensors")
    tensors["scaling.scale"] = tensors["scaling.scale"].to(torch.float8_e4m3fn)
    save_file(tensors, run / "model.safetensors")
    sign(run)
    every_use_is_refused(run, "model.safetensors is damaged")


def test_weights_of_another_shape(run):
    name = "model.posterior.head.weight"
    for file, change in (
        ("model", {name: lambda t: t[:-1].contiguous()}),
        ("model", {"scaling.shift": None}),
        ("embedding", {"split": lambda t: t.reshape(-1, 1).clone(), "space": None}),
    ):
        path = run / f"{file}.safetensors"
        whole = load_file(path)
        changed = {key: change.get(key, torch.Tensor.clone)(t) for key, t in whole.items() if change.get(key, 1)}
        save_file(changed, path)
        sign(run)
        every_use_is_refused(run, "does not hold a whole run", "train again")
        save_file(whole, path)


@pytest.mark.parametrize("text", ["", "{", "not json", "[1, 2]", "null", '"text"', "[" * 100_000, "\xff\xfe"])
def test_garbage_for_a_description(run, text):
    (run / "config.json").write_text(text, encoding="latin-1")
    every_use_is_refused(run, "config.json", "train again")
    refused("fit", "table.csv", "-o", run, "--resume", says=["config.json"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(format=4), ["newer Curvae", "format 4", "pip install --upgrade curvae"]),
        (lambda d: d.update(format=2), ["run was written in format 2; only format 3 is supported: train it again"]),
        (lambda d: d.update(format=1), ["run was written in format 1; only format 3 is supported: train it again"]),
        (lambda d: d.update(format="1"), ["not the description of a run"]),
        (lambda d: d.update(format=True), ["not the description of a run"]),
        (lambda d: d.update(format=0), ["not the description of a run"]),
        (lambda d: d.update(kind=None), ["not a model"]),
        (
            lambda d: {k: v for k, v in d.items() if k != "model_sha256"},
            ["not finished", "finish it with: curvae fit "],
        ),
        (lambda d: d.update(model_sha256=None), ["checksum"]),
        (lambda d: d.update(config=None), ["whole run"]),
        (lambda d: d.update(data=3), ["whole run"]),
        (lambda d: d["data"].pop("schema") and None, ["schema"]),
        (lambda d: d["data"]["schema"].update(columns=[]), ["whole run", "features"]),
        (lambda d: d["data"]["schema"]["columns"].append({"name": "z", "fill": 0}), ["whole run", "features"]),
        (lambda d: d["config"]["networks"].update(hidden=[10**9]), ["1000000000", "larger than the file"]),
        (lambda d: d["config"]["space"].update(dim=10**12), ["larger than the file"]),
        (lambda d: d["config"]["networks"].update(hidden=[4] * 5000), ["larger than the file"]),
        (lambda d: d["config"]["networks"].update(hidden="4"), ["hidden"]),
        (lambda d: d["config"]["networks"].update(hidden=[5]), ["whole run"]),
        (lambda d: d["config"]["space"].update(dim=2.0), ["dim"]),
        (lambda d: d["config"]["space"].update(curvature="steep"), ["curvature", "'steep'"]),
        (lambda d: d["config"]["space"].update(curvature=1e300), ["lower the curvature"]),
        (lambda d: d["config"]["likelihood"].update(likelihood="auto"), ["likelihood"]),
        (lambda d: d["config"]["likelihood"].update(likelihood="categorical"), ["whole run"]),
        (lambda d: d["config"]["space"].update(learn_curvature=1), ["must be true or false, got 1"]),
        (lambda d: d["config"].update(depth=3), ["unknown settings: depth"]),
        (lambda d: d["config"]["space"].update(dims=3), ["unknown settings: space.dims; did you mean dim?"]),
        (lambda d: d["config"].update(space=[2, 1.0]), ["space", "must be a text"]),
        (lambda d: d.update(embedding_sha256=None), ["embedding.safetensors", "checksum"]),
    ],
)
def test_descriptions_that_someone_edited(run, change, says):
    edit(run, change)
    every_use_is_refused(run, *says)


@pytest.mark.parametrize(
    "lines", ["", "[]\n", "{}\n", "{\n", '{"epoch": "one"}\n', '{"epoch": 1, "kl": 2}\n', "null\n"], ids=range(7)
)
def test_records_that_someone_edited(run, lines):
    (run / "metrics.jsonl").write_text(lines)
    every_use_is_refused(run, "metrics.jsonl", "train again")


@pytest.mark.parametrize("extra", [5, {"output": "sphere"}, {"importance_samples": "many"}, {"importance_samples": 0}])
def test_parameters_of_the_estimator_that_someone_edited(run, extra):
    edit(run, lambda d: d.update(estimator=extra))
    with pytest.raises(CurvaeError):
        PoincareVAE.load(run)


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "figures.json"
    write_json(path, {"a": 1})
    for target in ("os.fsync", "pathlib.Path.replace", "pathlib.Path.open"):
        error = OSError(errno.ENOSPC, "No space left on device")
        with mock.patch(target, side_effect=error), pytest.raises(CurvaeError, match="No space left on device"):
            write_json(path, {"a": 2})
        assert snapshot(tmp_path) == {"figures.json": b'{\n  "a": 1\n}\n'}


def test_a_write_makes_its_folder_or_says_why_not(tmp_path):
    write_bytes(tmp_path / "a" / "b" / "c.txt", b"x")
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"x"
    with pytest.raises(CurvaeError, match="cannot write"):
        write_bytes(tmp_path / "a/b/c.txt/d", b"x")
    with pytest.raises(CurvaeError, match="cannot write .*: Is a directory"):
        write_bytes(tmp_path / "a", b"x")


def test_numbers_survive_the_files(tmp_path):
    values = {"pi": np.pi, "tiny": 5e-324, "text": "Poincaré ≠ ⟂", "nothing": None, "list": [1, 2.5]}
    write_json(tmp_path / "a.json", values)
    assert read_json(tmp_path / "a.json") == values
    records = [{"epoch": 1, "elbo": -1 / 3}, {"epoch": 2, "elbo": 1e-17}]
    write_records(tmp_path / "m.jsonl", records)
    assert read_records(tmp_path / "m.jsonl") == records
    assert json.loads(json_text({"a": [np.nan, np.inf, (1.0,)]})) == {"a": [None, None, [1.0]]}
