"""The paper's figures: of the geometry, of maps of the branching diffusion, and of maps of the digits.

Functions that draw return a matplotlib figure; `FIGURES` lists those about geometry by name. Maps show trained models,
on the disc and on the plane.

The rejection samplers of the paper's appendix draw the hyperbolic radius r, of density
ρ(r) ∝ exp(−r²/2σ²)·(sinh(√c·r)/√c)^(d−1), from a proposal g and accept with probability ρ/(M·g); the acceptance rate
is 1/M. Where the printed formulas cannot be meant literally they are read as `docs/mathematics.md` explains. Moments
and normalisers come from sums over a fine grid, not from `curvae.distributions`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

from ..data import Tree, branching_diffusion
from ..distributions import HyperbolicNormal, RiemannianNormal, WrappedNormal
from ..errors import CurvaeError
from ..geometry import PoincareBall
from ..nn import Gyroplane
from ..plotting import figure_bytes, fit_window, gyroplane_heat, latent_map, mosaic, sample_grid
from ..plotting.pictures import INK, density, disc, geodesics, gyroplane, project, regular_tree
from ..runs.pages import node_places
from ..training import Config, Fitted
from ..training.storage import write_bytes
from .experiment import (
    PICTURES,
    PLAIN,
    Experiment,
    Page,
    Plan,
    Shard,
    Workspace,
    gplvm,
    principal_components,
    split_settings,
    train,
)
from .paper_tables import GPLVM_ITERATIONS, TREE, digits, sizes, tree_data

__all__ = [
    "FIGURES",
    "GALLERY",
    "GammaProposal",
    "PiecewiseExponential",
    "Proposal",
    "TruncatedNormal",
    "acceptance_rates",
    "hyperplanes",
    "panels",
]

# --- samplers of the appendix ---------------------------------------------------------------------------------------


class Proposal:
    """A proposal for the radius, for every scale of a vector, float64. Subclasses set `log_mass`, the log of ∫ M·g.

    Arguments:
        dim: dimension d of the space.
        scale: dispersions σ, shape (B,).
        c: minus the curvature, > 0.
    """

    log_mass: Tensor

    def __init__(self, dim: int, scale: Tensor, c: float) -> None:
        if c <= 0:
            raise ValueError(f"the samplers of the appendix need c > 0, got {c}")
        self.dim, self.scale, self.c = dim, scale.double(), c
        # A grid fine and wide enough for sums to be integrals: ±10σ around the mode, which lies below this bound.
        far = (dim - 1) * math.sqrt(c) * self.scale**2 + math.sqrt(dim) * self.scale
        start = (far - (math.sqrt(dim) + 10) * self.scale).clamp_min(0.0)
        u = (torch.arange(4000, dtype=torch.float64)[:, None] + 0.5) / 4000
        grid = start + (far + 10 * self.scale - start) * u
        log_rho = self.log_density(grid)
        self.log_z = log_rho.logsumexp(0) + (grid[1] - grid[0]).log()
        weights = log_rho.softmax(0)
        self.mean = (weights * grid).sum(0)
        self.deviation = (weights * (grid - self.mean) ** 2).sum(0).sqrt()

    def log_density(self, r: Tensor) -> Tensor:
        """Compute log ρ without its normaliser, for r of shape (…, B)."""
        x = math.sqrt(self.c) * r
        log_sinh = x + torch.log1p(-torch.exp(-2 * x)) - math.log(2 * math.sqrt(self.c))
        return -(r**2) / (2 * self.scale**2) + (self.dim - 1) * log_sinh

    @property
    def acceptance(self) -> Tensor:
        """The acceptance rate for every scale."""
        return (self.log_z - self.log_mass).exp()


class PiecewiseExponential(Proposal):
    """The envelope of tangents to the concave log ρ at points around its mean, which the paper uses.

    The points are x_k = m + η_k·min(s, 0.95·m/η_max), m and s mean and standard deviation of r, with
    η = (−linspace(η_max, η_min, K/2), linspace(η_min, η_max, K/2)).
    """

    def __init__(
        self, dim: int, scale: Tensor, c: float, points: int = 20, eta_min: float = 0.1, eta_max: float = 3.0
    ) -> None:
        super().__init__(dim, scale, c)
        above = torch.linspace(eta_min, eta_max, points // 2, dtype=torch.float64)
        eta = torch.cat([-above.flip(0), above])[:, None]
        x = self.mean + eta * torch.minimum(self.deviation, 0.95 * self.mean / eta_max)
        height = self.log_density(x)
        root = math.sqrt(c)
        slope = -x / self.scale**2 + (dim - 1) * root / torch.tanh(root * x)
        # Neighbouring tangents meet at z_k; the first piece starts at 0, the last has no end.
        z = x[:-1] + (height.diff(dim=0) - slope[1:] * x.diff(dim=0)) / (slope[:-1] - slope[1:])
        edge = torch.zeros_like(z[:1])
        start, end = torch.cat([edge, z]), torch.cat([z, edge + math.inf])
        self.slope, self.start, self.at_start = slope, start, height + slope * (start - x)
        # ∫ exp(slope·(r − start)) over the piece is expm1(reach)/slope, for slopes of either sign.
        self.rise = torch.expm1((slope * (end - start)).clamp(max=700.0))
        self.log_pieces = self.at_start + (self.rise / slope).log()
        self.log_mass = self.log_pieces.logsumexp(0)


class TruncatedNormal(Proposal):
    """The leading term of the expanded density: a normal of mean (d−1)√c·σ² and standard deviation σ, cut at 0."""

    def __init__(self, dim: int, scale: Tensor, c: float) -> None:
        super().__init__(dim, scale, c)
        self.shift = (dim - 1) * math.sqrt(c) * self.scale
        bound = self.shift**2 / 2 - (dim - 1) * math.log(2 * math.sqrt(c))
        self.log_mass = bound + 0.5 * math.log(2 * math.pi) + self.scale.log() + torch.special.log_ndtr(self.shift)


class GammaProposal(Proposal):
    """Gamma(2, σ), with the bound M = (Z_g/Z_r)·(2√c)^{−(d−2)}·exp(((d−1)√c·σ + 1)²/2), valid for d ≥ 2.

    `log_bound` is the logarithm of M·Z_r/Z_g.
    """

    def __init__(self, dim: int, scale: Tensor, c: float) -> None:
        if dim < 2:
            raise ValueError("the Gamma proposal needs dim ≥ 2: for dim 1 its density is too small near 0")
        super().__init__(dim, scale, c)
        n, root = dim - 1, math.sqrt(c)
        self.log_bound = -(n - 1) * math.log(2 * root) + (n * root * self.scale + 1) ** 2 / 2
        self.log_mass = 2 * self.scale.log() + self.log_bound


PROPOSALS: dict[str, type[Proposal]] = {
    "piecewise exponential": PiecewiseExponential,
    "truncated normal": TruncatedNormal,
    "Gamma(2, σ)": GammaProposal,
}


def acceptance_rates(dims: Sequence[int], scale: Tensor, c: float = 1.0) -> dict[str, Tensor]:
    """Compute acceptance rates of shape (dims, scales) by sampler."""
    return {name: torch.stack([make(d, scale, c).acceptance for d in dims]) for name, make in PROPOSALS.items()}


# --- geometry -------------------------------------------------------------------------------------------------------

RED, BLUE, ORANGE = "#c0392b", "#2471a3", "#d68910"
_ARROW = {"arrowstyle": "-|>", "color": RED, "lw": 1.5}


def panels(rows: int, columns: int, size: float = 2.2) -> tuple[Figure, list[list[Axes]]]:
    """Make a figure with square panels, `size` inches each."""
    figure = Figure(figsize=(columns * size, rows * size), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).tolist()


def _dots(ax: Axes, points: Tensor, **style: Any) -> None:
    """Draw points of shape (…, 2) as dots."""
    ax.scatter(*points.reshape(-1, 2).T, **{"s": 26, "zorder": 3, **style})


def _label(ax: Axes, text: str, point: Tensor, shift: tuple[int, int], colour: str) -> None:
    """Write a formula beside a point."""
    ax.annotate(f"${text}$", tuple(point.tolist()), shift, textcoords="offset points", color=colour)


def tree(degree: int = 3, depth: int = 6) -> Figure:
    """Draw a regular tree in the Poincaré disc; all edges have the same length."""
    ball = PoincareBall(2)
    figure, [[ax]] = panels(1, 1, 4.0)
    disc(ax, ball)
    points, edges = regular_tree(degree, depth)
    start, end = (points[[edge[i] for edge in edges]] for i in (0, 1))
    geodesics(ax, ball, start, end, colors=RED, linewidths=1.2)
    # Discs of equal hyperbolic size, down to what can be seen.
    _dots(ax, points, s=(90 / ball.lambda_x(points) ** 2).clamp_min(0.6), color=INK, linewidths=0)
    return figure


def geodesics_and_exponential_maps() -> Figure:
    """Draw geodesics between points and through the disc, and tangent vectors with their images under exp."""
    ball = PoincareBall(2)
    figure, [[ax]] = panels(1, 1, 4.0)
    disc(ax, ball)
    for p, a in (((0.0, 0.0), (1.0, -0.6)), ((-0.45, 0.35), (0.5, 0.9)), ((0.3, -0.55), (0.2, -1.0))):
        gyroplane(ax, ball, torch.tensor(p), torch.tensor(a), colors="#cbd2d9", linewidths=1.0)
    x, y = torch.tensor([[-0.62, -0.35], [0.05, 0.7]]), torch.tensor([[0.55, -0.25], [0.72, 0.35]])
    geodesics(ax, ball, x, y, colors=BLUE, linewidths=1.8)
    _dots(ax, torch.cat([x, y]), color=BLUE)
    base = torch.tensor([-0.1, 0.12])
    for angle, length in ((2.4, 1.5), (0.5, 1.1), (-1.9, 1.9)):
        v = torch.tensor([math.cos(angle), math.sin(angle)]) * length / ball.lambda_x(base)
        image = ball.expmap(base, v)
        geodesics(ax, ball, base, image, colors=ORANGE, linewidths=1.4, linestyles="dashed")
        ax.annotate("", tuple((base + v).tolist()), tuple(base.tolist()), arrowprops=_ARROW)
        _dots(ax, image, color=ORANGE)
    _dots(ax, base, color=RED, zorder=4)
    _label(ax, "z", base, (6, -12), RED)
    return figure


def _density_grid(distributions: Mapping[str, HyperbolicNormal]) -> Figure:
    """Draw two rows of densities on the disc with their titles, the mean of each marked by a cross."""
    figure, [above, below] = panels(2, len(distributions) // 2)
    for ax, (title, distribution) in zip([*above, *below], distributions.items(), strict=True):
        disc(ax, distribution.manifold)  # type: ignore[arg-type]
        density(ax, distribution)
        ax.plot(*distribution.loc, "+", color=RED, markersize=9, markeredgewidth=1.6)
        ax.set_title(title, fontsize=9)
    return figure


def densities(c: float = 10.0, scale: float = 0.35, radii: Sequence[float] = (0.0, 0.4, 0.8)) -> Figure:
    """Draw both normals for several means √c·‖μ‖, at the same scale."""
    figure = _density_grid(
        {
            f"{name}, $\\sqrt{{c}}\\,\\|\\mu\\| = {radius}$": distribution(
                torch.tensor([radius / math.sqrt(c), 0.0], dtype=torch.float64), scale, PoincareBall(2, c)
            )
            for name, distribution in (("Riemannian", RiemannianNormal), ("wrapped", WrappedNormal))
            for radius in radii
        }
    )
    figure.suptitle(f"density with respect to the Riemannian measure, c = {c:g}, σ = {scale:g}", fontsize=9)
    return figure


def anisotropic_densities() -> Figure:
    """Draw the wrapped normal with diagonal covariance, c = 1; σ are standard deviations of v = λ_μ log_μ(z)."""
    return _density_grid(
        {
            f"$\\|\\mu\\| = {radius}$, σ = {scale}": WrappedNormal(
                torch.tensor([radius, 0.0], dtype=torch.float64),
                torch.tensor(scale, dtype=torch.float64),
                PoincareBall(2),
            )
            for radius, scale in product((0.0, 0.4), ((1.0, 1.0), (2.0, 0.5), (0.5, 2.0)))
        }
    )


def projection() -> Figure:
    """Draw the orthogonal projection on a hyperplane, in the disc and in the plane."""
    figure, [axes] = panels(1, 2, 3.4)
    for ax, c in zip(axes, (1.0, 0.0), strict=True):
        ball = PoincareBall(2, c)
        stretch = 1.0 if c else 2.4
        disc(ax, ball)
        p, a = torch.tensor([-0.25, 0.1]).double() * stretch, torch.tensor([0.9, 0.6]).double()
        z = torch.tensor([[0.55, 0.35], [0.45, -0.72], [-0.7, 0.3]]).double() * stretch
        feet = project(ball, z, p.expand_as(z), a.expand_as(z))
        gyroplane(ax, ball, p, a, colors=INK, linewidths=1.8)
        geodesics(ax, ball, z, feet, colors=BLUE, linewidths=1.4, linestyles="dashed")
        _dots(ax, z, color=BLUE)
        _dots(ax, feet, facecolor="white", edgecolor=BLUE)
        _dots(ax, p, color=RED)
        tip = p + 0.3 * stretch * a / a.norm()
        ax.annotate("", tuple(tip.tolist()), tuple(p.tolist()), arrowprops=_ARROW)
        _label(ax, "p", p, (-12, -10), RED)
        _label(ax, "a", tip, (2, 3), RED)
        _label(ax, "z", z[0], (5, 3), BLUE)
        if not c:
            ax.set(xlim=(-2.4, 2.4), ylim=(-2.4, 2.4))
    return figure


def acceptance() -> Figure:
    """Draw the acceptance rates of the appendix's samplers over dimension and σ, c = 1."""
    shades = {2: "#a9cce3", 3: "#5dade2", 5: "#2e86c1", 10: "#1f618d", 20: "#123f5e"}  # by dimension
    scale = torch.logspace(-2, 0.5, 40)
    figure = Figure(figsize=(8.4, 2.9), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for ax, (name, rate) in zip(axes, acceptance_rates(list(shades), scale).items(), strict=True):
        for (d, colour), values in zip(shades.items(), rate, strict=True):
            ax.plot(scale, values, color=colour, label=f"d = {d}")
        ax.set(xscale="log", xlabel="σ", ylim=(0, 1.02))
        ax.set_title(name, fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("acceptance rate")
    axes[0].legend(frameon=False, fontsize=8, loc="lower left")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "tree": tree,
    "geodesics": geodesics_and_exponential_maps,
    "densities": densities,
    "anisotropic": anisotropic_densities,
    "projection": projection,
    "acceptance": acceptance,
}

# --- maps -----------------------------------------------------------------------------------------------------------

HYPERPLANES = 60  # drawn of a decoder
_SIZE = 3.1  # inches a panel


CAPTIONS = {
    "tree": "A regular tree in the Poincaré disc; all edges have the same length.",
    "geodesics": "Geodesics, and exponential maps of tangent vectors.",
    "densities": "Riemannian and wrapped normal for several means, c = 10, at the same σ.",
    "anisotropic": "The wrapped normal with diagonal covariance, c = 1; σ are standard deviations.",
    "projection": "Orthogonal projection on a hyperplane, in the disc and in the plane.",
    "acceptance": "Acceptance rates of the appendix's radius samplers, c = 1.",
    "maps-models": "The branching diffusion: P-VAE, N-VAE, PCA and GPLVM. Dots are posterior samples, lines the true "
    "hierarchy, colours its branches; the models see neither.",
    "maps-curvatures": "The branching diffusion for decreasing curvature, with posterior samples.",
    "maps-gyroplanes": f"The same maps with the {HYPERPLANES} steepest hyperplanes of the decoder.",
    "maps-distance": "The log distance to the hyperplane that divides the rows most evenly, in the ball and the plane.",
    "maps-digits": "MNIST, in the ball and in the plane: posterior means, test images at their places, and samples of "
    "the model.",
}


@dataclass(frozen=True)
class Map:
    """Points in ball coordinates, of rows of the data.

    Attributes:
        name: shown above the map.
        ball: the space.
        points: (rows, 2).
        samples: of the posteriors of a model, (rows, draws, 2).
        hyperplanes: points and normals of a model's decoder; empty for other maps.
    """

    name: str
    ball: PoincareBall
    points: Tensor
    samples: Tensor | None = None
    hyperplanes: Sequence[Tensor] = ()


def map_rows(fitted: Fitted, x: Any, draws: int = 0) -> Map:
    """Map rows, in original units, by a two-dimensional model, with `draws` posterior samples each."""
    fitted = fitted.double()
    model = fitted.model
    c = float(model.space.curvatures()[0].detach())
    ball = PoincareBall(2, c)
    with torch.no_grad():
        posterior = model.encode(fitted.rows(x).batch(torch.arange(len(x))))
        noise = torch.randn(draws, len(x), 2, generator=torch.Generator().manual_seed(0))
        drawn = ball.from_lorentz(posterior.transform(noise.to(model.device)).cpu()).transpose(0, 1) if draws else None
    return Map(
        f"P-VAE, c = {c:g}" if c else "N-VAE",
        ball,
        ball.from_lorentz(posterior.loc.cpu()),
        drawn,
        hyperplanes(fitted),
    )


def hyperplanes(fitted: Fitted) -> tuple[Tensor, Tensor]:
    """Return points and normals of the decoder's first layer, in ball coordinates.

    On the plane, where ball coordinates are half the metric ones, unit k is zero on ⟨w, 2z⟩ + b = 0.
    """
    layer = next(fitted.model.decoder.children())
    if not isinstance(layer, Gyroplane | nn.Linear):
        raise CurvaeError(f"hyperplanes are drawn of gyroplane layers, not of {type(layer).__name__}")
    weight = layer.weight.detach().double().cpu()
    if isinstance(layer, Gyroplane):
        ball = PoincareBall(2, float(fitted.model.space.curvatures()[0].detach()))
        return ball.expmap0(layer.points.detach().double().cpu()), weight
    bias = layer.bias.detach().double().cpu().unsqueeze(1)
    return -bias * weight / (2 * weight.square().sum(1, keepdim=True)), weight


def tree_maps(maps: Sequence[Map], tree: Tree, gyroplanes: bool = False) -> Figure:
    """Draw maps side by side with posterior samples and the true hierarchy.

    Arguments:
        maps: of the observations of the tree.
        tree: the truth.
        gyroplanes: draw the hyperplanes of the decoders instead of posterior samples.
    """
    figure, [axes] = panels(1, len(maps), _SIZE)
    for ax, one in zip(axes, maps, strict=True):
        steepest = None
        if gyroplanes:
            p, a = one.hyperplanes
            # Those with the longest normals, as many as can be distinguished.
            longest = a.norm(dim=1).argsort(descending=True)[:HYPERPLANES]
            steepest = p[longest], a[longest]
        latent_map(
            ax,
            one.ball,
            one.points,
            tree.branches()[tree.node],
            samples=None if gyroplanes else one.samples,
            hierarchy=(node_places(tree, one.ball, one.points), tree.edges),
            gyroplanes=steepest,
            title=one.name,
        )
        if (legend := ax.get_legend()) is not None:
            legend.remove()  # branches differ in place and colour; their names say nothing
        if float(one.ball.c):
            # All of the disc, however little of it the points fill.
            for patch in list(ax.patches):
                patch.remove()
            disc(ax, one.ball)
    return figure


def distance_maps(maps: Sequence[Map], tree: Tree) -> Figure:
    """Draw the log of the distance to the hyperplane that divides the rows most evenly, with the tree."""
    figure, [axes] = panels(1, len(maps), 1.25 * _SIZE)
    for ax, one in zip(axes, maps, strict=True):
        p, a = one.hyperplanes
        sides = one.ball.dist2plane(one.points.unsqueeze(1), p, a) > 0
        chosen = int((sides.double().mean(0) - 0.5).abs().argmin())
        gyroplane_heat(ax, one.ball, p[chosen], a[chosen], reach=fit_window(one.points))
        nodes, edges = node_places(tree, one.ball, one.points), np.array(tree.edges)
        geodesics(ax, one.ball, nodes[edges[:, 0]], nodes[edges[:, 1]], colors=INK, linewidths=0.6, zorder=1.5)
        ax.scatter(nodes[:, 0], nodes[:, 1], s=9, color="white", edgecolors=INK, linewidths=0.5, zorder=2)
        ax.set_title(one.name, fontsize=9, color=INK)
    return figure


def _shards(plan: Plan) -> list[Shard]:
    """Draw in three shards: geometry, branching diffusion, digits."""
    base, _, rows, test = sizes(plan)
    flat: dict[str, Any] = {"curvature": 0.0, "decoder": PLAIN}
    trees = replace(TREE, prior_scale=1.7, seed=plan.seed, epochs=60 if plan.quick else TREE.epochs)
    # Maps as in appendix D; the comparison with other methods and the heat map have c = 1.
    tree = [*(replace(trees, curvature=c) for c in (1.2, 0.3, 0.1, 1.0)), replace(trees, **flat)]
    images = replace(base, dim=2, curvature=1.4, seed=plan.seed)
    digits = [images, replace(images, posterior="wrapped", **flat)]
    iterations = 20 if plan.quick else GPLVM_ITERATIONS
    return [
        Shard(
            "geometry",
            {"files": list(FIGURES)},
            lambda workspace: _save(workspace, {name: draw() for name, draw in FIGURES.items()}),
        ),
        Shard(
            "tree",
            {
                "files": ["maps-models", "maps-curvatures", "maps-gyroplanes", "maps-distance"],
                **split_settings(tree),
                "gplvm_iterations": iterations,
            },
            partial(_draw_trees, tree, iterations),
        ),
        Shard(
            "digits", {"files": ["maps-digits"], **split_settings(digits)}, partial(_draw_digits, digits, rows, test)
        ),
    ]


def _save(workspace: Workspace, drawn: Mapping[str, Figure]) -> dict[str, Any]:
    """Write figures with a palette of 256 colours, which takes a third of the size; it would cut shades into bands."""
    for name, figure in drawn.items():
        png = figure_bytes(figure)
        if name not in ("densities", "anisotropic", "maps-distance"):
            stream = io.BytesIO()
            with Image.open(io.BytesIO(png)) as image:
                image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE).save(stream, "PNG", optimize=True)
            png = stream.getvalue()
        write_bytes(workspace.cache.parent / PICTURES / f"{name}.png", png)
    return {"files": list(drawn)}


def _draw_trees(configs: Sequence[Config], iterations: int, workspace: Workspace) -> dict[str, Any]:
    dataset, tree = tree_data(configs[0].seed), branching_diffusion(seed=configs[0].seed)
    fitted = train(configs, [dataset] * len(configs), workspace, "tree-maps")
    *decreasing, unit, flat = (map_rows(one, dataset.x, draws=8) for one in fitted)
    y, plane = dataset.scaling.apply(tree.x), PoincareBall(2, 0.0)
    return _save(
        workspace,
        {
            "maps-models": tree_maps(
                [
                    unit,
                    flat,
                    Map("PCA", plane, torch.from_numpy(principal_components(y))),
                    Map("GPLVM", plane, torch.from_numpy(gplvm(y, iterations=iterations)[0])),
                ],
                tree,
            ),
            "maps-curvatures": tree_maps([*decreasing, flat], tree),
            "maps-gyroplanes": tree_maps([*decreasing, flat], tree, gyroplanes=True),
            "maps-distance": distance_maps([unit, flat], tree),
        },
    )


def _draw_digits(configs: Sequence[Config], rows: int | None, test: int | None, workspace: Workspace) -> dict[str, Any]:
    """Draw for every model a row: posterior means, images at their places, and new images from the model."""
    dataset, _, labels = digits(rows, test)
    fitted = train(configs, [dataset] * len(configs), workspace, "digit-maps")
    figure, axes = panels(len(fitted), 3, 1.15 * _SIZE)
    for row, one in zip(axes, fitted, strict=True):
        drawn, model = map_rows(one, dataset.test), one.double().model
        latent_map(row[0], drawn.ball, drawn.points, labels, title=drawn.name)
        mosaic(row[1], drawn.ball, drawn.points, dataset.test.reshape(-1, 28, 28), size=0.04)
        samples = model.sample(100, torch.Generator(model.device).manual_seed(0), mean=True).cpu()
        sample_grid(row[2], samples.reshape(-1, 28, 28))
    for ax, title in zip(axes[0][1:], ("test images at their posterior means", "samples of the model"), strict=True):
        ax.set_title(title, fontsize=9, color=INK)
    return _save(workspace, {"maps-digits": figure})


GALLERY = Experiment(
    "figures",
    "The paper's figures",
    _shards,
    lambda results: {"files": [name for result in results.values() for name in result["files"]]},
    lambda result: Page(
        f"{len(result['files'])} figures.",
        "neutral",
        [],
        gallery={f"{name}.png": CAPTIONS[name] for name in result["files"]},
    ),
    minutes=1,
)
