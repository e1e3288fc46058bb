"""MaxUnpool against MaxPool, and power and indexed pooling where the op table does not look."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn

F = nn.functional

SHAPES = {1: (2, 3, 7), 2: (2, 3, 5, 6), 3: (1, 2, 4, 5, 4)}


def drawn(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("single", [False, True])
def test_unpooling_puts_back_what_pooling_took(rank, single):
    array = drawn(SHAPES[rank])[0 if single else slice(None)]
    x = ng.tensor(array)
    pool = getattr(nn, f"MaxPool{rank}d")(2, 2, return_indices=True)
    values, places = pool(x)
    out = getattr(nn, f"MaxUnpool{rank}d")(2, 2)(values, places, output_size=x.size()[-rank:])
    kept = out.ne(0)
    assert out.shape == x.shape and kept.sum().item() == values.numel()
    assert ng.equal(out[kept], x[kept])
    again = pool(out.abs() - out.abs() + out)  # pooling of it gives the values, or 0 above them
    assert ng.equal(again[0], values.clamp(0))


@pytest.mark.peer
@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("args", [(2,), (3, 2), (3, 2, 1)])
def test_unpooling_is_torchs(rank, args):
    torch = pytest.importorskip("torch")
    array, found = drawn(SHAPES[rank]), []
    for library in (torch, ng):
        x = library.tensor(array)
        pool = getattr(library.nn, f"MaxPool{rank}d")(*args, return_indices=True)
        module = getattr(library.nn, f"MaxUnpool{rank}d")(*args)
        values, places = pool(x)
        size = list(x.shape)
        values = (values + 0.5).requires_grad_()
        out = module(values, places, output_size=size)
        plain = module(values * 0 + 1, places.clamp(0, 3))
        found.append([repr(module), out.detach().numpy(), plain.detach().numpy()])
    assert found[0][0] == found[1][0]
    for theirs, ours in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_last_of_equal_places_stands_and_has_the_gradient():
    x = ng.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    out = F.max_unpool1d(x, ng.tensor([[1, 1, 4]]), 2)
    assert out.tolist() == [[0, 2, 0, 0, 3, 0]]
    (out * ng.arange(6)).sum().backward()
    assert x.grad.tolist() == [[0, 1, 4]]


@pytest.mark.parametrize("rank", SHAPES)
def test_unpooling_has_gradients_of_any_order(rank):
    values, places = getattr(F, f"max_pool{rank}d_with_indices")(ng.tensor(drawn(SHAPES[rank])), 2)
    values = values.detach().requires_grad_()

    def function(x):
        return getattr(F, f"max_unpool{rank}d")(x, places, 2, output_size=SHAPES[rank][-rank:])

    assert ng.autograd.gradcheck(function, values)
    assert ng.autograd.gradgradcheck(lambda x: function(x) ** 2, values)


def test_new_pools_compile():
    x = ng.tensor(drawn((1, 2, 4, 4, 4)))

    def function(x):
        values, places = F.max_pool3d_with_indices(x, 2)
        out = nn.MaxUnpool3d(2)(values, places)
        powers = nn.LPPool3d(2, 2)(x) + nn.LPPool3d(float("inf"), 2)(x)
        return out, powers, nn.AdaptiveAvgPool3d(2)(x), nn.AdaptiveMaxPool3d((1, 2, None))(x)

    run = ng.compile(function)
    for _ in range(2):
        for a, b in zip(run(x), function(x), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_place_outside_is_found_in_a_compiled_function():
    run = ng.compile(lambda x, at: F.max_unpool1d(x, at, 2))
    assert run(ng.ones(1, 1), ng.tensor([[1]])).tolist() == [[0, 1]]
    with pytest.raises(IndexError, match=r"max_unpool1d: Found an invalid max index .* size 2"):
        run(ng.ones(1, 1), ng.tensor([[2]]))


def test_an_empty_batch_unpools():
    x = ng.ones(0, 2, 3, 3, requires_grad=True)
    out = nn.MaxUnpool2d(2)(x, ng.zeros(0, 2, 3, 3, dtype=ng.int64))
    out.sum().backward()
    assert out.shape == (0, 2, 6, 6) and x.grad.shape == x.shape


def test_unpooling_says_what_is_wrong():
    x, at = ng.ones(1, 1, 2, 2), ng.zeros(1, 1, 2, 2, dtype=ng.int64)
    with pytest.raises(TypeError, match="max_unpool2d: not implemented for 'Long'"):
        F.max_unpool2d(x.long(), at, 2)
    with pytest.raises(TypeError, match="max_unpool2d: elements in indices should be type int64"):
        F.max_unpool2d(x, x, 2)
    with pytest.raises(ValueError, match="MaxUnpool2d: non-positive stride"):
        nn.MaxUnpool2d(2, 0)
    with pytest.raises(ValueError, match=r"invalid output_size .*\(dim 1 must be between 2 and 6"):
        nn.MaxUnpool2d(2)(x, at, (4, 6))


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_gradient_of_a_power_pool_is_zero_where_all_is_zero(p):
    x = ng.zeros(1, 4, requires_grad=True)
    F.lp_pool1d(x, p, 2).sum().backward()
    assert x.grad.tolist() == [[0, 0, 0, 0]]


@pytest.mark.peer
@pytest.mark.parametrize("p", [1, 2, 3, 0.5, -1, float("inf"), -float("inf")])
@pytest.mark.parametrize("ceil", [False, True])
def test_power_pools_of_any_sign_are_torchs(p, ceil):
    torch = pytest.importorskip("torch")
    rows = [[1.0, -2.0, 3.0, 0.0, -5.0], [0.0, 0.0, 2.0, 2.0, 0.0]]
    theirs, ours = torch.tensor(rows).requires_grad_(), ng.tensor(rows, requires_grad=True)
    expected = torch.nn.functional.lp_pool1d(theirs, p, 2, ceil_mode=ceil)
    found = F.lp_pool1d(ours, p, 2, ceil_mode=ceil)
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-6)
    expected.nansum().backward()
    found.nansum().backward()
    if p == 2:  # elsewhere one of the two gives a gradient of 0 or NaN to what is NaN
        np.testing.assert_allclose(ours.grad, theirs.grad, rtol=1e-6)


def test_pools_copy():
    x = ng.tensor(drawn((1, 4, 4, 4)))
    for module in (nn.LPPool3d(2, 2), nn.AdaptiveMaxPool3d(2), nn.AdaptiveAvgPool3d(2)):
        twin = copy.deepcopy(module)
        assert repr(twin) == repr(module) and ng.equal(twin(x), module(x))


@pytest.mark.parametrize("name", ["max_pool2d", "adaptive_max_pool2d"])
def test_with_indices_is_the_pool_that_returns_them(name):
    x = ng.tensor(drawn((2, 4, 4)))
    found = getattr(F, name + "_with_indices")(x, 2)
    expected = getattr(F, name)(x, 2, return_indices=True)
    assert all(ng.equal(a, b) for a, b in zip(found, expected, strict=True))
