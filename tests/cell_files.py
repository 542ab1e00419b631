"""Small cell files, written item by item as the specification of `.h5ad` says, and counts with batches."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
from scipy.sparse import csc_array, csr_array, issparse

__all__ = ["CELLS", "counts", "describe", "write_10x", "write_10x_folder", "write_h5ad"]

CELLS = Path("cells.h5ad")


def counts(rows: int = 60, genes: int = 40, seed: int = 0) -> np.ndarray:
    """Counts of every gene in every batch of cells, three of four of them 0; no cell and no gene is without."""
    random = np.random.default_rng(seed)
    x = random.poisson(random.gamma(0.5, 4.0, (rows, genes)) * random.gamma(2.0, 0.5, genes))
    x[random.random((rows, genes)) < 0.4] = 0
    x[np.arange(rows), np.arange(rows) % genes] += 1
    x[np.arange(genes) % rows, np.arange(genes)] += 1
    return x.astype(np.float32)


def describe(rows: int = 60) -> pd.DataFrame:
    """Columns that describe cells, of every kind."""
    return pd.DataFrame(
        {
            "plate": pd.Categorical(np.array(["p1", "p2", "p3"])[np.arange(rows) % 3]),
            "kind": [f"type {i % 4}" for i in range(rows)],
            "age": np.linspace(20, 60, rows),
            "factor": np.linspace(0.5, 2.0, rows),
            "patient": np.arange(rows) // 5,
            "tumour": np.arange(rows) % 2 == 0,
        },
        index=[f"cell{i}" for i in range(rows)],
    )


def _put(group: Any, name: str, values: Any) -> None:
    """Write a column, or a matrix."""
    if isinstance(values, pd.Categorical):
        item = group.create_group(name)
        _mark(item, "categorical").attrs["ordered"] = False
        _put(item, "categories", np.asarray(values.categories))
        _put(item, "codes", np.asarray(values.codes))
    elif issparse(values):
        item = group.create_group(name)
        _mark(item, f"{values.format}_matrix", "0.1.0").attrs["shape"] = values.shape
        for part in ("data", "indices", "indptr"):
            item.create_dataset(part, data=getattr(values, part), compression="gzip")
    elif np.asarray(values).dtype.kind in "OUT":
        texts = np.asarray(values).astype(object)
        _mark(group.create_dataset(name, data=texts, dtype=h5py.string_dtype()), "string-array")
    else:
        _mark(group.create_dataset(name, data=values), "array")


def _mark(item: Any, kind: str, version: str = "0.2.0") -> Any:
    item.attrs["encoding-type"], item.attrs["encoding-version"] = kind, version
    return item


def _put_frame(file: Any, name: str, frame: pd.DataFrame) -> None:
    group = _mark(file.create_group(name), "dataframe")
    group.attrs["_index"] = "_index"
    group.attrs.create("column-order", list(map(str, frame.columns)), dtype=h5py.string_dtype())
    _put(group, "_index", np.asarray(frame.index, object))
    for column in frame:
        values = frame[column]
        _put(group, str(column), values.array if isinstance(values.dtype, pd.CategoricalDtype) else values.to_numpy())


def write_h5ad(
    path: Path,
    x: Any,
    obs: pd.DataFrame | None = None,
    genes: Any = None,
    layers: Mapping[str, Any] | None = None,
    marked: Any = None,
) -> Path:
    """Write a `.h5ad` file: arrays as they are, and cells and genes with the names cell0, … and g0, …"""
    rows, columns = (x if x is not None else next(iter((layers or {}).values()))).shape
    obs = pd.DataFrame(index=[f"cell{i}" for i in range(rows)]) if obs is None else obs
    var = pd.DataFrame(index=[f"g{j}" for j in range(columns)] if genes is None else list(genes))
    if marked is not None:
        var["highly_variable"] = marked
    with h5py.File(path, "w") as file:
        _mark(file, "anndata", "0.1.0")
        if x is not None:
            _put(file, "X", x)
        _put_frame(file, "obs", obs)
        _put_frame(file, "var", var)
        for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
            _mark(file.create_group(name), "dict", "0.1.0")
        for name, values in (layers or {}).items():
            _put(file["layers"], name, values)
    return path


def write_10x(
    path: Path, x: np.ndarray, names: list[str], ids: list[str], kinds: list[str] | None = None, version: int = 3
) -> Path:
    """Write a `.h5` file of 10x Genomics, whose matrix has genes as rows."""
    rows = csr_array(x)  # the CSC matrix of genes × cells
    with h5py.File(path, "w") as file:
        group = file.create_group("matrix" if version == 3 else "GRCh38")
        for part in ("data", "indices", "indptr"):
            group[part] = getattr(rows, part).astype(np.int32)
        group["shape"] = np.array(x.shape[::-1], np.int32)
        group["barcodes"] = np.array([f"AC{i}-1" for i in range(len(x))], "S")
        if version == 3:
            features = group.create_group("features")
            features["id"], features["name"] = np.array(ids, "S"), np.array(names, "S")
            features["feature_type"] = np.array(kinds or ["Gene Expression"] * len(ids), "S")
        else:
            group["genes"], group["gene_names"] = np.array(ids, "S"), np.array(names, "S")
    return path


def write_10x_folder(folder: Path, x: np.ndarray, names: list[str], ids: list[str], packed: bool, version: int) -> Path:
    """Write a folder of 10x Genomics."""
    folder.mkdir()
    genes = csc_array(x.T).tocoo()
    header = f"%%MatrixMarket matrix coordinate integer general\n{x.shape[1]} {x.shape[0]} {genes.nnz}\n"
    entries = "".join(f"{i + 1} {j + 1} {int(v)}\n" for i, j, v in zip(*genes.coords, genes.data, strict=True))
    more = ["\tGene Expression"] * len(ids) if version == 3 else [""] * len(ids)
    features = "".join(f"{a}\t{b}{kind}\n" for a, b, kind in zip(ids, names, more, strict=True))
    texts = {
        "matrix.mtx": header + entries,
        "barcodes.tsv": "".join(f"AC{i}-1\n" for i in range(len(x))),
        "features.tsv" if version == 3 else "genes.tsv": features,
    }
    for name, text in texts.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / name).write_text(text)
    return folder
