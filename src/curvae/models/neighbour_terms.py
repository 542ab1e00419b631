"""How well a map keeps the neighbourhoods of the data: what is added to the loss of a model, row by row."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..geometry.primitive import Primitive

__all__ = ["far_stress", "jittered", "near_divergence"]

# Turns of the search for the best sharpness, and where it starts, in units of one over the mean square of the distances
# of neighbours: in maps that are being trained most of these are far smaller than the mean.
_TURNS, _START = 3, 30.0
_LEAST = 1e-30  # stands for 0 in quotients and logarithms
_CLOSEST = 0.02  # distance in the data, in units of the mean, below which pairs count no more
_PLACES = 512  # in a batch, of which rows are moved


def _total(matrix: Tensor) -> Tensor:
    """Return sums of matrices, (…, 1, 1)."""
    return matrix.sum((-2, -1), keepdim=True)


def _parts(distances: Tensor, near: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """P; the squares of the distances, infinite for pairs that do not count; and β where the search for it starts."""
    p, squares = near.clamp(min=0.0).to(distances.dtype), distances * distances
    start = (_START * _total(p) / _total(p * squares).clamp(min=_LEAST)).clamp(min=_LEAST)
    return p, torch.where(near < 0, torch.inf, squares), start


def _sharpness(squares: Tensor, p: Tensor, beta: Tensor) -> Tensor:
    """β with which Σ_i KL(P_i ‖ Q_i) is least, or nearly so, (…, 1, 1).

    By scoring steps for log β, of at most 2. There is no gradient: at the best β the divergence does not depend on it.
    """
    rows = p.sum(-1, keepdim=True)
    for _ in range(_TURNS):
        fall = torch.mul(squares, beta).add_(1.0).reciprocal_()  # 1/(1 + β·d²), to which Q_ij is proportional
        part = fall * fall
        # Q-means of 1/(1 + β·d²) and of its square
        size = fall.sum(-1, keepdim=True).clamp_(min=_LEAST)
        mean, square = part.sum(-1, keepdim=True).div_(size), part.mul_(fall).sum(-1, keepdim=True).div_(size)
        variance = _total(square.addcmul_(mean, mean, value=-1.0).mul_(rows))
        slope = _total(fall.mul_(p)) - _total(mean.mul_(rows))
        beta = beta * (slope / variance.clamp(min=_LEAST)).clamp_(-2.0, 2.0).exp_()
    return beta


class _NearDivergence(Primitive):
    """`near_divergence`, with its derivative ∂KL_i/∂d_ij = (P_ij − Q_ij·Σ_k P_ik)·2β·d_ij/(1 + β·d_ij²)."""

    events = (2, 2)
    results = 1

    @classmethod
    def traced(cls, distances: Tensor, near: Tensor) -> tuple[Tensor]:
        p, squares, start = _parts(distances.detach(), near)
        beta = _sharpness(squares, p, start)
        counts = near >= 0
        fall = counts / (1.0 + beta * torch.where(counts, distances, 0.0) ** 2)
        return (_divergence(p, fall, fall.sum(-1, keepdim=True).clamp(min=_LEAST)),)

    @staticmethod
    def forward(distances: Tensor, near: Tensor) -> tuple[Tensor, ...]:
        p, squares, start = _parts(distances, near)
        beta = _sharpness(squares, p, start)
        fall = torch.mul(squares, beta).add_(1.0).reciprocal_()
        size = fall.sum(-1, keepdim=True).clamp_(min=_LEAST)
        return _divergence(p, fall, size), p, fall, size, beta

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Tensor]:  # type: ignore[override]
        (distances, _), (_, p, fall, size, beta) = inputs, kept
        slope = torch.addcmul(p, fall, p.sum(-1, keepdim=True) / size, value=-1.0).mul_(fall).mul_(distances)
        return (slope.mul_(grad.unsqueeze(-1) * (2.0 * beta)),)


def _divergence(p: Tensor, fall: Tensor, size: Tensor) -> Tensor:
    """KL(P_i ‖ Q_i) of every row, given 1/(1 + β·d²) and its sums."""
    return (p * (p.clamp(min=_LEAST) / (fall / size).clamp(min=_LEAST)).log()).sum(-1)


def near_divergence(distances: Tensor, near: Tensor) -> Tensor:
    """Compute KL(P_i ‖ Q_i) of every row, with Q_ij ∝ 1/(1 + β·d_ij²) over the pairs that count and the best β for all
    rows.

    Arguments:
        distances: in the latent space, (rows, others).
        near: P, which sums up to 1 over a row, or to 0 if none of its neighbours are there; −1 for pairs that do not
            count.

    Example:
        >>> near = torch.tensor([[-1.0, 0.5, 0.5], [1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
        >>> near_divergence(1e3 * (near < 0.1), near).round(decimals=3)
        tensor([0., 0., 0.])
    """
    return _NearDivergence.call(distances, near)[0]


class _FarStress(Primitive):
    """`far_stress`, with its derivative in closed form: with r = d − α·T, w = 1/T, N rows, S = Σw·d² and gradients g_i
    of what rows add,

    (2N/S)·(g_i·w_ij·r_ij − Σ_kl g_k·r_kl/ΣT − w_ij·d_ij·Σ_kl g_k·w_kl·r_kl²/S).
    """

    events = (2, 2)
    results = 1

    @staticmethod
    def forward(distances: Tensor, far: Tensor) -> tuple[Tensor, ...]:
        counts = far >= 0
        t = far.clamp(min=_CLOSEST).to(distances.dtype)
        d, weight, t = (torch.where(counts, matrix, 0.0) for matrix in (distances, 1.0 / t, t))
        wd, size = weight * d, _total(t).clamp(min=_LEAST)
        square = _total(wd * d).clamp(min=_LEAST)
        r = torch.addcmul(d, _total(d) / size, t, value=-1.0)
        wr, scale = weight * r, _total(counts.any(-1, keepdim=True)) / square
        return (scale * wr * r).sum(-1), counts, wd, r, wr, square, size, scale

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Tensor]:  # type: ignore[override]
        _, counts, wd, r, wr, square, size, scale = kept
        rows = grad.unsqueeze(-1)
        push = rows * wr
        slope = torch.addcmul(push, wd, _total(push * r) / square, value=-1.0) - counts * (_total(rows * r) / size)
        return (slope * (2.0 * scale),)


def far_stress(distances: Tensor, far: Tensor) -> Tensor:
    """Return what every row adds to the stress Σ(d − α·T)²/T / Σd²/T with the best α, in which pairs count the more the
    closer they are (Sammon, 1969); the mean over the rows that have a pair that counts is the stress, from 0 to 1.

    Arguments:
        distances: d, in the latent space, (rows, others).
        far: T, the distances in the data, or −1 for pairs that do not count.

    Example:
        >>> far = torch.tensor([[-1.0, 3.0], [3.0, -1.0]])
        >>> far_stress(2 * far, far)
        tensor([0., 0.])
    """
    return _FarStress.call(distances, far)[0]


@lru_cache(maxsize=8)
def _shares(dtype: torch.dtype, device: torch.device) -> Tensor:
    """For places in a batch, shares of the way from −1 to 1 that a row goes, and its companion, (2, places)."""
    with torch.inference_mode(False):
        return torch.from_numpy(np.random.default_rng(0).uniform(-1.0, 1.0, (2, _PLACES))).to(device, dtype)


def jittered(rows: Tensor, companions: Tensor, near: Tensor, most: float) -> tuple[Tensor, Tensor]:
    """Return rows of a batch and its companions, moved along the differences of neighbours.

    Row i and companion i, where these are neighbours, move towards each other or away, each by a share of up to `most`
    of the way between them. As with the masks of dropout the share is decided by the place i alone.

    Arguments:
        rows, companions: what the encoder reads, (n, …) and (m, …).
        near: as of `near_divergence`, (n, n + m).
        most: at least 0.

    Example:
        >>> near = torch.tensor([[-1.0, 0.0, 1.0, 0.0], [0.0, -1.0, 1.0, 0.0]])
        >>> x, y = jittered(torch.zeros(2, 1), torch.ones(2, 1), near, 0.5)
        >>> x.round(decimals=2).T, y.round(decimals=2).T  # the second companion is no neighbour of the second row
        (tensor([[0.1400, 0.0000]]), tensor([[0.6700, 1.0000]]))
    """
    n, m = len(rows), len(companions)
    count = min(n, m, _PLACES)
    shares = (most * _shares(rows.dtype, rows.device)[:, :count]) * (near.diagonal(n)[:count] > 0)
    forth, back = shares.view(2, count, *[1] * (rows.dim() - 1))
    way = companions[:count] - rows[:count]
    return (
        torch.cat([rows[:count] + forth * way, rows[count:]]),
        torch.cat([companions[:count] - back * way, companions[count:]]),
    )
