"""A line search for the strong Wolfe conditions: Nocedal and Wright (2006), algorithms 3.5, 3.6."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SUFFICIENT = 1e-4
"""c1 of the book: the share of the promised decrease that must come."""
CURVATURE = 0.9
"""c2 of the book: the share of the slope that may be left."""


@dataclass(frozen=True)
class Point:
    """What is known at ``t`` along a direction; slope: of the loss along it."""

    t: float
    loss: float
    gradient: Any
    slope: float


def cubic_minimum(a: Point, b: Point, low: float, high: float) -> float:
    """Where the cubic through two points with their slopes is least, within [low, high].

    Nocedal and Wright, equation 3.59; the middle of the interval where the cubic has no minimum.
    """
    left, right = (a, b) if a.t <= b.t else (b, a)
    if left.t != right.t:
        mean = left.slope + right.slope - 3 * (left.loss - right.loss) / (left.t - right.t)
        square = mean * mean - left.slope * right.slope
        root = math.sqrt(square) if square >= 0 else math.nan
        below = right.slope - left.slope + 2 * root
        if below == below and below != 0:
            least = right.t - (right.t - left.t) * ((right.slope + root - mean) / below)
            return min(max(least, low), high)
    return (low + high) / 2


def strong_wolfe(
    at: Callable[[float], Point], start: Point, t: float, tolerance: float, budget: int
) -> tuple[Point, int]:
    """A point that satisfies the conditions, or the best one met, and the number of calls of at.

    at: evaluates the loss. t: the first guess. tolerance: an interval this short is not divided.
    budget: how many further points are tried.
    """

    def too_high(point: Point) -> bool:
        return point.loss > start.loss + SUFFICIENT * point.t * start.slope

    def flat(point: Point) -> bool:
        return abs(point.slope) <= -CURVATURE * start.slope

    previous, point, tries = start, at(t), 0
    ends = [start, point]
    while tries < budget:
        if too_high(point) or (tries > 1 and point.loss >= previous.loss):
            ends = [previous, point]
            break
        if flat(point):
            return point, tries + 1
        if point.slope >= 0:
            ends = [previous, point]
            break
        nearest = point.t + 0.01 * (point.t - previous.t)
        t = cubic_minimum(previous, point, nearest, point.t * 10)
        previous, point, tries = point, at(t), tries + 1
        ends = [start, point]

    low = 0 if ends[0].loss <= ends[1].loss else 1
    stalled = False
    while tries < budget and abs(ends[1].t - ends[0].t) >= tolerance:
        t, stalled = _trial(ends, stalled)
        point, tries = at(t), tries + 1
        if too_high(point) or point.loss >= ends[low].loss:
            ends[1 - low] = point
            low = 0 if ends[0].loss <= ends[1].loss else 1
            continue
        if flat(point):
            return point, tries + 1
        if point.slope * (ends[1 - low].t - ends[low].t) >= 0:
            ends[1 - low] = ends[low]
        ends[low] = point
    return ends[low], tries + 1


def _trial(ends: list[Point], stalled: bool) -> tuple[float, bool]:
    """Where to look between two points, and whether that is close to one of them.

    The second time that it is, a tenth of the interval is kept from it.
    """
    left, right = sorted(point.t for point in ends)
    t = cubic_minimum(ends[0], ends[1], left, right)
    margin = 0.1 * (right - left)
    if min(right - t, t - left) >= margin:
        return t, False
    if not stalled and left < t < right:
        return t, True
    return (right - margin if abs(t - right) < abs(t - left) else left + margin), False
