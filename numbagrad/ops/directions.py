"""Vectors of length one, and the cosine of the angle between two.

Each is one node on the tape, whose backward is one remembered function: both are of small tensors
as a rule, where the time of Python is all there is. Start reading at ``normalize``.
"""

from __future__ import annotations

from typing import Any

from ..kernels import machine
from ..tape import grad_mode
from ..tensor import Tensor, wrap
from .argument_names import into
from .autocasting import raised
from .base import Op, as_operand, normalize_dim, sum_to_shape
from .elementwise import clamp
from .from_formula import Elementwise
from .moments import norm
from .reduce import sum
from .remembered import remembered
from .view import broadcast_tensors, unsqueeze

__all__: list[str] = []  # PyTorch has them in nn.functional alone


class Unit(Elementwise):
    """x over its length n, or over eps where that is less."""

    result = "float"

    def formula(x, n, eps):
        return x / (eps if n < eps else n)


class UnitSlope(Elementwise):
    """The gradient of ``Unit``; inner is the sum of g * out."""

    result = "float"

    def formula(g, out, inner, n, eps):
        return g / eps if n < eps else (g - out * inner) / n


class Normalize(Op, remembers=True):
    """Vectors of length one along a dim."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: Any, eps: float) -> Tensor:
        length = norm(x, 2.0, dim, True)
        out: Tensor = Unit.op(x, length, eps)
        ctx.dim, ctx.eps, ctx.length = dim, eps, length._array
        ctx.save(x, out)
        return out

    @staticmethod
    def again(ctx: Any, x: Tensor) -> Tensor:
        """The result."""
        out: Tensor = Unit.op(x, wrap(ctx.length, x._dtype), ctx.eps)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, out = ctx.saved_tensors
        if grad_mode.enabled:
            length = norm(x, 2.0, ctx.dim, True)
        else:
            length = wrap(ctx.length, x._dtype)
        return _slope(g, out, length, ctx.dim, ctx.eps)


@remembered
def _slope(g: Tensor, out: Tensor, length: Tensor, dim: Any, eps: float) -> Tensor:
    """The gradient of ``Normalize``, as differentiable functions."""
    found: Tensor = UnitSlope.op(g, out, sum(g * out, dim, True), length, eps)
    return found


@remembered
def normalize(
    x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """``x`` divided by its p-norm along ``dim``, or by ``eps`` where the norm is smaller.

    out: a tensor for the result, where no gradient is asked for.
    """
    if out is not None:
        return into("normalize", normalize, out, (x, p, dim, eps), {})
    if machine.autocasting:
        (x,) = raised(x)
    if p == 2.0 and isinstance(eps, float) and as_operand("normalize", x)._edge is not None:
        return Normalize.apply(x, dim, eps)
    return x / clamp(norm(x, p, dim, True), eps)


class CosineTerm(Elementwise):
    """A term of the cosine of x and y, of lengths n and m, which are at least eps."""

    result = "float"

    def formula(x, y, n, m, eps):
        return (x / (eps if n < eps else n)) * (y / (eps if m < eps else m))


class CosineSlope(Elementwise):
    """The gradient of a cosine with respect to x."""

    result = "float"

    def formula(g, x, y, out, n, m, eps):
        b = y / (eps if m < eps else m)
        return g * b / eps if n < eps else g * (b - out * (x / n)) / n


class Cosine(Op, remembers=True):
    """The cosines of the angles of vectors along a dim, which is counted from behind."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, dim: int, eps: float) -> Tensor:
        lengths = norm(x, 2.0, dim, True), norm(y, 2.0, dim, True)
        out = sum(CosineTerm.op(x, y, *lengths, eps), dim)
        ctx.dim, ctx.eps, ctx.lengths = dim, eps, tuple([n._array for n in lengths])
        ctx.save(x, y, out)
        return out

    @staticmethod
    def again(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        """The result."""
        n, m = [wrap(length, x._dtype) for length in ctx.lengths]
        return sum(CosineTerm.op(x, y, n, m, ctx.eps), ctx.dim)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y, out = ctx.saved_tensors
        if grad_mode.enabled:
            lengths = norm(x, 2.0, ctx.dim, True), norm(y, 2.0, ctx.dim, True)
        else:
            n, m = ctx.lengths
            lengths = wrap(n, x._dtype), wrap(m, y._dtype)
        gx = gy = None
        needs = ctx.needs_input_grad
        if needs[0] and needs[1] and not grad_mode.enabled:
            return _both(g, x, y, out, *lengths, ctx.dim, ctx.eps)
        if needs[0]:
            gx = _of_one(g, x, y, out, *lengths, ctx.dim, ctx.eps)
        if needs[1]:
            gy = _of_one(g, y, x, out, lengths[1], lengths[0], ctx.dim, ctx.eps)
        return gx, gy


def _of_one(
    g: Tensor, x: Tensor, y: Tensor, out: Tensor, n: Tensor, m: Tensor, dim: int, eps: float
) -> Tensor:
    """The gradient with respect to ``x``, as differentiable functions."""
    g, out = unsqueeze(g, dim), unsqueeze(out, dim)
    return sum_to_shape(CosineSlope.op(g, x, y, out, n, m, eps), x._array.shape)


@remembered
def _both(
    g: Tensor, x: Tensor, y: Tensor, out: Tensor, n: Tensor, m: Tensor, dim: int, eps: float
) -> tuple[Tensor, Tensor]:
    gx = _of_one(g, x, y, out, n, m, dim, eps)
    return gx, _of_one(g, y, x, out, m, n, dim, eps)


@remembered
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between ``x1`` and ``x2`` along ``dim``; lengths are at least eps.

    Both broadcast; dim is one of their common shape.

    >>> cosine_similarity(tensor([[3.0, 4.0]]), tensor([[4.0, -3.0], [3.0, 4.0]])).tolist()
    [0.0, 1.0]
    """
    as_operand("cosine_similarity", x1)
    as_operand("cosine_similarity", x2, 1)
    shapes = x1._array.shape, x2._array.shape
    rank = max(len(shapes[0]), len(shapes[1]))
    dim = normalize_dim("cosine_similarity", dim, rank) - (rank or 1)
    sizes = [shape[dim] if -dim <= len(shape) else 1 for shape in shapes]
    # Where they are equal each length is found once, however often the vector is repeated.
    if sizes[0] != sizes[1] or -dim > min(len(shapes[0]), len(shapes[1])):
        x1, x2 = broadcast_tensors(x1, x2)
    if x1._dtype is x2._dtype and isinstance(eps, float) and grad_mode.autocast is None:
        return Cosine.apply(x1, x2, dim, eps)
    return sum(normalize(x1, 2.0, dim, eps) * normalize(x2, 2.0, dim, eps), dim)
