"""Commands that succeed: what they print, what they write, and that it can be used."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from curvae import PoincareVAE
from curvae.cli.messages import speaking
from curvae.cli.options import typed_options
from curvae.data import load
from curvae.data.text_tables import EXACT
from curvae.runs.rows_run import choose_test_share
from curvae.training import Config
from curvae.training.engine import BatchEngine
from running import SMALL, config, curvae, refused, settings, snapshot, write_table

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
    cells = pd.read_csv(whole / "cells.csv")
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
    with speaking(False, str, lambda command: None) as reporter:
        reporter.progress("training", 12, 25, "")  # what a resumed run starts from
        for done in (13, 14):
            now[0] += 70
            reporter.progress("training", done, 25, "")
    assert re.search(r"training .* 14/25 0:02:20 0:12:50", capsys.readouterr().err)


@pytest.mark.parametrize("more", [(), ("--repeats", "3")], ids=["one", "three"])
def test_the_time_that_is_left_of_a_training_is_shown(more, monkeypatch):
    """A second a step and six steps an epoch; two of the four epochs are left when it is interrupted."""
    now, step = [0.0], BatchEngine._learn

    def slow(self, *given):
        now[0] += 1
        if now[0] == 14:
            raise KeyboardInterrupt
        return step(self, *given)

    monkeypatch.setattr(BatchEngine, "_learn", slow)
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
        (("--covariate", "batch"), "neighbours off: rows have covariates, whose effects are to stay out of the map"),
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


def test_samples_are_in_original_units_and_repeat_by_seed():
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
    verdict = figures["verdict"].replace("use curvature", "use --curvature")
    assert figures["outcome"] in ("hyperbolic", "none", "euclidean") and verdict in found.err.replace("\n", "")
    assert [list(repeat["test"]) for repeat in figures["repeats"]] == [["0.0", "1.0", "0.3"]] * 3
    assert all(repeat["pca"] is not None for repeat in figures["repeats"])
    assert str(Path.cwd()) not in (folder / "config.json").read_text()
    again = curvae(*words, "--json", "-o", "again")
    assert again.err == "" and again.json == {"folder": "again", **figures}
    for command in (("embed", folder, "t.csv"), ("evaluate", folder, "t.csv"), ("sample", folder)):
        refused(*command, says=["holds a comparison", "curvae fit"])
    refused("fit", "t.csv", "-o", folder, "--resume", says=["holds a comparison"])


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
        "_CONFIG": Config(hidden=(8,), epochs=2),
        "branching_diffusion": lambda seed: branching_diffusion(dim=5, depth=3, seed=seed),
        "flat": lambda seed: flat(75, 5, seed),
    }
    with mock.patch.multiple("curvae.runs.demonstration", **small):
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


def test_samples_of_a_table_are_no_array():
    write_table(Path("t.csv"))
    fit("t.csv", "-o", "run")
    refused("sample", "run", "-o", "x.npy", says=["x.npy should end in .csv", "-o"])
    refused("embed", "run", "t.csv", "-o", "x.npy", says=["x.npy should end in .csv", "-o"])
