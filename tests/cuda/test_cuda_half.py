"""Halves on the device: results and gradients against float32 on the CPU, of the same inputs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from cases import ALL
from halved import run

import numbagrad as ng
from numbagrad.kernels.cuda.runtime import device
from numbagrad.tensor import wrap

pytestmark = pytest.mark.cuda
SIMULATED = device.simulating()

ROWS = """
    exp add div pow-number where gelu masked_fill cat sum mean var amax argmax prod norm logsumexp
    cumsum sort topk kthvalue gather scatter_add getitem-tensor setitem-mask triu bmm addmm linear
    matmul softmax log_softmax layer_norm rms_norm embedding mse_loss cross_entropy nll_loss
    binary_cross_entropy_with_logits conv2d conv_transpose2d max_pool2d avg_pool2d batch_norm
    group_norm pad interpolate-linear
""".split()
"""At least one row for each file of kernels: what kernels compute does not depend on the dtype."""

CASES = {case.name: case for case in ALL}
HALVES = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.mark.parametrize("name,dtype", [(name, list(HALVES)[i % 2]) for i, name in enumerate(ROWS)])
def test_half(name: str, dtype: str) -> None:
    case, kind, eps = CASES[name], getattr(ng, dtype), HALVES[dtype]
    call = next(c for c in case.calls("float32") if c.kind == "plain")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got, grads = run(case, call, kind, lambda half: half.cuda(), lambda x: x.cuda())
        expected, truths = run(case, call, kind, lambda half: half.float())
    for out, truth in zip([*got, *grads], [*expected, *truths], strict=True):
        assert (out is None) == (truth is None)
        if out is None:
            continue
        assert out.is_cuda and out.shape == truth.shape
        if truth.dtype.is_floating_point:
            assert out.dtype is kind
        scale = max(1.0, float(np.abs(np.nan_to_num(truth.detach().numpy())).max(initial=0)))
        np.testing.assert_allclose(
            out.detach().cpu().float().numpy(), truth.detach().numpy(), 6 * eps, 6 * eps * scale
        )


@pytest.mark.parametrize("dtype", HALVES)
def test_words_are_rounded_as_on_the_cpu(dtype: str) -> None:
    kind = getattr(ng, dtype)
    step = 997 if SIMULATED else 1
    floats = np.arange(0, 1 << 32, step * 99991, dtype=np.uint64).astype(np.uint32)
    x = ng.tensor(floats.view(np.float32)[: 96 if SIMULATED else None])
    got = x.cuda().to(kind).cpu()._array.view(np.uint16)
    real = ~np.isnan(x.numpy())
    assert (got == x.to(kind)._array.view(np.uint16))[real].all()
    every = np.arange(0, 1 << 16, step, dtype=np.uint16).view(kind.numpy)
    words = wrap(every, kind)
    np.testing.assert_array_equal(words.cuda().float().cpu().numpy(), words.float().numpy())


def test_training_in_bfloat16() -> None:
    ng.manual_seed(0)
    model = ng.nn.Linear(3, 2).bfloat16().cuda()
    optimizer = ng.optim.Adam(model.parameters(), lr=0.1)
    x = ng.randn(8, 3, dtype=ng.bfloat16).cuda()
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(p.grad.dtype is ng.bfloat16 for p in model.parameters())
    assert optimizer.state[model.weight]["exp_avg"].dtype is ng.bfloat16


def test_random_halves_are_the_cpus() -> None:
    for dtype in (ng.float16, ng.bfloat16):
        ng.manual_seed(3)
        x = ng.randn(5, dtype=dtype)
        ng.manual_seed(3)
        assert ng.randn(5, dtype=dtype, device="cuda").tolist() == x.tolist()
