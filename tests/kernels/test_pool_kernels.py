"""Windows beside one another, a vector at a time: every rest, distance and kind of number."""

import itertools

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import ShapeError
from numbagrad.ops import pool

F = ng.nn.functional


def slow_max_pool(x, size, stride, padding, dilation):
    """Values and places of a plane (h, w), looked through in order."""
    columns = x.shape[1]
    axes = [
        [
            [i for t in range(k) if 0 <= (i := start * s - p + t * d) < n]
            for start in range((n + 2 * p - d * (k - 1) - 1) // s + 1)
        ]
        for n, k, s, p, d in zip(x.shape, size, stride, padding, dilation, strict=True)
    ]
    values = np.empty([len(a) for a in axes], x.dtype)
    places = np.empty(values.shape, np.int64)
    for (i, rows), (j, cols) in itertools.product(*map(enumerate, axes)):
        best, at = x[rows[0], cols[0]], rows[0] * columns + cols[0]
        for row, col in itertools.product(rows, cols):
            if x[row, col] > best or x[row, col] != x[row, col]:
                best, at = x[row, col], row * columns + col
        values[i, j], places[i, j] = best, at
    return values, places


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "size,stride,padding,dilation",
    [
        ((2, 2), (2, 2), (0, 0), (1, 1)),
        ((3, 3), (2, 2), (1, 1), (1, 1)),
        ((2, 3), (1, 1), (0, 1), (1, 1)),
        ((2, 2), (1, 3), (0, 0), (2, 2)),
        ((1, 4), (3, 5), (0, 2), (1, 2)),
    ],
)
def test_max_pool_of_every_width(dtype, size, stride, padding, dilation):
    rng = np.random.default_rng(0)
    for columns in range(8, 75):
        x = rng.integers(-3, 4, (2, 7, columns)).astype(dtype)  # many are equal
        x[1][rng.random(x[1].shape) < 0.2] = -np.inf
        x[1][rng.random(x[1].shape) < 0.02] = np.nan
        got = F.max_pool2d(ng.tensor(x), size, stride, padding, dilation, return_indices=True)
        for plane in range(2):
            expected = slow_max_pool(x[plane], size, stride, padding, dilation)
            for one, other in zip(got, expected, strict=True):
                np.testing.assert_array_equal(one[plane].numpy(), other, err_msg=f"{columns}")


def slow_avg_pool(x, g, size, stride, padding, ceil):
    """Means of a plane (h, w), padding counted, and their gradient: of each line of windows what
    they give to one of its rows, then the lines."""
    axes = []
    for n, k, s, p in zip(x.shape, size, stride, padding, strict=True):
        count = -(-(n + 2 * p - k) // s) + 1 if ceil else (n + 2 * p - k) // s + 1
        count -= (count - 1) * s >= n + p
        starts = [i * s - p for i in range(count)]
        axes.append([(max(0, a), min(n, a + k), min(a + k, n + p) - a) for a in starts])
    out, gx = np.empty([len(a) for a in axes], x.dtype), np.zeros_like(x)
    for i, (top, bottom, high) in enumerate(axes[0]):
        line = np.zeros_like(gx[0])
        for j, (left, right, wide) in enumerate(axes[1]):
            out[i, j] = x[top:bottom, left:right].sum() / x.dtype.type(high * wide)
            line[left:right] += g[i, j] / x.dtype.type(high * wide)
        gx[top:bottom] += line
    return out, gx


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(
    "size,stride,padding",
    [
        ((2, 2), (2, 2), (0, 0)),
        ((3, 3), (1, 1), (1, 1)),
        ((3, 5), (2, 2), (1, 2)),
        ((1, 4), (3, 5), (0, 2)),
        ((7, 8), (7, 8), (0, 4)),
    ],
)
def test_avg_pool_of_every_width(dtype, ceil, size, stride, padding):
    rng = np.random.default_rng(0)
    for columns in range(8, 75):
        x = rng.integers(-9, 10, (2, 7, columns)).astype(dtype)
        given = ng.tensor(x, requires_grad=True)
        y = F.avg_pool2d(given, size, stride, padding, ceil)
        g = rng.integers(-9, 10, y.shape).astype(dtype)
        y.backward(ng.tensor(g))
        for plane in range(2):
            out, gx = slow_avg_pool(x[plane], g[plane], size, stride, padding, ceil)
            np.testing.assert_array_equal(y.detach()[plane].numpy(), out, err_msg=f"{columns}")
            np.testing.assert_array_equal(given.grad[plane].numpy(), gx, err_msg=f"{columns}")


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("sizes", [(5, 9), (13, 16), (4, 31), (6, 40)])
def test_a_weights_gradient_that_is_summed_turned(groups, sizes):
    """Many channels out are summed as columns, few as rows: the same sums."""
    ng.manual_seed(0)
    few, many = 8, 16 * groups
    x = ng.randn(3, 2 * groups, *sizes, dtype=ng.float64)
    weight = ng.randn(many, 2, 3, 3, dtype=ng.float64, requires_grad=True)
    out = F.conv2d(x, weight, padding=1, groups=groups)
    g = ng.randn(*out.shape, dtype=ng.float64)
    out.backward(g)
    for first in range(0, many, few):
        group = first // (many // groups)
        part = weight.detach()[first : first + few].clone().requires_grad_()
        out = F.conv2d(x[:, 2 * group : 2 * group + 2].contiguous(), part, padding=1)
        out.backward(g[:, first : first + few].contiguous())
        assert ng.allclose(part.grad, weight.grad[first : first + few], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64, ng.bfloat16])
@pytest.mark.parametrize("n, groups, channels, out", [(1, 1, 40, 20), (3, 2, 17, 4), (70, 1, 3, 5)])
def test_a_weights_gradient_is_shared_by_images_or_channels(n, groups, channels, out, dtype):
    ng.manual_seed(0)
    x = ng.randint(-3, 4, (n, groups * channels, 5, 6)).to(dtype)
    weight = ng.randint(-3, 4, (groups * out, channels, 2, 3)).to(dtype).requires_grad_()
    y = F.conv2d(x, weight, groups=groups)
    g = ng.randint(-1, 2, y.shape).to(dtype)
    y.backward(g)
    parts = g.double().chunk(groups, 1), x.double().chunk(groups, 1)
    for tall, wide in itertools.product(range(2), range(3)):
        each = [
            ng.einsum("nohw,nchw->oc", one, other[:, :, tall : tall + 4, wide : wide + 4])
            for one, other in zip(*parts, strict=True)
        ]
        assert weight.grad[:, :, tall, wide].tolist() == ng.cat(each).to(dtype).tolist()


@pytest.mark.parametrize("kernel", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
def test_columns_of_every_width(kernel, padding):
    """Copied, and added back: for each element the windows that it is in."""
    for columns in range(kernel, 41):
        x = ng.arange(5.0 * columns).reshape(1, 1, 5, columns)
        moves = {"kernel_size": kernel, "padding": padding}
        padded = np.pad(x.numpy()[0, 0], padding)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel))
        expected = windows.transpose(2, 3, 0, 1).reshape(kernel * kernel, -1)
        unfolded = F.unfold(x, **moves)
        np.testing.assert_array_equal(unfolded[0].numpy(), expected)
        counts = F.fold(ng.ones_like(unfolded), (5, columns), **moves)
        again = F.fold(unfolded, (5, columns), **moves)
        np.testing.assert_array_equal(again.numpy(), (counts * x).numpy())


def test_a_window_of_too_many_elements_is_refused(monkeypatch):
    monkeypatch.setattr(pool, "LONGEST", 16)
    x = ng.arange(30.0).reshape(1, 5, 6)
    assert F.max_pool2d(x, 3).tolist() == [[[14.0, 17.0]]]  # 15 elements from first to last
    for call in (lambda: F.max_pool2d(x, (3, 4)), lambda: F.adaptive_max_pool2d(x, 1)):
        with pytest.raises(ShapeError, match=r"max_pool: a window spans .* 15 at most"):
            call()


@pytest.mark.parametrize(
    ("rank", "size", "kwargs"),
    [
        (1, (1,), {"kernel_size": 2, "padding": 1, "dilation": 2}),
        (2, (1, 3000), {"kernel_size": (2, 1), "stride": 1, "padding": (1, 0), "dilation": (2, 1)}),
        (2, (5, 2), {"kernel_size": (3, 2), "stride": 1, "padding": (1, 2), "dilation": (1, 4)}),
    ],
)
def test_a_window_of_nothing_but_padding_is_refused(rank, size, kwargs):
    """Its largest element has no place: a gradient would go beside the array."""
    pool = getattr(ng.nn.functional, f"max_pool{rank}d")
    with pytest.raises(ShapeError, match=f"max_pool{rank}d: window . along dim -. holds no"):
        pool(ng.ones(1, 1, *size), **kwargs)
