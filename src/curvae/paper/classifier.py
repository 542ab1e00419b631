"""Classifiers on embeddings, many at once (section 4.2 and appendix C.2).

A classifier has the architecture of the decoder with as many outputs as there are classes; its first layer starts at
the decoder's. Its input is the posterior's centre.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from ..geometry import hyperboloid as h
from ..nn import Curvature, decoder
from ..nn.layers import Curved
from ..training import Fitted, Rows

__all__ = ["Settings", "accuracies", "centres", "confusions"]

_BATCH = 4096


@dataclass(frozen=True)
class Settings:
    """How a classifier is trained: Adam on the cross entropy."""

    trainings: int = 5
    epochs: int = 5
    batch_size: int = 64
    learning_rate: float = 1e-3


def centres(fitted: Fitted, rows: Rows) -> Tensor:
    """Posterior centres S as the decoder takes them, (rows, d)."""
    model = fitted.model
    c = model.space.curvatures()[0].double()
    with torch.no_grad():
        parts = [
            h.saturate(model.encode(rows.batch(index)).loc, c, model.dtype)
            for index in torch.arange(len(rows), device=model.device).split(_BATCH)
        ]
    return torch.cat(parts)


def _classifier(fitted: Fitted, classes: int, seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = decoder(fitted.config.decoder, fitted.model.space, fitted.config.hidden[::-1], classes)
    c = float(fitted.model.space.curvatures()[0].detach())  # as trained; the space of an embedding does not change
    made[0].load_state_dict(fitted.model.decoder.get_submodule("0").state_dict())
    for layer in made:
        if isinstance(layer, Curved):
            layer.curvature = Curvature(c)
    return made


def confusions(
    fitted: Sequence[Fitted],
    train: tuple[Sequence[Tensor], Tensor],
    test: tuple[Sequence[Tensor], Tensor],
    classes: int,
    settings: Settings,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> Tensor:
    """How often each class is taken for each, (models, trainings, classes, classes), rows the truth.

    Arguments:
        fitted: models of one architecture, curvatures may differ.
        train, test: points of every model, and the labels that they share.
        classes: number of labels.
        settings: of the training.
        progress: told steps done and to do.
    """
    each = settings.trainings
    owner = torch.arange(len(fitted)).repeat_interleave(each)
    seeds = [fitted[i].config.seed * each + k % each for k, i in enumerate(owner.tolist())]
    networks = [_classifier(fitted[i], classes, seed) for i, seed in zip(owner.tolist(), seeds, strict=True)]
    points, labels = torch.stack(list(train[0])), train[1]
    device = points.device
    parameters, buffers = stack_module_state([network.to(device) for network in networks])
    scores = vmap(lambda parameters, buffers, x: functional_call(networks[0], (parameters, buffers), (x,)))
    optimiser = torch.optim.Adam(parameters.values(), lr=settings.learning_rate, fused=True)
    owner = owner.to(device).unsqueeze(1)
    steps = -(-len(labels) // settings.batch_size)
    for epoch in range(settings.epochs):
        order = torch.stack([_order(len(labels), seed, epoch) for seed in seeds]).to(device)
        for step, index in enumerate(order.split(settings.batch_size, 1), 1):
            loss = F.cross_entropy(
                scores(parameters, buffers, points[owner, index]).mT, labels[index], reduction="none"
            )
            optimiser.zero_grad()
            loss.mean(1).sum().backward()
            optimiser.step()
            if step % 50 == 0 or step == steps:
                progress(epoch * steps + step, settings.epochs * steps)
    return _judge(scores, parameters, buffers, owner, test, classes).view(len(fitted), each, classes, classes)


def _order(rows: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(rows, generator=torch.Generator().manual_seed(1000003 * epoch + seed))


def _judge(
    scores: Callable[..., Tensor],
    parameters: Any,
    buffers: Any,
    owner: Tensor,
    test: tuple[Sequence[Tensor], Tensor],
    classes: int,
) -> Tensor:
    points, labels = torch.stack(list(test[0])), test[1]
    counts = torch.zeros(len(owner), classes * classes, dtype=torch.int64, device=points.device)
    with torch.no_grad():
        for index in torch.arange(len(labels), device=points.device).split(1024):
            cell = labels[index] * classes + scores(parameters, buffers, points[owner, index]).argmax(-1)
            counts.scatter_add_(1, cell, torch.ones_like(cell))
    return counts.cpu()


def accuracies(confusion: Tensor) -> Tensor:
    """The share of each class that is recognised, (…, classes)."""
    return confusion.diagonal(dim1=-2, dim2=-1).double() / confusion.sum(-1).clamp_min(1)
