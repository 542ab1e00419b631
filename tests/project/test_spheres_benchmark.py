"""How spheres are judged: harmonics, densities of the truth, circular correlation, pieces kept and summed up."""

import json
from dataclasses import replace

import numpy as np
import pytest
from benchmarks import spheres as module
from scipy.stats import norm


def units(rows, width, seed=0):
    found = np.random.default_rng(seed).normal(size=(rows, width))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize(("width", "terms"), [(2, 6), (3, 15)])
def test_harmonics_are_orthonormal(width, terms):
    points = units(40_000, width)
    found = module.harmonics(points)
    assert found.shape == (40_000, terms)
    np.testing.assert_allclose(found.T @ found / 40_000, np.eye(terms), atol=0.05)
    np.testing.assert_allclose(found.mean(0), 0, atol=0.03)
    # Those of the first degree are the coordinates.
    slopes, left, *_ = np.linalg.lstsq(points, found[:, :width], rcond=None)
    assert left == pytest.approx(np.zeros(width), abs=1e-9)
    assert np.linalg.svd(slopes)[1] == pytest.approx(np.full(width, np.sqrt(width)))


@pytest.mark.parametrize("name", ["circle", "sphere"])
def test_densities_of_the_truth_by_sampling(name, monkeypatch):
    monkeypatch.setattr(module, "NOISE", 1.0)
    truth = module.Truth(name, 1)
    points, x = truth.draw(3)
    at = module.harmonics(units(100_000, points.shape[1])) @ truth.mixture
    sampled = [np.log(np.exp(norm.logpdf(row - at).sum(1)).mean()) for row in x]
    np.testing.assert_allclose(truth.log_prob(x, 60), sampled, atol=0.03)


def test_circular_correlation_knows_turns_and_reflections():
    turn = np.random.default_rng(0).uniform(0, 2 * np.pi, 300)
    circle = [np.stack([np.cos(angle), np.sin(angle)], 1) for angle in (turn, 1 - turn, 2 * turn)]
    assert module.circular_correlation(circle[0], circle[1]) == pytest.approx(1)
    assert module.circular_correlation(circle[0], circle[2]) < 0.05
    pairs = np.triu_indices(300, 1)  # as Fisher and Lee write it
    sines = [np.sin((angle[:, None] - angle)[pairs]) for angle in (turn, 1.3 * turn)]
    other = np.stack([np.cos(1.3 * turn), np.sin(1.3 * turn)], 1)
    expected = abs(sines[0] @ sines[1]) / np.sqrt((sines[0] @ sines[0]) * (sines[1] @ sines[1]))
    assert module.circular_correlation(circle[0], other) == pytest.approx(expected)


def test_pieces_are_kept_and_summed_up(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "CONFIG", replace(module.CONFIG, epochs=1, hidden=(4,)))
    for name, value in (("ROWS", 40), ("TESTS", 10), ("SAMPLES", 2)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "SPACES", {"circle": ("s1", "e2")})
    words = [
        "--data",
        "circle",
        "--seeds",
        "2",
        "--folder",
        str(tmp_path / "pieces"),
        "--out",
        str(tmp_path / "f.json"),
    ]
    module.main(words)
    assert len(list((tmp_path / "pieces").iterdir())) == 4
    found = json.loads((tmp_path / "f.json").read_text())["data"]["circle"]
    assert list(found) == ["s1", "e2"] and found["s1"]["seeds"] == [0, 1]
    assert found["s1"]["truth"] == found["e2"]["truth"] and len(found["s1"]["ranks"]) == 2
    monkeypatch.setattr(module, "fit_many", None)  # what is there is not trained again
    module.main(words)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("| circle | `e2` | −") and lines[-1].endswith(" of 2 |")


def test_table_of_digits():
    cell = {"seeds": [0, 3], "circular_correlation": [0.1234, 0.9876]}
    assert module.table({"data": {"digit": {"s1": cell}}}).splitlines()[-3:] == [
        "| digit | 0 | 3 |",
        "|---|---|---|",
        "| circular correlation | 0.123 | 0.988 |",
    ]
