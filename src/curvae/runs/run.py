"""What commands ask of data of one kind; rows and graphs each answer in modules of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data.messages import quoted
from ..data.missing import Missing
from ..errors import CurvaeError
from ..geometry.frames import Frame
from ..hierarchy import Diagnosis, Metric
from ..report import Picture, Section
from ..settings import GraphSettings, RowSettings, Settings, described, parse_space
from ..training import Comparison, Embedding
from ..training.fitted import FittedModel
from ..training.orientation import frames_from_json, orient, sampled_rows
from ..training.portable import Part
from ..training.storage import Loaded
from .progress import Reporter
from .sources import DataSource, Step

__all__ = [
    "DiagnosedData",
    "EmbeddedData",
    "Imputed",
    "Outcome",
    "Place",
    "Run",
    "Sampled",
    "ScoreFile",
    "TrainedRun",
    "comparable",
    "geometry",
    "given",
    "missing_as_run",
    "stored_frames",
]


def stored_frames(description: Mapping[str, Any], embedding: Embedding) -> tuple[Frame, ...] | None:
    """Return the frames that `config.json` holds for the factors of a map; None for what an estimator saved."""
    if (stored := description.get("orientation")) is None:
        return None
    try:
        return frames_from_json(stored, embedding.placed)
    except (KeyError, TypeError, ValueError) as error:
        message = " ".join(str(error).split())
        raise CurvaeError(f"config.json holds no orientation of the map ({message}); train again") from error


def given(config: Settings) -> dict[str, Any]:
    """Settings that differ from the default; of a product, `space` says it all of the latent space."""
    known = described(type(config))
    default, implied = type(config)(), () if config.space is None else ("dim", "curvature", "learn_curvature")
    return {
        name: known[name].written(value)
        for name, value in vars(config).items()
        if value != getattr(default, name) and name not in implied
    }


def comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a comparison takes: it chooses the curvature and the split itself.

    In a product it chooses that of the hyperbolic factors; where there are none, of the first.
    """
    known = described(GraphSettings) | described(RowSettings)
    found = {name: value for name, value in settings.items() if known[name].compared}
    if "space" in found:
        space = ",".join(f"{factor.kind}{factor.dim}" for factor in parse_space(found["space"]))
        found["space"] = space if "h" in space else f"h{space[1:]}"
    return found


def geometry(fitted: FittedModel) -> dict[str, Any]:
    """c and prior scale, for `config.json`; of a product a list each, one number a factor."""
    each = {name: [getattr(one, name) for one in fitted.figures] for name in ("c", "prior_scale", "identifiable")}
    return {name: values[0] if len(values) == 1 else values for name, values in each.items()}


@dataclass(frozen=True)
class Place:
    """Where a run is trained and kept.

    Arguments:
        folder, resume: of the run.
        device, jobs: where to train, and in how many processes at most.
        processes: that share a training.
        links: how many of the likeliest missing edges of a graph are written.
    """

    folder: Path
    resume: bool
    device: torch.device | str
    jobs: int
    processes: int = 1
    links: int | None = None

    @property
    def view_step(self) -> Step:
        """Show the map, as a report says it: of a folder outside the working directory only the name."""
        return Step("view", (self.folder.name if self.folder.is_absolute() else str(self.folder),))


@dataclass(frozen=True)
class Outcome:
    """What a training found: to be written, reported and said.

    Arguments:
        fitted, embedding: the model, and where it places its data.
        frames: from which the factors of the map are drawn.
        tables: of `embedding.csv`, one below the other.
        rows: of all of them.
        summary: figures for `config.json`.
        title, verdict, sections: of the report.
        warnings: about the map.
        pictures: by the names of their files.
        said: in the end.
        following: what to do next.
        good: whether the verdict is, warnings aside.
        advice: the command to run next as the report shows it, without folders.
        files: other tables, by the names of their files.
    """

    fitted: FittedModel
    embedding: Embedding
    frames: tuple[Frame, ...]
    tables: Iterable[pd.DataFrame]
    rows: int
    summary: dict[str, Any]
    title: str
    verdict: str
    warnings: list[str]
    sections: list[Section]
    pictures: dict[str, Picture]
    said: list[str]
    following: Step
    good: bool = True
    advice: str = ""
    files: Mapping[str, pd.DataFrame] = field(default_factory=dict)


class DiagnosedData(NamedTuple):
    """Data that were tested for a hierarchy; `section` tells what was done to them."""

    found: Diagnosis
    labels: NDArray[np.str_] | None
    section: Section
    warnings: tuple[str, ...]


class Run(ABC):
    """Data of one kind with the settings of models: what `curvae fit`, `graph`, `compare` and `diagnose` ask of them.

    Arguments:
        source: of the data, which are read.
        config: settings.

    Attributes:
        data: a `Dataset` or `Graph`.
        data_size: in words.
        plan_text: what is going to be trained, in words; set by `prepare`.
        settings: those that were typed; `given` ones by default.
        remarks: warnings about the settings and these data.
        trainings: how many a comparison needs; set by `plan_comparison`.
        count: name of the number of trainings in `config.json`.
        fitted, trained: what a training makes, and how that is put to use.
        has_edges: whether maps show edges.
        thing: what a point of a map is, "row" or "node".
        axes: what decides how maps are turned, in words.
        root: name of the point that maps have at their centre; None for the Fréchet mean.
    """

    count: ClassVar[str]
    thing: ClassVar[str] = "row"
    axes: ClassVar[str] = "the data"
    fitted: ClassVar[type[FittedModel]]
    trained: ClassVar[type[TrainedRun]]
    has_edges: ClassVar[bool] = False

    data: Any
    data_size: str

    def __init__(self, source: Any, config: Any) -> None:
        self.source, self.config, self.plan_text, self.trainings = source, config, "", 0
        self.settings = given(config)
        self.remarks: list[str] = []
        self.root: str | None = None

    @property
    def warnings(self) -> Sequence[str]:
        """About the data and the settings, for the report."""
        return [*self.data.warnings, *self.remarks]

    @property
    def fingerprint(self) -> str:
        """Of the data."""
        return self.data.fingerprint

    @property
    @abstractmethod
    def names(self) -> NDArray[np.str_]:
        """Of the points of a map."""

    @abstractmethod
    def scores(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Two numbers for each of these points that depend on the data alone, (·, 2): maps are turned by them."""

    def choose_root(self, root: str | None) -> None:
        """Name the point that maps shall have at their centre."""
        if root is not None and root not in self.names:
            raise CurvaeError(
                f"there is no {self.thing} {root!r} to put at the centre; give root=… one of {quoted(self.names)}"
            )
        self.root = root

    @cached_property
    def _reference(self) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        chosen = sampled_rows(len(self.names))
        return chosen, self.scores(chosen)

    def orient(self, embedding: Embedding) -> tuple[Frame, ...]:
        """The frames from which the factors of a map of these data are drawn."""
        root = None if self.root is None else int(np.flatnonzero(self.names == self.root)[0])
        return orient(embedding, *self._reference, root)

    @property
    def orientation_sentence(self) -> str:
        """How maps are turned, for a report."""
        centre = f"The Fréchet mean of all {self.thing}s" if self.root is None else f"The {self.thing} {self.root!r}"
        return (
            f"{centre} is at the centre. The map is rotated, and if necessary mirrored, so that the first principal "
            f"component of {self.axes} grows to the right and the second upwards: maps of different seeds are oriented "
            "alike."
        )

    @abstractmethod
    def prepare(self, count: int | None, before: Mapping[str, Any], processes: int) -> dict[str, Any]:
        """Split the data and make "auto" choices for a training; raises for what cannot be trained.

        Arguments:
            count: of trainings, if it was given.
            before: description of the run that is resumed, or nothing.
            processes: that share a training.

        Returns:
            What `config.json` says about the trainings and the data.
        """

    @abstractmethod
    def train(self, place: Place, reporter: Reporter, progress: Callable[[dict[str, Any], int], None]) -> None:
        """Train all models; `progress` is told every record of a single one, and the epochs in all."""

    @abstractmethod
    def outcome(self, place: Place, named: DataSource, seconds: float, reporter: Reporter) -> Outcome:
        """Judge what was trained; `named` is the source as a report shows it, without its folder."""

    @abstractmethod
    def plan_comparison(
        self, curvatures: Sequence[float], repeats: int, before: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Split the data for a comparison; raises for what cannot be compared.

        Returns what `config.json` says about the data. Of a comparison that is resumed that is `before`, and "auto"
        choices are made as they were made then.
        """

    def match_tree(self, tree: Path) -> None:
        """Know a tree that the data have, for the comparison that was planned: how well is it recovered?"""
        raise CurvaeError("a comparison on a graph takes no tree; leave out tree=…")

    @abstractmethod
    def compare(self, curvatures: Sequence[float], repeats: int, **where: Any) -> Comparison:
        """Compare curvatures."""

    @abstractmethod
    def comparison_report(self, found: Any) -> tuple[list[str], list[str], list[Section]]:
        """What to say about a comparison, what to warn of, and the sections of the report."""

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

    @property
    def frames(self) -> tuple[Frame, ...] | None:
        """The frames in which the factors of its map are drawn; None for what an estimator saved."""
        return stored_frames(self.loaded.description, self.loaded.embedding)

    @abstractmethod
    def embed(
        self,
        path: str,
        nodes: str | None,
        features_file: str | None,
        missing: Missing | None,
        reporter: Reporter,
        memory: str | None = None,
    ) -> EmbeddedData:
        """The rows of `embedding.csv` for new data; `nodes` is a table of nodes, `features_file` has their features.

        Rows that take more than so much `memory` are read and embedded in pieces.
        """

    @abstractmethod
    def sample(
        self, count: int, output: Path | None, covariates: Mapping[str, str] | None, seed: int, force: bool
    ) -> Sampled:
        """Draw from the model, and write that to files."""

    @abstractmethod
    def evaluate(
        self,
        path: str,
        samples: int | None,
        missing: Missing | None,
        seed: int,
        reporter: Reporter,
        scores: ScoreFile | None = None,
    ) -> dict[str, Any]:
        """How well the model describes data, for each part of the data that the run knows apart; of every row, if a
        file for `scores` is given."""

    @abstractmethod
    def impute(
        self,
        path: str,
        output: Path | None,
        samples: int,
        seed: int,
        force: bool,
        reporter: Reporter,
        memory: str | None = None,
    ) -> Imputed:
        """Fill the gaps of data and write them; rows that take more than so much `memory` a piece at a time."""

    def explained(self) -> Loaded:
        """What the run holds, if its model explains points by the columns of a table; raises if not."""
        return self.loaded

    @abstractmethod
    def portable(self) -> tuple[Sequence[Part], dict[str, Any]]:
        """Parts of the model to export, and how the data of the run become their inputs, as JSON values."""


class EmbeddedData(NamedTuple):
    """Tables with the rows of a map, one below the other, the number of rows of all of them, and what to do next."""

    tables: Iterable[pd.DataFrame]
    rows: int
    following: Step


class ScoreFile(NamedTuple):
    """The file for the likelihood of every row, and the data that the run was trained on, if they are given."""

    path: Path
    training: str | None


class Sampled(NamedTuple):
    """What was drawn, and what to do next."""

    paths: list[Path]
    following: Step


class Imputed(NamedTuple):
    """What was filled in, how much was missing, and what to do next."""

    path: Path
    values: int
    rows: int
    following: Step


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
