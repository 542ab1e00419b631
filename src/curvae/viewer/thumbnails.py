"""Small grey pictures of rows, many to a sheet."""

from __future__ import annotations

import base64
import io
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import CurvaeError

__all__ = ["EACH", "sheets"]

EACH = 1024  # on a sheet; one that is not looked at is never decoded
_COLUMNS = 32
_LARGEST, _SMALLEST = 32, 8  # pixels a side
_PIXELS = 20_000_000  # in all; about 5 MB of page
_GREYS = 16


def sheets(images: NDArray[np.floating]) -> tuple[dict[str, int], list[str]]:
    """Pictures of shape (rows, height, width), from black at their least value to white at their largest.

    They are shrunk to at most 32 pixels a side, and further when there are many.

    Returns:
        Height and width of one, how many stand on a sheet and in a line of it; the sheets as base64 of PNG files.
    """
    rows, height, width = images.shape
    side = min(_LARGEST, math.isqrt(_PIXELS // max(1, rows)))
    if side < _SMALLEST:
        raise CurvaeError(
            f"{rows:,} thumbnails do not fit into a page; leave out thumbnails=True, or embed fewer rows "
            f"(at most {_PIXELS // _SMALLEST**2:,})"
        )
    factor = max(1.0, max(height, width) / side)
    size = max(1, round(height / factor)), max(1, round(width / factor))
    low, high = float(np.nanmin(images)), float(np.nanmax(images))
    scale = (_GREYS - 1) / ((high - low) or 1.0)
    made = []
    for start in range(0, rows, EACH):
        part = np.stack([_shrunk(image, size) for image in np.nan_to_num(images[start : start + EACH], nan=low)])
        lines = -(-len(part) // _COLUMNS)
        sheet = np.zeros((lines * _COLUMNS, *size), np.uint8)
        sheet[: len(part)] = np.rint((part - low) * scale).clip(0, _GREYS - 1)
        made.append(_png(sheet.reshape(lines, _COLUMNS, *size).swapaxes(1, 2).reshape(lines * size[0], -1)))
    return {"height": size[0], "width": size[1], "columns": _COLUMNS, "each": EACH}, made


def _shrunk(image: NDArray[np.floating], size: tuple[int, int]) -> NDArray[np.float32]:
    if image.shape == size:
        return image.astype(np.float32)
    return np.asarray(Image.fromarray(image.astype(np.float32)).resize(size[::-1], Image.Resampling.BOX))


def _png(levels: NDArray[np.uint8]) -> str:
    picture = Image.fromarray(levels)
    picture.putpalette([value for k in range(_GREYS) for value in (k * 255 // (_GREYS - 1),) * 3])
    stream = io.BytesIO()
    picture.save(stream, "PNG", bits=4, optimize=True)
    return base64.b64encode(stream.getvalue()).decode("ascii")
