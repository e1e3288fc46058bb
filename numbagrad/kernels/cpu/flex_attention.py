"""Attention with scores of the user's formula, by the loops of ``attention.py``.

What is written for a formula is what becomes of a row of scores, forward and in the gradient; the
kernel around it says who does so. A table has for each block of queries and keys whether to leave
it out, to ask the mask for each of its scores, or that all of them are seen. Start reading at
``flex_attention``.
"""

from __future__ import annotations

import functools
from typing import Any

from .. import store
from ..expr import Expr, inputs_of, topological
from ..inner import device
from ..machine import Kernel
from ..product import StridedGemmKernel
from ..score import POSITIONS, Read, Score, ScoreWriter, on_device
from ..writer import Writer
from .attention import COLUMNS, GRAIN, ROWS

__all__ = ["block_kinds", "flex_attention", "flex_attention_grad", "score_rows", "score_span"]

HIDDEN, PARTIAL, FULL = 0, 1, 2
"""What the table says of a block."""

HELD = 1 << 22
"""Elements of what parts of the gradient of captured tensors may take before they are summed."""


@device
def score_rows(t, q, more):
    """The first row and the number of rows of block ``t`` of queries, and all blocks of a head.

    more: of it the first three are the table and the sizes of its blocks.
    """
    size, length = min(more[1], q.shape[2]), q.shape[2]
    inside = (size + ROWS - 1) // ROWS
    first = t // inside * size + t % inside * ROWS
    n = min(ROWS, size - t % inside * ROWS, length - first)
    return first, max(0, n), (length + size - 1) // max(size, 1) * inside


@device
def score_span(j, end, b, h, i, n, more):
    """How many keys from ``j`` on, below ``end``, to take next for n queries from ``i`` on, and
    what the table says of them."""
    table, rows, columns = more[0], more[1], more[2]
    if n == 0:
        return end - j, 0
    kb, kh = b if table.shape[0] > 1 else 0, h if table.shape[1] > 1 else 0
    way = table[kb, kh, i // rows, j // columns]
    limit = min(end, j + COLUMNS) if way else end
    stop = min(limit, (j // columns + 1) * columns)
    while stop < limit and table[kb, kh, i // rows, stop // columns] == way:
        stop = min(limit, stop + columns)
    return stop - j, int(way)


@device
def parts_of(tasks, size):
    """How many parts of tasks add to so many elements apart from each other."""
    return max(1, min(tasks, HELD // max(size, 1)))


class HostScoreWriter(ScoreWriter, Writer):
    """Writes expressions of scores for the CPU."""


class _Rows:
    """The text of a function that does something with a row of scores, column by column."""

    def __init__(self, score: Score, bodies: list[Expr], pieces: int):
        self.score, self.pieces = score, pieces
        self.inputs = {"score": "score", "g": "g", **{n: n for n in POSITIONS}}
        self.inputs |= {r.name: r.name for r in score.reads}
        self.reads = score.reads_of(bodies)
        self.simd: set[str] = set()

    def moving(self, read: Read) -> bool:
        """Whether another element is read in each column."""
        names = frozenset().union(*map(inputs_of, read.indices))
        return "kv_idx" in names or any(r.name in names and self.moving(r) for r in self.reads)

    def place(self, read: Read, stem: str) -> list[str]:
        """Lines that make ``stem`` the place of an element in memory, and tell if there is none."""
        lines = []
        terms = []
        for d, index in enumerate(read.indices):
            writer = self.written([index])
            writer.t = writer.kind(writer.bodies[0])
            lines += writer.lines
            lines += [f"{stem}_{d} = int64({writer.number(writer.bodies[0])})"]
            size = f"c{read.slot}.shape[{d}]"
            lines += [f"{stem}_{d} += {size} if {stem}_{d} < 0 else 0"]
            lines += [f"{stem}_in{d} = uint64({stem}_{d}) < uint64({size})"]
            lines += [f"{stem}_{d} = {stem}_{d} if {stem}_in{d} else 0"]
            terms.append(f"{stem}_{d} * step{read.slot}_{d}")
        lines += [f"{stem} = {' + '.join(terms) or '0'}"]
        return lines

    def written(self, bodies: list[Expr]) -> Any:
        """A writer of expressions."""
        writer = HostScoreWriter(bodies, self.score.kinds, self.inputs)
        self.simd |= set(writer.simd)
        return writer

    def loaded(self, read: Read) -> list[str]:
        """Lines that read an element."""
        kind = self.score.kinds[read.name]
        scope = f"'0.{self.pieces - 1}.{self.pieces}'"
        stem = f"{read.name}_at"
        value = f"load_apart(from{read.slot}, {stem}, {scope})"
        return [*self.place(read, stem), f"{read.name} = {kind}({value})"]

    def inside(self, read: Read) -> str:
        """The text of whether an element that was read is there."""
        return " and ".join([f"{read.name}_at_in{d}" for d in range(len(read.indices))])

    def head(self) -> list[str]:
        """Lines before the loop: positions, captured arrays, elements for the whole row."""
        lines = ["b, h, q_idx = int32(b), int32(h), int32(i)"]
        for slot in sorted({r.slot for r in self.reads}):
            lines += [f"from{slot} = pointer(address(c{slot}), c{slot}.dtype)"]
            for d in range(self.score.captured[slot].rank):
                lines += [f"step{slot}_{d} = c{slot}.strides[{d}] // c{slot}.itemsize"]
        for read in self.reads:
            if not self.moving(read):
                lines += self.loaded(read)
        return lines

    def column(self) -> list[str]:
        """Lines at the beginning of a round."""
        lines = ["kv_idx = int32(j + c)"]
        for read in self.reads:
            if self.moving(read):
                lines += self.loaded(read)
        return lines


def _forward(score: Score) -> tuple[list[str], set[str]]:
    """The function that makes a row of products scores."""
    lines = ["@stage", "def make(row, m, way, scale, b, h, i, j, more):"]
    mask = [] if score.mask is None else [score.mask]
    rows, both = _Rows(score, [score.body], 2), _Rows(score, [score.body, *mask], 2)
    text = [f"_table, _rows, _columns, like, bad, {_captured(score)}_end = more"]
    text += ["T = like.dtype.type", "hidden = T(-np.inf)", "peak, wrong = hidden, int32(0)"]
    text += [*both.head(), "scale = T(scale)"]
    heads = [f"if way == {PARTIAL}:", "else:"] if score.mask is not None else ["if True:"]
    for masked in (True, False) if score.mask is not None else (False,):
        which = both if masked else rows
        writer = which.written([score.body, *(mask if masked else [])])
        inner = [*which.column(), "score = load_apart(row, c, '0.0.2') * scale", *writer.lines]
        inner += [f"x = {writer.number(writer.bodies[0])}"]
        seen = "True"
        if masked:
            seen = "seen"
            inner += [f"seen = {writer.truth(writer.bodies[1])}", "x = x if seen else hidden"]
        for read in which.reads:
            if read.indices:
                inside = which.inside(read)
                inner += [
                    f"wrong |= int32(0) if {inside} or not {seen} else int32({read.slot + 1})"
                ]
        inner += ["store_apart(row, c, x, '0.0.2')", "peak = larger(peak, x)"]
        text += [heads.pop(0)]
        text += ["    for c in range(m):", *["        " + line for line in inner]]
    text += ["if wrong:", "    bad[0] = wrong - 1", "return peak"]
    return lines + ["    " + line for line in text], rows.simd | both.simd


def _backward(score: Score, wrt: tuple[int, ...]) -> tuple[list[str], set[str]]:
    """The function that makes a row of products probabilities, and of gradients of scores.

    wrt: the captured tensors whose gradients are added up.
    """
    mask, slopes = [] if score.mask is None else [score.mask], score.slopes()
    wanted = [r for r in score.reads if r.slot in wrt and r.name in slopes]
    held = {r.name: f"held_{r.name}" for r in wanted}
    pieces = 3 + len(wanted)
    lines = [
        "@stage",
        "def make(row, grad, m, way, scale, factor, shift, less, flags, p, b, h, i, j, more):",
    ]
    sums = "".join([f"s{k}, " for k in wrt])
    simd = {"falling_exp"}
    versions = []
    for masked in (True, False) if score.mask is not None else (False,):
        first = [score.body, *(mask if masked else [])]
        named = slopes if masked else Score(score.body, None, score.reads, score.captured).slopes()
        then = [named["score"], *[named[r.name] for r in wanted]]
        rows = _Rows(score, [*first, *then], pieces)
        writer = rows.written([*first, *then])
        early = set(topological(writer.bodies[: len(first)]))
        lines_of = list(zip(writer.made, writer.lines, strict=True))
        inner = [*rows.column(), f"score = load_apart(row, c, '0.0.{pieces}') * scale"]
        inner += [line for node, line in lines_of if node in early]
        inner += [f"x = {writer.number(writer.bodies[0])} - shift", "x = most if x > most else x"]
        if masked:
            inner += [f"x = x if {writer.truth(writer.bodies[1])} else hidden"]
        inner += ["weight = falling_exp(x)"]
        inner += [f"g = weight * (load_apart(grad, c, '0.1.{pieces}') - less)"]
        inner += [line for node, line in lines_of if node not in early]
        results = [writer.number(e) for e in writer.bodies[len(first) :]]
        inner += [f"store_apart(row, c, weight, '0.0.{pieces}')"]
        inner += [f"store_apart(grad, c, ({results[0]}) * factor, '0.1.{pieces}')"]
        for k, (read, result) in enumerate(zip(wanted, results[1:], strict=True)):
            inner += [f"store_apart({held[read.name]}, c, {result}, '0.{2 + k}.{pieces}')"]
        versions.append((rows, inner))
        simd |= rows.simd
    rows = versions[0][0]
    text = [f"_table, _rows, _columns, like, glse, {_captured(score)}{sums}part = more"]
    text += ["T = like.dtype.type", "hidden, most = T(-np.inf), T(0)", *rows.head()]
    text += ["less, scale, factor = less - glse[b, h, i], T(scale), T(factor)"]
    text += [f"{name} = stack({COLUMNS}, T(0))" for name in held.values()]
    text += [f"if way == {PARTIAL}:" if len(versions) > 1 else "if True:"]
    for k, (_, inner) in enumerate(versions):
        text += ["else:"] * k
        text += ["    for c in range(m):", *["        " + line for line in inner]]
    for read in wanted:
        text += _scattered(rows, read, held[read.name])
    return lines + ["    " + line for line in text], simd


def _scattered(rows: _Rows, read: Read, held: str) -> list[str]:
    """Lines that add the gradients of what a row has read to where it was read."""
    rank = len(read.indices)
    at, to = f"{read.name}_at", f"{read.name}_to"
    flat = "0"
    for d in range(rank):
        flat = f"({flat}) * c{read.slot}.shape[{d}] + {at}_{d}" if d else f"{at}_0"
    if not rows.moving(read):
        lines = [f"{to} = T(0)", "for c in range(m):", f"    {to} = plus({to}, {held}[c])"]
        return [*lines, f"s{read.slot}[part, {flat}] += {to}"]
    inner = ["kv_idx = int32(j + c)"]
    for each in rows.reads:
        if rows.moving(each):
            inner += rows.loaded(each)
    inner += [f"s{read.slot}[part, {flat}] += {held}[c]"]
    return ["for c in range(m):", *["    " + line for line in inner]]


def _imports(simd: set[str]) -> list[str]:
    lines = ["import math", "", "import numpy as np"]
    lines += ["from numba import float32, float64, int32, int64, prange, uint64", ""]
    lines += ["from numbagrad.kernels.blas import blas_alone, blas_restore"]
    lines += ["from numbagrad.kernels.cpu import attention, flex_attention"]
    lines += ["from numbagrad.kernels.inner import exchanged"]
    names = "address, larger, load_apart, plus, pointer, stack, store_apart"
    lines += [f"from numbagrad.kernels.intrinsics import {names}"]
    if simd:
        lines += [f"from numbagrad.kernels.simd_math import {', '.join(sorted(simd))}"]
    names = "add_chunks chunks_of stage"
    lines += ["", *[f"{n} = attention.{n}" for n in names.split()]]
    names = "parts_of score_rows score_span"
    return [*lines, *[f"{n} = flex_attention.{n}" for n in names.split()], "", ""]


def _made(lines: list[str], simd: set[str], stem: str) -> tuple[Any, str]:
    text = "\n".join([*_imports(simd), *lines]) + "\n"
    name = store.content_name(stem, text)
    text = text.replace("def NAME(", f"def {name}(")
    return getattr(store.load_source(text, stem), name), text


def _captured(score: Score) -> str:
    """The names of captured arrays, as arguments or to be unpacked behind others."""
    return "".join([f"c{k}, " for k in range(len(score.captured))])


@functools.cache
def flex_attention(score: Score) -> StridedGemmKernel:
    """The kernel of a formula of scores.

    Its arguments are out (b, h, l, w), lse (b, h, l), bad (1,), q (b, h, l, e), k (b, g, s, e),
    v (b, g, s, w), table, captured tensors, rows and columns of a block of the table, scale; rows
    of unit stride. A captured tensor that is read where it has no element stands in bad, else -1.
    """
    lines, simd = _forward(score)
    c = _captured(score)
    lines += ["", "", "rows_of_task = exchanged(", "    attention.attention_rows,"]
    lines += ["    causal_block=score_rows, causal_span=score_span, masked_scores=make,", ")"]
    lines += ["", "", f"def NAME(out, lse, bad, q, k, v, table, {c}rows, columns, scale):"]
    body = ["bad[0] = -1", f"more = table, rows, columns, lse, bad, {c}0"]
    body += ["tasks = q.shape[0] * q.shape[1] * score_rows(0, q, more)[2]"]
    body += ["previous = blas_alone(q.size * k.shape[2])", "for task in prange(0, tasks):"]
    body += ["    rows_of_task(task, out, lse, q, k, v, bad, scale, 0.0, more)"]
    body += ["blas_restore(previous)"]
    function, text = _made(lines + ["    " + line for line in body], simd, "flex_attention")
    kernel = StridedGemmKernel(function, 3, GRAIN, source=text, allocates=True)
    kernel.twin = on_device("flex_attention", score)
    return kernel


@functools.cache
def flex_attention_grad(score: Score, wrt: tuple[int, ...]) -> StridedGemmKernel:
    """The kernel of the gradients of q, k, v and those captured tensors that ``wrt`` counts.

    Its arguments are gq, gk, gv, the gradients of captured tensors, C; g, out, lse, glse, q, k, v,
    table, captured tensors, rows and columns of a block of the table, scale.
    """
    lines, simd = _backward(score, wrt)
    c, to, sums = (
        _captured(score),
        "".join([f"gc{k}, " for k in wrt]),
        "".join([f"s{k}, " for k in wrt]),
    )
    lines += ["", "", "columns_of_task = exchanged(", "    attention.attention_grad_columns,"]
    lines += ["    causal_block=score_rows, causal_span=score_span,"]
    lines += ["    score_grads=exchanged(attention.score_grads, masked_grads=make),", ")"]
    lines += ["", "", f"def NAME(gq, gk, gv, {to}g, out, lse, glse, q, k, v, table, {c}"]
    lines += ["         rows, columns, scale):"]
    body = ["tasks = k.shape[0] * k.shape[1] * chunks_of(k)"]
    body += ["rest = np.empty((chunks_of(k) - 1, *q.shape), q.dtype)"]
    body += ["nothing = np.empty(0, np.int64)"]
    sizes = " + ".join([f"gc{k}.size" for k in wrt])
    body += [f"parts = parts_of(tasks, {sizes})" if wrt else "parts = tasks"]
    body += [f"s{k} = np.zeros((parts, gc{k}.size), gc{k}.dtype)" for k in wrt]
    body += ["previous = blas_alone(q.size * k.shape[2])", "for part in prange(0, parts):"]
    inner = [f"more = table, rows, columns, lse, glse, {c}{sums}part"]
    inner += ["for task in range(part * tasks // parts, (part + 1) * tasks // parts):"]
    inner += ["    columns_of_task("]
    inner += [
        "        task, rest, gq, gk, gv, g, out, lse, q, k, v, nothing, scale, 0.0, more",
        "    )",
    ]
    body += ["    " + line for line in inner]
    body += ["blas_restore(previous)", "if rest.shape[0] > 0:"]
    body += ["    for task in prange(0, q.shape[0] * q.shape[1]):"]
    body += ["        add_chunks(task, gq, rest)"]
    for k in wrt:
        body += [f"flat{k} = pointer(address(gc{k}), gc{k}.dtype)", f"for a in range(gc{k}.size):"]
        body += [f"    total = s{k}[0, a]", "    for each in range(1, parts):"]
        body += [f"        total += s{k}[each, a]", f"    flat{k}[a] = total"]
    function, text = _made(lines + ["    " + line for line in body], simd, "flex_attention_grad")
    outputs = 3 + len(wrt)
    kernel = StridedGemmKernel(function, outputs, GRAIN, source=text, allocates=True)
    kernel.twin = on_device("flex_attention_grad", score, wrt)
    return kernel


@functools.cache
def block_kinds(score: Score) -> Kernel:
    """The kernel that asks a mask for each score and fills the table.

    Its arguments are table (b, h, blocks of queries, blocks of keys), bad (1,), captured tensors,
    queries, keys, rows and columns of a block.
    """
    assert score.mask is not None
    rows = _Rows(score, [score.mask], 2)
    writer = rows.written([score.mask])
    lines = ["@stage", "def block(bad, b, h, i, first, end, more):"]
    text = [f"{_captured(score)}_end = more", "count, wrong, j = 0, int32(0), int64(0)"]
    text += ["T = float64", *rows.head()]
    inner = [*rows.column(), *writer.lines]
    inner += [f"count += 1 if {writer.truth(writer.bodies[0])} else 0"]
    for read in rows.reads:
        if read.indices:
            inner += [f"wrong |= int32(0) if {rows.inside(read)} else int32({read.slot + 1})"]
    text += ["for c in range(first, end):", *["    " + line for line in inner]]
    text += ["if wrong:", "    bad[0] = wrong - 1", "return count"]
    lines += ["    " + line for line in text]
    c = _captured(score)
    lines += ["", "", f"def NAME(table, bad, {c}queries, keys, rows, columns):"]
    body = ["bad[0] = -1", f"more = {c}0", "heads, across = table.shape[1], table.shape[2]"]
    body += ["for task in prange(0, table.shape[0] * heads * across):"]
    inner = ["b, h, t = task // across // heads, task // across % heads, task % across"]
    inner += ["begin, last = t * rows, min(queries, (t + 1) * rows)"]
    inner += ["for s in range(table.shape[3]):"]
    inner += ["    first, end, count = s * columns, min(keys, (s + 1) * columns), 0"]
    inner += ["    for i in range(begin, last):"]
    inner += ["        count += block(bad, b, h, i, first, end, more)"]
    inner += ["    every = count == (last - begin) * (end - first)"]
    inner += [f"    way = {FULL} if every else {PARTIAL}"]
    inner += [f"    table[b, h, t, s] = way if count else {HIDDEN}"]
    body += ["    " + line for line in inner]
    function, source = _made(lines + ["    " + line for line in body], rows.simd, "block_kinds")
    return Kernel(function, 2, 1, source=source, allocates=False)
