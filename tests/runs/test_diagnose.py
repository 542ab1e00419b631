"""`curvae diagnose`: what it prints and writes, and the one line for every mistake."""

from __future__ import annotations

import json
import shutil
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, save_npz
from scipy.spatial.distance import pdist, squareform

from curvae.data import branching_diffusion
from curvae.hierarchy import parse_newick
from running import SMALL, curvae, refused, snapshot, write_table


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


def groups_table(path):
    random = np.random.default_rng(0)
    x = 5 * random.normal(size=(4, 3))[random.integers(4, size=120)] + random.normal(size=(120, 3))
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
    assert first in page.replace("&#x27;", "'") and page.count("<img") == 2 and "four-point score" in page
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
    table = pd.read_csv(groups_table("t.csv"))
    (table * [1, 1000, 0.01] + 7).to_csv("other.csv", index=False)
    words = ("diagnose", "t.csv", "--json", "-o", "report.html")
    found = curvae(*words, thorough=True).json
    assert found["outcome"] == "clustered" and found["nesting"] == "too few groups to tell"
    page = Path("report.html").read_text()
    assert found["nesting"] in found["sentence"] and found["sentence"] in page
    assert page.count(found["nesting"]) == 2
    own, other = (curvae("diagnose", name, "--json").json for name in ("t.csv", "other.csv"))
    for name, score in own["scores"].items():
        assert score["value"] == pytest.approx(other["scores"][name]["value"])
    assert own["delta"]["mean"] == pytest.approx(other["delta"]["mean"])
    for metric in ("cosine", "correlation", "manhattan"):
        found = curvae("diagnose", "t.csv", "--metric", metric, "--json")
        assert found.code == 0 and found.json["delta"]["mean"] != own["delta"]["mean"]


def test_values_whose_squares_are_no_numbers():
    x = pd.read_csv(groups_table("t.csv")).to_numpy()
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
    same = curvae("diagnose", "d.csv", "--distances", "--json", thorough=True).json
    assert same["delta"]["mean"] == pytest.approx(found["delta"]["mean"])
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
        tree_table("tree.csv", rows=200)
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
    assert lines[0] == "200 of 200 rows matched to nodes by label; without a match are 0 rows and 13 named nodes."
    assert [line.split()[0] for line in lines[1:6]] == ["distances:", "distortion:", "depth:", "dendrogram", "mean"]
    assert lines[-1] == "next: curvae diagnose run --newick tree.nwk"
    figures = curvae("diagnose", run, "--tree", "truth.csv", "--json").json
    assert figures["match"] == {"by": "label", "rows": 200, "unmatched_rows": 0, "unmatched_names": 13, "notes": []}
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
    assert ", mean over 1 level, 200 rows" in curvae("diagnose", run, "--tree", "star.csv").out


def test_the_tree_of_a_run_is_written(run):
    found = curvae("diagnose", run, "--newick", "out.nwk")
    assert found.code == 0 and found.out.splitlines()[0] == "newick: out.nwk"
    tree = parse_newick(Path("out.nwk").read_text())
    assert {str(name) for name in tree.names if name} == {f"r{k}" for k in range(200)}
    refused("diagnose", run, "--newick", "out.nwk", says=["out.nwk exists", "with --newick", "--force"])
    both = curvae("diagnose", run, "--newick", "out.nwk", "--tree", "truth.csv", "--force", "--json").json
    assert both["leaves"] == 200 and both["match"]["rows"] == 200


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
