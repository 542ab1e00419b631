"""Runs on rows that are read in pieces: what `curvae fit` does with data that do not fit in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import Dataset, Schema, memory
from ..data.streams import Blocks
from ..training import Config, Fitted, fit
from ..training.stream_problem import IN_PIECES, held_out_rows, plan_stream
from .pieces import embedded_tables, loaded, opened, sampled
from .progress import Reporter
from .rows_run import RowsRun, choose_test_share
from .run import Outcome, Place
from .sources import DataSource, Source, Step

__all__ = ["SampledRun", "StreamRun"]


class SampledRun(RowsRun):
    """Rows for a comparison: all, or a sample of those that are larger than memory.

    Arguments:
        source, config: as of `RowsRun`.
        reporter: told how far the data were read, and of a sample.
    """

    def __init__(self, source: Source, config: Config, reporter: Reporter) -> None:
        self._reporter = reporter
        super().__init__(source, config)

    def _load(self, source: Source) -> tuple[Dataset, Schema]:
        found = loaded(source, self.config.seed, self._reporter)
        self.source = source if found.memory is None else replace(source, memory=found.memory)
        return found.data, found.schema


class StreamRun(RowsRun):
    """Rows that are read in pieces. Training and the table of the map see all of them; the report is about a sample,
    which is `data`.

    Arguments:
        source, config: as of `RowsRun`.
        blocks: of the source.
        reporter: told how far the data were read.
        before: description of the run that is resumed, or nothing.
    """

    hindrance = IN_PIECES

    def __init__(
        self, source: Source, config: Config, blocks: Blocks, reporter: Reporter, before: Mapping[str, Any]
    ) -> None:
        self._before = before
        # The memory decides on the order of the rows, so it is part of a run that may be resumed elsewhere.
        bound = source.memory or memory.size_text(memory.bound(None))
        self.stream = opened(source, blocks, bound, reporter)
        super().__init__(replace(source, memory=bound), config)

    def _load(self, source: Source) -> tuple[Dataset, Schema]:
        self.test = choose_test_share(self.config, len(self.stream), self._before)
        self.held_out = held_out_rows(self.config, self.stream, self.test)
        data, self.split = sampled(self.stream, self.held_out, self.config.seed)
        return data, self.stream.schema

    @property
    def rows(self) -> int:
        return len(self.stream)

    @property
    def fingerprint(self) -> str:
        return self.stream.fingerprint

    def _extremes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.stream.known.low, self.stream.known.high

    def _plan(self, before: Mapping[str, Any], processes: int) -> str:
        _, (task,) = plan_stream([self.config], self.stream, self.held_out)
        self.config, self.layout = task.config, task.layout
        return task.reason

    @property
    def _train_rows(self) -> int:
        return self.held_out.counts[0]

    def _fit(self, **where: Any) -> Fitted:
        return fit(self.config, self.stream, split=self.held_out, **where)

    def outcome(self, place: Place, named: DataSource, seconds: float, reporter: Reporter) -> Outcome:
        found = super().outcome(place, named, seconds, reporter)
        tables = embedded_tables(self.model, self.stream, found.frames, reporter, self.held_out)
        following = Step("evaluate", (str(place.folder), self.source.path))
        return replace(found, tables=tables, rows=self.rows, following=following)
