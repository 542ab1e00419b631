"""The map of a run, read from its files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data.files import opened_parquet, quoted
from ..errors import CurvaeError
from ..maps.embedding import Embedding, PlacedFactor
from ..settings.factors import NAME
from ..training.storage import unfinished_error
from .folders import coordinate_columns, embedding_path, read_embedding
from .training import run_of

__all__ = ["RefusedRowsError", "deviations", "open_map", "open_places", "open_thinned", "read_thinned", "table_pieces"]


# Some rows of the table of a map that has more than a page can hold: fewer where points are dense.

_ROWS = 1 << 17  # read at once
_RINGS = 200  # around the centre of the map
_CELLS = 1 << 22  # counted; cells beyond that share a count
_FAR = 30.0  # radius from which on cells are no smaller
_DRAWN = re.compile(rf"(?:{NAME}_)?map_\d+")


class RefusedRowsError(CurvaeError):
    """Rows were asked for that a map does not have."""


def read_thinned(path: Path, most: int, c: float, wanted: Collection[str] = ()) -> tuple[pd.DataFrame, int]:
    """The rows of `embedding.csv` or `.parquet` in their order, and how many there are in all: all of them, or where
    they are more than `most` a sample by density and those that are wanted.

    The map is cut into cells of equal area. A cell with few rows keeps all of them, and all others keep the same number
    on average, which is chosen so that the sample has `most` rows or hardly less.

    Arguments:
        path: the table.
        most: rows to return.
        c: minus the curvature of what is shown.
        wanted: ids of rows to be among them; raises for those that no row has.
    """
    table: pd.DataFrame | None = None
    if path.suffix == ".parquet":
        with opened_parquet(path) as file:
            rows = int(file.metadata.num_rows)
    else:
        table = read_embedding(path)
        rows = len(table)
    if rows > most:
        table = _sample_by_density(path, most, c, wanted)
    elif table is None:
        table = read_embedding(path)
    known = set(table["id"]) if wanted else set()
    if lacking := [name for name in wanted if name not in known]:
        raise RefusedRowsError(
            f"no row of the run has the id {quoted(lacking)}; check it with the embedding of the run"
        )
    return table, rows


def _sample_by_density(path: Path, most: int, c: float, wanted: Collection[str]) -> pd.DataFrame:
    """Sample at most so many rows, fewer where points are dense, with all that are wanted."""
    names = list(map(str, next(table_pieces(path)).columns))
    # The columns with places in the picture, or else the first two tangent coordinates.
    drawn = ([n for n in names if _DRAWN.fullmatch(n)] or [n for n in names if n.startswith("tangent_")])[:2]
    reach = max(float(_radius(piece, c).max()) for piece in table_pieces(path, drawn))
    counts = np.zeros(_CELLS, np.int64)
    for piece in table_pieces(path, drawn):
        counts += np.bincount(_cells(piece, c, reach), minlength=_CELLS)
    keep = np.minimum(1.0, _level(counts, 0.99 * most - len(wanted)) / np.maximum(counts, 1))
    parts = []
    for place, piece in enumerate(table_pieces(path)):
        chance = np.random.default_rng([17, place]).random(len(piece))
        kept = (chance < keep[_cells(piece[drawn], c, reach)]) | piece["id"].isin(list(wanted)).to_numpy()
        parts.append(piece[kept])
    table = pd.concat(parts, ignore_index=True)
    if len(table) > most:  # by chance
        others = np.flatnonzero(~table["id"].isin(list(wanted)).to_numpy())
        left_out = np.random.default_rng(17).choice(others, len(table) - most, replace=False)
        table = table.drop(left_out).reset_index(drop=True)
    return table


def table_pieces(path: Path, columns: list[str] | None = None) -> Iterator[pd.DataFrame]:
    """Some columns of the table of a map, by default all, a piece at a time; a text table in one."""
    if path.suffix != ".parquet":
        table = read_embedding(path)
        yield table if columns is None else table[columns]
        return
    with opened_parquet(path) as file:
        for batch in file.iter_batches(_ROWS, columns=columns):
            piece = batch.to_pandas()
            yield piece.astype({name: str for name in ("id", "label") if name in piece})


def _radius(places: pd.DataFrame, c: float) -> NDArray[np.float64]:
    """Distance from the centre of the map, in units of the curvature."""
    length = np.linalg.norm(places.to_numpy(np.float64), axis=1)
    if not c or str(places.columns[0]).startswith("tangent_"):
        return length * (np.sqrt(c) or 1.0)
    return 2 * np.arctanh(np.minimum(np.sqrt(c) * length, 1 - 1e-15))


def _cells(places: pd.DataFrame, c: float, reach: float) -> NDArray[np.int64]:
    """The cell in which every row lies: rings around the centre, each in sectors about as long as it is wide."""
    values = places.to_numpy(np.float64)
    radius = _radius(places, c)
    turn = np.arctan2(values[:, -1], values[:, 0]) / (2 * np.pi) % 1.0
    width = (reach or 1.0) / _RINGS
    ring = np.floor(radius / width)
    middle = np.minimum((ring + 0.5) * width, _FAR)
    around = 2 * np.pi * (np.sinh(middle) if c else middle)
    sector = np.floor(turn * np.ceil(around / width))
    # Mixed by a large odd number, of which the upper bits are spread evenly.
    mixed = (ring.astype(np.uint64) << np.uint64(44)) ^ sector.astype(np.uint64)
    return ((mixed * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(42)).astype(np.int64)


def _level(counts: NDArray[np.int64], total: float) -> float:
    """The number that cells keep so that Σ min(count, number) is the total.

    Example:
        >>> _level(np.array([1, 5, 10]), 9)
        4.0
    """
    ordered = np.sort(counts[counts > 0]).astype(np.float64)
    before = np.concatenate([[0.0], np.cumsum(ordered)[:-1]])
    levels = (total - before) / np.arange(len(ordered), 0, -1)  # if all cells from here on are cut
    fits = np.flatnonzero(levels <= ordered)
    return float(levels[fits[0]]) if len(fits) else float(ordered[-1])


_SIGMA = re.compile(rf"({NAME}_)?sigma")


def open_map(
    run: Path, description: Mapping[str, Any], read: Callable[[Path], pd.DataFrame] = read_embedding
) -> tuple[pd.DataFrame, Embedding]:
    """Open the table of the rows in `embedding.csv`, and where they lie.

    Arguments:
        run: folder.
        description: its `config.json`.
        read: reads rows of the table, all by default.
    """
    path = embedding_path(run)
    if description.get("kind") == "comparison":
        raise CurvaeError(f"{run} holds a comparison, which keeps no map; train one with curvae fit and give that")
    if not path.exists() or "summary" not in description:
        raise unfinished_error(run, description, run_of(description).fitted.kind)
    try:
        table = read(path)
        return table, _placed(table, description)
    except RefusedRowsError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        message = " ".join(str(error).split())
        raise CurvaeError(f"{path} is not as curvae fit wrote it ({message}); train again") from error


def open_places(
    run: Path, description: Mapping[str, Any], ids: Collection[str] | NDArray[np.int64]
) -> tuple[pd.DataFrame, Embedding]:
    """Open the rows with these ids, or with these numbers, without all others in memory."""
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

    return open_map(run, description, read)


def open_thinned(
    run: Path, description: Mapping[str, Any], most: int, wanted: Collection[str], new: Sequence[pd.DataFrame] = ()
) -> tuple[pd.DataFrame, Embedding, int]:
    """Open at most so many rows, those with the wanted ids among them, and count all.

    Tables of `new` rows are put below those of the run, and do not count.
    """
    rows = 0

    def read(path: Path) -> pd.DataFrame:
        nonlocal rows
        table, rows = read_thinned(path, most, float(np.atleast_1d(description["summary"]["c"])[0]), wanted)
        return pd.concat([table, *new], ignore_index=True) if new else table

    return *open_map(run, description, read), rows


def deviations(table: pd.DataFrame) -> list[str]:
    """Names of the columns with standard deviations: `sigma`, or of a product `h1_sigma`, `e2_sigma`."""
    return [name for name in map(str, table) if _SIGMA.fullmatch(name)]


def _placed(table: pd.DataFrame, description: Mapping[str, Any]) -> Embedding:
    """Points from their tangent coordinates, which tell those far out apart, in the factors of the run."""
    sigma = deviations(table)
    if lacking := {"id", "label", "split", "radius"} - set(table) | (set() if sigma else {"sigma"}):
        raise ValueError(f"it lacks {', '.join(sorted(lacking))}")
    fitted, summary = run_of(description).fitted, description["summary"]
    curvatures, scales = np.atleast_1d(summary["c"]), np.atleast_1d(summary["prior_scale"])
    written = fitted.settings.from_json(description["config"]).factors
    factors = tuple(
        PlacedFactor(f"{one.kind}{place}", one.dim, float(c), float(scale) if fitted.units else 1.0)
        for place, (one, c, scale) in enumerate(zip(written, curvatures, scales, strict=True), 1)
    )
    tangent = table.filter(regex=r"^tangent_\d+$").to_numpy(np.float64)
    if tangent.shape[1] != sum(factor.dim for factor in factors) or not tangent.size or not np.isfinite(tangent).all():
        raise ValueError("it has no coordinates")
    sigmas = table[sigma].to_numpy(np.float64, copy=True)  # not that of the table, which cannot be written to
    embedding = Embedding.from_tangent(tangent, sigmas if len(factors) > 1 else sigmas[:, 0], factors)
    if (own := coordinate_columns(embedding)).keys() - set(table):
        raise ValueError("it has other factors than the run")
    if not all(np.allclose(table[name], values) for name, values in own.items()):
        raise ValueError("its coordinates contradict one another")
    popularity = table.filter(regex="^popularity(_out|_in)?$").to_numpy(np.float64)
    if not popularity.size:
        return embedding
    side = table["side"].to_numpy(np.float64) if "side" in table else None
    return replace(embedding, popularity=popularity.squeeze(1) if popularity.shape[1] == 1 else popularity, side=side)
