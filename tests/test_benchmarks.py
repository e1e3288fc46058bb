"""The benchmarks' own rules: equal results before time counts, honest ratios, every case runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

import numbagrad as ng
from benchmarks import cold, report, ulp
from benchmarks.__main__ import CASES, time_case
from benchmarks.case import Case, Row, check_equal
from benchmarks.contenders import CONTENDERS
from benchmarks.libraries import COMPILED
from benchmarks.measure import interleave, summary
from benchmarks.nets import NETS
from benchmarks.steps import check_weights
from benchmarks.workers import STEPS, Unavailable, Worker

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


def test_errors_are_counted_in_units_of_the_exact_result():
    compare = ulp._comparison("float32")
    truth = np.array([1.0, 1.0, 0.0, np.inf, np.nan, 2.0, 1e-45])
    tail = np.array([0.0, 2.0**-24, 0.0, 0.0, 0.0, 0.0, 0.0])
    got = np.array([1 + 2.0**-22, 1, 0, np.inf, np.nan, 2, 0], np.float32)
    units, place, wrong = compare(got, truth, tail)
    assert (units, place, wrong) == (2.0, 0, 0)
    got[0], got[2:5] = 1, [1, -np.inf, 0]
    units, place, wrong = compare(got, truth, tail)
    assert (round(units, 2), place, wrong) == (0.71, 6, 3)
    got[2] = -0.0  # a zero of the wrong sign
    assert compare(got, truth, tail)[2] == 3


@pytest.mark.parametrize("name", ulp.NAMES)
def test_functions_are_within_two_units_of_a_share_of_float32(name):
    """All of them are looked at by ``python -m benchmarks.ulp``."""
    worst = ulp.check(name, "float32", share=99_991)
    assert worst.inputs >= (4096 if name in ulp.OF_TWO else -(-(1 << 32) // 99_991))
    assert worst.wrong == 0
    assert worst.units <= 2


@pytest.mark.parametrize(
    "net,threads",
    [*[(net, 1) for net in NETS[:4]], (NETS[0], 2)],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_step_by_hand_trains_as_the_eager_one_does(net, threads):
    weights = {}
    for name in ("handwritten", "numbagrad eager"):
        run, of = CONTENDERS[name](net, threads)
        losses = [float(run()) for _ in range(STEPS)]
        weights[name] = [w.copy() for w in of()]
        weights[name].append(np.array(losses))
    for x, y in zip(*weights.values(), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)
    check_weights(net.name, *[values[:-1] for values in weights.values()], net.weights())


@pytest.mark.peer
@pytest.mark.parametrize(
    "number,ours,name,module",
    [
        (2, "handwritten", "torch", "torch"),
        (2, "handwritten", "jax.jit", "jax"),
        (2, "handwritten", "HIPS autograd", "autograd"),
        (2, "handwritten", "mygrad", "mygrad"),
        (-1, "numbagrad eager", "torch", "torch"),
    ],
)
def test_peers_train_the_same_weights(number, ours, name, module):
    pytest.importorskip(module)
    net = NETS[number]
    weights = []
    for each in (ours, name):
        run, of = CONTENDERS[each](net, 1)
        for _ in range(STEPS):
            run()
        weights.append(of())
    check_weights(net.name, *weights, net.weights())


def test_a_contender_whose_learning_rate_is_wrong_is_not_timed():
    start = [np.ones(3, np.float32)]
    right = [np.float32([0.9999, 1.0002, 1.0])]
    check_weights("right", right, right, start)
    wrong = [start[0] + (right[0] - start[0]) * np.float32(1.02)]
    with pytest.raises(AssertionError, match="wrong, array 0"):
        check_weights("wrong", wrong, right, start)
    with pytest.raises(AssertionError, match="has not trained"):
        check_weights("idle", start, start, start)


def test_a_contender_that_is_not_there_says_why():
    worker = Worker("nothing", 1)
    try:
        with pytest.raises(Unavailable, match="KeyError"):
            worker.build("steps", 0)
    finally:
        worker.close()


def test_a_cold_start_takes_longer_than_a_warm_one(tmp_path):
    first, again = (cold.seconds(COMPILED, "steps", 0, str(tmp_path)) for _ in range(2))
    assert first > again > 0
    with pytest.raises(RuntimeError, match="autograd"):
        cold.seconds("HIPS autograd", "transformer_step", 0, str(tmp_path))
