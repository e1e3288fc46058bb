"""A program as a list of launches on a GPU.

A loop becomes one generated kernel, a product and every other kernel a call of its twin in
``kernels/cuda``, which chooses its own launch shapes. What lies on the host, such as the counter
of the random generator, is computed there by the CPU's kernels. Start reading at ``emit``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import RecordingError
from ..kernels.cuda import matmul, reduce
from ..kernels.cuda.runtime.epilogue import addmm_relu
from .emit_cuda_loop import dtype_of_sum, loop_kernel
from .memory import assign, rounded
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
    Value,
    View,
    kernel_name,
    label,
)
from .template import Argument

MOST_CONSTANT = 1024
"""Elements of a constant that is kept instead of filled in each call, where a launch takes 2 us."""


@dataclass(frozen=True)
class FloatArgument:
    """A number computed from float arguments: number ``index`` of ``Template.floats``."""

    index: int


@dataclass(frozen=True)
class Hypers:
    """All that callable ``source`` gives, for a list kernel's twin."""

    source: int


@dataclass(frozen=True)
class Kept:
    """Where the flag of check number ``launch`` is kept until the host looks."""

    launch: int


@dataclass(frozen=True)
class Launch:
    """Something to run. args: Operands, tuples of them, numbers, FloatArguments, Hypers, Kept.

    kind: "loop" (``what`` a LoopKernel), "twin" (a kernel, run by its twin), "kernel" (a function
    of ``kernels/cuda``), "host" (a kernel run on the host), "check" (``what`` the failure),
    "watch", a check whose flag a later loop keeps, or "look", a check for which the host waits.
    """

    kind: str
    what: Any
    args: tuple[Any, ...]
    told: str
    numbers: tuple[int, ...] = ()


@dataclass
class Template:
    """The launches of a program, and what a call must give them."""

    name: str
    launches: list[Launch]
    arguments: list[Argument]
    hyper: list[tuple[Callable[[], tuple], tuple]]
    floats: list[str]
    offsets: dict[Buffer, int]
    work: int
    written: list[Buffer]  # that last, and that a launch writes
    device: Any
    counters: dict[Buffer, int]  # of host memory that twins read, the first of its numbers
    constants: dict[Buffer, np.ndarray]  # work buffers that hold the same in each call
    heavy: bool = True  # as of a program that lets go of the interpreter lock: Python moves counts

    @property
    def shape(self) -> tuple[Any, ...]:
        """What two templates that share all kernels have in common."""
        kernels = [(i.kind, i.what.name if i.kind == "loop" else i.told) for i in self.launches]
        return ("cuda", *kernels)

    @property
    def source(self) -> str:
        """The generated kernels, and the launches in order."""
        texts: dict[str, str] = {}
        for i in self.launches:
            if i.kind == "loop":
                texts[i.what.name] = i.what.text
                if i.what.vector is not None:
                    texts[i.what.vector[0]] = i.what.vector[1]
        calls = [f"# {i.told}\n{_called(i)}" for i in self.launches]
        return "\n\n".join([*texts.values(), "# The launches of a call, in order.", *calls]) + "\n"


def _called(i: Launch) -> str:
    named = i.what.name if i.kind == "loop" else kernel_name(i.what)
    shown = ", ".join([_shown(a) for a in i.args])
    return f"{i.kind}({shown})" if i.kind in ("check", "watch", "look") else f"{named}({shown})"


def _shown(arg: Any) -> str:
    if isinstance(arg, Operand):
        return repr(arg)
    if isinstance(arg, tuple):
        return f"[{', '.join(map(_shown, arg))}]"
    if isinstance(arg, FloatArgument):
        return f"f_{arg.index}"
    if isinstance(arg, Hypers):
        return "hyper-parameters"
    return repr(arg)


class Emitter:
    """Writes one program."""

    def __init__(self, program: Program, arguments: list[Argument], device: Any):
        self.program, self.arguments, self.device = program, arguments, device
        self.launches: list[Launch] = []
        self.hyper: list[tuple[Callable[[], tuple], tuple]] = []
        self.floats: list[str] = []
        groups = [(i,) for i in program.instructions]
        self.offsets, self.work = assign(groups)
        for b in {o.buffer for i in program.instructions if isinstance(i, Check) for o in i.ins}:
            if b in self.offsets:  # what is kept later must not be written over
                self.offsets[b] = self.work
                self.work += rounded(b.nbytes)
        self.scratch = 0
        self.unkept: list[int] = []  # checks whose flags the next loop may keep
        self.constants: dict[Buffer, np.ndarray] = {}
        self.writers = Counter(o.buffer for i in program.instructions for o in i.outs)

    # -- where things lie ------------------------------------------------------------------------

    def on_host(self, buffer: Buffer) -> bool:
        """Whether a buffer lies in host memory."""
        return place_of(buffer) is None and buffer.memory is not None

    def room(self, dtype: np.dtype, shape: tuple[int, int, int]) -> Operand:
        """Scratch memory behind the work buffers, which the next instruction may use again."""
        size = shape[0] * shape[1] * shape[2]
        buffer = Buffer("work", dtype, size, f"sums{len(self.offsets)}")
        self.offsets[buffer] = self.work + self.scratch
        self.scratch += rounded(buffer.nbytes)
        strides = (shape[1] * shape[2], shape[2], 1)
        return Operand(Value(buffer, 1), View(shape, strides))

    # -- instructions ----------------------------------------------------------------------------

    def instruction(self, i: Instruction) -> None:
        """Append the launches of one instruction."""
        operands = (*i.ins, *i.outs)
        hosted = [self.on_host(o.buffer) for o in operands]
        if isinstance(i, Call):
            self.call(i, all(hosted) and bool(hosted))
        elif any(hosted) and not (isinstance(i, Check) or type(i) is Instruction):
            raise RecordingError(
                f"{label(i)}: a tensor of the CPU in a compiled step on a GPU. Move it with "
                f".to(device) before the call, or compile what runs on the CPU by itself."
            )
        elif isinstance(i, Loop):
            self.loop(i)
        elif isinstance(i, Gemm):
            self.product(i)
        elif isinstance(i, Check):
            self.check(i)

    def loop(self, i: Loop) -> None:
        """One generated kernel; a second launch where sums are of pieces."""
        if 0 in i.space:
            return
        if self.writers[i.outs[0].buffer] == 1 and (values := constant_of(i)) is not None:
            self.constants[i.outs[0].buffer] = values
            return
        kernel = loop_kernel(i, len(self.unkept))
        loop = kernel.loop
        outs, later, divisors = list(loop.outs), [], []
        most, self.scratch = self.scratch, 0
        for k, (o, s) in enumerate(zip(loop.outs, loop.stores, strict=True)):
            if s.mode == "sum" and kernel.pieces > 1:
                outs[k] = self.room(dtype_of_sum(o), (1, kernel.pieces, kernel.kept))
                whole = View((1, 1, kernel.kept), (kernel.kept, kernel.kept, 1), o.view.offset)
                later.append((Operand(o.value, whole), outs[k], s.divisor))
            elif s.divisor != 1:
                divisors.append(s.divisor)
        self.scratch = max(most, self.scratch)
        numbers = [loop.size] if kernel.form == "each" else []
        numbers = numbers or [kernel.kept, kernel.pieces, kernel.length]
        floats = [self.float_argument(s) for _, s in loop.scalars]
        flags = []
        for k in self.unkept:
            self.launches[k] = replace(self.launches[k], kind="watch")
            flags += [Kept(k), self.launches[k].args[0]]
        self.unkept = []
        args = (*outs, *loop.ins, *floats, *divisors, *flags)
        self.launches.append(Launch("loop", kernel, args, label(i), tuple(numbers)))
        for out, parts, divisor in later:
            if divisor == 1:
                self.launches.append(Launch("kernel", reduce.sum, (out, parts), label(i)))
            else:
                self.launches.append(Launch("kernel", reduce.mean, (out, parts, divisor), label(i)))

    def product(self, i: Gemm) -> None:
        """The twin of ``mm``, whose result lies by rows."""
        (out,), (x, y) = i.outs, i.ins
        if out.view.strides[1] != 1 and out.view.shape[1] != 1:  # out.T = y.T x.T
            out, x, y = _turned(out), _turned(y), _turned(x)
        args = (out, x, y, 0, 0, int(i.accumulate))
        self.launches.append(Launch("kernel", matmul.mm, args, label(i)))

    def call(self, i: Call, hosted: bool) -> None:
        """A kernel on the host, or its twin."""
        sides = {"in": i.ins, "out": i.outs}
        args: list[Any] = []
        for a in i.args:
            if isinstance(a, Slot):
                args.append(sides[a.side][a.index])
            elif isinstance(a, tuple):
                args.append(tuple([sides[s.side][s.index] for s in a]))
            elif isinstance(a, Scalar):
                args.append(self.float_argument(a) if a.text is not None else a.value)
            else:
                args.append(self.hypers(a))
        if hosted:
            if any(isinstance(a, Hypers) for a in args):
                raise RecordingError(
                    f"{label(i)}: parameters on the CPU are updated in a compiled step on a GPU. "
                    f"Move them with .to(device), or use an optimizer of their own outside."
                )
            self.launches.append(Launch("host", i.kernel, tuple(args), label(i)))
            return
        kind = "kernel" if i.kernel is addmm_relu else "twin"
        self.launches.append(Launch(kind, i.kernel, tuple(args), label(i)))

    def check(self, i: Check) -> None:
        """Keep what a kernel has left in a flag until the host looks, or look."""
        if not i.now:
            self.unkept.append(len(self.launches))
        self.launches.append(Launch("look" if i.now else "check", i.fail, (i.ins[0],), label(i)))

    def float_argument(self, s: Scalar) -> FloatArgument:
        """A number computed from float arguments."""
        assert s.text is not None
        if s.text not in self.floats:
            self.floats.append(s.text)
        return FloatArgument(self.floats.index(s.text))

    def hypers(self, read: Callable[[], tuple]) -> Hypers:
        """The numbers that ``read`` gives; it is read once in a call."""
        at = next((k for k, (known, _) in enumerate(self.hyper) if known is read), None)
        if at is None:
            at = len(self.hyper)
            self.hyper.append((read, tuple(map(type, read()))))
        return Hypers(at)


def place_of(buffer: Buffer) -> Any:
    """The GPU that a buffer lies on, or None."""
    return None if buffer.memory is None else buffer.memory.device


def _turned(o: Operand) -> Operand:
    v = o.view
    return Operand(o.value, View(v.shape[::-1], v.strides[::-1], v.offset))


def emit(program: Program, arguments: list[Argument], device: Any) -> Template:
    """The launches of ``program``. arguments: the arrays that each call passes, in order."""
    emitter = Emitter(program, arguments, device)
    for i in program.instructions:
        emitter.instruction(i)
    written = {o.buffer: None for i in program.instructions for o in i.outs if o.buffer.lasts}
    return Template(
        program.name,
        emitter.launches,
        arguments,
        emitter.hyper,
        emitter.floats,
        emitter.offsets,
        emitter.work + emitter.scratch,
        list(written),
        device,
        counters(emitter.launches),
        emitter.constants,
    )


def constant_of(loop: Loop) -> np.ndarray | None:
    """What the loop fills all of a small work buffer with, such as the first gradient, 1."""
    if loop.ins or loop.scalars or (len(loop.lines), len(loop.outs)) != (1, 1):
        return None
    (out,), (line,) = loop.outs, loop.lines
    literal = line.expr.op == "const" and not line.rounded and loop.stores[0].mode == "store"
    whole = out.view.size == out.buffer.size == loop.size <= MOST_CONSTANT
    if out.buffer.kind != "work" or not (literal and whole and out.dtype.kind in "fib"):
        return None
    return np.full(loop.size, line.expr.value, out.dtype)


def counters(launches: list[Launch]) -> dict[Buffer, int]:
    """The buffers in host memory that twins read, such as taken positions of the generator, and at
    which place each begins when they stand in a row."""
    found: dict[Buffer, int] = {}
    count = 0
    for i in launches:
        for o in operands(i.args) if i.kind in ("twin", "kernel") else ():
            if place_of(o.buffer) is None and o.buffer.memory is not None and o.buffer not in found:
                found[o.buffer] = count
                count += o.buffer.size
    return found


def operands(args: tuple[Any, ...]) -> list[Operand]:
    """The operands among arguments, and those in lists."""
    found: list[Operand] = []
    for a in args:
        found += a if isinstance(a, tuple) else [a] if isinstance(a, Operand) else []
    return found
