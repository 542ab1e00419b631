"""Products of spaces on the command line: trained, resumed, embedded, compared, shown, and compared with a tree."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from unittest import mock

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

from curvae import PoincareBall
from curvae.errors import CurvaeError
from curvae.maps.embedding import PlacedFactor
from curvae.runs.run import comparable, given
from curvae.runs.viewing import open_map
from curvae.training import Config, Embedding
from curvae.training.engine import BatchEngine
from curvae.training.fitted import Fitted, active_dimensions, map_health
from curvae.training.graph_problem import FittedGraph
from curvae.training.storage import load_fitted
from pages import Page
from running import SMALL, config, curvae, refused, settings, untouched, write_table

ROWS = ("--label", "kind", *SMALL)
# Prior scales that differ: distances are in units of them.
LEARNED = (
    "--space",
    "h2:0.5,e3,h1",
    "--set",
    "learn_prior_scale=yes",
    "--set",
    "learning_rate=0.02",
    "--hidden",
    "32",
    "--epochs",
    "6",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a table and runs on it."""
    folder = tmp_path_factory.mktemp("products")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_table(Path("t.csv"), columns="abcdef", kind=list("xy") * 20)
        assert curvae("fit", "t.csv", *ROWS, *LEARNED, "-o", "run", pictures=True).code == 0
        edges = [*nx.balanced_tree(2, 4).edges, (3, 20), (5, 9)]
        Path("g.csv").write_text("".join(f"n{a} n{b}\n" for a, b in edges))
        words = (
            "--space",
            "h2:learn,e1",
            "--epochs",
            "5",
            "--splits",
            "0",
            "--set",
            "hidden=8",
            "--set",
            "learn_prior_scale=yes",
        )
        assert curvae("graph", "g.csv", *words, "-o", "graph").code == 0
    return folder


@pytest.fixture(autouse=True)
def _here(home, monkeypatch):
    monkeypatch.chdir(home)


def table(run="run"):
    return pd.read_csv(f"{run}/embedding.csv")


def metric(run="run"):
    """Metric coordinates at the origin by factor, by the paper's log_0 of the coordinates in the file."""
    frame, found = table(run), []
    for k, (name, c) in enumerate(zip(names(run), config(run)["summary"]["c"], strict=True)):
        if name.startswith("e"):
            found.append(frame.filter(regex=rf"^{name}_\d").to_numpy())
        else:
            ball = frame.filter(regex=f"^{name}_ball").to_numpy()
            size = np.linalg.norm(ball, axis=1, keepdims=True)
            found.append(2 / np.sqrt(c) * np.arctanh(np.sqrt(c) * size) * ball / size)
        assert found[k].size
    return found


def names(run="run"):
    return [f"{text.strip()[0]}{k}" for k, text in enumerate(settings(run)["space"].split(","), 1)]


# --- files ------------------------------------------------------------------------------------------------------------


def test_columns_of_every_factor():
    assert list(table()) == [
        *("id", "label", "split", "h1_ball_1", "h1_ball_2", "e2_1", "e2_2", "e2_3", "h3_ball_1"),
        *(f"tangent_{k}" for k in range(1, 7)),
        *("radius", "h1_sigma", "e2_sigma", "h3_sigma"),
        *(f"{name}_map_{k}" for name in ("h1", "e2", "h3") for k in (1, 2)),
    ]
    summary = config()["summary"]
    scales = summary["prior_scale"]
    assert len(set(scales)) == 3 and summary["c"] == [0.5, 0.0, 1.0]
    np.testing.assert_allclose(summary["identifiable"], np.multiply(summary["c"], np.square(scales)))
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    last = max(records, key=lambda record: record["validation_elbo"])
    assert scales == [last[f"prior_scale_{k}"] for k in (1, 2, 3)]
    units = [v / scale for v, scale in zip(metric(), scales, strict=True)]
    np.testing.assert_allclose(table().filter(like="tangent_"), np.concatenate(units, 1), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(table()["radius"], np.linalg.norm(np.concatenate(units, 1), axis=1), rtol=1e-5)


def test_columns_of_a_graph_have_the_scale_of_its_edges():
    assert max(abs(scale - 1) for scale in config("graph")["summary"]["prior_scale"]) > 1e-3
    found = table("graph").filter(like="tangent_")
    np.testing.assert_allclose(found, np.concatenate(metric("graph"), 1), rtol=1e-5, atol=1e-9)
    assert "identifiable" not in config("graph")["summary"]


@pytest.mark.parametrize("run", ["run", "graph"])
def test_files_give_the_embedding_back(run):
    frame, found = open_map(Path(run), config(run))
    own = load_fitted(Path(run), {"run": Fitted, "graph": FittedGraph}[run]).embedding
    assert [factor.name for factor in found.placed] == [factor.name for factor in own.placed] == names(run)
    assert [factor.dim for factor in found.placed] == [factor.dim for factor in own.placed]
    for part, other in zip(found.placed, own.placed, strict=True):
        assert part.unit == pytest.approx(other.unit, rel=1e-5) and part.c == pytest.approx(other.c, rel=1e-5)
    np.testing.assert_allclose(found.distances(), own.distances(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.sigma, own.sigma, rtol=1e-12)
    assert len(frame) == len(found)


def distances():
    """Distances in the product from the coordinates in the file, factor by factor."""
    summary, frame = config()["summary"], table()
    squares = 0
    for part, c, scale in zip(names(), summary["c"], summary["prior_scale"], strict=True):
        points = frame.filter(regex=rf"^{part}_(ball_)?\d").to_numpy()
        if part.startswith("e"):
            d = np.linalg.norm(points[:, None] - points, axis=-1)
        else:
            z = torch.tensor(points)
            d = PoincareBall(z.shape[1], c).dist(z[:, None], z).numpy()
        squares = squares + (d / scale) ** 2
    return np.sqrt(squares)


def test_distances_join_those_of_the_factors():
    _, found = open_map(Path("run"), config())
    np.testing.assert_allclose(found.distances(), distances(), rtol=1e-5, atol=1e-6)


def test_a_file_that_someone_edited_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(Path("run/config.json").read_text())
    frame = table()
    for changed, says in (
        (frame.assign(e2_1=7.0), "contradict one another"),
        (frame.drop(columns=["tangent_6"]), "no coordinates"),
        (frame.drop(columns=["h3_ball_1"]), "other factors"),
        (frame.drop(columns=["radius"]), "it lacks radius"),
    ):
        changed.to_csv(tmp_path / "embedding.csv", index=False)
        refused("view", tmp_path, says=["embedding.csv is not as curvae fit wrote it", says])
    described = config()
    described["config"]["space"]["depth"] = 2
    (tmp_path / "config.json").write_text(json.dumps(described))
    table().to_csv(tmp_path / "embedding.csv", index=False)
    refused("view", tmp_path, says=["embedding.csv is not as curvae fit wrote it", "unknown settings: space.depth"])


# --- reports ----------------------------------------------------------------------------------------------------------


def test_the_report_shows_every_factor():
    text = Path("run/report.html").read_text(encoding="utf-8")
    page = Page(text)
    captions = [said for said in page.said("figcaption") if said.startswith("Factor ")]
    assert [said.split(".")[0] for said in captions] == [f"Factor {name}" for name in names()] * 2
    assert "c = 0.5 (curvature −0.5)" in captions[0] and "Projected from 3 dimensions" in captions[1]
    assert any("in units of each factor's prior scale" in said for said in page.said("p"))
    cells = page.said("td")
    assert "h1: c = 0.5 (curvature −0.5), e2: flat, h3: c = 1 (curvature −1)" in cells
    scales = config()["summary"]["prior_scale"]
    assert "h1: {:.4g}, e2: {:.4g}, h3: {:.4g}".format(*scales) in cells
    assert "a product of h1 (2 dimensions, c = 0.5) and e2 (3 dimensions, flat) and h3 (1 dimension, c = 1)" in text
    for name in names():
        assert Path(f"run/map-{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_report_of_a_graph_shows_every_factor():
    page = Page(Path("graph/report.html").read_text(encoding="utf-8"))
    captions = [said for said in page.said("figcaption") if said.startswith("Factor ")]
    assert [said.split(".")[0] for said in captions] == ["Factor h1", "Factor e2"] * 2
    assert any("d² = Σ d_i²" in said for said in page.said("p"))
    c = config("graph")["summary"]["c"][0]
    assert c != 1 and f"h1: c = {c:.4g} (curvature −{c:.4g}), e2: flat" in page.said("td")


def test_progress_shows_every_curvature():
    found = curvae("fit", "t.csv", *ROWS, "--space", "h2:0.25,e3", "-o", "progress")
    assert "c 0.25, 0" in found.err


def test_force_removes_the_maps_of_factors():
    words = ("fit", "t.csv", *ROWS, "-o", "forced")
    assert curvae(*words, "--space", "h2,e3").code == 0 and Path("forced/map-h1.png").exists()
    Path("forced/map-mine.png").write_text("")
    assert curvae(*words, "--force").code == 0
    assert sorted(path.name for path in Path("forced").glob("map*.png")) == ["map-mine.png", "map.png"]


# --- views ------------------------------------------------------------------------------------------------------------


def facts(page):
    return json.loads(page.partition('class="facts">')[2].partition("</script>")[0])


@pytest.mark.parametrize(("asked", "c", "projected"), [(None, 0.5, False), ("e2", 0.0, True), ("h3", 1.0, False)])
def test_view_shows_one_factor(asked, c, projected):
    words = () if asked is None else ("--factor", asked)
    found = curvae("view", "run", *words, "--force", "--show", "e2_sigma")
    name = asked or "h1"
    assert found.code == 0 and f"the map shows the factor {name} of the product; for another give --factor" in found.err
    path = Path("run-map.html" if asked is None else f"run-map-{asked}.html")
    known = facts(path.read_text(encoding="utf-8"))
    assert known["c"] == c and ("sigma" in known) is not projected and known["count"] == 40
    assert any(f"the factor {name}" in said for said in known["about"])
    assert "h1: c = 0.5 (curvature −0.5), e2: flat, h3: c = 1 (curvature −1)" in known["about"][0]
    following = shlex.split(found.out.splitlines()[-1].partition("next: ")[2], comments=True)
    assert following[1:3] == ["view", "run"] and ("--factor" in following) is (asked is not None)
    assert curvae(*following[1:], "--force").code == 0
    assert Path("run-map.pdf").read_bytes().startswith(b"%PDF")


def test_view_refuses_factors_that_are_not_there():
    refused("view", "run", "--factor", "h2", says=["no factor 'h2'", "it has 'h1', 'e2', 'h3'"])


def test_graphs_are_viewed_with_their_edges():
    assert curvae("view", "graph", "--factor", "e2", "-o", "g.svg", "--names", "2").code == 0
    assert b"<svg" in Path("g.svg").read_bytes()


# --- use --------------------------------------------------------------------------------------------------------------


def test_new_rows_are_placed_as_the_old_ones():
    assert curvae("embed", "run", "t.csv", "-o", "new.csv").code == 0
    found = pd.read_csv("new.csv")
    assert list(found) == list(table())
    numbers = [name for name in found if name not in ("id", "label", "split")]
    np.testing.assert_allclose(found[numbers], table()[numbers], rtol=1e-9, atol=1e-12)
    assert curvae("embed", "graph", "g.csv", "-o", "new-g.csv").code == 0
    assert list(pd.read_csv("new-g.csv")) == list(table("graph"))


def test_rows_are_judged_drawn_and_filled_in():
    found = curvae("evaluate", "run", "t.csv", "--samples", "20", "--json").json
    assert all(np.isfinite(part["log_likelihood"]) for part in found["parts"].values())
    assert curvae("sample", "run", "-n", "7", "-o", "s.csv").code == 0 and len(pd.read_csv("s.csv")) == 7
    assert 0 <= curvae("evaluate", "graph", "g.csv", "--json").json["parts"]["train"]["auc"] <= 1
    assert curvae("sample", "graph", "-n", "1", "-o", "sg.csv").code == 0
    gaps = pd.read_csv("t.csv")
    gaps.loc[3, "a"] = np.nan
    gaps.to_csv("gaps.csv", index=False)
    words = (*ROWS, "--missing", "model", "--space", "h2,e1")
    assert curvae("fit", "gaps.csv", *words, "-o", "gaps").code == 0
    assert curvae("impute", "gaps", "gaps.csv", "--samples", "20", "-o", "filled.csv").code == 0
    assert pd.read_csv("filled.csv").notna().all(axis=None)


def test_recovery_of_a_tree_measures_the_product():
    frame = table()
    tree = Path("tree.csv")
    pd.DataFrame({"child": frame["id"], "parent": np.where(frame.index % 2, "p", "q")}).astype(str).to_csv(
        tree, index=False
    )
    with tree.open("a") as file:
        file.write("p,root\nq,root\n")
    found = curvae("diagnose", "run", "--tree", tree, "--json").json
    i, j = np.triu_indices(len(frame), 1)
    steps = np.where(i % 2 == j % 2, 2, 4)
    ranks = pd.DataFrame({"tree": steps, "map": distances()[i, j]}).rank()
    assert found["distance_correlation"] == pytest.approx(ranks.corr().loc["tree", "map"], abs=1e-5)
    assert curvae("diagnose", "run", "--newick", "out.nwk").code == 0
    assert Path("out.nwk").read_text().count(",") == len(frame) - 1


@pytest.mark.parametrize("text", ["h2:learn,e3", "s1", "h2,s1"])
def test_a_training_goes_on(text, often):
    words = ("fit", "t.csv", *ROWS, "--space", text, "--epochs", "4", "--force")
    assert curvae(*words, "-o", "whole").code == 0
    plain, calls = BatchEngine.epoch, 0

    def stopping(self, *args):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return plain(self, *args)

    with mock.patch.object(BatchEngine, "epoch", stopping):
        assert curvae(*words, "-o", "parts").code != 0
    with mock.patch.object(BatchEngine, "epoch", autospec=True, side_effect=plain) as trained:
        assert curvae("fit", "t.csv", "-o", "parts", "--resume", "--space", text.replace(",", ", ")).code == 0
    assert trained.call_count == 2
    pd.testing.assert_frame_equal(table("parts"), table("whole"))


def test_what_was_asked_for_at_the_start():
    words = ("fit", "t.csv", "--resume", "-o", "run")
    assert curvae(*words, "--space", "h2:0.50,e3, h1:1").code == 0
    untouched(*words, "--space", "h2:0.5,e3", says=["space h2:0.5,e3,h1, not h2:0.5,e3"])
    assert curvae("fit", "t.csv", *ROWS, "--space", "h3:0.7", "-o", "one").code == 0
    assert curvae("fit", "t.csv", "--resume", "-o", "one", "--space", "h3:0.7").code == 0
    untouched("fit", "t.csv", "--resume", "-o", "one", "--space", "h3", says=["space h3:0.7, not h3"])


# --- comparisons and commands -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "compared"),
    [("h2:0.4,e3", "h2,e3"), ("h2:learn,e3", "h2,e3"), ("e2,e3", "h2,e3"), ("h2,h2:0.5", "h2,h2")],
)
def test_commands_name_the_space_and_nothing_beside_it(asked, compared):
    known = given(Config(space=asked, epochs=3))
    assert known == {"space": asked, "epochs": 3}
    assert comparable(known) == {"space": compared, "epochs": 3}


def test_commands_of_a_run_can_be_typed():
    found = curvae("fit", "t.csv", *ROWS, "--space", "h2:learn,e3", "-o", "typed")
    following = shlex.split(found.out.splitlines()[-1].partition("next: ")[2], comments=True)[1:]
    assert following[:2] == ["fit", "t.csv"] and following[following.index("--space") + 1] == "h2:learn,e3"
    assert not {"--dim", "--curvature", "learn_curvature=yes"} & set(following)
    assert curvae(*following, "--epochs", "1", "-o", "again").code == 0


def test_a_comparison_sets_the_curvature_of_hyperbolic_factors():
    words = ("--space", "h2:0.9,e1,h1", "--curvatures", "0.3,2", "--repeats", "3", "--jobs", "1", *SMALL)
    found = curvae("compare", "t.csv", "--label", "kind", *words, "-o", "cmp")
    assert found.code == 0, found.err
    stored = json.loads(Path("cmp/comparison.json").read_text())
    best = stored["best_curvature"] if stored["outcome"] == "hyperbolic" else 0
    space = f"h2:{best:g},e1,h1:{best:g}" if best else "e2,e1,e1"
    following = shlex.split(found.out.splitlines()[-1].partition("next: ")[2])[1:]
    assert following[following.index("--space") + 1] == space and not {"--dim", "--curvature"} & set(following)
    assert f"use the space {space}" in stored["verdict"]
    assert set(stored["repeats"][0]["test"]) == {"0.0", "0.3", "2.0"}
    page = Page(Path("cmp/report.html").read_text(encoding="utf-8"))
    captions = [said.split(".")[0] for said in page.said("figcaption") if said.startswith("Factor")]
    # The flat product first, whose factors have the names of flat ones.
    assert captions == ["Factor e1", "Factor e2", "Factor e3", "Factor h1", "Factor e2", "Factor h3"]
    assert "what the flat product has too is no gain of curvature" in " ".join(text for _, text in page.texts)
    assert curvae(*following, "--epochs", "1", "-o", "after").code == 0 and settings("after")["space"] == space


def test_a_comparison_of_a_graph():
    words = ("--graph", "--space", "h2,e1", "--repeats", "3", "--jobs", "1", "--hidden", "4", "--epochs", "2")
    found = curvae("compare", "g.csv", *words, "-o", "cmp-g")
    assert found.code == 0, found.err
    assert "--space" in found.out.splitlines()[-1] and "--curvature" not in found.out.splitlines()[-1]


def test_one_factor_by_its_text():
    words = ("--space", "h3:0.9", "--repeats", "3", "--jobs", "1", *SMALL, "--epochs", "1")
    found = curvae("compare", "t.csv", "--label", "kind", *words, "-o", "cmp-1")
    following = shlex.split(found.out.splitlines()[-1].partition("next: ")[2])[1:]
    assert "--space" not in following and following[following.index("--dim") + 1] == "3" and "--curvature" in following
    assert curvae(*following, "-o", "after-1").code == 0


def test_what_a_comparison_refuses():
    words = ("compare", "t.csv", "--repeats", "3", *ROWS)
    untouched(*words, "--space", "h2:learn,e3", says=["fixed curvatures", "write h2 for h2:learn"])
    untouched(*words, "--space", "e2,e3", says=["the space e2,e3 has no curvature to compare"])


# --- health -----------------------------------------------------------------------------------------------------------


def placed(*spreads, c=1.0):
    """A product of a hyperbolic plane with a flat one, in which points spread so far."""
    random = np.random.default_rng(0)
    factors = PlacedFactor("h1", 2, c, 0.1), PlacedFactor("e2", 2, 0.0, 3.0)
    tangent = np.concatenate([random.normal(size=(200, 2)) * spread for spread in spreads], 1)
    return Embedding.from_tangent(tangent, np.ones((200, 2)), factors)


def test_health_is_that_of_every_factor():
    scales = [0.1, 3.0]
    assert map_health(placed(1.0, 1.0), 5.0, scales) == [] and active_dimensions(placed(1.0, 1.0), scales) == 4
    (unused,) = map_health(placed(1.0, 1e-3), 5.0, scales)
    assert "all points lie together in the factor e2" in unused and "leave the factor out" in unused
    (line,) = map_health(placed([1.0, 1e-3], 1.0), 5.0, scales)
    assert line.startswith("only 1 of 2 dimensions of the factor h1 are in use")
    (rim,) = map_health(placed(200.0, 1.0), 5.0, scales)
    assert "at the rim of the disc of the factor h1" in rim
    with pytest.raises(ValueError, match="shorter"):
        map_health(placed(1.0, 1.0), 5.0, 1.0)


def test_tangent_coordinates_give_an_embedding_back():
    one = placed(1.5, 0.7, c=0.6)
    again = Embedding.from_tangent(one.tangent, one.sigma, one.placed)
    np.testing.assert_allclose(again.space, one.space, rtol=1e-12)
    np.testing.assert_allclose(one.parts[0].tangent, 0.1 * one.tangent[:, :2], rtol=1e-12)
    assert len(one) == 200 and replace(one, factors=one.factors).radius.shape == (200,)
    first, second = np.array([0, 5]), np.array([7, 9])
    np.testing.assert_allclose(one.pairs(first, second), one.distances()[first, second], rtol=1e-9)


def test_a_run_without_a_figure_is_refused(tmp_path):
    for name in ("config.json", "model.safetensors", "embedding.safetensors"):
        (tmp_path / name).write_bytes(Path("run", name).read_bytes())
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    for record in records:
        record.pop("c_2")
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    with pytest.raises(CurvaeError, match="metrics.jsonl lacks c_2"):
        load_fitted(tmp_path)
