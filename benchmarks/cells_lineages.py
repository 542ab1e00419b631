"""Are lineages of cells right: order, pseudotime, intervals, trees, speed?

python -m benchmarks.cells_lineages run [DATA ...] --dims 2 10 --curvatures 1 0 learn --seeds 0 1 2 3 4
python -m benchmarks.cells_lineages run --repeats 5             the mean of five trainings
python -m benchmarks.cells_lineages simulated --seeds 0 … 19    trees of seven branches with genes of their own
python -m benchmarks.cells_lineages speed                       `CellVAE.lineage` of 13,999 cells with 25 draws
python -m benchmarks.cells_lineages results                     all that was measured, as results/cells_lineages.json

Every run is a file of FOLDER; those that are there are not run again. Data are those in $CURVAE_DATA/cells.

cellmix: groups are the wells with two equal smaller shares, a star of three arms; the root is the well of equal shares.
`arms` is the share of arms on which pseudotimes of groups are in order, `pseudotime` the rank correlation with the
share of the prevailing line over all of these wells, `plates` the largest difference of plates in their mean residuals,
of the share regressed on the pseudotime. paul: the root are the multipotent progenitors; `curve1` and `curve2` are rank
correlations with the order of slingshot, `apart` tells whether erythrocytes end on another branch than monocytes and
neutrophils. `diffusion…` are the same of diffusion pseudotime on geodesic neighbours of the same map.

Intervals are calibrated as in `CellVAE.lineage`. To test them, the molecules of every cell are split at random into two
halves, other ones than those of the calibration, which are placed along the tree of all.
`halves` is the share of cells for which 0 lies in the 90 % interval of differences of draws of the two posteriors;
`halves_centred` the share for which the difference of pseudotimes lies in the interval of such differences less their
means, as if both were posteriors of one place; `deviation` the standard deviation of differences over that of draws.
`totals` is the rank correlation of widths of intervals with totals, on cellmix within wells of one mixture.

Of several trainings pseudotimes, branches and widths of intervals are pooled, as in `CellVAE.lineage`; halves and
diffusion pseudotimes are those of the first.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData, read_h5ad
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import eigsh
from scipy.stats import spearmanr

from curvae import CellVAE
from curvae.data import branching_counts, branching_diffusion, load
from curvae.data.files import places
from curvae.hierarchy import Lineage, find_lineage
from curvae.hierarchy.lineages import calibrate, draw_places, pool_lineages, split_counts, times_along
from curvae.maps.cells import add_map
from curvae.maps.embedding import Embedding, point_distances
from curvae.training import Config, embed, fit
from curvae.training.storage import read_json, versions, write_json

from .cells import interval

RESULT = Path(__file__).parent.parent / "results" / "cells_lineages.json"
FOLDER = Path("runs/cells-lineages")
CURVATURES: dict[str, dict[str, Any]] = {"1": {}, "0": {"curvature": 0.0}, "learn": {"learn_curvature": True}}
DRAWS, HALVES = 25, 100
ROOTS = {"cellmix": "3_3_3", "paul": "Multipotent progenitors"}


def cell_file(name: str) -> Path:
    return next(place for place in places("cells") if place.is_dir()) / name


def read(name: str) -> Any:
    if name == "cellmix":
        return load(cell_file("cellmix.h5ad"), batch_key="plate", label="mixture", genes=2000)[0]
    return load(cell_file("paul.h5ad"), label="cell_type")[0]


def measure(name: str, dim: int, curvature: str, seed: int, epochs: int | None, repeats: int = 1) -> dict[str, Any]:
    """Train a model, and others of the same split if there are repeats, and return their figures."""
    data, more = read(name), {} if epochs is None else {"epochs": epochs}
    began = time.process_time()
    fitted = fit(Config(dim=dim, seed=seed, likelihood="nb", **CURVATURES[curvature], **more), data)
    others = [seed + 1000 * i for i in range(1, repeats)]  # which no other run has
    models = [fitted, *(fit(replace(fitted.config, seed=other), data, split=fitted.split) for other in others)]
    seconds = time.process_time() - began
    labels = np.asarray(data.labels)
    shares = np.array([[int(n) for n in one.split("_")] for one in labels]) if name == "cellmix" else np.zeros((0, 3))
    groups = labels
    if name == "cellmix":
        ordered = np.sort(shares, 1)
        groups = np.where((shares.sum(1) == 9) & (ordered[:, 0] == ordered[:, 1]), labels, "")

    def trace(one: Any) -> tuple[Embedding, Any, Any, Lineage]:
        place, seed = embed(one, data), one.config.seed
        random = np.random.default_rng(seed)
        scale: Any = calibrate(one, partial(embed, one), data.arrays, place, groups, ROOTS[name], seed)
        draws = [draw_places(one, place, random, scale(data.arrays)) for _ in range(DRAWS)]
        return place, scale, random, find_lineage(place, groups, ROOTS[name], draws=draws, seed=seed)

    traced = [trace(one) for one in models]
    embedding, factor, random, _ = traced[0]
    found = pool_lineages([lineage for *_, lineage in traced])
    diffused = diffusion_pseudotime(embedding, found)
    if name == "cellmix":
        own: dict[str, Any] = _mixtures(found, groups, shares, data)
        on = np.flatnonzero(groups != "")
        own["diffusion"] = float(spearmanr(diffused[on], shares[on].max(1))[0])
    else:
        own = _progenitors(found, labels) | _orders(diffused, "diffusion_")
    return {
        **own,
        **_halves(fitted, data, factor, found, labels if name == "cellmix" else None, random),
        "c": float(embedding.c),
        "epochs": len(fitted.history),
        "cpu_seconds": seconds,
        "newick": found.newick(),
        **({"repeats": repeats} if repeats > 1 else {}),
    }


def _mixtures(found: Lineage, groups: np.ndarray, shares: np.ndarray, data: Any) -> dict[str, float]:
    on = np.flatnonzero(groups != "")
    share, line, time_ = shares[on].max(1) / 9 - 1 / 3, shares[on].argmax(1), found.pseudotime[on]
    arms = []
    for arm in range(3):
        mine = (line == arm) | (share < 1e-9)
        means = [time_[mine & np.isclose(share, at)].mean() for at in np.unique(share[mine])]
        arms.append(bool((np.diff(means) > 0).all()))
    residual = share - np.polyval(np.polyfit(time_, share, 1), time_)
    plates = [residual[np.asarray(data.context)[on].argmax(1) == plate].mean() for plate in range(4)]
    return {
        "arms": float(np.mean(arms)),
        "pseudotime": float(spearmanr(time_, share)[0]),
        "plates": float(np.ptp(plates)),
    }


def diffusion_pseudotime(embedding: Embedding, found: Lineage, components: int = 10) -> np.ndarray:
    """Return the diffusion pseudotime of Haghverdi et al. (2016), as scanpy has it, on geodesic neighbours of the map.

    The root is the cell that is nearest to that of the lineage.
    """
    cells = AnnData(np.zeros((len(embedding), 1)))
    add_map(cells, embedding)
    kernel = cells.obsp["curvae_connectivities"].astype(np.float64)
    for power in (-1.0, -0.5):
        scale = diags_array(np.asarray(kernel.sum(1)).ravel() ** power)
        kernel = scale @ kernel @ scale
    values, vectors = eigsh(kernel, components, v0=np.ones(kernel.shape[0]))
    weights = np.where(values > 0.9994, 1.0, values / (1 - np.minimum(values, 0.9994)))
    root = point_distances(embedding.placed, embedding.space, found.nodes.space[:1]).argmin()
    return np.linalg.norm(weights * (vectors - vectors[root]), axis=1)


def _orders(times: np.ndarray, prefix: str = "") -> dict[str, Any]:
    """Return rank correlations of pseudotimes with the order of slingshot, on its two lineages."""
    obs = read_h5ad(cell_file("paul.h5ad"), backed="r").obs
    result = {}
    for curve in (1, 2):
        order = obs[f"slingshot_curve{curve}"].to_numpy()
        on = np.isfinite(order)
        result[f"{prefix}curve{curve}"] = float(spearmanr(times[on], order[on])[0])
    return result


def _progenitors(found: Lineage, labels: np.ndarray) -> dict[str, Any]:
    result = _orders(found.pseudotime)
    ends = {
        kind: np.bincount(found.branch[labels == kind]).argmax() for kind in ("Erythrocyte", "Monocytes", "Neutrophils")
    }
    result["apart"] = bool(ends["Erythrocyte"] not in (ends["Monocytes"], ends["Neutrophils"]))
    return result


def _halves(
    fitted: Any, data: Any, factor: Any, found: Lineage, within: np.ndarray | None, random: Any
) -> dict[str, float]:
    centres, drawn = [], []
    for half in split_counts(data.arrays, random):
        placed = embed(fitted, half)
        draws = [draw_places(fitted, placed, random, factor(half)) for _ in range(HALVES)]
        times, *others = (times_along(points, found.nodes, found.tree)[0] for points in (placed.space, *draws))
        centres.append(times)
        drawn.append(np.stack(others))
    apart, spread = centres[0] - centres[1], drawn[0] - drawn[1]
    centred = spread - spread.mean(0)
    low, high = np.quantile(spread, [0.05, 0.95], axis=0)
    inner, outer = np.quantile(centred, [0.05, 0.95], axis=0)
    widths, totals = pd.Series(found.high - found.low), pd.Series(np.asarray(data.x.sum(1)).ravel())
    if within is not None:  # ranks within wells of one mixture
        widths, totals = (values.groupby(within).rank(pct=True) for values in (widths, totals))
    return {
        "halves": float(((low <= 0) & (high >= 0)).mean()),
        "halves_centred": float(((inner <= apart) & (apart <= outer)).mean()),
        "deviation": float(apart.std() / np.sqrt(centred.var(0).mean())),
        "totals": float(spearmanr(widths, totals)[0]),
    }


def as_anndata(data: Any) -> AnnData:
    obs = pd.DataFrame({"branch": data.labels, "batch": np.asarray(data.context).argmax(1).astype(str)}, index=data.ids)
    return AnnData(csr_array(data.x), obs=obs, var=pd.DataFrame(index=data.names))


def simulated(seed: int, dim: int, curvature: str, epochs: int | None) -> dict[str, Any]:
    """Return how many edges of a tree of seven groups are wrong, of 6 found and 6 true ones."""
    how = {"genes": 500, "depth": 2, "per_node": 100, "total": 3000.0, "dropout": 0.1, "programs": 100}
    adata = as_anndata(branching_counts(**how, seed=seed))
    CellVAE.setup_anndata(adata, batch_key="batch", labels_key="branch")
    model = CellVAE(adata, n_latent=dim, random_state=seed, **CURVATURES[curvature])
    model.train(max_epochs=epochs)
    edges = {frozenset(pair) for pair in model.lineage("root").edges[["group", "parent"]].to_numpy().tolist()}
    tree = branching_diffusion(1, 2, seed=seed)
    names = tree.branches()
    distance = len(edges ^ {frozenset(names[[one, other]].tolist()) for one, other in tree.edges})
    return {"distance": distance, "right": distance == 0}


def speed() -> dict[str, float]:
    """Return what `CellVAE.lineage` takes on kang, in seconds of a clock and of one core, and the peak memory, GB."""
    adata = read_h5ad(cell_file("kang.h5ad"))
    adata = adata[:, np.argsort(-np.asarray(adata.X.sum(0)).ravel())[:2000]].copy()
    CellVAE.setup_anndata(adata, batch_key="stim", labels_key="cell_type")
    model = CellVAE(adata, n_latent=10, random_state=0)
    model.train(max_epochs=1)
    began, cpu = time.perf_counter(), time.process_time()
    model.lineage(draws=DRAWS)
    found = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    return {**found, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}


def results() -> None:
    """Put all runs into one file: figures of each, and their means with 95 % intervals where there are several. Other
    rows stay as they are.
    """
    runs: dict[str, dict[str, Mapping[str, Any]]] = {}
    for file in sorted(FOLDER.glob("*.json")):
        kind, _, seed = file.stem.rpartition("-")
        runs.setdefault(kind or seed, {})[seed] = read_json(file)
    rows = {row["of"]: row for row in read_json(RESULT)["rows"]} if RESULT.exists() else {}
    for kind, seeds in runs.items():
        first = next(iter(seeds.values()))
        known = {
            name: [float(one[name]) for one in seeds.values() if name in one]
            for name, value in first.items()
            if isinstance(value, int | float) and name != "repeats"
        }
        means = {name: interval(values) for name, values in known.items() if len(values) > 1}
        more = {"repeats": first["repeats"]} if "repeats" in first else {}
        rows[kind] = {"of": kind, **more, "seeds": len(seeds), "means": means, "runs": seeds}
    write_json(RESULT, {"versions": versions(), "rows": [row for _, row in sorted(rows.items())]}, indent=1)


SHOWN = {
    "cellmix": {
        "arms": "arms in order",
        "pseudotime": "pseudotime",
        "diffusion": "diffusion pseudotime",
        "plates": "plates",
        "halves": "halves",
    },
    "paul": {
        "curve1": "erythrocytes",
        "curve2": "monocytes and neutrophils",
        "diffusion_curve1": "diffusion, erythrocytes",
        "diffusion_curve2": "diffusion, monocytes and neutrophils",
        "apart": "ends apart",
        "halves": "halves",
    },
    "simulated": {"distance": "wrong edges", "right": "trees without one"},
}


def table(name: str, result: dict[str, Any]) -> str:
    """Tabulate the figures of one data set."""
    lines = [
        "| d | c | seeds | " + " | ".join(SHOWN[name].values()) + " |",
        "|---" * (len(SHOWN[name]) + 3) + "|",
    ]
    for row in result["rows"]:
        data, *settings = row["of"].split("-")
        if data == name and row["means"]:
            found = [row["means"].get(key) for key in SHOWN[name]]
            cells = [f"{one['mean']:.2f} ± {one['half']:.2f}" if one else "" for one in found]
            c = settings[1].replace("learn", "learned") + (f", {row['repeats']} trainings" if "repeats" in row else "")
            lines.append(f"| {settings[0]} | {c} | {row['seeds']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("run", "simulated", "speed", "results"))
    parser.add_argument("data", nargs="*", choices=[[], *ROOTS], default=[])
    parser.add_argument("--dims", nargs="+", type=int, default=[2, 10])
    parser.add_argument("--curvatures", nargs="+", choices=CURVATURES, default=list(CURVATURES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--repeats", type=int, default=1, help="trainings whose lineages are pooled, of `run`")
    parser.add_argument("--epochs", type=int, help="fewer than the data suit, to try it out")
    asked = parser.parse_args()
    if asked.task == "results":
        return results()
    FOLDER.mkdir(parents=True, exist_ok=True)
    names: Sequence[str] = ["speed"] if asked.task == "speed" else ["simulated"]
    for name in (asked.data or list(ROOTS)) if asked.task == "run" else names:
        for seed in asked.seeds[:1] if name == "speed" else asked.seeds:
            for curvature in asked.curvatures[:1] if name == "speed" else asked.curvatures:
                for dim in asked.dims[:1] if name == "speed" else asked.dims:
                    settings = f"{name}-{dim}-{curvature}" + (f"-{asked.epochs} epochs" if asked.epochs else "")
                    settings += f"-{asked.repeats} repeats" if asked.repeats > 1 and asked.task == "run" else ""
                    file = FOLDER / ("speed.json" if name == "speed" else f"{settings}-{seed}.json")
                    if file.exists():
                        continue
                    if name == "speed":
                        found: Mapping[str, Any] = speed()
                    elif name == "simulated":
                        found = simulated(seed, dim, curvature, asked.epochs)
                    else:
                        found = measure(name, dim, curvature, seed, asked.epochs, asked.repeats)
                    write_json(file, found)
                    print(file.stem, found, flush=True)
    return None


if __name__ == "__main__":
    main()
