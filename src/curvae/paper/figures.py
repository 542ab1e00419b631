"""The paper's figures about geometry. Each function returns a matplotlib figure; `FIGURES` lists them by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ..distributions import HyperbolicNormal, RiemannianNormal, WrappedNormal
from ..geometry import PoincareBall
from ..plotting.disc import INK, density, disc, geodesics, gyroplane, project, regular_tree
from .samplers import acceptance_rates

__all__ = ["FIGURES", "panels"]

RED, BLUE, ORANGE, GREEN = "#c0392b", "#2471a3", "#d68910", "#1e8449"


def panels(rows: int, columns: int, size: float = 2.2) -> tuple[Figure, list[list[Axes]]]:
    """A figure with square panels, `size` inches each."""
    figure = Figure(figsize=(columns * size, rows * size), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).tolist()


def _dots(ax: Axes, points: Tensor, **style: Any) -> None:
    """Points of shape (…, 2) as dots."""
    points = points.reshape(-1, 2)
    ax.scatter(points[:, 0], points[:, 1], **{"s": 26, "zorder": 3, **style})


def _place(point: Tensor) -> tuple[float, float]:
    return float(point[0]), float(point[1])


def _arrow(ax: Axes, start: Tensor, end: Tensor) -> None:
    ax.annotate("", _place(end), _place(start), arrowprops={"arrowstyle": "-|>", "color": RED, "lw": 1.5})


def _name(ax: Axes, text: str, point: Tensor, shift: tuple[int, int], colour: str) -> None:
    ax.annotate(f"${text}$", _place(point), shift, textcoords="offset points", color=colour)


def tree(degree: int = 3, depth: int = 6) -> Figure:
    """A regular tree in the Poincaré disc; all edges have the same length."""
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
    """Geodesics between points and through the disc, and tangent vectors with their images under exp."""
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
        _arrow(ax, base, base + v)
        _dots(ax, image, color=ORANGE)
    _dots(ax, base, color=RED, zorder=4)
    _name(ax, "z", base, (6, -12), RED)
    return figure


def _density(ax: Axes, distribution: HyperbolicNormal, title: str) -> None:
    """The density of a distribution on the disc, its mean marked by a cross."""
    disc(ax, distribution.manifold)  # type: ignore[arg-type]
    density(ax, distribution)
    ax.plot(*distribution.loc, "+", color=RED, markersize=9, markeredgewidth=1.6)
    ax.set_title(title, fontsize=9)


def densities(c: float = 10.0, scale: float = 0.35, radii: Sequence[float] = (0.0, 0.4, 0.8)) -> Figure:
    """Both normals for several means √c·‖μ‖, at the same scale."""
    ball = PoincareBall(2, c)
    figure, axes = panels(2, len(radii))
    distributions = (("Riemannian", RiemannianNormal), ("wrapped", WrappedNormal))
    for row, (name, distribution) in zip(axes, distributions, strict=True):
        for ax, radius in zip(row, radii, strict=True):
            mean = torch.tensor([radius / math.sqrt(c), 0.0], dtype=torch.float64)
            _density(ax, distribution(mean, scale, ball), f"{name}, $\\sqrt{{c}}\\,\\|\\mu\\| = {radius}$")
    figure.suptitle(f"density with respect to the Riemannian measure, c = {c:g}, σ = {scale:g}", fontsize=9)
    return figure


def anisotropic_densities() -> Figure:
    """The wrapped normal with diagonal covariance, c = 1; σ are standard deviations of v = λ_μ log_μ(z)."""
    ball = PoincareBall(2)
    scales = ((1.0, 1.0), (2.0, 0.5), (0.5, 2.0))
    figure, axes = panels(2, 3)
    for row, radius in zip(axes, (0.0, 0.4), strict=True):
        for ax, scale in zip(row, scales, strict=True):
            mean, deviations = torch.tensor([[radius, 0.0], scale], dtype=torch.float64)
            _density(ax, WrappedNormal(mean, deviations, ball), f"$\\|\\mu\\| = {radius}$, σ = {scale}")
    return figure


def projection() -> Figure:
    """Orthogonal projection on a hyperplane, in the disc and in the plane."""
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
        _arrow(ax, p, tip)
        _name(ax, "p", p, (-12, -10), RED)
        _name(ax, "a", tip, (2, 3), RED)
        _name(ax, "z", z[0], (5, 3), BLUE)
        if not c:
            ax.set(xlim=(-2.4, 2.4), ylim=(-2.4, 2.4))
    return figure


def acceptance() -> Figure:
    """Acceptance rates of the appendix's samplers over dimension and σ, c = 1."""
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
