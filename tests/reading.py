"""Small files to read, what is in graphs, and the messages with which data are refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from curvae.data import Graph, load, load_graph
from curvae.errors import CurvaeError

__all__ = ["PEOPLE", "PLAIN", "graph_refusal", "idx", "random_graph", "refusal", "weights", "write"]

PLAIN = "1 2\n2 3\n3 1\n3 4\n"
PEOPLE = "ann ben\nben cem\ncem dan\n"


def write(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def idx(array: Any) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def refusal(path: Path | str, **options: Any) -> str:
    """The message with which loading is refused: one line."""
    with pytest.raises(CurvaeError) as caught:
        load(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def graph_refusal(source: Any, **options: Any) -> str:
    """The message with which loading is refused: one line."""
    with pytest.raises(CurvaeError) as caught:
        load_graph(source, **options)
    message = str(caught.value)
    assert "\n" not in message and ";" in message  # the mend comes after the cause
    return message


def weights(graph: Graph) -> dict[frozenset[str], float]:
    assert graph.weights is not None
    found = zip(graph.names[graph.edges].tolist(), graph.weights.tolist(), strict=True)
    return {frozenset(pair): weight for pair, weight in found}


def random_graph(nodes: int = 40, edges: int = 90) -> nx.Graph:
    graph = nx.gnm_random_graph(nodes, edges, seed=3)
    for place, (_, _, data) in enumerate(graph.edges(data=True)):
        data["weight"] = 0.1 + place / 7
    return graph
