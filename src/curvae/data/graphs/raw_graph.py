"""From what a reader found to a graph: the steps that all kinds of sources share.

Labels and features of the nodes come from a table or from the graph itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from ...errors import CurvaeError
from .. import memory
from ..dataset import (
    Column,
    as_matrix,
    check_ids,
    column_means,
    feature_names,
    has_missing,
    missing_by_column,
    missing_counts,
    resolve,
)
from ..files import Messages, count, quoted, require_file
from ..matrices import read_npy, read_sparse
from ..tables import TABLES, named_frame, read_frame, require_column
from ..text_tables import NUMBER, UNNAMED, categories_of, is_text, numbers_of, texts_of
from .graph_data import Graph

__all__ = [
    "Categories",
    "Filling",
    "Matrix",
    "NodeRequest",
    "NodeTable",
    "RawGraph",
    "describe_nodes",
    "is_table",
    "matrix_rows",
    "names_nodes",
    "read_matrix",
    "table_features",
]


# Features of nodes: columns of a table, or a matrix in a file of its own, which stays sparse if it is.

Filling: TypeAlias = Literal["error", "mean"]
Matrix: TypeAlias = NDArray[np.float64] | csr_array
Categories: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]

_DENSE = 0.25  # share of values that are not 0 from which a sparse matrix is not worth being one


# --- columns of a table ---------------------------------------------------------------------------------------------


def table_features(
    source: Path,
    frame: pd.DataFrame,
    rows: NDArray[np.intp],
    numbers: Sequence[str],
    categorical: Categories,
    missing: Filling,
    messages: Messages,
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Features of nodes from columns of a table, (nodes, features), and their names.

    A text column becomes a feature for each of its categories, called column=category: 1 where a node has it, else 0.

    Arguments:
        source: the table, for messages.
        frame: its columns.
        rows: row of each node, −1 if it has none, (nodes,).
        numbers: names of columns of numbers.
        categorical: names of text columns, with the categories of each where they are known.
        missing: "error" raises for missing values, "mean" fills in the mean of the feature.
        messages: takes notes.
    """
    known = categorical if isinstance(categorical, Mapping) else {}
    texts = {name: tuple(known[name]) if known else categories_of(frame[name]) for name in categorical}
    columns = (*(Column(name) for name in numbers), *(Column(name, values) for name, values in texts.items()))
    names = [*numbers, *(f"{name}={value}" for name, values in texts.items() for value in values)]
    memory.require(16 * len(rows) * len(names), f"{count(len(names), 'feature')} of {count(len(rows), 'node')}")
    fix = "choose columns of numbers for features=…, or use categorical=[{0}]"
    found = numbers_of(source, frame[[column.name for column in columns]], columns, fix, messages)[rows]
    found[rows < 0] = np.nan
    parts = [found[:, : len(numbers)]]
    for place, values in enumerate(texts.values(), len(numbers)):
        codes = found[:, [place]]
        parts.append(np.where(np.isfinite(codes), codes == np.arange(len(values)), np.nan))
    x = np.concatenate(parts, axis=1)
    counts, where = missing_counts(x), missing_by_column(x, names)
    if counts.any() and missing == "error":
        raise CurvaeError(f'{source.name} has missing values of nodes, counted by column: {where}; use missing="mean"')
    if (counts == len(x)).any():
        raise CurvaeError(f"{source.name} has columns without a single value: {where}; leave them out of features=…")
    return resolve(x, names, column_means(x), missing, messages)[0], tuple(names)


# --- matrices -------------------------------------------------------------------------------------------------------


def is_table(source: Any) -> bool:
    """Whether features are columns of a table: a frame, or a file whose name ends like one."""
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
        try:
            require_file(path)
        except FileNotFoundError:
            raise CurvaeError(f"there is no file of features {path}; check the name") from None
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
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if matrix.nnz > _DENSE * matrix.shape[0] * matrix.shape[1]:
        messages.note(f"{name} has few zeros and is treated as a dense matrix.")
        return name, matrix.toarray()
    return name, matrix


def matrix_rows(source: str, height: int, names: NDArray[np.str_], listed: NDArray[np.str_] | None) -> NDArray[np.intp]:
    """The row of a matrix of features for each node, (nodes,).

    Rows are in the order of a table of nodes. Without one, nodes must be called by numbers, and row i, counted from 0,
    is that of node i; or of node i + 1, if there is a node of the number of rows.

    Arguments:
        source: name of the matrix in messages.
        height: number of its rows.
        names: names of the nodes.
        listed: names in the table of nodes, if there is one.
    """
    if listed is not None:
        if len(listed) != height:
            raise CurvaeError(
                f"{source} has {count(height, 'row')} and the table of nodes {len(listed):,}; give equally many"
            )
        rows = pd.Index(listed).get_indexer(pd.Index(names))
        if (rows < 0).any():
            raise CurvaeError(
                f"the table of nodes has no row for {quoted(names[rows < 0])}, so {source} has none; add them"
            )
        return rows
    if not all(re.fullmatch(r"\d{1,18}", name) for name in names.tolist()):
        raise CurvaeError(
            f"{source} does not say which row belongs to node {str(names[0])!r}; call nodes by the numbers of their "
            "rows, from 0, or give a table with nodes=… in the order of the rows"
        )
    rows = names.astype(np.int64)
    if rows.min() >= 1 and rows.max() == height:
        rows = rows - 1
    if rows.max() >= height:
        raise CurvaeError(f"{source} has {count(height, 'row')}, none for node {rows.max()}; give one row per node")
    return rows.astype(np.intp)


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
            self.messages.note("weights were left out; use weighted=True to read them.")
            return
        values = np.asarray(weights)
        numeric = values.dtype.kind in "biuf"
        numbers = values.astype(np.float64) if numeric else np.array([_number(value) for value in values.tolist()])
        if (wrong := ~(np.isfinite(numbers) & (numbers > 0))).any():
            link = int(np.argmax(wrong))
            place = f"the edge of {quoted(self.names[self.links[link]])}" if where is None else where(link)
            weight, number = values.tolist()[link], numbers[link]
            said = "no weight" if weight is None else f"weight {weight!r}" if np.isnan(number) else f"weight {number:g}"
            raise CurvaeError(f"{self.source}: {place} has {said}; give positive numbers, or leave out weighted=True")
        self.weights = numbers

    def finish(self, directed: bool = False) -> Graph:
        """Make the graph, directed or not, with notes about what was done to it."""
        if directed and self.directed is False:
            raise CurvaeError(f"the edges of {self.source} have no direction; leave out directed=True")
        if directed and self.ends:
            self.messages.note("edges lead from {!r} to {!r}.".format(*self.ends))
        keep = self.links[:, 0] != self.links[:, 1]
        if loops := int((~keep).sum()):
            self.messages.note(f"left out: {count(loops, 'self loop')}.")
        links, weights = self.links[keep], None if self.weights is None else self.weights[keep]
        if not len(links):
            others = " between different nodes" if len(self.links) else ""
            raise CurvaeError(f"{self.source} has no edges{others}; give at least one")
        edges, weights = self._merge(links, weights, directed)
        graph = Graph(
            names=self.names,
            edges=edges,
            weights=weights,
            features=self.features,
            feature_names=self.feature_names,
            labels=self.labels,
            label_name=self.label_name if self.labels is not None else None,
            directed=directed,
        )
        self._judge(graph)
        return replace(graph, notes=tuple(self.messages.notes), warnings=tuple(self.messages.warnings))

    def _merge(
        self, links: NDArray[np.int64], weights: NDArray[np.float64] | None, directed: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        """Keep each edge once; of directed ones, each direction once.

        Weights of repeated links are summed. The two directions of an edge are summed too, unless the weights agree for
        all edges: then the source is a symmetric matrix or a list that gives every edge twice.
        """
        nodes = len(self.names)
        if self.directed is False:
            links = np.sort(links, axis=1)
        arcs, place = _distinct(links[:, 0] * nodes + links[:, 1], weights is not None)
        summed: Any = None if weights is None else np.bincount(place, weights)
        tail, head = np.divmod(arcs, nodes)
        keys, place = _distinct(np.minimum(tail, head) * nodes + np.maximum(tail, head), weights is not None)
        pairs = len(arcs) - len(keys)  # that have an arc each way
        symmetric = 2 * pairs == len(arcs)
        if symmetric and summed is not None:
            back = np.argsort(head * nodes + tail)  # of these, sorted, the arcs are the same
            symmetric = np.allclose(summed[back], summed, rtol=1e-9, atol=0)
        self._tell(len(links) - len(arcs), len(arcs), pairs, symmetric, directed)
        if directed:
            return np.stack([tail, head], axis=1), summed
        edges = np.stack(np.divmod(keys, nodes), axis=1)
        if summed is None or symmetric:
            return edges, None if summed is None else summed[tail < head]
        return edges, np.bincount(place, summed).astype(np.float64)

    def _tell(self, repeated: int, arcs: int, pairs: int, symmetric: bool, directed: bool) -> None:
        summed = ", weights summed" if self.weights is not None else ""
        if repeated:
            self.messages.note(f"merged: {count(repeated, 'repeated edge')}{summed}.")
        if directed:
            if symmetric:
                self.messages.warn(
                    "every edge runs both ways, and no direction can be learned; leave out directed=True."
                )
            elif pairs:
                self.messages.note(f"{count(pairs, 'pair')} of nodes with an edge in both directions.")
        elif self.directed:
            ways = f"; {count(pairs, 'pair')} ran both ways{'' if symmetric else summed}" if pairs else ""
            self.messages.note(
                f"directions were left out: {count(arcs, 'arc')} became {count(arcs - pairs, 'edge')}{ways}."
            )
        elif symmetric:
            self.messages.note("every edge was given in both directions; each is kept once.")
        elif pairs:
            self.messages.note(f"given in both directions and merged: {count(pairs, 'edge')}{summed}.")

    def _judge(self, graph: Graph) -> None:
        alone = np.ones(graph.n_nodes, dtype=bool)
        alone[graph.edges] = False
        if alone.any():
            self.messages.note(
                f"kept without an edge: {count(int(alone.sum()), 'node')}: {quoted(graph.names[alone])}."
            )
        if len(sizes := np.bincount(graph.components)) > 1:
            self.messages.note(
                f"the graph has {len(sizes):,} components, the largest of {count(int(sizes.max()), 'node')}."
            )


def _distinct(keys: NDArray[np.int64], placed: bool) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Different keys in ascending order and, if asked for, the place among them of each."""
    if placed:
        return np.unique(keys, return_inverse=True)
    keys.sort()
    fresh = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    return keys if fresh.all() else keys[fresh], np.empty(0, np.intp)


def _number(value: Any) -> float:
    """Convert a value to a number, or to NaN if it is none."""
    try:
        return float(value) if not isinstance(value, str) or re.fullmatch(NUMBER, value.strip()) else np.nan
    except (TypeError, ValueError):
        return np.nan


NodeTable: TypeAlias = str | Path | pd.DataFrame

_NAMES = ("id", "node", "name")  # usual names of the column with the names of nodes
_SPELLINGS = {spelling for name in _NAMES for spelling in (name, name.upper(), name.capitalize())}


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
            raise CurvaeError("only a table of nodes can name nodes without edges; give it with nodes=…")

    @property
    def columns(self) -> list[str]:
        """Columns with features that are asked for by name."""
        return [*(self.features or ()), *self.categorical]


@dataclass(frozen=True)
class _Table:
    """A table of nodes: what it is called, its columns, the one with names, these, and the row of each node or −1."""

    source: Path
    frame: pd.DataFrame
    key: str | None
    ids: NDArray[np.str_]
    rows: NDArray[np.intp]


def describe_nodes(raw: RawGraph, asked: NodeRequest) -> None:
    """Add labels and features to the nodes of a graph."""
    table = _table(raw, asked.nodes, asked) if asked.nodes is not None else None
    aside = asked.features_file is not None
    if table is None and raw.attributes is not None and len(raw.attributes.columns):
        table = _Table(Path(raw.source), raw.attributes, None, raw.names, np.arange(len(raw.names)))
    named = ([] if asked.label is None else [asked.label]) + ([] if aside else asked.columns)
    if table is None and named:
        raise CurvaeError(f"{raw.source} has no column {named[0]!r} of nodes; give a table with nodes=…")
    if table is not None and asked.label is not None:
        _add_label(raw, table, asked.label)
    if not aside:
        if table is not None:
            automatic = asked.nodes is not None and asked.features is None and raw.features is None
            _add_columns(raw, table, asked, automatic)
    elif is_table(asked.features_file):
        _add_columns(raw, _table(raw, asked.features_file, asked), asked, automatic=not asked.columns)
    else:
        _add_matrix(raw, None if asked.nodes is None else table, asked)
    if aside and raw.features is None:
        raise CurvaeError("features_file has no column of numbers; give one, or name text columns with categorical=…")


def _table(raw: RawGraph, nodes: NodeTable, asked: NodeRequest) -> _Table:
    source, frame = _read(nodes, [*asked.columns, *([asked.label] if asked.label else [])], raw.messages)
    key, ids = _match(raw, source, frame, asked.isolated)
    rows = pd.Index(ids).get_indexer(pd.Index(raw.names))
    aside = asked.features_file
    needed = nodes is aside or (aside is None and bool(asked.columns))
    if len(absent := raw.names[rows < 0]):
        what = f"{source.name} has no row for {count(len(absent), 'node')} of {raw.source}: {quoted(absent)}"
        if needed and asked.missing == "error":
            raise CurvaeError(f'{what}; add them, or use missing="mean"')
        raw.messages.warn(f"{what}; add them.")
    return _Table(source, frame, key, ids, rows)


def _add_label(raw: RawGraph, table: _Table, label: str) -> None:
    require_column(table.source, "label", label, [str(name) for name in table.frame.columns])
    raw.labels, raw.label_name = texts_of(table.frame[label])[table.rows], label
    raw.labels[table.rows < 0] = ""
    if empty := int((raw.labels == "").sum()):
        raw.messages.note(f"{count(empty, 'node')} without a label in column {label!r}; the label is left empty.")


def _add_columns(raw: RawGraph, table: _Table, asked: NodeRequest, automatic: bool) -> None:
    """Features from columns that are named, or from all with numbers in every row."""
    columns = [str(name) for name in table.frame.columns]
    for parameter, names in (("features", asked.features or ()), ("categorical", asked.categorical)):
        for name in names:
            require_column(table.source, parameter, name, columns)
    numbers = list(asked.features or ())
    if automatic:
        numbers = _automatic(raw, table, asked)
    if not numbers and not asked.categorical:
        return
    raw.features, raw.feature_names = table_features(
        table.source, table.frame, table.rows, numbers, asked.categorical, asked.missing, raw.messages
    )


def _automatic(raw: RawGraph, table: _Table, asked: NodeRequest) -> list[str]:
    usual = [str(name) for name in table.frame.columns if str(name).casefold() in _NAMES]
    taken = {table.key, asked.label, *usual, *asked.categorical}
    names = [name for name in map(str, table.frame.columns) if name not in taken and not name.startswith(UNNAMED)]
    columns = {name: table.frame[name] for name in names}
    found = [name for name, column in columns.items() if not is_text(column) and bool(column.notna().any())]
    gaps = asked.missing == "error"
    if found and gaps and (table.rows < 0).any():
        raw.messages.note(f"columns of {table.source.name} are no features, for some nodes lack a row.")
        return []
    lacking = [name for name in found if gaps and bool(table.frame[name].iloc[table.rows].isna().any())]
    if lacking and lacking == found and asked.features_file is not None:
        row = int(table.rows[np.argmax(table.frame[lacking[0]].iloc[table.rows].isna())])
        raise CurvaeError(
            f"{table.source.name} has no value in column {lacking[0]!r} of row {row + 1}, node "
            f'{str(table.ids[row])!r}, and no other column of numbers; fill it in, or use missing="mean"'
        )
    if lacking:
        raw.messages.note(f'columns with gaps are no features: {quoted(lacking)}; use missing="mean" to fill them.')
    found = [name for name in found if name not in lacking]
    if found:
        raw.messages.note(f"features are the columns of numbers of {table.source.name}: {quoted(found)}.")
    return found


def _add_matrix(raw: RawGraph, table: _Table | None, asked: NodeRequest) -> None:
    if asked.columns:
        raise CurvaeError("features come from features_file=… or from columns of nodes=…; leave out one of them")
    name, matrix = read_matrix(asked.features_file, raw.messages)
    rows = matrix_rows(name, matrix.shape[0], raw.names, None if table is None else table.ids)
    if unused := matrix.shape[0] - len(rows):
        raw.messages.note(f"left out: {count(unused, 'row')} of {name} without an edge in {raw.source}.")
    raw.features, raw.feature_names = matrix[rows], feature_names(matrix.shape[1])


def names_nodes(nodes: NodeTable, names: Sequence[str]) -> bool:
    """Whether a column of a table of nodes has all of these names."""
    _, frame = _read(nodes, (), Messages())
    return any(set(names) <= set(texts_of(frame[column], strip=True)) for column in frame.columns)


def _read(nodes: NodeTable, asked: Sequence[str], messages: Messages) -> tuple[Path, pd.DataFrame]:
    """Read the table; also return its path, or a name in place of it, for messages."""
    if not isinstance(nodes, pd.DataFrame):
        path = Path(nodes)
        try:
            require_file(path)
        except FileNotFoundError:
            raise CurvaeError(f"there is no table of nodes {path}; check the name") from None
        known = _SPELLINGS | set(asked)
        return path, read_frame(path, known, known, messages, first=True)
    path = Path("the table of nodes")
    frame = named_frame(path, nodes)
    if frame.empty:
        raise CurvaeError(f"{path} is empty; give one row per node")
    return path, frame


def _match(raw: RawGraph, source: Path, frame: pd.DataFrame, isolated: bool) -> tuple[str, NDArray[np.str_]]:
    """Find the column of a table with the names of nodes, and these; add nodes that only the table names."""
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
    return str(name), ids


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
