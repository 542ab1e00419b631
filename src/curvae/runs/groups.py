"""What groups of rows have to do with each other: `curvae lineage`, their tree and what changes along its branches;
`curvae differential`, which columns of counts differ between them; and `curvae map`, to which of them cells of new
batches belong."""

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

from ..data.cells import read_obs
from ..data.disk import in_memory
from ..data.files import count as counted, quoted, texts_of
from ..data.tables import batch_contexts, require_column
from ..errors import CurvaeError
from ..hierarchy import Drivers, Lineage, explain_along
from ..hierarchy.lineages import repeat_lineage, require_groups
from ..maps.embedding import Embedding
from ..plotting.pictures import bands, volcano
from ..report import Picture, Section, Table
from ..training import Fitted, embed, fit
from ..training.differential import compare_populations, split_groups
from ..training.storage import Loaded, load_fitted, read_embedding, write_tables, write_text
from . import pages
from .run import SILENT, Reporter, Step, output_files, view_step, write_report
from .trained import open_for, read_rows, stored_frames
from .viewing import LARGEST, find_rows, frames_from_root, open_rows, open_thinned, table_columns

__all__ = ["differential_run", "lineage_run", "map_run"]

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
    repeats: int = 1,
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
            a cell file intervals are calibrated. Further trainings need what the run was trained on.
        genes: columns whose expected values are written; by default those that change most.
        count: of these.
        draws: of the posterior of each row.
        repeats: trainings, that of the run and further ones with the next seeds, which are pooled.
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
    own: Any = None  # rows that the run was trained on, or has at least the counts of
    cells = None
    if data is not None and (repeats > 1 or (Path(data).suffix == ".h5ad" and fitted.layout.counts)):
        own = read_rows(loaded, data, None, reporter, False)
        rows = pd.Index(in_memory(own.ids)).get_indexer(ids)
        cells = own.take(rows).arrays if rows.min() >= 0 else None
    if repeats > 1 and (own is None or own.fingerprint != loaded.description["data"].get("fingerprint")):
        raise CurvaeError(f"`repeats` trains again, on what {run} was trained on; give that with `data=…`")

    def train(number: int) -> Fitted:
        def advance(record: Mapping[str, Any], epochs: int) -> None:
            reporter.progress(f"training {number + 1} of {repeats}", record["epoch"], epochs, "")

        config = replace(fitted.config, seed=fitted.config.seed + number)
        return fit(config, own, split=fitted.split, device=device, progress=advance)

    found = repeat_lineage(
        fitted,
        embed,
        embedding,
        labels,
        start,
        cells=cells,
        draws=draws,
        names=ids.tolist(),
        seed=seed,
        repeats=repeats,
        train=train,
    )
    kind = "calibrated on cells whose counts were split in two" if found.calibrated else "those of the posteriors"
    intervals = f"Intervals of pseudotime are {kind}."
    training = "It says nothing about the training: with another seed groups may be joined otherwise."
    if repeats > 1:
        intervals += f" Pseudotimes are means of {repeats} trainings, and their intervals hold draws of all."
        training = f"These trees are of {repeats} trainings."
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
        _tree_section(embedding, labels, found, name, intervals, training),
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
    columns: Any
    if Path(data).suffix == ".h5ad":
        obs, names = read_obs(Path(data), {column})
        if not table["id"].isin(names).all():
            raise CurvaeError(f"{data} does not hold all cells of {run}; give the file that it was trained on")
        present, columns = obs.names, obs.head.set_index(names).loc[table["id"]]
    else:
        columns = table_columns(Path(data), table["id"], schema)
        present = [*columns]
    require_column(Path(data), "groups", column, present)
    return texts_of(columns[column])


def _verdict(found: Lineage) -> str:
    """Say what tree there is, and which of its edges are unsure."""
    chosen = ", the group of the lowest radius" if found.chosen else ""
    unsure = found.edges[found.edges["support"] < _SURE]
    pairs = [f"{one.parent}–{one.group} ({one.support:.2f})" for one in unsure.itertuples()]
    doubt = f"; of low support: {', '.join(pairs)}" if pairs else f"; every edge has support {_SURE:g} or more"
    leaves = ", ".join(found.leaves)
    return f"From {found.root}{chosen}, {counted(len(found.leaves), 'lineage')}: {leaves}{doubt}."


def _tree_section(
    embedding: Embedding, labels: NDArray[np.str_], found: Lineage, name: str, intervals: str, training: str
) -> Section:
    """Show the tree on the map, seen from its root."""
    rows, whole = np.arange(len(embedding)), embedding.joined(found.nodes)
    frames = frames_from_root(embedding, found.nodes)
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
        + training,
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


# `curvae map`: cells of new batches, and what labels of known ones they have.

LABELS = "labels.csv"
_UNKNOWN = 0.5  # probability from which on a cell counts as unknown


def map_run(
    run: Path,
    path: str,
    output: Path | None = None,
    *,
    epochs: int | None = None,
    k: int = 15,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = SILENT,
    **reading: Any,
) -> tuple[dict[str, Any], list[str], Step]:
    """Train what a run on cells does not know about the batches of a query, and write the run of that.

    Cells of the run stay where they are. If they have labels, those of the query are written to `labels.csv`, with
    their probabilities and with that of belonging to no part of the run. A report shows the query on the map.

    Arguments:
        run: folder of the reference.
        path: the query, a `.h5ad` file with the columns that the run was trained with.
        output: folder of the new run, `runs/<name>-mapped` by default.
        epochs: passes over the query.
        k: neighbours that give a cell its label.
        force: overwrite a run.
        device: where to train.
        reporter: receives messages and progress.
        reading: `memory`, `cache` and `layer`, as of `embed_run`.

    Returns:
        Figures for programs, lines for people, and what to do next.
    """
    from ..estimators.cells import CellVAE  # takes long to import

    file = Path(path)
    folder = Path("runs") / f"{file.name.split('.')[0]}-mapped" if output is None else output
    if folder.exists() and not (force and (folder / "config.json").is_file()):
        raise CurvaeError(
            f"{folder} exists; choose another folder with `output=…`, or overwrite a run with `force=True`"
        )
    loaded = open_for(run, only_tables="which has no cells", **reading)
    schema = loaded.data
    if schema.kind != "cells":
        raise CurvaeError(
            f"{run} was not trained on cells, and has no batches to add to; place new rows with curvae embed"
        )
    if file.suffix.lower() != ".h5ad":
        raise CurvaeError(f"{file.name} is no .h5ad file, which alone tells the batch of every cell; write such a file")
    kind = torch.device(device).type
    reference = CellVAE.load(run, accelerator=kind)
    wider = reference._with_batches(read_obs(file, {str(schema.batch_key)})[0])
    data = read_rows(loaded._replace(data=wider), path, None, reporter, True, **reading)
    model = CellVAE._of_query(reference, data)
    reporter.say(f"training on {len(data):,} cells; run folder {folder}")
    model.train(max_epochs=epochs, accelerator=kind)
    model.save(folder, overwrite=force)
    found: dict[str, Any] = {"run": str(folder), "cells": len(data), "warnings": model.warnings_}
    lines, labels, page = [f"{len(data):,} cells on the map of {run}"], None, folder / "report.html"
    if schema.label is not None:
        labels = model.transfer_labels(schema.label, k)
        write_tables(folder / LABELS, [labels.rename_axis("id").reset_index()])
        unknown = labels["curvae_unknown"]
        found |= {"labels": str(folder / LABELS), "counts": labels["curvae_label"].value_counts().to_dict()}
        if unknown.notna().all():
            found["unknown"] = int((unknown > _UNKNOWN).sum())
            lines.append(f"{found['unknown']:,} of them are like no part of {run}")
    made = load_fitted(folder)
    sections = [
        _query_section(folder, loaded, made, labels),
        # Neighbourhoods take no part in the training of a query, whatever the settings say.
        pages.training_section(
            replace(made.fitted, config=replace(made.fitted.config, neighbours="off")),
            made.embedding,
            "never in the training of a query",
        ),
        pages.data_section(data),
    ]
    title, verdict = f"{file.name} on the map of {run.resolve().name}", f"{'; '.join(lines)}."
    following, seed = reporter.command(view_step(folder)), made.description["seed"]
    write_report(
        page, title, verdict, "neutral", model.warnings_, sections, seed, reporter.started, following, reporter.words
    )
    lines += [*([] if labels is None else [f"labels: {folder / LABELS}"]), f"report: {page}"]
    return {**found, "report": str(page)}, lines, Step("view", (str(folder),))


def _query_section(folder: Path, reference: Loaded, made: Loaded, labels: pd.DataFrame | None) -> Section:
    """Show the cells of a query among those of its reference, seen as these were, and what labels they got."""
    known = read_embedding(folder / "reference.csv")
    table, whole, _ = open_thinned(folder, made.description, LARGEST, (), [known])
    own = np.arange(len(table)) < len(table) - len(known)
    columns = {"cells": pd.Series("query", table.index)}
    if labels is not None:
        told = labels.set_axis(labels.index.astype(str)).reindex(table["id"]).reset_index(drop=True)
        name = f"transferred {reference.data.label}"
        columns = {name: told["curvae_label"], "unknown": told["curvae_unknown"]}
    random = np.random.default_rng(0)
    some = [random.permutation(np.flatnonzero(part))[: pages.LIVE // 2] for part in (own, ~own)]
    rows = np.sort(np.concatenate(some))
    shown = whole.take(rows)
    values = {name: one.where(own).iloc[rows].to_numpy() for name, one in columns.items() if one[own].notna().any()}
    frames = stored_frames(reference.description, reference.embedding)

    def draw(part: Embedding, place: int) -> list[Picture]:
        projection = part.chart.project(part.points, None if frames is None else frames[place])
        return [pages.map_picture(part, one, None, None, projection, name) for name, one in values.items()]

    text = [f"Cells of the query have colours, the {len(known):,} of the reference are grey."]
    if len(rows) < len(table):
        text.append(f"A sample is shown: {len(rows):,} of {len(table):,} cells, chosen at random.")
    tables = []
    if labels is not None:
        parts = {"all": labels, **dict(list(labels.groupby("curvae_label")))}
        lines = [
            [
                str(name),
                f"{len(part):,}",
                f"{part['curvae_label_probability'].mean():.2f}",
                f"{(part['curvae_unknown'] > _UNKNOWN).sum():,}" if part["curvae_unknown"].notna().all() else "–",
            ]
            for name, part in sorted(parts.items(), key=lambda one: -len(one[1]))
        ]
        tables = [Table([str(reference.data.label), "cells", "mean probability", "probably unknown"], lines)]
        text.append(
            "A label comes from the nearest cells of the reference, weighted by the overlap of their posteriors with "
            f"that of the cell. A cell is probably unknown if the probability that it belongs to no part of the "
            f"reference exceeds {_UNKNOWN:g}; whatever its label is, it should not be trusted then."
        )
    return Section("The query on the map", text, pages.by_factor(shown, draw), tables)
