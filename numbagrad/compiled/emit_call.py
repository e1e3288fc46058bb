"""Calls as source text: of a kernel by its address, of Python by way of the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from ..kernels.lists import ListKernel
from ..kernels.machine import Kernel, threads
from ..kernels.product import ProductKernel, StridedGemmKernel
from .emit_text import Text, number_type, tuple_text
from .program import Call, Operand, Scalar, Slot, View
from .template import FIRST_CHECK, Entry, KernelUse


def call(e: Text, i: Call) -> None:
    """A kernel by its address, or a Python function by way of the interpreter."""
    operands = {"in": i.ins, "out": i.outs}
    kernel = i.kernel
    arguments, signature, sizes = [], [], []
    first: Operand | None = None
    counts: list[int] = []  # elements of each array of the first list
    for arg in i.args:
        if isinstance(arg, Slot):
            o = operands[arg.side][arg.index]
            sizes.append(o.view.size)
            moves = getattr(kernel, "moves", False)
            text, kind = e.array(o, isinstance(kernel, StridedGemmKernel), words=moves)
            arguments.append(text)
            signature.append(kind)
        elif isinstance(arg, tuple):
            listed = [operands[s.side][s.index] for s in arg]
            sizes.append(0 if counts else sum(o.view.size for o in listed))
            first, counts = first or listed[0], counts or [o.view.size for o in listed]
            arguments.append(table_of(e, [object_at(e, o) for o in listed]))
            signature.append(types.Array(types.int64, 1, "C"))
        elif isinstance(arg, Scalar):
            arguments.append(scalar(e, arg))
            signature.append(number_type(arg.value))
        else:
            assert first is not None
            arguments.append(table_of(e, [Entry("number", n) for n in counts]))
            signature.append(types.Array(types.int64, 1, "C"))
            text, kind = e.array(_flattened(first))
            arguments.append(text)
            signature.append(kind)
            for name, each in e.hyper_arguments(arg):
                arguments.append(name)
                signature.append(each)
    parallel = _parallel(kernel, i, sizes)
    if isinstance(kernel, Kernel) or hasattr(kernel, "py_func"):
        call_kernel(e, KernelUse(kernel, tuple(signature), parallel), arguments)
    else:
        python(e, i)


def scalar(e: Text, s: Scalar) -> str:
    """A number as an argument."""
    if s.text is not None:
        return e.float_argument(s)
    if isinstance(s.value, float):
        if not np.isfinite(s.value):
            return f"np.float64({_special(s.value)})"
        return f"np.float64({e.number(s.value)})"
    return repr(s.value) if isinstance(s.value, bool) else f"np.int64({e.number(s.value)})"


def call_kernel(e: Text, use: KernelUse, arguments: list[str]) -> None:
    """Call compiled code by its address in the table."""
    e.use("call")
    at = e.place(Entry("kernel", use))
    e.lines.append(f"call(table[{e.spot(at)}], {tuple_text(arguments)})")


def python(e: Text, i: Call) -> None:
    """A plain Python function: the interpreter runs it on arrays made from addresses."""
    e.use("call_python")
    spots: list[tuple[int | None, Any]] = []
    for arg in i.args:
        if isinstance(arg, Slot):
            o = (i.ins if arg.side == "in" else i.outs)[arg.index]
            spots.append((pointer_place(e, o), o))
        elif arg.text is not None:
            left = e.place(Entry("result", None))
            name = e.float_argument(arg)
            bits = f"np.float64({name}).view(np.int64)" if isinstance(arg.value, float) else name
            e.lines.append(f"table[{e.spot(left)}] = {bits}")
            spots.append((left, arg))
        else:
            spots.append((None, arg))
    at = e.place(Entry("python", (i.kernel, spots)))
    number = len(e.checks)
    e.checks.append((_raise_kept, at))
    e.lines += [
        f"if call_python(table[{e.spot(at)}], {e.spot(at)}) != 0:",
        f"    return {e.spot(FIRST_CHECK + number)}",
    ]


def pointer_place(e: Text, o: Operand) -> int:
    """A table place that holds the address of the first element of an operand."""
    if o.buffer.kind == "work":
        return e.place(
            Entry("address", o.buffer, e.offsets[o.buffer] + o.view.offset * o.dtype.itemsize)
        )
    if not o.view.offset:
        return e.place(Entry("buffer", o.buffer), o.buffer)
    at = e.place(Entry("result", None))
    e.lines.append(f"table[{e.spot(at)}] = {e.at(o)}")
    return at


def object_at(e: Text, o: Operand) -> Entry:
    """What a list kernel takes for the id of the array of an operand."""
    return Entry("pointer to", pointer_place(e, o))


def table_of(e: Text, entries: list[Entry]) -> str:
    """An int64 array inside the table."""
    e.use("dense")
    e.type("int64")
    begin = len(e.table)
    e.table += entries
    count = str(len(entries))
    return f"dense(pointer(table[1] + {e.spot(8 * begin)}, int64), ({count},))"


def _special(value: float) -> str:
    return "np.nan" if value != value else "np.inf" if value > 0 else "-np.inf"


def _flattened(o: Operand) -> Operand:
    return Operand(o.value, View((o.view.size,), (1,), o.view.offset))


def _raise_kept(value: int) -> None:
    """Stands for the failure of a Python function, whose exception the caller has kept."""


def _parallel(kernel: Any, i: Call, sizes: list[int]) -> bool:
    """Whether an eager launch would take the threaded form."""
    grain = getattr(kernel, "grain", None)
    if grain is None:
        return False
    if isinstance(kernel, ProductKernel):
        out, x, y = (o.view.size for o in (*i.outs, *i.ins)[:3])
        return threads() > 1 and x * y >= grain and x * y * out >= grain * grain
    if isinstance(kernel, ListKernel):
        return sizes[0] >= grain and threads() > 1
    return any(size >= grain for size in sizes)
