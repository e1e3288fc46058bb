"""interpolate with antialias: each place takes from all that it stands for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import numbagrad as ng

IMAGE = np.random.default_rng(2).standard_normal((2, 1, 7, 5))
HOW = [
    *itertools.product([{"size": (3, 2)}, {"size": (2, 9)}, {"size": 1}], (False, True)),
    *itertools.product([{"scale_factor": 0.4}, {"scale_factor": (0.7, 1.6)}], (None,)),
]


def resized(lib, x, **how):
    return lib.nn.functional.interpolate(x, antialias=True, **how)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias_is_torchs(mode):
    torch = pytest.importorskip("torch")
    for sizes, corners in HOW:
        how = {**sizes, "mode": mode, "align_corners": corners}
        expected = resized(torch, torch.tensor(IMAGE), **how).numpy()
        x = ng.tensor(IMAGE)
        np.testing.assert_allclose(resized(ng, x, **how).numpy(), expected, atol=1e-14)
        narrow = resized(ng, x.float(), **how)
        assert narrow.dtype is ng.float32
        np.testing.assert_allclose(narrow.numpy(), expected, atol=1e-6)


def test_antialias_differentiates_and_compiles():
    x = ng.tensor(IMAGE[:1], requires_grad=True)

    def half(x):
        return resized(ng, x, size=(3, 2), mode="bicubic")

    assert ng.autograd.gradcheck(half, x)
    assert ng.autograd.gradgradcheck(lambda x: half(x) ** 2, x)
    np.testing.assert_allclose(
        ng.compile(half)(x.detach()).numpy(), half(x).detach().numpy(), rtol=1e-12
    )
    turned = ng.tensor(IMAGE.swapaxes(2, 3).copy()).transpose(2, 3)
    assert half(turned).equal(half(ng.tensor(IMAGE)))


@pytest.mark.parametrize("mode", ["nearest", "area", "bilinear"])
def test_antialias_refuses_other_modes(mode):
    x = ng.ones(1, 1, 4, 4) if mode != "bilinear" else ng.ones(1, 1, 4)
    with pytest.raises(ValueError, match=r"Anti-alias|needs 4D"):
        resized(ng, x, size=2, mode=mode)
