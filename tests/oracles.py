"""Independent references in arbitrary precision, written from the paper's formulas and from definitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import mpmath as mp
import torch

from paths import DATA

mp.mp.dps = 30

Vector = list[Any]
DIMS = (1, 2, 3, 5, 10, 20, 50, 100)
CURVATURES = (0.0, 1e-6, 0.1, 0.7, 1.0, 1.4, 10.0)
SCALES = (1e-4, 1e-3, 1e-2, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
CELLS = [(c, s) for c in CURVATURES for s in SCALES]


def mpf(x: float | torch.Tensor) -> Any:
    return mp.mpf(float(x))


def vector(x: torch.Tensor) -> Vector:
    return [mp.mpf(v) for v in x.double().tolist()]


def dot(u: Vector, v: Vector) -> Any:
    return mp.fdot(u, v)


def lorentz_to_ball(S: Vector, c: Any) -> Vector:
    xi = mp.sqrt(1 + c * dot(S, S))
    return [s / (1 + xi) for s in S]


def ball_to_lorentz(z: Vector, c: Any) -> Vector:
    return [2 * x / (1 - c * dot(z, z)) for x in z]


def ball_dist(x: Vector, y: Vector, c: Any) -> Any:
    """The paper's distance; at c = 0 its limit 2|x − y|."""
    gap = [a - b for a, b in zip(x, y, strict=True)]
    if c == 0:
        return 2 * mp.sqrt(dot(gap, gap))
    return mp.acosh(1 + 2 * c * dot(gap, gap) / ((1 - c * dot(x, x)) * (1 - c * dot(y, y)))) / mp.sqrt(c)


def mobius_add(x: Vector, y: Vector, c: Any) -> Vector:
    xy, xx, yy = dot(x, y), dot(x, x), dot(y, y)
    bottom = 1 + 2 * c * xy + c**2 * xx * yy
    return [((1 + 2 * c * xy + c * yy) * a + (1 - c * xx) * b) / bottom for a, b in zip(x, y, strict=True)]


def ball_exp(z: Vector, v: Vector, c: Any) -> Vector:
    length = mp.sqrt(dot(v, v))
    if length == 0:
        return z
    if c == 0:
        return [a + b for a, b in zip(z, v, strict=True)]
    factor = 2 / (1 - c * dot(z, z))
    step = mp.tanh(mp.sqrt(c) * factor * length / 2) / (mp.sqrt(c) * length)
    return mobius_add(z, [step * a for a in v], c)


def ball_log(z: Vector, y: Vector, c: Any) -> Vector:
    w = mobius_add([-a for a in z], y, c)
    length = mp.sqrt(dot(w, w))
    if length == 0:
        return [mp.mpf(0)] * len(z)
    if c == 0:
        return w
    factor = 2 / (1 - c * dot(z, z))
    step = 2 / (mp.sqrt(c) * factor) * mp.atanh(mp.sqrt(c) * length) / length
    return [step * a for a in w]


def gyroplane(z: Vector, a_prime: Vector, p_prime: Vector, c: Any) -> Any:
    """The paper's f_{a,p}(z) with p = exp_0(p′) and a the transport of a′ from 0 to p."""
    p = ball_exp([mp.mpf(0)] * len(z), p_prime, c)
    lam = 2 / (1 - c * dot(p, p))
    a = [2 / lam * x for x in a_prime]  # λ_0/λ_p
    w = mobius_add([-x for x in p], z, c)
    inner, length = dot(w, a), mp.sqrt(dot(a, a))
    if c == 0:
        return 4 * inner
    s = mp.sqrt(c)
    distance = mp.asinh(2 * s * abs(inner) / ((1 - c * dot(w, w)) * length)) / s
    return mp.sign(inner) * lam * length * distance


# --- the radius law -------------------------------------------------------------------------------------------------


def radius_density(t: Any, q: Any, dim: int) -> Any:
    """exp(−t²/2)·(sinh(√q·t)/√q)^(d−1), unnormalised."""
    s = mp.sqrt(q)
    stretch = mp.sinh(s * t) / s if q else t
    return mp.exp(-t * t / 2) * stretch ** (dim - 1)


def _centre(q: Any, dim: int) -> Any:
    n = dim - 1
    return mp.sqrt((n * n * q + mp.sqrt(n**4 * q * q + 4 * n * n)) / 2)


def integral(f: Callable[[Any], Any], a: Any, b: Any) -> Any:
    return mp.quad(f, [a, (a + b) / 2, b], method="gauss-legendre")


def window(q: Any, dim: int) -> tuple[Any, Any]:
    m = _centre(q, dim)
    return max(mp.mpf(0), m - 11), m + 11


@cache
def integrated_log_normaliser(q: Any, dim: int) -> Any:
    """log I(q), by quadrature."""
    return mp.log(integral(lambda t: radius_density(t, q, dim), *window(q, dim)))


def tilt(t: Any, q: Any, dim: int) -> Any:
    """∂/∂q of the logarithm of the unnormalised density."""
    n, x = dim - 1, mp.sqrt(q) * t
    if x < mp.mpf("1e-6"):
        return n * t * t * (mp.mpf(1) / 6 - x * x / 90)
    return n * (x * mp.coth(x) - 1) / (2 * q)


@cache
def integrated_log_normaliser_slope(q: Any, dim: int) -> Any:
    """∂/∂q log I(q), by differentiating under the integral."""
    total = integral(lambda t: radius_density(t, q, dim) * tilt(t, q, dim), *window(q, dim))
    return total / mp.exp(integrated_log_normaliser(q, dim))


@cache
def stored_normalisers() -> dict[tuple[int, str], tuple[str, str]]:
    """The two integrals above on the grid of dimensions, curvatures and scales, as `make_oracles.py` wrote them."""
    entries = json.loads((DATA / "log_normalisers.json").read_text(encoding="utf-8"))
    return {(dim, q): (value, slope) for dim, q, value, slope in entries}


def key(q: Any) -> str:
    """A shape q as the stored tables write it."""
    return mp.nstr(q, 30)


def log_normaliser(q: Any, dim: int) -> Any:
    """log I(q): the stored integral where there is one."""
    found = stored_normalisers().get((dim, key(q)))
    return mp.mpf(found[0]) if found else integrated_log_normaliser(q, dim)


def log_normaliser_slope(q: Any, dim: int) -> Any:
    """∂/∂q log I(q): the stored integral where there is one."""
    found = stored_normalisers().get((dim, key(q)))
    return mp.mpf(found[1]) if found else integrated_log_normaliser_slope(q, dim)


def tail(t: Any, q: Any, dim: int, lower: bool, weight: Callable[[Any], Any] = lambda _: mp.mpf(1)) -> Any:
    """∫_0^t or ∫_t^∞ of the normalised density times a weight."""
    ends = (max(mp.mpf(0), t - 11), t) if lower else (t, t + 11)
    scale = mp.exp(integrated_log_normaliser(q, dim))
    return integral(lambda u: radius_density(u, q, dim) * weight(u), *ends) / scale


def log_area(dim: int) -> Any:
    return mp.log(2) + mp.mpf(dim) / 2 * mp.log(mp.pi) - mp.loggamma(mp.mpf(dim) / 2)


def log_wrapped(r: Any, sigma: Any, c: Any, dim: int) -> Any:
    """Log-density of the isotropic wrapped normal at distance r from its centre."""
    s = mp.sqrt(c) * r
    correction = mp.log(s / mp.sinh(s)) if s else mp.mpf(0)
    return -r * r / (2 * sigma**2) - dim * mp.log(sigma) - mp.mpf(dim) / 2 * mp.log(2 * mp.pi) + (dim - 1) * correction


def log_riemannian(r: Any, sigma: Any, c: Any, dim: int) -> Any:
    """Log-density of the Riemannian normal at distance r from its centre."""
    log_i = log_normaliser(c * sigma**2, dim)
    return -r * r / (2 * sigma**2) - dim * mp.log(sigma) - log_i - log_area(dim)


def random_directions(count: int, dim: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    return x / x.norm(dim=-1, keepdim=True)


def at_radius(direction: torch.Tensor, radius: float, c: float) -> torch.Tensor:
    """Space part of the point at a distance from the origin, rounded to float32."""
    s = mp.sqrt(mp.mpf(c))
    size = mp.sinh(s * radius) / s if c else mp.mpf(radius)
    return (direction.double() * float(size)).float()


def relative(value: float | torch.Tensor, truth: Any, floor: float = 1.0) -> float:
    """|value − truth| relative to max(floor, |truth|)."""
    return float(abs(mp.mpf(float(value)) - truth) / max(mp.mpf(floor), abs(truth)))


def worst(errors: Sequence[float]) -> float:
    assert all(e == e for e in errors), "NaN"
    return max(errors)
