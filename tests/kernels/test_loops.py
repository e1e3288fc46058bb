"""Loops made from formulas, in the forms that only large arrays take."""

import numpy as np
import pytest

import numbagrad as ng
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


def test_a_large_transposed_operand():
    x = ng.randn(400, 500)
    y = ng.randn(500, 400)
    assert np.array_equal((x * y.t()).numpy(), x.numpy() * y.numpy().T)
