"""Names that settings choose from."""

from __future__ import annotations

from typing import Literal

__all__ = [
    "LIKELIHOODS",
    "DecoderKind",
    "DistributionKind",
    "EdgeKind",
    "EncoderKind",
    "InitKind",
    "NeighbourKind",
    "NetworkKind",
    "ObjectiveKind",
    "PairKind",
    "PopularityKind",
]

DistributionKind = Literal["riemannian", "wrapped"]
NetworkKind = Literal["mlp", "conv"]
DecoderKind = Literal["gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius"]
ObjectiveKind = Literal["elbo", "iwae"]
EdgeKind = Literal["geodesic", "fermi_dirac"]
PopularityKind = Literal["auto", "off", "learned"]
EncoderKind = Literal["convolutions", "free"]
PairKind = Literal["all", "balanced"]
NeighbourKind = Literal["auto", "off", "near", "far", "both"]
InitKind = Literal["auto", "random", "pca"]

LIKELIHOODS: dict[str, str] = {
    "bernoulli": "bernoulli:BERNOULLI",
    "gaussian": "gaussian:GAUSSIAN",
    "unit_gaussian": "gaussian:UNIT_GAUSSIAN",
    "categorical": "categorical:CATEGORICAL",
    "poisson": "poisson:POISSON",
    "mixed": "mixed:MIXED",
}
"""every likelihood by name, with the module of `curvae.models.likelihoods` and the `Family` in it"""
