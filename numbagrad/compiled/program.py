"""The program of a compiled function: instructions on values, in single assignment.

A ``Buffer`` is a piece of memory, a ``Value`` what it holds after one of the writes to it, an
``Operand`` a strided view of a value. An instruction reads operands and makes new values; nothing
else changes memory. ``print(program)`` shows it, ``verify.py`` checks it; passes are functions from
Program to Program. Start reading at ``Program``.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..kernels.expr import Expr, symbol, to_text
from ..kernels.halves import half_name
from ..kernels.loops import numba_name
from ..kernels.strides import meet
from ..tape import Location, show_location
from .shown import coloured, solid, without_parentheses, wrapped
from .traced import Memory

KINDS = ("input", "state", "constant", "fresh", "work")


@dataclass(frozen=True, eq=False)
class Buffer:
    """A piece of memory.

    kind: "input" (passed by the caller), "state" (bound where it is), "constant", "fresh" (made by
    the caller for this call, and kept: results, saved tensors, gradients), or "work" (lives inside
    the call only). size: in elements.
    """

    kind: str
    dtype: np.dtype
    size: int
    name: str
    memory: Memory | None = None

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array that owns the memory, where it is known; else flat."""
        array = None if self.memory is None else self.memory.array
        return array.shape if array is not None and array.size == self.size else (self.size,)

    @property
    def lasts(self) -> bool:
        """Whether somebody can see its last value after the call."""
        return self.kind != "work"


@dataclass(frozen=True)
class Value:
    """What a buffer holds after ``version`` writes to it."""

    buffer: Buffer
    version: int

    def __repr__(self) -> str:
        return f"{self.buffer.name}.{self.version}" if self.version else self.buffer.name


@dataclass(frozen=True)
class View:
    """The elements at ``offset + index . strides``, all in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def size(self) -> int:
        """Number of indices."""
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements follow each other in row-major order."""
        expected = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1:
                if s != expected:
                    return False
                expected *= n
        return True

    @property
    def bounds(self) -> tuple[int, int]:
        """The first element and one past the last, counted in the buffer."""
        low = high = self.offset
        for n, s in zip(self.shape, self.strides, strict=True):
            if s < 0:
                low += (n - 1) * s
            else:
                high += (n - 1) * s
        return (low, high + 1) if self.size else (low, low)

    @property
    def distinct(self) -> bool:
        """Whether no two indices are one element (as after broadcasting)."""
        return not meet(self.shape, self.strides)

    def apart(self, other: View) -> bool:
        """Whether the two have no element in common; False where that would take long to tell."""
        (low, high), (begin, end) = self.bounds, other.bounds
        if high <= begin or end <= low:
            return True
        dims = {(abs(s), n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1}
        same = {(abs(s), n) for n, s in zip(other.shape, other.strides, strict=True) if n > 1}
        alike = dims == same and self.distinct and other.distinct
        return alike and not _meet(begin - low, sorted(dims, reverse=True))

    def covers(self, buffer: Buffer) -> bool:
        """Whether every element of ``buffer`` is one index."""
        return self.size == buffer.size and self.distinct


def _meet(distance: int, dims: list[tuple[int, int]]) -> bool:
    """Whether two elements of a view with these strides and sizes lie so far apart."""
    if not dims:
        return distance == 0
    (step, n), rest = dims[0], dims[1:]
    reach = sum((m - 1) * s for s, m in rest)
    first = max(1 - n, -((reach - distance) // step))
    last = min(n - 1, (distance + reach) // step)
    return any(_meet(distance - k * step, rest) for k in range(first, last + 1))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous array."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Operand:
    """A view of a value."""

    value: Value
    view: View

    @property
    def buffer(self) -> Buffer:
        """The memory."""
        return self.value.buffer

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.value.buffer.dtype

    @property
    def place(self) -> str:
        """The value, and where its view does not simply go through it, offset and strides."""
        text, view = repr(self.value), self.view
        if view.offset:
            text += f" from {view.offset}"
        if not view.contiguous:
            text += f" by {_shape(view.strides)}"
        return text

    def __repr__(self) -> str:
        name, where = repr(self.value), self.place
        return f"{name} {_shape(self.view.shape)}{where[len(name) :]}"


def _dtype(buffer: Buffer) -> str:
    return half_name(buffer.dtype) or numba_name(buffer.dtype)


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


@dataclass(frozen=True)
class Scalar:
    """A number: a literal, or an expression of float arguments with its value while recording."""

    value: float | int | bool
    text: str | None = None

    def __repr__(self) -> str:
        return self.text if self.text is not None else repr(self.value)


@dataclass(frozen=True)
class Source:
    """What an instruction was made from: ops, and the user's lines."""

    op: str
    where: Location | None

    @property
    def line(self) -> str:
        """The user's line, without folders."""
        return os.path.basename(show_location(self.where))

    def __repr__(self) -> str:
        return f"{self.op} at {self.line}"


@dataclass(frozen=True, eq=False)
class Instruction:
    """Reads ``ins``, makes ``outs``. kept: values of which a written buffer keeps the rest."""

    outs: tuple[Operand, ...]
    ins: tuple[Operand, ...]
    kept: tuple[Value, ...] = ()
    sources: tuple[Source, ...] = ()

    @property
    def used(self) -> Iterator[Value]:
        """Every value that must exist before."""
        for operand in self.ins:
            yield operand.value
        yield from self.kept

    @functools.cached_property
    def written(self) -> frozenset[Buffer]:
        """The buffers that it writes."""
        return frozenset([o.value.buffer for o in self.outs])

    @functools.cached_property
    def touched(self) -> frozenset[Buffer]:
        """The buffers that it writes or reads, or of which it keeps a part."""
        return self.written.union([v.buffer for v in self.used])

    @property
    def effect(self) -> bool:
        """Whether it must run even if nobody reads its values."""
        return False

    def body(self) -> list[str]:
        """The lines of the instruction when printed."""
        return wrapped(f"{', '.join(map(repr, self.outs))} = uninitialised", "", "    ")

    def __repr__(self) -> str:
        told = wrapped(label(self), "# ", "#     ") if self.sources else []
        return "\n".join([*told, *self.body()])


@dataclass(frozen=True)
class Line:
    """One scalar assignment in a loop: ``name = dtype(expr)``, computed in ``compute``.

    Inputs of the expression are names of loads, scalars and earlier lines. rounded: "float16" or
    "bfloat16" where the value, a float32, is one that halves have.
    """

    name: str
    expr: Expr
    compute: str
    dtype: str
    rounded: str = ""

    def __repr__(self) -> str:
        return (
            f"{self.name}: {self.rounded or self.dtype} = {without_parentheses(to_text(self.expr))}"
        )


@dataclass(frozen=True)
class Store:
    """Where a line goes: ``mode`` "store", or "sum" over dims of stride 0, then over divisor."""

    line: str
    mode: str = "store"
    divisor: int = 1


@dataclass(frozen=True, eq=False, repr=False)
class Loop(Instruction):
    """Scalar code for every index of ``space``; every operand's view has that shape.

    loads: the name of each of ``ins``; scalars: names of numbers; stores: one for each of ``outs``.
    """

    space: tuple[int, ...] = ()
    loads: tuple[str, ...] = ()
    scalars: tuple[tuple[str, Scalar], ...] = ()
    lines: tuple[Line, ...] = ()
    stores: tuple[Store, ...] = ()

    @property
    def size(self) -> int:
        """Number of iterations."""
        return math.prod(self.space)

    def body(self) -> list[str]:
        """A loop over loads, scalar code and stores."""
        lines = [f"{n} = {o.place}" for n, o in zip(self.loads, self.ins, strict=True)]
        lines += [f"{n} = {s!r}" for n, s in self.scalars]
        lines += map(repr, self.lines)
        for o, s in zip(self.outs, self.stores, strict=True):
            value = s.line if s.mode == "store" else f"sum({s.line})"
            lines.append(f"{o.place} = {value}" + (f" / {s.divisor}" if s.divisor != 1 else ""))
        body = [each for line in lines for each in wrapped(line, "    ", "        ")]
        return [f"for {_shape(self.space)}:", *body]


def is_copy(loop: Loop) -> bool:
    """Whether ``loop`` does nothing but copy one operand to another of its dtype."""
    if len(loop.ins) != 1 or len(loop.outs) != 1 or len(loop.lines) > 1:
        return False
    same = loop.ins[0].dtype == loop.outs[0].dtype and loop.stores[0].mode == "store"
    return same and (not loop.lines or loop.lines[0].expr is symbol(loop.loads[0]))


@dataclass(frozen=True, eq=False, repr=False)
class Gemm(Instruction):
    """``out = x y``, or ``kept + x y`` if ``accumulate``; ins are (n, k) and (k, m), and may be
    followed by (m), which is added to each row."""

    accumulate: bool = False

    def body(self) -> list[str]:
        """The product."""
        (out,), (x, y, *row) = self.outs, self.ins
        sign = "+=" if self.accumulate else "="
        added = f" + {row[0]!r}" if row else ""
        return wrapped(f"{out!r} {sign} {x!r} @ {y!r}{added}", "", "    ")


@dataclass(frozen=True)
class Slot:
    """An array argument of a kernel: number ``index`` of its instruction's ins or outs."""

    side: str  # "in" or "out"
    index: int


@dataclass(frozen=True, eq=False, repr=False)
class Call(Instruction):
    """A kernel called as it is.

    args: Slots, tuples of Slots (lists of arrays), Scalars, and at the end of a list kernel the
    callable that gives hyper-parameters.
    """

    kernel: Any = None
    args: tuple[Any, ...] = ()

    def body(self) -> list[str]:
        """The call: what it writes is marked ``out``."""
        items = [self._argument(a) for a in self.args]
        name = kernel_name(self.kernel)
        if any(isinstance(a, tuple) for a in self.args):
            lines = [f"{item}," for item in items[:-1]] + [f"{items[-1]})"]
            return [f"{name}(", *(w for line in lines for w in wrapped(line, "    ", "        "))]
        return wrapped(f"{name}({', '.join(map(solid, items))})", "", "    ")

    def _argument(self, arg: Any) -> str:
        if isinstance(arg, Slot):
            if arg.side == "in":
                return repr(self.ins[arg.index])
            return f"out {self.outs[arg.index]!r}"
        if isinstance(arg, tuple):
            listed = [self._argument(a) for a in arg]
            out = "out " if listed and listed[0].startswith("out ") else ""
            return f"{out}[{', '.join(solid(x.removeprefix(out)) for x in listed)}]"
        return repr(arg) if isinstance(arg, Scalar) else "hyper-parameters"


def kernel_name(kernel: Any) -> str:
    """The name of a kernel, a dispatcher or a function."""
    return getattr(kernel, "__name__", type(kernel).__name__)


@dataclass(frozen=True, eq=False, repr=False)
class Check(Instruction):
    """Stop, before anything later is written, if the flag is not negative.

    now: on a GPU too, where the host else looks at flags when it next waits.
    """

    fail: Callable[[int], None] | None = None
    now: bool = False

    @property
    def effect(self) -> bool:
        """Checks are there to be seen."""
        return True

    def body(self) -> list[str]:
        """The condition."""
        return [f"stop unless {self.ins[0].value!r} < 0"]


@dataclass(frozen=True)
class Program:
    """Instructions in order. results: values that must survive (returned, saved, gradients)."""

    name: str
    instructions: tuple[Instruction, ...]
    buffers: tuple[Buffer, ...]
    final: dict[Buffer, Value] = field(default_factory=dict)

    def shapes(self) -> dict[Buffer, tuple[int, ...]]:
        """The shape in which people know each buffer: of its views, which kernels often flatten,
        the first with the most dims of more than one element."""
        found: dict[Buffer, tuple[int, ...]] = {}

        def dims(shape: tuple[int, ...]) -> int:
            return sum(n > 1 for n in shape)

        for i in self.instructions:
            for o in (*i.ins, *i.outs):
                view, b = o.view, o.buffer
                if view.contiguous and view.size == b.size and b.kind != "state":
                    if b not in found or dims(view.shape) > dims(found[b]):
                        found[b] = view.shape
        return {b: found.get(b, b.shape) for b in self.buffers}

    def __repr__(self) -> str:
        lines, shapes = [f"program {self.name}:"], self.shapes()
        for kind in KINDS:
            held = [b for b in self.buffers if b.kind == kind and b.kind != "work"]
            if held:
                told = [solid(f"{b.name}: {_dtype(b)} {_shape(shapes[b])}") for b in held]
                lines += wrapped(", ".join(told), f"  {kind} ", "      ")
        for i in self.instructions:
            lines += ["", *(f"  {line}" for line in repr(i).splitlines())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What Jupyter shows: the print, in colours by kind of memory."""
        kinds = {b.name: b.kind for b in self.buffers}
        return f"<pre>{coloured(repr(self), kinds)}</pre>"

    def with_instructions(self, instructions: Any) -> Program:
        """The same program with other instructions, and only the buffers that these use."""
        kept = tuple(instructions)
        used = set().union(*[i.touched for i in kept])
        buffers = tuple(b for b in self.buffers if b in used or b.kind in ("fresh", "input"))
        final = {b: Value(b, 0) for b in buffers}
        for i in kept:
            for o in i.outs:
                value = o.value
                if value.version >= final[value.buffer].version:
                    final[value.buffer] = value
        return replace(self, instructions=kept, buffers=buffers, final=final)


def label(x: Any) -> str:
    """The source of an instruction as one line of text: ops, by the user's line."""
    places: dict[str, dict[str, None]] = {}
    for source in x.sources:
        places.setdefault(source.line, {})[source.op] = None
    return "; ".join(f"{', '.join(ops)} at {line}" for line, ops in places.items())
