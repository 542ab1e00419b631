"""What groups of rows have to do with each other: `curvae lineage`, their tree and what changes along its branches, and
`curvae differential`, which columns of counts differ between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data.disk import in_memory
from ..data.files import count as counted, quoted, texts_of
from ..data.tables import batch_contexts, require_column
from ..errors import CurvaeError, require
from ..hierarchy import Drivers, Lineage, explain_along, find_lineage
from ..hierarchy.lineages import calibrate, draw_places, require_groups
from ..maps.embedding import Embedding, orient
from ..plotting.pictures import bands, volcano
from ..report import Picture, Section, Table
from ..training import embed
from ..training.differential import compare_populations, split_groups
from ..training.storage import write_tables, write_text
from . import pages
from .run import SILENT, Reporter, output_files, write_report
from .trained import open_for, read_rows
from .viewing import find_rows, open_rows, table_columns

__all__ = ["differential_run", "lineage_run"]

_SURE = 0.9  # support from which on an edge is taken for granted
_SHOWN = 6  # curves of a picture


def lineage_run(
    run: Path,
    root: str | None = None,
    groups: str | None = None,
    *,
    data: str | None = None,
    genes: Sequence[str] = (),
    count: int = 10,
    draws: int = 25,
    output: Path | None = None,
    seed: int = 0,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = SILENT,
) -> tuple[dict[str, Any], list[str]]:
    """Join groups of rows of a run to a tree, and write how far along it every row lies, and what changes along it.

    Arguments:
        run: its folder.
        root: id of a row, or a group; by default the group of the lowest radius.
        groups: column with the groups; by default the labels of the run.
        data: table or cell file with that column, if it is not that of the labels. With the counts of all rows in
            a cell file intervals are calibrated.
        genes: columns whose expected values are written; by default those that change most.
        count: of these.
        draws: of the posterior of each row.
        output: folder for `lineage.csv`, `genes.csv`, `tree.nwk` and `report.html`, `<run>-lineage` by default.
        seed: of the draws.
        force: overwrite the files.
        device: where to compute.
        reporter: takes messages.

    Returns:
        Figures for programs, and lines for people.
    """
    paths = table_file, genes_file, tree_file, page = output_files(
        output, f"{run.resolve().name}-lineage", ("lineage.csv", "genes.csv", "tree.nwk", "report.html"), force
    )
    loaded = open_for(run, device, "whose nodes have no columns that change along a tree")
    fitted, schema = loaded.fitted, loaded.data
    if unknown := set(genes) - set(schema.names):
        raise CurvaeError(f"`genes` has columns that {run} does not know: {quoted(sorted(unknown))}; leave them out")
    features = np.flatnonzero(np.isin(schema.names, genes)) if genes else None
    table, embedding = open_rows(run, loaded)
    ids = table["id"].to_numpy(np.str_)
    labels = _groups(run, table, groups, data, schema)
    require_groups(labels, draws)
    start: str | int | None = root
    if root is not None and root not in labels:
        start = int(find_rows(run, ids.astype(object), labels.astype(object), root, "root")[0])
    random = np.random.default_rng(seed)
    scale: NDArray[np.float64] | float = 1.0
    intervals = "Intervals of pseudotime are those of the posteriors."
    if data is not None and Path(data).suffix == ".h5ad" and fitted.layout.counts:
        cells = read_rows(loaded, data, None, reporter, False)
        rows = pd.Index(in_memory(cells.ids)).get_indexer(ids)
        arrays = cells.take(rows).arrays
        known = bool(rows.min() >= 0)
        factor = calibrate(fitted, partial(embed, fitted), arrays, embedding, labels, start, seed) if known else None
        if factor is not None:
            scale = factor(arrays)
            intervals = "Intervals of pseudotime are calibrated on cells whose counts were split in two."
    places = [draw_places(fitted, embedding, random, scale) for _ in range(draws)]
    found = find_lineage(embedding, labels, start, draws=places, names=ids.tolist(), seed=seed)
    how: dict[str, Any] = {"columns": count, "features": features, "context": batch_contexts(schema), "seed": seed}
    changes = {end: explain_along(fitted, embedding, found, end, **how) for end in found.leaves}

    shares = {f"p {name}": found.probability[:, i] for i, name in enumerate(found.branches)}
    along = {"pseudotime": found.pseudotime, "low": found.low, "high": found.high}
    ends = np.array(found.branches)[found.branch]
    write_tables(table_file, [pd.DataFrame({"id": ids, "group": labels, **along, "branch": ends, **shares})])
    curves = {end: one.table(schema.names, t="pseudotime") for end, one in changes.items()}
    write_tables(genes_file, [pd.concat(curves, names=["end"]).reset_index("end").reset_index(drop=True)])
    write_text(tree_file, found.newick() + "\n")
    verdict = _verdict(found)
    name = groups or schema.label or "group"
    sections = [
        _tree_section(embedding, labels, found, name, intervals),
        _genes_section(changes, schema.names, found.root),
    ]
    told = [loaded.description["source"]["name"]] if "source" in loaded.description else [run.resolve().name]
    title = f"Lineages of {told[0]}"
    write_report(page, title, verdict, "neutral", (), sections, seed, reporter.started, words=reporter.words)
    lines = [verdict, intervals, *pages.driver_lines(found.root, changes, schema.names)]
    files = {what: str(path) for what, path in zip(("table", "genes", "newick", "report"), paths, strict=True)}
    result = found.to_json() | {"genes": {end: one.to_json(schema.names) for end, one in changes.items()}}
    return {**result, "files": files}, [*lines, *(f"{what}: {path}" for what, path in files.items())]


def _groups(run: Path, table: pd.DataFrame, column: str | None, data: str | None, schema: Any) -> NDArray[np.str_]:
    """Return the group of every row, "" for none."""
    if column is None or (column == schema.label and data is None):
        if not (table["label"] != "").any():
            raise CurvaeError(
                f"the rows of {run} have no labels; name a column with `groups` and its table with `data`"
            )
        return table["label"].to_numpy(np.str_)
    if data is None:
        raise CurvaeError(f"{run} does not hold the column {column!r}; give the table that has it with `data=…`")
    columns: Mapping[str, Any]
    if Path(data).suffix == ".h5ad":
        obs = require("anndata", f"{data} needs anndata to be read").read_h5ad(data, backed="r").obs
        if not table["id"].isin(obs.index).all():
            raise CurvaeError(f"{data} does not hold all cells of {run}; give the file that it was trained on")
        columns = obs.loc[table["id"]]
    else:
        columns = table_columns(Path(data), table["id"], schema)
    require_column(Path(data), "groups", column, [str(name) for name in columns])
    return texts_of(columns[column])


def _verdict(found: Lineage) -> str:
    """Say what tree there is, and which of its edges are unsure."""
    chosen = ", the group of the lowest radius" if found.chosen else ""
    unsure = found.edges[found.edges["support"] < _SURE]
    pairs = [f"{one.parent}–{one.group} ({one.support:.2f})" for one in unsure.itertuples()]
    doubt = f"; of low support: {', '.join(pairs)}" if pairs else f"; every edge has support {_SURE:g} or more"
    leaves = ", ".join(found.leaves)
    return f"From {found.root}{chosen}, {counted(len(found.leaves), 'lineage')}: {leaves}{doubt}."


def _tree_section(embedding: Embedding, labels: NDArray[np.str_], found: Lineage, name: str, intervals: str) -> Section:
    """Show the tree on the map, seen from its root."""
    rows = np.arange(len(embedding))
    whole = Embedding(
        np.concatenate([embedding.space, found.nodes.space]),
        np.concatenate([embedding.sigma, found.nodes.sigma]),
        embedding.factors,
    )
    frames = orient(whole, rows, np.zeros((len(rows), 2)), len(rows))
    edges = [(int(above), node) for node, above in enumerate(found.tree.parent) if node]

    def draw(part: Embedding, place: int) -> list[Picture]:
        own, nodes, frame = part.take(rows), part.take(rows.size + np.arange(len(found.tree))), frames[place]
        projection = own.chart.project(own.points, frame)
        hierarchy = own.chart.place(frame, nodes.points), edges
        return [
            pages.map_picture(own, values, what, hierarchy, projection, what)
            for what, values in ((name, np.where(labels == "", "none", labels)), ("pseudotime", found.pseudotime))
        ]

    text = [
        "Nodes are the Fréchet means of groups, joined by the shortest tree of geodesics. The root is at the centre. "
        "The pseudotime of a row is the length of the way from the root to the nearest point of the tree. " + intervals,
        "Support is the share of trees with the same edge when rows are drawn again, each at a draw of its posterior. "
        "It says nothing about the training: with another seed groups may be joined otherwise.",
    ]
    figures = zip(found.edges["length"], found.edges["support"], strict=True)
    pairs = found.edges[["group", "parent"]].to_numpy().tolist()
    lines = [[*pair, f"{length:.3g}", f"{support:.2f}"] for pair, (length, support) in zip(pairs, figures, strict=True)]
    tables = [Table(["group", "from", "length", "support"], lines)]
    return Section("Tree", text, pages.by_factor(embedding, lambda _, place: draw(whole.parts[place], place)), tables)


def _genes_section(changes: Mapping[str, Drivers], names: Sequence[str], root: str) -> Section:
    """Draw what the decoder expects along the way to every leaf."""
    pictures = []
    for end, one in changes.items():
        shown = {
            str(names[feature]): (one.mean[:, i], one.low[:, i], one.high[:, i])
            for i, feature in enumerate(one.features[:_SHOWN])
        }
        caption, alt = f"From {root} to {end}.", f"expected values on the way to {end}"
        pictures.append(pages.drawing((5.2, 3.4), partial(bands, x=one.t, lines=shown), caption, alt))
    text = (
        "What the decoder expects along the way from the root, averaged over batches, in the columns that change most; "
        "of cells, counts in a cell of median size. Bands hold 90 % of the drawn trees: how well the way is known, not "
        "how much rows differ."
    )
    return Section("Along the branches", [text], pictures)


# `curvae differential`: which columns of counts differ between groups of rows.

_LISTED, _VOLCANOES = 10, 6  # genes in a table of the report, and comparisons that have a picture
_TARGET = 0.05


def differential_run(
    run: Path,
    path: str,
    groupby: str | None = None,
    *,
    group1: Sequence[str] = (),
    group2: str | None = None,
    delta: float = 0.25,
    batch_correction: bool = False,
    output: Path | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = SILENT,
    **reading: Any,
) -> tuple[dict[str, Any], list[str]]:
    """Find the genes that differ between groups of cells under the model of a run.

    Arguments:
        run: its folder.
        path: the cells.
        groupby: column with the groups; by default the labels of the run.
        group1: groups that are compared; by default each.
        group2: the group that they are compared with; by default all other cells.
        delta: least log2 fold change that counts.
        batch_correction: compare cells as if all were of the same batches.
        output: folder for `differential.csv` and `report.html`, `<run>-differential` by default.
        force: overwrite the files.
        device: where to compute.
        reporter: receives messages and progress.
        reading: `memory`, `cache` and `layer`, as of `embed_run`.

    Returns:
        Figures for programs, and lines for people.
    """
    table_file, page = output_files(
        output, f"{run.resolve().name}-differential", ("differential.csv", "report.html"), force
    )
    loaded = open_for(run, device, "whose nodes have no counts", **reading)
    schema = loaded.data if groupby is None else replace(loaded.data, label=groupby)
    if schema.label is None:
        raise CurvaeError(f"the rows of {run} have no labels; name a column of {path} with `groupby=…`")
    data = read_rows(loaded._replace(data=schema), path, None, reporter, True, **reading)
    if data.labels is None:
        raise CurvaeError(f"{path} has no column {schema.label!r}; name one that it has with `groupby=…`")
    labels = np.asarray(in_memory(data.labels)).astype(np.str_)
    populations = split_groups(labels, list(group1) or None, group2, schema.label)
    if batch_correction and not schema.batch:
        raise CurvaeError(f"{run} was trained without batches; leave out `batch_correction=True`")
    every = range(schema.batch[1]) if batch_correction else ()
    found = compare_populations(
        loaded.fitted.double(),
        data,
        populations,
        schema.names,
        (every, every),
        delta=delta,
        fdr_target=_TARGET,
        advance=reporter.counter("comparing", int(np.any(populations.members, axis=(0, 1)).sum())),
    )
    write_tables(table_file, [found.reset_index()])
    each = {name: found[found["comparison"] == name] for name in found["comparison"].unique().tolist()}
    marked = f"is_de_fdr_{_TARGET:g}"
    numbers = {name: int(part[marked].sum()) for name, part in each.items()}
    verdict = "; ".join(f"{name}: {counted(number, 'gene')}" for name, number in numbers.items())
    verdict = f"Of {len(schema.names):,} genes, these many differ at a false discovery rate of 5 %: {verdict}."
    sections = [_comparison_section(name, part, place, marked) for place, (name, part) in enumerate(each.items())]
    title = f"Differential expression in {Path(path).name}"
    write_report(page, title, verdict, "neutral", (), sections, 0, reporter.started, words=reporter.words)
    first = {name: part.index[:_LISTED].tolist() for name, part in each.items()}
    lines = [
        f"{name}: {counted(number, 'gene')}" + (f", such as {quoted(first[name][:5])}" if number else "")
        for name, number in numbers.items()
    ]
    files = {"table": str(table_file), "report": str(page)}
    result = {"comparisons": [{"name": name, "genes": numbers[name], "first": first[name]} for name in each]}
    return {**result, "files": files}, [*lines, *(f"{what}: {file}" for what, file in files.items())]


def _comparison_section(name: str, found: pd.DataFrame, place: int, marked: str) -> Section:
    """Show one comparison, with a picture if it is among the first."""
    pictures = []
    if place < _VOLCANOES:
        draw = partial(volcano, table=found, marked=found[marked].to_numpy())
        caption = f"{name}: to the right genes with more counts in the first, above those that surely differ."
        pictures.append(pages.drawing((5.2, 4.2), draw, caption, f"volcano plot of {name}"))
    shown = found.head(_LISTED)
    lines = [
        [
            str(gene),
            f"{one.lfc_mean:+.2f} ± {one.lfc_std:.2f}",
            f"{one.proba_de:.3f}",
            f"{one.raw_mean1:.3g}",
            f"{one.raw_mean2:.3g}",
        ]
        for gene, one in zip(shown.index, shown.itertuples(), strict=True)
    ]
    header = ["gene", "log2 fold change", "probability", "counts a cell, first", "second"]
    return Section(name, [], pictures, [Table(header, lines)])
