"""Grey images from an array, from a folder of image files, or in the file format of the MNIST digits."""

from __future__ import annotations

import math
import os
import struct
import warnings
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import CurvaeError
from . import memory
from .dataset import Dataset, as_matrix
from .files import BROKEN_GZIP, fetch, open_file, places, require_file
from .messages import Messages, count, one_line, quoted
from .raw import RawData
from .schema import NumberColumns, PixelNames

__all__ = ["Split", "has_mnist", "mnist", "raw_images", "read_folder", "read_idx", "read_mnist"]

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
    if (folder / "config.json").is_file() and (folder / "embedding.csv").is_file():
        raise CurvaeError(f"{folder} is the folder of a run; give the data that it was trained on, or other data")
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
                f"images of different sizes in {folder}: {names[0]} is {width} × {height} and "
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


Split: TypeAlias = Literal["train", "test", "all"]

_PREFIXES: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
_KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")
_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
# SHA-256 of the packed files as published.
_CHECKSUMS = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}


def mnist(split: Split = "train", directory: str | Path | None = None) -> Dataset:
    """Load the handwritten digits of LeCun, Cortes and Burges: grey images of 28×28 from 0 to 1, labelled by digit.

    Arguments:
        split: "train" (60,000 rows), "test" (10,000) or "all", train before test.
        directory: folder with the IDX files, gzipped or not; by default $CURVAE_DATA/mnist, then the user's cache. If
            neither has the files, they are downloaded.
    """
    return read_mnist(split, None if directory is None else Path(directory)).finish(None, "error")[0]


def has_mnist(folder: Path) -> bool:
    """Whether a folder contains any of the IDX files."""
    return any(_file(folder, name.removesuffix(".gz")) is not None for name in _CHECKSUMS)


def read_mnist(split: Split, folder: Path | None = None) -> RawData:
    """Read the digits; see `mnist`."""
    if split not in _PREFIXES:
        raise CurvaeError(f"split is {split!r}; use one of {', '.join(_PREFIXES)}")
    if folder is None:
        names = [f"{prefix}-{kind}" for prefix in _PREFIXES[split] for kind in _KINDS]
        # A download that broke off leaves only some of the files.
        whole = (place for place in places("mnist") if all(_file(place, name) is not None for name in names))
        folder = next(whole, None) or fetch("mnist", _ADDRESS, _CHECKSUMS)
    images, labels = [], []
    for prefix in _PREFIXES[split]:
        pair = [_require_file(folder, f"{prefix}-{kind}") for kind in _KINDS]
        images.append(read_idx(pair[0], dimensions=3))
        labels.append(read_idx(pair[1], dimensions=1))
        if len(images[-1]) != len(labels[-1]):
            raise CurvaeError(
                f"{pair[0].name} has {len(images[-1]):,} images and {pair[1].name} {len(labels[-1]):,} labels; "
                "the two do not belong together"
            )
    if len({part.shape[1:] for part in images}) > 1:
        raise CurvaeError(f"train and test images in {folder.name} differ in size: they do not belong together")
    pixels = np.concatenate(images) if len(images) > 1 else images[0]
    memory.require(4 * pixels.size, f"{folder.name} ({len(pixels):,} images)")
    raw = raw_images("mnist", pixels)
    raw.labels, raw.label_name = np.concatenate(labels).astype(np.str_), "digit"
    return raw


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an IDX file of bytes: two zeros, the type (8), the number of dimensions, the sizes (big-endian), the values.

    Arguments:
        path: the file, gzipped if its name ends in .gz.
        dimensions: number of dimensions that it must have.
    """
    try:
        with open_file(path) as stream:
            head = stream.read(4 + 4 * dimensions)
            if len(head) < 4 + 4 * dimensions or head[:4] != bytes([0, 0, 8, dimensions]):
                raise CurvaeError(
                    f"{path.name} does not start as IDX bytes of {dimensions} dimensions (it starts with "
                    f"{head[:4].hex(' ') or 'nothing'}); get the file again"
                )
            shape = tuple(int(n) for n in np.frombuffer(head, dtype=">u4", offset=4))
            size = math.prod(shape)
            memory.require(size, path.name)
            body = stream.read(size + 1)
    except BROKEN_GZIP as error:
        raise CurvaeError(f"{path.name} is not a complete gzip file ({error}); get the file again") from error
    if len(body) != size:
        state = "ends too early" if len(body) < size else "is longer than it says"
        raise CurvaeError(f"{path.name} {state}: its header promises {size:,} values; get the file again")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _require_file(folder: Path, name: str) -> Path:
    if (path := _file(folder, name)) is None:
        raise CurvaeError(f"no {name} or {name}.gz in {folder.name}; put all MNIST files into one folder")
    return path
