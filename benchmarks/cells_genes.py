"""How many genes that differ are found, and how many are wrong, beside Wilcoxon's test and the test of scvi-tools?

python -m benchmarks.cells_genes export         the counts of every seed, as arrays
python -m benchmarks.cells_genes ours           our models, flat, curved and with learned curvature, and Wilcoxon's test
python -m benchmarks.cells_genes scvi           scvi-tools, in an environment that has it; see `benchmarks.cells_peers`
python -m benchmarks.cells_genes results        all figures, as results/cells_genes.json

Simulated: 5,000 cells in two batches and two groups, 2,000 genes of which a fifth change by 0.5 to 2 in log2, with
negative binomial counts. A gene is found where its expected share of false discoveries is at most 0.05. Kang: CD14+
monocytes of blood, with interferon against without; where do genes that interferon is known to raise rank? And random
halves of monocytes without: how many genes are found there? Models have ten dimensions, two of batches as covariates of
the decoder; in Kang no covariate, for the batches are what is compared. Every run is a file that `results` reads.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.stats import false_discovery_control, mannwhitneyu

__all__ = ["FOLDER", "RESULT", "main", "table"]

RESULT = Path(__file__).parent.parent / "results" / "cells_genes.json"
FOLDER = Path("runs/cells_genes")
SEEDS = range(5)
CURVATURES: dict[str, dict[str, Any]] = {
    "nb": {"curvature": 1.0},
    "nb, c = 0": {"curvature": 0.0},
    "nb, c learned": {"learn_curvature": True},
}
KNOWN = ("ISG15", "IFI6", "IFIT1", "IFIT2", "IFIT3", "MX1", "OAS1", "LY6E", "ISG20", "CXCL10")
TARGET, FIRST = 0.05, 50


def simulate(seed: int, cells: int = 5000, genes: int = 2000) -> dict[str, np.ndarray]:
    """Draw counts of cells of two groups, which do not differ in their batches, and what changes between them."""
    random = np.random.default_rng(seed)
    share = random.lognormal(-1.0, 1.5, genes)
    change = np.where(random.random(genes) < 0.2, random.uniform(0.5, 2.0, genes), 0.0) * random.choice([-1, 1], genes)
    group, batch = random.random((2, cells)) < 0.5
    share = share * 2.0 ** (change * group[:, None]) * np.exp(random.normal(0, 0.3, genes) * batch[:, None])
    share /= share.sum(1, keepdims=True)
    dispersion = random.gamma(2.0, 1.0, genes) + 0.2
    mean = random.lognormal(8.0, 0.4, (cells, 1)) * share
    x = random.poisson(mean * random.gamma(dispersion, 1 / dispersion, mean.shape))
    return {"x": x.astype(np.float32), "group": group, "batch": batch.astype(np.int64), "change": change}


def monocytes() -> dict[str, np.ndarray]:
    """Return the counts of all cells of Kang, and which of them are monocytes of each condition."""
    import anndata

    from curvae.data import load
    from curvae.data.files import places

    file = next(place for place in places("cells") if place.is_dir()) / "kang.h5ad"
    data, schema = load(file, label="cell_type", genes=2000)
    condition = anndata.read_h5ad(file, backed="r").obs["stim"].astype(str).to_numpy()
    chosen = np.char.startswith(np.asarray(data.labels, np.str_), "CD14")
    return {
        "x": sparse.csr_array(data.x).toarray().astype(np.float32),
        "group": chosen & (condition == "STIM"),
        "other": chosen & (condition != "STIM"),
        "batch": np.zeros(len(data), np.int64),
        "names": np.array(schema.names, np.str_),
    }


def data_of(name: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / "data" / f"{name}.npz") as stored:
        return dict(stored)


def populations(name: str, held: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Return pairs of masks to compare, by name."""
    first = held["group"]
    second = held.get("other", ~first)
    half = np.random.default_rng(seed).random(len(first)) < 0.5
    return {name: np.stack([first, second]), "halves": np.stack([second & half, second & ~half])}


def judge(name: str, pair: str, held: dict[str, np.ndarray], found: np.ndarray, order: np.ndarray) -> dict[str, float]:
    """Return figures of what is found, given in the order of the genes, and of which genes are most probable."""
    if pair == "halves":
        return {"halves": float(found.mean())}
    if name == "kang":
        ranks = {gene: place for place, gene in enumerate(held["names"][order], 1)}
        return {"genes": int(found.sum()), "known": sum(ranks.get(gene, 10**6) <= FIRST for gene in KNOWN)}
    changed = held["change"] != 0
    wrong = float((found & ~changed).sum() / max(1, found.sum()))
    return {"genes": int(found.sum()), "false": wrong, "power": float(found[changed].mean())}


def export() -> None:
    """Write the counts of every seed."""
    (FOLDER / "data").mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        np.savez_compressed(FOLDER / "data" / f"simulated-{seed}.npz", **simulate(seed))  # type: ignore[arg-type]
    np.savez_compressed(FOLDER / "data" / "kang.npz", **monocytes())  # type: ignore[arg-type]


def runs(seeds: Sequence[int]) -> list[tuple[str, str, int]]:
    """List data, the names of their files, and seeds."""
    return [
        (name, "kang" if name == "kang" else f"simulated-{seed}", seed)
        for seed in seeds
        for name in ("simulated", "kang")
    ]


def ours(seeds: Sequence[int], methods: Sequence[str], steps: int | None) -> None:
    """Train and test models of every seed, and write what they find; Wilcoxon's test likewise."""
    from curvae.data import Arrays
    from curvae.training import Config, fit
    from curvae.training.differential import Populations, compare_populations
    from curvae.training.storage import write_json

    for name, file, seed in runs(seeds):
        held = data_of(file)
        pairs, total = populations(name, held, seed), held["x"].sum(1).astype(np.float64)
        batches = int(held["batch"].max()) + 1
        told = {"context": np.eye(batches)[held["batch"]], "batch": (0, batches)} if batches > 1 else {}
        arrays, genes = Arrays(sparse.csr_array(held["x"]), size=total, total=True, **told), held["x"].shape[1]
        for method in methods:
            path = FOLDER / "runs" / f"{name}-{method}-{seed}.json"
            if path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            more = {} if steps is None else {"steps": steps}
            began = time.process_time()
            fitted = fit(
                Config(dim=10, likelihood="nb", neighbours="off", seed=seed, **CURVATURES[method], **more), arrays
            )
            trained = time.process_time()
            known = {}
            for pair, members in pairs.items():
                asked = Populations([("first", "second")], [members])
                result = compare_populations(fitted.double(), arrays, asked, np.arange(genes))
                found = np.zeros(genes, bool)
                found[result.index] = result[f"is_de_fdr_{TARGET:g}"]
                known |= judge(name, pair, held, found, result.index.to_numpy())
            seconds = {"training_seconds": trained - began, "seconds": time.process_time() - trained}
            write_json(path, {**known, **seconds})
            print(name, method, seed, {**known, **seconds}, flush=True)
        path = FOLDER / "runs" / f"{name}-Wilcoxon-{seed}.json"
        if not path.exists():
            write_json(path, wilcoxon(name, held, pairs))


def wilcoxon(name: str, held: dict[str, np.ndarray], pairs: dict[str, np.ndarray]) -> dict[str, float]:
    """Test every gene by log1p of its counts in 10,000, with Benjamini and Hochberg's correction."""
    logs, known, began = np.log1p(1e4 * held["x"] / held["x"].sum(1, keepdims=True)), {}, time.process_time()
    for pair, (first, second) in pairs.items():
        p = np.nan_to_num(mannwhitneyu(logs[first], logs[second]).pvalue, nan=1.0)
        known |= judge(name, pair, held, false_discovery_control(p) <= TARGET, np.argsort(p, kind="stable"))
    return {**known, "seconds": time.process_time() - began}


def scvi(seeds: Sequence[int]) -> None:
    """Train and test scVI, for as many steps as ours."""
    import json

    import anndata
    import scvi as package

    from .cells_peers import BATCH, epochs_of

    warnings.simplefilter("ignore")
    for name, file, seed in runs(seeds):
        path = FOLDER / "runs" / f"{name}-scVI-{seed}.json"
        if path.exists():
            continue
        held = data_of(file)
        package.settings.seed = seed
        package.settings.verbosity = 40
        adata = anndata.AnnData(sparse.csr_matrix(held["x"]))
        adata.obs["batch"] = held["batch"].astype(str)
        package.model.SCVI.setup_anndata(adata, batch_key="batch")
        model = package.model.SCVI(adata, n_latent=10, gene_likelihood="nb")
        began = time.process_time()
        how = {"accelerator": "cpu", "enable_progress_bar": False, "logger": None, "enable_checkpointing": False}
        epochs = epochs_of(round(0.9 * len(adata)))
        model.train(epochs, batch_size=BATCH, plan_kwargs={"n_epochs_kl_warmup": 20}, **how)
        trained, known = time.process_time(), {}
        for pair, (first, second) in populations(name, held, seed).items():
            result = model.differential_expression(
                idx1=first, idx2=second, mode="change", fdr_target=TARGET, silent=True
            )
            index, found = result.index.astype(int), np.zeros(held["x"].shape[1], bool)
            found[index] = result[f"is_de_fdr_{TARGET:g}"]
            known |= judge(name, pair, held, found, index.to_numpy())
        known |= {"training_seconds": trained - began, "seconds": time.process_time() - trained}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".part").write_text(json.dumps(known))
        path.with_suffix(".part").replace(path)
        print(name, "scVI", seed, known, flush=True)


def results() -> None:
    """Put the means over seeds, with their intervals, into one file."""
    from curvae.maps.statistics import mean_interval
    from curvae.training.storage import read_json, versions, write_json

    rows = []
    for name in ("simulated", "kang"):
        for method in (*CURVATURES, "Wilcoxon", "scVI"):
            files = [FOLDER / "runs" / f"{name}-{method}-{seed}.json" for seed in SEEDS]
            each = [read_json(file) for file in files if file.exists()]
            if len(each) > 1:
                found = {key: mean_interval([one[key] for one in each]) for key in each[0]}
                figures = {key: {"mean": mean, "half": half} for key, (mean, half) in found.items()}
                rows.append({"data": name, "method": method, "seeds": len(each), **figures})
    write_json(RESULT, {"versions": versions(), "rows": rows}, indent=1)


_SHOWN = {
    "simulated": {
        "genes": ("found", 0),
        "false": ("wrong", 3),
        "power": ("power", 3),
        "halves": ("found in halves", 3),
    },
    "kang": {"genes": ("found", 0), "known": (f"known among the first {FIRST}", 1), "halves": ("found in halves", 3)},
}


def table(name: str, result: dict[str, Any]) -> str:
    """Tabulate the figures of one data set."""
    shown = _SHOWN[name] | {"seconds": ("CPU seconds of the tests", 0)}
    lines = [
        "| method | seeds | " + " | ".join(heading for heading, _ in shown.values()) + " |",
        "|---" * (len(shown) + 2) + "|",
    ]
    for row in result["rows"]:
        if row["data"] == name:
            cells = [
                f"{row[key]['mean']:.{digits}f} ± {row[key]['half']:.{digits}f}" for key, (_, digits) in shown.items()
            ]
            lines.append(f"| {row['method']} | {row['seeds']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("export", "ours", "scvi", "results"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--methods", nargs="+", choices=CURVATURES, default=list(CURVATURES))
    parser.add_argument("--steps", type=int)
    asked = parser.parse_args()
    if asked.task == "ours":
        ours(asked.seeds, asked.methods, asked.steps)
    elif asked.task == "scvi":
        scvi(asked.seeds)
    else:
        {"export": export, "results": results}[asked.task]()


if __name__ == "__main__":
    sys.exit(main())
