"""What the pictures share: the palette, colours from labels, quiet axes, colour bars, and figures as bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..errors import CurvaeError
from .disc import INK, RIM

__all__ = [
    "GREY",
    "PALETTE",
    "SEQUENTIAL",
    "Colouring",
    "colour_bar",
    "colouring",
    "figure_bytes",
    "inches",
    "legend",
    "plain",
    "quiet",
]

# Each colour is the farthest from those before it, from white and from grey, in the least favourable of normal,
# protanopic and deuteranopic vision; so the first n are a good palette for every n.
PALETTE = (
    *("#2b6cb0", "#e08214", "#1a9879", "#a3182f", "#8fc3ea", "#5b2a86", "#e6cf3c", "#ac77fa", "#976b15", "#47c682"),
    *("#680835", "#235d5b", "#d57cb5", "#b3318d", "#e84e5f", "#283757", "#4242bf", "#8fe8b4", "#795fe2", "#305301"),
)
GREY = "#c4cad1"
# Viridis without its last yellow, which is too faint on white.
SEQUENTIAL = LinearSegmentedColormap.from_list("curvae", mpl.colormaps["viridis"](np.linspace(0.0, 0.93, 256)))


@dataclass(frozen=True)
class Colouring:
    """A colour for each point, and how to read it: names with their colours, or a scale of numbers."""

    colours: NDArray[np.float64]
    names: Sequence[tuple[str, str]] = ()
    scale: ScalarMappable | None = None

    def explain(self, ax: Axes) -> None:
        """Add the legend or the colour bar beside the axes."""
        if self.scale is not None:
            colour_bar(ax, self.scale)
        elif self.names:
            dots = [Line2D([], [], marker="o", linestyle="", markersize=4, color=colour) for _, colour in self.names]
            legend(ax, dots, [name for name, _ in self.names])


def colouring(labels: ArrayLike | Tensor | None, count: int) -> Colouring:
    """Colours for `count` points from their labels.

    Labels are categories when they are text, booleans, or whole numbers with at most 20 different values; with more
    than 20 categories the rarest share the grey of "other". Other numbers get a sequential scale. Points without a
    label (None, NaN) are grey.
    """
    if labels is None:
        return Colouring(np.repeat(to_rgba_array(PALETTE[0]), count, 0))
    values = pd.Series(np.asarray(labels.detach().cpu()) if isinstance(labels, Tensor) else labels).infer_objects()
    if len(values) != count:
        raise CurvaeError(f"{len(values)} labels for {count} points; give one label a point")
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        numbers = np.asarray(values.to_numpy(np.float64, na_value=np.nan), np.float64)
        known = np.isfinite(numbers)
        values = values.where(known)
        different = np.unique(numbers[known])
        if len(different) > len(PALETTE) or (different % 1 != 0).any():
            return _numeric(numbers, known)
    return _categorical(values)


def _numeric(numbers: NDArray[np.float64], known: NDArray[np.bool_]) -> Colouring:
    scale = ScalarMappable(Normalize(numbers[known].min(), numbers[known].max()), SEQUENTIAL)
    colours = np.repeat(to_rgba_array(GREY), len(numbers), 0)
    colours[known] = scale.to_rgba(numbers[known])
    return Colouring(colours, scale=scale)


def _categorical(values: pd.Series[Any]) -> Colouring:
    codes, levels = pd.factorize(values)
    texts = [f"{level:g}" if isinstance(level, float) else str(level) for level in levels]
    frequency = np.bincount(codes[codes >= 0], minlength=len(levels))
    shown = sorted(range(len(levels)), key=lambda k: (-frequency[k], _natural(texts[k])))
    if len(levels) > len(PALETTE):
        shown = shown[: len(PALETTE) - 1]
    shown.sort(key=lambda k: _natural(texts[k]))
    table = np.repeat(to_rgba_array(GREY), len(levels) + 1, 0)  # the last row serves the code −1 of a missing label
    table[shown] = to_rgba_array(PALETTE[: len(shown)])
    names = [(plain(texts[k]), colour) for k, colour in zip(shown, PALETTE, strict=False)]
    if len(shown) < len(levels):
        names.append((f"other ({len(levels) - len(shown)})", GREY))
    if (codes < 0).any():
        names.append(("no label", GREY))
    return Colouring(table[codes], names)


def _natural(text: str) -> tuple[list[tuple[str, int]], str]:
    """A key that sorts numbers inside text by value: "class 9" before "class 10"."""
    return [(word, int(digits or 0)) for word, digits in re.findall(r"([^0-9]*)([0-9]*)", text)], text


def plain(text: str, length: int = 18) -> str:
    """Somebody else's text made fit for a picture: not too long, and never read as mathematics."""
    text = text if len(text) <= length else text[: length - 1] + "…"
    return text.replace("$", r"\$")


def legend(ax: Axes, handles: Sequence[Any], names: Sequence[str]) -> None:
    """A legend to the right of the axes; in two columns when it is long."""
    ax.legend(
        handles,
        names,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        ncols=1 if len(names) <= 12 else 2,
        frameon=False,
        fontsize=7,
        labelcolor=INK,
        handletextpad=0.1,
        columnspacing=0.6,
        borderaxespad=0.0,
    )


def colour_bar(ax: Axes, scale: ScalarMappable, label: str = "") -> Colorbar:
    """A slim colour bar to the right of the axes."""
    figure = ax.get_figure()
    assert figure is not None
    bar = figure.colorbar(scale, ax=ax, shrink=0.7, aspect=28, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, color=RIM, labelcolor=INK, length=2)
    bar.set_label(label, fontsize=7, color=INK)
    return bar


def quiet(ax: Axes, xlabel: str = "", ylabel: str = "", title: str | None = None) -> Axes:
    """Axes of a chart with little ink: two thin spines, small text."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(RIM)
    ax.tick_params(labelsize=7, color=RIM, labelcolor=INK, length=2)
    ax.set_xlabel(xlabel, fontsize=8, color=INK)
    ax.set_ylabel(ylabel, fontsize=8, color=INK)
    if title:
        ax.set_title(title, fontsize=9, color=INK)
    return ax


def inches(ax: Axes) -> float:
    """The smaller side of the axes, from which sizes of text and dots follow."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return float(min(ax.get_window_extent().size)) / figure.dpi


def figure_bytes(figure: Figure, format: Literal["png", "svg"] = "png") -> bytes:  # noqa: A002 - matplotlib's word
    """The figure as the bytes of a small file, the same for the same figure, and closed.

    Example:
        >>> figure_bytes(Figure(figsize=(1, 1)))[1:4]
        b'PNG'
    """
    stream = io.BytesIO()
    options: dict[str, Any] = (
        {"metadata": {"Software": None}, "pil_kwargs": {"optimize": True}}
        if format == "png"
        else {"metadata": {"Date": None, "Creator": None}}
    )
    # Ids inside an SVG file are random without a salt.
    with mpl.rc_context({"svg.hashsalt": "curvae"}):
        figure.savefig(stream, format=format, dpi=144, bbox_inches="tight", pad_inches=0.04, **options)
    plt.close(figure)
    return stream.getvalue()
