"""Convolution, pooling and batch norm on the device against the CPU, over forms and tiles."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels.cuda import conv
from numbagrad.kernels.cuda.runtime.shape import CORE_PATCHES, PATCHES, SIMULATED
from numbagrad.nn import functional as F

pytestmark = pytest.mark.cuda


def both(function, *arrays):
    """Results and gradients of ``function`` on the CPU and on the device, and that they agree."""
    found = []
    for place in ("cpu", "cuda"):
        inputs = [ng.tensor(a).to(place).requires_grad_() for a in arrays]
        out = function(*inputs)
        weight = ng.tensor(np.random.default_rng(1).uniform(0.5, 1.5, tuple(out.shape)))
        out.backward(weight.to(out.dtype).to(place))
        found.append([out.detach(), *[x.grad for x in inputs]])
    for expected, got in zip(*found, strict=True):
        assert got.is_cuda and got.dtype is expected.dtype
        np.testing.assert_allclose(got.cpu().numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def drawn(*shapes, dtype="float32"):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


FORMS = [
    # x, weight, stride, padding, dilation, groups
    ((2, 3, 9), (5, 3, 3), 2, 2, 1, 1),
    ((2, 4, 5, 6), (6, 2, 3, 2), (2, 1), (1, 0), (1, 2), 2),
    ((1, 3, 4, 5), (3, 1, 2, 3), 1, (0, 2), 1, 3),
    ((3, 2, 4, 4), (9, 2, 1, 1), 1, 0, 1, 1),
    ((1, 2, 3, 4, 3), (2, 2, 2, 2, 1), (1, 3, 2), (1, 1, 0), (2, 1, 1), 1),
    ((0, 2, 4), (2, 2, 2), 1, 0, 1, 1),
    ((1, 2, 40), (2, 2, 33), 2, 32, 1, 1),  # more taps that look outside than there are bits
    ((1, 1, 5, 9), (1, 1, 2, 17), (2, 1), (1, 16), (2, 1), 1),
]


def by_tile(monkeypatch, tile, shares):
    """Convolutions are made by the ``tile``-th of the tiles there are, with 0 shares those of one
    or two channels by a thread for each place."""
    chosen = lambda tiles, *sizes: (tiles[tile % len(tiles)], max(shares, 1))  # noqa: E731
    monkeypatch.setattr(conv, "product_tile", chosen)
    monkeypatch.setattr(conv, "FEW_ROWS", 0 if shares else 2)


@pytest.mark.parametrize("tile,shares", [(0, 0), (0, 1), (1, 1), (1, 3)])
@pytest.mark.parametrize("x,weight,stride,padding,dilation,groups", FORMS)
def test_convolution(monkeypatch, tile, shares, x, weight, stride, padding, dilation, groups):
    by_tile(monkeypatch, tile, shares)
    conv = getattr(F, f"conv{len(x) - 2}d")
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    both(lambda x, w, b: conv(x, w, b, **how), *drawn(x, weight, weight[:1]))


@pytest.mark.skipif(SIMULATED, reason="tiles of real size")
@pytest.mark.parametrize("tile", range(len(PATCHES)))
@pytest.mark.parametrize(
    "x,weight,stride,padding,dilation,groups,shares",
    [
        ((2, 3, 13, 11), (70, 3, 3, 3), 1, 1, 1, 1, 1),
        ((1, 72, 12, 10), (20, 72, 3, 3), 2, 1, 1, 1, 1),  # steps go round the ring
        ((3, 70, 7, 12), (36, 35, 3, 2), (1, 2), (2, 1), (2, 1), 2, 3),
    ],
)
def test_convolution_by_tiles(
    monkeypatch, tile, x, weight, stride, padding, dilation, groups, shares
):
    by_tile(monkeypatch, tile, shares)
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    both(lambda x, w, b: F.conv2d(x, w, b, **how), *drawn(x, weight, weight[:1]))


@pytest.mark.skipif(SIMULATED, reason="tiles of real size")
@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16, ng.float32])
@pytest.mark.parametrize("tile", range(len(CORE_PATCHES)))
@pytest.mark.parametrize(
    "x,weight,stride,padding,dilation,groups,shares",
    [
        ((2, 3, 7, 5), (17, 3, 3, 3), 1, 1, 1, 1, 1),
        ((1, 24, 12, 10), (8, 24, 3, 3), 2, 1, 1, 1, 1),
        ((3, 18, 7, 16), (20, 9, 3, 2), (1, 2), (2, 1), (2, 1), 2, 3),
    ],
)
def test_convolution_on_tensor_cores(
    monkeypatch, dtype, tile, x, weight, stride, padding, dilation, groups, shares
):
    by_tile(monkeypatch, tile, shares)
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    given = [ng.tensor(a).to(dtype).float().numpy() for a in drawn(x, weight, weight[:1])]
    found = []
    ng.set_float32_matmul_precision("high")
    try:
        for place in ("cpu", "cuda"):
            kind = ng.float32 if place == "cpu" else dtype
            inputs = [ng.tensor(a).to(place).to(kind).requires_grad_() for a in given]
            out = F.conv2d(*inputs, **how)
            g = ng.tensor(np.random.default_rng(1).integers(-2, 3, tuple(out.shape)))
            out.backward(g.to(kind).to(place))
            found.append(
                [t.float().cpu().numpy() for t in (out.detach(), *[i.grad for i in inputs])]
            )
    finally:
        ng.set_float32_matmul_precision("highest")
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=6e-3 * np.abs(expected).max())


@pytest.mark.parametrize(
    "x,weight,stride,padding,more,groups",
    [
        ((2, 3, 4), (3, 2, 3), 2, 1, 1, 1),
        ((1, 4, 3, 2), (4, 1, 2, 3), (2, 3), (0, 1), (1, 2), 2),
        ((2, 3, 1), (3, 2, 4), 5, 1, 0, 1),  # fewer places than the stride
    ],
)
def test_transposed_convolution(x, weight, stride, padding, more, groups):
    conv = getattr(F, f"conv_transpose{len(x) - 2}d")
    bias = (weight[1] * groups,)
    both(lambda x, w, b: conv(x, w, b, stride, padding, more, groups), *drawn(x, weight, bias))


def test_convolution_in_double_and_twice():
    x, weight = drawn((1, 2, 4, 3), (2, 2, 2, 2), dtype="float64")

    def penalty(x, w):
        (gx,) = ng.autograd.grad(
            (F.conv2d(x, w, stride=2, padding=1) ** 3).sum(), x, create_graph=True
        )
        return (gx * gx).sum(1)

    both(penalty, x, weight)


def test_the_gradient_of_a_weight_does_not_change():
    x, g = (ng.tensor(a).cuda() for a in drawn((4, 2, 6, 6), (4, 3, 5, 5)))
    weight = ng.zeros(3, 2, 2, 2, device="cuda", requires_grad=True)
    grads = [ng.autograd.grad(F.conv2d(x, weight), weight, g)[0].tolist() for _ in range(2)]
    assert grads[0] == grads[1]


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.max_pool2d(x, 2, 1, dilation=(2, 1), ceil_mode=True),
        lambda x: F.max_pool2d(x, 3, 1, padding=(2, 2), dilation=(3, 2)),
        lambda x: F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, 2, 3, divisor_override=5),
        lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
        lambda x: F.adaptive_max_pool2d(x, (4, 2)),
        lambda x: F.avg_pool3d(x, (2, 3, 2), 1),
    ],
)
def test_pooling(pool):
    both(pool, *drawn((2, 2, 5, 6)))


def test_pooling_keeps_nan_and_the_first_of_equals():
    x = ng.tensor([[[1.0, 1.0, float("nan"), 0.0], [1.0, 0.0, float("nan"), 5.0]]], device="cuda")
    values, at = F.max_pool2d(x, 2, return_indices=True)
    assert values.cpu().isnan().tolist() == [[[False, True]]] and at.tolist() == [[[0, 6]]]


@pytest.mark.parametrize("shape", [(5, 3), (3, 2, 7), (1, 3, 4, 3), (2, 1, 40), (6, 1)])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(shape, affine):
    x, weight, bias = drawn(shape, shape[1:2], shape[1:2])
    if affine:
        both(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), x, weight, bias)
    else:
        both(lambda x: F.batch_norm(x * 2 + 100, None, None, training=True), x)


def test_batch_norm_moves_its_statistics():
    results = []
    for place in ("cpu", "cuda"):
        net = ng.nn.BatchNorm2d(2, momentum=0.3).to(place)
        x = ng.tensor(drawn((3, 2, 2, 5))[0]).to(place)
        net(x), net(x * 2)
        state = [*net.state_dict().values(), net.eval()(x).detach()]
        results.append([s.cpu().numpy() for s in state])
        assert all(s.is_cuda == (place == "cuda") for s in net.state_dict().values())
    for expected, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_small_net_for_images_trains():
    losses = []
    for place in ("cpu", "cuda"):
        ng.manual_seed(0)
        net = ng.nn.Sequential(
            ng.nn.Conv2d(1, 3, 3, padding=1), ng.nn.BatchNorm2d(3), ng.nn.ReLU(),
            ng.nn.MaxPool2d(2), ng.nn.Flatten(), ng.nn.Linear(12, 2),
        ).to(place)  # fmt: skip
        step = ng.optim.Adam(net.parameters(), 0.01)
        x, target = ng.randn(3, 1, 4, 4).to(place), ng.tensor([0, 1, 0]).to(place)
        for _ in range(2):
            step.zero_grad()
            loss = F.cross_entropy(net(x), target)
            loss.backward()
            step.step()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_strides_that_no_launch_takes():
    x, weight = ng.ones(1, 1, 2, 1, device="cuda"), ng.ones(1, 1, 256, 256, device="cuda")
    with pytest.raises(ng.errors.DeviceError, match=r"strides of \[1, 256, 256\] has 65536"):
        F.conv_transpose2d(x, weight, stride=256)
    assert F.conv_transpose2d(x, weight[..., :8, :8], stride=8).sum().item() == 128.0
