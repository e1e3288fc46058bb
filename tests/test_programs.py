"""Random programs of views, in-place changes and ops: values, flags, gradients as in PyTorch.

A program works on a pool of tensors, in both libraries at once. What one refuses the other must
refuse too, but for the cases that ``BETTER_REFUSED`` and ``BETTER_DONE`` name.
"""

from __future__ import annotations

import operator
import random
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import numbagrad as ng

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peer

BETTER_REFUSED = (
    "single memory location",  # writing to an expanded tensor; PyTorch warns for some ops
    "cannot be followed by the tape",  # a view of an expanded base, written to
)
BETTER_DONE = (
    "modified by an inplace operation",  # x.mul_(x): here the old value is kept
    "single memory location",  # x.add_(part of x): here the sum is computed first
    "view size is not compatible",  # PyTorch's results may be strided, ours are contiguous
)


class Departs(Exception):
    """The libraries part ways here on purpose; what follows cannot be compared."""


@dataclass
class Pair:
    """The same tensor in both libraries."""

    torch: Any
    ng: Any

    def of(self, library):
        return self.torch if library is torch else self.ng


def both(log, text, function):
    """``function(library)`` in both; None where both refuse."""
    log.append(text)
    results, errors = [], []
    for library in (torch, ng):
        try:
            results.append(function(library))
        except Exception as error:
            errors.append((library, error))
    if len(errors) == 1:
        library, error = errors[0]
        if any(words in str(error) for words in (BETTER_REFUSED if library is ng else BETTER_DONE)):
            raise Departs
        raise AssertionError(f"only {library.__name__} refuses {log}: {error!r}")
    return None if errors else Pair(*results)


UNARY = ["tanh", "sin", "neg", "square", "sigmoid", "clone", "detach", "abs", "relu"]
BINARY = ["add", "mul", "sub", "maximum"]
VIEWS = {
    "transpose": lambda x: x.transpose(0, -1),
    "flatten": lambda x: x.view(-1),
    "rest": lambda x: x[1:],
    "column": lambda x: x[..., 0],
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "expand": lambda x: x.unsqueeze(0).expand(2, *x.shape),
    "every other": lambda x: x[::2],
    "mask": lambda x: x[x > 0],
    "twice": lambda x: x[[0, 0]],
}
IN_PLACE = {
    "zero_": lambda x, y: x.zero_(),
    "fill_": lambda x, y: x.fill_(0.5),
    "tanh_": lambda x, y: x.tanh_(),
    "masked_fill_": lambda x, y: x.masked_fill_(x > 0.3, 0.25),
    "mul_": lambda x, y: x.mul_(y),
    "add_": lambda x, y: x.add_(y),
    "copy_": lambda x, y: x.copy_(y),
    "first": lambda x, y: operator.setitem(x, 0, y),
    "rest": lambda x, y: operator.setitem(x, slice(1, None), y),
    "mask": lambda x, y: operator.setitem(x, x > 0, 0.75),
    "list": lambda x, y: operator.setitem(x, [0], y),
    "column": lambda x, y: operator.setitem(x, (..., 0), 2.0),
}
OTHERS = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "gram": lambda x: x.mm(x.t()),
    "softmax": lambda x: x.softmax(-1),
    "max": lambda x: x.max(-1)[0],
    "leaf": lambda x: x.detach().requires_grad_(),
}


def step(dice, pool, log):
    """One random statement."""
    i, j = dice.randrange(len(pool)), dice.randrange(len(pool))
    x, y = pool[i], pool[j]
    kind = dice.choice(["unary", "binary", "view", "view", "other", "in place", "in place"])
    if kind == "in place":
        name, guarded = dice.choice(list(IN_PLACE)), dice.random() < 0.2
        shared = np.shares_memory(x.torch.detach().numpy(), y.torch.detach().numpy())
        if shared and i != j:
            return  # overlapping reads and writes: PyTorch leaves the result open

        def write(library):
            with library.set_grad_enabled(not guarded):
                IN_PLACE[name](x.of(library), y.of(library))

        both(log, f"{name}({i}, {j}){' no_grad' * guarded}", write)
        return
    name = dice.choice({"unary": UNARY, "binary": BINARY}.get(kind) or
                       list(VIEWS if kind == "view" else OTHERS))  # fmt: skip
    text = f"{len(pool)} = {name}({i}{f', {j}' * (kind == 'binary')})"
    call = {
        "unary": lambda library: getattr(x.of(library), name)(),
        "binary": lambda library: getattr(library, name)(x.of(library), y.of(library)),
        "view": lambda library: VIEWS[name](x.of(library)),
        "other": lambda library: OTHERS[name](x.of(library)),
    }[kind]
    made = both(log, text, call)
    if made is not None:
        pool.append(made)


def check(pool, log):
    for k, pair in enumerate(pool):
        x, y = pair.torch, pair.ng
        np.testing.assert_allclose(
            y.detach().numpy(), x.detach().numpy(), atol=1e-10, err_msg=f"{k} {log}"
        )
        flags = [(t.requires_grad, t.is_leaf, t._version) for t in (x, y)]
        assert flags[0] == flags[1], (k, log)


def gradients(library, pool, leaves, twice):
    """Of a sum of squares over the whole pool; and once more of the squared gradients."""
    total = sum((p.of(library) * p.of(library)).sum() * (0.1 * k) for k, p in enumerate(pool, 1))
    of = [leaf.of(library) for leaf in leaves]
    found = list(library.autograd.grad(total, of, create_graph=twice, allow_unused=True))
    tracked = [g for g in found if g is not None and g.requires_grad]
    if tracked:
        again = sum((g * g).sum() for g in tracked)
        found += library.autograd.grad(again, of, allow_unused=True)
    return found


def run(seed, twice):
    dice, numbers = random.Random(seed), np.random.default_rng(seed)
    pool, log = [], []
    for k in range(3):
        array = numbers.standard_normal(dice.choice([(2, 3), (3,), (4,), (2, 2)]))
        tracked = k < 2
        pool.append(
            Pair(
                torch.tensor(array, requires_grad=tracked), ng.tensor(array, requires_grad=tracked)
            )
        )
    leaves = pool[:2]
    try:
        for _ in range(14):
            step(dice, pool, log)
            check(pool, log)
        pair = both(log, "gradients", lambda library: gradients(library, pool, leaves, twice))
    except Departs:
        return False
    for x, y in zip(pair.torch, pair.ng, strict=True) if pair else ():
        if x is None and y is None:
            continue
        shape = (y if x is None else x).shape
        wanted, got = (np.zeros(shape) if g is None else g.detach().numpy() for g in (x, y))
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-8, err_msg=f"{log}")
    return pair is not None


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("batch", range(4))
def test_random_programs_agree_with_pytorch(batch, twice):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compared = sum(run(1000 * batch + seed, twice) for seed in range(60))
    assert compared >= 30  # the rest is refused by both or departs on purpose
