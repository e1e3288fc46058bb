"""``python -m benchmarks.scan``: its expressions can be read, and are evaluated in one library."""

import pytest

import numbagrad as ng
from benchmarks import scan


@pytest.mark.parametrize("text", [scan.FORWARD, scan.GRADIENTS, scan.DTYPES, scan.LAYERS])
def test_expressions_can_be_read(text):
    for expression in filter(str.strip, text.replace("\n", ";").split(";")):
        compile(expression.strip(), "scan", "eval")


def test_a_run_evaluates_and_goes_back():
    known = scan.names(ng, scan.arrays(False), True)
    scan.runner(compile("x * v", "scan", "eval"), known, True)()
    assert known["x"].grad is not None and known["v"].grad.shape == known["v"].shape
    assert scan.best(scan.runner(compile("x[:3]", "scan", "eval"), known, False), 0.0) > 0


def test_layers_have_tensors_of_their_own():
    known = scan.names(ng, {}, True)
    given = scan.Given(ng, "float32")
    given.enter(known)
    run = scan.runner(compile("F.linear(t(2, 3), t(4, 3))[i(2, 5)]", "scan", "eval"), known, True)
    run()
    run()
    shapes = [tuple(t.shape) for t in given.made]
    assert shapes == [(2, 3), (4, 3), (5,)] and given.made[1].grad.shape == (4, 3)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "bfloat16", "float64"])
def test_other_dtypes(dtype):
    known = scan.names(ng, scan.arrays(False), False, dtype)
    assert known["x"].dtype is known["im"].dtype is getattr(ng, dtype)
    assert known["i"].dtype is ng.int64 and known["m"].dtype is ng.bool
    assert scan.is_refused("-x", known) == (dtype == "bool")
    assert not scan.is_refused("x.sum()", known)
