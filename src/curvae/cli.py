"""The commands: options in, one call of `curvae.runs`, figures out."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import options, summaries
from .console import Answer, command, program, run_program
from .errors import CurvaeError
from .flags import setting_options, shell_command
from .settings import GraphSettings, RowSettings, described

if TYPE_CHECKING:
    from .runs.folder import Voice

__all__ = ["app", "main"]

_ROWS = (options.LABEL, options.ID, options.GROUP, options.CATEGORICAL, options.COVARIATE, options.EXPOSURE)
_GRAPH = (options.NODES, options.FEATURES, options.WEIGHTED, options.ISOLATED)
_FILE = click.Path(path_type=Path)


@command(
    options.output("Folder for the report (demo).", default=Path("demo")),
    options.SEED,
    options.switch("--quick", text="Three epochs per training, to try the installation."),
    example="demo -o demo",
)
def demo(voice: Voice, output: Path, seed: int, quick: bool) -> Answer:
    """Find a hierarchy in built-in data, and none in flat data; writes a report."""
    from .runs import demonstrate

    page, found = demonstrate(output, seed, quick, voice)
    return Answer(
        {"report": str(page), **{name: result.to_json() for name, result in found.items()}},
        [f"report: {page}"],
        shell_command(["fit", "branching-diffusion"], {"prior_scale": 1.7}),
    )


@command(
    options.DATA,
    options.RUN_FOLDER,
    *_ROWS,
    options.MISSING,
    options.option("--repeats", text="Trainings, to see how stable the map is (1).", type=int),
    options.RESUME,
    options.FORCE,
    options.DEVICE,
    *setting_options(RowSettings),
    example="fit cells.csv --label type --id barcode -o runs/cells",
)
def fit(voice: Voice, data: str, **asked: Any) -> Answer:
    """Train a model on data; writes a run folder with the map, the model and a report."""
    from .runs import FitRequest, fit_run
    from .runs.folder import Source
    from .runs.training import comparable

    source, asked = _split(Source, data, asked)
    result = fit_run(FitRequest(source, **asked), voice)
    following = shell_command(["compare", result.source.path], result.source.options | comparable(result.settings))
    return _trained(result, f"{following}    is curvature worth it for these data?")


@command(
    options.EDGES,
    options.RUN_FOLDER,
    options.LABEL,
    *_GRAPH,
    options.missing("Missing features of nodes: error, or fill in the mean (error).", "error", "mean"),
    options.option("--splits", text="How often to hide edges and find them again (5).", type=click.IntRange(min=0)),
    options.RESUME,
    options.FORCE,
    options.DEVICE,
    options.JOBS,
    *setting_options(GraphSettings),
    example="graph friends.csv --nodes people.csv --label team",
)
def graph(voice: Voice, data: str, **asked: Any) -> Answer:
    """Train a model on a graph; writes a run folder with the map, the model and a report."""
    from .runs import GraphRequest, graph_run
    from .runs.folder import GraphSource

    source, asked = _split(GraphSource, data, asked)
    result = graph_run(GraphRequest(source, **asked), voice)
    return _trained(result, result.following)


def _split(kind: Any, data: str, asked: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The data with how to read them, and what else was asked for."""
    reading = {field.name for field in fields(kind)}
    source = kind(data, **{name: value for name, value in asked.items() if name in reading})
    return source, {name: value for name, value in asked.items() if name not in reading}


def _trained(result: Any, following: str) -> Answer:
    files = [f"report: {result.folder / 'report.html'}", f"embedding: {result.folder / 'embedding.csv'}"]
    return Answer({"run": str(result.folder), **result.summary}, files, following)


@command(
    options.RUN,
    options.DATA,
    options.output("CSV file (<name>-embedding.csv)."),
    options.MISSING_AS_RUN,
    options.NODES,
    options.FORCE,
    options.DEVICE,
    example="embed runs/cells-1 new-cells.csv -o new.csv",
)
def embed(voice: Voice, run: Path, data: str, **asked: Any) -> Answer:
    """Place new rows, or the nodes of a graph with other edges, on the map of a run; columns are matched by name."""
    from .runs import embed_run

    path = embed_run(run, data, voice=voice, **asked)
    following = shell_command(["evaluate", str(run), data], {"missing": asked["missing"]})
    if summaries.covariate_values(run):  # new data need them to be evaluated, but not to be embedded
        following = shell_command(["view", str(run)])
    return Answer({"embedding": str(path)}, [f"embedding: {path}"], following)


@command(
    options.RUN,
    options.DATA,
    options.output("CSV file, or .npy for images (<name>-imputed.csv)."),
    options.option("--samples", text="Importance samples per row (1000).", type=int, default=1000),
    options.FORCE,
    options.SEED,
    options.DEVICE,
    example="impute runs/cells-1 cells.csv -o filled.csv",
)
def impute(voice: Voice, run: Path, data: str, **asked: Any) -> Answer:
    """Fill in missing values with what the model of a run, trained with --missing model, expects there."""
    from .runs import impute_run

    found = impute_run(run, data, voice=voice, **asked)
    return Answer(
        {"imputed": str(found.path), "values": found.values, "rows": found.rows},
        [f"imputed: {found.path}, {found.values:,} values in {found.rows:,} rows"],
        found.following,
    )


@command(
    options.RUN,
    options.option("-n", "--count", text="How many rows, or graphs, to draw (100).", type=int, default=100),
    options.output("CSV file, or .npy for images (<run>-samples.csv)."),
    options.option(
        "--covariate",
        "covariates",
        text="Value of a covariate for all rows; repeatable.",
        metavar="COLUMN=VALUE",
        multiple=True,
    ),
    options.FORCE,
    options.SEED,
    options.DEVICE,
    example="sample runs/cells-1 -n 100 -o samples.csv",
)
def sample(run: Path, count: int, covariates: tuple[str, ...], **asked: Any) -> Answer:
    """Draw new rows, in original units, or new graphs from the model of a run.

    From a model of counts with an exposure, rows of exposure 1.
    """
    from .runs import sample_run
    from .training.storage import kind_of

    if wrong := [entry for entry in covariates if "=" not in entry]:
        raise CurvaeError(f"--covariate takes COLUMN=VALUE, such as batch=a; got {wrong[0]!r}")
    values = dict(entry.partition("=")[::2] for entry in covariates)
    paths = [str(path) for path in sample_run(run, count, covariates=values, **asked)]
    following = ["view", str(run)] if kind_of(run) == "graph" else ["embed", str(run), paths[0]]
    return Answer({"samples": paths}, [f"samples: {path}" for path in paths], shell_command(following))


@command(
    options.RUN,
    options.DATA,
    options.option("--samples", text="Importance samples per row (5000).", type=int),
    options.MISSING_AS_RUN,
    options.SEED,
    options.DEVICE,
    example="evaluate runs/cells-1 held-out.csv --samples 5000",
)
def evaluate(voice: Voice, run: Path, data: str, samples: int | None, **asked: Any) -> Answer:
    """Marginal log-likelihood of data under the model of a run; of a graph, how well its edges are found."""
    from .runs import evaluate_run

    found = evaluate_run(run, data, samples, voice=voice, **asked)
    rows = "samples" in found
    lines = summaries.likelihood_lines(found) if rows else summaries.link_lines(found)
    covariates = {"covariates": summaries.covariate_values(run)}
    return Answer(found, lines, shell_command(["sample", str(run), "-n", "100" if rows else "10"], covariates))


# What a comparison chooses itself.
_CHOSEN = {
    name for kind in (RowSettings, GraphSettings) for name, known in described(kind).items() if not known.compared
}


@command(
    options.DATA,
    options.output("Folder (runs/<name>-comparison-<n>)."),
    options.option("--curvatures", text="Values of c > 0 to choose from (0.3,1)."),
    options.option("--repeats", text="Seeds and splits (5).", type=int),
    options.switch("--graph", text="The data are the edges of a graph."),
    *_GRAPH,
    *_ROWS,
    options.MISSING,
    options.DEVICES,
    options.JOBS,
    options.option("--scheduler", text="Train on a Dask cluster.", metavar="ADDRESS"),
    options.RESUME,
    options.FORCE,
    *setting_options(RowSettings, GraphSettings, without=_CHOSEN),
    example="compare cells.csv --label type --group donor --repeats 10",
)
def compare(voice: Voice, data: str, graph: bool, curvatures: str | None, **asked: Any) -> Answer:
    """Is a curved latent space better for these data? Answers with a test on rows, or edges, kept apart."""
    from .runs import CompareRequest, compare_run
    from .runs.folder import GraphSource, Source

    try:
        values = None if curvatures is None else [float(value) for value in curvatures.split(",")]
    except ValueError:
        raise CurvaeError(f"--curvatures takes numbers such as 0.3,1; got {curvatures!r}") from None
    kinds: list[Any] = [Source, GraphSource]
    rows, graphs = (
        {*described(settings), *(field.name for field in fields(kind))}
        for settings, kind in zip((RowSettings, GraphSettings), kinds, strict=True)
    )
    if graph:
        options.refuse("with --graph", rows - graphs)
    else:
        options.refuse("without --graph", graphs - rows)
    source, more = _split(kinds[graph], data, asked)
    more = {name: value for name, value in more.items() if name not in rows | graphs}
    result = compare_run(CompareRequest(source, curvatures=values, **more), voice)
    folder, found = result.folder, result.comparison
    chosen = {**result.settings, "curvature": float(found.best if found.outcome == "hyperbolic" else 0)}
    following = shell_command(["graph" if graph else "fit", result.source.path], result.source.options | chosen)
    return Answer({"folder": str(folder), **found.to_json()}, [f"report: {folder / 'report.html'}"], following)


@command(
    options.Argument("what", "list, all, or an experiment that list names."),
    options.option("--out", text="Folder for results (results/paper, quick: runs/paper-quick).", type=_FILE),
    options.switch("--quick", text="A few minutes on two cores, to see that it works."),
    options.switch("--shards", text="List the shards with their state, and do nothing."),
    options.option("--only", text="Compute this shard, or several: a,b.", metavar="SHARD", multiple=True),
    options.switch("--force", text="Compute shards that are done again."),
    options.SEED,
    options.DEVICES,
    example="paper table1 --quick",
)
def paper(
    voice: Voice, what: str, out: Path | None, quick: bool, seed: int, only: tuple[str, ...], **asked: Any
) -> Answer:
    """The tables and figures of the paper, again; a run that was interrupted goes on where it was."""
    from .paper.command import paper_list, paper_run

    if what == "list":
        return paper_list(out, quick, seed)
    named = [name for names in only for name in names.split(",")]
    return paper_run(what, out, quick, seed, only=named, voice=voice, **asked)


@command(
    options.RUN,
    options.output("Page (.html) or picture (.svg, .png, .pdf) (<run>-map.html)."),
    options.option("--show", text="Column to put in; repeatable.", metavar="COLUMN", multiple=True),
    options.option("--label", text="Column to colour by (the run's label)."),
    options.switch("--anonymous", text="Leave out ids and the order of the rows."),
    options.switch("--thumbnails", text="Put in the images of the rows, small."),
    options.option("--data", text="Where columns or images are.", metavar="FILE"),
    options.option(
        "--names",
        text="In a picture of a graph, name so many nodes with the most edges (0).",
        type=click.IntRange(min=0),
        default=0,
    ),
    options.FORCE,
    example="view runs/cells-1 --data cells.csv --show age --show donor",
)
def view(voice: Voice, run: Path, **asked: Any) -> Answer:
    """The map of a run as one page to move about in, or as a picture."""
    from .runs import ViewRequest, view_run

    path, shown = view_run(ViewRequest(run, **asked), voice)
    picture = ["-o", f"{run.resolve().name}-map.pdf"] if path.suffix == ".html" else []
    following = shell_command(["view", str(run), *picture, *(["--anonymous"] if asked["anonymous"] else [])])
    what = "the same as a picture" if picture else "the same to move about in"
    return Answer({"map": str(path), "inside": shown.inside}, [f"map: {path}"], f"{following}    {what}")


# Options of `diagnose` that have no meaning for distances, a graph or a run.
_OF_VALUES = ("metric", "missing", "covariates")
_OF_TABLES = (*_OF_VALUES, "label", "id", "group", "categorical")
_OF_DATA = (*_OF_TABLES, "output", "distances", "graph")


@command(
    options.Argument("data", "Data as for curvae fit; a graph; or a run folder."),
    options.output("Report to write (.html)."),
    options.option(
        "--metric",
        text="Distance between rows: euclidean, cosine, correlation or manhattan (euclidean).",
        type=click.Choice(["euclidean", "cosine", "correlation", "manhattan"]),
        metavar="NAME",
        default="euclidean",
    ),
    options.switch("--distances", text="The data are a matrix of distances."),
    options.switch("--graph", text="The data are a graph."),
    options.option(
        "--tree",
        text="Of a run: compare with a tree (Newick, columns child and parent, or branching-diffusion).",
        type=_FILE,
    ),
    options.option("--newick", text="Of a run: write the tree read off its map to this file.", type=_FILE),
    options.LABEL,
    options.ID,
    options.GROUP,
    options.CATEGORICAL,
    options.option(
        "--covariate",
        "covariates",
        text="Column of the circumstances, such as the batch, left out of the distances; repeatable.",
        multiple=True,
    ),
    options.missing("Rows that lack values: error, drop, or fill in the mean (error).", "error", "drop", "mean"),
    options.FORCE,
    options.SEED,
    example="diagnose cells.csv --label type --id barcode -o hierarchy.html",
)
def diagnose(voice: Voice, data: str, tree: Path | None, newick: Path | None, **asked: Any) -> Answer:
    """Is there a hierarchy in data? Of a run: how well does its map recover a known tree?"""
    from .runs import DiagnoseRequest, diagnose_data
    from .runs.diagnosing import figures, is_run
    from .runs.folder import Source

    if tree is not None or newick is not None or is_run(data):
        options.refuse("with a run", _OF_DATA)
        return _recovered(voice, data, tree, newick, asked["seed"], asked["force"])
    if asked["graph"]:
        options.refuse("with --graph", (*_OF_TABLES, "distances"))
    if asked["distances"]:
        options.refuse("with --distances", _OF_VALUES)
    source, asked = _split(Source, data, asked)
    request = DiagnoseRequest(source, **asked)
    found = diagnose_data(request, voice)
    report = None if request.output is None else str(request.output)
    lines = [found.sentence, *figures(found), *([] if report is None else [f"report: {report}"])]
    return Answer({"report": report, **found.to_json()}, lines, request.following(found))


def _recovered(voice: Voice, data: str, tree: Path | None, newick: Path | None, seed: int, force: bool) -> Answer:
    """How well the map of a run recovers a tree, or the tree of the map in a file, or both."""
    from .runs import export_tree, recover_run
    from .runs.diagnosing import recovered

    if tree is None and newick is None:
        raise CurvaeError(f"{data} is a run; compare it with --tree FILE, or write its tree with --newick FILE")
    result: dict[str, Any] = {}
    lines = []
    if tree is not None:
        match, found = recover_run(Path(data), tree, seed=seed, voice=voice)
        result, lines = {"match": match.to_json(), **found.to_json()}, recovered(match, found)
    if newick is not None:
        result |= export_tree(Path(data), newick, seed=seed, force=force)
        lines.append(f"newick: {newick}")
    following = ["diagnose", data, "--newick", "tree.nwk"] if newick is None else ["view", data]
    return Answer(result, lines, shell_command(following))


@command(options.switch("--bibtex", text="As BibTeX."), example="cite --bibtex")
def cite(bibtex: bool) -> Answer:
    """How to cite Curvae and the paper it implements."""
    from . import report

    text = report.bibtex() if bibtex else report.citation()
    return Answer({"bibtex" if bibtex else "citation": text}, text.splitlines())


app = program(
    *(demo, fit, graph, embed, impute, sample, evaluate, compare, paper, view, diagnose, cite),
    text="Learn hierarchies with variational auto-encoders in curved latent spaces.",
)


def main() -> None:
    """Entry point of the `curvae` program."""
    run_program(app)
