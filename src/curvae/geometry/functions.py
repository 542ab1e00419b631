"""Scalar functions of y = x², analytic through y = 0.

Every quantity of a space of curvature −c is an analytic function of c·|v|²; written in y rather than in √y it
has a finite derivative in c at c = 0, where the space becomes Euclidean. Each family below knows all of its
derivatives: near 0 from its Taylor series, elsewhere from a recurrence, so that automatic differentiation never
divides 0 by 0 and never subtracts nearly equal numbers. The values themselves need no series, except where a compiler
differentiates them. All of them expect float64 (see `curvae.geometry`).

Before them stands what they and other functions of geometry are made of: operations with a derivative in closed form,
cheap in eager mode and usable under torch.func and torch.compile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

__all__ = [
    "Primitive",
    "arsinh",
    "arsinh_and_slope",
    "arsinh_by_c",
    "asinc",
    "asinhc",
    "constant",
    "cos_sqrt",
    "cosh_sinhc",
    "cosh_sqrt",
    "differentiated",
    "full_precision",
    "logsinc",
    "logsinhc",
    "rsqrt1p",
    "sinc",
    "sinhc",
    "sinhc_slope",
]

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
        return cls.apply(*args) if torch._C._are_functorch_transforms_active() else cls._eager.apply(*args)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
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
        return output, 0 if isinstance(output, Tensor) else tuple(0 if isinstance(t, Tensor) else None for t in output)


# Below this y the Taylor series is used. A recurrence loses a factor 1/y per derivative, so at 0.02 the second
# derivative still has twelve digits, while a few terms of each series are exact to rounding.
_SERIES_BELOW = 0.02

_Family = Callable[[Tensor, int], Tensor]


class _Analytic(Primitive):
    """The `order`-th derivative of a family; differentiating it raises the order by one."""

    differentiable = True

    @staticmethod
    def forward(y: Tensor, family: _Family, order: int) -> Tensor:
        return family(y, order)

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Tensor]:  # type: ignore[override]
        y, family, order = inputs
        return (grad * _Analytic.call(y, family, order + 1),)


def _analytic(family: _Family) -> Callable[..., Tensor]:
    """Make a family the function of y, or its derivative of the given `order` in y, that knows its derivatives."""

    @wraps(family)
    def call(y: Tensor, order: int = 0) -> Tensor:
        return _Analytic.call(y, family, order)

    return call


def _horner(coefficients: Sequence[float], y: Tensor) -> Tensor:
    result = y * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        result = result * y + coefficient
    return result


_Series = tuple[tuple[float, ...], ...]


def _derivatives(coefficients: Sequence[float], precision: float = 1e-17) -> _Series:
    """Return a power series and its first derivatives, each with as many terms as matter below `_SERIES_BELOW`."""
    rows = []
    for order in range(8):
        terms = [c * math.perm(j + order, order) for j, c in enumerate(coefficients[order:])]
        sizes = [abs(c) * _SERIES_BELOW**j for j, c in enumerate(terms)]
        rows.append(tuple(terms[: 1 + max(j for j, size in enumerate(sizes) if size > precision * max(sizes))]))
    return tuple(rows)


def _log_series(coefficients: Sequence[float]) -> list[float]:
    """Power series of log f for f(0) = 1, from f′ = f·(log f)′."""
    logs = [0.0]
    for k in range(1, len(coefficients)):
        logs.append(coefficients[k] - sum(j * logs[j] * coefficients[k - j] for j in range(1, k)) / k)
    return logs


_COSH = _derivatives([1 / math.factorial(2 * j) for j in range(20)])
_SINHC_COEFFICIENTS = [1 / math.factorial(2 * j + 1) for j in range(20)]
_ASINHC_COEFFICIENTS = [(-1) ** j * math.comb(2 * j, j) / (4**j * (2 * j + 1)) for j in range(20)]
_SINHC = _derivatives(_SINHC_COEFFICIENTS)
_ASINHC = _derivatives(_ASINHC_COEFFICIENTS)
_ASINHC_SHORT = _derivatives(_ASINHC_COEFFICIENTS, precision=1e-8)  # enough for float32
_LOGSINHC = _derivatives(_log_series(_SINHC_COEFFICIENTS))


def _split(
    y: Tensor, series: _Series, order: int, beyond: Callable[[Tensor], Tensor], negative: bool = False
) -> Tensor:
    """Use the Taylor series below `_SERIES_BELOW`, `beyond` above; neither leaves its own side. On a sphere y ≤ 0."""
    if order == 0 and not torch.compiler.is_compiling():
        return beyond(y)
    if negative:
        near, far, inside = y.clamp(min=-_SERIES_BELOW), y.clamp(max=-_SERIES_BELOW), y > -_SERIES_BELOW
    else:
        near, far, inside = y.clamp(max=_SERIES_BELOW), y.clamp(min=_SERIES_BELOW), y < _SERIES_BELOW
    return torch.where(inside, _horner(series[order], near), beyond(far))


def _root(y: Tensor) -> Tensor:
    """√y, never 0, so that sinh(x)/x and its like are 1 at y = 0."""
    return y.clamp_min(1e-300).sqrt()


# Largest √y that is exponentiated, so that the square of the result is finite; sinhc and cosh stay constant beyond.
REACH = 172.0


def _ascend(previous: Tensor, current: Tensor, y: Tensor, k: int) -> Tensor:
    """s_k(y) = i_k(x)/x^k, the modified spherical Bessel functions, from s_{−1} = cosh and s_0 = sinhc.

    s_k′ = s_{k+1}/2 and y·s_{k+1} = s_{k−1} − (2k+1)·s_k.
    """
    for j in range(k):
        previous, current = current, (previous - (2 * j + 1.0) * current) / y
    return current


@_analytic
def cosh_sqrt(y: Tensor, order: int = 0) -> Tensor:
    """Compute cosh(√y), or its derivative of the given order in y."""
    if order == 0:
        return _split(y, _COSH, 0, lambda y: y.sqrt().clamp(max=REACH).cosh())
    return sinhc(y, order - 1) / 2.0


@_analytic
def sinhc(y: Tensor, order: int = 0) -> Tensor:
    """Compute sinh(√y)/√y, or its derivative of the given order in y."""

    def beyond(y: Tensor) -> Tensor:
        x = _root(y).clamp(max=REACH)
        return _ascend(x.cosh(), x.sinh() / x, y, order) / 2**order

    return _split(y, _SINHC, order, beyond)


def _arc_slope(value: Tensor, y: Tensor, order: int) -> Tensor:
    """Return a derivative of asinhc, given its value: 2y·a^{(k+1)} = g^{(k)} − (2k+1)·a^{(k)} with g = (1+y)^{−1/2}."""
    g = (1.0 + y).rsqrt()
    for k in range(order):
        value = (g - (2 * k + 1.0) * value) / (2.0 * y)
        g = g * (-(k + 0.5) / (1.0 + y))
    return value


@_analytic
def asinhc(y: Tensor, order: int = 0) -> Tensor:
    """Compute asinh(√y)/√y, or its derivative of the given order in y."""

    def beyond(y: Tensor) -> Tensor:
        x = _root(y)
        return _arc_slope(x.asinh() / x, y, order)

    return _split(y, _ASINHC, order, beyond)


def _log_slope(p: Tensor, y: Tensor, order: int) -> Tensor:
    """Return the derivative L^{(order)} of logsinhc, order ≥ 1, given p = x·coth x.

    p = 1 + 2y·L′ obeys 2y·p′ = p − p² + y; Leibniz gives every further derivative of p and of L.
    """
    powers = [p]
    slopes = [(p - 1.0) / (2.0 * y)]
    for k in range(order - 1):
        square = torch.zeros_like(y)
        for j in range(k + 1):
            square = square + math.comb(k, j) * powers[j] * powers[k - j]
        forcing = y if k == 0 else torch.full_like(y, float(k == 1))
        powers.append(((1 - 2 * k) * powers[k] - square + forcing) / (2.0 * y))
        slopes.append((powers[k + 1] - 2.0 * (k + 1.0) * slopes[k]) / (2.0 * y))
    return slopes[-1]


@_analytic
def logsinhc(y: Tensor, order: int = 0) -> Tensor:
    """Compute log(sinh(√y)/√y), without overflow, or its derivative of the given order in y."""

    def beyond(y: Tensor) -> Tensor:
        x = _root(y)
        if order == 0:
            return x + (torch.expm1(-2.0 * x) / (-2.0 * x)).log()
        return _log_slope(x / x.tanh(), y, order)

    return _split(y, _LOGSINHC, order, beyond)


# The same functions on a sphere, where y ≤ 0: with x = √−y they are cos x, sin x/x, asin x/x and log(sin x/x).


@_analytic
def cos_sqrt(y: Tensor, order: int = 0) -> Tensor:
    """Compute cos(√−y) for y ≤ 0, or its derivative of the given order in y."""
    if order == 0:
        return _split(y, _COSH, 0, lambda y: _root(-y).cos(), negative=True)
    return sinc(y, order - 1) / 2.0


@_analytic
def sinc(y: Tensor, order: int = 0) -> Tensor:
    """Compute sin(√−y)/√−y for y ≤ 0, or its derivative of the given order in y."""

    def beyond(y: Tensor) -> Tensor:
        x = _root(-y)
        return _ascend(x.cos(), x.sin() / x, y, order) / 2**order

    return _split(y, _SINHC, order, beyond, negative=True)


@_analytic
def asinc(y: Tensor, order: int = 0) -> Tensor:
    """Compute asin(√−y)/√−y for −1 < y ≤ 0, or its derivative of the given order in y."""

    def beyond(y: Tensor) -> Tensor:
        x = _root(-y)
        return _arc_slope(x.asin() / x, y, order)

    return _split(y, _ASINHC, order, beyond, negative=True)


@_analytic
def logsinc(y: Tensor, order: int = 0) -> Tensor:
    """Compute log(sin(√−y)/√−y) for −π² < y ≤ 0, or its derivative of the given order in y."""

    def beyond(y: Tensor) -> Tensor:
        x = _root(-y).clamp(max=math.pi * (1 - 1e-15))  # the antipode is at π
        return (x.sin() / x).log() if order == 0 else _log_slope(x / x.tan(), y, order)

    return _split(y, _LOGSINHC, order, beyond, negative=True)


def cosh_sinhc(y: Tensor) -> tuple[Tensor, Tensor]:
    """Compute cosh(√y) and sinhc(y) at once."""
    if torch.is_grad_enabled():
        return cosh_sqrt(y), sinhc(y)
    x = _root(y).clamp(max=REACH)
    sinh = x.sinh()
    return (sinh * sinh + 1.0).sqrt(), sinh / x


def sinhc_slope(y: Tensor, cosh: Tensor, ratio: Tensor) -> Tensor:
    """Compute sinhc′(y), given the results of `cosh_sinhc`."""
    if torch.is_grad_enabled():
        return sinhc(y, 1)
    return _split(y, _SINHC, 1, lambda y: (cosh - ratio) / (2.0 * y))


def rsqrt1p(y: Tensor) -> Tensor:
    """Compute 1/√(1 + y)."""
    return (1.0 + y).rsqrt()


# Beyond this |x| the square of a float32 is near overflow; asinh is then log(2x) to every digit.
_HUGE = 1e18


def arsinh_and_slope(x: Tensor, c: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Compute gain·asinh(√c·x)/√c and its derivative in x; not differentiable itself."""
    # The offset turns 0/0 into 1 and is below rounding elsewhere.
    w = x.abs() * c.sqrt() + torch.finfo(x.dtype).tiny * 1e8
    t = w.clamp(max=_HUGE)
    root = (t * t).add_(1.0).sqrt_()
    ratio = gain / w
    slope = (t * ratio).div_(root)
    return torch.addcmul(w, w, t.div_(root.add_(1.0))).log1p_() * ratio * x, slope


def arsinh_by_c(x: Tensor, c: Tensor, gain: Tensor, value: Tensor, slope: Tensor) -> Tensor:
    """Return the derivative in c of gain·asinh(√c·x)/√c, given the results of `arsinh_and_slope`."""
    t = x.clamp(-_HUGE, _HUGE)
    y = c * t * t
    series = (_ASINHC if x.dtype == torch.float64 else _ASINHC_SHORT)[1]
    near = y < _SERIES_BELOW
    by_series = gain * t * t * t * _horner(series, y.clamp(max=_SERIES_BELOW))
    return torch.where(near, by_series, (x * slope - value) / (2.0 * torch.where(near, 1.0, c)))


class _Arsinh(Primitive):
    """gain·asinh(√c·x)/√c; its derivative in x is kept for the backward pass."""

    results, differentiable = 1, True

    @staticmethod
    def forward(x: Tensor, c: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
        return arsinh_and_slope(x, c, gain)

    @classmethod
    def traced(cls, x: Tensor, c: Tensor, gain: Tensor) -> tuple[Tensor, None]:
        near = c * x.clamp(-_HUGE, _HUGE) ** 2 < _SERIES_BELOW
        small = torch.where(near, x, 0.0)
        series = _ASINHC if x.dtype == torch.float64 else _ASINHC_SHORT
        root = torch.where(near, 1.0, c).sqrt()
        w = torch.where(near, 1.0, x.abs()) * root
        t = w.clamp(max=_HUGE)
        far = torch.log1p(w + w * (t / (1.0 + (1.0 + t * t).sqrt()))) / root
        return gain * torch.where(near, small * _horner(series[0], c * small * small), x.sign() * far), None

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (x, c, gain), (value, slope) = inputs, kept
        if torch.is_grad_enabled():
            t = x.clamp(-_HUGE, _HUGE)
            slope = gain * (1.0 + c * t * t).rsqrt() * (_HUGE / x.detach().abs()).clamp(max=1.0)
        grad_c = grad * arsinh_by_c(x, c, gain, value, slope) if needed[1] else None
        grad_gain = (grad * value).sum_to_size(gain.shape) / gain if needed[2] else None
        return grad * slope, grad_c, grad_gain


def arsinh(x: Tensor, c: Tensor | float, gain: Tensor | float = 1.0) -> Tensor:
    """Compute gain·asinh(√c·x)/√c, which is gain·x at c = 0; in the dtype of x, `c` and `gain` broadcast, gain is not
    0.

    Faster than torch.asinh on a CPU.
    """
    c, gain = (torch.as_tensor(value, dtype=x.dtype, device=x.device) for value in (c, gain))
    return _Arsinh.call(x, c, gain)[0]
