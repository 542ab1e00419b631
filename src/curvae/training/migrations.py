"""What older versions wrote in `config.json`, in the words of today.

Each step leads from one format to the next. A setting that a file does not name gets the value it had at that time,
so that no later default changes what an old run means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..models.likelihoods.base import Matrix, stored_values
from ..settings import ADDED, GraphSettings, RowSettings, Settings, described

__all__ = ["FORMAT", "automatic_before_3", "migrated"]

FORMAT = 3
"""3: settings by part, the embedding and the split in a file of their own"""

Description = dict[str, Any]

_SHARED: dict[str, Any] = {
    "dim": 2,
    "curvature": 1.0,
    "learn_curvature": False,
    "diagonal": False,
    "prior_scale": 1.0,
    "learn_prior_scale": False,
    "samples": 1,
    "beta": 1.0,
    "tf32": True,
    "seed": 0,
}
_ROWS: dict[str, Any] = {
    **_SHARED,
    "posterior": "riemannian",
    "hidden": [200],
    "epochs": None,
    "learning_rate": 1e-3,
    "decoder": "gyroplane",
    "likelihood": "auto",
    "standardise": True,
    "objective": "elbo",
    "batch_size": 64,
    "validation": 0.1,
    "patience": None,
}
_GRAPH: dict[str, Any] = {
    **_SHARED,
    "posterior": "wrapped",
    "hidden": [32],
    "epochs": 800,
    "learning_rate": 1e-2,
    "edges": "geodesic",
    "weight": 2.0,
}


def _from_1(description: Description) -> Description:
    """Flat models of gyroplanes had a linear layer in place of those."""
    config = description["config"]
    flat = config.get("curvature") == 0 and not config.get("learn_curvature")
    if not _of_a_graph(description) and flat and config.get("decoder") in ("gyroplane", "gyroplane_scalar"):
        return {**description, "config": {**config, "decoder": "log_mlp"}}
    return description


def _from_2(description: Description) -> Description:
    """All settings were named side by side; what is not known stays there, to be refused."""
    values = {**(_GRAPH if _of_a_graph(description) else _ROWS), **description["config"]}
    parts = {
        part: {name: values.pop(name) for name in described(of) if name in values}
        for part, of in _kind(description).parts.items()
    }
    return {**description, "config": {**values, **parts}}


_STEPS: dict[int, Callable[[Description], Description]] = {1: _from_1, 2: _from_2}


def _completed(description: Description) -> Description:
    """With the settings that came later, as they were before."""
    config = dict(description["config"])
    for part, of in _kind(description).parts.items():
        if isinstance(known := config.get(part, {}), dict):
            config[part] = {**{name: ADDED[name] for name in described(of) if name in ADDED}, **known}
    return {**description, "config": config}


def _kind(description: Description) -> type[Settings]:
    return GraphSettings if _of_a_graph(description) else RowSettings


def _of_a_graph(description: Description) -> bool:
    if description.get("kind") != "comparison":
        return description.get("kind") == "graph"
    source = description.get("source")
    return isinstance(source, Mapping) and "nodes" in source


def migrated(description: Description) -> Description:
    """The description of a run in the format of today."""
    if not isinstance(description.get("config"), dict):
        return description  # whoever needs the settings will say that they are missing
    for step in range(description["format"], FORMAT):
        description = _STEPS[step](description)
    return _completed(description)


def automatic_before_3(x: Matrix) -> str:
    """The likelihood that "auto" stood for, whatever the kinds of the columns."""
    values = stored_values(x)
    return "bernoulli" if bool(((values == 0) | (values == 1)).all()) else "gaussian"
