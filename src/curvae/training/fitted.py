"""Models of rows, with what all trained models share: their settings, how they are built from a configuration, with
effects of covariates and a start at principal components, and what they say about rows once they are trained:
embedding, likelihood, missing values, health of the map.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, pairwise
from threading import Lock
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from torch import Tensor, nn

from ..data import Arrays, Dataset, EdgeSplit, Schema, memory
from ..data.dataset import Scaling, column_statistics, fill, has_missing, missing_entries
from ..data.files import decimal, quoted
from ..errors import CurvaeError
from ..geometry.checks import has_float64
from ..maps.embedding import Embedding, placed, require_finite
from ..maps.statistics import Array, Principal, rank_correlation
from ..models import LIKELIHOODS, VAE, Batch, Layout, Likelihood, Posterior, Stack, marginal_likelihood
from ..models.likelihoods.base import Matrix, aligned_blocks, row_blocks
from ..models.likelihoods.counts import Counts
from ..models.stack import architecture
from ..nn import NETWORKS, Conditioned, Space, decoder
from ..nn.networks import drop_units
from ..nn.space import FactorFigures
from ..settings import GraphSettings, RowSettings, Settings, described, require_count
from ..settings.setting import whole
from .rows import Data, RowPool, Rows, Split

__all__ = [
    "METRICS",
    "Config",
    "Effects",
    "Embedding",
    "Fitted",
    "FittedModel",
    "GraphConfig",
    "Likelihoods",
    "Record",
    "Settings",
    "Stability",
    "Stored",
    "active_dimensions",
    "build",
    "choose_device",
    "embed",
    "few_threads",
    "health",
    "held_out_score",
    "impute",
    "likelihoods",
    "likelihoods_many",
    "make_space",
    "map_health",
    "require_buildable",
    "require_count",
    "require_finite",
    "restored_model",
    "seeded",
    "stability",
    "tolerance",
]


@dataclass(frozen=True)
class Config(RowSettings):
    """Everything that determines a trained model, besides the data.

    Settings are given by name, all at once; files hold them by part: space, networks, likelihood, objective, map and
    training.

    Example:
        >>> config = Config(objective="iwae", samples=5)
        >>> config.to_json()["objective"]
        {'samples': 5, 'beta': 1.0, 'objective': 'iwae'}
        >>> Config.from_json(config.to_json()) == config
        True
    """

    @property
    def scales(self) -> bool:
        """Whether columns are standardised, some or all; of an "auto" likelihood that is not known."""
        return self.standardise and self.likelihood != "auto" and bool(LIKELIHOODS[self.likelihood].standardise)

    @property
    def neighbour_weights(self) -> tuple[float, ...]:
        """Weights of the divergence between near rows and of the stress of far ones, of those that are asked for."""
        if not self.uses_neighbours or self.neighbours_weight is None:
            return ()
        # The stress grows faster with the columns.
        weights = {"near": self.neighbours_weight, "far": 3.0 * self.neighbours_weight**1.5}
        return tuple(weight for kind, weight in weights.items() if self.neighbours in (kind, "both"))

    def scaled(self, layout: Layout) -> NDArray[np.bool_]:
        """Tell which features of the data are standardised."""
        return LIKELIHOODS[self.likelihood].standardised(layout) & self.scales


@dataclass(frozen=True)
class GraphConfig(GraphSettings):
    """Everything that determines a trained `GraphVAE`, besides the graph.

    Edges are "fermi_dirac" with learned radius and temperature, and nodes have a popularity; or "geodesic",
    p = 1 − tanh d as in the paper's third experiment. A step is fitted to the edges and as many pairs without one,
    `pairs="balanced"`, or to the likelihood of all pairs, which the paper counts twice (`pairs="all", weight=2`). Half
    of the edges are hidden from the encoder in each step, for it to predict. The probability of an edge fixes the
    scale of the space, so `learn_curvature` and `learn_prior_scale` may both be set.

    Example:
        >>> GraphConfig.from_json(GraphConfig(dim=5).to_json()) == GraphConfig(dim=5)
        True
    """


# The docstrings list the settings, with help and default.
for one in (Config, GraphConfig):
    lines = "\n".join(f"        {name}: {known.text}" for name, known in described(one).items())
    one.__doc__ = f"{(one.__doc__ or '').rstrip()}\n\n    Attributes:\n{lines}\n    "


# Where to compute, and with how many threads.


def choose_device(device: str) -> torch.device:
    """ "auto" is CUDA where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = None
    with suppress(RuntimeError):
        found = torch.device(device)
    if found is not None and not has_float64(found.type):
        raise CurvaeError(
            f'device {device} has no float64, which the geometry of curved spaces is computed in; use `device="cpu"`'
        )
    if found is None or found.type not in ("cpu", "cuda"):
        raise CurvaeError(f"`device` must be auto, cpu or cuda, got {device!r}")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise CurvaeError('device cuda was asked for, but there is none; use `device="cpu"`')
    return found


@contextmanager
def few_threads(most: int | None) -> Iterator[None]:
    """Use at most so many threads of PyTorch for a while; None for as many as there are."""
    before = torch.get_num_threads()
    fewer = before if most is None else min(most, before)
    try:
        if fewer < before:
            torch.set_num_threads(fewer)
        yield
    finally:
        if fewer < before:
            torch.set_num_threads(before)


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
    sizes = (
        NETWORKS[config.network].width(layout.shape or (layout.features,), layout.inputs),
        *config.layers,
        config.dim,
    )
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
        encoding, decoding = NETWORKS[config.network].make(
            shape, layout.inputs, config.layers, likelihood.outputs, dense
        )
        drop_units(encoding, dropout)
        # The first dense layer is given the covariates.
        first = next((i for i, layer in enumerate(encoding) if isinstance(layer, nn.Linear)), 0)
        own = sum(layout.batch) - layout.queried, layout.queried
        told = config.encode_covariates and bool(context)
        model = VAE(
            Conditioned(encoding, context, {first: config.layers[0]}) if told else encoding,
            Conditioned(decoding, context, own=own) if context else decoding,
            Posterior(config.layers[-1], space),
            likelihood,
            layout.missing,
            jitter=jitter,
            queried=(layout.batch[0], layout.batch[1] - layout.queried, layout.queried)
            if told and layout.queried and isinstance(likelihood, Counts)
            else None,
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
        model = self.model if self.model.dtype == torch.float64 else deepcopy(self.model).double()
        return replace(self, model=model)  # type: ignore[type-var]

    @property
    def last(self) -> Record:
        """Record of the epoch whose weights the model has: the last good one, or with early stopping the best.

        A model that failed has the weights of its last good epoch in any case.
        """
        return kept_record(self.history, tolerance(self.split)) if self.keeps_best else self.history[-1]

    @property
    def keeps_best(self) -> bool:
        """Whether the weights are those of the epoch that was best on data held out, and not the last."""
        return (
            self.config.patience is not None
            and self.failure is None
            and any(math.isfinite(held_out_score(record)) for record in self.history)
        )

    @property
    def figures(self) -> tuple[FactorFigures, ...]:
        """The numbers of every factor of the space, from the record of that epoch."""
        space, last = self.model.space, self.last
        values = [last[name] for name in space.numbers()]  # c and prior scale of one factor after the other
        return tuple(
            one._replace(c=c, prior_scale=scale)
            for one, c, scale in zip(space.figures(), values[::2], values[1::2], strict=True)
        )

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
        split = np.zeros(sum(map(len, self.split.parts)), np.int8)
        split[self.split.validation], split[self.split.test] = 1, 2
        return (
            self.scaling.to_arrays(),
            {"split": split},
            {"likelihood_reason": self.reason, "layout": self.layout.to_json()},
        )

    @classmethod
    def restore(
        cls,
        description: dict[str, Any],
        tensors: dict[str, Tensor],
        places: dict[str, Tensor],
        history: list[Record],
    ) -> tuple[Fitted, Schema]:
        config = Config.from_json(description["config"])
        layout = Layout.from_json(description["layout"])
        fitted = cls(
            config,
            restored_model(tensors, (layout.inputs, *config.layers, config.dim), lambda: build(config, layout)),
            Scaling.from_tensors(tensors),
            str(description.get("likelihood_reason", "")),
            Split(*(np.flatnonzero(places["split"].numpy() == part) for part in range(3))),
            history,
            layout=layout,
        )
        return fitted, Schema.from_json(description["data"]["schema"])


def restored_model(tensors: Mapping[str, Tensor], sizes: Sequence[int], make: Callable[[], Model]) -> Model:
    """Give the model that `make` makes its weights; `sizes` are the widths of its encoder, from what it reads on."""
    state = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    # The encoder alone holds so many weights: sizes that someone made up are refused before they are allocated.
    if sum(a * b for a, b in pairwise(sizes)) > sum(t.numel() for t in state.values()):
        raise ValueError(f"layers of {', '.join(map(str, sizes))} are larger than the file")
    model = make()
    model.load_state_dict(state)
    return model.eval()


_ROWS = 1024  # encoded at once
_NUMBERS = (
    1 << 24
)  # of a model's rows that a CUDA device holds at once, for the likelihood compiles for each such batch
_RIM = 0.99  # √c·|z| of a point that a picture of the disc cannot tell from its rim
_EMPTY = 0.1  # nats below which the latent space tells nothing
_OVERFIT = 2.0  # nats a row that the validation ELBO may fall from its best, more than its noise
_ACTIVE = 0.01  # share of the prior's variance above which a direction is in use


def embed(fitted: Fitted, x: Data) -> Embedding:
    """Return where a trained model places rows: centre and standard deviation of each row's posterior, computed in
    float64.

    Arguments:
        fitted: a result of `curvae.training.fit` or `fit_many`; those of a graph go to `embed_graph`.
        x: rows in original units, as of `fit`; new ones or those it was trained on.
    """
    fitted = fitted.double()
    rows, model = fitted.rows(x), fitted.model
    with torch.no_grad():
        return placed(model.space, [model.encode(rows.batch(index)) for index in torch.arange(len(rows)).split(_ROWS)])


@dataclass(frozen=True)
class Likelihoods:
    """Estimates of log p(x), one a row, in the units the model sees; `log_jacobian` leads to original units.

    Where values are missing, they are those of the values that are there, and `log_jacobian` is one a row.
    """

    log_prob: Array
    ess: Array
    error: Array
    samples: int
    log_jacobian: float | Array

    def require_finite(self, names: Any = None) -> Likelihoods:
        """Return the estimates; raise if one is not finite."""
        require_finite("likelihood", [self.log_prob], names)
        return self

    def take(self, index: Any) -> Likelihoods:
        """Those of the rows given by an index or a mask."""
        return replace(
            self,
            log_prob=self.log_prob[index],
            ess=self.ess[index],
            error=self.error[index],
            log_jacobian=self.log_jacobian if isinstance(self.log_jacobian, float) else self.log_jacobian[index],
        )

    @property
    def mean(self) -> float:
        return float(self.log_prob.mean())

    @property
    def original(self) -> Likelihoods:
        """The same in original units."""
        return replace(self, log_prob=self.log_prob + self.log_jacobian, log_jacobian=0.0)

    @property
    def interval(self) -> float:
        """Half-width of the 95 % interval of the mean over rows; NaN for a single row."""
        rows = len(self.log_prob)
        return float(1.96 * self.log_prob.std(ddof=1) / np.sqrt(rows)) if rows > 1 else math.nan

    @property
    def text(self) -> str:
        """ "−12.34 ± 0.56"."""
        return decimal(self.mean) + ("" if np.isnan(self.interval) else f" ± {self.interval:.2f}")


def likelihoods(
    fitted: Fitted,
    x: Data,
    samples: int = 5000,
    seed: int = 0,
    shared: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
    refine: int = 0,
) -> Likelihoods:
    """Compute log p(x) of rows by importance sampling (`curvae.models.marginal_likelihood`)."""
    return likelihoods_many([fitted], [x], samples, seed, shared, advance, refine=refine)[0]


def likelihoods_many(
    fitted: Sequence[Fitted],
    x: Sequence[Data],
    samples: int = 5000,
    seed: int = 0,
    shared: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
    tf32: bool = False,
    refine: int = 0,
) -> list[Likelihoods]:
    """Compute `likelihoods` of many models, each on its own rows; on CUDA those of one architecture at once.

    Arguments:
        fitted: the models.
        x: rows for each of them.
        samples, seed, shared: as of `likelihoods`; the noise is the same for all models.
        advance: called with how many more rows of a model are finished.
        tf32: on CUDA, matrix products with TF32 inputs.
        refine: steps by which the posterior of every row is improved first; models are then evaluated one by one.
    """
    if not whole(refine) or refine < 0:
        raise CurvaeError(f"`refine` must be a whole number of steps from 0 on, got {refine!r}", value=refine)
    found: dict[int, Likelihoods] = {}
    data = [one.arrays(rows) for one, rows in zip(fitted, x, strict=True)]
    # On a CPU, whose caches are small, each alone.
    cpu = all(one.model.device.type == "cpu" for one in fitted)
    for group in [[i] for i in range(len(fitted))] if cpu or refine else _alike(fitted, data):

        def advanced(rows: int, models: int = len(group)) -> None:
            advance(rows * models)

        models = [fitted[i].model for i in group]
        # Copies one by one, for a model may be in the list twice, or share its curvature with others.
        model = models[0] if len(group) == 1 else Stack([deepcopy(one) for one in models])
        rows = RowPool.of([(data[i], fitted[i].scaling) for i in group], models[0].device, models[0].dtype)
        generator = torch.Generator(models[0].device).manual_seed(seed)
        state = generator.get_state()
        parts = []
        at_once = _ROWS if rows.device.type == "cpu" else max(_ROWS, _NUMBERS // data[group[0]].features)
        for batch in rows.part().batches(None, at_once):
            if shared:
                generator.set_state(state)
            batch = batch.map(lambda part: part[0]) if len(group) == 1 else batch
            parts.append(marginal_likelihood(model, batch, samples, generator, shared, advanced, tf32, refine))
        figures = [
            torch.cat([getattr(part, name).view(len(group), -1) for part in parts], 1).cpu().numpy()
            for name in ("log_prob", "ess", "error")
        ]
        for i, log_prob, ess, error in zip(group, *figures, strict=True):
            scaling, arrays = fitted[i].scaling, data[i]
            jacobian = scaling.log_jacobians(arrays.x) if arrays.missing else scaling.log_jacobian
            found[i] = Likelihoods(log_prob, ess, error, samples, jacobian)
    return [found[i] for i in range(len(fitted))]


def _alike(fitted: Sequence[Fitted], x: Sequence[Arrays]) -> list[list[int]]:
    """Places of the models that can be evaluated together: of one architecture, on equally many rows."""
    kinds = [(architecture(one.model), rows.x.shape, rows.missing) for one, rows in zip(fitted, x, strict=True)]
    firsts = [kinds.index(kind) for kind in kinds]
    return [[i for i, first in enumerate(firsts) if first == place] for place in sorted(set(firsts))]


def active_dimensions(embedding: Embedding, prior_scale: ArrayLike) -> int:
    """Return directions of the tangent space in which the posterior centres vary, given the prior scale of every
    factor.
    """
    v = np.concatenate(
        [part.tangent / scale for part, scale in zip(embedding.parts, np.atleast_1d(prior_scale), strict=True)], 1
    )
    return int((np.linalg.eigvalsh(np.atleast_2d(np.cov(v.T))) > _ACTIVE).sum())


def health(fitted: FittedModel, embedding: Embedding) -> list[str]:
    """Return warnings about the map, each with its remedy; none when all is well."""
    config, last = fitted.config, fitted.last
    held = "validation_kl" in last
    kl: float = last["validation_kl" if held else "kl"]
    warnings = []
    watched = [record["validation_elbo"] for record in fitted.history if "validation_elbo" in record]
    if kl >= _EMPTY and config.patience is None and watched and max(watched) - watched[-1] > _OVERFIT:
        warnings.append(
            f"the model has overfitted: since epoch {int(np.argmax(watched)) + 1} the ELBO of validation rows has "
            f'fallen by {max(watched) - watched[-1]:.1f} nats; use `patience="auto"`, which keeps the best weights'
        )
    return warnings + map_health(
        embedding, kl, [one.prior_scale for one in fitted.figures], " of validation rows" if held else ""
    )


def map_health(embedding: Embedding, kl: float, prior_scale: ArrayLike, of: str = "") -> list[str]:
    """Return warnings about a map of any kind, each with its remedy; about every factor of a product.

    Arguments:
        embedding: the map.
        kl: divergence from the prior, in nats.
        prior_scale: of every factor.
        of: which data the divergence is of, in words.
    """
    if kl < _EMPTY:
        return [
            f"the map is empty: the divergence{of} from the prior is {max(kl, 0.0):.2g} nat, so the latent space is "
            "not used; the data may have no structure, else train longer, lower `beta` or widen `hidden`"
        ]
    return [
        warning
        for part, scale in zip(embedding.parts, np.atleast_1d(prior_scale), strict=True)
        for warning in _factor_health(part, scale, len(embedding.placed) > 1)
    ]


def _factor_health(part: Embedding, prior_scale: float, named: bool) -> list[str]:
    """Warnings about the map of one factor, which are about its name if it is `named`."""
    name = part.placed[0].name
    warnings = []
    active = active_dimensions(part, prior_scale)
    if active == 0:
        warnings.append(
            f"all points lie together {f'in the factor {name} ' if named else ''}beside the scale of the prior, so the "
            f"map shows little; train longer{', leave the factor out' if named else ''} or lower `beta`"
        )
    elif active < part.dim:
        warnings.append(
            f"only {active} of {part.dim} {f'dimensions of the factor {name}' if named else 'latent dimensions'} are "
            f"in use; dimension {active} is enough, or lower `beta`"
        )
    rim = float((np.linalg.norm(part.ball, axis=1) / part.chart.rim > _RIM).mean())
    if rim > 0.5:
        warnings.append(
            f"{rim:.0%} of the points sit at the rim of the disc{f' of the factor {name}' if named else ''} "
            f"(√c·|z| > {_RIM}), where a picture shows no differences; lower the prior's scale or the curvature"
        )
    return warnings


@dataclass(frozen=True)
class Stability:
    """How alike the maps of several trainings are, averaged over pairs of them.

    Arguments:
        correlation: Spearman's rank correlation of latent distances.
        overlap: share of the nearest neighbours in common.
        neighbours: how many of these.
        pairs: of maps.
    """

    correlation: float
    overlap: float
    neighbours: int
    pairs: int


def stability(embeddings: Sequence[Embedding], neighbours: int = 10, rows: int = 500) -> Stability | None:
    """Compare maps of the same rows made with different seeds; None for a single one.

    At most `rows` rows, chosen at random with a fixed seed, take part.
    """
    if len(embeddings) < 2:
        return None
    chosen = np.random.default_rng(0).permutation(len(embeddings[0].space))[:rows]
    k = min(neighbours, len(chosen) - 1)
    tables = [embedding.take(chosen).distances() for embedding in embeddings]
    upper = np.triu_indices(len(chosen), 1)
    nearest = [np.argsort(t + np.diag(np.full(len(t), np.inf)), axis=1)[:, :k] for t in tables]
    correlations, overlaps = [], []
    for i, j in combinations(range(len(tables)), 2):
        a, b = tables[i][upper], tables[j][upper]
        correlations.append(rank_correlation(a, b) if np.ptp(a) else 0.0)
        overlaps.append(np.mean([len(np.intersect1d(p, q)) / k for p, q in zip(nearest[i], nearest[j], strict=True)]))
    return Stability(float(np.mean(correlations)), float(np.mean(overlaps)), k, len(correlations))


# Expected values of missing entries.

_IMPUTED_ROWS = 256  # at once
_OUTPUTS = 1 << 22  # decoder outputs at once


def impute(
    fitted: Fitted,
    x: Data,
    samples: int = 1000,
    seed: int = 0,
    advance: Callable[[int], None] = lambda rows: None,
) -> Any:
    """Return the matrix with the expected value of every missing entry, given the entries of its row that are there.

    E[missing | observed] = Σ_k w_k E[x | z_k] / Σ_k w_k over draws z_k from the posterior of the row, with importance
    weights w = p(observed | z)·p(z)/q(z | observed): it tends to the exact expectation under the model as the samples
    grow, however rough the encoder is. One-hot columns get probabilities. All is computed in float64, from one set of
    draws for all rows, so that the figures of a row depend on nothing but the row.

    Arguments:
        fitted: a result of `fit`, best of data with `missing=True`: the encoder of another sees 0, in the units of the
            model, in place of what is missing.
        x: rows in original units, as of `fit`, in which NaN is missing.
        samples: draws a row.
        seed: of the draws.
        advance: called with how many more rows are finished.

    Returns:
        A matrix like that of x; entries that were there are unchanged.

    Example:
        >>> from curvae.training import Config, fit
        >>> x = np.random.default_rng(0).normal(size=(40, 1)) * [1.0, 2.0, -1.0]
        >>> x[0, 1] = np.nan
        >>> fitted = fit(Config(epochs=2, hidden=(8,)), Arrays(x, missing=True))
        >>> filled = impute(fitted, x)
        >>> bool(np.isfinite(filled).all()), bool((filled[1:] == x[1:]).all())
        (True, True)
    """
    require_count("samples", samples, "importance_samples")
    arrays, fitted = replace(Arrays.of(x), missing=True).load(), fitted.double()
    rows, columns = missing_entries(arrays.x)
    lacking = np.unique(rows)
    values = np.empty(len(rows))
    for start in range(0, len(lacking), _IMPUTED_ROWS):
        some = lacking[start : start + _IMPUTED_ROWS]
        own = slice(*np.searchsorted(rows, (some[0], some[-1] + 1)))
        expected = _expected(fitted, arrays.take(some), samples, seed)
        values[own] = expected[np.searchsorted(some, rows[own]), columns[own]]
        advance(len(some))
    if not np.isfinite(values).all():
        finite = np.ones(len(arrays))
        finite[rows[~np.isfinite(values)]] = np.nan
        require_finite("expected value", [finite], getattr(x, "ids", None))
    filled = arrays.x.copy()
    entries = filled.data if issparse(filled) else filled
    entries[~np.isfinite(entries)] = values  # row by row, as they were found
    return filled


def _expected(fitted: Fitted, arrays: Arrays, samples: int, seed: int) -> NDArray[np.float64]:
    """Compute the expected values of all entries of some rows, in original units."""
    model = fitted.model
    batch = fitted.rows(arrays).batch(torch.arange(len(arrays), device=model.device))
    noise = model.noise(1, samples, torch.Generator(model.device).manual_seed(seed))
    total: Any = 0.0
    top = torch.full((len(batch),), -torch.inf, dtype=torch.float64, device=batch.device)
    weight = torch.zeros_like(top)
    with torch.no_grad():
        # Means of E[x | z] by the weights of the draws, some draws at a time.
        for part in noise.split(max(1, _OUTPUTS // (len(batch) * model.likelihood.outputs))):
            expected, logs = model.expected(batch, part)
            higher = torch.maximum(top, logs.amax(0))
            before, now = (top - higher).exp(), (logs - higher).exp()
            total = total * before.unsqueeze(-1) + (now.unsqueeze(-1) * expected).sum(0)
            weight, top = weight * before + now.sum(0), higher
    return fitted.scaling.invert((total / weight.unsqueeze(-1)).cpu().numpy())
