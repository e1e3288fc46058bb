"""From recorded launches to a program: elementwise kernels become loops, products become Gemm.

Every other kernel becomes a Call. Start reading at ``lower``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..kernels.cpu import bias, layer_norm, loss, matmul, plane_loss, reduce
from ..kernels.expr import Expr, expr, substitute, symbol
from ..kernels.halves import half_name
from ..kernels.loops import ElementwiseKernel, compute_type, numba_name
from ..kernels.machine import Kernel
from ..kernels.specialise import specialise
from ..kernels.traced_float import TracedFloat
from . import record
from .merged import with_gradients_merged
from .program import (
    Buffer,
    Call,
    Check,
    Gemm,
    Instruction,
    Line,
    Loop,
    Operand,
    Program,
    Scalar,
    Slot,
    Source,
    Store,
    Value,
    View,
    kernel_name,
)
from .trace import Recording
from .traced import refs_of


class Lowering:
    """The program under construction."""

    def __init__(
        self,
        fresh: dict[record.Memory, str],
        names: dict[record.Memory, str],
        given: set[record.Memory],
        on_gpu: bool = False,
    ):
        self.given = given
        self.on_gpu = on_gpu
        self.instructions: list[Instruction] = []
        self.buffers: dict[record.Memory, Buffer] = {}
        self.extra: list[Buffer] = []
        self.current: dict[Buffer, Value] = {}
        self.written: set[Buffer] = set()
        self.fresh = fresh
        self.names = names
        self.source: tuple[Source, ...] = ()

    # -- memory ----------------------------------------------------------------------------------

    def buffer(self, memory: record.Memory) -> Buffer:
        """The buffer of a memory."""
        found = self.buffers.get(memory)
        if found is None:
            kind = memory.kind
            if kind == "made":
                kind = "fresh" if memory in self.fresh else "work"
                kind = "input" if memory in self.given else kind
            name = self.names.get(memory) or self.fresh.get(memory)
            name = name or f"{kind[0] if kind != 'work' else 't'}{len(self.buffers)}"
            found = Buffer(kind, memory.dtype, memory.size, name, memory)
            self.buffers[memory] = found
        return found

    def work(self, dtype: np.dtype, size: int) -> Buffer:
        """New memory of the program's own."""
        found = Buffer("work", dtype, size, f"t{len(self.buffers)}_{len(self.extra)}")
        self.extra.append(found)
        return found

    def read(self, ref: record.Ref) -> Operand:
        """``ref`` as it is now."""
        return self.reading(self.buffer(ref.memory), View(ref.shape, ref.strides, ref.offset))

    def reading(self, buffer: Buffer, view: View) -> Operand:
        """A view of what ``buffer`` holds now."""
        value = self.current.get(buffer)
        if value is None:
            value = Value(buffer, 0)
            if buffer.kind in ("work", "fresh"):  # uninitialised, as ng.empty is
                self.written.add(buffer)
                self.instructions.append(nothing_written(buffer))
                value = Value(buffer, 1)
            self.current[buffer] = value
        return Operand(value, view)

    def write(self, ref: record.Ref, whole: bool = True) -> tuple[Operand, tuple[Value, ...]]:
        """A new value of the memory of ``ref``, and the old one if some of it stays or is read."""
        return self.writing(
            self.buffer(ref.memory), View(ref.shape, ref.strides, ref.offset), whole
        )

    def writing(
        self, buffer: Buffer, view: View, whole: bool = True
    ) -> tuple[Operand, tuple[Value, ...]]:
        """``write`` of a buffer. whole: the elements of the view are all written, none read."""
        old = self.current.get(buffer)
        if old is None and buffer.kind in ("input", "state", "constant"):
            old = Value(buffer, 0)
        new = Value(buffer, 1 if old is None else old.version + 1)
        self.current[buffer] = new
        keeps = old is not None and not (whole and view.covers(buffer))
        return Operand(new, view), (old,) if keeps and old is not None else ()

    def add(self, instruction: Instruction) -> None:
        """Append an instruction."""
        self.instructions.append(instruction)

    # -- launches --------------------------------------------------------------------------------

    def event(self, event: record.Launch | record.Check) -> None:
        """Append what a recorded event means."""
        if isinstance(event, record.Check):
            self.source = (Source(event.op or "check", event.where),)
            flag = self.read(event.flag)
            self.add(Check((), (flag,), (), self.source, fail=event.fail))
            return
        name = kernel_name(event.kernel)
        told = f"{event.op}.{name}" if event.op and event.op != name else name
        self.source = (Source(told, event.where),)
        kernel, args = event.kernel, event.args
        if isinstance(kernel, ElementwiseKernel):
            self.elementwise(kernel, args)
        else:
            RULES.get(kernel, Lowering.call)(self, kernel, args)

    def elementwise(self, kernel: ElementwiseKernel, args: tuple[Any, ...]) -> None:
        """Formulas on arrays and numbers."""
        outs, operands = args[: kernel.outputs], args[kernel.outputs :]
        shape = outs[0].shape
        if 0 in shape:
            return
        names = kernel.formulas[0].inputs
        ins: list[Operand] = []
        loads: list[str] = []
        scalars: list[tuple[str, Scalar]] = []
        symbols: dict[str, Expr] = {}
        dtypes: list[Any] = []
        for name, arg in zip(names, operands, strict=True):
            if isinstance(arg, record.Ref):
                loads.append(f"x{len(loads)}")
                symbols[name] = symbol(loads[-1])
                ins.append(broadcast(self.read(arg), shape))
                dtypes.append(arg.memory.dtype)
                continue
            number = scalar(arg)
            dtypes.append(type(number.value))
            if number.text is None:
                symbols[name] = expr("const", value=number.value)
            else:
                scalars.append((f"f{len(scalars)}", number))
                symbols[name] = symbol(scalars[-1][0])
        compute = compute_type([o.memory.dtype for o in outs], dtypes)
        bodies = [simplified(f.body, symbols) for f in kernel.formulas]
        lines = tuple(
            Line(f"v{k}", body, compute, numba_name(o.memory.dtype), half_name(o.memory.dtype))
            for k, (body, o) in enumerate(zip(bodies, outs, strict=True))
        )
        written = [self.write(o) for o in outs]
        self.add(
            Loop(
                tuple(o for o, _ in written),
                tuple(ins),
                tuple(v for _, kept in written for v in kept),
                self.source,
                space=shape,
                loads=tuple(loads),
                scalars=tuple(scalars),
                lines=lines,
                stores=tuple(Store(line.name) for line in lines),
            )
        )

    def summation(self, out: record.Ref, x: record.Ref, view: View, divisor: int) -> None:
        """``out = sum(x)``; view: of out, with the shape of x and stride 0 where it is summed."""
        operand = self.read(x)
        target, kept = self.writing(self.buffer(out.memory), view, whole=False)
        covers = math.prod(out.shape) == target.buffer.size
        dtype = numba_name(out.memory.dtype)
        line = Line("v0", symbol("x0"), numba_name(x.memory.dtype), numba_name(x.memory.dtype))
        if dtype.startswith("int"):
            line = Line("v0", symbol("x0"), "int64", "int64")
        self.add(
            Loop(
                (target,),
                (operand,),
                () if covers else kept,
                self.source,
                space=x.shape,
                loads=("x0",),
                lines=(line,),
                stores=(Store("v0", "sum", divisor),),
            )
        )

    def reduce(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """The kernels ``sum`` and ``mean`` of (outer, n, inner) to (outer, 1, inner)."""
        out, x, *rest = args
        if out.shape[1] != 1 or 0 in x.shape:
            self.call(kernel, args)
            return
        strides = (out.strides[0], 0, out.strides[2])
        divisor = rest[0] if rest else 1
        self.summation(out, x, View(x.shape, strides, out.offset), divisor)

    def column_sum(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """The kernel ``column_sum``."""
        out, x = args
        if 0 in x.shape:
            self.call(kernel, args)
            return
        self.summation(out, x, View(x.shape, (0, out.strides[0]), out.offset), 1)

    def mm(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """``out = x y``, or added to it."""
        out, x, y, transx, transy, accumulate = args
        self.gemm(out, x, y, transx, transy, bool(accumulate))

    def addmm(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """``out = x y + bias``: the product, then a loop that fuses with what follows.

        The GPU's product adds the bias itself.
        """
        if self.on_gpu:
            self.call(kernel, args)
            return
        out, x, y, added, transx, transy = args
        if 0 in out.shape:
            return
        self.gemm(out, x, y, transx, transy, False)
        product, row = self.read(out), broadcast(self.read(added), out.shape)
        target, kept = self.write(out)
        dtype = numba_name(out.memory.dtype)
        self.add(
            Loop(
                (target,),
                (product, row),
                kept,
                self.source,
                space=out.shape,
                loads=("x0", "x1"),
                lines=(Line("v0", expr("add", symbol("x0"), symbol("x1")), dtype, dtype),),
                stores=(Store("v0"),),
            )
        )

    def gemm(
        self, out: record.Ref, x: record.Ref, y: record.Ref, transx: int, transy: int, add: bool
    ) -> None:
        """A product of two matrices."""
        left, right = transposed(self.read(x), transx), transposed(self.read(y), transy)
        if 0 in out.shape:
            return
        if left.view.shape[1] == 0:
            if not add:
                self.fill(out, 0)
            return
        left, right = self.readable(left), self.readable(right)
        old = (self.read(out),) if add else ()
        target, kept = self.write(out, whole=not add)
        self.add(
            Gemm((target,), (left, right), kept or tuple(o.value for o in old), self.source, add)
        )

    def readable(self, x: Operand) -> Operand:
        """``x``, or a copy of it if BLAS cannot read it."""
        (n, m), (row, col) = x.view.shape, x.view.strides
        by_rows = (col == 1 or m == 1) and (row >= m or n == 1)
        by_cols = (row == 1 or n == 1) and (col >= n or m == 1)
        if by_rows or by_cols:
            return x
        buffer = self.work(x.dtype, n * m)
        target, _ = self.writing(buffer, View((n, m), (m, 1)))
        dtype = numba_name(x.dtype)
        line = Line("v0", symbol("x0"), dtype, dtype)
        self.add(
            Loop(
                (target,),
                (x,),
                (),
                self.source,
                space=(n, m),
                loads=("x0",),
                lines=(line,),
                stores=(Store("v0"),),
            )
        )
        return target

    def fill(self, out: record.Ref, value: float) -> None:
        """Every element becomes ``value``."""
        target, kept = self.write(out)
        dtype = numba_name(out.memory.dtype)
        line = Line("v0", expr("const", value=value), dtype, dtype, half_name(out.memory.dtype))
        self.add(
            Loop(
                (target,),
                (),
                kept,
                self.source,
                space=out.shape,
                lines=(line,),
                stores=(Store("v0"),),
            )
        )

    def call(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """A kernel as it is: its first ``outputs`` arguments are written, perhaps read too.

        Of a function that says nothing about outputs every array may be written.
        """
        if not self.on_gpu:  # a twin has all modes
            kernel, args = in_one_mode(kernel, args)
        outputs = kernel.outputs if isinstance(kernel, Kernel) else len(args)
        ins: list[Operand] = []
        outs: list[Operand] = []
        kept: list[Value] = []

        def take(position: int, arg: Any) -> Any:
            if isinstance(arg, list):
                return tuple([take(position, a) for a in arg])
            if not isinstance(arg, record.Ref):
                return arg if callable(arg) and not number(arg) else scalar(arg)
            if position < outputs:
                operand, old = self.write(arg, whole=False)
                outs.append(operand)
                kept.extend(v for v in old if all(v != o.value for o in outs))
                return Slot("out", len(outs) - 1)
            ins.append(self.read(arg))
            return Slot("in", len(ins) - 1)

        # What is read must be the values before any argument is written.
        order = sorted(range(len(args)), key=lambda k: -(k >= outputs))
        taken: dict[int, Any] = {k: take(k, args[k]) for k in order}
        self.add(
            Call(
                tuple(outs),
                tuple(ins),
                tuple(kept),
                self.source,
                kernel=kernel,
                args=tuple(taken[k] for k in range(len(args))),
            )
        )


RULES: dict[Any, Callable[[Lowering, Any, tuple[Any, ...]], None]] = {
    matmul.mm: Lowering.mm,
    matmul.addmm: Lowering.addmm,
    bias.column_sum: Lowering.column_sum,
    reduce.sum: Lowering.reduce,
    reduce.mean: Lowering.reduce,
}


_CLASSES = ("weighted", "ignore", "smoothing", "reduction")
MODES: dict[Any, tuple[str, ...]] = {
    loss.cross_entropy: _CLASSES,
    loss.cross_entropy_grad: _CLASSES,
    loss.nll: _CLASSES,
    loss.nll_grad: _CLASSES,
    loss.cross_entropy_with_grad: _CLASSES,
    plane_loss.cross_entropy_of_planes: _CLASSES,
    plane_loss.cross_entropy_of_planes_grad: _CLASSES,
    layer_norm.layer_norm: ("affine",),
    layer_norm.layer_norm_grad: ("affine",),
}
"""Parameters that choose among branches: a compiled step has the kernel for its own choice, which
takes half the time to compile."""


def in_one_mode(kernel: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """``kernel`` for the mode that its arguments ask for, and the arguments that are left."""
    names = MODES.get(kernel)
    if names is None:
        return kernel, args
    given = dict(zip(inspect.signature(kernel.function).parameters, args, strict=True))
    known = {n: given[n] for n in names if type(given.get(n)) in (int, float, bool)}
    chosen = specialise(kernel, known)
    if kernel.turned is not None:
        chosen.turned = partial(specialise, kernel.turned(), known)
    return chosen, tuple(given[n] for n in chosen.parameters)


def lower(
    name: str,
    events: list[record.Launch | record.Check],
    fresh: dict[record.Memory, str],
    names: dict[record.Memory, str],
    inputs: list[record.Memory],
    given: set[record.Memory] = frozenset(),  # type: ignore[assignment]
) -> Program:
    """The program of ``events``.

    fresh: memories that survive the call, with their names. inputs: memories that the caller
    passes; given: the same, though the recording has made them.
    """
    on_gpu = device_of(events) is not None
    lowering = Lowering(fresh, names, given, on_gpu)
    for memory in (*inputs, *given):
        lowering.buffer(memory)
    for event in events if on_gpu else with_gradients_merged(events):
        lowering.event(event)
    for memory in fresh:
        lowering.buffer(memory)
    buffers = (*lowering.buffers.values(), *lowering.extra)
    return Program(name, (), buffers).with_instructions(lowering.instructions)


def device_of(events: list[record.Launch | record.Check]) -> Any:
    """The GPU that some event works on, or None."""
    for event in events:
        for ref in refs_of(event) if isinstance(event, record.Launch) else [event.flag]:
            if ref.memory.device is not None:
                return ref.memory.device
    return None


def gpu_of(recording: Recording) -> Any:
    """The GPU that a recorded function works on, or None."""
    for ref in [i.ref for i in recording.inputs] + [r.ref for r in recording.results if r.ref]:
        if ref.memory.device is not None:
            return ref.memory.device
    return device_of(recording.events)


def nothing_written(buffer: Buffer) -> Instruction:
    """Stands where uninitialised memory is read: makes a value of whatever is there."""
    view = View((buffer.size,), (1,))
    return Instruction((Operand(Value(buffer, 1), view),), (), (), (Source("empty", None),))


def number(arg: Any) -> bool:
    """Whether ``arg`` is a number or a traced one."""
    return type(arg) in (float, int, bool, TracedFloat)


def scalar(arg: Any) -> Scalar:
    """A number as an operand."""
    if type(arg) is TracedFloat:
        return Scalar(arg.value, arg.text)
    return Scalar(arg)


def broadcast(x: Operand, shape: tuple[int, ...]) -> Operand:
    """``x`` seen with ``shape``, stride 0 where it repeats."""
    view = x.view
    missing = len(shape) - len(view.shape)
    strides = (0,) * missing + tuple(
        0 if n == 1 and full != 1 else s
        for n, s, full in zip(view.shape, view.strides, shape[missing:], strict=True)
    )
    return Operand(x.value, View(shape, strides, view.offset))


def transposed(x: Operand, turn: int) -> Operand:
    """The matrix ``x``, its axes exchanged if ``turn``."""
    if not turn:
        return x
    v = x.view
    return Operand(x.value, View(v.shape[::-1], v.strides[::-1], v.offset))


def simplified(body: Expr, symbols: dict[str, Expr]) -> Expr:
    """``body`` with its inputs replaced."""
    return substitute(body, symbols)
