"""Operations with a derivative in closed form, cheap in eager mode and usable under torch.func and torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

__all__ = ["Primitive", "constant"]


Call = TypeVar("Call", bound=Callable[..., Any])


def constant(function: Call) -> Call:
    """Mark what torch.compile may take as a constant: `torch.compiler.assume_constant_result`, which would import the
    whole compiler for it, some seconds, at the start of every program."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class Primitive(torch.autograd.Function):
    """A `torch.autograd.Function` in the form that torch.func needs (`forward` without context, `setup_context`).

    That form costs some 50 µs more a call in eager mode, as much as a dozen operations on small tensors, so a plain
    eager call goes through a twin in the older form, made from the same three methods. A compiler fuses small
    operations itself and is shown `traced`, ordinary differentiable operations, by default those of `forward`. Call it
    with `call`.

    A `forward` that also returns what the backward pass needs sets `results`, the number of outputs that are meant for
    the caller. Only those leave the twin: every further output would cost a gradient of zeros.
    """

    generate_vmap_rule = True
    results: int | None = None
    _eager: type[torch.autograd.Function]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)

        def forward(ctx: Any, *args: Any) -> Any:
            output = cls.forward(*args)
            cls.setup_context(ctx, args, output)
            return output if cls.results is None else output[: cls.results]

        cls._eager = type(
            cls.__name__ + "Eager",
            (torch.autograd.Function,),
            {"forward": staticmethod(forward), "backward": staticmethod(cls.backward)},
        )

    @classmethod
    def traced(cls, *args: Any) -> Any:
        return cls.forward(*args)

    @classmethod
    def call(cls, *args: Any) -> Any:
        if torch.compiler.is_compiling():
            return cls.traced(*args)
        if not torch.is_grad_enabled():
            return cls.forward(*args)
        if torch._C._are_functorch_transforms_active():
            return cls.apply(*args)
        return cls._eager.apply(*args)
