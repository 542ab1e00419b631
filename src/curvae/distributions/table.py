"""Draws of the Riemannian radius without rejection: a smooth map of the normal noise, tabulated once a dimension.

For noise ε ∈ ℝ^d let x = |ε|, which is χ distributed, as the radius at q = 0 is (notation of `radial`). The radius
t of the same quantile, F(t; q) = F(x; 0), is an increasing function t = T(x; q) with T(x; 0) = x, so that

    v = σ·κ·ε,    κ(x, q) = T(x; q)/x,

is a draw of the Riemannian normal: the wrapped normal's draw stretched along its ray, and the same draw at c = 0.

For small x, T = e^λ·x with λ(q) = (log I(q) − log I(0))/d. So log T is tabulated against a = log x + λ, in which the
bend of T at radius about 1/√q stays in one place: log T − a and ω = ∂ log T/∂q are cubics in a on uniform cells, from
where T is linear to the largest x that occurs, with coefficients that are quintics in y(q) on uniform cells. y is
linear in q near 0 on the scale π²/x² of the nearest singularity and then grows like √q. Past the last q, T = z + n·√q
to rounding, z the normal quantile.

On a sphere, q < 0, the place τ = log((2/√|q|)·tan(√|q|·T/2)) of a radius takes the part of log T, ω = ∂T/∂q over dT/dτ,
and y is −1/√(|q| + const): T·√|q| is that of a uniform point past the last |q|. Columns are uniform in log x + x²/8,
for T turns sharply where x passes the antipode. Float64 draws take the table as a start and finish with Newton's method
on the exact integrals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from ..geometry.functions import Primitive, constant
from . import radial

__all__ = ["lookup", "lookup_on_sphere", "stretch"]

_COLUMNS = 128  # nodes in a
_ROWS = 80  # nodes in y(q)
_STENCIL = 6  # nodes that determine a quintic
_LINEAR = -9.0  # log T below which T is linear in x to rounding
_TOP_TAIL = -32.0  # log-probability of an x beyond the table
_UNIFORM = 1e8  # |q| from which on the draw on a sphere is that of a uniform point to single precision
_TINY = 1e-200  # added to |ε|², whose logarithm is then finite


@dataclass(frozen=True)
class _Table:
    spherical: bool
    dim: int
    near: float  # the scale in |q| near 0
    bend: float  # y(q) = √(q + near) + bend·log(q + near), on a sphere −1/√(|q| + near)
    origin: float  # y(0)
    step: float  # width of a cell in y
    last: float  # the largest |q| that is looked up
    top: float  # log of the largest x
    lines: Tensor  # λ and dλ/dq: (cells of y, 2·6)
    value: Tensor  # log T − a: (cells of y, cells of a, 6·4)
    joint: Tensor  # the same and ω: (cells of y, cells of a, 6·2·4)

    @classmethod
    def of(cls, kernel: radial.Kernel, device: torch.device) -> _Table:
        """Return the table of a dimension, built at its first use."""
        return cls(kernel.spherical, *_fields(kernel.spherical, kernel.dim, device))

    def locate(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cell of y(q) and the powers of the place within it, along a new last axis."""
        if self.spherical:
            y = -((-q).clamp(max=self.last) + self.near).rsqrt()
        else:
            shifted = q.clamp(max=self.last) + self.near
            y = torch.add(shifted.sqrt(), shifted.log(), alpha=self.bend)
        y = (y - self.origin) / self.step
        cell = y.long().clamp(0, self.lines.shape[0] - 1)  # NaN is in some cell too, where its value is NaN
        place = y - cell
        powers = [torch.ones_like(place), place]
        while len(powers) < _STENCIL:
            powers.append(powers[-1] * place)
        return cell, torch.stack(powers, -1)

    def linear(self, cell: Tensor, powers: Tensor) -> tuple[Tensor, ...]:
        """Compute λ and dλ/dq, up to the last q."""
        lines = embedding(cell, self.lines).unflatten(-1, (2, _STENCIL))
        linear, rise = (lines * powers.unsqueeze(-2)).sum(-1).unbind(-1)
        if self.spherical:  # less log(−y), which has no limit
            linear = linear + (-self.origin - self.step * (cell + powers[..., 1])).log()
        return linear, rise

    def over(self, q: Tensor) -> Tensor:
        """By which factor |q| is past the last one; 1 up to there."""
        return (q / (-self.last if self.spherical else self.last)).clamp_min(1.0)

    def log_normaliser(self, over: Tensor, linear: Tensor, rise: Tensor) -> tuple[Tensor, Tensor]:
        """Compute log I(q) − log I(0) and its derivative; past the table the radius is normal around n·√q, on
        a sphere that of a uniform point."""
        n = self.dim - 1.0
        if self.spherical:
            return (linear - over.log() / 2) * self.dim, rise / over * self.dim
        grown = torch.add((over - 1.0) * (n * n / 2 * self.last), over.log(), alpha=-n / 2)
        grows = (1.0 - 1.0 / over) * (n / 2 / self.last)
        return torch.add(grown, linear, alpha=self.dim), torch.add(grows, rise, alpha=self.dim)


_TABLES: dict[tuple[bool, int, torch.device], tuple[Any, ...]] = {}


@constant
def _fields(spherical: bool, dim: int, device: torch.device) -> tuple[Any, ...]:
    """Return the table's fields, a constant to torch.compile."""
    key, first = (spherical, dim, device), (spherical, dim, torch.device("cpu"))
    if key not in _TABLES:
        if first not in _TABLES:
            with torch.no_grad():
                _TABLES[first] = _build(radial.SphericalKernel(dim) if spherical else radial.Kernel(dim))
        _TABLES[key] = tuple(field.to(device) if isinstance(field, Tensor) else field for field in _TABLES[first])
    return _TABLES[key]


def _rows(kernel: radial.Kernel, near: float, bend: float) -> tuple[Tensor, float, float, float]:
    """Return q of the rows, which are uniform in y, y(0), the step in y and the last |q|."""
    if kernel.spherical:
        y = torch.linspace(-1 / math.sqrt(near), -1 / math.sqrt(_UNIFORM + near), _ROWS, dtype=torch.float64)
        return near - y**-2, y[0].item(), (y[1] - y[0]).item(), _UNIFORM
    # Two rows lie beyond the last q, so that every cell has nodes on both sides.
    n = kernel.n
    # Past this root of q the lower end z = −8 of the noise has n·exp(−2√q·t) below rounding.
    root = (8 + math.sqrt(64 + 2 * n * (20 + math.log(n)))) / (2 * n) if n else 1.0
    fine = torch.linspace(0, 1, 4001, dtype=torch.float64) ** 2 * 1.3 * root**2
    y = (fine + near).sqrt() + bend * (fine + near).log()
    end = math.sqrt(root**2 + near) + bend * math.log(root**2 + near)
    step = (end - y[0].item()) / (_ROWS - 3)
    target = y[0].item() + step * torch.arange(_ROWS, dtype=torch.float64)
    q = torch.from_numpy(np.interp(target.numpy(), y.numpy(), fine.numpy()))
    for _ in range(3):  # the interpolated inverse of y(q), made exact
        shifted = q + near
        slope = 0.5 / shifted.sqrt() + bend / shifted
        q = (q - (shifted.sqrt() + bend * shifted.log() - target) / slope).clamp_min(0.0)
    return q, y[0].item(), step, root**2


def _build(kernel: radial.Kernel) -> tuple[Any, ...]:
    dim, n, flat = kernel.dim, kernel.n, radial.Kernel(kernel.dim)
    zero = torch.zeros((), dtype=torch.float64)
    tail = torch.full((), _TOP_TAIL, dtype=torch.float64)
    top = radial.quantile(torch.log1p(-tail.exp()), tail, zero, flat).log().item()
    near, bend = math.pi**2 * math.exp(-2 * top), 0.3 / math.sqrt(max(n, 1))
    q, origin, step, last = _rows(kernel, near, bend)

    log_i = radial.log_normaliser(q, kernel).unsqueeze(-1)
    linear = (log_i - log_i[0]) / dim
    width = (top + linear - _LINEAR) / (_COLUMNS - 1)
    columns, grade = torch.arange(_COLUMNS, dtype=torch.float64), torch.ones(())
    a = _LINEAR + width * columns
    if kernel.spherical:
        width = torch.full_like(linear, top + math.exp(2 * top) / 8 - _LINEAR) / (_COLUMNS - 1)
        log_x = _ungraded(_LINEAR + width * columns)
        a, grade = log_x + linear, 1 + (2 * log_x).exp() / 4
    x = (a - linear).exp()
    tails = radial.chi_log_cdfs(x, dim)

    # Each row starts from the two before it, in y, where they lie evenly; on a sphere λ is far from linear in y.
    places = [x[0].log()]
    steps, shift = (6, linear) if kernel.spherical else (2, torch.zeros_like(linear))
    for i in range(1, _ROWS):
        start = None
        if i > 2:
            start = kernel.radius(2 * (places[-1] - shift[i - 1]) - (places[-2] - shift[i - 2]) + shift[i], q[i])
        lower, upper = (tail[i] for tail in tails)
        t = radial.quantile(lower, upper, q[i], kernel, start, 12 if start is None else steps)
        places.append(kernel.place(t, q[i]))
    tau, rows = torch.stack(places), q.unsqueeze(-1)
    t = kernel.radius(tau, rows)
    log_rate = kernel.log_rate(t, tau, rows)

    omega = radial.quantile_slopes(t, rows, *tails, kernel)[0] / log_rate.exp()
    # dτ/da from ρ(x; 0)·dx = ρ(t; q)·dt, and dω/da from (ρ·∂t/∂q)′ = −ρ·(g − E[g]).
    rise = (flat.log(x, zero) + x.log() - kernel.log(t, rows) - log_rate - log_i[0] + log_i).exp()
    tilt, mean_tilt = kernel.tilt(t, rows), radial.mean_tilt(q, kernel)
    omega_rise = (mean_tilt.unsqueeze(-1) - tilt - kernel.force(t, rows, tilt) * omega) * rise

    smooth = linear[:, 0] + (near - q).log() / 2 if kernel.spherical else linear[:, 0]
    lines = _quintics(torch.stack([smooth, mean_tilt / dim], -1)).mT.flatten(1)
    value, slope = _cells(tau - a, (rise - 1) / grade * width), _cells(omega, omega_rise / grade * width)
    joint = torch.stack([value, slope], -2).flatten(2)
    return dim, near, bend, origin, step, last, top, lines, value.flatten(2), joint


def _ungraded(s: Tensor) -> Tensor:
    """Return the log x with log x + x²/8 = s."""
    log_x = torch.minimum(s, (8 * s.clamp_min(1.0)).log() / 2)
    for _ in range(20):
        square = (2 * log_x).exp()
        log_x = log_x - (log_x + square / 8 - s) / (1 + square / 4)
    return log_x


def _cells(value: Tensor, rise: Tensor) -> Tensor:
    """Polynomials on cells, from values and derivatives at their corners: cubics between neighbouring columns, with
    coefficients along a new last axis that are quintics between neighbouring rows, along a new third axis."""
    p, r, m, s = value[:, :-1], value[:, 1:], rise[:, :-1], rise[:, 1:]
    return _quintics(torch.stack([p, m, 3 * (r - p) - 2 * m - s, 2 * (p - r) + m + s], -1)).transpose(1, 2)


def _quintics(rows: Tensor) -> Tensor:
    """Polynomials between neighbouring rows, each through the six rows around it; coefficients as a new second axis."""
    pieces = []
    for i in range(_ROWS - 1):
        first = min(max(i - _STENCIL // 2 + 1, 0), _ROWS - _STENCIL)
        nodes = np.arange(first, first + _STENCIL) - float(i)
        inverse = torch.from_numpy(np.linalg.inv(np.vander(nodes, increasing=True)))
        pieces.append(torch.tensordot(inverse, rows[first : first + _STENCIL], 1))
    return torch.stack(pieces)


def _cubics(table: Tensor, cell: Tensor, powers: Tensor, column: Tensor) -> Tensor:
    """Coefficients of the cubics in cell (y, a) for every draw, the 4 of one after those of the other along a new last
    axis; `cell` and `powers` may have fewer dimensions."""
    columns = table.shape[1]
    if 8 * cell.numel() > column.numel():
        # Few draws share a q: fetch the coefficients of each draw in y and a.
        rows = embedding(torch.add(column, cell, alpha=columns), table.flatten(0, 1)).unflatten(-1, (_STENCIL, -1))
        return (rows * powers.unsqueeze(-1)).sum(-2)
    # Many do: contract over y once a q, then fetch four numbers a draw and cubic.
    rows = embedding(cell, table.flatten(1)).unflatten(-1, (columns, _STENCIL, -1))
    rows = (rows * powers[..., None, :, None]).sum(-2).flatten(0, -2)
    return embedding(torch.arange(cell.numel(), device=cell.device).view(cell.shape) * columns + column, rows)


def _evaluate(cubics: Sequence[Tensor], place: Tensor) -> Tensor:
    """Values of cubics, given by their four coefficients."""
    c0, c1, c2, c3 = cubics
    return torch.addcmul(c0, torch.addcmul(c1, torch.addcmul(c2, c3, place), place), place)


class _Lookup:
    """Where draws lie in the table: what κ and its slopes have in common.

    Arguments:
        square: |ε|².
        q: its shape parameter.
        over: `table.over(q)`.
        linear: λ(q).
        cell, powers: `table.locate(q)`.
    """

    beyond = 1.0  # ∂T/∂x past the table

    def __init__(
        self, square: Tensor, q: Tensor, table: _Table, over: Tensor, linear: Tensor, cell: Tensor, powers: Tensor
    ) -> None:
        self.table, self.over, self.cell, self.powers = table, over, cell, powers
        columns = table.value.shape[1]
        self.x = (square + _TINY).sqrt()
        self.a = self.x.log().clamp(max=table.top) + linear
        place = self.columns_from_first(linear, columns).clamp(0.0, columns)
        self.column = place.long().clamp(0, columns - 1)
        self.place = place - self.column

    def columns_from_first(self, linear: Tensor, columns: int) -> Tensor:
        """Compute how many columns after the first the draws lie; `density` becomes how many there are in a unit of log
        x."""
        self.density = columns / (linear + (self.table.top - _LINEAR))
        return (self.a - _LINEAR) * self.density

    def within(self) -> Tensor:
        """Compute T up to the ends of the table in x and q."""
        cubic = _cubics(self.table.value, self.cell, self.powers, self.column)
        return self.unfold(self.a + _evaluate(cubic.unbind(-1), self.place))

    def joint(self) -> tuple[Tensor, Tensor, Tensor]:
        """Compute T and T·ω up to the ends of the table, and the coefficients of the cubic of T."""
        cubics = _cubics(self.table.joint, self.cell, self.powers, self.column).unflatten(-1, (2, 4))
        log_ratio, omega = _evaluate(cubics.unbind(-1), self.place.unsqueeze(-1)).unbind(-1)
        within = self.unfold(self.a + log_ratio)
        return within, self.rate(within) * omega, cubics[..., 0, :]

    def unfold(self, place: Tensor) -> Tensor:
        """Compute T from its place."""
        return place.exp()

    def rate(self, within: Tensor) -> Tensor:
        """Compute the derivative of T in its place."""
        return within

    def radius(self, within: Tensor) -> Tensor:
        """Compute T, given `within`; past the table it grows as x and as n·√q."""
        over_x = (self.x - math.exp(self.table.top)).clamp_min(0.0)
        over_q = (self.over.sqrt() - 1.0) * ((self.table.dim - 1) * math.sqrt(self.table.last))
        return within + over_x + over_q

    def radius_by_q(self, by_q: Tensor) -> Tensor:
        """Compute ∂T/∂q, given T·ω; past the table n/(2√q)."""
        return by_q + (self.over.rsqrt() - 1.0) * ((self.table.dim - 1) / 2 / math.sqrt(self.table.last))

    def all(self) -> tuple[Tensor, Tensor, Tensor]:
        """Compute κ, ∂κ/∂|ε|² and ∂κ/∂q."""
        f, (within, by_q, cubic) = self.place, self.joint()
        _, c1, c2, c3 = cubic.unbind(-1)
        rise = (1 + ((3 * c3 * f + 2 * c2) * f + c1) * self.density) * self.rate(within) / self.x
        by_x = torch.where(self.x < math.exp(self.table.top), rise, self.beyond)
        kappa = self.radius(within) / self.x
        return kappa, (by_x - kappa) / (2 * self.x * self.x), self.radius_by_q(by_q) / self.x


class _SphericalLookup(_Lookup):
    """The same on a sphere."""

    beyond = 0.0

    def __init__(self, square: Tensor, q: Tensor, table: _Table, *parts: Tensor) -> None:
        super().__init__(square, q, table, *parts)
        self.half = (-q).clamp(1e-30, table.last).sqrt() / 2

    def columns_from_first(self, linear: Tensor, columns: int) -> Tensor:
        square = (self.x * self.x).clamp(max=math.exp(2 * self.table.top))
        density = columns / (self.table.top + math.exp(2 * self.table.top) / 8 - _LINEAR)
        self.density = density * (1 + square / 4)
        return (self.a - linear + square / 8 - _LINEAR) * density

    def unfold(self, place: Tensor) -> Tensor:
        return (self.half * place.exp()).atan() / self.half

    def rate(self, within: Tensor) -> Tensor:
        return (2.0 * self.half * within).sin() / (2.0 * self.half)

    def radius(self, within: Tensor) -> Tensor:
        return within / self.over.sqrt()

    def radius_by_q(self, by_q: Tensor) -> Tensor:
        return by_q * self.over**-1.5


def _find(square: Tensor, q: Tensor, kernel: radial.Kernel) -> _Lookup:
    table = _Table.of(kernel, square.device)
    cell, powers = table.locate(q)
    kind = _SphericalLookup if kernel.spherical else _Lookup
    return kind(square, q, table, table.over(q), table.linear(cell, powers)[0], cell, powers)


class _Stretch(Primitive):
    differentiable = True

    @staticmethod
    def forward(square: Tensor, q: Tensor, kernel: radial.Kernel) -> Tensor:
        lookup = _find(square, q, kernel)
        return lookup.radius(lookup.within()) / lookup.x

    @classmethod
    def traced(cls, square: Tensor, q: Tensor, kernel: radial.Kernel) -> Tensor:
        with torch.no_grad():
            lookup = _find(square.detach(), q.detach(), kernel)
            kappa, slopes = lookup.radius(lookup.within()) / lookup.x, lookup.all()[1:]
        return radial.with_slopes(kappa, (square, q), slopes)

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        by_square, by_q = _StretchSlopes.call(*inputs)
        return grad * by_square, grad * by_q


class _StretchSlopes(radial.Undifferentiated):
    @staticmethod
    def forward(square: Tensor, q: Tensor, kernel: radial.Kernel) -> tuple[Tensor, Tensor]:
        return _find(square, q, kernel).all()[1:]


def stretch(square: Tensor, q: Tensor, kernel: radial.Kernel, exact: bool) -> Tensor:
    """Compute κ(|ε|, q) for `square` = |ε|² (float64); `exact` to double precision, else to that of the table.

    Differentiable once in both. `q` broadcasts against `square` and should not be expanded to its shape.
    """
    if kernel.dim == 1 and not kernel.spherical:
        return torch.ones_like(square) + 0 * q  # half-normal at every q
    kappa = _Stretch.call(square, q, kernel)
    if not exact:
        return kappa
    x = (square + _TINY).sqrt()
    return radial.quantile(*radial.chi_log_cdfs(x, kernel.dim), q, kernel, start=(kappa * x).detach(), steps=3) / x


def lookup(square: Tensor, q: Tensor, prior_q: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute κ, ∂ log κ/∂q, log I(q) − log I(prior_q), and (log I)′ at q and at prior_q, at once, to single precision,
    without gradient.
    """
    table = _Table.of(radial.Kernel(dim), square.device)
    both = torch.cat([q.flatten(), prior_q.flatten()])
    cell, powers = table.locate(both)
    over, (linear, rise) = table.over(both), table.linear(cell, powers)
    log_normaliser, rise = table.log_normaliser(over, linear, rise)
    count, shape = q.numel(), q.shape
    own = [part[:count].view(*shape, *part.shape[1:]) for part in (over, linear, cell, powers)]
    found = _Lookup(square, q, table, *own)
    within, by_q, _ = found.joint()
    radius = found.radius(within)
    drop = log_normaliser[:count].view(shape) - log_normaliser[count:].view(prior_q.shape)
    rises = rise[:count].view(shape), rise[count:].view(prior_q.shape)
    return radius / found.x, found.radius_by_q(by_q) / radius, drop, *rises


def lookup_on_sphere(
    square: Tensor, q: Tensor, kernel: radial.SphericalKernel
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute κ, ∂κ/∂|ε|², ∂κ/∂q, log I(q) − log I(0) and (log I)′ at once, to single precision, without gradient."""
    found = _find(square, q, kernel)
    linear, rise = found.table.linear(found.cell, found.powers)
    return *found.all(), *found.table.log_normaliser(found.over, linear, rise)
