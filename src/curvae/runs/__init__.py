"""Runs: from a data source to a folder with a model, a map and a report."""

from .comparing import CompareRequest, compare_run
from .demonstration import demonstrate
from .graphing import GraphRequest, graph_run
from .training import FitRequest, fit_run
from .using import embed_run, evaluate_run, sample_run
from .viewing import ViewRequest, view_run

__all__ = [
    "CompareRequest",
    "FitRequest",
    "GraphRequest",
    "ViewRequest",
    "compare_run",
    "demonstrate",
    "embed_run",
    "evaluate_run",
    "fit_run",
    "graph_run",
    "sample_run",
    "view_run",
]
