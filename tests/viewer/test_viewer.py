"""The interactive map without a browser: what the page holds, to which precision, and what `curvae view` writes."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from curvae import CurvaeError, Euclidean, Lorentz, PoincareBall, viewer
from curvae.plotting import PALETTE, graph_map, latent_map
from curvae.viewer import View, page
from paths import ROOT
from running import SMALL, curvae, refused, write_table

HOSTILE = """</script><script>alert(1)</script><!-- "'&"""


class Page(HTMLParser):
    """The scripts of a page: those that run, and blocks of data by name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.programs, self.blocks, self.policy, self.tags = [], {}, "", []
        self._open = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
        if tag == "script":
            self._open = attrs
            self.handle_data("")

    def handle_endtag(self, tag):
        if tag == "script":
            self._open = None

    def handle_data(self, data):
        if self._open is None:
            return
        if "type" not in self._open:
            self.programs += [data] if data else []
        else:
            name = self._open.get("data-block", "facts")
            self.blocks[name] = self.blocks.get(name, "") + data

    @property
    def facts(self):
        return json.loads(self.blocks["facts"])

    def bytes(self, name):
        return zlib.decompress(base64.b64decode(self.blocks[name]))

    def numbers(self, name):
        fact = self.facts["blocks"][name]
        planes = np.frombuffer(self.bytes(name), np.uint8).reshape(fact["width"], fact["length"])
        return sum(plane.astype(object) * 256**k for k, plane in enumerate(planes))

    def points(self):
        """Radius in units of the curvature, and angle."""
        turn = self.numbers("turn").astype(np.float64) / 2 ** self.facts["turn"]["bits"]
        return self.numbers("radius").astype(np.float64) * self.facts["radius"]["step"], 2 * math.pi * turn


def at(radius, angle):
    """Space parts at curvature −1."""
    return np.sinh(radius)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)


def cloud(count=200, reach=8.0, seed=0):
    generator = np.random.default_rng(seed)
    return at(reach * generator.random(count), 2 * math.pi * generator.random(count))


# --- points -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [1.0, 0.01, 4.0])
@pytest.mark.parametrize(("reach", "error"), [(0.02, 1e-7), (3.0, 3e-6), (12.0, 3e-6), (22.0, 1e-5)])
def test_no_point_is_displaced(c, reach, error):
    space = cloud(reach=reach) / math.sqrt(c)
    radius, angle = Page(View(space, Lorentz(2, c)).fragment()).points()
    # Distances between neighbours in float64, from differences alone.
    r = np.arcsinh(math.sqrt(c) * np.linalg.norm(space, axis=1))
    gap = (angle - np.arctan2(space[:, 1], space[:, 0]) + math.pi) % (2 * math.pi) - math.pi
    half = np.sinh((radius - r) / 2) ** 2 + np.sinh(radius) * np.sinh(r) * np.sin(gap / 2) ** 2
    assert (2 * np.arcsinh(np.sqrt(half))).max() < error


def test_the_charts_agree():
    space = cloud(reach=4.0)
    ball = PoincareBall(2, 0.5)
    one, other = (
        np.stack(Page(View(points, manifold).fragment()).points())
        for points, manifold in ((space, Lorentz(2, 0.5)), (ball.from_lorentz(torch.from_numpy(space)), ball))
    )
    np.testing.assert_allclose(one, other, atol=1e-5)
    flat = torch.tensor([[3.0, 4.0], [-1.0, 0.0]])
    for points, manifold in ((flat, Euclidean(2)), (flat / 2, PoincareBall(2, 0.0))):
        radius, angle = Page(View(points, manifold).fragment()).points()
        np.testing.assert_allclose(radius, [5.0, 1.0], rtol=1e-5)
        np.testing.assert_allclose(angle, [math.atan2(4, 3), math.pi], atol=1e-5)


def test_points_at_one_place_and_a_single_point():
    for points in (np.zeros((3, 2)), [[0.1, 0.2]]):
        radius, _ = Page(page(points, PoincareBall(2))).points()
        assert len(radius) == len(points) and np.isfinite(radius).all()


def test_points_beyond_what_can_be_drawn_are_told():
    view = View(at(np.array([1.0, 60.0]), np.zeros(2)), Lorentz(2))
    assert "1 point beyond √c·r = 40, drawn at that distance" in view.inside
    assert Page(view.fragment()).points()[0].max() == pytest.approx(40)


def test_many_points_make_a_small_page():
    count = 100_001  # from here on space counts
    generator = np.random.default_rng(0)
    space = cloud(count, 12.0)
    ids = ["".join(letters) for letters in np.array(list("ACGT"))[generator.integers(0, 4, (count, 16))]]
    view = View(space, Lorentz(2), {"k": generator.integers(0, 15, count)}, ids, generator.random(count) + 0.1)
    found = Page(view.fragment())
    assert sum(map(len, found.blocks.values())) * 1_000_000 / count < 19.8e6
    assert found.bytes("ids").decode().split("\n") == ids
    radius, angle = found.points()
    assert np.abs(radius - np.arcsinh(np.linalg.norm(space, axis=1))).max() < 1e-4
    gap = (angle - np.arctan2(space[:, 1], space[:, 0]) + math.pi) % (2 * math.pi) - math.pi
    assert (np.abs(gap) * np.sinh(radius)).max() < 1e-4


def test_ids_that_are_too_large_are_left_out_and_it_is_told(monkeypatch):
    monkeypatch.setattr("curvae.viewer._BUDGET", 100)
    view = View(cloud(50), Lorentz(2), ids=[f"a rather long id {k}" for k in range(50)])
    assert view.inside[-1] == "numbers of the points in place of ids, which would make the page too large"
    assert "ids" not in Page(view.fragment()).blocks and Page(view.fragment()).facts["ids"] == "numbers"


# --- columns, edges, images -------------------------------------------------------------------------------------------


def test_columns_keep_their_values():
    numbers = np.array([1e-8, -3.5, np.nan, 1e12, 0.1])
    found = Page(View(cloud(5), Lorentz(2), {"kind": ["b", None, "a", "b", "c"], "size": numbers}).fragment())
    kind, size = found.facts["columns"]
    assert kind["kind"] == "levels" and [kind["texts"][k] for k in kind["shown"]] == ["a", "b", "c"]
    texts = [None, *kind["texts"]]
    assert [texts[code] for code in found.numbers("column0")] == ["b", None, "a", "b", "c"]
    assert size["kind"] == "numbers"
    stored = found.numbers("column1").astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(stored, numbers.astype(np.float32))
    assert (size["low"], size["high"]) == (-3.5, np.float32(1e12))
    assert found.facts["colours"]["light"]["palette"] == list(PALETTE)


def test_deviations_keep_their_size():
    sigma = np.geomspace(1e-3, 2.0, 30)
    found = Page(View(cloud(30), Lorentz(2, 0.25), sigma=sigma).fragment())
    fact = found.facts["sigma"]
    stored = np.exp(fact["low"] + fact["step"] * found.numbers("sigma").astype(float))
    np.testing.assert_allclose(stored, sigma * 0.5, rtol=1e-3)  # in units of the curvature
    with pytest.raises(CurvaeError, match="positive"):
        View(cloud(2), Lorentz(2), sigma=[0.0, 1.0]).fragment()


def test_one_of_a_thing_is_no_plural():
    view = View(cloud(3), Lorentz(2), edges=[[0], [1]], hierarchy=(cloud(1), []))
    assert view.inside[-2:] == ["a hierarchy of 1 node", "1 edge"]


def test_edges_and_hierarchies_point_to_their_ends():
    space, nodes = cloud(20), cloud(3, seed=1)
    edges = np.array([[0, 5, 7], [19, 6, 0]])
    for anonymous in (False, True):
        view = View(space, Lorentz(2), edges=edges, hierarchy=(nodes, [(0, 1), (1, 2)]), anonymous=anonymous)
        found = Page(view.fragment())
        radius, angle = found.points()
        ends = np.stack([found.numbers("edge_from"), found.numbers("edge_to")]).astype(int)
        given = np.concatenate([space[edges], nodes[[[0, 1], [1, 2]]]], 1)
        pairs = at(radius, angle)[ends]
        if anonymous:  # in no order, and neither are the two ends
            pairs, given = (np.sort(np.sort(each[..., 0], axis=0), axis=1) for each in (pairs, given))
        np.testing.assert_allclose(pairs, given, rtol=1e-3, atol=1e-3)
        assert found.facts["count"] == 20 and found.facts["edges"] == 5


def test_thumbnails_are_the_images():
    images = np.random.default_rng(0).random((1100, 6, 9))
    found = Page(View(cloud(1100), Lorentz(2), images=images).fragment())
    fact = found.facts["thumbnails"]
    assert (fact["height"], fact["width"], fact["each"]) == (6, 9, 1024)
    for i in (0, 33, 1023, 1024, 1099):
        sheet = Image.open(io.BytesIO(base64.b64decode(found.blocks[f"sheet{i // 1024}"]))).convert("L")
        row, column = divmod(i % 1024, fact["columns"])
        shown = np.asarray(sheet)[6 * row : 6 * row + 6, 9 * column : 9 * column + 9] / 255
        assert np.abs(shown - images[i]).max() < 0.04  # sixteen greys
    large = Page(View(cloud(2), Lorentz(2), images=np.zeros((2, 100, 50))).fragment()).facts["thumbnails"]
    assert (large["height"], large["width"]) == (32, 16)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"points": np.zeros((0, 2))}, r"shape \(N, 2\) with N at least 1, got \(0, 2\)"),
        ({"points": [[2.0, 0.0]], "manifold": PoincareBall(2)}, "is not in PoincareBall"),
        ({"points": [[np.nan, 0.0]]}, "give points inside"),
        ({"manifold": PoincareBall(3)}, "dimension 2"),
        ({"ids": ["a"]}, "1 ids for 2 points"),
        ({"columns": {"age": [1, 2, 3]}}, "3 age for 2 points"),
        ({"edges": [[0], [2]]}, "indices below 2"),
        ({"edges": [0, 1]}, "indices below 2"),
        ({"hierarchy": ([[0.0, 0.1]], [(0, 1)])}, "edges of the hierarchy must be pairs of indices below 1"),
    ],
)
def test_mistakes_are_said_in_one_line(given, message):
    with pytest.raises(CurvaeError, match=message) as caught:
        View(**{"points": [[0.1, 0.2], [0.3, 0.1]], **given})
    assert "\n" not in str(caught.value)


# --- privacy and safety -----------------------------------------------------------------------------------------------


def test_an_anonymous_page_knows_neither_ids_nor_order():
    space, values = cloud(300), np.arange(300) / 7
    ids = [f"patient-{k}" for k in range(300)]

    def opened():
        seen = Page(View(space, Lorentz(2), {"v": values}, ids, sigma=1 + values, anonymous=True).html())
        return seen, np.rint(seen.numbers("column0").astype(np.uint32).view(np.float32) * 7).astype(int)

    seen, rows = opened()
    everything = b"".join(seen.bytes(name) for name in seen.blocks if name != "facts")
    assert b"patient" not in everything + seen.blocks["facts"].encode() and seen.facts["ids"] is None
    # Every row is there, with what belongs to it, and in another order each time.
    np.testing.assert_array_equal(np.sort(rows), np.arange(300))
    radius, angle = seen.points()
    np.testing.assert_allclose(at(radius, angle), space[rows], rtol=1e-4, atol=1e-3)
    scale = seen.facts["sigma"]
    sigma = np.exp(scale["low"] + scale["step"] * seen.numbers("sigma").astype(np.float64))
    np.testing.assert_allclose(sigma, 1 + values[rows], rtol=1e-3)
    _, others = opened()
    assert (rows == others).mean() < 0.1 and (rows == np.arange(300)).mean() < 0.1


def test_anonymous_pictures_do_not_keep_the_order():
    space = cloud(60, 3.0)

    def places(text):
        return [*re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"', text)]

    def still(text):
        (picture,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
        return places(base64.b64decode(picture).decode())

    plain = View(space, Lorentz(2))
    drawn, in_page = places(plain.picture("svg").decode()), still(plain.html())
    assert len(drawn) == 60 and drawn == in_page
    hidden = [View(space, Lorentz(2), anonymous=True) for _ in range(2)]
    found = [places(hidden[0].picture("svg").decode()), still(hidden[0].html()), still(hidden[1].html())]
    assert found[0] == found[1]  # shuffled once for all that is drawn
    for one in found:
        assert sorted(one) == sorted(drawn)
        assert sum(a == b for a, b in zip(one, drawn, strict=True)) < 20
    assert found[1] != found[2]


def test_anonymous_edges_keep_neither_order_nor_direction():
    count = 200
    edges = np.stack([np.arange(count), (np.arange(count) * 3 + 1) % count])
    seen = Page(View(cloud(count), Lorentz(2), {"v": np.arange(count) / 7}, edges=edges, anonymous=True).html())
    rows = np.rint(seen.numbers("column0").astype(np.uint32).view(np.float32) * 7).astype(int)
    ends = np.stack([rows[seen.numbers(name).astype(int)] for name in ("edge_from", "edge_to")])
    given, found = (sorted(map(tuple, np.sort(pairs.T, axis=1).tolist())) for pairs in (edges, ends))
    assert found == given
    forward = set(map(tuple, edges.T.tolist()))
    same = np.mean([tuple(pair) in forward for pair in ends.T.tolist()])
    assert 0.3 < same < 0.7
    assert (np.sort(ends, axis=0) == np.sort(edges, axis=0)).all(0).mean() < 0.1


def test_strange_texts_do_not_break_out():
    view = View(
        cloud(4),
        Lorentz(2),
        {HOSTILE: [HOSTILE, "b", "c", "x" * 500]},
        [HOSTILE, "a\nb", "\ud800", "d"],
        title=HOSTILE + "\ud800",
    )
    text = view.html()
    text.encode("utf-8")
    found = Page(text)
    assert found.programs == [viewer.script()] and "</script" not in viewer.script()
    assert found.bytes("ids").decode().split("\n") == [HOSTILE, "a b", "\\ud800", "d"]
    column = found.facts["columns"][0]
    assert column["name"] == HOSTILE and HOSTILE in column["texts"] and max(map(len, column["texts"])) == 200
    assert not [tag for tag, attrs in found.tags if any(key.startswith("on") for key in attrs)]


def test_the_policy_allows_this_program_and_no_request():
    found = Page(View(cloud(4), Lorentz(2)).html())
    rules = dict(rule.strip().split(" ", 1) for rule in found.policy.split(";"))
    assert rules["default-src"] == "'none'" and rules["script-src"] == viewer.policy(found.programs[0])
    assert rules["img-src"] == "data:" and "unsafe" not in found.policy
    assert not [attrs for _, attrs in found.tags if (attrs.get("src") or attrs.get("href") or "data:")[:5] != "data:"]
    # The program itself asks for nothing.
    assert not re.search(
        r"https?:|XMLHttpRequest|fetch\(|import\(|WebSocket|sendBeacon|innerHTML|eval\(", found.programs[0]
    )


def test_the_page_is_the_same_for_the_same_points():
    assert View(cloud(30), Lorentz(2)).html() == View(cloud(30), Lorentz(2)).html()


def test_still_pictures():
    view = View(cloud(40, 3.0), Lorentz(2), {"k": list("ab") * 20}, edges=[[0, 1], [2, 3]])
    assert view.picture("svg").lstrip().startswith(b"<?xml") and view.picture("pdf").startswith(b"%PDF")
    assert min(Image.open(io.BytesIO(view.picture("png"))).size) > 1000
    # The picture inside a page is drawn from a part of many points.
    assert len(View(cloud(5000), Lorentz(2)).picture("svg", 500)) < 200_000


# --- curvae view ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run of a table, one of images, and the tables."""
    folder = tmp_path_factory.mktemp("view")
    names = [f"cell{i}" for i in range(40)]
    write_table(folder / "cells.csv", kind=list("xyzz") * 10, name=names)
    frame = pd.read_csv(folder / "cells.csv").assign(age=np.arange(40) * 1.5, secret="unsaid")
    frame.sample(40, random_state=0).to_csv(folder / "more.csv", index=False)
    frame.drop(index=3).to_csv(folder / "fewer.csv", index=False)
    np.save(folder / "images.npy", np.random.default_rng(0).integers(0, 2, (30, 4, 5)).astype(np.float32))
    fit = ("fit", folder / "cells.csv", "--label", "kind", "--id", "name", "-o", folder / "run", *SMALL)
    assert curvae(*fit).code == 0
    assert curvae("fit", folder / "images.npy", "-o", folder / "pictured", "--dim", "3", *SMALL).code == 0
    return folder


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_view_writes_a_page(home):
    found = curvae("view", home / "run")
    assert found.code == 0, found.err
    assert found.out.splitlines() == [
        "map: run-map.html",
        f"next: curvae view {home / 'run'} -o run-map.pdf  # the map as a picture",
    ]
    seen = Page(Path("run-map.html").read_text(encoding="utf-8"))
    table = pd.read_csv(home / "run/embedding.csv")
    radius, angle = seen.points()
    drawn = table["map_1"] + 1j * table["map_2"]
    np.testing.assert_allclose(radius, 2 * np.arctanh(np.abs(drawn)), atol=1e-5)
    np.testing.assert_allclose(np.exp(1j * angle), drawn / np.abs(drawn), atol=1e-4)
    assert seen.bytes("ids").decode().split("\n") == table["id"].tolist()
    assert [column["name"] for column in seen.facts["columns"]] == ["kind"]
    assert seen.facts["title"] == "cells.csv" and "40 rows, c = 1 (curvature −1)" in seen.facts["about"]
    assert str(home) not in Path("run-map.html").read_text(encoding="utf-8")
    refused("view", home / "run", says=["run-map.html exists", "--force"])
    assert curvae("view", home / "run", "--force", "--quiet").out == ""


def test_view_shows_columns_of_a_table_matched_by_id(home):
    found = curvae(
        "view",
        home / "run",
        "--data",
        home / "more.csv",
        "--show",
        "age",
        "--show",
        "split",
        "--label",
        "kind",
        "--json",
    )
    assert found.code == 0, found.err
    assert found.json["map"] == "run-map.html" and "column age" in found.json["inside"]
    seen = Page(Path("run-map.html").read_text(encoding="utf-8"))
    assert [column["name"] for column in seen.facts["columns"]] == ["kind", "age", "split"]
    np.testing.assert_array_equal(seen.numbers("column1").astype(np.uint32).view(np.float32), np.arange(40) * 1.5)
    assert "unsaid" not in json.dumps(seen.facts) and "secret" not in json.dumps(seen.facts)


def test_view_without_names(home):
    found = curvae("view", home / "run", "--anonymous", "-o", "a.html")
    assert found.code == 0 and found.out.endswith("-o run-map.pdf --anonymous  # the map as a picture\n")
    text = Path("a.html").read_text(encoding="utf-8")
    assert "ids" not in Page(text).blocks and "no ids" in text and "cell1" not in text
    table = pd.read_csv(home / "more.csv")
    table.assign(other=table["name"], near=table["name"].str.upper()).to_csv("names.csv", index=False)
    words = ("view", home / "run", "--anonymous", "--data", "names.csv", "-o", "b.html")
    for option, column in (("--show", "name"), ("--show", "other"), ("--label", "name")):
        refused(*words, option, column, says=[f"column '{column}' holds the ids", "--anonymous"])
    assert curvae(*words, "--show", "near").code == 0


def test_view_of_one_dimension(home):
    assert (
        curvae("fit", home / "cells.csv", "--id", "name", "--label", "kind", "-d", "1", "-o", "one", *SMALL).code == 0
    )
    found = curvae("view", "one")  # a warning would be an error
    assert found.code == 0, found.err
    assert curvae("diagnose", "one", "--newick", "one.nwk").code == 0
    np.testing.assert_allclose(
        Page(Path("one-map.html").read_text(encoding="utf-8")).points()[0],
        2 * np.arctanh(pd.read_csv("one/embedding.csv")["map_1"].abs()),
        atol=1e-5,
    )


def test_view_shows_images(home):
    found = curvae("view", home / "pictured", "--thumbnails", "--data", home / "images.npy", "-o", "i.html")
    assert found.code == 0, found.err
    seen = Page(Path("i.html").read_text(encoding="utf-8"))
    assert seen.facts["thumbnails"]["height"] == 4 and seen.facts["columns"] == []
    assert "Projected from 3 dimensions" in seen.facts["about"][1]
    assert "sigma" not in seen.facts
    refused("view", home / "pictured", "--thumbnails", says=["--data images.npy"])
    np.save("other.npy", np.zeros((30, 4, 5), np.float32))
    refused("view", home / "pictured", "--thumbnails", "--data", "other.npy", says=["not the images"])
    refused("view", home / "run", "--thumbnails", says=["not trained on images", "leave out --thumbnails"])


@pytest.mark.parametrize(("name", "start"), [("m.svg", b"<?xml"), ("m.png", b"\x89PNG"), ("m.PDF", b"%PDF")])
def test_view_writes_pictures(home, name, start):
    found = curvae("view", home / "run", "-o", name)
    assert found.code == 0 and "next:" not in found.out
    assert Path(name).read_bytes().startswith(start)


def test_the_picture_of_a_page_has_its_colours(home):
    found = curvae("view", home / "run", "--label", "radius", "-o", "page.html")
    assert found.out.splitlines()[-1].endswith("-o run-map.pdf --label radius  # the map as a picture")


def test_new_rows_are_marked():
    new = np.arange(40) >= 37
    for anonymous in (False, True):
        view = View(cloud(40), Lorentz(2), {"k": np.where(new, 5.5, 0.5)}, new=new, anonymous=anonymous)
        seen = Page(view.html())
        assert seen.facts["new"] == 3 and "3 new rows among the points" in view.inside
        marked = seen.numbers("column0").astype(np.uint32).view(np.float32) > 5
        np.testing.assert_array_equal(seen.numbers("new"), marked)
    with pytest.raises(CurvaeError, match="2 new for 40 points"):
        View(cloud(40), Lorentz(2), new=[True, False])
    with pytest.raises(CurvaeError, match="new rows have no edges"):
        View(cloud(40), Lorentz(2), new=new, edges=[[0], [1]])


def test_the_still_picture_has_all_new_rows(monkeypatch):
    drawn = []
    monkeypatch.setattr("curvae.viewer.latent_map", lambda *given, **more: drawn.append(more["new"]))
    View(cloud(40), Lorentz(2), new=np.arange(40) >= 35).picture("svg", most=10)
    assert drawn[0].sum() == 5 and len(drawn[0]) < 16


def test_view_marks_new_rows(home):
    frame = pd.read_csv(home / "more.csv").head(5)
    frame = frame.assign(name=[f"new{i}" for i in range(5)], kind="z")
    frame.to_csv("new.csv", index=False)
    embedded = curvae("embed", home / "run", "new.csv")
    assert embedded.out.splitlines()[-1] == f"next: curvae view {home / 'run'} --rows new.csv"
    placed = pd.read_csv("new-embedding.csv")
    found = curvae("view", home / "run", "--rows", "new.csv", "--data", home / "more.csv", "--show", "age")
    assert found.code == 0, found.err
    assert found.out.splitlines() == [
        "map: run-map-new.html",
        f"next: curvae view {home / 'run'} -o run-map.pdf --rows new.csv  # the map as a picture",
    ]
    seen = Page(Path("run-map-new.html").read_text(encoding="utf-8"))
    assert seen.facts["about"] == ["40 rows, c = 1 (curvature −1)", "Marked: 5 new rows of new.csv"]
    np.testing.assert_array_equal(seen.numbers("new"), np.arange(45) >= 40)
    assert seen.bytes("ids").decode().split("\n")[40:] == placed["id"].tolist() == frame["name"].tolist()
    radius, _ = seen.points()
    np.testing.assert_allclose(radius[40:], 2 * np.arctanh(np.hypot(placed["map_1"], placed["map_2"])), atol=1e-5)
    ages = seen.numbers("column1").astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(ages[40:], frame["age"])
    # Without the label, and without a column that is shown.
    frame.drop(columns=["kind", "age"]).to_csv("new.csv", index=False)
    words = ("view", home / "run", "--rows", "new.csv", "--data", home / "more.csv", "--show", "age", "--explain")
    assert curvae(*words, "--force").code == 0
    seen = Page(Path("run-map-new.html").read_text(encoding="utf-8"))
    assert set(seen.numbers("column0")[40:]) == {0} and len(seen.facts["expected"]) == 3
    assert np.isnan(seen.numbers("column1").astype(np.uint32).view(np.float32)[40:]).all()
    frame.drop(columns="b").to_csv("new.csv", index=False)
    refused("view", home / "run", "--rows", "new.csv", "-o", "m.html", says=["new.csv has no columns 'b'"])
    refused("view", home / "run", "--missing", "drop", says=["--missing has no meaning without --rows"])
    frame.assign(b=[None, *frame["b"][1:]]).to_csv("new.csv", index=False)
    shown = curvae("view", home / "run", "--rows", "new.csv", "--missing", "drop", "-o", "m.html")
    assert "--rows new.csv --missing drop" in shown.out
    assert Page(Path("m.html").read_text(encoding="utf-8")).facts["new"] == 4


def test_new_images_have_thumbnails(home):
    np.save("new.npy", np.ones((2, 4, 5), np.float32))
    words = ("--rows", "new.npy", "--thumbnails", "--data", home / "images.npy", "-o", "i.html")
    assert curvae("view", home / "pictured", *words).code == 0
    seen = Page(Path("i.html").read_text(encoding="utf-8"))
    assert seen.facts["count"] == 32 and seen.facts["new"] == 2


def test_a_picture_refuses_what_only_a_page_has(home):
    for words, says in (
        (["--explain"], "--explain is for pages"),
        (["--show", "split"], "given with --label"),
        (["--find", "cell1"], "--find is for pages"),
    ):
        refused("view", home / "run", "-o", "m.png", *words, says=[says])


def test_what_view_refuses(home, tmp_path):
    refused("view", home / "run", "-o", "m.gif", says=["m.gif should end in .html, .svg, .png, .pdf"])
    refused("view", home / "run", "--show", "age", says=["no column 'age'", "with --data"])
    refused(
        "view",
        home / "run",
        "--data",
        home / "more.csv",
        "--show",
        "weight",
        says=["no column 'weight'", "there are 'a', 'b'"],
    )
    refused("view", home / "run", "--data", home / "fewer.csv", "--show", "age", says=["column 'name'", "all rows"])
    refused("view", home / "run", "--data", "nothing.csv", "--show", "age", says=["no table nothing.csv"])
    refused("view", tmp_path, says=["is not a run"])
    (tmp_path / "c").mkdir()
    Path("c/config.json").write_text('{"format": 3, "kind": "comparison"}')
    refused("view", "c", says=["comparison", "curvae fit"])
    Path("c/config.json").write_text('{"format": 3, "kind": "vae"}')
    refused("view", "c", says=["not finished", "--resume"])
    Path("c/config.json").write_text('{"format": 3, "kind": "vae", "summary": {"c": 1.0}}')
    Path("c/embedding.csv").write_text("id,label\na,b\n")
    refused("view", "c", says=["embedding.csv is not as curvae fit wrote it", "it lacks radius, sigma, split"])


def test_reports_hold_maps_up_to_a_size(home, monkeypatch):
    text = (home / "run/report.html").read_text(encoding="utf-8")
    seen = Page(text)
    assert seen.programs == [viewer.script()] and f"script-src {viewer.policy(viewer.script())}" in seen.policy
    assert seen.facts["count"] == 40 and seen.facts["ids"] is None and "ids" not in seen.blocks
    assert [column["name"] for column in seen.facts["columns"]] == ["kind"]
    assert "curvae view run" in text and 'class="still"' in text
    monkeypatch.setattr("curvae.runs.pages.LIVE", 39)
    fit = ("fit", home / "cells.csv", "--label", "kind", "--id", "name", "-o", "large", *SMALL)
    assert curvae(*fit).code == 0
    still = Path("large/report.html").read_text(encoding="utf-8")
    assert "<script" not in still and "curvae view large" in still


# --- points that are drawn larger or smaller -------------------------------------------------------------------------


POINTS = np.array([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])


def levels(html):
    text = re.search(r'data-block="size">([^<]*)<', html)
    return None if text is None else list(zlib.decompress(base64.b64decode(text[1])))


def test_sizes_are_levels_from_the_smallest_to_the_largest():
    assert levels(View(POINTS, Euclidean(2), sizes=[-2.0, 0.0, 2.0]).html()) == [0, 64, 127]
    assert levels(View(POINTS, Euclidean(2)).html()) is None
    assert '"sizes": false' in View(POINTS, Euclidean(2), sizes=[1.0, 1.0, 1.0]).html()
    hidden = View(POINTS, Euclidean(2), {"x": [-1.0, 0.0, 1.0]}, sizes=[-2.0, 0.0, 2.0], anonymous=True)
    np.testing.assert_allclose(np.asarray(hidden.sizes), 2 * np.asarray(hidden.points)[:, 0])
    for wrong, said in (([1.0], "1 sizes for 3 points"), ([1.0, np.nan, 2.0], "must be finite")):
        with pytest.raises(CurvaeError, match=said):
            View(POINTS, Euclidean(2), sizes=wrong).html()


def test_the_page_of_a_graph_has_popularity_as_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("star.csv").write_text("".join(f"hub,n{i}\n" for i in range(8)) + "n0,n1\nn2,n3\n", encoding="utf-8")
    made = curvae("graph", "star.csv", "-o", "r", "--splits", "0", "--set", "hidden=4", "--epochs", "2")
    shown = curvae("view", "r", "-o", "map.html", "--show", "popularity")
    assert made.code == shown.code == 0 and "sizes of the points" in shown.err
    found = levels(Path("map.html").read_text(encoding="utf-8"))
    assert found is not None and found[0] == max(found) == 127  # the hub is the first node of the file
    assert levels(Path("r", "report.html").read_text(encoding="utf-8")) is not None


def test_a_larger_number_is_a_larger_point(browser, tmp_path):
    page = tmp_path / "map.html"
    page.write_text(View(POINTS, Euclidean(2), sizes=[0.0, 1.0, 5.0]).html(), encoding="utf-8")
    browser.open(page)
    picture = np.asarray(Image.open(io.BytesIO(browser.screenshot())).convert("RGB"), float)[:, :590]
    blue = picture[..., 2] - picture[..., 0] > 60
    columns = np.flatnonzero(blue.any(0))
    apart = np.split(columns, np.flatnonzero(np.diff(columns) > 20) + 1)
    widths = [len(one) for one in apart]
    assert len(widths) == 3 and widths[0] < widths[1] < widths[2]
    assert 4 < widths[2] / widths[0] < 8  # 0.6 to 3 times the usual diameter, with an outline around each


# --- still pictures --------------------------------------------------------------------------------------------------


sys.path.insert(0, str(ROOT))


def test_pictures_say_what_colours_are(monkeypatch):
    seen = []

    def drawn(ax, *given, **more):
        latent_map(ax, *given, **more)
        shown = ax.get_legend()
        seen.append(ax.figure.axes[-1].get_ylabel() if shown is None else shown.get_title().get_text())

    monkeypatch.setattr("curvae.viewer.latent_map", drawn)
    space = np.random.default_rng(0).normal(size=(30, 2))
    for column in (list("ab") * 15, np.linspace(0, 1, 30)):
        View(space, Lorentz(2), {"price $": column}).picture("svg")
    assert seen == [r"price \$"] * 2


def test_view_names_nodes(monkeypatch):
    named = []

    def drawn(ax, *given, **more):
        graph_map(ax, *given, **more)
        named.append([text.get_text() for text in ax.texts])

    monkeypatch.setattr("curvae.viewer.graph_map", drawn)
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
