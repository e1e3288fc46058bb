"""The same cases under pytest-benchmark: ``python -m pytest benchmarks`` compares them by group."""

from __future__ import annotations

import importlib

import pytest

from .__main__ import CASES
from .case import check_equal


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
    benchmark(run)
