"""interpolate: sizes that grow and shrink, in all layouts and dtypes, beside torch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import DTypeError
from numbagrad.nn import functional as F

MODES = {
    1: ("nearest", "nearest-exact", "linear"),
    2: ("nearest", "nearest-exact", "bilinear", "bicubic"),
    3: ("nearest", "trilinear"),
}
SIZES = {1: (9,), 2: (7, 5), 3: (3, 4, 5)}
CASES = [
    (rank, mode, factor, corners)
    for rank, modes in MODES.items()
    for mode, factor in itertools.product(modes, (0.5, 0.34, 1.0, 2.0, 2.7))
    for corners in ((False, True) if "linear" in mode or mode == "bicubic" else (None,))
]


def resized(lib, x, mode, factor, corners, **more):
    return lib.nn.functional.interpolate(
        x, scale_factor=factor, mode=mode, align_corners=corners, **more
    )


def image(rank, *lead):
    return np.random.default_rng(rank).standard_normal((*lead, *SIZES[rank]))


@pytest.mark.parametrize("rank, mode, factor, corners", CASES)
def test_values_and_gradients_are_torchs(rank, mode, factor, corners):
    torch = pytest.importorskip("torch")
    array = image(rank, 2, 3)
    for recompute in (None, True):
        how = {"recompute_scale_factor": recompute}
        theirs = torch.tensor(array, requires_grad=True)
        x = ng.tensor(array, requires_grad=True)
        expected, out = (
            resized(lib, v, mode, factor, corners, **how) for lib, v in ((torch, theirs), (ng, x))
        )
        g = np.random.default_rng(1).standard_normal(tuple(expected.shape))
        np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), atol=1e-13)
        expected.backward(torch.tensor(g))
        out.backward(ng.tensor(g))
        np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("rank, mode, factor, corners", CASES[::3])
def test_gradients_of_both_orders(rank, mode, factor, corners):
    x = ng.tensor(image(rank, 1, 2), requires_grad=True)
    f = lambda x: resized(ng, x, mode, factor, corners)  # noqa: E731
    assert ng.autograd.gradcheck(f, x)
    assert ng.autograd.gradgradcheck(lambda x: f(x) ** 2, x)


@pytest.mark.parametrize("dtype", [ng.float32, ng.float16, ng.bfloat16])
@pytest.mark.parametrize("mode", MODES[2])
def test_narrow_floats_strides_and_compiled_calls(mode, dtype):
    corners = None if "nearest" in mode else False
    wide = ng.tensor(image(2, 2, 3)).to(dtype)
    f = lambda x: resized(ng, x, mode, 1.7, corners)  # noqa: E731
    expected = f(wide.double()).numpy()
    tolerance = 8 * ng.finfo(dtype).eps
    turned = wide.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)
    for out in (f(wide), f(turned), ng.compile(f)(wide), ng.vmap(f)(wide[:, None])[:, 0]):
        assert out.dtype is dtype
        np.testing.assert_allclose(out.double().numpy(), expected, tolerance, tolerance)


def test_long_lines_many_threads_and_no_images():
    x = ng.randn(1, 2, 3, 5000)
    f = ng.nn.functional.interpolate
    out = f(x, size=(4, 7001), mode="bilinear")
    before = ng.get_num_threads()
    try:
        ng.set_num_threads(2)
        assert f(x, size=(4, 7001), mode="bilinear").equal(out)
    finally:
        ng.set_num_threads(before)
    back = f(x.mT, size=(7001, 4), mode="bilinear").mT
    np.testing.assert_allclose(out.numpy(), back.numpy(), atol=1e-6)
    assert f(ng.ones(0, 2, 4, 4), scale_factor=2).shape == (0, 2, 8, 8)


def test_ints_take_the_nearest():
    x = ng.tensor([[[1, 2, 3]]])
    assert ng.nn.functional.interpolate(x, size=6).tolist() == [[[1, 1, 2, 2, 3, 3]]]


def test_nan_and_infinities_reach_who_takes_of_them():
    x = ng.tensor([[[np.nan, 0.0, 0.0, 0.0, np.inf, 0.0]]])
    out = ng.nn.functional.interpolate(x, size=3, mode="linear")
    assert np.isnan(out[0, 0, 0].item()) and out[0, 0, 1:].tolist() == [0, np.inf]


def test_infinite_gradients_go_where_they_belong():
    for shape, size in (((1, 1, 4), 2), ((1, 1, 4, 4), 2), ((1, 1, 4, 6), (2, 2))):
        x = ng.ones(*shape, requires_grad=True)
        y = F.interpolate(x, size=size)
        g = ng.zeros_like(y)
        g.view(-1)[0] = float("inf")
        y.backward(g)
        assert x.grad.isinf().sum().item() == 1 and not x.grad.isnan().any()


def test_whole_numbers_are_rounded():
    x = ng.arange(4).to(ng.uint8).reshape(1, 1, 2, 2)
    for f in (F.interpolate, ng.compile(lambda x, **how: F.interpolate(x, **how))):
        y = f(x, size=(3, 3), mode="bilinear")
        assert y.dtype is ng.uint8 and y.tolist() == [[[[0, 1, 1], [1, 2, 2], [2, 3, 3]]]]
    edge = ng.tensor([[[[0, 255], [255, 0]]]]).to(ng.uint8)
    y = F.interpolate(edge, size=(8, 8), mode="bicubic")
    assert y.min().item() == 0 and y.max().item() == 255
    with pytest.raises(DTypeError, match=r"bilinear is not for bools"):
        F.interpolate(x.bool(), size=(3, 3), mode="bilinear")
