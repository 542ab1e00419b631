"""Synthetic data with a known hierarchy, and without any.

Notation of Mathieu et al. (2019), appendix C.1: nodes y_i ~ N(y_π(i), σ0²) from the root y_0 = 0, observations
x_ij = y_i + ε_ij with ε_ij ~ N(0, σ0²/5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..errors import check
from .dataset import Dataset
from .files import feature_names

__all__ = ["Tree", "branching_counts", "branching_diffusion", "flat"]


@dataclass(frozen=True, eq=False)
class Tree:
    """Noisy observations of the nodes of a tree, with the true tree.

    Arguments:
        x: observations, (rows, dim).
        node: node of each row, (rows,).
        parent: parent of each node, (nodes,), −1 for the root; every parent comes before its children.
        depth: depth of each node, (nodes,), 0 for the root.
        nodes: true values of the nodes, (nodes, dim).
    """

    x: NDArray[np.float64]
    node: NDArray[np.intp]
    parent: NDArray[np.intp]
    depth: NDArray[np.intp]
    nodes: NDArray[np.float64]

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs (parent, child)."""
        return [(int(parent), child) for child, parent in enumerate(self.parent) if parent >= 0]

    def distances(self) -> NDArray[np.intp]:
        """Count the edges between every two nodes, (nodes, nodes)."""
        size = len(self.parent)
        hops = np.zeros((size, size), dtype=np.intp)
        for child in range(1, size):
            # All nodes before the child are reached through its parent.
            hops[child, :child] = hops[:child, child] = hops[self.parent[child], :child] + 1
        return hops

    def branches(self) -> NDArray[np.str_]:
        """Name the branch of each node: its ancestor at depth 2, or the node itself if it is higher.

        Example:
            >>> branching_diffusion(depth=2).branches().tolist()
            ['root', 'branch 1', 'branch 2', 'branch 1/1', 'branch 1/2', 'branch 2/1', 'branch 2/2']
        """
        names = ["root"]
        born = np.zeros(len(self.parent), dtype=np.intp)
        for child in range(1, len(self.parent)):
            parent = int(self.parent[child])
            born[parent] += 1
            if self.depth[child] > 2:
                names.append(names[parent])
            else:
                names.append(f"branch {born[parent]}" if parent == 0 else f"{names[parent]}/{born[parent]}")
        return np.array(names, dtype=np.str_)

    def dataset(self) -> Dataset:
        """Return the observations as a data set, labelled by branch: each label is one region of a faithful map."""
        dim = self.x.shape[1]
        turn = np.arange(len(self.node)) - np.searchsorted(self.node, self.node)
        return Dataset(
            x=self.x,
            names=feature_names(dim),
            shape=(dim,),
            ids=np.array([f"node{n}-{k}" for n, k in zip(self.node, turn + 1, strict=True)], dtype=np.str_),
            labels=self.branches()[self.node],
            label_name="branch",
        )


def branching_diffusion(
    dim: int = 50,
    depth: int = 6,
    branching: int = 2,
    per_node: int = 5,
    scale: float = 1.0,
    noise: float = 5**-0.5,
    seed: int = 0,
) -> Tree:
    """Draw a branching diffusion: every child is its parent plus a normal step and is observed with noise.

    Arguments:
        dim: dimension of the observations.
        depth: number of edges from the root to a leaf.
        branching: number of children of a node.
        per_node: number of observations of a node.
        scale: standard deviation σ0 of a step.
        noise: standard deviation of an observation around its node, in units of `scale`; the default is a variance of
            σ0²/5.
        seed: seed of the random numbers.

    References:
        Mathieu et al. (2019), appendix C.1, whose values are the defaults.

    Example:
        >>> tree = branching_diffusion()
        >>> tree.x.shape, tree.nodes.shape, len(tree.edges)
        ((635, 50), (127, 50), 126)
    """
    check(
        min(dim, branching, per_node) >= 1 and depth >= 0 and min(scale, noise) >= 0,
        f"dim, branching and per_node must be at least 1 and depth, scale and noise at least 0, got "
        f"dim={dim}, depth={depth}, branching={branching}, per_node={per_node}, scale={scale}, noise={noise}",
    )
    random = np.random.default_rng(seed)
    levels = np.repeat(np.arange(depth + 1), branching ** np.arange(depth + 1))
    parent = (np.arange(len(levels)) - 1) // branching  # breadth first
    nodes = np.zeros((len(levels), dim))
    for child in range(1, len(levels)):
        nodes[child] = nodes[parent[child]] + scale * random.standard_normal(dim)
    node = np.repeat(np.arange(len(levels)), per_node)
    return Tree(nodes[node] + noise * scale * random.standard_normal((len(node), dim)), node, parent, levels, nodes)


def branching_counts(
    genes: int = 500,
    depth: int = 4,
    per_node: int = 60,
    batches: int = 2,
    total: float = 1000.0,
    dropout: float = 0.0,
    programs: int = 10,
    seed: int = 0,
) -> Dataset:
    """Draw counts of genes in cells of a branching process, measured in batches.

    Programs follow a branching diffusion, and every gene answers to them. Shares of genes shift from batch to
    batch, totals of cells are log-normal, and a gamma law of its own for each gene spreads its rates.

    Arguments:
        genes: number of genes.
        depth: number of edges from the root to a leaf of the tree, which has two branches at every node.
        per_node: number of cells of a node.
        batches: number of batches, to which cells belong at random.
        total: median of the totals of cells.
        dropout: share of the counts that are lost where one molecule is expected; where more are, fewer are lost.
        programs: number of programs. Of many, hardly any two branches change the same ones, so that the tree is the
            shortest one between the means of its nodes.
        seed: seed of the random numbers.

    Returns:
        The counts, sparse, with the batch as covariate, labels of branches, and totals as exposure. Ids tell the node.

    Example:
        >>> data = branching_counts(genes=50, per_node=4)
        >>> data.x.shape, data.context_names, bool((data.x.sum(1) == data.exposure).all())
        ((124, 50), ('batch=1', 'batch=2'), True)
    """
    check(
        min(genes, per_node, batches, programs) >= 1 and total > 0 and 0 <= dropout < 1,
        "genes, per_node, batches and programs must be at least 1, total positive and dropout a share below 1, got "
        f"genes={genes}, per_node={per_node}, batches={batches}, programs={programs}, total={total}, "
        f"dropout={dropout}",
    )
    tree = branching_diffusion(programs, depth, per_node=per_node, scale=0.6, noise=0.5, seed=seed)
    random = np.random.default_rng([seed, 1])
    rows = len(tree.node)
    batch = random.integers(batches, size=rows)
    width = 0.3 * math.sqrt(10 / programs)
    logs = random.normal(0.0, 1.2, genes) + tree.x @ random.normal(0.0, width, (programs, genes))
    logs += random.normal(0.0, 0.3, (batches, genes))[batch]
    shares = np.exp(logs) / np.exp(logs).sum(1, keepdims=True)
    spread = np.exp(random.normal(0.5, 0.7, genes))
    rates = total * np.exp(random.normal(0.0, 0.4, (rows, 1))) * shares
    rates *= random.gamma(spread, 1 / spread, rates.shape)
    kept = random.random(rates.shape) >= 2 * dropout / (1 + rates)
    counts = random.poisson(rates) * kept
    counts[np.arange(rows), rates.argmax(1)] += counts.sum(1) == 0  # a cell without a count is none
    plain = tree.dataset()
    return Dataset(
        x=csr_array(counts, dtype=np.float32),
        names=tuple(f"gene{i}" for i in range(1, genes + 1)),
        shape=(genes,),
        ids=plain.ids,
        labels=plain.labels,
        label_name="branch",
        exposure=counts.sum(1).astype(np.float64),
        total=True,
        context=np.eye(batches)[batch],
        context_names=tuple(f"batch={i}" for i in range(1, batches + 1)),
        batch=(0, batches),
    )


def flat(rows: int = 635, dim: int = 50, seed: int = 0) -> Dataset:
    """Draw standard normal noise: data of the same shape as the branching diffusion, without any hierarchy.

    Arguments:
        rows: number of rows.
        dim: number of features.
        seed: seed of the random numbers.

    Example:
        >>> flat().x.shape
        (635, 50)
    """
    check(min(rows, dim) >= 1, f"rows and dim must be at least 1, got {rows} and {dim}")
    return Dataset(
        x=np.random.default_rng(seed).standard_normal((rows, dim)),
        names=feature_names(dim),
        shape=(dim,),
        ids=np.arange(rows).astype(np.str_),
    )
