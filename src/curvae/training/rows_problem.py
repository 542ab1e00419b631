"""Models of rows: what is chosen for them from the data, and what trains and judges them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data import Arrays, memory
from ..data.column_statistics import column_statistics
from ..data.dataset import Scaling, hash_rows
from ..data.disk import in_memory
from ..errors import CurvaeError
from ..maps.statistics import Principal, principal_axes
from ..models import LIKELIHOODS, VAE, Layout, Likelihood
from ..models.likelihoods import choose_likelihood
from ..models.likelihoods.base import row_blocks
from ..settings import resolve_defaults
from .config import Config
from .engine import BatchEngine
from .evaluate import embed, likelihoods_many
from .fitted import Effects, Fitted, build
from .neighbourhoods import Neighbourhood, Neighbourhoods, neighbourhood
from .rows import HELD_OUT, Data, RowPool, Rows, Split, layout_of, random_split
from .stacks import Judged, ModelInTraining, Problem, Task, require_one_each

__all__ = [
    "SAMPLES",
    "RowsProblem",
    "RowsTask",
    "chosen_likelihood",
    "digest",
    "left_out_start",
    "plan_rows",
    "scaling_for",
    "validation_rows",
]

SAMPLES = 500
"""importance samples a row, by default, to judge a model in a comparison"""

_CAPTURE = 200  # steps from which on capturing a CUDA graph pays
_LOOK = 0.25  # validation rows over training rows of an epoch that is a part of a pass, at most
_UNFOLDED = 100_000  # training rows whose neighbours are looked for to start them on spheres
_AXES_ROWS, _AXES_NUMBERS = 1000, 1 << 23  # of which principal components are found: rows at least, numbers about
_EXPLAINED = 1e-4  # share of the variance below which covariates leave nothing of a column


@dataclass(frozen=True, eq=False)
class RowsTask(Task):
    """A model of rows to be trained.

    Arguments:
        config, source, split, scaling, layout: of the model.
        reason: why this likelihood.
    """

    config: Config
    source: Arrays
    split: Split
    scaling: Scaling
    layout: Layout
    reason: str = "as asked"

    @property
    def architecture(self) -> Any:
        """What the models of one stack have in common; each would read rows from disk, so these are trained alone."""
        return self.config.architecture, self.layout, self.split.counts, self.place if self.source.on_disk else None


def chosen_likelihood(arrays: Arrays, asked: str) -> tuple[str, Layout, str]:
    """Choose the likelihood for the data, their layout as it takes them, and why this likelihood."""
    layout = layout_of(arrays)
    name, reason = choose_likelihood(arrays.x, asked, layout)
    family, size = LIKELIHOODS[name], arrays.size
    if size is not None:
        if not family.uses_size:
            first, *others = (other for other, known in LIKELIHOODS.items() if known.uses_size)
            raise CurvaeError(
                f'an exposure needs `likelihood="{first}"`, {" or ".join(others)}, not {name}; ask for one of them, or '
                "leave out `exposure=…`"
            )
        positive = (bool((np.isfinite(block) & (block > 0)).all()) for block in row_blocks(size))
        if size.shape != (len(arrays),) or not all(positive):
            raise CurvaeError("exposure must be a positive, finite number for every row; correct it")
    return name, family.layout(arrays.x, layout), reason


def _prepared(data: Data, blocks: tuple[int, ...]) -> Arrays:
    """Return data as a matrix of floating-point numbers, with weights that are 1 in the mean; raise for others."""
    arrays = Arrays.of(data, blocks)
    shape = getattr(arrays.x, "shape", None)
    if shape is None or len(shape) != 2:
        got = f"a {type(arrays.x).__name__}" if shape is None else f"shape {tuple(shape)}"
        raise CurvaeError(f"data must be a matrix, (rows, features), got {got}; give a two-dimensional numpy array")
    if isinstance(arrays.x, np.ndarray) and arrays.x.dtype.kind in "iu":
        arrays = replace(arrays, x=arrays.x.astype(np.float64))
    weight = arrays.weight
    if weight is None:
        return arrays
    if weight.shape != (len(arrays),) or not bool((np.isfinite(weight) & (weight >= 0)).all()) or not weight.any():
        raise CurvaeError("weight must be a number of at least 0 for every row, and not always 0; correct it")
    return replace(arrays, weight=weight / weight.mean())


def scaling_for(config: Config, layout: Layout, data: Arrays, split: Split) -> Scaling:
    """Say how columns are scaled, from all rows that are not test rows: to the variance that covariates leave."""
    features = config.scaled(layout)
    if not features.any():
        return Scaling.identity(data.features)
    seen = data.take(np.setdiff1d(np.arange(len(data)), split.test) if len(split.test) else slice(None))
    scaling = Scaling.standard(seen.x)
    if seen.context is not None:
        left = 1 - Effects.of(seen.x, seen.context).variance / scaling.scale**2
        left = np.where(left > _EXPLAINED, left, 1.0)
        scaling = replace(scaling, scale=scaling.scale * np.sqrt(left))
    return scaling.only(features)


def left_out_start(config: Config, source: Arrays, split: Split) -> tuple[str, ...]:
    """Return a note where rows should start at places on spheres, and nobody looks for these."""
    if not config.starts_unfolded or not (source.on_disk or len(split.train) > _UNFOLDED):
        return ()
    why = "the table is on disk" if source.on_disk else f"there are more than {_UNFOLDED:,} training rows"
    return (
        f"training does not begin unfolded, as {why}: the map may stay folded; compare it with one of fewer rows in "
        "memory",
    )


def plan_rows(
    configs: Sequence[Config],
    data: Data | Sequence[Data],
    blocks: tuple[int, ...] = (),
    splits: Sequence[Split] | None = None,
    scalings: Sequence[Scaling] | None = None,
    hindrance: str = "",
    **problem: Any,
) -> tuple[RowsProblem, list[RowsTask]]:
    """Make a task for every configuration, with its "auto" choices made, and the problem that they belong to.

    Arguments:
        configs, data, blocks, splits, scalings: as of `curvae.training.fit_many`.
        hindrance: why maps cannot be held to the neighbourhoods of the data.
        problem: further arguments of `RowsProblem`.
    """
    each: Sequence[Any] = data if isinstance(data, list | tuple) else [data] * len(configs)
    require_one_each(configs, data=each, splits=splits, scalings=scalings)
    # What many configurations share is made once: a look at the data can take longer than an epoch.
    distinct = {id(given): given for given in each}
    prepared = {key: _prepared(given, blocks) for key, given in distinct.items()}
    draw_split, choose = cache(partial(random_split, most=HELD_OUT)), cache(chosen_likelihood)
    known: dict[Any, Scaling] = {}
    tasks = []
    for i, (config, given) in enumerate(zip(configs, each, strict=True)):
        arrays = prepared[id(given)]
        split = draw_split(len(arrays), config.validation, seed=config.seed) if splits is None else splits[i]
        likelihood, layout, reason = choose(arrays, config.likelihood)
        weightless = arrays.weight is not None and not arrays.weight.all()
        why = "some rows have no weight, and would be neighbours all the same" if weightless else hindrance
        # The outputs of a step with their gradients, or its noise: far from all it takes.
        rows_at_once = min(config.batch_size, len(split.train))
        memory.require(
            8.0 * config.samples * rows_at_once * max(layout.features, config.dim),
            f"a training with batches of {rows_at_once:,} rows and {config.samples:,} draws of each",
            fix="lower `batch_size` or `samples`",
        )
        config = resolve_defaults(replace(config, likelihood=likelihood), split.counts, layout, why)
        key = arrays, config.scaled(layout).tobytes(), split.test.tobytes()
        if scalings is None and key not in known:
            known[key] = scaling_for(config, layout, arrays, split)
        scaling = known[key] if scalings is None else scalings[i]
        name = Task.label(i, len(configs), config)
        tasks.append(RowsTask(i, name, config, arrays, split, scaling, layout, reason))
    return RowsProblem(**problem), tasks


@dataclass(frozen=True)
class RowsProblem(Problem[RowsTask, Fitted]):
    """Models of rows.

    Arguments:
        samples: importance samples a row with which models are judged.
        shown: numbers of the rows that are placed on the maps of a comparison; None for all.
    """

    samples: int = SAMPLES
    shown: NDArray[np.int64] | None = None

    remedy = "lower `hidden` or `batch_size`"

    def fingerprinted(self, tasks: Sequence[RowsTask]) -> list[RowsTask]:
        hashed, found = cache(_hash_arrays), []
        for task in tasks:
            blocks, scaling, split = task.layout.blocks, task.scaling, task.split
            # Where the likelihood treats all features alike, blocks count only if all columns are categorical: so it is
            # in checkpoints of before columns of several kinds were distinguished.
            if LIKELIHOODS[task.config.likelihood].columns is None and min(blocks, default=0) < 2:
                blocks = ()
            with np.errstate(all="ignore"):
                figures = np.stack([scaling.shift / scaling.scale, np.log(scaling.scale)])
            # To six digits: other machines round the last ones of a mean otherwise.
            figures = np.round(figures, 6).astype("<f8") + 0.0
            parts = (part.astype("<i8", copy=False) for part in (split.train, split.validation, split.test))
            data = {"rows": hashed(task.source, blocks), "split": digest(*parts), "scaling": digest(figures)}
            found.append(replace(task, data=data))
        return found

    def models(self, tasks: Sequence[RowsTask]) -> list[VAE]:
        start, prepared, made = cache(_start), dict[Any, Likelihood](), []
        shown = dict[Any, tuple[Effects | None, Principal | None]]()
        for task in tasks:
            config, arrays = task.config, task.source
            kind = arrays, task.split, task.layout, config.likelihood, config.dispersion, config.learn_sizes
            if kind not in prepared:
                prepared[kind] = LIKELIHOODS[config.likelihood].make(task.layout, config)
                rows = arrays.take(task.split.train)
                prepared[kind].prepare(rows.x, rows.size, rows.context)
            mean, effects = start(task.source, task.split)
            effects = None if effects is None else effects.scaled(task.scaling.scale)
            key = *kind, id(task.scaling)
            # Effects on logarithms of counts are others than those on the counts.
            apart = effects is not None and type(prepared[kind]).inputs is not Likelihood.inputs
            if (config.init == "pca" or apart) and key not in shown:
                shown[key] = _shown(task, prepared[kind])
            seen, axes = shown.get(key, (None, None))
            model = build(
                config,
                task.layout,
                mean=task.scaling.apply(mean),
                effects=effects,
                seen=seen if apart else None,
                axes=axes,
                likelihood=prepared[kind],
            )
            made.append(model.to(self.device, self.dtype))
        return made

    def engine(self, tasks: Sequence[RowsTask], models: Sequence[VAE]) -> BatchEngine:
        configs, cuda = [task.config for task in tasks], self.device.type == "cuda"
        pool = RowPool.of([(task.source, task.scaling) for task in tasks], self.device, self.dtype, whole=True)
        own = self._neighbourhoods(tasks, models, pool)
        share = self.group.share
        index = [task.split.train for task in tasks]  # of one model it is not copied: of rows on disk it may be long
        train = pool.part(torch.from_numpy(index[0][None] if len(index) == 1 else np.stack(index)), own, share)
        held_out = [validation_rows(task) for task in tasks]
        if tasks[0].source.on_disk:  # read once; the only task
            rows = tasks[0].source.take(held_out[0]).load(), tasks[0].scaling
            validation = RowPool.of([rows], self.device, self.dtype, whole=True).part(share=share)
        else:
            validation = pool.part(torch.from_numpy(np.stack(held_out)), None, share)
        steps = (configs[0].epochs or 0) * -(-len(train) // configs[0].batch_size)
        captured = cuda and share.whole and (steps >= _CAPTURE or pool.device.type == "cpu")
        return BatchEngine(models, configs, train, validation, group=self.group, captured=captured)

    def _neighbourhoods(self, tasks: Sequence[RowsTask], models: Sequence[VAE], pool: RowPool) -> Neighbourhoods | None:
        """Who is near whom among the training rows; what is the same is looked for once."""
        config = tasks[0].config
        unfolds = config.starts_unfolded and not left_out_start(config, tasks[0].source, tasks[0].split)
        if not config.uses_neighbours and not unfolds:
            return None
        keys = [(id(rows), task.split.train.tobytes()) for task, rows in zip(tasks, pool.rows, strict=True)]
        found: dict[tuple[int, bytes], Neighbourhood] = {}
        for key, task, model, rows in zip(keys, tasks, models, pool.rows, strict=True):
            if key not in found:
                found[key] = neighbourhood(rows, task.split.train, model, config.neighbours, config.n_neighbours)
        which = [list(found).index(key) for key in keys]
        return Neighbourhoods(list(found.values()), which, pool.device, config.batch_size)

    def result(self, task: RowsTask, trained: ModelInTraining) -> Fitted:
        parts = task.scaling, task.reason, task.split, trained.history, trained.failure, task.layout
        return Fitted(task.config, trained.model, *parts)

    def judge(self, tasks: Sequence[RowsTask], fitted: Sequence[Fitted]) -> list[Judged]:
        validation, test = (
            likelihoods_many(fitted, [task.source.take(getattr(task.split, part)) for task in tasks], self.samples)
            for part in ("validation", "test")
        )
        shown = slice(None) if self.shown is None else self.shown
        return [
            Judged(v.mean, t.mean, embed(one, task.source.take(shown)), one.failure)
            for v, t, one, task in zip(validation, test, fitted, tasks, strict=True)
        ]


def _hash_arrays(arrays: Arrays, blocks: tuple[int, ...]) -> str:
    """Digest of all that is known about some rows."""
    described = [arrays.x.shape, blocks, *(["missing"] if arrays.missing else [])]
    if arrays.on_disk:  # the memory decides on the order of the rows
        described.append(arrays.x.memory)
    found = hashlib.sha256(json.dumps(described).encode())
    for part in arrays.per_row.values():
        hash_rows(part, found)
    return found.hexdigest()


def _start(data: Arrays, split: Split) -> tuple[NDArray[np.float64], Effects | None]:
    """Column means and effects of the covariates, from which a model starts; of counts, for a unit of exposure."""
    arrays, unit = data.take(split.train), np.ones(1)
    if arrays.size is not None:
        unit[0] = sum(float(block.sum()) for block in row_blocks(arrays.size)) / len(arrays)
    effects = None if arrays.context is None else Effects.of(arrays.x, arrays.context).scaled(unit)
    return column_statistics(arrays.x).mean / unit, effects


def _shown(task: RowsTask, likelihood: Likelihood) -> tuple[Effects | None, Principal | None]:
    """Find the effects of the covariates on what the encoder is shown, and its principal components.

    Components are found where the map starts at them, scaled so that the first has variance 1, and without the
    directions in which covariates move rows; there are none if rows are all alike then.
    """
    index = task.split.train
    most = max(_AXES_ROWS, _AXES_NUMBERS // task.layout.features)
    if len(index) > most:
        index = index[np.sort(np.random.default_rng(0).permutation(len(index))[:most])]
    arrays = task.source.take(index)
    rows = Rows(arrays, task.scaling, whole=True)
    x = likelihood.inputs(rows.batch(torch.arange(len(rows)))).flatten(1).double().numpy()
    effects = None if arrays.context is None else Effects.of(x, in_memory(arrays.context))
    if task.config.init != "pca":
        return effects, None
    left = x if effects is None else x - x @ effects.directions.T @ effects.directions
    found = principal_axes(left, task.config.dim)
    spread = found.place(left)[:, 0].std()
    # What rounding leaves of rows in no other direction is nothing.
    varies = spread > 1e-6 * np.ptp(x, axis=0).max()
    return effects, replace(found, axes=found.axes / spread) if varies else None


def validation_rows(task: RowsTask) -> NDArray[np.int64]:
    """Choose the validation rows to look at after every epoch.

    These are all, or of epochs that are parts of a pass as many as cost little. They lie evenly among all, for tables
    may be sorted.
    """
    rows, config = task.split.validation, task.config
    if config.epoch_steps is None:
        return rows
    most = max(1, int(_LOOK * config.epoch_steps * config.batch_size))
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def digest(*arrays: NDArray[Any]) -> str:
    """Return SHA-256 of arrays."""
    found = hashlib.sha256()
    for place, array in enumerate(arrays):
        found.update(b"\n" if place else b"")
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
