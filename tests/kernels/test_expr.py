"""The text of expressions, which people read and generated kernels have as their docstring."""

import re

from numbagrad.kernels.derive import derivative
from numbagrad.kernels.expr import LONG
from numbagrad.kernels.formula import Formula
from numbagrad.ops.error_functions import Erfcx


def test_short_formulas_are_written_out():
    assert str(Formula.from_function(lambda x: x * x + x * x, "f")) == "f(x) = ((x * x) + (x * x))"


def test_long_ones_name_what_occurs_twice():
    def nested(x):
        a = x + 1
        b = a * a + a * 0.5 + a
        c = b * b + b * 0.5 + b
        d = c * c + c * 0.5 + c
        e = d * d + d * 0.5 + d
        return e * e

    text = str(Formula.from_function(nested, "f"))
    assert len(text) < LONG and text.startswith("f(x) = (t4 * t4) where t0 = (x + 1), ")
    parts = [part.split(" = ") for part in text.partition(" where ")[2].split(", ")]
    values = {"x": 0.25}
    for name, value in parts:
        values[name] = eval(value, values)
    assert values["t4"] * values["t4"] == nested(0.25)


def test_names_of_parts_are_not_those_of_inputs():
    def nested(t0, t2):
        a = (t0 + t2) * 0.5
        b = a * a + a * t2 + a
        c = b * b + b * t0 + b
        d = c * c + c * 0.5 + c
        e = d * d + d * 0.5 + d
        return e * e + e

    text = str(Formula.from_function(nested, "f")).partition(" where ")[2]
    assert [part.split(" = ")[0] for part in text.split(", ")] == ["t1", "t3", "t4", "t5", "t6"]


def test_the_second_gradient_of_a_polynomial_is_no_book():
    """Its docstring was 3.8 MB, which took three quarters of the time to compile it."""
    twice = derivative(derivative(Erfcx.op.formula, "x"), "x")
    assert len(str(twice)) < 20_000
    assert len(re.findall(r"t\d+ = ", str(twice))) < 1000
