"""Maps by PCA, UMAP, t-SNE, PHATE and PaCMAP, each with its defaults; needs neither Curvae nor torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from .cells import Cell, compute, whole_and_folds
from .data import Data, load

__all__ = ["METHODS", "VERSIONS", "draw_all"]

VERSIONS = "versions.json"  # of the packages that drew the maps
_PACKAGES = ("umap-learn", "scikit-learn", "phate", "pacmap", "pynndescent", "numba")

Draw = Callable[[Cell, Data], dict[str, np.ndarray]]


def _pca(cell: Cell, data: Data) -> dict[str, np.ndarray]:
    from sklearn.decomposition import PCA

    pca = PCA(2, random_state=cell.seed).fit(data.x[cell.trained(data)])
    return {"y": np.float32(pca.transform(data.x))}


def _umap(cell: Cell, data: Data) -> dict[str, np.ndarray]:
    from umap import UMAP

    trained = cell.trained(data)
    fitted = UMAP(random_state=cell.seed, n_jobs=1).fit(data.x[trained])
    y = np.empty((len(data.x), 2), dtype=np.float32)
    y[trained] = fitted.embedding_
    if not trained.all():
        y[~trained] = fitted.transform(data.x[~trained])
    return {"y": y}


def _tsne(cell: Cell, data: Data) -> dict[str, np.ndarray]:
    from sklearn.manifold import TSNE

    return {"y": TSNE(random_state=cell.seed).fit_transform(data.x)}


def _phate(cell: Cell, data: Data) -> dict[str, np.ndarray]:
    from phate import PHATE

    return {"y": np.float32(PHATE(random_state=cell.seed, verbose=0, n_jobs=1).fit_transform(data.x))}


def _pacmap(cell: Cell, data: Data) -> dict[str, np.ndarray]:
    from pacmap import PaCMAP

    return {"y": np.float32(PaCMAP(random_state=cell.seed).fit_transform(data.x))}


METHODS: dict[str, Draw] = {"pca": _pca, "umap": _umap, "tsne": _tsne, "phate": _phate, "pacmap": _pacmap}
_PLACE_OTHERS = ("pca", "umap")  # can place rows that they were not made of
_EXACT = ("pca",)  # no random numbers


def draw_all(data: Path, maps: Path, names: Sequence[str], methods: Sequence[str], seeds: int, folds: bool) -> None:
    """Draw what is not there yet, small data sets first."""
    _compile(methods)
    maps.mkdir(parents=True, exist_ok=True)
    (maps / VERSIONS).write_text(json.dumps({name: version(name) for name in _PACKAGES}) + "\n", encoding="utf-8")
    for name in sorted(names, key=lambda name: load(data, name).x.size):
        known = load(data, name)
        for method in methods:
            drawn = range(1 if method in _EXACT else seeds)
            for cell in whole_and_folds(method, name, drawn, folds and method in _PLACE_OTHERS):
                compute(cell, known, maps, METHODS[method])


def _compile(methods: Sequence[str]) -> None:
    """Compile what is compiled when first used, so that no map is charged for it."""
    for method in methods:
        for rows in (64, 6000) if method == "umap" else (64,):  # from 4,096 on UMAP searches neighbours in another way
            x = np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)
            fold = 0 if method in _PLACE_OTHERS else None
            METHODS[method](Cell(method, "random", 0, fold), Data(x, np.array(()), "", np.arange(rows) % 4))
