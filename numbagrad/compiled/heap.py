"""Which tensors there are, asked of Python's garbage collector: it knows every one of them.

A process that has compiled much holds a million objects, so to look at all of them takes 0.1 s. The
loops here run in C, and what a recording has made is looked for among the youngest objects.
"""

from __future__ import annotations

import gc
from itertools import compress
from typing import Any

from ..tensor import Tensor

__all__ = ["Nursery", "all_tensors"]


def all_tensors() -> list[Tensor]:
    """Every tensor that exists now."""
    if gc.get_freeze_count():
        gc.unfreeze()  # objects that were frozen are not told of, and would not be followed
    return _tensors(gc.get_objects())


def _tensors(objects: list[Any]) -> list[Tensor]:
    kinds, waiting = {Tensor}, [Tensor]
    while waiting:
        new = set(waiting.pop().__subclasses__()) - kinds
        kinds |= new
        waiting += new
    found = list(compress(objects, map(kinds.__contains__, map(type, objects))))
    return [t for t in found if getattr(t, "_array", None) is not None]  # else: not yet made


class Nursery:
    """A ``with`` block without automatic collections: what is made in it stays in the youngest
    generation, where it is found without a look at the rest."""

    def __enter__(self) -> Nursery:
        self._collects = gc.isenabled()
        gc.disable()
        self._collections = self._count()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._collects:
            gc.enable()

    @staticmethod
    def _count() -> int:
        return sum(generation["collections"] for generation in gc.get_stats())

    def tensors(self) -> list[Tensor]:
        """At least the tensors that were made in the block, so far, and live."""
        if self._count() != self._collections:  # somebody has asked for a collection
            return all_tensors()
        return _tensors(gc.get_objects(generation=0))
