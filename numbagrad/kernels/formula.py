"""A scalar Python function, read from its source and kept as a graph of expressions (``expr.py``).

``Formula.from_function`` runs the function's syntax tree on symbols: assignments, ``if``,
``return``, arithmetic, comparisons, ``a if c else b``, the functions of ``math`` and calls of
other plain Python functions are understood; anything else is a ``FormulaError`` that shows the
line.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from ..errors import FormulaError
from ..tables import show_file
from .expr import (
    EVALUATE,
    FUNCTIONS,
    ONE,
    ZERO,
    Expr,
    as_truth,
    build,
    constant,
    div,
    expr,
    fold,
    neg,
    substitute,
    symbol,
    to_text,
    where,
)
from .traced_float import TracedFloat
from .traced_math import plain


@dataclass(frozen=True)
class Formula:
    """A named scalar function: its inputs in order and the expression of its result."""

    name: str
    inputs: tuple[str, ...]
    body: Expr

    @staticmethod
    def from_function(function: Callable, name: str | None = None) -> Formula:
        """Read ``function``, a plain scalar Python function or lambda."""
        reader = Reader(function)
        inputs = reader.parameters
        body = reader.run({p: symbol(p) for p in inputs})
        return Formula(name or function.__name__, inputs, body)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.inputs)}) = {to_text(self.body)}"


def results_of(function: Callable, pairs: Mapping[str, int]) -> tuple[Expr, ...]:
    """What ``function``, which may return a tuple and take keyword-only parameters, returns.

    pairs: parameters that are tuples, with how many numbers; ``p[0]`` of one is the input ``p_0``.
    """
    reader = Reader(function, keywords=True)
    reader.tuples = {n: [symbol(f"{n}_{k}") for k in range(pairs[n])] for n in pairs}
    return reader.results({p: symbol(p) for p in reader.parameters if p not in pairs})


_NAMES: dict[Any, str] = {
    abs: "abs", max: "max", min: "min", round: "rint", math.fabs: "abs", np.abs: "abs",
    math.pow: "pow", np.sign: "sign", np.maximum: "max", np.minimum: "min", np.power: "pow",
    np.where: "where", np.rint: "rint", np.arctan2: "atan2", np.arcsin: "asin",
    np.arccos: "acos", np.arctan: "atan", np.arcsinh: "asinh", np.arccosh: "acosh",
    np.arctanh: "atanh", float: "float", bool: "bool", int: "trunc",
}  # fmt: skip
for _name in FUNCTIONS:
    for _module in (math, np):
        if hasattr(_module, _name):
            _NAMES.setdefault(getattr(_module, _name), _name)
_ARITY = {"pow": 2, "where": 3, "atan2": 2, "copysign": 2, "hypot": 2, "float": 1, "bool": 1}

_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.BitAnd: "bitand", ast.BitOr: "bitor",
    ast.BitXor: "bitxor", ast.LShift: "shl", ast.RShift: "shr",
}  # fmt: skip
_COMPARE = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip


def sigmoid(x: float) -> float:
    """Logistic function, usable in formulas: 1 / (1 + exp(-x))."""
    return 1 / (1 + math.exp(-x))


def rint(x: float) -> float:
    """The nearest integer, ties to even, usable in formulas."""
    return float(round(x))


def sign(x: float) -> float:
    """-1, 0 or 1, usable in formulas."""
    return (x > 0) - (x < 0)


_NAMES.update({sigmoid: "sigmoid", rint: "rint", sign: "sign"})


class Reader:
    """Runs one function's syntax tree on expressions."""

    def __init__(self, function: Callable, keywords: bool = False):
        function = getattr(function, "py_func", function)  # a jitted function by its Python
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        if not isinstance(function, FunctionType):
            raise FormulaError(f"formula: expected a plain Python function, got {function!r}.")
        self.function = function
        self.filename = show_file(function.__code__.co_filename)
        self.tree = self._parse()
        arguments = self.tree.args
        if arguments.vararg or arguments.kwarg or (arguments.kwonlyargs and not keywords):
            self.fail(self.tree, "takes *args, ** or keyword-only parameters; name each input")
        named = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
        self.parameters = tuple(a.arg for a in named)
        self.tuples: dict[str, list[Expr]] = {}
        closure = inspect.getclosurevars(function)
        self.names = {**vars(builtins), **closure.builtins, **closure.globals, **closure.nonlocals}

    def _parse(self) -> Any:
        try:
            lines, first = inspect.getsourcelines(self.function)
        except (OSError, TypeError):
            raise self._unread() from None
        self.first = first - 1
        text = textwrap.dedent("".join(lines))
        wanted = self.function.__name__
        try:
            nodes = list(ast.walk(ast.parse(text)))
        except SyntaxError:  # a lambda in the middle of a call that spans lines
            nodes = self._parse_fragment(text)
        found = [
            node
            for node in nodes
            if (isinstance(node, ast.FunctionDef) and node.name == wanted)
            or (isinstance(node, ast.Lambda) and wanted == "<lambda>")
        ]
        if (
            not found
        ):  # another text of that name: Python 3.13 has that of ``python -c`` as <string>
            raise self._unread()
        found = [n for n in found if self._same_parameters(n)]
        if len(found) > 1:
            column = self._column()
            found = [n for n in found if getattr(n.body, "col_offset", None) == column] or found
        if len(found) != 1:
            raise FormulaError(
                f"formula: {len(found)} candidates for {wanted} in {self.filename}:{first}. Write "
                f"each formula as a def, or one lambda per line."
            )
        return found[0]

    def _unread(self) -> FormulaError:
        return FormulaError(
            f"formula: the source of {self.function.__name__} cannot be read. Define it in a "
            f"file or a notebook cell, not at the interactive prompt or with exec."
        )

    def _parse_fragment(self, text: str) -> list:
        start = text.find("lambda")
        for end in range(len(text), start, -1):
            try:
                return list(ast.walk(ast.parse(text[start:end].strip())))
            except SyntaxError:
                continue
        return []

    def _same_parameters(self, node: Any) -> bool:
        code = self.function.__code__
        names = [a.arg for a in node.args.posonlyargs + node.args.args]
        return tuple(names) == code.co_varnames[: code.co_argcount]

    def _column(self) -> int | None:
        positions = [p for p in self.function.__code__.co_positions() if p[2]]
        return min((p[2] for p in positions if p[2] is not None), default=None)

    def fail(self, node: Any, why: str) -> NoReturn:
        line = self.first + getattr(node, "lineno", 1)
        raise FormulaError(
            f"formula {self.function.__name__}: {self.filename}:{line} {why}. A formula is plain "
            f"scalar Python: arithmetic, comparisons, math functions, if, assignments, return."
        )

    def run(self, env: dict[str, Expr]) -> Expr:
        """The one value that is returned."""
        results = self.results(env)
        if len(results) != 1:
            self.fail(self.tree, f"returns {len(results)} values instead of one")
        return results[0]

    def results(self, env: dict[str, Expr]) -> tuple[Expr, ...]:
        """All values that are returned."""
        if isinstance(self.tree, ast.Lambda):
            return self.returned(self.tree.body, env)
        results = self.block(self.tree.body, env)
        if results is None:
            self.fail(self.tree, "can end without a return")
        return results

    def returned(self, node: Any, env: dict[str, Expr]) -> tuple[Expr, ...]:
        nodes = node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple([self.value(n, env) for n in nodes])

    def block(self, statements: list[Any], env: dict[str, Expr]) -> tuple[Expr, ...] | None:
        """Run ``statements``; the returned expressions, or None if the end is reached."""
        for position, statement in enumerate(statements):
            match statement:
                case ast.Return(value=None):
                    self.fail(statement, "returns nothing")
                case ast.Return(value=value):
                    return self.returned(value, env)
                case ast.Assign(targets=[target], value=value):
                    self.assign(target, value, env)
                case ast.AnnAssign(target=target, value=value) if value is not None:
                    self.assign(target, value, env)
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    left = self.lookup(statement.target, name, env)
                    env[name] = self.binary(statement, op, left, self.value(value, env))
                case ast.If():
                    result = self.branch(statement, statements[position + 1 :], env)
                    if result is not None:
                        return result
                case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                    pass
                case ast.For() | ast.While():
                    self.fail(statement, "has a loop")
                case _:
                    self.fail(statement, f"uses {type(statement).__name__}")
        return None

    def branch(
        self, statement: ast.If, rest: list, env: dict[str, Expr]
    ) -> tuple[Expr, ...] | None:
        condition = self.truth(statement.test, env)
        if not any(isinstance(n, ast.Return) for n in ast.walk(statement)):
            then, other = dict(env), dict(env)
            self.block(statement.body, then)
            self.block(statement.orelse, other)
            for name in then.keys() | other.keys():
                if name in then and name in other:
                    env[name] = where(condition, then[name], other[name])
            return None
        then_result = self.block(statement.body + rest, dict(env))
        other_result = self.block(statement.orelse + rest, dict(env))
        if then_result is None or other_result is None:
            self.fail(statement, "can end without a return")
        counts = len(then_result), len(other_result)
        if counts[0] != counts[1]:
            self.fail(statement, f"returns {counts[0]} values on one path, {counts[1]} on another")
        pairs = zip(then_result, other_result, strict=True)
        return tuple([where(condition, x, y) for x, y in pairs])

    def assign(self, target: Any, value: Any, env: dict[str, Expr]) -> None:
        match target, value:
            case ast.Name(id=name), _:
                env[name] = self.value(value, env)
            case ast.Tuple(elts=names), _ if len(names) == len(self.several(value, env)):
                results = self.several(value, env)
                for element, result in zip(names, results, strict=True):
                    if not isinstance(element, ast.Name):
                        self.fail(target, "assigns to something that is not a name")
                    env[element.id] = result
            case _:
                self.fail(target, "assigns to something that is not a name")

    def several(self, node: Any, env: dict[str, Expr]) -> list[Expr]:
        """The values of a tuple; none where ``node`` is no tuple."""
        if isinstance(node, ast.Name) and node.id not in env:
            return self.tuples.get(node.id, [])
        return [self.value(n, env) for n in node.elts] if isinstance(node, ast.Tuple) else []

    def value(self, node: Any, env: dict[str, Expr]) -> Expr:
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as k)) if (
                name in self.tuples and name not in env and k < len(self.tuples[name])
            ):
                return self.tuples[name][k]
            case ast.Constant(value=bool() | int() | float() as value):
                return constant(value)
            case ast.Name(id=name):
                return self.lookup(node, name, env)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(node, op, self.value(left, env), self.value(right, env))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return neg(self.value(operand, env))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.value(operand, env)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return expr("not", self.truth(operand, env))
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self.comparison(node, left, ops, comparators, env)
            case ast.BoolOp(op=op, values=values):
                name = "and" if isinstance(op, ast.And) else "or"
                result = self.truth(values[0], env)
                for other in values[1:]:
                    result = expr(name, result, self.truth(other, env))
                return result
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition = self.truth(test, env)
                return where(condition, self.value(body, env), self.value(orelse, env))
            case ast.Call(func=func, args=args, keywords=[]):
                return self.calling(node, func, args, env)
            case ast.Attribute():
                return self.literal(node, self.resolve(node, env))
        self.fail(node, f"uses {type(node).__name__}")

    def comparison(self, node: ast.AST, left: Any, ops: list, rights: list, env: dict) -> Expr:
        result = None
        x = self.value(left, env)
        for op, right in zip(ops, rights, strict=True):
            if type(op) not in _COMPARE:
                self.fail(node, f"compares with {type(op).__name__}")
            y = self.value(right, env)
            link = expr(_COMPARE[type(op)], x, y)
            result = link if result is None else expr("and", result, link)
            x = y
        assert result is not None
        return result

    def truth(self, node: Any, env: dict[str, Expr]) -> Expr:
        return as_truth(self.value(node, env))

    def binary(self, node: ast.AST, op: ast.operator, x: Expr, y: Expr) -> Expr:
        if type(op) not in _BINARY:
            self.fail(node, f"uses the operator {type(op).__name__}")
        name = _BINARY[type(op)]
        # As written: 0 * x must stay NaN where x is inf.
        return fold(name, x, y) if name in EVALUATE else build(name, x, y)

    def lookup(self, node: ast.AST, name: str, env: dict[str, Expr]) -> Expr:
        if name in env:
            return env[name]
        if name in self.names:
            return self.literal(node, self.names[name])
        names = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name)]
        if any([n.id == name and isinstance(n.ctx, ast.Store) for n in names]):
            self.fail(node, f"reads {name}, which has no value on every path")
        self.fail(node, f"reads {name}, which is not defined where the formula is")

    def literal(self, node: ast.AST, value: Any) -> Expr:
        if type(value) is TracedFloat:
            value = value.asked()
        elif isinstance(value, (np.floating, np.integer, np.bool_)):
            value = value.item()
        if not isinstance(value, (bool, int, float)):
            self.fail(node, f"reads {ast.unparse(node)}, which is {type(value).__name__}")
        return constant(value)

    def resolve(self, node: ast.AST, env: dict[str, Expr]) -> Any:
        """The Python object that a dotted name outside the formula stands for."""
        match node:
            case ast.Name(id=name) if name not in env and name in self.names:
                return self.names[name]
            case ast.Attribute(value=ast.Name(id=name)) if name in env:
                self.fail(node, f"reads {ast.unparse(node)}, but {name} is a number")
            case ast.Attribute(value=owner, attr=attribute):
                found = getattr(self.resolve(owner, env), attribute, None)
                if found is not None:
                    return found
        self.fail(node, f"does not know {ast.unparse(node)}")

    def calling(self, node: ast.Call, func: ast.AST, args: list, env: dict) -> Expr:
        target = plain(self.resolve(func, env))
        values = [self.value(a, env) for a in args]
        try:
            name = _NAMES.get(target)
        except TypeError:
            name = None
        if name is not None:
            return self.known(node, name, values)
        op: Any = getattr(
            target, "op", None
        )  # a function of an elementwise op stands for its formula
        if hasattr(op, "formula"):
            if len(values) != len(op.formula.inputs):
                self.fail(node, f"calls {op.name} with {len(values)} arguments")
            return substitute(op.formula.body, dict(zip(op.formula.inputs, values, strict=True)))
        inner = getattr(target, "py_func", target)
        if isinstance(inner, FunctionType):
            reader = self.inner(inner)
            if len(values) != len(reader.parameters):
                self.fail(node, f"calls {inner.__name__} with {len(values)} arguments")
            return reader.run(dict(zip(reader.parameters, values, strict=True)))
        self.fail(node, f"calls {ast.unparse(func)}, which has no formula")

    def inner(self, function: Any) -> Reader:
        """A reader of a function that this one calls."""
        return Reader(function)

    def known(self, node: ast.AST, name: str, values: list[Expr]) -> Expr:
        if name in ("max", "min") and len(values) >= 2:
            result = values[0]
            for value in values[1:]:
                result = expr(name, result, value)
            return result
        if len(values) != _ARITY.get(name, 1) and not (name == "log" and len(values) == 2):
            self.fail(node, f"calls {name} with {len(values)} arguments")
        if name == "log" and len(values) == 2:
            return div(expr("log", values[0]), expr("log", values[1]))
        if name == "float":
            return values[0] if not values[0].is_bool else where(values[0], ONE, ZERO)
        if name == "bool":
            return as_truth(values[0])
        if name == "where":
            return where(as_truth(values[0]), values[1], values[2])
        return build(name, *values)
