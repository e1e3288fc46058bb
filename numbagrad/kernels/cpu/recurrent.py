"""Recurrent layers: a whole sequence of one layer in one direction, forward and backward.

The product of the input with its weight is made before, for all time steps at once; a kernel adds
the product of the state at each step. The rows of a batch never meet, so a block of rows is a task
of its own that goes through all steps. The weight's gradient is a product of what is left behind.
A reversed layer goes from the last step to the first.

Steps lie one after another, each with the rows that take part in it: ``starts`` (t + 1,) int64
says where a step begins. Sequences of different lengths are sorted, the longest first, so that
those still running are always the first rows. Below, N is the number of rows of all steps, n of the
batch. Start reading at ``lstm``.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..blas import blas_alone, blas_restore
from ..inner import device, keep
from ..intrinsics import address, pointer, wide
from ..product import gemm_kernel
from ..simd_math import sigmoid, tanh
from .state_products import (
    active,
    add_product,
    add_states,
    copied,
    prepared,
    rows_of_a_task,
)

__all__ = ["gru", "gru_grad", "lstm", "lstm_grad", "rnn", "rnn_grad"]

GRAIN = 16384
"""Elements of the largest array from which a second thread pays, if there are rows for it."""

# -- simple ----------------------------------------------------------------------------------------


@device
def rnn_rows(first, rows, right, out, last, h0, weight, starts, relu, reverse):
    """``rnn`` of some rows."""
    wide()
    steps, m = starts.size - 1, out.shape[1]
    row, way = m * out.itemsize, -1 if reverse else 1
    t, before, held = steps - 1 if reverse else 0, 0, 0
    for _ in range(steps):
        now = active(starts, t, first, rows)
        at = address(out) + (starts[t] + first) * row
        beginning, kept = address(h0) + first * row, min(now, held)
        add_states(out, weight, right, now, kept, before, beginning, at, m, at)
        state = pointer(at, out.dtype)
        if relu:
            for j in range(now * m):
                state[j] = state[j] if not state[j] <= 0 else 0
        else:
            for j in range(now * m):
                state[j] = tanh(state[j])
        copied(last, out, first, starts[t] + first, active(starts, t + way, first, rows), now)
        before, held = at, now
        t += way


@gemm_kernel(grain=GRAIN, outputs=2, allocates=True)
def rnn(out, last, h0, weight, starts, relu, reverse):
    """``h = tanh(given + h weight.T)``, or relu, from step to step (Elman, 1990).

    out (N, m): given, and then h; last, h0 (n, m): h after and before; weight (m, m): all C.
    """
    n = h0.shape[0]
    right = prepared(weight, 1, starts.size - 1, n)
    each = rows_of_a_task(right, weight, 1, n)
    previous = blas_alone(n * weight.size)
    for task in prange((n + each - 1) // each):
        first = task * each
        rows = min(each, n - first)
        rnn_rows(first, rows, right, out, last, h0, weight, starts, relu, reverse)
    blas_restore(previous)
    keep(right)


@device
def rnn_grad_rows(first, rows, right, ggiven, gh0, g, glast, out, weight, starts, relu, reverse):
    """``rnn_grad`` of some rows."""
    steps, m = starts.size - 1, out.shape[1]
    row = m * out.itemsize
    copied(gh0, glast, first, first, 0, rows)
    carried, one = address(gh0) + first * row, out.dtype.type(1)
    for s in range(steps):
        t = s if reverse else steps - 1 - s
        at, now = (starts[t] + first) * row, active(starts, t, first, rows)
        gh, grad = pointer(carried, out.dtype), pointer(address(g) + at, out.dtype)
        state, to = pointer(address(out) + at, out.dtype), pointer(address(ggiven) + at, out.dtype)
        for j in range(now * m):
            gh[j] += grad[j]
        if relu:
            for j in range(now * m):
                to[j] = gh[j] if state[j] > 0 else 0
        else:
            for j in range(now * m):
                to[j] = gh[j] * (one - state[j] * state[j])
        ggiven_at = address(ggiven) + at
        add_product(out, weight, 0, right, now, ggiven_at, 0, 0, carried)


@gemm_kernel(grain=GRAIN, outputs=2, allocates=True)
def rnn_grad(ggiven, gh0, g, glast, out, weight, starts, relu, reverse):
    """Gradients of ``rnn`` with respect to given and h0.

    ggiven, g, out (N, m); gh0, glast (n, m); weight (m, m): all C.
    """
    n = gh0.shape[0]
    right = prepared(weight, 0, starts.size - 1, n)
    each = rows_of_a_task(right, weight, 0, n)
    previous = blas_alone(n * weight.size)
    for task in prange((n + each - 1) // each):
        first = task * each
        rows = min(each, n - first)
        rnn_grad_rows(first, rows, right, ggiven, gh0, g, glast, out, weight, starts, relu, reverse)
    blas_restore(previous)
    keep(right)


# -- long short-term memory ------------------------------------------------------------------------


@device
def lstm_row(like, at, cell, old, state, m):
    """A step of one row, all addresses: gates of what they are given, cell and state of them."""
    wide()
    dtype, width = like.dtype, m * like.itemsize
    enter, keeps = pointer(at, dtype), pointer(at + width, dtype)
    new, leave = pointer(at + 2 * width, dtype), pointer(at + 3 * width, dtype)
    c, before, h = pointer(cell, dtype), pointer(old, dtype), pointer(state, dtype)
    for j in range(2 * m):
        enter[j] = sigmoid(enter[j])
    for j in range(m):
        new[j] = tanh(new[j])
    for j in range(m):
        leave[j] = sigmoid(leave[j])
    for j in range(m):
        c[j] = keeps[j] * before[j] + enter[j] * new[j]
    for j in range(m):
        h[j] = leave[j] * tanh(c[j])


@device
def lstm_rows(
    first, rows, right, narrowing, gates, out, wide_out, cells, last, last_cell, h0, c0,
    weight, narrow, starts, reverse,
):  # fmt: skip
    """``lstm`` of some rows."""
    steps, m, way = starts.size - 1, cells.shape[1], -1 if reverse else 1
    row, out_row = m * cells.itemsize, out.shape[1] * cells.itemsize
    beginning, start_cell = address(h0) + first * out_row, address(c0) + first * row
    t, before, old, held = steps - 1 if reverse else 0, 0, 0, 0
    for _ in range(steps):
        now, top = active(starts, t, first, rows), starts[t] + first
        kept = min(now, held)
        end, cell, gate = address(out) + top * out_row, address(cells) + top * row, 4 * top * row
        state = address(wide_out) + top * row if narrow.size else end
        gate += address(gates)
        add_states(out, weight, right, now, kept, before, beginning, gate, 4 * m, gate)
        for i in range(now):
            old_cell = (old if i < kept else start_cell) + i * row
            lstm_row(out, gate + 4 * i * row, cell + i * row, old_cell, state + i * row, m)
        if narrow.size:
            add_product(out, narrow, 1, narrowing, now, state, 0, 0, end)
        later = active(starts, t + way, first, rows)
        copied(last, out, first, top, later, now)
        copied(last_cell, cells, first, top, later, now)
        before, old, held = end, cell, now
        t += way


@gemm_kernel(grain=GRAIN, outputs=6, allocates=True)
def lstm(gates, out, wide_out, cells, last, last_cell, h0, c0, weight, narrow, starts, reverse):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 2000).

    gates (N, 4 m): what the input, forget, cell and output gates are given, and then these gates.
    out (N, p), cells (N, m): h and c of each step; last, h0 (n, p), last_cell, c0 (n, m): after and
    before; weight (4 m, p), by which h enters the gates; narrow (p, m): what the m numbers of
    wide_out (N, m) are multiplied by to be h (Sak et al., 2014). Without any numbers in narrow p is
    m and wide_out is not touched. All C.
    """
    n, steps = h0.shape[0], starts.size - 1
    right, narrowing = prepared(weight, 1, steps, n), prepared(narrow, 1, steps, n)
    each = rows_of_a_task(right, weight, 1, n)
    previous = blas_alone(n * weight.size)
    for task in prange((n + each - 1) // each):
        first = task * each
        rows = min(each, n - first)
        lstm_rows(
            *(first, rows, right, narrowing, gates, out, wide_out, cells),
            *(last, last_cell, h0, c0, weight, narrow, starts, reverse),
        )
    blas_restore(previous)
    keep(right)
    keep(narrowing)


@device
def lstm_row_grad(like, spare, to, gh_at, gc_at, at, cell, old, m):
    """A step back of one row, all addresses but ``spare`` (m); to: the gradients of its gates."""
    wide()
    dtype, width = like.dtype, m * like.itemsize
    enter, keeps = pointer(at, dtype), pointer(at + width, dtype)
    new, leave = pointer(at + 2 * width, dtype), pointer(at + 3 * width, dtype)
    genter, gkeeps = pointer(to, dtype), pointer(to + width, dtype)
    gnew, gleave = pointer(to + 2 * width, dtype), pointer(to + 3 * width, dtype)
    gh, gc = pointer(gh_at, dtype), pointer(gc_at, dtype)
    c, before, squashed = pointer(cell, dtype), pointer(old, dtype), pointer(address(spare), dtype)
    one = dtype.type(1)  # a plain one would make all of this float64
    # Short loops, each of which writes one array: LLVM vectorises no loop that writes many, for
    # it would have to check all of them against one another.
    for j in range(m):
        squashed[j] = tanh(c[j])
    for j in range(m):
        gleave[j] = gh[j] * squashed[j] * (leave[j] * (one - leave[j]))
    for j in range(m):
        gc[j] += gh[j] * leave[j] * (one - squashed[j] * squashed[j])
    for j in range(m):
        genter[j] = gc[j] * new[j] * (enter[j] * (one - enter[j]))
    for j in range(m):
        gnew[j] = gc[j] * enter[j] * (one - new[j] * new[j])
    for j in range(m):
        gkeeps[j] = gc[j] * before[j] * (keeps[j] * (one - keeps[j]))
    for j in range(m):
        gc[j] *= keeps[j]


@device(allocates=True)
def lstm_grad_rows(
    first, rows, right, widening, ggates, gh0, gc0, gout, g, glast, glast_cell, gates, cells, c0,
    weight, narrow, starts, reverse,
):  # fmt: skip
    """``lstm_grad`` of some rows."""
    steps, m, width = starts.size - 1, cells.shape[1], g.shape[1]
    row, out_row = m * cells.itemsize, width * cells.itemsize
    copied(gh0, glast, first, first, 0, rows)
    copied(gc0, glast_cell, first, first, 0, rows)
    gh, gc, way = address(gh0) + first * out_row, address(gc0) + first * row, 1 if reverse else -1
    spare, widened = np.empty(m, cells.dtype), np.empty(rows * m if narrow.size else 0, cells.dtype)
    for s in range(steps):
        t = s if reverse else steps - 1 - s
        now, kept = active(starts, t, first, rows), active(starts, t + way, first, rows)
        top = starts[t] + first
        at, out_at, old = top * row, top * out_row, address(c0) + first * row
        if kept:
            old = address(cells) + (starts[t + way] + first) * row
        carried, grad = pointer(gh, cells.dtype), pointer(address(g) + out_at, cells.dtype)
        for j in range(now * width):
            carried[j] += grad[j]
        of_state = gh
        if narrow.size and now > 0:
            kept_grad, of_state = pointer(address(gout) + out_at, cells.dtype), address(widened)
            for j in range(now * width):
                kept_grad[j] = carried[j]
            add_product(cells, narrow, 0, widening, now, gh, 0, 0, of_state)
        gate, cell, to = address(gates) + 4 * at, address(cells) + at, address(ggates) + 4 * at
        for i in range(now):
            begin = old if i < kept else address(c0) + first * row
            lstm_row_grad(
                *(cells, spare, to + 4 * i * row, of_state + i * row, gc + i * row),
                *(gate + 4 * i * row, cell + i * row, begin + i * row, m),
            )
        add_product(cells, weight, 0, right, now, to, 0, 0, gh)
    keep(spare)
    keep(widened)


@gemm_kernel(grain=GRAIN, outputs=4, allocates=True)
def lstm_grad(
    ggates, gh0, gc0, gout, g, glast, glast_cell, gates, cells, c0, weight, narrow, starts, reverse
):  # fmt: skip
    """Gradients of ``lstm`` with respect to what gates were given, h0 and c0.

    ggates (N, 4 m), gh0, glast (n, p), gc0, glast_cell (n, m), g, gout (N, p): the gradient of each
    h, alone and with what comes through later steps; the rest as there: all C. Without any numbers
    in narrow gout is not touched.
    """
    n = gh0.shape[0]
    steps = starts.size - 1
    right, widening = prepared(weight, 0, steps, n), prepared(narrow, 0, steps, n)
    each = rows_of_a_task(right, weight, 0, n)
    previous = blas_alone(n * weight.size)
    for task in prange((n + each - 1) // each):
        first = task * each
        rows = min(each, n - first)
        lstm_grad_rows(
            *(first, rows, right, widening, ggates, gh0, gc0, gout, g, glast),
            *(glast_cell, gates, cells, c0, weight, narrow, starts, reverse),
        )
    blas_restore(previous)
    keep(right)
    keep(widening)


# -- gated recurrent unit --------------------------------------------------------------------------


@device
def gru_row(like, at, mixed, kept, old, state, m):
    """A step of one row, all addresses; mixed: the product of the state, for the three gates."""
    wide()
    dtype, width = like.dtype, m * like.itemsize
    reset, update, new = (
        pointer(at, dtype),
        pointer(at + width, dtype),
        pointer(at + 2 * width, dtype),
    )
    of_state, last_third = pointer(mixed, dtype), pointer(mixed + 2 * width, dtype)
    held, before, h = pointer(kept, dtype), pointer(old, dtype), pointer(state, dtype)
    for j in range(2 * m):
        reset[j] = sigmoid(reset[j] + of_state[j])
    for j in range(m):
        held[j] = last_third[j]
    for j in range(m):
        new[j] = tanh(new[j] + reset[j] * held[j])
    for j in range(m):
        h[j] = new[j] + update[j] * (before[j] - new[j])


@device(allocates=True)
def gru_rows(
    first, rows, right, gates, out, held, last, h0, weight, bias, biased, starts, reverse
):  # fmt: skip
    """``gru`` of some rows."""
    steps, m, way = starts.size - 1, out.shape[1], -1 if reverse else 1
    row = m * out.itemsize
    mixed = np.empty(rows * 3 * m, out.dtype)
    beginning, product = address(h0) + first * row, address(mixed)
    start = address(bias) if biased else 0
    t, before, earlier = steps - 1 if reverse else 0, 0, 0
    for _ in range(steps):
        now, top = active(starts, t, first, rows), starts[t] + first
        kept = min(now, earlier)
        state, gate, part = address(out) + top * row, address(gates), address(held) + top * row
        gate += 3 * top * row
        add_states(out, weight, right, now, kept, before, beginning, start, 0, product)
        for i in range(now):
            old = (before if i < kept else beginning) + i * row
            gru_row(
                *(out, gate + 3 * i * row, product + 3 * i * row),
                *(part + i * row, old, state + i * row, m),
            )
        copied(last, out, first, top, active(starts, t + way, first, rows), now)
        before, earlier = state, now
        t += way
    keep(mixed)


@gemm_kernel(grain=GRAIN, outputs=4, allocates=True)
def gru(gates, out, held, last, h0, weight, bias, starts, biased, reverse):
    """A gated recurrent unit (Cho et al., 2014), reset after the product of the state.

    gates (N, 3 m): what the reset, update and new gates are given, and then these gates. out, held
    (N, m): h of each step, and its product for the new gate; last, h0 (n, m): h after and before;
    weight (3 m, m), bias (3 m): all C. Without ``biased`` bias may be any array of rank 1.
    """
    n = h0.shape[0]
    right = prepared(weight, 1, starts.size - 1, n)
    each = rows_of_a_task(right, weight, 1, n)
    previous = blas_alone(n * weight.size)
    for task in prange((n + each - 1) // each):
        first = task * each
        rows = min(each, n - first)
        gru_rows(
            *(first, rows, right, gates, out, held),
            *(last, h0, weight, bias, biased, starts, reverse),
        )
    blas_restore(previous)
    keep(right)


@device
def gru_row_grad(like, to, to_held, gh_at, grad_at, at, kept, old, m):
    """A step back of one row, all addresses; to, to_held: gradients of both parts of the gates."""
    dtype, width = like.dtype, m * like.itemsize
    reset, update, new = (
        pointer(at, dtype),
        pointer(at + width, dtype),
        pointer(at + 2 * width, dtype),
    )
    greset, gupdate = pointer(to, dtype), pointer(to + width, dtype)
    gnew, gheld = pointer(to + 2 * width, dtype), pointer(to_held, dtype)
    glast_third = pointer(to_held + 2 * width, dtype)
    gh, grad = pointer(gh_at, dtype), pointer(grad_at, dtype)
    held, before, one = pointer(kept, dtype), pointer(old, dtype), dtype.type(1)
    for j in range(m):
        gh[j] += grad[j]
    for j in range(m):
        gupdate[j] = gh[j] * (before[j] - new[j]) * (update[j] * (one - update[j]))
    for j in range(m):
        gnew[j] = gh[j] * (one - update[j]) * (one - new[j] * new[j])
    for j in range(m):
        greset[j] = gnew[j] * held[j] * (reset[j] * (one - reset[j]))
    for j in range(2 * m):
        gheld[j] = greset[j]
    for j in range(m):
        glast_third[j] = gnew[j] * reset[j]
    for j in range(m):
        gh[j] *= update[j]


@device
def gru_grad_rows(
    first, rows, right, ggates, gheld, gh0, g, glast, gates, held, out, h0, weight, starts, reverse
):  # fmt: skip
    """``gru_grad`` of some rows."""
    steps, m, way = starts.size - 1, out.shape[1], 1 if reverse else -1
    row = m * out.itemsize
    copied(gh0, glast, first, first, 0, rows)
    gh, beginning = address(gh0) + first * row, address(h0) + first * row
    for s in range(steps):
        t = s if reverse else steps - 1 - s
        now, kept = active(starts, t, first, rows), active(starts, t + way, first, rows)
        at, old = (starts[t] + first) * row, beginning
        if kept:
            old = address(out) + (starts[t + way] + first) * row
        grad, gate, part = address(g) + at, address(gates) + 3 * at, address(held) + at
        to, to_held = address(ggates) + 3 * at, address(gheld) + 3 * at
        for i in range(now):
            before = (old if i < kept else beginning) + i * row
            gru_row_grad(
                *(out, to + 3 * i * row, to_held + 3 * i * row, gh + i * row, grad + i * row),
                *(gate + 3 * i * row, part + i * row, before, m),
            )
        add_product(out, weight, 0, right, now, to_held, gh, m, gh)


@gemm_kernel(grain=GRAIN, outputs=3, allocates=True)
def gru_grad(ggates, gheld, gh0, g, glast, gates, held, out, h0, weight, starts, reverse):
    """Gradients of ``gru`` with respect to what gates were given, the state's product, and h0.

    ggates, gheld (N, 3 m), gh0, glast (n, m), g (N, m); the rest as there: all C.
    """
    n = h0.shape[0]
    right = prepared(weight, 0, starts.size - 1, n)
    each = rows_of_a_task(right, weight, 0, n)
    previous = blas_alone(n * weight.size)
    for task in prange((n + each - 1) // each):
        first = task * each
        rows = min(each, n - first)
        gru_grad_rows(
            *(first, rows, right, ggates, gheld, gh0, g, glast),
            *(gates, held, out, h0, weight, starts, reverse),
        )
    blas_restore(previous)
    keep(right)
