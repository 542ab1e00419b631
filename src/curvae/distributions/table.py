"""Draws of the Riemannian radius without rejection: a smooth map of the normal noise, tabulated once a dimension.

For noise ε ∈ ℝ^d let x = |ε|, which is χ distributed, as the radius at q = 0 is (notation of `radial`). The radius
t of the same quantile, F(t; q) = F(x; 0), is an increasing function t = T(x; q) with T(x; 0) = x, so that

    v = σ·κ·ε,    κ(x, q) = T(x; q)/x,

is a draw of the Riemannian normal: the wrapped normal's draw stretched along its ray, and the same draw at c = 0.

For small x, T = e^λ·x with λ(q) = (log I(q) − log I(0))/d. So log T is tabulated against a = log x + λ, in which the
bend of T at radius about 1/√q stays in one place: log T − a and ω = ∂ log T/∂q are cubics in a on uniform cells, from
where T is linear to the largest x that occurs, with coefficients that are quintics in y(q) on uniform cells. y is
linear in q near 0 on the scale π²/x² of the nearest singularity and then grows like √q. Past the last q, T = z + n·√q
to rounding, z the normal quantile. Float64 draws take the table as a start and finish with Newton's method on the exact
integrals.
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

from ..geometry.primitive import Primitive, constant
from . import radial

__all__ = ["lookup", "stretch"]

_COLUMNS = 128  # nodes in a
_ROWS = 80  # nodes in y(q)
_STENCIL = 6  # nodes that determine a quintic
_LINEAR = -9.0  # log T below which T is linear in x to rounding
_TOP_TAIL = -32.0  # log-probability of an x beyond the table
_TINY = 1e-200  # added to |ε|², whose logarithm is then finite


@dataclass(frozen=True)
class _Table:
    dim: int
    near: float  # the scale in q near 0
    bend: float  # y(q) = √(q + near) + bend·log(q + near)
    origin: float  # y(0)
    step: float  # width of a cell in y
    last: float  # the largest q that is looked up
    top: float  # log of the largest x
    lines: Tensor  # λ and dλ/dq: (cells of y, 2·6)
    value: Tensor  # log T − a: (cells of y, cells of a, 6·4)
    joint: Tensor  # the same and ω: (cells of y, cells of a, 6·2·4)

    @classmethod
    def of(cls, dim: int, device: torch.device) -> _Table:
        """Return the table of a dimension, built at its first use."""
        return cls(*_fields(dim, device))

    def locate(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cell of y(q) and the powers of the place within it, along a new last axis."""
        shifted = q.clamp(max=self.last) + self.near
        y = (torch.add(shifted.sqrt(), shifted.log(), alpha=self.bend) - self.origin) / self.step
        cell = y.long().clamp(0, self.lines.shape[0] - 1)  # NaN is in some cell too, where its value is NaN
        place = y - cell
        powers = [torch.ones_like(place), place]
        while len(powers) < _STENCIL:
            powers.append(powers[-1] * place)
        return cell, torch.stack(powers, -1)

    def linear(self, cell: Tensor, powers: Tensor) -> tuple[Tensor, ...]:
        """Compute λ and dλ/dq, up to the last q."""
        lines = embedding(cell, self.lines).unflatten(-1, (2, _STENCIL))
        return (lines * powers.unsqueeze(-2)).sum(-1).unbind(-1)

    def over(self, q: Tensor) -> Tensor:
        """By which factor q is past the last one; 1 up to there."""
        return (q / self.last).clamp_min(1.0)

    def log_normaliser(self, over: Tensor, linear: Tensor, rise: Tensor) -> tuple[Tensor, Tensor]:
        """Compute log I(q) − log I(0) and its derivative; past the table the radius is normal around n·√q."""
        n = self.dim - 1.0
        grown = torch.add((over - 1.0) * (n * n / 2 * self.last), over.log(), alpha=-n / 2)
        grows = (1.0 - 1.0 / over) * (n / 2 / self.last)
        return torch.add(grown, linear, alpha=self.dim), torch.add(grows, rise, alpha=self.dim)


_TABLES: dict[tuple[int, torch.device], tuple[Any, ...]] = {}


@constant
def _fields(dim: int, device: torch.device) -> tuple[Any, ...]:
    """Return the table's fields, a constant to torch.compile."""
    if (dim, device) not in _TABLES:
        cpu = torch.device("cpu")
        if (dim, cpu) not in _TABLES:
            with torch.no_grad():
                _TABLES[dim, cpu] = _build(dim)
        _TABLES[dim, device] = tuple(
            field.to(device) if isinstance(field, Tensor) else field for field in _TABLES[dim, cpu]
        )
    return _TABLES[dim, device]


def _build(dim: int) -> tuple[Any, ...]:
    n = dim - 1
    zero = torch.zeros((), dtype=torch.float64)
    tail = torch.full((), _TOP_TAIL, dtype=torch.float64)
    top = radial.quantile(torch.log1p(-tail.exp()), tail, zero, dim).log().item()
    near, bend = math.pi**2 * math.exp(-2 * top), 0.3 / math.sqrt(max(n, 1))
    # Past this root of q the lower end z = −8 of the noise has n·exp(−2√q·t) below rounding.
    root = (8 + math.sqrt(64 + 2 * n * (20 + math.log(n)))) / (2 * n) if n else 1.0

    # Rows: uniform in y, two of them beyond the last q so that every cell has nodes on both sides.
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

    log_i = radial.log_normaliser(q, dim).unsqueeze(-1)
    linear = (log_i - log_i[0]) / dim
    width = (top + linear - _LINEAR) / (_COLUMNS - 1)
    a = _LINEAR + width * torch.arange(_COLUMNS, dtype=torch.float64)
    x = (a - linear).exp()
    tails = radial.chi_log_cdfs(x, dim)

    # Each row starts from the two before it, in y, where they lie evenly.
    log_t = [x[0].log()]
    for i in range(1, _ROWS):
        start = (2 * log_t[-1] - log_t[-2]).exp() if i > 2 else None
        lower, upper = (tail[i] for tail in tails)
        log_t.append(radial.quantile(lower, upper, q[i], dim, start, 12 if start is None else 2).log())
    tau = torch.stack(log_t)
    t = tau.exp()
    rows = q.unsqueeze(-1)

    omega = radial.quantile_slopes(t, rows, *tails, dim)[0] / t
    # dτ/da from ρ(x; 0)·dx = ρ(t; q)·dt, and dω/da from (ρ·∂t/∂q)′ = −ρ·(g − E[g]).
    rise = (radial.log_kernel(x, zero, dim) + x.log() - radial.log_kernel(t, rows, dim) - tau - log_i[0] + log_i).exp()
    tilt, mean_tilt = radial.tilt(t, rows, dim), radial.mean_tilt(q, dim)
    force = n + 2 * rows * tilt - t * t  # t·(log ρ)′
    omega_rise = (mean_tilt.unsqueeze(-1) - tilt - (1 + force) * omega) * rise

    lines = _quintics(torch.stack([linear[:, 0], mean_tilt / dim], -1)).mT.flatten(1)
    value, slope = _cells(tau - a, (rise - 1) * width), _cells(omega, omega_rise * width)
    joint = torch.stack([value, slope], -2).flatten(2)
    return dim, near, bend, y[0].item(), step, root**2, top, lines, value.flatten(2), joint


def _cells(value: Tensor, rise: Tensor) -> Tensor:
    """Polynomials on cells, from values and derivatives at their corners: cubics between neighbouring columns, with
    coefficients along a new last axis that are quintics between neighbouring rows, along a new third axis."""
    p, r, m, s = value[:, :-1], value[:, 1:], rise[:, :-1], rise[:, 1:]
    cubics = torch.stack([p, m, 3 * (r - p) - 2 * m - s, 2 * (p - r) + m + s], -1)
    return _quintics(cubics).transpose(1, 2)


def _quintics(rows: Tensor) -> Tensor:
    """Polynomials between neighbouring rows, each through the six rows around it; coefficients as a new second axis."""
    pieces = []
    for i in range(_ROWS - 3):
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
    index = torch.arange(cell.numel(), device=cell.device).view(cell.shape) * columns + column
    return embedding(index, rows)


def _evaluate(cubics: Sequence[Tensor], place: Tensor) -> Tensor:
    """Values of cubics, given by their four coefficients."""
    c0, c1, c2, c3 = cubics
    return torch.addcmul(c0, torch.addcmul(c1, torch.addcmul(c2, c3, place), place), place)


class _Lookup:
    """Where draws lie in the table: what κ and its slopes have in common.

    Arguments:
        square: |ε|².
        over: `table.over(q)`.
        linear: λ(q).
        cell, powers: `table.locate(q)`.
    """

    def __init__(
        self, square: Tensor, table: _Table, over: Tensor, linear: Tensor, cell: Tensor, powers: Tensor
    ) -> None:
        self.table, self.over, self.cell, self.powers = table, over, cell, powers
        columns = table.value.shape[1]
        self.x = (square + _TINY).sqrt()
        self.a = self.x.log().clamp(max=table.top) + linear
        self.density = columns / (linear + (table.top - _LINEAR))
        place = ((self.a - _LINEAR) * self.density).clamp(0.0, columns)
        self.column = place.long().clamp(0, columns - 1)
        self.place = place - self.column

    def within(self) -> Tensor:
        """Compute T up to the ends of the table in x and q."""
        cubic = _cubics(self.table.value, self.cell, self.powers, self.column)
        return (self.a + _evaluate(cubic.unbind(-1), self.place)).exp()

    def joint(self) -> tuple[Tensor, Tensor, Tensor]:
        """Compute T and T·ω up to the ends of the table, and the coefficients of the cubic of T."""
        cubics = _cubics(self.table.joint, self.cell, self.powers, self.column).unflatten(-1, (2, 4))
        log_ratio, omega = _evaluate(cubics.unbind(-1), self.place.unsqueeze(-1)).unbind(-1)
        within = (self.a + log_ratio).exp()
        return within, within * omega, cubics[..., 0, :]

    def radius(self, within: Tensor) -> Tensor:
        """Compute T, given `within`; past the table it grows as x and as n·√q."""
        over_x = (self.x - math.exp(self.table.top)).clamp_min(0.0)
        over_q = (self.over.sqrt() - 1.0) * ((self.table.dim - 1) * math.sqrt(self.table.last))
        return within + over_x + over_q

    def radius_by_q(self, by_q: Tensor) -> Tensor:
        """Compute ∂T/∂q, given T·ω; past the table n/(2√q)."""
        return by_q + (self.over.rsqrt() - 1.0) * ((self.table.dim - 1) / 2 / math.sqrt(self.table.last))

    def slopes(self) -> tuple[Tensor, Tensor]:
        """Compute ∂κ/∂|ε|² and ∂κ/∂q."""
        f, (within, by_q, cubic) = self.place, self.joint()
        _, c1, c2, c3 = cubic.unbind(-1)
        rise = (1 + ((3 * c3 * f + 2 * c2) * f + c1) * self.density) * within / self.x
        by_x = torch.where(self.x < math.exp(self.table.top), rise, 1.0)
        return (by_x - self.radius(within) / self.x) / (2 * self.x * self.x), self.radius_by_q(by_q) / self.x


def _find(square: Tensor, q: Tensor, dim: int) -> _Lookup:
    table = _Table.of(dim, square.device)
    cell, powers = table.locate(q)
    return _Lookup(square, table, table.over(q), table.linear(cell, powers)[0], cell, powers)


class _Stretch(Primitive):
    differentiable = True

    @staticmethod
    def forward(square: Tensor, q: Tensor, dim: int) -> Tensor:
        lookup = _find(square, q, dim)
        return lookup.radius(lookup.within()) / lookup.x

    @classmethod
    def traced(cls, square: Tensor, q: Tensor, dim: int) -> Tensor:
        with torch.no_grad():
            lookup = _find(square.detach(), q.detach(), dim)
            kappa, slopes = lookup.radius(lookup.within()) / lookup.x, lookup.slopes()
        return radial.with_slopes(kappa, (square, q), slopes)

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        by_square, by_q = _StretchSlopes.call(*inputs)
        return grad * by_square, grad * by_q


class _StretchSlopes(radial.Undifferentiated):
    @staticmethod
    def forward(square: Tensor, q: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        return _find(square, q, dim).slopes()


def stretch(square: Tensor, q: Tensor, dim: int, exact: bool) -> Tensor:
    """Compute κ(|ε|, q) for `square` = |ε|² (float64); `exact` to double precision, else to that of the table.

    Differentiable once in both. `q` broadcasts against `square` and should not be expanded to its shape.
    """
    if dim == 1:
        return torch.ones_like(square) + 0 * q  # half-normal at every q
    kappa = _Stretch.call(square, q, dim)
    if not exact:
        return kappa
    x = (square + _TINY).sqrt()
    return radial.quantile(*radial.chi_log_cdfs(x, dim), q, dim, start=(kappa * x).detach(), steps=3) / x


def lookup(square: Tensor, q: Tensor, prior_q: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute κ, ∂ log κ/∂q, log I(q) − log I(prior_q), and (log I)′ at q and at prior_q, at once, to single precision,
    without gradient.
    """
    table = _Table.of(dim, square.device)
    both = torch.cat([q.flatten(), prior_q.flatten()])
    cell, powers = table.locate(both)
    over, (linear, rise) = table.over(both), table.linear(cell, powers)
    log_normaliser, rise = table.log_normaliser(over, linear, rise)
    count, shape = q.numel(), q.shape
    own = [part[:count].view(*shape, *part.shape[1:]) for part in (over, linear, cell, powers)]
    found = _Lookup(square, table, *own)
    within, by_q, _ = found.joint()
    radius = found.radius(within)
    drop = log_normaliser[:count].view(shape) - log_normaliser[count:].view(prior_q.shape)
    rises = rise[:count].view(shape), rise[count:].view(prior_q.shape)
    return radius / found.x, found.radius_by_q(by_q) / radius, drop, *rises
