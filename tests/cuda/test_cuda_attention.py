"""Dropped probabilities of attention are the CPU's, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng

pytestmark = pytest.mark.cuda


def test_dropout_is_the_same_on_both_devices():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype("float32") for s in ((1, 1, 3, 2), (1, 1, 6, 2))]
    found = []
    for place in ("cpu", "cuda"):
        q, k = [ng.tensor(a).to(place).requires_grad_() for a in arrays]
        ng.manual_seed(3)
        out = ng.nn.functional.scaled_dot_product_attention(q, k, k, dropout_p=0.5)
        out.backward(ng.ones_like(out))
        found.append([t.detach().cpu().numpy() for t in (out, q.grad, k.grad)])
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, 1e-5, 1e-6)
