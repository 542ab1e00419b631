"""Tables with columns of several kinds, and counts with an exposure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp

from curvae import CurvaeError
from curvae.data import Arrays, Column, Schema, from_arrays, load
from curvae.models import LIKELIHOODS, Batch, Bernoulli, Gaussian, Layout, Mixed, Poisson, Stack
from curvae.models.likelihoods import choose_likelihood
from curvae.training import Config, build, embed, fit, fit_many
from curvae.training.fitted import likelihoods
from curvae.training.fitting import plan_rows
from curvae.training.storage import load_fitted, save_fitted
from running import config, curvae, refused

BLOCKS = (3, 0, 1, 0, 2, 3, 1)
LAYOUT = Layout(12, BLOCKS)
SHORT = ("--hidden", "8", "--epochs", "4")
SMALL = Config(hidden=(8,), epochs=3, batch_size=32, likelihood="mixed")


def table(rows: int = 60, seed: int = 0) -> np.ndarray:
    """Columns of all kinds around one hidden number."""
    random = np.random.default_rng(seed)
    z = random.normal(size=rows)
    columns = []
    for place, block in enumerate(BLOCKS):
        slope = (-1.0) ** place
        if block == 0:
            columns.append((50 + 10 * (slope * z + random.normal(size=rows)))[:, None])
        elif block == 1:
            columns.append((random.random(rows) < 1 / (1 + np.exp(-slope * z))).astype(float)[:, None])
        else:
            columns.append(np.eye(block)[np.clip(np.round(slope * z + 1), 0, block - 1).astype(int)])
    return np.concatenate(columns, 1)


# --- the density ----------------------------------------------------------------------------------------------------


def oracle(mixed: Mixed, outputs: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The log-density of every row from scipy, a column of the source at a time."""
    scale = mixed.parts[0].scale().detach().numpy()
    total, start = np.zeros(outputs.shape[:-1]), 0
    numbers, answers = iter(range(2)), iter(range(2, 4))
    logits = dict(zip((4, 0, 5), np.split(outputs[..., 4:], [2, 5], -1), strict=True))
    for place, block in enumerate(BLOCKS):
        own = x[:, start : start + max(block, 1)]
        if block == 0:
            j = next(numbers)
            total += stats.norm.logpdf(own[:, 0], outputs[..., j], scale[j])
        elif block == 1:
            total += stats.bernoulli.logpmf(own[:, 0], 1 / (1 + np.exp(-outputs[..., next(answers)])))
        else:
            p = np.exp(logits[place] - logsumexp(logits[place], -1, keepdims=True))
            total += stats.multinomial.logpmf(np.broadcast_to(own, p.shape), 1, p)
        start += max(block, 1)
    return total


def likelihood() -> Mixed:
    made = Mixed.of(LAYOUT).double()
    with torch.no_grad():
        made.parts[0].spread.copy_(torch.tensor([0.3, -0.4]))
    return made


def test_the_density_is_the_product_of_those_of_the_columns():
    mixed, x = likelihood(), table(9)
    x[:, [3, 5]] = (x[:, [3, 5]] - 50) / 10
    outputs = torch.randn(4, 9, mixed.outputs, dtype=torch.float64)
    found = mixed.log_prob(outputs, torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(found, oracle(mixed, outputs.numpy(), x), rtol=1e-10)
    entries = mixed.entries(outputs, Batch(torch.from_numpy(x))).detach()
    np.testing.assert_allclose(entries.sum(-1), found, rtol=1e-12)
    # Every entry lies at its feature: a column alone changes its own entries.
    other = x.copy()
    other[:, 4] = 1 - x[:, 4]
    changed = mixed.entries(outputs, Batch(torch.from_numpy(other))).detach() != entries
    assert changed[..., 4].all() and changed.sum() == 4 * 9


def test_means_and_draws_lie_at_their_features():
    mixed = likelihood()
    mean = torch.tensor([0.2, 0.5, 0.3, -2.0, 0.9, 4.0, 0.6, 0.4, 0.1, 0.1, 0.8, 0.25]).double()
    torch.testing.assert_close(mixed.mean(mixed.start(mean)), mean)
    draws = mixed.sample(mixed.start(mean).expand(4000, -1), generator=torch.Generator().manual_seed(0))
    assert ((draws.mean(0) - mean).abs() < 5 * draws.std(0) / 4000**0.5).all()
    assert all((part.sum(1) == 1).all() for part in (draws[:, :3], draws[:, 6:8], draws[:, 8:11]))


def test_a_stack_computes_what_each_model_computes_alone():
    models = [build(replace(SMALL, seed=seed, curvature=c), LAYOUT) for seed, c in ((0, 0.5), (1, 1.0))]
    models = [model.double() for model in models]
    x, noise = torch.from_numpy(np.stack([table(8), table(8, 1)])) / 50, torch.randn(2, 3, 8, 2)
    observed = (torch.rand(2, 8, 12) < 0.8).double()
    alone = [m.terms(Batch(x[i], observed=observed[i]), noise[i]).reconstruction for i, m in enumerate(models)]
    found = Stack(models).terms(Batch(x, observed=observed), noise)
    torch.testing.assert_close(found.reconstruction, torch.stack(alone), rtol=1e-10, atol=1e-10)


def test_the_marginal_likelihood_is_the_integral_over_a_line():
    """In a flat latent space of one dimension, by the trapezoidal rule."""
    model = build(replace(SMALL, dim=1, curvature=0.0, decoder="mlp"), LAYOUT).double()
    with torch.no_grad():
        model.posterior.head.bias[-1] += 1.0  # wide, so that no weight is large
    x = torch.from_numpy(table(5))
    x[:, [3, 5]] = (x[:, [3, 5]] - 50) / 10
    z = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    with torch.no_grad():
        log_p = model.likelihood.log_prob(model.decode(z[:, None]).unsqueeze(1).expand(-1, 5, -1), x)
        prior = stats.norm.logpdf(z.numpy())
        expected = logsumexp(log_p.numpy() + prior[:, None], 0) + np.log(float(z[1] - z[0]))
        found = model.iwae(x, noise=torch.randn(20_000, 5, 1, generator=torch.Generator().manual_seed(0)))
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_parts_bring_their_exposure_and_what_they_show():
    """A likelihood that nobody has registered works as a part like the others."""
    mixed = Mixed([([2, 0], Poisson(2)), ([1], Gaussian(1, learned=False))]).double()
    x, size = torch.tensor([[2.0, -0.5, 4.0]]).double(), torch.tensor([2.0]).double()
    outputs = torch.tensor([[0.3, -0.2, 0.7]]).double()
    rates = 2 * np.exp([0.3, -0.2])
    expected = stats.poisson.logpmf([4, 2], rates).sum() + stats.norm.logpdf(-0.5, 0.7)
    assert float(mixed.log_prob(outputs, Batch(x, size=size))) == pytest.approx(expected)
    shown = mixed.inputs(Batch(x, size=size))
    torch.testing.assert_close(shown, torch.tensor([[np.log(2), -0.5, np.log(3)]]))
    torch.testing.assert_close(mixed.mean(outputs, Batch(x, size=size))[0, [2, 0]], torch.from_numpy(rates))
    with pytest.raises(ValueError, match="exactly one part"):
        Mixed([([0, 1], Bernoulli(2)), ([1], Gaussian(1))])
    with pytest.raises(ValueError, match="as many features as its likelihood"):
        Mixed([([0, 1], Bernoulli(1))])


# --- training -------------------------------------------------------------------------------------------------------


def test_only_numbers_are_standardised_and_units_change_nothing_in_original_units():
    x = table()
    fitted = fit(SMALL, Arrays(x, blocks=BLOCKS))
    numbers = np.isin(np.arange(12), (3, 5))
    assert (fitted.scaling.shift[~numbers] == 0).all() and (fitted.scaling.scale[~numbers] == 1).all()
    np.testing.assert_allclose(fitted.scaling.shift[numbers], x[:, numbers].mean(0))
    np.testing.assert_allclose(fitted.scaling.scale[numbers], x[:, numbers].std(0))
    scaling, units = fitted.scaling, np.where(numbers, 1000.0, 1.0)
    other = replace(fitted, scaling=replace(scaling, shift=scaling.shift * units, scale=scaling.scale * units))
    here, there = likelihoods(fitted, x, 50), likelihoods(other, x * units, 50)
    np.testing.assert_allclose(here.log_prob, there.log_prob, rtol=1e-4)
    # A density of two columns in thousandths is smaller by 1000², and nothing else is.
    assert there.log_jacobian == pytest.approx(here.log_jacobian - 2 * np.log(1000))
    made = fitted.reconstruct(embed(fitted, x).space)
    assert ((made[:, ~numbers] >= 0) & (made[:, ~numbers] <= 1)).all() and (np.abs(made[:, numbers] - 50) < 50).all()
    off = fit(replace(SMALL, standardise=False, epochs=1), Arrays(x, blocks=BLOCKS))
    assert (off.scaling.scale == 1).all()


def test_blocks_that_are_not_known_are_found_and_kept(tmp_path: Path):
    """0 and 1 alone make a column of yes and no; what was found is stored."""
    x = np.column_stack([table()[:, [3, 4]], np.ones(60), np.linspace(0, 1, 60), table(60, 1)[:, 4]])
    fitted = fit(SMALL, x)
    assert fitted.layout.blocks == (0, 1, 0, 0, 1) and fitted.reason == "as asked"
    names = tuple(Column(name) for name in "abcde")
    description = {"data": {"schema": Schema("table", names, (5,)).to_json()}}
    save_fitted(tmp_path, fitted, embed(fitted, x), description)
    again = load_fitted(tmp_path).fitted
    assert again.layout == fitted.layout and "likelihood.order" not in again.model.state_dict()
    np.testing.assert_allclose(likelihoods(again, x, 20).log_prob, likelihoods(fitted, x, 20).log_prob, rtol=1e-6)


def test_sparse_and_incomplete_columns_of_yes_and_no_are_found():
    from scipy.sparse import csr_array

    x = np.column_stack([table()[:, 4], np.r_[2.0, np.zeros(59)], np.ones(60), np.zeros(60)])
    family = LIKELIHOODS["mixed"]
    assert family.layout(csr_array(x), Layout(4)).blocks == (1, 0, 0, 0) == family.layout(x, Layout(4)).blocks
    x[:2] = np.nan
    assert family.layout(x, Layout(4)).blocks == (1, 0, 0, 0)
    for form in (csr_array, np.asarray):
        with pytest.raises(CurvaeError, match=r"needs 0 or 1 in column 2, .* a value of 2; correct it"):
            choose_likelihood(form([[1.0, 2.0], [0.0, 0.0]]), "mixed", Layout(2, (1, 1)))
    with pytest.raises(CurvaeError, match="those from column 1 on do not sum to 1"):
        choose_likelihood(np.ones((2, 2)), "mixed", Layout(2, (2,)))


@pytest.mark.parametrize(
    ("blocks", "x", "name", "why"),
    [
        ((0, 1, 3), [[0.5, 1, 0, 1, 0]], "mixed", "columns of several kinds (1 numeric, 1 binary, 1 cat"),
        ((0, 0, 1, 2), [[5, 1, 1, 0, 1]], "mixed", "columns of several kinds (2 numeric, 1 binary, 1 cat"),
        ((1, 2), [[1, 1, 0]], "mixed", "columns of several kinds (1 binary, 1 categorical), each with"),
        ((2, 2), [[0, 1, 1, 0]], "categorical", "all columns hold categories"),
        ((1, 1), [[0, 1], [1, 0]], "bernoulli", "all values are 0 or 1"),
        ((1, 0), [[0, 1], [1, 1]], "bernoulli", "all values are 0 or 1"),
        ((0, 0), [[3, 4]], "gaussian", "not all values"),
        ((), [[3, 4]], "gaussian", "not all values"),
    ],
)
def test_auto_goes_by_the_kinds_of_the_columns(blocks, x, name, why):
    values = np.array(x, float)
    found, reason = choose_likelihood(values, "auto", Layout(values.shape[1], blocks))
    assert found == name and reason.startswith(why)


def test_blocks_must_fit_the_data():
    with pytest.raises(CurvaeError, match=r"blocks \(2, 2\) stand for 4 columns, not 3"):
        fit(Config(), np.ones((4, 3)), blocks=(2, 2))
    with pytest.raises(CurvaeError, match="likelihood categorical needs"):
        fit(Config(), np.ones((4, 4)), blocks=(2, 2))


def test_blocks_are_part_of_the_data_where_the_likelihood_uses_them():
    """A likelihood that treats all features alike has no use for columns of yes and no."""
    x = table()

    def rows(blocks: tuple[int, ...], name: str, x=x) -> str:
        problem, tasks = plan_rows([replace(SMALL, likelihood=name)], x, blocks)
        return problem.fingerprinted(tasks)[0].data["rows"]

    assert rows(BLOCKS, "gaussian") == rows((), "gaussian") != rows(BLOCKS, "mixed")
    assert rows(BLOCKS, "mixed") != rows((*BLOCKS[:-1], 0), "mixed")
    one_hot = x[:, 6:11]
    older, newer = (rows(blocks, "bernoulli", one_hot) for blocks in ((), (2, 3)))
    assert older != newer  # blocks of categories always counted


# --- tables ---------------------------------------------------------------------------------------------------------


def people(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    x = table(rows, seed)
    return pd.DataFrame(
        {
            "colour": np.array(["blue", "green", "red"])[x[:, :3].argmax(1)],
            "age": x[:, 3],
            "smoker": x[:, 4].astype(int),
            "weight": x[:, 5],
        }
    )


def test_binary_is_a_kind_of_column(tmp_path: Path):
    frame = people()
    # A single value is not binary, whether in all rows or in those that are left.
    frame["constant"], frame["once"], frame["few"] = 1, np.eye(60)[0], np.r_[0, 1, 2, np.zeros(57)]
    frame["gaps"] = np.where(np.arange(60) < 3, np.nan, frame["smoker"])
    frame.to_csv(path := tmp_path / "t.csv", index=False)
    data, schema = load(path, categorical=["colour"], missing="drop")
    assert schema.column_names == ["colour", "age", "smoker", "weight", "once", "few", "gaps"]
    assert data.blocks == schema.blocks == (3, 0, 1, 0, 0, 0, 1)
    assert [column.name for column in schema.columns if column.binary] == ["smoker", "gaps"]
    stored = schema.to_json()
    assert [column.get("binary") for column in stored["columns"]] == [None, None, True, None, None, None, True]
    assert Schema.from_json(stored) == schema
    # Means of binary columns are neither; the more frequent one stands for what new data lack.
    filled, schema = load(path, categorical=["colour"], missing="mean")
    assert filled.blocks == (3, 0, 1, 0, 1, 0, 0) and schema.columns[2].fill == round(frame["smoker"].mean())
    frame.loc[0, "smoker"] = np.nan
    frame.to_csv(path, index=False)
    again, _ = load(path, schema=schema, missing="mean")
    assert set(again.x[:, 4]) == {0.0, 1.0}
    with pytest.raises(CurvaeError, match="column 1 cannot be binary"):
        Schema.from_json({**stored, "columns": [{**stored["columns"][0], "binary": True}, *stored["columns"][1:]]})


def test_numbers_alone_have_no_blocks_and_fingerprints_stay(tmp_path: Path):
    people()[["age", "weight"]].to_csv(path := tmp_path / "t.csv", index=False)
    assert load(path)[0].blocks == ()
    data = from_arrays([[0.0, 1.0], [2.0, 3.0]], labels=["a", "b"])
    # Recorded before there were columns of yes and no.
    assert data.fingerprint == "d17c9bcf57fda95b472a1fb60aa65e9af0d2f8617a50dc43aa3e1943939e45df"
    assert replace(data, blocks=(0, 1)).fingerprint == data.fingerprint
    exposed = replace(data, exposure=np.array([1.0, 2.0]))
    assert exposed.fingerprint != data.fingerprint
    assert exposed.take([1]).exposure.tolist() == [2.0] and exposed.arrays.size.tolist() == [1.0, 2.0]
    with pytest.raises(CurvaeError, match="exposure of shape"):
        replace(data, exposure=np.ones(3))


def test_a_mixed_table_on_the_command_line(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    people().to_csv("people.csv", index=False)
    fitted = curvae("fit", "people.csv", "--categorical", "colour", *SHORT, "-o", "run")
    assert "likelihood mixed: columns of several kinds (2 numeric, 1 binary, 1 categorical)" in fitted.err
    assert f"{len(people())} rows, 4 columns; " in fitted.err
    assert config()["config"]["likelihood"]["likelihood"] == "mixed" and config()["layout"]["blocks"] == [3, 0, 1, 0]
    report = Path("run/report.html").read_text(encoding="utf-8")
    assert "Columns of numbers were centred and scaled" in report and "Every number is shown from its mean" in report
    weights = Path("run/model.safetensors").read_bytes()
    assert curvae("fit", "people.csv", "-o", "run", "--resume").code == 0
    assert Path("run/model.safetensors").read_bytes() == weights
    curvae("sample", "run", "-n", 40, "-o", "new.csv")
    new = pd.read_csv("new.csv")
    assert list(new) == ["colour", "age", "smoker", "weight"] and set(new["colour"]) <= {"blue", "green", "red"}
    assert new["smoker"].dtype == int and set(new["smoker"]) == {0, 1} and abs(new["age"].mean() - 50) < 15
    curvae("embed", "run", "new.csv", "-o", "places.csv")
    assert np.isfinite(pd.read_csv("places.csv")["ball_1"]).all()
    part = curvae("evaluate", "run", "people.csv", "--samples", 20, "--json").json["parts"]["validation"]
    gap = part["log_likelihood_original_units"] - part["log_likelihood"]
    assert gap == pytest.approx(-np.log(people()[["age", "weight"]].std(ddof=0)).sum())
    new.assign(smoker=0.5).to_csv("wrong.csv", index=False)
    for command in ("embed", "evaluate"):
        refused(command, "run", "wrong.csv", says=["needs 0 or 1 in column 'smoker'", "there is a value of 0.5"])


# --- exposure -------------------------------------------------------------------------------------------------------


def counts(rows: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Counts whose rates hang on one hidden number, watched for different times."""
    random = np.random.default_rng(5)
    z, hours = random.normal(size=rows), random.uniform(2, 20, size=rows)
    rates = np.exp(1.5 + 0.7 * np.outer(z, [1, -1, 0.5, -0.5, 0, 1]))
    return random.poisson(hours[:, None] * rates).astype(float), hours


def _explained(values: np.ndarray, points: np.ndarray) -> float:
    """Share of the variance that a quadratic function of places in the plane explains."""
    a, b = points.T
    design = np.column_stack([np.ones_like(a), a, b, a * a, b * b, a * b])
    left = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return float(1 - left.var() / values.var())


POISSON = Config(
    likelihood="poisson", hidden=(32,), epochs=30, batch_size=64, learning_rate=2e-2, curvature=0.0, neighbours="off"
)


def test_a_row_watched_twice_as_long_keeps_its_place_and_has_twice_the_counts():
    x, hours = counts()
    fitted = fit(POISSON, Arrays(x, size=hours))
    here, there = (embed(fitted, Arrays(k * x, size=k * hours)) for k in (1, 2))
    assert np.abs(here.space - there.space).max() < 1e-6
    one, two = (fitted.reconstruct(here.space, size=size) for size in (hours, 2 * hours))
    np.testing.assert_allclose(two, 2 * one)
    np.testing.assert_allclose(one.sum(), x.sum(), rtol=0.05)
    np.testing.assert_allclose(fitted.reconstruct(here.space) * hours[:, None], one)
    # Who is not told the time needs the map for it.
    blind = fit(POISSON, x)
    assert likelihoods(fitted, Arrays(x, size=hours), 50).mean > likelihoods(blind, x, 50).mean + 1
    apart, together = (
        _explained(hours, embed(*pair).tangent) for pair in ((blind, x), (fitted, Arrays(x, size=hours)))
    )
    assert apart > 0.5 and together < 0.2
    # Fresh rows are those of one hour.
    drawn = fitted.model.sample(2000, torch.Generator().manual_seed(0)).mean()
    assert float(drawn) == pytest.approx(x.sum() / hours.sum() / 6, rel=0.15)
    with pytest.raises(CurvaeError, match=r"trained with an exposure .* Arrays\(x, size=exposure\)"):
        embed(fitted, x)
    with pytest.raises(CurvaeError, match="trained with an exposure"):
        likelihoods(fitted, x, 5)


def test_outputs_start_at_the_counts_of_one_unit():
    x, hours = counts(40)
    fitted = fit(replace(POISSON, epochs=1, learning_rate=1e-12), Arrays(x, size=hours))
    bias = [layer for layer in fitted.model.decoder.modules() if isinstance(layer, torch.nn.Linear)][-1].bias
    train = fitted.split.train
    np.testing.assert_allclose(bias.detach().exp(), x[train].sum(0) / hours[train].sum(), rtol=1e-5)


def test_models_with_and_without_exposure_are_trained_side_by_side():
    x, hours = counts(40)
    config = replace(POISSON, epochs=2, hidden=(8,))
    data = [Arrays(x, size=hours), x]
    for one, own in zip(fit_many([config, config], data), data, strict=True):
        alone = fit(config, own)
        np.testing.assert_allclose(one.history[-1]["elbo"], alone.history[-1]["elbo"], rtol=1e-5)


@pytest.mark.parametrize("name", ["auto", "gaussian", "mixed"])
def test_exposure_needs_a_likelihood_that_uses_it(name):
    x, hours = counts(40)
    with pytest.raises(CurvaeError, match=r'needs `likelihood="poisson"`, nb or zinb, not (gaussian|mixed)'):
        fit(replace(POISSON, likelihood=name), Arrays(x, size=hours))


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf])
def test_exposure_is_positive(wrong, tmp_path: Path):
    x, hours = counts(40)
    hours[3] = wrong
    with pytest.raises(CurvaeError, match="exposure must be a positive, finite number for every row"):
        fit(POISSON, Arrays(x, size=hours))
    pd.DataFrame({"a": x[:, 0], "hours": hours}).to_csv(path := tmp_path / "c.csv", index=False)
    with pytest.raises(CurvaeError, match=r"exposure column 'hours' of c.csv is not a positive number in 1 row"):
        load(path, exposure="hours")


def test_exposure_is_a_column_of_a_table(tmp_path: Path):
    x, hours = counts(40)
    frame = pd.DataFrame(x[:, :2], columns=["a", "b"]).assign(hours=hours)
    frame.loc[2, "a"] = np.nan
    frame.to_csv(path := tmp_path / "c.csv", index=False)
    data, schema = load(path, exposure="hours", missing="drop")
    assert data.names == ("a", "b") and data.exposure.tolist() == np.delete(hours, 2).tolist()
    assert Schema.from_json(schema.to_json()) == schema and schema.exposure == "hours"
    assert "exposure" not in load(path, missing="drop")[1].to_json()
    with pytest.raises(CurvaeError, match="cannot be a feature and a label, id, group or exposure at once"):
        load(path, exposure="hours", categorical=["hours"])
    with pytest.raises(CurvaeError, match="has no column 'hour'.*did you mean 'hours'"):
        load(path, exposure="hour")
    frame.assign(a="x").to_csv(path, index=False)
    with pytest.raises(CurvaeError, match="has text in column 'a'.*an exposure is a number"):
        load(path, exposure="a")


def test_exposure_on_the_command_line(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, hours = counts(60)
    frame = pd.DataFrame(x, columns=list("abcdef")).astype(int).assign(hours=hours)
    frame.to_csv("c.csv", index=False)
    frame.drop(columns="hours").to_csv("without.csv", index=False)
    settings = ("--exposure", "hours", *SHORT)
    refused("fit", "c.csv", *settings, says=["an exposure needs --likelihood poisson, nb or zinb, not gaussian"])
    fitted = curvae("fit", "c.csv", *settings, "--likelihood", "poisson", "-o", "run")
    assert "next: curvae fit c.csv --exposure hours" in fitted.out
    curvae("embed", "run", "c.csv", "-o", "places.csv")
    places, own = (pd.read_csv(name)["ball_1"] for name in ("places.csv", "run/embedding.csv"))
    np.testing.assert_allclose(places, own)
    for command in ("embed", "evaluate"):
        refused(command, "run", "without.csv", says=["without.csv has no column 'hours', the exposure that the model"])
    curvae("sample", "run", "-n", 5, "-o", "new.csv")
    assert (pd.read_csv("new.csv")["hours"] == 1).all()
    assert curvae("embed", "run", "new.csv").code == 0
    assert curvae("fit", "c.csv", "-o", "run", "--resume").code == 0
    description = config()
    description["source"]["exposure"] = None
    Path("run/config.json").write_text(json.dumps(description), encoding="utf-8")
    refused("fit", "c.csv", "-o", "run", "--resume", says=["not the data"])
    found = curvae("compare", "c.csv", *settings, "--likelihood", "poisson", "--repeats", 3, "--jobs", 1, "--json").json
    assert found["likelihood"] == "poisson" and np.isfinite(found["gain"])
