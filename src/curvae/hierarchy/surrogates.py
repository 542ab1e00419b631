"""Data without a hierarchy that have the covariance spectrum of given data.

Everything is done on the Gram matrix of the centred points, G = −½·J·D²·J with J = 1 − 11ᵀ/n, which any distances D
have. Its eigenvectors U and eigenvalues Λ are the principal scores; eigenvalues below 0 belong to distances that no
Euclidean space has, and are kept. Three kinds of surrogates keep Λ:

- **rotated**: U becomes a random frame. For normal rows, whatever their covariance, G and its rotation have the
  same distribution, so a test against rotations is exact.
- **flipped**: every score gets a random sign. The distribution stays the same for clouds that are symmetric about their
  axes: spheres, boxes, grids, heavy tails.
- **permuted**: scores of one axis are dealt to other rows. The distribution stays the same where axes are independent.

A table has columns as well. Its surrogates of a fourth kind keep the distribution of every column, which says much
where values are sparse or skewed, and how rows differ in their means:

- **dealt**: values of every column are dealt among rows of about the same mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "SURROGATES",
    "Spectrum",
    "Surrogate",
    "compare_to_surrogates",
    "flipped",
    "gram_of_distances",
    "permuted",
    "rotated",
]

Array = NDArray[np.float64]

_COUNT = 79  # surrogates of a kind: the smallest p-value is 1/80
_ENOUGH = 6  # as many surrogates that look more like a hierarchy than the data settle that kind
_SETTLED = 0.1  # a p-value above this is settled by one kind of surrogates
_ALIKE = 10  # rows of about the same mean
_WAYS = 256
_FLAT = 1e-9  # eigenvalues of this share of the largest are rounding


@dataclass(frozen=True)
class Spectrum:
    """Principal axes of several sets of points, stacked; the smaller sets and those of fewer axes are filled up with 0.

    Arguments:
        axes: eigenvectors of the Gram matrices, (sets, points, axes).
        scale: roots of the absolute eigenvalues, (sets, 1, axes).
        sign: of the eigenvalues, likewise.
        real: 1 for points, 0 for what fills up, (sets, points, 1).
    """

    axes: Array
    scale: Array
    sign: Array
    real: Array

    @classmethod
    def of_grams(cls, grams: Sequence[Array]) -> Spectrum:
        """Of Gram matrices, which are centred here."""
        found = [_eigen(gram) for gram in grams]
        points, axes = max(map(len, grams)), max(len(values) for values, _ in found)
        made = cls(
            np.zeros((len(grams), points, axes)),
            np.zeros((len(grams), 1, axes)),
            np.zeros((len(grams), 1, axes)),
            np.zeros((len(grams), points, 1)),
        )
        for place, (values, vectors) in enumerate(found):
            size, count = vectors.shape
            made.axes[place, :size, :count] = vectors
            made.scale[place, 0, :count] = np.sqrt(np.abs(values))
            made.sign[place, 0, :count] = np.sign(values)
            made.real[place, :size] = 1
        return made

    def grams(self, axes: Array | None = None) -> Array:
        """The Gram matrices, (sets, points, points), with these axes in place of their own."""
        scores = (self.axes if axes is None else axes) * self.scale
        return (scores * self.sign) @ scores.swapaxes(1, 2)


def _eigen(gram: Array) -> tuple[Array, Array]:
    centred = gram - gram.mean(0)
    centred -= centred.mean(1, keepdims=True)
    values, axes = np.linalg.eigh((centred + centred.T) / 2)
    kept = np.abs(values) > _FLAT * np.abs(values).max(initial=0.0)
    return values[kept], axes[:, kept]


def gram_of_distances(distances: Array) -> Array:
    """Inner products of the centred points that have these distances."""
    square = distances**2
    square = square - square.mean(0)
    return -0.5 * (square - square.mean(1, keepdims=True))


def rotated(spectrum: Spectrum, random: np.random.Generator) -> Array:
    """Gram matrices of the same spectrum whose axes are a random frame of the centred space."""
    frame = random.standard_normal(spectrum.axes.shape) * spectrum.real
    frame -= spectrum.real * (frame.sum(1, keepdims=True) / spectrum.real.sum(1, keepdims=True))
    # Axes beyond those of a set have no length, whatever the decomposition makes of them.
    return spectrum.grams(np.linalg.qr(frame)[0])


def flipped(spectrum: Spectrum, random: np.random.Generator) -> Array:
    """Gram matrices from the same scores, each with a random sign."""
    return spectrum.grams(np.where(random.random(spectrum.axes.shape) < 0.5, spectrum.axes, -spectrum.axes))


def permuted(spectrum: Spectrum, random: np.random.Generator) -> Array:
    """Gram matrices from the same scores, those of every axis dealt to other points."""
    order = np.argsort(random.random(spectrum.axes.shape) + 1 - spectrum.real, axis=1)  # what fills up stays last
    return spectrum.grams(np.take_along_axis(spectrum.axes, order, 1))


def dealt(values: Array, blocks: NDArray[np.intp], random: np.random.Generator) -> Array:
    """A table whose columns are dealt, each for itself, among rows of about the same mean.

    Arguments:
        values: (rows, columns).
        blocks: number of the block of each column; columns of one block are dealt together.
        random: source of the draws.

    Example:
        >>> table = np.arange(12.0).reshape(6, 2)
        >>> np.sort(dealt(table, np.array([0, 1]), np.random.default_rng(0)), axis=0).tolist() == table.tolist()
        True
    """
    rows = len(values)
    turn = np.arange(rows) // _ALIKE
    turn[turn == turn[-1]] = max(0, turn[-1] - (rows % _ALIKE > 0))  # a rest joins those before it
    # Blocks share some of many ways of dealing, which are drawn anew each time.
    count = int(blocks[-1]) + 1
    ways = np.argsort(random.random((rows, min(count, _WAYS))) + turn[:, None], axis=0)
    chosen = random.integers(_WAYS, size=count) if count > _WAYS else np.arange(count)
    return np.take_along_axis(values[np.argsort(values.mean(1))], ways[:, chosen[blocks]], 0)


Surrogate = Callable[[Spectrum, np.random.Generator], Array]
SURROGATES: Sequence[Surrogate] = (rotated, flipped, permuted)


def compare_to_surrogates(observed: float, kinds: Sequence[Callable[[], float]], margin: float = 0.0) -> float:
    """p-value of a statistic that is small where there is a hierarchy: the largest over kinds of surrogates.

    With b of N surrogates at or below the data it is (b + 1)/(N + 1). Surrogates are drawn only until so many lie there
    that the answer is clear (Besag and Clifford, 1991): the p-value is then b/N with the N drawn so far.

    Arguments:
        observed: the statistic of the data.
        kinds: for every kind of surrogates a function that draws one and gives its statistic.
        margin: what the data must fall short by, as a share: data that follow none of the distributions which
            surrogates stand for differ from them a little, and with many rows a little would be found significant.

    Example:
        >>> compare_to_surrogates(0.5, [lambda: 0.9]) == 1 / 80, compare_to_surrogates(0.5, [lambda: 0.51], margin=0.1)
        (True, 1.0)
    """
    found = 0.0
    for draw in kinds:
        below = drawn = 0
        while drawn < _COUNT and below < _ENOUGH:
            below += bool((1 - margin) * draw() <= observed)
            drawn += 1
        found = max(found, below / drawn if below == _ENOUGH else (below + 1) / (drawn + 1))
        if found > _SETTLED:
            break
    return found
