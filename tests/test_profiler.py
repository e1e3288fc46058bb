"""``ng.profiler.profile``: what it sees, eager and compiled, what it says, and what it leaves."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError
from numbagrad.kernels import machine
from numbagrad.kernels.clock import Clock


def two_layers():
    ng.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = ng.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


X, Y = ng.ones(32, 8), ng.zeros(32, dtype=ng.int64)


def inside(p):
    return [e for e in p.events if e.kind in ("kernel", "product", "loop")]


def test_eager_kernels_by_op_with_bytes_and_flops():
    x, w = ng.ones(64, 32, requires_grad=True), ng.ones(32, 16)
    with ng.profiler.profile() as p:
        (x @ w).exp().sum().backward()
    names = [e.name for e in inside(p)]
    assert names[:3] == ["mm", "exp", "sum"]
    assert any(n.startswith("ExpBackward.") for n in names)
    product = next(e for e in p.events if e.name == "mm")
    assert (product.kind, product.flops) == ("product", 2 * 64 * 32 * 16)
    assert product.nbytes == 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert product.where is not None and 0 < product.seconds < p.seconds
    assert all(a.start <= b.start for a, b in zip(p.events, p.events[1:], strict=False))


def test_a_compiled_step_is_looked_into_and_right():
    model, step = two_layers()
    twin, plain = two_layers()
    compiled = ng.compile(step)
    compiled(X, Y), plain(X, Y)
    with ng.profiler.profile() as p:
        for _ in range(3):
            compiled(X, Y), plain(X, Y)
    compiled(X, Y), plain(X, Y)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)
    calls = [e for e in p.events if e.kind == "call"]
    assert [e.name for e in calls] == ["step"] * 3
    gaps = []
    for call in calls:
        parts = [
            e
            for e in inside(p)
            if call.start <= e.start and e.start + e.seconds <= call.start + call.seconds + 1e-9
        ]
        assert {e.kind for e in parts} >= {"product", "kernel"}
        assert any("cross_entropy" in e.name for e in parts)
        gaps.append(abs(sum(e.seconds for e in parts) - call.seconds))
    assert min(gaps) < 1e-6  # the machine may take a core away in the midst of a call
    flops = sum(e.flops or 0 for e in inside(p) if e.kind == "product")
    assert flops >= 3 * 2 * 32 * (8 * 16 * 2 + 16 * 4 * 3)


def test_the_gradient_of_a_compiled_function_is_timed_too():
    function = ng.compile(lambda x: (x * 2).tanh().sum())
    with ng.profiler.profile() as p:
        x = ng.ones(100, requires_grad=True)
        function(x).backward()
    assert [e.name for e in p.events if e.kind == "call"] == ["function", "function_backward"]
    expected = 2 * (1 - np.tanh(2.0) ** 2)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)


def test_table_html_and_averages():
    x = ng.ones(50, 50)
    with ng.profiler.profile() as p:
        for _ in range(4):
            x = (x @ x).relu()
    averages = {a.name: a for a in p.averages(limits=False) if a.kind not in ("compile", "load")}
    assert set(averages) == {"mm", "relu"} and averages["mm"].calls == 4
    assert averages["mm"].flops == 4 * 2 * 50**3 and averages["mm"].flop_rate > 0
    text = repr(p)
    head = next(line for line in text.splitlines() if "GFLOP/s" in line)
    assert head.split() == "name calls time share mean bytes GB/s GFLOP/s limit".split()
    assert "8 kernels took" in text
    assert "<table>" in p._repr_html_() and "relu" in p._repr_html_()
    lines = [a.name for a in p.averages("line", limits=False)]
    assert any(name.startswith("mm at test_profiler.py:") for name in lines)
    assert "mm" in [a.name for a in p.averages("kernel", limits=False)]
    with pytest.raises(ValueError, match="is 'op', 'kernel', 'line' or 'shape', not 'size'"):
        p.averages("size")


def test_chrome_trace(tmp_path):
    with ng.profiler.profile() as p:
        ng.ones(10).exp()
    path = tmp_path / "trace.json"
    p.export_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    found = next(e for e in events if e["name"] == "exp")
    assert found["ph"] == "X" and found["dur"] > 0 and found["args"]["bytes"] == 80
    assert found["args"]["line"].split(":")[0].endswith("test_profiler.py")


def test_nothing_stays_behind():
    _, step = two_layers()
    compiled = ng.compile(step)
    compiled(X, Y)
    with pytest.raises(ZeroDivisionError), ng.profiler.profile() as p:
        compiled(X, Y)
        raise ZeroDivisionError
    assert any(e.kind == "call" for e in p.events)
    count = len(p.events)
    compiled(X, Y)
    ng.ones(3).exp()
    assert len(p.events) == count
    assert not ng.kernels.machine.is_recording()


def test_empty_and_nested():
    with ng.profiler.profile() as p:
        pass
    assert p.averages() == [] and "0 kernels" in repr(p)
    with ng.profiler.profile() as outer:
        ng.ones(3).exp()
        with ng.profiler.profile() as inner:
            ng.ones(3).log()
        ng.ones(3).sin()
    assert [e.name for e in inside(inner)] == ["fill", "log"]
    assert "log" not in [e.name for e in inside(outer)]
    assert {"exp", "sin"} <= {e.name for e in inside(outer)}


def test_inside_of_a_compiled_function_it_refuses():
    @ng.compile
    def f(x):
        with ng.profiler.profile():
            return x + 1

    with pytest.raises(RecordingError, match="profile: not possible inside a compiled function"):
        f(ng.ones(3))


def test_the_clock_agrees_with_python():
    clock = Clock()
    first = clock._now()
    rate, offset = clock.seconds()
    at, seconds = clock._now()
    assert abs(rate * at + offset - seconds) < 1e-3
    assert at > first[0]


def test_in_plain_python():
    """Without a JIT the same events are there."""
    text = """
import numbagrad as ng
f = ng.compile(lambda x: (x @ x).tanh().sum())
with ng.profiler.profile() as p:
    f(ng.ones(4, 4)), ng.ones(3).exp()
assert [e.name for e in p.events if e.kind == "call"] == ["function"], p.events
assert "exp" in [e.name for e in p.events]
"""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", text], check=True, env=environment)


def double(out, x):
    for i in range(out.size):
        out[i] = 2 * x[i]


def test_what_the_cache_gave_is_no_time_of_a_kernel():
    x = np.ones(3)
    machine.launch(machine.kernel(double), np.empty(3), x)  # now its code is on disk
    again = machine.kernel(double)
    with ng.profiler.profile() as p:
        machine.launch(again, np.empty(3), x)
        machine.launch(again, np.empty(3), x)
    loads = [e for e in p.events if e.kind == "load"]
    assert [e.name for e in loads] == ["load double"]
    runs = inside(p)
    assert [e.name for e in runs] == ["double", "double"]
    assert "1 cache load took" in str(p) and "a second run has it no more" in str(p)
    load = next(a for a in p.averages(limits=False) if a.kind == "load")
    assert (load.calls, load.seconds) == (1, loads[0].seconds)
    assert loads[0].start >= runs[0].start
