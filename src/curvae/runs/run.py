"""Where the data of a run come from, the folder it is kept in, how its progress is reported, and what rows and graphs
have in common."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data import Dataset, Graph, branching_diffusion, load, load_graph, memory
from ..data.files import quoted, refuse_dangling
from ..data.spool import Counter
from ..errors import CurvaeError, FixableError
from ..hierarchy import Match, NamedTree, match_rows, read_tree
from ..maps.charts import Frame
from ..maps.embedding import orient, principal_scores, sampled_rows
from ..report import Picture, Report, Section, Tone
from ..settings import FactorSettings, GraphSettings, RowSettings, Settings, described, parse_space
from ..settings.factors import LETTERS
from ..training import Embedding
from ..training.fitted import FittedModel
from ..training.storage import (
    CONFIG,
    embedding_path,
    is_empty,
    locked,
    replacing,
    versions,
    write_bytes,
    write_tables,
    write_text,
)

__all__ = [
    "SILENT",
    "DataSource",
    "GraphSource",
    "Reporter",
    "Result",
    "Source",
    "Step",
    "comparable",
    "curvature_chosen",
    "given",
    "known_tree",
    "missing_as_run",
    "new_folder",
    "orientation_of",
    "output_file",
    "output_files",
    "require_root",
    "stored_source",
    "today",
    "view_step",
    "write_array",
    "write_map",
    "write_report",
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
        count_name: name of the number of trainings in `config.json`.
        files: other fields that name files, and what the error says where one is not given to a run that is resumed.
        local: fields that a run does not store: where files lie on this machine.
        later: fields that runs of earlier versions lack.
    """

    kind: ClassVar[str]
    action: ClassVar[str]
    count_name: ClassVar[str]
    files: ClassVar[Mapping[str, str]] = {}
    local: ClassVar[Collection[str]] = ("path", "cache")
    later: ClassVar[Collection[str]] = ()

    path: str

    @property
    def options(self) -> dict[str, Any]:
        """How to read it, where that is not the default."""
        default = type(self)(self.path)
        return {name: value for name, value in vars(self).items() if value != getattr(default, name)}

    def step(self, action: str, why: str = "", **options: Any) -> Step:
        """Return something to do with these data, read in the same way."""
        return Step(action, (self.path,), {**self.options, **options}, why)

    @property
    def name(self) -> str:
        """The file's name without folder and endings."""
        return Path(self.path).name.split(".")[0] or "data"

    @property
    def shown(self) -> Self:
        """The same without the folders of files, as a report shows it: a run does not know where its data lay."""
        files = {name: Path(getattr(self, name)).name for name in self.files if getattr(self, name) is not None}
        return replace(self, path=Path(self.path).name, **files)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as `config.json` has them."""
        shown = self.shown
        return {"name": shown.path, **{name: value for name, value in vars(shown).items() if name not in self.local}}

    def again(self, stored: Mapping[str, Any]) -> Self:
        """Read this file as before, from `to_json`; all files are those given now, as a run does not know the paths."""
        values: dict[str, Any] = {
            name: stored[name]
            for name in vars(self)
            if name not in self.local and (name in stored or name not in self.later)
        }
        values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return replace(self, **{name: value for name, value in values.items() if name not in self.files})


@dataclass(frozen=True)
class Source(DataSource):
    """Data in rows and how to read it."""

    kind = "vae"
    action = "fit"
    count_name = "repeats"
    later = ("batch_key", "layer", "genes")

    label: str | None = None
    id: str | None = None
    group: str | None = None
    categorical: tuple[str, ...] = ()
    missing: Any = "error"
    exposure: str | None = None
    covariates: tuple[str, ...] = ()
    batch_key: str | None = None
    layer: str | None = None
    genes: int | None = None
    memory: str | None = None  # bytes that rows may take in memory, such as "2GB"; larger data stay on disk
    cache: str | None = None  # folder for copies of data that stay on disk

    @property
    def bounded(self) -> Source:
        """The same data, which may take a quarter of the memory of the machine if nothing else was asked for."""
        return self if self.memory else replace(self, memory=memory.size_text(memory.bound(None)))

    def load(self, counter: Counter = lambda task, rows: lambda more: None) -> Dataset:
        """Read the data; without a bound of memory, all of them into memory."""
        how = {name: value for name, value in vars(self).items() if name != "path"}
        return load(self.path, **how, counter=counter)[0]

    def step(self, action: str, why: str = "", **options: Any) -> Step:
        own = self if action in (self.action, "compare", "diagnose") else replace(self, memory=None, cache=None)
        return super(Source, own).step(action, why, **options)


@dataclass(frozen=True)
class GraphSource(DataSource):
    """A graph and how to read it."""

    kind = "graph"
    action = "graph"
    count_name = "splits"
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
        """Read the graph; `known` and `directed` as of `curvae.data.load_graph`."""
        if self.no_features and (self.features or self.features_file):
            raise CurvaeError(
                f"`no_features=True` and `{'features' if self.features else 'features_file'}=…` contradict each other; "
                "leave out one of them"
            )
        how = {name: value for name, value in vars(self).items() if name not in ("path", "features", "no_features")}
        return load_graph(
            self.path,
            **how,
            features=() if self.no_features else self.features or None,
            known=known,
            directed=directed,
        )

    def step(self, action: str, why: str = "", **options: Any) -> Step:
        return super().step(action, why, **({"graph": True} if action == "compare" else {}), **options)


# Messages and progress of a run while it works.


@dataclass(frozen=True)
class Reporter:
    """Receives the messages and the progress of a run; by default it is silent.

    Arguments:
        say, warn: take a message.
        progress: takes the name of a task, the work done, the work in all, and the latest figures.
        command: puts a step into the words of whoever started the run.
        words: puts the parameters that a message names into these words.
        started: what started the run, in the same words.
        resumable: called once the run can be resumed, with the options that are needed for that besides those it has.
    """

    say: Callable[[str], None] = lambda text: None
    warn: Callable[[str], None] = lambda text: None
    progress: Callable[[str, float, float, str], None] = lambda task, done, total, text: None
    command: Callable[[Step], str] = lambda step: " ".join([step.action, *step.arguments])
    words: Callable[[str], str] = str
    started: str = ""
    resumable: Callable[[Mapping[str, Any]], None] = lambda options: None

    def counter(self, task: str, total: int) -> Callable[..., None]:
        """Return a function that is called with how much more was done, 1 by default."""
        done = 0

        def advance(more: int = 1) -> None:
            nonlocal done
            done += more
            self.progress(task, done, total, "")

        return advance

    def tell(self, said: Iterable[str], warned: Iterable[str]) -> None:
        """Pass on several messages and warnings."""
        for text in said:
            self.say(text)
        for text in warned:
            self.warn(text)


SILENT = Reporter()


# What trainings and comparisons of rows and of graphs have in common.


@dataclass(frozen=True)
class Result:
    """What a training found: to be written, reported and said.

    Arguments:
        fitted, embedding: the model, and where it places its data.
        frames: from which the factors of the map are drawn.
        tables: of `embedding.csv`, one below the other.
        summary: figures for `config.json`.
        verdict, sections: of the report; named pictures of sections get files.
        warnings: about the map.
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
    summary: dict[str, Any]
    verdict: str
    sections: list[Section]
    warnings: list[str]
    said: list[str]
    following: Step
    good: bool
    advice: str = ""
    files: Mapping[str, pd.DataFrame] = field(default_factory=dict)


def view_step(folder: Path) -> Step:
    """Show the map, as a report says it: of a folder outside the working directory only the name."""
    return Step("view", (folder.name if folder.is_absolute() else str(folder),))


def orientation_of(
    x: Any, names: NDArray[np.str_], root: str | None = None, thing: Literal["row", "node"] = "row"
) -> tuple[Callable[[Embedding], tuple[Frame, ...]], str]:
    """Turn all maps of the same data alike, by the first principal components of numbers that describe their points.

    Arguments:
        x: the numbers, (points, ·): the data of rows, or steps between nodes.
        names: of the points.
        root: name of the point at the centre.
        thing: what a point is.

    Returns:
        What finds the frames from which the factors of a map are drawn, and how maps are turned, for a report.
    """
    chosen = sampled_rows(x.shape[0])
    place = None if root is None else int(np.flatnonzero(names == root)[0])
    return partial(orient, rows=chosen, scores=principal_scores(x[chosen]), root=place), (
        f"{f'The Fréchet mean of all {thing}s' if root is None else f'The {thing} {root!r}'} is at the centre. The map "
        "is rotated, and if necessary mirrored, so that the first principal component of "
        f"{'the data' if thing == 'row' else 'the steps between nodes'} grows to the right "
        "and the second upwards: maps of different seeds are oriented alike."
    )


def require_root(
    root: str | None, before: Mapping[str, Any], names: NDArray[np.str_], thing: Literal["row", "node"] = "row"
) -> str | None:
    """Return the name of the point that a map has at its centre; raise if no point is called so.

    Only the picture depends on it: a run may be resumed with another one than `before` describes.
    """
    root = before.get("root") if root is None else root
    if root is not None and root not in names:
        raise CurvaeError(f"there is no {thing} {root!r} to put at the centre; give `root=…` one of {quoted(names)}")
    return root


def curvature_chosen(config: Settings, typed: Mapping[str, Any]) -> bool:
    """Say whether the settings name a curvature, as those that a comparison recommends do, or are of a flat space."""
    return "curvature" in typed or ":" in typed.get("space", "") or not any(factor.curved for factor in config.factors)


def given(config: Settings) -> dict[str, Any]:
    """Return settings that differ from the default, with the words that stand for values."""
    known = described(type(config))
    return {name: known[name].written(value) for name, value in config.given().items()}


def comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Select the settings that a comparison takes: it chooses the curvature and the split itself.

    In a product it chooses that of all factors with a curvature; where there are none, that of the first.
    """
    known = described(GraphSettings) | described(RowSettings)
    found = {name: value for name, value in settings.items() if known[name].compared}
    if "space" in found:
        factors = list(parse_space(found["space"]))
        for place, one in enumerate(factors):
            if (curvature := LETTERS[one.kind].curvature) is not None:
                factors[place] = replace(one, curvature=curvature, learned=False)
        if not any(one.curved for one in factors) and factors[0].has_short_form:
            factors[0] = FactorSettings(factors[0].dim)
        found["space"] = ",".join(one.text for one in factors)
    return found


def missing_as_run(missing: Any, description: Mapping[str, Any]) -> Any:
    """Decide what to do about missing values in data for a run: what is asked for, or what the run did."""
    sees_gaps = bool(description.get("layout", {}).get("missing"))  # whether the encoder knows what is missing
    if missing == "model" and not sees_gaps:
        raise CurvaeError(
            'the run was not trained with `missing="model"`, so its model knows no gaps; train one that was'
        )
    return missing or stored_source(description).get("missing", "model" if sees_gaps else "error")


def stored_source(description: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what data a run was made of, as `DataSource.to_json` wrote it; nothing of a run that Python saved."""
    stored = description.get("source")
    return stored if isinstance(stored, dict) else {}


# Trees that are known, and the rows that belong to their nodes.

_BUILT_IN = "branching-diffusion"  # whose tree is known


def known_tree(
    tree: Path, what: str, ids: NDArray[np.str_], labels: NDArray[np.str_] | None
) -> tuple[NamedTree, Match]:
    """Read a tree from a file, or take that of the built-in branching diffusion, and find the node of each row.

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


# Run folders: where they are made, and the maps and reports in them.

# What a run holds; `force` removes these and nothing else, the mark of a run last.
_OWN = (
    "checkpoint",
    "splits",
    "*.part",
    "model.safetensors",
    "embedding.safetensors",
    "metrics.jsonl",
    "embedding.csv",
    "embedding.parquet",
    "labels.csv",
    "reference.csv",
    "links.csv",
    "comparison.json",
    "map.png",
    "curves.png",
    "report.html",
    CONFIG,
)


@contextmanager
def new_folder(asked: Path | None, name: str, force: bool, mark: str = CONFIG) -> Iterator[Path]:
    """Make a folder for a run, and lock it within the context: the one asked for, or the next `runs/<name>-<n>`.

    A folder that holds files is emptied only with `force`, and only if it has the file `mark`, which runs write.
    """
    with _making(asked or Path("runs")):
        if asked is not None:
            refuse_dangling(asked)
            if asked.exists() and not asked.is_dir():
                raise CurvaeError(f"{asked} is a file; give a folder for the run")
        folder = _numbered(name) if asked is None else asked
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        with _making(folder):
            if not is_empty(folder):
                _clear(folder, force, mark)
        yield folder


@contextmanager
def _making(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CurvaeError(
            f"cannot make the folder {folder}: {error.strerror}; choose another with `output=…`"
        ) from error


def _numbered(name: str) -> Path:
    """Make the next folder of this name that does not exist yet."""
    Path("runs").mkdir(exist_ok=True)
    for n in count(1):
        folder = Path("runs") / f"{name}-{n}"
        with suppress(FileExistsError):
            folder.mkdir()
            break
    return folder


def _clear(folder: Path, force: bool, mark: str) -> None:
    if not (folder / mark).exists():
        raise CurvaeError(
            f"{folder} exists and holds something else (there is no {mark}): it is not touched; choose another folder"
        )
    if not force and mark == CONFIG and not (folder / "report.html").exists():
        raise FixableError(
            f"{folder} holds an unfinished run",
            [[("resume", ""), ("force", "")]],
            "continue it with `resume=True`, choose another folder, or overwrite it with `force=True`",
        )
    if not force:
        raise CurvaeError(f"{folder} exists; choose another folder, or overwrite it with `force=True`")
    for pattern in (*(f"map-{letter}[0-9]*.png" for letter in LETTERS), *_OWN):
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def output_file(
    asked: Path | None, default: Path, force: bool, endings: Collection[str] = (), option: str = "output"
) -> Path:
    """Return the file asked for, or the default; raise if it exists, unless with `force`.

    The ending decides what is written, so it must be one of `endings`, or by default that of the default.
    """
    path = default if asked is None else asked
    if path.suffix.lower() not in (endings := endings or (default.suffix,)):
        raise CurvaeError(f"{path} should end in {', '.join(endings)}; choose such a name with `{option}=…`")
    refuse_dangling(path)
    if path.exists() and not force:
        raise CurvaeError(f"{path} exists; choose another name with `{option}=…`, or overwrite it with `force=True`")
    return path


def output_files(asked: Path | None, default: str, names: Sequence[str], force: bool) -> list[Path]:
    """Return files of these names in the folder asked for, or the default; raise as `output_file` does."""
    folder = Path(default) if asked is None else asked
    if folder.exists() and not folder.is_dir():
        raise CurvaeError(f"{folder} is a file; give a folder with `output=…`")
    return [output_file(folder / name, Path(name), force) for name in names]


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def write_report(
    path: Path,
    title: str,
    verdict: str,
    tone: Tone,
    warnings: Sequence[str],
    sections: Sequence[Section],
    seed: int,
    command: str,
    following: str = "",
    words: Callable[[str], str] = str,
) -> None:
    """Write the page that tells what was found; `command` makes it again, and `following` is to be run next.

    Parameters that warnings and paragraphs name are put into the words of whoever started the run.
    """
    warnings = [words(text) for text in warnings]
    sections = [replace(section, text=[words(text) for text in section.text]) for section in sections]
    report = Report(title, verdict, tone, warnings, sections, command, versions(), seed, today(), following)
    write_text(path, report.html())


def write_map(folder: Path, tables: Iterable[pd.DataFrame], rows: int, pictures: Mapping[str, Picture]) -> None:
    """Write the table of a map of so many rows, in pieces, and pictures by the names of their files."""
    write_tables(embedding_path(folder, rows), tables)
    for name, picture in pictures.items():
        write_bytes(folder / f"{name}.png", picture.png)


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array as a `.npy` file, atomically."""
    with replacing(path) as file:
        np.save(file, array, allow_pickle=False)
