"""Loops made from formulas, in the forms that only large arrays take."""

import itertools

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels import loops
from numbagrad.kernels.expr import expr, symbol
from numbagrad.kernels.formula import Formula
from numbagrad.kernels.loops import ElementwiseKernel


@pytest.mark.parametrize("parallel", [False, True])
def test_strided_rows_with_and_without_threads(parallel):
    body = expr("mul", symbol("x"), symbol("y"))
    kernel = ElementwiseKernel(Formula("product", ("x", "y"), body))
    x = np.random.default_rng(0).standard_normal((5, 7, 40)).astype(np.float32)
    y = np.random.default_rng(1).standard_normal((7, 40, 5)).astype(np.float32)
    turned = y.transpose(2, 0, 1)
    out = np.empty_like(x)
    dtype = np.dtype(np.float32)
    entry, plan = kernel.strided((dtype, dtype, dtype), [out, x, turned], parallel)
    entry(plan, out, x, turned)
    assert np.array_equal(out, x * turned)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_operands_of_every_inner_stride(dtype):
    """Side by side, apart, and broadcast along rows, columns, or both; few elements and many."""
    three = ("x", "y", "z")
    body = expr("tanh", expr("mul", expr("add", symbol("x"), symbol("y")), symbol("z")))
    kernel = ElementwiseKernel(Formula("mixed", three, body))
    rng = np.random.default_rng(2)
    for rows, columns in ((3, 5), (9, 70)):
        assert (rows * columns < loops.FEW) == (rows == 3)
        whole = rng.standard_normal((rows, 2 * columns)).astype(dtype)
        kinds = {
            "beside": whole[:, :columns],
            "apart": whole[:, ::2],
            "back": whole[:, columns - 1 :: -1],
            "row": whole[:1, :columns],
            "column": whole[:, :1],
            "one": whole[:1, :1],
        }
        for names in itertools.product(kinds, repeat=3):
            x, y, z = (kinds[name] for name in names)
            out = (
                np.empty((columns, rows), dtype).T if names[0] == "apart" else np.empty_like(whole)
            )
            out = out[:, :columns]
            kernel(out, x, y, z)
            expected = np.broadcast_to(np.tanh((x + y) * z), out.shape)
            np.testing.assert_allclose(out, expected, rtol=2e-6, err_msg=str(names))
    patterns = {key[1] for key in kernel._entries}
    assert len(patterns) <= 8  # strides of 1 are no pattern of their own


def test_a_large_transposed_operand():
    x = ng.randn(400, 500)
    y = ng.randn(500, 400)
    assert np.array_equal((x * y.t()).numpy(), x.numpy() * y.numpy().T)


def test_an_output_that_is_an_operand():
    """In place, in both forms: every element is read before it is written, and by vectors."""
    tanh = Formula("tanh", ("x",), expr("tanh", symbol("x")))
    kernel = ElementwiseKernel(tanh)
    for shape, part in (((1000,), slice(None)), ((50, 90), (slice(None), slice(3, 70)))):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        expected = np.tanh(x[part])
        kernel(x[part], x[part])
        assert np.allclose(x[part], expected, rtol=1e-6)


def test_a_number_of_threads_chosen_later_is_used():
    """What a kernel remembers of a call is for the threads of that call."""
    kernel = ElementwiseKernel(Formula("double", ("x",), expr("add", symbol("x"), symbol("x"))))
    x = np.ones(kernel.grain, np.float32)
    before = ng.get_num_threads()
    seen = set()
    try:
        for count in (1, before, 1, before):
            ng.set_num_threads(count)
            kernel(np.empty_like(x), x)
            seen |= {found[2] for found in kernel._known.values()}
    finally:
        ng.set_num_threads(before)
    assert seen == {1, before}
