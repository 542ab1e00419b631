"""Does the closed-form entropy lower the variance of the encoder's gradient? `python -m benchmarks.variance`."""

from __future__ import annotations

import argparse
import json
import platform
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import curvae
from curvae.data import branching_diffusion
from curvae.models import VAE
from curvae.training import Config, build

from .timing import compare

__all__ = ["PAGE", "RESULT", "measure", "ratio", "table", "total_variance"]

ROOT = Path(__file__).parent.parent
RESULT, PAGE = ROOT / "results" / "entropy_variance.json", ROOT / "docs" / "objectives.md"
SEEDS, DRAWS, STEPS, RESAMPLES = (0, 1, 2), 400, 300, 2000

Array = NDArray[np.float64]


def rows() -> Tensor:
    """The branching diffusion, standardised."""
    x = branching_diffusion().x
    return torch.from_numpy((x - x.mean(0)) / x.std(0)).float()


def train(model: VAE, x: Tensor, steps: int, generator: torch.Generator) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        batch = x[torch.randint(len(x), (64,), generator=generator)]
        optimiser.zero_grad()
        (-model.elbo(batch, noise=model.noise(64, 1, generator)).mean()).backward()
        optimiser.step()


def gradient(model: VAE, x: Tensor, noise: Tensor, entropy: bool) -> Tensor:
    """Of minus the mean ELBO, in the parameters of encoder and posterior."""
    parameters = [*model.encoder.parameters(), *model.posterior.parameters()]
    reconstruction, kl = model.terms(x, noise, entropy=entropy)
    return torch.cat([g.flatten() for g in torch.autograd.grad((kl - reconstruction).mean(), parameters)])


def gram(model: VAE, x: Tensor, noises: list[Tensor], entropy: bool) -> Array:
    """Inner products of the gradients made from each of the noises."""
    gradients = torch.stack([gradient(model, x, noise, entropy) for noise in noises]).double()
    return (gradients @ gradients.T).numpy()


def total_variance(products: Array, weights: Array) -> Array:
    """Of the gradients with the given weights (…, draws), summed over parameters: E|g|² − |E g|²."""
    return weights @ np.diag(products) - np.einsum("...i,ij,...j->...", weights, products, weights)


def ratio(pairs: list[tuple[Array, Array]], random: np.random.Generator) -> tuple[float, list[float]]:
    """Variance with the closed form over that without, averaged over seeds, and its bootstrap 95 % interval."""
    sums = np.zeros((2, RESAMPLES + 1))
    for pair in pairs:
        draws = len(pair[0])
        weights = random.multinomial(draws, np.full(draws, 1 / draws), RESAMPLES) / draws
        weights = np.concatenate([np.full((1, draws), 1 / draws), weights])  # the draws as they are come first
        sums += [total_variance(products, weights) for products in pair]
    ratios = sums[1] / sums[0]
    return float(ratios[0]), np.quantile(ratios[1:], [0.025, 0.975]).tolist()


def measure() -> dict[str, Any]:
    """All cases, as they are written to `results/entropy_variance.json`."""
    torch.set_num_threads(1)
    x, random = rows(), np.random.default_rng(0)
    results = []
    for law, dim in product(("wrapped", "riemannian"), (2, 10)):
        pairs: dict[int, list[tuple[Array, Array]]] = {0: [], STEPS: []}
        for seed in SEEDS:
            config = Config(dim=dim, posterior=law, likelihood="gaussian", seed=seed)
            model, generator = build(config, x.shape[1]), torch.Generator().manual_seed(seed)
            batch = x[torch.randperm(len(x), generator=generator)[:64]]
            for steps, grams in pairs.items():
                train(model, x, steps, generator)
                noises = [model.noise(len(batch), 1, generator) for _ in range(DRAWS)]
                grams.append((gram(model, batch, noises, False), gram(model, batch, noises, True)))
        noise = noises[0]
        ms = compare(
            {
                "sampled": lambda m=model, b=batch, n=noise: gradient(m, b, n, False),
                "closed": lambda m=model, b=batch, n=noise: gradient(m, b, n, True),
            },
            seconds=1.0,
        )
        for steps, grams in pairs.items():
            value, interval = ratio(grams, random)
            case = {"law": law, "dim": dim, "steps": steps, "ratio": value, "interval": interval}
            results.append(case | {"time_ratio": ms["closed"] / ms["sampled"]})
    versions = {"curvae": curvae.__version__, "torch": torch.__version__, "python": platform.python_version()}
    setting = {"data": "branching_diffusion", "c": 1.0, "batch": 64, "draws": DRAWS, "seeds": SEEDS}
    return {"versions": versions, "setting": setting, "results": results}


def table(result: dict[str, Any]) -> str:
    """The rows of the page's table."""
    lines = ["| distribution | d | training steps | variance | 95 % interval | time of a gradient |"]
    lines.append("|---|---|---|---|---|---|")
    for case in result["results"]:
        value, low, high = (f"{100 * (ratio - 1):+.2f}" for ratio in (case["ratio"], *case["interval"]))
        lines.append(
            f"| {case['law']} | {case['dim']} | {case['steps']} | {value} % | {low} to {high} % "
            f"| ×{case['time_ratio']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    argparse.ArgumentParser(prog="python -m benchmarks.variance", description=__doc__).parse_args()
    result = measure()
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()
