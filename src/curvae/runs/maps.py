"""The map of a run, read from its files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data.messages import quoted
from ..errors import CurvaeError
from ..training.embedding import Embedding, PlacedFactor
from ..training.storage import COMMANDS
from .folders import coordinate_columns, embedding_path, read_embedding
from .kinds import run_of
from .thinning import RefusedRowsError, read_thinned, table_pieces

__all__ = ["deviations", "open_map", "open_places", "open_thinned"]

_SIGMA = re.compile(r"([he]\d+_)?sigma")
_COORDINATE = re.compile(r"(?:([he]\d+)_)?ball_\d+|(e\d+)_\d+")


def open_map(run: Path, description: Mapping[str, Any]) -> tuple[pd.DataFrame, Embedding]:
    """The table of the rows in `embedding.csv`, and where they lie; `description` is `config.json`."""
    return _opened(run, description, read_embedding)


def open_places(
    run: Path, description: Mapping[str, Any], ids: Collection[str] | NDArray[np.int64]
) -> tuple[pd.DataFrame, Embedding]:
    """The same of the rows with these ids, or with these numbers, without all others in memory."""
    numbers = isinstance(ids, np.ndarray) and ids.dtype.kind == "i"
    wanted = pd.Index(ids)

    def read(path: Path) -> pd.DataFrame:
        parts, start = [], 0
        for piece in table_pieces(path):
            own = pd.RangeIndex(start, start + len(piece)) if numbers else pd.Index(piece["id"])
            parts.append(piece[own.isin(wanted)])
            start += len(piece)
        if not any(map(len, parts)):
            raise RefusedRowsError(
                f"no row of the data is in {run}: rows are called {quoted(wanted[:3])}; name them as in the run"
            )
        return pd.concat(parts, ignore_index=True)

    return _opened(run, description, read)


def open_thinned(
    run: Path, description: Mapping[str, Any], most: int, wanted: Collection[str], new: Sequence[pd.DataFrame] = ()
) -> tuple[pd.DataFrame, Embedding, int]:
    """The same of at most so many rows, those with the wanted ids among them, and how many there are in all.

    Tables of `new` rows are put below those of the run, and do not count.
    """
    rows = 0

    def read(path: Path) -> pd.DataFrame:
        nonlocal rows
        table, rows = read_thinned(path, most, float(np.atleast_1d(description["summary"]["c"])[0]), wanted)
        return pd.concat([table, *new], ignore_index=True) if new else table

    return *_opened(run, description, read), rows


def _opened(
    run: Path, description: Mapping[str, Any], read: Callable[[Path], pd.DataFrame]
) -> tuple[pd.DataFrame, Embedding]:
    path = embedding_path(run)
    if description.get("kind") == "comparison":
        raise CurvaeError(f"{run} holds a comparison, which keeps no map; train one with curvae fit and give that")
    if not path.exists() or "summary" not in description:
        command = COMMANDS[run_of(description).fitted.kind]
        raise CurvaeError(f"{run} is not finished: it has no map yet; finish it with {command} and resume=True")
    try:
        table = read(path)
        return table, _placed(table, description["summary"], run_of(description).fitted.units)
    except RefusedRowsError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        message = " ".join(str(error).split())
        raise CurvaeError(f"{path} is not as curvae fit wrote it ({message}); train again") from error


def deviations(table: pd.DataFrame) -> list[str]:
    """Names of the columns with standard deviations: `sigma`, or of a product `h1_sigma`, `e2_sigma`."""
    return [name for name in map(str, table) if _SIGMA.fullmatch(name)]


def _placed(table: pd.DataFrame, summary: Mapping[str, Any], units: bool) -> Embedding:
    """Points from their tangent coordinates, which tell those far out apart, and the factors from the names."""
    sigma = deviations(table)
    if lacking := {"id", "label", "split", "radius"} - set(table) | (set() if sigma else {"sigma"}):
        raise ValueError(f"it lacks {', '.join(sorted(lacking))}")
    places = [found[1] or found[2] for name in map(str, table) if (found := _COORDINATE.fullmatch(name))]
    dims = {name: places.count(name) for name in dict.fromkeys(places)}
    curvatures, scales = np.atleast_1d(summary["c"]), np.atleast_1d(summary["prior_scale"])
    if len(dims) != len(curvatures):
        raise ValueError("it has other factors than the run")
    factors = tuple(
        PlacedFactor(name or ("h1" if c else "e1"), dim, float(c), float(scale) if units else 1.0)
        for (name, dim), c, scale in zip(dims.items(), curvatures, scales, strict=True)
    )
    tangent = table.filter(regex=r"^tangent_\d+$").to_numpy(np.float64)
    if tangent.shape[1] != len(places) or not tangent.size or not np.isfinite(tangent).all():
        raise ValueError("it has no coordinates")
    sigmas = table[sigma].to_numpy(np.float64, copy=True)  # not that of the table, which cannot be written to
    embedding = Embedding.from_tangent(tangent, sigmas if len(factors) > 1 else sigmas[:, 0], factors)
    if not all(np.allclose(table[name], values) for name, values in coordinate_columns(embedding).items()):
        raise ValueError("its coordinates contradict one another")
    popularity = table.filter(regex="^popularity(_out|_in)?$").to_numpy(np.float64)
    if not popularity.size:
        return embedding
    side = table["side"].to_numpy(np.float64) if "side" in table else None
    return replace(embedding, popularity=popularity.squeeze(1) if popularity.shape[1] == 1 else popularity, side=side)
