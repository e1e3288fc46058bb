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
def tf32():
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


def test_precision_of_float32() -> None:
    assert ng.get_float32_matmul_precision() == "highest"
    with pytest.raises(ValueError, match="'highest', 'high', 'medium'"):
        ng.set_float32_matmul_precision("low")


@pytest.mark.cuda
def test_float32_is_exact_unless_told() -> None:
    x = ng.full((1, 1), 1 + 2.0**-20).cuda()
    assert (x @ ng.ones(1, 1).cuda()).item() == 1 + 2.0**-20


@pytest.mark.parametrize("dtype", KINDS)
def test_the_ptx_multiplies_on_tensor_cores(dtype: str, monkeypatch: Any) -> None:
    if device.simulating() or importlib.util.find_spec("cuda") is None:
        pytest.skip("compiling for a GPU needs NVIDIA's wheels, and no simulator")
    pytest.importorskip("cuda.bindings.nvvm")
    from numba import cuda, types
    from numba.cuda import dispatcher

    from numbagrad.kernels.cuda.runtime.cores import NEW, core_kernel
    from numbagrad.kernels.cuda.runtime.launch import _type_of

    there = SimpleNamespace(compute_capability=(8, 0))
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: there)
    numpy = getattr(ng, dtype).numpy
    kernel, *_ = core_kernel(numpy, 64, 64, 1, NEW)
    signature = types.void(*[_type_of(numpy)] * 4, *[types.int64] * 13)
    ptx, _ = cuda.compile_ptx(kernel, signature, cc=(8, 0))
    assert f"mma.sync.aligned.{KINDS[dtype]}" in ptx
    assert ".local" not in ptx.partition("mma.sync")[2]
