"""The derivative of a formula, as another formula; any order by doing it again.

Reverse accumulation on the expression graph. The two sides of a condition are differentiated
apart and joined by the same condition, so a branch that is not taken never contributes, not even
a NaN: the gradient of ``log(x) if x > 0 else 0`` is 0 at 0.

The rules are the table ``RULES``: for each operation the gradients of its arguments, from the
incoming gradient ``g``, the arguments and the result ``out``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import FormulaError
from .expr import (
    ONE,
    ZERO,
    Expr,
    add,
    call,
    constant,
    div,
    expr,
    inputs_of,
    is_constant,
    mul,
    neg,
    plus,
    power,
    sub,
    symbol,
    topological,
    where,
)
from .formula import Formula

_ZERO_GRADIENT = frozenset(
    "floor ceil trunc rint sign floordiv bitand bitor bitxor shl shr".split()
)


def _square(x: Expr) -> Expr:
    return mul(x, x)


def _compare(op: str, x: Expr, y: Expr) -> Expr:
    return expr(op, x, y)


def _pow(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    if y.op == "const":
        slope = mul(y, power(x, constant(y.value - 1)))
    else:
        slope = mul(y, power(x, sub(y, ONE)))
        slope = where(_compare("eq", y, ZERO), ZERO, slope)
    # 0 ** y is flat in y for y >= 0; log(0) must not enter there.
    flat = expr("and", _compare("eq", x, ZERO), _compare("ge", y, ZERO))
    return mul(g, slope), where(flat, ZERO, mul(g, mul(out, call("log", x))))


def _pick(op: str) -> Callable[[Expr, Expr, Expr, Expr], tuple[Expr, Expr]]:
    def rule(g: Expr, out: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
        tie = where(_compare("eq", x, y), mul(g, constant(0.5)), ZERO)
        return where(_compare(op, x, y), g, tie), where(_compare(op, y, x), g, tie)

    return rule


def _unless_zero(divisor: Expr, value: Expr) -> Expr:
    """``value / divisor``, 0 where the divisor is 0."""
    return where(_compare("eq", divisor, ZERO), ZERO, div(value, divisor))


RULES: dict[str, Callable[..., tuple[Expr, ...]]] = {
    "add": lambda g, out, x, y: (g, g),
    "plus": lambda g, out, x, y: (g, g),
    "sub": lambda g, out, x, y: (g, neg(g)),
    "mul": lambda g, out, x, y: (mul(g, y), mul(g, x)),
    "div": lambda g, out, x, y: (div(g, y), neg(mul(g, div(out, y)))),
    "mod": lambda g, out, x, y: (g, neg(mul(g, call("floordiv", x, y)))),
    "neg": lambda g, out, x: (neg(g),),
    "pow": _pow,
    "exp": lambda g, out, x: (mul(g, out),),
    "exp2": lambda g, out, x: (mul(g, mul(out, constant(math.log(2)))),),
    "expm1": lambda g, out, x: (mul(g, add(out, ONE)),),
    "log": lambda g, out, x: (div(g, x),),
    "log2": lambda g, out, x: (div(g, mul(x, constant(math.log(2)))),),
    "log10": lambda g, out, x: (div(g, mul(x, constant(math.log(10)))),),
    "log1p": lambda g, out, x: (div(g, add(x, ONE)),),
    "sqrt": lambda g, out, x: (div(g, mul(constant(2), out)),),
    "sin": lambda g, out, x: (mul(g, call("cos", x)),),
    "cos": lambda g, out, x: (neg(mul(g, call("sin", x))),),
    "tan": lambda g, out, x: (mul(g, add(ONE, _square(out))),),
    "asin": lambda g, out, x: (div(g, call("sqrt", sub(ONE, _square(x)))),),
    "acos": lambda g, out, x: (neg(div(g, call("sqrt", sub(ONE, _square(x))))),),
    "atan": lambda g, out, x: (div(g, add(ONE, _square(x))),),
    "atan2": lambda g, out, y, x: (
        _unless_zero(add(_square(x), _square(y)), mul(g, x)),
        neg(_unless_zero(add(_square(x), _square(y)), mul(g, y))),
    ),
    "sinh": lambda g, out, x: (mul(g, call("cosh", x)),),
    "cosh": lambda g, out, x: (mul(g, call("sinh", x)),),
    "tanh": lambda g, out, x: (mul(g, sub(ONE, _square(out))),),
    "asinh": lambda g, out, x: (div(g, call("sqrt", add(_square(x), ONE))),),
    "acosh": lambda g, out, x: (div(g, call("sqrt", sub(_square(x), ONE))),),
    "atanh": lambda g, out, x: (div(g, sub(ONE, _square(x))),),
    "erf": lambda g, out, x: (
        mul(g, mul(constant(2 / math.sqrt(math.pi)), call("exp", neg(_square(x))))),
    ),
    "erfc": lambda g, out, x: (
        mul(g, mul(constant(-2 / math.sqrt(math.pi)), call("exp", neg(_square(x))))),
    ),
    "sigmoid": lambda g, out, x: (mul(g, mul(out, sub(ONE, out))),),
    "abs": lambda g, out, x: (mul(g, call("sign", x)),),
    "max": _pick("gt"),
    "min": _pick("lt"),
    "copysign": lambda g, out, x, y: (
        where(_compare("eq", x, ZERO), ZERO, mul(g, mul(call("sign", x), call("sign", out)))),
        ZERO,
    ),
    "hypot": lambda g, out, x, y: (
        where(_compare("eq", out, ZERO), ZERO, mul(g, div(x, out))),
        where(_compare("eq", out, ZERO), ZERO, mul(g, div(y, out))),
    ),
}


def gradients(root: Expr, seed: Expr, name: str = "formula") -> dict[str, Expr]:
    """Gradients of ``seed * root`` for each input that ``root`` depends on smoothly."""
    found: dict[str, Expr] = {}
    incoming: dict[Expr, Expr] = {root: seed}
    for node in reversed(topological([root])):
        g = incoming.get(node, ZERO)
        if is_constant(g, 0) or node.is_bool or node.op in _ZERO_GRADIENT:
            continue
        if node.op == "input":
            found[node.value] = plus(found.get(node.value, ZERO), g)
        elif node.op == "where":
            condition, x, y = node.args
            taken, other = gradients(x, g, name), gradients(y, g, name)
            for key in sorted(taken.keys() | other.keys()):
                part = where(condition, taken.get(key, ZERO), other.get(key, ZERO))
                found[key] = plus(found.get(key, ZERO), part)
        elif node.op != "const":
            if node.op not in RULES:
                raise FormulaError(
                    f"{name}: {node.op} has no derivative rule. Write grad_<input>(g, ...) beside "
                    f"the formula."
                )
            for argument, part in zip(node.args, RULES[node.op](g, node, *node.args), strict=True):
                incoming[argument] = plus(incoming.get(argument, ZERO), part)
    return found


def derivative(formula: Formula, wrt: str) -> Formula:
    """The formula of ``g`` times the derivative of ``formula`` with respect to input ``wrt``.

    Its inputs are ``g`` (renamed if taken) and those inputs of ``formula`` that it reads.
    """
    g = "g"
    while g in formula.inputs:
        g += "_"
    body = gradients(formula.body, symbol(g), formula.name).get(wrt, ZERO)
    used = inputs_of(body)
    inputs = tuple(p for p in (g, *formula.inputs) if p in used or p == g)
    return Formula(f"{formula.name}_grad_{wrt}", inputs, body)
