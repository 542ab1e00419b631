"""Every operation of every manifold near the origin and as far out as it reaches, against mpmath with the same floats.

A result may be off by 32ε(‖f‖ + Σ‖xᵢ‖·‖∂f/∂xᵢ‖), a few times what rounding the arguments does to it, and a gradient by
ten times that with the gradient in place of f.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch

from operation_cases import OPERATIONS, Case, cases, difference, weights
from oracles import Vector

ALLOWED, ALLOWED_GRADIENT = 32, 320
EVERY = pytest.mark.parametrize(("chart", "name"), OPERATIONS, ids=lambda value: getattr(value, "__name__", value))


def excess(found: torch.Tensor, exact: Vector, unit: float, sensitivities: Iterator[Any], floor: float) -> float:
    """The error over `unit` times the sum of sensitivities, of which as many are asked for as make it at most 1."""
    if not found.isfinite().all():
        return math.inf
    error = math.hypot(*(float(a - b) for a, b in zip(found.double().reshape(-1).tolist(), exact, strict=True)))
    allowed = floor
    for size in sensitivities:
        allowed += unit * float(size)
        if error <= allowed:
            break
    return error / allowed if error else 0.0


def check(case: Case) -> dict[str, float]:
    """Values and gradients of one call; returns what is too far off."""
    c = torch.tensor(case.curvature, dtype=torch.float64, requires_grad=case.learned)
    given = [x.clone().requires_grad_() for x in case.arguments]
    found = case.call(c, given)
    reference = case.stored() or case.computed()
    epsilon = torch.finfo(found.dtype).eps
    with mp.workdps(reference.digits):
        errors = {"value": excess(found, reference.value, ALLOWED * epsilon, reference.sensitivities(), 0)}
        leaves = [*given, c] if case.learned else given
        total = (found.double().reshape(-1) * weights(found.numel())).sum()
        floor = 1000 * float(difference(reference.digits))
        for i, gradient in enumerate(torch.autograd.grad(total, leaves, allow_unused=True)):
            gradient = torch.zeros_like(leaves[i]) if gradient is None else gradient
            unit, sensitivities = ALLOWED_GRADIENT * epsilon, reference.gradient_sensitivities(i)
            errors[f"gradient {i}"] = excess(gradient, reference.gradient(i), unit, sensitivities, floor)
    return {part: error for part, error in errors.items() if not error <= 1}


@EVERY
def test_every_operation_near_and_far(chart, name):
    wrong = {case.label: bad for case in cases(chart, name) if (bad := check(case))}
    assert not wrong


@EVERY
def test_stored_results_are_those_of_the_formulas(chart, name):
    """A random case of each operation; where this fails, run `python tests/make_oracles.py`."""
    small = [case for case in cases(chart, name) if case.dim < 10]
    case = random.Random(f"{chart.__name__}.{name}").choice(small)
    stored = case.stored()
    if stored is None:
        pytest.skip("the cases are other numbers on this platform, and their results computed each time")
    np.testing.assert_allclose(stored.row, case.row(), rtol=1e-15, atol=1e-25)  # differences of what is 0 are not quite
