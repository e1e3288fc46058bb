"""Numbers of a call with which arithmetic raises, which the function may catch."""

from __future__ import annotations

import math

import pytest

import numbagrad as ng

RAISING = {
    "1 / k": (lambda k: 1 / k, ZeroDivisionError, (1.0, 2.0, 0.0, 3.0, 0.0, 4.0)),
    "5 % k": (lambda k: 5 % k, ZeroDivisionError, (1.0, 2.0, 0.0, 3.0)),
    "5 // k": (lambda k: 5 // k, ZeroDivisionError, (1.0, 2.0, 0.0, 3.0)),
    "k ** -1": (lambda k: k**-1, ZeroDivisionError, (1.0, 2.0, 0.0, 3.0)),
    "k ** 400": (lambda k: k**400, OverflowError, (1.0, 0.5, 1e300, 0.25)),
    "log": (lambda k: math.log(k), ValueError, (1.0, 2.0, -1.0, 0.0, 3.0)),
    "sqrt": (lambda k: math.sqrt(k), ValueError, (1.0, 2.0, -1.0, 3.0)),
    "exp": (lambda k: math.exp(k), OverflowError, (1.0, 2.0, 1000.0, 3.0)),
    "int": (lambda k: int(k), (ValueError, OverflowError), (1.0, 2.0, math.inf, math.nan)),
    "round": (lambda k: round(k), (ValueError, OverflowError), (1.0, math.nan, 2.0)),
    "whole": (lambda k: 1 / k, ZeroDivisionError, (1, 2, 3, 4, 0, 5, 0)),
    "ldexp": (lambda k: math.ldexp(1.0, k), OverflowError, (2, 3, 5000, 4, 2)),
    "of a negative base": (lambda k: (-2.0) ** k, ZeroDivisionError, (2.0, 3.0, 2.0)),
    "of -2": (lambda k: (-2) ** k, ZeroDivisionError, (2, 3, 4, 5, 2)),
    "of zero": (lambda k: 0.0**k, ZeroDivisionError, (2.0, -1.0, 3.0)),
    "root": (lambda k: 1.0 + abs(k**0.5), TypeError, (4.0, 9.0, -4.0, 16.0)),
}


@pytest.mark.parametrize("first", ["a number", "one that raises"])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("name", RAISING)
def test_what_is_caught_decides(name, kept, first):
    function, error, values = RAISING[name]
    settings = {"k": values[0]}

    def caught(x, k):
        try:
            return x * function(k)
        except error:
            return x * -9.0

    def from_settings(x):
        return caught(x, settings["k"])

    compiled = ng.compile(from_settings if kept else caught)
    if first != "a number":
        bad = [k for k in values if caught(ng.ones(1), k).item() == -9.0]
        bad = bad or [k for k in values if k < 0]
        values = [*bad[:1], *values]
    for value in values:
        settings["k"] = value
        given = () if kept else (value,)
        expected = caught(ng.ones(2), value)
        ng.testing.assert_close(compiled(ng.ones(2), *given), expected)


def test_what_is_not_caught_is_raised_before_anything_is_done():
    weight, calls = ng.ones(2), ng.compile(lambda x, k: (weight.add_(x), 1.0 / k)[1])
    assert calls(ng.ones(2), 2.0) == 0.5
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            calls(ng.ones(2), 0.0)
        assert weight.tolist() == [2.0, 2.0]
    assert calls(ng.ones(2), 4.0) == 0.25 and weight.tolist() == [3.0, 3.0]
