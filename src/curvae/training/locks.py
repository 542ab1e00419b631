"""Locks: a run folder or a report has one writer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import CurvaeError
from .files import make_folder, writing

__all__ = ["is_empty", "locked"]

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
    """Whether a folder holds nothing but perhaps a lock, which a process that was killed leaves behind."""
    return all(path.name == _LOCK for path in folder.iterdir())
