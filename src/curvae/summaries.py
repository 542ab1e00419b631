"""Results of commands as lines for people, and what the next command needs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

__all__ = ["covariate_values", "likelihood_lines", "link_lines"]


def likelihood_lines(found: dict[str, Any]) -> list[str]:
    """Of `evaluate_run` on rows: two or three lines for each part of the data, and how faithful the map is."""
    lines = []
    for name, part in found["parts"].items():
        margin = "" if math.isnan(part["interval"]) else f" ± {part['interval']:.2f}"
        lines += [
            f"{name}, {part['rows']} rows: log-likelihood {part['log_likelihood']:.2f}{margin} nats a row; "
            f"in original units {part['log_likelihood_original_units']:.2f}",
            f"  effective sample size {part['median_effective_sample_size']:.0f} of {found['samples']}, "
            f"standard error {part['median_standard_error']:.2g} (medians)",
        ]
        if part["rows_with_few_effective_samples"]:
            lines.append(
                f"  {part['rows_with_few_effective_samples']} rows rest on fewer than 10 effective samples and are "
                "likely underestimated; raise --samples"
            )
    if "scores" in found:
        rows = sum(part["rows"] for part in found["parts"].values())
        low = f"{found['rows_below_1_percent']:,} of {rows:,} rows below the 1st percentile"
        lines.append(f"scores: {found['scores']}; {low} of {found['training_rows']:,} training rows")
    return [*lines, *_faithful(found)]


def _faithful(found: dict[str, Any]) -> list[str]:
    """How faithful the map is, if that was measured."""
    return [] if found["faithfulness"] is None else [found["faithfulness"]["verdict"]]


def link_lines(found: dict[str, Any]) -> list[str]:
    """Of `evaluate_run` on a graph: how well edges are found, trained ones and new ones."""
    told = {"train": "edges that it was trained on", "new": "new edges"}
    lines: list[str] = []
    for name, part in found["parts"].items():
        if part["remark"] is not None:
            lines.insert(0, f"{told[name]} are found {part['remark']}")
        lines.append(f"{part['edges']:,} {told[name]}: {_found(part)}")
        lines += [f"  {rule}, without a model: {_found(figures)}" for rule, figures in part["baselines"].items()]
    return [*lines, f"mean average precision of neighbourhoods {found['neighbourhood_map']:.3f}", *_faithful(found)]


def _found(figures: dict[str, Any]) -> str:
    matched = "" if figures["auc_matched"] is None else f" ({100 * figures['auc_matched']:.1f} % at equal degrees)"
    way = "" if figures.get("direction") is None else f", direction {100 * figures['direction']:.1f} %"
    return f"AUC {100 * figures['auc']:.1f} %{matched}, average precision {100 * figures['ap']:.1f} %{way}"


def covariate_values(run: Path) -> tuple[str, ...]:
    """A value of each covariate of a run as `curvae sample` takes them: the first category, or the mean of numbers."""
    from .data import Schema
    from .training.storage import read_description

    stored = read_description(run).get("data", {}).get("schema")
    columns = () if stored is None else Schema.from_json(stored).covariates
    return tuple(
        f"{column.name}={f'{column.fill:g}' if column.categories is None else column.categories[0]}"
        for column in columns
    )
