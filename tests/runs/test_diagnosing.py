"""`curvae diagnose` and `curvae judge`: what they print and write, and the one line for every mistake."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, save_npz
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import trustworthiness

from curvae.data import branching_diffusion
from curvae.hierarchy import Embedded, faithfulness, parse_newick, recover, tree_of_pairs
from curvae.runs.diagnosing import _curvature
from curvae.training import Embedding
from paths import ROOT
from running import SMALL, config, curvae, refused, snapshot, write_table


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def tree_table(path, rows=None):
    """Rows of a branching diffusion, with the node of each, and the true tree beside."""
    tree = branching_diffusion(depth=5, per_node=4, dim=40)
    names = np.array([f"n{k}" for k in range(len(tree.parent))])
    table = pd.DataFrame(tree.x, columns=[f"x{k}" for k in range(40)])
    table.insert(0, "node", names[tree.node])
    table.insert(0, "name", [f"r{k}" for k in range(len(table))])
    table.head(rows).to_csv(path, index=False)
    parents = ["" if parent < 0 else names[parent] for parent in tree.parent]
    pd.DataFrame({"child": names, "parent": parents}).to_csv("truth.csv", index=False)
    return path


def groups_table(path, rows=120):
    random = np.random.default_rng(0)
    x = 5 * random.normal(size=(4, 3))[random.integers(4, size=rows)] + random.normal(size=(rows, 3))
    pd.DataFrame(x, columns=list("abc")).to_csv(path, index=False)
    return path


def test_a_tree_is_found_and_reported():
    tree_table("tree.csv")
    words = ("diagnose", "tree.csv", "--id", "name", "--label", "node", "-o", "report.html")
    found = curvae(*words, pictures=True, thorough=True)
    assert found.code == 0
    first, *rest = found.out.splitlines()
    assert first.startswith("Tree-like (p = 0.0") and "with curvae compare" in first
    assert [line.split()[0] for line in rest[:3]] == ["four-point", "ultrametric", "cophenetic"]
    assert "relative δ" in rest[3] and rest[5] == "report: report.html"
    values = first.split("c·σ0² = ")[1].split(" with")[0].replace(" and ", ",")
    assert rest[-1] == f"next: curvae compare tree.csv --label node --id name --curvatures {values}"
    page = Path("report.html").read_text()
    assert first in html.unescape(page) and page.count("<img") == 2 and "four-point score" in page
    assert "Columns were centred and scaled" in page and "curvae diagnose tree.csv" in page
    refused(*words, says=["exists", "--force"])


def test_flat_data_as_json_repeat_with_the_seed():
    write_table(Path("t.csv"), rows=60)
    found = curvae("diagnose", "t.csv", "--json", "--seed", "5")
    assert found.code == 0 and found.err == ""
    assert found.json["outcome"] == "flat" and found.json["report"] is None
    assert curvae("diagnose", "t.csv", "--json", "--seed", "5").json == found.json
    assert curvae("diagnose", "t.csv", "--json").json["delta"]["mean"] != found.json["delta"]["mean"]
    assert curvae("diagnose", "t.csv", "--quiet").out == ""
    assert curvae("diagnose", "t.csv").out.splitlines()[-1] == "next: curvae fit t.csv --curvature 0"


def test_units_of_columns_do_not_count_for_lengths():
    groups_table("t.csv")
    words = ("diagnose", "t.csv", "--json", "-o", "report.html")
    found = curvae(*words, thorough=True).json
    assert found["outcome"] == "clustered" and found["nesting"] == "too few groups to tell"
    page = Path("report.html").read_text()
    assert found["nesting"] in found["sentence"] and found["sentence"] in page
    assert page.count(found["nesting"]) == 2
    table = pd.read_csv(groups_table("t.csv", 50))
    (table * [1, 1000, 0.01] + 7).to_csv("other.csv", index=False)
    own, other = (curvae("diagnose", name, "--json").json for name in ("t.csv", "other.csv"))
    for name, score in own["scores"].items():
        assert score["value"] == pytest.approx(other["scores"][name]["value"])
    assert own["delta"]["mean"] == pytest.approx(other["delta"]["mean"])
    for metric in ("cosine", "correlation", "manhattan"):
        found = curvae("diagnose", "t.csv", "--metric", metric, "--json")
        assert found.code == 0 and found.json["delta"]["mean"] != own["delta"]["mean"]


def test_values_whose_squares_are_no_numbers():
    x = pd.read_csv(groups_table("t.csv", 50)).to_numpy()
    own = curvae("diagnose", "t.csv", "--json").json
    for power in (1000, -1000):  # of two, so that nothing is rounded
        np.save("far.npy", x * 2.0**power)
        save_npz("far.npz", csr_array(x * 2.0**power))
        for name in ("far.npy", "far.npz"):
            found = curvae("diagnose", name, "--json")
            for score, values in own["scores"].items():
                assert found.json["scores"][score]["value"] == pytest.approx(values["value"]), name
            assert found.err == ""
        refused("diagnose", "far.npy", "--metric", "cosine", says=["largest of the values is", "other units"])
        np.save("d.npy", squareform(pdist(x)) * 2.0**power)
        refused("diagnose", "d.npy", "--distances", says=["largest of the distances is", "other units"])


def test_distances_and_graphs():
    x = pd.read_csv(groups_table("t.csv")).to_numpy()
    d = squareform(pdist(x))
    np.save("d.npy", d)
    pd.DataFrame(d).to_csv("d.csv", index=False)
    found = curvae("diagnose", "d.npy", "--distances", "--json", thorough=True).json
    assert found["outcome"] == "clustered" and found["kind"] == "distances" and found["size"] == 120
    one, same = (curvae("diagnose", name, "--distances", "--json").json for name in ("d.npy", "d.csv"))
    assert same["delta"]["mean"] == pytest.approx(one["delta"]["mean"])
    Path("g.edges").write_text("".join(f"{(i - 1) // 2} {i}\n" for i in range(1, 127)))
    done = curvae("diagnose", "g.edges", "--graph", "-o", "g.html", pictures=True, thorough=True)
    assert done.out.startswith("Tree-like")
    assert done.out.splitlines()[-1].startswith("next: curvae compare g.edges --graph --curvatures ")
    following = curvae("diagnose", "d.npy", "--distances").out.splitlines()[-1]
    assert following == "next: curvae diagnose d.npy --distances -o report.html --seed 1"
    assert "127 nodes, 126 edges" in Path("g.html").read_text()


def test_distances_that_break_the_triangle_inequality():
    random = np.random.default_rng(0)
    place = random.normal(size=(40, 2))
    d = squareform(pdist(place))
    np.save("d.npy", d)
    assert "triangle" not in curvae("diagnose", "d.npy", "--distances").err
    line = squareform(pdist(np.sort(place, axis=0)[:, :1])) * (1 + 1e-12 * random.normal())  # equal up to rounding
    np.save("line.npy", line)
    assert "triangle" not in curvae("diagnose", "line.npy", "--distances").err
    np.save("squares.npy", d**2)
    i, j, k = np.array(list(combinations(range(40), 3))).T
    low, middle, high = np.sort(np.stack([d[i, j], d[i, k], d[j, k]]) ** 2, axis=0)
    share = (high > low + middle).mean()  # of the obtuse triangles
    (note,) = curvae("diagnose", "squares.npy", "--distances", "--json").json["notes"]
    assert float(note.split(" %")[0]) == pytest.approx(100 * share, abs=1.0)
    assert "of 50,000 triples drawn violate the triangle inequality" in note
    assert note in curvae("diagnose", "squares.npy", "--distances").err


def test_text_columns_and_missing_values_are_read_as_fit_reads_them():
    random = np.random.default_rng(0)
    write_table(Path("t.csv"), colour=random.choice(["red", "blue", "green"], 40), cell=["", "2.5"] + ["1.5"] * 38)
    refused("diagnose", "t.csv", "--categorical", "colour", says=["--missing drop"])
    says = (
        "gaps cannot be left to a model; run this, or with --missing drop:\ncurvae diagnose t.csv --categorical colour"
    )
    refused("diagnose", "t.csv", "--missing", "model", "--categorical", "colour", says=[f"{says} --missing mean\n"])
    found = curvae("diagnose", "t.csv", "--categorical", "colour", "--missing", "mean", "--json")
    assert found.code == 0 and found.json["size"] == 40
    assert curvae("diagnose", "t.csv", "--categorical", "colour", "--missing", "drop", "--json").json["size"] == 39


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nope"], ["there is no file nope; built in are branching-diffusion"]),
        (["few.csvv"], ["there is no file few.csvv; did you mean 'few.csv', ", "? Built in are branching-diffusion"]),
        (["phylogenetic"], ["phylogenetic is a graph", "--graph"]),
        (["g.edges"], ["g.edges is a graph", "--graph"]),
        (["g.graphml"], ["g.graphml is a graph", "--graph"]),
        (["nothing", "--graph"], ["there is no file nothing; graphs known by name are phylogenetic"]),
        (["t.csv", "--label", "kind"], ["no column 'kind' for --label"]),
        (["t.csv", "--distances"], ["40 × 3", "as many rows as columns"]),
        (["t.csv", "--distances", "--graph"], ["--distances has no meaning with --graph; leave it out"]),
        (["t.csv", "--graph", "--label", "a"], ["--label has no meaning with --graph"]),
        (["t.csv", "--graph", "--missing", "mean"], ["--missing has no meaning with --graph"]),
        (["g.edges", "--graph", "--metric", "cosine"], ["--metric has no meaning with --graph"]),
        (["d.npy", "--distances", "--metric", "euclidean"], ["--metric has no meaning with --distances"]),
        (["d.npy", "--distances", "--missing", "drop"], ["--missing has no meaning with --distances"]),
        (["d.npy", "--distances"], ["'x1' (1), 'x2' (1)", "fill these distances in"]),
        (["g.edges", "--graph"], ["3 nodes are too few"]),
        (["t.csv", "--metric", "l7"], ["--metric", "'euclidean'"]),
        (["few.csv"], ["9 points are too few", "at least 16"]),
        (["same.csv"], ["all points are the same"]),
        (["t.csv", "--tree", "truth.csv"], ["t.csv is not a folder"]),
        (["t.csv", "-o", "t.csv/report.html"], ["cannot write t.csv/report.html", "choose another with -o"]),
        (["t.csv", "-o", "."], [". should end in .html"]),
        (["t.csv", "-o", "x.pdf"], ["x.pdf should end in .html", "-o"]),
    ],
)
def test_mistakes_are_one_line(words, says):
    write_table(Path("t.csv"))
    write_table(Path("few.csv"), rows=9)
    pd.DataFrame(np.ones((20, 2)), columns=["a", "b"]).to_csv("same.csv", index=False)
    d = squareform(pdist(np.arange(20.0)[:, None]))
    d[0, 1] = d[1, 0] = np.nan
    np.save("d.npy", d)
    Path("g.edges").write_text("a b\nb c\n")
    Path("g.graphml").write_text("<graphml></graphml>")
    before = snapshot(Path())
    refused("diagnose", *words, says=says)
    assert snapshot(Path()) == before


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    home = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        tree_table("tree.csv", rows=120)
        words = ("--id", "name", "--label", "node", "-o", "run", "-q", "--curvature", "learn", *SMALL)
        assert curvae("fit", "tree.csv", *words).code == 0
    return home


@pytest.fixture
def run(kept, tmp_path):
    shutil.copy(kept / "truth.csv", tmp_path)
    return shutil.copytree(kept / "run", tmp_path / "run").relative_to(tmp_path)


def test_a_run_is_compared_with_a_tree(run):
    found = curvae("diagnose", run, "--tree", "truth.csv")
    assert found.code == 0
    lines = found.out.splitlines()
    assert lines[0] == "120 of 120 rows matched to nodes by label; without a match are 0 rows and 33 named nodes."
    assert [line.split()[0] for line in lines[1:6]] == ["distances:", "distortion:", "depth:", "dendrogram", "mean"]
    assert lines[-1] == "next: curvae diagnose run --newick tree.nwk"
    figures = curvae("diagnose", run, "--tree", "truth.csv", "--json").json
    assert figures["match"] == {"by": "label", "rows": 120, "unmatched_rows": 0, "unmatched_names": 33, "notes": []}
    assert -1 <= figures["distance_correlation"] <= 1 and 0 < figures["purity"] <= 1
    # A map that is the tree's: the figures follow the file.
    table = pd.read_csv(run / "embedding.csv")
    truth = pd.read_csv("truth.csv", keep_default_na=False)
    table["label"] = [truth["child"][k % 60] for k in range(len(table))]
    table.to_csv(run / "embedding.csv", index=False)
    other = curvae("diagnose", run, "--tree", "truth.csv", "--json").json
    assert other["distance_correlation"] < figures["distance_correlation"]


def test_several_roots_are_joined_and_it_is_told(run):
    truth = pd.read_csv("truth.csv", keep_default_na=False)
    truth.assign(parent=truth["parent"].replace("n0", "")).to_csv("roots.csv", index=False)
    found = curvae("diagnose", run, "--tree", "roots.csv")
    told = "roots.csv has 3 roots ('n0', 'n1', 'n2'); they were joined under one."
    assert found.code == 0 and told in found.err and "roots" not in found.out
    assert curvae("diagnose", run, "--tree", "roots.csv", "--json").json["match"]["notes"] == [told]
    assert "roots" not in curvae("diagnose", run, "--tree", "truth.csv").err
    Path("others.csv").write_text("child,parent\nx,\ny,\n")
    refused("diagnose", run, "--tree", "others.csv", says=["no row has the name"])


def test_a_tree_of_one_level(run):
    truth = pd.read_csv("truth.csv", keep_default_na=False).query("child != 'n0'")
    truth.assign(parent="n0").to_csv("star.csv", index=False)
    assert ", mean over 1 level, 120 rows" in curvae("diagnose", run, "--tree", "star.csv").out


def test_the_tree_of_a_run_is_written(run):
    found = curvae("diagnose", run, "--newick", "out.nwk")
    assert found.code == 0 and found.out.splitlines()[0] == "newick: out.nwk"
    tree = parse_newick(Path("out.nwk").read_text())
    assert {str(name) for name in tree.names if name} == {f"r{k}" for k in range(120)}
    refused("diagnose", run, "--newick", "out.nwk", says=["out.nwk exists", "with --newick", "--force"])
    both = curvae("diagnose", run, "--newick", "out.nwk", "--tree", "truth.csv", "--force", "--json").json
    assert both["leaves"] == 120 and both["match"]["rows"] == 120


@pytest.mark.parametrize(
    "words",
    [
        ("-o", "x.html"),
        ("--distances",),
        ("--graph",),
        ("--label", "a"),
        ("--id", "a"),
        ("--metric", "euclidean"),
        ("--missing", "error"),
        ("--group", "a"),
        ("--categorical", "a"),
    ],
)
def test_options_of_data_are_refused_with_a_run(run, words):
    for asked in (("--tree", "truth.csv"), ("--newick", "out.nwk")):
        refused("diagnose", run, *asked, *words, says=[f"{words[0]} has no meaning with a run; leave it out"])
    assert not Path("out.nwk").exists() and not Path("x.html").exists()


def test_runs_that_cannot_be_looked_at(run):
    refused("diagnose", run, says=["run is a run", "--tree", "--newick"])
    refused("diagnose", run, "--tree", "nothing.nwk", says=["nothing.nwk cannot be read"])
    Path("bad.nwk").write_text("((a,b);")
    refused("diagnose", run, "--tree", "bad.nwk", says=["bad.nwk is not a tree in Newick format", "not closed"])
    Path("other.nwk").write_text("(x,y);")
    refused(
        "diagnose",
        run,
        "--tree",
        "other.nwk",
        says=["rows are called 'r0', 'r1', 'r2' and have the labels 'n0', 'n1', 'n2', nodes are called 'x', 'y'"],
    )
    table = pd.read_csv(run / "embedding.csv")
    table.assign(ball_1=2.0).to_csv(run / "embedding.csv", index=False)
    refused("diagnose", run, "--tree", "truth.csv", says=["embedding.csv is not as", "contradict one another"])
    (run / "embedding.csv").unlink()
    refused("diagnose", run, "--newick", "out.nwk", says=["run is not finished; finish it with: curvae fit "])
    config = json.loads((run / "config.json").read_text())
    del config["summary"]
    (run / "config.json").write_text(json.dumps(config))
    refused("diagnose", run, "--tree", "truth.csv", says=["run is not finished; finish it with: curvae fit "])


# --- runs that are compared with a known tree ------------------------------------------------------------------------


sys.path.insert(0, str(ROOT))


# --- known trees ------------------------------------------------------------------------------------------------------


def embedded(run: str) -> tuple[pd.DataFrame, Embedded]:
    table = pd.read_csv(Path(run) / "embedding.csv", dtype={"id": str})
    return table, Embedded(table.filter(regex="^ball_").to_numpy(), 1.0)


def test_a_run_of_a_graph_is_compared_with_a_tree():
    child = [f"n{k}" for k in range(1, 15)]
    parent = [f"n{(k - 1) // 2}" for k in range(1, 15)]
    pd.DataFrame({"child": child, "parent": parent}).to_csv("tree.csv", index=False)
    assert curvae("graph", "tree.csv", "-o", "run", "--splits", "0", "--epochs", "3").code == 0
    found = curvae("diagnose", "run", "--tree", "tree.csv", "--json")
    assert found.code == 0, found.err
    assert found.json["match"] == {"by": "id", "rows": 15, "unmatched_rows": 0, "unmatched_names": 0, "notes": []}
    tree, (table, points) = tree_of_pairs(child, parent), embedded("run")
    places = {str(name): node for node, name in enumerate(tree.names)}
    expected = recover(tree, np.array([places[name] for name in table["id"]]), points)
    assert found.json["distance_correlation"] == pytest.approx(expected.distance_correlation)
    assert found.json["purity"] == pytest.approx(expected.purity)
    assert curvae("diagnose", "run", "--newick", "out.nwk").code == 0
    read_off = parse_newick(Path("out.nwk").read_text(encoding="utf-8"))
    assert sorted(read_off.names[read_off.names != ""]) == sorted(table["id"])
    refused("diagnose", "run", "--tree", "branching-diffusion", says=["run has no rows of branching-diffusion", "file"])


def test_the_tree_of_the_built_in_data_is_known(monkeypatch):
    small = (50, 4, 2, 3, *branching_diffusion.__defaults__[4:])  # 31 nodes, observed three times each
    monkeypatch.setattr(branching_diffusion, "__defaults__", small)
    assert curvae("fit", "branching-diffusion", "-o", "run", "--epochs", "1", "--hidden", "16").code == 0
    found = curvae("diagnose", "run", "--tree", "branching-diffusion", "--json")
    assert found.code == 0, found.err
    # The same from a table that names the node of every row.
    table, points = embedded("run")
    node = table["id"].str.extract(r"^node(\d+)-")[0].astype(int).to_numpy()
    parent = branching_diffusion().parent
    tree = tree_of_pairs(np.arange(1, len(parent)).astype(str), parent[1:].astype(str))
    places = {str(name): place for place, name in enumerate(tree.names)}
    expected = recover(tree, np.array([places[str(k)] for k in node]), points).to_json()
    assert found.json["match"]["rows"] == 93 and found.json["match"]["unmatched_names"] == 0
    for name in ("distortion", "distance_correlation", "depth_correlation", "purity", "mean_average_precision"):
        assert found.json[name] == pytest.approx(expected[name]), name
    Path("branching-diffusion").write_text("child,parent\na,b\n")  # a file of that name comes first
    refused("diagnose", "run", "--tree", "branching-diffusion", says=["no row has the name of a node"])


# --- how faithful a map is -------------------------------------------------------------------------------------------


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
    pd.read_csv("map.csv").assign(cluster=range(40)).to_csv("clusters.csv", index=False)
    assert "Coordinates: u1, u2." in curvae("judge", "t.csv", "clusters.csv", *NAMED).err
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
    monkeypatch.setattr("curvae.runs.training.DEFAULT_STEPS", steps)
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
    monkeypatch.setattr("curvae.runs.training.DEFAULT_STEPS", 1)
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
