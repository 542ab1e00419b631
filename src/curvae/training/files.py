"""Files that are either whole or absent: written beside their place, synchronised, then moved there."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from ..data.files import require_file
from ..errors import CurvaeError

__all__ = [
    "json_text",
    "make_folder",
    "read_json",
    "read_metadata",
    "read_records",
    "read_tensors",
    "remove_files",
    "replacing",
    "require_finite_tensors",
    "write_bytes",
    "write_json",
    "write_records",
    "write_tensors",
    "write_text",
    "writing",
]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Explain in one line why a file or folder cannot be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise CurvaeError(
            f"cannot write {path}: {reason}; fix that and try again, earlier results are untouched"
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
        reason = " ".join(str(error).split())
        raise CurvaeError(f"{path} is damaged ({reason}); restore it from a copy or train again") from error


def make_folder(path: Path) -> None:
    """A folder, with those it lies in."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def remove_files(paths: Sequence[Path]) -> None:
    """Remove files, where they exist."""
    for path in paths:
        with writing(path):
            path.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes its place when it is whole; a failure leaves what was there before."""
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
    """JSON of plain values; a number that is not finite, which JSON has no word for, becomes null.

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
    """What `write_records` wrote; a missing or broken file is a `CurvaeError`."""
    with _readable(path):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if not records or not all(
            isinstance(record, dict) and all(map(_number, record.values())) for record in records
        ):
            raise ValueError("it holds no records of numbers")
        return records


def read_json(path: Path) -> Any:
    """The content of a JSON file; a missing or broken one is a `CurvaeError`."""
    with _readable(path):
        return json.loads(path.read_text(encoding="utf-8"))


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Tensors as safetensors; one that has several names is stored under each."""
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_bytes(path, safetensors.torch.save(own, dict(metadata or {})))


def read_metadata(path: Path) -> dict[str, str]:
    """Metadata of a safetensors file, without its tensors."""
    with _readable(path), safetensors.safe_open(path, "pt") as file:
        return dict(file.metadata() or {})


def read_tensors(path: Path, gaps: tuple[str, ...] = ()) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file, which cannot hold code; a number that is not finite is an error.

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
