"""Gradients of parts on the device, eager and compiled: those of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.nn import functional as F

pytestmark = pytest.mark.cuda

NUMBERS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def steps(h, i):
    return sum((h[:, t] ** 2).sum() * (t + 1) for t in range(2)) + h[1:].sum()


def quarters(h, i):
    a, b = h.chunk(2, 1)
    return (a * b.sigmoid()).sum()


def places(h, i):
    rows = (h[i] ** 2).sum() + F.embedding(i, h).exp().sum()
    return rows + h.gather(1, i[:, None] % 3).sin().sum()


def written(h, i):
    out, state = ng.zeros(3, 2, device=h.device), 0
    for t in range(2):
        state = (h[:, t] + state).tanh()
        out[:, t] = state
    return (out**2).sum() + out[0].exp().sum()


@pytest.mark.parametrize(
    ("function", "compiled"),
    [(steps, False), (places, False), (written, False), (quarters, True), (written, True)],
)
def test_as_on_the_cpu(function, compiled):
    found = []
    for place in ("cpu", "cuda"):
        x = ng.tensor(NUMBERS, device=place, requires_grad=True)
        i = ng.tensor([2, 0, 2], device=place)

        def step(x, i):
            x.grad = None
            function(x * 1.5, i).backward()
            return x.grad

        found.append((ng.compile(step) if compiled else step)(x, i).cpu().numpy())
    np.testing.assert_allclose(*found, rtol=2e-5, atol=2e-6)
