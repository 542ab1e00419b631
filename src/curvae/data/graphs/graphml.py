"""GraphML files (Brandes et al., 2002, GraphML progress report), read through networkx."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from ...errors import CurvaeError
from .. import memory
from ..files import BROKEN_GZIP, open_file
from ..messages import one_line, quoted
from .objects import from_networkx
from .raw_graph import RawGraph

__all__ = ["read_graphml"]

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
    _check_names(source, found)
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


def _check_names(source: str, found: Mapping[str, list[ElementTree.Element]]) -> None:
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
