"""Writes what takes long to integrate, on the grid of dimensions, curvatures and scales, by mpmath alone.

Run with `python tests/make_oracles.py` (some minutes). Each entry of `data/radius_quantiles.json` says: noise of length
x in dimension d has the same quantile as radius t at shape q, and dt/dq at that quantile is w. Each entry of
`data/log_normalisers.json` has d, q, the logarithm of the normalising integral and its derivative in q.
`data/operation_results.npz` has what `operation_cases.py` computes of each operation of the manifolds, in one row of
numbers a case, and the lengths of these rows.
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor

import mpmath as mp
import numpy as np
import torch

from operation_cases import OPERATIONS, STORED, rows
from oracles import (
    CELLS,
    DIMS,
    integrated_log_normaliser,
    integrated_log_normaliser_slope,
    key,
    mpf,
    radius_density,
    tail,
    tilt,
)
from paths import DATA

QUANTILES = (-4.5, -0.5, 3.5)  # of the standard normal


def solve(share, q, dim: int, lower: bool, start):
    """The t whose lower (upper) tail is `share`, by Newton's method on the logarithm of the tail."""
    t, sign = start, 1 if lower else -1
    for _ in range(60):
        mass = tail(t, q, dim, lower)
        density = radius_density(t, q, dim) / mp.exp(integrated_log_normaliser(q, dim))
        step = -sign * (mp.log(mass) - mp.log(share)) * mass / density
        step = max(min(step, t), -t / 2)
        t += step
        if abs(step) < mp.mpf("1e-22") * t:
            return t
    raise RuntimeError(f"no convergence at q = {q}, dim = {dim}")


def shapes() -> list:
    """The q = c·σ² of the grid, at numbers that float32 holds."""
    found = {}
    for c, s in CELLS:
        c32, s32 = (float(torch.tensor(v, dtype=torch.float32)) for v in (c, s))
        q = mpf(c32) * mpf(s32) ** 2
        found[key(q)] = q
    return sorted(found.items(), key=lambda item: item[1])


def normalisers() -> list:
    return [
        [dim, name, *(mp.nstr(f(q, dim), 25) for f in (integrated_log_normaliser, integrated_log_normaliser_slope))]
        for dim in DIMS
        for name, q in shapes()
    ]


def quantiles() -> list:
    entries = []
    for dim in DIMS:
        for z in QUANTILES:
            lower = z < 0
            share = mp.ncdf(z) if lower else mp.ncdf(-z)
            x = solve(share, mp.mpf(0), dim, lower, mp.sqrt(dim))
            x = mpf(torch.tensor(float(x), dtype=torch.float32))  # noise that float32 holds
            share = tail(x, mp.mpf(0), dim, lower)
            t = x
            for name, q in shapes():
                t = solve(share, q, dim, lower, max(t, (dim - 1) * mp.sqrt(q) + z))
                mass, slope = tail(t, q, dim, lower), integrated_log_normaliser_slope(q, dim)
                excess = tail(t, q, dim, lower, lambda u, q=q, dim=dim: tilt(u, q, dim)) - mass * slope
                density = radius_density(t, q, dim) / mp.exp(integrated_log_normaliser(q, dim))
                w = -(1 if lower else -1) * excess / density
                entries.append([dim, float(x), name, mp.nstr(t, 20), mp.nstr(w, 20)])
        print(dim, flush=True)
    return entries


def write(name: str, entries: list) -> None:
    (DATA / name).write_text("[\n" + ",\n".join(json.dumps(e) for e in entries) + "\n]\n", encoding="utf-8")


def write_operation_results() -> None:
    arrays = {}
    with ProcessPoolExecutor() as pool:
        for (chart, name), found in zip(OPERATIONS, pool.map(rows, *zip(*OPERATIONS, strict=True)), strict=True):
            arrays[f"{chart.__name__}.{name}"] = np.concatenate(found)
            arrays[f"{chart.__name__}.{name}.lengths"] = np.array([len(row) for row in found], np.uint8)
            print(chart.__name__, name, flush=True)
    np.savez_compressed(STORED, **arrays)


if __name__ == "__main__":
    write_operation_results()
    write("log_normalisers.json", normalisers())
    write("radius_quantiles.json", quantiles())
