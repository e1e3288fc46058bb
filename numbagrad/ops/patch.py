"""``unfold`` and ``fold``: patches of images as columns, and back; in ``nn.functional``.

Two ops, each the gradient of the other. ``Tensor.unfold``, a view of windows along one dimension,
is another function, in ``part.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import patch as kernels
from ..tensor import Tensor
from .axes import DTYPE_WORDS
from .base import Op, as_operand, contiguous, new_empty
from .remembered import remembered

__all__ = ["fold", "unfold"]

Pair = tuple[int, int]


@dataclass(frozen=True)
class Form:
    """How a window (kernel) moves over an image (large), to each of its places (small)."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    large: Pair
    small: Pair

    def moves(self) -> tuple[int, ...]:
        """Strides, paddings and dilations, as the kernels take them."""
        return (*self.stride, *self.padding, *self.dilation)

    def columns(self, x: Tensor) -> Any:
        """The array of ``x`` (n, c kh kw, oh ow), with a plane for each n and c."""
        array = contiguous(x)._array
        return array.reshape((array.size // math.prod(self.taken()), *self.taken()))

    def taken(self) -> tuple[int, ...]:
        """Sizes of the columns of one plane."""
        return (*self.kernel, *self.small)


class Unfold(Op, remembers=True):
    """(n, c, h, w) to (n, c kh kw, oh ow)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: Form) -> Tensor:
        ctx.form = form
        array = contiguous(x)._array
        n, c = array.shape[:2]
        shape = (n, c * math.prod(form.kernel), math.prod(form.small))
        out = new_empty(shape, x._dtype, x._device)
        planes = array.reshape((n * c, *form.large))
        machine.launch(kernels.unfold, form.columns(out), planes, *form.moves())
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Fold.apply(g, ctx.form)


class Fold(Op, remembers=True):
    """(n, c kh kw, oh ow) to (n, c, h, w): what lies on one another is added."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: Form) -> Tensor:
        ctx.form = form
        n, rows, _ = x._array.shape
        c = rows // math.prod(form.kernel)
        out = new_empty((n, c, *form.large), x._dtype, x._device)
        planes = out._array.reshape((n * c, *form.large))
        machine.launch(kernels.fold, planes, form.columns(x), *form.moves())
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Unfold.apply(g, ctx.form)


# -- what the arguments must be --------------------------------------------------------------------


def _pair(name: str, what: str, value: Any, least: int) -> Pair:
    values = (value, value) if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        values *= 2
    if len(values) != 2:
        raise ShapeError(f"{name}: expects {what} to be an int or two, but got {value}.")
    if min(values) < least:
        kind = "greater than zero" if least else "non-negative"
        raise ShapeError(f"{name}: {what} should be {kind}, but got {list(values)}.")
    return int(values[0]), int(values[1])


def _form(name: str, large: Pair, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Form:
    """The form of a window; refuses one that stands nowhere."""
    kernel = _pair(name, "kernel_size", kernel, 1)
    dilation = _pair(name, "dilation", dilation, 1)
    padding = _pair(name, "padding", padding, 0)
    stride = _pair(name, "stride", stride, 1)
    rooms = [
        n + 2 * p - d * (k - 1) - 1
        for n, p, d, k in zip(large, padding, dilation, kernel, strict=True)
    ]
    small = [room // s + 1 for room, s in zip(rooms, stride, strict=True)]
    if min(rooms) < 0:
        raise ShapeError(
            f"{name}: Given an image with spatial size {list(large)}, kernel_size={list(kernel)}, "
            f"dilation={list(dilation)}, padding={list(padding)}, calculated shape of the array of "
            f"sliding blocks as {small}, but its components must be at least one. Pad more."
        )
    return Form(kernel, stride, padding, dilation, large, (small[0], small[1]))


def _floating(name: str, x: Any) -> Tensor:
    if not as_operand(name, x)._dtype.is_floating_point:
        raise DTypeError(
            f"{name}: not implemented for '{DTYPE_WORDS[x._dtype.name]}', it needs a floating "
            f"dtype. Convert with .float()."
        )
    return x


@remembered
def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """The patches under a sliding window, each as a column.

    input (n, c, h, w) or (c, h, w), floating; the result is (n, c kh kw, l) or (c kh kw, l), with
    ``l = oh ow`` places, each size as of a convolution's output. kernel_size, dilation, padding
    (zeros), stride: an int, or one for each dimension. Gradient: ``fold``, of any order.
    Raises ShapeError where the window does not fit, DTypeError for integers.

    >>> unfold(tensor([[[1.0, 2.0, 3.0]]]), (1, 2)).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    x = _floating("unfold", input)
    shape = x._array.shape
    if len(shape) not in (3, 4) or 0 in shape[-3:]:
        raise ShapeError(
            f"unfold: Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other "
            f"non-zero dimensions for input, but got: {list(shape)}."
        )
    form = _form("unfold", shape[-2:], kernel_size, dilation, padding, stride)
    out = Unfold.apply(x if len(shape) == 4 else x.unsqueeze(0), form)
    return out if len(shape) == 4 else out.squeeze(0)


@remembered
def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Columns added to where ``unfold`` would have read them in images of output_size.

    input (n, c kh kw, l) or (c kh kw, l), floating; the result is (n, c, h, w) or (c, h, w). Other
    arguments as for ``unfold``, which is the gradient. Raises ShapeError unless l is the number of
    places of the window, DTypeError for integers.

    >>> fold(tensor([[1.0, 2.0], [2.0, 3.0]]), (1, 3), (1, 2)).tolist()
    [[[1.0, 4.0, 3.0]]]
    """
    x = _floating("fold", input)
    shape = x._array.shape
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise ShapeError(
            f"fold: Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            f"non-zero dimensions for input, but got: {list(shape)}."
        )
    large = _pair("fold", "output_size", output_size, 1)
    form = _form("fold", large, kernel_size, dilation, padding, stride)
    area, places = math.prod(form.kernel), math.prod(form.small)
    if shape[-2] % area:
        raise ShapeError(
            f"fold: Expected size of input's dimension 1 to be divisible by the product of "
            f"kernel_size, but got input.size(1)={shape[-2]} and kernel_size={list(form.kernel)}."
        )
    if shape[-1] != places:
        raise ShapeError(
            f"fold: Given output_size={list(large)}, kernel_size={list(form.kernel)}, dilation="
            f"{list(form.dilation)}, padding={list(form.padding)}, stride={list(form.stride)}, "
            f"expected size of input's dimension 2 to match the calculated number of sliding "
            f"blocks {form.small[0]} * {form.small[1]} = {places}, but got {shape[-1]}."
        )
    out = Fold.apply(x if len(shape) == 3 else x.unsqueeze(0), form)
    return out if len(shape) == 3 else out.squeeze(0)
