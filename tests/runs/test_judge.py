"""`curvae judge` and the figures of faithfulness in reports of runs: what they print and write, and every mistake."""

from __future__ import annotations

import html
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.manifold import trustworthiness

from curvae.hierarchy import faithfulness
from curvae.runs.diagnosing import _curvature
from curvae.training import Embedding
from running import SMALL, config, curvae, refused, write_table


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data() -> pd.DataFrame:
    write_table(
        Path("t.csv"), rows=40, columns="abcd", name=[f"r{i}" for i in range(40)], kind=["u", "v"] * 20, score=1.0
    )
    return pd.read_csv("t.csv")


NAMED = ("--id", "name", "--label", "kind")


def scaled(frame: pd.DataFrame) -> np.ndarray:
    x = frame[list("abcd")].to_numpy()
    return (x - x.mean(0)) / x.std(0)


def test_another_map_is_judged_and_reported(data: pd.DataFrame) -> None:
    places = scaled(data)[:, :2]
    table = pd.DataFrame({"name": data.name, "kind": data.kind, "u1": places[:, 0], "u2": places[:, 1]})
    table.sample(frac=1, random_state=0).to_csv("map.csv", index=False)  # rows in another order
    found = curvae("judge", "t.csv", "map.csv", *NAMED, "--json")
    expected = faithfulness(np.pad(scaled(data), ((0, 0), (0, 1))), places, labels=data.kind).to_json()
    for name in ("qlocal", "qglobal", "trustworthiness", "continuity", "rank_correlation", "accuracy"):
        assert found.json["map"][name] == pytest.approx(expected["map"][name], abs=0.15 if name == "accuracy" else 1e-9)
    assert found.json["map"]["trustworthiness"] == pytest.approx(trustworthiness(scaled(data), places, n_neighbors=15))
    assert found.json["held_out"] is None and found.json["report"] is None
    told = curvae("judge", "t.csv", "map.csv", *NAMED, "-o", "map.html")
    first, *rest = told.out.splitlines()
    assert first == found.json["verdict"] and rest[0].startswith("  near neighbours kept (Qlocal) 0.")
    assert rest[-3:-1] == ["  PCA is fitted to all rows", "report: map.html"] and rest[-1:] == [
        "next: curvae fit t.csv --label kind --id name"
    ]
    assert "Coordinates: u1, u2." in told.err and "40 rows matched by id." in told.err
    page = Path("map.html").read_text()
    assert first in page and "How faithful is map.csv to t.csv?" in page and "5-NN accuracy of labels" in page
    refused("judge", "t.csv", "map.csv", *NAMED, "-o", "map.html", says=["exists", "--force"])


def test_rows_are_matched_in_their_order_without_ids(data: pd.DataFrame) -> None:
    np.save("map.npy", data[["a", "b"]].to_numpy())
    data[["a", "b"]].to_csv("map.csv", index=False)
    one, two = (curvae("judge", "t.csv", name, *NAMED, "--json").json for name in ("map.npy", "map.csv"))
    assert one == two
    data[["a", "b"]].assign(digit=[0, 1] * 20).to_csv("numbers.csv", index=False)
    told = curvae("judge", "numbers.csv", "map.csv", "-o", "numbers.html")
    said = "All 3 columns, 'a' to 'digit', are data; leave out labels with "
    assert f"{said}--label." in told.err and html.escape(said, quote=False) in html.unescape(
        Path("numbers.html").read_text()
    )
    assert "are data" not in curvae("judge", "numbers.csv", "map.csv", "--label", "digit").err
    data[["a", "b"]].head(30).to_csv("short.csv", index=False)
    refused("judge", "t.csv", "short.csv", *NAMED, says=["40 rows and short.csv has 30", "--id"])


def test_only_rows_with_a_place_are_judged(data: pd.DataFrame) -> None:
    data[["name", "a", "b"]].tail(25).to_csv("map.csv", index=False)
    found = curvae("judge", "t.csv", "map.csv", *NAMED)
    assert "25 rows matched by id; 15 rows without a place left out." in found.err
    data[["name", "a", "b"]].tail(9).to_csv("map.csv", index=False)
    refused("judge", "t.csv", "map.csv", *NAMED, says=["9 rows are too few", "at least 10"])


def test_distances_of_hyperbolic_maps(data: pd.DataFrame) -> None:
    (0.2 * data[["a", "b"]]).to_csv("map.csv", index=False)
    kinds = [curvae("judge", "t.csv", "map.csv", *NAMED, "--distance", d, "--json") for d in ("euclidean", "poincare")]
    assert kinds[0].json["map"] != kinds[1].json["map"]
    data[["a", "b"]].to_csv("map.csv", index=False)
    says = ["outside the unit ball", "--distance euclidean or --distance lorentz"]
    refused("judge", "t.csv", "map.csv", *NAMED, "--distance", "poincare", says=says)


@pytest.mark.parametrize("scale", [1e-310, 1e200])
def test_the_unit_of_coordinates_does_not_matter(data: pd.DataFrame, scale: float) -> None:
    np.save("map.npy", data[["a", "b"]].to_numpy())
    np.save("other.npy", data[["a", "b"]].to_numpy() * scale)
    one, two = (curvae("judge", "t.csv", name, *NAMED, "--json").json for name in ("map.npy", "other.npy"))
    assert one["map"]["qlocal"] == pytest.approx(two["map"]["qlocal"], abs=1e-3)
    assert one["map"]["rank_correlation"] == pytest.approx(two["map"]["rank_correlation"], abs=1e-3)
    says = ["too large or too small", "use --distance euclidean"]
    refused("judge", "t.csv", "other.npy", *NAMED, "--distance", "lorentz", says=says)


def test_what_is_no_map_is_refused(data: pd.DataFrame) -> None:
    np.save("point.npy", np.full((40, 2), 0.1))
    refused("judge", "t.csv", "point.npy", *NAMED, says=["all rows lie in one point of point.npy"])
    np.save("cube.npy", np.zeros((40, 2, 3)))
    refused("judge", "t.csv", "cube.npy", *NAMED, says=["40 arrays of shape (2, 3)", "(rows, coordinates)"])


@pytest.mark.parametrize("space", [("--curvature", "0.7"), ("--curvature", "0"), ("--space", "h2,e1")])
def test_maps_of_runs_have_their_own_distances(data: pd.DataFrame, space: tuple[str, str]) -> None:
    assert curvae("fit", "t.csv", *NAMED, *SMALL, *space, "-o", "run").code == 0
    own = config()["summary"]["faithfulness"]
    assert ("Distances grow towards the rim" in Path("run/report.html").read_text()) == (space[1] != "0")
    for given in ("run", "run/embedding.csv"):
        said = curvae("judge", "t.csv", given, *NAMED).out
        assert said.endswith("  PCA is fitted to the rows that are not held out\nnext: curvae view run\n")
        found = curvae("judge", "t.csv", given, *NAMED, "--json").json
        assert found.pop("report") is None
        for part in ("map", "held_out", "pca"):
            assert found[part]["qlocal"] == pytest.approx(own[part]["qlocal"])
            assert found[part]["rank_correlation"] == pytest.approx(own[part]["rank_correlation"])
    refused("judge", "t.csv", "run", *NAMED, "--distance", "poincare", says=["its own distances", "--distance"])
    shutil.copy("run/embedding.csv", "copy.csv")
    if "h2,e1" in space:
        refused("judge", "t.csv", "copy.csv", *NAMED, says=["product of spaces", "run folder"])
        return
    found = curvae("judge", "t.csv", "copy.csv", *NAMED, "--json").json
    assert found["map"]["rank_correlation"] == pytest.approx(own["map"]["rank_correlation"])
    assert found["held_out"]["qlocal"] == pytest.approx(own["held_out"]["qlocal"])


@pytest.mark.parametrize("c", [0.0, 1e-4, 0.3, 1.0, 20.0])
def test_curvature_of_a_table(c: float) -> None:
    embedding = Embedding(np.random.default_rng(0).normal(size=(30, 2)), np.ones(30), c)
    assert _curvature(np.linalg.norm(embedding.ball, axis=1), embedding.radius) == pytest.approx(c, rel=1e-6)


def test_reports_say_how_faithful_the_map_is(data: pd.DataFrame) -> None:
    told = curvae("fit", "t.csv", *NAMED, *SMALL, "-o", "run")
    found = config()["summary"]["faithfulness"]
    assert found["held_out"]["rows"] == 4 and found["map"]["rows"] == 40
    page = Path("run/report.html").read_text()
    assert "How faithful is the map?" in page and found["verdict"] in page and found["verdict"] in told.err
    evaluated = curvae("evaluate", "run", "t.csv", "--samples", "10", "--json").json["faithfulness"]
    assert evaluated["map"]["qlocal"] == pytest.approx(found["map"]["qlocal"])
    assert evaluated["held_out"]["rows"] == 4
    pd.concat([data, data.assign(name=data.name + "-2")]).to_csv("more.csv", index=False)
    assert " The map keeps " in curvae("evaluate", "run", "more.csv", "--samples", "10").out.splitlines()[-2]
    data.head(12).assign(a=0.5).to_csv("new.csv", index=False)
    new = curvae("evaluate", "run", "new.csv", "--samples", "10")
    assert new.out.splitlines()[-2:] == [
        "12 rows are too few to compare neighbours on the map with PCA.",
        "next: curvae view run --rows new.csv",
    ]
    data.head(5).to_csv("few.csv", index=False)
    assert curvae("evaluate", "run", "few.csv", "--samples", "10", "--json").json["faithfulness"] is None


@pytest.mark.parametrize(
    ("steps", "typed", "advised"),
    [
        (100, (), "fit t.csv --label kind --id name --hidden 8 --batch-size 16"),  # for longer
        (3, (), "fit t.csv --label kind --id name --hidden 8 --epochs 2 --batch-size 16 --dim 3"),
        (3, ("--neighbours", "off"), "fit t.csv --label kind --id name --hidden 8 --neighbours both --epochs 2"),
        (3, ("--dim", "5"), "compare t.csv --label kind --id name --dim 5 "),
        (3, ("--dim", "5", "--curvature", "0.5"), "view run"),  # what a comparison recommends is not compared again
        (3, ("--space", "e5"), "view run"),
    ],
)
def test_advice_for_a_map_that_keeps_fewer_than_pca_can_be_followed(
    data: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, steps: int, typed: tuple[str, ...], advised: str
) -> None:
    monkeypatch.setattr("curvae.runs.rows_run.DEFAULT_STEPS", steps)
    data.assign(c=data.a - data.b, d=data.a + data.b).to_csv("t.csv", index=False)  # PCA of a plane keeps all
    found = curvae("fit", "t.csv", *NAMED, *SMALL, *typed, "-o", "run")
    assert "The map keeps fewer near neighbours than PCA" in found.err.replace("\n", " ")
    following = next(line for line in found.out.splitlines() if line.startswith("next: "))
    page = html.unescape(Path("run/report.html").read_text())
    box = re.search(r'<p class="verdict neutral">(.*?)</p>', page, re.DOTALL)
    assert box is not None and box[1].startswith("The 5-NN accuracy of the labels is ") and "nats" not in box[1]
    command = following.removeprefix("next: ").partition("  #")[0]
    assert f"<pre>{command}</pre>" in page
    assert command.startswith(f"curvae {advised}") and command.count("--neighbours") == typed.count("--neighbours")
    if command.startswith("curvae fit"):
        assert curvae(*shlex.split(command)[1:], "--epochs", "1", "-o", "followed").code == 0


def test_few_rows_are_warned_of_and_lead_to_the_map(data: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curvae.runs.rows_run.DEFAULT_STEPS", 1)
    data.head(12).to_csv("few.csv", index=False)
    found = curvae("fit", "few.csv", *NAMED, *SMALL, "--dim", "5", "-o", "run")
    assert "next: curvae view run  # the interactive map" in found.out  # a comparison would be refused
    page = Path("run/report.html").read_text()
    assert "only 12 rows to learn from" in found.err and "only 12 rows to learn from" in page
    refused("fit", "run", says=["run is the folder of a run; give the data that it was trained on"])


def test_a_run_knows_the_roles_of_its_columns(data: pd.DataFrame) -> None:
    assert curvae("fit", "t.csv", *NAMED, *SMALL, "-o", "run").code == 0
    known = curvae("judge", "t.csv", "run", "--json")
    assert known.code == 0, known.err
    assert known.json == curvae("judge", "t.csv", "run", *NAMED, "--json").json
    shutil.copy("t.csv", "other.csv")
    refused("judge", "other.csv", "run", says=["has text in columns without a role"])


def test_gaps_count_as_means(data: pd.DataFrame) -> None:
    data.loc[::7, "a"] = np.nan
    data.to_csv("gaps.csv", index=False)
    assert curvae("fit", "gaps.csv", *NAMED, *SMALL, "--missing", "model", "-o", "run").code == 0
    filled = data.assign(a=data.a.fillna(data.a.mean()))
    filled.to_csv("filled.csv", index=False)
    own = config()["summary"]["faithfulness"]["map"]
    given = curvae("judge", "gaps.csv", "run", *NAMED, "--missing", "model", "--json").json["map"]
    assert own["qlocal"] == pytest.approx(given["qlocal"])


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"name": ["x"] * 40, "u": range(40)}, ["more than once"]),
        (
            {"name": [f"x{i}" for i in range(40)], "u": range(40)},
            ["no row of the data is in", "use the same ids in both"],
        ),
        ({"u": ["a", "b"] * 20}, ["no columns of numbers"]),
        ({"u": [1.5, np.nan] * 20}, ["row 2 of the map has no finite coordinates"]),
    ],
)
def test_mistakes(data: pd.DataFrame, table: dict[str, object], says: list[str]) -> None:
    pd.DataFrame(table).to_csv("map.csv", index=False)
    refused("judge", "t.csv", "map.csv", *NAMED, says=says)
    refused("judge", "t.csv", "lost.csv", *NAMED, says=["lost.csv"])


def test_comparisons_have_more_criteria_than_likelihood(data: pd.DataFrame) -> None:
    tree = {"child": ["u", "v", "w", *data.name], "parent": ["", "u", "u", *np.where(data.kind == "u", "v", "w")]}
    pd.DataFrame(tree).to_csv("tree.csv", index=False)
    words = ("compare", "t.csv", *NAMED, *SMALL, "--repeats", 3, "--curvatures", 0.5, "--jobs", 1)
    found = curvae(*words, "--tree", "tree.csv", "-o", "run", "--json")
    assert found.code == 0, found.err
    measures = found.json["criteria"]
    assert set(measures) == {"faithfulness", "recovery"} and found.json["structure"] in ("flat", "clustered")
    assert all(set(one["test"]) == {"0.0", "0.5"} for m in measures.values() for one in m["repeats"])
    assert measures["faithfulness"]["repeats"][0]["pca"] > 0.3
    assert "By faithfulness, " in found.json["verdict"] and "By recovery, " in found.json["verdict"]
    page = Path("run/report.html").read_text()
    assert "Other criteria" in page and "faithfulness, test" in page and "recovery, test" in page
    Path("other.csv").write_text("child,parent\nx,\ny,x\nz,x\n")
    refused(*words, "--tree", "other.csv", "-o", "new", says=["no row has the name of a node"])
    Path("two.csv").write_text(f"child,parent\n{data.name[0]},\n{data.name[1]},{data.name[0]}\n")
    refused(*words, "--tree", "two.csv", "-o", "new", says=["at least three nodes"])
    Path("three.csv").write_text(f"{Path('two.csv').read_text()}{data.name[2]},{data.name[0]}\n")
    refused(*words, "--tree", "three.csv", "-o", "new", says=["no held-out rows to judge by recovery"])
    assert not Path("new").exists()
    refused("compare", "edges.csv", "--graph", "--tree", "tree.csv", says=["--tree has no meaning with --graph"])
