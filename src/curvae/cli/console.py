"""What the program says: results of commands, mistakes in one line, exit codes; how a terminal is used."""

from __future__ import annotations

import atexit
import errno
import gc
import math
import os
import re
import signal
import sys
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import click
from click.core import augment_usage_errors

from ..errors import CurvaeError, FixableError
from .options import (
    READING,
    SHARED,
    SetOption,
    SettingOption,
    command_line,
    completed_command,
    error_text,
    in_flags,
    option,
    option_words,
    options_of,
    printed,
    shell_command,
    typed_options,
)

if TYPE_CHECKING:
    from ..runs import Reporter, Step

__all__ = [
    "BROKEN_PIPE",
    "CommandResult",
    "LazyModule",
    "Signals",
    "SteadyStream",
    "command",
    "console_reporter",
    "one_line",
    "program",
    "run_program",
    "steady_output",
]


# Where the command line runs: output that may fail, signals that end a command, names that hold line breaks.

BROKEN_PIPE = 128 + 13  # exit code of a program whose reader went away, as of one that SIGPIPE ends

# Characters that end a line or steer a terminal, as a Python string would write them.
_CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160), 0x2028, 0x2029)}


def one_line(text: str) -> str:
    r"""Return a text without line breaks and other control characters, which names of files may hold.

    Example:
        >>> print(one_line("there is no a\nb.csv"))
        there is no a\nb.csv
    """
    return text.translate(_CONTROLS)


class SteadyStream:
    """A stream on which writing never raises: after a first failure, which it keeps, it takes no more.

    A terminal that is gone, or a full disk, is no reason to lose a training.

    Arguments:
        stream: to write to.
        absent: whether it stands for a stream that was closed before the program started.
    """

    def __init__(self, stream: Any, absent: bool = False) -> None:
        self._stream, self.absent = stream, absent
        self.error: OSError | ValueError | None = None

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, call: Callable[[], object]) -> None:
        if self.error is None:
            try:
                call()
            except (OSError, ValueError) as error:  # a closed file is a ValueError
                self.error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close_failed(self) -> None:
        """Flush; after a failure, drop what is left in the buffer, which Python would try to write when it ends."""
        self.flush()
        if self.error is not None:
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)

    @property
    def reader_left(self) -> bool:
        """Whether it failed because nobody reads it any more, as after `| head -1`."""
        gone = (errno.EPIPE, errno.EINVAL) if os.name == "nt" else (errno.EPIPE,)
        return isinstance(self.error, OSError) and self.error.errno in gone


@contextmanager
def steady_output() -> Iterator[SteadyStream]:
    """Make `sys.stdout` and `sys.stderr` steady; characters that the terminal does not have are replaced."""
    absent = sys.stdout is None
    # Standard streams that are closed get a place, or the next file to be opened would take it.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - until the end
    with ExitStack() as ended:
        streams = SteadyStream(sys.stdout, absent), SteadyStream(sys.stderr)
        for stream, redirect in zip(streams, (redirect_stdout, redirect_stderr), strict=True):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
            ended.enter_context(redirect(stream))
            ended.callback(stream.close_failed)
        yield streams[0]


class Signals:
    """SIGINT and SIGTERM, on Windows Ctrl-C and Ctrl-Break, end a command.

    The first raises KeyboardInterrupt, and the command tidies up. That takes a moment when it has other processes: the
    second is ignored, for impatience would leave these behind. The third ends it wherever it is.

    Arguments:
        exit_message: returns what to print when it ends without having tidied up, given the signal; None once it was
            printed.
    """

    # Windows has Ctrl-Break beside Ctrl-C, and sends no SIGTERM.
    _HANDLED = (signal.SIGINT, getattr(signal, "SIGBREAK", signal.SIGTERM))

    def __init__(self, exit_message: Callable[[int], str] | None) -> None:
        self.exit_message, self.received = exit_message, 0
        self._count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in self._HANDLED}
        return self

    def __exit__(self, *_: object) -> None:
        if not self.received:  # else a signal may still come while Python ends
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if not self.received:
            self.received = number
            raise KeyboardInterrupt
        if self._count == 2:
            return
        if self.exit_message is not None:
            with suppress(OSError):
                os.write(2, self.exit_message(self.received).encode(errors="replace"))
        os._exit(128 + self.received)


_QUOTED = re.compile("'([^']*)'")  # what was typed, in messages of click
_COMPLETE = "_CURVAE_COMPLETE"  # by which a shell asks for words to choose from
_SHELLS = ("bash", "zsh", "fish")
_resuming: list[str] = []  # the command that continues the run, once there is something to continue
_START = 0.5  # seconds whose reports are the start of a task: first epochs of a stack, or what a run is resumed from
_NEAR = 0.65  # how much an option must be like what was typed to be suggested; 1 is the same


class LazyModule:
    """A module that is imported when it is first used, so that help need not wait for it.

    It is imported without the garbage collector, which would look at the objects of all modules again and again, and
    at the end of the program once more, and find nothing. They are taken out of its sight.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if self._name not in sys.modules:
            enabled = gc.isenabled()
            gc.disable()
            try:
                import_module(self._name)
            finally:
                gc.freeze()
                if enabled:
                    gc.enable()
        return getattr(sys.modules[self._name], name)


@contextmanager
def console_reporter(quiet: bool, words: Callable[[str], str], resumable: Callable[[str], None]) -> Iterator[Reporter]:
    """Report on a run on the error stream, unless `quiet`; progress bars end with the context.

    Arguments:
        quiet: whether to print nothing.
        words: replaces the parameters that a message names by options.
        resumable: called with the command that resumes the run, once it can be resumed.
    """
    silent = LazyModule("curvae.runs").Reporter(
        command=shell_command,
        words=words,
        started=command_line(),
        resumable=lambda options: resumable(completed_command(typed_options(options, "fit"))),
    )
    if quiet:
        yield silent
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(24),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", style="progress.remaining"),
        TextColumn("{task.fields[text]}"),
        console=console,
    )
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


@dataclass(frozen=True)
class CommandResult:
    """What a command found.

    Arguments:
        result: for programs, printed as JSON.
        lines: for people.
        following: what to do next.
    """

    result: Any
    lines: Sequence[str]
    following: Step | None = None

    def show(self, as_json: bool) -> None:
        """Print it on the output."""
        if as_json:
            from ..training.storage import json_text

            encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
            print(json_text(self.result, ascii_only="utf" not in encoding.lower()))
            if isinstance(sys.stdout, SteadyStream) and sys.stdout.absent:  # the result is all that was asked for
                raise click.exceptions.Exit(BROKEN_PIPE)
            return
        for line in (*self.lines, *([f"next: {shell_command(self.following)}"] if self.following else [])):
            print(one_line(line))


# --- commands -------------------------------------------------------------------------------------------------------


class _Command(click.Command):
    """A command whose mistakes in options name it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, args)


class _Program(click.Group):
    """Commands in the order in which they were given."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def command(
    *parameters: click.Parameter | str, example: str
) -> Callable[[Callable[..., CommandResult]], click.Command]:
    """Make a function a command of the program; what it returns is printed.

    It is called with the parameters by name, and with a `reporter` for messages and progress, if it takes one. Settings
    of a model are handed over together, as `settings`, those that were given.

    Arguments:
        parameters: arguments and options, or names of `SHARED` ones; all commands have `--quiet`, `--json` and `--help`
            besides.
        example: of a call, shown at the end of the help; one a line.
    """
    known = [SHARED[one] if isinstance(one, str) else one for one in parameters]
    settings = [
        one for one in known if isinstance(one, SetOption) or (isinstance(one, SettingOption) and one.default is None)
    ]

    def make(function: Callable[..., CommandResult]) -> click.Command:
        def call(quiet: bool, as_json: bool, **values: Any) -> None:
            context = click.get_current_context()
            commands = (context.command, *context.parent.command.commands.values())  # type: ignore[union-attr]
            options = ChainMap(*map(options_of, commands))
            if settings:
                given = {one.name: values.pop(one.name) for one in settings}
                given |= given.pop("advanced")
                values |= {name: given.pop(name) for name in READING.get(function.__name__, ()) if name in given}
                values["settings"] = {name: value for name, value in given.items() if value is not None}
            try:
                if _assists(function.__name__):
                    return
                if "device" in parameters:
                    values["device"] = LazyModule("curvae.training.fitted").choose_device(values["device"])
                if "reporter" in function.__annotations__:
                    with console_reporter(
                        quiet or as_json, partial(in_flags, options=options), _resuming.append
                    ) as values["reporter"]:
                        answer = function(**values)
                else:
                    answer = function(**values)
            except FixableError as error:
                raise _Corrected(error, options_of(context.command), error_text(error, options)) from error
            except CurvaeError as error:
                raise click.ClickException(error_text(error, options)) from error
            if as_json or not quiet:
                answer.show(as_json)

        return _Command(
            function.__name__,
            callback=call,
            params=[
                *(one for one in known if one not in settings),
                *settings,
                SHARED["quiet"],
                SHARED["as_json"],
                SHARED["help"],
            ],
            help=function.__doc__,
            short_help=(function.__doc__ or "").partition("\n\n")[0],
            epilog="\b\nExample: curvae " + example.replace("\n", "\n         curvae "),
            add_help_option=False,
        )

    return make


def _assists(name: str) -> bool:
    """Whether this process only helped another, which `torchrun` started beside it, with its training."""
    if (rank := _rank()) is not None and name != "fit":
        raise CurvaeError(f"curvae {name} works in one process; start it without torchrun")
    if not rank:
        return False
    from ..training.processes import run_worker

    run_worker()
    return True


def _rank() -> int | None:
    """Place of this process among several that `torchrun` started; all but the first, 0, are silent."""
    if "WORLD_SIZE" not in os.environ:
        return None
    from ..training.processes import launched

    found = launched()
    return None if found is None else found.rank


def program(*commands: click.Command, text: str, version: str, example: str) -> click.Group:
    """Make the program that has these commands; `example` is one of a call, shown at the end of the help."""
    return _Program(
        "curvae",
        help=text,
        params=[
            option("--version", **printed(lambda context: version), help="Print the version."),
            option(
                "--completion",
                choices=_SHELLS,
                callback=_completion,
                is_eager=True,
                expose_value=False,
                help="Print what lets bash, zsh or fish complete commands, options and files.",
            ),
            SHARED["help"],
        ],
        commands=commands,
        epilog=f'\b\nExample: curvae {example}\n         eval "$(curvae --completion bash)"',
        add_help_option=False,
    )


def _completion(context: click.Context, parameter: click.Parameter, shell: str | None) -> None:
    if shell is not None:
        # Not source(), which asks the bash that is installed for its version.
        complete = _completer(context.command, shell)
        print(complete.source_template % complete.source_vars())
        context.exit()


def _completer(group: click.Command, shell: str) -> Any:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"{shell} is not among the shells {', '.join(_SHELLS)}")
    return kind(group, {}, "curvae", _COMPLETE)


# --- messages -------------------------------------------------------------------------------------------------------


class _Corrected(click.ClickException):
    """A mistake that options of the command correct, and the whole command with them, if it has such options."""

    command = ""

    def __init__(self, error: FixableError, options: Mapping[str, click.Option], text: str) -> None:
        accepted = [
            [
                option_words(options[name], value or True)
                for name, value in fix
                if name in options and value in (getattr(options[name].type, "choices", ()) or (value,))
            ]
            for fix in error.fixes
        ]
        if not all(accepted):
            super().__init__(text)
            return
        others = " or ".join(" ".join(one) for _, *rest in accepted for one in rest)
        super().__init__(f"{error.found}; run this{f', or with {others}' if others else ''}:")
        self.command = completed_command(
            [word for first, *_ in accepted for word in first],
            {one.opts[0] for one in options.values() if not (one.multiple or one.is_flag)},
        )


# --- the end of a program ---------------------------------------------------------------------------------------------


def run_program(group: click.Group) -> None:
    """Do what was typed; ends the process with an exit code, unless that is 0."""
    _resuming.clear()
    atexit.register(gc.freeze)  # what is left then need not be looked at either
    # Threads of small networks wait most of the time; by default they keep their cores busy meanwhile.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with Signals(_interrupted) as signals, steady_output() as output:
        code = _run(group, signals)
        output.flush()
        if output.error is not None and not output.reader_left and code == 0:
            reason = getattr(output.error, "strerror", None) or output.error
            code = _fail(f"cannot write to the output: {reason}; files that were written are complete")
    if output.reader_left and code == 0:
        code = BROKEN_PIPE
    if code:
        sys.exit(code)


def _run(group: click.Group, signals: Signals) -> int:
    """Run the command and say what went wrong, if anything; returns the exit code."""
    try:
        _require_working_directory()
        if _COMPLETE in os.environ:
            print(_completer(group, os.environ[_COMPLETE].partition("_")[0]).complete())
            return 0
        with group.make_context("curvae", sys.argv[1:] or ["--help"]) as context:
            group.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        return _fail(_mistake(error))
    except click.ClickException as error:
        return _fail(error.message, getattr(error, "command", ""))
    except (KeyboardInterrupt, Exception) as error:  # after a signal, whatever broke while the command was ending
        if not (signals.received or isinstance(error, KeyboardInterrupt)):
            raise
        number = signals.received or signal.SIGINT
        print(_interrupted(number), end="", file=sys.stderr, flush=True)
        signals.exit_message = None
        return 128 + number
    return 0


def _mistake(error: click.UsageError) -> str:
    """Say what is wrong with what was typed, and what may have been meant or where to look."""
    option = getattr(error, "param", None)
    if isinstance(error, click.NoSuchOption):
        said = error.message if " setting " in error.message else f"there is no option {error.option_name}"
        name = error.option_name.removeprefix("--").removeprefix("no-").replace("-", "_")
        known = {} if error.ctx is None else options_of(error.ctx.command)
        if name in known:
            return f"{said}; use {known[name].opts[0]}…"
    elif isinstance(error, click.BadParameter) and error.message and option is not None:
        name = option.opts[0].removesuffix("=") if isinstance(option, click.Option) else option.human_readable_name
        said = f"{name}: {error.message}"
    else:
        said = error.format_message().partition(" Did you mean")[0]
    said = " ".join(said.split()).removesuffix(".")
    typed = getattr(error, "option_name", None) or getattr(error, "command_name", "")
    possible = getattr(error, "possibilities", None) or ()
    if (choices := getattr(getattr(option, "type", None), "choices", ())) and (given := _QUOTED.match(error.message)):
        typed, possible = given[1], list(map(str, choices))
    if near := get_close_matches(typed, possible, 1, _NEAR):
        return f"{said}; did you mean {near[0]}?"
    return f"{said}; {'curvae' if error.ctx is None else error.ctx.command_path} --help shows what there is"


def _interrupted(number: int) -> str:
    """Say after a signal how to continue."""
    if _rank():
        return ""
    what = "terminated" if number == signal.SIGTERM else "interrupted"
    if sys.argv[1:2] == ["paper"]:
        return f"curvae: {what}; the same command goes on\n"
    return f"curvae: {what}; continue with: {one_line(_resuming[-1])}\n" if _resuming else f"curvae: {what}\n"


def _require_working_directory() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise click.ClickException(
            f"the working directory cannot be used ({error.strerror}); change to another folder"
        ) from error


def _fail(message: str, command: str = "") -> int:
    if not _rank():
        for line in (f"curvae: {message}", *([command] if command else [])):
            print(one_line(line), file=sys.stderr)
    return 2
