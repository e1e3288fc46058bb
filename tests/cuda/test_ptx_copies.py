"""The machine for PTX: squares from shared memory, copies that end later, and who reads too early.

The text is written here, so nothing of NVIDIA's is needed.
"""

from __future__ import annotations

import numpy as np
import pytest
from ptx.assemble import assemble
from ptx.machine import Fault
from ptx.parse import parse
from test_ptx_instructions import RNG, U16, U32, Bench, text_of

SHARED = ".shared .align 16 .b8 shared[4096];\n"
OURS = "mul.lo.u32 %r2, %r1, 16;\nmov.u32 %r3, shared;\nadd.u32 %r4, %r3, %r2;\n"
"""%r4: 16 bytes of this thread in shared memory."""
GLOBAL = "mul.wide.u32 %rd50, %r1, 16;\nadd.s64 %rd51, %rd2, %rd50;\nadd.s64 %rd52, %rd1, %rd50;\n"
"""%rd51: 16 bytes of the input; %rd52: of the result."""
COPY = "cp.async.cg.shared.global [%r4], [%rd51], 16;\n"
COMMIT, WAIT, BARRIER = "cp.async.commit_group;\n", "cp.async.wait_group 0;\n", "bar.sync 0;\n"
OTHER = "xor.b32 %r5, %r2, 48;\nadd.u32 %r6, %r3, %r5;\n"
"""%r6: 16 bytes of a neighbour."""
READ = "ld.shared.v4.b32 {%a0, %a1, %a2, %a3}, [%r6];\n"
GIVE = "st.global.v4.b32 [%rd52], {%a0, %a1, %a2, %a3};\n"


def ran(body, x, threads, head=SHARED, asked=0):
    """The result of ``body``, as long as ``x``."""
    bench = Bench()
    places = [bench.put(np.zeros_like(x)), bench.put(x)]
    code = assemble(parse(text_of(OURS + GLOBAL + body, 2, head)), {})
    bench.machine.run(code, (1, 1, 1), (threads, 1, 1), places, asked)
    return bench.get(places[0], x)


@pytest.mark.parametrize("turned", [False, True])
def test_squares(turned):
    x = RNG.integers(0, 1 << 16, (4, 8, 8)).astype(U16)
    name = f"ldmatrix.sync.aligned.m8n8.x4{'.trans' if turned else ''}.shared.b16"
    line = f"{name} {{%a0, %a1, %a2, %a3}}, [%r4];\n"
    got = ran(COPY + COMMIT + WAIT + BARRIER + line + GIVE, x, 32)
    squares = x.transpose(0, 2, 1) if turned else x
    # A lane's four words: its two halves of each square, row by row.
    expected = squares.reshape(4, 32, 2).transpose(1, 0, 2)
    np.testing.assert_array_equal(got.reshape(32, 4, 2), expected)


def test_copies():
    x = RNG.integers(0, 1 << 32, (64, 4), U32)
    got = ran(COPY + COMMIT + WAIT + BARRIER + OTHER + READ + GIVE, x, 64)
    np.testing.assert_array_equal(got, x[np.arange(64) ^ 3])


def test_copies_of_nothing():
    x = RNG.integers(0, 1 << 32, (64, 4), U32)
    ignored = "setp.ge.u32 %p, %r1, 9;\ncp.async.cg.shared.global [%r4], [%rd51], 16, %p;\n"
    got = ran(ignored + COMMIT + WAIT + BARRIER + OTHER + READ + GIVE, x, 64)
    x[9:] = 0
    np.testing.assert_array_equal(got, x[np.arange(64) ^ 3])


@pytest.mark.parametrize(
    "body,problem",
    [
        (COPY + COMMIT + BARRIER + OTHER + READ + GIVE, "nothing was written"),
        (COPY + COMMIT + "cp.async.wait_group 1;\n" + BARRIER + OTHER + READ, "nothing was"),
        (COPY + WAIT + BARRIER + OTHER + READ + GIVE, "nothing was written"),
        (COPY + COMMIT + WAIT + OTHER + READ + GIVE, "race|nothing was written"),
        (COPY + COMMIT + WAIT + BARRIER + OTHER + READ + COPY + COMMIT, "race with a read"),
        ("add.u32 %r4, %r4, 4;\n" + COPY, "multiple of its width"),
    ],
    ids=["no wait", "a group too few", "no commit", "no barrier", "overwritten", "misaligned"],
)
def test_copies_that_are_wrong(body, problem):
    with pytest.raises(Fault, match=problem):
        ran(body, np.zeros((64, 4), U32), 64)


def test_a_group_that_is_left():
    x = RNG.integers(0, 1 << 32, (32, 4), U32)
    later = "cp.async.cg.shared.global [%r4+2048], [%rd51], 16;\n" + COMMIT
    body = COPY + COMMIT + later + "cp.async.wait_group 1;\n" + BARRIER + OTHER + READ + GIVE
    np.testing.assert_array_equal(ran(body, x, 32), x[np.arange(32) ^ 3])


def test_memory_that_the_launch_asks_for():
    x = RNG.integers(0, 1 << 32, (64, 4), U32)
    head, body = ".extern .shared .align 128 .b8 shared[];\n", COPY + COMMIT + WAIT + BARRIER
    body += OTHER + READ + GIVE
    np.testing.assert_array_equal(ran(body, x, 64, head, 1024), x[np.arange(64) ^ 3])
    for asked, problem in ((512, "outside|not part of"), (164 << 10, "bytes shared")):
        with pytest.raises(Fault, match=problem):
            ran(body, x, 64, head, asked)
