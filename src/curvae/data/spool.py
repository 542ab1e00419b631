"""Tables on disk: the cells of a table are copied once into a file of numbers, of which any rows can be read.

Columns of numbers are copied as they are, columns of texts as positions in a list of the different texts, and columns
that name rows, labels or groups as texts. What a column holds is assumed from its first rows. If later rows show that
an assumption is wrong, the table is copied again with what is known by then.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ..errors import CurvaeError, check
from .disk import CsrFile, DenseFile, DiskMatrix, DiskTexts, StoredTexts
from .files import (
    UNNAMED,
    Messages,
    NumberFacts,
    ReadAgainError,
    TextTable,
    one_line,
    opened_parquet,
    parquet_batches,
    places,
    texts_of,
)
from .memory import size_text
from .tables import ColumnTexts, Table, decode_texts

__all__ = [
    "ROW_BYTES",
    "Copy",
    "Counter",
    "SpooledTable",
    "Storage",
    "require_room",
    "store_matrix",
    "store_table",
]

Counter: TypeAlias = Callable[[str, int], Callable[[int], None]]
"""takes the name of a task and its rows, and returns what is called with how many more of them are done"""

ROW_BYTES = 400
"""bytes that a row takes in memory besides its values: its id, and its line in the table of the map"""

_TEXT = 100  # bytes of a text in memory; a number takes 16
_CELLS = 1 << 18  # of a piece of a table
_MOST = 100_000  # different texts of a column
_FORMAT = 1  # of copies; those in another one are made again


@dataclass(frozen=True)
class Storage:
    """How much memory the rows of a table may take, and where larger tables are copied to.

    Arguments:
        memory: bytes.
        cache: folder for copies, which stay there and are used again; by default they are in the user's cache until the
            process ends.
        counter: called with the progress of a copy.
    """

    memory: int
    cache: Path | None = None
    counter: Counter = lambda task, rows: lambda more: None


class _ParquetFiles:
    """A Parquet file, or those of a folder in the order of their names; of `wanted` columns, or of all.

    It has the attributes of a `TextTable`.
    """

    def __init__(self, path: Path, wanted: Collection[str] | None, texts: Collection[str]) -> None:
        self.path, self.parts = path, sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        self.rows, self._columns = 0, dict[str, str]()
        for file in self.parts:
            with opened_parquet(file) as opened:
                self.rows += opened.metadata.num_rows
                columns = _parquet_columns(opened.schema_arrow)
            if not self._columns:
                self._columns = {shown: name for shown, name in columns.items() if wanted is None or shown in wanted}
            if absent := [name for name in self._columns if name not in columns]:
                raise CurvaeError(
                    f"{file.name} has no column {absent[0]!r}, which {self.parts[0].name} has; add it, or remove the "
                    "file"
                )
        self.names = list(self._columns)
        self.texts = {name for name in self.names if name in texts or name.startswith(UNNAMED)}

    def pieces(self, cells: int) -> Iterator[tuple[str, int, pd.DataFrame]]:
        """Yield the rows in pieces of so many cells; see `TextTable.pieces`."""
        stored, rows = list(self._columns.values()), max(1, cells // max(1, len(self.names)))
        for file in self.parts:
            first = 0
            with opened_parquet(file, buffer_size=1 << 16) as opened:
                for batch in parquet_batches(opened, rows, stored):
                    frame = batch.to_pandas(ignore_metadata=True)[stored]
                    yield file.name if len(self.parts) > 1 else "", first, frame.set_axis(self.names, axis=1)
                    first += len(frame)


def _parquet_columns(schema: Any) -> dict[str, str]:
    """List the columns as pandas shows them, those of its index first, with their names in the file."""
    index = [name for name in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(name, str)]
    stored = [*index, *(name for name in schema.names if name not in index)]
    return {
        f"{UNNAMED}{i}" if re.fullmatch(r"__index_level_\d+__", name) else name: name for i, name in enumerate(stored)
    }


_Files: TypeAlias = TextTable | _ParquetFiles


# Folders of copies.


class Copy:
    """A copy of some files, which is made unless it is there; other processes wait for it.

    Arguments:
        path: file or folder of the data, by which the copy is called.
        parts: the files.
        storage: where the copy lies; without a cache, in a folder of its own that is removed with this object.
        usable: returns whether a copy that is there has all that is needed.
        write: makes a copy in a folder; where it raises `ReadAgainError`, it starts again.

    Attributes:
        folder: with the copy.
    """

    def __init__(
        self,
        path: Path,
        parts: Iterable[Path],
        storage: Storage,
        usable: Callable[[Path], bool],
        write: Callable[[Path], None],
    ) -> None:
        described = [_FORMAT, [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in parts]]
        fingerprint = hashlib.sha256(json.dumps(described).encode()).hexdigest()
        name, root = f"{path.name.split('.')[0]}-{fingerprint[:16]}", storage.cache or places("rows")[-1]
        try:
            root.mkdir(parents=True, exist_ok=True)
            if storage.cache is None:
                _remove_abandoned(root)
                root = Path(tempfile.mkdtemp(dir=root))
                lock = FileLock(f"{root}.lock", thread_local=False)
                lock.acquire()
                weakref.finalize(self, _remove, root, lock)
            with FileLock(root / f"{name}.lock"):
                made = sorted(folder for folder in root.glob(f"{name}-*") if folder.suffix != ".part")
                self.folder = next(filter(usable, made), root / f"{name}-{len(made)}")
                part = self.folder.with_suffix(".part")
                try:
                    shutil.rmtree(part, ignore_errors=True)
                    while not self.folder.exists():
                        with suppress(ReadAgainError):
                            part.mkdir(exist_ok=True)
                            write(part)
                            part.replace(self.folder)
                finally:
                    shutil.rmtree(part, ignore_errors=True)
        except OSError as error:
            raise CurvaeError(
                f"rows cannot be copied to {root}: {error.strerror or one_line(error)}; make room there, or give "
                "another folder with `cache=…`"
            ) from error


def _remove(folder: Path, lock: FileLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()
    Path(lock.lock_file).unlink(missing_ok=True)


def _remove_abandoned(root: Path) -> None:
    """Remove the copies of processes that were killed: nobody holds their locks."""
    for path in root.glob("*.lock"):
        lock = FileLock(path)
        with suppress(Timeout, OSError):
            lock.acquire(blocking=False)
            _remove(path.with_suffix(""), lock)


def require_room(folder: Path, size: float, name: str) -> None:
    """Raise unless a folder has room for a copy of so many bytes of the data called `name`."""
    free = shutil.disk_usage(folder).free
    check(
        size <= free,
        f"{name} needs {size_text(size)} of disk for a copy of its rows, and {size_text(free)} are free in "
        f"{folder.parent}; make room there, or give another folder with `cache=…`",
    )


# Copies of tables.


@dataclass
class _Description:
    """What is known of a copy: `table.json`.

    Arguments:
        rows: how many there are.
        named: columns that are copied as texts.
        single: whether numbers are stored in float32, in which all of them are exact.
        columns: those in the file of numbers.
        texts: those among them that hold texts.
        facts: what to say about the others.
    """

    rows: int = 0
    named: list[str] = field(default_factory=list)
    single: bool = True
    columns: list[str] = field(default_factory=list)
    texts: dict[str, ColumnTexts] = field(default_factory=dict)
    facts: NumberFacts = field(default_factory=NumberFacts)

    def to_json(self) -> str:
        texts = {name: {**vars(known), "positions": [*known.positions]} for name, known in self.texts.items()}
        return json.dumps({**vars(self), "texts": texts, "facts": vars(self.facts)})

    @classmethod
    def read(cls, folder: Path) -> _Description:
        values = json.loads((folder / "table.json").read_text())
        for known in values["texts"].values():
            known["positions"] = {text: position for position, text in enumerate(known["positions"])}
        values["texts"] = {name: ColumnTexts(**known) for name, known in values["texts"].items()}
        return cls(**{**values, "facts": NumberFacts(**values["facts"])})


class _Writer:
    """Copies the rows of a table; what it assumes about columns is kept when it has to start again.

    Arguments:
        files: of the table.
        names: columns that name rows, labels or groups, which stay text, character by character.
        categories: columns of categories, which do so too.
        covariates: columns that are copied as numbers or positions even if they name something.
        counter: called with the progress.
    """

    def __init__(
        self,
        files: _Files,
        names: Collection[str],
        categories: Collection[str],
        covariates: Collection[str],
        counter: Counter,
    ) -> None:
        self._files, self._counter = files, counter
        named = {name for name in files.names if name in names or name.startswith(UNNAMED)}
        self._named = [name for name in files.names if name in named]
        self._columns = [name for name in files.names if name not in named or name in covariates]
        self._texts = {name for name in self._columns if name in categories}
        self._fractions: set[str] = set()  # columns of numbers that name something and have digits
        self._single = True

    def can_use(self, folder: Path) -> bool:
        """Return whether a folder has a copy of all that is needed."""
        made = _Description.read(folder)
        return {*self._named} <= {*made.named} and {*self._columns} <= {*made.columns} and self._texts <= {*made.texts}

    def write(self, folder: Path) -> None:
        """Copy all rows into a folder."""
        files, description = self._files, _Description(named=self._named, columns=self._columns, single=self._single)
        description.texts = {name: ColumnTexts(most=_MOST) for name in self._texts}
        dtype = np.float32 if self._single else np.float64
        size = files.rows * (np.dtype(dtype).itemsize * len(self._columns) + _TEXT * len(self._named) // 4)
        require_room(folder, size, files.path.name)
        advance = self._counter(f"copying {size_text(size)} to disk", files.rows)
        truths: dict[str, bool] = {}
        with ExitStack() as opened:
            values = opened.enter_context((folder / "values").open("wb"))
            outputs = [
                [opened.enter_context((folder / f"{i}.{kind}").open("wb")) for kind in ("texts", "ends")]
                for i in range(len(self._named))
            ]
            for file, first, frame in files.pieces(_CELLS):
                parts = [
                    description.texts[name].encode(frame[name], first, file)
                    if name in self._texts
                    else self._convert(name, frame[name], description.facts, truths)
                    for name in self._columns
                ]
                block = np.column_stack(parts) if parts else np.empty((len(frame), 0))
                stored = block.astype(dtype)
                if self._single and not np.array_equal(stored.astype(np.float64), block, equal_nan=True):
                    self._single = False
                    raise ReadAgainError
                values.write(stored.tobytes())
                for name, (texts, ends) in zip(self._named, outputs, strict=True):  # as `StoredTexts` reads them
                    encoded = [text.encode() for text in self._name_texts(name, frame[name]).tolist()]
                    ends.write((texts.tell() + np.cumsum([*map(len, encoded)], dtype=np.int64)).tobytes())
                    texts.write(b"".join(encoded))
                description.rows += len(frame)
                advance(len(frame))
        check(description.rows, f"{files.path.name} has a header but no rows; add rows")
        (folder / "table.json").write_text(description.to_json())

    def _convert(self, name: str, values: Any, facts: NumberFacts, truths: dict[str, bool]) -> NDArray[np.float64]:
        """Convert a part of a column to numbers; if it holds texts, all of it does."""
        numbers, offender, are_truths = facts.convert(name, values)
        present = offender is None and bool(np.isfinite(numbers).any())
        mixed = present and truths.setdefault(name, are_truths) != are_truths
        if offender is not None or mixed or isinstance(values.dtype, pd.CategoricalDtype):
            self._texts.add(name)
            self._files.texts.add(name)
            raise ReadAgainError
        return numbers

    def _name_texts(self, name: str, values: Any) -> NDArray[np.str_]:
        """Convert a part of a column to texts; whole numbers have no point unless others have digits."""
        if name in self._fractions:
            return np.array(["" if pd.isna(value) else str(float(value)) for value in values], np.str_)
        if pd.api.types.is_float_dtype(values.dtype) and bool((values.dropna() % 1 != 0).any()):
            self._fractions.add(name)
            raise ReadAgainError
        return texts_of(values)


class SpooledTable(Table):
    """A table whose cells were copied to disk.

    Arguments:
        files: of the table.
        copy: of the files.
        memory: bytes that rows may take in memory at a time.
    """

    def __init__(self, files: _Files, copy: Copy, memory: int) -> None:
        self.path, self.names = files.path, list(files.names)
        while True:
            with suppress(ReadAgainError):
                frames = (frame for *_, frame in files.pieces(_CELLS))
                self.head = next(frames, pd.DataFrame(columns=self.names)).head(10_000)
                break
        self._known = _Description.read(copy.folder)
        self.rows, shape = self._known.rows, (self._known.rows, len(self._known.columns))
        dtype = np.dtype(np.float32 if self._known.single else np.float64)
        file = DenseFile(copy.folder / "values", shape, dtype, name=files.path.name, owner=copy)
        self._values = DiskMatrix.of(file, shape[1], memory)
        self._named = {
            name: StoredTexts(copy.folder / f"{i}.texts", files.path.name, copy)
            for i, name in enumerate(self._known.named)
        }

    def is_numeric(self, name: str) -> bool:
        return name not in self._known.texts

    def column_texts(self, name: str) -> ColumnTexts:
        return self._known.texts[name]

    def texts(self, name: str, strip: bool = False) -> DiskTexts:
        return DiskTexts.of(self._named[name], strip)

    def _decode(self, names: Sequence[str], known: Mapping[int, NDArray[np.float64]], facts: NumberFacts) -> DiskMatrix:
        facts.booleans += self._known.facts.booleans
        facts.large += self._known.facts.large
        chosen = [self._known.columns.index(name) for name in names]
        return self._values.apply(partial(decode_texts, columns=chosen, known=known), len(names))


def store_table(
    path: Path,
    known: Collection[str],
    names: Collection[str],
    categories: Collection[str],
    covariates: Collection[str],
    wanted: Collection[str] | None,
    storage: Storage,
    messages: Messages,
) -> SpooledTable | None:
    """Copy a table to disk; return None if it fits in memory.

    Arguments:
        path: a text table, a Parquet file, or a folder of Parquet files.
        known: names of columns that the caller asks for.
        names: columns that name rows, labels or groups.
        categories: columns of categories.
        covariates: columns that describe how a row was measured.
        wanted: columns that are needed; all by default.
        storage: how much memory there is, and where copies are made.
        messages: takes notes about what was detected.
    """
    texts = {*names, *categories}
    files: _Files = (
        _ParquetFiles(path, wanted if storage.cache is None else None, texts)
        if path.is_dir() or path.suffix.lower() == ".parquet"
        else TextTable(path, known, texts, messages)
    )
    footprint = files.rows * (16 * len(files.names) + _TEXT * len(files.texts) + ROW_BYTES)
    if footprint <= storage.memory and not path.is_dir():
        return None
    writer = _Writer(files, names, categories, covariates, storage.counter)
    table = SpooledTable(files, Copy(path, files.parts, storage, writer.can_use, writer.write), storage.memory)
    messages.note(f"{table.rows:,} rows are read from disk, in {size_text(storage.memory)} of memory.")
    return table


def store_matrix(path: Path, storage: Storage) -> CsrFile:
    """Open a CSR matrix on disk; a compressed one is unpacked into a copy first."""
    with zipfile.ZipFile(path) as packed:
        members = packed.infolist()
        if all(member.compress_type == zipfile.ZIP_STORED for member in members):
            return CsrFile(path)
        size = sum(member.file_size for member in members)

        def write(target: Path) -> None:
            require_room(target, size, path.name)
            advance = storage.counter(f"copying {size_text(size)} to disk", len(members))
            with zipfile.ZipFile(target / "rows.npz", "w") as stored:
                for member in members:
                    with packed.open(member) as source, stored.open(member.filename, "w", force_zip64=True) as copy:
                        shutil.copyfileobj(source, copy, 1 << 20)
                    advance(1)

        unpacked = Copy(path, [path], storage, lambda made: True, write)
    return CsrFile(unpacked.folder / "rows.npz", path.name, unpacked)
