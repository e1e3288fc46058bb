"""What stands in for parts of numba-cuda's compiler gives the same code. It needs no GPU."""

from __future__ import annotations

import re
import types as python_types
from importlib import metadata

import pytest

from numbagrad.kernels.cuda.runtime import device

pytest.importorskip("cuda.bindings.nvjitlink", reason="numba-cuda is not installed")
if device.simulating():
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

from numba import cuda, float32, float64, int64, types

from numbagrad.kernels.cuda import norm
from numbagrad.kernels.cuda.runtime import quick_cuda, teams
from numbagrad.kernels.cuda.runtime.warp import inlined

known = pytest.mark.skipif(
    not metadata.version("numba-cuda").startswith(quick_cuda.KNOWN),
    reason="another numba-cuda: hold its functions against those of quick_cuda, then add it there",
)

SCALE = 2.0


@inlined
def halved(x, depth):
    """With a loop, a branch and two ways out."""
    for k in range(depth):
        if x < SCALE:
            return x
        x = x * 0.5 + k
    return x


@inlined
def twice(x):
    return halved(x, 3) + halved(x + 1, 2)


def example(out, x, n):
    shared = cuda.shared.array(32, float32)
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        shared[i % 32] = twice(x[i]) if i % 2 else halved(x[i], i)
        out[i] = -twice(shared[i % 32]) // 3


def text_of(kernel, signature):
    (text,), _ = cuda.compile_all(
        kernel, types.void(*signature), device=False, abi="numba", cc=(8, 0), output="ptx"
    )
    names = dict.fromkeys(re.findall(r"_ZN[\w$]+|\$L__\w+|_cudapy_smem_\w+", text))
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, f"name{list(names).index(name)}")
    return text


def kernels():
    pointer, double = types.CPointer(float32), types.CPointer(float64)
    yield example, (pointer, pointer, int64)
    yield norm._softmax(float32, teams.team_for(64), False), (pointer, pointer, *[int64] * 3)
    yield norm._softmax_grad(float64, teams.team_for(4096), True), (*[double] * 3, *[int64] * 3)


@known
def test_the_same_code(monkeypatch):
    import numba.cuda.dispatcher as dispatcher

    there = python_types.SimpleNamespace(compute_capability=(8, 0))
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: there)
    before = [vars(owner)[name] for owner, name, _ in quick_cuda.own.parts]
    expected = [text_of(*each) for each in kernels()]
    with quick_cuda.quick():
        assert [vars(owner)[name] for owner, name, _ in quick_cuda.own.parts] != before
        for _ in range(2):
            assert [text_of(*each) for each in kernels()] == expected
    assert [vars(owner)[name] for owner, name, _ in quick_cuda.own.parts] == before
