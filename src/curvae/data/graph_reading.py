"""Read graphs from files, from objects of other libraries, or by the name of a built-in graph.

Lists of edges in text, Parquet, pandas frames and arrays become columns of names, which `code_nodes` and `number_nodes`
turn into nodes and links; matrices and objects that number their nodes have these already. Links are then merged to
edges, and nodes described.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeAlias, get_args
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, issparse, triu
from scipy.sparse.csgraph import connected_components

from ..errors import CurvaeError, check
from . import memory
from .dataset import (
    Column,
    as_matrix,
    check_ids,
    column_statistics,
    has_missing,
    missing_by_column,
    one_hot,
    resolve_missing,
)
from .files import (
    BLANKS,
    COMMA_NUMBER,
    HEAD,
    LONGEST,
    NUMBER,
    SEPARATORS,
    UNNAMED,
    Messages,
    TextFile,
    check_cells,
    check_widths,
    count,
    feature_names,
    fetch,
    has_decimal_commas,
    not_found,
    open_file,
    opened_parquet,
    places,
    quoted,
    reading,
    require_file,
    scan,
    sniff,
    split,
    texts_of,
)
from .graph_data import Graph, link_matrix
from .matrices import read_npy, read_sparse
from .tables import TABLES, FrameTable, common_stem, named_ends, named_frame, read_frame, require_column

__all__ = [
    "BUILT_IN_GRAPHS",
    "GRAPH_FILES",
    "HEADER_ADVICE",
    "LARGE",
    "Categories",
    "Ends",
    "Filling",
    "Matrix",
    "NodeRequest",
    "NodeTable",
    "RawGraph",
    "code_nodes",
    "describe_nodes",
    "end_columns",
    "is_table",
    "load_graph",
    "looks_like_header",
    "merge_links",
    "names_nodes",
    "number_nodes",
    "read_edge_list",
    "read_matrix",
    "weight_column",
]


Ends = tuple[str, str]
"""names of the columns with the first and the second node of an edge; without a header their numbers, from 1"""


# Files of Sala et al. (2018), Representation tradeoffs for hyperbolic embeddings, as first committed: their folders on
# the web, names and SHA-256.
BUILT_IN_GRAPHS = {
    "phylogenetic": (
        "1e47ff42fc0d6ebbad0ffbafad1272bb060efd18/combinatorial/",
        "phylo_tree.edges",
        "e1b4607b0112a692e56ccd4dd5cd35cb3cebf4a45f907e0e8bbf788fe5f3499e",
    ),
    "csphd": (
        "2aa7baea0f9f5753666970f25f8e4b6e655dbb9b/data/edges/",
        "ca-CSphd.edges",
        "26d761c07db457623c1e0be9644f62f188d376335a317b69b4de7f20e7c202ca",
    ),
    "diseases": (
        "2aa7baea0f9f5753666970f25f8e4b6e655dbb9b/data/edges/",
        "bio-diseasome.edges",
        "c6f7e0846e0547b5eec989e0f8dff58f66acc4dd86c0af3e0c644981f6a4d80c",
    ),
}


def load_graph(
    source: Any,
    *,
    nodes: NodeTable | None = None,
    label: str | None = None,
    features: Sequence[str] | None = None,
    features_file: Any = None,
    categorical: Categories = (),
    weighted: bool = False,
    directed: bool = False,
    isolated: bool = False,
    missing: Filling = "error",
    source_column: str | None = None,
    target_column: str | None = None,
    header: bool | None = None,
    known: Collection[str] = (),
) -> Graph:
    """Load a graph and make it free of loops and, unless `directed`, undirected; its `notes` say what was done.

    Arguments:
        source: a file (edge list as text or Parquet, Matrix Market, .npz of scipy, GraphML; text may be gzipped), a
            graph of networkx, a sparse adjacency matrix of scipy, a `Data` of torch-geometric, a pandas frame of edges,
            an array or list of pairs of nodes, or the name of a graph of the paper: phylogenetic, csphd, diseases. A
            file of that name takes precedence.
        nodes: a table of nodes, as a file or a pandas frame. A column named id, node or name, or else the first, has
            their names.
        label: column of the table, or attribute of the nodes of GraphML and networkx, with a label for each node.
        features: columns or attributes of numbers to use as features. By default all columns of numbers of the table
            that have no gaps; an empty list for none.
        features_file: features in a file of their own, or as an array, sparse matrix or frame. A table (.csv, .tsv,
            .parquet) names its nodes as `nodes` does, and all its columns of numbers are features, or those that are
            named. The rows of a matrix (.npz of scipy, which stays sparse, .npy, .mtx) are in the order of `nodes`, or
            nodes are called by the numbers of their rows.
        categorical: text columns to use as features, one for each category: names, or a mapping from names to lists of
            categories.
        weighted: whether to read weights, which must be positive. Weights of repeated edges are summed.
        directed: whether to keep the direction of edges, from the first node to the second.
        isolated: whether nodes that only the table names are added to the graph, without edges.
        missing: what to do about missing features: "error" raises, "mean" fills in the mean of the column.
        source_column, target_column: columns of a list of edges that name the first and the second node of an edge; in
            a text file without a header their numbers, from 1. By default those with usual names, such as source and
            target, or else the first two of at most three.
        header: whether the first line of a list of edges names its columns; None detects it.
        known: names of nodes, such as those of another graph: a first line that has them is no header. Those in a table
            of nodes are known too.

    Example:
        >>> graph = load_graph([("ann", "ben"), ("ben", "cem"), ("ben", "ann")])
        >>> graph.names.tolist(), graph.edges.tolist(), graph.notes
        (['ann', 'ben', 'cem'], [[0, 1], [1, 2]], ('given in both directions and merged: 1 edge.',))
    """
    asked = NodeRequest(nodes, label, features, features_file, categorical, isolated, missing)
    ends = None if source_column is None or target_column is None else (source_column, target_column)
    check(
        (source_column, target_column) == (ends or (None, None)),
        "an edge has two nodes; give both `source_column=…` and `target_column=…`",
    )
    try:
        raw = _read(source, weighted, header, ends)
        if raw.header and (set(raw.header) <= set(known) or (nodes is not None and names_nodes(nodes, raw.header))):
            raw = _read(source, weighted, False, ends)
        describe_nodes(raw, asked)
    except OSError as error:
        raise CurvaeError(
            f"{error.filename or source} cannot be read: {error.strerror or error}; check the file and its permissions"
        ) from error
    return merge_links(raw, directed)


def _read(source: Any, weighted: bool, header: bool | None, ends: Ends | None) -> RawGraph:
    """Read a file or take an object, by whichever function fits."""
    source = _find(source) if isinstance(source, str | Path) else source
    name = source.name if isinstance(source, Path) else "the graph"
    networkx = sys.modules.get("networkx")  # whoever has such a graph has imported it
    readers: tuple[tuple[bool, Callable[..., RawGraph]], ...] = (
        (isinstance(source, pd.DataFrame), from_frame),
        (networkx is not None and isinstance(source, networkx.Graph), from_networkx),
        (issparse(source), from_matrix),
        (getattr(source, "edge_index", None) is not None, from_geometric),
        (True, from_pairs),
    )
    reader = _file_reader(source) if isinstance(source, Path) else next(reader for fits, reader in readers if fits)
    if reader is read_edge_list:
        return reader(source, weighted, header, ends)
    check(header is None, f"{name} is no list of edges in a text file, which alone has a header; leave out `header=…`")
    if reader in (from_frame, read_parquet_edges):
        return reader(source, weighted, ends=ends)
    check(ends is None, f"{name} is no table of edges; leave out `source_column=…` and `target_column=…`")
    return reader(source, weighted)


def _file_reader(path: Path) -> Callable[..., RawGraph]:
    """Choose what reads a file, by its name or else by how it starts."""
    name = path.name.lower().removesuffix(".gz")
    if (known := next((reader for ending, reader in GRAPH_FILES.items() if name.endswith(ending)), None)) is not None:
        return known
    check(
        not name.endswith(
            (".gml", ".gexf", ".dot", ".gv", ".net", ".json", ".xlsx", ".npy", ".pkl", ".gpickle", ".pt")
        ),
        f"{path.name} has a file extension that is not supported; save it as GraphML or as a list of edges",
    )
    with open_file(path) as stream:
        start = stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    # As a list of edges the sizes of a matrix would be an edge.
    if start.startswith(b"%%matrixmarket"):
        return read_adjacency
    return read_graphml if start.startswith((b"<?xml", b"<graphml")) else read_edge_list


def _find(source: str | Path) -> Path:
    path = Path(source)
    if path.exists() or path.is_symlink():
        require_file(path)
        return path
    if str(source) not in BUILT_IN_GRAPHS:
        raise not_found(path, BUILT_IN_GRAPHS, f"graphs known by name are {', '.join(BUILT_IN_GRAPHS)}")
    folder, file, checksum = BUILT_IN_GRAPHS[str(source)]
    stored = (place / name for place in places("graphs") for name in (file, f"{file}.gz"))
    address = f"https://raw.githubusercontent.com/HazyResearch/hyperbolics/{folder}"
    return (
        next(filter(Path.is_file, stored), None) or fetch("graphs", address, {file: checksum}, f"graph {source}") / file
    )


# Names of nodes as numbers: how the two columns of a list of edges become nodes and links.

_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")  # as it would be printed


def code_nodes(left: Any, right: Any) -> tuple[NDArray[np.str_], NDArray[Any]]:
    """List the different names in two columns, and the position of each cell among them, (2, rows).

    Names are whole numbers, texts, or anything else as it is printed, without the blanks around them; a missing value
    is an empty name. All names of the first column come before those that only the second has.

    Example:
        >>> names, codes = code_nodes(pd.Series(["b", "c "]), pd.Series(["c", None]))
        >>> names.tolist(), codes.tolist()
        (['b', 'c', ''], [[0, 1], [1, 2]])
    """
    columns: list[tuple[int, NDArray[Any]]] = []
    found: list[str] = []
    at_once = left.dtype == right.dtype and getattr(left.dtype, "kind", "O") in "iu"
    for side in [pd.concat([left, right])] if at_once else [left, right]:
        if pd.api.types.is_string_dtype(side) and not isinstance(side.dtype, pd.CategoricalDtype):
            side = side.fillna("")
        elif not (isinstance(side.dtype, np.dtype) and side.dtype.kind in "iu"):
            side = pd.Series(texts_of(side))
        codes, different = _factorize(side)
        columns.append((len(found), codes))
        found += [str(name).strip() for name in different]
    same, names = pd.factorize(np.array(found, dtype=object))
    same = same.astype(np.min_scalar_type(len(names)))
    return names.astype(np.str_), np.concatenate([same[start:][codes] for start, codes in columns]).reshape(2, -1)


def _factorize(column: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Do as `pd.factorize`, but faster where most integers of a range occur, also as texts below a header."""
    if isinstance(column.dtype, pd.ArrowDtype):
        with suppress(ValueError):
            numbers = column.iloc[1:].astype("int64[pyarrow]")
            if (numbers.astype(column.dtype) == column.iloc[1:]).all():  # as they would be printed
                codes, different = _factorize(pd.Series(numbers.to_numpy()))
                codes = np.concatenate([np.zeros(1, codes.dtype), codes + 1])
                return codes, np.append(column.iloc[0], different.astype(object))
    elif column.dtype.kind in "iu":
        numbers, low = column.to_numpy(), int(column.min()) if len(column) else 0
        size = int(numbers.max(initial=low)) - low + 1
        if size < 4 * len(numbers) and low + size < 2**63:
            numbers = numbers.astype(np.int64, copy=False) - low
            present = np.zeros(size, dtype=bool)
            present[numbers] = True
            position = np.cumsum(present, dtype=np.min_scalar_type(-size - 1)) - 1
            return position[numbers], np.flatnonzero(present) + low
    codes, found = pd.factorize(column)
    return codes, found.to_numpy(object)


def number_nodes(
    source: str,
    names: NDArray[np.str_],
    codes: NDArray[Any],
    where: Callable[[int], str] = lambda link: f"row {link + 1}",
    fix: str = "give two",
) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """List the names of all nodes that occur, (nodes,), and the links between their positions, (links, 2).

    Nodes are ordered by number if all names are integers, else by first appearance. Raises for an empty name.

    Arguments:
        source: name of the graph in messages.
        names, codes: different names, and the positions among them of the two nodes of each link, (2, links).
        where: says where the link with a given number is found; by default its row.
        fix: what to do about an empty name.

    Example:
        >>> names, links = number_nodes("g.csv", *code_nodes(pd.Series(["b", "c "]), pd.Series(["c", "a"])))
        >>> names.tolist(), links.tolist()
        (['b', 'c', 'a'], [[0, 1], [1, 2]])
    """
    if (empty := (names == "")[codes].any(0)).any():
        raise CurvaeError(f"{source}: {where(int(np.argmax(empty)))} names only one node; {fix}")
    used = np.flatnonzero(np.bincount(codes.ravel(), minlength=len(names)))
    numbers = all(map(_INTEGER.fullmatch, names[used].tolist()))
    order = used[np.argsort(names[used].astype(np.int64), kind="stable")] if numbers else pd.unique(codes.T.ravel())
    position = np.empty(len(names), dtype=np.int64)
    position[order] = np.arange(len(order))
    return names[order], position[codes].T


# Lists of edges in text files.

LARGE = 1 << 22
"""bytes of a file from which on Arrow is tried"""

_BLOCK = 1 << 24  # bytes of text that Arrow parses at once
_WEIGHTS = ("weight", "weights", "value", "score", "strength", "count", "w")

HEADER_ADVICE = "; use `header=False` if it is an edge"
"""what to do where the first line may be no header"""

_WANTED = "two names a line, one line an edge"
_LEFT_OUT = "left out: {} beside the names; use `weighted=True` to read weights."
_STARTS = " \t\n\r\x0b\x0c#%"  # of lines that may be blank or a comment
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_QUOTE = re.compile(r'(?:^|[\s,;|])"')  # where a quoted name starts


def read_edge_list(path: Path, weighted: bool, header: bool | None = None, ends: Ends | None = None) -> RawGraph:
    """Read a list of edges.

    Arguments:
        path: a text file, which may be gzipped. A line has two names, separated by blanks, tabs, commas or semicolons,
            and possibly further columns; lines that start with # or % are comments.
        weighted: whether to read weights.
        header: whether the first line names the columns; None to detect it.
        ends: the columns that name nodes; None to find them.
    """
    messages = Messages()
    file = scan(path, _WANTED, messages)
    frame, separator, records = _read_cells(file, weighted, ends)
    first, width = records[0], len(records[0])
    likely = _likely_ends(first, ends)
    names, codes = code_nodes(*(frame[column] for column in likely))
    pair, doubtful = tuple(names[codes[:, 0]].tolist()), False
    if header is None:
        header, doubtful = _detect_header(path, records, names, codes, ends)
        if header:
            doubt = f", which no other line names{HEADER_ADVICE}" if doubtful else ""
            messages.note(f"the first line was taken as a header: {quoted(first)}{doubt}.")
        elif doubtful:
            messages.warn(
                "the first line joins {!r} and {!r}, which no other line names; use `header=True` if it is a "
                "header.".format(*pair)
            )
    columns, skipped = first if header else None, int(header)
    left, right = end_columns(path, columns, width, ends)
    if (left, right) != likely:
        names, codes = code_nodes(frame[left], frame[right])

    def where(row: int) -> str:
        lines = _Lines(file)
        return f"line {np.delete(np.arange(1, lines.total + 1), lines.skipped)[row + skipped]}"

    names, links = number_nodes(path.name, names, codes[:, skipped:], where, f"give {_WANTED}")
    check(
        any(re.search(r"\w", record[right]) for record in records),  # else it is an arrow, or another format
        f"{path.name} has {first[right]!r} instead of a second name; remove it",
    )
    raw = RawGraph(
        path.name,
        names,
        links,
        header=pair if header and doubtful else (),
        ends=(first[left], first[right]) if header else (),
        messages=messages,
    )
    if weighted:
        column = weight_column(path.name, columns, width, (left, right))
        raw.set_weights(_read_weights(frame[column].iloc[skipped:], separator, messages), True, where)
    elif width > 2:
        messages.note(_LEFT_OUT.format(count(width - 2, "column")))
    return raw


def _read_weights(cells: Any, separator: str, messages: Messages) -> Any:
    """Convert a column of texts to positive numbers, or leave them as texts with decimal points."""
    texts = cells.str.strip()
    if isinstance(texts.dtype, pd.ArrowDtype):
        with suppress(ValueError):
            numbers = texts.astype("double[pyarrow]").to_numpy()
            if numbers.min(initial=np.inf) > 0 and numbers.max(initial=0) < np.inf:
                return numbers
    if has_decimal_commas(texts, separator):
        messages.note("numbers were read with decimal commas.")
        texts = texts.str.replace(",", ".")
    return texts


def _read_cells(file: TextFile, weighted: bool, ends: Ends | None) -> tuple[pd.DataFrame, str, list[list[str]]]:
    """Read the columns that are needed, or all, as texts; also return the separator and the first records, split."""
    path = file.path
    large = path.stat().st_size >= LARGE and file.encoding == "utf-8-sig" and find_spec("pyarrow") is not None
    lines = _Lines(file, whole=not large)
    separator, records = _sniff(lines)
    width = len(records[0])
    memory.require(64 * lines.total * width, f"{path.name} ({lines.total:,} lines)", fix="use fewer edges")
    if large:
        columns = sorted({0, 1, *_likely_ends(records[0], ends)}) if not weighted and ends is None else range(width)
        if (plain := _parse_plain(lines, separator, records, columns)) is not None:
            return plain, separator, records
        lines = _Lines(file)
    try:
        frame = pd.read_csv(
            path,
            sep=separator,
            header=None,
            names=list(range(width)),
            index_col=False,
            skiprows=lines.skipped,
            encoding=file.encoding,
            dtype=str,
            na_filter=False,  # a node may be called NA
            skipinitialspace=True,
        )
    except pd.errors.ParserError as error:
        raise lines.check(separator, width) from error
    if len(frame) != lines.total - len(lines.skipped):
        raise lines.check(separator, width)
    if bool((frame[width - 1] == "").any()):  # a line that is too short looks like one that ends in an empty field
        lines.check(separator, width)
    check_cells(path, frame)
    return frame, separator, records


def _parse_plain(
    lines: _Lines, separator: str, records: Sequence[Sequence[str]], columns: Sequence[int]
) -> pd.DataFrame | None:
    """Read some columns of a large file by Arrow; return None unless the separator always ends a cell, and a line is an
    edge, except for comments at the top."""
    from pyarrow import ArrowInvalid, compute, concat_tables, csv, string, table

    spaced = separator == BLANKS
    if (
        lines.file.quotes > lines.head[0].count('"')
        or lines.skipped != list(range(len(lines.skipped)))
        or (spaced and any(line.split(" ") != record for line, record in zip(lines.head, records, strict=False)))
    ):
        return None
    names = [str(column) for column in range(len(records[0]))]
    wanted = [names[column] for column in columns]
    try:
        with open_file(lines.file.path) as stream:
            # The first line may be a header with quotes.
            rest = csv.read_csv(
                stream,
                csv.ReadOptions(block_size=_BLOCK, column_names=names, skip_rows=len(lines.skipped) + 1),
                csv.ParseOptions(delimiter=" " if spaced else separator, quote_char=False),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, string()), include_columns=wanted, null_values=[]
                ),
            )
    except ArrowInvalid:
        return None
    cells = concat_tables([table([[records[0][column]] for column in columns], wanted), rest])
    for number, column in enumerate(cells.columns):
        lengths = compute.min_max(compute.binary_length(column)).as_py()
        marks = ("#", "%") if number == 0 else ()
        comments = (compute.starts_with(compute.utf8_ltrim_whitespace(column), mark) for mark in marks)
        tabs = (compute.match_substring(column, tab) for tab in ("\t" if spaced else ""))
        odd = any(compute.any(found).as_py() for found in (*comments, *tabs))
        if odd or not 0 < lengths["min"] <= lengths["max"] <= LONGEST:
            return None
    return cells.to_pandas(types_mapper=pd.ArrowDtype).set_axis(list(columns), axis=1)


class _Lines:
    """What one pass over a list of edges tells, or one over its comments and first edges.

    Arguments:
        file: the list.
        whole: whether to read through all of it.

    Attributes:
        total: how many lines there are, or one more.
        skipped: numbers of lines that are blank or comments, from 0.
        head: the first of the others.
    """

    def __init__(self, file: TextFile, whole: bool = True) -> None:
        self.file, self.skipped, self.head = file, list[int](), list[str]()
        number = -1
        with file.open() as stream:
            for number, line in enumerate(stream):
                if line[0] in _STARTS and line.lstrip()[:1] in ("", "#", "%"):
                    self.skipped.append(number)
                elif len(self.head) < HEAD:
                    self.head.append(line.strip("\r\n"))
                elif not whole:
                    break
        self.total = number + 1 if whole else file.lines
        check(self.head, f"{file.path.name} contains only comments; give {_WANTED}")
        check(not any(map(_CONTROL.search, self.head)), f"{file.path.name} is not a text file; give {_WANTED}")

    def check(self, separator: str, width: int) -> CurvaeError:
        """Raise for the first line with an open quote or another number of fields; if none has, return an error."""
        check_widths(self.file, separator, width, prepare=self._prepare)
        return CurvaeError(f"{self.file.path.name} cannot be read as a list of edges; give {_WANTED}")

    def _prepare(self, stream: IO[str]) -> Iterator[str]:
        skipped = set(self.skipped)
        for number, line in enumerate(stream):
            if number not in skipped and line.count('"') % 2 and _QUOTE.search(line):
                raise CurvaeError(
                    f"{self.file.path.name}: line {number + 1} opens a quote and does not close it; close it, or "
                    "remove the line break from the name"
                )
            yield "" if number in skipped else line


def _sniff(lines: _Lines) -> tuple[str, list[list[str]]]:
    """Find the separator and the first records, all of one width of two or more."""
    # In a .csv file bars and tabs rather belong to names.
    likely = (";", ",", "\t", "|") if lines.file.path.name.lower().endswith((".csv", ".csv.gz")) else SEPARATORS
    separator, records = sniff(lines.head, (*likely, BLANKS))
    if separator == "," and _commas_are_decimal(spaced := split(lines.head, BLANKS)):
        separator, records = BLANKS, spaced
    widths = {len(record) for record in records}
    check(
        not widths <= {1},
        f"{lines.file.path.name} has one column; give {_WANTED}, separated by blanks, tabs, commas or semicolons",
    )
    if len(widths) > 1:
        raise lines.check(separator, len(records[0]))
    return separator, records


def _commas_are_decimal(records: Sequence[Sequence[str]]) -> bool:
    """Return whether the only commas are in numbers after the two names."""
    body = records[1:] or records
    if len({len(record) for record in records}) > 1 or any("," in cell for record in body for cell in record[:2]):
        return False
    return all(re.fullmatch(f"{COMMA_NUMBER}|{NUMBER}", cell) for record in body for cell in record[2:])


def _detect_header(
    path: Path,
    records: Sequence[Sequence[str]],
    names: NDArray[np.str_],
    codes: NDArray[Any],
    ends: Ends | None,
) -> tuple[bool, bool]:
    """Return whether the first line holds column names, which are then no names of nodes, and whether that is in doubt.

    In a .csv or .tsv file, which usually has a header, it is enough that no other line has its names, unless most
    others stand apart like that too. In other files such a line is an edge. Both are in doubt.
    """
    first = names[codes[:, 0]].tolist()
    if ends == tuple(first) and not all(end.isdecimal() for end in ends):
        return True, False
    if np.isin(codes[:, 1:], codes[:, 0]).any():
        return False, False
    if looks_like_header(records):
        return True, False
    alone = (np.bincount(codes.ravel()) == 1)[codes].all(0)
    if len(alone) < 3 or not alone[0] or alone[1:].mean() >= 0.5 or any(re.fullmatch(NUMBER, name) for name in first):
        return False, False
    return path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv")), True


# Columns of lists of edges: which name nodes, which holds weights.


def _likely_ends(first: Sequence[str], ends: Ends | None) -> tuple[int, int]:
    """Find the columns that name nodes before it is known whether the first record is a header."""
    numbered = ends is not None and all(end.isdecimal() for end in ends)
    columns = [str(number + 1) for number in range(len(first))] if numbered else list(first)
    if ends is not None and set(ends) <= set(columns):
        return columns.index(ends[0]), columns.index(ends[1])
    return named_ends(first) or (0, 1)


def end_columns(
    source: str | Path, header: Sequence[str] | None, width: int, ends: Ends | None = None
) -> tuple[int, int]:
    """Find the two columns that name nodes: those asked for, else by their names, else the first two.

    A table of more than three columns, none of which have a usual name, is refused: it is likelier a table of rows.

    Example:
        >>> end_columns("g.csv", ["Id", "Source", "Target", "Weight"], 4), end_columns("g.csv", ["ann", "ben"], 2)
        ((1, 2), (0, 1))
        >>> end_columns("g.csv", ["who", "whom", "when", "where"], 4, ends=("who", "whom"))
        (0, 1)
    """
    path, columns = Path(source), list(header or (str(number + 1) for number in range(width)))
    check(width > 1, f"{path.name} has one column or none; give two that name nodes")
    if ends is not None:
        for role, name in zip(("source_column", "target_column"), ends, strict=True):
            require_column(path, role, name, columns)
        check(ends[0] != ends[1], f"`source_column=…` and `target_column=…` both are {ends[0]!r}; name two columns")
        return columns.index(ends[0]), columns.index(ends[1])
    found = named_ends(header) if header else None
    if found is None and width > 3:
        rows = f"curvae fit {shlex.quote(str(source))}" if isinstance(source, Path) else "PoincareVAE"
        first, second = (json.dumps(name, ensure_ascii=False) for name in columns[:2])
        raise CurvaeError(
            f"{path.name} has {width:,} columns, and a list of edges two or three; use {rows} for a table of rows, or "
            f"say which columns name the nodes of an edge: `source_column={first}` `target_column={second}`"
        )
    return found or (0, 1)


def weight_column(source: str, header: Sequence[str] | None, width: int, ends: tuple[int, int]) -> int:
    """Find the column of weights: by its name, else the only one that does not name nodes, without a header the third.

    Example:
        >>> weight_column("friends.csv", ["from", "to", "year", "weight"], 4, (0, 1))
        3
    """
    folded = [cell.strip().casefold() for cell in header or ()]
    named = [folded.index(name) for name in _WEIGHTS if name in folded]
    others = [column for column in range(width) if column not in ends]
    check(others, f"{source} has no third column for weights; add it, or leave out `weighted=True`")
    if not (found := [column for column in named if column in others]) and header and len(others) > 1:
        raise CurvaeError(
            f"{source} has several columns beside the names, {quoted([header[column] for column in others])}, none of "
            "them called 'weight'; rename the one with the weights"
        )
    return (found or others)[0]


def looks_like_header(records: Sequence[Sequence[str]]) -> bool:
    """Return whether the first of some records holds column names.

    It does if it has the usual names, or two names that differ only in a 1 and a 2 and start no other record, or a
    text where all other records have a number.

    Example:
        >>> looks_like_header([["protein1", "protein2"], ["p53", "mdm2"]])
        True
        >>> looks_like_header([["ann", "ben", "weight"], ["ben", "cem", "2"]])
        True
        >>> looks_like_header([["n1", "n2"], ["n2", "n3"]])
        False
    """
    first, rest = records[0], records[1:]
    if named_ends(first) is not None:
        return True
    if (stem := common_stem(first)) is not None:
        series = re.compile(rf"{re.escape(stem)}[\W_]*(?:\d+|\w)", re.IGNORECASE)
        return not any(series.fullmatch(cell) for record in rest for cell in record[:2])
    if not rest:
        return False
    numbers = [all(re.fullmatch(NUMBER, record[k]) for record in rest) for k in range(len(first))]
    texts = [cell != "" and re.fullmatch(NUMBER, cell) is None for cell in first]
    if numbers[0] and numbers[1]:
        return texts[0] and texts[1]
    return any(number and text for number, text in zip(numbers[2:], texts[2:], strict=True))


# Graphs from objects: of networkx and torch-geometric, sparse matrices of scipy, frames and pairs of edges.
#
# GraphML files (Brandes et al., 2002, GraphML progress report) are read through networkx.

_FORMS = "a file, a networkx graph, a scipy sparse matrix, torch-geometric data, a frame of edges or pairs of nodes"


def from_networkx(graph: Any, weighted: bool, source: str = "the networkx graph") -> RawGraph:
    """Take a graph of networkx, of any class.

    Nodes are named as they print, and their data become attributes. The weight of an edge is its attribute "weight".
    """
    names = np.array([str(node) for node in graph], dtype=np.str_)
    check(len(np.unique(names)) == len(names), f"{source} has different nodes that print alike; relabel them")
    place = {node: i for i, node in enumerate(graph)}
    links = np.array([(place[a], place[b]) for a, b in graph.edges()], dtype=np.int64).reshape(-1, 2)
    attributes = pd.DataFrame([data for _, data in graph.nodes(data=True)], index=range(len(names)))
    raw = RawGraph(source, names, links, directed=graph.is_directed(), attributes=attributes.rename(columns=str))
    found = [weight for *_, weight in graph.edges(data="weight")]
    raw.set_weights(found if weighted or any(weight is not None for weight in found) else None, weighted)
    return raw


def from_geometric(data: Any, weighted: bool) -> RawGraph:
    """Take a graph from a `Data` of torch-geometric: features from x, labels from y; nodes are named by their numbers.

    Weights are those of edge_weight, or of edge_attr if it has one number per edge.
    """
    source, nodes = "the torch-geometric graph", int(data.num_nodes)
    *values, x, y = (
        None if tensor is None else np.asarray(tensor.detach().cpu())
        for tensor in (data.edge_weight, data.edge_attr, data.x, data.y)
    )
    links = np.asarray(data.edge_index.detach().cpu()).T.astype(np.int64)
    if links.size and (links.min() < 0 or links.max() >= nodes):
        raise CurvaeError(f"{source} has {nodes:,} nodes and an edge to node {links.max():,}; set `num_nodes`")
    raw = RawGraph(source, np.arange(nodes).astype(np.str_), links)
    weights = next((value.reshape(-1) for value in values if value is not None and value.size == len(links)), None)
    check(not weighted or weights is not None, f"{source} has no `edge_weight`; set it, or leave out `weighted=True`")
    raw.set_weights(weights, weighted)
    if x is not None:
        raw.features = x.reshape(nodes, -1).astype(np.float64)
        raw.feature_names = feature_names(raw.features.shape[1])
    if y is not None and y.size == nodes:
        raw.labels, raw.label_name = texts_of(y.reshape(-1)), "y"
    elif y is not None:
        raw.messages.note("y was left out because it does not have one label per node.")
    return raw


def from_matrix(matrix: Any, weighted: bool, source: str = "the matrix", first: int = 0) -> RawGraph:
    """Take a graph from a sparse adjacency matrix: an edge for each value that is not 0.

    Arguments:
        matrix: a matrix of scipy.sparse in any format, (nodes, nodes).
        weighted: whether its values are weights.
        source: name of the matrix in messages.
        first: number of the first node.
    """
    rows, columns = matrix.shape
    check(
        rows == columns,
        f"{source} is {rows:,} × {columns:,}; give a square matrix, with one row and one column per node",
    )
    memory.require(100 * rows, f"{source} ({rows:,} nodes)", fix="give a smaller graph")
    matrix = csr_array(as_matrix(matrix, source), dtype=np.float64, copy=True)
    matrix.eliminate_zeros()
    check(np.isfinite(matrix.data).all(), f"{source} holds missing or infinite values; replace them")
    known = matrix if weighted else matrix.astype(bool)
    symmetric = (known != known.T).nnz == 0
    entries = coo_array(triu(matrix) if symmetric else matrix)
    raw = RawGraph(
        source,
        names=np.arange(first, rows + first).astype(np.str_),
        links=np.stack([axis.astype(np.int64) for axis in entries.coords], axis=1),
        directed=not symmetric,
    )
    raw.set_weights(entries.data if weighted or (entries.data != 1).any() else None, weighted)
    return raw


def read_adjacency(path: Path, weighted: bool) -> RawGraph:
    """Read an adjacency matrix: a .npz file of scipy, or a Matrix Market file, which counts nodes from 1."""
    return from_matrix(read_sparse(path), weighted, path.name, first=0 if path.suffix.lower() == ".npz" else 1)


def from_frame(frame: pd.DataFrame, weighted: bool, ends: Ends | None = None) -> RawGraph:
    """Take a graph from a frame with one edge per row; columns are found as in a text file with a header."""
    return _from_columns(
        "the frame of edges",
        [str(name) for name in frame.columns],
        lambda columns: frame.iloc[:, columns],
        weighted,
        ends,
    )


def read_parquet_edges(path: Path, weighted: bool, ends: Ends | None = None) -> RawGraph:
    """Read a list of edges from a Parquet file, of which only the columns needed are read."""
    with opened_parquet(path) as file:
        header = [str(name) for name in file.schema_arrow.names if not name.startswith("__index_level")]

        def read(columns: list[int]) -> pd.DataFrame:
            rows, wanted = file.metadata.num_rows, [header[column] for column in columns]
            memory.require(64 * rows * len(wanted), f"{path.name} ({rows:,} edges)", fix="use fewer edges")
            return file.read(wanted).select(wanted).to_pandas(ignore_metadata=True)

        return _from_columns(path, header, read, weighted, ends)


def _from_columns(
    source: str | Path,
    header: list[str],
    read: Callable[[list[int]], pd.DataFrame],
    weighted: bool,
    ends: Ends | None,
) -> RawGraph:
    """Take a graph from columns, of which `read` returns those with the given positions."""
    name, (left, right) = Path(source).name, end_columns(source, header, len(header), ends)
    weights = [weight_column(name, header, len(header), (left, right))] if weighted else []
    frame = read([left, right, *weights])
    coded = code_nodes(frame.iloc[:, 0], frame.iloc[:, 1])
    raw = RawGraph(name, *number_nodes(name, *coded), ends=(header[left], header[right]))
    if weighted or len(header) == 3:
        raw.set_weights(frame.iloc[:, 2] if weighted else [], weighted, lambda row: f"row {row + 1}")
    elif len(header) > 2:
        raw.messages.note(_LEFT_OUT.format(count(len(header) - 2, "column")))
    return raw


def from_pairs(source: Any, weighted: bool) -> RawGraph:
    """Take a graph from anything that numpy converts to an array of whole numbers or texts, (edges, 2)."""
    what = f"the graph of type {type(source).__name__}"
    try:
        pairs = np.asarray(source)
    except Exception as error:  # other libraries may raise anything
        raise CurvaeError(f"{what} cannot be read; give {_FORMS}") from error
    square = pairs.ndim == 2 and pairs.shape[0] == pairs.shape[1] > 2
    for right, otherwise in (
        (pairs.size or not pairs.ndim, "no edges; give at least one"),
        (not square, f"shape {pairs.shape}; convert an adjacency matrix to a scipy.sparse.csr_array"),
        (pairs.ndim == 2 and pairs.shape[1] == 2, f"shape {pairs.shape}; give {_FORMS}"),
        (not weighted, "no weights; give a frame with a column 'weight', or leave out `weighted=True`"),
    ):
        check(right, f"{what} has {otherwise}")
    if pairs.dtype.kind == "f" and bool((pairs % 1 == 0).all()):
        pairs = pairs.astype(np.int64)
    if pairs.dtype.kind in "iu":
        codes, numbers = pd.factorize(pairs.ravel(), sort=True)
        return RawGraph(what, numbers.astype(np.str_), codes.reshape(-1, 2))
    check(pairs.dtype.kind in "UO", f"{what} holds {pairs.dtype}; give whole numbers or texts")
    return RawGraph(what, *number_nodes(what, *code_nodes(*(pd.Series(column) for column in pairs.T))))


_SPACE = "{http://graphml.graphdrawing.org/xmlns}"
_NEEDED = {"node": ("id",), "edge": ("source", "target"), "data": ("key",), "key": ("id",)}


def read_graphml(path: Path, weighted: bool) -> RawGraph:
    """Read a GraphML file, which may be gzipped.

    Nodes are named by their ids, and their data become attributes. Edge data called "weight" are the weights.
    """
    from networkx import NetworkXError
    from networkx.readwrite.graphml import GraphMLReader

    # Some of these errors are about unknown encodings.
    with reading(path.name, "GraphML", ElementTree.ParseError, NetworkXError, LookupError, ValueError):
        root = _parse_xml(path)
        _normalise(path.name, root)
        reader = GraphMLReader(force_multigraph=True)
        keys, defaults = reader.find_graphml_keys(root)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ports of nodes say nothing about the graph
            graph = reader.make_graph(root.find(f"{_SPACE}graph"), keys, defaults)
    for items, kind in ((graph.nodes, "node"), (graph.edges, "edge")):
        given = {key["name"]: defaults.get(name) for name, key in keys.items() if key["for"] in (kind, "all", None)}
        for *_, data in items(data=True):
            data.update({**given, **data})
    return from_networkx(graph, weighted, path.name)


def _parse_xml(path: Path) -> ElementTree.Element:
    """Read the elements of a file, if they fit in memory."""

    class Builder(ElementTree.TreeBuilder):
        def doctype(self, *_: object) -> None:  # which could define entities that grow without end
            raise CurvaeError(f"{path.name} has a document type, which is not read; remove <!DOCTYPE …>")

    chunks, size = [], 0
    with open_file(path) as stream:
        while chunk := stream.read(2**20):
            size += len(chunk)
            # Of the elements and the graph, per byte of the file.
            memory.require(30 * size, f"{path.name} (at least {size:,} bytes)", fix="use fewer edges")
            chunks.append(chunk)
    return ElementTree.fromstringlist(chunks, ElementTree.XMLParser(target=Builder()))


def _normalise(source: str, root: ElementTree.Element) -> None:
    """Check a document and bring it to the form that networkx reads."""
    space, bracket, tag = root.tag.rpartition("}")
    space += bracket
    check(tag == "graphml", f"{source} has <{tag}> instead of <graphml>; save it as GraphML")
    for element in root.iter():
        element.tag = element.tag if "}" in (tag := element.tag.removeprefix(space)) else _SPACE + tag
    found = {tag: list(root.iter(_SPACE + tag)) for tag in (*_NEEDED, "graph", "hyperedge")}
    check(len(found["graph"]) == 1, f"{source} has {len(found['graph'])} graphs; give one graph a file")
    check(not found["hyperedge"], f"{source} has a hyperedge; give edges between two nodes")
    _check_elements(source, found)
    _normalise_data(root, found["data"], found["key"])
    for number, edge in enumerate(found["edge"]):
        edge.set("id", str(number))  # networkx merges edges with the same id
        if edge.attrib.pop("directed", "") == "true":
            found["graph"][0].set("edgedefault", "directed")


def _normalise_data(
    root: ElementTree.Element, values: list[ElementTree.Element], keys: list[ElementTree.Element]
) -> None:
    """Turn all data into texts and declare their keys, so that networkx converts nothing and refuses nothing."""
    for default in root.iter(f"{_SPACE}default"):
        default.text = (default.text or "").strip()
    for data in values:
        text = "".join([data.text or "", *(child.tail or "" for child in data)]).strip()
        data.text = text or None
        if text:
            data[:] = []  # of drawing programs
    undeclared = {data.attrib["key"] for data in values} - {key.attrib["id"] for key in keys}
    added = [ElementTree.SubElement(root, f"{_SPACE}key", {"id": name, "for": "none"}) for name in undeclared]
    for key in (*keys, *added):  # values that are not of their type are checked where they are used
        key.attrib |= {"attr.name": key.get("attr.name", key.attrib["id"]), "attr.type": "string"}


def _check_elements(source: str, found: Mapping[str, list[ElementTree.Element]]) -> None:
    """Raise unless all elements have the names that they need, nodes are unique and edges join nodes of the file."""
    for tag, names in _NEEDED.items():
        for number, element in enumerate(found[tag], 1):
            for name in names:
                if name not in element.attrib:
                    raise CurvaeError(f"{source}: <{tag}> number {number} has no {name!r}; save the file again")
                element.set(name, element.attrib[name].strip())
    times = Counter(node.attrib["id"] for node in found["node"])
    if twice := [name for name, number in times.items() if number > 1]:
        raise CurvaeError(f"{source} has several nodes {quoted(twice)}; make ids unique")
    ends = (edge.attrib[name] for edge in found["edge"] for name in _NEEDED["edge"])
    if unknown := list(dict.fromkeys(end for end in ends if end not in times)):
        raise CurvaeError(f"{source} has edges to nodes that it does not list: {quoted(unknown)}; add them")


# How the names of graph files end, before .gz, and what reads them; others are lists of edges.
GRAPH_FILES: dict[str, Callable[..., RawGraph]] = {
    ".npz": read_adjacency,
    ".mtx": read_adjacency,
    ".graphml": read_graphml,
    ".parquet": read_parquet_edges,
}


# From links to a graph. Labels and features of the nodes come from a table, which is matched by their names, from a
# matrix, or from the source of the graph itself.

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
        numbers = np.array(values if values.dtype.kind in "biuf" else [*map(_number, values.tolist())], np.float64)
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
    check(
        not directed or raw.directed is not False,
        f"the edges of {raw.source} have no direction; leave out `directed=True`",
    )
    if directed and raw.ends:
        messages.note("edges lead from {!r} to {!r}.".format(*raw.ends))
    keep = raw.links[:, 0] != raw.links[:, 1]
    if loops := int((~keep).sum()):
        messages.note(f"left out: {count(loops, 'self loop')}.")
    check(keep.any(), f"{raw.source} has no edges{' between different nodes' if loops else ''}; give at least one")
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
        check(
            self.missing in get_args(Filling),
            f"missing is {self.missing!r}; use one of {', '.join(get_args(Filling))}",
        )
        for name, given in (("features", self.features), ("categorical", self.categorical)):
            check(not isinstance(given, str), f"{name} is the text {given!r}; give a list of columns")
        check(
            not self.isolated or self.nodes is not None,
            "only a table of nodes can name nodes without edges; give it with `nodes=…`",
        )

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
    check(
        not aside or raw.features is not None,
        "`features_file` has no column of numbers; give one, or name text columns with `categorical=…`",
    )


def _match(raw: RawGraph, nodes: NodeTable, asked: NodeRequest) -> _NodeRows:
    """Read a table of nodes and match its rows by name; nodes that only the table names are added if asked for."""
    table = _node_table(nodes, [*asked.columns, *([asked.label] if asked.label else [])], raw.messages)
    known, source = pd.Index(raw.names), table.path.name
    # The first column names nodes, unless a column with a usual name matches more of them.
    usual = [name for spelling in _NAMES for name in table.names if name.casefold() == spelling]
    candidates = {name: table.texts(name, strip=True) for name in (*usual, table.names[0])}
    key, ids = max(candidates.items(), key=lambda item: int((known.get_indexer(pd.Index(item[1])) >= 0).sum()))
    check_ids(ids, f"column {key!r} of {source}", fix="give one row per node")
    added = ids[known.get_indexer(pd.Index(ids)) < 0]
    check(
        len(added) < len(ids),
        f"{source} names {quoted(ids[:2])} in column {key!r} and {raw.source} has nodes {quoted(raw.names[:2])}: no "
        "name is in both; use the same names",
    )
    if len(added) and not asked.isolated:
        raise CurvaeError(
            f"{source} names {count(len(added), 'node')} that {raw.source} does not have: {quoted(added)}; "
            "remove them, or add them without edges with `isolated=True`"
        )
    check(
        not len(added) or raw.features is None,
        f"{raw.source} has features for its own nodes only; leave out `isolated=True`",
    )
    raw.names = np.concatenate([raw.names, added])
    if raw.labels is not None:
        raw.labels = np.concatenate([raw.labels, np.full(len(added), "")])
    rows = pd.Index(ids).get_indexer(pd.Index(raw.names))
    if len(absent := raw.names[rows < 0]):
        needed = nodes is asked.features_file or (asked.features_file is None and bool(asked.columns))
        what = f"{source} has no row for {count(len(absent), 'node')} of {raw.source}: {quoted(absent)}"
        check(not needed or asked.missing != "error", f'{what}; add them, or use `missing="mean"`')
        raw.messages.warn(f"{what}; add them.")
    return _NodeRows(table, key, ids, rows)


def names_nodes(nodes: NodeTable, names: Sequence[str]) -> bool:
    """Return whether a column of a table of nodes has all of these names."""
    table = _node_table(nodes, (), Messages())
    return any(set(names) <= set(table.texts(column, strip=True)) for column in table.names)


def _node_table(nodes: NodeTable, asked: Sequence[str], messages: Messages) -> FrameTable:
    """Read a table of nodes from a file, or take a frame."""
    if isinstance(nodes, pd.DataFrame):
        path = Path("the table of nodes")
        frame = named_frame(path, nodes)
        check(not frame.empty, f"{path} is empty; give one row per node")
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
    check(
        not figures.has_missing or asked.missing != "error",
        f'{source.name} has missing values of nodes, counted by column: {where}; use `missing="mean"`',
    )
    check(
        figures.present.all(),
        f"{source.name} has columns without a single value: {where}; leave them out of `features=…`",
    )
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
    return isinstance(source, pd.DataFrame) or (
        isinstance(source, str | Path) and str(source).lower().endswith(tuple(TABLES))
    )


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
        check(
            ending.endswith((".npz", ".npy", ".mtx")),
            f"{name} is no matrix of features; give a .npz, .npy, .csv or .parquet file",
        )
        found = read_npy(path).x if ending.endswith(".npy") else read_sparse(path)
    matrix: Any = as_matrix(found, name)
    check(not has_missing(matrix), f"{name} has missing or infinite values; replace them")
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
    check(not asked.columns, "features come from `features_file=…` or from columns of `nodes=…`; leave out one of them")
    name, matrix = read_matrix(asked.features_file, raw.messages)
    height, names = matrix.shape[0], raw.names
    if listed is not None:
        check(
            len(listed) == height,
            f"{name} has {count(height, 'row')} and the table of nodes {len(listed):,}; give equally many",
        )
        rows = pd.Index(listed).get_indexer(pd.Index(names))
        check(
            (rows >= 0).all(),
            f"the table of nodes has no row for {quoted(names[rows < 0])}, so {name} has none; add them",
        )
    else:
        check(
            all(re.fullmatch(r"\d{1,18}", node) for node in names.tolist()),
            f"{name} does not say which row belongs to node {str(names[0])!r}; call nodes by the numbers of their "
            "rows, from 0, or give a table with `nodes=…` in the order of the rows",
        )
        rows = names.astype(np.int64)
        rows = rows - int(rows.min() >= 1 and rows.max() == height)
        check(
            rows.max() < height, f"{name} has {count(height, 'row')}, none for node {rows.max()}; give one row per node"
        )
    if unused := height - len(rows):
        raw.messages.note(f"left out: {count(unused, 'row')} of {name} without an edge in {raw.source}.")
    raw.features, raw.feature_names = matrix[rows], feature_names(matrix.shape[1])
