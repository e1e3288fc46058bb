"""Products of matrices: which kernel makes one, and with what tiles.

The kernel without tensor cores is in ``runtime/product.py``. Halves go to tensor cores, see
``runtime/halves.py`` and ``runtime/cores.py``, and large products of float32 where the device
multiplies their parts fast enough, see ``runtime/parted.py``, or where the user lets them be
rounded. Where the user has chosen cuBLASLt it makes the large ones: see ``runtime/cublas.py``.
Start reading at ``_multiply``.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from .. import backend, precision
from .runtime import cublas, device
from .runtime.cores import ADD, BIAS, NEW, core_kernel
from .runtime.launch import made, start, strided_grid
from .runtime.product import added, product_tile, tiled
from .runtime.shape import BLOCK, DOUBLES, SIMULATED, SINGLES
from .runtime.tiles import MOST

if not SIMULATED:  # which has no copies that end later
    from .runtime import halves, parted

__all__ = ["addmm", "bmm", "integer_mm", "mm"]


NARROWEST = min(tile.cols for tile in (*SINGLES, *DOUBLES))
"""Columns of the narrowest tile: of so many and more is each, in a grid of which there are MOST."""


def _tall() -> bool:
    """Whether an instruction of the tensor cores makes 16 rows of float64."""
    return device.driver().capability >= (9, 0)


def _rounded() -> bool:
    """Whether factors of float32 are rounded to tf32: not where large products are made of parts,
    for small ones are sooner made without tensor cores."""
    return precision.float32_products != "highest" and (SIMULATED or not halves.has_groups())


def _form(a: Any, line: int, step: int, lines: int, steps: int, batch: int) -> tuple[bool, bool]:
    """How a factor is read, see ``product.slices``. line, step, batch: its strides."""
    words = 16 // a.itemsize
    even = a.pointer % 16 == 0 and batch % words == 0
    if line == 1 and even and lines % words == 0 and step % words == 0:
        return False, True
    if step == 1:
        return True, even and steps % words == 0 and line % words == 0
    return False, False


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
    if not SIMULATED and size < 8:
        by_cores = halves if size == 2 else parted
        if by_cores.multiplied(out, x, y, bias, (n, m, k), strides, batch, epilogue):
            return
    most = MOST * NARROWEST
    if m > most:
        for first in range(0, m, most):
            part = slice(first, first + most)
            some_y = y[..., part, :] if transy else y[..., part]
            some_bias = None if bias is None else bias[part]
            _multiply(out[..., part], x, some_y, some_bias, transx, transy, epilogue)
        return
    for first in range(0, batch, MOST):
        count = min(batch - first, MOST)
        arrays: list[Any] = [a if first == 0 else a[first:] for a in (out, x, y)]
        arrays.append(arrays[0] if bias is None else bias)
        sizes = n, m, k, x_row, x_step, y_step, y_col, out.strides[-2] // size, *batches
        if size == 2 or (size == 4 and _rounded()):
            kernel, rows, cols, threads = core_kernel(out.dtype, n, m, batch, epilogue)
            grid = -(-n // rows), -(-m // cols), count
            start(kernel, grid, threads, *arrays, *sizes, int(x_step == 1), int(y_col == 1))
        else:
            _start_tiled(*arrays, *sizes, count, epilogue)  # type: ignore[call-arg]


def _start_tiled(
    out, x, y, bias, n, m, k, x_row, x_step, y_step, y_col, out_row, x_batch, y_batch, out_batch,
    batch, epilogue,
):  # fmt: skip
    """Products without tensor cores: in one launch, or in two where several blocks share steps."""
    tiles = SINGLES if out.itemsize == 4 else DOUBLES
    tile, shares = product_tile(tiles, out.itemsize, n, m, k, batch)
    shares = min(shares, max(MOST // batch, 1))
    span, words = tile.depth * tile.parts, 16 // out.itemsize
    share = max(-(-k // (shares * span)), 1) * span
    shares = max(-(-k // share), 1)
    x_form = _form(x, x_row, x_step, n, k, x_batch)
    y_form = _form(y, y_col, y_step, m, k, y_batch)
    kernel = made(tiled, out.itemsize, tile, x_form, y_form, _tall())
    target, ending, row, apart = out, epilogue, out_row, out_batch
    if shares > 1:
        target = device.empty((batch, shares, n, m), out.dtype, out.device)
        ending, row, apart = NEW, m, n * m
    addresses = target.pointer | (bias.pointer if ending == BIAS else 0)
    wide = addresses % 16 == 0 and m % words == row % words == apart % words == 0
    start(
        kernel, (-(-n // tile.rows), -(-m // tile.cols), batch * shares), tile.threads,
        target, x, y, bias, n, m, k, x_row, x_step, y_step, y_col, row,
        x_batch, y_batch, apart, share, shares, ending, int(wide),
    )  # fmt: skip
    if shares > 1:
        start(
            added, (min(batch * n, 1 << 20), -(-m // BLOCK)), BLOCK, out, target, bias, n, m,
            out_row, out_batch, shares, epilogue, batch,
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
