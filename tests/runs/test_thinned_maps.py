"""Maps of more rows than a page holds: a sample by density, with the rows that are asked for."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from curvae.errors import CurvaeError
from curvae.runs import drawing as thinning
from curvae.runs import folders
from curvae.runs import trained as viewing
from curvae.runs.drawing import read_thinned
from running import SMALL, curvae, refused, write_table

DENSE, FAR = 6000, 80


def written(path, ball, ids=None):
    """The columns of the table of a map that a sample is drawn by."""
    ids = [f"c{i}" for i in range(len(ball))] if ids is None else ids
    table = pd.DataFrame({"id": ids, "label": "", "map_1": ball[:, 0], "map_2": ball[:, 1]})
    folders.write_table(path, table)
    return table


def crowd(seed=0):
    """Many points near the centre and few around them, in a random order."""
    random = np.random.default_rng(seed)
    turn = random.uniform(0, 2 * np.pi, FAR)
    far = np.tanh(random.uniform(1.5, 4.0, FAR) / 2)[:, None] * np.stack([np.cos(turn), np.sin(turn)], 1)
    return random.permutation(np.concatenate([random.normal(0, 0.02, (DENSE, 2)), far]))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_few_rows_are_kept_and_many_are_thinned(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(thinning, "_ROWS", 700)
    table = written(tmp_path / f"embedding.{ending}", crowd())
    wanted = table["id"][[17, 4004]].tolist()
    found, rows = read_thinned(tmp_path / f"embedding.{ending}", 1000, 1.0, wanted)
    assert rows == DENSE + FAR and 950 < len(found) <= 1000
    assert set(wanted) <= set(found["id"])
    places = found["id"].str[1:].astype(int)
    assert places.is_monotonic_increasing
    np.testing.assert_array_equal(found["map_1"], table["map_1"][places])
    far = table["id"][np.hypot(table["map_1"], table["map_2"]) > 0.5]
    assert len(far) == FAR and set(far) <= set(found["id"])


def test_cells_have_equal_areas(tmp_path):
    """Of points that lie evenly in the hyperbolic disc, all parts are thinned alike."""
    random = np.random.default_rng(0)
    radius = np.arccosh(1 + random.uniform(size=40_000) * (np.cosh(4.0) - 1))
    turn = random.uniform(0, 2 * np.pi, 40_000)
    ball = np.tanh(radius / 2)[:, None] * np.stack([np.cos(turn), np.sin(turn)], 1)
    written(tmp_path / "embedding.parquet", ball)
    found, _ = read_thinned(tmp_path / "embedding.parquet", 10_000, 1.0)
    kept = np.zeros(40_000, bool)
    kept[found["id"].str[1:].astype(int)] = True
    for inner, outer in ((0, 2.5), (2.5, 3.5), (3.5, 4.0)):
        own = (radius >= inner) & (radius < outer)
        assert kept[own].mean() == pytest.approx(0.25, abs=0.03)


def test_the_level_at_which_cells_are_cut():
    counts = np.random.default_rng(1).integers(0, 50, 200)
    for total in (1, 150, 1000, counts.sum() - 1):
        assert np.minimum(counts, thinning._level(counts, total)).sum() == pytest.approx(total)
    assert thinning._level(counts, counts.sum() + 5) >= counts.max()


def test_all_rows_where_they_are_few(tmp_path):
    table = written(tmp_path / "embedding.parquet", crowd())
    found, rows = read_thinned(tmp_path / "embedding.parquet", 10_000, 1.0)
    assert rows == len(found) and found["id"].tolist() == table["id"].tolist()
    with pytest.raises(CurvaeError, match="no row of the run has the id 'c99999'; check it"):
        read_thinned(tmp_path / "embedding.parquet", 10_000, 1.0, ["c99999"])


def test_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "t.csv", rows=120)
    assert curvae("fit", "t.csv", *SMALL, "-o", "run").code == 0
    monkeypatch.setattr(viewing, "LARGEST", 50)
    said = curvae("view", "run", "--find", "77", "-o", "map.html")
    sample = re.search(r"sample by density is shown: (\d+) of 120 rows", said.err)
    assert said.code == 0 and sample and 40 <= int(sample[1]) <= 50 and "give --find" in said.err, said
    page = (tmp_path / "map.html").read_text()
    assert f"A {sample[0]}" in page and "Found among all rows: 77" in page
    line = refused("view", "run", "--find", "x", "-o", "other.html", says=["no row of the run has the id 'x'"])
    assert "train again" not in line
    refused("view", "run", "--explain", "-o", "other.html", says=["120 rows, of which a map shows a sample"])
    refused("view", "run", "--find", "7", "--anonymous", "-o", "other.html", says=["--find", "not both"])
