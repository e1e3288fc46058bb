"""Gamma, Poisson and binomial kernels: no dependence on threads, distributions, accuracy, edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

import numbagrad as ng
from numbagrad.errors import DTypeError
from numbagrad.kernels.cpu import draws as kernels
from numbagrad.ops.normal_quantile import erfinv, ndtri
from numbagrad.ops.sampling import draw_binomial, draw_poisson, standard_gamma


def state(seed=7, offset=0):
    return np.array([seed, offset], np.int64)


SHAPES = np.tile([0.02, 0.3, 1.0, 7.0, 300.0], 200)
DRAWS = {
    "gamma": (kernels.standard_gamma, (SHAPES,), (False,)),
    "gamma-logarithm": (kernels.standard_gamma, (SHAPES,), (True,)),
    "poisson": (kernels.poisson, (SHAPES,), ()),
    "binomial": (kernels.binomial, (np.floor(SHAPES) + 9, SHAPES / 301), ()),
}


@pytest.mark.parametrize("name", DRAWS)
def test_an_element_depends_on_seed_offset_and_place_only(name):
    kernel, inputs, scalars = DRAWS[name]
    whole, threaded = np.empty(1000), np.empty(1000)
    kernel.serial(whole, *inputs, state(), *scalars)
    kernel.parallel(threaded, *inputs, state(), *scalars)
    assert np.array_equal(whole, threaded)
    part = np.empty(50)
    some = [x[10:60].copy() for x in inputs]
    kernel.serial(part, *some, state(offset=10), *scalars)
    assert np.array_equal(part, whole[10:60])
    narrow = np.empty(1000, np.float32)
    kernel.serial(narrow, *inputs, state(), *scalars)
    tiny = 0 if name != "gamma" else np.finfo(np.float32).tiny
    np.testing.assert_allclose(narrow, np.maximum(whole, tiny or -np.inf), rtol=1e-6)


@pytest.mark.parametrize("a", [0.01, 0.3, 0.999, 1.0, 1.5, 20.0, 1e4, 1e8])
def test_gamma(a):
    x, y = np.empty(50_000), np.empty(50_000)
    kernels.standard_gamma.serial(x, np.full_like(x, a), state(3), False)
    kernels.standard_gamma.serial(y, np.full_like(x, a), state(4), True)
    for drawn in (x, np.exp(y)):
        assert stats.kstest(drawn, stats.gamma(a).cdf).pvalue > 1e-4


def chance_of_counts(x, law):
    """The p-value of chi square, over at most 40 cells that expect enough."""
    edges = np.unique(np.round(np.linspace(*law.ppf([1e-3, 1 - 1e-3]), 40)))
    expected = np.diff([0, *law.cdf(edges), 1]) * len(x)
    seen = np.histogram(x, [-1, *edges + 0.5, np.inf])[0]
    some = expected > 5
    return stats.chisquare(seen[some], expected[some] * seen[some].sum() / expected[some].sum())


@pytest.mark.parametrize("rate", [0.02, 1.0, 9.99, 10.0, 33.3, 1e3, 1e6])
def test_poisson(rate):
    x = np.empty(200_000)
    kernels.poisson.serial(x, np.full_like(x, rate), state(5))
    law = stats.poisson(rate)
    assert chance_of_counts(x, law).pvalue > 1e-4
    assert abs(x.mean() - rate) < 5 * (rate / len(x)) ** 0.5


@pytest.mark.parametrize("n", [1, 19, 21, 100, 5000, 10**7])
@pytest.mark.parametrize("p", [1e-3, 0.37, 0.5, 0.97])
def test_binomial(n, p):
    x = np.empty(200_000)
    kernels.binomial.serial(x, np.full_like(x, n), np.full_like(x, p), state(6))
    law = stats.binom(n, p)
    if law.std() > 0.5:
        assert chance_of_counts(x, law).pvalue > 1e-4
    assert abs(x.mean() - law.mean()) < 5 * law.std() / len(x) ** 0.5 + 1e-12
    assert x.min() >= 0 and x.max() <= n


def test_what_is_no_parameter_gives_nan():
    bad = np.array([-1.0, np.nan, np.inf])
    for kernel in (kernels.standard_gamma, kernels.poisson, kernels.binomial):
        out = np.zeros(3)
        inputs = (np.ones(3), bad) if kernel is kernels.binomial else (bad,)
        kernel(out, *inputs, state(), *((False,) if kernel is kernels.standard_gamma else ()))
        assert np.isnan(out).all()
    out = np.zeros(3)
    kernels.standard_gamma_grad(out, bad[:2].repeat(2)[:3], np.ones(3), False)
    assert np.isnan(out).all()
    kernels.gammainc(out, np.array([-1.0, 1.0, np.nan]), np.array([1.0, -1.0, 1.0]), False)
    assert np.isnan(out).all()
    kernels.gammainc(out, np.array([1.0, 1.0, 0.0]), np.array([0.0, np.inf, 1.0]), False)
    assert out.tolist() == [0, 1, 1]


def test_halves_by_way_of_float32():
    ng.manual_seed(0)
    rate = ng.full((1000,), 4.0, dtype=ng.bfloat16)
    for x in (standard_gamma(rate), draw_poisson(rate), draw_binomial(rate, rate / 8)):
        assert x.dtype is ng.bfloat16 and 1 < x.float().mean().item() < 5


# -- the functions of the gamma distribution -------------------------------------------------------


def places(seed=0, count=3000):
    """Shapes and quantiles, spread over all that meets the regimes and their borders."""
    random = np.random.default_rng(seed)
    a = np.exp(random.uniform(np.log(1e-3), np.log(1e5), count))
    few = count // 10
    a[:few] = random.uniform(55, 65, few)
    u = random.choice([0, 1, 2], count)
    tail = 10 ** -random.uniform(0, 9, count)
    u = np.where(u == 0, random.uniform(0, 1, count), np.where(u == 1, tail, 1 - tail))
    x = special.gammaincinv(a, u)
    some = x > 1e-200
    return a[some], x[some]


def test_the_incomplete_gamma_function():
    a, x = places()
    out = np.empty_like(a)
    kernels.gammainc(out, a, x, False)
    np.testing.assert_allclose(out, special.gammainc(a, x), rtol=1e-9)


def test_how_gamma_numbers_move_with_their_shape():
    """Against differences of SciPy's function, which are good to a few digits less."""
    a, x = places(1)
    out = np.empty_like(a)
    kernels.standard_gamma_grad(out, a, x, False)
    h = 1e-4 * np.minimum(a, 1 + a**0.5)

    def distribution(s):
        upper = x > a  # the smaller of the two has more digits
        return np.where(upper, -special.gammaincc(s, x), special.gammainc(s, x))

    def slope(h):
        return (distribution(a + h) - distribution(a - h)) / (2 * h)

    density = np.exp((a - 1) * np.log(x) - x - special.gammaln(a))
    expected = -(4 * slope(h) - slope(2 * h)) / 3 / density
    some = np.isfinite(expected) & (density > 1e-250)
    error = np.abs(out / expected - 1)[some]
    assert np.quantile(error, 0.98) < 1e-6 and error.max() < 1e-4
    logs = np.empty_like(a)
    kernels.standard_gamma_grad(logs, a, np.log(x), True)
    np.testing.assert_allclose(logs * x, out, rtol=1e-9)


@pytest.mark.peer
def test_how_gamma_numbers_move_to_high_precision():
    """Against the series in 60 digits and more: it converges everywhere, only slowly."""
    mp = pytest.importorskip("mpmath")
    a, x = places(2, 200)
    out = np.empty_like(a)
    kernels.standard_gamma_grad(out, a, x, False)
    for shape, z, got in zip(a, x, out, strict=True):
        if shape > 3000:
            continue
        with mp.workdps(60 + int(min(z, 600))):
            s, t = mp.mpf(float(shape)), mp.mpf(float(z))
            ahead, term, n = mp.digamma(s + 1) - mp.log(t), 1 / s, 1
            total = term * ahead
            while n < z - shape or term > mp.mpf(10) ** -50 * abs(total):
                term *= t / (s + n)
                ahead += 1 / (s + n)
                total += term * ahead
                n += 1
            assert got == pytest.approx(float(t * total), rel=1e-9)


def test_a_logarithm_that_no_float_is_the_exponential_of():
    """For z near 0 the derivative of log z is (psi(a + 1) - log z) / a."""
    out = np.empty(1)
    kernels.standard_gamma_grad(out, np.array([0.01]), np.array([-5000.0]), True)
    assert out[0] == pytest.approx((special.digamma(1.01) + 5000) / 0.01, rel=1e-12)


def test_normal_quantiles():
    p = np.array([*np.linspace(0.001, 0.999, 997), *10.0 ** -np.arange(1, 300, 7), 0, 1, -0.5])
    found = ndtri(ng.tensor(p)).numpy()
    np.testing.assert_allclose(found, special.ndtri(p), rtol=2e-15, atol=1e-17)
    y = np.array([*np.linspace(-0.999, 0.999, 998), 1e-300, 1 - 1e-15, -1, 1, 1.5])
    np.testing.assert_allclose(erfinv(ng.tensor(y)).numpy(), special.erfinv(y), rtol=2e-15)
    single = np.linspace(0.001, 0.999, 998, dtype=np.float32)
    np.testing.assert_allclose(
        ndtri(ng.tensor(single)).numpy(), special.ndtri(single.astype(float)), rtol=1e-6
    )
    for function, points in ((ndtri, [0.01, 0.3, 0.9]), (erfinv, [-0.9, 0.1, 0.95])):
        x = ng.tensor(points, dtype=ng.float64, requires_grad=True)
        assert ng.autograd.gradcheck(function, (x,)) and ng.autograd.gradgradcheck(function, (x,))
    assert math.isnan(erfinv(ng.tensor(2.0)).item())


@pytest.mark.parametrize("rate", [1.01e6, 1e12, 1e18, 1e22, 1e24])
def test_counts_that_no_integer_holds(rate):
    """Normal but for their rounding: of a mean of 1e19 they were negative."""
    x = np.empty(50_000)
    kernels.poisson.serial(x, np.full_like(x, rate), state(8))
    assert stats.kstest((x - rate) / rate**0.5, "norm").statistic < 0.01
    for p in (0.5, 0.8):
        kernels.binomial.serial(x, np.full_like(x, rate), np.full_like(x, p), state(9))
        z = (x - rate * p) / (rate * p * (1 - p)) ** 0.5
        assert stats.kstest(z, "norm").statistic < 0.01


@pytest.mark.parametrize(("n", "mean"), [(1e15, 1e3), (1e18, 1e5), (1e22, 1e9)])
def test_few_of_many_are_poisson_counts(n, mean):
    x = np.empty(50_000)
    kernels.binomial.serial(x, np.full_like(x, n), np.full_like(x, mean / n), state(10))
    assert chance_of_counts(x, stats.poisson(mean)).pvalue > 1e-4
    assert abs(x - mean).max() < 6 * mean**0.5


def test_the_incomplete_gamma_function_of_large_shapes():
    a = np.array([1e8, 1e12, 1e20, 1e38, 1e300, np.inf])
    out = np.empty_like(a)
    kernels.gammainc(out, a, np.minimum(a, 1e300), False)
    np.testing.assert_allclose(out, [0.5 + 1.33e-5, *[0.5] * 4, 0], atol=2e-7)
    a, x = a[:3], a[:3] + np.array([-2.0, 1.0, 3.0]) * a[:3] ** 0.5
    kernels.gammainc(out[:3], a, x, False)
    np.testing.assert_allclose(out[:3], special.gammainc(a, x), rtol=1e-8)


def test_whole_numbers_are_no_parameters():
    for draw in (standard_gamma, draw_poisson, lambda x: draw_binomial(x, x)):
        with pytest.raises(DTypeError, match=r"not implemented for ng\.int64"):
            draw(ng.tensor([3]))
