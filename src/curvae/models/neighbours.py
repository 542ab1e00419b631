"""How well a map keeps the neighbourhoods of the data: what is added to the loss of a model, row by row."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["far_stress", "near_divergence"]

_NEVER = -1e9  # the logarithm of a chance that is none, with which sums stay finite
_TURNS = 4  # of the search for the best sharpness


def _sharpness(distances: Tensor, near: Tensor, p: Tensor) -> Tensor:
    """β with which Σ_i KL(P_i ‖ Q_i) is least, or nearly so, (…, 1, 1): P and Q then have the same mean distance.

    By Newton's method for log β, in steps of at most 2. There is no gradient: at the best β the divergence does not
    depend on it.
    """
    distances = distances.detach()
    wanted = (p * distances).sum((-2, -1), keepdim=True).clamp(min=1e-30)
    rows, away = p.sum(-1, keepdim=True), torch.where(near < 0, _NEVER, 0.0)
    beta = rows.sum(-2, keepdim=True) / wanted
    for _ in range(_TURNS):
        q = torch.softmax(away - beta * distances, -1) * distances
        mean = q.sum(-1, keepdim=True)
        variance = (q * distances).sum(-1, keepdim=True) - mean * mean
        mean, variance = ((rows * figure).sum(-2, keepdim=True) for figure in (mean, variance))
        beta = beta * ((mean - wanted) / (beta * variance).clamp(min=1e-30)).clamp(-2.0, 2.0).exp()
    return beta


def near_divergence(distances: Tensor, near: Tensor) -> Tensor:
    """KL(P_i ‖ Q_i) of every row, with Q_ij ∝ exp(−β·d_ij) over the pairs that count and the best β for all rows.

    Arguments:
        distances: in the latent space, (rows, rows).
        near: P, which sums up to 1 over a row, or to 0 if none of its neighbours are there; −1 for pairs that do not
            count.

    Example:
        >>> near = torch.tensor([[-1.0, 0.5, 0.5], [1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
        >>> near_divergence(1e3 * (near < 0.1), near).round(decimals=3)
        tensor([0., 0., 0.])
    """
    p = near.clamp(min=0.0).to(distances.dtype)
    log_q = torch.log_softmax(torch.where(near < 0, _NEVER, -_sharpness(distances, near, p) * distances), -1)
    return (torch.xlogy(p, p) - p * log_q).sum(-1)


def far_stress(distances: Tensor, far: Tensor) -> Tensor:
    """What every row adds to the stress Σ(d − α·T)²/Σd² with the best α; the mean over the rows that have a pair that
    counts is the stress, from 0 to 1.

    Arguments:
        distances: d, in the latent space, (rows, landmarks).
        far: T, the distances in the data, or −1 for pairs that do not count.

    Example:
        >>> far = torch.tensor([[-1.0, 3.0], [3.0, -1.0]])
        >>> far_stress(2 * far, far)
        tensor([0., 0.])
    """
    counts = far >= 0
    d, t = torch.where(counts, distances, 0.0), far.clamp(min=0.0).to(distances.dtype)
    square = (d * d).sum((-2, -1), keepdim=True).clamp(min=1e-30)
    alpha = (d * t).sum((-2, -1), keepdim=True) / (t * t).sum((-2, -1), keepdim=True).clamp(min=1e-30)
    rows = counts.any(-1).sum(-1, keepdim=True)
    return rows * ((d - alpha * t) ** 2 / square).sum(-1)
