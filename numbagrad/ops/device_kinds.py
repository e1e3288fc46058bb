"""What the launches of a call on a GPU depend on: the kinds of its arguments. See ``kind_of``."""

from __future__ import annotations

from typing import Any

from ..dtypes import DType
from ..kernels import backend, precision
from ..kernels.cuda.runtime.array import DeviceArray
from ..shaped import Size
from ..tensor import Tensor
from .plans import TENSORS, is_constant

__all__: list[str] = []  # nothing that users call

MOST_CONSTANTS = 4096
"""Records that are known not to change."""

_NUMBERS = frozenset((int, bool, str, type(None), DType, type, type(...)))


def kind_of(flat: tuple[Any, ...]) -> tuple[list[Any], list[DeviceArray], bool] | None:
    """What the launches of a call depend on, its arrays, and whether one has a history.

    None unless all tensors lie on the GPU and the other arguments can be compared.
    """
    key: list[Any] = [precision.float32_products, backend.products]
    arrays: list[DeviceArray] = []
    taped = False
    for a in flat:
        kind = a.__class__
        if kind in TENSORS:
            array = a._array
            if array.__class__ is not DeviceArray or array.memory.traced:
                return None
            key += (a._dtype, array.shape, array.strides, array.pointer & 15)
            arrays.append(array)
            if a._edge is not None:
                taped = True
        elif kind in _NUMBERS:
            key += (kind, a)
        elif kind is tuple or kind is Size:
            key += (kind, a)
            for each in a:
                if each.__class__ is not int:
                    if each.__class__ not in _NUMBERS:
                        return None
                    key.append(each.__class__)
        elif kind is float:
            key += (kind, a or str(a))  # 0.0 equals -0.0
        elif kind is slice:
            for each in (a.start, a.stop, a.step):
                if each.__class__ not in _NUMBERS:
                    return None
                key += (slice, each.__class__, each)
        elif _constants.get(id(a)) is a or _is_new_constant(a):
            key += (kind, id(a))
        else:
            return None
    if len(arrays) > 1 and len({id(a.memory) for a in arrays}) < len(arrays):
        _add_distances(key, arrays)
        tensors = [id(a) for a in flat if a.__class__ in TENSORS]
        key.append(tuple(map(tensors.index, tensors)))  # which of them are one
    return (key, arrays, taped) if arrays else None


_constants: dict[int, Any] = {}
"""Records that calls were given and that hold the same for ever, by identity: to look at what they
hold takes longer than a launch."""


def _is_new_constant(value: Any) -> bool:
    if not is_constant(value):
        return False
    if len(_constants) >= MOST_CONSTANTS:
        _constants.clear()
    _constants[id(value)] = value
    return True


def _add_distances(key: list[Any], arrays: list[DeviceArray]) -> None:
    """Add to ``key`` how far those arrays lie apart that share memory."""
    memories: dict[int, tuple[int, int]] = {}
    for k, array in enumerate(arrays):
        first = memories.setdefault(id(array.memory), (k, array.pointer))
        if first[0] != k:
            key += (k, first[0], array.pointer - first[1])


def is_away(args: tuple[Any, ...]) -> bool:
    """Whether the first tensor among ``args`` lies on the GPU."""
    for a in args:
        if isinstance(a, Tensor):
            return a._array.__class__ is DeviceArray
    return False
