"""The functions of formulas on a GPU, by name and type: NVIDIA's libdevice, or NumPy simulated."""

from __future__ import annotations

import numpy as np

from .shape import SIMULATED

__all__: list[str] = []

if SIMULATED:
    floor_float32 = floor_float64 = np.floor
    ceil_float32 = ceil_float64 = np.ceil
    trunc_float32 = trunc_float64 = np.trunc
    rint_float32 = rint_float64 = np.rint
    exp2_float32 = exp2_float64 = np.exp2
    log2_float32 = log2_float64 = np.log2
else:
    from numba.cuda import libdevice

    floor_float32, floor_float64 = libdevice.floorf, libdevice.floor
    ceil_float32, ceil_float64 = libdevice.ceilf, libdevice.ceil
    trunc_float32, trunc_float64 = libdevice.truncf, libdevice.trunc
    rint_float32, rint_float64 = libdevice.rintf, libdevice.rint
    exp2_float32, exp2_float64 = libdevice.exp2f, libdevice.exp2
    log2_float32, log2_float64 = libdevice.log2f, libdevice.log2
