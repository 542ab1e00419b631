"""A trained model of rows for other programs: encoder and decoder as graphs from and to original units."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export, save

from ..errors import CurvaeError
from ..maps.embedding import placed_factors
from ..maps.statistics import Array
from ..models import Batch
from ..nn import Conditioned
from .fitted import Fitted
from .rows import assemble

__all__ = ["Part", "export_part", "onnx_bytes", "portable", "require_onnx", "torch_bytes"]


class _Scaled(nn.Module):
    """What both graphs have: the model with networks in float32, and how its features and covariates are scaled."""

    shift: Tensor
    scale: Tensor
    context_shift: Tensor | None
    context_scale: Tensor | None

    def __init__(self, fitted: Fitted, context: Array, without: str) -> None:
        super().__init__()
        self.model = deepcopy(fitted.model).float().cpu().eval()
        setattr(self.model, without, nn.Identity())
        values = {"shift": fitted.scaling.shift, "scale": fitted.scaling.scale}
        if len(context):
            values |= {"context_shift": context[:, 0], "context_scale": context[:, 1]}
        for name in ("shift", "scale", "context_shift", "context_scale"):
            self.register_buffer(name, torch.from_numpy(np.array(values[name])) if name in values else None)

    def _given(self, context: Tensor | None, size: Tensor | None) -> dict[str, Any]:
        """Return the parts of a batch that are there, as the networks take them."""
        given = {} if size is None else {"size": size}
        if context is None or self.context_shift is None or self.context_scale is None:
            return given
        return {"context": ((context - self.context_shift) / self.context_scale).float(), **given}


class PortableEncoder(_Scaled):
    """Rows in original units to the centres of their posteriors, as space parts S and in coordinates for people.

    Where the model knows missing values they are NaN; otherwise NaN are replaced by `fills`, if there are some.
    """

    fills: Tensor | None

    def __init__(self, fitted: Fitted, context: Array, fills: Array | None) -> None:
        super().__init__(fitted, context, without="decoder")
        self.missing, self.charts = fitted.layout.missing, [one.chart for one in placed_factors(fitted.model.space)]
        self.register_buffer("fills", None if fills is None or self.missing else torch.from_numpy(fills))

    def forward(self, x: Tensor, context: Tensor | None = None, size: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if self.fills is not None:
            x = torch.where(x.isnan(), self.fills, x)
        given = self._given(context, None if size is None else size.float())
        batch = assemble({"x": ((x - self.shift) / self.scale).float(), **given}, self.missing)
        model: Any = self.model
        S = model.space.centres(model.posterior.head(model._features(batch)))
        parts = zip(self.charts, model.space.split(S), strict=True)
        return S, torch.cat([chart.coordinates(part) for chart, part in parts], -1)


class PortableDecoder(_Scaled):
    """Points S to the expected rows there, in original units."""

    constant: Tensor | None

    def __init__(self, fitted: Fitted, context: Array) -> None:
        super().__init__(fitted, context, without="encoder")
        known = fitted.scaling.constant
        self.register_buffer("constant", None if known is None else torch.from_numpy(known))

    def forward(self, space: Tensor, context: Tensor | None = None, size: Tensor | None = None) -> Tensor:
        model: Any = self.model
        batch = Batch(space, **self._given(context, size))
        original = model.likelihood.mean(model.decode(space, batch.context), batch).double() * self.scale + self.shift
        return original if self.constant is None else torch.where(self.constant, self.shift, original)


@dataclass(frozen=True)
class Part:
    """The encoder or the decoder of a model, ready to be exported.

    Arguments:
        name: "encoder" or "decoder".
        module: from `inputs` to `outputs`, all of them float64.
        inputs: name and width of each argument, (rows, width); one without a width is (rows,).
        outputs: names of what it returns, each (rows, width).
    """

    name: str
    module: nn.Module
    inputs: dict[str, int | None]
    outputs: tuple[str, ...]


def portable(
    fitted: Fitted, covariates: Sequence[tuple[float, float]] = (), fills: Array | None = None
) -> tuple[Part, Part]:
    """Make encoder and decoder of a trained model functions of numbers in original units, which work without Curvae.

    Arguments:
        fitted: a result of `curvae.training.fit` or `fit_many`.
        covariates: what is subtracted from each number of the context and what it is divided by; nothing and 1 by
            default.
        fills: in place of missing values, (features,), where the model does not know them; by default a row that lacks
            one has no place.
    """
    layout, model = fitted.layout, fitted.model
    context = np.array(covariates or [(0.0, 1.0)] * layout.covariates).reshape(-1, 2)

    def inputs(name: str, width: int, network: nn.Module) -> dict[str, int | None]:
        return {
            name: width,
            **({"context": layout.covariates} if isinstance(network, Conditioned) else {}),
            **({"size": None} if layout.size else {}),
        }

    shown, places = inputs("x", layout.features, model.encoder), inputs("space", model.space.width, model.decoder)
    return (
        Part("encoder", PortableEncoder(fitted, context, fills), shown, ("space", "ball")),
        Part("decoder", PortableDecoder(fitted, context), places, ("mean",)),
    )


def export_part(part: Part) -> ExportedProgram:
    """Export a part as a program of `torch.export`, for any number of rows."""
    rows = Dim("rows")
    # Three rows: a size of 0 or 1 would be taken as fixed.
    example = {
        name: torch.ones((3,) if width is None else (3, width), dtype=torch.float64)
        for name, width in part.inputs.items()
    }
    with torch.no_grad(), _silent():
        return export(part.module, (), example, dynamic_shapes={name: {0: rows} for name in example})


@contextmanager
def _silent() -> Iterator[None]:
    """Without what torch says about itself while it traces."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)


def require_onnx() -> None:
    """Raise if what `onnx_bytes` needs is not installed."""
    if lacking := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        raise CurvaeError(f"{' and '.join(lacking)} must be installed for ONNX files: pip install {' '.join(lacking)}")


def onnx_bytes(part: Part, program: ExportedProgram) -> bytes:
    """Return the ONNX file of a part, exported by `export_part`, whose inputs and outputs are called as the part's."""
    require_onnx()
    from onnxscript import opset18

    op: Any = opset18  # its annotations leave out that numbers are turned into tensors
    # What onnxruntime has in float32 alone, by functions that it has in float64 too. Arguments are 0.14 and more, or
    # their series are used (geometry/functions.py), so that no digits cancel.
    in_exponentials: dict[Callable[..., Any], Callable[..., Any]] = {
        torch.ops.aten.sinh.default: lambda x: op.Div(op.Sub(op.Exp(x), op.Exp(op.Neg(x))), op.CastLike(2.0, x)),
        torch.ops.aten.cosh.default: lambda x: op.Div(op.Add(op.Exp(x), op.Exp(op.Neg(x))), op.CastLike(2.0, x)),
        torch.ops.aten.asinh.default: lambda x: op.Log(op.Add(x, op.Sqrt(op.Add(op.Mul(x, x), op.CastLike(1.0, x))))),
    }
    with _silent():
        made = torch.onnx.export(
            program,
            input_names=list(part.inputs),
            output_names=list(part.outputs),
            dynamo=True,
            verbose=False,
            custom_translation_table=in_exponentials,
        )
        assert made is not None
        return made.model_proto.SerializeToString()


def torch_bytes(program: ExportedProgram) -> bytes:
    """Return the file that `torch.export.load` reads."""
    stream = io.BytesIO()
    with _silent():
        save(program, stream)
    return stream.getvalue()
