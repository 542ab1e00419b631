"""Graphs from objects: of networkx and torch-geometric, sparse matrices of scipy, frames and pairs of edges.

GraphML files (Brandes et al., 2002, GraphML progress report) are read through networkx.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, triu

from ...errors import CurvaeError
from .. import memory
from ..column_values import texts_of
from ..dataset import feature_names
from ..files import BROKEN_GZIP, open_file
from ..messages import count, one_line, quoted
from .coded import code_numbers, name_nodes
from .edgelist import Ends, end_columns, weight_column
from .raw_graph import RawGraph

__all__ = [
    "from_frame",
    "from_geometric",
    "from_matrix",
    "from_networkx",
    "from_pairs",
    "is_geometric",
    "is_networkx",
    "read_graphml",
]

_FORMS = "a file, a networkx graph, a scipy sparse matrix, torch-geometric data, a frame of edges or pairs of nodes"


def is_networkx(source: object) -> bool:
    """Whether an object is a graph of networkx, without importing it."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(source, networkx.Graph)


def is_geometric(source: object) -> bool:
    """Whether an object looks like a `Data` of torch-geometric."""
    return getattr(source, "edge_index", None) is not None


def from_networkx(graph: Any, weighted: bool, source: str = "the networkx graph") -> RawGraph:
    """Take a graph of networkx, of any class.

    Nodes are named as they print, and their data become attributes. The weight of an edge is its attribute "weight".
    """
    names = np.array([str(node) for node in graph], dtype=np.str_)
    if np.unique(names).size < names.size:
        raise CurvaeError(f"{source} has different nodes that print alike; relabel them")
    place = {node: i for i, node in enumerate(graph)}
    links = np.array([(place[a], place[b]) for a, b in graph.edges()], dtype=np.int64).reshape(-1, 2)
    raw = RawGraph(source, names, links, directed=graph.is_directed())
    raw.attributes = pd.DataFrame([data for _, data in graph.nodes(data=True)], index=range(len(names)))
    raw.attributes.columns = pd.Index([str(name) for name in raw.attributes.columns])
    found = [weight for *_, weight in graph.edges(data="weight")]
    raw.set_weights(found if weighted or any(weight is not None for weight in found) else None, weighted)
    return raw


def from_geometric(data: Any, weighted: bool) -> RawGraph:
    """Take a graph from a `Data` of torch-geometric: features from x, labels from y; nodes are named by their numbers.

    Weights are those of edge_weight, or of edge_attr if it has one number per edge.
    """
    source = "the torch-geometric graph"
    nodes = int(data.num_nodes)
    links = _array(data.edge_index).T.astype(np.int64)
    if links.size and (links.min() < 0 or links.max() >= nodes):
        raise CurvaeError(f"{source} has {nodes:,} nodes and an edge to node {links.max():,}; set num_nodes")
    raw = RawGraph(source, np.arange(nodes).astype(np.str_), links)
    weights = next((w for w in (data.edge_weight, data.edge_attr) if w is not None and w.numel() == len(links)), None)
    if weighted and weights is None:
        raise CurvaeError(f"{source} has no edge_weight; set it, or leave out weighted=True")
    raw.set_weights(None if weights is None else _array(weights).reshape(-1), weighted)
    if data.x is not None:
        raw.features = _array(data.x).reshape(nodes, -1).astype(np.float64)
        raw.feature_names = feature_names(raw.features.shape[1])
    if data.y is not None and data.y.numel() == nodes:
        raw.labels, raw.label_name = texts_of(pd.Series(_array(data.y).reshape(-1))), "y"
    elif data.y is not None:
        raw.messages.note("y was left out because it does not have one label per node.")
    return raw


def _array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu())


def from_matrix(source: str, matrix: Any, weighted: bool, first: int = 0) -> RawGraph:
    """Take a graph from a sparse adjacency matrix: an edge for each value that is not 0.

    Arguments:
        source: name of the matrix in messages.
        matrix: a matrix of scipy.sparse in any format, (nodes, nodes).
        weighted: whether its values are weights.
        first: number of the first node.
    """
    rows, columns = matrix.shape
    if rows != columns:
        raise CurvaeError(
            f"{source} is {rows:,} × {columns:,}; give a square matrix, with one row and one column per node"
        )
    if matrix.dtype.kind not in "biuf":
        raise CurvaeError(f"{source} holds {matrix.dtype}, not real numbers; convert it to float")
    memory.require(100 * rows, f"{source} ({rows:,} nodes)", fix="give a smaller graph")
    matrix = csr_array(matrix, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.isfinite(matrix.data).all():
        raise CurvaeError(f"{source} holds missing or infinite values; replace them")
    known = matrix if weighted else matrix.astype(bool)
    symmetric = (known != known.T).nnz == 0
    entries = coo_array(triu(matrix) if symmetric else matrix)
    links = np.stack([axis.astype(np.int64) for axis in entries.coords], axis=1)
    raw = RawGraph(source, np.arange(first, rows + first).astype(np.str_), links, directed=not symmetric)
    raw.set_weights(entries.data if weighted or (entries.data != 1).any() else None, weighted)
    return raw


def from_frame(
    frame: pd.DataFrame, weighted: bool, source: str = "the frame of edges", ends: Ends | None = None
) -> RawGraph:
    """Take a graph from a frame with one edge per row; columns are found as in a text file with a header."""
    header = [str(name) for name in frame.columns]
    if len(header) < 2:
        raise CurvaeError(f"{source} has one column or none; give two that name nodes")
    a, b = end_columns(source, header, len(header), ends)
    left, right = (pd.Series(texts_of(frame.iloc[:, column], strip=True)) for column in (a, b))
    _check_names(source, left, right)
    raw = RawGraph(source, *name_nodes(left, right), ends=(header[a], header[b]))
    if weighted or len(header) == 3:
        weights = frame.iloc[:, weight_column(source, header, len(header), (a, b))]
        raw.set_weights(weights, weighted, lambda row: f"row {row + 1}")
    elif len(header) > 3:
        left_out = count(len(header) - 2, "column")
        raw.messages.note(f"left out: {left_out} beside the names; use weighted=True to read weights.")
    return raw


def from_pairs(source: Any, weighted: bool) -> RawGraph:
    """Take a graph from anything that numpy converts to an array of whole numbers or texts, (edges, 2)."""
    what = f"the graph of type {type(source).__name__}"
    try:
        pairs = np.asarray(source)
    except Exception as error:  # other libraries may raise anything
        raise CurvaeError(f"{what} cannot be read; give {_FORMS}") from error
    square = pairs.ndim == 2 and pairs.shape[0] == pairs.shape[1] > 2
    for wrong, why in (
        (pairs.ndim and not pairs.size, "no edges; give at least one"),
        (square, f"shape {pairs.shape}; convert an adjacency matrix to a scipy.sparse.csr_array"),
        (pairs.ndim != 2 or pairs.shape[1] != 2, f"shape {pairs.shape}; give {_FORMS}"),
        (weighted, "no weights; give a frame with a column 'weight', or leave out weighted=True"),
    ):
        if wrong:
            raise CurvaeError(f"{what} has {why}")
    if pairs.dtype.kind == "f" and bool((pairs % 1 == 0).all()):
        pairs = pairs.astype(np.int64)
    if pairs.dtype.kind in "iu":
        numbers, places = code_numbers(pairs)
        return RawGraph(what, numbers.astype(np.str_), places.astype(np.int64))
    if pairs.dtype.kind not in "UO":
        raise CurvaeError(f"{what} holds {pairs.dtype}; give whole numbers or texts")
    left, right = (pd.Series(texts_of(pd.Series(column, dtype=object), strip=True)) for column in pairs.T)
    _check_names(what, left, right)
    return RawGraph(what, *name_nodes(left, right))


def _check_names(source: str, left: Any, right: Any) -> None:
    if (empty := ((left == "") | (right == "")).to_numpy(bool)).any():
        raise CurvaeError(f"{source}: row {int(np.argmax(empty)) + 1} names only one node; give two")


_CHUNK = 2**20
_MEMORY = 30  # bytes for the elements and the graph, per byte of the file
_SPACE = "{http://graphml.graphdrawing.org/xmlns}"
_NEEDED = {"node": ("id",), "edge": ("source", "target"), "data": ("key",), "key": ("id",)}


def read_graphml(path: Path, weighted: bool) -> RawGraph:
    """Read a GraphML file, which may be gzipped.

    Nodes are named by their ids, and their data become attributes. Edge data called "weight" are the weights.
    """
    from networkx import NetworkXError
    from networkx.readwrite.graphml import GraphMLReader

    try:
        root = _parse(path)
        _normalise(path.name, root)
        reader = GraphMLReader(force_multigraph=True)
        keys, defaults = reader.find_graphml_keys(root)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ports of nodes say nothing about the graph
            graph = reader.make_graph(root.find(f"{_SPACE}graph"), keys, defaults)
    except CurvaeError:
        raise
    except BROKEN_GZIP as error:
        raise CurvaeError(f"{path.name} is not a complete gzip file ({one_line(error)}); pack it again") from error
    except (ElementTree.ParseError, NetworkXError, LookupError, ValueError) as error:  # some of unknown encodings
        raise CurvaeError(f"{path.name} cannot be read as GraphML: {one_line(error)}; save it again") from error
    for items, kind in ((graph.nodes, "node"), (graph.edges, "edge")):
        given = {key["name"]: defaults.get(name) for name, key in keys.items() if key["for"] in (kind, "all", None)}
        for *_, data in items(data=True):
            data.update({**given, **data})
    return from_networkx(graph, weighted, path.name)


class _Builder(ElementTree.TreeBuilder):
    """Builds the tree of a file without a document type, which could define entities that grow without end."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source

    def doctype(self, *_: object) -> None:
        raise CurvaeError(f"{self.source} has a document type, which is not read; remove <!DOCTYPE …>")


def _parse(path: Path) -> ElementTree.Element:
    """Read the elements of a file, if they fit in memory."""
    chunks, size = [], 0
    with open_file(path) as stream:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            memory.require(_MEMORY * size, f"{path.name} (at least {size:,} bytes)", fix="use fewer edges")
            chunks.append(chunk)
    parser = ElementTree.XMLParser(target=_Builder(path.name))
    for chunk in chunks:
        parser.feed(chunk)
    return parser.close()


def _normalise(source: str, root: ElementTree.Element) -> None:
    """Check a document and bring it to the form that networkx reads."""
    space, bracket, tag = root.tag.rpartition("}")
    space += bracket
    if tag != "graphml":
        raise CurvaeError(f"{source} has <{tag}> instead of <graphml>; save it as GraphML")
    for element in root.iter():
        element.tag = element.tag if "}" in (tag := element.tag.removeprefix(space)) else _SPACE + tag
    found = {tag: list(root.iter(_SPACE + tag)) for tag in (*_NEEDED, "graph", "hyperedge")}
    if len(found["graph"]) != 1:
        raise CurvaeError(f"{source} has {len(found['graph'])} graphs; give one graph a file")
    if found["hyperedge"]:
        raise CurvaeError(f"{source} has a hyperedge; give edges between two nodes")
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
