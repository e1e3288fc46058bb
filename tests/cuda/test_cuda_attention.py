"""Attention is the CPU's: dropped probabilities, and scores of formulas, forward and backward."""

from __future__ import annotations

import math

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.nn.attention.flex_attention import create_block_mask, flex_attention

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


@pytest.mark.parametrize("learned", [False, True])
def test_scores_of_formulas_are_the_same_on_both_devices(learned):
    rng, found = np.random.default_rng(0), []
    shapes = (1, 4, 37, 5), (1, 2, 70, 5), (1, 2, 70, 3)
    arrays = [rng.normal(size=s).astype("float32") for s in shapes]
    for place in ("cpu", "cuda"):
        xs = [ng.tensor(a).to(place).requires_grad_() for a in arrays]
        slopes = ng.tensor([-0.5, -0.1, 0.1, 0.2]).to(place).requires_grad_(learned)
        ids = (ng.arange(70) // 9).to(place)

        mask = create_block_mask(near_of(ids), None, None, 37, 70, place, BLOCK_SIZE=(10, 16))
        capped = capped_of(slopes)
        out, lse = flex_attention(*xs, capped, mask, enable_gqa=True, return_lse=True)
        inputs = [*xs, slopes] if learned else xs
        grads = ng.autograd.grad(out.square().sum() + lse.sum(), inputs)
        found.append([t.detach().cpu().numpy() for t in (out, lse, *grads)])
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, 1e-4, 1e-5)


def capped_of(slopes):
    def capped(score, b, h, q_idx, kv_idx):
        return 3.0 * math.tanh((score + slopes[h] * abs(q_idx - kv_idx)) / 3.0)

    return capped


def near_of(ids):
    def near(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (ids[q_idx] - ids[kv_idx] < 2)

    return near


def test_elements_that_are_not_there_are_told():
    x, short = ng.ones(1, 1, 5, 4).cuda(), ng.ones(3).cuda()
    with pytest.raises(IndexError, match=r"short of shape \[3\] is read out of bounds"):
        flex_attention(x, x, x, lambda score, b, h, q_idx, kv_idx: score + short[kv_idx])
        ng.cuda.synchronize()
