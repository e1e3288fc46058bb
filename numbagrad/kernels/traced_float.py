"""``TracedFloat``: a Python float that is an input of a recorded function."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["TracedFloat"]


class TracedFloat:
    """A Python float that a recorded function got as an argument: arithmetic on it is recorded.

    Where its value decides something (a comparison, an index) the recording becomes one for this
    value, and another value records anew. A count of the function's own is an int.
    """

    __slots__ = ("_pin", "text", "value")
    _counter = None  # as the numbers that nodes save

    def __init__(self, text: str, value: float, pin: Callable[[], None]):
        self.text = text
        self.value = value
        self._pin = pin

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def __float__(self) -> float:
        self._pin()
        return float(self.value)

    def __index__(self) -> int:
        if type(self.value) is not int:
            raise TypeError("'float' object cannot be interpreted as an integer")
        self._pin()
        return self.value

    def _combine(self, other: Any, text: str, function: Callable[[Any, Any], Any]) -> Any:
        if type(other) is TracedFloat:
            mine, theirs = self._pin, other._pin

            def pin() -> None:
                mine()
                theirs()

            value = function(self.value, other.value)
            return TracedFloat(text.format(self.text, other.text), value, pin)
        if type(other) in (float, int, bool):
            value = function(self.value, other)
            return TracedFloat(text.format(self.text, repr(other)), value, self._pin)
        return NotImplemented

    def pin(self) -> None:
        """Note that the value decides something."""
        self._pin()

    def through(self, name: str, function: Callable[[Any], float]) -> TracedFloat:
        """``function`` of it, which expressions call ``name``."""
        return TracedFloat(f"{name}({self.text})", function(self.value), self._pin)

    def __neg__(self) -> TracedFloat:
        return TracedFloat(f"(-{self.text})", -self.value, self._pin)

    def __pos__(self) -> TracedFloat:
        return self

    def __abs__(self) -> TracedFloat:
        return TracedFloat(f"abs({self.text})", abs(self.value), self._pin)

    def __repr__(self) -> str:
        return f"<{self.text} = {self.value}>"

    def __str__(self) -> str:
        return str(float(self))

    def __format__(self, specification: str) -> str:
        return format(float(self), specification)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(float(self), dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(float(self), name)

    def __hash__(self) -> int:
        return hash(float(self))


def _install_arithmetic() -> None:
    """Give ``TracedFloat`` the operators that stay traced, and those that ask for the value."""
    signs = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "mod": "%"}
    for name, sign in signs.items():
        function = getattr(operator, name)

        def forward(
            self: Any, other: Any, text: str = f"({{}} {sign} {{}})", f: Any = function
        ) -> Any:
            return self._combine(other, text, f)

        def reflected(
            self: Any, other: Any, text: str = f"({{1}} {sign} {{0}})", f: Any = function
        ) -> Any:
            return self._combine(other, text, lambda x, y: f(y, x))

        setattr(TracedFloat, f"__{name}__", forward)
        setattr(TracedFloat, f"__r{name}__", reflected)
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        compare = getattr(operator, name)

        def compared(self: Any, other: Any, f: Any = compare) -> Any:
            return f(float(self), other.__float__() if type(other) is TracedFloat else other)

        setattr(TracedFloat, f"__{name}__", compared)
    for name in (
        "bool",
        "int",
        "round",
        "trunc",
        "floor",
        "ceil",
        "floordiv",
        "rfloordiv",
        "divmod",
    ):

        def asked(self: Any, *others: Any, method: str = f"__{name}__") -> Any:
            return getattr(float(self), method)(*others)

        setattr(TracedFloat, f"__{name}__", asked)


_install_arithmetic()
