"""The commands: options in, one call of `curvae.runs`, figures out."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import __version__
from ..errors import CurvaeError
from ..settings import GraphSettings, RowSettings, described
from .console import CommandResult, LazyModule, command, program, run_program
from .options import DATA, FILE, option, refuse, setting_options

__all__ = ["app", "differential", "explain", "export", "likelihood_lines", "lineage", "link_lines", "main", "map"]


# Commands that take a trained model further: into other programs, and back to the columns it was trained on.

if TYPE_CHECKING:
    from .. import runs
    from ..runs import Reporter
else:
    runs = LazyModule("curvae.runs")


@command(
    "run",
    option("-o", "--output", type=FILE, help="Folder (<run>-export)."),
    option("--onnx", is_flag=True, help="ONNX files, which onnxruntime and many other programs run."),
    option("--torch", is_flag=True, help="Programs of torch.export, which need PyTorch alone."),
    "force",
    example="export runs/cells-1 --onnx",
)
def export(reporter: Reporter, run: Path, **asked: Any) -> CommandResult:
    """Write encoder and decoder of a run for other programs, from and to values in original units."""
    paths = [str(path) for path in runs.export_run(run, reporter=reporter, **asked)]
    return CommandResult({"files": paths}, [f"wrote: {path}" for path in paths], runs.Step("view", (str(run),)))


@command(
    "run",
    option("--from", "start", help="Row, by its id, or label to start from (the centre of the map).", metavar="ID"),
    option("--to", "end", help="Row, by its id, or label to go to (each label in turn).", metavar="ID"),
    option("-n", "--count", help="How many columns to show (10).", type=click.IntRange(min=1), default=10),
    option("-o", "--output", type=FILE, help="CSV file for the values along the way."),
    "force",
    "seed",
    "device",
    example="explain runs/cells-1 --from cell17 --to cell4",
)
def explain(run: Path, **asked: Any) -> CommandResult:
    """Which columns change on the way across the map of a run, from a row or label to another?"""
    return CommandResult(*runs.explain_run(run, **asked), runs.Step("view", (str(run),)))


@command(
    "run",
    option("--root", help="Row, by its id, or group to start from (the group of the lowest radius).", metavar="ID"),
    option("--groups", help="Column with the groups to join (the labels of the run).", metavar="COLUMN"),
    option(
        "--data", help="Table or cell file that has this column, or the data of the run.", metavar="FILE", type=DATA
    ),
    option("--gene", "genes", help="Column to follow along the branches; repeatable.", multiple=True, metavar="NAME"),
    option("-n", "--count", help="How many columns to follow (10).", type=click.IntRange(min=1), default=10),
    option("--draws", help="Draws of the posterior of each row (25).", type=click.IntRange(min=1), default=25),
    option("--repeats", help="Trainings to pool, that of the run and others (1); needs --data.", type=int, default=1),
    option("-o", "--output", type=FILE, help="Folder (<run>-lineage)."),
    "force",
    "seed",
    "device",
    example="lineage runs/cells-1 --root stem --groups type --data c.h5ad",
)
def lineage(reporter: Reporter, run: Path, **asked: Any) -> CommandResult:
    """Join groups of rows to a tree, and tell how far along it every row lies, how sure that is, and what changes."""
    found, lines = runs.lineage_run(run, reporter=reporter, **asked)
    tree = {"lineage": Path(found["files"]["table"]).parent}
    return CommandResult(found, lines, runs.Step("view", (str(run),), tree, "the tree on the interactive map"))


@command(
    "run",
    click.Argument(["data"], metavar="CELLS", help="Cells of other batches (.h5ad).", type=DATA),
    option("-o", "--output", type=FILE, help="Run folder (runs/<name>-mapped)."),
    option("--epochs", type=click.IntRange(min=1), help="Passes over the cells (as many as their number suits)."),
    option(
        "-k",
        "--neighbours",
        "k",
        type=click.IntRange(min=1),
        help="Cells that give another its label (15).",
        default=15,
    ),
    "layer",
    "memory",
    "cache",
    "force",
    "device",
    example="map runs/cells-1 new-cells.h5ad -o runs/new",
)
def map(reporter: Reporter, run: Path, data: str, **asked: Any) -> CommandResult:  # noqa: A001 - the name of the command
    """Map cells of new batches onto those of a run, which stay where they are; transfers labels, writes a report."""
    return CommandResult(*runs.map_run(run, data, reporter=reporter, **asked))


@command(
    "run",
    "data",
    option("--groupby", help="Column with the groups (the labels of the run).", metavar="COLUMN"),
    option("--group1", help="Group to compare; repeatable (each).", metavar="GROUP", multiple=True),
    option("--group2", help="Group to compare it with (all other rows).", metavar="GROUP"),
    option("--delta", help="Least log2 fold change that counts (0.25).", type=float, default=0.25),
    option("--batch-correction", is_flag=True, help="Compare rows as if all were of the same batches."),
    option("-o", "--output", type=FILE, help="Folder (<run>-differential)."),
    "layer",
    "memory",
    "cache",
    "force",
    "device",
    example="differential runs/cells-1 cells.h5ad --groupby type",
)
def differential(reporter: Reporter, run: Path, data: str, **asked: Any) -> CommandResult:
    """Find columns of counts that differ between groups of rows, with the probability that they do; writes a report."""
    return CommandResult(*runs.differential_run(run, data, reporter=reporter, **asked), runs.Step("view", (str(run),)))


# Results of commands as lines for people.

_ENOUGH_SAMPLES = 10_000  # importance samples a row from which on more would hardly help
_COMPARED = 50  # rows from which on neighbours are compared with those of PCA


def likelihood_lines(found: dict[str, Any]) -> list[str]:
    """Describe what `evaluate_run` measured on rows: two or three lines for each part, and how faithful the map is."""
    from ..data.files import count, decimal, quoted

    lines, rows = [], sum(part["rows"] for part in found["parts"].values())
    for name, part in found["parts"].items():
        margin = "" if math.isnan(part["interval"]) else f" ± {part['interval']:.2f}"
        lines += [
            f"{name}, {part['rows']:,} rows: log-likelihood {decimal(part['log_likelihood'])}{margin} nats a row; "
            f"in original units {decimal(part['log_likelihood_original_units'])}",
            f"  effective sample size {part['median_effective_sample_size']:.0f} of {found['samples']}, "
            f"standard error {part['median_standard_error']:.2g} (medians)",
        ]
        if part["rows_with_few_effective_samples"]:
            few = part["rows_with_few_effective_samples"]
            more = " or raise --samples" if found["samples"] < _ENOUGH_SAMPLES else ""
            fix = more.replace(" or", ";") if found["refine"] else f"; give --refine 50{more}"
            lines.append(
                f"  {few} row{' rests' if few == 1 else 's rest'} on fewer than 10 effective samples: the likelihood "
                f"is rough, and probably too low{fix}"
            )
    if "scores" in found:
        named = quoted(found["most_unusual"])
        low = f"{found['rows_below_1_percent']:,} of {rows:,} rows below the 1st percentile"
        lines.append(
            f"scores: {found['scores']}; {low} of {found['training_rows']:,} training rows"
            + (f", the most unusual first: {named}" if named else "")
        )
        if "train" in found["parts"]:
            lines.append("  the model has seen the training rows, and unusual ones among them may hide")
    if rows < _COMPARED:
        lines.append(f"{count(rows, 'row')} are too few to compare neighbours on the map with PCA.")
    elif found["faithfulness"] is not None:
        lines.append(found["faithfulness"]["verdict"])
    return lines


def link_lines(found: dict[str, Any]) -> list[str]:
    """Describe what `evaluate_run` measured on a graph: how well edges are found, trained ones and new ones."""
    kinds = {"train": "edges that it was trained on", "new": "new edges"}
    lines: list[str] = []
    for name, part in found["parts"].items():
        if part["remark"] is not None:
            lines.insert(0, f"{kinds[name]} are found {part['remark']}")
        lines.append(f"{part['edges']:,} {kinds[name]}: {_found(part)}")
        lines += [f"  {rule}, without a model: {_found(figures)}" for rule, figures in part["baselines"].items()]
    faithful = [] if found["faithfulness"] is None else [found["faithfulness"]["verdict"]]
    return [*lines, f"mean average precision of neighbourhoods {found['neighbourhood_map']:.3f}", *faithful]


def _found(figures: dict[str, Any]) -> str:
    matched = "" if figures["auc_matched"] is None else f" ({100 * figures['auc_matched']:.1f} % at equal degrees)"
    way = "" if figures.get("direction") is None else f", direction {100 * figures['direction']:.1f} %"
    return f"AUC {100 * figures['auc']:.1f} %{matched}, average precision {100 * figures['ap']:.1f} %{way}"


_TABLE = ("label", "id", "group", "categorical")
_CELLS = ("batch_key", "layer", "genes")
_ROWS = (*_TABLE, "covariates", "exposure", *_CELLS)
_EDGES = ("source_column", "target_column", "header")
_GRAPH = ("nodes", "features", "features_file", "weighted", "source_column", "target_column")


@command(
    option("-o", "--output", type=FILE, default=Path("demo"), help="Folder for the report (demo)."),
    "seed",
    option("--quick", is_flag=True, help="Three epochs per training, to try the installation."),
    example="demo -o demo",
)
def demo(reporter: Reporter, output: Path, seed: int, quick: bool) -> CommandResult:
    """Find a hierarchy in built-in data, and none in flat data; writes a report."""
    page, found = runs.demonstrate(output, seed, quick, reporter)
    return CommandResult(
        {"report": str(page), **{name: result.to_json() for name, result in found.items()}},
        [f"report: {page}"],
        runs.Step("fit", ("branching-diffusion",), {"prior_scale": 1.7}),
    )


@command(
    "data",
    "folder",
    *_ROWS,
    "missing",
    "memory",
    "cache",
    option("--repeats", help="Number of trainings, to see how stable the map is (1).", type=int),
    "root",
    "resume",
    "force",
    "device",
    option("--processes", type=int, help="Number of processes for one training: 2, 4, … 64 (1, or those of torchrun)."),
    *setting_options("fit", RowSettings),
    example="fit cells.csv --label type --id barcode -o runs/cells",
)
def fit(reporter: Reporter, data: str, **asked: Any) -> CommandResult:
    """Train a model on data; writes a run folder with the map, the model and a report."""
    return _trained(runs.Source, data, asked, reporter)


@command(
    click.Argument(
        ["data"],
        metavar="EDGES",
        help="List of edges (text or .parquet), matrix (.mtx, .npz), GraphML, phylogenetic, csphd or diseases.",
    ),
    "folder",
    "label",
    *_GRAPH,
    "categorical",
    option(
        "--splits", help="Number of random splits on which hidden edges are predicted (5).", type=click.IntRange(min=0)
    ),
    option(
        "--reconstruct",
        is_flag=True,
        help="Fit the edges as closely as possible: short for --set encoder=free --splits 0.",
    ),
    option("--links", help="Write so many of the likeliest missing edges to links.csv.", type=click.IntRange(min=1)),
    "root",
    "resume",
    "force",
    "device",
    "jobs",
    *setting_options("graph", GraphSettings),
    example="graph friends.csv --nodes people.csv --label team\n"
    "graph calls.csv --source caller --target called --links 50\n"
    "graph taxonomy.csv --reconstruct --dim 5",
)
def graph(reporter: Reporter, data: str, **asked: Any) -> CommandResult:
    """Train a model on a graph; writes a run folder with the map, the model and a report."""
    if asked.pop("reconstruct"):
        asked |= {"settings": {**asked["settings"], "encoder": "free"}, "splits": 0}
    return _trained(runs.GraphSource, data, {"repeats": asked.pop("splits"), **asked}, reporter)


def _split(kind: Any, data: str, asked: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the data with how to read them, and what else was asked for."""
    reading = {field.name for field in fields(kind)}
    source = kind(data, **{name: value for name, value in asked.items() if name in reading})
    return source, {name: value for name, value in asked.items() if name not in reading}


def _trained(kind: Any, data: str, asked: dict[str, Any], reporter: Reporter) -> CommandResult:
    source, asked = _split(kind, data, asked)
    folder, summary, written, following = runs.train_run(source, **asked, reporter=reporter)
    more = {path.stem: str(path) for path in written}
    files = {"report": folder / "report.html", "embedding": runs.embedding_path(folder), **more}
    lines = [f"{name}: {path}" for name, path in files.items()]
    return CommandResult({"run": str(folder), **summary, **more}, lines, following)


@command(
    "run",
    "data",
    option("-o", "--output", type=FILE, help="CSV or Parquet file, or of cells .h5ad (<name>-embedding.csv)."),
    "missing_as_run",
    "layer",
    "memory",
    "cache",
    "nodes",
    "features_file",
    "force",
    "device",
    example="embed runs/cells-1 new-cells.csv -o new.csv",
)
def embed(reporter: Reporter, run: Path, data: str, **asked: Any) -> CommandResult:
    """Place new rows, or the nodes of a graph with other edges, on the map of a run; columns are matched by name."""
    path, following = runs.embed_run(run, data, reporter=reporter, **asked)
    return CommandResult({"embedding": str(path)}, [f"embedding: {path}"], following)


@command(
    "run",
    "data",
    option("-o", "--output", type=FILE, help="CSV file, or .npy for images (<name>-imputed.csv)."),
    option("--samples", help="Importance samples per row (1000).", type=int, default=1000),
    "memory",
    "cache",
    "force",
    "seed",
    "device",
    example="impute runs/cells-1 cells.csv -o filled.csv",
)
def impute(reporter: Reporter, run: Path, data: str, **asked: Any) -> CommandResult:
    """Fill in missing values with what the model of a run, trained with --missing model, expects there."""
    path, values, rows, following = runs.impute_run(run, data, reporter=reporter, **asked)
    return CommandResult(
        {"imputed": str(path), "values": values, "rows": rows},
        [f"imputed: {path}, {values:,} values in {rows:,} rows"],
        following,
    )


@command(
    "run",
    option("-n", "--count", help="How many rows, or graphs, to draw (100).", type=int, default=100),
    option("-o", "--output", type=FILE, help="CSV file, or .npy for images (<run>-samples.csv)."),
    option(
        "--covariate",
        "covariates",
        help="Value of a covariate for all rows; repeatable.",
        metavar="COLUMN=VALUE",
        multiple=True,
    ),
    "force",
    "seed",
    "device",
    example="sample runs/cells-1 -n 100 -o samples.csv",
)
def sample(run: Path, count: int, covariates: tuple[str, ...], **asked: Any) -> CommandResult:
    """Draw new rows, in original units, or new graphs from the model of a run.

    From a model of counts with an exposure, rows of exposure 1.
    """
    if wrong := [entry for entry in covariates if "=" not in entry]:
        raise CurvaeError(f"`covariates` takes COLUMN=VALUE, such as batch=a; got {wrong[0]!r}")
    names = [entry.partition("=")[0] for entry in covariates]
    if twice := [name for name in names if names.count(name) > 1]:
        raise CurvaeError(f"`covariates` {twice[0]} is given {names.count(twice[0])} times; give it one value")
    asked["covariates"] = dict(entry.partition("=")[::2] for entry in covariates)
    files, following = runs.sample_run(run, count, **asked)
    paths = [str(path) for path in files]
    return CommandResult({"samples": paths}, [f"samples: {path}" for path in paths], following)


@command(
    "run",
    "data",
    option(
        "-o",
        "--output",
        type=FILE,
        help="CSV or Parquet file with the log-likelihood of every row, to find unusual ones.",
    ),
    option(
        "--training",
        help="With -o, the data that the run was trained on (the file of that name).",
        metavar="FILE",
        type=DATA,
    ),
    option("--samples", help="Importance samples per row (5000).", type=int),
    option("--refine", help="Steps that improve the posterior of each row first (0).", type=int, default=0),
    "missing_as_run",
    "layer",
    "memory",
    "cache",
    "force",
    "seed",
    "device",
    example="evaluate runs/cells-1 new-cells.csv -o scores.csv",
)
def evaluate(reporter: Reporter, run: Path, data: str, samples: int | None, **asked: Any) -> CommandResult:
    """Marginal log-likelihood of data under the model of a run; of a graph, how well its edges are found.

    The file of -o has a line for each row: the log-likelihood of its standardised columns, the standard error of that,
    and the percentage of training rows that are less likely.
    """
    if asked["output"] is None:
        refuse("without -o", ("training",))
    found, following = runs.evaluate_run(run, data, samples, reporter=reporter, **asked)
    return CommandResult(found, likelihood_lines(found) if "samples" in found else link_lines(found), following)


@command(
    "data",
    option("-o", "--output", type=FILE, help="Folder (runs/<name>-comparison-<n>)."),
    option("--curvatures", help="Values of c > 0 to choose from, or auto for a confidence set (0.3,1)."),
    option("--repeats", help="Number of repeats, each with its own seed and split (5).", type=int),
    option("--graph", is_flag=True, help="The data are the edges of a graph."),
    option("--tree", help="Known tree; also compare how well it is recovered.", type=FILE),
    *_GRAPH,
    *_ROWS,
    "missing",
    "memory_of_sample",
    "cache",
    option("--device", default="auto", help="auto, cpu or cuda (auto)."),
    "jobs",
    "resume",
    "force",
    *setting_options("compare", RowSettings, GraphSettings),
    example="compare cells.csv --label type --group donor --repeats 10",
)
def compare(reporter: Reporter, data: str, graph: bool, curvatures: str | None, **asked: Any) -> CommandResult:
    """Is a curved latent space better for these data? Answers with a test on rows, or edges, kept apart."""
    try:
        values: Any = curvatures if curvatures in (None, "auto") else [float(value) for value in curvatures.split(",")]
    except ValueError:
        raise CurvaeError(f"`curvatures` takes numbers such as 0.3,1, or auto; got {curvatures!r}") from None
    rows, graphs = (
        {*described(settings), *(field.name for field in fields(kind))}
        for settings, kind in ((RowSettings, runs.Source), (GraphSettings, runs.GraphSource))
    )
    refuse("with --graph" if graph else "without --graph", {*(rows - graphs), "tree"} if graph else graphs - rows)
    source, more = _split(runs.GraphSource if graph else runs.Source, data, asked)
    more = {name: value for name, value in more.items() if name not in rows | graphs}
    folder, found, following = runs.compare_run(source, curvatures=values, **more, reporter=reporter)
    return CommandResult({"folder": str(folder), **found.to_json()}, [f"report: {folder / 'report.html'}"], following)


@command(
    click.Argument(["what"], help="Name of an experiment, all, or list to show the names."),
    option("--out", help="Folder for results (results/paper, quick: runs/paper-quick).", type=FILE),
    option("--quick", is_flag=True, help="Quick run to try it out: a few minutes on two cores."),
    option("--shards", is_flag=True, help="Only list the shards and their state."),
    option("--only", help="Compute only these shards, separated by commas.", metavar="SHARD", multiple=True),
    option("--force", is_flag=True, help="Compute finished shards again."),
    "seed",
    option("--device", default="auto", help="auto, cpu or cuda (auto)."),
    example="paper table1 --quick",
)
def paper(reporter: Reporter, what: str, only: tuple[str, ...], **asked: Any) -> CommandResult:
    """Reproduce the tables and figures of the paper; the same command continues an interrupted run."""
    from ..paper import reproduce

    named = [name for names in only for name in names.split(",")]
    return CommandResult(*reproduce(what, only=named, reporter=reporter, **asked))


@command(
    "run",
    option("-o", "--output", type=FILE, help="Page (.html) or picture (.svg, .png, .pdf) (<run>-map.html)."),
    option("--rows", help="Table of new rows to mark on the map.", metavar="FILE", type=DATA),
    "missing_as_run",
    option("--show", help="Column to include; repeatable.", metavar="COLUMN", multiple=True),
    option("--label", help="Column to colour by (the run's label)."),
    option("--anonymous", is_flag=True, help="Leave out ids and row order."),
    option("--thumbnails", is_flag=True, help="Include the images as thumbnails."),
    option("--data", help="File that holds the columns or images.", metavar="FILE"),
    option(
        "--explain",
        is_flag=True,
        help="Include the expected values of the model: click two points to see what changes between them.",
    ),
    option(
        "--names",
        help="Number of nodes to name in a picture of a graph, those with the most edges (0).",
        type=click.IntRange(min=0),
        default=0,
    ),
    option("--lineage", help="Folder of curvae lineage: draw its tree, colour by pseudotime and branch.", type=FILE),
    option("--factor", help="Factor of a product to show, such as h1 or e2 (the first hyperbolic one)."),
    option("--find", help="Id of a row that a sample must include; repeatable.", metavar="ID", multiple=True),
    "force",
    example="view runs/cells-1 --rows new-cells.csv -o new.html",
)
def view(reporter: Reporter, run: Path, **asked: Any) -> CommandResult:
    """Write the map of a run as an interactive map (one HTML page) or as a picture."""
    if asked["rows"] is None:
        refuse("without --rows", ("missing",))
    path, shown = runs.view_run(run, **asked, reporter=reporter)
    following = None
    if path.suffix == ".html":
        same = {
            "output": f"{run.resolve().name}-map.pdf",
            "anonymous": asked["anonymous"] or None,
            **{name: asked[name] for name in ("rows", "missing", "label", "factor", "lineage")},
            "data": asked["data"] if asked["label"] else None,
        }
        following = runs.Step("view", (str(run),), same, "the map as a picture")
    return CommandResult({"map": str(path), "inside": shown.inside}, [f"map: {path}"], following)


# Options of `diagnose` that have no meaning for distances, a graph or a run.
_OF_VALUES = ("metric", "missing", "covariates", "memory", "cache", *_CELLS)
_OF_TABLES = (*_OF_VALUES, "label", "id", "group", "categorical")
_OF_DATA = (*_OF_TABLES, "output", "distances", "graph", *_EDGES)


@command(
    click.Argument(["data"], help="Data as for curvae fit; a graph; or a run folder."),
    option("-o", "--output", type=FILE, help="Report to write (.html)."),
    option(
        "--metric",
        help="Distance between rows: euclidean, cosine, correlation or manhattan (euclidean).",
        choices=("euclidean", "cosine", "correlation", "manhattan"),
        default="euclidean",
    ),
    option("--distances", is_flag=True, help="The data are a matrix of distances."),
    option("--graph", is_flag=True, help="The data are a graph."),
    *_EDGES,
    option(
        "--tree",
        help="For a run: known tree (Newick, columns child and parent, or branching-diffusion).",
        type=FILE,
    ),
    option("--newick", help="For a run: write the tree read off its map to this file.", type=FILE),
    *_TABLE,
    "covariates_left_out",
    *_CELLS,
    "missing_filled",
    "memory_of_sample",
    "cache",
    "force",
    "seed",
    example="diagnose cells.csv --label type --id barcode -o hierarchy.html",
)
def diagnose(reporter: Reporter, data: str, tree: Path | None, newick: Path | None, **asked: Any) -> CommandResult:
    """Is there a hierarchy in data? Of a run: how well does its map recover a known tree?"""
    if tree is not None or newick is not None or runs.is_run(data):
        refuse("with a run", _OF_DATA)
        return CommandResult(*runs.diagnose_run(Path(data), tree, newick, asked["seed"], asked["force"], reporter))
    graph, reading = asked.pop("graph"), {name: asked.pop(name) for name in _EDGES}
    refuse(*(("with --graph", (*_OF_TABLES, "distances")) if graph else ("without --graph", _EDGES)))
    if asked["distances"]:
        refuse("with --distances", _OF_VALUES)
    source, asked = _split(runs.Source, data, asked)
    if graph:
        source = runs.GraphSource(data, **reading)
    found, following = runs.diagnose_data(source, **asked, reporter=reporter)
    report = None if asked["output"] is None else str(asked["output"])
    return CommandResult(
        {"report": report, **found.to_json()},
        [found.sentence, *runs.figures(found), *([] if report is None else [f"report: {report}"])],
        following,
    )


@command(
    "data",
    click.Argument(["embedding"], type=FILE, help="Map of the data: table (.csv, …), matrix (.npy, …) or run folder."),
    option(
        "--distance",
        help="Distance on the map: euclidean, poincare (unit ball) or lorentz (euclidean; a Curvae map uses its own).",
        choices=("euclidean", "poincare", "lorentz"),
    ),
    option("-o", "--output", type=FILE, help="Report to write (.html)."),
    *_TABLE,
    *_CELLS,
    "missing",
    "memory_of_sample",
    "cache",
    "force",
    "seed",
    example="judge cells.csv umap.csv --label type --id barcode",
)
def judge(reporter: Reporter, data: str, **asked: Any) -> CommandResult:
    """How faithful is a map, made by any program, to the data that it shows? Beside PCA.

    Rows are matched by the column --id, or in their order; all other columns of numbers are coordinates.
    """
    source, asked = _split(runs.Source, data, asked)
    found, following = runs.judge_map(source, **asked, reporter=reporter)
    report = None if asked["output"] is None else str(asked["output"])
    return CommandResult(
        {"report": report, **found.to_json()},
        [*runs.faithful_lines(found), *([] if report is None else [f"report: {report}"])],
        following,
    )


@command(option("--bibtex", is_flag=True, help="As BibTeX."), example="cite --bibtex")
def cite(bibtex: bool) -> CommandResult:
    """How to cite Curvae and the paper it implements."""
    from .. import report

    text = report.bibtex() if bibtex else report.citation()
    return CommandResult({"bibtex" if bibtex else "citation": text}, text.splitlines())


app = program(
    *(
        demo,
        fit,
        graph,
        embed,
        map,
        impute,
        sample,
        evaluate,
        compare,
        paper,
        view,
        diagnose,
        judge,
        explain,
        lineage,
        differential,
        export,
        cite,
    ),
    text="Learn hierarchies with variational auto-encoders in curved latent spaces.",
    version=__version__,
    example="fit cells.csv --label type --id barcode -o runs/cells",
)


def main() -> None:
    """Entry point of the `curvae` program."""
    run_program(app)
