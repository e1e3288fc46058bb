"""Products named by their indices: einsum, and the products that are cases of it.

A product of several operands is taken two at a time, each as a stack of matrix products. Start
reading at ``einsum`` and ``_contract``.
"""

from __future__ import annotations

import functools
import math
import string
from typing import Any

from .. import dtypes
from ..errors import DimError, DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import cross as kernels
from ..tensor import Tensor, wrap_any
from .autocasting import CPU, raised
from .base import (
    Op,
    as_operand,
    broadcast_shape,
    contiguous,
    new_empty,
    normalize_dim,
    same_device,
)
from .elementwise import cast
from .linalg import _operands, matmul
from .part import diagonal
from .remembered import remembered

LETTERS = string.ascii_uppercase + string.ascii_lowercase
"""What numbers of dimensions are called, in their order."""

__all__ = ["cross", "einsum", "kron", "tensordot", "trace"]


@remembered
def einsum(equation: Any, *operands: Any) -> Tensor:
    """The sum of products that ``equation`` names: ``einsum("ij,jk->ik", x, y)`` is ``x @ y``.

    Without an equation each operand is followed by the numbers of its dimensions, and perhaps the
    last by those of the output, ``...`` among them: ``einsum(x, [0, 1], y, [1, 2], [0, 2])``.
    A letter stands for a dimension; one that is repeated runs along a diagonal or joins operands,
    one that the output lacks is summed. Without ``->`` the output has the letters that occur once,
    sorted. ``...`` stands for dimensions that broadcast. Operands are of one dtype.
    Raises ShapeError if an operand and its letters differ in number, or sizes do not fit.

    >>> einsum("i,i->", tensor([1.0, 2.0]), tensor([3.0, 4.0])).item()
    11.0
    """
    if isinstance(equation, Tensor):
        equation, operands = _written_out((equation, *operands))
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not operands:
        raise ValueError("einsum: must provide at least one operand.")
    _operands("einsum", *operands)
    inputs, output = _parse(equation, tuple([x._array.ndim for x in operands]))
    terms = [_plain(x, labels, equation) for x, labels in zip(operands, inputs, strict=True)]
    _check_sizes(terms, equation)
    x, labels = terms[0]
    for position, (y, others) in enumerate(terms[1:], 2):
        later = set(output).union(*(held for _, held in terms[position:]))
        x, labels = _contract(x, labels, y, others, later)
    summed = tuple(i for i, label in enumerate(labels) if label not in output)
    if summed:
        x = x.sum(summed)
        labels = [label for label in labels if label in output]
    return x.permute([labels.index(label) for label in output]) if labels != output else x


def _written_out(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The equation and operands of a call that lists the numbers of dimensions."""
    operands, lists = given[:-1:2] if len(given) % 2 else given[::2], [*given[1::2]]
    right = f"->{_letters(given[-1])}" if len(given) % 2 else ""
    return ",".join([_letters(numbers) for numbers in lists]) + right, operands


def _letters(numbers: Any) -> str:
    """What stands in an equation for dimensions by number."""
    if not isinstance(numbers, (list, tuple)):
        raise TypeError(
            f"einsum: expected a list of ints after each operand, got {type(numbers).__name__}."
        )
    for n in numbers:
        if n is not ... and not (isinstance(n, int) and 0 <= n < len(LETTERS)):
            raise ValueError(
                f"einsum: expected subscripts in the sublist to be within the range [0, "
                f"{len(LETTERS)}), or an ellipsis, got {n!r}."
            )
    return "".join(["..." if n is ... else LETTERS[n] for n in numbers])


@functools.lru_cache(256)
def _parse(equation: str, ranks: tuple[int, ...]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand and of the output; those of ``...`` are numbers from the right.

    The lists are kept, so nobody may change them.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(
            f"einsum: {equation!r} has {len(terms)} operands, but {len(ranks)} were provided; more "
            f"or fewer operands than its subscripts name."
        )
    inputs = [_labels(term, rank, equation) for term, rank in zip(terms, ranks, strict=True)]
    used = [label for labels in inputs for label in labels]
    dots = sorted({label for label in used if label.isdigit()}, key=int, reverse=True)
    if not arrow:
        once = sorted({label for label in used if not label.isdigit() and used.count(label) == 1})
        return inputs, dots + once
    head, ellipsis, tail = right.partition("...")
    output = [*head, *(dots if ellipsis else []), *tail]
    for label in output:
        if label not in used or output.count(label) > 1:
            raise ShapeError(
                f"einsum: the output subscript {label!r} of {equation!r} must appear once in the "
                f"output and in at least one input."
            )
    return inputs, output


def _labels(term: str, rank: int, equation: str) -> list[str]:
    head, ellipsis, tail = term.partition("...")
    if not all(c.isalpha() for c in head + tail):
        raise ValueError(f"einsum: a subscript must be in [a-zA-Z], got {term!r} in {equation!r}.")
    missing = rank - len(head) - len(tail)
    if missing < 0 or (missing and not ellipsis):
        raise ShapeError(
            f"einsum: the number of subscripts in {term!r} of {equation!r} does not match the "
            f"number of dimensions, {rank}, of its operand."
        )
    return [*head, *(str(i) for i in range(missing - 1, -1, -1)), *tail]


def _plain(x: Tensor, labels: list[str], equation: str) -> tuple[Tensor, list[str]]:
    """``x`` with every label once: a repeated one becomes a diagonal."""
    if len(set(labels)) == len(labels):
        return x, labels
    labels = list(labels)
    for label in sorted(set(labels)):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            sizes = x._array.shape[first], x._array.shape[second]
            if sizes[0] != sizes[1]:
                raise ShapeError(
                    f"einsum: subscript {label!r} of {equation!r} is repeated for dimensions of "
                    f"size {sizes[0]} and {sizes[1]}, which do not match."
                )
            x = diagonal(x, 0, first, second)
            labels = [*labels[:first], *labels[first + 1 : second], *labels[second + 1 :], label]
    return x, labels


def _check_sizes(terms: list[tuple[Tensor, list[str]]], equation: str) -> None:
    sizes: dict[str, int] = {}
    for x, labels in terms:
        for label, size in zip(labels, x._array.shape, strict=True):
            held = sizes.setdefault(label, size)
            if held == 1:
                sizes[label] = size
            elif size not in (1, held):
                raise ShapeError(
                    f"einsum: subscript {label!r} of {equation!r} has size {size} for one operand, "
                    f"which does not broadcast with the size {held} of another."
                )


def _contract(
    x: Tensor, left: list[str], y: Tensor, right: list[str], later: set[str]
) -> tuple[Tensor, list[str]]:
    """The product of two operands, summed over the labels that nothing later needs."""
    x, left = _drop(x, left, later | set(right))
    y, right = _drop(y, right, later | set(left))
    both = [label for label in left if label in right]
    batch = [label for label in both if label in later]
    summed = [label for label in both if label not in later]
    rows = [label for label in left if label not in both]
    columns = [label for label in right if label not in both]
    if not summed and not (rows and columns):  # nothing to add, and one repeats for the other
        labels = batch + rows + columns
        return _spread(x, left, labels) * _spread(y, right, labels), labels
    sizes = _joint_sizes(x, left, y, right)
    x = _arranged(x, left, batch, rows, summed, sizes)
    y = _arranged(y, right, batch, summed, columns, sizes)
    labels = batch + rows + columns
    return _of_shape(matmul(x, y), tuple([sizes[label] for label in labels])), labels


def _drop(x: Tensor, labels: list[str], needed: set[str]) -> tuple[Tensor, list[str]]:
    """Sum over the labels of ``x`` that nothing else has."""
    dims = tuple(i for i, label in enumerate(labels) if label not in needed)
    return (x.sum(dims) if dims else x), [label for label in labels if label in needed]


def _spread(x: Tensor, labels: list[str], wanted: list[str]) -> Tensor:
    """``x`` with its dims in the order ``wanted``, of size 1 where it lacks one at the end."""
    held = [label for label in wanted if label in labels]
    if labels != held:
        x = x.permute([labels.index(label) for label in held])
    return _of_shape(x, (*x._array.shape, *(1,) * (len(wanted) - len(held))))


def _joint_sizes(x: Tensor, left: list[str], y: Tensor, right: list[str]) -> dict[str, int]:
    """The size of each label; where one operand has 1, that of the other."""
    sizes = dict(zip(left, x._array.shape, strict=True))
    for label, size in zip(right, y._array.shape, strict=True):
        if sizes.get(label, 1) == 1:
            sizes[label] = size
    return sizes


def _arranged(
    x: Tensor,
    labels: list[str],
    batch: list[str],
    rows: list[str],
    columns: list[str],
    sizes: dict[str, int],
) -> Tensor:
    """``x`` as a stack of matrices with these labels for its three dims."""
    wanted = batch + rows + columns
    if labels != wanted:
        x = x.permute([labels.index(label) for label in wanted])
    full = tuple([sizes[label] for label in wanted])
    if x._array.shape != full:
        x = x.expand(full)
    parts = (batch, rows, columns) if batch else (rows, columns)
    return _of_shape(x, tuple([math.prod([sizes[label] for label in part]) for part in parts]))


def _of_shape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``x.reshape(shape)``, which costs more than a small product, where there is a need."""
    return x if x._array.shape == shape else x.reshape(shape)


@remembered
def tensordot(x: Tensor, y: Tensor, dims: Any = 2) -> Tensor:
    """The sum of products over ``dims``: how many, or which ones of ``x`` and which of ``y``.

    An int n joins the last n dimensions of x with the first n of y. Of two dimensions that are
    joined one may have size 1: it is repeated.

    >>> tensordot(tensor([[1, 2, 3]]), tensor([[10, 20]]), dims=1).tolist()
    [[60, 120]]
    """
    _operands("tensordot", x, y)
    ranks = x._array.ndim, y._array.ndim
    if isinstance(dims, int):
        if not 0 <= dims <= min(ranks):
            raise DimError(f"tensordot: expects 0 <= dims <= {min(ranks)}, but got dims={dims}.")
        dims = list(range(ranks[0] - dims, ranks[0])), list(range(dims))
    pairs: list[list[int]] = [
        [normalize_dim("tensordot", d, rank) for d in ([side] if isinstance(side, int) else side)]
        for side, rank in zip(dims, ranks, strict=True)
    ]
    for i, j in zip(*pairs, strict=False):
        n, m = x._array.shape[i], y._array.shape[j]
        if n != m and m == 1:
            x = x.sum(i, keepdim=True, dtype=x._dtype)
        elif n != m and n == 1:
            y = y.sum(j, keepdim=True, dtype=y._dtype)
    shapes = x._array.shape, y._array.shape
    joined = [shapes[0][d] for d in pairs[0]], [shapes[1][d] for d in pairs[1]]
    if joined[0] != joined[1]:
        raise ShapeError(
            f"tensordot: contracted dimensions need to match, but the first has sizes {joined[0]} "
            f"and the second {joined[1]}."
        )
    rows = [d for d in range(ranks[0]) if d not in pairs[0]]
    columns = [d for d in range(ranks[1]) if d not in pairs[1]]
    n, k = math.prod([shapes[0][d] for d in rows]), math.prod(joined[0])
    m = math.prod([shapes[1][d] for d in columns])
    left = x.permute([*rows, *pairs[0]]).reshape((n, k))
    right = y.permute([*pairs[1], *columns]).reshape((k, m))
    shape = [*(shapes[0][d] for d in rows), *(shapes[1][d] for d in columns)]
    return matmul(left, right).reshape(shape)


@remembered
def kron(x: Tensor, y: Tensor) -> Tensor:
    """The Kronecker product: a block ``x[i, j] * y`` for each element of ``x``."""
    as_operand("kron", x)
    as_operand("kron", y, 1)
    rank = max(x._array.ndim, y._array.ndim)
    left = (1,) * (rank - x._array.ndim) + x._array.shape
    right = (1,) * (rank - y._array.ndim) + y._array.shape
    spread = [size for n in left for size in (n, 1)], [size for n in right for size in (1, n)]
    shape = [n * m for n, m in zip(left, right, strict=True)]
    return (x.reshape(spread[0]) * y.reshape(spread[1])).reshape(shape)


@remembered
def trace(x: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    if machine.autocasting:
        (x,) = raised(x, on=CPU)
    if as_operand("trace", x)._array.ndim != 2:
        raise ShapeError(f"trace: expected a matrix, but got a tensor of {x._array.ndim} dims.")
    if x._edge is None and not machine.recording:
        return wrap_any(x._array.diagonal()).sum()
    return diagonal(x).sum()


class Cross(Op, remembers=True):
    """The vector products of two tensors of one shape and dtype along ``dim``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, dim: int) -> Tensor:
        ctx.save(x, y)
        ctx.dim = dim
        shape = x._array.shape
        form = (math.prod(shape[:dim]), 3, math.prod(shape[dim + 1 :]))
        out = new_empty(shape, x._dtype, x._device)
        arrays = [a.reshape(form) for a in (out._array, contiguous(x)._array, contiguous(y)._array)]
        machine.launch(kernels.cross, *arrays)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        (x, y), (for_x, for_y, *_) = ctx.saved_tensors, ctx.needs_input_grad
        gx = Cross.apply(y, g, ctx.dim) if for_x else None
        return gx, Cross.apply(g, x, ctx.dim) if for_y else None


@remembered
def cross(x: Tensor, y: Tensor, dim: int | None = None) -> Tensor:
    """The vector product of the vectors of three along ``dim``, by default the first of size 3.

    The other dimensions broadcast. Gradients: the products of the other vector and g.

    >>> cross(tensor([1.0, 0.0, 0.0]), tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    as_operand("cross", x)
    shape = broadcast_shape("cross", x._array.shape, as_operand("cross", y, 1)._array.shape)
    if dim is None:
        dim = shape.index(3) if 3 in shape else 0
    dim = normalize_dim("cross", dim, len(shape))
    lengths = {s[dim - len(shape)] for s in (x._array.shape, y._array.shape) if s}
    if lengths != {3}:
        raise ShapeError(
            f"cross: inputs dimension {dim} must have length 3. Got shapes "
            f"{list(x._array.shape)} and {list(y._array.shape)}."
        )
    dtype = dtypes.promote_types(x._dtype, y._dtype)
    if dtype is dtypes.bool_:
        raise DTypeError("cross: not implemented for bools. Convert them with .int().")
    if machine.recording:
        same_device("cross", [x, y])
    wide = dtypes.float32 if dtype in dtypes.HALVES else dtype
    given = [cast(v if v._array.shape == shape else v.expand(shape), wide) for v in (x, y)]
    return cast(Cross.apply(*given, dim), dtype)


METHODS = {"cross": cross, "kron": kron, "trace": trace}
