"""Peak memory of a process."""

from __future__ import annotations

from pathlib import Path

__all__ = ["peak_mb"]


def peak_mb() -> float:
    """Megabytes of this process so far; not of `getrusage`, which counts what the process was forked from."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1e3
