"""Whole training steps: compiled numbagrad beside its limit written by hand and its best peer.

Every contender runs in a process of its own on the same data from the same weights; after
``workers.STEPS`` steps the weights must agree, then the rounds of all are interleaved.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from . import race
from .case import Row, timed_row
from .contenders import CONTENDERS, Step
from .libraries import COMPILED, HANDWRITTEN
from .nets import NETS, LeNet
from .workers import Worker

SUITE = "steps"
THREADS = (1, 2)
AT_MOST_BY_HAND = 1.2


def build(contender: str, number: int, threads: int) -> Step:
    """The call of one step of ``NETS[number]``, and what returns the weights."""
    return CONTENDERS[contender](NETS[number], threads)


def measure(rounds: int = 31) -> list[Row]:
    """Rows for each net and number of threads against the peers, and one against the limit
    where there is one."""
    rows: list[Row] = []
    for threads in THREADS:
        workers = {name: Worker(name, threads) for name in CONTENDERS}
        try:
            for i in range(len(NETS)):
                rows += _measure_net(i, threads, workers, rounds)
        finally:
            for worker in workers.values():
                worker.close()
    return race.in_order(rows, NETS)


def _measure_net(i: int, threads: int, workers: dict[str, Worker], rounds: int) -> list[Row]:
    net = NETS[i]
    check = partial(check_weights, start=net.weights())
    truth = "torch" if isinstance(net, LeNet) else HANDWRITTEN
    times, reasons = race.race(workers, SUITE, i, net.name, check, rounds, truth)
    rows = race.rows(SUITE, net.name, threads, times, reasons, net.at_most)
    if HANDWRITTEN in times:
        pair = times[COMPILED], times[HANDWRITTEN]
        name = f"{net.name} / by hand"
        rows.append(timed_row(SUITE, name, *pair, threads=threads, asked=AT_MOST_BY_HAND))
    return rows


def check_weights(
    name: str, values: list[np.ndarray], expected: list[np.ndarray], start: list[np.ndarray]
) -> None:
    """Raise unless the weights agree to 1e-4, and what training has changed in them to 1e-2.

    The change is small beside the weights, whose rounding therefore shows in it.
    """
    for k, (x, y, before) in enumerate(zip(values, expected, start, strict=True)):
        change, most = np.abs(y - before).max(), np.abs(y).max()
        np.testing.assert_array_less(0.0, change, err_msg=f"{name} has not trained array {k}")
        limit = min(1e-4 * most, 1e-2 * change)
        np.testing.assert_allclose(x, y, rtol=0, atol=limit, err_msg=f"{name}, array {k}")
