"""A product of matrices: on the matrix unit, by our own tiles, or by BLAS, as is fastest.

Start at ``product``.
"""

from __future__ import annotations

import numpy as np

from ..amx import PACK, PACKED, parts_multiplied
from ..blas import NO_TRANS, ROW_MAJOR, TRANS, dgemm, sgemm, tiles_below
from ..few_rows import rows_by_rows
from ..inner import pasted
from ..intrinsics import itemsize, pointer
from ..machine import kernel
from ..product import LISTED
from ..tile import times_vector, vector_times
from ..vectors import VECTOR_BYTES
from .amx_product import by_amx, pack, unit_is_faster
from .tiled_product import by_tiles

__all__ = ["product", "product_on_unit"]

LONG = 16
"""Numbers in a row from which its product with a vector is a sum of vectors."""


@kernel(outputs=0)
def product(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
    """``out = op(x) op(y) + start``, see ``gemm`` of ``product.py``; ``like`` points to floats."""
    if VECTOR_BYTES:  # a constant: elsewhere the tiles are not compiled
        if by_vectors(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
            return
        if own_is_faster(itemsize(like), transx, transy, n, m, k, tiles_below()):
            by_tiles(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout)
            return
    by_blas(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout)


@kernel(outputs=0)
def product_on_unit(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
    """``product`` of float32 where there is a matrix unit, and what packs factors for it."""
    if transx == PACK:
        pack(like, transy, m, k, y, ldy, out)
        return
    parts = parts_multiplied(like)
    if transy == PACKED or (parts and transy != LISTED and unit_is_faster(n, m, k)):
        by_amx(
            like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout, parts
        )  # fmt: skip
        return
    if by_vectors(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
        return
    if own_is_faster(itemsize(like), transx, transy, n, m, k, tiles_below()):
        by_tiles(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout)
        return
    by_blas(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout)


@pasted
def by_vectors(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
    """``product`` with a matrix of one row or column, or of few rows with a transposed one, by sums
    of vectors; whether it was one."""
    size = itemsize(like)
    if transy == LISTED:
        return False
    if m == 1 and k >= LONG and not transx and (transy or ldy == 1):
        times_vector(like, n, k, x, ldx * size, y, start, ldstart * size, out, ldout * size)
        return True
    if n == 1 and not transx:
        if transy and k >= LONG:
            times_vector(like, m, k, y, ldy * size, x, start, size, out, size)
            return True
        if not transy and m >= LONG and k >= LONG:
            vector_times(like, k, m, x, y, ldy * size, start, out)
            return True
    if transy and not transx and sums_are_faster(size, n, m, k):
        rows_by_rows(
            *(like, n, m, k, x, ldx * size, y, ldy * size),
            *(start, ldstart * size, out, ldout * size),
        )
        return True
    return False


@pasted
def by_blas(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
    """``product`` by BLAS."""
    if start != 0 and start != out:
        for i in range(n):
            to = pointer(out + i * ldout * itemsize(like), like)
            row = pointer(start + i * ldstart * itemsize(like), like)
            for j in range(m):
                to[j] = row[j]
    x_op, y_op = np.int32(TRANS if transx else NO_TRANS), np.int32(TRANS if transy else NO_TRANS)
    order, rows, columns, depth = np.int32(ROW_MAJOR), np.int32(n), np.int32(m), np.int32(k)
    strides = np.int32(ldx), np.int32(ldy), np.int32(ldout)
    beta = 1.0 if start != 0 else 0.0
    if itemsize(like) == 4:
        one, old = np.float32(1), np.float32(beta)
        sgemm(
            *(order, x_op, y_op, rows, columns, depth, one),
            *(x, strides[0], y, strides[1], old, out, strides[2]),
        )
    else:
        dgemm(
            *(order, x_op, y_op, rows, columns, depth, 1.0),
            *(x, strides[0], y, strides[1], beta, out, strides[2]),
        )


@pasted
def sums_are_faster(size, n, m, k):
    """Whether sums of vectors beat tiles, which turn the second factor first, and BLAS: measured as
    ``own_is_faster`` is, with and without AVX-512."""
    deep, narrow = k * size, m * size <= VECTOR_BYTES // 4 * 3
    if n <= 4 or (narrow and n <= 16):
        return deep >= 4 * VECTOR_BYTES
    return n <= 8 and deep >= 16 * VECTOR_BYTES


@pasted
def own_is_faster(size, transx, transy, n, m, k, below):
    """Whether tiles beat BLAS: measured by ``python -m benchmarks gemm``.

    size: of a float; below: the library's ``tiles_below``.
    """
    if transy == LISTED:
        return True
    if m * size <= VECTOR_BYTES // 4 * 3:  # most of a vector would be empty
        return not transx and (not transy or k <= 32 or n >= 64)
    # Tiles do not pack x, which pays when little of it stays in caches.
    return n >= 2 and n * m * k < below
