"""The weighted Fréchet mean of points of the hyperboloid."""

from __future__ import annotations

import torch
from torch import Tensor

from . import hyperboloid as h
from .functions import logsinhc

__all__ = ["frechet_mean", "log_square"]


_STEPS = 12  # of Newton, which more than suffice
_SMALL = 1e-9  # a step of this share of the spread of the points is the last: the next would be its square


def frechet_mean(S: Tensor, w: Tensor, c: Tensor | float) -> Tensor:
    """The point that minimises Σ w·d² over points S of shape (…, N, d), for weights (…, N) that sum to 1; float64.

    Newton's method on the manifold with a line search, steps without gradient and one with it: at the minimum the
    derivative of a Newton step is that of the minimiser, so first derivatives are exact. Under torch.compile and
    torch.func the number of steps is fixed.
    """
    k = c.unsqueeze(-1) if isinstance(c, Tensor) else c  # of every point
    kk = k.unsqueeze(-1) if isinstance(k, Tensor) else k  # of every trial and point
    with torch.no_grad():
        mean = h.expmap0((w.unsqueeze(-1) * h.logmap0(S, k)).sum(-2), c)
        lengths = 0.5 ** torch.arange(8, dtype=S.dtype, device=S.device).unsqueeze(-1)
        for _ in range(_STEPS):
            step = _newton_step(mean, S, w, k)
            trials = h.expmap(mean.unsqueeze(-2), lengths * step.unsqueeze(-2), k)
            cost = (w.unsqueeze(-2) * log_square(trials.unsqueeze(-2), S.unsqueeze(-3), kk)[1]).sum(-1)
            best = cost.argmin(-1, keepdim=True).unsqueeze(-1)
            mean = torch.take_along_dim(trials, best, -2).squeeze(-2)
            if _settled(step, cost):
                break
    return h.expmap(mean, _newton_step(mean, S, w, k), c)


def _settled(step: Tensor, cost: Tensor) -> bool:
    """Whether another step would change no more than rounding does; where steps become a graph it is not asked."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return bool((h.dot(step, step) <= _SMALL**2 * cost.amin(-1)).all())


def _newton_step(mean: Tensor, S: Tensor, w: Tensor, c: Tensor | float) -> Tensor:
    v, square = log_square(mean.unsqueeze(-2), S, c)
    y = c * square
    # The Hessian of d²/2 is 1 along v and √y·coth√y = 1 + 2y·(log sinhc)′(y) across.
    bend = 2 * logsinhc(y, 1)
    eye = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    hessian = (w * (1 + y * bend)).sum(-1)[..., None, None] * eye
    hessian = hessian - ((w * c * bend).unsqueeze(-1) * v).transpose(-1, -2) @ v
    return torch.linalg.solve(hessian, (w.unsqueeze(-1) * v).sum(-2).unsqueeze(-1)).squeeze(-1)


def log_square(S: Tensor, T: Tensor, c: Tensor | float) -> tuple[Tensor, Tensor]:
    """log_S(T) and its square, the squared distance."""
    v = h.logmap0(h.displacement(S, T, c), c)
    return v, h.dot(v, v)
