"""What the figures of all maps say: means with intervals, the verdict, and the tables of the page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curvae.maps.statistics import mean_interval
from curvae.training.comparison import Paired
from curvae.training.fitted import stability
from curvae.training.storage import versions

from . import lost as repeated
from .cells import Cell
from .data import CHOICE, FOLDS, SETS, VERDICT, Data, load
from .others import VERSIONS
from .pictures import NAMES
from .score import drawn, place, scored

__all__ = ["TABLES", "summary"]

FIGURES = (
    *("qlocal", "qglobal", "qlocal_paths", "qglobal_paths", "trustworthiness", "continuity"),
    *("rank_correlation", "accuracy"),
)
HELD_OUT = (*FIGURES, "accuracy_of_trained", "log_likelihood")
OURS = "term"
PLAIN = "likelihood"
COMPARED = ("qlocal", "qglobal", "accuracy")
_TIMED = ("krumsiek11", "pbmc68k_reduced", "mnist")

Found = Mapping[str, Any]


def summary(data: Path, maps: Path, timed: Path, before: Found) -> dict[str, Any]:
    """Return the content of `results/maps.json`; figures and times of methods that were not measured again are those of
    `before`, its content until now."""
    cells = drawn(maps, list(SETS))
    sets = {name: _one(data, maps, name, [cell for cell in cells if cell.data == name]) for name in SETS}
    times = {name: _times(timed, name) for name in SETS}
    for name, known in before.get("sets", {}).items():
        sets[name]["maps"] = _ordered({**known["maps"], **sets[name]["maps"]})
        times[name] = _over_umap(_ordered({**before["time"].get(name, {}), **times[name]}))
    sets = {name: found for name, found in sets.items() if found["maps"]}
    others = maps / VERSIONS
    newer = json.loads(others.read_text(encoding="utf-8")) if others.exists() else {}
    return {
        "command": "python -m benchmarks.maps",
        "versions": {**before.get("versions", {}), **newer, **versions()},
        "choice": CHOICE,
        "verdict": VERDICT,
        "sets": sets,
        "found": _verdict(sets, maps, before),
        "time": {name: times[name] for name in sets},
    }


def _ordered(methods: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known by method, in the order of the tables."""
    return {method: methods[method] for method in NAMES if method in methods}


def _one(data: Path, maps: Path, name: str, cells: Sequence[Cell]) -> dict[str, Any]:
    """Figures of one data set."""
    known = load(data, name)
    found: dict[str, dict[str, Any]] = {}
    for method in NAMES:
        whole = [cell for cell in cells if cell.method == method and cell.fold is None]
        folds = [cell for cell in cells if cell.method == method and cell.fold is not None]
        if figures := _gathered(whole, maps, FIGURES):
            alike = stability([place(cell, maps) for cell in whole])
            agreement = None if alike is None else alike.correlation
            found[method] = {"seeds": len(whole), "agreement": agreement, **figures}
            if held_out := _gathered(folds, maps, HELD_OUT):
                found[method]["held_out"] = held_out | _lost(folds, maps, known)
    rows, columns = known.x.shape
    labels = len(np.unique(known.labels))
    return {"rows": rows, "columns": columns, "labels": labels, "likelihood": known.likelihood, "maps": found}


def _gathered(cells: Sequence[Cell], maps: Path, names: Sequence[str]) -> dict[str, Any]:
    """Every figure of some maps, one after the other, where all of them have it."""
    each = [figures for cell in cells if (figures := scored(cell, maps)) is not None]
    return {
        name: [one[name] for one in each] for name in names if each and all(one.get(name) is not None for one in each)
    }


def _mean(found: Found, name: str) -> float | None:
    return float(np.mean(found[name])) if name in found else None


def _verdict(sets: Mapping[str, Found], folder: Path, before: Found) -> dict[str, Any]:
    """Return what was asked of the maps before they were drawn, and what came out."""
    maps = {name: sets[name]["maps"] for name in VERDICT if OURS in sets.get(name, {"maps": ()})["maps"]}
    found: dict[str, Any] = {"better_in_all": _better_in_all(maps), "median_difference": _medians(maps)}
    cells = sets.get("krumsiek11", {"maps": {}})["maps"]
    if OURS in cells:
        found["krumsiek11"] = {name: mean_interval(cells[OURS][name]) for name in ("qlocal_paths", "qglobal_paths")}
    lost = before.get("found", {}).get("held_out_accuracy_lost_by_seeds", {})
    found["held_out_accuracy_lost_by_seeds"] = {**lost, **repeated.summary(folder)}
    return found


def _lost(cells: Sequence[Cell], maps: Path, known: Data) -> dict[str, Any]:
    """How much less often the label of a row is told when it was held out than when it was trained with.

    The mean, and halves of 95 % intervals: over rows, each of them compared with itself, for the maps of these
    trainings; and over folds, some of which have rows that are harder to tell than others, and of which the training
    rows of two overlap (Nadeau and Bengio, 2003).
    """
    each = [figures["told"] for cell in cells if (figures := scored(cell, maps)) and "told" in figures]
    if len(each) != FOLDS:
        return {}
    told = np.array([list(one) for one in each]) == "1"
    trained = np.array([cell.trained(known) for cell in cells])
    folds = Paired(
        [one[own].mean() - one[~own].mean() for one, own in zip(told, trained, strict=True)], ratio=1 / (FOLDS - 1)
    )
    rows = Paired(repeated.lost(told, trained).tolist())
    return {"accuracy_lost": {"mean": rows.mean, "rows": rows.interval, "folds": folds.interval}}


def _better_in_all(maps: Mapping[str, Found]) -> dict[str, list[str]]:
    """For each data set the methods with more near neighbours, more far ones and more labels right, all at once."""
    found = {}
    for name, methods in maps.items():
        ours = [_mean(methods[OURS], figure) for figure in COMPARED]
        found[name] = [
            method
            for method, figures in methods.items()
            if method not in (OURS, PLAIN, "flat_term")
            and all(
                theirs > mine
                for mine, figure in zip(ours, COMPARED, strict=True)
                if mine is not None and (theirs := _mean(figures, figure)) is not None
            )
        ]
    return found


def _medians(maps: Mapping[str, Found]) -> dict[str, Any]:
    """Ours less the better of UMAP and t-SNE, on every data set, and the median."""
    found: dict[str, Any] = {}
    for figure in COMPARED:
        each = {
            name: _mean(methods[OURS], figure) - max(_mean(methods["umap"], figure), _mean(methods["tsne"], figure))
            for name, methods in maps.items()
            if all(figure in methods.get(method, ()) for method in (OURS, "umap", "tsne"))
        }
        found[figure] = {"median": float(np.median(list(each.values()))) if each else None, "each": each}
    return found


def _times(timed: Path, name: str) -> dict[str, Any]:
    """CPU seconds of maps of a data set that were drawn on one machine, and how many times those of UMAP they are."""
    found: dict[str, dict[str, float]] = {}
    for method in NAMES:
        stored = [np.load(path) for path in sorted((timed / method / name).glob("seed*.npz"))]
        spent = [float(one["seconds"]) for one in stored if "seconds" in one]
        if spent:
            found[method] = {"seconds": float(np.median(spent))}
    return _over_umap(found)


def _over_umap(times: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the times of methods, and how many times that of UMAP they are."""
    umap = times.get("umap")
    return (
        times
        if umap is None
        else {method: {**one, "over_umap": one["seconds"] / umap["seconds"]} for method, one in times.items()}
    )


# --- tables ---------------------------------------------------------------------------------------------------------


def _cell(values: Sequence[float] | None, form: str = ".2f") -> str:
    """Write a mean with its 95 % interval, where there are several."""
    if not values:
        return ""
    if len(values) < 2:
        return _signed(values[0], form)
    mean, half = mean_interval(values)
    return f"{_signed(mean, form)} ± {half:{form}}"


def _signed(value: float, form: str) -> str:
    return f"{value:{form}}".replace("-", "−")


def _rows(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    shown = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in shown)


def maps_table(result: Found) -> str:
    """Figures of all maps, a table for every data set."""
    parts = []
    for name, found in result["sets"].items():
        half = "verdict" if name in result["verdict"] else "choice"
        size = f"{found['rows']:,} rows, {found['columns']:,} columns"
        lines = [
            [
                NAMES[method],
                *(_cell(one.get(figure), ".3f") for figure in FIGURES if figure != "rank_correlation"),
                "" if one["agreement"] is None else f"{one['agreement']:.2f}",
                f"{result['time'][name][method]['seconds']:.1f}" if method in result["time"][name] else "",
            ]
            for method, one in found["maps"].items()
        ]
        header = ["map", "Qlocal", "Qglobal", "Qlocal, paths", "Qglobal, paths", "trustworthiness", "continuity"]
        parts.append(
            f"**{name}** ({size}; {half})\n\n" + _rows([*header, "5-NN accuracy", "agreement", "CPU s"], lines)
        )
    return "\n\n".join(parts)


def held_out_table(result: Found) -> str:
    """Figures of rows that were placed afterwards."""
    lines = []
    for name, found in result["sets"].items():
        for method, one in found["maps"].items():
            held = one.get("held_out")
            if held is None:
                continue
            figures = ("qlocal", "qglobal", "trustworthiness", "accuracy", "accuracy_of_trained")
            cells = [_cell(held.get(figure), ".3f") for figure in figures]
            lines.append([name, NAMES[method], *cells, _points(held), _cell(held.get("log_likelihood"))])
    header = ["data", "map", "Qlocal", "Qglobal", "trustworthiness", "5-NN accuracy", "of trained rows", "points lost"]
    return _rows([*header, "log-likelihood"], lines)


def _points(held: Found) -> str:
    """By how many points in a hundred labels of held-out rows are told less often."""
    lost = held.get("accuracy_lost")
    return "" if lost is None else _percent(lost["mean"], lost["rows"])


def _percent(mean: float, half: float) -> str:
    return f"{_signed(round(100 * mean, 1) + 0.0, '.1f')} ± {100 * half:.1f}"


def lost_table(result: Found) -> str:
    """Show what rows lose that are held out, by all seeds, beside UMAP."""
    lines = []
    for name, lost in result["found"]["held_out_accuracy_lost_by_seeds"].items():
        halves = [f"± {100 * lost[part]:.1f}" for part in ("over_rows", "over_seeds")]
        others = _points(result["sets"][name]["maps"]["umap"]["held_out"])
        lines.append([name, _percent(lost["mean"], lost["interval"]), *halves, others])
    return _rows(["data", NAMES[OURS], "over rows", "over seeds", f"{NAMES['umap']}, one seed"], lines)


def verdict_table(result: Found) -> str:
    """Ours less the better of UMAP and t-SNE on the data sets that no choice has seen."""
    found = result["found"]
    medians, better = found["median_difference"], found["better_in_all"]
    header = ["data", "Qlocal", "Qglobal", "5-NN accuracy", "better in all three"]
    lines = []
    for name, methods in better.items():
        cells = [medians[figure]["each"].get(name) for figure in COMPARED]
        shown = ["" if cell is None else _signed(cell, "+.3f") for cell in cells]
        lines.append([name, *shown, ", ".join(NAMES[method] for method in methods) or "none"])
    middle = [medians[figure]["median"] for figure in COMPARED]
    lines.append(["median", *("" if cell is None else _signed(cell, "+.3f") for cell in middle), ""])
    return _rows(header, lines)


def time_table(result: Found) -> str:
    """CPU seconds on one machine, of three data sets."""
    lines = []
    for name, found in ((name, result["time"][name]) for name in _TIMED if name in result["time"]):
        size = f"{result['sets'][name]['rows']:,} × {result['sets'][name]['columns']:,}"
        for method, one in found.items():
            times = f"{one['over_umap']:.1f}" if "over_umap" in one else ""
            lines.append([f"{name}, {size}", NAMES[method], f"{one['seconds']:.1f}", times])
    return _rows(["data", "map", "CPU seconds", "times UMAP's"], lines)


def speed_table(result: Found) -> str:
    """CPU seconds of ours and of the two best known others, a row for each of three data sets."""
    shown = (OURS, PLAIN, "umap", "tsne")
    lines = []
    for name in (name for name in _TIMED if name in result["time"]):
        size = f"{result['sets'][name]['rows']:,} × {result['sets'][name]['columns']:,}"
        lines.append([f"{name}, {size}", *(f"{result['time'][name][method]['seconds']:.0f}" for method in shown)])
    return _rows(["data", *(NAMES[method] for method in shown)], lines)


def pictures(result: Found) -> str:
    """Show the pictures, one after the other."""
    return "\n\n".join(f"![maps of {name}, side by side](images/maps-{name}.png)" for name in result["sets"])


TABLES = {
    "maps": maps_table,
    "maps_held_out": held_out_table,
    "maps_lost": lost_table,
    "maps_verdict": verdict_table,
    "maps_time": time_table,
    "maps_speed": speed_table,
    "maps_pictures": pictures,
}
