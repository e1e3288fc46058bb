"""Folding of what is constant in the source of a kernel, and cutting of what cannot be reached.

Integers, truth values and comparisons are folded; arithmetic on floats is left to the compiled
code, whose rounding (a multiplication and an addition may be one) is its own.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Fold", "literal"]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_NAMED = {
    "INFINITY": math.inf,
    "np.inf": math.inf,
    "math.inf": math.inf,
    "NAN": math.nan,
    "np.nan": math.nan,
    "math.nan": math.nan,
}


def literal(value: Any) -> ast.expr:
    """The expression of a constant; a minus is an operator, which keeps its place in a power.

    Infinity and NaN, which have no literal, are the names INFINITY and NAN.
    """
    if value != value:
        return ast.Name("NAN", ast.Load())
    if not isinstance(value, bool) and math.copysign(1, value) < 0:
        return ast.UnaryOp(ast.USub(), literal(-value))
    return ast.Name("INFINITY", ast.Load()) if value == math.inf else ast.Constant(value)


class Unknown(Exception):
    """An expression has no value before the kernel runs."""


class Fold(ast.NodeTransformer):
    """Replaces known names, folds what is constant and cuts what cannot be reached.

    known: values of names; assigned: names that the function gives a value. call: asked for each
    call of a name by the name, the arguments and the values of those that are constant; the call
    to write in its place, or None.
    """

    def __init__(
        self,
        known: Mapping[str, Any],
        assigned: set[str],
        call: Callable[[str, list[ast.expr], dict[int, Any]], ast.expr | None],
    ):
        self.known = known
        self.assigned = assigned
        self.call = call

    def value(self, node: ast.expr) -> Any:
        """The number or truth value of a folded expression, else Unknown."""
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.value(node.operand)
        if isinstance(node, ast.Name | ast.Attribute):
            name = ast.unparse(node)
            if name in _NAMED and name.partition(".")[0] not in self.assigned:
                return _NAMED[name]
        raise Unknown

    def is_known(self, node: ast.expr) -> bool:
        try:
            self.value(node)
        except Unknown:
            return False
        return True

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Folded statements up to the first that leaves."""
        result: list[ast.stmt] = []
        for statement in statements:
            folded = self.visit(statement)
            result += folded if isinstance(folded, list) else [folded]
            if result and isinstance(result[-1], ast.Return | ast.Continue | ast.Break):
                break
        return result

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = isinstance(node.ctx, ast.Load) and node.id in self.known
        return literal(self.known[node.id]) if known else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        node.operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not) and self.is_known(node.operand):
            return ast.Constant(not self.value(node.operand))
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node.left, node.right = self.visit(node.left), self.visit(node.right)
        if type(node.op) in _BINARY and self.is_known(node.left) and self.is_known(node.right):
            left, right = self.value(node.left), self.value(node.right)
            if isinstance(left, int) and isinstance(right, int):
                try:
                    return literal(_BINARY[type(node.op)](left, right))
                except ZeroDivisionError:
                    return node
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        node.left = self.visit(node.left)
        node.comparators = [self.visit(c) for c in node.comparators]
        operands = [node.left, *node.comparators]
        if all(map(self.is_known, operands)) and all(type(o) in _COMPARE for o in node.ops):
            values = [self.value(o) for o in operands]
            pairs = zip(node.ops, values, values[1:], strict=False)
            return ast.Constant(all(_COMPARE[type(op)](x, y) for op, x, y in pairs))
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        decides = isinstance(node.op, ast.Or)  # the truth value that ends it
        kept: list[ast.expr] = []
        for operand in map(self.visit, node.values):
            if not self.is_known(operand):
                kept.append(operand)
            elif bool(self.value(operand)) == decides:
                if all(map(_is_test, kept)):
                    return operand
                return ast.BoolOp(node.op, [*kept, operand])
        if not kept:
            return operand
        if self.is_known(operand) and not _is_test(kept[-1]):
            kept.append(operand)  # its value, not its truth, is the result
        return ast.BoolOp(node.op, kept) if len(kept) > 1 else kept[0]

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.visit(node.test)
        if self.is_known(test):
            return self.visit(node.body if self.value(test) else node.orelse)
        return ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))

    def visit_If(self, node: ast.If) -> Any:
        test = self.visit(node.test)
        if self.is_known(test):
            return self.block(node.body if self.value(test) else node.orelse)
        body, orelse = self.block(node.body), self.block(node.orelse)
        return ast.If(test, body or [ast.Pass()], orelse)

    def visit_For(self, node: ast.For) -> Any:
        body, orelse = self.block(node.body), self.block(node.orelse)
        return ast.For(node.target, self.visit(node.iter), body or [ast.Pass()], orelse)

    def visit_While(self, node: ast.While) -> Any:
        test = self.visit(node.test)
        if self.is_known(test) and not self.value(test):
            return self.block(node.orelse)
        return ast.While(test, self.block(node.body) or [ast.Pass()], self.block(node.orelse))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        starred = any(isinstance(a, ast.Starred) for a in node.args)
        if starred or node.keywords or not isinstance(node.func, ast.Name):
            return node
        values = {i: self.value(a) for i, a in enumerate(node.args) if self.is_known(a)}
        return (self.call(node.func.id, node.args, values) if values else None) or node


def _is_test(node: ast.expr) -> bool:
    """Whether an expression is a truth value and can be left out without a trace."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_test, node.values))
    plain = isinstance(node, ast.Compare) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )
    return plain and not any(isinstance(n, ast.Call) for n in ast.walk(node))
