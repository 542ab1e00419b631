"""Start or resume a run folder, train and write what was found: `curvae fit`, `graph` and `compare`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from ..data.files import decimal
from ..errors import CurvaeError
from ..maps.embedding import frames_to_json
from ..settings import Settings, described
from ..training import Config
from ..training.comparison import Comparison, Curvatures, Outcome
from ..training.fitted import FittedModel
from ..training.fitting import default_jobs
from ..training.processes import process_count, require_shareable
from ..training.storage import (
    CONFIG,
    description_of,
    locked,
    read_description,
    save_fitted,
    write_json,
    write_tables,
)
from .plans import GraphComparisonPlan, GraphTrainingPlan, RowsComparisonPlan, RowsTrainingPlan
from .run import (
    SILENT,
    DataSource,
    GraphSource,
    Reporter,
    Source,
    Step,
    given,
    new_folder,
    write_map,
    write_report,
)

__all__ = ["compare_run", "start_run", "train_run"]


# Start a run in a fresh folder, or resume one: then what is asked for must be what it was started with.

# What a description says besides settings and source, and how it is checked and converted.
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "repeats": int,
    "splits": int,
    "curvatures": lambda values: values if values == "auto" else [float(c) for c in values],
}


@contextmanager
def start_run(
    source: DataSource,
    settings: Mapping[str, Any],
    output: Path | None,
    kind: str,
    asked: Mapping[str, Any],
    plan: Callable[..., Any],
    reporter: Reporter,
    *,
    resume: bool,
    force: bool,
) -> Iterator[tuple[Any, Path, DataSource, dict[str, Any]]]:
    """Start or resume a run: read its data, and lock its folder within the context.

    Arguments:
        source, settings, output, resume, force: see `train_run`.
        kind: of the run.
        asked: what else was asked for, by its name in `config.json`; None where it was left out.
        plan: makes a plan of source, data, settings, those that were typed, the description of the run that is resumed
            and what else is asked for; it raises for what cannot be done, before anything is written.
        reporter: knows the command that starts the run; of one that is resumed, the first is kept.

    Yields:
        The plan, the folder, the source as it was typed at the start, and the description of the run, as `config.json`
        has it.
    """
    typed = [*source.options, *settings]
    configs: Any = FittedModel.kinds[source.kind].settings
    folder, asked, before = output, dict(asked), {}
    with ExitStack() as held:
        if resume:
            if folder is None:
                raise CurvaeError("`resume=True` needs the run folder; give it with `output=…`")
            held.enter_context(locked(folder) if folder.is_dir() else nullcontext())
            before = read_description(folder, kind)
            source, config, asked = _require_same_request(folder, before, source, configs, settings, asked)
            typed = before.get("asked", typed)
            settings = given(config)
        config = configs(**settings)
        data: Any = None
        read = source
        if isinstance(source, Source):
            # A run that is resumed has the memory that it had: it decides on the order of rows on disk.
            source = source if before else source.bounded
            data = source.load(reporter.counter)
            read = source if data.on_disk else replace(source, memory=None)
        elif isinstance(source, GraphSource):
            data = source.load(directed=config.directed)
        if before and data.fingerprint != before["data"]["fingerprint"]:
            raise CurvaeError(
                f"{source.path} is not the data that {folder} was started with; "
                "give that data, or start a new run without `resume=True`"
            )
        named = {name: value for name, value in settings.items() if name in typed}
        made = plan(read, data, config, named, before, **asked)
        started = {"command": before.get("command", reporter.started), "asked": typed}
        description = {**description_of(made.config, kind), **started, "source": read.to_json(), **made.facts}
        if folder is None or not before:
            name = source.name if kind == source.kind else f"{source.name}-{kind}"
            folder = held.enter_context(new_folder(output, name, force))
            write_json(folder / CONFIG, description)
        reporter.resumable({"output": folder if output is None else None, "resume": None if before else True})
        if isinstance(source, Source) and "memory" not in typed:  # it was chosen for this machine
            source = replace(source, memory=None)
        yield made, folder, source, description


def _require_same_request(
    folder: Path,
    description: Mapping[str, Any],
    source: DataSource,
    configs: type[Settings],
    settings: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> tuple[DataSource, Settings, dict[str, Any]]:
    """Return source, settings and what else was asked for at the start; raise if something else is asked for now."""
    try:
        config = configs.from_json(description["config"])
        first = source.again(description["source"])
        texts = description["data"]["fingerprint"], description["command"], description.get("likelihood_reason", "")
        if not all(isinstance(value, str) for value in texts):
            raise TypeError("its data are not described")
        others = {name: _CONVERT[name](description[name]) for name in asked}
    except (KeyError, TypeError, ValueError) as error:
        raise CurvaeError(
            f"{folder} cannot be resumed: its {CONFIG} is incomplete ({error}); start a new run"
        ) from error
    known, space = described(configs), ",".join(factor.text for factor in config.factors)
    before = {**vars(config), **vars(first), **others, "space": space}
    now = {**settings, **source.options, **{name: value for name, value in asked.items() if value is not None}}
    if now.get("curvature") == "learn":
        now |= {"curvature": known["curvature"].default, "learn_curvature": True}
    if now.get("space") is not None:  # which can be written in several ways
        now["space"] = ",".join(factor.text for factor in configs(space=now["space"]).factors)
    other = []
    for name, value in now.items():
        same = (known[name].parse_word(value) if name in known else value) == before[name]
        if not same and (name, value) != ("likelihood", "auto"):
            started = f"no `{name}=…`" if before[name] is None else f"`{name}={json.dumps(before[name])}`"
            other.append(f"{started}, not {', '.join(map(str, value)) if isinstance(value, tuple | list) else value}")
    if other:
        raise CurvaeError(f"the run was started with {' and '.join(other)}; leave the option out, or start a new run")
    for name, advice in first.files.items():
        if description["source"].get(name) is not None and getattr(first, name) is None:
            raise CurvaeError(f'{folder} was started with {advice} with `{name}="{description["source"][name]}"`')
    return first, config, others


def train_run(
    source: DataSource,
    settings: Mapping[str, Any] = MappingProxyType({}),
    output: Path | None = None,
    *,
    repeats: int | None = None,
    root: str | None = None,
    links: int | None = None,
    resume: bool = False,
    force: bool = False,
    device: torch.device | str = "cpu",
    jobs: int | None = None,
    processes: int | None = None,
    reporter: Reporter = SILENT,
) -> tuple[Path, dict[str, Any], list[Path], Step]:
    """Train a model on rows or on a graph and write its run folder.

    Arguments:
        source: the data.
        settings: of `Config` or `GraphConfig`, those that were given.
        output: the folder; by default the next one in `runs/`.
        repeats: of rows, trainings with other seeds (1); of a graph, how often edges are hidden (5).
        root: name of the row or node that the map has at its centre; the Fréchet mean by default.
        links: of a graph, how many of the likeliest missing edges to write to a file.
        resume, force: go on with the run in the folder, or overwrite it.
        device, jobs: where to train, and in how many processes at most.
        processes: that train a model of rows together; by default one, or those that `torchrun` has started.
        reporter: receives messages and progress.

    Returns:
        The run folder, its figures, files that were asked for besides the usual ones, and what to do next.
    """
    count, together = source.count_name, process_count(processes)
    if together > 1:
        if (repeats or 1) > 1:
            raise CurvaeError(
                "`repeats=…` and `processes=…` cannot be combined: several processes train one model; drop one"
            )
        require_shareable(together, Config(**settings), device)

    plan: Any = (
        partial(GraphTrainingPlan, links=links, root=root)
        if isinstance(source, GraphSource)
        else partial(RowsTrainingPlan, processes=together, root=root)
    )
    asked, how = {count: repeats}, {"resume": resume, "force": force}
    with start_run(source, settings, output, source.kind, asked, plan, reporter, **how) as started:
        made, folder, _, description = started
        warnings = [*made.data.warnings, *made.remarks]
        reporter.tell(description["data"]["notes"], warnings)
        reporter.tell([made.text, f"run folder {folder}"], ())
        where = {"resume": resume, "device": device, "jobs": jobs or default_jobs(device)}
        found = made.train(folder, reporter, epoch_progress(reporter, resume), **where)
        warnings += found.warnings
        summary = {**found.summary, "warnings": warnings}
        pictures = {name: one for section in found.sections for name, one in section.named_pictures.items()}
        write_map(folder, found.tables, description["data"]["nodes" if source.kind == "graph" else "rows"], pictures)
        for name, table in found.files.items():
            write_tables(folder / name, [table])
        write_report(
            folder / "report.html",
            f"Map of {'the graph ' if source.kind == 'graph' else ''}{made.source.shown.path}",
            found.verdict,
            "good" if found.good and not warnings else "neutral",
            warnings,
            found.sections,
            description["seed"],
            description["command"],
            found.advice,
            reporter.words,
        )
        extra = {key: description[key] for key in ("command", "asked", "source", count, "root", "data")}
        extra |= {"orientation": frames_to_json(found.frames), "summary": summary}
        save_fitted(folder, found.fitted, found.embedding, extra, made.data)
        reporter.tell(found.said, found.warnings)
        return folder, summary, [folder / name for name in found.files], found.following


def epoch_progress(reporter: Reporter, resumed: bool) -> Callable[[dict[str, Any], int], None]:
    """Tell the progress of one training, with the figures of its latest epoch, and where a resumed one continues."""

    def progress(record: dict[str, Any], epochs: int) -> None:
        nonlocal resumed
        if resumed:
            reporter.say(f"continued at epoch {record['epoch']} of {epochs}")
            resumed = False
        elbo, reconstruction, kl = (decimal(record[name]) for name in ("elbo", "reconstruction", "kl"))
        curvatures = [value for name, value in record.items() if name == "c" or name.startswith("c_")]
        shown = ", ".join(f"{c:.3g}" for c in curvatures)
        reporter.progress("training", record["epoch"], epochs, f"ELBO {elbo}  rec {reconstruction}  KL {kl}  c {shown}")

    return progress


# `curvae compare`: is a curved latent space better for these data?

TONES: dict[Outcome, Any] = {"hyperbolic": "good", "none": "neutral", "euclidean": "bad"}
_DEFAULT: dict[str, Any] = {"curvatures": [0.3, 1.0], "repeats": 5}


def compare_run(
    source: DataSource,
    settings: Mapping[str, Any] = MappingProxyType({}),
    curvatures: Curvatures | None = None,
    repeats: int | None = None,
    output: Path | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    jobs: int | None = None,
    device: str = "auto",
    tree: Path | None = None,
    reporter: Reporter = SILENT,
) -> tuple[Path, Comparison, Step]:
    """Compare curvatures and write `comparison.json` and `report.html`.

    Arguments:
        source, settings, output, resume, force, jobs, device, reporter: see `train_run`.
        curvatures: values of c > 0, or "auto"; 0.3 and 1, or those that the comparison was started with.
        repeats: seeds and splits; 5, or as many as it was started with.
        tree: a known tree of the data, to compare by how well it is recovered too.

    Returns:
        The folder, the comparison, and the training with the curvature that was found best.
    """

    comparison: Any = GraphComparisonPlan if isinstance(source, GraphSource) else RowsComparisonPlan

    def plan(*given: Any, **asked: Any) -> Any:
        chosen = {**_DEFAULT, **{name: value for name, value in asked.items() if value is not None}}
        return comparison(*given, **chosen, tree=tree)

    asked, how = {"curvatures": curvatures, "repeats": repeats}, {"resume": resume, "force": force}
    with start_run(source, settings, output, "comparison", asked, plan, reporter, **how) as started:
        made, folder, source, description = started
        reporter.tell((), [*made.data.warnings, *made.remarks])
        reporter.say(made.text)
        found, said, warned, sections = made.compare(
            device=device,
            jobs=jobs,
            folder=folder,
            resume=resume,
            progress=lambda done, total: reporter.progress("training", done, total, ""),
            warn=reporter.warn,
        )
        reporter.tell(said, warned)
        write_json(folder / "comparison.json", found.to_json())
        write_report(
            folder / "report.html",
            f"Is a curved space better for {description['source']['name']}?",
            found.verdict,
            TONES[found.outcome],
            [*made.data.warnings, *warned],
            sections,
            made.config.seed,
            description["command"],
            words=reporter.words,
        )
        reporter.say(found.verdict)
    choices = [one.choice for one in found.criteria] if found.outcome == "none" else []
    best = float(found.choice or max(choices, default=0))
    chosen = {**made.typed, "curvature": best}
    if "space" in made.typed:
        config = type(found.config)(**made.typed).with_curvature(best)
        chosen = given(config) | ({} if config.space else {"curvature": best})
    return folder, found, source.step(source.action, **chosen)
