"""``python -m benchmarks [suite ...]``: measure, print, keep it all in benchmarks/results.

First the rows of each suite, then one table of all workloads with the best peer. The picture of all
that is kept there is drawn anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
from types import ModuleType

from . import (
    call_cost,
    chain,
    cold,
    digits,
    elementwise,
    first_step,
    formula,
    functions,
    gemm,
    imports,
    in_place,
    indexing,
    layers,
    limits,
    linear,
    losses,
    mapped,
    memory,
    mixed,
    models,
    networks,
    op_cost,
    optimisers,
    overview,
    peak_memory,
    picture,
    products,
    race,
    reductions,
    report,
    small_ops,
    steps,
    training,
    transformer,
    transformer_step,
    unrolled,
)
from .case import Case, Row, check_equal, load_peer, timed_row
from .measure import interleave
from .processes import python

CASES = {
    "op_cost": op_cost,
    "small_ops": small_ops,
    "in_place": in_place,
    "linear": linear,
    "layers": layers,
    "training": training,
    "transformer": transformer,
    "call_cost": call_cost,
}
"""Both libraries in one process."""

RACES = {
    "elementwise": elementwise,
    "formula": formula,
    "losses": losses,
    "reductions": reductions,
    "indexing": indexing,
    "products": products,
    "optimisers": optimisers,
    "transformer_step": transformer_step,
    "mapped": mapped,
    "mixed": mixed,
}
"""Every contender in a process of its own."""

PROCESSES = {
    "limits": limits,
    "imports": imports,
    "first_step": first_step,
    "memory": memory,
    "steps": steps,
    "chain": chain,
    "peak_memory": peak_memory,
    "gemm": gemm,
    "digits": digits,
    "models": models,
    "networks": networks,
    "functions": functions,
    "unrolled": unrolled,
    "cold": cold,
}
"""Suites with a way of their own."""

SUITES = {**CASES, **RACES, **PROCESSES}

REST = 0.03
"""Seconds between two sides that have threads: see ``interleave``."""


def main() -> None:
    """Measure the suites named on the command line, by default all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="suite", help=", ".join(SUITES))
    parser.add_argument("--rounds", type=int, default=31, help="rounds of each case")
    parser.add_argument("--dry", action="store_true", help="leave benchmarks/results as it is")
    parser.add_argument("--worker", type=int, metavar="THREADS", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    unknown = set(parsed.suites) - set(SUITES)
    if unknown:
        parser.error(f"no suite {sorted(unknown)}; there are {', '.join(SUITES)}")
    if parsed.worker:
        print(json.dumps(measure_here(parsed.suites[0], parsed.worker, parsed.rounds)))
        return
    everything: list[Row] = []
    for suite in parsed.suites or SUITES:
        about = report.machine()
        rows = measure(suite, parsed.rounds)
        if not parsed.dry:
            report.write(suite, rows, about)
        everything += rows
    print(report.with_notes(everything), overview.text(overview.records(everything)), sep="\n\n")
    if not parsed.dry:
        picture.main()


def measure(suite: str, rounds: int) -> list[Row]:
    """The rows of ``suite``."""
    if suite in CASES:
        return measure_cases(suite, rounds)
    if suite in RACES:
        return race.measure(RACES[suite], rounds)
    timed = [rounds] if suite in ("steps", "limits") else []
    return PROCESSES[suite].measure(*timed)


def measure_cases(suite: str, rounds: int) -> list[Row]:
    """One process for each number of threads, both libraries in it."""
    rows = []
    for threads in sorted({n for case in CASES[suite].CASES for n in case.threads}):
        worker = ("-m", "benchmarks", suite, "--worker", str(threads), "--rounds", str(rounds))
        rows += [Row(**record) for record in python(*worker, threads=threads)]
    order = [case.name for case in CASES[suite].CASES]
    return sorted(rows, key=lambda row: (order.index(row.name), row.threads))


def measure_here(suite: str, threads: int, rounds: int) -> list[dict[str, object]]:
    """Time the cases of ``suite`` that ask for ``threads``, in this process."""
    ours, peer = importlib.import_module("numbagrad"), load_peer()
    if peer is not None:
        peer.set_num_threads(threads)
    cases = [case for case in CASES[suite].CASES if threads in case.threads]
    return [dataclasses.asdict(time_case(suite, c, ours, peer, threads, rounds)) for c in cases]


def time_case(
    suite: str, case: Case, ours: ModuleType, peer: ModuleType | None, threads: int, rounds: int
) -> Row:
    """One row, after both sides have shown the same results."""
    calls = [case.build(ours)]
    if peer is not None:
        calls.append(case.build(peer))
        check_equal(case, *calls)
    mine, *theirs = interleave(calls, rounds, rest=REST if threads > 1 else 0.0)
    return timed_row(
        suite,
        case.name,
        mine,
        theirs[0] if theirs else None,
        threads=threads,
        asked=case.at_most,
        asked_of_ratio=case.asked_of_ratio,
    )


if __name__ == "__main__":
    main()
