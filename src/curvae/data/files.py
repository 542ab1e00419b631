"""Open files, which may be gzipped; refuse folders, pipes and devices; find data sets on disk, or download them."""

from __future__ import annotations

import difflib
import errno
import gzip
import os
import stat
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from ..errors import CurvaeError
from .messages import listing, one_line, quoted

__all__ = [
    "BROKEN_GZIP",
    "fetch",
    "is_packed",
    "not_found",
    "open_file",
    "places",
    "refuse_dangling",
    "require_file",
]

BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)  # what reading a broken gzip file raises


# What a path may lead to instead of a file; reading some of these never ends.
_OTHERS = (
    (stat.S_ISDIR, "a folder; give a file"),
    (stat.S_ISFIFO, "a pipe; save what comes through it as a file and give that"),
    (stat.S_ISSOCK, "a socket; give a file"),
    (stat.S_ISCHR, "a device; give a file"),
    (stat.S_ISBLK, "a device; give a file"),
)


def refuse_dangling(path: Path) -> None:
    """Raise for a symbolic link that leads nowhere: to something that does not exist, or back to itself."""
    if not path.is_symlink():
        return
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CurvaeError(f"{path} is a loop of symbolic links; fix the link, or give another path") from error
        if not path.exists():
            raise CurvaeError(
                f"{path} is a dangling link to {path.readlink()}; fix the link, or give another path"
            ) from error


def require_file(path: Path) -> None:
    """Raise unless a path leads to a regular file.

    A path that does not exist raises `FileNotFoundError`, so that the caller can say what is expected there.
    """
    refuse_dangling(path)
    mode = path.stat().st_mode
    for is_such, what in _OTHERS:
        if is_such(mode):
            raise CurvaeError(f"{path} is {what}")


def not_found(path: Path, known: Iterable[str], others: str) -> CurvaeError:
    """The error about a file that does not exist, with names like its own: of files beside it, and of what is known.

    `others` says what else can be given; it begins with a small letter.
    """
    return CurvaeError(f"there is no file {path}; {meant(path, others, known)}")


def meant(path: Path, others: str, known: Iterable[str] = ()) -> str:
    """What to do about a path that leads nowhere: names like its own, if there are some, and then the `others`."""
    try:
        beside = [file.name for file in path.parent.iterdir()]
    except OSError:
        beside = []
    near = difflib.get_close_matches(path.name, [*beside, *known])
    return f"did you mean {quoted(near)}? {others[0].upper()}{others[1:]}" if near else others


def is_packed(path: Path) -> bool:
    """Whether the name of a file says that it is gzipped."""
    return path.suffix.lower() == ".gz"


def open_file(path: Path, mode: str = "rb", **options: Any) -> IO[Any]:
    """Open a file for reading; decompress it if its name ends in .gz."""
    require_file(path)
    opener: Any = gzip.open if is_packed(path) else open
    return opener(path, mode, **options)


def places(name: str) -> list[Path]:
    """Folders in which to look for a data set: under CURVAE_DATA, then in the user's cache."""
    data, cache = os.environ.get("CURVAE_DATA"), os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return [*([Path(data, name)] if data else []), Path(cache, "curvae", name)]


def fetch(name: str, address: str, checksums: Mapping[str, str], what: str | None = None) -> Path:
    """Download the files of a data set into the user's cache, where `places` finds them.

    Arguments:
        name: name of the folder.
        address: URL to which the names of the files are appended.
        checksums: SHA-256 of each file, by name.
        what: name of the data set in messages; by default that of the folder.
    """
    what = what or name
    folder = places(name)[-1]
    try:
        import pooch
    except ImportError as error:
        raise CurvaeError(
            f"{what} is neither in CURVAE_DATA nor in {folder.parent}; pip install pooch to download it"
        ) from error
    try:
        for file, checksum in checksums.items():
            pooch.retrieve(address + file, known_hash=f"sha256:{checksum}", fname=file, path=folder)
    except (OSError, ValueError) as error:
        raise CurvaeError(
            f"{what} could not be downloaded from {address} ({one_line(error)}); put {listing(checksums)} into a "
            f"folder {name!r} and set CURVAE_DATA to the folder that holds it"
        ) from error
    return folder
