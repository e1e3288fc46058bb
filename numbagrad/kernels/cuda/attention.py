"""Attention and its gradients by blocks in shared memory: the matrix of all scores is never made.

A block of threads makes a square of scores at a time (``runtime/scores.py``). For the result and
the gradient of queries it goes along the keys, for the gradient of keys and values along the
queries, which makes the scores once more but needs no atomics: the sums have one order (Dao,
"FlashAttention-2", 2023). Features are cut into tiles too, each made by blocks of its own. Start
reading at ``runtime/attention.py``.
"""

from __future__ import annotations

from .runtime.attention import (
    drawn,
    form_of,
    lost_of,
    mask_grad_kernel,
    run,
    run_grad,
    square_of,
    steps,
)
from .runtime.launch import made, start
from .runtime.scores import PLAIN

__all__ = ["attention", "attention_grad", "attention_mask_grad"]

ON_THE_HOST = ("state",)
"""Parameters that are read on the host."""


def attention(out, lse, q, k, v, mask, state, scale, p, masked, causal):
    """``out = softmax(scale q k^T + mask) v``; lse: the logarithms of the sums of exponentials.

    out (b, h, l, w), lse (b, h, l), q (b, h, l, e), k (b, g, s, e), v (b, g, s, w), rows of unit
    stride, g divides h; mask (b, h, l, s), any strides, or without ``masked`` any array of rank 4.
    state (2,): random numbers that drop probabilities with chance ``p``. causal: row i sees the
    columns up to i. A row that sees nothing becomes 0, its lse infinity.
    """
    form = form_of(q, k, v, out, out, *steps(mask, 4))
    given, numbers = (mask, form, form), (float(scale), int(masked), int(causal))
    run(PLAIN, out, lse, q, k, v, given, form, drawn(state, p), *numbers)


def attention_grad(gq, gk, gv, g, out, lse, q, k, v, mask, state, scale, p, masked, causal):
    """The gradients of ``attention`` with respect to q, k and v.

    gq, gk, gv: shaped as q, k, v; g as out; rows of unit stride. The rest as there.
    """
    if not q.size and not k.size:
        return
    form = form_of(q, k, v, g, out, *steps(mask, 4))
    lost = lost_of(g, out, form) if out.size else lse
    given, numbers = (mask, form, form), (float(scale), int(masked), int(causal))
    draws = drawn(state, p)
    run_grad(PLAIN, gq, gk, gv, g, lost, lse, q, k, v, given, form, draws, *numbers)


def attention_mask_grad(gmask, g, out, lse, q, k, v, mask, state, scale, p):
    """The gradient of ``attention`` with respect to a mask before it was broadcast.

    gmask: C, each of its four sizes that of mask (b, h, l, s), or 1. The rest as for
    ``attention_grad``.
    """
    if not gmask.size:
        return
    shape = square_of(q)
    tile, _, each = shape
    form = form_of(q, k, v, g, out, *steps(mask, 4))
    lost = lost_of(g, out, form) if out.size else lse
    seed, first, p, keep = drawn(state, p)
    mb, mh, ml, ms = gmask.shape
    grid = mb * mh * -(-ml // tile) * -(-ms // tile)
    start(
        made(mask_grad_kernel, q.itemsize, *shape), grid, (tile // each) ** 2,
        gmask, g, lost, lse, q, k, v, mask, form, form, form, seed, first, float(scale), p, keep,
        q.shape[0], mb, mh, ml, ms,
    )  # fmt: skip
