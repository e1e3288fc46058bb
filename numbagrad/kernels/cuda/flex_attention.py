"""Attention with scores of the user's formula on a GPU, by the kernels of ``runtime/attention.py``.

What is written for a formula is what becomes of one score, and of its gradient. Captured tensors
are copied into two arrays, one of floats and one of integers, behind the table of blocks. Start
reading at ``flex_attention``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import store
from ..expr import Expr, expr, symbol
from ..formula import Formula
from ..loops import ElementwiseKernel
from ..score import POSITIONS, Score, ScoreWriter
from .runtime import device, elementwise
from .runtime.attention import drawn, form_of, lost_of, run, run_grad
from .runtime.elementwise import LIBRARY, DeviceWriter
from .runtime.warp import inlined

__all__ = ["flex_attention", "flex_attention_grad"]

FREE = 21
"""Where in ``form`` the table's sizes begin, those of its blocks, and what captured tensors are."""

_INT64 = np.dtype(np.int64)
_LESS = ElementwiseKernel(Formula("less", ("x", "y"), expr("sub", symbol("x"), symbol("y"))))


class DeviceScoreWriter(ScoreWriter, DeviceWriter):
    """Writes expressions of scores for a GPU."""


@inlined
def _live(ints, form, b, h, i0, j0, tile):
    """Whether the table lets any score of a square be seen."""
    kb = b if form[FREE] > 1 else 0
    kh = h if form[FREE + 1] > 1 else 0
    across, down = form[FREE + 3], form[FREE + 2]
    rows, columns = form[FREE + 4], form[FREE + 5]
    last_row = min(down - 1, (i0 + tile - 1) // rows)
    last = min(across - 1, (j0 + tile - 1) // columns)
    found = False
    for r in range(i0 // rows, last_row + 1):
        for c in range(j0 // columns, last + 1):
            if ints[((kb * form[FREE + 1] + kh) * down + r) * across + c] != 0:
                found = True
    return found


class _Text:
    """Writes what becomes of one score."""

    def __init__(self, score: Score):
        self.score = score
        self.inputs = {n: n for n in ("score", "g", *POSITIONS)}
        self.inputs |= {r.name: r.name for r in score.reads}
        self.places: list[int] = []
        at = FREE + 6
        for captured in score.captured:
            self.places.append(at)
            at += 1 + captured.rank

    def lines(self, bodies: list[Expr]) -> tuple[list[str], list[str]]:
        """Statements that read elements and compute ``bodies``, and the texts of those."""
        lines = ["b, h, q_idx, kv_idx = int32(b), int32(h), int32(row), int32(col)"]
        for read in self.score.reads_of(bodies):
            lines += self.loaded(read)
        writer = DeviceScoreWriter(bodies, self.score.kinds, self.inputs)
        lines += writer.lines
        texts = []
        for body in writer.bodies:
            texts.append(writer.truth(body) if body.is_bool else writer.number(body))
        return lines, texts

    def loaded(self, read: Any) -> list[str]:
        """Statements that read an element."""
        kind, place = self.score.kinds[read.name], self.places[read.slot]
        lines: list[str] = []
        at, inside = f"form[{place}]", []
        for d, index in enumerate(read.indices):
            writer = DeviceScoreWriter([index], self.score.kinds, self.inputs)
            writer.t = writer.kind(writer.bodies[0])
            each, size = f"{read.name}_{d}", f"form[{place + 1 + d}]"
            lines += [*writer.lines, f"{each} = int64({writer.number(writer.bodies[0])})"]
            lines += [f"{each} = {each} + {size} if {each} < 0 else {each}"]
            inside.append(f"(0 <= {each} and {each} < {size})")
        flat = ""
        for d in range(len(read.indices)):
            flat = (f"({flat}) * form[{place + 1 + d}] + " if d else "") + f"{read.name}_{d}"
        text = " and ".join(inside) or "True"
        lines += [f"{read.name}_in = {text}"]
        at = f"form[{place}] + (({flat}) if {read.name}_in else 0)" if inside else at
        source = "floats" if kind == "T" else "ints"
        return [*lines, f"{read.name} = {kind}({source}[{at}])"]


def _emit(score: Score, compute: str) -> str:
    """The source of the module with ``finish`` and ``slope``; compute: the type of floats."""
    writer = _Text(score)
    mask = [] if score.mask is None else [score.mask]
    lines, (value, *seen) = writer.lines([score.body, *mask])
    lines = [*lines, f"value = {value}", f"seen = {seen[0] if seen else 'True'}"]
    for read in score.reads:
        if read.indices and any(f"{read.name}_in = " in line for line in lines):
            lines += [f"if seen and not {read.name}_in:", f"    bad[0] = {read.slot}"]
    lines += ["return T(value) if seen else T(-math.inf)"]
    finish = ["score = value", *lines]
    lines, (slope,) = writer.lines([score.slopes()["score"]])
    body = ["score = value", *lines, f"return T({slope})"]
    text = ["@inlined"]
    text += ["def finish(value, floats, ints, bad, form, masked, causal, b, h, row, col):"]
    text += ["    " + line for line in finish]
    text += ["", "", "@inlined", "def slope(g, value, floats, ints, form, b, h, row, col):"]
    text += ["    " + line for line in body]
    source = "\n".join(text).replace("_T(", f"_{compute}(")  # floor_T and its like
    used = [f"{f}_{t}" for f in sorted(LIBRARY) for t in ("float32", "float64")]
    used = ["math", *[name for name in used if f"{name}(" in source]]
    head = ["import numpy as np", "from numba import float32, float64, int32, int64", ""]
    head += [f"from numbagrad.kernels.cuda.runtime.maths import {', '.join(used)}"]
    head += ["from numbagrad.kernels.cuda.runtime.warp import inlined"]
    return "\n".join([*head, "", f"T = {compute}", "", "", source]) + "\n"


@functools.cache
def _stage(score: Score) -> tuple[Any, Any, Any]:
    def module(real: Any) -> Any:
        return store.load_source(_emit(score, str(real)), "flex_attention_cuda")

    return (lambda real: module(real).finish), (lambda real: module(real).slope), _live


def _given(score: Score, q: Any, table: Any, captured: Any, bad: Any) -> tuple[tuple, list[int]]:
    """Arrays for the stage, and the numbers that stand in ``form`` from ``FREE`` on."""
    sizes = {"floats": 0, "ints": table.size}
    numbers, parts = [], [("ints", 0, table)]
    for about, array in zip(score.captured, captured, strict=True):
        which = "floats" if about.kind == "T" else "ints"
        numbers += [sizes[which], *array.shape]
        parts.append((which, sizes[which], array))
        sizes[which] += array.size
    whole = {
        which: device.empty((max(sizes[which], 1),), dtype, q.device)
        for which, dtype in (("floats", q.dtype), ("ints", _INT64))
    }
    for which, at, array in parts:
        strides = tuple([math.prod(array.shape[d + 1 :]) for d in range(array.ndim)])
        elementwise.copy(whole[which].element_view(array.shape, strides, at), array)
    return (whole["floats"], whole["ints"], bad), [*table.shape, *numbers]


def flex_attention(score: Score) -> Callable[..., None]:
    """What runs attention of a formula of scores on arguments of the CPU's kernel."""

    def launch(out, lse, bad, q, k, v, table, *rest):
        *captured, rows, columns, scale = rest
        elementwise.fill(bad, -1)
        given, numbers = _given(score, q, table, captured, bad)
        form = form_of(q, k, v, out, out, *numbers[:4], rows, columns, *numbers[4:])
        run(_stage(score), out, lse, q, k, v, given, form, drawn(None, 0.0), float(scale), 0, 0)

    return launch


def flex_attention_grad(score: Score, wrt: tuple[int, ...]) -> Callable[..., None]:
    """What runs its gradient; that of captured tensors is the op's, so that ``wrt`` is empty."""
    assert not wrt, "no kernel adds up the gradients of captured tensors on a GPU"

    def launch(gq, gk, gv, g, out, lse, glse, q, k, v, table, *rest):
        *captured, rows, columns, scale = rest
        bad = device.empty((1,), _INT64, q.device)  # nobody looks: forward has told
        given, numbers = _given(score, q, table, captured, bad)
        form = form_of(q, k, v, g, out, *numbers[:4], rows, columns, *numbers[4:])
        lost = lost_of(g, out, form)
        elementwise.run(_LESS, (lost, lost, glse))
        draws = drawn(None, 0.0)
        run_grad(
            _stage(score), gq, gk, gv, g, lost, lse, q, k, v, given, form, draws, float(scale), 0, 0
        )

    return launch
