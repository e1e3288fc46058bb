"""Whole training steps: compiled numbagrad beside its limit written by hand and its best peer.

Every contender runs in a process of its own on the same data from the same weights; after
``STEPS`` steps the weights must agree, then the rounds of all are interleaved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import Row, timed_row
from .contenders import PEERS
from .measure import Timing, interleave_batches
from .nets import NETS
from .workers import Unavailable, Worker

SUITE = "steps"
STEPS = 5
THREADS = (1, 2)
OURS = ("numbagrad compiled", "numbagrad eager")
LIMIT, AT_MOST_LIMIT = "handwritten", 1.2


def measure(rounds: int = 31) -> list[Row]:
    """A row for each net and number of threads against the best peer, and one against the limit
    where there is one."""
    rows: list[Row] = []
    for threads in THREADS:
        workers = {name: Worker(name, threads) for name in (*OURS, LIMIT, *PEERS)}
        try:
            for i, net in enumerate(NETS):
                rows += _rows(net, threads, *_measure_net(i, workers, rounds))
        finally:
            for worker in workers.values():
                worker.close()
    order = {net.name: i for i, net in enumerate(NETS)}
    return sorted(rows, key=lambda row: (order[row.name.split(" / ")[0]], row.name, row.threads))


def _measure_net(
    i: int, workers: dict[str, Worker], rounds: int
) -> tuple[dict[str, Timing], dict[str, str]]:
    """Times of the contenders that can be measured, and why the others cannot."""
    weights, reasons = {}, {}
    for name, worker in workers.items():
        try:
            weights[name] = worker.train(i, STEPS)
        except Unavailable as error:
            reasons[name] = str(error)
    truth = weights[LIMIT if LIMIT in weights else "torch"]
    for name, values in weights.items():
        check_weights(f"{NETS[i].name}, {name}", values, truth, NETS[i].weights())
    timings = interleave_batches([workers[name].batch for name in weights], rounds)
    return dict(zip(weights, timings, strict=True)), reasons


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


def _rows(net: Any, threads: int, timings: dict[str, Timing], reasons: dict[str, str]) -> list[Row]:
    ours = next(name for name in OURS if name in timings)
    peers = {name: timings[name] for name in PEERS if name in timings}
    best = min(peers, key=lambda name: peers[name].median, default=None)
    figures = "; ".join(
        f"{name} {t.median * 1e6:.4g} ({t.best * 1e6:.4g})" for name, t in timings.items()
    )
    missing = "".join(f"; no {name}: {reason}" for name, reason in reasons.items())
    note = f"{threads} thread{'s' * (threads > 1)}, us, median (best): {figures}{missing}"
    rows = []
    if LIMIT in timings:
        rows.append(
            timed_row(
                *(SUITE, f"{net.name} / by hand", timings[ours], timings[LIMIT]),
                threads=threads,
                asked=AT_MOST_LIMIT,
            )
        )
    to_peer = timed_row(
        *(SUITE, f"{net.name} / {best or 'no peer'}", timings[ours]),
        peers[best] if best else None,
        threads=threads,
        asked=net.at_most,
        note=note,
    )
    return [*rows, to_peer]
