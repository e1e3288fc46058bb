"""Softmax and layer normalisation, with their gradients, of rows that a team can hold.

Every element is read once and kept in registers, see ``held.py``; rows that are longer, and
those of a middle axis, are in ``kernels/cuda/norm.py`` and ``layer_norm.py``.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from .held import Held, reader, summed, writer
from .maths import math
from .shape import WARPS

__all__ = ["layer_norm_grad_held", "layer_norm_held", "softmax_grad_held", "softmax_held"]


def softmax_held(real: Any, held: Held, log: bool) -> Any:
    """The kernel of softmax, or of its logarithm, for rows that a team can hold."""
    width, count, size = held.width, held.count, held.size
    read, write, (total_of, largest_of) = reader(real, held), writer(held), summed(held)

    def softmax(out, x, n, m):
        shared = cuda.shared.array(WARPS, real)
        values = cuda.local.array(size, real)
        lane = cuda.threadIdx.x % width
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            end = m if i < n else 0
            read(values, x, i * m, lane, end, real(-math.inf))
            peak = values[0]
            for k in range(1, size):
                peak = values[k] if values[k] > peak or values[k] != values[k] else peak
            peak = largest_of(peak, shared)
            total = real(0)
            for k in range(size):
                values[k] -= peak
                power = real(math.exp(values[k]))
                total += power
                if not log:
                    values[k] = power
            total = total_of(total, shared)
            if log:
                shift = real(math.log(total)) if end > 0 else real(0)
                for k in range(size):
                    values[k] -= shift
            else:
                part = real(1) / total
                for k in range(size):
                    values[k] *= part
            write(out, values, i * m, lane, end)
            base += cuda.gridDim.x * count

    return softmax


def softmax_grad_held(real: Any, held: Held, log: bool) -> Any:
    """The kernel of the gradient of either."""
    width, count, size = held.width, held.count, held.size
    read, write, (total_of, _) = reader(real, held), writer(held), summed(held)

    def softmax_grad(gx, g, out, n, m):
        shared = cuda.shared.array(WARPS, real)
        values, grads = cuda.local.array(size, real), cuda.local.array(size, real)
        lane = cuda.threadIdx.x % width
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            end = m if i < n else 0
            read(grads, g, i * m, lane, end, real(0))
            read(values, out, i * m, lane, end, real(0))
            total = real(0)
            for k in range(size):
                total += grads[k] if log else grads[k] * values[k]
            total = total_of(total, shared)
            for k in range(size):
                if log:
                    grads[k] -= real(math.exp(values[k])) * total
                else:
                    grads[k] = values[k] * (grads[k] - total)
            write(gx, grads, i * m, lane, end)
            base += cuda.gridDim.x * count

    return softmax_grad


def layer_norm_held(real: Any, held: Held) -> Any:
    """The kernel of layer normalisation."""
    width, count, size, lanes = held.width, held.count, held.size, held.lanes
    read, write, (total_of, _) = reader(real, held), writer(held), summed(held)

    def layer_norm(out, mean, rstd, x, weight, bias, eps, affine, n, m):
        shared = cuda.shared.array(WARPS, real)
        values, along = cuda.local.array(size, real), cuda.local.array(size, real)
        lane = cuda.threadIdx.x % width
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            end = m if i < n else 0
            read(values, x, i * m, lane, end, real(0))
            total = real(0)
            for k in range(size):
                total += values[k]
            center = total_of(total, shared) / real(m)
            total = real(0)
            for k in range(size):
                values[k] -= center
                if (k // lanes * width + lane) * lanes < end:
                    total += values[k] * values[k]
            total = total_of(total, shared)
            scale = real(1) / real(math.sqrt(total / real(m) + real(eps)))
            if lane == 0 and i < n:
                mean[i], rstd[i] = center, scale
            for k in range(size):
                values[k] *= scale
            if affine & 1:
                read(along, weight, 0, lane, end, real(0))
                for k in range(size):
                    values[k] *= along[k]
            if affine & 2:
                read(along, bias, 0, lane, end, real(0))
                for k in range(size):
                    values[k] += along[k]
            write(out, values, i * m, lane, end)
            base += cuda.gridDim.x * count

    return layer_norm


def layer_norm_grad_held(real: Any, held: Held) -> Any:
    """The kernel of its gradient with respect to x."""
    width, count, size = held.width, held.count, held.size
    read, write, (total_of, _) = reader(real, held), writer(held), summed(held)

    def layer_norm_grad(gx, g, x, mean, rstd, weight, affine, n, m):
        shared = cuda.shared.array(WARPS, real)
        units, inners = cuda.local.array(size, real), cuda.local.array(size, real)
        scales = cuda.local.array(size, real)
        lane = cuda.threadIdx.x % width
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            end = m if i < n else 0
            read(units, x, i * m, lane, end, real(0))
            read(inners, g, i * m, lane, end, real(0))
            center = mean[i] if i < n else real(0)
            scale = rstd[i] if i < n else real(0)
            if affine & 1:
                read(scales, weight, 0, lane, end, real(0))
                for k in range(size):
                    inners[k] *= scales[k]
            total, along = real(0), real(0)
            for k in range(size):
                units[k] = (units[k] - center) * scale
                total += inners[k]
                along += inners[k] * units[k]
            total = total_of(total, shared) / real(m)
            cuda.syncthreads()
            along = total_of(along, shared) / real(m)
            for k in range(size):
                inners[k] = scale * (inners[k] - total - units[k] * along)
            write(gx, inners, i * m, lane, end)
            base += cuda.gridDim.x * count

    return layer_norm_grad
