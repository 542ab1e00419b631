"""Charts of the factors, and a kind of factor from outside: a circle, whose points have two coordinates."""

from __future__ import annotations

import ast
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats

import curvae
from curvae import PoincareVAE
from curvae.maps.charts import CHARTS, Hemispheres, Ring, SphereChart
from curvae.nn import Space
from curvae.nn.space import FACTORS
from curvae.plotting import geodesics, latent_map
from curvae.settings import parse_space
from curvae.settings.factors import LETTERS
from curvae.training import Config, GraphConfig, embed, fit, fit_many, fitting
from curvae.training.fitted import Fitted
from curvae.training.storage import load_fitted
from paths import ROOT
from products import FactorTests
from running import SMALL, curvae as run, settings

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

    words = "fit", "data.csv", "--label", "turn", "--space", text, "--output", "run", *SMALL
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

    assert run(*words, "--force", "--repeats", "2").code == 0
    assert sorted(path.name for path in pictures) == sorted(path.name for path in Path("run").glob("map*"))


def test_the_circle_of_the_data_is_found():
    """The order of the rows around the circle is that of their angles, up to a turn and a reflection."""
    turn, x = turned(200)
    fitted = fit(Config(space="o1", likelihood="gaussian", hidden=(32,), epochs=40, learning_rate=3e-2), x)
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
        *([("export", "run", "--torch", "--output", "exported")] if "," in text else []),  # with a factor of each kind
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
    monkeypatch.setattr(fitting, "_UNFOLDED", 30)
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
    assert "the table is on disk" in fitting.left_out_start(Config(space="s1"), arrays, None)[0]


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
_ASKING = re.compile(r"""["'{}](h|e|h1|e1|he)["'{}]|\[he\]|Lorentz|PoincareBall""")
_DRAWING = ("plotting", "viewer")  # which are given balls, and may make some


def asks(path: Path, manifolds: bool) -> list[str]:
    """What in a module depends on the kind of a factor: its letter, or the manifold of hyperbolic factors."""
    source = path.read_text("utf-8")
    if not _ASKING.search(source):
        return []  # parsing takes long
    nodes = list(ast.walk(ast.parse(source)))
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


# Pages of spheres.

F64 = torch.float64


def directions(count, width, towards=0.0, seed=0):
    x = torch.randn(count, width, dtype=F64, generator=torch.Generator().manual_seed(seed))
    x[:, 0] += towards
    return x / x.norm(dim=1, keepdim=True)


def test_hemispheres_keep_areas_and_angles_around_their_middles():
    x, page = directions(200, 3), Hemispheres()
    z = page.lay(x)
    near = x[:, 2] > 0
    assert bool((near == (z[:, 0] < 0)).all())
    at = z - torch.where(near[:, None], *torch.tensor([[-1.04, 0.0], [1.04, 0.0]], dtype=F64))
    theta = torch.acos(x[:, 2].abs())
    torch.testing.assert_close(at.norm(dim=1), math.sqrt(2) * (theta / 2).sin())
    turn = torch.atan2(x[:, 1], torch.where(near, x[:, 0], -x[:, 0]))
    torch.testing.assert_close(torch.atan2(at[:, 1], at[:, 0]), turn)
    # The area of a small square at each point, by finite differences: half of that on the sphere, everywhere.
    one = torch.linalg.cross(x, directions(200, 3, seed=1))
    one = one / one.norm(dim=1, keepdim=True)
    two, step = torch.linalg.cross(x, one), 1e-5
    sides = [(page.lay(x + step * way) - page.lay(x - step * way)) / (2 * step) for way in (one, two)]
    inside = x[:, 2].abs() > 1e-3
    area = sides[0][:, 0] * sides[1][:, 1] - sides[0][:, 1] * sides[1][:, 0]
    torch.testing.assert_close(area[inside].abs(), torch.full_like(area[inside], 0.5), rtol=1e-6, atol=0)


@pytest.mark.parametrize("page", [Ring(), Hemispheres()])
def test_a_page_has_the_distances_of_its_sphere(page):
    x, y = directions(50, page.dim + 1), directions(50, page.dim + 1, seed=1)
    z, w = page.lay(x), page.lay(y)
    torch.testing.assert_close(page.lift(z), x)
    torch.testing.assert_close(page.dist(z, w), torch.acos((x * y).sum(1)))
    assert bool(page.contains(z).all()) and not bool(page.contains(torch.tensor([[0.0, 1.2]], dtype=F64)))
    path = page.geodesic(torch.linspace(0, 1, 200, dtype=F64)[:, None], z, w)
    # On the way all points lie between the two; a line ends where it leaves a disc, and goes on in the other.
    passed = path.isfinite().all(-1)
    between = page.dist(z.expand_as(path), path) + page.dist(path, w.expand_as(path))
    torch.testing.assert_close(between[passed], page.dist(z, w).expand_as(between)[passed])
    assert float((path[1:] - path[:-1]).norm(dim=-1).nan_to_num().max()) < 0.1
    crosses = (z[:, 0] < 0) != (w[:, 0] < 0) if page.dim == 2 else torch.zeros(50, dtype=torch.bool)
    assert bool(((~passed).sum(0) == crosses).all())
    mean = page.frechet_mean(torch.stack([z, w], 1))
    torch.testing.assert_close(page.lift(mean), torch.nn.functional.normalize(x + y, dim=1))


def test_the_curve_around_a_ring_is_the_density_of_its_points():
    turn = stats.vonmises(4.0, loc=1.0).rvs(20000, random_state=0)
    curve = Ring().density(torch.from_numpy(np.stack([np.cos(turn), np.sin(turn)], 1)))
    assert float((curve[0] - curve[-1]).abs().max()) < 1e-9
    height = (curve.norm(dim=1) - 1.06) / 0.34
    true = stats.vonmises(4.0, loc=1.0).pdf(np.linspace(-np.pi, np.pi, 361))
    np.testing.assert_allclose(height.numpy(), true / true.max(), atol=0.05)


def test_most_points_face_the_viewer():
    x, chart = directions(400, 3, towards=1.5), SphereChart(2)
    seen = chart.project(x)
    assert seen.kept == 1.0 and "two hemispheres" in seen.sentence and seen.axes.shape == (3, 3)
    torch.testing.assert_close(seen.axes.T @ seen.axes, torch.eye(3, dtype=F64))
    assert float(seen.axes[0, 2]) > 0.98 and (seen.points[:, 0] < 0).float().mean() > 0.8
    # The radius and the angle that a globe has are those of the axes.
    radius, angle = chart.polar(seen.space)
    found = torch.stack([radius.sin() * angle.cos(), radius.sin() * angle.sin(), radius.cos()], 1)
    torch.testing.assert_close(found, x @ seen.axes)
    # What scores say grows to the right and upwards; and a point can be put in the middle.
    frame = chart.frame(x, x[:, 1:], centre=torch.tensor([1.0, 0.0, 0.0], dtype=F64))
    torch.testing.assert_close(frame.axes, torch.eye(3, dtype=F64).roll(-1, 1), atol=0.05, rtol=0)


def test_more_dimensions_are_projected_on_three_axes():
    x = directions(500, 5)
    flat = torch.nn.functional.normalize(x * torch.tensor([1.0, 1.0, 1.0, 0.05, 0.0], dtype=F64), dim=1)
    assert SphereChart(4).project(flat).kept > 0.99
    lost = SphereChart(4).project(x)
    assert 0.3 < lost.kept < 0.9
    assert lost.sentence == f"projected on three of 5 axes: rank correlation of distances {lost.kept:.2f}"
    pairs = torch.randint(500, (2, 4000), generator=torch.Generator().manual_seed(0))
    three = torch.nn.functional.normalize(x @ lost.axes, dim=1)
    apart = [torch.acos((y[pairs[0]] * y[pairs[1]]).sum(1).clamp(-1, 1)) for y in (x, three)]
    assert lost.kept == pytest.approx(stats.spearmanr(*apart).statistic, abs=0.05)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_pictures_of_spheres(dim):
    x, chart = directions(60, dim + 1), SphereChart(dim)
    z, ax = chart.project(x).points, Figure().subplots()
    latent_map(ax, chart, z, hierarchy=(z[:3], [(0, 1), (0, 2)]), samples=z[:, None])
    geodesics(ax, chart, z[:5], z[5:10])
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    assert bool(((z[:, 0] > left) & (z[:, 0] < right) & (z[:, 1] > low) & (z[:, 1] < high)).all())
    wide = (right - left) / (high - low)
    assert wide == pytest.approx(1.0) if dim == 1 else wide > 1.8
