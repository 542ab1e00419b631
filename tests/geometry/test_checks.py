"""Arguments: wrong types, shapes, dtypes and devices are refused in one line."""

from __future__ import annotations

import math
import re
from itertools import product

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import curvae
from curvae import Euclidean, Lorentz, PoincareBall, RiemannianNormal, WrappedNormal
from curvae.errors import CurvaeError
from curvae.geometry import checks
from curvae.geometry.checks import broadcast_shapes
from curvae.models import VAE, Gaussian, GeodesicEdges, GraphBatch, GraphVAE, Posterior
from curvae.nn import (
    Curvature,
    ExpMap0,
    GraphEncoder,
    Gyroplane,
    HyperbolicFactor,
    LogMap0,
    MobiusLinear,
    Space,
    decoder,
    mlp,
    normalised_adjacency,
)
from curvae.training import Config, fit
from curvae.training.fitted import choose_device

CHARTS = pytest.mark.parametrize("chart", [Lorentz, PoincareBall])


# Every public method with the names of its points and tangent vectors, and what else it takes.
METHODS = {
    "dist": ("x", "y"),
    "dist0": ("x",),
    "expmap": ("x", "u"),
    "logmap": ("x", "y"),
    "expmap0": ("u",),
    "logmap0": ("y",),
    "transp": ("x", "y", "u"),
    "transp0": ("y", "u"),
    "geodesic": ("x", "y"),
    "inner": ("x", "u", "v"),
    "norm": ("x", "u"),
    "lambda_x": ("x",),
    "egrad2rgrad": ("x", "grad"),
    "dist2plane": ("x", "p", "a"),
    "to_lorentz": ("x",),
    "from_lorentz": ("S",),
}


BALL = {"mobius_add": ("x", "y"), "mobius_scalar_mul": ("x",), "mobius_matvec": ("x",)}


LORENTZ = {"time": ("S",)}


MORE = {"geodesic": {"t": 0.5}, "mobius_scalar_mul": {"r": 0.5}, "mobius_matvec": {"m": torch.eye(3)}}


def exactly(message):
    return f"^{re.escape(message)}$"


def methods(space):
    own = BALL if isinstance(space, PoincareBall) else LORENTZ
    for name, arguments in (METHODS | own).items():
        yield name, arguments, lambda given, name=name: getattr(space, name)(**given, **MORE.get(name, {}))


@pytest.mark.parametrize("bad", [-0.5, math.nan, math.inf])
@CHARTS
def test_curvature_must_be_finite_and_not_negative(chart, bad):
    expected = f"c must be a finite number ≥ 0: the curvature of the space is −c, got c = {bad}"
    for c in (bad, torch.tensor(bad), torch.tensor([1.0, bad, 2.0], dtype=torch.float64, requires_grad=True)):
        with pytest.raises(ValueError, match=exactly(expected)):
            chart(2, c)
    for c in ([1.0], "one", None):
        with pytest.raises(TypeError, match="c must be a number or a tensor, got"):
            chart(2, c)


@pytest.mark.compiled
@CHARTS
def test_curvature_is_not_looked_at_inside_transforms(chart):
    x = torch.tensor([0.1, 0.2])

    def dist0(c):
        return chart(2, c).dist0(x)

    c = torch.tensor([0.5, 1.0])
    alone = torch.stack([dist0(k) for k in c])
    torch.testing.assert_close(torch.func.vmap(dist0)(c), alone)
    assert torch.func.vmap(torch.func.grad(dist0))(c).isfinite().all()
    torch.testing.assert_close(make_fx(dist0)(c[0])(c[1]), alone[1])
    torch.testing.assert_close(torch.compile(dist0, fullgraph=True, backend="eager")(c[1]), alone[1])
    assert chart(2, torch.tensor(1.0, device="meta")).dist0(torch.zeros(5, 2, device="meta")).shape == (5,)


def test_curvature_of_a_model_is_not_looked_at_in_a_step(monkeypatch):
    """A look at a tensor on a GPU makes the host wait."""
    for law in ("wrapped", "riemannian"):
        for learned in (False, True):
            c = Curvature(0.7, learnable=learned)
            space = Space([HyperbolicFactor(2, c, distribution=law)])
            kinds = ExpMap0(c), decoder("mobius", space, (8,), 5)
            model = VAE(mlp(5, 8), kinds[1], Posterior(8, space), Gaussian(5))
            with monkeypatch.context() as patch:
                patch.setattr(checks, "check_curvature", lambda c: pytest.fail("looked at c"))
                model.elbo(torch.zeros(3, 5)).sum().backward()
                model.encode(torch.zeros(3, 5))
                kinds[0](torch.zeros(3, 2))


@CHARTS
def test_wrong_dimension_is_refused_by_every_method(chart):
    space = chart(3, 0.5)
    for name, arguments, call in methods(space):
        good = {argument: 0.1 * torch.ones(4, 3) for argument in arguments}
        assert call(good).isfinite().all(), name
        for argument in arguments:
            for shape in ((4, 2), (4, 1), ()):
                with pytest.raises(
                    ValueError, match=exactly(f"{argument} must have shape (…, 3) for {space}, got {shape}")
                ):
                    call(good | {argument: torch.zeros(shape)})
    with pytest.raises(ValueError, match=r"x must have shape \(…, 3\)"):
        space.frechet_mean(torch.zeros(5, 2))
    with pytest.raises(ValueError, match=r"N ≥ 1 points, got \(3,\)"):
        space.frechet_mean(torch.zeros(3))
    if chart is PoincareBall:
        for m in (torch.eye(2), torch.ones(3)):
            with pytest.raises(ValueError, match=r"m must have shape \(…, "):
                space.mobius_matvec(m, torch.zeros(4, 3))


@CHARTS
def test_lists_and_arrays_are_refused_by_name(chart):
    space = chart(3, 0.5)
    for _, arguments, call in methods(space):
        good = {argument: torch.zeros(4, 3) for argument in arguments}
        for argument in arguments:
            for value in ([0.0, 0.0, 0.0], np.zeros(3), None):
                with pytest.raises(TypeError, match=rf"^{argument} must be a tensor, got .*torch.as_tensor"):
                    call(good | {argument: value})
    for call in (space.frechet_mean, space.contains, space.check):
        with pytest.raises(TypeError, match="^x must be a tensor, got list"):
            call([[0.0, 0.0, 0.0]])


@CHARTS
def test_integers_are_promoted(chart):
    space = chart(3, 0.5)
    for name, arguments, call in methods(space):
        whole = dict(zip(arguments, torch.eye(3, dtype=torch.int64), strict=False))
        value = call(whole)
        assert value.dtype == torch.float32, name
        torch.testing.assert_close(value, call({argument: x.float() for argument, x in whole.items()}))
        for dtype in (torch.bool, torch.complex64):
            with pytest.raises(TypeError, match=f"{arguments[0]} must hold real numbers, got a tensor of {dtype}"):
                call(whole | {arguments[0]: whole[arguments[0]].to(dtype)})
    assert space.contains(torch.eye(3, dtype=torch.int64)).all()


@CHARTS
def test_curvature_may_not_add_dimensions_to_the_points(chart):
    c = torch.tensor([0.1, 0.5, 1.0, 2.0])
    x, y = chart(2, 2.0).random(2, 4)
    space = chart(2, c)
    each = torch.stack([chart(2, k).dist(a, b) for k, a, b in zip(c, x, y, strict=True)])
    torch.testing.assert_close(space.dist(x, y), each)
    # One curvature a group of points.
    groups = chart(2, c[:, None])
    torch.testing.assert_close(groups.dist(x[:, None], y[:, None]), each[:, None])
    torch.testing.assert_close(groups.dist0(x.expand(4, 4, 2))[1], chart(2, 0.5).dist0(x))
    for name, arguments, call in methods(chart(2, c[:, None])):
        if name != "mobius_matvec":
            with pytest.raises(ValueError, match=r"c of shape \(4, 1\) does not .* against the batch shape \(4,\)"):
                call(dict.fromkeys(arguments, x))
    with pytest.raises(ValueError, match=r"c of shape \(4,\) does not broadcast"):
        space.dist0(x[:3])
    torch.testing.assert_close(space.dist0(x[0]), torch.stack([chart(2, k).dist0(x[0]) for k in c]))
    with pytest.raises(ValueError, match="does not broadcast"):
        groups.random(4)
    assert "(4, 1)" in repr(groups) and "\n" not in repr(chart(2, torch.ones(500)))


@CHARTS
def test_frechet_mean_with_a_curvature_each(chart):
    c = torch.tensor([0.2, 1.0, 2.0], dtype=torch.float64)
    x = chart(2, 2.0).random(3, 6, scale=0.5, dtype=torch.float64)
    each = torch.stack([chart(2, k).frechet_mean(points) for k, points in zip(c, x, strict=True)])
    torch.testing.assert_close(chart(2, c).frechet_mean(x), each)
    with pytest.raises(ValueError, match=r"against the batch shape \(3,\)"):
        chart(2, c[:, None]).frechet_mean(x)


@CHARTS
def test_weights_of_a_mean(chart):
    space, x = chart(2, 0.5), torch.zeros(3, 4, 2)
    for w, complaint in (
        (torch.zeros(4), "must not sum to 0"),
        (torch.tensor([[1.0, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]]), "must not sum to 0"),
        (torch.tensor([1.0, -1.0, 1.0, 1.0]), "finite weights ≥ 0, got -1.0"),
        (torch.tensor([1.0, math.nan, 1.0, 1.0]), "finite weights ≥ 0, got nan"),
        (torch.tensor([1.0, math.inf, 1.0, 1.0]), "finite weights ≥ 0, got inf"),
        (torch.ones(3), r"shape \(…, 4\), one weight a point, got \(3,\)"),
    ):
        with pytest.raises(ValueError, match=complaint):
            space.frechet_mean(x, w)
    with pytest.raises(TypeError, match="w must be a tensor, got list"):
        space.frechet_mean(x, [1.0, 1.0, 1.0, 1.0])
    assert space.frechet_mean(x, torch.tensor([1, 0, 2, 0])).shape == (3, 2)


@CHARTS
@pytest.mark.parametrize("law", [WrappedNormal, RiemannianNormal])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_at_a_curvature_of_almost_zero(chart, law, dtype):
    """At c = 1e-24 the space is flat to rounding: draws are loc + scale·noise, their density is the normal one."""
    noise = torch.randn(50, 3, dtype=dtype)
    half = 2.0 if chart is PoincareBall else 1.0
    loc = torch.tensor([0.5, -1.0, 2.0], dtype=dtype)
    expected = loc + 0.3 * noise
    density = torch.distributions.Normal(loc, 0.3).log_prob(expected).sum(-1)
    for c in (1e-24, torch.tensor(1e-24, dtype=dtype), torch.full((50,), 1e-24, dtype=dtype)):
        z, log_q = law(loc / half, 0.3, chart(3, c)).transform_and_log_prob(noise)
        torch.testing.assert_close(half * z, expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(log_q, density, rtol=1e-5, atol=1e-5)


def model(dim=2):
    space = Space(f"h{dim}:0.7")
    return VAE(mlp(5, 8), decoder("gyroplane", space, (8,), 5), Posterior(8, space), Gaussian(5))


def graph_model():
    return GraphVAE(GraphEncoder(4), Posterior(32, Space("h2:0.7")), GeodesicEdges())


def test_noise_of_the_wrong_shape_is_refused():
    vae, x = model(), torch.zeros(6, 5)
    for shape in ((6, 2), (2, 5, 2), (2, 6, 3), (6, 2, 2), (2, 6, 1), (1, 2, 6, 2)):
        for call in (vae.terms, vae.draw, vae.forward, lambda x, noise: vae.terms(x, noise, entropy=True)):
            with pytest.raises(ValueError, match=exactly(f"noise must have shape (k, 6, 2) for k draws, got {shape}")):
                call(x, torch.zeros(shape))
        for call in (vae.elbo, vae.iwae):
            with pytest.raises(ValueError, match="noise must have shape"):
                call(x, noise=torch.zeros(shape))
    assert vae.terms(x, torch.zeros(3, 6, 2)).kl.shape == (3, 6)
    assert vae.terms(x, torch.zeros(3, 1, 2)).kl.shape == (3, 6), "draws that all rows share"

    graph, edges = graph_model(), torch.tensor([[0, 1, 2], [1, 2, 3]])
    adjacency = normalised_adjacency(edges, 4)
    for shape in ((4, 2), (2, 1, 2), (2, 4, 3), (2, 5, 2)):
        for call in (
            lambda *args: graph.terms(GraphBatch(*args[:2]), args[2]),
            lambda *args: graph.elbo(*args[:2], noise=args[2]),
        ):
            with pytest.raises(ValueError, match=exactly(f"noise must have shape (k, 4, 2) for k draws, got {shape}")):
                call(adjacency, edges, torch.zeros(shape))


def test_layers_and_models_refuse_arrays_and_other_dimensions():
    c = Curvature(0.7)
    for layer, name in ((ExpMap0(c), "v"), (LogMap0(c), "S"), (Gyroplane(2, 3, c), "S"), (MobiusLinear(2, 3, c), "S")):
        for value in ([[0.0, 0.0]], np.zeros((1, 2))):
            with pytest.raises(TypeError, match=rf"^{name} must be a tensor, got .*torch.as_tensor\({name}\)"):
                layer(value)
        if isinstance(layer, Gyroplane | MobiusLinear):
            with pytest.raises(ValueError, match=r"S must have shape \(…, 2\) for this layer, got \(4, 3\)"):
                layer(torch.zeros(4, 3))
        assert layer(torch.zeros(4, 2, dtype=torch.int64)).dtype == torch.float32

    vae, x = model(), np.zeros((6, 5), np.float32)
    noise = torch.zeros(1, 6, 2)
    for call in (vae.encode, vae.elbo, vae.iwae, lambda x: vae.terms(x, noise), lambda x: vae.draw(x, noise)):
        for value in (x, x.tolist()):
            with pytest.raises(TypeError, match="^x must be a tensor"):
                call(value)
    with pytest.raises(TypeError, match="^noise must be a tensor, got ndarray"):
        vae.elbo(torch.zeros(6, 5), noise=noise.numpy())
    with pytest.raises(TypeError, match="^S must be a tensor, got list"):
        vae.decode([[0.0, 0.0]])
    with pytest.raises(ValueError, match=r"S must have shape \(…, 2\) for this model, got \(6, 5\)"):
        vae.decode(torch.zeros(6, 5))

    graph, edges = graph_model(), torch.tensor([[0, 1, 2], [1, 2, 3]])
    adjacency = normalised_adjacency(edges, 4)
    for call, name in (
        (lambda: graph.encode(adjacency.numpy()), "adjacency"),
        (lambda: graph.elbo(adjacency.tolist(), edges), "adjacency"),
        (lambda: graph.elbo(adjacency, edges.tolist()), "pairs"),
        (lambda: graph.distances(adjacency, edges.numpy()), "pairs"),
        (lambda: graph.encode(adjacency, np.eye(4)), "features"),
        (lambda: normalised_adjacency(edges.tolist(), 4), "edges"),
        (lambda: normalised_adjacency(edges, 4, [1.0, 1.0, 1.0]), "weights"),
    ):
        with pytest.raises(TypeError, match=f"^{name} must be a tensor"):
            call()


def test_devices_without_float64_are_refused(monkeypatch):
    for device in ("mps", "mps:0"):
        with pytest.raises(CurvaeError, match=f'^device {device} has no float64, .*; use `device="cpu"`$'):
            choose_device(device)
    with pytest.raises(CurvaeError, match="device mps has no float64"):
        curvae.PoincareVAE(device="mps").fit(np.zeros((8, 3)))
    with pytest.raises(CurvaeError, match="device mps has no float64"):
        curvae.PoincareGraphVAE(device="mps").fit(np.array([[0, 1], [1, 2], [2, 3], [3, 0]]))
    with pytest.raises(CurvaeError, match="device mps has no float64"):
        fit(Config(epochs=1), np.zeros((8, 3)), device="mps")
    with pytest.raises(CurvaeError, match="`device` must be auto, cpu or cuda"):
        choose_device("meta")

    # A device that is there, in place of one that lacks float64.
    monkeypatch.setattr(checks, "has_float64", lambda device_type: device_type != "meta")
    points = torch.zeros(4, 2, device="meta")
    for call in (
        lambda: Euclidean(2).dist0(points),
        lambda: PoincareBall(2, torch.tensor(1.0, device="meta")),
        lambda: model().to("meta"),
        lambda: Gyroplane(2, 3, Curvature(1.0, learnable=True)).to("meta"),
    ):
        with pytest.raises(TypeError, match="^the device meta has no float64, .*use the CPU or CUDA$"):
            call()


# --- shapes broadcast as PyTorch says --------------------------------------------------------------------------------


some = [(), (1,), (2,), (0,), (1, 2), (3, 1), (2, 2), (3, 1, 2)]


@pytest.mark.parametrize("shapes", [*product(some, some), [(2, 1), torch.Size([3]), [1, 1]], [(5,)]], ids=str)
def test_shapes_broadcast_as_in_pytorch(shapes):
    try:
        expected = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            broadcast_shapes(*shapes)
    else:
        found = broadcast_shapes(*shapes)
        assert isinstance(found, torch.Size)
        assert found == expected
