"""Load a graph from a file, from an object of another library, or by the name of a built-in graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.sparse import issparse

from ...errors import CurvaeError
from ..files import BROKEN_GZIP, fetch, not_found, open_file, places, require_file
from .edgelist import (
    Ends,
    from_frame,
    from_geometric,
    from_matrix,
    from_networkx,
    from_pairs,
    is_geometric,
    is_networkx,
    read_adjacency,
    read_edge_list,
    read_graphml,
    read_parquet_edges,
)
from .graph_data import Graph
from .raw_graph import Categories, Filling, NodeRequest, NodeTable, RawGraph, describe_nodes, names_nodes

__all__ = ["BUILT_IN_GRAPHS", "GRAPH_FILES", "load_graph"]

_FOLDER = "graphs"
_ADDRESS = "https://raw.githubusercontent.com/HazyResearch/hyperbolics/"


# How the names of graph files end, before .gz, and what reads them; others are lists of edges.
GRAPH_FILES: dict[str, Callable[..., RawGraph]] = {
    ".npz": read_adjacency,
    ".mtx": read_adjacency,
    ".graphml": read_graphml,
    ".parquet": read_parquet_edges,
}

# Which objects of other libraries are read by what; others are pairs of nodes.
_OBJECTS: tuple[tuple[Callable[[Any], bool], Callable[..., RawGraph]], ...] = (
    (lambda source: isinstance(source, pd.DataFrame), from_frame),
    (is_networkx, from_networkx),
    (issparse, partial(from_matrix, "the matrix")),
    (is_geometric, from_geometric),
)

_UNREAD = (".gml", ".gexf", ".dot", ".gv", ".net", ".json", ".xlsx", ".npy", ".pkl", ".gpickle", ".pt")


@dataclass(frozen=True)
class _Published:
    """A file on the web: its folder there, its name and its SHA-256."""

    folder: str
    file: str
    checksum: str


# Files of Sala et al. (2018), Representation tradeoffs for hyperbolic embeddings, as first committed.
BUILT_IN_GRAPHS = {
    "phylogenetic": _Published(
        "1e47ff42fc0d6ebbad0ffbafad1272bb060efd18/combinatorial/",
        "phylo_tree.edges",
        "e1b4607b0112a692e56ccd4dd5cd35cb3cebf4a45f907e0e8bbf788fe5f3499e",
    ),
    "csphd": _Published(
        "2aa7baea0f9f5753666970f25f8e4b6e655dbb9b/data/edges/",
        "ca-CSphd.edges",
        "26d761c07db457623c1e0be9644f62f188d376335a317b69b4de7f20e7c202ca",
    ),
    "diseases": _Published(
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
    ends = None
    if source_column is not None and target_column is not None:
        ends = source_column, target_column
    elif source_column is not None or target_column is not None:
        raise CurvaeError("an edge has two nodes; give both source_column=… and target_column=…")
    try:
        raw = _read(source, weighted, header, ends)
        if raw.header and (set(raw.header) <= set(known) or (nodes is not None and names_nodes(nodes, raw.header))):
            raw = _read(source, weighted, False, ends)
        describe_nodes(raw, asked)
    except OSError as error:
        raise CurvaeError(
            f"{error.filename or source} cannot be read: {error.strerror or error}; check the file and its permissions"
        ) from error
    return raw.finish(directed)


def _read(source: Any, weighted: bool, header: bool | None, ends: Ends | None) -> RawGraph:
    if isinstance(source, str | Path):
        source = _find(source)
        name, reader = source.name, _file_reader(source)
        if reader is read_edge_list:
            return read_edge_list(source, weighted, header, ends)
    else:
        name = "the graph"
        reader = next((reader for fits, reader in _OBJECTS if fits(source)), from_pairs)
    if header is not None:
        raise CurvaeError(f"{name} is no list of edges in a text file, which alone has a header; leave out header=…")
    if reader in (from_frame, read_parquet_edges):
        return reader(source, weighted, ends=ends)
    if ends is not None:
        raise CurvaeError(f"{name} is no table of edges; leave out source_column=… and target_column=…")
    return reader(source, weighted)


def _file_reader(path: Path) -> Callable[..., RawGraph]:
    """Choose what reads a file, by its name or else by how it starts."""
    name = path.name.lower().removesuffix(".gz")
    if (known := next((reader for ending, reader in GRAPH_FILES.items() if name.endswith(ending)), None)) is not None:
        return known
    if name.endswith(_UNREAD):
        raise CurvaeError(
            f"{path.name} has a file extension that is not supported; save it as GraphML or as a list of edges"
        )
    try:
        with open_file(path) as stream:
            start = stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    except BROKEN_GZIP:  # the reader raises the error
        return read_edge_list
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
    published = BUILT_IN_GRAPHS[str(source)]
    names = (published.file, f"{published.file}.gz")
    found = (place / name for place in places(_FOLDER) for name in names if (place / name).is_file())
    if (file := next(found, None)) is not None:
        return file
    checksums = {published.file: published.checksum}
    return fetch(_FOLDER, _ADDRESS + published.folder, checksums, what=f"graph {source}") / published.file
