"""Matrices of distances, against the list of pairs, mpmath's formula and finite differences."""

import mpmath
import pytest
import torch

from curvae.geometry import hyperboloid as h
from curvae.geometry.between import distances_between

torch.manual_seed(0)
POINTS = torch.randn(5, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)


def _number(x):
    return mpmath.mpf(float(x))


def _reference(s, t, c):
    """acosh(ξ_s·ξ_t − c⟨s, t⟩)/√c, with 60 digits."""
    with mpmath.workdps(60):
        s, t, c = [_number(x) for x in s], [_number(x) for x in t], _number(c)
        if c == 0:
            return float(mpmath.sqrt(sum((a - b) ** 2 for a, b in zip(s, t, strict=True))))
        times = [mpmath.sqrt(1 + c * sum(a * a for a in p)) for p in (s, t)]
        inner = sum(a * b for a, b in zip(s, t, strict=True))
        return float(mpmath.acosh(times[0] * times[1] - c * inner) / mpmath.sqrt(c))


@pytest.mark.parametrize("c", [0.0, 1e-9, 0.3, 2.0])
@pytest.mark.parametrize("stretch", [1e-6, 1.0, 1e4])
def test_against_many_digits(c, stretch):
    S, T = (stretch * x for x in POINTS)
    T = torch.cat([T, S[:1] * (1 + 1e-9)])  # one that is very near
    found = distances_between(S, T, torch.tensor(c, dtype=torch.float64))
    expected = torch.tensor([[_reference(s, t, c) for t in T] for s in S], dtype=torch.float64)
    torch.testing.assert_close(found[:, :-1], expected[:, :-1], rtol=1e-12, atol=0.0)
    torch.testing.assert_close(found[:, -1], expected[:, -1], rtol=1e-5, atol=1e-11)


@pytest.mark.parametrize("c", [1e-3, 0.7])
def test_gradients_by_finite_differences(c):
    arguments = [x.clone().requires_grad_() for x in (*POINTS, torch.tensor(c, dtype=torch.float64))]
    assert torch.autograd.gradcheck(distances_between, arguments)


def test_points_that_coincide_have_no_gradient():
    S = torch.zeros(3, 2, dtype=torch.float64)
    S[2] = 1.0
    S.requires_grad_()
    c = torch.tensor(1.0, dtype=torch.float64)
    found = distances_between(S, S, c)
    (grad,) = torch.autograd.grad(found.sum(), S)
    assert found.diagonal().eq(0).all()
    assert found[0, 1] == 0
    assert grad.isfinite().all()
    torch.testing.assert_close(found[0, 2], h.dist0(S[2], c))


def test_leading_dimensions_and_curvatures():
    S, T = torch.randn(2, 3, 4, 2, dtype=torch.float64), torch.randn(2, 3, 5, 2, dtype=torch.float64)
    c = torch.rand(2, 3, dtype=torch.float64)
    found = distances_between(S, T, c)
    assert found.shape == (2, 3, 4, 5)
    torch.testing.assert_close(found[1, 2], distances_between(S[1, 2], T[1, 2], c[1, 2]))
