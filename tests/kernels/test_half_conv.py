"""Convolutions of float16 and bfloat16: sums in float32, rounded once, whatever is unfolded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels import machine
from numbagrad.kernels.cpu.conv import conv, conv_input_grad, conv_weight_grad
from numbagrad.kernels.halves import BFLOAT16, FLOAT16, decoded, encoded

ROUNDS = {BFLOAT16: 2.0**-8, FLOAT16: 2.0**-11}
# images, channels, height, width, channels of the result, kernel, stride, padding, groups
FORMS = [
    (2, 3, 9, 8, 4, 3, 1, 1, 1),
    (2, 4, 8, 7, 6, 3, 2, 2, 2),
    (3, 8, 10, 5, 5, 1, 1, 0, 1),
    (9, 1, 12, 13, 6, 5, 1, 2, 1),
    (1, 40, 6, 6, 70, 3, 1, 0, 1),
]


def rand(*shape: int, dtype: Any) -> np.ndarray:
    return encoded(np.random.default_rng(sum(shape)).standard_normal(shape), dtype)


def results(form: Any, dtype: Any, arrays: Any) -> list[np.ndarray]:
    """The result and both gradients, of arrays of one dtype."""
    *_, stride, padding, groups = form
    x, weight, bias, g = arrays
    numbers = groups, 1, stride, stride, 0, padding, padding, 1, 1, 1
    out, gx, gweight = (np.empty(a.shape, dtype) for a in (g, x, weight))
    conv(out, x, weight, bias, 1, *numbers)
    conv_input_grad(gx, g, weight, bias, 0, *numbers)
    conv_weight_grad(gweight, g, x, *numbers)
    return [out, gx, gweight]


def made(form: Any, dtype: Any) -> list[np.ndarray]:
    n, ci, h, w, co, k, stride, padding, groups = form
    oh, ow = ((size + 2 * padding - k) // stride + 1 for size in (h, w))
    shapes = (n, ci, 1, h, w), (co, ci // groups, 1, k, k), (co,), (n, co, 1, oh, ow)
    return [rand(*shape, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16])
@pytest.mark.parametrize("form", FORMS)
def test_beside_float64(form: Any, dtype: Any) -> None:
    arrays = made(form, dtype)
    wide = [decoded(a).astype(np.float64) for a in arrays]
    sizes = results(form, np.float64, [np.abs(a) for a in wide])
    for got, expected, size in zip(
        results(form, dtype, arrays), results(form, np.float64, wide), sizes, strict=True
    ):
        error = np.abs(decoded(got) - expected)
        assert (error <= 1.01 * ROUNDS[dtype] * np.abs(expected) + 2e-6 * size + 2.0**-25).all()


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16])
def test_the_same_bits_on_any_number_of_threads(dtype: Any) -> None:
    form = (8, 16, 20, 20, 24, 3, 1, 1, 1)
    arrays, before, found = made(form, dtype), machine.threads(), []
    try:
        for threads in (1, 2):
            machine.set_threads(min(threads, before))
            found.append([a.view(np.uint16) for a in results(form, dtype, arrays)])
    finally:
        machine.set_threads(before)
    for one, two in zip(*found, strict=True):
        assert np.array_equal(one, two)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_transposed_with_a_bias(dtype: str) -> None:
    kind = getattr(ng, dtype)
    x, weight, bias = (
        ng.tensor(decoded(rand(*shape, dtype=kind.numpy)).astype(np.float32))
        for shape in ((2, 6, 5, 5), (6, 4, 3, 3), (4,))
    )
    halves = [a.to(kind) for a in (x, weight, bias)]
    got = ng.nn.functional.conv_transpose2d(*halves, stride=2).float().numpy()
    expected = ng.nn.functional.conv_transpose2d(x, weight, bias, stride=2).numpy()
    np.testing.assert_allclose(got, expected, rtol=2 * ROUNDS[kind.numpy], atol=1e-4)
