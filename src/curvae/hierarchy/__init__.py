"""Is there a hierarchy in data, how well was a known one recovered, how faithful is a map, and what drives it?"""

from ..data.graph_data import neighbourhood_map
from ..maps.faithfulness import (
    Faithfulness,
    Figures,
    GraphFaithfulness,
    GraphFigures,
    faithfulness,
    figures_of_maps,
    graph_faithfulness,
)
from ..maps.statistics import Metric, Rows
from .diagnosis import (
    Delta,
    Diagnosis,
    Nesting,
    diagnose,
    diagnose_distances,
    diagnose_graph,
    diagnose_rows,
    estimate_delta,
    exact_delta,
    examine_points,
)
from .lineages import Drivers, Lineage, explain, explain_along, find_lineage
from .trees import (
    Embedded,
    Match,
    NamedTree,
    Recovery,
    match_rows,
    parse_newick,
    read_tree,
    recover,
    tree_of_embedding,
    tree_of_pairs,
)

__all__ = [
    "Delta",
    "Diagnosis",
    "Drivers",
    "Embedded",
    "Faithfulness",
    "Figures",
    "GraphFaithfulness",
    "GraphFigures",
    "Lineage",
    "Match",
    "Metric",
    "NamedTree",
    "Nesting",
    "Recovery",
    "Rows",
    "diagnose",
    "diagnose_distances",
    "diagnose_graph",
    "diagnose_rows",
    "estimate_delta",
    "exact_delta",
    "examine_points",
    "explain",
    "explain_along",
    "faithfulness",
    "figures_of_maps",
    "find_lineage",
    "graph_faithfulness",
    "match_rows",
    "neighbourhood_map",
    "parse_newick",
    "read_tree",
    "recover",
    "tree_of_embedding",
    "tree_of_pairs",
]
__dir__ = __all__.copy  # completion lists public names only
