"""A training step of the hyperbolic VAE over that of the ordinary one: same network, same run; likewise of counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from curvae.models import Batch, Layout
from curvae.training import Config, build

from .peers import pythae_vae
from .timing import Row, compare

__all__ = ["LAWS", "OrdinaryVAE", "counts", "steps", "tasks"]

# rows, columns, hidden units, likelihood, bounds for the wrapped and the Riemannian normal
SHAPES = {
    "synthetic": (64, 50, 200, "unit_gaussian", 2.5, 3.5),
    "MNIST": (128, 784, 600, "bernoulli", 1.25, 1.5),
}
LAWS: dict[str, dict[str, Any]] = {
    "curvature 0": {"curvature": 0.0, "posterior": "wrapped", "decoder": "log_mlp"},
    "wrapped": {"curvature": 1.0, "posterior": "wrapped"},
    "riemannian": {"curvature": 1.0, "posterior": "riemannian"},
}
# A step on a sphere over that on the hyperbolic space of the same dimension, with Riemannian normals on both.
SPHERE = 1.2


class OrdinaryVAE(nn.Module):
    """The Euclidean VAE in bare torch, with its divergence in closed form."""

    def __init__(self, columns: int, hidden: int, dim: int, likelihood: str) -> None:
        super().__init__()
        self.dim, self.likelihood = dim, likelihood
        self.encoder, self.head = nn.Linear(columns, hidden), nn.Linear(hidden, dim + 1)
        self.decoder, self.out = nn.Linear(dim, hidden), nn.Linear(hidden, columns)

    def loss(self, x: Tensor) -> Tensor:
        out = self.head(F.relu(self.encoder(x)))
        loc, scale = out[:, : self.dim], F.softplus(out[:, self.dim :])
        z = loc + scale * torch.randn_like(loc)
        kl = (loc.square().sum(-1) + self.dim * (scale.square() - 1 - 2 * scale.log())[:, 0]) / 2
        y = self.out(F.relu(self.decoder(z)))
        if self.likelihood == "bernoulli":
            rec = F.binary_cross_entropy_with_logits(y, x, reduction="none").sum(-1)
        else:
            rec = (x - y).square().sum(-1) / 2
        return (rec + kl).mean()


def step(model: nn.Module, loss: Callable[[], Tensor], learning_rate: float = 1e-3) -> Callable[[], None]:
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)

    def run() -> None:
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()

    return run


def runs(task: Callable[[], None]) -> bool:
    """Whether a peer gets through its first steps; its sampler may refuse them."""
    try:
        for _ in range(20):
            task()
    except OSError:
        return False
    return True


def tasks(name: str, dim: int, x: Tensor) -> dict[str, Callable[[], None]]:
    """Return a step of the ordinary VAE in bare torch, and one of each of ours, on the rows x of a shape.

    All but those on spheres have the prior scale 1, so that they are the same model in every version.
    """
    _, columns, hidden, likelihood = SHAPES[name][:4]
    plain = OrdinaryVAE(columns, hidden, dim, likelihood)
    made = {"ordinary": step(plain, lambda: plain.loss(x))}
    for law, settings in {**LAWS, "sphere": {}}.items():
        spaces = {"space": f"s{dim}"} if law == "sphere" else {"prior_scale": 1.0, **settings}
        model = build(Config(dim=dim, hidden=(hidden,), likelihood=likelihood, **spaces), columns)
        made[law] = step(model, lambda m=model: -m.elbo(x).mean())
    return made


def steps(threads: int) -> list[Row]:
    """One step with batch, network and latent dimension of the two experiments."""
    rows = []
    for name, (count, columns, hidden, likelihood, *bounds) in SHAPES.items():
        for dim in (2, 10):
            x = torch.rand(count, columns)
            timed = tasks(name, dim, x)
            for law in ("ordinary", "wrapped", "riemannian"):
                peer = pythae_vae(law, columns, hidden, dim, likelihood)
                # It stays where it starts: once trained, its sampler refuses some posteriors with an error.
                task = None if peer is None else step(peer, lambda m=peer, x=x: m({"data": x}).loss, 0.0)
                if task is not None and runs(task):
                    timed[f"Pythae {law}"] = task
            ms = compare(timed, seconds=4.0)
            what = f"{name}, d = {dim}"
            for law, bound in (("curvature 0", None), ("wrapped", bounds[0]), ("riemannian", bounds[1])):
                ratio = ms[law] / ms["ordinary"]
                rows.append(
                    Row(f"{law} step / bare ordinary step, {what}", threads, ms[law], ms["ordinary"], ratio, bound)
                )
            ratio, bound = ms["sphere"] / ms["riemannian"], SPHERE if name == "MNIST" else None
            sphere = f"sphere step / riemannian step, {what}"
            rows.append(Row(sphere, threads, ms["sphere"], ms["riemannian"], ratio, bound))
            for law in ("wrapped", "riemannian"):
                peer = f"Pythae {law}"
                if peer in ms:
                    rows.append(Row(f"{peer} step / ours, {what}", threads, ms[law], ms[peer], ms[peer] / ms[law]))
                    own = ms["Pythae ordinary"]
                    rows.append(Row(f"{peer} step / its ordinary step, {what}", threads, ms[peer], own, ms[peer] / own))
    return rows


# Over a Gaussian step, with one thread; and rows, genes, counts other than 0.
BOUNDS = {"poisson": None, "nb": 1.5, "zinb": 2.0}
CELLS = (64, 2000, 0.1)


def counts(threads: int) -> list[Row]:
    """One step of every likelihood of counts over a Gaussian one, at the size of a table of cells."""
    rows, genes, share = CELLS
    x = torch.poisson(torch.full((rows, genes), 2.0)).clamp_min(1.0) * (torch.rand(rows, genes) < share)
    layout, batch = Layout(genes, size=True, total=True), Batch(x, size=x.sum(1))
    timed = {}
    for likelihood in ("gaussian", *BOUNDS):
        config = Config(likelihood=likelihood, hidden=(200, 200))
        model, own = build(config, layout), Batch(x) if likelihood == "gaussian" else batch
        timed[likelihood] = step(model, lambda m=model, own=own: -m.elbo(own).mean())
    # Other programs take time of the clock, but hardly of one thread.
    clock = time.process_time if threads == 1 else time.perf_counter
    ms = compare(timed, seconds=6.0, clock=clock)
    what, other = f"{rows} × {genes:,}, {share:.0%} not 0", ms["gaussian"]
    return [
        Row(
            f"{likelihood} step / Gaussian step, {what}",
            threads,
            ms[likelihood],
            other,
            ms[likelihood] / other,
            bound if threads == 1 else None,
        )
        for likelihood, bound in BOUNDS.items()
    ]
