"""Grey images from an array or from a folder of image files."""

from __future__ import annotations

import os
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import CurvaeError
from . import memory
from .dataset import as_matrix
from .files import require_file
from .messages import Messages, count, one_line, quoted
from .raw import RawData
from .schema import NumberColumns, PixelNames

__all__ = ["raw_images", "read_folder"]

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif"}
_FORMATS = ("PNG", "JPEG", "BMP", "GIF")
_GREY_MODES = ("1", "L", "LA")


def raw_images(source: str, pixels: NDArray[Any], messages: Messages | None = None) -> RawData:
    """Take images from an array, (rows, height, width); bytes are divided by 255, other values are kept."""
    messages = messages or Messages()
    rows, height, width = pixels.shape
    flat = pixels.reshape(rows, height * width)
    if flat.dtype == np.uint8:
        flat = np.divide(flat, 255, dtype=np.float32)
        messages.note("grey levels from 0 to 255 were divided by 255.")
    columns = NumberColumns(PixelNames(height, width))
    return RawData(source, "images", as_matrix(flat, source), columns, shape=(height, width), messages=messages)


def read_folder(folder: Path) -> RawData | None:
    """Read all image files of a folder and its subfolders, ordered by name; return None if there are none.

    Ids are file names relative to the folder. If all images are in subfolders, the subfolders are their labels.
    """
    messages = Messages()
    names = _find(folder, messages)
    if not names:
        return None
    width, height = _size(folder, names[0])
    memory.require(4 * len(names) * width * height, f"{folder.name} ({len(names):,} images of {width} × {height})")
    pixels = np.empty((len(names), height, width), dtype=np.float32)
    coloured = 0
    for place, name in enumerate(names):
        if (size := _size(folder, name)) != (width, height):
            raise CurvaeError(
                f"images of different sizes in {folder.name}: {names[0]} is {width} × {height} and "
                f"{name} {size[0]} × {size[1]} pixels; resize them to one size"
            )
        pixels[place], colour = _grey(folder, name)
        coloured += colour
    messages.note("grey levels of the image files were scaled to 0 to 1.")
    if coloured:
        messages.note(f"turned from colour to grey: {count(coloured, 'image')}.")
    raw = raw_images(folder.name, pixels, messages)
    raw.ids = np.array(names, dtype=np.str_)
    parents = [name.rpartition("/")[0] for name in names]
    if all(parents):
        raw.labels, raw.label_name = np.array(parents, dtype=np.str_), "folder"
    elif any(parents):
        messages.note("some images are in subfolders and some are not, so subfolders are not used as labels.")
    return raw


def _find(folder: Path, messages: Messages) -> list[str]:
    root = folder.resolve()
    names, others, leading_out = [], 0, []
    for parent, _, files in os.walk(folder):
        for file in files:
            path = Path(parent, file)
            name = path.relative_to(folder).as_posix()
            if path.suffix.lower() not in _SUFFIXES:
                others += not file.startswith(".")
            elif not path.resolve().is_relative_to(root):
                leading_out.append(name)
            else:
                names.append(name)
    if others:
        messages.note(f"left out because they are not images: {count(others, 'file')}.")
    if leading_out:
        messages.note(f"links to places outside the folder were left out: {quoted(leading_out)}.")
    return sorted(names)


def _size(folder: Path, name: str) -> tuple[int, int]:
    with _open(folder, name) as image:
        return image.size


def _grey(folder: Path, name: str) -> tuple[NDArray[np.float32], bool]:
    """Read one image with grey levels from 0 to 1, and whether it was in colour."""
    with _open(folder, name) as image:
        try:
            image.load()
        except (OSError, ValueError, SyntaxError, IndexError, struct.error) as error:
            raise _broken(name, error) from error
        if image.mode.startswith("I"):
            return np.divide(np.asarray(image), 65535, dtype=np.float32, casting="unsafe"), False
        if image.mode in _GREY_MODES:
            return np.divide(np.asarray(image.convert("L")), 255, dtype=np.float32), False
        # A palette may hold transparency.
        colours = (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")
        red, green, blue = np.moveaxis(np.asarray(colours), 2, 0)
        coloured = bool(((red != green) | (red != blue)).any())
        return np.divide(np.asarray(colours.convert("L")), 255, dtype=np.float32), coloured


def _open(folder: Path, name: str) -> Image.Image:
    require_file(folder / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            return Image.open(folder / name, formats=_FORMATS)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise CurvaeError(
                f"{name} unpacks to more than {Image.MAX_IMAGE_PIXELS or 0:,} pixels; shrink or remove it"
            ) from error
        except (OSError, ValueError, SyntaxError, struct.error) as error:
            raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> CurvaeError:
    return CurvaeError(f"{name} cannot be read as an image: {one_line(error)}; repair or remove it")
