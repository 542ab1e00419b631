"""The command line: options in, one call of `curvae.runs`, figures out."""

from __future__ import annotations

import math
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

from .errors import CurvaeError
from .flags import in_flags, option, takes_settings
from .settings import OPTIONS, GraphSettings, RowSettings, described
from .terminal import BROKEN_PIPE, Signals, one_line, steady_output

__all__ = ["app", "main"]

app = typer.Typer(
    name="curvae",
    help="Learn hierarchies with variational auto-encoders in curved latent spaces.",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Seed = Annotated[int | None, option(RowSettings, name="seed", panel=False)]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in -o.")]
Missing = Annotated[
    Literal["error", "drop", "mean", "model"],
    typer.Option("--missing", help="Rows that lack values: refuse, drop, fill in means, or leave gaps to the model."),
]
MissingAsRun = Annotated[
    Literal["error", "drop", "mean", "model"] | None,
    typer.Option("--missing", help="What to do with rows that lack values (as the run did).", show_default=False),
]
Run = Annotated[Path, typer.Argument(help="Run folder of curvae fit or curvae graph.", show_default=False)]
Data = Annotated[
    str,
    typer.Argument(
        help="Table (.csv, .tsv, .parquet), matrix (.npy, .npz, .mtx), images (.npy or a folder), mnist, "
        "branching-diffusion or flat.",
        show_default=False,
    ),
]
Edges = Annotated[
    str,
    typer.Argument(
        metavar="EDGES",
        help="List of edges (any text file), matrix (.mtx, .npz), GraphML, phylogenetic, csphd or diseases.",
        show_default=False,
    ),
]
Nodes = Annotated[str | None, typer.Option("--nodes", help="Table of nodes: names, labels, features.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Run folder (runs/<name>-<n>).", show_default=False)
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Processes (one a core, one on CUDA).", show_default=False)
]
Label = Annotated[str | None, typer.Option("--label", help="Column to colour the map by.")]
Identity = Annotated[str | None, typer.Option("--id", help="Column that names the rows.")]
Group = Annotated[str | None, typer.Option("--group", help="Column whose rows stay together in splits.")]
Categorical = Annotated[list[str] | None, typer.Option("--categorical", help="Text column to code; repeatable.")]
Covariate = Annotated[
    list[str] | None,
    typer.Option(
        "--covariate", help="Column of the circumstances, such as the batch, told to the decoder; repeatable."
    ),
]
Exposure = Annotated[
    str | None, typer.Option("--exposure", help="Column with the exposure of each row, for counts (poisson).")
]
Features = Annotated[list[str] | None, typer.Option("--features", help="Column of numbers of the nodes; repeatable.")]
Weighted = Annotated[bool, typer.Option("--weighted", help="Read weights of edges.")]
Isolated = Annotated[bool, typer.Option("--isolated", help="Add nodes that only the table names, without edges.")]

# Options of `diagnose` that say nothing about distances, a graph or a run.
_OF_VALUES = ("metric", "missing")
_OF_TABLES = (*_OF_VALUES, "label", "id", "group", "categorical")
_OF_DATA = (*_OF_TABLES, "output", "distances", "graph")
# What a comparison chooses itself.
_CHOSEN = {
    name for kind in (RowSettings, GraphSettings) for name, known in described(kind).items() if not known.compared
}


def _refuse(context: typer.Context, when: str, names: Iterable[str]) -> None:
    """Raise if one of these options was given."""
    options = _options(context.command)
    for name in names:
        if name in options and _given(context, options[name]):
            raise CurvaeError(f"{options[name].opts[0]} has no meaning {when}; leave it out")


def _options(command: Any) -> dict[str, Any]:
    """The options of a command, called as the library calls them: by their long names."""
    longest = {parameter: max(parameter.opts, key=len) for parameter in command.params}
    return {name.lstrip("-").replace("-", "_"): parameter for parameter, name in longest.items()}


def _given(context: typer.Context, parameter: Any) -> bool:
    source = context.get_parameter_source(parameter.name)
    return source is not None and source.name != "DEFAULT"


_running: ContextVar[Any] = ContextVar("running", default=None)
"""the program, while one of its commands runs"""


def _typed(message: str) -> str:
    """A message of the library in the words of the command line."""
    if (context := _running.get()) is None:
        return message
    commands = context.command.commands
    known: dict[str, tuple[str, str | None]] = {}
    for command in (*commands.values(), commands[context.invoked_subcommand]):
        for name, parameter in _options(command).items():
            if parameter.param_type_name == "option":
                known[name] = parameter.opts[0], next(iter(parameter.secondary_opts), None)
    return in_flags(message, known | {name: known[option] for name, option in OPTIONS.items()})


@contextmanager
def _voice(quiet: bool) -> Iterator[Any]:
    """Messages and progress bars on the error stream, so that results alone are on the output."""
    from .runs import Reporter

    if quiet:
        yield Reporter()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    bars = Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[text]}"), console=console
    )
    tasks: dict[str, TaskID] = {}

    def progress(name: str, done: float, total: float, text: str) -> None:
        if not tasks:
            bars.start()
        if name not in tasks:
            tasks[name] = bars.add_task(name, total=total, text="")
        bars.update(tasks[name], completed=done, text=escape(one_line(text)))

    try:
        yield Reporter(
            say=lambda text: console.print(escape(one_line(_typed(text))), highlight=False, soft_wrap=True),
            warn=lambda text: console.print(
                f"[yellow]warning:[/] {escape(one_line(_typed(text)))}", highlight=False, soft_wrap=True
            ),
            progress=progress,
        )
    finally:
        if tasks:
            bars.stop()


def _tell(quiet: bool, as_json: bool, result: Any, *lines: str) -> None:
    """The result as JSON, or lines for people."""
    if as_json:
        from .training.files import json_text

        print(json_text(result, ascii_only="utf" not in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()))
    elif not quiet:
        for line in lines:
            print(one_line(line))


@app.command(epilog="Example: curvae demo -o demo")
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the report.")] = Path("demo"),
    seed: Seed = None,
    quick: Annotated[bool, typer.Option("--quick", help="Three epochs a training, to try the installation.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find a hierarchy in built-in data, and none in flat data; writes a report."""
    from .runs import demonstrate

    with _voice(quiet or as_json) as voice:
        page, found = demonstrate(output, seed or 0, quick, voice)
    _tell(
        quiet,
        as_json,
        {"report": str(page), **{name: result.to_json() for name, result in found.items()}},
        f"report: {page}",
        "next: curvae fit branching-diffusion --prior-scale 1.7",
    )


@app.command(epilog="Example: curvae fit cells.csv --label type --id barcode -o runs/cells")
@takes_settings(RowSettings)
def fit(
    data: Data,
    output: Output = None,
    label: Label = None,
    identity: Identity = None,
    group: Group = None,
    categorical: Categorical = None,
    covariate: Covariate = None,
    exposure: Exposure = None,
    missing: Missing = "error",
    repeats: Annotated[
        int | None, typer.Option("--repeats", help="Trainings, to see how stable the map is (1).", show_default=False)
    ] = None,
    resume: Resume = False,
    force: Force = False,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Train a model on data; writes a run folder with the map, the model and a report."""
    from .runs import Source, TrainRequest, train_run
    from .training.device import choose_device

    source = Source(data, label, identity, group, tuple(categorical or ()), missing, exposure, tuple(covariate or ()))
    request = TrainRequest(source, settings, output, repeats, resume, force, choose_device(device))
    with _voice(quiet or as_json) as voice:
        result = train_run(request, voice)
    _tell(
        quiet,
        as_json,
        {"run": str(result.folder), **result.summary},
        f"report: {result.folder / 'report.html'}",
        f"embedding: {result.folder / 'embedding.csv'}",
        f"next: {result.following}",
    )


@app.command(epilog="Example: curvae graph friends.csv --nodes people.csv --label team")
@takes_settings(GraphSettings)
def graph(
    data: Edges,
    output: Output = None,
    nodes: Nodes = None,
    label: Label = None,
    features: Features = None,
    weighted: Weighted = False,
    isolated: Isolated = False,
    missing: Annotated[
        Literal["error", "mean"], typer.Option("--missing", help="What to do about missing features.")
    ] = "error",
    splits: Annotated[
        int | None,
        typer.Option("--splits", min=0, help="How often to hide edges and find them again (5).", show_default=False),
    ] = None,
    resume: Resume = False,
    force: Force = False,
    device: Device = "auto",
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Json = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Train a model on a graph; writes a run folder with the map, the model and a report."""
    from .runs import GraphSource, TrainRequest, train_run
    from .training.device import choose_device

    source = GraphSource(data, nodes, label, tuple(features or ()), weighted, isolated, missing)
    request = TrainRequest(source, settings, output, splits, resume, force, choose_device(device), jobs)
    with _voice(quiet or as_json) as voice:
        result = train_run(request, voice)
    _tell(
        quiet,
        as_json,
        {"run": str(result.folder), **result.summary},
        f"report: {result.folder / 'report.html'}",
        f"embedding: {result.folder / 'embedding.csv'}",
        f"next: {result.following}",
    )


@app.command(epilog="Example: curvae embed runs/cells-1 new-cells.csv -o new.csv")
def embed(
    run: Run,
    data: Data,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="CSV file (<name>-embedding.csv).", show_default=False)
    ] = None,
    missing: MissingAsRun = None,
    nodes: Nodes = None,
    force: Force = False,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Place new rows, or the nodes of a graph with other edges, on the map of a run; columns are matched by name."""
    from .runs import embed_run
    from .training.device import choose_device

    with _voice(quiet or as_json) as voice:
        path = embed_run(
            run, data, output, missing=missing, nodes=nodes, force=force, device=choose_device(device), reporter=voice
        )
    following = shlex.join(["curvae", "evaluate", str(run), data, *(("--missing", missing) if missing else ())])
    _tell(quiet, as_json, {"embedding": str(path)}, f"embedding: {path}", f"next: {following}")


@app.command(epilog="Example: curvae impute runs/cells-1 cells.csv -o filled.csv")
def impute(
    run: Run,
    data: Data,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="CSV file, or .npy for images (<name>-imputed.csv).", show_default=False),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", help="Importance samples a row.")] = 1000,
    force: Force = False,
    seed: Seed = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fill in missing values with what the model of a run, trained with --missing model, expects there."""
    from .runs import impute_run
    from .training.device import choose_device

    with _voice(quiet or as_json) as voice:
        found = impute_run(
            run,
            data,
            output,
            samples=samples,
            seed=seed or 0,
            force=force,
            device=choose_device(device),
            reporter=voice,
        )
    _tell(
        quiet,
        as_json,
        {"imputed": str(found.path), "values": found.values, "rows": found.rows},
        f"imputed: {found.path}, {found.values:,} values in {found.rows:,} rows",
        f"next: {found.following}",
    )


@app.command(epilog="Example: curvae sample runs/cells-1 -n 100 -o samples.csv")
def sample(
    run: Run,
    count: Annotated[int, typer.Option("-n", "--count", help="How many rows, or graphs, to draw.")] = 100,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="CSV file, or .npy for images.", show_default=False)
    ] = None,
    covariate: Annotated[
        list[str] | None,
        typer.Option("--covariate", metavar="COLUMN=VALUE", help="Value of a covariate for all rows; repeatable."),
    ] = None,
    force: Force = False,
    seed: Seed = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draw new rows, in original units, or new graphs from the model of a run.

    From a model of counts with an exposure, rows of exposure 1.
    """
    from .runs import sample_run
    from .training.device import choose_device

    if wrong := [entry for entry in covariate or () if "=" not in entry]:
        raise CurvaeError(f"--covariate takes COLUMN=VALUE, such as batch=a; got {wrong[0]!r}")
    told = dict(entry.partition("=")[::2] for entry in covariate or ())
    found = sample_run(run, count, output, covariates=told, seed=seed or 0, force=force, device=choose_device(device))
    names = [str(path) for path in found.paths]
    _tell(quiet, as_json, {"samples": names}, *(f"samples: {name}" for name in names), f"next: {found.following}")


@app.command(epilog="Example: curvae evaluate runs/cells-1 held-out.csv --samples 5000")
def evaluate(
    run: Run,
    data: Data,
    samples: Annotated[
        int | None, typer.Option("--samples", help="Importance samples a row (5000).", show_default=False)
    ] = None,
    missing: MissingAsRun = None,
    seed: Seed = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Marginal log-likelihood of data under the model of a run; of a graph, how well its edges are found."""
    from .runs import evaluate_run
    from .training.device import choose_device

    with _voice(quiet or as_json) as voice:
        found = evaluate_run(
            run, data, samples, seed=seed or 0, missing=missing, device=choose_device(device), reporter=voice
        )
    lines = _likelihood_lines(found) if "samples" in found else _link_lines(found)
    number = "100" if "samples" in found else "10"
    _tell(quiet, as_json, found, *lines, f"next: {shlex.join(['curvae', 'sample', str(run), '-n', number])}")


def _likelihood_lines(found: dict[str, Any]) -> list[str]:
    lines = []
    for name, part in found["parts"].items():
        margin = "" if math.isnan(part["interval"]) else f" ± {part['interval']:.2f}"
        lines.append(
            f"{name}, {part['rows']} rows: log-likelihood {part['log_likelihood']:.2f}{margin} nats a row; "
            f"in original units {part['log_likelihood_original_units']:.2f}"
        )
        lines.append(
            f"  effective sample size {part['median_effective_sample_size']:.0f} of {found['samples']}, "
            f"standard error {part['median_standard_error']:.2g} (medians)"
        )
        if part["rows_with_few_effective_samples"]:
            lines.append(
                f"  {part['rows_with_few_effective_samples']} rows rest on fewer than 10 effective samples and are "
                "estimated too low or by luck; raise --samples"
            )
    return lines


def _link_lines(found: dict[str, Any]) -> list[str]:
    told = {"train": "edges that it was trained on", "new": "new edges"}
    lines = [
        f"{part['edges']:,} {told[name]}: AUC {100 * part['auc']:.1f} %, average precision {100 * part['ap']:.1f} %"
        for name, part in found["parts"].items()
    ]
    return [*lines, f"mean average precision of neighbourhoods {found['neighbourhood_map']:.3f}"]


@app.command(epilog="Example: curvae compare cells.csv --label type --group donor --repeats 10")
@takes_settings(RowSettings, GraphSettings, without=_CHOSEN)
def compare(
    context: typer.Context,
    data: Data,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder (runs/<name>-comparison-<n>).", show_default=False)
    ] = None,
    curvatures: Annotated[
        str | None, typer.Option("--curvatures", help="Values of c > 0 to choose from (0.3,1).", show_default=False)
    ] = None,
    repeats: Annotated[int | None, typer.Option("--repeats", help="Seeds and splits (5).", show_default=False)] = None,
    graph: Annotated[bool, typer.Option("--graph", help="The data are the edges of a graph.")] = False,
    nodes: Nodes = None,
    features: Features = None,
    weighted: Weighted = False,
    isolated: Isolated = False,
    label: Label = None,
    identity: Identity = None,
    group: Group = None,
    categorical: Categorical = None,
    covariate: Covariate = None,
    exposure: Exposure = None,
    missing: Missing = "error",
    device: Device = "auto",
    jobs: Jobs = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="Train on a Dask cluster.", show_default=False),
    ] = None,
    resume: Resume = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Is a curved latent space better for these data? Answers with a test on rows, or edges, kept apart."""
    from .runs import CompareRequest, GraphSource, Source, compare_run

    try:
        values = None if curvatures is None else [float(value) for value in curvatures.split(",")]
    except ValueError:
        raise CurvaeError(f"--curvatures takes numbers such as 0.3,1; got {curvatures!r}") from None
    rows = {*described(RowSettings), *(OPTIONS.get(name, name) for name in vars(Source(data)))}
    graphs = {*described(GraphSettings), *vars(GraphSource(data))}
    if graph:
        _refuse(context, "with --graph", rows - graphs)
    else:
        _refuse(context, "without --graph", graphs - rows)
    source: Source | GraphSource
    if graph:
        source = GraphSource(data, nodes, label, tuple(features or ()), weighted, isolated, missing)
    else:
        source = Source(
            data, label, identity, group, tuple(categorical or ()), missing, exposure, tuple(covariate or ())
        )
    request = CompareRequest(source, settings, values, repeats, output, resume, force, jobs, device, scheduler)
    with _voice(quiet or as_json) as voice:
        result = compare_run(request, voice)
    folder, found = result.folder, result.comparison
    _tell(
        quiet,
        as_json,
        {"folder": str(folder), **found.to_json()},
        f"report: {folder / 'report.html'}",
        f"next: {result.following}",
    )


@app.command(epilog="Example: curvae paper table1 --quick")
def paper(
    what: Annotated[str, typer.Argument(help="list, all, or an experiment that list names.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for results (results/paper, quick: runs/paper-quick).", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few minutes on two cores, to see that it works.")] = False,
    shards: Annotated[bool, typer.Option("--shards", help="List the shards with their state, and do nothing.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="SHARD", help="Compute this shard, or several: a,b.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Compute shards that are done again.")] = False,
    seed: Seed = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """The tables and figures of the paper, again; a run that was interrupted goes on where it was."""
    from .paper.command import paper_list, paper_run

    if what == "list":
        entries = paper_list(out, quick, seed or 0)
        _tell(quiet, as_json, entries, *(entry["text"] for entry in entries), "next: curvae paper table1 --quick")
        return
    named = [name for names in only or () for name in names.split(",")]
    with _voice(quiet or as_json) as voice:
        found = paper_run(what, out, quick, seed or 0, shards, named, force, device, voice)
    _tell(quiet, as_json, found.result, *found.lines)


@app.command(epilog="Example: curvae view runs/cells-1 --data cells.csv --show age --show donor")
def view(
    run: Run,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Page (.html) or picture (.svg, .png, .pdf) (<run>-map.html).", show_default=False
        ),
    ] = None,
    show: Annotated[
        list[str] | None, typer.Option("--show", metavar="COLUMN", help="Column to put in; repeatable.")
    ] = None,
    label: Annotated[str | None, typer.Option("--label", help="Column to colour by (the run's label).")] = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Leave out ids and the order of the rows.")] = False,
    thumbnails: Annotated[bool, typer.Option("--thumbnails", help="Put in the images of the rows, small.")] = False,
    data: Annotated[
        str | None, typer.Option("--data", metavar="FILE", help="Where columns or images are.", show_default=False)
    ] = None,
    names: Annotated[
        int, typer.Option("--names", min=0, help="In a picture of a graph, name so many nodes with the most edges.")
    ] = 0,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """The map of a run as one page to move about in, or as a picture."""
    from .runs import ViewRequest, view_run

    request = ViewRequest(run, output, tuple(show or ()), label, anonymous, thumbnails, data, names, force)
    with _voice(quiet or as_json) as voice:
        path, shown = view_run(request, voice)
    picture = ["-o", f"{run.resolve().name}-map.pdf"] if path.suffix == ".html" else []
    following = shlex.join(["curvae", "view", str(run), *picture, *(["--anonymous"] if anonymous else [])])
    what = "the same as a picture" if picture else "the same to move about in"
    _tell(quiet, as_json, {"map": str(path), "inside": shown.inside}, f"map: {path}", f"next: {following}    {what}")


@app.command(epilog="Example: curvae diagnose cells.csv --label type --id barcode -o hierarchy.html")
def diagnose(
    context: typer.Context,
    data: Annotated[str, typer.Argument(help="Data as for curvae fit; a graph; or a run folder.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Report to write (.html).", show_default=False)
    ] = None,
    metric: Annotated[
        Literal["euclidean", "cosine", "correlation", "manhattan"], typer.Option("--metric", help="Between rows.")
    ] = "euclidean",
    distances: Annotated[bool, typer.Option("--distances", help="The data are a matrix of distances.")] = False,
    graph: Annotated[bool, typer.Option("--graph", help="The data are a graph.")] = False,
    tree: Annotated[
        Path | None,
        typer.Option(
            "--tree", help="Of a run: compare with a tree (Newick, columns child and parent, or branching-diffusion)."
        ),
    ] = None,
    newick: Annotated[
        Path | None, typer.Option("--newick", help="Of a run: write the tree read off its map to this file.")
    ] = None,
    label: Label = None,
    identity: Identity = None,
    group: Group = None,
    categorical: Categorical = None,
    missing: Annotated[
        Literal["error", "drop", "mean"], typer.Option("--missing", help="What to do with rows that lack values.")
    ] = "error",
    force: Force = False,
    seed: Seed = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Is there a hierarchy in data? Of a run: how well does its map recover a known tree?"""
    from .runs import DiagnoseRequest, GraphSource, Source, diagnose_data, export_tree, recover_run
    from .runs.diagnosing import figures, is_run, recovered

    if tree is not None or newick is not None or is_run(data):
        if tree is None and newick is None:
            raise CurvaeError(f"{data} is a run; compare it with --tree FILE, or write its tree with --newick FILE")
        _refuse(context, "with a run", _OF_DATA)
        result: dict[str, Any] = {}
        lines = []
        with _voice(quiet or as_json) as voice:
            if tree is not None:
                match, found = recover_run(Path(data), tree, seed=seed or 0, reporter=voice)
                result, lines = {"match": match.to_json(), **found.to_json()}, recovered(match, found)
            if newick is not None:
                result |= export_tree(Path(data), newick, seed=seed or 0, force=force)
                lines.append(f"newick: {newick}")
        following = ["diagnose", data, "--newick", "tree.nwk"] if newick is None else ["view", data]
        _tell(quiet, as_json, result, *lines, f"next: {shlex.join(['curvae', *following])}")
        return
    if graph:
        _refuse(context, "with --graph", (*_OF_TABLES, "distances"))
    if distances:
        _refuse(context, "with --distances", _OF_VALUES)
    rows = Source(data, label, identity, group, tuple(categorical or ()), missing)
    request = DiagnoseRequest(GraphSource(data) if graph else rows, metric, distances, output, force, seed or 0)
    with _voice(quiet or as_json) as voice:
        diagnosis = diagnose_data(request, voice)
    _tell(
        quiet,
        as_json,
        {"report": None if output is None else str(output), **diagnosis.to_json()},
        diagnosis.sentence,
        *figures(diagnosis),
        *([] if output is None else [f"report: {output}"]),
        f"next: {request.following(diagnosis)}",
    )


@app.command(epilog="Example: curvae cite --bibtex")
def cite(bibtex: Annotated[bool, typer.Option("--bibtex", help="As BibTeX.")] = False) -> None:
    """How to cite Curvae and the paper it implements."""
    from . import report

    print(report.bibtex() if bibtex else report.citation())


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    from . import __version__

    _running.set(context)
    if version:
        print(__version__)
    elif context.invoked_subcommand is None:
        print(context.get_help(), end="")
    else:
        return
    raise typer.Exit


# A mistake on the command line, of which typer offers only this descendant by name.
_UsageError: Any = typer.BadParameter.__base__
_INTERRUPTED = 130


def main() -> None:
    """Entry point of the `curvae` program."""
    with Signals(_interrupted) as signals, steady_output() as output:
        code = _run(signals)
        output.flush()
        if output.error is not None and not output.reader_left and code == 0:
            reason = getattr(output.error, "strerror", None) or output.error
            code = _fail(f"cannot write to the output: {reason}; files that were written are complete")
    if output.reader_left and code == 0:
        code = BROKEN_PIPE
    if code:
        sys.exit(code)


def _run(signals: Signals) -> int:
    """Run the command and say what went wrong, if anything; returns the exit code."""
    _running.set(None)
    try:
        _require_working_directory()
        code = app(prog_name="curvae", standalone_mode=False) or 0
    except CurvaeError as error:
        return _fail(_typed(str(error)))
    except _UsageError as error:
        command = "curvae" if error.ctx is None else error.ctx.command_path
        return _fail(
            f"{' '.join(error.format_message().split()).removesuffix('.')}; {command} --help shows what there is"
        )
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except Exception:
        if signals.received is None:
            raise
        code = _INTERRUPTED  # whatever broke while the command was ending
    if code == _INTERRUPTED:
        number = signals.received or signal.SIGINT
        print(_interrupted(number), end="", file=sys.stderr, flush=True)
        signals.said()
        return 128 + number
    return int(code)


def _interrupted(number: int) -> str:
    """What to say after a signal: how to go on."""
    what = "terminated" if number == signal.SIGTERM else "interrupted"
    if sys.argv[1:2] == ["paper"]:
        return f"curvae: {what}; the same command goes on\n"
    return f"curvae: {what}; curvae fit, graph and compare go on with the same data and -o FOLDER --resume\n"


def _require_working_directory() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise CurvaeError(
            f"the working directory cannot be used ({error.strerror}); change to another folder"
        ) from error


def _fail(message: str) -> int:
    print(f"curvae: {one_line(message)}", file=sys.stderr)
    return 2
