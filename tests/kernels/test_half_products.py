"""Products of float16 and bfloat16: every path, in any layout, rounded once."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from walls import BEFORE_A_WALL

import numbagrad as ng
from numbagrad.kernels import amx, half_vectors, machine, product
from numbagrad.kernels.cpu.matmul import addmm, bmm, mm
from numbagrad.kernels.halves import BFLOAT16, FLOAT16, decoded, encoded
from numbagrad.kernels.intrinsics import address, pointer
from numbagrad.kernels.vectors import VECTOR_BYTES

numba = pytest.importorskip("numba")
native = pytest.mark.skipif(VECTOR_BYTES == 0, reason="this CPU multiplies float32 copies")
HALVES = [BFLOAT16, FLOAT16]
ROUNDS = {BFLOAT16: 2.0**-8, FLOAT16: 2.0**-11}
SIZES = [
    (1, 1, 1), (1, 5, 3), (2, 3, 4), (5, 7, 1), (1, 40, 40), (40, 40, 1), (1, 33, 100),
    (33, 17, 65), (13, 256, 31), (7, 511, 49), (64, 64, 64), (100, 300, 130), (9, 1, 70),
    (25, 1030, 48), (3, 200, 41), (12, 150, 9), (7, 600, 11),
]  # fmt: skip


def rand(*shape: int, dtype: Any) -> np.ndarray:
    return encoded(np.random.default_rng(sum(shape)).standard_normal(shape), dtype)


def blank(*shape: int, dtype: Any) -> np.ndarray:
    return encoded(np.full(shape, np.nan), dtype)


def exact(x: np.ndarray) -> np.ndarray:
    return decoded(x).astype(np.float64)


def close(found: np.ndarray, expected: np.ndarray, sizes: Any) -> None:
    """``found`` is ``expected`` rounded once to its dtype, after sums in float32 of products
    whose absolute values add up to ``sizes``."""
    error = np.abs(exact(found) - expected)
    limit = 1.01 * ROUNDS[found.dtype] * np.abs(expected) + 1e-6 * sizes + 2.0**-25
    assert (error <= limit).all(), (error - limit).max()


def sizes_of(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.abs(exact(x)) @ np.abs(exact(y))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("sizes", SIZES)
def test_mm_of_every_transpose(dtype: Any, sizes: tuple[int, int, int]) -> None:
    n, k, m = sizes
    x, y = rand(n, k, dtype=dtype), rand(k, m, dtype=dtype)
    expected, limit = exact(x) @ exact(y), sizes_of(x, y)
    for transx, transy in itertools.product((0, 1), (0, 1)):
        whole = encoded(np.full((n + 2, m + 3), 7), dtype)
        out = whole[1:-1, 1:-2]
        stored_x, stored_y = (x.T.copy() if transx else x), (y.T.copy() if transy else y)
        mm(out, stored_x, stored_y, transx, transy, 0)
        close(out, expected, limit)
        once = exact(out)
        mm(out, stored_x, stored_y, transx, transy, 1)
        close(out, expected + once, limit + np.abs(once))
        mm(out, stored_x.T, stored_y.T, 1 - transx, 1 - transy, 0)
        close(out, expected, limit)
        around = decoded(whole).copy()
        around[1:-1, 1:-2] = 7
        assert (around == 7).all()


def forms(x: np.ndarray) -> Any:
    """Matrices equal to ``x`` whose memory is laid out in other ways."""
    n, k = x.shape
    wide = np.zeros((2 * n, 3 * k + 1), x.dtype)
    wide[::2, 1::3] = x
    yield wide[::2, 1::3]
    rows = np.zeros((n, k + 5), x.dtype)
    rows[:, 2 : k + 2] = x
    yield rows[:, 2 : k + 2]
    yield np.asfortranarray(x)
    yield np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]


@pytest.mark.parametrize("dtype", HALVES)
def test_mm_of_any_strides(dtype: Any) -> None:
    x, y = rand(6, 7, dtype=dtype), rand(7, 35, dtype=dtype)
    for left, right in itertools.product(forms(x), forms(y)):
        out = blank(6, 35, dtype=dtype)
        mm(out, left, right, 0, 0, 0)
        close(out, exact(x) @ exact(y), sizes_of(x, y))
    same = np.broadcast_to(x[:1], (6, 7))
    out = blank(6, 35, dtype=dtype)
    mm(out, same, y, 0, 0, 0)
    close(out, exact(same) @ exact(y), sizes_of(same, y))


@pytest.mark.parametrize("dtype", HALVES)
def test_empty_products(dtype: Any) -> None:
    out, none = blank(3, 2, dtype=dtype), np.empty(0, dtype)
    mm(out, none.reshape(3, 0), none.reshape(0, 2), 0, 0, 0)
    assert (decoded(out) == 0).all()
    mm(none.reshape(0, 2), none.reshape(0, 3), rand(3, 2, dtype=dtype), 0, 0, 0)
    mm(none.reshape(2, 0), rand(2, 3, dtype=dtype), none.reshape(3, 0), 0, 0, 0)
    bias = rand(2, dtype=dtype)
    addmm(out, none.reshape(3, 0), none.reshape(2, 0), bias, 0, 1)
    assert (decoded(out) == decoded(bias)).all()
    batch = blank(2, 3, 4, dtype=dtype)
    bmm(batch, none.reshape(2, 3, 0), none.reshape(2, 0, 4), 0, 0)
    assert (decoded(batch) == 0).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_nan_and_inf_come_through(dtype: Any) -> None:
    for n, k, m in [(3, 2, 2), (3, 5, 40), (9, 33, 1), (1, 33, 50), (70, 600, 70)]:
        x, y = np.ones((n, k)), np.ones((k, m))
        x[0, -1] = np.nan
        if n > 2:
            x[1, k // 2], x[2, 0] = np.inf, -np.inf
        for transx, transy in itertools.product((0, 1), (0, 1)):
            left, right = (encoded(a, dtype) for a in (x.T if transx else x, y.T if transy else y))
            out = blank(n, m, dtype=dtype)
            mm(out, left, right, transx, transy, 0)
            assert np.isnan(decoded(out)[0]).all()
            if n > 2:
                assert (decoded(out)[1] == np.inf).all() and (decoded(out)[2] == -np.inf).all()
                assert (decoded(out)[3:] == k).all() or k > 256
    large = encoded(np.full((4, 8), 3e38 if dtype == BFLOAT16 else 60000), dtype)
    out = blank(4, 4, dtype=dtype)
    mm(out, large, large, 0, 1, 0)
    assert (decoded(out) == np.inf).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_addmm(dtype: Any) -> None:
    for n, k, m in SIZES:
        x, weight, bias = rand(n, k, dtype=dtype), rand(m, k, dtype=dtype), rand(m, dtype=dtype)
        expected = exact(x) @ exact(weight).T + exact(bias)
        limit = sizes_of(x, weight.T) + np.abs(exact(bias))
        out = blank(n, m, dtype=dtype)
        addmm(out, x, weight, bias, 0, 1)
        close(out, expected, limit)
        addmm(out, x.T.copy(), weight.T.copy(), np.repeat(bias, 2)[::2], 1, 0)
        close(out, expected, limit)


@pytest.mark.parametrize("dtype", HALVES)
def test_bmm(dtype: Any) -> None:
    for n, k, m in SIZES:
        x, y = rand(3, n, k, dtype=dtype), rand(3, k, m, dtype=dtype)
        expected, limit = exact(x) @ exact(y), sizes_of(x, y)
        out = blank(3, n, m, dtype=dtype)
        bmm(out, x, y, 0, 0)
        close(out, expected, limit)
        bmm(out, x.swapaxes(1, 2).copy(), y.swapaxes(1, 2).copy(), 1, 1)
        close(out, expected, limit)
        bmm(out, x, np.broadcast_to(y[:1], y.shape), 0, 0)
        close(out, exact(x) @ exact(y[:1]), sizes_of(x, y[:1]))


@pytest.mark.parametrize("dtype", HALVES)
def test_sums_are_rounded_once(dtype: Any) -> None:
    """What a half cannot hold beside a large number adds up, across blocks of the sum too."""
    k = 5000
    x, y = np.ones((2, k)), np.ones((k, 20))
    x[:, 0] = 2048
    out = blank(2, 20, dtype=dtype)
    mm(out, encoded(x, dtype), encoded(y, dtype), 0, 0, 0)
    assert (decoded(out) == decoded(encoded([k - 1 + 2048.0], dtype))).all()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "sizes", [(300, 130, 270), (1100, 600, 70), (70, 600, 1100), (1, 900, 900)]
)
def test_the_same_bits_on_any_number_of_threads(dtype: Any, sizes: tuple[int, int, int]) -> None:
    n, k, m = sizes
    x, y, bias = rand(n, k, dtype=dtype), rand(k, m, dtype=dtype), rand(m, dtype=dtype)
    before, found = machine.threads(), []
    try:
        for threads in (1, 2):
            machine.set_threads(min(threads, before))
            outs = [blank(n, m, dtype=dtype) for _ in range(3)]
            mm(outs[0], x, y, 0, 0, 0)
            mm(outs[1], x.T.copy(), y.T.copy(), 1, 1, 0)
            addmm(outs[2], x, y, bias, 0, 0)
            found.append([out.view(np.uint16) for out in outs])
    finally:
        machine.set_threads(before)
    for one, two in zip(*found, strict=True):
        assert np.array_equal(one, two)
    close(found[0][0].view(dtype), exact(x) @ exact(y), sizes_of(x, y))


@native
@pytest.mark.parametrize("dtype", HALVES)
def test_float32_results(dtype: Any) -> None:
    """``WIDE_OUT``: neither rounded nor begun with halves."""

    @numba.njit
    def multiply(like, out, x, y, start, ldstart, k):
        n, m = out.shape
        product.gemm(
            *(like, product.WIDE_OUT, 0, n, m, k, address(x), k, address(y), m),
            *(start, ldstart, address(out), m),
        )

    product.load_products(dtype)
    held = ng.kernels.half_type.half_type(dtype)

    @numba.njit
    def of_halves(out, x, y, start, ldstart, k):
        multiply(pointer(address(x), held), out, x, y, start, ldstart, k)

    rng = np.random.default_rng(0)
    for n, k, m in [(3, 5, 7), (40, 700, 100), (1, 50, 50), (50, 40, 1)]:
        x, y = rand(n, k, dtype=dtype), rand(k, m, dtype=dtype)
        row = rng.standard_normal(m).astype(np.float32)
        out = np.full((n, m), np.nan, np.float32)
        expected, limit = exact(x) @ exact(y), sizes_of(x, y)
        words = x.view(np.uint16), y.view(np.uint16)
        of_halves(out, *words, 0, 3, k)
        assert (np.abs(out - expected) <= 2e-6 * limit).all()
        of_halves(out, *words, out.ctypes.data, m, k)
        assert (np.abs(out - 2 * expected) <= 4e-6 * limit).all()
        of_halves(out, *words, row.ctypes.data, 0, k)
        assert (np.abs(out - expected - row) <= 2e-6 * (limit + np.abs(row))).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_beside_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind, theirs = getattr(ng, dtype), getattr(torch, dtype)
    rng = np.random.default_rng(0)
    for n, k, m in [(33, 70, 45), (1, 100, 64), (64, 31, 1), (200, 300, 100)]:
        x, y, bias = (rng.standard_normal(s).astype(np.float32) for s in ((n, k), (m, k), m))
        ours = [ng.tensor(a).to(kind) for a in (x, y, bias)]
        other = [torch.tensor(a).to(theirs) for a in (x, y, bias)]
        eps = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
        for got, expected in (
            (ours[0] @ ours[1].t(), other[0] @ other[1].t()),
            (ng.nn.functional.linear(*ours), torch.nn.functional.linear(*other)),
        ):
            a, b = got.float().numpy(), expected.float().numpy()
            np.testing.assert_allclose(a, b, rtol=2 * eps, atol=eps * k**0.5 / 16)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients(dtype: str) -> None:
    kind = getattr(ng, dtype)
    rng = np.random.default_rng(1)
    x, weight, bias = (
        ng.tensor(rng.standard_normal(s).astype(np.float32), dtype=kind, requires_grad=True)
        for s in ((2, 9, 30), (21, 30), 21)
    )
    ng.nn.functional.linear(x, weight, bias).backward(ng.ones(2, 9, 21, dtype=kind))
    wide = [a.detach().float().numpy().astype(float) for a in (x, weight)]
    np.testing.assert_allclose(
        x.grad.float().numpy(), np.broadcast_to(wide[1].sum(0), x.shape), rtol=1e-2, atol=1e-2
    )
    expected = np.broadcast_to(wide[0].sum((0, 1)), weight.shape)
    np.testing.assert_allclose(weight.grad.float().numpy(), expected, rtol=1e-2, atol=1e-2)
    assert bias.grad.tolist() == [18.0] * 21


def test_half_dtypes_do_not_take_each_others_code() -> None:
    x = np.full((2, 2), 1.5)
    for dtype in (BFLOAT16, FLOAT16, BFLOAT16):
        out = blank(2, 2, dtype=dtype)
        mm(out, encoded(x, dtype), encoded(x, dtype), 0, 0, 0)
        assert (decoded(out) == 4.5).all()
    out = blank(2, 2, dtype=BFLOAT16)
    mm(out, encoded(x, FLOAT16), encoded(x, BFLOAT16), 0, 0, 0)
    assert (decoded(out) == 4.5).all()


OTHERS = """
import numpy as np
from numbagrad.kernels import half_vectors, vectors
from numbagrad.kernels.cpu.matmul import addmm
from numbagrad.kernels.halves import BFLOAT16, FLOAT16, decoded, encoded
assert (vectors.VECTOR_BYTES, half_vectors.PAIRS, half_vectors.CONVERTS) == {told}
rng = np.random.default_rng(0)
for dtype, eps in ((BFLOAT16, 2.0**-8), (FLOAT16, 2.0**-11)):
    for n, k, m in [(13, 301, 37), (6, 8, 16), (140, 300, 70), (1, 50, 50), (9, 33, 1)]:
        x, y = (encoded(rng.standard_normal(s), dtype) for s in ((n, k), (m, k)))
        bias, out = encoded(rng.standard_normal(m), dtype), encoded(np.zeros((n, m)), dtype)
        wide = decoded(x).astype(float), decoded(y).astype(float).T
        expected = wide[0] @ wide[1] + decoded(bias)
        addmm(out, x, y, bias, 0, 1)
        limit = eps * np.abs(expected) + 1e-5 * k**0.5
        assert (np.abs(decoded(out) - expected) <= limit).all()
        addmm(out, x.T.copy(), y.T.copy(), bias, 1, 0)
        assert (np.abs(decoded(out) - expected) <= limit).all()
"""


@pytest.mark.parametrize(
    ("features", "told"),
    [
        ("+avx,+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512vl,+avx512dq", (64, False, True)),
        ("+avx,+avx2,+fma,+f16c", (32, False, True)),
        ("+avx,+avx2,+fma", (32, False, False)),
        ("+sse2", (0, False, False)),
    ],
    ids=["avx512", "f16c", "avx2", "sse2"],
)
def test_other_cpus(features: str, told: tuple[int, bool, bool]) -> None:
    from numbagrad.kernels.processor import features as own

    if not set(features.split(",")) <= own() | {"+sse2"}:
        pytest.skip("this CPU has not what that one has")
    environment = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(
        [sys.executable, "-c", OTHERS.format(told=told)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


GUARDED = (
    BEFORE_A_WALL
    + """
from numbagrad.kernels.cpu.matmul import mm
from numbagrad.kernels.halves import BFLOAT16, FLOAT16, decoded, encoded


rng = np.random.default_rng(0)
for dtype in (BFLOAT16, FLOAT16):
    for m in (1, 3, 15, 17, 31, 33, 47, 49, 63, 65, 100):
        for n, k in ((1, 6), (1, 33), (2, 7), (7, 40), (70, 5), (70, 1), (70, 64), (41, 150)):
            x, y = rng.standard_normal((n, k)), rng.standard_normal((k, m))
            for turnx in (0, 1):
                for turny in (0, 1):
                    left = before_a_wall(encoded(x.T if turnx else x, dtype))
                    right = before_a_wall(encoded(y.T if turny else y, dtype))
                    out = before_a_wall(encoded(np.zeros((n, m)), dtype))
                    mm(out, left, right, turnx, turny, 0)
                    np.testing.assert_allclose(decoded(out), x @ y, atol=0.3)
"""
)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mprotect")
@pytest.mark.parametrize("features", [None, "+avx,+avx2,+fma,+f16c"], ids=["own", "avx2"])
def test_nothing_beyond_a_matrix_is_touched(features: str | None) -> None:
    environment = {}
    if features:
        environment = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(
        [sys.executable, "-c", GUARDED],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(not amx.load_amx(), reason="needs a matrix unit that may be used")
@pytest.mark.parametrize("turnx", [0, 1])
@pytest.mark.parametrize("turny", [0, 1])
@pytest.mark.parametrize(
    "shape",
    [(16, 64, 128), (17, 130, 96), (8, 64, 512), (15, 300, 1030), (530, 70, 600), (33, 65, 777)],
)
def test_products_on_the_matrix_unit(shape: tuple[int, int, int], turnx: int, turny: int) -> None:
    """With all rows and words that are left over, a bias, and what is added to."""
    n, m, k = shape
    rng = np.random.default_rng(0)
    x, y, bias, more = (rng.standard_normal(s) for s in ((n, k), (k, m), (m,), (n, m)))
    left, right = (ng.from_numpy(a.T.copy() if t else a) for a, t in ((x, turnx), (y, turny)))
    left, right, bias, more = (
        a.to(ng.bfloat16) for a in (left, right, ng.from_numpy(bias), ng.from_numpy(more))
    )
    left, right = left.T if turnx else left, right.T if turny else right
    assert left.is_contiguous() != turnx and right.is_contiguous() != turny
    exact = left.double().numpy() @ right.double().numpy()
    limit = 2.0**-8 * abs(exact) + 1e-4 * np.sqrt(k)
    assert (abs((left @ right).double().numpy() - exact) <= limit).all()
    for start in (bias, more):
        out = ng.addmm(start, left, right).double().numpy()
        moved = exact + start.double().numpy()
        assert (abs(out - moved) <= limit + 2.0**-8 * (abs(moved) + 1)).all()


@pytest.mark.skipif(not amx.load_amx(), reason="needs a matrix unit that may be used")
def test_the_unit_rounds_otherwise_than_vectors() -> None:
    """So it is what multiplies, until it is told not to."""
    x, y = (ng.randn(*shape).to(ng.bfloat16) for shape in ((64, 1024), (1024, 512)))
    by_unit = (x @ y).float()
    amx.use_parts(0)
    try:
        by_vectors = (x @ y).float()
    finally:
        amx.use_parts(3)
    assert not ng.equal(by_unit, by_vectors)
    np.testing.assert_allclose(by_unit.numpy(), by_vectors.numpy(), rtol=2.0**-7, atol=1e-2)


@pytest.fixture
def medium() -> Any:
    if not half_vectors.PAIRS or amx.load_amx():
        pytest.skip("another unit multiplies, or none that is faster")
    ng.set_float32_matmul_precision("medium")
    yield
    ng.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("sizes", [(128, 131, 150), (300, 700, 64), (1, 900, 3000), (40, 33, 31)])
def test_factors_of_float32_rounded_to_bfloat16(sizes: tuple[int, int, int], medium: Any) -> None:
    """Large products are exactly those of the rounded factors, small ones of the given."""
    n, k, m = sizes
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((n, k), (k, m)))
    bias = rng.standard_normal(m).astype(np.float32)
    large = n >= 32 and n * k * m >= 1 << 21
    wide = [exact(encoded(a, BFLOAT16)) if large else a.astype(np.float64) for a in (x, y)]
    expected, limit = wide[0] @ wide[1], 1e-6 * (np.abs(wide[0]) @ np.abs(wide[1]) + 1)
    for turn_x, turn_y in itertools.product((False, True), (False, True)):
        left, right = (ng.tensor(a.T.copy()).t() if t else ng.tensor(a)
                       for a, t in ((x, turn_x), (y, turn_y)))  # fmt: skip
        assert (np.abs((left @ right).numpy() - expected) <= limit).all()
        found = ng.addmm(ng.tensor(bias), left, right).numpy()
        assert (np.abs(found - expected - bias) <= limit + 1e-6 * np.abs(bias)).all()
    x[0, 0] = np.nan
    assert np.isnan((ng.tensor(x) @ ng.tensor(y)).numpy()[0]).all()


def test_factors_of_float32_are_exact_again(medium: Any) -> None:
    x = ng.rand(200, 200) + 1
    rounded = x @ x
    ng.set_float32_matmul_precision("high")
    exactly = x @ x
    ng.set_float32_matmul_precision("highest")
    assert (exactly == x @ x).all() and (rounded != exactly).any()


def test_factors_are_rounded_before_anything_was_multiplied() -> None:
    if not half_vectors.PAIRS or amx.load_amx():
        pytest.skip("another unit multiplies, or none that is faster")
    text = """
import numbagrad as ng
ng.set_float32_matmul_precision("medium")
x = ng.rand(200, 200) + 1
first = x @ x
ng.set_float32_matmul_precision("highest")
assert (first != x @ x).any()
"""
    subprocess.run([sys.executable, "-c", text], check=True)


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16])
@pytest.mark.parametrize("sizes", [(3, 200, 41), (16, 130, 9), (1, 700, 33)])
def test_nothing_is_written_behind_few_rows(dtype, sizes):
    n, k, m = sizes
    x, weight = ng.randn(n, k).to(dtype), ng.randn(m, k).to(dtype)
    room = ng.full((n + 4, m), 7.0, dtype=dtype)
    ng.mm(x, weight.t(), out=room[:n])
    assert (room[n:] == 7.0).all()
    assert room[:n].float().allclose((x.float() @ weight.float().t()), 2e-2, 2e-1)
