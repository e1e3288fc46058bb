"""Products of float32 by the parts of their factors, on a GPU of 9.0 or in the machine for PTX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_cuda_cores import assert_wgmma_goes_on, compiled

import numbagrad as ng
from numbagrad.kernels.cuda.runtime import device

F = ng.nn.functional
RNG = np.random.default_rng(5)
ROUNDING = 2.0**-24


@pytest.fixture
def parted(wgmma: None, monkeypatch: Any) -> Any:
    """The module, which makes all products, in one share unless a test sets ``shares``."""
    from numbagrad.kernels.cuda.runtime import parted

    multiplied = parted.multiplied

    def noted(*args: Any) -> bool:
        parted.said.append(multiplied(*args))
        return parted.said[-1]

    monkeypatch.setattr(parted, "said", [], raising=False)
    monkeypatch.setattr(parted, "shares", 1, raising=False)
    monkeypatch.setattr(parted, "multiplied", noted)
    monkeypatch.setattr(parted, "plan_for", lambda *sizes: parted.shares)
    yield parted
    assert parted.said and all(parted.said)


@pytest.fixture
def precision() -> Any:
    yield ng.set_float32_matmul_precision
    ng.set_float32_matmul_precision("highest")


def factors(layout: str, n: int, m: int, k: int) -> tuple[Any, ...]:
    """Tensors on the GPU, transposed where the layout says "t", and their numbers."""
    found = []
    for turned, shape in zip(layout, ((n, k), (k, m)), strict=True):
        a = RNG.standard_normal(shape).astype(np.float32)
        x = ng.tensor(a.T.copy()).cuda().t() if turned == "t" else ng.tensor(a).cuda()
        found += [x, a]
    return tuple(found)


def close(got: Any, x: np.ndarray, y: np.ndarray, more: Any = 0, unit: float = ROUNDING) -> None:
    """``got`` is x y and more, but for some units of the largest products of rows and columns."""
    expected = x.astype(float) @ y.astype(float) + more
    size = np.abs(x.astype(float)) @ np.abs(y.astype(float)) + np.abs(more)
    wrong = np.abs(got.cpu().numpy().astype(float) - expected) / size
    assert wrong.max() < 4 * unit


@pytest.mark.cuda
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_products(layout: str, parted: Any) -> None:
    """Rests in each direction, and more slices than there are in shared memory."""
    for sizes in ((131, 141, 201), (3, 5, 70), (1, 9, 1), (65, 1, 8)):
        x, a, y, b = factors(layout, *sizes)
        close(x @ y, a, b)


@pytest.mark.cuda
@pytest.mark.parametrize("level,bits", [("highest", 24), ("high", 16), ("medium", 8)])
def test_precision(level: str, bits: int, parted: Any, precision: Any) -> None:
    precision(level)
    x, a, y, b = factors("nt", 70, 34, 130)
    close(x @ y, a, b, unit=2.0**-bits)
    wrong = np.abs((x @ y).cpu().numpy() - a.astype(float) @ b)
    assert bits == 24 or wrong.max() > 2.0 ** -(bits + 8), "the parts are too many"


@pytest.mark.cuda
def test_endings_and_shares(parted: Any) -> None:
    """A bias, sums, batches, factors that repeat, other strides; one share of steps and three."""
    for parted.shares in (1, 3):
        x, a, y, b = factors("nn", 70, 67, 330)
        bias = ng.randn(67)
        close(F.linear(x, y.t(), bias.cuda()), a, b, bias.numpy().astype(float))
        weight = y.detach().requires_grad_()
        for _ in range(2):  # the second is added
            (x @ weight).sum().backward()
        close(weight.grad, 2 * a.T, np.ones((70, 67)))
        stack = ng.randn(3, 20, 330)
        for got, s in zip(stack.cuda() @ y, stack, strict=True):
            close(got, s.numpy(), b)
        other = ng.randn(3, 330, 24)
        for got, s, t in zip(ng.bmm(stack.cuda(), other.cuda()), stack, other, strict=True):
            close(got, s.numpy(), t.numpy())
        close(x[:, ::3] @ y[::3, 1:], a[:, ::3], b[::3, 1:])


@pytest.mark.cuda
@pytest.mark.parametrize("shares", [1, 2])
def test_numbers_that_cannot_be_taken_apart(shares: int, parted: Any) -> None:
    """Infinity, NaN, what overflows and what is too small come out as of float32."""
    parted.shares = shares
    _, a, y, b = factors("nt", 9, 7, 140)
    for value in (np.inf, -np.inf, np.nan, 3e38, 1e30):
        left = a.copy()
        left[3, 5] = value
        with np.errstate(all="ignore"):
            expected = left @ b
            got = (ng.tensor(left).cuda() @ y).cpu().numpy()
        np.testing.assert_allclose(got, expected, 1e-5, 1e-5)
        assert np.array_equal(np.isnan(got), np.isnan(expected))
    for scale, other in ((1e-30, 1.0), (1e-20, 1e-10), (1e-36, 1e30), (1e-20, 1e-20)):
        left, right = (a * scale).astype(np.float32), (b * other).astype(np.float32)
        got = (ng.tensor(left).cuda() @ ng.tensor(right).cuda()).cpu().numpy()
        expected = left.astype(float) @ right.astype(float)
        np.testing.assert_allclose(got, expected, 1e-4, max(1e-43, 1e-6 * np.abs(expected).max()))


@pytest.mark.cuda
def test_zeros(parted: Any) -> None:
    x, _, y, _ = factors("nn", 9, 7, 70)
    assert not ((x * 0) @ y).cpu().numpy().any() and not (x @ (y * 0)).cpu().numpy().any()
    assert np.isnan(((x * 0) @ (y * ng.inf)).cpu().numpy()).all()


@pytest.mark.cuda
def test_sums_are_as_exact_as_those_of_float32(parted: Any) -> None:
    """Tensor cores cut off; of positive numbers the sums would come out too small."""
    a, b = (RNG.random(shape).astype(np.float32) for shape in ((17, 1300), (1300, 9)))
    exact = a.astype(float) @ b.astype(float)
    wrong = (ng.tensor(a).cuda() @ ng.tensor(b).cuda()).cpu().numpy() / exact - 1
    assert np.abs(wrong).max() < 8 * ROUNDING and abs(wrong.mean()) < 2 * ROUNDING


@pytest.mark.cuda
def test_users_may_do_without(parted: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(parted, "ALLOWED", False)
    x, a, y, b = factors("nn", 9, 7, 70)
    close(x @ y, a, b)
    assert parted.said == [False]
    monkeypatch.setattr(parted, "said", [True])


@pytest.mark.cuda
def test_small_products_are_not_rounded(parted: Any, precision: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(parted, "plan_for", lambda *sizes: 0)
    precision("high")
    x, a, y, b = factors("nn", 9, 7, 70)
    close(x @ y, a, b)
    assert parted.said == [False]
    monkeypatch.setattr(parted, "said", [True])


@pytest.mark.cuda
def test_where_memory_is_short(parted: Any, monkeypatch: Any) -> None:
    """The parts need some; the kernel without tensor cores does not."""
    empty = parted.device.empty

    def short(shape: tuple[int, ...], dtype: Any, place: Any) -> Any:
        if dtype == parted.PEAK:
            raise ng.cuda.OutOfMemoryError("no more")
        return empty(shape, dtype, place)

    monkeypatch.setattr(parted.device, "empty", short)
    x, a, y, b = factors("nn", 9, 7, 70)
    for _ in range(4):
        close(x @ y, a, b)
    assert parted.said == [False] * 4  # none was remembered
    monkeypatch.setattr(parted, "said", [True])


def test_which_products_pay() -> None:
    """Large ones; what has few rows or few steps is sooner made without tensor cores."""
    if device.simulating():
        pytest.skip("the simulator has no copies that end later")
    pytest.importorskip("numba.cuda")
    from numbagrad.kernels.cuda.runtime.parted import plan_for

    def plan(n: int, m: int, k: int, parts: int = 3) -> int:
        return plan_for(n, m, k, 1, parts, n * k + k * m)

    assert plan(4096, 4096, 4096) == 1 and plan(512, 4096, 1024) == 1
    assert plan(512, 1024, 4096) > 1
    assert plan(128, 10, 128) == plan(256, 784, 128) == plan(4096, 8, 4096) == 0


@pytest.mark.parametrize(
    "parts,by_rows", [(3, (True, True)), (3, (False, False)), (1, (True, False))]
)
def test_the_linker_lets_wgmma_go_on(
    parts: int, by_rows: tuple[bool, bool], monkeypatch: Any
) -> None:
    """It makes them wait for one another beside a call, such as a division of 64 bits."""
    if device.simulating():
        pytest.skip("the simulator compiles nothing")
    from numbagrad.kernels.cuda.runtime.parted import parted_kernel
    from numbagrad.kernels.cuda.runtime.warpgroups import CAPABILITY

    pointers = [ng.float32.numpy] * 4 + [ng.bfloat16.numpy, np.dtype(np.int32)]
    ptx = compiled(parted_kernel(parts, *by_rows), pointers, 24, CAPABILITY, monkeypatch).encode()
    assert ptx.count(b"wgmma.mma_async") == 4 * parts * (parts + 1) // 2
    assert_wgmma_goes_on(ptx)
