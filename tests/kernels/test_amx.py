"""Products on the matrix unit: every path, how near to the exact ones, and what it leaves alone."""

import itertools
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels import amx, product
from numbagrad.kernels.cpu import amx_product, tiled_product
from numbagrad.kernels.intrinsics import address, pointer

numba = pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(not amx.load_amx(), reason="no matrix unit, or not for us")

ROWS = (1, 7, 16, 17, 40)
COLUMNS = (1, 15, 16, 33, 63, 64, 65, 130)
DEPTHS = (1, 16, 31, 33, 129, 300)


@numba.njit
def by_amx(out, x, y, transx, transy, start, ldstart, parts):
    """``out = op(x) op(y) + start`` on slices of matrices whose rows have unit stride."""
    n, m = out.shape
    k = x.shape[0] if transx else x.shape[1]
    amx_product.by_amx(
        pointer(address(out), np.float32), transx, transy, n, m, k, address(x), x.strides[0] // 4,
        address(y), y.strides[0] // 4, start, ldstart, address(out), out.strides[0] // 4, parts,
    )  # fmt: skip


@numba.njit
def by_tiles(out, x, y):
    """``out = x y`` without the unit."""
    tiled_product.by_tiles(
        pointer(address(out), np.float32), 0, 0, out.shape[0], out.shape[1], x.shape[1], address(x),
        x.shape[1], address(y), y.shape[1], 0, 0, address(out), out.shape[1],
    )  # fmt: skip


@numba.njit
def packed_product(out, x, y, transy, start, room):
    """The product with y packed before."""
    n, m = out.shape
    to, k = pointer(address(out), np.float32), x.shape[1]
    place = (address(room) + 63) & -64
    product.gemm(to, amx.PACK, transy, 0, m, k, 0, 0, address(y), y.shape[1], 0, 0, place, 0)
    given = address(out) if start else 0
    product.gemm(to, 0, amx.PACKED, n, m, k, address(x), k, place, 0, given, m, address(out), m)


def numbers(rng, *shape):
    """A slice of a larger matrix, so that what lies around it can be looked at."""
    whole = rng.standard_normal((shape[0] + 2, shape[1] + 3)).astype(np.float32)
    return whole[1:-1, 1:-2]


def exact(x, y):
    return x.astype(np.float64) @ y.astype(np.float64)


def errors(got, x, y):
    """Of each number, over the sum of what its products are without signs."""
    sizes = np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
    return np.abs(got - exact(x, y)) / np.maximum(sizes, 1e-300)


@pytest.mark.parametrize(("transx", "transy"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_every_size_of_tile(transx, transy):
    rng = np.random.default_rng(7)
    for n, m, k in itertools.product(ROWS, COLUMNS, DEPTHS):
        x = numbers(rng, *((k, n) if transx else (n, k)))
        y = numbers(rng, *((m, k) if transy else (k, m)))
        row = rng.standard_normal(m).astype(np.float32)
        whole = np.full((n + 2, m + 3), 7, np.float32)
        out = whole[1:-1, 1:-2]
        first, second = (x.T if transx else x), (y.T if transy else y)
        expected = exact(first, second)
        most = (np.abs(first) @ np.abs(second)).max() + np.abs(row).max()
        limit = {"rtol": 0, "atol": 5e-7 * most}
        out[:] = np.nan
        by_amx(out, x, y, transx, transy, 0, 5, 3)
        np.testing.assert_allclose(out, expected, **limit)
        by_amx(out, x, y, transx, transy, out.ctypes.data, m + 3, 3)
        np.testing.assert_allclose(out, 2 * expected, **limit)
        by_amx(out, x, y, transx, transy, row.ctypes.data, 0, 3)
        np.testing.assert_allclose(out, expected + row, **limit)
        out[:] = 7
        assert (whole == 7).all(), (n, m, k)


def test_more_rows_than_are_split_at_once():
    rng = np.random.default_rng(9)
    n, m, k = 2 * amx_product.ROWS + 5, 70, 200
    x, y = numbers(rng, n, k), numbers(rng, k, m)
    out = np.full((n, m), np.nan, np.float32)
    by_amx(out, x, y, 0, 0, 0, 0, 3)
    assert errors(out, x, y).max() < 2e-7
    by_amx(out, x.T.copy(), y, 1, 0, 0, 0, 3)
    assert errors(out, x, y).max() < 2e-7


@pytest.mark.parametrize("k", [32, 128, 784, 4096])
@pytest.mark.parametrize("kind", ["of both signs", "positive", "of many sizes"])
def test_sums_are_nearer_to_the_exact_ones_than_those_of_float32_instructions(k, kind):
    rng = np.random.default_rng(k)
    x, y = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((64, k), (k, 64)))
    if kind == "positive":
        x, y = np.abs(x), np.abs(y)
    if kind == "of many sizes":
        x, y = (a * np.exp(rng.uniform(-20, 20, a.shape)).astype(np.float32) for a in (x, y))
    ours, plain = np.empty((64, 64), np.float32), np.empty((64, 64), np.float32)
    by_amx(ours, x, y, 0, 0, 0, 0, 3)
    by_tiles(plain, x, y)
    mine, theirs = errors(ours, x, y), errors(plain, x, y)
    assert (mine**2).mean() < 1.05 * (theirs**2).mean()
    assert mine.max() < 1.5 * theirs.max()


def test_products_of_single_numbers_are_right_to_the_last_bit_but_one():
    rng = np.random.default_rng(3)
    x = np.zeros((64, 64), np.float32)
    np.fill_diagonal(x, rng.standard_normal(64) * np.exp2(rng.integers(-20, 20, 64)))
    y = (rng.standard_normal((64, 64)) * np.exp2(rng.integers(-20, 20, (64, 64)))).astype("f4")
    out = np.empty_like(y)
    by_amx(out, x, y, 0, 0, 0, 0, 3)
    expected = exact(x, y)
    assert (np.abs(out - expected) <= np.spacing(np.abs(expected).astype(np.float32))).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 2.0**70, 1e-40])
@pytest.mark.parametrize("of_x", [True, False])
def test_what_the_unit_cannot_hold_is_multiplied_as_ever(value, of_x):
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((48, 160), (160, 80)))
    (x if of_x else y.T)[3, 150] = value
    ours, plain = np.empty((48, 80), np.float32), np.empty((48, 80), np.float32)
    by_amx(ours, x, y, 0, 0, 0, 0, 3)
    by_tiles(plain, x, y)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-12, 1e-15, 1e-18])
def test_small_numbers_keep_their_digits(scale):
    rng = np.random.default_rng(6)
    x, y = (rng.uniform(-scale, scale, s).astype(np.float32) for s in ((48, 160), (160, 80)))
    out = np.empty((48, 80), np.float32)
    by_amx(out, x, y, 0, 0, 0, 0, 3)
    sizes = np.abs(x).astype(float) @ np.abs(y).astype(float)
    assert (np.abs(out - exact(x, y)) <= 5e-7 * sizes + 1e-43).all()


@pytest.mark.parametrize(("transx", "transy"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("of_x", [True, False])
def test_tiny_numbers_spoil_none_beside_them(transx, transy, of_x):
    """What is left of them for the third part has more bits than that holds."""
    rng = np.random.default_rng(8)
    x, y = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((48, 160), (160, 80)))
    given, expected = (x if of_x else y.T), exact(x, y)
    for k in range(160):
        if k % 32 >= 10:  # in both halves of a step
            given[::2, k] *= np.float32(10.0 ** -(20 + k % 24))
    expected = exact(x, y)
    out = np.empty((48, 80), np.float32)
    first, second = (np.ascontiguousarray(a) for a in (x.T if transx else x, y.T if transy else y))
    by_amx(out, first, second, transx, transy, 0, 0, 3)
    assert errors(out, x, y).max() < 2e-7
    room = np.empty(_bytes(80, 160) // 4 + 16, np.float32)
    product.load_products(np.float32)
    packed_product(out, x, second, transy, 0, room)
    assert (np.abs(out - expected) <= 2e-7 * (np.abs(x) @ np.abs(y)) + 1e-37).all()


def test_probabilities_that_vanish():
    rng = np.random.default_rng(9)
    scores = rng.standard_normal((256, 256)).astype(np.float32) * 30
    p = np.exp(scores - scores.max(1, keepdims=True))
    values = rng.standard_normal((256, 64)).astype(np.float32)
    got = (ng.tensor(p) @ ng.tensor(values)).numpy()
    assert errors(got, p, values).max() < 4e-7


@pytest.mark.parametrize("scales", [(1e-40, 1e17), (1e-30, 1e30), (1e-35, 1.0), (0.0, 1.0)])
def test_scales_far_apart(scales):
    rng = np.random.default_rng(10)
    pair = zip(((64, 96), (96, 80)), scales, strict=True)
    x, y = ((rng.uniform(1, 2, s) * scale).astype(np.float32) for s, scale in pair)
    out = np.empty((64, 80), np.float32)
    by_amx(out, x, y, 0, 0, 0, 0, 3)
    sizes = np.abs(x).astype(float) @ np.abs(y).astype(float)
    assert (np.abs(out - exact(x, y)) <= 2e-6 * sizes + 1e-43).all()  # as by the tiles


def test_a_thread_of_a_short_stack():
    """Of 128 KB, which a product may not fill with its blocks."""
    x, found = ng.rand(300, 300), []
    expected = (x @ x).numpy()
    before = threading.stack_size(128 * 1024)
    try:
        thread = threading.Thread(target=lambda: found.append((x @ x).numpy()))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert (found[0] == expected).all()


@pytest.mark.parametrize("transy", [0, 1])
@pytest.mark.parametrize("n", [1, 5, 8, 16, 20])
def test_a_packed_factor(n, transy):
    product.load_products(np.float32)
    rng = np.random.default_rng(n)
    for m, k in itertools.product((1, 48, 100, 256), (5, 128, 300)):
        x = rng.standard_normal((n, k)).astype(np.float32)
        y = rng.standard_normal((m, k) if transy else (k, m)).astype(np.float32)
        out = np.full((n, m), np.nan, np.float32)
        room = np.empty(_bytes(m, k) // 4 + 16, np.float32)
        second = y.T if transy else y
        packed_product(out, x, y, transy, 0, room)
        assert errors(out, x, second).max() < 2e-7
        before = out.copy()
        packed_product(out, x, y, transy, 1, room)
        np.testing.assert_allclose(out, 2 * before, rtol=1e-6, atol=1e-5)
        y[0, 0] = np.inf
        plain = np.empty_like(out)
        packed_product(out, x, y, transy, 0, room)
        by_tiles(plain, x, np.ascontiguousarray(y.T if transy else y))
        np.testing.assert_allclose(out, plain, rtol=1e-5, atol=1e-4)


@numba.njit
def _bytes(m, k):
    return amx.packed_bytes(m, k)


def test_precision():
    rng = np.random.default_rng(1)
    x, y = (rng.uniform(-1, 1, (256, 256)).astype(np.float32) for _ in range(2))
    found = {}
    try:
        for level in ("highest", "high", "medium"):
            ng.set_float32_matmul_precision(level)
            found[level] = errors((ng.tensor(x) @ ng.tensor(y)).numpy(), x, y).max()
    finally:
        ng.set_float32_matmul_precision("highest")
    # Of 24, 16 and 8 bits.
    assert found["highest"] < 1e-7 < found["high"] < 1e-5 < found["medium"] < 1e-2


def on_each_number_of_threads(run):
    before = ng.get_num_threads()
    try:
        for threads in range(1, before + 1):
            ng.set_num_threads(threads)
            yield run()
    finally:
        ng.set_num_threads(before)


SIZES = [(700, 300, 500), (1024, 512, 128), (520, 1100, 130), (513, 70, 33), (600, 300, 129)]


def unusual(x, y, what):
    """Numbers that the unit leaves to tiles, in a part of the rows or columns."""
    if what == "nan":
        x[0, 0] = np.nan
    elif what == "large":
        x[-1, 3], y[5, 0] = 1e30, -1e25
    elif what == "small":
        x[: len(x) // 2] *= 1e-30
        y[40:90] *= 1e-25
    elif what == "none":
        x[16:200], x[7] = 0, 1e-41


@pytest.mark.parametrize("what", ["usual", "nan", "large", "small", "none"])
@pytest.mark.parametrize(("n", "m", "k"), SIZES)
def test_the_same_bits_for_any_number_of_threads(n, m, k, what):
    rng = np.random.default_rng(2)
    x, y, bias = (rng.standard_normal(s).astype(np.float32) for s in ((n, k), (m, k), (m,)))
    unusual(x, y, what)
    first, second, row = ng.from_numpy(x), ng.from_numpy(y), ng.from_numpy(bias)
    turned = first.t().contiguous().t(), second.t().contiguous().t()

    def run():
        products = [a @ b.t() for a in (first, turned[0]) for b in (second, turned[1])]
        return [p.numpy() for p in (*products, ng.nn.functional.linear(first, second, row))]

    expected, *others = on_each_number_of_threads(run)
    for each in others:
        for a, b in zip(expected, each, strict=True):
            np.testing.assert_array_equal(a, b)
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64) @ y.T.astype(np.float64)
        size = np.abs(x).astype(np.float64) @ np.abs(y.T).astype(np.float64)
    for got in expected[:4]:
        good = np.isfinite(exact) & (np.abs(exact) < 3e38)
        assert np.isfinite(got[good]).all() and not np.isfinite(got[np.isnan(exact)]).any()
        assert (np.abs(got - exact) <= 1e-6 * size + 1e-35)[good].all()


def test_blocks_that_would_be_too_small_for_the_unit():
    """As many blocks as threads would leave a last one for tiles, whose sums have other bits."""
    script = """
import numpy as np, numbagrad as ng
rng = np.random.default_rng(0)
for n, m, k, threads in [(60, 3310, 184, 12), (79, 652, 128, 5), (870, 127, 31, 6)]:
    x, y = (ng.tensor(rng.standard_normal(s).astype(np.float32)) for s in ((n, k), (k, m)))
    found = []
    for count in (1, threads):
        ng.set_num_threads(count)
        found.append((x @ y).numpy())
    assert (found[0] == found[1]).all(), (n, m, k)
"""
    told = {"NUMBA_NUM_THREADS": "12"}
    subprocess.run([sys.executable, "-c", script], env={**os.environ, **told}, check=True)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("n", [16, 21, 40])
def test_recurrent_layers_the_same_bits_for_any_number_of_threads(kind, n):
    """Of the last step alone, so that gradients vanish on the way to the first."""
    layer, x = getattr(ng.nn, kind)(64, 128), ng.randn(90, n, 64, requires_grad=True)
    with ng.no_grad():
        x[3, 1, 2] = np.inf
        for p in layer.parameters():
            p *= 0.5

    def run():
        layer.zero_grad()
        x.grad = None
        out, _ = layer(x)
        out[-1, 2:].square().sum().backward()
        return [a.numpy() for a in (out.detach(), x.grad, *[p.grad for p in layer.parameters()])]

    first, *others = on_each_number_of_threads(run)
    for each in others:
        for a, b in zip(first, each, strict=True):
            np.testing.assert_array_equal(a, b)


def test_several_threads_of_python_multiply_at_once():
    rng = np.random.default_rng(4)
    x, y = (ng.tensor(rng.standard_normal((200, 200)).astype(np.float32)) for _ in range(2))
    expected, wrong = (x @ y).numpy(), []

    def work():
        for _ in range(50):
            if not (x @ y).numpy().tobytes() == expected.tobytes():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


PROGRAM = """
import os, numpy as np, numbagrad as ng
from numbagrad.kernels import amx
rng = np.random.default_rng(0)
x, y = (rng.uniform(-1, 1, (128, 128)).astype(np.float32) for _ in range(2))
product = (ng.tensor(x) @ ng.tensor(y)).numpy()
child = os.fork()
if not child:
    os._exit(not (product == (ng.tensor(x) @ ng.tensor(y)).numpy()).all())
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(amx.load_amx(), np.abs(product - x.astype(float) @ y.astype(float)).max() < 1e-5)
"""


@pytest.mark.parametrize("wanted", ["0", "1"])
def test_it_can_be_left_alone_and_works_in_a_fork(wanted):
    environment = os.environ | {"NUMBAGRAD_AMX": wanted}
    run = [sys.executable, "-c", PROGRAM]
    told = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [str(wanted == "1"), "True"]
