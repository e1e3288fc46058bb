"""Patches of images as columns, and columns added to where they came from.

Beside one another stand the places of a window, and in each the elements that it sees there: out
of an image (h, w) come columns (kh, kw, oh, ow). A task is one image of one channel.
"""

from __future__ import annotations

from numba import prange

from ..inner import device
from ..intrinsics import address, pointer
from ..machine import kernel
from .conv import clear, fold_or_unfold

__all__ = ["fold", "unfold"]


@device
def move_plane(adds, p, columns, x, form):
    """``fold_or_unfold`` of the plane ``p``. columns (planes, kh, kw, oh, ow), x (planes, h, w)."""
    _, height, width = x.shape
    _, kh, kw, oh, ow = columns.shape
    at = address(columns) + p * kh * kw * oh * ow * x.itemsize
    image = address(x) + p * height * width * x.itemsize
    if adds:
        clear(pointer(image, x.dtype), height * width)
    space = (1, height, width, 1, kh, kw, 1, oh, ow)
    fold_or_unfold(x.dtype, x.itemsize, adds, at, image, 1, 0, oh, space, form)


@kernel(grain=16384)
def unfold(out, x, sh, sw, ph, pw, dh, dw):
    """``out[:, i, j, y, x]`` is x at ``y sh - ph + i dh`` and ``x sw - pw + j dw``, 0 outside.

    out (planes, kh, kw, oh, ow), x (planes, h, w): C. s: strides, p: paddings, d: dilations.
    """
    for p in prange(0, x.shape[0]):
        move_plane(False, p, out, x, (1, sh, sw, 0, ph, pw, 1, dh, dw))


@kernel(grain=16384)
def fold(out, x, sh, sw, ph, pw, dh, dw):
    """The gradient of ``unfold``: zeros, plus each number where it was read, in order of i and j.

    out (planes, h, w), x (planes, kh, kw, oh, ow): C.
    """
    for p in prange(0, out.shape[0]):
        move_plane(True, p, x, out, (1, sh, sw, 0, ph, pw, 1, dh, dw))
