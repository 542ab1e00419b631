"""What commands ask of data of one kind; rows and graphs each answer in a module of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data.missing import Missing
from ..errors import CurvaeError
from ..hierarchy import Diagnosis, Metric
from ..report import Picture, Section
from ..settings import GraphSettings, RowSettings, described
from ..training.evaluate import Embedding
from ..training.fitted import FittedModel
from ..training.storage import Loaded
from .reporter import Reporter
from .sources import DataSource

__all__ = ["DiagnosedData", "Imputed", "Outcome", "Place", "Run", "TrainedRun", "comparable", "missing_as_run"]


def comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that `curvae compare` takes: it chooses the curvature and the split itself."""
    known = described(GraphSettings) | described(RowSettings)
    return {name: value for name, value in settings.items() if known[name].compared}


@dataclass(frozen=True)
class Place:
    """Where a run is trained and kept."""

    folder: Path
    resume: bool
    device: torch.device | str
    jobs: int
    """processes at most"""

    @property
    def view_command(self) -> list[str]:
        """The words of the command that shows the map."""
        return ["curvae", "view", str(self.folder)]


@dataclass(frozen=True)
class Outcome:
    """What a training found: to be written, reported and said."""

    fitted: FittedModel
    embedding: Embedding
    table: pd.DataFrame
    """of `embedding.csv`"""
    summary: dict[str, Any]
    title: str
    """of the report"""
    verdict: str
    warnings: list[str]
    """about the map"""
    sections: list[Section]
    """of the report"""
    pictures: dict[str, Picture]
    """by the names of their files"""
    said: list[str]
    """in the end"""
    following: str
    """the next command to type, and why"""


@dataclass(frozen=True)
class DiagnosedData:
    """Data that were tested for a hierarchy."""

    found: Diagnosis
    labels: NDArray[np.str_] | None
    section: Section
    """what was done to them"""
    warnings: tuple[str, ...]


class Run(ABC):
    """Data of one kind with the settings of models: what `curvae fit`, `graph`, `compare` and `diagnose` ask.

    Arguments:
        source: of the data, which are read.
        config: settings.

    Attributes:
        data: a `Dataset` or `Graph`.
        remarks: warnings about the settings and these data, once `prepare` has been called.
    """

    usage: ClassVar[str]
    """how the command that trains is called"""
    count: ClassVar[str]
    """name of the number of trainings in `config.json`"""
    fitted: ClassVar[type[FittedModel]]
    trained: ClassVar[type[TrainedRun]]
    fewest: ClassVar[int] = 1
    """trainings that may be asked for"""
    has_edges: ClassVar[bool] = False
    unit: ClassVar[Literal["row", "node"]] = "row"

    source: Any
    config: Any
    data: Any
    remarks: Sequence[str] = ()

    @abstractmethod
    def __init__(self, source: Any, config: Any) -> None: ...

    @property
    @abstractmethod
    def data_size(self) -> str:
        """Size of the data, in words."""

    @property
    def warnings(self) -> Sequence[str]:
        """About the data, for the report."""
        return self.data.warnings

    # --- training -----------------------------------------------------------------------------------------------------

    @classmethod  # noqa: B027 - most need nothing
    def check_resumed(cls, folder: Path, source: Any, stored: Mapping[str, Any]) -> None:
        """Raise where the source lacks what the run in the folder was started with, which `stored` describes."""

    @abstractmethod
    def prepare(self, count: int | None, before: Mapping[str, Any]) -> int:
        """Split the data and make "auto" choices; raises for what cannot be trained.

        Arguments:
            count: of trainings, if it was given.
            before: description of the run that is resumed, or nothing.

        Returns:
            The number of trainings.
        """

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """What `config.json` says about the data, and what was chosen for them."""

    @property
    @abstractmethod
    def plan_text(self) -> str:
        """What is going to be trained, in words."""

    @abstractmethod
    def train(self, place: Place, reporter: Reporter, progress: Callable[[dict[str, Any], int], None]) -> None:
        """Train all models; `progress` is told every record of a single one, and the epochs in all."""

    @abstractmethod
    def outcome(self, place: Place, named: DataSource, seconds: float, reporter: Reporter) -> Outcome:
        """Judge what was trained; `named` is the source as a report shows it, without its folder."""

    # --- comparison ---------------------------------------------------------------------------------------------------

    def restore_choices(self, facts: Mapping[str, Any]) -> None:  # noqa: B027 - most choose nothing
        """Make "auto" choices as they were made at the start of a comparison, which these facts tell."""

    @abstractmethod
    def comparison_facts(self) -> dict[str, Any]:
        """What `config.json` of a comparison says about the data."""

    @abstractmethod
    def plan_comparison(self, curvatures: Sequence[float], repeats: int) -> int:
        """How many trainings there will be; raises for what cannot be compared."""

    @abstractmethod
    def judging_seconds(self, epoch: float, trainings: int, jobs: int, device: str) -> float:
        """About how long it takes to judge all trainings, if an epoch of one takes `epoch` seconds."""

    @abstractmethod
    def compare(self, curvatures: Sequence[float], repeats: int, **where: Any) -> Any:
        """The comparison."""

    @abstractmethod
    def comparison_remarks(self, found: Any) -> tuple[list[str], list[str]]:
        """What to say about a comparison, and what to warn of."""

    @abstractmethod
    def comparison_sections(self, found: Any) -> list[Section]:
        """Of the report on a comparison."""

    # --- diagnosis and maps -------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def diagnose(
        cls, source: Any, metric: Metric, distances: bool, seed: int, reporter: Reporter, step: Callable[[str], None]
    ) -> DiagnosedData:
        """Test data for a hierarchy; `step` is told what is being done."""

    @classmethod
    def edges(cls, folder: Path, nodes: int) -> NDArray[np.int64] | None:
        """Of the graph that a run was trained on, (2, E)."""
        return None


class TrainedRun(ABC):
    """The model of a run folder, put to use. What has no meaning for its kind is refused.

    Arguments:
        folder: of the run.
        loaded: what it holds.
    """

    def __init__(self, folder: Path, loaded: Loaded) -> None:
        self.folder, self.loaded = folder, loaded

    @abstractmethod
    def embed(self, path: str, nodes: str | None, missing: Missing | None, reporter: Reporter) -> pd.DataFrame:
        """The rows of `embedding.csv` for new data; `nodes` is a table of nodes."""

    @abstractmethod
    def sample(
        self, count: int, output: Path | None, covariates: Mapping[str, str] | None, seed: int, force: bool
    ) -> list[Path]:
        """Draw from the model; returns the files that were written."""

    @abstractmethod
    def following_sample(self, path: Path) -> list[str]:
        """Words of the next command to type after `sample`."""

    @abstractmethod
    def evaluate(
        self, path: str, samples: int | None, missing: Missing | None, seed: int, reporter: Reporter
    ) -> dict[str, Any]:
        """How well the model describes data, for each part of the data that the run knows apart."""

    @abstractmethod
    def impute(
        self, path: str, output: Path | None, samples: int, seed: int, force: bool, reporter: Reporter
    ) -> Imputed:
        """Fill the gaps of data and write them."""


@dataclass(frozen=True)
class Imputed:
    """What `curvae impute` wrote, and how much was missing."""

    path: Path
    values: int
    rows: int
    following: str
    """a command to go on with"""


def missing_as_run(missing: Any, description: Mapping[str, Any]) -> Any:
    """What to do about missing values in data for a run: what is asked for, or what the run did."""
    told = bool(description.get("layout", {}).get("missing"))  # whether its encoder is told of them
    if missing == "model" and not told:
        raise CurvaeError(
            'the run was not trained with missing="model", so its model knows no gaps; train one that was'
        )
    source = description.get("source")
    default = "model" if told else "error"
    return missing or (source.get("missing", default) if isinstance(source, dict) else default)
