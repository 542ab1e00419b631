"""The gallery: its pictures and figures, the nouns of WordNet, and what `diagnose` and `view` do for it."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from curvae import Lorentz, PoincareBall
from curvae.data import branching_diffusion
from curvae.hierarchy import Embedded, parse_newick, recover, tree_of_pairs
from curvae.plotting import graph_map, latent_map
from curvae.viewer import View
from paths import ROOT
from running import curvae, refused

sys.path.insert(0, str(ROOT))

from benchmarks import gallery, wordnet

IMAGES = ROOT / "docs" / "images"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_pictures_are_small_and_shown():
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for name in gallery.ENTRIES:
        assert (IMAGES / f"gallery-{name}.png").stat().st_size < 200_000
        assert f"(images/gallery-{name}.png)" in page and f"<!-- table:gallery_{name} -->" in page
    assert (IMAGES / "front.png").stat().st_size < 200_000
    assert "docs/images/front.png" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_commands_are_those_that_were_run():
    stored = json.loads((ROOT / "results" / "gallery.json").read_text(encoding="utf-8"))["entries"]
    assert {name: part["commands"] for name, part in stored.items()} == {
        name: list(entry.commands) for name, entry in gallery.ENTRIES.items()
    }
    # What the page says in words.
    printed = stored["mammals"]["printed"]
    assert printed["curvae diagnose mammals-tree.csv --graph"]["outcome"] == "tree-like"
    assert printed["curvae diagnose mammals.csv --graph"]["outcome"] == "clustered"


# --- WordNet ----------------------------------------------------------------------------------------------------------

NOUNS = """\
  1 This is the licence.
10 05 n 02 mammal 0 mammalian 0 004 @ 99 n 0000 ~ 20 n 0000 ~ 30 n 0000 #p 77 n 0000 | warm | blooded
20 05 n 01 carnivore 0 003 @ 10 n 0000 ~ 40 n 0000 ~ 60 n 0000 | eats
30 05 n 01 wild_beast 0 002 @ 10 n 0000 ~i 77 n 0000 | roams
40 05 n 01 canine 0 002 @ 20 n 0000 ~ 50 n 0000 | barks
50 05 n 01 bull 0 003 @ 40 n 0000 @ 30 n 0000 ~ 60 n 0000 | a dog
60 05 n 01 bull 1 002 @ 20 n 0000 @ 50 n 0000 | another
77 05 n 01 tooth 0 000 | a part
99 05 n 01 animal 0 001 ~ 10 n 0000 | all
"""


def test_nouns_below_mammal(tmp_path, monkeypatch):
    (tmp_path / "data.noun").write_text(NOUNS)
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    wordnet.main(tmp_path)
    pairs, tree, nodes = (
        list(csv.reader(Path(name).read_text(encoding="utf-8").splitlines()))
        for name in ("mammals.csv", "mammals-tree.csv", "mammal-nodes.csv")
    )
    assert pairs[0] == tree[0] == ["child", "parent"]
    above = {
        "carnivore": {"mammal"},
        "wild beast": {"mammal"},
        "canine": {"carnivore", "mammal"},
        "bull": {"carnivore", "bull (2)", "canine", "mammal"},
        "bull (2)": {"canine", "carnivore", "mammal"},
    }
    assert sorted(pairs[1:]) == sorted([child, parent] for child, parents in above.items() for parent in parents)
    # Of two ways up the tree takes the shorter one.
    assert dict(tree[1:]) == {
        "carnivore": "mammal",
        "wild beast": "mammal",
        "canine": "carnivore",
        "bull": "carnivore",
        "bull (2)": "canine",
    }
    branches = dict(nodes[1:])
    assert branches["mammal"] == branches["wild beast"] == "other mammal"
    assert branches["bull"] == "carnivore" and branches["bull (2)"] == branches["canine"] == "canine"
    monkeypatch.setenv("WNSEARCHDIR", "nowhere")
    with pytest.raises(SystemExit, match="wordnet-base"):
        wordnet.main(tmp_path)
    with pytest.raises(SystemExit, match="no noun"):
        wordnet.read(["1 05 n 01 plant 0 000 | green"])


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


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_hubs_are_named():
    points = [[0.0, 0.0], [0.7, 0.0], [-0.7, 0.0], [0.0, 0.7], [0.0, -0.7]]
    edges, names = [[0, 1], [0, 2], [0, 3], [3, 4]], ["hub", "a", "b", "second", "c"]

    def drawn(**more):
        ax = Figure(figsize=(5, 5)).subplots()
        graph_map(ax, PoincareBall(2), points, edges, names=names, **more)
        return {text.get_text(): text.get_weight() for text in ax.texts}, [line.get_marker() for line in ax.lines]

    assert drawn() == ({}, [])
    assert drawn(hubs=2) == ({"hub": "normal", "second": "normal"}, [])
    assert drawn(hubs=2, central=[3]) == ({"second": "bold", "hub": "normal"}, ["o"])


def test_a_long_legend_has_two_columns():
    def columns(size, count):
        ax = Figure(figsize=(size, size)).subplots()
        z = np.linspace(-0.5, 0.5, 2 * count)[:, None] * [1.0, 0.2]
        latent_map(ax, PoincareBall(2), z, np.arange(count).repeat(2).astype(str))
        return ax.get_legend()._ncols

    assert columns(5.0, 14) == 1 and columns(2.0, 14) == 2


def test_pictures_say_what_colours_are(monkeypatch):
    seen = []

    def drawn(ax, *given, **more):
        latent_map(ax, *given, **more)
        shown = ax.get_legend()
        seen.append(ax.figure.axes[-1].get_ylabel() if shown is None else shown.get_title().get_text())

    monkeypatch.setattr("curvae.viewer.view.latent_map", drawn)
    space = np.random.default_rng(0).normal(size=(30, 2))
    for column in (list("ab") * 15, np.linspace(0, 1, 30)):
        View(space, Lorentz(2), {"price $": column}).picture("svg")
    assert seen == [r"price \$"] * 2


def test_view_names_nodes(monkeypatch):
    named = []

    def drawn(ax, *given, **more):
        graph_map(ax, *given, **more)
        named.append([text.get_text() for text in ax.texts])

    monkeypatch.setattr("curvae.viewer.view.graph_map", drawn)
    pd.DataFrame({"a": ["hub"] * 9, "b": list("bcdefghij")}).to_csv("edges.csv", index=False)
    assert curvae("graph", "edges.csv", "-o", "run", "--splits", "0", "--epochs", "2").code == 0
    for words in ((), ("--names", "1")):
        found = curvae("view", "run", "-o", "m.svg", *words, "--force")
        assert found.code == 0, found.err
    assert named == [[], ["hub"]]
    refused("view", "run", "--names", "3", says=["--names is for pictures"])
    refused("view", "run", "-o", "m.png", "--names", "3", "--anonymous", says=["not both"])
    pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3))).to_csv("rows.csv", index=False)
    assert curvae("fit", "rows.csv", "-o", "rows", "--epochs", "1").code == 0
    refused("view", "rows", "-o", "m.png", "--names", "3", says=["no run of curvae graph", "leave out --names"])


def test_images_stand_beside_the_map():
    random = np.random.default_rng(0)
    space, images = random.normal(size=(40, 2)), random.random((40, 6, 6))
    plain, pictured = (
        Image.open(io.BytesIO(View(space, Lorentz(2), images=given).picture("png"))) for given in (None, images)
    )
    assert pictured.width > 1.8 * plain.width and pictured.height < 1.5 * plain.height
