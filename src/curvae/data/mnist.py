"""The MNIST digits, and other images in the same file format."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import CurvaeError
from . import memory
from .dataset import Dataset
from .files import BROKEN_GZIP, fetch, open_file, places
from .images import raw_images
from .raw import RawData

__all__ = ["Split", "has_mnist", "mnist", "read_idx", "read_mnist"]

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
