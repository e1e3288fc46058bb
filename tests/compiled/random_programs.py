"""Random functions on tensors, run eagerly and compiled: views, in-place changes, state, gradients.

A *recipe* is a list of triples of ints; each is read as an op and two members of a pool of tensors,
so that any recipe means something and a shorter one is simpler. Start reading at ``Function``;
``difference`` compares three calls. Run as a program under NUMBA_DISABLE_JIT with a first seed and
a number of recipes it prints what differs: that compiles nothing.
"""

from __future__ import annotations

import operator
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import numbagrad as ng
from numbagrad.errors import RecordingError

Recipe = list[tuple[int, int, int]]

LARGEST = 1e4
"""Programs whose numbers leave this are not compared: their roundings grow with them."""


def broadcasts(x: Any, y: Any) -> bool:
    """Whether ``y`` can be combined with ``x``."""
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return True


def fits(x: Any, y: Any) -> bool:
    """Whether ``y`` can be written into ``x``."""
    return broadcasts(x, y) and tuple(np.broadcast_shapes(x.shape, y.shape)) == tuple(x.shape)


def rank(least: int) -> Callable[[Any, Any], bool]:
    """Whether ``x`` has at least so many dims, none of them empty."""
    return lambda x, y: x.ndim >= least and 0 not in x.shape


def matrices(x: Any, y: Any) -> bool:
    """Whether ``x @ y`` is a product of matrices."""
    return x.ndim == y.ndim == 2 and x.shape[1] == y.shape[0] and x.dtype == y.dtype


def square(x: Any, y: Any) -> bool:
    """Whether ``x`` is a square matrix."""
    return x.ndim == 2 and x.shape[0] == x.shape[1]


def small(x: Any, y: Any) -> bool:
    """Whether copies of ``x`` may grow."""
    return x.numel() <= 24


Op = tuple[Callable[[Any, Any], bool], Callable[[Any, Any], Any]]

NEW: dict[str, Op] = {
    "tanh": (rank(0), lambda x, y: x.tanh()),
    "sin": (rank(0), lambda x, y: x.sin()),
    "sigmoid": (rank(0), lambda x, y: x.sigmoid()),
    "relu": (rank(0), lambda x, y: x.relu()),
    "square": (rank(0), lambda x, y: x.square()),
    "neg": (rank(0), lambda x, y: -x),
    "clone": (rank(0), lambda x, y: x.clone()),
    "detach": (rank(0), lambda x, y: x.detach()),
    "narrow": (rank(0), lambda x, y: x.to(ng.float32)),
    "gelu": (rank(0), lambda x, y: ng.nn.functional.gelu(x)),
    "add": (broadcasts, lambda x, y: x + y),
    "mul": (broadcasts, lambda x, y: x * y),
    "sub": (broadcasts, lambda x, y: x - y),
    "div": (broadcasts, lambda x, y: x / (y * y + 1.5)),
    "maximum": (broadcasts, lambda x, y: ng.maximum(x, y)),
    "where": (broadcasts, lambda x, y: ng.where(x > 0.31, x, y)),
    "sum": (rank(0), lambda x, y: x.sum()),
    "sum first": (rank(1), lambda x, y: x.sum(0)),
    "sum last": (rank(1), lambda x, y: x.sum(-1, keepdim=True)),
    "mean": (rank(1), lambda x, y: x.mean(-1)),
    "mean first": (rank(2), lambda x, y: x.mean(0, keepdim=True)),
    "largest": (rank(1), lambda x, y: x.max(-1)[0]),
    "softmax": (rank(1), lambda x, y: x.softmax(-1)),
    "cumsum": (rank(1), lambda x, y: x.cumsum(0)),
    "var": (rank(2), lambda x, y: x.var(0)),
    "mm": (matrices, lambda x, y: 0.3 * x.mm(y)),
    "plain mm": (matrices, lambda x, y: x.mm(y)),
    "gram": (rank(2), lambda x, y: 0.2 * (x.transpose(-1, -2) @ x)),
    "addmm": (square, lambda x, y: ng.addmm(x[0], x, x.t())),
    "cat": (lambda x, y: small(x, y) and x.ndim > 0, lambda x, y: ng.cat([x, x * 2])),
    "stack": (lambda x, y: small(x, y) and x.shape == y.shape, lambda x, y: ng.stack([x, y])),
    "flip": (rank(1), lambda x, y: x.flip(0)),
    "twice": (lambda x, y: rank(1)(x, y) and small(x, y), lambda x, y: x[[0, 0, -1]]),
    "roll": (rank(1), lambda x, y: x.roll(1, 0)),
    "tril": (rank(2), lambda x, y: x.tril()),
    "zeros": (rank(0), lambda x, y: ng.zeros_like(x)),
    "full": (rank(0), lambda x, y: ng.full_like(x, 0.75)),
}
VIEWS: dict[str, Op] = {
    "transpose": (rank(2), lambda x, y: x.transpose(0, -1)),
    "flatten": (rank(1), lambda x, y: x.reshape(-1)),
    "rest": (rank(1), lambda x, y: x[1:]),
    "row": (rank(1), lambda x, y: x[0]),
    "column": (rank(2), lambda x, y: x[..., -1]),
    "unsqueeze": (lambda x, y: x.ndim < 3, lambda x, y: x.unsqueeze(-1)),
    "expand": (
        lambda x, y: small(x, y) and x.ndim < 3,
        lambda x, y: x.unsqueeze(0).expand(2, *x.shape),
    ),
    "every other": (rank(1), lambda x, y: x[..., ::2]),
    "diagonal": (rank(2), lambda x, y: x.diagonal()),
}
IN_PLACE: dict[str, Op] = {
    "add_": (fits, lambda x, y: x.add_(y)),
    "sub_": (fits, lambda x, y: x.sub_(y, alpha=0.5)),
    "mul_": (fits, lambda x, y: x.mul_(y)),
    "copy_": (fits, lambda x, y: x.copy_(y)),
    "tanh_": (rank(0), lambda x, y: x.tanh_()),
    "zero_": (rank(0), lambda x, y: x.zero_()),
    "fill_": (rank(0), lambda x, y: x.fill_(0.5)),
    "scale_": (rank(0), lambda x, y: x.mul_(0.9)),
    "masked_fill_": (rank(0), lambda x, y: x.masked_fill_(x > 0.37, 0.25)),
    "first": (rank(1), lambda x, y: operator.setitem(x, 0, 0.5)),
    "rest": (
        lambda x, y: rank(1)(x, y) and fits(x[1:], y),
        lambda x, y: operator.setitem(x, slice(1, None), y),
    ),
    "list": (rank(1), lambda x, y: operator.setitem(x, [0], 0.125)),
    "mask": (rank(1), lambda x, y: operator.setitem(x, x > 0.41, 0.75)),
    "add product": (square, lambda x, y: x.add_(0.1 * x.mm(x))),
    "accumulate": (
        lambda x, y: matrices(x, y) and y.shape[0] == y.shape[1],
        lambda x, y: x.add_(x.mm(y)),
    ),
}
GROUPS = (NEW, NEW, VIEWS, IN_PLACE)


def drop_gradients(*tensors: Any) -> None:
    """As an optimiser that nobody compiles."""
    for t in tensors[:3]:
        t.grad = None


def give_gradients(*tensors: Any) -> None:
    """As a backward of something else."""
    for t in tensors[:3]:
        if t.requires_grad:
            t.grad = ng.ones_like(t)


CHANGES: tuple[Callable[..., Any], ...] = (
    lambda a, b, c, part, diagonal, alias, row: setattr(a, "data", a.data * 0.5),
    lambda a, b, c, part, diagonal, alias, row: setattr(b, "data", b.data * 0.5),
    lambda a, b, c, part, diagonal, alias, row: setattr(part, "data", part.data.clone()),
    lambda a, b, c, part, diagonal, alias, row: setattr(row, "data", a.data[1]),
    lambda a, b, c, part, diagonal, alias, row: setattr(alias, "data", b.data[0]),
    lambda a, b, c, part, diagonal, alias, row: diagonal.mul_(0.5),
    lambda a, b, c, part, diagonal, alias, row: a.t().add_(0.25),
    drop_gradients,
    give_gradients,
)
"""What may happen between calls to a function's tensors and their views."""


class Log:
    """What was done, where no recording looks: an attribute or a list may not change."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: list[str] = []


@dataclass
class Function:
    """The function of a recipe, with tensors of its own that it reads and changes.

    Its arguments are two tensors, a part of the first where ``alias``, and a float. changing: it
    also reads views of its tensors, and ``change`` does something to both between calls.
    kind: "plain" (no gradients), "inside" (differentiates and steps inside) or "outside" (is
    differentiated).
    """

    recipe: Recipe
    kind: str = "plain"
    alias: bool = False
    changing: bool = False
    told: Log = field(default_factory=Log)

    @property
    def log(self) -> list[str]:
        """The operations of the last call."""
        return self.told.lines

    def __post_init__(self) -> None:
        rng = np.random.default_rng(len(self.recipe))
        self.state = [ng.tensor(rng.uniform(-1, 1, s)) for s in ((3, 4), (4, 4), (4,))]
        if self.kind != "plain":
            for t in self.state[1:]:
                t.requires_grad_()
        first, second, third = self.state
        self.views = [first[1:, ::2], second.detach().diagonal(), third.detach(), first[0]]

    def change(self, call: int) -> None:
        """Do to state what happens between calls, if anything, before ``call``."""
        number = self.recipe[call % len(self.recipe)][2] // 64 % 24 if self.recipe else 0
        if self.changing and call and number < len(CHANGES):
            with ng.no_grad():
                CHANGES[number](*self.state, *self.views)

    def arguments(self, call: int) -> list[Any]:
        """The arguments of a call."""
        rng = np.random.default_rng(100 + call)
        x, y = ng.tensor(rng.uniform(-1, 1, (3, 4))), ng.tensor(rng.uniform(-1, 1, (4, 3)))
        if self.kind == "outside":
            x.requires_grad_()
        part = x.detach()[1:] if self.alias else ng.tensor(rng.uniform(-1, 1, (2, 4)))
        return [x, y, part, 0.5 + call / 4]

    def __call__(self, x: Any, y: Any, part: Any, scale: float) -> tuple:
        views = self.views if self.changing else []  # a small pool meets itself more often
        pool, log = [x, y, part, *self.state, *views, x * scale], []
        before = len(pool) - 1
        for op, i, j in self.recipe:
            group = GROUPS[op % len(GROUPS)]
            names = list(group)
            name = names[op // len(GROUPS) % len(names)]
            a, b = pool[i % len(pool)], pool[j % len(pool)]
            possible, run = group[name]
            floats = a.dtype.is_floating_point and b.dtype.is_floating_point
            if not floats or not possible(a, b):
                continue
            log.append(f"{len(pool)}: {name}({i % len(pool)}, {j % len(pool)})")
            self.log[:] = log
            if group is not IN_PLACE:
                pool.append(run(a, b))
            elif a.is_leaf and a.requires_grad:
                with ng.no_grad():
                    run(a, b)
            else:
                run(a, b)
        made = [t for t in pool[before:] if t.dtype.is_floating_point]
        if self.kind == "inside":
            total = sum((t * t).sum() * (0.1 + k) for k, t in enumerate(made))
            if not total.requires_grad:
                return tuple(made)
            if len(self.recipe) % 3:  # else gradients add up over the calls
                for t in self.state[1:]:
                    t.grad = None
            total.backward()
            with ng.no_grad():
                for t in self.state[1:]:
                    if t.grad is not None:
                        t.sub_(t.grad, alpha=1e-3)
            return total.detach(), *[t.detach() for t in made[-3:]]
        return tuple(made[-5:])


def observed(function: Function, run: Callable[..., Any], call: int) -> list[Any]:
    """All that a call gives and changes."""
    function.change(call)
    given = function.arguments(call)
    got = run(*given)
    found = [*got]
    if function.kind == "outside":
        tracked = [t for t in got if t.requires_grad]
        if tracked:
            total = sum((t * t).sum() * (0.1 + k) for k, t in enumerate(tracked))
            leaves = [t for t in (given[0], *function.state) if t.requires_grad]
            found += ng.autograd.grad(total, leaves, allow_unused=True)
    own = [*function.state, *function.views]
    found += [*given[:3], *own, *[t.grad for t in function.state]]
    flags = [(t.requires_grad, t._version * (k >= len(got))) for k, t in enumerate(
        [*got, *given[:3], *own])]  # fmt: skip
    arrays = [t.detach().numpy() for t in (*got, *given[:3], *own)]
    shared = [
        np.may_share_memory(a, b)
        for k, a in enumerate(arrays)
        for b in arrays[max(k + 1, len(got)) :]
    ]
    return [*[None if t is None else t.detach().numpy().copy() for t in found], flags, shared]


def attempt(function: Function, run: Callable[..., Any], call: int) -> Any:
    """``observed``, or the exception."""
    try:
        return observed(function, run, call)
    except Exception as error:
        return error


def difference(
    recipe: Recipe, kind: str = "plain", alias: bool = False, calls: int = 3
) -> str | None:
    """What differs between the eager and the compiled function of ``recipe``; None if nothing.

    What raises eagerly must raise compiled; after that, and where numbers grow too large, there is
    nothing to compare.
    """
    changing = len(recipe) % 2 == 0
    eager, other = (Function(recipe, kind, alias, changing) for _ in range(2))
    compiled = ng.compile(other)
    for call in range(calls):
        with np.errstate(all="ignore"):
            wanted = attempt(eager, eager, call)
        told = f"{kind}{' alias' * alias} call {call}, {len(eager.log)}: {'; '.join(eager.log)}"
        if isinstance(wanted, Exception):
            got = attempt(other, compiled, call)
            return None if isinstance(got, Exception) else f"only eager raises {wanted!r}; {told}"
        numbers = [a for a in wanted if isinstance(a, np.ndarray) and a.size]
        if not all(np.abs(a).max() < LARGEST for a in numbers):
            return None
        got = attempt(other, compiled, call)
        if isinstance(got, RecordingError) and any(words in str(got) for words in REFUSALS):
            return None
        if isinstance(got, Exception):
            return f"{got!r}; {told}"
        text = compared(wanted, got, any("narrow" in line for line in eager.log))
        if text:
            return f"{text}; {told}"
    return None


REFUSALS = ("changed the history of",)
"""What compiled functions refuse and say so, though it works eagerly."""


def compared(wanted: list[Any], got: list[Any], narrow: bool) -> str | None:
    """The first difference of two outcomes. narrow: whether float32 is among what is computed."""
    if len(wanted) != len(got):
        return f"{len(got)} results, expected {len(wanted)}"
    for k, (x, y) in enumerate(zip(wanted, got, strict=True)):
        if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):
            if (x is None) != (y is None) or (x is not None and x != y):
                return f"number {k} is {y}, expected {x}"
            continue
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"number {k} is {y.dtype} {y.shape}, expected {x.dtype} {x.shape}"
        # Relative to the largest: an element that cancels has no digits to compare.
        scale = max(np.abs(x).max(initial=0.0), 1.0)
        if not np.abs(x - y).max(initial=0.0) <= (1e-4 if narrow else 1e-9) * scale:
            return f"number {k} is {y.tolist()}, expected {x.tolist()}"
    return None


def drawn(seed: int, longest: int = 14) -> tuple[Recipe, str, bool]:
    """A recipe, its kind, and whether arguments overlap, from a seed."""
    dice = random.Random(seed)
    count = dice.randrange(1, longest)
    recipe = [tuple(dice.randrange(1 << 20) for _ in range(3)) for _ in range(count)]
    return recipe, dice.choice(["plain", "inside", "outside"]), dice.random() < 0.15


def simplest(recipe: Recipe, kind: str, alias: bool) -> Recipe:
    """``recipe`` without what is not needed for it to differ."""
    for k in range(len(recipe)):
        shorter = recipe[:k] + recipe[k + 1 :]
        if difference(shorter, kind, alias):
            return simplest(shorter, kind, alias)
    return recipe


if __name__ == "__main__":
    first, number = map(int, sys.argv[1:3])
    for seed in range(first, first + number):
        recipe, kind, alias = drawn(seed)
        if difference(recipe, kind, alias):
            recipe = simplest(recipe, kind, alias)
            print(f"seed {seed}: {difference(recipe, kind, alias)}")
    print(f"{number} programs")
