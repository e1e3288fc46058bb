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
from ..kernels.strides import is_dense, order_of, ordered
from ..ops.pointwise import PointwiseOp, what_differs
from ..tape import NUMBERS, Rare, grad_mode
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
    where the operand itself is handed on. plan: what it is told of them; of an array it looks at
    the address alone then. shape, strides: of an element's result, in bytes, None if row-major.
    whole: sizes of the memory of all, outermost first; turned: how the array of all lies in it, as
    ``machine.view`` takes it, None if row-major. step: bytes from one element to the next.
    numbers, differs: what ``PointwiseOp.tape`` is told.
    """

    op: PointwiseOp
    way: Callable[..., None]
    plan: np.ndarray | None
    parts: tuple[Part | None, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    whole: tuple[int, ...]
    turned: tuple[tuple[int, ...], tuple[int, ...]] | None
    step: int
    dtype: DType
    numbers: tuple[bool, ...]
    differs: Rare | None

    def run(self, batch: Any, args: tuple[Any, ...]) -> Tensor:
        """The result."""
        dtype, plan = self.dtype, self.plan
        machine.recorder.current = batch.outer
        try:
            whole = machine.empty(self.whole, dtype.numpy)
            given: list[Any] = [
                whole if self.turned is None else machine.view(whole, *self.turned, 0)
            ]
            array: Any
            for part, a in zip(self.parts, args, strict=True):
                if part is not None:
                    array = a._array
                    memory = array.memory
                    if plan is None or memory.own is not memory.whole:
                        array = part.of(batch, array)
                    given.append(array)
                else:
                    given.append(a._array if isinstance(a, Tensor) else a)
            if plan is None:
                self.way(*given)
            else:
                self.way(plan, tuple(given))
        finally:
            machine.recorder.current = batch
        array = _new(Hidden, self.shape, dtype.numpy, whole, 0, self.strides)
        array.memory = memory = Memory(batch, whole, self.step, True)
        array.at, memory.written = 0, True
        out = wrap(array, dtype)
        if self.strides is not None:
            out._flat = False
        if dtype.is_floating_point and grad_mode.enabled:
            edges = tuple([a._edge if isinstance(a, Tensor) else None for a in args])
            if edges.count(None) < len(edges):
                self.op.tape(args, edges, out, self.numbers, self.differs)
        return out


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
    step, own = out._array.memory.step, out._array
    given, strides, turned = [batch.given(own)], None, None
    whole = given[0].shape
    if not own.flags.c_contiguous:
        order = order_of(own.shape, [own])
        if order is None or not is_dense(own):
            return
        strides = own.strides
        if step:
            order = (0, *[d + 1 for d in order])
        whole, steps = ordered(given[0].shape, order)
        turned = given[0].shape, steps
    for part, a in zip(parts, args, strict=True):
        array = a._array if isinstance(a, Tensor) else a
        given.append(array if part is None else part.of(batch, array))
    way, plan = op.kernel, None
    if batch.outer is not None:
        way = functools.partial(machine.launch, op.kernel)
    elif given[0].size < op.kernel.grain:
        way, plan = op.kernel.nest(given)
    if len(known) >= MOST:
        known.clear()
    numbers = tuple([type(a) in NUMBERS for a in args])
    form = way, plan, parts, own.shape, strides, whole, turned, step, dtype
    known[key] = Formula(op, *form, numbers, what_differs(args, out))


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
