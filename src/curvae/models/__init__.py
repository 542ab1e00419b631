"""Variational auto-encoders, their likelihoods and objectives."""

from .latent import Posterior, Prior
from .likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from .marginal import Marginal, marginal_likelihood
from .stack import Stack
from .vae import VAE, Terms

__all__ = [
    "VAE",
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "Likelihood",
    "Marginal",
    "Posterior",
    "Prior",
    "Stack",
    "Terms",
    "marginal_likelihood",
]
