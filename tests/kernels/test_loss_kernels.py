"""Cross entropy with its gradient in one pass, against the two kernels that it stands for."""

import numpy as np
import pytest

from numbagrad.kernels.cpu import loss


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
