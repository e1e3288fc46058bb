"""In-place ops on a tensor of 3.2 million numbers: what changes few of them, and what changes all.

A copy of the tensor, which none of them needs, takes as long as a formula of all its numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .case import EAGER_AT_MOST, Case, Run

ROWS, COLUMNS, FEW = 200_000, 16, 32

Op = Callable[["Operands"], Any]


class Operands:
    """What the ops below take, made by ``lib``.

    x, y: (200000, 16) float32, ones in y. rows: 32 int64 below 200000. v: (32, 16).
    index: rows, for each column. half: the left half of x.
    """

    def __init__(self, lib: Any):
        self.lib = lib
        self.x, self.y = lib.zeros(ROWS, COLUMNS), lib.ones(ROWS, COLUMNS)
        self.rows = lib.arange(0, 100 * FEW, 100)
        self.v = lib.ones(FEW, COLUMNS)
        self.index = self.rows[:, None].expand(FEW, COLUMNS).contiguous()
        self.half = self.x[:, : COLUMNS // 2]


def _set(key: Callable[[Operands], Any], value: Callable[[Operands], Any]) -> Op:
    def op(o: Operands) -> Any:
        o.x[key(o)] = value(o)
        return o.x

    return op


OPS: dict[str, Op] = {
    "x[rows] = v": _set(lambda o: o.rows, lambda o: o.v),
    "x[rows, 3] = 1.0": _set(lambda o: (o.rows, 3), lambda o: 1.0),
    "x[5] = v[0]": _set(lambda o: 5, lambda o: o.v[0]),
    "x.index_copy_(0, rows, v)": lambda o: o.x.index_copy_(0, o.rows, o.v),
    "x.index_add_(0, rows, v, alpha=0.0)": lambda o: o.x.index_add_(0, o.rows, o.v, alpha=0.0),
    "x.index_fill_(0, rows, 2.0)": lambda o: o.x.index_fill_(0, o.rows, 2.0),
    "x.index_put_((rows,), v)": lambda o: o.x.index_put_((o.rows,), o.v),
    "x.scatter_(0, index, v)": lambda o: o.x.scatter_(0, o.index, o.v),
    "x.scatter_reduce_(0, index, v, 'amax')": lambda o: o.x.scatter_reduce_(
        0, o.index, o.v, "amax"
    ),
    "x.mul_(0.5)": lambda o: o.x.mul_(0.5),
    "x.mul_(y)": lambda o: o.x.mul_(o.y),
    "x.mul_(v[0])": lambda o: o.x.mul_(o.v[0]),
    "x.add_(y, alpha=0.0)": lambda o: o.x.add_(o.y, alpha=0.0),
    "x.addcmul_(y, y, value=0.0)": lambda o: o.x.addcmul_(o.y, o.y, value=0.0),
    "x.lerp_(y, 0.5)": lambda o: o.x.lerp_(o.y, 0.5),
    "x.clamp_(0.0, 1.0)": lambda o: o.x.clamp_(0.0, 1.0),
    "x.neg_().neg_()": lambda o: o.x.neg_().neg_(),
    "relu(x, inplace=True)": lambda o: o.lib.nn.functional.relu(o.x, inplace=True),
    "half.mul_(0.5)": lambda o: o.half.mul_(0.5),
    "x.copy_(y)": lambda o: o.x.copy_(o.y),
    "x.zero_()": lambda o: o.x.zero_(),
}


def _build(op: Op) -> Callable[[Any], Run]:
    def build(lib: Any) -> Run:
        operands = Operands(lib)
        return lambda: (op(operands),)

    return build


CASES = [Case(name, _build(op), at_most=EAGER_AT_MOST, threads=(1, 2)) for name, op in OPS.items()]
