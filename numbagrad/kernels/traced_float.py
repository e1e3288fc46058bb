"""``TracedFloat``: a Python number that each call of a recorded function passes in."""

from __future__ import annotations

import builtins
import inspect
import math
import operator
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any

import numpy as np

__all__ = ["HASHED", "Count", "TracedFloat", "ask_in_closure"]


HASHED: list[Any] = []
"""Those of the recording that runs that were asked for a hash, as the keys of a cache are."""


class Count(int):
    """A whole number that is traced as floats are: of a slot that a compiled function sets."""


class TracedFloat:
    """A float that a recorded function got, or a number that it counts: arithmetic is recorded.

    Where a comparison of it decides something the recording becomes one for what came out, and
    where its value does, as an index, one for this value; another one records anew. A count of the
    function's own is an int.

    decide: is told of an expression and what came out. pin: is called where the value is asked for.
    """

    __slots__ = ("_decide", "_pin", "text", "value")
    _counter = None  # as the numbers that nodes save

    def __init__(
        self,
        text: str,
        value: float,
        pin: Callable[[], None],
        decide: Callable[[str, Any], None],
    ):
        self.text = text
        self.value = value
        self._pin = pin
        self._decide = decide

    def _with(self, text: str, value: float) -> TracedFloat:
        return TracedFloat(text, value, self._pin, self._decide)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.value)

    def __float__(self) -> float:
        self._pin()
        return float(self.value)

    def __index__(self) -> int:
        if type(self.value) is not int:
            raise TypeError("'float' object cannot be interpreted as an integer")
        self._pin()
        return self.value

    def combined(self, other: Any, text: str, function: Callable[[Any, Any], Any]) -> Any:
        """``function`` of it and another number, which the expression ``text`` writes."""
        if type(other) is TracedFloat:
            mine, theirs = self._pin, other._pin

            def pin() -> None:
                mine()
                theirs()

            value = _tried(pin, function, self.value, other.value)
            return TracedFloat(text.format(self.text, other.text), value, pin, self._decide)
        if type(other) in (float, int, bool):
            value = _tried(self._pin, function, self.value, other)
            written = repr(other)
            if written[0] == "-":  # -2 ** k is -(2 ** k)
                written = f"({written})"
            return self._with(text.format(self.text, written), value)
        return NotImplemented

    def pin(self) -> None:
        """Note that the value decides something."""
        self._pin()

    def asked(self) -> float:
        """The value, which decides something now."""
        self._pin()
        return self.value

    def through(self, name: str, function: Callable[[Any], float]) -> TracedFloat:
        """``function`` of it, which expressions call ``name``."""
        return self._with(f"{name}({self.text})", _tried(self._pin, function, self.value))

    def __neg__(self) -> TracedFloat:
        return self._with(f"(-{self.text})", -self.value)

    def __pos__(self) -> TracedFloat:
        return self

    def __abs__(self) -> TracedFloat:
        return self._with(f"abs({self.text})", abs(self.value))

    def __repr__(self) -> str:
        return repr(self.asked())

    def __copy__(self) -> TracedFloat:
        return self

    def __deepcopy__(self, memo: Any) -> TracedFloat:
        return self

    def __reduce__(self) -> Any:
        return type(self.value), (self.asked(),)

    def __str__(self) -> str:
        return str(self.asked())

    def __format__(self, specification: str) -> str:
        return format(self.asked(), specification)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.asked(), dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.asked(), name)

    def __hash__(self) -> int:
        HASHED.append(self)
        return hash(self.asked())


def _tried(pin: Callable[[], None], function: Callable[..., Any], *values: Any) -> Any:
    """``function(*values)``. Where it raises, as a division by 0, the values decide: the user may
    catch that."""
    try:
        return function(*values)
    except (ArithmeticError, ValueError):
        pin()
        raise


def ask_in_closure(function: Any) -> None:
    """Put the values in the place of numbers that ``function``, which is about to be compiled with
    what it closes over, or one of those that it closes over, has got: they decide something."""
    waiting, seen = [function], set()
    while waiting:
        each = waiting.pop()
        if type(each) is not FunctionType:  # a kernel; others may raise whatever they like
            each = inspect.getattr_static(each, "py_func", None)
        if type(each) is not FunctionType or each in seen:
            continue
        seen.add(each)
        for cell in each.__closure__ or ():
            with suppress(ValueError):  # an empty cell
                held = cell.cell_contents
                if type(held) is TracedFloat:
                    cell.cell_contents = held.asked()
                waiting.append(held)


def _ask_for_sign(base: Any, exponent: Any) -> None:
    """Let the sign of a whole exponent of a whole number decide: below 0 it makes a float."""
    if type(exponent) is TracedFloat and type(exponent.value) is int:
        if type(getattr(base, "value", base)) is int:
            _ = 0 <= exponent  # type: ignore[operator]


def _install_arithmetic() -> None:
    """Give ``TracedFloat`` the operators that stay traced, and those that ask for the value."""
    signs = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "mod": "%"}
    for name, sign in signs.items():
        function = getattr(operator, name)

        def forward(
            self: Any, other: Any, text: str = f"({{}} {sign} {{}})", f: Any = function
        ) -> Any:
            return self.combined(other, text, f)

        def reflected(
            self: Any, other: Any, text: str = f"({{1}} {sign} {{0}})", f: Any = function
        ) -> Any:
            return self.combined(other, text, lambda x, y: f(y, x))

        setattr(TracedFloat, f"__{name}__", forward)
        setattr(TracedFloat, f"__r{name}__", reflected)

    def power(self: Any, other: Any) -> Any:
        _ask_for_sign(self, other)
        return self.combined(other, "({} ** {})", operator.pow)

    def reflected_power(self: Any, other: Any) -> Any:
        _ask_for_sign(other, self)
        return self.combined(other, "({1} ** {0})", lambda x, y: operator.pow(y, x))

    for name, method in (("__pow__", power), ("__rpow__", reflected_power)):
        setattr(TracedFloat, name, method)
    signs = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
    for name, sign in signs.items():
        compare = getattr(operator, name)

        def compared(self: Any, other: Any, sign: str = sign, f: Any = compare) -> Any:
            if type(other) not in (TracedFloat, float, int, bool):
                return f(float(self), other)
            traced = type(other) is TracedFloat
            found = f(self.value, other.value if traced else other)
            theirs = other.text if traced else repr(other)
            self._decide(f"({self.text} {sign} {theirs})", found)
            return found

        setattr(TracedFloat, f"__{name}__", compared)
    for name in ("bool", "int", "round", "trunc", "floor", "ceil"):
        function = getattr(math, name, None) or getattr(builtins, name)
        called = f"math.{name}" if hasattr(math, name) else name

        def asked(self: Any, *others: Any, called: str = called, f: Any = function) -> Any:
            if others:
                return f(float(self), *others)
            found = _tried(self._pin, f, self.value)
            self._decide(f"{called}({self.text})", found)
            return found

        setattr(TracedFloat, f"__{name}__", asked)
    plain = "floordiv divmod and or xor lshift rshift"
    for name in [each for n in plain.split() for each in (n, f"r{n}")]:

        def by_value(self: Any, other: Any, method: str = f"__{name}__") -> Any:
            other = other.asked() if type(other) is TracedFloat else other
            function = getattr(self.asked(), method, None)
            return NotImplemented if function is None else function(other)

        setattr(TracedFloat, f"__{name}__", by_value)


_install_arithmetic()
