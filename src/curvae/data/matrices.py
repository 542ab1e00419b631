"""Matrices without column names: .npy, scipy sparse .npz, Matrix Market. Nothing is ever unpickled.

Matrix Market files (Boisvert, Pozo, Remington, 1996, The Matrix Market exchange formats) are read by `scipy.io.mmread`.
Lines are checked before, for it ignores whatever follows a number (1,5 and 1.5D3 would be 1 and 1.5), and crashes the
interpreter on NUL bytes and on a number that is cut off at the end of the file.
"""

from __future__ import annotations

import math
import re
import struct
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.sparse import csr_array, issparse, load_npz

from ..errors import CurvaeError, check
from . import memory
from .dataset import Column, Dataset, NumberColumns, PixelNames, as_matrix
from .files import NUMBER, Messages, count, feature_names, fetch, open_file, places, quoted, reading, require_file
from .tables import RawData

__all__ = [
    "Split",
    "mnist",
    "raw_images",
    "raw_matrix",
    "read_folder",
    "read_idx",
    "read_mnist",
    "read_npy",
    "read_sparse",
    "read_sparse_matrix",
]


# Grey images from an array, from a folder of image files, or in the file format of the MNIST digits.


def raw_images(source: str, pixels: NDArray[Any], messages: Messages | None = None) -> RawData:
    """Take images from an array, (rows, height, width); bytes are divided by 255, other values are kept."""
    messages = messages or Messages()
    rows, height, width = pixels.shape
    flat = pixels.reshape(rows, height * width)
    if flat.dtype == np.uint8:
        flat = np.divide(flat, 255, dtype=np.float32)
        messages.note("grey levels from 0 to 255 were divided by 255.")
    return RawData(
        source,
        "images",
        as_matrix(flat, source),
        NumberColumns(PixelNames(height, width)),
        shape=(height, width),
        messages=messages,
    )


def read_folder(folder: Path) -> RawData:
    """Read the MNIST files of a folder, or all image files of the folder and its subfolders, ordered by name.

    Ids are file names relative to the folder. If all images are in subfolders, the subfolders are their labels.
    """
    messages = Messages()
    if _find_idx(folder, [file.removesuffix(".gz") for file in _CHECKSUMS]):
        return read_mnist("all", folder)
    check(
        not ((folder / "config.json").is_file() and (folder / "embedding.csv").is_file()),
        f"{folder} is the folder of a run; give the data that it was trained on, or other data",
    )
    names = _find(folder, messages)
    check(names, f"{folder} contains no images (.png, .jpg, .bmp, .gif) and no MNIST files; give another folder")
    width, height = _load_image(folder, names[0]).size
    memory.require(4 * len(names) * width * height, f"{folder.name} ({len(names):,} images of {width} × {height})")
    pixels = np.empty((len(names), height, width), dtype=np.float32)
    coloured = 0
    for place, name in enumerate(names):
        image = _load_image(folder, name)
        check(
            image.size == (width, height),
            f"images of different sizes in {folder}: {names[0]} is {width} × {height} and "
            f"{name} {image.width} × {image.height} pixels; resize them to one size",
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
    """List the image files of a folder and its subfolders, ordered by name."""
    root, files = folder.resolve(), [path for path in folder.rglob("*") if not path.is_dir()]
    images = [path for path in files if path.suffix.lower() in (".png", ".jpg", ".jpeg", ".bmp", ".gif")]
    if others := sum(not path.name.startswith(".") for path in {*files} - {*images}):
        messages.note(f"left out because they are not images: {count(others, 'file')}.")
    names = [path.relative_to(folder).as_posix() for path in images if path.resolve().is_relative_to(root)]
    if leading_out := {path.relative_to(folder).as_posix() for path in images} - {*names}:
        messages.note(f"links to places outside the folder were left out: {quoted(sorted(leading_out))}.")
    return sorted(names)


def _load_image(folder: Path, name: str) -> Image.Image:
    require_file(folder / name)
    broken = OSError, ValueError, SyntaxError, IndexError, struct.error
    try:
        with reading(name, "an image", *broken, fix="repair or remove it"), warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(folder / name, formats=("PNG", "JPEG", "BMP", "GIF")) as image:
                image.load()
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise CurvaeError(
            f"{name} unpacks to more than {Image.MAX_IMAGE_PIXELS or 0:,} pixels; shrink or remove it"
        ) from error
    return image


def _grey(image: Image.Image) -> tuple[NDArray[np.float32], bool]:
    """Convert an image to grey levels from 0 to 1, (height, width); also return whether it was in colour."""
    if image.mode.startswith("I"):
        return np.divide(np.asarray(image), 65535, dtype=np.float32, casting="unsafe"), False
    if image.mode in ("1", "L", "LA"):
        return np.divide(np.asarray(image.convert("L")), 255, dtype=np.float32), False
    # A palette may hold transparency.
    colours = (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")
    red, green, blue = np.moveaxis(np.asarray(colours), 2, 0)
    coloured = bool(((red != green) | (red != blue)).any())
    return np.divide(np.asarray(colours.convert("L")), 255, dtype=np.float32), coloured


Split: TypeAlias = Literal["train", "test", "all"]

_PREFIXES: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
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


def read_mnist(split: Split, folder: Path | None = None) -> RawData:
    """Read the digits; see `mnist`."""
    check(split in _PREFIXES, f"split is {split!r}; use one of {', '.join(_PREFIXES)}")
    names = [f"{prefix}-{kind}" for prefix in _PREFIXES[split] for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    if folder is None:
        # A download that broke off leaves only some of the files.
        whole = (place for place in places("mnist") if len(_find_idx(place, names)) == len(names))
        folder = next(whole, None) or fetch("mnist", "https://ossci-datasets.s3.amazonaws.com/mnist/", _CHECKSUMS)
    found = _find_idx(folder, names)
    if lacking := [name for name in names if name not in found]:
        raise CurvaeError(f"no {lacking[0]} or {lacking[0]}.gz in {folder.name}; put all MNIST files into one folder")
    paths = [found[name] for name in names]
    images, labels = [read_idx(path, 3) for path in paths[::2]], [read_idx(path, 1) for path in paths[1::2]]
    for path, other, pictures, digits in zip(paths[::2], paths[1::2], images, labels, strict=True):
        check(
            len(pictures) == len(digits),
            f"{path.name} has {len(pictures):,} images and {other.name} {len(digits):,} labels; the two do not belong "
            "together",
        )
    check(
        len({part.shape[1:] for part in images}) == 1,
        f"train and test images in {folder.name} differ in size: they do not belong together",
    )
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
    with open_file(path) as stream:
        head = stream.read(4 + 4 * dimensions)
        check(
            len(head) == 4 + 4 * dimensions and head[:4] == bytes([0, 0, 8, dimensions]),
            f"{path.name} does not start as IDX bytes of {dimensions} dimensions (it starts with "
            f"{head[:4].hex(' ') or 'nothing'}); get the file again",
        )
        shape = tuple(int(n) for n in np.frombuffer(head, dtype=">u4", offset=4))
        size = math.prod(shape)
        memory.require(size, path.name)
        body = stream.read(size + 1)
    state = "ends too early" if len(body) < size else "is longer than it says"
    check(len(body) == size, f"{path.name} {state}: its header promises {size:,} values; get the file again")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _find_idx(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Find the IDX files of a folder, gzipped or not, by name."""
    paths = ((name, folder / file) for name in names for file in (f"{name}.gz", name))
    return {name: path for name, path in paths if path.is_file()}


def raw_matrix(source: str, x: Any) -> RawData:
    """Take a matrix, (rows, features); its columns are named x1, x2, …"""
    if issparse(x):  # the shape of a sparse matrix may be huge although it stores little
        rows, columns = x.shape
        # A name and a mean take 500 bytes a column.
        memory.require(8 * rows + 500 * columns, f"{source} ({rows:,} × {columns:,})")
    matrix = as_matrix(x, source)
    return RawData(source, "matrix", matrix, tuple(Column(name) for name in feature_names(matrix.shape[1])))


def read_npy(path: Path) -> RawData:
    """Read a .npy array, (rows, features), or (rows, height, width) for images."""
    with reading(path.name, "a .npy array of numbers", Exception):  # a broken file can make the reader raise anything
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    check(
        array.ndim in (2, 3),
        f"{path.name} has shape {array.shape}; give rows × features, or rows × height × width for grey images",
    )
    memory.require(array.size * 8 + array.nbytes, f"{path.name} ({' × '.join(f'{n:,}' for n in array.shape)})")
    array = np.array(array)  # read it now, since the file may change
    return raw_matrix(path.name, array) if array.ndim == 2 else raw_images(path.name, array)


def read_sparse_matrix(path: Path) -> RawData:
    """Read a sparse matrix from a file, (rows, features)."""
    return raw_matrix(path.name, read_sparse(path))


def read_sparse(path: Path) -> Any:
    """Read a matrix from a file of `scipy.sparse.save_npz` or a Matrix Market file."""
    packed = path.suffix.lower() == ".npz"
    what = "a matrix of scipy.sparse.save_npz (for a dense one use numpy.save)" if packed else "Matrix Market"
    with reading(path.name, what, Exception):  # a broken file can make the reader raise anything
        if not packed:
            return read_matrix_market(path)
        with zipfile.ZipFile(path) as archive:
            memory.require(2 * sum(member.file_size for member in archive.infolist()), path.name)
        matrix = load_npz(path)
        if matrix.format in ("csr", "csc", "bsr"):
            # scipy does not check indices, and an index out of range would read foreign memory.
            matrix.check_format(full_check=True)
    return matrix


def read_matrix_market(path: Path) -> csr_array:
    """Read a Matrix Market file, dense or sparse, as a sparse matrix."""
    from scipy.io import mminfo, mmread  # takes long to import

    with open_file(path) as stream:
        lines: list[bytes] = []  # the banner, the comments and the line of sizes
        while not lines or (lines[-1] and (not lines[-1].strip() or lines[-1].startswith(b"%"))):
            lines.append(stream.readline())
        header = b"".join(lines)
        rows, columns, entries, layout, field, symmetry = mminfo(BytesIO(header))
        check(
            field != "complex" and symmetry != "hermitian",
            f"{path.name} holds {field} {symmetry} numbers; give real ones",
        )
        check(
            symmetry == "general" or rows == columns,
            f"{path.name} is {symmetry} and {rows:,} × {columns:,}, which is not square; correct its sizes",
        )
        if layout == "array" and symmetry != "general":  # one half and, unless it is zero, the diagonal
            entries = rows * (rows + (1 if symmetry == "symmetric" else -1)) // 2
        size = 24 * rows * columns if layout == "array" else 8 * rows + 72 * entries
        memory.require(size, f"{path.name} ({rows:,} × {columns:,}, {entries:,} entries)")
        value = r"-?\d+" if "integer" in field else rf"{NUMBER}|-?[nN]a[nN]"
        places = [r"\d+"] * 2 if layout == "coordinate" else []
        line = r"[ \t]+".join([*places, *([] if field == "pattern" else [f"(?:{value})"])])
        pieces = chain([header], _checked_lines(stream, line))
        matrix = csr_array(mmread(SimpleNamespace(read=lambda size: next(pieces, b""))))
    if symmetry == "skew-symmetric" and matrix.diagonal().any():
        raise ValueError("the diagonal of a skew-symmetric matrix must be 0")
    return matrix


def _checked_lines(body: IO[bytes], line: str) -> Iterator[bytes]:
    """Read pieces of whole lines, and raise for one that does not match the pattern of a line."""
    pattern = re.compile(rf"(?>[ \t]*(?:{line})?[ \t\r]*\n)*+".encode())
    while piece := b"".join(body.readlines(2**16)):
        piece = piece if piece.endswith(b"\n") else piece + b"\n"
        matched = pattern.match(piece)
        if matched is not None and matched.end() < len(piece):
            wrong = piece[matched.end() :].split(b"\n", 1)[0].decode(errors="replace")
            raise ValueError(f"{wrong[:40]!r} is not a line of this format")
        yield piece
