"""Products of matrices: blocks that our own threads share out, see ``gemm.py`` for each of them.

The blocks depend on the sizes alone, so the result does not depend on the number of threads. Where
it does not depend on them, by tiles and on the matrix unit, there are enough for all threads.
"""

from __future__ import annotations

from numba import prange

from ..amx import AMX, parts_multiplied
from ..blas import blas_alone, blas_restore, tiles_below
from ..inner import device
from ..intrinsics import address, itemsize, pointer
from ..machine import kernel
from ..pieces import thread_count
from ..product import VECTORS, gemm, gemm_kernel, product_kernel
from ..vectors import VECTOR_BYTES
from .amx_product import STRIP_COLUMNS, unit_is_faster

__all__ = ["addmm", "bmm", "integer_mm", "mm", "shared_gemm"]

GRAIN = 1 << 19
"""Multiplications from which a second thread pays: about 6 us of work, a launch costs 1."""

TINY = 32
"""Multiplications up to which a product of a batch is a loop: to enter ``gemm`` takes 25 ns."""


@device
def blocks(like, n, m, work, transx, batch):
    """Rows and columns of one block of an ``n`` by ``m`` result, of which there are ``batch``.

    Narrow blocks give a second thread to small products, wide ones pack less: at 1024^3 blocks of
    512 by 512 cost 6 % over a single call, 256 by 256 cost 12 % and 1024 by 128 cost 25 %. Blocks
    of columns are dearer where x is stored transposed, since each of them packs all of x. The
    matrix unit packs both factors, so blocks of 256 gain sooner: 8 % of a transformer's step.
    """
    if (m == 1 or n == 1) and work >= VECTORS:
        return even_part(n, max(1, n // 4), 16), even_part(m, max(256, m // 4), 16)
    if work < GRAIN:
        return n, m
    if work >= 1 << 28:
        rows, cols = even_part(n, 512, 16), even_part(m, 512, 16)
        for _ in range(2):  # a small result of long sums is shared out too
            if ((n + rows - 1) // rows) * ((m + cols - 1) // cols) < 4:
                if rows >= cols:
                    rows = even_part(n, (rows + 1) // 2, 16)
                else:
                    cols = even_part(m, (cols + 1) // 2, 16)
    else:
        width = 256 if work >= (1 << 23 if parts_multiplied(like) else 1 << 25) else 128
        rows, cols = n, m
        if m >= (2 * n if transx and n >= 2 * width else n):
            cols = even_part(m, min(width, (m + 1) // 2), 16)
        else:
            rows = even_part(n, min(width, (n + 1) // 2), 16)
    if AMX:  # a constant: elsewhere nothing of this is compiled
        rows, cols = few_blocks(like, n, m, work // (n * m), rows, cols)
    if VECTOR_BYTES:
        k = work // (n * m)
        unit = AMX and parts_multiplied(like) and unit_is_faster(rows, cols, k)
        return more_blocks(itemsize(like), bool(unit), n, m, k, rows, cols, batch)
    return rows, cols


@device
def few_blocks(like, n, m, k, rows, cols):
    """Where the matrix unit takes all blocks of ``rows`` by ``cols``, larger ones, as many as there
    are threads, for each splits its factors. What the unit makes of 8 rows and a strip of columns
    depends on no others."""
    cols = (cols + STRIP_COLUMNS - 1) // STRIP_COLUMNS * STRIP_COLUMNS
    down, across = (n + rows - 1) // rows, (m + cols - 1) // cols
    if parts_multiplied(like) and unit_is_faster(n - (down - 1) * rows, m - (across - 1) * cols, k):
        count = thread_count()
        across = min(across, max(1, count // down))
        down = min(down, (count + across - 1) // across)
        more = even_part(n, (n + down - 1) // down, 16)
        wider = even_part(m, (m + across - 1) // across, STRIP_COLUMNS)
        least, narrowest = (n - 1) % more + 1, (m - 1) % wider + 1
        if unit_is_faster(least, narrowest, k):
            return more, wider
    return rows, cols


@device
def more_blocks(size, unit, n, m, k, rows, cols, batch):
    """Smaller blocks than ``rows`` by ``cols``, if there are more threads than such blocks of all
    products of a batch.

    Only where tiles or, with ``unit``, the matrix unit take them, which make the same numbers of
    any part of a product: if the last block is one for them too. size: bytes of a number.
    """
    count = thread_count()
    if count <= 2 or (not unit and rows * cols * k >= tiles_below()):
        return rows, cols
    more, wider = rows, cols
    while True:
        least, narrowest = (n - 1) % more + 1, (m - 1) % wider + 1
        if unit:
            taken = unit_is_faster(least, narrowest, k)
        else:
            taken = least >= 16 and narrowest * size >= VECTOR_BYTES
        if not taken:
            return rows, cols
        rows, cols = more, wider
        if batch * ((n + rows - 1) // rows) * ((m + cols - 1) // cols) >= count:
            return rows, cols
        if rows >= cols:
            more = even_part(n, (rows + 1) // 2, 16)
        else:
            wider = even_part(m, (cols + 1) // 2, STRIP_COLUMNS)
        if more * wider * k < GRAIN or (more == rows and wider == cols):
            return rows, cols


@device
def even_part(size, width, whole):
    """``size`` over the number of parts of at most ``width``, rounded up to a multiple of whole."""
    parts = (size + width - 1) // width
    return (size + parts * whole - 1) // (parts * whole) * whole


@device
def can_read(rows, cols, row, col):
    """Whether BLAS reads a matrix whose rows and columns are so many elements apart as stored."""
    by_rows = (col == 1 or cols <= 1) and (row >= cols or rows <= 1)
    return by_rows or ((row == 1 or rows <= 1) and (col >= rows or cols <= 1))


@device(allocates=True)
def readable(x):
    """``x``, or a copy of it if BLAS cannot read it: no unit stride, or rows that overlap."""
    (rows, cols), size = x.shape, x.itemsize
    return x if can_read(rows, cols, x.strides[0] // size, x.strides[1] // size) else x.copy()


@device(allocates=True)
def all_readable(x):
    """``readable`` of each of a batch."""
    (_, rows, cols), size = x.shape, x.itemsize
    return x if can_read(rows, cols, x.strides[1] // size, x.strides[2] // size) else x.copy()


@device
def leading(x):
    """Elements from one stored row to the next, and whether the rows stored are the columns."""
    rows, cols = x.shape
    row, col = x.strides[0] // x.itemsize, x.strides[1] // x.itemsize
    if (col == 1 or cols <= 1) and (row >= cols or rows <= 1):
        return (max(cols, 1) if rows <= 1 else row), False
    return (max(rows, 1) if cols <= 1 else col), True


@device
def multiply(out, x, y, start, ldstart, i, j, n, m):
    """``out = x y + start`` in the block of ``n`` rows from ``i``, ``m`` columns from ``j``.

    start: the address of a matrix whose rows are ``ldstart`` elements apart, or 0.
    """
    n, m = min(n, out.shape[0] - i), min(m, out.shape[1] - j)
    ldx, transx = leading(x)
    ldy, transy = leading(y)
    ldout = max(out.strides[0] // out.itemsize, out.shape[1])
    begin = start + (i * ldstart + j) * out.itemsize if start else 0
    gemm(
        *(out, transx, transy, n, m, x.shape[1]),
        *(address(x) + i * x.strides[0], ldx, address(y) + j * y.strides[1], ldy),
        *(begin, ldstart, address(out) + i * out.strides[0] + j * out.itemsize, ldout),
    )


@gemm_kernel(grain=GRAIN, outputs=0)
def shared_gemm(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
    """``gemm`` as ``mm`` does it, for compiled steps, which have no arrays."""
    rows, cols = blocks(like, n, m, n * m * k, transx, 1)
    across = (m + cols - 1) // cols
    size = itemsize(like)
    previous = blas_alone(n * m * k)
    for b in prange((n + rows - 1) // rows * across):
        i, j = b // across * rows, b % across * cols
        height, width = min(rows, n - i), min(cols, m - j)
        left = x + size * (i if transx else i * ldx)
        right = y + size * (j * ldy if transy else j)
        begin = start + size * (i * ldstart + j) if start else 0
        to = out + size * (i * ldout + j)
        gemm(
            *(like, transx, transy, height, width, k, left, ldx, right, ldy),
            *(begin, ldstart, to, ldout),
        )
    blas_restore(previous)


@product_kernel(grain=GRAIN, allocates=True)
def mm(out, x, y, transx, transy, accumulate):
    """``out = x y``, or ``out += x y`` if ``accumulate``; ``trans*``: take the transpose.

    out (n, m), rows of unit stride; x (n, k), y (k, m) or transposed, any strides.
    """
    x, y = readable(x.T if transx else x), readable(y.T if transy else y)
    (n, k), m = x.shape, y.shape[1]
    if n == 0 or m == 0:
        return
    if k == 0:
        if not accumulate:
            out[:] = 0
        return
    work = n * m * k
    rows, cols = blocks(out, n, m, work, transx, 1)
    across = (m + cols - 1) // cols
    start = address(out) if accumulate else 0
    ldstart = out.strides[0] // out.itemsize
    previous = blas_alone(work)
    for b in prange((n + rows - 1) // rows * across):
        multiply(out, x, y, start, ldstart, b // across * rows, b % across * cols, rows, cols)
    blas_restore(previous)


@product_kernel(grain=GRAIN, allocates=True)
def addmm(out, x, y, bias, transx, transy):
    """``out = x y + bias``, the bias added to each row.

    out (n, m), rows of unit stride; x (n, k), y (k, m) or transposed, any strides; bias (m).
    """
    x, y = readable(x.T if transx else x), readable(y.T if transy else y)
    (n, k), m = x.shape, y.shape[1]
    if n == 0 or m == 0:
        return
    start, ldstart = address(bias), 0
    if k == 0 or bias.strides[0] != bias.itemsize:
        for i in range(n):  # not out[:] = bias, which takes Numba seconds to compile
            for j in range(m):
                out[i, j] = bias[j]
        if k == 0:
            return
        start, ldstart = address(out), out.strides[0] // out.itemsize
    work = n * m * k
    rows, cols = blocks(out, n, m, work, transx, 1)
    across = (m + cols - 1) // cols
    previous = blas_alone(work)
    for b in prange((n + rows - 1) // rows * across):
        i, j = b // across * rows, b % across * cols
        multiply(out, x, y, start, ldstart, i, j, rows, cols)
    blas_restore(previous)


@product_kernel(grain=GRAIN, allocates=True)
def bmm(out, x, y, transx, transy):
    """``out[b] = x[b] y[b]``; a batch stride of 0 repeats one matrix.

    out (b, n, m), rows of unit stride; x (b, n, k), y (b, k, m) or transposed, any strides.
    """
    batch, n, m = out.shape
    k = x.shape[1] if transx else x.shape[2]
    if n == 0 or m == 0 or batch == 0:
        return
    if k == 0:
        out[:] = 0
        return
    work = n * m * k
    if work <= TINY:
        for b in prange(batch):
            for i in range(n):
                for j in range(m):
                    total = x[b, 0, i] if transx else x[b, i, 0]
                    total *= y[b, j, 0] if transy else y[b, 0, j]
                    for h in range(1, k):
                        left = x[b, h, i] if transx else x[b, i, h]
                        total += left * (y[b, j, h] if transy else y[b, h, j])
                    out[b, i, j] = total
        return
    x, y = all_readable(x), all_readable(y)
    ldx, x_turned = leading(x[0].T if transx else x[0])
    ldy, y_turned = leading(y[0].T if transy else y[0])
    ldout = max(out.strides[1] // out.itemsize, m)
    x_row, y_col = x.strides[2 if transx else 1], y.strides[1 if transy else 2]
    first, left, right = address(out), address(x), address(y)
    rows, cols = blocks(out, n, m, work, transx, batch)
    across = (m + cols - 1) // cols
    each = (n + rows - 1) // rows * across
    previous = blas_alone(work)
    for task in prange(batch * each):
        which, b = task // each, task % each
        i, j = b // across * rows, b % across * cols
        gemm(
            *(out, x_turned, y_turned, min(rows, n - i), min(cols, m - j), k),
            *(left + which * x.strides[0] + i * x_row, ldx),
            *(right + which * y.strides[0] + j * y_col, ldy),
            *(0, 0),
            *(first + which * out.strides[0] + i * out.strides[1] + j * out.itemsize, ldout),
        )
    blas_restore(previous)


WHOLE_ROWS, WHOLE_DEEP, WHOLE_WIDE = 32, 16, 256
"""Rows of a product of integers that are made together, and of the right factor the part that stays
in the innermost cache meanwhile: 32 KB of int64."""

FEW_COLUMNS = 16
"""Up to so many columns of integers are sums along rows, not of rows."""


@kernel(grain=16384, allocates=True)
def integer_mm(out, x, y):
    """``out[b] = x[b] y[b]`` for integers, wrapping as they do; all C, rank 3."""
    batch, n, m = out.shape
    k, size = x.shape[2], out.itemsize
    row = m * size
    tasks = (n + WHOLE_ROWS - 1) // WHOLE_ROWS
    for task in prange(batch * tasks):
        b, first = task // tasks, task % tasks * WHOLE_ROWS
        last = min(first + WHOLE_ROWS, n)
        if m <= FEW_COLUMNS:
            columns = y[b].T.copy()
            for i in range(first, last):
                for j in range(m):
                    total = out.dtype.type(0)
                    for h in range(k):
                        total += x[b, i, h] * columns[j, h]
                    out[b, i, j] = total
            continue
        for i in range(first, last):
            for j in range(m):
                out[b, i, j] = 0
        for left in range(0, m, WHOLE_WIDE):
            width = min(WHOLE_WIDE, m - left)
            for begin in range(0, k, WHOLE_DEEP):
                end = min(begin + WHOLE_DEEP, k)
                for i in range(first, last):
                    to = pointer(address(out) + ((b * n + i) * m + left) * size, out.dtype)
                    at, h = address(y) + ((b * k + begin) * m + left) * size, begin
                    while h + 4 <= end:
                        p, q = x[b, i, h], x[b, i, h + 1]
                        r, s = x[b, i, h + 2], x[b, i, h + 3]
                        one, two = pointer(at, out.dtype), pointer(at + row, out.dtype)
                        three, four = (
                            pointer(at + 2 * row, out.dtype),
                            pointer(at + 3 * row, out.dtype),
                        )
                        for j in range(width):
                            to[j] += p * one[j] + q * two[j] + r * three[j] + s * four[j]
                        h += 4
                        at += 4 * row
                    while h < end:
                        p, one = x[b, i, h], pointer(at, out.dtype)
                        for j in range(width):
                            to[j] += p * one[j]
                        h += 1
                        at += row
