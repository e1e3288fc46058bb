"""Views with the dimensions in another order: ``permute``, ``transpose`` and their like."""

from __future__ import annotations

import functools
from typing import Any

from ..errors import ShapeError
from ..tensor import Tensor
from .argument_names import by_name, sizes_by_name
from .base import as_operand, normalize_dim, normalize_dims
from .operand import no_operand
from .view import View, seen, sizes_of


class Permute(View):
    """The dimensions in another order."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        inverse = [0] * len(ctx.how)
        for i, d in enumerate(ctx.how):
            inverse[d] = i  # a negative d counts from the end here too
        return seen(Permute, g, g._array.transpose(inverse), tuple(inverse))


class Transpose(View):
    """Two dimensions exchanged."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return seen(Transpose, g, g._array.swapaxes(*ctx.how), ctx.how)


class T(View):
    """All dimensions in reverse order."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return seen(T, g, g._array.T, None)


def permute(x: Tensor, *dims: Any, **names: Any) -> Tensor:
    """The dimensions of ``x`` in the order ``dims``; a view."""
    if names:
        dims = sizes_by_name("permute", names, "dims", dims)
    if len(dims) == 1 and not isinstance(dims[0], int):
        dims = sizes_of("permute", dims)
    try:
        return seen(Permute, x, x._array.transpose(dims), dims)
    except AttributeError:
        raise no_operand("permute", x) from None
    except (ValueError, TypeError):
        return _permute_checked(x, sizes_of("permute", dims))


def _permute_checked(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """``permute`` with PyTorch's words for what is wrong."""
    rank = x._array.ndim
    if len(dims) != rank:
        raise ShapeError(
            f"permute: number of dimensions in the tensor input does not match the length of the "
            f"desired ordering of dimensions, {rank} against {len(dims)}. Name each dim once."
        )
    dims = tuple([normalize_dim("permute", d, rank) for d in dims])
    if len(set(dims)) != rank:
        raise ShapeError(f"permute: duplicate dims are not allowed, got {list(dims)}.")
    return seen(Permute, x, x._array.transpose(dims), dims)


def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Dimensions ``dim0`` and ``dim1`` exchanged; a view.

    >>> transpose(tensor([[1, 2], [3, 4]]), 0, 1).tolist()
    [[1, 3], [2, 4]]
    """
    try:
        array = x._array
    except AttributeError:
        raise no_operand("transpose", x) from None
    rank = array.ndim
    dim0 = normalize_dim("transpose", dim0, rank)
    dim1 = normalize_dim("transpose", dim1, rank)
    if rank == 0:
        return seen(T, x, array.T, None)
    return seen(Transpose, x, array.swapaxes(dim0, dim1), (dim0, dim1))


def t(x: Tensor) -> Tensor:
    """The transpose of a matrix; tensors of fewer dimensions as they are."""
    try:
        array = x._array
    except AttributeError:
        raise no_operand("t", x) from None
    if array.ndim > 2:
        raise ShapeError(
            f"t: expects a tensor with <= 2 dimensions, but self is {array.ndim}D. Use "
            f".transpose(dim0, dim1) or .mT."
        )
    return seen(T, x, array.T, None)


def _reversed(x: Tensor) -> Tensor:
    """All dimensions in reverse order."""
    return seen(T, x, x._array.T, None)


def _matrices_transposed(x: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    if x._array.ndim < 2:
        raise ShapeError(
            f"mT: tensor.mT is only supported on matrices or batches of matrices. Got "
            f"{x._array.ndim}-D tensor."
        )
    return transpose(x, -2, -1)


def movedim(x: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions ``source`` moved to ``destination``; the others keep their order."""
    rank = as_operand("movedim", x)._array.ndim
    if type(source) is int and type(destination) is int:
        order = _moved_one(rank, source, destination) if rank else _moved_none(source, destination)
        return seen(Permute, x, x._array.transpose(order), order)
    return permute(x, _moved(rank, source, destination))


def _moved(rank: int, source: Any, destination: Any) -> tuple[int, ...]:
    """The order of dimensions after ``movedim``."""
    moved = [[d] if isinstance(d, int) else list(d) for d in (source, destination)]
    if len(moved[0]) != len(moved[1]):
        raise ShapeError(
            f"movedim: Invalid source or destination dims: source {source} and destination "
            f"{destination} must have the same number of elements."
        )
    for dims in moved:
        normalize_dims("movedim", dims, rank)
    sources, targets = [[normalize_dim("movedim", d, rank) for d in dims] for dims in moved]
    order = [d for d in range(rank) if d not in sources]
    for target, d in sorted(zip(targets, sources, strict=True)):
        order.insert(target, d)
    return tuple(order)


def _moved_none(source: int, destination: int) -> tuple[int, ...]:
    """The order after ``movedim`` of no dimensions, which counts as one."""
    for dim in (source, destination):
        normalize_dim("movedim", dim, 0)
    return ()


_moved_one = functools.lru_cache(maxsize=1024)(_moved)


swapaxes = by_name("swapaxes", transpose)
swapdims = transpose
moveaxis = movedim

__all__ = ["moveaxis", "movedim", "permute", "swapaxes", "swapdims", "t", "transpose"]

METHODS: dict[str, Any] = {name: globals()[name] for name in __all__}
METHODS |= {"T": property(_reversed), "mT": property(_matrices_transposed)}

INPLACE_VIEWS: dict[str, Any] = {
    f"{name}_": globals()[name] for name in "swapaxes swapdims t transpose".split()
}
