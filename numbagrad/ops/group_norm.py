"""Normalisation over groups of channels: ``group_norm``, exported by ``nn.functional``."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import ShapeError
from ..kernels import machine
from ..kernels.cpu import group_norm as kernels
from ..kernels.halves import arithmetic
from ..tape import grad_mode
from ..tensor import Tensor
from .autocasting import raised
from .base import Op, as_operand, contiguous, new_empty
from .batch_norm import channels_of, check_channels, several
from .channel_affine import FEW, affine_by_channels, along_channels, in_planes
from .elementwise import cast, rsqrt
from .norm import LayerNorm, halves_here, in_float32, single
from .remembered import remembered

__all__: list[str] = []  # in nn.functional alone


class GroupNorm(Op, remembers=True):
    """Each group of channels of each sample to mean 0 and variance 1, then by channels
    ``* weight + bias``; on the host, outside recordings. Where x are halves, others are float32."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
    ) -> Tensor:
        x3, n = in_planes(x), x._array.shape[0]
        out = new_empty(x._array.shape, x._dtype, x._device)
        mean = machine.empty((n, groups), arithmetic(x._dtype.numpy), x._device)
        rstd = machine.empty((n, groups), arithmetic(x._dtype.numpy), x._device)
        w = mean if weight is None else contiguous(weight)._array
        b = mean if bias is None else contiguous(bias)._array
        affine = (weight is not None) + 2 * (bias is not None)
        machine.launch(kernels.group_norm, in_planes(out), mean, rstd, x3, w, b, eps, affine)
        ctx.statistics, ctx.groups, ctx.eps = (mean, rstd), groups, eps
        ctx.save(x, weight)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, weight = ctx.saved_tensors
        if grad_mode.enabled:
            return _group_norm_grad(g, x, weight, ctx.groups, ctx.eps)
        shape, kind = x._array.shape, dtypes.float32 if halves_here(x) else x._dtype
        gx = new_empty(shape, x._dtype, x._device)
        totals = new_empty(shape[:2], kind, x._device)
        alongs = new_empty(shape[:2], kind, x._device)
        w = ctx.statistics[0] if weight is None else contiguous(weight)._array
        machine.launch(
            *(kernels.group_norm_grad, in_planes(gx), totals._array, alongs._array),
            *(in_planes(g), in_planes(x), *ctx.statistics, w, int(weight is not None)),
        )
        needs = ctx.needs_input_grad
        gweight = alongs.sum(0) if needs[1] else None
        return gx, gweight, totals.sum(0) if needs[2] else None


def _group_norm_grad(g: Tensor, x: Tensor, weight: Tensor | None, groups: int, eps: float) -> tuple:
    """The gradient of group_norm as differentiable functions of g, x and weight."""
    if halves_here(x):
        gx, *others = _group_norm_grad(g.float(), x.float(), weight, groups, eps)
        return cast(gx, x._dtype), *others
    shape, dims = x._array.shape, (0, *range(2, x._array.ndim))
    form = shape[0] * groups, -1
    rows = x.reshape(form)
    away = rows - rows.mean(1, keepdim=True)
    scale = rsqrt((away * away).mean(1, keepdim=True) + eps)
    unit = away * scale
    inner = (g if weight is None else g * along_channels(weight, x)).reshape(form)
    along = (inner * unit).mean(1, keepdim=True)
    gx = (scale * (inner - inner.mean(1, keepdim=True) - unit * along)).reshape(shape)
    gweight = (g * unit.reshape(shape)).sum(dims)
    return gx, gweight, g.sum(dims)


@remembered
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """``input`` (n, c, ...) normalised over each of num_groups groups of channels of each sample.

    weight, bias (c) are applied afterwards (Wu and He, 2018). Raises ShapeError unless the groups
    divide the channels.

    >>> group_norm(tensor([[1.0, 3.0]]), 1, eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    if machine.autocasting:
        input, weight, bias = raised(input, weight, bias)
    name = "group_norm"
    kind = as_operand(name, input)._dtype
    elsewhere = machine.is_recording() or input._device.type != "cpu"
    size = math.prod(input._array.shape[2:])
    # A formula, which recordings join with others.
    formula = size < FEW or input._array.size == 0 or elsewhere
    if halves_here(input):
        if formula:
            return in_float32(group_norm, input, num_groups, weight=weight, bias=bias, eps=eps)
        weight, bias = single(name, "weight", weight, kind), single(name, "bias", bias, kind)
        kind = dtypes.float32
    channels = channels_of(name, input)
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(
            f"{name}: Expected number of channels in input to be divisible by num_groups, but got "
            f"input of shape {list(input._array.shape)} and num_groups={num_groups}."
        )
    several(name, input, input._array.shape[0] * channels // num_groups * size)
    check_channels(name, input, channels, kind, weight=weight, bias=bias)
    if formula:
        count = channels // num_groups * size
        rows = LayerNorm.apply(input, None, None, count, float(eps))
        return affine_by_channels(rows, weight, bias)
    return GroupNorm.apply(input, weight, bias, num_groups, float(eps))
