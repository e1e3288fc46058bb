"""Products of matrices: tiles in shared memory, a square of the result in each thread's registers.

A block makes a tile of the result. It goes along the summed dimension in steps: all threads bring
a slice of both operands into shared memory, loading the next slice while they multiply this one.
The rows and columns of a thread lie apart by the number of threads across the tile, so that
neighbours read and write neighbouring words. Start reading at ``_tiled``. Halves, and float32 where
the user allows it, go to tensor cores: see ``runtime/cores.py``. Where the user has chosen cuBLASLt
it makes the large ones: see ``runtime/cublas.py``.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from .. import backend, precision
from .runtime import cublas
from .runtime.cores import ADD, BIAS, NEW, core_kernel
from .runtime.launch import made, start, strided_grid
from .runtime.shape import BLOCK, SIMULATED
from .runtime.tiles import MOST, multiplied, tile_for

if not SIMULATED:  # which has no copies that end later
    from .runtime import ring

__all__ = ["addmm", "bmm", "integer_mm", "mm"]


def _tiled(real: Any, tile: int, depth: int, each: int, epilogue: int) -> Any:
    """The kernel for a shape; epilogue: NEW writes, ADD adds to out, BIAS adds a row."""
    across = tile // each
    threads = across * across
    loads = tile * depth // threads
    width = tile + 1
    multiply = multiplied(across, depth, each)

    def tiled(
        out, x, y, bias, n, m, k, x_row, x_step, y_step, y_col, out_row,
        x_batch, y_batch, out_batch, x_by_rows, y_by_rows,
    ):  # fmt: skip
        """x_row, x_step: strides of x along n and k; y_step, y_col: of y along k and m."""
        left = cuda.shared.array((depth, width), real)
        right = cuda.shared.array((depth, width), real)
        acc = cuda.local.array((each, each), real)
        some_x = cuda.local.array(loads, real)
        some_y = cuda.local.array(loads, real)
        column = cuda.local.array(each, real)
        thread = cuda.threadIdx.x
        tx, ty = thread % across, thread // across
        first_row, first_col = cuda.blockIdx.x * tile, cuda.blockIdx.y * tile
        base_x = cuda.blockIdx.z * x_batch
        base_y = cuda.blockIdx.z * y_batch
        for i in range(each):
            for j in range(each):
                acc[i, j] = real(0)
        # Neighbouring threads read along the dimension whose stride is 1.
        for s in range(loads):
            at = thread + s * threads
            i = at // depth if x_by_rows else at % tile
            step = at % depth if x_by_rows else at // tile
            row = first_row + i
            inside = row < n and step < k
            some_x[s] = x[base_x + row * x_row + step * x_step] if inside else real(0)
            j = at % tile if y_by_rows else at // depth
            step = at // tile if y_by_rows else at % depth
            col = first_col + j
            inside = col < m and step < k
            some_y[s] = y[base_y + step * y_step + col * y_col] if inside else real(0)
        start_k = 0
        while start_k < k:
            for s in range(loads):
                at = thread + s * threads
                i = at // depth if x_by_rows else at % tile
                step = at % depth if x_by_rows else at // tile
                left[step, i] = some_x[s]
                j = at % tile if y_by_rows else at // depth
                step = at // tile if y_by_rows else at % depth
                right[step, j] = some_y[s]
            cuda.syncthreads()
            start_k += depth
            if start_k < k:
                for s in range(loads):
                    at = thread + s * threads
                    i = at // depth if x_by_rows else at % tile
                    step = start_k + (at % depth if x_by_rows else at // tile)
                    row = first_row + i
                    inside = row < n and step < k
                    some_x[s] = x[base_x + row * x_row + step * x_step] if inside else real(0)
                    j = at % tile if y_by_rows else at // depth
                    step = start_k + (at // tile if y_by_rows else at % depth)
                    col = first_col + j
                    inside = col < m and step < k
                    some_y[s] = y[base_y + step * y_step + col * y_col] if inside else real(0)
            multiply(acc, left, right, column, tx, ty)
            cuda.syncthreads()
        base = cuda.blockIdx.z * out_batch
        for i in range(each):
            row = first_row + ty + i * across
            for j in range(each):
                col = first_col + tx + j * across
                if row < n and col < m:
                    at = base + row * out_row + col
                    if epilogue == ADD:
                        out[at] = out[at] + acc[i, j]
                    elif epilogue == BIAS:
                        out[at] = acc[i, j] + bias[col]
                    else:
                        out[at] = acc[i, j]

    return tiled


def _multiply(out: Any, x: Any, y: Any, bias: Any, transx: int, transy: int, epilogue: int) -> None:
    """``out = x y`` on stacks of matrices, or on matrices."""
    n, m = out.shape[-2:]
    if out.size == 0:
        return
    if backend.products == "cublaslt" and cublas.multiplied(
        out, x, y, bias, transx, transy, epilogue == ADD, False
    ):
        return
    size = out.itemsize
    x_row, x_step = x.strides[-2] // size, x.strides[-1] // size
    y_step, y_col = y.strides[-2] // size, y.strides[-1] // size
    k = x.shape[-1]
    if transx:
        x_row, x_step, k = x_step, x_row, x.shape[-2]
    if transy:
        y_step, y_col = y_col, y_step
    stacked = len(out.shape) == 3
    batch = out.shape[0] if stacked else 1
    batches = [a.strides[0] // size if stacked else 0 for a in (x, y, out)]
    strides = x_row, x_step, y_step, y_col
    if size == 2 and not SIMULATED and ring.multiplied(
        out, x, y, bias, (n, m, k), strides, batch, epilogue
    ):
        return
    if size == 2 or (size == 4 and precision.float32_products != "highest"):
        kernel, rows, cols, threads = core_kernel(out.dtype, n, m, batch, epilogue)
    else:
        chosen = tile_for(size, n, m, batch)
        kernel = made(_tiled, size, *chosen, epilogue)
        rows = cols = chosen[0]
        threads = (chosen[0] // chosen[2]) ** 2
    most = MOST * cols
    if m > most:
        for first in range(0, m, most):
            part = slice(first, first + most)
            some_y = y[..., part, :] if transy else y[..., part]
            some_bias = None if bias is None else bias[part]
            _multiply(out[..., part], x, some_y, some_bias, transx, transy, epilogue)
        return
    for first in range(0, batch, MOST):
        count = min(batch - first, MOST)
        grid = -(-n // rows), -(-m // cols), count
        arrays = [a if first == 0 else a[first:] for a in (out, x, y)]
        start(
            kernel, grid, threads, *arrays, out if bias is None else bias, n, m, k,
            x_row, x_step, y_step, y_col, out.strides[-2] // size, *batches,
            int(x_step == 1), int(y_col == 1),
        )  # fmt: skip


def mm(out, x, y, transx, transy, accumulate):
    """``out = x y``, or ``out += x y`` if ``accumulate``; ``trans*``: take the transpose.

    out (n, m), rows of unit stride; x (n, k), y (k, m) or transposed, any strides.
    """
    _multiply(out, x, y, None, transx, transy, ADD if accumulate else NEW)


def addmm(out, x, y, bias, transx, transy):
    """``out = x y + bias``, the bias added to each row.

    out (n, m), rows of unit stride; x (n, k), y (k, m) or transposed, any strides; bias (m).
    """
    if not bias.c_contiguous:
        bias = bias.copy()
    _multiply(out, x, y, bias, transx, transy, BIAS)


def bmm(out, x, y, transx, transy):
    """``out[b] = x[b] y[b]``; a batch stride of 0 repeats one matrix.

    out (b, n, m), rows of unit stride; x (b, n, k), y (b, k, m) or transposed, any strides.
    """
    _multiply(out, x, y, None, transx, transy, NEW)


def _integer_mm(out, x, y, size, n, m, k):
    """A thread for each of ``size`` numbers of the result."""
    at = cuda.grid(1)
    while at < size:
        batch, i, j = at // (n * m), at // m % n, at % m
        total = 0
        for h in range(k):
            total += x[(batch * n + i) * k + h] * y[(batch * k + h) * m + j]
        out[at] = total
        at += cuda.gridsize(1)


def integer_mm(out, x, y):
    """``out[b] = x[b] y[b]`` for integers, wrapping as they do; all C, rank 3."""
    _, n, m = out.shape
    if out.size:
        start(_integer_mm, strided_grid(out.size), BLOCK, out, x, y, out.size, n, m, x.shape[2])
