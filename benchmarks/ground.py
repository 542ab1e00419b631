"""Draws of the two normals, first use of a dimension, the gyroplane layer, and importance samples."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from curvae import Lorentz, PoincareBall, RiemannianNormal, WrappedNormal
from curvae.distributions import table
from curvae.models import marginal_likelihood
from curvae.nn import Curvature, Gyroplane
from curvae.training import Config, build

from .peers import broadcast_gyroplane, geoopt_ball, pythae_normals
from .timing import Row, compare

__all__ = ["draw_tasks", "draws", "first_use", "gyroplane", "gyroplane_tasks", "sample_tasks", "samples"]

Tasks = dict[str, Callable[[], object]]


def _rejection(dim: int, scale: Tensor) -> object:
    """Draws by the paper's sampler, imported here: other versions keep its proposals elsewhere."""
    from .rejection import PiecewiseExponential

    return PiecewiseExponential(dim, scale, 1.0).sample(5000)


def draw_tasks(dim: int, loc: Tensor, scale: Tensor) -> Tasks:
    """5000 draws for each centre and scale, of both normals and of bare torch."""
    space = Lorentz(dim, 1.0)
    wrapped, riemannian = WrappedNormal(loc, scale, space), RiemannianNormal(loc, scale, space)
    return {
        "riemannian": lambda: riemannian.sample((5000,)),
        "wrapped": lambda: wrapped.sample((5000,)),
        "normals": lambda: torch.randn(5000, *loc.shape),
        # As in training, where every step has new scales, the envelopes are made anew.
        "rejection": lambda: _rejection(dim, scale[:, 0]),
    }


def draws(threads: int) -> list[Row]:
    """5000 × 128 draws around 128 centres with 128 scales."""
    rows = []
    for dim in (2, 10):
        loc, scale = 0.1 * torch.randn(128, dim), 0.1 + 0.5 * torch.rand(128, 1)
        tasks = draw_tasks(dim, loc, scale)
        ball = PoincareBall(dim, 1.0)
        centre = ball.from_lorentz(loc)
        if (theirs := geoopt_ball(1.0)) is not None and dim == 2:
            tasks["geoopt wrapped"] = lambda b=theirs, z=centre, s=scale: b.wrapped_normal(5000, 128, 2, mean=z, std=s)
        if (peer := pythae_normals()) is not None:
            make_ball, make_wrapped, make_riemannian = peer
            theirs = make_ball(dim, 1.0)
            q = make_wrapped(centre, scale, theirs)
            r = make_riemannian(centre, scale, theirs)
            tasks["Pythae wrapped"] = lambda q=q: q.sample(torch.Size([5000]))
            tasks["Pythae riemannian"] = lambda r=r: r.sample(torch.Size([5000]))
        ms = compare(tasks, seconds=2.0, least=3)

        def row(what: str, a: str, b: str, bound: float | None = None, at_most: bool = True, ms=ms, dim=dim) -> Row:
            return Row(
                f"{what}, d = {dim}", threads, ms[a], ms[b], ms[a] / ms[b] if at_most else ms[b] / ms[a], bound, at_most
            )

        rows.append(row("Riemannian draw / wrapped draw", "riemannian", "wrapped", 2.0))
        rows.append(
            row("piecewise-exponential radius / Riemannian draw", "riemannian", "rejection", 10.0, at_most=False)
        )
        rows.append(row("Riemannian draw / torch.randn", "riemannian", "normals"))
        for name in tasks:
            if "Pythae" in name or "geoopt" in name:
                own = "riemannian" if "riemannian" in name else "wrapped"
                rows.append(row(f"{name} draw / ours", own, name, at_most=False))
    return rows


def _first_draw(dim: int) -> float:
    """Milliseconds of a draw that builds the table of its dimension."""
    table._TABLES.clear()
    start = time.perf_counter()
    RiemannianNormal(torch.zeros(dim), 1.0, Lorentz(dim)).sample()
    return 1e3 * (time.perf_counter() - start)


def first_use(threads: int) -> list[Row]:
    """Time building the table of a new dimension, in units of the half second it may take."""
    rows = []
    RiemannianNormal(torch.zeros(7), 1.0, Lorentz(7)).sample()  # warm up
    for dim in (2, 10, 100):
        ms = statistics.median(_first_draw(dim) for _ in range(5))
        rows.append(Row(f"first draw in dimension {dim} / 0.5 s", threads, ms, 500.0, ms / 500, 1.0))
    return rows


def gyroplane_tasks(dim: int, S: Tensor, upstream: Tensor) -> Tasks:
    """Forward and backward of the layer at the points S, and of an ordinary layer with asinh."""
    layer, linear = Gyroplane(dim, 600, Curvature(1.0)), torch.nn.Linear(dim, 600)
    return {
        "gyroplane": lambda: layer(S).backward(upstream),
        "linear": lambda: linear(S).asinh().backward(upstream),
    }


def gyroplane(threads: int) -> list[Row]:
    """Forward and backward, a batch of 128 and 600 hyperplanes."""
    rows, broadcast = [], broadcast_gyroplane(1.0)
    for dim in (2, 10):
        S, upstream = torch.randn(128, dim, requires_grad=True), torch.ones(128, 600)
        z = PoincareBall(dim).from_lorentz(S.detach()).requires_grad_()
        a, p = (torch.randn(600, dim, requires_grad=True) for _ in range(2))
        tasks = gyroplane_tasks(dim, S, upstream)
        tasks["broadcast"] = lambda z=z, a=a, p=p, u=upstream: broadcast(z, a, 0.3 * p).backward(u)
        if (ball := geoopt_ball(1.0)) is not None:

            def peer(ball=ball, z=z, p=p, a=a, upstream=upstream) -> None:
                ball.dist2plane(z.unsqueeze(-2), 0.1 * p, a, signed=True, scaled=True).backward(upstream)

            tasks["geoopt"] = peer
        ms = compare(tasks, seconds=2.0)
        ours = ms["gyroplane"]
        rows.append(
            Row(f"gyroplane / nn.Linear + asinh, d = {dim}", threads, ours, ms["linear"], ours / ms["linear"], 1.5)
        )
        rows.append(
            Row(
                f"broadcast form / gyroplane, d = {dim}",
                threads,
                ours,
                ms["broadcast"],
                ms["broadcast"] / ours,
                3.0,
                False,
            )
        )
        if "geoopt" in ms:
            rows.append(
                Row(
                    f"geoopt dist2plane / gyroplane, d = {dim}",
                    threads,
                    ours,
                    ms["geoopt"],
                    ms["geoopt"] / ours,
                    None,
                    False,
                )
            )
    return rows


def sample_tasks(images: int = 20) -> Tasks:
    """500 importance samples an image of MNIST's shape, and the products of the decoder's rows in them alone."""
    model, x = build(Config(hidden=(600,), likelihood="bernoulli"), 784), torch.rand(images, 784)
    hidden, weight = torch.randn(500 * images, 600), torch.randn(600, 784)
    return {"ours": lambda: marginal_likelihood(model, x, 500), "product": lambda: hidden @ weight}


def samples(threads: int) -> list[Row]:
    ms = compare(sample_tasks(), seconds=4.0)
    ours, product = ms["ours"], ms["product"]
    return [Row("500 samples of 20 images / the product alone", threads, ours, product, ours / product)]
