"""What a trained model says about data: embedding, likelihood, missing values, health of the map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from ..data import Arrays
from ..data.column_statistics import missing_entries
from ..data.files import decimal
from ..maps.embedding import Embedding, placed, require_finite
from ..models import Stack, marginal_likelihood
from ..models.stack import architecture
from .config import require_count
from .fitted import Fitted, FittedModel
from .rows import Data, RowPool

__all__ = [
    "Embedding",
    "Likelihoods",
    "Stability",
    "embed",
    "health",
    "impute",
    "likelihoods",
    "likelihoods_many",
    "map_health",
    "require_finite",
    "stability",
]

Array = NDArray[np.float64]

_ROWS = 1024  # encoded at once
_NUMBERS = (
    1 << 24
)  # of a model's rows that a CUDA device holds at once, for the likelihood compiles for each such batch
_RIM = 0.99  # √c·|z| of a point that a picture of the disc cannot tell from its rim
_EMPTY = 0.1  # nats below which the latent space tells nothing
_OVERFIT = 2.0  # nats a row that the validation ELBO may fall from its best, more than its noise
_ACTIVE = 0.01  # share of the prior's variance above which a direction is in use


def embed(fitted: Fitted, x: Data) -> Embedding:
    """Where a trained model places rows: centre and standard deviation of each row's posterior, computed in float64.

    Arguments:
        fitted: a result of `curvae.training.fit` or `fit_many`; those of a graph go to `embed_graph`.
        x: rows in original units, as of `fit`; new ones or those it was trained on.
    """
    fitted = fitted.double()
    rows, model = fitted.rows(x), fitted.model
    with torch.no_grad():
        parts = torch.arange(len(rows)).split(_ROWS)
        return placed(model.space, [model.encode(rows.batch(index)) for index in parts])


@dataclass(frozen=True)
class Likelihoods:
    """Estimates of log p(x), one a row, in the units the model sees; `log_jacobian` leads to original units.

    Where values are missing, they are those of the values that are there, and `log_jacobian` is one a row.
    """

    log_prob: Array
    ess: Array
    error: Array
    samples: int
    log_jacobian: float | Array

    def require_finite(self, names: Any = None) -> Likelihoods:
        """Return the estimates; raise if one is not finite."""
        require_finite("likelihood", [self.log_prob], names)
        return self

    def take(self, index: Any) -> Likelihoods:
        """Those of the rows given by an index or a mask."""
        jacobian = self.log_jacobian
        return Likelihoods(
            self.log_prob[index],
            self.ess[index],
            self.error[index],
            self.samples,
            jacobian if isinstance(jacobian, float) else jacobian[index],
        )

    @property
    def mean(self) -> float:
        return float(self.log_prob.mean())

    @property
    def original(self) -> Likelihoods:
        """The same in original units."""
        return replace(self, log_prob=self.log_prob + self.log_jacobian, log_jacobian=0.0)

    @property
    def interval(self) -> float:
        """Half-width of the 95 % interval of the mean over rows; NaN for a single row."""
        if len(self.log_prob) < 2:
            return float("nan")
        return float(1.96 * self.log_prob.std(ddof=1) / np.sqrt(len(self.log_prob)))

    @property
    def text(self) -> str:
        """ "−12.34 ± 0.56"."""
        return decimal(self.mean) + ("" if np.isnan(self.interval) else f" ± {self.interval:.2f}")


def likelihoods(
    fitted: Fitted,
    x: Data,
    samples: int = 5000,
    seed: int = 0,
    shared: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
) -> Likelihoods:
    """log p(x) of rows by importance sampling (`curvae.models.marginal_likelihood`)."""
    return likelihoods_many([fitted], [x], samples, seed, shared, advance)[0]


def likelihoods_many(
    fitted: Sequence[Fitted],
    x: Sequence[Data],
    samples: int = 5000,
    seed: int = 0,
    shared: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
    tf32: bool = False,
) -> list[Likelihoods]:
    """`likelihoods` of many models, each on its own rows; on CUDA those of one architecture at once.

    Arguments:
        fitted: the models.
        x: rows for each of them.
        samples, seed, shared: as of `likelihoods`; the noise is the same for all models.
        advance: called with how many more rows of a model are finished.
        tf32: on CUDA, matrix products with TF32 inputs.
    """
    found: dict[int, Likelihoods] = {}
    data = [one.arrays(rows) for one, rows in zip(fitted, x, strict=True)]
    # On a CPU, whose caches are small, each alone.
    cpu = all(one.model.device.type == "cpu" for one in fitted)
    for group in [[i] for i in range(len(fitted))] if cpu else _alike(fitted, data):

        def advanced(rows: int, models: int = len(group)) -> None:
            advance(rows * models)

        models = [fitted[i].model for i in group]
        # Copies one by one, for a model may be in the list twice, or share its curvature with others.
        model = models[0] if len(group) == 1 else Stack([deepcopy(one) for one in models])
        rows = RowPool.of([(data[i], fitted[i].scaling) for i in group], models[0].device, models[0].dtype)
        generator = torch.Generator(models[0].device).manual_seed(seed)
        state = generator.get_state()
        parts = []
        at_once = _ROWS if rows.device.type == "cpu" else max(_ROWS, _NUMBERS // data[group[0]].features)
        for batch in rows.part().batches(None, at_once):
            if shared:
                generator.set_state(state)
            batch = batch.map(lambda part: part[0]) if len(group) == 1 else batch
            parts.append(marginal_likelihood(model, batch, samples, generator, shared, advanced, tf32))
        figures = [
            torch.cat([getattr(part, name).view(len(group), -1) for part in parts], 1).cpu().numpy()
            for name in ("log_prob", "ess", "error")
        ]
        for i, log_prob, ess, error in zip(group, *figures, strict=True):
            scaling, rows_of = fitted[i].scaling, data[i]
            jacobian = scaling.log_jacobians(rows_of.x) if rows_of.missing else scaling.log_jacobian
            found[i] = Likelihoods(log_prob, ess, error, samples, jacobian)
    return [found[i] for i in range(len(fitted))]


def _alike(fitted: Sequence[Fitted], x: Sequence[Arrays]) -> list[list[int]]:
    """Places of the models that can be evaluated together: of one architecture, on equally many rows."""
    groups: list[tuple[Any, list[int]]] = []
    for i, (one, rows) in enumerate(zip(fitted, x, strict=True)):
        kind = architecture(one.model), rows.x.shape, rows.missing
        places = next((places for other, places in groups if other == kind), None)
        if places is None:
            groups.append((kind, [i]))
        else:
            places.append(i)
    return [places for _, places in groups]


def active_dimensions(embedding: Embedding, prior_scale: ArrayLike) -> int:
    """Directions of the tangent space in which the posterior centres vary, given the prior scale of every factor."""
    scales = np.atleast_1d(prior_scale)
    v = np.concatenate([part.tangent / scale for part, scale in zip(embedding.parts, scales, strict=True)], 1)
    return int((np.linalg.eigvalsh(np.atleast_2d(np.cov(v.T))) > _ACTIVE).sum())


def health(fitted: FittedModel, embedding: Embedding) -> list[str]:
    """Warnings about the map, each with its remedy; none when all is well."""
    config, last = fitted.config, fitted.last
    held = "validation_kl" in last
    kl: float = last["validation_kl" if held else "kl"]
    warnings = []
    watched = [record["validation_elbo"] for record in fitted.history if "validation_elbo" in record]
    if kl >= _EMPTY and config.patience is None and watched and max(watched) - watched[-1] > _OVERFIT:
        warnings.append(
            f"the model has overfitted: since epoch {int(np.argmax(watched)) + 1} the ELBO of validation rows has "
            f'fallen by {max(watched) - watched[-1]:.1f} nats; use patience="auto", which keeps the best weights'
        )
    scales = [one.prior_scale for one in fitted.figures]
    return warnings + map_health(embedding, kl, scales, " of validation rows" if held else "")


def map_health(embedding: Embedding, kl: float, prior_scale: ArrayLike, of: str = "") -> list[str]:
    """Warnings about a map of any kind, each with its remedy; about every factor of a product.

    Arguments:
        embedding: the map.
        kl: divergence from the prior, in nats.
        prior_scale: of every factor.
        of: which data the divergence is of, in words.
    """
    if kl < _EMPTY:
        return [
            f"the map is empty: the divergence{of} from the prior is {max(kl, 0.0):.2g} nat, so the latent space is "
            "not used; the data may have no structure, else train longer, lower beta or widen hidden"
        ]
    parts = zip(embedding.parts, np.atleast_1d(prior_scale), strict=True)
    return [warning for part, scale in parts for warning in _factor_health(part, scale, len(embedding.placed) > 1)]


def _factor_health(part: Embedding, prior_scale: float, named: bool) -> list[str]:
    """Warnings about the map of one factor, which are about its name if it is `named`."""
    name = part.placed[0].name
    warnings = []
    active = active_dimensions(part, prior_scale)
    if active == 0:
        where = f"in the factor {name} " if named else ""
        warnings.append(
            f"all points lie together {where}beside the scale of the prior, so the map shows little; "
            f"train longer{', leave the factor out' if named else ''} or lower beta"
        )
    elif active < part.dim:
        warnings.append(
            f"only {active} of {part.dim} {f'dimensions of the factor {name}' if named else 'latent dimensions'} are "
            f"in use; dimension {active} is enough, or lower beta"
        )
    rim = float((np.linalg.norm(part.ball, axis=1) / part.chart.rim > _RIM).mean())
    if rim > 0.5:
        warnings.append(
            f"{rim:.0%} of the points sit at the rim of the disc{f' of the factor {name}' if named else ''} "
            f"(√c·|z| > {_RIM}), where a picture shows no differences; lower the prior's scale or the curvature"
        )
    return warnings


@dataclass(frozen=True)
class Stability:
    """How alike the maps of several trainings are, averaged over pairs of them.

    Arguments:
        correlation: Spearman's rank correlation of latent distances.
        overlap: share of the nearest neighbours in common.
        neighbours: how many of these.
        pairs: of maps.
    """

    correlation: float
    overlap: float
    neighbours: int
    pairs: int


def stability(embeddings: Sequence[Embedding], neighbours: int = 10, rows: int = 500) -> Stability | None:
    """Compare maps of the same rows made with different seeds; None for a single one.

    At most `rows` rows, chosen at random with a fixed seed, take part.
    """
    if len(embeddings) < 2:
        return None
    from scipy.stats import spearmanr  # takes long to import

    chosen = np.random.default_rng(0).permutation(len(embeddings[0].space))[:rows]
    k = min(neighbours, len(chosen) - 1)
    tables = [embedding.take(chosen).distances() for embedding in embeddings]
    upper = np.triu_indices(len(chosen), 1)
    nearest = [np.argsort(t + np.diag(np.full(len(t), np.inf)), axis=1)[:, :k] for t in tables]
    correlations, overlaps = [], []
    for i, j in combinations(range(len(tables)), 2):
        a, b = tables[i][upper], tables[j][upper]
        varies = a.std() > 0 and b.std() > 0
        correlations.append(float(spearmanr(a, b).statistic) if varies else 0.0)
        shared: list[Any] = [len(np.intersect1d(p, q)) / k for p, q in zip(nearest[i], nearest[j], strict=True)]
        overlaps.append(float(np.mean(shared)))
    return Stability(float(np.mean(correlations)), float(np.mean(overlaps)), k, len(correlations))


# Expected values of missing entries.

_IMPUTED_ROWS = 256  # at once
_OUTPUTS = 1 << 22  # decoder outputs at once


def impute(
    fitted: Fitted,
    x: Data,
    samples: int = 1000,
    seed: int = 0,
    advance: Callable[[int], None] = lambda rows: None,
) -> Any:
    """Return the matrix with the expected value of every missing entry, given the entries of its row that are there.

    E[missing | observed] = Σ_k w_k E[x | z_k] / Σ_k w_k over draws z_k from the posterior of the row, with importance
    weights w = p(observed | z)·p(z)/q(z | observed): it tends to the exact expectation under the model as the samples
    grow, however rough the encoder is. One-hot columns get probabilities. All is computed in float64, from one set of
    draws for all rows, so that the figures of a row depend on nothing but the row.

    Arguments:
        fitted: a result of `fit`, best of data with `missing=True`: the encoder of another sees 0, in the units of the
            model, in place of what is missing.
        x: rows in original units, as of `fit`, in which NaN is missing.
        samples: draws a row.
        seed: of the draws.
        advance: called with how many more rows are finished.

    Returns:
        A matrix like that of x; entries that were there are unchanged.

    Example:
        >>> from curvae.training import Config, fit
        >>> x = np.random.default_rng(0).normal(size=(40, 1)) * [1.0, 2.0, -1.0]
        >>> x[0, 1] = np.nan
        >>> fitted = fit(Config(epochs=2, hidden=(8,)), Arrays(x, missing=True))
        >>> filled = impute(fitted, x)
        >>> bool(np.isfinite(filled).all()), bool((filled[1:] == x[1:]).all())
        (True, True)
    """
    require_count("samples", samples, "importance_samples")
    arrays, fitted = replace(Arrays.of(x), missing=True), fitted.double()
    arrays = arrays.load()
    rows, columns = missing_entries(arrays.x)
    lacking = np.unique(rows)
    values = np.empty(len(rows))
    for start in range(0, len(lacking), _IMPUTED_ROWS):
        some = lacking[start : start + _IMPUTED_ROWS]
        own = slice(*np.searchsorted(rows, (some[0], some[-1] + 1)))
        expected = _expected(fitted, arrays.take(some), samples, seed)
        values[own] = expected[np.searchsorted(some, rows[own]), columns[own]]
        advance(len(some))
    if not np.isfinite(values).all():
        finite = np.ones(len(arrays))
        finite[rows[~np.isfinite(values)]] = np.nan
        require_finite("expected value", [finite], getattr(x, "ids", None))
    filled = arrays.x.copy()
    entries = filled.data if issparse(filled) else filled
    entries[~np.isfinite(entries)] = values  # row by row, as they were found
    return filled


def _expected(fitted: Fitted, arrays: Arrays, samples: int, seed: int) -> NDArray[np.float64]:
    """Compute the expected values of all entries of some rows, in original units."""
    model = fitted.model
    batch = fitted.rows(arrays).batch(torch.arange(len(arrays), device=model.device))
    noise = model.noise(1, samples, torch.Generator(model.device).manual_seed(seed))
    total: Any = 0.0
    top = torch.full((len(batch),), -torch.inf, dtype=torch.float64, device=batch.device)
    weight = torch.zeros_like(top)
    with torch.no_grad():
        # Means of E[x | z] by the weights of the draws, some draws at a time.
        for part in noise.split(max(1, _OUTPUTS // (len(batch) * model.likelihood.outputs))):
            expected, logs = model.expected(batch, part)
            higher = torch.maximum(top, logs.amax(0))
            before, now = (top - higher).exp(), (logs - higher).exp()
            total = total * before.unsqueeze(-1) + (now.unsqueeze(-1) * expected).sum(0)
            weight, top = weight * before + now.sum(0), higher
        means = total / weight.unsqueeze(-1)
    return fitted.scaling.invert(means.cpu().numpy())
