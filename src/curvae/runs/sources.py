"""What data a run is made of, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

from ..data import Dataset, Graph, Schema, load, load_graph, memory
from ..data.streams import Blocks, find_blocks
from ..data.tables import Roles
from ..errors import CurvaeError

__all__ = ["DataSource", "GraphSource", "Source", "Step", "streamed_blocks"]


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
    """

    kind: ClassVar[str]
    action: ClassVar[str]
    compare_options: ClassVar[Mapping[str, Any]] = {}

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
        """Without the folder: a run does not know where its data lay."""
        others = {name: value for name, value in vars(self).items() if name != "path"}
        return {
            "name": Path(self.path).name,
            **{name: list(value) if isinstance(value, tuple) else value for name, value in others.items()},
        }

    def named(self, stored: Mapping[str, Any]) -> Self:
        """The same as a report shows it: files without their folders, as `to_json` calls them."""
        return replace(self, path=stored["name"])

    def again(self, stored: Mapping[str, Any]) -> Self:
        """This file read as before, from `to_json`."""
        values: dict[str, Any] = {name: stored[name] for name in vars(self) if name != "path"}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return replace(self, **values)

    def check_resumed(self, folder: Path, stored: Mapping[str, Any]) -> None:
        """Raise where a file is lacking that the run in the folder was started with, which `stored` describes."""


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
    """bytes that rows may take at a time, such as "2GB"; larger data are read in pieces"""

    def load(self) -> tuple[Dataset, Schema]:
        return load(
            self.path,
            label=self.label,
            id=self.id,
            group=self.group,
            categorical=self.categorical,
            covariates=self.covariates,
            missing=self.missing,
            exposure=self.exposure,
        )

    def step(self, action: str, why: str = "", **options: Any) -> Step:
        own = self if action in (self.action, "compare", "diagnose") else replace(self, memory=None)  # others take none
        return super(Source, own).step(action, why, **options)


def streamed_blocks(
    source: Source,
    counter: Callable[[str, int], Callable[[int], None]],
    schema: Schema | None = None,
    others: Mapping[str, Any] = MappingProxyType({}),
) -> Blocks | None:
    """The blocks of data that are larger than the memory that they may take; None for data to be held in memory.

    A folder of Parquet files is always read in pieces. What needs all rows is held in memory however large it is,
    unless a bound is asked for: then it is refused.

    Arguments:
        source: the data.
        counter: as of a `Reporter`, for a text table that is converted.
        schema: of the data that a model was trained on, if there is one.
        others: what else needs all rows, by the names of parameters.
    """
    bound = memory.bound(source.memory)
    roles = Roles(source.label, source.id, source.group, source.categorical, source.exposure, source.covariates)
    blocks = find_blocks(source.path, bound, roles, schema)
    if blocks is None or (blocks.footprint <= bound and not blocks.path.is_dir()):
        return None
    if blocks.whole:
        if source.memory is None:
            return None
        raise CurvaeError(f"{blocks.whole}, or raise memory=…: it can only be read as a whole")
    needed = [name for name, value in {"missing": source.missing == "drop", **others}.items() if value]
    if needed and source.memory is None and not blocks.path.is_dir():
        return None
    if needed:
        raise CurvaeError(
            f"{blocks.path.name} is read in pieces and {', '.join(f'{name}=…' for name in needed)} needs all rows in "
            "memory; leave it out, or give a single file and raise memory=…"
        )
    return blocks.opened(counter)


@dataclass(frozen=True)
class GraphSource(DataSource):
    """A graph and how to read it."""

    kind = "graph"
    action = "graph"
    compare_options = MappingProxyType({"graph": True})

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

    def to_json(self) -> dict[str, Any]:
        files = {"nodes": self.nodes, "features_file": self.features_file}
        return super().to_json() | {name: None if file is None else Path(file).name for name, file in files.items()}

    def named(self, stored: Mapping[str, Any]) -> Self:
        return replace(self, path=stored["name"], nodes=stored["nodes"], features_file=stored["features_file"])

    def again(self, stored: Mapping[str, Any]) -> Self:
        # A run does not know where its files lay: the paths are those given now, as that of the edges is.
        return replace(super().again(stored), nodes=self.nodes, features_file=self.features_file)

    def check_resumed(self, folder: Path, stored: Mapping[str, Any]) -> None:
        if (table := stored["nodes"]) is not None and self.nodes is None:
            raise CurvaeError(f'{folder} was started with a table of nodes; give it again with nodes="{table}"')
        if (file := stored.get("features_file")) is not None and self.features_file is None:
            raise CurvaeError(f'{folder} was started with features; give them again with features_file="{file}"')
