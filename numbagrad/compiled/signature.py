"""The signature of a call's arguments: calls of different ones have recordings of their own.

Shapes, strides, dtypes and modes, and Python values that are not passed: ``reasons`` says of two
signatures where they differ.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from .. import devices, dtypes
from ..errors import RecordingError
from ..kernels import machine
from ..kernels.traced_float import Count
from ..tape import grad_mode
from ..tensor import Tensor
from .places import content_of
from .repeated import first_places

__all__ = ["signature"]


def _holds_tensors(leaf: Any) -> bool:
    """Whether a tuple that was not taken apart, or a deque, has tensors in it."""
    return isinstance(leaf, (tuple, deque)) and any([isinstance(each, Tensor) for each in leaf])


def signature(spec: Any, leaves: list[Any], looked_for: str) -> tuple[Any, ...]:
    """What recordings are found by.

    spec: the form of the arguments; leaves: they, with a ``Count`` for each number that is passed.
    looked_for: what stops a call.
    """
    parts: list[Any] = [spec, grad_mode.enabled, grad_mode.inference, machine.threads()]
    parts.append(looked_for)
    parts += dtypes.get_default_dtype(), devices.get_default_device()
    cast = grad_mode.autocast
    parts.append(cast if cast is None else cast.key)
    again = first_places(leaves)
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            array = leaf._array
            layout = array.strides if not array.flags.c_contiguous else None
            away = leaf._device.type != "cpu"
            kind = type(leaf), leaf._dtype, away
            parts.append((kind, array.shape, layout, leaf._edge is not None, again.get(k)))
        elif type(leaf) in (float, Count):
            parts.append(type(leaf))
        else:
            if isinstance(leaf, (dict, list)) or _holds_tensors(leaf):
                raise RecordingError(
                    f"compile: an argument is a {type(leaf).__name__}, in which a compiled "
                    f"function cannot look for tensors. Pass a dict or list with its contents."
                )
            try:
                content = content_of(leaf)
                hash(content)
                parts.append((type(leaf), content))
            except (TypeError, ValueError):  # a memoryview that may be written
                parts.append((type(leaf), id(leaf)))
    return tuple(parts)
