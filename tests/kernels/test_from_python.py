"""What Python calls of an elementwise kernel: what it takes, and what it leaves alone."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from numba import config

import numbagrad as ng
from numbagrad.kernels import from_python, machine
from numbagrad.kernels.crew import load_crew
from numbagrad.kernels.formula import Formula
from numbagrad.kernels.loops import ElementwiseKernel

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
compiled = pytest.mark.skipif(config.DISABLE_JIT, reason="is what compiled kernels have")


def scaled(x, factor):
    return x * factor


SCALED = ElementwiseKernel(Formula.from_function(scaled))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 0, 3), (2, 3, 4, 5)])
def test_arrays_of_one_shape(shape):
    x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    out = np.full_like(x, np.nan)
    assert SCALED.entry((FLOAT32, FLOAT32, float))(out, x, -3.0) is True
    np.testing.assert_array_equal(out, x * np.float32(-3))


@pytest.mark.parametrize("number", [2.5, -1.0, 3, -1, 0, True, False, float("inf")])
def test_numbers_of_each_kind(number):
    x, out = np.array([1.0, -4.0]), np.empty(2)
    assert SCALED.entry((FLOAT64, FLOAT64, type(number)))(out, x, number)
    np.testing.assert_array_equal(out, x * float(number))


@pytest.mark.parametrize(
    "out, x",
    [
        (np.zeros((3, 4)), np.ones((4, 3))),
        (np.zeros((3, 4)), np.ones((1, 4))),
        (np.zeros((3, 4)), np.ones(4)),
        (np.zeros(12), np.ones((3, 4))),
        (np.zeros((4, 4)), np.ones((4, 4)).T[::2].repeat(2, 0).T),
        (np.zeros((4, 8)), np.ones((4, 16))[:, ::2]),
        (np.zeros((4, 8))[:, ::2], np.ones((4, 4))),
    ],
    ids=["turned", "one row", "rank", "flat", "columns", "apart", "result apart"],
)
def test_nothing_is_done_for_other_layouts(out, x):
    before = out.copy()
    assert SCALED.entry((FLOAT64, FLOAT64, float))(out, x, 2.0) is False
    np.testing.assert_array_equal(out, before)


@compiled
def test_nothing_is_done_for_many_elements():
    load_crew()
    machine.threads()
    x = np.ones(SCALED.long, np.float32)
    out = np.zeros_like(x)
    enter = SCALED.entry((FLOAT32, FLOAT32, float))
    assert enter(out, x, 2.0) is False and not out.any()
    assert enter(out[:-1], x[:-1], 2.0) is True


@compiled
def test_other_operands_and_numbers_that_do_not_fit():
    out, x = np.zeros(3), np.ones(3)
    with pytest.raises(TypeError, match="scaled: got 2 operands with its results, it has 3"):
        SCALED.entry((FLOAT64, FLOAT64, float))(out, x)
    with pytest.raises(OverflowError, match=f"scaled: {1 << 64} does not fit in 64 bits"):
        SCALED.entry((FLOAT64, FLOAT64, int))(out, x, 1 << 64)
    with pytest.raises(TypeError):
        SCALED.entry((FLOAT64, FLOAT64, float))(out, x, "2")
    assert not out.any()
    many = tuple([float] * from_python.MOST)
    with pytest.raises(ValueError, match="257 operands"):
        from_python.described("f", 0, (FLOAT64, *many), 2, 2)


@compiled
@pytest.mark.parametrize("n", [SCALED.grain - 1, SCALED.grain, SCALED.grain + 67, 3 * SCALED.grain])
def test_threads_share_what_is_long(n):
    load_crew()
    before = ng.get_num_threads()
    x = np.arange(n, dtype=np.float32)
    try:
        for threads in range(1, min(3, config.NUMBA_NUM_THREADS) + 1):
            ng.set_num_threads(threads)
            machine.threads()
            out = np.full(n + 32, np.nan, np.float32)
            assert SCALED.entry((FLOAT32, FLOAT32, float))(out[:n], x, 0.5) is True
            np.testing.assert_array_equal(out[:n], x * np.float32(0.5))
            assert np.isnan(out[n:]).all()
    finally:
        ng.set_num_threads(before)


@compiled
def test_it_lives_without_its_kernel():
    """Of the words that say what it is none is freed before it."""

    def once(x, y):
        return x - y

    def entries():
        kernel = ElementwiseKernel(Formula.from_function(once))
        return [kernel.entry((FLOAT32, FLOAT32, each)) for each in (FLOAT32, float, int, bool)]

    for _ in range(50):
        held = entries()
        gc.collect()
        noise = [np.full(20, -1) for _ in range(100)]
        out = np.empty(2, np.float32)
        assert held[0](out, np.ones(2, np.float32), np.ones(2, np.float32)) and not out.any()
        assert held[0].__name__ == "once"
        del held, noise
