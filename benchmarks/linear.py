"""``nn.Linear`` with bias, forward and backward to input, weight and bias."""

from __future__ import annotations

from typing import Any

from .case import Case, Run, uniform


def _linear(n: int, features_in: int, features_out: int) -> Any:
    def build(lib: Any) -> Run:
        layer = lib.nn.Linear(features_in, features_out)
        with lib.no_grad():
            layer.weight.copy_(lib.from_numpy(uniform(features_out, features_in)))
            layer.bias.copy_(lib.from_numpy(uniform(features_out)))
        x = lib.tensor(uniform(n, features_in), requires_grad=True)
        g = lib.tensor(uniform(n, features_out))

        def run() -> tuple[Any, ...]:
            x.grad = layer.weight.grad = layer.bias.grad = None
            y = layer(x)
            y.backward(g)
            return y, x.grad, layer.weight.grad, layer.bias.grad

        return run

    return build


CASES = [
    Case(f"Linear {shape}", _linear(*shape), at_most, threads=(1, 2), rtol=1e-4, atol=1e-3)
    for shape, at_most in [
        ((10, 4, 3), 0.7),
        ((32, 128, 64), 0.7),
        ((128, 784, 512), 1.3),
        ((1024, 1024, 1024), 1.3),
    ]
]
