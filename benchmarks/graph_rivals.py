"""Vectors of nodes by node2vec and by gensim's Poincaré model; runs by itself, without Curvae and torch.

python graph_rivals.py METHOD DIM SEED EDGES.npy NODES VECTORS.npy    reads edges, (E, 2), writes vectors, (NODES, DIM)
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def node2vec(edges: np.ndarray, nodes: int, dim: int, seed: int) -> np.ndarray:
    """With the defaults of the package: 10 walks of 80 steps from each node, window 10."""
    import networkx as nx
    from node2vec import Node2Vec

    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges.tolist())
    walks: Any = Node2Vec(graph, dimensions=dim, workers=1, seed=seed, quiet=True)
    vectors = walks.fit(window=10, min_count=1, seed=seed, workers=1).wv
    return np.stack([vectors[str(node)] for node in range(nodes)])


def poincare(edges: np.ndarray, nodes: int, dim: int, seed: int) -> np.ndarray:
    """With the defaults of gensim, every edge in both directions; nodes without an edge lie at the origin.

    It draws 10 nodes that a node is not joined to: edges of nodes that have fewer count in the other direction only.
    """
    from gensim.models.poincare import PoincareModel

    degree = np.bincount(edges.ravel(), minlength=nodes)
    both = ((a, b) for pair in edges.tolist() for a, b in (pair, pair[::-1]))
    relations = [(str(a), str(b)) for a, b in both if degree[a] < nodes - 11]
    model: Any = PoincareModel(relations, size=dim, seed=seed)
    model.train(epochs=50)
    found = np.zeros((nodes, dim))
    for node in np.unique(edges).tolist():
        found[node] = model.kv[str(node)]
    return found


METHODS = {"node2vec": node2vec, "poincare": poincare}

if __name__ == "__main__":
    method, dim, seed, source, nodes, target = sys.argv[1:]
    np.save(target, METHODS[method](np.load(source), int(nodes), int(dim), int(seed)))
