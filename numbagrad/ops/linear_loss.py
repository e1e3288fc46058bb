"""The cross entropy of a linear layer whose logits are never all in memory.

With many classes, such as the words of a language, the logits are the largest array of a model,
and to write and read them takes longer than to multiply. ``linear_cross_entropy`` makes them a
block of classes at a time, which a cache holds, and once more for the gradient. Start reading at
``LinearCrossEntropy``.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import bias as biases
from ..kernels.cpu import class_blocks, matmul
from ..kernels.cpu.loss import NONE
from ..tape import grad_mode
from ..tensor import Tensor
from .autocasting import takes_part
from .base import Op, as_operand, contiguous, new_empty, same_device
from .linalg import linear
from .loss import Classes, classes_of, cross_entropy
from .reduction import reduction_of
from .remembered import remembered
from .taped import again
from .warned import warn_user

__all__: list[str] = []  # PyTorch has it in nn.functional alone

BLOCK_BYTES = 2 << 20
"""Bytes of a block of logits, which the second cache holds, or nearly."""

LEAST = 256
"""Fewest classes in a block, also of so many rows that it is larger: products of fewer pay too much
for what they split or pack."""

MOST = 32
"""Most blocks of a compiled step, whose program names each of them."""


FEWEST, LARGE = 2048, 1 << 25
"""Classes, and bytes of all logits, from which blocks pay."""


def in_blocks(n: int, k: int, c: int, itemsize: int) -> bool:
    """Whether a loss of n rows by c classes of k weights goes by blocks of classes.

    Their logits are made twice. To write and read all of them takes as long from 32 MB on for 128
    weights: 4096 rows by 8192 classes, forward and backward, take 192 ms by blocks and 273
    otherwise (a Granite Rapids, one thread), 512 by 32,000 take 99 and 112, and of 512 weights 339
    and 284. From 256 MB on blocks are taken for what they save.
    """
    return c >= max(FEWEST, 2 * k) and n * c * itemsize >= LARGE * min(8, max(1, k / 128))


def _width(n: int, c: int, itemsize: int) -> int:
    """Classes in a block: a multiple of 64."""
    width = max(LEAST, BLOCK_BYTES // max(1, n * itemsize) // 64 * 64)
    if machine.is_recording():
        width = max(width, -(-c // MOST + 63) // 64 * 64)
    return width


class LinearCrossEntropy(Op):
    """``cross_entropy(linear(x, w, bias), target)``; keeps a number per row, and what it is given.

    x (n, k), w (c, k), bias (c) or None. Its arguments after ``smoothing`` are those of
    ``Classes``.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, smoothing: float, *options: Any
    ) -> Tensor:
        classes = Classes(*options)
        n, c = x._array.shape[0], w._array.shape[0]
        dtype, device = x._dtype, x._device
        losses, lse, norm, *found = [
            new_empty((size,), dtype, device) for size in (n, n, 1, n, n, n, n)
        ]
        bad, single = machine.empty((1,), dtypes.int64.numpy, device), new_empty((), dtype, device)
        states = [t._array for t in found]
        target, weight, weighted, ignore = classes.arguments(lse._array)
        for first, logits, *_ in _blocks(x, w, bias):
            options = target, weight, weighted, first, smoothing
            machine.launch(class_blocks.add_classes, *states, logits, *options)
        results = single._array.reshape((1,)), losses._array, lse._array, norm._array, bad
        options = target, weight, weighted, ignore, smoothing, classes.reduction, c
        machine.launch(class_blocks.loss_of_classes, *results, *states, *options)
        classes.check("linear_cross_entropy", bad, c)
        ctx.how, ctx.smoothing = (classes.ignore, classes.reduction), smoothing
        ctx.save(x, w, bias, classes.target, classes.weight, lse, norm)
        return losses if classes.reduction == NONE else single

    @staticmethod
    def whole(x: Any, w: Any, bias: Any, smoothing: float, classes: Classes) -> Tensor:
        """``forward`` by operations on the tape."""
        reduction = ("none", "mean", "sum")[classes.reduction]
        return cross_entropy(
            *(linear(x, w, bias), classes.target, classes.weight, None, classes.ignore, None),
            *(reduction, smoothing),
        )

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        *inputs, target, weight, lse, norm = ctx.saved_tensors
        classes, needs = Classes(target, weight, *ctx.how), ctx.needs_input_grad
        if grad_mode.enabled:

            def whole(x: Any, w: Any, bias: Any) -> Tensor:
                return LinearCrossEntropy.whole(x, w, bias, ctx.smoothing, classes)

            return again(needs, whole, inputs, (g,))
        x, w, bias = inputs
        made = [
            new_empty(t._array.shape, t._dtype, t._device) if needed and t is not None else None
            for t, needed in zip(inputs, needs, strict=False)
        ]
        gx, gw, gbias = made
        target_, weight_, weighted, ignore = classes.arguments(lse._array)
        sources = contiguous(g)._array.reshape((-1,)), lse._array, norm._array
        rest = w._array.shape[0], ctx.smoothing, classes.reduction
        for first, logits, part_w in _blocks(x, w, bias):
            c = part_w.shape[0]
            options = target_, weight_, weighted, ignore, first, *rest
            machine.launch(class_blocks.class_grads, logits, *sources, *options)
            if gx is not None:
                machine.launch(matmul.mm, gx._array, logits, part_w, 0, 0, int(first > 0))
            if gw is not None:
                part = _rows(gw._array, first, c)
                machine.launch(matmul.mm, part, logits, x._array, 1, 0, 0)
            if gbias is not None:
                part = machine.view(gbias._array, (c,), (1,), first)
                machine.launch(biases.column_sum, part, logits)
        return gx, gw, gbias


def _rows(array: Any, first: int, count: int) -> Any:
    """So many rows of a contiguous matrix."""
    m = array.shape[1]
    return machine.view(array, (count, m), (m, 1), first * m)


def _blocks(x: Tensor, w: Tensor, bias: Tensor | None) -> Any:
    """The blocks of classes: where each begins, its logits, and its rows of ``w``."""
    (n, _), c = x._array.shape, w._array.shape[0]
    width = _width(n, c, x._dtype.itemsize)
    room = new_empty((n * width,), x._dtype, x._device)
    for first in range(0, c, width):
        count = min(width, c - first)
        logits = machine.view(room._array, (n, count), (count, 1), 0)
        part = _rows(w._array, first, count)
        if bias is None:
            machine.launch(matmul.mm, logits, x._array, part, 0, 1, 0)
        else:
            added = machine.view(bias._array, (count,), (1,), first)
            machine.launch(matmul.addmm, logits, x._array, part, added, 0, 1)
        yield first, logits, part


@remembered
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """``cross_entropy(linear(input, linear_weight, linear_bias), target)``.

    With many classes a block of the logits (n, c) is made at a time, for the loss, and again for
    the gradient. Results are the same within rounding. So it is for matrices of float32 and float64
    with class indices, from 2048 classes and 32 MB of logits on (256 MB if k is large); gradients
    that are to be differentiated take all of the logits.

    input (n, k) or (k); linear_weight (c, k), or (c, d1, ..., k) for a loss at each of (d1, ...);
    linear_bias: its shape without k; target, weight, reduction, label_smoothing: as for
    ``cross_entropy``, and ignore_index, where None stands for -100. options:
    None takes what is faster; anything else asks for blocks of smaller losses too, for what they
    save of memory, and says no more (see ``nn.LinearCrossEntropyOptions``). Differentiable to any
    order. Raises ShapeError if sizes do not fit.

    >>> linear_cross_entropy(tensor([[1.0]]), tensor([[0.0], [0.0]]), tensor([1])).item()
    0.6931471824645996
    """
    name = "linear_cross_entropy"
    x, w = as_operand(name, input), as_operand(name, linear_weight, 1)
    as_operand(name, target, 2)
    reduction = reduction_of(name, reduction, None, None)
    ignore, smoothing = -100 if ignore_index is None else ignore_index, float(label_smoothing)
    shape, wide = x._array.shape, w._array.shape
    if len(shape) not in (1, 2) or len(wide) < 2 or shape[-1] != wide[-1]:
        raise ShapeError(
            f"{name}: expected input (n, k) or (k) and linear_weight (c, ..., k), but got "
            f"{list(shape)} and {list(wide)}."
        )
    if linear_bias is not None and as_operand(name, linear_bias)._array.shape != wide[:-1]:
        raise ShapeError(
            f"{name}: expected linear_bias of shape {list(wide[:-1])}, for linear_weight "
            f"{list(wide)}, but got {list(linear_bias._array.shape)}."
        )
    if len(wide) > 2 and len(shape) < 2:
        raise ShapeError(
            f"{name}: linear_weight {list(wide)} needs an input (n, k), but got {list(shape)}."
        )
    if not 0.0 <= smoothing <= 1.0:
        raise ValueError(f"{name}: label_smoothing must be between 0.0 and 1.0, got {smoothing}.")
    given = [t for t in (x, w, linear_bias) if t is not None]
    same_device(name, [*given, target])
    low = takes_part(*given)
    for t in given:
        if not low and (t._dtype is not x._dtype or not t._dtype.is_floating_point):
            raise DTypeError(
                f"{name}: input, linear_weight and linear_bias must have one floating dtype, but "
                f"got {x._dtype} and {t._dtype}. Convert with .to(dtype)."
            )
    n, c = shape[0], wide[0]
    logits_shape = (*shape[:-1], *wide[:-1])
    if target._dtype.is_floating_point and target._array.shape == logits_shape:
        if ignore_index is not None:
            raise ShapeError(
                f"{name}: ignore_index cannot be specified when target contains probabilities, got "
                f"{ignore_index}. Give such samples probabilities of zero."
            )
    else:
        kind = x._dtype if weight is None else weight._dtype
        classes = classes_of(
            name, logits_shape, kind if low else x._dtype, target, weight, ignore, reduction
        )
        plain = len(shape) == len(wide) == 2 and not low and x._dtype not in dtypes.HALVES
        if plain and c > 0 and (options or in_blocks(n, wide[1], c, x._dtype.itemsize)):
            tensors = [None if t is None else contiguous(t) for t in (x, w, linear_bias)]
            return LinearCrossEntropy.apply(*tensors, smoothing, *classes.fields())
    if options:
        warn_user(
            f"{name}: options ignored: blocks of classes need matrices of float32 or float64 and "
            f"class indices, but got input {list(shape)}, linear_weight {list(wide)} of {x._dtype} "
            f"and target of {target._dtype}{', in an autocast' if low else ''}."
        )
    if len(wide) > 2:
        flat = None if linear_bias is None else linear_bias.reshape((-1,))
        logits = linear(x, w.reshape((-1, wide[-1])), flat).reshape((n, *wide[:-1]))
    else:
        logits = linear(x, w, linear_bias)
    return cross_entropy(logits, target, weight, None, ignore, None, reduction, label_smoothing)
