"""Experiments: shards that resume, trainings, and tiny runs of every part."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from curvae.data import Arrays, branching_diffusion
from curvae.errors import CurvaeError
from curvae.geometry import PoincareBall
from curvae.hierarchy import Embedded
from curvae.nn import Gyroplane
from curvae.paper import EXPERIMENTS, paper_tables
from curvae.paper.experiment import (
    Experiment,
    ExperimentData,
    Page,
    Plan,
    Shard,
    Store,
    Workspace,
    against_printed,
    cell,
    classifier,
    confusions,
    estimate,
    gplvm,
    mark,
    negative_log_likelihood,
    paired,
    principal_components,
    recovery,
    search_shard,
    seeds,
    train,
    training_shard,
    trend,
)
from curvae.paper.paper_tables import TABLE1, TABLE2
from curvae.report import Section, Table
from curvae.runs import Reporter
from curvae.training import Config, Scaling, Split, build, fit, random_split
from curvae.training.fitted import _alike, likelihoods
from experiments import TINY, X, configs_of
from paths import ROOT
from reading import idx
from running import curvae, refused


def dataset(seed: int = 0) -> ExperimentData:
    split = random_split(len(X), 0.0, 0.3, seed)
    return ExperimentData(X, split, Scaling.standard(X), X[split.test])


def workspace(path, **more) -> Workspace:
    return Workspace(torch.device("cpu"), path / "cache", **more)


# --- shards ---------------------------------------------------------------------------------------------------------


def counted(calls, stop=None, value=1, count=3):
    """An experiment whose shards say that they were computed; the one named `stop` is interrupted."""

    def work(name, where):
        if name == stop:
            raise KeyboardInterrupt
        calls.append(name)
        return {"figure": value}

    def shards(plan):
        names = [f"s{k}" for k in range(count)]
        return [Shard(name, {"value": value, "pair": (1, 2)}, partial(work, name)) for name in names]

    return Experiment(
        "tried",
        "Shards",
        shards,
        lambda results: {"total": sum(r["figure"] for r in results.values())},
        lambda result: Page(f"total {result['total']}", "good", [Section("S", (), (), [Table(["a"], [["|"]])])]),
        1.0,
    )


def test_an_interrupted_run_goes_on_with_what_is_missing(tmp_path):
    calls: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path, counted(calls, stop="s1"), Plan()).run(workspace(tmp_path))
    assert calls == ["s0"] and not (tmp_path / "tried.json").exists()
    (tmp_path / "tried" / "s1.json.part").write_text("{")  # a write that was cut off
    store = Store(tmp_path, counted(calls), Plan())
    result = store.run(workspace(tmp_path))
    assert calls == ["s0", "s1", "s2"] and result["total"] == 3
    assert set(store.states().values()) == {"done"}
    merged = json.loads((tmp_path / "tried.json").read_text())
    assert set(merged["shards"]) == {"s0", "s1", "s2"} and merged["versions"]["torch"] == torch.__version__
    assert merged["shards"]["s0"]["settings"] == {"value": 1, "pair": [1, 2]} and "core" in merged["device"]
    assert "total 3" in (tmp_path / "tried.md").read_text() and "| ¦ |" in (tmp_path / "tried.md").read_text()
    assert "total 3" in (tmp_path / "tried.html").read_text()
    # The merged file alone is enough.
    for path in (tmp_path / "tried").glob("*.json"):
        path.unlink()
    assert store.run(workspace(tmp_path)) == result and len(calls) == 3


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_settings_of_the_published_results_are_those_of_the_experiments(name):
    assert set(Store(ROOT / "results" / "paper", EXPERIMENTS[name], Plan()).states().values()) == {"done"}


def test_named_shards_others_settings_and_force(tmp_path):
    calls: list[str] = []
    said: list[str] = []
    where = workspace(tmp_path, reporter=Reporter(say=said.append))
    store = Store(tmp_path, counted(calls), Plan())
    assert store.run(where, only=["s2"]) is None
    assert calls == ["s2"] and store.states() == {"s0": "missing", "s1": "missing", "s2": "done"}
    store.run(where, only=["s2"])
    assert calls == ["s2"] and "force=True" in said[-1]
    store.run(where, only=["s2"], force=True)
    assert calls == ["s2", "s2"]
    other = Store(tmp_path, counted(calls, value=5), Plan())
    assert other.states()["s2"] == "outdated" and other.run(where)["total"] == 15
    with pytest.raises(CurvaeError, match="no shard s9"):
        store.run(where, only=["s9"])
    with pytest.raises(CurvaeError, match="results of full runs"):
        replace(store, plan=Plan(quick=True)).run(where)


# --- trainings ------------------------------------------------------------------------------------------------------


def test_figures_of_trainings_are_those_of_each_alone(tmp_path):
    configs = [replace(one, curvature=c) for c in (0.5, 0.0) for one in seeds(TINY, 2)]
    shard = training_shard(
        "all",
        configs,
        50,
        dataset,
        {"name": "tiny"},
        extra=lambda fitted, data, workspace: [{"rows": len(one.x)} for one in data],
    )
    assert configs_of([shard]) == configs
    found = shard.work(workspace(tmp_path))
    json.dumps(found)
    for config, record in zip(configs, found["trainings"], strict=True):
        own = dataset(config.seed)
        alone = fit(config, own.x, split=own.split, scaling=own.scaling)
        assert record["nll"] == pytest.approx(-likelihoods(alone, own.test, 50).mean, rel=1e-5)
        assert (
            record["rows"] == 40
            and record["active_dimensions"] in (0, 1, 2)
            and record["config"]["seed"] == config.seed
        )
    # At c = 0 the divergence has a closed form.
    q = alone.model.encode(alone.rows(own.test).batch(torch.arange(len(own.test))))
    s = q.scale.double()[:, 0]
    exact = (0.5 * (q.loc**2).sum(1) + s**2 - 1 - 2 * s.log()).mean().item()
    assert abs(record["kl"] - exact) < 5 * record["kl_error"] < exact
    assert record["kl_lowest_row"] <= record["kl"]


def test_kept_models_serve_again_unless_settings_differ(tmp_path):
    configs = seeds(TINY, 2)
    data = [dataset()] * 2
    where = workspace(tmp_path)
    made = train(configs, data, where, "kept")
    told = []
    again = train(configs, data, replace(where, reporter=Reporter(progress=lambda *a: told.append(a))), "kept")
    assert not told, "nothing was trained"
    for a, b in zip(made, again, strict=True):
        assert likelihoods(a, data[0].test, 20).mean == likelihoods(b, data[0].test, 20).mean
    other = train(seeds(replace(TINY, curvature=0.3), 2), data, where, "kept")
    assert float(other[0].model.space.curvatures()[0]) == pytest.approx(0.3)


def test_models_that_differ_in_layers_without_parameters_are_evaluated_apart():
    """An MLP on ball coordinates and one on log_0 have the same parameters, and no stack can hold both."""

    def one(kind):
        return SimpleNamespace(model=build(replace(TINY, decoder=kind), 3))

    assert _alike([one("mlp"), one("log_mlp"), one("mlp")], [Arrays(X)] * 3) == [[0, 2], [1]]


def test_the_search_trains_what_was_best_on_rows_kept_apart(tmp_path):
    good, bad = replace(TINY, learning_rate=0.05, epochs=10), replace(TINY, learning_rate=1e-6)

    def trial(seed):
        whole = dataset(seed)
        split = Split(whole.split.train[10:], np.empty(0, np.int64), whole.split.train[:10])
        return replace(whole, split=split, test=X[split.test])

    for tried in ([replace(c, curvature=0.0) for c in (bad, good)], [good, bad]):
        search = search_shard("tiny", tried, 10, 0, (2, 2), (20, 30), (trial, dataset), {"name": "tiny"})
        found = search.work(workspace(tmp_path))
        assert Config.from_json(found["chosen"]) == tried[int(np.argmin(found["validation_nll"]))]
        assert found["chosen"]["learning_rate"] == 0.05 and [r["seed"] for r in found["trainings"]] == [0, 1]


# --- pages ----------------------------------------------------------------------------------------------------------


def pretend(shard: Shard, random: np.random.Generator) -> dict:
    """The result of a shard, made up."""
    settings = json.loads(json.dumps(shard.settings))
    base = {"settings": settings, "seconds": 1.0, "device": "none", "date": "2026-01-01", "versions": {"curvae": "0"}}
    figures = {"kl": 5.0, "kl_error": 0.1, "kl_lowest_row": 1.0, "active_dimensions": 2}
    measures = dict.fromkeys(("distortion", "distance_correlation", "depth_correlation"), 0.5)

    def record(config):
        nll = 57.0 - (1.6 * config.curvature * config.prior_scale**2 / 3.468) + 0.1 * random.normal()
        confusion = (np.full((10, 10), 2) + 80 * np.eye(10, dtype=int)).tolist()
        by_digit = (80.0 + random.normal(size=10) + config.curvature).tolist()
        accuracy = {"accuracy": float(np.mean(by_digit)), "accuracy_by_digit": by_digit, "confusion": confusion}
        return {"nll": nll, **figures, **measures, **accuracy}

    if "tried" in settings:
        tried = settings["tried"]
        found = [{**record(Config.from_json(tried[0])), "seed": s} for s in range(settings["trainings"])]
        return base | {"validation_nll": [1.0] * len(tried), "chosen": tried[0], "trainings": found}
    if "maps" in settings:
        return base | {"maps": {name: [measures] * 3 for name in settings["maps"]}}
    if "files" in settings:
        return base | {"files": settings["files"]}
    if "graph" in settings:
        names = ("auc", "ap", "validation_auc", "validation_ap")
        found = [
            {"geometry": geometry, "seed": seed, **{name: 60 + 5 * c + random.normal() for name in names}}
            for geometry, c in settings["curvatures"].items()
            for seed in settings["seeds"]
        ]
        return base | {"trainings": found}
    trainings = [
        {"config": own, **record(Config.from_json({**settings["config"], **own}))} for own in settings["trainings"]
    ]
    return base | {"trainings": trainings}


@cache
def pretended(name: str) -> dict[str, dict]:
    """All results of an experiment at its full size, by the names of its shards. Not to be changed."""
    random = np.random.default_rng(0)
    return {shard.name: pretend(shard, random) for shard in EXPERIMENTS[name].shards(Plan())}


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_a_full_result_becomes_a_page(name, tmp_path):
    """Every experiment at its full size, with figures that are made up."""
    store = Store(tmp_path, EXPERIMENTS[name], Plan())
    for shard in store.shards:
        path = store.path(shard)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(pretended(name)[shard.name]))
        for file in shard.settings.get("files", ()):
            (tmp_path / "figures").mkdir(exist_ok=True)
            (tmp_path / "figures" / f"{file}.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    result = store.merge()
    text = store.merged("md").read_text()
    assert result is not None and "To be computed" not in text and "nan" not in text.lower().replace("finance", "")
    assert store.merged("html").stat().st_size > 2000
    if name == "table1":
        assert all(r["holds"] for r in result["requirements"]), "the figures were made so"
        assert "| N-VAE | 1.7 | 57.0 ± 0.2 | 5" in text and len(result["cells"]) == 24
        trend = next(t for t in result["trends"] if (t["model"], t["prior_scale"]) == ("Riemannian", 1.7))
        assert trend["difference"] == pytest.approx(-1.6 / 3.468 * 1.7**2, rel=0.1)
    if name == "table2":
        assert len(result["cells"]) == 40 and sum("against_paper" in c for c in result["cells"]) == 33
        assert "| – |" in text, "cells that the paper could not train"


def test_requirements_can_fail():
    """The same page with an N-VAE that is too good."""
    results = pretended("table1")
    for name, place in (("flat", 2), ("limit", 3)):
        worse = {shard: deepcopy(r) if shard.startswith(name) else r for shard, r in results.items()}
        for record in (r for shard, result in worse.items() if shard.startswith(name) for r in result["trainings"]):
            record["nll"] -= 3.0
        found = [r["holds"] for r in TABLE1.summarise(worse)["requirements"]]
        assert found == [k not in ((0, place) if name == "flat" else (place,)) for k in range(6)]


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """A few digits that are noise, and settings that train in a blink."""
    random = np.random.default_rng(0)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for prefix, rows in (("train", 60), ("t10k", 30)):
        images = random.integers(0, 256, (rows, 28, 28)).astype(np.uint8)
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx((np.arange(rows) % 10).astype(np.uint8)))
    monkeypatch.setenv("CURVAE_DATA", str(tmp_path))
    small = replace(paper_tables.DIGITS, hidden=(5,), epochs=1, batch_size=20)
    monkeypatch.setattr(paper_tables, "sizes", lambda plan: (small, 2, 60, 30))
    monkeypatch.setattr(paper_tables, "ABLATED", replace(paper_tables.ABLATED, hidden=(5,), batch_size=20))
    for cached in (paper_tables.digits, paper_tables.digit_trial):
        cached.cache_clear()
    yield
    for cached in (paper_tables.digits, paper_tables.digit_trial):
        cached.cache_clear()


def test_table_2_then_3_from_the_command_line(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(paper_tables, "figure_bytes", lambda figure: b"\x89PNG\r\n\x1a\n")  # drawn above
    out = tmp_path / "out"
    done = curvae("paper", "table2", "--quick", "--out", out)
    assert done.code == 0, done.err
    assert "requirements hold" in done.out and "next: curvae paper list" in done.out
    result = json.loads((out / "table2.json").read_text())
    assert len(result["cells"]) == 8 and result["quick"] is True
    assert all(c["failed"] == 0 for c in result["cells"])
    kept = (out / "cache" / "mnist-d2-wrapped.safetensors").stat().st_mtime_ns
    assert curvae("paper", "table3", "--quick", "--out", out, "-q").code == 0
    assert (out / "cache" / "mnist-d2-wrapped.safetensors").stat().st_mtime_ns == kept, "the models of Table 2 serve"
    table = json.loads((out / "table3.json").read_text())
    assert {len(c["by_digit"]) for c in table["cells"]} == {10}
    assert (out / "figures" / "table3-1.png").exists()
    assert curvae("paper", "ablation", "--quick", "--out", out, "-q").code == 0
    listed = curvae("paper", "list", "--quick", "--out", out)
    assert "table2    8/8 shards done" in listed.out and "figures   0/3" in listed.out
    assert curvae("paper", "table2", "--quick", "--out", out, "--shards", "--json").json == {
        "table2": dict.fromkeys([s.name for s in TABLE2.shards(Plan(quick=True))], "done")
    }


def test_mistakes_are_answered_in_a_line(tmp_path):
    refused("paper", "table9", says=["no experiment 'table9'", "table1"])
    refused("paper", "all", "--only", "flat", says=["--only needs one experiment"])
    refused("paper", "table1", "--only", "flet", "--out", tmp_path, says=["no shard flet", "--shards"])
    assert "flat-1: missing" in curvae("paper", "table1", "--shards", "--out", tmp_path).out


# --- cells of the tables, against scipy ------------------------------------------------------------------------------


# --- tests ----------------------------------------------------------------------------------------------------------


def test_tests_against_scipy():
    random = np.random.default_rng(1)
    a, b = random.normal(1.0, 2.0, 12), random.normal(0.5, 1.0, 12)
    expected = stats.ttest_rel(a, b)
    found = paired(dict(enumerate(a)), dict(enumerate(b)))
    assert (found["p"], found["df"]) == pytest.approx((expected.pvalue, 11))
    low, high = expected.confidence_interval(0.95)
    half = found["half"]
    assert (found["difference"] - half, found["difference"] + half) == pytest.approx((low, high))
    low, high = stats.t.interval(0.95, 11, a.mean(), stats.sem(a))
    own = estimate(list(a))
    assert (own["mean"] - own["half"], own["mean"] + own["half"], own["n"]) == pytest.approx((low, high, 12))
    assert math.isnan(estimate([3.0])["half"])


def test_welch_s_test_against_a_printed_interval():
    ours, theirs = np.random.default_rng(2).normal(57.0, 0.5, 20), np.random.default_rng(3).normal(56.0, 0.4, 10)
    half = stats.t.ppf(0.975, 9) * stats.sem(theirs)
    expected = stats.ttest_ind(ours, theirs, equal_var=False)
    found = against_printed(list(ours), {"mean": theirs.mean(), "half": half, "n": 10})
    assert (found["p"], found["df"]) == pytest.approx((expected.pvalue, expected.df))
    assert found["difference"] == pytest.approx(ours.mean() - theirs.mean())
    exact = against_printed(list(ours), {"mean": 57.1, "half": 0.0, "n": 10})
    assert exact["p"] == pytest.approx(stats.ttest_1samp(ours, 57.1).pvalue)
    assert mark(found) == "worse" and mark(found, lower_is_better=False) == "better"
    assert mark(found | {"p": 0.06}) == "equal"


def test_the_linear_contrast_is_the_mean_slope():
    random, x = np.random.default_rng(4), [0.1, 0.3, 0.8, 1.0, 1.2]
    table = random.normal(size=(8, 1)) + random.normal(-0.4, 0.3, (8, 1)) * x + 0.1 * random.normal(size=(8, 5))
    slopes = [stats.linregress(x, row).slope for row in table]
    expected = stats.ttest_1samp(slopes, 0.0)
    found = trend([dict(enumerate(column)) for column in table.T], x)
    assert (found["difference"], found["p"]) == pytest.approx((np.mean(slopes), expected.pvalue))


def test_cells_leave_failures_out():
    records = {s: {"nll": 50.0 + s} for s in range(4)} | {4: {"nll": 9.0, "failure": "the loss became nan"}}
    flat = {s: {"nll": 51.0 + s + 0.1 * s**2} for s in range(5)}
    found = cell(records, {"mean": 60.0, "half": 0.2, "n": 20}, flat)
    assert found["failed"] == 1 and found["ours"]["mean"] == pytest.approx(51.5)
    assert found["against_paper"]["mark"] == "better"
    assert found["against_flat"]["p"] == pytest.approx(stats.ttest_rel([50, 51, 52, 53], [51, 52.1, 53.4, 54.9]).pvalue)


# Methods beside the model: GPLVM, principal components, classifiers.


# --- the map's baselines --------------------------------------------------------------------------------------------


def test_the_likelihood_of_the_gplvm():
    random = np.random.default_rng(0)
    y, x, logs = random.normal(size=(9, 4)), random.normal(size=(9, 2)), np.array([0.2, -0.3, -0.9])
    s, length, noise = np.exp(logs)
    value, in_x, in_logs = negative_log_likelihood(x, logs, y)
    squares = ((x[:, None] - x) ** 2).sum(-1)
    kernel = s**2 * np.exp(-squares / (2 * length**2)) + (noise**2 + 1e-8 * s**2) * np.eye(9)
    assert value == pytest.approx(-stats.multivariate_normal(np.zeros(9), kernel).logpdf(y.T).sum(), rel=1e-12)

    def objective(p):
        return negative_log_likelihood(p[3:].reshape(9, 2), p[:3], y)[0]

    start = np.concatenate([logs, x.ravel()])
    steps = 1e-5 * np.eye(len(start))
    slopes = [(objective(start + e) - objective(start - e)) / 2e-5 for e in steps]
    np.testing.assert_allclose(np.concatenate([in_logs, in_x.ravel()]), slopes, atol=1e-6)
    assert gplvm(y, iterations=30)[1] > gplvm(y, iterations=1)[1]


def test_the_likelihood_of_the_gplvm_is_gpy_s():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gpy = pytest.importorskip("GPy")
        random = np.random.default_rng(0)
        y, x, logs = random.normal(size=(9, 4)), random.normal(size=(9, 2)), np.array([0.2, -0.3, -0.9])
        kernel = gpy.kern.RBF(2, variance=np.exp(2 * logs[0]), lengthscale=np.exp(logs[1]))
        model = gpy.models.GPLVM(y, 2, X=x.copy(), kernel=kernel)
        model.likelihood.variance = np.exp(2 * logs[2])
        value, in_x, _ = negative_log_likelihood(x, logs, y)
        assert value == pytest.approx(-float(model.log_likelihood()), rel=1e-6)
        np.testing.assert_allclose(in_x, -np.asarray(model.X.gradient), atol=1e-5)


def test_recovery_of_a_tree():
    """Turns of observations, one by one, and the committed figures of PCA."""
    tree, c = branching_diffusion(depth=3, per_node=2), 1.3
    z = PoincareBall(2, c).random(len(tree.x), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    latent, hops = [], []
    for i, j in itertools.combinations(range(len(tree.x)), 2):
        if i % 2 == j % 2:
            latent.append(float(PoincareBall(2, c).dist(z[i], z[j])))
            hops.append(float(tree.distances()[tree.node[i], tree.node[j]]))
    latent, hops = np.array(latent), np.array(hops)
    best = optimize.minimize_scalar(lambda s: np.abs(s * latent / hops - 1).mean(), (0.1, 3.0))
    radius = PoincareBall(2, c).dist0(z)
    expected = {
        "distortion": best.fun,
        "distance_correlation": stats.spearmanr(hops, latent).statistic,
        "depth_correlation": stats.spearmanr(tree.depth[tree.node], radius).statistic,
    }
    assert recovery(tree, Embedded(z.numpy(), c)) == pytest.approx(expected, abs=1e-6)
    assert list(recovery(tree, Embedded(np.zeros((30, 2)), c)).values()) == [1.0, 0.0, 0.0]
    stored = json.loads((ROOT / "results" / "paper" / "table1.json").read_text())["shards"]["baselines"]["maps"]["PCA"]
    for seed in (0, 7):
        tree = branching_diffusion(seed=seed)
        found = recovery(tree, Embedded(principal_components(Scaling.standard(tree.x).apply(tree.x)), 0.0))
        assert {"seed": seed, **found} == pytest.approx(stored[seed], abs=1e-9)


def test_principal_components_are_scikit_learn_s():
    from sklearn.decomposition import PCA

    found, expected = principal_components(X), PCA(2).fit_transform(X)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-9)


# --- classifiers and hyperplanes ------------------------------------------------------------------------------------


def test_classifiers_learn_and_do_not_disturb_each_other():
    fitted = [fit(replace(TINY, curvature=c, seed=s, epochs=1), X) for c, s in ((0.5, 0), (1.4, 1))]
    labels = torch.arange(90) % 3
    centre = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])
    points = [centre[labels] + 0.1 * torch.randn(90, 2, generator=torch.Generator().manual_seed(s)) for s in (0, 1)]
    settings = {"trainings": 2, "epochs": 30, "batch_size": 20, "learning_rate": 0.01}
    both = confusions(fitted, (points, labels), (points, labels), 3, **settings)
    assert both.shape == (2, 2, 3, 3) and (both.sum(-1) == 30).all()
    assert (both.diagonal(dim1=-2, dim2=-1).sum(-1) >= 88).all()
    short = settings | {"epochs": 1}
    together = confusions(fitted, (points, labels), (points, labels), 3, **short)
    for k in (0, 1):
        alone = confusions(fitted[k : k + 1], (points[k : k + 1], labels), (points[k : k + 1], labels), 3, **short)
        assert torch.equal(alone[0], together[k])
    none = confusions(fitted, (points, labels), (points, labels), 3, **(short | {"learning_rate": 1e-12}))
    assert not torch.equal(none, both)


def test_a_classifier_starts_at_the_decoder_s_first_layer():
    learned = {"learn_curvature": True, "decoder": "gyroplane_scalar"}
    for c, more in ((0.7, {}), (0.0, {}), (0.0, {"decoder": "log_mlp"}), (0.7, learned)):
        fitted = fit(replace(TINY, curvature=c, **more), X)
        made = classifier(fitted, 10, 3)
        plain = more.get("decoder") == "log_mlp"
        assert isinstance(made[0], torch.nn.Linear if plain else Gyroplane) and made[-1].out_features == 10
        for name, t in fitted.model.decoder[0].named_parameters():
            if name != "curvature.log_c":
                assert torch.equal(t, made[0].state_dict()[name])
        if not plain:
            assert not made[0].curvature.learnable
            assert float(made[0].curvature()) == float(fitted.model.space.curvatures()[0].detach())
