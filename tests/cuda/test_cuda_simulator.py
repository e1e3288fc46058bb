"""Numba's simulator as ``runtime/simulator.py`` mends it."""

from __future__ import annotations

import numpy as np
import pytest

from numbagrad.kernels.cuda.runtime import device, simulator

pytestmark = pytest.mark.skipif(not device.simulating(), reason="no simulator")
if device.simulating():
    simulator.mend()

cuda = pytest.importorskip("numba.cuda")  # the simulator wants it as a global name


@cuda.jit
def turned(out, x, waits):
    shared = cuda.shared.array(8, np.float32)
    i = cuda.threadIdx.x
    shared[i] = 0
    cuda.syncthreads()
    shared[i] = x[i]
    if waits:
        cuda.syncthreads()
    out[i] = shared[7 - i]


@cuda.jit
def counted(out, x):
    i = cuda.threadIdx.x + 2 * cuda.threadIdx.y
    if i < 5:  # the others have ended when these meet
        out[cuda.blockIdx.x, i] = cuda.syncthreads_count(x[i] > 0)


@cuda.jit
def fails_late(x):
    cuda.syncthreads()
    if cuda.threadIdx.x == 2:
        x[100] = 1
    cuda.syncthreads()


def test_a_barrier_that_is_missing_shows():
    pytest.importorskip("greenlet")
    x, out = np.arange(8, dtype=np.float32) + 1, np.empty(8, np.float32)
    turned[1, 8](out, x, True)
    assert out.tolist() == x[::-1].tolist()
    turned[1, 8](out, x, False)
    assert sorted(out.tolist()) == [0, 0, 0, 0, *sorted(out.tolist())[4:]] and out.sum() > 0


def test_threads_of_two_dimensions_vote():
    out = np.zeros((2, 5), np.int64)
    counted[2, (2, 3)](out, np.array([1.0, -1.0, 2.0, 3.0, -4.0, 5.0]))
    assert out.tolist() == [[3] * 5] * 2


def test_an_error_names_its_thread_and_the_next_kernel_runs():
    with pytest.raises(IndexError, match=r"tid=\[2, 0, 0\] ctaid=\[0, 0, 0\]"):
        fails_late[1, 4](np.zeros(4, np.float32))
    test_threads_of_two_dimensions_vote()
