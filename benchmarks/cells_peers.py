"""Models of cells by others, for `benchmarks.cells`, in an environment of their own.

pip install scvi-tools==1.4.2 harmonypy
python -m benchmarks.cells_peers FOLDER          FOLDER/data is what `python -m benchmarks.cells export` wrote

scVI with its defaults, but for a warm-up of the divergence over 20 epochs in place of 400, which gives it better
likelihoods, and early stopping off: it is trained for as many steps as ours, batches of 128. PCA of 30 components of
log1p(10⁴·count/total), with Harmony where there are batches, of which the first components are the map.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

SEEDS, SAMPLES, JUDGED, BATCH = range(5), 500, 250, 128
DIMS = (2, 10)


def epochs_of(rows: int) -> int:
    """Return the passes of our default training: 1,500 steps, or 5 passes of up to 10,000."""
    steps = -(-rows // BATCH)
    return -(-min(max(1500, 5 * steps), 10_000) // steps)


def scvi_model(held: dict[str, Any], x: Any, part: np.ndarray, dim: int, seed: int) -> dict[str, Any]:
    """Train scVI, and return its map, log p and ELBO of the judged cells."""
    import anndata
    import scvi

    scvi.settings.seed = seed
    scvi.settings.verbosity = 40
    adata = anndata.AnnData(sparse.csr_matrix(x))
    adata.obs["batch"] = held["batch"].astype(str)
    scvi.model.SCVI.setup_anndata(adata, batch_key="batch")
    train = np.flatnonzero(part == "train")
    model = scvi.model.SCVI(adata, n_latent=dim, gene_likelihood="nb")
    order = [train, np.flatnonzero(part == "validation"), np.flatnonzero(part == "test")]
    began = time.process_time()
    model.train(
        max_epochs=epochs_of(len(train)),
        batch_size=BATCH,
        accelerator="cpu",
        plan_kwargs={"n_epochs_kl_warmup": 20},
        datasplitter_kwargs={"external_indexing": order},
        enable_progress_bar=False,
        logger=None,
        enable_checkpointing=False,
    )
    seconds = time.process_time() - began
    judged = order[2][:JUDGED]
    log_p = model.get_marginal_ll(indices=judged, n_mc_samples=SAMPLES, return_mean=False, batch_size=50)
    elbo = model.get_elbo(indices=judged, return_mean=False)
    return {
        "latent": model.get_latent_representation(),
        "log_p": np.asarray(log_p, np.float64).ravel(),
        "elbo": np.asarray(elbo, np.float64).ravel(),
        "cpu_seconds": seconds,
    }


def harmony(held: dict[str, Any], x: Any, part: np.ndarray, dim: int, seed: int) -> dict[str, Any]:
    """Return the first principal components after Harmony, or as they are without batches."""
    from sklearn.decomposition import PCA

    began = time.process_time()
    logs = np.log1p(x.toarray() * (1e4 / np.asarray(x.sum(1)).reshape(-1, 1)))
    latent = PCA(30, random_state=seed).fit_transform(logs)
    if held["batch"].any():
        import harmonypy
        import pandas as pd

        meta = pd.DataFrame({"batch": held["batch"].astype(str)})
        found = np.asarray(harmonypy.run_harmony(latent, meta, "batch", random_state=seed).Z_corr)
        latent = found if len(found) == len(meta) else found.T
    return {"latent": latent[:, :dim], "log_p": [], "elbo": [], "cpu_seconds": time.process_time() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", nargs="+")
    parser.add_argument("--methods", nargs="+", default=["scVI", "PCA + Harmony"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    methods = {"scVI": scvi_model, "PCA + Harmony": harmony}
    (asked.folder / "peers").mkdir(parents=True, exist_ok=True)
    names = asked.data or sorted(path.stem for path in (asked.folder / "data").glob("*.npz"))
    for name in names:
        with np.load(asked.folder / "data" / f"{name}.npz") as stored:
            held = dict(stored)
        x = sparse.csr_array((held["data"], held["indices"], held["indptr"]), shape=tuple(held["shape"]))
        for seed in asked.seeds:
            for method in asked.methods:
                for dim in DIMS:
                    file = asked.folder / "peers" / f"{name}-{method}-{dim}-{seed}.npz"
                    if file.exists():
                        continue
                    found = methods[method](held, x, held["part"][seed], dim, seed)
                    part = file.with_suffix(".part.npz")
                    np.savez(part, **found)
                    part.replace(file)
                    print(name, method, dim, seed, np.mean(found["log_p"]), found["cpu_seconds"], flush=True)


if __name__ == "__main__":
    main()
