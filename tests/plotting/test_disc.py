"""Drawings on the disc are geometrically right; every figure is drawn without a warning."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from curvae import Lorentz, PoincareBall, RiemannianNormal
from curvae.plotting import (
    density,
    disc,
    geodesics,
    gyroplane,
    gyroplane_heat,
    latent_map,
    mosaic,
    project,
    regular_tree,
)


def axes():
    return Figure().subplots()


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
