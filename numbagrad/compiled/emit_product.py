"""Products as source text: a call of ``gemm``, alone or with the update of what it is for.

With an update, a block of rows of a gradient is made and at once given to the optimiser's kernel,
while it is in the cache. The blocks depend on sizes alone. Start reading at ``product``.
"""

from __future__ import annotations

from collections.abc import Sequence

from numba import types

from ..kernels.cpu import matmul
from ..kernels.half_type import memory_type
from ..kernels.machine import threads
from .emit_call import call_kernel
from .emit_text import Text
from .program import Call, Gemm, Instruction, Operand, View
from .template import Entry, KernelUse
from .updates import in_step, operands

SHARED_PRODUCT = matmul.GRAIN
"""Multiplications from which a product gets threads."""

BLOCK = 1 << 16
"""About how many elements of a gradient are made and used at a time: 256 kB of float32."""


def product(e: Text, i: Gemm) -> None:
    """``gemm`` at once when it is small, the threaded kernel when it is not."""
    (out,), (x, y, *row) = i.outs, i.ins
    if out.view.strides[1] != 1 and out.view.shape[1] != 1:  # out.T = y.T x.T
        out, x, y = transposed(out), transposed(y), transposed(x)
    (n, k), m = x.view.shape, y.view.shape[1]
    work = n * m * k
    e.effort += work
    ldx, transx = leading(x)
    ldy, transy = leading(y)
    ldout = e.number(out.view.strides[0] if n > 1 else max(m, 1))
    sizes = ", ".join(e.number(v) for v in (n, m, k))
    start = f"{e.at(out)}, {ldout}" if i.accumulate else "0, 0"
    if row:
        start = f"{e.at(row[0])}, 0"
    arguments = (
        f"{transx}, {transy}, {sizes}, {e.at(x)}, {e.number(ldx)}, "
        f"{e.at(y)}, {e.number(ldy)}, {start}, {e.at(out)}, {ldout}"
    )
    if work >= SHARED_PRODUCT and threads() > 1:
        like = types.CPointer(memory_type(out.dtype))
        use = KernelUse(matmul.shared_gemm, (like, *[types.int64] * 13), True)
        call_kernel(e, use, [e.element(out), arguments])
        return
    _uses_gemm(e, out, work)
    e.lines.append(f"gemm({e.element(out)}, {arguments})")


def _uses_gemm(e: Text, out: Operand, work: int) -> None:
    e.alone |= work >= 1 << 17
    e.products[out.dtype] = None
    e.simd["product:gemm"] = None


def with_updates(groups: Sequence[tuple[Instruction, ...]]) -> list[tuple[Instruction, ...]]:
    """The groups, products and the updates that follow them together."""
    found: list[tuple[Instruction, ...]] = []
    for group in groups:
        if found and len(group) == 1 and len(found[-1]) == 1 and in_step(found[-1][0], group[0]):
            found[-1] = (*found[-1], *group)
        else:
            found.append(group)
    return found


def product_and_update(e: Text, i: Gemm, call: Call) -> None:
    """A product and the update that reads it, block of rows by block of rows."""
    (out,), (x, y) = i.outs, i.ins
    (n, k), m = x.view.shape, y.view.shape[1]
    work = n * m * k
    e.effort += work
    e.comment(i)
    e.comment(call)
    if work < SHARED_PRODUCT or threads() == 1:
        _uses_gemm(e, out, work)
        e.lines += _blocks(e, i, call, "range", 1)
        return
    outer = e.set_aside()
    _uses_gemm(e, out, work)
    blocks = -(-n // _rows(n, m))
    e.lines = _blocks(e, i, call, "prange", blocks)
    e.shared_part(outer)


def _rows(n: int, m: int) -> int:
    """Rows of a block: blocks of about one size, of whole tiles of twelve."""
    blocks = -(-n // (max(BLOCK // m // 12, 1) * 12))
    return min(n, -(-n // (blocks * 12)) * 12)


def _blocks(e: Text, i: Gemm, call: Call, loop: str, copies: int) -> list[str]:
    """The loop over blocks. copies: how many blocks run at a time, each with places of its own.

    A block's places in the table: where its part of each array begins, how many elements there
    are, and for each array what the kernel takes for its id.
    """
    (out,), (x, y) = i.outs, i.ins
    (n, k), m = x.view.shape, y.view.shape[1]
    arrays, step = operands(call, 0), out.dtype.itemsize
    begin, count = len(e.table), len(arrays)
    for c in range(copies):
        first = begin + c * (2 * count + 1)
        e.table += [Entry("result")] * (count + 1)
        e.table += [Entry("pointer to", first + j) for j in range(count)]
    ldx, transx = leading(x)
    ldy, transy = leading(y)
    e.use("dense")
    e.use("call")
    e.type("int64")
    rows, total = e.number(_rows(n, m)), e.number(n)
    down = e.number(step * (1 if transx else ldx))
    word = e.spot(begin) + (f" + {2 * count + 1} * block" if copies > 1 else "")
    lines = [
        f"for block in {loop}({e.number(-(-n // _rows(n, m)))}):",
        f"    row = block * {rows}",
        f"    height = min({rows}, {total} - row)",
        f"    word = {word}",
        f"    gemm({e.element(out)}, {transx}, {transy}, height, {e.number(m)}, {e.number(k)}, "
        f"{e.at(x)} + {down} * row, {e.number(ldx)}, {e.at(y)}, {e.number(ldy)}, 0, 0, "
        f"{e.at(out)} + {e.number(step * m)} * row, {e.number(m)})",
    ]
    for j, o in enumerate(arrays):
        across = e.number(o.dtype.itemsize * m)
        lines.append(f"    table[word + {j}] = {e.at(o)} + {across} * row")
    lines.append(f"    table[word + {count}] = {e.number(m)} * height")
    words = types.Array(types.int64, 1, "C")
    arguments, signature, j = [], [], 0
    for arg in call.args:
        if not isinstance(arg, tuple):
            continue
        at = f"pointer(table[1] + 8 * (word + {count + 1 + j}), int64)"
        arguments.append(f"dense({at}, ({len(arg)},))")
        signature.append(words)
        j += len(arg)
    like, kind = e.array(Operand(arrays[0].value, View((n * m,), (1,), arrays[0].view.offset)))
    at = f"pointer(table[1] + 8 * (word + {count}), int64)"
    arguments += [f"dense({at}, (1,))", like]
    signature += [words, kind]
    for name, each in e.hyper_arguments(call.args[-1]):
        arguments.append(name)
        signature.append(each)
    kernel = e.place(Entry("kernel", KernelUse(call.kernel, tuple(signature), False)))
    lines.append(f"    call(table[{e.spot(kernel)}], ({', '.join(arguments)}))")
    return lines


def transposed(x: Operand) -> Operand:
    """The matrix ``x`` with its axes exchanged."""
    v = x.view
    return Operand(x.value, View(v.shape[::-1], v.strides[::-1], v.offset))


def leading(x: Operand) -> tuple[int, int]:
    """Elements from one stored row to the next, and 1 if the rows stored are the columns."""
    (n, m), (row, col) = x.view.shape, x.view.strides
    if (col == 1 or m == 1) and (row >= m or n == 1):
        return (max(m, 1) if n == 1 else row), 0
    return (max(n, 1) if m == 1 else col), 1
