"""A trained model on disk: `config.json`, `model.safetensors`, `metrics.jsonl`. No pickle: loading cannot run code."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..data import Schema
from ..errors import CurvaeError
from .build import build
from .config import Config
from .evaluate import Embedding
from .files import read_json, read_records, read_tensors, write_json, write_records, write_tensors
from .fitted import METRICS, Fitted
from .rows import Scaling
from .splits import Split

__all__ = ["FORMAT", "description_of", "load_fitted", "read_description", "save_fitted", "versions"]

FORMAT = 1

CONFIG, MODEL = "config.json", "model.safetensors"


def versions() -> dict[str, str]:
    """Versions of what computes."""
    return {
        "curvae": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def description_of(config: Config, kind: str) -> dict[str, Any]:
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
    folder: Path, fitted: Fitted, embedding: Embedding, description: Mapping[str, Any], kind: str = "vae"
) -> None:
    """Write a model and the embedding of its training data.

    `description` is what else `config.json` shall hold, `data` with the `schema` among it.
    """
    tensors = {f"model.{name}": t.float() for name, t in fitted.model.state_dict().items()}
    rows = sum(len(part) for part in (fitted.split.train, fitted.split.validation, fitted.split.test))
    split = np.zeros(rows, np.int8)
    split[fitted.split.validation], split[fitted.split.test] = 1, 2
    arrays = {
        "scaling.shift": fitted.scaling.shift,
        "scaling.scale": fitted.scaling.scale,
        "split": split,
        "embedding.space": embedding.space,
        "embedding.sigma": embedding.sigma,
    }
    if fitted.scaling.constant is not None:
        arrays["scaling.constant"] = fitted.scaling.constant
    write_records(folder / METRICS, fitted.history)
    write_tensors(folder / MODEL, tensors | {name: torch.from_numpy(a) for name, a in arrays.items()})
    write_json(
        folder / CONFIG,
        {
            **description_of(fitted.config, kind),
            "likelihood_reason": fitted.reason,
            "model_sha256": _digest(folder / MODEL),
            **description,
        },
    )


def read_description(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """`config.json` of a run folder, checked for format and kind."""
    if not folder.is_dir():
        raise CurvaeError(f"{folder} is not a folder; give the folder that curvae {_command(kind)} wrote")
    if not (folder / CONFIG).exists():
        raise CurvaeError(
            f"{folder} is not a run: it has no {CONFIG}; give the folder that curvae {_command(kind)} wrote"
        )
    description = read_json(folder / CONFIG)
    if not isinstance(description, dict) or type(found := description.get("format")) is not int or found < 1:
        raise CurvaeError(f"{folder / CONFIG} is not the description of a run; train again")
    if description["format"] > FORMAT:
        raise CurvaeError(
            f"{folder} was written by a newer Curvae (format {description['format']}, this one reads up to {FORMAT}); "
            "upgrade with pip install --upgrade curvae"
        )
    if kind is not None and description.get("kind") != kind:
        wanted = "comparison" if kind == "comparison" else f"model ({kind})"
        raise CurvaeError(
            f"{folder} holds a {description.get('kind')}, not a {wanted}; "
            f"give a folder that curvae {_command(kind)} wrote"
        )
    return description


def _command(kind: str | None) -> str:
    return "compare" if kind == "comparison" else "fit"


def load_fitted(
    folder: Path, kind: str | None = "vae", device: torch.device | str = "cpu"
) -> tuple[Fitted, Embedding, dict[str, Any]]:
    """A model written by `save_fitted`, the embedding of its training data, and the whole of its `config.json`."""
    description = read_description(folder, kind)
    if "model_sha256" not in description:
        raise CurvaeError(f"{folder} is not finished; go on with curvae fit --resume")
    tensors, _ = read_tensors(folder / MODEL)
    if _digest(folder / MODEL) != description["model_sha256"]:
        raise CurvaeError(
            f"{folder / MODEL} is not the file that was written (its checksum differs); restore it or train again"
        )
    try:
        config = Config.from_json(description["config"])
        schema = Schema.from_json(description["data"]["schema"])
        state = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
        # The encoder alone holds so many weights: sizes that someone made up are refused before they are allocated.
        sizes = (len(schema.names), *config.hidden, config.dim)
        if sum(a * b for a, b in pairwise(sizes)) > sum(t.numel() for t in state.values()):
            raise ValueError(f"layers of {', '.join(map(str, sizes))} are larger than the file")
        model = build(config, len(schema.names), schema.blocks)
        model.load_state_dict(state)
        constant = tensors["scaling.constant"].numpy() if "scaling.constant" in tensors else None
        scaling = Scaling(tensors["scaling.shift"].numpy(), tensors["scaling.scale"].numpy(), constant)
        split = tensors["split"].numpy()
        parts = Split(*(np.flatnonzero(split == k) for k in range(3)))
        reason = str(description.get("likelihood_reason", ""))
        fitted = Fitted(config, model.eval(), scaling, reason, parts, read_records(folder / METRICS))
        space, sigma = (tensors[f"embedding.{name}"].numpy() for name in ("space", "sigma"))
        embedding = Embedding(space, sigma, float(fitted.double().model.prior.curvature().detach()))
        if lacking := {"epoch", "reconstruction", "kl", "c", "prior_scale"} - set(fitted.last):
            raise ValueError(f"{METRICS} lacks {', '.join(sorted(lacking))}")
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        message = str(error).splitlines()[0].removesuffix("; train again")
        raise CurvaeError(f"{folder} does not hold a whole run ({message}); train again") from error
    fitted.model.to(device)
    return fitted, embedding, description
