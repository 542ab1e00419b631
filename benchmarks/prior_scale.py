"""Does the prior scale that is chosen by default suit every curvature and dimension? Likelihoods of MNIST.

python -m benchmarks.prior_scale                   writes results/prior_scale.json; an interrupted run goes on
python -m benchmarks.prior_scale --device cpu --quick --out F   some minutes on a CPU: fewer rows, steps and curvatures

For every dimension and distribution, models of all curvatures are trained as one stack, three seeds each, and beside
them those of curvature 0. Figures are importance-weighted log-likelihoods of test images. It holds if, in the mean over
seeds, no curvature is worse than 0 by more than a nat.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from curvae.data import Arrays, mnist
from curvae.training import Config, fit_many, random_split
from curvae.training.evaluate import likelihoods_many
from curvae.training.files import read_json, write_json
from curvae.training.storage import versions

__all__ = ["main"]

RESULT = Path(__file__).parent.parent / "results" / "prior_scale.json"
MARGIN = 1.0  # nats


@dataclass(frozen=True)
class Plan:
    """How much to compute."""

    dims: tuple[int, ...] = (2, 5, 10, 20)
    curvatures: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 1.0, 1.4)
    posteriors: tuple[str, ...] = ("riemannian", "wrapped")
    seeds: int = 3
    rows: int = 60_000
    tested: int = 10_000
    hidden: tuple[int, ...] = (400,)
    batch_size: int = 128
    steps: int = 10_000
    samples: int = 200


QUICK = Plan((5, 20), (0.3, 1.4), ("riemannian",), 1, 3000, 200, (100,), 64, 400, 20)


def cells(plan: Plan) -> Iterator[tuple[str, int, tuple[float, ...]]]:
    """Posterior, dimension and curvatures of every stack; curvature 0 is the same for both distributions."""
    for dim in plan.dims:
        yield "riemannian", dim, (0.0,)
        for posterior in plan.posteriors:
            yield posterior, dim, plan.curvatures


def measure(
    plan: Plan, posterior: Any, dim: int, curvatures: Sequence[float], data: tuple[np.ndarray, np.ndarray], device: str
) -> list[dict[str, Any]]:
    """Likelihoods of the models of one stack."""
    rows, test = data
    common = {"dim": dim, "posterior": posterior, "likelihood": "bernoulli", "hidden": plan.hidden}
    common |= {"neighbours": "off"}
    configs = [
        Config(curvature=c, seed=seed, steps=plan.steps, batch_size=plan.batch_size, **common)
        for c, seed in product(curvatures, range(plan.seeds))
    ]
    began = time.perf_counter()
    split = random_split(len(rows), 0.05)
    fitted = fit_many(configs, rows, splits=[split] * len(configs), device=device)
    seconds = (time.perf_counter() - began) / len(configs)
    judged = likelihoods_many(fitted, [Arrays(test)] * len(configs), plan.samples, tf32=True)
    return [
        {
            "posterior": posterior,
            "dim": dim,
            "c": config.curvature,
            "seed": config.seed,
            "prior_scale": one.figures[0].prior_scale,
            "log_likelihood": found.mean,
            "validation_kl": one.last["validation_kl"],
            "epochs": len(one.history),
            "best_epoch": one.last["epoch"],
            "failure": one.failure,
            "seconds": seconds,
        }
        for config, one, found in zip(configs, fitted, judged, strict=True)
    ]


def summary(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over seeds, and the difference to curvature 0."""

    def mean(dim: int, posterior: str, c: float) -> float:
        own = [run for run in runs if (run["dim"], run["posterior"], run["c"]) == (dim, posterior, c)]
        return float(np.mean([run["log_likelihood"] for run in own]))

    found = []
    for dim, posterior, c in dict.fromkeys((run["dim"], run["posterior"], run["c"]) for run in runs if run["c"] > 0):
        flat, curved = mean(dim, "riemannian", 0.0), mean(dim, posterior, c)
        facts = {"dim": dim, "posterior": posterior, "c": c, "log_likelihood": curved, "flat": flat}
        found.append({**facts, "difference": curved - flat})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    plan = QUICK if asked.quick else Plan()
    head = {"command": "python -m benchmarks.prior_scale", "versions": versions(), "plan": vars(plan) | {}}
    head["defaults"] = Config().flat()
    result = read_json(asked.out) if asked.out.exists() else {**head, "runs": []}
    train, test = (np.asarray(mnist(part).x, np.float32) for part in ("train", "test"))
    data = train[: plan.rows], test[: plan.tested]
    done = {(run["posterior"], run["dim"], run["c"]) for run in result["runs"]}
    for posterior, dim, curvatures in cells(plan):
        if (posterior, dim, curvatures[-1]) in done:
            continue
        result["runs"] += measure(plan, posterior, dim, curvatures, data, asked.device)
        result["cells"] = summary(result["runs"])
        result["worst"] = min((cell["difference"] for cell in result["cells"]), default=None)
        result["holds"] = result["worst"] is not None and result["worst"] >= -MARGIN
        write_json(asked.out, result, indent=1)
        for run in result["runs"][-len(curvatures) * plan.seeds :]:
            shown = {name: run[name] for name in ("posterior", "dim", "c", "seed", "log_likelihood", "seconds")}
            print(shown, flush=True)
    print(f"worst difference {result['worst']:.2f} nats: {'holds' if result['holds'] else 'FAILED'}")


if __name__ == "__main__":
    main()
