"""Does a map forget batches that the model is given? `python -m benchmarks.covariates`

Half of the rows, chosen at random, are moved by 3 standard deviations in every column, up or down at random. Models of
the data as they were, and of the moved data without the batch, with the batch given to the decoder, and to the encoder
too. From the map of all rows the 5 nearest neighbours of a row, itself left out, predict its batch and its label; the
log-likelihood is that of rows kept apart, in original units. Writes `results/covariates.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_wine

from curvae.data import Arrays, branching_diffusion
from curvae.data.principal import mean_interval
from curvae.training import Config, fit_many, random_split
from curvae.training.evaluate import Embedding, embed, likelihoods_many
from curvae.training.storage import versions

SHIFT, NEIGHBOURS, TEST, SAMPLES = 3.0, 5, 0.2, 200
CONFIG = Config(hidden=(64,), likelihood="gaussian", validation=0.0, neighbours="off")
EPOCHS = {"branching diffusion": 70, "wine": 240}
KINDS = {
    "without the shift": (False, False, False),
    "shifted": (True, False, False),
    "shifted, given to the decoder": (True, True, False),
    "shifted, given to the encoder too": (True, True, True),
}
"""whether rows are shifted, and whether decoder and encoder are given their batch"""


def rows_of(name: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Values and labels."""
    if name == "wine":
        return load_wine(return_X_y=True)
    data = branching_diffusion().dataset()
    return np.asarray(data.x, np.float64), data.labels


def planted(x: NDArray[np.float64], seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows with one half of them moved, and their batch."""
    rng = np.random.default_rng([seed, 5])
    batch = rng.permutation(len(x)) % 2
    direction = rng.choice([-1.0, 1.0], x.shape[1])
    return x + np.outer(batch, SHIFT * x.std(0) * direction), batch


def predicted(embedding: Embedding, values: NDArray[Any]) -> float:
    """Share of the rows whose value their neighbours tell."""
    distances = embedding.distances()
    np.fill_diagonal(distances, np.inf)  # a row is no neighbour of its own
    nearest = np.argsort(distances, axis=1)[:, :NEIGHBOURS]
    known, codes = np.unique(values, return_inverse=True)
    votes = (codes[nearest][..., None] == np.arange(len(known))).sum(1)
    return float((votes.argmax(1) == codes).mean())


def figures(name: str, curvature: float, seeds: Sequence[int]) -> dict[str, list[dict[str, float]]]:
    """Of every kind of model, for every seed."""
    x, labels = rows_of(name)
    moved = [planted(x, seed) for seed in seeds]
    splits = [random_split(len(x), 0.0, TEST, seed) for seed in seeds]
    found = {}
    for kind, (shifted, told, encoded) in KINDS.items():
        data = [Arrays(rows if shifted else x, np.eye(2)[batch] if told else None) for rows, batch in moved]
        config = replace(CONFIG, curvature=curvature, epochs=EPOCHS[name], encode_covariates=encoded)
        fitted = fit_many([replace(config, seed=seed) for seed in seeds], data, splits=splits)
        tested = likelihoods_many(fitted, [a.take(s.test) for a, s in zip(data, splits, strict=True)], SAMPLES)
        maps = [embed(one, rows) for one, rows in zip(fitted, data, strict=True)]
        found[kind] = [
            {
                "batch": predicted(place, batch),
                "labels": predicted(place, labels),
                "log_likelihood": test.mean + test.log_jacobian,
            }
            for place, (_, batch), test in zip(maps, moved, tested, strict=True)
        ]
    return found


def table(result: dict[str, Any]) -> str:
    """For the pages: accuracies in per cent, log-likelihoods in nats a row."""
    lines = [
        "| data | c | model | batch from the map (%) | label from the map (%) | log-likelihood |",
        "|---|---|---|---|---|---|",
    ]
    for name, curvatures in result["data"].items():
        for c, kinds in curvatures.items():
            for kind, runs in kinds.items():
                cells = []
                for figure, unit in (("batch", 100), ("labels", 100), ("log_likelihood", 1)):
                    mean, half = mean_interval([unit * run[figure] for run in runs])
                    cells.append(f"{mean:.1f} ± {half:.1f}".replace("-", "−"))
                lines.append(f"| {name} | {float(c):g} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(seeds: int, output: Path) -> None:
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "command": "python -m benchmarks.covariates",
        "versions": versions(),
        "config": CONFIG.to_json(),
        "epochs": EPOCHS,
        "shift": SHIFT,
        "seeds": seeds,
        "data": {},
    }
    for name in EPOCHS:
        result["data"][name] = {str(c): figures(name, c, range(seeds)) for c in (1.0, 0.0)}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 5,
        Path(sys.argv[2] if len(sys.argv) > 2 else "results/covariates.json"),
    )
