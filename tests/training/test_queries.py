"""Queries on a trained model: what is new is trained, and nothing else changes a bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import spearmanr

from cell_files import counts
from curvae.data import Column, Dataset, Schema
from curvae.models import Batch
from curvae.training import Config, embed, fit, queries
from curvae.training.queries import fit_query, fit_scores, held_out_fit, unknown_probability

ROWS, GENES = 60, 12
SETTINGS = {
    "plain": {},
    "encoder": {"encode_covariates": True},
    "dispersions": {"dispersion": "gene-batch", "encode_covariates": True},
    "sizes": {"learn_sizes": True, "likelihood": "zinb"},
    "product": {"space": "h2,e1", "neighbours": "near"},
}


def cells(batches, rows=ROWS, seed=0, lone=None, age=True):
    """Counts with two covariates, the batch between them or last; batches are codes of `batches`."""
    random = np.random.default_rng(seed)
    codes = np.arange(rows) % len(batches)
    x = counts(rows, GENES, seed) + 1
    x *= 1 + codes[:, None]
    names = (Column("batch", tuple(batches)), *([Column("age")] if age else []))
    schema = Schema(
        "cells", tuple(Column(f"g{j}") for j in range(GENES)), (GENES,), covariates=names, batch_key="batch"
    )
    context = np.eye(len(batches))[codes]
    if age:
        context = np.column_stack([context, random.normal(size=rows)])
    if lone:
        schema, context = replace(schema, covariates=names[1:], only_batch=batches[0]), context[:, 1:]
    return Dataset(
        x=x,
        names=schema.names,
        shape=(GENES,),
        ids=np.arange(rows).astype(str),
        exposure=x.sum(1).astype(float),
        context=context if schema.covariates else None,
        context_names=schema.context_names,
        schema=schema,
        total=True,
        batch=schema.batch,
        counts=True,
    )


def queried(reference, known, new, rows=40, seed=1):
    """Cells of further batches, of which those of known ones are among them."""
    schema = known.with_batches(new)
    codes = schema.batches.categories
    made = cells(codes, rows, seed, age=len(schema.covariates) > 1)
    # The columns of covariates are in the order of the schema.
    order = [made.context_names.index(name) for name in schema.context_names]
    return replace(
        made, context=made.context[:, order], context_names=schema.context_names, schema=schema, batch=schema.batch
    )


CONFIG = Config(likelihood="nb", hidden=(6,), epochs=2, validation=0.0, patience=None, weight_decay=1.0)


def settings(name):
    return replace(CONFIG, **SETTINGS[name])


@pytest.mark.parametrize("lone", [False, True], ids=["batches", "one batch"])
@pytest.mark.parametrize("name", SETTINGS)
def test_only_new_columns_change(name, lone):
    if lone and name == "dispersions":
        pytest.skip("there is no batch to have dispersions of its own")
    data = cells(["a"] if lone else ["a", "b"], lone=lone)
    reference = fit(settings(name), data).double()
    known = data.schema
    query = queried(reference, known, ["x", "y"])
    found = fit_query(reference, known, query, replace(reference.config, epochs=6)).double()
    assert [record["epoch"] for record in found.history] == [1, 2, 3, 4, 5, 6] and found.config.epochs == 6
    old, new = reference.model.state_dict(), found.model.state_dict()
    first, batches = query.batch
    before, widened = batches - 2, []
    for key, value in new.items():
        was = old.get(key, old.get(key.replace("decoder.layers.", "decoder.").replace("encoder.layers.", "encoder.")))
        if was is not None and was.shape == value.shape:
            assert torch.equal(was, value), key
            continue
        widened.append(key)
        if key == "decoder.slopes":
            assert len(value) == 2 and all(one.any() for one in value)
            continue
        columns = value.T if "shifts" in key else value.reshape(-1, value.shape[-1])
        start = first if "shifts" in key else 0
        learned = columns[start + before : start + batches]
        others = torch.cat([columns[: start + before], columns[start + batches :]])
        if was is None:
            assert not others.any()
        elif was.dim() == 1:  # dispersions that all known batches share
            assert torch.equal(others, was.expand(before, -1))
        elif lone and "shifts" in key:
            assert torch.equal(torch.cat([others[:first], others[first + 1 :]]), was.T) and not others[first].any()
        else:
            assert torch.equal(others, was.T if "shifts" in key else was.reshape(others.shape))
        assert len(learned) == 2 and (learned[0] != learned[1]).any()
    assert {key.split(".")[0] for key in widened} >= {"decoder"} | ({"encoder"} if "enc" in name else set())
    assert {key for key in widened if "log_" in key or "slopes" in key} == {
        "decoder.slopes",
        "likelihood.log_dispersion",
        *(["likelihood.log_sizes"] if name == "sizes" else []),
    }
    # Places and likelihoods of the reference, as the wider model is told of them.
    wider = replace(
        data,
        context=np.insert(data.context, [first + before - lone] * (2 + lone), [[*[1.0] * lone, 0.0, 0.0]], 1),
        context_names=query.context_names,
        batch=query.batch,
    )
    was, now = embed(reference, data), embed(found, wider)
    np.testing.assert_array_equal(was.space, now.space)
    np.testing.assert_array_equal(was.sigma, now.sigma)
    if not reference.config.encode_covariates:
        np.testing.assert_array_equal(embed(found, query).space, embed(reference, query).space)
    assert all(parameter.requires_grad for parameter in found.model.parameters())


def test_an_encoder_that_is_told_batches_is_shown_new_ones_as_known_ones():
    """Counts times the ratio of shares that the decoder expects in both batches, in the known batch."""
    data = cells(["a"], lone=True)
    reference = fit(settings("encoder"), data)
    query = queried(reference, data.schema, ["x"])
    found = fit_query(reference, data.schema, query, replace(reference.config, epochs=8, learning_rate=0.1)).double()
    model, batch = found.model, found.rows(query).batch(torch.arange(len(query.x)))
    first, (known, new) = query.batch[0], batch.context[:, query.batch[0] : query.batch[0] + 2].T
    assert bool(new.any()) and bool(known.any()) and model.queried == (first, 1, 1)
    told = batch.context.clone()
    told[:, first], told[:, first + 1] = 1.0, 0.0
    with torch.no_grad():
        inputs = (batch.x / batch.size[:, None] * model.likelihood.unit).log1p()
        before = model.posterior(model.encoder(inputs, batch.context, model.space.curvatures())).loc
        own, other = (softmax(model.decode(before, context).numpy(), 1) for context in (batch.context, told))
        inputs = (batch.x * torch.from_numpy(other / own) / batch.size[:, None] * model.likelihood.unit).log1p()
        expected = model.posterior(model.encoder(inputs, told, model.space.curvatures())).loc
    np.testing.assert_allclose(embed(found, query).space, expected, rtol=1e-9)
    moved = np.abs(embed(found, query).space - before.numpy()).max(1) > 1e-3
    np.testing.assert_array_equal(moved, new.numpy() > 0)
    with torch.no_grad():  # beside companions as alone
        points = model.space.centres(model._outputs_with(batch, batch))
    np.testing.assert_allclose(points, torch.cat([expected, expected]), rtol=1e-9)


def test_new_columns_start_at_the_mean_of_the_others():
    data = cells(["a", "b", "c"])
    reference = fit(settings("dispersions"), data)
    query = queried(reference, data.schema, ["x"])
    found = fit_query(reference, data.schema, query, replace(reference.config, learning_rate=1e-12, epochs=1))
    for key, value in found.model.state_dict().items():
        if "shifts" in key or "log_dispersion" in key:
            columns = value.T if "shifts" in key else value
            torch.testing.assert_close(columns[3], columns[:3].mean(0))


def test_sizes_of_new_batches_are_those_of_the_query():
    data = cells(["a", "b"])
    reference = fit(settings("sizes"), data)
    query = queried(reference, data.schema, ["x", "y"])
    found = fit_query(reference, data.schema, query, reference.config).model.likelihood.log_sizes.numpy()
    np.testing.assert_array_equal(found[:2], reference.model.likelihood.log_sizes)
    for place in (2, 3):
        logs = np.log(query.exposure[query.context[:, place] == 1])
        np.testing.assert_allclose(found[place], [logs.mean(), logs.std()], rtol=2e-2)


def test_training_helps_and_a_query_of_a_query_is_one():
    data = cells(["a", "b"])
    reference = fit(replace(CONFIG, epochs=30), data)
    query = queried(reference, data.schema, ["x", "y"])
    start, end = (
        fit_query(reference, data.schema, query, replace(reference.config, epochs=epochs, learning_rate=rate))
        for epochs, rate in ((1, 1e-12), (40, 0.01))
    )
    assert end.history[-1]["elbo"] > start.history[-1]["elbo"] + 1
    again = queried(end, query.schema, ["z"])
    third = fit_query(end, query.schema, again, reference.config)
    assert third.layout.batch == (0, 5) and third.layout.covariates == 6
    weight = "decoder.shifts.0.weight"
    was, now = end.model.state_dict(), third.model.state_dict()
    assert torch.equal(now[weight][:, [0, 1, 2, 3, 5]], was[weight])
    assert torch.equal(now["decoder.slopes"][:2], was["decoder.slopes"]) and now["decoder.slopes"][2].any()
    assert (end.layout.queried, third.layout.queried, third.config.dispersion) == (2, 3, "gene-batch")


def test_dispersions_of_a_query_are_its_own():
    """Where a query varies as its reference does but for its dispersions, these become its own."""
    data = cells(["a"], 400)
    reference = fit(replace(CONFIG, epochs=30, learning_rate=0.01), data)
    query = queried(reference, data.schema, ["x"], 400)
    random, rates = np.random.default_rng(3), 50.0 * np.arange(1, GENES + 1)
    x = random.poisson(rates * random.gamma(2.0, 0.5, (400, GENES))).astype(np.float32)
    query = replace(query, x=x, exposure=x.sum(1).astype(float))
    config = replace(reference.config, epochs=50, learning_rate=0.03)
    found = fit_query(reference, data.schema, query, config).model.likelihood
    new = query.context[:, slice(*np.cumsum(query.batch))].argmax(1).max()
    assert 1.2 < found.log_dispersion[new].exp().median() < 4.5  # planted: 2, of rates whose totals are known


def test_settings_of_the_reference_are_kept(monkeypatch):
    """Those of the plan; as many epochs need not be trained to see them."""
    data = cells(["a", "b"])
    reference = fit(replace(CONFIG, neighbours="near"), data)
    query = queried(reference, data.schema, ["x"])
    config = replace(reference.config, epochs=None)
    monkeypatch.setattr(queries, "train_one", lambda _, tasks: replace(reference, config=tasks[0].config))
    found = fit_query(reference, data.schema, query, config).config
    assert (found.neighbours, found.learning_rate, found.steps) == ("near", CONFIG.learning_rate, "auto")
    assert found.epochs == 600


def test_all_is_trained_at_once_where_the_reference_is_a_query(monkeypatch):
    data = cells(["a", "b"])
    reference = fit(replace(settings("encoder"), neighbours="near"), data)
    query = queried(reference, data.schema, ["x"])
    mapped = fit_query(reference, data.schema, query, reference.config)
    more, calls, plain = queried(mapped, query.schema, ["y"]), [], queries.train_one
    monkeypatch.setattr(queries, "train_one", lambda *given: (calls.append(given), plain(*given))[1])
    found = fit_query(mapped, query.schema, more, replace(mapped.config, epochs=3), unfrozen=True)
    assert (len(calls), len(found.history), found.config.epochs, found.layout.queried) == (1, 3, 3, 1)
    assert np.isfinite([record["elbo"] for record in found.history]).all() and found.model.queried is not None


def test_all_is_trained_where_that_is_asked_for():
    data = cells(["a", "b"])
    reference = fit(CONFIG, data)
    query = queried(reference, data.schema, ["x"])
    found = fit_query(reference, data.schema, query, reference.config, unfrozen=True)
    old, new = reference.model.state_dict(), found.model.state_dict()
    assert not torch.equal(old["encoder.1.weight"], new["encoder.1.weight"])
    assert torch.equal(old["likelihood.unit"], new["likelihood.unit"])


# Rows that belong to no part of what a model was trained on.

FEW_GENES = 30


def cells_alike(x, batches=0):
    context = np.eye(batches)[np.arange(len(x)) % batches] if batches else None
    names = tuple(f"g{j}" for j in range(FEW_GENES))
    known = {"context": context, "context_names": tuple(f"b{i}" for i in range(batches)), "batch": (0, batches)}
    return Dataset(
        x=x,
        names=names,
        shape=(FEW_GENES,),
        ids=np.arange(len(x)).astype(str),
        exposure=x.sum(1).astype(float),
        total=True,
        counts=True,
        **(known if batches else {}),
    )


SCORED = Config(likelihood="nb", hidden=(8,), epochs=10, learning_rate=5e-3, neighbours="off")


@pytest.mark.parametrize("settings", [{}, {"learn_sizes": True}])
def test_rows_of_the_model_have_standard_scores_whatever_their_size(settings):
    random = np.random.default_rng(0)
    x = random.poisson(random.gamma(2.0, 2.0, (150, FEW_GENES)) * random.gamma(0.5, 2.0, FEW_GENES)) + 1.0
    fitted = fit(replace(SCORED, **settings), cells_alike(x)).double()
    model, generator = fitted.model, torch.Generator().manual_seed(0)
    with torch.no_grad():
        size = torch.logspace(1.8, 3.5, 300, dtype=torch.float64)
        outputs = model.decode(model.prior().sample((300,)))
        drawn = model.likelihood.sample(outputs, Batch(torch.ones(300, 1), size=size), generator).numpy()
    scores = fit_scores(fitted, cells_alike(drawn))
    low, middle, high = np.quantile(scores, [0.16, 0.5, 0.84])
    assert abs(middle) < 0.4 and 1.5 < high - low < 2.6
    assert abs(spearmanr(scores, size)[0]) < 0.2
    assert np.median(fit_scores(fitted, cells_alike(drawn[:, random.permutation(FEW_GENES)]))) < scores.min()


def test_batches_are_not_looked_at():
    x = np.random.default_rng(0).poisson(4.0, (60, FEW_GENES)) + 1.0
    data = cells_alike(x, 3)
    fitted = fit(Config(likelihood="nb", hidden=(8,), epochs=2), data)
    other = replace(data, context=np.roll(data.context, 1, 1))
    np.testing.assert_array_equal(fit_scores(fitted, data), fit_scores(fitted, other))
    wider = replace(data, context=np.eye(5)[np.arange(60) % 5], context_names=tuple("abcde"), batch=(0, 5))
    np.testing.assert_array_equal(fit_scores(fitted, data), fit_scores(fitted, wider))
    found = held_out_fit(fitted, data)  # of the training rows, for few are held out
    assert set(found) == {"mean", "deviation"} and found["deviation"] > 0


@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 1.0])
@pytest.mark.parametrize("shift", [0.0, -2.5])
def test_probabilities_are_calibrated(share, shift):
    random = np.random.default_rng(1)
    unknown = np.arange(800) < 800 * share
    scores = random.normal(-0.2 + shift, 2.0, 800) - np.where(unknown, 6 + random.gamma(2.0, 8.0, 800), 0.0)
    found = unknown_probability(scores, -0.2, 2.0)
    bins = np.minimum((found * 10).astype(int), 9)
    errors = [abs(found[bins == i].mean() - unknown[bins == i].mean()) * (bins == i).mean() for i in np.unique(bins)]
    assert sum(errors) < 0.05
    assert not unknown.any() or np.median(found[unknown]) > 0.8
    assert unknown.all() or np.median(found[~unknown]) < 0.05


def test_few_rows_have_probabilities():
    for scores in ([0.0], [-40.0], [0.1, 0.2, -30.0]):
        found = unknown_probability(np.array(scores), 0.0, 1.0)
        np.testing.assert_array_equal(found > 0.5, np.array(scores) < -10)
