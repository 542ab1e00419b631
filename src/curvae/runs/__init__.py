"""Runs: from a data source to a folder with a model, a map and a report."""

from ..training.storage import embedding_path
from .diagnosing import diagnose_data, diagnose_run, figures, is_run, judge_map
from .groups import differential_run, lineage_run, map_run
from .pages import faithful_lines
from .run import GraphSource, Reporter, Source, Step
from .trained import embed_run, evaluate_run, export_run, impute_run, sample_run
from .training import compare_run, demonstrate, train_run
from .viewing import explain_run, view_run

__all__ = [
    "GraphSource",
    "Reporter",
    "Source",
    "Step",
    "compare_run",
    "demonstrate",
    "diagnose_data",
    "diagnose_run",
    "differential_run",
    "embed_run",
    "embedding_path",
    "evaluate_run",
    "explain_run",
    "export_run",
    "faithful_lines",
    "figures",
    "impute_run",
    "is_run",
    "judge_map",
    "lineage_run",
    "map_run",
    "sample_run",
    "train_run",
    "view_run",
]
