"""Variational auto-encoders, their likelihoods and objectives."""

from .batch import Batch
from .graph import EdgeModel, FermiDirac, GeodesicEdges, GraphBatch, GraphVAE
from .latent import Posterior
from .layout import Layout
from .likelihoods import LIKELIHOODS, Bernoulli, Categorical, Family, Gaussian, Likelihood, Mixed, Poisson
from .marginal import Marginal, marginal_likelihood
from .pairs import BalancedPairs, Pairs, PairSampler, WeightedEdges
from .stack import Stack
from .vae import VAE, MapTerms, Terms

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
    "PairSampler",
    "Pairs",
    "Poisson",
    "Posterior",
    "Stack",
    "Terms",
    "WeightedEdges",
    "marginal_likelihood",
]
__dir__ = __all__.copy  # completion lists public names only
