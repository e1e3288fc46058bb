"""Which tensors there are, asked of Python's garbage collector: it knows every one of them.

A process that has compiled much holds a million objects, so to look at all of them takes 0.1 s, in
compiled code half of it (``kernels/instances.py``). The loops here run in C, and what a recording
has made is looked for among the youngest objects.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from itertools import chain, compress, repeat, starmap
from typing import Any

from ..kernels.instances import Marks, marking
from ..tensor import Tensor
from .traced import Gone

__all__ = ["Nursery", "all_tensors", "dicts_that_hold", "objects_of", "tracked_tensors"]


def all_tensors() -> list[Tensor]:
    """Every tensor that exists now."""
    if gc.get_freeze_count():
        gc.unfreeze()  # objects that were frozen are not told of, and would not be followed
    return tracked_tensors()


def tracked_tensors(generation: int | None = None) -> list[Tensor]:
    """The tensors among the objects that the collector follows, all or of one generation."""
    found = _of_kind(Tensor, gc.get_objects, generation)
    arrays = [getattr(t, "_array", None) for t in found]  # None: not yet made; or nothing to it
    return [t for t, a in zip(found, arrays, strict=True) if a is not None and type(a) is not Gone]


def objects_of(kind: type) -> list[Any]:
    """The instances of ``kind`` that the collector follows."""
    return _of_kind(kind, gc.get_objects)


def dicts_that_hold(objects: list[Any]) -> list[dict[Any, Any]]:
    """The dicts in which any of ``objects`` is a value or a key."""
    return _of_kind(dict, gc.get_referrers, *objects)


def sequences_that_hold(objects: list[Any]) -> list[Any]:
    """The lists and tuples in which any of ``objects`` is."""
    return [
        *_of_kind(list, gc.get_referrers, *objects),
        *_of_kind(tuple, gc.get_referrers, *objects),
    ]


def _of_kind(kind: type, look: Callable[..., list[Any]], *given: Any) -> list[Any]:
    """The instances of ``kind`` in the list that ``look(*given)`` makes.

    That list lives within one call of C code, so that no other thread runs meanwhile: a tuple that
    one is making cannot grow while the list refers to it, which raises SystemError there.
    """
    kinds = _family(kind)
    whole = look is gc.get_objects and given in ((), (None,))
    mark = marking([*kinds.values()]) if whole else None
    collects = gc.isenabled()
    gc.disable()  # what is collected may run Python code
    try:
        if mark is None:
            return _of_kinds(kinds, look, given)
        while True:
            marks = Marks([*kinds.values()], _room[0])
            lists = chain.from_iterable(map(repeat, starmap(look, (given,)), (2,)))
            marked = map(mark, lists, repeat(marks.address))
            fits = map((marks.flags, b"").__getitem__, marked)
            found = list(chain.from_iterable(map(compress, lists, fits)))
            if not marks.missing:
                return found
            _room[0] = 2 * marks.missing
    finally:
        if collects:
            gc.enable()


_room = [1 << 18]
"""How many objects there may be."""


def _of_kinds(kinds: dict[int, type], look: Callable[..., list[Any]], given: Any) -> list[Any]:
    """``_of_kind`` without compiled code."""
    twice = chain.from_iterable(map(repeat, starmap(look, (given,)), (2,)))
    classes = map(partial(map, type), twice)
    if all([metaclass.__hash__ is type.__hash__ for metaclass in _family(type).values()]):
        among = frozenset(kinds.values()).__contains__
    else:  # some classes, such as sympy's functions, are hashed by Python code, or not at all
        classes, among = map(partial(map, id), classes), kinds.__contains__
    found = map(compress, twice, map(partial(map, among), classes))
    return list(chain.from_iterable(found))


def _family(kind: type) -> dict[int, type]:
    """``kind`` and its subclasses, theirs and so on, by id."""
    kinds, waiting = {id(kind): kind}, [kind]
    while waiting:
        below: list[type] = type.__subclasses__(waiting.pop())  # so that metaclasses have them too
        new = {id(k): k for k in below if id(k) not in kinds}
        kinds |= new
        waiting += new.values()
    return kinds


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
        return tracked_tensors(generation=0)
