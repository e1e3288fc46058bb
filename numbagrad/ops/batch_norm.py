"""Normalisation by channels: over a batch, over each image, over groups of channels.

Start reading at ``BatchNorm`` and ``batch_norm``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import devices, dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import batch_norm as kernels
from ..kernels.cpu import half_batch_norm as half_kernels
from ..kernels.halves import arithmetic
from ..tape import grad_mode
from ..tensor import Tensor, wrap
from .autocasting import raised
from .axes import DTYPE_WORDS
from .base import Op, as_operand, contiguous, full, new_empty
from .channel_affine import ChannelAffine, affine_by_channels, along_channels, in_planes
from .elementwise import cast, rsqrt
from .norm import LayerNorm, halves_here, in_float32, single
from .remembered import remembered
from .selected import Unsized

__all__: list[str] = []  # in nn.functional alone

NARROW = 16
"""Elements of a plane, one float32 vector of a cache line, from which a channel is read by itself.
"""


def _narrow(planes: Any) -> bool:
    """Whether a channel's numbers lie too far apart in memory to be read by themselves."""
    return 0 < planes.shape[2] < NARROW


def _room(planes: Any, device: Any, sums: int, lines: int) -> list[Any]:
    """What the kernels of rows use: so many arrays of sums, and one of so many lines.

    Nothing on a GPU, whose twins need none.
    """
    n, channels, p = planes.shape
    columns = channels * p if device.type == "cpu" else 0
    parts = max(1, -(-n // kernels.ROWS))
    shapes = [((parts, columns), np.float64)] * sums + [
        ((lines, columns), arithmetic(planes.dtype))
    ]
    return [machine.empty(shape, np.dtype(dtype), device) for shape, dtype in shapes]


def _normalised(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running: tuple[Tensor, Tensor] | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Any, Any]:
    """``x`` normalised, and of each channel the mean and one over the deviation."""
    planes = in_planes(x)
    numpy, channels = arithmetic(x._dtype.numpy), planes.shape[1]
    out = new_empty(x._array.shape, x._dtype, x._device)
    mean = machine.empty((channels,), numpy, x._device)
    rstd = machine.empty((channels,), numpy, x._device)
    spare = machine.empty((channels,), numpy, x._device)
    moved = (spare, spare) if running is None else tuple([r._array for r in running])
    w = mean if weight is None else contiguous(weight)._array
    b = mean if bias is None else contiguous(bias)._array
    affine = (weight is not None) + 2 * (bias is not None)
    kernel, room = kernels.batch_norm, list[Any]()
    if _narrow(planes):
        kernel, room = kernels.batch_norm_rows, _room(planes, x._device, 1, 3)
    elif halves_here(x):
        kernel = half_kernels.batch_norm_of_halves
    if x._array.size:
        machine.launch(
            *(kernel, in_planes(out), mean, rstd, *moved, *room, planes, w, b),
            *(momentum, eps, affine, int(running is not None)),
        )
    return out, mean, rstd


class BatchNorm(Op, plain_notes=True):
    """Each channel of a batch to mean 0 and variance 1, then ``* weight + bias``.

    running: the two statistics to be moved, or None. Where ``x`` are halves on the CPU, all others
    are float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running: tuple[Tensor, Tensor] | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        out, *ctx.statistics = _normalised(x, weight, bias, running, momentum, eps)
        if x._array.size:  # nothing moves the statistics by nothing
            for statistic in running or ():
                statistic._bump_version()
        ctx.statistics, ctx.eps = tuple(ctx.statistics), eps
        ctx.save(x, weight)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, weight = ctx.saved_tensors
        if grad_mode.enabled:
            return _batch_norm_grad(g, x, weight, ctx.eps)
        mean, rstd = [wrap(each, dtypes.from_numpy(each.dtype)) for each in ctx.statistics]
        found: tuple[Tensor, Tensor, Tensor] = _grads(g, x, weight, mean, rstd)
        return found


@remembered
def _grads(
    g: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``BatchNorm``, by the statistics of its channels."""
    channels, kind = (x._array.shape[1],), x._dtype
    if halves_here(x):
        kind = dtypes.float32
    if not x._array.size:
        nothing = full(channels, 0, kind, x._device)
        return full(x._array.shape, 0, x._dtype, x._device), nothing, nothing.clone()
    gx = new_empty(x._array.shape, x._dtype, x._device)
    gweight = new_empty(channels, kind, x._device)
    gbias = new_empty(channels, kind, x._device)
    w = mean._array if weight is None else contiguous(weight)._array
    planes = in_planes(x)
    kernel, room = kernels.batch_norm_grad, list[Any]()
    if _narrow(planes):
        kernel, room = kernels.batch_norm_rows_grad, _room(planes, x._device, 2, 4)
    elif halves_here(x):
        kernel = half_kernels.batch_norm_of_halves_grad
    machine.launch(
        *(kernel, in_planes(gx), gweight._array, gbias._array, *room, in_planes(g), planes),
        *(mean._array, rstd._array, w, int(weight is not None)),
    )
    return gx, gweight, gbias


class BatchNormNoted(Op, remembers=True):
    """``BatchNorm`` that notes the mean and the unbiased variance of each channel in its node:
    who has called it moves the running ones by them, and what it launches is remembered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, bias: Any, eps: float) -> Tensor:
        mean, variance = _of_channels(x), _of_channels(x)
        out, *statistics = _normalised(x, weight, bias, (mean, variance), 1.0, eps)
        ctx.statistics, ctx.eps = tuple(statistics), eps
        ctx.found = mean._array, variance._array
        ctx.save(x, weight)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        return *BatchNorm.backward(ctx, g), None


def _of_channels(x: Tensor) -> Tensor:
    """A zero for each channel: moved by 1, running statistics are those of the batch."""
    return full((x._array.shape[1],), 0, x._dtype, x._device)


def _batch_norm_grad(g: Tensor, x: Tensor, weight: Tensor | None, eps: float) -> tuple:
    """The gradient of batch_norm as differentiable functions of g, x and weight."""
    if halves_here(x):
        gx, *others = _batch_norm_grad(g.float(), x.float(), weight, eps)
        return cast(gx, x._dtype), *others
    dims = (0, *range(2, x._array.ndim))
    away = x - x.mean(dims, keepdim=True)
    scale = rsqrt((away * away).mean(dims, keepdim=True) + eps)
    unit = away * scale
    inner = g if weight is None else g * along_channels(weight, x)
    along = (inner * unit).mean(dims, keepdim=True)
    gx = scale * (inner - inner.mean(dims, keepdim=True) - unit * along)
    return gx, (g * unit).sum(dims), g.sum(dims)


# -- what the arguments must be --------------------------------------------------------------------


def check_channels(
    name: str, x: Any, channels: int, kind: Any = None, **given: Tensor | None
) -> None:
    """Refuse what is not (n, c, ...) floating with one number for each channel in ``given``, of the
    dtype ``kind``, or of that of ``x``."""
    as_operand(name, x)
    for role, tensor in given.items():
        if tensor is None:
            continue
        if as_operand(name, tensor)._array.shape != (channels,):
            raise ShapeError(
                f"{name}: {role} should contain {channels} elements not {tensor.numel()}, one for "
                f"each channel of input {list(x._array.shape)}, but has shape "
                f"{list(tensor._array.shape)}."
            )
        if tensor._dtype is not (kind or x._dtype):
            raise DTypeError(
                f"{name}: expected {role} to have the dtype of input, {x._dtype}, but got "
                f"{tensor._dtype}. Convert one with .to(dtype)."
            )
    if not x._dtype.is_floating_point:
        raise DTypeError(
            f"{name}: not implemented for '{DTYPE_WORDS[x._dtype.name]}', it needs a floating "
            f"dtype. Convert with .float()."
        )


def channels_of(name: str, x: Any, least: int = 2) -> int:
    shape = as_operand(name, x)._array.shape
    if len(shape) < least:
        raise ShapeError(
            f"{name}: Expected at least {least} dimensions, samples and channels first, but got "
            f"input of size {list(shape)}."
        )
    return shape[1]


def several(name: str, x: Tensor, count: int) -> None:
    """Refuse to take the variance of one number."""
    if count == 1:
        raise ShapeError(
            f"{name}: Expected more than 1 value per channel when training, got input size "
            f"{list(x._array.shape)}. Use a larger batch, or eval()."
        )


# -- functions -------------------------------------------------------------------------------------


def _moving(
    norm: Any, x: Tensor, mean: Any, variance: Any, momentum: float, eps: float, more: dict
) -> Tensor:
    """``norm`` of halves in float32; it may move the running statistics, which are rounded back."""
    name, statistics = norm.__name__, {"running_mean": mean, "running_var": variance}
    moved = {role: single(name, role, v, x._dtype) for role, v in statistics.items()}
    out = in_float32(norm, x, **moved, momentum=momentum, eps=eps, **more)
    for role, old in statistics.items():
        if old is not moved[role] and (more.get("training") or more.get("use_input_stats")):
            old.copy_(moved[role])
    return out


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``input`` (n, c, ...) with each channel normalised, then ``* weight + bias``.

    training: by the mean and variance of the batch, towards which running_mean and running_var (c)
    are moved in place by ``momentum``, the variance unbiased; otherwise by these two (Ioffe and
    Szegedy, 2015). On the CPU all four may be float32 where ``input`` is of halves. Raises
    ShapeError if the sizes do not fit, or a channel has one number only.

    >>> batch_norm(tensor([[1.0], [3.0]]), None, None, training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    moves = training and running_mean is not None
    if moves and _moved_apart(input, running_mean, running_var):
        assert running_mean is not None and running_var is not None
        arguments = input, running_mean, running_var, weight, bias, float(eps)
        if grad_mode.enabled and any([getattr(t, "_edge", None) for t in (input, weight, bias)]):
            out = _noted(*arguments)
            mean, variance = out._edge.found
        else:
            out, *found = _told(*arguments)
            mean, variance = [each._array for each in found]
        pair = running_mean._array, running_var._array
        kernels.move_statistics(*pair, mean, variance, float(momentum))
        running_mean._bump_version()
        running_var._bump_version()
        return out
    given = input, running_mean, running_var, weight, bias, training, momentum, eps
    try:
        return (_batch_norm if moves else _again)(*given)
    except Unsized as looked:  # of rows that a mask selects
        return looked.instead(batch_norm, given, {})


def _moved_apart(x: Any, mean: Any, variance: Any) -> bool:
    """Whether running statistics are moved after a remembered call: on the host, of float32 and
    float64, with nobody behind the verbs."""
    if machine.closed or machine.autocasting or type(x) is not Tensor or not x._array.size:
        return False
    for each in (mean, variance):
        if type(each) is not Tensor or each._device is not devices.cpu or not each._flat:
            return False
        if each._dtype is not x._dtype or each._edge is not None or x._dtype.itemsize < 4:
            return False
    return x._device is devices.cpu


@remembered
def _noted(
    input: Tensor, mean: Tensor, variance: Tensor, weight: Any, bias: Any, eps: float
) -> Tensor:
    """``BatchNormNoted``, its arguments checked as those of ``batch_norm``."""
    _check_moving(input, mean, variance, weight, bias, eps)
    out: Tensor = BatchNormNoted.apply(input, weight, bias, eps)
    return out


@remembered
def _told(
    input: Tensor, mean: Tensor, variance: Tensor, weight: Any, bias: Any, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same without a history: the mean and the unbiased variance of each channel too."""
    _check_moving(input, mean, variance, weight, bias, eps)
    found = _of_channels(input), _of_channels(input)
    return _normalised(input, weight, bias, found, 1.0, eps)[0], *found


def _check_moving(x: Tensor, mean: Any, variance: Any, weight: Any, bias: Any, eps: float) -> None:
    """Look at the arguments of ``batch_norm`` that moves statistics."""
    name, kind = "batch_norm", as_operand("batch_norm", x)._dtype
    channels = channels_of(name, x)
    statistics = {"running_mean": mean, "running_var": variance}
    check_channels(name, x, channels, kind, **statistics, weight=weight, bias=bias)
    _check_training(name, x, channels, eps)


def _check_training(name: str, x: Tensor, channels: int, eps: float) -> None:
    """Raise where a batch has no statistics."""
    several(name, x, x._array.size // max(channels, 1))
    if eps < 0:
        raise ValueError(f"{name}: eps must not be negative during training, but got {eps}.")


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """``batch_norm``; what moves statistics writes arguments, and is not remembered."""
    if machine.autocasting:
        input, weight, bias = raised(input, weight, bias)
    name = "batch_norm"
    given, kind = (running_mean, running_var), as_operand(name, input)._dtype
    if halves_here(input):
        affine = {"weight": weight, "bias": bias, "training": training}
        if not training or machine.is_compiling():
            return _moving(batch_norm, input, running_mean, running_var, momentum, eps, affine)
        roles = "running_mean", "running_var", "weight", "bias"
        vectors = running_mean, running_var, weight, bias
        running_mean, running_var, weight, bias = (
            single(name, role, v, kind) for role, v in zip(roles, vectors, strict=True)
        )
        kind = dtypes.float32
    channels = channels_of(name, input)
    statistics = {"running_mean": running_mean, "running_var": running_var}
    check_channels(name, input, channels, kind, **statistics, weight=weight, bias=bias)
    if training:
        _check_training(name, input, channels, eps)
        running = None
        if running_mean is not None and running_var is not None:
            running = running_mean, running_var
        out = BatchNorm.apply(input, weight, bias, running, float(momentum), float(eps))
        for old, new in zip(given, running or given, strict=True):
            if old is not None and old is not new:
                old.copy_(new)  # of halves
        return out
    if running_mean is None or running_var is None:
        raise ShapeError(
            f"{name}: Expected running_mean and running_var to be defined when training=False."
        )
    return ChannelAffine.apply(
        input, *_scale_and_shift(running_mean, running_var, weight, bias, float(eps))
    )


@remembered
def _scale_and_shift(
    mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """By what each channel is multiplied, and what is added; remembered beside large inputs."""
    scale = rsqrt(variance + eps)
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale
    return scale, shift if bias is None else shift + bias


_again = remembered(_batch_norm)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``input`` (n, c, ...) with each channel of each sample normalised, then ``* weight + bias``.

    running_mean, running_var (c) are moved towards the means over the samples of their means and
    unbiased variances, and used instead where use_input_stats is False (Ulyanov et al., 2016).

    >>> instance_norm(tensor([[[1.0, 3.0]]]), eps=0.0).tolist()
    [[[-1.0, 1.0]]]
    """
    if machine.autocasting:
        input, weight, bias = raised(input, weight, bias)
    name = "instance_norm"
    given, kind = (running_mean, running_var), as_operand(name, input)._dtype
    if halves_here(input):
        wide = math.prod(input._array.shape[2:]) >= NARROW
        if wide and use_input_stats and given == (None, None):
            from .group_norm import group_norm

            weight, bias = single(name, "weight", weight, kind), single(name, "bias", bias, kind)
            channels = channels_of(name, input, 3)
            check_channels(name, input, channels, dtypes.float32, weight=weight, bias=bias)
            return group_norm(input, channels, weight, bias, eps)
        affine = {"weight": weight, "bias": bias, "use_input_stats": use_input_stats}
        return _moving(instance_norm, input, running_mean, running_var, momentum, eps, affine)
    channels = channels_of(name, input, 3)
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    vectors = {"running_mean": running_mean, "running_var": running_var}
    check_channels(name, input, channels, **vectors, weight=weight, bias=bias)
    count = math.prod(input._array.shape[2:])
    several(name, input, count)
    if running_mean is not None and running_var is not None:
        dims = tuple(range(2, input._array.ndim))
        plain = input.detach()
        means, variances = plain.mean(dims).mean(0), plain.var(dims).mean(0)
        running_mean.mul_(1 - momentum).add_(means * momentum)
        running_var.mul_(1 - momentum).add_(variances * momentum)
    return affine_by_channels(LayerNorm.apply(input, None, None, count, float(eps)), weight, bias)
