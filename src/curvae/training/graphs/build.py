"""From a configuration to a fresh model of a graph."""

from __future__ import annotations

from ...data import memory
from ...errors import CurvaeError
from ...models import FermiDirac, GeodesicEdges, GraphVAE, Posterior
from ...models.pairs import exact, pair_count
from ...nn import FreeVectors, GraphEncoder, Popularity
from ..build import make_space, seeded
from ..config import GraphConfig

__all__ = ["START", "build_graph_model", "listed", "require_buildable_graph"]

START = 0.4
"""σ of every node at first.

Small beside the distances over which the probability of an edge falls: with σ near 0.7, as softplus(0) would have it,
nodes that cannot be told apart yet are pressed together; with 0.2 the plane fails on some graphs. Found by trying
starts from 0.2 to 0.69 on validation edges; results/paper/table4.json has what these two give.
"""

_START_BALANCED = 0.2  # the same where pairs are balanced, which do not press nodes together


def require_buildable_graph(config: GraphConfig, nodes: int, features: int | None = None) -> None:
    """Raise for a model that cannot be built, without building it; arguments as of `build_graph_model`."""
    if features is not None and config.encoder == "free":
        raise CurvaeError('encoder="free" cannot read features of nodes; leave them out, or use encoder="convolutions"')
    inputs, factors = nodes if features is None else features, len(config.factors)
    # Models of products, or with popularity, hold numbers of all pairs that they see.
    all_pairs = config.pairs == "all" and listed(config) and exact(nodes, listed=True)
    pairs = 300 * factors * config.samples * pair_count(nodes, config.directed) if all_pairs else 0
    memory.require(
        16 * inputs * config.layers[0] + nodes * (64 * sum(config.layers) + 8 * config.samples * config.dim) + pairs,
        f"a model of {nodes:,} nodes with {inputs:,} inputs",
        fix="lower hidden or samples",
    )
    make_space(config)


def build_graph_model(config: GraphConfig, nodes: int, features: int | None = None) -> GraphVAE:
    """A model with weights drawn from the configuration's seed.

    Arguments:
        config: its settings.
        nodes: of the graph.
        features: of a node, if it has any.
    """
    require_buildable_graph(config, nodes, features)
    inputs, convolved = nodes if features is None else features, config.encoder == "convolutions"
    with seeded(config.seed):
        return GraphVAE(
            GraphEncoder(inputs, config.layers) if convolved else FreeVectors(nodes, config.layers[-1]),
            Posterior(config.layers[-1], make_space(config)).start(START if config.pairs == "all" else _START_BALANCED),
            GeodesicEdges() if config.edges == "geodesic" else FermiDirac(),
            config.weight,
            popularity=Popularity(config.layers[-1], config.directed) if config.popular else None,
        )


def listed(config: GraphConfig) -> bool:
    """Whether a model that sees all pairs must hold them in memory."""
    return len(config.factors) > 1 or config.popular
