"""Do spheres suit data that close up? Circles and spheres of known truth, and digits of MNIST turned by every angle.

python -m benchmarks.spheres [--data DATA …] [--seeds 10] [--folder FOLDER] [--out FILE]

Columns of the first two are mixtures of harmonics of an angle, or of a unit vector, with noise. Models are trained on
1,000 rows, with the defaults of `curvae fit` but without neighbourhood terms, and judged on 500 others: log-likelihood,
beside that of the truth, and rank correlation of distances on the map with true ones. A digit is the first of its label
in MNIST, turned by 1,000 random angles; it is judged at every whole degree, by the circular correlation of Fisher and
Lee between the angles of the map and the true ones.

Every run is a file in the folder; those that are there are not computed again. `results/spheres.json` sums up all that
are there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.ndimage import rotate
from scipy.special import logsumexp, sph_harm_y
from scipy.stats import spearmanr

from curvae.data import mnist
from curvae.maps.statistics import mean_interval
from curvae.training import Config, embed, fit_many
from curvae.training.fitted import likelihoods
from curvae.training.storage import read_json, versions, write_json

SPACES = {"circle": ("s1", "e1", "e2", "h1"), "sphere": ("s2", "e2", "e3", "h2"), "digit": ("s1",)}
COLUMNS, DEGREES, NOISE = 20, 3, 0.265
ROWS, TESTS, SAMPLES = 1000, 500, 500
CONFIG = Config(likelihood="gaussian", neighbours="off")
ASKED = json.loads(
    json.dumps({"config": CONFIG.flat(), "rows": ROWS, "tests": TESTS, "noise": NOISE, "samples": SAMPLES})
)

FOLDER = Path("runs/spheres")
RESULT = Path("results/spheres.json")


def harmonics(points: np.ndarray) -> np.ndarray:
    """Real harmonics of degrees from 1 on at unit vectors, of mean 0 and mean square 1 over the circle or sphere."""
    azimuth = np.arctan2(points[:, 1], points[:, 0])
    if points.shape[1] == 2:
        waves = [np.sqrt(2) * np.exp(1j * k * azimuth) for k in range(1, DEGREES + 1)]
        return np.stack([part for wave in waves for part in (wave.real, wave.imag)], 1)
    polar = np.arccos(np.clip(points[:, 2], -1, 1))
    found = []
    for degree in range(1, DEGREES + 1):
        found.append(np.sqrt(4 * np.pi) * sph_harm_y(degree, 0, polar, azimuth).real)
        for order in range(1, degree + 1):
            wave = np.sqrt(8 * np.pi) * sph_harm_y(degree, order, polar, azimuth)
            found += [wave.real, wave.imag]
    return np.stack(found, 1)


class Truth:
    """Columns that mix harmonics, with noise: where rows lie, rows, and their log-density."""

    def __init__(self, name: str, seed: int) -> None:
        self.random = np.random.default_rng([seed, 43])
        self.width = 2 if name == "circle" else 3
        terms = harmonics(np.eye(self.width)).shape[1]
        self.mixture = self.random.normal(size=(terms, COLUMNS)) / np.sqrt(terms)

    def draw(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        points = self.random.normal(size=(rows, self.width))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        return points, harmonics(points) @ self.mixture + NOISE * self.random.normal(size=(rows, COLUMNS))

    def log_prob(self, x: np.ndarray, nodes: int = 200) -> np.ndarray:
        """Integrate over the circle or sphere: equal angles, and Gauss–Legendre nodes of the height."""
        turn = np.arange(2 * nodes) * np.pi / nodes
        points, weights = np.stack([np.cos(turn), np.sin(turn)], 1), np.full(2 * nodes, 0.5 / nodes)
        if self.width == 3:
            height, share = np.polynomial.legendre.leggauss(nodes // 2)
            flat = np.sqrt(1 - height**2)[:, None, None] * points
            points = np.concatenate([flat, np.broadcast_to(height[:, None, None], (*flat.shape[:2], 1))], -1)
            points, weights = points.reshape(-1, 3), (share[:, None] / 2 * weights).ravel()
        at = harmonics(points) @ self.mixture
        constant = np.log(weights) - COLUMNS / 2 * np.log(2 * np.pi * NOISE**2)
        found = []
        for some in np.array_split(x, max(1, len(x) // 50)):
            square = (some**2).sum(1)[:, None] - 2 * some @ at.T + (at**2).sum(1)
            found.append(logsumexp(constant - square / (2 * NOISE**2), axis=1))
        return np.concatenate(found)


def circular_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Compute Fisher and Lee's correlation of two circular variables, given as unit vectors; 1 up to a reflection."""
    square = np.linalg.det(first.T @ first) * np.linalg.det(second.T @ second)
    return float(abs(np.linalg.det(first.T @ second)) / np.sqrt(square))


def draw(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, float]]:
    """Return rows to train on, rows to judge by, the points these are at, and what the truth gives."""
    if name != "digit":
        truth = Truth(name, seed)
        (_, x), (points, test) = truth.draw(ROWS), truth.draw(TESTS)
        return x, test, points, {"truth": float(truth.log_prob(test).mean())}
    data = mnist("train")
    image = np.asarray(data.x[np.flatnonzero(np.asarray(data.labels).astype(int) == seed % 10)[seed // 10]])

    def turned(degrees: np.ndarray) -> np.ndarray:
        images = [rotate(image.reshape(28, 28), angle, reshape=False, order=1) for angle in degrees]
        return np.clip(np.reshape(images, (len(degrees), -1)), 0, 1)

    degrees = np.arange(360.0)
    points = np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], 1)
    return turned(np.random.default_rng([seed, 44]).uniform(0, 360, ROWS)), turned(degrees), points, {}


def judge(fitted: Any, test: np.ndarray, points: np.ndarray, known: dict[str, float]) -> dict[str, float]:
    """Return log-likelihood and rank correlation of distances, or the circular correlation of a digit's angles."""
    placed = embed(fitted, test)
    if not known:
        return {"circular_correlation": circular_correlation(placed.space, points)}
    found, pairs = likelihoods(fitted, test, SAMPLES), np.triu_indices(len(test), 1)
    true = np.arccos(np.clip(points @ points.T, -1, 1))[pairs]
    ranks = spearmanr(placed.distances()[pairs], true).statistic
    return {**known, "log_likelihood": float((found.log_prob + found.log_jacobian).mean()), "ranks": float(ranks)}


def measure(name: str, space: str, seeds: Sequence[int], folder: Path) -> None:
    """Train the seeds whose files are not there, all at once, and judge them."""
    paths = {seed: folder / f"{name}-{space}-{seed}.json" for seed in seeds}
    asked = [seed for seed, path in paths.items() if not path.exists() or read_json(path)["asked"] != ASKED]
    drawn = [draw(name, seed) for seed in asked]
    config = replace(CONFIG, space=space, likelihood="bernoulli" if name == "digit" else CONFIG.likelihood)
    fitted = fit_many([replace(config, seed=seed) for seed in asked], [x for x, *_ in drawn]) if asked else []
    for seed, one, (_, *judged) in zip(asked, fitted, drawn, strict=True):
        figures = judge(one, *judged)
        write_json(paths[seed], {"data": name, "space": space, "seed": seed, "asked": ASKED, **figures})
        print(paths[seed].stem, figures, flush=True)


def sum_up(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of every space on every data, in the order of seeds."""
    found: dict[str, Any] = {}
    for run in sorted(runs, key=lambda run: run["seed"]):
        cell = found.setdefault(run["data"], {}).setdefault(run["space"], {"seeds": []})
        cell["seeds"].append(run["seed"])
        for figure in ("truth", "log_likelihood", "ranks", "circular_correlation"):
            if figure in run:
                cell.setdefault(figure, []).append(run[figure])
    return {name: {space: found[name][space] for space in SPACES[name] if space in found[name]} for name in found}


def interval(figures: Sequence[float]) -> str:
    """Show a mean and the half-width of its 95 % interval."""
    mean, half = mean_interval(figures)
    return f"{mean:.2f} ± {half:.2f}".replace("-", "−")


def table(result: dict[str, Any]) -> str:
    """Show spheres beside flat and hyperbolic spaces, and how well angles of digits are found again."""
    lines = [
        "| data | space | held-out log-likelihood, nats a row | truth − it | rank correlation of distances | ≥ 0.9 |",
        "|---|---|---|---|---|---|",
    ]
    for name in ("circle", "sphere"):
        for space, cell in result["data"].get(name, {}).items():
            lost = [true - found for true, found in zip(cell["truth"], cell["log_likelihood"], strict=True)]
            cells = [interval(cell["log_likelihood"]), interval(lost), interval(cell["ranks"])]
            good = f"{sum(rank >= 0.9 for rank in cell['ranks'])} of {len(cell['ranks'])}"
            lines.append(f"| {name} | `{space}` | {' | '.join(cells)} | {good} |")
    if "digit" in result["data"]:
        cell = result["data"]["digit"]["s1"]
        lines += ["", f"| digit | {' | '.join(str(seed % 10) for seed in cell['seeds'])} |"]
        lines.append(f"|---|{'---|' * len(cell['seeds'])}")
        lines.append(f"| circular correlation | {' | '.join(f'{one:.3f}' for one in cell['circular_correlation'])} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=SPACES, default=list(SPACES))
    parser.add_argument("--seeds", type=int, default=10, help="of every space; 0 only sums up")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name in asked.data:
        for space in SPACES[name]:
            measure(name, space, range(asked.seeds), asked.folder)
    runs = [one for one in map(read_json, sorted(asked.folder.glob("*.json"))) if one["asked"] == ASKED]
    result = {"command": "python -m benchmarks.spheres", **ASKED, "versions": versions(), "data": sum_up(runs)}
    write_json(asked.out, result)
    print(table(result))


if __name__ == "__main__":
    main()
