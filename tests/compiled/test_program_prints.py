"""A program prints as short lines, the same each time, and in colours for Jupyter."""

from __future__ import annotations

import numbagrad as ng
from numbagrad.compiled.shown import without_parentheses, wrapped


@ng.compile
def scaled(x, y):
    return (ng.exp(x) * y).sum(0)


def test_a_program_prints_what_it_does_and_where_it_is_from():
    scaled(ng.ones(3, 2), ng.ones(2))
    text = repr(scaled.program)
    line = scaled._function.__code__.co_firstlineno + 2
    assert text.splitlines() == [
        "program scaled:",
        "  input a0: float32 (3, 2), a1: float32 (2)",
        "  fresh result: float32 (2)",
        "",
        f"  # exp, mul, sum at test_program_prints.py:{line}",
        "  for (3, 2):",
        "      x0 = a0",
        "      x1 = a1 by (0, 1)",
        "      v0: float32 = exp(x0) * x1",
        "      result.1 by (0, 1) = sum(v0)",
    ]


def test_a_program_renders_as_html():
    scaled(ng.ones(3, 2), ng.ones(2))
    shown = scaled.program._repr_html_()
    assert shown.startswith("<pre>program scaled:") and shown.endswith("</pre>")
    assert '<span style="color:#116329">result</span>' in shown
    assert '<span style="color:#57606a"># exp, mul, sum' in shown


def test_long_lines_are_wrapped():
    assert max(map(len, wrapped("a number " * 50, "# ", "#     "))) <= 98


def test_only_parentheses_around_everything_go():
    assert without_parentheses("(a) + (b)") == "(a) + (b)"
    assert without_parentheses("((a) + (b))") == "(a) + (b)"
