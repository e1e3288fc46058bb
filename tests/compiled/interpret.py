"""Programs run by NumPy, instruction by instruction: what a pass must not change.

``stages`` gives the program of a function before the first pass and after each one; ``run`` runs
one on memory that is all garbage but for what the caller passes. Work buffers lie where
``memory.assign`` puts them, and loops run together as ``rows.py`` says. Start reading at
``differs``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special

from numbagrad.compiled import entry, outside, passes, rows
from numbagrad.compiled.factor import gradients_factored
from numbagrad.compiled.lower import lower
from numbagrad.compiled.memory import assign, rounded
from numbagrad.compiled.program import (
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
)
from numbagrad.compiled.trace import Recording, record
from numbagrad.compiled.traced import Memory
from numbagrad.compiled.verify import verify
from numbagrad.kernels.expr import COMPARISONS, Expr, topological
from numbagrad.tree import flatten

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "plus": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
    "floordiv": np.floor_divide, "mod": np.mod, "pow": np.power, "neg": np.negative,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "atan2": np.arctan2, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": special.erf, "erfc": special.erfc, "lgamma": special.gammaln,
    "sigmoid": special.expit, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def evaluate(root: Expr, inputs: dict[str, Any], dtype: np.dtype) -> Any:
    """The value of an expression, computed in ``dtype`` (truth values as bools)."""
    done: dict[Expr, Any] = {}

    def number(x: Expr) -> Any:
        return done[x].astype(dtype) if x.is_bool else done[x]

    def truth(x: Expr) -> Any:
        return done[x] if x.is_bool else done[x] != 0

    for node in topological([root]):
        op, args = node.op, node.args
        if op == "input":
            done[node] = np.asarray(inputs[node.value]).astype(dtype)
        elif op == "const":
            kind = np.bool_ if isinstance(node.value, bool) else dtype
            done[node] = np.asarray(node.value).astype(kind)
        elif op == "where":
            pick = truth if node.is_bool else number
            done[node] = np.where(truth(args[0]), pick(args[1]), pick(args[2]))
        elif op in ("and", "or"):
            combine = np.logical_and if op == "and" else np.logical_or
            done[node] = combine(truth(args[0]), truth(args[1]))
        elif op == "not":
            done[node] = np.logical_not(truth(args[0]))
        else:
            found = (FUNCTIONS.get(op) or getattr(np, op))(*[number(a) for a in args])
            done[node] = found if op in COMPARISONS or node.is_bool else found.astype(dtype)
    return done[root]


class Memories:
    """Where buffers lie. plain: work buffers side by side, and no loops run together."""

    def __init__(self, program: Program, given: dict[Memory, np.ndarray], plain: bool):
        garbage = 0xFF  # what memory holds that nobody has written: NaN, -1, True
        if plain:
            work = [b for b in program.buffers if b.kind == "work"]
            ends = [0, *itertools.accumulate(rounded(b.nbytes) for b in work)]
            self.groups: list[tuple[Instruction, ...]] = [(i,) for i in program.instructions]
            self.offsets, total = dict(zip(work, ends, strict=False)), ends[-1]
        else:
            together = rows.groups(program, lambda loops: True)
            self.groups, _ = rows.without_other_rows(together, lambda loops: 1)
            self.offsets, total = assign(self.groups)
        self.arena = np.full(total + 64, garbage, np.uint8)
        self.own: dict[Buffer, np.ndarray] = {}
        for b in program.buffers:
            if b.kind == "work":
                continue
            memory = given.get(b.memory) if b.memory is not None else None
            whole = np.full(max(b.nbytes, 1), garbage, np.uint8)
            if memory is not None and b.kind != "fresh":
                whole[: b.nbytes] = np.frombuffer(memory.tobytes(), np.uint8)
            self.own[b] = whole

    def array(self, o: Operand) -> np.ndarray:
        """The elements of an operand, where they lie."""
        b, step = o.buffer, o.dtype.itemsize
        home, start = (self.arena, self.offsets[b]) if b.kind == "work" else (self.own[b], 0)
        strides = [s * step for s in o.view.strides]
        if not o.view.size:
            return np.empty(o.view.shape, o.dtype)
        return np.ndarray(o.view.shape, o.dtype, home, start + o.view.offset * step, strides)

    def contents(self, b: Buffer) -> np.ndarray:
        """The whole of a buffer that lasts."""
        return np.frombuffer(self.own[b][: b.nbytes].tobytes(), b.dtype)


def run(
    program: Program, given: dict[Memory, np.ndarray], plain: bool = False
) -> dict[Memory, np.ndarray]:
    """Run ``program``; what memory that lasts holds afterwards. plain: as ``Memories`` says."""
    memories = Memories(program, given, plain)
    with np.errstate(all="ignore"):
        for i in in_order(memories.groups):
            if isinstance(i, Loop):
                loop(i, memories)
            elif isinstance(i, Gemm):
                gemm(i, memories)
            elif isinstance(i, Call):
                call(i, memories)
            elif isinstance(i, Check):
                assert memories.array(i.ins[0]).max() < 0, "a check failed"
    lasting = [b for b in program.buffers if b.lasts and b.kind != "constant"]
    return {b.memory: memories.contents(b) for b in lasting if b.memory is not None}


def in_order(grouped: list[tuple[Instruction, ...]]) -> Iterator[Instruction]:
    """The instructions as they run: the loops of a group row by row."""
    for group in grouped:
        if len(group) == 1:
            yield group[0]
            continue
        loops = [i for i in group if isinstance(i, Loop)]
        yield from (row_of(i, row) for row in range(loops[0].space[0]) for i in loops)


def row_of(i: Loop, row: int) -> Loop:
    """One step of the outer dim of a loop."""

    def part(o: Operand) -> Operand:
        v = o.view
        shape = (1, *v.shape[1:])
        return Operand(o.value, View(shape, v.strides, v.offset + row * v.strides[0]))

    ins, outs = tuple(map(part, i.ins)), tuple(map(part, i.outs))
    return replace(i, space=(1, *i.space[1:]), ins=ins, outs=outs)


def meet(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays share memory otherwise than element by element."""
    place = [(a.__array_interface__["data"], a.strides, a.shape) for a in (x, y)]
    return place[0] != place[1] and np.may_share_memory(x, y)


def loop(i: Loop, memories: Memories) -> None:
    """All elements at once; one after the other where it matters."""
    if 0 in i.space:
        return
    ins, outs = [[memories.array(o) for o in side] for side in (i.ins, i.outs)]
    sums = [np.zeros(out.shape, np.float64 if out.dtype.kind == "f" else np.int64) for out in outs]
    tangled = any(meet(x, y) for x in outs for y in (*ins, *outs))
    whole: list[Any] = [(Ellipsis,)]
    for at in itertools.product(*map(range, i.space)) if tangled else whole:
        values: dict[str, Any] = dict(zip(i.loads, [x[at].copy() for x in ins], strict=True))
        values |= {name: np.float64(s.value) for name, s in i.scalars}
        for line in i.lines:
            found = evaluate(line.expr, values, np.dtype(line.compute.replace("boolean", "bool")))
            values[line.name] = found.astype(line.dtype.replace("boolean", "bool"))
        for out, store, total in zip(outs, i.stores, sums, strict=True):
            if store.mode == "store":
                out[at] = values[store.line]
            else:
                total[at] = values[store.line]
    for o, out, store, total in zip(i.outs, outs, i.stores, sums, strict=True):
        if store.mode == "sum":
            dims = tuple(d for d, s in enumerate(o.view.strides) if s == 0)
            found = total.sum(dims, keepdims=True)
            out[...] = found if store.divisor == 1 else found / store.divisor


def gemm(i: Gemm, memories: Memories) -> None:
    """A product that is spoilt where it writes what it reads, as BLAS may spoil it."""
    (out,), (x, y, *row) = [[memories.array(o) for o in side] for side in (i.outs, i.ins)]
    if not i.accumulate:
        out[...] = row[0] if row else 0
    for k in range(x.shape[1]):
        out += np.outer(x[:, k], y[k])


def call(i: Call, memories: Memories) -> None:
    """The kernel itself, on the arrays."""

    def argument(arg: Any) -> Any:
        if isinstance(arg, Slot):
            return memories.array((i.ins if arg.side == "in" else i.outs)[arg.index])
        if isinstance(arg, tuple):
            return [argument(a) for a in arg]
        return arg.value if isinstance(arg, Scalar) else arg

    i.kernel(*[argument(a) for a in i.args])


# -- programs of functions -------------------------------------------------------------------------


def programs_of(
    function: Callable[..., Any], *args: Any
) -> list[tuple[Program, dict[Memory, np.ndarray]]]:
    """The program of a call before any pass, that of its gradient, and the memory each starts on.

    The second starts on what the first leaves, and ones for the gradients that come in.
    """
    leaves: list[Any] = []
    spec = flatten((args, {}), leaves)
    found = recorded(function, leaves, spec)
    plan = outside.plan("f", found, entry.Shared(), ())
    names = entry._names(found, leaves)
    inputs = [i.ref.memory for i in found.inputs]
    fresh = entry._fresh(found, plan)
    program = lower("f", found.events[: found.split], fresh, names, inputs)
    given = {i.ref.memory: memory_of(leaves[i.leaf]._array) for i in found.inputs}
    for b in program.buffers:
        if b.kind in ("state", "constant") and b.memory is not None:
            assert b.memory.array is not None
            given[b.memory] = memory_of(b.memory.array)
    if plan is None:
        return [(program, given)]
    after = given | run(program, given, plain=True)
    after |= {r.memory: np.ones(r.memory.size, r.memory.dtype) for r in found.incoming}
    for b in plan.program.buffers:
        if b.memory not in after and b.memory is not None and b.memory.array is not None:
            after[b.memory] = memory_of(b.memory.array)
    return [(program, given), (plan.program, after)]


def recorded(function: Callable[..., Any], leaves: list[Any], spec: Any) -> Recording:
    """``record`` of a function that depends on no Python values."""
    return record(function, leaves, spec, frozenset(), [])


def memory_of(array: np.ndarray) -> np.ndarray:
    """The memory that an array spans, flat."""
    if array.flags.c_contiguous or not array.size:
        return array.reshape(-1).copy()
    low, high = np.lib.array_utils.byte_bounds(array)
    return np.lib.stride_tricks.as_strided(
        array, ((high - low) // array.itemsize,), (array.itemsize,)
    ).copy()


def stages(program: Program) -> Iterator[tuple[str, Program]]:
    """The program after lowering and after each pass, verified, with the names of the passes."""
    yield "lower", verify(program)
    for each in (*passes.PASSES, gradients_factored):
        program = verify(each(program))
        yield each.__name__, program


def differs(function: Callable[..., Any], *args: Any) -> str | None:
    """Which pass changes what a call of ``function`` computes, or breaks a rule; None if none."""
    for program, given in programs_of(function, *args):
        found = changed(program, given)
        if found:
            return found
    return None


def changed(program: Program, given: dict[Memory, np.ndarray]) -> str | None:
    """Which pass changes what ``program`` computes from ``given``, or breaks a rule."""
    wanted, name = run(program, given, plain=True), "lower"
    try:
        for name, each in stages(program):
            got = run(each, given)
            for memory, x in wanted.items():
                y = got[memory] if memory in got else given[memory]
                scale = max(np.abs(x[np.isfinite(x)]).max(initial=0.0), 1.0)
                if not np.allclose(x, y, rtol=0, atol=1e-9 * scale, equal_nan=True):
                    return f"{name} changes {memory.name or memory.kind}: {y}, was {x}\n{each}"
    except AssertionError as error:
        return f"after {name}: {error}"
    return None
