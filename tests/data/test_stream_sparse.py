"""CSR matrices that are read in pieces: the rows, their figures, and what is broken."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array, save_npz

from curvae.data import load, open_stream
from curvae.data.streams.stream import Summary
from curvae.errors import CurvaeError
from curvae.training import Config, fit
from streaming import COLUMNS, MEMORY


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def counts(rows=1500, seed=0):
    random = np.random.default_rng(seed)
    found = random.poisson(3, (rows, COLUMNS)) * (random.random((rows, COLUMNS)) < 0.1)
    found[7] = 0
    return csr_array(found.astype(np.float32))


def save(x, name="x.npz", compressed=False):
    save_npz(name, x, compressed=compressed)
    return name


def test_rows_are_those_of_the_file():
    x = counts()
    stream = open_stream(save(x), memory=MEMORY)
    assert len(stream.blocks.sizes) > 10
    pieces = [part.x for block in range(len(stream.blocks.sizes)) for part in stream.arrays(block)]
    np.testing.assert_array_equal(np.concatenate([piece.toarray() for piece in pieces]), x.toarray())
    rows = np.array([0, 7, 8, 1499])
    assert abs(stream.take(rows).x - x[rows]).max() == 0
    expected = load("x.npz")[1]
    assert (stream.schema.kind, stream.schema.names, stream.schema.shape) == (expected.kind, expected.names, (COLUMNS,))
    np.testing.assert_allclose(stream.schema.fills, expected.fills, rtol=1e-12)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("cut", [1, 40, 99])
def test_figures_are_those_of_the_matrix_spread_out(gaps, cut):
    x = counts(100, seed=1)
    x.data[::5] += 0.25
    x.data[::7] *= -1
    if gaps:
        x.data[::11] = np.nan
    dense = x.toarray().astype(np.float64)
    first = Summary.of(x[:cut])
    found = first.merge(Summary.of(x[cut:], first.origin))
    expected = Summary.of(dense)
    for name in ("present", "mean", "deviation", "low", "high"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-13, err_msg=name)
    for name in ("other", "broken"):
        np.testing.assert_array_equal(np.isnan(getattr(found, name)), np.isnan(getattr(expected, name)))
    np.testing.assert_allclose(found.mean_without(x[:9]), np.nanmean(dense[9:], 0), rtol=1e-12, atol=1e-13)


def test_a_model_of_counts_learns_as_from_rows_spread_out():
    x = counts()
    np.save("x.npy", x.toarray())
    config = Config(hidden=(8,), posterior="wrapped", epochs=1, batch_size=500, patience=None, seed=3)
    sparse, dense = (fit(config, open_stream(path, memory=MEMORY)) for path in (save(x), "x.npy"))
    assert sparse.config.likelihood == dense.config.likelihood
    assert sparse.history[-1]["elbo"] == pytest.approx(dense.history[-1]["elbo"], rel=1e-6)


def refused(says, name="x.npz"):
    with pytest.raises(CurvaeError, match=says) as error:
        open_stream(name, memory=MEMORY)
    assert "\n" not in str(error.value)


def test_what_can_only_be_read_as_a_whole():
    save(counts(), compressed=True)
    refused(r"x.npz is compressed; write it with scipy.sparse.save_npz\(…, compressed=False\)")
    save(csc_array(counts()))
    refused("cannot be read in pieces")


@pytest.mark.parametrize(("part", "value", "says"), [("indices", COLUMNS, "column index"), ("indptr", -1, "pointers")])
def test_a_broken_matrix(part, value, says):
    x = counts()
    getattr(x, part)[700] = value
    save(x)
    refused(f"x.npz cannot be read as a matrix of scipy.sparse.save_npz: .*{says}")


def test_a_matrix_that_changes_while_it_is_read():
    stream = open_stream(save(counts()), memory=MEMORY)
    next(stream.arrays(0))
    save(counts(1400))
    with pytest.raises(CurvaeError, match=r"x.npz was changed while it was being read; restore it"):
        list(stream.arrays(1))
