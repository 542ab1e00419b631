"""Counts that vary more than those of independent events.

Notation: μ the mean, θ the inverse dispersion, so that the variance is μ + μ²/θ; ψ the digamma function. Then

    log p(x) = log Γ(x + θ) − log Γ(θ) − log x! + x·log μ + θ·log θ − (x + θ)·log(θ + μ),

which at x = 0 is −θ·log(1 + μ/θ). Its parts may be as large as 10⁷ where the sum is small, so it is computed in
float64. Most counts are 0: there single precision is enough, and costs a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import CurvaeError
from ...geometry.functions import Primitive, full_precision
from ...settings import RowSettings
from ..batch import Batch, Layout
from .base import Family, Matrix, aligned_blocks
from .counts import Counts, refuse_other_than_counts, unknown_sizes

__all__ = ["NB", "ZINB", "NegativeBinomial", "ZeroInflated", "nb_entries"]


_BOUND = math.log(1e8)  # of |log θ|: beyond it nothing changes but rounding errors
_LARGE = math.log(30.0)  # log μ from which single precision does not do at 0 either
_FEWEST = 30  # counts of a gene in a batch from which its own dispersion there is estimated
_ABOVE = 3.0  # times the estimates are the dispersions at the start
_ESTIMATES = 1e-2, 1e2  # between which θ starts
_TOGETHER = 1 << 19  # entries of draws that are computed together where no gradients are
_LOG_FACTORIALS = torch.arange(1.0, 4097.0, dtype=torch.float64).lgamma()


def _gamma(log_dispersion: Tensor) -> Tensor:
    """Return log Γ(θ) − θ·log θ."""
    theta = log_dispersion.exp()
    return torch.lgamma(theta) - theta * log_dispersion


def _gamma_slope(log_dispersion: Tensor) -> Tensor:
    """Return ψ(θ) − log θ."""
    return torch.digamma(log_dispersion.exp()) - log_dispersion


def _values(log_rate: Tensor, x: Tensor, theta: Tensor, gamma: Tensor, log_factorial: Tensor) -> Tensor:
    """Compute log p(x) in float64."""
    both = x + theta
    return torch.lgamma(both) - gamma - log_factorial + x * log_rate - both * (theta + log_rate.exp()).log()


def _slopes(log_rate: Tensor, x: Tensor, theta: Tensor, gamma_slope: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the derivatives of log p(x) by log μ and log θ in float64."""
    rate = log_rate.exp()
    both = theta + rate
    excess = (x - rate) / both
    return theta * excess, theta * (torch.digamma(x + theta) - gamma_slope - both.log() - excess)


def _apply_at(function: Callable[[Tensor], Tensor], values: Tensor, places: Tensor) -> Tensor:
    """Return a function of some of the values, in float64, computed before they are chosen if they are fewer."""
    if len(values) < len(places):
        return function(values.double()).index_select(0, places)
    return function(values.index_select(0, places).double())


class _Entries(Primitive):
    """log p(x) of every entry from log μ, log θ and x.

    On a CPU, those of zeros are computed in the precision that is given, and the others put in their places. Elsewhere,
    and in a graph that is traced, no shape may depend on values, so all are computed in float64.
    """

    results = 1

    @staticmethod
    def traced(log_rate: Tensor, log_dispersion: Tensor, x: Tensor) -> Any:
        x, own = x.double(), log_dispersion.double()
        return (_values(log_rate.double(), x, own.exp(), _gamma(own), (x + 1.0).lgamma()).to(log_rate.dtype),)

    @staticmethod
    def forward(log_rate: Tensor, log_dispersion: Tensor, x: Tensor) -> Any:
        if x.device.type != "cpu" or torch._C._len_torch_dispatch_stack():
            return *_Entries.traced(log_rate, log_dispersion, x), None, None
        shape = torch.broadcast_shapes(log_rate.shape, x.shape)
        ratio = (log_rate - log_dispersion).exp_().expand(shape).contiguous()  # μ/θ; where it overflows, μ is large
        entries = ratio.log1p().mul_(-log_dispersion.exp())
        # Twice as fast as torch.nonzero.
        counted = (x.detach().numpy() != 0) | (log_rate.detach().numpy() > _LARGE)
        places = torch.from_numpy(np.flatnonzero(np.broadcast_to(counted, shape)))
        own = places % shape[-1] if log_dispersion.numel() == shape[-1] else places
        # Under vmap its dimension comes first in all that is kept.
        index = torch.stack([places, own]).expand(max(1, shape[0]), 2, -1)
        rates, counts, dispersions = _flat(log_rate, log_dispersion, x, index, shape)
        listed = counts.clamp(max=len(_LOG_FACTORIALS) - 1).long()
        known = bool((listed == counts).all())
        log_factorial = _LOG_FACTORIALS.index_select(0, listed) if known else (counts + 1.0).lgamma()
        theta, gamma = (_apply_at(function, dispersions, own) for function in (torch.exp, _gamma))
        values = _values(rates, counts, theta, gamma, log_factorial)
        entries.view(-1).index_copy_(0, places, values.to(entries.dtype))
        return entries, ratio, index

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> Any:  # type: ignore[override]
        log_rate, log_dispersion, x = inputs
        entries, ratio, index = kept
        if index is None:
            own = log_dispersion.double()
            slopes = _slopes(log_rate.double(), x.double(), own.exp(), _gamma_slope(own))
            return tuple((grad * slope).to(grad.dtype) for slope in slopes)
        by_rate = (ratio + 1.0).reciprocal_().mul_(ratio).mul_(-log_dispersion.exp())
        by_dispersion = entries - by_rate
        rates, counts, dispersions = _flat(log_rate, log_dispersion, x, index, entries.shape)
        theta, gamma = (_apply_at(function, dispersions, index[0, 1]) for function in (torch.exp, _gamma_slope))
        slopes = _slopes(rates, counts, theta, gamma)
        for dense, slope in zip((by_rate, by_dispersion), slopes, strict=True):
            dense.view(-1).index_copy_(0, index[0, 0], slope.to(dense.dtype))
        return by_rate.mul_(grad), by_dispersion.mul_(grad)

    @classmethod
    def call(cls, *args: Any) -> Any:
        # Zeros cannot be found under vmap, but below it.
        if torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling():
            return cls.apply(*args)
        return super().call(*args)


def _flat(
    log_rate: Tensor, log_dispersion: Tensor, x: Tensor, index: Tensor, shape: torch.Size
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log μ and x at the places of the index in float64, and the log θ that it tells the places in."""
    rates, counts = (t.expand(shape).reshape(-1).index_select(0, index[0, 0]).double() for t in (log_rate, x))
    whole = log_dispersion.numel() == shape[-1]
    return rates, counts, (log_dispersion if whole else log_dispersion.expand(shape)).reshape(-1)


def nb_entries(log_rate: Tensor, log_dispersion: Tensor, x: Tensor) -> Tensor:
    """Return log p(x) of counts, right to single precision for any log μ and log θ; arguments are broadcast.

    Example:
        >>> nb_entries(torch.zeros(1, 3), torch.zeros(3), torch.tensor([[0.0, 1.0, 2.0]])).exp()
        tensor([[0.5000, 0.2500, 0.1250]])
    """
    plain = log_rate.device.type == "cpu" and not (torch.is_grad_enabled() or torch.compiler.is_compiling())
    if plain and log_rate.dim() > x.dim() and log_rate.numel() > _TOGETHER:
        # A few draws at a time: what is computed on the way takes many times the memory of the result.
        parts = log_rate.split(max(1, _TOGETHER // log_rate[0].numel()))
        drawn = log_dispersion.dim() == log_rate.dim()
        dispersions = log_dispersion.split(len(parts[0])) if drawn else [log_dispersion] * len(parts)
        return torch.cat([_Entries.call(part, own, x)[0] for part, own in zip(parts, dispersions, strict=True)])
    return _Entries.call(log_rate, log_dispersion, x)[0]


class NegativeBinomial(Counts):
    """Counts with the mean μ and the variance μ + μ²/θ; θ = exp(log_dispersion), from 10⁻⁸ to 10⁸.

    Arguments:
        features, total, sizes: as of `Counts`.
        dispersion: "gene": one θ for each feature; "gene-batch": one for each feature and batch, which are weighted by
            their shares in the context of a row; "gene-cell": the decoder gives factors of those of the features.
        batch: where the context tells the batch of a row, for "gene-batch": the first column, and the number of
            batches.
        further: further outputs of each feature.

    Example:
        >>> likelihood = NegativeBinomial(3)
        >>> likelihood.log_prob(torch.zeros(1, 3), torch.tensor([[0.0, 1.0, 2.0]])).exp()
        tensor([0.0156], grad_fn=<ExpBackward0>)
    """

    log_dispersion: Tensor

    def __init__(
        self,
        features: int,
        total: bool = False,
        dispersion: str = "gene",
        batch: tuple[int, ...] = (),
        sizes: tuple[int, ...] | None = None,
        further: int = 0,
    ) -> None:
        super().__init__(features, (1 + further + (dispersion == "gene-cell")) * features, total, sizes)
        if dispersion == "gene-batch" and not batch:
            raise CurvaeError(
                '`dispersion="gene-batch"` needs to know the batch of every row; name its column, or use '
                '`dispersion="gene"`'
            )
        self.dispersion, self.batch = dispersion, batch if dispersion == "gene-batch" else ()
        start = torch.zeros((*self.batch[1:], features))
        if dispersion == "gene-cell":
            self.register_buffer("log_dispersion", start)
        else:
            self.log_dispersion = nn.Parameter(start)

    @classmethod
    def of(cls, layout: Layout, config: RowSettings) -> Self:
        """Make the likelihood of data with this layout, as the settings say."""
        return cls(layout.features, layout.total, config.dispersion, layout.batch, unknown_sizes(layout, config))

    @torch.no_grad()
    def prepare(self, x: Matrix, size: Any = None, context: Any = None) -> None:
        """Start the dispersions above moment estimates: E(x − p·s)² = p·s + (p·s)²/θ for the share p and the size s.

        What places on the map will explain is in these estimates too: a model that starts there may learn no places.
        """
        super().prepare(x, size, context)
        size = np.ones(x.shape[0]) if size is None else size
        first, batches = self.batch or (0, 0)
        # Of all rows and of those of each batch, for each feature.
        moments: Any = np.zeros((5, 1 + batches, self.features))  # Σs, Σs², Σx, Σxs, Σx²
        for block, sizes, *given in aligned_blocks(x, size, *([context] if batches else [])):
            shares = np.concatenate([np.ones((len(sizes), 1)), *(own[:, first : first + batches] for own in given)], 1)
            s = sizes[:, None].astype(np.float64)
            values = block.data if sparse.issparse(block) else block
            lacking = np.isnan(values)
            counts = np.where(lacking, 0.0, values).astype(np.float64)
            gone, once, squared = (_like(block, own) for own in (lacking.astype(np.float64), counts, counts**2))
            for place, factor in ((0, s), (1, s**2)):
                weighted = shares * factor
                moments[place] += weighted.sum(0)[:, None] - weighted.T @ gone
            for place, weighted, of in ((2, shares, once), (3, shares * s, once), (4, shares, squared)):
                moments[place] += weighted.T @ of
        sizes, sizes2, sums, products, squares = moments
        with np.errstate(divide="ignore", invalid="ignore"):
            p = sums / sizes
            theta = p**2 * sizes2 / (squares - 2 * p * products + p**2 * sizes2 - sums)
        theta = np.where(theta > 0, _ABOVE * theta.clip(*_ESTIMATES), _ESTIMATES[1])
        theta = np.where(sums < _FEWEST, theta[0], theta)[1:] if batches else theta[0]
        self.log_dispersion.copy_(torch.from_numpy(np.log(theta)))

    @full_precision
    def _log_dispersion(self, outputs: Tensor, batch: Batch | None) -> Tensor:
        """Return log θ for all outputs; without a batch that of an average one."""
        found, context = self.log_dispersion, None if batch is None else batch.context
        if self.dispersion == "gene-cell":
            found = found + outputs[..., self.features : 2 * self.features]
        elif self.batch:
            first, count = self.batch
            found = found.mean(0) if context is None else context[:, first : first + count] @ found
        return found.clamp(-_BOUND, _BOUND)

    def log_rate(self, outputs: Tensor, batch: Batch | None) -> Tensor:
        return super().log_rate(outputs[..., : self.features], batch)

    def count_parameters(self, outputs: Tensor, batch: Batch | None = None) -> dict[str, Tensor]:
        """Return "mean" and "dispersions", which are θ."""
        found = super().count_parameters(outputs, batch)
        return {**found, "dispersions": self._log_dispersion(outputs, batch).exp().expand_as(found["mean"])}

    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        return nb_entries(self.log_rate(outputs, batch), self._log_dispersion(outputs, batch), batch.target)

    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        log_rate = self.log_rate(outputs, batch)
        log_dispersion = self._log_dispersion(outputs, batch).expand(log_rate.shape)
        factor = torch._standard_gamma(log_dispersion.exp(), generator=generator)
        return torch.poisson(factor * (log_rate - log_dispersion).exp(), generator=generator)

    def start(self, mean: Tensor) -> Tensor:
        rates = super().start(mean)
        return torch.cat([rates, rates.new_zeros(self.outputs - self.features)])

    def extra_repr(self) -> str:
        return f"{self.features}, dispersion={self.dispersion!r}, total={self.total}"


def _like(block: Matrix, values: Any) -> Any:
    """Return a matrix with the entries of a block in memory replaced, of a sparse one those that it stores."""
    return sparse.csr_array((values, block.indices, block.indptr), block.shape) if sparse.issparse(block) else values


NB = Family(
    "nb", "counts that vary more than Poisson ones", NegativeBinomial.of, refuse_other_than_counts, uses_size=True
)


# Counts of which some are lost: a zero is either one of the negative binomial, or a dropout. With l the logit of a
# dropout and n the log-probability of the negative binomial,
#
#     log p(0) = log(σ(l) + σ(−l)·eⁿ) = max(l, n) − max(l, 0) + L(l − n) − L(l) with L(a) = log(1 + exp(−|a|)),
#
# where no large numbers cancel, and log p(x) = n − max(l, 0) − L(l) for other counts.

_START = -2.0  # logit of a dropout


class _ZeroInflatedEntries(Primitive):
    """log p(x) of every entry from n, l and x."""

    @staticmethod
    def forward(entries: Tensor, logits: Tensor, x: Tensor) -> Tensor:
        zero = x.sign().neg_().add_(1.0)  # booleans take several times as long
        head = entries.lerp(torch.maximum(logits, entries), zero).sub_(logits.relu())
        lost = (logits - entries).abs_().neg_().exp_().mul_(zero)
        rest = logits.abs().neg_().exp_()
        return head.add_(lost.sub_(rest).div_(rest.add_(1.0)).log1p_())  # both logarithms in one

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> Any:  # type: ignore[override]
        entries, logits, x = inputs
        counted = torch.maximum((entries - logits).sigmoid_(), x.sign())  # probability that it is no dropout
        return counted * grad, counted.add_(logits.sigmoid()).neg_().add_(1.0).mul_(grad)


class ZeroInflated(NegativeBinomial):
    """A negative binomial of which every count is replaced by 0 with a probability, whose logit the decoder gives.

    Arguments:
        features, total, dispersion, batch, sizes: as of `NegativeBinomial`.
    """

    def __init__(
        self,
        features: int,
        total: bool = False,
        dispersion: str = "gene",
        batch: tuple[int, ...] = (),
        sizes: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(features, total, dispersion, batch, sizes, further=1)

    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        others, logits = outputs.split([self.outputs - self.features, self.features], -1)
        return _ZeroInflatedEntries.call(super().entries(others, batch), logits, batch.target)

    def count_parameters(self, outputs: Tensor, batch: Batch | None = None) -> dict[str, Tensor]:
        """Return "mean" and "dispersions" of the counts before any is lost, and the probability of that, "dropout"."""
        return {**super().count_parameters(outputs, batch), "dropout": outputs[..., -self.features :].sigmoid()}

    def mean(self, outputs: Tensor, batch: Batch | None = None) -> Tensor:
        return super().mean(outputs, batch) * (-outputs[..., -self.features :]).sigmoid()

    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        lost = outputs[..., -self.features :].sigmoid()
        drawn = super().draw(outputs, batch, generator)
        return drawn.masked_fill(torch.empty_like(lost).uniform_(generator=generator) < lost, 0.0)

    def start(self, mean: Tensor) -> Tensor:
        start = super().start(mean)
        start[-self.features :] = _START
        start[: self.features] += F.softplus(start[-self.features :])  # so that the mean is right all the same
        return start


ZINB = Family("zinb", "counts of which some are lost", ZeroInflated.of, refuse_other_than_counts, uses_size=True)
