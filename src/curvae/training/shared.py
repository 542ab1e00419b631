"""The engine of one of several processes that train a model together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from ..models import VAE, Batch
from .config import Config
from .crew import Crew
from .engine import BatchEngine, Failure
from .sources import Stacked

__all__ = ["SharedEngine"]


class SharedEngine(BatchEngine):
    """A model that several processes train: each has its share of every batch, and all take the same steps.

    The loss of a process is the sum over its rows divided by the number of rows of the whole batch. Gradients and loss
    lie in one flat tensor, whose sum over the processes is that of a single one with the same batch. Each makes the
    noise of the whole batch, a few numbers a row, and takes that of its own rows.

    Arguments:
        models, configs: a single one.
        train, validation: its share of the rows; `index` of a batch has their places in the batch of all processes.
        crew: the processes.
    """

    def __init__(
        self,
        models: Sequence[VAE],
        configs: Sequence[Config],
        train: Stacked,
        validation: Stacked | None,
        crew: Crew,
    ) -> None:
        super().__init__(models, configs, train, validation)
        self.crew = crew
        sizes = [leaf.numel() for leaf in self.stack.leaves.values()]
        first = next(iter(self.stack.leaves.values()))
        self._flat = torch.zeros(sum(sizes) + 1, dtype=first.dtype, device=first.device)
        parts = self._flat[:-1].split(sizes)
        self._gradients = {
            name: part.view_as(leaf) for (name, leaf), part in zip(self.stack.leaves.items(), parts, strict=True)
        }

    def _subset(self, places: list[int]) -> Self:
        raise NotImplementedError("several processes train one model")

    @property
    def threads(self) -> int | None:
        return self._threads(self.config.batch_size // self.crew.share.size)

    def _own(self, rows: Batch, noise: Tensor) -> tuple[Batch, Tensor]:
        """The rows on the device, with their part of the noise of the batch."""
        device = self.stack.device
        rows = rows.map(lambda part: part.to(device))
        assert rows.index is not None
        return rows, noise.index_select(2, rows.index[0])

    def _step(self, rows: Batch, noise: Tensor, step: int, failures: dict[int, Failure]) -> Tensor:
        count, found = noise.shape[2], self._no_figures()
        rows, noise = self._own(rows, noise)
        if own := noise.shape[2]:
            loss, found = self._loss(rows, noise)
            loss = loss * (own / count)
            gradients = torch.autograd.grad(loss, list(self.stack.leaves.values()))
            torch._foreach_copy_(list(self._gradients.values()), list(gradients))
            self._flat[-1] = loss.detach()
        else:
            self._flat.zero_()
        self.crew.sum(self._flat)
        self._follow([float(self._flat[-1])], self._gradients, step, failures)
        return found

    def _judged(self, rows: Batch, noise: Tensor) -> Tensor:
        rows, noise = self._own(rows, noise)
        return super()._judged(rows, noise) if noise.shape[2] else self._no_figures()[:2]

    def _total(self, figures: Tensor) -> Tensor:
        return self.crew.sum(figures)
