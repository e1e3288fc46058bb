"""Time two calls in interleaved rounds, so that a change of the machine's speed meets both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

SETTLE = 0.02
"""For calls of several threads that have slept: Linux wakes a thread where its waker runs, and lets
it wait there for 10 ms while another core is idle."""


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median over rounds, the distance of the quartiles, the least."""

    median: float
    spread: float
    best: float

    def divided(self, times: int) -> Timing:
        """The time of one of ``times`` equal parts."""
        return Timing(self.median / times, self.spread / times, self.best / times)


def interleave(
    calls: list[Callable[[], Any]],
    rounds: int = 31,
    round_seconds: float = 0.01,
    rest: float = 0.0,
) -> list[Timing]:
    """Time each of ``calls`` in every round, in turn from the front and from the back.

    rest: seconds to sleep before each, for calls of several threads in one process: libgomp's spin
    for 20 ms after their work is done, on the processor that the other side wants.

    A round repeats its call for about ``round_seconds``; one call before the clock starts warms
    what the other side has pushed out of the caches. The garbage collector runs as it would.
    """
    settle = SETTLE if rest else 0.0
    batches: list[Callable[[int], float]] = [
        partial(batch, call, rest=rest, settle=settle) for call in calls
    ]
    return interleave_batches(batches, rounds, round_seconds)


def interleave_batches(
    batches: list[Callable[[int], float]], rounds: int = 31, round_seconds: float = 0.01
) -> list[Timing]:
    """The same for functions that take a number of calls and give the seconds of one."""
    numbers = [_repeats(each, round_seconds) for each in batches]
    seconds: list[list[float]] = [[] for _ in batches]
    for i in range(rounds):
        order = range(len(batches)) if i % 2 == 0 else reversed(range(len(batches)))
        for j in order:
            seconds[j].append(batches[j](numbers[j]))
    return [summary(values) for values in seconds]


def batch(call: Callable[[], Any], number: int, rest: float = 0.0, settle: float = 0.0) -> float:
    """Seconds of one of ``number`` calls, after a rest, and calls that are not timed.

    settle: seconds to go on with these: see ``SETTLE``.
    """
    time.sleep(rest)
    call()
    end = time.perf_counter() + settle
    while time.perf_counter() < end:
        call()
    start = time.perf_counter()
    for _ in repeat(None, number):
        call()
    return (time.perf_counter() - start) / number


def summary(values: list[float]) -> Timing:
    """Median and quartile distance of ``values``."""
    if len(values) < 2:
        return Timing(values[0], 0.0, values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Timing(middle, high - low, min(values))


def _repeats(each: Callable[[int], float], round_seconds: float) -> int:
    each(2)
    number = 1
    # Twice: what a call does once, after so many, must not count as what each does.
    while (elapsed := min(each(number), each(number)) * number) < round_seconds / 4:
        number *= 4
    return max(1, round(number * round_seconds / elapsed))
