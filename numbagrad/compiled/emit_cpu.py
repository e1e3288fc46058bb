"""A program as the source text of one Numba function, and what its table must hold.

The function gets one int64 ``table`` (addresses of bound memory, of kernels, and the numbers that
differ from call to call), the arrays of this call, and floats. Its text is a *template*: every size
is a marker, so that a program recorded for another batch size has the same text and other numbers.
Start reading at ``emit``.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba import types

from ..kernels import intrinsics, store
from ..kernels import table as table_functions
from ..kernels.expr import FUNCTIONS as _EXPR_FUNCTIONS
from ..kernels.lists import ListKernel
from ..kernels.loops import helper_lines, numba_name
from ..kernels.machine import Kernel, threads
from ..kernels.product import ProductKernel, StridedGemmKernel
from .counts import WORDS
from .emit_loop import WORTH_THREADS, LoopText, effort
from .emit_product import product, product_and_update, with_updates
from .fusion import collapsed
from .memory import assign
from .program import (
    Buffer,
    Call,
    Check,
    Gemm,
    Instruction,
    Loop,
    Operand,
    Program,
    Scalar,
    Slot,
    View,
    label,
)
from .rows import groups

DONE, OTHER_SHAPE, OVERLAP, HELD, FIRST_CHECK = 0, 1, 2, 3, 16
"""What the function returns: the number of a failed check is added to FIRST_CHECK."""

HEAVY = 4_000_000
"""Multiplications, about 100 us of them, from which a call lets go of the interpreter lock."""

LONG, SECTION = 400, 120
"""Lines from which a program is cut into several functions, and of each of those."""

_MARK = re.compile("⟦(\\d+)⟧")


@dataclass(frozen=True)
class Argument:
    """An array that the function gets: an input, or fresh memory.

    shape: checked by the function; None where Python has checked the layout. offset: of the first
    element in the buffer.
    """

    buffer: Buffer
    shape: tuple[int, ...] | None
    offset: int = 0


@dataclass(frozen=True)
class Entry:
    """One place of the table.

    kind: "work", "buffer" (address of bound memory), "pointer to" (how list kernels find an array:
    what looks like an object whose data pointer is place ``what``), "table" (its own address),
    "kernel", "part", "number", "count" (a word of ``counts.words``) or "result" (written by the
    function).
    """

    kind: str
    what: Any = None
    offset: int = 0


@dataclass(frozen=True)
class KernelUse:
    """A kernel called by address, and the types of its arguments."""

    kernel: Any
    signature: tuple[Any, ...]
    parallel: bool


@dataclass(frozen=True)
class Part:
    """A function that the main one calls with the table and numbers of these types.

    It is a loop that is shared out among threads, or one section of a long program, which returns
    what the program is to return if that is not DONE.
    """

    text: str
    kinds: tuple[Any, ...]
    threads: bool


@dataclass
class Template:
    """Source text with markers for numbers, and all that a call needs to know."""

    name: str
    text: str
    parts: list[Part]
    numbers: list[int | float]
    table: list[Entry]
    arguments: list[Argument]
    hyper: list[tuple[Callable[[], tuple], tuple]]  # callables and the types they gave
    floats: list[str]  # expressions of float arguments, passed each time
    checks: list[tuple[Callable[[int], None], int]]  # failure and the table place of the flag
    work: int  # bytes
    heavy: bool  # whether it runs so long that other Python threads should run meanwhile
    products: tuple[np.dtype, ...]  # dtypes of matrices that it multiplies
    stamps: tuple[tuple[int, tuple[Instruction, ...]], ...]  # places of times, and what ended then

    @property
    def shape(self) -> tuple[Any, ...]:
        """What must be equal for two templates to share compiled code."""
        table = tuple((e.kind, _kernel_identity(e.what)) for e in self.table)
        parts = tuple(part.text for part in self.parts)
        return (
            self.text,
            parts,
            table,
            len(self.arguments),
            tuple(t for _, t in self.hyper),
            self.heavy,
        )

    def source(self, varying: dict[int, str]) -> tuple[str, str]:
        """Text and function name. varying: names of the numbers that are read from the table's end,
        in order of first appearance, by their position; equal names are one number."""
        return self._render(self.text, self.name, varying)

    def part_source(self, index: int, varying: dict[int, str]) -> tuple[str, str]:
        """``source`` of a part."""
        return self._render(self.parts[index].text, f"{self.name}_part", varying)

    def _render(self, text: str, prefix: str, varying: dict[int, str]) -> tuple[str, str]:
        names = list(dict.fromkeys(varying.values()))
        kinds = {varying[k]: type(self.numbers[k]) for k in varying}
        used = {varying.get(int(m)) for m in _MARK.findall(text)}

        def shown(m: re.Match[str]) -> str:
            k = int(m[1])
            return varying.get(k) or repr(self.numbers[k])

        text = _MARK.sub(shown, text)
        loads = ""
        for j, name in enumerate(names):
            value = f"table[{len(self.table) + j}]"
            value = value if kinds[name] is int else f"bits_float64({value})"
            loads += f"    {name} = {value}\n" if name in used else ""
        text = text.replace("    SIZES\n", loads)
        bare = store.without_comments(text)  # they tell of lines, which move with any edit
        name = store.content_name(f"compiled_{prefix}", bare)  # as `numbagrad cache` counts
        return text.replace("NAME", name, 1), name


def _kernel_identity(what: Any) -> Any:
    if isinstance(what, KernelUse):
        return id(what.kernel), what.signature
    return what if isinstance(what, (int, str)) else None


class Emitter:
    """Writes one program."""

    def __init__(self, program: Program, persistent: Sequence[Buffer], counts: int, timed: bool):
        self.program = program
        self.timed = timed
        self.stamps: list[tuple[int, tuple[Instruction, ...]]] = []
        self.persistent = persistent
        self.counts = counts
        self.numbers: list[int | float] = []
        self.table: list[Entry] = [Entry("work"), Entry("table")]
        self.places: dict[Any, int] = {}
        self.pointers: dict[Buffer, str] = {}
        self.declared: list[str] = []
        self.lines: list[str] = []
        self.arguments: list[Argument] = []
        self.parts: list[Part] = []
        self.hyper: list[tuple[Callable[[], tuple], tuple]] = []
        self.floats: list[str] = []
        self.checks: list[tuple[Callable[[int], None], int]] = []
        self.helpers: dict[tuple[str, str], None] = {}
        self.simd: dict[str, None] = {}
        self.products: dict[np.dtype, None] = {}  # dtypes of matrices that are multiplied
        self.types: dict[str, None] = {}
        self.intrinsics: dict[str, None] = {"pointer": None}
        self.groups = with_updates(groups(program, shared_out))
        self.offsets, self.work = assign(self.groups)
        self.scratch = 0
        self.loops = 0
        self.effort = 0  # multiplications and loop iterations, about
        self.alone = False  # whether BLAS must be kept from starting threads of its own
        # Temporaries of formulas are called t0, t1, ... as work buffers are.
        used = [int(b.name[1:]) for b in program.buffers if re.fullmatch(r"t[0-9]+", b.name)]
        self.temporaries = 1 + max(used, default=-1)

    # -- pieces of text --------------------------------------------------------------------------

    def number(self, value: int | float) -> str:
        """A marker for a number that may differ in another recording."""
        if isinstance(value, bool):
            return repr(value)
        self.numbers.append(value)
        return f"⟦{len(self.numbers) - 1}⟧"

    def type(self, dtype: Any) -> str:
        """The name of a dtype, imported."""
        name = dtype if isinstance(dtype, str) else numba_name(dtype)
        self.types[name] = None
        return name

    def use(self, name: str) -> str:
        """The name of an intrinsic, or of a function of ``table.py``, imported."""
        self.intrinsics[name] = None
        return name

    def place(self, entry: Entry, key: Any = None) -> int:
        """The table place of ``entry``, made on first need."""
        if key is not None and key in self.places:
            return self.places[key]
        self.table.append(entry)
        if key is not None:
            self.places[key] = len(self.table) - 1
        return len(self.table) - 1

    def address(self, buffer: Buffer, offset: int = 0) -> str:
        """The address of an element as an int."""
        if buffer.kind == "work":
            byte = self.offsets[buffer] + offset * buffer.dtype.itemsize
            return f"work + {self.number(byte)}"
        base = f"{self.pointer(buffer)}_at"
        return f"{base} + {self.number(offset * buffer.dtype.itemsize)}" if offset else base

    def pointer(self, buffer: Buffer) -> str:
        """The local name of the pointer to ``buffer``."""
        name = self.pointers.get(buffer)
        if name is not None:
            return name
        name = self.pointers[buffer] = self.local(buffer)
        t = self.type(buffer.dtype)
        if buffer.kind == "work":
            byte = self.number(self.offsets[buffer])
            self.declared.append(f"{name} = pointer(work + {byte}, {t})")
        else:
            at = self.place(Entry("buffer", buffer), buffer)
            self.declared.append(f"{name}_at = table[{at}]")
            self.declared.append(f"{name} = pointer({name}_at, {t})")
        return name

    def local(self, buffer: Buffer) -> str:
        """A name for ``buffer`` that nothing else in the text has."""
        name = re.sub(r"\W", "_", buffer.name, flags=re.ASCII)
        if name in _TAKEN or keyword.iskeyword(name) or _LOCAL.fullmatch(name):
            name = f"{name}_"
        if name in self.pointers.values():
            name = f"{name}_{len(self.pointers)}_"
        return name

    def argument(self, argument: Argument) -> None:
        """Declare an array that is passed at each call."""
        b = argument.buffer
        name = self.pointers[b] = self.local(b)
        self.arguments.append(argument)
        at = self.place(Entry("result", b), b)
        self.use("start")
        back = f" - {self.number(argument.offset * b.dtype.itemsize)}" if argument.offset else ""
        self.declared.append(f"{name}_at = start({name}_array){back}")
        self.declared.append(f"table[{at}] = {name}_at")
        self.declared.append(f"{name} = pointer({name}_at, {self.type(b.dtype)})")

    # -- instructions ----------------------------------------------------------------------------

    def group(self, group: tuple[Instruction, ...]) -> None:
        """Write what runs together, and what notes when it has ended."""
        self.together(group)
        if self.timed:
            self.stamp(group)

    def stamp(self, group: tuple[Instruction, ...] = ()) -> None:
        """Write down the time, after ``group``."""
        at = self.place(Entry("result"))
        self.stamps.append((at, group))
        self.simd["clock:ticks"] = None
        self.lines.append(f"table[{at}] = ticks()")

    def together(self, group: Sequence[Instruction]) -> None:
        """Write one instruction, or several loops inside of one loop over rows."""
        if len(group) == 1:
            self.instruction(group[0])
            return
        first, second = group[:2]
        if isinstance(first, Gemm) and isinstance(second, Call):
            product_and_update(self, first, second)
            return
        loops = [i for i in group if isinstance(i, Loop)]
        rows = self.number(loops[0].space[0])
        self.lines.append(f"# {len(loops)} loops, row by row:")
        self.lines.append(f"for i0 in range({rows}):")
        for loop in loops:
            inner = collapsed(loop, outer=1)
            self.effort += loop.size * (1 + len(loop.ins) + len(loop.outs))
            outer, self.lines = self.lines, []
            self.comment(loop)
            self.lines += LoopText(self, inner, False).lines(outer=1)
            self.lines = outer + [f"    {line}" for line in self.lines]

    def instruction(self, i: Instruction) -> None:
        """Write one instruction."""
        if isinstance(i, Loop):
            self.comment(i)
            self.loop(collapsed(i))
        elif isinstance(i, Gemm):
            self.comment(i)
            product(self, i)
        elif isinstance(i, Call):
            self.comment(i)
            self.call(i)
        elif isinstance(i, Check):
            self.check(i)

    def comment(self, i: Instruction) -> None:
        """Say what comes: shapes, ops and the user's lines."""
        outs = ", ".join(f"{o.buffer.name} {self.shape_text(o)}" for o in i.outs)
        self.lines.append(f"# {outs}: {label(i)}")

    def shape_text(self, o: Operand) -> str:
        """The shape of an operand for people."""
        return "x".join(self.number(n) for n in o.view.shape) or "scalar"

    def index(self, o: Operand, dims: int) -> str:
        """Where in its buffer the element of an operand at (i0, i1, ...) lies."""
        terms = []
        for d in range(dims):
            s = o.view.strides[d]
            if s == 1:
                terms.append(f"i{d}")
            elif s:
                terms.append(f"i{d} * {self.number(s)}")
        if o.view.offset or not terms:
            terms.append(self.number(o.view.offset))
        return " + ".join(terms)

    def loop(self, loop: Loop) -> None:
        """A nest of loops around scalar code, here or, where threads pay, as a part."""
        if 0 in loop.space:
            return
        self.effort += loop.size * (1 + len(loop.ins) + len(loop.outs))
        if shared_out(loop):
            self.part(loop)
        else:
            self.lines += LoopText(self, loop, False).lines()

    def share(self, a: Buffer, b: Buffer) -> bool:
        """Whether two buffers may lie in the same memory."""
        if a is b:
            return True
        if a.kind != "work" or b.kind != "work":
            return False
        x, y = self.offsets[a], self.offsets[b]
        return x < y + b.nbytes and y < x + a.nbytes

    def set_aside(self) -> tuple[Any, ...]:
        """Begin a function of its own; what ``resume`` needs."""
        outer = self.pointers, self.declared, self.lines, self.helpers, self.simd, self.intrinsics
        self.pointers, self.declared, self.lines = {}, [], []
        self.helpers, self.simd, self.intrinsics = {}, {}, {"pointer": None}
        return outer

    def resume(self, outer: tuple[Any, ...]) -> None:
        """Go on with the function that was set aside."""
        self.pointers, self.declared, self.lines, self.helpers, self.simd, self.intrinsics = outer

    def part(self, loop: Loop) -> None:
        """A function of its own, compiled with threads and called by its address."""
        outer = self.set_aside()
        self.lines = LoopText(self, loop, True).lines()
        called = self.close_part(True)
        self.resume(outer)
        self.use("call")
        self.lines.append(f"call({called})")

    def close_part(self, shared: bool) -> str:
        """Make a part of what has been written; the arguments of its call."""
        body = ["work = table[0]", *self.declared, *self.lines]
        body += [] if shared else [f"return {DONE}"]
        found = sorted(set(re.findall(r"\b(?:f_\d+|h\d+_\d+)\b", "\n".join(body))))
        params = ["table", *found]
        text = self.function(params, body, *(["prange"] if shared else []))
        kinds = [types.float64 if n[0] == "f" else self.hyper_type(n) for n in found]
        self.parts.append(Part(text, tuple(kinds), shared))
        at = self.place(Entry("part", len(self.parts) - 1))
        return f"table[{at}], {_tuple(params)}"

    def hyper_arguments(self, read: Any) -> list[tuple[str, Any]]:
        """Names and types of the numbers that ``read`` gives; it is read once in a call."""
        at = next((k for k, (known, _) in enumerate(self.hyper) if known is read), None)
        if at is None:
            at = len(self.hyper)
            self.hyper.append((read, tuple(map(_number_type, read()))))
        return [(f"h{at}_{j}", kind) for j, kind in enumerate(self.hyper[at][1])]

    def hyper_type(self, name: str) -> Any:
        """The type of a hyper-parameter ``h0_1``."""
        k, j = name[1:].split("_")
        return self.hyper[int(k)][1][int(j)]

    def in_sections(self) -> None:
        """Write the instructions of a long program as several functions.

        Numba's time for one function grows with the square of its length: 1,200 lines took 12 s.
        """
        outer = self.set_aside()
        calls = []
        for k, group in enumerate(self.groups):
            self.group(group)
            if len(self.lines) >= SECTION or k == len(self.groups) - 1:
                calls.append(self.close_part(False))
                self.pointers, self.declared, self.lines = {}, [], []
                self.helpers, self.simd, self.intrinsics = {}, {}, {"pointer": None}
        self.resume(outer)
        self.use("call_for")
        for called in calls:
            self.lines += [
                f"status = call_for({called})",
                f"if status != {DONE}:",
                "    return status",
            ]

    def float_argument(self, s: Scalar) -> str:
        """The local name of a number computed from float arguments."""
        assert s.text is not None
        if s.text not in self.floats:
            self.floats.append(s.text)
        return f"f_{self.floats.index(s.text)}"

    def at(self, o: Operand) -> str:
        """The address of the first element of an operand."""
        return self.address(o.buffer, o.view.offset)

    def strided(self, o: Operand) -> str:
        """An array of any layout."""
        sizes = _tuple([self.number(n) for n in o.view.shape])
        steps = _tuple([self.number(s) for s in o.view.strides])
        self.use("strided")
        return f"strided({self.element(o)}, {sizes}, {steps})"

    def element(self, o: Operand) -> str:
        """A pointer to the first element of an operand."""
        if not o.view.offset:
            return self.pointer(o.buffer)
        self.pointer(o.buffer)
        return f"pointer({self.address(o.buffer, o.view.offset)}, {self.type(o.dtype)})"

    def array(self, o: Operand, any_layout: bool = False) -> tuple[str, Any]:
        """An operand as an array, and its Numba type."""
        dtype, rank = numba.from_dtype(o.dtype), len(o.view.shape)
        if any_layout or not o.view.contiguous:
            return self.strided(o), types.Array(dtype, rank, "A")
        self.use("dense")
        if rank == 0:
            return f"dense({self.element(o)}, ())", types.Array(dtype, 0, "C")
        sizes = _tuple([self.number(n) for n in o.view.shape])
        return f"dense({self.element(o)}, {sizes})", types.Array(dtype, rank, "C")

    def call(self, i: Call) -> None:
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
                text, kind = self.array(o, isinstance(kernel, StridedGemmKernel))
                arguments.append(text)
                signature.append(kind)
            elif isinstance(arg, tuple):
                listed = [operands[s.side][s.index] for s in arg]
                sizes.append(0 if counts else sum(o.view.size for o in listed))
                first, counts = first or listed[0], counts or [o.view.size for o in listed]
                arguments.append(self.table_of([self.object_at(o) for o in listed]))
                signature.append(types.Array(types.int64, 1, "C"))
            elif isinstance(arg, Scalar):
                arguments.append(self.scalar(arg))
                signature.append(_number_type(arg.value))
            else:
                assert first is not None
                arguments.append(self.table_of([Entry("number", n) for n in counts]))
                signature.append(types.Array(types.int64, 1, "C"))
                text, kind = self.array(_flattened(first))
                arguments.append(text)
                signature.append(kind)
                for name, each in self.hyper_arguments(arg):
                    arguments.append(name)
                    signature.append(each)
        parallel = _parallel(kernel, i, sizes)
        if isinstance(kernel, Kernel) or hasattr(kernel, "py_func"):
            self.call_kernel(KernelUse(kernel, tuple(signature), parallel), arguments)
        else:
            self.python(i)

    def scalar(self, s: Scalar) -> str:
        """A number as an argument."""
        if s.text is not None:
            return self.float_argument(s)
        if isinstance(s.value, float):
            if not np.isfinite(s.value):
                return f"np.float64({_special(s.value)})"
            return f"np.float64({self.number(s.value)})"
        return repr(s.value) if isinstance(s.value, bool) else f"np.int64({self.number(s.value)})"

    def call_kernel(self, use: KernelUse, arguments: list[str]) -> None:
        """Call compiled code by its address in the table."""
        self.use("call")
        at = self.place(Entry("kernel", use))
        self.lines.append(f"call(table[{at}], {_tuple(arguments)})")

    def python(self, i: Call) -> None:
        """A plain Python function: the interpreter runs it on arrays made from addresses."""
        self.use("call_python")
        spots: list[tuple[int | None, Any]] = []
        for arg in i.args:
            if isinstance(arg, Slot):
                o = (i.ins if arg.side == "in" else i.outs)[arg.index]
                spots.append((self.pointer_place(o), o))
            else:
                spots.append((None, arg))
        at = self.place(Entry("python", (i.kernel, spots)))
        number = len(self.checks)
        self.checks.append((_raise_kept, at))
        self.lines += [
            f"if call_python(table[{at}], {at}) != 0:",
            f"    return {FIRST_CHECK + number}",
        ]

    def pointer_place(self, o: Operand) -> int:
        """A table place that holds the address of the first element of an operand."""
        if o.buffer.kind == "work":
            return self.place(
                Entry(
                    "address", o.buffer, self.offsets[o.buffer] + o.view.offset * o.dtype.itemsize
                )
            )
        self.pointer(o.buffer)
        if not o.view.offset:
            return self.places[o.buffer]
        at = self.place(Entry("result", None))
        self.lines.append(f"table[{at}] = {self.at(o)}")
        return at

    def object_at(self, o: Operand) -> Entry:
        """What a list kernel takes for the id of the array of an operand."""
        return Entry("pointer to", self.pointer_place(o))

    def table_of(self, entries: list[Entry]) -> str:
        """An int64 array inside the table."""
        self.use("dense")
        self.type("int64")
        begin = len(self.table)
        self.table += entries
        count = str(len(entries))
        return f"dense(pointer(table[1] + {8 * begin}, int64), ({count},))"

    def check(self, i: Check) -> None:
        """Stop if a kernel left a position in the flag."""
        (flag,) = i.ins
        assert i.fail is not None
        at = self.place(Entry("result", None))
        self.use("load")
        number = len(self.checks)
        self.checks.append((i.fail, at))
        self.lines += [
            f"table[{at}] = load({self.pointer(flag.buffer)}, {self.number(flag.view.offset)})",
            f"if table[{at}] >= 0:",
            f"    return {FIRST_CHECK + number}",
        ]

    def memory_guard(self) -> list[str]:
        """Return early where an input overlaps memory that is written, or where somebody else
        holds memory that this call would overwrite."""
        lines = []
        written = {o.buffer for i in self.program.instructions for o in i.outs}
        inputs = [a for a in self.arguments if a.buffer.kind == "input"]
        bound = [b for b in self.places if isinstance(b, Buffer)]
        lasting = [b for b in bound if b.kind == "state" and b in written]
        lasting += [b for b in self.persistent if b in bound]
        used = [b for b in bound if b.kind == "state"]
        if inputs and lasting:
            first = self.ranges(lasting)
            for a in inputs:
                lines += self.overlap(a, first, len(lasting))
        changed = [a for a in inputs if a.buffer in written]
        if changed and used:
            first = self.ranges(used)
            for a in changed:
                lines += self.overlap(a, first, len(used))
        if changed and len(inputs) > 1:  # not a line for each pair: there may be thousands
            self.use("meet")
            begin = len(self.table)
            for a in [*changed, *(a for a in inputs if a.buffer not in written)]:
                self.table.append(Entry("number", self.places[a.buffer]))
                self.table.append(Entry("number", a.buffer.nbytes))
            places = f"{begin}, {len(inputs)}, {len(changed)}"
            lines += [f"if meet(table, {places}):", f"    return {OVERLAP}"]
        if self.persistent:
            self.use("held")
            begin, held = len(self.table), 2 * len(self.persistent)
            for k, _ in enumerate(self.persistent):
                for kind in ("tensor id", "tensor references", "array id", "array references"):
                    self.table.append(Entry(kind, k))
            places = f"{begin}, {held}"
            lines += [f"if held(table, {places}):", f"    return {HELD}"]
        return lines

    def ranges(self, buffers: Sequence[Buffer]) -> int:
        """Table places of (address, bytes) pairs."""
        begin = len(self.table)
        for b in buffers:
            self.table += [Entry("buffer", b), Entry("number", b.nbytes)]
        return begin

    def overlap(self, a: Argument, first: int, count: int) -> list[str]:
        """Return if the memory of ``a`` meets one of the ranges."""
        self.use("overlaps")
        size = self.number(a.buffer.nbytes)
        name = self.pointers[a.buffer]
        return [
            f"if overlaps({name}_at, {size}, table, {first}, {count}):",
            f"    return {OVERLAP}",
        ]

    def function(self, params: list[str], body: list[str], *extra: str) -> str:
        """The text of a module with one function."""
        blas = sorted(n[5:] for n in self.simd if n.startswith("blas:"))
        maths = sorted(n for n in self.simd if ":" not in n)
        heads = [
            f'"""{self.program.name}, compiled: {len(self.program.instructions)} instructions."""',
            "",
            "import math",
            "",
            "import numpy as np",
            f"from numba import {', '.join(sorted({*self.types, *extra, 'njit'}))}",
            "",
        ]
        if blas:
            heads.append(f"from numbagrad.kernels.blas import {', '.join(blas)}")
        self.use("bits_float64")
        of_table = self.intrinsics.keys() & set(table_functions.__all__)
        used = sorted(self.intrinsics.keys() - of_table)
        heads.append(f"from numbagrad.kernels.intrinsics import {', '.join(used)}")
        if "clock:ticks" in self.simd:
            heads.append("from numbagrad.kernels.clock import ticks")
        if "product:gemm" in self.simd:
            heads.append("from numbagrad.kernels.product import gemm")
        if maths:
            heads.append(f"from numbagrad.kernels.simd_math import {', '.join(maths)}")
        if of_table:
            heads.append(f"from numbagrad.kernels.table import {', '.join(sorted(of_table))}")
        for op, t in self.helpers:
            heads += ["", "", *helper_lines(op, t)]
        signature = f"def NAME({', '.join(params)}):"
        if "wide" in self.intrinsics and "prange" not in extra:
            body = ["wide()", *body]
        lines = [*heads, "", "", signature, "    SIZES", *[f"    {line}" for line in body]]
        return "\n".join(lines) + "\n"

    # -- the whole -------------------------------------------------------------------------------

    def finish(self) -> Template:
        """The text of the module."""
        program = self.program
        params = [f"{self.pointers[a.buffer]}_array" for a in self.arguments]
        params += [f"f_{k}" for k in range(len(self.floats))]
        params += [f"h{k}_{j}" for k, (_, t) in enumerate(self.hyper) for j in range(len(t))]
        fits = [
            f"fits({self.pointers[a.buffer]}_array, {_tuple([self.number(n) for n in a.shape])})"
            for a in self.arguments
            if a.shape is not None
        ]
        guard = []
        if fits:
            self.use("fits")
            joined = " and ".join(fits)
            guard = [f"if not ({joined}):", f"    return {OTHER_SHAPE}"]
        body = [*guard, "work = table[0]", *self.declared, *self.memory_guard()]
        if self.alone:
            self.simd["blas:blas_alone"] = self.simd["blas:blas_restore"] = None
            body.append(f"before = blas_alone({1 << 20})")
            for line in self.lines:
                if line.lstrip().startswith("return "):
                    body.append(f"{line[: -len(line.lstrip())]}blas_restore(before)")
                body.append(line)
            body.append("blas_restore(before)")
        else:
            body += self.lines
        heavy = self.effort > HEAVY or any(e.kind == "python" for e in self.table)
        if self.counts and not heavy:
            self.use("move_counts")
            body.append(f"move_counts(table, {len(self.table)}, {self.counts})")
            self.table += [Entry("count", k) for k in range(WORDS * self.counts)]
        body.append(f"return {DONE}")
        text = self.function(["table", *params], body)
        return Template(
            program.name,
            text,
            self.parts,
            self.numbers,
            self.table,
            self.arguments,
            self.hyper,
            self.floats,
            self.checks,
            self.work + self.scratch,
            heavy,
            tuple(self.products),
            tuple(self.stamps),
        )


_TAKEN = (
    frozenset(
        "table work before status math np njit prange gemm blas_alone blas_restore ticks float32 "
        "float64 int64 int32 int16 int8 uint8 boolean j c sums".split()
    )
    | frozenset(vars(intrinsics))
    | frozenset(vars(table_functions))
    | frozenset(dir(builtins))
    | _EXPR_FUNCTIONS
)
_LOCAL = re.compile(
    r"([in][0-9]+|[xvfh][0-9]*_[0-9]+|sums?_[0-9_]+|(maximum|minimum|sign|floordiv)_.*|"
    r".*_(at|array))"
)
"""Names that the generated text gives to numbers, counters and functions."""


def emit(
    program: Program,
    arguments: list[Argument],
    persistent: Sequence[Buffer] = (),
    counts: int = 0,
    timed: bool = False,
) -> Template:
    """The template of ``program``.

    arguments: the arrays that each call passes, in order. persistent: fresh buffers that are not
    passed, but used again unless somebody else holds them. counts: version counters to move at
    the end, unless the program is heavy: that one does not hold the interpreter lock. timed: write
    down when each group of instructions ends.
    """
    emitter = Emitter(program, persistent, counts, timed)
    for argument in arguments:
        emitter.argument(argument)
    if timed:
        emitter.stamp()
    if sum(map(_length, program.instructions)) > LONG:
        emitter.in_sections()
    else:
        for group in emitter.groups:
            emitter.group(group)
    return emitter.finish()


def _length(i: Instruction) -> int:
    """About how many lines of text an instruction becomes."""
    return 8 + len(i.ins) + len(i.outs) + len(i.lines) if isinstance(i, Loop) else 3


def shared_out(loop: Loop) -> bool:
    """Whether a loop gets threads."""
    return bool(loop.space) and threads() > 1 and effort(loop) >= WORTH_THREADS


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _special(value: float) -> str:
    return "np.nan" if value != value else "np.inf" if value > 0 else "-np.inf"


def _number_type(value: Any) -> Any:
    if isinstance(value, bool):
        return types.boolean
    return types.float64 if isinstance(value, float) else types.int64


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
