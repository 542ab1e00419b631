"""Layers against the paper's formulas."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch

from combining import every_pair
from curvae import Lorentz, PoincareBall
from curvae.nn import Curvature, ExpMap0, Gyroplane, LogMap0, MobiusLinear
from oracles import gyroplane, lorentz_to_ball, mpf, random_directions, vector

CURVATURES = [0.0, 1e-6, 0.1, 1.0, 10.0]
OFFSETS = pytest.mark.parametrize("offset", ["point", "scalar"])


def oracle(layer: Gyroplane, S: torch.Tensor, k: int):
    c = mpf(layer.curvature().detach())
    a, p = vector(layer.weight[k].detach()), vector(layer.offset[k].detach())
    if layer.offset_kind == "scalar":
        length = mp.sqrt(mp.fdot(a, a))
        p = [p[0] * x / length for x in a]
    return gyroplane(lorentz_to_ball(vector(S), c), a, p, c)


@pytest.mark.parametrize(
    ("offset", "c", "radius"), every_pair(OFFSETS.args[1], CURVATURES, [0.3, 5.0, 15.0, 30.0, 60.0, 80.0])
)
def test_gyroplane_equals_the_paper(offset, c, radius):
    """In float32, within the absolute bound 4ε(|n||S| + |β|ξ)/√(1 + cy²) on y, times the layer's gain."""
    layer = Gyroplane(3, 6, Curvature(c), offset)
    reach = radius / math.sqrt(c) if c else radius
    S = Lorentz(3, c).expmap0(random_directions(4, 3, 1).float() * reach)
    f = layer(S).detach()
    double = Gyroplane(3, 6, Curvature(c).double(), offset).double()
    double.load_state_dict(layer.state_dict())
    exact64 = double(S.double()).detach()
    for i in range(4):
        for k in range(6):
            with mp.workdps(120):
                exact = oracle(layer, S[i], k)
                gain = 2 * mp.sqrt(mp.fdot(vector(layer.weight[k].detach()), vector(layer.weight[k].detach())))
                y = mp.sinh(mp.sqrt(mpf(c)) * exact / gain) / mp.sqrt(mpf(c)) if c else exact / gain
                size = mp.sqrt(mp.fdot(vector(S[i]), vector(S[i])))
                xi = mp.sqrt(1 + mpf(c) * size**2)
                # |n| ≤ ξ_p and β ≤ |S_p|
                p = layer.offset[k].detach().double().norm() * 2
                xi_p = mp.cosh(mp.sqrt(mpf(c)) * mpf(p))
                beta = mp.sinh(mp.sqrt(mpf(c)) * mpf(p)) / mp.sqrt(mpf(c)) if c else mpf(p)
                slope = (xi_p * size + beta * xi) / mp.sqrt(1 + mpf(c) * y**2)
            for value, eps in ((f[i, k], 2**-23), (exact64[i, k], 2**-52)):
                bound = gain * (4 * eps * slope + 4 * eps * abs(exact) / gain)
                assert abs(mpf(value) - exact) <= bound


@OFFSETS
@pytest.mark.parametrize("c", CURVATURES)
def test_gyroplane_is_zero_on_its_plane_and_changes_sign_across(offset, c):
    layer = Gyroplane(3, 5, Curvature(c), offset).double()
    space = Lorentz(3, float(layer.curvature()))
    unit = layer.weight / layer.weight.norm(dim=-1, keepdim=True)
    p = space.expmap0(2 * layer.offset * (1 if offset == "point" else unit))
    tangent = torch.randn(5, 3, dtype=torch.float64)
    tangent = tangent - (tangent * unit).sum(-1, keepdim=True) * unit
    on = space.expmap(p, tangent)
    diagonal = lambda S: layer(S).diagonal()  # noqa: E731
    assert diagonal(on).abs().max() < 1e-12
    normal = space.transp(p, on, unit)
    assert (diagonal(space.expmap(on, 0.1 * normal)) > 0).all()
    assert (diagonal(space.expmap(on, -0.1 * normal)) < 0).all()
    # The value is the scaled distance.
    expected = 2 * layer.weight.norm(dim=-1) * 0.1
    torch.testing.assert_close(diagonal(space.expmap(on, 0.1 * normal)), expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(
        2 * layer.weight.norm(dim=-1) * space.dist2plane(on * 1.3, p, unit), diagonal(on * 1.3), rtol=1e-10, atol=1e-13
    )


def test_gyroplane_tends_to_an_affine_map():
    """As c → 0, f → 4⟨a′, z − p⟩ in ball coordinates."""
    layer = Gyroplane(2, 7, Curvature(0.0)).double()
    z = torch.randn(9, 2, dtype=torch.float64)
    limit = 4 * (z @ layer.weight.T - (layer.weight * layer.offset).sum(-1))
    torch.testing.assert_close(layer(2 * z), limit, rtol=1e-12, atol=1e-13)
    near = Gyroplane(2, 7, Curvature(1e-9)).double()
    near.load_state_dict({**layer.state_dict(), "curvature.fixed": torch.tensor(1e-9)})
    torch.testing.assert_close(near(PoincareBall(2, 1e-9).to_lorentz(z)), limit, rtol=1e-6, atol=1e-7)


@OFFSETS
@pytest.mark.parametrize("learnable", [True, False])
def test_gyroplane_gradients(offset, learnable):
    for c in (1e-6, 0.7, 4.0) if learnable else (0.7,):
        layer = Gyroplane(2, 3, Curvature(c, learnable), offset).double()
        S = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
        names, values = zip(*layer.named_parameters(), strict=True)

        def f(S, *values, layer=layer, names=names):
            return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (S,))

        assert torch.autograd.gradcheck(f, (S, *values), atol=1e-6)
        assert torch.autograd.gradgradcheck(f, (S, *values), atol=1e-5, fast_mode=True)


@OFFSETS
@pytest.mark.parametrize("c", [0.0, 1.0])
def test_gyroplane_is_finite_where_it_is_degenerate(offset, c):
    """a′ = 0, p′ = 0 and z = p: finite values and gradients, and a unit at a′ = 0 can still learn."""
    layer = Gyroplane(2, 3, Curvature(c), offset)
    with torch.no_grad():
        layer.weight.zero_()
    S = torch.zeros(4, 2, requires_grad=True)
    layer(S).sum().backward()
    assert S.grad.isfinite().all() and layer.weight.grad.isfinite().all() and layer.offset.grad.isfinite().all()
    layer.zero_grad()
    layer(torch.ones(4, 2)).sum().backward()
    assert layer.weight.grad.abs().min() > 0
    with torch.no_grad():
        layer.weight.fill_(0.3)
        layer.offset.zero_()
    layer(S).sum().backward()
    assert S.grad.isfinite().all()


def test_fresh_gyroplanes_resemble_fresh_linear_layers():
    """At c = 0 the weights and biases of the affine map have the spread of nn.Linear's."""
    for offset in ("point", "scalar"):
        layer = Gyroplane(5, 20_000, Curvature(0.0), offset)
        bias = layer(torch.zeros(1, 5)).detach()[0]
        weight = layer(torch.eye(5)).detach() - bias
        linear = torch.nn.Linear(5, 20_000)
        assert abs(weight.std() / linear.weight.std() - 1) < 0.03
        assert abs(bias.std() / linear.bias.std() - 1) < 0.35


@pytest.mark.parametrize("c", CURVATURES)
def test_maps_and_mobius_layer(c):
    curvature = Curvature(c)
    ball, space = PoincareBall(3, float(curvature())), curvature.lorentz(3)
    v = torch.randn(5, 3)
    torch.testing.assert_close(LogMap0(curvature)(ExpMap0(curvature)(v)), v, rtol=1e-5, atol=1e-6)
    layer = MobiusLinear(3, 2, curvature)
    with torch.no_grad():
        layer.bias.normal_(std=0.3)
    S = space.expmap0(0.5 * v)
    small = PoincareBall(2, float(curvature()))
    z = ball.from_lorentz(S)
    expected = small.mobius_add(ball.mobius_matvec(layer.weight, z), small.expmap0(layer.bias / 2))
    torch.testing.assert_close(small.from_lorentz(layer(S)), expected, rtol=1e-5, atol=1e-6)
    assert MobiusLinear(3, 2, curvature, bias=False).bias is None


def test_curvature_module():
    fixed, learned = Curvature(0.7), Curvature(0.7, learnable=True)
    assert list(fixed.parameters()) == [] and len(list(learned.parameters())) == 1
    torch.testing.assert_close(fixed(), learned().detach())
    assert "curvature −0.7" in repr(fixed) and "learnable" in repr(learned)
    layer = Gyroplane(2, 4, learned)
    layer(torch.randn(3, 2)).sum().backward()
    assert learned.log_c.grad.abs() > 0
    with pytest.raises(ValueError, match="curvature of the space is −c"):
        Curvature(-1.0)
    with pytest.raises(ValueError, match="start above 0"):
        Curvature(0.0, learnable=True)
    with pytest.raises(ValueError, match='"point" or "scalar"'):
        Gyroplane(2, 3, fixed, offset="vector")
    assert Curvature(0.0)() == 0
    state = learned.state_dict()
    again = Curvature(1.0, learnable=True)
    again.load_state_dict(state)
    torch.testing.assert_close(again(), learned())
