"""Loops that share a loop over rows: what is written with means and sums by hand."""

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn


def normalised(x, weight, bias):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


def with_gradients(x, weight, bias):
    y = normalised(x, weight, bias)
    return [y, *ng.autograd.grad((y * y * y).sum(), [x, weight, bias])]


def test_layer_norm_by_hand_runs_row_by_row():
    ng.manual_seed(0)
    given = [ng.randn(*shape, requires_grad=True) for shape in ((24, 40), (40,), (40,))]
    compiled = ng.compile(with_gradients)
    for mine, plain in zip(compiled(*given), with_gradients(*given), strict=True):
        largest = plain.abs().max().item()
        np.testing.assert_allclose(mine.detach(), plain.detach(), atol=1e-6 * largest, rtol=0)
    assert compiled.source.count("row by row") == 2


def test_memory_of_a_row_group_is_not_reused_inside_of_it():
    def step(x):
        total = x.sum(1, keepdim=True)
        shifted = x / total
        again = shifted.sum(1, keepdim=True)
        return shifted * again + total

    x = ng.rand(30, 50, dtype=ng.float64) + 1
    np.testing.assert_allclose(ng.compile(step)(x), step(x), rtol=1e-13)


def test_a_sum_over_rows_is_not_taken_row_by_row():
    def step(x):
        return x - x.mean(0)

    x = ng.randn(30, 50)
    compiled = ng.compile(step)
    np.testing.assert_allclose(compiled(x), step(x), atol=1e-6)
    assert "row by row" not in compiled.source


def test_column_sums_are_of_what_was_computed_not_of_what_was_rounded():
    """A stored value may be narrower than the one that is summed."""

    def function(x):
        y = x.exp()
        return y.float(), y.sum(0)

    x = ng.rand(40, 24, dtype=ng.float64)
    for mine, plain in zip(ng.compile(function)(x), function(x), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-7 if mine.dtype == ng.float32 else 1e-14)


@pytest.mark.parametrize("threads", [1, 2])
def test_column_sums_beside_an_exponential_get_a_loop_of_their_own(threads):
    """LLVM would vectorise the formula for the width of the float64 sums."""
    held = ng.get_num_threads()
    ng.set_num_threads(threads)
    try:
        ng.manual_seed(0)
        x, w = ng.randn(6, 300, 40), ng.randn(40, 1200, requires_grad=True)
        layer, twin = nn.Linear(1200, 8), nn.Linear(1200, 8)
        twin.load_state_dict(layer.state_dict())
        bias, other = (ng.zeros(1200, requires_grad=True) for _ in range(2))

        def run(layer, bias, x):
            (layer(nn.functional.gelu(x @ w + bias)) ** 2).mean().backward()

        step = ng.compile(lambda x: run(layer, bias, x))
        step(x)
        run(twin, other, x)
        np.testing.assert_allclose(bias.grad.numpy(), other.grad.numpy(), rtol=2e-4, atol=1e-6)
        assert "wide()" in step.source
        inner = step.source[step.source.index("(exp((") :].split("for i")[1]
        assert "float64(load_apart(" in inner and "exp" not in inner
    finally:
        ng.set_num_threads(held)


@pytest.mark.parametrize("threads", [1, 2])
def test_column_sums_of_what_is_not_stored_are_read_from_a_row_of_scratch(threads):
    held = ng.get_num_threads()
    ng.set_num_threads(threads)
    try:
        ng.manual_seed(0)
        x, y = ng.randn(600, 300), ng.randn(600, 300)

        def run(x, y):
            return (x * y).exp(), (x.exp() * y).sum(0), (y.exp() + x).sum(0)

        step = ng.compile(run)
        for mine, plain in zip(step(x, y), run(x, y), strict=True):
            np.testing.assert_allclose(mine, plain, rtol=1e-5, atol=1e-4)
        own = [text for text in step.source.split("for i") if "float64(load_apart(row_" in text]
        assert own and not any("exp(" in text for text in own)
    finally:
        ng.set_num_threads(held)
