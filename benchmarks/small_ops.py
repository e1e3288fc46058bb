"""Ops on tensors of 48 numbers, where Python is what takes the time: op by op, one thread.

Only ops that a training program calls often; ``op_cost.py`` has arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .case import EAGER_AT_MOST, Case, Run, uniform

Op = Callable[["Operands"], Any]


class Operands:
    """What the ops below take, made by ``lib``; float32 if nothing else is said.

    x, y: (6, 8). v: (8,). w: (8, 5). i: (6, 3) int64 below 6. rows: (4,) int64 below 6.
    labels: (6,) int64 below 8. mask: (6, 8) bool. out: (6, 8), written by in-place ops.
    """

    def __init__(self, lib: Any):
        rng = np.random.default_rng(0)
        self.lib = lib
        self.functional = lib.nn.functional
        self.x, self.y = (lib.tensor(a) for a in (uniform(6, 8), uniform(8, 6).T.copy()))
        self.v, self.w = lib.tensor(uniform(8)), lib.tensor(uniform(8, 5))
        self.i = lib.tensor(rng.integers(0, 6, (6, 3)))
        self.rows = lib.tensor(rng.integers(0, 6, 4))
        self.labels = lib.tensor(rng.integers(0, 8, 6))
        self.mask = self.x > 0
        self.out = lib.zeros(6, 8)
        self.four = lib.tensor(uniform(4, 8))


OPS: dict[str, Op] = {
    "x + v, broadcast": lambda o: o.x + o.v,
    "x > 0": lambda o: o.x > 0,
    "x.to(float64)": lambda o: o.x.to(o.lib.float64),
    "x.clone()": lambda o: o.x.clone(),
    "x.T.contiguous()": lambda o: o.x.T.contiguous(),
    "zeros(6, 8)": lambda o: o.lib.zeros(6, 8),
    "ones_like(x)": lambda o: o.lib.ones_like(o.x),
    "arange(48)": lambda o: o.lib.arange(48),
    "out.zero_()": lambda o: o.out.zero_(),
    "out.copy_(x)": lambda o: o.out.copy_(o.x),
    "out.lerp_(x, 0.5)": lambda o: o.out.lerp_(o.x, 0.5),
    "out.addcmul_(x, y, value=0.0)": lambda o: o.out.addcmul_(o.x, o.y, value=0.0),
    "x.clamp(-0.5, 0.5)": lambda o: o.x.clamp(-0.5, 0.5),
    "where(mask, x, y)": lambda o: o.lib.where(o.mask, o.x, o.y),
    "x.masked_fill(mask, 0.0)": lambda o: o.x.masked_fill(o.mask, 0.0),
    "x.sum()": lambda o: o.x.sum(),
    "x.sum(1)": lambda o: o.x.sum(1),
    "x.mean(0)": lambda o: o.x.mean(0),
    "x.var(1)": lambda o: o.x.var(1),
    "x.max(1)": lambda o: o.x.max(1).values,
    "x.argmax(1)": lambda o: o.x.argmax(1),
    "x.norm()": lambda o: o.x.norm(),
    "x.cumsum(1)": lambda o: o.x.cumsum(1),
    "x.sort(1)": lambda o: o.x.sort(1).values,
    "x.topk(3)": lambda o: o.x.topk(3).values,
    "x @ w": lambda o: o.x @ o.w,
    "x @ v": lambda o: o.x @ o.v,
    "einsum('ij,jk->ik', x, w)": lambda o: o.lib.einsum("ij,jk->ik", o.x, o.w),
    "x.trace()": lambda o: o.x.trace(),
    "x.tril()": lambda o: o.x.tril(),
    "x.flip(0)": lambda o: o.x.flip(0),
    "x.view(8, 6)": lambda o: o.x.view(8, 6),
    "x.unsqueeze(0)": lambda o: o.x.unsqueeze(0),
    "x.permute(1, 0)": lambda o: o.x.permute(1, 0),
    "x.expand(2, 6, 8)": lambda o: o.x.expand(2, 6, 8),
    "x.chunk(2, 1)": lambda o: o.x.chunk(2, 1)[1],
    "x[2]": lambda o: o.x[2],
    "x[:, 1:5]": lambda o: o.x[:, 1:5],
    "x[rows]": lambda o: o.x[o.rows],
    "x[mask]": lambda o: o.x[o.mask],
    "x.gather(0, i)": lambda o: o.x.gather(0, o.i),
    "x.index_select(0, rows)": lambda o: o.x.index_select(0, o.rows),
    "x.scatter(0, i, y)": lambda o: o.x.scatter(0, o.i, o.y),
    "out.scatter_(0, i, y)": lambda o: o.out.scatter_(0, o.i, o.y),
    "x.scatter_add(0, i, y)": lambda o: o.x.scatter_add(0, o.i, o.y),
    "x.index_add(0, rows, four)": lambda o: o.x.index_add(0, o.rows, o.four),
    "rows.bincount()": lambda o: o.rows.bincount(),
    "cat([x, y])": lambda o: o.lib.cat([o.x, o.y]),
    "cat([x, y], 1)": lambda o: o.lib.cat([o.x, o.y], 1),
    "stack([x, y, x])": lambda o: o.lib.stack([o.x, o.y, o.x]),
    "relu(x)": lambda o: o.functional.relu(o.x),
    "softmax(x, 1)": lambda o: o.functional.softmax(o.x, 1),
    "log_softmax(x, 1)": lambda o: o.functional.log_softmax(o.x, 1),
    "layer_norm(x, (8,))": lambda o: o.functional.layer_norm(o.x, (8,)),
    "linear(x, w.T)": lambda o: o.functional.linear(o.x, o.w.T),
    "embedding(rows, x)": lambda o: o.functional.embedding(o.rows, o.x),
    "one_hot(labels, 8)": lambda o: o.functional.one_hot(o.labels, 8),
    "cross_entropy(x, labels)": lambda o: o.functional.cross_entropy(o.x, o.labels),
    "mse_loss(x, y)": lambda o: o.functional.mse_loss(o.x, o.y),
    "pad(x, (1, 1))": lambda o: o.functional.pad(o.x, (1, 1)),
}

TRAINED: dict[str, Op] = {
    "cat([x, y], 1)": lambda o: o.lib.cat([o.x, o.y], 1),
    "stack([x, y])": lambda o: o.lib.stack([o.x, o.y]),
    "x.gather(0, i)": lambda o: o.x.gather(0, o.i),
    "x[rows]": lambda o: o.x[o.rows],
    "x[:, 1:5]": lambda o: o.x[:, 1:5],
    "x.index_add(0, rows, four)": lambda o: o.x.index_add(0, o.rows, o.four),
    "x.scatter_add(0, i, y)": lambda o: o.x.scatter_add(0, o.i, o.y),
    "x @ w": lambda o: o.x @ o.w,
    "x.mean(0)": lambda o: o.x.mean(0),
    "x.max(1)": lambda o: o.x.max(1).values,
    "softmax(x, 1)": lambda o: o.functional.softmax(o.x, 1),
    "layer_norm(x, (8,))": lambda o: o.functional.layer_norm(o.x, (8,)),
    "embedding(rows, x)": lambda o: o.functional.embedding(o.rows, o.x),
    "cross_entropy(x, labels)": lambda o: o.functional.cross_entropy(o.x, o.labels),
}


def _forward(op: Op) -> Callable[[Any], Run]:
    def build(lib: Any) -> Run:
        operands = Operands(lib)
        return lambda: (op(operands),)

    return build


def _both_ways(op: Op) -> Callable[[Any], Run]:
    def build(lib: Any) -> Run:
        operands = Operands(lib)
        x = operands.x.requires_grad_()
        g = lib.ones_like(op(operands))

        def run() -> tuple[Any, ...]:
            x.grad = None
            op(operands).backward(g)
            return (x.grad,)

        return run

    return build


CASES = [
    *[Case(name, _forward(op), at_most=EAGER_AT_MOST) for name, op in OPS.items()],
    *[
        Case(f"{name}, forward and backward", _both_ways(op), at_most=EAGER_AT_MOST)
        for name, op in TRAINED.items()
    ],
]
