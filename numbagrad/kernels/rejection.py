"""Draws that take as many random numbers as chance asks for, as plain functions for all kernels.

``samplers`` compiles them with the decorator, the ``math`` and the random numbers of the caller. An
element takes one counter of its call whatever happens: its attempts are numbered in another word of
the counter, so that no element depends on what the others did. All numbers are float64.

References: Marsaglia, Tsang, "A simple method for generating gamma variables", ACM TOMS 26, 2000;
Hörmann, "The transformed rejection method for generating Poisson random variables", Insurance:
Mathematics and Economics 12, 1993 (PTRS); Hörmann, "The generation of binomial random variates",
J. Stat. Comput. Simul. 46, 1993 (BTRS).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["samplers"]

FEW = 10.0
"""Mean counts below are found by adding up probabilities, those above by rejection."""

LARGE = 1e6
"""Logarithms of factorials of larger numbers are compared by Stirling's series."""

MOST = 200.0
"""What a count of a mean below ``FEW`` never reaches: the chance of it is under 1e-100."""


def samplers(
    function: Callable[..., Any], math: Any, doubles: Callable[..., Any]
) -> tuple[Any, Any, Any]:
    """``gamma``, ``poisson`` and ``binomial`` of one element.

    function: the decorator of what kernels call; doubles(key, start, i, trial): two uniform numbers
    in [0, 1) for attempt ``trial`` of element ``i``.
    """

    @function
    def whole(x):
        """x rounded down; what no integer holds is whole already."""
        return float(math.floor(x)) if abs(x) < 9e15 else x

    @function
    def orders(m, n, more):
        """The logarithm of m! / n!; more: m - n, which from 1e16 on m and n do not tell.

        Of large counts by Stirling's series: the difference of two lgamma would have no digits.
        """
        if m < LARGE or n < LARGE:
            return math.lgamma(m + 1.0) - math.lgamma(n + 1.0)
        return more * math.log(m) + (n + 0.5) * math.log1p(more / n) - more + (1 / m - 1 / n) / 12.0

    @function
    def gamma(key, start, i, a, logarithm):
        """A gamma number of shape a and scale 1, or its logarithm, by Marsaglia and Tsang.

        Below a = 1 the number of shape a + 1 times a uniform one to the power 1 / a, which may be
        too small for a float; its logarithm is not. NaN unless 0 < a < inf.
        """
        if not (a > 0.0 and a < math.inf):
            return math.nan
        d = (a if a >= 1.0 else a + 1.0) - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        trial = 1
        while True:
            radius, angle = doubles(key, start, i, trial)
            chance, small = doubles(key, start, i, trial + 1)
            trial += 2
            x = math.sqrt(-2.0 * math.log(1.0 - radius)) * math.cos(6.283185307179586 * angle)
            v = 1.0 + c * x
            if v > 0.0:
                v = v * v * v
                if math.log(1.0 - chance) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                    break
        more = math.log(1.0 - small) / a if a < 1.0 else 0.0
        return math.log(d * v) + more if logarithm else d * v * math.exp(more)

    @function
    def poisson(key, start, i, rate):
        """A count of mean ``rate``; NaN unless 0 <= rate < inf."""
        if not (rate >= 0.0 and rate < math.inf):
            return math.nan
        if rate < FEW:
            left, _ = doubles(key, start, i, 1)
            count, part = 0.0, math.exp(-rate)
            while left >= part and count < MOST:
                left -= part
                count += 1.0
                part *= rate / count
            return count
        b = 0.931 + 2.53 * math.sqrt(rate)
        a = 0.02483 * b - 0.059
        inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
        enough = 0.9277 - 3.6224 / (b - 2.0)
        mode = whole(rate)
        log_rate = math.log(rate)
        top = -0.5 * (log_rate + 1.8378770664093453)
        if rate < LARGE:
            top = mode * log_rate - rate - math.lgamma(mode + 1.0)
        trial = 1
        while True:
            u, v = doubles(key, start, i, trial)
            trial += 1
            u, v = u - 0.5, 1.0 - v
            side = max(0.5 - abs(u), 1e-17)
            count = whole((2.0 * a / side + b) * u + rate + 0.43)
            if side >= 0.07 and v <= enough:
                return count
            if count >= 0.0 and (side >= 0.013 or v <= side):
                height = math.log(v * inverse_alpha / (a / (side * side) + b))
                more = count - mode
                if height <= top + orders(mode, count, -more) + more * log_rate:
                    return count

    @function
    def rarer(key, start, i, n, p):
        """A binomial count for p <= 0.5."""
        q = 1.0 - p
        if n * p < FEW:
            left, _ = doubles(key, start, i, 1)
            count, part = 0.0, math.exp(n * math.log1p(-p))
            while left >= part and count < n and count < MOST:
                left -= part
                part *= (n - count) / (count + 1.0) * (p / q)
                count += 1.0
            return count
        spread = math.sqrt(n * p * q)
        b = 1.15 + 2.53 * spread
        a = 0.0248 * b + 0.01 * p - 0.0873
        alpha = (2.83 + 5.1 / b) * spread
        enough = 0.92 - 4.2 / b
        mode = whole((n + 1.0) * p)
        log_odds = math.log(p / q)
        trial = 1
        while True:
            u, v = doubles(key, start, i, trial)
            trial += 1
            u, v = u - 0.5, 1.0 - v
            side = max(0.5 - abs(u), 1e-17)
            count = whole((2.0 * a / side + b) * u + n * p + 0.5)
            if side >= 0.07 and v <= enough:
                return count
            if count >= 0.0 and count <= n:
                height = math.log(v * alpha / (a / (side * side) + b))
                more = count - mode
                ways = orders(mode, count, -more) + orders(n - mode, n - count, more)
                if height <= ways + more * log_odds:
                    return count

    @function
    def binomial(key, start, i, n, p):
        """How many of n draws succeed, each with probability p; NaN unless n >= 0, 0 <= p <= 1."""
        if not (n >= 0.0 and n < math.inf and p >= 0.0 and p <= 1.0):
            return math.nan
        if p <= 0.5:
            return rarer(key, start, i, n, p)
        return n - rarer(key, start, i, n, 1.0 - p)

    return gamma, poisson, binomial
