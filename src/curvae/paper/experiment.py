"""What an experiment of the paper is made of, and where a piece of it is computed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import joblib
import torch

from ..data.files import count
from ..report import Section, Table
from ..report.page import Tone
from ..runs.run import Reporter

__all__ = [
    "FIGURES",
    "Experiment",
    "Page",
    "Plan",
    "Results",
    "Shard",
    "Workspace",
    "device_text",
    "markdown",
    "table_lines",
]

_PAUSE = 0.2  # seconds between two moves of a progress bar

FIGURES = "figures"  # folder of pictures, beside the results
Results = Mapping[str, Mapping[str, Any]]  # what the shards of an experiment gave, by name


@dataclass(frozen=True)
class Plan:
    """How much of an experiment to do.

    Attributes:
        quick: the same code with fewer seeds, epochs, cells and samples; its figures mean little.
        seed: the first of the seeds.
    """

    quick: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Workspace:
    """Where a shard is computed, and to whom it speaks.

    Attributes:
        device: on which to compute.
        cache: folder for trained models that other experiments can use.
        jobs: processes for trainings on a CPU.
        reporter: is told messages and progress.
        task: how the work is named in messages.
    """

    device: torch.device
    cache: Path
    jobs: int = 1
    reporter: Reporter = field(default_factory=Reporter)
    task: str = ""

    @property
    def figures(self) -> Path:
        """For pictures."""
        return self.cache.parent / FIGURES

    def progress(self, what: str) -> Callable[[float, float], None]:
        """A function to be told work done and work in all, which passes on what is news to a reader."""
        shown = -math.inf

        def tell(done: float, total: float) -> None:
            nonlocal shown
            now = time.monotonic()
            # Hundreds of models finish an epoch every few milliseconds; a bar that moved with each would slow them.
            if now - shown > _PAUSE or done >= total:
                shown = now
                self.reporter.progress(f"{self.task} {what}", done, total, "")

        return tell


@dataclass(frozen=True)
class Shard:
    """A piece of an experiment, small enough for a few minutes on one CUDA device.

    Attributes:
        name: unique within the experiment.
        settings: all that determines its figures, as JSON values; a stored result with others is out of date.
        work: computes its figures, as JSON values.
    """

    name: str
    settings: Mapping[str, Any]
    work: Callable[[Workspace], dict[str, Any]]


@dataclass(frozen=True)
class Page:
    """What a result says, for HTML and Markdown alike.

    Attributes:
        verdict: in a sentence.
        tone: of the verdict.
        sections: in order.
        brief: the result in a few rows.
        gallery: captions of pictures that shards drew, by file name in the folder of figures.
    """

    verdict: str
    tone: Tone
    sections: Sequence[Section]
    brief: Table | None = None
    gallery: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A table or a set of figures of the paper.

    Attributes:
        name: on the command line.
        title: in words.
        shards: the pieces, for a plan.
        summarise: cells and tests from the figures of all shards, as JSON values.
        page: from that summary.
        minutes: about how long all shards take on one H200.
    """

    name: str
    title: str
    shards: Callable[[Plan], Sequence[Shard]]
    summarise: Callable[[Results], dict[str, Any]]
    page: Callable[[Mapping[str, Any]], Page]
    minutes: float


def device_text(device: torch.device) -> str:
    """ "one NVIDIA H200", or the number of cores."""
    if device.type == "cuda":
        return f"one {torch.cuda.get_device_name(device)}"
    return count(joblib.cpu_count(), "CPU core")


def markdown(title: str, page: Page, warnings: Sequence[str], note: str, files: Mapping[int, str]) -> str:
    """The page as Markdown; `files` says where each picture lies."""
    lines = [f"# {title}", "", page.verdict, ""]
    for warning in warnings:
        lines += [f"> {warning}", ""]
    for section in page.sections:
        lines += [f"## {section.title}", ""]
        for paragraph in section.text:
            lines += [paragraph, ""]
        for picture in section.pictures:
            lines += [f"![{picture.alt}]({files[id(picture)]})", "", picture.caption, ""]
        for table in section.tables:
            lines += [*table_lines(table), ""]
            if table.note:
                lines += [table.note, ""]
    for name, caption in page.gallery.items():
        lines += [f"![{caption}]({FIGURES}/{name})", "", caption, ""]
    return "\n".join([*lines, note, ""])


def table_lines(table: Table) -> list[str]:
    """A table in Markdown."""
    rows = [table.header, ["---"] * len(table.header), *table.rows]
    return [f"| {' | '.join(cell.replace('|', '¦') for cell in row)} |" for row in rows]
