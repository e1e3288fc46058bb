"""The softmax family and normalisation over the last dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import half_norm
from ..kernels.cpu import layer_norm as layer_kernels
from ..kernels.cpu import norm as kernels
from ..kernels.halves import arithmetic
from ..tape import grad_mode
from ..tensor import Tensor
from .autocasting import raised
from .axes import DTYPE_WORDS, form_along
from .base import Op, as_operand, contiguous, new_empty, normalize_dims
from .elementwise import cast, exp, rsqrt
from .remembered import remembered

__all__ = ["layer_norm", "log_softmax", "logsumexp", "rms_norm", "softmax"]

Form = tuple[int, int, int]
"""(outer, n, inner): the sizes before a dimension, of it, and after it."""


def _run(rows: Any, axis: Any, form: Form, out: Tensor, *inputs: Tensor) -> None:
    """Launch the kernel for the last axis, or the one for an axis with others behind it."""
    arrays = [out._array, *(contiguous(x)._array for x in inputs)]
    outer, n, inner = form
    if inner != 1:
        machine.launch(axis, *[a.reshape(form) for a in arrays])
    elif out._array.shape == (outer, n):
        machine.launch(rows, *arrays)
    else:
        machine.launch(rows, *[a.reshape((outer, n)) for a in arrays])


def _sum(x: Tensor, form: Form) -> Tensor:
    """Sums along the axis of ``form``, of a shape that broadcasts against ``x``."""
    shape = x._array.shape
    return x.reshape(form).sum(1, keepdim=True).expand(form).reshape(shape)


class Softmax(Op, remembers=True):
    """Exponentials scaled to sum to one along an axis."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: Form) -> Tensor:
        out = new_empty(x._array.shape, x._dtype, x._device)
        # A compiled step has float32 copies of halves, which are loops that fuse.
        halves = halves_here(x) and not machine.is_compiling()
        if halves:
            rows, axis = half_norm.softmax_rows_of_halves, half_norm.softmax_axis_of_halves
        else:
            rows, axis = kernels.softmax_rows, kernels.softmax_axis
        _run(rows, axis, form, out, x)
        ctx.form = form
        ctx.save(out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return SoftmaxGrad.apply(g, ctx.saved_tensors[0], ctx.form)


class SoftmaxGrad(Op, remembers=True):
    """``out (g - sum(g out))``."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, out: Tensor, form: Form) -> Tensor:
        gx = new_empty(out._array.shape, out._dtype, out._device)
        _run(kernels.softmax_rows_grad, kernels.softmax_axis_grad, form, gx, g, out)
        ctx.form = form
        ctx.save(g, out)
        return gx

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple:
        (g, out), form = ctx.saved_tensors, ctx.form
        gg = SoftmaxGrad.apply(h, out, form) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return gg, None
        return gg, h * (g - _sum(g * out, form)) - g * _sum(h * out, form)


class LogSoftmax(Op, remembers=True):
    """The logarithm of softmax along an axis."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: Form) -> Tensor:
        out = new_empty(x._array.shape, x._dtype, x._device)
        _run(kernels.log_softmax_rows, kernels.log_softmax_axis, form, out, x)
        ctx.form = form
        ctx.save(out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return LogSoftmaxGrad.apply(g, ctx.saved_tensors[0], ctx.form)


class LogSoftmaxGrad(Op, remembers=True):
    """``g - exp(out) sum(g)``."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, out: Tensor, form: Form) -> Tensor:
        gx = new_empty(out._array.shape, out._dtype, out._device)
        _run(kernels.log_softmax_rows_grad, kernels.log_softmax_axis_grad, form, gx, g, out)
        ctx.form = form
        ctx.save(g, out)
        return gx

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple:
        (g, out), form = ctx.saved_tensors, ctx.form
        p = exp(out)
        gg = h - _sum(h * p, form) if ctx.needs_input_grad[0] else None
        return gg, -h * p * _sum(g, form) if ctx.needs_input_grad[1] else None


COLUMNS = 16
"""Fewest columns that a logsumexp goes down side by side; fewer become rows, which takes a copy."""


class LogSumExp(Op, remembers=True):
    """The logarithm of the sum of exponentials along the middle axis of ``form``, in ``shape``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: Form, shape: tuple[int, ...]) -> Tensor:
        outer, m, inner = form
        out = new_empty(shape, x._dtype, x._device)
        given = contiguous(x)._array
        if inner == 1:
            sums, rows = out._array.reshape((outer,)), given.reshape((outer, m))
            machine.launch(kernels.logsumexp_rows, sums, rows)
        else:
            sums = out._array.reshape((outer, inner))
            machine.launch(kernels.logsumexp_axis, sums, given.reshape(form))
        ctx.form = form
        ctx.save(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, out = ctx.saved_tensors
        outer, m, inner = ctx.form
        whole: tuple[int, ...] = (outer, m, inner)
        sums: tuple[int, ...] = (outer, 1, inner)
        if grad_mode.enabled:
            part = exp(x.reshape(whole) - out.reshape(sums))
            return (g.reshape(sums) * part).reshape(x._array.shape)
        if inner == 1:
            whole, sums = whole[:2], sums[:2]
        gx = new_empty(x._array.shape, x._dtype, x._device)
        pairs = (g, sums), (x, whole), (out, sums)
        arrays = [contiguous(t)._array.reshape(s) for t, s in pairs]
        machine.launch(kernels.LOGSUMEXP_GRAD, gx._array.reshape(whole), *arrays)
        return gx


class LayerNorm(Op, remembers=True):
    """Rows shifted to mean 0 and scaled to variance 1, then ``* weight + bias``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, m: int, eps: float
    ) -> Tensor:
        shape = x._array.shape
        rows = contiguous(x)._array
        n = rows.size // m if m else 0
        out = new_empty(shape, x._dtype, x._device)
        mean = machine.empty((n,), arithmetic(x._dtype.numpy), x._device)
        rstd = machine.empty((n,), arithmetic(x._dtype.numpy), x._device)
        w = mean if weight is None else contiguous(weight)._array.reshape((m,))
        b = mean if bias is None else contiguous(bias)._array.reshape((m,))
        affine = (weight is not None) + 2 * (bias is not None)
        flat = out._array.reshape((n, m)), mean, rstd, rows.reshape((n, m))
        machine.launch(layer_kernels.layer_norm, *flat, w, b, eps, affine)
        ctx.statistics, ctx.n, ctx.m, ctx.eps = (mean, rstd), n, m, eps
        ctx.bias_shape = None if bias is None else bias._array.shape
        ctx.dtypes = tuple([x._dtype if t is None else t._dtype for t in (weight, bias)])
        ctx.save(x, weight)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, weight = ctx.saved_tensors
        if grad_mode.enabled and halves_here(x):
            wide = [None if t is None else t.float() for t in (g, x, weight)]
            kinds = x._dtype, *ctx.dtypes
            grads = zip(_layer_norm_grad(ctx, *wide), kinds, strict=True)
            return tuple([None if t is None else cast(t, kind) for t, kind in grads])
        if grad_mode.enabled:
            return _layer_norm_grad(ctx, g, x, weight)
        form = ctx.n, ctx.m
        gx = new_empty(x._array.shape, x._dtype, x._device)
        gw, gb = [new_empty((ctx.m,), kind, x._device) for kind in ctx.dtypes]
        w = gw._array if weight is None else contiguous(weight)._array.reshape((ctx.m,))
        sources = contiguous(g)._array.reshape(form), contiguous(x)._array.reshape(form)
        machine.launch(
            layer_kernels.layer_norm_grad,
            *(gx._array.reshape(form), gw._array, gb._array, *sources, *ctx.statistics, w),
            int(weight is not None),
        )
        if weight is not None and weight._array.ndim != 1:
            gw = gw.reshape(weight._array.shape)
        if ctx.bias_shape is not None and len(ctx.bias_shape) != 1:
            gb = gb.reshape(ctx.bias_shape)
        return gx, gw, gb


def _layer_norm_grad(ctx: Any, g: Any, x: Any, weight: Any) -> tuple:
    """The gradient of layer_norm as differentiable functions of g, x and weight."""
    form = ctx.n, ctx.m
    g, rows = g.reshape(form), x.reshape(form)
    away = rows - rows.mean(1, keepdim=True)
    scale = rsqrt((away * away).mean(1, keepdim=True) + ctx.eps)
    unit = away * scale
    inner = g if weight is None else g * weight.reshape((1, ctx.m))
    along = (inner * unit).mean(1, keepdim=True)
    gx = (scale * (inner - inner.mean(1, keepdim=True) - unit * along)).reshape(x._array.shape)
    gw = None if weight is None else (g * unit).sum(0).reshape(weight._array.shape)
    gb = None if ctx.bias_shape is None else g.sum(0).reshape(ctx.bias_shape)
    return gx, gw, gb


# -- functions -------------------------------------------------------------------------------------


def _floating(name: str, x: Any, dtype: Any = None) -> Tensor:
    """``x`` in ``dtype``, which must be floating."""
    x = as_operand(name, x)
    if dtype is not None:
        x = cast(x, dtypes.to_dtype(dtype))
    if not x._dtype.is_floating_point:
        raise DTypeError(
            f"{name}: not implemented for '{DTYPE_WORDS[x._dtype.name]}', it needs a floating "
            f"dtype. Convert with .float(), or pass dtype=ng.float32."
        )
    return x


@remembered
def softmax(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """Exponentials of ``x`` scaled to sum to one along ``dim``.

    x: floating (or anything with a floating ``dtype``, to which it is converted first), any shape.
    Gradient: ``out * (g - sum(g * out, dim))``. The maximum is subtracted first.
    Raises IndexError if ``dim`` is out of range, DTypeError for integers.

    >>> softmax(tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    if machine.autocasting:
        (x,) = raised(x)
    x = _floating("softmax", x, dtype)
    return Softmax.apply(x, form_along("softmax", x._array.shape, dim))


@remembered
def log_softmax(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """The logarithm of softmax along ``dim``, exact where softmax underflows.

    Arguments and errors as for softmax. Gradient: ``g - exp(out) * sum(g, dim)``.

    >>> log_softmax(tensor([0.0, 0.0])).tolist()
    [-0.6931471824645996, -0.6931471824645996]
    """
    if machine.autocasting:
        (x,) = raised(x)
    x = _floating("log_softmax", x, dtype)
    return LogSoftmax.apply(x, form_along("log_softmax", x._array.shape, dim))


@remembered
def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials over ``dim``, an int or several.

    Integers become the default float. -inf where all elements are. Gradient: ``g * softmax(x)``.

    >>> logsumexp(tensor([1000.0, 1000.0]), 0).item()
    1000.693115234375
    """
    x = as_operand("logsumexp", x)
    if not x._dtype.is_floating_point:
        x = cast(x, dtypes.get_default_dtype())
    shape = x._array.shape
    dims = normalize_dims("logsumexp", None if dim == () else dim, len(shape)) if shape else ()
    kept = [d for d in range(len(shape)) if d not in dims]
    out = tuple([1 if d in dims else s for d, s in enumerate(shape) if keepdim or d in kept])
    first, last = (dims[0], dims[-1] + 1) if dims else (0, 0)
    behind = math.prod(shape[last:])
    if last - first == len(dims) and not 1 < behind < COLUMNS:
        form = math.prod(shape[:first]), math.prod(shape[first:last]), behind
    else:  # others lie between them, or too few behind for a vector
        x = x.permute((*kept, *dims)).contiguous()
        form = math.prod([shape[d] for d in kept]), math.prod([shape[d] for d in dims]), 1
    return LogSumExp.apply(x, form, out)


def halves_here(x: Tensor) -> bool:
    """Whether ``x`` are halves on the CPU: they are normalised in float32, as a whole."""
    return x._dtype in dtypes.HALVES and x._device.type == "cpu"


def check_dtype(name: str, role: str, x: Tensor, wanted: tuple[Any, ...]) -> None:
    """Raise unless ``x`` has the dtype of the input, or another that is wanted."""
    if x._dtype not in wanted:
        one_of = ", or ".join(map(str, wanted))
        raise DTypeError(
            f"{name}: expected {role} to have the dtype of input, {one_of}, but got {x._dtype}. "
            f"Convert one with .to(dtype)."
        )


def single(name: str, role: str, x: Any, kind: Any) -> Any:
    """``x``, of the halves ``kind`` or float32, in float32; what is no tensor as it is."""
    if not isinstance(x, Tensor):
        return x
    check_dtype(name, role, x, (kind, dtypes.float32))
    return x.float()


def in_float32(norm: Any, x: Tensor, *args: Any, **affine: Any) -> Tensor:
    """``norm(x, *args, **affine)`` of halves, computed in float32."""
    wide = {role: single(norm.__name__, role, v, x._dtype) for role, v in affine.items()}
    return cast(norm(x.float(), *args, **wide), x._dtype)


def _normalized(name: str, x: Any, shape: Any, **affine: Tensor | None) -> int:
    """Check the arguments of a normalisation over the last dims; how many elements they hold."""
    as_operand(name, x)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape or x._array.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"{name}: Given normalized_shape={list(shape)}, expected input with shape "
            f"{['*', *shape]}, but got input of size {list(x._array.shape)}."
        )
    wanted = (x._dtype, dtypes.float32) if halves_here(x) else (x._dtype,)
    for role, tensor in affine.items():
        if tensor is not None and tensor._array.shape != shape:
            raise ShapeError(
                f"{name}: Expected {role} to be of same shape as normalized_shape, but got "
                f"{role} of shape {list(tensor._array.shape)} and normalized_shape={list(shape)}."
            )
        if tensor is not None:
            check_dtype(name, role, tensor, wanted)
    _floating(name, x)
    return math.prod(shape)


@remembered
def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """``x`` with mean 0 and variance 1 over its last dimensions, then ``* weight + bias``.

    normalized_shape: the sizes of those dimensions, and the shape of weight and bias. The variance
    is that of the population, plus ``eps`` (Ba et al., 2016). On the CPU weight and bias may be
    float32 where ``x`` is of halves; the result has the dtype of ``x``.
    Raises ShapeError if ``x`` does not end in normalized_shape, or weight or bias differ from it.

    >>> layer_norm(tensor([1.0, 3.0]), 2, eps=0.0).tolist()
    [-1.0, 1.0]
    """
    if machine.autocasting:
        x, weight, bias = raised(x, weight, bias)
    m = _normalized("layer_norm", x, normalized_shape, weight=weight, bias=bias)
    return LayerNorm.apply(x, weight, bias, m, float(eps))


@remembered
def rms_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """``x`` scaled to mean square 1 over its last dimensions, then ``* weight``.

    eps: added to the mean square; by default that of the dtype, of halves float32's (Zhang and
    Sennrich, 2019). weight as for ``layer_norm``.
    """
    if machine.autocasting:
        x, weight = raised(x, weight)
    if halves_here(as_operand("rms_norm", x)):
        return in_float32(rms_norm, x, normalized_shape, eps=eps, weight=weight)
    _normalized("rms_norm", x, normalized_shape, weight=weight)
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    if eps is None:
        eps = float(dtypes.finfo(dtypes.from_numpy(arithmetic(x._dtype.numpy))).eps)
    out = x * rsqrt((x * x).mean(tuple(range(-count, 0)), keepdim=True) + eps)
    return out if weight is None else out * weight


@remembered
def softmin(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """The softmax of ``-x``."""
    return softmax(-x, dim, dtype)


METHODS = {"softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp}
