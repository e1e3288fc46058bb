"""Exactness that the op table's tolerances cannot see: neighbours, exponents, ends of ranges."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def numbers(dtype):
    """Random bits, powers of two, subnormals, and the ends of the range."""
    about = np.finfo(dtype)
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2 ** (8 * about.dtype.itemsize - 1), 5000)
    some = bits.astype(f"i{about.dtype.itemsize}").view(dtype)
    ends = [0, about.max, about.tiny, about.smallest_subnormal, about.tiny / about.eps, 1, np.inf]
    powers = np.ldexp(1.0, np.arange(-120, 120))
    small = np.arange(60) * np.float64(about.smallest_subnormal)
    positive = np.concatenate([some, np.array(ends), powers, small]).astype(dtype)
    return np.concatenate([positive, -positive])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nextafter_is_the_next_number(dtype):
    x = numbers(dtype)
    for y in (np.roll(x, 1), np.full_like(x, np.inf), np.full_like(x, -np.inf), np.zeros_like(x)):
        found = ng.nextafter(ng.tensor(x), ng.tensor(y)).numpy()
        np.testing.assert_array_equal(found, np.nextafter(x, y))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_frexp_is_exact(dtype):
    x = numbers(dtype)
    mantissa, exponent = np.frexp(x)
    found = ng.frexp(ng.tensor(x))
    np.testing.assert_array_equal(found.mantissa.numpy(), mantissa)
    np.testing.assert_array_equal(found.exponent.numpy(), np.where(np.isfinite(x), exponent, 0))
    finite = x[np.isfinite(x)]
    parts = ng.frexp(ng.tensor(finite))
    np.testing.assert_array_equal(ng.ldexp(*parts).numpy(), finite)


def test_ldexp_leaves_the_range_only_where_the_result_does():
    x = ng.tensor([2.0**-1000, 2.0**1000], dtype=ng.float64)
    assert ng.ldexp(x, ng.tensor([1100, -1100])).tolist() == [2.0**100, 2.0**-100]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ldexp_of_zero_and_infinity_stays(dtype):
    x = np.array([0.0, -0.0, np.inf, -np.inf, 0.0, np.inf], dtype)
    y = np.array([5000, 5000, -5000, -5000, -5000, 5000])
    found = ng.ldexp(ng.tensor(x), ng.tensor(y)).numpy()
    np.testing.assert_array_equal(found, np.ldexp(x, y))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(x))
    zero = ng.zeros(1, requires_grad=True)
    ng.ldexp(zero, ng.tensor([3])).sum().backward()
    assert zero.grad.item() == 8.0


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_gcd_of_the_least_number_is_not_negative(dtype):
    about = np.iinfo(dtype)
    least, most = ng.tensor(np.array([about.min, about.max], dtype))
    assert ng.gcd(most, least).item() == ng.gcd(least, most).item() == 1


def test_i0_at_infinity_is_infinitely_steep():
    x = ng.tensor([np.inf, -np.inf], requires_grad=True)
    ng.i0(x).sum().backward()
    assert x.grad.tolist() == [np.inf, -np.inf]


def test_the_first_powers_of_vander_are_ones():
    assert ng.linalg.vander(ng.tensor([np.inf, np.nan]))[:, 0].tolist() == [1.0, 1.0]


def test_nextafter_has_no_gradient():
    x = ng.ones(2, requires_grad=True)
    y = ng.nextafter(x, x + 1)
    with pytest.raises(ng.errors.GradError, match="nextafter: the derivative"):
        y.sum().backward()


def test_erfinv_has_all_digits_near_one():
    special = pytest.importorskip("scipy.special")
    x = 1 - np.geomspace(1e-15, 0.1, 300)
    found = ng.erfinv(ng.tensor(x)).numpy()
    np.testing.assert_allclose(found, special.erfinv(x), rtol=2e-15)
    assert ng.erfinv(ng.tensor([1.0, -1.0, 1.5])).tolist()[:2] == [np.inf, -np.inf]


def test_polygamma_at_its_poles():
    x = ng.tensor([0.0, -1.0, -2.0])
    assert ng.polygamma(1, x).tolist() == [np.inf] * 3
    assert ng.polygamma(2, x).tolist() == [-np.inf] * 3


def test_i0_of_infinity_is_infinite():
    """PyTorch and SciPy say NaN."""
    x = ng.tensor([np.inf, -np.inf, 800.0, np.nan], dtype=ng.float64)
    assert ng.i0(x).tolist()[:3] == [np.inf] * 3 and ng.isnan(ng.i0(x)[3])


def test_shift_operators():
    x = ng.tensor([1, -5])
    assert (x << 2).tolist() == [4, -20] and (x >> 1).tolist() == [0, -3]
    assert (2 << ng.tensor([3])).tolist() == [16] and (16 >> ng.tensor([3])).tolist() == [2]
    x <<= 1
    assert x.tolist() == [2, -10]
    x >>= 1
    assert x.tolist() == [1, -5]
    with pytest.raises(TypeError, match="not implemented for"):
        ng.ones(2) << 1
    with pytest.raises(TypeError):
        ng.tensor([1]) << "a"


def test_operators_of_bits_are_in_place():
    whole = ng.tensor([True, True, False, True])
    first, other = whole[:2], ng.tensor([False, True])
    held = first
    first &= other
    assert first is held and whole.tolist() == [False, True, False, True]
    first |= True
    first ^= other
    assert first is held and whole.tolist() == [True, False, False, True]
    number = ng.tensor([6, 5], dtype=ng.uint8)
    number ^= 3
    assert number.tolist() == [5, 6] and number.dtype is ng.uint8
    with pytest.raises(RuntimeError, match=r"bitwise_or_.*int64 can't be cast"):
        first |= ng.tensor([1, 2])
    assert whole.tolist() == [True, False, False, True]

    @ng.compile
    def narrow(mask, x):
        mask &= x > 0
        mask[1:] |= x[1:] > 2
        return x * mask

    mask, x = ng.ones(4, dtype=ng.bool), ng.tensor([1.0, -2.0, 3.0, 0.0])
    for _ in range(2):
        mask.fill_(True)
        assert narrow(mask, x).tolist() == [1.0, 0.0, 3.0, 0.0]
        assert mask.tolist() == [True, False, True, False]


def test_shifts_in_formulas():
    @ng.elementwise
    def doubled(x):
        return (x << 1) + (x >> 1)

    assert doubled.op.formula.body is not None
    assert str(doubled.op.formula).endswith("((x << 1) + (x >> 1))")


def test_rarer_arguments_are_refused_not_ignored():
    x = ng.eye(3)
    with pytest.raises(RuntimeError, match="ncompatible shapes"):
        ng.linalg.solve_ex(x, ng.ones(3), left=False)
    with pytest.raises(TypeError, match="float"):
        ng.hann_window(4.5)
    for name in ("cauchy_", "log_normal_"):
        with pytest.raises(RuntimeError, match=r"> 0\.0, but found"):
            getattr(ng.ones(2), name)(0.0, float("nan"))
    assert ng.scalar_tensor(np.float32(2)).item() == 2.0
