"""Tables of the paper in a few rows, from their results, for the pages that give an overview."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from curvae.paper import EXPERIMENTS
from curvae.paper.experiment import SIGNS, against_printed, cell_text, interval_text, mark, model_name, table_lines
from curvae.paper.paper_tables import (
    CLASSIFIER,
    DATA_TITLES,
    TREE_SHOWN,
    TREE_TRAININGS,
    best_printed,
)
from curvae.report import Table

__all__ = ["BRIEFS", "brief"]

Result = Mapping[str, Any]


def likelihoods_of_trees(result: Result) -> Table:
    """Table 1: flat models, and both normals by curvature."""
    at = {(one["model"], one["c"]): one for one in result["cells"] if one["prior_scale"] == TREE_SHOWN}
    curvatures = sorted({c for _, c in at if c})
    # For each normal the texts of both flat models and of all curvatures, paper and ours.
    texts = {
        normal: [cell_text(one) for one in (at["N-VAE", 0.0], at["P-VAE", 0.0], *(at[normal, c] for c in curvatures))]
        for normal in dict.fromkeys(model for model, c in at if c)
    }
    return Table(
        ["branching diffusion", "N-VAE", "c = 0", *(f"c = {c:g}" for c in curvatures)],
        [
            ["paper", *(text for text, _ in next(iter(texts.values())))],
            *([f"ours, {normal}", *(text for _, text in row)] for normal, row in texts.items()),
        ],
        f"−IWAE in nats, less is better; σ0 = 1.7, {len(at['N-VAE', 0.0]['seeds'])} data sets ({TREE_TRAININGS} in "
        "the paper).",
    )


def likelihoods_of_digits(result: Result) -> Table:
    """Table 2: flat models and the best curved one, by dimension."""
    cells = result["cells"]
    dims = list(dict.fromkeys(one["dim"] for one in cells))
    at = {(one["model"], one["c"], one["dim"]): one for one in cells}
    flat, limit = ([cell_text(at[model, 0.0, dim]) for dim in dims] for model in ("N-VAE", "P-VAE"))
    best = [
        min((c for c in cells if c["dim"] == dim and c["c"] and "ours" in c), key=lambda c: c["ours"]["mean"])
        for dim in dims
    ]
    printed = [best_printed(dim) for dim in dims]
    return Table(
        ["MNIST", *(f"d = {dim}" for dim in dims)],
        [
            ["N-VAE, paper", *(text for text, _ in flat)],
            ["N-VAE, ours", *(text for _, text in flat)],
            ["P-VAE with c = 0, ours", *(text for _, text in limit)],
            ["best P-VAE, paper", *(f"{interval_text(figure, 1)} ({name})" for name, figure in printed)],
            [
                "best P-VAE, ours",
                *(
                    f"{interval_text(c['ours'])} {SIGNS[mark(against_printed(list(c['seeds'].values()), figure))]} "
                    f"({model_name(c['model'], c['c'])})"
                    for c, (_, figure) in zip(best, printed, strict=True)
                ),
            ],
        ],
        "−IWAE in nats, less is better; 10 trainings.",
    )


def accuracies(result: Result) -> Table:
    """Table 3: the models of the paper, with their mean accuracy."""
    shown = [one for one in result["cells"] if one["paper_by_digit"] is not None]
    return Table(
        ["accuracy, %", *(one["model"] if one["c"] == 0 else f"P-VAE, {one['model']}" for one in shown)],
        [
            ["paper", *(f"{np.mean(one['paper_by_digit']):.1f}" for one in shown)],
            ["ours", *(interval_text(one["ours"], 1) for one in shown)],
        ],
        f"Of classifiers on two-dimensional embeddings of MNIST, c = 1.4; {CLASSIFIER['trainings']} classifiers on "
        "each of 10 embeddings.",
    )


def searched(result: Result) -> Table:
    """Show the search for settings: both families by data."""
    flat, curved = ([one for one in result["cells"] if one["model"] == model] for model in ("N-VAE", "P-VAE"))
    return Table(
        ["searched settings", *(DATA_TITLES[one["data"]] for one in curved)],
        [
            ["best P-VAE, paper", *(f"{cell_text(one)[0]} ({one['best_of_the_paper']})" for one in curved)],
            ["N-VAE, ours", *(cell_text(one)[1] for one in flat)],
            ["P-VAE, ours", *(cell_text(one)[1] for one in curved)],
        ],
        "−IWAE in nats, less is better.",
    )


BRIEFS: dict[str, Callable[[Result], Table]] = {
    "table1": likelihoods_of_trees,
    "table2": likelihoods_of_digits,
    "table3": accuracies,
    "table4": lambda result: EXPERIMENTS["table4"].page(result).sections[0].tables[0],
    "better": searched,
}


def brief(result: Result) -> str:
    """Show an experiment of `curvae paper` in a few rows."""
    table = BRIEFS[result["experiment"]](result)
    return "\n".join([*table_lines(table), "", table.note])
