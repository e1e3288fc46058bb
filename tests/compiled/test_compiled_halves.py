"""Compiled functions of halves on the CPU, held against the eager ones."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from cases import ALL
from numba import njit

import numbagrad as ng
from numbagrad import nn

from .op_rows import HALVES, Item, agree, items_of, recordable

F: Any = nn.functional

ROWS = """
    exp add div pow-number where gelu masked_fill cat sum mean var amax argmax prod norm logsumexp
    cumsum sort topk gather scatter_add getitem-tensor triu bmm addmm linear matmul softmax
    log_softmax layer_norm rms_norm embedding mse_loss cross_entropy conv2d conv_transpose2d
    max_pool2d avg_pool2d batch_norm group_norm pad interpolate-linear grid_sample einsum
    scaled_dot_product_attention lstm float type_as
""".split()
"""A row for each way of a kernel into a compiled function."""

CASES = {case.name: case for case in ALL}


def items(dtype: str, form: str) -> list[Item]:
    found = []
    for name in ROWS:
        if name in CASES and recordable(CASES[name]):
            plain = [i for i in items_of(CASES[name], dtype, form) if i.call.kind == "plain"]
            found += plain[:1]
    return found


@pytest.mark.parametrize("dtype,form", [("bfloat16", "outside"), ("float16", "forward")])
def test_rows_in_halves(dtype: str, form: str) -> None:
    chosen = items(dtype, form)
    assert len(chosen) > 30
    if form == "outside":  # as for float32, see test_compiled_ops.py
        chosen = chosen[::2]
    wrong = agree(chosen)
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.parametrize("dtype", HALVES)
def test_a_training_step(dtype: str) -> None:
    """Weights, momenta, gradients and running statistics are those of the eager step."""
    ng.manual_seed(0)
    eager = nn.Sequential(
        *(
            nn.Conv2d(1, 4, 3, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        ),
        *(nn.Linear(36, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 10)),
    ).to(getattr(ng, dtype))
    fused = copy.deepcopy(eager)
    x, y = ng.randn(32, 1, 8, 8).to(getattr(ng, dtype)), ng.randint(0, 10, (32,))
    losses = []
    for model in (eager, fused):
        optimizer = ng.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        run = ng.compile(step) if model is fused else step
        losses.append([run(x, y).item() for _ in range(4)])
    tolerance = {"float16": 2.0**-8, "bfloat16": 2.0**-5}[dtype]
    np.testing.assert_allclose(losses[1], losses[0], tolerance)
    for mine, other in zip(fused.state_dict().values(), eager.state_dict().values(), strict=True):
        assert mine.dtype is other.dtype
        np.testing.assert_allclose(mine.double(), other.double(), tolerance, tolerance)
    assert all(p.grad.dtype is p.dtype for p in fused.parameters())


@pytest.mark.parametrize("dtype", HALVES)
def test_formulas_round_where_an_eager_one_would(dtype: str) -> None:
    """A fused chain has every intermediate number of the eager chain: the same bits."""

    def chain(x: Any) -> Any:
        a = x * 1.01 + 0.3
        b = a.exp() - a
        return b * b, (b > 1).to(x.dtype) + a

    x = ng.linspace(-3, 3, 1001).to(getattr(ng, dtype))
    for got, expected in zip(ng.compile(chain)(x), chain(x), strict=True):
        assert got.dtype is expected.dtype
        assert (got._array.view(np.int16) == expected._array.view(np.int16)).all()


def test_memory_is_of_halves() -> None:
    """A step keeps its intermediate numbers in two bytes each."""

    def chain(x: Any, w: Any) -> Any:
        return ((x @ w).relu() @ w).tanh()

    ng.manual_seed(0)
    x, w = ng.randn(64, 64).bfloat16(), ng.randn(64, 64).mul_(0.1).bfloat16()
    step = ng.compile(chain)
    out = step(x, w)
    assert "a0: bfloat16 (64, 64)" in str(step.program)
    assert "result: bfloat16" in str(step.program) and "float32" not in str(step.program)
    assert "work memory: 16.4 kB" in str(step.explain())  # two of 64 by 64
    np.testing.assert_allclose(out.float(), chain(x, w).float(), 2**-6, 2**-6)
    single = ng.compile(lambda x: x.sum(0))
    assert single(ng.ones(3000, 2, dtype=ng.bfloat16)).tolist() == [3008, 3008]


@njit
def doubled(out, x):
    for i in range(x.size):
        out[i] = x[i] * 2


def test_kernels_of_users_and_writes_in_place() -> None:
    def both(x: Any) -> Any:
        out = ng.empty_like(x)
        ng.launch(doubled, out, x)
        x.add_(1)
        x[1:] = 7.0
        return out

    x = ng.tensor([1.0, 2.5, 3.0], dtype=ng.float16)
    assert ng.compile(both)(x).tolist() == [2, 5, 6] and x.tolist() == [2, 7, 7]


def test_autocast_is_part_of_what_is_recorded() -> None:
    ng.manual_seed(0)
    x, layer = ng.randn(4, 8), nn.Linear(8, 8)
    step = ng.compile(lambda x: layer(x).softmax(1))
    assert step(x).dtype is ng.float32
    with ng.autocast("cpu"):
        assert step(x).dtype is ng.bfloat16
    with ng.autocast("cpu", dtype=ng.float16):
        assert step(x).dtype is ng.float16
    assert step(x).dtype is ng.float32


def test_a_step_under_autocast() -> None:
    """Masters in float32, products in bfloat16: as the eager step."""
    ng.manual_seed(0)
    eager = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
    fused = copy.deepcopy(eager)
    x, y = ng.randn(64, 16), ng.randint(0, 4, (64,))
    losses = []
    for model in (eager, fused):
        optimizer = ng.optim.Adam(model.parameters(), lr=1e-2)

        def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            with ng.autocast("cpu", dtype=ng.bfloat16):
                out = model(x)
                loss = F.cross_entropy(out, y)
            assert out.dtype is ng.bfloat16 and loss.dtype is ng.float32
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = ng.compile(step) if model is fused else step
        losses.append([run(x, y).item() for _ in range(6)])
    np.testing.assert_allclose(losses[1], losses[0], 2e-3)
    assert all(p.dtype is p.grad.dtype is ng.float32 for p in fused.parameters())
    assert losses[1][-1] < losses[1][0]
