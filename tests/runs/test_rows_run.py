"""Runs on tables: what they print and write, on rows in memory and on rows on disk."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from scipy.sparse import csr_array, save_npz
from sklearn.base import clone

from curvae import PoincareVAE
from curvae.cli.console import console_reporter
from curvae.cli.options import typed_options
from curvae.data import disk, load, memory
from curvae.data.files import EXACT
from curvae.errors import CurvaeError
from curvae.hierarchy import explain
from curvae.models import marginal_likelihood
from curvae.runs import Reporter, Source, diagnosing, training
from curvae.runs.training import _beaten, choose_test_share, report_samples
from curvae.training import Config, Scaling, embed, fit as fit_model, random_split, stacks, storage
from curvae.training.engine import BatchEngine
from curvae.training.fitted import likelihoods
from curvae.training.storage import load_fitted
from disk_data import COLUMNS, MEMORY, mixed_table, numbered, write_parquet, write_parts
from running import SMALL, config, curvae, refused, settings, snapshot, untouched, write_table

FILES = {
    "checkpoint/state.safetensors",
    "config.json",
    "curves.png",
    "embedding.csv",
    "embedding.safetensors",
    "map.png",
    "metrics.jsonl",
    "model.safetensors",
    "report.html",
}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fit(*words, **how):
    found = curvae("fit", *words, *SMALL, **how)
    assert found.code == 0, found.err
    return found


def same_table(found, expected):
    """To the last bit."""
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


# --- the run folder -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with real pictures, started with absolute paths."""
    home = tmp_path_factory.mktemp("whole")
    table = write_table(home / "cells.csv", kind=list("xyz⟂") * 10, name=[f"cell{i}" for i in range(39, -1, -1)])
    options = ("--label", "kind", "--id", "name", f"--output={home / 'run'}", "--seed", "5")
    fit(table, *options, "--batch-size", "8", pictures=True)
    return home


def test_contents_of_a_run_folder(whole):
    found = {name for name, content in snapshot(whole / "run").items() if content is not None}
    assert found == FILES
    stored = config(whole / "run")
    assert stored["format"] == 3 and stored["kind"] == "vae" and stored["seed"] == 5
    assert set(stored["versions"]) == {"curvae", "torch", "numpy", "python"}
    assert re.fullmatch("[0-9a-f]{64}", stored["data"]["fingerprint"])
    assert stored["data"]["rows"] == 40 and stored["data"]["features"] == 3
    assert stored["config"]["likelihood"]["likelihood"] == "gaussian" and "0 or 1" in stored["likelihood_reason"]
    assert stored["config"]["training"]["batch_size"] == 16 and stored["config"]["training"]["epochs"] == 2
    assert stored["source"]["name"] == "cells.csv" and stored["source"]["label"] == "kind"
    lines = (whole / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]
    for name in ("map.png", "curves.png"):
        assert (whole / "run" / name).read_bytes().startswith(b"\x89PNG")


def test_embedding_is_in_input_order_and_in_full_precision(whole):
    table = pd.read_csv(whole / "run/embedding.csv", **EXACT)
    names = ["id", "label", "split", "ball_1", "ball_2", "tangent_1", "tangent_2", "radius", "sigma"]
    names += ["map_1", "map_2"]
    assert list(table.columns) == names
    cells = pd.read_csv(whole / "cells.csv", **EXACT)
    assert table["id"].tolist() == cells["name"].tolist() and table["label"].tolist() == cells["kind"].tolist()
    assert table["split"].value_counts().to_dict() == {"train": 36, "validation": 4}
    model = PoincareVAE.load(whole / "run")
    points = model.transform(cells[["a", "b", "c"]])
    np.testing.assert_array_equal(table[["ball_1", "ball_2"]], model.embedding_)
    np.testing.assert_array_equal(points, model.embedding_)
    np.testing.assert_array_equal(
        table[["tangent_1", "tangent_2"]], model.set_params(output="tangent").transform(cells[["a", "b", "c"]])
    )
    np.testing.assert_allclose(table["radius"], np.linalg.norm(table[["tangent_1", "tangent_2"]], axis=1), rtol=1e-12)
    assert (table["sigma"] > 0).all()


def test_nothing_in_the_folder_knows_where_it_lies(whole):
    for name, content in snapshot(whole / "run").items():
        assert content is None or str(whole).encode() not in content, name
        assert content is None or str(Path.home()).encode() + b"/" not in content, name
    assert config(whole / "run")["command"].startswith("curvae fit cells.csv --label kind --id name --output=run")


def test_no_pickle_in_the_folder(whole):
    for name, content in snapshot(whole / "run").items():
        assert content is None or not content.startswith((b"\x80", b"PK")), name


def test_report_is_self_contained(whole):
    page = (whole / "run/report.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/png;base64,') == 4
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:|https://|#)""", page)
    # Of scripts there is the one that moves the map, and blocks of its data.
    assert not re.search(
        r"""<script\b[^>]*src|<iframe\b|<link[^>]*http|src\s*=\s*["']http|@import|url\(["']?http""", page
    )
    # Verdict, next command with its options, exact command, seed.
    for text in ("nats a row", "curvae compare cells.csv --label kind --id name", "--seed 5", "Mathieu"):
        assert text in page, text


def test_embed_of_the_training_rows_is_the_embedding(whole, tmp_path):
    assert curvae("embed", whole / "run", whole / "cells.csv", "-o", tmp_path / "e.csv").code == 0
    found, trained = pd.read_csv("e.csv"), pd.read_csv(whole / "run/embedding.csv")
    same_table(found.drop(columns="split"), trained.drop(columns="split"))


def test_rows_without_a_finite_place_or_likelihood_are_named(whole):
    table = pd.read_csv(whole / "cells.csv")
    table.loc[[1, 30], "b"] = 1e300, -1e200
    table.to_csv("extreme.csv", index=False)
    for what, words in (("embedding", ()), ("likelihood", ("--samples", "5", "-q"))):
        command = "evaluate" if words else "embed"
        says = [f"the {what} is not finite for 2 rows: 'cell38', 'cell9'; correct extreme values there"]
        refused(command, whole / "run", "extreme.csv", *words, says=says)
    assert not Path("extreme-embedding.csv").exists()


def test_evaluation_by_part_in_both_units_and_by_seed(whole):
    words = ("evaluate", whole / "run", whole / "cells.csv", "--json", "--samples")
    found = curvae(*words, 2000).json
    assert found["samples"] == 2000 and {name: p["rows"] for name, p in found["parts"].items()} == {
        "train": 36,
        "validation": 4,
    }
    x = pd.read_csv(whole / "cells.csv")[["a", "b", "c"]]
    for part in found["parts"].values():
        difference = part["log_likelihood_original_units"] - part["log_likelihood"]
        assert difference == pytest.approx(-np.log(x.std(ddof=0)).sum())
        assert 1 <= part["median_effective_sample_size"] <= 2000 and part["median_standard_error"] > 0
    # The estimator draws other noise, the same for all rows, and this model was hardly trained.
    train = (pd.read_csv(whole / "run/embedding.csv")["split"] == "train").to_numpy()
    score = PoincareVAE.load(whole / "run").set_params(advanced={"importance_samples": 2000}).score(x[train])
    assert score == pytest.approx(found["parts"]["train"]["log_likelihood_original_units"], abs=0.6)
    assert curvae(*words, 50).json == curvae(*words, 50).json != curvae(*words, 50, "--seed", 1).json


# --- what is printed ------------------------------------------------------------------------------------------------


def test_each_command_prints_the_next_one_and_that_works():
    write_table(Path("my cells.csv"), kind=["x", None] * 20)
    typed = ["--label", "kind", *SMALL]
    words = ["fit", "my cells.csv", *typed, "-o", "my run"]
    seen = []
    for _ in range(4):
        found = curvae(*words)
        assert found.code == 0, found.err
        seen.append(words[0])
        lines = [line for line in found.out.splitlines() if line.startswith("next: curvae ")]
        assert len(lines) == (len(seen) < 4)  # after a picture there is nothing more to see
        words = shlex.split(lines[0], comments=True)[2:] if lines else []
        if len(seen) == 1:
            # What is compared is what was trained: the settings go along.
            assert words[0] in ("fit", "compare") and words[1:4] == ["my cells.csv", "--label", "kind"]
            assert set(words[4:]) <= set(SMALL) and "--hidden" in words
            words = ["embed", "my run", "my cells.csv", "-o", "e.csv"]
    assert seen == ["fit", "embed", "view", "view"]


def test_default_folders_are_numbered():
    write_table(Path("cells.v2.csv"))
    for n in (1, 2):
        assert fit("cells.v2.csv", "--json").json["run"] == f"runs/cells-{n}"
    assert snapshot(Path("runs/cells-1"))["model.safetensors"] == snapshot(Path("runs/cells-2"))["model.safetensors"]


def test_json_is_all_there_is_on_the_output():
    write_table(Path("t.csv"), number=range(40))
    found = fit("t.csv", "-o", "run", "--json")
    assert found.err == "" and found.json["run"] == "run"
    stored = config()["summary"]
    assert {name: value for name, value in found.json.items() if name != "run"} == stored
    assert any("identifier" in text for text in stored["warnings"])
    for words in (("embed", "run", "t.csv"), ("sample", "run"), ("evaluate", "run", "t.csv", "--samples", "5")):
        found = curvae(*words, "--json")
        assert found.code == 0 and found.err == "" and isinstance(found.json, dict)


def test_quiet_is_silent():
    write_table(Path("t.csv"))
    assert fit("t.csv", "-o", "run", "--quiet").out == ""
    for words in (("embed", "run", "t.csv"), ("sample", "run"), ("evaluate", "run", "t.csv", "--samples", "5")):
        found = curvae(*words, "-q")
        assert (found.code, found.out, found.err) == (0, "", "")


def test_progress_and_choice_are_told():
    write_table(Path("t.csv"))
    found = fit("t.csv", "-o", "run")
    assert "likelihood gaussian: not all values are 0 or 1" in found.err
    assert re.search(r"training .* 2/2 .* ELBO \S+ +rec \S+ +KL \S+ +c 1", found.err)
    assert found.out.splitlines()[:2] == ["report: run/report.html", "embedding: run/embedding.csv"]


def test_progress_bars_show_the_time_that_is_left(monkeypatch, capsys):
    """From all steps of this run, also where each takes longer than a minute."""
    now = [100.0]
    monkeypatch.setattr("rich.console.monotonic", lambda: now[0])
    with console_reporter(False, str, lambda command: None) as reporter:
        reporter.progress("training", 12, 25, "")  # what a resumed run starts from
        for done in (13, 14):
            now[0] += 70
            reporter.progress("training", done, 25, "")
    assert re.search(r"training .* 14/25 0:02:20 0:12:50", capsys.readouterr().err)


@pytest.mark.parametrize("more", [(), ("--repeats", "3")], ids=["one", "three"])
def test_the_time_that_is_left_of_a_training_is_shown(more, monkeypatch):
    """A second a step and six steps an epoch; two of the four epochs are left when it is interrupted."""
    now, step = [0.0], BatchEngine.descend

    def slow(self, *given):
        now[0] += 1
        if now[0] == 14:
            raise KeyboardInterrupt
        return step(self, *given)

    monkeypatch.setattr(BatchEngine, "descend", slow)
    monkeypatch.setattr("rich.console.monotonic", lambda: now[0])
    monkeypatch.setattr("joblib.cpu_count", lambda: 1)
    write_table(Path("t.csv"), rows=400)
    sizes = ("--epochs", "4", "--batch-size", "60", "--hidden", "8", "--set", "posterior=wrapped")
    found = curvae("fit", "t.csv", "-o", "run", *more, *sizes)
    assert re.search(r"training .* (2/4|6/12) \S+ 0:00:12 ", found.err), found.err


def test_one_training_row_has_no_interval():
    write_table(Path("t.csv"), rows=2)
    found = fit("t.csv", "-o", "run", "--set", "validation=0.5", "--json")
    assert found.json["log_likelihood_interval"] is None and np.isfinite(found.json["log_likelihood"])
    assert "nan" not in Path("run/config.json").read_text().lower()
    shown = curvae("evaluate", "run", "t.csv", "--samples", "5")
    assert "±" not in shown.out and "nan" not in shown.out


# --- options --------------------------------------------------------------------------------------------------------


def test_every_option_reaches_the_model():
    write_table(Path("t.csv"))
    given = {
        "dim": 3,
        "curvature": 0.5,
        "posterior": "wrapped",
        "prior-scale": 1.3,
        "decoder": "mobius",
        "hidden": "6,5",
        "likelihood": "unit_gaussian",
        "beta": 0.5,
        "epochs": 3,
        "batch-size": 7,
        "learning-rate": 0.002,
        "validation": 0.2,
        "patience": 3,
        "seed": 11,
    }
    words = typed_options({name.replace("-", "_"): value for name, value in given.items()}, "fit")
    assert curvae("fit", "t.csv", "-o", "run", "-q", "--set", "diagonal=yes", "--device", "cpu", *words).code == 0
    stored = settings()
    assert {name.replace("-", "_"): value for name, value in given.items()} | {"hidden": [6, 5]} == {
        name.replace("-", "_"): stored[name.replace("-", "_")] for name in given
    }
    assert stored["diagonal"] and not stored["learn_curvature"]
    assert pd.read_csv("run/embedding.csv").filter(like="ball_").shape == (40, 3)
    assert "Projected from 3 dimensions" in Path("run/report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "name"), [(("--curvature", "learn"), "c"), (("--set", "learn_prior_scale=yes"), "prior_scale")]
)
def test_learned_numbers_move_and_are_reported(words, name):
    write_table(Path("t.csv"))
    found = fit("t.csv", "-o", "run", *words, "--set", "learning_rate=0.05", "--json").json
    other = {"c": "prior_scale", "prior_scale": "c"}[name]
    assert found[name] != 1.0 and found[other] == 1.0
    assert found["identifiable"] == pytest.approx(found["c"] * found["prior_scale"] ** 2)
    model = PoincareVAE.load("run")
    assert model.identifiable_ == pytest.approx(found["identifiable"], rel=1e-6)


def test_patience_keeps_the_figures_of_the_best_epoch():
    write_table(Path("t.csv"))
    words = (
        "--patience",
        "3",
        "--set",
        "learning_rate=0.3",
        "--epochs",
        "60",
        "--curvature",
        "learn",
        "--set",
        "validation=0.3",
        "--json",
    )
    words = ("--set", "cooldown=0", "--hidden", "8", "--batch-size", "8", *words)
    found = curvae("fit", "t.csv", "-o", "run", *words).json
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    best = max(records, key=lambda record: record["validation_elbo"])
    assert len(records) == best["epoch"] + 3 < 60
    assert found["c"] == best["c"] != records[-1]["c"] and found["kl"] == best["kl"]
    assert PoincareVAE.load("run").curvature_ == pytest.approx(best["c"], rel=1e-6)


def test_the_likelihood_is_of_rows_that_chose_nothing():
    for rows, told in ((200, "test rows"), (199, "validation rows, which chose the epoch")):
        write_table(Path("t.csv"), rows=rows)
        said = fit("t.csv", "-o", "run", "--force").err
        split = pd.read_csv("run/embedding.csv")["split"].value_counts()
        assert split["validation"] == 20 and split.get("test", 0) == (20 if rows == 200 else 0)
        summary, report = config()["summary"], Path("run/report.html").read_text(encoding="utf-8")
        assert summary["log_likelihood_rows"] == told.split()[0] and f"log-likelihood of {told}" in said
        assert f"20 {told}; importance sampling" in report
        judged = curvae("evaluate", "run", "t.csv", "--samples", "500", "--json").json["parts"][told.split()[0]]
        assert judged["rows"] == 20 and judged["log_likelihood"] == pytest.approx(summary["log_likelihood"], abs=0.1)


@pytest.mark.parametrize("more", [("--patience", "never"), ("--set", "validation=0"), ("--set", "validation=0.6")])
def test_without_a_choice_there_are_no_test_rows(more):
    write_table(Path("t.csv"), rows=200)
    said = fit("t.csv", "-o", "run", *more).err
    assert "test" not in set(pd.read_csv("run/embedding.csv")["split"])
    assert ("which chose the epoch" in said) == ("validation=0.6" in more)


def test_a_run_goes_on_with_the_test_rows_that_it_was_begun_with():
    """Those of earlier versions have none."""
    begun = {"data": {"test": 0.05}}
    assert [choose_test_share(Config(), 500, before) for before in ({}, begun, {"data": {}})] == [0.1, 0.05, 0.0]
    assert choose_test_share(Config(validation=0.04), 500, {}) == 0.04


def test_the_report_says_why_neighbours_count():
    write_table(Path("t.csv"), batch=list("uv") * 20)
    for more, says in (
        ((), "neighbours both: the default in 2 dimensions"),
        (("--dim", "5"), "neighbours off: the dimension is 5, not that of a map, 2 or 3"),
        (("--covariate", "batch"), "neighbours both: the default in 2 dimensions"),
        (("--neighbours", "near"), "neighbours near: as asked"),
    ):
        words = ("--covariate", "batch") if "--covariate" in more else ("--label", "batch", *more)
        said = fit("t.csv", *words, "-o", "run", "--force").err
        kind, _, reason = says.removeprefix("neighbours ").partition(": ")
        assert says in said and f"{kind} ({reason})" in Path("run/report.html").read_text(encoding="utf-8")


def test_groups_stay_together():
    write_table(Path("t.csv"), rows=60, donor=[f"d{i % 12}" for i in range(60)])
    fit("t.csv", "--group", "donor", "-o", "run", "--set", "validation=0.3", "-q")
    split = pd.read_csv("run/embedding.csv")["split"]
    donors = pd.read_csv("t.csv")["donor"]
    assert (split.groupby(donors).nunique() == 1).all() and set(split) == {"train", "validation"}
    assert config()["data"]["features"] == 3


def test_repeats_report_stability():
    write_table(Path("t.csv"))
    found = fit("t.csv", "-o", "run", "--repeats", "3", "--json").json["stability"]
    assert found["pairs"] == 3 and found["neighbours"] == 10
    assert -1 <= found["correlation"] <= 1 and 0 <= found["overlap"] <= 1
    assert "rank correlation" in Path("run/report.html").read_text(encoding="utf-8")
    # The first training is the one that a run without repeats would be, but for the rounding of stacked products.
    fit("t.csv", "-o", "once", "-q")
    found = pd.read_csv("run/embedding.csv").drop(columns="spread")
    pd.testing.assert_frame_equal(found, pd.read_csv("once/embedding.csv"), rtol=1e-5, atol=1e-6)


# --- kinds of data --------------------------------------------------------------------------------------------------


def test_images_through_every_command():
    images = np.random.default_rng(0).integers(0, 256, size=(30, 6, 6), dtype=np.uint8)
    np.save("faces.npy", images)
    fit("faces.npy", "--likelihood", "bernoulli", "-o", "run", "-q", pictures=True)
    assert config()["data"]["shape"] == [6, 6] and any("255" in note for note in config()["data"]["notes"])
    found = curvae("sample", "run", "-n", "5", "--json", pictures=True).json["samples"]
    assert found == ["run-samples.npy", "run-samples.png"]
    drawn = np.load("run-samples.npy", allow_pickle=False)
    assert drawn.shape == (5, 6, 6) and drawn.dtype == np.float32 and set(np.unique(drawn)) <= {0.0, 1.0}
    assert Path("run-samples.png").read_bytes().startswith(b"\x89PNG")
    assert "next: curvae embed run again.npy" in curvae("sample", "run", "-n", "5", "-o", "again.npy").out
    np.testing.assert_array_equal(np.load("again.npy"), drawn)
    assert curvae("embed", "run", "again.npy", "-q").code == 0
    assert len(pd.read_csv("again-embedding.csv")) == 5
    assert curvae("evaluate", "run", "faces.npy", "--samples", "5", "-q").code == 0
    refused("sample", "run", "-o", "faces.csv", says=[".npy"])
    write_table(Path("t.csv"))
    refused("embed", "run", "t.csv", says=["images"])


def test_sparse_matrix():
    x = sparse.random(40, 12, density=0.2, random_state=0, format="csr")
    sparse.save_npz("counts.npz", x)
    np.save("dense.npy", x.toarray())
    fit("counts.npz", "-o", "run", "-q")
    fit("dense.npy", "-o", "dense", "-q")
    found, dense = (pd.read_csv(f"{name}/embedding.csv") for name in ("run", "dense"))
    pd.testing.assert_frame_equal(found, dense, rtol=1e-5, atol=1e-6)
    assert config()["data"]["fingerprint"] == config("dense")["data"]["fingerprint"]
    assert curvae("embed", "run", "counts.npz", "-q").code == 0
    assert curvae("evaluate", "run", "counts.npz", "--samples", "5", "-q").code == 0
    assert curvae("sample", "run", "-q").code == 0


def test_categories_through_every_command():
    random = np.random.default_rng(0)
    table = pd.DataFrame({"colour": random.choice(["red", "blue"], 40), "size": random.choice(["s", "m", "l"], 40)})
    table.to_csv("t.csv", index=False)
    options = ("--categorical", "colour", "--categorical", "size")
    fit("t.csv", *options, "--likelihood", "categorical", "-o", "run", "-q")
    assert config()["data"]["blocks"] == [2, 3] and config()["data"]["features"] == 5
    assert curvae("sample", "run", "-n", "20", "-q").code == 0
    drawn = pd.read_csv("run-samples.csv")
    assert list(drawn.columns) == ["colour", "size"] and set(drawn["size"]) <= {"s", "m", "l"}
    assert curvae("embed", "run", "run-samples.csv", "-q").code == 0
    assert curvae("evaluate", "run", "t.csv", "--samples", "5", "-q").code == 0
    assert "--categorical colour --categorical size" in fit("t.csv", *options, "-o", "other").out


def test_report_samples_are_in_original_units_and_repeat_by_seed():
    write_table(Path("t.csv"))
    table = pd.read_csv("t.csv") * [1.0, 1000.0, 0.001] + [0.0, 5e5, 0.0]
    table.to_csv("t.csv", index=False)
    fit("t.csv", "-o", "run", "-q")
    for name, seed in (("one.csv", 0), ("two.csv", 0), ("three.csv", 1)):
        assert curvae("sample", "run", "-n", "400", "-o", name, "--seed", seed, "-q").code == 0
    one, two, three = (pd.read_csv(name) for name in ("one.csv", "two.csv", "three.csv"))
    same_table(one, two)
    assert not one.equals(three)
    assert ((one.mean() - table.mean()).abs() < table.std()).all()
    assert ((one.std() / table.std()).between(0.5, 2)).all()


def test_constant_columns_are_left_out_with_a_note():
    write_table(Path("t.csv"), rows=19, flat=3.0)
    said = fit("t.csv", "-o", "run").err
    assert "left out: 'flat' (constant).\n" in said and "19 rows, 3 columns; " in said
    assert "warning: only 19 rows to learn from" in " ".join(said.split())
    assert config()["data"]["features"] == 3
    assert curvae("embed", "run", "t.csv", "-q").code == 0


# --- comparisons ----------------------------------------------------------------------------------------------------


def test_compare_writes_figures_and_a_report():
    write_table(Path("t.csv"), rows=60, donor=[f"d{i % 30}" for i in range(60)])
    words = ("compare", "t.csv", "--repeats", "3", "--curvatures", "1,0.3,1", "--group", "donor", "--jobs", "1", *SMALL)
    found = curvae(*words)
    assert found.code == 0, found.err
    assert "60 rows, 3 columns; 9 trainings\n" in found.err
    assert "report: runs/t-comparison-1/report.html" in found.out
    assert re.search(r"next: curvae fit t.csv --group donor .*--epochs 2 .*--curvature [\d.]+", found.out)
    folder = Path("runs/t-comparison-1")
    files = {name for name in snapshot(folder) if not name.startswith("checkpoint")}
    assert files == {"comparison.json", "config.json", "metrics.jsonl", "report.html"}
    figures = json.loads((folder / "comparison.json").read_text())
    assert figures["outcome"] in ("hyperbolic", "none", "euclidean") and figures["verdict"] in found.err.replace(
        "\n", ""
    )
    assert [list(repeat["test"]) for repeat in figures["repeats"]] == [["0.0", "1.0", "0.3"]] * 3
    assert all(repeat["pca"] is not None for repeat in figures["repeats"])
    assert str(Path.cwd()) not in (folder / "config.json").read_text()
    again = curvae(*words, "--json", "-o", "again")
    assert again.err == "" and again.json == {"folder": "again", **figures}
    for command in (("embed", folder, "t.csv"), ("evaluate", folder, "t.csv"), ("sample", folder)):
        refused(*command, says=["holds a comparison", "curvae fit"])
    refused("fit", "t.csv", "-o", folder, "--resume", says=["holds a comparison"])


def test_compare_finds_a_set_of_curvatures():
    write_table(Path("t.csv"), rows=60)
    words = ("compare", "t.csv", "--curvatures", "auto", "--jobs", "1", *SMALL, "-o", "run")
    found = curvae(*words)
    assert found.code == 0, found.err
    assert (
        "; 25 trainings: c = 0, 0.548, 1.25, 2.3, 4 in each of 5 repeats\n" in found.err and "Curvature: " in found.err
    )
    known = json.loads(Path("run/comparison.json").read_text())
    assert [point["value"] for point in known["curvature"]["profile"]] == [0, 0.548, 1.25, 2.3, 4]
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert page.count('alt="gain by curvature, and the set of the best"') == 1 and "over 0 on test rows" in page
    assert json.loads(Path("run/config.json").read_text())["curvatures"] == "auto"
    again = curvae(*words, "--resume", "--json")
    assert again.json == {"folder": "run", **known}
    untouched(*words[:3], "1", *words[4:], "--resume", says=["--curvatures auto, not 1.0"])


def test_too_few_rows_to_compare():
    write_table(Path("t.csv"), rows=8)
    refused("compare", "t.csv", says=["8 rows are too few", "20 rows"])
    write_table(Path("t.csv"), rows=60, donor=["d1", "d2"] * 30)
    refused("compare", "t.csv", "--group", "donor", says=["too few", "groups"])
    assert not Path("runs").exists()


def test_demo_in_small():
    from curvae.data import branching_diffusion, flat
    from curvae.training import Config

    small = {
        "_DEMO_CONFIG": Config(hidden=(8,), epochs=2),
        "branching_diffusion": lambda seed: branching_diffusion(dim=5, depth=3, seed=seed),
        "flat": lambda seed: flat(75, 5, seed),
    }
    with mock.patch.multiple("curvae.runs.training", **small):
        found = curvae("demo", "--quick", "--json")
        assert found.code == 0 and found.err == ""
        assert set(found.json) == {"report", "a branching diffusion", "flat data"}
        page = Path("demo/report.html").read_text(encoding="utf-8")
        assert page.count('src="data:image/png;base64,') == 4 and "No detectable difference" in page
        assert "these figures mean little" in page
        again = curvae("demo", "--quick", "--seed", "0")  # over itself
    assert again.code == 0 and "report: demo/report.html" in again.out and "next: curvae fit" in again.out
    assert "these figures mean little" in again.err


# --- the data room through the same door ----------------------------------------------------------------------------


def test_a_run_knows_how_its_data_were_read():
    write_table(Path("t.csv"), kind=list("xy") * 20)
    fit("t.csv", "--label", "kind", "-o", "run", "-q")
    stored = config()["data"]
    assert stored["fingerprint"] == load("t.csv", label="kind")[0].fingerprint
    assert stored["schema"]["label"] == "kind" and [c["name"] for c in stored["schema"]["columns"]] == ["a", "b", "c"]


def test_a_table_in_which_nothing_varies_is_refused():
    Path("same.csv").write_text("a,b\n" + "1,2\n" * 30)
    refused("fit", "same.csv", says=["nothing varies", "same.csv"])
    assert not Path("runs").exists()


def test_report_samples_of_a_table_are_no_array():
    write_table(Path("t.csv"))
    fit("t.csv", "-o", "run")
    refused("sample", "run", "-o", "x.npy", says=["x.npy should end in .csv", "-o"])
    refused("embed", "run", "t.csv", "-o", "x.npy", says=["x.npy should end in .csv", "-o"])


# --- missing values as in the run, units, constant columns -----------------------------------------------------------


def fit_quietly(*words):
    found = curvae("fit", *words, "-o", "run", "-q", *SMALL)
    assert found.code == 0, found.err


# --- the width of a single layer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [5, np.int64(5)])
def test_a_number_is_the_width_of_one_layer(width, tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 3))
    settings = {"epochs": 1, "random_state": 0, "device": "cpu"}
    found, expected = (PoincareVAE(hidden=hidden, **settings).fit(x) for hidden in (width, (5,)))
    assert np.array_equal(found.embedding_, expected.embedding_)
    assert found.hidden is width and clone(found).hidden == 5  # stored as given
    found.save(tmp_path / "run")
    assert PoincareVAE.load(tmp_path / "run").hidden == (5,)


@pytest.mark.parametrize("width", [0, -3, True, 2.5, "9"])
def test_numbers_that_are_no_width(width):
    with pytest.raises(CurvaeError, match="`hidden` must hold one or more positive widths"):
        PoincareVAE(hidden=width, epochs=1).fit(np.eye(4))


# --- missing values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "rows"), [("mean", 40), ("drop", 38)])
def test_new_data_are_treated_as_those_of_the_run(missing, rows):
    table = pd.read_csv(write_table(Path("t.csv")))
    table.loc[[3, 5], "a"] = np.nan
    table.to_csv("t.csv", index=False)
    fit_quietly("t.csv", "--missing", missing)
    found = curvae("embed", "run", "t.csv", "-o", "new.csv")
    assert found.code == 0, found.err
    assert "'a' (2)" in found.err  # and it is said
    columns = ["ball_1", "ball_2"]
    new, trained = (pd.read_csv(path)[columns] for path in ("new.csv", "run/embedding.csv"))
    assert len(new) == rows
    pd.testing.assert_frame_equal(new, trained)
    parts = curvae("evaluate", "run", "t.csv", "--samples", "5", "--json").json["parts"]
    assert sum(part["rows"] for part in parts.values()) == rows
    # Another word is obeyed, and goes on into the next command.
    (line,) = [line for line in found.out.splitlines() if line.startswith("next: ")]
    assert shlex.split(line)[1:] == ["curvae", "view", "run", "--rows", "t.csv"]
    other = {"mean": "drop", "drop": "mean"}[missing]
    found = curvae("embed", "run", "t.csv", "-o", "other.csv", "--missing", other)
    assert len(pd.read_csv("other.csv")) == 78 - rows and f"run --rows t.csv --missing {other}" in found.out
    assert curvae("evaluate", "run", "t.csv", "--missing", "error").code == 2


def test_a_run_without_a_word_on_missing_values_refuses_them():
    PoincareVAE(epochs=1, hidden=4, random_state=0).fit(pd.read_csv(write_table(Path("t.csv")))).save("saved")
    Path("new.csv").write_text("a,b,c\n1,,2\n3,4,5\n")
    found = curvae("embed", "saved", "new.csv")
    assert found.code == 2 and found.err.endswith("; run this:\ncurvae embed saved new.csv --missing mean\n")
    description = json.loads(Path("saved/config.json").read_text())
    for source in ({"missing": "perhaps"}, {"missing": 5}):
        Path("saved/config.json").write_text(json.dumps({**description, "source": source}))
        found = curvae("embed", "saved", "new.csv")
        assert found.code == 2 and "missing is" in found.err


# --- constant columns -----------------------------------------------------------------------------------------------


def with_constants(rows=40):
    """A column of 0.1, whose mean is not quite 0.1, one of 0 and one that varies."""
    x = np.random.default_rng(0).normal(size=(rows, 4))
    x[:, 1], x[:, 2] = 0.1, 0.0
    return x


@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_array], ids=["float64", "float32", "sparse"])
def test_constant_columns_are_known_to_the_scaling(form):
    x = form(with_constants(30)) if form is not np.float32 else with_constants(30).astype(np.float32)
    scaling = Scaling.standard(x)
    dense = x.toarray() if sparse.issparse(x) else x
    assert scaling.constant.tolist() == [False, True, True, False]
    assert scaling.scale[1:3].tolist() == [1.0, 1.0] and np.array_equal(scaling.shift[1:3], dense[0, 1:3])
    assert (scaling.apply(dense)[:, 1:3] == 0).all()
    back = scaling.invert(np.random.default_rng(1).normal(size=(5, 4)))
    assert (back[:, 1:3] == dense[0, 1:3]).all() and len(np.unique(back[:, [0, 3]])) == 10
    assert Scaling.standard(dense[:, [0, 3]]).constant is None


def test_constant_columns_are_drawn_exactly(tmp_path):
    x = with_constants()
    model = PoincareVAE(epochs=2, hidden=4, random_state=0).fit(x)
    model.save(tmp_path / "saved")
    for one in (model, PoincareVAE.load(tmp_path / "saved")):
        drawn = one.sample(50)
        assert (drawn[:, 1] == 0.1).all() and (drawn[:, 2] == 0.0).all() and drawn[:, [0, 3]].std() > 0.1
        assert (one.inverse_transform(one.transform(x))[:, 1] == 0.1).all()
    np.save("x.npy", x)
    fit_quietly("x.npy")
    assert curvae("sample", "run", "-n", "20", "-q").code == 0
    assert (pd.read_csv("run-samples.csv")["x2"] == 0.1).all()


@pytest.mark.parametrize(
    ("likelihood", "faithful", "said"),
    [
        (-3.0, 0.5, []),
        (-3.0, 0.7, ["so the comparison by faithfulness says little; the one by likelihood stands"]),
        (-1.0, 0.7, ["so the comparison by likelihood says little", "so the comparison by faithfulness says little"]),
    ],
)
def test_a_comparison_says_what_pca_leaves_of_it(likelihood, faithful, said):
    repeats = [SimpleNamespace(test={0.0: -2.0, 1.0: -2.5}, pca=likelihood)]
    criterion = SimpleNamespace(name="faithfulness", repeats=[SimpleNamespace(test={0.0: 0.6, 1.0: 0.5}, pca=faithful)])
    warned = _beaten(SimpleNamespace(repeats=repeats, criteria=(criterion,)))
    assert [text.partition("), ")[2] for text in warned] == said


def test_numbers_in_sentences_have_a_minus_sign(tmp_path):
    write_table(Path("t.csv"))
    found = curvae("fit", "t.csv", "-o", "run", *SMALL)
    said = re.search(r"log-likelihood of [a-z, ]+ (.*?) ± .* divergence from the prior (\S+) nats", found.err)
    assert said is not None and re.fullmatch(r"−?\d+\.\d\d", said[1]) and said[2] != "-0.00"
    evaluated = curvae("evaluate", "run", "t.csv", "--samples", "5").out
    assert re.search(r"log-likelihood −\d", evaluated) and not re.search(r"[ (]-\d", evaluated + found.err)


# --- importance samples of the likelihood in a report ----------------------------------------------------------------


@pytest.mark.parametrize(("rows", "expected"), [(1, 500), (200, 500), (500, 200), (1000, 100), (1_000_000, 100)])
def test_report_samples_of_a_row(rows, expected):
    assert report_samples(rows) == expected


def test_fewer_samples_change_a_mean_over_rows_by_less_than_its_interval():
    x = np.random.default_rng(0).normal(size=(500, 6)) @ np.random.default_rng(1).normal(size=(6, 6))
    model = fit_model(Config(epochs=5, hidden=(16,), likelihood="gaussian"), x).model
    rows = torch.from_numpy(x).float()
    many, few = (
        marginal_likelihood(model, rows, count, torch.Generator().manual_seed(count)).log_prob for count in (500, 200)
    )
    interval = 1.96 * float(few.std()) / len(rows) ** 0.5
    assert abs(float(many.mean() - few.mean())) < interval / 5


# --- rows on disk, within a bound of memory ---------------------------------------------------------------------------


ROWS = 1200


X = numbered(ROWS)


ON_DISK = (*SMALL, "--batch-size", "128", "--memory", MEMORY)


# For runs that are looked at for something else; neighbours take half of a short training.
ALONE = (*ON_DISK, "--neighbours", "off")


ROLES = ("--label", "kind", "--id", "cell")


def settle(monkeypatch, folder):
    """Go to a folder with an array, hold few rows out, and write tables in pieces of more than a hundred rows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    monkeypatch.setattr(training, "HELD_OUT", 30)
    monkeypatch.setattr(disk, "_SHARE", 12)
    np.save("x.npy", X)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs on the array and on a folder of Parquet files: where they are, and what was said."""
    with pytest.MonkeyPatch.context() as patch:
        settle(patch, tmp_path_factory.mktemp("trained"))
        Path("parts").mkdir()
        for i in range(2):
            write_parquet(Path("parts", f"{i}.parquet"), X[600 * i : 600 * (i + 1)], group=250, start=600 * i)
        said = {
            "x.npy": curvae("fit", "x.npy", *ON_DISK, "-o", "of_x.npy"),
            "parts": curvae("fit", "parts", *ROLES, *ON_DISK, "-o", "of_parts"),
        }
        return Path.cwd(), said


@pytest.fixture
def _place(monkeypatch, tmp_path):
    settle(monkeypatch, tmp_path)


@pytest.fixture
def array_run(trained):
    """A copy of the run on the array in `run`, and what was said when it was trained."""
    folder, said = trained
    shutil.copytree(folder / "of_x.npy", "run")
    return said["x.npy"]


@pytest.fixture
def parquet_run(trained):
    """A copy of the run on Parquet files in `run`, with the files, and what was said when it was trained."""
    folder, said = trained
    shutil.copytree(folder / "of_parts", "run")
    shutil.copytree(folder / "parts", "parts")
    return said["parts"]


def table(path):
    return storage.read_embedding(Path(path))


@pytest.mark.usefixtures("_place")
def test_an_array_that_is_larger_than_the_memory_it_may_take(array_run):
    assert array_run.code == 0, array_run.err
    assert "1,200 rows are read from disk, in 1MB of memory." in array_run.err
    written, found = table("run/embedding.csv"), load_fitted(Path("run"))
    assert written["id"].tolist() == list(map(str, range(ROWS)))
    assert (written["split"] == "validation").sum() == (written["split"] == "test").sum() == 30
    assert "neighbours both: " in array_run.err
    expected = embed(found.fitted, X)
    np.testing.assert_allclose(written[["tangent_1", "tangent_2"]], expected.tangent, rtol=1e-9)
    # Figures and pictures are of a sample, and say so: 30 rows of every part.
    data = config()["data"]
    assert data["rows"] == ROWS and config()["source"]["memory"] == MEMORY
    count = len(found.embedding)
    assert count == 90 and f"of a sample: {count} of 1,200 rows" in " ".join(data["notes"])
    assert f"of a sample: {count} of 1,200 rows" in Path("run/report.html").read_text()
    assert found.fitted.split.counts == (ROWS - 60, 30) and len(found.fitted.split.test) == 30


@pytest.mark.usefixtures("_place")
def test_a_row_that_lies_on_disk_may_be_at_the_centre():
    found = curvae("fit", "x.npy", *ALONE, "--root", "1150", "-o", "run")
    assert found.code == 0, found.err
    written = table("run/embedding.csv")
    place = written.loc[written["id"] == "1150", ["map_1", "map_2"]]
    np.testing.assert_allclose(place, np.zeros((1, 2)), atol=1e-9)


@pytest.mark.usefixtures("_place")
def test_data_that_fit_are_held_in_memory_as_ever():
    np.save("few.npy", X[:100])
    for bound in ((), ("--memory", "1GB")):
        curvae("fit", "few.npy", *SMALL, *bound, "-o", f"run{len(bound)}")
    plain, asked = (table(f"run{n}/embedding.csv") for n in (0, 2))
    pd.testing.assert_frame_equal(plain, asked)
    assert (plain["split"] == "validation").sum() == len(random_split(100, 0.1).validation)
    assert not any("from disk" in note for note in config("run2")["data"]["notes"])


@pytest.mark.usefixtures("_place")
def test_a_folder_of_parquet_files(parquet_run):
    assert parquet_run.code == 0, parquet_run.err
    written = table("run/embedding.csv")
    assert written["id"].tolist() == [f"c{i}" for i in range(ROWS)]
    assert written["label"].tolist() == ["a" if i % 3 else "b" for i in range(ROWS)]


@pytest.mark.usefixtures("_place")
def test_changes_between_rows_are_those_of_rows_in_memory(array_run, monkeypatch):
    assert curvae("view", "run", "--explain", "-o", "map.html").code == 0
    found = curvae("explain", "run", "--from", "3", "--to", "1199", "-n", "2", "--json").json
    embedding = embed(load_fitted(Path("run")).fitted, X)
    expected = explain(load_fitted(Path("run")).fitted, embedding, [1199], [3], columns=2)
    assert [one["change"] for one in found["to"]["1199"]["columns"]] == pytest.approx(expected.change, rel=1e-6)
    monkeypatch.setattr("curvae.runs.viewing._MOST_EXPLAINED", 1000)
    refused(
        "view", "run", "--explain", "-o", "more.html", says=["has 1,200 rows", "of up to 1,000; leave out --explain"]
    )


@pytest.mark.usefixtures("_place")
def test_a_map_is_judged_on_a_sample(parquet_run):
    Path("some").mkdir()
    for i in range(2):
        write_parquet(Path("some", f"{i}.parquet"), X[250 * i : 250 * (i + 1)], start=250 * i)
    write_parquet(Path("whole.parquet"), X[:500])
    told = [curvae("judge", data, "run", *ROLES, "--json") for data in ("whole.parquet", "some")]
    expected, found = (json.loads(answer.out) for answer in told)
    assert found == expected, told
    table("run/embedding.csv")[["ball_1", "ball_2"]].to_csv("plain.csv", index=False)  # rows in their order
    for place in ("run", "plain.csv"):
        answer = curvae("judge", "parts", place, *ROLES, "--memory", MEMORY)
        assert answer.code == 0 and "a sample is looked at: 1,000 of 1,200 rows" in answer.err, answer
    assert "matched in their order" in answer.err
    answer = curvae("judge", "x.npy", "run", "--memory", MEMORY)
    assert answer.code == 0 and "matched in their order" in answer.err, answer
    write_parquet(Path("far.parquet"), X, start=5000)
    refused(
        "judge", "far.parquet", "run", *ROLES, "--memory", MEMORY, "-q", says=["no row of the data is in run: rows"]
    )
    np.save("other.npy", X[:1100])
    refused("judge", "parts", "other.npy", *ROLES, "-q", says=["the data have 1,200 rows and other.npy has 1,100"])


@pytest.mark.usefixtures("_place")
def test_a_text_table_is_converted():
    write_parquet(Path("x.parquet"), X[:700], group=64).to_csv("x.csv", index=False)
    answer = curvae("fit", "x.csv", *ROLES, *ALONE, "-o", "run")
    assert answer.code == 0 and "700 rows are read from disk" in answer.err, answer.err
    found = table("run/embedding.csv")
    assert found["id"].tolist() == [f"c{i}" for i in range(700)]
    assert curvae("embed", "run", "x.csv", "--memory", MEMORY, "-o", "again.csv").code == 0
    np.testing.assert_allclose(table("again.csv")["radius"], found["radius"], rtol=1e-9)
    assert not list(Path(os.environ["XDG_CACHE_HOME"]).rglob("values"))


@pytest.mark.usefixtures("_place")
def test_a_copy_that_is_kept_is_used_again():
    write_parquet(Path("x.parquet"), X[:700], group=64)
    assert curvae("fit", "x.parquet", *ROLES, *ALONE, "--cache", "kept", "-o", "run").code == 0
    assert len(list(Path("kept").glob("*/values"))) == 1 and "cache" not in config()["source"]
    with mock.patch("curvae.data.spool._Writer.write", side_effect=AssertionError):
        again = curvae("embed", "run", "x.parquet", "--memory", MEMORY, "--cache", "kept", "-o", "again.csv")
        other = curvae("fit", "x.parquet", *ROLES, *ALONE, "--cache", "kept", "-o", "other")
    assert again.code == other.code == 0, (again.err, other.err)
    same_table(table("other/embedding.csv"), table("run/embedding.csv"))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.usefixtures("_place")
def test_a_sparse_matrix_on_disk(compressed):
    save_npz("x.npz", csr_array(X), compressed=compressed)
    answer = curvae("fit", "x.npz", *ALONE, "-o", "run")
    assert answer.code == 0 and "rows are read from disk" in answer.err, answer.err
    assert len(table("run/embedding.csv")) == ROWS


@pytest.mark.usefixtures("parquet_run")
@pytest.mark.usefixtures("_place")
def test_new_rows_are_embedded_in_pieces(monkeypatch):
    write_parquet(Path("new.parquet"), numbered(700, seed=1), group=64, start=900)
    assert curvae("embed", "run", "new.parquet", "-o", "plain.csv").code == 0
    assert curvae("embed", "run", "new.parquet", "--memory", MEMORY, "-o", "pieces.csv").code == 0
    pd.testing.assert_frame_equal(table("pieces.csv"), table("plain.csv"), rtol=1e-12)
    assert table("pieces.csv")["split"].unique().tolist() == ["new"]
    write_parquet(Path("bare.parquet"), numbered(700, seed=1), group=64, drop=["cell", "kind"])
    assert curvae("embed", "run", "bare.parquet", "--memory", MEMORY, "-o", "bare.csv").code == 0
    assert table("bare.csv")["id"].tolist() == list(map(str, range(700)))
    np.testing.assert_array_equal(table("bare.csv")["radius"], table("pieces.csv")["radius"])
    monkeypatch.setattr(storage, "PARQUET_ROWS", 700)
    monkeypatch.setattr("curvae.runs.trained.NEW_ROWS", 10)
    embedded = curvae("embed", "run", "new.parquet", "--memory", MEMORY).out
    assert "new-embedding.parquet" in embedded and "next: curvae evaluate run new.parquet" in embedded
    monkeypatch.setattr("curvae.runs.viewing.NEW_ROWS", 10)
    refused("view", "run", "--rows", "new.parquet", says=["a map marks at most 10; give fewer"])
    pd.testing.assert_frame_equal(table("new-embedding.parquet"), table("plain.csv"), rtol=1e-12)


@pytest.mark.usefixtures("parquet_run")
@pytest.mark.usefixtures("_place")
def test_a_table_without_the_columns_of_the_model():
    write_parquet(Path("new.parquet"), numbered(700), drop=["g7"])
    untouched(
        "embed",
        "run",
        "new.parquet",
        "-q",
        "--memory",
        MEMORY,
        says=["no columns 'g7', which the model was trained on"],
    )


@pytest.mark.usefixtures("array_run")
@pytest.mark.usefixtures("_place")
def test_own_rows_are_evaluated_by_part():
    found = curvae("evaluate", "run", "x.npy", "--samples", "5", "--json").json["parts"]
    assert found["validation"]["rows"] == found["test"]["rows"] == 30
    np.save("y.npy", numbered(ROWS, seed=1))
    found = curvae("evaluate", "run", "x.npy", "--samples", "5", "--quiet", "-o", "scores.csv")
    scores = pd.read_csv("scores.csv")
    assert found.code == 0 and scores["split"].tolist() == table("run/embedding.csv")["split"].tolist()
    expected = likelihoods(load_fitted(Path("run")).fitted, X, 5).log_prob
    np.testing.assert_allclose(scores["log_likelihood"], expected, rtol=1e-6)
    said = curvae("evaluate", "run", "x.npy", "--samples", "2", "-o", "more.csv").out
    assert "the model has seen the training rows, and unusual ones among them may hide" in said
    again = ("evaluate", "run", "y.npy", "--samples", "5", "--json")
    found = curvae(*again).json["parts"]
    assert found == curvae(*again, "--memory", MEMORY, "--cache", "kept").json["parts"]
    assert {name: part["rows"] for name, part in found.items()} == {"new": 30}


@pytest.mark.usefixtures("_place")
def test_gaps_are_filled_in_pieces(trained):
    x = numbered(ROWS)
    x[np.random.default_rng(5).random(x.shape) < 0.01] = np.nan
    x[:, 0] = np.arange(ROWS)
    write_parquet(Path("x.parquet"), x, group=200)
    curvae("fit", "x.parquet", *ROLES, "--missing", "model", *ALONE, "-o", "run")
    few = ("--samples", "20")
    plain = curvae("impute", "run", "x.parquet", *few, "-o", "plain.csv")
    found = curvae("impute", "run", "x.parquet", *few, "--memory", MEMORY, "-o", "pieces.csv")
    assert found.code == plain.code == 0, (found.err, plain.err)
    figures = f"{np.isnan(x).sum():,} values in {np.isnan(x).any(1).sum():,} rows"
    assert figures in found.out and figures in plain.out
    written = pd.read_csv("pieces.csv")
    assert not written.isna().any().any() and written["cell"].tolist() == [f"c{i}" for i in range(ROWS)]
    pd.testing.assert_frame_equal(written, pd.read_csv("plain.csv"), rtol=1e-10)
    shutil.copytree(trained[0] / "of_x.npy", "other")
    untouched("impute", "other", "x.npy", "--memory", MEMORY, says=["was not trained with --missing model"])


SAMPLE = "a sample is looked at: 595 of 1,200 rows, chosen at random with seed 0."


@pytest.mark.usefixtures("_place")
def test_a_sample_is_diagnosed(monkeypatch):
    monkeypatch.setattr(diagnosing, "_LEAST", 10)
    write_parquet(Path("x.parquet"), X)
    answer = curvae("diagnose", "x.npy", "--memory", MEMORY, "-o", "sample.html")
    assert answer.code == 0 and SAMPLE in answer.err, answer.err
    assert SAMPLE in Path("sample.html").read_text()
    assert f"--memory {MEMORY}" in answer.out  # what is done next takes the same sample
    # As if the sample were all there is.
    rows = diagnosing.load_sample(Source("x.npy", memory=MEMORY), 0, Reporter()).data
    assert len(rows) == 595
    np.testing.assert_array_equal(rows.x, X[rows.ids.astype(int)])
    np.save("sample.npy", rows.x)
    lines = [line for line in answer.out.splitlines() if line.startswith("  ")]
    whole = curvae("diagnose", "sample.npy").out
    assert lines and all(line in whole for line in lines)
    assert len(diagnosing.load_sample(Source("x.npy", memory="1GB"), 0, Reporter())[0]) == ROWS
    refused("diagnose", "x.npy", "--distances", "--memory", MEMORY, says=["--memory has no meaning with --distances"])


@pytest.mark.usefixtures("_place")
def test_every_row_is_as_likely_in_a_sample(monkeypatch):
    monkeypatch.setattr(diagnosing, "_LEAST", 10)
    source = Source("x.npy", memory=MEMORY)
    samples = [diagnosing.load_sample(source, seed, Reporter())[0].ids.astype(int) for seed in range(40)]
    times = np.bincount(np.concatenate(samples), minlength=ROWS)
    assert times.sum() == 40 * 595 and times.max() <= 40
    expected = 40 * 595 / 1200 * (1 - 595 / 1200)  # the variance of a binomial number
    assert times.var() == pytest.approx(expected, rel=0.2)


@pytest.mark.usefixtures("_place")
def test_curvatures_are_compared_on_all_rows(monkeypatch):
    monkeypatch.setattr("curvae.training.comparison._SHOWN", 40)
    few = ["--epochs=1", "--hidden=4", "--set=posterior=wrapped", "--repeats=3", "--curvatures=1", "--jobs=1"]
    few.append("--set=neighbours=off")
    answer = curvae("compare", "x.npy", "--memory", MEMORY, *few, "-o", "run")
    assert answer.code == 0 and "1,200 rows are read from disk" in Path("run/report.html").read_text(), answer.err
    assert config()["data"]["rows"] == ROWS and config()["source"]["memory"] == MEMORY
    found = json.loads(Path("run/comparison.json").read_text())
    assert len(found["repeats"]) == 3 and "faithfulness" in found["criteria"]
    assert curvae("compare", "x.npy", "-o", "run", "--resume").code == 0
    again = json.loads(Path("run/comparison.json").read_text())
    assert again["repeats"] == found["repeats"]


@pytest.mark.usefixtures("_place")
def test_a_run_that_was_interrupted_is_resumed(trained, monkeypatch):
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
    monkeypatch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)
    plain, epochs = stacks._Training.epoch, []

    def epoch(self):
        if epochs:
            raise KeyboardInterrupt
        epochs.append(1)
        plain(self)

    monkeypatch.setattr(stacks._Training, "epoch", epoch)
    assert curvae("fit", "x.npy", *ON_DISK, "-o", "run").code
    monkeypatch.setattr(stacks._Training, "epoch", plain)
    refused("fit", "x.npy", "-o", "run", "--resume", "--memory", "2MB", says=["was started with"])
    assert curvae("fit", "x.npy", "-o", "run", "--resume").code == 0
    pd.testing.assert_frame_equal(
        table("run/embedding.csv"), table(trained[0] / "of_x.npy" / "embedding.csv"), check_exact=True
    )
    np.save("x.npy", X[::-1].copy())
    refused("fit", "x.npy", "-q", "-o", "run", "--resume", says=["is not the data that run was started with"])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("--root", "9999"), "no row '9999'"),
        (("--memory", "lots"), "give a size of at least 1MB"),
        (("--cache", "x.npy"), "rows cannot be copied to x.npy"),
    ],
)
@pytest.mark.usefixtures("_place")
def test_what_is_refused(asked, says):
    write_parquet(Path("x.parquet"), X)
    untouched("fit", "x.parquet", *ROLES, "-q", *ON_DISK, *asked, says=[says])


@pytest.mark.parametrize(
    "asked", [("--repeats", "2", "--missing", "drop"), ("--set", "init=pca", "--root", "7")], ids=" ".join
)
@pytest.mark.usefixtures("_place")
def test_what_works_in_memory_works_on_disk(asked):
    x = X.copy()
    if "drop" in asked:
        x[5, 1] = np.nan
    np.save("gaps.npy", x)
    found = curvae("fit", "gaps.npy", *ALONE, *asked, "-o", "run")
    assert found.code == 0, found.err
    assert len(table("run/embedding.csv")) == ROWS - ("drop" in asked)


@pytest.mark.usefixtures("_place")
def test_the_memory_of_the_machine_decides_by_default(monkeypatch):
    monkeypatch.setattr(memory, "_UNKNOWN", 4 * 10**6)
    monkeypatch.setattr(memory, "_installed", lambda: None)
    assert curvae("fit", "x.npy", *SMALL, "--batch-size", "128", "--neighbours", "off", "-o", "run").code == 0
    assert config()["source"]["memory"] == "1MB"
    assert "--memory" not in config()["command"]


@pytest.mark.usefixtures("_place")
def test_constant_data_are_refused():
    np.save("flat.npy", np.ones((ROWS, COLUMNS)))
    untouched("fit", "flat.npy", "-q", *ON_DISK, says=["nothing varies"])


@pytest.mark.usefixtures("_place")
def test_a_graph_has_no_pieces():
    Path("g.edges").write_text("a b\nb c\nc d\nd a\na c\n")
    curvae("graph", "g.edges", "--splits", "0", "--epochs", "2", "--set", "hidden=4", "-o", "run")
    refused("embed", "run", "g.edges", "--memory", "1GB", says=["is read as a whole; leave out --memory"])


# --- mixed tables with covariates and groups on disk ------------------------------------------------------------------


COLUMNS_ROWS = 600


COLUMNS_ROLES = (
    "--label",
    "kind",
    "--id",
    "cell",
    "--group",
    "patient",
    "--categorical",
    "colour",
    "--covariate",
    "batch",
)


def made(rows=COLUMNS_ROWS, seed=0):
    return mixed_table(rows, seed).drop(columns=["time", "age"])


@pytest.fixture(scope="module")
def columns_trained(tmp_path_factory):
    """A run on a folder of files with gaps: where it is."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("trained")
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        table = made()
        table.loc[5::40, "colour"] = None
        write_parts("parts", table)
        how = (*COLUMNS_ROLES, "--missing", "model", "--set", "encode_covariates=yes", "--set", "validation=0.2")
        said = curvae("fit", "parts", *how, *SMALL, "--memory", MEMORY, "-o", "run")
        assert said.code == 0, said
        return folder


@pytest.fixture
def _columns_place(monkeypatch, tmp_path, columns_trained):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("run", "parts"):
        shutil.copytree(columns_trained / name, name)


@pytest.mark.usefixtures("_columns_place")
def test_all_rows_are_on_the_map_and_groups_are_held_out():
    table, rows = storage.read_embedding(Path("run/embedding.csv")), made()
    assert table["id"].tolist() == rows["cell"].tolist() and table["label"].tolist() == rows["kind"].tolist()
    held = set(rows["patient"][table["split"] == "validation"])
    assert held and not held & set(rows["patient"][table["split"] == "train"])
    schema = config()["data"]["schema"]
    assert schema["columns"][1]["categories"] == ["blue", "green", "red", "violet"]
    assert schema["covariates"][0]["categories"] == ["x", "y", "z"]


@pytest.mark.usefixtures("_columns_place")
def test_new_rows_lie_where_they_lie_in_memory():
    new = made(200, seed=7).drop(columns=["kind", "patient"])
    new.to_parquet("new.parquet", index=False)
    assert curvae("embed", "run", "new.parquet", "-o", "whole.csv").code == 0
    assert curvae("embed", "run", write_parts("new", new), "-o", "pieces.csv").code == 0
    whole, found = pd.read_csv("whole.csv"), pd.read_csv("pieces.csv")
    np.testing.assert_allclose(found["ball_1"], whole["ball_1"], atol=1e-12)
    assert found["id"].tolist() == whole["id"].tolist()


@pytest.mark.usefixtures("_columns_place")
def test_gaps_are_filled_as_in_memory():
    gaps = made(150, seed=8)
    gaps.loc[3::7, "colour"] = None
    gaps.loc[5::9, "a"] = np.nan
    gaps.to_parquet("gaps.parquet", index=False)
    assert curvae("impute", "run", "gaps.parquet", "-o", "whole.csv").code == 0
    assert curvae("impute", "run", write_parts("gaps", gaps), "-o", "pieces.csv").code == 0
    whole, found = pd.read_csv("whole.csv"), pd.read_csv("pieces.csv")
    assert found.columns.tolist() == whole.columns.tolist() and not found.isna().any(axis=None)
    assert found["batch"].tolist() == gaps["batch"].tolist()
    known = gaps["colour"].notna()
    assert found["colour"][known].tolist() == gaps["colour"][known].tolist()


@pytest.mark.usefixtures("_columns_place")
def test_the_rows_of_the_run_are_known_again():
    said = curvae("evaluate", "run", "parts", "--samples", "2", "--json")
    parts = json.loads(said.out)["parts"]
    assert set(parts) == {"train", "validation", "test"}, said
    table = storage.read_embedding(Path("run/embedding.csv"))
    for name in ("validation", "test"):
        assert parts[name]["rows"] == (table["split"] == name).sum()
    write_parts("parts", made(300, seed=9))  # of another table, nothing is known
    Path("parts/2.parquet").unlink()
    assert set(json.loads(curvae("evaluate", "run", "parts", "--samples", "2", "--json").out)["parts"]) == {"new"}


@pytest.mark.usefixtures("_columns_place")
def test_what_the_model_does_not_know_is_refused():
    new = made(200, seed=7)
    new.loc[199, "colour"] = "mauve"
    refused("embed", "run", write_parts("odd", new), "-q", "-o", "odd.csv", says=["not trained on: 'mauve'", "of odd"])
    bare = write_parts("bare", made(200, seed=7).drop(columns="batch"))
    refused("embed", "run", bare, "-q", "-o", "odd.csv", says=["needs the covariates", "'batch'; add them"])
    assert not Path("odd.csv").exists()


@pytest.mark.usefixtures("_columns_place")
def test_a_sample_has_all_roles():
    table = made(2400)
    roles = {"label": "kind", "id": "cell", "group": "patient", "categorical": ("colour",), "covariates": ("batch",)}
    source = Source(str(write_parts("large", table, group=300)), **roles, memory=MEMORY)
    data, *_ = diagnosing.load_sample(source, 0, Reporter())
    assert 1000 <= len(data) < 2400 and "a sample is looked at" in data.notes[-1]
    rows = table.set_index("cell").loc[data.ids]
    assert data.groups.tolist() == rows["patient"].tolist() and data.labels.tolist() == rows["kind"].tolist()
    np.testing.assert_array_equal(data.context, pd.get_dummies(rows["batch"]))
    assert data.blocks == data.schema.blocks == (0, 4, 0, 1, 0)
