"""The product of ``linear`` with the relu that follows it, in one kernel of cuBLASLt.

Compiled steps use it, see ``compiled/epilogues.py``. Start reading at ``addmm_relu``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .... import devices
from ...formula import Formula
from ...halves import decoded, encoded
from ...loops import ElementwiseKernel
from .. import matmul
from . import cublas, device, elementwise
from .shape import SIMULATED

__all__ = ["RELU", "addmm_relu", "relu_keeps_nan"]


def relu(x):
    """max(x, 0), and NaN of NaN."""
    return x if x > 0 or x != x else 0


RELU = Formula.from_function(relu)
_relu = ElementwiseKernel(RELU)

PROBED = 4 if SIMULATED else 256
"""Rows and columns of the product that shows what becomes of NaN: enough for the library's kernels
of large products."""


def addmm_relu(out, x, y, bias, transx, transy):
    """``out = relu(x y + bias)``; a kernel of its own for relu where the library has no product.

    Shapes and strides as of ``matmul.addmm``.
    """
    if not bias.c_contiguous:
        bias = bias.copy()
    if not cublas.multiplied(out, x, y, bias, transx, transy, False, True):
        matmul.addmm(out, x, y, bias, transx, transy)
        elementwise.run(_relu, (out, out))


@functools.cache
def relu_keeps_nan(dtype: np.dtype, precision: str) -> bool:
    """Whether the library's relu lets NaN through as ours does, shown by a product of NaN.

    Its manual says max(x, 0), which leaves that open. precision: that of products of float32.
    """
    place = devices.to_device("cuda")
    x = device.to_device(encoded(np.full((PROBED, PROBED), np.nan), dtype), place)
    bias = device.to_device(encoded(np.zeros(PROBED), dtype), place)
    out: Any = device.empty(x.shape, dtype, place)
    made = cublas.multiplied(out, x, x, bias, 0, 0, False, True)
    return made and bool(np.isnan(decoded(out.get())).all())
