"""Functions that bring their own code for vectors, and AVX-512's instructions among them."""

import os
import re
import subprocess
import sys

import numba
import numpy as np
import pytest
from numba import float32, float64, int32, types
from numba.core import serialize

from numbagrad.kernels.intrinsics import float32_bits, float64_bits, wide
from numbagrad.kernels.numba_compiler import KernelCompiler
from numbagrad.kernels.simd import lanes
from numbagrad.kernels.simd.decorators import OPTIONS, apart
from numbagrad.kernels.simd.opaque import rarely

BOTH = [np.float32, np.float64]
with_lanes = pytest.mark.skipif(not lanes.AVX512, reason="needs AVX-512")
OURS = {"error_model": "numpy", "fastmath": OPTIONS["fastmath"]}


def loops(function, arguments=1):
    """A loop over arrays, compiled by our own pipeline and by Numba's alone, and with vectors of
    the length that LLVM likes and with the longest."""

    def of_one(out, x):
        for i in range(out.shape[0]):
            out[i] = function(x[i])

    def of_one_wide(out, x):
        for i in range(out.shape[0]):
            wide()
            out[i] = function(x[i])

    def of_two(out, x, y):
        for i in range(out.shape[0]):
            out[i] = function(x[i], y[i])

    texts = [of_one, of_one_wide] if arguments == 1 else [of_two]
    for text in texts:
        yield numba.njit(**OURS, pipeline_class=KernelCompiler)(text)
        yield numba.njit(**OURS)(text)


def roots(dtype):
    rng = np.random.default_rng(0)
    info = np.finfo(dtype)
    x = 2.0 ** rng.uniform(info.minexp - 20, info.maxexp, 40000)
    whole = rng.integers(1, 2 ** (info.nmant // 2), 5000).astype(np.float64)
    near = np.concatenate([whole * whole, np.nextafter(whole * whole, 0), rng.uniform(1, 4, 20000)])
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, info.tiny, info.max, info.eps]
    special += [float(info.smallest_subnormal)]
    return np.concatenate([x, near, special]).astype(dtype)


@with_lanes
@pytest.mark.parametrize("dtype", BOTH)
def test_roots_are_rounded_as_by_the_instruction(dtype):
    x = roots(dtype)
    with np.errstate(invalid="ignore"):
        exact = np.sqrt(x)
    for kernel in loops(lanes.root[numba.from_dtype(np.dtype(dtype))]):
        out = np.empty_like(x)
        kernel(out, x)
        np.testing.assert_array_equal(out, exact)
        assert np.signbit(out[np.signbit(x) & (x == 0)]).all()


@with_lanes
@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("size", [0, 1, 3, 7, 16, 31, 100])
def test_every_element_of_a_loop_is_reached(size, dtype):
    """Whole vectors, shorter ones behind them, and single numbers."""
    x = np.linspace(0.5, 4, size, dtype=dtype)
    for kernel in loops(lanes.root[numba.from_dtype(np.dtype(dtype))]):
        out = np.full(size + 1, -7, dtype)
        kernel(out[:size], x)
        np.testing.assert_array_equal(out, [*np.sqrt(x), -7])


@with_lanes
@pytest.mark.parametrize("dtype", BOTH)
def test_numbers_are_taken_apart_and_scaled(dtype):
    of = numba.from_dtype(np.dtype(dtype))
    exponent, mantissa, scaled = lanes.exponent[of], lanes.mantissa[of], lanes.scaled[of]
    x = abs(roots(dtype))
    x = x[(x > 0) & (x < np.inf)]
    out, power = np.empty_like(x), np.empty_like(x)
    for one, kernel, other in zip(
        loops(mantissa), loops(exponent), 2 * [*loops(scaled, 2)], strict=True
    ):
        one(out, x)
        kernel(power, x)
        fraction, e = np.frexp(x)
        np.testing.assert_array_equal(out, 2 * fraction)
        np.testing.assert_array_equal(power, e - 1)
        other(out, out, power + dtype(0.75))
        np.testing.assert_array_equal(out, x)
    edges = np.array([0, -0.0, np.inf, -1, np.nan], dtype)
    for one, kernel in zip(loops(mantissa), loops(exponent), strict=True):
        out, power = np.empty_like(edges), np.empty_like(edges)
        one(out, edges)
        kernel(power, edges)
        np.testing.assert_array_equal(out, [1, -1, 1, np.nan, np.nan])
        np.testing.assert_array_equal(power[:3], [-np.inf, -np.inf, np.inf])


@with_lanes
@pytest.mark.parametrize("of, count", [(float32, 16), (float32, 32), (float64, 16)])
def test_tables_are_read_by_the_lowest_bits(of, count):
    values = np.random.default_rng(count).standard_normal(count).astype(str(of)).tolist()
    read = lanes.lookup(f"test_{of}_{count}", of, lambda: values)
    bits = float64_bits if of is float64 else float32_bits
    whole = types.int64 if of is float64 else int32

    @numba.njit(inline="always")
    def function(x):
        return read(whole(bits(x)))

    width = np.int64 if of is float64 else np.int32
    index = np.random.default_rng(0).integers(0, 1 << 30, 1000).astype(width)
    for kernel in loops(function):
        out = np.empty(1000, str(of))
        kernel(out, index.view(str(of)))
        np.testing.assert_array_equal(out, np.array(values, str(of))[index % count])


@with_lanes
def test_of_sixteen_polynomials_one_is_taken():
    rows = np.random.default_rng(0).standard_normal((16, 5))
    curve = lanes.curves("test", float64, rows.tolist)

    @numba.njit(inline="always")
    def function(x):
        return curve(x, float64_bits(x))

    x = np.random.default_rng(1).uniform(-1, 1, 1000)
    for kernel in loops(function):
        out = np.empty(1000)
        kernel(out, x)
        exact = [
            np.polyval(rows[k][::-1], v) for k, v in zip(x.view(np.int64) % 16, x, strict=True)
        ]
        np.testing.assert_allclose(out, exact, rtol=0, atol=4e-15)


@apart
def _hundred(x):
    return x * 100.0


_seldom = rarely("test_hundred", _hundred)


@numba.njit(inline="always")
def _with_a_branch(x):
    out = x + 1.0
    if x > 2.0:
        out = _seldom(x)
    return out


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("most", [1.0, 2.5, 9.0])
def test_what_is_rare_is_done_for_whom_it_is_meant(most, dtype):
    x = np.random.default_rng(0).uniform(-1, most, 101).astype(dtype)
    for kernel in loops(_with_a_branch):
        out = np.empty_like(x)
        kernel(out, x)
        np.testing.assert_array_equal(
            out, np.where(x > 2, np.float64(x) * 100, x + 1.0).astype(dtype)
        )


@with_lanes
def test_our_pipeline_leaves_no_call_and_numbas_does():
    ours, plain = list(loops(lanes.root[float64]))[:2]
    called = re.compile(r"\$numbagrad\.root_float64")
    for kernel in (ours, plain):
        kernel(np.ones(3), np.ones(3))
    assert not called.search(*ours.inspect_asm().values())
    assert called.search(*plain.inspect_asm().values())


WITHOUT_AVX = """
from numbagrad.kernels.simd.lanes import AVX512
import numbagrad as ng
import numpy as np
assert not AVX512
x = np.linspace(0.1, 9, 1001)
for dtype in (np.float32, np.float64):
    for name in "exp log sin sqrt erf tan".split():
        out = getattr(ng, name)(ng.from_numpy(x.astype(dtype))).numpy()
        import scipy.special
        exact = getattr(scipy.special if name == "erf" else np, name)(x.astype(dtype))
        np.testing.assert_allclose(out, exact, rtol=4 * np.finfo(dtype).eps)
"""


def test_numba_may_be_told_to_do_without_avx():
    """LLVM would end the process where it is asked for an instruction that it must not use."""
    environment = {**os.environ, "NUMBA_ENABLE_AVX": "0"}
    done = subprocess.run([sys.executable, "-c", WITHOUT_AVX], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_an_intrinsic_can_be_pickled_once_it_has_been_compiled():
    """As Numba's own: a user's cached function may hold one."""
    assert float64_bits._numba_type_
    again = serialize.loads(serialize.dumps(float64_bits))
    call = numba.njit(lambda x: again(x))
    assert call(1.0) == 0x3FF0000000000000
