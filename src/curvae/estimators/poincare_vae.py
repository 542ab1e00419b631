"""A table or images as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from ..data import Arrays, Dataset, Schema, memory
from ..data.column_statistics import Missing, MissingValuesError, column_statistics, has_missing
from ..data.files import quoted
from ..data.tables import average_context, code_values
from ..errors import CurvaeError
from ..hierarchy.drivers import Drivers, explain
from ..maps.embedding import Embedding, require_finite
from ..models.likelihoods import choose_likelihood
from ..nn.networks import DecoderKind, NetworkKind
from ..settings import NeighbourKind, require_choice
from ..training.config import Config, choose_device, require_count
from ..training.evaluate import embed, impute, likelihoods
from ..training.fitted import Fitted
from ..training.fitting import fit, fit_many
from ..training.rows import HELD_OUT, layout_of, random_split
from ..training.rows_problem import left_out_start
from .base import Array, MapEstimator, coordinates, nearest, plain, shape_rows, space_parts, weighted
from .inputs import read_dataset, read_rows, restore_columns, restore_dtypes

__all__ = ["PoincareVAE"]


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
        self.sample_indices_: Array
        if isinstance(X, Dataset):
            data, given = read_dataset(self, X, None), X.x
            self.sample_indices_ = np.arange(len(data))
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
        context = code_values(self.covariates_, covariates, n_samples)
        return self._restored(self._fitted.sample(n_samples, context, seed))

    # --- distances --------------------------------------------------------------------------------------------------

    def distances(self, X: ArrayLike, Y: ArrayLike | None = None) -> Array:
        """Geodesic distances between the embeddings of rows of X, or of X and Y."""
        return self._embed(X)[0].distances(None if Y is None else self._embed(Y)[0])

    def kneighbors(self, X: ArrayLike | None = None, k: int = 5) -> tuple[Array, Array]:
        """Geodesic distances to the k nearest training rows, and their indices; without X, of the training rows."""
        check_is_fitted(self)
        if X is None:
            return nearest(self._embedding.distances(), k, np.arange(len(self._embedding)))
        return nearest(self._embed(X)[0].distances(self._embedding), k, None)

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
        facts = {
            "features": len(schema.names),
            "shape": list(schema.shape),
            "blocks": list(schema.blocks),
            "schema": schema.to_json(),
            "dtypes": {name: str(dtype) for name, dtype in self._dtypes.items()},
            "notes": list(self.notes_),
            "warnings": list(self._data_warnings),
        }
        return {"data": facts}

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
