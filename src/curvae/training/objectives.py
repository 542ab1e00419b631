"""From the terms of a batch to the loss of every model, and to the figures that records show."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..models import MapTerms, Terms
from .config import Config
from .fitted import Record

__all__ = ["figures", "figures_by_name", "losses"]


def losses(
    terms: Terms | MapTerms,
    config: Config,
    beta: Tensor | float,
    weight: Tensor | None = None,
    pull: Tensor | None = None,
    kept: Tensor | None = None,
) -> Tensor:
    """The loss of every model, (models,): the mean over its rows, each multiplied by its weight.

    Arguments:
        terms: of a batch.
        config: says which objective.
        beta: weight of the divergence.
        weight: by which rows count, (rows,) or (models, rows), in the mean over all rows of the training 1.
        pull: weights of neighbourhoods, (models, 1 or 2).
        kept: 1 for rows, and 0 for what fills up a batch.
    """
    if pull is not None and isinstance(terms, MapTerms):
        missed = _mean(_missed(terms, pull), weight, kept)
        return losses(Terms(*terms[:2]), config, beta, weight, kept=kept) + missed
    reconstruction, kl = terms[0], terms[1]
    if config.objective == "iwae":
        rows = math.log(kl.shape[-2]) - torch.logsumexp(reconstruction - kl, -2)
    elif weight is None and kept is None:
        return (beta * kl - reconstruction).mean((-2, -1))
    else:
        rows = (beta * kl - reconstruction).mean(-2)
    return _mean(rows, weight, kept)


def _mean(rows: Tensor, weight: Tensor | None, kept: Tensor | None) -> Tensor:
    rows = rows if weight is None else rows * weight
    return rows.mean(-1) if kept is None else (rows * kept).sum(-1) / kept.sum(-1)


def _missed(terms: MapTerms, pull: Tensor) -> Tensor:
    """By how much every row misses its neighbourhood, in nats, (…, rows)."""
    return (pull.unsqueeze(-1) * terms.neighbours).sum(-2)


def figures_by_name(means: Sequence[float]) -> Record:
    """What an epoch gave, by name."""
    reconstruction, kl, *missed = means
    found = {"elbo": reconstruction - kl, "reconstruction": reconstruction, "kl": kl}
    return {**found, "neighbours": missed[0]} if missed else found


def figures(terms: Terms | MapTerms, pull: Tensor | None, kept: Tensor | float = 1.0) -> Tensor:
    """Sums over the rows of what records show, (2 or 3, models); rows count by `kept`."""
    found = [term.detach().mean(-2, dtype=torch.float64) for term in terms[:2]]
    if pull is not None and isinstance(terms, MapTerms):
        found.append(_missed(terms, pull).detach().double().view_as(found[0]))
    return (torch.stack(found) * kept).sum(-1).view(len(found), -1)
