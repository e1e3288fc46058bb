"""Elementwise ops on operands of a batch that have come before: ``Formula``.

An op finds dtype, shape and kernel of its result anew each time while somebody stands behind the
verbs. For elements of a batch that is known by the layouts of operands, and the result has memory
for each element from the start. Start reading at ``Formula``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from ..dtypes import DType
from ..kernels import machine
from ..tape import NUMBERS
from ..tensor import Tensor, wrap
from .again import MOST, Part
from .memory import Hidden, Memory

known: dict[Any, Formula] = {}
"""By what ``key_of`` gives."""

_new: Any = np.ndarray.__new__


@dataclass(frozen=True, slots=True)
class Formula:
    """How the result for operands of some layouts is made.

    way: what runs on the arrays of all elements, of the result and of operands: ``parts``, or None
    where the operand itself is handed on. step: bytes from one element of the result to the next.
    """

    way: Callable[..., None]
    parts: tuple[Part | None, ...]
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    step: int
    dtype: DType

    def run(self, batch: Any, args: tuple[Any, ...]) -> Tensor:
        """The result, without a history."""
        dtype = self.dtype.numpy
        whole = machine.empty(self.whole, dtype)
        given = [whole]
        for part, a in zip(self.parts, args, strict=True):
            if part is not None:
                given.append(part.of(batch, a._array))
            else:
                given.append(a._array if isinstance(a, Tensor) else a)
        self.way(*given)
        array: Any = _new(Hidden, self.shape, dtype, whole)
        array.memory = memory = Memory(batch, whole, self.step, True)
        array.at, memory.written = 0, True
        return wrap(array, self.dtype)


def key_of(batch: Any, op: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What decides how an op runs; None where that is not remembered."""
    key: list[Any] = [op, batch.size, batch.outer is None]
    for a in args:
        if not isinstance(a, Tensor):
            key.append(type(a))
            continue
        array = a._array
        key += (a._dtype, array.shape, array.strides)
        if type(array) is Hidden:
            memory = array.memory
            if memory.batch is batch:
                key.append(memory.step)
            elif not memory.batch.standings:
                return None
        elif type(array) is not np.ndarray:
            return None
    return tuple(key)


def remember(batch: Any, op: Any, args: tuple[Any, ...], out: Tensor) -> None:
    """Keep how ``out`` was made of ``args``, tensors and numbers."""
    key, dtype = key_of(batch, op, args), out._dtype
    if key is None or out._array.size == 0 or batch.size == 0 or numba.config.DISABLE_JIT:
        return
    if not all([isinstance(a, Tensor) or type(a) in NUMBERS for a in args]):
        return
    if dtype.is_floating_point and not any([getattr(a, "_dtype", 0) is dtype for a in args]):
        return  # the default dtype decided, which may change
    parts = tuple([_part(batch, k, a, out._array.ndim) for k, a in enumerate(args)])
    step, whole = out._array.memory.step, out._array.shape
    given = [batch.given(out._array)]
    for part, a in zip(parts, args, strict=True):
        array = a._array if isinstance(a, Tensor) else a
        given.append(array if part is None else part.of(batch, array))
    kernel = op.kernel
    if batch.outer is not None:
        way: Any = functools.partial(machine.launch, kernel)
    else:
        way = kernel.way(tuple(given)) or kernel
    if len(known) >= MOST:
        known.clear()
    whole = (batch.size, *whole) if step else whole
    known[key] = Formula(way, parts, out._array.shape, whole, step, dtype)


def _part(batch: Any, index: int, arg: Any, ndim: int) -> Part | None:
    """An operand for all elements, with as many dims as their results; None of others."""
    if not isinstance(arg, Tensor) or not batch.knows(arg._array):
        return None
    array = arg._array
    shape, strides = array.shape, array.strides
    if array.memory.step:
        ones = ndim - array.ndim
        shape = (batch.size, *(1,) * ones, *shape)
        strides = (array.memory.step, *(0,) * ones, *strides)
    return Part(index, array.dtype, shape, strides, 0)
