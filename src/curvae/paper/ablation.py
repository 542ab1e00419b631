"""The decoder ablation: what the first layer of the decoder is worth, by dimension, on MNIST."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter
from typing import Any

from matplotlib.figure import Figure

from ..nn.networks import DecoderKind
from ..plotting import PALETTE, figure_bytes, quiet
from ..report import Picture, Section, Table
from . import table2
from .experiment import Experiment, Page, Plan, Results, Shard
from .table_cells import (
    beside,
    cell,
    comparison_texts,
    estimate,
    figures,
    gather,
    interval_text,
    linear_contrast,
    number,
    p_text,
)
from .trainings import Trainings, seeds

__all__ = ["EXPERIMENT", "SETTINGS", "chart"]

# As the caption of the figure says; the rest as in Table 2.
SETTINGS = replace(table2.SETTINGS, posterior="wrapped", curvature=1.0)
DECODERS: dict[DecoderKind, str] = {
    "mlp": "MLP",
    "log_mlp": "log₀ + MLP",
    "gyroplane": "gyroplane",
    "mobius": "Möbius layer",
}
BASELINE: DecoderKind = "mlp"
# What each decoder is compared with, by the name of the comparison in the results.
_COMPARED: dict[DecoderKind, dict[str, DecoderKind]] = {
    "log_mlp": {"against_mlp": "mlp"},
    "gyroplane": {"against_mlp": "mlp", "against_log_mlp": "log_mlp"},
    "mobius": {"against_mlp": "mlp"},
}

DIFFERENCES = (
    "The Möbius layer, which the paper does not show, is added.",
    "The figure in the paper has no numbers, so there is nothing to test against; what its text says is tested: log₀ + "
    "MLP improves on MLP, the gyroplane layer improves further, and the gains fall with the dimension.",
)


def shards(plan: Plan) -> list[Shard]:
    """By dimension; the decoders of one dimension are stacks of their own."""
    base, count, train, test = table2.sizes(plan)
    base = replace(SETTINGS, epochs=base.epochs)
    made = partial(
        Trainings,
        samples=100 if plan.quick else table2.SAMPLES,
        dataset=partial(table2.dataset, train=train, test=test),
        data=table2.described(train, test),
        tf32=True,
    )
    return [
        made(
            [config for name in DECODERS for config in seeds(replace(base, dim=dim, decoder=name), count, plan.seed)]
        ).shard(f"d{dim}")
        for dim in ((2, 5) if plan.quick else table2.DIMENSIONS)
    ]


def summarise(results: Results) -> dict[str, Any]:
    """Likelihoods, and the relative improvement over the MLP in percent, paired over seeds."""
    found = gather(results, attrgetter("decoder", "dim"))
    cells = []
    for (name, dim), records in found.items():
        own, base = figures(records), figures(found[BASELINE, dim])
        relative = [100 * (base[s] - own[s]) / base[s] for s in sorted(own.keys() & base.keys())]
        entry = {"decoder": name, "dim": dim, **cell(records), "relative": asdict(estimate(relative))}
        for key, other in _COMPARED.get(name, {}).items():
            if test := beside(own, figures(found[other, dim])):
                entry[key] = asdict(test)
        cells.append(entry)
    return {"cells": cells, "decline": _decline(found)}


def _decline(found: Mapping[tuple[DecoderKind, int], Any]) -> dict[str, Any]:
    """How the improvement changes when the dimension doubles, for each decoder: linear contrast over log₂ d."""
    dims = sorted({dim for _, dim in found})
    slopes: dict[str, Any] = {}
    for name in _COMPARED if len(dims) > 1 else ():
        pairs = [(figures(found[BASELINE, dim]), figures(found[name, dim])) for dim in dims]
        shared = sorted(set.intersection(*(a.keys() & b.keys() for a, b in pairs)))
        if len(shared) > 1:
            columns = [[100 * (a[s] - b[s]) / a[s] for s in shared] for a, b in pairs]
            slopes[name] = asdict(linear_contrast(columns, [math.log2(dim) for dim in dims]))
    return slopes


def page(result: Mapping[str, Any]) -> Page:
    """The chart, the likelihoods, and the tests."""
    cells = result["cells"]
    dims = sorted({c["dim"] for c in cells})
    at = {(c["decoder"], c["dim"]): c for c in cells}
    likelihood = [
        [words, *(interval_text(at[name, dim].get("ours")) for dim in dims)] for name, words in DECODERS.items()
    ]
    relative = [
        [
            DECODERS[name],
            *(
                f"{interval_text(found['relative'])} % (p {comparison_texts(found.get('against_mlp'))[1]})"
                for found in (at[name, dim] for dim in dims)
            ),
        ]
        for name in _COMPARED
    ]
    header = ["decoder", *(f"d = {dim}" for dim in dims)]
    n = max(len(c["seeds"]) for c in cells)
    further = [at["gyroplane", dim].get("against_log_mlp") for dim in dims]
    beyond = Table(
        ["gyroplane − log₀ + MLP", *(f"d = {dim}" for dim in dims)],
        [
            ["nats", *(number(t["difference"], sign=True) if t else "–" for t in further)],
            ["p", *(p_text(t["p"] if t else None) for t in further)],
        ],
    )
    declines = Table(
        ["change of the improvement when d doubles", "percentage points", "p"],
        [[DECODERS[name], *comparison_texts(test)] for name, test in result["decline"].items()],
        "Linear contrast over log₂ d, by the t-test on the slope of every seed.",
    )
    picture = Picture(
        figure_bytes(chart(cells)),
        "Wrapped normal, c = 1. Bars are 95 % intervals over seeds.",
        "relative improvement of decoders over the MLP by dimension",
        wide=True,
    )
    sections = [
        Section("Relative improvement over the MLP decoder", (), [picture]),
        Section(
            "Figures",
            (),
            (),
            [
                Table(header, likelihood, f"−IWAE in nats, {n} trainings, 95 % intervals."),
                Table(header, relative, "Relative improvement; p of the paired t-test over seeds."),
                beyond,
                declines,
            ],
        ),
        Section("Where this differs from the paper", DIFFERENCES),
    ]
    gains = ", ".join(f"{number(at['gyroplane', dim]['relative']['mean'], 2)} % at d = {dim}" for dim in dims)
    return Page(f"The gyroplane layer improves on the MLP by {gains}.", "neutral", sections)


def chart(cells: Sequence[Mapping[str, Any]]) -> Figure:
    """The relative improvement by dimension, a line a decoder."""
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    ax = figure.subplots()
    dims = sorted({c["dim"] for c in cells})
    for k, (name, words) in enumerate(DECODERS.items()):
        own = sorted((c for c in cells if c["decoder"] == name), key=lambda c: int(c["dim"]))
        ax.errorbar(
            [dims.index(c["dim"]) + 0.05 * (k - 1.5) for c in own],
            [c["relative"]["mean"] for c in own],
            [c["relative"]["half"] or 0.0 for c in own],
            color=PALETTE[k],
            label=words,
            linewidth=1.3,
            marker="o",
            markersize=4,
            capsize=2,
        )
    ax.set_xticks(range(len(dims)), [str(dim) for dim in dims])
    quiet(ax, "latent dimension", "improvement over MLP (%)")
    ax.legend(frameon=False, fontsize=8)
    return figure


EXPERIMENT = Experiment(
    "ablation", "Decoder ablation on MNIST: relative improvement over an MLP", shards, summarise, page, minutes=9
)
