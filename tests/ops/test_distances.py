"""cdist and pdist by kernels: beside the norms of differences, in all sizes and layouts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import numbagrad as ng

F = ng.nn.functional


def sample(*shape):
    return np.random.default_rng(shape).standard_normal(shape)


def by_differences(x, y, p):
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).norm(p, -1)


SHAPES = [((3, 4), (5, 4)), ((2, 3, 1), (2, 6, 1)), ((2, 1, 3, 5), (4, 2, 5)), ((1, 7), (300, 7))]
SHAPES += [((2, 700), (3, 700)), ((0, 3), (2, 3)), ((2, 0), (3, 0))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [ng.float64, ng.float32])
def test_cdist_of_order_one(shapes, dtype):
    x, y = (ng.tensor(sample(*shape)).to(dtype).requires_grad_() for shape in shapes)
    outs = [f(x, y, 1.0) for f in (ng.cdist, by_differences)]
    g = ng.tensor(sample(*outs[0].shape, 1)[..., 0]).to(dtype)
    found = [[out.detach(), *ng.autograd.grad(out, (x, y), g)] for out in outs]
    tolerance = 1e3 * ng.finfo(dtype).eps
    for value, expected in zip(*found, strict=True):
        assert value.dtype is dtype
        np.testing.assert_allclose(value.numpy(), expected.numpy(), tolerance, tolerance)


@pytest.mark.parametrize("p, n, k", [*itertools.product((1.0, 2.0), (1, 2, 5, 40), (0, 1, 7, 600))])
def test_pdist_is_a_part_of_cdist(p, n, k):
    rows, columns = np.triu_indices(n, 1)
    for dtype in (ng.float64, ng.float32):
        x = ng.tensor(sample(n, k)).to(dtype).requires_grad_()
        for each in (x, x.mT.contiguous().mT):
            out = F.pdist(each, p)
            g = ng.tensor(sample(*out.shape, 1)[..., 0]).to(dtype)
            (gx,) = ng.autograd.grad(out, x, g)
            whole = by_differences(x, x.detach(), p)[rows, columns]
            (first,) = ng.autograd.grad(whole, x, g)
            whole = by_differences(x.detach(), x, p)[rows, columns]
            (second,) = ng.autograd.grad(whole, x, g)
            tolerance = 1e3 * ng.finfo(dtype).eps
            for value, expected in ((out, whole), (gx, first + second)):
                value, expected = value.detach().numpy(), expected.detach().numpy()
                np.testing.assert_allclose(value, expected, tolerance, tolerance)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_gradients_of_both_orders(p):
    x, y = (ng.tensor(sample(2, n, 3), requires_grad=True) for n in (3, 4))
    assert ng.autograd.gradcheck(lambda x, y: ng.cdist(x, y, p), (x, y))
    assert ng.autograd.gradgradcheck(lambda x, y: ng.cdist(x, y, p) ** 2, (x, y))
    row = ng.tensor(sample(4, 3), requires_grad=True)
    assert ng.autograd.gradcheck(lambda x: F.pdist(x, p), row)
    assert ng.autograd.gradgradcheck(lambda x: F.pdist(x, p) ** 2, row)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_equal_rows_threads_compiled_calls_and_nan(p):
    x = ng.tensor(sample(300, 9)).float()
    before = ng.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            ng.set_num_threads(threads)
            leaf = x.clone().requires_grad_()
            out = F.pdist(leaf, p)
            out.sum().backward()
            found.append((out, leaf.grad, ng.cdist(x, x, 1.0)))
    finally:
        ng.set_num_threads(before)
    assert all(a.equal(b) for a, b in zip(*found, strict=True))
    compiled = ng.compile(lambda x: F.pdist(x, p))(x)
    np.testing.assert_allclose(compiled.numpy(), found[0][0].detach().numpy(), 1e-5)
    mapped = ng.vmap(lambda x: ng.cdist(x, x, p))(x[None])[0]
    np.testing.assert_allclose(mapped.numpy(), ng.cdist(x, x, p).numpy(), 1e-4, 1e-4)
    same = ng.ones(3, 2, requires_grad=True)
    F.pdist(same, p).sum().backward()
    ng.cdist(same, same, p).sum().backward()
    assert same.grad.tolist() == [[0, 0]] * 3
    x[0, 0] = np.nan
    assert F.pdist(x, p)[:299].isnan().all() and F.pdist(x, p)[299:].isfinite().all()
