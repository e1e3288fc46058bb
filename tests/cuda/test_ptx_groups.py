"""The machine for PTX: products of four warps, and those that begin or end at the wrong time.

The text is written here, so nothing of NVIDIA's is needed.
"""

from __future__ import annotations

import numpy as np
import pytest
from ptx.assemble import assemble
from ptx.machine import Fault
from ptx.parse import parse
from test_ptx_instructions import RNG, Bench, text_of

HEAD = ".shared .align 1024 .b8 shared[10240];\n"
"""64 rows of 64 halves, and from 8192 on 8 columns, or 64 of which 8 are used."""

COPIES = "".join(
    [f"cp.async.cg.shared.global [%r4+{k}], [%rd51+{k}], 16;\n" for k in range(0, 10240, 2048)]
)
HERE = "cp.async.commit_group;\ncp.async.wait_group 0;\n"
SEEN, BARRIER = "fence.proxy.async.shared::cta;\n", "bar.sync 0;\n"
FENCE, COMMIT = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\n"
WAIT = "wgmma.wait_group.sync.aligned 0;\n"
GIVE = "st.global.v4.b32 [%rd53], {%a0, %a1, %a2, %a3};\n"
FORMAT = 1 << 62 | 64 << 32 | 512 << 16


def product(steps=1, turned=(0, 0)):
    """``steps`` times 16 of the 64 steps of k."""
    text = ""
    for step in range(steps):
        x, y = (step * (128 if way else 2) for way in turned)
        text += (
            f"add.s64 %rd62, %rd60, {FORMAT + x};\nadd.s64 %rd63, %rd60, {FORMAT + 512 + y};\n"
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%a0, %a1, %a2, %a3}, "
            f"%rd62, %rd63, 1, 1, 1, {turned[0]}, {turned[1]};\n"
        )
    return text


def ran(body, image=None):
    """The 64 by 8 sums after ``body``, which begins where all threads have said what to copy."""
    image = np.zeros(5120, np.float16) if image is None else image
    bench, out = Bench(), np.zeros((128, 4), np.float32)
    begin = (
        "mul.lo.u32 %r2, %r1, 16;\nmov.u32 %r3, shared;\nadd.u32 %r4, %r3, %r2;\n"
        "mul.wide.u32 %rd50, %r1, 16;\nadd.s64 %rd51, %rd2, %rd50;\nadd.s64 %rd53, %rd1, %rd50;\n"
        "cvt.u64.u32 %rd61, %r3;\nshr.u64 %rd60, %rd61, 4;\n"
    )
    begin += "".join([f"mov.b32 %a{n}, 0;\n" for n in range(4)])
    places = [bench.put(out), bench.put(image)]
    code = assemble(parse(text_of(begin + COPIES + body, 2, HEAD)), {})
    bench.machine.run(code, (1, 1, 1), (128, 1, 1), places)
    # Lane 4 g + t of warp w has of rows 16 w + g and 8 further down columns 2 t and 2 t + 1.
    got = bench.get(places[0], out).reshape(4, 8, 4, 2, 2)
    return got.transpose(0, 3, 1, 2, 4).reshape(64, 8)


def laid(rows):
    """Rows of 64 halves with their 16-byte pieces in the order of the 128-byte swizzle."""
    pieces = rows.reshape(len(rows), 8, 8)
    order = np.arange(8) ^ np.arange(len(rows))[:, None] % 8
    return np.take_along_axis(pieces, order[:, :, None], 1).reshape(-1)


@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_products_of_four_warps(turned):
    x, y = (RNG.integers(-9, 9, shape).astype(np.float16) for shape in ((64, 64), (64, 64)))
    y[:, 8:] = 0 if turned[1] else y[:, 8:]  # x (n, k), y (k, m), of which 8 columns are used
    steps = 1 if turned[1] else 4  # the rest of a turned factor has no room here
    right = laid(y)[:1024] if turned[1] else np.resize(laid(y.T[:8].copy()), 1024)
    image = np.concatenate([laid(x.T.copy() if turned[0] else x), right])
    body = HERE + SEEN + BARRIER + FENCE + product(steps, turned) + COMMIT + WAIT + GIVE
    expected = x[:, : 16 * steps].astype(float) @ y[: 16 * steps, :8].astype(float)
    np.testing.assert_array_equal(ran(body, image), expected)


@pytest.mark.parametrize(
    "body,problem",
    [
        (HERE + BARRIER + FENCE + product() + COMMIT + WAIT, "fence.proxy.async"),
        (SEEN + HERE + BARRIER + FENCE + product() + COMMIT + WAIT, "fence.proxy.async"),
        (HERE + SEEN + FENCE + product() + COMMIT + WAIT, "race|nothing was written"),
        (SEEN + BARRIER + FENCE + product() + COMMIT + WAIT, "nothing was written"),
        (HERE + SEEN + BARRIER + product() + COMMIT + WAIT, "no wgmma.fence"),
        (HERE + SEEN + BARRIER + FENCE + product() + COMMIT, "nobody waited"),
        (HERE + SEEN + BARRIER + FENCE + product() + WAIT, "nobody waited"),
        (HERE + SEEN + BARRIER + FENCE + product() + COMMIT + BARRIER + WAIT, "nobody waited"),
        (HERE + SEEN + BARRIER + FENCE + product() + COMMIT + WAIT + COPIES, "race with a read"),
    ],
    ids=[
        "not seen", "seen too early", "no barrier", "no wait for copies", "no fence", "no wait",
        "no group", "a barrier before the wait", "overwritten",
    ],
)  # fmt: skip
def test_products_that_are_wrong(body, problem):
    with pytest.raises(Fault, match=problem):
        ran(body)
