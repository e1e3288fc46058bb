"""What the processor that kernels are compiled for can do."""

from __future__ import annotations

import llvmlite.binding
from numba import config

__all__ = ["features"]


def features() -> frozenset[str]:
    """LLVM's names of its features, such as "+avx2"; empty where LLVM does not know it.

    NUMBA_CPU_FEATURES says what to take it for.
    """
    told = config.CPU_FEATURES
    if told is None:
        try:
            told = llvmlite.binding.get_host_cpu_features().flatten()
        except RuntimeError:
            return frozenset()
    return frozenset(told.split(","))
