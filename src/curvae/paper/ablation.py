"""The decoder ablation: what the first layer of the decoder is worth, by dimension, on MNIST."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from ..nn.networks import DecoderKind
from ..plotting import PALETTE, figure_bytes
from ..plotting.style import quiet
from ..report import Picture, Section, Table
from ..training import Config
from . import table2
from .experiment import Experiment, Page, Plan, Results, Shard
from .pages import interval_text, number, p_text
from .statistics import estimate, linear_contrast, paired
from .table_cells import cell, comparison_texts, figures, gather
from .trainings import Trainings, seeds

__all__ = ["EXPERIMENT", "SETTINGS", "chart"]

SETTINGS = replace(table2.SETTINGS, posterior="wrapped", curvature=1.0)
"""the caption of the figure; the rest as in Table 2"""
DECODERS: dict[DecoderKind, str] = {
    "mlp": "MLP",
    "log_mlp": "log₀ + MLP",
    "gyroplane": "gyroplane",
    "mobius": "Möbius layer",
}
BASELINE: DecoderKind = "mlp"

DIFFERENCES = (
    "The Möbius layer, which the paper does not show, is added.",
    "The figure in the paper has no numbers, so there is nothing to test against; what its text says is tested: log₀ + "
    "MLP improves on MLP, the gyroplane layer improves further, and the gains fall with the dimension.",
)


def shards(plan: Plan) -> list[Shard]:
    """By dimension; the decoders of one dimension are stacks of their own."""
    base, count, train, test = table2.sizes(plan)
    base = replace(SETTINGS, epochs=base.epochs)
    found = []
    for dim in (2, 5) if plan.quick else table2.DIMENSIONS:
        configs = [
            config for name in DECODERS for config in seeds(replace(base, dim=dim, decoder=name), count, plan.seed)
        ]
        trainings = Trainings(
            configs,
            samples=100 if plan.quick else table2.SAMPLES,
            dataset=partial(table2.dataset, train=train, test=test),
            data={"name": "MNIST", "train": train or 60000, "test": test or 10000},
            tf32=True,
        )
        found.append(trainings.shard(f"d{dim}"))
    return found


def _key(config: Config) -> tuple[DecoderKind, int]:
    return config.decoder, config.dim


def summarise(results: Results) -> dict[str, Any]:
    """Likelihoods, and the relative improvement over the MLP in percent, paired over seeds."""
    found = gather(results, _key)
    cells = []
    for (name, dim), records in found.items():
        own, base = figures(records), figures(found[BASELINE, dim])
        shared = sorted(own.keys() & base.keys())
        relative = [100 * (base[s] - own[s]) / base[s] for s in shared]
        entry = {"decoder": name, "dim": dim, **cell(records), "relative": asdict(estimate(relative))}
        if name != BASELINE and len(shared) > 1:
            entry["against_mlp"] = paired([own[s] for s in shared], [base[s] for s in shared]).to_json()
        if name == "gyroplane" and len(shared) > 1:
            other = figures(found["log_mlp", dim])
            both = sorted(own.keys() & other.keys())
            entry["against_log_mlp"] = paired([own[s] for s in both], [other[s] for s in both]).to_json()
        cells.append(entry)
    return {"cells": cells, "decline": _decline(found)}


def _decline(found: Mapping[tuple[DecoderKind, int], Any]) -> dict[str, Any]:
    """How the improvement changes when the dimension doubles, for each decoder: linear contrast over log₂ d."""
    dims = sorted({dim for _, dim in found})
    slopes: dict[str, Any] = {}
    for name in DECODERS:
        if name == BASELINE or len(dims) < 2:
            continue
        pairs = [(figures(found[BASELINE, dim]), figures(found[name, dim])) for dim in dims]
        shared = sorted(set.intersection(*(a.keys() & b.keys() for a, b in pairs)))
        columns = [[100 * (a[s] - b[s]) / a[s] for s in shared] for a, b in pairs]
        if len(shared) > 1:
            slopes[name] = linear_contrast(columns, [math.log2(dim) for dim in dims]).to_json()
    return slopes


def page(result: Mapping[str, Any]) -> Page:
    """The chart, the likelihoods, and the tests."""
    cells = result["cells"]
    dims = sorted({c["dim"] for c in cells})
    at = {(c["decoder"], c["dim"]): c for c in cells}
    likelihood, relative = [], []
    for name, words in DECODERS.items():
        likelihood.append([words, *(interval_text(at[name, dim].get("ours")) for dim in dims)])
        if name != BASELINE:
            tests = [at[name, dim].get("against_mlp") for dim in dims]
            texts = [
                f"{interval_text(at[name, dim]['relative'])} % (p {p_text(test['p'] if test else None)})"
                for dim, test in zip(dims, tests, strict=True)
            ]
            relative.append([words, *texts])
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
    sections = [
        Section("Relative improvement over the MLP decoder", (), [Picture(*_picture(cells), wide=True)]),
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


def _picture(cells: Sequence[Mapping[str, Any]]) -> tuple[bytes, str, str]:
    return (
        figure_bytes(chart(cells)),
        "Wrapped normal, c = 1. Bars are 95 % intervals over seeds.",
        "relative improvement of decoders over the MLP by dimension",
    )


def chart(cells: Sequence[Mapping[str, Any]]) -> Figure:
    """The relative improvement by dimension, a line a decoder."""
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    ax = figure.subplots()
    dims = sorted({c["dim"] for c in cells})
    for k, (name, words) in enumerate(DECODERS.items()):
        own = sorted((c for c in cells if c["decoder"] == name), key=lambda c: int(c["dim"]))
        place = [dims.index(c["dim"]) + 0.05 * (k - 1.5) for c in own]
        means = [c["relative"]["mean"] for c in own]
        halves = [c["relative"]["half"] or 0.0 for c in own]
        ax.errorbar(
            place, means, halves, color=PALETTE[k], label=words, linewidth=1.3, marker="o", markersize=4, capsize=2
        )
    ax.set_xticks(range(len(dims)), [str(dim) for dim in dims])
    quiet(ax, "latent dimension", "improvement over MLP (%)")
    ax.legend(frameon=False, fontsize=8)
    return figure


EXPERIMENT = Experiment(
    "ablation", "Decoder ablation on MNIST: relative improvement over an MLP", shards, summarise, page, minutes=9
)
