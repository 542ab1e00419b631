"""Functions of stacked models as flat graphs of tensor operations, for CUDA; and how matrices are multiplied."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

__all__ = ["blas_products", "matmul_precision", "trace"]


@contextmanager
def matmul_precision(tf32: bool) -> Iterator[None]:
    """Float32 matrix products on CUDA with TF32 inputs (10 bits of fraction) or in full; the setting is put back."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def blas_products(model: nn.Module) -> Iterator[None]:
    """Float32 matrix products of a model without convolutions by BLAS, where they would go to the Arm Compute Library,
    which takes up to four times as long for those of small batches; the setting is put back.

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
    """`function` with vmap and gradients resolved to operations on tensors, for arguments shaped like the example.

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
