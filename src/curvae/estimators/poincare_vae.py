"""A table or images as a scikit-learn transformer, and what it shares with the estimator of graphs: parameters,
coordinates, neighbours, storage, plots.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data

from ..data import Arrays, Column, Dataset, Schema, memory
from ..data.dataset import (
    Missing,
    MissingValuesError,
    NumberColumns,
    column_statistics,
    has_missing,
    masked_as_nan,
    source_columns,
)
from ..data.files import Messages, feature_names, name_columns, quoted, texts_of
from ..data.tables import (
    FrameTable,
    RawData,
    average_context,
    code_covariates,
    code_values,
    fit_covariates,
    read_exposure,
    require_column,
)
from ..errors import CurvaeError
from ..hierarchy.lineages import Drivers, explain
from ..maps.embedding import Embedding, by_factor, require_finite
from ..models.likelihoods import choose_likelihood
from ..settings import DecoderKind, DistributionKind, NeighbourKind, NetworkKind, described, require_choice
from ..training.fitted import (
    Config,
    Fitted,
    FittedModel,
    choose_device,
    embed,
    health,
    impute,
    likelihoods,
    require_count,
)
from ..training.fitting import fit, fit_many, left_out_start
from ..training.rows import HELD_OUT, layout_of, random_split
from ..training.storage import load_fitted, save_fitted

__all__ = [
    "Array",
    "MapEstimator",
    "Output",
    "PoincareVAE",
    "advanced_names",
    "coordinates",
    "nearest",
    "plain",
    "read_dataset",
    "read_rows",
    "restore_columns",
    "restore_dtypes",
    "shape_rows",
    "space_parts",
    "weighted",
]

# What estimators of rows and of graphs share.

Array = NDArray[Any]
Output = Literal["auto", "ball", "tangent", "lorentz", "ambient"]

_RENAMED = {"n_components": "dim", "random_state": "seed"}  # parameters that settings call otherwise


def plain(value: Any) -> Any:
    """Convert numbers of numpy, as grid searches make them, to Python's."""
    if isinstance(value, np.generic):
        return value.item()
    return tuple(plain(entry) for entry in value) if isinstance(value, tuple | list) else value


def shape_rows(data: Arrays, image_shape: Any, network: str) -> Arrays:
    """Set the shape of the image that a row is: `image_shape`, or by default that of a square if the network asks."""
    features, side = data.features, math.isqrt(data.features)
    if image_shape is None and network != "conv":
        return replace(data, shape=())
    shape = (side, side) if image_shape is None else plain(image_shape)
    if image_shape is None and side**2 != features:
        raise CurvaeError(
            f'`network="conv"` takes rows for square images, and {features} columns are none; '
            'give `image_shape=(height, width)`, or use `network="mlp"`'
        )
    sides = isinstance(shape, tuple) and len(shape) == 2 and all(isinstance(side, int) for side in shape)
    if not sides or min(shape) < 1 or math.prod(shape) != features:
        raise CurvaeError(
            f"`image_shape` must be (height, width) with height × width = {features}, the columns; got {shape!r}"
        )
    return replace(data, shape=shape)


def weighted(data: Arrays, x: Any, sample_weight: ArrayLike | None, kept: NDArray[np.int64]) -> Arrays:
    """Select the rows to train on, with their weights: those of weight 0 are left out.

    Arguments:
        data: the rows.
        x: all rows that were given, which have the weights.
        sample_weight: weights, or None.
        kept: positions in x of the rows of `data`.
    """
    if sample_weight is None:
        return data
    weight = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)[kept]
    if (weight > 0).sum() < 2:
        raise CurvaeError("`sample_weight` must be positive for at least 2 rows")
    return replace(data, weight=weight).take(weight > 0)


def coordinates(embedding: Embedding, output: Output) -> Array:
    """Return the centres in the coordinates of `output`; "auto" is the ball, for a sphere the space around it, and for
    a product the tangent space."""
    if output in ("lorentz", "ambient"):
        return embedding.space
    if output == "ball" and not all(factor.chart.has_ball for factor in embedding.placed):
        raise CurvaeError('a sphere has no ball coordinates; use `output="ambient"`', parameter="output")
    in_ball = output == "ball" or (output == "auto" and len(embedding.placed) == 1)
    return embedding.ball if in_ball else embedding.tangent


def space_parts(points: Array, output: Output, like: Embedding) -> Array:
    """Return the space parts S of points in the coordinates of `output`, in the space of an embedding.

    Undoes `coordinates`.
    """
    if points.shape[1] != (width := coordinates(like.take([0]), output).shape[1]):
        raise CurvaeError(f"points have {width} coordinates, got {points.shape[1]}")
    if output in ("lorentz", "ambient"):
        return points
    if output == "tangent" or (output == "auto" and len(like.placed) > 1):
        return Embedding.from_tangent(points, np.ones(len(points)), like.placed).space
    parts = zip(like.placed, by_factor(points, like.placed), strict=True)
    return np.concatenate([factor.chart.points(torch.from_numpy(part)).numpy() for factor, part in parts], 1)


def nearest(table: Array, k: int, own: Array | None) -> tuple[Array, Array]:
    """Find the k smallest distances of each row and their columns, but for the column of the row in `own`."""
    most = table.shape[1] - (own is not None)
    if not 1 <= k <= most:
        raise CurvaeError(f"`k` must lie between 1 and {most}, got {k}")
    if own is not None:
        table[np.arange(len(table)), own] = np.inf
    index = np.argsort(table, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(table, index, 1), index


def advanced_names(estimator: type[MapEstimator]) -> list[str]:
    """List the settings that `advanced` takes: those that are no parameters."""
    own = {_RENAMED.get(name, name) for name in estimator._get_param_names()}
    return [*(name for name in described(estimator._kind.settings) if name not in own), *estimator._own_settings]


def _refuse_unknown(estimator: type[MapEstimator], params: Mapping[str, Any], error: type[Exception]) -> None:
    """Raise for a parameter that does not exist, and suggest the one that was probably meant."""
    known = estimator._get_param_names()
    unknown = next((name for name in params if name.partition("__")[0] not in known), None)
    if unknown is None:
        return
    near = [own for own, name in _RENAMED.items() if name == unknown] or get_close_matches(unknown, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
    if unknown == "learn_curvature":
        hint = 'use `curvature="learn"`'
    elif unknown in advanced_names(estimator):
        hint = f'use `advanced={{"{unknown}": …}}`'
    raise error(f"{estimator.__name__} has no parameter {unknown!r}; {hint}")


@dataclass(eq=False, repr=False)
class MapEstimator(BaseEstimator):
    """What the estimators have in common: a trained model with its map, and run folders that hold both.

    Estimators are dataclasses: a field is a parameter of the constructor, and stored as it is given. A subclass adds
    its own, and writes `_restore(fitted, data, description)`, which takes parameters and attributes from a run folder.
    """

    n_components: int = 2
    _: KW_ONLY
    curvature: float | Literal["learn"] = 1.0
    space: str | None = None
    posterior: DistributionKind = "riemannian"
    prior_scale: float | Literal["auto"] = "auto"
    hidden: int | tuple[int, ...] | None = None
    epochs: int | None = None
    learning_rate: float = 2.8e-3
    patience: int | Literal["auto"] | None = "auto"
    output: Output = "auto"
    device: str = "auto"
    random_state: Any = None
    advanced: Mapping[str, Any] | None = None

    _kind: ClassVar[type[FittedModel]]
    # Parameters that a configuration does not hold; where to compute is a matter of the machine, and not stored.
    _extra: ClassVar[tuple[str, ...]] = ("output",)
    # Settings of the estimator itself that `advanced` takes, with their defaults.
    _own_settings: ClassVar[Mapping[str, Any]] = {}

    def __new__(cls, *args: Any, **params: Any) -> Self:
        """Refuse an unknown parameter; `__init__` keeps the signature that scikit-learn reads."""
        _refuse_unknown(cls, params, TypeError)
        return super().__new__(cls)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; an unknown one is an error that says which was meant."""
        _refuse_unknown(type(self), params, CurvaeError)
        return super().set_params(**params)

    def _advanced(self) -> dict[str, Any]:
        """Return the settings in `advanced`, with all that are the estimator's own."""
        if not isinstance(self.advanced, Mapping | None):
            raise CurvaeError(
                f'`advanced` must give settings by name, such as {{"cooldown": 0.3}}; got {self.advanced!r}'
            )
        return {**self._own_settings, **{name: plain(value) for name, value in (self.advanced or {}).items()}}

    def _config(self) -> Any:
        """Return the settings that the parameters stand for; raise for parameters that are wrong."""
        require_choice("output", self.output, get_args(Output))
        params, advanced = self.get_params(deep=False), self._advanced()
        if twice := sorted(params.keys() & advanced.keys()):
            raise CurvaeError(
                f"`{twice[0]}` is a parameter of {type(self).__name__}; give `{twice[0]}=…`, not in `advanced`"
            )
        seed, known = params["random_state"], described(self._kind.settings)
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        values = params | {name: value for name, value in advanced.items() if name not in self._own_settings}
        given = {_RENAMED.get(name, name): plain(value) for name, value in values.items()} | {"seed": int(seed)}
        if isinstance(given["hidden"], int):
            given["hidden"] = (given["hidden"],)
        try:
            return self._kind.settings.from_json({n: v for n, v in given.items() if n in known or n in advanced})
        except CurvaeError as error:  # in the words of the estimator
            raise CurvaeError(str(error).replace("`dim", "`n_components"), value=error.value) from None

    def plot(self, labels: ArrayLike | None = None, ax: Any = None) -> Any:
        """Draw the map: every row or node of `embedding_` on the Poincaré disc, or at curvature 0 on the plane.

        More than two dimensions are projected to the disc, and a line above it says what that keeps.

        Arguments:
            labels: one label for each point: categories, which get a legend, or numbers, which get a colour bar. A
                graph with labels of its own shows these by default.
            ax: matplotlib axes to draw on; of a product of spaces, one for each factor. By default in a new figure.

        Returns:
            The axes.
        """
        check_is_fitted(self)
        from matplotlib import pyplot as plt  # takes long to import, as does what follows

        from ..plotting import graph_map, latent_map

        parts, graph = self._embedding.parts, getattr(self, "graph_", None)
        ax = plt.subplots(1, len(parts), figsize=(5.2 * len(parts), 4.6), layout="constrained")[1] if ax is None else ax
        if np.size(ax) != len(parts):
            raise CurvaeError(f"the map needs {len(parts)} axes, one for each factor of the space; got {np.size(ax)}")
        for part, one in zip(parts, np.ravel(ax), strict=True):
            seen = part.chart.project(part.points)
            if graph is None:
                latent_map(one, part.chart, seen.points, labels)
            else:
                graph_map(one, part.chart, seen.points, graph.edges, graph.labels if labels is None else labels)
            if part.chart.width > 2:
                one.set_title(textwrap.fill(seen.sentence, 70), fontsize=7)
        return ax

    def _take(self, fitted: Any, embedding: Embedding, warnings: Sequence[str]) -> None:
        """Become the trained model, given its map and warnings about the data."""
        self._fitted, self._embedding, self.history_ = fitted.double(), embedding, fitted.history
        self.warnings_ = [*warnings, *health(fitted, embedding)]
        numbers = [(factor.c, factor.prior_scale) for factor in self._fitted.model.space.figures()]
        self.curvature_, self.prior_scale_ = numbers[0] if len(numbers) == 1 else np.array(numbers).T
        self.embedding_ = coordinates(embedding, self.output)

    def _described(self) -> dict[str, Any]:
        """Return what `config.json` says about the data, beside the graph."""
        return {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a run folder (JSON and safetensors), which `load` and the command line read."""
        check_is_fitted(self)
        folder, values = Path(path), self.get_params(deep=False) | self._advanced()
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise CurvaeError(f"{folder} exists and is not an empty folder; choose another name, or remove it")
        description = {**self._described(), "estimator": {name: plain(values[name]) for name in self._extra}}
        save_fitted(folder, self._fitted, self._embedding, description, getattr(self, "graph_", None))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a model from a run folder, of `save` or of the command line.

        Cannot run code, whatever the files hold.
        """
        fitted, embedding, description, data = load_fitted(Path(path), cls._kind)
        stored = description.get("estimator", {})
        if not isinstance(stored, dict):
            raise CurvaeError(f"{path} holds no parameters of an estimator but {stored!r}; train again")
        own = {name: stored[name] for name in cls._extra if name in stored}
        advanced = fitted.config.given() | {name: own.pop(name) for name in cls._own_settings if name in own}
        names = [(name, _RENAMED.get(name, name)) for name in cls._get_param_names()]
        found = {name: advanced.pop(setting) for name, setting in names if setting in advanced}
        new = cls(**{"random_state": fitted.config.seed, **found, **own, "advanced": advanced or None})
        new._restore(fitted, data, description)
        new._config()  # refuses parameters that a file may hold, but `fit` would not take
        fitted.model.to(choose_device(new.device))
        new._take(fitted, embedding, description["data"].get("warnings", ()))
        return new


# Rows.


@dataclass(eq=False, repr=False, kw_only=True)
class PoincareVAE(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MapEstimator):
    """A variational auto-encoder with a hyperbolic latent space, as a scikit-learn transformer.

    Arguments:
        n_components: dimension of the latent space.
        curvature: c ≥ 0, the space having curvature −c; 0 is the ordinary VAE; "learn" trains c, starting at 1.
        space: in their place, the factors of a latent space: "h2:1.2", "h2:learn" or "h2,e3", h hyperbolic and e flat.
        posterior: distribution of posterior and prior, "riemannian" or "wrapped".
        prior_scale: standard deviation of the prior, or "auto": what suits curvature and dimension. Only
            curvature·prior_scale² is identifiable.
        decoder: first layer of the decoder: "gyroplane", "gyroplane_scalar", "log_mlp", "mlp" or "mobius".
        network: "mlp", or "conv" for images, whose rows then hold one pixel a column, line by line.
        image_shape: (height, width) of these images; None takes them to be square.
        likelihood: "auto", "bernoulli", "gaussian", "unit_gaussian", "categorical", "poisson", "nb", "zinb" or "mixed"
            (columns of 0 and 1 as binary, the others as numbers).
        missing: what to do about NaN, infinite and masked values. "error" refuses them. "model" leaves them out of the
            likelihood, and the encoder gets which values are missing. "mean" fills in the mean of the column, or its
            most frequent category. "drop" leaves out the rows in `fit`, see `sample_indices_`; `transform` refuses
            such rows.
        categorical: columns that hold categories, by name or position; "auto" takes those of a data frame that hold
            text or pandas categories, None takes none. In a data frame, booleans and columns of 0 and 1 are binary.
        covariates: columns of X that are not features but given to the decoder, such as the batch, so that the map need
            not show them; by name if X is a data frame, by position otherwise. Texts and pandas categories are
            categories, other columns numbers. Rows can be embedded without them, unless they are given to the encoder.
        hidden: widths of the hidden layers, or the width of a single one; with "conv", of the dense ones. None takes
            200, and from 1,000 training rows on (200, 200); where neighbours count, from 400 on (200, 200, 200, 200).
        neighbours: hold the map to the neighbourhoods of the data: "near", who is near whom; "far", how far apart rows
            are; "both", or True; "off", or False. "auto" is "both" for an MLP in two or three dimensions, and "off"
            otherwise, with covariates, and for more than 100,000 rows.
        output: coordinates that `transform` returns: "ball" (Poincaré ball), "tangent" (log_0, Euclidean features for
            other estimators) or "lorentz" (space parts on the hyperboloid); "auto" is "ball", for a product "tangent".
            Points of spheres are unit vectors, "ambient", which "auto" is there; they have no "ball".
            Of a product those of its factors one after the other, "tangent" in units of their prior scales.
        epochs: passes over the data; None makes 1,500 steps, in large tables 5 passes of up to 10,000 steps.
        batch_size, learning_rate: of Adam.
        validation: share of rows held out to watch the training.
        patience: after so many epochs without progress on them, go back to the best weights, let the learning rate fall
            and stop; "auto" suits the steps of an epoch, and without such rows the last weights are kept. None trains
            to the end and keeps the last.
        n_init: trainings with different seeds, all at once; the one with the best validation ELBO is kept.
        device: "auto" (CUDA where there is one), "cpu" or "cuda".
        random_state: seed, generator or None.
        advanced: all other settings, by name, such as {"cooldown": 0.3}; see the page Advanced settings.

    Attributes:
        embedding_: training rows in the coordinates of `output`.
        sample_indices_: positions in X of the rows of `embedding_`: all of them, unless `missing="drop"` left some out.
            Not stored by `save`.
        history_: one record an epoch.
        curvature_, prior_scale_, identifiable_: c, σ0 and c·σ0² as trained; arrays, one for each factor, of a product.
        likelihood_, likelihood_reason_: what "auto" chose, and why.
        covariates_: what the covariates are, with categories, means and standard deviations of the fit; the other
            columns are counted by `n_features_in_` and named by `feature_names_in_`.
        notes_: what was done to the data, such as booleans that became 0 and 1, and which columns are constant.
        warnings_: what looks wrong with the data or the map, each with its remedy.

    Example:
        >>> from curvae.data import branching_diffusion
        >>> x = branching_diffusion().x
        >>> z = PoincareVAE(epochs=2, random_state=0).fit_transform(x)
        >>> z.shape
        (635, 2)
    """

    _kind = Fitted
    _extra = ("output", "importance_samples", "n_init", "covariates", "categorical", "missing")
    _own_settings: ClassVar[Mapping[str, Any]] = {"importance_samples": 500}
    # Whether it is a run of the command line on a table, which takes columns by name and ignores others.
    _from_table = False

    decoder: DecoderKind = "gyroplane"
    network: NetworkKind = "mlp"
    image_shape: tuple[int, int] | None = None
    likelihood: str = "auto"
    missing: Missing = "error"
    categorical: Sequence[Any] | Literal["auto"] | None = "auto"
    covariates: Sequence[Any] | None = None
    neighbours: NeighbourKind | bool = "auto"
    batch_size: int = 128
    validation: float = 0.1
    n_init: int = 1

    # --- scikit-learn -----------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing in ("mean", "model")
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self._embedding.dim

    def _rows(self, X: Any, decode: bool = False) -> Arrays:
        """Read features and covariates of new rows; covariates may be absent where neither the encoder nor, to
        `decode`, the decoder needs them."""
        check_is_fitted(self)
        missing: Missing = "error" if self.missing == "drop" else self.missing
        try:
            data = (
                read_dataset(self, X, self._schema).arrays
                if isinstance(X, Dataset)
                else read_rows(self, X, self._schema).arrays(self._schema, missing)
            )
        except MissingValuesError as error:
            raise CurvaeError(
                f'X has {error.found}; leave these rows out, or fit with `missing="mean"` or `missing="model"`'
            ) from None
        self._fitted.require_covariates(data, self._schema, "X", decode)
        if self._schema.blocks:
            choose_likelihood(data.x, self.likelihood_, replace(self._fitted.layout, names=self._schema.names))
        return shape_rows(data, self.image_shape, self.network)

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train on the rows of X; y is ignored.

        Arguments:
            X: a data frame, an array, a sparse matrix, or a `curvae.data.Dataset`, whose rows may lie on disk.
            sample_weight: a row of weight 2 counts as two in loss and validation, and one of 0 is not trained on, but
                placed.
        """
        config, device = self._config(), choose_device(self.device)
        self._from_table = False
        if isinstance(X, Dataset):
            data, given = read_dataset(self, X, None), X.x
            self.sample_indices_: Array = np.arange(len(data))
        else:
            raw = read_rows(self, X, None)
            data, given = raw.finish(None, self.missing)[0], raw.x
            self.sample_indices_ = data.ids.astype(np.int64)
        schema: Any = data.schema
        known = column_statistics(data.x)
        if not (known.low < known.high).any():
            raise CurvaeError(
                f"nothing varies in X: every column is constant ({quoted(schema.column_names)}), so there is nothing "
                "to learn; give columns that vary"
            )
        self._schema, self.covariates_ = schema, schema.covariates
        rows = shape_rows(data.arrays, self.image_shape, self.network)
        choose_likelihood(rows.x, config.likelihood, replace(layout_of(rows), names=schema.names))
        fitted = self._best(config, weighted(rows, given, sample_weight, self.sample_indices_), device).double()
        self.notes_ = (*data.notes, *left_out_start(fitted.config, rows, fitted.split))
        self._data_warnings = data.warnings
        self._take(fitted, embed(fitted, rows).require_finite(), data.warnings)
        return self

    def _best(self, config: Config, data: Arrays, device: torch.device) -> Fitted:
        """Of `n_init` trainings on the same rows, the best on those held out, or without any on the others."""
        if self.n_init == 1:
            return fit(config, data, device=device)
        split = random_split(len(data), config.validation, seed=config.seed, most=HELD_OUT)
        configs = [replace(config, seed=(config.seed + i) % 2**32) for i in range(self.n_init)]
        found = fit_many(configs, data, splits=[split] * self.n_init, device=device, jobs=1)
        good = [one for one in found if one.failure is None]
        if not good:
            raise CurvaeError(str(found[0].failure))
        watched = "validation_elbo" if len(split.validation) else "elbo"
        return max(good, key=lambda one: float(one.last[watched]))

    def _config(self) -> Config:
        require_count("n_init", plain(self.n_init))
        require_count("importance_samples", self._advanced()["importance_samples"])
        require_choice("missing", self.missing, get_args(Missing))
        if isinstance(self.categorical, str) and self.categorical != "auto":
            raise CurvaeError(f'`categorical` is the text {self.categorical!r}; give a list of columns, "auto" or None')
        return super()._config()

    def _take(self, fitted: Fitted, embedding: Embedding, warnings: Sequence[str]) -> None:
        super()._take(fitted, embedding, warnings)
        self.identifiable_ = self.curvature_ * self.prior_scale_**2
        self.likelihood_, self.likelihood_reason_ = fitted.config.likelihood, fitted.reason

    def fit_transform(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Any:
        """Train, and return the embedding of the rows of X, of which `missing="drop"` may leave out none."""
        if self.missing == "drop" and not isinstance(X, Dataset) and has_missing(read_rows(self, X, None).x):
            raise CurvaeError(
                'fit_transform returns a point for every row, and `missing="drop"` leaves out rows with gaps; call '
                "`fit`, and read `embedding_` and `sample_indices_`"
            )
        return self.fit(X, y, sample_weight).transform(X)

    def _embed(self, X: ArrayLike) -> tuple[Embedding, Any]:
        data = self._rows(X)
        return embed(self._fitted, data).require_finite(), data.x.dtype

    def transform(self, X: ArrayLike) -> Any:
        """Posterior centres of rows, in the coordinates of `output`."""
        embedding, dtype = self._embed(X)
        with np.errstate(over="ignore"):
            points = coordinates(embedding, self.output).astype(dtype, copy=False)
        require_finite("embedding", [points])
        return points

    def _restored(self, x: Array, index: Any = None) -> Any:
        """Convert features to a frame of the original columns if some hold categories or booleans."""
        if not self._dtypes:
            return x
        labels = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return restore_columns(x, self._schema.columns, self._dtypes, labels, index)

    def inverse_transform(self, X: ArrayLike, covariates: Mapping[str, Any] | None = None) -> Any:
        """Return expected rows, in original units, at points in the coordinates of `output`.

        A model of categories or booleans gives a frame with the original columns, and in these the most probable value.
        A model with covariates needs a value of each, for all points or one a point: `{"batch": "a"}`, or a data frame.
        """
        check_is_fitted(self)
        points = space_parts(np.array(check_array(X, dtype=np.float64)), self.output, self._embedding)
        context = code_values(self.covariates_, covariates, len(points))
        return self._restored(self._fitted.reconstruct(points, context=context))

    # --- likelihood -------------------------------------------------------------------------------------------------

    def score_samples(self, X: ArrayLike, refine: int = 0, return_ess: bool = False) -> Any:
        """Compute log p(x) of rows in original units, by importance sampling from one fixed set of base draws.

        Of a row with missing values, that of the values that are there.

        Arguments:
            X: the rows.
            refine: steps by which the posterior of each row is improved first, with the model as it is; with 0, draws
                are from the encoder's.
            return_ess: return the effective sample sizes too, (rows,): estimates that rest on few of them are too low.
        """
        samples = self._advanced()["importance_samples"]
        found = likelihoods(self._fitted, self._rows(X, decode=True), samples, shared=True, refine=refine)
        log_prob = found.require_finite().original.log_prob
        return (log_prob, found.ess) if return_ess else log_prob

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean of `score_samples`, for model selection."""
        return float(self.score_samples(X).mean())

    def impute(self, X: ArrayLike) -> Any:
        """X with the expected value of every missing entry given the others of its row; of categories and booleans, the
        most probable one. Needs a model that was fitted with `missing="model"`."""
        check_is_fitted(self)
        if self.missing == "mean" and has_missing(read_rows(self, X, self._schema).x):
            raise CurvaeError('the model was fitted with `missing="mean"`, so it knows no gaps; use `missing="model"`')
        filled = impute(self._fitted, self._rows(X, decode=True), self._advanced()["importance_samples"])
        return self._restored(filled, X.index if isinstance(X, pd.DataFrame) else None)

    def sample(self, n_samples: int = 1, random_state: Any = 0, covariates: Mapping[str, Any] | None = None) -> Any:
        """Draw new rows from the model, in original units, as a frame where `inverse_transform` gives one; `covariates`
        as of `inverse_transform`."""
        check_is_fitted(self)
        require_count("n_samples", plain(n_samples))
        memory.require(
            64.0 * n_samples * len(self._schema.names), f"a table of {n_samples:,} samples", fix="draw fewer"
        )
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return self._restored(
            self._fitted.sample(n_samples, code_values(self.covariates_, covariates, n_samples), seed)
        )

    # --- distances --------------------------------------------------------------------------------------------------

    def distances(self, X: ArrayLike, Y: ArrayLike | None = None) -> Array:
        """Geodesic distances between the embeddings of rows of X, or of X and Y."""
        return self._embed(X)[0].distances(None if Y is None else self._embed(Y)[0])

    def kneighbors(self, X: ArrayLike | None = None, k: int = 5) -> tuple[Array, Array]:
        """Geodesic distances to the k nearest training rows, and their indices; without X, of the training rows."""
        check_is_fitted(self)
        table = self._embedding.distances() if X is None else self._embed(X)[0].distances(self._embedding)
        return nearest(table, k, np.arange(len(table)) if X is None else None)

    def explain(
        self, end: ArrayLike, start: ArrayLike | None = None, columns: int = 20, random_state: Any = 0
    ) -> Drivers:
        """Tell which columns change along the geodesic to training rows, given by their places, from others or the
        mean?

        See `curvae.hierarchy.explain`; covariates are taken at their average.
        """
        check_is_fitted(self)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        context = average_context(self.covariates_)
        return explain(self._fitted, self._embedding, end, start, columns=columns, context=context, seed=seed)

    # --- files ------------------------------------------------------------------------------------------------------

    def _described(self) -> dict[str, Any]:
        kind: Any = "table" if hasattr(self, "feature_names_in_") else "matrix"
        schema = replace(self._schema, kind=kind)
        return {
            "data": {
                "features": len(schema.names),
                "shape": list(schema.shape),
                "blocks": list(schema.blocks),
                "schema": schema.to_json(),
                "dtypes": {name: str(dtype) for name, dtype in self._dtypes.items()},
                "notes": list(self.notes_),
                "warnings": list(self._data_warnings),
            }
        }

    def _restore(self, fitted: Fitted, data: Schema, description: Mapping[str, Any]) -> None:
        facts, source = description["data"], description.get("source")
        if fitted.layout.missing:
            self.missing = "model"
        elif isinstance(source, dict):  # a run of the command line
            self.missing = source.get("missing", "error")
        self._from_table = isinstance(source, dict) and data.kind == "table"
        if len(shape := fitted.layout.shape) == 2:
            self.image_shape = shape[0], shape[1]
        self._schema, self.covariates_ = data, data.covariates
        if data.covariates and self.covariates is None:
            self.covariates = [column.name for column in data.covariates]
        if data.categorical and isinstance(source, dict):
            self.categorical = [column.name for column in data.columns if column.categories is not None]
        self._dtypes = restore_dtypes(data, facts.get("dtypes", {}))
        self.notes_, self._data_warnings = tuple(facts.get("notes", ())), tuple(facts.get("warnings", ()))
        self.n_features_in_: int = len(data.columns)
        if data.kind == "table":
            self.feature_names_in_ = np.array(data.column_names, dtype=object)


# Columns of X: numbers, categories and covariates, read as the command line reads those of a table.

_SOURCE = Path("X")  # the name of the rows in messages
_NOT_NUMBERS = "use `categorical=[{0}]` or `covariates=[{0}]`, or leave it out"


def read_rows(estimator: Any, X: Any, schema: Schema | None) -> RawData:
    """Read the rows of X: a data frame as a table, anything else as a matrix unless it has categories.

    Without a schema, sets `n_features_in_`, `feature_names_in_` and `_dtypes`, the types of the columns of categories
    and booleans by name.

    Arguments:
        estimator: its parameters say what the columns are.
        X: a data frame of pandas, polars or pyarrow, an array, which may be masked, or a sparse matrix.
        schema: schema of the rows that the estimator was fitted to, or None to fit one.
    """
    if isinstance(X, str | Path):
        raise CurvaeError(f"X is the name of a file, {str(X)!r}; give what `curvae.data.load` reads from it")
    if isinstance(X, pd.Series):
        raise CurvaeError("X is a single row or column; give a data frame, of one row `row.to_frame().T`")
    X = X.to_pandas() if hasattr(X, "to_pandas") else masked_as_nan(X)
    exposure, messages = None, Messages()
    if schema is not None and estimator._from_table and isinstance(X, pd.DataFrame):
        labels = {str(label): label for label in X.columns}
        if schema.exposure in labels:
            exposure = read_exposure(FrameTable(_SOURCE, X), labels[schema.exposure], messages)
        known = [*schema.column_names, *(column.name for column in schema.covariates)]
        X = X[[labels[name] for name in known if name in labels]]
    features, context = _take_apart(X, estimator.covariates, None if schema is None else len(schema.columns))
    listed = _listed(X, estimator.categorical) if schema is None else []
    sparse_columns = any(isinstance(dtype, pd.SparseDtype) for dtype in getattr(features, "dtypes", ()))
    frame_given = isinstance(features, pd.DataFrame) and not sparse_columns
    table = frame_given or bool(listed) or (schema is not None and schema.categorical)
    columns: Sequence[Column]
    if table:
        frame = _as_frame(features, context, estimator.covariates)
        x, columns = _read_table(estimator, frame, listed, schema, messages)
    else:
        x, columns = _read_matrix(estimator, features, schema)
    covariates = () if schema is None else schema.covariates
    measured = None if context is None else FrameTable(_SOURCE, context)
    if schema is None and measured is not None:
        covariates = fit_covariates(measured, measured.names, [str(label) for label in listed], messages)
    image = estimator.network == "conv" or estimator.image_shape is not None
    return RawData(
        "X",
        "images" if image else "table" if table else "matrix",
        x,
        columns,
        context=None if measured is None else code_covariates(measured, covariates),
        covariates=covariates,
        exposure=exposure,
        messages=messages,
        keeps_constant=True,
    )


def read_dataset(estimator: Any, data: Dataset, schema: Schema | None) -> Dataset:
    """Check the rows of a data set, which was read with the settings that it has.

    Without a schema, sets `n_features_in_`, `feature_names_in_` and `_dtypes`.

    Arguments:
        estimator: its parameters must say the same about the columns.
        data: the rows.
        schema: schema of the rows that the estimator was fitted to, or None to take that of the data.
    """
    if schema is not None:
        if data.x.shape[1] != len(schema.names):
            raise CurvaeError(f"X has {data.x.shape[1]:,} features, and the model was fitted to {len(schema.names):,}")
        return data
    if (estimator.missing == "model") != data.missing:
        given = '`missing="model"`' if data.missing else 'another value than `missing="model"`'
        raise CurvaeError(f"X was read with {given}, and the estimator has {estimator.missing!r}; give both the same")
    schema = data.schema or Schema("matrix", NumberColumns(data.names), data.shape)
    names, asked = [column.name for column in schema.covariates], list(estimator.covariates or ())
    if names != asked:
        raise CurvaeError(f"`covariates` is {asked} of the estimator and {names} of X; give both the same")
    if schema.exposure is not None:
        raise CurvaeError("an estimator knows no `exposure=…`; read X without, or train with curvae.training.fit")
    vars(estimator).pop("feature_names_in_", None)
    estimator.n_features_in_, estimator._dtypes = len(schema.columns), restore_dtypes(schema, {})
    if schema.kind == "table":
        estimator.feature_names_in_ = np.array(schema.column_names, dtype=object)
    return replace(data, schema=schema)


def _as_frame(features: Any, context: pd.DataFrame | None, covariates: Sequence[Any] | None) -> pd.DataFrame:
    """Convert a matrix with categories to a frame, whose columns are called by their positions in X."""
    if isinstance(features, pd.DataFrame):
        return features.infer_objects()
    matrix: Any = features.toarray() if sparse.issparse(features) else np.asarray(features)
    frame = pd.DataFrame(matrix).infer_objects()
    if context is None:
        return frame
    width = frame.shape[1] + context.shape[1]
    taken = {range(width)[place] for place in covariates or ()}
    return frame.set_axis([place for place in range(width) if place not in taken], axis=1)


def _listed(X: Any, categorical: Any) -> list[Any]:
    """List the labels of the columns that are categories by request, given by name or position."""
    if categorical is None or isinstance(categorical, str):
        return []
    if not isinstance(categorical, Iterable):
        raise CurvaeError(f'`categorical` must be "auto", None or a list of columns, got {categorical!r}')
    labels = X.columns.tolist() if isinstance(X, pd.DataFrame) else range(np.shape(X)[1])
    names = [str(label) for label in labels]
    found = []
    for entry in categorical:
        if isinstance(entry, int | np.integer) and entry not in labels and -len(names) <= entry < len(names):
            found.append(labels[entry])
        else:
            require_column(_SOURCE, "categorical", str(entry), names)
            found.append(labels[names.index(str(entry))])
    return found


def _read_table(
    estimator: Any, frame: pd.DataFrame, listed: Sequence[Any], schema: Schema | None, messages: Messages
) -> tuple[Any, tuple[Column, ...]]:
    """Read the features of a data frame as numbers; a category is its position in the list of categories."""
    names = name_columns(_SOURCE, [str(label) for label in frame.columns])
    validate_data(estimator, frame, reset=schema is None, skip_check_array=True)
    if not len(frame):
        raise CurvaeError("X has no rows; give at least one")
    single = bool((frame.dtypes == np.float32).all())
    if schema is None:
        table = FrameTable(_SOURCE, frame.set_axis(names, axis=1))
        columns = tuple(
            _column(table, name, label in listed, estimator.categorical)
            for name, label in zip(names, frame.columns, strict=True)
        )
        estimator._dtypes = {
            column.name: dtype
            for column, dtype in zip(columns, frame.dtypes, strict=True)
            if column.categories is not None or pd.api.types.is_bool_dtype(dtype)
        }
    else:
        columns = tuple(schema.columns)
        table = FrameTable(_SOURCE, frame.set_axis(list(schema.column_names), axis=1))
    x = table.numbers(columns, _NOT_NUMBERS if schema is None else "give numbers, as in `fit`", messages)
    return x.astype(np.float32) if single else x, columns


def _column(table: FrameTable, name: str, asked: bool, categorical: Any) -> Column:
    """Describe a column: it has categories if that was asked for or, with "auto", if it holds text."""
    dtype = table.head[name].dtype
    if dtype.kind in "mM":
        raise CurvaeError(f"column {name!r} holds dates or times; convert it to numbers, or leave it out")
    if not (asked or (isinstance(categorical, str) and table.is_text(name))):
        return Column(name)
    if not asked and not isinstance(dtype, pd.CategoricalDtype) and (wrong := table.cells_to_correct(name)):
        raise CurvaeError(
            f"column {name!r} has numbers, and cells that are none: {quoted(wrong)}; correct these (a gap is NaN), or "
            "list it in `categorical=[…]` if it is a feature of categories"
        )
    categories = table.categories(name)
    if not asked and not isinstance(dtype, pd.CategoricalDtype) and len(categories) == table.rows > 2:
        raise CurvaeError(
            f"column {name!r} has a different text in every row, as names do; leave it out, or list it in "
            "`categorical=[…]` if it is a feature"
        )
    return Column(name, categories)


def _read_matrix(estimator: Any, X: Any, schema: Schema | None) -> tuple[Any, Sequence[Column]]:
    """Check a matrix of numbers, whose missing values are dealt with later."""
    try:
        x = validate_data(
            estimator,
            X,
            reset=schema is None,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=2 if schema is None else 1,
        )
    except ValueError as error:
        if not str(error).startswith("could not convert string to float"):
            raise
        raise CurvaeError(
            f"X is an array with text in it, {str(error).partition(': ')[2]}; give a data frame, or list the columns "
            "of text in `categorical=[…]`"
        ) from None
    if schema is not None:
        return x, schema.columns
    estimator._dtypes = {}
    names = getattr(estimator, "feature_names_in_", None)
    return x, NumberColumns(feature_names(x.shape[1]) if names is None else names.tolist())


def restore_dtypes(schema: Schema, stored: Mapping[str, str]) -> dict[str, Any]:
    """Find the types of the columns of categories and booleans by their stored names; by default, categories are text.

    Of pandas categories only the texts are stored, not their order.
    """
    found: dict[str, Any] = {}
    for column in schema.columns if schema.categorical or stored else ():
        name = stored.get(column.name, None if column.categories is None else "str")
        if name == "category":
            found[column.name] = pd.CategoricalDtype(list(column.categories or ()))
        elif name is not None:
            try:
                found[column.name] = pd.api.types.pandas_dtype(name)
            except TypeError:
                raise CurvaeError(f"column {column.name!r} is stored with the type {name!r}; train again") from None
    return found


def restore_columns(
    x: Any, columns: Sequence[Column], dtypes: Mapping[str, Any], labels: Any, index: Any = None
) -> pd.DataFrame:
    """Convert features back to the columns of the source: the most probable category, or truth value, in their types.

    Arguments:
        x: values or expected values of the features, (rows, features).
        columns: descriptions of the columns.
        dtypes: types of the columns of categories and booleans by name.
        labels, index: of the frame.
    """
    found = source_columns(x, columns)
    for name, dtype in dtypes.items():
        values: Any = pd.Series(found[name])
        if isinstance(dtype, pd.CategoricalDtype):
            texts = pd.Index(texts_of(dtype.categories, strip=True))
            values = pd.Categorical.from_codes(texts.get_indexer(values), dtype=dtype)
        elif pd.api.types.is_bool_dtype(dtype):
            values = values >= 0.5 if pd.api.types.is_numeric_dtype(values) else values == "True"
        found[name] = values.astype(dtype)
    return pd.DataFrame(found).set_axis(labels, axis=1).set_axis(range(len(x)) if index is None else index)


def _take_apart(
    X: Any, covariates: Sequence[Any] | None, features: int | None = None
) -> tuple[Any, pd.DataFrame | None]:
    """Separate the features of X from the covariates, a frame, or None where X lacks them.

    Arguments:
        X: a data frame, whose covariates are given by name; or any matrix, whose are given by place.
        covariates: which columns; none by default.
        features: columns that are no covariates, where that is known: then covariates may be absent.
    """
    if covariates is None or len(covariates) == 0:
        return X, None
    if isinstance(covariates, str):
        raise CurvaeError(f"`covariates` is the text {covariates!r}; give a list of columns")
    if hasattr(X, "iloc"):
        lacking = [name for name in covariates if name not in X.columns]
        if lacking and features is None:
            raise CurvaeError(f"X has no column {quoted(lacking)} for a covariate; its columns are {quoted(X.columns)}")
        rest = X.drop(columns=[name for name in covariates if name not in lacking])
        return rest, None if lacking else X[list(covariates)].rename(columns=str)
    if any(isinstance(place, str) for place in covariates):
        raise CurvaeError("`covariates` are names, but the columns of X have none; give their places, or a data frame")
    matrix: Any = sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X)
    if matrix.ndim != 2 or matrix.shape[1] == features:
        return X, None
    width = matrix.shape[1]
    if outside := [place for place in covariates if not -width <= place < width]:
        raise CurvaeError(f"X has no column {outside[0]}; it has {width}, and the first is 0")
    places = [int(place) % width for place in covariates]
    context = matrix[:, places]
    context = context.toarray() if sparse.issparse(context) else context
    frame = pd.DataFrame({str(name): context[:, j] for j, name in enumerate(covariates)}).infer_objects()
    return matrix[:, [j for j in range(width) if j not in set(places)]], frame
