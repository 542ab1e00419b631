"""Vectors of nodes by node2vec and by gensim's Poincaré model; runs by itself, without Curvae and torch.

python graph_rivals.py METHOD DIM SEED EDGES.npy NODES VECTORS.npy    reads edges, (E, 2), writes vectors, (NODES, DIM)
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def node2vec(edges: np.ndarray, nodes: int, dim: int, seed: int) -> np.ndarray:
    """With the usual settings: p = q = 1, 10 walks of 80 nodes from each node, skip-grams with window 10.

    At p = q = 1 the next node of a walk is any neighbour with equal chance, so all walks are drawn at once. A node
    without an edge is a walk of its own.
    """
    from gensim.models import Word2Vec

    random = np.random.default_rng(seed)
    both = np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0)
    degree = np.bincount(both[:, 0], minlength=nodes)
    first = np.cumsum(degree) - degree
    walks = np.empty((10 * nodes, 80), dtype=np.int64)
    walks[:, 0] = np.concatenate([random.permutation(nodes) for _ in range(10)])
    for step in range(1, 80):
        at = walks[:, step - 1]
        chosen = first[at] + (random.random(len(at)) * degree[at]).astype(np.int64)
        walks[:, step] = np.where(degree[at] > 0, both[np.minimum(chosen, len(both) - 1), 1], at)
    names = np.array([str(node) for node in range(nodes)], dtype=object)
    texts = [names[walk[: 80 if degree[walk[0]] else 1]].tolist() for walk in walks]
    vectors: Any = Word2Vec(texts, vector_size=dim, window=10, min_count=1, sg=1, seed=seed, workers=1).wv
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
