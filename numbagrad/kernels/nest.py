"""Formulas over arrays of any strides, by a loop that is compiled once for all of them.

A formula is compiled for numbers that lie one after another (``loops.py``), and nothing else. Where
an operand is broadcast, transposed or a part of an array, its numbers are gathered into a small
memory first, a thousand at a time, and what comes out is scattered from one: both stay in the
nearest cache, so that what waits for memory takes as long as before, and a transposed operand of
``exp`` is computed by vectors. Operands that lie well are not copied.

``layout.py`` plans how arrays are walked, ``walk.py`` does it. Start reading at ``nest``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import prange, types

from . import machine, store
from .intrinsics import lesser, start
from .layout import TOTAL, UNITS
from .numba_compiler import address_by_words
from .pieces import OperandsType
from .table import TableType
from .walk import walk, walk_at

__all__ = ["OPERANDS_WORD", "interpreted", "nest", "parts_address", "walk_address"]
__all__ += ["words_for_parts"]


def _nest(plan, operands):
    """Run a formula over the loop nest ``plan``."""
    walk(start(plan), start(operands), 0, plan[TOTAL])


def _nest_in_parts(address, plan, operands, parts):
    """The same by threads, each of which takes a part of the elements. address: of ``walk``."""
    words, places, total = start(plan), start(operands), plan[TOTAL]
    unit = plan[UNITS]
    units = (total + unit - 1) // unit
    for part in prange(0, parts):
        first, last = units * part // parts * unit, units * (part + 1) // parts * unit
        walk_at(address, words, places, first, lesser(last, total))


@functools.cache
def _compiled() -> Any:
    body: Any = _nest
    dispatcher = store.jit(body, nogil=False)
    dispatcher.compile((TableType(), OperandsType()))
    (result,) = dispatcher.overloads.values()
    return result


@functools.cache
def _compiled_in_parts() -> Any:
    machine.threads()
    body: Any = _nest_in_parts
    dispatcher = store.jit(body, parallel=True)
    dispatcher.compile((types.int64, types.Array(types.int64, 1, "C"), OperandsType(), types.int64))
    (result,) = dispatcher.overloads.values()
    return result


@functools.cache
def nest(parallel: bool) -> Callable[..., None]:
    """``nest(plan, operands)``, with ``parts`` the form for threads, compiled."""
    if not parallel:
        return _compiled().entry_point
    return functools.partial(_compiled_in_parts().entry_point, walk_address())


@functools.cache
def parts_address() -> int:
    """The address of the form for threads, as a replay enters it: see ``words_for_parts``."""
    return address_by_words(_compiled_in_parts())


OPERANDS_WORD = 8
"""Which of ``words_for_parts`` is the address of the operands."""


def words_for_parts(plan: np.ndarray, parts: int) -> list[int]:
    """What ``parts_address`` is given, but the operands."""
    where = plan.__array_interface__["data"][0]
    return [walk_address(), 0, 0, plan.size, 8, where, plan.size, 8, 0, parts]


@functools.cache
def walk_address() -> int:
    """The address of ``walk``, for ``walk_at``."""
    result = _compiled()
    return int(result.library.get_pointer_to_function(f"walk.{result.fndesc.llvm_func_name}"))


def interpreted(function: Callable[..., Any], outputs: int) -> Callable[..., None]:
    """What stands for ``nest`` under NUMBA_DISABLE_JIT: the flat form on copies."""

    def run(plan: Any, operands: Sequence[Any], parts: int = 1) -> None:
        shape = operands[0].shape
        results = [np.empty(shape, out.dtype) for out in operands[:outputs]]
        given = [
            np.ascontiguousarray(np.broadcast_to(x, shape)) if isinstance(x, np.ndarray) else x
            for x in operands[outputs:]
        ]
        function(results[0].size, *results, *given)
        for out, result in zip(operands, results, strict=False):
            out[...] = result

    return run
