"""The command line: options in, one call of `curvae.runs`, figures out."""

from __future__ import annotations

import math
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .errors import CurvaeError
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
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of everything random (0).", show_default=False)
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in -o.")]
Missing = Annotated[
    Literal["error", "drop", "mean"], typer.Option("--missing", help="What to do with rows that lack values.")
]
MissingAsRun = Annotated[
    Literal["error", "drop", "mean"] | None,
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


def _option(name: str, text: str, *more: str, panel: str = "Model") -> Any:
    """An option of `Config`, unset unless given; `text` ends with the default."""
    return typer.Option(name, *more, help=text, show_default=False, rich_help_panel=panel)


Dim = Annotated[int | None, _option("--dim", "Dimension of the latent space (2).", "-d")]
Curvature = Annotated[float | None, _option("--curvature", "c ≥ 0: the space has curvature −c (1).", "-c")]
LearnCurvature = Annotated[bool | None, _option("--learn-curvature", "Train c, from the value given.")]
Posterior = Annotated[Literal["riemannian", "wrapped"] | None, _option("--posterior", "Law of posterior and prior.")]
Diagonal = Annotated[bool | None, _option("--diagonal", "One posterior deviation an axis (wrapped only).")]
PriorScale = Annotated[float | None, _option("--prior-scale", "Deviation σ0 of the prior (1).")]
LearnPriorScale = Annotated[bool | None, _option("--learn-prior-scale", "Train σ0, from the value given.")]
Decoder = Annotated[
    Literal["gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius"] | None,
    _option("--decoder", "First layer (gyroplane)."),
]
Network = Annotated[
    Literal["mlp", "conv"] | None, _option("--network", "Dense layers, or convolutions for images (mlp).")
]
Hidden = Annotated[str | None, _option("--hidden", "Widths of the hidden layers, such as 200 or 400,200 (200).")]
Likelihood = Annotated[
    Literal["auto", "bernoulli", "gaussian", "unit_gaussian", "categorical", "poisson"] | None,
    _option("--likelihood", "Of a row given its point (auto: bernoulli for 0/1 values, else gaussian)."),
]
Beta = Annotated[float | None, _option("--beta", "Weight of the divergence (1).")]
Epochs = Annotated[int | None, _option("--epochs", "Passes over the data (about 8,000 steps).", panel="Training")]
BatchSize = Annotated[int | None, _option("--batch-size", "Rows a step (64).", panel="Training")]
LearningRate = Annotated[float | None, _option("--learning-rate", "Of Adam (0.001).", "--lr", panel="Training")]
Validation = Annotated[float | None, _option("--validation", "Share of rows to hold out (0.1).", panel="Training")]
Patience = Annotated[
    int | None, _option("--patience", "Stop after so many epochs without progress (never).", panel="Training")
]
Tf32 = Annotated[
    bool | None,
    _option("--tf32/--no-tf32", "On CUDA, train with TF32 matrix products (yes).", panel="Training"),
]

Features = Annotated[list[str] | None, typer.Option("--features", help="Column of numbers of the nodes; repeatable.")]
Weighted = Annotated[bool, typer.Option("--weighted", help="Read weights of edges.")]
Isolated = Annotated[bool, typer.Option("--isolated", help="Add nodes that only the table names, without edges.")]
EdgeModel = Annotated[
    Literal["geodesic", "fermi_dirac"] | None,
    _option("--edges", "How the probability of an edge falls with distance (geodesic)."),
]
Weight = Annotated[float | None, _option("--weight", "How often the likelihood counts every pair of nodes (2).")]


def _settings(context: typer.Context, kind: Literal["table", "graph"] = "table") -> dict[str, Any]:
    """Settings of a model among the options of a command, those that were given."""
    from .training.config import Config, Settings
    from .training.graphs import GraphConfig

    configs: type[Settings] = Config if kind == "table" else GraphConfig
    given = {field.name: context.params.get(field.name) for field in fields(configs)}
    settings = {name: value for name, value in given.items() if value is not None}
    if (hidden := settings.pop("hidden", None)) is not None:
        try:
            settings["hidden"] = tuple(int(width) for width in hidden.split(","))
        except ValueError:
            raise CurvaeError(f"--hidden takes widths such as 200 or 400,200; got {hidden!r}") from None
    return settings


# Options of `compare` that say nothing about a graph, and those that say nothing about rows.
_OF_ROWS = ("identity", "group", "categorical", "decoder", "network", "likelihood", "batch_size", "patience")
_OF_GRAPHS = ("nodes", "features", "weighted", "isolated", "edges", "weight")
# Options of `diagnose` that say nothing about distances, a graph or a run.
_OF_VALUES = ("metric", "missing")
_OF_TABLES = (*_OF_VALUES, "label", "identity", "group", "categorical")
_OF_DATA = (*_OF_TABLES, "output", "distances", "graph")


def _refuse(context: typer.Context, when: str, names: tuple[str, ...]) -> None:
    """Raise if one of these options was given."""
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise CurvaeError(f"{options[name]} has no meaning {when}; leave it out")


@contextmanager
def _voice(quiet: bool) -> Iterator[Any]:
    """Messages and progress bars on the error stream, so that results alone are on the output."""
    from .runs.folder import Voice

    if quiet:
        yield Voice()
        return
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
        yield Voice(
            say=lambda text: console.print(escape(one_line(text)), highlight=False, soft_wrap=True),
            warn=lambda text: console.print(
                f"[yellow]warning:[/] {escape(one_line(text))}", highlight=False, soft_wrap=True
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
def fit(
    context: typer.Context,
    data: Data,
    output: Output = None,
    label: Label = None,
    identity: Identity = None,
    group: Group = None,
    categorical: Categorical = None,
    missing: Missing = "error",
    dim: Dim = None,
    curvature: Curvature = None,
    learn_curvature: LearnCurvature = None,
    posterior: Posterior = None,
    diagonal: Diagonal = None,
    prior_scale: PriorScale = None,
    learn_prior_scale: LearnPriorScale = None,
    decoder: Decoder = None,
    network: Network = None,
    hidden: Hidden = None,
    likelihood: Likelihood = None,
    beta: Beta = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    validation: Validation = None,
    patience: Patience = None,
    tf32: Tf32 = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", help="Trainings, to see how stable the map is (1).", show_default=False)
    ] = None,
    resume: Resume = False,
    force: Force = False,
    seed: Seed = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model on data; writes a run folder with the map, the model and a report."""
    from .runs import FitRequest, fit_run
    from .runs.folder import Source
    from .runs.training import comparable
    from .training.device import choose_device

    settings = _settings(context)
    source = Source(data, label, identity, group, tuple(categorical or ()), missing)
    request = FitRequest(source, settings, output, repeats, resume, force, choose_device(device))
    with _voice(quiet or as_json) as voice:
        result = fit_run(request, voice)
    following = result.source.command("compare", settings=comparable(result.settings))
    _tell(
        quiet,
        as_json,
        {"run": str(result.folder), **result.summary},
        f"report: {result.folder / 'report.html'}",
        f"embedding: {result.folder / 'embedding.csv'}",
        f"next: {following}    is curvature worth it for these data?",
    )


@app.command(epilog="Example: curvae graph friends.csv --nodes people.csv --label team")
def graph(
    context: typer.Context,
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
    dim: Dim = None,
    curvature: Curvature = None,
    learn_curvature: LearnCurvature = None,
    posterior: Annotated[
        Literal["riemannian", "wrapped"] | None, _option("--posterior", "Law of posterior and prior (wrapped).")
    ] = None,
    diagonal: Diagonal = None,
    prior_scale: PriorScale = None,
    learn_prior_scale: LearnPriorScale = None,
    hidden: Annotated[
        str | None, _option("--hidden", "Widths of the graph convolutions, such as 32 or 64,32 (32).")
    ] = None,
    edges: EdgeModel = None,
    weight: Weight = None,
    beta: Beta = None,
    epochs: Annotated[int | None, _option("--epochs", "Steps over the whole graph (800).", panel="Training")] = None,
    learning_rate: Annotated[
        float | None, _option("--learning-rate", "Of Adam (0.01).", "--lr", panel="Training")
    ] = None,
    tf32: Tf32 = None,
    splits: Annotated[
        int | None,
        typer.Option("--splits", min=0, help="How often to hide edges and find them again (5).", show_default=False),
    ] = None,
    resume: Resume = False,
    force: Force = False,
    seed: Seed = None,
    device: Device = "auto",
    jobs: Jobs = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model on a graph; writes a run folder with the map, the model and a report."""
    from .runs import GraphRequest, graph_run
    from .runs.folder import GraphSource
    from .training.device import choose_device

    source = GraphSource(data, nodes, label, tuple(features or ()), weighted, isolated, missing)
    request = GraphRequest(
        source, _settings(context, "graph"), output, splits, resume, force, choose_device(device), jobs
    )
    with _voice(quiet or as_json) as voice:
        result = graph_run(request, voice)
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
            run, data, output, missing=missing, nodes=nodes, force=force, device=choose_device(device), voice=voice
        )
    following = shlex.join(["curvae", "evaluate", str(run), data, *(("--missing", missing) if missing else ())])
    _tell(quiet, as_json, {"embedding": str(path)}, f"embedding: {path}", f"next: {following}")


@app.command(epilog="Example: curvae sample runs/cells-1 -n 100 -o samples.csv")
def sample(
    run: Run,
    count: Annotated[int, typer.Option("-n", "--count", help="How many rows, or graphs, to draw.")] = 100,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="CSV file, or .npy for images.", show_default=False)
    ] = None,
    force: Force = False,
    seed: Seed = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draw new rows, in original units, or new graphs from the model of a run."""
    from .runs import sample_run
    from .training.device import choose_device
    from .training.storage import kind_of

    paths = sample_run(run, count, output, seed=seed or 0, force=force, device=choose_device(device))
    names = [str(path) for path in paths]
    following = shlex.join(["curvae", "embed", str(run), names[0]])
    if kind_of(run) == "graph":
        following = shlex.join(["curvae", "view", str(run)])
    _tell(quiet, as_json, {"samples": names}, *(f"samples: {name}" for name in names), f"next: {following}")


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
            run, data, samples, seed=seed or 0, missing=missing, device=choose_device(device), voice=voice
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
    missing: Missing = "error",
    dim: Dim = None,
    posterior: Posterior = None,
    diagonal: Diagonal = None,
    prior_scale: PriorScale = None,
    decoder: Decoder = None,
    network: Network = None,
    hidden: Hidden = None,
    likelihood: Likelihood = None,
    edges: EdgeModel = None,
    weight: Weight = None,
    beta: Beta = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    patience: Patience = None,
    tf32: Tf32 = None,
    device: Device = "auto",
    jobs: Jobs = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="Train on a Dask cluster.", show_default=False),
    ] = None,
    resume: Resume = False,
    force: Force = False,
    seed: Seed = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Is a curved latent space better for these data? Answers with a test on rows, or edges, kept apart."""
    from .runs import CompareRequest, compare_run
    from .runs.folder import GraphSource, Source

    try:
        values = None if curvatures is None else [float(value) for value in curvatures.split(",")]
    except ValueError:
        raise CurvaeError(f"--curvatures takes numbers such as 0.3,1; got {curvatures!r}") from None
    _refuse(context, "with --graph" if graph else "without --graph", _OF_ROWS if graph else _OF_GRAPHS)
    source: Source | GraphSource
    if graph:
        source = GraphSource(data, nodes, label, tuple(features or ()), weighted, isolated, missing)
    else:
        source = Source(data, label, identity, group, tuple(categorical or ()), missing)
    settings = _settings(context, "graph" if graph else "table")
    request = CompareRequest(source, settings, values, repeats, output, resume, force, jobs, device, scheduler)
    with _voice(quiet or as_json) as voice:
        result = compare_run(request, voice)
    folder, found = result.folder, result.comparison
    chosen = {**result.settings, "curvature": float(found.best if found.outcome == "hyperbolic" else 0)}
    _tell(
        quiet,
        as_json,
        {"folder": str(folder), **found.to_json()},
        f"report: {folder / 'report.html'}",
        f"next: {result.source.command('graph' if graph else 'fit', settings=chosen)}",
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
    missing: Missing = "error",
    force: Force = False,
    seed: Seed = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Is there a hierarchy in data? Of a run: how well does its map recover a known tree?"""
    from .runs import DiagnoseRequest, diagnose_data, export_tree, recover_run
    from .runs.diagnosing import figures, is_run, recovered
    from .runs.folder import Source

    if tree is not None or newick is not None or is_run(data):
        if tree is None and newick is None:
            raise CurvaeError(f"{data} is a run; compare it with --tree FILE, or write its tree with --newick FILE")
        _refuse(context, "with a run", _OF_DATA)
        result: dict[str, Any] = {}
        lines = []
        with _voice(quiet or as_json) as voice:
            if tree is not None:
                match, found = recover_run(Path(data), tree, seed=seed or 0, voice=voice)
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
    source = Source(data, label, identity, group, tuple(categorical or ()), missing)
    request = DiagnoseRequest(source, metric, distances, graph, output, force, seed or 0)
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
    try:
        _require_working_directory()
        code = app(prog_name="curvae", standalone_mode=False) or 0
    except CurvaeError as error:
        return _fail(str(error))
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
