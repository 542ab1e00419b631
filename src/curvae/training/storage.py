"""A trained model on disk, written atomically: `config.json`, `model.safetensors`, `embedding.safetensors`,
`metrics.jsonl`, and the table of its map.

No pickle: loading cannot run code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from csv import QUOTE_MINIMAL, QUOTE_NONNUMERIC
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
import safetensors
import safetensors.torch
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from torch import Tensor

from .. import __version__
from ..data.files import EXACT, guard, refuse_dangling, require_file, suggest_path, unguard
from ..errors import CurvaeError, require
from ..maps.charts import Frame, numbered_columns
from ..maps.embedding import Embedding, placed_factors
from ..settings import ADDED, Settings
from .fitted import METRICS, Fitted, FittedModel

__all__ = [
    "FORMAT",
    "Loaded",
    "coordinate_columns",
    "description_of",
    "embedding_path",
    "embedding_table",
    "fitted_class",
    "is_empty",
    "json_text",
    "load_fitted",
    "locked",
    "make_folder",
    "read_description",
    "read_embedding",
    "read_json",
    "read_metadata",
    "read_records",
    "read_tensors",
    "remove_files",
    "replacing",
    "require_finite_tensors",
    "save_fitted",
    "table_ending",
    "unfinished_error",
    "versions",
    "write_bytes",
    "write_json",
    "write_records",
    "write_tables",
    "write_tensors",
    "write_text",
    "writing",
]

# Files that are either whole or absent: written beside their place, synchronised, then moved there.


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Explain in one line why a file or folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise CurvaeError(
            f"cannot write {path}: {error.strerror or error}; fix that and try again, earlier results are untouched"
        ) from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        require_file(path)
        yield
    except CurvaeError:
        raise
    except FileNotFoundError:
        raise CurvaeError(f"{path} does not exist; restore it from a copy or train again") from None
    except (safetensors.SafetensorError, OSError, ValueError, RecursionError, NotImplementedError) as error:
        raise CurvaeError(
            f"{path} is damaged ({' '.join(str(error).split())}); restore it from a copy or train again"
        ) from error


def make_folder(path: Path) -> None:
    """Make a folder, with those it lies in."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def remove_files(paths: Sequence[Path]) -> None:
    """Remove files, where they exist."""
    for path in paths:
        with writing(path):
            path.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to write to, which takes its place when it is whole; a failure leaves what was there before."""
    part = path.with_name(path.name + ".part")
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True) if os.access(part.parent, os.W_OK) else None
            raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; a failure leaves what was there before."""
    with replacing(path) as file:
        file.write(content)


def json_text(value: Any, indent: int | None = 2, ascii_only: bool = False) -> str:
    """Return JSON of plain values; a number that is not finite, which JSON has no word for, becomes null.

    Example:
        >>> json_text({"interval": float("nan")}, indent=None)
        '{"interval": null}'
    """
    return json.dumps(_finite(value), indent=indent, ensure_ascii=ascii_only, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8.

    Names of files may hold bytes that are no text; these are escaped, in JSON so that they are read back as they were.
    """
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, value: Any, indent: int = 2) -> None:
    write_text(path, json_text(value, indent) + "\n")


def write_records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """One line of JSON a record."""
    write_text(path, "".join(json_text(dict(record), None) + "\n" for record in records))


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read what `write_records` wrote; a missing or broken file is a `CurvaeError`."""
    with _readable(path):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if not records or not all(
            isinstance(record, dict) and all(isinstance(value, int | float) for value in record.values())
            for record in records
        ):
            raise ValueError("it holds no records of numbers")
        return records


def read_json(path: Path) -> Any:
    """Read the content of a JSON file; a missing or broken one is a `CurvaeError`."""
    with _readable(path):
        return json.loads(path.read_text(encoding="utf-8"))


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors as safetensors; one that has several names is stored under each."""
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_bytes(path, safetensors.torch.save(own, dict(metadata or {})))


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file, without its tensors."""
    with _readable(path), safetensors.safe_open(path, "pt") as file:
        return dict(file.metadata() or {})


def read_tensors(path: Path, gaps: tuple[str, ...] = ()) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors and metadata of a safetensors file, which cannot hold code; a number that is not finite is an
    error.

    Arguments:
        path: of the file.
        gaps: how the names of tensors begin that may hold such numbers.
    """
    with _readable(path), safetensors.safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata() or {})
    require_finite_tensors(path, {name: t for name, t in tensors.items() if not name.startswith(gaps)})
    return tensors, metadata


def require_finite_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise if a tensor that was read from a file holds a number that is not finite."""
    with _readable(path):
        for name, tensor in tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"tensor {name!r} holds numbers that are not finite")


# The format of run folders: settings by part, the embedding and the split in a file of their own.
FORMAT = 3

CONFIG, MODEL, EMBEDDING = "config.json", "model.safetensors", "embedding.safetensors"

_SUMS = {MODEL: "model_sha256", EMBEDDING: "embedding_sha256"}
_KINDS = {"vae": "a model of a table", "graph": "a model of a graph", "comparison": "a comparison"}
COMMANDS = {"vae": "curvae fit", "graph": "curvae graph", "comparison": "curvae compare"}
_ANY_COMMAND = f"{COMMANDS['vae']} or {COMMANDS['graph']}"


def versions() -> dict[str, str]:
    """Return versions of what computes."""
    return {
        "curvae": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def description_of(config: Settings, kind: str) -> dict[str, Any]:
    """Say how `config.json` begins, whatever the kind of run."""
    return {
        "format": FORMAT,
        "kind": kind,
        "versions": versions(),
        "seed": config.seed,
        "config": config.to_json(),
    }


def save_fitted(
    folder: Path, fitted: FittedModel, embedding: Embedding, description: Mapping[str, Any], data: Any = None
) -> None:
    """Write a model of any kind, its records and its embedding, and last what describes them.

    Arguments:
        folder: of the run.
        fitted: what was trained.
        embedding: of its training data.
        description: what else `config.json` shall hold; of a table, `data` with the `schema` among it.
        data: the graph that it was trained on, where it was one.
    """
    arrays, split, known = fitted.stored(data)
    tensors = {f"model.{name}": t.float() for name, t in fitted.model.state_dict().items()}
    places = {name: getattr(embedding, name) for name in ("space", "sigma", "popularity", "side")} | split
    write_records(folder / METRICS, fitted.history)
    write_tensors(folder / MODEL, tensors | {name: torch.from_numpy(a) for name, a in arrays.items()})
    write_tensors(folder / EMBEDDING, {name: torch.from_numpy(a) for name, a in places.items() if a is not None})
    sums = {name: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file, name in _SUMS.items()}
    write_json(folder / CONFIG, {**description_of(fitted.config, fitted.kind), **sums, **known, **description})


def unfinished_error(folder: Path, description: Mapping[str, Any], kind: str) -> CurvaeError:
    """Name the whole command that finishes a run; only its beginning where the run was not started by a command."""
    if not (typed := description.get("command")):
        return CurvaeError(f"{folder} is not finished; finish it with {COMMANDS[kind]} and `resume=True`")
    where = "" if re.search(r" (-o|--output)", typed) else f" -o {shlex.quote(str(folder))}"
    return CurvaeError(f"{folder} is not finished; finish it with: {typed}{where} --resume")


def read_description(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """Read `config.json` of a run folder and check its format and kind.

    Settings that were introduced after the folder was written get the value of `ADDED`.
    """
    command = _ANY_COMMAND if kind is None else COMMANDS[kind]
    refuse_dangling(folder)
    if not folder.is_dir():
        give = f"give the folder that {command} wrote"
        raise CurvaeError(f"{folder} is not a folder; {give if folder.exists() else suggest_path(folder, give)}")
    if not ((folder / CONFIG).exists() or (folder / CONFIG).is_symlink()):
        raise CurvaeError(f"{folder} is not a run: it has no {CONFIG}; give the folder that {command} wrote")
    description = read_json(folder / CONFIG)
    if not isinstance(description, dict) or type(found := description.get("format")) is not int or found < 1:
        raise CurvaeError(f"{folder / CONFIG} is not the description of a run; train again")
    if found < FORMAT:
        raise CurvaeError(f"{folder} was written in format {found}; only format {FORMAT} is supported: train it again")
    if found > FORMAT:
        raise CurvaeError(
            f"{folder} was written by a newer Curvae (format {found}, this one reads format {FORMAT}); "
            "upgrade with pip install --upgrade curvae"
        )
    if kind is not None and description.get("kind") != kind:
        raise _wrong_kind(folder, description, _KINDS[kind], command)
    if isinstance(config := description.get("config"), dict):
        for part, names in fitted_class(description).settings.parts().items():
            if isinstance(known := config.get(part, {}), dict):
                config[part] = {**{name: ADDED[name] for name in names if name in ADDED}, **known}
    return description


def _wrong_kind(folder: Path, description: Mapping[str, Any], wanted: str, command: str) -> CurvaeError:
    own = description.get("kind")
    held = _KINDS.get(own, f"a {own}") if isinstance(own, str) else "nothing that has a name"
    return CurvaeError(f"{folder} holds {held}, not {wanted}; give a folder that {command} wrote")


def fitted_class(description: Mapping[str, Any]) -> type[FittedModel]:
    """Return the class of the model that `config.json` describes, or of those of a comparison; by default of rows."""
    source = description.get("source") if description.get("kind") == "comparison" else None
    kind = "graph" if isinstance(source, Mapping) and "nodes" in source else str(description.get("kind"))
    return FittedModel.kinds.get(kind, Fitted)


class Loaded(NamedTuple):
    """What a run folder holds.

    Arguments:
        fitted: a `Fitted` or `FittedGraph`.
        embedding: of its training data.
        description: the whole of `config.json`.
        data: the graph, or the schema of the table, that it was trained on.
    """

    fitted: Any
    embedding: Embedding
    description: dict[str, Any]
    data: Any


def load_fitted(folder: Path, kind: type[FittedModel] | None = None, device: torch.device | str = "cpu") -> Loaded:
    """Read a model that `save_fitted` wrote, of the kind `Fitted` or `FittedGraph` or, by default, of any."""
    description = read_description(folder, None if kind is None else kind.kind)
    if description.get("kind") not in list(FittedModel.kinds):
        raise _wrong_kind(folder, description, "a model", _ANY_COMMAND)
    kind = fitted_class(description)
    if "model_sha256" not in description:
        raise unfinished_error(folder, description, kind.kind)
    parts = []
    for file, name in _SUMS.items():
        parts.append(read_tensors(folder / file)[0])
        if hashlib.sha256((folder / file).read_bytes()).hexdigest() != description.get(name):
            raise CurvaeError(
                f"{folder / file} is not the file that was written (its checksum differs); restore it or train again"
            )
    tensors, places = parts
    try:
        fitted, data = kind.restore(description, tensors, places, read_records(folder / METRICS))
        if lacking := {"epoch", "reconstruction", "kl", *fitted.model.space.numbers()} - set(fitted.last):
            raise ValueError(f"{METRICS} lacks {', '.join(sorted(lacking))}")
        embedding = Embedding(
            places["space"].numpy(),
            places["sigma"].numpy(),
            placed_factors(deepcopy(fitted.model.space).double(), kind.units),
            *(places[name].numpy() if name in places else None for name in ("popularity", "side")),
        )
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        message = str(error).splitlines()[0].removesuffix("; train again")
        raise CurvaeError(f"{folder} does not hold a whole run ({message}); train again") from error
    fitted.model.to(device)
    return Loaded(fitted, embedding, description, data)


# Locks: a run folder or a report has one writer at a time.

_LOCK = ".lock"


@contextmanager
def locked(path: Path, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder, or of a file, while it is written.

    The operating system ends the lock with the process that holds it, however that ends. Readers do not ask for it.

    Arguments:
        path: what is written; the lock file is in a folder that exists, and beside anything else.
        wait: seconds to wait for another process that holds the lock, before a `CurvaeError`.
    """
    place = path / _LOCK if path.is_dir() else path.with_name(f".{path.name}{_LOCK}")
    make_folder(place.parent)
    lock = FileLock(place)
    with writing(path):
        try:
            lock.acquire(timeout=wait)
        except Timeout:
            raise CurvaeError(
                f"{path} is being written by another process; wait until that ends, or choose another place"
            ) from None
    try:
        yield
    finally:
        # Removed while it is held: a process that opened it before sees that it has no name any more and is refused.
        # Windows does not remove a file in use; there, releasing the lock does.
        with suppress(OSError):
            place.unlink()
        lock.release()


def is_empty(folder: Path) -> bool:
    """Return whether a folder holds nothing but perhaps a lock, which a process that was killed leaves behind."""
    return all(path.name == _LOCK for path in folder.iterdir())


# Tables of maps, with the coordinates of every row.

PARQUET_ROWS = 1_000_000  # from which on the table of a map is a Parquet file

_GROUP = 1 << 15  # rows of a row group, at least


def embedding_table(
    embedding: Embedding,
    ids: NDArray[Any],
    labels: NDArray[Any] | None,
    split: Any,
    thing: str = "row",
    frames: Sequence[Frame] | None = None,
) -> pd.DataFrame:
    """Return the rows of `embedding.csv`, in full precision; raise for rows without a place on the map.

    Of a product, coordinates and standard deviations of a factor begin with its name: `h1_ball_1`, `h1_sigma`; those of
    a flat factor are metric, `e2_1`. Tangent coordinates are those of all factors, in units of the prior scales.
    `map_1` and `map_2`, or `h1_map_1`, are where pictures show a row that is seen from the frames.
    """
    embedding.require_finite(ids, thing)
    columns: dict[str, Any] = {"id": ids, "label": [""] * len(ids) if labels is None else labels, "split": split}
    columns |= coordinate_columns(embedding) | numbered_columns("tangent", embedding.tangent)
    columns["radius"] = embedding.radius
    before = [f"{factor.name}_" if len(embedding.placed) > 1 else "" for factor in embedding.placed]
    columns |= {f"{name}sigma": part.sigma for name, part in zip(before, embedding.parts, strict=True)}
    if (reach := embedding.popularity) is not None:
        both = ("popularity_out", "popularity_in")
        columns |= {"popularity": reach} if reach.ndim == 1 else dict(zip(both, reach.T, strict=True))
    if embedding.side is not None:
        columns["side"] = embedding.side
    if frames is not None:
        for name, part, frame in zip(before, embedding.parts, frames, strict=True):
            columns |= numbered_columns(f"{name}map", part.chart.place(frame, part.points))
    return pd.DataFrame(columns)


def coordinate_columns(embedding: Embedding) -> dict[str, NDArray[np.float64]]:
    """Return coordinates in the space by the names of their columns."""
    columns: dict[str, NDArray[np.float64]] = {}
    for part in embedding.parts:
        columns |= part.chart.columns(part.points, part.placed[0].name if len(embedding.placed) > 1 else "")
    return columns


def embedding_path(folder: Path, rows: int = 0) -> Path:
    """Return the path of the table of a map: `embedding.parquet` if it is there or has so many rows, or else a CSV."""
    parquet = folder / "embedding.parquet"
    return parquet if parquet.exists() else folder / f"embedding{table_ending(rows)}"


def table_ending(rows: int) -> str:
    """Return the ending of a table of so many rows: long ones are Parquet files, where pyarrow is installed."""
    return ".parquet" if rows >= PARQUET_ROWS and find_spec("pyarrow") is not None else ".csv"


def write_tables(path: Path, tables: Iterable[pd.DataFrame]) -> None:
    """Write tables of the same columns below each other, each when it is made, atomically.

    They become a Parquet file, or a CSV file in which a spreadsheet finds no formulas.
    """
    with replacing(path) as file:
        if path.suffix == ".parquet":
            _write_parquet(path, file, tables)
            return
        for place, table in enumerate(tables):
            file.write(_csv_text(table, header=not place).encode(errors="backslashreplace"))


def _write_parquet(path: Path, file: IO[bytes], tables: Iterable[pd.DataFrame]) -> None:
    """Write tables in row groups of many rows each, for the file keeps something in memory for every row group."""
    arrow = require("pyarrow", f"{path.name} needs pyarrow to be written", "parquet", otherwise="write a .csv file")
    writer: Any = None
    held: list[Any] = []

    def write() -> None:
        nonlocal writer
        writer = writer or arrow.parquet.ParquetWriter(file, held[0].schema)
        writer.write_table(arrow.concat_tables(held))
        held.clear()

    for table in tables:
        texts = table.select_dtypes(exclude="number").astype(str)
        held.append(arrow.Table.from_pandas(table.assign(**texts), preserve_index=False))
        if sum(map(len, held)) >= _GROUP:
            write()
    if held:
        write()
    writer.close()


def _csv_text(table: pd.DataFrame, header: bool) -> str:
    texts = table.select_dtypes(exclude="number").astype(str)
    # Without quotes, some readers drop blanks around a cell or take a return for the end of the line.
    delicate = any(bool(texts[name].str.contains(r"^\s|\s$|\r").any()) for name in texts)
    table = table.copy(deep=False)
    table[texts.columns] = texts.map(guard)
    table = table.rename(columns=guard)
    return table.to_csv(index=False, header=header, quoting=QUOTE_NONNUMERIC if delicate else QUOTE_MINIMAL)


def read_embedding(path: Path) -> pd.DataFrame:
    """Read what `write_tables` wrote of an `embedding_table`."""
    require_file(path)
    if path.suffix == ".parquet":
        table = pd.read_parquet(path)
        return table.astype({name: str for name in ("id", "label") if name in table})
    table = pd.read_csv(path, dtype={"id": str, "label": str}, keep_default_na=False, **EXACT)
    return table.assign(**{name: table[name].map(unguard) for name in ("id", "label") if name in table})
