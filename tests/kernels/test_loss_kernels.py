"""Cross entropy with its gradient in one pass, against the two kernels that it stands for."""

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels.cpu import loss
from numbagrad.nn import functional as F


@pytest.mark.parametrize("reduction", [loss.MEAN, loss.SUM])
@pytest.mark.parametrize("shape", [(32, 10), (1, 1), (5, 3000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loss_and_gradient_in_one_pass(dtype, shape, reduction):
    n, c = shape
    rng = np.random.default_rng(n)
    x = (5 * rng.standard_normal(shape)).astype(dtype)
    x[n // 2] = 0
    x[0, : c // 2] = -np.inf
    target = rng.integers(0, c, n)
    target[0] = c - 1
    target[n // 3] = -100
    options = 0, -100, 0.0, reduction

    def outputs():
        return [np.full(k, 7, dtype) for k in (1, n, n, 1)] + [np.full(1, 7)]

    two, one = outputs(), outputs()
    first, second = np.empty_like(x), np.empty_like(x)
    loss.cross_entropy(*two, x, target, two[2], *options)
    ones = np.ones(1, dtype)
    loss.cross_entropy_grad(first, ones, x, two[2], two[3], target, two[2], *options)
    loss.cross_entropy_with_grad(*one, second, x, target, one[2], *options)
    close = {"rtol": 4 * np.finfo(dtype).eps, "atol": 4 * np.finfo(dtype).eps}
    for a, b in zip(two, one, strict=True):
        np.testing.assert_allclose(b, a, **close)
    same = {"rtol": 1e-5 if dtype == np.float32 else 1e-13, "atol": 1e-7}
    np.testing.assert_allclose(second, first, **same)
    turned, by_columns = outputs(), np.empty((c, n), dtype)
    loss.cross_entropy_with_grad.turned()(*turned, by_columns, x.T.copy(), target, two[2], *options)
    for a, b in zip(two, turned, strict=True):
        np.testing.assert_allclose(b, a, **close)
    np.testing.assert_allclose(by_columns.T, first, **same)


@pytest.mark.parametrize("turned", [False, True])
def test_a_wrong_target_is_reported(turned):
    x = np.zeros((3, 2), np.float32)
    out, losses, lse, norm = (np.empty(k, np.float32) for k in (1, 3, 3, 1))
    bad, gx = np.empty(1, np.int64), np.empty_like(x)
    target = np.array([0, 5, 1])
    rest = lse, 0, -100, 0.0, loss.MEAN
    run = loss.cross_entropy_with_grad
    if turned:
        run, gx, x = run.turned(), gx.T.copy(), x.T.copy()
    run(out, losses, lse, norm, bad, gx, x, target, *rest)
    wrong = gx[:, 1] if turned else gx[1]
    assert bad[0] == 1 and np.isnan(out[0]) and wrong.tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [ng.float16, ng.bfloat16])
@pytest.mark.parametrize("shape", [(5, 7), (300, 10), (3, 4, 6), (1, 1)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_likelihoods_of_halves_are_rounded_once(dtype, shape, reduction):
    n, c, *places = shape
    rng = np.random.default_rng(n)
    target = ng.tensor(rng.integers(0, c, (n, *places)))
    x, weight = ng.tensor(rng.standard_normal(shape)), ng.tensor(rng.random(c) + 0.1)
    found = []
    for kind in (dtype, ng.float64):
        given = x.to(dtype).to(kind).requires_grad_()
        options = {"reduction": reduction, "ignore_index": 1}
        out = F.nll_loss(given, target, weight.to(dtype).to(kind), **options)
        out.sum().backward()
        assert out.dtype is kind
        found.append((out.detach().double(), given.grad.double()))
    within = 1.01 * ng.finfo(dtype).eps / 2
    for got, wanted in zip(*found, strict=True):
        assert ng.allclose(got, wanted, rtol=within, atol=1e-6, equal_nan=True)
