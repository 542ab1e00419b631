"""What one pass over the files finds: figures of the columns of numbers, and which values other columns have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...errors import CurvaeError
from ..advice import ColumnAdvice
from ..column_values import numbers_of, texts_of
from ..covariates import covariate_numbers, refuse_gaps
from ..files import places
from ..messages import Messages, count, listing
from ..missing import Missing
from ..schema import Column
from ..tables import NOT_NUMBERS, exposure_of, sort_features
from ..text import MISSING
from .blocks import Blocks
from .parquet import ParquetBlocks
from .summary import Summary, summarised

__all__ = ["MOST", "Survey", "Tally", "remembered", "surveyed"]

MOST = 100_000
"""different values of a column of categories, at most"""

_GROUPS = 1_000_000  # the same of groups
_LOOK = 100  # different values of a covariate of numbers that are looked at


@dataclass
class Tally:
    """How often each value of a column occurs, in the order in which they appear: texts, or numbers where these are
    categories, for how a number is written depends on the others."""

    counts: dict[Any, int] = field(default_factory=dict)
    gaps: int = 0
    """rows without a value"""

    def __post_init__(self) -> None:
        self._places = {key: place for place, key in enumerate(self.counts)}

    def add(self, values: Any, digest: hashlib._Hash) -> None:
        """Count a series of pandas, and add the places of its values to a hash."""
        codes, distinct = pd.factorize(values)
        keys = _keys(pd.Series(distinct))
        times = np.bincount(codes + 1, minlength=len(keys) + 1)
        self.gaps += int(times[0])
        at = np.full(len(keys) + 1, -1, np.int64)
        for place, (key, number) in enumerate(zip(keys, times[1:].tolist(), strict=True)):
            if key is None:
                self.gaps += number
            elif number:
                at[place] = self._places.setdefault(key, len(self._places))
                self.counts[key] = self.counts.get(key, 0) + number
        digest.update(at[codes].tobytes())

    @property
    def texts(self) -> dict[str, int]:
        """How often each occurs, as a person would write it."""
        numbers = [key for key in self.counts if not isinstance(key, str)]
        whole = all(key % 1 == 0 for key in numbers)
        found: dict[str, int] = {}
        for key, number in self.counts.items():
            text = key if isinstance(key, str) else str(int(key) if whole else float(key))
            found[text] = found.get(text, 0) + number
        return found


def _keys(distinct: Any) -> list[Any]:
    """Values as a tally has them; None for those that are missing."""
    kind = pd.api.types
    if kind.is_numeric_dtype(distinct.dtype) and not kind.is_bool_dtype(distinct.dtype):
        return distinct.tolist()
    return [None if text in MISSING else text for text in texts_of(distinct, strip=True).tolist()]


@dataclass(frozen=True)
class Survey:
    """What is known of the columns of files.

    Arguments:
        numbers: figures of the columns of numbers.
        names: of these columns: features, covariates and the exposure; None of a matrix.
        tallies: of columns of categories, covariates that are texts, and groups, by name.
        few: different values of covariates that are numbers, where there are few.
        notes, warnings: about what was converted.
        left_out: columns of texts that are not used, with the reason.
    """

    numbers: Summary
    names: tuple[str, ...] | None = None
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    few: Mapping[str, list[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return self.numbers.digest

    def to_arrays(self) -> dict[str, Any]:
        """What `from_arrays` makes a survey of."""
        tallies = {name: [list(tally.counts.items()), tally.gaps] for name, tally in self.tallies.items()}
        others = [self.names, tallies, self.few, self.notes, self.warnings, self.left_out]
        return {**vars(self.numbers), "others": json.dumps(others)}

    @classmethod
    def from_arrays(cls, values: dict[str, Any]) -> Survey:
        names, tallies, few, notes, warnings, left_out = json.loads(str(values.pop("others")))
        numbers = Summary(**values | {"rows": int(values["rows"]), "digest": str(values["digest"])})
        known = {name: Tally(dict(counts), gaps) for name, (counts, gaps) in tallies.items()}
        names = None if names is None else tuple(names)
        return cls(numbers, names, known, few, tuple(notes), tuple(warnings), left_out)


def surveyed(blocks: Blocks, advance: Callable[[int], None] = lambda rows: None, missing: Missing = "error") -> Survey:
    """Read all blocks once, or take what is remembered of them.

    Arguments:
        blocks: the files.
        advance: told how many more rows were read.
        missing: what is going to be done about missing values, for advice about columns that need a role.
    """
    found = remembered(
        "summaries",
        blocks.mark,
        Survey.from_arrays,
        lambda: (
            _Pass(blocks, missing).made(advance) if isinstance(blocks, ParquetBlocks) else _of_matrix(blocks, advance)
        ),
        Survey.to_arrays,
    )
    if found.numbers.rows < 2:
        raise CurvaeError(f"{blocks.path.name} has fewer than 2 rows to learn from; give more")
    return found


def remembered(folder: str, mark: str, read: Callable[[dict[str, Any]], Any], make: Any, store: Any) -> Any:
    """Something from the user's cache, or made and kept there.

    Arguments:
        folder: of the cache.
        mark: of what it was made from.
        read: makes it of arrays by name.
        make: makes it where the cache has none.
        store: makes arrays by name of it.
    """
    path = places(folder)[-1] / f"{mark}.npz"
    with suppress(OSError, ValueError, KeyError, TypeError):
        with np.load(path, allow_pickle=False) as stored:
            values = {name: stored[name] for name in stored.files}
        return read(values)
    found = make()
    with suppress(OSError):  # where nothing can be kept, it is read again
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez(part, **store(found))
        part.replace(path)
    return found


def _of_matrix(blocks: Blocks, advance: Callable[[int], None]) -> Survey:
    pieces = (raw.x for block in range(len(blocks.sizes)) for raw in blocks.read(block))
    return Survey(summarised(pieces, blocks.path.name, advance, blocks.names))


class _Pass:
    """A pass over a table."""

    def __init__(self, blocks: ParquetBlocks, missing: Missing) -> None:
        self._blocks, roles = blocks, blocks.roles
        told = {name: blocks.kinds[name] != "numbers" or name in roles.categorical for name in roles.covariates}
        self._covariates = [name for name, texts in told.items() if not texts]
        counted = {*roles.categorical, *(name for name, texts in told.items() if texts)}
        counted |= set() if roles.group is None else {roles.group}
        self._tallies = {name: Tally() for name in sorted(counted)}
        self._features = [name for name in blocks.names if name not in roles.categorical]
        self._few: dict[str, set[float]] = {name: set() for name in self._covariates}
        self._digest, self._messages = hashlib.sha256(), Messages()
        self._left_out = self._sort_texts(missing)
        self._features = [name for name in self._features if name not in self._left_out]

    def _sort_texts(self, missing: Missing) -> dict[str, str]:
        """Columns of texts to leave out, by the first rows; raises if others need a role."""
        blocks, roles = self._blocks, self._blocks.roles
        if all(blocks.kinds[name] == "numbers" for name in self._features):
            return {}
        path, frame, _ = next(blocks.frames(0, blocks.names))
        choices: tuple[Missing, ...] = ("model", "mean") if missing == "error" else ()
        advice = ColumnAdvice(blocks.path.name, roles.id is not None, roles.label is not None, choices)
        return sort_features(path, frame, roles.categorical, advice, Messages())[-1]

    def made(self, advance: Callable[[int], None]) -> Survey:
        exposure = self._blocks.roles.exposure
        names = (*self._features, *self._covariates, *([] if exposure is None else [exposure]))
        numbers = summarised(self._pieces(), self._blocks.path.name, advance, names)
        self._require_told()
        if self._tallies:
            counts = [[name, list(tally.counts)] for name, tally in self._tallies.items()]
            self._digest.update(json.dumps([numbers.digest, counts]).encode())
            numbers = replace(numbers, digest=self._digest.hexdigest())
        few = {name: sorted(values) for name, values in self._few.items()}
        notes, warnings = (tuple(dict.fromkeys(said)) for said in (self._messages.notes, self._messages.warnings))
        return Survey(numbers, names, self._tallies, few, notes, warnings, self._left_out)

    def _pieces(self) -> Iterator[NDArray[np.float64]]:
        for block in range(len(self._blocks.sizes)):
            for path, frame, first in self._blocks.frames(block, self._blocks.columns()):
                for name, tally in self._tallies.items():
                    tally.add(frame[name], self._digest)
                    self._require_few(name, tally)
                yield self._numbers(path, frame, first)

    def _numbers(self, path: Path, frame: pd.DataFrame, first: int) -> NDArray[np.float64]:
        """The columns of numbers of some rows."""
        columns = tuple(Column(name) for name in self._features)
        parts = [numbers_of(path, frame[self._features], columns, NOT_NUMBERS, self._messages, first)]
        if self._covariates:
            columns = tuple(Column(name) for name in self._covariates)
            parts.append(covariate_numbers(path, frame[self._covariates], columns, first))
            for name, values in zip(self._covariates, parts[-1].T, strict=True):
                if len(self._few[name]) < _LOOK:
                    self._few[name].update(np.unique(values)[:_LOOK].tolist())
        if (exposure := self._blocks.roles.exposure) is not None:
            parts.append(exposure_of(path, frame, exposure, self._messages)[:, np.newaxis])
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def _require_few(self, name: str, tally: Tally) -> None:
        most = _GROUPS if name == self._blocks.roles.group else MOST
        if len(tally.counts) > most:
            raise CurvaeError(
                f"column {name!r} of {self._blocks.path.name} has more than {most:,} different values; leave it out"
            )

    def _require_told(self) -> None:
        """Raise where a covariate or a group is missing."""
        roles, path = self._blocks.roles, self._blocks.path
        gaps = {name: tally.gaps for name, tally in self._tallies.items() if tally.gaps}
        if where := [f"{name!r} ({gaps[name]:,})" for name in roles.covariates if name in gaps]:
            refuse_gaps(path, listing(where))
        if roles.group in gaps:
            raise CurvaeError(
                f"group column {roles.group!r} is empty in {count(gaps[roles.group], 'row')}; give every row a group"
            )
