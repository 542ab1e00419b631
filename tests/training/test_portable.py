"""Encoder and decoder outside of Curvae: as modules, as programs of torch.export, and as ONNX files in onnxruntime."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache
from unittest import mock

import numpy as np
import pytest
import torch

from curvae.data import Arrays
from curvae.errors import CurvaeError
from curvae.training import Config, embed, fit
from curvae.training.portable import export_part, onnx_bytes, portable, torch_bytes

ROWS = 400
SMALL = Config(hidden=(16,), epochs=1, batch_size=100, patience=None)
RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.normal(size=(ROWS, 5)) * [1, 10, 1e3, 1e-3, 1] + [0, 5, 1e6, 0, -1]
YES = (RANDOM.random((ROWS, 5)) < 0.4).astype(float)
COUNTS = RANDOM.poisson(3.0, (ROWS, 5)).astype(float)
KINDS = np.concatenate([np.eye(3)[RANDOM.integers(3, size=ROWS)], np.eye(2)[RANDOM.integers(2, size=ROWS)]], 1)
GAPS = np.where(RANDOM.random(NUMBERS.shape) < 0.2, np.nan, NUMBERS)
CONTEXT = np.concatenate([RANDOM.normal(size=(ROWS, 1)), np.eye(2)[RANDOM.integers(2, size=ROWS)]], 1)
CONSTANT = np.concatenate([NUMBERS, np.full((ROWS, 1), 7.25)], 1)

# Every likelihood, decoder and network, and every kind of space.
CASES = {
    "gaussian": (replace(SMALL, likelihood="gaussian"), Arrays(CONSTANT)),
    "unit_gaussian": (replace(SMALL, likelihood="unit_gaussian", decoder="mobius"), Arrays(NUMBERS)),
    "flat": (replace(SMALL, likelihood="gaussian", space="e2", decoder="log_mlp"), Arrays(NUMBERS)),
    "bernoulli": (replace(SMALL, likelihood="bernoulli", space="h2,h2", decoder="gyroplane_scalar"), Arrays(YES)),
    "categorical": (
        replace(SMALL, likelihood="categorical", space="h3:learn", decoder="mlp"),
        Arrays(KINDS, blocks=(3, 2)),
    ),
    "poisson": (
        replace(SMALL, likelihood="poisson", posterior="wrapped", diagonal=True, prior_scale=0.5),
        Arrays(COUNTS, size=RANDOM.uniform(0.5, 4.0, ROWS)),
    ),
    "zinb": (
        replace(SMALL, likelihood="zinb", dispersion="gene-cell"),
        Arrays(COUNTS, size=COUNTS.sum(1), total=True),
    ),
    "mixed": (
        replace(SMALL, likelihood="mixed", space="h2,e3", encode_covariates=True),
        Arrays(np.concatenate([NUMBERS, YES, KINDS], 1), context=CONTEXT, blocks=(*[0] * 5, *[1] * 5, 3, 2)),
    ),
    "gaps": (replace(SMALL, likelihood="gaussian"), Arrays(GAPS, context=CONTEXT, missing=True)),
    "conv": (
        replace(SMALL, likelihood="bernoulli", network="conv"),
        Arrays((RANDOM.random((ROWS, 64)) < 0.3).astype(float), shape=(8, 8)),
    ),
}
CASES["flat_conv"] = replace(CASES["conv"][0], space="e2"), CASES["conv"][1]
CASES["mixed_gaps"] = (
    CASES["mixed"][0],
    replace(CASES["mixed"][1], x=np.concatenate([GAPS, YES, KINDS], 1), missing=True),
)
# Those that between them have all that is special in a graph: factors of both kinds, covariates, likelihoods in parts,
# missing values; convolutions. A file takes some seconds.
WRITTEN = ("mixed_gaps", "flat_conv")


@pytest.fixture(scope="module")
def trained():
    """Models of the cases, trained when they are first asked for."""
    held = {}

    def get(name):
        if name not in held:
            config, data = CASES[name]
            held[name] = fit(config, data, device="cpu")
        return held[name]

    return get


@pytest.fixture(scope="module")
def parts(trained):
    """Encoder and decoder of a case."""
    return cache(lambda name: portable(trained(name)))


@pytest.fixture(scope="module")
def exported():
    """The program of one of `parts`, which takes seconds to trace; writing it to a file does not change it."""
    held = {}

    def get(part):
        if id(part) not in held:
            held[id(part)] = export_part(part)
        return held[id(part)]

    return get


def inputs(part, data, space):
    known = {"x": data.x, "space": space, "context": data.context, "size": data.size}
    return {name: np.asarray(known[name], np.float64) for name in part.inputs}


def expected(fitted, data):
    """What the library says, with networks in float64."""
    fitted = fitted.double()
    place = embed(fitted, data)
    return place, fitted.reconstruct(place.space, context=data.context, size=data.size)


def assert_close(found, wanted):
    """To 1e-5 of every number, or of what is usual in its column where that is more."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape and found.dtype == np.float64
    error = np.abs(found - wanted) / np.maximum(np.abs(wanted), wanted.std(0) + 1e-300)
    assert error.max() < 1e-5, error.max()


def check(fitted, parts, data, run):
    """Compare what `run` finds with the library; it takes a part and its inputs by name."""
    encoder, decoder = parts
    place, mean = expected(fitted, data)
    space, ball = run(encoder, inputs(encoder, data, None))
    assert_close(space, place.space)
    assert_close(ball, place.ball)
    (found,) = run(decoder, inputs(decoder, data, place.space))
    assert_close(found, mean)


def as_tensors(values):
    return {name: torch.from_numpy(value) for name, value in values.items()}


def as_module(part, values):
    with torch.no_grad():
        found = part.module(**as_tensors(values))
    return [t.numpy() for t in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("name", CASES)
def test_modules_agree_with_the_library(name, trained, parts):
    check(trained(name), parts(name), CASES[name][1], as_module)


@pytest.mark.filterwarnings("ignore:`isinstance\\(treespec:FutureWarning")  # of torch itself, while it loads
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.compiled
def test_programs_of_torch_run_for_any_number_of_rows(trained, parts, exported):
    def run(part, values):
        program = torch.export.load(io.BytesIO(torch_bytes(exported(part)))).module()
        with torch.no_grad():
            one = program(**as_tensors({name: value[:1] for name, value in values.items()}))
            found = program(**as_tensors(values))
        alone, found = (t if isinstance(t, tuple) else (t,) for t in (one, found))
        for a, b in zip(alone, found, strict=True):
            torch.testing.assert_close(a, b[:1], rtol=1e-5, atol=1e-6 * float(b.std()))
        return [t.numpy() for t in found]

    check(trained("mixed_gaps"), parts("mixed_gaps"), CASES["mixed_gaps"][1], run)


@pytest.fixture(scope="module")
def _one_registry():
    """What torch knows of ONNX, which takes a quarter of the time of a file, is put together once."""
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with mock.patch.object(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib))):
        yield


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.usefixtures("_one_registry")
@pytest.mark.parametrize("name", WRITTEN)
def test_onnx_files_agree_with_the_library(name, trained, parts, exported):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

    def run(part, values):
        session = runtime.InferenceSession(onnx_bytes(part, exported(part)), providers=["CPUExecutionProvider"])
        assert [one.name for one in session.get_inputs()] == list(part.inputs)
        assert [one.name for one in session.get_outputs()] == list(part.outputs)
        found = session.run(None, values)
        alone = session.run(None, {name: value[:1] for name, value in values.items()})
        for a, b in zip(alone, found, strict=True):
            np.testing.assert_allclose(a, b[:1], rtol=1e-5, atol=1e-6 * b.std())
        return found

    check(trained(name), parts(name), CASES[name][1], run)


def test_missing_values_are_filled_where_the_model_does_not_know_them(trained):
    fitted = trained("unit_gaussian")
    fills = NUMBERS.mean(0)
    encoder, _ = portable(fitted, fills=fills)
    space, _ = as_module(encoder, {"x": GAPS})
    assert_close(space, embed(fitted, np.where(np.isnan(GAPS), fills, GAPS)).space)
    encoder, _ = portable(fitted)
    lacking = np.isnan(GAPS).any(1)
    space, _ = as_module(encoder, {"x": GAPS})
    assert np.isnan(space[lacking]).all() and not np.isnan(space[~lacking]).any()


def test_covariates_are_given_in_original_units(trained):
    fitted, data = trained("mixed"), CASES["mixed"][1]
    raw = CONTEXT * [4.0, 1.0, 1.0] + [30.0, 0.0, 0.0]
    encoder, decoder = portable(fitted, covariates=[(30.0, 4.0), (0.0, 1.0), (0.0, 1.0)])
    place, mean = expected(fitted, data)
    assert_close(as_module(encoder, {"x": data.x, "context": raw})[0], place.space)
    assert_close(as_module(decoder, {"space": place.space, "context": raw})[0], mean)


def test_what_is_lacking_is_named(trained, monkeypatch):
    monkeypatch.setattr("curvae.training.portable.find_spec", lambda name: None)
    part = portable(trained("flat"))[0]
    with pytest.raises(CurvaeError, match=r"onnx and onnxscript must be installed .* pip install onnx onnxscript"):
        onnx_bytes(part, None)
