"""Tables of docs/graphs.md and graphs-tables.md from results/graphs.json, which `benchmarks.graph_census` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from curvae.data.graph_data import BASELINES
from curvae.paper.experiment import table_lines
from curvae.report import Table
from curvae.training.comparison import Paired

from .graph_census import DIMS, GRAPHS

__all__ = ["TABLES"]

OURS = ("ball", "plane")
_RATIO = 10 / 85  # test edges over training edges
_POPULAR = 0.6  # AUC by equal degrees that a method should reach wherever any does

Splits = Mapping[str, Mapping[str, float | None]]


def _splits(entry: Mapping[str, Any], method: str, dim: int) -> Splits:
    """Figures of each split; rules are the same for all dimensions."""
    dims = entry["methods"].get(method, {})
    return dims.get(str(dim), dims.get("2", {}) if method in BASELINES else {}).get("splits", {})


def _values(splits: Splits, name: str = "auc") -> list[float]:
    return [value for figures in splits.values() if (value := figures[name]) is not None]


def _mean(splits: Splits, name: str = "auc") -> float | None:
    values = _values(splits, name)
    return float(np.mean(values)) if values else None


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _best(entry: Mapping[str, Any], methods: Sequence[str], dim: int, name: str = "auc") -> tuple[str, float] | None:
    """Return the method of the highest mean, and that."""
    means = {method: _mean(_splits(entry, method, dim), name) for method in methods}
    found = {method: mean for method, mean in means.items() if mean is not None}
    return max(found.items(), key=lambda item: item[1]) if found else None


def _gain(entry: Mapping[str, Any], method: str, other: str, dim: int) -> Paired | None:
    """Compute what a method gains over another one, split by split."""
    own, others = _splits(entry, method, dim), _splits(entry, other, dim)
    both = [(own[split]["auc"], others[split]["auc"]) for split in own if split in others]
    gains = [a - b for a, b in both if a is not None and b is not None]
    return Paired(gains, _RATIO) if len(gains) > 1 else None


def _gain_text(gain: Paired | None) -> str:
    if gain is None:
        return ""
    text = f"{100 * gain.mean:+.1f} ± {100 * gain.interval:.1f}".replace("-", "−")
    return f"**{text}**" if gain.outcome == "euclidean" else text


def _half(result: Mapping[str, Any], half: str) -> dict[str, Any]:
    """Return the graphs of a half that our models were trained on, in the order of the census."""
    graphs = result["graphs"]
    return {
        name: graphs[name]
        for name, source in GRAPHS.items()
        if source.half == half and name in graphs and set(OURS) <= set(graphs[name]["methods"])
    }


def _against_rules(half: str, result: Mapping[str, Any]) -> str:
    rows = []
    for name, entry in _half(result, half).items():
        for dim in DIMS:
            means = [_percent(_mean(_splits(entry, method, dim))) for method in OURS]
            if not any(means):
                continue
            rule = _best(entry, list(BASELINES), dim)
            gains = ["" if rule is None else _gain_text(_gain(entry, method, rule[0], dim)) for method in OURS]
            told = "" if rule is None else f"{rule[0]} {_percent(rule[1])}"
            rows.append([name, str(dim), *means, told, *gains])
    header = ["graph", "d", "ball", "plane", "best rule", "ball − rule", "plane − rule"]
    return "\n".join(table_lines(Table(header, rows, "")))


def _equal_degrees(half: str, result: Mapping[str, Any]) -> str:
    rows = []
    for name, entry in _half(result, half).items():
        others = [method for method in entry["methods"] if method not in OURS]
        for dim in DIMS:
            means = [_percent(_mean(_splits(entry, method, dim), "auc_matched")) for method in OURS]
            if any(means):
                best = _best(entry, others, dim, "auc_matched")
                rows.append([name, str(dim), *means, "" if best is None else f"{best[0]} {_percent(best[1])}"])
    return "\n".join(table_lines(Table(["graph", "d", "ball", "plane", "best other method"], rows, "")))


def _methods(half: str, result: Mapping[str, Any]) -> str:
    """AUC of every method at its best dimension, on the graphs of a half."""
    graphs = result["graphs"]
    every = (*OURS, *BASELINES, "spectral", "node2vec", "poincare", "vgae")
    methods = [one for one in every if any(_splits(entry, one, dim) for entry in graphs.values() for dim in DIMS)]
    rows = []
    for name in (name for name, source in GRAPHS.items() if source.half == half and name in graphs):
        entry = graphs[name]
        size = f"{entry['nodes']:,} / {entry['edges']:,}"
        best = [max((m for d in DIMS if (m := _mean(_splits(entry, method, d)))), default=None) for method in methods]
        top = max((value for value in best if value is not None), default=None)
        cells = [f"**{_percent(value)}**" if value is not None and value == top else _percent(value) for value in best]
        rows.append([name, size, *cells])
    return "\n".join(table_lines(Table(["graph", "nodes / edges", *methods], rows, "")))


def _whole(result: Mapping[str, Any]) -> str:
    """How well maps of all edges show hierarchies."""
    rows = []
    for name in (name for name, source in GRAPHS.items() if source.whole and name in result["graphs"]):
        methods = result["graphs"][name]["methods"]
        for method in (*OURS, "poincare", "node2vec", "singular vectors"):
            found = [methods.get(method, {}).get(str(dim), {}).get("whole") for dim in DIMS]
            if any(found):
                cells = ["" if one is None else f"{one['map']:.2f} ({one['rank']:.1f})" for one in found]
                rows.append([name, method, *cells])
    return "\n".join(table_lines(Table(["graph", "method", *(f"d = {dim}" for dim in DIMS)], rows, "")))


def _verdict(result: Mapping[str, Any]) -> str:
    """Where our models are below a rule, and below 60 % by equal degrees although another method is not."""
    below: dict[str, list[str]] = {}
    lazy: dict[str, list[str]] = {}
    cells = 0
    for name, entry in _half(result, "verdict").items():
        others = [method for method in entry["methods"] if method not in OURS]
        for method in OURS:
            for dim in DIMS:
                own, rule = _mean(_splits(entry, method, dim), "auc_matched"), _best(entry, list(BASELINES), dim)
                if rule is None or not _splits(entry, method, dim):
                    continue
                cells += 1
                gain = _gain(entry, method, rule[0], dim)
                if gain is not None and gain.outcome == "euclidean":
                    below.setdefault(name, []).append(f"{method} {dim}")
                best = _best(entry, others, dim, "auc_matched")
                if own is not None and own < _POPULAR and best is not None and best[1] > _POPULAR:
                    lazy.setdefault(name, []).append(f"{method} {dim}")
    return "\n".join(
        f"- {what}: {_named(found, cells)}"
        for what, found in (
            ("Significantly below the best rule by uniform non-edges", below),
            ("Below 60 % by pairs of equal degrees where another method is above", lazy),
        )
    )


def _named(found: Mapping[str, Sequence[str]], cells: int) -> str:
    number = sum(map(len, found.values()))
    listed = "; ".join(f"{name} ({', '.join(where)})" for name, where in found.items())
    return f"{number} of {cells} models{f', {listed}' if listed else ''}."


TABLES = {
    "graphs_verdict": _verdict,
    "graphs_rules": lambda result: _against_rules("verdict", result),
    "graphs_rules_choice": lambda result: _against_rules("choice", result),
    "graphs_degrees": lambda result: _equal_degrees("verdict", result),
    "graphs_degrees_choice": lambda result: _equal_degrees("choice", result),
    "graphs_methods": lambda result: _methods("verdict", result),
    "graphs_methods_choice": lambda result: _methods("choice", result),
    "graphs_whole": _whole,
}
