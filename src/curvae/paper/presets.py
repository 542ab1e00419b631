"""Settings of the experiments in full: every setting is named, so that no default elsewhere is part of a table.

An experiment changes what it varies (curvature, dimension, decoder, seed) and takes the rest from here.
"""

from __future__ import annotations

from typing import Any

__all__ = ["BRANCHING_DIFFUSION", "GRAPHS", "MNIST"]

# Appendix C.1; centring and scaling to unit variance is done before the split, on all rows.
BRANCHING_DIFFUSION: dict[str, Any] = {
    "space": None,
    "dim": 2,
    "curvature": 1.0,
    "learn_curvature": False,
    "posterior": "riemannian",
    "diagonal": False,
    "prior_scale": 1.0,
    "learn_prior_scale": False,
    "hidden": [200],
    "samples": 1,
    "beta": 1.0,
    "epochs": 1000,
    "learning_rate": 1e-3,
    "adam_beta2": 0.999,
    "cooldown": 0.0,
    "tf32": True,
    "seed": 0,
    "network": "mlp",
    "decoder": "gyroplane",
    "encode_covariates": False,
    "likelihood": "unit_gaussian",
    "standardise": True,
    "objective": "elbo",
    "neighbours": "off",
    "neighbours_weight": None,
    "n_neighbours": 15,
    "init": "random",
    "steps": None,
    "epoch_steps": None,
    "batch_size": 64,
    "weight_decay": 0.0,
    "validation": 0.0,
    "patience": None,
}

# Appendix C.2; grey levels are the targets, the last bias starts at the logit of the mean image.
MNIST: dict[str, Any] = {
    "space": None,
    "dim": 2,
    "curvature": 1.0,
    "learn_curvature": False,
    "posterior": "riemannian",
    "diagonal": False,
    "prior_scale": 1.0,
    "learn_prior_scale": False,
    "hidden": [600],
    "samples": 1,
    "beta": 1.0,
    "epochs": 80,
    "learning_rate": 5e-4,
    "adam_beta2": 0.999,
    "cooldown": 0.0,
    "tf32": True,
    "seed": 0,
    "network": "mlp",
    "decoder": "gyroplane",
    "encode_covariates": False,
    "likelihood": "bernoulli",
    "standardise": True,
    "objective": "elbo",
    "neighbours": "off",
    "neighbours_weight": None,
    "n_neighbours": 15,
    "init": "random",
    "steps": None,
    "epoch_steps": None,
    "batch_size": 128,
    "weight_decay": 0.0,
    "validation": 0.0,
    "patience": None,
}

# Appendix C.3; the curvature is not given there, and c = 1 is the natural reading.
GRAPHS: dict[str, Any] = {
    "space": None,
    "dim": 5,
    "curvature": 1.0,
    "learn_curvature": False,
    "posterior": "wrapped",
    "diagonal": False,
    "prior_scale": 1.0,
    "learn_prior_scale": False,
    "hidden": [32],
    "samples": 1,
    "beta": 1.0,
    "epochs": 800,
    "learning_rate": 1e-2,
    "adam_beta2": 0.999,
    "cooldown": 0.0,
    "tf32": True,
    "seed": 0,
    "encoder": "convolutions",
    "edges": "geodesic",
    "popularity": "off",
    "directed": False,
    "pairs": "all",
    "hide": 0.0,
    "weight": 2.0,
    "patience": None,
}
