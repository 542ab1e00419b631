"""The marginal likelihood by importance sampling, in constant memory for any number of samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from .batch import Batch
from .stack import Stack, matmul_precision, trace
from .vae import VAE, Terms

__all__ = ["Marginal", "marginal_likelihood", "refined_outputs"]

# Numbers that one chunk of decoder outputs of a model may hold, and draws a row in it.
_CHUNK = {"cpu": 1 << 22, "cuda": 1 << 24}
_DRAWS = 512
_INNER = 4  # times as many numbers may a convolution hold on the way to the outputs
_POINTS = 1 << 14  # of a model, that are decoded at once where nothing is compiled
# Of the noise and the steps with which posteriors are refined.
_REFINING, _RATE, _SEED = 16, 0.05, 29
# Decoder outputs from which on compiling pays.
_MANY = 1e11


@dataclass(frozen=True)
class Marginal:
    """Estimates of log p(x), one a row (float64).

    Attributes:
        log_prob: the estimates.
        ess: effective sample size, between 1 and the number of samples.
        error: standard error of `log_prob`, by the delta method.
    """

    log_prob: Tensor
    ess: Tensor
    error: Tensor


def marginal_likelihood(
    model: VAE | Stack[VAE],
    x: Tensor | Batch,
    samples: int = 5000,
    generator: torch.Generator | None = None,
    shared: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
    tf32: bool = False,
    refine: int = 0,
) -> Marginal:
    """Compute log p(x) of every row from the importance-weighted bound with the given number of samples.

    Arguments:
        model: the model, or a stack of them.
        x: a `Batch`, or a tensor (rows, …); of a stack (models, rows, …), and the estimates are then (models, rows).
            The models of a stack share the noise, which is that of a model alone: its figures do not depend on the
            others.
        samples: draws a row. The estimate is a lower bound in expectation and tight as the samples grow.
        generator: source of the noise.
        shared: use one set of base draws for all rows, so that the figure of a row depends on nothing but the row.
        advance: called with the number of rows finished, for a progress bar.
        tf32: on CUDA, matrix products with TF32 inputs, some times faster.
        refine: steps by which the posterior of every row of a single model is improved first, see `refined_outputs`;
            draws are then worth more.

    Example:
        >>> from curvae.models import Gaussian, Posterior
        >>> from curvae.nn import Space, decoder, mlp
        >>> space = Space("h2")
        >>> model = VAE(mlp(5, 8), decoder("gyroplane", space, (8,), 5), Posterior(8, space), Gaussian(5))
        >>> marginal_likelihood(model, torch.zeros(3, 5), samples=1000).log_prob.shape
        torch.Size([3])
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    if refine and isinstance(model, Stack):
        raise ValueError("posteriors are refined for a single model, not for a stack")
    one, axis = (model.models[0], 1) if isinstance(model, Stack) else (model, 0)
    batch = Batch.of(x)
    outputs, count, device = one.likelihood.outputs, batch.x.shape[axis], batch.device
    # Normals drawn in pieces of another size are other normals, so the size must depend neither on the number of rows
    # nor on that of the models.
    room = _CHUNK.get(device.type, _CHUNK["cpu"])
    points = min(room // outputs, _INNER * room // max(1, getattr(one.decoder, "width", 1)))
    chunk = max(1, min(samples, _DRAWS, points))
    chunk = math.ceil(samples / math.ceil(samples / chunk))  # even chunks
    length = max(1, points // chunk)
    if shared and generator is None:
        generator = torch.Generator(device).manual_seed(int(torch.randint(1 << 62, ())))
    state = None if generator is None else generator.get_state()
    pieces = []
    with torch.no_grad(), matmul_precision(tf32) if device.type == "cuda" else nullcontext():
        compute: _Compute = partial(_eager, model)
        heads = refined_outputs(one, batch, refine, max(1, points // _REFINING)) if refine else None
        if device.type == "cuda" and heads is None and batch.x.shape[: axis + 1].numel() * samples * outputs > _MANY:
            compute = _compiled(model, batch, length, 1 if shared else length, chunk)
        for first in range(0, max(1, count), length):
            size = min(length, count - first)
            part = batch.map(partial(torch.narrow, dim=axis, start=first, length=size))
            if heads is not None:
                compute = partial(_eager, model, heads=heads[first : first + size])
            if shared and generator is not None and state is not None:
                generator.set_state(state)
            log_sum = torch.full(part.x.shape[: axis + 1], -math.inf, dtype=torch.float64, device=device)
            log_square = log_sum
            for start in range(0, samples, chunk):
                terms = compute(part, one.noise(1 if shared else size, min(chunk, samples - start), generator))
                weights = terms.reconstruction.double() - terms.kl.double()
                log_sum = torch.logaddexp(log_sum, torch.logsumexp(weights, -2))
                log_square = torch.logaddexp(log_square, torch.logsumexp(2.0 * weights, -2))
            pieces.append((log_sum, log_square))
            advance(size)
    log_sum, log_square = (torch.cat(parts, axis) for parts in zip(*pieces, strict=True))
    ess = (2.0 * log_sum - log_square).exp()
    return Marginal(log_sum - math.log(samples), ess, (1.0 / ess - 1.0 / samples).clamp_min(0.0).sqrt())


# The terms of some rows, for draws made from some noise.
_Compute = Callable[[Batch, Tensor], Terms]


def refined_outputs(model: VAE, x: Tensor | Batch, steps: int, rows: int = 256) -> Tensor:
    """Improve the posteriors of rows, in their family and with the model as it is; see `VAE.head_outputs`.

    They begin as the encoder's and take steps of Adam that raise the ELBO, for draws from noise that all rows share.
    Each row keeps the best that it came by.

    Arguments:
        model: the model.
        x: the rows.
        steps: how many, with a rate that falls to 0.
        rows: how many are refined at once.
    """
    batch, found = Batch.of(x), []
    half = model.noise(1, _REFINING // 2, torch.Generator(batch.device).manual_seed(_SEED))
    noise = torch.cat([half, -half])
    for start in range(0, max(1, len(batch)), rows):
        part = batch.map(partial(torch.narrow, dim=0, start=start, length=min(rows, len(batch) - start)))
        with torch.no_grad():
            best = head = model.head_outputs(part)
        highest = head.new_full((len(head), 1), -math.inf)
        mean, square = torch.zeros_like(head), torch.zeros_like(head)
        for step in range(steps + 1):
            with torch.enable_grad():
                head = head.detach().requires_grad_()
                reconstruction, kl, *_ = model.terms(part, noise, head=head)
                elbo = (reconstruction - kl).mean(0)
                (slope,) = torch.autograd.grad(elbo.sum(), head)
            better = elbo.detach().unsqueeze(-1) > highest
            best, highest = head.detach().where(better, best), elbo.detach().unsqueeze(-1).where(better, highest)
            mean, square = mean.lerp(slope, 0.1), square.lerp(slope**2, 0.01)
            scale = (square / (1 - 0.99 ** (step + 1))).sqrt() + 1e-8
            head = head.detach() + _RATE * (1 - step / max(1, steps)) * mean / (1 - 0.9 ** (step + 1)) / scale
        found.append(best)
    return torch.cat(found)


def _eager(model: VAE | Stack[VAE], batch: Batch, noise: Tensor, heads: Tensor | None = None) -> Terms:
    """Compute the terms of some rows at a time: hidden layers may be far wider than the outputs."""
    axis = int(isinstance(model, Stack))
    noise = noise.expand(len(model), *noise.shape) if isinstance(model, Stack) else noise
    rows, step, found = batch.x.shape[axis], max(1, _POINTS // noise.shape[axis]), []
    for start in range(0, max(1, rows), step):
        part = partial(torch.narrow, start=start, length=min(step, rows - start))
        own = part(noise, -2) if noise.shape[-2] == rows else noise
        given = () if heads is None else (False, part(heads, 0))
        found.append(model.terms(batch.map(partial(part, dim=axis)), own, *given)[:2])
    return Terms(*(torch.cat(terms, -1) for terms in zip(*found, strict=True)))


def _compiled(model: VAE | Stack[VAE], batch: Batch, rows: int, noise_rows: int, chunk: int) -> _Compute:
    """As two graphs for pieces of a fixed size, the rest of a piece being void.

    The decoder's outputs are written once and read once. Draws and divergences are apart from them, for their float64
    arithmetic in the same kernel would halve its speed.
    """
    stack = model if isinstance(model, Stack) else Stack([deepcopy(model)])
    values, buffers = list(stack.tensors.values()), list(stack.buffers.values())

    def function(method: str, place: int, spec: Any) -> Callable[..., Any]:
        """Make a method a function of plain lists of tensors, which compilers take; `place` is that of the batch."""

        def call(values: list[Tensor], buffers: list[Tensor], *args: Any) -> Any:
            tensors = dict(zip(stack.tensors, values, strict=True))
            given = [tree_unflatten(arg, spec) if i == place else arg for i, arg in enumerate(args)]
            return stack.pure(method, tensors, dict(zip(stack.buffers, buffers, strict=True)), *given)

        return call

    def stacked(batch: Batch) -> Batch:
        return batch if isinstance(model, Stack) else batch.map(lambda t: t.unsqueeze(0))

    padded, spec = tree_flatten(stacked(batch).map(lambda t: t.new_zeros(len(stack), rows, *t.shape[2:])))
    noise = torch.zeros(chunk, noise_rows, stack.models[0].noise_dim, device=batch.device)
    every = noise.expand(len(stack), *noise.shape)
    draw = trace(function("draw", 0, spec), values, buffers, padded, every, compiled=True)
    z, _ = draw(values, buffers, padded, every)
    reconstruction = trace(function("reconstruction", 1, spec), values, buffers, z, padded, compiled=True)

    def compute(batch: Batch, own: Tensor) -> Terms:
        part = stacked(batch)
        length = part.x.shape[1]
        for place, value in zip(padded, tree_leaves(part), strict=True):
            place[:, :length] = value
        noise[: len(own), : own.shape[1]] = own
        z, kl = draw(values, buffers, padded, every)
        terms = (term[:, : len(own), :length] for term in (reconstruction(values, buffers, z, padded), kl))
        return Terms(*(term if isinstance(model, Stack) else term[0] for term in terms))

    return compute
