"""Pictures and pages of runs on graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.sparse import issparse

from ..data import EdgeSplit, Graph, split_edges
from ..data.files import count as counted
from ..data.files import decimal
from ..data.graphs.graph_data import BASELINES
from ..geometry.frames import Frame
from ..hierarchy import GraphFaithfulness
from ..maps.embedding import Embedding
from ..maps.statistics import mean_interval
from ..models import FermiDirac
from ..models.graph_vae import exact
from ..plotting import graph_map
from ..plotting.maps import EDGES_DRAWN, edges_drawn
from ..plotting.style import colouring
from ..report import Picture, Section, Table
from ..training.comparison import Paired
from ..training.config import GraphConfig
from ..training.graph_evaluate import Neighbourhood, link_baselines
from ..training.graph_fitting import GraphComparison
from ..training.graph_problem import FittedGraph, listed
from .pages import LIVE, by_factor, capital, curvature_table, movable_map, place_text, training_of

__all__ = [
    "LINKS",
    "Centre",
    "LinkFigures",
    "advice",
    "against_rules",
    "beside_comparison",
    "comparison_section",
    "comparison_warnings",
    "data_section",
    "details",
    "drawn_sentence",
    "figure_text",
    "links_section",
    "map_picture",
    "map_pictures",
    "map_section",
    "missing_section",
    "ranking_sentence",
    "remark",
    "rules_table",
    "severed",
    "training_section",
    "verdict",
]


# How well hidden edges were found again, by models and by rules that need none.

_TEST_OVER_TRAIN = 10 / 85  # by which the variance over splits is corrected
_TRY = {
    "degree product": "most edges go to few nodes; try a larger dimension or features of the nodes",
    "common neighbours": "try a larger dimension or more epochs",
    "singular vectors": "try a larger dimension, more epochs or features of the nodes",
}


def figure_text(values: Sequence[float]) -> str:
    """In percent, with its interval where there are several."""
    if len(values) < 2:
        return f"{100 * values[0]:.1f} %" if values else "–"
    mean, half = mean_interval(values)
    return f"{100 * mean:.1f} ± {100 * half:.1f} %"


@dataclass(frozen=True)
class LinkFigures:
    """For each split the seed, `validation` with `auc` and `ap`, `test` with what `contest` tells, and what `severed`
    tells."""

    splits: Sequence[dict[str, Any]]

    def figures(self, name: str, part: str = "test", rule: str | None = None) -> list[float]:
        """Of every split that has it; of the model, or of a rule."""
        found = (row[part] if rule is None else row[part]["baselines"][rule] for row in self.splits)
        return [each[name] for each in found if each[name] is not None]

    def text(self, name: str, rule: str | None = None) -> str:
        return figure_text(self.figures(name, rule=rule))

    def share(self, name: str) -> str:
        return f"{np.mean([row[name] for row in self.splits]):.0%}"

    @property
    def best_rule(self) -> str:
        """With the highest AUC."""
        return max(BASELINES, key=lambda rule: float(np.mean(self.figures("auc", rule=rule))))

    @property
    def standing(self) -> int:
        """Whether the AUC of the models is higher (1) or lower (−1) than that of the best rule, on several splits
        significantly, or neither (0)."""
        pairs = zip(self.figures("auc"), self.figures("auc", rule=self.best_rule), strict=True)
        gains = [own - other for own, other in pairs]
        if len(gains) < 2:
            return int(np.sign(gains[0]))
        return {"hyperbolic": 1, "none": 0, "euclidean": -1}[Paired(gains, _TEST_OVER_TRAIN).outcome]

    @property
    def beats_rules(self) -> bool:
        """Whether the models find hidden edges better than the best rule."""
        return self.standing > 0

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"splits": list(self.splits), **self._means(("auc", "ap"))}
        if self.splits:
            names = tuple(name for name in _FIGURES if name in self.splits[0]["test"])
            found |= self._means(names[2:])
            found["baselines"] = {rule: self._means(names, rule) for rule in BASELINES}
            found |= {"best_baseline": self.best_rule, "beats_baselines": self.beats_rules}
        return found

    def _means(self, names: Sequence[str], rule: str | None = None) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for name in names:
            values = self.figures(name, rule=rule)
            found[name] = float(np.mean(values)) if values else None
            found[f"{name}_interval"] = mean_interval(values)[1] if len(values) > 1 else None
        return found


def ranking_sentence(links: LinkFigures) -> str:
    """Say in plain words how well the models find hidden edges, beside the best rule."""
    rule = links.best_rule
    own, other = (100 * np.mean(links.figures("auc", rule=name)) for name in (None, rule))
    better = {1: "the model is better", 0: "no clear difference", -1: "the rule is better"}[links.standing]
    return (
        f"The model ranks a hidden edge above a pair of nodes without an edge in {own:.0f} % of cases; the best rule "
        f"without a model, {rule}, in {other:.0f} % ({better})."
    )


def against_rules(links: LinkFigures) -> str:
    """Whether the models are worth their training, in one sentence."""
    rule = links.best_rule
    both = f"AUC {links.text('auc')} of the model against {links.text('auc', rule)}"
    if links.beats_rules:
        return f"Better than rules without a model, of which {rule} is the best: {both}."
    return f"No better than a rule without a model, {rule}, at finding hidden edges: {both}; {advice(links)}."


def advice(links: LinkFigures) -> str:
    """What to try where the best rule is as good as the models."""
    return _TRY[links.best_rule]


def remark(found: dict[str, Any]) -> str | None:
    """What to say of a model that is no better than the best rule, from what `contest` tells; else None."""
    best = max(BASELINES, key=lambda rule: found["baselines"][rule]["auc"])
    if found["auc"] > found["baselines"][best]["auc"]:
        return None
    return f"no better than {best}, without a model; {_TRY[best]}"


_FIGURES = {
    "auc": "AUC",
    "ap": "average precision",
    "auc_matched": "AUC, equal degrees",
    "ap_matched": "average precision, equal degrees",
    "direction": "direction",
}


def rules_table(links: LinkFigures) -> Table:
    """Model and rules on the same hidden edges, against both kinds of other pairs."""
    names = {name: label for name, label in _FIGURES.items() if name in links.splits[0]["test"]}
    found = {"the models": None, **{rule: rule for rule in BASELINES}}
    rows = [[label, *(links.text(name, rule) for name in names)] for label, rule in found.items()]
    note = "Rules know the training edges of the models; there are as many singular vectors as dimensions."
    return Table(["hidden edges found by", *names.values()], rows, note)


def beside_comparison(graph: Graph, found: GraphComparison) -> tuple[Table, list[str]]:
    """The rules on the splits of a comparison, and a warning if no curvature is better than the best of them."""
    rows = [link_baselines(graph, split_edges(graph, seed=one.seed), found.config.dim) for one in found.repeats]
    auc = {rule: [row[rule].auc for row in rows] for rule in BASELINES}
    best = max(auc, key=lambda rule: float(np.mean(auc[rule])))
    own = max(([one.test[c].auc for one in found.repeats] for c in found.repeats[0].test), key=np.mean)
    lines = [[rule, figure_text(auc[rule]), figure_text([row[rule].ap for row in rows])] for rule in BASELINES]
    table = Table(["rule without a model", "test, AUC", "test, AP"], lines, "On the same test edges and other pairs.")
    if np.mean(own) > np.mean(auc[best]):
        return table, []
    both = f"AUC {figure_text(own)} at best against {figure_text(auc[best])}"
    return table, [
        f"no space is better than a rule without a model, {best}, at finding hidden edges: {both}; {_TRY[best]}"
    ]


LINKS = "links.csv"
"""file of a run with the likeliest missing edges"""

_SHOWN = 10  # of them in a report


@dataclass(frozen=True)
class Centre:
    """The middle of the map and of the graph.

    Arguments:
        nearest: nodes by their distance from the centre of the map, the nearest first.
        closest: the node of the highest closeness in the graph.
        steps: from there, infinite where there is no path.
    """

    nearest: NDArray[np.intp]
    closest: int
    steps: NDArray[np.float64]

    def sentence(self, graph: Graph) -> str:
        first, name = self.nearest[0], graph.names[self.closest]
        middle = f"nearest to the centre of the map is node {graph.names[first]}"
        if first == self.closest:
            return f"{middle}, which is also the most central of the graph (closeness)"
        far = self.steps[first]
        away = f"{far:.0f} step{'' if far == 1 else 's'} from it" if math.isfinite(far) else "in another component"
        return f"{middle}; the most central of the graph (closeness) is {name}, {away}"


def severed(graph: Graph, split: EdgeSplit) -> dict[str, float]:
    """What was lost with the hidden edges: the share of test edges that join parts which the training edges leave
    `apart`, and the shares of test edges and of the pairs beside them with an end that is left `alone`, without any."""
    parts = Graph(graph.names, split.train, directed=graph.directed).components
    alone = np.bincount(split.train.ravel(), minlength=graph.n_nodes) == 0
    return {
        "apart": float((parts[split.test[:, 0]] != parts[split.test[:, 1]]).mean()),
        "alone": float(alone[split.test].any(1).mean()),
        "alone_absent": float(alone[split.test_absent].any(1).mean()),
    }


def verdict(links: LinkFigures, near: Neighbourhood, faithful: GraphFaithfulness | None, accuracy: float | None) -> str:
    """What was found, in two or three plain sentences."""
    first = ranking_sentence(links) if links.splits else _precision_sentence(near)
    found = [first] if faithful is None else [first, faithful.verdict]
    if accuracy is not None:
        found.append(f"The 5-NN accuracy of the labels on the map is {accuracy:.0%}.")
    return " ".join(found)


def _precision_sentence(near: Neighbourhood) -> str:
    return (
        "The nodes nearest to a node on the map are its neighbours in the graph with mean average precision "
        f"{near.map:.3f} (1 is best)."
    )


def details(graph: Graph, embedding: Embedding, links: LinkFigures, near: Neighbourhood) -> str:
    """The figures behind the verdict, and what to try if a rule finds hidden edges as well."""
    size = f"{graph.n_nodes:,} nodes and {graph.n_edges:,} edges on {place_text(embedding)}."
    if not links.splits:
        return size
    found = [
        size,
        _precision_sentence(near),
        f"Hidden edges: AUC {links.text('auc')}, average precision {links.text('ap')}; against pairs whose nodes have "
        f"as many edges, where popularity alone gives 50 %, AUC {links.text('auc_matched')}.",
    ]
    if graph.directed:
        found.append(f"The direction is right for {links.text('direction')} of the hidden edges.")
    if not links.beats_rules:
        found.append(f"To find more of them: {advice(links)}.")
    return " ".join(found)


def map_picture(graph: Graph, embedding: Embedding, frame: Frame, centre: Centre) -> Picture:
    """The map with its edges as it is seen from a frame."""
    figure = Figure(figsize=(6.2, 5.2))
    projection = embedding.chart.project(embedding.points, frame)
    steps = f"steps from {graph.names[centre.closest]}"
    graph_map(
        figure.subplots(),
        embedding.chart,
        projection.points,
        graph.edges,
        None if graph.labels is None else replace(colouring(graph.labels, graph.n_nodes), title=graph.label_name or ""),
        steps=(centre.steps, steps) if graph.labels is None else None,
        names=graph.names,
        central=list(dict.fromkeys([int(centre.nearest[0]), centre.closest, *map(int, centre.nearest)])),
    )
    more = f" Of {graph.n_edges:,} edges {EDGES_DRAWN:,} are drawn, chosen at random."
    reached = np.where(np.isfinite(centre.steps), centre.steps, np.nan)
    columns = {steps: reached} if graph.labels is None else {graph.label_name or "label": graph.labels}
    return movable_map(
        figure,
        embedding,
        projection,
        "graph",
        "Posterior centres of the nodes",
        more if graph.n_edges > EDGES_DRAWN else "",
        wide=graph.n_nodes <= LIVE,
        columns=columns,
        edges=edges_drawn(graph.edges).T,
        title="",
    )


def map_section(
    graph: Graph, embedding: Embedding, frames: Sequence[Frame], centre: Centre, orientation: str, view_command: str
) -> Section:
    """The map of every factor as it is seen from its frame; `orientation` says how that was chosen."""
    colours = (
        f"Colours are the column {graph.label_name!r}."
        if graph.labels is not None
        else f"Colours are steps along edges from node {graph.names[centre.closest]}, grey where no path leads."
    )
    curved = any(math.isfinite(factor.chart.rim) for factor in embedding.placed)
    bent = ": it bends towards the centre, and distances grow towards the rim" if curved else ""
    marked = "The first has a ring, the second a square."
    if centre.nearest[0] == centre.closest:
        marked = "It has a ring; the square marks the node that is second nearest."
    text = [
        "From the model that was trained on all edges. Each point is a node, larger where it has more neighbours (on a "
        "map that can be moved, where it is more popular); each line is an edge, drawn as the shortest path of the "
        f"space{bent}. The model expects an edge where nodes are near; long edges, which it did not expect, are "
        f"fainter. {colours}",
        orientation,
        f"{capital(centre.sentence(graph))}. {marked}",
        f"The map by itself, with names, search and selection: {view_command}",
    ]
    if len(embedding.placed) > 1:
        text.insert(
            1,
            "The space is a product, with a map for each factor. Distances in it join those along the factors, "
            "d² = Σ d_i²; the probability of an edge fixes their scale.",
        )
    return Section("The map", text, map_pictures(graph, embedding, frames, centre))


def map_pictures(graph: Graph, embedding: Embedding, frames: Sequence[Frame], centre: Centre) -> list[Picture]:
    """The map of every factor."""
    return by_factor(embedding, lambda part, place: [map_picture(graph, part, frames[place], centre)])


def links_section(
    graph: Graph, links: LinkFigures, near: Neighbourhood, compare: str, popular: bool = False
) -> Section:
    """Every figure beside the model that it comes from."""
    asked = f"a random sample of {near.asked:,} nodes" if near.sampled else f"all {near.asked:,} nodes with an edge"
    own = f"the model of the map, trained on all edges; {asked}"
    rows = [
        ["neighbourhoods on the map, mean average precision", f"{near.map:.3f}", own],
        ["neighbourhoods on the map, mean rank", f"{near.rank:.1f}", own],
    ]
    text = [
        "Mean average precision of neighbourhoods asks whether the nodes nearest to a node on the map are its "
        "neighbours in the graph: 1 when they always come first. Mean rank is 1 plus the number of nodes that are "
        "not neighbours but nearer than a neighbour, averaged over neighbours: 1 is best. Both say how well the map "
        "shows the graph, and predict nothing."
    ]
    if popular:
        text.append("Near means by distance less popularity: a popular node is near more nodes than its place tells.")
    tables = []
    if links.splits:
        seeds = [row["seed"] for row in links.splits]
        others = f"{len(seeds)} other model{'' if len(seeds) == 1 else 's'}, each trained on 85 % of the edges"
        rows = [
            ["hidden edges, AUC", links.text("auc"), others],
            ["hidden edges, average precision", links.text("ap"), others],
            *rows,
        ]
        text.insert(0, against_rules(links))
        text.insert(
            1,
            "AUC and average precision ask whether 10 % of the edges, hidden from the training, lie nearer than as "
            "many pairs that are not joined: 50 % is chance.",
        )
        text.insert(
            2,
            "Rules without a model are judged on the same pairs: the product of the degrees of two nodes, the number "
            "of their common neighbours, and their entry in the best approximation of the adjacency matrix by singular "
            "vectors. A model that does not beat them has not earned its training. Pairs of equal degrees have nodes "
            "with as many training edges as those of the hidden edges: being popular then tells nothing, and the "
            "degree product is at 50 %.",
        )
        if graph.directed:
            rows.insert(2, ["direction of hidden edges, share that is right", links.text("direction"), others])
            text.append(
                "The direction is right where the model finds the hidden edge likelier than one back; edges that run "
                "both ways are left out. Rules are in their directed form: the number of edges from the first node "
                "times that of edges to the second, the number of paths of two edges, and singular vectors of the "
                "matrix of directed edges."
            )
        text += _lost(graph, links)
        tables += [rules_table(links), _by_split(links)]
    elif graph.is_forest:
        text.append(drawn_sentence(graph))
    note = "± is a 95 % interval over splits (Student's t)." if len(links.splits) > 1 else ""
    text.append("Whether another curvature, or none, is better, on edges kept apart:")
    found = Table(["figure", "value", "model"], rows, note)
    return Section("How well edges are found", text, (), [found, *tables], command=compare)


def missing_section(missing: pd.DataFrame | None, directed: bool) -> Section:
    """The first of the likeliest missing edges, if they were asked for."""
    if missing is None:
        return Section("Likely missing edges")
    shown = missing.head(_SHOWN)
    rows = [[a, b, f"{p:.3f}"] for a, b, p in shown.itertuples(index=False)]
    way = " from the source to the target" if directed else ""
    text = (
        f"{LINKS} lists the {counted(len(missing), 'pair')} of nodes without an edge that the model of the map finds "
        f"likeliest to have one{way}. It was trained on all edges, with these pairs as examples of nodes without one."
    )
    note = f"The first {len(shown)}." if len(shown) < len(missing) else ""
    return Section("Likely missing edges", [text], (), [Table(list(missing.columns), rows, note)])


def _lost(graph: Graph, links: LinkFigures) -> list[str]:
    """What hiding edges did to the graph, and so what AUC can tell."""
    share = f"{links.share('apart')} of the hidden edges join parts of the graph that the other edges leave apart"
    if graph.is_forest:
        text = (
            f"The graph is {_tree(graph)}: whatever edge is taken out, its ends fall into two parts, and the training "
            f"edges do not say where these lie relative to each other. So {share}, and an AUC far from 100 % is a "
            "property of the task, not of the map; against pairs of equal degrees expect about 50 % of any method "
            "without features."
        )
    else:
        text = f"{share}. The training edges do not say where these parts lie relative to each other."
    return [
        text,
        f"{links.share('alone')} of the hidden edges, and {links.share('alone_absent')} of the pairs beside them, have "
        "an end that no training edge touches. The more these shares differ, the more AUC depends on where such nodes "
        "are put, in the middle or at the rim.",
    ]


def _tree(graph: Graph) -> str:
    """What to call a graph without a circle."""
    return "a tree" if graph.components.max() == 0 else "a forest"


def comparison_warnings(graph: Graph) -> list[str]:
    """What a comparison by hidden edges cannot tell of a tree or forest."""
    if not graph.is_forest or graph.features is not None:
        return []
    return [
        f"the graph is {_tree(graph)}: no model can know where a hidden edge was, so that a comparison by hidden edges "
        "says little; draw it in each space with curvae graph and compare mean average precisions"
    ]


def drawn_sentence(graph: Graph) -> str:
    """Why no edge of a tree or forest is hidden by default."""
    return (
        f"The graph is {_tree(graph)} and is drawn as it is, no edge hidden: without one of its edges it falls apart, "
        "and nothing tells where the edge was."
    )


def _by_split(links: LinkFigures) -> Table:
    rows = []
    for row in links.splits:
        cells = [f"{100 * row[part][name]:.1f}" for part in ("validation", "test") for name in ("auc", "ap")]
        rows.append([f"{row['seed']}", *cells, f"{row['apart']:.0%}", f"{row['alone']:.0%}"])
    figures = [f"{part} {name}, %" for part in ("validation", "test") for name in ("AUC", "AP")]
    header = ["seed of the split", *figures, "ends apart", "an end alone"]
    return Table(
        header,
        rows,
        "Validation edges, 5 %, were hidden too and decided at most when a training ended; hidden edges above "
        "are test edges.",
    )


def comparison_section(found: GraphComparison) -> Section:
    """AUC and AP by curvature."""
    figures = [(part, measure) for part in ("validation", "test") for measure in ("auc", "ap")]

    def cells(c: float) -> list[str]:
        each = ([100 * getattr(getattr(r, part)[c], name) for r in found.repeats] for part, name in figures)
        return ["{:.1f} ± {:.1f}".format(*mean_interval(values)) for values in each]

    note = "c is chosen by the AUC of validation edges, the verdict comes from test edges."
    header = [f"{part}, {measure.upper()} %" for part, measure in figures]
    table = curvature_table(found, header, cells, " of the edges", note)
    return Section("Edges kept apart, by curvature", (), (), [table])


_BOTH_WAYS = ("popularity as a sender", "popularity as a receiver")


def training_section(fitted: FittedGraph, embedding: Embedding) -> Section:
    config, edges = fitted.config, fitted.model.edges
    probability = "geodesic, p = 1 − tanh d"
    if isinstance(edges, FermiDirac):
        with torch.no_grad():
            radius, temperature = (float(t) for t in edges.numbers())
        probability = f"Fermi–Dirac, radius {radius:.3g}, temperature {temperature:.3g}"
    facts = [["edge model", probability], ["weight of the likelihood", f"{config.weight:g}"]]
    if embedding.popularity is not None:
        columns = embedding.popularity.reshape(len(embedding), -1).T
        for kind, values in zip(("popularity",) if len(columns) == 1 else _BOTH_WAYS, columns, strict=True):
            low, middle, high = np.quantile(values, [0.0, 0.5, 1.0])
            facts.append([f"{kind}: smallest, median, largest", ", ".join(map(decimal, (low, middle, high)))])
    if embedding.side is not None:
        facts.append(["side: smallest, largest", ", ".join(map(decimal, (embedding.side.min(), embedding.side.max())))])
    return training_of(fitted, embedding, "node", facts, "Of the model that was trained on all edges.")


def data_section(graph: Graph, config: GraphConfig) -> Section:
    """What was done to a graph for a model with these settings."""
    text = [f"{graph.n_nodes:,} nodes, {graph.n_edges:,} edges.", *(capital(note) for note in graph.notes)]
    if graph.weights is not None:
        intense = "Weights are intensities: an edge of twice the mean weight counts as two edges."
        existing = "Whether there is an edge is what is modelled, whatever its weight."
        text += [
            intense if config.pairs == "balanced" else existing,
            "Weights also say how much a node hears of each neighbour.",
        ]
    if graph.features is not None:
        how = (
            "divided by one number, for they are sparse"
            if issparse(graph.features)
            else "centred and scaled to unit variance"
        )
        text.append(f"{counted(len(graph.feature_names), 'feature')} were {how}.")
    if config.pairs == "balanced":
        text.append(
            "Each step was fitted to the edges and as many random pairs that are not joined, between nodes that have "
            "an edge; of a node without one nothing is known."
        )
    elif not exact(graph.n_nodes, listed(config)):
        text.append("The graph is too large to look at all pairs of nodes: each step looked at a weighted sample.")
    return Section("What was done to the data", text)
