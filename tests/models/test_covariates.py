"""Covariates: read from tables, told to decoder and encoder, forgotten by the map, asked for where they are needed."""

from __future__ import annotations

import html
import json
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from torch import nn
from torch.func import functional_call

from curvae import CurvaeError, PoincareVAE
from curvae.data import Arrays, Column, Schema, load
from curvae.data.tables import code_values
from curvae.models import Batch, Layout, Stack, marginal, marginal_likelihood
from curvae.models.stack import trace
from curvae.nn import Conditioned, Space, decoder, mlp
from curvae.nn.layers import Curved
from curvae.training import Config, build, compare, fit, fit_many, random_split
from curvae.training.fitted import Effects, embed, likelihoods
from curvae.training.fitting import scaling_for
from curvae.training.rows import layout_of
from running import SMALL, config, curvae, refused, write_table

FEATURES, TOLD, ROWS = 4, 3, 5
BASE = Config(hidden=(6, 5), likelihood="gaussian")
LAYOUT = Layout(FEATURES, covariates=TOLD)


def scaled_as(settings, data, split):
    return scaling_for(settings, layout_of(data), data, split)


def random_model(settings=BASE, layout=LAYOUT):
    """In float64, and with weights of the context that are not 0."""
    model = build(settings, layout).double()
    torch.manual_seed(settings.seed)
    for name, parameter in model.named_parameters():
        if "shifts" in name:
            nn.init.normal_(parameter)
    return model


def random_batch(*models, rows=ROWS):
    generator = torch.Generator().manual_seed(5)
    parts = [torch.randn(*models, rows, width, generator=generator, dtype=torch.float64) for width in (FEATURES, TOLD)]
    return Batch(parts[0], context=parts[1])


# --- networks -------------------------------------------------------------------------------------------------------


def test_after_the_first_layer_a_context_is_an_input_more():
    network = Conditioned(mlp(FEATURES, 6, 2), TOLD, {1: 6}).double()
    nn.init.normal_(network.shifts["1"].weight)
    wide = mlp(FEATURES + TOLD, 6, 2).double()
    with torch.no_grad():
        wide[1].weight.copy_(torch.cat([network.layers[1].weight, network.shifts["1"].weight], 1))
        wide[1].bias.copy_(network.layers[1].bias)
        wide[3].load_state_dict(network.layers[3].state_dict())
    batch = random_batch()
    torch.testing.assert_close(network(batch.x, batch.context), wide(torch.cat([batch.x, batch.context], 1)))


@pytest.mark.parametrize("kind", ["gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius"])
def test_every_decoder_is_told_at_every_layer(kind):
    c, plain = torch.tensor(0.7).double(), decoder(kind, Space("h2:0.7"), (6, 5), FEATURES).double()
    network = Conditioned(plain, TOLD).double()
    S, context = torch.randn(ROWS, 2, dtype=torch.float64), random_batch().context
    torch.testing.assert_close(network(S, context, c), plain(S, c))  # fresh weights say nothing
    for shift in network.shifts.values():
        nn.init.normal_(shift.weight)
    expected, added = S, 0
    for layer, after in zip(plain, [*list(plain)[1:], nn.ReLU()], strict=True):
        expected = layer(expected, c) if isinstance(layer, Curved) else layer(expected)
        if isinstance(after, nn.ReLU):
            expected = expected + context @ list(network.shifts.values())[added].weight.T
            added += 1
    assert added == len(network.shifts) == 3
    torch.testing.assert_close(network(S, context, c), expected)


def test_numbers_of_a_context_may_have_a_last_layer_of_their_own():
    plain = mlp(FEATURES, 6, 2)[:-1].double()
    network = Conditioned(plain, TOLD, own=(1, 2)).double()
    for parameter in (network.slopes, *network.shifts.parameters()):
        nn.init.normal_(parameter)
    batch = random_batch()
    expected = []
    for x, context in zip(batch.x.repeat(3, 1), batch.context.repeat(3, 1), strict=True):  # a row of each of 3 draws
        hidden = torch.relu(plain[1](x) + network.shifts["1"].weight @ context)
        weight = plain[3].weight + context[1] * network.slopes[0] + context[2] * network.slopes[1]
        expected.append(weight @ hidden + plain[3].bias + network.shifts["3"].weight @ context)
    torch.testing.assert_close(network(batch.x.repeat(3, 1), batch.context), torch.stack(expected))


def test_a_context_that_lacks_or_has_another_width_is_refused():
    model = random_model()
    with pytest.raises(CurvaeError, match="needs the covariates .* 3 numbers"):
        model.decode(torch.zeros(2, 2))
    with pytest.raises(CurvaeError, match="3 numbers a row, got 2"):
        model.decode(torch.zeros(2, 2), torch.zeros(2, 2).double())
    model.encode(torch.zeros(2, FEATURES).double())  # which is not told
    with pytest.raises(CurvaeError, match="needs the covariates"):
        random_model(replace(BASE, encode_covariates=True)).encode(torch.zeros(2, FEATURES).double())
    with pytest.raises(CurvaeError, match="there are no covariates to give to the encoder"):
        build(replace(BASE, encode_covariates=True), FEATURES)


def test_fresh_weights_do_not_depend_on_covariates():
    plain, told = build(BASE, FEATURES), build(replace(BASE, encode_covariates=True), LAYOUT)
    assert not any(isinstance(part, Conditioned) for part in plain.modules())
    state = {name.replace("layers.", ""): t for name, t in told.state_dict().items()}
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(state.pop(name), tensor, rtol=0, atol=0)
    assert len(state) == 4 and not any(t.any() for t in state.values())


# --- models ---------------------------------------------------------------------------------------------------------


def log_weights(model, batch, noise):
    """log p(x, z) − log q(z | x) of every draw, row by row and draw by draw, each with its own context."""
    found = torch.empty(noise.shape[:2], dtype=torch.float64)
    for j in range(len(batch)):
        one = batch.map(lambda part, j=j: part[j : j + 1])
        q = model.encode(one)
        for i in range(len(noise)):
            z = q.transform(noise[i, j : j + 1])
            rest = model.likelihood.log_prob(model.decode(z, one.context), one)
            found[i, j] = (rest + model.prior().log_prob(z) - q.log_prob(z)).squeeze()
    return found


@pytest.mark.parametrize("encode", [False, True])
def test_likelihoods_with_a_context_are_explicit_sums(encode, monkeypatch):
    monkeypatch.setattr(marginal, "_DRAWS", 4)  # three chunks
    model, batch = random_model(replace(BASE, encode_covariates=encode)), random_batch()
    generator = torch.Generator().manual_seed(1)
    noise = torch.cat([model.noise(ROWS, 4, generator) for _ in range(3)])
    with torch.no_grad():
        weights = log_weights(model, batch, noise)
        expected = weights.logsumexp(0) - math.log(12)
        found = marginal_likelihood(model, batch, 12, torch.Generator().manual_seed(1)).log_prob
        terms = model.terms(batch, noise)
        other = model.terms(Batch(batch.x, context=batch.context.flip(0)), noise)
        closed = model.terms(batch, noise, entropy=True)
    torch.testing.assert_close(terms.reconstruction - terms.kl, weights)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(model.iwae(batch, noise=noise).detach(), expected)
    torch.testing.assert_close(closed.reconstruction, terms.reconstruction)
    assert not torch.allclose(other.reconstruction, terms.reconstruction)
    assert torch.allclose(other.kl, terms.kl) != encode


@pytest.mark.parametrize("encode", [False, True])
def test_gradients_of_a_context(encode):
    model, batch = random_model(replace(BASE, encode_covariates=encode)), random_batch()
    noise = model.noise(ROWS, 2, torch.Generator().manual_seed(3))
    shifts = {name: t.detach().requires_grad_() for name, t in model.named_parameters() if "shifts" in name}
    assert len(shifts) == 3 + encode

    def terms(context, *values):
        given = dict(zip(shifts, values, strict=True))
        return functional_call(model, given, (Batch(batch.x, context=context), noise))

    context = batch.context.clone().requires_grad_()
    assert torch.autograd.gradcheck(terms, (context, *shifts.values()), eps=1e-6, atol=1e-6)


@pytest.mark.usefixtures("quick_tracing")
@pytest.mark.parametrize("encode", [False, True])
def test_a_stack_is_told_as_each_model_alone(encode):
    settings = [replace(BASE, encode_covariates=encode, curvature=c, seed=k) for k, c in enumerate((0.2, 1.0, 2.5))]
    alone, stack = [random_model(s) for s in settings], Stack([random_model(s) for s in settings])
    batch, noise = random_batch(3), torch.randn(3, 2, ROWS, 2)
    terms = stack.terms(batch, noise)
    gradients = torch.autograd.grad((terms.kl - terms.reconstruction).sum(), list(stack.leaves.values()))
    for k, model in enumerate(alone):
        own = model.terms(batch.map(lambda part, k=k: part[k]), noise[k])
        torch.testing.assert_close(own.reconstruction, terms.reconstruction[k])
        torch.testing.assert_close(own.kl, terms.kl[k])
        expected = torch.autograd.grad((own.kl - own.reconstruction).sum(), list(model.parameters()))
        for one, many in zip(expected, gradients, strict=True):
            torch.testing.assert_close(one, many[k])

    def flat(tensors, x, context, noise):
        named = dict(zip(stack.tensors, tensors, strict=True))
        return stack.pure("terms", named, stack.buffers, Batch(x, context=context), noise)

    arguments = list(stack.tensors.values()), batch.x, batch.context, noise
    other = tuple(t.flip(0) if isinstance(t, torch.Tensor) else t for t in arguments)
    graph = trace(flat, *arguments, compiled=False)
    for traced, plain in zip(graph(*other), flat(*other), strict=True):
        torch.testing.assert_close(traced, plain)


def test_samples_are_told():
    model = random_model()
    contexts = torch.eye(TOLD).double()
    found = [model.sample(6, torch.Generator().manual_seed(0), mean=True, context=c[None]) for c in contexts]
    assert not torch.allclose(found[0], found[1])
    each = model.sample(6, torch.Generator().manual_seed(0), mean=True, context=contexts[[0, 1, 2, 2, 1, 0]])
    for i, k in enumerate((0, 1, 2, 2, 1, 0)):
        torch.testing.assert_close(each[i], found[k][i])


# --- training -------------------------------------------------------------------------------------------------------


def test_effects_are_least_squares():
    rng = np.random.default_rng(0)
    context = np.concatenate([np.eye(3)[rng.integers(0, 3, 60)], rng.normal(size=(60, 1))], 1)
    x = rng.poisson(np.exp(context @ rng.normal(size=(4, 5)))).astype(float)
    found = Effects.of(x, context)
    design = np.concatenate([np.ones((60, 1)), context], 1)
    fitted = design @ np.linalg.lstsq(design, x, rcond=None)[0]
    np.testing.assert_allclose(x - found.removed(x, context), fitted - x.mean(0), atol=1e-9)
    np.testing.assert_allclose(Effects.of(sparse.csr_array(x), context).slopes, found.slopes)
    np.testing.assert_allclose(found.scaled(np.full(5, 2.0)).slopes, found.slopes / 2)


@pytest.mark.parametrize("likelihood", ["unit_gaussian", "bernoulli"])
def test_the_decoder_starts_at_the_means_of_the_batches(likelihood):
    batches = np.eye(2)[[0, 0, 0, 1, 1, 1, 1, 1]]
    x = np.random.default_rng(0).uniform(0.2, 0.6, size=(8, 3)) + 0.2 * batches[:, 1:]
    settings = Config(hidden=(4,), likelihood=likelihood)
    model = build(settings, Layout(3, covariates=2), mean=x.mean(0), effects=Effects.of(x, batches)).double()
    with torch.no_grad():
        model.decoder.layers[-1].weight.zero_()
        outputs = model.decode(torch.zeros(2, 2), torch.eye(2).double())
        made = model.likelihood.mean(outputs).numpy()
    expected = np.stack([x[:3].mean(0), x[3:].mean(0)])
    # A sum of logits is not the logit of a sum, so here the means are only near.
    np.testing.assert_allclose(made, expected, atol=1e-6 if likelihood == "unit_gaussian" else 0.02)
    assert np.abs(expected[0] - expected[1]).max() > 0.1


def test_the_encoder_starts_blind_to_what_the_covariates_do():
    x, batch = planted(40)
    effects = Effects.of(x, np.eye(2)[batch])
    model, plain = (build(BASE, Layout(8, covariates=2), mean=x.mean(0), effects=e) for e in (effects, None))
    weight, free = model.encoder[1].weight.detach().double(), plain.encoder[1].weight.detach().double()
    move = torch.from_numpy(effects.slopes[1])
    assert (weight @ move).abs().max() < 1e-6 * move.norm()
    assert (free @ move).abs().max() > 0.01 * move.norm()
    across = free - (free @ move).outer(move) / move.square().sum()
    torch.testing.assert_close(weight, across, atol=1e-6, rtol=1e-5)


def test_columns_are_scaled_within_batches():
    x, batch = planted(80)
    x[:, 0] = 3.0 * batch  # nothing but the batch
    context, split = np.eye(2)[batch], random_split(80, 0.0, 0.25)
    settings = Config(likelihood="gaussian")
    found, seen = scaled_as(settings, Arrays(x, context), split), split.train
    left = np.concatenate([x[seen][batch[seen] == b] - x[seen][batch[seen] == b].mean(0) for b in (0, 1)])
    np.testing.assert_allclose(found.scale[1:], left.std(0)[1:])
    np.testing.assert_allclose(found.scale[0], x[seen, 0].std())
    np.testing.assert_allclose(found.shift, x[seen].mean(0))
    spread = scaled_as(settings, Arrays(sparse.csr_array(x), context), split)
    np.testing.assert_allclose(spread.scale, found.scale)
    np.testing.assert_allclose(scaled_as(settings, Arrays(x), split).scale, x[seen].std(0))


def planted(rows=120, seed=0):
    """Rows around a plane, and half of them moved by three standard deviations."""
    rng = np.random.default_rng(seed)
    batch = rng.permutation(rows) % 2
    x = rng.normal(size=(rows, 2)) @ rng.normal(size=(2, 8)) + rng.normal(size=(rows, 8)) * 0.5
    return x + np.outer(batch, 3 * x.std(0)), batch


def predicted(embedding, values):
    distances = embedding.distances()
    np.fill_diagonal(distances, np.inf)
    near = values[np.argsort(distances, axis=1)[:, :5]]
    return float(np.mean([np.bincount(row).argmax() == value for row, value in zip(near, values, strict=True)]))


def test_the_map_forgets_what_the_decoder_is_told():
    x, batch = planted()
    settings = Config(hidden=(16,), epochs=10, batch_size=32, learning_rate=1e-2, validation=0.0)
    told = Arrays(x, np.eye(2)[batch])
    found = [predicted(embed(fit(settings, data), data), batch) for data in (x, told)]
    assert found[0] > 0.95
    assert found[1] < 0.75


def test_many_models_and_their_likelihoods_are_told_as_one():
    x, batch = planted(40)
    data = Arrays(x, np.eye(2)[batch])
    settings = [Config(hidden=(6,), epochs=2, seed=seed, encode_covariates=True) for seed in range(2)]
    for one, many in zip([fit(s, data) for s in settings], fit_many(settings, data), strict=True):
        np.testing.assert_allclose(embed(one, data).space, embed(many, data).space, rtol=1e-4, atol=1e-5)
        scores = [likelihoods(f.double(), data, 20).log_prob for f in (one, many)]
        np.testing.assert_allclose(*scores, rtol=1e-4)


def test_compare_is_told_and_so_is_pca():
    x, batch = planted(60)
    data, settings = Arrays(x, np.eye(2)[batch]), Config(hidden=(6,), epochs=1, likelihood="gaussian")
    found = compare(settings, data, (1.0,), 3, samples=10, device="cpu", jobs=1)
    for repeat in found.repeats:
        split = random_split(60, 0.1, 0.2, repeat.seed)
        scaled = scaled_as(settings, data, split).apply(x)
        means = np.stack([scaled[split.train][batch[split.train] == b].mean(0) for b in (0, 1)])
        left = scaled - means[batch]
        np.testing.assert_allclose(repeat.pca, PCA(2).fit(left[split.train]).score(left[split.test]))


# --- tables ---------------------------------------------------------------------------------------------------------


def frame(rows=40, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    batch = np.array(["a", "b"])[np.arange(rows) % 2]
    table = pd.DataFrame(x + 3 * (batch == "b")[:, None], columns=list("xyz"))
    return table.assign(batch=batch, age=rng.integers(20, 60, rows), plate=np.arange(rows) % 3 + 1)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame().to_csv("t.csv", index=False)
    return frame()


def test_covariates_of_a_table_are_numbers_or_categories(table):
    data, schema = load("t.csv", label="batch", covariates=["batch", "age", "plate"], categorical=["plate"])
    assert data.names == ("x", "y", "z") and data.x.shape == (40, 3)
    assert data.context_names == ("batch=a", "batch=b", "age", "plate=1", "plate=2", "plate=3")
    assert data.labels.tolist() == table["batch"].tolist()
    age = (table["age"] - table["age"].mean()) / table["age"].std(ddof=0)
    np.testing.assert_array_equal(data.context[:, :2], pd.get_dummies(table["batch"]).to_numpy(float))
    np.testing.assert_allclose(data.context[:, 2], age)
    np.testing.assert_array_equal(data.context[:, 3:], pd.get_dummies(table["plate"]).to_numpy(float))
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    assert data.arrays.context is data.context
    few = data.take([3, 1])
    np.testing.assert_array_equal(few.context, data.context[[3, 1]])
    other = replace(data, context=data.context[::-1].copy())
    assert len({data.fingerprint, other.fingerprint, replace(data, context=None, context_names=()).fingerprint}) == 3
    plain, without = load("t.csv", categorical=["batch"])
    assert plain.context is None and "covariates" not in without.to_json()
    number, _ = load("t.csv", covariates=["batch", "plate"])
    assert number.context_names == ("batch=a", "batch=b", "plate")
    assert any("'plate' is taken as a number" in note for note in number.notes)


def test_new_rows_are_coded_as_those_of_the_fit(table):
    _, schema = load("t.csv", covariates=["batch", "age"], categorical=["plate"])
    table.iloc[[3]].to_csv("one.csv", index=False)
    one, _ = load("one.csv", schema=schema)
    age = (table["age"][3] - table["age"].mean()) / table["age"].std(ddof=0)
    np.testing.assert_allclose(one.context, [[0.0, 1.0, age]])
    table.drop(columns="age").to_csv("absent.csv", index=False)
    absent, _ = load("absent.csv", schema=schema)
    assert absent.context is None and any("covariates are absent: 'age'" in note for note in absent.notes)
    table.assign(batch="c").to_csv("unseen.csv", index=False)
    with pytest.raises(CurvaeError, match="'batch' of unseen.csv .* not trained on: 'c'; it knows 'a', 'b'"):
        load("unseen.csv", schema=schema)
    with pytest.raises(CurvaeError, match="set when the model was trained"):
        load("t.csv", schema=schema, covariates=["age"])


def test_rows_that_are_left_out_take_their_covariates_along(table):
    table.loc[[0, 5], "x"] = np.nan
    table.to_csv("holes.csv", index=False)
    data, _ = load("holes.csv", covariates=["batch"], categorical=["plate"], missing="drop")
    np.testing.assert_array_equal(data.context[:, 1], (table["batch"] == "b").drop([0, 5]))


@pytest.mark.parametrize(
    ("change", "asked", "says"),
    [
        ({"age": [np.nan, *range(39)]}, ["age"], "covariates of t.csv have missing .* 'age' \\(1\\)"),
        ({"batch": ["", *"ab" * 19, "a"]}, ["batch"], "'batch' \\(1\\)"),
        ({"batch": "a"}, ["batch"], "'batch' has the same value in every row"),
        ({"age": 3.5}, ["age"], "'age' has the same value in every row"),
        ({}, ["bach"], "no column 'bach' .* did you mean 'batch'"),
        ({}, "batch", "covariates is the text 'batch'"),
    ],
)
def test_covariates_that_cannot_be_used(table, change, asked, says):
    table.assign(**change).to_csv("t.csv", index=False)
    with pytest.raises(CurvaeError, match=says):
        load("t.csv", covariates=asked, categorical=["plate"])


def test_values_by_name():
    columns = [Column("batch", ("a", "b")), Column("age", fill=40.0, scale=10.0)]
    np.testing.assert_array_equal(code_values(columns, {"age": "45", "batch": "b"}), [[0, 1, 0.5]])
    each = code_values(columns, {"batch": ["a", "b"], "age": 40}, 2)
    np.testing.assert_array_equal(each, [[1, 0, 0], [0, 1, 0]])
    assert code_values([], None, 3).shape == (3, 0)
    for given, says in (
        ({"age": 1}, "needs values of the covariates 'batch' \\(one of 'a', 'b'\\); give"),
        (None, "'batch' .*, 'age' \\(a number, 40 ± 10 in training\\)"),
        ({"batch": "c", "age": 1}, "not trained on: 'c'; it knows 'a', 'b'"),
        ({"batch": "a", "age": "old"}, "text in column 'age'"),
        ({"batch": "a", "age": 1, "sex": "f"}, "no covariate 'sex'; it has 'batch', 'age'"),
        ({"batch": ["a", "b", "a"], "age": 1}, "one value, or one for each of 2 rows"),
    ):
        with pytest.raises(CurvaeError, match=says):
            code_values(columns, given, 2)
    with pytest.raises(CurvaeError, match="trained without any"):
        code_values([], {"batch": "a"})


# --- the command line -----------------------------------------------------------------------------------------------


def test_the_command_line_from_fit_to_samples(table):
    found = curvae("fit", "t.csv", "--covariate", "batch", "--covariate", "age", "--id", "plate", "-o", "run", *SMALL)
    assert found.code == 2  # plates do not name rows
    table = table.drop(columns="plate")
    table.to_csv("t.csv", index=False)
    found = curvae("fit", "t.csv", "--covariate", "batch", "--covariate", "age", "-o", "run", *SMALL)
    assert found.code == 0, found.err
    assert "next: curvae compare t.csv --covariate batch --covariate age" in found.out
    assert config()["layout"]["covariates"] == 3
    page = html.unescape(Path("run/report.html").read_text())
    assert "batch=a, batch=b, age" in page
    share = table.batch.value_counts(normalize=True).max()
    for said in (
        "Neighbours are counted among rows of the same categories of covariates.",
        "Neighbours are counted in the data with the effects of numeric covariates still in them.",
        f"that would be about {100 * share:.0f} %, the share of its largest category.",
    ):
        assert said in page and said in found.err
    assert (
        re.search(r"5-NN accuracy of the covariate 'batch' on the map is \d+ %; ", page)
        and "covariate 'age'" not in page
    )
    refused("sample", "run", says=["needs values of the covariates 'batch' (one of 'a', 'b'), 'age' (a number"])
    refused("sample", "run", "--covariate", "batch=c", "--covariate", "age=3", says=["'c'; it knows 'a', 'b'"])
    told = ("--covariate", "batch=b", "--covariate", "age=40")
    assert curvae("sample", "run", "-n", "7", "-o", "made.csv", *told).code == 0
    made = pd.read_csv("made.csv")
    assert made.columns.tolist() == ["x", "y", "z", "batch", "age"] and (made["batch"] == "b").all()
    assert (
        curvae("sample", "run", "-n", "7", "-o", "other.csv", "--covariate", "batch=a", "--covariate", "age=40").code
        == 0
    )
    assert not np.allclose(pd.read_csv("other.csv")["x"], made["x"])
    table.drop(columns=["batch", "age"]).to_csv("bare.csv", index=False)
    for name in ("t", "bare", "made"):
        assert curvae("embed", "run", f"{name}.csv", "-o", f"{name}-map.csv").code == 0
    columns = ["ball_1", "ball_2"]
    kept = pd.read_csv("run/embedding.csv")[columns]
    for name in ("t", "bare"):
        np.testing.assert_allclose(pd.read_csv(f"{name}-map.csv")[columns], kept, atol=1e-12)
    refused("evaluate", "run", "bare.csv", says=["bare.csv needs the covariates", "'batch', 'age'"])
    found = curvae("evaluate", "run", "t.csv", "--samples", "20", "--json")
    assert set(found.json["parts"]) == {"train", "validation"}
    assert curvae("fit", "t.csv", "-o", "run", "--resume", "--epochs", "2").code == 0
    refused("fit", "t.csv", "--covariate", "age", "-o", "run", "--resume", says=["--covariate age, not age;"])


def test_next_commands_of_a_run_with_covariates_work(table):
    assert curvae("fit", "t.csv", "--covariate", "batch", "--covariate", "age", "-o", "run", "-q", *SMALL).code == 0
    table.drop(columns=["batch", "age"]).to_csv("bare.csv", index=False)
    for words in (("embed", "run", "bare.csv"), ("evaluate", "run", "t.csv", "--samples", "5")):
        found = curvae(*words)
        (following,) = re.findall("^next: curvae (.*)", found.out, re.M)
        assert curvae(*shlex.split(following)).code == 0, following
    assert following.startswith("sample run -n 100 --covariate batch=a --covariate age=")


def test_covariates_are_left_out_of_distances(table):
    table.drop(columns="batch").to_csv("plain.csv", index=False)
    told = curvae("diagnose", "t.csv", "--covariate", "batch", "--json")
    assert told.code == 0 and told.json == curvae("diagnose", "plain.csv", "--json").json
    refused("diagnose", "t.csv", "--distances", "--covariate", "batch", says=["--covariate has no meaning with --dis"])
    refused("fit", "t.csv", "--covariate", "bacth", says=["no column 'bacth' for --covariate; did you mean 'batch'?"])


def test_an_encoder_that_is_told_needs_them_to_embed(table):
    words = ("--covariate", "batch", "--categorical", "plate", "--set", "encode_covariates=yes")
    assert curvae("fit", "t.csv", *words, "-o", "run", *SMALL).code == 0
    table.drop(columns="batch").to_csv("bare.csv", index=False)
    refused("embed", "run", "bare.csv", says=["bare.csv needs the covariates that the model was trained with: 'batch'"])
    table.assign(batch="b").to_csv("other.csv", index=False)
    for name in ("t", "other"):
        assert curvae("embed", "run", f"{name}.csv", "-o", f"{name}-map.csv").code == 0
    maps = [pd.read_csv(f"{name}-map.csv")["ball_1"] for name in ("t", "other")]
    same = np.isclose(*maps)
    assert same.tolist() == (table["batch"] == "b").tolist()
    refused(
        "fit",
        "t.csv",
        "--categorical",
        "plate",
        "--categorical",
        "batch",
        "--set",
        "encode_covariates=yes",
        says=["covariates"],
    )


def test_compare_with_covariates(table):
    words = ("--covariate", "batch", "--categorical", "plate", "--repeats", "3", "--curvatures", "1", "--jobs", "1")
    found = curvae("compare", "t.csv", *words, "-o", "out", *SMALL)
    assert found.code == 0, found.err
    assert "fit t.csv --categorical plate --covariate batch" in found.out
    refused("compare", "t.csv", "--graph", "--covariate", "batch", says=["--covariate has no meaning with --graph"])


def test_runs_without_covariates_take_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(Path("t.csv"))
    assert curvae("fit", "t.csv", "-o", "run", *SMALL).code == 0
    assert curvae("sample", "run", "-n", "3").code == 0
    refused("sample", "run", "-n", "3", "--covariate", "batch=a", "--force", says=["trained without any"])


# --- the estimator --------------------------------------------------------------------------------------------------

FAST = {"hidden": (8,), "epochs": 3, "batch_size": 16, "advanced": {"importance_samples": 20}, "random_state": 0}


def test_the_estimator_with_a_data_frame(tmp_path):
    X = frame().drop(columns="plate")
    model = PoincareVAE(covariates=["batch", "age"], **FAST).fit(X)
    assert model.n_features_in_ == 3 and model.feature_names_in_.tolist() == ["x", "y", "z"]
    assert [column.name for column in model.covariates_] == ["batch", "age"]
    # Neither the order of the columns nor covariates matter to an encoder that is not told.
    np.testing.assert_array_equal(model.transform(X), model.embedding_)
    np.testing.assert_array_equal(model.transform(X[["x", "y", "z"]]), model.embedding_)
    score = model.score_samples(X)
    assert not np.allclose(score, model.score_samples(X.assign(batch=X["batch"].map({"a": "b", "b": "a"}))))
    with pytest.raises(CurvaeError, match="X needs the covariates .* 'batch', 'age'"):
        model.score_samples(X[["x", "y", "z"]])
    for call in (model.sample, lambda covariates=None: model.inverse_transform(model.embedding_, covariates)):
        with pytest.raises(CurvaeError, match="needs values of the covariates 'batch'"):
            call()
        assert call(covariates={"batch": "a", "age": 30}).shape[1] == 3
    made = model.inverse_transform(model.embedding_, X[["batch", "age"]])
    expected = model._fitted.reconstruct(model._embedding.space, context=model._rows(X).context)
    np.testing.assert_allclose(made, expected)
    model.save(tmp_path / "run")
    again = PoincareVAE.load(tmp_path / "run")
    assert list(again.covariates) == ["batch", "age"] and again.covariates_ == model.covariates_
    np.testing.assert_allclose(again.score_samples(X), score)
    assert clone(model).covariates == ["batch", "age"]


def test_the_estimator_with_places(tmp_path):
    table = frame()
    X = np.column_stack([table[["x", "y"]], table["age"], table["z"], table["batch"] == "b"]).astype(float)
    model = PoincareVAE(covariates=[2, -1], **{**FAST, "advanced": {"encode_covariates": True}}).fit(X)
    assert model.n_features_in_ == 3
    named = PoincareVAE(covariates=["age", "batch"], **{**FAST, "advanced": {"encode_covariates": True}}).fit(
        table.assign(batch=(table["batch"] == "b").astype(float))[["x", "y", "age", "z", "batch"]]
    )
    np.testing.assert_allclose(model.embedding_, named.embedding_)
    np.testing.assert_allclose(PoincareVAE(**model.get_params()).fit(sparse.csr_array(X)).embedding_, model.embedding_)
    with pytest.raises(CurvaeError, match="X needs the covariates"):
        model.transform(X[:, [0, 1, 3]])
    model.save(tmp_path / "run")
    again = PoincareVAE.load(tmp_path / "run")
    assert list(again.covariates) == [2, -1]
    np.testing.assert_allclose(again.transform(X), model.embedding_)
    for covariates, says in (([9], "no column 9"), (["age"], "are names, but"), ("age", "the text 'age'")):
        with pytest.raises(CurvaeError, match=says):
            PoincareVAE(covariates=covariates, **FAST).fit(X)
    with pytest.raises(CurvaeError, match="no column 'sex' for a covariate"):
        PoincareVAE(covariates=["sex"], **FAST).fit(table)


def test_the_estimator_opens_runs_of_the_command_line(table):
    table = table.drop(columns=["plate", "age"])
    table.to_csv("t.csv", index=False)
    assert curvae("fit", "t.csv", "--covariate", "batch", "-o", "run", *SMALL).code == 0
    model = PoincareVAE.load("run")
    assert model.covariates == ["batch"]
    np.testing.assert_allclose(model.transform(table), model.embedding_, atol=1e-9)
    assert model.sample(2, covariates={"batch": "a"}).shape == (2, 3)


def test_numbers_alone_are_covariates_too(tmp_path, monkeypatch):
    """Columns of floats, which pandas hands out as a view that cannot be written to."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    write_table(Path("t.csv"), w=random.normal(size=40))
    assert curvae("fit", "t.csv", "-o", "run", "--covariate", "w", *SMALL).code == 0
    assert curvae("sample", "run", "-n", "3", "--covariate", "w=0.5").code == 0
    refused("sample", "run", "-n", "3", "--covariate", "w", "--force", says=["--covariate takes COLUMN=VALUE", "'w'"])
    refused("sample", "run", "-n", "3", "--force", says=["needs values of the covariates 'w'", "with --covariate"])
    twice = ("--covariate", "w=1", "--covariate", "w=2")
    refused("sample", "run", *twice, "--force", says=["--covariate w is given 2 times; give it one value"])
    refused("sample", "run", "--covariate", "w=1e100", "--force", says=["covariate 'w' (a number, ", "is 1e+100 in"])
    x = random.normal(size=(30, 4))
    model = PoincareVAE(covariates=[3], **FAST).fit(x)
    assert model.sample(2, covariates={3: 0.1}).shape == (2, 3)
