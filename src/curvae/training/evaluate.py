"""What a trained model says about rows or a graph: embedding, likelihood, missing values, edges, health of the map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from ..data import Arrays, EdgeSplit, Graph
from ..data.column_statistics import missing_entries
from ..data.files import decimal
from ..data.graph_data import Edges, Rule, matched_pairs, neighbourhood_ranks, rules
from ..errors import CurvaeError
from ..maps.embedding import Embedding, placed, require_finite
from ..models import Stack, marginal_likelihood
from ..models.stack import architecture
from ..settings.setting import whole
from .config import require_count
from .fitted import Fitted, FittedModel
from .rows import Data, RowPool

if TYPE_CHECKING:
    from .graph_problem import FittedGraph

__all__ = [
    "Embedding",
    "Likelihoods",
    "Links",
    "Neighbourhood",
    "Stability",
    "active_dimensions",
    "embed",
    "embed_graph",
    "health",
    "hidden_links",
    "impute",
    "judge_split",
    "likelihoods",
    "likelihoods_many",
    "link_baselines",
    "link_figures",
    "link_probability",
    "link_scores",
    "map_health",
    "missing_links",
    "neighbourhood",
    "require_finite",
    "score_links",
    "stability",
]

Array = NDArray[np.float64]

_ROWS = 1024  # encoded at once
_NUMBERS = (
    1 << 24
)  # of a model's rows that a CUDA device holds at once, for the likelihood compiles for each such batch
_RIM = 0.99  # √c·|z| of a point that a picture of the disc cannot tell from its rim
_EMPTY = 0.1  # nats below which the latent space tells nothing
_OVERFIT = 2.0  # nats a row that the validation ELBO may fall from its best, more than its noise
_ACTIVE = 0.01  # share of the prior's variance above which a direction is in use


def embed(fitted: Fitted, x: Data) -> Embedding:
    """Return where a trained model places rows: centre and standard deviation of each row's posterior, computed in
    float64.

    Arguments:
        fitted: a result of `curvae.training.fit` or `fit_many`; those of a graph go to `embed_graph`.
        x: rows in original units, as of `fit`; new ones or those it was trained on.
    """
    fitted = fitted.double()
    rows, model = fitted.rows(x), fitted.model
    with torch.no_grad():
        parts = torch.arange(len(rows)).split(_ROWS)
        return placed(model.space, [model.encode(rows.batch(index)) for index in parts])


@dataclass(frozen=True)
class Likelihoods:
    """Estimates of log p(x), one a row, in the units the model sees; `log_jacobian` leads to original units.

    Where values are missing, they are those of the values that are there, and `log_jacobian` is one a row.
    """

    log_prob: Array
    ess: Array
    error: Array
    samples: int
    log_jacobian: float | Array

    def require_finite(self, names: Any = None) -> Likelihoods:
        """Return the estimates; raise if one is not finite."""
        require_finite("likelihood", [self.log_prob], names)
        return self

    def take(self, index: Any) -> Likelihoods:
        """Those of the rows given by an index or a mask."""
        jacobian = self.log_jacobian
        return Likelihoods(
            self.log_prob[index],
            self.ess[index],
            self.error[index],
            self.samples,
            jacobian if isinstance(jacobian, float) else jacobian[index],
        )

    @property
    def mean(self) -> float:
        return float(self.log_prob.mean())

    @property
    def original(self) -> Likelihoods:
        """The same in original units."""
        return replace(self, log_prob=self.log_prob + self.log_jacobian, log_jacobian=0.0)

    @property
    def interval(self) -> float:
        """Half-width of the 95 % interval of the mean over rows; NaN for a single row."""
        if len(self.log_prob) < 2:
            return float("nan")
        return float(1.96 * self.log_prob.std(ddof=1) / np.sqrt(len(self.log_prob)))

    @property
    def text(self) -> str:
        """ "−12.34 ± 0.56"."""
        return decimal(self.mean) + ("" if np.isnan(self.interval) else f" ± {self.interval:.2f}")


def likelihoods(
    fitted: Fitted,
    x: Data,
    samples: int = 5000,
    seed: int = 0,
    shared: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
    refine: int = 0,
) -> Likelihoods:
    """Compute log p(x) of rows by importance sampling (`curvae.models.marginal_likelihood`)."""
    return likelihoods_many([fitted], [x], samples, seed, shared, advance, refine=refine)[0]


def likelihoods_many(
    fitted: Sequence[Fitted],
    x: Sequence[Data],
    samples: int = 5000,
    seed: int = 0,
    shared: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
    tf32: bool = False,
    refine: int = 0,
) -> list[Likelihoods]:
    """Compute `likelihoods` of many models, each on its own rows; on CUDA those of one architecture at once.

    Arguments:
        fitted: the models.
        x: rows for each of them.
        samples, seed, shared: as of `likelihoods`; the noise is the same for all models.
        advance: called with how many more rows of a model are finished.
        tf32: on CUDA, matrix products with TF32 inputs.
        refine: steps by which the posterior of every row is improved first; models are then evaluated one by one.
    """
    if not whole(refine) or refine < 0:
        raise CurvaeError(f"`refine` must be a whole number of steps from 0 on, got {refine!r}", value=refine)
    found: dict[int, Likelihoods] = {}
    data = [one.arrays(rows) for one, rows in zip(fitted, x, strict=True)]
    # On a CPU, whose caches are small, each alone.
    cpu = all(one.model.device.type == "cpu" for one in fitted)
    for group in [[i] for i in range(len(fitted))] if cpu or refine else _alike(fitted, data):

        def advanced(rows: int, models: int = len(group)) -> None:
            advance(rows * models)

        models = [fitted[i].model for i in group]
        # Copies one by one, for a model may be in the list twice, or share its curvature with others.
        model = models[0] if len(group) == 1 else Stack([deepcopy(one) for one in models])
        rows = RowPool.of([(data[i], fitted[i].scaling) for i in group], models[0].device, models[0].dtype)
        generator = torch.Generator(models[0].device).manual_seed(seed)
        state = generator.get_state()
        parts = []
        at_once = _ROWS if rows.device.type == "cpu" else max(_ROWS, _NUMBERS // data[group[0]].features)
        for batch in rows.part().batches(None, at_once):
            if shared:
                generator.set_state(state)
            batch = batch.map(lambda part: part[0]) if len(group) == 1 else batch
            parts.append(marginal_likelihood(model, batch, samples, generator, shared, advanced, tf32, refine))
        figures = [
            torch.cat([getattr(part, name).view(len(group), -1) for part in parts], 1).cpu().numpy()
            for name in ("log_prob", "ess", "error")
        ]
        for i, log_prob, ess, error in zip(group, *figures, strict=True):
            scaling, rows_of = fitted[i].scaling, data[i]
            jacobian = scaling.log_jacobians(rows_of.x) if rows_of.missing else scaling.log_jacobian
            found[i] = Likelihoods(log_prob, ess, error, samples, jacobian)
    return [found[i] for i in range(len(fitted))]


def _alike(fitted: Sequence[Fitted], x: Sequence[Arrays]) -> list[list[int]]:
    """Places of the models that can be evaluated together: of one architecture, on equally many rows."""
    kinds = [(architecture(one.model), rows.x.shape, rows.missing) for one, rows in zip(fitted, x, strict=True)]
    firsts = [kinds.index(kind) for kind in kinds]
    return [[i for i, first in enumerate(firsts) if first == place] for place in sorted(set(firsts))]


def active_dimensions(embedding: Embedding, prior_scale: ArrayLike) -> int:
    """Return directions of the tangent space in which the posterior centres vary, given the prior scale of every
    factor.
    """
    scales = np.atleast_1d(prior_scale)
    v = np.concatenate([part.tangent / scale for part, scale in zip(embedding.parts, scales, strict=True)], 1)
    return int((np.linalg.eigvalsh(np.atleast_2d(np.cov(v.T))) > _ACTIVE).sum())


def health(fitted: FittedModel, embedding: Embedding) -> list[str]:
    """Return warnings about the map, each with its remedy; none when all is well."""
    config, last = fitted.config, fitted.last
    held = "validation_kl" in last
    kl: float = last["validation_kl" if held else "kl"]
    warnings = []
    watched = [record["validation_elbo"] for record in fitted.history if "validation_elbo" in record]
    if kl >= _EMPTY and config.patience is None and watched and max(watched) - watched[-1] > _OVERFIT:
        warnings.append(
            f"the model has overfitted: since epoch {int(np.argmax(watched)) + 1} the ELBO of validation rows has "
            f'fallen by {max(watched) - watched[-1]:.1f} nats; use `patience="auto"`, which keeps the best weights'
        )
    scales = [one.prior_scale for one in fitted.figures]
    return warnings + map_health(embedding, kl, scales, " of validation rows" if held else "")


def map_health(embedding: Embedding, kl: float, prior_scale: ArrayLike, of: str = "") -> list[str]:
    """Return warnings about a map of any kind, each with its remedy; about every factor of a product.

    Arguments:
        embedding: the map.
        kl: divergence from the prior, in nats.
        prior_scale: of every factor.
        of: which data the divergence is of, in words.
    """
    if kl < _EMPTY:
        return [
            f"the map is empty: the divergence{of} from the prior is {max(kl, 0.0):.2g} nat, so the latent space is "
            "not used; the data may have no structure, else train longer, lower `beta` or widen `hidden`"
        ]
    parts = zip(embedding.parts, np.atleast_1d(prior_scale), strict=True)
    return [warning for part, scale in parts for warning in _factor_health(part, scale, len(embedding.placed) > 1)]


def _factor_health(part: Embedding, prior_scale: float, named: bool) -> list[str]:
    """Warnings about the map of one factor, which are about its name if it is `named`."""
    name = part.placed[0].name
    warnings = []
    active = active_dimensions(part, prior_scale)
    if active == 0:
        where = f"in the factor {name} " if named else ""
        warnings.append(
            f"all points lie together {where}beside the scale of the prior, so the map shows little; "
            f"train longer{', leave the factor out' if named else ''} or lower `beta`"
        )
    elif active < part.dim:
        warnings.append(
            f"only {active} of {part.dim} {f'dimensions of the factor {name}' if named else 'latent dimensions'} are "
            f"in use; dimension {active} is enough, or lower `beta`"
        )
    rim = float((np.linalg.norm(part.ball, axis=1) / part.chart.rim > _RIM).mean())
    if rim > 0.5:
        warnings.append(
            f"{rim:.0%} of the points sit at the rim of the disc{f' of the factor {name}' if named else ''} "
            f"(√c·|z| > {_RIM}), where a picture shows no differences; lower the prior's scale or the curvature"
        )
    return warnings


@dataclass(frozen=True)
class Stability:
    """How alike the maps of several trainings are, averaged over pairs of them.

    Arguments:
        correlation: Spearman's rank correlation of latent distances.
        overlap: share of the nearest neighbours in common.
        neighbours: how many of these.
        pairs: of maps.
    """

    correlation: float
    overlap: float
    neighbours: int
    pairs: int


def stability(embeddings: Sequence[Embedding], neighbours: int = 10, rows: int = 500) -> Stability | None:
    """Compare maps of the same rows made with different seeds; None for a single one.

    At most `rows` rows, chosen at random with a fixed seed, take part.
    """
    if len(embeddings) < 2:
        return None
    from scipy.stats import spearmanr  # takes long to import

    chosen = np.random.default_rng(0).permutation(len(embeddings[0].space))[:rows]
    k = min(neighbours, len(chosen) - 1)
    tables = [embedding.take(chosen).distances() for embedding in embeddings]
    upper = np.triu_indices(len(chosen), 1)
    nearest = [np.argsort(t + np.diag(np.full(len(t), np.inf)), axis=1)[:, :k] for t in tables]
    correlations, overlaps = [], []
    for i, j in combinations(range(len(tables)), 2):
        a, b = tables[i][upper], tables[j][upper]
        varies = a.std() > 0 and b.std() > 0
        correlations.append(float(spearmanr(a, b).statistic) if varies else 0.0)
        shared: list[Any] = [len(np.intersect1d(p, q)) / k for p, q in zip(nearest[i], nearest[j], strict=True)]
        overlaps.append(float(np.mean(shared)))
    return Stability(float(np.mean(correlations)), float(np.mean(overlaps)), k, len(correlations))


# Expected values of missing entries.

_IMPUTED_ROWS = 256  # at once
_OUTPUTS = 1 << 22  # decoder outputs at once


def impute(
    fitted: Fitted,
    x: Data,
    samples: int = 1000,
    seed: int = 0,
    advance: Callable[[int], None] = lambda rows: None,
) -> Any:
    """Return the matrix with the expected value of every missing entry, given the entries of its row that are there.

    E[missing | observed] = Σ_k w_k E[x | z_k] / Σ_k w_k over draws z_k from the posterior of the row, with importance
    weights w = p(observed | z)·p(z)/q(z | observed): it tends to the exact expectation under the model as the samples
    grow, however rough the encoder is. One-hot columns get probabilities. All is computed in float64, from one set of
    draws for all rows, so that the figures of a row depend on nothing but the row.

    Arguments:
        fitted: a result of `fit`, best of data with `missing=True`: the encoder of another sees 0, in the units of the
            model, in place of what is missing.
        x: rows in original units, as of `fit`, in which NaN is missing.
        samples: draws a row.
        seed: of the draws.
        advance: called with how many more rows are finished.

    Returns:
        A matrix like that of x; entries that were there are unchanged.

    Example:
        >>> from curvae.training import Config, fit
        >>> x = np.random.default_rng(0).normal(size=(40, 1)) * [1.0, 2.0, -1.0]
        >>> x[0, 1] = np.nan
        >>> fitted = fit(Config(epochs=2, hidden=(8,)), Arrays(x, missing=True))
        >>> filled = impute(fitted, x)
        >>> bool(np.isfinite(filled).all()), bool((filled[1:] == x[1:]).all())
        (True, True)
    """
    require_count("samples", samples, "importance_samples")
    arrays, fitted = replace(Arrays.of(x), missing=True), fitted.double()
    arrays = arrays.load()
    rows, columns = missing_entries(arrays.x)
    lacking = np.unique(rows)
    values = np.empty(len(rows))
    for start in range(0, len(lacking), _IMPUTED_ROWS):
        some = lacking[start : start + _IMPUTED_ROWS]
        own = slice(*np.searchsorted(rows, (some[0], some[-1] + 1)))
        expected = _expected(fitted, arrays.take(some), samples, seed)
        values[own] = expected[np.searchsorted(some, rows[own]), columns[own]]
        advance(len(some))
    if not np.isfinite(values).all():
        finite = np.ones(len(arrays))
        finite[rows[~np.isfinite(values)]] = np.nan
        require_finite("expected value", [finite], getattr(x, "ids", None))
    filled = arrays.x.copy()
    entries = filled.data if issparse(filled) else filled
    entries[~np.isfinite(entries)] = values  # row by row, as they were found
    return filled


def _expected(fitted: Fitted, arrays: Arrays, samples: int, seed: int) -> NDArray[np.float64]:
    """Compute the expected values of all entries of some rows, in original units."""
    model = fitted.model
    batch = fitted.rows(arrays).batch(torch.arange(len(arrays), device=model.device))
    noise = model.noise(1, samples, torch.Generator(model.device).manual_seed(seed))
    total: Any = 0.0
    top = torch.full((len(batch),), -torch.inf, dtype=torch.float64, device=batch.device)
    weight = torch.zeros_like(top)
    with torch.no_grad():
        # Means of E[x | z] by the weights of the draws, some draws at a time.
        for part in noise.split(max(1, _OUTPUTS // (len(batch) * model.likelihood.outputs))):
            expected, logs = model.expected(batch, part)
            higher = torch.maximum(top, logs.amax(0))
            before, now = (top - higher).exp(), (logs - higher).exp()
            total = total * before.unsqueeze(-1) + (now.unsqueeze(-1) * expected).sum(0)
            weight, top = weight * before + now.sum(0), higher
        means = total / weight.unsqueeze(-1)
    return fitted.scaling.invert(means.cpu().numpy())


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
    split = fitted.split
    if split is None:
        raise CurvaeError("the model was trained on all edges: none are left to be predicted; train with a split")
    return hidden_links(embed_graph(fitted, graph), split)


def hidden_links(embedding: Embedding, split: EdgeSplit) -> dict[str, Links]:
    """Compute `link_figures` from where the nodes lie."""
    parts = {
        "validation": (split.validation, split.validation_absent),
        "test": (split.test, split.test_absent),
    }
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
    keys = graph.edges @ [graph.n_nodes, 1]
    one_way = edges[~np.isin(edges @ [1, graph.n_nodes], keys)]

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
