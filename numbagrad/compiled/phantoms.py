"""Tensors of a recording that outlive it: they have shapes, and no values that mean anything.

What a recorded function keeps where nobody looks, in the cache of a ``functools.lru_cache`` or as a
default argument, would be found by later calls. Such caches are cleared, for that is always right;
other places keep a tensor that raises when it is used. Start reading at ``expel``.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ..errors import CacheFilledError, RecordingError
from ..kernels.traced_float import HASHED, TracedFloat
from ..tensor import Tensor
from ..tree import flatten
from .heap import Nursery, all_tensors, dicts_that_hold, objects_of, sequences_that_hold
from .places import Place
from .traced import Gone, traced

__all__ = ["clear_caches", "expel", "forget_numbers", "look_for_leaks", "phantoms"]

_CACHE = type(functools.lru_cache(len))

DEEPEST, MOST = 4, 1 << 17
"""How many containers may lie between a cache and a tensor, and how many objects are looked at."""


def phantoms(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Those of ``tensors`` that belong to a recording."""
    return [t for t in tensors if traced(t._array)]


def clear_caches(tensors: list[Tensor]) -> bool:
    """Clear each ``functools.lru_cache`` that holds any of ``tensors``; whether one does."""
    wanted = {id(tensor) for tensor in tensors}
    return _clear_those(lambda value: id(value) in wanted)


def forget_numbers() -> None:
    """Clear each ``functools.lru_cache`` that holds a number of the recording, equal to a plain one
    that it would be found by."""
    if HASHED:
        HASHED.clear()
        _clear_those(lambda value: type(value) is TracedFloat)


def _clear_those(wanted: Callable[[Any], bool]) -> bool:
    """Clear each ``functools.lru_cache`` that holds what is ``wanted``; whether one does."""
    found = [c for c in objects_of(_CACHE) if c.cache_info().currsize and _holds(c, wanted)]
    for cache in found:
        cache.cache_clear()
    return bool(found)


def _holds(cache: Any, wanted: Callable[[Any], bool]) -> bool:
    """Whether anything that ``cache`` has kept is ``wanted``."""
    level, looked = [gc.get_referents(cache)], 0
    for _ in range(DEEPEST):
        below = []
        for objects in level:
            looked += len(objects)
            if looked > MOST:
                return False
            for value in objects:
                if wanted(value):
                    return True
                if isinstance(value, (dict, tuple, list, set, frozenset)):
                    below.append(gc.get_referents(value))
                elif not isinstance(value, (type, ModuleType, FunctionType)):
                    members = getattr(value, "__dict__", None)
                    if type(members) is dict:
                        below.append(list(members.values()))
        level = below
    return False


def expel(tensors: list[Tensor]) -> None:
    """Let nobody find the tensors of a recording that has failed, or raise where somebody does."""
    if tensors:
        clear_caches(tensors)
    for tensor in tensors:
        tensor._array, tensor._flat = Gone(), False  # else some would enter native code at once


def look_for_leaks(made: Nursery, allowed: set[int], places: list[Place]) -> None:
    """Raise if a tensor without values has been kept in some object outside."""

    def leaked(tensors: list[Tensor]) -> list[Tensor]:
        return [t for t in tensors if traced(t._array) and id(t) not in allowed]

    if not leaked(made.tensors()):
        return
    gc.collect(0)  # what only cycles of the tape hold
    if not leaked(all_tensors()):
        return
    gc.collect()
    kept = leaked(all_tensors())
    if kept and clear_caches(kept):
        kept = []
        kept = leaked(all_tensors())
        if not kept:
            raise CacheFilledError(
                "compile: a functools.lru_cache keeps tensors that the compiled function makes, "
                "other ones in each call. Return them, or take them as arguments."
            )
    if kept:
        raise RecordingError(
            f"compile: {len(kept)} tensor(s) made inside the compiled function, the first of "
            f"shape {list(kept[0].shape)}, are kept outside of it{_holder(kept[0], places)}. A "
            f"compiled call would not renew them: return them instead, or write them in place into "
            f"tensors that are there."
        )


def _holder(tensor: Tensor, places: list[Place]) -> str:
    for place in places:
        for container, _ in place.content:
            if isinstance(container, np.ndarray):
                continue
            values = container.values() if isinstance(container, dict) else container
            if any([value is tensor for value in values]):
                return f", in {place.name!r}"
    for holder in dicts_that_hold([tensor]):
        for key, value in holder.items():
            if value is tensor and key == "_base":
                return ", for a gradient or another tensor is a view of it: set that to a clone()"
            if value is tensor and isinstance(key, str):
                return f", as {key!r}"
    for within in (*sequences_that_hold([tensor]), *dicts_that_hold([tensor])):
        for holder in dicts_that_hold([within]):
            for key, value in holder.items():
                if value is within and isinstance(key, str) and not key.startswith("_"):
                    beside = "" if _tensors_alone(within) else _BESIDE
                    return f", in {key!r}{beside}"
    return ""


_BESIDE = ", beside what are no tensors and may be others in each call: keep those apart"


def _tensors_alone(container: Any) -> bool:
    leaves: list[Any] = []
    flatten(container, leaves)
    return all([isinstance(leaf, Tensor) for leaf in leaves])
