"""Encoders and decoders: plain networks with one layer that knows the curved space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import Any, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import CurvaeError
from ..settings import DecoderKind, NetworkKind
from .layers import Curvatures, Curved, FactorSum, Gyroplane, Layers, MobiusLinear
from .space import Space

__all__ = [
    "NETWORKS",
    "Conditioned",
    "Decoder",
    "DecoderKind",
    "Double",
    "DroppingReLU",
    "Halve",
    "Network",
    "NetworkKind",
    "Offset",
    "ToImage",
    "ToRow",
    "decoder",
    "drop_units",
    "grids",
    "keep_variance",
    "mlp",
    "name_once",
]


# Convolutions that halve and double images, as matrix products of patches.
#
# Images have their channels last, (rows, height, width, channels). A patch is gathered by slices and multiplied by an
# `nn.Linear`, so that a stack of models is one batched matrix product: grouped convolutions, which `vmap` makes of
# `F.conv2d`, take longer.

# Images are halved while their sides are at least this long.
_LEAST = 8
_CHANNELS, _MOST_CHANNELS = 16, 128
# Matrix products that a batch of 128 images is divided into.
_GROUPS = 16


def keep_variance(layer: nn.Linear, inputs: int | None = None) -> nn.Linear:
    """Set fresh weights of a layer that keep the variance of what passes it and a ReLU (He et al. 2015).

    With PyTorch's default each such layer leaves a sixth of it. After the layers of a convolutional decoder nearly
    nothing of the point would be left in the outputs, and the posterior could collapse to the prior in the first steps.

    Arguments:
        layer: set in place.
        inputs: numbers that meet in one output, if not those of the layer.
    """
    nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
    with torch.no_grad():
        layer.weight *= math.sqrt(layer.in_features / (inputs or layer.in_features))
        if layer.bias is not None:
            layer.bias.zero_()
    return layer


def _each_pixel(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply the layer at every pixel, as a matrix product for each of a few groups of images.

    The gradient of the weights is a small matrix that is summed over all pixels. As one product for each model it would
    leave most of a GPU idle; the groups share the work.
    """
    groups = 1 if torch.compiler.is_exporting() else math.gcd(len(x), _GROUPS)  # a graph is for any number of rows
    y = torch.bmm(x.reshape(groups, -1, layer.in_features), layer.weight.T.expand(groups, -1, -1))
    y = y if layer.bias is None else y + layer.bias.to(y.dtype)
    return y.reshape(*x.shape[:-1], layer.out_features)


class Halve(nn.Module):
    """A convolution with kernel 4, stride 2 and a border of zeros: sides h become h // 2.

    Arguments:
        size: height and width of the images it takes.
        channels, out_channels: of a pixel before and after.

    Example:
        >>> Halve((28, 27), 1, 32)(torch.zeros(5, 28, 27, 1)).shape
        torch.Size([5, 14, 13, 32])
    """

    def __init__(self, size: tuple[int, int], channels: int, out_channels: int) -> None:
        super().__init__()
        self.size, self.channels = size, channels
        self.linear = keep_variance(nn.Linear(16 * channels, out_channels))

    def forward(self, x: Tensor) -> Tensor:
        h, w = (side // 2 + 1 for side in self.size)
        # With a border of zeros, one pixel wide.
        blocks = F.pad(x, (0, 0, 1, 1, 1, 1))[:, : 2 * h, : 2 * w].reshape(-1, h, 2, w, 2, self.channels)
        x = blocks.transpose(2, 3).reshape(-1, h, w, 4 * self.channels)
        # The four neighbours around each inner corner of the grid, as channels.
        return _each_pixel(self.linear, torch.cat([x[:, :-1, :-1], x[:, :-1, 1:], x[:, 1:, :-1], x[:, 1:, 1:]], -1))


class Double(nn.Module):
    """A transposed convolution with kernel 4 and stride 2, the adjoint of `Halve`: sides h // 2 become h.

    Arguments:
        size: height and width of the images it gives.
        channels, out_channels: of a pixel before and after.
        last: whether no ReLU follows, so that outputs start small.

    Example:
        >>> Double((28, 27), 32, 1)(torch.zeros(5, 14, 13, 32)).shape
        torch.Size([5, 28, 27, 1])
    """

    def __init__(self, size: tuple[int, int], channels: int, out_channels: int, last: bool = False) -> None:
        super().__init__()
        self.size, self.out_channels = size, out_channels
        meeting = 4 * channels  # four pixels meet in one
        self.linear = keep_variance(nn.Linear(channels, 16 * out_channels, bias=False), meeting * (6 if last else 1))

    @property
    def width(self) -> int:
        """Numbers that are held for one image."""
        return math.prod(side // 2 for side in self.size) * self.linear.out_features

    def forward(self, x: Tensor) -> Tensor:
        (height, width), (h, w) = self.size, (side // 2 + 1 for side in self.size)
        # What each pixel says of the squares at its four corners.
        parts = zip(_each_pixel(self.linear, x).chunk(4, -1), product((0, 1), (0, 1)), strict=True)
        a, b, c, d = (F.pad(part, (0, 0, right, 1 - right, below, 1 - below)) for part, (below, right) in parts)
        pixels = (a + b + c + d).reshape(-1, h, w, 2, 2, self.out_channels).transpose(2, 3)
        return pixels.reshape(-1, 2 * h, 2 * w, self.out_channels)[:, 1 : height + 1, 1 : width + 1]


class ToImage(nn.Module):
    """Rows of numbers to images; in a row, each channel is an image of its own."""

    def __init__(self, size: tuple[int, int], channels: int) -> None:
        super().__init__()
        self.size, self.channels = size, channels

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, self.channels, *self.size).movedim(1, -1)


class ToRow(nn.Module):
    """The inverse of `ToImage`."""

    def forward(self, x: Tensor) -> Tensor:
        return x.movedim(-1, 1).flatten(1)


class Offset(nn.Module):
    """Adds a learned number to each of the last dimension's entries, at first 0."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


def grids(shape: Sequence[int]) -> list[tuple[tuple[int, int], int]]:
    """Size and channels of an image of the given shape each time it is halved.

    Example:
        >>> grids((28, 28))
        [((14, 14), 16), ((7, 7), 32)]
    """
    if len(shape) != 2 or min(shape) < _LEAST:
        what = f"has {shape[0]} × {shape[1]}" if len(shape) == 2 else "is no image"
        raise CurvaeError(
            f'`network="conv"` needs images of at least {_LEAST} × {_LEAST} pixels, but a row {what}; use '
            '`network="mlp"`'
        )
    height, width = shape
    found: list[tuple[tuple[int, int], int]] = []
    while min(height, width) >= _LEAST:
        height, width = height // 2, width // 2
        found.append(((height, width), min(_MOST_CHANNELS, _CHANNELS << len(found))))
    return found


def numbers(shape: Sequence[int]) -> int:
    """Count how many numbers the last of the `grids` holds."""
    size, channels = grids(shape)[-1]
    return math.prod(size) * channels


Module = TypeVar("Module", bound=nn.Module)

_MASKS = 512  # places in a batch with a mask of their own; those after them have the same again


def name_once(module: Module) -> Module:
    """Give every shared part of a module, such as the curvature, a single name in `state_dict`.

    Formats such as safetensors refuse a tensor under two names. A state with all the names still loads.
    """
    module.register_state_dict_post_hook(_drop_aliases)
    module.register_load_state_dict_pre_hook(_restore_aliases)
    return module


def _shared(module: nn.Module, prefix: str) -> Iterator[list[str]]:
    """Return the names under which each shared part is held, with a dot at the end."""
    names: dict[int, list[str]] = {}
    for name, part in module.named_modules(remove_duplicate=False):
        names.setdefault(id(part), []).append(f"{prefix}{name}.")
    return (group for group in names.values() if len(group) > 1)


def _drop_aliases(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    aliases = tuple(alias for _, *rest in _shared(module, prefix) for alias in rest)
    for key in [key for key in state if key.startswith(aliases)]:
        del state[key]


def _restore_aliases(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for group in _shared(module, prefix):
        for name, key in [(name, key) for name in group for key in state if key.startswith(name)]:
            for alias in group:
                state.setdefault(alias + key.removeprefix(name), state[key])


class Decoder(Layers):
    """Layers from points of the space to outputs for a likelihood, the last with a bias for each output."""

    def start(self, outputs: Tensor) -> None:
        """Set the bias of the last layer: where the outputs start, before anything is learned."""
        with torch.no_grad():
            self.get_parameter(f"{len(self) - 1}.bias").copy_(outputs)

    @property
    def width(self) -> int:
        """The most numbers that a convolution holds for one row; 0 where there is none."""
        return max((layer.width for layer in self if isinstance(layer, Double)), default=0)


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers of the given sizes with ReLU after each; rows of any shape are flattened first.

    Example:
        >>> [type(layer).__name__ for layer in mlp(784, 600)]
        ['Flatten', 'Linear', 'ReLU']
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


class DroppingReLU(nn.ReLU):
    """ReLU, and in training dropout: a share of the units is left out, and the others are scaled to the same mean.

    Which units is decided by the place of a row in its batch alone. Batches are shuffled, so that a row meets other
    masks in every pass; and without random numbers of its own a training does not depend on whether it is interrupted,
    stacked or captured in a graph.

    Arguments:
        rate: the share of the units.
        seed: of the masks; layers of one network have different ones.

    Example:
        >>> layer = DroppingReLU(0.5, 0)
        >>> layer(torch.ones(2, 6)), layer.eval()(torch.ones(1, 6))
        (tensor([[2., 0., 0., 0., 2., 2.],
                [2., 2., 2., 2., 2., 0.]]), tensor([[1., 1., 1., 1., 1., 1.]]))
    """

    def __init__(self, rate: float, seed: int) -> None:
        super().__init__()
        self.rate, self.seed = rate, seed

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        if not self.training:
            return x
        masks = _masks(self.rate, self.seed, x.shape[-1], x.dtype, x.device)
        rows = x.shape[-2]
        return x * (masks if rows <= len(masks) else masks.repeat(-(-rows // len(masks)), 1))[:rows]

    def extra_repr(self) -> str:
        return f"{self.rate}, {self.seed}"


@lru_cache(maxsize=64)
def _masks(rate: float, seed: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Factors of the units of a layer, for so many places in a batch."""
    kept = np.random.default_rng(seed).random((_MASKS, width)) >= rate
    with torch.inference_mode(False):
        return torch.from_numpy(kept / (1.0 - rate)).to(device, dtype)


def drop_units(encoder: nn.Sequential, rate: float) -> nn.Sequential:
    """Let dropout follow the hidden dense layers of an encoder, in place; at rate 0 it stays as it is."""
    for place in range(1, len(encoder) if rate else 0):
        if isinstance(encoder[place - 1], nn.Linear) and isinstance(encoder[place], nn.ReLU):
            encoder[place] = DroppingReLU(rate, place)
    return encoder


class Conditioned(nn.Module):
    """A network that is given a context: some of its layers give their output plus a linear function of the context.

    After a first layer that is affine, that is the same as one input more for every number of the context. The linear
    functions start at 0, so that fresh weights are those of the network without a context.

    Arguments:
        layers: the network.
        context: numbers that it is given.
        widths: the layers, by place, to whose output a function of the context is added, with the width of the output;
            by default the layers of a `decoder` that an activation follows, and the last.
        own: the first of the numbers of the context that have weights of their own in the last layer, which is linear,
            and how many these are. The layer's output then has, for each, that number times a linear function of its
            input more.

    Example:
        >>> import torch
        >>> network = Conditioned(mlp(784, 600), 3, {1: 600})
        >>> network(torch.zeros(8, 784), torch.eye(3)[[0, 1, 1, 0, 2, 0, 1, 2]]).shape
        torch.Size([8, 600])
    """

    def __init__(
        self,
        layers: nn.Sequential,
        context: int,
        widths: Mapping[int, int] | None = None,
        own: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__()
        self.context, self.own = context, slice(own[0], sum(own))
        self.shifts = nn.ModuleDict()
        for place, width in (_widths(layers) if widths is None else widths).items():
            shift = nn.Linear(context, width, bias=False, device="meta")
            shift.weight = nn.Parameter(torch.zeros(width, context))
            self.shifts[str(place)] = shift
        last: Any = layers[-1]
        self.slopes = nn.Parameter(torch.zeros(own[1], *last.weight.shape)) if own[1] else None
        self.layers = layers
        name_once(self)

    @property
    def last(self) -> nn.Linear | None:
        """The function of the context that is added to what the network gives, if there is one."""
        found = dict(self.shifts.items()).get(str(len(self.layers) - 1))
        return found if isinstance(found, nn.Linear) else None

    def forward(self, x: Tensor, context: Tensor | None = None, c: Curvatures = None) -> Tensor:
        """Return outputs for x of shape (n, …), given the context of shape (rows, context): n is a multiple of the
        rows, and x holds all of them before it holds the first again. Curvatures `c` go to the layers that need
        them."""
        if context is None:
            raise CurvaeError(f"this model needs the covariates of the rows, a context of {self.context} numbers each")
        if context.shape[-1] != self.context:
            raise CurvaeError(f"the context must hold {self.context} numbers a row, got {context.shape[-1]}")
        # A graph has a context for each x: what tells them apart would be a condition on their number.
        rows = (-1,) if torch.compiler.is_exporting() else (-1, len(context))
        read = x
        for place, layer in enumerate(self.layers):
            read, x = x, layer(x, c) if isinstance(layer, Curved | Layers) else layer(x)
            if str(place) in self.shifts:
                x = (x.reshape(*rows, x.shape[-1]) + self.shifts[str(place)](context)).reshape(x.shape)
        if self.slopes is not None:
            parts = read.reshape(*rows, read.shape[-1]), self.slopes, context[:, self.own]
            x = x + torch.einsum("...ri,coi,rc->...ro", *parts).reshape(x.shape)
        return x


def _widths(layers: nn.Sequential) -> dict[int, int]:
    """Find the layers that an activation follows, and the last, by place, with the width of their output."""
    found, width = {}, 0
    for place, layer in enumerate(layers):
        if isinstance(layer, nn.Linear | Gyroplane | MobiusLinear):
            width = len(layer.weight)
        elif isinstance(layer, FactorSum):
            width = layer.out_features
        elif isinstance(layer, Offset):  # of pixels, but for the last
            width = len(layer.bias)
        if place + 1 == len(layers) or (isinstance(layers[place + 1], nn.ReLU) and not isinstance(layer, Offset)):
            found[place] = width
    return found


def decoder(kind: DecoderKind, space: Space, hidden: Sequence[int], out_features: int) -> Decoder:
    """Build a network from points S of the space to the parameters of a likelihood (section 3.2 and the ablation).

    Arguments:
        kind: the first layer: "gyroplane", distances to hyperplanes; "gyroplane_scalar", the same hyperplanes with
            their offsets as one number each in place of a point; "log_mlp", an affine map of log_0; "mlp", an
            affine map of ball coordinates; "mobius", a Möbius layer followed by log_0. At curvature 0, "log_mlp" is the
            ordinary MLP, and a gyroplane is an affine map too, in the parameters of curved ones. In a product the first
            layer is the sum of one for each factor.
        space: where the points lie. The model hands its curvatures to the network.
        hidden: widths of the hidden layers, at least one.
        out_features: number of outputs.

    Example:
        >>> decoder("gyroplane", Space("h2"), (200,), 50)
        Decoder(
          (0): Gyroplane(2, 200, offset='point')
          (1): ReLU()
          (2): Linear(in_features=200, out_features=50, bias=True)
        )
    """
    if kind not in get_args(DecoderKind):
        raise ValueError(f"decoder must be one of {', '.join(get_args(DecoderKind))}; got {kind!r}")
    if not hidden:
        raise ValueError("a decoder needs at least one hidden layer, for example hidden=(200,)")
    layers = [factor.first_layers(kind, hidden[0], flat) for factor, flat in zip(space, space.flat, strict=True)]
    first = (
        layers[0]
        if len(layers) == 1
        else [FactorSum([factor.width for factor in space], [Layers(*own) for own in layers], hidden[0], space.flat)]
    )
    return name_once(Decoder(*first, nn.ReLU(), *list(mlp(*hidden))[1:], nn.Linear(hidden[-1], out_features)))


Dense = Callable[[int], Decoder]
Pair = tuple[nn.Sequential, Decoder]


@dataclass(frozen=True)
class Network:
    """A pair of encoder and decoder by name.

    Arguments:
        summary: which data it is for, in one line.
        width: how many numbers the dense layers see, from the shape of a row and the values that the encoder sees;
            raises for rows that do not fit.
        make: encoder and decoder, from the shape of a row, the values that the encoder sees, the widths of the dense
            layers of the encoder, the number of outputs, and what makes a `decoder` of dense layers with so many
            outputs.
    """

    summary: str
    width: Callable[[Sequence[int], int], int]
    make: Callable[[Sequence[int], int, Sequence[int], int, Dense], Pair]


def _conv(shape: Sequence[int], inputs: int, hidden: Sequence[int], outputs: int, dense: Dense) -> Pair:
    """Convolutions that halve the image, then dense layers; dense layers, then convolutions that double it."""
    halved, pixels = grids(shape), math.prod(shape)
    if inputs % pixels or outputs % pixels:
        raise CurvaeError(
            f'`network="conv"` needs as many values for every one of {pixels} pixels, but there are {inputs} inputs '
            f'and {outputs} outputs; use `network="mlp"` or another likelihood'
        )
    sizes = [(shape[0], shape[1]), *(size for size, _ in halved)]
    down = [inputs // pixels, *(channels for _, channels in halved)]
    up = [outputs // pixels, *down[1:]]
    levels = range(len(halved))
    first: list[nn.Module] = [ToImage(sizes[0], down[0])]
    for i in levels:
        first += [Halve(sizes[i], down[i], down[i + 1]), nn.ReLU()]
    last: list[nn.Module] = [nn.ReLU(), nn.Unflatten(1, (*sizes[-1], up[-1]))]
    for i in reversed(levels):
        last += [Double(sizes[i], up[i + 1], up[i], last=i == 0), *([Offset(up[i]), nn.ReLU()] if i else [])]
    encoder = nn.Sequential(*first, *mlp(numbers(shape), *hidden))
    begin = dense(numbers(shape))
    for layer in (*encoder, *begin.modules()):
        if isinstance(layer, nn.Linear):
            keep_variance(layer)
    return encoder, name_once(Decoder(*begin, *last, ToRow(), Offset(outputs)))


# Every network that can be asked for by name.
NETWORKS: dict[str, Network] = {
    "mlp": Network(
        "rows of any data, as dense layers",
        lambda shape, inputs: inputs,
        lambda shape, inputs, hidden, outputs, dense: (mlp(inputs, *hidden), dense(outputs)),
    ),
    "conv": Network("images, as convolutions around dense layers", lambda shape, inputs: numbers(shape), _conv),
}
