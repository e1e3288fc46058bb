"""Convolutions by ``wgmma``, on a GPU of 9.0 or in the machine for PTX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_cuda_cores import assert_wgmma_goes_on, compiled

import numbagrad as ng
from numbagrad.kernels.cuda.runtime import device

F = ng.nn.functional
RNG = np.random.default_rng(6)
CONVS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}

FORMS = [
    # the shape of x, channels of the result, window, and strides, padding, dilation
    ((3, 5, 9, 7), 6, (3, 3), {"padding": 1}),
    ((2, 19, 6, 10), 70, (2, 3), {"padding": (0, 2), "dilation": (2, 1)}),
    ((5, 9, 7, 8), 4, (3, 2), {"stride": (2, 1), "padding": 1}),
    ((2, 70, 3, 3), 9, (1, 1), {}),
    ((3, 8, 50), 5, (4,), {"padding": 3, "stride": 3}),
    ((2, 3, 4, 5, 6), 7, (2, 3, 1), {"padding": (1, 0, 2), "dilation": (1, 2, 1)}),
]


@pytest.fixture
def parted(wgmma: None, monkeypatch: Any) -> Any:
    """The module, which makes all that it can, in tiles of 64 rows and one share unless told."""
    from numbagrad.kernels.cuda.runtime import parted_conv

    multiplied, said = parted_conv.multiplied, []
    monkeypatch.setattr(parted_conv, "said", said, raising=False)
    monkeypatch.setattr(parted_conv, "plan", (64, 1), raising=False)
    monkeypatch.setattr(parted_conv, "plan_for", lambda *sizes: parted_conv.plan)
    monkeypatch.setattr(
        parted_conv, "multiplied", lambda *given: said.append(multiplied(*given)) or said[-1]
    )
    yield parted_conv


def run(dtype: Any, place: str, arrays: tuple[np.ndarray, ...], options: Any) -> list[Any]:
    """The result and the gradients of x, weight and bias."""
    x, weight, bias = [ng.tensor(a).to(dtype).to(place).requires_grad_() for a in arrays]
    out = CONVS[x.ndim - 2](x, weight, bias, **options)
    g = ng.tensor(np.cos(np.arange(out.numel())).reshape(out.shape)).to(dtype).to(place)
    out.backward(g)
    return [out.detach(), x.grad, weight.grad, bias.grad]


def compare(dtype: Any, form: Any, tolerance: float) -> None:
    """What the GPU makes of numbers that ``dtype`` holds, against float64."""
    shape, rows, window, options = form
    shapes = shape, (rows, shape[1], *window), (rows,)
    arrays = [RNG.standard_normal(s).astype(np.float32) for s in shapes]
    arrays = [ng.tensor(a).to(dtype).float().numpy() for a in arrays]
    got = run(dtype, "cuda", tuple(arrays), options)
    expected = run(ng.float64, "cpu", tuple(arrays), options)
    for mine, right in zip(got[:3], expected, strict=False):
        wrong = np.abs(mine.cpu().double().numpy() - right.numpy())
        assert wrong.max() < tolerance * np.abs(right.numpy()).max()


@pytest.mark.cuda
@pytest.mark.parametrize("form", FORMS, ids=[str(form[0]) for form in FORMS])
def test_convolutions(form: Any, parted: Any) -> None:
    compare(ng.float32, form, 1e-6)
    assert parted.said == [True, "stride" not in form[3], True]


@pytest.mark.cuda
@pytest.mark.parametrize("plan", [(128, 1), (64, 3), (128, 2)])
def test_tiles_and_shares(plan: tuple[int, int], parted: Any) -> None:
    parted.plan = plan
    compare(ng.float32, ((2, 33, 8, 10), 67, (3, 3), {"padding": 1}), 1e-6)
    compare(ng.float32, ((3, 20, 5, 5), 5, (3, 3), {}), 1e-6)
    assert all(parted.said)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype,tolerance", [(ng.float16, 1e-3), (ng.bfloat16, 8e-3)])
def test_halves(dtype: Any, tolerance: float, parted: Any) -> None:
    for parted.plan in ((64, 1), (64, 2)):
        compare(dtype, ((2, 11, 8, 9), 10, (3, 3), {"padding": 1}), tolerance)
    assert all(parted.said)


@pytest.mark.cuda
@pytest.mark.parametrize("level,unit", [("high", 2.0**-16), ("medium", 2.0**-8)])
def test_precision(level: str, unit: float, parted: Any) -> None:
    ng.set_float32_matmul_precision(level)
    try:
        compare(ng.float32, ((2, 11, 8, 9), 10, (3, 3), {"padding": 1}), 4 * unit)
    finally:
        ng.set_float32_matmul_precision("highest")
    assert all(parted.said)


@pytest.mark.cuda
def test_transposed(parted: Any) -> None:
    x, w, b = (RNG.standard_normal(s).astype(np.float32) for s in ((2, 6, 5, 7), (6, 4, 3, 2), 4))
    got = F.conv_transpose2d(*[ng.tensor(a).cuda() for a in (x, w, b)], padding=1)
    expected = F.conv_transpose2d(*[ng.tensor(a).double() for a in (x, w, b)], padding=1)
    np.testing.assert_allclose(got.cpu().numpy(), expected.numpy(), 1e-5, 1e-5)
    assert parted.said == [True]


@pytest.mark.cuda
def test_groups_and_float64_are_left_alone(parted: Any) -> None:
    x, w = ng.randn(2, 4, 5, 5), ng.randn(6, 2, 3, 3)
    got = F.conv2d(x.cuda(), w.cuda(), groups=2)
    np.testing.assert_allclose(got.cpu().numpy(), F.conv2d(x, w, groups=2).numpy(), 1e-5, 1e-5)
    F.conv2d(x.double().cuda(), ng.randn(6, 4, 3, 3).double().cuda())
    assert parted.said == [False, False]


@pytest.mark.cuda
@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38, 1e-33])
def test_numbers_that_cannot_be_taken_apart(value: float, parted: Any) -> None:
    """All comes out as of float32. value: of one number, the last of all."""
    x, w, b = (RNG.standard_normal(s).astype(np.float32) for s in ((2, 9, 6, 5), (5, 9, 3, 3), 5))
    if value < 1:
        x *= np.float32(value)
        b *= np.float32(value)
    else:
        x[1, 3, 2, 2] = value
    for parted.plan in ((64, 1), (64, 2)):
        got = run(ng.float32, "cuda", (x, w, b), {"padding": 1})
        expected = run(ng.float32, "cpu", (x, w, b), {"padding": 1})
        for mine, right in zip(got, expected, strict=True):
            mine, right = mine.cpu().numpy(), right.numpy()
            assert np.array_equal(np.isnan(mine), np.isnan(right))
            size = np.abs(right[np.isfinite(right)]).max()
            np.testing.assert_allclose(mine, right, 1e-5, 1e-6 * min(size, 1e3))
    assert all(parted.said)


def test_which_convolutions_pay() -> None:
    """Those of many channels; not the first of a net, which has three, nor those of LeNet."""
    if device.simulating():
        pytest.skip("the simulator has no copies that end later")
    pytest.importorskip("numba.cuda")
    from numbagrad.kernels.cuda.runtime.parted_conv import plan_for

    def plan(images: int, channels: int, rows: int, side: int, window: int) -> tuple[int, int]:
        pitch, places = -(-channels // 8) * 8, images * side * side
        k = window * window * pitch
        numbers = places * pitch + rows * k
        return plan_for(rows, places, k, 3, numbers, rows * places * window * window * channels)

    assert plan(64, 64, 128, 32, 3) == (128, 1) and plan(64, 128, 128, 16, 3) == (128, 1)
    assert plan(32, 512, 512, 7, 3)[1] > 1
    assert plan(128, 1, 6, 28, 5) == plan(128, 6, 16, 10, 5) == plan(64, 3, 64, 32, 3) == (0, 0)


@pytest.mark.parametrize("rows,across", [(64, False), (128, True)])
def test_the_linker_lets_wgmma_go_on(rows: int, across: bool, monkeypatch: Any) -> None:
    if device.simulating():
        pytest.skip("the simulator compiles nothing")
    pytest.importorskip("cuda.bindings.nvvm")
    from numbagrad.kernels.cuda.runtime.parted_conv import conv_kernel
    from numbagrad.kernels.cuda.runtime.warpgroups import CAPABILITY

    number, half, whole = ng.float32.numpy, ng.bfloat16.numpy, np.dtype(np.int32)
    kernel = conv_kernel(half, 3, rows, across, False)
    pointers = [*[number] * 4, half, *[whole] * 3]
    assert_wgmma_goes_on(compiled(kernel, pointers, 28, CAPABILITY, monkeypatch).encode())
