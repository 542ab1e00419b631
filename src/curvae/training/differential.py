"""Which genes are expressed differently in two populations of cells, and how probable is that?

The expression of a gene in a population is its share of all counts there: what the decoder expects of the cells,
decoded as of the same batches where that is asked for, times observed over expected counts. The decoder alone would
say nothing of the noise of the counts it was trained on, which the spread of counts around it tells.

Shares add up to 1, so a few genes that grow make all others shrink: log fold changes are those beside the median gene.
They and their standard errors go through a prior that is learned from all genes of a comparison: most
genes change little or not at all, and a few counts prove nothing (Stephens, 2017, False discovery rates: a new deal).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import ndtr

from ..data import Arrays, Dataset
from ..data.files import count, quoted
from ..errors import CurvaeError
from ..models import Batch
from ..models.likelihoods.counts import Counts
from ..settings import require_choice
from .fitted import Fitted

__all__ = [
    "Expression",
    "Populations",
    "ShrunkChanges",
    "compare_expression",
    "compare_populations",
    "measure_expression",
    "shrink_changes",
    "split_groups",
]

Array = NDArray[np.float64]
Mode = Literal["change", "vanilla"]

_DRAWS = 4  # of the posterior of each cell
_ENTRIES = 1 << 22  # of counts, over draws, at once
_ADDED = 1.0  # counts, in proportion to those expected, that are added to the observed ones
_SAME = 10.0  # weight of the prior for genes that do not change, in genes
_ROUNDS, _HALVINGS = 200, 60
_NARROW = 1e-12  # standard deviation that is as good as 0
_TINY = 1e-8  # probabilities that odds are made of, at least
_FEWEST = 5  # cells of a population
_UNIT = 1e4  # counts of a cell in `raw_normalized_mean`


@dataclass(frozen=True)
class Expression:
    """What is known of the expression of genes in populations of cells, (populations, genes) each.

    Arguments:
        share: of all counts of a population, or a rate where sizes are given.
        error: its relative standard error.
        raw_mean: counts a cell.
        non_zeros_proportion: share of the cells with a count.
        raw_normalized_mean: counts a cell in 10,000 counts of it.
        total: sizes of all cells together, (populations,).
    """

    share: Array
    error: Array
    raw_mean: Array
    non_zeros_proportion: Array
    raw_normalized_mean: Array
    total: Array


@torch.no_grad()
def measure_expression(
    fitted: Fitted,
    data: Arrays | Dataset,
    members: NDArray[np.bool_],
    batches: Sequence[Sequence[int]] = (),
    *,
    seed: int = 0,
    advance: Callable[[int], object] = lambda cells: None,
) -> Expression:
    """Measure the expression of all genes in populations of cells, in one pass over the cells.

    Arguments:
        fitted: a model of counts.
        data: the cells, in memory or on disk.
        members: which cells belong to each population, (populations, cells).
        batches: numbers of the batches as of which each population is decoded, whose mean is taken; by default each
            cell as of its own.
        seed: of the draws from the posteriors.
        advance: is told of cells that are done.
    """
    model: Any = fitted.model
    if not isinstance(model.likelihood, Counts):
        raise CurvaeError("differential expression needs a model of counts; train one with `likelihood=nb`")
    first, known = fitted.layout.batch or (0, 0)
    asked = [tuple(one) for one in batches] or [()] * len(members)
    rows, generator = fitted.rows(data), torch.Generator(model.device).manual_seed(seed)
    genes = model.likelihood.features
    # Of counts x, sizes s and shares p: Σx, Σx², Σxs, Σx/s, cells with x > 0, Σsp, and Σsp as of the batches.
    sums = np.zeros((7, len(members), genes))
    cells, total, squares = np.zeros((3, len(members)))
    chosen = np.flatnonzero(members.any(0))
    for places in np.array_split(chosen, math.ceil(len(chosen) * genes * _DRAWS / _ENTRIES)):
        batch = rows.batch(torch.from_numpy(places))
        z, _ = model.draw(batch, model.noise(len(batch), _DRAWS, generator))
        x = batch.target.cpu().double().numpy()
        size = np.ones(len(x)) if batch.size is None else batch.size.cpu().double().numpy()

        def decode(batch: Batch, z: Any = z) -> Array:
            """Return the expected counts of cells of size 1, the mean over draws."""
            one = batch.joined(size=torch.ones_like(z[0, :, 0]))
            found = model.likelihood.count_parameters(model.decode(z, batch.context), one)["mean"]
            return np.asarray(found.mean(0).cpu().double().numpy())

        own, part = decode(batch), members[:, places].astype(np.float64)
        s = size[:, None]
        for place, values in enumerate((x, x**2, x * s, x / s, x > 0, own * s)):
            sums[place] += part @ values
        others = {number: decode(_as_of(batch, first, known, number)) for number in set(chain(*asked))}
        for place, numbers in enumerate(asked):
            mean = sum(others[number] for number in numbers) / len(numbers) if numbers else own
            sums[6, place] += (part[place] * size) @ mean
        cells, total, squares = (old + part @ new for old, new in ((cells, size**0), (total, size), (squares, size**2)))
        advance(len(places))
    counts, second, mixed, normalised, present, expected, moved = sums
    rate = counts / total[:, None]
    # The spread of the counts around the rate, and no less than that of so many counts and one more.
    spread = np.maximum(second - 2 * rate * mixed + rate**2 * squares[:, None], counts + 1.0)
    return Expression(
        moved / total[:, None] * (counts + _ADDED) / (expected + _ADDED),
        np.sqrt(spread) / (counts + _ADDED),
        counts / cells[:, None],
        present / cells[:, None],
        _UNIT * normalised / cells[:, None],
        total,
    )


def _as_of(batch: Batch, first: int, known: int, number: int) -> Batch:
    """Return cells as if they were of another batch."""
    context = batch.context.clone()
    context[:, first : first + known] = 0.0
    context[:, first + number] = 1.0
    return batch.joined(context=context)


@dataclass(frozen=True)
class ShrunkChanges:
    """What is known of effects after a prior was learned from all of them: a mixture of normals each.

    Arguments:
        weight: of the components, (effects, components).
        centre, width: mean and standard deviation of the components, likewise; a width of 0 is an effect of 0.
    """

    weight: Array
    centre: Array
    width: Array

    @property
    def mean(self) -> Array:
        return np.asarray((self.weight * self.centre).sum(1))

    @property
    def deviation(self) -> Array:
        return np.sqrt(np.maximum((self.weight * (self.centre**2 + self.width**2)).sum(1) - self.mean**2, 0.0))

    @property
    def median(self) -> Array:
        low, high = ((self.centre + sign * 9 * self.width) for sign in (-1, 1))
        low, high = low.min(1), high.max(1)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            above = self.below(middle) < 0.5
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return (low + high) / 2

    def below(self, value: Array | float) -> Array:
        """Compute the probability that an effect is less than a value; one of 0 is so by half where the value is 0."""
        apart = np.asarray(value).reshape(-1, 1) - self.centre
        return np.asarray((self.weight * ndtr(apart / np.maximum(self.width, _NARROW))).sum(1))


def shrink_changes(found: Array, error: Array) -> ShrunkChanges:
    """Learn how large effects are, from estimates with normal errors, and what each is then.

    The prior is a mixture of normals around 0, of scales from 0 to twice the largest estimate, whose weights are the
    most probable ones.

    Example:
        >>> effects = shrink_changes(np.array([0.1, -0.2, 0.0, 3.0]), np.full(4, 0.3))
        >>> (1 - effects.below(0.25)).round(2).tolist()
        [0.0, 0.0, 0.0, 1.0]
    """
    largest = 2 * math.sqrt(max(float((found**2 - error**2).max()), float((error**2).min())))
    steps = math.ceil(2 * math.log2(largest / (error.min() / 10)))
    scale = np.concatenate([[0.0], largest * 2.0 ** (-np.arange(steps) / 2)])
    variance = error[:, None] ** 2 + scale**2
    log_density = -(np.log(variance) + found[:, None] ** 2 / variance) / 2
    density = np.exp(log_density - log_density.max(1, keepdims=True))
    share = np.full(len(scale), 1 / len(scale))
    for _ in range(_ROUNDS):
        weight = density * share
        weight /= weight.sum(1, keepdims=True)
        share = weight.sum(0)
        share[0] += _SAME
        share /= share.sum()
    kept = scale**2 / variance
    return ShrunkChanges(weight, kept * found[:, None], np.sqrt(kept) * error[:, None])


def compare_expression(
    found: Expression,
    first: int,
    second: int,
    names: Sequence[str],
    *,
    mode: Mode = "change",
    delta: float = 0.25,
    pseudocounts: float | None = None,
    fdr_target: float = 0.05,
    all_stats: bool = True,
) -> pd.DataFrame:
    """Compare two populations gene by gene; the columns have the names that scvi-tools gives them.

    Arguments:
        found: the expression of populations.
        first, second: which of them.
        names: of the genes.
        mode: "change": the probability that the log2 fold change is `delta` or more, of either sign; "vanilla": that
            the first population has more.
        delta: least change that counts.
        pseudocounts: added to both shares, so that genes without counts do not change; by default one count in the
            smaller population.
        fdr_target: share of false discoveries that is expected among those that `is_de_fdr_…` marks.
        all_stats: whether to add the means of the counts.

    Returns:
        A line for each gene, those first of which it is most probable.
    """
    share, error, pair = found.share[[first, second]], found.error[[first, second]], (first, second)
    added = 1 / found.total[[first, second]].min() if pseudocounts is None else pseudocounts
    raised = share + added
    change, noise = np.log2(raised[0] / raised[1]), np.hypot(*(error * share / raised)) / math.log(2)
    change -= np.median(change[noise <= np.median(noise)])
    effects = shrink_changes(change, noise)
    if mode == "change":
        likely = effects.below(-delta) + 1 - effects.below(delta)
        columns = {"proba_de": likely, "proba_not_de": 1 - likely}
    else:
        less = effects.below(0.0)
        columns = {"proba_m1": 1 - less, "proba_m2": less}
    yes, no = (value + _TINY for value in columns.values())
    columns |= {"bayes_factor": np.log(yes) - np.log(no), "scale1": share[0], "scale2": share[1]}
    if mode == "change":
        columns |= {
            "pseudocounts": np.full(len(change), added),
            "delta": np.full(len(change), delta),
            "lfc_mean": effects.mean,
            "lfc_median": effects.median,
            "lfc_std": effects.deviation,
        }
    if all_stats:
        for name in ("raw_mean", "non_zeros_proportion", "raw_normalized_mean"):
            columns |= {f"{name}{i}": getattr(found, name)[population] for i, population in enumerate(pair, 1)}
    # Of equally probable ones those first that differ most.
    order = np.lexsort((-np.abs(effects.mean), -columns["bayes_factor"]))
    table = pd.DataFrame(columns, pd.Index(np.array(names), name="gene")).iloc[order]
    if mode == "change":
        table[f"is_de_fdr_{fdr_target:g}"] = table["proba_not_de"].cumsum() / np.arange(1, len(table) + 1) <= fdr_target
    return table


@dataclass(frozen=True)
class Populations:
    """Pairs of populations of cells to compare.

    Arguments:
        names: of the first and the second of each pair.
        members: which cells belong to the two, (2, cells) each.
    """

    names: Sequence[tuple[str, str]]
    members: Sequence[NDArray[np.bool_]]

    def __post_init__(self) -> None:
        for pair, both in zip(self.names, self.members, strict=True):
            for name, cells in zip(pair, both.sum(1), strict=True):
                if cells < _FEWEST:
                    raise CurvaeError(
                        f"{name!r} has {count(cells, 'cell')}; give populations of {_FEWEST} or more, by name"
                    )
            if (both[0] == both[1]).all():
                raise CurvaeError(f"{pair[0]!r} and {pair[1]!r} are the same cells; give two that differ")


def split_groups(labels: NDArray[np.str_], first: Sequence[str] | None, second: str | None, what: str) -> Populations:
    """Pair groups of cells with another group, or each with all other cells.

    Arguments:
        labels: the group of every cell.
        first: names of groups; by default each of them.
        second: the group that they are compared with; by default all other cells.
        what: name of the column with the groups.
    """
    known = np.unique(labels[labels != ""])
    if len(known) < 2:
        raise CurvaeError(f"`groupby` needs a column with two groups or more; {what!r} holds {quoted(known) or 'none'}")
    for parameter, asked in (("group1", first or ()), ("group2", () if second is None else [second])):
        if unknown := sorted(set(asked) - set(known)):
            raise CurvaeError(f"`{parameter}` is no group of {what!r}: {quoted(unknown)}; it has {quoted(known)}")
    chosen = [name for name in known if name != second] if first is None else list(first)
    members = [np.stack([labels == name, labels != name if second is None else labels == second]) for name in chosen]
    return Populations([(str(name), second or "Rest") for name in chosen], members)


def compare_populations(
    fitted: Fitted,
    data: Arrays | Dataset,
    populations: Populations,
    names: Sequence[str],
    batches: tuple[Sequence[int], Sequence[int]] = ((), ()),
    *,
    mode: Mode = "change",
    delta: float = 0.25,
    fdr_target: float = 0.05,
    advance: Callable[[int], object] = lambda cells: None,
    **how: Any,
) -> pd.DataFrame:
    """Compare pairs of populations gene by gene, a table under the other; see `compare_expression`.

    Arguments:
        fitted: a model of counts.
        data: the cells.
        populations: what to compare.
        names: of the genes.
        batches: as of which the first and the second of each pair are decoded; see `measure_expression`.
        mode, delta, fdr_target, how: as of `compare_expression`.
        advance: is told of cells that are done.
    """
    require_choice("mode", mode, ("change", "vanilla"))
    if not delta > 0:
        raise CurvaeError(f"`delta` must be greater than 0, got {delta}; it is the least log2 fold change that counts")
    if not 0 < fdr_target < 1:
        raise CurvaeError(f"`fdr_target` must be between 0 and 1, got {fdr_target}")
    found = measure_expression(
        fitted, data, np.concatenate(populations.members), batches * len(populations.names), advance=advance
    )
    return pd.concat(
        compare_expression(found, 2 * i, 2 * i + 1, names, mode=mode, delta=delta, fdr_target=fdr_target, **how).assign(
            comparison=f"{first} vs {second}", group1=first, group2=second
        )
        for i, (first, second) in enumerate(populations.names)
    )
