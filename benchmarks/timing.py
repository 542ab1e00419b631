"""Timing side by side, and the table of results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from rich.table import Table

__all__ = ["Row", "compare", "show"]


@dataclass
class Row:
    """A measured ratio and the bound it should keep."""

    what: str
    threads: int
    ours_ms: float
    other_ms: float
    ratio: float
    bound: float | None = None
    at_most: bool = True

    @property
    def holds(self) -> bool | None:
        if self.bound is None:
            return None
        return self.ratio <= self.bound if self.at_most else self.ratio >= self.bound

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "holds": self.holds}


def compare(
    tasks: Mapping[str, Callable[[], object]],
    seconds: float = 3.0,
    least: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median milliseconds of each task. They take turns, so that a slow moment of the machine hits all alike."""
    for task in tasks.values():
        task()
    times: dict[str, list[float]] = {name: [] for name in tasks}
    end = time.perf_counter() + seconds * len(tasks)
    while time.perf_counter() < end or len(next(iter(times.values()))) < least:
        for name, task in tasks.items():
            start = clock()
            task()
            times[name].append(1e3 * (clock() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def show(title: str, rows: list[Row]) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("what", "threads", "this (ms)", "other (ms)", "ratio", "bound", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for row in rows:
        bound = "" if row.bound is None else f"{'≤' if row.at_most else '≥'} {row.bound:g}"
        verdict = {True: "[green]holds", False: "[red]missed", None: ""}[row.holds]
        table.add_row(
            row.what, str(row.threads), f"{row.ours_ms:.3g}", f"{row.other_ms:.3g}", f"{row.ratio:.2f}", bound, verdict
        )
    Console(width=120).print(table)


def with_threads(count: int, measure: Callable[[int], list[Row]]) -> list[Row]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return measure(count)
    finally:
        torch.set_num_threads(before)
