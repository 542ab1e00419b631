"""How sets of curvatures are judged: tables drawn, pieces kept, shares counted."""

import json
from dataclasses import replace

import numpy as np
import pytest
from benchmarks import curvature_calibration as module
from scipy import stats

X = np.arcsinh(module.VALUES)


def piece(best, seed, learned):
    """What is kept of a table whose scores are highest at x = `best`."""
    random = np.random.default_rng(seed)
    scores = -((X - best - 0.2 * random.normal(size=(module.REPEATS, 1))) ** 2)
    rows = scores[0] + 0.05 * random.normal(size=(40, len(X)))
    return {"scores": scores.tolist(), "rows": rows.tolist(), "learned": learned, "ratio": 2 / 7}


def test_what_is_best_on_average():
    scores = -((X - np.array([[0.9], [1.1]])) ** 2)
    assert module.best_on_average(scores) == pytest.approx(np.sinh(1.0))
    assert module.best_on_average(-(X[None] ** 2)) == 0.0 and module.best_on_average(X[None]) == 4.0


def test_shares_of_sets():
    learned = np.linspace(0.5, 0.9, module.REPEATS)
    found = module.sum_up([*(piece(1.0, seed, learned.tolist()) for seed in range(5)), piece(2.0, 9, learned.tolist())])
    assert found["tables"] == 6 and found["set"]["coverage"]["count"] == 5
    assert found["set"]["verdicts"]["curved"]["count"] == 6 and found["set"]["median_high"] < 2.5
    x = np.arcsinh(learned)
    low, high = np.sinh(stats.t.interval(0.95, len(x) - 1, x.mean(), stats.sem(x)))
    assert found["learned"]["median_low"] == pytest.approx(low)
    assert found["learned"]["median_high"] == pytest.approx(high) and found["learned_median"] == pytest.approx(0.7)
    assert found["set"]["coverage"]["interval_95"] == pytest.approx([0.4365, 0.9699], abs=1e-4)  # Wilson, 5 of 6
    lines = module.table({"cells": {"few rows": found}}).splitlines()
    assert len(lines) == 5 and lines[2].startswith("| 6 of few rows | 1.") and "| 83 % (44 to 97) |" in lines[2]


def test_tables_are_drawn_from_their_truth():
    flat, curved = (module.draw_table(400, truth, 3) for truth in (0.0, 2.0))
    assert flat.shape == (400, 10) and (module.draw_table(400, 0.0, 3) == flat).all() and not np.allclose(flat, curved)
    assert flat.std(0) == pytest.approx(np.full(10, np.sqrt(1 + module.NOISE**2)), rel=0.15)


def test_pieces_are_kept_and_summed_up(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "CELLS", {"40 rows": (40, 0.5)})
    monkeypatch.setattr(module, "CONFIG", replace(module.CONFIG, epochs=1, hidden=(4,)))
    monkeypatch.setattr(module, "SAMPLES", 2)
    words = ["--tables", "1", "--folder", str(tmp_path / "pieces"), "--out", str(tmp_path / "found.json")]
    module.main(words)
    (path,) = (tmp_path / "pieces").iterdir()
    kept = json.loads(path.read_text())
    assert path.name == "40-0.5-0.json" and np.shape(kept["scores"]) == (8, 5) and np.shape(kept["rows"]) == (64, 5)
    assert np.mean(kept["scores"]) == pytest.approx(np.mean(kept["rows"]), abs=1e-3) and len(kept["learned"]) == 8
    assert json.loads((tmp_path / "found.json").read_text())["cells"]["40 rows"]["tables"] == 1
    monkeypatch.setattr(module, "fit_many", None)  # what is there is not trained again
    module.main(words)
    assert "| 1 of 40 rows |" in capsys.readouterr().out
