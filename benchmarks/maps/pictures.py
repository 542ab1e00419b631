"""Pictures of the maps, side by side."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from curvae.geometry import PoincareBall
from curvae.plotting import disc
from curvae.plotting.pictures import INK, colouring, figure_bytes

from .cells import Cell
from .data import load
from .score import place

__all__ = ["NAMES", "draw"]

NAMES = {
    "term": "Curvae, with neighbours",
    "likelihood": "Curvae, likelihood alone",
    "flat_term": "Curvae, flat, with neighbours",
    "pca": "PCA",
    "umap": "UMAP",
    "tsne": "t-SNE",
    "phate": "PHATE",
    "pacmap": "PaCMAP",
    "poincare_maps": "Poincaré maps",
}
_SHOWN = ("term", "flat_term", "umap", "tsne", "phate", "pca")
_DPI = 110


def draw(data: Path, maps: Path, name: str, output: Path) -> None:
    """One panel a method, the map of its first seed, coloured by label; numbered by row where there are none."""
    known = load(data, name)
    cells = [cell for method in _SHOWN if (cell := Cell(method, name, 0)).path(maps).exists()]
    labels = known.labels if len(known.labels) else np.linspace(0.0, 1.0, len(known.x))
    colours = colouring(labels, len(known.x))
    figure, axes = plt.subplots(2, 3, figsize=(8.4, 6.0), layout="constrained")
    order = np.random.default_rng(0).permutation(len(known.x))  # no label lies above all others
    for ax, cell in zip(axes.flat, cells, strict=False):
        placed = place(cell, maps)
        y = placed.ball if placed.c else placed.space
        if placed.c:
            disc(ax, PoincareBall(2, placed.c))
        else:
            ax.set_aspect("equal", adjustable="datalim")
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
        size = 6.0 if len(y) < 1000 else 2.5
        ax.scatter(*y[order].T, s=size, c=colours.colours[order], linewidths=0)
        ax.set_title(NAMES[cell.method], fontsize=8, color=INK)
    for ax in axes.flat[len(cells) :]:
        ax.set_axis_off()
    if colours.names:
        dots = [Line2D([], [], marker="o", linestyle="", color=colour, markersize=4) for _, colour in colours.names]
        texts = [text for text, _ in colours.names]
        figure.legend(dots, texts, loc="outside lower center", ncols=6, fontsize=7, frameon=False)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(figure_bytes(figure, dpi=_DPI))
