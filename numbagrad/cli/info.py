"""Show versions, devices, threads, BLAS, and the cache of compiled kernels."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform

import numba

from .. import __version__
from ..kernels import machine, store
from ..kernels.amx import load_amx
from ..kernels.blas_library import chosen
from ..kernels.vectors import VECTOR_BYTES
from .cache import describe_size, files_of_cache

__all__ = ["add_arguments", "run", "threading_layer"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``info`` takes no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print one line per fact."""
    threads = machine.threads()
    rows = [("numbagrad", __version__), ("python", platform.python_version())]
    rows += [
        (name, importlib.metadata.version(name))
        for name in ("numba", "llvmlite", "numpy", "scipy", "safetensors")
    ]
    rows += [
        ("devices", f"cpu ({platform.machine()}, {numba.config.CPU_NAME or host_cpu()})"),
        ("threads", f"{threads} of {numba.config.NUMBA_NUM_THREADS} ({threading_layer()})"),
        ("products", products()),
        ("BLAS", chosen().name),
        ("cache", f"{store.cache_folder()} ({describe_size(files_of_cache())})"),
    ]
    for name, value in rows:
        print(f"{name:<12}{value}")
    return 0


def products() -> str:
    """By what matrices are multiplied, but the largest."""
    unit = "the matrix unit (AMX) for float32 and bfloat16, " if load_amx() else ""
    return unit + (f"own tiles of {8 * VECTOR_BYTES} bit vectors" if VECTOR_BYTES else "BLAS")


def host_cpu() -> str:
    """LLVM's name of the processor that kernels are compiled for."""
    import llvmlite.binding

    return llvmlite.binding.get_host_cpu_name()


def threading_layer() -> str:
    """Name of the layer of Numba's that runs our threads: tbb, omp or workqueue."""
    machine.threads()  # which makes Numba choose
    return numba.threading_layer()
