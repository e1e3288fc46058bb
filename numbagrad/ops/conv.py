"""Convolution and its transpose in one to three dimensions: ``conv2d``, ``conv_transpose2d``.

Three ops whose gradients are one another. With ``y = conv(x, w)``, ``<g, y>`` is linear in each of
g, x and w: ``Convolution`` is what stands beside g, ``TransposedConvolution`` beside x and
``ConvolutionWeight`` beside w. So every order exists. Start at ``conv_form.py`` and ``_conv``.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .autocasting import lowered
from .axes import DTYPE_WORDS
from .base import Op, as_operand, contiguous, new_empty, same_device
from .conv_form import OF_INPUT, UNIT, Form, Sizes, expect_gradient
from .linalg import linear
from .remembered import remembered

__all__: list[str] = []  # PyTorch has these in nn.functional alone, but for aliases


def _cubic(x: Tensor) -> Any:
    """The array of ``x`` (n, c, ...), with three dimensions of space."""
    array = contiguous(x)._array
    shape = array.shape
    return array if len(shape) == 5 else array.reshape((*shape[:2], *_ones(shape), *shape[2:]))


def _ones(shape: Sizes) -> Sizes:
    return (1,) * (5 - len(shape))


def _launch(kernel: Any, out: Tensor, *arguments: Any) -> Tensor:
    """Run a kernel whose first arguments are ``out`` and two more tensors of space."""
    first, second, *rest = arguments
    machine.launch(kernel, _cubic(out), _cubic(first), _cubic(second), *rest)
    return out


def _added(bias: Tensor | None, spare: Tensor) -> tuple[Any, int]:
    """bias and whether there is one."""
    if bias is None:
        return contiguous(spare)._array.reshape(-1), 0
    return contiguous(bias)._array, 1


def _channel_sum(g: Tensor) -> Tensor:
    return g.sum((0, *range(2, g._array.ndim)))


class Convolution(Op, plain_notes=True):
    """``out[n, o] = sum over c of x[n, c] * weight[o, c] + bias[o]``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, form: Form) -> Tensor:
        needs = ctx.needs_input_grad
        ctx.form = form
        ctx.save(x if needs[1] else None, weight if needs[0] else None)
        shape = (x._array.shape[0], form.kernel[0], *form.small)
        out, kernel = new_empty(shape, x._dtype, x._device), form.kernel_of(0, x)
        if kernel is UNIT[0] and needs[1]:
            expect_gradient(x._dtype)
        return _launch(kernel, out, x, weight, *_added(bias, weight), *form.numbers())

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        (x, weight), form, needs = ctx.saved_tensors, ctx.form, ctx.needs_input_grad
        gx = TransposedConvolution.apply(g, weight, None, form) if needs[0] else None
        gweight = ConvolutionWeight.apply(g, x, form) if needs[1] else None
        return gx, gweight, _channel_sum(g) if needs[2] else None


class TransposedConvolution(Op, plain_notes=True):
    """The gradient of Convolution with respect to its input, as a function of g and weight."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, weight: Tensor, bias: Tensor | None, form: Form) -> Tensor:
        needs = ctx.needs_input_grad
        ctx.form = form
        ctx.save(g if needs[1] else None, weight if needs[0] else None)
        shape = (g._array.shape[0], form.kernel[1] * form.groups, *form.large)
        gx = new_empty(shape, g._dtype, g._device)
        kernel, (array, biased) = form.kernel_of(1, g), _added(bias, weight)
        what = biased + OF_INPUT if kernel is UNIT[1] else biased
        return _launch(kernel, gx, g, weight, array, what, *form.numbers())

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple:
        (g, weight), form, needs = ctx.saved_tensors, ctx.form, ctx.needs_input_grad
        gg = Convolution.apply(h, weight, None, form) if needs[0] else None
        gweight = ConvolutionWeight.apply(g, h, form) if needs[1] else None
        return gg, gweight, _channel_sum(h) if needs[2] else None


class ConvolutionWeight(Op, plain_notes=True):
    """The gradient of Convolution with respect to its weight, as a function of g and x."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, form: Form) -> Tensor:
        needs = ctx.needs_input_grad
        ctx.form = form
        ctx.save(g if needs[1] else None, x if needs[0] else None)
        gweight = new_empty(form.kernel, x._dtype, x._device)
        return _launch(form.kernel_of(2, x), gweight, g, x, *form.numbers())

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple:
        (g, x), form, needs = ctx.saved_tensors, ctx.form, ctx.needs_input_grad
        gg = Convolution.apply(x, h, None, form) if needs[0] else None
        return gg, TransposedConvolution.apply(g, h, None, form) if needs[1] else None


# -- what the arguments must be --------------------------------------------------------------------


def per_dimension(name: str, what: str, value: Any, rank: int, least: int, word: str) -> Sizes:
    """``value``, an int or one for each dimension of space, as a tuple of ints >= ``least``."""
    try:
        values = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
        values = tuple([operator.index(v) for v in values])
    except TypeError:
        raise TypeError(
            f"{name}: {what} must be an int or {rank} of them, not {value!r}."
        ) from None
    if len(values) == 1:
        values *= rank
    if len(values) != rank:
        raise ShapeError(
            f"{name}: expected {what} to be a single integer value or a list of {rank} values to "
            f"match the convolution dimensions, but got {what}={list(values)}."
        )
    if min(values) < least:
        raise ShapeError(f"{name}: {word} {what} is not supported, got {list(values)}.")
    return values


def _operands(
    name: str, rank: int, x: Any, weight: Any, bias: Any, outputs: int, groups: int
) -> None:
    """Refuse tensors that do not fit; outputs: channels of the result."""
    as_operand(name, x)
    as_operand(name, weight, 1)
    given = [x, weight] if bias is None else [x, weight, as_operand(name, bias, 2)]
    if len({t._dtype for t in given}) > 1:
        raise DTypeError(
            f"{name}: Input type, weight type and bias type should be the same, got "
            f"{', '.join(str(t._dtype) for t in given)}. Convert with .to(dtype)."
        )
    if not x._dtype.is_floating_point:
        raise DTypeError(
            f"{name}: not implemented for '{DTYPE_WORDS[x._dtype.name]}', it needs a floating "
            f"dtype. Convert with .float()."
        )
    same_device(name, given)
    if bias is not None and bias._array.shape != (outputs,):
        raise ShapeError(
            f"{name}: Given weight of size {list(weight._array.shape)}, expected bias to be "
            f"1-dimensional with {outputs} elements, but got bias of size "
            f"{list(bias._array.shape)} instead."
        )


def _check_weight(name: str, rank: int, weight: Any, groups: Any) -> None:
    """Refuse a weight of another rank, without elements, or that groups do not divide."""
    shape = as_operand(name, weight, 1)._array.shape
    if len(shape) != rank + 2 or 0 in shape:
        raise ShapeError(
            f"{name}: expected weight to have {rank + 2} dimensions, none of them zero, but got "
            f"weight of size {list(shape)}. They are channels, channels of a group, kernel sizes."
        )
    if not isinstance(groups, int) or groups < 1:
        raise ShapeError(f"{name}: non-positive groups is not supported, got {groups!r}.")
    if shape[0] % groups:
        raise ShapeError(
            f"{name}: Given groups={groups}, expected weight to be divisible by {groups} at "
            f"dimension 0, but got weight of size {list(shape)} instead."
        )


def _batched(name: str, rank: int, x: Any) -> tuple[Tensor, bool]:
    """``x`` with a batch dimension, and whether it had one."""
    shape = as_operand(name, x)._array.shape
    if len(shape) == rank + 2:
        return x, True
    if len(shape) == rank + 1:
        return x.unsqueeze(0), False
    raise ShapeError(
        f"{name}: Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {name}, but "
        f"got input of size: {list(shape)}."
    )


def _check_channels(name: str, x: Tensor, weight: Tensor, channels: int, groups: int) -> None:
    shape = x._array.shape
    if shape[1] != channels:
        raise ShapeError(
            f"{name}: Given groups={groups}, weight of size {list(weight._array.shape)}, expected "
            f"input{list(shape)} to have {channels} channels, but got {shape[1]} channels instead."
        )
    if 0 in shape[2:]:
        raise ShapeError(
            f"{name}: Expected input to have non-zero size in each dimension but the batch, but "
            f"got input of size {list(shape)}."
        )


def _paddings(name: str, padding: Any, rank: int, stride: Sizes, spans: Sizes) -> tuple:
    """Zeros in front and zeros altogether; spans: what the dilated kernel covers, less one."""
    if isinstance(padding, str):
        if padding == "valid":
            return (0,) * rank, (0,) * rank
        if padding != "same":
            raise ShapeError(
                f"{name}: Invalid padding string {padding!r}: use 'same' or 'valid', or ints."
            )
        if set(stride) != {1}:
            raise ShapeError(
                f"{name}: padding='same' is not supported for strided convolutions, got "
                f"stride={list(stride)}. Say how many zeros in ints."
            )
        return tuple([s // 2 for s in spans]), spans
    front = per_dimension(name, "padding", padding, rank, 0, "negative")
    return front, tuple([2 * p for p in front])


def _conv(
    rank: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    """conv1d to conv3d."""
    if machine.autocasting:
        input, weight, bias = lowered(input, weight, bias)
    name = f"conv{rank}d"
    x, batched = _batched(name, rank, input)
    _check_weight(name, rank, weight, groups)
    kernel = weight._array.shape
    _operands(name, rank, x, weight, bias, kernel[0], groups)
    _check_channels(name, x, weight, kernel[1] * groups, groups)
    strides = per_dimension(name, "stride", stride, rank, 1, "non-positive")
    dilations = per_dimension(name, "dilation", dilation, rank, 1, "non-positive")
    spans = tuple([d * (k - 1) for d, k in zip(dilations, kernel[2:], strict=True)])
    front, both = _paddings(name, padding, rank, strides, spans)
    large = x._array.shape[2:]
    room = [n + p - s for n, p, s in zip(large, both, spans, strict=True)]
    if min(room) < 1:
        padded = " x ".join(str(n + p) for n, p in zip(large, both, strict=True))
        needed = " x ".join(str(s + 1) for s in spans)
        raise ShapeError(
            f"{name}: Calculated padded input size per channel: ({padded}). Kernel size: "
            f"({needed}). Kernel size can't be greater than actual input size; pad more."
        )
    small = tuple([(r - 1) // s + 1 for r, s in zip(room, strides, strict=True)])
    form = Form(strides, front, dilations, groups, large, small, kernel)
    if form.is_matrix():
        n, co = x._array.shape[0], kernel[0]
        rows = x.reshape((n, math.prod(kernel[1:])))
        out = linear(rows, weight.reshape((co, -1)), bias).reshape((n, co, *small))
    else:
        out = Convolution.apply(x, weight, bias, form)
    return out if batched else out.squeeze(0)


def _conv_transpose(
    rank: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    """conv_transpose1d to conv_transpose3d."""
    if machine.autocasting:
        input, weight, bias = lowered(input, weight, bias)
    name = f"conv_transpose{rank}d"
    x, batched = _batched(name, rank, input)
    _check_weight(name, rank, weight, groups)
    kernel = weight._array.shape
    _operands(name, rank, x, weight, bias, kernel[1] * groups, groups)
    _check_channels(name, x, weight, kernel[0], groups)
    strides = per_dimension(name, "stride", stride, rank, 1, "non-positive")
    dilations = per_dimension(name, "dilation", dilation, rank, 1, "non-positive")
    front = per_dimension(name, "padding", padding, rank, 0, "negative")
    more = per_dimension(name, "output_padding", output_padding, rank, 0, "negative")
    if any([m >= max(s, d) for m, s, d in zip(more, strides, dilations, strict=True)]):
        raise ShapeError(
            f"{name}: output padding must be smaller than either stride or dilation, but got "
            f"output_padding {list(more)}, stride {list(strides)}, dilation {list(dilations)}."
        )
    small = x._array.shape[2:]
    large = tuple(
        [
            (n - 1) * s - 2 * p + d * (k - 1) + m + 1
            for n, s, p, d, k, m in zip(
                small, strides, front, dilations, kernel[2:], more, strict=True
            )
        ]
    )
    if min(large) < 1:
        raise ShapeError(
            f"{name}: Given input size per channel: {list(small)}. Calculated output size per "
            f"channel: {list(large)}. Output size is too small; pad less."
        )
    form = Form(strides, front, dilations, groups, large, small, kernel)
    if form.is_matrix():
        n, ci = x._array.shape[:2]
        if bias is not None:
            taps = math.prod(kernel[2:])
            bias = bias.reshape((-1, 1)).expand((kernel[1], taps)).reshape((-1,))
        out = linear(x.reshape((n, ci)), weight.reshape((ci, -1)).t(), bias)
        out = out.reshape((n, *kernel[1:]))
    else:
        out = TransposedConvolution.apply(x, weight, bias, form)
    return out if batched else out.squeeze(0)


# -- functions -------------------------------------------------------------------------------------


@remembered
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation along one dimension; see ``conv2d``.

    >>> conv1d(tensor([[1.0, 2.0, 4.0]]), tensor([[[-1.0, 1.0]]])).tolist()
    [[1.0, 2.0]]
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


@remembered
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of images with kernels.

    input (n, ci, h, w) or (ci, h, w), weight (co, ci / groups, kh, kw), bias (co), all of one
    floating dtype; the result is (n, co, oh, ow) with ``oh = (h + 2 padding - dilation (kh - 1) -
    1) // stride + 1``. stride, padding, dilation: an int, or one for each dimension; padding may be
    "valid" (none) or "same" (the size stays; an odd zero goes behind). Gradients: convolutions too
    (Dumoulin and Visin, 2016), of any order.
    Raises ShapeError for sizes that do not fit, DTypeError for mixed dtypes or integers.

    >>> conv2d(ones(1, 1, 3, 3), ones(1, 1, 2, 2)).tolist()
    [[[[4.0, 4.0], [4.0, 4.0]]]]
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


@remembered
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of volumes; see ``conv2d``.

    >>> conv3d(ones(1, 2, 2, 2), ones(1, 1, 2, 2, 2)).tolist()
    [[[[8.0]]]]
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


@remembered
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution along one dimension; see ``conv_transpose2d``.

    >>> conv_transpose1d(tensor([[1.0, 2.0]]), tensor([[[1.0, 1.0]]]), stride=2).tolist()
    [[1.0, 1.0, 2.0, 2.0]]
    """
    arguments = input, weight, bias, stride, padding, output_padding, groups, dilation
    return _conv_transpose(1, *arguments)


@remembered
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution: the gradient of ``conv2d`` with respect to its input.

    input (n, ci, h, w) or (ci, h, w), weight (ci, co / groups, kh, kw), bias (co); the height of
    the result is ``(h - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1``.
    output_padding: lines more behind, fewer than stride or dilation, to tell apart the sizes that
    ``conv2d`` maps to one. Errors and gradients as there.

    >>> conv_transpose2d(ones(1, 1, 1), ones(1, 1, 2, 2)).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """
    arguments = input, weight, bias, stride, padding, output_padding, groups, dilation
    return _conv_transpose(2, *arguments)


@remembered
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution of volumes; see ``conv_transpose2d``.

    >>> conv_transpose3d(ones(1, 1, 1, 1), ones(1, 1, 1, 1, 2)).tolist()
    [[[[1.0, 1.0]]]]
    """
    arguments = input, weight, bias, stride, padding, output_padding, groups, dilation
    return _conv_transpose(3, *arguments)
