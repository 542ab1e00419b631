"""A trained model on disk: `config.json`, `model.safetensors`, `embedding.safetensors`, `metrics.jsonl`.

No pickle: loading cannot run code.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .. import __version__
from ..data import Schema
from ..data.files import refuse_dangling
from ..errors import CurvaeError
from ..models import Layout
from ..nn import Space
from .build import build
from .config import Config, Settings
from .embedding import Embedding, placed_factors
from .files import read_json, read_records, read_tensors, write_json, write_records, write_tensors
from .fitted import METRICS, Fitted, Record
from .migrations import FORMAT, migrated
from .rows import Scaling
from .splits import Split

__all__ = [
    "FORMAT",
    "description_of",
    "kind_of",
    "load_fitted",
    "read_description",
    "read_model",
    "require_figures",
    "restore",
    "restore_embedding",
    "restore_scaling",
    "save_fitted",
    "scaling_arrays",
    "versions",
    "whole_run",
    "write_model",
]

CONFIG, MODEL, EMBEDDING = "config.json", "model.safetensors", "embedding.safetensors"

_SUMS = {MODEL: "model_sha256", EMBEDDING: "embedding_sha256"}
_KINDS = {"vae": "a model of a table", "graph": "a model of a graph", "comparison": "a comparison"}
_COMMANDS = {"vae": "curvae fit", "graph": "curvae graph", "comparison": "curvae compare"}
_MODELS = ("vae", "graph")
_ANY_COMMAND = " or ".join(_COMMANDS[kind] for kind in _MODELS)

Model = TypeVar("Model", bound=nn.Module)


class Savable(Protocol):
    """What was trained, of any kind."""

    @property
    def config(self) -> Settings: ...

    @property
    def model(self) -> nn.Module: ...

    @property
    def history(self) -> list[Record]: ...


def versions() -> dict[str, str]:
    """Versions of what computes."""
    return {
        "curvae": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def description_of(config: Settings, kind: str) -> dict[str, Any]:
    """How `config.json` begins, whatever the kind of run."""
    return {
        "format": FORMAT,
        "kind": kind,
        "versions": versions(),
        "seed": config.seed,
        "config": config.to_json(),
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_model(
    folder: Path,
    fitted: Savable,
    embedding: Embedding,
    arrays: Mapping[str, NDArray[Any]],
    split: Mapping[str, NDArray[Any]],
    kind: str,
    description: Mapping[str, Any],
) -> None:
    """Write a model of any kind, its records and its embedding, and last what describes them.

    Arguments:
        folder: of the run.
        fitted: what was trained.
        embedding: of its training data.
        arrays: what else the model needs, by name.
        split: of its training data, by name.
        kind: of the run.
        description: what else `config.json` shall hold.
    """
    tensors = {f"model.{name}": t.float() for name, t in fitted.model.state_dict().items()}
    places = {"space": embedding.space, "sigma": embedding.sigma, **split}
    write_records(folder / METRICS, fitted.history)
    write_tensors(folder / MODEL, tensors | {name: torch.from_numpy(a) for name, a in arrays.items()})
    write_tensors(folder / EMBEDDING, {name: torch.from_numpy(a) for name, a in places.items()})
    sums = {name: _digest(folder / file) for file, name in _SUMS.items()}
    write_json(folder / CONFIG, {**description_of(fitted.config, kind), **sums, **description})


def read_model(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
    """What `write_model` wrote, as it was written: the description, the tensors of the model and of the embedding."""
    description = read_description(folder, kind)
    if "model_sha256" not in description:
        raise CurvaeError(f"{folder} is not finished; go on with {_COMMANDS[kind]} --resume")
    tensors = _read(folder, MODEL, description)
    if description["format"] < 3:  # one file held it all
        return description, tensors, {name.removeprefix("embedding."): t for name, t in tensors.items()}
    return description, tensors, _read(folder, EMBEDDING, description)


def _read(folder: Path, file: str, description: Mapping[str, Any]) -> dict[str, Tensor]:
    tensors, _ = read_tensors(folder / file)
    if _digest(folder / file) != description.get(_SUMS[file]):
        raise CurvaeError(
            f"{folder / file} is not the file that was written (its checksum differs); restore it or train again"
        )
    return tensors


@contextmanager
def whole_run(folder: Path) -> Iterator[None]:
    """Whatever goes wrong while the parts of a model are put together, told in one line."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        message = str(error).splitlines()[0].removesuffix("; train again")
        raise CurvaeError(f"{folder} does not hold a whole run ({message}); train again") from error


def restore(tensors: Mapping[str, Tensor], inputs: int, config: Settings, make: Callable[[], Model]) -> Model:
    """The model that `make` makes, with its weights; `inputs` is the width of what it reads."""
    state = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    # The encoder alone holds so many weights: sizes that someone made up are refused before they are allocated.
    sizes = (inputs, *config.hidden, config.dim)
    if sum(a * b for a, b in pairwise(sizes)) > sum(t.numel() for t in state.values()):
        raise ValueError(f"layers of {', '.join(map(str, sizes))} are larger than the file")
    model = make()
    model.load_state_dict(state)
    return model.eval()


def restore_embedding(places: Mapping[str, Tensor], space: Space, units: bool = True) -> Embedding:
    """The embedding of the training data."""
    return Embedding(places["space"].numpy(), places["sigma"].numpy(), placed_factors(space, units))


def scaling_arrays(scaling: Scaling) -> dict[str, NDArray[Any]]:
    """What `restore_scaling` makes a scaling of."""
    return {f"scaling.{name}": values for name, values in vars(scaling).items() if values is not None}


def restore_scaling(tensors: Mapping[str, Tensor]) -> Scaling:
    constant = tensors["scaling.constant"].numpy() if "scaling.constant" in tensors else None
    return Scaling(tensors["scaling.shift"].numpy(), tensors["scaling.scale"].numpy(), constant)


def require_figures(record: Record) -> None:
    """Raise unless a record has everything that reports show."""
    if lacking := {"epoch", "reconstruction", "kl", "c", "prior_scale"} - set(record):
        raise ValueError(f"{METRICS} lacks {', '.join(sorted(lacking))}")


def save_fitted(folder: Path, fitted: Fitted, embedding: Embedding, description: Mapping[str, Any]) -> None:
    """Write a model and the embedding of its training data.

    `description` is what else `config.json` shall hold, `data` with the `schema` among it.
    """
    rows = sum(len(part) for part in (fitted.split.train, fitted.split.validation, fitted.split.test))
    split = np.zeros(rows, np.int8)
    split[fitted.split.validation], split[fitted.split.test] = 1, 2
    more = {"likelihood_reason": fitted.reason, "layout": fitted.layout.to_json(), **description}
    write_model(folder, fitted, embedding, scaling_arrays(fitted.scaling), {"split": split}, "vae", more)


def read_description(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """`config.json` of a run folder, checked for format and kind."""
    command = _ANY_COMMAND if kind is None else _COMMANDS[kind]
    refuse_dangling(folder)
    if not folder.is_dir():
        raise CurvaeError(f"{folder} is not a folder; give the folder that {command} wrote")
    if not ((folder / CONFIG).exists() or (folder / CONFIG).is_symlink()):
        raise CurvaeError(f"{folder} is not a run: it has no {CONFIG}; give the folder that {command} wrote")
    description = read_json(folder / CONFIG)
    if not isinstance(description, dict) or type(found := description.get("format")) is not int or found < 1:
        raise CurvaeError(f"{folder / CONFIG} is not the description of a run; train again")
    if description["format"] > FORMAT:
        raise CurvaeError(
            f"{folder} was written by a newer Curvae (format {description['format']}, this one reads up to {FORMAT}); "
            "upgrade with pip install --upgrade curvae"
        )
    if kind is not None and description.get("kind") != kind:
        raise _wrong_kind(folder, description, _KINDS[kind], command)
    return migrated(description)


def _wrong_kind(folder: Path, description: Mapping[str, Any], wanted: str, command: str) -> CurvaeError:
    own = description.get("kind")
    held = _KINDS.get(own, f"a {own}") if isinstance(own, str) else "nothing that has a name"
    return CurvaeError(f"{folder} holds {held}, not {wanted}; give a folder that {command} wrote")


def kind_of(folder: Path) -> str:
    """Whether a run folder holds a model of a table, "vae", or of a graph, "graph"; anything else is an error."""
    description = read_description(folder)
    if (kind := description.get("kind")) not in _MODELS:
        raise _wrong_kind(folder, description, "a model", _ANY_COMMAND)
    return str(kind)


def _layout_without(schema: Schema) -> Layout:
    """Of runs that stored none: blocks were told apart only where all columns were categorical."""
    widths = tuple(len(column.features) for column in schema.columns)
    all_categorical = all(column.categories is not None for column in schema.columns)
    return Layout(len(schema.names), widths if all_categorical else ())


def load_fitted(folder: Path, device: torch.device | str = "cpu") -> tuple[Fitted, Embedding, dict[str, Any]]:
    """A model written by `save_fitted`, the embedding of its training data, and the whole of its `config.json`."""
    description, tensors, places = read_model(folder, "vae")
    with whole_run(folder):
        config = Config.from_json(description["config"])
        schema = Schema.from_json(description["data"]["schema"])
        layout = Layout.from_json(description["layout"]) if "layout" in description else _layout_without(schema)
        model = restore(tensors, layout.inputs, config, lambda: build(config, layout))
        scaling = restore_scaling(tensors)
        split = places["split"].numpy()
        parts = Split(*(np.flatnonzero(split == k) for k in range(3)))
        reason = str(description.get("likelihood_reason", ""))
        fitted = Fitted(config, model, scaling, reason, parts, read_records(folder / METRICS), layout=layout)
        require_figures(fitted.last)
        embedding = restore_embedding(places, fitted.double().model.space)
    fitted.model.to(device)
    return fitted, embedding, description
