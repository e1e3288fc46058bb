"""What kernels of a compiled step find wrong, kept until the host looks.

The flag of a step is written anew in each call; what is not negative must outlive the next call.
"""

from __future__ import annotations

from numba import cuda

from .array import DeviceArray
from .launch import start

__all__ = ["keep_flag"]


def _keep_flag(kept, flag):
    if cuda.grid(1) == 0 and kept[0] < 0:
        kept[0] = flag[0]


def keep_flag(kept: DeviceArray, flag: DeviceArray) -> None:
    """kept, flag (1,) int64: kept becomes flag while it is negative."""
    start(_keep_flag, 1, 1, kept, flag)
