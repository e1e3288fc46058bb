"""Products of halves: which of the kernels makes one, and with what tiles.

``warpgroups.py`` on compute capability 9.0 and ``ring.py`` take factors that can be copied by 16
bytes; ``cores.py`` takes the others, and those of the simulator. Start reading at ``multiplied``.
"""

from __future__ import annotations

from typing import Any

from numba.cuda import config

from . import device
from .launch import start
from .ring import BYTES, Shape, ring_kernel
from .tiles import FEW, MOST
from .warpgroups import ALIGN, CAPABILITY, group_kernel

__all__ = ["GROUPS", "SHAPES", "multiplied", "shape_for"]

SHAPES = (
    Shape(2, 2, 64, 64, 32, 3, 9.5),
    Shape(2, 2, 32, 32, 64, 3, 3.6),
    Shape(2, 2, 16, 16, 64, 4, 1.7),
)
"""Of ``ring.py``. Tiles of 128 by 256 gained 1 % of 4096^3, those of 64 by 128 nothing."""

GROUPS = Shape(4, 1, 32, 128, 64, 3, 6.2, ALIGN), Shape(4, 1, 16, 128, 64, 4, 4.2, ALIGN)
"""Of ``warpgroups.py``, beside which the smallest of ``SHAPES`` is used."""


def has_groups() -> bool:
    """Whether the device has ``wgmma``, which later ones do not, and code for it may use that."""
    return device.driver().capability == CAPABILITY[:2] and not config.FORCE_CUDA_CC


def shape_for(n: int, m: int, batch: int, shapes: tuple[Shape, ...]) -> Shape:
    """The shape that takes the least time, if tiles are spread over ``FEW`` multiprocessors."""

    def time(shape: Shape) -> float:
        tiles = -(-n // shape.rows) * -(-m // shape.cols) * batch
        return -(-tiles // FEW) * shape.cost

    return min(shapes, key=time)


def _by_rows(
    array: Any, along: int, across: int, length: int, rest: int, batch: int
) -> bool | None:
    """Whether ``length`` is the dimension of unit stride of a factor, or None if none is, or if
    16 bytes cannot be copied at once. along, across: strides of ``length`` and of ``rest``."""
    if (batch | array.pointer // BYTES) % 8:
        return None
    if along == 1 and across % 8 == 0 and length % 8 == 0:
        return True
    if across == 1 and along % 8 == 0 and rest % 8 == 0:
        return False
    return None


def multiplied(
    out: Any, x: Any, y: Any, bias: Any, sizes: tuple[int, int, int],
    strides: tuple[int, int, int, int], batch: int, epilogue: int,
) -> bool:  # fmt: skip
    """Make ``out = x y`` as ``matmul`` does, if the factors permit it; whether they did.

    sizes: n, m, k; strides: of x along n and k, of y along k and m.
    """
    n, m, k = sizes
    x_row, x_step, y_step, y_col = strides
    stacked = len(out.shape) == 3
    apart = [a.strides[0] // BYTES if stacked else 0 for a in (x, y, out)]
    if batch > MOST or max(sizes) >= 1 << 30:
        return False
    x_by_rows = _by_rows(x, x_step, x_row, k, n, apart[0])
    y_by_rows = _by_rows(y, y_col, y_step, m, k, apart[1])
    if x_by_rows is None or y_by_rows is None:
        return False
    out_row = out.strides[-2] // BYTES
    paired = not (out.pointer // BYTES | out_row | apart[2]) % 4
    shape = shape_for(n, m, batch, (*GROUPS, *SHAPES[2:]) if has_groups() else SHAPES)
    kernel = group_kernel if shape in GROUPS else ring_kernel
    start(
        kernel(out.dtype, shape, epilogue, x_by_rows, y_by_rows),
        (-(-n // shape.rows) * -(-m // shape.cols), 1, batch), shape.threads,
        out, x, y, out if bias is None else bias, n, m, k,
        x_row if x_by_rows else x_step, y_step if y_by_rows else y_col, out_row, *apart,
        int(paired), shared=shape.shared,
    )  # fmt: skip
    return True
