"""Splits of rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from curvae.errors import CurvaeError
from curvae.training import random_split

# --- splits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("groups", [None, 17])
def test_a_split_is_disjoint_complete_and_sized(seed, groups):
    n = 203
    labels = None if groups is None else np.array([f"g{i % groups}" for i in range(n)])
    split = random_split(n, 0.1, 0.25, seed, labels)
    parts = (split.train, split.validation, split.test)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert all(np.array_equal(part, np.sort(part)) for part in parts)
    if labels is None:
        assert [len(part) for part in parts] == [203 - 71, 20, 51]
    else:
        largest = np.unique(labels, return_counts=True)[1].max()
        assert all(
            abs(len(p) - share * n) <= largest / 2 + 1 for p, share in zip(parts, (0.65, 0.1, 0.25), strict=True)
        )
        names = split.names(n)
        assert all(len(set(names[labels == group])) == 1 for group in set(labels))
    other = random_split(n, 0.1, 0.25, seed + 1, labels)
    assert not np.array_equal(split.train, other.train)
    assert np.array_equal(split.train, random_split(n, 0.1, 0.25, seed, labels).train)
    assert sorted(set(split.names(n))) == ["test", "train", "validation"]


def test_each_row_is_held_out_about_equally_often():
    held = np.zeros(20)
    for seed in range(600):
        held[random_split(20, 0.25, seed=seed).validation] += 1
    assert stats.chisquare(held).pvalue > 1e-4 and held.sum() == 5 * 600


def test_splits_at_the_edge():
    assert len(random_split(7, 0.0).validation) == 0
    assert len(random_split(4, 0.1).train) == 4
    with pytest.raises(CurvaeError, match="no rows are left"):
        random_split(6, 0.95)
    with pytest.raises(CurvaeError, match="1 groups"):
        random_split(6, 0.99999999, groups=np.zeros(6))


@pytest.mark.parametrize("groups", [None, 17])
def test_at_most_so_many_rows_are_held_out(groups):
    labels = None if groups is None else np.array([f"g{i % groups}" for i in range(2030)])
    found = random_split(2030, 0.2, 0.1, 0, labels, most=100)
    room = 0 if groups is None else 60  # half of a group
    assert abs(len(found.validation) - 100) <= room and abs(len(found.test) - 100) <= room
    plain, bounded = (random_split(2030, 0.2, 0.1, 0, labels, most) for most in (None, 1000))
    assert np.array_equal(plain.test, bounded.test) and np.array_equal(plain.train, bounded.train)


def test_parts_of_some_rows():
    split = random_split(500, 0.2, 0.1)
    names = split.names(500)
    for start, stop in ((0, 500), (3, 4), (120, 377)):
        np.testing.assert_array_equal(split.names(stop - start, start), names[start:stop])
    rows = split.sample(60, seed=1)
    assert np.array_equal(rows, np.unique(rows)) and len(rows) == 60 + 60 + 50
    some = split.within(rows)
    np.testing.assert_array_equal(some.names(len(rows)), names[rows])
    np.testing.assert_array_equal(split.sample(60, seed=1), rows)
    assert not np.array_equal(split.sample(60, seed=2), rows)
