"""Rows that are moved along the differences of neighbours: which, by how much, and in training alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from curvae.models import Batch, Layout
from curvae.models.neighbour_terms import jittered
from curvae.training import Config, build


def _near(rows, companions, pairs):
    """Of rows that are neighbours of the companions at these places."""
    near = torch.full((rows, rows + companions), -1.0)
    for pair in pairs:
        near[pair, rows + pair] = 0.5
    return near


@pytest.mark.parametrize("shape", [(3,), (1, 4, 5)])
def test_rows_and_companions_move_along_the_line_between_them(shape):
    rows, companions = torch.randn(400, *shape).double(), torch.randn(300, *shape).double()
    pairs = [0, 7, 8, 299]
    found, others = jittered(rows, companions, _near(400, 300, pairs), 0.4)
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
    for part, start in zip(jittered(rows, companions, _near(400, 400, range(400)), 0.3), (0.0, 1.0), strict=True):
        assert stats.kstest(part.numpy().ravel() - start, stats.uniform(-0.3, 0.6).cdf).pvalue > 1e-3
        assert len(torch.unique(part)) == 400


def test_a_place_decides_alone():
    """Whatever fills up the batch, and in a stack."""
    rows, companions = torch.randn(9, 4), torch.randn(12, 4)
    whole, part = (jittered(rows[:n], companions, _near(n, 12, range(5)), 0.5) for n in (9, 6))
    torch.testing.assert_close(whole[0][:6], part[0])
    torch.testing.assert_close(whole[1], part[1])
    near = _near(9, 12, range(5))
    stacked = torch.func.vmap(lambda *parts: jittered(*parts, 0.5))(
        torch.stack([rows, 2 * rows]), torch.stack([companions, -companions]), torch.stack([near, near])
    )
    for place, (x, y) in enumerate([(rows, companions), (2 * rows, -companions)]):
        for found, expected in zip(stacked, jittered(x, y, near, 0.5), strict=True):
            torch.testing.assert_close(found[place], expected)


def _model(layout, jitter):
    return build(Config(likelihood="gaussian", hidden=(6,), jitter=jitter), layout).double()


def test_in_training_alone():
    x, y = torch.randn(8, 5, dtype=torch.float64), torch.randn(8, 5, dtype=torch.float64)
    batch, others = Batch(x, near=_near(8, 8, range(8))), Batch(y)
    plain, moving = _model(5, 0.0), _model(5, 0.9)
    expected = plain._outputs_with(batch, others)
    moved = moving._outputs_with(batch, others)
    assert not torch.isclose(moved, expected).all(1).any()
    torch.testing.assert_close(moving.eval()._outputs_with(batch, others), expected)
    torch.testing.assert_close(moving.train()._outputs_with(Batch(x), others), expected)  # nothing is known of nearness


def test_what_is_missing_stays_missing():
    observed = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]], dtype=torch.float64)
    x, y = (torch.randn(3, 3, dtype=torch.float64) for _ in range(2))
    model, read = _model(Layout(3, missing=True), 0.9), []
    model.encoder.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    model._outputs_with(Batch(x, observed=observed, near=_near(3, 3, range(3))), Batch(y, observed=observed[[1, 2, 0]]))
    values, told = read[0].split(3, 1)
    assert torch.equal(told, torch.cat([observed[[1, 2, 0]], observed]))
    assert torch.equal(values == 0, told == 0)
    assert not torch.isclose(values[3:], x)[observed == 1].any()
