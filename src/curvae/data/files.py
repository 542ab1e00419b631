"""Open files, find data sets on disk or download them; words of messages about files."""

from __future__ import annotations

import difflib
import errno
import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..errors import CurvaeError, require
from ..settings.factors import NAME

__all__ = [
    "BROKEN_GZIP",
    "Messages",
    "count",
    "decimal",
    "fetch",
    "guard",
    "is_embedding",
    "listing",
    "not_found",
    "one_line",
    "open_file",
    "opened_parquet",
    "parquet_batches",
    "places",
    "quoted",
    "refuse_dangling",
    "require_file",
    "suggest_path",
    "unguard",
]


# Notes and warnings about data while it is read, and helpers to write them.


@dataclass
class Messages:
    """Sentences about data: `notes` say what was done, `warnings` what looks wrong and how to fix it."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)


def listing(items: Iterable[str], limit: int = 5) -> str:
    """List the first items in one line and count the rest.

    Example:
        >>> listing(["a", "b", "c"], limit=2)
        'a, b and 1 more'
    """
    items = list(items)
    rest = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {rest} more" if rest > 0 else "")


def quoted(names: Iterable[str]) -> str:
    """List the first names in quotes, always on one line, and count the rest."""
    return listing([repr(str(name)) for name in names])


def decimal(number: float, places: int = 2) -> str:
    """Write a number for people: with a minus sign, which is longer than a hyphen, and zero without a sign.

    Example:
        >>> decimal(-6.5), decimal(-0.001), decimal(0.25, 1)
        ('−6.50', '0.00', '0.2')
    """
    text = f"{number:.{places}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")


def one_line(error: BaseException) -> str:
    """Return the message of an exception without line breaks."""
    return " ".join(str(error).split())


def count(number: int, thing: str) -> str:
    """Write a number with its noun in singular or plural.

    Example:
        >>> count(1, "row"), count(2, "row")
        ('1 row', '2 rows')
    """
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)  # what reading a broken gzip file raises


# What a path may lead to instead of a file; reading some of these never ends.
_OTHERS = {
    stat.S_IFDIR: "a folder; give a file",
    stat.S_IFIFO: "a pipe; save what comes through it as a file and give that",
    stat.S_IFSOCK: "a socket; give a file",
    stat.S_IFCHR: "a device; give a file",
    stat.S_IFBLK: "a device; give a file",
}


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


def require_file(path: Path, what: str = "") -> None:
    """Raise unless a path leads to a regular file.

    Where nothing is, the error says that there is no `what`. Without that a path that does not exist raises
    `FileNotFoundError`, so that the caller can say what is expected there.
    """
    refuse_dangling(path)
    if what and not path.exists():
        raise CurvaeError(f"there is no {what} {path}; check the name")
    if (other := _OTHERS.get(stat.S_IFMT(path.stat().st_mode))) is not None:
        raise CurvaeError(f"{path} is {other}")


def not_found(path: Path, known: Iterable[str], others: str) -> CurvaeError:
    """Make the error about a file that does not exist, with names like its own: of files beside it, and known ones.

    `others` says what else can be given; it begins with a small letter.
    """
    return CurvaeError(f"there is no file {path}; {suggest_path(path, others, known)}")


def suggest_path(path: Path, others: str, known: Iterable[str] = ()) -> str:
    """Say what to do about a path that leads nowhere: names like its own, if there are some, and then the `others`."""
    try:
        beside = [file.name for file in path.parent.iterdir()]
    except OSError:
        beside = []
    near = difflib.get_close_matches(path.name, [*beside, *known])
    return f"did you mean {quoted(near)}? {others[0].upper()}{others[1:]}" if near else others


@contextmanager
def open_file(path: Path, mode: str = "rb", **options: Any) -> Iterator[IO[Any]]:
    """Open a file for reading; decompress it if its name ends in .gz, and raise if it was packed incompletely."""
    require_file(path)
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, mode, **options) as stream:
            yield stream
    except BROKEN_GZIP as error:
        why = f"not a complete gzip file ({one_line(error)})"
        raise CurvaeError(f"{path.name} cannot be read: {why}; pack it again") from error


@contextmanager
def opened_parquet(path: Path, **how: Any) -> Iterator[Any]:
    """Open a `pyarrow.parquet.ParquetFile`, which takes further arguments, and turn its errors into ours."""
    arrow = require("pyarrow", f"{path.name} needs pyarrow to be read", "parquet")
    try:
        with arrow.parquet.ParquetFile(path, **how) as file:
            yield file
    except (arrow.ArrowException, OSError) as error:
        raise CurvaeError(f"{path.name} cannot be read as Parquet: {one_line(error)}; write it again") from error
    finally:
        arrow.default_memory_pool().release_unused()  # what Arrow would keep for the next file


def parquet_batches(file: Any, rows: int, columns: list[str] | None = None) -> Iterator[Any]:
    """Read batches of so many rows from an opened Parquet file, one row group after the other.

    Asked for all row groups at once, Arrow would keep in memory what it read of each.
    """
    for group in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)


def places(name: str) -> list[Path]:
    """List the folders in which to look for a data set: under CURVAE_DATA, then in the user's cache."""
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
    absent = f"{what} is neither in CURVAE_DATA nor in {folder.parent}"
    pooch = require("pooch", f"{absent} and needs pooch to be downloaded")
    try:
        for file, checksum in checksums.items():
            pooch.retrieve(address + file, known_hash=f"sha256:{checksum}", fname=file, path=folder)
    except (OSError, ValueError) as error:
        raise CurvaeError(
            f"{what} could not be downloaded from {address} ({one_line(error)}); put {listing(checksums)} into a "
            f"folder {name!r} and set CURVAE_DATA to the folder that holds it"
        ) from error
    return folder


# Guard texts in CSV files that a spreadsheet would run as formulas, by an apostrophe in front.
#
# A text is guarded if it starts like a formula, possibly after apostrophes. Writing adds one apostrophe and reading
# removes one, so that every text comes back unchanged. Numbers such as −1 are not formulas and stay as they are.

_FORMULA = re.compile(
    r"(?!'*\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*\Z)"  # not a number
    r"'*(?:[\t\r\n]|\s*[=+\-@])"
)


def guard(text: str) -> str:
    """Write a text for a CSV file.

    Example:
        >>> [guard(text) for text in ("=1+1", "'=1+1", "-1.5", "T cell")]
        ["'=1+1", "''=1+1", '-1.5', 'T cell']
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unguard(text: str) -> str:
    """Read a text that `guard` wrote."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def is_embedding(names: Sequence[str]) -> bool:
    """Return whether these are the columns of an `embedding.csv`, in which texts are guarded."""
    last = re.fullmatch(rf"({NAME}_)?(sigma|map_2)|spread", names[-1])
    return last is not None and {"tangent_1", "radius"} <= set(names) and list(names[:3]) == ["id", "label", "split"]
