"""Tables of maps, with the coordinates of every row, in files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from csv import QUOTE_MINIMAL, QUOTE_NONNUMERIC
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data.files import guard, require_file, unguard
from ..data.text_tables import EXACT
from ..errors import require
from ..geometry.frames import Frame
from ..maps.charts import numbered_columns
from ..maps.embedding import Embedding
from .storage import replacing

__all__ = [
    "coordinate_columns",
    "embedding_path",
    "embedding_table",
    "read_embedding",
    "table_ending",
    "write_tables",
]

PARQUET_ROWS = 1_000_000  # from which on the table of a map is a Parquet file

_GROUP = 1 << 15  # rows of a row group, at least


def embedding_table(
    embedding: Embedding,
    ids: NDArray[Any],
    labels: NDArray[Any] | None,
    split: Any,
    thing: str = "row",
    frames: Sequence[Frame] | None = None,
) -> pd.DataFrame:
    """Return the rows of `embedding.csv`, in full precision; raise for rows without a place on the map.

    Of a product, coordinates and standard deviations of a factor begin with its name: `h1_ball_1`, `h1_sigma`; those of
    a flat factor are metric, `e2_1`. Tangent coordinates are those of all factors, in units of the prior scales.
    `map_1` and `map_2`, or `h1_map_1`, are where pictures show a row that is seen from the frames.
    """
    embedding.require_finite(ids, thing)
    named = {"id": ids, "label": [""] * len(ids) if labels is None else labels, "split": split}
    coordinates = coordinate_columns(embedding) | numbered_columns("tangent", embedding.tangent)
    sigma: dict[str, Any] = {"sigma": embedding.sigma}
    if len(embedding.placed) > 1:
        sigma = {f"{part.placed[0].name}_sigma": part.sigma for part in embedding.parts}
    drawn: dict[str, NDArray[np.float64]] = {}
    if frames is not None:
        for part, frame in zip(embedding.parts, frames, strict=True):
            name = "map" if len(frames) == 1 else f"{part.placed[0].name}_map"
            drawn |= numbered_columns(name, part.chart.place(frame, part.points))
    own: dict[str, Any] = {}
    if (reach := embedding.popularity) is not None:
        own = {"popularity": reach} if reach.ndim == 1 else dict(zip(_BOTH_WAYS, reach.T, strict=True))
    if embedding.side is not None:
        own["side"] = embedding.side
    return pd.DataFrame({**named, **coordinates, "radius": embedding.radius, **sigma, **own, **drawn})


_BOTH_WAYS = ("popularity_out", "popularity_in")


def coordinate_columns(embedding: Embedding) -> dict[str, NDArray[np.float64]]:
    """Return coordinates in the space by the names of their columns."""
    columns: dict[str, NDArray[np.float64]] = {}
    for part in embedding.parts:
        columns |= part.chart.columns(part.points, part.placed[0].name if len(embedding.placed) > 1 else "")
    return columns


def embedding_path(folder: Path, rows: int = 0) -> Path:
    """Return the path of the table of a map: `embedding.parquet` if it is there or has so many rows, or else a CSV."""
    parquet = folder / "embedding.parquet"
    return parquet if parquet.exists() else folder / f"embedding{table_ending(rows)}"


def table_ending(rows: int) -> str:
    """Return the ending of a table of so many rows: long ones are Parquet files, where pyarrow is installed."""
    return ".parquet" if rows >= PARQUET_ROWS and find_spec("pyarrow") is not None else ".csv"


def write_tables(path: Path, tables: Iterable[pd.DataFrame]) -> None:
    """Write tables of the same columns below each other, each when it is made, atomically.

    They become a Parquet file, or a CSV file in which a spreadsheet finds no formulas.
    """
    with replacing(path) as file:
        if path.suffix == ".parquet":
            _write_parquet(path, file, tables)
            return
        for place, table in enumerate(tables):
            file.write(_csv_text(table, header=not place).encode(errors="backslashreplace"))


def _write_parquet(path: Path, file: IO[bytes], tables: Iterable[pd.DataFrame]) -> None:
    """Write tables in row groups of many rows each, for the file keeps something in memory for every row group."""
    arrow = require("pyarrow", f"{path.name} needs pyarrow to be written", "parquet", otherwise="write a .csv file")
    writer: Any = None
    held: list[Any] = []

    def write() -> None:
        nonlocal writer
        writer = writer or arrow.parquet.ParquetWriter(file, held[0].schema)
        writer.write_table(arrow.concat_tables(held))
        held.clear()

    for table in tables:
        texts = table.select_dtypes(exclude="number").astype(str)
        held.append(arrow.Table.from_pandas(table.assign(**texts), preserve_index=False))
        if sum(map(len, held)) >= _GROUP:
            write()
    if held:
        write()
    writer.close()


def _csv_text(table: pd.DataFrame, header: bool) -> str:
    texts = table.select_dtypes(exclude="number").astype(str)
    # Without quotes, some readers drop blanks around a cell or take a return for the end of the line.
    delicate = any(bool(texts[name].str.contains(r"^\s|\s$|\r").any()) for name in texts)
    table = table.copy(deep=False)
    for name in texts:
        table[name] = texts[name].map(guard)
    table = table.rename(columns=guard)
    return table.to_csv(index=False, header=header, quoting=QUOTE_NONNUMERIC if delicate else QUOTE_MINIMAL)


def read_embedding(path: Path) -> pd.DataFrame:
    """Read what `write_tables` wrote of an `embedding_table`."""
    require_file(path)
    if path.suffix == ".parquet":
        table = pd.read_parquet(path)
        return table.astype({name: str for name in ("id", "label") if name in table})
    texts = ("id", "label")
    table = pd.read_csv(path, dtype=dict.fromkeys(texts, str), keep_default_na=False, **EXACT)
    return table.assign(**{name: table[name].map(unguard) for name in texts if name in table})
