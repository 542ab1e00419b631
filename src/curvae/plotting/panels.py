"""Charts: learning curves, radii, reconstructions and mosaics of a model; scores of hierarchies and curvatures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import dendrogram as layout
from torch import Tensor

from ..distributions import HyperbolicRadius
from ..errors import CurvaeError
from ..geometry import PoincareBall
from ..maps.charts import Points, as_number, tensor
from .maps import Page, disc, fit_window, half_width, inside, on_page, rim
from .style import GREY, INK, PALETTE, colouring, inches, plain, quiet

__all__ = [
    "bands",
    "beside_surrogates",
    "confusion",
    "curvature_profile",
    "curves",
    "decoded_mosaic",
    "dendrogram",
    "mosaic",
    "radius_histogram",
    "reconstructions",
    "sample_grid",
    "show_tiles",
    "thin",
    "thumbnails",
    "volcano",
]


# Pictures made of small images: at their embedding, decoded over the disc, or as a plain grid.


def thumbnails(images: Points, side: int = 48) -> Tensor:
    """Return images (N, H, W) as float64, reduced so that no side is longer than `side`."""
    pixels = tensor(images)
    if pixels.dim() != 3 or not pixels.numel():
        raise CurvaeError(f"images must have shape (N, H, W) with at least one pixel, got {tuple(pixels.shape)}")
    shrink = min(1.0, side / max(pixels.shape[1:]))
    height, width = (max(1, round(shrink * n)) for n in pixels.shape[1:])
    return pixels if shrink == 1 else torch.nn.functional.adaptive_avg_pool2d(pixels, (height, width))


def show_tiles(
    ax: Axes,
    images: Tensor,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    shape: tuple[int, int],
    gap: int = 0,
    outer_gap: bool = True,
    **style: Any,
) -> AxesImage:
    """Show one canvas of shape[0] × shape[1] cells with image k in cell (rows[k], columns[k]), above and left of a gap.

    The last gaps are left out without `outer_gap`. It is clear where there is no image. Grey levels are shown as they
    are: 0 is black. Values outside [0, 1] set the range themselves.
    """
    height, width = images.shape[1:]
    cells = np.full((shape[0], height + gap, shape[1], width + gap), np.nan)
    cells[rows, :height, columns, :width] = images.numpy()
    canvas = cells.reshape(shape[0] * (height + gap), -1)
    low, high = min(0.0, float(np.nanmin(canvas))), max(1.0, float(np.nanmax(canvas)))
    style = {"cmap": "gray", "vmin": low, "vmax": high, "interpolation": "antialiased", **style}
    return ax.imshow(canvas if outer_gap else canvas[:-gap, :-gap], **style)


def _square(images: Tensor) -> Tensor:
    """Images padded to squares with their darkest value, so that cells keep their proportions."""
    height, width = images.shape[1:]
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    pads = (left, side - width - left, top, side - height - top)
    return torch.nn.functional.pad(images, pads, value=float(images.nan_to_num(torch.inf).min()))


def _lay(
    ax: Axes,
    ball: Page,
    images: Tensor,
    cells: NDArray[np.int64],
    n: int,
    reach: float | None,
    style: dict[str, Any],
    gap: int = 0,
) -> AxesImage:
    """Images in cells (column, row) of an n × n lattice over the disc, cut at the rim."""
    width = half_width(ball, reach)
    disc(ax, ball, reach=reach)
    style = {"origin": "lower", "extent": (-width, width, -width, width), "zorder": 1.0, **style}
    drawn = show_tiles(ax, _square(images).flip(1), cells[:, 1], cells[:, 0], (n, n), gap, **style)
    if circle := rim(ball, reach, transform=ax.transData):
        drawn.set_clip_path(circle)
    return drawn


def thin(points: Tensor, width: float, n: int, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each occupied cell of an n × n lattice over [−width, width]², the point nearest to its centre.

    Of more than `limit` cells those with the most points stay.

    Returns:
        Indices of the points, and their cells as (column, row).
    """
    place = (points.numpy() + width) * n / (2 * width)
    cell = np.clip(np.floor(place), 0, n - 1).astype(np.int64)
    order = np.lexsort((((place - cell - 0.5) ** 2).sum(1), cell[:, 0], cell[:, 1]))
    _, first, count = np.unique(cell[order] @ [1, n], return_index=True, return_counts=True)
    chosen = order[first[np.argsort(-count, kind="stable")[:limit]]]
    return chosen, cell[chosen]


def mosaic(
    ax: Axes, ball: Page, points: Points, images: Points, *, size: float = 0.04, limit: int = 1000, **style: Any
) -> AxesImage:
    """Draw images at their embedding, thinned so that none covers another.

    The picture is cut into square cells; each shows the image nearest to its centre, moved there.

    Arguments:
        ax: axes; they are prepared here.
        ball: the space.
        points: ball coordinates, shape (N, 2).
        images: grey levels, shape (N, H, W).
        size: side of an image as a share of the width of the picture.
        limit: draw at most so many images, those of the fullest cells.
        style: as for matplotlib's imshow; cmap="gray_r" draws black on white.

    Example:
        >>> from matplotlib.figure import Figure
        >>> x = PoincareBall(2).random(300)
        >>> drawn = mosaic(Figure().subplots(), PoincareBall(2), x, torch.rand(300, 8, 8), size=0.1)
        >>> drawn.get_array().shape
        (90, 90)
    """
    z, pixels = inside(ball, points), thumbnails(images)
    if len(pixels) != len(z):
        raise CurvaeError(f"{len(pixels)} images for {len(z)} points; give one image a point")
    if not (0 < size <= 1 and limit >= 1):
        raise CurvaeError(f"size must lie in (0, 1] and limit be at least 1, got {size} and {limit}")
    n, reach = round(1 / size), fit_window(z)
    chosen, cells = thin(z, half_width(ball, reach), n, limit)
    return _lay(ax, ball, pixels[chosen], cells, n, reach, style, gap=1)


def decoded_mosaic(
    ax: Axes,
    ball: PoincareBall,
    decode: Callable[[Tensor], Points],
    shape: tuple[int, int],
    n: int = 20,
    *,
    reach: float | None = None,
    **style: Any,
) -> AxesImage:
    """Draw the images that a decoder makes at a square lattice of points of the disc.

    Arguments:
        ax: axes; they are prepared here.
        ball: the space.
        decode: from points (M, 2), ball coordinates of the default dtype, to grey levels (M, H·W).
        shape: (H, W).
        n: images a side.
        reach: half the width of the window at c = 0; see `fit_window`.
        style: as for matplotlib's imshow.
    """
    ball = on_page(ball).page
    cells = np.indices((n, n)).reshape(2, -1).T[:, ::-1]  # column and row
    z = torch.as_tensor((2 * cells + 1 - n) * (half_width(ball, reach) / n))
    # A decoder cannot be asked beyond the rim, and close to it sees what it never met in training.
    near = float(ball.c) * z.square().sum(1) < 0.99
    with torch.no_grad():
        images = decode(z[near].to(torch.get_default_dtype()))
    return _lay(ax, ball, thumbnails(tensor(images).reshape(-1, *shape)), cells[near.numpy()], n, reach, style)


def sample_grid(ax: Axes, images: Points, columns: int | None = None, **style: Any) -> AxesImage:
    """Draw images of shape (N, H, W) side by side, row after row.

    Arguments:
        ax: axes.
        images: grey levels.
        columns: images a row; by default as many as there are rows.
        style: as for matplotlib's imshow.
    """
    pixels = thumbnails(images, 128)
    columns = columns or math.ceil(math.sqrt(len(pixels)))
    row, column = np.divmod(np.arange(len(pixels)), columns)
    ax.axis("off")
    return show_tiles(ax, pixels, row, column, (int(row[-1]) + 1, columns), gap=1, outer_gap=False, **style)


def confusion(ax: Axes, matrix: Points, names: Sequence[object]) -> AxesImage:
    """Draw a confusion matrix, rows the truth and columns the prediction, coloured by the share of each row.

    Arguments:
        ax: axes.
        matrix: counts (whole numbers) or shares, shape (K, K); written in the cells of at most 20 classes.
        names: of the K classes.
    """
    table, k = np.asarray(matrix), len(names)
    if table.shape != (k, k) or not k:
        raise CurvaeError(f"a confusion matrix of {k} names must have shape ({k}, {k}), got {table.shape}")
    total = table.sum(1, keepdims=True)
    share = np.divide(table, total, out=np.zeros(table.shape), where=total > 0)
    drawn = ax.imshow(share, cmap="Blues", vmin=0, vmax=1.15)
    cell = 72 * inches(ax) / k  # in points
    if k <= 20:
        whole = np.issubdtype(table.dtype, np.integer)
        texts = [[f"{x}" if whole else f"{x:.2f}".removeprefix("0") for x in row] for row in table]
        size = min(8.0, 1.3 * cell / max(len(text) for row in texts for text in row))
        for i, j in np.ndindex(k, k):
            if texts[i][j] not in ("0", ".00"):
                colour = "white" if share[i, j] > 0.6 else INK
                ax.text(j, i, texts[i][j], ha="center", va="center", fontsize=size, color=colour)
    labels = [plain(str(name), 14) for name in names] if k <= 40 else []
    ax.set_xticks(range(len(labels)), labels, rotation=90 if k > 3 and max(map(len, labels), default=0) > 2 else 0)
    ax.set_yticks(range(len(labels)), labels)
    quiet(ax, "predicted", "true")
    ax.tick_params(length=0, labelsize=min(7.0, 0.8 * cell))
    ax.spines[:].set_visible(False)
    return drawn


def curves(axes: Sequence[Axes], history: Sequence[Mapping[str, float]]) -> tuple[Axes, Axes]:
    """Draw learning curves: the ELBO on the first axes, its two parts on the second (KL left, reconstruction right).

    Lines are the training rows, dashes the validation rows. The first epochs do not set the scale.

    Arguments:
        axes: two of them.
        history: a record an epoch with "epoch" and any of "elbo", "reconstruction", "kl", "c" (of a product
            "c_1", "c_2", …), "validation_elbo",
            "validation_reconstruction", "validation_kl".

    Example:
        >>> from matplotlib.figure import Figure
        >>> records = [{"epoch": k, "elbo": -100 / (k + 1), "kl": 1.0} for k in range(20)]
        >>> left, right = curves(Figure().subplots(1, 2), records)
        >>> bool(left.get_ylim()[0] > -50)
        True
    """
    if not history:
        raise CurvaeError("there are no learning curves to draw: the history is empty; train for at least one epoch")
    (first, second), records = axes, pd.DataFrame(list(history))
    _series(first, records, "elbo", INK)
    quiet(first, "epoch", "ELBO (nats)")
    if records.columns.str.startswith("validation_").any():
        for style, name in (("-", "training"), ("--", "validation")):
            first.plot([], [], style, color=INK, linewidth=1.1, label=name)
        first.legend(frameon=False, fontsize=7, labelcolor=INK, loc="best")
    right = second.twinx()
    for ax, key, colour, label in (
        (second, "kl", PALETTE[0], "KL (nats)"),
        (right, "reconstruction", PALETTE[1], "reconstruction (nats)"),
    ):
        _series(ax, records, key, colour)
        quiet(ax, "epoch", label)
        ax.yaxis.label.set_color(colour)
        ax.tick_params(axis="y", labelcolor=colour)
    right.spines[:].set_visible(False)
    each = {name: c[np.isfinite(c)] for name, c in records.filter(regex="^c(_|$)").astype(np.float64).items()}
    learned = {name: c.iloc[[0, -1]] for name, c in each.items() if c.nunique() > 1}
    texts = [f"learned {name}: {start:.3g} → {end:.3g}" for name, (start, end) in learned.items()]
    first.set_title(", ".join(texts), fontsize=8, color=INK)
    return first, second


def bands(
    ax: Axes, x: NDArray[np.float64], lines: Mapping[str, tuple[NDArray[np.float64], ...]], xlabel: str = "pseudotime"
) -> Axes:
    """Draw lines with their intervals.

    Arguments:
        ax: axes.
        x: places on the horizontal axis.
        lines: values with their lower and upper ends, by name.
        xlabel: name of the axis.

    Example:
        >>> from matplotlib.figure import Figure
        >>> x = np.linspace(0, 1, 5)
        >>> len(bands(Figure().subplots(), x, {"a": (x, x - 1, x + 1), "b": (-x, -x, -x)}).lines)
        2
    """
    for place, (name, (mean, low, high)) in enumerate(lines.items()):
        colour = PALETTE[place % len(PALETTE)]
        ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        ax.plot(x, mean, color=colour, linewidth=1.1, label=name)
    ax.legend(frameon=False, fontsize=7, labelcolor=INK, loc="best")
    return quiet(ax, xlabel, "expected value")


def volcano(ax: Axes, table: pd.DataFrame, marked: NDArray[np.bool_], named: int = 10) -> Axes:
    """Draw by how much genes differ, and by how many standard deviations.

    Arguments:
        ax: axes.
        table: a line for each gene, with its name as the index, `lfc_mean` and `lfc_std`.
        marked: which genes are coloured.
        named: how many of these have their names, from the first on.

    Example:
        >>> from matplotlib.figure import Figure
        >>> table = pd.DataFrame({"lfc_mean": [2.0, 0.1], "lfc_std": [0.1, 0.1]}, index=["a", "b"])
        >>> [text.get_text() for text in volcano(Figure().subplots(), table, np.array([True, False])).texts]
        ['a']
    """
    x, y = table["lfc_mean"].to_numpy(), (table["lfc_mean"].abs() / table["lfc_std"].clip(1e-9)).to_numpy()
    for chosen, colour in ((~marked, GREY), (marked, PALETTE[0])):
        ax.scatter(x[chosen], y[chosen], s=5, color=colour, linewidths=0)
    for gene in np.flatnonzero(marked)[:named]:
        ax.annotate(plain(str(table.index[gene])), (x[gene], y[gene]), fontsize=6, color=INK)
    return quiet(ax, "log2 fold change", "standard deviations from 0")


def _series(ax: Axes, records: pd.DataFrame, key: str, colour: str) -> None:
    """Draw a quantity over epochs, for training and validation rows, with limits that the later epochs set."""
    drawn = []
    for name, style in ((key, "-"), (f"validation_{key}", "--")):
        pairs = records.reindex(columns=["epoch", name]).to_numpy(np.float64)
        x, value = pairs[np.isfinite(pairs).all(1)].T
        if len(value):
            marker = "o" if len(value) == 1 else ""
            ax.plot(x, value, style, color=colour, linewidth=1.1, marker=marker, markersize=4)
            drawn.append(np.stack([x, value]))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if drawn:
        x, value = np.concatenate(drawn, 1)
        if np.ptp(x) == 0:
            ax.set_xlim(x[0] - 1, x[0] + 1)
        value = value[x >= x.min() + 0.2 * np.ptp(x)]
        low, high = value.min(), value.max()
        margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
        ax.set_ylim(low - margin, high + margin)


def radius_histogram(
    ax: Axes,
    radii: Points,
    c: Tensor | float,
    prior_scale: float | None = None,
    *,
    dim: int = 2,
    distribution: Literal["riemannian", "wrapped"] = "riemannian",
) -> Axes:
    """Draw how far from the origin the embedded points lie, beside the distribution of the prior.

    Arguments:
        ax: axes.
        radii: geodesic distances from the origin, as `ball.dist0` gives them.
        c: minus the curvature.
        prior_scale: scale of the prior; without it the prior is not drawn.
        dim: dimension of the latent space, for the prior.
        distribution: family of the prior.
    """
    r, c = tensor(radii).flatten().numpy(), as_number(c)
    if not len(r) or not np.isfinite(r).all() or (r < 0).any():
        raise CurvaeError(
            f"radii must be at least one finite number ≥ 0, got {len(r)} of which "
            f"{int((~np.isfinite(r)).sum() + (r < 0).sum())} are not; compute them with ball.dist0"
        )
    top = float(r.max()) * 1.02 or 1.0
    ax.hist(r, np.linspace(0, top, min(60, 10 + math.isqrt(len(r))) + 1), density=True, color=GREY)  # type: ignore[arg-type]
    if prior_scale is not None:
        # A wrapped normal at the origin has the radius of the flat normal that it wraps.
        curved = c if distribution == "riemannian" else 0.0
        prior = HyperbolicRadius(dim, torch.tensor(float(prior_scale)).double(), curved)
        x = torch.linspace(0, max(top, float(prior.icdf(torch.tensor(0.995).double()))), 400, dtype=torch.float64)
        ax.plot(x, prior.log_prob(x).exp(), color=PALETTE[0], linewidth=1.2, label="prior")
        ax.legend(frameon=False, fontsize=7, labelcolor=INK)
    ax.set_xlim(left=0)
    ax.set_yticks([])
    quiet(ax, f"{'hyperbolic ' if c else ''}distance from the origin")
    ax.spines["left"].set_visible(False)
    return ax


def reconstructions(
    axes: Iterable[Axes], originals: Points, reconstructed: Points, shape: Sequence[int], titles: Sequence[str]
) -> list[Axes]:
    """Draw each row beside its reconstruction, one row an axes: as images, or feature by feature.

    Arguments:
        axes: one for each row.
        originals, reconstructed: shape (R, D).
        shape: (H, W) of an image; of any other length, the first 100 features are drawn as bars, and their
            reconstruction as dots.
        titles: R of them, for example "worst", "median", "best".
    """
    rows, made = (tensor(x).flatten(1).numpy() for x in (originals, reconstructed))
    panels = list(axes)
    if not len(panels) == len(rows) == len(titles) or rows.shape != made.shape:
        raise CurvaeError(
            f"rows, reconstructions, axes and titles must be as many, got shapes {rows.shape} and {made.shape}, "
            f"{len(panels)} axes and {len(titles)} titles"
        )
    for ax, row, other, title in zip(panels, rows, made, titles, strict=True):
        ax.set_title(title, fontsize=8, color=INK)
        if len(shape) == 2:
            sample_grid(ax, np.stack([row, other]).reshape(2, *shape), columns=2)
            ax.text(
                0.5,
                -0.03,
                "original · reconstruction",
                fontsize=6,
                color=INK,
                transform=ax.transAxes,
                ha="center",
                va="top",
            )
        else:
            ax.stairs(row[:100], np.arange(len(row[:100]) + 1) - 0.5, fill=True, color=GREY, label="original")
            ax.plot(other[:100], ".", color=PALETTE[0], markersize=3, label="reconstruction")
            quiet(ax, "feature")
    if len(shape) != 2 and panels:
        panels[0].legend(frameon=False, fontsize=6, labelcolor=INK)
    return panels


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


def curvature_profile(
    ax: Axes, profile: Sequence[tuple[float, float, float]], low: float, high: float | None, ylabel: str
) -> Axes:
    """Draw what each c·σ0² gains over 0, with its interval, over the set of those that may be best.

    Arguments:
        ax: axes.
        profile: c·σ0² in ascending order, what it gains, and the half-width of the interval of that.
        low, high: ends of the set; `high` is None for one that goes on.
        ylabel: what is gained.

    Example:
        >>> from matplotlib.figure import Figure
        >>> profile = [(0, 0, 0), (1, 0.3, 0.1), (4, 0.1, 0.2)]
        >>> ax = curvature_profile(Figure().subplots(), profile, 0.4, None, "gain, nats a row")
        >>> ax.get_xscale(), [text.get_text() for text in ax.get_xticklabels()]
        ('asinh', ['0', '1', '4'])
    """
    values, gains, intervals = zip(*profile, strict=True)
    ax.set_xscale("asinh")
    right = 1.15 * values[-1]
    ax.axvspan(low, right if high is None else high, color=PALETTE[0], alpha=0.15, label="95 % set")
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.errorbar(values, gains, intervals, fmt="o-", color=INK, markersize=4, linewidth=1, capsize=3)
    ax.set(xlim=(-0.05 * right, right))
    ax.set_xticks(values, [f"{value:.3g}" for value in values])
    ax.minorticks_off()
    quiet(ax, "c·σ0²", ylabel).legend(frameon=False, fontsize=7, labelcolor=INK)
    return ax
