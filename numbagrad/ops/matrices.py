"""Functions of square matrices under PyTorch's short names, products of many, and added products.

``ng.linalg`` has the same under its own names: see ``lapack.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from . import lapack
from .autocasting import lowered
from .base import Op, as_operand, broadcast_shape, sum_to_shape
from .chains import matrix_power, multi_dot
from .elementwise import addcmul, where
from .linalg import _scaled_sum, bmm
from .reduce import sum as sum_
from .remembered import remembered
from .vector_products import are_floats, dot, mv, outer

__all__ = [
    "addbmm",
    "addmv",
    "addr",
    "chain_matmul",
    "det",
    "ger",
    "inverse",
    "logdet",
    "matrix_power",
    "slogdet",
    "vdot",
]


def det(x: Tensor) -> Tensor:
    """The determinants of square matrices, ``ng.linalg.det``.

    >>> det(tensor([[2.0, 0.0], [0.0, 3.0]])).item()
    6.0
    """
    return lapack.det(x)


def inverse(x: Tensor) -> Tensor:
    """The inverses of square matrices, ``ng.linalg.inv``. Raises LinAlgError for a singular one.

    >>> inverse(tensor([[2.0]])).tolist()
    [[0.5]]
    """
    return lapack.inv(x)


def slogdet(x: Tensor) -> lapack.SlogdetResult:
    """The sign of determinants and the logarithms of their absolute values, ``ng.linalg.slogdet``.

    >>> slogdet(tensor([[-1.0]])).sign.item()
    -1.0
    """
    return lapack.slogdet(x)


def logdet(x: Tensor) -> Tensor:
    """The logarithms of determinants: NaN where one is negative, -inf where it is 0.

    Square matrices in the last two dimensions. Gradient: ``g inv(x).T``.

    >>> logdet(tensor([[1.0]])).item()
    0.0
    """
    sign, logabsdet = lapack.slogdet(x)
    return where(sign < 0, float("nan"), logabsdet)


@remembered
def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the cheapest order; ``ng.linalg.multi_dot`` takes a list.

    >>> chain_matmul(tensor([[2.0]]), tensor([[3.0]]), tensor([[4.0]])).tolist()
    [[24.0]]
    """
    given: Sequence[Any] = matrices
    if len(given) == 1 and isinstance(given[0], (list, tuple)):
        given = given[0]
    for position, matrix in enumerate(given):
        shape = as_operand("chain_matmul", matrix, position)._array.shape
        if len(shape) != 2:
            raise ShapeError(f"chain_matmul: expected matrices of two dimensions, got {shape}.")
    if not given:
        raise DTypeError("chain_matmul: Expected one or more matrices.")
    return given[0] if len(given) == 1 else multi_dot(given)


@remembered
def vdot(x: Tensor, other: Tensor) -> Tensor:
    """The sum of the products of the elements of two vectors, as ``dot``.

    >>> vdot(tensor([1.0, 2.0]), tensor([3.0, 4.0])).item()
    11.0
    """
    return dot(x, other)


def ger(x: Tensor, vec2: Tensor) -> Tensor:
    """The matrix of the products of the elements of two vectors, as ``outer``.

    >>> ger(tensor([1.0, 2.0]), tensor([3.0])).tolist()
    [[3.0], [6.0]]
    """
    return outer(x, vec2)


@remembered
def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta x + alpha mat @ vec``; x broadcasts to the product.

    >>> addmv(tensor([1.0]), tensor([[2.0, 3.0]]), tensor([1.0, 1.0])).tolist()
    [6.0]
    """
    return _scaled_sum("addmv", as_operand("addmv", x), mv(mat, vec), beta, alpha)


class Addr(Op, remembers=True):
    """A matrix, and the products of the elements of two vectors, all of one floating dtype."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, vec1: Tensor, vec2: Tensor, alpha: Any) -> Tensor:
        ctx.save(vec1, vec2)
        ctx.shape, ctx.alpha = x._array.shape, alpha
        return addcmul(x, vec1.unsqueeze(1), vec2, value=alpha)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        vec1, vec2 = ctx.saved_tensors
        alpha, needs = ctx.alpha, ctx.needs_input_grad
        gx = sum_to_shape(g, ctx.shape) if needs[0] else None
        if alpha != 1:
            g = g * alpha
        return gx, mv(g, vec2) if needs[1] else None, mv(g.t(), vec1) if needs[2] else None, None


@remembered
def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta x + alpha outer(vec1, vec2)``; x broadcasts to the product.

    >>> addr(tensor([[1.0]]), tensor([2.0]), tensor([3.0])).tolist()
    [[7.0]]
    """
    given = [as_operand("addr", each, k) for k, each in enumerate((x, vec1, vec2))]
    if beta == 1 and not machine.is_recording() and are_floats(*given):
        shape = vec1._array.shape + vec2._array.shape
        if len(shape) == 2 and broadcast_shape("addr", x._array.shape, shape) == shape:
            return Addr.apply(x, vec1, vec2, alpha)
    return _scaled_sum("addr", x, outer(vec1, vec2), beta, alpha)


@remembered
def addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta x + alpha`` times the sum of the products of two batches of matrices.

    >>> addbmm(tensor([[1.0]]), tensor([[[2.0]], [[3.0]]]), tensor([[[4.0]], [[5.0]]])).tolist()
    [[24.0]]
    """
    if machine.autocasting:
        (x,) = lowered(x)
    products = bmm(batch1, batch2)
    total = sum_(products, 0, dtype=products._dtype)
    return _scaled_sum("addbmm", as_operand("addbmm", x), total, beta, alpha)


METHODS: dict[str, Any] = {n: globals()[n] for n in __all__ if n != "chain_matmul"}
INPLACE: dict[str, Any] = {"addbmm_": addbmm, "addmv_": addmv, "addr_": addr}
