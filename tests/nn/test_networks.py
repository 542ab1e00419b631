"""Networks by name: convolutions against PyTorch's own, images of any size, in models, stacks, files and commands."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from curvae import CurvaeError, PoincareVAE
from curvae.data import Arrays
from curvae.models import Layout, Stack, marginal, marginal_likelihood
from curvae.models.stack import trace
from curvae.nn import NETWORKS
from curvae.nn.networks import Double, Halve, ToImage, ToRow
from curvae.runs import Source, TrainRequest, evaluate_run, train_run
from curvae.training import Config, build, embed, fit, fit_many
from curvae.training.evaluate import likelihoods
from stacking import alone, assert_as_alone

SIZES = [(8, 8), (9, 12), (13, 8), (28, 28), (17, 33)]
BASE = Config(hidden=(6,), likelihood="bernoulli", network="conv")
SMALL = Layout(72, shape=(8, 9))


def images(rows=20, shape=(8, 9), seed=0):
    """Bright bars on a dark ground, at any place."""
    random = np.random.default_rng(seed)
    x = random.random((rows, *shape)) * 0.2
    for image in x:
        image[random.integers(shape[0])] += 0.7
    return x.reshape(rows, -1)


def models(config=BASE, dtype=torch.float64, layout=SMALL):
    settings = zip((0.2, 1.0, 2.5), range(3), strict=True)
    return [build(replace(config, curvature=c, seed=k), layout).to(dtype) for c, k in settings]


def batch(dtype=torch.float64, count=3, rows=4):
    return torch.rand(count, rows, 72, dtype=dtype), torch.randn(count, 2, rows, 2)


# --- layers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_halve_is_a_strided_convolution(size):
    layer = Halve(size, 3, 5).double()
    x = torch.randn(2, *size, 3, dtype=torch.float64)
    # Of a row of the weight: which block (2 × 2), which pixel in it (2 × 2), which channel.
    kernel = layer.linear.weight.reshape(5, 2, 2, 2, 2, 3).permute(0, 5, 1, 3, 2, 4).reshape(5, 3, 4, 4)
    expected = F.conv2d(x.movedim(-1, 1), kernel, layer.linear.bias, stride=2, padding=1).movedim(1, -1)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("size", SIZES)
def test_double_is_a_transposed_convolution(size):
    layer = Double(size, 3, 5).double()
    x = torch.randn(2, *(side // 2 for side in size), 3, dtype=torch.float64)
    # Of a row of the weight: which corner (2 × 2), which pixel around it (2 × 2), which channel.
    kernel = layer.linear.weight.reshape(2, 2, 2, 2, 5, 3).permute(5, 4, 0, 2, 1, 3).reshape(3, 5, 4, 4)
    odd = tuple(side % 2 for side in size)
    expected = F.conv_transpose2d(x.movedim(-1, 1), kernel, stride=2, padding=1, output_padding=odd)
    torch.testing.assert_close(layer(x), expected.movedim(1, -1))


@pytest.mark.parametrize("rows", [0, 1, 7, 24])
def test_images_are_computed_in_groups_of_any_number(rows):
    """Values, and the gradient of the weights, are those of each image alone."""
    x = torch.randn(rows, 9, 12, 3, dtype=torch.float64)
    for layer, shape in ((Halve((9, 12), 3, 5), (4, 6, 5)), (Double((18, 24), 3, 5), (18, 24, 5))):
        layer.double()
        each = [layer(image[None]) for image in x]
        expected = torch.cat([x.new_zeros(0, *shape), *each])
        torch.testing.assert_close(layer(x), expected)
        if rows:
            weight = layer.linear.weight
            slopes = [torch.autograd.grad(y.square().sum(), weight)[0] for y in (layer(x), expected)]
            torch.testing.assert_close(*slopes)


def test_rows_and_images_are_inverse():
    rows = torch.arange(2 * 3 * 20.0).reshape(2, 60)
    image = ToImage((4, 5), 3)(rows)
    assert image.shape == (2, 4, 5, 3) and image[1, 2, 3, 1] == 60 + 20 + 2 * 5 + 3
    torch.testing.assert_close(ToRow()(image), rows)


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [*SIZES, (8, 40), (70, 64)])
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_images_of_any_size(size, likelihood):
    pixels = size[0] * size[1]
    model = build(replace(BASE, likelihood=likelihood, hidden=(7, 5)), Layout(pixels, shape=size))
    reconstruction, kl = model.terms(torch.rand(2, pixels), model.noise(2, 3))
    assert reconstruction.shape == kl.shape == (3, 2) and bool(reconstruction.isfinite().all())
    assert model.sample(2).shape == (2, pixels)


def test_pixels_stay_at_their_places():
    """The pixel in a corner depends on the corner of the coarsest image, and on nothing far from it."""
    model = build(BASE, Layout(32 * 48, shape=(32, 48)))
    layers = list(model.decoder)
    first = next(i for i, layer in enumerate(layers) if isinstance(layer, torch.nn.Unflatten))
    size = layers[first].unflattened_size
    x = torch.zeros(1, int(np.prod(size)), requires_grad=True)
    y = layers[first](x)
    for layer in layers[first + 1 :]:
        y = y if isinstance(layer, torch.nn.ReLU) else layer(y)
    where = torch.autograd.grad(y.reshape(32, 48)[0, 47], x)[0].reshape(size)
    seen = where.abs().sum(-1).nonzero()
    assert len(seen) and int(seen[:, 0].max()) <= 1 and int(seen[:, 1].min()) >= where.shape[1] - 2


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian", "poisson"])
def test_outputs_start_at_the_column_means(network, likelihood):
    config, mean = replace(BASE, network=network, likelihood=likelihood), np.linspace(0.1, 0.9, 72)
    model, zero = (build(config, SMALL, mean=mean).double() for _ in range(2))
    zero.decoder.start(torch.zeros(72))
    S = torch.randn(5, 2, dtype=torch.float64)
    started = model.likelihood.start(torch.from_numpy(mean))
    torch.testing.assert_close((model.decode(S) - zero.decode(S)).detach(), started.expand(5, -1), atol=1e-6, rtol=0)


def test_the_dense_network_keeps_its_weights_and_their_names():
    torch.manual_seed(BASE.seed)
    expected = [torch.nn.Linear(72, 6).weight, torch.nn.Linear(6, 72)]
    state = build(replace(BASE, network="mlp", decoder="log_mlp", curvature=0.0), SMALL).state_dict()
    torch.testing.assert_close(state["encoder.1.weight"], expected[0])
    assert [name for name in state if name.startswith("decoder")] == [
        f"decoder.{place}.{part}" for place in (0, 2) for part in ("weight", "bias")
    ]


@pytest.mark.parametrize("shape", [(), (72,), (4, 18), (3, 8, 3)])
def test_data_that_are_no_images_are_refused(shape):
    with pytest.raises(CurvaeError, match=r'network="conv" needs images of at least 8 × 8 pixels.*use network="mlp"'):
        build(BASE, Layout(72, shape=shape))


# --- stacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_a_stack_computes_what_each_model_computes_alone(dtype, tolerance):
    assert_as_alone(models(dtype=dtype), *batch(dtype), tolerance)


@pytest.mark.usefixtures("quick_tracing")
def test_a_traced_gradient_has_the_same_numbers():
    given, (x, noise) = models(replace(BASE, posterior="wrapped")), batch()
    expected = [alone(model, *own) for model, *own in zip(given, x, noise, strict=True)]
    stack = Stack(given)
    names, held = list(stack.tensors), list(stack.buffers)

    def step(tensors, buffers, x, noise):
        own = dict(zip(names, tensors, strict=True)), dict(zip(held, buffers, strict=True))
        terms = stack.pure("terms", *own, x, noise)
        weights = torch.linspace(0.5, 1.5, 8, dtype=torch.float64).view(2, 4)
        return torch.autograd.grad((weights * (0.7 * terms.kl - terms.reconstruction)).sum(), tensors)

    tensors = [t.detach().requires_grad_() for t in stack.tensors.values()]
    args = tensors, list(stack.buffers.values())
    graph = trace(step, *args, torch.rand_like(x), torch.randn_like(noise), compiled=False)
    for name, found in zip(names, graph(*args, x, noise), strict=True):
        for own, (_, slopes) in zip(found, expected, strict=True):
            torch.testing.assert_close(own, slopes[name], rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_likelihoods_of_a_stack_are_those_of_each_model(monkeypatch, dtype):
    given = models(dtype=dtype, layout=Layout(256, shape=(16, 16)))
    x, asked = torch.rand(3, 4, 256, dtype=dtype), []
    for model in given:
        model.decoder.register_forward_pre_hook(lambda module, args: asked.append(len(args[0])))
    width = given[0].decoder.width
    monkeypatch.setattr(marginal, "_CHUNK", {"cpu": width * 30 // marginal._INNER})

    def estimate(model, x):
        return marginal_likelihood(model, x, 50, torch.Generator().manual_seed(3))

    each = [estimate(model, own).log_prob for model, own in zip(given, x, strict=True)]
    assert max(asked) <= 30 and sum(asked) == 3 * 4 * 50, "a convolution holds no more than it may"
    together = estimate(Stack(given), x).log_prob
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(together, torch.stack(each), rtol=tolerance, atol=tolerance)


def test_models_trained_together_are_those_trained_alone():
    data = Arrays(images(), shape=(8, 9))
    configs = [replace(BASE, seed=i, epochs=2, batch_size=8, **more) for i in range(2) for more in ({}, {"dim": 3})]
    configs += [replace(configs[0], network="mlp")]
    for config, one in zip(configs, fit_many(configs, data, dtype=torch.float64), strict=True):
        own = fit(config, data, dtype=torch.float64)
        assert one.config.network == config.network and one.layout.shape == (8, 9)
        for name, t in own.model.state_dict().items():
            torch.testing.assert_close(one.model.state_dict()[name], t, rtol=1e-9, atol=1e-9, msg=name)


def test_a_model_in_float64():
    fitted = fit(replace(BASE, epochs=2, batch_size=8), Arrays(images(), shape=(8, 9)))
    double, x = fitted.double(), images(3, seed=1)
    assert embed(double, x).space.dtype == np.float64
    few = [likelihoods(one, x, 30, seed=1).log_prob for one in (fitted, double)]
    np.testing.assert_allclose(*few, rtol=1e-4)


# --- the estimator --------------------------------------------------------------------------------------------------

FAST = {"network": "conv", "hidden": 6, "epochs": 1, "random_state": 0, "advanced": {"importance_samples": 20}}


def test_an_estimator_of_images(tmp_path):
    x = images()
    model = PoincareVAE(image_shape=(8, 9), **FAST).fit(x)
    assert model.score_samples(x).shape == (20,) and model.inverse_transform(model.embedding_).shape == x.shape
    model.save(tmp_path / "run")
    again = PoincareVAE.load(tmp_path / "run")
    assert again.get_params()["image_shape"] == (8, 9) and again.network == "conv"
    np.testing.assert_array_equal(again.transform(x), model.transform(x))
    np.testing.assert_array_equal(again.fit(x).embedding_, model.embedding_)


def test_square_images_need_no_shape():
    x = images(shape=(9, 9))
    found = [PoincareVAE(image_shape=shape, **FAST).fit_transform(x) for shape in (None, (9, 9), [9, 9])]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, r"72 columns are none; give image_shape=\(height, width\)"),
        ({"image_shape": (8, 8)}, r"height × width = 72, the columns; got \(8, 8\)"),
        ({"image_shape": 72}, "got 72"),
        ({"image_shape": (-8, -9)}, r"got \(-8, -9\)"),
        ({"image_shape": (4, 18)}, "at least 8 × 8 pixels, but a row has 4 × 18"),
        ({"network": "cnn"}, "network must be one of mlp, conv; got 'cnn'"),
    ],
)
def test_an_estimator_says_what_shape_it_needs(settings, words):
    with pytest.raises(CurvaeError, match=words) as error:
        PoincareVAE(**{**FAST, **settings}).fit(images())
    assert "\n" not in str(error.value)


# --- runs -----------------------------------------------------------------------------------------------------------


def test_a_run_on_images(tmp_path):
    path = tmp_path / "images.npy"
    np.save(path, images().reshape(20, 8, 9))
    settings = {"network": "conv", "hidden": (6,), "epochs": 1, "likelihood": "bernoulli"}
    result = train_run(TrainRequest(Source(str(path)), settings, tmp_path / "run"))
    description = json.loads((result.folder / "config.json").read_text(encoding="utf-8"))
    assert description["config"]["networks"]["network"] == result.following.options["network"] == "conv"
    found = evaluate_run(tmp_path / "run", str(path), 20)
    assert all(np.isfinite(part["log_likelihood"]) for part in found["parts"].values())
    assert PoincareVAE.load(tmp_path / "run").image_shape == (8, 9)


def test_a_table_is_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "table.npy"
    np.save(path, images())
    with pytest.raises(CurvaeError, match='network="conv" needs images'):
        train_run(TrainRequest(Source(str(path)), {"network": "conv"}, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_fresh_decoders_tell_points_apart():
    """Or the posterior collapses to the prior before the decoder has learned anything."""
    layout = Layout(784, shape=(28, 28))
    spread = {}
    for network in ("mlp", "conv"):
        model = build(Config(network=network, likelihood="bernoulli", dim=10), layout)
        S = model.prior().transform(torch.randn(200, 10, generator=torch.Generator().manual_seed(0)))
        spread[network] = float(model.decode(S).detach().std(0).mean())
    assert spread["conv"] > 0.5 * spread["mlp"], spread
