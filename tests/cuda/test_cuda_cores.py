"""Products on tensor cores: their numbers in the simulator, and the instructions in the PTX."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels.cuda.runtime import device

KINDS = {
    "float16": "m16n8k16.row.col.f32.f16.f16.f32",
    "bfloat16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "float32": "m16n8k8.row.col.f32.tf32.tf32.f32",
}


@pytest.fixture
def tf32(monkeypatch: Any) -> Any:
    """As on a GPU without ``wgmma``, which makes products of parts instead."""
    if not device.simulating() and ng.cuda.is_available():
        from numbagrad.kernels.cuda.runtime import halves, parted

        for module in (halves, parted):
            monkeypatch.setattr(module, "has_groups", lambda: False)
    ng.set_float32_matmul_precision("high")
    yield
    ng.set_float32_matmul_precision("highest")


def matrix(dtype: str, *shape: int) -> tuple[Any, np.ndarray]:
    """A tensor on the device, and the factors that tensor cores make of it."""
    rng = np.random.default_rng(sum(shape))
    x = ng.tensor(rng.uniform(-2, 2, shape).astype(np.float32)).to(getattr(ng, dtype))
    numbers = x.float().numpy()
    if dtype == "float32":  # tf32: 13 bits of the fraction are rounded off, ties away from zero
        bits = (numbers.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        numbers = bits.view(np.float32)
    return x.cuda(), numbers


def close(got: Any, expected: np.ndarray, dtype: str) -> None:
    tolerance = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 1e-6}[dtype]
    scale = np.abs(expected).max(initial=0)
    assert str(got.dtype) == f"ng.{dtype}"
    np.testing.assert_allclose(got.cpu().float().numpy(), expected, 0, tolerance * scale)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", KINDS)
def test_products(dtype: str, tf32: None) -> None:
    x, a = matrix(dtype, 17, 18)
    y, b = matrix(dtype, 18, 9)
    close(x @ y, a @ b, dtype)
    if dtype != "float16":
        return
    u, c = matrix(dtype, 3, 40)
    close(u @ u.t(), c @ c.T, dtype)
    close(u.t() @ u, c.T @ c, dtype)
    bias, _ = matrix(dtype, 3)
    close(ng.nn.functional.linear(u, u, bias), c @ c.T + bias.cpu().float().numpy(), dtype)
    s, e = matrix(dtype, 2, 3, 5)
    close(ng.bmm(s, s.transpose(1, 2)), e @ e.transpose(0, 2, 1), dtype)
    assert (x[:, :0] @ y[:0]).abs().max().item() == 0


@pytest.mark.cuda
def test_a_gradient_is_added_in_place(tf32: None) -> None:
    weight, w = matrix("float16", 4, 5)
    weight.requires_grad_()
    x, a = matrix("float16", 3, 5)
    for _ in range(2):
        ng.nn.functional.linear(x, weight).sum().backward()
    close(weight.grad, 2 * np.broadcast_to(a.sum(0), w.shape), "float16")


@pytest.fixture
def halves(monkeypatch: Any) -> Any:
    """The module that chooses kernels for halves, with a list of what it has said to products."""
    if device.simulating():
        pytest.skip("the simulator has no copies that end later")
    from numbagrad.kernels.cuda.runtime import halves

    multiplied, said = halves.multiplied, []

    def noted(*args: Any) -> bool:
        said.append(multiplied(*args))
        return said[-1]

    monkeypatch.setattr(halves, "multiplied", noted)
    monkeypatch.setattr(halves, "said", said, raising=False)
    return halves


def product(dtype: str, layout: str, n: int, m: int, k: int) -> None:
    """A product of factors of which those at "t" are transposed, against NumPy."""
    x, a = matrix(dtype, *((k, n) if layout[0] == "t" else (n, k)))
    y, b = matrix(dtype, *((m, k) if layout[1] == "t" else (k, m)))
    x, a = (x.t(), a.T) if layout[0] == "t" else (x, a)
    y, b = (y.t(), b.T) if layout[1] == "t" else (y, b)
    close(x @ y, a @ b, dtype)


@pytest.mark.cuda
@pytest.mark.parametrize(
    "which,layout",
    [(2, "nn"), (2, "tt"), (1, "nn"), (1, "nt"), (1, "tn"), (1, "tt"), (0, "nn"), (0, "tt")],
)
def test_products_with_a_ring(which: int, layout: str, halves: Any, monkeypatch: Any) -> None:
    """Every shape of tiles, and rests in each direction: of rows, of columns and of k."""
    shape = halves.SHAPES[which]
    monkeypatch.setattr(halves, "SHAPES", (shape,))
    monkeypatch.setattr(halves, "has_groups", lambda: False)
    dtype = ("float16", "bfloat16")[which % 2]
    product(dtype, layout, shape.rows + 8, shape.cols + 8, 3 * shape.depth + 8)
    assert halves.said == [True]


def endings() -> None:
    """Products with each epilogue: a bias, of rows of 4 and of others; batches; and sums."""
    for m in (72, 67):  # four neighbours at once, and one by one
        x, a = matrix("float16", 70, 40)
        w, b = matrix("float16", m, 40)
        bias, c = matrix("float16", m)
        close(ng.nn.functional.linear(x, w, bias), a @ b.T + c, "float16")
    s, e = matrix("bfloat16", 3, 16, 24)
    close(ng.bmm(s, s.transpose(1, 2)), e @ e.transpose(0, 2, 1), "bfloat16")
    weight, w = matrix("float16", 72, 40)
    weight.requires_grad_()
    x, a = matrix("float16", 64, 40)
    for _ in range(2):  # the second is added
        ng.nn.functional.linear(x, weight).sum().backward()
    close(weight.grad, 2 * np.broadcast_to(a.sum(0), w.shape), "float16")


@pytest.mark.cuda
def test_endings_of_products_with_a_ring(halves: Any) -> None:
    endings()
    assert all(halves.said) and len(halves.said) >= 5


@pytest.fixture(params=[0, 1])
def groups(request: Any, wgmma: None, halves: Any, monkeypatch: Any) -> Any:
    """``halves`` where all products are made by ``wgmma``, by tiles of each size; on a GPU without
    it there are none."""
    shape = halves.GROUPS[request.param]
    monkeypatch.setattr(halves, "shape_for", lambda *given: shape)
    return halves


@pytest.mark.cuda
@pytest.mark.parametrize(
    "dtype,layout",
    [("bfloat16", "nn"), ("float16", "nt"), ("bfloat16", "tn"), ("float16", "tt")],
)
def test_products_of_warpgroups(dtype: str, layout: str, groups: Any) -> None:
    """Rests in each direction, and more slices than there are in shared memory."""
    shape = groups.shape_for()
    product(dtype, layout, shape.rows + 8, shape.cols + 8, 4 * shape.depth + 8)
    product(dtype, layout, 16, 24, 8)
    assert groups.said == [True] * 2


@pytest.mark.cuda
def test_endings_of_products_of_warpgroups(groups: Any) -> None:
    endings()
    assert all(groups.said) and len(groups.said) >= 5


@pytest.mark.parametrize(
    "sizes,rows",
    [
        ((4096, 4096, 1), 128),
        ((512, 4096, 1), 128),
        ((1024, 4096, 1), 128),
        ((512, 1024, 1), 64),
        ((128, 256, 1), 32),
        ((128, 256, 64), 128),
    ],
)
def test_shapes_of_tiles(sizes: tuple[int, int, int], rows: int, halves: Any) -> None:
    """Those that were the fastest on an H200."""
    for shapes in (halves.SHAPES, (*halves.GROUPS, *halves.SHAPES[2:])):
        assert halves.shape_for(*sizes, shapes).rows == rows


@pytest.mark.cuda
def test_what_cannot_be_copied_by_16_bytes(halves: Any) -> None:
    x, a = matrix("bfloat16", 24, 33)
    close(x[:, 1:] @ x[:, 1:].t(), a[:, 1:] @ a[:, 1:].T, "bfloat16")
    close(x.t() @ x, a.T @ a, "bfloat16")
    y, b = matrix("bfloat16", 24, 48)
    close(y[:, ::2] @ y[:, ::2].t(), b[:, ::2] @ b[:, ::2].T, "bfloat16")
    assert halves.said == [False] * 3


def test_precision_of_float32() -> None:
    assert ng.get_float32_matmul_precision() == "highest"
    with pytest.raises(ValueError, match="'highest', 'high', 'medium'"):
        ng.set_float32_matmul_precision("low")


@pytest.mark.cuda
def test_float32_is_exact_unless_told() -> None:
    x = ng.full((1, 1), 1 + 2.0**-20).cuda()
    assert (x @ ng.ones(1, 1).cuda()).item() == 1 + 2.0**-20


def compiled(kernel: Any, pointers: list[Any], numbers: int, cc: tuple, monkeypatch: Any) -> str:
    """The PTX of a kernel of pointers to these dtypes and of so many ints."""
    if device.simulating() or importlib.util.find_spec("cuda") is None:
        pytest.skip("compiling for a GPU needs NVIDIA's wheels, and no simulator")
    pytest.importorskip("cuda.bindings.nvvm")
    from numba import cuda, types
    from numba.cuda import dispatcher

    from numbagrad.kernels.cuda.runtime.launch import _type_of

    there = SimpleNamespace(compute_capability=cc[:2])
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: there)
    signature = types.void(*map(_type_of, pointers), *[types.int64] * numbers)
    (ptx,), _ = cuda.compile_all(
        kernel, signature, device=False, abi="numba", cc=cc, output="ptx",
        launch_bounds=getattr(kernel, "launch_bounds", None),
    )  # fmt: skip
    return ptx


@pytest.mark.parametrize("dtype", KINDS)
def test_the_ptx_multiplies_on_tensor_cores(dtype: str, monkeypatch: Any) -> None:
    from numbagrad.kernels.cuda.runtime.cores import NEW, core_kernel

    numpy = getattr(ng, dtype).numpy
    kernel, *_ = core_kernel(numpy, 64, 64, 1, NEW)
    ptx = compiled(kernel, [numpy] * 4, 13, (8, 0), monkeypatch)
    assert f"mma.sync.aligned.{KINDS[dtype]}" in ptx
    assert ".local" not in ptx.partition("mma.sync")[2]


@pytest.mark.parametrize(
    "which,dtype,turned", [(0, "bfloat16", False), (0, "float16", True), (1, "bfloat16", True)]
)
def test_the_linker_lets_wgmma_go_on(
    which: int, dtype: str, turned: bool, monkeypatch: Any
) -> None:
    """It makes them wait for one another where it cannot see that their registers are left."""
    if device.simulating():
        pytest.skip("the simulator compiles nothing")
    from numbagrad.kernels.cuda.runtime.halves import GROUPS
    from numbagrad.kernels.cuda.runtime.ring import BIAS
    from numbagrad.kernels.cuda.runtime.warpgroups import CAPABILITY, group_kernel

    numpy = getattr(ng, dtype).numpy
    kernel = group_kernel(numpy, GROUPS[which], BIAS, not turned, not turned)
    ptx = compiled(kernel, [numpy] * 4, 10, CAPABILITY, monkeypatch).encode()
    assert b".target sm_90a" in ptx and ptx.count(b"wgmma.mma_async") == GROUPS[which].rows // 16
    assert_wgmma_goes_on(ptx)


def assert_wgmma_goes_on(ptx: bytes) -> None:
    """ptxas neither spills registers nor lets the instructions wait for one another."""
    nvjitlink = pytest.importorskip("cuda.bindings.nvjitlink")
    linker = nvjitlink.create(3, ["-arch=sm_90a", "-O3", "-verbose"])
    nvjitlink.add_data(linker, nvjitlink.InputType.PTX, ptx, len(ptx), "product")
    nvjitlink.complete(linker)
    log = bytearray(nvjitlink.get_info_log_size(linker))
    nvjitlink.get_info_log(linker, log)
    nvjitlink.destroy(linker)
    assert b" 0 bytes spill stores" in log and b"serial" not in log.lower()
