"""Numbers, names and small grey pictures of rows as compact text inside a page.

Points travel as (radius, turn): the distance from the origin in units of the curvature, and the direction as a part of
a full turn, both as whole numbers of fixed steps. In float32 coordinates of the disc or the hyperboloid, points at
radius 12 and beyond fall together with their neighbours; fixed-point angles differ by an exact subtraction. The steps
are chosen by how far out the points lie, so that no point is displaced by more than `resolution`.
"""

from __future__ import annotations

import base64
import io
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from ..errors import CurvaeError
from ..markup import writable
from ..plotting.style import Levels, levels

__all__ = [
    "EACH",
    "FARTHEST",
    "FEW",
    "Blocks",
    "pack_column",
    "pack_expected",
    "pack_points",
    "pack_sigma",
    "pack_sizes",
    "sheets",
    "shortened",
]

FEW = 100_000  # up to so many points space is no concern
FARTHEST = 40.0  # radius at which points beyond it are drawn, since products of two cosh must fit in float32
_TURN_BITS = 52  # what a double can hold
_RADIUS_BITS = 31
_HUGE = float(np.finfo(np.float32).max)
_LONGEST = 200  # letters of a category or an id
EACH = 1024  # thumbnails on a sheet; one that is not looked at is never decoded
_COLUMNS = 32
_LARGEST, _SMALLEST = 32, 8  # pixels a side
_PIXELS = 20_000_000  # in all; about 5 MB of page
_GREYS = 16


@dataclass
class Blocks:
    """Blocks of compressed bytes by name, as base64, and what the page must know to read them."""

    texts: dict[str, str] = field(default_factory=dict)
    facts: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, name: str, content: bytes) -> int:
        """Add bytes; returns the length of their text."""
        self.texts[name] = base64.b64encode(zlib.compress(content, 6)).decode("ascii")
        return len(self.texts[name])

    def add_numbers(self, name: str, values: ArrayLike, bits: int) -> None:
        """Add whole numbers of at most so many bits, as all their lowest bytes, then the next: high bytes are alike."""
        whole, width = np.ascontiguousarray(values, "<u8"), max(1, -(-bits // 8))
        self.add(name, whole.view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes())
        self.facts[name] = {"length": len(whole), "width": width}


def shortened(text: str) -> str:
    """Somebody else's text in one line, whole unless it is very long, and fit to be written."""
    text = writable(text).replace("\n", " ").replace("\r", " ")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def pack_points(blocks: Blocks, radius: NDArray[np.float64], turn: NDArray[np.float64], curved: bool) -> dict[str, Any]:
    """Add points, their radii in units of the curvature."""
    reach = float(radius.max()) or 1.0
    # Distances below 1 look flat: there the picture is only as large as they are.
    resolution = min(1.0, reach) * (1e-6 if len(radius) <= FEW else 1e-4)
    radius_bits = min(_RADIUS_BITS, math.ceil(math.log2(reach / resolution)))
    around = 2 * math.pi * (math.sinh(reach) if curved else reach)
    turn_bits = min(_TURN_BITS, math.ceil(math.log2(around / resolution)))
    step = reach / (2**radius_bits - 1)
    blocks.add_numbers("radius", np.rint(radius / step), radius_bits)
    blocks.add_numbers("turn", np.rint(turn * 2**turn_bits) % 2**turn_bits, turn_bits)
    return {"radius": {"step": step}, "turn": {"bits": turn_bits}}


def pack_sigma(blocks: Blocks, sigma: NDArray[np.float64]) -> dict[str, float]:
    """Add standard deviations, in units of the curvature, on a scale of equal ratios."""
    if not bool((np.isfinite(sigma) & (sigma > 0)).all()):
        raise CurvaeError("standard deviations must be positive and finite; leave sigma out where there is none")
    bits = 16 if len(sigma) <= FEW else 8
    low, high = math.log(sigma.min()), math.log(sigma.max())
    step = (high - low) / (2**bits - 1)
    blocks.add_numbers("sigma", np.rint((np.log(sigma) - low) / (step or 1.0)), bits)
    return {"low": low, "step": step}


def pack_sizes(blocks: Blocks, sizes: NDArray[np.float64]) -> bool:
    """Add how large points are drawn, on a scale of 128 levels from the smallest to the largest."""
    if not bool(np.isfinite(sizes).all()):
        raise CurvaeError("sizes must be finite; leave them out where there are none")
    low, high = float(sizes.min()), float(sizes.max())
    blocks.add_numbers("size", np.rint(127 * (sizes - low) / ((high - low) or 1.0)), 7)
    return high > low


def pack_column(blocks: Blocks, block: str, name: str, values: ArrayLike, count: int) -> dict[str, Any]:
    """Add a column to colour by: 0 for no category and k+1 for the category k, or the first bits of float32 numbers."""
    found = levels(values, count)
    if isinstance(found, Levels):
        blocks.add_numbers(block, found.codes + 1, max(1, len(found.texts).bit_length()))
        return {
            "name": name,
            "kind": "levels",
            "texts": [*map(shortened, found.texts)],
            "shown": [*map(int, found.shown)],
        }
    numbers = _pack_floats(blocks, block, found)
    return {"name": name, "kind": "numbers", "low": float(np.nanmin(numbers)), "high": float(np.nanmax(numbers))}


def _pack_floats(blocks: Blocks, block: str, values: ArrayLike) -> NDArray[np.float32]:
    """Add the first bits of float32 numbers; returns these."""
    numbers = np.clip(np.asarray(values), -_HUGE, _HUGE).astype(np.float32)
    bits = 32 if len(numbers) <= FEW else 24
    blocks.add_numbers(block, numbers.view(np.uint32) >> (32 - bits), bits)
    return numbers


def pack_expected(blocks: Blocks, expected: Mapping[str, tuple[ArrayLike, ArrayLike, float]]) -> list[dict[str, Any]]:
    """Add what a model expects in columns at every point, and the standard deviation of that."""
    for k, (values, deviations, _) in enumerate(expected.values()):
        _pack_floats(blocks, f"expected{k}", values)
        _pack_floats(blocks, f"deviation{k}", deviations)
    return [{"name": shortened(name), "unit": float(unit)} for name, (_, _, unit) in expected.items()]


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
