"""Addresses of compiled kernels, for generated functions that call them without Python."""

from __future__ import annotations

from typing import Any

import numba

from ..errors import RecordingError
from .half_type import numpy_of
from .machine import Kernel
from .product import GemmKernel, load_products
from .store import address_of_compiled

__all__ = ["dispatcher_of", "native"]

_known: dict[Any, tuple[int, Any]] = {}


def native(kernel: Any, signature: tuple[Any, ...], parallel: bool) -> int:
    """Address of ``kernel`` compiled for Numba types, for ``intrinsics.call``.

    kernel: a Kernel or an ``@njit`` dispatcher. Under NUMBA_DISABLE_JIT it is the id of the Python
    function, which the interpreted ``call`` understands.
    """
    key = (kernel, signature, parallel)
    found = _known.get(key)
    if found is None:
        found = _known[key] = _compiled(kernel, signature, parallel)
    return found[0]


def dispatcher_of(kernel: Any, parallel: bool) -> Any:
    """What compiles ``kernel``: a dispatcher is its own."""
    if not isinstance(kernel, Kernel):
        return kernel
    return kernel.parallel if parallel else kernel.serial


def _compiled(kernel: Any, signature: tuple[Any, ...], parallel: bool) -> tuple[int, Any]:
    dispatcher = dispatcher_of(kernel, parallel)
    try:
        address = address_of_compiled(dispatcher, signature)
    except numba.core.errors.NumbaError as error:
        name = getattr(kernel, "__name__", kernel)
        raise RecordingError(
            f"launch: {name} cannot be compiled for {', '.join(map(str, signature))}. The "
            f"arguments are the outputs, then inputs, then numbers.\n{error}"
        ) from error
    if isinstance(kernel, GemmKernel):
        load_products(numpy_of(signature[0].dtype))
    return address, dispatcher
