"""group_norm: planes of every size, with and without weights, beside its formula."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import numbagrad as ng

F = ng.nn.functional


def by_formula(x, groups, weight, bias, eps=1e-5):
    rows = x.reshape(x.shape[0] * groups, -1)
    away = rows - rows.mean(1, keepdim=True)
    out = (away / ((away * away).mean(1, keepdim=True) + eps).sqrt()).reshape(x.shape)
    ones = (x.shape[1],) + (1,) * (x.ndim - 2)
    out = out if weight is None else out * weight.reshape(ones)
    return out if bias is None else out + bias.reshape(ones)


def sample(*shape):
    return np.random.default_rng(shape).standard_normal(shape)


@pytest.mark.parametrize("has_weight, has_bias", [*itertools.product((False, True), repeat=2)])
@pytest.mark.parametrize(
    "shape, groups", [((2, 6), 3), ((2, 6, 7), 2), ((3, 4, 3, 3), 4), ((1, 6, 5, 200), 2)]
)
def test_values_and_gradients_are_those_of_the_formula(shape, groups, has_weight, has_bias):
    arrays = sample(*shape), sample(shape[1]) if has_weight else None
    arrays = *arrays, sample(shape[1], 1)[:, 0] if has_bias else None
    g = ng.tensor(sample(*shape, 2)[..., 0])
    found = []
    for f in (F.group_norm, by_formula):
        given = [None if a is None else ng.tensor(a, requires_grad=True) for a in arrays]
        out = f(given[0], groups, *given[1:])
        leaves = [t for t in given if t is not None]
        found.append([out.detach(), *ng.autograd.grad(out, leaves, g)])
    for value, expected in zip(*found, strict=True):
        np.testing.assert_allclose(value.numpy(), expected.numpy(), 1e-9, 1e-9)


def test_gradients_of_both_orders():
    x, w, b = (ng.tensor(sample(*s), requires_grad=True) for s in ((2, 4, 3, 3), (4,), (4, 1)))
    f = lambda x, w, b: F.group_norm(x, 2, w, b[:, 0])  # noqa: E731
    assert ng.autograd.gradcheck(f, (x, w, b))
    assert ng.autograd.gradgradcheck(f, (x, w, b))
    assert ng.autograd.gradgradcheck(lambda x: F.group_norm(x, 2), x)


@pytest.mark.parametrize("dtype", [ng.float32, ng.float16, ng.bfloat16])
def test_narrow_floats_strides_threads_and_compiled_calls(dtype):
    x = ng.tensor(sample(4, 8, 40, 40) + 3).to(dtype)
    w, b = (ng.tensor(sample(8, k)[:, 0]).to(dtype) for k in (1, 2))
    expected = by_formula(x.double(), 4, w.double(), b.double()).numpy()
    tolerance = 8 * ng.finfo(dtype).eps
    out = F.group_norm(x, 4, w, b)
    turned = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    compiled = ng.compile(lambda x: F.group_norm(x, 4, w, b))(x)
    mapped = ng.vmap(lambda x: F.group_norm(x[None], 4, w, b)[0])(x)
    for each in (out, F.group_norm(turned, 4, w, b), compiled, mapped):
        assert each.dtype is dtype
        np.testing.assert_allclose(each.double().numpy(), expected, tolerance, tolerance)
    before = ng.get_num_threads()
    try:
        ng.set_num_threads(1)
        assert F.group_norm(x, 4, w, b).equal(out)
    finally:
        ng.set_num_threads(before)


def test_nan_stays_in_its_group_and_nothing_gives_nothing():
    x = ng.ones(1, 4, 3, 4)
    x[0, 0, 0, 0] = np.nan
    out = F.group_norm(x, 2)
    assert out[:, :2].isnan().all() and out[:, 2:].isfinite().all()
    assert F.group_norm(ng.ones(0, 4, 9), 2).shape == (0, 4, 9)


@pytest.mark.parametrize("dtype", [ng.float16, ng.bfloat16])
def test_gradients_of_halves_are_those_of_float32(dtype):
    x, g = (ng.tensor(sample(4, 8, 10, k) + 1).to(dtype) for k in (12, 12))
    weights = [ng.tensor(sample(8, k)[:, 0]).to(dtype) for k in (1, 2)]
    found = []
    for kind in (dtype, ng.float32):
        given = [t.detach().to(kind).requires_grad_() for t in (x, *weights)]
        out = F.group_norm(given[0], 4, *given[1:])
        first = ng.autograd.grad(out, given, g.to(kind), create_graph=True)
        (second,) = ng.autograd.grad((first[0].float() ** 2).sum(), given[:1])
        F.group_norm(given[0], 4, *given[1:]).backward(g.to(kind))
        found.append([t.detach().double().numpy() for t in (*first, second)])
        found[-1] += [t.grad.double().numpy() for t in given]
    for ours, theirs in zip(*found, strict=True):
        close = 8 * ng.finfo(dtype).eps
        np.testing.assert_allclose(ours, theirs, rtol=close, atol=close * np.abs(theirs).max())
