"""Launches for all elements that have come before: ``Again``, found by the layouts of arguments.

How a kernel runs for a batch is decided by shapes, strides, dtypes and by what differs from element
to element; a model meets the same few again and again. What ``verbs`` and ``rules`` launched for
such arguments is launched again on others. Start reading at ``launched``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from ..kernels import machine
from ..kernels.loops import ElementwiseKernel
from ..kernels.widened import extent
from .memory import Hidden

MOST = 1024
"""Launches that are known before all are forgotten."""
STEPS = 4
"""Kernels of one launch: with more of them Python's time matters little."""

known: dict[Any, Again] = {}
"""By what ``key_of`` gives."""

_new: Any = np.ndarray


@dataclass(frozen=True, slots=True)
class Part:
    """An array of a launch for all elements, in the memory of argument ``index``.

    strides, offset: in bytes, from where the argument begins.
    """

    index: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, batch: Any, arg: Any) -> Any:
        """The array."""
        offset, step = self.offset, self.dtype.itemsize
        if type(arg) is Hidden and (memory := arg.memory).batch is batch:
            offset += (memory.place(arg) if arg.at is None else arg.at) * step
            arg = memory.whole
            if memory.flat:
                return _new(self.shape, self.dtype, arg, offset, self.strides)
        return machine.view(
            arg, self.shape, tuple([s // step for s in self.strides]), offset // step
        )


class Noted:
    """What was launched for all elements, kernels with their arguments, and arrays made for it.

    may_be_kept: whether the same may be launched again without a look at what it writes.
    """

    may_be_kept = True

    def __init__(self) -> None:
        self.launches: list[tuple[Any, tuple[Any, ...]]] = []
        self.made: list[Any] = []


@dataclass(frozen=True, slots=True)
class Again:
    """What a launch does for all elements.

    outputs: how many arguments are written; fresh: those that get memory for each element. made:
    shapes and dtypes of arrays that stand behind the arguments. steps: what runs, and what it gets:
    parts, places of arrays that are handed on as they are, or numbers, in a tuple.
    """

    outputs: int
    fresh: tuple[int, ...]
    made: tuple[tuple[tuple[int, ...], np.dtype], ...]
    steps: tuple[tuple[Callable[..., None], tuple[Any, ...]], ...]

    def run(self, batch: Any, args: tuple[Any, ...]) -> None:
        """Launch it."""
        for k in self.fresh:
            batch.give_each(args[k].memory)
        for k in range(self.outputs):
            args[k].memory.written = True
        if self.made:
            args = (*args, *[machine.empty(shape, dtype) for shape, dtype in self.made])
        for way, wanted in self.steps:
            given = []
            for part in wanted:
                kind = type(part)
                if kind is Part:
                    given.append(part.of(batch, args[part.index]))
                else:
                    given.append(args[part] if kind is int else part[0])
            way(*given)


def key_of(batch: Any, kernel: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What decides how ``kernel`` runs; None where that is not remembered."""
    outputs = getattr(kernel, "outputs", 0)
    if not outputs:
        return None
    key: list[Any] = [kernel, batch.size, batch.outer is None]
    differs = kept = False
    for arg in args:
        kind = type(arg)
        if kind is Hidden:
            memory = arg.memory
            key += (arg.shape, arg.strides, arg.dtype)
            step = memory.step
            if memory.batch is not batch:
                if not memory.batch.standings:
                    return None
            elif outputs <= 0:
                if memory.ours and not memory.written:
                    return None
                key.append(step)
                differs = differs or step != 0
            elif not memory.ours:
                return None
            else:
                key.append(step or -memory.own.nbytes)
                differs = differs or step != 0
                kept = kept or (memory.written and not step)
        elif kind is _new:
            key += (arg.shape, arg.strides, arg.dtype)
        elif kind is int or kind is bool:
            key.append((kind, arg))
        elif kind is float:
            key.append(kind)
        else:
            return None
        outputs -= 1
    return None if differs and kept else tuple(key)  # what is kept is copied for each element


def remember(
    batch: Any,
    key: tuple[Any, ...],
    args: tuple[Any, ...],
    shared: list[bool],
    noted: Noted,
) -> None:
    """Keep what was launched for ``args``, if others like them can be told from it.

    shared: which of them all elements had in common before.
    """
    every = (*args, *noted.made)
    places = _places(batch, every)
    if places is None or len(noted.launches) > STEPS or numba.config.DISABLE_JIT:
        return
    steps = []
    for kernel, given in noted.launches:
        wanted = [_wanted(places, every, a) for a in given]
        if None in wanted:
            return
        way = kernel
        if batch.outer is not None:
            way = functools.partial(machine.launch, kernel)
        elif type(kernel) is ElementwiseKernel:
            way = kernel.way(given) or kernel
        steps.append((way, tuple(wanted)))
    outputs = range(key[0].outputs)
    fresh = tuple([k for k in outputs if shared[k] and args[k].memory.step])
    if len(known) >= MOST:
        known.clear()
    made = tuple([(a.shape, a.dtype) for a in noted.made])
    known[key] = Again(key[0].outputs, fresh, made, tuple(steps))


def _places(batch: Any, args: tuple[Any, ...]) -> list[tuple[int, int, int, int]] | None:
    """Of each array the place among ``args``, where it begins, and the bounds of its memory for all
    elements; None where those of two meet, or one is empty."""
    found: list[tuple[int, int, int, int]] = []
    for k, arg in enumerate(args):
        if not isinstance(arg, np.ndarray):
            continue
        array = batch.given(arg)
        if array.size == 0 or array.itemsize == 2:
            return None
        low, high = extent(array)
        if any([low < end and begin < high for _, _, begin, end in found]):
            return None
        found.append((k, machine.address_of(array), low, high))
    return found


def _wanted(places: list[tuple[int, int, int, int]], args: tuple[Any, ...], given: Any) -> Any:
    """How an argument of a launch comes of ``args``; None if that is not known."""
    if not isinstance(given, np.ndarray):
        if type(given) in (int, bool):
            return (given,)
        same = [k for k, a in enumerate(args) if a is given]
        return same[0] if same else None
    low, high = extent(given)
    for k, first, begin, end in places:
        if begin <= low and high <= end:
            if given is args[k]:
                return k
            offset = machine.address_of(given) - first
            return Part(k, given.dtype, given.shape, given.strides, offset)
    return None
