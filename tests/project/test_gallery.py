"""The gallery: its pictures and figures, and the nouns of WordNet."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from benchmarks import gallery, wordnet

from paths import ROOT

sys.path.insert(0, str(ROOT))


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
