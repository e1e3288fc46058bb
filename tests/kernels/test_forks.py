"""Forks while other threads compile: a child may compile too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numba
import pytest

import numbagrad as ng
from numbagrad.kernels import store
from numbagrad.kernels.forks import COMPILING, LLVM

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")


def compiled_anew(k):
    function = numba.njit(lambda x: x * k + 1)
    return function(2.0) == 2.0 * k + 1 and float((ng.ones(2) * k).sum()) == 2 * k


def forked(work):
    """Whether ``work`` is done in a child, soon."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(not work())
    return os.waitpid(child, 0)[1] == 0


def main():
    """Forks in a process of its own: other tests have begun threads of libraries in this one."""
    done = threading.Event()
    # What threads import while a process forks is Python's affair, how Numba begins Numba's.
    assert compiled_anew(100) and [ng.ones(2).sum() for _ in range(20)]

    def compile_on():
        k = 0
        while not done.is_set():
            k += 1
            assert compiled_anew(k)

    thread = threading.Thread(target=compile_on)
    thread.start()
    try:
        assert all(forked(lambda k=k: compiled_anew(-k)) for k in range(1, 9))
    finally:
        done.set()
        thread.join()
    assert compiled_anew(-9)


def test_a_child_compiles_whatever_threads_did():
    subprocess.run([sys.executable, "-W", "ignore", __file__], check=True, timeout=300)


def test_a_child_has_none_of_the_locks():
    for lock in (store._loading, COMPILING, LLVM):
        assert forked(lambda lock=lock: lock.acquire(timeout=10))
        assert lock.acquire(timeout=10)
        lock.release()


ONE_PROCESSOR = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import numbagrad as ng
x = ng.ones(64, 70000)
(x * 2).sum()
if os.fork() == 0:
    os._exit(0)
os.wait()
assert (x * 2).exp()[0, 0].item() > 7
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no processors to choose from")
def test_a_process_of_one_processor_that_has_forked_ends():
    subprocess.run([sys.executable, "-W", "ignore", "-c", ONE_PROCESSOR], check=True, timeout=120)


if __name__ == "__main__":
    main()
