"""Runs: from a data source to a folder with a model, a map and a report."""

from .comparing import CompareRequest, compare_run
from .demonstration import demonstrate
from .diagnosing import DiagnoseRequest, diagnose_data, export_tree, recover_run
from .graphing import GraphRequest, graph_run
from .training import FitRequest, fit_run
from .using import embed_run, evaluate_run, impute_run, sample_run
from .viewing import ViewRequest, view_run

__all__ = [
    "CompareRequest",
    "DiagnoseRequest",
    "FitRequest",
    "GraphRequest",
    "ViewRequest",
    "compare_run",
    "demonstrate",
    "diagnose_data",
    "embed_run",
    "evaluate_run",
    "export_tree",
    "fit_run",
    "graph_run",
    "impute_run",
    "recover_run",
    "sample_run",
    "view_run",
]
