"""Operations of every manifold on a grid of cases, near the origin and as far out as they reach, with exact results.

The results are computed by mpmath from the same floats. Those of `data/operation_results.npz`, which `make_oracles.py`
writes, are read from there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import cycle, product
from typing import Any, NamedTuple
from zlib import crc32

import mpmath as mp
import numpy as np
import torch

from curvae import Euclidean, Lorentz, PoincareBall, RiemannianNormal, WrappedNormal
from oracles import (
    Vector,
    ball_dist,
    ball_exp,
    ball_log,
    ball_to_lorentz,
    dot,
    log_riemannian,
    log_wrapped,
    lorentz_to_ball,
    mobius_add,
    vector,
)
from paths import DATA

TIME, SCALE = 0.3125, 0.75  # of points on geodesics and of distributions, exact in float32
CURVATURES = (0.0, 1e-6, 0.3, 1.0, 7.0)
DIMS = (2, 5, 10)
DTYPES = (torch.float32, torch.float64)
# √c·radius, as shares of what a chart and a dtype hold, and in numbers; the radius itself where c = 0.
NEAR, FAR = (0.0, 1e-5, 0.6), (0.15, 1.0)
REACH = {
    (Lorentz, torch.float32): 78.0,
    (Lorentz, torch.float64): 164.0,
    (PoincareBall, torch.float32): 13.0,
    (PoincareBall, torch.float64): 34.0,
}
REACH |= {(Euclidean, dtype): 1e6 for dtype in DTYPES}
ANGLES = ("aligned", "opposite", "nearly aligned", "right", "acute")


# --- the paper's formulas, in ball coordinates -----------------------------------------------------------------------


def scaled(k: Any, x: Vector) -> Vector:
    return [k * a for a in x]


def length(x: Vector) -> Any:
    return mp.sqrt(dot(x, x))


def factor(x: Vector, c: Any) -> Any:
    return 2 / (1 - c * dot(x, x))


def zeros(x: Vector) -> Vector:
    return [mp.mpf(0)] * len(x)


def times(r: Any, x: Vector, c: Any) -> Vector:
    size = mp.sqrt(c) * length(x)
    return scaled(mp.tanh(r * mp.atanh(size)) / size if size else r, x)


def transport(c: Any, x: Vector, y: Vector, u: Vector) -> Vector:
    """(λ_x/λ_y)·gyr[y, −x]u with gyr[a, b]u = −(a ⊕ b) ⊕ (a ⊕ (b ⊕ u)), which is linear in u."""
    small = mp.mpf(1) / 1000 / ((1 + length(u)) * mp.sqrt(1 + c))
    back = scaled(-1, x)
    turned = mobius_add(y, mobius_add(back, scaled(small, u), c), c)
    turned = mobius_add(scaled(-1, mobius_add(y, back, c)), turned, c)
    return scaled(factor(x, c) / factor(y, c) / small, turned)


def plane_distance(c: Any, x: Vector, p: Vector, a: Vector) -> Vector:
    w = mobius_add(scaled(-1, p), x, c)
    y = 2 * dot(w, a) / ((1 - c * dot(w, w)) * length(a))
    return [mp.asinh(mp.sqrt(c) * y) / mp.sqrt(c) if c else y]


def on_the_way(c: Any, t: Any, x: Vector, y: Vector) -> Vector:
    return mobius_add(x, times(t, mobius_add(scaled(-1, x), y, c), c), c)


def log_density(law: Callable[..., Any], c: Any, x: Vector, y: Vector) -> Vector:
    with mp.workdps(30):  # what does not depend on the points
        constant = law(mp.mpf(0), mp.mpf(SCALE), c, len(x))
    r = ball_dist(x, y, c)
    stretch = (len(x) - 1) * mp.log(mp.sinh(mp.sqrt(c) * r) / (mp.sqrt(c) * r)) if law is log_wrapped and c else 0
    return [constant - r * r / (2 * mp.mpf(SCALE) ** 2) - stretch]


class Operation(NamedTuple):
    """Arguments and result are points (p), tangent vectors at the first, the second point or the origin (1, 2, 0),
    space parts (s), other vectors (g) or numbers (n)."""

    arguments: str
    result: str
    exact: Callable[..., Vector]  # from c and the arguments, in ball coordinates
    call: Callable[..., Any] | None = None  # from the manifold and the arguments, if it is not the method of that name


def mean_of_two(space: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return space.frechet_mean(torch.stack([x, y], -2), torch.tensor([1 - TIME, TIME]))


def density(law: Any, space: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return law(x, SCALE, space).log_prob(y)


EVERYWHERE = {
    "dist": Operation("pp", "n", lambda c, x, y: [ball_dist(x, y, c)]),
    "dist0": Operation("p", "n", lambda c, x: [ball_dist(x, zeros(x), c)]),
    "expmap": Operation("p1", "p", lambda c, x, u: ball_exp(x, u, c)),
    "logmap": Operation("pp", "1", lambda c, x, y: ball_log(x, y, c)),
    "expmap0": Operation("0", "p", lambda c, u: ball_exp(zeros(u), u, c)),
    "logmap0": Operation("p", "0", lambda c, y: ball_log(zeros(y), y, c)),
    "geodesic": Operation("npp", "p", lambda c, t, x, y: on_the_way(c, t[0], x, y)),
    "frechet_mean": Operation("pp", "p", lambda c, x, y: on_the_way(c, mp.mpf(TIME), x, y), mean_of_two),
    "dist2plane": Operation("pp2", "n", plane_distance),
    "transp": Operation("pp1", "2", transport),
    "transp0": Operation("p0", "1", lambda c, y, u: scaled(2 / factor(y, c), u)),
    "inner": Operation("p11", "n", lambda c, x, u, v: [factor(x, c) ** 2 * dot(u, v)]),
    "norm": Operation("p1", "n", lambda c, x, u: [factor(x, c) * length(u)]),
    "to_lorentz": Operation("p", "s", lambda c, x: ball_to_lorentz(x, c)),
    "from_lorentz": Operation("s", "p", lambda c, S: lorentz_to_ball(S, c)),
    "WrappedNormal": Operation("pp", "n", partial(log_density, log_wrapped), partial(density, WrappedNormal)),
    "RiemannianNormal": Operation("pp", "n", partial(log_density, log_riemannian), partial(density, RiemannianNormal)),
}
OF_THE_BALL = {
    "lambda_x": Operation("p", "n", lambda c, x: [factor(x, c)]),
    "egrad2rgrad": Operation("p1", "1", lambda c, x, g: scaled(1 / factor(x, c) ** 2, g)),
    "mobius_add": Operation("pp", "p", lambda c, x, y: mobius_add(x, y, c)),
    "mobius_scalar_mul": Operation("np", "p", lambda c, r, x: times(r[0], x, c)),
}
OF_LORENTZ = {
    "time": Operation("s", "n", lambda c, S: [mp.sqrt(1 + c * dot(S, S))]),
    # A unit vector e of the frame at S moves its coordinates by e + c·S⟨S, e⟩/(1 + ξ).
    "egrad2rgrad": Operation("sg", "g", lambda c, S, g: [*map(sum, zip(g, _along(c, S, g), strict=True))]),
}


def _along(c: Any, S: Vector, g: Vector) -> Vector:
    return scaled(c * dot(S, g) / (1 + mp.sqrt(1 + c * dot(S, S))), S)


def in_lorentz_coordinates(operation: Operation, c: Any, *arguments: Vector) -> Vector:
    """`exact`, with points as space parts and tangent vectors in frames."""
    kinds = operation.arguments
    given = [lorentz_to_ball(x, c) if kind == "p" else x for kind, x in zip(kinds, arguments, strict=True)]
    points = [x for kind, x in zip(kinds, given, strict=True) if kind == "p"]

    def stretch(kind: str) -> Any:
        return mp.mpf(2) if kind == "0" else factor(points[int(kind) - 1], c)

    given = [scaled(1 / stretch(kind), x) if kind in "012" else x for kind, x in zip(kinds, given, strict=True)]
    found = operation.exact(c, *given)
    if operation.result == "p":
        return ball_to_lorentz(found, c)
    return scaled(stretch(operation.result), found) if operation.result in "012" else found


# --- exact results ---


class Reference:
    """The exact result and its derivatives in all arguments and in c, by differences in very high precision.

    The gradients are those of the sum of the result with `weights`.
    """

    def __init__(self, f: Callable[..., Vector], c: float, arguments: Sequence[torch.Tensor], radius: float) -> None:
        self.f, self.digits = f, digits(radius)
        with mp.workdps(self.digits):
            self.blocks = [vector(x.reshape(-1)) for x in arguments]
            self.sizes = [length(block) for block in self.blocks]
            self.base = [a for block in self.blocks for a in block] + [mp.mpf(c)]
            step = difference(self.digits)
            self.steps = [
                (size or 1) * step for block, size in zip(self.blocks, self.sizes, strict=True) for _ in block
            ]
            self.steps.append((self.base[-1] or 1) * step)
            self.value = self._at()
            self.weights = vector(weights(len(self.value)))
            self.moved = [self._at(i) for i in range(len(self.base))]
            self.slopes = [
                [(a - b) / step for a, b in zip(f, self.value, strict=True)]
                for f, step in zip(self.moved, self.steps, strict=True)
            ]
        self._moved_twice: dict[tuple[int, ...], Any] = {}

    def _at(self, *places: int) -> Vector:
        x = list(self.base)
        for i in places:
            x[i] += self.steps[i]
        split, start = [], 0
        for block in self.blocks:
            split.append(x[start : start + len(block)])
            start += len(block)
        return self.f(x[-1], *split)

    def _at_both(self, *places: int) -> Any:
        places = tuple(sorted(places))
        if places not in self._moved_twice:
            self._moved_twice[places] = dot(self.weights, self._at(*places))
        return self._moved_twice[places]

    def block(self, i: int) -> range:
        """Places of an argument; of c, after the last."""
        start = sum(len(block) for block in self.blocks[:i])
        return range(start, start + (len(self.blocks[i]) if i < len(self.blocks) else 1))

    def sensitivities(self) -> Iterator[Any]:
        """‖f‖, then ‖xᵢ‖·‖∂f/∂xᵢ‖."""
        yield length(self.value)
        for i, size in enumerate(self.sizes):
            yield size * mp.sqrt(sum(dot(self.slopes[k], self.slopes[k]) for k in self.block(i)))

    def gradient(self, i: int) -> Vector:
        return [dot(self.weights, self.slopes[k]) for k in self.block(i)]

    def gradient_sensitivities(self, i: int) -> Iterator[Any]:
        """As above, of the gradient in argument i. Second differences are costly, and made when they are needed."""
        yield length(self.gradient(i))
        value, moved = dot(self.weights, self.value), [dot(self.weights, f) for f in self.moved]
        for j, size in enumerate(self.sizes):
            total = mp.mpf(0)
            for k, m in product(self.block(i), self.block(j)):
                both = self._at_both(k, m) if size else 0
                total += ((both - moved[k] - moved[m] + value) / (self.steps[k] * self.steps[m])) ** 2 if size else 0
            yield size * mp.sqrt(total)


class StoredReference:
    """A `Reference` as a row of numbers in float64, the sensitivities summed up."""

    def __init__(self, row: np.ndarray, case: Case) -> None:
        self.row, numbers = row, iter(row.tolist())

        def read(count: int) -> tuple[Vector, Any]:
            return [next(numbers) for _ in range(count)], next(numbers)

        self.digits = digits(case.radius)
        self.value, self._sensitivity = read(case.sizes[0])
        self._gradients = [read(size) for size in case.sizes[1:]]

    def sensitivities(self) -> Iterator[Any]:
        yield self._sensitivity

    def gradient(self, i: int) -> Vector:
        return self._gradients[i][0]

    def gradient_sensitivities(self, i: int) -> Iterator[Any]:
        yield self._gradients[i][1]


def digits(radius: float) -> int:
    return int(90 + 3.5 * radius)


def difference(digits: int) -> Any:
    """The step of differences, relative to the size of an argument; also their relative error."""
    return mp.mpf(10) ** -(digits // 3)


def weights(count: int) -> torch.Tensor:
    return torch.linspace(-0.75, 1.25, count, dtype=torch.float64)


# --- the sweep -------------------------------------------------------------------------------------------------------


# Nothing here depends on the platform: sums of products are exact to the last rounding, functions are those of mpmath.


def size(x: torch.Tensor) -> float:
    return math.sqrt(math.fsum((x * x).tolist()))


def directions(dim: int, angle: str, dtype: torch.dtype, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two directions at an angle, and one across the first."""
    numbers = random.Random(seed)
    u, other = torch.tensor([[numbers.random() - 0.5 for _ in range(dim)] for _ in range(2)], dtype=torch.float64)
    u = u / size(u)
    across = other - u * math.fsum((u * other).tolist())
    across = across / size(across)
    slight = across * float(mp.mpf(torch.finfo(dtype).eps) ** 0.6)
    w = {"aligned": u, "opposite": -u, "nearly aligned": u + slight, "right": across, "acute": u + 2 * across}[angle]
    return u, w / size(w), across


def at(chart: Any, c: float, direction: torch.Tensor, radius: float, dtype: torch.dtype) -> torch.Tensor:
    """The point at a √c·radius."""
    if chart is PoincareBall:
        radius = float(mp.tanh(radius / 2)) if c else radius / 2
    elif c:
        radius = float(mp.sinh(radius))
    return (direction * (radius / math.sqrt(c or 1))).to(dtype)


def vectors(chart: Any, c: float, x: torch.Tensor | None, v: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tangent vector at x, or at the origin, of the metric coordinates √c·v."""
    stretch = 2.0 if x is None else 2 / (1 - c * math.fsum((x.double() ** 2).tolist()))
    return (v / math.sqrt(c or 1) / (stretch if chart is PoincareBall else 1)).to(dtype)


OPERATIONS = [
    *product([Lorentz], [*EVERYWHERE, *OF_LORENTZ]),
    *product([PoincareBall], [*EVERYWHERE, *OF_THE_BALL]),
    *product([Euclidean], EVERYWHERE),
]
# Where a sum of two radii, or the mean as it is found by iteration, has to stay within reach.
HALF = {"expmap": 0.49, "mobius_add": 0.49}
MEAN = 5.0


def operation(chart: Any, name: str) -> Operation:
    return {Lorentz: OF_LORENTZ, PoincareBall: OF_THE_BALL, Euclidean: {}}[chart].get(name) or EVERYWHERE[name]


class Case(NamedTuple):
    """A call of an operation."""

    chart: Any
    name: str
    label: tuple[Any, ...]
    dim: int
    curvature: float
    arguments: list[torch.Tensor]
    radius: float  # √c times the largest distance that occurs

    @property
    def operation(self) -> Operation:
        return operation(self.chart, self.name)

    @property
    def learned(self) -> bool:
        """Whether there is a derivative in c."""
        return self.chart is not Euclidean and self.name != "RiemannianNormal"

    @property
    def sizes(self) -> list[int]:
        """How many numbers the result and its gradients have."""
        result = 1 if self.operation.result == "n" else self.dim
        return [result, *(x.numel() for x in self.arguments), *[1] * self.learned]

    def fingerprint(self) -> int:
        """Of all that the exact result depends on, but for its formula."""
        numbers = [self.curvature, self.radius, *(a for x in self.arguments for a in x.double().tolist())]
        return crc32(np.array(numbers).tobytes())

    def computed(self) -> Reference:
        exact = self.operation.exact
        if self.chart is not PoincareBall:
            exact = partial(in_lorentz_coordinates, self.operation)
        return Reference(exact, self.curvature, self.arguments, self.radius)

    def stored(self) -> StoredReference | None:
        """The exact result as it was stored, unless it was for other numbers."""
        row = stored_results(self.chart.__name__, self.name).get(self.fingerprint())
        return None if row is None else StoredReference(row, self)

    def row(self) -> list[float]:
        """What is stored of the exact result."""
        reference = self.computed()
        with mp.workdps(reference.digits):
            row = [*reference.value, sum(reference.sensitivities())]
            for i in range(len(self.sizes) - 1):
                row += [*reference.gradient(i), sum(reference.gradient_sensitivities(i))]
            return [float(a) for a in row]


def call(cases: Sequence[Case], c: torch.Tensor, arguments: Sequence[torch.Tensor]) -> torch.Tensor:
    """Do one operation for all cases of one dimension and dtype, whose arguments and curvatures are rows."""
    first = cases[0]
    space = Euclidean(first.dim) if first.chart is Euclidean else first.chart(first.dim, c)
    kinds = zip(first.operation.arguments, arguments, strict=True)
    given = [x.squeeze(-1) if kind == "n" else x for kind, x in kinds]
    return (first.operation.call or (lambda space, *given: getattr(space, first.name)(*given)))(space, *given)


def cases(chart: Any, name: str) -> Iterator[Case]:
    kinds = operation(chart, name).arguments
    # Arithmetic is float64 in any case, and float32 the result.
    settings = cycle(product(DIMS, CURVATURES[:1] if chart is Euclidean else CURVATURES))
    dtypes = cycle([torch.float64, torch.float64, torch.float64, torch.float32])
    pairs = product(range(len(NEAR + FAR)), range(len(NEAR + FAR)), ANGLES[2::2] if chart is Euclidean else ANGLES)
    if sum(kind in "ps" for kind in kinds) < 2 and name != "expmap":
        pairs = product(range(len(NEAR + FAR)), [2], ANGLES)
    grid = zip(pairs, settings, dtypes, strict=False)
    for seed, ((first, second, angle), (dim, curvature), dtype) in enumerate(grid):
        reach = REACH[chart, dtype] * HALF.get(name, 1.0)
        reach = min(reach, MEAN) if name == "frechet_mean" else reach
        radii = [*NEAR, *(share * reach for share in FAR)]
        a, b = radii[first], radii[second]
        u, w, across = directions(dim, angle, dtype, seed)
        x, y = at(chart, curvature, u, a, dtype), at(chart, curvature, w, b, dtype)
        if torch.equal(x, y):  # where distances have no derivative
            continue
        step = {"1": w * b if name == "expmap" else u + across, "2": u + across, "0": w * b}
        points, arguments = iter([x, y]), []
        for kind in kinds:
            if kind == "n":
                arguments.append(torch.tensor([TIME], dtype=dtype))
            elif kind in "ps":
                point = next(points)
                arguments.append(point if kind == "p" else at(Lorentz, curvature, (u, w)[point is y], a, dtype))
            elif kind == "g":
                arguments.append((u + across).to(dtype))
            else:
                arguments.append(vectors(chart, curvature, {"1": x, "2": y, "0": None}[kind], step[kind], dtype))
        if any(not argument.any() for argument in arguments) and name in ("dist0", "norm", "expmap"):
            continue
        radius = (a + b if curvature else 1.0) * (2 if name in HALF else 1)
        yield Case(chart, name, (str(dtype), dim, curvature, a, b, angle), dim, curvature, arguments, radius)


# --- the stored results ----------------------------------------------------------------------------------------------


STORED = DATA / "operation_results.npz"


@cache
def stored_results(chart: str, name: str) -> dict[int, np.ndarray]:
    """Rows of results by the fingerprints of their cases."""
    with np.load(STORED) as file:
        lengths, numbers = file[f"{chart}.{name}.lengths"], file[f"{chart}.{name}"]
    rows = np.split(numbers, np.cumsum(lengths)[:-1])
    return {int(row[0]): row[1:] for row in rows}


def rows(chart: Any, name: str) -> list[np.ndarray]:
    """The numbers of all cases of an operation as they are stored, each after its fingerprint."""
    return [np.array([case.fingerprint(), *case.row()]) for case in cases(chart, name)]
