"""Random functions that read parts of a tensor and write parts of another, and their gradients:
every pass keeps what their programs compute, and they give what ``create_graph`` gives.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numbagrad as ng

from .interpret import differs

pytestmark = pytest.mark.interpreted

BODIES: list[Callable[[Any], Any]] = [
    lambda z: z.sin(),
    lambda z: z * 2,
    lambda z: z * z,
    lambda z: z.exp() + 1,
    lambda z: z * 1,
]


class Parts:
    """A function of one tensor, drawn by a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.shape = n, m = draw.choice([(6, 4), (4, 6), (5, 8)])
        kind = draw.choice(["any", "columns", "rows", "quarters", "steps"])
        width = draw.choice([1, 2])
        self.keys: list[Any] = {
            "any": lambda: [self.key() for _ in range(draw.randint(2, 6))],
            "columns": lambda: [(..., slice(k, k + width)) for k in range(0, m, width)],
            "rows": lambda: list(range(n)),
            "quarters": lambda: [
                (slice(a, a + n // 2), slice(b, b + m // 2))
                for a in (0, n // 2)
                for b in (0, m // 2)
            ],
            "steps": lambda: [(slice(None), t) for t in range(m)],
        }[kind]()
        draw.shuffle(self.keys)
        if draw.random() < 0.3:
            self.keys.pop()
        if draw.random() < 0.3:
            self.keys.append(self.key())
        self.bodies = [draw.choice(BODIES) for _ in self.keys]
        self.joint, self.whole, self.writes = (draw.random() < p for p in (0.5, 0.3, 0.6))
        self.again = draw.choice(self.keys)

    def key(self) -> Any:
        """An entry or a range of each dimension, or of one of them."""
        n, m = self.shape
        draw = self.draw

        def part(size: int) -> Any:
            if draw.random() < 0.3:
                return draw.randrange(-size, size)
            begin = draw.randrange(size)
            return slice(begin, draw.randrange(begin, size + 1), draw.choice([None, None, 1, 2]))

        if draw.random() < 0.7:
            return part(n), part(m)
        return part(n) if draw.random() < 0.5 else (..., part(m))

    def value(self, x: Any) -> Any:
        """A number that depends on parts of ``x``."""
        h, total = x * 1.5, 0
        out = ng.zeros(*self.shape, dtype=ng.float64)
        parts = [h[key] for key in self.keys]
        alike = all(p.shape == parts[0].shape for p in parts)
        if self.joint and alike:
            made = self.bodies[0](parts[0])
            for p in parts[1:]:
                made = made * p.sigmoid()
            total = made.sum()
        state = 0
        for key, p, body in zip(self.keys, parts, self.bodies, strict=True):
            state = body(p) + (state if alike else 0)
            if self.writes:
                out[key] = state
            else:
                total = total + state.sum()
        if self.writes:
            out[self.again] = out[self.again].clone() * 2
            total = total + (out * out).sum() + out[self.again].sum()
        return total + (h * h).sum() if self.whole else total

    def __call__(self, x: Any) -> Any:
        x.grad = None
        self.value(x).backward()
        return x.grad


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_passes_keep_what_parts_compute(first: int) -> None:
    for seed in range(first, first + 25):
        function = Parts(seed)
        numbers = np.random.default_rng(seed).standard_normal(function.shape)
        x = ng.tensor(numbers, requires_grad=True)
        (expected,) = ng.autograd.grad(function.value(x), x, create_graph=True)
        got = function(x).numpy()
        np.testing.assert_allclose(got, expected.detach().numpy(), rtol=1e-9, atol=1e-12)
        assert differs(function, x) is None, f"seed {seed}"
