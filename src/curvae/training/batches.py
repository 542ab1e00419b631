"""Steps over rows of data, a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from ..models import VAE, Batch, Terms
from .config import Config
from .engine import Engine, Failure, Passed
from .rows import Pool

__all__ = ["BatchEngine", "losses"]


def losses(terms: Terms, config: Config, beta: Tensor | float, weight: Tensor | None = None) -> Tensor:
    """The loss of every model, (models,); rows count by their `weight`, if given, (rows,) or (models, rows)."""
    reconstruction, kl = terms
    if config.objective == "iwae":
        rows = math.log(kl.shape[-2]) - torch.logsumexp(reconstruction - kl, -2)
    elif weight is None:
        return (beta * kl - reconstruction).mean((-2, -1))
    else:
        rows = (beta * kl - reconstruction).mean(-2)
    return rows.mean(-1) if weight is None else (rows * weight).sum(-1) / weight.sum(-1)


class BatchEngine(Engine[VAE, Config]):
    """A stack of models with its optimiser and rows: what one epoch and one validation are made of.

    Model k sees its own rows in its own order with its own noise, all from (its seed, epoch) alone.

    Arguments:
        models, configs: as of `Engine`.
        rows: data of every model.
        train, validation: which of them, (models, ·).
    """

    def __init__(
        self, models: Sequence[VAE], configs: Sequence[Config], rows: Pool, train: Tensor, validation: Tensor
    ) -> None:
        super().__init__(models, configs)
        self.rows, self.train, self.validation = rows, train, validation
        self.beta = self._weights(2)
        self._watch: Tensor | None = None

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return math.ceil(self.train.shape[1] / self.config.batch_size)

    def _subset(self, places: list[int]) -> Self:
        return type(self)(
            [self.stack.models[i] for i in places],
            [self.configs[i] for i in places],
            self.rows.keep(places),
            self.train[places],
            self.validation[places],
        )

    # --- randomness -------------------------------------------------------------------------------------------------

    def draws(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Order of the rows, (models, rows), and noise for all of them, (models, k, rows, d)."""
        made: dict[int, tuple[Tensor, Tensor]] = {}
        count, device = self.train.shape[1], self.stack.device
        for config in self.configs:
            if config.seed not in made:
                generator = self._generator(config.seed, epoch)
                order = torch.randperm(count, generator=generator, device=device)
                made[config.seed] = order, self._noise(count, generator)
        orders, noises = zip(*(made[config.seed] for config in self.configs), strict=True)
        return torch.stack(orders), torch.stack(noises)

    def watch(self) -> Tensor:
        """Noise for the validation rows, the same in every epoch."""
        if self._watch is None:
            count = self.validation.shape[1]
            noises = [self._noise(count, self._generator(config.seed, None)) for config in self.configs]
            self._watch = torch.stack(noises)
        return self._watch

    def _noise(self, rows: int, generator: torch.Generator) -> Tensor:
        return self.stack.models[0].noise(rows, self.config.samples, generator)

    # --- an epoch ---------------------------------------------------------------------------------------------------

    def epoch(self, epoch: int) -> Passed:
        order, noise = self.draws(epoch)
        size, stack = self.config.batch_size, self.stack
        totals = torch.zeros(2, len(stack), dtype=torch.float64, device=stack.device)
        failures: dict[int, Failure] = {}
        for model in stack.models:
            model.train()
        for step, batch in enumerate(order.split(size, 1), 1):
            rows = self.rows.batch(self.train.gather(1, batch))
            terms = self._step_terms(rows, noise[:, :, (step - 1) * size : step * size])
            self._learn(losses(terms, self.config, self.beta, rows.weight), step, failures)
            if len(failures) == len(stack):
                break
            totals += torch.stack([term.detach().mean(-2).sum(-1) for term in terms]).view(2, -1)
        return Passed(totals.T.cpu() / self.train.shape[1], failures)

    def _step_terms(self, rows: Batch, noise: Tensor) -> Terms:
        """Of the stack; without its dimension for a model alone, which would cost it some percent of the time."""
        if len(self) > 1:
            return self.stack.terms(rows, noise)
        return self.stack.models[0].terms(rows.map(lambda part: part[0]), noise[0])

    def validate(self) -> Tensor | None:
        """Mean reconstruction and divergence of the validation rows, (models, 2), with the same noise every time."""
        if not self.validation.shape[1]:
            return None
        noise, size = self.watch(), max(self.config.batch_size, 512)
        totals = torch.zeros(2, len(self), dtype=torch.float64, device=self.stack.device)
        for model in self.stack.models:
            model.eval()
        with torch.no_grad():
            for i, index in enumerate(self.validation.split(size, 1)):
                terms = self.stack.terms(self.rows.batch(index), noise[:, :, i * size : (i + 1) * size])
                totals += torch.stack([term.mean(-2).sum(-1) for term in terms])
        return totals.T.cpu() / self.validation.shape[1]
