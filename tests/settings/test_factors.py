"""How a latent space is written."""

from __future__ import annotations

import pytest

from curvae.errors import CurvaeError
from curvae.nn import Space
from curvae.settings import FactorSettings, parse_space
from curvae.training import Config

# --- texts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("h2", [(2, 1.0, False)]),
        ("h2:1.2", [(2, 1.2, False)]),
        ("h10:1e-3", [(10, 1e-3, False)]),
        ("h2:learn", [(2, 1.0, True)]),
        ("e3", [(3, 0.0, False)]),
        ("h2:0", [(2, 0.0, False)]),
        (" h2 , e3,h2:learn", [(2, 1.0, False), (3, 0.0, False), (2, 1.0, True)]),
    ],
)
def test_texts(text, factors):
    found = parse_space(text)
    assert found == tuple(FactorSettings(*factor) for factor in factors)
    assert parse_space(",".join(factor.text for factor in found)) == found
    space = Space(text)
    assert [(f.dim, f.curvature().item(), f.curvature.learnable) for f in space] == [
        (dim, pytest.approx(c), learned) for dim, c, learned in factors
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "product of factors"),
        ("h", "product of factors"),
        ("2", "product of factors"),
        ("h0", "product of factors"),
        ("h2,", "product of factors"),
        ("h2;e3", "product of factors"),
        ("h2 e3", "product of factors"),
        ("H2", "product of factors"),
        ("x2", "unknown kind x"),
        ("h2,u3", "unknown kind u"),
        ("e3:1", "a flat factor has no curvature; write e3"),
        ("e3:learn", "a flat factor has no curvature; write e3"),
        ("h2:-1", "c ≥ 0"),
        ("h2:nan", "c ≥ 0"),
        ("h2:inf", "c ≥ 0"),
        ("h2:learned", "c ≥ 0.*or learn"),
        (2, "`space` must be a text"),
        (["h2"], "`space` must be a text"),
    ],
)
def test_texts_that_say_nothing_are_refused(text, message):
    with pytest.raises(CurvaeError, match=message) as caught:
        parse_space(text)
    assert "\n" not in str(caught.value)
    with pytest.raises(CurvaeError, match=message):
        Config(space=text)
