"""Updates of parameters from formulas: one element's rule to a kernel over whole parameter lists.

A rule takes an element of a parameter, of its gradient and of what is kept for it, and returns the
new parameter and what is kept next. What depends on hyper-parameters and the number of the step
alone is computed once for an array, in float64; the rest in the dtype of the parameters. The rule's
form on a GPU is in ``cuda/runtime/update.py``. Start reading at ``Rule``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import store
from .cpu.optim import GRAIN
from .expr import Expr, call, constant, div, expr, inputs_of, substitute, symbol, topological
from .expr import where as pick
from .formula import results_of
from .lists import ListKernel, list_kernel
from .writer import Writer

__all__ = ["HostWriter", "Rule", "lowered"]

_ARRAYS = "p", "g"


class HostWriter(Writer):
    """Writes what is computed once for an array: float64, with functions of ``math``."""

    def _text(self, node: Expr) -> str:
        values = [self.number(a) for a in node.args]
        if node.op == "sigmoid":
            return f"1 / (1 + math.exp(-{values[0]}))"
        if node.op == "exp2":
            return f"2.0 ** {values[0]}"
        if node.op in _OF_MATH:
            return f"math.{node.op}({', '.join(values)})"
        return super()._text(node)

    def root(self, x: str) -> str:
        """The text of a square root."""
        return f"math.sqrt({x})"

    def raised(self, base: str, exponent: str) -> str:
        """The text of a power."""
        return f"{base} ** {exponent}"


_OF_MATH = frozenset("exp expm1 log log2 log10 log1p sin cos tan tanh erf erfc sqrt".split())


class Rule:
    """The update of one element, read from a scalar Python function ``f(p, g, *kept, *, lr, ...)``.

    g is the gradient, or its negative where the kernel's first number, ``sign``, is -1. It returns
    the new p, or a tuple of it and all that is kept, in order. ``step`` among the kept is the
    number of the step, from 1 on; it is counted here and not returned. Keyword-only parameters are
    options: numbers that each call reads, or tuples of them where the default is one. Raises
    FormulaError, naming the line, for Python that is not a formula, and TypeError for another
    number of results.
    """

    def __init__(self, function: Callable, name: str = ""):
        code = function.__code__
        positional = code.co_varnames[: code.co_argcount]
        self.name = name or function.__name__
        self.kept = tuple([n for n in positional[2:] if n != "step"])
        self.counted = "step" in positional[2:]
        self.options = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        defaults = function.__kwdefaults__ or {}
        self.pairs = {n: len(v) for n, v in defaults.items() if isinstance(v, tuple)}
        if len(positional) < 2:
            raise TypeError(
                f"{self.name}: an update takes a parameter's element and its gradient first, then "
                f"what is kept for it, then after * its options; got ({', '.join(positional)})."
            )
        results = results_of(function, self.pairs)
        if len(results) != 1 + len(self.kept):
            raise TypeError(
                f"{self.name}: an update returns the new parameter and then "
                f"{', '.join(self.kept) or 'nothing else'}: {1 + len(self.kept)} values, got "
                f"{len(results)}."
            )
        names = dict(zip(positional[:2], _ARRAYS, strict=True))
        numbers = [
            part
            for n in self.options
            for part in ([f"{n}_{k}" for k in range(self.pairs[n])] if n in self.pairs else [n])
        ]
        names |= {n: f"s_{n}" for n in self.kept} | {n: f"o_{n}" for n in numbers}
        names["step"] = "count"
        given = {n: symbol(to) for n, to in names.items()}
        given[positional[1]] = expr("mul", symbol("sign"), symbol("g"))
        self.scalars = ["sign", *[f"o_{n}" for n in numbers]]
        self.bodies = [lowered(substitute(r, given)) for r in results]
        self.arrays = ["p", *[f"s_{n}" for n in self.kept], "g"]

    def hoisted(self) -> tuple[list[tuple[str, Expr]], list[Expr]]:
        """Names for what no element changes, with what they stand for; the results by them."""
        once = {"count", *self.scalars}
        order = topological(self.bodies)
        fixed = {n for n in order if n.op != "const" and set(inputs_of(n)) <= once}
        fixed -= {n for n in fixed if not inputs_of(n)}
        wanted = {a for n in order if n not in fixed for a in n.args if a in fixed}
        wanted |= {b for b in self.bodies if b in fixed}
        found = [(f"h{k}", n) for k, n in enumerate([n for n in order if n in wanted])]
        return found, _replaced(self.bodies, {n: symbol(name) for name, n in found})

    def kernel(self) -> ListKernel:
        """The kernel of lists: params, step counters, all that is kept, gradients; sign, options.

        The first of them, up to the gradients, are written.
        """
        text, name = emit(self)
        function = getattr(store.load_source(text, name), name)
        outputs = 1 + self.counted + len(self.kept)
        make = list_kernel(
            outputs=outputs,
            grain=GRAIN,
            by_element=not self.counted,  # then one parameter may be updated by itself
            source=text,
            allocates=False,
        )
        made = make(function)
        made.__name__ = self.name
        made.twin = self.on_device
        return made

    def on_device(self, *args: Any) -> None:
        """Run on arrays of a GPU: the kernel's lists, sizes, the first array, the options."""
        from .cuda.runtime.update import run

        run(self, args)


def emit(rule: Rule) -> tuple[str, str]:
    """Source text and name of the function that updates lists of arrays on the host."""
    hoisted, bodies = rule.hoisted()
    given = {name: name for name in ["count", *rule.scalars]}
    prelude = HostWriter([n for _, n in hoisted], False, "float64", given)
    fixed = [f"{name} = one({prelude.number(n)})" for name, n in hoisted]
    loaded = {a: f"x_{a}" for a in rule.arrays} | {name: name for name, _ in hoisted}
    writer = Writer(bodies, False, "one", loaded, first=len(prelude.lines))
    tables = {"p": "params", "g": "grads"} | {f"s_{n}": f"lists_{n}" for n in rule.kept}
    kept = [tables[a] for a in rule.arrays[1:-1]]
    lists = ["params", *(["steps"] if rule.counted else []), *kept, "grads"]
    used = ["share", "within", *(["least"] if rule.kept else [])]
    used += ["COUNTER", "advance"] if rule.counted else []
    lines = ["import math", "", "import numpy as np", "from numba import float64, prange", ""]
    lines += [f"from numbagrad.kernels.cpu.optim import {', '.join(sorted(used))}"]
    lines += ["from numbagrad.kernels.intrinsics import load_at, store_at"]
    lines += ["from numbagrad.kernels.lists import DATA_FIELD"]
    if simd := sorted(prelude.simd | writer.simd):
        lines += [f"from numbagrad.kernels.simd_math import {', '.join(simd)}"]
    lines += ["", "", f"def NAME({', '.join([*lists, 'sizes', 'like', *rule.scalars])}):"]
    lines += ["    one = like.dtype.type"]
    lines += ["    tiny = least(like)"] if rule.kept else []
    lines += ["    advance(steps, sizes)"] if rule.counted else []
    if not rule.counted:
        lines += ["    " + line for line in [*prelude.lines, *fixed]]
    lines += ["    part, tasks = share(sizes)", "    for k in prange(tasks):"]
    lines += ["        start = k * part", "        for t in range(sizes.size):"]
    inner = ["begin, end = within(start, part, sizes[t])", "start -= sizes[t]"]
    if rule.counted:
        inner += ["if begin >= end:", "    continue"]
        counter = "load_at(steps[t] + DATA_FIELD, 0, sizes)"
        inner += [f"count = float64(load_at({counter}, 0, COUNTER))", *prelude.lines, *fixed]
    inner += [f"{a} = load_at({tables[a]}[t] + DATA_FIELD, 0, sizes)" for a in rule.arrays]
    inner += ["for i in range(begin, end):"]
    each = [f"x_{a} = load_at({a}, i, like)" for a in rule.arrays] + writer.lines
    results = [writer.number(b) for b in bodies]
    each += [f"y_{k} = {text}" for k, text in enumerate(results)]
    each += [f"y_{k} = one(0) if abs(y_{k}) < tiny else y_{k}" for k in range(1, len(results))]
    written = [a for a in rule.arrays if a != "g"]
    each += [f"store_at({a}, i, y_{k}, like)" for k, a in enumerate(written)]
    lines += [" " * 12 + line for line in [*inner, *["    " + line for line in each]]]
    text = "\n".join(lines) + "\n"
    name = store.content_name(rule.name, text)
    return text.replace("NAME", name, 1), name


# -- rewriting -------------------------------------------------------------------------------------


def lowered(root: Expr, integers: Callable[[Expr], bool] | None = None) -> Expr:
    """``root`` without the operations that would need a helper function of the element's type.

    integers: tells what is an integer, whose quotients ``//`` rounds down.
    """
    whole = integers or (lambda node: False)
    (found,) = _rebuilt([root], {}, lambda node, args: _simpler(node, args, whole))
    return found


def _simpler(node: Expr, args: Sequence[Expr], whole: Callable[[Expr], bool]) -> Expr | None:
    op, zero = node.op, constant(0)
    if op == "sign":
        (x,) = args
        positive, negative = expr("gt", x, zero), expr("lt", x, zero)
        return pick(positive, constant(1), pick(negative, constant(-1), x))
    if op in ("max", "min"):  # NaN goes on, as in PyTorch
        x, y = args
        first = expr("gt" if op == "max" else "lt", x, y)
        return pick(expr("or", first, expr("ne", x, x)), x, y)
    if op == "floordiv" and not whole(node):
        return call("floor", div(*args))
    return None


def _replaced(roots: Sequence[Expr], by: dict[Expr, Expr]) -> list[Expr]:
    return _rebuilt(roots, by, lambda node, args: None)


def _rebuilt(
    roots: Sequence[Expr],
    known: dict[Expr, Expr],
    other: Callable[[Expr, Sequence[Expr]], Expr | None],
) -> list[Expr]:
    """``roots`` with ``known`` parts replaced, and others as ``other`` says, unless None."""
    done = dict(known)
    for node in topological(list(roots)):
        if node in done:
            continue
        args = [done[a] for a in node.args]
        done[node] = other(node, args) or (expr(node.op, *args) if args else node)
    return [done[r] for r in roots]
