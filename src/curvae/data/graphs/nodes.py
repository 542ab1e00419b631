"""Labels and features of the nodes of a graph, from a table or from the graph itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...errors import CurvaeError
from ..column_values import numbers_of, texts_of
from ..dataset import check_ids
from ..files import require_file
from ..messages import count, quoted
from ..missing import column_means, missing_by_column, missing_counts, resolve
from ..schema import Column
from ..tables import named_frame, read_frame, require_column
from .raw_graph import RawGraph

__all__ = ["Filling", "NodeTable", "describe_nodes"]

Filling: TypeAlias = Literal["error", "mean"]
NodeTable: TypeAlias = str | Path | pd.DataFrame

_NAMES = ("id", "node", "name")  # usual names of the column with the names of nodes
_SPELLINGS = {spelling for name in _NAMES for spelling in (name, name.upper(), name.capitalize())}


def describe_nodes(
    raw: RawGraph,
    nodes: NodeTable | None,
    label: str | None,
    features: Sequence[str],
    isolated: bool,
    missing: Filling,
) -> None:
    """Add labels and features to the nodes of a graph; see `load_graph` for the arguments."""
    asked = [name for name in (label, *features) if name is not None]
    if nodes is not None:
        source, frame = _read(nodes, asked, raw)
        rows = _match(raw, source, frame, isolated)
        _report(raw, source, raw.names[rows < 0], bool(features) and missing == "error")
    elif raw.attributes is not None and len(raw.attributes.columns):
        source, frame, rows = Path(raw.source), raw.attributes, np.arange(len(raw.names))
    elif asked:
        raise CurvaeError(f"{raw.source} has no column {asked[0]!r} of nodes; give a table with nodes=…")
    else:
        return
    columns = [str(name) for name in frame.columns]
    require_column(source, "label", label, columns)
    for name in features:
        require_column(source, "features", name, columns)
    if label is not None:
        raw.labels, raw.label_name = _pick(texts_of(frame[label]), rows, ""), label
        if empty := int((raw.labels == "").sum()):
            raw.messages.note(f"{count(empty, 'node')} without a label in column {label!r}; the label is left empty.")
    if features:
        fix = "choose columns of numbers for features=…"
        numbers = numbers_of(source, frame[list(features)], tuple(map(Column, features)), fix, raw.messages)
        raw.features = _fill(source.name, _pick(numbers, rows, np.nan), features, missing, raw)
        raw.feature_names = tuple(features)


def _read(nodes: NodeTable, asked: Sequence[str], raw: RawGraph) -> tuple[Path, pd.DataFrame]:
    """Read the table; also return its path, or a name in place of it, for messages."""
    if not isinstance(nodes, pd.DataFrame):
        path = Path(nodes)
        try:
            require_file(path)
        except FileNotFoundError:
            raise CurvaeError(f"there is no table of nodes {path}; check the name") from None
        known = _SPELLINGS | set(asked)
        return path, read_frame(path, known, known, raw.messages, first=True)
    path = Path("the table of nodes")
    frame = named_frame(path, nodes)
    if frame.empty:
        raise CurvaeError(f"{path} is empty; give one row per node")
    return path, frame


def _match(raw: RawGraph, source: Path, frame: pd.DataFrame, isolated: bool) -> NDArray[np.intp]:
    """Find the row of the table for each node, or −1, (nodes,); add nodes that only the table names."""
    places = pd.Index(raw.names)
    # The first column names nodes, unless a column with a usual name matches more of them.
    usual = [name for name in frame.columns if str(name).casefold() in _NAMES]
    usual.sort(key=lambda name: _NAMES.index(str(name).casefold()))
    candidates = {name: texts_of(frame[name], strip=True) for name in (*usual, frame.columns[0])}
    name, ids = max(candidates.items(), key=lambda item: int((places.get_indexer(pd.Index(item[1])) >= 0).sum()))
    check_ids(ids, f"column {name!r} of {source.name}", fix="give one row per node")
    added = ids[places.get_indexer(pd.Index(ids)) < 0]
    if len(added) == len(ids):
        raise CurvaeError(
            f"{source.name} names {quoted(ids[:2])} in column {name!r} and {raw.source} has nodes "
            f"{quoted(raw.names[:2])}: no name is in both; use the same names"
        )
    if len(added):
        _add(raw, source, added, isolated)
    return pd.Index(ids).get_indexer(pd.Index(raw.names))


def _add(raw: RawGraph, source: Path, added: NDArray[np.str_], isolated: bool) -> None:
    if not isolated:
        raise CurvaeError(
            f"{source.name} names {count(len(added), 'node')} that {raw.source} does not have: {quoted(added)}; "
            "remove them, or add them without edges with isolated=True"
        )
    if raw.features is not None:
        raise CurvaeError(f"{raw.source} has features for its own nodes only; leave out isolated=True")
    raw.names = np.concatenate([raw.names, added])
    if raw.labels is not None:
        raw.labels = np.concatenate([raw.labels, np.full(len(added), "")])


def _report(raw: RawGraph, source: Path, absent: NDArray[np.str_], refused: bool) -> None:
    if absent.size:
        what = f"{source.name} has no row for {count(len(absent), 'node')} of {raw.source}: {quoted(absent)}"
        if refused:
            raise CurvaeError(f'{what}; add them, or use missing="mean"')
        raw.messages.warn(f"{what}; add them.")


def _pick(values: NDArray[Any], rows: NDArray[np.intp], otherwise: Any) -> NDArray[Any]:
    picked = values[rows]
    picked[rows < 0] = otherwise
    return picked


def _fill(
    source: str, x: NDArray[np.float64], names: Sequence[str], missing: Filling, raw: RawGraph
) -> NDArray[np.float64]:
    counts, where = missing_counts(x), missing_by_column(x, names)
    if counts.any() and missing == "error":
        raise CurvaeError(f'{source} has missing values of nodes, counted by column: {where}; use missing="mean"')
    if (counts == len(x)).any():
        raise CurvaeError(f"{source} has columns without a single value: {where}; leave them out of features=…")
    return resolve(x, names, column_means(x), missing, raw.messages)[0]
