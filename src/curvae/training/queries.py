"""Train a model on a query: rows of batches that it does not know, while everything that it knows stays as it is.

What is conditioned on the batch has a column for each of them: functions of the context in decoder and encoder, and the
dispersions and sizes of a likelihood. New batches are new columns, which start at the mean of the others. They alone
are trained, so that rows of known batches stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..data import Dataset, Schema
from ..models import VAE
from ..models.likelihoods.counts import Counts
from .config import Config
from .engine import BatchEngine
from .fitted import Fitted, build
from .fitting import train_one
from .rows import Split
from .rows_problem import RowsProblem, RowsTask, plan_rows
from .stacks import ModelInTraining

__all__ = ["fit_query"]


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
    model, kept = _widen(reference, known, data)
    asked = config
    if unfrozen:
        kept = {name: torch.zeros((), dtype=torch.bool) for name, _ in model.named_parameters()}
    else:
        # No place depends on what is trained but through the encoder, and a few columns learn fast.
        config = replace(config, neighbours="off", learning_rate=_FASTER * config.learning_rate)
        config = replace(config, steps=_STEPS) if (config.epochs, config.steps) == (None, "auto") else config
    splits = None if split is None else [split]
    problem, tasks = plan_rows([config], data, splits=splits, scalings=[reference.scaling], asked=device)
    found = train_one(_QueryProblem(**vars(problem), start=model, kept=kept), tasks)
    settings = {name: getattr(asked, name) for name in ("neighbours", "learning_rate", "steps")}
    return replace(found, config=replace(found.config, **settings))


def _widen(reference: Fitted, known: Schema, data: Dataset) -> tuple[VAE, dict[str, Tensor]]:
    """Return the model with columns for the batches of a query, and for each parameter that has such columns a mask of
    the others."""
    schema: Any = data.schema
    first, batches = schema.batch
    known_batches = len(known.batches.categories)  # type: ignore[union-attr, arg-type]
    model = build(
        reference.config, replace(reference.layout, covariates=len(schema.context_names), batch=schema.batch)
    ).to(reference.model.dtype)
    old, parameters = reference.model.state_dict(), dict(model.named_parameters())
    masks: dict[str, Tensor] = {}
    for name, wide in model.state_dict().items():  # in the memory of the model
        # Where there was no context, the name of a layer is shorter, and there was no function of the context.
        narrow = old.get(name, old.get(name.replace(".layers.", ".", 1)))
        if narrow is not None and narrow.shape == wide.shape:
            wide.copy_(narrow)
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
