"""Methods that the experiments need besides the library's own: baselines, classifiers, and the weighted graph loss.

The Gaussian process latent variable model (Lawrence, 2005) is a baseline for the map, as in the paper's appendix C.1.
Rows are values of independent Gaussian processes, one a column, at latent points X that are found by maximising the
marginal likelihood, with kernel k(x, x′) = s²·exp(−|x − x′|²/2ℓ²) + n²·δ. X starts at the principal components.

Classifiers on embeddings (section 4.2 and appendix C.2) are trained many at once. One has the architecture of the
decoder with as many outputs as there are classes; its first layer starts at the decoder's. Its input is the posterior's
centre.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cholesky, lapack
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from ..data import Tree, branching_diffusion
from ..geometry import hyperboloid as h
from ..hierarchy import Embedded
from ..hierarchy.trees import distortion
from ..maps.statistics import rank_correlation
from ..models import GraphVAE
from ..models.graph_vae import AnyPairs
from ..nn import Curvature, decoder
from ..nn.layers import Curved
from ..training import Fitted, Rows, Scaling
from .experiment import Workspace

__all__ = [
    "GPLVM",
    "MEASURES",
    "Array",
    "ClassifierSettings",
    "WeightedGraphVAE",
    "centres",
    "classifier",
    "confusions",
    "maps",
    "negative_log_likelihood",
    "principal_components",
    "recovery",
    "scaled",
]

Array = NDArray[np.float64]

MEASURES = ("distortion", "distance_correlation", "depth_correlation")

# Rows that are encoded at once.
_BATCH = 4096
# Added to the diagonal in units of the kernel's variance, so that rounding leaves the matrix positive.
_JITTER = 1e-8


def principal_components(y: Array, dim: int = 2) -> Array:
    """Project rows on the directions of the largest singular values, after centring."""
    u, s, _ = np.linalg.svd(y - y.mean(0), full_matrices=False)
    return u[:, :dim] * s[:dim]


def negative_log_likelihood(x: Array, log_scales: Array, y: Array) -> tuple[float, Array, Array]:
    """Compute −log p(Y | X) and its gradients.

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
    """Centre and scale all observations, as the models see them."""
    scaling = Scaling.standard(tree.x)
    return (tree.x - scaling.shift) / scaling.scale


def maps(seeds: Sequence[int], iterations: int, workspace: Workspace) -> dict[str, Any]:
    """Judge the maps of PCA and GPLVM for every data set; they are made on the CPU, a data set a core."""
    advance, found = workspace.reporter.counter(f"{workspace.task} maps", len(seeds)), []
    calls = (joblib.delayed(_judge_maps)(seed, iterations) for seed in seeds)
    for one in joblib.Parallel(n_jobs=min(len(seeds), joblib.cpu_count()), return_as="generator")(calls):
        found.append(one)
        advance()
    return {"maps": {name: [one[name] for one in found] for name in ("PCA", "GPLVM")}}


def _judge_maps(seed: int, iterations: int) -> dict[str, dict[str, float]]:
    tree = branching_diffusion(seed=seed)
    y = scaled(tree)
    model = GPLVM.fit(y, iterations=iterations)
    own = {"PCA": principal_components(y), "GPLVM": model.x - model.x.mean(0)}
    # A plane is the ball of curvature 0.
    result = {name: {"seed": seed, **recovery(tree, Embedded(x, 0.0))} for name, x in own.items()}
    result["GPLVM"]["log_likelihood"] = model.log_likelihood
    return result


def recovery(tree: Tree, points: Embedded) -> dict[str, float]:
    """Measure how well a map of a tree's observations shows the tree, in three figures of `curvae.hierarchy.Recovery`.

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


# --- classifiers on embeddings --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassifierSettings:
    """How a classifier is trained: Adam on the cross entropy."""

    trainings: int = 5
    epochs: int = 5
    batch_size: int = 64
    learning_rate: float = 1e-3


def centres(fitted: Fitted, rows: Rows) -> Tensor:
    """Compute posterior centres S as the decoder takes them, (rows, d)."""
    model = fitted.model
    c = model.space.curvatures()[0].double()
    with torch.no_grad():
        return torch.cat(
            [
                h.saturate(model.encode(rows.batch(index)).loc, c, model.dtype)
                for index in torch.arange(len(rows), device=model.device).split(_BATCH)
            ]
        )


def classifier(fitted: Fitted, classes: int, seed: int) -> nn.Sequential:
    """Build a classifier whose first layer is that of the model's decoder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = decoder(fitted.config.decoder, fitted.model.space, fitted.config.layers[::-1], classes)
    c = float(fitted.model.space.curvatures()[0].detach())  # as trained; the space of an embedding does not change
    made[0].load_state_dict(fitted.model.decoder.get_submodule("0").state_dict())
    for layer in made:
        if isinstance(layer, Curved):
            layer.curvature = Curvature(c)
    return made


def confusions(
    fitted: Sequence[Fitted],
    train: tuple[Sequence[Tensor], Tensor],
    test: tuple[Sequence[Tensor], Tensor],
    classes: int,
    settings: ClassifierSettings,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> Tensor:
    """Train classifiers and count how often each class is taken for each, (models, trainings, classes, classes).

    Rows are the truth.

    Arguments:
        fitted: models of one architecture, curvatures may differ.
        train, test: points of every model, and the labels that they share.
        classes: number of labels.
        settings: of the training.
        progress: receives the steps done and the steps in all.
    """
    each = settings.trainings
    owner = torch.arange(len(fitted)).repeat_interleave(each)
    seeds = [fitted[i].config.seed * each + k % each for k, i in enumerate(owner.tolist())]
    networks = [classifier(fitted[i], classes, seed) for i, seed in zip(owner.tolist(), seeds, strict=True)]
    points, labels = torch.stack(list(train[0])), train[1]
    device = points.device
    parameters, buffers = stack_module_state([network.to(device) for network in networks])
    scores = vmap(lambda parameters, buffers, x: functional_call(networks[0], (parameters, buffers), (x,)))
    optimiser = torch.optim.Adam(parameters.values(), lr=settings.learning_rate, fused=True)
    owner = owner.to(device).unsqueeze(1)
    steps = -(-len(labels) // settings.batch_size)
    for epoch in range(settings.epochs):
        sources = [torch.Generator().manual_seed(1000003 * epoch + seed) for seed in seeds]
        order = torch.stack([torch.randperm(len(labels), generator=source) for source in sources]).to(device)
        for step, index in enumerate(order.split(settings.batch_size, 1), 1):
            loss = F.cross_entropy(
                scores(parameters, buffers, points[owner, index]).mT, labels[index], reduction="none"
            )
            optimiser.zero_grad()
            loss.mean(1).sum().backward()
            optimiser.step()
            if step % 50 == 0 or step == steps:
                progress(epoch * steps + step, settings.epochs * steps)
    points, labels = torch.stack(list(test[0])), test[1]
    counts = torch.zeros(len(owner), classes * classes, dtype=torch.int64, device=device)
    with torch.no_grad():
        for index in torch.arange(len(labels), device=device).split(1024):
            pair = labels[index] * classes + scores(parameters, buffers, points[owner, index]).argmax(-1)
            counts.scatter_add_(1, pair, torch.ones_like(pair))
    return counts.cpu().view(len(fitted), each, classes, classes)


# --- graphs ---------------------------------------------------------------------------------------------------------


class WeightedGraphVAE(GraphVAE):
    """The weighted loss of the first code of variational graph auto-encoders, which is not a bound on any likelihood.

    It gives edges the weight of all other pairs together, π = (n² − 2E)/(2E), multiplies the mean over all n² pairs by
    ν = n²/(2(n² − 2E)), and divides the divergence, a mean over nodes, by n once more. Times n² that is

        −2ν·Σ_{i<j} [A_ij·π·log p_ij + (1 − A_ij)·log(1 − p_ij)] + Σ_i KL_i,

    so 2ν ≈ 1 stands where the paper has 2, but every edge counts π times, hundreds of times in a sparse graph.

    Arguments:
        model: whose parts are taken.
        nodes, edges: how many the graph has.

    References:
        Kipf and Welling (2016), Variational graph auto-encoders; the loss is in the authors' code.
    """

    def __init__(self, model: GraphVAE, nodes: int, edges: int) -> None:
        rest = nodes * nodes - 2 * edges
        super().__init__(model.encoder, model.posterior, model.edges, weight=nodes * nodes / rest)
        self.edge_weight = rest / (2 * edges)

    def log_likelihood(self, S: Tensor, pairs: AnyPairs, popularity: Tensor | None = None) -> Tensor:
        """Sum over i < j with the weight of the edges; all pairs must be seen, and no node has a popularity."""
        if not isinstance(pairs, Tensor):
            raise ValueError("the weighted loss needs all pairs; give the edges")
        d: Any = self.space.pair_distances(S, pairs)
        present = self.edges.log_prob(d, torch.ones_like(d)).sum(-1)
        return super().log_likelihood(S, pairs) + (self.edge_weight - 1.0) * present
