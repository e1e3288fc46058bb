"""The pieces that a function's text is written from: names, numbers, places of the table, arrays.

One ``Text`` is one program; what writes instructions (``emit_cpu``, ``emit_call``, ``emit_loop``,
``emit_product``, ``emit_guard``) adds to it.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types

from ..kernels import intrinsics
from ..kernels import table as table_functions
from ..kernels.expr import FUNCTIONS as _EXPR_FUNCTIONS
from ..kernels.half_type import memory_type
from ..kernels.halves import half_name
from ..kernels.loops import numba_name
from ..kernels.writer import helper_line
from .memory import assign
from .program import Buffer, Instruction, Operand, Program, Scalar, label
from .template import DONE, Argument, Entry, Part, type_of_argument, whole

_TAKEN = (
    frozenset(
        "table work at words offsets before status math np njit prange gemm blas_alone "
        "blas_restore ticks round_float16 round_bfloat16 float16 bfloat16 float32 float64 int64 "
        "int32 int16 int8 uint8 boolean j c sums".split()
    )
    | frozenset(vars(intrinsics))
    | frozenset(vars(table_functions))
    | frozenset(dir(builtins))
    | _EXPR_FUNCTIONS
)
_LOCAL = re.compile(
    r"([inp][0-9]+|[xvfh][0-9]*_[0-9]+|sums?_[0-9_]+|(maximum|minimum|sign|floordiv)_.*|"
    r".*_(at|array))"
)
"""Names that the generated text gives to numbers, counters and functions."""


_WORD = re.compile(r"\w+")
_PASSED = re.compile(r"\b(?:f_\d+|h\d+_\d+)\b")
"""Numbers that the main function gets."""


@dataclass
class Fragment:
    """Lines of a function. passed: the numbers of the main function that they use. needs: what
    they import: helpers, simd and intrinsics of ``Text``."""

    lines: list[str]
    passed: list[str]
    needs: tuple[dict[Any, None], ...]


def tuple_text(items: Sequence[str]) -> str:
    """The text of a tuple."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def number_type(value: Any) -> Any:
    """The Numba type of a Python number."""
    if isinstance(value, bool):
        return types.boolean
    return types.float64 if isinstance(value, float) else types.int64


class Text:
    """The text of one program, as far as it is written."""

    def __init__(self, program: Program, groups: Sequence[tuple[Instruction, ...]]):
        self.program = program
        self.numbers: list[int | float] = []
        self.movable: dict[int, bool] = {}  # those of ``spot``, True, and of ``offset``
        self.table: list[Entry] = [Entry("work"), Entry("table")]
        self.places: dict[Any, int] = {}
        self.names: dict[Buffer, str] = {}
        self.taken: set[str] = set()
        # Of the function that is being written: by buffer, and by place in ``work`` and type.
        self.pointers: dict[Any, str] = {}
        self.one_name = False
        self.chunk = ""  # the number of a thread's share, where loops run row by row
        self.steps: dict[Buffer, int] = {}  # of buffers that have a row for each share
        self.declared: list[str] = []
        self.lines: list[str] = []
        self.arguments: list[Argument] = []
        self.parts: list[Part] = []
        self.shared: list[tuple[int, Fragment]] | None = (
            None  # parts with threads, of a long program
        )
        self.hyper: list[tuple[Callable[[], tuple], tuple]] = []
        self.floats: list[str] = []
        self.checks: list[tuple[Callable[[int], None], int]] = []
        self.helpers: dict[tuple[str, str], None] = {}
        self.simd: dict[str, None] = {}
        self.products: dict[np.dtype, None] = {}  # dtypes of matrices that are multiplied
        self.types: dict[str, None] = {}
        self.halves: dict[str, None] = {}  # what is used of ``half_type.py``
        self.intrinsics: dict[str, None] = {"pointer": None}
        self.offsets, self.work = assign(groups)
        self.scratch = 0
        self.loops = 0
        self.effort = 0  # multiplications and loop iterations, about
        self.alone = False  # whether BLAS must be kept from starting threads of its own
        # Temporaries of formulas are called t0, t1, ... as work buffers are.
        used = [int(b.name[1:]) for b in program.buffers if re.fullmatch(r"t[0-9]+", b.name)]
        self.temporaries = 1 + max(used, default=-1)

    def number(self, value: int | float) -> str:
        """A marker for a number that may differ in another recording."""
        if isinstance(value, bool):
            return repr(value)
        self.numbers.append(value)
        return f"⟦{len(self.numbers) - 1}⟧"

    def spot(self, value: int) -> str:
        """A marker for a place: of memory, of the table, of a check.

        It may differ where a program does the same once more, as other numbers may not.
        """
        self.movable[len(self.numbers)] = True
        return self.number(value)

    def offset(self, value: int) -> str:
        """A marker for where a view begins, which may differ but seldom does."""
        self.movable[len(self.numbers)] = False
        return self.number(value)

    def type(self, dtype: Any) -> str:
        """The name of a dtype, imported."""
        name = dtype if isinstance(dtype, str) else numba_name(dtype)
        self.types[name] = None
        return name

    def held(self, dtype: Any) -> str:
        """The name of the type of memory of a dtype, imported."""
        name = half_name(dtype)
        if not name:
            return self.type(dtype)
        self.halves[name] = None
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
            return f"work + {self.spot(byte)}"
        base = f"{self.pointer(buffer)}_at"
        return f"{base} + {self.offset(offset * buffer.dtype.itemsize)}" if offset else base

    def pointer(self, buffer: Buffer) -> str:
        """The local name of the pointer to ``buffer``.

        In a loop with threads, which gets its pointers one by one, those of buffers on one place
        are one: of two LLVM would ask whether they overlap, and go number by number where they do.
        """
        name = self.pointers.get(buffer)
        if name is not None:
            return name
        t = self.held(buffer.dtype)
        if buffer.kind == "work" and self.one_name:
            name = self.pointers.get((self.offsets[buffer], t))
            if name is not None:
                self.pointers[buffer] = name
                return name
        name = self.pointers[buffer] = self.local(buffer)
        if buffer.kind == "work":
            self.pointers[self.offsets[buffer], t] = name
            byte = self.spot(self.offsets[buffer])
            self.declared.append(f"{name} = pointer(work + {byte}, {t})")
        else:
            at = self.place(Entry("buffer", buffer), buffer)
            self.declared.append(f"{name}_at = table[{self.spot(at)}]")
            self.declared.append(f"{name} = pointer({name}_at, {t})")
        return name

    def local(self, buffer: Buffer) -> str:
        """The name of ``buffer``, which nothing else in the program has."""
        if buffer in self.names:
            return self.names[buffer]
        name = re.sub(r"\W", "_", buffer.name, flags=re.ASCII)
        if name in _TAKEN or keyword.iskeyword(name) or _LOCAL.fullmatch(name):
            name = f"{name}_"
        if name in self.taken:
            name = f"{name}_{len(self.names)}_"
        self.taken.add(name)
        self.names[buffer] = name
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
        self.declared.append(f"{name} = pointer({name}_at, {self.held(b.dtype)})")

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
        if self.chunk and o.buffer in self.steps:
            terms.append(f"{self.chunk} * {self.number(self.steps[o.buffer])}")
        if o.view.offset or not terms:
            terms.append(self.offset(o.view.offset))
        return " + ".join(terms)

    def comment(self, i: Instruction) -> None:
        """Say what comes: shapes, ops and the user's lines."""
        outs = ", ".join(f"{o.buffer.name} {self.shape_text(o)}" for o in i.outs)
        self.lines.append(f"# {outs}: {label(i)}")

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

    def resume(self, outer: tuple[Any, ...]) -> Fragment:
        """Go on with the function that was set aside; what has been written since."""
        written = [*self.declared, *self.lines]
        found = sorted(set(_PASSED.findall("\n".join(written))))
        inner = Fragment(written, found, (self.helpers, self.simd, self.intrinsics))
        self.pointers, self.declared, self.lines, self.helpers, self.simd, self.intrinsics = outer
        return inner

    def shared_part(self, outer: tuple[Any, ...]) -> None:
        """Make a function with threads of what has been written since, and call it."""
        inner = self.resume(outer)
        at = self.place(Entry("part"))
        params = ["table", *inner.passed]
        if self.shared is None:
            self.make_part(at, inner, params, True)
        else:
            params.insert(1, "at")
            self.shared.append((at, inner))
        self.use("call")
        self.lines.append(f"call(table[{self.spot(at)}], {tuple_text(params)})")

    def make_part(self, at: int, body: Fragment, params: list[str], shared: bool) -> int:
        """Make a part of ``body``, whose address will be at place ``at``; the number of it."""
        outer = self.set_aside()
        self.helpers, self.simd, self.intrinsics = (dict(needs) for needs in body.needs)
        end = [] if shared else [f"return {DONE}"]
        lines = ["work = table[0]", *body.lines, *end]
        text = self.function(params, lines, *(["prange"] if shared else []))
        kinds = tuple(self.passed_type(n) for n in params if n != "table")
        self.parts.append(Part(text, kinds, shared))
        self.table[at] = Entry("part", len(self.parts) - 1)
        self.resume(outer)
        return len(self.parts) - 1

    def passed_type(self, name: str) -> Any:
        """The type of what a part gets: a float, an address, or a hyper-parameter ``h0_1``."""
        if name[0] != "h":
            return types.int64 if name[0] != "f" else type_of_argument(self.floats[int(name[2:])])
        k, j = name[1:].split("_")
        return self.hyper[int(k)][1][int(j)]

    def at(self, o: Operand) -> str:
        """The address of the first element of an operand."""
        return self.address(o.buffer, o.view.offset)

    def strided(self, o: Operand, element: str) -> str:
        """An array of any layout; element: the text of the pointer to its first element."""
        sizes = tuple_text([self.number(n) for n in o.view.shape])
        steps = tuple_text([self.number(s) for s in o.view.strides])
        self.use("strided")
        return f"strided({element}, {sizes}, {steps})"

    def element(self, o: Operand) -> str:
        """A pointer to the first element of an operand."""
        if not o.view.offset:
            return self.pointer(o.buffer)
        self.pointer(o.buffer)
        return f"pointer({self.address(o.buffer, o.view.offset)}, {self.held(o.dtype)})"

    def array(self, o: Operand, any_layout: bool = False, words: bool = False) -> tuple[str, Any]:
        """An operand as an array, and its Numba type. words: with halves as int16."""
        dtype, rank = memory_type(o.dtype), len(o.view.shape)
        if words and half_name(o.dtype):
            dtype = types.int16
            self.pointer(o.buffer)
            element = f"pointer({self.address(o.buffer, o.view.offset)}, {self.type('int16')})"
        else:
            element = self.element(o)
        if any_layout or not o.view.contiguous:
            return self.strided(o, element), types.Array(dtype, rank, "A")
        self.use("dense")
        if rank == 0:
            return f"dense({element}, ())", types.Array(dtype, 0, "C")
        sizes = tuple_text([self.number(n) for n in o.view.shape])
        return f"dense({element}, {sizes})", types.Array(dtype, rank, "C")

    def hyper_arguments(self, read: Any) -> list[tuple[str, Any]]:
        """Names and types of the numbers that ``read`` gives; it is read once in a call."""
        at = next((k for k, (known, _) in enumerate(self.hyper) if known is read), None)
        if at is None:
            at = len(self.hyper)
            self.hyper.append((read, tuple(map(number_type, read()))))
        return [(f"h{at}_{j}", kind) for j, kind in enumerate(self.hyper[at][1])]

    def float_argument(self, s: Scalar) -> str:
        """The local name of a number computed from numbers among the arguments."""
        assert s.text is not None
        text = s.text if isinstance(s.value, float) else whole(s.text)
        if text not in self.floats:
            self.floats.append(text)
        return f"f_{self.floats.index(text)}"

    def function(self, params: list[str], body: list[str], *extra: str) -> str:
        """The text of a module with one function."""
        blas = sorted(n[5:] for n in self.simd if n.startswith("blas:"))
        maths = sorted(n for n in self.simd if ":" not in n)
        words = {word for line in body for word in _WORD.findall(line)}
        used = self.types.keys() & words
        halves = sorted(self.halves.keys() & words)
        count = f"{len(self.program.instructions)} instructions."
        told = "in parts." if "at" in params else count
        heads = [
            f'"""{self.program.name}, compiled: {told}"""',
            "",
            "import math",
            "",
            "import numpy as np",
            f"from numba import {', '.join(sorted({*used, *extra, 'njit'}))}",
            "",
        ]
        if blas:
            heads.append(f"from numbagrad.kernels.blas import {', '.join(blas)}")
        if halves:
            heads.append(f"from numbagrad.kernels.half_type import {', '.join(halves)}")
        self.use("bits_float64")
        of_table = self.intrinsics.keys() & set(table_functions.__all__)
        others = sorted(self.intrinsics.keys() - of_table)
        heads.append(f"from numbagrad.kernels.intrinsics import {', '.join(others)}")
        heads += [helper_line(op, t) for op, t in self.helpers]
        if "clock:ticks" in self.simd:
            heads.append("from numbagrad.kernels.clock import ticks")
        if "product:gemm" in self.simd:
            heads.append("from numbagrad.kernels.product import gemm")
        if maths:
            heads.append(f"from numbagrad.kernels.simd_math import {', '.join(maths)}")
        if of_table:
            heads.append(f"from numbagrad.kernels.table import {', '.join(sorted(of_table))}")
        signature = f"def NAME({', '.join(params)}):"
        if "wide" in self.intrinsics and "prange" not in extra:
            body = ["wide()", *body]
        lines = [*heads, "", "", signature, "    SIZES", *[f"    {line}" for line in body]]
        return "\n".join(lines) + "\n"
