"""Run folders: where they are made, and the maps and reports in them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data.files import refuse_dangling
from ..errors import CurvaeError, FixableError
from ..report import Picture, Report, Section, Tone
from ..settings.factors import LETTERS
from ..training.map_tables import embedding_path, write_tables
from ..training.storage import CONFIG, is_empty, locked, replacing, versions, write_bytes, write_text

__all__ = [
    "new_folder",
    "output_file",
    "output_files",
    "today",
    "write_array",
    "write_map",
    "write_report",
]

# What a run holds; `force` removes these and nothing else, the mark of a run last.
_OWN = (
    "checkpoint",
    "splits",
    "*.part",
    "model.safetensors",
    "embedding.safetensors",
    "metrics.jsonl",
    "embedding.csv",
    "embedding.parquet",
    "labels.csv",
    "reference.csv",
    "links.csv",
    "comparison.json",
    "map.png",
    "curves.png",
    "report.html",
    CONFIG,
)


@contextmanager
def new_folder(asked: Path | None, name: str, force: bool, mark: str = CONFIG) -> Iterator[Path]:
    """Make a folder for a run, and lock it within the context: the one asked for, or the next `runs/<name>-<n>`.

    A folder that holds files is emptied only with `force`, and only if it has the file `mark`, which runs write.
    """
    with _making(asked or Path("runs")):
        if asked is not None:
            refuse_dangling(asked)
            if asked.exists() and not asked.is_dir():
                raise CurvaeError(f"{asked} is a file; give a folder for the run")
        folder = _numbered(name) if asked is None else asked
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        with _making(folder):
            if not is_empty(folder):
                _clear(folder, force, mark)
        yield folder


@contextmanager
def _making(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CurvaeError(
            f"cannot make the folder {folder}: {error.strerror}; choose another with `output=…`"
        ) from error


def _numbered(name: str) -> Path:
    """Make the next folder of this name that does not exist yet."""
    Path("runs").mkdir(exist_ok=True)
    for n in count(1):
        folder = Path("runs") / f"{name}-{n}"
        with suppress(FileExistsError):
            folder.mkdir()
            break
    return folder


def _clear(folder: Path, force: bool, mark: str) -> None:
    if not (folder / mark).exists():
        raise CurvaeError(
            f"{folder} exists and holds something else (there is no {mark}): it is not touched; choose another folder"
        )
    if not force and mark == CONFIG and not (folder / "report.html").exists():
        raise FixableError(
            f"{folder} holds an unfinished run",
            [[("resume", ""), ("force", "")]],
            "continue it with `resume=True`, choose another folder, or overwrite it with `force=True`",
        )
    if not force:
        raise CurvaeError(f"{folder} exists; choose another folder, or overwrite it with `force=True`")
    for pattern in (*(f"map-{letter}[0-9]*.png" for letter in LETTERS), *_OWN):
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def output_file(
    asked: Path | None, default: Path, force: bool, endings: Collection[str] = (), option: str = "output"
) -> Path:
    """Return the file asked for, or the default; raise if it exists, unless with `force`.

    The ending decides what is written, so it must be one of `endings`, or by default that of the default.
    """
    path = default if asked is None else asked
    if path.suffix.lower() not in (endings := endings or (default.suffix,)):
        raise CurvaeError(f"{path} should end in {', '.join(endings)}; choose such a name with `{option}=…`")
    refuse_dangling(path)
    if path.exists() and not force:
        raise CurvaeError(f"{path} exists; choose another name with `{option}=…`, or overwrite it with `force=True`")
    return path


def output_files(asked: Path | None, default: str, names: Sequence[str], force: bool) -> list[Path]:
    """Return files of these names in the folder asked for, or the default; raise as `output_file` does."""
    folder = Path(default) if asked is None else asked
    if folder.exists() and not folder.is_dir():
        raise CurvaeError(f"{folder} is a file; give a folder with `output=…`")
    return [output_file(folder / name, Path(name), force) for name in names]


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def write_report(
    path: Path,
    title: str,
    verdict: str,
    tone: Tone,
    warnings: Sequence[str],
    sections: Sequence[Section],
    seed: int,
    command: str,
    following: str = "",
    words: Callable[[str], str] = str,
) -> None:
    """Write the page that tells what was found; `command` makes it again, and `following` is to be run next.

    Parameters that warnings and paragraphs name are put into the words of whoever started the run.
    """
    warnings = [words(text) for text in warnings]
    sections = [replace(section, text=[words(text) for text in section.text]) for section in sections]
    report = Report(title, verdict, tone, warnings, sections, command, versions(), seed, today(), following)
    write_text(path, report.html())


def write_map(folder: Path, tables: Iterable[pd.DataFrame], rows: int, pictures: Mapping[str, Picture]) -> None:
    """Write the table of a map of so many rows, in pieces, and pictures by the names of their files."""
    write_tables(embedding_path(folder, rows), tables)
    for name, picture in pictures.items():
        write_bytes(folder / f"{name}.png", picture.png)


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array as a `.npy` file, atomically."""
    with replacing(path) as file:
        np.save(file, array, allow_pickle=False)
