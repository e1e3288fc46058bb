"""Layer normalisation and its gradient: rows short and long are as in ``norm.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float64

from . import reduce
from .runtime import device
from .runtime.grids import tile_grid
from .runtime.held import Held, grid_for_rows, held_by, lanes_of, reader
from .runtime.held_norm import layer_norm_grad_held, layer_norm_held
from .runtime.launch import made, start
from .runtime.maths import math
from .runtime.shape import BLOCK, WARPS
from .runtime.teams import Team, grid_of, team_for
from .runtime.warp import split

__all__ = ["layer_norm", "layer_norm_grad"]


def _rows(make: Callable[..., Any], n: int, m: int, first: Any, *args: Any) -> None:
    """Start the kernel that ``make(real, team)`` makes on n rows of m elements."""
    if n:
        team = team_for(m)
        start(made(make, first.itemsize, team), grid_of(team, n), BLOCK, first, *args, n, m)


def _layer_norm(real: Any, team: Team) -> Any:
    width, count, total_of = team.width, team.count, team.sum

    def layer_norm(out, mean, rstd, x, weight, bias, eps, affine, n, m):
        shared = cuda.shared.array(WARPS, real)
        lane = cuda.threadIdx.x % width
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            row = i * m
            end = m if i < n else 0
            total = real(0)
            for j in range(lane, end, width):
                total += x[row + j]
            center = total_of(total, shared) / real(m)
            total = real(0)
            for j in range(lane, end, width):
                total += (x[row + j] - center) * (x[row + j] - center)
            total = total_of(total, shared)
            scale = real(1) / real(math.sqrt(total / real(m) + real(eps)))
            if lane == 0 and i < n:
                mean[i], rstd[i] = center, scale
            for j in range(lane, end, width):
                value = (x[row + j] - center) * scale
                if affine & 1:
                    value *= weight[j]
                if affine & 2:
                    value += bias[j]
                out[row + j] = value
            base += cuda.gridDim.x * count

    return layer_norm


def layer_norm(out, mean, rstd, x, weight, bias, eps, affine):
    """Rows of ``x`` shifted to mean 0 and scaled to variance 1, then ``* weight + bias``.

    out (n, m) C; mean, rstd (n) C, for the gradient; x (n, m) C; weight, bias (m) C. affine: bit 1
    if weight is to be used, bit 2 if bias is; an unused one may be any array of rank 1.
    """
    n, m = x.shape
    held = held_by(m, out, x, weight, bias) if n else None
    if held is None:
        _rows(_layer_norm, n, m, out, mean, rstd, x, weight, bias, eps, affine)
    else:
        kernel = made(layer_norm_held, x.itemsize, held)
        args = out, mean, rstd, x, weight, bias, eps, affine
        start(kernel, grid_for_rows(held, n), BLOCK, *args, n, m)


def _layer_norm_grad(real: Any, team: Team) -> Any:
    width, count, total_of = team.width, team.count, team.sum

    def layer_norm_grad(gx, g, x, mean, rstd, weight, affine, n, m):
        shared = cuda.shared.array(WARPS, real)
        lane = cuda.threadIdx.x % width
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            row = i * m
            end = m if i < n else 0
            center = mean[i] if i < n else real(0)
            scale = rstd[i] if i < n else real(0)
            total, along = real(0), real(0)
            for j in range(lane, end, width):
                inner = g[row + j] * weight[j] if affine & 1 else g[row + j]
                total += inner
                along += inner * ((x[row + j] - center) * scale)
            total = total_of(total, shared) / real(m)
            cuda.syncthreads()
            along = total_of(along, shared) / real(m)
            for j in range(lane, end, width):
                inner = g[row + j] * weight[j] if affine & 1 else g[row + j]
                unit = (x[row + j] - center) * scale
                gx[row + j] = scale * (inner - total - unit * along)
            base += cuda.gridDim.x * count

    return layer_norm_grad


ROWS = 4 if BLOCK < 32 else 128
"""Rows whose gradients of weight and bias one thread sums; fixed, so that bits are too."""


def _layer_norm_sums(real: Any, lanes: int) -> Any:
    read = reader(float64, Held(1, 1, lanes))

    def sums(gweight, gbias, g, x, mean, rstd, size, n, m):
        """A thread for each of ``size`` groups of columns of pieces of ROWS rows.

        gweight, gbias: float64 (pieces, m).
        """
        grads, values = cuda.local.array(lanes, float64), cuda.local.array(lanes, float64)
        along, total = cuda.local.array(lanes, float64), cuda.local.array(lanes, float64)
        at = cuda.grid(1)
        while at < size:
            piece, group = split(at, m // lanes)
            for q in range(lanes):
                along[q], total[q] = float64(0), float64(0)
            for i in range(piece * ROWS, min((piece + 1) * ROWS, n)):
                place = i * m + group * lanes
                read(grads, g, place, 0, 1, float64(0))
                read(values, x, place, 0, 1, float64(0))
                for q in range(lanes):
                    total[q] += grads[q]
                    along[q] += grads[q] * float64((real(values[q]) - mean[i]) * rstd[i])
            for q in range(lanes):
                place = piece * m + group * lanes + q
                gweight[place], gbias[place] = along[q], total[q]
            at += cuda.gridsize(1)

    return sums


def layer_norm_grad(gx, gweight, gbias, g, x, mean, rstd, weight, affine):
    """Gradients of ``layer_norm``, the sums over rows accumulated in float64.

    gx (n, m) C; gweight, gbias (m) C, written always; the rest as for ``layer_norm``.
    """
    n, m = x.shape
    args = gx, g, x, mean, rstd, weight, affine
    held = held_by(m, gx, g, x, weight) if x.size else None
    if held is not None:
        kernel = made(layer_norm_grad_held, x.itemsize, held)
        start(kernel, grid_for_rows(held, n), BLOCK, *args, n, m)
    elif x.size:
        _rows(_layer_norm_grad, n, m, *args)
    if not m:
        return
    pieces = max(-(-n // ROWS), 1)
    shape, wide = (1, pieces, m), np.dtype(np.float64)
    partial = [device.empty(shape, wide, gx.device) for _ in range(2)]
    lanes = lanes_of(m, x, g)
    size = pieces * m // lanes
    grid = tile_grid(-(-size // BLOCK))
    sums = made(_layer_norm_sums, x.itemsize, lanes)
    start(sums, grid, BLOCK, *partial, g, x, mean, rstd, size, n, m)
    for out, source in zip((gweight, gbias), partial, strict=True):
        if m == 1:
            reduce.sum(out.reshape(1, 1, 1), source.reshape(1, pieces, 1))
        else:
            reduce.sum(out.reshape(1, 1, m), source)
