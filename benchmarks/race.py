"""One workload run by many contenders, each in a process of its own, and the rows that come of it.

A contender is timed only after its results have been compared; then the rounds of all are
interleaved. Start at ``race``; ``steps.py`` and ``gradients.py`` say what is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .case import COMPILED_AT_MOST, EAGER_AT_MOST, Row, timed_row
from .libraries import COMPILED, EAGER, EAGER_PEERS, PEERS
from .measure import Timing, interleave_batches
from .workers import Unavailable, Worker

Arrays = list[np.ndarray]
Times = dict[str, Timing]


def race(
    workers: Mapping[str, Worker],
    suite: str,
    number: int,
    name: str,
    check: Callable[[str, Arrays, Arrays], None],
    rounds: int,
    truth: str = "torch",
) -> tuple[Times, dict[str, str]]:
    """Times of the contenders that can run workload ``number`` of ``suite``, and why others cannot.

    check: is given what results are of, the results, and those of ``truth`` or whoever is there; it
    raises where they differ.
    """
    results, reasons = {}, {}
    for contender, worker in workers.items():
        try:
            results[contender] = worker.build(suite, number)
        except Unavailable as error:
            reasons[contender] = str(error)
    assert results, f"nobody can run {name}: {reasons}"
    expected = results.get(truth, next(reversed(results.values())))
    for contender, arrays in results.items():
        check(f"{name}, {contender}", arrays, expected)
    timings = interleave_batches([workers[contender].batch for contender in results], rounds)
    return dict(zip(results, timings, strict=True)), reasons


def check_close(name: str, results: Arrays, expected: Arrays, tolerance: float) -> None:
    """Raise unless the results agree to ``tolerance`` of the largest number of each array."""
    assert len(results) == len(expected) > 0, f"{name} gives {len(results)} of {len(expected)}"
    for k, (x, y) in enumerate(zip(results, expected, strict=True)):
        limit = tolerance * np.abs(y).max()
        np.testing.assert_allclose(x, y, rtol=0, atol=limit, err_msg=f"{name}, result {k}")


def rows(
    suite: str,
    name: str,
    threads: int,
    times: Times,
    reasons: Mapping[str, str],
    asked: float = COMPILED_AT_MOST,
) -> list[Row]:
    """Compiled beside the best peer, and eager beside torch's best eager form."""
    seconds = {each: t.median for each, t in times.items()}
    found = []
    for ours, peers, most in ((COMPILED, PEERS, asked), (EAGER, EAGER_PEERS, EAGER_AT_MOST)):
        if ours not in times:
            continue
        best = min((p for p in peers if p in times), key=lambda p: seconds[p], default=None)
        more: dict[str, Any] = {"threads": threads, "asked": most}
        if ours == COMPILED:
            more |= {"note": note(threads, times, reasons), "contenders": seconds}
        what = f"{name}, {ours.removeprefix('numbagrad ')} / {best or 'no peer'}"
        found.append(timed_row(suite, what, times[ours], times[best] if best else None, **more))
    return found


def note(threads: int, times: Times, reasons: Mapping[str, str]) -> str:
    """All figures of a workload, and who is missing, in a sentence."""
    figures = "; ".join(
        f"{name} {t.median * 1e6:.4g} ({t.best * 1e6:.4g})" for name, t in times.items()
    )
    missing = "".join(f"; no {name}: {reason}" for name, reason in reasons.items())
    return f"{threads} thread{'s' * (threads > 1)}, us, median (best): {figures}{missing}"


def measure(
    suite: Any, rounds: int, threads: tuple[int, ...] = (1, 2), only: str = ""
) -> list[Row]:
    """The rows of a module with ``SUITE``, ``WORKLOADS`` and ``build``.

    Workloads have a ``name``, a ``tolerance``, ``at_most``, the ratio to the best peer that is
    asked of what is compiled, and ``contenders``, the names of who may run them.
    """
    found: list[Row] = []
    for n in threads:
        names = dict.fromkeys(c for w in suite.WORKLOADS for c in w.contenders)
        workers = {name: Worker(name, n) for name in names}
        try:
            for i, workload in enumerate(suite.WORKLOADS):
                if only not in workload.name:
                    continue
                check = partial(check_close, tolerance=workload.tolerance)
                there = {name: workers[name] for name in workload.contenders}
                times, reasons = race(there, suite.SUITE, i, workload.name, check, rounds)
                asked = workload.at_most
                found += rows(suite.SUITE, workload.name, n, times, reasons, asked)
        finally:
            for worker in workers.values():
                worker.close()
    return in_order(found, suite.WORKLOADS)


def in_order(found: list[Row], workloads: Sequence[Any]) -> list[Row]:
    """The rows as their workloads stand, those of one side together."""
    order = [workload.name for workload in workloads]

    def key(row: Row) -> tuple[int, str, int]:
        return order.index(base(row.name)), row.name.partition(" / ")[0], row.threads

    return sorted(found, key=key)


def base(name: str) -> str:
    """The workload's name in a row's: without the peer, and without which side is ours."""
    workload = name.partition(" / ")[0]
    return workload.removesuffix(", compiled").removesuffix(", eager")
