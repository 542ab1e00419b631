"""Models of rows: fresh from a configuration, with effects of covariates and a start at principal components, and
trained, with what is needed to use them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data import Arrays, Dataset, EdgeSplit, Schema, memory
from ..data.column_statistics import column_statistics, fill, has_missing
from ..data.dataset import Scaling
from ..data.files import quoted
from ..errors import CurvaeError
from ..maps.statistics import Principal
from ..models import LIKELIHOODS, VAE, Batch, Layout, Likelihood, Posterior
from ..models.likelihoods.base import Matrix, aligned_blocks, row_blocks
from ..nn import NETWORKS, Conditioned, Space, decoder
from ..nn.networks import drop_units
from ..nn.space import FactorFigures
from .config import Config, Settings
from .rows import Rows, Split

__all__ = [
    "METRICS",
    "Effects",
    "Fitted",
    "FittedModel",
    "Record",
    "Stored",
    "build",
    "held_out_score",
    "make_space",
    "require_buildable",
    "restored_model",
    "seeded",
    "tolerance",
]


# From a configuration to a fresh model. How columns depend on covariates, by least squares:


@dataclass(frozen=True)
class Effects:
    """x ≈ mean + (context − centre)·slopes.

    Arguments:
        centre: mean of the context, (covariates,).
        slopes: of the columns, (covariates, features).
        variance: how much of the variance of each column the covariates make, (features,).

    Example:
        >>> batch = np.eye(2)[[0, 0, 1, 1]]
        >>> found = Effects.of(np.array([[1.0], [3.0], [5.0], [7.0]]), batch)
        >>> found.slopes.round(6).tolist(), found.removed(np.array([[5.0]]), batch[2:3]).round(6).tolist()
        ([[-2.0], [2.0]], [[3.0]])
    """

    centre: NDArray[np.float64]
    slopes: NDArray[Any]
    variance: NDArray[Any]

    @classmethod
    def of(cls, x: Any, context: Any) -> Effects:
        """Find the effects on the columns of a matrix, dense, sparse or on disk, in which missing values count as the
        mean of their column."""
        rows, known = x.shape[0], column_statistics(x)
        centre = sum(block.sum(0) for block in row_blocks(context)) / rows
        scatter, products = np.zeros((len(centre), len(centre))), np.zeros((len(centre), x.shape[1]))
        for given, block in aligned_blocks(context, x):
            apart = given - centre
            scatter += apart.T @ apart
            products += apart.T @ (fill(block, known.mean) if has_missing(block) else block)
        # All categories of a column add up to 1, so one eigenvalue is always 0 but for rounding.
        slopes = np.linalg.pinv(scatter, 1e-12, hermitian=True) @ products
        return cls(centre, slopes, ((scatter @ slopes) * slopes).sum(0) / rows)

    @property
    def directions(self) -> NDArray[np.float64]:
        """Orthonormal directions in which covariates move rows, (directions, features)."""
        _, sizes, directions = np.linalg.svd(self.slopes, full_matrices=False)
        return directions[sizes > 1e-6 * sizes.max()]

    def scaled(self, scale: NDArray[np.float64]) -> Effects:
        """Return the effects on columns that are divided by a scale."""
        return Effects(self.centre, self.slopes / scale, self.variance / scale**2)

    def removed(self, x: NDArray[Any], context: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows as they would be with the mean context."""
        return x - (context - self.centre) @ self.slopes


_RANDOM = 0.3  # of the places that fresh weights give, where maps start at principal components

# Fresh weights come from torch's one generator, which threads share.
_LOCK = Lock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw fresh weights from a seed, and leave torch's generator as it was."""
    with _LOCK, torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also change the generators of all other devices, which are not put back.
        torch.default_generator.manual_seed(seed)
        yield


def make_space(config: Settings) -> Space:
    """Make the latent space of a model; raise where its prior reaches too far out."""
    return Space(
        config.factors,
        distribution=config.posterior,
        diagonal=config.diagonal,
        prior_scale=config.prior_scales,
        learn_prior_scale=config.learn_prior_scale,
        units=config.prior_scale == "auto" and config.dim > 2,  # up to two dimensions it is 1 for any curvature
    )


def require_buildable(config: Config, layout: Layout) -> None:
    """Raise for a model that these data cannot have, or that is too large to be built, without building it."""
    if config.likelihood == "auto":
        raise ValueError('choose the likelihood before building: "auto" needs the data')
    if config.encode_covariates and not layout.covariates and not layout.counts:
        raise CurvaeError("there are no covariates to give to the encoder; name some, or drop `encode_covariates`")
    width = NETWORKS[config.network].width(layout.shape or (layout.features,), layout.inputs)
    sizes = (width, *config.layers, config.dim)
    # Weights of encoder and decoder, their gradients and two moments.
    memory.require(
        4 * 4 * 2 * sum(a * b for a, b in pairwise(sizes)),
        f"a model with layers of {', '.join(f'{size:,}' for size in sizes)}",
        fix="lower `hidden` or the dimension",
    )
    make_space(config)


def build(
    config: Config,
    features: int | Layout,
    blocks: tuple[int, ...] = (),
    mean: NDArray[np.float64] | None = None,
    effects: Effects | None = None,
    seen: Effects | None = None,
    axes: Principal | None = None,
    likelihood: Likelihood | None = None,
) -> VAE:
    """Build a model with weights drawn from the configuration's seed.

    Arguments:
        config: with a likelihood other than "auto".
        features: columns of the data; or the whole layout of the data.
        blocks: for each column the number of its categories; see `Layout`.
        mean: column means of the (scaled) data; the decoder's last bias starts there, in units of its outputs.
        effects: of the covariates on the (scaled) data; the decoder starts with them. A decoder that had to find
            them first would let the latent space tell the batches apart, and unlearn that slowly if at all.
        seen: effects of the covariates on what the encoder is shown, by default the same; an MLP as encoder starts
            without a look at them.
        axes: coordinates of what the encoder is shown, with standard deviations of at most 1; an MLP as encoder starts
            with them as places of the rows.
        likelihood: one that is prepared for the data, of which the model gets a copy; by default a fresh one.
    """
    layout = features if isinstance(features, Layout) else Layout(features, tuple(blocks))
    require_buildable(config, layout)
    # Of defaults that are not resolved, where nothing is known of the rows, none.
    dropout, jitter = (0.0 if share == "auto" else share for share in (config.dropout, config.jitter))
    with seeded(config.seed):
        space = make_space(config)
        likelihood = deepcopy(likelihood) or LIKELIHOODS[config.likelihood].make(layout, config)
        dense = partial(decoder, config.decoder, space, config.layers[::-1])
        shape, context = layout.shape or (layout.features,), layout.covariates
        make = NETWORKS[config.network].make
        encoding, decoding = make(shape, layout.inputs, config.layers, likelihood.outputs, dense)
        drop_units(encoding, dropout)
        # The first dense layer is given the covariates.
        first = next((i for i, layer in enumerate(encoding) if isinstance(layer, nn.Linear)), 0)
        model = VAE(
            Conditioned(encoding, context, {first: config.layers[0]})
            if config.encode_covariates and context
            else encoding,
            Conditioned(decoding, context) if context else decoding,
            Posterior(config.layers[-1], space),
            likelihood,
            layout.missing,
            jitter=jitter,
        )
    with torch.no_grad():
        if mean is not None:
            _start(model, torch.from_numpy(mean), effects, seen)
        if axes is not None:
            _place(model, axes)
    return model


def _start(model: VAE, mean: Tensor, effects: Effects | None, seen: Effects | None) -> None:
    """Let the last layer of the decoder start at the means, and at those of every covariate that it is given."""
    start, network = model.likelihood.start, model.decoder
    layers: Any = network.layers if isinstance(network, Conditioned) else network
    bias = start(mean)
    if isinstance(network, Conditioned) and network.last is not None and effects is not None:
        slopes = torch.stack([start(mean + slope) for slope in torch.from_numpy(effects.slopes)]) - bias
        network.last.weight.copy_(slopes.T)
        bias = bias - torch.from_numpy(effects.centre) @ slopes
        # An MLP starts without a look at the directions in which covariates move rows.
        moved = torch.from_numpy((seen or effects).directions)
        encoder = model.encoder.layers if isinstance(model.encoder, Conditioned) else model.encoder
        first = encoder[1] if isinstance(encoder, nn.Sequential) and len(encoder) > 1 else None
        if isinstance(first, nn.Linear) and first.in_features >= moved.shape[1]:
            moved, weight = moved.to(first.weight.dtype), first.weight[:, : moved.shape[1]]
            weight -= weight @ moved.T @ moved
    layers.start(bias)


def _place(model: VAE, axes: Principal) -> None:
    """Let an MLP start with some coordinates of a row as its place, in units of the prior, and with a part of where
    fresh weights would have it.

    Two units of every layer hold a coordinate p, as max(p, 0) and max(−p, 0).
    """
    encoder: Any = model.encoder.layers if isinstance(model.encoder, Conditioned) else model.encoder
    first, *others = (layer for layer in encoder if isinstance(layer, nn.Linear))
    count = min(axes.axes.shape[1], *(layer.out_features // 2 for layer in (first, *others)))
    pairs = torch.from_numpy(np.stack([axes.axes, -axes.axes], -1)[:, :count]).flatten(1).T
    first.weight[: 2 * count] = 0.0
    first.weight[: 2 * count, : pairs.shape[1]] = pairs.to(first.weight.dtype)
    first.bias[: 2 * count] = -(pairs @ torch.from_numpy(axes.mean)).to(first.bias.dtype)
    for layer in others:
        layer.weight[: 2 * count] = 0.0
        layer.weight[: 2 * count, : 2 * count] = torch.block_diag(*[torch.tensor([[1.0, -1.0], [-1.0, 1.0]])] * count)
        layer.bias[: 2 * count] = 0.0
    head, space = model.posterior.head, model.posterior.space
    place = 0
    for factor, weight, bias in zip(
        space, space.split_outputs(head.weight.mT), space.split_outputs(head.bias), strict=True
    ):
        weight[:, : factor.located] *= _RANDOM
        bias[: factor.located] = 0.0
        length = float(factor.scale()) / 2 if factor.unit is None else 0.5
        for axis in range(min(factor.located, count - place)):
            weight[2 * place, axis] += length
            weight[2 * place + 1, axis] -= length
            place += 1


# A trained model.

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
