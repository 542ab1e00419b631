"""The terms that hold a map to neighbourhoods, against sums by hand, scipy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import rel_entr
from torch.utils._pytree import tree_map

from curvae import Euclidean, Lorentz
from curvae.models import Batch, Layout, MapTerms, Stack, Terms
from curvae.models.vae import far_stress, jittered, near_divergence
from curvae.training import Config, build

ROWS, FEATURES = 6, 5


def _near(n, seed=0):
    p = np.random.default_rng(seed).random((n, n))
    p[p < 0.3] = 0
    np.fill_diagonal(p, 0)
    p /= p.sum(1, keepdims=True)
    np.fill_diagonal(p, -1)
    return torch.from_numpy(p).float()


def _far(n, m, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).random((n, m))).float()


@pytest.fixture
def exact(monkeypatch):
    """The search for the best sharpness goes on to the last digit."""
    monkeypatch.setattr("curvae.models.vae._TURNS", 300)


def test_near_divergence_by_hand(exact):
    near, d = _near(5).numpy().astype(np.float64), np.random.default_rng(1).random((5, 5))
    near[:, 4] = near[4] = -1  # a row that fills up the batch
    near[:4, :4] = np.where(np.eye(4), -1, near[:4, :4])
    others = [[j for j in range(4) if j != i] for i in range(4)]

    def divergences(beta):
        kernels = [1 / (1 + beta * d[i, own] ** 2) for i, own in enumerate(others)]
        return [
            rel_entr(near[i, own], q / q.sum()).sum() for i, (own, q) in enumerate(zip(others, kernels, strict=True))
        ]

    best = minimize_scalar(lambda beta: sum(divergences(beta)), bounds=(1e-3, 100), method="bounded")
    assert 0.01 < best.x < 50
    expected = divergences(best.x)
    found = near_divergence(torch.from_numpy(d), torch.from_numpy(near))
    np.testing.assert_allclose(found[:4], expected, rtol=1e-4)
    np.testing.assert_allclose(found.sum(), sum(expected), rtol=1e-8)
    assert found[4] == 0


def test_few_turns_find_the_best_sharpness(monkeypatch):
    """For as many rows as a batch has, whatever the scale of the map."""
    z = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 2)))
    near = torch.softmax(-3 * torch.cdist(z, z).fill_diagonal_(1e9), -1).fill_diagonal_(-1)
    found = [near_divergence(scale * torch.cdist(z, z) ** 0.7, near).sum() for scale in (0.01, 1.0, 100.0)]
    monkeypatch.setattr("curvae.models.vae._TURNS", 300)
    expected = near_divergence(torch.cdist(z, z) ** 0.7, near).sum()
    np.testing.assert_allclose(found, float(expected), rtol=1e-4)


def test_stress_by_hand():
    draw = np.random.default_rng(2)
    d, t = draw.random((5, 4)), 0.1 + draw.random((5, 4))
    counts = draw.random((5, 4)) < 0.7
    counts[3] = False
    alpha = d[counts].sum() / t[counts].sum()
    expected = ((d - alpha * t)[counts] ** 2 / t[counts]).sum() / (d * d / t)[counts].sum()
    found = far_stress(torch.from_numpy(d), torch.from_numpy(np.where(counts, t, -1.0)))
    assert found[3] == 0
    np.testing.assert_allclose(found.sum() / 4, expected)
    nearby = [
        ((d - a * t)[counts] ** 2 / t[counts]).sum() / (d * d / t)[counts].sum() for a in (0.99 * alpha, 1.01 * alpha)
    ]
    assert min(nearby) > expected  # the best scaling indeed


def test_closed_form_gradients(exact):
    """By finite differences; of the divergence as a sum, for what every row adds depends on the sharpness."""
    draw = np.random.default_rng(3)
    d, far = (torch.from_numpy(draw.random((5, n))) for n in (5, 3))
    far, near = torch.where(far < 0.2, -1.0, far), _near(5).double()
    near[:, 4] = near[4] = far[4] = -1  # a row that fills up the batch
    wide, d = d[:, :3].clone().requires_grad_(), d.requires_grad_()
    assert torch.autograd.gradcheck(lambda d: near_divergence(d, near).sum(), d)
    assert torch.autograd.gradcheck(lambda d: far_stress(d, far), wide)
    assert torch.autograd.gradgradcheck(lambda d: far_stress(d, far), wide)


def _model(seed=0, **settings):
    return build(Config(likelihood="gaussian", hidden=(7,), seed=seed, **settings), FEATURES).double()


def _batch(seed=0, marks=3):
    draw = torch.Generator().manual_seed(seed)
    x, others = (torch.randn(n, FEATURES, generator=draw, dtype=torch.float64) for n in (ROWS, max(marks, 1)))
    every = torch.cat([x, others]) if marks else x
    far = _far(ROWS, len(every), seed)
    near = torch.softmax(-torch.cdist(x, every).fill_diagonal_(1e9), -1).fill_diagonal_(-1).float()
    return Batch(x, near=near, far=far, companions=Batch(others) if marks else None)


@pytest.mark.parametrize("space", ["h2:0.7", "h2:0", "h2:1.3,e2,h3:0.2"])
@pytest.mark.parametrize("marks", [0, 3])
def test_terms_of_a_model(space, marks):
    model, batch = _model(space=space, prior_scale=1.7), _batch(marks=marks)
    noise = model.noise(ROWS, 2).double()
    terms = model.terms(batch, noise)
    plain = model.terms(batch.x, noise)
    assert isinstance(terms, MapTerms)
    assert isinstance(plain, Terms)
    for found, expected in zip(terms, plain, strict=False):
        torch.testing.assert_close(found, expected)

    def centres(x):
        return model.space.split(model.encode(x).mean)

    own = centres(batch.x)
    every = centres(torch.cat([batch.x, batch.companions.x]) if marks else batch.x)

    def distances(a, b):
        squares = 0.0
        for factor, s, t in zip(model.space, a, b, strict=True):
            c = float(factor.curvature())
            manifold = Lorentz(factor.dim, c) if c else Euclidean(factor.dim)
            squares = squares + (manifold.dist(s[:, None], t[None]) / 1.7) ** 2
        return squares.sqrt()

    torch.testing.assert_close(terms.neighbours[0], near_divergence(distances(own, every), batch.near))
    torch.testing.assert_close(terms.neighbours[1], far_stress(distances(own, every), batch.far))


@pytest.mark.parametrize("settings", [{"learn_curvature": True}, {"learn_prior_scale": True}, {"space": "h2:learn,e1"}])
def test_gradients_by_finite_differences(settings, exact):
    model, batch = _model(**settings), _batch()
    weights = torch.tensor([1.0, 3.0], dtype=torch.float64)
    noise = torch.zeros(1, ROWS, model.dim, dtype=torch.float64)

    def loss():
        return (weights[:, None] * model.terms(batch, noise).neighbours).sum()

    parameters = [p for name, p in model.named_parameters() if not name.startswith(("decoder", "likelihood"))]
    found = torch.autograd.grad(loss(), parameters, allow_unused=True)
    geometry = [float(g.abs()) for g in found if g is not None and g.numel() == 1]
    if "learn_prior_scale" in settings:
        assert max(geometry) < 1e-9  # the scale of a single factor is free
    else:
        assert max(geometry) > 1e-3
    draw = torch.Generator().manual_seed(3)
    along = [torch.randn(p.shape, generator=draw, dtype=p.dtype) for p in parameters]
    expected = sum((g * v).sum() for g, v in zip(found, along, strict=True) if g is not None)
    values = []
    for step in (1e-6, -2e-6):
        with torch.no_grad():
            for p, v in zip(parameters, along, strict=True):
                p += step * v
            values.append(loss())
    torch.testing.assert_close((values[0] - values[1]) / 2e-6, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("marks", [0, 3])
def test_in_a_stack_as_alone(marks):
    models, batches = (
        [_model(seed, curvature=c) for seed, c in enumerate((0.3, 1.0, 2.0))],
        [_batch(seed, marks) for seed in range(3)],
    )
    noise = torch.randn(3, 1, ROWS, 2, dtype=torch.float64)
    alone = [model.terms(batch, own) for model, batch, own in zip(models, batches, noise, strict=True)]
    stacked = Stack(models).terms(tree_map(lambda *parts: torch.stack(parts), *batches), noise)
    assert isinstance(stacked, MapTerms)
    for found, expected in zip(stacked, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected))


def test_context_and_missing_entries_of_companions():
    config = Config(likelihood="gaussian", hidden=(7,), encode_covariates=True)
    model = build(config, Layout(FEATURES, covariates=2, missing=True)).double()
    draw = torch.Generator().manual_seed(0)

    def rows(n, **parts):
        x = torch.randn(n, FEATURES, generator=draw, dtype=torch.float64)
        observed = (torch.rand(n, FEATURES, generator=draw) < 0.7).double()
        context = torch.randn(n, 2, generator=draw, dtype=torch.float64)
        return Batch(x, context=context, observed=observed, **parts)

    others = rows(3)
    batch = rows(ROWS, far=_far(ROWS, ROWS + 3), companions=others)
    terms = model.terms(batch, torch.zeros(1, ROWS, 2, dtype=torch.float64))
    plain = Batch(batch.x, context=batch.context, observed=batch.observed)
    centres = model.encode(plain).mean
    d = Lorentz(2).dist(centres[:, None], torch.cat([centres, model.encode(others).mean])[None])
    torch.testing.assert_close(terms.neighbours, far_stress(d, batch.far)[None])


# --- rows that are moved along the differences of neighbours ---------------------------------------------------------


def _jitter_near(rows, companions, pairs):
    """Of rows that are neighbours of the companions at these places."""
    near = torch.full((rows, rows + companions), -1.0)
    for pair in pairs:
        near[pair, rows + pair] = 0.5
    return near


@pytest.mark.parametrize("shape", [(3,), (1, 4, 5)])
def test_rows_and_companions_move_along_the_line_between_them(shape):
    rows, companions = torch.randn(400, *shape).double(), torch.randn(300, *shape).double()
    pairs = [0, 7, 8, 299]
    found, others = jittered(rows, companions, _jitter_near(400, 300, pairs), 0.4)
    way = (companions - rows[:300]).flatten(1)
    shares = []
    for before, after, sign in ((rows[:300], found[:300], 1.0), (companions, others, -1.0)):
        move = (after - before).flatten(1) * sign
        share = (move * way).sum(1) / (way * way).sum(1)
        torch.testing.assert_close(move, share[:, None] * way)  # nowhere else than along it
        assert np.flatnonzero(share).tolist() == pairs
        shares.append(share[pairs])
    assert not torch.equal(*shares)  # each by a share of its own
    torch.testing.assert_close(found[300:], rows[300:])


def test_shares_are_spread_evenly():
    rows, companions = torch.zeros(400, 1, dtype=torch.float64), torch.ones(400, 1, dtype=torch.float64)
    for part, start in zip(
        jittered(rows, companions, _jitter_near(400, 400, range(400)), 0.3), (0.0, 1.0), strict=True
    ):
        assert stats.kstest(part.numpy().ravel() - start, stats.uniform(-0.3, 0.6).cdf).pvalue > 1e-3
        assert len(torch.unique(part)) == 400


def test_a_place_decides_alone():
    """Whatever fills up the batch, and in a stack."""
    rows, companions = torch.randn(9, 4), torch.randn(12, 4)
    whole, part = (jittered(rows[:n], companions, _jitter_near(n, 12, range(5)), 0.5) for n in (9, 6))
    torch.testing.assert_close(whole[0][:6], part[0])
    torch.testing.assert_close(whole[1], part[1])
    near = _jitter_near(9, 12, range(5))
    stacked = torch.func.vmap(lambda *parts: jittered(*parts, 0.5))(
        torch.stack([rows, 2 * rows]), torch.stack([companions, -companions]), torch.stack([near, near])
    )
    for place, (x, y) in enumerate([(rows, companions), (2 * rows, -companions)]):
        for found, expected in zip(stacked, jittered(x, y, near, 0.5), strict=True):
            torch.testing.assert_close(found[place], expected)


def _jitter_model(layout, jitter):
    return build(Config(likelihood="gaussian", hidden=(6,), jitter=jitter), layout).double()


def test_in_training_alone():
    x, y = torch.randn(8, 5, dtype=torch.float64), torch.randn(8, 5, dtype=torch.float64)
    batch, others = Batch(x, near=_jitter_near(8, 8, range(8))), Batch(y)
    plain, moving = _jitter_model(5, 0.0), _jitter_model(5, 0.9)
    expected = plain._outputs_with(batch, others)
    moved = moving._outputs_with(batch, others)
    assert not torch.isclose(moved, expected).all(1).any()
    torch.testing.assert_close(moving.eval()._outputs_with(batch, others), expected)
    torch.testing.assert_close(moving.train()._outputs_with(Batch(x), others), expected)  # nothing is known of nearness


def test_what_is_missing_stays_missing():
    observed = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]], dtype=torch.float64)
    x, y = (torch.randn(3, 3, dtype=torch.float64) for _ in range(2))
    model, read = _jitter_model(Layout(3, missing=True), 0.9), []
    model.encoder.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    model._outputs_with(
        Batch(x, observed=observed, near=_jitter_near(3, 3, range(3))), Batch(y, observed=observed[[1, 2, 0]])
    )
    values, told = read[0].split(3, 1)
    assert torch.equal(told, torch.cat([observed[[1, 2, 0]], observed]))
    assert torch.equal(values == 0, told == 0)
    assert not torch.isclose(values[3:], x)[observed == 1].any()
