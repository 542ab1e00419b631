"""The variational auto-encoder, its posterior and its prior; and how well its map keeps the neighbourhoods of the data:
what is added to its loss, row by row.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..distributions import HyperbolicNormal, ProductNormal
from ..geometry import checks
from ..geometry.functions import Primitive
from ..nn import Conditioned, Curvature, Layers, Space
from ..nn.layers import FactorSum
from ..nn.networks import name_once
from .batch import Batch
from .likelihoods import Likelihood
from .likelihoods.counts import Counts

__all__ = [
    "VAE",
    "Latent",
    "MapTerms",
    "Posterior",
    "Terms",
    "check_noise",
    "far_stress",
    "jittered",
    "near_divergence",
]

# Turns of the search for the best sharpness, and where it starts, in units of one over the mean square of the distances
# of neighbours: in maps that are being trained most of these are far smaller than the mean.
_TURNS, _START = 3, 30.0
_LEAST = 1e-30  # stands for 0 in quotients and logarithms
_CLOSEST = 0.02  # distance in the data, in units of the mean, below which pairs count no more
_PLACES = 512  # in a batch, of which rows are moved


def _total(matrix: Tensor) -> Tensor:
    """Return sums of matrices, (…, 1, 1)."""
    return matrix.sum((-2, -1), keepdim=True)


def _parts(distances: Tensor, near: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """P; the squares of the distances, infinite for pairs that do not count; and β where the search for it starts."""
    p, squares = near.clamp(min=0.0).to(distances.dtype), distances * distances
    start = (_START * _total(p) / _total(p * squares).clamp(min=_LEAST)).clamp(min=_LEAST)
    return p, torch.where(near < 0, torch.inf, squares), start


def _sharpness(squares: Tensor, p: Tensor, beta: Tensor) -> Tensor:
    """β with which Σ_i KL(P_i ‖ Q_i) is least, or nearly so, (…, 1, 1).

    By scoring steps for log β, of at most 2. There is no gradient: at the best β the divergence does not depend on it.
    """
    rows = p.sum(-1, keepdim=True)
    for _ in range(_TURNS):
        fall = torch.mul(squares, beta).add_(1.0).reciprocal_()  # 1/(1 + β·d²), to which Q_ij is proportional
        part = fall * fall
        # Q-means of 1/(1 + β·d²) and of its square
        size = fall.sum(-1, keepdim=True).clamp_(min=_LEAST)
        mean, square = part.sum(-1, keepdim=True).div_(size), part.mul_(fall).sum(-1, keepdim=True).div_(size)
        variance = _total(square.addcmul_(mean, mean, value=-1.0).mul_(rows))
        slope = _total(fall.mul_(p)) - _total(mean.mul_(rows))
        beta = beta * (slope / variance.clamp(min=_LEAST)).clamp_(-2.0, 2.0).exp_()
    return beta


class _NearDivergence(Primitive):
    """`near_divergence`, with its derivative ∂KL_i/∂d_ij = (P_ij − Q_ij·Σ_k P_ik)·2β·d_ij/(1 + β·d_ij²)."""

    events = (2, 2)
    results = 1

    @classmethod
    def traced(cls, distances: Tensor, near: Tensor) -> tuple[Tensor]:
        p, squares, start = _parts(distances.detach(), near)
        beta = _sharpness(squares, p, start)
        counts = near >= 0
        fall = counts / (1.0 + beta * torch.where(counts, distances, 0.0) ** 2)
        return (_divergence(p, fall, fall.sum(-1, keepdim=True).clamp(min=_LEAST)),)

    @staticmethod
    def forward(distances: Tensor, near: Tensor) -> tuple[Tensor, ...]:
        p, squares, start = _parts(distances, near)
        beta = _sharpness(squares, p, start)
        fall = torch.mul(squares, beta).add_(1.0).reciprocal_()
        size = fall.sum(-1, keepdim=True).clamp_(min=_LEAST)
        return _divergence(p, fall, size), p, fall, size, beta

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Tensor]:  # type: ignore[override]
        (distances, _), (_, p, fall, size, beta) = inputs, kept
        slope = torch.addcmul(p, fall, p.sum(-1, keepdim=True) / size, value=-1.0).mul_(fall).mul_(distances)
        return (slope.mul_(grad.unsqueeze(-1) * (2.0 * beta)),)


def _divergence(p: Tensor, fall: Tensor, size: Tensor) -> Tensor:
    """KL(P_i ‖ Q_i) of every row, given 1/(1 + β·d²) and its sums."""
    return (p * (p.clamp(min=_LEAST) / (fall / size).clamp(min=_LEAST)).log()).sum(-1)


def near_divergence(distances: Tensor, near: Tensor) -> Tensor:
    """Compute KL(P_i ‖ Q_i) of every row, with Q_ij ∝ 1/(1 + β·d_ij²) over the pairs that count and the best β for all
    rows.

    Arguments:
        distances: in the latent space, (rows, others).
        near: P, which sums up to 1 over a row, or to 0 if none of its neighbours are there; −1 for pairs that do not
            count.

    Example:
        >>> near = torch.tensor([[-1.0, 0.5, 0.5], [1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
        >>> near_divergence(1e3 * (near < 0.1), near).round(decimals=3)
        tensor([0., 0., 0.])
    """
    return _NearDivergence.call(distances, near)[0]


class _FarStress(Primitive):
    """`far_stress`, with its derivative in closed form: with r = d − α·T, w = 1/T, N rows, S = Σw·d² and gradients g_i
    of what rows add,

    (2N/S)·(g_i·w_ij·r_ij − Σ_kl g_k·r_kl/ΣT − w_ij·d_ij·Σ_kl g_k·w_kl·r_kl²/S).
    """

    events = (2, 2)
    results = 1

    @staticmethod
    def forward(distances: Tensor, far: Tensor) -> tuple[Tensor, ...]:
        counts = far >= 0
        t = far.clamp(min=_CLOSEST).to(distances.dtype)
        d, weight, t = (torch.where(counts, matrix, 0.0) for matrix in (distances, 1.0 / t, t))
        wd, size = weight * d, _total(t).clamp(min=_LEAST)
        square = _total(wd * d).clamp(min=_LEAST)
        r = torch.addcmul(d, _total(d) / size, t, value=-1.0)
        wr, scale = weight * r, _total(counts.any(-1, keepdim=True)) / square
        return (scale * wr * r).sum(-1), counts, wd, r, wr, square, size, scale

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Tensor]:  # type: ignore[override]
        _, counts, wd, r, wr, square, size, scale = kept
        rows = grad.unsqueeze(-1)
        push = rows * wr
        slope = torch.addcmul(push, wd, _total(push * r) / square, value=-1.0) - counts * (_total(rows * r) / size)
        return (slope * (2.0 * scale),)


def far_stress(distances: Tensor, far: Tensor) -> Tensor:
    """Return what every row adds to the stress Σ(d − α·T)²/T / Σd²/T with the best α, in which pairs count the more the
    closer they are (Sammon, 1969); the mean over the rows that have a pair that counts is the stress, from 0 to 1.

    Arguments:
        distances: d, in the latent space, (rows, others).
        far: T, the distances in the data, or −1 for pairs that do not count.

    Example:
        >>> far = torch.tensor([[-1.0, 3.0], [3.0, -1.0]])
        >>> far_stress(2 * far, far)
        tensor([0., 0.])
    """
    return _FarStress.call(distances, far)[0]


@lru_cache(maxsize=8)
def _shares(dtype: torch.dtype, device: torch.device) -> Tensor:
    """For places in a batch, shares of the way from −1 to 1 that a row goes, and its companion, (2, places)."""
    with torch.inference_mode(False):
        return torch.from_numpy(np.random.default_rng(0).uniform(-1.0, 1.0, (2, _PLACES))).to(device, dtype)


def jittered(rows: Tensor, companions: Tensor, near: Tensor, most: float) -> tuple[Tensor, Tensor]:
    """Return rows of a batch and its companions, moved along the differences of neighbours.

    Row i and companion i, where these are neighbours, move towards each other or away, each by a share of up to `most`
    of the way between them. As with the masks of dropout the share is decided by the place i alone.

    Arguments:
        rows, companions: what the encoder reads, (n, …) and (m, …).
        near: as of `near_divergence`, (n, n + m).
        most: at least 0.

    Example:
        >>> near = torch.tensor([[-1.0, 0.0, 1.0, 0.0], [0.0, -1.0, 1.0, 0.0]])
        >>> x, y = jittered(torch.zeros(2, 1), torch.ones(2, 1), near, 0.5)
        >>> x.round(decimals=2).T, y.round(decimals=2).T  # the second companion is no neighbour of the second row
        (tensor([[0.1400, 0.0000]]), tensor([[0.6700, 1.0000]]))
    """
    n, m = len(rows), len(companions)
    count = min(n, m, _PLACES)
    shares = (most * _shares(rows.dtype, rows.device)[:, :count]) * (near.diagonal(n)[:count] > 0)
    forth, back = shares.view(2, count, *[1] * (rows.dim() - 1))
    way = companions[:count] - rows[:count]
    return (
        torch.cat([rows[:count] + forth * way, rows[count:]]),
        torch.cat([companions[:count] - back * way, companions[count:]]),
    )


# The posterior of a model as a module, from features to a distribution on the latent space.


def check_noise(noise: Tensor, rows: int, dim: int, shared: bool = False) -> Tensor:
    """Refuse noise that is not of shape (k, rows, d) or, if it may be `shared` by the rows, (k, 1, d)."""
    noise = checks.real("noise", noise)
    if noise.dim() != 3 or noise.shape[-1] != dim or not (noise.shape[1] == rows or (shared and noise.shape[1] == 1)):
        raise ValueError(f"noise must have shape (k, {rows}, {dim}) for k draws, got {tuple(noise.shape)}")
    return noise


class Posterior(nn.Module):
    """The encoder's last layer: features h to a normal around μ = exp_0(h_μ) with standard deviation σ = softplus(h_σ).

    As in the paper (section 3.2) h_μ is a vector in ball coordinates, so μ lies at the distance 2|h_μ| from the origin.
    In a product every factor has its own.

    Arguments:
        in_features: width of the features.
        space: the latent space.

    Example:
        >>> from curvae.nn import Space
        >>> Posterior(64, Space("h2"))(torch.zeros(8, 64)).batch_shape
        torch.Size([8])
    """

    def __init__(self, in_features: int, space: Space) -> None:
        super().__init__()
        self.space = space
        self.head = nn.Linear(in_features, space.outputs)

    def start(self, scale: float) -> Posterior:
        """Begin as the last convolution of a graph does, with Glorot weights, and with σ near `scale`."""
        nn.init.xavier_uniform_(self.head.weight)
        with torch.no_grad():
            self.head.bias.zero_()
            for factor, bias in zip(self.space, self.space.split_outputs(self.head.bias), strict=True):
                bias[factor.located :] = math.log(math.expm1(scale))
        return self

    def forward(self, features: Tensor) -> HyperbolicNormal | ProductNormal:
        """Return the posterior of every row, on `Lorentz`, in float64."""
        return self.space.posterior(self.head(features))

    def draw(self, features: Tensor, noise: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """Return a draw z made from `noise` of shape (k, rows, d), in `dtype` or else the parameters', and
        log q(z | x) − log p(z)."""
        return self.space.draw(self.head(features), noise, dtype or self.head.weight.dtype)


class Latent(nn.Module):
    """What models of rows and of graphs have in common: a posterior on a latent space."""

    posterior: Posterior

    def _set_posterior(self, posterior: Posterior) -> None:
        """Take the posterior; raise if a layer has another curvature than the space, or was made for another space."""
        self.posterior = posterior
        name_once(self)
        own = {id(factor.curvature) for factor in self.space}
        if any(id(part) not in own for part in self.modules() if isinstance(part, Curvature)):
            raise ValueError(
                "layers that own a Curvature must share that of the latent space: make it once, pass it on"
            )
        factors = [factor.width for factor in self.space], self.space.flat
        if any((part.widths, part.flat) != factors for part in self.modules() if isinstance(part, FactorSum)):
            raise ValueError("decoder and posterior must be made with the same space")

    @property
    def space(self) -> Space:
        """The latent space, with its curvatures and prior."""
        return self.posterior.space

    @property
    def dim(self) -> int:
        """Dimension of the latent space."""
        return self.space.dim

    @property
    def noise_dim(self) -> int:
        """How many standard normal numbers make a draw."""
        return self.space.noise_dim

    @property
    def dtype(self) -> torch.dtype:
        """Of the networks; the latent space is always float64."""
        return self.posterior.head.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.posterior.head.weight.device

    def prior(self) -> HyperbolicNormal | ProductNormal:
        """Compute p(z), on `Lorentz`."""
        return self.space.prior()

    def noise(self, rows: int, k: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """Return standard normal noise for k draws of each row, or node: shape (k, rows, d)."""
        if k < 1:
            raise ValueError(f"k, the number of draws, must be at least 1, got {k}")
        device = self.device if generator is None else generator.device
        return torch.randn(k, rows, self.noise_dim, generator=generator, device=device, dtype=torch.float32)


# How far below the largest float32 points are kept, so that the products in a decoder's first layer do not overflow.
_ROOM = 2.0**12
_TRANSLATED = 4.0  # logarithm of the factor by which the expected counts of two batches may differ, at most


class Terms(NamedTuple):
    """What the objectives are made of, each of shape (k, rows).

    Attributes:
        reconstruction: log p(x | z).
        kl: log q(z | x) − log p(z): an unbiased estimate of the divergence of posterior from prior.
    """

    reconstruction: Tensor
    kl: Tensor


class MapTerms(NamedTuple):
    """Terms of a batch that says which rows are near each other, or how far apart.

    Attributes:
        reconstruction, kl: as of `Terms`.
        neighbours: by how much every row misses its neighbours and its distances, of those that the batch has, of shape
            (1 or 2, rows).
    """

    reconstruction: Tensor
    kl: Tensor
    neighbours: Tensor


class VAE(Latent):
    r"""A variational auto-encoder in a curved space: x → encoder → posterior → z → decoder → likelihood of x.

    Inside, points are space parts S of `curvae.Lorentz`; log q(z | x) comes from the draw itself.

    Arguments:
        encoder: any network from what the likelihood shows of rows x, by default x, to features. If it is
            `curvae.nn.Conditioned`, it is given the context of the rows too.
        decoder: any network from points S, shape (n, d), to the outputs that the likelihood takes; what it returns is
            flattened to one row a point. It is given the context if it is `Conditioned`, and the curvatures if it is
            `curvae.nn.Layers`.
        posterior: from features to a distribution on the latent space, which holds the prior.
        likelihood: from outputs to p(x | z).
        masked: whether entries may be missing. The encoder then reads twice as many numbers: the values of a row, 0
            where they are missing, and after them 1 for those that are there and 0 for the others.
        jitter: in training, batches with `near` and `companions` are shown to the encoder with rows moved towards a
            neighbour or away from it, by up to this share of the way.
        queried: where the context tells batches of queries: the first column of batches, and the numbers of known and
            of new ones. The encoder is shown counts of new batches as they would be in the known ones.

    Example:
        >>> from curvae.models import Bernoulli
        >>> from curvae.nn import Space, decoder, mlp
        >>> space = Space("h2")
        >>> networks = mlp(20, 64), decoder("gyroplane", space, (64,), 20)
        >>> model = VAE(*networks, Posterior(64, space), Bernoulli(20))
        >>> x = torch.rand(8, 20)
        >>> loss = -model.elbo(x, k=1).mean()
        >>> loss.backward()
        >>> model.iwae(x, k=100).shape
        torch.Size([8])
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        posterior: Posterior,
        likelihood: Likelihood,
        masked: bool = False,
        jitter: float = 0.0,
        queried: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder, self.likelihood, self.masked = encoder, decoder, likelihood, masked
        self.jitter, self.queried = jitter, queried
        self._set_posterior(posterior)
        if any(factor.scale.learnable and factor.curvature.learnable for factor in self.space):
            raise ValueError(
                "learn either the curvature or the prior's scale, not both: only c·σ0² is identifiable "
                "(stretching the latent space by k with c → c/k², σ → kσ changes nothing)"
            )

    def _features(self, batch: Batch) -> Tensor:
        features = self._encoded(self._read(self.likelihood.inputs(batch), batch), batch.context)
        if self.queried is None or batch.context is None:
            return features
        batch = self._translate(batch, features)
        return self._encoded(self._read(self.likelihood.inputs(batch), batch), batch.context)

    def _translate(self, batch: Batch, features: Tensor) -> Batch:
        """Return the rows as they would be in the known batches, as the decoder tells at their places.

        Rows of known batches stay as they are.
        """
        assert isinstance(self.likelihood, Counts) and self.queried is not None and batch.context is not None
        first, known, new = self.queried
        before, told, queried, after = batch.context.tensor_split([first, first + known, first + known + new], -1)
        told = told + queried.sum(-1, keepdim=True) / known
        context = torch.cat([before, told, torch.zeros_like(queried), after], -1)
        points = self.space.centres(self.posterior.head(features))
        own, other = (self.likelihood.log_rate(self.decode(points, given), batch) for given in (batch.context, context))
        counts = batch.x * (other - own).clamp(-_TRANSLATED, _TRANSLATED).exp()
        return batch.joined(x=counts, context=context)

    def _outputs_with(self, batch: Batch, others: Batch) -> Tensor:
        """Return outputs of the posterior's head for the rows, and after them for others, from one call of the encoder.

        The encoder sees the others first: so no place in it depends on the number of rows. Where batches of queries are
        translated, rows and others are, each by themselves.
        """
        if self.queried is not None:
            return torch.cat([self.head_outputs(batch), self.head_outputs(others)])
        rows, companions = self.likelihood.inputs(batch), self.likelihood.inputs(others)
        if self.jitter and self.training and batch.near is not None:
            rows, companions = jittered(rows, companions, batch.near, self.jitter)
        inputs, context = torch.cat([self._read(companions, others), self._read(rows, batch)]), batch.context
        if context is not None and others.context is not None:
            context = torch.cat([others.context, context])
        first, last = self.posterior.head(self._encoded(inputs, context)).split([len(others), len(batch)])
        return torch.cat([last, first])

    def _encoded(self, inputs: Tensor, context: Tensor | None) -> Tensor:
        return self._call(self.encoder, inputs, context, self.space.curvatures())

    def _call(self, network: nn.Module, x: Tensor, context: Tensor | None, c: tuple[Tensor, ...]) -> Tensor:
        """Return what a network gives for x, and for context and curvatures if it takes them."""
        if isinstance(network, Conditioned):
            return network(x, context, c)
        return network(x, c) if isinstance(network, Layers) else network(x)

    def _read(self, inputs: Tensor, batch: Batch) -> Tensor:
        """Return what the encoder reads of what the likelihood shows."""
        if not self.masked:
            return inputs
        inputs, observed = inputs.flatten(1), batch.observed
        if observed is None:
            return torch.cat([inputs, torch.ones_like(inputs)], -1)
        return torch.cat([inputs * observed, observed], -1)

    def encode(self, x: Tensor | Batch) -> HyperbolicNormal | ProductNormal:
        """Compute q(z | x), on `Lorentz`."""
        return self.posterior(self._features(Batch.of(x)))

    def decode(self, S: Tensor, context: Tensor | None = None) -> Tensor:
        """Return outputs for the likelihood, shape (…, outputs), at points S of shape (…, d).

        A decoder with a context needs it: (rows, covariates) for points (…, rows, d), or one row for all.
        """
        S = checks.points("S", S, self.space.width, "this model")
        return self._decode(self.space.saturate(S, self.dtype, _ROOM), context)

    def _decode(self, S: Tensor, context: Tensor | None = None) -> Tensor:
        # Under autocast networks end in half precision, which leaves three digits of a sum of log-likelihoods.
        points, c = self.space.in_units(S.reshape(-1, S.shape[-1]))
        outputs = self._call(self.decoder, points, context, c).to(self.dtype)
        return outputs.reshape(*S.shape[:-1], self.likelihood.outputs)

    def terms(
        self, x: Tensor | Batch, noise: Tensor, entropy: bool = False, head: Tensor | None = None
    ) -> Terms | MapTerms:
        """Reconstruction and divergence for draws made from `noise` of shape (k, rows, d): a pure function.

        Here and below, x is a `Batch`, or a tensor of rows that encoder and likelihood both see. With `entropy`,
        E[log q] is taken in closed form instead of from the draw. Of a batch with `near` or `far`, `MapTerms`. The
        posteriors are those of `head`, see `head_outputs`, by default the encoder's.
        """
        batch = Batch.of(x)
        if batch.near is not None or batch.far is not None or batch.start is not None:
            return self._map_terms(batch, noise)
        if entropy:
            q = self.encode(batch)
            z = q.transform(check_noise(noise, len(batch), self.noise_dim, shared=True))
            return Terms(
                self.likelihood.log_prob(self.decode(z, batch.context), batch), -q.entropy() - self.prior().log_prob(z)
            )
        z, kl = self.draw(batch, noise, head)
        return Terms(self.reconstruction(z, batch), kl)

    def _map_terms(self, batch: Batch, noise: Tensor) -> MapTerms:
        rows, others = len(batch), batch.companions
        noise = check_noise(noise, rows, self.noise_dim, shared=True)
        outputs = self.head_outputs(batch) if others is None else self._outputs_with(batch, others)
        z, kl = self.space.draw(outputs[:rows], noise, self.dtype, _ROOM)
        found, related = [], batch.near is not None or batch.far is not None
        distances = self.space.distances(outputs, rows, self.dtype) if related else outputs
        if batch.near is not None:
            found.append(near_divergence(distances, batch.near))
        if batch.far is not None:
            found.append(far_stress(distances, batch.far))
        if batch.start is not None:
            found.append(self.space.from_start(outputs[:rows], batch.start).to(self.dtype))
        return MapTerms(self.reconstruction(z, batch), kl, torch.stack(found))

    def forward(self, x: Tensor | Batch, noise: Tensor) -> Terms | MapTerms:
        return self.terms(x, noise)

    def head_outputs(self, x: Tensor | Batch) -> Tensor:
        """Return the numbers that say what q(z | x) is, (rows, outputs), of which `Space.posterior` makes it."""
        return self.posterior.head(self._features(Batch.of(x)))

    def draw(self, x: Tensor | Batch, noise: Tensor, head: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return points z of q(z | x), shape (k, rows, d), as the decoder takes them, and log q(z | x) − log p(z).

        `head` is as of `terms`.
        """
        batch = Batch.of(x)
        noise = check_noise(noise, len(batch), self.noise_dim, shared=True)
        return self.space.draw(self.head_outputs(batch) if head is None else head, noise, self.dtype, _ROOM)

    def reconstruction(self, z: Tensor, x: Tensor | Batch) -> Tensor:
        """Compute log p(target | z) at points that `draw` made."""
        batch = Batch.of(x)
        return self.likelihood.log_prob(self._decode(z, batch.context), batch)

    def expected(self, x: Tensor | Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Compute E[target | z] at draws from q(z | x), shape (k, rows, features), and the logarithms of their
        importance weights p(target, z)/q(z | x), shape (k, rows).
        """
        batch = Batch.of(x)
        z, kl = self.draw(batch, noise)
        outputs = self._decode(z, batch.context)
        return self.likelihood.mean(outputs, batch), self.likelihood.log_prob(outputs, batch) - kl

    def elbo(self, x: Tensor | Batch, k: int = 1, beta: float = 1.0, noise: Tensor | None = None) -> Tensor:
        """Compute E[log p(x|z)] − β·KL estimated from k draws, for each row."""
        reconstruction, kl, *_ = self.terms(x, self.noise(len(x), k) if noise is None else noise)
        return torch.sub(reconstruction, kl, alpha=beta).mean(0)

    def iwae(self, x: Tensor | Batch, k: int = 1, noise: Tensor | None = None) -> Tensor:
        """Return the importance-weighted bound log 1/k Σ p(x, z)/q(z|x) with k draws, for each row."""
        reconstruction, kl, *_ = self.terms(x, self.noise(len(x), k) if noise is None else noise)
        weights = reconstruction - kl
        return torch.logsumexp(weights, 0) - math.log(len(weights))

    def sample(
        self, n: int, generator: torch.Generator | None = None, mean: bool = False, context: Tensor | None = None
    ) -> Tensor:
        """Draw n new rows from the model, or their means given z; `context` as of `decode`."""
        with torch.no_grad():
            outputs = self.decode(self.prior().transform(self.noise(1, n, generator)[:, 0]), context)
            batch = None if context is None else Batch(outputs, context=context)
            return self.likelihood.mean(outputs, batch) if mean else self.likelihood.sample(outputs, batch, generator)
