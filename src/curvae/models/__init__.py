"""Variational auto-encoders, their likelihoods and objectives."""

from .batch import Batch, Layout
from .graph_vae import (
    BalancedPairs,
    EdgeModel,
    FermiDirac,
    GeodesicEdges,
    GraphBatch,
    GraphVAE,
    Pairs,
    PairSampler,
    WeightedEdges,
)
from .likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    Family,
    Gaussian,
    Likelihood,
    Mixed,
    NegativeBinomial,
    Poisson,
    ZeroInflated,
)
from .marginal import Marginal, marginal_likelihood
from .stack import Stack
from .vae import VAE, MapTerms, Posterior, Terms

__all__ = [
    "LIKELIHOODS",
    "VAE",
    "BalancedPairs",
    "Batch",
    "Bernoulli",
    "Categorical",
    "EdgeModel",
    "Family",
    "FermiDirac",
    "Gaussian",
    "GeodesicEdges",
    "GraphBatch",
    "GraphVAE",
    "Layout",
    "Likelihood",
    "MapTerms",
    "Marginal",
    "Mixed",
    "NegativeBinomial",
    "PairSampler",
    "Pairs",
    "Poisson",
    "Posterior",
    "Stack",
    "Terms",
    "WeightedEdges",
    "ZeroInflated",
    "marginal_likelihood",
]
__dir__ = __all__.copy  # completion lists public names only
