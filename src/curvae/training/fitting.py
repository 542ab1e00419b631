"""Training of models of rows: what is chosen for them from the data, and one of them or a whole list at once."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from numpy.typing import NDArray

from ..data import Arrays, memory
from ..data.dataset import Scaling, column_statistics, hash_rows
from ..data.disk import in_memory
from ..errors import CurvaeError
from ..maps.statistics import Principal, principal_axes
from ..models import LIKELIHOODS, VAE, Layout, Likelihood
from ..models.likelihoods import choose_likelihood
from ..models.likelihoods.base import row_blocks
from ..settings import resolve_defaults
from .engine import BatchEngine
from .fitted import Config, Effects, Fitted, Record, build, choose_device, embed, likelihoods_many
from .neighbourhoods import Neighbourhood, Neighbourhoods, neighbourhood
from .processes import is_worker, require_shareable, run_worker, train_distributed
from .rows import HELD_OUT, Data, RowPool, Rows, Split, layout_of, random_split
from .stacks import (
    FittedT,
    Judged,
    Listener,
    ModelInTraining,
    Problem,
    Task,
    TaskT,
    Warn,
    existing_checkpoints,
    require_one_each,
    train_stack,
)

__all__ = [
    "SAMPLES",
    "RowsProblem",
    "RowsTask",
    "chosen_likelihood",
    "default_jobs",
    "digest",
    "fit",
    "fit_many",
    "left_out_start",
    "plan_rows",
    "scaling_for",
    "stacks",
    "train_many",
    "train_one",
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
        if size.shape != (len(arrays),) or not all(np.all(np.isfinite(x) & (x > 0)) for x in row_blocks(size)):
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
        scaling = replace(scaling, scale=scaling.scale * np.sqrt(np.where(left > _EXPLAINED, left, 1.0)))
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
        tasks.append(RowsTask(i, Task.label(i, len(configs), config), config, arrays, split, scaling, layout, reason))
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
            data = {
                "rows": hashed(task.source, blocks),
                "split": digest(*(part.astype("<i8", copy=False) for part in split.parts)),
                "scaling": digest(figures),
            }
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
            memory.return_freed()  # what looking for neighbours took
            rows = tasks[0].source.take(held_out[0]).load(), tasks[0].scaling
            validation = RowPool.of([rows], self.device, self.dtype, whole=True).part(share=share)
        else:
            validation = pool.part(torch.from_numpy(np.stack(held_out)), None, share)
        steps = (configs[0].epochs or 0) * -(-len(train) // configs[0].batch_size)
        return BatchEngine(
            models,
            configs,
            train,
            validation,
            group=self.group,
            captured=cuda and share.whole and (steps >= _CAPTURE or pool.device.type == "cpu"),
        )

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
        if task.source.on_disk:
            memory.return_freed()  # what the training took
        return Fitted(
            task.config,
            trained.model,
            task.scaling,
            task.reason,
            task.split,
            trained.history,
            trained.failure,
            task.layout,
        )

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


def fit(
    config: Config,
    x: Data,
    *,
    blocks: tuple[int, ...] = (),
    split: Split | None = None,
    scaling: Scaling | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
    resume: bool = False,
    processes: int = 1,
    progress: Callable[[Record, int], None] = lambda record, epochs: None,
) -> Fitted:
    """Train a model.

    By default the weights are those of the epoch that was best on validation rows. Without progress on them, training
    goes back to the best weights, lets the learning rate fall and ends. Without such rows, or with `patience=None`, the
    last weights are kept.

    The order of rows and all noise of an epoch come from (seed, epoch) alone, so that a run that was interrupted and
    resumed from its checkpoint ends with the same weights as one that was not.

    Arguments:
        config: what to train; "auto" choices are resolved in the result.
        x: rows in original units: a numpy array, a scipy CSR matrix, a `Dataset`, whose rows may lie on disk, or
            `curvae.data.Arrays`.
        blocks: of a plain matrix, for each column the number of its categories, which are one-hot columns; 0 for a
            column of numbers, 1 for a binary one.
        split: rows for training and validation; by default at random from the configuration, with at most 10,000 rows
            for validation.
        scaling: how to scale columns; by default from all rows that are not test rows.
        device: where to train.
        dtype: of the networks; the latent space is always float64.
        folder: keeps `metrics.jsonl` and `checkpoint/`; without it nothing is written.
        resume: go on from the checkpoint in `folder`, if there is one; otherwise it is removed. Settings and data must
            be those of the start, but for more epochs, for which a learning rate that has fallen rises again.
        processes: that train the model together, each on a share of every batch, with the losses of a single one: a
            divisor of 64. On CUDA each has a GPU. The script that asks for several must be importable
            (`if __name__ == "__main__":`), or is started by `torchrun` with as many.
        progress: called after each epoch with its record and the number of epochs.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(40, 3))
        >>> fitted = fit(Config(epochs=2, hidden=(8,)), x)
        >>> sorted(fitted.history[0])[:5]
        ['c', 'elbo', 'epoch', 'kl', 'neighbours']
    """
    require_shareable(processes, config, device)
    if processes > 1 and config.neighbours == "auto":
        config = replace(config, neighbours="off")
    splits, scalings = None if split is None else [split], None if scaling is None else [scaling]
    return train_one(
        *plan_rows([config], x, blocks, splits, scalings, asked=device, dtype=dtype),
        folder,
        resume,
        progress,
        processes,
    )


def fit_many(
    configs: Sequence[Config],
    data: Data | Sequence[Data],
    *,
    blocks: tuple[int, ...] = (),
    splits: Sequence[Split] | None = None,
    scalings: Sequence[Scaling] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    warn: Callable[[str], None] = lambda text: None,
) -> list[Fitted]:
    """Train many models at once, each as `fit` would train it alone.

    Models of one architecture are stacked: one step of the stack costs little more than one of a single model. Seeds,
    curvatures above 0, prior scales, learning rates and β may differ within a stack, and so may the rows; other
    differences make a further stack. A model whose loss is not a number ends there, keeps the weights of its last good
    epoch and has `failure` set; the others go on.

    Arguments:
        configs: what to train.
        data: rows for all of them, or a list with the rows of each.
        blocks, device, dtype: as of `fit`.
        splits, scalings: of each.
        folder: keeps `checkpoint/`, and `metrics.jsonl` of the first model. Workers of a cluster must see it too.
        resume: go on from the checkpoints in `folder`, where there are any, in the stacks that they hold; otherwise
            they are removed. Settings and data must be those of the start, but for more epochs or a list that goes on
            after its end; `jobs` may be another.
        jobs: processes that train stacks at the same time, with one thread each. By default all are trained in this
            process, or by the workers that `joblib.parallel_config` around the call names, as of a Dask cluster. On a
            CPU give as many as there are cores; the script that asks for several must be importable
            (`if __name__ == "__main__":`).
        progress: called with the epochs done and to do, counted over all models.
        warn: called with one line for every model that failed.

    Example:
        Twenty seeds by five curvatures, a hundred models, on rows that they all share:

        >>> from itertools import product
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(40, 3))
        >>> settings = product(range(20), (0.1, 0.3, 0.8, 1.0, 1.2))
        >>> configs = [Config(seed=seed, curvature=c, epochs=1, hidden=(8,)) for seed, c in settings]
        >>> fitted = fit_many(configs, x)
        >>> len(fitted), fitted[7].config.seed, fitted[7].config.curvature
        (100, 1, 0.8)
    """
    return train_many(
        *plan_rows(configs, data, blocks, splits, scalings, asked=device, dtype=dtype),
        folder=folder,
        resume=resume,
        jobs=jobs,
        progress=progress,
        warn=warn,
    )


def train_one(
    problem: Problem[TaskT, FittedT],
    tasks: Sequence[TaskT],
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[Record, int], None] = lambda record, epochs: None,
    processes: int = 1,
) -> FittedT:
    """Train the model of a single task; arguments as of `fit`."""
    if is_worker(processes):
        return run_worker()
    tasks, _ = _resumed(problem, tasks, folder, resume)
    listener = Listener(lambda place, record: progress(record, tasks[0].config.epochs or 0))
    train = train_stack if processes == 1 else partial(train_distributed, processes)
    (fitted,) = train(problem, tasks, listener, folder=folder, resume=resume)
    if fitted.failure is not None:
        raise CurvaeError(fitted.failure)
    return fitted


def train_many(
    problem: Problem[TaskT, Any],
    tasks: Sequence[TaskT],
    *,
    folder: Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    warn: Warn = lambda text: None,
    work: Callable[..., list[Any]] = train_stack,
) -> list[Any]:
    """Train the models of all tasks; arguments as of `fit_many`.

    `work` trains a stack and makes of it what is returned, where it is trained: only that travels.
    """
    jobs = jobs or joblib.effective_n_jobs(None)
    if folder is not None and jobs != 1:
        folder = folder.absolute()  # for workers that were started earlier, in another directory
    tasks, known = _resumed(problem, tasks, folder, resume)
    train = partial(work, problem, folder=folder, resume=resume)
    total = sum(task.config.epochs or 0 for task in tasks)
    pieces = stacks(tasks, jobs, known)
    found: dict[int, Any] = {}
    if jobs == 1:
        counts = np.zeros(len(tasks), np.int64)

        def tick(place: int, record: Record) -> None:
            # No fewer than before: halves of a stack start again.
            counts[place] = max(counts[place], record["epoch"])
            progress(int(counts.sum()), total)

        for stack in pieces:
            found |= zip((task.place for task in stack), train(stack, Listener(tick, warn)), strict=True)
    else:
        with _counters(len(tasks), lambda done: progress(done, total)) as path:
            calls = (joblib.delayed(_apart)(train, stack, path, os.getpid()) for stack in pieces)
            for stack, (results, warnings) in zip(pieces, joblib.Parallel(n_jobs=jobs)(calls), strict=True):
                found |= zip((task.place for task in stack), results, strict=True)
                for text in warnings:
                    warn(text)
    progress(total, total)
    return [found[task.place] for task in tasks]


def _resumed(
    problem: Problem[TaskT, Any], tasks: Sequence[TaskT], folder: Path | None, resume: bool
) -> tuple[Sequence[TaskT], list[list[int]]]:
    """Return the tasks as checkpoints describe them, and which of them are in checkpoints of the folder."""
    if folder is None:
        return tasks, []
    return problem.fingerprinted(tasks), existing_checkpoints(folder, resume, len(tasks))


# Stacks that are trained at the same time, in processes of this machine or by workers of a cluster that joblib knows.

_LOOK_EVERY = 0.2  # seconds between two looks at what the processes have done


def stacks(tasks: Sequence[TaskT], shares: int = 1, resumed: Sequence[Sequence[int]] = ()) -> list[list[TaskT]]:
    """Group tasks of one architecture, in about as many pieces as `shares`, of similar size.

    Equal learning rates lie together. Stacks that have checkpoints, given by the places of their tasks, stay as they
    are.
    """
    groups: dict[Any, list[TaskT]] = {}
    for task in tasks:
        groups.setdefault(task.architecture, []).append(task)
    known = {task.place: task for task in tasks}
    found = [[known.pop(place) for place in places] for places in resumed]
    for group in groups.values():
        group.sort(key=lambda task: task.config.learning_rate)
        pieces = min(len(group), max(1, round(shares * len(group) / len(tasks))))
        ends = [len(group) * i // pieces for i in range(pieces + 1)]
        # The others stay together as they would have been, if the shares are those of before.
        left = ([task for task in group[a:b] if task.place in known] for a, b in pairwise(ends))
        found += filter(None, left)
    return found


def default_jobs(device: torch.device | str) -> int:
    """Return how many processes a command uses: one a core, and a single one on CUDA, unless joblib is configured."""
    if (jobs := joblib.effective_n_jobs(None)) > 1:
        return int(jobs)
    return 1 if choose_device(str(device)).type == "cuda" else int(joblib.cpu_count())


def _apart(
    work: Callable[..., list[Any]], stack: Sequence[TaskT], path: str, owner: int
) -> tuple[list[Any], list[str]]:
    """Return the results and warnings of a stack, in a process that ends with the `owner` if that started it."""
    torch.set_num_threads(1)
    started_by = parent_process()  # which may have ended by now
    owned = started_by is not None and started_by.pid == owner
    warnings: list[str] = []
    # A worker on another machine does not see the file and does not count.
    counts = np.memmap(path, np.int64, "r+") if Path(path).exists() else None

    def tick(place: int, record: Record) -> None:
        if owned and _has_ended(owner):
            os._exit(1)  # it was killed, and nobody waits for the result
        if counts is not None:  # no fewer than before: another worker may start again
            counts[place] = max(counts[place], record["epoch"])

    return work(stack, Listener(tick, warnings.append)), warnings


def _has_ended(owner: int) -> bool:
    """Whether the process that started this one, maybe by way of another one, is gone."""
    if os.getppid() == owner:
        return False
    try:
        os.kill(owner, 0)  # sends nothing
    except OSError:
        return True
    return False


@contextmanager
def _counters(tasks: int, report: Callable[[int], None]) -> Iterator[str]:
    """Make a file in which processes count epochs, and report their sum every now and then.

    Windows does not remove a file that is still mapped; it is left to those who clear temporary files.
    """
    with tempfile.TemporaryDirectory(prefix="curvae-", ignore_cleanup_errors=True) as folder:
        path = str(Path(folder) / "epochs")
        counts: Any = np.memmap(path, np.int64, "w+", shape=(tasks,))
        ended = threading.Event()

        def read() -> None:
            while not ended.wait(_LOOK_EVERY):
                if done := int(np.sum(counts)):
                    report(done)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield path
        finally:
            ended.set()
            reader.join()
