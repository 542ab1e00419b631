"""Files that are either whole or absent: written beside their place, synchronised, then moved there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from ..errors import CurvaeError

__all__ = ["read_json", "read_tensors", "write_bytes", "write_json", "write_tensors"]


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise CurvaeError(f"cannot write {path}: {reason}; earlier results are untouched") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; a failure leaves what was there before."""
    part = path.with_name(path.name + ".part")
    with _explained(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True) if os.access(part.parent, os.W_OK) else None
            raise


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """The content of a JSON file; a missing or broken one is a `CurvaeError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CurvaeError(f"{path} does not exist") from None
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise CurvaeError(f"{path} cannot be read: {error}; restore it from a copy or train again") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Tensors as safetensors; one that has several names is stored under each."""
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_bytes(path, safetensors.torch.save(own, dict(metadata or {})))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file, which cannot hold code."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except FileNotFoundError:
        raise CurvaeError(f"{path} does not exist") from None
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CurvaeError(f"{path} is damaged ({error}); restore it from a copy or train again") from error
