"""Frames and alignments against 120 digits, brute force and isometries that are known."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from combining import every_pair
from curvae import Lorentz
from curvae.geometry import hyperboloid as h
from curvae.maps.charts import Frame, align, picture_frame
from oracles import ball_dist, ball_to_lorentz, lorentz_to_ball, mobius_add, mpf, vector

F64 = torch.float64


def orthogonal(d, mirror=False):
    turn = torch.linalg.qr(torch.randn(d, d, dtype=F64))[0]
    if bool(torch.linalg.det(turn) < 0) != mirror:
        turn[:, 0] *= -1
    return turn


def cloud(d, c, count=60, scale=0.8):
    """Points whose axes differ in variance and skewness, and scores that have to do with them."""
    v = torch.randn(count, d, dtype=F64) * torch.linspace(1.0, 0.5, d, dtype=F64)
    v = scale * (v + 0.3 * v**2)
    scores = torch.randn(count, 2, dtype=F64) + 2 * torch.nn.functional.pad(v, (0, 1))[:, :2]
    return h.expmap0(v, c), scores


def moved(S, c, far, mirror=True):
    """Turned, or mirrored too, and then translated by the distance `far`."""
    d = S.shape[1]
    to = h.expmap0(far * torch.nn.functional.normalize(torch.randn(d, dtype=F64), dim=0), c)
    return h.translate(to, S @ orthogonal(d, mirror), c)


def largest_gap(S, T, c):
    return float(Lorentz(S.shape[1], c).dist(S, T).max())


@pytest.mark.parametrize("c", [0.0, 0.3, 1.7])
@pytest.mark.parametrize("radius", [0.5, 20.0])
def test_a_frame_is_the_isometry_that_moves_its_centre_to_the_origin(c, radius):
    away = torch.tensor([3.0, -1.0, 2.0], dtype=F64)
    away *= radius / (math.sqrt(c) or 1.0) / away.norm()
    centre = h.expmap0(away, c)
    S = h.translate(centre, cloud(3, c, 6)[0], c)
    frame = Frame(centre, orthogonal(3, mirror=True), c)
    seen = frame.apply(S)
    torch.testing.assert_close(frame.apply(centre), torch.zeros(3, dtype=F64), rtol=0, atol=1e-300)
    with mp.workdps(120):
        k = mpf(c)
        back = [-x for x in lorentz_to_ball(vector(centre), k)]
        balls = [lorentz_to_ball(vector(x), k) for x in S]
        there = [ball_to_lorentz(mobius_add(back, x, k), k) for x in balls]
        expected = torch.tensor([[float(x) for x in row] for row in there], dtype=F64) @ frame.axes
        gaps = torch.tensor([float(ball_dist(balls[0], x, k)) for x in balls], dtype=F64)
    torch.testing.assert_close(seen, expected, rtol=1e-6, atol=1e-6 if radius > 1 else 1e-13)
    torch.testing.assert_close(Lorentz(3, c).dist(seen[0], seen), gaps, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(h.expmap0(frame.coordinates(S), c), seen)


@pytest.mark.parametrize("c", [0.0, 1.3])
def test_a_frame_of_fewer_axes_projects_in_the_tangent_space(c):
    S, _ = cloud(4, c)
    whole = Frame(S[0], orthogonal(4), c)
    two = Frame(S[0], whole.axes[:, :2], c)
    torch.testing.assert_close(two.coordinates(S), whole.coordinates(S)[:, :2])
    torch.testing.assert_close(Lorentz(2, c).dist0(two.apply(S)), two.coordinates(S).norm(dim=1))


@pytest.mark.parametrize("c", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("far", [0.0, 3.0, 20.0])
def test_the_mean_of_points_far_from_the_origin(c, far):
    S, _ = cloud(3, c)
    T = moved(S, c, far)
    mean = Lorentz(T.shape[1], c).frechet_mean(T)
    pull = Frame(mean, torch.eye(3, dtype=F64), c).coordinates(T).mean(0)  # no sum of logarithms is left
    assert pull.norm() < 1e-6 * math.exp(max(0, math.sqrt(c) * far - 17))


@pytest.mark.parametrize(("d", "c", "mirror"), every_pair([1, 2, 3, 6], [0.0, 0.4, 1.0], [False, True]))
def test_a_picture_does_not_depend_on_the_isometry(d, c, mirror):
    S, scores = cloud(d, c)
    drawn = picture_frame(S, c, scores).apply(S)
    for far in (0.0, 2.0, 20.0):
        T = moved(S, c, far, mirror)
        again = picture_frame(T, c, scores).apply(T)
        assert largest_gap(drawn, again, c) < (1e-9 if far < 20 else 1e-4)
    about_root = picture_frame(S, c, scores, S[3]).apply(S)
    again = picture_frame(T, c, scores, T[3]).apply(T)
    assert largest_gap(about_root, again, c) < 1e-4
    assert about_root[3].norm() == 0.0 and again[3].norm() == 0.0


@pytest.mark.parametrize("c", [0.0, 0.8])
def test_a_picture_lies_as_near_to_the_scores_as_any(c):
    S, scores = cloud(2, c)
    vectors = Frame(Lorentz(S.shape[1], c).frechet_mean(S), torch.eye(2, dtype=F64), c).coordinates(S)
    wanted, drawn = scores - scores.mean(0), picture_frame(S, c, scores).coordinates(S)
    best = float((drawn - wanted).square().sum())
    angles = torch.linspace(0, 2 * math.pi, 721, dtype=F64)
    for sign in (1.0, -1.0):
        turns = torch.stack(
            [torch.stack([angles.cos(), angles.sin()], 1), sign * torch.stack([-angles.sin(), angles.cos()], 1)], 1
        )
        costs = ((vectors @ turns) - wanted).square().sum((1, 2))
        assert best <= float(costs.min()) + 1e-9
    assert bool(((drawn * wanted).sum(0) > 0).all())


def test_more_dimensions_show_the_two_of_the_largest_variance():
    v = torch.randn(300, 5, dtype=F64) * torch.tensor([0.1, 1.0, 0.2, 2.0, 0.1], dtype=F64)
    frame = picture_frame(h.expmap0(v, 0.0), 0.0, v[:, [1, 3]])
    assert frame.axes[[1, 3]].abs().max(0).values.min() > 0.99  # the plane of these two
    x, y = frame.coordinates(h.expmap0(v, 0.0)).T
    assert np.corrcoef(x, v[:, 1])[0, 1] > 0.99 and np.corrcoef(y, v[:, 3])[0, 1] > 0.99


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_what_scores_leave_open_the_shape_of_the_map_decides(d, known):
    S, scores = cloud(d, 0.7)
    scores = scores * torch.tensor([float(known), 0.0])
    drawn = picture_frame(S, 0.7, scores).apply(S)
    for mirror in (False, True):
        T = moved(S, 0.7, 1.0, mirror)
        assert largest_gap(drawn, picture_frame(T, 0.7, scores).apply(T), 0.7) < 1e-9


def test_points_that_coincide_have_a_picture():
    S = torch.full((5, 2), 0.3, dtype=F64)
    assert picture_frame(S, 1.0, torch.zeros(5, 2, dtype=F64)).apply(S).abs().max() < 1e-12


@pytest.mark.parametrize(("d", "c", "mirror"), every_pair([1, 2, 4], [0.0, 0.3, 1.0], [False, True]))
def test_alignment_finds_a_known_isometry(d, c, mirror):
    S, _ = cloud(d, c)
    for far in (0.0, 2.0, 20.0):
        T = moved(S, c, far, mirror)
        assert largest_gap(align(T, S, c).apply(T), S, c) < (1e-9 if far < 20 else 1e-4)
    assert largest_gap(align(S, T, c).apply(S), T, c) < 1e-4  # onto points far from the origin


@pytest.mark.parametrize("c", [0.0, 1.0])
def test_alignment_is_the_best_of_all(c):
    S, _ = cloud(2, c, 30, 1.2)
    T = moved(h.expmap(S, 0.5 * torch.randn(30, 2, dtype=F64), c), c, 1.0)
    # Every isometry of the disc, or the plane, is a function of a complex number.
    z, w = (torch.view_as_complex(h.ball(x, c).contiguous()).numpy() for x in (S, T))

    def cost(z):
        gap = 2 * np.abs(z - w) if c == 0 else 2 * np.arctanh(np.abs((z - w) / (1 - z.conj() * w)))
        return np.mean(gap**2)

    def other(numbers, mirror):
        a, turn = complex(*numbers[:2]), np.exp(1j * numbers[2])
        if c and abs(a) >= 1:
            return np.inf
        x = z.conj() if mirror else z
        return cost(turn * (x - a) / (1 - c * a.conjugate() * x))

    found = min(
        minimize(other, [0, 0, angle], (mirror,), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9}).fun
        for angle in (0.0, 1.6, 3.1, 4.7)
        for mirror in (False, True)
    )
    aligned = h.ball(align(S, T, c).apply(S), c)
    assert cost(torch.view_as_complex(aligned.contiguous()).numpy()) == pytest.approx(found, rel=1e-5)
