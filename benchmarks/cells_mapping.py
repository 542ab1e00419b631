"""How well are cells of new batches mapped onto a reference?

python -m benchmarks.cells_mapping run [DATA ...] [--seeds 0 1 …] [--curvatures 1 0] [--parts both …]   files in FOLDER
python -m benchmarks.cells_mapping scvi [DATA ...] [--seeds 0 1 …]       scvi-tools, in an environment that has it too
python -m benchmarks.cells_mapping results                                               results/cells_mapping.json

The data are files of $CURVAE_DATA/cells: of Kang's cells, untreated ones are the reference and those with interferon
are the query; of the mixtures, plate 4 is the query. All see the 2,000 genes of `benchmarks.cells`. Models have ten
dimensions and are trained by default. A tenth of the query takes no part in its training, and has its log-likelihood
with 500 importance samples, also under a model of all other cells. scvi-tools has the settings that it recommends for
queries, as many steps, and labels by 15 neighbours weighted by their distance. An interrupted run goes on.

Labels: the share of query cells with the right label, the mean of these shares over labels, and the expected
calibration error of their probabilities in ten bins. Mixing: as in `benchmarks.cells`. Unknown: the medians of
`curvae_unknown`, of cells whose labels were left out of the reference, and of the others.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from curvae import CellVAE
from curvae.data import load
from curvae.data.files import places
from curvae.maps.faithfulness import places_of
from curvae.training.rows import random_split
from curvae.training.storage import read_json, versions, write_json

from .cells import DATA, interval, mixing

__all__ = ["FOLDER", "RESULT", "calibration_error", "main", "table"]

RESULT = Path(__file__).parent.parent / "results" / "cells_mapping.json"
FOLDER = Path("runs/cells/mapping")
DIM, SAMPLES, JUDGED, BINS = 10, 500, 250, 10
STEPS = 600  # of the training on a query
PARTS = ("encoder untold", "encoder told", "both", "unknown")
# Batches of the query, and labels that are left out of the reference to be unknown.
QUERIES: dict[str, tuple[list[str], list[str]]] = {
    "kang": (["STIM"], ["CD14 Mono", "CD16 Mono"]),
    "cellmix": (["cellmix4"], []),
}


def read(name: str) -> tuple[Any, Any, str, str]:
    """Return the cells of reference and query, and the columns of batch and label."""
    file, batch, label = DATA[name]
    assert file is not None and batch is not None
    from anndata import read_h5ad  # which only some have

    path = next(place for place in places("cells") if place.is_dir()) / file
    data, _ = load(path, batch_key=batch, label=label, genes=2000)
    cells = read_h5ad(path)[:, list(data.names)].copy()
    new = cells.obs[batch].isin(QUERIES[name][0]).to_numpy()
    return cells[~new].copy(), cells[new].copy(), batch, label


def calibration_error(probability: np.ndarray, right: np.ndarray) -> float:
    """Return by how much probabilities differ from the shares of right ones, in the mean over all.

    Example:
        >>> calibration_error(np.array([0.75] * 4), np.array([1, 1, 1, 0]))
        0.0
    """
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    apart = [(bins == one).mean() * abs((probability - right)[bins == one].mean()) for one in np.unique(bins)]
    return float(sum(apart))


def label_figures(found: Any, probability: Any, labels: Any) -> dict[str, float]:
    """Return how good labels and their probabilities are."""
    truth = np.asarray(labels, np.str_)
    right = np.asarray(found, np.str_) == truth
    return {
        "labels": float(right.mean()),
        "labels, mean over types": float(np.mean([right[truth == one].mean() for one in np.unique(truth)])),
        "calibration error": calibration_error(np.asarray(probability), right),
    }


def trained(cells: Any, batch: str, label: str, **settings: Any) -> CellVAE:
    """Train a model of cells for a tenth of which nothing is asked."""
    CellVAE.setup_anndata(cells, batch_key=batch, labels_key=label)
    model = CellVAE(cells, n_latent=DIM, neighbours="off", **settings)
    model.train()
    return model


def mapped(reference: CellVAE, query: Any, label: str, epochs: int | None = None) -> tuple[CellVAE, dict[str, Any]]:
    """Map a query, and measure what is known of it then."""
    began, cpu = time.perf_counter(), time.process_time()
    model = CellVAE.load_query_data(query, reference)
    model.train(max_epochs=epochs, train_size=0.9, validation_size=0.0)
    found = model.transfer_labels(label)
    seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    figures = label_figures(found["curvae_label"], found["curvae_label_probability"], query.obs[label])
    return model, {**figures, **seconds, "cells": query.n_obs}


def mix(model: CellVAE, reference: Any, query: Any, label: str) -> float | None:
    """Return how well the query mixes with the reference on the map of its model."""
    found = model._embed(model._read(reference, None, decode=False)).joined(model._embedding)
    labels = np.concatenate([cells.obs[label].astype(str) for cells in (reference, query)])
    return mixing(places_of(found), labels, np.repeat([0, 1], [reference.n_obs, query.n_obs]))


def log_p(model: CellVAE, cells: Any, rows: np.ndarray) -> float:
    return float(model.get_marginal_ll(cells, rows[:JUDGED], n_mc_samples=SAMPLES))


def run(name: str, curvature: float, seed: int, asked: Sequence[str] = PARTS) -> None:
    """Measure one data set with one curvature and seed; every part is a file."""
    reference, query, batch, label = read(name)
    how = {"curvature": curvature, "random_state": seed}
    test = random_split(query.n_obs, 0.0, 0.1, seed).test
    one_batch = reference.obs[batch].nunique() == 1
    models: dict[bool, CellVAE] = {}

    def model_of(told: bool) -> CellVAE:
        if one_batch and models:
            # An encoder has nothing to be told of a single batch: the same model, but for queries.
            base = next(iter(models.values()))
            base._fitted = replace(base._fitted, config=replace(base._fitted.config, encode_covariates=told))
            return base
        return models.setdefault(told, trained(reference.copy(), batch, label, encode_covariates=told, **how))

    def mapping(told: bool) -> dict[str, Any]:
        model, found = mapped(model_of(told), query.copy(), label)
        return found | {"mixing": mix(model, reference, query, label), "log_p": log_p(model, query, test)}

    def both() -> dict[str, Any]:
        from anndata import concat

        rest = np.setdiff1d(np.arange(query.n_obs), test)
        model = trained(concat([reference, query[rest]], merge="same"), batch, label, **how)
        return {"log_p": log_p(model, query, test)}

    def unknown() -> dict[str, Any]:
        gone = QUERIES[name][1]
        base = trained(reference[~reference.obs[label].isin(gone)].copy(), batch, label, **how)
        cells = query.copy()
        mapped(base, cells, label, epochs=1)  # it is the reference that tells
        left = cells.obs[label].isin(gone).to_numpy()
        values = cells.obs["curvae_unknown"].to_numpy()
        return {"left out": float(np.median(values[left])), "others": float(np.median(values[~left]))}

    parts = {"encoder untold": lambda: mapping(False), "encoder told": lambda: mapping(True), "both": both}
    parts |= {"unknown": unknown} if QUERIES[name][1] else {}
    for part, measure in parts.items():
        file = FOLDER / f"{name}-{part}-{curvature:g}-{seed}.json"
        if part in asked and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, measure())
            print(file.stem, read_json(file), flush=True)


def scvi(name: str, seed: int) -> None:
    """Measure scVI and its mapping of queries (scArches) on one data set with one seed."""
    import scvi as package
    from sklearn.neighbors import KNeighborsClassifier

    from .cells_peers import BATCH, epochs_of

    file = FOLDER / f"{name}-scVI-0-{seed}.json"
    if file.exists():
        return
    package.settings.seed, package.settings.verbosity = seed, 40
    reference, query, batch, label = read(name)
    test = random_split(query.n_obs, 0.0, 0.1, seed).test
    rest = np.setdiff1d(np.arange(query.n_obs), test)
    how = {"accelerator": "cpu", "enable_progress_bar": False, "logger": None, "enable_checkpointing": False}
    package.model.SCVI.setup_anndata(reference, batch_key=batch)
    # What the tutorials of scvi-tools set for models that shall take queries.
    norms = {"use_layer_norm": "both", "use_batch_norm": "none", "encode_covariates": True}
    base = package.model.SCVI(reference, n_latent=DIM, n_layers=2, dropout_rate=0.2, gene_likelihood="nb", **norms)
    epochs = epochs_of(round(0.9 * reference.n_obs))
    base.train(epochs, batch_size=BATCH, plan_kwargs={"n_epochs_kl_warmup": 20}, **how)
    began, cpu = time.perf_counter(), time.process_time()
    package.model.SCVI.prepare_query_anndata(query, base)
    model = package.model.SCVI.load_query_data(query, base)
    split = {"external_indexing": [rest, test[:0], test]}
    steps = -(-STEPS // -(-len(rest) // BATCH))
    model.train(steps, batch_size=BATCH, plan_kwargs={"weight_decay": 0.0}, datasplitter_kwargs=split, **how)
    known, found = base.get_latent_representation(), model.get_latent_representation()
    nearest = KNeighborsClassifier(15, weights="distance").fit(known, reference.obs[label].astype(str))
    figures = label_figures(nearest.predict(found), nearest.predict_proba(found).max(1), query.obs[label])
    seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    labels = np.concatenate([cells.obs[label].astype(str) for cells in (reference, query)])
    mixed = mixing(places_of(np.concatenate([known, found])), labels, np.repeat([0, 1], [len(known), len(found)]))
    log_prob = model.get_marginal_ll(query, indices=test[:JUDGED], n_mc_samples=SAMPLES, batch_size=50)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {**figures, **seconds, "mixing": mixed, "log_p": float(log_prob), "cells": len(found)})
    print(file.stem, read_json(file), flush=True)


def results() -> None:
    """Put all that was measured into one file: means over seeds with their intervals. Other rows stay as they are."""
    rows = []
    files = sorted(FOLDER.glob("*.json"))
    for named, curvature in sorted({tuple(file.stem.rsplit("-", 2)[:2]) for file in files}):
        name, part = named.split("-", 1)
        each = {file.stem.rsplit("-", 1)[1]: read_json(file) for file in FOLDER.glob(f"{named}-{curvature}-*.json")}
        beside = {seed: FOLDER / f"{name}-scVI-0-{seed}.json" for seed in each}
        if part.startswith("encoder") and all(file.exists() for file in beside.values()):
            for seed, one in each.items():
                one["labels over scVI"] = one["labels"] - read_json(beside[seed])["labels"]
        first = next(iter(each.values()))
        known = {key: [one[key] for one in each.values()] for key, value in first.items() if value is not None}
        measured = {key: interval(values) if len(each) > 1 else {"mean": values[0]} for key, values in known.items()}
        rows.append({"data": name, "part": part, "c": float(curvature), "seeds": len(each), **measured})
    new = {(row["data"], row["part"], row["c"]): row for row in rows}
    kept = {(row["data"], row["part"], row["c"]): row for row in read_json(RESULT)["rows"]} if RESULT.exists() else {}
    rows = [row for _, row in sorted((kept | new).items())]
    write_json(RESULT, {"versions": versions(), "dim": DIM, "samples": SAMPLES, "rows": rows}, indent=1)


_SHOWN = {
    "labels": 3,
    "labels over scVI": 3,
    "labels, mean over types": 3,
    "calibration error": 3,
    "mixing": 2,
    "log_p": 1,
}


def table(name: str, result: dict[str, Any]) -> str:
    """Tabulate the figures of the mapping of one data set."""
    own = [row for row in result["rows"] if row["data"] == name and row["part"] != "unknown"]
    lines = [
        "| c | model | seeds | " + " | ".join(_SHOWN).replace("log_p", "log p of the query") + " |",
        "|---" * (len(_SHOWN) + 3) + "|",
    ]
    for row in own:
        cells = [_text(row[key], digits) if key in row else "" for key, digits in _SHOWN.items()]
        part = {"both": "trained on both"}.get(row["part"], row["part"])
        lines.append(f"| {row['c']:g} | {part} | {row['seeds']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _text(found: dict[str, float], digits: int) -> str:
    half = f" ± {found['half']:.{digits}f}" if "half" in found else ""
    return f"{found['mean']:.{digits}f}{half}".replace("-", "−")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("run", "scvi", "results"))
    parser.add_argument("data", nargs="*", choices=[[], *QUERIES], default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--curvatures", nargs="+", type=float, default=[1.0, 0.0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    asked = parser.parse_args(arguments)
    if asked.task == "results":
        results()
        return
    warnings.simplefilter("ignore")
    for seed in asked.seeds:
        for name in asked.data or QUERIES:
            if asked.task == "scvi":
                scvi(name, seed)
                continue
            for curvature in asked.curvatures:
                run(name, curvature, seed, asked.parts)


if __name__ == "__main__":
    main()
