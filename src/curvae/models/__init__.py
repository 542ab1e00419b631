"""Variational auto-encoders, their likelihoods and objectives."""

from .edges import EdgeModel, FermiDirac, GeodesicEdges
from .graph import GraphVAE
from .latent import Posterior, Prior
from .likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from .marginal import Marginal, marginal_likelihood
from .pairs import Pairs, PairSampler
from .stack import Stack
from .vae import VAE, Terms

__all__ = [
    "VAE",
    "Bernoulli",
    "Categorical",
    "EdgeModel",
    "FermiDirac",
    "Gaussian",
    "GeodesicEdges",
    "GraphVAE",
    "Likelihood",
    "Marginal",
    "PairSampler",
    "Pairs",
    "Posterior",
    "Prior",
    "Stack",
    "Terms",
    "marginal_likelihood",
]
