"""Maps of the branching diffusion by PCA and GPLVM, and how well any map shows its tree.

The Gaussian process latent variable model (Lawrence, 2005) is a baseline for the map, as in the paper's appendix C.1.
Rows are values of independent Gaussian processes, one a column, at latent points X that are found by maximising the
marginal likelihood, with kernel k(x, x′) = s²·exp(−|x − x′|²/2ℓ²) + n²·δ. X starts at the principal components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, lapack
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from ..data import Tree, branching_diffusion
from ..hierarchy import Embedded
from ..hierarchy.recovery import distortion
from ..maps.statistics import rank_correlation
from ..training import Scaling
from .experiment import Workspace

__all__ = [
    "GPLVM",
    "MEASURES",
    "Array",
    "maps",
    "negative_log_likelihood",
    "principal_components",
    "recovery",
    "scaled",
]

Array = NDArray[np.float64]

MEASURES = ("distortion", "distance_correlation", "depth_correlation")

# Added to the diagonal in units of the kernel's variance, so that rounding leaves the matrix positive.
_JITTER = 1e-8


def principal_components(y: Array, dim: int = 2) -> Array:
    """Rows projected on the directions of the largest singular values, after centring."""
    u, s, _ = np.linalg.svd(y - y.mean(0), full_matrices=False)
    return u[:, :dim] * s[:dim]


def negative_log_likelihood(x: Array, log_scales: Array, y: Array) -> tuple[float, Array, Array]:
    """−log p(Y | X) and its gradients.

    Arguments:
        x: latent points, (rows, dim).
        log_scales: logarithms of s, ℓ and n, shape (3,).
        y: data, (rows, columns), centred.

    Returns:
        The value, the gradient in x, the gradient in the logarithms.
    """
    rows, columns = y.shape
    s, length, noise = np.exp(log_scales)
    squares = cdist(x, x, "sqeuclidean")
    kernel = s**2 * np.exp(-squares / (2 * length**2))
    total = kernel.copy()
    total[np.diag_indices(rows)] += noise**2 + _JITTER * s**2
    factor = cholesky(total, lower=True, overwrite_a=True, check_finite=False)
    inverse = lapack.dpotri(factor, lower=True)[0]  # its lower triangle
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    solved = inverse @ y
    value = (
        0.5 * columns * rows * np.log(2 * np.pi)
        + columns * np.log(np.diag(factor)).sum()
        + 0.5 * float((y * solved).sum())
    )
    slope = 0.5 * (columns * inverse - solved @ solved.T)  # of the value in K
    weighted = slope * kernel
    in_x = -2 / length**2 * (weighted.sum(1, keepdims=True) * x - weighted @ x)
    trace = float(np.trace(slope))
    in_scales = np.array(
        [
            2 * float(weighted.sum()) + 2 * _JITTER * s**2 * trace,
            float((weighted * squares).sum()) / length**2,
            2 * noise**2 * trace,
        ]
    )
    return float(value), in_x, in_scales


@dataclass(frozen=True)
class GPLVM:
    """A fitted model.

    Example:
        >>> y = np.random.default_rng(0).normal(size=(20, 4))
        >>> GPLVM.fit(y, iterations=5).x.shape
        (20, 2)
    """

    x: Array
    log_scales: Array
    log_likelihood: float

    @classmethod
    def fit(cls, y: Array, dim: int = 2, iterations: int = 200) -> GPLVM:
        """Maximise the likelihood by L-BFGS, from principal components of unit variance, s = ℓ = 1 and n² = 1/10."""
        y = y - y.mean(0)
        start = principal_components(y, dim)

        def objective(parameters: Array) -> tuple[float, Array]:
            value, in_x, in_scales = negative_log_likelihood(parameters[3:].reshape(-1, dim), parameters[:3], y)
            return value, np.concatenate([in_scales, in_x.ravel()])

        first = np.concatenate([[0.0, 0.0, 0.5 * np.log(0.1)], (start / start.std(0)).ravel()])
        found = minimize(objective, first, jac=True, method="L-BFGS-B", options={"maxiter": iterations})
        return cls(found.x[3:].reshape(-1, dim), found.x[:3], -float(found.fun))


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
