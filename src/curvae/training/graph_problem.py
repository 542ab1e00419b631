"""Models of graphs: built, trained alone, together or to compare curvatures, kept with what using them needs, and what
they say about nodes and edges.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from torch import Tensor
from torch.utils._pytree import tree_map

from ..data import EdgeSplit, Graph, memory, split_edges
from ..data.dataset import Scaling
from ..data.graph_data import Edges, Rule, matched_pairs, neighbourhood_ranks, rules
from ..data.graph_reading import Matrix
from ..errors import CurvaeError
from ..maps.embedding import Embedding, placed
from ..maps.statistics import ranks
from ..models import FermiDirac, GeodesicEdges, GraphBatch, GraphVAE, PairSampler, Posterior, Terms
from ..models.graph_vae import AnyPairs, WeightedEdges, exact, joined_nodes, pair_count
from ..nn import Adjacency, AdjacencyMaker, FreeVectors, GraphEncoder, Popularity
from .comparison import Comparison, ComparisonPlan, Curvatures, compare_splits, curved_values
from .engine import Engine, EpochResult, Failure
from .fitted import FittedModel, GraphConfig, Record, Stored, make_space, restored_model, seeded
from .fitting import digest, train_many, train_one
from .stacks import Judged, ModelInTraining, Problem, Task, require_one_each

__all__ = [
    "DENSE",
    "START",
    "FittedGraph",
    "GraphComparison",
    "GraphEngine",
    "GraphProblem",
    "Links",
    "Neighbourhood",
    "TrainingGraph",
    "build_graph_model",
    "compare_graph",
    "embed_graph",
    "feature_scaling",
    "feature_tensor",
    "fit_graph",
    "fit_graphs",
    "graph_facts",
    "hidden_links",
    "judge_split",
    "link_baselines",
    "link_figures",
    "link_probability",
    "link_scores",
    "listed",
    "missing_links",
    "neighbourhood",
    "plan_graphs",
    "require_buildable_graph",
    "score_links",
]

# From a configuration to a fresh model of a graph.

START = 0.4
"""σ of every node at first.

Small beside the distances over which the probability of an edge falls: with σ near 0.7, as softplus(0) would have it,
nodes that cannot be distinguished yet are pressed together; with 0.2 the plane fails on some graphs. Found by trying
starts from 0.2 to 0.69 on validation edges; results/paper/table4.json has what these two give.
"""

_START_BALANCED = 0.2  # the same where pairs are balanced, which do not press nodes together


def require_buildable_graph(config: GraphConfig, nodes: int, features: int | None = None) -> None:
    """Raise for a model that cannot be built, without building it; arguments as of `build_graph_model`."""
    if features is not None and config.encoder == "free":
        raise CurvaeError(
            '`encoder="free"` cannot read features of nodes; leave them out, or use `encoder="convolutions"`'
        )
    inputs, factors = nodes if features is None else features, len(config.factors)
    # Models of products, or with popularity, hold numbers of all pairs that they see.
    all_pairs = config.pairs == "all" and listed(config) and exact(nodes, listed=True)
    pairs = 300 * factors * config.samples * pair_count(nodes, config.directed) if all_pairs else 0
    memory.require(
        16 * inputs * config.layers[0] + nodes * (64 * sum(config.layers) + 8 * config.samples * config.dim) + pairs,
        f"a model of {nodes:,} nodes with {inputs:,} inputs",
        fix="lower `hidden` or `samples`",
    )
    make_space(config)


def build_graph_model(config: GraphConfig, nodes: int, features: int | None = None) -> GraphVAE:
    """Build a model with weights drawn from the configuration's seed.

    Arguments:
        config: its settings.
        nodes: of the graph.
        features: of a node, if it has any.
    """
    require_buildable_graph(config, nodes, features)
    inputs = nodes if features is None else features
    with seeded(config.seed):
        return GraphVAE(
            GraphEncoder(inputs, config.layers)
            if config.encoder == "convolutions"
            else FreeVectors(nodes, config.layers[-1]),
            Posterior(config.layers[-1], make_space(config)).start(START if config.pairs == "all" else _START_BALANCED),
            GeodesicEdges() if config.edges == "geodesic" else FermiDirac(),
            config.weight,
            popularity=Popularity(config.layers[-1], config.directed) if config.popular else None,
        )


def listed(config: GraphConfig) -> bool:
    """Return whether a model that sees all pairs must hold them in memory."""
    return len(config.factors) > 1 or config.popular


# Features of nodes as networks see them, and as they are stored.


def feature_scaling(features: Matrix) -> Scaling:
    """To mean 0 and variance 1 of every column. A sparse matrix, which must stay so, is only divided by one number: the
    mean square length of its rows becomes 1, the length of those of the identity matrix, which stands for nodes without
    features. With rows as long as those of standardised columns, models of papers overfit the words in them.

    Example:
        >>> feature_scaling(csr_array(np.array([[0.0, 3.0], [0.0, 4.0], [0.0, 0.0]]))).scale.round(3).tolist()
        [2.887, 2.887]
    """
    if not issparse(features):
        return Scaling.standard(features)
    x: Any = features
    largest = float(abs(x.data).max()) if x.nnz else 0.0
    unit = largest * float(np.sqrt(((x.data / largest) ** 2).sum() / x.shape[0])) if largest else 1.0
    return Scaling(np.zeros(x.shape[1]), np.full(x.shape[1], unit))


def feature_tensor(features: Matrix, scaling: Scaling, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Scaled features, (n, ·), a sparse tensor of those that are sparse."""
    if not issparse(features):
        return torch.from_numpy(scaling.apply(features)).to(device, dtype)
    x: Any = features
    rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    places = torch.from_numpy(np.stack([rows, x.indices.astype(np.int64)]))
    values = torch.from_numpy(x.data / scaling.scale[x.indices]).to(dtype)
    return torch.sparse_coo_tensor(places, values, x.shape, check_invariants=False, is_coalesced=True).to(device)


# Steps over whole graphs.

DENSE = 1024
"""nodes up to which a single graph is a matrix"""

_VALIDATE_EVERY = 10  # steps


@dataclass(frozen=True, eq=False)
class TrainingGraph:
    """What a model sees of a graph: some of the edges, and the features of the nodes.

    Arguments:
        n_nodes: number of nodes.
        edges: (2, E), each once.
        weights: of these edges, or None.
        features: (n, ·), scaled, dense or sparse, or None.
        directed: whether edges lead from the first to the second node.
    """

    n_nodes: int
    edges: Tensor
    weights: Tensor | None = None
    features: Tensor | None = None
    directed: bool = False

    @classmethod
    def from_graph(
        cls,
        graph: Graph,
        split: EdgeSplit | None = None,
        scaling: Scaling | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Of a graph, with all edges or those that a split has for training."""
        kept = graph.edges if split is None else split.train
        edges, weights = torch.from_numpy(np.ascontiguousarray(kept.T)).to(device), None
        if graph.weights is not None:
            keys, own = (pairs[:, 0] * graph.n_nodes + pairs[:, 1] for pairs in (graph.edges, kept))
            weights = torch.from_numpy(graph.weights[np.searchsorted(keys, own)]).to(device, dtype)
        x = graph.features
        features = None if x is None or scaling is None else feature_tensor(x, scaling, device, dtype)
        return cls(graph.n_nodes, edges, weights, features, graph.directed)

    def maker(self, dtype: torch.dtype, dense: bool | None = None) -> AdjacencyMaker:
        """Return what makes Â of these edges or some of them, dense for small graphs or where asked for."""
        weights = torch.ones_like(self.edges[0], dtype=dtype) if self.weights is None else self.weights.to(dtype)
        # Two products with half of the features each are the slower, the larger the matrix.
        small = self.n_nodes <= (DENSE // 4 if self.directed else DENSE)
        return AdjacencyMaker(self.edges, self.n_nodes, weights, small if dense is None else dense, self.directed)

    def all_pairs(self, balanced: bool) -> AnyPairs:
        """Return the edges, which stand for all pairs of nodes; `balanced` ones count by their weights, others alike.

        Weights are divided by their mean, and so have no unit.
        """
        if self.weights is None or not balanced:
            return self.edges
        return WeightedEdges(self.edges, self.weights / self.weights.mean())

    def sampler(self, balanced: bool) -> PairSampler:
        """Return what draws balanced pairs of nodes with edges, or any pairs; edges count as in `all_pairs`."""
        pairs = self.all_pairs(balanced)
        weights = pairs.weight if isinstance(pairs, WeightedEdges) else None
        return PairSampler(self.edges, self.n_nodes, balanced, self.directed, weights)


class GraphEngine(Engine[GraphVAE, GraphConfig]):
    """A stack of models with its optimiser and graphs; an epoch is one step over the whole graph.

    The noise of model k, the pairs that it is fitted to where these are not all, and the edges that are hidden from its
    encoder come from (its seed, epoch) alone.

    Arguments:
        models, configs: as of `Engine`.
        seen: what each of them sees, graphs of one size with equally many edges.
        validation: pairs of each to validate it with, (2, P): edges, and after them as many pairs without one.
    """

    def __init__(
        self,
        models: Sequence[GraphVAE],
        configs: Sequence[GraphConfig],
        seen: Sequence[TrainingGraph],
        validation: Sequence[Tensor] = (),
    ) -> None:
        super().__init__(models, configs, configs[0].epochs, {})
        self.seen, self.validation, self.nodes = list(seen), list(validation), seen[0].n_nodes
        several = len(models) > 1
        self._makers = [part.maker(self.stack.dtype, dense=several or None) for part in seen]
        self._adjacencies = [maker() for maker in self._makers]
        # Of a node without an edge, which hidden edges may have left alone, nothing is known.
        joined = self.config.pairs == "balanced"
        if joined:  # a graph may have no pair of nodes with edges that is not joined
            counts = (pair_count(len(joined_nodes(part.edges, part.n_nodes)[0]), part.directed) for part in seen)
            seen_all = any(part.edges.shape[1] == count for part, count in zip(seen, counts, strict=True))
        else:
            seen_all = exact(self.nodes, listed(self.config))
        self._samplers = [] if seen_all else [part.sampler(joined) for part in seen]
        if several and self._samplers and self.config.pairs == "all":
            raise ValueError("graphs of which not every pair is seen are trained one at a time")
        self.beta = self._weights(1)

    def subset(self, places: list[int]) -> Self:
        return type(self)(
            [self.stack.models[i] for i in places],
            [self.configs[i] for i in places],
            [self.seen[i] for i in places],
            [self.validation[i] for i in places if self.validation],
        )

    def _shown(self, place: int, epoch: int) -> Adjacency:
        """Â of the edges that the encoder sees in a step: each counts for those that are hidden from it."""
        hide = self.config.hide
        if not hide or self.config.encoder == "free":
            return self._adjacencies[place]
        generator = self._generator(self.configs[place].seed, epoch, 2)
        draws = torch.rand(self.seen[place].edges.shape[1], generator=generator, device=self.stack.device)
        return self._makers[place]((draws >= hide).to(self.stack.dtype) / (1.0 - hide))

    def _pairs(self, place: int, epoch: int, generator: torch.Generator) -> AnyPairs:
        """Return the pairs that a step is fitted to."""
        if not self._samplers:
            return self.seen[place].all_pairs(self.config.pairs == "balanced")
        if self.config.pairs == "all":  # from one generator after the noise
            return self._samplers[place].step(generator)
        return self._samplers[place].balanced(self._generator(self.configs[place].seed, epoch, 1))

    def _terms(self, epoch: int) -> Terms:
        generators = self._generators(epoch)
        model, samples = self.stack.models[0], self.config.samples
        made = {one: model.noise(self.nodes, samples, one) for one in dict.fromkeys(generators)}
        graphs = [
            GraphBatch(self._shown(i, epoch), self._pairs(i, epoch, generator), self.seen[i].features)
            for i, generator in enumerate(generators)
        ]
        if len(self) == 1:
            return model.terms(graphs[0], made[generators[0]])
        noise = torch.stack([made[one] for one in generators])
        return Terms(*self.stack.terms(tree_map(lambda *parts: torch.stack(parts), *graphs), noise)[:2])

    def epoch(self, epoch: int) -> EpochResult:
        reconstruction, kl = self._terms(epoch)
        kl = kl.sum(-1)
        loss = (self.beta * kl - reconstruction).mean(-1) / self.nodes
        self.descend(torch.autograd.grad(loss.sum() if loss.dim() else loss, list(self.stack.leaves.values())))
        self.step += 1
        failures: dict[int, Failure] = {}
        self.check(loss.view(1, -1), 0, failures)
        means = torch.stack([reconstruction, kl]).detach().mean(-1).view(2, -1).T.cpu()
        return EpochResult(means / self.nodes, failures)

    def validate(self) -> list[Record]:
        """Compute the AUC of the validation pairs, every tenth step and at the end."""
        if not self.validation or (self.step % _VALIDATE_EVERY and self.step < self.total):
            return []
        features = [seen.features for seen in self.seen if seen.features is not None]
        each = zip(self._adjacencies, self.validation, *([features] if features else []), strict=True)
        with torch.no_grad():
            if len(self) == 1:
                scores = self.stack.models[0].scores(*next(each)).unsqueeze(0)
            else:
                given = tree_map(lambda *parts: torch.stack(parts), *each)
                scores = self.stack.pure("scores", self.stack.leaves, self.stack.buffers, *given)
        return [{"validation_auc": _auc(own)} for own in scores.cpu().numpy()]


def _auc(scores: NDArray[np.float64]) -> float:
    """Area under the ROC curve of telling the first half from the second."""
    half = len(scores) // 2
    if not np.isfinite(scores).all():
        return float("nan")
    return float((ranks(scores)[:half].mean() - (half + 1) / 2) / half)


_SPARSE = ("data", "indices", "indptr")
_SPLIT = ("train", "validation", "test", "validation_absent", "test_absent")


@dataclass
class FittedGraph(FittedModel):
    """A trained model of a graph with what is needed to use it.

    Arguments:
        config, model: what was trained.
        scaling: of the features, where there are any.
        split: which edges it was trained on; all of them without one.
        history: a record of every epoch.
        failure: why the training ended early; the weights are those of the last good epoch.
    """

    kind = "graph"
    units = False
    settings = GraphConfig

    config: GraphConfig
    model: GraphVAE
    scaling: Scaling | None
    split: EdgeSplit | None
    history: list[Record]
    failure: str | None = None

    def seen(self, graph: Graph) -> TrainingGraph:
        """Return what the model was trained on."""
        return TrainingGraph.from_graph(graph, self.split, self.scaling, self.model.device, self.model.dtype)

    def stored(self, data: Graph) -> Stored:
        """Return the graph too: edges, (2, E), and as JSON in bytes the names and labels of the nodes."""
        arrays: dict[str, Any] = {
            "edges": np.ascontiguousarray(data.edges.T),
            "names": _packed(data.names),
            "weights": data.weights,
            "labels": None if data.labels is None else _packed(data.labels),
        }
        if issparse(data.features):
            arrays |= {f"features.{name}": getattr(data.features, name) for name in _SPARSE}
        else:
            arrays["features"] = data.features
        if self.scaling is not None:
            arrays |= self.scaling.to_arrays()
        known = {name: numbers for name, numbers in arrays.items() if numbers is not None}
        parts = () if self.split is None else _SPLIT
        split = {f"split.{name}": np.ascontiguousarray(getattr(self.split, name).T) for name in parts}
        return known, split, {"data": graph_facts(data)}

    @classmethod
    def restore(
        cls,
        description: dict[str, Any],
        tensors: dict[str, Tensor],
        places: dict[str, Tensor],
        history: list[Record],
    ) -> tuple[FittedGraph, Graph]:
        config, graph = GraphConfig.from_json(description["config"]), _graph(description["data"], tensors)
        nodes, features = graph.n_nodes, None if graph.features is None else graph.features.shape[1]
        hidden = config.layers if config.encoder == "convolutions" else config.layers[-1:]
        sizes = nodes if features is None else features, *hidden, config.dim
        model = restored_model(tensors, sizes, lambda: build_graph_model(config, nodes, features))
        split = None
        if "split.train" in places:
            split = EdgeSplit(*(np.ascontiguousarray(places[f"split.{name}"].numpy().T) for name in _SPLIT))
        sigma = (nodes,) if len(config.factors) == 1 else (nodes, len(config.factors))
        if places["space"].shape != (nodes, model.space.width) or places["sigma"].shape != sigma:
            raise ValueError("its embedding has another number of nodes or dimensions")
        return cls(config, model, None if features is None else Scaling.from_tensors(tensors), split, history), graph


def graph_facts(graph: Graph) -> dict[str, Any]:
    """Return what `config.json` says of a graph."""
    return {
        "fingerprint": graph.fingerprint,
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        "components": int(graph.components.max()) + 1,
        "weighted": graph.weights is not None,
        "directed": graph.directed,
        "features": list(graph.feature_names),
        "label": graph.label_name,
        "notes": list(graph.notes),
        "warnings": list(graph.warnings),
    }


def _graph(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Graph:
    names, features = _unpacked(tensors["names"]), None
    if "features" in tensors:
        features = tensors["features"].numpy()
    elif "features.data" in tensors:
        parts = tuple(tensors[f"features.{name}"].numpy() for name in _SPARSE)
        features = csr_array(parts, shape=(len(names), len(facts["features"])))
        features.check_format(full_check=True)
    graph = Graph(
        names=names,
        edges=np.ascontiguousarray(tensors["edges"].numpy().T),
        weights=tensors["weights"].numpy() if "weights" in tensors else None,
        features=features,
        feature_names=tuple(facts["features"]),
        labels=_unpacked(tensors["labels"]) if "labels" in tensors else None,
        label_name=facts["label"],
        notes=tuple(facts["notes"]),
        warnings=tuple(facts["warnings"]),
        directed=facts["directed"],
    )
    if graph.fingerprint != facts["fingerprint"]:
        raise ValueError("its graph is not the one that was trained on")
    return graph


def _packed(texts: NDArray[np.str_]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(texts.tolist()).encode(), np.uint8).copy()


def _unpacked(texts: Tensor) -> NDArray[np.str_]:
    return np.array(json.loads(texts.numpy().tobytes()), dtype=np.str_)


# What a model of a graph says: embedding, probabilities of edges, comparison with baselines.

_PAIRS = 1 << 21  # of nodes, looked at at once
_DISTANCES, _FEWEST = 5 * 10**8, 100  # of all nodes from those that are asked, and how many these are at least


@dataclass(frozen=True)
class Links:
    """How well joined pairs of nodes are distinguished from as many others, by distance and popularity.

    Arguments:
        auc: area under the ROC curve.
        ap: average precision.
    """

    auc: float
    ap: float

    def __float__(self) -> float:
        """Return the figure by which models are compared: AUC."""
        return self.auc


def link_scores(scores_present: ArrayLike, scores_absent: ArrayLike) -> tuple[float, float]:
    """Area under the ROC curve, and average precision, of telling edges from pairs without one.

    Arguments:
        scores_present: one an edge, higher where an edge is expected.
        scores_absent: one a pair without an edge.

    Example:
        >>> link_scores([3.0, 2.0], [1.0, 0.0])
        (1.0, 1.0)
    """
    present, absent = (np.asarray(s, dtype=np.float64).reshape(-1) for s in (scores_present, scores_absent))
    scores = np.concatenate([present, absent])
    if not len(present) or not len(absent):
        raise CurvaeError("scores of edges and of pairs without an edge are needed; give at least one of each")
    if not np.isfinite(scores).all():
        raise CurvaeError("scores are not finite; the model has diverged: lower the learning rate")
    from sklearn.metrics import average_precision_score, roc_auc_score  # takes long to import

    truth = np.repeat([1, 0], [len(present), len(absent)])
    return float(roc_auc_score(truth, scores)), float(average_precision_score(truth, scores))


def embed_graph(fitted: FittedGraph, graph: Graph) -> Embedding:
    """Posterior centres of the nodes, computed in float64, and their popularity and side where the model has them."""
    fitted = fitted.double()
    seen, model = fitted.seen(graph), fitted.model
    with torch.no_grad():
        adjacency = seen.maker(torch.float64)()
        encoded = model.encoder(adjacency, seen.features)
        found = placed(model.space, [model.posterior(encoded)], units=False)
        if model.popularity is None:
            return found
        *popular, side = model.popularity(encoded, adjacency).cpu().numpy()
        return replace(found, popularity=np.stack(popular, 1) if model.directed else popular[0], side=side)


@dataclass(frozen=True)
class Neighbourhood:
    """How well the nodes next to a node on the map, popular ones first, are its neighbours in the graph.

    Arguments:
        map: mean average precision; see `neighbourhood_map`.
        asked: how many nodes it is the mean of: all that have an edge, or a random sample of them.
        sampled: whether it is of a sample.
        rank: mean rank of a neighbour among the nodes that are none; 1 is best.
    """

    map: float
    asked: int
    sampled: bool
    rank: float


def neighbourhood(embedding: Embedding, graph: Graph, limit: int = 5000, seed: int = 0) -> Neighbourhood:
    """Mean average precision and mean rank of neighbourhoods, of all nodes with an edge or `limit` drawn from them; of
    a graph of more than 100,000 nodes fewer, down to 100."""
    nodes = np.flatnonzero(np.bincount((graph.edges[:, 0] if graph.directed else graph.edges).ravel()))
    limit = min(limit, max(_FEWEST, _DISTANCES // graph.n_nodes))
    sampled = len(nodes) > limit
    if sampled:
        nodes = np.sort(np.random.default_rng(seed).choice(nodes, limit, replace=False))
    own = 0.0 if embedding.popularity is None else embedding.popularity.reshape(len(embedding), -1)[:, -1]
    side = np.zeros(len(embedding)) if embedding.side is None else embedding.side

    def rows(start: int, stop: int) -> NDArray[np.float64]:
        asked = nodes[start:stop]
        return embedding.take(asked).distances(embedding) - own + side[asked, None] * side

    precision, rank = neighbourhood_ranks(graph, rows, nodes)
    return Neighbourhood(precision, len(nodes), sampled, rank)


def missing_links(
    fitted: FittedGraph,
    graph: Graph,
    count: int,
    *,
    embedding: Embedding | None = None,
    progress: Callable[[int], None] = lambda nodes: None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the pairs of nodes without an edge that most likely have one, the likeliest first, and their probabilities.

    All pairs are looked at, some of them at a time: memory does not grow with the number of pairs.

    Arguments:
        fitted: a model of the graph.
        graph: the graph.
        count: how many pairs to find, or all that have no edge if these are fewer.
        embedding: where the model places the nodes, if that is known.
        progress: called with how many more nodes are done.

    Returns:
        Places of the two nodes in `graph.names`, (count, 2), i < j or, of a directed graph, from the first to the
        second; and the probability of an edge between the centres of both, (count,).
    """
    if count < 1:
        raise CurvaeError(f"`count` must be at least 1, got {count}")
    embedding = embed_graph(fitted, graph) if embedding is None else embedding
    nodes, links = np.arange(graph.n_nodes), graph.links()
    best, near = np.empty((0, 2), np.int64), np.empty(0)
    for first in np.split(nodes, nodes[:: max(1, _PAIRS // graph.n_nodes)][1:]):
        absent = nodes != first[:, None] if graph.directed else nodes > first[:, None]
        absent[links[first].nonzero()] = False
        pairs = np.argwhere(absent) + [first[0], 0]
        best, near = np.concatenate([best, pairs]), np.concatenate([near, embedding.nearness_of(pairs)])
        if len(near) > count:
            kept = np.argpartition(-near, count)[:count]
            best, near = best[kept], near[kept]
        progress(len(first))
    best = best[np.lexsort((best[:, 1], best[:, 0], -near))]
    return best, link_probability(fitted, embedding, best)


def link_probability(fitted: FittedGraph, embedding: Embedding, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probability of an edge between the centres of pairs of nodes, (pairs, 2)."""
    with torch.no_grad():
        gaps = torch.from_numpy(-embedding.nearness_of(pairs)).to(fitted.model.device)
        return fitted.model.edges.probability(gaps).cpu().numpy()


def link_figures(fitted: FittedGraph, graph: Graph) -> dict[str, Links]:
    """For the edges held out by the split of the model, "validation" and "test", if there are any."""
    if fitted.split is None:
        raise CurvaeError("the model was trained on all edges: none are left to be predicted; train with a split")
    return hidden_links(embed_graph(fitted, graph), fitted.split)


def hidden_links(embedding: Embedding, split: EdgeSplit) -> dict[str, Links]:
    """Compute `link_figures` from where the nodes lie."""
    parts = {"validation": (split.validation, split.validation_absent), "test": (split.test, split.test_absent)}
    return {
        name: Links(*link_scores(*map(embedding.nearness_of, both))) for name, both in parts.items() if len(both[0])
    }


# A model of a graph beside rules that need none, judged on the same pairs of nodes.


def score_links(score: Rule, graph: Graph, seen: Edges, edges: Edges, absent: Edges, dim: int) -> dict[str, Any]:
    """Say how well a model, and rules that need none, tell edges from other pairs.

    Arguments:
        score: of the model: a function from pairs, (pairs, 2), to scores, higher where it expects an edge.
        graph: of which no edge is among the other pairs.
        seen: edges that the model was trained on, (·, 2); all that the rules know.
        edges, absent: edges to find, and pairs without one, both (·, 2).
        dim: of the model, and number of singular vectors.

    Returns:
        "auc" and "ap" against `absent`, "auc_matched" and "ap_matched" against pairs with the degrees of the edges
        (None where there are none), of a directed graph "direction", and in "baselines" these of each rule;
        "matched_edges", how many edges have a pair with their degrees. The direction is the share of edges for which
        the score is higher than for one back, ties counting half, without edges that run both ways; None if all do.
    """
    degree = np.stack([np.bincount(ends, minlength=graph.n_nodes) for ends in seen.T])
    alike = matched_pairs(graph, edges, degree if graph.directed else degree.sum(0))
    one_way = edges[~np.isin(edges @ [1, graph.n_nodes], graph.edges @ [graph.n_nodes, 1])]

    def judged(rule: Rule) -> dict[str, float | None]:
        auc, ap = link_scores(rule(edges), rule(absent))
        matched = link_scores(*map(rule, alike)) if len(alike[0]) else (None, None)
        found = {"auc": auc, "ap": ap, "auc_matched": matched[0], "ap_matched": matched[1]}
        if not graph.directed:
            return found
        gain = np.sign(rule(one_way) - rule(one_way[:, ::-1]))
        return {**found, "direction": float((1 + gain.mean()) / 2) if len(gain) else None}

    others = {name: judged(rule) for name, rule in rules(seen, graph.n_nodes, dim, graph.directed).items()}
    return {**judged(score), "matched_edges": len(alike[0]), "baselines": others}


def judge_split(fitted: FittedGraph, graph: Graph, split: EdgeSplit) -> dict[str, Any]:
    """Of a model that was trained on a split: AUC and AP of "validation" edges, and of "test" edges `score_links`."""
    embedding = embed_graph(fitted, graph)
    return {
        "validation": vars(hidden_links(embedding, split)["validation"]),
        "test": score_links(
            embedding.nearness_of, graph, split.train, split.test, split.test_absent, fitted.config.dim
        ),
    }


def link_baselines(graph: Graph, split: EdgeSplit, dim: int = 2) -> dict[str, Links]:
    """Say how well rules that need no model find the test edges of a split, from its training edges.

    Arguments:
        graph: the graph.
        split: of its edges.
        dim: of the model that they are compared with: the number of singular vectors.

    Example:
        >>> from curvae.data import load_graph, split_edges
        >>> grid = load_graph([(10 * i + j, 10 * i + j + k) for i in range(9) for j in range(9) for k in (1, 10)])
        >>> {name: round(links.auc, 2) for name, links in link_baselines(grid, split_edges(grid), dim=8).items()}
        {'degree product': 0.28, 'common neighbours': 0.47, 'singular vectors': 0.69}
    """
    pairs = split.test, split.test_absent
    return {
        name: Links(*link_scores(*map(rule, pairs)))
        for name, rule in rules(split.train, graph.n_nodes, dim, graph.directed).items()
    }


# Tasks and trainings.


# Nodes of a graph up to which models of products, each of which holds all pairs in memory, are trained together.
_TOGETHER = 256

# Validation edges whose AUC is followed during the training.
_WATCHED = 1 << 16

Build = Callable[[GraphConfig, int, int | None], GraphVAE]


@dataclass(frozen=True, eq=False)
class GraphTask(Task):
    """A model of a graph to be trained."""

    config: GraphConfig
    source: Graph
    split: EdgeSplit | None

    @property
    def sizes(self) -> tuple[int, int, int | None]:
        """Nodes, edges that are trained on, and features."""
        features = self.source.features
        return (
            self.source.n_nodes,
            self.source.n_edges if self.split is None else len(self.split.train),
            None if features is None else features.shape[1],
        )

    @property
    def architecture(self) -> Any:
        """What the models of one stack have in common; large graphs and sparse features are trained alone."""
        nodes = self.source.n_nodes
        if self.config.pairs == "balanced":
            together = nodes <= DENSE
        else:
            together = nodes <= _TOGETHER if listed(self.config) else exact(nodes)
        together = together and not issparse(self.source.features)
        return self.config.architecture, self.sizes, None if together else self.place


def plan_graphs(
    configs: Sequence[GraphConfig],
    graphs: Graph | Sequence[Graph],
    splits: Sequence[EdgeSplit | None] | None = None,
    **problem: Any,
) -> tuple[GraphProblem, list[GraphTask]]:
    """Make a task for every configuration, and the problem that they belong to.

    Arguments:
        configs, graphs, splits: as of `curvae.training.fit_graphs`.
        problem: further arguments of `GraphProblem`.
    """
    each = [graphs] * len(configs) if isinstance(graphs, Graph) else list(graphs)
    require_one_each(configs, graphs=each, splits=splits)
    tasks = []
    for i, (config, graph) in enumerate(zip(configs, each, strict=True)):
        if graph.directed != config.directed:
            kind = "a" if graph.directed else "no"
            raise CurvaeError(
                f"edges of the graph have {kind} direction; set `directed={graph.directed}` in the settings"
            )
        name = Task.label(i, len(configs), config)
        tasks.append(GraphTask(i, name, config, graph, None if splits is None else splits[i]))
    return GraphProblem(**problem), tasks


@dataclass(frozen=True)
class GraphProblem(Problem[GraphTask, FittedGraph]):
    """Models of graphs."""

    build: Build = build_graph_model

    remedy = "lower `hidden` or `samples`"

    def fingerprinted(self, tasks: Sequence[GraphTask]) -> list[GraphTask]:
        splits = ("" if task.split is None else digest(task.split.train.astype("<i8")) for task in tasks)
        return [
            replace(task, data={"graph": task.source.fingerprint, "split": split})
            for task, split in zip(tasks, splits, strict=True)
        ]

    def models(self, tasks: Sequence[GraphTask]) -> list[GraphVAE]:
        made = []
        for task in tasks:
            nodes, edges, features = task.sizes
            model = self.build(task.config, nodes, features)
            if task.config.pairs == "balanced" and isinstance(model.edges, FermiDirac):
                # Edges are as rare among the pairs of a fresh model as in the graph.
                model.edges.lower(math.log(max(1, pair_count(nodes, model.directed) - edges) / max(1, edges)))
            made.append(model.to(self.device, self.dtype))
        return made

    def engine(self, tasks: Sequence[GraphTask], models: Sequence[GraphVAE]) -> GraphEngine:
        shown, watched = [], []
        for task in tasks:
            graph, split = task.source, task.split
            scaling = None if graph.features is None else feature_scaling(graph.features)
            shown.append(TrainingGraph.from_graph(graph, split, scaling, self.device, self.dtype))
            if split is not None and task.patience is not None:
                # Of very many pairs an even choice is looked at, which tells as much.
                parts = [
                    part[:: max(1, -(-len(part) // _WATCHED))] for part in (split.validation, split.validation_absent)
                ]
                watched.append(torch.from_numpy(np.ascontiguousarray(np.concatenate(parts).T)).to(self.device))
        return GraphEngine(models, [task.config for task in tasks], shown, watched)

    def result(self, task: GraphTask, trained: ModelInTraining) -> FittedGraph:
        scaling = None if task.source.features is None else feature_scaling(task.source.features)
        return FittedGraph(task.config, trained.model, scaling, task.split, trained.history, trained.failure)

    def judge(self, tasks: Sequence[GraphTask], fitted: Sequence[FittedGraph]) -> list[Judged]:
        judged = []
        for task, one in zip(tasks, fitted, strict=True):
            assert task.split is not None  # a comparison hides edges
            embedding = embed_graph(one, task.source)
            links = hidden_links(embedding, task.split)
            judged.append(Judged(links["validation"], links["test"], embedding, one.failure))
        return judged


def fit_graph(
    config: GraphConfig,
    graph: Graph,
    *,
    split: EdgeSplit | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    **training: Any,
) -> FittedGraph:
    """Train a model of a graph.

    Arguments:
        config: what to train.
        graph: with or without features of its nodes, which are centred and scaled.
        split: its edges for training; all of them without one.
        device, dtype: as of `curvae.training.fit`.
        training: folder, resume and progress, as there.

    Example:
        >>> from curvae.data import load_graph
        >>> graph = load_graph([(i, (i - 1) // 2) for i in range(1, 31)])
        >>> fitted = fit_graph(GraphConfig(epochs=3), graph)
        >>> [record["epoch"] for record in fitted.history]
        [1, 2, 3]
    """
    return train_one(*plan_graphs([config], graph, [split], asked=device, dtype=dtype), **training)


def fit_graphs(
    configs: Sequence[GraphConfig],
    graphs: Graph | Sequence[Graph],
    *,
    splits: Sequence[EdgeSplit | None] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    build: Build = build_graph_model,
    **training: Any,
) -> list[FittedGraph]:
    """Train many models of graphs at once, each as `fit_graph` would train it alone; see `curvae.training.fit_many`.

    Arguments:
        configs: what to train.
        graphs: one for all of them, or one for each.
        splits: of each.
        build: makes a fresh model from a configuration, the number of nodes and of features, if they have any.
        device, dtype: as of `curvae.training.fit_many`.
        training: folder, resume, jobs, progress and warn, as there.
    """
    return train_many(*plan_graphs(configs, graphs, splits, asked=device, dtype=dtype, build=build), **training)


@dataclass(frozen=True)
class GraphComparison(Comparison):
    """The result of `compare_graph`: scores are `Links`, differences those in AUC."""

    unit = "points of AUC"
    factor = 100.0
    held_out = "edges"
    gain_name = "gain_auc"


def compare_graph(
    config: GraphConfig,
    graph: Graph,
    curvatures: Curvatures = (0.3, 1.0),
    repeats: int = 5,
    *,
    device: str = "auto",
    jobs: int | None = None,
    **training: Any,
) -> GraphComparison:
    """Train curvature 0 and each of `curvatures` on `repeats` splits of the edges, and judge on edges kept apart.

    A split of which a model failed is left out.

    Arguments:
        config: settings shared by all models; its seed is the first repeat's. Its curvature, in a product that of every
            hyperbolic factor, is replaced by the values compared.
        graph: whose edges are split 85/5/10.
        curvatures: values of c > 0 to choose from, or "auto", as of `curvae.training.compare`.
        repeats: splits and seeds, at least 3.
        device, jobs: as of `curvae.training.compare`.
        training: folder, resume, progress and warn, as there.
    """
    values = curved_values(curvatures, repeats, config)
    splits = [split_edges(graph, seed=config.seed + i) for i in range(repeats)]
    return compare_splits(
        GraphComparison,
        ComparisonPlan.make(partial(plan_graphs, graphs=graph, asked=device), config, values, splits),
        jobs=jobs,
        **training,
    )
