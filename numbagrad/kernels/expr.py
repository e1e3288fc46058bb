"""The graph of a scalar expression: equal expressions are one object, printable, rewritable.

``build`` and the named builders simplify where that is exact; ``topological`` walks a graph and
``substitute`` replaces inputs. What reads a Python function into such a graph is ``formula.py``.
"""

from __future__ import annotations

import collections
import itertools
import weakref
from collections.abc import Callable
from typing import Any

ARITHMETIC = {
    "add": "+", "plus": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%"
}  # fmt: skip
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
LOGICAL = {"and": "and", "or": "or"}
BITWISE = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}
FUNCTIONS = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan atan2 sinh cosh tanh "
    "asinh acosh atanh erf erfc floor ceil trunc rint abs sign max min copysign hypot "
    "isnan isinf isfinite lgamma sigmoid".split()
)
BOOLEAN = frozenset([*COMPARISONS, *LOGICAL, "not", "isnan", "isinf", "isfinite"])


class Expr:
    """A node of the expression graph: an operation on other nodes, an input, or a constant.

    op: "input", "const", "neg", "not", "pow", "where", or a name of the tables above. A "plus" is
    an "add" that nobody wrote: of the parts of a gradient, in no order but ours.
    """

    __slots__ = ("__weakref__", "_inputs", "args", "op", "value")
    _inputs: frozenset[str]
    op: str
    args: tuple[Expr, ...]
    value: Any

    @property
    def is_bool(self) -> bool:
        """Whether the expression is a truth value."""
        if self.op == "where":
            return self.args[1].is_bool and self.args[2].is_bool
        return self.op in BOOLEAN or (self.op == "const" and isinstance(self.value, bool))

    def __repr__(self) -> str:
        return to_text(self)


_known: weakref.WeakValueDictionary[tuple, Expr] = weakref.WeakValueDictionary()


def expr(op: str, *args: Expr, value: Any = None) -> Expr:
    """The one Expr of this operation on these arguments."""
    key = (op, tuple(map(id, args)), type(value), repr(value))
    found = _known.get(key)
    if found is None:
        found = Expr()
        found.op, found.args, found.value = op, args, value
        _known[key] = found
    return found


def constant(value: float | int | bool) -> Expr:
    """A literal."""
    return expr("const", value=value)


def symbol(name: str) -> Expr:
    """An input, by its parameter name."""
    return expr("input", value=name)


ZERO, ONE = constant(0), constant(1)


def is_constant(x: Expr, value: float | None = None) -> bool:
    """Whether ``x`` is a literal (equal to ``value`` if given)."""
    return x.op == "const" and (value is None or x.value == value)


def add(x: Expr, y: Expr) -> Expr:
    """x + y, without adding zeros."""
    if is_constant(x, 0):
        return y
    if is_constant(y, 0):
        return x
    if y.op == "neg":
        return sub(x, y.args[0])
    return fold("add", x, y)


def plus(x: Expr, y: Expr) -> Expr:
    """The gradient that is the sum of ``x`` and ``y``."""
    if is_constant(x, 0):
        return y
    return x if is_constant(y, 0) else expr("plus", x, y)


def sub(x: Expr, y: Expr) -> Expr:
    """x - y, without subtracting zeros."""
    if is_constant(y, 0):
        return x
    if is_constant(x, 0):
        return neg(y)
    if y.op == "neg":
        return add(x, y.args[0])
    return fold("sub", x, y)


def neg(x: Expr) -> Expr:
    """-x."""
    if x.op == "neg":
        return x.args[0]
    if x.op == "const" and not isinstance(x.value, bool):
        return constant(-x.value)
    return expr("neg", x)


def mul(x: Expr, y: Expr) -> Expr:
    """x * y, without multiplying by zero or one."""
    for a, b in ((x, y), (y, x)):
        if is_constant(a, 0) and not isinstance(a.value, bool):
            return ZERO
        if is_constant(a, 1) and not isinstance(a.value, bool):
            return b
        if is_constant(a, -1):
            return neg(b)
        if a.op == "neg" and b.op != "const":
            return neg(mul(a.args[0], b))
    return fold("mul", x, y)


def div(x: Expr, y: Expr) -> Expr:
    """x / y."""
    if is_constant(x, 0) and not is_constant(y):
        return ZERO
    if is_constant(y, 1):
        return x
    if x.op == "neg":
        return neg(div(x.args[0], y))
    return fold("div", x, y)


def power(x: Expr, y: Expr) -> Expr:
    """x ** y."""
    if is_constant(y, 1):
        return x
    if is_constant(y, 0):
        return ONE
    return expr("pow", x, y)


def where(condition: Expr, x: Expr, y: Expr) -> Expr:
    """x if condition else y."""
    if condition.op == "const":
        return x if condition.value else y
    return x if x is y else expr("where", condition, x, y)


def call(name: str, *args: Expr) -> Expr:
    """A function of ``FUNCTIONS``."""
    return expr(name, *args)


EVALUATE: dict[str, Callable] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}
_BUILD: dict[str, Callable] = {
    "add": add,
    "plus": plus,
    "sub": sub,
    "mul": mul,
    "div": div,
    "neg": neg,
    "pow": power,
    "where": where,
}


def fold(op: str, x: Expr, y: Expr) -> Expr:
    """``op`` on ``x`` and ``y``, computed now if both are literals."""
    if x.op == "const" and y.op == "const":
        try:
            return constant(EVALUATE[op](x.value, y.value))
        except ZeroDivisionError:
            pass
    return expr(op, x, y)


def build(op: str, *args: Expr) -> Expr:
    """``op`` on ``args``, simplified where that is exact."""
    maker = _BUILD.get(op)
    return maker(*args) if maker else expr(op, *args)


def substitute(root: Expr, inputs: dict[str, Expr]) -> Expr:
    """``root`` with inputs replaced by expressions."""
    done: dict[Expr, Expr] = {}
    for node in topological([root]):
        if node.op == "input":
            done[node] = inputs.get(node.value, node)
        elif node.args:
            args = [done[a] for a in node.args]
            unchanged = all(a is b for a, b in zip(args, node.args, strict=True))
            done[node] = node if unchanged else expr(node.op, *args)
        else:
            done[node] = node
    return done[root]


def topological(roots: list[Expr]) -> list[Expr]:
    """Every node below ``roots``, arguments before their users."""
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, finished = stack.pop()
        if finished:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args) if a not in seen)
    return order


def inputs_of(root: Expr) -> frozenset[str]:
    """Names of the inputs that ``root`` reads."""
    try:
        return root._inputs
    except AttributeError:  # the first time somebody asks
        names = {node.value for node in topological([root]) if node.op == "input"}
        root._inputs = frozenset(names)
        return root._inputs


LONG = 400
"""Most characters of an expression whose parts are written as often as they occur."""


def to_text(node: Expr) -> str:
    """Python-like text of an expression, for people.

    Where it would be long, parts that occur more than once have names: ``t0 * t0 where t0 = ...``.
    """
    order = topological([node])
    sizes: dict[Expr, int] = {}
    for part in order:
        sizes[part] = 4 + sum([sizes[a] for a in part.args])
    if sizes[node] <= LONG:
        return _written(node, {})
    times = collections.Counter([a for part in order for a in part.args])
    shared = [part for part in order if part.args and times[part] > 1]
    free = (name for k in itertools.count() if (name := f"t{k}") not in inputs_of(node))
    names = dict(zip(shared, free, strict=False))
    named = [f"{names[part]} = {_written(part, names)}" for part in shared]
    return f"{_written(node, names)} where {', '.join(named)}"


def _written(node: Expr, names: dict[Expr, str]) -> str:
    """The text of ``node``, of whose parts some have names."""
    if node.op == "input":
        return str(node.value)
    if node.op == "const":
        return repr(node.value)
    texts = [names.get(a) or _written(a, names) for a in node.args]
    infix = ARITHMETIC | COMPARISONS | LOGICAL | BITWISE | {"pow": "**"}
    if node.op in infix:
        return f"({texts[0]} {infix[node.op]} {texts[1]})"
    if node.op == "neg":
        return f"(-{texts[0]})"
    if node.op == "not":
        return f"(not {texts[0]})"
    if node.op == "where":
        return f"({texts[1]} if {texts[0]} else {texts[2]})"
    return f"{node.op}({', '.join(texts)})"


def as_truth(x: Expr) -> Expr:
    """``x`` as a condition: itself if it is one, else ``x != 0``."""
    return x if x.is_bool else expr("ne", x, ZERO)
