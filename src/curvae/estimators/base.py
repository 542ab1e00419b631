"""What both estimators share: coordinates, neighbours, storage, plots."""

from __future__ import annotations

import math
import os
import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace
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
from ..maps.charts import Chart
from ..maps.embedding import Embedding, by_factor
from ..nn import Space
from ..settings import described, require_choice
from ..training.config import Settings, choose_device, require_count
from ..training.fitted import FittedModel
from ..training.storage import load_fitted, save_fitted

__all__ = [
    "Array",
    "MapEstimator",
    "Output",
    "coordinates",
    "nearest",
    "plain",
    "require",
    "row_shape",
    "space_parts",
    "weighted",
]

Array = NDArray[Any]
Output = Literal["auto", "ball", "tangent", "lorentz"]

# Names of the estimators' parameters that settings call otherwise.
_RENAMED = {"n_components": "dim"}


def plain(value: Any) -> Any:
    """Numbers of numpy, as grid searches make them, as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return tuple(plain(entry) for entry in value)
    return value


def require(output: Any, **counts: Any) -> None:
    """Raise for parameters that no settings hold."""
    for name, value in counts.items():
        require_count(name, plain(value))
    require_choice("output", output, get_args(Output))


def row_shape(asked: Any, network: str, features: int) -> tuple[int, ...]:
    """Of the image that a row of so many features is, or () where it is none."""
    if asked is None:
        side = math.isqrt(features)
        if network == "conv" and side**2 != features:
            raise CurvaeError(
                f'network="conv" takes rows for square images, and {features} columns are none; '
                'give image_shape=(height, width), or use network="mlp"'
            )
        return (side, side) if network == "conv" else ()
    shape = plain(asked)
    sides = isinstance(shape, tuple) and len(shape) == 2 and all(isinstance(side, int) for side in shape)
    if not sides or min(shape) < 1 or math.prod(shape) != features:
        raise CurvaeError(
            f"image_shape must be (height, width) with height × width = {features}, the columns; got {shape!r}"
        )
    return tuple(shape)


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
        raise CurvaeError("sample_weight must be positive for at least 2 rows")
    return replace(data, weight=weight).take(weight > 0)


def _chart(output: Output, embedding: Embedding) -> str:
    """What "auto" stands for."""
    return output if output != "auto" else "ball" if len(embedding.placed) == 1 else "tangent"


def coordinates(embedding: Embedding, output: Output) -> Array:
    """The centres in the coordinates of `output`."""
    chart = _chart(output, embedding)
    if chart == "lorentz":
        return embedding.space
    return embedding.ball if chart == "ball" else embedding.tangent


def space_parts(points: Array, output: Output, like: Embedding) -> Array:
    """Space parts S of points in the coordinates of `output`, in the space of an embedding: undoes `coordinates`."""
    if points.shape[1] != (width := coordinates(like.take([0]), output).shape[1]):
        raise CurvaeError(f"points have {width} coordinates, got {points.shape[1]}")
    chart = _chart(output, like)
    if chart == "tangent":
        return Embedding.from_tangent(points, np.ones(len(points)), like.placed).space
    if chart == "lorentz":
        return points
    parts = zip(like.placed, by_factor(points, like.placed), strict=True)
    return np.concatenate([factor.chart.points(torch.from_numpy(part)).numpy() for factor, part in parts], 1)


def _learned_numbers(space: Space) -> tuple[Any, Any]:
    """c and σ0: numbers, or arrays with one for each factor of a product."""
    figures = space.figures()
    if len(figures) == 1:
        return figures[0].c, figures[0].prior_scale
    return np.array([one.c for one in figures]), np.array([one.prior_scale for one in figures])


def nearest(table: Array, k: int, own: bool) -> tuple[Array, Array]:
    """The k smallest distances of each row and their columns; with `own`, the diagonal does not count."""
    if not 1 <= k <= table.shape[1] - own:
        raise CurvaeError(f"k must lie between 1 and {table.shape[1] - own}, got {k}")
    if own:
        np.fill_diagonal(table, np.inf)
    index = np.argsort(table, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(table, index, 1), index


def _unknown(estimator: type[MapEstimator], params: Mapping[str, Any]) -> str:
    """Say which parameters do not exist, and which were probably meant; "" if all exist."""
    known = estimator._get_param_names()
    unknown = next((name for name in params if name.partition("__")[0] not in known), None)
    if unknown is None:
        return ""
    renamed = [own for own, name in _RENAMED.items() if name == unknown]
    near = renamed or get_close_matches(unknown, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
    if unknown == "learn_curvature":
        hint = 'use curvature="learn"'
    elif unknown in estimator._advanced_names():
        hint = f'use advanced={{"{unknown}": …}}'
    return f"{estimator.__name__} has no parameter {unknown!r}; {hint}"


def _empty_folder(path: str | os.PathLike[str]) -> Path:
    """A folder to write to."""
    folder = Path(path)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise CurvaeError(f"{folder} exists and is not an empty folder; choose another name, or remove it")
    return folder


class MapEstimator(BaseEstimator):
    """What the estimators have in common: a trained model with its map, and run folders that hold both."""

    _kind: ClassVar[type[FittedModel]]
    _extra: ClassVar[tuple[str, ...]]
    """parameters that a configuration does not hold; where to compute is a matter of the machine, and not stored"""

    _own_settings: ClassVar[Mapping[str, Any]] = {}
    """settings of the estimator itself that `advanced` takes, with their defaults"""

    output: Output
    device: str
    advanced: Mapping[str, Any] | None

    def __new__(cls, *args: Any, **params: Any) -> Self:
        """Refuse an unknown parameter; `__init__` keeps the signature that scikit-learn reads."""
        if hint := _unknown(cls, params):
            raise TypeError(hint)
        return super().__new__(cls)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; an unknown one is an error that says which was meant."""
        if hint := _unknown(type(self), params):
            raise CurvaeError(hint)
        return super().set_params(**params)

    @classmethod
    def _advanced_names(cls) -> list[str]:
        """The settings that `advanced` takes: those that are no parameters."""
        own = {_RENAMED.get(name, name) for name in (*cls._get_param_names(), "seed")}
        return [*(name for name in described(cls._kind.settings) if name not in own), *cls._own_settings]

    def _advanced(self) -> dict[str, Any]:
        """The settings in `advanced`, with all that are the estimator's own."""
        if not isinstance(self.advanced, Mapping | None):
            raise CurvaeError(
                f'advanced must give settings by name, such as {{"cooldown": 0.3}}; got {self.advanced!r}'
            )
        return {**self._own_settings, **{name: plain(value) for name, value in (self.advanced or {}).items()}}

    def _config(self) -> Any:
        """The settings that the parameters stand for."""
        params, advanced = self.get_params(deep=False), self._advanced()
        if twice := sorted(params.keys() & advanced.keys()):
            raise CurvaeError(f"{twice[0]} is a parameter of {type(self).__name__}; give {twice[0]}=…, not in advanced")
        seed, known = params["random_state"], described(self._kind.settings)
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        given = {_RENAMED.get(name, name): plain(value) for name, value in params.items()}
        values = {name: value for name, value in given.items() if name in known}
        values |= {name: value for name, value in advanced.items() if name not in self._own_settings}
        if isinstance(values["hidden"], int):
            values["hidden"] = (values["hidden"],)
        try:
            return self._kind.settings.from_json({**values, "seed": int(seed)})
        except CurvaeError as error:  # in the words of the estimator
            raise CurvaeError(re.sub(r"\bdim\b", "n_components", str(error))) from None

    @classmethod
    def _parameters(cls, config: Settings, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of an estimator from its settings and from what else `save` stored."""
        own = {name: stored[name] for name in cls._extra if name in stored}
        advanced = config.given() | {name: own.pop(name) for name in cls._own_settings if name in own}
        names = [(name, _RENAMED.get(name, name)) for name in cls._get_param_names()]
        found = {name: advanced.pop(setting) for name, setting in names if setting in advanced}
        seed = advanced.pop("seed", config.seed)
        return {**found, **own, "random_state": seed, "advanced": advanced or None}

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

        parts = self._embedding.parts
        ax = plt.subplots(1, len(parts), figsize=(5.2 * len(parts), 4.6), layout="constrained")[1] if ax is None else ax
        if np.size(ax) != len(parts):
            raise CurvaeError(f"the map needs {len(parts)} axes, one for each factor of the space; got {np.size(ax)}")
        for part, one in zip(parts, np.ravel(ax), strict=True):
            seen = part.chart.project(part.points)
            self._draw(one, part.chart, seen.points, labels)
            if part.dim > 2:
                one.set_title(textwrap.fill(seen.sentence, 70), fontsize=7)
        return ax

    def _draw(self, ax: Any, chart: Chart, points: torch.Tensor, labels: ArrayLike | None) -> None:
        """Draw the map on a disc."""
        raise NotImplementedError

    def _take(self, fitted: Any, embedding: Embedding) -> None:
        """Become the trained model."""
        self._fitted, self._embedding, self.history_ = fitted.double(), embedding, fitted.history
        self.curvature_, self.prior_scale_ = _learned_numbers(self._fitted.model.space)
        self.embedding_ = coordinates(embedding, self.output)

    def _restore(self, fitted: Any, data: Any, description: Mapping[str, Any]) -> None:
        """Take parameters and attributes from a run folder: what the model was trained on, and how."""
        raise NotImplementedError

    def _described(self) -> tuple[dict[str, Any], Any]:
        """What `config.json` says about the data, and the graph, if there is one."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a run folder (JSON and safetensors), which `load` and the command line read."""
        check_is_fitted(self)
        description, data = self._described()
        values = self.get_params(deep=False) | self._advanced()
        own = {"estimator": {name: plain(values[name]) for name in self._extra}}
        save_fitted(_empty_folder(path), self._fitted, self._embedding, {**description, **own}, data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """A model from a run folder, of `save` or of the command line. Cannot run code, whatever the files hold."""
        fitted, embedding, description, data = load_fitted(Path(path), cls._kind)
        stored = description.get("estimator", {})
        if not isinstance(stored, dict):
            raise CurvaeError(f"{path} holds no parameters of an estimator but {stored!r}; train again")
        new = cls(**cls._parameters(fitted.config, stored))
        new._restore(fitted, data, description)
        fitted.model.to(choose_device(new.device))
        new._take(fitted, embedding)
        return new
