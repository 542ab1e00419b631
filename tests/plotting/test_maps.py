"""Maps and geodesics are geometrically right and show what is given; the projection says what it loses."""

from __future__ import annotations

import io
import itertools
import math
import sys

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from curvae import Lorentz, PoincareBall, RiemannianNormal
from curvae.errors import CurvaeError
from curvae.nn import Curvature, Gyroplane
from curvae.plotting import (
    PALETTE,
    density,
    disc,
    figure_bytes,
    fit_window,
    geodesics,
    graph_map,
    gyroplane,
    gyroplane_heat,
    latent_map,
    mosaic,
    project,
    project_to_disc,
    regular_tree,
)
from curvae.plotting.pictures import GREY, INK, colouring
from paths import ROOT

CURVATURES = [0.0, 1e-4, 0.3, 1.0, 7.0]


def axes():
    return Figure(figsize=(2, 2)).subplots()


def points(c, n=50, d=2):
    return PoincareBall(d, c).random(n, scale=0.7, dtype=torch.float64)


def legend_of(ax):
    """Names and colours of a legend."""
    shown = ax.get_legend()
    colours = [to_hex(handle.get_color()) for handle in shown.legend_handles]
    return dict(zip([text.get_text() for text in shown.get_texts()], colours, strict=True))


@pytest.mark.parametrize("c", CURVATURES)
def test_window_holds_everything_at_one_scale(c):
    ball, z = PoincareBall(2, c), points(c) * (1 if c > 1e-3 else 9)
    # Where the window follows the points, it follows the samples and the hierarchy too.
    wide = 1 if c > 1e-3 else 2
    samples, nodes = z[:, None] * torch.linspace(0.5, wide, 4)[:, None], wide * z
    for others in ({}, {"samples": samples}, {"hierarchy": (nodes, [(0, 1)])}):
        ax = axes()
        drawn = latent_map(ax, ball, z, **others)
        (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
        assert left == bottom == -right == -top and ax.get_aspect() == 1.0
        assert len(drawn.get_offsets()) == len(z)
        for collection in ax.collections:
            assert (np.abs(np.asarray(collection.get_offsets())) < right).all()
        reach = float(z.abs().max()) * (wide if others else 1)
        assert right < 1.1 * reach if c < 1e-3 else np.isclose(right, 1.03 / c**0.5)


def test_points_are_drawn_once_in_their_colours():
    z, labels = points(1.0), np.arange(50) % 3
    drawn = latent_map(axes(), PoincareBall(2), z, labels)
    at, colours = np.asarray(drawn.get_offsets()), [to_hex(x) for x in drawn.get_facecolor()]
    seen = {tuple(place): colour for place, colour in zip(at, colours, strict=True)}
    assert seen == {tuple(place): PALETTE[label] for place, label in zip(z.numpy(), labels, strict=True)}


@pytest.mark.parametrize("c", CURVATURES)
def test_hierarchy_ends_at_its_nodes(c):
    ax, nodes = axes(), points(c, 6)
    edges = [(0, 1), (0, 2), (2, 3), (2, 4), (4, 5)]
    latent_map(ax, PoincareBall(2, c), points(c), hierarchy=(nodes, edges))
    lines = next(x for x in ax.collections if hasattr(x, "get_segments"))
    ends = np.array([[path[0], path[-1]] for path in lines.get_segments()])
    np.testing.assert_allclose(ends, nodes.numpy()[np.array(edges)], rtol=1e-9, atol=1e-12)
    assert lines.get_zorder() < ax.collections[-1].get_zorder()


@pytest.mark.parametrize("c", [0.0, 0.3, 1.0])
def test_lines_of_a_layer_are_where_its_units_are_zero(c):
    ball, layer, ax = PoincareBall(2, c), Gyroplane(2, 7, Curvature(c)), axes()
    z = points(c)
    latent_map(ax, ball, z, gyroplanes=(ball.expmap0(layer.offset), layer.weight))
    for unit, path in enumerate(ax.collections[0].get_segments()):
        middle = torch.as_tensor(path[180:220])
        assert layer.double()(ball.to_lorentz(middle))[:, unit].abs().max() < 1e-6
    # In the plane a line crosses the whole window, however large.
    far = gyroplane(disc(axes(), PoincareBall(2, 0.0), reach=50.0), PoincareBall(2, 0.0), [20.0, 0.0], [1.0, 1.0])
    assert np.abs(far.get_segments()[0][[0, -1]]).max(1).min() > 60
    with pytest.raises(CurvaeError, match="1 hyperplanes have the normal 0"):
        gyroplane(axes(), ball, z[:2], [[0.0, 0.0], [1.0, 0.0]])


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["b", "a", "b", "c", "a"], ["a", "b", "c"]),
        ([10, 9, 2, 9, 9], ["2", "9", "10"]),
        (torch.tensor([1.0, 0.0, 1.0, 0.0, 2.0]), ["0", "1", "2"]),
        ([True, False, True, True, False], ["False", "True"]),
        (["class 10", "class 9", None, "class 9", float("nan")], ["class 9", "class 10", "no label"]),
        ([1.0, float("nan"), 2.0, float("inf"), 2.0], ["1", "2", "no label"]),
        (["_hidden", r"$\frac{$", "a rather long name of a class", "x", "x"], None),
        ([None] * 5, ["no label"]),
    ],
)
def test_categories_have_a_legend(labels, names):
    figure = Figure(figsize=(2, 2))
    ax = figure.subplots()
    latent_map(ax, PoincareBall(2), points(1.0, 5), labels)
    shown = legend_of(ax)
    assert len(shown) == len(set(shown.values())) >= 1
    if names is not None:
        assert list(shown) == names
        assert ("no label" in names) == (shown.get("no label") == GREY)
    figure_bytes(figure)


def test_numbers_have_a_colour_bar():
    for labels in (np.linspace(0.5, 2.5, 50), np.arange(50), [0.25, None] * 25):
        figure = Figure(figsize=(2, 2))
        ax = figure.subplots()
        latent_map(ax, PoincareBall(2), points(1.0), labels)
        assert ax.get_legend() is None and len(figure.axes) == 2
    colours = colouring([0.5, 1.5, np.nan], 3)
    assert to_hex(colours.colours[2]) == GREY != to_hex(colours.colours[0]) != to_hex(colours.colours[1])


def test_rare_labels_become_other():
    labels = [f"k{i}" for i in range(30) for _ in range(1 + (i < 19))]
    ax = axes()
    drawn = latent_map(ax, PoincareBall(2), points(1.0, len(labels)), labels)
    shown = legend_of(ax)
    assert list(shown) == [f"k{i}" for i in range(19)] + ["other (11)"]
    assert sum(to_hex(x) == GREY for x in drawn.get_facecolor()) == 11


def test_palette_differs_for_every_eye():
    """In OKLab, for normal vision and with Machado's (2009) matrices of full protanopia and deuteranopia."""
    eyes = {
        0.1: np.eye(3),
        0.09: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        0.07: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    }
    rgb = np.array([to_rgb(colour) for colour in PALETTE])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    for least, eye in eyes.items():
        seen = np.cbrt(np.clip(linear @ np.transpose(eye), 0, 1) @ cones.T) @ lab.T
        apart = {n: min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen[:n], 2)) for n in (12, 20)}
        assert apart[12] > least and apart[20] > 0.06, (least, apart)


@pytest.mark.parametrize("n", [1, 2])
def test_a_few_points_make_a_picture(n):
    for c in (0.0, 1.0):
        drawn = latent_map(axes(), PoincareBall(2, c), points(c, n), ["a"] * n)
        assert len(drawn.get_offsets()) == n
    assert latent_map(axes(), PoincareBall(2, 0.0), torch.zeros(n, 2)).axes.get_xlim()[1] > 0


def test_mistakes_are_named():
    ball, z = PoincareBall(2), points(1.0, 5)
    with pytest.raises(CurvaeError, match="no points to draw"):
        latent_map(axes(), ball, torch.zeros(0, 2))
    with pytest.raises(CurvaeError, match="1 of 5 points do not lie in the disc .* index \\(3,\\)"):
        latent_map(axes(), ball, z.index_fill(0, torch.tensor(3), 0.9))
    with pytest.raises(CurvaeError, match="1 of 5 points"):
        latent_map(axes(), PoincareBall(2, 0.0), z.index_fill(0, torch.tensor(3), torch.nan))
    with pytest.raises(CurvaeError, match="4 labels for 5 points"):
        latent_map(axes(), ball, z, list("abcd"))
    with pytest.raises(CurvaeError, match=r"shape \(5, any, 2\), got \(4, 3, 2\)"):
        latent_map(axes(), ball, z, samples=torch.zeros(4, 3, 2))
    with pytest.raises(CurvaeError, match="dimension 2.*project_to_disc"):
        latent_map(axes(), PoincareBall(3), torch.zeros(5, 3))


def test_learned_curvature_can_be_drawn():
    ball = PoincareBall(2, torch.tensor(0.5, requires_grad=True))
    nodes, edges = regular_tree(3, 2)
    latent_map(axes(), ball, nodes, hierarchy=(nodes, edges), gyroplanes=(nodes[:3], torch.ones(3, 2)))
    gyroplane_heat(axes(), ball, [0.1, 0.2], [1.0, 0.0])


@pytest.mark.parametrize("c", [0.0, 1e-4, 0.3, 1.0])
def test_heat_is_the_log_distance(c):
    ball, p, a = PoincareBall(2, c), torch.tensor([0.3, -0.2]).double(), torch.tensor([0.5, 1.0]).double()
    ax = axes()
    heat = gyroplane_heat(ax, ball, p, a, reach=2.0 if c == 0 else None)
    value, (left, right, bottom, top) = np.asarray(heat.get_array()), heat.get_extent()
    assert left == bottom == -right == -top and right == (2.0 if c == 0 else c**-0.5)
    for row, column in ((200, 200), (120, 250), (333, 222), (100, 300)):
        z = torch.tensor([left + (right - left) * column / 399, bottom + (top - bottom) * row / 399]).double()
        assert np.isclose(value[row, column], np.log(ball.dist2plane(z, p, a).abs().item()), rtol=1e-9, atol=1e-9)
    # A plane through pixels has no infinite colour, and corners beyond the rim have none at all.
    value = np.asarray(gyroplane_heat(axes(), ball, [0.0, 0.0], [1.0, 0.0], size=41).get_array().filled(np.nan))
    assert not np.isinf(value).any() and np.isnan(value[0, 0]) == (c > 0)


@pytest.mark.parametrize("c", [0.0, 0.3, 1.0])
def test_projection_is_exact_on_a_geodesic_plane_through_the_mean(c):
    ball, flat = PoincareBall(5, c), PoincareBall(2, c)
    for n in (40, 700):
        z = flat.random(n, scale=0.8, dtype=torch.float64)
        z = flat.mobius_add(-flat.frechet_mean(z), z)
        turn, _ = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))
        shift = ball.random(1, scale=0.8, dtype=torch.float64)
        x = ball.mobius_add(shift, z @ turn[:2])
        seen = project_to_disc(x, c)
        torch.testing.assert_close(
            flat.dist(seen.points[:20, None], seen.points[:20]), ball.dist(x[:20, None], x[:20]), rtol=1e-6, atol=1e-6
        )
        assert seen.kept > 0.9999 and "5 dimensions: 100 % of the variance" in seen.sentence
        torch.testing.assert_close(seen.apply(x), seen.points)
        torch.testing.assert_close(seen.apply(shift), torch.zeros(1, 2).double(), rtol=0, atol=1e-6)


def test_projection_says_what_it_loses():
    v = torch.randn(400, 8, dtype=torch.float64) * torch.tensor([1.0, 0.8, 0.5, 0.3, 0.1, 0.1, 0.1, 0.1])
    round_, long = PoincareBall(8, 0.7).random(400), PoincareBall(8, 0.7).expmap0(v)
    lost, kept = project_to_disc(round_, 0.7), project_to_disc(long, 0.7)
    assert 0.1 < lost.kept < 0.7 < kept.kept < 1
    assert f"rank correlation of distances {kept.kept:.2f}" in kept.sentence
    # The first axis carries the most.
    assert kept.points[:, 0].var() > kept.points[:, 1].var()
    assert torch.equal(project_to_disc(long, 0.7).points, kept.points)


def test_projection_of_small_cases():
    z = points(1.0)
    two = project_to_disc(z, 1.0)
    assert torch.equal(two.points, z) and two.kept == 1.0 and torch.equal(two.apply(z[:3]), z[:3])
    one = project_to_disc(z[:, :1], torch.tensor(1.0, requires_grad=True))
    assert torch.equal(one.points, torch.nn.functional.pad(z[:, :1], (0, 1))) and one.kept == 1.0
    for n in (1, 2, 3):
        assert project_to_disc(points(0.5, n, 4), 0.5).kept > 0.999
    assert project_to_disc(torch.zeros(10, 3), 1.0).kept == 1.0
    with pytest.raises(CurvaeError, match=r"shape \(N, d\)"):
        project_to_disc(torch.zeros(0, 3), 1.0)
    with pytest.raises(CurvaeError, match="outside the ball"):
        project_to_disc(torch.ones(4, 3), 1.0)
    with pytest.raises(CurvaeError, match="made for 2 dimensions"):
        two.apply(torch.zeros(4, 3))


def test_window_of_points():
    assert fit_window([[1.0, -4.0]], torch.ones(3, 2)) == pytest.approx(4.2)
    assert fit_window(torch.zeros(1, 2)) > 0


def test_new_rows_are_larger_outlined_and_on_top():
    ax, new = axes(), np.arange(50) >= 47
    old = latent_map(ax, PoincareBall(2), points(1.0), ["a", "b"] * 25, new=new)
    marked = ax.collections[-1]
    assert len(old.get_offsets()) == 47 and len(marked.get_offsets()) == 3
    assert marked.get_zorder() > old.get_zorder() and marked.get_sizes()[0] > old.get_sizes()[0]
    assert to_hex(marked.get_edgecolor()[0]) == INK and old.get_alpha() < 0.5 < marked.get_alpha()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "new rows"]
    latent_map(ax := axes(), PoincareBall(2), points(1.0), np.linspace(0, 1, 50), new=new)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["new rows"]


# --- names and legends -----------------------------------------------------------------------------------------------


sys.path.insert(0, str(ROOT))


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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


# --- the disc itself --------------------------------------------------------------------------------------------------


def circle_through(path: np.ndarray) -> tuple[np.ndarray, float]:
    """Centre and radius of the circle through the ends and the middle of a path."""
    a, b, c = path[0], path[len(path) // 2], path[-1]
    rows = np.stack([b - a, c - a])
    centre = np.linalg.solve(2 * rows, np.array([b @ b - a @ a, c @ c - a @ a]))
    return centre, float(np.linalg.norm(a - centre))


@pytest.mark.parametrize("c", [0.3, 1.0, 10.0])
def test_geodesics_are_arcs_orthogonal_to_the_rim(c):
    ball = PoincareBall(2, c)
    x, y = (ball.random(10, scale=1 / math.sqrt(c)) for _ in range(2))
    segments = geodesics(disc(axes(), ball), ball, x, y).get_segments()
    planes = gyroplane(axes(), ball, x, torch.randn(10, 2)).get_segments()
    for path in (*segments, *planes):
        centre, radius = circle_through(path)
        assert np.allclose(np.linalg.norm(path - centre, axis=1), radius, rtol=1e-6)
        # Circles meet at a right angle when the squares of their radii add up to that of the centres' distance.
        assert math.isclose(centre @ centre, radius**2 + 1 / c, rel_tol=1e-6)
    for path in planes:
        assert np.allclose(np.linalg.norm(path[[0, -1]], axis=1), 1 / math.sqrt(c), rtol=1e-4)


def test_regular_tree_has_equal_edges_and_angles():
    for degree, depth in ((3, 5), (5, 3)):
        points, edges = regular_tree(degree, depth)
        ball = PoincareBall(2)
        assert len(points) == 1 + sum(degree * (degree - 1) ** k for k in range(depth)) == len(edges) + 1
        start, end = (points[[e[i] for e in edges]] for i in (0, 1))
        lengths = ball.dist(start, end)
        torch.testing.assert_close(lengths, torch.full_like(lengths, 2 * math.acosh(1 / math.sin(math.pi / degree))))
        neighbours = [j for i, j in edges if i == 1] + [0]
        v = ball.logmap(points[1].expand(degree, 2), points[neighbours])
        angles = torch.atan2(v[:, 1], v[:, 0]).sort().values
        torch.testing.assert_close(
            angles.diff(), torch.full((degree - 1,), 2 * math.pi / degree, dtype=torch.float64), rtol=1e-6, atol=1e-6
        )
        # No two nodes are closer than an edge.
        apart = ball.dist(points[:, None], points[None]) + 10 * torch.eye(len(points))
        assert apart.min() > lengths[0] * 0.999
    with pytest.raises(ValueError, match="degree ≥ 3"):
        regular_tree(2)


@pytest.mark.parametrize("c", [0.0, 1.0, 4.0])
def test_projection_is_the_nearest_point_of_the_plane(c):
    ball = PoincareBall(2, c)
    z, p = (ball.random(20, scale=0.5, dtype=torch.float64) for _ in range(2))
    a = torch.randn(20, 2, dtype=torch.float64)
    foot = project(ball, z, p, a)
    assert ball.dist2plane(foot, p, a).abs().max() < 1e-9
    torch.testing.assert_close(ball.dist(z, foot), ball.dist2plane(z, p, a, signed=False), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("c", [1e-24, torch.tensor(1e-24)], ids=["number", "tensor"])
def test_a_rim_far_outside_the_window_costs_nothing(c):
    """The pixels of a disc of radius 1e12 are not to be filled: the picture is that of the plane."""
    ball = PoincareBall(2, c)
    x, y = torch.randn(2, 5, 2)
    for draw in (
        lambda ax: disc(ax, ball, reach=3.0),
        lambda ax: latent_map(ax, ball, x),
        lambda ax: mosaic(ax, ball, x, torch.rand(5, 8, 8)),
        lambda ax: gyroplane_heat(ax, ball, x[0], y[0], reach=3.0),
    ):
        ax = Figure().subplots()
        draw(ax)
        shapes = [patch.get_extents() for patch in ax.patches]
        shapes += [i.get_clip_path().get_fully_transformed_path().get_extents() for i in ax.images if i.get_clip_path()]
        assert max(max(box.width, box.height) for box in shapes) < 1e4
        ax.figure.savefig(io.BytesIO())
    straight = geodesics(disc(Figure().subplots(), ball, reach=3.0), ball, x, y).get_segments()
    torch.testing.assert_close(torch.tensor(straight[0][24]), ((x + 24 / 47 * (y - x))[0]).double(), rtol=0, atol=1e-6)


def test_density_needs_a_disc():
    with pytest.raises(ValueError, match="PoincareBall of dimension 2"):
        density(axes(), RiemannianNormal(torch.zeros(2), 1.0, Lorentz(2)))
    with pytest.raises(ValueError, match="dimension 2"):
        geodesics(axes(), PoincareBall(2), torch.zeros(3), torch.zeros(3))
