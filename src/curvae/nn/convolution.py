"""Convolutions that halve and double images, as matrix products of patches.

Images have their channels last, (rows, height, width, channels). A patch is gathered by slices and multiplied by an
`nn.Linear`, so that a stack of models is one batched matrix product: grouped convolutions, which `vmap` makes of
`F.conv2d`, take longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import CurvaeError

__all__ = ["Double", "Halve", "Offset", "ToImage", "ToRow", "grids", "keep_variance"]

# Images are halved while their sides are at least this long.
_LEAST = 8
_CHANNELS, _MOST_CHANNELS = 16, 128
# Matrix products that a batch of 128 images is divided into.
_GROUPS = 16


def keep_variance(layer: nn.Linear, inputs: int | None = None) -> nn.Linear:
    """A layer whose fresh weights keep the variance of what passes it and a ReLU (He et al. 2015).

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
    """The layer at every pixel, as a matrix product for each of a few groups of images.

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
        padded = F.pad(x, (0, 0, 1, 1, 1, 1))  # with a border of zeros, one pixel wide
        blocks = padded[:, : 2 * h, : 2 * w].reshape(-1, h, 2, w, 2, self.channels).transpose(2, 3)
        x = blocks.reshape(-1, h, w, 4 * self.channels)
        # The four neighbours around each inner corner of the grid, as channels.
        squares = torch.cat([x[:, :-1, :-1], x[:, :-1, 1:], x[:, 1:, :-1], x[:, 1:, 1:]], -1)
        return _each_pixel(self.linear, squares)


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
        squares = a + b + c + d
        pixels = squares.reshape(-1, h, w, 2, 2, self.out_channels).transpose(2, 3)
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
            f'network="conv" needs images of at least {_LEAST} × {_LEAST} pixels, but a row {what}; use network="mlp"'
        )
    height, width = shape
    found: list[tuple[tuple[int, int], int]] = []
    while min(height, width) >= _LEAST:
        height, width = height // 2, width // 2
        found.append(((height, width), min(_MOST_CHANNELS, _CHANNELS << len(found))))
    return found


def numbers(shape: Sequence[int]) -> int:
    """How many numbers the last of the `grids` holds."""
    size, channels = grids(shape)[-1]
    return math.prod(size) * channels
