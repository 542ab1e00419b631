"""Matrices without column names: .npy, scipy sparse .npz, Matrix Market. Nothing is ever unpickled.

Matrix Market files (Boisvert, Pozo, Remington, 1996, The Matrix Market exchange formats) are read by `scipy.io.mmread`.
Lines are checked before, for it ignores whatever follows a number (1,5 and 1.5D3 would be 1 and 1.5), and crashes the
interpreter on NUL bytes and on a number that is cut off at the end of the file.
"""

from __future__ import annotations

import math
import os
import re
import struct
import warnings
import zipfile
from collections.abc import Iterator
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.sparse import csr_array, issparse, load_npz

from ..errors import CurvaeError
from . import memory
from .columns import RawData
from .dataset import Column, Dataset, NumberColumns, PixelNames, as_matrix, feature_names
from .files import BROKEN_GZIP, Messages, count, fetch, one_line, open_file, places, quoted, require_file
from .text_tables import NUMBER

__all__ = [
    "Split",
    "has_mnist",
    "map_npy",
    "mnist",
    "raw_images",
    "raw_matrix",
    "read_folder",
    "read_idx",
    "read_mnist",
    "read_npy",
    "read_sparse",
    "read_sparse_matrix",
    "unreadable",
]


# Grey images from an array, from a folder of image files, or in the file format of the MNIST digits.

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
    width, height = _load_image(folder, names[0]).size
    memory.require(4 * len(names) * width * height, f"{folder.name} ({len(names):,} images of {width} × {height})")
    pixels = np.empty((len(names), height, width), dtype=np.float32)
    coloured = 0
    for place, name in enumerate(names):
        image = _load_image(folder, name)
        if image.size != (width, height):
            raise CurvaeError(
                f"images of different sizes in {folder}: {names[0]} is {width} × {height} and "
                f"{name} {image.width} × {image.height} pixels; resize them to one size"
            )
        pixels[place], colour = _grey(image)
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


def _load_image(folder: Path, name: str) -> Image.Image:
    require_file(folder / name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(folder / name, formats=_FORMATS)
        with image:
            image.load()
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise CurvaeError(
            f"{name} unpacks to more than {Image.MAX_IMAGE_PIXELS or 0:,} pixels; shrink or remove it"
        ) from error
    except (OSError, ValueError, SyntaxError, IndexError, struct.error) as error:
        raise CurvaeError(f"{name} cannot be read as an image: {one_line(error)}; repair or remove it") from error
    return image


def _grey(image: Image.Image) -> tuple[NDArray[np.float32], bool]:
    """Convert an image to grey levels from 0 to 1, (height, width); also return whether it was in colour."""
    if image.mode.startswith("I"):
        return np.divide(np.asarray(image), 65535, dtype=np.float32, casting="unsafe"), False
    if image.mode in _GREY_MODES:
        return np.divide(np.asarray(image.convert("L")), 255, dtype=np.float32), False
    # A palette may hold transparency.
    colours = (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")
    red, green, blue = np.moveaxis(np.asarray(colours), 2, 0)
    coloured = bool(((red != green) | (red != blue)).any())
    return np.divide(np.asarray(colours.convert("L")), 255, dtype=np.float32), coloured


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
    return any(_find_idx(folder, name.removesuffix(".gz")) is not None for name in _CHECKSUMS)


def read_mnist(split: Split, folder: Path | None = None) -> RawData:
    """Read the digits; see `mnist`."""
    if split not in _PREFIXES:
        raise CurvaeError(f"split is {split!r}; use one of {', '.join(_PREFIXES)}")
    if folder is None:
        names = [f"{prefix}-{kind}" for prefix in _PREFIXES[split] for kind in _KINDS]
        # A download that broke off leaves only some of the files.
        whole = (place for place in places("mnist") if all(_find_idx(place, name) is not None for name in names))
        folder = next(whole, None) or fetch("mnist", _ADDRESS, _CHECKSUMS)
    images, labels = [], []
    for prefix in _PREFIXES[split]:
        pair = [_require_idx(folder, f"{prefix}-{kind}") for kind in _KINDS]
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


def _find_idx(folder: Path, name: str) -> Path | None:
    """Find an IDX file, gzipped or not."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _require_idx(folder: Path, name: str) -> Path:
    if (path := _find_idx(folder, name)) is None:
        raise CurvaeError(f"no {name} or {name}.gz in {folder.name}; put all MNIST files into one folder")
    return path


_COLUMN = 500  # bytes for the name and the mean of a column


def raw_matrix(source: str, x: Any) -> RawData:
    """Take a matrix, (rows, features); its columns are named x1, x2, …"""
    if issparse(x):  # the shape of a sparse matrix may be huge although it stores little
        rows, columns = x.shape
        memory.require(8 * rows + _COLUMN * columns, f"{source} ({rows:,} × {columns:,})")
    matrix = as_matrix(x, source)
    return RawData(source, "matrix", matrix, tuple(Column(name) for name in feature_names(matrix.shape[1])))


def read_npy(path: Path) -> RawData:
    """Read a .npy array, (rows, features), or (rows, height, width) for images."""
    array = map_npy(path)
    memory.require(array.size * 8 + array.nbytes, f"{path.name} ({' × '.join(f'{n:,}' for n in array.shape)})")
    array = np.array(array)  # read it now, since the file may change
    return raw_matrix(path.name, array) if array.ndim == 2 else raw_images(path.name, array)


def map_npy(path: Path) -> Any:
    """A .npy array of two or three dimensions, mapped into memory."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a broken file can make the reader raise anything
        raise unreadable(path, "a .npy array of numbers", error) from error
    if array.ndim not in (2, 3):
        raise CurvaeError(
            f"{path.name} has shape {array.shape}; give rows × features, or rows × height × width for grey images"
        )
    return array


def read_sparse_matrix(path: Path) -> RawData:
    """Read a sparse matrix from a file, (rows, features)."""
    return raw_matrix(path.name, read_sparse(path))


def read_sparse(path: Path) -> Any:
    """Read a matrix from a file of `scipy.sparse.save_npz` or a Matrix Market file."""
    packed = path.suffix.lower() == ".npz"
    try:
        return _load_npz(path) if packed else read_matrix_market(path)
    except CurvaeError:
        raise
    except Exception as error:  # a broken file can make the reader raise anything
        dense = "a matrix of scipy.sparse.save_npz (for a dense one use numpy.save)"
        raise unreadable(path, dense if packed else "Matrix Market", error) from error


def _load_npz(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        memory.require(2 * sum(member.file_size for member in archive.infolist()), path.name)
    matrix = load_npz(path)
    if matrix.format in ("csr", "csc", "bsr"):
        # scipy does not check indices, and an index out of range would read foreign memory.
        matrix.check_format(full_check=True)
    return matrix


def unreadable(path: Path, what: str, error: Exception) -> CurvaeError:
    """What to say of a file that cannot be read as what it should be."""
    return CurvaeError(f"{path.name} cannot be read as {what}: {one_line(error)}; save it again")


def read_matrix_market(path: Path) -> csr_array:
    """Read a Matrix Market file, dense or sparse, as a sparse matrix."""
    from scipy.io import mminfo, mmread  # takes long to import

    with open_file(path) as stream:
        header = _header(stream)
        rows, columns, entries, layout, field, symmetry = mminfo(BytesIO(header))
        if field == "complex" or symmetry == "hermitian":
            raise CurvaeError(f"{path.name} holds {field} {symmetry} numbers; give real ones")
        if symmetry != "general" and rows != columns:
            raise CurvaeError(
                f"{path.name} is {symmetry} and {rows:,} × {columns:,}, which is not square; correct its sizes"
            )
        if layout == "array" and symmetry != "general":  # one half and, unless it is zero, the diagonal
            entries = rows * (rows + (1 if symmetry == "symmetric" else -1)) // 2
        size = 24 * rows * columns if layout == "array" else 8 * rows + 72 * entries
        memory.require(size, f"{path.name} ({rows:,} × {columns:,}, {entries:,} entries)")
        matrix = csr_array(mmread(_Stream(header, stream, _line(layout, field))))
    if symmetry == "skew-symmetric" and matrix.diagonal().any():
        raise ValueError("the diagonal of a skew-symmetric matrix must be 0")
    return matrix


def _header(stream: IO[bytes]) -> bytes:
    """Take the banner, the comments and the line of sizes off a stream."""
    lines = []
    for line in stream:
        lines.append(line)
        if line.strip() and not line.startswith(b"%"):
            break
    return b"".join(lines)


def _line(layout: str, field: str) -> str:
    """The pattern of a line with one entry."""
    value = r"-?\d+" if "integer" in field else rf"{NUMBER}|-?[nN]a[nN]"
    fields = [*([r"\d+"] * 2 if layout == "coordinate" else []), *([] if field == "pattern" else [f"(?:{value})"])]
    return r"[ \t]+".join(fields)


class _Stream:
    """The stream that scipy reads: the header, then lines that match a pattern, each with its end."""

    def __init__(self, header: bytes, body: IO[bytes], line: str) -> None:
        self._pieces = chain([header], self._checked(body, line))

    def read(self, size: int) -> bytes:
        """The next bytes, more than `size` if lines are longer."""
        return next(self._pieces, b"")

    @staticmethod
    def _checked(body: IO[bytes], line: str) -> Iterator[bytes]:
        pattern = re.compile(rf"(?>[ \t]*(?:{line})?[ \t\r]*\n)*+".encode())
        while piece := b"".join(body.readlines(2**16)):
            piece = piece if piece.endswith(b"\n") else piece + b"\n"
            matched = pattern.match(piece)
            if matched is not None and matched.end() < len(piece):
                wrong = piece[matched.end() :].split(b"\n", 1)[0].decode(errors="replace")
                raise ValueError(f"{wrong[:40]!r} is not a line of this format")
            yield piece
