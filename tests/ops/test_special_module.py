"""``ng.special``: accuracy over whole ranges, their ends, and what has no gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special

import numbagrad as ng
from numbagrad.errors import GradError

S = ng.special
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

TINY = np.geomspace(1e-300, 1, 12)
BOTH = np.concatenate([np.linspace(-60, 60, 81), TINY, [1e3, 1e9, -1e9]])


def of_mpmath(name):
    """The function in as many digits as mpmath is set to."""
    mp = pytest.importorskip("mpmath")
    return {
        "i0": lambda x: mp.besseli(0, x),
        "i1": lambda x: mp.besseli(1, x),
        "i0e": lambda x: mp.besseli(0, x) * mp.exp(-abs(x)),
        "i1e": lambda x: mp.besseli(1, x) * mp.exp(-abs(x)),
        "erfcx": lambda x: mp.exp(x * x) * mp.erfc(x),
        "ndtr": lambda x: mp.erfc(-x / mp.sqrt(2)) / 2,
        "log_ndtr": lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2),
        "ndtri": lambda x: mp.sqrt(2) * mp.erfinv(2 * x - 1),
        "entr": lambda x: -x * mp.log(x),
        "bessel_j0": lambda x: mp.besselj(0, x),
        "bessel_j1": lambda x: mp.besselj(1, x),
        "bessel_y0": lambda x: mp.bessely(0, x),
        "bessel_y1": lambda x: mp.bessely(1, x),
    }[name]


def errors(name, x, dtype):
    """Relative to the result, and to the largest one nearby, in units of the last place."""
    mp = pytest.importorskip("mpmath")
    x = x.astype(dtype)
    with mp.workdps(340 if name == "log_ndtr" else 40):
        truth = np.array([float(of_mpmath(name)(mp.mpf(float(v)))) for v in x])
    about = np.finfo(dtype)
    some = (np.abs(truth) > about.tiny) & (np.abs(truth) < about.max)
    assert some.sum() > 20
    found = getattr(S, name)(ng.tensor(x[some])).double().numpy()
    error = np.abs(found - truth[some]) / about.eps
    return error / np.abs(truth[some]), error / np.maximum(np.abs(truth[some]), 1)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("i0", np.linspace(-91, 91, 121)),
        ("i1", np.concatenate([np.linspace(-91, 91, 121), TINY])),
        ("i0e", BOTH),
        ("i1e", BOTH),
        ("erfcx", np.concatenate([np.linspace(-26, 30, 121), TINY, [1e3]])),
        ("ndtr", np.concatenate([np.linspace(-38, 9, 121), TINY])),
        ("log_ndtr", np.concatenate([np.linspace(-60, 37, 121), -TINY])),
        ("ndtri", np.linspace(0.01, 0.49, 40)),
        ("entr", np.concatenate([np.linspace(1.5, 30, 30), TINY[:-1]])),
    ],
)
def test_digits_over_the_whole_range(name, x, dtype):
    assert errors(name, x, dtype)[0].max() < 6


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"])
def test_digits_of_waves(name, dtype):
    x = np.concatenate([np.linspace(0.01, 60, 151), np.geomspace(1e-10, 1e5, 31)])
    assert errors(name, x, dtype)[1].max() < 6


def values(function, *points):
    return function(ng.tensor(points, dtype=ng.float64)).tolist()


def test_ends_of_ranges():
    inf, nan = math.inf, math.nan
    assert values(S.i0e, inf, -inf) == [0, 0] and values(S.i1e, inf, -inf) == [0, 0]
    assert values(S.i1, inf, -inf, 0) == [inf, -inf, 0]
    assert values(S.erfcx, inf, -inf, -27, 1e308) == [0, inf, inf, 5.641895835477563e-309]
    assert values(S.ndtr, inf, -inf, -1e200, 1e200) == [1, 0, 0, 1]
    assert values(S.log_ndtr, inf, -inf, -1e200) == [0, -inf, -inf]
    assert values(S.entr, inf, -inf, -1, 0) == [-inf, -inf, -inf, 0]
    assert values(S.bessel_j0, inf, -inf) == values(S.bessel_j1, inf, -inf) == [0, 0]
    assert values(S.bessel_y0, inf, 0) == values(S.bessel_y1, inf, 0) == [0, -inf]
    for name in "i0e i1 i1e erfcx ndtr log_ndtr entr ndtri bessel_j0 bessel_y1".split():
        assert math.isnan(values(getattr(S, name), nan)[0]), name
    assert math.isnan(values(S.bessel_y0, -1)[0]) and math.isnan(values(S.bessel_y1, -1)[0])


def test_gradients_at_ends():
    x = ng.tensor([0.0, 1e4, 1e9, -1e9], dtype=ng.float64, requires_grad=True)
    (g,) = ng.autograd.grad(S.erfcx(x).sum(), x)
    expected = [-2 / math.pi**0.5, *[-(x**-2) / math.pi**0.5 for x in (1e4, 1e9)]]
    np.testing.assert_allclose(g.tolist()[:3], expected, rtol=1e-7)
    (g,) = ng.autograd.grad(S.log_ndtr(x).sum(), x)
    np.testing.assert_allclose(g.tolist(), [(2 / math.pi) ** 0.5, 0, 0, 1e9], rtol=1e-12)
    (g,) = ng.autograd.grad(S.entr(x).sum(), x)
    assert g.tolist()[0] == math.inf


def test_zeta():
    rng = np.random.default_rng(0)
    s, q = 1 + 10 ** rng.uniform(-3, 2, 500), 10 ** rng.uniform(-2, 4, 500)
    truth = scipy.special.zeta(s, q)
    some = (truth < 1e300) & (truth > 1e-300)
    found = S.zeta(ng.tensor(s[some]), ng.tensor(q[some])).numpy()
    np.testing.assert_allclose(found, truth[some], rtol=5e-14)
    s = ng.tensor([1.0, 0.5, 2, 2.5, 2, 3, math.inf, math.inf, 2, 1e30, math.nan])
    q = ng.tensor([2.0, 2, -1, -1.5, 0, -2.5, 2, 0.5, math.inf, 1, 2])
    expected = [math.inf, math.nan, math.inf, math.nan, math.inf, 0.054102, 0, math.inf, 0, 1]
    np.testing.assert_allclose(S.zeta(s, q).numpy(), [*expected, math.nan], rtol=1e-4)


def test_what_has_no_gradient():
    x = ng.ones(2, requires_grad=True)
    assert S.bessel_j0(x).grad_fn is None
    with pytest.raises(GradError, match="zeta: the derivative"):
        S.zeta(x + 1, x).sum().backward()
    with pytest.raises(TypeError, match="must be Tensor"):
        S.bessel_j1(2.0)


@pytest.mark.parametrize("dtype", [ng.float64, ng.float32])
def test_upper_incomplete_gamma_keeps_its_digits(dtype):
    rng = np.random.default_rng(1)
    a = 10 ** rng.uniform(-9, 4, 4000)
    x = a * 10 ** rng.uniform(-0.5, 0.5, 4000) + 10 ** rng.uniform(-6, 1.5, 4000)
    a, x = (ng.tensor(v, dtype=dtype) for v in (a, x))
    truth = scipy.special.gammaincc(*(v.double().numpy() for v in (a, x)))
    some = truth > ng.finfo(dtype).tiny
    rtol = 1e-10 if dtype is ng.float64 else 3e-7
    np.testing.assert_allclose(ng.igammac(a, x).numpy()[some], truth[some], rtol=rtol)
    assert math.isnan(ng.igamma(ng.zeros(1), ng.zeros(1)).item())
    assert math.isnan(ng.igammac(ng.full((1,), math.inf), ng.full((1,), math.inf)).item())


def test_names_of_arguments():
    x = ng.tensor([2.0])
    assert S.erfcx(input=x).shape == S.zeta(input=x, other=3).shape == S.psi(input=x).shape
    assert S.multigammaln(input=x, p=1).item() == S.gammaln(x).item()
    assert S.xlog1py(2, other=x).item() == pytest.approx(2 * math.log(3))
    assert {n for n in dir(S) if n in S.__all__} == {*S.__all__}


def test_the_gradient_of_i1_is_finite_where_it_is():
    x = ng.tensor([0.0, 7.9, 712.0, -712.0, 714.0, math.inf, math.nan], dtype=ng.float64)
    x.requires_grad_()
    S.i1(x).sum().backward()
    large = 2.4649466237549930e307
    np.testing.assert_allclose(
        x.grad, [0.5, 343.34882200563794, large, large, math.inf, math.inf, math.nan], rtol=1e-14
    )
