"""Charts of a hierarchy: a dendrogram, and scores beside those of surrogates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import dendrogram as layout

from .disc import INK
from .style import GREY, PALETTE, colouring, quiet

__all__ = ["beside_surrogates", "dendrogram"]


def dendrogram(
    ax: Axes, merges: NDArray[np.float64], labels: ArrayLike | None = None, ylabel: str = "distance"
) -> Axes:
    """Draw a dendrogram, its leaves coloured by label.

    Arguments:
        ax: axes.
        merges: as `scipy.cluster.hierarchy.linkage` gives them.
        labels: one a leaf.
        ylabel: what the heights are.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = dendrogram(Figure().subplots(), np.array([[0, 1, 1.0, 2], [2, 3, 2.0, 3]]), ["a", "a", "b"])
        >>> [float(end) for end in ax.get_xlim()]
        [0.0, 30.0]
    """
    drawn = layout(merges, no_plot=True)
    lines = [np.column_stack([x, y]) for x, y in zip(drawn["icoord"], drawn["dcoord"], strict=True)]
    ax.add_collection(LineCollection(lines, colors=INK, linewidths=0.6))
    leaves, top = len(merges) + 1, float(merges[:, 2].max()) or 1.0
    if labels is not None:
        colours = colouring(labels, leaves)
        strip = colours.colours[drawn["leaves"]][None]
        ax.imshow(strip, extent=(0, 10 * leaves, -0.07 * top, -0.02 * top), aspect="auto", interpolation="nearest")
        colours.explain(ax)
    ax.set(xlim=(0, 10 * leaves), ylim=(-0.08 * top, 1.03 * top), xticks=[])
    quiet(ax, f"{leaves:,} points", ylabel)
    ax.spines["bottom"].set_visible(False)
    return ax


def beside_surrogates(
    ax: Axes, names: Sequence[str], values: Sequence[float], surrogates: Sequence[Sequence[float]]
) -> Axes:
    """Draw scores between 0 and 1, one a line, over those of surrogates.

    Arguments:
        ax: axes.
        names: of the scores, from top to bottom.
        values: of the data.
        surrogates: of data without a hierarchy, some for each score.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = beside_surrogates(Figure().subplots(), ["four-point score"], [0.2], [[0.4, 0.5, 0.6]])
        >>> [text.get_text() for text in ax.get_yticklabels()]
        ['four-point score']
    """
    random = np.random.default_rng(0)
    for line, (value, drawn) in enumerate(zip(values, surrogates, strict=True)):
        height = -line + 0.18 * random.uniform(-1, 1, len(drawn))
        ax.plot(drawn, height, "o", color=GREY, markersize=3, label="surrogates" if line == 0 else None)
        ax.plot([value], [-line], "D", color=PALETTE[0], markersize=6, label="the data" if line == 0 else None)
    ax.set(xlim=(-0.03, 1.03), ylim=(0.6 - len(names), 0.6))
    ax.set_yticks([-line for line in range(len(names))], list(names))
    quiet(ax)
    ax.tick_params(axis="y", labelsize=8, length=0)
    ax.spines["left"].set_visible(False)
    ax.legend(frameon=False, fontsize=7, labelcolor=INK, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return ax
