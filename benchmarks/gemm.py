"""Products of matrices by our tiles and on the matrix unit beside BLAS, one thread.

``own_is_faster`` and ``unit_is_faster`` rest on this. Each shape is multiplied as stored and with
either factor stored transposed. A row is marked ``chosen`` where a kernel takes this way. Run as a
script it is the process that measures.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from functools import partial
from typing import Any

import numba
import numpy as np

from numbagrad.kernels import blas, product
from numbagrad.kernels.amx import load_amx
from numbagrad.kernels.blas_library import chosen as library
from numbagrad.kernels.cpu import amx_product, gemm, tiled_product
from numbagrad.kernels.intrinsics import address, pointer

from .case import Row, timed_row, uniform
from .measure import interleave
from .processes import python

SUITE = "gemm"
SHAPES = [
    *[(32, 16, 16), (32, 64, 64), (64, 64, 32), (32, 10, 64), (10, 64, 32), (8, 64, 64)],
    *[(32, 256, 784), (32, 128, 256), (128, 256, 32), (256, 784, 32), (64, 64, 2048)],
    *[(128, 256, 784), (256, 784, 128), (128, 128, 256), (256, 256, 256), (512, 128, 128)],
    *[(1, 256, 784), (4, 256, 784), (1024, 256, 784), (512, 512, 512), (2048, 768, 64)],
    *[(784, 256, 1024), (1024, 1024, 1024)],
]
"""Rows, columns and length of the sums."""

AS_STORED = {"xy": (0, 0), "xyT": (0, 1), "xTy": (1, 0), "xTyT": (1, 1)}


def measure() -> list[Row]:
    """A row for each dtype, shape and storage."""
    return [Row(**r) for r in python("-m", "benchmarks.gemm", threads=1)]


@functools.cache
def products(dtype: Any) -> tuple[Any, Any, Any]:
    """Loops over one product: by tiles, on the unit and by BLAS."""
    product.load_products(dtype)
    multiply = blas.sgemm if dtype is np.float32 else blas.dgemm

    @numba.njit(nogil=True, error_model="numpy")
    def by_tiles(times, out, x, y, transx, transy, n, m, k):
        to = pointer(address(out), dtype)
        for _ in range(times):
            tiled_product.by_tiles(
                to, transx, transy, n, m, k, address(x), x.shape[1], address(y), y.shape[1],
                0, 0, address(out), m,
            )  # fmt: skip

    @numba.njit(nogil=True, error_model="numpy")
    def by_unit(times, out, x, y, transx, transy, n, m, k):
        to = pointer(address(out), dtype)
        for _ in range(times):
            amx_product.by_amx(
                to, transx, transy, n, m, k, address(x), x.shape[1], address(y), y.shape[1],
                0, 0, address(out), m, 3,
            )  # fmt: skip

    @numba.njit(nogil=True, error_model="numpy")
    def by_blas(times, out, x, y, transx, transy, n, m, k):
        turn_x = np.int32(blas.TRANS if transx else blas.NO_TRANS)
        turn_y = np.int32(blas.TRANS if transy else blas.NO_TRANS)
        for _ in range(times):
            multiply(
                np.int32(blas.ROW_MAJOR), turn_x, turn_y, np.int32(n), np.int32(m), np.int32(k),
                dtype(1), address(x), np.int32(x.shape[1]), address(y), np.int32(y.shape[1]),
                dtype(0), address(out), np.int32(m),
            )  # fmt: skip

    return by_tiles, by_unit, by_blas


def rows(dtype: Any) -> list[Row]:
    """What this process measures of ``dtype``."""
    (by_tiles, by_unit, by_blas), found = products(dtype), []
    unit = load_amx() and dtype is np.float32
    loops = [by_tiles, by_unit, by_blas] if unit else [by_tiles, by_blas]
    for n, m, k in SHAPES:
        times = max(1, 4_000_000 // (n * m * k))
        for name, (transx, transy) in AS_STORED.items():
            x = uniform(*((k, n) if transx else (n, k))).astype(dtype)
            y = uniform(*((m, k) if transy else (k, m))).astype(dtype)
            results = [np.empty((n, m), dtype) for _ in loops]
            args = (x, y, transx, transy, n, m, k)
            pairs = zip(loops, results, strict=True)
            *ours, theirs = interleave([partial(f, times, r, *args) for f, r in pairs], 15)
            for result in results[:-1]:
                np.testing.assert_allclose(result, results[-1], rtol=1e-3, atol=1e-3)
            below = library().tiles_below
            by_own = gemm.own_is_faster.py_func(dtype().itemsize, transx, transy, n, m, k, below)
            on_unit = unit and amx_product.unit_is_faster.py_func(n, m, k)
            ways = [("", by_own and not on_unit), (" on the unit", on_unit)]
            for (way, chosen), time in zip(ways, ours, strict=False):
                mark = " chosen" if chosen else ""
                what = f"{n} x {m} x {k} {name} {np.dtype(dtype)}{way}{mark}"
                found.append(timed_row(SUITE, what, time.divided(times), theirs.divided(times)))
    return found


if __name__ == "__main__":
    everything = [row for dtype in (np.float32, np.float64) for row in rows(dtype)]
    print(json.dumps([dataclasses.asdict(row) for row in everything]))
