"""Is there a hierarchy in data, how well was a known one recovered, how faithful is a map, and what drives it?"""

from ..data.graphs.ranking import neighbourhood_map
from .delta import Delta, estimate_delta, exact_delta
from .diagnosis import Diagnosis, diagnose, diagnose_distances, diagnose_graph, diagnose_rows
from .distances import Metric, Rows
from .drivers import Drivers, explain
from .faithfulness import Faithfulness, Figures, faithfulness, figures_of_maps
from .graph_faithfulness import GraphFaithfulness, GraphFigures, graph_faithfulness
from .nesting import Nesting, examine_points
from .recovery import Match, Recovery, match_rows, recover
from .tree_of_map import Embedded, tree_of_embedding
from .trees import NamedTree, parse_newick, read_tree, tree_of_pairs
from .yardsticks import faithfulness_yardstick, recovery_yardstick

__all__ = [
    "Delta",
    "Diagnosis",
    "Drivers",
    "Embedded",
    "Faithfulness",
    "Figures",
    "GraphFaithfulness",
    "GraphFigures",
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
    "faithfulness",
    "faithfulness_yardstick",
    "figures_of_maps",
    "graph_faithfulness",
    "match_rows",
    "neighbourhood_map",
    "parse_newick",
    "read_tree",
    "recover",
    "recovery_yardstick",
    "tree_of_embedding",
    "tree_of_pairs",
]
__dir__ = __all__.copy  # completion lists public names only
