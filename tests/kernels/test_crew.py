"""The threads that share loops: every part once, whoever sleeps, is busy, or is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numba
import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels import crew, outline, store

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="prange is range then"),
    pytest.mark.skipif(not crew.AVAILABLE, reason="loops go to Numba's pool here"),
]

COUNT = """
from numba import prange

def count(out, by):
    for i in prange(out.shape[0]):
        out[i] += by
"""

WHO = """
from numba import prange, types
me = types.ExternalFunction("pthread_self", types.int64())
rest = types.ExternalFunction("usleep", types.int32(types.uint32))

def who(out, by):
    for i in prange(out.shape[0]):
        rest(by)
        out[i] = me()
"""


@pytest.fixture(autouse=True)
def most_threads():
    before = ng.get_num_threads()
    ng.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    yield
    ng.set_num_threads(before)


def counting():
    return store.compile_source(COUNT, "count", parallel=True)


def test_workers_that_sleep_are_woken():
    run, out = counting(), np.zeros(1000)
    for _ in range(20):
        run(out, 1.0)
        time.sleep(0.02)
    assert (out == 20).all()


def workers_take_part():
    """Whether another thread runs a part, where the caller needs 50 ms for its own."""
    run, out = store.compile_source(WHO, "who", parallel=True), np.zeros(2, np.int64)
    for _ in range(5):  # once in five, for another process may have the core
        run(out, 50_000)
        if out[0] != out[1]:
            return True
    return False


two_threads = pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="there is one thread")


@two_threads
def test_workers_that_sleep_take_part_once_woken():
    assert workers_take_part()
    time.sleep(0.2)  # some 5 ms until they sleep
    assert workers_take_part()


@two_threads
def test_workers_of_a_child_of_a_fork_take_part():
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    assert workers_take_part()
    child = os.fork()
    if child == 0:
        os._exit(0 if workers_take_part() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_loops_one_after_the_other():
    run, out = counting(), np.zeros(64)
    for _ in range(20_000):
        run(out, 1.0)
    assert (out == 20_000).all()


def test_threads_that_come_at_a_time():
    run, outs = counting(), [np.zeros(n) for n in (3, 64, 1000, 5000)]

    def several(out):
        for _ in range(2000):
            run(out, 1.0)

    threads = [threading.Thread(target=several, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((out == 2000).all() for out in outs)


def test_a_child_of_a_fork_has_workers_of_its_own():
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    run, out = counting(), np.zeros(1000)
    run(out, 1.0)
    child = os.fork()
    if child == 0:
        for _ in range(100):
            run(out, 1.0)
        os._exit(0 if (out == 101).all() else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    run(out, 1.0)
    assert (out == 2).all()


CROWDED = """
import threading
import numpy as np
import numbagrad as ng
from numbagrad.kernels import store
run = store.compile_source({text!r}, "count", parallel=True)
outs = [np.zeros(n) for n in (1, 2, 3, 7, 8, 9, 100, 4001)]
for threads in (1, 2, 3, 8, 5, 8):
    ng.set_num_threads(threads)
    for _ in range(300):
        for out in outs:
            run(out, 1.0)
assert all((out == 1800).all() for out in outs)
pid = __import__("os").fork()
run(outs[-1], 1.0)
if pid == 0:
    __import__("os")._exit(0 if (outs[-1] == 1801).all() else 1)
assert __import__("os").waitpid(pid, 0)[1] == 0
print("done")
"""


def test_more_threads_than_cores_and_the_end_of_the_process():
    """The last loop is over a moment before Python ends, while the workers are awake."""
    environment = os.environ | {"NUMBA_NUM_THREADS": "8"}
    found = subprocess.run(
        [sys.executable, "-c", CROWDED.format(text=COUNT)],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (0, "done\n"), found.stderr


def test_without_a_crew_loops_go_to_the_pool_of_numba(monkeypatch):
    monkeypatch.setattr(outline, "AVAILABLE", False)
    text = COUNT.replace("+= by", f"+= 2 * by + 0.0 * {time.time_ns()}")  # compiled now
    run, out = store.compile_source(text, "count", parallel=True), np.zeros(1001)
    for _ in range(10):
        run(out, 1.0)
    assert (out == 20).all()
    assert "numba_parallel_for" in next(iter(run.inspect_llvm().values()))
