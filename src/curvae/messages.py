"""Messages and progress bars of a command on the error stream, so that results alone are on the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .flags import command_line, completed_command, shell_command, typed_options
from .runs.progress import Reporter
from .terminal import one_line

__all__ = ["speaking"]


@contextmanager
def speaking(quiet: bool, words: Callable[[str], str], resumable: Callable[[str], None]) -> Iterator[Reporter]:
    """A reporter for a run, silent if `quiet`; progress bars end with the context.

    Arguments:
        quiet: whether to say nothing.
        words: puts a message of the library into the words of the command line.
        resumable: told the command that resumes the run, once it can be resumed.
    """
    silent = Reporter(
        command=shell_command,
        started=command_line(),
        resumable=lambda options: resumable(completed_command(typed_options(options))),
    )
    if quiet:
        yield silent
        return
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    times = TimeElapsedColumn(), TimeRemainingColumn()
    # The time left comes from all steps: a single one may take longer than the 30 s that are the default.
    bars = Progress(
        *columns, *times, TextColumn("{task.fields[text]}"), console=console, speed_estimate_period=math.inf
    )
    tasks: dict[str, TaskID] = {}

    def progress(name: str, done: float, total: float, text: str) -> None:
        if not tasks:
            bars.start()
        if name not in tasks:
            tasks[name] = bars.add_task(name, total=total, text="")
            bars.advance(tasks[name], done)  # a start: rich measures the speed from the second report on
        bars.update(tasks[name], completed=done, text=escape(one_line(text)))

    def say(text: str, before: str = "") -> None:
        console.print(before + escape(one_line(words(text))), highlight=False, soft_wrap=True)

    try:
        yield replace(silent, say=say, warn=lambda text: say(text, "[yellow]warning:[/] "), progress=progress)
    finally:
        if tasks:
            bars.stop()
