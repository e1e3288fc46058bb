"""NVIDIA's checker of memory accesses over one of each kind of kernel, where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from numbagrad.kernels.cuda.runtime import device

PROGRAM = """
import numbagrad as ng
from numbagrad import nn

F = nn.functional
x = ng.randn(70, 133, device="cuda", requires_grad=True)
row = ng.randn(133, device="cuda")
y = F.gelu(x * row + 1) @ ng.randn(133, 35, device="cuda")
(F.softmax(y, 1).sum(0).exp() + F.layer_norm(y, (35,)).mean(0)).sum().backward()
assert x.grad.isfinite().all().item()
for dtype in (ng.float64, ng.float16, ng.bfloat16):
    a = ng.randn(136, 72, device="cuda").to(dtype)
    assert (a @ a.t()).float().isfinite().all().item()
x.detach().sort(1), x.detach().cumsum(0), x.detach()[ng.tensor([5, 1, 5], device="cuda")]
images = ng.randn(2, 3, 9, 10, device="cuda")
assert F.max_pool2d(nn.Conv2d(3, 5, 3).cuda()(images), 2).isfinite().all().item()
model = nn.Sequential(nn.Linear(20, 33), nn.ReLU(), nn.Linear(33, 5)).cuda()
optimizer = ng.optim.Adam(model.parameters())
data, target = ng.randn(16, 20, device="cuda"), ng.randint(0, 5, (16,), device="cuda")


@ng.compile
def step(data, target):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(data), target)
    loss.backward()
    optimizer.step()
    return loss.detach()


losses = [float(step(data, target)) for _ in range(5)]
assert losses[-1] < losses[0]
"""


@pytest.mark.cuda
@pytest.mark.skipif(
    device.simulating() or os.environ.get("NUMBAGRAD_PTX", "0") not in ("", "0"),
    reason="needs a GPU",
)
def test_no_access_is_out_of_bounds():
    checker = shutil.which("compute-sanitizer")
    if checker is None:
        pytest.skip("compute-sanitizer is not installed")
    command = [
        checker,
        "--tool",
        "memcheck",
        "--error-exitcode",
        "9",
        "--show-backtrace",  # for which it holds Python's frames for ever, with all that is in them
        "no",
        sys.executable,
        "-c",
        PROGRAM,
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert found.returncode == 0, f"{found.stdout[-3000:]}\n{found.stderr[-3000:]}"
    assert "ERROR SUMMARY: 0 errors" in found.stdout + found.stderr
