"""Sizes 0 and no dimensions, where a loop has nothing to do or an axis is missing."""

from __future__ import annotations

import pytest

import numbagrad as ng
from numbagrad.errors import ShapeError
from numbagrad.nn import functional

POOLS = [
    (name, sizes, out)
    for kind in ("avg", "max")
    for name, sizes, out in (
        (f"adaptive_{kind}_pool1d", (1, 2, 4), 0),
        (f"adaptive_{kind}_pool2d", (1, 2, 4, 4), (0, 2)),
        (f"adaptive_{kind}_pool2d", (2, 4, 4), (1, 0)),
        (f"adaptive_{kind}_pool3d", (1, 2, 4, 4, 4), (2, 0, 2)),
    )
]


@pytest.mark.parametrize(("name", "sizes", "out"), POOLS)
def test_an_adaptive_pool_of_no_windows_is_empty(name, sizes, out):
    x = ng.ones(sizes, requires_grad=True)
    y = getattr(functional, name)(x, out)
    wanted = (out,) if isinstance(out, int) else out
    assert tuple(y.shape) == sizes[: -len(wanted)] + tuple(wanted)
    y.sum().backward()
    assert x.grad.tolist() == ng.zeros(sizes).tolist()
    with pytest.raises(ShapeError, match=f"{name}: negative output_size"):
        getattr(functional, name)(x, -1)


@pytest.mark.parametrize("name", ["chunk", "split", "tensor_split", "unbind"])
def test_what_has_no_dimensions_is_not_cut(name):
    number = ng.tensor(1.0)
    with pytest.raises(ShapeError, match=f"{name}: dimension .* has no dimensions.*unsqueeze"):
        getattr(number, name)(*[1] * (name != "unbind"))


def test_a_sum_of_bools_has_a_bool_for_its_factor():
    x, y = ng.tensor([True, False, False]), ng.tensor([True, True, False])
    for alpha, expected in ((2, [True, True, False]), (0, [True, False, False])):
        out = ng.add(x, y, alpha=alpha)
        assert out.dtype is ng.bool and out.tolist() == expected


def test_a_view_says_so():
    x = ng.ones(3, requires_grad=True)
    views = x[1:], x.detach()[1:]
    assert all(v._is_view() for v in views)
    assert not any(v._is_view() for v in (x, x * 1, x.detach()))
