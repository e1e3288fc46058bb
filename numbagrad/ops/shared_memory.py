"""Memory that forked processes share: ``share_memory_``."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from .. import devices
from ..errors import GradError
from ..kernels.machine import reading
from ..tensor import Tensor

__all__: list[str] = []


class _Shared(mmap.mmap):
    """Memory that forked processes see as this one does."""


def _memory(x: Tensor) -> Any:
    """What holds the elements of ``x``, where that is no array."""
    held = x._array
    while isinstance(held, np.ndarray):
        held = held.base
    return held.obj if isinstance(held, memoryview) else held


def is_shared(x: Tensor) -> bool:
    """Whether the memory is shared with forked processes, or is a GPU's."""
    return x._device is not devices.cpu or isinstance(_memory(x), _Shared)


def share_memory_(x: Tensor) -> Tensor:
    """Move the elements, in place, to memory that processes forked from now on share.

    What one of them writes, in place, all see. Processes that are spawned, and queues, cannot have
    it: to send a shared tensor there raises. Views do not come along: raises GradError for a view,
    and where there are living ones. A GPU's tensor stays as it is.
    """
    if is_shared(x):
        return x
    from multiprocessing.reduction import ForkingPickler

    reading("share_memory_", x._array)
    if x._base is not None or any([view() is not None for view in x._views or ()]):
        raise GradError(
            "share_memory_: a view, or a tensor of which there are living views, cannot move to "
            "other memory. Share it before views of it are made, or clone it."
        )
    array = x._array
    held = _Shared(-1, max(array.nbytes, 1))
    moved = np.frombuffer(held, array.dtype, array.size).reshape(array.shape)
    moved[...] = array
    x._array, x._flat = moved, True
    x._moved()
    ForkingPickler.register(type(x), _sent)
    return x


def _sent(x: Tensor) -> Any:
    """How a tensor is pickled for another process."""
    if is_shared(x):
        raise RuntimeError(
            "share_memory_: shared memory reaches forked processes only, as arguments of a Process "
            "of multiprocessing.get_context('fork'). Send x.clone() instead, or fork."
        )
    return x.__reduce_ex__(2)


METHODS: dict[str, Any] = {"is_shared": is_shared, "share_memory_": share_memory_}
