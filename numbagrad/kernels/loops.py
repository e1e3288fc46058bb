"""Formulas to loops: the source text of the kernels that apply scalar formulas to arrays.

A formula is compiled for arrays that are C-contiguous and of one shape: one loop over the elements.
``nest.py`` makes arrays of any strides, and work for threads, out of such pieces. Start reading at
``ElementwiseKernel``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from . import machine, store
from .crew import AVAILABLE, load_crew
from .expr import (
    Expr,
    substitute,
    symbol,
    topological,
)
from .formula import Formula
from .from_python import described, interpreted_entry, way_in
from .half_type import half_type
from .halves import arithmetic
from .layout import WORTH, by_value, layout
from .nest import interpreted, nest
from .pieces import second_address
from .writer import SIMD, Writer, cast, helper_line

CHEAP_GRAIN = 1 << 16
"""Elements from which threads pay for arithmetic: relu of so many takes 3.7 us instead of 5.4."""
COSTLY_GRAIN = 1 << 14
"""The same where the formula calls a function such as exp."""

LONG, COSTLY_LONG = 1 << 20, 1 << 18
"""Elements from which a kernel lets go of the interpreter's lock, where it calls a function such as
exp the latter: see ``nest.py``."""

COSTLY = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh "
    "acosh atanh erf erfc lgamma sigmoid pow hypot".split()
)


def is_costly(bodies: Sequence[Expr]) -> bool:
    """Whether a loop over these expressions waits for arithmetic rather than for memory."""
    return any(node.op in COSTLY for node in topological(list(bodies)))


@functools.cache
def numba_name(dtype: np.dtype) -> str:
    """Numba's name of what is computed where memory holds ``dtype``."""
    return "boolean" if dtype == np.bool_ else str(arithmetic(dtype))


def emit(
    formulas: Sequence[Formula],
    scalars: frozenset[str],
    compute: str,
    outs: Sequence[str],
) -> tuple[str, str]:
    """Source text and function name of a CPU kernel: of a number of elements, outputs and inputs.

    scalars: inputs passed by value. compute: the type of the arithmetic; outs: the element types of
    the outputs.
    """
    renamed = {p: _safe(p) for p in formulas[0].inputs}
    inputs = list(renamed.values())
    scalars = frozenset(renamed[p] for p in scalars)
    symbols = {p: symbol(q) for p, q in renamed.items()}
    bodies = [substitute(f.body, symbols) for f in formulas]
    arrays = [p for p in inputs if p not in scalars]
    out_names = ["out"] if len(formulas) == 1 else [f"out_{k}" for k in range(len(formulas))]
    writer = Writer(bodies, compute == "int64", picks=True)
    lines = [
        "import math",
        "",
        "import numpy as np",
        f"from numba import {_imports(compute, outs)}",
    ]
    costly = is_costly(bodies)
    used = "load_apart, store_apart" + (", wide" if costly else "")
    lines += ["", f"from numbagrad.kernels.intrinsics import {used}"]
    lines += ["from numbagrad.kernels.pieces import second_way_in", ""]
    if writer.simd:
        lines[-1:] = [
            f"from numbagrad.kernels.simd_math import {', '.join(sorted(writer.simd))}",
            "",
        ]
    if writer.helpers:
        lines[-1:] = [*[helper_line(helper, "T") for helper in writer.helpers], ""]
    lines += [f"T = {compute}", ""]
    lines += ["", f"def NAME({', '.join(['n', *out_names, *inputs])}):"]
    lines += [f'    """{"; ".join(map(str, formulas))}"""', "    second_way_in()"]
    lines += [f"    {p}_i = T({p})" for p in inputs if p in scalars]
    lines += ["    for i in range(n):"]
    indent = " " * 8
    if costly:
        lines += [f"{indent}wide()"]
    # No output meets an input, or it is that input: then each element is read before it is written.
    pieces = 1 + len(out_names)
    for p in arrays:
        lines += [f"{indent}{p}_i = T(load_apart({p}, i, '0.0.{pieces}'))"]
    lines += [indent + line for line in writer.lines]
    for k, (name, body, to) in enumerate(zip(out_names, bodies, outs, strict=True), 1):
        result = cast(writer.names[body], body.is_bool, to, compute)
        lines += [f"{indent}store_apart({name}, i, {result}, '0.{k}.{pieces}')"]
    text = "\n".join(lines) + "\n"
    name = store.content_name(formulas[0].name, text)
    return text.replace("NAME", name, 1), name


_RESERVED = frozenset(
    "out i n T math np load_apart store_apart second_way_in wide abs sign maximum minimum picked "
    "boolean float32 float64 int64 int32 int16 int8 uint8".split()
).union(SIMD)


def _safe(name: str) -> str:
    """An input's name that cannot meet a name of the generated text."""
    clash = name in _RESERVED or name[:1] in ("t", "o") or name.endswith(("_i", "_at", "_step"))
    return f"in_{name}" if clash else name


def _imports(compute: str, outs: Sequence[str]) -> str:
    return ", ".join(sorted({compute, *outs}))


_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


def compute_type(outs: Sequence[np.dtype], operands: Sequence[Any]) -> str:
    """The type of the arithmetic for output dtypes and operands (dtypes, or Python types)."""
    out = max(map(arithmetic, outs), key=lambda d: (d.kind == "f", d.itemsize))
    operands = [arithmetic(d) for d in operands]
    floats = [d for d in operands if isinstance(d, np.dtype) and d in _FLOATS]  # float == float64
    if out.kind == "f":
        return str(out)
    if floats:
        return str(max(floats, key=lambda d: d.itemsize))
    return "float64" if float in operands else "int64"


class Compiled(NamedTuple):
    """A formula for dtypes: what Python calls, the code behind it, where that is entered by others,
    and what tells the former of it."""

    entry: Callable[..., bool]
    code: Any
    address: int = 0
    description: np.ndarray = np.empty(0)


class ElementwiseKernel:
    """Formulas of the same inputs, applied to arrays: ``kernel(out, x, y)``.

    Operands are arrays that broadcast to the shape of ``out``, or Python numbers. A formula is
    compiled on first use for dtypes and numbers, once for any shapes and strides.
    """

    takes_halves = True

    def __init__(self, *formulas: Formula):
        self.formulas = formulas
        self.outputs = len(formulas)
        self.copies = [f.body.op for f in formulas] == ["input"]
        self.__name__ = formulas[0].name
        self.__doc__ = "; ".join(map(str, formulas))
        costly = is_costly([f.body for f in formulas])
        self.grain = COSTLY_GRAIN if costly else CHEAP_GRAIN
        self.long = (COSTLY_LONG if costly else LONG) if AVAILABLE else self.grain
        self._entries: dict[Any, Compiled] = {}
        self._known: dict[Any, Any] = {}  # what ``_find`` found for arrays met before
        self.on_device: Any = None  # its form on a GPU, made on first use

    def __repr__(self) -> str:
        return f"<elementwise {self.__doc__}>"

    def entry(self, dtypes: tuple[Any, ...]) -> Any:
        """The form for contiguous arrays of one shape; it returns False where it does nothing.

        dtypes: of outputs then operands; ``float`` or ``int`` or ``bool`` for a Python number. The
        caller vouches for dtypes.
        """
        found = self._entries.get(dtypes)
        if found is None:
            found = self._entries[dtypes] = self._compile(dtypes)
        return found.entry

    def source(self, dtypes: tuple[Any, ...]) -> tuple[str, str]:
        """Text and name of the generated function."""
        outs, operands = dtypes[: self.outputs], dtypes[self.outputs :]
        inputs = self.formulas[0].inputs
        pairs = list(zip(inputs, operands, strict=True))
        scalars = frozenset(p for p, d in pairs if isinstance(d, type))
        compute = self._compute(dtypes)
        names = [numba_name(d) for d in outs]
        return emit(self.formulas, scalars, compute, names)

    def _compile(self, dtypes: tuple[Any, ...]) -> Compiled:
        text, name = self.source(dtypes)
        if numba.config.DISABLE_JIT:
            function = store.compile_source(text, name)
            return Compiled(interpreted_entry(function), interpreted(function, self.outputs))
        dispatcher = store.compile_source(text, name, allocates=False, no_cpython_wrapper=True)
        numbers = {float: types.float64, int: types.int64, bool: types.boolean}
        arguments: list[Any] = [types.int64]
        for d in dtypes:
            if isinstance(d, type):
                arguments.append(numbers[d])
            else:
                arguments.append(types.CPointer(half_type(d) or getattr(types, numba_name(d))))
        dispatcher.compile(tuple(arguments))
        (result,) = dispatcher.overloads.values()
        address = second_address(result)
        description = described(self.__name__, address, dtypes, self.grain, self.long)
        return Compiled(way_in(description), result, address, description)

    def nest(self, args: Sequence[Any], parallel: bool = False) -> tuple[Any, np.ndarray]:
        """The loop for operands of any strides and its plan: ``loop(plan, args)``, with the number
        of ``parts`` where it is parallel."""
        dtypes = tuple([a.dtype if type(a) is np.ndarray else type(a) for a in args])
        self.entry(dtypes)
        if numba.config.DISABLE_JIT:
            return self._entries[dtypes].code, np.empty(0)
        shape = args[0].shape
        slots = tuple([k for k, a in enumerate(args) if type(a) is np.ndarray])
        arrays = [args[k] for k in slots]
        strides = tuple([_broadcast_strides(a, shape) for a in arrays])
        sizes = tuple([a.itemsize for a in arrays])
        given = shape, strides, sizes, slots, self.outputs, len(args)
        copying = self.copies and len(slots) == 2 and dtypes[0] == dtypes[1]
        words = layout(*given, copying=copying)
        if args[0].size >= WORTH:
            numbers = by_value(layout(*given, self._floats(dtypes)))
            passed = tuple([float if k in numbers else d for k, d in enumerate(dtypes)])
            if numbers and self._compute(passed) == self._compute(dtypes):
                self.entry(passed)
                words, dtypes = layout(*given, frozenset(numbers)), passed
        plan = np.array(words, np.int64)
        plan[0] = self._entries[dtypes].address
        return nest(parallel), plan

    def _compute(self, dtypes: tuple[Any, ...]) -> str:
        return compute_type(dtypes[: self.outputs], dtypes[self.outputs :])

    def _floats(self, dtypes: tuple[Any, ...]) -> frozenset[int]:
        """The operands that may be passed as numbers: of the type of the arithmetic."""
        compute, slots = self._compute(dtypes), range(self.outputs, len(dtypes))
        return frozenset([k for k in slots if dtypes[k] in _FLOATS and str(dtypes[k]) == compute])

    def __call__(self, *args: Any) -> None:
        """Run on host arrays of any strides: outputs, then operands."""
        key = tuple(
            [(a.shape, a.strides, a.dtype) if type(a) is np.ndarray else type(a) for a in args]
        )
        found = self._known.get(key)
        if found is None or (found[2] and found[2] != machine.threads()):
            found = self._find(args)
            if found is None:
                return
            if len(self._known) < 512 or key in self._known:
                self._known[key] = found
        entry, plan, threads = found
        if plan is None:
            if not entry(*args):  # there are more threads than when this was found
                load_crew()
                entry(*args)
        elif threads > 1:
            entry(plan, args, threads)
        else:
            entry(plan, args)

    def way(self, args: tuple[Any, ...]) -> Callable[..., None] | None:
        """What runs ``args`` and others of their layout, without a look at them; None where that
        is for each call to say, by the number of threads."""
        found = self._find(args)
        if found is None or found[2]:
            return None
        entry, plan, _ = found
        return entry if plan is None else lambda *args: entry(plan, args)

    def planned(self, args: tuple[Any, ...]) -> np.ndarray | Compiled | None:
        """The plan for ``args`` where they lie apart, else what they enter; None where there is
        nothing to do."""
        found = self._find(args)
        if found is None:
            return None
        if found[1] is not None:
            plan: np.ndarray = found[1]
            return plan
        dtypes = tuple([a.dtype if type(a) is np.ndarray else type(a) for a in args])
        return self._entries[dtypes]

    def _find(self, args: tuple[Any, ...]) -> tuple[Any, Any, int] | None:
        """What runs ``args``, its plan, and for how many threads it was chosen: 0 for any number.
        None where there is nothing to do."""
        out = args[0]
        size = out.size
        if size == 0:
            return None
        arrays = [a for a in args if type(a) is np.ndarray]
        shape = out.shape
        threads = machine.threads() if size >= self.grain else 0
        if size < self.long and all([a.shape == shape and a.flags.c_contiguous for a in arrays]):
            dtypes = tuple([a.dtype if type(a) is np.ndarray else type(a) for a in args])
            return self.entry(dtypes), None, 0
        return *self.nest(args, threads > 1), threads


def _broadcast_strides(array: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...]:
    missing = len(shape) - array.ndim
    strides = [0 if n == 1 else s for n, s in zip(array.shape, array.strides, strict=True)]
    return (0,) * missing + tuple(strides)
