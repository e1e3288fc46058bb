"""PyTorch's ``linalg``: what there is for matrices, through LAPACK; see ``ops/lapack.py``.

>>> import numbagrad as ng
>>> ng.linalg.det(ng.tensor([[2.0, 0.0], [0.0, 3.0]])).item()
6.0
"""

from __future__ import annotations

from .ops.lapack import *  # noqa: F403
from .ops.lapack import __all__ as _names
from .ops.linalg import matmul
from .ops.out import LINALG, taking_out

__all__ = [*_names, "matmul"]

__getattr__ = taking_out(globals(), LINALG)


def __dir__() -> list[str]:
    return [*globals(), *LINALG]
