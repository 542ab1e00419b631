"""What a run says while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Reporter"]


@dataclass(frozen=True)
class Reporter:
    """Receives the messages and the progress of a run; by default it is silent."""

    say: Callable[[str], None] = lambda text: None
    warn: Callable[[str], None] = lambda text: None
    progress: Callable[[str, float, float, str], None] = lambda task, done, total, text: None
    """name of the task, work done, work in all, latest figures"""

    def counter(self, task: str, total: int) -> Callable[..., None]:
        """A function to be told how much more was done, 1 by default."""
        done = 0

        def advance(more: int = 1) -> None:
            nonlocal done
            done += more
            self.progress(task, done, total, "")

        return advance
