"""The distances of each two rows of two matrices. Start reading at ``cdist``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..errors import ShapeError
from ..kernels import machine
from ..kernels.cpu import distances as kernels
from ..tape import grad_mode
from ..tensor import Tensor
from .autocasting import CPU, raised
from .base import Op, broadcast_shape, contiguous, new_empty, sum_to_shape
from .comparison import isfinite, logical_and
from .elementwise import abs, sign, where
from .from_formula import Elementwise
from .linalg import _operands, matmul
from .moments import norm
from .reduce import sum
from .remembered import remembered
from .transpose import transpose
from .view import expand, unsqueeze

__all__ = ["cdist"]


@remembered
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """The p-norm of each row of ``x1`` (..., n, k) less each of ``x2`` (..., m, k): (..., n, m).

    compute_mode: for p 2, whether the squares are ``|x|^2 + |y|^2 - 2 x y``, a product of matrices,
    which is fast and needs no memory for the differences but loses digits where rows are near each
    other: never, always, or where there are more than 25 rows, which is also None's. The gradient
    is 0 where rows are equal.
    """
    if compute_mode not in COMPUTE_MODES:
        raise ValueError(
            f"cdist: {compute_mode} is not a valid value for compute_mode; use one of "
            f"{', '.join(map(repr, COMPUTE_MODES))}."
        )
    if machine.autocasting:
        x1, x2 = raised(x1, x2, on=CPU)
    _operands("cdist", x1, x2)
    sizes: Sequence[tuple[int, ...]] = x1._array.shape, x2._array.shape
    if min(len(sizes[0]), len(sizes[1])) < 2 or sizes[0][-1] != sizes[1][-1]:
        raise ShapeError(
            f"cdist: X1 and X2 must have at least two dimensions and the same number of columns. "
            f"Got {list(sizes[0])} and {list(sizes[1])}."
        )
    rows = max(sizes[0][-2], sizes[1][-2])
    if p == 2.0 and rows > COMPUTE_MODES[compute_mode] and x1._dtype.is_floating_point:
        return ByProduct.apply(x1, x2)
    if p == 2.0 and x1._dtype.is_floating_point and grad_mode.autocast is None:
        return ByDifference.apply(x1, x2)
    if p == 1.0 and has_kernel(x1) and has_kernel(x2) and x1._dtype is x2._dtype:
        return ByKernel.apply(*_stacks(x1, x2), 1)
    apart = _differences(x1, x2)
    return _largest(abs(apart)) if p == math.inf else norm(apart, p, -1)


def _largest(x: Tensor) -> Tensor:
    """The largest along the last dimension, 0 of none; each of several has the whole gradient."""
    if not x._array.shape[-1]:
        return sum(x, -1)
    plain = x.detach()
    most = plain.amax(-1, keepdim=True)
    slopes = where(logical_and(plain == most, isfinite(plain)), x - plain, 0.0)
    return most.squeeze(-1) + sum(slopes, -1)


def has_kernel(x: Tensor) -> bool:
    """Whether distances of rows of ``x`` are made without their differences: on the host, outside
    recordings, of float32 and float64."""
    plain = x._dtype in (dtypes.float32, dtypes.float64)
    return plain and x._device.type == "cpu" and not machine.is_recording()


def _stacks(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the same dimensions in front."""
    shapes = x._array.shape, y._array.shape
    lead = broadcast_shape("cdist", shapes[0][:-2], shapes[1][:-2])
    x, y = [expand(v, *lead, *size[-2:]) for v, size in zip((x, y), shapes, strict=True)]
    return x, y


class ByKernel(Op, remembers=True):
    """Distances of rows of order ``p``, 1 or 2, of stacks with the same dimensions in front."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, p: int) -> Tensor:
        (*lead, n, _), m = x._array.shape, y._array.shape[-2]
        out = new_empty((*lead, n, m), x._dtype, x._device)
        if out._array.size:
            arrays = out._array.reshape((-1, n, m)), *_in_stacks(x, transpose(y.detach(), -2, -1))
            machine.launch(kernels.cdist, *arrays, p)
        ctx.p = p
        ctx.save(x, y, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, y, out = ctx.saved_tensors
        first, second = ctx.needs_input_grad[:2]
        if grad_mode.enabled:
            each = slopes(unsqueeze(g, -1), unsqueeze(x, -2), unsqueeze(y, -3), out, ctx.p)
            return sum(each, -2) if first else None, -sum(each, -3) if second else None
        gx = _kernel_slope(g, out, x, y, ctx.p) if first else None
        if not second:
            return gx, None
        turned = transpose(g, -2, -1), transpose(out.detach(), -2, -1)
        return gx, _kernel_slope(*turned, y, x, ctx.p)


def _in_stacks(*tensors: Tensor) -> list[Any]:
    """Their arrays with one dimension in front of the last two."""
    found = []
    for x in tensors:
        n, k = x._array.shape[-2:]
        lead = math.prod(x._array.shape[:-2])
        found.append(contiguous(x)._array.reshape((lead, n, k)))
    return found


def _kernel_slope(g: Tensor, out: Tensor, x: Tensor, y: Tensor, p: int) -> Tensor:
    """The gradient of ``ByKernel`` by x; no history."""
    gx = new_empty(x._array.shape, x._dtype, x._device)
    if gx._array.size:
        machine.launch(kernels.cdist_grad, *_in_stacks(gx, g, out, x, y), p)
    return gx


def slopes(g: Tensor, x: Tensor, y: Tensor, out: Tensor, p: int) -> Tensor:
    """What ``g`` (..., 1) gives to the differences of ``x`` and ``y``, whose p-norms along the last
    dimension are ``out``, as a differentiable function; p: 1 or 2."""
    if p == 1:
        return sign(x - y) * g
    each: Tensor = ApartSlope.op(g, x, y, unsqueeze(out, -1))
    return each


class Apart(Elementwise):
    """sqrt(x + y - 2 z), 0 where rounding makes a square negative; gradient 0 where that is 0."""

    result = "float"

    def formula(x, y, z):
        return math.sqrt(max(x + y - 2 * z, 0))

    def grad_x(g, out):
        return 0 if out == 0 else 0.5 * g / out

    def grad_y(g, out):
        return 0 if out == 0 else 0.5 * g / out

    def grad_z(g, out):
        return 0 if out == 0 else -g / out


class ByProduct(Op, remembers=True):
    """Euclidean distances of rows, from their lengths and products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        x_square, y_square = sum(x * x, -1, True), unsqueeze(sum(y * y, -1), -2)
        out: Tensor = Apart.op(x_square, y_square, matmul(x, transpose(y, -2, -1)))
        ctx.save(x, y, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, y, out = ctx.saved_tensors
        return _product_slopes(g, x, y, out, *ctx.needs_input_grad)


@remembered
def _product_slopes(
    g: Tensor, x: Tensor, y: Tensor, out: Tensor, first: bool, second: bool
) -> tuple[Tensor | None, ...]:
    """The gradients of ``ByProduct``, as differentiable functions."""
    share = Share.op(g, out)
    gx = gy = None
    if first:
        gx = Less.op(x, sum(share, -1, True), matmul(share, y))
        gx = sum_to_shape(gx, x._array.shape)
    if second:
        gy = Less.op(y, unsqueeze(sum(share, -2), -1), matmul(transpose(share, -2, -1), x))
        gy = sum_to_shape(gy, y._array.shape)
    return gx, gy


class Share(Elementwise):
    """A gradient over the distance that it is of, 0 where that is 0."""

    result = "float"

    def formula(g, out):
        return 0 * g if out == 0 else g / out


class Less(Elementwise):
    """x n - y."""

    def formula(x, n, y):
        return x * n - y


def _differences(x: Tensor, y: Tensor) -> Tensor:
    """Each row of ``x`` less each of ``y``."""
    return unsqueeze(x, -2) - unsqueeze(y, -3)


class ByDifference(Op, remembers=True):
    """Euclidean distances of rows, from their differences."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        out = norm(_differences(x, y), 2.0, -1)
        ctx.save(x, y, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, y, out = ctx.saved_tensors
        return _difference_slopes(g, x, y, out, *ctx.needs_input_grad)


@remembered
def _difference_slopes(
    g: Tensor, x: Tensor, y: Tensor, out: Tensor, first: bool, second: bool
) -> tuple[Tensor | None, ...]:
    """The gradients of ``ByDifference``, as differentiable functions."""
    g, out = unsqueeze(g, -1), unsqueeze(out, -1)
    each = ApartSlope.op(g, unsqueeze(x, -2), unsqueeze(y, -3), out)
    gx = sum_to_shape(sum(each, -2), x._array.shape) if first else None
    return gx, sum_to_shape(-sum(each, -3), y._array.shape) if second else None


class ApartSlope(Elementwise):
    """The gradient of the distance of vectors with respect to x, 0 where they are equal."""

    result = "float"

    def formula(g, x, y, out):
        return 0 * g if out == 0 else g * ((x - y) / out)


COMPUTE_MODES = {
    "use_mm_for_euclid_dist_if_necessary": 25,
    "use_mm_for_euclid_dist": -1,
    "donot_use_mm_for_euclid_dist": math.inf,
    None: 25,
}
"""What ``cdist`` accepts: from more rows than this on a product of matrices is taken."""
