"""How long fits take: the files that are fitted, and what is made of the seconds."""

import numpy as np
import pandas as pd
import pytest
from benchmarks.fit_times import SETS, _row, _write
from benchmarks.maps.data import Data

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_files_hold_the_data(tmp_path, likelihood):
    given, matrix = _write(tmp_path, "few", Data(X, np.array(list("abcabc")), likelihood, np.zeros(6)))
    assert (np.load(matrix) == X).all()
    if likelihood == "bernoulli":
        assert given == [str(matrix)]
    else:
        table = pd.read_csv(given[0])
        assert given[1:] == ["--label", "label"] and "".join(table.pop("label")) == "abcabc"
        np.testing.assert_allclose(table, X, rtol=1e-6)


def test_medians_ratios_and_bounds():
    ours = [{"wall": wall, "cpu": 30.0} for wall in (19.0, 50.0, 18.0)]
    umap = [{"wall": 4.0, "cpu": 10.0}] * 3
    found = _row("krumsiek11", "term", 2, ours, umap)
    assert (found["ours_wall"], found["ratio"], found["holds"]) == (19.0, 3.0, True)
    assert not _row("krumsiek11", "term", 2, [{"wall": SETS["krumsiek11"]["wall"] + 1, "cpu": 1.0}], umap)["holds"]
    assert _row("mnist", "term", 2, ours, umap)["holds"]
    assert not _row("mnist", "term", 2, [{"wall": 1.0, "cpu": 31.0}], umap)["holds"]
    assert "holds" not in _row("mnist", "term", 1, ours, umap)
