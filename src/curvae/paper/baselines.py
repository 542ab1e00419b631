"""Maps of the branching diffusion by PCA and GPLVM, and how well they show its tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import joblib
import numpy as np

from ..data import Tree, branching_diffusion
from ..training import Scaling
from .experiment import Bench
from .gplvm import GPLVM, Array, principal_components
from .recovery import recovery

__all__ = ["maps", "scaled"]


def scaled(tree: Tree) -> Array:
    """All observations, centred and scaled as the models see them."""
    scaling = Scaling.standard(tree.x)
    return (tree.x - scaling.shift) / scaling.scale


def maps(seeds: Sequence[int], iterations: int, bench: Bench) -> dict[str, Any]:
    """The figures of both maps for every data set; they are made on the CPU, a data set a core."""
    step, found = bench.progress("maps"), []
    calls = (joblib.delayed(_both)(seed, iterations) for seed in seeds)
    jobs = min(len(seeds), joblib.cpu_count())
    step(0, len(seeds))
    for done, one in enumerate(joblib.Parallel(n_jobs=jobs, return_as="generator")(calls), 1):
        found.append(one)
        step(done, len(seeds))
    return {"maps": {name: [one[name] for one in found] for name in ("PCA", "GPLVM")}}


def _both(seed: int, iterations: int) -> dict[str, dict[str, float]]:
    tree = branching_diffusion(seed=seed)
    y = scaled(tree)
    model = GPLVM.fit(y, iterations=iterations)
    own = {"PCA": principal_components(y), "GPLVM": model.x - model.x.mean(0)}
    result = {name: {"seed": seed, **_recovery(tree, x)} for name, x in own.items()}
    result["GPLVM"]["log_likelihood"] = model.log_likelihood
    return result


def _recovery(tree: Tree, x: Array) -> dict[str, float]:
    return recovery(tree, lambda a, b: np.linalg.norm(x[a] - x[b], axis=1), np.linalg.norm(x, axis=1))
