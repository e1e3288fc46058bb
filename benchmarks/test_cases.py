"""The same under pytest-benchmark: ``python -m pytest benchmarks`` compares libraries by group.

``--benchmark-only -k formula`` chooses. Here all libraries share a process, so what is kept is
measured by ``python -m benchmarks``; this is the quicker look.
"""

from __future__ import annotations

import importlib

import pytest

from . import race
from .__main__ import CASES, RACES
from .case import check_equal
from .libraries import COMPILED, EAGER, MODULES

EAGERLY = (COMPILED, EAGER, "torch", "jax.jit")
"""Who takes part in races here: torch.compile would turn gradients off for all."""

WORKLOADS = [work for suite in RACES.values() for work in suite.WORKLOADS]


@pytest.mark.parametrize("library", ["numbagrad", "torch"])
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name) for suite in CASES.values() for case in suite.CASES],
)
def test_case(case, library, benchmark):
    lib = pytest.importorskip(library)
    benchmark.group = case.name
    run = case.build(lib)
    if library == "torch":
        check_equal(case, case.build(importlib.import_module("numbagrad")), run)
    run()  # compiles, or loads what is compiled, before the number of rounds is chosen
    benchmark(run)


@pytest.mark.parametrize("contender", EAGERLY)
@pytest.mark.parametrize("work", [pytest.param(work, id=work.name) for work in WORKLOADS])
def test_workload(work, contender, benchmark):
    module = MODULES.get(contender)
    if module is not None:
        pytest.importorskip(module)
    benchmark.group = work.name
    run, results = work.build(contender, 1)
    _, of_eager = work.build(EAGER, 1)
    race.check_close(f"{work.name}, {contender}", results(), of_eager(), work.tolerance)
    benchmark(run)
