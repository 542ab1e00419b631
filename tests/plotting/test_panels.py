"""Mosaics, grids and charts show what they are given; the bytes of a figure are the same each time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from curvae import HyperbolicRadius, PoincareBall
from curvae.errors import CurvaeError
from curvae.plotting import (
    confusion,
    curves,
    decoded_mosaic,
    figure_bytes,
    latent_map,
    mosaic,
    radius_histogram,
    reconstructions,
    sample_grid,
)


def axes(*shape):
    return Figure(figsize=(2, 2)).subplots(*shape)


def cells(drawn, n):
    """The canvas of a mosaic as (row from below, column, height, width)."""
    canvas = np.asarray(drawn.get_array().filled(np.nan))
    side = canvas.shape[0] // n
    return canvas.reshape(n, side, n, side).swapaxes(1, 2)


@pytest.mark.parametrize("c", [0.0, 0.3, 1.0])
def test_mosaic_shows_one_image_a_cell_the_nearest_to_its_centre(c):
    ball, n = PoincareBall(2, c), 10
    z = ball.random(400, scale=0.6, dtype=torch.float64)
    # Image k is the constant k/400, so that it can be recognised.
    images = (torch.arange(400).double() / 400)[:, None, None].expand(400, 4, 4)
    drawn = mosaic(axes(), ball, z, images, size=1 / n)
    left, right, bottom, top = drawn.get_extent()
    assert left == bottom == -right == -top
    place = (z.numpy() - left) / (right - left) * n
    owner = np.floor(place).astype(int)
    shown = cells(drawn, n)
    for row in range(n):
        for column in range(n):
            there = np.flatnonzero((owner == [column, row]).all(1))
            seen = np.unique(shown[row, column][np.isfinite(shown[row, column])])
            assert len(seen) == min(1, len(there))
            if len(there):
                off = np.linalg.norm(place[there] - [column + 0.5, row + 0.5], axis=1)
                assert round(seen[0] * 400) == there[off.argmin()]
    few = cells(mosaic(axes(), ball, z, images, size=1 / n, limit=7), n)
    assert np.isfinite(few).any((2, 3)).sum() == 7


def test_mosaic_keeps_images_upright_and_square():
    image = torch.zeros(1, 3, 6)
    image[0, 0] = 1.0  # the top row
    shown = np.asarray(mosaic(axes(), PoincareBall(2), [[0.0, 0.0]], image, size=1.0).get_array().filled(np.nan))
    assert shown.shape == (7, 7)
    rows = np.nanmax(shown, 1, initial=0)
    # Padded to 6 × 6: one row above, two below; rows count from below.
    assert rows.tolist() == [0, 0, 0, 0, 1, 0, 0]


def test_large_images_are_reduced():
    assert mosaic(axes(), PoincareBall(2), [[0.0, 0.0]], torch.rand(1, 200, 100), size=1.0).get_array().shape == (
        49,
        49,
    )


@pytest.mark.parametrize("c", [0.0, 0.3, 1.0])
def test_decoded_mosaic_asks_the_decoder_at_the_centres_of_its_cells(c):
    ball, n, asked = PoincareBall(2, c), 9, []

    def decode(z):
        asked.append(z)
        return torch.stack([z[:, 0], z[:, 1], z[:, 0], z[:, 1]], 1)

    drawn = decoded_mosaic(axes(), ball, decode, (2, 2), n, reach=2.0)
    z = asked[0]
    assert ball.contains(z).all() and z.dtype == torch.float32
    width = drawn.get_extent()[1]
    assert width == (2.0 if c == 0 else c**-0.5)
    shown = cells(drawn, n)
    filled = np.isfinite(shown).all((2, 3))
    assert filled.sum() == len(z) and (filled.all() if c == 0 else not filled[0, 0])
    row, column = np.nonzero(filled)
    np.testing.assert_allclose(shown[row, column, 0, 0], (2 * column + 1 - n) * width / n, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(shown[row, column, 0, 1], (2 * row + 1 - n) * width / n, rtol=1e-6, atol=1e-7)


def test_sample_grid_lays_images_row_after_row():
    images = np.arange(5.0)[:, None, None] * np.ones((5, 2, 3)) / 5
    shown = np.asarray(sample_grid(axes(), images, columns=3).get_array().filled(np.nan))
    assert shown.shape == (5, 11)
    np.testing.assert_array_equal(shown[[0, 0, 0, 3, 3], [0, 4, 8, 0, 4]], images[:, 0, 0])
    assert np.isnan(shown[3:, 8:]).all()
    assert sample_grid(axes(), images).get_array().shape == (5, 11)


def test_mosaics_name_mistakes():
    ball, ax = PoincareBall(2), axes()
    with pytest.raises(CurvaeError, match="2 images for 3 points"):
        mosaic(ax, ball, torch.zeros(3, 2), torch.zeros(2, 4, 4))
    with pytest.raises(CurvaeError, match=r"shape \(N, H, W\).*got \(3, 16\)"):
        mosaic(ax, ball, torch.zeros(3, 2), torch.zeros(3, 16))
    with pytest.raises(CurvaeError, match="size must lie in"):
        mosaic(ax, ball, torch.zeros(3, 2), torch.zeros(3, 4, 4), size=0.0)
    with pytest.raises(CurvaeError, match="at least one pixel"):
        sample_grid(ax, torch.zeros(0, 4, 4))


def test_confusion_writes_counts_and_shares():
    ax = axes()
    drawn = confusion(ax, [[90, 10], [0, 0]], ["no", "a$b$"])
    np.testing.assert_allclose(np.asarray(drawn.get_array()), [[0.9, 0.1], [0, 0]])
    assert {text.get_text(): text.get_color() for text in ax.texts} == {"90": "white", "10": "#1f2933"}
    confusion(ax := axes(), torch.tensor([[0.25, 0.75], [0.001, 0.999]]), [0, 1])
    assert [text.get_text() for text in ax.texts] == [".25", ".75", "1.00"]
    confusion(ax := axes(), np.eye(21, dtype=int), range(21))
    assert not ax.texts and len(ax.get_xticks()) == 21
    with pytest.raises(CurvaeError, match=r"3 names must have shape \(3, 3\), got \(2, 2\)"):
        confusion(axes(), np.eye(2), "abc")


def records(n):
    history = [{"epoch": k, "elbo": -100 - 1e4 * math.exp(-k), "kl": 0.1 * k, "c": 1.0} for k in range(n)]
    for record in history[::5]:
        record.update(validation_elbo=record["elbo"] - 1, validation_kl=math.nan, validation_reconstruction=None)
    return history


def test_curves_do_with_what_they_have():
    first, second = curves(axes(1, 2), records(40))
    training, validation = (line for line in first.lines if len(line.get_xdata()))
    assert len(training.get_xdata()) == 40 and validation.get_xdata().tolist() == list(range(0, 40, 5))
    # The first epochs do not squash the rest.
    low, high = first.get_ylim()
    assert -110 < low < -101 and -100 < high < -99
    assert len(second.lines) == 1 and not first.get_title()
    first, _ = curves(axes(1, 2), [{"epoch": k, "elbo": -1.0, "c": 1 - 0.1 * k} for k in range(3)])
    assert first.get_title() == "learned c: 1 → 0.8" and first.get_legend() is None
    for history in (records(1), [{"epoch": 3}], [{"elbo": math.nan, "epoch": 0}]):
        figure = Figure(figsize=(4, 2))
        curves(figure.subplots(1, 2), history)
        figure_bytes(figure)
    with pytest.raises(CurvaeError, match="the history is empty"):
        curves(axes(1, 2), [])


@pytest.mark.parametrize(("c", "distribution"), [(0.0, "riemannian"), (1.0, "riemannian"), (1.0, "wrapped")])
def test_radius_histogram_beside_the_prior(c, distribution):
    radii = HyperbolicRadius(3, 0.8, c if distribution == "riemannian" else 0.0).sample((4000,))
    ax = radius_histogram(axes(), radii, torch.tensor(c), 0.8, dim=3, distribution=distribution)
    area = sum(bar.get_width() * bar.get_height() for bar in ax.patches)
    assert math.isclose(area, 1, rel_tol=1e-6) and ("hyperbolic" in ax.get_xlabel()) == (c > 0)
    x, density = (np.asarray(values) for values in ax.lines[0].get_data())
    assert np.isclose(np.trapezoid(density, x), 1, atol=0.01)
    middle = np.array([bar.get_x() + bar.get_width() / 2 for bar in ax.patches])
    heights = np.array([bar.get_height() for bar in ax.patches])
    assert np.abs(heights - np.interp(middle, x, density)).max() < 0.2 * density.max()


def test_radius_histogram_of_small_cases():
    for radii in ([0.0], [1.0, 1.0], torch.rand(3)):
        assert not radius_histogram(axes(), radii, 1.0).lines
    with pytest.raises(CurvaeError, match="got 0 of which 0"):
        radius_histogram(axes(), [], 1.0)
    with pytest.raises(CurvaeError, match="got 3 of which 2"):
        radius_histogram(axes(), [1.0, -1.0, math.nan], 1.0)


def test_the_prior_of_a_radius_histogram_is_that_of_the_distribution():
    wrapped = radius_histogram(axes(), [0.5, 1.0], 1.0, 0.8, distribution="wrapped")
    riemannian = radius_histogram(axes(), [0.5, 1.0], 1.0, 0.8)
    drawn = [np.asarray(ax.lines[0].get_ydata()) for ax in (wrapped, riemannian)]
    assert not np.array_equal(*drawn)


def test_reconstructions_as_images_or_features():
    rows, made = torch.rand(3, 12), torch.rand(3, 12)
    panels = reconstructions(axes(1, 3), rows, made, (3, 4), ["worst", "median", "best"])
    shown = np.asarray(panels[1].images[0].get_array().filled(np.nan))
    np.testing.assert_allclose(shown[:, :4], rows[1].reshape(3, 4))
    np.testing.assert_allclose(shown[:, 5:], made[1].reshape(3, 4))
    assert [ax.get_title() for ax in panels] == ["worst", "median", "best"]
    panels = reconstructions(axes(1, 3), torch.rand(3, 300), torch.rand(3, 300), (300,), ["a", "b", "c"])
    (bars,) = panels[0].patches
    assert len(bars.get_data().values) == 100 == len(panels[0].lines[0].get_xdata())
    with pytest.raises(CurvaeError, match="3 axes and 2 titles"):
        reconstructions(axes(1, 3), rows, made, (12,), ["worst", "best"])


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_bytes_are_the_same_twice_and_undated(kind):
    def draw():
        figure = Figure(figsize=(3, 1.5), layout="constrained")
        left, right = figure.subplots(1, 2)
        ball = PoincareBall(2)
        z = ball.random(1500, generator=torch.Generator().manual_seed(0))
        latent_map(left, ball, z, np.arange(1500) % 5, title="a map")
        confusion(right, [[3, 1], [0, 4]], "ab")
        return figure_bytes(figure, kind)

    first = draw()
    assert first == draw() and len(first) < 150_000
    assert first.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    assert b"<dc:date>" not in first and b"matplotlib.org" not in first.split(b"<defs>")[0].replace(b"\n", b"")


def test_figures_are_closed():
    from matplotlib import pyplot as plt

    with plt.rc_context({"backend": "agg"}):
        figure = plt.figure(figsize=(1, 1))
        figure.add_artist(Line2D([0, 1], [0, 1]))
        figure_bytes(figure)
        assert figure.number not in plt.get_fignums()
