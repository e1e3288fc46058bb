"""Launches that are done again: with other memory, offsets, streams, the same memory twice."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels.cuda.runtime import again, device

F = ng.nn.functional
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(device.simulating(), reason="the simulator launches every time anew"),
]


def data(*shape, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return ng.tensor(values, device="cuda")


def close(got, expected):
    np.testing.assert_allclose(got.cpu().numpy(), expected, rtol=2e-5, atol=2e-5)


@pytest.fixture(autouse=True)
def fresh():
    again.forget()
    yield
    again.forget()


def plans():
    return [plan for kinds in again._kernels.values() for plan in kinds.plans.values()]


def test_each_call_has_its_own_memory():
    seen = []
    for seed in range(4):
        x, y = data(5, 7, seed=seed), data(7, 3, seed=seed + 9)
        seen.append((x, y, x @ y, x.sum(1), F.softmax(x, 1)))
    assert [len(plan.launches) for plan in plans() if plan is not None] == [1, 1, 1]
    for x, y, product, total, soft in seen:
        a, b = x.cpu().numpy(), y.cpu().numpy()
        close(product, a @ b)
        close(total, a.sum(1))
        powers = np.exp(a - a.max(1, keepdims=True))
        close(soft, powers / powers.sum(1, keepdims=True))


def test_the_same_memory_twice_is_another_kind():
    x, y = data(4, 4), data(4, 4, seed=1)
    a, b = x.cpu().numpy(), y.cpu().numpy()
    for _ in range(3):
        close(x @ x, a @ a)
        close(x @ y, a @ b)
        close(y @ x, b @ a)


def test_views_of_one_memory_by_their_distance():
    whole = data(6, 4, 4)
    values = whole.cpu().numpy()
    for i, j in [(0, 1), (0, 2), (1, 0), (2, 3), (5, 0), (3, 3), (1, 2)]:
        close(whole[i] @ whole[j], values[i] @ values[j])
    line = data(64)
    numbers = line.cpu().numpy()
    for k in range(9):  # other alignments
        close(line[k : k + 40].sum(), numbers[k : k + 40].sum())


def test_other_strides_and_numbers_are_other_kinds():
    x = data(6, 5)
    a = x.cpu().numpy()
    for _ in range(2):
        close(x @ x.t(), a @ a.T)
        close(x.t() @ x, a.T @ a)
        for p in (1, 0):
            close(x.sum(p), a.sum(p))
            close(x.cumsum(p), a.cumsum(p))


def test_memory_that_a_twin_asks_for_is_new_each_time():
    long = [data(1 << 15, seed=seed) for seed in range(3)]
    totals = [x.sum() for x in long]  # in parts, which a second kernel adds
    for x, total in zip(long, totals, strict=True):
        np.testing.assert_allclose(total.item(), x.cpu().numpy().sum(dtype=np.float64), rtol=1e-4)


def test_another_stream_and_the_precision_of_products():
    x = data(8, 8)
    a = x.cpu().numpy()
    close(x @ x, a @ a)
    device.synchronize()
    with ng.cuda.stream(ng.cuda.Stream()):
        close(x @ x, a @ a)
    ng.set_float32_matmul_precision("high")
    try:
        rounded = (x @ x).cpu().numpy()
    finally:
        ng.set_float32_matmul_precision("highest")
    np.testing.assert_allclose(rounded, a @ a, rtol=2e-2, atol=2e-2)
    close(x @ x, a @ a)


def test_numbers_that_change_in_each_call_are_given_up():
    x = data(3, 4)
    for k in range(again.MOST * again.PATIENCE + 8):
        ng.manual_seed(k)
        F.dropout(x, 0.5)
    assert len(plans()) <= again.MOST * len(again._kernels)
    ng.manual_seed(3)
    first = F.dropout(x, 0.5).tolist()
    ng.manual_seed(3)
    assert F.dropout(x, 0.5).tolist() == first


def test_errors_are_told_as_before_and_leave_no_watch():
    x = data(3, 4)
    with pytest.raises(RuntimeError, match="mm"):
        ng.mm(x, x)
    assert device.watch() is None
