"""The Bessel functions that oscillate: ``bessel_j0``, ``bessel_j1``, ``bessel_y0``, ``bessel_y1``.

Up to ``NEAR`` a polynomial in x * x, beyond it modulus and phase (Abramowitz and Stegun, 9.1.13 and
9.2.5). The polynomials interpolate at Chebyshev's points, computed with 50 digits. Errors are below
1e-15 in float64 and 6e-7 in float32, of the largest value nearby: next to a zero fewer digits hold.
No gradients: as in PyTorch results carry no history. Start reading at ``J0``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .base import as_operand
from .from_formula import Elementwise
from .polynomial import polynomial

__all__ = ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"]

NEAR = 8.0

J0_NEAR = (
    0.04582966485981377, 0.9303012472958572, -0.6484692830871837, -0.8080888076696872,
    1.0383794611437211, -0.5074680458471, 0.14598884856759264, -0.028472718610882047,
    0.004058078989140991, -0.0004435459224311503, 3.8473197855944365e-05, -2.717749223632098e-06,
    1.5956109104549218e-07, -7.91532308295207e-09, 3.3634475788173604e-10, -1.243301171273326e-11,
    4.0037632815796753e-13,
)  # fmt: skip
J1_NEAR = (
    -0.05814382795599107, 0.08105866038589796, 0.15151665143806636, -0.2595948652859303,
    0.15858376432721838, -0.05474581821284722, 0.012456814392263375, -0.0020290394945705996,
    0.0002494945813597261, -2.404574865968694e-05, 1.8684526037206013e-06, -1.196708186787801e-07,
    6.431190177265836e-09, -2.943013798001659e-10, 1.1658972367678622e-11, -4.0045728425886457e-13,
)  # fmt: skip
Y0_NEAR = (
    -0.382250654459425, -0.8284358903604587, 1.6470964788745466, 0.14412632369302475,
    -1.0775477338215995, 0.6721770783431679, -0.21895747096171628, 0.046367047681375125,
    -0.00702574105727097, 0.000806158605961636, -7.279541882454115e-05, 5.3213188103997145e-06,
    -3.2185078445935923e-07, 1.6390875014077404e-08, -7.13046146536789e-10, 2.6926938054524057e-11,
    -8.840112096073101e-13,
)  # fmt: skip
Y1_NEAR = (
    0.07075985882118005, -0.24337743079193114, 0.02336757172099348, 0.23507209206669755,
    -0.19639839859930203, 0.07854786922242532, -0.01962875683311711, 0.0034224907399188495,
    -0.0004438173434420147, 4.467433012646365e-05, -3.601000022590458e-06, 2.3804930420514178e-07,
    -1.3153147367094951e-08, 6.169688029066965e-10, -2.499531546171249e-11, 8.760001143977853e-13,
)  # fmt: skip
"""Powers of ``x * x / 32 - 1``: of j0; of j1 / x; of y0 without ``2 / pi * log(x) * j0``; and of
y1 / x, without ``2 / pi * (log(x) * j1 - 1 / x)``."""

P0 = (
    0.9994572757882519, -0.0005363673192129672, 6.137416081283524e-06, -2.0527448261170675e-07,
    1.2803747743828764e-08, -1.2121098178951377e-09, 1.550640953808597e-10, -2.491146535471666e-11,
    4.674289307624388e-12, -1.0157485021065676e-12, 3.455012974455743e-13, -1.0251790052831013e-13,
)  # fmt: skip
Q0 = (
    -0.015555113879513518, 6.833149099344083e-05, -1.477138832650122e-06, 7.106214852192226e-08,
    -5.668716046704292e-09, 6.432789503382007e-10, -9.4704131236215e-11, 1.7029372022291316e-11,
    -3.5884013838881433e-12, 8.689732394690306e-13, -2.34205092942912e-13, 5.756325587995953e-14,
    -1.642189437353317e-14, 1.2731367623367943e-14, -5.071762053003792e-15,
)  # fmt: skip
P1 = (
    1.0009070262780821, 0.0008988049416705183, -7.959694699684788e-06, 2.453676633366693e-07,
    -1.4708498448932155e-08, 1.3602969253877949e-09, -1.7137279585997966e-10, 2.72345126828134e-11,
    -5.071495295696752e-12, 1.0954826479277623e-12, -3.697244591244297e-13, 1.0923713653079462e-13,
)  # fmt: skip
Q1 = (
    0.04677687402744898, -9.621458822054632e-05, 1.8212018511674905e-06, -8.291960701313517e-08,
    6.420133519314915e-09, -7.151113611051071e-10, 1.0394482901993273e-10, -1.8520736145988993e-11,
    3.8929927766683146e-12, -9.33138059712287e-13, 2.2462055932168237e-13, -6.144675787095688e-14,
    3.620117603894229e-14, -1.3449019339973269e-14,
)  # fmt: skip
"""Powers of ``128 / (x * x) - 1``: P, and x Q / 8, of Hankel's expansion of each order."""

_j0, _j1, _y0, _y1 = map(polynomial, (J0_NEAR, J1_NEAR, Y0_NEAR, Y1_NEAR))
_p0, _q0, _p1, _q1 = map(polynomial, (P0, Q0, P1, Q1))


def _far(x: float, p: float, q: float, cos: float, sin: float) -> float:
    """``sqrt(2 / (pi x)) (P cos - Q sin)``; the phase comes times sqrt(2)."""
    return (p * cos - 8 / x * q * sin) / math.sqrt(math.pi * x)


class J0(Elementwise):
    """Of the first kind, of order zero: even, 1 at 0 and 0 at infinity.

    >>> ng.special.bessel_j0(tensor([0.0])).tolist()
    [1.0]
    """

    name = "bessel_j0"
    result = "float"

    def formula(x):
        size = abs(x)
        v = 128 / (x * x) - 1
        c, s = math.cos(size), math.sin(size)
        far = _far(size, _p0(v), _q0(v), c + s, s - c)
        far = 0 if size == math.inf else far
        return _j0(x * x / 32 - 1) if size <= NEAR else far


class J1(Elementwise):
    """Of the first kind, of order one: odd, 0 at 0 and at infinity.

    >>> ng.special.bessel_j1(tensor([0.0])).tolist()
    [0.0]
    """

    name = "bessel_j1"
    result = "float"

    def formula(x):
        size = abs(x)
        v = 128 / (x * x) - 1
        c, s = math.cos(size), math.sin(size)
        far = _far(size, _p1(v), _q1(v), s - c, -s - c)
        far = 0 if size == math.inf else (far if x > 0 else -far)
        return x * _j1(x * x / 32 - 1) if size <= NEAR else far


class Y0(Elementwise):
    """Of the second kind, of order zero: -inf at 0, NaN below, 0 at infinity.

    >>> ng.special.bessel_y0(tensor([0.0])).tolist()
    [-inf]
    """

    name = "bessel_y0"
    result = "float"

    def formula(x):
        u, v = x * x / 32 - 1, 128 / (x * x) - 1
        c, s = math.cos(x), math.sin(x)
        far = _far(x, _p0(v), _q0(v), s - c, -c - s)
        far = 0 if x == math.inf else far
        return 2 / math.pi * math.log(x) * _j0(u) + _y0(u) if x <= NEAR else far


class Y1(Elementwise):
    """Of the second kind, of order one: -inf at 0, NaN below, 0 at infinity.

    >>> ng.special.bessel_y1(tensor([0.0])).tolist()
    [-inf]
    """

    name = "bessel_y1"
    result = "float"

    def formula(x):
        u, v = x * x / 32 - 1, 128 / (x * x) - 1
        c, s = math.cos(x), math.sin(x)
        far = _far(x, _p1(v), _q1(v), -s - c, c - s)
        far = 0 if x == math.inf else far
        near = 2 / math.pi * (math.log(x) * (x * _j1(u)) - 1 / x) + x * _y1(u)
        near = -math.inf if x == 0 else near
        return near if x <= NEAR else far


def _without_history(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """``function`` of a tensor that asks for no gradient."""

    @functools.wraps(function)
    def bessel(x: Tensor) -> Tensor:
        return function(as_operand(function.__name__, x).detach())

    del bessel.__wrapped__  # whose argument keeps its name
    return bessel


bessel_j0 = _without_history(J0.function)
bessel_j1 = _without_history(J1.function)
bessel_y0 = _without_history(Y0.function)
bessel_y1 = _without_history(Y1.function)
