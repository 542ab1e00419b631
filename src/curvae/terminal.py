"""Where the command line runs: output that may fail, signals that end a command, names that hold line breaks."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from types import FrameType
from typing import Any, Self

__all__ = ["BROKEN_PIPE", "Signals", "SteadyStream", "one_line", "steady_output"]

BROKEN_PIPE = 128 + 13  # exit code of a program whose reader went away, as of one that SIGPIPE ends

# Characters that end a line or steer a terminal, as a Python string would write them.
_CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160), 0x2028, 0x2029)}


def one_line(text: str) -> str:
    r"""A text without line breaks and other control characters, which names of files may hold.

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
    _open_closed()
    with ExitStack() as ended:
        streams = SteadyStream(sys.stdout, absent), SteadyStream(sys.stderr)
        for stream, redirect in zip(streams, (redirect_stdout, redirect_stderr), strict=True):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
            ended.enter_context(redirect(stream))
            ended.callback(stream.close_failed)
        yield streams[0]


def _open_closed() -> None:
    """Give standard streams that are closed a place, or the next file to be opened would take it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - until the end


class Signals:
    """SIGINT and SIGTERM, on Windows Ctrl-C and Ctrl-Break, end a command.

    The first raises KeyboardInterrupt, and the command tidies up. That takes a moment when it has other processes: the
    second is ignored, for impatience would leave these behind. The third ends it wherever it is.

    Arguments:
        last_words: what to say when it ends without having tidied up.
    """

    # Windows has Ctrl-Break beside Ctrl-C, and sends no SIGTERM.
    _HANDLED = (signal.SIGINT, getattr(signal, "SIGBREAK", signal.SIGTERM))

    def __init__(self, last_words: Callable[[int], str]) -> None:
        self.received: int | None = None
        self._count = 0
        self._last_words: Callable[[int], str] | None = last_words
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in self._HANDLED}
        return self

    def __exit__(self, *_: object) -> None:
        if self.received is None:  # else a signal may still come while Python ends
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self.received is None:
            self.received = number
            raise KeyboardInterrupt
        if self._count == 2:
            return
        if self._last_words is not None:
            with suppress(OSError):
                os.write(2, self._last_words(self.received).encode(errors="replace"))
        os._exit(128 + self.received)

    def said(self) -> None:
        """The last words were said."""
        self._last_words = None
