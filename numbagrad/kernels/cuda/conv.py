"""Convolution and both of its gradients: products of matrices, one factor of which is never made.

The columns of that factor are patches of the input, gathered on the way into shared memory by the
kernel of ``runtime/patches.py``; what is seen from where stands in tables, made once for each set
of sizes by ``runtime/geometry.py``. All is three-dimensional: fewer dimensions are sizes of 1 in
front. The gradient of the input gathers too, so that nothing is added in two places. Where the
result has too few tiles for a GPU several blocks share the steps of one, and ``reduce.sum`` adds
what they have, in order. Start reading at ``_gather``.
"""

from __future__ import annotations

import math
from typing import Any

from numba import cuda

from ...errors import DeviceError
from .. import precision
from ..halves import arithmetic
from . import reduce
from .runtime import device, elementwise
from .runtime.core_patches import core_patched
from .runtime.few_rows import FEW_ROWS, FEW_STEPS, few_rows
from .runtime.geometry import Geometry, geometry
from .runtime.intrinsics import as_type
from .runtime.launch import made, start, strided_grid
from .runtime.patches import patched
from .runtime.product import product_tile
from .runtime.shape import (
    BLOCK,
    CORE_PATCHES,
    DOUBLES,
    PATCHES,
    SIMULATED,
    SQUARE_PATCHES,
    CoreTile,
)
from .runtime.tiles import MOST
from .runtime.warp import split

if not SIMULATED:  # which has no copies that end later
    from .runtime import parted_conv

__all__ = ["conv", "conv_input_grad", "conv_weight_grad"]

FAR = 1 << 30
"""Elements that the images of a share have at the most: a kernel counts them in 32 bits."""


def _ordered(out, weight, order, size, steps, n, apart, group):
    """The weight as a walk of the kernel finds it: a row of ``steps`` for each channel of a result.

    out (groups, n, steps), weight (groups, group): C. apart: elements from row to row of the
    weight; order (steps): where a step is, or -1 for a zero.
    """
    at = cuda.grid(1)
    while at < size:
        row, step = split(at, steps)
        of, channel = split(row, n)
        place = order[step]
        out[at] = weight[of * group + channel * apart + place] if place >= 0 else as_type(out, 0)
        at += cuda.gridsize(1)


def _geometry(forward: bool, x: Any, weight: Any, g: Any, form: tuple, multiple: int) -> Geometry:
    """The tables for a convolution from x to g, or back."""
    inputs, space = weight.shape[1], weight.shape[2:]
    source, result = (x, g) if forward else (g, x)
    channels = inputs if forward else weight.shape[0] // form[0]
    return geometry(
        forward, source.shape[2:], result.shape[2:], space, channels, inputs, form[1:4], form[4:7],
        form[7:10], multiple,
    )  # fmt: skip


def _padded(x: Any, tables: Geometry) -> Any:
    """``x`` with the zeros around it that the tables ask for."""
    if not any(tables.before + tables.after):
        return x
    sizes = list(zip(tables.before, x.shape[2:], tables.after, strict=True))
    out = device.zeros((*x.shape[:2], *[sum(n) for n in sizes]), x.dtype, x.device)
    inner = tuple([slice(before, before + size) for before, size, _ in sizes])
    elementwise.copy(out[(slice(None), slice(None), *inner)], x)
    return out


def _tiles(like: Any, places: bool) -> Any:
    """The tiles for a result like this one. places: see ``patches.patched``."""
    if like.itemsize == 2 or (like.itemsize == 4 and precision.float32_products != "highest"):
        return CORE_PATCHES
    return DOUBLES if like.itemsize == 8 else SQUARE_PATCHES if places else PATCHES


def _tile(
    tiles: Any, itemsize: int, sizes: tuple[int, int, int], groups: int, phases: int, least: int
) -> tuple[Any, int, int]:
    """The tile for rows, columns and steps; steps of a share, and how many shares there are."""
    tile, shares = product_tile(tiles, itemsize, *sizes, groups * phases, True)
    shares = max(min(shares, MOST // phases), least)
    span, k = tile.depth * tile.parts, sizes[2]
    share = max(-(-k // (shares * span)), 1) * span
    return tile, share, max(-(-k // share), 1)


def _start(
    places: bool, out: Any, x: Any, y: Any, bias: Any, tables: Geometry, biased: int,
    tile: Any, share: int, shares: int, sizes: tuple[int, int, int], strides: tuple[int, ...],
    even: bool, wide: bool,
) -> None:  # fmt: skip
    """``patches.patched`` on all groups, and the sum of what shares have.

    sizes: groups, rows, columns; strides: of x for a row, group, image, of y for a group, image, of
    out for a row, group, image. even, wide: whether sizes allow 16 bytes for out and x.
    """
    groups, n, m = sizes
    target = out
    if shares > 1:
        shape = 1, shares, out.size
        target = device.empty(shape, arithmetic(out.dtype), out.device)
    if isinstance(tile, CoreTile):
        kernel = core_patched(x.dtype, tile, places, wide)
    else:
        even = even and target.pointer % 16 == 0
        wide = wide and tile.rows * tile.depth * tile.parts >= tile.threads * 16 // out.itemsize
        tall = tile.cores > 0 and device.driver().capability >= (9, 0)
        kernel = made(patched, out.itemsize, tile, places, wide, tall)
    blocks = -(-n // tile.rows) * -(-m // tile.cols)
    phases = 1 if places else tables.phases
    for first in range(0, groups, MOST):
        start(
            kernel, (blocks, phases * shares, min(groups - first, MOST)), tile.threads,
            target, x, y, bias, tables.taps, tables.lines, tables.form, biased, n, y.shape[0],
            *strides, out.size, share, shares, first, int(even),
        )  # fmt: skip
    if shares > 1:
        reduce.sum(out.reshape(1, 1, out.size), target)


def _gather(
    forward: bool, out: Any, x: Any, weight: Any, bias: Any, biased: int, form: tuple
) -> None:
    """``conv`` from x to out, or ``conv_input_grad`` from what is then g."""
    if not out.size:
        return
    groups, words = form[0], 16 // out.itemsize
    arrays = (x, weight, out) if forward else (out, weight, x)
    phases = 1 if forward else math.prod(map(min, form[1:4], out.shape[2:]))
    if phases > MOST:
        raise DeviceError(
            f"convolution: a transposed one, or the gradient of the input, by strides of "
            f"{list(form[1:4])} has {phases} kinds of places, more than {MOST} that a GPU takes in "
            f"one launch. Windows that do not overlap are a product; or use .cpu()."
        )
    tables = _geometry(forward, *arrays, form, 1 if forward else words)
    n, m = out.shape[1] // groups, tables.places * x.shape[0]
    few = n <= FEW_ROWS and tables.steps <= FEW_STEPS
    tiles = _tiles(out, False)
    tile, share, shares = _tile(tiles, out.itemsize, (n, m, tables.steps), groups, tables.phases, 1)
    by_cores = isinstance(tile, CoreTile)
    if forward and tables.steps % words and (by_cores or tile.large) and not few:
        tables = _geometry(forward, *arrays, form, words)
    x = _padded(x, tables)
    in_rows = tables.row == weight.size // (groups * n)
    if not (forward and in_rows and (weight.pointer % 16 == 0 or few or not by_cores)):
        ordered = device.empty((groups, n, tables.row), weight.dtype, weight.device)
        count = math.prod(weight.shape[2:])
        start(
            _ordered, strided_grid(ordered.size), BLOCK, ordered, weight, tables.order,
            ordered.size, tables.row, n, weight.size // weight.shape[0] if forward else count,
            weight.size // groups,
        )  # fmt: skip
        weight = ordered
    source, result = math.prod(x.shape[2:]), math.prod(out.shape[2:])
    strides = (
        tables.row, n * tables.row, 0, x.shape[1] // groups * source, x.shape[1] * source,
        result, n * result, out.shape[1] * result,
    )  # fmt: skip
    if few:
        kernel = made(few_rows, max(out.itemsize, 4), n)
        for first in range(0, groups, MOST):
            start(
                kernel, (-(-m // BLOCK), tables.phases, min(groups - first, MOST)), BLOCK,
                out, weight, x, bias, tables.taps, tables.lines, tables.form, int(biased),
                x.shape[0], *strides[:2], *strides[3:], first,
            )  # fmt: skip
        return
    _start(
        False, out, weight, x, bias, tables, int(biased), tile, share, shares, (groups, n, m),
        strides, tables.phases == 1 and result % (2 if by_cores else words) == 0,
        tables.row % words == 0 and weight.pointer % 16 == 0,
    )  # fmt: skip


def _by_groups(*given: Any) -> bool:
    """Make a convolution by ``wgmma``, if the device can and it pays; whether it did."""
    return not SIMULATED and parted_conv.multiplied(*given)


# -- twins -----------------------------------------------------------------------------------------


def conv(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = sum over c of x[n, c] * weight[o, c]``, correlated, plus ``bias[o]``.

    out (n, co, od, oh, ow), x (n, ci, d, h, w), weight (co, ci / groups, kd, kh, kw), bias (co): C;
    without ``biased`` it may be any array of rank 1. s: strides, p: zeros in front, d: dilations.
    """
    form = groups, sd, sh, sw, pd, ph, pw, dd, dh, dw
    if not _by_groups("forward", out, weight, x, bias, biased, form):
        _gather(True, out, x, weight, bias, biased, form)


def conv_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``conv`` with respect to x, plus ``bias[c]``; also transposed convolution.

    gx (n, ci, d, h, w), g (n, co, od, oh, ow), weight (co, ci / groups, ...), bias (ci): C.
    """
    form = groups, sd, sh, sw, pd, ph, pw, dd, dh, dw
    if not _by_groups("input", gx, weight, g, bias, biased, form):
        _gather(False, gx, g, weight, bias, biased, form)


def conv_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``conv`` with respect to weight; shapes as there, all C."""
    if not gweight.size:
        return
    if not g.size or not x.size:
        elementwise.fill(gweight, 0)
        return
    form, words = (groups, sd, sh, sw, pd, ph, pw, dd, dh, dw), 16 // gweight.itemsize
    if _by_groups("weight", gweight, g, x, g, 0, form):
        return
    tables = _geometry(True, x, gweight, g, form, 1)
    x = _padded(x, tables)
    n, m = gweight.shape[0] // groups, math.prod(gweight.shape[1:])
    source, result = math.prod(x.shape[2:]), math.prod(g.shape[2:])
    wide = result % words == 0 and g.pointer % 16 == 0
    tiles = _tiles(gweight, True)
    by_cores = isinstance(tiles[0], CoreTile)
    if not wide:
        tiles = tuple([tile for tile in tiles if not tile.large]) or tiles
    k, least = g.shape[0] * result, -(-max(g.size, x.size) // FAR)
    tile, share, shares = _tile(tiles, gweight.itemsize, (n, m, k), groups, 1, least)
    strides = (
        result, n * result, g.shape[1] * result, x.shape[1] // groups * source, x.shape[1] * source,
        m, n * m, 0,
    )  # fmt: skip
    _start(
        True, gweight, g, x, g, tables, 0, tile, share, shares, (groups, n, m), strides,
        m % (2 if by_cores else words) == 0, wide,
    )  # fmt: skip
