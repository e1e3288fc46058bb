"""Products of matrices and vectors, and the linear layer: everything that ends in BLAS.

``Mm`` and ``Bmm`` take either operand transposed, so a gradient needs no transposed copies and is
the same op again. Start reading at ``Mm`` and ``matmul``.
"""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..autograd.recorded import Recorded
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import bias as bias_kernels
from ..kernels.cpu import matmul as kernels
from ..tape import grad_mode, next_sequence
from ..tensor import Tensor, wrap
from .autocasting import lowered
from .axes import DTYPE_WORDS
from .base import Op, as_operand, broadcast_shape, contiguous, new_empty, same_device
from .remembered import remembered

__all__ = [
    "addmm",
    "baddbmm",
    "bmm",
    "linear",
    "matmul",
    "mm",
]

_new = object.__new__

# -- the ops ---------------------------------------------------------------------------------------


def product(x: Tensor, y: Tensor, transx: int = 0, transy: int = 0) -> Tensor:
    """What ``Mm`` computes, off the tape."""
    a, b = x._array, y._array
    shape = (a.shape[1 if transx else 0], b.shape[0 if transy else 1])
    out = new_empty(shape, x._dtype, x._device)
    machine.launch(kernels.mm, out._array, a, b, transx, transy, 0)
    return out


def row_product(x: Tensor, y: Tensor, transy: int = 0) -> Tensor:
    """What ``RowMm`` computes, off the tape."""
    a, b = x._array, y._array
    out = new_empty((b.shape[0 if transy else 1],), x._dtype, x._device)
    machine.launch(kernels.mm, out._array[None], a[None], b, 0, transy, 0)
    return out


def stacked_product(x: Tensor, y: Tensor, transx: int = 0, transy: int = 0) -> Tensor:
    """What ``Bmm`` computes, off the tape."""
    a, b = x._array, y._array
    shape = (a.shape[0], a.shape[2 if transx else 1], b.shape[1 if transy else 2])
    out = new_empty(shape, x._dtype, x._device)
    machine.launch(kernels.bmm, out._array, a, b, transx, transy)
    return out


def column_sum(x: Tensor) -> Tensor:
    """What ``ColumnSum`` computes, off the tape."""
    out = new_empty(x._array.shape[1:], x._dtype, x._device)
    machine.launch(bias_kernels.column_sum, out._array, contiguous(x)._array)
    return out


def _product_grads(ctx: Any, g: Tensor, times: Any) -> tuple:
    """The gradients of a product are products; ``times`` multiplies, on the tape or off it."""
    x, y = ctx.saved_tensors
    needs, transx, transy = ctx.needs_input_grad, ctx.transx, ctx.transy
    gx = gy = None
    if needs[0]:
        gx = times(y, g, transy, 1) if transx else times(g, y, 0, 1 - transy)
    if needs[1]:
        gy = times(g, x, 1, transx) if transy else times(x, g, 1 - transx, 0)
    return gx, gy


class Mm(Op, remembers=True):
    """The product of two matrices, of which either may be stored transposed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, transx: int = 0, transy: int = 0) -> Tensor:
        needs = ctx.needs_input_grad
        ctx.save(x if needs[1] else None, y if needs[0] else None)
        ctx.transx, ctx.transy = transx, transy
        return product(x, y, transx, transy)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        return _product_grads(ctx, g, Mm.apply if grad_mode.enabled else product)


class RowMm(Op, remembers=True):
    """The product of a vector and a matrix, which may be stored transposed: that of one row. A
    matrix times a vector is the latter times the former, transposed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, transy: int = 0) -> Tensor:
        needs = ctx.needs_input_grad
        ctx.save(x if needs[1] else None, y if needs[0] else None)
        ctx.transy = transy
        return row_product(x, y, transy)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, y = ctx.saved_tensors
        needs, transy = ctx.needs_input_grad, ctx.transy
        taped = grad_mode.enabled
        gx = gy = None
        if needs[0]:
            gx = (RowMm.apply if taped else row_product)(g, y, 1 - transy)
        if needs[1]:
            left, right = (g, x) if transy else (x, g)
            if taped:
                gy = Mm.apply(left.unsqueeze(0), right.unsqueeze(0), 1, 0)
            else:
                g, x = [wrap(a._array[None], a._dtype) for a in (left, right)]
                gy = product(g, x, 1, 0)
        return gx, gy


class Bmm(Op, remembers=True):
    """The products of two stacks of matrices, of which either may be stored transposed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, transx: int = 0, transy: int = 0) -> Tensor:
        needs = ctx.needs_input_grad
        ctx.save(x if needs[1] else None, y if needs[0] else None)
        ctx.transx, ctx.transy = transx, transy
        return stacked_product(x, y, transx, transy)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        return _product_grads(ctx, g, Bmm.apply if grad_mode.enabled else stacked_product)


class IntegerMm(Op):
    """The product of two integer matrices, of two stacks of them, or of one and a vector."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        left, right = contiguous(x)._array, contiguous(y)._array
        rows, columns = left.shape[:-1], right.shape[-1:] if right.ndim > 1 else ()
        out = new_empty((*rows, *columns), x._dtype, x._device)
        batch, n = left.shape[0] if left.ndim == 3 else 1, rows[-1] if rows else 1
        k, m = left.shape[-1], columns[0] if columns else 1
        operands = left.reshape((batch, n, k)), right.reshape((batch, k, m))
        machine.launch(kernels.integer_mm, out._array.reshape((batch, n, m)), *operands)
        return out


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What ``Linear`` computes, off the tape."""
    a, w = x._array, weight._array
    shape = a.shape
    m, k = w.shape
    if len(shape) == 2:
        out = new_empty((shape[0], m), x._dtype, x._device)
        flat = out._array
    else:
        a = contiguous(x)._array.reshape((math.prod(shape[:-1]), k))
        out = new_empty((*shape[:-1], m), x._dtype, x._device)
        flat = out._array.reshape((a.shape[0], m))
    if bias is None:
        machine.launch(kernels.mm, flat, a, w, 0, 1, 0)
    else:
        machine.launch(kernels.addmm, flat, a, w, bias._array, 0, 1)
    return out


class Linear(Op, remembers=True):
    """``x weight.T + bias``."""

    @classmethod
    def apply(cls, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``Op.apply`` written out for one output: 1.5 us less, a third of a small layer's time."""
        out = affine(x, weight, bias)
        if grad_mode.enabled:
            edge, weight_edge = x._edge, weight._edge
            bias_edge = None if bias is None else bias._edge
            if edge is not None or weight_edge is not None or bias_edge is not None:
                node = _new(cls._node_type)
                node._edges = (edge, weight_edge, bias_edge)
                node._needs = (
                    edge is not None,
                    weight_edge is not None,
                    bias_edge is not None,
                )
                node._sequence = next_sequence()
                kept = None if weight_edge is None else x, None if edge is None else weight
                Recorded._save(node, kept)
                out._edge = node
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, weight = ctx.saved_tensors
        if grad_mode.enabled:
            times, sum_columns = Mm.apply, ColumnSum.apply
        else:
            times, sum_columns = product, column_sum
        shape = g._array.shape
        if len(shape) != 2:
            rows = math.prod(shape[:-1])
            g = g.reshape((rows, shape[-1]))
            x = None if x is None else x.reshape((rows, x._array.shape[-1]))
        needs = ctx.needs_input_grad
        gx = times(g, weight) if needs[0] else None
        if gx is not None and len(shape) != 2:
            gx = gx.reshape((*shape[:-1], weight._array.shape[1]))
        gweight = times(g, x, 1) if needs[1] else None
        return gx, gweight, sum_columns(g) if needs[2] else None


class ColumnSum(Op, remembers=True):
    """The sum of the rows of a matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x._array.shape
        return column_sum(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g.expand(ctx.shape)


# -- what the arguments must be --------------------------------------------------------------------


def _operands(name: str, *tensors: Any) -> None:
    """Refuse what is no Tensor, several dtypes, bools, several devices."""
    for position, tensor in enumerate(tensors):
        as_operand(name, tensor, position)
    first = tensors[0]
    for tensor in tensors[1:]:
        if tensor._dtype is not first._dtype:
            raise DTypeError(
                f"{name}: expected all operands to have the same dtype, but got "
                f"{' and '.join(repr(t._dtype) for t in tensors)}. Convert one with .to(dtype)."
            )
    if first._dtype is dtypes.bool_:
        raise DTypeError(f"{name}: not implemented for {DTYPE_WORDS['bool']!r}. Use .int() first.")
    same_device(name, tensors)


def _ranked(name: str, rank: int, words: str, *tensors: Tensor) -> None:
    for position, tensor in enumerate(tensors):
        if tensor._array.ndim != rank:
            raise ShapeError(
                f"{name}: argument {position + 1} {words}, got {tensor._array.ndim}-D of shape "
                f"{list(tensor._array.shape)}. Use ng.matmul for other ranks."
            )


def _cannot_multiply(name: str, x: Tensor, y: Tensor) -> ShapeError:
    (n, k), (h, m) = x._array.shape[-2:], y._array.shape[-2:]
    return ShapeError(
        f"{name}: mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {h}x{m}): the columns of "
        f"the first must equal the rows of the second. Transpose or reshape one."
    )


# -- functions -------------------------------------------------------------------------------------


@remembered
def mm(x: Tensor, y: Tensor) -> Tensor:
    """The product of two matrices, (n, k) and (k, m), of one dtype.

    Gradient: ``g y.T`` and ``x.T g``. Raises ShapeError unless both are matrices that fit.

    >>> mm(tensor([[1.0, 2.0]]), tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    if machine.autocasting:
        x, y = lowered(x, y)
    _operands("mm", x, y)
    _ranked("mm", 2, "must be a matrix (2-D)", x, y)
    return _mm("mm", x, y)


def _mm(name: str, x: Tensor, y: Tensor) -> Tensor:
    if x._array.shape[1] != y._array.shape[0]:
        raise _cannot_multiply(name, x, y)
    return (Mm if x._dtype.is_floating_point else IntegerMm).apply(x, y)


@remembered
def bmm(x: Tensor, y: Tensor) -> Tensor:
    """The products of two stacks of matrices, (b, n, k) and (b, k, m), of one dtype."""
    if machine.autocasting:
        x, y = lowered(x, y)
    _operands("bmm", x, y)
    _ranked("bmm", 3, "must be a 3D tensor", x, y)
    (batch, _, k), (other, h, m) = x._array.shape, y._array.shape
    if batch != other or k != h:
        raise ShapeError(
            f"bmm: Expected size for first two dimensions of batch2 tensor to be: [{batch}, {k}] "
            f"but got: [{other}, {h}] (last dimension {m}). Use ng.matmul to broadcast batches."
        )
    return _bmm(x, y)


def _bmm(x: Tensor, y: Tensor) -> Tensor:
    return (Bmm if x._dtype.is_floating_point else IntegerMm).apply(x, y)


@remembered
def matmul(x: Tensor, y: Tensor) -> Tensor:
    """The product by NumPy's rules: ``x @ y``.

    Vectors: (k) @ (k) is 0-d, (n, k) @ (k) is (n). Stacks: the leading dimensions broadcast,
    (b, n, k) @ (k, m) is (b, n, m). Both of one dtype. Gradient: ``g y.T`` and ``x.T g``.
    Raises ShapeError for 0-d operands and for shapes that do not fit.

    >>> matmul(tensor([1.0, 2.0]), tensor([3.0, 4.0])).item()
    11.0
    """
    if machine.autocasting:
        x, y = lowered(x, y)
    return product_of(x, y)


def product_of(x: Tensor, y: Tensor) -> Tensor:
    """``matmul`` in the dtype that the two have."""
    _operands("matmul", x, y)
    left, right = x._array.ndim, y._array.ndim
    if left == 2 and right == 2:
        return _mm("matmul", x, y)
    if left == 0 or right == 0:
        raise ShapeError(
            f"matmul: both arguments need to be at least 1D, but they are {left}D and {right}D. "
            f"Use * to multiply by a number."
        )
    if right == 1:
        if x._array.shape[-1] != y._array.shape[0]:
            raise ShapeError(
                f"matmul: size mismatch, the shapes {list(x._array.shape)} and "
                f"{list(y._array.shape)} cannot be multiplied: the last dimension of the first "
                f"must equal the length of the vector."
            )
        if left == 2:
            floats = x._dtype.is_floating_point
            return RowMm.apply(y, x, 1) if floats else IntegerMm.apply(x, y)
        return product_of(x, y.unsqueeze(1)).squeeze(-1)
    if left == 1:
        if right == 2 and x._array.size == y._array.shape[0]:
            return (RowMm if x._dtype.is_floating_point else IntegerMm).apply(x, y)
        return product_of(x.unsqueeze(0), y).squeeze(-2)
    if x._array.shape[-1] != y._array.shape[-2]:
        raise _cannot_multiply("matmul", x, y)
    return _broadcast_matmul(x, y)


_OURS = (dtypes.float32, dtypes.float64)


def plain_floats(x: Tensor, y: Tensor) -> bool:
    """Whether both are contiguous, of one dtype that our products take, and ``_untaped``."""
    return x._dtype is y._dtype and x._dtype in _OURS and x._flat and _untaped(x, y)


def times_vector(x: Any, y: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A matrix (n, k) times a vector (k), n numbers of this shape."""
    n, k = x.shape
    out = new_empty(shape, y._dtype, y._device)
    machine.launch(kernels.mm, out._array.reshape(n, 1), x, y._array.reshape(k, 1), 0, 0, 0)
    return out


def _untaped(x: Tensor, y: Tensor) -> bool:
    """Whether a product of a contiguous ``y`` on the CPU is to be neither recorded nor compiled."""
    taped = grad_mode.enabled and (x._edge is not None or y._edge is not None)
    here = not machine.recording or machine.on_host(x, y)
    return not taped and here and y._flat


def _broadcast_matmul(x: Tensor, y: Tensor) -> Tensor:
    """matmul of operands of two dimensions and more, of which one has three."""
    shapes = x._array.shape, y._array.shape
    (n, k), m = shapes[0][-2:], shapes[1][-1]
    if len(shapes[1]) == 2:  # one matrix for the whole stack: its rows are rows of one product
        rows = x.reshape((math.prod(shapes[0][:-1]), k))
        return _mm("matmul", rows, y).reshape((*shapes[0][:-1], m))
    batch = broadcast_shape("matmul", shapes[0][:-2], shapes[1][:-2])
    out = _bmm(_flatten_batch(x, batch), _flatten_batch(y, batch))
    return out if len(batch) == 1 else out.reshape((*batch, n, m))


def _flatten_batch(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """``x`` broadcast to ``batch``, as one stack; no copy if it is a single matrix."""
    shape, count = x._array.shape, math.prod(batch)
    if math.prod(shape[:-2]) == 1 and count != 1:
        return x.reshape((1, *shape[-2:])).expand((count, *shape[-2:]))
    if shape[:-2] != batch:
        x = x.expand((*batch, *shape[-2:]))
    return x if len(shape) == 3 and len(batch) == 1 else x.reshape((count, *shape[-2:]))


@remembered
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``.

    x (..., k); weight (m, k); bias (m) or None; all of one floating dtype; the result (..., m).
    Gradient: ``g weight``, ``g.T x`` and the sum of the rows of ``g``.
    Raises ShapeError where the features do not fit.

    >>> linear(tensor([[1.0, 2.0]]), tensor([[3.0, 4.0]]), tensor([0.5])).tolist()
    [[11.5]]
    """
    if machine.autocasting:
        x, weight, bias = lowered(x, weight, bias)
    try:
        fits = (
            weight._array.ndim == 2
            and x._array.shape[-1] == weight._array.shape[1]
            and x._dtype is weight._dtype
            and x._device == weight._device
            and (
                bias is None
                or (bias._array.shape == weight._array.shape[:1] and bias._dtype is x._dtype)
            )
            and x._dtype.is_floating_point
        )
    except (AttributeError, IndexError):
        fits = False
    return Linear.apply(x, weight, bias) if fits else _unusual_linear(x, weight, bias)


def _unusual_linear(x: Any, weight: Any, bias: Any) -> Tensor:
    """linear of a 1-D weight or of integers; otherwise it says what does not fit."""
    _operands("linear", *(t for t in (x, weight, bias) if t is not None))
    shapes = x._array.shape, weight._array.shape
    if not shapes[0] or len(shapes[1]) not in (1, 2):
        raise ShapeError(
            f"linear: expected x of at least one dimension and a weight of 1 or 2, got "
            f"{list(shapes[0])} and {list(shapes[1])}."
        )
    if shapes[0][-1] != shapes[1][-1]:
        raise ShapeError(
            f"linear: x has {shapes[0][-1]} features, weight expects {shapes[1][-1]}; they cannot "
            f"be multiplied. Received x {list(shapes[0])}, weight {list(shapes[1])}. Transpose "
            f"weight or reshape x."
        )
    if bias is not None and bias._array.shape not in (shapes[1][:-1], ()):
        raise ShapeError(
            f"linear: bias has shape {list(bias._array.shape)}, weight {list(shapes[1])} needs "
            f"{list(shapes[1][:-1])}."
        )
    out = matmul(x, weight if len(shapes[1]) == 1 else weight.t())
    return out if bias is None else out + bias


def _scaled_sum(name: str, x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """``beta x + alpha product``; x must broadcast to the product."""
    shape = product._array.shape
    if broadcast_shape(name, x._array.shape, shape) != shape:
        raise ShapeError(
            f"{name}: input of shape {list(x._array.shape)} does not expand to {list(shape)}."
        )
    if alpha != 1:
        product = product * alpha
    if beta == 0:  # PyTorch then ignores the NaN of the input too
        return product
    return product + (x if beta == 1 else x * beta)


@remembered
def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta x + alpha mat1 @ mat2``; x broadcasts to the product."""
    if machine.autocasting:
        x, mat1, mat2 = lowered(x, mat1, mat2)
    _operands("addmm", x, mat1, mat2)
    _ranked("addmm", 2, "must be a matrix (2-D)", mat1, mat2)
    return _scaled_sum("addmm", x, _mm("addmm", mat1, mat2), beta, alpha)


@remembered
def baddbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta x + alpha bmm(batch1, batch2)``; x broadcasts to the product."""
    if machine.autocasting:
        x, batch1, batch2 = lowered(x, batch1, batch2)
    _operands("baddbmm", x, batch1, batch2)
    return _scaled_sum("baddbmm", x, bmm(batch1, batch2), beta, alpha)


METHODS = {name: globals()[name] for name in __all__ if name != "linear"}
OPERATORS = {"__matmul__": matmul, "__rmatmul__": lambda x, y: matmul(y, x)}
INPLACE = {"addmm_": addmm, "baddbmm_": baddbmm}
