"""Many models of one architecture, computed as one: their parameters are stacked along a leading dimension."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map, tree_map_only

from ..errors import CurvaeError
from ..geometry.functions import Primitive
from .graph_vae import GraphVAE
from .vae import VAE, MapTerms, Terms

__all__ = ["Model", "Stack", "Stackable", "Tensors", "architecture", "blas_products", "matmul_precision", "trace"]

Tensors = dict[str, Tensor]
Stackable = VAE | GraphVAE
Model = TypeVar("Model", bound=Stackable)


class _Linear(Primitive):
    """`F.linear` whose gradient has the memory layout of the weights.

    On a CPU, batched products are slow if their right factor is a transposed view, so the weights are copied there.
    """

    events = (2, 2, 1)
    differentiable = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        product = x @ (weight.mT.contiguous() if weight.device.type == "cpu" else weight.mT)
        return product if bias is None else product.add_(bias.unsqueeze(-2))

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, weight, bias = inputs
        return grad @ weight if needed[0] else None, grad.mT @ x, None if bias is None else grad.sum(-2)


class _Products(TorchFunctionMode):
    """Within this context, `F.linear` is `_Linear`."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is F.linear:
            return _linear(**dict(zip(("input", "weight", "bias"), args, strict=False)), **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002 - the names of F.linear
    if torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(device := input.device.type):
        # Autocast acts on `F.linear` below the level at which it is replaced here.
        dtype = torch.get_autocast_dtype(device)
        input, weight = input.to(dtype), weight.to(dtype)  # noqa: A001
        bias = None if bias is None else bias.to(dtype)
    return _Linear.call(input.reshape(-1, input.shape[-1]), weight, bias).reshape(*input.shape[:-1], weight.shape[0])


class _Method(nn.Module):
    """A module whose call is a method of a model, which `functional_call` needs."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, *args: Tensor) -> Any:
        return getattr(self.model, self.name)(*args)


class Stack(Generic[Model]):
    """Models of one architecture that are trained or evaluated together, as fast as one large model.

    They may differ in every parameter and buffer, so also in curvature and prior. Each has its own rows and noise:
    model k computes what it would compute alone. The parameters of the models become views of the stacked ones, so
    that training the stack trains the models. A stack of one model calls that model.

    Arguments:
        models: of one architecture, device and dtype; no two share a parameter.

    Attributes:
        tensors: the parameters by name, each of shape (models, …).
        buffers: the buffers by name, in the same shape.
        leaves: the tensors that gradients are taken of: `tensors`, or the parameters of a single model, without those
            that are not to be trained.

    Example:
        >>> from curvae.training import Config, build
        >>> models = [build(Config(curvature=c, likelihood="bernoulli"), 20) for c in (0.1, 1.0)]
        >>> stack = Stack(models)
        >>> terms = stack.terms(torch.rand(2, 8, 20), torch.randn(2, 1, 8, 2))
        >>> terms.kl.shape
        torch.Size([2, 1, 8])
    """

    def __init__(self, models: Sequence[Model]) -> None:
        _require_stackable(models)
        self.models = list(models)
        named = [dict(model.named_parameters()) for model in models]
        self.tensors: Tensors = {name: torch.stack([n[name].detach() for n in named]) for name in named[0]}
        for i, parameters in enumerate(named):
            for name, parameter in parameters.items():
                parameter.data = self.tensors[name][i]
        held = [dict(model.named_buffers()) for model in models]
        self.buffers: Tensors = {name: torch.stack([b[name] for b in held]) for name in held[0]}
        trained: Tensors = {name: parameter for name, parameter in named[0].items() if parameter.requires_grad}
        self.leaves: Tensors = (
            {name: self.tensors[name].detach().requires_grad_() for name in trained} if len(self) > 1 else trained
        )
        self._aliases = _aliases(models[0])

    def __len__(self) -> int:
        return len(self.models)

    @property
    def device(self) -> torch.device:
        return self.models[0].device

    @property
    def dtype(self) -> torch.dtype:
        return self.models[0].dtype

    def terms(self, *args: Any) -> Terms | MapTerms:
        """Compute `terms` of every model. Arguments and results have the models as first dimension.

        For a `VAE`, the arguments are a `Batch`, or rows of shape (models, rows, …), and noise of shape
        (models, k, rows, d); for a `GraphVAE`, a `GraphBatch` and noise.
        """
        if len(self) == 1:
            return tree_map(lambda t: t.unsqueeze(0), self.models[0].terms(*tree_map(lambda arg: arg[0], args)))
        return self.pure("terms", {**self.tensors, **self.leaves}, self.buffers, *args)

    def pure(self, method: str, tensors: Tensors, buffers: Tensors, *args: Any) -> Any:
        """Return a method of every model, as a pure function of parameters, buffers and arguments."""
        module = _Method(self.models[0], method)

        def one(tensors: Tensors, buffers: Tensors, *args: Any) -> Any:
            own = {**tensors, **buffers}
            values = {f"model.{alias}": own[name] for alias, name in self._aliases.items()}
            return functional_call(module, values, args, tie_weights=False)

        with _Products():
            return vmap(one)(tensors, buffers, *args)

    def each(self, function: Callable[[Model], Tensor]) -> Tensor:
        """One number for every model, as a tensor of shape (models,) on the CPU."""
        with torch.no_grad():
            return torch.stack([function(model) for model in self.models]).cpu()


def _aliases(model: nn.Module) -> dict[str, str]:
    """For every parameter and buffer of every module, the first name of the same tensor.

    A module that several others share has several names; it is listed, and must be set, by one of them only.
    """
    first: dict[int, str] = {}
    held: set[tuple[int, str]] = set()
    names = {}
    for tensors in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, tensor in tensors:
            path, _, attribute = name.rpartition(".")
            place = id(model.get_submodule(path)), attribute
            if place not in held:
                held.add(place)
                names[name] = first.setdefault(id(tensor), name)
    return names


def architecture(model: Stackable) -> Any:
    """Return what the models of a stack have in common. The result can be compared with `==`, but not hashed.

    Example:
        >>> from curvae.training import Config, build
        >>> a, b, c = (build(Config(likelihood=name), 20) for name in ("bernoulli", "bernoulli", "unit_gaussian"))
        >>> architecture(a) == architecture(b), architecture(a) == architecture(c)
        (True, False)
    """
    shapes = {name: t.shape for name, t in (*model.named_parameters(), *model.named_buffers())}
    types = [type(part) for part in model.modules()]
    # Besides their tensors; a stack takes them from the first model.
    attributes = [{k: v for k, v in vars(part).items() if k[0] != "_" and k != "training"} for part in model.modules()]
    return _aliases(model), shapes, types, attributes, model.dtype, model.device


def _require_stackable(models: Sequence[Stackable]) -> None:
    owners: dict[int, int] = {}
    first = architecture(models[0])
    for i, model in enumerate(models):
        for part in model.modules():
            if isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats:
                raise CurvaeError(
                    f"{type(part).__name__} keeps running averages, which cannot be stacked; use LayerNorm or GroupNorm"
                )
            if isinstance(part, nn.modules.dropout._DropoutNd):
                raise CurvaeError(
                    f"{type(part).__name__} draws noise of its own, which cannot be stacked; leave it out"
                )
        if architecture(model) != first:
            raise CurvaeError(
                "only models of one architecture, dtype and device can be stacked; make one stack of each"
            )
        for name, parameter in model.named_parameters():
            if (owner := owners.setdefault(id(parameter), i)) != i:
                raise CurvaeError(
                    f"models {owner + 1} and {i + 1} of a stack share the parameter {name}, of which each needs its "
                    "own; build every model anew, or copy it with copy.deepcopy"
                )


# Functions of stacked models as flat graphs of tensor operations, for CUDA; and how matrices are multiplied.


@contextmanager
def matmul_precision(tf32: bool) -> Iterator[None]:
    """Compute float32 matrix products on CUDA with TF32 inputs (10 bits of fraction) or in full; the setting is put
    back.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def blas_products(model: nn.Module) -> Iterator[None]:
    """Compute float32 matrix products of a model without convolutions by BLAS, where they would go to the Arm Compute
    Library, which takes up to four times as long for those of small batches; the setting is put back.

    For stacks and for the many samples of a likelihood that library is the faster one.
    """
    backend = torch.backends.mkldnn
    convolves = any(isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) for layer in model.modules())
    if convolves or not backend.is_acl_available() or not backend.enabled:
        yield
        return
    backend.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        backend.enabled = True  # type: ignore[assignment]


def trace(function: Callable[..., Any], *example: Any, compiled: bool) -> Callable[..., Any]:
    """Resolve vmap and gradients in `function` to operations on tensors, for arguments shaped like the example.

    torch.compile cannot see through vmap of a gradient; of the flat graph it fuses what is small.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    function(*example)  # tables are built at their first use, outside of the graph
    graph = make_fx(lambda *args: function(*args))(*example)  # a method has one argument more than it is given
    if not compiled:
        return graph
    fused = torch.compile(graph, fullgraph=True, dynamic=False)
    try:
        with torch.no_grad():
            fused(*tree_map_only(Tensor, Tensor.detach, example))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler may lack on this machine, the graph works without one
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        warnings.warn(f"compiling failed, going on without ({reason})", stacklevel=2)
        return graph
    return fused
