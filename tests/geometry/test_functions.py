"""Scalar functions and their derivatives against mpmath."""

from __future__ import annotations

import mpmath as mp
import pytest
import torch

from curvae.geometry import functions as F
from oracles import relative, worst

Y = [0.0, 1e-30, 1e-12, 1e-6, 1e-3, 0.0199999, 0.0200001, 0.3, 1.0, 7.0, 100.0, 6400.0, 14400.0]

SERIES = {
    F.sinhc: lambda y: mp.sinh(mp.sqrt(y)) / mp.sqrt(y),
    F.asinhc: lambda y: mp.asinh(mp.sqrt(y)) / mp.sqrt(y),
    F.logsinhc: lambda y: mp.log(mp.sinh(mp.sqrt(y)) / mp.sqrt(y)),
}


def truth(f, y: float, order: int):
    """The derivative by Cauchy's formula near 0, where the closed form is 0/0, else by mpmath's differences."""
    y = mp.mpf(y)
    if order == 0 and y > 0:
        return f(y)
    if y < 0.5:
        return mp.diff(lambda u: f(u + mp.mpf("1e-60")), y, order, method="quad", radius=0.1).real
    return mp.diff(f, y, order)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("function", list(SERIES), ids=lambda f: f.__name__)
def test_functions_and_their_derivatives(function, order):
    f = SERIES[function]
    y = torch.tensor(Y, dtype=torch.float64, requires_grad=True)
    value = function(y)
    for _ in range(order):
        (value,) = torch.autograd.grad(value.sum(), y, create_graph=True)
    assert (
        worst(
            [
                relative(v, truth(f, x, order), floor=0.0 if order or f is not SERIES[F.logsinhc] else 1e-3)
                for v, x in zip(value.detach(), Y, strict=True)
                if not (order == 0 and x == 0)
            ]
        )
        < 1e-11
    )


def test_values_at_zero():
    zero = torch.zeros((), dtype=torch.float64)
    assert F.sinhc(zero) == 1 and F.asinhc(zero) == 1 and F.logsinhc(zero) < 1e-100
    cosh, ratio = F.cosh_sinhc(zero)
    assert cosh == 1 and ratio == 1


@pytest.mark.parametrize("order", [0, 1])
def test_order_argument_is_the_derivative(order):
    y = torch.rand(20, dtype=torch.float64, requires_grad=True)
    for f in (F.sinhc, F.asinhc, F.logsinhc):
        (slope,) = torch.autograd.grad(f(y, order).sum(), y)
        torch.testing.assert_close(slope, f(y.detach(), order + 1), rtol=1e-13, atol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-7), (torch.float64, 1e-15)])
@pytest.mark.parametrize("c", [0.0, 1e-6, 0.1, 1.0, 10.0])
def test_arsinh(c, dtype, tolerance):
    x = torch.tensor([0.0, 1e-30, 1e-8, 1e-3, 0.1, 1.0, 30.0, 1e6, 1e17, 1e19, 1e25, 1e34], dtype=dtype)
    x = torch.cat([x, -x]).requires_grad_()
    k = torch.tensor(c, dtype=dtype, requires_grad=True)
    value = F.arsinh(x, k)
    (slope,) = torch.autograd.grad(value.sum(), x)
    root = mp.sqrt(mp.mpf(float(k.detach())))
    for v, s, xi in zip(value.detach(), slope, x.detach(), strict=True):
        xi = mp.mpf(float(xi))
        if c == 0 and abs(xi) > 1e17:
            continue  # beyond the range that a Euclidean layer meets
        assert relative(v, mp.asinh(root * xi) / root if c else xi, floor=0.0 if xi else 1.0) < tolerance
        assert relative(s, 1 / mp.sqrt(1 + (root * xi) ** 2), floor=0.0) < 2 * tolerance


def test_arsinh_gradient_in_curvature():
    x = torch.tensor([-50.0, -0.3, 0.0, 1e-4, 0.05, 0.2, 3.0, 1e4], dtype=torch.float64)
    for c in (0.0, 1e-9, 0.1, 1.0, 10.0):
        k = torch.tensor(c, dtype=torch.float64, requires_grad=True)
        for value, xi in zip(F.arsinh(x, k), x, strict=True):
            (slope,) = torch.autograd.grad(value, k, retain_graph=True)
            xi = mp.mpf(float(xi))
            with mp.workdps(60):
                u = mp.mpf(c)
                expected = (
                    (xi / mp.sqrt(1 + u * xi**2) - mp.asinh(mp.sqrt(u) * xi) / mp.sqrt(u)) / (2 * u)
                    if c
                    else -(xi**3) / 6
                )
            assert relative(slope, expected) < 1e-8


def test_second_derivatives():
    x = torch.tensor([-3.0, -0.1, 0.0, 1e-3, 0.5, 40.0], dtype=torch.float64, requires_grad=True)
    c = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    gain = torch.tensor([1.0, 2.0, 0.5, 3.0, 4.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(F.arsinh, (x, c, gain))
