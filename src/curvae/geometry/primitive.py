"""Operations with a derivative in closed form, cheap in eager mode and usable under torch.func and torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

__all__ = ["Primitive", "constant", "differentiated", "full_precision"]


Call = TypeVar("Call", bound=Callable[..., Any])


def constant(function: Call) -> Call:
    """Mark what torch.compile may take as a constant: `torch.compiler.assume_constant_result`, which would import the
    whole compiler for it, some seconds, at the start of every program."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def differentiated(*tensors: Tensor) -> bool:
    """Return whether a gradient is wanted of one of the tensors, also of one that vmap has wrapped."""
    if torch.compiler.is_compiling():
        return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    if not torch.is_grad_enabled():
        return False
    functorch = torch._C._functorch
    for t in tensors:
        while not t.requires_grad and functorch.is_functorch_wrapped_tensor(t):
            t = functorch.get_unwrapped(t)
        if t.requires_grad:
            return True
    return False


def full_precision(function: Call) -> Call:
    """Return `function` with autocast switched off for the device of its first tensor: half precision is for
    networks, and leaves of a far point no digit. Where autocast is off this costs nothing to speak of."""

    @wraps(function)
    def call(*args: Any) -> Any:
        if not torch._C._is_any_autocast_enabled():
            return function(*args)
        with torch.autocast(next(t for t in args if isinstance(t, Tensor)).device.type, enabled=False):
            return function(*args)

    return call  # type: ignore[return-value]


class Primitive(torch.autograd.Function):
    """A `torch.autograd.Function` in the form that torch.func needs, of which a subclass gives `forward`, without a
    context, and `gradients`.

    That form costs some 50 µs more a call in eager mode, as much as a dozen operations on small tensors, so a plain
    eager call goes through a twin in the older form, made from the same methods. A compiler fuses small
    operations itself and is shown `traced`, ordinary differentiable operations, by default those of `forward`. Call it
    with `call`.

    All inputs are kept for the backward pass. A `forward` that also returns what that needs sets `results`, the number
    of outputs that are meant for the caller; then all outputs are kept. Only the results leave the twin: every further
    output would cost a gradient of zeros. (Under vmap all must leave, since a gradient may be taken above it; there a
    second twin asks for no such zeros.)

    The derivative of a derivative is that of `traced`, unless `gradients` is `differentiable` itself.

    `events` says for each of the first arguments how many of its last dimensions belong together, 0 for the others; the
    dimensions before them broadcast. So vmap is one more leading dimension, and many models cost as many operations as
    one.

    Values and derivatives are computed in full precision, whatever autocast says.
    """

    events: tuple[int, ...] = ()
    results: int | None = None
    differentiable = False
    _eager: type[torch.autograd.Function]
    _whole: type[torch.autograd.Function]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("forward", "traced"):
            if method := vars(cls).get(name):
                setattr(cls, name, type(method)(full_precision(method.__func__)))

        def forward(ctx: Any, *args: Any) -> Any:
            output = cls.forward(*args)
            cls.setup_context(ctx, args, output)
            return output if cls.results is None else output[: cls.results]

        def forward_whole(ctx: Any, *args: Any) -> Any:
            output = cls.forward(*args)
            cls.setup_context(ctx, args, output)
            ctx.set_materialize_grads(False)
            ctx.like = [t.detach() for t in output[: cls.results]]
            return output

        def backward_whole(ctx: Any, *grads: Any) -> Any:
            own = (torch.zeros_like(t) if grad is None else grad for grad, t in zip(grads, ctx.like, strict=False))
            return cls.backward(ctx, *own)

        def twin(suffix: str, forward: Any, backward: Any) -> type[torch.autograd.Function]:
            methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
            return type(cls.__name__ + suffix, (torch.autograd.Function,), methods)

        cls._eager = twin("Eager", forward, cls.backward)
        cls._whole = cls._eager if cls.results is None else twin("Whole", forward_whole, backward_whole)

        cls.vmap = staticmethod(partial(_vmap, cls))  # type: ignore[method-assign]

    @classmethod
    def traced(cls, *args: Any) -> Any:
        return cls.forward(*args)

    @staticmethod
    def gradients(
        inputs: Sequence[Any], kept: Sequence[Tensor], needed: Sequence[bool], *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the first inputs, which may still have the shape that inputs are broadcast to.

        Arguments:
            inputs: all of them.
            kept: the outputs, if `results` are set.
            needed: of which inputs a gradient is wanted.
            grads: of the results.
        """
        raise NotImplementedError

    @classmethod
    def retraced(cls, inputs: Sequence[Any], needed: Sequence[bool], grads: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradients that are needed as those of `traced`, which can be differentiated again."""
        live = torch._C._functorch.unwrap_if_dead  # what the derivative of a derivative in torch.func has kept
        given = [live(x) if isinstance(x, Tensor) else x for x in inputs]

        def traced(wanted: dict[int, Tensor]) -> tuple[Tensor, ...]:
            output = cls.traced(*(wanted.get(i, x) for i, x in enumerate(given)))
            return (output,) if isinstance(output, Tensor) else output[: cls.results]

        (found,) = torch.func.vjp(traced, {i: x for i, x in enumerate(given) if needed[i]})[1](tuple(grads))
        return [found.get(i) for i in range(len(given))]

    @classmethod
    def setup_context(cls, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        kept = () if cls.results is None else output
        ctx.mark_non_differentiable(*(t for t in kept[cls.results :] if t is not None))
        ctx.others = [None if isinstance(x, Tensor) else x for x in inputs]
        ctx.save_for_backward(*(x if isinstance(x, Tensor) else None for x in inputs), *kept)

    @classmethod
    @full_precision
    def backward(cls, ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved, count, grads = ctx.saved_tensors, len(ctx.others), grads[: cls.results]
        inputs = [other if x is None else x for x, other in zip(saved, ctx.others, strict=False)]
        if torch.is_grad_enabled() and not cls.differentiable:
            found: Sequence[Tensor | None] = cls.retraced(inputs, ctx.needs_input_grad, grads)
        else:
            found = cls.gradients(inputs, saved[count:], ctx.needs_input_grad, *grads)
        summed = (
            g if g is None or g.shape == x.shape else g.sum_to_size(x.shape)
            for g, x in zip(found, inputs, strict=False)
        )
        return *summed, *[None] * (count - len(found))

    @classmethod
    def call(cls, *args: Any) -> Any:
        if torch.compiler.is_compiling():
            return cls.traced(*args)
        if not torch.is_grad_enabled():
            return cls.forward(*args)
        if torch._C._are_functorch_transforms_active():
            return cls.apply(*args)
        return cls._eager.apply(*args)


def _vmap(cls: type[Primitive], info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
    """Make the batched call: every tensor gets the batch in front, and behind it the dimensions that it lacks."""
    batched = list(args)
    places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
    events = cls.events + (0,) * (len(args) - len(cls.events))
    for i in places:
        dim = in_dims[i]
        batched[i] = args[i].unsqueeze(0) if dim is None else args[i].movedim(dim, 0)
    rank = max(batched[i].dim() - events[i] for i in places)
    for i in places:
        t = batched[i]
        shape = t.shape[:1] + (1,) * (rank - t.dim() + events[i]) + t.shape[1:]
        batched[i] = t.reshape(shape).expand(info.batch_size, *shape[1:])
    if torch._C._are_functorch_transforms_active():
        output = cls.apply(*batched)
    else:
        output = cls._whole.apply(*batched) if torch.is_grad_enabled() else cls.forward(*batched)
    if isinstance(output, Tensor):
        return output, 0
    return output, tuple(0 if isinstance(t, Tensor) else None for t in output)
