"""Networks by name: convolutions against PyTorch's own, images of any size, in models, stacks, files and commands."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional as F

from curvae import CurvaeError, PoincareVAE
from curvae.data import Arrays
from curvae.models import Batch, Layout, Stack, marginal, marginal_likelihood
from curvae.models.stack import trace
from curvae.nn import NETWORKS, Conditioned, mlp
from curvae.nn.networks import Double, DroppingReLU, Halve, ToImage, ToRow, drop_units
from curvae.runs import Source, evaluate_run, train_run
from curvae.settings import resolve_defaults
from curvae.training import Config, build, embed, fit, fit_many
from curvae.training.engine import BatchEngine
from curvae.training.fitted import likelihoods
from curvae.training.fitting import plan_rows
from stacking import alone, assert_as_alone
from trainings import CapturedEngine

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
    with pytest.raises(
        CurvaeError, match=r'`network="conv"` needs images of at least 8 × 8 pixels.*use `network="mlp"`'
    ):
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
        ({}, r"72 columns are none; give `image_shape=\(height, width\)`"),
        ({"image_shape": (8, 8)}, r"height × width = 72, the columns; got \(8, 8\)"),
        ({"image_shape": 72}, "got 72"),
        ({"image_shape": (-8, -9)}, r"got \(-8, -9\)"),
        ({"image_shape": (4, 18)}, "at least 8 × 8 pixels, but a row has 4 × 18"),
        ({"network": "cnn"}, "`network` must be one of mlp, conv; got 'cnn'"),
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
    folder, *_, following = train_run(Source(str(path)), settings, tmp_path / "run")
    description = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert description["config"]["networks"]["network"] == following.options["network"] == "conv"
    found, _ = evaluate_run(tmp_path / "run", str(path), 20)
    assert all(np.isfinite(part["log_likelihood"]) for part in found["parts"].values())
    assert PoincareVAE.load(tmp_path / "run").image_shape == (8, 9)


def test_a_table_is_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "table.npy"
    np.save(path, images())
    with pytest.raises(CurvaeError, match='`network="conv"` needs images'):
        train_run(Source(str(path)), {"network": "conv"}, tmp_path / "run")
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


# --- units that are left out in training -----------------------------------------------------------------------------


X = np.random.default_rng(0).normal(size=(60, 5))


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_a_share_of_the_units_is_left_out_and_the_mean_is_kept(rate):
    x = torch.rand(400, 300, dtype=torch.float64) + 1.0
    kept = DroppingReLU(rate, 1)(x)
    left_out = kept == 0
    assert stats.binomtest(int(left_out.sum()), x.numel(), rate).pvalue > 1e-3
    torch.testing.assert_close(kept[~left_out], x[~left_out] / (1 - rate))
    # As many in every row and in every unit, but for chance.
    for axis in (0, 1):
        counts, of = left_out.sum(axis).numpy(), x.shape[axis]
        assert stats.kstest((counts - of * rate) / np.sqrt(of * rate * (1 - rate)), "norm").statistic < 0.15


def test_masks_belong_to_places_and_layers():
    x = torch.ones(1100, 7)
    one, other = DroppingReLU(0.4, 1)(x), DroppingReLU(0.4, 3)(x)
    assert torch.equal(one, DroppingReLU(0.4, 1)(x)) and not torch.equal(one, other)
    assert torch.equal(one[:20], DroppingReLU(0.4, 1)(x[:20]))
    assert torch.equal(one[:512], one[512:1024]) and len(torch.unique(one[:512], dim=0)) > 64


def test_nothing_is_left_out_of_what_is_told():
    layer = DroppingReLU(0.9, 1).eval()
    x = torch.randn(30, 8)
    assert torch.equal(layer(x), torch.relu(x))
    with torch.inference_mode():
        layer.train()(x.double())
    x = x.double().requires_grad_()
    layer(x).sum().backward()  # the masks of an inference serve for gradients too
    assert torch.equal(x.grad != 0, layer(x.detach()) != 0)


def test_dense_hidden_layers_alone_drop_units():
    plain, dropping = (build(Config(likelihood="gaussian", hidden=(8, 6), dropout=rate), 5) for rate in (0.0, 0.2))
    kinds = [type(layer) for layer in plain.encoder]
    assert kinds == [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear, nn.ReLU]
    assert [type(layer) for layer in dropping.encoder] == [DroppingReLU if kind is nn.ReLU else kind for kind in kinds]
    assert not any(isinstance(layer, DroppingReLU) for layer in dropping.decoder.modules())
    assert list(plain.state_dict()) == list(dropping.state_dict())
    images = Config(likelihood="bernoulli", network="conv", hidden=(6,), dropout=0.2)
    encoder = build(images, Layout(72, shape=(8, 9))).encoder
    assert [isinstance(encoder[place], DroppingReLU) for place in range(len(encoder))][-1]
    assert sum(isinstance(layer, DroppingReLU) for layer in encoder) == 1


def test_with_a_context():
    network = Conditioned(drop_units(mlp(5, 8), 0.5), 2, {1: 8})
    x, context = torch.randn(40, 5), torch.randn(40, 2)
    dropped, whole = network(x, context), network.eval()(x, context)
    assert ((dropped == 0) | (whole > 0)).all() and (dropped == 0).sum() > (whole == 0).sum()


def test_rows_are_told_the_same_whoever_fills_up_the_batch():
    model = build(Config(likelihood="gaussian", dropout=0.3), 5).double()
    x, others = torch.randn(9, 5, dtype=torch.float64), Batch.of(torch.randn(4, 5, dtype=torch.float64))
    whole, part = (model._outputs_with(Batch.of(rows), others) for rows in (x, x[:6]))
    torch.testing.assert_close(whole[:6], part[:6])
    torch.testing.assert_close(whole[9:], part[6:])


@pytest.mark.usefixtures("quick_tracing")
@pytest.mark.parametrize("kind", [BatchEngine, CapturedEngine])
def test_what_is_watched_leaves_nothing_out(kind):
    """Before and after the first epoch, however that is computed."""
    found = []
    for rate in (0.0, 0.6):
        problem, tasks = plan_rows([Config(likelihood="gaussian", hidden=(8,), dropout=rate, patience=None)], X)
        models = problem.models(tasks)
        made = problem.engine(tasks, models)
        own = kind(models, made.configs, made.train, made.validation)
        found.append([own.validate(), own.epoch(0).means, own.validate()])
        for model in models:
            model.train()
        torch.testing.assert_close(own.validate(), found[-1][-1])
    (before, learned, after), (same, other, later) = found
    assert before == same and not torch.equal(learned, other) and after != later


@pytest.mark.parametrize(
    ("settings", "rows", "hidden", "dropout", "jitter"),
    [
        ({}, 999, (200,), 0.0, 0.0),
        ({}, 5000, (200, 200), 0.0, 0.0),
        ({"neighbours": "both"}, 399, (200,), 0.0, 0.0),
        ({"neighbours": "both"}, 400, (200, 200, 200, 200), 0.03, 0.0),
        ({"neighbours": "both"}, 999, (200, 200, 200, 200), 0.03, 0.0),
        ({"neighbours": "far"}, 1000, (200, 200, 200, 200), 0.03, 0.0),
        ({"neighbours": "far"}, 2000, (200, 200, 200, 200), 0.05, 0.0),
        ({"neighbours": "near"}, 1999, (200, 200, 200, 200), 0.03, 0.0),
        ({"neighbours": "near"}, 2000, (200, 200, 200, 200), 0.05, 0.5),
        ({"neighbours": "near", "network": "conv"}, 5000, (200, 200), 0.0, 0.0),
        ({"neighbours": "near", "hidden": (9,), "dropout": 0.0, "jitter": 0.0}, 5000, (9,), 0.0, 0.0),
        ({"dropout": 0.3, "hidden": (9,), "jitter": 0.2}, 10, (9,), 0.3, 0.2),
    ],
)
def test_by_default_where_neighbours_count_in_large_tables(settings, rows, hidden, dropout, jitter):
    config = resolve_defaults(Config(**{"neighbours": "off", **settings}), (rows, 0), Layout(4))
    assert (config.hidden, config.dropout, config.jitter) == (hidden, dropout, jitter)


@pytest.mark.parametrize(
    ("settings", "rows", "decay"),
    [
        ({}, 2000, 1.0),
        ({"neighbours": "both"}, 399, 1.0),
        ({"neighbours": "both"}, 400, 0.3),
        ({"neighbours": "both"}, 80 * 128, 0.15),  # 80 batches
        ({"neighbours": "both", "network": "conv"}, 1000, 1.0),
        ({"neighbours": "both", "weight_decay": 2.0}, 1000, 2.0),
    ],
)
def test_there_weight_decay_is_less(settings, rows, decay):
    config = resolve_defaults(Config(**{"neighbours": "off", **settings}), (rows, 100), Layout(4))
    assert config.weight_decay == pytest.approx(decay)
    assert resolve_defaults(config, (rows, 100), Layout(4)) == config
