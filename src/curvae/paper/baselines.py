"""Maps of the branching diffusion by PCA and GPLVM, and how well any map shows its tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import joblib
import numpy as np

from ..data import Tree, branching_diffusion
from ..hierarchy import Embedded
from ..hierarchy.recovery import distortion, rank_correlation
from ..training import Scaling
from .experiment import Workspace
from .gplvm import GPLVM, Array, principal_components

__all__ = ["MEASURES", "maps", "recovery", "scaled"]

MEASURES = ("distortion", "distance_correlation", "depth_correlation")


def scaled(tree: Tree) -> Array:
    """All observations, centred and scaled as the models see them."""
    scaling = Scaling.standard(tree.x)
    return (tree.x - scaling.shift) / scaling.scale


def maps(seeds: Sequence[int], iterations: int, workspace: Workspace) -> dict[str, Any]:
    """The figures of both maps for every data set; they are made on the CPU, a data set a core."""
    step, found = workspace.progress("maps"), []
    calls = (joblib.delayed(_both)(seed, iterations) for seed in seeds)
    step(0, len(seeds))
    for one in joblib.Parallel(n_jobs=min(len(seeds), joblib.cpu_count()), return_as="generator")(calls):
        found.append(one)
        step(len(found), len(seeds))
    return {"maps": {name: [one[name] for one in found] for name in ("PCA", "GPLVM")}}


def _both(seed: int, iterations: int) -> dict[str, dict[str, float]]:
    tree = branching_diffusion(seed=seed)
    y = scaled(tree)
    model = GPLVM.fit(y, iterations=iterations)
    own = {"PCA": principal_components(y), "GPLVM": model.x - model.x.mean(0)}
    # A plane is the ball of curvature 0.
    result = {name: {"seed": seed, **recovery(tree, Embedded(x, 0.0))} for name, x in own.items()}
    result["GPLVM"]["log_likelihood"] = model.log_likelihood
    return result


def recovery(tree: Tree, points: Embedded) -> dict[str, float]:
    """How well a map of a tree's observations shows the tree, in three figures; see `curvae.hierarchy.Recovery`.

    Pairs are those of different nodes in the same turn: first observations with first ones, and so on. Every node has
    equally many observations.
    """
    nodes = len(tree.parent)
    turns = np.argsort(tree.node, kind="stable").reshape(nodes, -1).T
    a, b = np.triu_indices(nodes, 1)
    latent = points.pairs(turns[:, a].ravel(), turns[:, b].ravel())
    hops = np.tile(tree.distances()[a, b], len(turns)).astype(np.float64)
    depth = tree.depth[tree.node].astype(np.float64)
    figures = distortion(hops, latent)[0], rank_correlation(hops, latent), rank_correlation(depth, points.radius)
    return dict(zip(MEASURES, figures, strict=True))
