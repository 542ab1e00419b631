"""A stack of models computes what each model computes alone: terms, gradients, likelihoods."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn import functional as F

from combining import every_pair
from curvae.data import Arrays
from curvae.distributions import radial, table
from curvae.errors import CurvaeError
from curvae.geometry import hyperboloid as h
from curvae.geometry.functions import arsinh, sinhc
from curvae.models import VAE, Stack, marginal, marginal_likelihood
from curvae.models.stack import _linear, _Products, architecture, blas_products, trace
from curvae.nn import Curvature, mlp
from curvae.training import Config, Scaling, build, random_split
from curvae.training.fitted import Fitted, _alike, likelihoods, likelihoods_many
from stacking import BASE, FEATURES, ROWS, alone, assert_as_alone, batch, custom, mixed, models, normed, together

DOUBLE = {"dtype": torch.float64}


# --- as alone -------------------------------------------------------------------------------------------------------

LAWS = (("riemannian", False), ("wrapped", False), ("wrapped", True))


LEARNED = ({}, {"learn_curvature": True}, {"learn_prior_scale": True})


@pytest.mark.parametrize(
    ("kind", "law", "learned", "dtype"),
    every_pair(
        ["gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius"], LAWS, LEARNED, [torch.float32, torch.float64]
    ),
)
def test_a_stack_computes_what_each_model_computes_alone(kind, law, learned, dtype):
    config = replace(BASE, decoder=kind, posterior=law[0], diagonal=law[1], **learned)
    tolerance = 1e-10 if dtype == torch.float64 else 2e-5
    assert_as_alone(models(config, dtype), *batch(dtype), tolerance)


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("law", ["riemannian", "wrapped"])
def test_other_dimensions_and_exact_draws(dim, law):
    given = models(replace(BASE, dim=dim, posterior=law, hidden=(6, 5)))
    assert_as_alone(given, *batch(dim=dim))
    assert_as_alone(given, *batch(dim=dim, noise=torch.float64))


@pytest.mark.parametrize("likelihood", ["bernoulli", "unit_gaussian", "categorical"])
def test_other_likelihoods(likelihood):
    x, noise = batch()
    x = F.one_hot(x.argmax(-1), FEATURES).double()
    assert_as_alone(models(replace(BASE, likelihood=likelihood)), x, noise)


@pytest.mark.parametrize("law", ["riemannian", "wrapped"])
@pytest.mark.parametrize("kind", ["gyroplane", "gyroplane_scalar", "mlp", "mobius"])
def test_flat_models_may_be_in_one_stack_with_curved_ones(kind, law):
    config = replace(BASE, decoder=kind, posterior=law)
    curved = models(config)
    flat = build(replace(config, curvature=0.0), FEATURES).double()
    assert_as_alone([curved[0], flat, curved[1]], *batch())


def test_models_of_curvature_0():
    for kind in ("gyroplane", "log_mlp"):
        configs = [replace(BASE, decoder=kind, curvature=0.0, seed=seed) for seed in range(3)]
        assert_as_alone([build(config, FEATURES).double() for config in configs], *batch())


def test_models_that_share_one_fixed_curvature():
    curvature = Curvature(0.6)
    assert_as_alone([custom(lambda: mlp(FEATURES, 6), curvature, seed) for seed in range(3)], *batch())


def test_the_gradient_of_a_curvature_with_several_uses_is_their_sum():
    """Encoder, prior and decoder share it: the gradient against a difference quotient."""
    given = models(replace(BASE, learn_curvature=True))
    x, noise = batch(noise=torch.float64)
    stack = Stack(given)
    name = next(name for name in stack.tensors if name.endswith("log_c"))
    assert sum("log_c" in name for name in stack.tensors) == 1
    found = together(stack, x, noise)[1][name]
    for i, model in enumerate(given):
        parameter, figures = model.space.factors[0].curvature.log_c, []
        for shift in (1e-5, -2e-5):
            parameter.data += shift
            figures.append(mixed(model.terms(x[i], noise[i])).item())
        assert float(found[i]) == pytest.approx((figures[0] - figures[1]) / 2e-5, rel=1e-5)


def tied():
    network = mlp(FEATURES, 6, 6, 6)
    network[5].weight = network[3].weight
    return network


def test_tied_weights_stay_tied():
    given = [custom(tied, seed=seed) for seed in range(3)]
    stack = Stack(given)
    assert "encoder.3.weight" in stack.tensors and "encoder.5.weight" not in stack.tensors
    assert_as_alone(given, *batch())


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.LayerNorm(6),
        lambda: nn.GroupNorm(2, 6),
        lambda: nn.BatchNorm1d(6, track_running_stats=False),
    ],
    ids=["layer", "group", "batch without averages"],
)
def test_norms_without_averages_work(layer):
    assert_as_alone([custom(normed(layer), seed=seed) for seed in range(3)], *batch())


def test_a_single_model_is_called_as_it_is():
    model = models()[1]
    x, noise = batch(count=1)
    terms, gradients = alone(model, x[0], noise[0])
    stack = Stack([model])
    assert all(stack.leaves[name] is parameter for name, parameter in model.named_parameters())
    with mock.patch.object(VAE, "terms", autospec=True, side_effect=VAE.terms) as calls:
        found, slopes = together(stack, x, noise)
    assert [call.args[0] for call in calls.call_args_list] == [model]
    assert all(torch.equal(a, b.unsqueeze(0)) for a, b in zip(found, terms, strict=True))
    assert all(torch.equal(slopes[name], slope) for name, slope in gradients.items())


# --- views ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_parameters_of_the_models_are_views_of_the_stack(count):
    given = models(replace(BASE, learn_curvature=True))[:count]
    before = [deepcopy(model.state_dict()) for model in given]
    stack = Stack(given)
    assert all(torch.equal(v, b[k]) for m, b in zip(given, before, strict=True) for k, v in m.state_dict().items())
    x, noise = batch(count=count)
    with torch.no_grad():
        for tensor in stack.tensors.values():
            tensor *= 1.5
    for i, model in enumerate(given):
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, before[i][name] * 1.5)
            assert torch.equal(parameter, stack.leaves[name] if count == 1 else stack.leaves[name][i])
    # And back: what is set in a model, the stack computes with.
    with torch.no_grad():
        given[-1].posterior.head.bias.fill_(0.3)
    assert float(stack.tensors["posterior.head.bias"][-1].min()) == 0.3
    torch.testing.assert_close(stack.terms(x, noise).kl[-1], given[-1].terms(x[-1], noise[-1]).kl)


def test_each_asks_every_model():
    stack = Stack(models())
    torch.testing.assert_close(
        stack.each(lambda model: model.space.curvatures()[0]).double(), torch.tensor([0.2, 1, 2.5]).double()
    )


@pytest.mark.parametrize("learned", LEARNED, ids=["fixed", "c", "scale"])
def test_models_work_alone_after_a_stacked_call(learned):
    given = models(replace(BASE, **learned))
    x, noise = batch()
    stack = Stack(given)

    def parts():
        return [alone(model, *own) for model, *own in zip(given, x, noise, strict=True)]

    before, states = parts(), [deepcopy(model.state_dict()) for model in given]
    together(stack, x, noise)
    with torch.no_grad():
        stack.terms(x, noise)
    with pytest.raises(RuntimeError):
        stack.terms(x[..., :-1], noise)  # and after a call that failed
    for (terms, slopes), (known, known_slopes) in zip(parts(), before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(terms, known, strict=True))
        assert all(torch.equal(slopes[name], slope) for name, slope in known_slopes.items())
    for model, state in zip(given, states, strict=True):
        assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())
        assert type(model.space.curvatures()[0]) is torch.Tensor and model.space.curvatures()[0].shape == ()


# --- what cannot be stacked -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (lambda: nn.BatchNorm1d(6), "BatchNorm1d keeps running averages"),
        (lambda: nn.Dropout(0.1), "Dropout draws noise of its own"),
        (lambda: nn.AlphaDropout(0.1), "AlphaDropout draws noise of its own"),
    ],
)
def test_layers_with_a_state_of_their_own_are_refused(layer, reason):
    plain, other = custom(lambda: mlp(FEATURES, 6)), custom(normed(layer))
    for given in ([other], [other, deepcopy(other)], [plain, other]):
        with pytest.raises(CurvaeError, match=reason) as caught:
            Stack(given)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": (7,)},
        {"hidden": (6, 6)},
        {"dim": 3},
        {"decoder": "mlp"},
        {"decoder": "mobius"},
        {"learn_curvature": True},
        {"learn_prior_scale": True},
        {"likelihood": "unit_gaussian"},
        {"likelihood": "bernoulli"},
        {"posterior": "wrapped", "diagonal": True},
        {"posterior": "wrapped"},
    ],
    ids=str,
)
def test_other_architectures_are_refused(change):
    with pytest.raises(CurvaeError, match="only models of one architecture, dtype and device"):
        Stack([build(BASE, FEATURES), build(replace(BASE, **change), FEATURES)])


def test_other_activations_widths_and_dtypes_are_refused():
    plain = custom(lambda: mlp(FEATURES, 6))
    tanh = custom(lambda: nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 6), nn.Tanh()))
    for other in (tanh, deepcopy(plain).float(), build(BASE, FEATURES + 1).double()):
        with pytest.raises(CurvaeError, match="only models of one architecture, dtype and device"):
            Stack([plain, other])


def test_settings_that_are_no_tensors_are_part_of_the_architecture():
    """What a stack computes comes from the first model; the others must not differ in it."""
    slopes = [custom(lambda s=s: nn.Sequential(nn.Linear(FEATURES, 6), nn.LeakyReLU(s))) for s in (0.1, 0.2)]
    norms = [custom(normed(lambda e=e: nn.LayerNorm(6, eps=e))) for e in (1e-5, 0.1)]
    floors = [custom(lambda: mlp(FEATURES, 6)) for _ in range(2)]
    floors[1].likelihood.floor = 0.5
    categorical = replace(BASE, likelihood="categorical")
    blocks = [build(categorical, FEATURES, widths) for widths in ((1, 3), (2, 2))]
    for given in (slopes, norms, floors, blocks):
        Stack([given[0], deepcopy(given[0])])
        with pytest.raises(CurvaeError, match="only models of one architecture"):
            Stack(given)


def test_what_is_refused_is_left_as_it_was():
    given = [build(BASE, FEATURES), build(replace(BASE, hidden=(7,)), FEATURES)]
    places = [[p.data_ptr() for p in model.parameters()] for model in given]
    with pytest.raises(CurvaeError):
        Stack(given)
    assert places == [[p.data_ptr() for p in model.parameters()] for model in given]


# --- the linear operation -------------------------------------------------------------------------------------------


def affine(shape=(5, 3), bias=True):
    x, weight = torch.randn(*shape, **DOUBLE), torch.randn(2, shape[-1], **DOUBLE)
    return (x, weight, torch.randn(2, **DOUBLE)) if bias else (x, weight)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (0, 3)], ids=str)
def test_the_linear_operation_is_that_of_torch(shape, bias):
    args = [t.requires_grad_() for t in affine(shape, bias)]
    found, expected = _linear(*args), F.linear(*args)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)
    weights = torch.randn_like(expected)
    for a, b in zip(
        torch.autograd.grad((weights * found).sum(), args),
        torch.autograd.grad((weights * expected).sum(), args),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 3)], ids=str)
def test_the_linear_operation_has_its_gradients(shape, bias):
    args = [t.requires_grad_() for t in affine(shape, bias)]
    assert torch.autograd.gradcheck(_linear, args)
    assert torch.autograd.gradgradcheck(_linear, args)
    # Rows of data have no gradient.
    args[0] = args[0].detach()
    assert torch.autograd.gradcheck(_linear, args)


def test_linear_layers_are_redirected_within_a_stack_only():
    x, weight, bias = affine()
    with mock.patch("curvae.models.stack._linear", side_effect=_linear) as calls:
        F.linear(x, weight, bias)
        assert not calls.called
        with _Products():
            assert torch.equal(F.linear(x, weight, bias=bias), F.linear(x, weight, bias))
            torch.testing.assert_close(F.linear(x, weight), x @ weight.T)
        assert calls.call_count == 3
    with _Products():
        torch.testing.assert_close(F.linear(input=x, weight=weight, bias=bias), x @ weight.T + bias)


# --- vmap of the operations with a derivative of their own ----------------------------------------------------------


SOURCE = torch.Generator().manual_seed(1)


def values(*shape, low=-1.0):
    return torch.empty(shape, **DOUBLE).uniform_(low, 1.5, generator=SOURCE)


def positive(*shape):
    return values(*shape, low=0.3)


def planes(*shape):
    """Two of them, in three dimensions."""
    return values(*shape, 2, 3)


# Functions, arguments and along which of their dimensions each is batched, if it is.
VMAPS = {
    "expmap0, c shared": (h.expmap0, (values(4, 5, 3), positive()), (0, None)),
    "expmap0, c a model": (h.expmap0, (values(4, 5, 3), positive(4)), (0, 0)),
    "expmap0, c a row": (h.expmap0, (values(5, 4, 3), positive(5, 4)), (1, 1)),
    "expmap0, only c": (h.expmap0, (values(5, 3), positive(4)), (None, 0)),
    "expmap0, c a row of one vector": (h.expmap0, (values(3, 4), positive(4, 5)), (1, 0)),
    "logmap0, c a model": (h.logmap0, (values(5, 3, 4), positive(4)), (2, 0)),
    "logmap0, c a row": (h.logmap0, (values(5, 3), positive(5, 4)), (None, 1)),
    "expmap, one point": (h.expmap, (values(3), values(4, 5, 3), positive(4)), (None, 0, 0)),
    "expmap, one vector": (h.expmap, (values(5, 4, 3), values(3, 4), positive()), (1, 1, None)),
    "expmap, points by vectors": (h.expmap, (values(4, 5, 1, 3), values(2, 3), positive(4, 2)), (0, None, 0)),
    "planes, a model": (h.gyroplanes, (values(4, 5, 3), planes(4), planes(4), positive(4)), (0, 0, 0, 0)),
    "planes, points shared": (h.gyroplanes, (values(5, 3), values(2, 3, 4), planes(4), positive()), (None, 2, 0, None)),
    "planes, only c": (h.gyroplanes, (values(2, 5, 3), planes(), planes(), positive(4)), (None, None, None, 0)),
    "planes, only points": (h.gyroplanes, (values(2, 4, 5, 3), planes(), planes(), positive()), (1, None, None, None)),
    "arsinh, c a model": (arsinh, (values(4, 5, 3), positive(4), positive(3)), (0, 0, None)),
    "arsinh, gain a model": (arsinh, (values(5, 3), positive(), positive(3, 4)), (None, None, 1)),
    "arsinh, more gains than numbers": (arsinh, (values(4), positive(4, 2, 1), positive(5, 4)), (0, 0, 1)),
    "sinhc": (sinhc, (positive(5, 4),), (1,)),
}


vmaps = pytest.mark.parametrize(("function", "args", "dims"), VMAPS.values(), ids=VMAPS)


def each(args, dims):
    """Arguments of one call after the other."""
    count = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    return [[a if d is None else a.select(d, i) for a, d in zip(args, dims, strict=True)] for i in range(count)]


def fresh(args):
    return [a.clone().requires_grad_() for a in args]


def scalar(function):
    """A number made of the result, with a gradient that is different everywhere."""

    def call(*args):
        y = function(*args)
        return (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).view(y.shape)).sum()

    return call


def slopes(function, args):
    """Gradients by autograd, without a transform."""
    own = fresh(args)
    return torch.autograd.grad(function(*own), own)


def assert_all_close(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@vmaps
def test_vmap_is_a_loop(function, args, dims):
    expected = torch.stack([function(*own) for own in each(args, dims)])
    assert_all_close([vmap(function, dims)(*args)], [expected])
    with torch.no_grad():
        assert_all_close([vmap(function, dims)(*args)], [expected])


@vmaps
def test_vmap_of_a_gradient_is_a_loop(function, args, dims):
    every = tuple(range(len(args)))
    found = vmap(grad(scalar(function), every), dims)(*args)
    loop = [slopes(scalar(function), own) for own in each(args, dims)]
    assert_all_close(found, [torch.stack(parts) for parts in zip(*loop, strict=True)])


@vmaps
def test_the_gradient_of_a_vmap_is_that_of_the_loop(function, args, dims):
    def loop(*args):
        return torch.stack([function(*own) for own in each(args, dims)])

    expected = slopes(scalar(loop), args)
    assert_all_close(grad(scalar(vmap(function, dims)), tuple(range(len(args))))(*args), expected)
    assert_all_close(slopes(scalar(vmap(function, dims)), args), expected)


@vmaps
def test_a_jacobian_is_made_of_gradients(function, args, dims):
    own = each(args, dims)[1]
    found = jacrev(function, tuple(range(len(args))))(*own)
    shape = function(*own).shape
    rows = [slopes(lambda *a, i=i: function(*a).flatten()[i], own) for i in range(shape.numel())]
    expected = [torch.stack(parts).view(*shape, *parts[0].shape) for parts in zip(*rows, strict=True)]
    assert_all_close(found, expected)


NESTED = {
    "expmap0": (h.expmap0, (values(5, 3), positive(4)), (None, 0), (0, None)),
    "logmap0": (h.logmap0, (values(5, 4, 3), positive(5, 4)), (1, 1), (0, 0)),
    "expmap": (h.expmap, (values(4, 3), values(5, 3), positive(4)), (0, None, 0), (None, 0, None)),
    "planes": (
        h.gyroplanes,
        (values(4, 6, 5, 3), planes(4), values(2, 5, 3), positive(4)),
        (0, 0, None, 0),
        (1, None, 1, None),
    ),
    "arsinh": (arsinh, (values(4, 3, 5), positive(5), positive(3, 4)), (0, None, 1), (1, 0, None)),
    "sinhc": (sinhc, (positive(3, 4, 5),), (2,), (1,)),
}


@pytest.mark.parametrize(("function", "args", "outer", "inner"), NESTED.values(), ids=NESTED)
def test_nested_vmaps_are_nested_loops(function, args, outer, inner):
    nested = vmap(vmap(function, inner), outer)

    def loops(*args):
        return torch.stack([torch.stack([function(*b) for b in each(a, inner)]) for a in each(args, outer)])

    assert_all_close([nested(*args)], [loops(*args)])
    assert_all_close(slopes(scalar(nested), args), slopes(scalar(loops), args))
    found = vmap(vmap(grad(scalar(function), 0), inner), outer)(*args)
    expected = [[slopes(scalar(function), b)[0] for b in each(a, inner)] for a in each(args, outer)]
    assert_all_close([found], [torch.stack([torch.stack(row) for row in expected])])


@pytest.mark.parametrize(("law", "diagonal"), LAWS)
def test_gradients_of_every_row(law, diagonal):
    """vmap of a gradient through a whole model, as for gradients by the row."""
    model = models(replace(BASE, posterior=law, diagonal=diagonal))[2]
    x, noise = (t[0] for t in batch())
    parameters = dict(model.named_parameters())

    def loss(parameters, row, own):
        return mixed(functional_call(model, parameters, (row.unsqueeze(0), own.unsqueeze(1))))

    found = vmap(grad(loss), (None, 0, 1))(parameters, x, noise)
    for i in range(ROWS):
        expected = alone(model, x[i : i + 1], noise[:, i : i + 1])[1]
        for name, slope in expected.items():  # a Riemannian draw is of a table, to single precision
            torch.testing.assert_close(found[name][i], slope, rtol=1e-6, atol=1e-6)


# --- numbers that are none ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e38])
@pytest.mark.parametrize(("law", "dim"), [("riemannian", 2), ("riemannian", 3), ("wrapped", 2)])
def test_a_model_that_fails_leaves_the_others_untouched(law, dim, bad):
    given = models(replace(BASE, posterior=law, dim=dim), torch.float32)
    x, noise = batch(torch.float32, dim=dim)
    stack = Stack(given)
    terms, gradients = together(stack, x, noise)
    spoilt = x.clone()
    spoilt[1, 3] = bad
    found, slopes = together(stack, spoilt, noise)
    assert not found.reconstruction[1, :, 3].isfinite().any()
    others = [0, 2]
    assert all(torch.equal(a[others], b[others]) for a, b in zip(found, terms, strict=True))
    assert all(torch.equal(slopes[name][others], slope[others]) for name, slope in gradients.items())
    # Within the model the other rows are what they were.
    rest = [0, 1, 2, 4]
    torch.testing.assert_close(found.kl[1][:, rest], terms.kl[1][:, rest])
    with torch.no_grad():
        for tensor in stack.tensors.values():
            tensor[1] = bad
    found, slopes = together(stack, x, noise)
    assert all(torch.equal(a[others], b[others]) for a, b in zip(found, terms, strict=True))
    assert all(torch.equal(slopes[name][others], slope[others]) for name, slope in gradients.items())


def test_places_in_a_table_that_are_none():
    """As whole numbers they would be anything, depending on the machine; the cells that they get are there."""
    found = table._Table.of(radial.Kernel(2), torch.device("cpu"))
    cells, powers = found.locate(torch.tensor([torch.nan, -torch.inf, -0.5, 0.0, 99.0, torch.inf], **DOUBLE))
    assert ((cells >= 0) & (cells < len(found.lines))).all()
    assert powers[0].isnan().any() and powers[3:].isfinite().all()


# --- traced ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "kind", "learned"),
    [("riemannian", "gyroplane", {}), ("wrapped", "mlp", LEARNED[1])],
)
@pytest.mark.usefixtures("quick_tracing")
def test_a_traced_gradient_has_the_same_numbers(law, kind, learned):
    stack = Stack(models(replace(BASE, posterior=law, decoder=kind, **learned)))
    names, held = list(stack.tensors), list(stack.buffers)

    def step(tensors, buffers, x, noise):
        terms = stack.pure(
            "terms", dict(zip(names, tensors, strict=True)), dict(zip(held, buffers, strict=True)), x, noise
        )
        return torch.autograd.grad(mixed(terms), tensors), terms

    def given(scale):
        tensors = [(t * scale).requires_grad_() for t in stack.tensors.values()]
        return tensors, [t * scale for t in stack.buffers.values()], *batch()

    graph = trace(step, *given(1.0), compiled=False)
    # Of other numbers than those it was made with, too.
    for scale in (1.0, 0.7):
        args = given(scale)
        found, expected = graph(*args), step(*args)
        assert_all_close(found[0], expected[0])
        assert_all_close(found[1], expected[1])


# --- marginal likelihoods -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "shared", "dtype"),
    every_pair(["riemannian", "wrapped"], [False, True], [torch.float32, torch.float64]),
)
def test_marginal_likelihoods_of_a_stack_are_those_of_each_model(monkeypatch, law, shared, dtype):
    monkeypatch.setattr(marginal, "_CHUNK", {"cpu": FEATURES * 3 * 20})  # 3 rows of 20 draws at once
    monkeypatch.setattr(marginal, "_DRAWS", 20)
    given = models(replace(BASE, posterior=law), dtype)
    x = batch(dtype)[0]

    def estimate(model, x, **how):
        return marginal_likelihood(model, x, 50, torch.Generator().manual_seed(3), shared, **how)

    told = []
    expected = [estimate(deepcopy(model), own) for model, own in zip(given, x, strict=True)]
    found = estimate(Stack(given), x, advance=told.append)
    assert told == [3, 2]
    for name in ("log_prob", "ess", "error"):
        own = torch.stack([getattr(one, name) for one in expected])
        assert own.shape == (3, ROWS)
        torch.testing.assert_close(getattr(found, name), own, rtol=1e-10 if dtype == torch.float64 else 1e-4, atol=1e-5)
    # Of some of them: the others do not matter.
    few = estimate(Stack(deepcopy(given[1:])), x[1:])
    torch.testing.assert_close(few.log_prob, found.log_prob[1:], rtol=1e-6, atol=1e-6)
    single = estimate(Stack(deepcopy(given[1:2])), x[1:2])
    assert torch.equal(single.log_prob, expected[1].log_prob.unsqueeze(0))


def test_shared_noise_makes_the_figure_of_a_row_depend_on_the_row_alone(monkeypatch):
    monkeypatch.setattr(marginal, "_CHUNK", {"cpu": FEATURES * 2 * 30})  # 2 rows at once
    stack, x = Stack(models()), batch()[0]
    figures = [
        marginal_likelihood(stack, rows, 30, torch.Generator().manual_seed(3), shared=True).log_prob
        for rows in (x, x.flip(1))
    ]
    torch.testing.assert_close(figures[0], figures[1].flip(1), rtol=1e-12, atol=1e-12)


# --- which models can be stacked -------------------------------------------------------------------------------------


ALIKE_BASE = Config(hidden=(4,), likelihood="unit_gaussian", prior_scale=1.0)


def fitted(**changes):
    config = replace(ALIKE_BASE, **changes)
    model = build(config, FEATURES, (1, 3) if config.likelihood == "categorical" else ())
    return Fitted(config, model, Scaling.identity(FEATURES), "", random_split(20, 0.1), [])


# --- parameters of their own ----------------------------------------------------------------------------------------


def refused(given, says):
    before = [{name: t.clone() for name, t in model.state_dict().items()} for model in given]
    places = [[p.data_ptr() for p in model.parameters()] for model in given]
    with pytest.raises(CurvaeError, match=says) as caught:
        Stack(given)
    assert "\n" not in str(caught.value) and "deepcopy" in str(caught.value)
    assert places == [[p.data_ptr() for p in model.parameters()] for model in given]
    for model, state in zip(given, before, strict=True):
        assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())


def test_a_model_is_in_a_stack_once():
    model, other = build(ALIKE_BASE, FEATURES), build(replace(ALIKE_BASE, seed=1), FEATURES)
    refused([model, model], "models 1 and 2 of a stack share the parameter encoder")
    refused([other, model, model], "models 2 and 3 of a stack share")
    refused([model, other, model], "models 1 and 3 of a stack share")
    assert len(Stack([model, deepcopy(model)])) == 2


def test_learned_curvatures_are_not_shared():
    curvature = Curvature(0.6, learnable=True)
    given = [custom(lambda: mlp(FEATURES, 6), curvature, seed) for seed in range(2)]
    refused(given, r"share the parameter \S*log_c")
    fixed = Curvature(0.6)
    assert len(Stack([custom(lambda: mlp(FEATURES, 6), fixed, seed) for seed in range(2)])) == 2


def test_no_layer_is_shared():
    encoder = mlp(FEATURES, 6)
    refused([custom(lambda: encoder, seed=seed) for seed in range(2)], "share the parameter encoder")
    # A single tensor of a layer, under other names.
    a, b = (custom(normed(lambda: torch.nn.LayerNorm(6)), seed=seed) for seed in range(2))
    b.encoder[2].bias = a.encoder[2].bias
    refused([a, b], "share the parameter encoder.2.bias")


# --- one notion of architecture -------------------------------------------------------------------------------------

# Of equal shapes, or of other ones; none can be stacked with another.
KINDS = (
    {},
    {"likelihood": "bernoulli"},
    {"likelihood": "categorical"},
    {"likelihood": "gaussian"},
    {"decoder": "mlp"},
    {"decoder": "log_mlp"},
    {"decoder": "mobius"},
    {"posterior": "wrapped"},
    {"hidden": (5,)},
    {"decoder": "log_mlp", "curvature": 0.0},
)


def test_what_has_one_architecture_can_be_stacked_and_nothing_else():
    models = [build(replace(ALIKE_BASE, **change), FEATURES) for change in KINDS]
    for i, a in enumerate(models):
        for j, b in enumerate(models):
            assert (architecture(a) == architecture(b)) == (i == j)
            if i != j:
                with pytest.raises(CurvaeError, match="only models of one architecture"):
                    Stack([a, b])
        alike = build(replace(ALIKE_BASE, **KINDS[i], seed=3, prior_scale=2.0), FEATURES)
        assert architecture(a) == architecture(alike) and len(Stack([deepcopy(a), alike])) == 2


def test_shapes_of_buffers_and_dtypes_are_part_of_it():
    plain = custom(lambda: mlp(FEATURES, 6))
    a, b = deepcopy(plain), deepcopy(plain)
    a.encoder.register_buffer("mask", torch.ones(2))
    b.encoder.register_buffer("mask", torch.ones(3))
    assert architecture(a) != architecture(b) and architecture(a) != architecture(plain)
    assert architecture(plain) != architecture(deepcopy(plain).float())


def test_likelihoods_are_grouped_by_what_can_be_stacked():
    """As on CUDA, where a group is evaluated as a stack."""
    given = [fitted(**change, seed=seed) for seed in range(2) for change in KINDS]
    x = [Arrays(np.zeros((6, FEATURES)))] * len(given)
    found = _alike(given, x)
    assert found == [[i, i + len(KINDS)] for i in range(len(KINDS))]
    for places in found:
        assert len(Stack([given[i].model for i in places])) == 2
    # Curvatures and prior scales may differ, numbers of rows may not.
    mixed = [fitted(curvature=c, prior_scale=s) for c, s in ((0.5, 1.0), (2.0, 0.7), (0.5, 1.0), (0.0, 1.0))]
    sizes = [Arrays(np.zeros((n, FEATURES))) for n in (6, 6, 7, 6)]
    assert _alike(mixed, sizes) == [[0, 1, 3], [2]]
    assert _alike([], []) == []


def test_likelihoods_of_a_mixed_list_are_those_of_each():
    given = [fitted(), fitted(likelihood="bernoulli"), fitted(decoder="mlp"), fitted()]
    x = [np.random.default_rng(i).integers(2, size=(5, FEATURES)).astype(float) for i in range(4)]
    for one, rows, found in zip(given, x, likelihoods_many(given, x, 20), strict=True):
        assert np.array_equal(found.log_prob, likelihoods(one, rows, 20).log_prob)


# --- matrix products on ARM processors go around oneDNN, and nothing else does ---------------------------------------


linear, convolving = nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.Conv2d(1, 1, 3))


@pytest.fixture
def arm(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_acl_available", lambda: True)
    if not torch.backends.mkldnn.enabled:
        pytest.skip("this PyTorch has no oneDNN")


@pytest.mark.parametrize(("model", "inside"), [(linear, False), (convolving, True)])
def test_on_arm(arm, model, inside):
    with blas_products(model):
        assert torch.backends.mkldnn.enabled is inside
    assert torch.backends.mkldnn.enabled


def test_is_put_back_after_an_error(arm):
    with pytest.raises(ValueError, match="within"), blas_products(linear):
        raise ValueError("within")
    assert torch.backends.mkldnn.enabled


def test_elsewhere(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_acl_available", lambda: False)
    before = torch.backends.mkldnn.enabled
    with blas_products(linear):
        assert torch.backends.mkldnn.enabled is before


def test_what_was_off_stays_off(arm):
    torch.backends.mkldnn.enabled = False
    try:
        with blas_products(linear):
            pass
        assert not torch.backends.mkldnn.enabled
    finally:
        torch.backends.mkldnn.enabled = True
