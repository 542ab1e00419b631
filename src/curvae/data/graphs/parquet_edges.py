"""Lists of edges in Parquet files, of which only the columns needed are read."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CurvaeError
from .. import memory
from ..messages import count
from ..tables import opened_parquet
from .coded import Coded, code_numbers, number_nodes
from .edgelist import Ends, end_columns, weight_column
from .objects import from_frame
from .plain_lists import coded_arrays
from .raw_graph import RawGraph

__all__ = ["read_parquet_edges"]


def read_parquet_edges(path: Path, weighted: bool, ends: Ends | None = None) -> RawGraph:
    """Read a list of edges, one a row; columns are found by their names as in a text file with a header."""
    with opened_parquet(path) as file:
        header = [str(name) for name in file.schema_arrow.names if not name.startswith("__index_level")]
        if len(header) < 2:
            raise CurvaeError(f"{path.name} has one column or none; give two that name nodes")
        left, right = end_columns(path, header, len(header), ends)
        wanted = [header[left], header[right]]
        if weighted:
            wanted.append(header[weight_column(path.name, header, len(header), (left, right))])
        rows = file.metadata.num_rows
        memory.require(64 * rows * len(wanted), f"{path.name} ({rows:,} edges)", fix="use fewer edges")
        table = file.read(wanted).select(wanted)
    coded = _coded(path, table)
    if coded is None:
        raw = from_frame(table.to_pandas(), weighted, path.name, (header[left], header[right]))
    else:
        raw = RawGraph(path.name, *number_nodes(coded), ends=(header[left], header[right]))
        if weighted:
            raw.set_weights(table.column(2).to_pandas(), weighted, lambda row: f"row {row + 1}")
    if not weighted and len(header) > 2:
        left_out = count(len(header) - 2, "column")
        raw.messages.note(f"left out: {left_out} beside the names; use weighted=True to read weights.")
    return raw


def _coded(path: Path, table: Any) -> Coded | None:
    """The names in the first two columns, if both are whole numbers or both are texts."""
    types = import_module("pyarrow").types
    ends = [table.column(place) for place in (0, 1)]
    for side in ends:
        if side.null_count:
            row = int(np.argmax(np.concatenate([_gaps(chunk) for chunk in side.chunks])))
            raise CurvaeError(f"{path.name}: row {row + 1} names only one node; give two")
    if all(types.is_integer(side.type) and side.type != "uint64" for side in ends):
        numbers, codes = code_numbers(np.stack([side.to_numpy() for side in ends]))
        return Coded(numbers.astype(np.str_), codes)
    if not all(types.is_string(side.type) or types.is_large_string(side.type) for side in ends):
        return None
    names, codes = coded_arrays([side.cast("string") for side in ends])
    for side in codes:
        if (empty := (names == "")[side]).any():
            raise CurvaeError(f"{path.name}: row {int(np.argmax(empty)) + 1} names only one node; give two")
    return Coded(names, codes)


def _gaps(chunk: Any) -> NDArray[np.bool_]:
    return np.asarray(chunk.is_null())
