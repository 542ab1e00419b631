"""A trained model on disk: `config.json`, `model.safetensors`, `embedding.safetensors`, `metrics.jsonl`.

No pickle: loading cannot run code.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import __version__
from ..data.files import meant, refuse_dangling
from ..errors import CurvaeError
from ..settings import ADDED, GraphSettings, RowSettings, Settings, described
from .embedding import Embedding, placed_factors
from .files import read_json, read_records, read_tensors, write_json, write_records, write_tensors
from .fitted import METRICS, Fitted, FittedModel, RunFiles

__all__ = [
    "COMMANDS",
    "FORMAT",
    "Loaded",
    "description_of",
    "kind_of",
    "load_fitted",
    "read_description",
    "read_model",
    "save_fitted",
    "versions",
]

FORMAT = 3
"""the format of run folders: settings by part, the embedding and the split in a file of their own"""

CONFIG, MODEL, EMBEDDING = "config.json", "model.safetensors", "embedding.safetensors"

_SUMS = {MODEL: "model_sha256", EMBEDDING: "embedding_sha256"}
_KINDS = {"vae": "a model of a table", "graph": "a model of a graph", "comparison": "a comparison"}
COMMANDS = {"vae": "curvae fit", "graph": "curvae graph", "comparison": "curvae compare"}
_MODELS = ("vae", "graph")
_ANY_COMMAND = " or ".join(COMMANDS[kind] for kind in _MODELS)


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


def save_fitted(
    folder: Path, fitted: FittedModel, embedding: Embedding, description: Mapping[str, Any], data: Any = None
) -> None:
    """Write a model of any kind, its records and its embedding, and last what describes them.

    Arguments:
        folder: of the run.
        fitted: what was trained.
        embedding: of its training data.
        description: what else `config.json` shall hold; of a table, `data` with the `schema` among it.
        data: the graph that it was trained on, where it was one.
    """
    stored = fitted.stored(data)
    tensors = {f"model.{name}": t.float() for name, t in fitted.model.state_dict().items()}
    places = {"space": embedding.space, "sigma": embedding.sigma, **stored.split}
    of_nodes = (("popularity", embedding.popularity), ("side", embedding.side))
    places |= {name: numbers for name, numbers in of_nodes if numbers is not None}
    write_records(folder / METRICS, fitted.history)
    write_tensors(folder / MODEL, tensors | {name: torch.from_numpy(a) for name, a in stored.arrays.items()})
    write_tensors(folder / EMBEDDING, {name: torch.from_numpy(a) for name, a in places.items()})
    sums = {name: _digest(folder / file) for file, name in _SUMS.items()}
    own = {**description_of(fitted.config, fitted.kind), **sums}
    write_json(folder / CONFIG, {**own, **stored.description, **description})


def read_model(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
    """What `save_fitted` wrote, as it was written: the description, the tensors of the model and of the embedding."""
    description = read_description(folder, kind)
    if "model_sha256" not in description:
        raise CurvaeError(f"{folder} is not finished; finish it with {COMMANDS[kind]} and resume=True")
    return description, _read(folder, MODEL, description), _read(folder, EMBEDDING, description)


def _read(folder: Path, file: str, description: Mapping[str, Any]) -> dict[str, Tensor]:
    tensors, _ = read_tensors(folder / file)
    if _digest(folder / file) != description.get(_SUMS[file]):
        raise CurvaeError(
            f"{folder / file} is not the file that was written (its checksum differs); restore it or train again"
        )
    return tensors


def read_description(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """Read `config.json` of a run folder and check its format and kind.

    Settings that were introduced after the folder was written get the value of `ADDED`.
    """
    command = _ANY_COMMAND if kind is None else COMMANDS[kind]
    refuse_dangling(folder)
    if not folder.is_dir():
        give = f"give the folder that {command} wrote"
        raise CurvaeError(f"{folder} is not a folder; {give if folder.exists() else meant(folder, give)}")
    if not ((folder / CONFIG).exists() or (folder / CONFIG).is_symlink()):
        raise CurvaeError(f"{folder} is not a run: it has no {CONFIG}; give the folder that {command} wrote")
    description = read_json(folder / CONFIG)
    if not isinstance(description, dict) or type(found := description.get("format")) is not int or found < 1:
        raise CurvaeError(f"{folder / CONFIG} is not the description of a run; train again")
    if found < FORMAT:
        raise CurvaeError(f"{folder} was written in format {found}; only format {FORMAT} is supported: train it again")
    if found > FORMAT:
        raise CurvaeError(
            f"{folder} was written by a newer Curvae (format {found}, this one reads format {FORMAT}); "
            "upgrade with pip install --upgrade curvae"
        )
    if kind is not None and description.get("kind") != kind:
        raise _wrong_kind(folder, description, _KINDS[kind], command)
    if isinstance(config := description.get("config"), dict):
        for part, of in _settings_kind(description).parts.items():
            if isinstance(known := config.get(part, {}), dict):
                config[part] = {**{name: ADDED[name] for name in described(of) if name in ADDED}, **known}
    return description


def _settings_kind(description: Mapping[str, Any]) -> type[Settings]:
    """Return whether a run, or all trainings of a comparison, have the settings of rows or of a graph."""
    if description.get("kind") == "comparison":
        source = description.get("source")
        return GraphSettings if isinstance(source, Mapping) and "nodes" in source else RowSettings
    return GraphSettings if description.get("kind") == "graph" else RowSettings


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


class Loaded(NamedTuple):
    """What a run folder holds.

    Arguments:
        fitted: a `Fitted` or `FittedGraph`.
        embedding: of its training data.
        description: the whole of `config.json`.
        data: the graph, or the schema of the table, that it was trained on.
    """

    fitted: Any
    embedding: Embedding
    description: dict[str, Any]
    data: Any


def load_fitted(folder: Path, kind: type[FittedModel] = Fitted, device: torch.device | str = "cpu") -> Loaded:
    """A model of a kind, `Fitted` or `FittedGraph`, that `save_fitted` wrote."""
    description, tensors, places = read_model(folder, kind.kind)
    try:
        fitted, data = kind.restore(RunFiles(description, tensors, places, read_records(folder / METRICS)))
        if lacking := {"epoch", "reconstruction", "kl", *fitted.model.space.numbers()} - set(fitted.last):
            raise ValueError(f"{METRICS} lacks {', '.join(sorted(lacking))}")
        factors = placed_factors(fitted.double().model.space, kind.units)
        own = (places[name].numpy() if name in places else None for name in ("popularity", "side"))
        embedding = Embedding(places["space"].numpy(), places["sigma"].numpy(), factors, *own)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        message = str(error).splitlines()[0].removesuffix("; train again")
        raise CurvaeError(f"{folder} does not hold a whole run ({message}); train again") from error
    fitted.model.to(device)
    return Loaded(fitted, embedding, description, data)
