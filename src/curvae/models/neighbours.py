"""How well a map keeps the neighbourhoods of the data: what is added to the loss of a model, row by row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..geometry.primitive import Primitive

__all__ = ["far_stress", "near_divergence"]

_NEVER = -1e9  # the logarithm of a chance that is none, with which sums stay finite
_TURNS = 4  # of the search for the best sharpness


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1)


def _wide(t: Tensor) -> Tensor:
    """(…,) as it goes with matrices."""
    return t[..., None, None]


def _sharpness(distances: Tensor, p: Tensor, away: Tensor) -> Tensor:
    """β with which Σ_i KL(P_i ‖ Q_i) is least, or nearly so, (…, 1, 1): P and Q then have the same mean distance.

    By Newton's method for log β, in steps of at most 2. There is no gradient: at the best β the divergence does not
    depend on it.
    """
    rows, squares = p.sum(-1), distances * distances
    wanted = (p * distances).sum((-2, -1)).clamp(min=1e-30)
    beta = rows.sum(-1) / wanted
    for _ in range(_TURNS):
        q = torch.softmax(torch.addcmul(away, _wide(beta), distances, value=-1.0), -1)
        mean = _dot(q, distances)
        variance = torch.addcmul(_dot(q, squares), mean, mean, value=-1.0)
        step = (_dot(rows, mean) - wanted) / (beta * _dot(rows, variance)).clamp(min=1e-30)
        beta = beta * step.clamp(-2.0, 2.0).exp()
    return _wide(beta)


class _NearDivergence(Primitive):
    """`near_divergence`, with its derivative ∂KL_i/∂d_ij = β·(P_ij − Q_ij·Σ_k P_ik)."""

    events = (2, 2)
    results = 1

    @classmethod
    def traced(cls, distances: Tensor, near: Tensor) -> tuple[Tensor]:
        p, away = near.clamp(min=0.0).to(distances.dtype), torch.where(near < 0, _NEVER, 0.0).to(distances.dtype)
        beta = _sharpness(distances.detach(), p, away)
        return ((torch.xlogy(p, p) - p * torch.log_softmax(away - beta * distances, -1)).sum(-1),)

    @staticmethod
    def forward(distances: Tensor, near: Tensor) -> tuple[Tensor, ...]:
        p, away = near.clamp(min=0.0).to(distances.dtype), torch.where(near < 0, _NEVER, 0.0).to(distances.dtype)
        beta = _sharpness(distances, p, away)
        log_q = torch.log_softmax(torch.addcmul(away, beta, distances, value=-1.0), -1)
        return (torch.xlogy(p, p) - p * log_q).sum(-1), p, log_q, beta

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        distances, near, p, log_q, beta = ctx.saved_tensors
        if torch.is_grad_enabled():
            return torch.func.vjp(lambda d: _NearDivergence.traced(d, near)[0], distances)[1](grad)[0], None
        slope = torch.addcmul(p, log_q.exp(), p.sum(-1, keepdim=True), value=-1.0)
        return (slope * (grad.unsqueeze(-1) * beta)).sum_to_size(distances.shape), None


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
    return _NearDivergence.call(distances, near)[0]


class _FarStress(Primitive):
    """`far_stress`, with its derivative in closed form: with r = d − α·T, N rows, S = Σd² and upstream gradients g_i,

    (2N/S)·(g_i·r_ij − T_ij·Σ_k g_k⟨r_k, T_k⟩/ΣT² − d_ij·Σ_k g_k|r_k|²/S).
    """

    events = (2, 2)
    results = 1

    @staticmethod
    def forward(distances: Tensor, far: Tensor) -> tuple[Tensor, ...]:
        counts = far >= 0
        d, t = torch.where(counts, distances, 0.0), far.clamp(min=0.0).to(distances.dtype)
        square, size = ((x * x).sum((-2, -1)).clamp(min=1e-30) for x in (d, t))
        r = torch.addcmul(d, _wide((d * t).sum((-2, -1)) / size), t, value=-1.0)
        scale = counts.any(-1).sum(-1) / square
        return scale.unsqueeze(-1) * _dot(r, r), d, t, r, square, size, scale

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        distances, far, d, t, r, square, size, scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            return torch.func.vjp(lambda d: _FarStress.traced(d, far)[0], distances)[1](grad)[0], None
        push = grad.unsqueeze(-1) * r
        slope = torch.addcmul(push, t, _wide(-(push * t).sum((-2, -1)) / size))
        slope = torch.addcmul(slope, d, _wide(-(push * r).sum((-2, -1)) / square))
        return (slope * _wide(2.0 * scale)).sum_to_size(distances.shape), None


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
    return _FarStress.call(distances, far)[0]
