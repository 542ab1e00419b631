"""Models side by side: what each computes alone, and what a stack of them computes."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn

from curvae.models import VAE, Gaussian, Posterior, Stack
from curvae.nn import HyperbolicFactor, Space, decoder
from curvae.training import Config, build

__all__ = [
    "BASE",
    "DRAWS",
    "FEATURES",
    "ROWS",
    "alone",
    "assert_as_alone",
    "batch",
    "custom",
    "mixed",
    "models",
    "normed",
    "together",
]

FEATURES, ROWS, DRAWS = 4, 5, 2
BASE = Config(hidden=(6,), likelihood="gaussian", prior_scale=1.0)


def models(config=BASE, dtype=torch.float64):
    """Three that differ in weights, curvature and prior scale."""
    settings = zip((0.2, 1.0, 2.5), (1.6, 1.0, 0.7), range(3), strict=True)
    return [build(replace(config, curvature=c, prior_scale=s, seed=k), FEATURES).to(dtype) for c, s, k in settings]


def batch(dtype=torch.float64, count=3, dim=2, noise=torch.float32):
    """Rows and noise of every model."""
    return torch.randn(count, ROWS, FEATURES, dtype=dtype), torch.randn(count, DRAWS, ROWS, dim, dtype=noise)


def mixed(terms):
    """A number that depends on every draw in a way of its own, for a gradient that shows what is mixed up."""
    reconstruction, kl = terms
    weights = torch.linspace(0.5, 1.5, kl.shape[-2:].numel(), dtype=kl.dtype).view(kl.shape[-2:])
    return (weights * (0.7 * kl - reconstruction)).sum()


def alone(model, x, noise):
    """Terms and gradients by name of one model that is in no stack."""
    model = deepcopy(model)
    terms = model.terms(x, noise)
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(mixed(terms), list(parameters.values()))
    return terms, dict(zip(parameters, gradients, strict=True))


def together(stack, x, noise):
    terms = stack.terms(x, noise)
    gradients = torch.autograd.grad(mixed(terms), list(stack.leaves.values()))
    return terms, dict(zip(stack.leaves, gradients, strict=True))


def assert_as_alone(given, x, noise, tolerance=1e-10):
    expected = [alone(model, *own) for model, *own in zip(given, x, noise, strict=True)]
    terms, gradients = together(Stack(given), x, noise)
    for i, (own, slopes) in enumerate(expected):
        for found, term in zip(terms, own, strict=True):
            assert found.dtype == term.dtype
            torch.testing.assert_close(found[i], term, rtol=tolerance, atol=tolerance)
        assert gradients.keys() == slopes.keys()
        for name, slope in slopes.items():
            size = float(slope.abs().max())
            assert size > 0, name
            torch.testing.assert_close(gradients[name][i], slope, rtol=0, atol=tolerance * max(1.0, size), msg=name)


def custom(encoder, curvature=None, seed=0, width=6):
    torch.manual_seed(seed)
    space = Space([HyperbolicFactor(2, curvature or 1.3)])
    decoding = decoder("gyroplane", space, (6,), FEATURES)
    return VAE(encoder(), decoding, Posterior(width, space), Gaussian(FEATURES)).double()


def normed(layer):
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 6), layer(), nn.ReLU())
