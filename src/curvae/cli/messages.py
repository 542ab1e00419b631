"""Messages and progress bars on the error stream, so that the output holds results alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..runs.run import Reporter
from .console import one_line
from .options import command_line, completed_command, shell_command, typed_options

__all__ = ["console_reporter"]

_START = 0.5  # seconds whose reports are the start of a task: first epochs of a stack, or what a run is resumed from


@contextmanager
def console_reporter(quiet: bool, words: Callable[[str], str], resumable: Callable[[str], None]) -> Iterator[Reporter]:
    """Report on a run, unless `quiet`; progress bars end with the context.

    Arguments:
        quiet: whether to print nothing.
        words: replaces the parameters that a message names by options.
        resumable: called with the command that resumes the run, once it can be resumed.
    """
    silent = Reporter(
        command=shell_command,
        started=command_line(),
        resumable=lambda options: resumable(completed_command(typed_options(options, "fit"))),
    )
    if quiet:
        yield silent
        return
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    ends = TextColumn("{task.fields[left]}", style="progress.remaining"), TextColumn("{task.fields[text]}")
    bars = Progress(*columns, TimeElapsedColumn(), *ends, console=console)
    tasks: dict[str, TaskID] = {}
    starts: dict[str, tuple[float, float]] = {}  # when a task was first reported, and what had been done then

    def progress(name: str, done: float, total: float, text: str) -> None:
        if not tasks:
            bars.start()
        if name not in tasks:
            tasks[name] = bars.add_task(name, total=total, text="", left="")
        now = bars.get_time()
        start, before = starts.get(name, (now, done))
        if now - start < _START:
            starts[name] = start, done
        # Rich knows no speed where a step takes over 30 s, and one far too high after the first epoch of a stack.
        seconds = (total - done) * (now - start) / (done - before) if done > before else None
        left = "-:--:--" if seconds is None else str(timedelta(seconds=math.ceil(seconds)))
        bars.update(tasks[name], completed=done, text=escape(one_line(text)), left=left)

    def say(text: str, before: str = "") -> None:
        console.print(before + escape(one_line(words(text))), highlight=False, soft_wrap=True)

    try:
        yield replace(silent, say=say, warn=lambda text: say(text, "[yellow]warning:[/] "), progress=progress)
    finally:
        if tasks:
            bars.stop()
