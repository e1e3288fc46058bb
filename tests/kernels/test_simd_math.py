"""The vectorised functions: at most 2 units in the last place, right at the special values."""

import numba
import numpy as np
import pytest
import scipy.special

from numbagrad.kernels import simd_math

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, -1e-40, 200.0, -200.0, 1e30, 1e-30]

WORST = [-5.542755126953125, -16.643590927124023, -0.00034499180037528276]


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def erf(x):
    return scipy.special.erf(x.astype(np.float64))


# name: the reference on long doubles, the interval to sample, units in the last place. SciPy's
# erf is itself only a double: one unit of the allowance is its.
CASES = {
    "exp": (np.exp, (-80.0, 80.0), 2),
    "log": (np.log, (1e-30, 10.0), 2),
    "tanh": (np.tanh, (-10.0, 10.0), 2),
    "sigmoid": (sigmoid, (-80.0, 30.0), 2),
    "erf": (erf, (-5.0, 5.0), 3),
}


def compiled(name):
    function = getattr(simd_math, name)

    def apply(out, x):
        for i in range(x.shape[0]):
            out[i] = function(x[i])

    return numba.njit(error_model="numpy")(apply)


@pytest.fixture(scope="module")
def runners():
    return {name: compiled(name) for name in CASES}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_error_is_at_most_two_units(name, dtype, runners):
    reference, (low, high), units = CASES[name]
    rng = np.random.default_rng(0)
    spread = np.concatenate([rng.uniform(low, high, 50_000), rng.uniform(-1, 1, 50_000)])
    # Just below a power of 2 sigmoid's result has the smallest units there are.
    spread = np.concatenate([spread, WORST])
    x = spread[spread > (0 if name == "log" else -np.inf)].astype(dtype)
    out = np.empty_like(x)
    runners[name](out, x)
    exact = reference(x.astype(np.longdouble))
    error = np.abs(out.astype(np.longdouble) - exact) / np.spacing(np.abs(exact).astype(dtype))
    worst = int(error.argmax())
    assert error[worst] <= units, f"{name}({x[worst]!r}) = {out[worst]!r}, {exact[worst]!r}"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_special_values(name, dtype, runners):
    with np.errstate(all="ignore"):
        x = np.array(SPECIAL, dtype)
        expected = CASES[name][0](x.astype(np.longdouble)).astype(dtype)
    out = np.empty_like(x)
    runners[name](out, x)
    with np.errstate(invalid="ignore"):
        close = np.abs(out - expected) <= 2 * np.spacing(np.abs(expected))
    same = (out == expected) | (np.isnan(out) & np.isnan(expected))
    assert (close | same).all(), list(zip(x, out, expected, strict=True))


def test_loops_are_packed(runners):
    """exp of float32 has no call of libm in its loop."""
    x = np.ones(4, np.float32)
    runners["exp"](x.copy(), x)
    texts = runners["exp"].inspect_asm().values()
    assert not any("expf" in text.replace("simd_math", "") for text in texts)
