"""Runs: from a data source to a folder with a model, a map and a report."""

from .comparing import CompareRequest, compare_run
from .demonstration import demonstrate
from .diagnosing import DiagnoseRequest, diagnose_data, diagnose_run, figures, is_run
from .drivers import driver_lines
from .explaining import explain_run
from .exporting import export_run
from .faithful import faithful_lines
from .inference import embed_run, evaluate_run, impute_run, sample_run
from .judging import JudgeRequest, judge_map
from .kinds import open_run
from .progress import Reporter
from .sources import GraphSource, Source, Step
from .training import TrainRequest, train_run
from .viewing import ViewRequest, view_run

__all__ = [
    "CompareRequest",
    "DiagnoseRequest",
    "GraphSource",
    "JudgeRequest",
    "Reporter",
    "Source",
    "Step",
    "TrainRequest",
    "ViewRequest",
    "compare_run",
    "demonstrate",
    "diagnose_data",
    "diagnose_run",
    "driver_lines",
    "embed_run",
    "evaluate_run",
    "explain_run",
    "export_run",
    "faithful_lines",
    "figures",
    "impute_run",
    "is_run",
    "judge_map",
    "open_run",
    "sample_run",
    "train_run",
    "view_run",
]
