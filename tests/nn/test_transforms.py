"""Everything under torch.compile(fullgraph=True), torch.func.vmap (also over c) and torch.func.grad."""

from __future__ import annotations

import shutil
import warnings
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch.func import grad, vmap

from curvae import HyperbolicRadius, Lorentz, PoincareBall, RiemannianNormal, WrappedNormal
from curvae.distributions import radial
from curvae.geometry import manifolds
from curvae.nn import Curvature, ExpMap0, Gyroplane, LogMap0, MobiusLinear

# torch.compile instantiates Function classes, which torch.autograd warns about.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


# Each takes a point of the ball of shape (3,), a tangent vector, a scale and c, and returns something to be summed.


@case
def geometry_of_the_ball(x, u, s, c):
    ball = PoincareBall(3, c)
    y = ball.expmap(x, 0.1 * u)
    return ball.dist(x, y) + ball.logmap(y, x).sum() + ball.transp(x, y, u).sum() + ball.mobius_add(x, y).sum()


@case
def geometry_of_the_hyperboloid(x, u, s, c):
    space = Lorentz(3, c)
    y = space.expmap(x, u)
    return space.dist(x, y) + space.logmap0(y).sum() + space.time(y) + space.dist2plane(y, x, u)


@case
def frechet_mean(x, u, s, c):
    return Lorentz(3, c).frechet_mean(torch.stack([x, u, x + u])).sum()


@case
def wrapped_draw(x, u, s, c):
    z, log_q = WrappedNormal(x, s, PoincareBall(3, c)).transform_and_log_prob(u)
    return z.sum() + log_q


@case
def riemannian_draw(x, u, s, c):
    z, log_q = RiemannianNormal(x, s, PoincareBall(3, c)).transform_and_log_prob(u)
    return z.sum() + log_q


@case
def radius_draw(x, u, s, c):
    return HyperbolicRadius(3, s, c).transform(u)


@case
def densities(x, u, s, c):
    space = Lorentz(3, c)
    return RiemannianNormal(x, s, space).log_prob(u) + WrappedNormal(x, s, space).log_prob(u)


@case
def divergences(x, u, s, c):
    space = PoincareBall(3, c)
    q = RiemannianNormal(x, s, space)
    law = HyperbolicRadius(3, s, c)
    return q.entropy() + WrappedNormal(x, s, space).entropy() + law.mean + law.cdf(u.abs()).sum()


@case
def radius_quantile(x, u, s, c):
    return HyperbolicRadius(3, s, c).icdf(torch.sigmoid(u)).sum()


CURVATURE = Curvature(1.0)
MODEL = torch.nn.Sequential(
    ExpMap0(CURVATURE), MobiusLinear(3, 2, CURVATURE), Gyroplane(2, 4, CURVATURE), LogMap0(CURVATURE)
)


@case
def layers(x, u, s, c):
    """With their buffers replaced, as torch.func does it: here c.

    The layers share one curvature module; with tie_weights=True functional_call would replace it once a name and, on
    the way out, put back the wrong tensor.
    """
    return torch.func.functional_call(MODEL, {"0.curvature.fixed": c}, (s * u,), tie_weights=False).sum()


def arguments(count: int | None = None):
    torch.manual_seed(0)
    shape = () if count is None else (count,)
    return (
        0.3 * torch.randn(*shape, 3) / 3,
        torch.randn(*shape, 3),
        torch.rand(shape) + 0.2,
        torch.rand(shape) + 0.3,
    )


EVERY = pytest.mark.parametrize("name", list(CASES))


@EVERY
def test_vmap_equals_a_loop(name):
    f = CASES[name]
    x, u, s, c = arguments(5)
    together = vmap(f)(x, u, s, c)
    alone = torch.stack([f(x[i], u[i], s[i], c[i]) for i in range(5)])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    # c alone
    over_c = vmap(f, in_dims=(None, None, None, 0))(x[0], u[0], s[0], c)
    torch.testing.assert_close(over_c, torch.stack([f(x[0], u[0], s[0], k) for k in c]), rtol=1e-5, atol=1e-5)


@EVERY
def test_functional_gradients_equal_autograd(name):
    f = CASES[name]
    args = arguments()
    functional = grad(f, argnums=(0, 1, 2, 3))(*args)
    leaves = [a.clone().requires_grad_() for a in args]
    plain = torch.autograd.grad(f(*leaves), leaves, allow_unused=True)
    for a, b in zip(functional, plain, strict=True):
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b, rtol=1e-4, atol=1e-5)
    batch = arguments(4)
    together = vmap(grad(f, argnums=(0, 2, 3)))(*batch)
    for i in range(4):
        alone = grad(f, argnums=(0, 2, 3))(*(a[i] for a in batch))
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[i], b, rtol=1e-4, atol=1e-5)


def compiled(f, args, backend):
    torch._dynamo.reset()
    leaves = [a.clone().requires_grad_() for a in args]
    value = torch.compile(f, fullgraph=True, backend=backend)(*leaves)
    return value, torch.autograd.grad(value.sum(), leaves, allow_unused=True)


# Those whose derivatives are traced too, the smallest ones: a draw from a table and one of geometry. Those of networks
# are traced in tests of stacks.
TRACED = ("radius_draw", "wrapped_draw")
# Those that are compiled under vmap, which includes the function itself: a map, a draw and a network.
MAPPED = ("geometry_of_the_hyperboloid", "riemannian_draw", "layers")
# By the default backend, which traces derivatives too: the smallest draw, which is looked up in a table. What it makes
# of others is no other kind, and takes half a minute each.
COMPILED = () if shutil.which("g++") is None else ("radius_draw",)


@contextmanager
def quick_inductor():
    """The default backend without vectors, whose headers take most of the time, nor programs that it would first build
    for every instruction set of the processor, to see whether they run."""
    from torch._inductor import config as inductor

    quick = {"cpp.vec_isa_ok": False, "cpp.simdlen": 1, "cpp_cache_precompile_headers": False}
    with inductor.patch(quick), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about itself
        yield


@pytest.mark.slow
@pytest.mark.compiled
@EVERY
def test_compiles_whole(name, monkeypatch):
    """Forward, backward, and under vmap; all but one with a backend that needs no C++ compiler."""
    f, args = (vmap(CASES[name]), arguments(3)) if name in MAPPED else (CASES[name], arguments())
    f(*args)  # tables are made, and kept, before the steps are fewer
    # Every further step makes the unrolled graph longer.
    monkeypatch.setattr(manifolds, "_STEPS", 1)
    monkeypatch.setattr(radial, "quantile", partial(radial.quantile, steps=1))
    leaves = [a.clone().requires_grad_() for a in args]
    eager = f(*leaves)
    if name in COMPILED:
        with quick_inductor():
            value, grads = compiled(f, args, "inductor")
    else:
        value, grads = compiled(f, args, "aot_eager_default_partitioner" if name in TRACED else "eager")
    torch.testing.assert_close(value, eager, rtol=1e-5, atol=1e-5)
    for a, b in zip(grads, torch.autograd.grad(eager.sum(), leaves, allow_unused=True), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.compiled
def test_no_shape_depends_on_data():
    """Draws under torch.compile with dynamic sample counts share one graph a rank."""
    import torch._dynamo.testing

    space = PoincareBall(2, 1.0)

    def draw(noise, s):
        return RiemannianNormal(torch.zeros(2), s, space).transform(noise)

    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    f = torch.compile(draw, fullgraph=True, backend=counter)
    s = torch.tensor(0.7)
    for n in (30, 300, 3000):
        noise = torch.randn(n, 2)
        torch._dynamo.mark_dynamic(noise, 0)
        torch.testing.assert_close(f(noise, s), draw(noise, s), rtol=1e-5, atol=1e-6)
    assert counter.frame_count == 1
