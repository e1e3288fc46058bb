"""``grid_sample`` reads images at the places of a grid; ``affine_grid`` makes such a grid.

Three ops whose gradients are one another: ``<g, sample(x, at)>`` is linear in g and in x, and the
weights of its sum are piecewise polynomials of ``at``, whose derivatives are weights again. So
every order exists. Start reading at ``Look`` and ``Sample``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..kernels import machine, taps
from ..kernels.cpu import sample as kernels
from ..kernels.halves import arithmetic
from ..tensor import Tensor
from .autocasting import CPU, raised
from .axes import DTYPE_WORDS
from .base import Op, as_operand, constant, contiguous, new_empty, same_device
from .from_formula import Elementwise
from .linalg import matmul
from .part import narrow
from .remembered import remembered
from .view import reshape

__all__ = ["affine_grid", "grid_sample"]

TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
"""How many elements along each dimension a mode reads."""

PADDINGS = {"zeros": taps.ZEROS, "border": taps.BORDER, "reflection": taps.REFLECTION}


@dataclass(frozen=True)
class Look:
    """How a place is read; see ``kernels/taps.py``. orders: of the derivative along x, y and z."""

    taps: int
    padding: int
    corners: bool
    orders: tuple[int, int, int] = (0, 0, 0)

    def numbers(self) -> tuple[int, ...]:
        """All, as the kernels take them."""
        return (self.taps, self.padding, int(self.corners), *self.orders)

    def raised(self, axis: int) -> Look:
        """With the weights differentiated once more along ``axis``."""
        kx, ky, kz = self.orders
        return replace(self, orders=(kx + (axis == 0), ky + (axis == 1), kz + (axis == 2)))


def _volume(x: Tensor) -> Any:
    """The array of ``x`` (n, c, ...), with three dimensions of space."""
    array = contiguous(x)._array
    shape = array.shape
    return array if len(shape) == 5 else array.reshape((*shape[:2], 1, *shape[2:]))


class Sample(Op, remembers=True):
    """``x`` (n, c, ...) read at the places ``at`` (n, p, r), in elements: (n, c, p)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, at: Tensor, look: Look) -> Tensor:
        ctx.look, ctx.shape = look, x._array.shape
        ctx.save(x if ctx.needs_input_grad[1] else None, at)
        out = new_empty((*ctx.shape[:2], at._array.shape[1]), x._dtype, x._device)
        arrays = out._array, _volume(x), contiguous(at)._array
        machine.launch(kernels.sample, *arrays, *look.numbers())
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        (x, at), look, needs = ctx.saved_tensors, ctx.look, ctx.needs_input_grad
        gx = SampleInputGrad.apply(g, at, look, ctx.shape) if needs[0] else None
        return gx, SamplePlaceGrad.apply(g, x, at, look) if needs[1] else None


class SampleInputGrad(Op, remembers=True):
    """The gradient of Sample with respect to x, of this shape, as a function of g and at."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, at: Tensor, look: Look, shape: tuple) -> Tensor:
        ctx.look = look
        ctx.save(g if ctx.needs_input_grad[1] else None, at)
        gx = new_empty(shape, g._dtype, g._device)
        arrays = _volume(gx), contiguous(g)._array, contiguous(at)._array
        machine.launch(kernels.sample_input_grad, *arrays, *look.numbers())
        return gx

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple:
        (g, at), look, needs = ctx.saved_tensors, ctx.look, ctx.needs_input_grad
        gg = Sample.apply(h, at, look) if needs[0] else None
        return gg, SamplePlaceGrad.apply(g, h, at, look) if needs[1] else None


class SamplePlaceGrad(Op, remembers=True):
    """The gradient of Sample with respect to at, as a function of g, x and at: (n, p, r)."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, at: Tensor, look: Look) -> Tensor:
        ctx.look = look
        ctx.save(g, x, at)
        out = new_empty(at._array.shape, g._dtype, g._device)
        arrays = out._array, contiguous(g)._array, _volume(x), contiguous(at)._array
        machine.launch(kernels.sample_place_grad, *arrays, *look.numbers())
        return out

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple:
        (g, x, at), needs = ctx.saved_tensors, ctx.needs_input_grad
        sums: list[Any] = [None, None, None]
        for axis in range(h._array.shape[2]):
            look, part = ctx.look.raised(axis), narrow(h, 2, axis, 1)
            row = reshape(part, (h._array.shape[0], 1, h._array.shape[1]))
            terms = (
                row * Sample.apply(x, at, look) if needs[0] else None,
                SampleInputGrad.apply(g * row, at, look, x._array.shape) if needs[1] else None,
                part * SamplePlaceGrad.apply(g, x, at, look) if needs[2] else None,
            )
            sums = [t if s is None else s + t for s, t in zip(sums, terms, strict=True)]
        return tuple(sums)


# -- from a grid to places -------------------------------------------------------------------------


class GridPlace(Elementwise):
    """From a coordinate between -1 and 1 to one in elements."""

    def formula(x, scale, shift):
        return (x + 1) * scale + shift


class BorderPlace(Elementwise):
    """x limited to [0, last]; gradient 0 at the limits; NaN becomes 0."""

    def formula(x, last):
        return last if x >= last else (x if x > 0 else 0)

    def grad_x(g, x, last):
        return g if x > 0 and x < last else 0


class ReflectedPlace(Elementwise):
    """x mirrored at low and low + span as often as it takes."""

    def formula(x, low, span):
        turns = abs(x - low) // span
        rest = abs(x - low) - turns * span
        return rest + low if turns % 2 == 0 else span - rest + low

    def grad_x(g, x, low, span):
        return g if (x >= low) == ((abs(x - low) // span) % 2 == 0) else -g


def _places(x: Tensor, grid: Tensor, look: Look) -> Tensor:
    """Where ``grid`` (n, ..., r) points to in ``x``, in elements; cubic taps are padded later."""
    sizes = np.array(x._array.shape[:1:-1], arithmetic(grid._dtype.numpy))

    def beside(values: Any) -> Tensor:
        return constant(values, grid._dtype, grid)

    whole = sizes - 1 if look.corners else sizes
    at = GridPlace.function(grid, beside(whole / 2), 0.0 if look.corners else -0.5)
    if look.taps < 4 and look.padding == taps.REFLECTION:
        at = ReflectedPlace.function(at, 0.0 if look.corners else -0.5, beside(whole))
    if look.taps < 4 and look.padding != taps.ZEROS:
        at = BorderPlace.function(at, beside(sizes - 1))
    n, *shape, rank = grid._array.shape
    return reshape(at, (n, math.prod(shape), rank))


def _check_grid(x: Any, grid: Any, mode: str, padding_mode: str) -> None:
    """Refuse what does not fit, as PyTorch does."""
    name = "grid_sample"
    as_operand(name, x)
    as_operand(name, grid, 1)
    if mode not in TAPS:
        raise ValueError(
            f"{name}: expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in PADDINGS:
        raise ValueError(
            f"{name}: expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    same_device(name, [x, grid])
    if x._dtype is not grid._dtype:
        raise DTypeError(
            f"{name}: expected input and grid to have same dtype, but input has {x._dtype} and "
            f"grid has {grid._dtype}. Convert with .to(dtype)."
        )
    if not x._dtype.is_floating_point:
        raise DTypeError(
            f"{name}: not implemented for '{DTYPE_WORDS[x._dtype.name]}', it needs a floating "
            f"dtype. Convert with .float()."
        )
    shape, places = x._array.shape, grid._array.shape
    if len(shape) not in (4, 5) or len(places) != len(shape):
        raise ShapeError(
            f"{name}: expected input and grid to have same number of dimensions, 4 or 5, but got "
            f"input with sizes {list(shape)} and grid with sizes {list(places)}."
        )
    if shape[0] != places[0]:
        raise ShapeError(
            f"{name}: expected grid and input to have same batch size, but got input with sizes "
            f"{list(shape)} and grid with sizes {list(places)}."
        )
    if places[-1] != len(shape) - 2:
        raise ShapeError(
            f"{name}: expected grid to have size {len(shape) - 2} in last dimension, but got grid "
            f"with sizes {list(places)}."
        )
    if 0 in shape[2:]:
        raise ShapeError(
            f"{name}: expected input to have non-empty spatial dimensions, but input has sizes "
            f"{list(shape)}."
        )
    if mode == "bicubic" and len(shape) == 5:
        raise ShapeError(f"{name}: bicubic interpolation only supports 4D input.")


@remembered
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """``input`` read at the places of ``grid``.

    input (n, c, h, w) and grid (n, oh, ow, 2) give (n, c, oh, ow); input (n, c, d, h, w) and grid
    (n, od, oh, ow, 3) give (n, c, od, oh, ow); both of one floating dtype. The last dimension of
    grid is x, y (and z), from -1 to 1 over the input: over the centres of the elements at its ends
    if align_corners, else (False or None) over their outer edges. mode: "bilinear", "nearest", or
    for images "bicubic" (Keys, 1981, with -0.75). padding_mode, for what lies outside: "zeros",
    "border" or "reflection". Places that are NaN or infinite read as zeros, or as an edge.
    Gradients: to input and grid (zeros for "nearest"), of any order (Jaderberg et al., 2015).
    Raises ShapeError or DTypeError for tensors that do not fit, ValueError for another mode.

    >>> x = tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> grid_sample(x, tensor([[[[0.0, 0.0], [-0.5, -0.5]]]])).tolist()
    [[[[2.5, 1.0]]]]
    """
    if machine.autocasting:
        input, grid = raised(input, grid, on=CPU)
    _check_grid(input, grid, mode, padding_mode)
    look = Look(TAPS[mode], PADDINGS[padding_mode], bool(align_corners))
    out = Sample.apply(input, _places(input, grid, look), look)
    return reshape(out, (*input._array.shape[:2], *grid._array.shape[1:-1]))


@remembered
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """The grid for ``grid_sample`` that maps each place of the output by a matrix of ``theta``.

    theta (n, 2, 3) and size (n, c, h, w) give (n, h, w, 2); theta (n, 3, 4) and size
    (n, c, d, h, w) give (n, d, h, w, 3). align_corners as for ``grid_sample``. Gradient: to theta.

    >>> affine_grid(tensor([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2)).tolist()
    [[[[0.0, 0.0], [1.0, 0.0]]]]
    """
    name, sizes = "affine_grid", [int(n) for n in size]
    if not as_operand(name, theta)._dtype.is_floating_point:
        raise ValueError(
            f"{name}: Expected theta to have floating point type, but got {theta._dtype}."
        )
    rank = len(sizes) - 2
    if rank not in (2, 3):
        raise NotImplementedError(
            f"{name} only supports 4D and 5D sizes, for 2D and 3D affine transforms; got {sizes}."
        )
    if theta._array.shape != (sizes[0], rank, rank + 1):
        raise ShapeError(
            f"{name}: Expected a batch of {rank}D affine matrices of shape {sizes[0]}x{rank}x"
            f"{rank + 1} for size {sizes}. Got {list(theta._array.shape)}."
        )
    if min(sizes) < 1:
        raise ShapeError(f"{name}: Expected non-zero, positive output size. Got {sizes}.")
    lines = [np.linspace(-1, 1, n) if n > 1 else np.zeros(1) for n in sizes[2:]]
    if not align_corners:
        lines = [line * (n - 1) / n for line, n in zip(lines, sizes[2:], strict=True)]
    mesh = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(sizes[2:])], -1)
    base = constant(mesh.reshape(-1, rank + 1), theta._dtype, theta)
    return reshape(matmul(base, theta.transpose(1, 2)), (sizes[0], *sizes[2:], rank))
