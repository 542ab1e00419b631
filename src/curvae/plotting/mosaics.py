"""Pictures made of small images: at their embedding, decoded over the disc, or as a plain grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from torch import Tensor

from ..errors import CurvaeError
from ..geometry import PoincareBall
from .disc import Points, disc, fit_window, frozen, half_width, inside, rim, tensor

__all__ = ["decoded_mosaic", "mosaic", "sample_grid", "thin", "thumbnails", "tiled"]

_THUMBNAIL = 48  # pixels a side; a mosaic shows no more of an image


def thumbnails(images: Points, side: int = _THUMBNAIL) -> Tensor:
    """Images (N, H, W) as float64, reduced so that no side is longer than `side`."""
    pixels = tensor(images)
    if pixels.dim() != 3 or not pixels.numel():
        raise CurvaeError(f"images must have shape (N, H, W) with at least one pixel, got {tuple(pixels.shape)}")
    shrink = min(1.0, side / max(pixels.shape[1:]))
    height, width = (max(1, round(shrink * n)) for n in pixels.shape[1:])
    return pixels if shrink == 1 else torch.nn.functional.adaptive_avg_pool2d(pixels, (height, width))


def tiled(
    images: Tensor, rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int], gap: int = 0
) -> NDArray[np.float64]:
    """One canvas of shape[0] × shape[1] cells with image k in cell (rows[k], columns[k]), above and left of a gap.

    It is NaN, which is drawn clear, where there is no image.
    """
    height, width = images.shape[1:]
    canvas = np.full((shape[0], height + gap, shape[1], width + gap), np.nan)
    canvas[rows, :height, columns, :width] = images.numpy()
    return canvas.reshape(shape[0] * (height + gap), -1)


def _show(ax: Axes, canvas: NDArray[np.float64], **style: Any) -> AxesImage:
    """Grey levels as they are: 0 is black. Values outside [0, 1] set the range themselves."""
    low, high = min(0.0, float(np.nanmin(canvas))), max(1.0, float(np.nanmax(canvas)))
    return ax.imshow(canvas, **{"cmap": "gray", "vmin": low, "vmax": high, "interpolation": "antialiased", **style})


def _square(images: Tensor) -> Tensor:
    """Images padded to squares with their darkest value, so that cells keep their proportions."""
    height, width = images.shape[1:]
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    pads = (left, side - width - left, top, side - height - top)
    return torch.nn.functional.pad(images, pads, value=float(images.nan_to_num(torch.inf).min()))


def _lay(
    ax: Axes,
    ball: PoincareBall,
    images: Tensor,
    cells: NDArray[np.int64],
    n: int,
    reach: float | None,
    style: dict[str, Any],
    gap: int = 0,
) -> AxesImage:
    """Images in cells (column, row) of an n × n lattice over the disc, cut at the rim."""
    width = half_width(ball, reach)
    canvas = tiled(_square(images).flip(1), cells[:, 1], cells[:, 0], (n, n), gap)
    disc(ax, ball, reach=reach)
    drawn = _show(ax, canvas, origin="lower", extent=(-width, width, -width, width), zorder=1.0, **style)
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
    ax: Axes, ball: PoincareBall, points: Points, images: Points, *, size: float = 0.04, limit: int = 1000, **style: Any
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
    ball = frozen(ball)
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
    ball = frozen(ball)
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
    return _show(ax, tiled(pixels, row, column, (int(row[-1]) + 1, columns), gap=1)[:-1, :-1], **style)
