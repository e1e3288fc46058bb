"""Scaling and shifting each channel of (n, c, ...): what normalisations end with.

Start reading at ``ChannelAffine``.
"""

from __future__ import annotations

import math
from typing import Any

from ..kernels import machine
from ..kernels.cpu import batch_norm as kernels
from ..tape import grad_mode
from ..tensor import Tensor
from .base import Op, contiguous, new_empty
from .elementwise import addcmul
from .remembered import remembered

__all__: list[str] = []  # nothing that users call

FEW = 8
"""Elements of a plane below which scaling and shifting it by itself takes longer than the formula
that is broadcast; above, that takes up to four times as long."""


def in_planes(x: Tensor) -> Any:
    """The array of ``x`` as (n, c, p)."""
    array = contiguous(x)._array
    n, channels = array.shape[:2]
    return array.reshape((n, channels, math.prod(array.shape[2:])))


def along_channels(v: Tensor, x: Tensor) -> Tensor:
    """``v`` (c) in a shape that broadcasts against ``x`` (n, c, ...)."""
    return v.reshape((v._array.shape[0], *(1,) * (x._array.ndim - 2)))


def affine_by_channels(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is None or bias is None:
        if weight is not None:
            x = x * along_channels(weight, x)
        return x if bias is None else x + along_channels(bias, x)
    return ChannelAffine.apply(x, weight, bias)


class ChannelAffine(Op, remembers=True):
    """``x * weight + bias``, a number of each for each channel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save(x, weight)
        if _is_formula(x, weight, bias):
            return addcmul(along_channels(bias, x), x, along_channels(weight, x))
        out = new_empty(x._array.shape, x._dtype, x._device)
        vectors = contiguous(weight)._array, contiguous(bias)._array
        machine.launch(kernels.channel_affine, in_planes(out), in_planes(x), *vectors)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, weight = ctx.saved_tensors
        if not any(ctx.needs_input_grad[1:]):
            return g * along_channels(weight, x), None, None
        if grad_mode.enabled or not x._array.size or _is_formula(g, x, weight):
            return _channel_grads(g, x, weight)
        gx = new_empty(x._array.shape, x._dtype, x._device)
        sums = [new_empty(weight._array.shape, x._dtype, x._device) for _ in range(2)]
        arrays = in_planes(g), in_planes(x), contiguous(weight)._array
        kernel, written = kernels.channel_affine_grad, [t._array for t in sums]
        machine.launch(kernel, in_planes(gx), *written, *arrays)
        return gx, *sums


def _is_formula(x: Tensor, *others: Tensor) -> bool:
    """Whether channels are scaled by a formula, which recordings join with others."""
    elsewhere = machine.recording and not machine.all_on_host((x, *others))
    return elsewhere or math.prod(x._array.shape[2:]) < FEW


@remembered
def _channel_grads(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``ChannelAffine``."""
    dims = (0, *range(2, x._array.ndim))
    return g * along_channels(weight, x), (g * x).sum(dims), g.sum(dims)
