"""PyTorch's ways to say what is profiled: schedules, steps, regions, tables of averages."""

import json

import pytest

import numbagrad as ng
from numbagrad import profiler

X = ng.ones(8, 8)


def regions(p):
    return [e.name for e in p.events if e.kind == "region"]


def run(p, steps):
    for k in range(steps):
        with profiler.record_function(f"step {k}"):
            X @ X
        p.step()


def test_a_schedule_hands_over_each_round():
    plan = profiler.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    seen = []
    with profiler.profile(schedule=plan, on_trace_ready=lambda p: seen.append(regions(p))) as p:
        run(p, 12)
    assert seen == [["step 3", "step 4"], ["step 7", "step 8"]] and p.step_num == 12
    assert len([e for e in p.events if e.kind == "product"]) == 2


def test_rounds_add_up_and_the_end_hands_over():
    plan = profiler.schedule(wait=0, warmup=0, active=2, skip_first_wait=1)
    seen = []
    with profiler.profile(schedule=plan, on_trace_ready=seen.append, acc_events=True) as p:
        run(p, 3)
    assert seen == [p, p] and regions(p) == ["step 0", "step 1", "step 2"]


def test_schedules_are_torchs():
    torch = pytest.importorskip("torch")
    for how in ({}, {"repeat": 2}, {"skip_first": 3}, {"skip_first": 1, "skip_first_wait": 1}):
        how = {"wait": 2, "warmup": 1, "active": 2, **how}
        mine, his = profiler.schedule(**how), torch.profiler.schedule(**how)
        assert [mine(k).name for k in range(20)] == [his(k).name for k in range(20)]
    with pytest.raises(ValueError, match="active at least 1"):
        profiler.schedule(wait=1, warmup=0, active=0)


def test_start_and_stop_and_traces(tmp_path):
    p = profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA],
        on_trace_ready=profiler.tensorboard_trace_handler(str(tmp_path / "log"), "me"),
        with_stack=True,
        with_flops=True,
    )
    p.start()
    X @ X
    p.stop()
    X @ X
    (path,) = (tmp_path / "log").glob("me.*.pt.trace.json")
    assert len(json.loads(path.read_text())["traceEvents"]) == len(p.events) > 0
    assert len([e for e in p.events if e.kind == "product"]) == 1
    with pytest.raises(ValueError, match="not packed"):
        profiler.tensorboard_trace_handler("log", use_gzip=True)


def test_averages_as_torchs_programs_print_them():
    @profiler.record_function("whole")
    def whole():
        return (X @ X).relu()

    with profiler.profile() as p:
        whole()
        ng.compile(whole)()
    rows = p.key_averages()
    assert {"mm", "relu", "whole"} <= {row.name for row in rows}
    assert next(row for row in rows if row.name == "whole").calls == 1
    text = rows.table(sort_by="self_cpu_time_total", row_limit=2)
    assert len(text.split("\n\n")[1].splitlines()) == 3
    assert "test_profiler_schedule.py" in p.key_averages(group_by_stack_n=5).table(row_limit=-1)


@pytest.mark.parametrize("compiled", [False, True])
def test_calls_are_told_apart_by_the_shapes_of_their_arrays(compiled):
    product = ng.compile(lambda x, y: x @ y) if compiled else ng.matmul
    given = [(ng.ones(k, 64), ng.ones(64, 48)) for k in (32, 96)]
    for pair in given:
        product(*pair)
    with profiler.profile(record_shapes=True) as p:
        for pair in given:
            product(*pair)
    rows = p.key_averages(group_by_input_shape=True)
    names = {row.name for row in rows if row.kind == "product"}
    assert {name.partition(" ")[2] for name in names} == {
        "(32, 48) (32, 64) (64, 48)",
        "(96, 48) (96, 64) (64, 48)",
    }
    assert "(96, 64)" in rows.table()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"with_modules": True}, "with_modules is not written down"),
        ({"profile_memory": True}, "profile_memory is not written down"),
        ({"activities": ["XPU"]}, "activities are CPU and CUDA, got 'XPU'"),
    ],
)
def test_what_is_not_written_down_is_refused(option, words):
    with pytest.raises(ValueError, match=words):
        profiler.profile(**option)
