"""The training loop."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.missing import column_means
from ..errors import CurvaeError
from ..models import VAE
from .build import build
from .config import Config
from .files import read_records, read_tensors, write_records, write_tensors
from .rows import Matrix, Rows, Scaling, choose_likelihood

__all__ = ["METRICS", "Fitted", "Split", "fit", "random_split", "resolve"]

Record = dict[str, Any]

METRICS = "metrics.jsonl"

# Seconds between two checkpoints.
_CHECKPOINT_EVERY = 2.0


@dataclass(frozen=True)
class Split:
    """Which rows are for training, for validation, and for neither."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def names(self, rows: int) -> NDArray[np.str_]:
        """ "train", "validation" or "test" for each row."""
        names = np.full(rows, "train", dtype="<U10")
        names[self.validation] = "validation"
        names[self.test] = "test"
        return names


def random_split(
    rows: int, validation: float, test: float = 0.0, seed: int = 0, groups: NDArray[Any] | None = None
) -> Split:
    """A random split; rows of one group stay together."""
    keys = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    order = np.random.default_rng([seed, 7]).permutation(keys.max() + 1)
    counts = np.cumsum([0, *np.bincount(keys)[order]])
    # As near to the shares as whole groups allow.
    ends = [np.abs(counts - round(rows * share)).argmin() for share in (validation, validation + test)]
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    held, tested = place[keys] < ends[0], place[keys] < ends[1]
    split = Split(np.flatnonzero(~tested), np.flatnonzero(held), np.flatnonzero(tested & ~held))
    if len(split.train) == 0:
        raise CurvaeError(
            f"no rows are left for training: {rows} rows in {len(order)} groups; hold out a smaller share"
        )
    return split


@dataclass
class Fitted:
    """A trained model with what is needed to use it."""

    config: Config
    model: VAE
    scaling: Scaling
    reason: str
    """why this likelihood"""
    split: Split
    history: list[Record]

    def rows(self, x: Matrix) -> Rows:
        """New data as the model sees it."""
        return Rows(x, self.scaling, self.model.device, self.model.dtype)

    def double(self) -> Fitted:
        """The same with networks in float64, whose figures for a row do not depend on the rows around it."""
        return self if self.model.dtype == torch.float64 else replace(self, model=deepcopy(self.model).double())

    @property
    def last(self) -> Record:
        """Record of the epoch whose weights the model has: the last, or with early stopping the best."""
        if self.config.patience is None:
            return self.history[-1]
        return max(self.history, key=lambda record: record["validation_elbo"])


def resolve(config: Config, x: Matrix, split: Split, blocks: tuple[int, ...] = ()) -> tuple[Config, str]:
    """The configuration with its "auto" choices made for the data, and the reason for the likelihood."""
    if config.patience is not None and not len(split.validation):
        raise CurvaeError(
            f"early stopping needs validation rows, and a share of {config.validation:g} of {x.shape[0]} rows holds "
            "none; hold out a larger share, or drop patience"
        )
    likelihood, reason = choose_likelihood(x, config.likelihood, blocks)
    return replace(config, likelihood=likelihood, epochs=config.epochs_for(len(split.train))), reason


def scaling_for(config: Config, x: Matrix, split: Split) -> Scaling:
    """How columns are scaled, from all rows that are not test rows."""
    if not config.scales:
        return Scaling.identity(x.shape[1])
    seen = np.setdiff1d(np.arange(x.shape[0]), split.test) if len(split.test) else slice(None)
    return Scaling.standard(x[seen])


def fit(
    config: Config,
    x: Matrix,
    *,
    blocks: tuple[int, ...] = (),
    split: Split | None = None,
    scaling: Scaling | None = None,
    device: torch.device | str = "cpu",
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[Record, int], None] = lambda record, epochs: None,
) -> Fitted:
    """Train a model.

    The order of rows and all noise of an epoch come from (seed, epoch) alone, so that a run that was interrupted and
    resumed from its checkpoint ends with the same weights as one that was not.

    Arguments:
        config: what to train; "auto" choices are resolved in the result.
        x: numpy array or scipy CSR matrix of rows, in original units.
        blocks: widths of one-hot blocks, for the categorical likelihood.
        split: rows for training and validation; by default at random from the configuration.
        scaling: how to scale columns; by default from all rows that are not test rows.
        device: where to train.
        folder: keeps `metrics.jsonl` and `checkpoint/`; without it nothing is written.
        resume: go on from the checkpoint in `folder`, if there is one.
        progress: called after each epoch with its record and the number of epochs.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(40, 3))
        >>> fitted = fit(Config(epochs=2, hidden=(8,)), x)
        >>> sorted(fitted.history[0])[:5]
        ['c', 'elbo', 'epoch', 'kl', 'prior_scale']
    """
    split = random_split(x.shape[0], config.validation, seed=config.seed) if split is None else split
    config, reason = resolve(config, x, split, blocks)
    scaling = scaling_for(config, x, split) if scaling is None else scaling
    mean = (column_means(x[split.train]) - scaling.shift) / scaling.scale
    model = build(config, x.shape[1], blocks, mean).to(device)
    state = _State(model, config, folder, resume)
    rows = Rows(x, scaling, device)
    train, validation = (torch.from_numpy(part).to(device) for part in (split.train, split.validation))
    watch = _noise(model, len(validation), config, epoch=None)

    while state.epoch < state.epochs and not state.done():
        began = time.perf_counter()
        order, noise = _draws(model, len(train), config, state.epoch)
        totals = torch.zeros(2, dtype=torch.float64)
        model.train()
        for start in range(0, len(train), config.batch_size):
            batch = order[start : start + config.batch_size]
            reconstruction, kl = model.terms(rows.batch(train[batch]), noise[:, start : start + config.batch_size])
            loss = _loss(reconstruction, kl, config)
            state.optimiser.zero_grad()
            loss.backward()
            state.check(loss)
            state.optimiser.step()
            totals += torch.stack([reconstruction.mean(0).sum(), kl.mean(0).sum()]).detach().cpu()
        record = _record(model, state.epoch, totals / len(train))
        if len(validation):
            record |= _validate(model, rows, validation, watch, config)
        state.finish(record, began)
        progress(record, state.epochs)
    state.close()
    model.eval()
    return Fitted(config, model, scaling, reason, split, state.history)


def _loss(reconstruction: Tensor, kl: Tensor, config: Config) -> Tensor:
    if config.objective == "iwae":
        return math.log(len(kl)) - torch.logsumexp(reconstruction - kl, 0).mean()
    return (config.beta * kl - reconstruction).mean()


def _generator(device: torch.device, seed: int, epoch: int | None) -> torch.Generator:
    """The source of randomness of an epoch; None stands for the validation."""
    entropy = np.random.SeedSequence([seed, 0 if epoch is None else epoch + 1]).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(entropy >> 1))


def _noise(model: VAE, rows: int, config: Config, epoch: int | None) -> Tensor:
    return model.noise(rows, config.samples, _generator(model.device, config.seed, epoch))


def _draws(model: VAE, rows: int, config: Config, epoch: int) -> tuple[Tensor, Tensor]:
    """Order of the rows, and noise for all of them."""
    generator = _generator(model.device, config.seed, epoch)
    return torch.randperm(rows, generator=generator, device=model.device), model.noise(rows, config.samples, generator)


def _record(model: VAE, epoch: int, means: Tensor) -> Record:
    reconstruction, kl = means.tolist()
    with torch.no_grad():
        c, scale = float(model.prior.curvature()), float(model.prior.scale())
    return {
        "epoch": epoch + 1,
        "elbo": reconstruction - kl,
        "reconstruction": reconstruction,
        "kl": kl,
        "c": c,
        "prior_scale": scale,
    }


def _validate(model: VAE, rows: Rows, index: Tensor, noise: Tensor, config: Config) -> Record:
    """The ELBO of the validation rows, with the same noise in every epoch."""
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64)
    size = max(config.batch_size, 512)
    with torch.no_grad():
        for start in range(0, len(index), size):
            terms = model.terms(rows.batch(index[start : start + size]), noise[:, start : start + size])
            totals += torch.stack([term.mean(0).sum() for term in terms]).cpu()
    reconstruction, kl = (totals / len(index)).tolist()
    return {
        "validation_elbo": reconstruction - kl,
        "validation_reconstruction": reconstruction,
        "validation_kl": kl,
    }


class _State:
    """Weights, optimiser, history and early stopping: all that a checkpoint holds."""

    def __init__(self, model: VAE, config: Config, folder: Path | None, resume: bool) -> None:
        assert config.epochs is not None
        self.model, self.config, self.folder = model, config, folder
        fused = True if model.device.type in ("cpu", "cuda") else None
        self.optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate, fused=fused)
        self.epoch, self.epochs = 0, config.epochs
        self.step = 0
        self.history: list[Record] = []
        self.best = -math.inf
        self.best_epoch = 0
        self.best_weights: dict[str, Tensor] = {}
        self.saved = time.monotonic()
        if folder is not None and resume and self.path.exists():
            self._load()

    @property
    def path(self) -> Path:
        assert self.folder is not None
        return self.folder / "checkpoint" / "state.safetensors"

    def check(self, loss: Tensor) -> None:
        """Stop, before any weight is changed, when the loss is not a number."""
        self.step += 1
        if not math.isfinite(loss.item()):
            self._stop(f"the loss became {loss.item()}")

    def _infinite(self) -> list[str]:
        return [name for name, p in self.model.named_parameters() if not bool(p.isfinite().all())]

    def _stop(self, cause: str) -> NoReturn:
        named = dict(self.model.named_parameters())
        bad = self._infinite() or [
            n for n, p in named.items() if p.grad is not None and not bool(p.grad.isfinite().all())
        ]
        where = f"parameter {bad[0]} is not finite" if bad else "all parameters are finite"
        kept = (
            f"the last good checkpoint is {self.path.parent.name}/{self.path.name} of the run"
            if self.folder is not None and self.path.exists()
            else "there is no checkpoint yet"
        )
        raise CurvaeError(
            f"{cause} at step {self.step} (epoch {self.epoch + 1}): {where}; {kept}; "
            "lower the learning rate or look for extreme values in the data"
        )

    def finish(self, record: Record, began: float) -> None:
        """Take note of an epoch."""
        # The step after a finite loss may still lead nowhere; such weights must not become a checkpoint.
        wrong = [name for name, value in record.items() if not math.isfinite(value)]
        if wrong or self._infinite():
            self._stop(f"{wrong[0]} became {record[wrong[0]]}" if wrong else "a weight became infinite")
        self.epoch += 1
        now = time.perf_counter()
        record["seconds"] = round(now - began, 4)
        self.history.append(record)
        value = record.get("validation_elbo", -math.inf)
        if self.config.patience is not None and value > self.best:
            self.best, self.best_epoch = value, self.epoch
            self.best_weights = {name: t.detach().clone() for name, t in self.model.state_dict().items()}
        if self.folder is not None and time.monotonic() - self.saved > _CHECKPOINT_EVERY:
            self._save()

    def done(self) -> bool:
        """Whether early stopping has given up."""
        return self.config.patience is not None and self.epoch - self.best_epoch >= self.config.patience

    def close(self) -> None:
        if self.folder is not None:
            self._save()
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)

    def _save(self) -> None:
        assert self.folder is not None
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        tensors |= {f"best.{name}": t for name, t in self.best_weights.items()}
        for name, parameter in self.model.named_parameters():
            for key, t in self.optimiser.state.get(parameter, {}).items():
                tensors[f"adam.{key}.{name}"] = t
        counters = {"epoch": self.epoch, "step": self.step, "best": repr(self.best), "best_epoch": self.best_epoch}
        write_records(self.folder / METRICS, self.history)
        write_tensors(self.path, tensors, {"state": json.dumps(counters)})
        self.saved = time.monotonic()

    def _load(self) -> None:
        assert self.folder is not None
        tensors, metadata = read_tensors(self.path)
        try:
            counters = json.loads(metadata["state"])
            self.model.load_state_dict(_under("model.", tensors))
            self.best_weights = _under("best.", tensors)
            for name, parameter in self.model.named_parameters():
                for key in ("step", "exp_avg", "exp_avg_sq"):
                    if f"adam.{key}.{name}" in tensors:
                        self.optimiser.state[parameter][key] = tensors[f"adam.{key}.{name}"].to(parameter.device)
            self.epoch, self.step = int(counters["epoch"]), int(counters["step"])
            self.best, self.best_epoch = float(counters["best"]), int(counters["best_epoch"])
            # Records are written first, so there may be more of them than the checkpoint's epochs.
            self.history = read_records(self.folder / METRICS)[: self.epoch]
            if len(self.history) < self.epoch:
                raise ValueError(f"{METRICS} holds {len(self.history)} of {self.epoch} epochs")
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            message = str(error).splitlines()[0]
            raise CurvaeError(
                f"the checkpoint in {self.path.parent} does not fit this run ({message}); "
                "start again with --force, or in another folder"
            ) from error


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
