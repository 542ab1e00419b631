"""How well hidden edges were found again, by models and by rules that need none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data import Graph, split_edges
from ..data.graphs.baselines import BASELINES
from ..data.principal import mean_interval
from ..report import Table
from ..training.graphs import GraphComparison, link_baselines
from ..training.paired import Paired

__all__ = [
    "LinkFigures",
    "advice",
    "against_rules",
    "beside_comparison",
    "figure_text",
    "ranking_sentence",
    "remark",
    "rules_table",
]

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
