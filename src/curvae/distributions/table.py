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
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from ..geometry.primitive import Primitive, constant
from . import radial

__all__ = ["log_normaliser_rises", "lookup", "stretch"]

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
    linear: Tensor  # λ: (cells of y, 6)
    linear_rise: Tensor  # dλ/dq, likewise
    value: Tensor  # log T − a: (cells of y, cells of a, 6·4)
    slope: Tensor  # ω, likewise

    def locate(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """The cell of y(q) and the powers of the place within it, along a new last axis."""
        shifted = q.clamp(max=self.last) + self.near
        y = (shifted.sqrt() + self.bend * shifted.log() - self.origin) / self.step
        cell = _index(y, self.linear.shape[0])
        place = y - cell
        powers = [torch.ones_like(place)]
        for _ in range(_STENCIL - 1):
            powers.append(powers[-1] * place)
        return cell, torch.stack(powers, -1)

    def log_normaliser(self, q: Tensor, cell: Tensor, powers: Tensor) -> tuple[Tensor, Tensor]:
        """log I(q) and its derivative, to single precision; past the table the radius is normal around n·√q."""
        n, quintic = self.dim - 1, embedding(cell, self.linear)
        counts = torch.arange(1.0, _STENCIL, dtype=q.dtype, device=q.device)
        rise = (quintic[..., 1:] * powers[..., :-1] * counts).sum(-1)
        shifted = q + self.near
        rise = rise * (0.5 * shifted.rsqrt() + self.bend / shifted) / self.step
        at_zero = (self.dim / 2 - 1) * math.log(2) + math.lgamma(self.dim / 2)
        far = q.clamp_min(self.last)
        past = n * (n / 2 * far - math.log(2) - far.log() / 2) + math.log(2 * math.pi) / 2
        inside = q < self.last
        value = torch.where(inside, self.dim * (quintic * powers).sum(-1) + at_zero, past)
        return value, torch.where(inside, self.dim * rise, n * (n - 1 / far) / 2)

    def log_normaliser_rise(self, q: Tensor) -> Tensor:
        """The derivative of log I by itself: some two digits more than that of the interpolated log I."""
        n, (cell, powers) = self.dim - 1, self.locate(q)
        inside = self.dim * (embedding(cell, self.linear_rise) * powers).sum(-1)
        return torch.where(q < self.last, inside, n * (n - 1 / q.clamp_min(self.last)) / 2)


def _index(place: Tensor, count: int) -> Tensor:
    """The cell of a place; one that is not a number is in some cell too, where its value is none."""
    return place.clamp(0, count - 1).nan_to_num(0.0).long()


def _table(dim: int, device: torch.device) -> _Table:
    return _Table(*_fields(dim, device))


_TABLES: dict[tuple[int, torch.device], tuple[Any, ...]] = {}


@constant
def _fields(dim: int, device: torch.device) -> tuple[Any, ...]:
    """The table's fields, a constant to torch.compile; built at the first use of a dimension."""
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

    cells = _cells(tau - a, (rise - 1) * width), _cells(omega, omega_rise * width)  # of the value and the slope
    lines = [_quintics(line) for line in (linear[:, 0], mean_tilt / dim)]
    quintics = [_quintics(cell).transpose(1, 2).flatten(2) for cell in cells]
    return dim, near, bend, y[0].item(), step, root**2, top, *lines, *quintics


def _cells(value: Tensor, rise: Tensor) -> Tensor:
    """Cubics between neighbouring columns from values and derivatives, coefficients along a new last axis."""
    p, r, m, s = value[:, :-1], value[:, 1:], rise[:, :-1], rise[:, 1:]
    return torch.stack([p, m, 3 * (r - p) - 2 * m - s, 2 * (p - r) + m + s], -1)


def _quintics(rows: Tensor) -> Tensor:
    """Polynomials between neighbouring rows, each through the six rows around it; coefficients as a new second axis."""
    pieces = []
    for i in range(_ROWS - 3):
        first = min(max(i - _STENCIL // 2 + 1, 0), _ROWS - _STENCIL)
        nodes = np.arange(first, first + _STENCIL) - float(i)
        inverse = torch.from_numpy(np.linalg.inv(np.vander(nodes, increasing=True)))
        pieces.append(torch.tensordot(inverse, rows[first : first + _STENCIL], 1))
    return torch.stack(pieces)


def _cubic(table: Tensor, cell: Tensor, powers: Tensor, column: Tensor) -> tuple[Tensor, ...]:
    """Coefficients of the cubic in cell (y, a) for every draw; `cell` and `powers` may have fewer dimensions."""
    columns = table.shape[1]
    if 8 * cell.numel() > column.numel():
        # Few draws share a q: fetch each draw's own 6×4 coefficients.
        rows = embedding(cell * columns + column, table.flatten(0, 1)).unflatten(-1, (_STENCIL, 4))
        return tuple((rows * powers.unsqueeze(-1)).sum(-2).unbind(-1))
    # Many do: contract over y once a q, then fetch four numbers a draw.
    rows = embedding(cell, table.flatten(1)).unflatten(-1, (columns, _STENCIL, 4))
    rows = (rows * powers[..., None, :, None]).sum(-2).reshape(-1, 4)
    index = torch.arange(cell.numel(), device=cell.device).view(cell.shape) * columns + column
    return tuple(embedding(index, rows).unbind(-1))


class _Lookup:
    """Where draws lie in the table: what κ and its slopes have in common. `cell` and `powers` are `locate(q)`."""

    def __init__(self, square: Tensor, q: Tensor, table: _Table, cell: Tensor, powers: Tensor) -> None:
        self.table, self.q, self.cell, self.powers = table, q, cell, powers
        linear = (embedding(cell, table.linear) * powers).sum(-1)
        columns = table.value.shape[1]
        self.x = (square + _TINY).sqrt()
        self.a = self.x.log().clamp(max=table.top) + linear
        self.density = columns / (table.top + linear - _LINEAR)
        place = ((self.a - _LINEAR) * self.density).clamp(0, columns)
        self.column = _index(place, columns)
        self.place = place - self.column

    def cubic(self, table: Tensor) -> tuple[Tensor, ...]:
        return _cubic(table, self.cell, self.powers, self.column)

    def within(self) -> Tensor:
        """T up to the ends of the table in x and q."""
        c0, c1, c2, c3 = self.cubic(self.table.value)
        f = self.place
        return (self.a + ((c3 * f + c2) * f + c1) * f + c0).exp()

    def kappa(self, within: Tensor) -> Tensor:
        """T/x, given `within`; past the table T grows as x and as n·√q."""
        over_x = (self.x - math.exp(self.table.top)).clamp_min(0.0)
        over_q = (self.table.dim - 1) * (self.q.sqrt() - math.sqrt(self.table.last)).clamp_min(0.0)
        return (within + over_x + over_q) / self.x

    def by_q(self, within: Tensor) -> Tensor:
        """∂κ/∂q, given `within`."""
        f = self.place
        c0, c1, c2, c3 = self.cubic(self.table.slope)
        omega = ((c3 * f + c2) * f + c1) * f + c0
        past = (self.table.dim - 1) / 2 * self.q.clamp_min(self.table.last).rsqrt()
        return torch.where(self.q > self.table.last, past, within * omega) / self.x

    def slopes(self) -> tuple[Tensor, Tensor]:
        """∂κ/∂|ε|² and ∂κ/∂q."""
        f = self.place
        within = self.within()
        by_q = self.by_q(within)
        _, c1, c2, c3 = self.cubic(self.table.value)
        rise = (1 + ((3 * c3 * f + 2 * c2) * f + c1) * self.density) * within / self.x
        by_x = torch.where(self.x < math.exp(self.table.top), rise, 1.0)
        return (by_x - self.kappa(within)) / (2 * self.x * self.x), by_q


def _find(square: Tensor, q: Tensor, dim: int) -> _Lookup:
    table = _table(dim, square.device)
    return _Lookup(square, q, table, *table.locate(q))


class _Stretch(Primitive):
    @staticmethod
    def forward(square: Tensor, q: Tensor, dim: int) -> Tensor:
        lookup = _find(square, q, dim)
        return lookup.kappa(lookup.within())

    @classmethod
    def traced(cls, square: Tensor, q: Tensor, dim: int) -> Tensor:
        with torch.no_grad():
            lookup = _find(square.detach(), q.detach(), dim)
            kappa, slopes = lookup.kappa(lookup.within()), lookup.slopes()
        return radial.with_slopes(kappa, (square, q), slopes)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        square, q, ctx.dim = inputs
        ctx.save_for_backward(square, q)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        square, q = ctx.saved_tensors
        by_square, by_q = _StretchSlopes.call(square, q, ctx.dim)
        return (grad * by_square).sum_to_size(square.shape), (grad * by_q).sum_to_size(q.shape), None


class _StretchSlopes(radial.Undifferentiated):
    @staticmethod
    def forward(square: Tensor, q: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        return _find(square, q, dim).slopes()


def stretch(square: Tensor, q: Tensor, dim: int, exact: bool) -> Tensor:
    """κ(|ε|, q) for `square` = |ε|² (float64); `exact` to double precision, else to that of the table.

    Differentiable once in both. `q` broadcasts against `square` and should not be expanded to its shape.
    """
    if dim == 1:
        return torch.ones_like(square) + 0 * q  # half-normal at every q
    kappa = _Stretch.call(square, q, dim)
    if not exact:
        return kappa
    x = (square + _TINY).sqrt()
    return radial.quantile(*radial.chi_log_cdfs(x, dim), q, dim, start=(kappa * x).detach(), steps=3) / x


def lookup(square: Tensor, q: Tensor, prior_q: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """κ, ∂κ/∂q, log I(q) − log I(prior_q) and its derivative in q, at once, to single precision, without gradient."""
    table = _table(dim, square.device)
    both = torch.cat([q.flatten(), prior_q.flatten()])
    cell, powers = table.locate(both)
    value, rise = table.log_normaliser(both, cell, powers)
    count = q.numel()
    found = _Lookup(square, q, table, cell[:count].view(q.shape), powers[:count].view(*q.shape, _STENCIL))
    within = found.within()
    drop = value[:count].view(q.shape) - value[count:].view(prior_q.shape)
    return found.kappa(within), found.by_q(within), drop, rise[:count].view(q.shape)


def log_normaliser_rises(dim: int, *shapes: Tensor) -> tuple[Tensor, ...]:
    """∂ log I/∂q at each of the given q, without gradient."""
    table = _table(dim, shapes[0].device)
    rises = table.log_normaliser_rise(torch.cat([q.flatten() for q in shapes]))
    parts = rises.split([q.numel() for q in shapes])
    return tuple(part.view(q.shape) for part, q in zip(parts, shapes, strict=True))
