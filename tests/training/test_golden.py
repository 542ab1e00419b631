"""Losses, gradients and trainings are the recorded ones: what a change of structure must leave as it is.

`tests/make_golden.py` writes the records. Only the adapter below knows how models are built, called and trained; a
change of the interface changes it, and neither the records nor the comparisons.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.utils._pytree import tree_map

from curvae.data import Graph, split_edges
from curvae.models import Layout, Stack
from curvae.models.likelihoods import choose_likelihood
from curvae.nn import normalised_adjacency
from curvae.training import Config, GraphConfig, Rows, Scaling, build, fit, fit_graph, fit_graphs, fit_many
from curvae.training.engine import losses
from curvae.training.graph_problem import build_graph_model
from paths import DATA

__all__ = ["CASES", "record", "record_file"]

# --- the adapter ----------------------------------------------------------------------------------------------------

# Patterns of today's names of parameters, and what the records call them. Several modules share the curvature, which
# has the name of the first.
RENAMED: dict[str, str] = {r".*curvature\.log_c": "log_c", r".*\.log_scale": "prior.log_scale"}


def recorded_name(name: str) -> str:
    for pattern, old in RENAMED.items():
        name = re.sub(f"^{pattern}$", old, name)
    return name


def config_of(case: Case, place: int, **changes: Any) -> Any:
    settings = case.settings_of(place) | changes
    return Config(**settings) if case.rows else GraphConfig(**settings)


def graph_of(case: Case) -> Graph:
    edges, weights, features = graph_numbers(case.data)
    names = np.array([f"n{i}" for i in range(NODES)])
    columns = () if features is None else ("a", "b", "c")
    return Graph(names, edges, weights, features, columns)


def loss_of(case: Case, noise: torch.dtype) -> list[tuple[float, dict[str, np.ndarray]]]:
    """Loss and gradients of every model of a case, from fixed weights, batch and noise, in float64.

    Noise in float32, which trainings have, allows tabulated Riemannian radii.
    """
    return (_loss_of_rows if case.rows else _loss_of_graphs)(case, noise)


@contextmanager
def portable_randomness() -> Iterator[None]:
    """Fresh weights and noise from the same bits of torch's generators on every processor.

    Its own float32 numbers differ in the last place between processors, which a hundred steps multiply a thousandfold.
    """

    def randn(*shape: int, generator: Any = None, device: Any = None, dtype: Any = None) -> torch.Tensor:
        return torch.special.ndtri(torch.rand(*shape, generator=generator, dtype=torch.float64)).to(device, dtype)

    def uniform_(tensor: torch.Tensor, low: float, high: float, generator: Any = None) -> torch.Tensor:
        return tensor.copy_(low + (high - low) * torch.rand(tensor.shape, generator=generator, dtype=torch.float64))

    with mock.patch.object(torch, "randn", randn), mock.patch.object(torch.Tensor, "uniform_", uniform_):
        yield


def train(case: Case, epochs: int) -> list[list[dict[str, float]]]:
    """The record of every epoch of every model of a case."""
    with portable_randomness():
        return _train(case, epochs)


def _train(case: Case, epochs: int) -> list[list[dict[str, float]]]:
    configs = [config_of(case, place, epochs=epochs) for place in range(case.models)]
    options: dict[str, Any] = {"dtype": case.dtype}
    if not case.rows:
        graph = graph_of(case)
        if case.models == 1:
            return [fit_graph(configs[0], graph, **options).history]
        splits = [split_edges(graph, seed=place) for place in range(case.models)]
        return [fitted.history for fitted in fit_graphs(configs, graph, splits=splits, **options)]
    data = [row_numbers(case.data, place if case.own_data else 0) for place in range(case.models)]
    options["blocks"] = case.blocks
    if case.models == 1:
        return [fit(configs[0], data[0], **options).history]
    return [fitted.history for fitted in fit_many(configs, data if case.own_data else data[0], **options)]


def _fill(model: torch.nn.Module, place: int) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = numbers(f"weight {place} {recorded_name(name)}", parameter.numel())
            parameter.copy_(torch.from_numpy(0.6 * values).view_as(parameter))


def _gradients(loss: torch.Tensor, leaves: dict[str, torch.Tensor], models: int) -> Any:
    found = torch.autograd.grad(loss.sum(), list(leaves.values()))
    named = {recorded_name(name): g.reshape(models, -1).numpy() for name, g in zip(leaves, found, strict=True)}
    each = loss.detach().reshape(-1).tolist()
    return [(each[i], {name: g[i] for name, g in named.items()}) for i in range(models)]


def _noise(case: Case, place: int, rows: int, dtype: torch.dtype) -> torch.Tensor:
    shape = case.settings["samples"], rows, case.settings["dim"]
    return torch.from_numpy(1.4 * numbers(f"noise {place}", math.prod(shape)).reshape(shape)).to(dtype)


def _loss_of_rows(case: Case, dtype: torch.dtype) -> list[tuple[float, dict[str, np.ndarray]]]:
    models, batches, noises = [], [], []
    for place in range(case.models):
        x = row_numbers(case.data, place if case.own_data else 0)
        likelihood, _ = choose_likelihood(x, case.settings["likelihood"], Layout(FEATURES, case.blocks))
        config = config_of(case, place, likelihood=likelihood)
        scaling = Scaling.standard(x) if config.scales else Scaling.identity(FEATURES)
        models.append(build(config, FEATURES, case.blocks).double())
        _fill(models[-1], place)
        batches.append(Rows(x, scaling, dtype=torch.float64).batch(torch.arange(BATCH)))
        noises.append(_noise(case, place, BATCH, dtype))
    if case.models > 1:
        stack = Stack(models)
        terms = stack.terms(tree_map(lambda *parts: torch.stack(parts), *batches), torch.stack(noises))
        beta = torch.tensor([case.settings_of(place)["beta"] for place in range(case.models)]).double().view(-1, 1, 1)
        return _gradients(losses(terms, config, beta), stack.leaves, case.models)
    (model,), (x,), (noise,) = models, batches, noises
    bound = model.iwae(x, noise=noise) if config.objective == "iwae" else model.elbo(x, beta=config.beta, noise=noise)
    return _gradients(-bound.mean(), dict(model.named_parameters()), 1)


def _loss_of_graphs(case: Case, dtype: torch.dtype) -> list[tuple[float, dict[str, np.ndarray]]]:
    graph, found = graph_of(case), []
    edges = torch.from_numpy(graph.edges.T.copy())
    weights = torch.ones(len(graph.edges)) if graph.weights is None else torch.from_numpy(graph.weights)
    adjacency = normalised_adjacency(edges, NODES, weights.double())
    features = None
    if graph.features is not None:
        features = torch.from_numpy(Scaling.standard(graph.features).apply(graph.features))
    for place in range(case.models):
        config = config_of(case, place)
        model = build_graph_model(config, NODES, None if features is None else features.shape[1]).double()
        _fill(model, place)
        noise = _noise(case, place, NODES, dtype)
        elbo = model.elbo(adjacency, edges, beta=config.divergence_weight, noise=noise, features=features)
        found += _gradients(-elbo, dict(model.named_parameters()), 1)
    return found


# --- the cases ------------------------------------------------------------------------------------------------------

FEATURES, BATCH, NODES = 6, 7, 20

# Every setting is named, so that no default is part of a record. Curvatures and prior scales are exact in float32.
COMMON: dict[str, Any] = {
    "dim": 2,
    "curvature": 1.25,
    "learn_curvature": False,
    "posterior": "riemannian",
    "diagonal": False,
    "prior_scale": 1.0,
    "learn_prior_scale": False,
    "hidden": (5,),
    "samples": 1,
    "beta": 1.0,
    "epochs": 20,
    "learning_rate": 0.01,
    "adam_beta2": 0.999,
    "cooldown": 0.0,
    "tf32": False,
    "seed": 0,
}
# 44 rows, of which 40 train in five steps an epoch: a hundred steps.
ROWS: dict[str, Any] = COMMON | {
    "decoder": "gyroplane",
    "standardise": True,
    "objective": "elbo",
    "batch_size": 8,
    "weight_decay": 0.0,
    "noise_rate": 1.0,
    "validation": 0.1,
    "patience": None,
    "neighbours": "off",
}
GRAPHS: dict[str, Any] = COMMON | {
    "posterior": "wrapped",
    "epochs": 100,
    "encoder": "convolutions",
    "edges": "geodesic",
    "popularity": "off",
    "pairs": "all",
    "hide": 0.0,
    "weight": 2.0,
    "patience": None,
}


@dataclass(frozen=True)
class Case:
    """One or more models with their data."""

    name: str
    data: str
    settings: dict[str, Any]
    each: tuple[dict[str, Any], ...] = ({},)
    """in what the models of a stack differ"""
    own_data: bool = False
    blocks: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float64

    @property
    def rows(self) -> bool:
        return "decoder" in self.settings

    @property
    def models(self) -> int:
        return len(self.each)

    def settings_of(self, place: int) -> dict[str, Any]:
        return self.settings | self.each[place]


def rows(
    name: str,
    data: str,
    each: tuple[dict[str, Any], ...] = ({},),
    own_data: bool = False,
    *,
    blocks: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float64,
    **changes: Any,
) -> Case:
    likelihood = {"likelihood": "bernoulli" if data == "binary" else "gaussian"}
    return Case(name, data, ROWS | likelihood | changes, each, own_data, blocks, dtype)


def graph(name: str, data: str, each: tuple[dict[str, Any], ...] = ({},), **changes: Any) -> Case:
    return Case(name, data, GRAPHS | changes, each)


DIAGONAL = {"posterior": "wrapped", "diagonal": True}
# What is chosen for a map by default: neighbours, the start at principal components, and a rate that falls.
MAP = {"neighbours": "auto", "init": "auto", "cooldown": 0.5}
DIFFERENT = (
    {"seed": 0},
    {"seed": 1, "curvature": 0.5, "beta": 0.5},
    {"seed": 2, "learning_rate": 0.02, "prior_scale": 1.5},
)

CASES = [
    rows("gaussian_standardised", "real"),
    rows("gaussian_float32", "real", dtype=torch.float32),
    rows("gaussian_flat_gyroplane", "real", curvature=0.0, batch_size=16),
    rows("gaussian_learned_curvature", "real", learn_curvature=True),
    rows("gaussian_learned_prior_scale", "real", learn_prior_scale=True, prior_scale=1.5, posterior="wrapped"),
    rows("gaussian_early_stopping", "real", hidden=(5, 4), learning_rate=0.1, patience=3),
    rows("gaussian_sparse", "sparse", decoder="gyroplane_scalar"),
    rows("unit_gaussian_ordinary", "real", likelihood="unit_gaussian", decoder="log_mlp", curvature=0.0, **DIAGONAL),
    rows("unit_gaussian_raw_draws", "real", likelihood="unit_gaussian", standardise=False, samples=4, beta=0.5),
    rows("auto_sparse_binary", "sparse_binary", likelihood="auto", decoder="log_mlp", curvature=0.5),
    rows("bernoulli_scalar_diagonal", "binary", decoder="gyroplane_scalar", **DIAGONAL),
    rows("bernoulli_mobius", "binary", decoder="mobius", posterior="wrapped", dim=3),
    rows("bernoulli_learned_log_mlp", "binary", decoder="log_mlp", learn_curvature=True, **DIAGONAL),
    rows("bernoulli_iwae", "binary", objective="iwae", samples=5),
    rows("categorical_mlp", "categories", blocks=(2, 4), likelihood="categorical", decoder="mlp", curvature=0.75),
    rows("stack", "real", each=DIFFERENT),
    rows("stack_own_data", "real", DIFFERENT, True, objective="iwae", samples=3, learn_curvature=True, **DIAGONAL),
    rows("map", "real", **MAP),
    rows("map_stack_early_fall", "real", DIFFERENT, True, learning_rate=0.1, patience=3, **MAP),
    graph("graph_geodesic", "tree"),
    graph("graph_flat_riemannian", "weighted", curvature=0.0, posterior="riemannian", samples=2),
    graph("graph_features", "features", diagonal=True, weight=1.0, learn_curvature=True, learn_prior_scale=True),
    graph("graph_fermi_dirac", "tree", edges="fermi_dirac", beta=0.5, posterior="riemannian"),
    graph("graph_stack", "features", DIFFERENT, edges="fermi_dirac", learn_curvature=True),
]


def numbers(name: str, count: int) -> np.ndarray:
    """Numbers between −1 and 1 that depend on a name alone: no generator of any library is part of a record."""
    i = np.arange(1.0, count + 1)
    return np.sin(2 * np.pi * zlib.crc32(name.encode()) / 2**32 + 0.7 * i * i + 1.3 * i)


def row_numbers(kind: str, place: int = 0) -> Any:
    """44 rows around a line, in columns of different means and units."""
    along, across = numbers(f"along {place}", 44), numbers(f"across {place}", 44 * FEATURES).reshape(44, FEATURES)
    x = along[:, None] * np.arange(1, FEATURES + 1) / 2 + 0.8 * across
    if kind == "real":
        return 0.5 * x * np.arange(1, FEATURES + 1) + np.arange(FEATURES)
    if kind == "sparse":
        return sparse.csr_array(np.where(across > 0.2, 2 * x, 0.0))
    if kind == "categories":
        return np.concatenate([np.eye(2)[x[:, :2].argmax(1)], np.eye(4)[x[:, 2:].argmax(1)]], 1)
    binary = (x > 0.3).astype(float)
    return sparse.csr_array(binary) if kind == "sparse_binary" else binary


def graph_numbers(kind: str) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """A binary tree with a few more edges: edges, weights, features."""
    edges = {((i - 1) // 2, i) for i in range(1, NODES)} | {(i, (7 * i) % 13 + 6) for i in range(0, 6, 2)}
    listed = np.array(sorted(edges), np.int64)
    weights = 1.5 + numbers("edges", len(listed)) if kind == "weighted" else None
    features = numbers("nodes", 3 * NODES).reshape(NODES, 3) * [1.0, 5.0, 0.2] + [0.0, 3.0, 1.0]
    return listed, weights, features if kind == "features" else None


# --- records and comparisons ----------------------------------------------------------------------------------------

FOLDER = DATA / "golden"
NOISE = {"float64": torch.float64, "float32": torch.float32}


def record_file(case: Case) -> Path:
    return FOLDER / f"{case.name}.json"


def record(case: Case) -> dict[str, Any]:
    """What is kept of a case. Of a gradient: its norm, and what it is along two fixed vectors."""
    steps = {name: loss_of(case, dtype) for name, dtype in NOISE.items()}
    return {
        "steps": {
            name: [
                {"loss": loss, "gradients": {key: _summary(key, g) for key, g in gradients.items()}}
                for loss, gradients in found
            ]
            for name, found in steps.items()
        },
        "trainings": [
            {key: [epoch[key] for epoch in history] for key in history[0] if key != "seconds"}
            for history in train(case, case.settings["epochs"])
        ],
    }


def _summary(name: str, gradient: np.ndarray) -> list[float]:
    along = [float(gradient @ numbers(f"{probe} {name}", gradient.size)) for probe in ("first", "second")]
    return [float(np.linalg.norm(gradient)), *along]


def recorded(case: Case) -> dict[str, Any]:
    return json.loads(record_file(case).read_text())


each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
@pytest.mark.parametrize("noise", NOISE)
def test_losses_and_gradients(case, noise):
    for (loss, gradients), expected in zip(loss_of(case, NOISE[noise]), recorded(case)["steps"][noise], strict=True):
        np.testing.assert_allclose(loss, expected["loss"], rtol=1e-10)
        assert gradients.keys() == expected["gradients"].keys()
        for name, gradient in gradients.items():
            known = expected["gradients"][name]
            # Along a vector a gradient may vanish; rounding is relative to its norm.
            scale = 1e-10 * max(known[0], 1e-3)
            np.testing.assert_allclose(_summary(name, gradient), known, rtol=0, atol=scale, err_msg=name)


@each_case
def test_trainings(case):
    """Where nothing depends on their length, the first quarter, but of one training of rows and one of a graph."""
    rtol = 1e-6 if case.dtype == torch.float64 else 1e-3  # processors round float32 products in different ways
    known, epochs = recorded(case)["trainings"], case.settings["epochs"]
    whole = case.name in ("gaussian_standardised", "graph_geodesic")
    if not (whole or case.settings["cooldown"] or case.settings["patience"]):
        epochs //= 4
    for history, expected in zip(train(case, epochs), known, strict=True):
        assert len(history) == len(expected["epoch"][:epochs])
        for key, values in expected.items():
            found = [record[key] for record in history]
            np.testing.assert_allclose(found, values[:epochs], rtol=rtol, atol=1e-2 * rtol, err_msg=key)


def test_every_record_has_a_case():
    assert {path.name for path in FOLDER.iterdir()} == {record_file(case).name for case in CASES}
