"""Softmax family, layer normalisation, column sums and losses against NumPy."""

import numpy as np
import pytest

from numbagrad.kernels import machine
from numbagrad.kernels.cpu import bias, layer_norm, loss, norm, plane_loss

DTYPES = [np.float32, np.float64]
SHAPES = [(4, 7), (1, 1), (3, 100), (40, 700)]


def rand(*shape, dtype=np.float64):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def close(found, expected, factor=40):
    eps = np.finfo(found.dtype).eps
    np.testing.assert_allclose(found, expected, rtol=factor * eps, atol=factor * eps)


def log_softmax(x, axis=-1):
    x = x.astype(np.float64)
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def softmax_jacobian_product(g, out, axis=-1):
    return out * (g - (g * out).sum(axis, keepdims=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows(dtype):
    for shape in SHAPES:
        x, g, out = 5 * rand(*shape, dtype=dtype), rand(*shape, dtype=dtype), np.empty(shape, dtype)
        expected = log_softmax(x)
        norm.log_softmax_rows(out, x)
        close(out, expected)
        gx = np.empty(shape, dtype)
        norm.log_softmax_rows_grad(gx, g, out)
        close(gx, g - np.exp(expected) * g.sum(-1, keepdims=True, dtype=np.float64), 200)
        norm.softmax_rows(out, x)
        close(out, np.exp(expected))
        norm.softmax_rows_grad(gx, g, out)
        close(gx, softmax_jacobian_product(g.astype(np.float64), np.exp(expected)), 200)
        sums = np.empty(shape[0], dtype)
        norm.logsumexp_rows(sums, x)
        close(sums, np.log(np.exp(x.astype(np.float64)).sum(-1)))
        norm.logsumexp_with_softmax(sums, out, x)
        close(sums, np.log(np.exp(x.astype(np.float64)).sum(-1)))
        close(out, np.exp(expected), 200)


@pytest.mark.parametrize("dtype", DTYPES)
def test_middle_axis(dtype):
    for shape in [(2, 5, 3), (1, 9, 130), (3, 1, 1)]:
        x, g, out = 5 * rand(*shape, dtype=dtype), rand(*shape, dtype=dtype), np.empty(shape, dtype)
        expected, gx = log_softmax(x, 1), np.empty(shape, dtype)
        norm.log_softmax_axis(out, x)
        close(out, expected)
        norm.log_softmax_axis_grad(gx, g, out)
        close(gx, g - np.exp(expected) * g.sum(1, keepdims=True, dtype=np.float64), 200)
        norm.softmax_axis(out, x)
        close(out, np.exp(expected))
        norm.softmax_axis_grad(gx, g, out)
        close(gx, softmax_jacobian_product(g.astype(np.float64), np.exp(expected), 1), 200)


@pytest.mark.parametrize("dtype", DTYPES)
def test_not_finite(dtype):
    inf, nan = np.inf, np.nan
    x = np.array(
        [[-inf, 0, 1], [-inf, -inf, -inf], [inf, 0, 0], [nan, 0, 0], [1e4, -1e4, 0]], dtype
    )
    soft, logs = np.empty_like(x), np.empty_like(x)
    norm.softmax_rows(soft, x)
    norm.log_softmax_rows(logs, x)
    assert soft[0, 0] == 0 and logs[0, 0] == -inf
    assert np.isnan(soft[1:4]).all() and np.isnan(logs[1:4]).all()
    assert soft[4].tolist() == [1, 0, 0] and logs[4].tolist() == [0, -2e4, -1e4]
    sums = np.empty(5, dtype)
    norm.logsumexp_rows(sums, x)
    np.testing.assert_allclose(sums, [1.3132616, -inf, inf, nan, 1e4], rtol=1e-6)
    columns, expected = np.empty((1, 3, 5), dtype), soft.T[None]
    norm.softmax_axis(columns, np.ascontiguousarray(x.T[None]))
    np.testing.assert_allclose(columns, expected, rtol=1e-6)
    norm.log_softmax_axis(columns, np.ascontiguousarray(x.T[None]))
    np.testing.assert_allclose(columns, logs.T[None], rtol=1e-6)


def test_log_softmax_of_large_numbers_keeps_its_digits():
    x = np.array([[1000.0, 999.0, -1000.0], [80, 88, 90]], np.float32)
    for transposed in (False, True):
        out = np.empty((2, 3), np.float32)
        if transposed:
            columns = np.empty((1, 3, 2), np.float32)
            norm.log_softmax_axis(columns, np.ascontiguousarray(x.T[None]))
            out[:] = columns[0].T
        else:
            norm.log_softmax_rows(out, x)
        np.testing.assert_allclose(out, log_softmax(x), rtol=1e-6)
    target, bad = np.array([0, 2]), np.empty(1, np.int64)
    out, each, lse, norm_ = (np.empty(n, np.float32) for n in (1, 2, 2, 1))
    loss.cross_entropy(out, each, lse, norm_, bad, x, target, each, 0, -100, 0.0, 0)
    np.testing.assert_allclose(each, -log_softmax(x)[[0, 1], target], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 3, 5), (2, 7, 300), (3, 1, 513), (2, 0, 4)])
def test_logsumexp_of_columns(shape, dtype):
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype) * 5
    if x.size:
        x[0, :, 0], x[0, 0, 1], x[0, -1, 2], x[-1, 0, 3] = -np.inf, np.inf, np.nan, 700
    out = np.empty((shape[0], shape[2]), dtype)
    norm.logsumexp_axis(out, x)
    with np.errstate(all="ignore"):
        expected = np.logaddexp.reduce(x.astype(np.float64), 1)
    np.testing.assert_allclose(out, expected, 1e-6 if dtype is np.float32 else 1e-14)


def test_rows_without_columns():
    sums = np.empty(2)
    norm.logsumexp_rows(sums, np.empty((2, 0)))
    assert (sums == -np.inf).all()
    norm.softmax_rows(np.empty((2, 0)), np.empty((2, 0)))


def layer_norm_reference(x, weight, bias, eps):
    x = x.astype(np.float64)
    rstd = 1 / np.sqrt(x.var(-1) + eps)
    return (x - x.mean(-1, keepdims=True)) * rstd[:, None] * weight + bias, x.mean(-1), rstd


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm(dtype):
    for n, m in [(3, 5), (150, 8), (70, 600)]:
        x, weight, shift = 3 + rand(n, m, dtype=dtype), rand(m, dtype=dtype), rand(1, m)[0]
        g, shift = rand(m, n, dtype=dtype).T.copy(), shift.astype(dtype)
        out, mean, rstd = np.empty_like(x), np.empty(n, dtype), np.empty(n, dtype)
        for affine in range(4):
            w, b = weight if affine & 1 else np.ones(m), shift if affine & 2 else np.zeros(m)
            layer_norm.layer_norm(out, mean, rstd, x, weight, shift, 1e-5, affine)
            expected = layer_norm_reference(x, w, b, 1e-5)
            for found, value in zip((out, mean, rstd), expected, strict=True):
                close(found, value, 300)
            gx, gw, gb = np.empty_like(x), np.empty_like(weight), np.empty_like(weight)
            layer_norm.layer_norm_grad(gx, gw, gb, g, x, mean, rstd, weight, affine)
            unit = (x - expected[1][:, None]) * expected[2][:, None]
            gu = g * w
            along = (gu * unit).mean(-1, keepdims=True)
            close(gx, expected[2][:, None] * (gu - gu.mean(-1, keepdims=True) - unit * along), 500)
            close(gw, (g * unit).sum(0), 500)
            close(gb, g.sum(0, dtype=np.float64), 500)


@pytest.mark.parametrize("dtype", DTYPES)
def test_column_sum(dtype):
    for shape in [(0, 3), (1, 1), (7, 5), (1000, 3), (300, 260), (9, 40000)]:
        x, out = rand(*shape, dtype=dtype), np.empty(shape[1], dtype)
        bias.column_sum(out, x)
        close(out, x.sum(0, dtype=np.float64), 100)


def test_column_sum_of_many_keeps_its_digits():
    x, out = np.full((2_000_000, 1), 0.1, np.float32), np.empty(1, np.float32)
    bias.column_sum(out, x)
    assert out[0] == pytest.approx(np.float64(np.float32(0.1)) * 2_000_000, rel=1e-6)


def test_sums_do_not_depend_on_threads():
    before, results = machine.threads(), []
    x = rand(3000, 50, dtype=np.float32)
    try:
        for threads in range(1, min(before, 2) + 1):
            machine.set_threads(threads)
            out, mean, rstd = np.empty_like(x), *np.empty((2, 3000), np.float32)
            layer_norm.layer_norm(out, mean, rstd, x, x[0], x[0], 1e-5, 3)
            gx, (gw, gb, columns) = np.empty_like(x), np.empty((3, 50), np.float32)
            layer_norm.layer_norm_grad(gx, gw, gb, x, x, mean, rstd, x[0], 3)
            bias.column_sum(columns, x)
            results.append((out, gx, gw, gb, columns))
    finally:
        machine.set_threads(before)
    for one, two in zip(results[0], results[-1], strict=True):
        assert np.array_equal(one, two)


def cross_entropy_reference(x, target, weight, ignore, smoothing):
    """Losses of each row, the sum of weights, the gradient of the sum of the losses."""
    n, c = x.shape
    logs, kept = log_softmax(x), target != ignore
    safe = np.where(kept, target, 0)
    rows = np.full((n, c), smoothing / c)
    rows[np.arange(n), safe] += 1 - smoothing
    rows *= weight * kept[:, None]
    grad = np.exp(logs) * rows.sum(1, keepdims=True) - rows
    return -(rows * logs).sum(1), (weight[safe] * kept).sum(), grad, rows


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [0, 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(dtype, weighted, smoothing):
    for n, c in [(6, 5), (64, 300)]:
        x = 3 * rand(n, c, dtype=dtype)
        target = np.random.default_rng(0).integers(0, c, n)
        target[2] = -100
        weight = np.abs(rand(c, dtype=dtype))
        losses, mass, grad, rows = cross_entropy_reference(
            x, target, weight if weighted else np.ones(c), -100, smoothing
        )
        constants = target, weight, weighted, -100, smoothing
        found = np.empty((n, c), dtype)
        loss.target_rows(found, *constants)
        close(found, rows)
        out, norm_, bad = np.empty(1, dtype), np.empty(1, dtype), np.empty(1, np.int64)
        each, lse, gx = np.empty(n, dtype), np.empty(n, dtype), np.empty_like(x)
        for reduction, expected in ((1, losses.sum() / mass), (2, losses.sum())):
            loss.cross_entropy(out, each, lse, norm_, bad, x, *constants, reduction)
            assert bad[0] == -1
            close(out, expected, 100)
            close(each, losses, 100)
            g = np.array([0.7], dtype)
            loss.cross_entropy_grad(gx, g, x, lse, norm_, *constants, reduction)
            close(gx, 0.7 * grad / (mass if reduction == 1 else 1), 200)
        g = rand(n, dtype=dtype)
        loss.cross_entropy(out, each, lse, norm_, bad, x, *constants, 0)
        loss.cross_entropy_grad(gx, g, x, lse, norm_, *constants, 0)
        close(gx, g[:, None] * grad, 200)


def test_nll():
    x, weight, target = rand(4, 3), np.array([1.0, 2.0, 4.0]), np.array([2, 0, 1, 0])
    out, each, norm_, bad = np.empty(1), np.empty(4), np.empty(1), np.empty(1, np.int64)
    planes = np.ascontiguousarray(x.reshape(2, 2, 3).transpose(0, 2, 1))
    gx, gplanes = np.full((4, 3, 1), np.nan), np.full((2, 3, 2), np.nan)
    for weighted, ignore in ((0, -100), (1, -100), (1, 1)):
        kept = target != ignore
        w = (weight[target] if weighted else np.ones(4)) * kept
        constants = target, weight, weighted, ignore
        expected = -w * x[np.arange(4), target]
        rows = np.zeros((4, 3))
        rows[np.arange(4), target] = -3 * w / w.sum()
        for given, grad in ((x.reshape(4, 3, 1), gx), (planes, gplanes)):
            loss.nll(out, each, norm_, bad, given, *constants, 1)
            close(each, expected)
            close(out, expected.sum() / w.sum())
            loss.nll_grad(grad, np.array([3.0]), norm_, *constants, 1)
        close(gx[..., 0], rows)
        close(gplanes.transpose(0, 2, 1).reshape(4, 3), rows)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [0, 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_planes_is_that_of_rows(dtype, weighted, smoothing):
    for b, c, p in ((2, 3, 5), (3, 4, 700), (1, 1, 1), (0, 2, 4), (2, 3, 0)):
        x, target = 3 * rand(b, c, p, dtype=dtype), np.random.default_rng(p).integers(0, c, b * p)
        target[::3] = -100
        weight, g = np.abs(rand(c, dtype=dtype)), rand(b * p, dtype=dtype)
        rows = np.ascontiguousarray(x.transpose(0, 2, 1)).reshape(b * p, c)
        for reduction in (0, 1, 2):
            constants, found = (target, weight, weighted, -100, smoothing, reduction), []
            for kernel, back, logits in (
                (loss.cross_entropy, loss.cross_entropy_grad, rows),
                (plane_loss.cross_entropy_of_planes, plane_loss.cross_entropy_of_planes_grad, x),
            ):
                out, norm_, bad = np.zeros(1, dtype), np.empty(1, dtype), np.empty(1, np.int64)
                each, lse, gx = (
                    np.empty(b * p, dtype),
                    np.empty(b * p, dtype),
                    np.empty_like(logits),
                )
                kernel(out, each, lse, norm_, bad, logits, *constants)
                back(gx, g if reduction == 0 else np.ones(1, dtype), logits, lse, norm_, *constants)
                found.append((out, each, lse, norm_, bad, gx))
            assert (found[0][4] == found[1][4]).all()
            turned = found[1][5].transpose(0, 2, 1).reshape(b * p, c)
            for ours, theirs in zip(
                (*found[1][:4], turned), (*found[0][:4], found[0][5]), strict=True
            ):
                close(ours, theirs, 100)


@pytest.mark.parametrize("wrong", [3, -1, -101, 2**62])
def test_target_out_of_range(wrong):
    x, weight, target = rand(4, 3), np.ones(3), np.array([0, 1, wrong, wrong])
    out, each, lse, norm_ = np.empty(1), np.empty(4), np.empty(4), np.empty(1)
    gx, bad = np.empty((4, 3)), np.empty(1, np.int64)
    for weighted in (0, 1):
        constants = target, weight, weighted, -100
        loss.cross_entropy(out, each, lse, norm_, bad, x, *constants, 0.1, 1)
        assert bad[0] == 2 and np.isnan(out[0]) and np.isnan(each[2]) and each[0] > 0
        loss.cross_entropy_grad(gx, out, x, lse, norm_, *constants, 0.1, 1)
        loss.nll(out, each, norm_, bad, x[..., None], *constants, 1)
        assert bad[0] == 2 and np.isnan(out[0])
        loss.nll_grad(gx[..., None], out, norm_, *constants, 1)
        places = np.ascontiguousarray(x.T)[None]
        plane_loss.cross_entropy_of_planes(
            *(out, each, lse, norm_, bad, places, *constants, 0.1, 1)
        )
        assert bad[0] == 2 and np.isnan(out[0]) and np.isnan(each[2]) and each[0] > 0
        plane_loss.cross_entropy_of_planes_grad(
            *(np.empty_like(places), out, places, lse, norm_, *constants, 0.1, 1)
        )
        loss.target_rows(gx, *constants, 0.1)
        assert (gx[2] == 0).all()


def test_all_ignored_is_nan():
    target, bad = np.full(2, -100), np.empty(1, np.int64)
    out, each, lse, norm_ = np.empty(1), np.empty(2), np.empty(2), np.empty(1)
    loss.cross_entropy(out, each, lse, norm_, bad, rand(2, 3), target, np.ones(3), 0, -100, 0.0, 1)
    assert np.isnan(out[0]) and (each == 0).all() and bad[0] == -1
