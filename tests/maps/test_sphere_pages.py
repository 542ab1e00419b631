"""Spheres on the page: areas, distances and geodesics, and how they are turned."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy import stats

from curvae.maps.charts import SphereChart
from curvae.maps.sphere_pages import Hemispheres, Ring
from curvae.plotting import geodesics, latent_map

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
