"""Products on a GPU that make the relu of their result themselves: an epilogue of cuBLASLt.

Only where the user has chosen that library, for products that it makes, and if its relu keeps NaN.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..kernels import backend, precision
from ..kernels.cpu import matmul
from ..kernels.expr import Expr, substitute, symbol
from .program import Call, Instruction, Loop, Operand, Program, Value, View, row_major

__all__ = ["with_relu"]


def with_relu(program: Program) -> Program:
    """Let a product with a bias make the relu that comes next, if nothing else reads its result."""
    if backend.products != "cublaslt":
        return program
    readers: dict[Value, int] = {}
    for i in program.instructions:
        for value in i.used:
            readers[value] = readers.get(value, 0) + 1
    items: list[Instruction] = []
    for i in program.instructions:
        merged = None
        call = items[-1] if items else None
        if isinstance(i, Loop) and isinstance(call, Call) and _passing(call, program):
            merged = _merged(call, i, readers)
        if merged is None:
            items.append(i)
        else:
            items[-1] = merged
    return program.with_instructions(items)


def _passing(call: Call, program: Program) -> bool:
    """Whether nobody sees after the program what ``call`` makes."""
    made = [o.value for o in call.outs]
    return all([not v.buffer.lasts or program.final[v.buffer] != v for v in made])


def _merged(call: Call, loop: Loop, readers: dict[Value, int]) -> Call | None:
    """``call`` and ``loop`` as one call, or None if they are not linear and relu."""
    from ..kernels.cuda.runtime import cublas, epilogue  # imports numba.cuda

    if call.kernel is not matmul.addmm or not _only(loop, epilogue.RELU.body):
        return None
    (made,), (out,), (read,) = call.outs, loop.outs, loop.ins
    in_order = made.view.contiguous and read.view.contiguous and out.view.contiguous
    whole = made.view.covers(made.buffer) and read.view.size == made.view.size
    if not (read.value == made.value and in_order and whole and out.dtype == made.dtype):
        return None
    if readers[made.value] > 1:
        return None
    x, turned = call.ins[0], call.args[4].value
    if not cublas.is_large(made.view.size * x.view.shape[0 if turned else 1]):
        return None
    if not epilogue.relu_keeps_nan(made.dtype, precision.float32_products):
        return None
    shape = made.view.shape
    target = Operand(out.value, View(shape, row_major(shape), out.view.offset))
    sources = tuple(dict.fromkeys((*call.sources, *loop.sources)))
    return replace(call, kernel=epilogue.addmm_relu, outs=(target,), kept=(), sources=sources)


def _only(loop: Loop, body: Expr) -> bool:
    """Whether ``loop`` stores ``body`` of its one input x, and does nothing else."""
    if len(loop.lines) != 1 or len(loop.ins) != 1 or len(loop.outs) != 1 or loop.kept:
        return False
    wanted: Any = substitute(body, {"x": symbol(loop.loads[0])})
    return loop.lines[0].expr is wanted and loop.stores[0].mode == "store"
