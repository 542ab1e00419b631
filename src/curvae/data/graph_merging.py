"""Merge the links that a reader found to a graph, and describe its nodes.

Labels and features of the nodes come from a table, which is matched by their names, from a matrix, or from the source
of the graph itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import connected_components

from ..errors import CurvaeError
from .column_statistics import column_statistics, has_missing, missing_by_column, resolve_missing
from .columns import FrameTable
from .dataset import Column, as_matrix, check_ids, feature_names, one_hot
from .files import Messages, count, quoted, require_file
from .graph_data import Graph, link_matrix
from .matrices import read_npy, read_sparse
from .tables import TABLES, named_frame, read_frame, require_column
from .text_tables import NUMBER, UNNAMED

__all__ = [
    "Categories",
    "Filling",
    "Matrix",
    "NodeRequest",
    "NodeTable",
    "RawGraph",
    "describe_nodes",
    "is_table",
    "merge_links",
    "names_nodes",
    "read_matrix",
]

Filling: TypeAlias = Literal["error", "mean"]
Matrix: TypeAlias = NDArray[np.float64] | csr_array
Categories: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
NodeTable: TypeAlias = str | Path | pd.DataFrame

_NAMES = ("id", "node", "name")  # usual names of the column with the names of nodes


@dataclass
class RawGraph:
    """A graph as a reader found it: links may have a direction, repeat, or lead from a node to itself.

    Arguments:
        source: name of the graph in messages.
        names: name of each node, (nodes,).
        links: positions of the two nodes of each link, (links, 2).
        weights: weight of each link, (links,), or None.
        directed: whether the source says that its links have a direction; None if it does not say.
        attributes: what the source says about its nodes, one row per node.
        features, feature_names, labels, label_name: as in `Graph`.
        header: the two names in a first line that was left out because no other line has them; else empty.
        ends: names of the columns with the first and the second node of an edge, if they have any.
        messages: notes and warnings so far.
    """

    source: str
    names: NDArray[np.str_]
    links: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    directed: bool | None = None
    attributes: pd.DataFrame | None = None
    features: Matrix | None = None
    feature_names: tuple[str, ...] = ()
    labels: NDArray[np.str_] | None = None
    label_name: str | None = None
    header: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    messages: Messages = field(default_factory=Messages)

    def set_weights(self, weights: Any, wanted: bool, where: Callable[[int], str] | None = None) -> None:
        """Set the weights of the links, or note that they are left out; raise unless all are positive and finite.

        Arguments:
            weights: numbers or texts, (links,), or None for a graph without weights.
            wanted: whether to set them.
            where: says where the link with a given number is found; by default the two nodes are named.
        """
        if weights is None:
            return
        if not wanted:
            self.messages.note("weights were left out; use `weighted=True` to read them.")
            return
        values = np.asarray(weights)
        numeric = values.dtype.kind in "biuf"
        numbers = values.astype(np.float64) if numeric else np.array([_number(value) for value in values.tolist()])
        if (wrong := ~(np.isfinite(numbers) & (numbers > 0))).any():
            link = int(np.argmax(wrong))
            place = f"the edge of {quoted(self.names[self.links[link]])}" if where is None else where(link)
            weight, number = values.tolist()[link], numbers[link]
            said = "no weight" if weight is None else f"weight {weight!r}" if np.isnan(number) else f"weight {number:g}"
            raise CurvaeError(f"{self.source}: {place} has {said}; give positive numbers, or leave out `weighted=True`")
        self.weights = numbers


def _number(value: Any) -> float:
    """Convert a value to a number, or to NaN if it is none."""
    try:
        return float(value) if not isinstance(value, str) or re.fullmatch(NUMBER, value.strip()) else np.nan
    except (TypeError, ValueError):
        return np.nan


def merge_links(raw: RawGraph, directed: bool = False) -> Graph:
    """Make a graph of the links, without loops and with each edge once, and note what was done to them.

    Weights of repeated links are summed. The two directions of an edge are summed too, unless the weights agree for all
    edges: then the source is a symmetric matrix or a list that gives every edge twice.

    Arguments:
        raw: the links, with what is known about the nodes.
        directed: whether each direction of an edge is kept.
    """
    messages, nodes = raw.messages, len(raw.names)
    if directed and raw.directed is False:
        raise CurvaeError(f"the edges of {raw.source} have no direction; leave out `directed=True`")
    if directed and raw.ends:
        messages.note("edges lead from {!r} to {!r}.".format(*raw.ends))
    keep = raw.links[:, 0] != raw.links[:, 1]
    if loops := int((~keep).sum()):
        messages.note(f"left out: {count(loops, 'self loop')}.")
    if not keep.any():
        raise CurvaeError(f"{raw.source} has no edges{' between different nodes' if loops else ''}; give at least one")
    edges, weights = _merge_arcs(raw, keep, directed)
    alone = np.bincount(edges.ravel(), minlength=nodes) == 0
    if alone.any():
        messages.note(f"kept without an edge: {count(int(alone.sum()), 'node')}: {quoted(raw.names[alone])}.")
    sizes = np.bincount(connected_components(link_matrix(edges, nodes, directed=True), directed=False)[1])
    if len(sizes) > 1:
        messages.note(f"the graph has {len(sizes):,} components, the largest of {count(int(sizes.max()), 'node')}.")
    return Graph(
        raw.names,
        edges,
        weights,
        raw.features,
        raw.feature_names,
        raw.labels,
        raw.label_name if raw.labels is not None else None,
        tuple(messages.notes),
        tuple(messages.warnings),
        directed,
    )


def _merge_arcs(
    raw: RawGraph, keep: NDArray[np.bool_], directed: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Keep each edge among some links once, or each direction of it; see `merge_links`."""
    nodes, (tail, head) = len(raw.names), raw.links[keep].T
    weights = None if raw.weights is None else raw.weights[keep]
    if raw.directed is False:
        tail, head = np.minimum(tail, head), np.maximum(tail, head)
    arcs, weights = _sum_by_key(tail * nodes + head, weights)
    tail, head = np.divmod(arcs, nodes)
    keys, summed = _sum_by_key(np.minimum(tail, head) * nodes + np.maximum(tail, head), weights)
    pairs = len(arcs) - len(keys)  # of nodes that have an arc each way
    symmetric = 2 * pairs == len(arcs)
    if symmetric and weights is not None:
        back = np.argsort(head * nodes + tail)  # of these, sorted, the arcs are the same
        symmetric = np.allclose(weights[back], weights, rtol=1e-9, atol=0)
        summed = weights[tail < head] if symmetric else summed
    _note_merged(raw, int(keep.sum()) - len(arcs), len(arcs), pairs, symmetric, directed)
    return np.stack([tail, head] if directed else np.divmod(keys, nodes), axis=1), weights if directed else summed


def _sum_by_key(keys: NDArray[np.int64], weights: NDArray[np.float64] | None) -> tuple[NDArray[np.int64], Any]:
    """List the different keys in ascending order, and the sum of the weights of each, if there are weights."""
    if weights is not None:
        different, place = np.unique(keys, return_inverse=True)
        return different, np.bincount(place, weights)
    keys.sort()
    fresh = np.append(True, keys[1:] != keys[:-1])
    return keys if fresh.all() else keys[fresh], None


def _note_merged(raw: RawGraph, repeated: int, arcs: int, pairs: int, symmetric: bool, directed: bool) -> None:
    """Note how many links were repeated and how many arcs ran both ways."""
    note, summed = raw.messages.note, ", weights summed" if raw.weights is not None else ""
    if repeated:
        note(f"merged: {count(repeated, 'repeated edge')}{summed}.")
    if directed and symmetric:
        raw.messages.warn("every edge runs both ways, and no direction can be learned; leave out `directed=True`.")
    elif directed and pairs:
        note(f"{count(pairs, 'pair')} of nodes with an edge in both directions.")
    elif raw.directed and not directed:
        ways = f"; {count(pairs, 'pair')} ran both ways{'' if symmetric else summed}" if pairs else ""
        note(f"directions were left out: {count(arcs, 'arc')} became {count(arcs - pairs, 'edge')}{ways}.")
    elif symmetric and not directed:
        note("every edge was given in both directions; each is kept once.")
    elif pairs:
        note(f"given in both directions and merged: {count(pairs, 'edge')}{summed}.")


@dataclass(frozen=True)
class NodeRequest:
    """What is asked about the nodes of a graph; see `load_graph` for the fields."""

    nodes: NodeTable | None = None
    label: str | None = None
    features: Sequence[str] | None = None
    features_file: Any = None
    categorical: Categories = ()
    isolated: bool = False
    missing: Filling = "error"

    def __post_init__(self) -> None:
        if self.missing not in get_args(Filling):
            raise CurvaeError(f"missing is {self.missing!r}; use one of {', '.join(get_args(Filling))}")
        for name in ("features", "categorical"):
            if isinstance(text := getattr(self, name), str):
                raise CurvaeError(f"{name} is the text {text!r}; give a list of columns")
        if self.isolated and self.nodes is None:
            raise CurvaeError("only a table of nodes can name nodes without edges; give it with `nodes=…`")

    @property
    def columns(self) -> list[str]:
        """Columns with features that are asked for by name."""
        return [*(self.features or ()), *self.categorical]


class _NodeRows(NamedTuple):
    """The rows of a table that belong to nodes: its column with names, these, and the row of each node or −1."""

    table: FrameTable
    key: str | None
    ids: NDArray[np.str_]
    rows: NDArray[np.intp]


def describe_nodes(raw: RawGraph, asked: NodeRequest) -> None:
    """Add labels and features to the nodes of a graph."""
    listed = None if asked.nodes is None else _match(raw, asked.nodes, asked)
    found, automatic = listed, listed is not None and asked.features is None and raw.features is None
    if listed is None and raw.attributes is not None and len(raw.attributes.columns):
        found = _NodeRows(FrameTable(Path(raw.source), raw.attributes), None, raw.names, np.arange(len(raw.names)))
    aside = asked.features_file is not None
    named = ([] if asked.label is None else [asked.label]) + ([] if aside else asked.columns)
    if found is None and named:
        raise CurvaeError(f"{raw.source} has no column {named[0]!r} of nodes; give a table with `nodes=…`")
    if found is not None and asked.label is not None:
        require_column(found.table.path, "label", asked.label, found.table.names)
        raw.labels, raw.label_name = found.table.texts(asked.label)[found.rows], asked.label
        raw.labels[found.rows < 0] = ""
        if empty := int((raw.labels == "").sum()):
            raw.messages.note(
                f"{count(empty, 'node')} without a label in column {asked.label!r}; the label is left empty."
            )
    if aside and not is_table(asked.features_file):
        _add_matrix(raw, None if listed is None else listed.ids, asked)
    elif aside:
        _add_columns(raw, _match(raw, asked.features_file, asked), asked, automatic=not asked.columns)
    elif found is not None:
        _add_columns(raw, found, asked, automatic)
    if aside and raw.features is None:
        raise CurvaeError(
            "`features_file` has no column of numbers; give one, or name text columns with `categorical=…`"
        )


def _match(raw: RawGraph, nodes: NodeTable, asked: NodeRequest) -> _NodeRows:
    """Read a table of nodes and match its rows by name; nodes that only the table names are added if asked for."""
    table = _read(nodes, [*asked.columns, *([asked.label] if asked.label else [])], raw.messages)
    known, source = pd.Index(raw.names), table.path.name
    # The first column names nodes, unless a column with a usual name matches more of them.
    usual = [name for spelling in _NAMES for name in table.names if name.casefold() == spelling]
    candidates = {name: table.texts(name, strip=True) for name in (*usual, table.names[0])}
    key, ids = max(candidates.items(), key=lambda item: int((known.get_indexer(pd.Index(item[1])) >= 0).sum()))
    check_ids(ids, f"column {key!r} of {source}", fix="give one row per node")
    added = ids[known.get_indexer(pd.Index(ids)) < 0]
    if len(added) == len(ids):
        raise CurvaeError(
            f"{source} names {quoted(ids[:2])} in column {key!r} and {raw.source} has nodes "
            f"{quoted(raw.names[:2])}: no name is in both; use the same names"
        )
    if len(added) and not asked.isolated:
        raise CurvaeError(
            f"{source} names {count(len(added), 'node')} that {raw.source} does not have: {quoted(added)}; "
            "remove them, or add them without edges with `isolated=True`"
        )
    if len(added) and raw.features is not None:
        raise CurvaeError(f"{raw.source} has features for its own nodes only; leave out `isolated=True`")
    raw.names = np.concatenate([raw.names, added])
    if raw.labels is not None:
        raw.labels = np.concatenate([raw.labels, np.full(len(added), "")])
    rows = pd.Index(ids).get_indexer(pd.Index(raw.names))
    if len(absent := raw.names[rows < 0]):
        needed = nodes is asked.features_file or (asked.features_file is None and bool(asked.columns))
        what = f"{source} has no row for {count(len(absent), 'node')} of {raw.source}: {quoted(absent)}"
        if needed and asked.missing == "error":
            raise CurvaeError(f'{what}; add them, or use `missing="mean"`')
        raw.messages.warn(f"{what}; add them.")
    return _NodeRows(table, key, ids, rows)


def names_nodes(nodes: NodeTable, names: Sequence[str]) -> bool:
    """Return whether a column of a table of nodes has all of these names."""
    table = _read(nodes, (), Messages())
    return any(set(names) <= set(table.texts(column, strip=True)) for column in table.names)


def _read(nodes: NodeTable, asked: Sequence[str], messages: Messages) -> FrameTable:
    """Read a table of nodes from a file, or take a frame."""
    if isinstance(nodes, pd.DataFrame):
        path = Path("the table of nodes")
        frame = named_frame(path, nodes)
        if frame.empty:
            raise CurvaeError(f"{path} is empty; give one row per node")
        return FrameTable(path, frame)
    path = Path(nodes)
    require_file(path, "table of nodes")
    known = {spelling for name in _NAMES for spelling in (name, name.upper(), name.capitalize())} | set(asked)
    return FrameTable(path, read_frame(path, known, known, messages, first=True))


def _add_columns(raw: RawGraph, nodes: _NodeRows, asked: NodeRequest, automatic: bool) -> None:
    """Add features from columns that are named, or from all with numbers in every row.

    A text column becomes a feature for each of its categories, called column=category: 1 where a node has it, else 0.
    """
    table, source = nodes.table, nodes.table.path
    for parameter, wanted in (("features", asked.features or ()), ("categorical", asked.categorical)):
        for name in wanted:
            require_column(source, parameter, name, table.names)
    numbers = _choose_numbers(raw, nodes, asked) if automatic else list(asked.features or ())
    known = asked.categorical if isinstance(asked.categorical, Mapping) else {}
    columns = [Column(name) for name in numbers]
    columns += [Column(name, tuple(known[name]) if known else table.categories(name)) for name in asked.categorical]
    if not columns:
        return
    fix = "choose columns of numbers for `features=…`, or use `categorical=[{0}]`"
    found = table.numbers(columns, fix, raw.messages)[nodes.rows]
    found[nodes.rows < 0] = np.nan
    x = one_hot(found, columns, source.name)
    names = tuple(name for column in columns for name in column.features)
    figures = column_statistics(x)
    where = missing_by_column(figures, names)
    if figures.has_missing and asked.missing == "error":
        raise CurvaeError(
            f'{source.name} has missing values of nodes, counted by column: {where}; use `missing="mean"`'
        )
    if not figures.present.all():
        raise CurvaeError(f"{source.name} has columns without a single value: {where}; leave them out of `features=…`")
    raw.features = resolve_missing(x, names, figures.mean, asked.missing, raw.messages)[0]
    raw.feature_names = names


def _choose_numbers(raw: RawGraph, nodes: _NodeRows, asked: NodeRequest) -> list[str]:
    """Choose the columns of numbers that have a value for every node, or any if gaps are filled, as features."""
    table, source, rows = nodes.table, nodes.table.path.name, nodes.rows
    others = {nodes.key, asked.label, *asked.categorical}
    names = [name for name in table.names if name not in others and name.casefold() not in _NAMES]
    names = [name for name in names if not name.startswith(UNNAMED) and not table.is_text(name)]
    found = [name for name in names if bool(table.head[name].notna().any())]
    if found and asked.missing == "error":
        if (rows < 0).any():
            raw.messages.note(f"columns of {source} are no features, for some nodes lack a row.")
            return []
        gaps = {name: rows[absent] for name in found if (absent := table.head[name].iloc[rows].isna().to_numpy()).any()}
        if len(gaps) == len(found) and asked.features_file is not None:
            row = int(gaps[found[0]][0])
            raise CurvaeError(
                f"{source} has no value in column {found[0]!r} of row {row + 1}, node {str(nodes.ids[row])!r}, and no "
                'other column of numbers; fill it in, or use `missing="mean"`'
            )
        if gaps:
            raw.messages.note(f'columns with gaps are no features: {quoted(gaps)}; use `missing="mean"` to fill them.')
        found = [name for name in found if name not in gaps]
    if found:
        raw.messages.note(f"features are the columns of numbers of {source}: {quoted(found)}.")
    return found


def is_table(source: Any) -> bool:
    """Return whether features are columns of a table: a frame, or a file whose name ends like one."""
    named = isinstance(source, str | Path) and str(source).lower().endswith(tuple(TABLES))
    return named or isinstance(source, pd.DataFrame)


def read_matrix(source: Any, messages: Messages) -> tuple[str, Matrix]:
    """Read a matrix of features, (rows, features); also return what to call it.

    Arguments:
        source: a file (.npz of scipy.sparse.save_npz, .npy, .mtx), an array, or a sparse matrix.
        messages: takes a note if a sparse matrix is made dense because few of its values are 0.
    """
    name, found = "features_file", source
    if isinstance(source, str | Path):
        path = Path(source)
        require_file(path, "file of features")
        name, ending = path.name, path.name.lower().removesuffix(".gz")
        if not ending.endswith((".npz", ".npy", ".mtx")):
            raise CurvaeError(f"{name} is no matrix of features; give a .npz, .npy, .csv or .parquet file")
        found = read_npy(path).x if ending.endswith(".npy") else read_sparse(path)
    matrix: Any = as_matrix(found, name)
    if has_missing(matrix):
        raise CurvaeError(f"{name} has missing or infinite values; replace them")
    if not issparse(matrix):
        return name, np.ascontiguousarray(matrix, dtype=np.float64)
    matrix = csr_array(matrix, dtype=np.float64, copy=True)
    matrix.eliminate_zeros()
    if 4 * matrix.nnz > matrix.shape[0] * matrix.shape[1]:
        messages.note(f"{name} has few zeros and is treated as a dense matrix.")
        return name, matrix.toarray()
    return name, matrix


def _add_matrix(raw: RawGraph, listed: NDArray[np.str_] | None, asked: NodeRequest) -> None:
    """Add features from the rows of a matrix, which are in the order of a table of nodes.

    Without a table, nodes must be called by numbers, and row i, counted from 0, is that of node i; or of node i + 1, if
    there is a node of the number of rows.

    Arguments:
        raw: the graph.
        listed: names in the table of nodes, if there is one.
        asked: what is asked for.
    """
    if asked.columns:
        raise CurvaeError("features come from `features_file=…` or from columns of `nodes=…`; leave out one of them")
    name, matrix = read_matrix(asked.features_file, raw.messages)
    height, names = matrix.shape[0], raw.names
    if listed is not None:
        if len(listed) != height:
            raise CurvaeError(
                f"{name} has {count(height, 'row')} and the table of nodes {len(listed):,}; give equally many"
            )
        rows = pd.Index(listed).get_indexer(pd.Index(names))
        if (rows < 0).any():
            raise CurvaeError(
                f"the table of nodes has no row for {quoted(names[rows < 0])}, so {name} has none; add them"
            )
    elif not all(re.fullmatch(r"\d{1,18}", node) for node in names.tolist()):
        raise CurvaeError(
            f"{name} does not say which row belongs to node {str(names[0])!r}; call nodes by the numbers of their "
            "rows, from 0, or give a table with `nodes=…` in the order of the rows"
        )
    else:
        rows = names.astype(np.int64)
        rows = rows - int(rows.min() >= 1 and rows.max() == height)
        if rows.max() >= height:
            raise CurvaeError(f"{name} has {count(height, 'row')}, none for node {rows.max()}; give one row per node")
    if unused := height - len(rows):
        raw.messages.note(f"left out: {count(unused, 'row')} of {name} without an edge in {raw.source}.")
    raw.features, raw.feature_names = matrix[rows], feature_names(matrix.shape[1])
