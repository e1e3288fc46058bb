"""Patches of images as columns, and columns added to where they came from.

A thread makes one number. An element of an image sums what the places of the window saw of it, in
the order of the CPU: one at most for each of the window's elements. Start reading at ``unfold``.
"""

from __future__ import annotations

from numba import cuda

from .runtime.intrinsics import as_type
from .runtime.launch import start, strided_grid
from .runtime.shape import BLOCK
from .runtime.warp import split

__all__ = ["fold", "unfold"]


def _unfold(out, x, size, h, w, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw):
    at = cuda.grid(1)
    while at < size:
        rest, px = split(at, ow)
        rest, py = split(rest, oh)
        rest, j = split(rest, kw)
        plane, i = split(rest, kh)
        y, z = py * sh - ph + i * dh, px * sw - pw + j * dw
        value = as_type(out, 0)
        if 0 <= y < h and 0 <= z < w:
            value = x[(plane * h + y) * w + z]
        out[at] = value
        at += cuda.gridsize(1)


def unfold(out, x, sh, sw, ph, pw, dh, dw):
    """``out[:, i, j, y, x]`` is x at ``y sh - ph + i dh`` and ``x sw - pw + j dw``, 0 outside.

    out (planes, kh, kw, oh, ow), x (planes, h, w): C. s: strides, p: paddings, d: dilations.
    """
    if out.size:
        sizes = *x.shape[1:], *out.shape[1:], sh, sw, ph, pw, dh, dw
        start(_unfold, strided_grid(out.size), BLOCK, out, x, out.size, *sizes)


def _fold(out, x, size, h, w, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw):
    at = cuda.grid(1)
    while at < size:
        rest, z = split(at, w)
        plane, y = split(rest, h)
        total = as_type(out, 0)
        for i in range(kh):
            py = y + ph - i * dh
            if py >= 0 and py % sh == 0 and py < oh * sh:
                line = ((plane * kh + i) * kw * oh + py // sh) * ow
                for j in range(kw):
                    px = z + pw - j * dw
                    if px >= 0 and px % sw == 0 and px < ow * sw:
                        total += x[line + j * oh * ow + px // sw]
        out[at] = total
        at += cuda.gridsize(1)


def fold(out, x, sh, sw, ph, pw, dh, dw):
    """The gradient of ``unfold``: zeros, plus each number where it was read, in order of i and j.

    out (planes, h, w), x (planes, kh, kw, oh, ow): C.
    """
    if out.size:
        sizes = *out.shape[1:], *x.shape[1:], sh, sw, ph, pw, dh, dw
        start(_fold, strided_grid(out.size), BLOCK, out, x, out.size, *sizes)
