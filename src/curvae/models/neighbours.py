"""How well a map keeps the neighbourhoods of the data: what is added to the loss of a model, row by row."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["far_stress", "near_divergence"]

_NEVER = -1e9  # the logarithm of a chance that is none, with which sums stay finite
_TURNS = 4  # of the search for the best sharpness
_CLOSEST = 0.02  # distance in the data, in units of the mean, below which pairs count no more


def _log_chances(squares: Tensor, away: Tensor) -> Tensor:
    return torch.log_softmax(away - torch.log1p(squares), -1)


def _sharpness(squares: Tensor, away: Tensor, p: Tensor) -> Tensor:
    """β with which Σ_i KL(P_i ‖ Q_i) is least, or nearly so, (…, 1, 1).

    By scoring steps for log β, of at most 2. There is no gradient: at the best β the divergence does not depend on it.
    """
    squares = squares.detach()
    rows = p.sum(-1, keepdim=True)
    beta = rows.sum(-2, keepdim=True) / (p * squares).sum((-2, -1), keepdim=True).clamp(min=1e-30)
    for _ in range(_TURNS):
        scaled = beta * squares
        share, q = scaled / (1.0 + scaled), rows * _log_chances(scaled, away).exp()
        mean = (q * share).sum(-1, keepdim=True)
        variance = (q * share * share).sum((-2, -1), keepdim=True) - (mean * mean / rows.clamp(min=1e-30)).sum(
            -2, keepdim=True
        )
        slope = (p * share).sum((-2, -1), keepdim=True) - mean.sum(-2, keepdim=True)
        beta = beta * (-slope / variance.clamp(min=1e-30)).clamp(-2.0, 2.0).exp()
    return beta


def near_divergence(distances: Tensor, near: Tensor) -> Tensor:
    """KL(P_i ‖ Q_i) of every row, with Q_ij ∝ 1/(1 + β·d_ij²) over the pairs that count and the best β for all rows.

    Arguments:
        distances: in the latent space, (rows, rows).
        near: P, which sums up to 1 over a row, or to 0 if none of its neighbours are there; −1 for pairs that do not
            count.

    Example:
        >>> near = torch.tensor([[-1.0, 0.5, 0.5], [1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
        >>> near_divergence(1e3 * (near < 0.1), near).round(decimals=3)
        tensor([0., 0., 0.])
    """
    p, squares = near.clamp(min=0.0).to(distances.dtype), distances * distances
    away = torch.where(near < 0, _NEVER, 0.0).to(distances.dtype)
    log_q = _log_chances(_sharpness(squares, away, p) * squares, away)
    return (torch.xlogy(p, p) - p * log_q).sum(-1)


def far_stress(distances: Tensor, far: Tensor) -> Tensor:
    """What every row adds to the stress Σ(d − α·T)²/T / Σd²/T with the best α, in which pairs count the more the closer
    they are (Sammon, 1969); the mean over the rows that have a pair that counts is the stress, from 0 to 1.

    Arguments:
        distances: d, in the latent space, (rows, landmarks).
        far: T, the distances in the data, or −1 for pairs that do not count.

    Example:
        >>> far = torch.tensor([[-1.0, 3.0], [3.0, -1.0]])
        >>> far_stress(2 * far, far)
        tensor([0., 0.])
    """
    counts = far >= 0
    t = far.clamp(min=_CLOSEST).to(distances.dtype)
    d, weight = torch.where(counts, distances, 0.0), torch.where(counts, 1.0 / t, 0.0)
    square = (weight * d * d).sum((-2, -1), keepdim=True).clamp(min=1e-30)
    alpha = d.sum((-2, -1), keepdim=True) / (counts * t).sum((-2, -1), keepdim=True).clamp(min=1e-30)
    rows = counts.any(-1).sum(-1, keepdim=True)
    return rows * (weight * (d - alpha * t) ** 2 / square).sum(-1)
