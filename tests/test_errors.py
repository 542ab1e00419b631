"""Errors name the parameter that they are about, and keep it when they are pickled."""

from __future__ import annotations

import pickle

import pytest

from curvae.data.dataset import MissingValuesError
from curvae.errors import CurvaeError, FixableError
from curvae.training import Config, GraphConfig

FIXES = [[("missing", "model"), ("missing", "mean")], [("id", "name")]]


@pytest.mark.parametrize(
    ("error", "parameter", "value"),
    [
        (CurvaeError("it is wrong"), None, None),
        (CurvaeError('use `missing="drop"` or `id=…`'), "missing", None),
        (CurvaeError("`dim` is 0", value=0), "dim", 0),
        (CurvaeError("there are gaps", parameter="missing", value="drop"), "missing", "drop"),
        (CurvaeError("`dim` is not that of `space`", parameter="space", value="h2"), "space", "h2"),
        (FixableError("there are gaps", FIXES), "missing", None),
    ],
)
def test_an_error_knows_its_parameter_and_value(error, parameter, value):
    assert (error.parameter, error.value) == (parameter, value)


def test_parameter_and_value_are_given_by_name():
    with pytest.raises(TypeError):
        CurvaeError("there are gaps", "missing")


@pytest.mark.parametrize(
    "error",
    [
        CurvaeError("there are gaps", parameter="missing", value="drop"),
        CurvaeError("`dim` is 0", value=0),
        FixableError("there are gaps", FIXES, "fill them in"),
        MissingValuesError("column 'a' has gaps", ("mean", "drop")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        found = pickle.loads(pickle.dumps(error, protocol))
        assert type(found) is type(error) and str(found) == str(error)
        assert vars(found) == vars(error) and found.parameters == error.parameters


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dim", 0),
        ("epochs", 10**7),
        ("curvature", -1.0),
        ("curvature", "flat"),
        ("posterior", "normal"),
        ("diagonal", "no"),
        ("hidden", (0,)),
        ("space", "h0"),
        ("space", "x2"),
        ("space", "e2:1"),
        ("space", "h2:x"),
        ("space", 3),
    ],
)
def test_settings_say_which_one_is_wrong(name, value):
    for kind in (Config, GraphConfig):
        with pytest.raises(CurvaeError) as caught:
            kind(**{name: value})
        assert (caught.value.parameter, caught.value.value) == (name, value)
