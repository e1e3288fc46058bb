"""What the processor that kernels are compiled for can do."""

from __future__ import annotations

import functools

import llvmlite.binding
from numba import config

__all__ = ["features", "is_amd"]


def features() -> frozenset[str]:
    """LLVM's names of its features, such as "+avx2"; empty where LLVM does not know it.

    NUMBA_CPU_FEATURES says what to take it for, NUMBA_ENABLE_AVX=0 to do without AVX.
    """
    return _features(config.CPU_FEATURES, bool(config.ENABLE_AVX))


@functools.cache  # LLVM takes 0.3 ms to tell
def _features(told: str | None, avx: bool) -> frozenset[str]:
    if told is None:
        try:
            told = llvmlite.binding.get_host_cpu_features().flatten()
        except RuntimeError:
            return frozenset()
        if not avx:
            told = told.replace("+avx", "-avx")
    return frozenset(told.split(","))


def is_amd() -> bool:
    """Whether AMD made the processor that this runs on, as far as LLVM knows it."""
    return llvmlite.binding.get_host_cpu_name().startswith(("znver", "bdver", "btver"))
