"""Charts of the factors, and a kind of factor from outside: a circle, whose points have two coordinates."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import curvae
from curvae import PoincareVAE
from curvae.maps.charts import CHARTS
from curvae.nn import Space
from curvae.nn.space import FACTORS
from curvae.settings import parse_space
from curvae.settings.factors import LETTERS
from curvae.training import Config, GraphConfig, embed, fit, fit_many, rows_problem
from curvae.training.fitted import Fitted
from curvae.training.storage import load_fitted
from paths import ROOT
from products import FactorTests
from running import SMALL, settings
from running import curvae as run

CIRCLE = next(code for code in (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("```") if "CircleFactor(" in code)


@pytest.fixture(autouse=True)
def circle(monkeypatch):
    """The example of CONTRIBUTING.md, as a module that registers a circle, for the time of a test."""
    for registry in (LETTERS, FACTORS, CHARTS):
        monkeypatch.setitem(registry, "o", None)
    names = {"__name__": "circle"}
    exec(CIRCLE.removeprefix("python"), names)
    return SimpleNamespace(**names)


def turned(rows=60):
    """Rows on a closed curve in five dimensions, with the angle of each as its label."""
    random = np.random.default_rng(0)
    turn = random.uniform(0, 2 * np.pi, rows)
    x = np.stack([np.cos(turn), np.sin(turn)], 1) @ random.normal(size=(2, 5))
    return turn, 3 * x + 0.05 * random.normal(size=x.shape)


class TestCircle(FactorTests):
    """A circle is a factor as any other."""

    text = "o1"


def test_its_letter_is_read_and_written():
    (one,) = parse_space("o1")
    assert (one.kind, one.dim, one.text, one.curved) == ("o", 1, "o1", False)
    config = Config(space="o1", likelihood="gaussian")
    assert config.space == "o1" and config.dim == 1 and Config.from_json(config.to_json()) == config
    assert config.with_curvature(0.5).space == "o1" and Config(space="h2,o1").with_curvature(0.5).space == "h2:0.5,o1"
    with pytest.raises(curvae.CurvaeError, match="a circular factor has no curvature; write o1"):
        parse_space("o1:2")
    with pytest.raises(curvae.CurvaeError, match="h for hyperbolic or e for flat or s for spherical or o for circular"):
        parse_space("x1")
    assert Space("o1").width == 2 and Space("o1,e2").width == 4 and Space("o1,e2").dim == 3


def test_it_needs_a_class_in_each_of_three_packages(circle):
    classes = [kind for kind in vars(circle).values() if isinstance(kind, type) and kind.__module__ == "circle"]
    assert [[base.__module__ for base in kind.__bases__] for kind in classes] == [
        ["curvae.distributions.validation"],
        ["curvae.nn.space"],
        ["curvae.maps.charts"],
    ]


def test_its_density_integrates_to_one(circle):
    point, scale = circle.point, torch.tensor([0.9], dtype=torch.float64)
    q = circle.CircleNormal(point(torch.tensor(0.7).double()), scale)
    turns = torch.linspace(0, 2 * math.pi, 2001, dtype=torch.float64)
    assert float(torch.trapezoid(q.log_prob(point(turns)).exp(), turns)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("text", ["o1", "h2,o1"])
def test_a_circle_is_trained_written_drawn_judged_and_viewed(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    turn, x = turned()
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(5)]).assign(turn=turn)
    frame.to_csv("data.csv", index=False)
    name = f"o{text.count(',') + 1}"

    words = "fit", "data.csv", "--label", "turn", "--space", text, "--output", "run", "--repeats", "2", *SMALL
    found = run(*words, pictures=True)
    assert found.code == 0, found.err
    assert "a circle" in Path("run/report.html").read_text() and settings("run")["space"] == text

    table = pd.read_csv("run/embedding.csv")
    alone = name == "o1"
    column = "angle" if alone else f"{name}_angle"
    places = table[["map_1", "map_2"] if alone else [f"{name}_map_1", f"{name}_map_2"]].to_numpy()
    np.testing.assert_allclose(np.linalg.norm(places, axis=1), 1, rtol=1e-6)
    assert table[column].abs().max() <= math.pi
    loaded = load_fitted(Path("run"), Fitted).embedding
    np.testing.assert_allclose(table[column], np.arctan2(loaded.space[:, -1], loaded.space[:, -2]), atol=1e-6)
    assert loaded.dim == parse_space(text)[-1].dim + (0 if alone else 2)
    np.testing.assert_allclose(embed(load_fitted(Path("run")).fitted, x).space, loaded.space, atol=1e-6)

    pictures = [
        Path("run") / ("map.png" if alone else f"map-{one}.png") for one in (["map"] if alone else ["h1", name])
    ]
    for path in pictures:
        with Image.open(path) as picture:
            assert picture.size[0] > 100

    judged = run("judge", "data.csv", "--label", "turn", "run")
    assert judged.code == 0, judged.err
    explained = run("explain", "run", "--to", "3")
    assert explained.code == 0, explained.err

    viewed = run("view", "run", *([] if alone else ["--factor", name]), "--output", "map.html")
    assert viewed.code == 0, viewed.err
    page = Path("map.html").read_text()
    facts = json.loads(page.split('class="facts">')[1].split("</script>")[0])
    assert facts["motion"] == "still" and facts["outline"] == 1 and "a circle" in json.dumps(facts["about"])
    assert run("view", "run", "--output", "map.svg").code == 0 and Path("map.svg").stat().st_size > 1000

    assert run(*words, "--force").code == 0
    assert sorted(path.name for path in pictures) == sorted(path.name for path in Path("run").glob("map*"))


def test_the_circle_of_the_data_is_found():
    """The order of the rows around the circle is that of their angles, up to a turn and a reflection."""
    turn, x = turned(200)
    fitted = fit(Config(space="o1", likelihood="gaussian", hidden=(32,), epochs=150, learning_rate=1e-2), x)
    found = embed(fitted, x)
    assert found.distances().max() <= math.pi + 1e-9
    order = np.argsort(np.arctan2(found.space[:, 1], found.space[:, 0]))
    steps = np.diff(turn[order])
    steps = np.abs((steps + np.pi) % (2 * np.pi) - np.pi)
    assert np.median(steps) < 0.1


class TestSpheres(FactorTests):
    """So is a sphere."""

    text = "s2"


class TestUnitCircle(FactorTests):
    text = "s1"


@pytest.mark.parametrize("text", ["s1", "h2,s1"])
def test_a_sphere_in_every_command(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    turn, x = turned()
    pd.DataFrame(x, columns=[f"x{k}" for k in range(5)]).assign(turn=turn).to_csv("data.csv", index=False)
    gaps = pd.read_csv("data.csv")
    gaps.loc[3, "x1"] = np.nan
    gaps.to_csv("gaps.csv", index=False)
    fitted = "fit", "data.csv", "--label", "turn", "--space", text, "--output", "run", *SMALL
    for words in (
        fitted,
        ("embed", "run", "data.csv", "--output", "embedded.csv"),
        ("evaluate", "run", "data.csv"),
        ("sample", "run", "--output", "sampled.csv"),
        ("fit", "gaps.csv", *fitted[2:6], "--missing", "model", "--output", "gaps", *SMALL),
        ("impute", "gaps", "gaps.csv", "--samples", "20", "--output", "filled.csv"),
        ("judge", "data.csv", "--label", "turn", "run"),
        ("explain", "run", "--to", "3"),
        ("view", "run", "--output", "map.html"),
        ("export", "run", "--torch", "--output", "exported"),
    ):
        found = run(*words)
        assert found.code == 0, (words, found.err)
    found = run(
        *("compare", "data.csv", "--space", text, "--repeats", "3", "--curvatures", "1", "--output", "compared", *SMALL)
    )
    assert found.code == (0 if "h" in text else 2), found.err
    assert "h" in text or "has no curvature to compare; write h2" in found.err
    moved = {"s1": "still", "s2": "globe", "h2,s1": "disc"}[text]
    assert f'"motion": "{moved}"' in Path("map.html").read_text()
    before = "s2_" if "," in text else ""
    table = pd.read_csv("run/embedding.csv")
    units = table[[f"{before}unit_1", f"{before}unit_2"]].to_numpy()
    np.testing.assert_allclose(np.linalg.norm(units, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(table[f"{before}angle"], np.arctan2(units[:, 1], units[:, 0]), atol=1e-5)
    assert all(pd.read_csv(name).notna().all(axis=None) for name in ("sampled.csv", "filled.csv"))


def test_a_start_on_spheres_is_that_of_the_data():
    """Rows start in the order of their angles, and are held there while the decoder learns."""
    turn, x = turned(300)
    fitted = fit(Config(space="s1", likelihood="gaussian", hidden=(32,), epochs=30), x)
    found = embed(fitted, x).space
    apart, true = (np.arccos(np.clip(u @ u.T, -1, 1)) for u in (found, np.stack([np.cos(turn), np.sin(turn)], 1)))
    assert np.corrcoef(apart.ravel(), true.ravel())[0, 1] > 0.95
    missed = [record["neighbours"] for record in fitted.history]
    assert missed[0] > 0 and missed[-1] == 0
    together = fit_many(
        [Config(space="s2", likelihood="gaussian", hidden=(8,), epochs=2, seed=seed) for seed in (0, 1)], x
    )
    alone = fit(Config(space="s2", likelihood="gaussian", hidden=(8,), epochs=2, seed=1), x)
    np.testing.assert_allclose(embed(together[1], x).space, embed(alone, x).space, atol=1e-4)


def test_a_start_that_is_left_out_is_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(rows_problem, "_UNFOLDED", 30)
    monkeypatch.chdir(tmp_path)
    _, x = turned()
    note = "training does not begin unfolded, as there are more than 30 training rows"
    model = PoincareVAE(space="s1", hidden=(8,), epochs=2).fit(x)
    assert any(note in one for one in model.notes_) and not PoincareVAE(space="e1", epochs=1).fit(x).notes_
    assert "neighbours" not in model.history_[0]
    pd.DataFrame(x).to_csv("data.csv", index=False)
    found = run("fit", "data.csv", "--space", "s1", "--output", "run", *SMALL)
    assert note in " ".join(found.err.split()) and note in Path("run/report.html").read_text()
    monkeypatch.undo()
    arrays = SimpleNamespace(on_disk=True)
    assert "the table is on disk" in rows_problem.left_out_start(Config(space="s1"), arrays, None)[0]


def test_what_a_sphere_cannot_have_is_said():
    for wrong, message in (
        ({"space": "s2:0.5"}, "a spherical factor has no curvature; write s2"),
        ({"space": "s0"}, "must be a product of factors"),
        ({"space": "h2:-1"}, "must be c ≥ 0"),
        ({"space": "s2", "posterior": "wrapped"}, "not offered on the sphere s2, where a normal vector may wrap"),
        ({"space": "s2", "prior_scale": 2.0}, "the prior on a sphere is uniform and has no scale"),
        ({"space": "s2", "decoder": "mobius"}, "takes log_0, which tears a sphere"),
    ):
        with pytest.raises(curvae.CurvaeError, match=message):
            Config(**wrong)
    with pytest.raises(curvae.CurvaeError, match="graphs have no map on spheres"):
        GraphConfig(space="s2")


def test_an_estimator_on_a_sphere(tmp_path):
    _, x = turned()
    model = PoincareVAE(space="s2", hidden=(8,), epochs=2).fit(x)
    np.testing.assert_allclose(np.linalg.norm(model.transform(x), axis=1), 1, rtol=1e-6)
    columns = CHARTS["s"](2).columns(torch.from_numpy(model.embedding_))
    assert list(columns) == ["unit_1", "unit_2", "unit_3"]
    model.plot()
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(PoincareVAE.load(tmp_path / "saved").embedding_, model.embedding_)
    back = model.inverse_transform(model.transform(x))
    model.set_params(output="ambient")
    np.testing.assert_allclose(model.inverse_transform(model.transform(x)), back, rtol=1e-5)
    with pytest.raises(curvae.CurvaeError, match=r"a sphere has no ball coordinates; use `output=\"ambient\"`"):
        model.set_params(output="ball").transform(x)


def test_an_estimator_in_a_circle(tmp_path):
    _, x = turned()
    model = PoincareVAE(space="o1,e2", hidden=(8,), epochs=2).fit(x)
    assert model.transform(x).shape == (60, 3)
    model.plot()
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(PoincareVAE.load(tmp_path / "saved").embedding_, model.embedding_)
    back = model.inverse_transform(model.transform(x))
    model.set_params(output="ball")
    assert model.transform(x).shape == (60, 4)
    np.testing.assert_allclose(model.inverse_transform(model.transform(x)), back, rtol=1e-5)
    with pytest.raises(curvae.CurvaeError, match="points have 4 coordinates, got 3"):
        model.inverse_transform(np.zeros((2, 3)))


# --- who asks for the kind --------------------------------------------------------------------------------------------

_KNOWN = {"settings/factors.py", "nn/space.py", "maps/charts.py"}
_ROOMS = ("settings", "nn", "models", "data", "training", "maps", "hierarchy", "estimators", "runs", "cli")
_DRAWING = ("plotting", "viewer")  # which are given balls, and may make some


def asks(path: Path, manifolds: bool) -> list[str]:
    """What in a module depends on the kind of a factor: its letter, or the manifold of hyperbolic factors."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = [text for text in texts if text in ("h", "e", "h1", "e1", "he") or "[he]" in text]
    called = [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return found + [name for name in called if manifolds and name in ("Lorentz", "PoincareBall")]


def test_only_the_factor_and_its_chart_know_the_kind():
    package = Path(curvae.__file__).parent
    asked = {
        path.relative_to(package).as_posix(): asks(path, room in _ROOMS)
        for room in (*_ROOMS, *_DRAWING)
        for path in (package / room).rglob("*.py")
    }
    assert all(asked.pop(name) for name in _KNOWN)
    # Coordinates that others made may be those of the Poincaré ball.
    assert {name: found for name, found in asked.items() if found} == {"maps/faithfulness.py": ["PoincareBall"]}
