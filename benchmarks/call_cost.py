"""What a call of a compiled function costs beside its arithmetic; the peer is torch, op by op."""

from __future__ import annotations

from typing import Any

from .case import Case, Run, compile_step, uniform


def _multiply_add(lib: Any) -> Run:
    x, y, z = (lib.tensor(uniform(4) + k) for k in range(3))
    function = compile_step(lib, lambda x, y, z: x * y + z)
    return lambda: (function(x, y, z),)


def _train(lib: Any) -> Run:
    weight = lib.tensor(uniform(4), requires_grad=True)
    optimizer = lib.optim.SGD([weight], lr=1e-4, momentum=0.9)
    x = lib.tensor(uniform(4) + 1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    call = compile_step(lib, step)
    return lambda: (call(x), weight)


AT_MOST = 5e-6
CASES = [
    Case("x*y+z of 4, compiled", _multiply_add, AT_MOST, asked_of_ratio=False),
    Case("SGD step of 4 weights, compiled", _train, AT_MOST, asked_of_ratio=False),
]
