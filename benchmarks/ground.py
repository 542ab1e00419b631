"""Draws of the two normals, first use of a dimension, and the gyroplane layer."""

from __future__ import annotations

import time

import torch

from curvae import Lorentz, PoincareBall, RiemannianNormal, WrappedNormal
from curvae.distributions import table
from curvae.nn import Curvature, Gyroplane
from curvae.paper.samplers import PiecewiseExponential

from .peers import broadcast_gyroplane, geoopt_ball, pythae_normals
from .timing import Row, compare

__all__ = ["draws", "first_use", "gyroplane"]


def draws(threads: int) -> list[Row]:
    """5000 × 128 draws around 128 centres with 128 scales."""
    rows = []
    for dim in (2, 10):
        loc, scale = 0.1 * torch.randn(128, dim), 0.1 + 0.5 * torch.rand(128, 1)
        space = Lorentz(dim, 1.0)
        wrapped, riemannian = WrappedNormal(loc, scale, space), RiemannianNormal(loc, scale, space)
        tasks = {
            "riemannian": lambda p=riemannian: p.sample((5000,)),
            "wrapped": lambda p=wrapped: p.sample((5000,)),
            "normals": lambda dim=dim: torch.randn(5000, 128, dim),
            # As in training, where every step has new scales, the envelopes are made anew.
            "rejection": lambda dim=dim, s=scale[:, 0]: PiecewiseExponential(dim, s, 1.0).sample(5000),
        }
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


def first_use(threads: int) -> list[Row]:
    """Building the table of a new dimension, in units of the half second it may take."""
    rows = []
    RiemannianNormal(torch.zeros(7), 1.0, Lorentz(7)).sample()  # warm up
    for dim in (2, 10, 100):
        table._TABLES.clear()
        start = time.perf_counter()
        RiemannianNormal(torch.zeros(dim), 1.0, Lorentz(dim)).sample()
        ms = 1e3 * (time.perf_counter() - start)
        rows.append(Row(f"first draw in dimension {dim} / 0.5 s", threads, ms, 500.0, ms / 500, 1.0))
    return rows


def gyroplane(threads: int) -> list[Row]:
    """Forward and backward, a batch of 128 and 600 hyperplanes."""
    rows = []
    for dim in (2, 10):
        layer, linear = Gyroplane(dim, 600, Curvature(1.0)), torch.nn.Linear(dim, 600)
        S = torch.randn(128, dim, requires_grad=True)
        z = PoincareBall(dim).from_lorentz(S.detach()).requires_grad_()
        a, p = (torch.randn(600, dim, requires_grad=True) for _ in range(2))
        broadcast = broadcast_gyroplane(1.0)
        upstream = torch.ones(128, 600)
        tasks = {
            "gyroplane": lambda: layer(S).backward(upstream),  # noqa: B023
            "linear": lambda: linear(S).asinh().backward(upstream),  # noqa: B023
            "broadcast": lambda: broadcast(z, a, 0.3 * p).backward(upstream),  # noqa: B023
        }
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
