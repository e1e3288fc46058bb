"""Ops from formulas: ``class Tanh(Elementwise)``, and a user's ``@ng.elementwise``.

``class Tanh(Elementwise)`` with a ``formula`` is all an op needs; ``elementwise`` does the same for
a plain function. The gradient with respect to input ``x`` is ``grad_x(g, ...)`` beside the formula,
or derived. What becomes of them is in pointwise.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..errors import FormulaError
from ..kernels.formula import Formula
from .pointwise import PointwiseOp

__all__ = ["elementwise"]


class Elementwise:
    """Base of elementwise ops: a class with a ``formula`` and, if wished, ``grad_<input>``.

    Subclassing makes the op; ``cls.op`` is it and ``cls.function`` the function users call.
    result, twice: see ``PointwiseOp``; an op with the latter saves both of its operands. kind: the
    class of the op.
    """

    op: PointwiseOp
    kind: type[PointwiseOp] = PointwiseOp
    function: Callable
    result = "same"
    name: str | None = None

    def __init_subclass__(cls) -> None:
        name = cls.__dict__.get("name") or _snake(cls.__name__)
        grads = {k[5:]: v for k, v in cls.__dict__.items() if k.startswith("grad_")}
        formula = cls.__dict__["formula"]
        cls.op = cls.kind(name, formula, grads, cls.result, cls.__doc__)
        cls.op.twice = cls.__dict__.get("twice")
        cls.function = staticmethod(cls.op.to_function())


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))


def elementwise(function: Callable | None = None, **grads: Callable) -> Any:
    """Make a plain scalar function a differentiable op on tensors, compiled by Numba.

    function: arithmetic, comparisons, ``math`` functions, ``if``, assignments, ``return``, and
    calls of other such functions, on one or several numbers. The op broadcasts its arguments,
    takes float32 and float64 tensors (integers become the default float) and Python numbers, and
    has gradients of every order, derived from the formula; ``grad_x=f`` gives one by hand, as a
    formula of the incoming gradient ``g``, any of the inputs, and ``out``.

    Raises FormulaError, naming the line, for Python that is not a formula.

    >>> @elementwise
    ... def softsquare(x, y):
    ...     return x * x / (1 + abs(y))
    """
    if function is None:
        return functools.partial(elementwise, **grads)
    for name in grads:
        if not name.startswith("grad_"):
            raise TypeError(f"elementwise: unknown keyword {name}; gradients are grad_<input>.")
    formula = Formula.from_function(function)
    op = PointwiseOp(
        function.__name__,
        function,
        {k[5:]: v for k, v in grads.items()},
        "bool" if formula.body.is_bool else "float",
        function.__doc__,
    )
    for name in op._grads:
        if name not in op.inputs:
            raise FormulaError(
                f"elementwise {op.name}: grad_{name} names no input; they are "
                f"{', '.join(op.inputs)}."
            )
    op.__dict__["formula"] = (
        formula if formula.name.isidentifier() else Formula("formula", formula.inputs, formula.body)
    )
    result = op.to_function()
    result.__module__ = function.__module__
    result.__wrapped__ = function  # type: ignore[attr-defined]
    return result
