"""Expressions to statements: what the texts of kernels are made of.

Start reading at ``Writer``; ``loops.py`` puts loops around what it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .expr import ARITHMETIC, BITWISE, COMPARISONS, LOGICAL, Expr, topological
from .simd_math import FUNCTIONS

__all__ = ["SIMD", "Writer", "cast", "helper_line", "literal"]

_HELPERS = {"sign": "signum", "max": "larger", "min": "smaller", "where": "picked"}
"""Functions that Numba lacks, makes branches of, or that lose the width of float32 there: what they
are called in ``intrinsics.py``."""
_CALLS = {
    "abs": "abs", "floor": "np.floor", "ceil": "np.ceil", "trunc": "np.trunc", "rint": "np.rint",
    "max": "maximum", "min": "minimum", "where": "picked", "sign": "sign", "floordiv": "floordiv",
}  # fmt: skip
SIMD = frozenset(name for name, _ in FUNCTIONS)
_ROUNDING = frozenset("floor ceil trunc rint".split())


def literal(value: Any, t: str) -> str:
    """The text of a number of the type named ``t``, or of a truth value."""
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, float) and (value != value or value in (np.inf, -np.inf)):
        return f"{t}({'np.nan' if value != value else 'np.inf' if value > 0 else '-np.inf'})"
    return f"{t}({value!r})"


_DEEPEST = 48
"""Of parentheses in one another, Python reads 90 or so."""


class Writer:
    """Writes the statements that compute expressions from loaded inputs.

    picks: whether of two floats one is chosen by an instruction. Where one of them is the same all
    along, or a mask is read, LLVM makes of a branch two loops, or one that goes number by number;
    in a sum a branch is faster. Of whole numbers a division by zero ends the program.
    """

    def __init__(
        self,
        bodies: Sequence[Expr],
        integer: bool,
        t: str = "T",
        inputs: dict[str, str] | None = None,
        first: int = 0,
        picks: bool = False,
    ):
        self.t = t
        self.picks = picks
        self.inputs = inputs
        self.first = first
        self.order = topological(list(bodies))
        self.integer = integer
        self.uses: dict[Expr, int] = dict.fromkeys(bodies, 1)
        for node in self.order:
            for argument in node.args:
                self.uses[argument] = self.uses.get(argument, 0) + 1
        self.names: dict[Expr, str] = {}
        self._depths: dict[Expr, int] = {}  # of what is written in the place of its use
        self.lines: list[str] = []
        self.helpers: dict[str, None] = {}
        self.simd: dict[str, None] = {}
        for node in self.order:
            self.names[node] = self._write(node)

    def _write(self, node: Expr) -> str:
        if node.op == "input":
            return f"{node.value}_i" if self.inputs is None else self.inputs[node.value]
        if node.op == "const":
            return literal(node.value, self.t)
        text = self._text(node)
        depth = 1 + max([self._depths.get(argument, 0) for argument in node.args], default=0)
        if self.uses.get(node, 0) > 1 or depth > _DEEPEST:
            name = f"t{self.first + len(self.lines)}"
            self.lines.append(f"{name} = {text}")
            return name
        self._depths[node] = depth
        return f"({text})"

    def number(self, node: Expr) -> str:
        """The text of ``node`` as a number, also if it is a truth value."""
        text = self.names[node]
        return f"({self.t}(1) if {text} else {self.t}(0))" if node.is_bool else text

    def _text(self, node: Expr) -> str:
        op, args = node.op, node.args
        if op == "where":
            if self.integer or node.is_bool or not self.picks:
                pick = self.names.__getitem__ if node.is_bool else self.number
                return f"{pick(args[1])} if {self.truth(args[0])} else {pick(args[2])}"
            chosen = ", ".join([self.truth(args[0]), *map(self.number, args[1:])])
            return f"{self._helper(op)}({chosen})"
        if op in LOGICAL:
            return f" {LOGICAL[op]} ".join(self.truth(a) for a in args)
        if op == "not":
            return f"not {self.truth(args[0])}"
        values = [self.number(a) for a in args]
        if op in COMPARISONS:
            return f"{values[0]} {COMPARISONS[op]} {values[1]}"
        if op == "neg":
            return f"-{values[0]}"
        if op == "pow":
            return self._power(values[0], args[1], values[1])
        if op == "floordiv" and self.integer:
            return f"{self.t}({values[0]} // {values[1]})"
        if op in ARITHMETIC and (self.integer or op not in SIMD):
            return f"{values[0]} {ARITHMETIC[op]} {values[1]}"
        if op in BITWISE:
            return f"{values[0]} {BITWISE[op]} {values[1]}"
        if self.integer and op in _ROUNDING:
            return values[0]
        if op in ("isnan", "isinf", "isfinite"):
            return self._classify(op, values[0])
        if op in SIMD:
            self.simd[op] = None
            return f"{op}({', '.join(values)})"
        name = self._helper(op) if op in _HELPERS else _CALLS.get(op, "math." + op)
        return f"{name}({', '.join(values)})"

    def _helper(self, op: str) -> str:
        """The name of a function that Numba lacks, for this type."""
        self.helpers[op] = None
        return helper_name(op, self.t)

    def _classify(self, op: str, x: str) -> str:
        if self.integer:
            return "True" if op == "isfinite" else "False"
        return {
            "isnan": f"{x} != {x}",
            "isinf": f"abs({x}) == {self.t}(np.inf)",
            "isfinite": f"abs({x}) < {self.t}(np.inf)",
        }[op]

    def _power(self, base: str, exponent: Expr, text: str) -> str:
        if exponent.op == "const":
            value = exponent.value
            if value in (2, 3, 4):
                return " * ".join([base] * int(value))
            if value == 0.5:
                return self.root(base)
            if value == -1:
                return f"{self.t}(1) / {base}"
            if value == -2:
                return f"{self.t}(1) / ({base} * {base})"
        return self.raised(base, text)

    def root(self, x: str) -> str:
        """The text of a square root."""
        self.simd["sqrt"] = None
        return f"sqrt({x})"

    def raised(self, base: str, exponent: str) -> str:
        """The text of a power."""
        if self.integer:
            zero = f"{self.t}(0)"  # Numba goes through floats there, and 0 ** -1 is infinite
            return f"({zero} if {base} == 0 and {exponent} < 0 else {base} ** {exponent})"
        self.simd["pow"] = None
        return f"pow({base}, {exponent})"

    def truth(self, node: Expr) -> str:
        text = self.names[node]
        return text if node.is_bool else f"({text} != {self.t}(0))"


def helper_name(op: str, t: str) -> str:
    """What the helper function of ``op`` is called for the type named ``t``."""
    return _CALLS[op] if t == "T" else f"{_CALLS[op]}_{t}"


def helper_line(op: str, t: str) -> str:
    """What imports the helper function of ``op``."""
    return f"from numbagrad.kernels.intrinsics import {_HELPERS[op]} as {helper_name(op, t)}"


def cast(text: str, is_bool: bool, to: str, t: str) -> str:
    """The text of a value of type ``t``, or of a truth value, as one of type ``to``."""
    if to == "boolean":
        return text if is_bool else f"{text} != {t}(0)"
    if is_bool:
        return f"{to}(1) if {text} else {to}(0)"
    return text if to == t else f"{to}({text})"
