"""Products by cuBLASLt: on a GPU the library, in the simulator one made from its manual."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from manual_cublaslt import INVALID_VALUE, NOT_SUPPORTED

import numbagrad as ng
from numbagrad.errors import DeviceError
from numbagrad.kernels import backend
from numbagrad.kernels.cuda.runtime import cublas, cublaslt, device

pytestmark = pytest.mark.cuda
SIMULATED = device.simulating()
DTYPES = ["float32", "float64", "float16", "bfloat16"]
ERRORS = {"float32": 1e-5, "float64": 1e-13, "float16": 2.0**-10, "bfloat16": 2.0**-7}
TIMES = 1 if SIMULATED else 16


def planned() -> int:
    """Products that the library has made a plan for."""
    return sum(plan is not None for plan in cublas._plans.values())


def pair(dtype: str, *shape: int) -> tuple[Any, np.ndarray]:
    """A tensor on the device, and its numbers."""
    rng = np.random.default_rng(sum(shape))
    x = ng.tensor(rng.uniform(-2, 2, [TIMES * n for n in shape])).to(getattr(ng, dtype))
    return x.cuda(), x.double().numpy()


def close(got: Any, expected: np.ndarray, dtype: str) -> None:
    scale = np.abs(expected).max(initial=0)
    assert str(got.dtype) == f"ng.{dtype}" and got.shape == expected.shape
    np.testing.assert_allclose(
        got.detach().cpu().double().numpy(), expected, 0, ERRORS[dtype] * scale
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_transposes(lib: Any, dtype: str) -> None:
    x, a = pair(dtype, 4, 6)
    y, b = pair(dtype, 6, 5)
    for left, c in ((x, a), (x.t().contiguous().t(), a)):
        for right, d in ((y, b), (y.t().contiguous().t(), b)):
            close(left @ right, c @ d, dtype)
    close(x.t() @ x, a.T @ a, dtype)
    assert planned() == 5


@pytest.mark.parametrize("dtype", DTYPES)
def test_bias(lib: Any, dtype: str) -> None:
    x, a = pair(dtype, 4, 6)
    weight, w = pair(dtype, 5, 6)
    for seed in range(2):
        bias, c = pair(dtype, 5)
        bias, c = bias + seed, c + seed
        close(ng.nn.functional.linear(x, weight, bias), a @ w.T + c, dtype)
    both, c = pair(dtype, 5, 2)
    close(ng.nn.functional.linear(x, weight, both[:, 1]), a @ w.T + c[:, 1], dtype)
    assert planned() == 1
    if lib:
        assert {epilogue for _, epilogue in lib.calls} == {4}


@pytest.mark.parametrize("dtype", DTYPES)
def test_views(lib: Any, dtype: str) -> None:
    """Rows and columns left out: leading dimensions, and addresses of any alignment."""
    x, a = pair(dtype, 6, 8)
    y, b = pair(dtype, 7, 6)
    for first in range(3):
        left, c = x[:, first : first + 4 * TIMES], a[:, first : first + 4 * TIMES]
        right, d = y[first : first + 4 * TIMES, 1:], b[first : first + 4 * TIMES, 1:]
        close(left @ right, c @ d, dtype)
    close(x[::2, :3] @ y[:3], a[::2, :3] @ b[:3], dtype)
    close(x.t()[::2] @ x, a.T[::2] @ a, dtype)
    before = planned()
    close(x[:, ::2] @ y[: 4 * TIMES], a[:, ::2] @ b[: 4 * TIMES], dtype)
    assert planned() == before  # no unit stride: ours


@pytest.mark.parametrize("dtype", DTYPES)
def test_batches(lib: Any, dtype: str) -> None:
    x, a = pair(dtype, 3, 4, 5)
    y, b = pair(dtype, 3, 5, 6)
    close(ng.bmm(x, y), a @ b, dtype)
    close(ng.bmm(x, x.transpose(1, 2)), a @ a.transpose(0, 2, 1), dtype)
    close(x[::2] @ y[::2], a[::2] @ b[::2], dtype)
    close(ng.bmm(x, y[:1].expand(*y.shape)), a @ b[:1], dtype)
    close(ng.bmm(x[1:2].expand(*x.shape), y), a[1:2] @ b, dtype)
    assert planned() == 5


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 5, 7), (5, 1, 7), (5, 7, 1), (1, 1, 9), (9, 1, 1)]
)
def test_single_rows_and_columns(lib: Any, shape: tuple[int, ...]) -> None:
    n, k, m = shape
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(n, k)), rng.normal(size=(k, m))
    x, y = ng.tensor(a).cuda(), ng.tensor(b).cuda()
    for left in (x, x.t().contiguous().t(), ng.cat([x, x], 1)[:, :k], ng.cat([x, x])[:n]):
        for right in (y, y.t().contiguous().t(), ng.cat([y, y], 1)[:, :m]):
            close(left @ right, a @ b, "float64")


def test_what_stays_with_our_kernels(lib: Any, monkeypatch: Any) -> None:
    x, a = pair("float32", 4, 4)
    assert (x[:, :0] @ x[:0]).abs().max().item() == 0
    assert (x[:0] @ x).shape == (0, 4 * TIMES)
    close(x[:1].expand(*x.shape) @ x, np.broadcast_to(a[:1], a.shape) @ a, "float32")
    assert (ng.ones(2, 2, dtype=ng.int64).cuda() @ ng.ones(2, 2, dtype=ng.int64).cuda()).sum() == 8
    assert planned() == 0
    monkeypatch.setattr(cublas, "LARGE_PRODUCT", x.shape[0] ** 3 + 1)
    close(x @ x, a @ a, "float32")
    assert planned() == 0


def test_gradients_are_added_in_place(lib: Any) -> None:
    x, a = pair("float32", 3, 5)
    weight, _ = pair("float32", 4, 5)
    weight.requires_grad_()
    g, c = pair("float32", 3, 4)
    for _ in range(2):
        (ng.nn.functional.linear(x, weight) * g).sum().backward()
    close(weight.grad, 2 * c.T @ a, "float32")


def network() -> tuple[Any, Any, Any]:
    ng.manual_seed(0)
    sizes = 6 * TIMES, 8 * TIMES, 3 * TIMES
    nn = ng.nn
    model = nn.Sequential(nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:]))
    return model.cuda(), ng.randn(5 * TIMES, sizes[0]).cuda(), ng.zeros(5 * TIMES, sizes[2]).cuda()


def trained(compiled: bool, steps: int = 4, clear: bool = True) -> tuple[Any, ...]:
    """Losses and parameters after some steps; clear: gradients are new in each."""
    model, x, target = network()
    optimizer = ng.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def step(x: Any, target: Any) -> Any:
        if clear:
            optimizer.zero_grad()
        loss = ng.nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    run = ng.compile(step) if compiled else step
    losses = [run(x, target).item() for _ in range(steps)]
    return losses, [p.detach().cpu().numpy() for p in model.parameters()], run


@pytest.mark.parametrize("clear", [True, False])
def test_compiled_steps_and_their_graphs(lib: Any, clear: bool) -> None:
    """The library's products in a graph: with memory that lasts as long as the graph."""
    losses, parameters, step = trained(True, clear=clear)
    assert "captured into a graph, replayed" in repr(step.explain())
    made = planned()
    ng.cuda.set_matmul_backend("numba")
    expected, theirs, _ = trained(False, clear=clear)
    assert made >= 5 and planned() == made
    np.testing.assert_allclose(losses, expected, 1e-4)
    for ours, other in zip(parameters, theirs, strict=True):
        np.testing.assert_allclose(ours, other, 1e-4, 1e-6)


def test_a_graph_has_one_workspace(lib: Any) -> None:
    if lib is None:
        pytest.skip("only the manual's library notes workspaces")
    _, _, step = trained(True)
    captured = lib.workspaces[-5:]  # the capture comes last; a replay asks nothing
    assert len(set(captured)) == 1
    held = captured[0]
    gc.collect()
    fresh = [ng.empty(24, device="cuda") for _ in range(40)]
    assert all(x.data_ptr() != held for x in fresh)
    del step


def test_another_backend_records_anew(lib: Any) -> None:
    x, a = pair("float32", 4, 4)
    step = ng.compile(lambda x: x @ x)
    for _ in range(3):
        close(step(x), a @ a, "float32")
    made = planned()
    ng.cuda.set_matmul_backend("numba")
    for _ in range(3):
        close(step(x), a @ a, "float32")
    assert step.cache_info().recordings == 2 and planned() == made == 1


def test_float32_is_rounded_only_where_told(lib: Any) -> None:
    x = ng.full((TIMES, TIMES), 1 + 2.0**-20).cuda()
    one = ng.eye(TIMES).cuda()
    try:
        assert (x @ one)[0, 0].item() == 1 + 2.0**-20
        ng.set_float32_matmul_precision("high")
        (x @ one)
        if lib:
            assert (x @ one)[0, 0].item() == 1
            assert {compute for compute, _ in lib.calls} == {68, 77}
    finally:
        ng.set_float32_matmul_precision("highest")


def test_halves_are_never_added_as_halves(lib: Any) -> None:
    if lib is None:
        pytest.skip("only the manual's library notes preferences")
    for dtype in DTYPES:
        x, _ = pair(dtype, 2, 2)
        x @ x
    assert lib.masks == [7, 7, 2, 2]


def test_what_the_library_cannot_do_is_asked_once(lib: Any) -> None:
    if lib is None:
        pytest.skip("the library has an algorithm for everything here")
    x, a = pair("float32", 4, 4)
    for number, status in enumerate((INVALID_VALUE, NOT_SUPPORTED), 1):
        lib.refuses = status
        cublas._plans.clear()
        for _ in range(3):
            close(x @ x, a @ a, "float32")
        assert lib.calls == [] and len(lib.masks) == number


def test_a_product_that_fails_says_so(lib: Any, monkeypatch: Any) -> None:
    if lib is None:
        pytest.skip("nothing fails here")
    x, _ = pair("float32", 4, 4)
    monkeypatch.setattr(cublas.library(), "matmul", lambda *given: 13)
    with pytest.raises(DeviceError, match=r"cuBLASLt 13.0: CUBLAS_STATUS_EXECUTION_FAILED in cubl"):
        x @ x


def test_an_attribute_that_is_refused_is_named(lib: Any, monkeypatch: Any) -> None:
    if lib is None:
        pytest.skip("nothing fails here")
    wrong = {"epilogue": cublaslt.Attribute(7, cublaslt.c_uint64)}
    monkeypatch.setitem(cublaslt.ATTRIBUTES, "MatmulDesc", wrong)
    with pytest.raises(DeviceError, match=r"INVALID_VALUE in cublasLtMatmulDescSet.*epilogue = 4"):
        cublaslt.Descriptor(cublas.library(), "MatmulDesc", 68, 0, epilogue=4)
    assert lib.problems.pop() == "MatmulDescSetAttribute: EPILOGUE has 4 bytes, not 8"


def test_plans_are_bounded_and_their_parts_destroyed(lib: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(cublas, "MOST_PLANS", 2)
    for n in range(1, 6):
        x, a = pair("float32", n, 2)
        close(x.t() @ x, a.T @ a, "float32")
    assert len(cublas._plans) <= 2
    cublas._plans.clear()
    gc.collect()
    if lib:
        assert [made.kind for made in lib.objects.values()] == ["handle"]


def test_threads_share_a_plan(lib: Any) -> None:
    """The address of the bias stands in the plan: each thread must find its own."""
    x, a = pair("float32", 4, 6)
    weight, w = pair("float32", 5, 6)
    biases = [ng.full((5 * TIMES,), float(k)).cuda() for k in range(4)]
    outs: list[Any] = [None] * 4

    def work(k: int) -> None:
        for _ in range(20):
            outs[k] = ng.nn.functional.linear(x, weight, biases[k])
        device.driver().synchronize()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, out in enumerate(outs):
        close(out, a @ w.T + k, "float32")
    assert planned() == 1


def test_on_another_stream(lib: Any) -> None:
    x, a = pair("float32", 4, 4)
    ng.cuda.synchronize()
    side = ng.cuda.Stream()
    with ng.cuda.stream(side):
        out = x @ x
        assert side.queue in x._array.memory.others
    side.synchronize()
    close(out, a @ a, "float32")


def test_against_our_kernels(lib: Any) -> None:
    for dtype in DTYPES:
        x, _ = pair(dtype, 16, 16)
        ng.cuda.set_matmul_backend("cublaslt")
        theirs = x @ x
        ng.cuda.set_matmul_backend("numba")
        close(theirs, (x @ x).cpu().double().numpy(), dtype)


def test_the_names_are_checked() -> None:
    assert ng.cuda.matmul_backend() == "numba"
    with pytest.raises(ValueError, match="expected 'numba' or 'cublaslt', got 'cublas'"):
        ng.cuda.set_matmul_backend("cublas")
    if SIMULATED:
        with pytest.raises(DeviceError, match="simulator has none"):
            ng.cuda.set_matmul_backend("cublaslt")
    assert backend.products == "numba"
