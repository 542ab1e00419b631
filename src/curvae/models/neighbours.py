"""How well a map keeps the neighbourhoods of the data: what is added to the loss of a model, row by row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..geometry.primitive import Primitive

__all__ = ["far_stress", "near_divergence"]

_TURNS = 4  # of the search for the best sharpness
_CLOSEST = 0.02  # distance in the data, in units of the mean, below which pairs count no more


def _total(matrix: Tensor) -> Tensor:
    """Sums of matrices, (…, 1, 1)."""
    return matrix.sum((-2, -1), keepdim=True)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    """a/b, and 0 for 0/0."""
    return a / b.clamp(min=1e-30)


def _falls(squares: Tensor, counts: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """β·d², 1/(1 + β·d²), and Q_ij: the latter over its sum among the pairs that count."""
    scaled = beta * squares
    fall = 1.0 / (1.0 + scaled)
    q = fall * counts
    return scaled, fall, _divide(q, q.sum(-1, keepdim=True))


def _sharpness(squares: Tensor, counts: Tensor, p: Tensor) -> Tensor:
    """β with which Σ_i KL(P_i ‖ Q_i) is least, or nearly so, (…, 1, 1).

    By scoring steps for log β, of at most 2. There is no gradient: at the best β the divergence does not depend on it.
    """
    rows = p.sum(-1, keepdim=True)
    beta = _divide(rows.sum(-2, keepdim=True), _total(p * squares))
    for _ in range(_TURNS):
        scaled, fall, q = _falls(squares, counts, beta)
        share = scaled * fall
        part = q * share
        mean = part.sum(-1, keepdim=True)
        variance = _total(rows * (part * share - mean * part))
        beta = beta * _divide(_total(rows * part - p * share), variance).clamp(-2.0, 2.0).exp()
    return beta


class _OfRows(Primitive):
    """What rows miss, given the distances of a map and what they should be; `forward` gives that and what `backward`
    needs besides."""

    events = (2, 2)
    results = 1

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output[1:])


class _NearDivergence(_OfRows):
    """`near_divergence`, with its derivative ∂KL_i/∂d_ij = (P_ij − Q_ij·Σ_k P_ik)·2β·d_ij/(1 + β·d_ij²)."""

    @classmethod
    def traced(cls, distances: Tensor, near: Tensor) -> tuple[Tensor]:
        p, counts = near.clamp(min=0.0).to(distances.dtype), (near >= 0).to(distances.dtype)
        squares = distances * distances
        beta = _sharpness(squares.detach(), counts, p)
        return (_divergence(p, *_falls(squares, counts, beta)[:2], counts),)

    @staticmethod
    def forward(distances: Tensor, near: Tensor) -> tuple[Tensor, ...]:
        p, counts = near.clamp(min=0.0).to(distances.dtype), (near >= 0).to(distances.dtype)
        squares = distances * distances
        beta = _sharpness(squares, counts, p)
        scaled, fall, q = _falls(squares, counts, beta)
        return _divergence(p, scaled, fall, counts), p, q, fall, beta

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        distances, near, p, q, fall, beta = ctx.saved_tensors
        if torch.is_grad_enabled():
            return torch.func.vjp(lambda d: _NearDivergence.traced(d, near)[0], distances)[1](grad)[0], None
        slope = torch.addcmul(p, q, p.sum(-1, keepdim=True), value=-1.0) * fall * distances
        return (slope * (grad.unsqueeze(-1) * (2.0 * beta))).sum_to_size(distances.shape), None


def _divergence(p: Tensor, scaled: Tensor, fall: Tensor, counts: Tensor) -> Tensor:
    """KL(P_i ‖ Q_i) of every row, given β·d² and 1/(1 + β·d²)."""
    size = (fall * counts).sum(-1).clamp(min=1e-30)
    return (torch.xlogy(p, p) + p * scaled.log1p()).sum(-1) + p.sum(-1) * size.log()


def near_divergence(distances: Tensor, near: Tensor) -> Tensor:
    """KL(P_i ‖ Q_i) of every row, with Q_ij ∝ 1/(1 + β·d_ij²) over the pairs that count and the best β for all rows.

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


class _FarStress(_OfRows):
    """`far_stress`, with its derivative in closed form: with r = d − α·T, w = 1/T, N rows, S = Σw·d² and gradients g_i
    of what rows add,

    (2N/S)·(g_i·w_ij·r_ij − Σ_kl g_k·r_kl/ΣT − w_ij·d_ij·Σ_kl g_k·w_kl·r_kl²/S).
    """

    @staticmethod
    def forward(distances: Tensor, far: Tensor) -> tuple[Tensor, ...]:
        counts = far >= 0
        t = far.clamp(min=_CLOSEST).to(distances.dtype)
        d, weight, t = (torch.where(counts, matrix, 0.0) for matrix in (distances, 1.0 / t, t))
        wd, size = weight * d, _total(t).clamp(min=1e-30)
        square = _total(wd * d).clamp(min=1e-30)
        r = torch.addcmul(d, _total(d) / size, t, value=-1.0)
        wr, scale = weight * r, _total(counts.any(-1, keepdim=True)) / square
        return (scale * wr * r).sum(-1), counts, wd, r, wr, square, size, scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        distances, far, counts, wd, r, wr, square, size, scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            return torch.func.vjp(lambda d: _FarStress.traced(d, far)[0], distances)[1](grad)[0], None
        rows = grad.unsqueeze(-1)
        push = rows * wr
        slope = torch.addcmul(push, wd, _total(push * r) / square, value=-1.0) - counts * (_total(rows * r) / size)
        return (slope * (2.0 * scale)).sum_to_size(distances.shape), None


def far_stress(distances: Tensor, far: Tensor) -> Tensor:
    """What every row adds to the stress Σ(d − α·T)²/T / Σd²/T with the best α, in which pairs count the more the closer
    they are (Sammon, 1969); the mean over the rows that have a pair that counts is the stress, from 0 to 1.

    Arguments:
        distances: d, in the latent space, (rows, others).
        far: T, the distances in the data, or −1 for pairs that do not count.

    Example:
        >>> far = torch.tensor([[-1.0, 3.0], [3.0, -1.0]])
        >>> far_stress(2 * far, far)
        tensor([0., 0.])
    """
    return _FarStress.call(distances, far)[0]
