"""Convolutions over bands on the matrix unit of Intel's processors, of float32 and bfloat16.

Arguments and results are nearly those of ``cpu/conv.py``; ``ops/conv_form.py`` says when. See
``unit_bands.py`` and, for the gradient of the weight, ``unit_weight.py``.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..amx import LINE, parts_multiplied
from ..amx_halves import unit_takes
from ..blas import blas_alone, blas_restore
from ..inner import device, keep
from ..intrinsics import address, pointer
from ..product import gemm_kernel
from .banded import gather_image
from .bands import BACKWARD, FORWARD, ROWS, SUMMED, plan_of
from .conv import clear
from .correlate import tasks_of
from .depthwise import any_infinite
from .unit_bands import (
    extremes_of,
    line_from,
    list_steps,
    new_panels,
    panels_of,
    unit_block,
    weight_panel,
)
from .unit_weight import collect_panel, cut, of_sums, weight_block

__all__ = ["unit_banded", "unit_banded_weight_grad"]


@device
def unit_parts(like):
    """How many parts of a number the unit multiplies, bfloat16 having one; 0 where it is not to."""
    return parts_multiplied(like) if like.itemsize == 4 else min(1, unit_takes(like))


@gemm_kernel(grain=1, takes_halves=True, allocates=True)
def unit_banded(out, x, weight, bias, what, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = sum over c of x[n, c] * weight[o, c]``, correlated, plus ``bias[o]``.

    what: bit 1 if there is a bias; with bit 2 it is the gradient of the input: ``out``, from that
    of the output, ``x``. One kernel, to be compiled once.
    """
    form = (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    kernel = (weight.shape[2], weight.shape[3], weight.shape[4])
    backward, biased, steps_down = what >= 2, what & 1, (1, 1, 1)
    taps = kernel[0] * kernel[1] * kernel[2]
    of_row, of_channel = weight.shape[1] * taps, taps
    if backward:
        of_row, of_channel, steps_down = of_channel, of_row, (sd, sh, sw)
    grid = (
        (out.shape[2] + steps_down[0] - 1) // steps_down[0],
        (out.shape[3] + steps_down[1] - 1) // steps_down[1],
        (out.shape[4] + steps_down[2] - 1) // steps_down[2],
    )
    images, summed, rows = x.shape[0], x.shape[1] // groups, out.shape[1] // groups
    goal = BACKWARD if backward else FORWARD + 0 * groups
    plan = plan_of(images, summed, groups, kernel, grid, form, goal, x.itemsize, x.shape[4])
    steps, panels = list_steps(plan, summed, x.itemsize), new_panels(x, summed, rows, plan)
    exact, tasks = backward and any_infinite(weight), images  # times zeros outside it would be NaN
    if not exact:
        tasks = tasks_of(images, plan)
    previous = blas_alone(out.size * plan[ROWS])
    for task in prange(0, groups * panels_of(rows)):
        weight_panel(task, weight, summed, rows, of_row, of_channel, steps, plan, address(panels))
    ends = extremes_of(x, address(panels), summed, rows, plan)
    how = address(steps), address(panels), ends, unit_parts(out)
    for task in prange(0, tasks):
        if exact:
            gather_image(task, out, x, weight, bias, biased, groups, form)
        else:
            unit_block(task, out, x, weight, not backward, bias, biased, plan, how)
    blas_restore(previous)
    keep(plan)
    keep(steps)
    keep(panels)


@gemm_kernel(grain=1, takes_halves=True, allocates=True)
def unit_banded_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``unit_banded`` with respect to weight."""
    form = (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    kernel = (gweight.shape[2], gweight.shape[3], gweight.shape[4])
    grid = (g.shape[2], g.shape[3], g.shape[4])
    inputs, rows, taps = gweight.shape[1], g.shape[1] // groups, kernel[0] * kernel[1] * kernel[2]
    images, what, wide = x.shape[0], SUMMED + 0 * groups, x.shape[4]
    plan = plan_of(images, inputs, groups, kernel, grid, form, what, x.itemsize, wide)
    chunks, shares = cut(images, grid[0] * grid[1] * grid[2], rows, plan)
    sums = np.empty(chunks * groups * of_sums(rows, inputs, taps) + LINE, np.float32)
    sums_at = line_from(address(sums))
    clear(pointer(address(sums), np.float32), sums.size)
    previous, parts = blas_alone(g.size * plan[ROWS]), unit_parts(g)
    for task in prange(0, chunks * groups * shares):
        weight_block(task, chunks, shares, sums_at, g, x, plan, parts)
    for task in prange(0, groups * panels_of(rows)):
        collect_panel(task, gweight, sums_at, chunks, groups)
    blas_restore(previous)
    keep(plan)
    keep(sums)
