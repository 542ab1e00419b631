"""What the pictures share: the palette, colours from labels, quiet axes, colour bars, and figures as bytes."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
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

__all__ = [
    "DARK_GREY",
    "DARK_PALETTE",
    "DARK_SEQUENTIAL",
    "GREY",
    "INK",
    "PALETTE",
    "RIM",
    "SEQUENTIAL",
    "Colouring",
    "Levels",
    "colour_bar",
    "colouring",
    "figure_bytes",
    "inches",
    "legend",
    "levels",
    "plain",
    "quiet",
    "sequential",
    "shaded",
]

# Each colour is the farthest from those before it, from white and from grey, in the least favourable of normal,
# protanopic and deuteranopic vision; so the first n are a good palette for every n.
PALETTE = (
    *("#2b6cb0", "#e08214", "#1a9879", "#a3182f", "#8fc3ea", "#5b2a86", "#e6cf3c", "#ac77fa", "#976b15", "#47c682"),
    *("#680835", "#235d5b", "#d57cb5", "#b3318d", "#e84e5f", "#283757", "#4242bf", "#8fe8b4", "#795fe2", "#305301"),
)
GREY = "#c4cad1"
INK = "#1f2933"
RIM = "#9aa5b1"
# The same hues for a dark ground, lifted and spread so that no two come nearer than in the palette above.
DARK_PALETTE = (
    *("#5e73ca", "#fe961e", "#0aa299", "#e36d48", "#b2e4fc", "#b2a6ff", "#dfde3b", "#9085fe", "#976106", "#5dcd87"),
    *("#ca1e5f", "#8ac5c3", "#ea6dab", "#b546a7", "#db667a", "#7795d4", "#5d52da", "#8ae8b9", "#5469ff", "#c9d97e"),
)
DARK_GREY = "#5f6b78"
# Viridis without its last yellow, which is too faint on white.
SEQUENTIAL = LinearSegmentedColormap.from_list("curvae", mpl.colormaps["viridis"](np.linspace(0.0, 0.93, 256)))
# On dark ground its first violets are too faint instead.
DARK_SEQUENTIAL = LinearSegmentedColormap.from_list("curvae", mpl.colormaps["viridis"](np.linspace(0.25, 1.0, 256)))


@dataclass(frozen=True)
class Colouring:
    """A colour for each point, and how to read it: names with their colours, or a scale of numbers, and a title."""

    colours: NDArray[np.float64]
    names: Sequence[tuple[str, str]] = ()
    scale: ScalarMappable | None = None
    title: str = ""

    def explain(self, ax: Axes, marks: Mapping[str, Line2D] = MappingProxyType({})) -> None:
        """Add the legend or the colour bar beside the axes; `marks` are more entries of the legend, by name."""
        if self.scale is not None:
            colour_bar(ax, self.scale, plain(self.title))
        dots = [Line2D([], [], marker="o", linestyle="", markersize=4, color=colour) for _, colour in self.names]
        if dots or marks:
            names = [*(name for name, _ in self.names), *marks]
            legend(ax, [*dots, *marks.values()], names, plain(self.title) if dots else "")


@dataclass(frozen=True)
class Levels:
    """Categories of points.

    Arguments:
        codes: the place in `texts` of each point's category, −1 where it has none.
        texts: names of the categories.
        shown: codes of those that have a colour of their own, in the order of the palette and the legend.
    """

    codes: NDArray[np.intp]
    texts: Sequence[str]
    shown: Sequence[int]


def levels(labels: ArrayLike | Tensor, count: int) -> Levels | NDArray[np.float64]:
    """Read labels of `count` points as categories, or as numbers of a scale, NaN where there is none.

    Labels are categories when they are text, booleans, or whole numbers with at most 20 different values. With more
    than 20 categories the most frequent have colours.
    """
    values = pd.Series(np.asarray(labels.detach().cpu()) if isinstance(labels, Tensor) else labels).infer_objects()
    if len(values) != count:
        raise CurvaeError(f"{len(values)} labels for {count} points; give one label a point")
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        numbers = np.asarray(values.to_numpy(np.float64, na_value=np.nan), np.float64)
        known = np.isfinite(numbers)
        values = values.where(known)
        different = np.unique(numbers[known])
        if len(different) > len(PALETTE) or (different % 1 != 0).any():
            return np.where(known, numbers, np.nan)
    codes, unique = pd.factorize(values)
    texts = [f"{level:g}" if isinstance(level, float) else str(level) for level in unique]
    frequency = np.bincount(codes[codes >= 0], minlength=len(texts))
    # Numbers inside text are sorted by value: "class 9" before "class 10".
    rank = [
        ([(word, int(digits or 0)) for word, digits in re.findall(r"([^0-9]*)([0-9]*)", text)], text) for text in texts
    ]
    shown = sorted(range(len(texts)), key=lambda k: (-frequency[k], rank[k]))
    shown = shown if len(texts) <= len(PALETTE) else shown[: len(PALETTE) - 1]
    return Levels(codes, texts, sorted(shown, key=rank.__getitem__))


def colouring(labels: ArrayLike | Tensor | None, count: int) -> Colouring:
    """Choose colours for `count` points from their labels.

    Categories (see `levels`) have colours of the palette, the rarest of many share the grey of "other"; numbers get a
    sequential scale. Points without a label (None, NaN) are grey.
    """
    if labels is None:
        return Colouring(np.repeat(to_rgba_array(PALETTE[0]), count, 0))
    found = levels(labels, count)
    if not isinstance(found, Levels):
        scale = sequential(np.nanmin(found), np.nanmax(found))
        return Colouring(shaded(found, scale), scale=scale)
    table = np.repeat(to_rgba_array(GREY), len(found.texts) + 1, 0)  # the last row serves the code −1
    table[list(found.shown)] = to_rgba_array(PALETTE[: len(found.shown)])
    names = [(plain(found.texts[k]), colour) for k, colour in zip(found.shown, PALETTE, strict=False)]
    if len(found.shown) < len(found.texts):
        names.append((f"other ({len(found.texts) - len(found.shown)})", GREY))
    if (found.codes < 0).any():
        names.append(("no label", GREY))
    return Colouring(table[found.codes], names)


def sequential(low: float, high: float) -> ScalarMappable:
    """Return a sequential scale of colours between two numbers."""
    return ScalarMappable(Normalize(low, high), SEQUENTIAL)


def shaded(numbers: NDArray[np.float64], scale: ScalarMappable) -> NDArray[np.float64]:
    """Return colours of numbers, (N, 4): those of the scale, grey for what is not finite."""
    return np.where(np.isfinite(numbers)[:, None], scale.to_rgba(numbers), to_rgba_array(GREY))


def plain(text: str, length: int = 18) -> str:
    """Make somebody else's text fit for a picture: not too long, and never read as mathematics."""
    text = text if len(text) <= length else text[: length - 1] + "…"
    return text.replace("$", r"\$")


def legend(ax: Axes, handles: Sequence[Any], names: Sequence[str], title: str = "") -> None:
    """Draw a legend to the right of the axes; in two columns when it is longer than they are high."""
    drawn = ax.legend(
        handles,
        names,
        title=title or None,
        title_fontsize=7,
        alignment="left",
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        ncols=1 if 0.15 * len(names) <= inches(ax) else 2,
        frameon=False,
        fontsize=7,
        labelcolor=INK,
        handletextpad=0.1,
        columnspacing=0.6,
        borderaxespad=0.0,
    )
    drawn.get_title().set_color(INK)


def colour_bar(ax: Axes, scale: ScalarMappable, label: str = "") -> Colorbar:
    """Draw a slim colour bar to the right of the axes."""
    bar = ax.figure.colorbar(scale, ax=ax, shrink=0.7, aspect=28, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, color=RIM, labelcolor=INK, length=2)
    bar.set_label(label, fontsize=7, color=INK)
    return bar


def quiet(ax: Axes, xlabel: str = "", ylabel: str = "", title: str | None = None) -> Axes:
    """Draw axes of a chart with little ink: two thin spines, small text."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(RIM)
    ax.tick_params(labelsize=7, color=RIM, labelcolor=INK, length=2)
    ax.set_xlabel(xlabel, fontsize=8, color=INK)
    ax.set_ylabel(ylabel, fontsize=8, color=INK)
    if title:
        ax.set_title(title, fontsize=9, color=INK)
    return ax


def inches(ax: Axes) -> float:
    """Return the smaller side of the axes, from which sizes of text and dots follow."""
    return float(min(ax.get_window_extent().size)) / ax.figure.dpi


def figure_bytes(
    figure: Figure,
    format: Literal["png", "svg", "pdf"] = "png",  # noqa: A002 - matplotlib's word
    dpi: int = 144,
) -> bytes:
    """Return the figure as the bytes of a small file, the same for the same figure, and closed.

    Example:
        >>> figure_bytes(Figure(figsize=(1, 1)))[1:4]
        b'PNG'
    """
    stream = io.BytesIO()
    options: dict[str, dict[str, Any]] = {
        "png": {"metadata": {"Software": None}},
        "svg": {"metadata": {"Date": None, "Creator": None}},
        "pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
    }
    # Ids inside an SVG file are random without a salt; letters of a PDF file stay letters.
    with mpl.rc_context({"svg.hashsalt": "curvae", "pdf.fonttype": 42}), warnings.catch_warnings():
        # A letter that the font lacks, in a label say, is drawn as a box.
        warnings.filterwarnings("ignore", "Glyph")
        figure.savefig(stream, format=format, dpi=dpi, bbox_inches="tight", pad_inches=0.04, **options[format])
    plt.close(figure)
    return stream.getvalue()
