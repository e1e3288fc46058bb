"""Updates of parameters from formulas, on a GPU: the form there of ``kernels/update.py``.

A block takes one chunk of an array after the other, see ``lists.py``. Start reading at
``emit``.
"""

from __future__ import annotations

import functools
from typing import Any

from ... import store
from ...halves import arithmetic
from ...update import Rule
from .elementwise import HELPERS, LIBRARY, DeviceWriter
from .lists import advance, over

__all__ = ["emit", "run"]


def run(rule: Rule, args: tuple[Any, ...]) -> None:
    """Launch ``rule`` on lists of params, step counters, what is kept, gradients; then come sizes,
    the first array, and the numbers.
    """
    count = 2 + rule.counted + len(rule.kept)
    lists, like, scalars = list(args[:count]), args[count + 1], args[count + 2 :]
    function = _function(rule, str(arithmetic(like.dtype)))
    if rule.counted:
        advance(lists[1])
        over(function, lists, args[count], like, lists[1][0], *scalars)
    else:
        over(function, lists, args[count], like, *scalars)


@functools.cache
def _function(rule: Rule, compute: str) -> Any:
    text, name = emit(rule, compute)
    return getattr(store.load_source(text, name), name)


def emit(rule: Rule, compute: str) -> tuple[str, str]:
    """Source text and name of the kernel; compute: the type of the arithmetic."""
    hoisted, bodies = rule.hoisted()
    given = {name: name for name in ["count", *rule.scalars]}
    prelude = DeviceWriter([n for _, n in hoisted], False, "float64", given)
    once = [*prelude.lines, *[f"{name} = T({prelude.number(n)})" for name, n in hoisted]]
    loaded = {a: f"x_{a}" for a in rule.arrays} | {name: name for name, _ in hoisted}
    writer = DeviceWriter(bodies, False, "T", loaded, first=len(prelude.lines))
    assert not {*writer.helpers, *prelude.helpers} & set(HELPERS), "formulas come lowered"
    parameters = ["pointers", "n", "chunks", "k", "like"]
    parameters += [*(["counter"] if rule.counted else []), *rule.scalars]
    lines = [] if rule.counted else ["    " + line for line in once]
    lines += ["    c = cuda.blockIdx.x", "    while c < k:"]
    inner = ["t = chunks[3 * c]"]
    if rule.counted:
        inner += ["count = float64(pointer_at(pointers[n + t], counter)[0])", *once]
    places = _positions(rule)
    inner += [f"{a} = pointer_at(pointers[{at} * n + t], like)" for a, at in places.items()]
    together = " | ".join([f"pointers[{at} * n + t]" for at in places.values()])
    inner += ["i, end = chunks[3 * c + 1], chunks[3 * c + 2]"]
    lanes = 4 if compute == "float32" else 2
    inner += [f"groups = (end - i) // {lanes} if ({together}) % 16 == 0 else 0"]
    inner += ["group, first = cuda.threadIdx.x, i", "while group < groups:"]
    written = [a for a in rule.arrays if a != "g"]
    each = [f"i = first + group * {lanes}"]
    for a in rule.arrays:
        each += [f"{', '.join([f'{a}_{q}' for q in range(lanes)])} = load{lanes}({a}, i)"]
    for q in range(lanes):
        each += [*[f"x_{a} = T({a}_{q})" for a in rule.arrays], *writer.lines]
        results = [f"y_{k}_{q} = T({writer.number(b)})" for k, b in enumerate(bodies)]
        each += results
    for k, a in enumerate(written):
        values = ", ".join([f"y_{k}_{q}" for q in range(lanes)])
        each += [f"store{lanes}({a}, i, {values})"]
    inner += ["    " + line for line in [*each, "group += BLOCK"]]
    inner += [f"for i in range(first + groups * {lanes} + cuda.threadIdx.x, end, BLOCK):"]
    each = [f"x_{a} = T({a}[i])" for a in rule.arrays] + writer.lines
    results = [f"y_{k} = T({writer.number(b)})" for k, b in enumerate(bodies)]
    each += [*results, *[f"{a}[i] = y_{k}" for k, a in enumerate(written)]]
    inner += ["    " + line for line in each]
    inner += ["c += cuda.gridDim.x"]
    lines += [" " * 8 + line for line in inner]
    body = "\n".join(lines).replace("_T(", f"_{compute}(")  # floor_T and its like
    used = [f"{f}_{t}" for f in sorted(LIBRARY) for t in ("float32", "float64")]
    used = ["math", *[name for name in used if f"{name}(" in body]]
    head = ["import numpy as np", "from numba import cuda, float32, float64", ""]
    intrinsics = f"load{lanes}, pointer_at, store{lanes}"
    head += [f"from numbagrad.kernels.cuda.runtime.intrinsics import {intrinsics}"]
    head += [f"from numbagrad.kernels.cuda.runtime.maths import {', '.join(used)}"]
    head += ["from numbagrad.kernels.cuda.runtime.shape import BLOCK"]
    head += ["", f"T = {compute}", "", "", f"def NAME({', '.join(parameters)}):"]
    source = "\n".join([*head, body]) + "\n"
    name = store.content_name(f"{rule.name}_cuda", source)
    return source.replace("NAME", name, 1), name


def _positions(rule: Rule) -> dict[str, int]:
    """Which list of the table of addresses each array is in."""
    first = 1 + rule.counted
    kept = {f"s_{n}": first + k for k, n in enumerate(rule.kept)}
    return {"p": 0, **kept, "g": first + len(rule.kept)}
