"""Matrices of distances, against mpmath's formula, the composed path and finite differences."""

import mpmath
import pytest
import torch

from curvae.geometry.pairs import _Within, distances_within

torch.manual_seed(0)
TANGENTS = torch.randn(6, 3, dtype=torch.float64)


def _reference(u, v, c):
    """acosh(cosh(√c|u|)·cosh(√c|v|) − sinh(√c|u|)·sinh(√c|v|)·cos)/√c, with 80 digits."""
    with mpmath.workdps(80):
        u, v, c = [mpmath.mpf(float(x)) for x in u], [mpmath.mpf(float(x)) for x in v], mpmath.mpf(c)
        if c == 0:
            return float(mpmath.sqrt(sum((a - b) ** 2 for a, b in zip(u, v, strict=True))))
        a, b = (mpmath.sqrt(sum(x * x for x in w)) for w in (u, v))
        cosine = sum(x * y for x, y in zip(u, v, strict=True)) / (a * b)
        root = mpmath.sqrt(c)
        inner = mpmath.cosh(root * a) * mpmath.cosh(root * b) - mpmath.sinh(root * a) * mpmath.sinh(root * b) * cosine
        return float(mpmath.acosh(max(inner, 1)) / root)


@pytest.mark.parametrize("c", [0.0, 1e-9, 0.3, 2.0])
@pytest.mark.parametrize("stretch", [1e-6, 1.0, 12.0])
def test_against_many_digits(c, stretch):
    U = stretch * TANGENTS
    U = torch.cat([U, U[:1] * (1 + 1e-9)])  # one that is very near
    found = distances_within(U, torch.tensor(c, dtype=torch.float64), 4)
    expected = torch.tensor([[_reference(s, t, c) for t in U] for s in U[:4]], dtype=torch.float64)
    torch.testing.assert_close(found[:, :-1], expected[:, :-1], rtol=1e-12, atol=1e-14 * stretch)
    if stretch < 12:  # directions of far points have no digit left for that
        torch.testing.assert_close(found[:, -1], expected[:, -1], rtol=1e-5, atol=1e-11)


def _weighted(U, c, count, path=distances_within):
    """A sum to which pairs add by weights, and those of a point with itself nothing."""
    weights = torch.linspace(0.5, 2.0, count * len(U), dtype=torch.float64).view(count, -1)
    return (weights * torch.triu(path(U, c, count), 1)).sum()


@pytest.mark.parametrize("c", [1e-3, 0.7])
@pytest.mark.parametrize("count", [2, 6])
def test_gradients_by_finite_differences(c, count):
    U, c = TANGENTS.clone().requires_grad_(), torch.tensor(c, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda U, c: _weighted(U, c, count), (U, c), atol=1e-8, rtol=1e-8, eps=1e-5)


@pytest.mark.parametrize("c", [0.0, 1e-6, 0.4, 3.0])
@pytest.mark.parametrize("stretch", [1e-3, 1.0, 8.0])
def test_gradients_of_the_composed_path(c, stretch):
    U, c = (stretch * TANGENTS).requires_grad_(), torch.tensor(c, dtype=torch.float64, requires_grad=True)
    found, expected = (
        torch.autograd.grad(_weighted(U, c, 3, path), (U, c))
        for path in (distances_within, lambda *arguments: _Within.traced(*arguments, torch.float64)[0])
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("c", [0.0, 1.0])
def test_points_that_coincide_have_no_gradient(c):
    U = torch.zeros(4, 2, dtype=torch.float64)
    U[2:] = 1.0
    U.requires_grad_()
    found = distances_within(U, torch.tensor(c, dtype=torch.float64), 4)
    (grad,) = torch.autograd.grad(found.sum(), U)
    assert found.diagonal().eq(0).all()
    assert found[0, 1] == 0
    assert found[2, 3] == 0
    torch.testing.assert_close(found[0, 2], U[2].detach().norm())
    assert grad.isfinite().all()
    torch.testing.assert_close(grad[0], -2 * U[2].detach() / U[2].detach().norm() * 2)


def test_leading_dimensions_and_curvatures():
    U, c = torch.randn(2, 3, 5, 2, dtype=torch.float64), torch.rand(2, 3, dtype=torch.float64)
    found = distances_within(U, c, 4)
    assert found.shape == (2, 3, 4, 5)
    torch.testing.assert_close(found[1, 2], distances_within(U[1, 2], c[1, 2], 4))
