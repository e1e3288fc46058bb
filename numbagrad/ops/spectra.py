"""Eigenvalues and singular values alone: their gradient needs vectors, but no gap of two values.

Start reading at ``ValuesAlone``.
"""

from __future__ import annotations

from typing import Any

from ..kernels import machine
from ..kernels.cpu import lapack as kernels
from ..tape import grad_mode
from ..tensor import Tensor
from .base import Op, new_empty
from .factorise import EighOp, Svd, eigh
from .lapack_arguments import matrix, named
from .linalg import matmul
from .remembered import remembered

__all__ = ["eigvalsh", "svdvals"]


class ValuesAlone(Op):
    """The eigenvalues of ``EighOp``, or the singular values of ``Svd``, without vectors.

    Gradient: the vectors with g between them, which takes no gap of two values.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, op: type[Op], option: bool) -> Tensor:
        left, values, right = _parts(op, x, option)
        ctx.how, ctx.vectors = (op, option), (left, right)
        ctx.save(x)
        return values

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,), (left, right) = ctx.saved_tensors, ctx.vectors
        if grad_mode.enabled:
            left, _, right = _parts(ctx.how[0], x, ctx.how[1])
        return _between(left, g, right)


def _values(x: Tensor, op: type[Op], option: bool) -> Tensor:
    """``ValuesAlone``; where nobody will ask for a gradient, no vectors are made."""
    if x._edge is not None and grad_mode.enabled:
        return ValuesAlone.apply(x, op, option)
    *lead, m, n = x._array.shape
    out = new_empty((*lead, min(m, n)), x._dtype, x._device)
    if op is Svd:
        machine.launch(named(kernels.svdvals, "svdvals"), out._array, x._array)
    else:
        machine.launch(named(kernels.eigvalsh, "eigvalsh"), out._array, x._array, option)
    return out


def _parts(op: type[Op], x: Tensor, option: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Left vectors, values and right vectors, whose product is ``x``."""
    if op is Svd:
        return op.apply(x, option)
    values, vectors = op.apply(x, option)
    return vectors, values, vectors.mT


@remembered
def _between(left: Tensor, g: Tensor, right: Tensor) -> Tensor:
    return matmul(left * g.unsqueeze(-2), right)


def eigvalsh(x: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices, ascending; as ``eigh``."""
    if UPLO not in ("L", "U"):
        return eigh(x, UPLO).eigenvalues  # which refuses it
    return _values(matrix("eigh", x, square=True), EighOp, UPLO == "U")


def svdvals(x: Tensor) -> Tensor:
    """The singular values of matrices, descending."""
    return _values(matrix("svdvals", x), Svd, False)
