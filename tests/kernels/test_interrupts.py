"""Ctrl-C while kernels are compiled and functions recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numba
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.compiled.before import Before
from numbagrad.kernels import store
from numbagrad.kernels.interrupts import held, interruptible


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def python_handles_it():
    there = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, there) is signal.default_int_handler


def test_the_first_waits_and_the_second_does_not():
    seen = []
    with pytest.raises(KeyboardInterrupt), held():
        interrupt()
        seen.append("after the first")
        with held():
            seen.append("in another")
    with pytest.raises(KeyboardInterrupt), held():
        interrupt()
        interrupt()
        seen.append("after the second")
    with held():
        seen.append("nobody asked")
    assert seen == ["after the first", "in another", "nobody asked"]


def test_what_is_interruptible():
    seen = []

    def asked():
        interrupt()
        seen.append("after it")

    with pytest.raises(KeyboardInterrupt), held():
        interruptible(asked)
    with pytest.raises(KeyboardInterrupt), held():
        interrupt()
        interruptible(seen.append, "never")
    with held():
        assert interruptible(max, 1, 2) == 2
    assert not seen


def test_others_handlers_and_threads_are_left_alone():
    seen = []
    signal.signal(signal.SIGINT, lambda *_: seen.append("theirs"))
    with held():
        interrupt()
        assert seen == ["theirs"]
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def inside():
        with held():
            seen.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == ["theirs", True]


def test_a_handler_that_a_function_puts_in_stays():
    def theirs(*_):
        """Nothing."""

    with held():
        interruptible(signal.signal, signal.SIGINT, theirs)
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is theirs


def test_the_handler_put_in_elsewhere_is_as_pythons():
    with held():
        ours = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, ours)  # as one who puts back what was there
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with held():
        """Nobody has asked since."""


def test_a_second_one_at_the_very_end_leaves_nothing_behind(monkeypatch):
    put = signal.signal

    def interrupted(number, handler):
        found = put(number, handler)
        if handler is signal.default_int_handler:
            interrupt()
        return found

    with pytest.raises(KeyboardInterrupt), held():
        monkeypatch.setattr(signal, "signal", interrupted)
        interrupt()
    monkeypatch.undo()
    with held():
        """Nobody has asked since."""


def test_a_generated_module_is_whole_or_not_there():
    text = "import signal\nsignal.raise_signal(signal.SIGINT)\nafter = 1\n"
    with pytest.raises(KeyboardInterrupt):
        store.load_source(text, "interrupted")
    assert store.load_source(text, "interrupted").after == 1
    broken = "raise SystemExit"
    for _ in range(2):
        with pytest.raises(SystemExit):
            store.load_source(broken, "broken")


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_kernel_is_compiled_to_the_end(monkeypatch):
    text = f"def interrupted(x):\n    return x + {os.getpid()}\n"
    kernel, believed = store.compile_source(text, "interrupted"), store._believe_in_blas
    monkeypatch.setattr(store, "_believe_in_blas", interrupt)
    with pytest.raises(KeyboardInterrupt):
        kernel(1)
    monkeypatch.setattr(store, "_believe_in_blas", believed)
    assert len(kernel.signatures) == 1
    assert kernel(1) == 1 + os.getpid()


def made():
    ng.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    optimizer = ng.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    asked = []

    @ng.compile
    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        if asked and type(loss._array).__name__ != "ndarray":
            interrupt()
        return loss

    return net, step, asked


def test_a_recording_that_is_interrupted_changes_nothing(monkeypatch):
    x = ng.ones(2, 4)
    net, step, _ = made()
    expected = [step(x).item() for _ in range(4)]

    net, step, asked = made()
    losses = [step(x).item()]
    weights = [p.tolist() for p in net.parameters()]
    restore, count = Before.restore, []

    def interrupting(before, recorder):
        count.append(before)
        if len(count) == 2:
            interrupt()
        return restore(before, recorder)

    step.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(Before, "restore", interrupting)
        with pytest.raises(KeyboardInterrupt):
            step(x)
    assert [p.tolist() for p in net.parameters()] == weights
    losses.append(step(x).item())
    step.cache_clear()
    asked.append(True)
    with pytest.raises(KeyboardInterrupt):
        step(x)
    asked.clear()
    losses += [step(x).item() for _ in range(2)]
    assert losses == expected


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no timers of this kind")
def test_interrupts_at_any_time_leave_a_step_that_runs(tmp_path):
    code = (
        "import random, signal, time\n"
        "import numbagrad as ng\n"
        "from numbagrad import nn\n"
        "random.seed(5)\n"
        "net = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3))\n"
        "optimizer = ng.optim.SGD(net.parameters(), lr=0.01)\n"
        "@ng.compile\n"
        "def step(x):\n"
        "    optimizer.zero_grad()\n"
        "    loss = net(x).square().mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    return loss\n"
        "x, last = ng.ones(8, 4), 0\n"
        "def ask(*_):\n"
        "    if calling:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "calling = False\n"
        "signal.signal(signal.SIGALRM, ask)\n"
        "for k in range(20):\n"
        "    try:\n"
        "        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.25))\n"
        "        calling = True\n"
        "        for _ in range(50):\n"
        "            step(x)\n"
        "        calling = False\n"
        "    except KeyboardInterrupt:\n"
        "        calling = False\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "losses = [step(x).item() for _ in range(10)]\n"
        "assert losses == sorted(losses, reverse=True), losses\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
