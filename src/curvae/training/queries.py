"""Train a model on a query: rows of batches that it does not know, while everything that it knows stays as it is.

What is conditioned on the batch has a column for each of them: functions of the context in decoder and encoder, and the
dispersions and sizes of a likelihood. New batches are new columns, which start at the mean of the others. They also
have dispersions and a last layer of the decoder of their own: a column is the same for all rows of a batch, and what
changes in some kinds of rows may not change in others. These alone are trained, so that rows of known batches stay
where they are.

An encoder that is told batches is shown the counts of new ones as they would be in the known ones: multiplied by the
ratio of what the decoder expects of both at the place of the row. So rows of new batches lie among those of their kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import Arrays, Dataset, Schema
from ..data.disk import in_memory
from ..maps.statistics import Array
from ..models import VAE, Batch
from ..models.likelihoods.counts import Counts
from ..models.likelihoods.negative_binomial import NegativeBinomial
from .engine import BatchEngine
from .fitted import Config, Fitted, build
from .fitting import RowsProblem, RowsTask, plan_rows, train_one
from .rows import Split
from .stacks import ModelInTraining

__all__ = [
    "fit_query",
    "fit_scores",
    "held_out_fit",
    "unknown_probability",
]


_FASTER, _STEPS = 5, 600  # times the learning rate for new columns alone, and how many steps suit them


@dataclass(frozen=True)
class _QueryProblem(RowsProblem):
    """Rows on which a trained model is trained further.

    Arguments:
        start: the model.
        kept: the parameters to train, each with a mask of what stays as it is.
    """

    start: VAE | None = None
    kept: Mapping[str, Tensor] = field(default_factory=dict)

    def models(self, tasks: Sequence[RowsTask]) -> list[VAE]:
        model: Any = deepcopy(self.start)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in self.kept)
        return [model.to(self.device, self.dtype)]

    def engine(self, tasks: Sequence[RowsTask], models: Sequence[VAE]) -> BatchEngine:
        engine = super().engine(tasks, models)
        engine.optimiser.keep({name: mask.to(self.device) for name, mask in self.kept.items()})
        return engine

    def result(self, task: RowsTask, trained: ModelInTraining) -> Fitted:
        trained.model.requires_grad_(True)
        return super().result(task, trained)


def fit_query(
    reference: Fitted,
    known: Schema,
    data: Dataset,
    config: Config,
    *,
    unfrozen: bool = False,
    split: Split | None = None,
    device: torch.device | str = "cpu",
) -> Fitted:
    """Train what a model does not know about the rows of a query.

    Arguments:
        reference: the model.
        known: schema of its data.
        data: the query, whose schema has further batches.
        config: how to train.
        unfrozen: train everything, so that rows of the reference move.
        split, device: as of `fit`.
    """
    schema: Any = data.schema
    known_batches = len(known.batches.categories)  # type: ignore[union-attr, arg-type]
    layout = replace(reference.layout, covariates=len(schema.context_names), batch=schema.batch)
    if not unfrozen:
        layout = replace(layout, queried=layout.queried + schema.batch[1] - known_batches)
        if isinstance(reference.model.likelihood, NegativeBinomial) and config.dispersion == "gene":
            config = replace(config, dispersion="gene-batch")
    built = replace(reference.config, dispersion=config.dispersion)
    model, kept = _widen(reference, build(built, layout), known, known_batches, data)
    asked = config
    if unfrozen:
        kept = {name: torch.zeros((), dtype=torch.bool) for name, _ in model.named_parameters()}
    else:
        # No place depends on what is trained but through the encoder, and a few columns learn fast.
        config = replace(config, neighbours="off", learning_rate=_FASTER * config.learning_rate)
        config = replace(config, steps=_STEPS) if (config.epochs, config.steps) == (None, "auto") else config
    splits = None if split is None else [split]
    plan, (task,) = plan_rows([config], data, splits=splits, scalings=[reference.scaling], asked=device)
    problem, epochs = _QueryProblem(**vars(plan), start=model, kept=kept), task.config.epochs or 1
    history: list[Any] = []
    if model.queried is not None and epochs > 1 and not unfrozen:
        # How the encoder translates follows from what the decoder has learned, which is nothing at first.
        queried, model.queried = model.queried, None
        first = train_one(problem, [replace(task, config=replace(task.config, epochs=epochs - epochs // 2))])
        first.model.queried, history = queried, first.history
        problem = replace(problem, start=first.model)
        task = replace(task, config=replace(task.config, epochs=epochs // 2, learning_rate=asked.learning_rate))
    found = train_one(problem, [task])
    history = [*history, *({**record, "epoch": len(history) + record["epoch"]} for record in found.history)]
    settings = {name: getattr(asked, name) for name in ("neighbours", "learning_rate", "steps")}
    return replace(found, config=replace(found.config, **settings, epochs=epochs), layout=layout, history=history)


def _widen(
    reference: Fitted, model: VAE, known: Schema, known_batches: int, data: Dataset
) -> tuple[VAE, dict[str, Tensor]]:
    """Return a fresh model with columns for the batches of a query and all weights of the reference, and for each
    parameter that has such columns a mask of the others."""
    first, batches = data.batch
    model = model.to(reference.model.dtype)
    old = {name: value.cpu() for name, value in reference.model.state_dict().items()}
    parameters = dict(model.named_parameters())
    masks: dict[str, Tensor] = {}
    for name, wide in model.state_dict().items():  # in the memory of the model
        # Where there was no context, the name of a layer is shorter, and there was no function of the context.
        narrow = old.get(name, old.get(name.replace(".layers.", ".", 1)))
        if narrow is not None and narrow.shape == wide.shape:
            wide.copy_(narrow)
            continue
        if name.endswith(".slopes"):
            held = 0 if narrow is None else len(narrow)
            wide[:held] = narrow if held else 0.0
            masks[name] = (torch.arange(len(wide)) < held)[:, None, None]
            continue
        shift = ".shifts." in name
        start, columns = (first, wide.mT) if shift else (0, wide)
        given = columns[:0] if narrow is None else narrow.mT if shift else narrow.reshape(-1, *columns.shape[1:])
        told = given[start : start + known_batches] if known.batch or not shift else given[:0]
        new = torch.zeros(len(columns), dtype=torch.bool)
        new[start + known_batches : start + batches] = True
        place = torch.arange(len(columns))
        own = ~new & ((place < start) | (place >= start + known_batches - len(told)))
        columns[:] = told.mean(0) if len(told) else 0.0
        columns[own] = given
        if name in parameters:
            masks[name] = ~new if shift else ~new[:, None]
    if isinstance(model.likelihood, Counts) and model.likelihood.sizes is not None:
        found = model.likelihood.size_moments(data.exposure, data.context)
        model.likelihood.log_sizes[known_batches:] = found[known_batches:].to(model.likelihood.log_sizes.dtype)
    return model, masks


# Which rows belong to no part of what a model was trained on?
#
# The log-likelihood of a row depends on its size. So it is compared with that of rows that the model itself draws at
# the same place: by how many standard deviations does it differ? These scores are those of unknown batches for all
# rows, so that rows of the reference that were held out and rows of a query have the same. A query has a shift of its
# own, for its batches are others; rows of nothing known are far below the rest.


_DRAWS, _ROWS = 5, 256  # of every row, and rows at once
_FEWEST, _HELD_OUT = 20, 500  # rows held out that tell how well known ones fit, at least and at most
_SHIFT, _WIDER = 3.0, 1.5  # standard deviations by which known rows of a query may lie lower, and how much wider
_APART = 2.0  # standard deviations of known rows in a scale of unknown ones, at least
_MIXTURE_STEPS, _STARTS = 100, (0.25, 0.5, 0.75, 0.9)


@torch.no_grad()
def fit_scores(fitted: Fitted, data: Dataset, seed: int = 0) -> Array:
    """Return by how many standard deviations the evidence lower bound of each row exceeds that of rows like it.

    Arguments:
        fitted: a model of counts.
        data: the rows, whose batches are not looked at: others than those of the model do.
        seed: of the draws.
    """
    fitted = fitted.double()
    rows, model = fitted.rows(_of_any_batch(fitted, data)), deepcopy(fitted.model)
    likelihood: Any = model.likelihood
    likelihood.sizes = None  # those of a query need not be those of the reference
    generator = torch.Generator(model.device).manual_seed(seed)

    def bound(batch: Batch) -> tuple[Tensor, Tensor]:
        z, kl = model.draw(batch, model.noise(len(batch), 1, generator))
        return z, (model.reconstruction(z, batch) - kl)[0]

    found = []
    for index in torch.arange(len(rows)).split(_ROWS):
        batch = rows.batch(index)
        z, own = bound(batch)
        outputs = model.decode(z, batch.context)
        drawn = [likelihood.sample(outputs, batch, generator)[0] for _ in range(_DRAWS)]
        sizes = [x.sum(1).clamp_min(1.0) if fitted.layout.total else batch.size for x in drawn]
        others = [Batch(x, context=batch.context, size=size) for x, size in zip(drawn, sizes, strict=True)]
        found.append(torch.stack([own, *(bound(other)[1] for other in others)]))
    own, *expected = torch.cat(found, 1).cpu().numpy()
    mean, variance = np.mean(expected, 0), np.var(expected, 0, ddof=1)
    # A few draws tell a variance badly; it grows with the size of the row as the mean does.
    known = np.stack([np.ones_like(mean), np.log(np.abs(mean))], 1)
    slopes = np.linalg.lstsq(known, np.log(np.maximum(variance, 1e-12)), rcond=None)[0]
    smooth = np.exp(known @ slopes)
    return (own - mean) / np.sqrt(smooth * np.mean(variance) / np.mean(smooth))


def _of_any_batch(fitted: Fitted, data: Dataset) -> Arrays:
    """Return rows as a model sees those of a batch that it does not know: with equal shares of all that it knows."""
    arrays = data.arrays
    if arrays.context is None or not data.batch:
        return arrays
    first, count = data.batch
    context, batches = np.array(in_memory(arrays.context)), fitted.layout.batch[1] if fitted.layout.batch else 0
    shares = np.full((len(context), batches), 1 / max(1, batches))
    context = np.concatenate([context[:, :first], shares, context[:, first + count :]], 1)
    return replace(arrays, context=context if context.shape[1] else None, batch=fitted.layout.batch)


def held_out_fit(fitted: Fitted, data: Dataset) -> dict[str, float]:
    """Return mean and standard deviation of the scores of rows that were held out, or of others if there are few."""
    split, random = fitted.split, np.random.default_rng(0)
    rows = np.concatenate([split.validation, split.test])
    rows = rows if len(rows) >= _FEWEST else split.train
    scores = fit_scores(fitted, data.take(np.sort(random.permutation(rows)[:_HELD_OUT])).load())
    return {"mean": float(scores.mean()), "deviation": float(scores.std())}


def unknown_probability(scores: Array, mean: float, deviation: float) -> Array:
    """Return the probability of every row that nothing like it is known.

    Scores are a mixture: those of known rows are normal, as those held out but for a shift that all have in common, and
    those of others lie below by a gamma distributed distance. Its parameters are the likeliest ones.

    Arguments:
        scores: of all rows of a query.
        mean, deviation: of the scores of known rows, see `held_out_fit`.

    Example:
        >>> random = np.random.default_rng(0)
        >>> found = unknown_probability(np.concatenate([random.normal(size=80), random.normal(-20, 5, 20)]), 0.0, 1.0)
        >>> bool(found[:80].max() < 0.5 < found[80:].min())
        True
    """
    starts = np.quantile(scores, _STARTS)
    return max((_mixture(scores, start, mean, deviation) for start in starts), key=lambda found: found[0])[1]


def _mixture(scores: Array, place: float, mean: float, deviation: float) -> tuple[float, Array]:
    """Return the log-likelihood of a mixture that was fitted from a start on, and the probabilities of unknown rows."""
    share, width, scale = 0.1, deviation, 5 * deviation
    total, unknown = 0.0, np.zeros(len(scores))
    for _ in range(_MIXTURE_STEPS):
        place = max(place, mean - _SHIFT * deviation)
        below = np.maximum(place - scores, 0.0)
        known = -(((scores - place) / width) ** 2) / 2 - math.log(math.sqrt(2 * math.pi) * width)
        apart = np.log(np.maximum(below, 1e-300)) - below / scale - 2 * math.log(scale)  # gamma distributed, of shape 2
        logs = np.stack([known + math.log(1 - share), apart + math.log(share)])
        top = np.logaddexp(*logs)
        total, unknown = float(top.sum()), np.exp(logs[1] - top)
        known = 1 - unknown
        share = float(np.clip(unknown.mean(), 1e-6, 1 - 1e-6))
        place = float(known @ scores / max(known.sum(), 1e-9))
        spread = math.sqrt(float(known @ (scores - place) ** 2) / max(known.sum(), 1e-9))
        width = min(max(spread, deviation), _WIDER * deviation)
        scale = max(float(unknown @ below) / (2 * max(unknown.sum(), 1e-9)), _APART * deviation)
    return total, unknown
