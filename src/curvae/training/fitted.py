"""A trained model with what is needed to use it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data import Arrays, Dataset, EdgeSplit, Schema
from ..data.dataset import Scaling
from ..data.files import quoted
from ..errors import CurvaeError
from ..models import VAE, Batch, Layout
from ..models.likelihoods.base import Matrix
from ..nn.space import FactorFigures
from .build import build
from .config import Config, Settings
from .rows import Rows, Split

__all__ = ["METRICS", "Fitted", "FittedModel", "Record", "Stored", "held_out_score", "restored_model", "tolerance"]

Record = dict[str, Any]

METRICS = "metrics.jsonl"
_DECODED = 1024  # points decoded at once

Model = TypeVar("Model", bound=nn.Module)


# What files hold of a trained model besides its weights: arrays and the split, by name, and what `config.json` says.
Stored = tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], dict[str, Any]]


def held_out_score(record: Record) -> float:
    """Return what early stopping goes by.

    Of a graph it is the AUC of its validation edges; of rows the ELBO of the validation rows less what the map misses
    of the neighbourhoods of the training rows; −∞ for an epoch after which nobody looked.
    """
    if "validation_auc" in record:
        return float(record["validation_auc"])
    return record.get("validation_elbo", -math.inf) - record.get("neighbours", 0.0)


def tolerance(split: Any) -> float:
    """Return by how much a score on data held out may fall short of the best for later weights to be kept.

    Of a graph that is what a single validation edge can change in their AUC: a difference below that does not tell
    which of two steps is better, and the later one has learned more. Of rows it is 0.
    """
    return 1.0 / max(1, len(split.validation)) if isinstance(split, EdgeSplit) else 0.0


def kept_record(history: Sequence[Record], tolerance: float) -> Record:
    """Return the record of the weights that early stopping keeps: of the best score, or of the last one that comes
    nearer to it than the tolerance."""
    best = max(history, key=held_out_score)
    near = [record for record in history if held_out_score(record) > held_out_score(best) - tolerance]
    return near[-1] if near else best


class FittedModel(ABC):
    """A trained model of rows or of a graph.

    Attributes:
        kind: its name in `config.json`.
        settings: class of its configuration.
        units: whether distances in a product of spaces are in units of the prior scales.
        kinds: all such classes, by the names of their kinds.
    """

    kinds: ClassVar[dict[str, type[FittedModel]]] = {}
    kind: ClassVar[str]
    settings: ClassVar[type[Settings]]
    units: ClassVar[bool] = True

    config: Any
    model: Any
    split: Any
    history: list[Record]
    failure: str | None

    def __init_subclass__(cls) -> None:
        cls.kinds[cls.kind] = cls

    def double(self) -> Self:
        """Return the same with networks in float64, whose figures for a row do not depend on the rows around it."""
        if self.model.dtype == torch.float64:
            return self
        return replace(self, model=deepcopy(self.model).double())  # type: ignore[type-var]

    @property
    def last(self) -> Record:
        """Record of the epoch whose weights the model has: the last good one, or with early stopping the best.

        A model that failed has the weights of its last good epoch in any case.
        """
        return kept_record(self.history, tolerance(self.split)) if self.keeps_best else self.history[-1]

    @property
    def keeps_best(self) -> bool:
        """Whether the weights are those of the epoch that was best on data held out, and not the last."""
        looked = any(math.isfinite(held_out_score(record)) for record in self.history)
        return self.config.patience is not None and self.failure is None and looked

    @property
    def figures(self) -> tuple[FactorFigures, ...]:
        """The numbers of every factor of the space, from the record of that epoch."""
        space, last = self.model.space, self.last
        values = [last[name] for name in space.numbers()]  # c and prior scale of one factor after the other
        each = zip(space.figures(), values[::2], values[1::2], strict=True)
        return tuple(one._replace(c=c, prior_scale=scale) for one, c, scale in each)

    @property
    def factor_figures(self) -> dict[str, Any]:
        """c, prior scale and their identifiable product, for `config.json`; of a product a list each."""
        each = {name: [getattr(one, name) for one in self.figures] for name in ("c", "prior_scale", "identifiable")}
        return {name: values[0] if len(values) == 1 else values for name, values in each.items()}

    @abstractmethod
    def stored(self, data: Any) -> Stored:
        """Return what to write; `data` is the graph that it was trained on, where it was one."""

    @classmethod
    @abstractmethod
    def restore(
        cls,
        description: dict[str, Any],
        tensors: dict[str, Tensor],
        places: dict[str, Tensor],
        history: list[Record],
    ) -> tuple[Self, Any]:
        """Restore the model and its data, a graph or the schema of a table, from the files of a run.

        Arguments:
            description: what `config.json` holds.
            tensors, places: those of `model.safetensors` and of `embedding.safetensors`.
            history: the records of `metrics.jsonl`.
        """


@dataclass
class Fitted(FittedModel):
    """A trained model of rows with what is needed to use it.

    Arguments:
        config, model: what was trained.
        scaling: of the columns.
        reason: why this likelihood.
        split: which rows it was trained on.
        history: a record of every epoch.
        failure: why the training ended early; the weights are those of the last good epoch.
        layout: of the data that it was trained on.
    """

    kind = "vae"
    settings = Config

    config: Config
    model: VAE
    scaling: Scaling
    reason: str
    split: Split
    history: list[Record]
    failure: str | None = None
    layout: Layout = field(default_factory=lambda: Layout(0))

    def arrays(self, data: Arrays | Dataset | Matrix) -> Arrays:
        """Return new data with all that the model needs to know about them; raise where that is absent.

        NaN are missing values if the model was trained with such.
        """
        arrays = Arrays.of(data)
        if self.layout.size and arrays.size is None:
            raise CurvaeError("the model was trained with an exposure for each row; give it: Arrays(x, size=exposure)")
        return replace(arrays, missing=True) if self.layout.missing else arrays

    def rows(self, x: Arrays | Dataset | Matrix) -> Rows:
        """Return new data as the model sees it."""
        return Rows(self.arrays(x), self.scaling, self.model.device, self.model.dtype)

    def require_covariates(self, data: Arrays | Dataset, schema: Schema, name: str, decode: bool) -> None:
        """Raise for new data without the covariates that the encoder or, with `decode`, the decoder needs.

        Arguments:
            data: the rows.
            schema: of the data that the model was trained on.
            name: of the data, for the error.
            decode: whether the decoder is used.
        """
        if schema.covariates and data.context is None and (decode or self.config.encode_covariates):
            names = quoted(column.name for column in schema.covariates)
            others = (
                " (for cells of other batches, make a model with curvae map)"
                if schema.kind == "cells" and schema.batch
                else ""
            )
            raise CurvaeError(f"{name} needs the covariates that the model was trained with: {names}; add them{others}")

    def sample(self, count: int, context: NDArray[Any], seed: int = 0, *, mean: bool = False) -> NDArray[np.float64]:
        """Draw new rows in original units, or with `mean` the expected rows at points drawn from the prior.

        Arguments:
            count: number of rows.
            context: covariates of all rows or of each one, as `curvae.data.tables.code_values` gives them.
            seed: of the draws.
            mean: return E[x | z] of every point instead of a draw.
        """
        model = self.model
        generator = torch.Generator(model.device).manual_seed(seed)
        covariates = torch.from_numpy(context).to(model.device, model.dtype)
        drawn = model.sample(count, generator, mean=mean, context=covariates)
        return self.scaling.invert(drawn.cpu().double().numpy())

    def reconstruct(
        self, space: NDArray[Any], *, context: NDArray[Any] | None = None, size: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """Return the expected rows E[x | z] at points, in original units.

        Arguments:
            space: points S, (rows, d).
            context: covariates of each row, if the model uses some.
            size: exposure of each row, for counts; by default 1.
        """
        model = self.model
        points = torch.from_numpy(np.array(space, dtype=np.float64)).to(model.device)
        whole = Batch(
            points,
            context=None if context is None else torch.from_numpy(context).to(model.device, model.dtype),
            size=None if size is None else torch.from_numpy(size).to(points),
        )
        means = []
        with torch.no_grad():
            for index in torch.arange(len(points), device=points.device).split(_DECODED):
                batch = whole.map(partial(torch.index_select, dim=0, index=index))
                means.append(model.likelihood.mean(model.decode(batch.x, batch.context), batch))
        return self.scaling.invert(torch.cat(means).cpu().double().numpy())

    def stored(self, data: Any = None) -> Stored:
        rows = sum(len(part) for part in (self.split.train, self.split.validation, self.split.test))
        split = np.zeros(rows, np.int8)
        split[self.split.validation], split[self.split.test] = 1, 2
        description = {"likelihood_reason": self.reason, "layout": self.layout.to_json()}
        return self.scaling.to_arrays(), {"split": split}, description

    @classmethod
    def restore(
        cls,
        description: dict[str, Any],
        tensors: dict[str, Tensor],
        places: dict[str, Tensor],
        history: list[Record],
    ) -> tuple[Fitted, Schema]:
        config = Config.from_json(description["config"])
        schema = Schema.from_json(description["data"]["schema"])
        layout = Layout.from_json(description["layout"])
        model = restored_model(tensors, (layout.inputs, *config.layers, config.dim), lambda: build(config, layout))
        split = places["split"].numpy()
        parts = Split(*(np.flatnonzero(split == k) for k in range(3)))
        reason = str(description.get("likelihood_reason", ""))
        return cls(config, model, Scaling.from_tensors(tensors), reason, parts, history, layout=layout), schema


def restored_model(tensors: Mapping[str, Tensor], sizes: Sequence[int], make: Callable[[], Model]) -> Model:
    """Give the model that `make` makes its weights; `sizes` are the widths of its encoder, from what it reads on."""
    state = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    # The encoder alone holds so many weights: sizes that someone made up are refused before they are allocated.
    if sum(a * b for a, b in pairwise(sizes)) > sum(t.numel() for t in state.values()):
        raise ValueError(f"layers of {', '.join(map(str, sizes))} are larger than the file")
    model = make()
    model.load_state_dict(state)
    return model.eval()
