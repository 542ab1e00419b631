"""Writes data/radius_quantiles.json: quantiles of the radius law and their derivatives in q, by mpmath alone.

Run with `python tests/make_oracles.py` (some minutes). Each entry says: noise of length x in dimension d has the same
quantile as radius t at shape q, and dt/dq at that quantile is w.
"""

from __future__ import annotations

import json
from pathlib import Path

import mpmath as mp
import torch

from oracles import CURVATURES, DIMS, SCALES, log_normaliser, log_normaliser_slope, mpf, radius_density, tail, tilt

QUANTILES = (-4.5, -0.5, 3.5)  # of the standard normal
PATH = Path(__file__).parent / "data" / "radius_quantiles.json"


def solve(share, q, dim: int, lower: bool, start):
    """The t whose lower (upper) tail is `share`, by Newton's method on the logarithm of the tail."""
    t, sign = start, 1 if lower else -1
    for _ in range(60):
        mass = tail(t, q, dim, lower)
        density = radius_density(t, q, dim) / mp.exp(log_normaliser(q, dim))
        step = -sign * (mp.log(mass) - mp.log(share)) * mass / density
        step = max(min(step, t), -t / 2)
        t += step
        if abs(step) < mp.mpf("1e-22") * t:
            return t
    raise RuntimeError(f"no convergence at q = {q}, dim = {dim}")


def main() -> None:
    shapes = {}
    for c in CURVATURES:
        for s in SCALES:
            c32, s32 = (float(torch.tensor(v, dtype=torch.float32)) for v in (c, s))
            shapes[mp.nstr(mpf(c32) * mpf(s32) ** 2, 30)] = mpf(c32) * mpf(s32) ** 2
    entries = []
    for dim in DIMS:
        for z in QUANTILES:
            lower = z < 0
            share = mp.ncdf(z) if lower else mp.ncdf(-z)
            x = solve(share, mp.mpf(0), dim, lower, mp.sqrt(dim))
            x = mpf(torch.tensor(float(x), dtype=torch.float32))  # noise that float32 holds
            share = tail(x, mp.mpf(0), dim, lower)
            t = x
            for name, q in sorted(shapes.items(), key=lambda item: item[1]):
                t = solve(share, q, dim, lower, max(t, (dim - 1) * mp.sqrt(q) + z))
                mass, slope = tail(t, q, dim, lower), log_normaliser_slope(q, dim)
                excess = tail(t, q, dim, lower, lambda u, q=q, dim=dim: tilt(u, q, dim)) - mass * slope
                density = radius_density(t, q, dim) / mp.exp(log_normaliser(q, dim))
                w = -(1 if lower else -1) * excess / density
                entries.append([dim, float(x), name, mp.nstr(t, 20), mp.nstr(w, 20)])
        print(dim, flush=True)
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text("[\n" + ",\n".join(json.dumps(e) for e in entries) + "\n]\n")


if __name__ == "__main__":
    main()
