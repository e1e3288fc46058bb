"""Kernels that are wrong on purpose: the machine for PTX must say so, and name where.

They are compiled by NVIDIA's compiler, as numbagrad's are; each has a right form beside it.
"""

from __future__ import annotations

import numpy as np
import pytest
from ptx import compiled
from ptx.assemble import assemble, global_arrays
from ptx.machine import Fault
from ptx.parse import parse
from test_ptx_instructions import Bench, computed

if compiled.reason():
    pytest.skip(str(compiled.reason()), allow_module_level=True)

from numba import cuda, float32, int32, types

from numbagrad.kernels.cuda.runtime.intrinsics import load4

REAL, WHOLE = types.CPointer(types.float32), types.CPointer(types.int32)
BYTES = types.CPointer(types.uint8)


def launched(kernel, grid, block, *args, order=0):
    """Run ``kernel`` on copies of arrays; what is in them then. Numbers go as int64."""
    bench = Bench(order)
    kinds = {np.dtype("float32"): REAL, np.dtype("int32"): WHOLE, np.dtype("uint8"): BYTES}
    signature = tuple([kinds[a.dtype] if hasattr(a, "dtype") else types.int64 for a in args])
    parsed = parse(compiled.compile_text(kernel, signature))
    assert not global_arrays(parsed)
    code = assemble(parsed, {})
    words = [
        bench.put(a, a.size < 2 or a.flat[1] == a.flat[1]) if hasattr(a, "dtype") else a
        for a in args
    ]
    bench.machine.run(code, (grid, 1, 1), (block, 1, 1), words)
    return [bench.get(w, a) for w, a in zip(words, args, strict=True) if hasattr(a, "dtype")]


def zeros(n, dtype="float32"):
    return np.zeros(n, dtype)


def turned(out, x, waits):
    shared = cuda.shared.array(256, float32)
    i = cuda.threadIdx.x
    shared[i] = x[i]
    if waits:
        cuda.syncthreads()
    out[i] = shared[255 - i]


@pytest.mark.parametrize("order", [0, 1, 5])
def test_a_barrier_that_is_missing(order):
    x = np.arange(256, dtype=np.float32)
    out, _ = launched(turned, 1, 256, zeros(256), x, 1, order=order)
    np.testing.assert_array_equal(out, x[::-1])
    with pytest.raises(Fault, match=r"(?s)race|nothing was written"):
        launched(turned, 1, 256, zeros(256), x, 0, order=order)


def passed_on(out, x, waits):
    shared = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    for k in range(4):
        shared[i] = x[i] + k
        cuda.syncthreads()
        out[i] += shared[63 - i]
        if waits:
            cuda.syncthreads()


def test_a_second_barrier_that_is_missing():
    x = np.arange(64, dtype=np.float32)
    launched(passed_on, 1, 64, zeros(64), x, 1)
    with pytest.raises(Fault, match=r"(?s)a race with a .*\.shared.*of this block"):
        launched(passed_on, 1, 64, zeros(64), x, 0)


def test_one_element_too_far():
    def copied(out, x, n):
        i = cuda.grid(1)
        if i <= n:
            out[i] = x[i]

    with pytest.raises(Fault, match=r"(?s)no?t? part of any array.*ld\.global.*\(100, 0, 0\)"):
        launched(copied, 1, 128, zeros(128), np.ones(100, np.float32), 100)
    out, _ = launched(copied, 1, 128, zeros(128), np.ones(100, np.float32), 99)
    assert out.sum() == 100

    def shared_too_far(out, n):
        shared = cuda.shared.array(32, float32)
        i = cuda.threadIdx.x
        shared[i + n] = float32(i)
        out[i] = shared[i + n]

    launched(shared_too_far, 1, 32, zeros(32), 0)
    with pytest.raises(Fault, match=r"not part of any array.*\n.*st\.shared"):
        launched(shared_too_far, 1, 32, zeros(32), 1)


def test_a_vector_that_is_not_aligned():
    def added(out, x, first):
        i = cuda.grid(1)
        a, b, c, d = load4(x, 4 * i + first)
        out[i] = a + b + c + d

    x = np.arange(80, dtype=np.float32)
    out, _ = launched(added, 1, 16, zeros(16), x, 4)
    np.testing.assert_array_equal(out, x[4:68].reshape(16, 4).sum(1))
    with pytest.raises(Fault, match=r"(?s)multiple of its width.*ld\.global\.v4\.f32.*thread \(0,"):
        launched(added, 1, 16, zeros(16), x, 1)


def test_blocks_that_race():
    def summed(out, x, apart):
        i = cuda.grid(1)
        out[i // apart] += x[i]

    launched(summed, 4, 32, zeros(128), np.ones(128, np.float32), 1)
    for order in (0, 1, 9):
        with pytest.raises(Fault, match=r"a race with a (read|write)"):
            launched(summed, 4, 32, zeros(128), np.ones(128, np.float32), 2, order=order)
    with pytest.raises(Fault, match="of another block"):
        launched(first_of_each, 2, 1, zeros(1), np.array([5, 7], np.float32))

    def neighbours(out, x):
        i = cuda.grid(1)
        out[i] = x[i]

    out, _ = launched(neighbours, 4, 32, zeros(128, "uint8"), np.arange(128, dtype=np.uint8))
    assert out.tolist() == list(range(128))  # bytes of one word are no race


def first_of_each(out, x):
    out[0] = x[cuda.blockIdx.x]


def test_equal_values_are_no_race():
    launched(first_of_each, 2, 1, zeros(1), np.array([5, 5], np.float32))


def test_what_was_never_written():
    def copied(out, x):
        out[cuda.threadIdx.x] = x[cuda.threadIdx.x]

    with pytest.raises(Fault, match="nothing was written to"):
        launched(copied, 1, 32, zeros(32), np.full(32, np.nan, np.float32))


def test_threads_at_different_barriers():
    def apart(out, n):
        i = cuda.threadIdx.x
        if i < n:
            out[i] = 1
            cuda.syncthreads()
            out[i] = 2
        else:
            out[i] = 3
            cuda.syncthreads()
            out[i] = 4

    launched(apart, 1, 64, zeros(64), 64)
    with pytest.raises(Fault, match="different barriers"):
        launched(apart, 1, 64, zeros(64), 40)


def test_a_shuffle_that_not_all_reach():
    def lonely(out, n):
        i = cuda.threadIdx.x
        if i < n:
            out[i] = cuda.shfl_xor_sync(0xFFFFFFFF, i, 1)

    launched(lonely, 1, 32, zeros(32, "int32"), 32)
    with pytest.raises(Fault, match="not all named threads"):
        launched(lonely, 1, 32, zeros(32, "int32"), 20)


def test_an_endless_kernel(monkeypatch):
    from ptx import machine

    monkeypatch.setattr(machine, "STEPS", 10_000)
    with pytest.raises(Fault, match="does not end"):
        computed("$A:\nbra.uni $A", np.dtype("uint32"), zeros(1, "uint32"))


def test_users_counts_over_a_block():
    def counted(out, x):
        i = cuda.threadIdx.x
        out[i] = cuda.syncthreads_count(int32(x[i] > 0)) + 1000 * cuda.syncthreads_or(
            int32(x[i] > 90)
        )

    out, _ = launched(counted, 1, 96, zeros(96, "int32"), np.arange(96, dtype=np.float32))
    assert out.tolist() == [1095] * 96


def doubled(x, i):
    x[i] = x[i] * 2


def test_a_tensor_ends_where_it_asked_to():
    """Not where its block of the cache does; and what is given back is nobody's."""
    from ptx.device import PTX, WatchedCache

    driver = PTX()
    cache = WatchedCache(driver)
    block = cache.take(40, 0)
    driver.copy_in(block.address, np.arange(10, dtype=np.float32), 0)
    run = driver.launcher(doubled, (REAL, types.int64), 1, 1, 0, 0)
    driver.begin_capture(0)
    run(block.address, 9)
    graph, out = driver.end_capture(0), zeros(10)
    driver.copy_out(out, block.address, 0)
    assert out[9] == 9
    driver.replay(graph, 0)
    driver.copy_out(out, block.address, 0)
    assert out[9] == 18
    with pytest.raises(Fault, match=r"part of any array, in kernel test_ptx_faults\.doubled"):
        run(block.address, 10)
    cache.give(block)
    with pytest.raises(Fault, match="part of any array"):
        run(block.address, 9)
    with pytest.raises(Fault, match=r"65536, 1\) of"):
        driver.launcher(doubled, (REAL, types.int64), (1, 65536), 1, 0, 0)(block.address, 0)
