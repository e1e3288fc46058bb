"""Compiled functions of halves where nothing is compiled, as a debugger reads them."""

from __future__ import annotations

import pytest

import numbagrad as ng
from numbagrad import nn

pytestmark = pytest.mark.interpreted

FUNCTIONS = {
    "loop": lambda x: (x * 2 + x[0]).relu(),
    "rows": lambda x: nn.functional.softmax(x, 1),
    "sum": lambda x: x.sum(0),
    "product": lambda x: x @ x.t(),
    "joined": lambda x: ng.cat([x.t(), x.t() + 1]),
    "chosen": lambda x: ng.where(x > 0, x, -x)[[0, 2]],
}


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_compiled_function_of_halves(name, dtype):
    function, x = FUNCTIONS[name], ng.linspace(-2, 3, 24).reshape(4, 6).to(dtype)
    out, expected = ng.compile(function)(x), function(x)
    assert out.dtype is expected.dtype
    ng.testing.assert_close(out.float(), expected.float(), rtol=0.01, atol=0.01)


@pytest.mark.parametrize("dtype", [ng.bfloat16, ng.float16])
def test_a_compiled_step_of_halves(dtype):
    layer = nn.Linear(6, 3, dtype=dtype)
    optimizer = ng.optim.SGD(layer.parameters(), lr=0.1)

    @ng.compile
    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(ng.ones(4, 6, dtype=dtype)).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
