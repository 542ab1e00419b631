"""GraphML files: Brandes et al. (2002), GraphML progress report.

A document type is refused, since it could define entities that grow without end.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from xml.parsers import expat

import numpy as np
import pandas as pd

from ...errors import CurvaeError
from ..files import BROKEN_GZIP, open_file
from ..remarks import one_line, quoted
from .links import WEIGHTS_LEFT_OUT, GraphDraft

__all__ = ["read_graphml"]

_CHUNK = 2**20


def read_graphml(path: Path, weighted: bool) -> GraphDraft:
    """Read a GraphML file, which may be gzipped.

    Nodes are called by their ids, and their data become attributes of the draft. Data of edges called "weight" are
    weights.
    """
    reader = _Reader(path.name, weighted)
    try:
        with open_file(path) as stream:
            while chunk := stream.read(_CHUNK):
                reader.parser.Parse(chunk)
            reader.parser.Parse(b"", True)
    except BROKEN_GZIP as error:
        raise CurvaeError(f"{path.name} is not a whole gzip file ({one_line(error)}); pack it again") from error
    except (expat.ExpatError, LookupError, UnicodeError) as error:  # the latter two of unknown encodings
        raise CurvaeError(f"{path.name} cannot be read as GraphML: {one_line(error)}; save it again") from error
    return reader.draft()


class _Reader:
    """What the parser meets, element by element."""

    def __init__(self, source: str, weighted: bool) -> None:
        self.source, self.weighted = source, weighted
        self.names: dict[str, str] = {}  # of data, by key
        self.defaults: dict[str, str] = {}  # by key
        self.weight_keys: set[str] = set()
        self.node_keys: dict[str, None] = {}  # a set that keeps its order
        self.places: dict[str, int] = {}  # of nodes, also of those that are only named by edges so far
        self.nodes: dict[int, dict[str, str]] = {}  # their data, by place
        self.links, self.weights, self.lines = array("q"), array("d"), array("q")
        self.graphs = 0
        self.directed = self.has_weights = False
        self.data: dict[str, str] = {}  # of the element at hand
        self.key = ""  # of the data or default at hand
        self.text: list[str] | None = None  # of the data or default at hand
        self.depth = 0  # of elements within data, which drawing programs put there
        self.started = False
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._refuse

    def draft(self) -> GraphDraft:
        """The graph that was met."""
        names = np.array(list(self.places), dtype=np.str_)
        if len(self.nodes) < len(names):
            unknown = [name for name, place in self.places.items() if place not in self.nodes]
            raise CurvaeError(f"{self.source} has edges to nodes that it does not list: {quoted(unknown)}; add them")
        links = np.array(self.links, dtype=np.int64).reshape(-1, 2)
        draft = GraphDraft(self.source, names, links, directed=self.directed)
        if self.weighted:
            draft.weights = np.array(self.weights, dtype=np.float64)
            draft.check_weights(lambda link: f"line {self.lines[link]}")
        elif self.has_weights:
            draft.remarks.note(WEIGHTS_LEFT_OUT)
        draft.attributes = pd.DataFrame(
            {
                self.names[key]: [self.nodes[place].get(key, self.defaults.get(key, "")) for place in range(len(names))]
                for key in self.node_keys
            },
            index=range(len(names)),
            dtype=object,
        )
        return draft

    def _error(self, what: str) -> CurvaeError:
        return CurvaeError(f"{self.source}: line {self.parser.CurrentLineNumber}: {what}")

    def _refuse(self, *_: object) -> None:
        raise self._error("a document type is not read; remove <!DOCTYPE …>")

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        if self.text is not None:
            self.depth += 1
            return
        tag = element.rpartition(" ")[2]
        if not self.started and tag != "graphml":
            raise self._error(f"<{tag}> where <graphml> should stand; save the graph as GraphML")
        self.started = True
        try:
            if tag == "edge":
                self.data = {}
                self.links.extend((self._place(attributes["source"]), self._place(attributes["target"])))
                self.directed |= attributes.get("directed") == "true"
            elif tag == "node":
                place = self._place(attributes["id"])
                if place in self.nodes:
                    raise self._error(f"a second node {attributes['id']!r}; make ids unique")
                self.nodes[place] = self.data = {}
            elif tag == "data":
                self._listen(attributes["key"])
            elif tag == "default":
                self._listen(self.key)
            elif tag == "key":
                self._define(attributes["id"], attributes)
            elif tag == "hyperedge":
                raise self._error("a hyperedge; give edges between two nodes")
            elif tag == "graph":
                self.data = {}
                self.graphs += 1
                self.directed |= attributes.get("edgedefault") == "directed"
                if self.graphs > 1:
                    raise self._error("a second graph; give one graph a file")
        except KeyError as error:
            raise self._error(f"<{tag}> without {error}; save the file again") from error

    def _place(self, name: str) -> int:
        return self.places.setdefault(name.strip(), len(self.places))

    def _define(self, key: str, attributes: dict[str, str]) -> None:
        self.key = key
        self.names[key] = attributes.get("attr.name", key)
        if attributes.get("for", "all") in ("node", "all"):
            self.node_keys[key] = None
        if attributes.get("for", "all") in ("edge", "all") and self.names[key] == "weight":
            self.weight_keys.add(key)

    def _listen(self, key: str) -> None:
        self.key, self.text = key, []
        self.parser.CharacterDataHandler = self._hear

    def _hear(self, text: str) -> None:
        if self.text is not None and not self.depth:
            self.text.append(text)

    def _end(self, element: str) -> None:
        if self.depth:
            self.depth -= 1
        elif self.text is not None:
            held = self.data if element.endswith("data") else self.defaults
            held[self.key] = "".join(self.text).strip()
            self.text = None
            self.parser.CharacterDataHandler = None
        elif element.endswith("edge"):
            self._weigh()

    def _weigh(self) -> None:
        text = None
        for held in (self.defaults, self.data):
            for key in held:
                if key in self.weight_keys:
                    text = held[key]
        self.has_weights |= text is not None
        if self.weighted:
            try:
                self.weights.append(float(text or ""))
            except ValueError:
                said = "without a weight" if text is None else f"of weight {text!r}"
                raise self._error(f"an edge {said}; give positive numbers, or leave out weighted=True") from None
            self.lines.append(self.parser.CurrentLineNumber)
