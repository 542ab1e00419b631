"""How shards are computed: trainings judged by marginal likelihood, searches for settings, baselines, classifiers.

The Gaussian process latent variable model (Lawrence, 2005) is a baseline for the map, as in the paper's appendix C.1.
Rows are values of independent Gaussian processes, one a column, at latent points X that are found by maximising the
marginal likelihood, with kernel k(x, x′) = s²·exp(−|x − x′|²/2ℓ²) + n²·δ. X starts at the principal components.

Classifiers on embeddings (section 4.2 and appendix C.2) are trained many at once. One has the architecture of the
decoder with as many outputs as there are classes; its first layer starts at the decoder's. Its input is the posterior's
centre.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import joblib
import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from ..data import Tree, branching_diffusion
from ..hierarchy import Embedded
from ..hierarchy.trees import distortion
from ..maps.statistics import Array, rank_correlation
from ..models import GraphVAE
from ..models.graph_vae import AnyPairs
from ..models.likelihoods.base import Matrix
from ..nn import Curvature, decoder
from ..nn.layers import Curved
from ..training import Config, Embedding, Fitted, Rows, Scaling, Split, build, fit_many
from ..training.evaluate import Likelihoods, active_dimensions, likelihoods_many
from ..training.fitted import seeded
from ..training.storage import read_tensors, write_tensors
from .experiment import Shard, Workspace

__all__ = [
    "MEASURES",
    "Array",
    "ExperimentData",
    "WeightedGraphVAE",
    "centres",
    "classifier",
    "confusions",
    "gplvm",
    "maps",
    "negative_log_likelihood",
    "principal_components",
    "recovery",
    "search_shard",
    "seeds",
    "split_settings",
    "train",
    "training_shard",
]


MEASURES = ("distortion", "distance_correlation", "depth_correlation")

_ROWS = 4096  # encoded at once
_DRAWS = 32  # a row, for the divergence from the prior
_JITTER = 1e-8  # added to the diagonal in units of the kernel's variance, so that rounding leaves the matrix positive


# --- trainings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExperimentData:
    """Data of a training: rows with their split, their scaling, and the rows to judge by."""

    x: Matrix
    split: Split
    scaling: Scaling
    test: Matrix


Extra = Callable[[Sequence[Fitted], Sequence[ExperimentData], Workspace], Sequence[Mapping[str, Any]]]


def training_shard(
    name: str,
    configs: Sequence[Config],
    samples: int,
    dataset: Callable[[int], ExperimentData],
    data: Mapping[str, Any],
    *,
    tf32: bool = False,
    extra: Extra | None = None,
    cache: str | None = None,
) -> Shard:
    """Make the shard that trains models and judges them by the likelihood of their test rows.

    Arguments:
        name: of the shard.
        configs: of the trainings.
        samples: importance samples a row for the likelihoods.
        dataset: data for every seed; called once a seed.
        data: what distinguishes the data, for the settings of the shard.
        tf32: compute likelihoods on CUDA with TF32 products; a check against float32 is recorded.
        extra: more figures of every trained model, from the models and their data.
        cache: name under which the trained models are kept.
    """
    settings = {**split_settings(configs), "samples": samples, "data": dict(data), "tf32_likelihoods": tf32}
    return Shard(name, settings, partial(_train_and_judge, configs, samples, dataset, tf32, extra, cache))


def _train_and_judge(
    configs: Sequence[Config],
    samples: int,
    dataset: Callable[[int], ExperimentData],
    tf32: bool,
    extra: Extra | None,
    cache: str | None,
    workspace: Workspace,
) -> dict[str, Any]:
    """Return the figures of every training; arguments are those of `training_shard`."""
    by_seed = {seed: dataset(seed) for seed in dict.fromkeys(config.seed for config in configs)}
    datasets = [by_seed[config.seed] for config in configs]
    fitted = train(configs, datasets, workspace, cache, again=True)
    tests = [one.test for one in datasets]
    advance = workspace.reporter.counter(f"{workspace.task} likelihoods", sum(test.shape[0] for test in tests))
    found: list[Likelihoods] = []
    for k in range(0, len(fitted), 40):  # more at once take memory, not less time
        found += likelihoods_many(fitted[k : k + 40], tests[k : k + 40], samples, advance=advance, tf32=tf32)
    result: dict[str, Any] = {}
    if tf32 and workspace.device.type == "cuda":
        few = [tests[0][:200]]
        exact, rough = (likelihoods_many(fitted[:1], few, samples, tf32=tf32)[0].mean for tf32 in (False, True))
        result["tf32_gap"] = rough - exact
    # Seeds may share their data, which is then on the device once.
    rows = {id(one): Rows(one.test, one.scaling, workspace.device) for one in by_seed.values()}
    more = [{}] * len(fitted) if extra is None else extra(fitted, datasets, workspace)
    records = [
        {"config": own, **_figures(one, rows[id(data)], likelihoods), **others}
        for own, one, data, likelihoods, others in zip(
            split_settings(configs)["trainings"], fitted, datasets, found, more, strict=True
        )
    ]
    return {"trainings": records, **result}


def _figures(fitted: Fitted, test: Rows, likelihoods: Likelihoods) -> dict[str, Any]:
    """Compute the likelihood of the test rows, where their posteriors lie, and their divergence from the prior.

    The divergence is the mean over rows of log q(z|x) − log p(z), with its Monte Carlo standard error, and the lowest
    mean of any row.
    """
    model = fitted.model
    generator = torch.Generator(model.device).manual_seed(0)
    means, variances, centres = [], [], []
    with torch.no_grad():
        for index in torch.arange(len(test), device=model.device).split(_ROWS):
            batch = test.batch(index)
            centres.append(model.encode(batch).loc)
            _, kl = model.draw(batch, model.noise(len(batch), _DRAWS, generator))
            means.append(kl.mean(0))
            variances.append(kl.var(0) / _DRAWS)
    mean = torch.cat(means)
    _, _, c, scale = model.space.figures()[0]
    embedding = Embedding(torch.cat(centres).cpu().numpy(), np.empty(0), c)
    learned = fitted.config.learn_curvature or fitted.config.learn_prior_scale
    return {
        "nll": -likelihoods.mean,
        "nll_error": float(np.sqrt((likelihoods.error**2).sum()) / len(likelihoods.error)),
        "median_ess": float(np.median(likelihoods.ess)),
        "kl": float(mean.mean()),
        "kl_error": float(torch.cat(variances).sum().sqrt()) / len(mean),
        "kl_lowest_row": float(mean.min()),
        "active_dimensions": active_dimensions(embedding, scale),
        "mean_radius": float(embedding.radius.mean()),
        "training_elbo": fitted.last["elbo"],
        **({name: fitted.last[name] for name in ("c", "prior_scale")} if learned else {}),
        **({} if fitted.failure is None else {"failure": fitted.failure}),
    }


def search_shard(
    name: str,
    tried: Sequence[Config],
    epochs: int,
    seed: int,
    numbers: tuple[int, int],
    samples: tuple[int, int],
    datasets: tuple[Callable[[int], ExperimentData], Callable[[int], ExperimentData]],
    data: Mapping[str, Any],
    *,
    tf32: bool = False,
    extra: Extra | None = None,
) -> Shard:
    """Make the shard that tries settings of a family of models, then trains and judges the best.

    Arguments:
        name: of the shard.
        tried: the settings.
        epochs: of the trainings that choose.
        seed: the first of those that are judged; those that choose lie far from them.
        numbers: how many seeds choose, and how many are judged.
        samples: importance samples for choosing and for judging.
        datasets: for every seed, data to choose by, with the rows that decide as test rows, and data to judge by.
        data, tf32: as of `training_shard`.
        extra: more figures of the trainings that are judged.
    """

    def search(workspace: Workspace) -> dict[str, Any]:
        short = [one for own in tried for one in seeds(replace(own, epochs=epochs), numbers[0], 1000 + seed)]
        choosing = replace(workspace, task=f"{workspace.task}, search")
        found = _train_and_judge(short, samples[0], datasets[0], tf32, None, None, choosing)["trainings"]
        # A training that failed is never chosen.
        judged = [np.inf if "failure" in record else record["nll"] for record in found]
        scores = np.reshape(judged, (len(tried), -1)).mean(1)
        best = tried[int(scores.argmin())]
        own = seeds(best, numbers[1], seed)
        trainings = _train_and_judge(own, samples[1], datasets[1], tf32, extra, None, workspace)["trainings"]
        for record in trainings:
            record["seed"] = record.pop("config")["seed"]
        return {
            "validation_nll": scores.tolist(),
            "chosen": best.flat(),
            "trainings": trainings,
        }

    settings = {
        "tried": [one.flat() for one in tried],
        "epochs_of_the_search": epochs,
        "seeds_of_the_search": numbers[0],
        "trainings": numbers[1],
        "first_seed": seed,
        "samples_of_the_search": samples[0],
        "samples": samples[1],
        "data": dict(data),
        "tf32_likelihoods": tf32,
    }
    return Shard(name, settings, search)


def train(
    configs: Sequence[Config],
    datasets: Sequence[ExperimentData],
    workspace: Workspace,
    cache: str | None = None,
    again: bool = False,
) -> list[Fitted]:
    """Train models; with `cache`, keep them under that name.

    Models that were kept with the same settings are loaded instead, unless `again`.
    """
    path = workspace.cache / f"{cache}.safetensors"
    settings = json.dumps([config.flat() for config in configs])
    if cache is not None and not again and path.exists():
        tensors, metadata = read_tensors(path)
        if metadata.get("configs") == settings:
            fitted = []
            for i, (config, dataset) in enumerate(zip(configs, datasets, strict=True)):
                model, prefix = build(config, dataset.x.shape[1]), f"{i}."  # with which names of its parameters begin
                model.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
                model.to(workspace.device).eval()
                fitted.append(Fitted(config, model, dataset.scaling, "as asked", dataset.split, []))
            return fitted
    fitted = fit_many(
        configs,
        [dataset.x for dataset in datasets],
        splits=[dataset.split for dataset in datasets],
        scalings=[dataset.scaling for dataset in datasets],
        device=workspace.device,
        jobs=workspace.jobs,
        progress=workspace.progress("training"),
        warn=workspace.reporter.warn,
    )
    if cache is not None:
        kept = {f"{i}.{name}": t for i, one in enumerate(fitted) for name, t in one.model.state_dict().items()}
        write_tensors(path, kept, {"configs": settings})
    return fitted


def split_settings(configs: Sequence[Config]) -> dict[str, Any]:
    """Split configurations into what they share, "config", and what each has for itself, "trainings".

    The seed always belongs to the latter.

    Example:
        >>> found = split_settings([Config(seed=0), Config(seed=1)])
        >>> found["trainings"], found["config"]["dim"]
        ([{'seed': 0}, {'seed': 1}], 2)
    """
    every = [config.flat() for config in configs]
    common = {k: v for k, v in every[0].items() if k != "seed" and all(other[k] == v for other in every)}
    return {"config": common, "trainings": [{k: v for k, v in one.items() if k not in common} for one in every]}


def seeds(config: Config, count: int, first: int = 0) -> list[Config]:
    """Repeat a configuration with `count` seeds."""
    return [replace(config, seed=seed) for seed in range(first, first + count)]


# --- baselines of the map -------------------------------------------------------------------------------------------


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
    points, logs = (torch.tensor(values, requires_grad=True) for values in (x, log_scales))
    s, length, noise = logs.exp()
    squares = (points.unsqueeze(1) - points).square().sum(-1)
    extra = (noise**2 + _JITTER * s**2) * torch.eye(len(x), dtype=torch.float64)
    kernel = s**2 * torch.exp(-squares / (2 * length**2)) + extra
    normal = MultivariateNormal(torch.zeros(len(x), dtype=torch.float64), kernel, validate_args=False)
    value = -normal.log_prob(torch.tensor(y.T)).sum()
    in_x, in_scales = torch.autograd.grad(value, (points, logs))
    return value.item(), in_x.numpy(), in_scales.numpy()


def gplvm(y: Array, dim: int = 2, iterations: int = 200) -> tuple[Array, float]:
    """Fit latent points by L-BFGS, from principal components of unit variance, s = ℓ = 1 and n² = 1/10.

    Returns:
        The points, (rows, dim), and the log-likelihood.

    Example:
        >>> y = np.random.default_rng(0).normal(size=(20, 4))
        >>> gplvm(y, iterations=5)[0].shape
        (20, 2)
    """
    y = y - y.mean(0)
    start = principal_components(y, dim)

    def objective(parameters: Array) -> tuple[float, Array]:
        value, in_x, in_scales = negative_log_likelihood(parameters[3:].reshape(-1, dim), parameters[:3], y)
        return value, np.concatenate([in_scales, in_x.ravel()])

    first = np.concatenate([[0.0, 0.0, 0.5 * np.log(0.1)], (start / start.std(0)).ravel()])
    found = minimize(objective, first, jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return found.x[3:].reshape(-1, dim), -float(found.fun)


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
    y = Scaling.standard(tree.x).apply(tree.x)  # as the models see them
    x, log_likelihood = gplvm(y, iterations=iterations)
    # A plane is the ball of curvature 0.
    pca, other = (recovery(tree, Embedded(own, 0.0)) for own in (principal_components(y), x - x.mean(0)))
    return {"PCA": {"seed": seed, **pca}, "GPLVM": {"seed": seed, **other, "log_likelihood": log_likelihood}}


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


def centres(fitted: Fitted, rows: Rows) -> Tensor:
    """Compute posterior centres S as the decoder takes them, (rows, d)."""
    model = fitted.model
    with torch.no_grad():
        return torch.cat(
            [
                model.space.saturate(model.encode(rows.batch(index)).loc, model.dtype)
                for index in torch.arange(len(rows), device=model.device).split(_ROWS)
            ]
        )


def classifier(fitted: Fitted, classes: int, seed: int) -> nn.Sequential:
    """Build a classifier whose first layer is that of the model's decoder."""
    with seeded(seed):
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
    progress: Callable[[float, float], None] = lambda done, total: None,
    *,
    trainings: int,
    epochs: int,
    batch_size: int,
    learning_rate: float,
) -> Tensor:
    """Train classifiers and count how often each class is taken for each, (models, trainings, classes, classes).

    Rows are the truth. Classifiers are trained with Adam on the cross entropy.

    Arguments:
        fitted: models of one architecture, curvatures may differ.
        train, test: points of every model, and the labels that they share.
        classes: number of labels.
        progress: receives the steps done and the steps in all.
        trainings: classifiers of every model.
        epochs, batch_size, learning_rate: of a training.
    """
    owner = torch.arange(len(fitted)).repeat_interleave(trainings)
    seeds = [fitted[i].config.seed * trainings + k % trainings for k, i in enumerate(owner.tolist())]
    networks = [classifier(fitted[i], classes, seed) for i, seed in zip(owner.tolist(), seeds, strict=True)]
    points, labels = torch.stack(list(train[0])), train[1]
    device = points.device
    parameters, buffers = stack_module_state([network.to(device) for network in networks])
    scores = vmap(lambda parameters, buffers, x: functional_call(networks[0], (parameters, buffers), (x,)))
    optimiser = torch.optim.Adam(parameters.values(), lr=learning_rate, fused=True)
    owner = owner.to(device).unsqueeze(1)
    steps = -(-len(labels) // batch_size)
    for epoch in range(epochs):
        sources = [torch.Generator().manual_seed(1000003 * epoch + seed) for seed in seeds]
        order = torch.stack([torch.randperm(len(labels), generator=source) for source in sources]).to(device)
        for step, index in enumerate(order.split(batch_size, 1), 1):
            found = scores(parameters, buffers, points[owner, index])
            optimiser.zero_grad()
            F.cross_entropy(found.mT, labels[index], reduction="none").mean(1).sum().backward()
            optimiser.step()
            if step % 50 == 0 or step == steps:
                progress(epoch * steps + step, epochs * steps)
    points, labels = torch.stack(list(test[0])), test[1]
    counts = torch.zeros(len(owner), classes * classes, dtype=torch.int64, device=device)
    with torch.no_grad():
        for index in torch.arange(len(labels), device=device).split(1024):
            pair = labels[index] * classes + scores(parameters, buffers, points[owner, index]).argmax(-1)
            counts.scatter_add_(1, pair, torch.ones_like(pair))
    return counts.cpu().view(len(fitted), trainings, classes, classes)


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
