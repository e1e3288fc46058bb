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

from ..halves import arithmetic
from . import reduce
from .runtime import device, elementwise
from .runtime.geometry import Geometry, geometry
from .runtime.launch import made, start, strided_grid
from .runtime.patches import patched
from .runtime.product import product_tile
from .runtime.shape import BLOCK, DOUBLES, PATCHES, SINGLES
from .runtime.tiles import MOST
from .runtime.warp import split

__all__ = ["conv", "conv_input_grad", "conv_weight_grad"]

FAR = 1 << 30
"""Elements that the images of a share have at the most: a kernel counts them in 32 bits."""


def _ordered(out, weight, order, size, steps, inputs, count, group):
    """The weight as the gradient of the input walks along it: a row for each channel of that.

    out (groups, inputs, steps), weight (groups, group): C. order (steps): where a step is.
    """
    at = cuda.grid(1)
    while at < size:
        row, step = split(at, steps)
        of, channel = split(row, inputs)
        out[at] = weight[of * group + channel * count + order[step]]
        at += cuda.gridsize(1)


def _geometry(forward: bool, x: Any, weight: Any, g: Any, form: tuple) -> Geometry:
    """The tables for a convolution from x to g, or back."""
    inputs, space = weight.shape[1], weight.shape[2:]
    source, result = (x, g) if forward else (g, x)
    channels = inputs if forward else weight.shape[0] // form[0]
    return geometry(
        forward, source.shape[2:], result.shape[2:], space, channels, inputs, *_by_three(form)
    )


def _by_three(form: tuple) -> tuple[tuple, tuple, tuple]:
    """strides, paddings, dilations"""
    return form[1:4], form[4:7], form[7:10]


def _padded(x: Any, tables: Geometry) -> Any:
    """``x`` with the zeros around it that the tables ask for."""
    if not any(tables.before + tables.after):
        return x
    sizes = list(zip(tables.before, x.shape[2:], tables.after, strict=True))
    out = device.zeros((*x.shape[:2], *[sum(n) for n in sizes]), x.dtype, x.device)
    inner = tuple([slice(before, before + size) for before, size, _ in sizes])
    elementwise.copy(out[(slice(None), slice(None), *inner)], x)
    return out


def _start(
    places: bool, out: Any, x: Any, y: Any, bias: Any, tables: Geometry, biased: int, groups: int,
    sizes: tuple[int, int, int], strides: tuple[int, ...], even: bool, wide: bool, least: int = 1,
) -> None:  # fmt: skip
    """``patches.patched`` on all groups, in shares if the sizes ask for that.

    sizes: rows, columns and steps; strides: of x for a row, group, image, of y for a group, image,
    of out for a row, group, image. even, wide: whether sizes allow 16 bytes for out and x; least:
    shares at the least.
    """
    n, m, k = sizes
    phases = 1 if places else tables.phases
    itemsize = max(out.itemsize, 4)
    tiles = DOUBLES if itemsize == 8 else SINGLES if places else PATCHES
    tile, shares = product_tile(tiles, itemsize, n, m, k, groups * phases)
    shares = max(min(shares, MOST // phases), least)
    span = tile.depth * tile.parts
    share = max(-(-k // (shares * span)), 1) * span
    shares = max(-(-k // share), 1)
    target = out
    if shares > 1:
        shape = 1, shares, out.size
        target = device.empty(shape, arithmetic(out.dtype), out.device)
    even = even and target.itemsize != 2 and target.pointer % 16 == 0
    wide = wide and x.itemsize != 2 and x.pointer % 16 == 0
    wide = wide and tile.rows * span >= tile.threads * 16 // itemsize
    tall = itemsize == 8 and device.driver().capability >= (9, 0)
    kernel = made(patched, itemsize, tile, places, wide, tall)
    blocks = -(-n // tile.rows) * -(-m // tile.cols)
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
    tables = _geometry(forward, *((x, weight, out) if forward else (out, weight, x)), form)
    x = _padded(x, tables)
    n, steps = out.shape[1] // groups, x.shape[1] // groups * math.prod(weight.shape[2:])
    if not forward:
        ordered = device.empty((groups, n, steps), weight.dtype, weight.device)
        count = math.prod(weight.shape[2:])
        start(
            _ordered, strided_grid(ordered.size), BLOCK, ordered, weight, tables.order,
            ordered.size, steps, n, count, weight.size // groups,
        )  # fmt: skip
        weight = ordered
    source, result = math.prod(x.shape[2:]), math.prod(out.shape[2:])
    strides = (
        steps, n * steps, 0, x.shape[1] // groups * source, x.shape[1] * source,
        result, n * result, out.shape[1] * result,
    )  # fmt: skip
    _start(
        False, out, weight, x, bias, tables, int(biased), groups,
        (n, tables.places * x.shape[0], tables.steps), strides,
        tables.phases == 1 and result % words == 0, tables.multiple % words == 0,
    )  # fmt: skip


# -- twins -----------------------------------------------------------------------------------------


def conv(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = sum over c of x[n, c] * weight[o, c]``, correlated, plus ``bias[o]``.

    out (n, co, od, oh, ow), x (n, ci, d, h, w), weight (co, ci / groups, kd, kh, kw), bias (co): C;
    without ``biased`` it may be any array of rank 1. s: strides, p: zeros in front, d: dilations.
    """
    form = groups, sd, sh, sw, pd, ph, pw, dd, dh, dw
    _gather(True, out, x, weight, bias, biased, form)


def conv_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``conv`` with respect to x, plus ``bias[c]``; also transposed convolution.

    gx (n, ci, d, h, w), g (n, co, od, oh, ow), weight (co, ci / groups, ...), bias (ci): C.
    """
    form = groups, sd, sh, sw, pd, ph, pw, dd, dh, dw
    _gather(False, gx, g, weight, bias, biased, form)


def conv_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``conv`` with respect to weight; shapes as there, all C."""
    if not gweight.size:
        return
    if not g.size or not x.size:
        elementwise.fill(gweight, 0)
        return
    form, words = (groups, sd, sh, sw, pd, ph, pw, dd, dh, dw), 16 // gweight.itemsize
    tables = _geometry(True, x, gweight, g, form)
    x = _padded(x, tables)
    n, m = gweight.shape[0] // groups, math.prod(gweight.shape[1:])
    source, result = math.prod(x.shape[2:]), math.prod(g.shape[2:])
    strides = (
        result, n * result, g.shape[1] * result, x.shape[1] // groups * source, x.shape[1] * source,
        m, n * m, 0,
    )  # fmt: skip
    _start(
        True, gweight, g, x, g, tables, 0, groups, (n, m, g.shape[0] * result), strides,
        m % words == 0, result % words == 0, -(-max(g.size, x.size) // FAR),
    )  # fmt: skip
