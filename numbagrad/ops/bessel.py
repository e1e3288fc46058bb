"""The modified Bessel functions ``i0`` and ``i1``, and both without their exponential.

Near 0 power series, beyond ``NEAR`` a polynomial in 1 / x times ``exp(x) / sqrt(x)`` (Abramowitz
and Stegun, 9.6.10 and 9.7.1). The polynomials interpolate at Chebyshev's points, computed with 50
digits: relative errors of about 1e-15 in float64, 3e-7 in float32, and of ``i0`` and ``i1`` beyond
``NEAR`` those of the exponential.
"""

from __future__ import annotations

import math
from typing import Any

from .from_formula import Elementwise
from .polynomial import polynomial

__all__ = ["i0", "i0e", "i1", "i1e"]

NEAR = 8.0
"""Where the power series end; their terms up to ``TERMS`` reach the last digit there."""

TERMS = 24

_even = polynomial([1.0 / math.factorial(k) ** 2 for k in range(TERMS)])
_odd = polynomial([0.5 / math.factorial(k) / math.factorial(k + 1) for k in range(TERMS)])
"""Of ``x * x / 4``: ``i0``, and ``i1`` over x."""

I0_FAR = (
    0.4021765094450081, 0.0033605519836678636, 0.00013621607438983973, 1.1143033790772033e-05,
    1.4838476654255238e-06, 2.973598628644488e-07, 8.872033920195917e-08, 3.9325796720527106e-08,
    2.156628810296853e-08, 7.554994686158054e-09, -6.849507577359187e-09, -1.3410123457120698e-08,
    -5.0376179445730905e-09, 7.55567636973193e-09, 6.559233086669093e-09, -3.5111800389202216e-09,
    -4.574474124748881e-09, 1.525821859334284e-09, 2.196092955615624e-09, -5.755592255256921e-10,
    -6.629941095173987e-10, 1.5436309850295734e-10, 9.359034403940929e-11, -2.053091278105783e-11,
)  # fmt: skip
I1_FAR = (
    0.38939845902587233, -0.009749577193235739, -0.00021923576383171622, -1.503854720040797e-05,
    -1.8349102362140104e-06, -3.483855800908248e-07, -1.0001095169127599e-07,
    -4.312913093699522e-08, -2.3392542546235344e-08, -8.428067023268347e-09, 6.84031824438776e-09,
    1.403543682376323e-08, 5.592853297847363e-09, -7.645466344689953e-09, -6.982881839654194e-09,
    3.431410786881115e-09, 4.809456254657411e-09, -1.4444233546517673e-09, -2.2961593524905997e-09,
    5.335076182050783e-10, 6.913552868592936e-10, -1.4167528494585814e-10, -9.746001283854076e-11,
    1.8783313833301218e-11,
)  # fmt: skip
"""Powers of ``16 / x - 1`` in ``sqrt(x) exp(-x) i0(x)`` and the same of ``i1`` beyond ``NEAR``."""

_far0, _far1 = polynomial(I0_FAR), polynomial(I1_FAR)


class I0(Elementwise):
    """The modified Bessel function of the first kind, of order zero: even, 1 at 0.

    Infinite above 713, in float32 above 91. Gradient: ``g * i1``.

    >>> i0(tensor([0.0])).tolist()
    [1.0]
    """

    result = "float"

    def formula(x):
        size = abs(x)
        half = math.exp(0.5 * size)  # the whole overflows where the result does not
        far = half * (half * (_far0(16 / size - 1) / math.sqrt(size)))
        far = math.exp(size) if size == math.inf else far  # so are all its derivatives
        return _even(0.25 * (x * x)) if size <= NEAR else far

    def grad_x(g, x):
        return g * i1(x)


class I0e(Elementwise):
    """``exp(-abs(x)) * i0(x)``, which leaves no range: 0 at infinity, 1 at 0.

    >>> ng.special.i0e(tensor([0.0, math.inf])).tolist()
    [1.0, 0.0]
    """

    result = "float"

    def formula(x):
        size = abs(x)
        far = _far0(16 / size - 1) / math.sqrt(size)
        return math.exp(-size) * _even(0.25 * (x * x)) if size <= NEAR else far


class I1(Elementwise):
    """The modified Bessel function of the first kind, of order one: odd, 0 at 0.

    Infinite above 713, in float32 above 91. Gradient: ``g * (i0 - i1 / x)``.

    >>> ng.special.i1(tensor([0.0])).tolist()
    [0.0]
    """

    result = "float"

    def formula(x):
        size = abs(x)
        half = math.exp(0.5 * size)
        far = half * (half * (_far1(16 / size - 1) / math.sqrt(size)))
        far = math.exp(size) if size == math.inf else far
        return x * _odd(0.25 * (x * x)) if size <= NEAR else (far if x > 0 else -far)

    def grad_x(g, x):
        size, square = abs(x), 0.25 * (x * x)
        half, place = math.exp(0.5 * size), 16 / size - 1
        slope = _far0(place) - _far1(place) / size
        far = half * (half * (slope / math.sqrt(size)))
        far = math.exp(size) if size == math.inf else far
        return g * (_even(square) - _odd(square) if size <= NEAR else far)


class I1e(Elementwise):
    """``exp(-abs(x)) * i1(x)``, which leaves no range: 0 at infinity and at 0.

    >>> ng.special.i1e(tensor([0.0, math.inf])).tolist()
    [0.0, 0.0]
    """

    result = "float"

    def formula(x):
        size = abs(x)
        far = _far1(16 / size - 1) / math.sqrt(size)
        near = math.exp(-size) * (x * _odd(0.25 * (x * x)))
        return near if size <= NEAR else (far if x > 0 else -far)


i0: Any = I0.function
i0e: Any = I0e.function
i1: Any = I1.function
i1e: Any = I1e.function

METHODS: dict[str, Any] = {"i0": i0}
INPLACE: dict[str, Any] = {"i0_": i0}
