"""``python -m benchmarks.scan``: its expressions can be read, and are evaluated in one library."""

import pytest

import numbagrad as ng
from benchmarks import scan


@pytest.mark.parametrize("text", [scan.FORWARD, scan.GRADIENTS])
def test_expressions_can_be_read(text):
    for expression in filter(str.strip, text.replace("\n", ";").split(";")):
        compile(expression.strip(), "scan", "eval")


def test_a_run_evaluates_and_goes_back():
    known = scan.names(ng, scan.arrays(False), True)
    scan.runner(compile("x * v", "scan", "eval"), known, True)()
    assert known["x"].grad is not None and known["v"].grad.shape == known["v"].shape
    assert scan.best(scan.runner(compile("x[:3]", "scan", "eval"), known, False), 0.0) > 0
