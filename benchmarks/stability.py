"""Does training stay finite where it is hardest? `python -m benchmarks.stability [steps]`

Riemannian normals of high curvature and dimension on images, float32: every loss must be finite and no mean divergence
may lie more than 4 standard errors below 0. Uses MNIST from `CURVAE_DATA` where it is set, else random images of the
same shape. Writes `results/stability.json`.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import joblib
import numpy as np
import torch

from curvae.data import mnist
from curvae.training import Config, build
from curvae.training.storage import versions

SETTINGS = [(0.7, 1.0, 10), (1.4, 1.0, 10), (0.7, 1.0, 20), (1.4, 1.0, 20), (1.2, 1.7, 2)]
SEEDS = (0, 1, 2)
BATCH = 128


def rows() -> tuple[np.ndarray, str]:
    if os.environ.get("CURVAE_DATA"):
        return np.asarray(mnist("train").x, dtype=np.float32), "MNIST"
    rng = np.random.default_rng(0)
    shapes = rng.random((10, 784)) < 0.2
    return np.float32(shapes[rng.integers(10, size=5000)] * rng.random((5000, 784))), "random images"


def one(c: float, scale: float, dim: int, seed: int, steps: int) -> dict[str, object]:
    torch.set_num_threads(1)
    x = torch.from_numpy(rows()[0])
    config = Config(
        dim=dim, curvature=c, prior_scale=scale, hidden=(600,), likelihood="bernoulli", learning_rate=5e-4, seed=seed
    )
    model = build(config, x.shape[1], mean=x.mean(0).double().numpy())
    optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate, fused=True)
    generator = torch.Generator().manual_seed(seed)
    broken, worst, last = 0, math.inf, math.nan
    for _ in range(steps):
        batch = x[torch.randint(len(x), (BATCH,), generator=generator)]
        reconstruction, kl = model.terms(batch, model.noise(BATCH, 1, generator))
        loss = (kl - reconstruction).mean()
        optimiser.zero_grad()
        loss.backward()
        finite = bool(loss.isfinite()) and all(bool(p.grad.isfinite().all()) for p in model.parameters())
        broken += not finite
        optimiser.step()
        standardised = float(kl.detach().mean() / (kl.detach().std() / math.sqrt(BATCH)))
        worst, last = min(worst, standardised), -loss.item()
    return {
        "c": c,
        "prior_scale": scale,
        "dim": dim,
        "seed": seed,
        "steps": steps,
        "non_finite_steps": broken,
        "lowest_mean_kl_in_standard_errors": worst,
        "last_elbo": last,
    }


def main(steps: int, output: Path) -> None:
    tasks = [(*setting, seed, steps) for setting in SETTINGS for seed in SEEDS]
    found = joblib.Parallel(n_jobs=-1)(joblib.delayed(one)(*task) for task in tasks)
    for figures in found:
        print(figures, flush=True)
    result = {
        "command": "python -m benchmarks.stability",
        "versions": versions(),
        "data": rows()[1],
        "held": all(f["non_finite_steps"] == 0 and f["lowest_mean_kl_in_standard_errors"] > -4 for f in found),
        "runs": found,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    print("held" if result["held"] else "FAILED")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 2000,
        Path(sys.argv[2] if len(sys.argv) > 2 else "results/stability.json"),
    )
