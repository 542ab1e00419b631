"""`compare` by other criteria than the likelihood: scores against their definitions, and what the verdict says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from curvae.errors import CurvaeError
from curvae.hierarchy import Rows, parse_newick
from curvae.training import Config, Embedding
from curvae.training.comparison import Comparison, Criterion, Repeat, faithfulness_criterion, recovery_criterion
from curvae.training.rows import Split, random_split

SEEDS = (3, 4, 5)
MODEL, MAP = "to model, fill in or draw data use", "for a map that keeps neighbours use"


def splits(rows: int) -> dict[int, Split]:
    return {seed: random_split(rows, 0.1, 0.2, seed) for seed in SEEDS}


def compared(maps: dict[float, list[np.ndarray]], gain: float = 0.0) -> Comparison:
    """A comparison with these maps, whose likelihood gains about so many nats by curvature."""
    noise = (-0.01, 0.0, 0.01)
    repeats = [
        Repeat(seed, {c: gain * (c > 0) for c in maps}, {c: (gain + noise[i]) * (c > 0) for c in maps})
        for i, seed in enumerate(SEEDS)
    ]
    placed = {c: [Embedding(z, np.ones(len(z)), c) for z in each] for c, each in maps.items()}
    return Comparison(repeats, 0.2, {}, placed, Config(), "as asked")


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(80, 4)) * [3, 2, 1, 1]


def maps_of(x: np.ndarray, noise: float, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [x[:, :2] + noise * random.normal(size=(len(x), 2)) for _ in SEEDS]


def test_scores_are_those_of_held_out_rows_among_training_rows(x: np.ndarray) -> None:
    flat = maps_of(x, 1.0)
    parts = splits(80)
    found = faithfulness_criterion(Rows(x), compared({0.0: flat, 1.0: maps_of(x, 2.0)}), parts)
    for repeat, places in zip(found.repeats, flat, strict=True):
        split = parts[repeat.seed]
        for rows, score in ((split.validation, repeat.validation[0.0]), (split.test, repeat.test[0.0])):
            tables = [cdist(z[rows], z[split.train]) for z in (x, places)]
            ranks = [np.argsort(np.argsort(table, axis=1), axis=1) + 1 for table in tables]
            size = len(split.train)
            shares = np.array([((ranks[0] <= k) & (ranks[1] <= k)).sum(1).mean() / k for k in range(1, size + 1)])
            best = int(np.argmax(shares - np.arange(1, size + 1) / size)) + 1
            assert score == pytest.approx((shares[:best].mean() + shares[best:].mean()) / 2)
        pca = PCA(2).fit(x[split.train]).transform(x)
        same = faithfulness_criterion(Rows(x), compared({0.0: [pca] * 3, 1.0: flat}), parts)
        scores = [one.test[0.0] for one in same.repeats if one.seed == repeat.seed]
        assert repeat.pca == pytest.approx(scores[0])


def test_curvature_gets_no_credit_for_what_a_flat_map_has_too(x: np.ndarray) -> None:
    good = maps_of(1e-3 * x, 0.0)  # so small that a curved space is flat
    found = faithfulness_criterion(Rows(x), compared({0.0: good, 1.0: good}), splits(80))
    assert found.outcome == "none" and found.choice == 0 and abs(found.paired.mean) < 1e-3


@pytest.mark.parametrize(
    ("curved", "flat", "outcome"), [(0.1, 3.0, "hyperbolic"), (3.0, 0.1, "euclidean"), (1.0, 0.9, "none")]
)
def test_a_better_map_is_found(x: np.ndarray, curved: float, flat: float, outcome: str) -> None:
    x = 0.05 * x
    maps = {0.0: maps_of(x, 0.05 * flat), 1.0: maps_of(x, 0.05 * curved, seed=1), 0.3: maps_of(x, 1.0, seed=2)}
    found = faithfulness_criterion(Rows(x), compared(maps), splits(80))
    assert found.outcome == outcome
    assert found.best == 1.0 and found.chosen == [1.0] * 3
    first = found.repeats[0]
    assert found.to_json()["repeats"][0]["difference"] == first.test[1.0] - first.test[0.0]


def test_a_split_does_not_choose_its_own_luck() -> None:
    """Trainings that differ by luck alone: choosing the luckiest of eight would look like a gain."""
    random = np.random.default_rng(0)
    values = [0.0, *np.arange(1.0, 9.0)]
    outcomes = []
    for _ in range(300):
        luck = random.normal(size=(5, len(values)))
        repeats = [Repeat(i, dict(zip(values, one, strict=True)), dict(zip(values, one, strict=True)))
                   for i, one in enumerate(luck)]  # fmt: skip
        outcomes.append(Criterion("luck", "", "", repeats, 2 / 7).outcome)
    assert outcomes.count("hyperbolic") < 0.05 * 300


def test_recovery_is_that_of_tree_distances() -> None:
    tree = parse_newick("((a,b)u,(c,d)v)r;")
    node = np.tile(np.flatnonzero(np.isin(tree.names, list("abcd"))), 15)
    node[:6] = -1  # rows without a node take no part
    places = dict(zip("abcd", ((0, 0), (0, 1), (5, 0), (5, 1)), strict=True))
    truth = np.array([places.get(tree.names[k], (9, 9)) for k in node], float)
    random = np.random.default_rng(0)
    maps = {c: [0.01 * (truth + 0.2 * random.normal(size=truth.shape)) for _ in SEEDS] for c in (0.0, 1.0)}
    parts = splits(60)
    found = recovery_criterion(tree.distances, node, compared(maps), parts)
    for repeat, places_of_one in zip(found.repeats, maps[0.0], strict=True):
        split = parts[repeat.seed]
        asked, among = (rows[node[rows] >= 0] for rows in (split.test, split.train))
        known = np.array([tree.distances(np.full(len(among), node[i]), node[among]) for i in asked])
        expected = spearmanr(known.ravel(), cdist(places_of_one[asked], places_of_one[among]).ravel()).statistic
        assert repeat.test[0.0] == pytest.approx(expected)
        assert repeat.pca is None
    with pytest.raises(CurvaeError, match="three nodes"):
        recovery_criterion(tree.distances, np.where(node == node[10], node, -1), compared(maps), parts)


def criterion(gain: float, name: str = "faithfulness", purpose: str = "for a map that keeps neighbours") -> Criterion:
    repeats = compared({0.0: [], 1.0: []}, gain).repeats
    return Criterion(name, "a measure", purpose, repeats, 0.2)


@pytest.mark.parametrize(
    ("likelihood", "faithful", "structure", "says"),
    [
        (0.0, 0.0, "tree-like", "The data are tree-like, but no criterion detects a gain"),
        (0.0, 0.0, "flat", None),
        (1.0, 1.0, "tree-like", None),
        (0.0, -1.0, "clustered", None),
        (
            0.0,
            1.0,
            "tree-like",
            f"tree-like, but not all criteria gain by curvature: {MODEL} curvature 0; {MAP} c = 1.",
        ),
        (1.0, 0.0, "", f"Criteria disagree: {MODEL} c = 1; {MAP} curvature 0."),
        (-1.0, 1.0, "flat", f"Criteria disagree: {MODEL} curvature 0; {MAP} c = 1."),
    ],
)
def test_the_verdict_says_what_to_choose(likelihood: float, faithful: float, structure: str, says: str | None) -> None:
    plain = compared({0.0: [], 1.0: []}, likelihood)
    found = replace(plain, criteria=(criterion(faithful),), structure=structure)
    head = f"{plain.verdict} {found.criteria[0].sentence}"
    assert found.verdict.startswith(head)
    rest = found.verdict[len(head) :]
    assert rest == "" if says is None else says in rest
    stored = found.to_json()
    assert stored["criteria"]["faithfulness"]["outcome"] == found.criteria[0].outcome
    assert "criteria" not in plain.to_json() and "structure" not in plain.to_json()


def test_sentences_of_criteria() -> None:
    assert "curved minus flat is +1.000 ± " in criterion(1.0).sentence
    assert criterion(1.0).sentence.endswith("curved is better.")
    assert criterion(-1.0).sentence.endswith("flat is better.")
    assert criterion(0.0).sentence.endswith("no detectable difference.")
