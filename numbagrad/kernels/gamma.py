"""The gamma distribution as plain functions that both kinds of kernels use.

``gamma_functions`` compiles them with the decorator and the ``math`` of the caller. All numbers
are float64. F(a, z) is the distribution function of shape a, the regularised lower incomplete
gamma function; p(a, z) its density; C is z ** -a * exp(z) times the lower or the upper incomplete
gamma function, whichever says so. Start reading at ``slope``.

References: Abramowitz and Stegun, 6.3 and 6.5; Figurnov, Mohamed, Mnih, "Implicit
reparameterization gradients", NeurIPS 2018.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["gamma_functions"]

LARGE = 60.0
"""Shapes above are integrated; series and fractions would take ever more terms."""

NODES = (
    0.0640568928626056, 0.1911188674736163, 0.3150426796961634, 0.4337935076260451,
    0.5454214713888396, 0.6480936519369755, 0.7401241915785544, 0.8200019859739029,
    0.8864155270044011, 0.9382745520027328, 0.9747285559713095, 0.9951872199970213,
)  # fmt: skip
WEIGHTS = (
    0.1279381953467522, 0.1258374563468283, 0.1216704729278034, 0.1155056680537256,
    0.1074442701159656, 0.0976186521041139, 0.0861901615319533, 0.0733464814110803,
    0.0592985849154368, 0.0442774388174198, 0.0285313886289337, 0.0123412297999872,
)  # fmt: skip
"""Gauss and Legendre's rule of 24 points: the positive half."""

EULER = 0.5772156649015329
ZETAS = (
    0.3224670334241132, 0.0673523010531981, 0.020580808427784546, 0.007385551028673986,
    0.0028905103307415234, 0.001192753911703261, 0.0005096695247430425, 0.00022315475845357939,
    9.945751278180853e-05, 4.492623673813314e-05, 2.050721277567069e-05, 9.439488275268397e-06,
    4.374866789907488e-06, 2.039215753801366e-06, 9.55141213040742e-07,
)  # fmt: skip
"""zeta(k) - 1 over k, from k = 2 on: log gamma(1 + a) in powers of -a (6.1.33)."""


def gamma_functions(function: Callable[..., Any], math: Any) -> tuple[Any, Any]:
    """``slope`` and ``incomplete``; function: the decorator of what kernels call."""

    @function
    def psi(x):
        """The derivative of lgamma, of a positive number."""
        passed = 0.0
        while x < 10.0:
            passed += 1.0 / x
            x += 1.0
        u = 1.0 / (x * x)
        tail = u * (1.0 / 252.0 - u * (1.0 / 240.0 - u * (1.0 / 132.0 - u * (691.0 / 32760.0))))
        tail = u * (1.0 / 12.0 - u * (1.0 / 120.0 - tail))
        return math.log(x) - 0.5 / x - tail - passed

    @function
    def series(a, z, log_z):
        """C of the lower function, and ``slope``: of S = sum t, t[n] = z ** n / (a ... (a + n)).

        As F = z ** a exp(-z) S / gamma(a), its derivative over -z p is the sum of t[n] times
        psi(a + n + 1) - log z, all of one sign where z < exp(psi(a + 1)); a little above that few
        digits are lost.
        """
        term = 1.0 / a
        ahead = psi(a + 1.0) - log_z
        total = term
        slope = term * ahead
        n = 1.0
        while term > 1e-17 * total or n < z - a:
            term *= z / (a + n)
            ahead += 1.0 / (a + n)
            total += term
            slope += term * ahead
            n += 1.0
        return total, slope

    @function
    def fraction(a, z, log_z):
        """C, and ``slope`` = C (log z - psi(a)) + dC/da, from the last term back.

        C = 1 / (z + 1 - a - 1 (1 - a) / (z + 3 - a - 2 (2 - a) / (z + 5 - a - ...))).
        """
        n = float(40 + int(1.5 * a))
        below, change = z + 2.0 * n + 1.0 - a, -1.0
        while n > 0.0:
            part = n * (n - a) / below
            change = -1.0 + n / below + part * change / below
            below = z + 2.0 * n - 1.0 - a - part
            n -= 1.0
        return 1.0 / below, ((log_z - psi(a)) - change / below) / below

    @function
    def bend(v):
        """log(1 + v) - v, with all digits where v is small."""
        if abs(v) < 1e-4:
            return -v * v * (0.5 - v * (1.0 / 3.0 - v * (0.25 - 0.2 * v)))
        return math.log1p(v) - v

    @function
    def integrals(a, z, log_z):
        """As ``series`` below the centre and ``fraction`` above, for large shapes.

        Of exp((a - 1) log(1 + u) - z u), upwards from u = 0, and of it times log z + log(1 + u) -
        psi(a); below the same with u and the sign turned round.
        """
        ahead = log_z - psi(a)
        side = 1.0 if ahead >= 0.0 else -1.0
        gap = side * (z - a + 1.0)
        end = 76.0 / (gap + math.sqrt(gap * gap + 76.0 * a)) if gap > 0.0 else 8.8 / math.sqrt(a)
        if side < 0.0 and end > 1.0:
            end = 1.0
        total, slope = 0.0, 0.0
        for k in range(24):
            node = NODES[k >> 1] if k & 1 else -NODES[k >> 1]
            u = 0.5 * end * (1.0 + node)
            part = WEIGHTS[k >> 1] * math.exp((a - 1.0) * bend(side * u) - gap * u)
            total += part
            slope += part * side * (ahead + math.log1p(side * u))
        return 0.5 * end * total, 0.5 * end * slope

    @function
    def parts(a, z, log_z):
        """Whether C is of the lower function, C, and ``slope``."""
        if a >= LARGE:
            total, change = integrals(a, z, log_z)
            return log_z < psi(a), total, change
        if z < 2.0 or z < a + 1.0:
            total, change = series(a, z, log_z)
            return True, total, change
        total, change = fraction(a, z, log_z)
        return False, total, change

    @function
    def slope(a, z, log_z):
        """The derivative of log z by a where F(a, z) stays: -(dF/da) / (z p); NaN unless a > 0.

        z may have become 0 while log_z is finite.
        """
        if not a > 0.0:
            return math.nan
        _, _, change = parts(a, z, log_z)
        return change

    @function
    def scale(a, z, log_z):
        """z ** a * exp(-z) / gamma(a); of a large shape by Stirling's series.

        The terms a log z, z and lgamma(a) nearly cancel: at a = 1e15 no digit would be left.
        """
        if a < LARGE:
            return math.exp(a * log_z - z - math.lgamma(a))
        tail = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * a * a)) / (a * a)) / a
        return math.exp(a * bend((z - a) / a) + 0.5 * math.log(a / 6.283185307179586) - tail)

    @function
    def upper_near(a, z, log_z):
        """1 - F(a, z) for a < 0.2 and z < 2, where F may round to 1.

        F is exp(t) times 1 + a S, where t = a log z - log gamma(1 + a) and S is the sum of
        (-z) ** n / ((a + n) n!) from n = 1 on (Abramowitz and Stegun, 6.5.4 and 6.5.29).
        """
        power, log_gamma = 1.0, (1.0 - EULER) * a - math.log1p(a)
        for k in range(len(ZETAS)):
            power *= a if k else a * a
            log_gamma += ZETAS[k] * power if k % 2 == 0 else -ZETAS[k] * power
        t = a * log_z - log_gamma
        term, total, n = 1.0, 0.0, 1.0
        while abs(term) > 1e-18:
            term *= -z / n
            total += term / (a + n)
            n += 1.0
        return -math.expm1(t) - math.exp(t) * a * total

    @function
    def incomplete(a, z, upper):
        """F(a, z), or 1 - F(a, z) if ``upper``; NaN below 0, and where both are 0 or infinite."""
        if not (a >= 0.0 and z >= 0.0) or (a == z and (a == 0.0 or a == math.inf)):
            return math.nan
        if z == 0.0 or a == 0.0 or z == math.inf or a == math.inf:
            below = z == math.inf or a == 0.0
            return 1.0 if below != upper else 0.0
        log_z = math.log(z)
        if upper and a < 0.2 and z < 2.0:
            return upper_near(a, z, log_z)
        below, total, _ = parts(a, z, log_z)
        part = total * scale(a, z, log_z)
        return part if below != upper else 1.0 - part

    return slope, incomplete
