"""Whose kernels multiply matrices on a GPU: numbagrad's own, or NVIDIA's library."""

from __future__ import annotations

from . import machine

__all__ = ["matmul_backend", "set_matmul_backend"]

_BACKENDS = ("numba", "cublaslt")

products = "numba"


def set_matmul_backend(backend: str) -> None:
    """Choose who multiplies matrices on a GPU: "numba", numbagrad's own kernels, or "cublaslt".

    "cublaslt": NVIDIA's cuBLASLt multiplies large matrices of floats and adds the bias of
    ``linear`` in the same kernel; what it cannot do, such as factors without a unit stride, stays
    with numbagrad's kernels. ``set_float32_matmul_precision`` holds for both. Compiled steps are
    recorded anew.
    Raises ValueError for another name, DeviceError where there is no GPU or no library:
    ``pip install 'numbagrad[cublas]'``.
    """
    global products
    if backend not in _BACKENDS:
        words = " or ".join(map(repr, _BACKENDS))
        raise ValueError(f"set_matmul_backend: expected {words}, got {backend!r}.")
    if backend == "cublaslt":
        from .cuda.runtime import cublas

        cublas.library()
    if backend != products:
        products = backend
        machine.changed()


def matmul_backend() -> str:
    """What ``set_matmul_backend`` has set; "numba" at first.

    >>> matmul_backend()
    'numba'
    """
    return products
