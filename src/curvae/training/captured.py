"""The engine on CUDA: a step is one captured graph, replayed without waiting for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ..models import Batch, Terms
from ..models.tracing import trace
from .batches import BatchEngine, losses
from .engine import Failure, Passed

__all__ = ["Captured"]

# Milliseconds that compiling saves a step, about: of any stack, and of every model in it; and what it costs.
_SAVED, _SAVED_EACH, _COMPILING = 2.0, 0.03, 15e3

_WATCHED = 512  # validation rows at once


class _Loop:
    """A captured step over rows that are visited in pieces of one size; those beyond the last row have weight 0."""

    def __init__(self, rows: int, size: int, device: torch.device, step: Callable[[Tensor, Tensor, Tensor], None]):
        self.rows, self.size, self.step = rows, size, step
        self.counter = torch.zeros((), dtype=torch.int64, device=device)
        self.range = torch.arange(size, device=device)
        self.graph: Any = None

    def __call__(self) -> None:
        index = self.counter * self.size + self.range
        self.step(index.clamp(max=self.rows - 1), (index < self.rows).double(), self.counter)
        self.counter += 1

    def capture(self) -> None:
        """Warm up, which moves whatever the step moves, and capture."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self()

    def run(self) -> None:
        """Visit all rows once."""
        self.counter.zero_()
        for _ in range(-(-self.rows // self.size)):
            self.graph.replay()


class Captured(BatchEngine):
    """Gather of the batch, forward, backward and optimiser of all models in one CUDA graph."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        stack, device = self.stack, self.stack.device
        self._names = list(stack.tensors)
        self._values = [stack.tensors[name] for name in self._names]
        self._totals = torch.zeros(2, len(stack), dtype=torch.float64, device=device)
        self._failed = torch.zeros(len(stack), dtype=torch.int64, device=device)
        self._index = torch.zeros_like(self.train)
        samples, dim = self.config.samples, stack.models[0].dim
        self._noise_now = torch.zeros(len(stack), samples, self.train.shape[1], dim, device=device)
        self._training: _Loop | None = None
        self._validating: _Loop | None = None

    @property
    def _worth_compiling(self) -> bool:
        left = (self.config.epochs or 0) * self.steps - self.step
        return left * (_SAVED + _SAVED_EACH * len(self)) > _COMPILING

    def _terms(self, tensors: list[Tensor], buffers: list[Tensor], rows: Batch, noise: Tensor) -> Terms:
        named = dict(zip(self._names, tensors, strict=True))
        return self.stack.pure("terms", named, dict(zip(self.stack.buffers, buffers, strict=True)), rows, noise)

    def _gradients(self, tensors: list[Tensor], buffers: list[Tensor], rows: Batch, noise: Tensor, kept: Tensor) -> Any:
        """`kept` is 1 for rows and 0 for what fills up the last piece."""
        terms = self._terms(tensors, buffers, rows, noise)
        loss = losses(terms, self.config, self.beta, kept if rows.weight is None else kept * rows.weight)
        return torch.autograd.grad(loss.sum(), tensors), loss.detach(), _sums(terms, kept)

    def _figures(self, tensors: list[Tensor], buffers: list[Tensor], rows: Batch, noise: Tensor, kept: Tensor) -> Any:
        return _sums(self._terms(tensors, buffers, rows, noise), kept)

    def _traced(self, function: Callable[..., Any], rows: Tensor, size: int, gradient: bool) -> Callable[..., Any]:
        """The function as a graph of its own, for pieces of `size` rows; compiled where steps are many."""
        compiled = gradient and self._worth_compiling
        stack, config = self.stack, self.config
        values = [t.detach().requires_grad_() for t in self._values] if gradient else self._values
        parts, spec = tree_flatten(self.rows.batch(rows[:, :1].expand(-1, size)))
        noise = torch.zeros(len(stack), config.samples, size, stack.models[0].dim, device=stack.device)
        kept = torch.ones(size, dtype=torch.float64, device=stack.device)
        buffers = list(stack.buffers.values())

        def plain(
            tensors: list[Tensor], buffers: list[Tensor], parts: list[Tensor], noise: Tensor, kept: Tensor
        ) -> Any:
            """A function of plain lists of tensors, which compilers take."""
            return function(tensors, buffers, tree_unflatten(parts, spec), noise, kept)

        with torch.set_grad_enabled(gradient):
            graph = trace(plain, values, buffers, parts, noise, kept, compiled=compiled)
        return lambda rows, noise, kept: graph(self._values, buffers, tree_leaves(rows), noise, kept)

    def _capture_training(self) -> _Loop:
        size = self.config.batch_size
        graph = self._traced(self._gradients, self.train, size, gradient=True)

        def step(index: Tensor, weight: Tensor, counter: Tensor) -> None:
            rows = self.rows.batch(self._index.index_select(1, index))
            gradients, loss, sums = graph(rows, self._noise_now.index_select(2, index), weight)
            self._descend(dict(zip(self._names, gradients, strict=True)))
            first = (self._failed == 0) & ~loss.isfinite()
            self._failed += first * (counter + 1)
            self._totals += sums

        loop = _Loop(self.train.shape[1], size, self.stack.device, step)
        state = [*self._values, *(moment for pair in self.moments.values() for moment in pair)]
        before = [t.clone() for t in state]
        with torch.no_grad():
            loop.capture()
            for t, value in zip(state, before, strict=True):
                t.copy_(value)
            for own in self.optimiser.state.values():
                own["step"].fill_(float(self.step))
        return loop

    def _capture_validation(self) -> _Loop:
        size = min(_WATCHED, self.validation.shape[1])
        graph = self._traced(self._figures, self.validation, size, gradient=False)
        noise = self.watch()

        def step(index: Tensor, weight: Tensor, counter: Tensor) -> None:
            rows = self.rows.batch(self.validation.index_select(1, index))
            self._totals += graph(rows, noise.index_select(2, index), weight)

        loop = _Loop(self.validation.shape[1], size, self.stack.device, step)
        with torch.no_grad():
            loop.capture()
        return loop

    def epoch(self, epoch: int) -> Passed:
        if self._training is None:
            self._training = self._capture_training()
        order, noise = self.draws(epoch)
        self._index.copy_(self.train.gather(1, order))
        self._noise_now.copy_(noise)
        self._totals.zero_()
        self._failed.zero_()
        self._training.run()
        self.step += self.steps
        failures = {
            i: Failure(step, "the loss was not a number", self.where(i))
            for i, step in enumerate(self._failed.tolist())
            if step
        }
        return Passed(self._totals.T.cpu() / self.train.shape[1], failures)

    def validate(self) -> Tensor | None:
        if not self.validation.shape[1]:
            return None
        if self._validating is None:
            self._validating = self._capture_validation()
        self._totals.zero_()
        self._validating.run()
        return self._totals.T.cpu() / self.validation.shape[1]


def _sums(terms: Terms, weight: Tensor) -> Tensor:
    return torch.stack([(term.detach().double().mean(-2) * weight).sum(-1) for term in terms])
