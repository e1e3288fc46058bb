"""Softmax and its family, with their gradients.

Kernels named ``..._rows`` work along the last axis of an (n, m) array, those named ``..._axis``
along the middle one of (outer, m, inner). Short rows are a warp's, long ones a block's, and rows of
a middle axis a thread's, beside its neighbours; see ``runtime/teams.py``. Rows that fit into the
registers of their team have kernels in ``runtime/held_norm.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda

from .runtime import long_rows
from .runtime.held import grid_for_rows, held_by
from .runtime.held_norm import (
    softmax_grad_held,
    softmax_held,
)
from .runtime.launch import made, start
from .runtime.maths import math
from .runtime.shape import BLOCK, WARPS
from .runtime.teams import Team, exponentials, grid_of, rows_of, team_for

__all__ = [
    "log_softmax_axis",
    "log_softmax_axis_grad",
    "log_softmax_rows",
    "log_softmax_rows_grad",
    "logsumexp_axis",
    "logsumexp_rows",
    "softmax_axis",
    "softmax_axis_grad",
    "softmax_rows",
    "softmax_rows_grad",
]


def _lines(make: Callable[..., Any], shape: Any, options: tuple, first: Any, *args: Any) -> None:
    """Start the kernel that ``make(real, team, *options)`` makes on the middle axis of shape."""
    outer, m, inner = shape
    n = outer * inner
    held = held_by(m, first, *args) if inner == 1 and n else None
    if held is not None:
        kernel = made(_HELD[make], first.itemsize, held, *options)
        start(kernel, grid_for_rows(held, n), BLOCK, first, *args, n, m)
    elif n and make is _softmax and inner == 1:
        long_rows.softmax(first, args[0], n, m, *options)
    elif n:
        team = team_for(m, inner)
        kernel = made(make, first.itemsize, team, *options)
        start(kernel, grid_of(team, n), BLOCK, first, *args, n, m, inner)


def _softmax(real: Any, team: Team, log: bool) -> Any:
    """The kernel of softmax, or of its logarithm."""
    width, count, row_of = team.width, team.count, rows_of(team)
    peak_of, mass_of = exponentials(real, team)

    def softmax(out, x, n, m, inner):
        shared = cuda.shared.array(WARPS, real)
        lane = cuda.threadIdx.x % width
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            row, step = row_of(i, m, inner)
            end = m if i < n else 0
            peak = peak_of(x, row, step, lane, end, shared)
            total = mass_of(x, row, step, lane, end, peak, shared)
            shift = real(math.log(total)) if log and end > 0 else real(0)
            for j in range(lane, end, width):
                value = x[row + j * step] - peak
                out[row + j * step] = value - shift if log else real(math.exp(value)) / total
            base += cuda.gridDim.x * count

    return softmax


def _softmax_grad(real: Any, team: Team, log: bool) -> Any:
    width, count, total_of, row_of = team.width, team.count, team.sum, rows_of(team)

    def softmax_grad(gx, g, out, n, m, inner):
        shared = cuda.shared.array(WARPS, real)
        lane = cuda.threadIdx.x % width
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            row, step = row_of(i, m, inner)
            end = m if i < n else 0
            total = real(0)
            for j in range(lane, end, width):
                at = row + j * step
                total += g[at] if log else g[at] * out[at]
            total = total_of(total, shared)
            for j in range(lane, end, width):
                at = row + j * step
                if log:
                    gx[at] = g[at] - real(math.exp(out[at])) * total
                else:
                    gx[at] = out[at] * (g[at] - total)
            base += cuda.gridDim.x * count

    return softmax_grad


_HELD = {_softmax: softmax_held, _softmax_grad: softmax_grad_held}


def softmax_rows(out, x):
    """Exponentials scaled to sum to one in each row. out (n, m) C; x (n, m) C; out may be x."""
    _lines(_softmax, (*x.shape, 1), (False,), out, x)


def softmax_rows_grad(gx, g, out):
    """``out (g - sum(g out))`` in each row. gx, g, out (n, m) C; gx may be g."""
    _lines(_softmax_grad, (*out.shape, 1), (False,), gx, g, out)


def log_softmax_rows(out, x):
    """Logarithm of softmax in each row. out (n, m) C; x (n, m) C; out may be x."""
    _lines(_softmax, (*x.shape, 1), (True,), out, x)


def log_softmax_rows_grad(gx, g, out):
    """``g - exp(out) sum(g)`` in each row. gx, g, out (n, m) C; gx may be g."""
    _lines(_softmax_grad, (*out.shape, 1), (True,), gx, g, out)


def softmax_axis(out, x):
    """Softmax along the middle axis. out, x (outer, m, inner) C; out may be x."""
    _lines(_softmax, x.shape, (False,), out, x)


def softmax_axis_grad(gx, g, out):
    """Gradient of softmax along the middle axis. gx, g, out (outer, m, inner) C; gx may be g."""
    _lines(_softmax_grad, out.shape, (False,), gx, g, out)


def log_softmax_axis(out, x):
    """Logarithm of softmax along the middle axis. out, x (outer, m, inner) C; out may be x."""
    _lines(_softmax, x.shape, (True,), out, x)


def log_softmax_axis_grad(gx, g, out):
    """Gradient of log_softmax, middle axis. gx, g, out (outer, m, inner) C; gx may be g."""
    _lines(_softmax_grad, out.shape, (True,), gx, g, out)


def _logsumexp(real: Any, team: Team) -> Any:
    width, count, row_of = team.width, team.count, rows_of(team)
    peak_of, mass_of = exponentials(real, team)

    def logsumexp(out, x, n, m, inner):
        shared = cuda.shared.array(WARPS, real)
        lane = cuda.threadIdx.x % width
        base = cuda.blockIdx.x * count
        while base < n:
            i = base + cuda.threadIdx.x // width
            row, step = row_of(i, m, inner)
            end = m if i < n else 0
            peak = peak_of(x, row, step, lane, end, shared)
            if abs(peak) == real(math.inf):  # inf - inf would be NaN
                peak = real(0)
            total = mass_of(x, row, step, lane, end, peak, shared)
            if lane == 0 and i < n:
                out[i] = (real(math.log(total)) if total > 0 else real(-math.inf)) + peak
                if total != total:
                    out[i] = total
            base += cuda.gridDim.x * count

    return logsumexp


def logsumexp_rows(out, x):
    """Logarithm of the sum of exponentials of each row. out (n) C; x (n, m) C."""
    n, m = x.shape
    logsumexp_axis(out, x.reshape(n, m, 1))


def logsumexp_axis(out, x):
    """``logsumexp_rows`` along the middle axis. out (outer, inner) C; x (outer, m, inner) C."""
    outer, m, inner = x.shape
    n = outer * inner
    if n:
        team = team_for(m, inner)
        kernel = made(_logsumexp, x.itemsize, team)
        start(kernel, grid_of(team, n), BLOCK, out, x, n, m, inner)
