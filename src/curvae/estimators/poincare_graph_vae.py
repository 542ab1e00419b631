"""A graph, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ..data import Graph, load_graph, split_edges
from ..errors import CurvaeError
from ..settings import DistributionKind, EdgeKind, EncoderKind, PopularityKind
from ..training.fitted import choose_device, require_count
from ..training.graph_problem import (
    FittedGraph,
    embed_graph,
    fit_graph,
    fit_graphs,
    judge_split,
    link_probability,
    missing_links,
)
from .poincare_vae import Array, MapEstimator, nearest, plain

__all__ = ["PoincareGraphVAE"]


@dataclass(eq=False, repr=False, kw_only=True)
class PoincareGraphVAE(MapEstimator):
    """A variational auto-encoder of a graph with a hyperbolic latent space: a place for every node.

    Arguments:
        n_components: dimension of the latent space.
        curvature: c ≥ 0, the space having curvature −c; 0 is the ordinary variational graph auto-encoder; "learn"
            trains c, starting at 1.
        space: in their place, the factors of a latent space: "h2:1.2", "h2:learn" or "h2,e3", h hyperbolic and e flat.
        posterior: distribution of posterior and prior, "wrapped" or "riemannian".
        prior_scale: standard deviation of the prior. Unlike in `PoincareVAE` it is a parameter beside the curvature.
        edges: probability of an edge at distance d: "fermi_dirac" with learned radius and temperature, or "geodesic",
            1 − tanh d.
        popularity: whether nodes have a learned number that says how far they reach, "learned" or "off"; "auto" is
            "learned" with "fermi_dirac" edges. It helps where some nodes have many edges.
        directed: keep the direction of edges, from the first node to the second. Nodes then have two popularities, as
            senders and as receivers.
        hidden: widths of the hidden layers.
        encoder: "convolutions" of the edges and features, or "free", a vector a node: it fits the edges most closely.
        output: coordinates of `embedding_`: "ball" (Poincaré ball), "tangent" (log_0, Euclidean features for other
            estimators) or "lorentz" (space parts on the hyperboloid); "auto" is "ball", for a product "tangent". Of a
            product those of its factors one after the other.
        epochs: steps, each over the whole graph.
        learning_rate: of Adam.
        patience: in `link_prediction`, steps without progress on validation edges after which a training ends, with the
            best weights; None never.
        device: "auto" (CUDA where there is one), "cpu" or "cuda".
        random_state: seed, generator or None.
        advanced: all other settings, by name, such as {"cooldown": 0.3}; see the page Advanced settings.

    Attributes:
        embedding_: nodes in the coordinates of `output`, in the order of `nodes_`.
        nodes_: names of the nodes.
        graph_: the graph as it was read; `graph_.notes` say what was done to it.
        history_: one record an epoch.
        curvature_, prior_scale_: as trained, arrays with one for each factor of a product.
        warnings_: what looks wrong with the graph or the map, each with its remedy.

    Example:
        >>> tree = [(i, (i - 1) // 2) for i in range(1, 31)]
        >>> model = PoincareGraphVAE(epochs=5, random_state=0).fit(tree)
        >>> model.embedding_.shape, model.link_probability([("0", "1")]).shape
        ((31, 2), (1,))
    """

    _kind = FittedGraph

    posterior: DistributionKind = "wrapped"
    prior_scale: float | Literal["auto"] = 1.0
    hidden: int | tuple[int, ...] = (32,)
    epochs: int = 400
    learning_rate: float = 1e-2
    patience: int | None = 200
    edges: EdgeKind = "fermi_dirac"
    popularity: PopularityKind = "auto"
    directed: bool = False
    encoder: EncoderKind = "convolutions"

    # --- training ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on a graph; y is ignored.

        Arguments:
            X: a `curvae.data.Graph`, or whatever `curvae.data.load_graph` reads: a file, a graph of networkx, a sparse
                adjacency matrix, a `Data` of torch-geometric, a frame or list of edges. To give a table of nodes,
                features or weights, read it first: `load_graph(edges, nodes=table, features=["age"])`.
        """
        config, graph = self._config(), self._graph(X)
        fitted = fit_graph(config, graph, device=choose_device(self.device)).double()
        self.graph_, self.nodes_ = graph, graph.names
        self._take(fitted, embed_graph(fitted, graph).require_finite(graph.names, "node"), graph.warnings)
        return self

    def _restore(self, fitted: FittedGraph, data: Graph, description: Mapping[str, Any]) -> None:
        self.graph_, self.nodes_ = data, data.names

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Train, and return the embedding of the nodes."""
        return self.fit(X, y).embedding_

    def link_prediction(self, X: Any, n_splits: int = 5) -> dict[str, Array]:
        """Score how well held-out edges are predicted, beside rules that need no model.

        For each of `n_splits` random splits a model is trained on 85 % of the edges, all at once, and judged on 10 %.
        The model of `fit`, which sees all edges, takes no part.

        Returns:
            One figure a split: area under the ROC curve as "auc" and average precision as "ap", against random pairs;
            "auc_matched" against pairs whose nodes have as many edges, where popularity alone gives ½; of a directed
            graph "direction", the share of hidden edges that are likelier than one back; and the "auc" of the rules
            "degree product", "common neighbours" and "singular vectors" under their names.
        """
        require_count("n_splits", plain(n_splits))
        config, graph = self._config(), self._graph(X)
        configs = [replace(config, seed=(config.seed + i) % 2**32) for i in range(n_splits)]
        splits = [split_edges(graph, seed=one.seed) for one in configs]
        found = fit_graphs(configs, graph, splits=splits, device=choose_device(self.device), jobs=1)
        for one in found:
            if one.failure is not None:
                raise CurvaeError(one.failure)
        rows = [judge_split(one, graph, split)["test"] for one, split in zip(found, splits, strict=True)]
        names = ("auc", "ap", "auc_matched", *(("direction",) if graph.directed else ()))
        own = {name: np.array([row[name] for row in rows], float) for name in names}
        return own | {rule: np.array([row["baselines"][rule]["auc"] for row in rows]) for rule in rows[0]["baselines"]}

    def _graph(self, X: Any) -> Graph:
        if isinstance(X, Graph):
            return X
        graph = load_graph(X, directed=self.directed)
        notes = (note.replace("use `weighted=True`", "fit `load_graph(X, weighted=True)`") for note in graph.notes)
        return replace(graph, notes=tuple(notes))

    # --- pairs of nodes ---------------------------------------------------------------------------------------------

    def _places(self, nodes: ArrayLike) -> Array:
        """Places of nodes, given by place or by name."""
        check_is_fitted(self)
        given = np.atleast_1d(np.asarray(nodes))
        if given.dtype.kind in "iu":
            if given.size and not (given.min() >= 0 and given.max() < len(self.nodes_)):
                raise CurvaeError(f"places of nodes lie between 0 and {len(self.nodes_) - 1}; give names as text")
            return given.astype(np.int64)
        names = given.astype(str).ravel()
        places = pd.Index(self.nodes_).get_indexer(pd.Index(names))
        if (places < 0).any():
            raise CurvaeError(f"the graph has no node {min(names[places < 0].tolist())!r}; `nodes_` lists them")
        return places.astype(np.int64).reshape(given.shape)

    def link_probability(self, pairs: ArrayLike) -> Array:
        """Return the probability of an edge between the centres of nodes, of a directed graph from the first to the
        second. Of a weighted graph the odds are intensities, in units of the mean weight.

        Arguments:
            pairs: (·, 2), names of nodes as text, or integers for their positions in `nodes_`, even if nodes are named
                by integers.
        """
        places = self._places(pairs)
        if places.ndim != 2 or places.shape[1] != 2:
            raise CurvaeError(f"`pairs` must have the shape (·, 2), got {places.shape}")
        return link_probability(self._fitted, self._embedding, places)

    def missing_links(self, count: int = 20) -> pd.DataFrame:
        """Find the pairs of nodes without an edge that are the likeliest to have one.

        Arguments:
            count: how many pairs to find.

        Returns:
            Columns "source" and "target", names of nodes, and "probability", the likeliest pair first; of a directed
            graph, the edge leads from source to target.
        """
        check_is_fitted(self)
        require_count("count", plain(count))
        pairs, probability = missing_links(self._fitted, self.graph_, plain(count), embedding=self._embedding)
        source, target = self.nodes_[pairs].T
        return pd.DataFrame({"source": source, "target": target, "probability": probability})

    def distances(self, nodes: ArrayLike | None = None) -> Array:
        """Geodesic distances from some nodes, or all, to all nodes."""
        check_is_fitted(self)
        own = self._embedding
        return own.distances() if nodes is None else own.take(self._places(nodes)).distances(own)

    def kneighbors(self, nodes: ArrayLike | None = None, k: int = 5) -> tuple[Array, Array]:
        """Geodesic distances to the k nearest nodes, and their positions in `nodes_`, for some nodes or all.

        Both have the shape (nodes, k). `model.nodes_[positions]` gives the names.

        Arguments:
            nodes: names of nodes as text, or integers for their positions in `nodes_`; all nodes by default.
            k: how many neighbours.
        """
        table = self.distances(nodes)
        return nearest(table, k, np.arange(len(table)) if nodes is None else self._places(nodes))
