"""The error function."""

from __future__ import annotations

import math

from numba import float32, float64

from .decorators import formula
from .exponential import exp_within_float32, exp_within_float64

# erf(x) = x + x p(x^2) for |x| < 1 (1.5 in float64), elsewhere 1 - exp(c(|x|)), where c is a fit
# of log(erfc).


@formula
def erf_float32(x):
    """Error function."""
    a = abs(x)
    z = x * x
    p = float32(7.889106741214557e-05)
    p = p * z + float32(-0.0008020837184171275)
    p = p * z + float32(0.005189534833181507)
    p = p * z + float32(-0.026854444294302816)
    p = p * z + float32(0.1128360016819808)
    p = p * z + float32(-0.37612627135240634)
    p = p * z + float32(0.12837916591388965)
    near = a + a * p
    b = float32(4.0) if a > float32(4.0) else a
    c = float32(2.5135969422650767e-07)
    c = c * b + float32(-2.531524778265158e-05)
    c = c * b + float32(0.0004637904929878252)
    c = c * b + float32(-0.0042823903257313885)
    c = c * b + float32(0.02537357021506546)
    c = c * b + float32(-0.10863901451291762)
    c = c * b + float32(-0.6330396009686707)
    c = c * b + float32(-1.1296611614215097)
    c = c * b + float32(0.00020436057766706333)
    far = float32(1.0) - exp_within_float32(c)
    return math.copysign(far if a >= float32(1.0) else near, x)


@formula
def erf_float64(x):
    """Error function."""
    a = abs(x)
    z = x * x
    p = float64(-8.291830412449146e-20)
    p = p * z + float64(3.437890896100315e-18)
    p = p * z + float64(-8.299333131326682e-17)
    p = p * z + float64(1.6027426463283473e-15)
    p = p * z + float64(-2.7738693125981594e-14)
    p = p * z + float64(4.460976847027224e-13)
    p = p * z + float64(-6.710962147773291e-12)
    p = p * z + float64(9.422702253524843e-11)
    p = p * z + float64(-1.2290549066996606e-09)
    p = p * z + float64(1.4807192282041551e-08)
    p = p * z + float64(-1.6365844655816848e-07)
    p = p * z + float64(1.6462114364090405e-06)
    p = p * z + float64(-1.492565035833759e-05)
    p = p * z + float64(0.00012055332981787746)
    p = p * z + float64(-0.0008548327023450815)
    p = p * z + float64(0.005223977625442187)
    p = p * z + float64(-0.026866170645131252)
    p = p * z + float64(0.11283791670955126)
    p = p * z + float64(-0.37612638903183754)
    p = p * z + float64(0.1283791670955126)
    near = a + a * p
    b = (float64(6.0) if a > float64(6.0) else a) - float64(3.5)
    c = float64(2.2488526672100392e-14)
    c = c * b + float64(3.28915886859806e-13)
    c = c * b + float64(2.178352144499359e-12)
    c = c * b + float64(8.365125169718522e-12)
    c = c * b + float64(1.7446345754935002e-11)
    c = c * b + float64(1.5827460536454447e-11)
    c = c * b + float64(-4.373220493976285e-11)
    c = c * b + float64(-8.85970260771885e-11)
    c = c * b + float64(-1.693760055984071e-10)
    c = c * b + float64(-7.917733016614981e-10)
    c = c * b + float64(9.711073490679872e-09)
    c = c * b + float64(-8.046262850336508e-08)
    c = c * b + float64(5.857003018699369e-07)
    c = c * b + float64(-3.8896241838951895e-06)
    c = c * b + float64(2.4386287351229386e-05)
    c = c * b + float64(-0.0001472978045675964)
    c = c * b + float64(0.0008736873279436745)
    c = c * b + float64(-0.005225658216366031)
    c = c * b + float64(-0.9667530547410782)
    c = c * b + float64(-7.266099588365198)
    c = c * b + float64(-14.112437402148188)
    far = float64(1.0) - exp_within_float64(c)
    return math.copysign(far if a >= float64(1.5) else near, x)
