"""The benchmarks' own rules: equal results before time counts, honest ratios, every case runs."""

from __future__ import annotations

import json

import pytest

import numbagrad as ng
from benchmarks import report
from benchmarks.__main__ import CASES, time_case
from benchmarks.case import Case, Row, check_equal
from benchmarks.measure import interleave, summary

EVERY = [pytest.param(case, id=case.name) for suite in CASES.values() for case in suite.CASES]
SMALL = [case for case in EVERY if "1024" not in case.id and "784" not in case.id]


@pytest.mark.parametrize("case", SMALL)
def test_every_case_runs(case):
    results = case.build(ng)()
    assert results
    assert all(ng.isfinite(result).all().item() for result in results)


@pytest.mark.peer
@pytest.mark.parametrize("case", EVERY)
def test_every_case_gives_what_torch_gives(case):
    torch = pytest.importorskip("torch")
    check_equal(case, case.build(ng), case.build(torch))


def test_results_that_differ_by_a_thousandth_are_not_timed():
    case = Case("half", lambda lib: lambda: (lib.tensor([0.5]),))
    wrong = lambda: (ng.tensor([0.5005]),)  # noqa: E731
    check_equal(case, case.build(ng), case.build(ng))
    with pytest.raises(AssertionError, match="half, result 0"):
        check_equal(case, case.build(ng), wrong)


def test_rounds_are_interleaved_from_both_ends():
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    first, second = interleave(calls, rounds=2, round_seconds=0.0)
    # Calibration first, then a warm call and a timed one of each side, in turn and in reverse.
    assert "".join(order[-8:]) == "aabbbbaa"
    assert first.best > 0 and second.best > 0


def test_summary_is_the_median_the_quartile_distance_and_the_least():
    timing = summary([5.0, 1.0, 2.0, 3.0, 100.0])
    assert (timing.median, timing.spread, timing.best) == (3.0, 3.0, 1.0)


@pytest.mark.parametrize(
    "row, met",
    [
        (Row("s", "n", "s", 0.7, peer=1.0, asked=0.7), True),
        (Row("s", "n", "s", 0.71, peer=1.0, asked=0.7), False),
        (Row("s", "n", "s", 0.71, asked=0.7), None),
        (Row("s", "n", "s", 1.4, peer=1.0, asked=1.5, asked_of_ratio=False), True),
        (Row("s", "n", "s", 1.6, peer=9.0, asked=1.5, asked_of_ratio=False), False),
        (Row("s", "n", "s", 1.0, peer=1.0), None),
    ],
)
def test_a_figure_is_met_missed_or_not_asked(row, met):
    assert row.met is met


def test_without_the_peer_its_columns_are_empty():
    case = Case("nothing", lambda lib: lambda: (), at_most=0.5)
    row = time_case("suite", case, ng, None, threads=1, rounds=2)
    assert row.peer is None and row.ratio is None and row.met is None
    assert "|      |" in report.table([row])


def test_results_are_kept_as_json_and_markdown(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    row = Row("suite", "case", "s", 2e-6, 1e-7, peer=1e-6, asked=0.7, note="why")
    report.write("suite", [row], {"cpu": "some"})
    kept = json.loads((tmp_path / "suite.json").read_text())
    assert kept["rows"][0]["ratio"] == 2.0 and kept["rows"][0]["met"] is False
    text = (tmp_path / "suite.md").read_text()
    assert "MISSED" in text and "2 ± 0.1 us" in text and "- case: why" in text
