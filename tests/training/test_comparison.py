"""Is curved better? The verdict and its test, splits that are fair, and how alike two maps are."""

from __future__ import annotations

import json
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import sparse, stats
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from curvae import PoincareBall
from curvae.errors import CurvaeError
from curvae.hierarchy import Rows, parse_newick
from curvae.maps.embedding import Embedding
from curvae.training import Config, CurvatureSet, comparison as module
from curvae.training.comparison import (
    Comparison,
    Criterion,
    Paired,
    Repeat,
    compare,
    curved_values,
    faithfulness_criterion,
    identifiable,
    place_curvatures,
    recovery_criterion,
)
from curvae.training.fitted import GraphConfig, stability
from curvae.training.graph_problem import GraphComparison, Links
from curvae.training.rows import Split, random_split
from curvae.training.stacks import Judged

SMALL = Config(hidden=(4,), epochs=1, batch_size=64, seed=7)


X = np.random.default_rng(0).normal(size=(60, 4))


def test_neighbours_count_only_if_asked_for():
    for kind, expected in (("auto", "off"), ("near", "near")):
        found = compare(replace(SMALL, neighbours=kind), X, (1.0,), 3, samples=2, jobs=1)
        assert found.config.neighbours == expected


def comparison(differences, ratio=0.25):
    """Repeats in which c = 1 is chosen, and better than flat by the given differences."""
    repeats = [
        Repeat(seed, {0.0: 9.0, 0.3: -4.0, 1.0: -3.0}, {0.0: -10.0, 0.3: 50.0, 1.0: -10.0 + d}, None)
        for seed, d in enumerate(differences)
    ]
    return Comparison(repeats, ratio, {}, {}, Config(), "as asked")


# --- the verdict ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("differences", "outcome", "says"),
    [
        ([2.0, 2.2, 1.9, 2.1, 2.05], "hyperbolic", ["Hyperbolic better by 2.05", "use c = 1"]),
        ([2.0, -1.0, 0.3, -0.4, 0.1], "none", ["No detectable difference: use curvature 0", "+0.20"]),
        ([-2.0, -2.2, -1.9, -2.1, -2.05], "euclidean", ["Euclidean better by 2.05", "use curvature 0"]),
    ],
)
def test_three_outcomes(differences, outcome, says):
    found = comparison(differences)
    assert found.outcome == outcome
    assert all(part in found.verdict for part in (*says, "nats a row", "p = ")) and "\n" not in found.verdict


def test_the_test_by_hand():
    differences = np.array([0.5, 0.1, 0.9, 0.4])
    found = comparison(differences, ratio=2 / 7)
    # Nadeau and Bengio (2003): 1/n becomes 1/n + n_test/n_train.
    error = differences.std(ddof=1) * np.sqrt(1 / 4 + 2 / 7)
    assert found.gain == pytest.approx(0.475)
    assert found.p_value == pytest.approx(2 * stats.t(3).sf(0.475 / error), rel=1e-12)
    assert found.interval == pytest.approx(stats.t(3).ppf(0.975) * error, rel=1e-12)
    # Without overlap it is the textbook's test.
    plain = stats.ttest_1samp(differences, 0.0)
    assert comparison(differences, ratio=0.0).p_value == pytest.approx(plain.pvalue, rel=1e-12)
    assert found.p_value > plain.pvalue


@pytest.mark.parametrize("seed", range(20))
def test_verdict_interval_and_p_value_agree(seed):
    random = np.random.default_rng(seed)
    found = comparison(random.normal(random.normal(), 1.0, size=random.integers(3, 9)))
    assert (abs(found.gain) > found.interval) == (found.p_value < 0.05) == (found.outcome != "none")


def test_differences_without_variance():
    assert comparison([0.0, 0.0, 0.0]).outcome == "none" and comparison([0.0, 0.0, 0.0]).p_value == 1.0
    assert comparison([1.0, 1.0, 1.0]).outcome == "hyperbolic"


def test_the_curvature_is_chosen_on_validation_rows_alone():
    repeat = Repeat(0, {0.0: 5.0, 0.3: -2.0, 1.0: -1.0}, {0.0: 0.0, 0.3: 100.0, 1.0: 3.0}, None)
    found = Comparison([repeat] * 3, 0.2, {}, {}, Config(), "")
    assert found.chosen == [1.0] * 3 and found.paired.differences == [3.0] * 3
    assert found.best == 1.0 and found.gain == 3.0


def test_each_repeat_chooses_for_itself():
    a = Repeat(0, {0.0: 0.0, 0.3: 1.0, 1.0: 2.0}, {0.0: 0.0, 0.3: 7.0, 1.0: 1.0}, None)
    b = Repeat(1, {0.0: 0.0, 0.3: 1.5, 1.0: 0.0}, {0.0: 0.0, 0.3: 7.0, 1.0: 1.0}, None)
    found = Comparison([a, b, b], 0.2, {}, {}, Config(), "")
    assert found.chosen == [1.0, 0.3, 0.3] and found.gain == 5.0
    assert found.best == 0.3  # means of 4/3 and 2/3


def test_differences_are_false_alarms_at_the_stated_rate():
    """Independent differences around 0: the corrected test is wrong less often than it says."""
    random = np.random.default_rng(0)
    wrong = sum(comparison(random.normal(size=5)).outcome != "none" for _ in range(800))
    assert wrong / 800 < 0.05
    wrong = sum(comparison(random.normal(size=5), ratio=0.0).outcome != "none" for _ in range(800))
    assert 0.025 < wrong / 800 < 0.08


# --- fair splits ----------------------------------------------------------------------------------------------------


def tasks(x=X, repeats=4, config=SMALL, **how):
    """The trainings that a comparison asks for, without doing them."""
    seen = []

    def record(problem, tasks, listener, **how):
        for task in tasks:
            listener.record(task.place, {"epoch": 1})
        seen.extend(tasks)
        random, count = np.random.default_rng(len(seen)), len(tasks[0].source)
        embedding = Embedding(random.normal(size=(count, 2)), np.ones(count), 1.0)
        return [Judged(0.0, task.config.curvature, embedding, None) for task in tasks]

    with mock.patch.object(module, "judge_stack", record):
        found = compare(config, x, (1.0, 0.3, 1), repeats, jobs=1, **how)
    return found, [(task.config, task.split) for task in sorted(seen, key=lambda task: task.place)]


def test_a_repeat_has_one_split_and_one_seed_for_all_curvatures():
    told = []
    found, seen = tasks(progress=lambda done, total: told.append((done, total)))
    epochs = seen[0][0].epochs
    assert len(seen) == 12 and told == [(i, 12 * epochs) for i in range(1, 13)] + [(12 * epochs, 12 * epochs)]
    assert [config.curvature for config, _ in seen] == [0.0, 1.0, 0.3] * 4
    assert [config.seed for config, _ in seen] == [7] * 3 + [8] * 3 + [9] * 3 + [10] * 3
    for i in range(0, 12, 3):
        assert all(seen[i][1] is split for _, split in seen[i : i + 3])
    tests = [tuple(split.test) for _, split in seen[::3]]
    assert len(set(tests)) == 4 and {len(test) for test in tests} == {12}
    assert {len(split.validation) for _, split in seen} == {6}
    assert found.ratio == pytest.approx(12 / 42)
    assert [r.seed for r in found.repeats] == [7, 8, 9, 10] and found.gain == pytest.approx(1.0)


def test_groups_are_kept_together():
    groups = np.array([f"g{i % 30}" for i in range(60)])
    for _, split in tasks(groups=groups)[1]:
        names = split.names(60)
        assert all(len(set(names[groups == group])) == 1 for group in set(groups))
        assert min(len(split.validation), len(split.test)) >= 2


def test_test_rows_do_not_touch_the_models():
    """Replacing the test rows changes what is measured on them and nothing else."""
    a = compare(SMALL, X, (1.0,), 3, jobs=1, samples=20)
    moved = X.copy()
    split = tasks()[1][0][1]
    moved[split.test] += 3.0
    b = compare(SMALL, moved, (1.0,), 3, jobs=1, samples=20)
    assert a.repeats[0].validation == b.repeats[0].validation and a.repeats[0].test != b.repeats[0].test


def test_what_cannot_be_compared():
    for x, pattern in ((X[:12], "12 rows are too few"), (X[:3], "too few|no rows are left")):
        with pytest.raises(CurvaeError, match=pattern):
            compare(SMALL, x, jobs=1)
    with pytest.raises(CurvaeError, match="too few .*groups"):
        compare(SMALL, X, jobs=1, groups=np.array(["a", "b", "c"] * 20))
    with pytest.raises(CurvaeError, match="at least 3 repeats"):
        compare(SMALL, X, repeats=2)
    for curvatures in ((), (0.0,), (1.0, -1.0), (float("nan"),)):
        with pytest.raises(CurvaeError, match="c > 0"):
            compare(SMALL, X, curvatures)
    with pytest.raises(CurvaeError, match='drop `curvature="learn"`'):
        compare(replace(SMALL, learn_curvature=True), X)
    with pytest.raises(CurvaeError, match="lower the curvature"):
        compare(SMALL, X, (1e9,))


# --- whole comparisons ----------------------------------------------------------------------------------------------


def test_a_comparison_repeats_and_is_plain_json():
    a, b = (compare(SMALL, X, (0.5,), 3, jobs=1, samples=20) for _ in range(2))
    assert a.to_json() == b.to_json() == json.loads(json.dumps(a.to_json()))
    assert set(a.stability) == set(a.embeddings) == {0.0, 0.5} and a.embeddings[0.5].space.shape == (60, 2)
    assert a.stability[0.5].pairs == 3


def test_pca_in_the_same_units():
    """Probabilistic PCA is a normal distribution; its density on the test rows is scipy's."""
    split = tasks()[1][0][1]
    found = compare(SMALL, X, (0.5,), 3, jobs=1, samples=5).repeats[0].pca
    seen = np.concatenate([split.train, split.validation])
    x = (X - X[seen].mean(0)) / X[seen].std(0)
    train = x[split.train] - x[split.train].mean(0)
    values, vectors = np.linalg.eigh(train.T @ train / (len(train) - 1))
    noise = values[:2].mean()
    covariance = noise * np.eye(4) + vectors[:, 2:] @ np.diag(values[2:] - noise) @ vectors[:, 2:].T
    normal = stats.multivariate_normal(x[split.train].mean(0), covariance)
    assert found == pytest.approx(normal.logpdf(x[split.test]).mean(), rel=1e-6)


def test_no_pca_where_it_means_nothing():
    bits = (X > 0).astype(float)
    assert compare(SMALL, bits, (0.5,), 3, jobs=1, samples=5).repeats[0].pca is None
    assert compare(SMALL, sparse.csr_array(X), (0.5,), 3, jobs=1, samples=5).repeats[0].pca is None
    assert compare(SMALL, X[:, :2], (0.5,), 3, jobs=1, samples=5).repeats[0].pca is None


# --- how alike maps are ---------------------------------------------------------------------------------------------


def embedding(ball, c=1.3):
    points = PoincareBall(ball.shape[1], c).to_lorentz(torch.as_tensor(ball))
    return Embedding(points.numpy(), np.ones(len(ball)), c)


def map_of(seed, n=80):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, size=(n, 2))


def test_equal_maps_and_isometric_copies_are_equally_stable():
    ball = map_of(0)
    angle = 0.7
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = PoincareBall(2, 1.3).mobius_add(torch.tensor([0.3, -0.4], dtype=torch.float64), torch.tensor(ball))
    for other in (ball, ball @ turn.T, ball * [1, -1], moved.numpy()):
        found = stability([embedding(ball), embedding(other)])
        assert found.correlation == pytest.approx(1.0, abs=1e-12) and found.overlap == 1.0
        assert found.neighbours == 10 and found.pairs == 1
    # A euclidean shift is no isometry of the disc.
    assert stability([embedding(ball), embedding(ball * 0.5 + 0.4)]).correlation < 0.99


def test_unrelated_maps_are_unstable():
    found = stability([embedding(map_of(seed)) for seed in range(4)])
    assert found.pairs == 6 and abs(found.correlation) < 0.2 and found.overlap < 0.3


def test_stability_of_one_map_of_few_and_of_many_rows():
    assert stability([embedding(map_of(0))]) is None
    few = stability([embedding(map_of(0, 3)), embedding(map_of(0, 3))])
    assert few.neighbours == 2 and few.overlap == 1.0
    many = stability([embedding(map_of(0, 700)), embedding(map_of(0, 700))])
    assert many.correlation == pytest.approx(1.0) and many.overlap == 1.0
    collapsed = stability([embedding(map_of(0)), embedding(np.zeros((80, 2)))])
    assert collapsed.correlation == 0.0


# --- other criteria than the likelihood ------------------------------------------------------------------------------


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
        outcomes.append(Criterion(repeats, 2 / 7, "luck", "", "").outcome)
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
    return Criterion(repeats, 0.2, name, "a measure", purpose)


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


# A confidence set for the best curvature, and the test it rests on.


def test_paired_differences_against_scipy():
    a, b = np.random.default_rng(0).normal(size=(2, 12))
    found = Paired((a - b + 0.8).tolist())
    expected = stats.ttest_rel(a + 0.8, b)
    assert abs(found.p_value - expected.pvalue) < 1e-12
    interval = expected.confidence_interval(0.95)
    assert abs(found.interval - (interval.high - interval.low) / 2) < 1e-12
    corrected = Paired(found.differences, ratio=0.25)
    assert abs(corrected.error / found.error - np.sqrt(1 + 12 * 0.25)) < 1e-12
    assert Paired([0.0, 0.0]).p_value == 1.0 and Paired([1.0, 1.0]).outcome == "hyperbolic"


VALUES = (0.0, 0.3, 1.0, 2.0, 4.0)
PLACES = np.arcsinh(VALUES)
TOP = PLACES[-1]
RATIO = 2 / 7


def parabolas(best, square=1.0, level=0.0):
    """Scores of a repeat for each of `best`, where it has its maximum."""
    best, square = np.broadcast_arrays(np.asarray(best, float), square)
    return level - square[:, None] * (PLACES - best[:, None]) ** 2


# --- the set --------------------------------------------------------------------------------------------------------


def test_by_hand():
    """Parabolas of one width: at x is more than at y > x if the mean of both exceeds that of the maxima, b.

    So y is left out if (x + y)/2 > b + h, with the half-width h of the t-interval of b; and x if it is below b − h.
    """
    best = np.array([0.9, 1.3, 1.0, 0.8, 1.2, 1.1])
    found = CurvatureSet.of(VALUES, parabolas(best, level=np.arange(6)[:, None]), RATIO)
    error = best.std(ddof=1) * np.sqrt(1 / 6 + RATIO)
    half = stats.t(5).ppf(1 - 0.05 / 4) * error
    assert PLACES[1] < best.mean() - half < PLACES[2] < PLACES[3] < best.mean() + half < TOP
    ends = [
        max(PLACES[1], 2 * (best.mean() - half) - PLACES[2]),
        best.mean(),
        min(TOP, 2 * (best.mean() + half) - PLACES[3]),
    ]
    assert np.arcsinh([found.low, found.estimate, found.high]) == pytest.approx(ends, abs=0.003)
    assert found.verdict == "curved" and found.level == 0.95
    for point, value, gain in zip(found.profile, VALUES, (parabolas(best) - parabolas(best)[:, :1]).T, strict=True):
        assert point.value == value and point.gain == pytest.approx(gain.mean())
        expected = stats.t(5).ppf(0.975) * gain.std(ddof=1) * np.sqrt(1 / 6 + RATIO)
        assert point.interval == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_significantly_worse_is_left_out(seed):
    """Noisy scores in any order, against separate fits and tests of scipy."""
    random = np.random.default_rng(seed)
    repeats, order = int(random.integers(5, 10)), random.permutation(5)
    scores = parabolas(random.uniform(-0.5, 2.5) + np.zeros(repeats)) + 0.4 * random.normal(size=(repeats, 5))
    found = CurvatureSet.of([VALUES[i] for i in order], scores[:, order])
    fits = [np.poly1d(np.polyfit(PLACES, each, 3)) for each in scores]
    kept = []
    for x in np.linspace(0, TOP, 41):
        others = PLACES[np.abs(PLACES - x) > 1e-9]
        better = np.array([fit(others) - fit(x) for fit in fits])
        if stats.ttest_1samp(better, 0, alternative="greater").pvalue.min() > 0.05 / 4:
            kept.append(x)
    step = TOP / 40
    assert kept[0] - step <= np.arcsinh(found.low) <= kept[0] + 0.003
    assert (found.high is None) == (kept[-1] == TOP)
    if found.high is not None:
        assert kept[-1] - 0.003 <= np.arcsinh(found.high) <= kept[-1] + step
    assert found.verdict == ("curved" if kept[0] else "undetermined" if found.high is None else "flat")
    mean = np.mean([fit(np.linspace(0, TOP, 2001)) for fit in fits], 0)
    assert np.arcsinh(found.estimate) == pytest.approx(np.linspace(0, TOP, 2001)[mean.argmax()], abs=0.004)


@pytest.mark.parametrize(
    ("best", "low", "estimate", "high", "verdict"),
    [
        (np.array([-1.0, -1.1, -1.2, -0.9, -0.8]), 0.0, 0.0, 0.0, "flat"),
        (np.array([5.0, 5.1, 5.2, 4.9, 4.8]), 4.0, 4.0, None, "curved"),
        (np.array([0.5, 0.9, -0.6, 0.3, -0.5]), 0.0, np.sinh(0.12), 2.0, "flat"),
        (np.array([3.0, 0.5, -0.5, 2.5, 0.7]), 0.0, np.sinh(1.24), None, "undetermined"),
    ],
)
def test_ends_at_the_ends(best, low, estimate, high, verdict):
    found = CurvatureSet.of(VALUES, parabolas(best))
    assert (found.low, found.estimate) == (low, pytest.approx(estimate, abs=0.01)) and found.verdict == verdict
    assert found.high is None if high is None else found.high == pytest.approx(high, rel=0.2)


def test_equal_scores_say_nothing():
    found = CurvatureSet.of(VALUES, np.full((5, 5), 0.7))
    assert (found.estimate, found.low, found.high, found.verdict) == (0.0, 0.0, None, "undetermined")


@pytest.mark.parametrize(
    ("expected", "truth", "repeats"),
    [
        (np.zeros(5), 0.0, 5),
        (-0.04 * np.square(VALUES), 0.0, 8),
        (-0.3 * (PLACES - np.arcsinh(0.5)) ** 2, 0.5, 5),
        (-0.3 * (PLACES - np.arcsinh(2)) ** 2, 2.0, 8),
    ],
    ids=["no curvature matters", "flat", "0.5", "2"],
)
def test_coverage_on_simulated_profiles(expected, truth, repeats):
    """Repeats with luck of their own, and some that all share, as overlapping training sets have it."""
    random = np.random.default_rng(repeats)
    draws, covered, curved = 300, 0, 0
    for _ in range(draws):
        own, shared = 0.15 * random.normal(size=(repeats, 5)), 0.15 * np.sqrt(RATIO) * random.normal(size=5)
        found = CurvatureSet.of(VALUES, expected + own + shared, RATIO)
        covered += found.low <= truth and (found.high is None or truth <= found.high)
        curved += found.verdict == "curved"
    assert stats.binomtest(covered, draws, 0.95, "less").pvalue > 0.001
    if truth == 0:
        assert stats.binomtest(curved, draws, 0.05, "greater").pvalue > 0.001
    if truth == 2:
        assert curved > 0.8 * draws


@pytest.mark.parametrize(
    ("values", "repeats", "got"),
    [(VALUES[:4], 5, "4 values and 5"), (VALUES, 4, "5 values and 4"), ((*VALUES[1:], 9.0), 5, "0 among them")],
)
def test_too_few(values, repeats, got):
    with pytest.raises(CurvaeError, match=got):
        CurvatureSet.of(values, np.zeros((repeats, len(values))))


def test_identifiable():
    curvatures = (0.0, 0.3, 2.0)
    assert identifiable(Config(prior_scale=1.5), curvatures) == pytest.approx([0.0, 0.675, 4.5])
    assert identifiable(Config(dim=5), curvatures) == pytest.approx([0.0, 0.3 / 1.9, 2 / 7])
    assert identifiable(Config(space="h2,e3,h2"), curvatures) == [0.0, 0.3, 2.0]
    assert identifiable(GraphConfig(curvature=0.0), curvatures) == [0.0, 0.3, 2.0]
    assert identifiable(Config(space="h2,h3"), curvatures) is None
    assert identifiable(Config(learn_prior_scale=True), curvatures) is None


@pytest.mark.parametrize(
    ("config", "widest"),
    [
        (Config(), 4.0),
        (Config(prior_scale=1.7), 4 / 1.7**2),
        (Config(dim=10), 4.0),
        (Config(space="h3,e2"), 4.0),
        (GraphConfig(dim=5, curvature=0.0), 4.0),
    ],
)
def test_chosen_curvatures_are_evenly_spread(config, widest):
    values = curved_values("auto", 5, config)
    x = np.arcsinh(identifiable(config, values))
    assert len(values) == 5 and values[0] == 0 and values[-1] == pytest.approx(widest, rel=0.005)
    assert np.diff(x) == pytest.approx(np.full(4, x[-1] / 4), rel=0.02)


@pytest.mark.parametrize(
    ("config", "repeats", "says"),
    [
        (Config(), 4, "at least 5 repeats, got 4"),
        (Config(learn_prior_scale=True), 5, "drop `learn_prior_scale`"),
        (Config(space="h2,h3"), 5, "set `prior_scale`"),
        (Config(learn_curvature=True), 5, "fixed curvatures"),
        (Config(space="e2,e3"), 5, "no curvature to compare"),
    ],
)
def test_curvatures_that_cannot_be_chosen(config, repeats, says):
    with pytest.raises(CurvaeError, match=says):
        curved_values("auto", repeats, config)
    assert place_curvatures(Config(space="h2,h3", prior_scale=2.0), 5)[-1] == 1.0


# --- sentences ------------------------------------------------------------------------------------------------------

CURVED = Paired([0.12, 0.14, 0.13, 0.1, 0.16])
NONE = Paired([0.1, -0.1, 0.2, -0.2, -0.1])


@pytest.mark.parametrize(
    ("best", "gain", "says"),
    [
        (
            [0.9, 1.1, 1.0, 0.8, 1.2],
            CURVED,
            "Curvature: c·σ0² = 1.2, 95 % set 0.67 to 2: curved; 0.13 ± 0.03 nats a row better than flat.",
        ),
        (
            [5.0, 5.1, 5.2, 4.9, 4.8],
            NONE,
            "Curvature: c·σ0² = 4, 95 % set 4 to more than 4: curved; 0.02 ± 0.20 nats a row worse than flat.",
        ),
        ([-1.0, -1.1, -1.2, -0.9, -0.8], NONE, "Curvature: c·σ0² = 0, 95 % set 0 to 0: flat; use curvature 0."),
        ([-1.0, -1.1, -1.2, -0.9, -0.8], CURVED, "Curvature: c·σ0² = 0, 95 % set 0 to 0."),
        (
            [3.0, 0.5, -0.5, 2.5, 0.7],
            NONE,
            "Curvature: not determined. Every c·σ0² from 0 to more than 4 predicts held-out rows as well as the best: "
            "use curvature 0.",
        ),
        (
            [3.0, 0.5, -0.5, 2.5, 0.7],
            CURVED,
            "Curvature: not determined, the 95 % set of c·σ0² is 0 to more than 4.",
        ),
    ],
)
def test_the_sentence(best, gain, says):
    found = CurvatureSet.of(VALUES, parabolas(best))
    assert found.sentence(gain, "nats a row", 1.0, "rows", "curvature 0") == says


def scored(kind, config, scores, score=float):
    tests = [dict(zip(VALUES, map(score, each), strict=True)) for each in scores]
    return kind([Repeat(i, one, one) for i, one in enumerate(tests)], RATIO, {}, {}, config)


def links(auc):
    return Links(float(auc), 0.5)


SCORES = parabolas([0.9, 1.1, 1.0, 0.8, 1.2])


def test_a_comparison_has_a_set():
    found = scored(Comparison, Config(prior_scale=2.0), SCORES)
    expected = CurvatureSet.of([4 * c for c in VALUES], SCORES, RATIO)
    assert found.curvature == expected and expected.verdict == "curved"
    written = json.loads(json.dumps(found.to_json()))["curvature"]
    assert written["low"] == expected.low and written["high"] == expected.high and written["verdict"] == "curved"
    assert written["profile"][1] == vars(expected.profile[1]) and written["level"] == 0.95
    assert expected.sentence(found.paired, "nats a row", 1.0, "rows", "curvature 0") in found.verdict


def test_a_comparison_of_a_graph_has_a_set():
    found = scored(GraphComparison, GraphConfig(), 0.8 + 0.01 * SCORES, links)
    assert found.curvature.low == pytest.approx(CurvatureSet.of(VALUES, SCORES, RATIO).low)
    assert "curved; " in found.verdict and "points of AUC better than flat" in found.verdict
    flat = scored(GraphComparison, GraphConfig(), np.full((5, 5), 0.9), links)
    assert "predicts held-out edges as well as the best: use curvature 0." in flat.verdict


def test_a_comparison_without_a_set():
    found = scored(Comparison, Config(), SCORES)
    few = [Repeat(0, {0.0: 1.0, 0.5: 2.0}, {0.0: 1.0, 0.5: 2.0})] * 6
    for other in (
        replace(found, repeats=found.repeats[:4]),
        replace(found, repeats=few),
        replace(found, config=Config(learn_prior_scale=True)),
        scored(Comparison, Config(), np.where(SCORES.min() == SCORES, -np.inf, SCORES)),
    ):
        assert other.curvature is None and other.to_json()["curvature"] is None and "Curvature:" not in other.verdict
