"""How good are models of counts of genes in cells, beside those of scvi-tools and PCA with Harmony?

python -m benchmarks.cells export               the counts, from the files in $CURVAE_DATA/cells, as arrays
python -m benchmarks.cells ours [DATA ...] [--seeds 20]     our models; on CUDA if there is one
python -m benchmarks.cells_peers FOLDER         the others, in an environment that has them (see there)
python -m benchmarks.cells rate                 cells a second on CUDA, resident and from the memory of the host
python -m benchmarks.cells pictures             the maps of two data sets, flat and curved, as docs/images/cells-*.png
python -m benchmarks.cells results              all figures, as results/cells.json

Five seeds, or twenty with `--seeds 20`, each with a split of its own: a tenth of the cells for validation, a tenth for
tests. All see the same 2,000 genes with the largest variance of log1p(10⁴·count/total) within batches. Likelihoods are
those of the first 250 test cells with 500 importance samples. Every model is a file of FOLDER until `results` reads it;
an interrupted run goes on.

Labels: do the 15 nearest training cells tell the label of a test cell? Mixing: the entropy of batches among the 50
nearest cells of the same label over that among all of them, from 0, apart, to 1. On the mixtures of cells, of the wells
with two equal smaller shares, depth: the rank correlation of the distance from the wells of equal shares with the share
of the prevailing line; tree: of all distances with those on a star of three arms; arm: do 15 neighbours tell the
prevailing line? On the simulated tree, tree: the rank correlation of distances with the numbers of edges.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import joblib
import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from scipy import sparse
from scipy.stats import spearmanr

from curvae.data import Arrays, Dataset, branching_counts, branching_diffusion, load
from curvae.data.files import places
from curvae.hierarchy import faithfulness
from curvae.maps.embedding import Embedding
from curvae.maps.faithfulness import places_of
from curvae.maps.statistics import mean_interval
from curvae.plotting import disc, fit_window
from curvae.plotting.pictures import colouring
from curvae.training import Config, Fitted, embed, fit_many
from curvae.training.fitted import likelihoods
from curvae.training.fitting import plan_rows
from curvae.training.rows import Split, random_split
from curvae.training.storage import read_json, versions, write_json

from .examples import IMAGES, shrink

__all__ = ["DATA", "FOLDER", "RESULT", "main", "rates", "table"]

RESULT = Path(__file__).parent.parent / "results" / "cells.json"
FOLDER = Path("runs/cells")
SEEDS, MOST, SAMPLES, JUDGED, SHOWN = 5, 20, 500, 250, 1000
DIMS = (2, 10)
# File, column of the batch, column of labels; none for the simulated cells.
DATA = {
    "kang": ("kang.h5ad", "stim", "cell_type"),
    "cellmix": ("cellmix.h5ad", "plate", "mixture"),
    "paul": ("paul.h5ad", None, "cell_type"),
    "simulated": (None, "batch", "branch"),
}
OFF = {"neighbours": "off"}
VARIANTS: dict[str, dict[str, Any]] = {
    "poisson": {"likelihood": "poisson", **OFF},
    "nb": {"likelihood": "nb", **OFF},
    "nb, c = 0": {"likelihood": "nb", "curvature": 0.0, **OFF},
    "nb, c learned": {"likelihood": "nb", "learn_curvature": True, **OFF},
    "nb, gene-batch": {"likelihood": "nb", "dispersion": "gene-batch", **OFF},
    "nb, gene-cell": {"likelihood": "nb", "dispersion": "gene-cell", **OFF},
    "zinb": {"likelihood": "zinb", **OFF},
    "nb, map": {"likelihood": "nb", "neighbours": "both"},
    "nb, map, c = 0": {"likelihood": "nb", "curvature": 0.0, "neighbours": "both"},
}


# --- data -------------------------------------------------------------------------------------------------------------


def export(names: Sequence[str]) -> None:
    """Write the counts, batches, labels and splits of data sets as arrays."""
    for name in names:
        file, batch, label = DATA[name]
        data: Dataset
        if file is None:
            data = branching_counts(dropout=0.1)
        else:
            folder = next(place for place in places("cells") if place.is_dir())
            data, _ = load(folder / file, batch_key=batch, label=label, genes=2000)
        x = sparse.csr_array(data.x)
        splits = [random_split(len(data), 0.1, 0.1, seed=seed) for seed in range(MOST)]
        part = np.array([split.names(len(data)) for split in splits])
        batches = np.zeros(len(data), np.int64) if data.context is None else np.asarray(data.context).argmax(1)
        node = np.array([id_.removeprefix("node").split("-")[0] for id_ in data.ids]) if file is None else None
        (FOLDER / "data").mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            FOLDER / "data" / f"{name}.npz",
            data=x.data.astype(np.float32),
            indices=x.indices,
            indptr=x.indptr,
            shape=x.shape,
            batch=batches,
            label=np.asarray(data.labels, np.str_),
            node=np.zeros(0) if node is None else node.astype(np.int64),
            part=part,
        )


def read(name: str) -> dict[str, Any]:
    """Read what `export` wrote, with the counts as `x`."""
    with np.load(FOLDER / "data" / f"{name}.npz") as stored:
        held = dict(stored)
    x = sparse.csr_array((held["data"], held["indices"], held["indptr"]), shape=tuple(held["shape"]))
    return {**held, "x": x, "total": np.asarray(x.sum(1), np.float64)}


def splits_of(held: Mapping[str, Any]) -> list[Split]:
    return [Split(*(np.flatnonzero(part == of) for of in ("train", "validation", "test"))) for part in held["part"]]


# --- figures of a map -------------------------------------------------------------------------------------------------


def nearest(found: Any, rows: np.ndarray, among: np.ndarray, k: int) -> np.ndarray:
    """Return the k nearest other cells of some cells among others, on a map."""
    parts = []
    for some in np.array_split(rows, -(-len(rows) // 500)):
        far = found.table(some, among)
        far[some[:, None] == among] = np.inf
        parts.append(among[np.argpartition(far, k - 1, axis=1)[:, :k]])
    return np.concatenate(parts)


def told(near: np.ndarray, codes: np.ndarray, truth: np.ndarray) -> float:
    votes = np.stack([(codes[near] == code).sum(1) for code in range(codes.max() + 1)], 1)
    return float((votes.argmax(1) == truth).mean())


def entropy(counts: np.ndarray) -> np.ndarray:
    shares = counts / counts.sum(-1, keepdims=True)
    return -(shares * np.log(np.maximum(shares, 1e-300))).sum(-1)


def mixing(found: Any, label: np.ndarray, batch: np.ndarray, k: int = 50) -> float | None:
    """Return how mixed the batches are among the nearest cells of the same label."""
    values, weights = [], []
    for name in np.unique(label):
        rows = np.flatnonzero(label == name)
        every = entropy(np.bincount(batch[rows]).astype(float))
        if len(rows) <= 10 or every < 1e-9:
            continue
        near = nearest(found, rows, rows, min(k, len(rows) // 2))
        counts = np.stack([(batch[near] == one).sum(1) for one in range(batch.max() + 1)], 1)
        values.append(entropy(counts).mean() / every)
        weights.append(len(rows))
    return float(np.average(values, weights=weights)) if values else None


def star(found: Any, label: np.ndarray) -> dict[str, float]:
    """Return figures of the mixtures of three lines, of the wells on the arms of a star."""
    parts = np.array([[int(n) for n in one.split("_")] for one in label])
    ordered = np.sort(parts, 1)
    rows = np.flatnonzero((parts.sum(1) == 9) & (ordered[:, 0] == ordered[:, 1]))
    share, line = ordered[rows, 2] / 9 - 1 / 3, parts[rows].argmax(1)
    middle = share < 1e-9
    far = found.table(rows, rows)
    same = line[:, None] == line
    truth = np.where(same | middle[:, None] | middle, abs(share[:, None] - share), share[:, None] + share)
    pairs = np.triu_indices(len(rows), 1)
    arms = rows[~middle]
    codes = np.zeros(len(label), np.int64)
    codes[rows] = line
    return {
        "depth": float(spearmanr(far[:, middle].mean(1), share)[0]),
        "tree": float(spearmanr(far[pairs], truth[pairs])[0]),
        "arm": told(nearest(found, arms, arms, 15), codes, codes[arms]),
    }


def figures(name: str, held: Mapping[str, Any], places_found: Any, seed: int) -> dict[str, float | None]:
    """Return all figures of a map of one data set: coordinates, or an `Embedding`."""
    found, label, batch = places_of(places_found), held["label"], held["batch"]
    split, random = splits_of(held)[seed], np.random.default_rng(0)
    shown = np.sort(random.permutation(len(label))[:SHOWN])
    logs = (held["x"][shown].toarray() * (np.median(held["total"]) / held["total"][shown])[:, None] + 1.0).astype(float)
    own = places_found.take(shown) if isinstance(places_found, Embedding) else np.asarray(places_found)[shown]
    kept = faithfulness(np.log(logs), own, groups=batch[shown] if batch.any() else None).map
    result: dict[str, float | None] = {"qlocal": kept.qlocal, "qglobal": kept.qglobal}
    if name == "cellmix":
        result |= star(found, label)
    else:
        codes = np.unique(label, return_inverse=True)[1]
        result["labels"] = told(nearest(found, split.test, split.train, 15), codes, codes[split.test])
    if batch.any():
        result["mixing"] = mixing(found, label, batch)
    if name == "simulated":
        hops = branching_diffusion(1, 4).distances()[held["node"][shown][:, None], held["node"][shown]]
        pairs = np.triu_indices(len(shown), 1)
        result["tree"] = float(spearmanr(found.table(shown, shown)[pairs], hops[pairs])[0])
    return result


# --- our models -------------------------------------------------------------------------------------------------------


def arrays_of(held: Mapping[str, Any]) -> Arrays:
    batches = int(held["batch"].max()) + 1
    context = {"context": np.eye(batches)[held["batch"]], "batch": (0, batches)} if batches > 1 else {}
    return Arrays(held["x"], size=held["total"], total=True, **context)


def evidence(fitted: Fitted, arrays: Arrays, rows: np.ndarray) -> tuple[list[float], list[float], float]:
    """Return log p and the ELBO of every cell, and the mean effective sample size."""
    some = arrays.take(rows)
    found = likelihoods(fitted, some, SAMPLES)
    single = fitted.rows(some)
    generator = torch.Generator(fitted.model.device).manual_seed(0)
    with torch.no_grad():
        batch = single.batch(torch.arange(len(rows), device=single.device))
        elbo = fitted.model.elbo(batch, noise=fitted.model.noise(len(rows), 20, generator)).cpu().double()
    return found.log_prob.tolist(), elbo.tolist(), float(found.ess.mean())


def ours(
    names: Sequence[str], variants: Sequence[str], dims: Sequence[int], seeds: int, device: str, steps: int | None
) -> None:
    """Train the models of all seeds of a variant at once, and write what is known of each."""
    for name in names:
        held = read(name)
        arrays, splits = arrays_of(held), splits_of(held)
        for variant in variants:
            settings = VARIANTS[variant]
            batchless = settings.get("dispersion") == "gene-batch" and not held["batch"].any()
            for dim in dims:
                files = [FOLDER / "ours" / f"{name}-{variant}-{dim}-{seed}.json" for seed in range(seeds)]
                only_maps = settings["neighbours"] == "both" and dim > 3
                if batchless or only_maps or all(file.exists() for file in files):
                    continue
                files[0].parent.mkdir(parents=True, exist_ok=True)
                more = {} if steps is None else {"steps": steps}
                configs = [Config(dim=dim, seed=seed, **settings, **more) for seed in range(seeds)]
                began, cpu = time.perf_counter(), time.process_time()
                found = fit_many(configs, arrays, splits=splits[:seeds], device=device)
                seconds = (time.perf_counter() - began) / len(found), (time.process_time() - cpu) / len(found)
                judged = [evidence(one, arrays, one.split.test[:JUDGED]) for one in found]
                maps = [embed(one, arrays) for one in found]
                shown = joblib.Parallel(n_jobs=-1)(
                    joblib.delayed(figures)(name, held, own, seed) for seed, own in enumerate(maps)
                )
                for file, one, (log_p, elbo, ess), own in zip(files, found, judged, shown, strict=True):
                    epochs = len(one.history)
                    known = {"log_p": log_p, "elbo": elbo, "ess": ess, "failure": one.failure, "epochs": epochs}
                    settled = {"seconds": seconds[0], "cpu_seconds": seconds[1], "c": float(maps[0].c)}
                    write_json(file, {**known, **settled, "figures": own})
                means = {
                    key: float(np.mean([one[key] for one in shown])) for key in shown[0] if shown[0][key] is not None
                }
                print(
                    name,
                    variant,
                    dim,
                    f"{np.mean([j[0] for j in judged]):.1f}",
                    means,
                    f"{seconds[0]:.1f} s",
                    flush=True,
                )


def rate() -> None:
    """Write how many cells a second are trained on: 2,000 genes, a tenth of the counts not 0, batches of 1,024.

    The training is one of 80 passes, of which the first few are timed: steps of long trainings are compiled.
    """
    found = {}
    for kind, cells in (("resident", 500_000), ("host", 200_000)):
        piece = sparse.random_array((2_000, 2_000), density=0.1, format="csr", dtype=np.float32, rng=0)
        piece.data = np.ceil(5 * piece.data)
        x: Any = sparse.vstack([piece] * (cells // 2_000), format="csr")
        total = np.asarray(x.sum(1), np.float64)
        config = Config(
            dim=10, likelihood="nb", epochs=80, batch_size=1024, hidden=(128,), validation=0.0, patience=None
        )
        problem, tasks = plan_rows([replace(config, neighbours="off")], Arrays(x, size=total, total=True), asked="cuda")
        # Rows that do not fit on the device stay in the memory of the host, as sparse ones.
        room = nullcontext() if kind == "resident" else mock.patch("torch.cuda.mem_get_info", return_value=(0, 0))
        with room:
            engine = problem.engine(tasks, problem.models(tasks))
        seconds = []
        for number in range(5):
            began = time.perf_counter()
            assert not engine.epoch(number).failures
            seconds.append(time.perf_counter() - began)
        found[kind] = cells / float(np.median(seconds[1:]))
        print(kind, f"{found[kind]:,.0f} cells a second", flush=True)
    write_json(FOLDER / "rate.json", {**found, "card": torch.cuda.get_device_name()})


def pictures() -> None:
    """Draw the default maps of two data sets by label and by batch, curved above and flat below."""
    for name in ("kang", "cellmix"):
        held = read(name)
        parts = np.sort([[int(n) for n in one.split("_")] for one in held["label"]], 1) if name == "cellmix" else None
        label = held["label"] if parts is None else parts[:, 2] / parts.sum(1)
        splits = splits_of(held)[:1] * 2
        configs = [Config(curvature=c, likelihood="nb", neighbours="both") for c in (1.0, 0.0)]
        found = fit_many(configs, arrays_of(held), splits=splits)
        figure = Figure(figsize=(8.0, 8.0), layout="constrained")
        for row, one in zip(figure.subplots(2, 2), found, strict=True):
            own = embed(one, arrays_of(held))
            for ax, values, title in zip(row, (label, held["batch"].astype(str)), ("label", "batch"), strict=True):
                colours = colouring(values, len(values))
                disc(ax, own.chart, reach=fit_window(own.ball))
                order = np.random.default_rng(0).permutation(len(values))
                ax.scatter(*own.ball[order].T, s=2, c=colours.colours[order], linewidths=0, zorder=2)
                ax.set_title(f"c = {one.config.curvature:g}, by {title}", fontsize=10)
        stream = io.BytesIO()
        figure.savefig(stream, dpi=120)
        shrink(Image.open(stream), IMAGES / f"cells-{name}.png")


# --- results ----------------------------------------------------------------------------------------------------------


def interval(values: Sequence[float]) -> dict[str, float]:
    mean, half = mean_interval(list(values))
    return {"mean": mean, "half": half}


def results() -> None:
    """Put all that was measured into one file, with differences of log p from scVI and from nb, paired over cells.

    Rows of methods that were not measured again stay as they are.
    """
    before = read_json(RESULT)["rows"] if RESULT.exists() else []
    kept = {(row["data"], row["dim"], row["method"]): row for row in before}
    rows: list[dict[str, Any]] = []
    for name in DATA:
        held = read(name)
        for dim in DIMS:
            measured = {variant: _of(FOLDER / "ours" / f"{name}-{variant}-{dim}-{{}}.json") for variant in VARIANTS}
            for method in ("scVI", "PCA + Harmony"):
                files = [FOLDER / "peers" / f"{name}-{method}-{dim}-{seed}.npz" for seed in range(MOST)]
                measured[method] = [_peer(name, held, file, seed) for seed, file in enumerate(files) if file.exists()]
            for method, each in measured.items():
                if len(each) < SEEDS:
                    rows += [kept[name, dim, method]] if (name, dim, method) in kept else []
                else:
                    rows.append({"data": name, "dim": dim, "method": method, "seeds": len(each), **_summary(each)})
                    for other in ("scVI", "nb"):
                        if other != method and len(measured[other]) >= SEEDS:
                            rows[-1] |= _differences(each, measured[other], other)
    rates = read_json(FOLDER / "rate.json") if (FOLDER / "rate.json").exists() else {}
    known = {"versions": versions(), "samples": SAMPLES, "rate": rates}
    write_json(RESULT, {**known, "rows": rows}, indent=1)


def _summary(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean over seeds of every figure, with its interval."""
    known = {
        key: [one["figures"][key] for one in each] for key, value in each[0]["figures"].items() if value is not None
    }
    known["cpu_seconds"] = [one["cpu_seconds"] for one in each]
    if each[0]["log_p"]:
        known |= {what: [float(np.mean(one[what])) for one in each] for what in ("log_p", "elbo")}
    return {key: interval(values) for key, values in known.items()}


def _differences(each: Sequence[Any], beside: Sequence[Any], other: str) -> dict[str, Any]:
    """Return by how much log p and the ELBO are better than those of another method, on the same cells and seeds."""
    if not each[0]["log_p"]:
        return {}
    apart = {
        what: [np.subtract(a[what], b[what]) for a, b in zip(each, beside, strict=False)] for what in ("log_p", "elbo")
    }
    return {f"{what} over {other}": interval([float(one.mean()) for one in found]) for what, found in apart.items()}


def _of(pattern: Path) -> list[dict[str, Any]]:
    files = [Path(str(pattern).format(seed)) for seed in range(MOST)]
    return [read_json(file) for file in files if file.exists()]


def _peer(name: str, held: Mapping[str, Any], file: Path, seed: int) -> dict[str, Any]:
    kept = file.with_suffix(".json")
    if not kept.exists():
        with np.load(file) as stored:
            known = {key: stored[key].tolist() for key in ("log_p", "elbo", "cpu_seconds")}
            write_json(kept, {**known, "figures": figures(name, held, stored["latent"].astype(np.float64), seed)})
    return read_json(kept)


_SHOWN = {
    "log_p": ("log p", 1),
    "elbo": ("ELBO", 1),
    "log_p over scVI": ("log p over scVI", 1),
    "labels": ("labels", 3),
    "depth": ("depth", 2),
    "tree": ("tree", 2),
    "arm": ("arm", 2),
    "mixing": ("mixing", 2),
    "qlocal": ("Qlocal", 2),
    "qglobal": ("Qglobal", 2),
}


def rates(result: dict[str, Any]) -> str:
    """Tabulate how many cells a second are trained on."""
    known = result["rate"]
    rows = (("on the device", "resident"), ("sparse, in the memory of the host", "host"))
    lines = [f"| on one {known['card']}, the counts lie | cells a second |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {known[key]:,.0f} |" for name, key in rows)])


def table(name: str, result: dict[str, Any]) -> str:
    """Tabulate the figures of one data set."""
    own = [row for row in result["rows"] if row["data"] == name]
    columns = [key for key in _SHOWN if any(key in row for row in own)]
    lines = [
        "| d | method | seeds | " + " | ".join(_SHOWN[key][0] for key in columns) + " |",
        "|---" * (len(columns) + 3) + "|",
    ]
    for row in own:
        cells = [
            f"{row[key]['mean']:.{_SHOWN[key][1]}f} ± {row[key]['half']:.{_SHOWN[key][1]}f}".replace("-", "−")
            if key in row
            else ""
            for key in columns
        ]
        lines.append(f"| {row['dim']} | {row['method']} | {row['seeds']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("export", "ours", "rate", "pictures", "results"))
    parser.add_argument("data", nargs="*", choices=[[], *DATA], default=[])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--dims", nargs="+", type=int, default=list(DIMS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int)
    asked = parser.parse_args()
    names = asked.data or list(DATA)
    if asked.task == "export":
        export(names)
    elif asked.task == "ours":
        ours(
            names, asked.variants, asked.dims, asked.seeds, "cuda" if torch.cuda.is_available() else "cpu", asked.steps
        )
    else:
        {"rate": rate, "pictures": pictures, "results": results}[asked.task]()


if __name__ == "__main__":
    main()
