"""Messages and progress of a run while it works."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .sources import Step

__all__ = ["Reporter"]


@dataclass(frozen=True)
class Reporter:
    """Receives the messages and the progress of a run; by default it is silent.

    Arguments:
        say, warn: take a message.
        progress: takes the name of a task, the work done, the work in all, and the latest figures.
        command: puts a step into the words of whoever started the run.
        started: what started the run, in the same words.
        resumable: told that the run can be resumed, and the options that are needed for that besides those it has.
    """

    say: Callable[[str], None] = lambda text: None
    warn: Callable[[str], None] = lambda text: None
    progress: Callable[[str, float, float, str], None] = lambda task, done, total, text: None
    command: Callable[[Step], str] = lambda step: " ".join([step.action, *step.arguments])
    started: str = ""
    resumable: Callable[[Mapping[str, Any]], None] = lambda options: None

    def counter(self, task: str, total: int) -> Callable[..., None]:
        """A function to be told how much more was done, 1 by default."""
        done = 0

        def advance(more: int = 1) -> None:
            nonlocal done
            done += more
            self.progress(task, done, total, "")

        return advance

    def tell(self, said: Iterable[str], warned: Iterable[str]) -> None:
        """Several messages and warnings."""
        for text in said:
            self.say(text)
        for text in warned:
            self.warn(text)
