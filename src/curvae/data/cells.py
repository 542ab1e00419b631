"""Counts of genes in cells: `.h5ad`, files and folders of 10x Genomics, and objects of AnnData.

Rows of a file are read by blocks, and only the genes in use are kept. Nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, issparse, vstack

from ..errors import CurvaeError, check, require
from ..models.likelihoods.base import row_blocks
from ..settings import require_count
from . import memory
from .dataset import Matrix, NumberColumns, Schema, as_matrix
from .disk import CsrFile, DiskMatrix, RowFile, csr_rows, repeated_texts
from .files import Messages, count, not_found, open_file, quoted, reading, require_file, texts_of
from .matrices import read_sparse
from .spool import ROW_BYTES, Copy, Storage, require_room
from .tables import FrameTable, RawData, Roles, choose_roles, covariate_numbers, read_roles

__all__ = ["CELLS", "choose_genes", "is_cell_folder", "match_genes", "read_anndata", "read_cells"]

_GENES, _MANY = 2000, 4000  # genes that are used by default, and from how many on
_MISSING = 0.2  # share of the genes of a model that new cells may lack
_VALUE_BYTES = 32  # of a count in memory, while it is read, checked and joined with others


# Files of HDF5.

_VERSIONS = {
    "anndata": "0.1.0",
    "array": "0.2.0",
    "categorical": "0.2.0",
    "csc_matrix": "0.1.0",
    "csr_matrix": "0.1.0",
    "dataframe": "0.2.0",
    "nullable-boolean": "0.1.0",
    "nullable-integer": "0.1.0",
    "nullable-string-array": "0.1.0",
    "string-array": "0.2.0",
}


@contextmanager
def _opened(path: Path, name: str) -> Iterator[Any]:
    """Open a file of HDF5 for reading, and turn the errors of reading it into ours."""
    h5py = require("h5py", f"{name} needs h5py to be read")
    broken = OSError, KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError
    with reading(name, "HDF5", *broken, fix="get or write the file again"), h5py.File(path, "r") as file:
        yield file


def _encoding(item: Any) -> str:
    """Return how anndata encoded an item of a file; raise for encodings of other versions."""
    kind, version = (item.attrs.get(f"encoding-{name}") for name in ("type", "version"))
    found = "without an encoding" if kind is None else f"in the encoding {kind} {version}"
    check(
        kind in _VERSIONS and version == _VERSIONS[kind],
        f"{Path(item.file.filename).name} holds {item.name} {found}, which is that of another version of anndata; "
        "read it with anndata and write it again",
    )
    return str(kind)


def _column(group: Any, name: str) -> Any:
    """Read a column of a data frame."""
    item = group[name]
    kind = _encoding(item)
    if kind == "categorical":
        return pd.Categorical.from_codes(item["codes"][...], _column(item, "categories"))
    if kind.startswith("nullable"):
        values, mask = (np.asarray(_column(item, part)) for part in ("values", "mask"))
        return pd.Series(values, dtype=object).mask(mask).to_numpy()
    return item.asstr()[...] if kind == "string-array" else item[...]


class HdfRows(RowFile):
    """Rows of a matrix in a file of HDF5: of a dense one, or of the three arrays of a CSR matrix.

    Arguments:
        path, name, owner: see `RowFile`.
        place: name of the matrix in the file.
        shape: (rows, columns).

    Attributes:
        dtype: of the values.
    """

    def __init__(
        self, path: Path, place: str, shape: Sequence[int], name: str | None = None, owner: Any = None
    ) -> None:
        super().__init__(path, name, owner)
        self.rows, self.columns = map(int, shape)
        self._place, values = place, self.rows * self.columns
        with _opened(path, self.name) as file:
            item = data = file[place]
            self.sparse = not hasattr(item, "dtype")
            if self.sparse:
                data, values = item["data"], len(item["data"])
                if len(item["indptr"]) != self.rows + 1 or len(item["indices"]) != values:
                    raise ValueError(f"the arrays of {place} do not fit {self.rows:,} rows")
            elif item.shape != (self.rows, self.columns):
                raise ValueError(f"{place} has shape {item.shape}, not {self.rows:,} × {self.columns:,}")
            if data.dtype.kind not in "biuf":
                raise ValueError(f"{place} holds {data.dtype}, not numbers")
            self.dtype = np.float32 if data.dtype in (np.float16, np.float32) else np.float64
        self.row_bytes = 8.0 * max(1.0, values / max(1, self.rows))

    def _read(self, start: int, stop: int) -> Any:
        with _opened(self.path, self.name) as file:
            item = file[self._place]
            if not self.sparse:
                return item[start:stop].astype(self.dtype, copy=False)
            return csr_rows(lambda name, a, b: item[name][a:b], start, stop, self.columns, len(item["data"]))


# Cells as they are in a file.


@dataclass
class Cells:
    """Counts of cells with what describes them.

    Arguments:
        path: the file, for messages.
        x: the counts, (cells, genes), in memory or on disk.
        obs: columns that describe cells.
        names: of the cells.
        genes: names of the genes.
        marked: which genes are highly variable, (genes,), where that is known.
        layers: names of the layers.
        messages: takes notes.
    """

    path: Path
    x: Matrix
    obs: FrameTable
    names: NDArray[np.str_]
    genes: NDArray[np.str_]
    marked: NDArray[np.bool_] | None = None
    layers: Sequence[str] = ()
    messages: Messages = field(default_factory=Messages)


def read_obs(path: Path, needed: set[str]) -> tuple[FrameTable, NDArray[np.str_]]:
    """Read columns of what describes the cells of a `.h5ad` file, and the names of the cells; no counts are read."""
    if not (path.exists() or path.is_symlink()):
        raise not_found(path, (), "give a .h5ad file")
    require_file(path)
    with _opened(path, path.name) as file:
        _encoding(file)
        _encoding(obs := file["obs"])
        names = texts_of(_column(obs, obs.attrs["_index"]))
        columns = [str(name) for name in obs.attrs["column-order"]]
        frame = pd.DataFrame({name: _column(obs, name) for name in columns if name in needed}, range(len(names)))
    return FrameTable(path, frame, columns), names


def _read_h5ad(path: Path, layer: str | None, needed: set[str], storage: Storage | None) -> Cells:
    table, names = read_obs(path, needed)
    with _opened(path, path.name) as file:
        layers = [*file["layers"]] if "layers" in file else []
        place = _place(path.name, layer, layers, "X" in file and file["X"].attrs.get("encoding-type") != "null")
        kind, var = _encoding(file[place]), file["var"]
        _encoding(var)
        shape = tuple(map(int, file[place].attrs.get("shape", getattr(file[place], "shape", ()))))
        genes = texts_of(_column(var, var.attrs["_index"]))
        if shape != (len(names), len(genes)):
            raise ValueError(f"{place} has shape {shape}, with {len(names):,} cells and {len(genes):,} genes")
        marked = _column(var, "highly_variable") if "highly_variable" in var else None
    x = (
        _read_csc(path, place, shape, storage)
        if kind == "csc_matrix"
        else _matrix(HdfRows(path, place, shape), storage)
    )
    return Cells(path, x, table, names, genes, _flags(marked), layers)


def _place(name: str, layer: str | None, layers: Sequence[str], has_matrix: bool = True) -> str:
    """Return the name of the matrix in a file; raise for a layer that it lacks."""
    known = f"its layers are {quoted(layers)}" if layers else "it has no layers"
    if layer is None:
        check(has_matrix, f"{name} has no matrix X; name the layer that holds counts with `layer=…`: {known}")
        return "X"
    check(layer in layers, f"{name} has no layer {layer!r} for `layer=…`; {known}")
    return f"layers/{layer}"


def _flags(values: Any) -> NDArray[np.bool_] | None:
    """Return which genes are marked; None where none is."""
    marked = None if values is None else np.asarray(pd.Series(values).fillna(False), bool)
    return marked if marked is not None and marked.any() else None


def _matrix(file: HdfRows, storage: Storage | None) -> DiskMatrix:
    return DiskMatrix.of(file, file.columns, 0 if storage is None else storage.memory)


def _read_csc(path: Path, place: str, shape: tuple[int, int], storage: Storage | None) -> Matrix:
    """Read a CSC matrix as rows; one that takes more memory than it may is copied to disk as such."""
    columns = HdfRows(path, place, shape[::-1])
    size = _VALUE_BYTES * columns.rows * columns.row_bytes / 8
    if storage is None or size <= storage.memory:
        memory.require(size, f"{path.name} ({shape[0]:,} × {shape[1]:,})", fix="write it as CSR, or give `memory=…`")
        return as_matrix(columns.read(0, shape[1]).T)
    name = f"{place.replace('/', '-')}.h5"
    made = Copy(
        path,
        [path],
        storage,
        usable=lambda folder: (folder / name).exists(),
        write=lambda folder: _write_rows(columns, folder, name, storage),
    )
    return _matrix(HdfRows(made.folder / name, "/", shape, path.name, made), storage)


def _write_rows(columns: HdfRows, folder: Path, name: str, storage: Storage) -> None:
    """Write the rows of a matrix whose columns are rows of a file: those of some columns at a time, then joined."""
    from scipy.sparse import save_npz

    rows, stored = columns.columns, int(columns.rows * columns.row_bytes / 8)
    require_room(folder, 24.0 * stored, columns.name)
    advance = storage.counter(f"copying {memory.size_text(12 * stored)} to disk", columns.rows + rows)
    at_once = storage.memory / (4 * _VALUE_BYTES)  # values
    step, parts = max(1, int(at_once * columns.rows / max(1, stored))), list[CsrFile]()
    for start in range(0, columns.rows, step):
        part = folder / f"{start}.npz"
        save_npz(part, csr_array(columns.read(start, min(start + step, columns.rows)).T), compressed=False)
        parts.append(CsrFile(part))
        advance(min(step, columns.rows - start))
    step, ends = max(1, int(at_once * rows / max(1, stored))), [np.zeros(1, np.int64)]
    with require("h5py", f"{columns.name} needs h5py to be read").File(folder / name, "w") as file:
        for kind, dtype in (("data", columns.dtype), ("indices", np.int32)):
            file.create_dataset(kind, (stored,), dtype)
        for start in range(0, rows, step):
            block = hstack([made.read(start, min(start + step, rows)) for made in parts], "csr")
            first = int(ends[-1][-1])
            for kind in ("data", "indices"):
                file[kind][first : first + block.nnz] = getattr(block, kind)
            ends.append(first + block.indptr[1:].astype(np.int64))
            advance(block.shape[0])
        file["indptr"] = np.concatenate(ends)
    for made in parts:
        made.path.unlink()


# Files and folders of 10x Genomics.


def _read_10x(path: Path, layer: str | None, needed: set[str], storage: Storage | None) -> Cells:
    _place(path.name, layer, ())
    with _opened(path, path.name) as file:
        groups = [name for name, item in file.items() if "indptr" in getattr(item, "keys", tuple)()]
        check(len(groups) == 1, f"{path.name} has {len(groups)} matrices of 10x Genomics; give a file with one")
        group = file[groups[0]]
        places = (
            ("features/id", "features/name", "features/feature_type")
            if "features" in group
            else ("genes", "gene_names", "")  # of version 2
        )
        ids, names, kinds = (group[place].asstr()[...] if place in group else None for place in places)
        cells, shape = group["barcodes"].asstr()[...], group["shape"][...][::-1]
    return _of_10x(path, _matrix(HdfRows(path, groups[0], shape), storage), texts_of(cells), ids, names, kinds)


def is_cell_folder(path: Path) -> bool:
    """Return whether a folder has the matrix of a folder of 10x Genomics."""
    return path.is_dir() and _part(path, "matrix.mtx") is not None


def _part(folder: Path, *names: str) -> Path | None:
    """Find a file of a folder by its names, gzipped or not."""
    paths = (folder / f"{name}{ending}" for name in names for ending in ("", ".gz"))
    return next((path for path in paths if path.exists()), None)


def _read_10x_folder(path: Path, layer: str | None, needed: set[str], storage: Storage | None) -> Cells:
    _place(path.name, layer, ())
    tables = []
    for usual in (["barcodes.tsv"], ["features.tsv", "genes.tsv"]):
        if (file := _part(path, *usual)) is None:
            raise CurvaeError(f"{path} has a matrix.mtx and no {' or '.join(usual)}; put it there")
        with open_file(file, "rt", encoding="utf-8", errors="replace") as lines:
            tables.append([line.rstrip("\r\n").split("\t") for line in lines])
    cells, features = tables
    matrix = _part(path, "matrix.mtx")
    assert matrix is not None
    x = as_matrix(read_sparse(matrix).T, path.name)
    check(
        x.shape == (len(cells), len(features)),
        f"{path} has a matrix of {x.shape[1]:,} genes × {x.shape[0]:,} cells, {count(len(features), 'gene')} and "
        f"{count(len(cells), 'barcode')}; get the folder again",
    )
    width = min(map(len, features), default=1)
    ids, names, kinds = ([line[j] for line in features] if j < width else None for j in range(3))
    return _of_10x(path, x, texts_of([line[0] for line in cells]), ids, names, kinds)


def _of_10x(path: Path, x: Matrix, cells: NDArray[np.str_], ids: Any, names: Any, kinds: Any) -> Cells:
    """Take cells with the features of a file of 10x Genomics, of which only genes are used.

    Genes are called by their names; where several have the same, by their ids.
    """
    messages = Messages()
    genes = texts_of(ids if names is None else names)
    if (shared := np.isin(genes, repeated_texts(genes))).any() and names is not None:
        genes = np.where(shared, texts_of(ids), genes)
        messages.note(f"{count(int(shared.sum()), 'gene')} that share a name are called by their ids.")
    found = Cells(path, x, FrameTable(path, pd.DataFrame(index=range(len(cells)))), cells, genes, messages=messages)
    if kinds is None or (expressed := np.asarray(kinds) == "Gene Expression").all():
        return found
    messages.note(f"left out because they are no genes: {count(int((~expressed).sum()), 'feature')}.")
    places = np.flatnonzero(expressed)
    return replace(found, x=choose_genes(x, places), genes=genes[places])


# How the names of cell files end, and what reads such a file.
CELLS: dict[str, Callable[..., Cells]] = {".h5ad": _read_h5ad, ".h5": _read_10x}


def read_cells(
    path: Path,
    roles: Roles,
    schema: Schema | None,
    storage: Storage | None = None,
    layer: str | None = None,
    genes: int | None = None,
) -> RawData:
    """Read the counts of cells, and choose the genes in use.

    Arguments:
        path: a file whose name ends in one of `CELLS`, or a folder of 10x Genomics.
        roles: columns of what describes the cells that the caller gives a role.
        schema: schema of the data that a model was trained on, or None to fit one.
        storage: how much memory counts may take; others stay on disk.
        layer: that holds the counts; by default the matrix, or the layer that the model was trained on.
        genes: how many to use.
    """
    layer = layer if layer is not None or schema is None else schema.layer
    needed = {*roles.asked, *(() if schema is None else Roles.of(schema).asked)}
    endings = (read for ending, read in CELLS.items() if path.name.lower().endswith(ending))
    read = _read_10x_folder if path.is_dir() else next(endings)
    return _sort_cells(read(path, layer, needed, storage), roles, schema, storage, layer, genes)


def read_anndata(
    adata: Any,
    roles: Roles,
    schema: Schema | None = None,
    storage: Storage | None = None,
    layer: str | None = None,
    genes: int | Literal["all"] | None = None,
) -> RawData:
    """Take the cells of an `anndata.AnnData`; see `read_cells`. One that is backed by a file is read as the file is.

    With "all" genes, those without a count are kept too.
    """
    layer = layer if layer is not None or schema is None else schema.layer
    adata = adata.to_memory() if adata.isbacked and adata.is_view else adata
    path, obs = Path(adata.filename or "AnnData"), adata.obs.reset_index(drop=True).rename(columns=str)
    if adata.isbacked:
        storage = storage or Storage(memory.bound(None))
        x = _read_h5ad(path, layer, set(), storage).x
    else:
        _place(path.name, layer, [*adata.layers], adata.X is not None)
        x = as_matrix(adata.X if layer is None else adata.layers[layer], path.name)
    cells = Cells(
        path,
        x,
        FrameTable(path, obs),
        texts_of(adata.obs_names),
        texts_of(adata.var_names),
        _flags(adata.var.get("highly_variable")),
        [*adata.layers],
    )
    return _sort_cells(cells, roles, schema, storage, layer, genes)


# The genes in use.


def choose_genes(x: Any, places: NDArray[np.int64]) -> Any:
    """Choose columns of counts, in memory or on disk, by their places; 0 where a place is −1.

    Example:
        >>> choose_genes(np.array([[1.0, 2.0, 3.0]]), np.array([2, -1, 0])).tolist()
        [[3.0, 0.0, 1.0]]
    """
    if isinstance(x, DiskMatrix):
        return x.apply(partial(choose_genes, places=places), len(places))
    known = places >= 0
    if not issparse(x):
        return np.where(known, x[:, places], x.dtype.type(0))
    columns = np.full(x.shape[1], -1, np.int32)
    columns[places[known]] = np.flatnonzero(known)
    columns = columns[x.indices]
    kept = columns >= 0
    ends = np.concatenate([[0], np.cumsum(kept, dtype=x.indptr.dtype)])[x.indptr]
    chosen = csr_array((x.data[kept], columns[kept], ends), (x.shape[0], len(places)))
    chosen.sort_indices()
    return chosen


def _sort_cells(
    cells: Cells,
    roles: Roles,
    schema: Schema | None,
    storage: Storage | None,
    layer: str | None,
    genes: int | Literal["all"] | None,
) -> RawData:
    """Choose the genes in use and sort the columns that describe cells by their roles; see `read_cells`."""
    name, messages = cells.path.name, cells.messages
    if schema is not None and schema.kind != "cells":
        other = "images" if schema.kind == "images" else f"a {schema.kind}"
        raise CurvaeError(f"{name} holds counts of cells and the model was trained on {other}; give the same")
    held, covariates = choose_roles(cells.obs, roles, schema, messages)
    if (twice := repeated_texts(cells.genes)).size:
        raise CurvaeError(
            f"{name} has genes of the same name: {quoted(twice)}; make them unique, as with "
            "adata.var_names_make_unique()"
        )
    if schema is None:
        batch = [column for column in covariates if column.name == held["batch_key"]]
        codes = covariate_numbers(cells.obs, batch)[:, 0].astype(np.int64) if batch else None
        places, stored = _choose(cells, codes, genes)
        x, names = choose_genes(cells.x, places), cells.genes[places].tolist()
    else:
        names = list(schema.column_names)
        x = choose_genes(cells.x, match_genes(name, cells.genes, names, messages))
        stored = int(_figures(cells, x, np.array(names))[0].sum())
    if isinstance(x, DiskMatrix):
        x = _held(x, stored, name, storage, messages)
    known = read_roles(cells.obs, held, covariates, held["id"], messages)
    known |= {"ids": cells.names} if held["id"] is None else {}
    known["roles"] |= {"layer": layer}
    if roles.batch_key is not None and held["batch_key"] is None:
        known["roles"] |= {"batch_key": roles.batch_key, "only_batch": cells.obs.categories(roles.batch_key)[0]}
    return RawData(name, "cells", x, NumberColumns(names), messages=messages, **known)


def _held(x: DiskMatrix, stored: int, name: str, storage: Storage | None, messages: Messages) -> Matrix:
    """Read the counts into memory, of which so many are not 0, if they may take as much."""
    rows, columns = x.shape
    size = rows * ROW_BYTES + (_VALUE_BYTES * stored if x.sparse else 16 * rows * columns)
    if storage is not None and size > storage.memory:
        memory.return_freed()
        messages.note(f"{rows:,} cells are read from disk, in {memory.size_text(storage.memory)} of memory.")
        return x
    memory.require(size, f"{name} ({rows:,} × {columns:,})", fix="use fewer `genes`, or give `memory=…`")
    blocks = list(row_blocks(x))
    return vstack(blocks, "csr") if x.sparse else np.concatenate(blocks)


def match_genes(source: str, genes: NDArray[np.str_], names: Sequence[str], messages: Messages) -> NDArray[np.int64]:
    """Return the places of the genes of a model among others, −1 for those that are missing; raise where many are."""
    places = pd.Index(genes).get_indexer(pd.Index(names)).astype(np.int64)
    absent = np.array(names)[places < 0]
    share = f"{100 * len(absent) / len(names):.3g} %"
    if len(absent) > _MISSING * len(names):
        others = np.setdiff1d(genes, names)
        raise CurvaeError(
            f"{source} lacks {share} of the {len(names):,} genes that the model was trained on, such as "
            f"{str(absent[0])!r}" + (f" (its own are called as {str(others[0])!r})" if len(others) else "") + "; give "
            "cells with the same genes, under the same names"
        )
    if len(absent):
        messages.warn(
            f"{source} lacks {count(len(absent), 'gene')} of those that the model was trained on ({share}), "
            f"which count as 0: {quoted(absent)}."
        )
    return places


def _choose(
    cells: Cells, codes: NDArray[np.int64] | None, asked: int | Literal["all"] | None
) -> tuple[NDArray[np.int64], int]:
    """Choose the genes to train on; return their places and how many counts of them are not 0.

    These are the genes that the cells mark as highly variable, unless a number is asked for; or those with the largest
    variance of log(1 + 10⁴·count/total of the cell) within batches; or all, where they are few.

    Arguments:
        cells: with all genes.
        codes: batch of each cell, (cells,); None where there is one.
        asked: how many, if that was asked for; "all" keeps even those without a count.
    """
    if asked is not None and asked != "all":
        require_count("genes", asked)
    messages, (stored, variance) = cells.messages, _figures(cells, cells.x, cells.genes, codes)
    if asked == "all":
        return np.arange(len(stored)), int(stored.sum())
    places = np.flatnonzero(stored)
    check(len(places), f"{cells.path.name} holds no count but 0; name the layer that holds counts with `layer=…`")
    if silent := len(stored) - len(places):
        messages.note(f"left out because no cell has a count of them: {count(silent, 'gene')}.")
    most = asked if asked is not None else _GENES if len(places) >= _MANY else len(places)
    if asked is None and cells.marked is not None and cells.marked[places].any():
        places = places[cells.marked[places]]
        messages.note(f"{count(len(places), 'gene')} of {len(stored):,} are used, those marked as highly variable.")
    elif most < len(places):
        places = np.sort(places[np.argsort(-variance[places], kind="stable")[:most]])
        messages.note(f"{count(most, 'gene')} of {len(stored):,} are used, those that vary most within batches.")
    return places, int(stored[places].sum())


def _figures(
    cells: Cells, x: Matrix, names: NDArray[np.str_], codes: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Check the counts of genes with these names; return in how many cells each is, and its variance within batches;
    see `_choose`."""
    codes = np.zeros(len(cells.names), np.int64) if codes is None else codes
    genes, sizes = len(names), np.bincount(codes)
    stored, squares, sums = np.zeros(genes, np.int64), np.zeros(genes), np.zeros((len(sizes), genes))
    start, wrong, first = 0, 0, ""
    for rows in row_blocks(x):
        block = csr_array(rows)
        known = np.isfinite(block.data)
        if bool((block.data[known] % 1 != 0).any()):
            raise _no_counts(cells)
        bad = np.flatnonzero(~known | (block.data < 0))
        cell = np.repeat(np.arange(start, start + block.shape[0]), np.diff(block.indptr))
        if len(bad) and not first:
            gene, name = str(names[block.indices[bad[0]]]), str(cells.names[cell[bad[0]]])
            first = f"{block.data[bad[0]]:g} of gene {gene!r} in cell {name!r}"
        wrong += len(bad)
        if not wrong:
            logs = np.log1p(1e4 * block.data / np.maximum(block.sum(1, dtype=np.float64), 1.0)[cell - start])
            stored += np.bincount(block.indices[block.data > 0], minlength=genes)
            squares += np.bincount(block.indices, logs**2, genes)
            np.add.at(sums, (codes[cell], block.indices), logs)
        start += block.shape[0]
    check(
        not wrong,
        f"{cells.path.name} has {count(wrong, 'value')} that {'is' if wrong == 1 else 'are'} negative, NaN or "
        f"infinite, the first {first}; counts are whole numbers from 0 on: correct them, or name another layer with "
        "`layer=…`",
    )
    return stored, (squares - (sums**2 / np.maximum(sizes, 1)[:, None]).sum(0)) / max(1, len(codes))


def _no_counts(cells: Cells) -> CurvaeError:
    """Make the error about values with digits, which may be normalised logarithms of counts."""
    block = csr_array(next(row_blocks(cells.x)))
    values = block.data[np.isfinite(block.data)]
    what = "not all values are whole numbers"
    if len(values) and values.min() >= 0 and values.max() < 20:
        totals = np.expm1(block.astype(np.float64)).sum(1)
        totals = totals[totals > 0]
        if np.ptp(totals) <= 0.01 * totals.max():
            what = "these are no counts but log-normalised values"
    where = f"which are {quoted(cells.layers)}" if cells.layers else "but the file has no layers: give other data"
    return CurvaeError(f"{cells.path.name}: {what}; name the layer that holds counts with `layer=…`, {where}")
