"""Compiled steps in which cuBLASLt's product of ``linear`` makes the relu that follows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from manual_cublaslt import NOT_SUPPORTED

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import NonFiniteError
from numbagrad.kernels.cuda.runtime import cublas, device
from numbagrad.nn import functional as F

pytestmark = pytest.mark.cuda
TIMES = 1 if device.simulating() else 32
FUSED = "addmm_relu("


def given(*shape: int, dtype: Any = ng.float32) -> Any:
    ng.manual_seed(sum(shape))
    return ng.randn([TIMES * n for n in shape]).to(dtype).cuda()


def compared(function: Any, *args: Any, fused: int, error: float = 1e-4) -> Any:
    """Compile, call three times, compare with our own kernels run one by one; the compiled one.

    fused: products that make their relu.
    """
    step = ng.compile(function)
    got = [step(*args) for _ in range(3)]
    assert str(step.program).count(FUSED) == fused, step.program
    ng.cuda.set_matmul_backend("numba")
    expected = function(*args)
    ng.cuda.set_matmul_backend("cublaslt")
    for each in got:
        np.testing.assert_allclose(
            each.detach().cpu().double().numpy(),
            expected.detach().cpu().double().numpy(),
            error,
            error,
        )
    return step


@pytest.mark.parametrize(
    "dtype,error", [("float32", 1e-4), ("float64", 1e-12), ("float16", 4e-3), ("bfloat16", 4e-2)]
)
def test_inference(lib: Any, dtype: str, error: float) -> None:
    kind = getattr(ng, dtype)
    x, weight, bias = (given(*shape, dtype=kind) for shape in ((5, 6), (4, 6), (4,)))
    _ = F.linear(x, weight, bias)  # another plan
    step = compared(lambda x: F.relu(F.linear(x, weight, bias)), x, fused=1, error=error)
    assert "captured into a graph" in repr(step.explain())
    assert "addmm_relu(" in step.source
    if lib:
        assert lib.calls[-1][1] == 6


def test_batches_of_rows_and_what_follows(lib: Any) -> None:
    x, weight, bias = given(2, 3, 6), given(4, 6), given(4)
    compared(lambda x: F.relu(F.linear(x, weight, bias)) * 2 + 1, x, fused=1)
    compared(lambda x: F.relu(F.linear(x, weight, bias)).sum((0, 1)), x, fused=1)
    row = given(6)
    compared(lambda x: F.relu(F.linear(row, weight, bias)) + x[0, 0, 0], x, fused=1)


def test_training(lib: Any) -> None:
    def run(compiled: bool) -> tuple[list[float], Any]:
        ng.manual_seed(0)
        sizes = [TIMES * n for n in (6, 8, 7, 3)]
        layers = [nn.Linear(n, m) for n, m in pairwise(sizes)]
        model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]).cuda()
        optimizer = ng.optim.SGD(model.parameters(), 0.05)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        called = ng.compile(step) if compiled else step
        return [called(given(5, 6)).item() for _ in range(4)], called

    losses, step = run(True)
    assert str(step.program).count(FUSED) == 2
    ng.cuda.set_matmul_backend("numba")
    np.testing.assert_allclose(losses, run(False)[0], 1e-4)


def test_what_stays_apart(lib: Any, monkeypatch: Any) -> None:
    x, weight, bias = given(5, 6), given(4, 6), given(4)

    def read_twice(x: Any) -> Any:
        y = F.linear(x, weight, bias)
        return F.relu(y) + y

    def part(x: Any) -> Any:
        return ng.relu(F.linear(x, weight, bias)[1:])

    def other(x: Any) -> Any:
        return F.leaky_relu(F.linear(x, weight, bias))

    def without(x: Any) -> Any:
        return F.relu(F.linear(x, weight))

    def turned(x: Any) -> Any:
        return F.relu(F.linear(x, weight, bias).t())

    def before_it(x: Any) -> Any:
        return F.linear(F.relu(x), weight, bias)

    square, row = given(6, 6), given(6)

    def of_another(x: Any) -> Any:
        y = F.linear(x, square, row)
        return F.relu(x) + y

    for function in (of_another, read_twice, part, other, without, turned, before_it):
        compared(function, x, fused=0)
    step = ng.compile(lambda x: F.relu(F.linear(x, weight, bias)), check_finite=True)
    step(x)
    assert FUSED not in str(step.program)
    monkeypatch.setattr(cublas, "LARGE_PRODUCT", 1 << 40)
    compared(lambda x: F.relu(F.linear(x, weight, bias)), x, fused=0)


def test_a_result_that_is_returned_too(lib: Any) -> None:
    x, weight, bias = given(5, 6), given(4, 6), given(4)

    def both(x: Any) -> Any:
        y = F.linear(x, weight, bias)
        return y, F.relu(y)

    for _ in range(2):
        y, out = ng.compile(both)(x)
        assert (y < 0).any() and (out == F.relu(y)).all()


def test_without_the_library_nothing_changes(lib: Any) -> None:
    x, weight, bias = given(5, 6), given(4, 6), given(4)
    ng.cuda.set_matmul_backend("numba")
    step = ng.compile(lambda x: F.relu(F.linear(x, weight, bias)))
    step(x)
    assert FUSED not in str(step.program)
    ng.cuda.set_matmul_backend("cublaslt")
    step(x)
    assert FUSED in str(step.program)


def test_in_place(lib: Any) -> None:
    x, weight, bias = given(5, 6), given(4, 6), given(4)
    with ng.no_grad():
        compared(lambda x: F.linear(x, weight, bias).relu_(), x, fused=1)


def test_nan_stays_nan(lib: Any) -> None:
    """Fused or not, which the library decides: a NaN is never cut off."""
    x, weight, bias = given(5, 6), given(4, 6), given(4)
    x[1, 2] = float("nan")
    out = ng.compile(lambda x: F.relu(F.linear(x, weight, bias)))(x)
    assert ng.isnan(out[1]).all() and not ng.isnan(out[0]).any()
    with pytest.raises(NonFiniteError):
        ng.compile(lambda x: F.relu(F.linear(x, weight, bias)), check_finite=True)(x)


def test_a_library_that_cuts_nan_off_is_not_used(lib: Any) -> None:
    if lib is None:
        pytest.skip("what the library does with NaN is its own")
    lib.maximum = np.fmax
    test_nan_stays_nan(lib)
    x, weight, bias = given(5, 6), given(4, 6), given(4)
    compared(lambda x: F.relu(F.linear(x, weight, bias)), x, fused=0)


def test_a_product_that_the_library_refuses(lib: Any) -> None:
    if lib is None:
        pytest.skip("the library has an algorithm for everything here")
    x, weight, bias = given(5, 6), given(4, 6), given(4)
    compared(lambda x: F.relu(F.linear(x, weight, bias)), x, fused=1)
    lib.refuses = NOT_SUPPORTED
    before = len(lib.calls)
    both = ng.cat([weight, weight], 1)[:, ::2]  # no unit stride
    compared(lambda x: F.relu(F.linear(x, both, bias)), x, fused=1)
    x, bias = given(6, 6), given(4, 2)[:, 1]
    compared(lambda x: F.relu(F.linear(x, weight, bias)), x, fused=1)
    assert len(lib.calls) == before
