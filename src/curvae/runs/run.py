"""What commands ask of data of one kind, where the data come from, and how progress is reported."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Dataset, Graph, Schema, branching_diffusion, load, load_graph, memory
from ..data.files import quoted
from ..data.spool import Counter
from ..errors import CurvaeError
from ..geometry.frames import Frame
from ..hierarchy import Match, NamedTree, match_rows, read_tree
from ..maps.embedding import frames_from_json, orient
from ..report import Picture, Section
from ..settings import FactorSettings, GraphSettings, RowSettings, Settings, described, parse_space
from ..training import Comparison, Embedding
from ..training.fitted import FittedModel

__all__ = [
    "SILENT",
    "DataSource",
    "GraphSource",
    "Outcome",
    "Place",
    "Reporter",
    "Run",
    "Source",
    "Step",
    "comparable",
    "geometry",
    "given",
    "known_tree",
    "missing_as_run",
    "stored_frames",
]


# What data a run is made of, and how they are read.


class Step(NamedTuple):
    """Something to do next, which whoever started a run knows how to put: as a command to type, say.

    Arguments:
        action: what to do: "fit", "graph", "compare", "embed", "view", …
        arguments: the run or the data that it is done with.
        options: parameters by name.
        why: what it is good for.
    """

    action: str
    arguments: tuple[str, ...]
    options: Mapping[str, Any] = {}
    why: str = ""


@dataclass(frozen=True)
class DataSource:
    """A file, or the name of built-in data, and how to read it.

    The fields of a descendant are parameters of whatever reads such data.

    Attributes:
        kind: of runs on such data, as `config.json` calls it.
        action: that trains on them, as a `Step` calls it.
        compare_options: what tells a comparison of what kind they are.
        files: other fields that name files, and what the error says where one is not given to a run that is resumed.
        local: fields that a run does not store: where files lie on this machine.
    """

    kind: ClassVar[str]
    action: ClassVar[str]
    compare_options: ClassVar[Mapping[str, Any]] = {}
    files: ClassVar[Mapping[str, str]] = {}
    local: ClassVar[Collection[str]] = ("path", "cache")

    path: str

    @property
    def options(self) -> dict[str, Any]:
        """How to read it, where that is not the default."""
        default = type(self)(self.path)
        return {name: value for name, value in vars(self).items() if value != getattr(default, name)}

    def step(self, action: str, why: str = "", **options: Any) -> Step:
        """Something to do with these data, read in the same way."""
        return Step(action, (self.path,), {**self.options, **options}, why)

    def train_step(self, why: str = "", **settings: Any) -> Step:
        """Train on them."""
        return self.step(self.action, why, **settings)

    def compare_step(self, why: str = "", **settings: Any) -> Step:
        """Compare curvatures on them."""
        return self.step("compare", why, **self.compare_options, **settings)

    @property
    def name(self) -> str:
        """The file's name without folder and endings."""
        return Path(self.path).name.split(".")[0] or "data"

    def to_json(self) -> dict[str, Any]:
        """Return the fields without the folders of files: a run does not know where its data lay."""
        own = {name: value for name, value in vars(self).items() if name not in self.local}
        own |= {name: None if own[name] is None else Path(own[name]).name for name in self.files}
        lists = {name: list(value) for name, value in own.items() if isinstance(value, tuple)}
        return {"name": Path(self.path).name, **own, **lists}

    def named(self, stored: Mapping[str, Any]) -> Self:
        """The same as a report shows it: files without their folders, as `to_json` calls them."""
        return replace(self, path=stored["name"], **{name: stored[name] for name in self.files})

    def again(self, stored: Mapping[str, Any]) -> Self:
        """Read this file as before, from `to_json`; all files are those given now, as a run does not know the paths."""
        values: dict[str, Any] = {name: stored[name] for name in vars(self) if name not in self.local}
        values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return replace(self, **{name: value for name, value in values.items() if name not in self.files})

    def check_resumed(self, folder: Path, stored: Mapping[str, Any]) -> None:
        """Raise where a file is lacking that the run in the folder was started with, which `stored` describes."""
        for name, advice in self.files.items():
            if (file := stored.get(name)) is not None and getattr(self, name) is None:
                raise CurvaeError(f'{folder} was started with {advice} with {name}="{file}"')


@dataclass(frozen=True)
class Source(DataSource):
    """Data in rows and how to read it."""

    kind = "vae"
    action = "fit"

    label: str | None = None
    id: str | None = None
    group: str | None = None
    categorical: tuple[str, ...] = ()
    missing: Any = "error"
    exposure: str | None = None
    covariates: tuple[str, ...] = ()
    memory: str | None = None
    """bytes that rows may take in memory, such as "2GB"; larger data stay on disk"""
    cache: str | None = None
    """folder for copies of data that stay on disk"""

    @property
    def bounded(self) -> Source:
        """The same data, which may take a quarter of the memory of the machine if nothing else was asked for."""
        return self if self.memory else replace(self, memory=memory.size_text(memory.bound(None)))

    def load(self, counter: Counter = lambda task, rows: lambda more: None) -> tuple[Dataset, Schema]:
        """Read the data; without a bound of memory, all of them into memory."""
        return load(
            self.path,
            label=self.label,
            id=self.id,
            group=self.group,
            categorical=self.categorical,
            covariates=self.covariates,
            missing=self.missing,
            exposure=self.exposure,
            memory=self.memory,
            cache=self.cache,
            counter=counter,
        )

    def step(self, action: str, why: str = "", **options: Any) -> Step:
        takes_memory = action in (self.action, "compare", "diagnose")
        own = self if takes_memory else replace(self, memory=None, cache=None)
        return super(Source, own).step(action, why, **options)


@dataclass(frozen=True)
class GraphSource(DataSource):
    """A graph and how to read it."""

    kind = "graph"
    action = "graph"
    compare_options = MappingProxyType({"graph": True})
    files = MappingProxyType({"nodes": "a table of nodes; give it again", "features_file": "features; give them again"})

    nodes: str | None = None
    label: str | None = None
    features: tuple[str, ...] = ()
    no_features: bool = False
    features_file: str | None = None
    categorical: Any = ()
    weighted: bool = False
    isolated: bool = False
    missing: Any = "error"
    source_column: str | None = None
    target_column: str | None = None
    header: bool | None = None

    def load(self, known: Collection[str] = (), directed: bool = False) -> Graph:
        """The graph; `known` and `directed` as of `curvae.data.load_graph`."""
        if self.no_features and (self.features or self.features_file):
            given = "features" if self.features else "features_file"
            raise CurvaeError(f"no_features=True and {given}=… contradict each other; leave out one of them")
        return load_graph(
            self.path,
            nodes=self.nodes,
            label=self.label,
            features=() if self.no_features else self.features or None,
            features_file=self.features_file,
            categorical=self.categorical,
            weighted=self.weighted,
            directed=directed,
            isolated=self.isolated,
            missing=self.missing,
            source_column=self.source_column,
            target_column=self.target_column,
            header=self.header,
            known=known,
        )


# Messages and progress of a run while it works.


@dataclass(frozen=True)
class Reporter:
    """Receives the messages and the progress of a run; by default it is silent.

    Arguments:
        say, warn: take a message.
        progress: takes the name of a task, the work done, the work in all, and the latest figures.
        command: puts a step into the words of whoever started the run.
        started: what started the run, in the same words.
        resumable: told that the run can be resumed, and the options that are needed for that besides those it has.
    """

    say: Callable[[str], None] = lambda text: None
    warn: Callable[[str], None] = lambda text: None
    progress: Callable[[str, float, float, str], None] = lambda task, done, total, text: None
    command: Callable[[Step], str] = lambda step: " ".join([step.action, *step.arguments])
    started: str = ""
    resumable: Callable[[Mapping[str, Any]], None] = lambda options: None

    def counter(self, task: str, total: int) -> Callable[..., None]:
        """A function to be told how much more was done, 1 by default."""
        done = 0

        def advance(more: int = 1) -> None:
            nonlocal done
            done += more
            self.progress(task, done, total, "")

        return advance

    def tell(self, said: Iterable[str], warned: Iterable[str]) -> None:
        """Several messages and warnings."""
        for text in said:
            self.say(text)
        for text in warned:
            self.warn(text)


SILENT = Reporter()


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
    """Settings that differ from the default, with the words that stand for values."""
    known = described(type(config))
    return {name: known[name].written(value) for name, value in config.given().items()}


def comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a comparison takes: it chooses the curvature and the split itself.

    In a product it chooses that of the hyperbolic factors; where there are none, of the first.
    """
    known = described(GraphSettings) | described(RowSettings)
    found = {name: value for name, value in settings.items() if known[name].compared}
    if "space" in found:
        factors = [FactorSettings(one.dim) if one.curved else one for one in parse_space(found["space"])]
        if not any(one.curved for one in factors):
            factors[0] = FactorSettings(factors[0].dim)
        found["space"] = ",".join(one.text for one in factors)
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


class Run(ABC):
    """Data of one kind with the settings of models: what `curvae fit`, `graph`, `compare` and `diagnose` ask of them.

    Arguments:
        source: of the data, which are read.
        config: settings.
        reporter: told how far the data are read.

    Attributes:
        data: a `Dataset` or `Graph`.
        data_size: in words.
        plan_text: what is going to be trained, in words; set by `prepare`.
        settings: those that were typed; `given` ones by default.
        remarks: warnings about the settings and these data.
        trainings: how many a comparison needs; set by `plan_comparison`.
        count: name of the number of trainings in `config.json`.
        fitted: what a training makes.
        has_edges: whether maps show edges.
        thing: what a point of a map is, "row" or "node".
        axes: what decides how maps are turned, in words.
        root: name of the point that maps have at their centre; None for the Fréchet mean.
    """

    count: ClassVar[str]
    thing: ClassVar[str] = "row"
    axes: ClassVar[str] = "the data"
    fitted: ClassVar[type[FittedModel]]
    has_edges: ClassVar[bool] = False

    data: Any
    data_size: str

    def __init__(self, source: Any, config: Any, reporter: Reporter = SILENT) -> None:
        self.source, self.config, self.plan_text, self.trainings = source, config, "", 0
        self.settings = given(config)
        self.remarks: list[str] = []
        self.root: str | None = None

    @property
    def notes(self) -> Sequence[str]:
        """What was done to the data."""
        return self.data.notes

    @property
    def warnings(self) -> Sequence[str]:
        """About the data and the settings, for the report."""
        return [*self.data.warnings, *self.remarks]

    @property
    def curvature_chosen(self) -> bool:
        """Whether the settings name a curvature, as those that a comparison recommends do, or are of a flat space."""
        named = "curvature" in self.settings or ":" in self.settings.get("space", "")
        return named or not any(factor.curved for factor in self.config.factors)

    @property
    def fingerprint(self) -> str:
        """Of the data."""
        return self.data.fingerprint

    @property
    @abstractmethod
    def names(self) -> NDArray[np.str_]:
        """Of the points of a map."""

    @cached_property
    @abstractmethod
    def reference(self) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Some points, and two numbers for each, (·, 2), that depend on the data alone: maps are turned by them."""

    def choose_root(self, root: str | None) -> None:
        """Name the point that maps shall have at their centre."""
        if root is not None and root not in self.names:
            raise CurvaeError(
                f"there is no {self.thing} {root!r} to put at the centre; give root=… one of {quoted(self.names)}"
            )
        self.root = root

    def orient(self, embedding: Embedding) -> tuple[Frame, ...]:
        """The frames from which the factors of a map of these data are drawn."""
        root = None if self.root is None else int(np.flatnonzero(self.names == self.root)[0])
        return orient(embedding, *self.reference, root)

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
    def train(self, place: Place, reporter: Reporter, progress: Callable[[dict[str, Any], int], None]) -> Any:
        """Train all models and return them with their maps.

        `progress` is called with every record of a single model and the number of epochs in all.
        """

    @abstractmethod
    def outcome(self, trained: Any, place: Place, named: DataSource, seconds: float, reporter: Reporter) -> Outcome:
        """Judge what `train` returned; `named` is the source as a report shows it, without its folder."""

    @abstractmethod
    def plan_comparison(
        self, curvatures: Sequence[float], repeats: int, before: Mapping[str, Any] | None, tree: Path | None
    ) -> dict[str, Any]:
        """Split the data for a comparison; raises for what cannot be compared.

        Returns what `config.json` says about the data. Of a comparison that is resumed that is `before`, and "auto"
        choices are made as they were made then. How well a known `tree` of the data is recovered is compared, too.
        """

    @abstractmethod
    def compare(self, curvatures: Sequence[float], repeats: int, **where: Any) -> Comparison:
        """Compare curvatures."""

    @abstractmethod
    def comparison_report(self, found: Any) -> tuple[list[str], list[str], list[Section]]:
        """What to say about a comparison, what to warn of, and the sections of the report."""

    @classmethod
    def edges(cls, folder: Path, nodes: int) -> NDArray[np.int64] | None:
        """Of the graph that a run was trained on, (2, E)."""
        return None


def missing_as_run(missing: Any, description: Mapping[str, Any]) -> Any:
    """What to do about missing values in data for a run: what is asked for, or what the run did."""
    sees_gaps = bool(description.get("layout", {}).get("missing"))  # whether the encoder knows what is missing
    if missing == "model" and not sees_gaps:
        raise CurvaeError(
            'the run was not trained with missing="model", so its model knows no gaps; train one that was'
        )
    source = description.get("source")
    default = "model" if sees_gaps else "error"
    return missing or (source.get("missing", default) if isinstance(source, dict) else default)


# Trees that are known, and the rows that belong to their nodes.

_BUILT_IN = "branching-diffusion"  # whose tree is known


def known_tree(
    tree: Path, what: str, ids: NDArray[np.str_], labels: NDArray[np.str_] | None
) -> tuple[NamedTree, Match]:
    """A tree from a file, or that of the built-in branching diffusion, and the node of each row.

    Arguments:
        tree: the file, or the name of the data.
        what: has these rows, for the error.
        ids, labels: of the rows.
    """
    if str(tree) != _BUILT_IN or tree.exists():
        known = read_tree(tree)
        return known, match_rows(known, ids, labels)
    made = branching_diffusion()
    nodes = dict(zip(made.dataset().ids.tolist(), made.node.tolist(), strict=True))
    node = np.array([nodes.get(name, -1) for name in ids.tolist()], dtype=np.intp)
    if (node < 0).all():
        raise CurvaeError(f"{what} has no rows of {_BUILT_IN}; give the tree of its data as a file")
    names = np.array([f"node{k}" for k in range(len(made.parent))], dtype=np.str_)
    known = NamedTree(names, made.parent, np.ones(len(names)))
    return known, Match(node, "id", len(names) - len(np.unique(node[node >= 0])))
