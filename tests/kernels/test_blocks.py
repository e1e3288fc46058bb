"""Large arrays share kept memory in turn, never at once."""

import gc
import itertools
import mmap
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels import blocks, machine

SHAPE = (blocks.LARGE // 4, 3)
NBYTES = blocks.LARGE // 4 * 3 * 4
F32 = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(blocks, "_blocks", {})
    monkeypatch.setattr(blocks, "_kept", 0)


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_that_nobody_holds_is_used_again():
    first = machine.empty(SHAPE, F32)
    place = address(first)
    assert first.shape == SHAPE and first.dtype == F32 and first.flags.c_contiguous
    assert first.flags.writeable and place % 64 == 0
    second = machine.empty(SHAPE, F32)
    assert address(second) != place
    del first
    assert address(machine.empty(SHAPE, F32)) == place
    assert address(machine.empty((*SHAPE[:1], 6), np.dtype(np.int16))) == place


def test_what_was_last_given_out_is_looked_at_first():
    held = [machine.empty(SHAPE, F32) for _ in range(5)]
    place = address(held.pop(3))
    again = machine.empty(SHAPE, F32)
    assert address(again) == place
    (found,) = blocks._blocks.values()
    assert address(found[0]) == place
    del again, held[0]  # the other free one is further back
    assert address(machine.empty(SHAPE, F32)) == place


def test_small_blocks_share_a_slab_and_lie_apart():
    held = [machine.empty(SHAPE, F32) for _ in range(40)]
    slabs = {id(block.lies[0]) for block in blocks._blocks[min(blocks._blocks)]}
    assert 1 <= len(slabs) <= 2 + 40 * 2 * NBYTES // blocks.SLAB
    ends = sorted([(address(a), address(a) + NBYTES) for a in held])
    assert all([end <= start for (_, end), (start, _) in itertools.pairwise(ends)])
    assert len({start % 4096 for start, _ in ends}) == 16
    large = machine.empty((blocks.OWN,), np.dtype(np.int8))
    assert id(large.base.lies[0]) not in slabs


def test_a_block_that_is_let_go_gives_its_pages_back(monkeypatch):
    """Though another in its slab is held; what is written there stays."""
    kept, other = machine.empty(SHAPE, F32), machine.empty(SHAPE, F32)
    kept[...], other[...] = 3, 5
    memory, start, room = other.base.lies
    place = np.frombuffer(memory, np.uint8, room, start)
    assert place.any()
    del other
    monkeypatch.setattr(blocks, "_limit_now", 2 * NBYTES)
    machine.empty((SHAPE[0], 8), F32)
    assert (kept == 3).all()
    if hasattr(mmap, "MADV_DONTNEED"):
        assert not place.any()


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[5:],
        lambda a: a.reshape(-1)[::2],
        lambda a: a.T,
        lambda a: a.view(np.int32)[1],
        memoryview,
        lambda a: np.asarray(memoryview(a)[3:]),
        lambda a: np.from_dlpack(a),
        lambda a: [a],
        lambda a: ng.from_numpy(a)[2:],
        lambda a: ng.from_numpy(a)[2:].detach().numpy(),
    ],
)
def test_a_view_holds_the_memory(view):
    array = machine.empty(SHAPE, F32)
    place = address(array)
    held = view(array)
    del array
    assert address(machine.empty(SHAPE, F32)) != place
    del held
    gc.collect()
    assert address(machine.empty(SHAPE, F32)) == place


def test_a_gradient_in_a_block_is_taken_over():
    x = ng.randn(*SHAPE, requires_grad=True)
    made = x.relu()
    before = blocks.kept_bytes()
    made.backward(ng.ones(*SHAPE))
    assert blocks.kept_bytes() <= before + 2 * 1.2 * NBYTES  # ones, and the gradient: no copy


def test_a_fork_has_memory_of_its_own():
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    array = machine.empty(SHAPE, F32)
    array[0] = 1
    child = os.fork()
    if child == 0:
        array[0] = 2
        os._exit(0)
    os.waitpid(child, 0)
    assert (array[0] == 1).all()


def test_small_arrays_get_memory_of_their_own():
    array = machine.empty((4, 5), F32)
    assert array.base is None and blocks.kept_bytes() == 0
    with pytest.raises(ValueError):
        machine.empty((-1, blocks.LARGE), F32)


def test_a_limit_to_what_is_kept(monkeypatch):
    monkeypatch.setattr(blocks, "_limit_now", 3 * NBYTES)
    held = [machine.empty(SHAPE, F32) for _ in range(4)]
    kept = [array for array in held if array.base is not None]
    assert len(kept) == 3 and blocks.kept_bytes() <= 3 * NBYTES
    del held, kept
    other = machine.empty((SHAPE[0], 8), F32)  # for this the free ones are let go
    assert other.base is not None
    assert NBYTES < blocks.kept_bytes() <= 3 * NBYTES
    assert machine.empty((SHAPE[0], 16), F32).base is None


def test_threads_never_share_a_block():
    wrong = []

    def work(mark):
        for _ in range(300):
            array = machine.empty(SHAPE, F32)
            array[0] = array[-1] = mark
            other = machine.empty(SHAPE, F32)
            other[0] = other[-1] = -mark
            if not (array[0] == mark).all() or not (array[-1] == mark).all():
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(k + 1,)) for k in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert blocks.kept_bytes() <= 12 * 1.2 * NBYTES


def test_a_training_loop_of_large_arrays_keeps_what_it_needs():
    x = ng.randn(300, 1000, requires_grad=True)
    for _ in range(3):
        x.grad = None
        (x.tanh() * x.exp() + x).sum().backward()
        kept = blocks.kept_bytes()
    for _ in range(5):
        x.grad = None
        (x.tanh() * x.exp() + x).sum().backward()
    assert blocks.kept_bytes() == kept


def test_the_environment_says_how_much():
    script = (
        "import numpy as np, numbagrad as ng\n"
        "from numbagrad.kernels import blocks\n"
        "x = ng.empty(1000, 1000)\n"
        "print(blocks.kept_bytes())\n"
    )

    def run(told):
        return subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"NUMBAGRAD_KEPT_MEMORY": told},
            capture_output=True,
            text=True,
        )

    assert int(run("").stdout) > 4_000_000
    assert int(run("0").stdout) == 0
    assert "NUMBAGRAD_KEPT_MEMORY is 'much', must be a number of megabytes" in run("much").stderr


@pytest.mark.parametrize("make", [ng.zeros, lambda *s: ng.zeros_like(ng.empty(*s))])
def test_zeros_in_memory_that_was_used(make):
    used = ng.full(SHAPE, 7.0)
    place = used.data_ptr()
    del used
    found = make(*SHAPE)
    assert found.data_ptr() == place or make is not ng.zeros
    assert not found.any() and found.dtype is ng.float32


def test_what_compiled_steps_write_again_and_again_begins_at_lines_of_its_own():
    """Results and gradients, whose addresses are not equal in their last 12 bits."""
    weight = ng.ones(SHAPE, requires_grad=True)

    @ng.compile
    def step(x):
        weight.grad = None
        y = weight * x
        y.sum().backward()
        return y.detach(), y.detach() + 1

    places = [t.data_ptr() for t in (*step(ng.ones(SHAPE)), weight.grad)]
    assert all(p % 64 == 0 for p in places)
    assert len({p % 4096 for p in places}) == 3
