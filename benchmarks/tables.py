"""Put figures from `results/` into README and docs.

python -m benchmarks.tables                 fill the tables and outputs from the results
python -m benchmarks.tables --check         exit with 1 when a page differs from its results
python -m benchmarks.tables --run           first run the demonstration and all examples again
python -m benchmarks.tables --run demo      only this one; or README, guide-table, …

`<!-- table:NAME -->…<!-- /table -->` is made from `results/NAME.json`, `table:paper_NAME` from
`results/paper/NAME.json`, and `table:gallery_NAME`, `table:maps_NAME` and `table:graphs_NAME` from
`results/gallery.json`, `results/maps.json` and `results/graphs.json`, `table:scale_processes` from
`results/scale.json`, and `table:mapping_NAME`, `table:genes_NAME` and `table:lineages_NAME` from
`results/cells_mapping.json` and its like; the outputs of examples come from `results/examples.json`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from curvae.maps.statistics import mean_interval
from curvae.paper import EXPERIMENTS
from curvae.paper.experiment import table_lines
from curvae.training.storage import versions

from . import (
    calibration,
    cells,
    cells_genes,
    cells_lineages,
    cells_mapping,
    curvature_calibration,
    default_map,
    gallery,
    graph_scale,
    graph_tables,
    processes,
    scale,
    spheres,
    viewer,
)
from .briefs import BRIEFS, brief
from .examples import ROOT, demonstration, fill_outputs, pages_with_examples, record
from .maps import results as maps

__all__ = ["comparisons", "fill", "main", "stale"]

RESULTS = ROOT / "results"
EXAMPLES = RESULTS / "examples.json"

_BLOCK = re.compile(r"(<!-- table:(\w+) -->\n).*?(<!-- /table -->)", re.DOTALL)


def comparisons(result: dict[str, Any]) -> str:
    """Show data by models, from the figures of `curvae.training.compare`."""
    parts = {name: part for name, part in result.items() if isinstance(part, dict) and "repeats" in part}
    curved = next(iter(parts.values()))["best_curvature"]
    lines = [
        f"| test rows, nats a row | PCA | ordinary VAE | Poincaré VAE, c = {curved:g} | curved − flat | p |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in parts.items():
        repeats = part["repeats"]
        cells = [
            _interval([r["pca"] for r in repeats]),
            _interval([r["test"]["0.0"] for r in repeats]),
            _interval([r["test"][str(curved)] for r in repeats]),
            _with_half_width(part["gain"], part["interval"], "+.2f"),
            f"{part['p_value']:.2g}",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _interval(figures: Sequence[float], form: str = ".2f") -> str:
    return _with_half_width(*mean_interval(figures), form)


def _with_half_width(mean: float, half: float, form: str) -> str:
    return f"{_number(mean, form)} ± {half:{form.lstrip('+')}}"


def _number(value: float, form: str = ".2f") -> str:
    return f"{value:{form}}".replace("-", "−")


def stacks(result: dict[str, Any]) -> str:
    """Show a model-step in stacks of several sizes, beside others; two threads, or two processes with one each."""
    lines = [
        "| models | model-step (ms) | alone / it | bare ordinary VAE / it | Pythae / it |",
        "|---|---|---|---|---|",
    ]
    cells: dict[str, dict[str, Any]] = {}
    for row in result["groups"]["stacks"]:
        if row["threads"] == 2:
            other, _, name = row["what"].partition(" / model-step of ")
            cells.setdefault(name, {"ms": row["ours_ms"]})[other] = row["ratio"]
    for name, found in cells.items():
        ratios = [found.get(other) for other in ("a model-step alone", "a bare ordinary step", "Pythae's")]
        texts = ["" if ratio is None else f"{ratio:.2g}" for ratio in ratios]
        lines.append(f"| {name.replace(' models', '')} | {found['ms']:.2f} | {' | '.join(texts)} |")
    return "\n".join(lines)


def cuda(result: dict[str, Any]) -> str:
    """Show steps of stacks on a CUDA device, what bounds them, and likelihoods."""
    lines = ["| models | dim | Euclidean (ms) | wrapped | Riemannian | memory (GB) |", "|---|---|---|---|---|---|"]
    steps: dict[tuple[int, int], dict[str, Any]] = {}
    for row in result["steps"]:
        steps.setdefault((row["models"], row["dim"]), {})[row["kind"]] = row
    for (models, dim), kinds in steps.items():
        times = [f"{kinds['euclidean']['ms']:.2f}"]
        times += [
            f"{kinds[kind]['ms']:.2f} (×{kinds[kind]['over_euclidean']:.2f})" for kind in ("wrapped", "riemannian")
        ]
        lines.append(f"| {models} | {dim} | {' | '.join(times)} | {kinds['riemannian']['memory_gb']:.1f} |")
    measured, full = result["measured"], steps[100, 2]["riemannian"]
    found = result["likelihood"]
    lines += [
        "",
        f"One ordinary VAE in bare PyTorch, launched operation by operation, takes {result['ordinary']['ms']:.2f} ms a "
        f"step there. A hundred Riemannian models do {full['tflops']:.0f} TFLOP/s in matrix products, "
        f"{full['tflops'] / measured['tf32_tflops']:.0%} of what the card reaches in large ones, and move at least "
        f"{full['gb_s']:,.0f} GB/s of weights, gradients and moments, {full['gb_s'] / measured['copy_gb_s']:.0%} of a "
        "plain copy: they are nearer to the limit of memory than to that of arithmetic.",
        "",
        _on_spheres(result["hundred"]),
        "",
        f"Marginal likelihoods of {found['models']} models on {found['images']:,} images with {found['samples']:,} "
        f"samples take {found['float32']['seconds']:.0f} s in float32 and {found['tf32']['seconds']:.0f} s with TF32 "
        f"products. Against float64, on 50 images and four models, the mean of a model is off by at most "
        f"{found['float32']['gap_of_the_means']:.1g} and {found['tf32']['gap_of_the_means']:.1g} nat.",
    ]
    return "\n".join(lines)


def _on_spheres(rows: Sequence[dict[str, Any]]) -> str:
    own = [row for row in rows if row["kind"] == "sphere"]
    times = [f"{row['ms']:.2f} ms on `s{row['dim']}` (×{row['over_euclidean']:.2f})" for row in own]
    return f"On spheres, a step of a hundred models takes {' and '.join(times)}, beside Euclidean ones of the same run."


def calls(result: dict[str, Any]) -> str:
    """Shares of data sets by what `curvae diagnose` called them."""
    lines = ["| data | tree-like | clustered | flat |", "|---|---|---|---|"]
    for name, found in result["kinds"].items():
        shares = " | ".join(
            f"{found[outcome]:.0%}".replace("%", " %") for outcome in ("tree-like", "clustered", "flat")
        )
        lines.append(f"| {name} | {shares} |")
    return "\n".join(lines)


def entropy_variance(result: dict[str, Any]) -> str:
    """How the closed form of the entropy changes the variance of the encoder's gradient."""
    lines = ["| distribution | d | training steps | variance | 95 % interval | time of a gradient |"]
    lines.append("|---|---|---|---|---|---|")
    for case in result["results"]:
        value, low, high = (f"{100 * (ratio - 1):+.2f}" for ratio in (case["ratio"], *case["interval"]))
        lines.append(
            f"| {case['law']} | {case['dim']} | {case['steps']} | {value} % | {low} to {high} % "
            f"| ×{case['time_ratio']:.1f} |"
        )
    return "\n".join(lines)


def covariates(result: dict[str, Any]) -> str:
    """Show what maps show of batches and labels: accuracies in per cent, log-likelihoods in nats a row."""
    lines = [
        "| data | c | model | batch from the map (%) | label from the map (%) | log-likelihood |",
        "|---|---|---|---|---|---|",
    ]
    for name, curvatures in result["data"].items():
        for c, kinds in curvatures.items():
            for kind, runs in kinds.items():
                units = {"batch": 100, "labels": 100, "log_likelihood": 1}
                cells = [_interval([unit * run[figure] for run in runs], ".1f") for figure, unit in units.items()]
                lines.append(f"| {name} | {float(c):g} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def images(result: dict[str, Any]) -> str:
    """Likelihoods of dense and convolutional networks after equal times, and what a step costs."""
    lines = ["| test images, nats | MLP (600, 600) | conv | conv − MLP | epochs of the two |", "|---|---|---|---|---|"]
    plan, cells = result["plan"], result["cells"]
    for dim in plan["dims"]:
        dense, conv = (cells[f"{name}, d = {dim}"] for name in result["networks"])
        for c, figures in dense["log_likelihood"].items():
            others = conv["log_likelihood"][c]
            gain = _interval([b - a for a, b in zip(figures, others, strict=True)], "+.2f")
            epochs = f"{dense['epochs']}, {conv['epochs']}"
            lines.append(f"| d = {dim}, c = {c} | {_interval(figures)} | {_interval(others)} | {gain} | {epochs} |")
    dim = plan["dims"][0]
    steps = (f"{cells[f'{name}, d = {dim}']['ms_a_step']:.2f} ms ({name})" for name in result["networks"])
    lines += [
        "",
        f"Mean ± 95 % interval over {plan['seeds']} seeds, {plan['samples']:,} importance samples, on "
        f"{result['device']}: {plan['seconds']:g} s of training for a stack of {2 * plan['seeds']} models, half of "
        f"them flat. A step of such a stack with d = {dim} takes {', '.join(steps)}.",
    ]
    return "\n".join(lines)


def missing(result: dict[str, Any]) -> str:
    """Show what leaving gaps to the model gains over means, and errors beside those of others."""
    others = list(next(iter(result["baselines"].values()))[0])
    lines = [
        f"| data | c | log-likelihood gained, nats a row | error, model | error, mean | model − mean | "
        f"{' | '.join(others)} |",
        f"|{'---|' * (6 + len(others))}",
    ]
    for run in result["runs"]:
        gains, baselines = run["model_minus_mean"], result["baselines"][run["table"]]
        errors = [fmean(seed["error"] for seed in run[way]) for way in ("model", "mean")]
        errors += [fmean(seed[name] for seed in baselines) for name in others]
        cells = [f"{error:.3f}" for error in errors]
        cells.insert(2, _with_half_width(*gains["error"], "+.3f"))
        gained = _with_half_width(*gains["log_likelihood"], "+.2f")
        lines.append(f"| {run['table']} | {run['curvature']:g} | {gained} | {' | '.join(cells)} |")
    return "\n".join(lines)


def paper(result: dict[str, Any]) -> str:
    """Show an experiment of `curvae paper`: its verdict, tables and pictures, as its own page has them."""
    shown = EXPERIMENTS[result["experiment"]].page(result)
    lines = [shown.verdict]
    for table in (table for section in shown.sections for table in section.tables):
        lines += ["", *table_lines(table), *(["", table.note] if table.note else [])]
    drawn = sum(len(section.pictures) for section in shown.sections)
    for k in range(drawn):
        lines += ["", f"![{result['title']}](../results/paper/figures/{result['experiment']}-{k + 1}.png)"]
    for name, caption in shown.gallery.items():
        lines += ["", f"![{caption}](../results/paper/figures/{name})", "", caption]
    minutes = f"{result['seconds'] / 60:.1f} minutes on {result['device']}"
    return "\n".join([*lines, "", f"`curvae paper {result['experiment']}`, {minutes}."])


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "demo": comparisons,
    "demo_long": comparisons,
    "entropy_variance": entropy_variance,
    "covariates": covariates,
    "bench_cpu": stacks,
    "bench_h200": cuda,
    "hierarchy_calibration": calls,
    "compare_calibration": calibration.table,
    "curvature_calibration": curvature_calibration.table,
    "spheres": spheres.table,
    **{f"paper_{name}": paper for name in EXPERIMENTS},
    **{f"brief_{name}": brief for name in BRIEFS},
    "viewer": viewer.table,
    "images": images,
    "missing": missing,
    "scale": scale.table,
    "scale_processes": processes.table,
    "graph_scale": graph_scale.table,
    "default_map": default_map.table,
    "cells_rate": cells.rates,
    **{f"cells_{name}": partial(cells.table, name) for name in cells.DATA},
    **{f"mapping_{name}": partial(cells_mapping.table, name) for name in cells_mapping.QUERIES},
    **{f"genes_{name}": partial(cells_genes.table, name) for name in ("simulated", "kang")},
    **{f"lineages_{name}": partial(cells_lineages.table, name) for name in cells_lineages.SHOWN},
    **maps.TABLES,
    **graph_tables.TABLES,
    **{f"gallery_{name}": partial(gallery.table, name) for name in gallery.ENTRIES},
}


def fill(name: str, text: str) -> str:
    """Return the page of that name with all its tables and outputs."""

    def block(match: re.Match[str]) -> str:
        if match[2] not in TABLES:
            raise ValueError(f"{name} has a block table:{match[2]}; known are {', '.join(TABLES)}")
        file = re.sub("^(paper|brief)_", "paper/", re.sub("^(gallery|maps|graphs|scale|cells)_.*", r"\1", match[2]))
        file = re.sub("^(mapping|genes|lineages)_.*", r"cells_\1", file)
        path = RESULTS / f"{file}.json"
        if not path.exists():
            command = "curvae paper " if path.parent.name == "paper" else "python -m benchmarks."
            return f"{match[1]}To be computed: `{command}{path.stem}`.\n{match[3]}"
        result = json.loads(path.read_text(encoding="utf-8"))
        return f"{match[1]}{TABLES[match[2]](result)}\n{match[3]}"

    text = _BLOCK.sub(block, text)
    examples = json.loads(EXAMPLES.read_text(encoding="utf-8"))["pages"]
    return fill_outputs(text, examples.get(name, [])) if name in pages_with_examples() else text


def stale(write: bool = False) -> list[str]:
    """Names of the pages that differ from their results; `write` mends them."""
    pages = {path.stem: path for path in (ROOT / "docs").glob("*.md")} | pages_with_examples()
    found = []
    for name, path in sorted(pages.items()):
        before = path.read_text(encoding="utf-8")
        after = fill(name, before)
        if after != before:
            found.append(name)
            if write:
                path.write_text(after, encoding="utf-8")
    return found


def run(names: Sequence[str]) -> None:
    """Run the demonstration and the examples of pages, all unless some are named, and write their results."""
    known = ["demo", *pages_with_examples()]
    if unknown := set(names) - set(known):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in names or known:
        print(name, file=sys.stderr)
        if name == "demo":
            _write(RESULTS / "demo.json", demonstration())
            continue
        stored = json.loads(EXAMPLES.read_text(encoding="utf-8")) if EXAMPLES.exists() else {"pages": {}}
        _write(EXAMPLES, {"versions": versions(), "pages": {**stored["pages"], name: record(name)}})


def _write(path: Path, result: dict[str, Any]) -> None:
    path.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description="Fill the tables of the pages.")
    parser.add_argument("--check", action="store_true", help="only say which pages are stale")
    parser.add_argument("--run", nargs="*", metavar="NAME", help="first run the demonstration and the examples")
    options = parser.parse_args(arguments)
    if options.run is not None:
        run(options.run)
    try:
        names = stale(write=not options.check)
    except ValueError as error:
        sys.exit(str(error))
    if names:
        print(f"{'stale' if options.check else 'filled'}: {', '.join(names)}")
    if names and options.check:
        sys.exit(1)


if __name__ == "__main__":
    main()
