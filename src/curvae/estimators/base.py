"""What both estimators share: coordinates, neighbours, storage, plots."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ..data import Arrays
from ..errors import CurvaeError
from ..maps.embedding import Embedding, by_factor
from ..settings import DistributionKind, described, require_choice
from ..training.config import choose_device
from ..training.evaluate import health
from ..training.fitted import FittedModel
from ..training.storage import load_fitted, save_fitted

__all__ = [
    "Array",
    "MapEstimator",
    "Output",
    "advanced_names",
    "coordinates",
    "nearest",
    "plain",
    "shape_rows",
    "space_parts",
    "weighted",
]

Array = NDArray[Any]
Output = Literal["auto", "ball", "tangent", "lorentz", "ambient"]

_RENAMED = {"n_components": "dim", "random_state": "seed"}  # parameters that settings call otherwise


def plain(value: Any) -> Any:
    """Convert numbers of numpy, as grid searches make them, to Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return tuple(plain(entry) for entry in value)
    return value


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
