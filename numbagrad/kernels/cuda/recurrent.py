"""Recurrent layers: a whole sequence of one layer in one direction, forward and backward.

One launch for a sequence. The rows of a batch never meet, so a block owns some rows and goes with
them through all steps, between barriers of the block: no block waits for another, and the sums are
added in one order. A launch for each step would put more multiprocessors to work on a small batch
of a wide layer, but costs a hundred launches where this costs one. In each step the threads share
out first the columns of the product, then the units. ``starts``, N and n are those of the CPU.
Start reading at ``lstm``.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from .runtime import device
from .runtime.launch import made, start
from .runtime.maths import math
from .runtime.shape import BLOCK, SIMULATED
from .runtime.warp import inlined

__all__ = ["gru", "gru_grad", "lstm", "lstm_grad", "rnn", "rnn_grad"]

MANY, TOGETHER = (3, 2) if SIMULATED else (512, 4)
"""From so many rows on a block owns several, so that it reads the weight less often."""


@inlined
def _active(starts, steps, t, first, rows):
    """How many of ``rows`` from ``first`` on take part in step t; none before and after all."""
    if t < 0 or t >= steps:
        return 0
    return max(0, min(rows, starts[t + 1] - starts[t] - first))


def _product(real: Any, together: int) -> Any:
    """The function that adds ``state @ weight`` to rows of ``to``."""

    @inlined
    def add_product(to, at, state, before, start, begin, kept, weight, m, k, rows):
        """to: rows of m from ``at`` on; state: rows of k from ``before`` on, of which the first
        ``kept`` count; the others are those of ``start``, from ``begin`` on; weight (k, m)."""
        total = cuda.local.array(together, real)
        for j in range(cuda.threadIdx.x, m, BLOCK):
            for i in range(together):
                total[i] = to[at + i * m + j] if i < rows else real(0)
            for h in range(k):
                factor = weight[h * m + j]
                for i in range(together):
                    if i < kept:
                        total[i] += state[before + i * k + h] * factor
                    elif i < rows:
                        total[i] += start[begin + i * k + h] * factor
            for i in range(together):
                if i < rows:
                    to[at + i * m + j] = total[i]

    return add_product


def _filled(real: Any) -> Any:
    """The function that writes one row, or zeros, into several."""

    @inlined
    def fill(to, at, m, rows, row, used):
        for j in range(cuda.threadIdx.x, m, BLOCK):
            for i in range(rows):
                to[at + i * m + j] = row[j] if used else real(0)

    return fill


def _squashed(real: Any) -> Any:
    """The sigmoid."""

    @inlined
    def sigmoid(x):
        return real(1) / (real(1) + real(math.exp(-x)))

    return sigmoid


def _start(make: Any, like: Any, n: int, *args: Any) -> None:
    """Launch the kernel that ``make`` makes for ``n`` rows of the dtype of ``like``."""
    if n:
        together = TOGETHER if n >= MANY else 1
        kernel = made(make, like.itemsize, together)
        start(kernel, -(-n // together), BLOCK, *args)


# -- simple ----------------------------------------------------------------------------------------


def _rnn(real: Any, together: int) -> Any:
    add_product = _product(real, together)

    def rnn(out, last, h0, turned, starts, relu, reverse, steps, n, m):
        """turned: the weight transposed."""
        first = cuda.blockIdx.x * together
        rows, base = min(together, n - first), first * m
        held, before = 0, 0
        for s in range(steps):
            t = steps - 1 - s if reverse else s
            now = _active(starts, steps, t, first, rows)
            later = _active(starts, steps, t - 1 if reverse else t + 1, first, rows)
            at = (starts[t] + first) * m
            add_product(out, at, out, before, h0, base, min(now, held), turned, m, m, now)
            cuda.syncthreads()
            for j in range(cuda.threadIdx.x, now * m, BLOCK):
                x = out[at + j]
                value = real(math.tanh(x))
                if relu:
                    value = real(0) if x <= real(0) else x
                out[at + j] = value
                if j >= later * m:
                    last[base + j] = value
            held, before = now, at
            cuda.syncthreads()

    return rnn


def rnn(out, last, h0, weight, starts, relu, reverse):
    """``h = tanh(given + h weight.T)``, or relu, from step to step (Elman, 1990).

    out (N, m): given, and then h; last, h0 (n, m): h after and before; weight (m, m): all C.
    """
    n, m = h0.shape
    sizes = relu, reverse, starts.size - 1, n, m
    _start(_rnn, out, n, out, last, h0, weight.T.copy(), starts, *sizes)


def _rnn_grad(real: Any, together: int) -> Any:
    add_product = _product(real, together)

    def rnn_grad(ggiven, gh0, g, glast, out, weight, starts, relu, reverse, steps, n, m):
        first = cuda.blockIdx.x * together
        rows, base = min(together, n - first), first * m
        for j in range(cuda.threadIdx.x, rows * m, BLOCK):
            gh0[base + j] = glast[base + j]
        cuda.syncthreads()
        for s in range(steps):
            t = s if reverse else steps - 1 - s
            at, now = (starts[t] + first) * m, _active(starts, steps, t, first, rows)
            for j in range(cuda.threadIdx.x, now * m, BLOCK):
                grad = g[at + j] + gh0[base + j]
                h = out[at + j]
                value = grad * (real(1) - h * h)
                if relu:
                    value = grad if h > real(0) else real(0)
                ggiven[at + j] = value
                gh0[base + j] = real(0)
            cuda.syncthreads()
            add_product(gh0, base, ggiven, at, ggiven, at, now, weight, m, m, now)
            cuda.syncthreads()

    return rnn_grad


def rnn_grad(ggiven, gh0, g, glast, out, weight, starts, relu, reverse):
    """Gradients of ``rnn`` with respect to given and h0.

    ggiven, g, out (N, m); gh0, glast (n, m); weight (m, m): all C.
    """
    n, m = gh0.shape
    arrays = ggiven, gh0, g, glast, out, weight, starts
    _start(_rnn_grad, out, n, *arrays, relu, reverse, starts.size - 1, n, m)


# -- long short-term memory ------------------------------------------------------------------------


def _lstm(real: Any, together: int) -> Any:
    add_product, sigmoid = _product(real, together), _squashed(real)

    def lstm(
        gates, out, wide_out, cells, last, last_cell, h0, c0, turned, narrowing, starts, narrowed,
        reverse, steps, n, m, width,
    ):  # fmt: skip
        """turned, narrowing: weight and narrow transposed."""
        first = cuda.blockIdx.x * together
        rows, base, start_at = min(together, n - first), first * m, first * width
        held, before, old_at = 0, 0, 0
        for s in range(steps):
            t = steps - 1 - s if reverse else s
            now = _active(starts, steps, t, first, rows)
            later = _active(starts, steps, t - 1 if reverse else t + 1, first, rows)
            kept, at, out_at = min(now, held), (starts[t] + first) * m, (starts[t] + first) * width
            add_product(gates, 4 * at, out, before, h0, start_at, kept, turned, 4 * m, width, now)
            cuda.syncthreads()
            for j in range(cuda.threadIdx.x, now * m, BLOCK):
                gate = 4 * at + j // m * 4 * m + j % m
                enter, keep = sigmoid(gates[gate]), sigmoid(gates[gate + m])
                new = real(math.tanh(gates[gate + 2 * m]))
                leave = sigmoid(gates[gate + 3 * m])
                old = cells[old_at + j] if j < kept * m else c0[base + j]
                c = keep * old + enter * new
                h = leave * real(math.tanh(c))
                gates[gate], gates[gate + m] = enter, keep
                gates[gate + 2 * m], gates[gate + 3 * m] = new, leave
                cells[at + j] = c
                if narrowed:
                    wide_out[at + j] = h
                else:
                    out[at + j] = h
                if j >= later * m:
                    last_cell[base + j] = c
            if narrowed:
                for j in range(cuda.threadIdx.x, now * width, BLOCK):
                    out[out_at + j] = real(0)
                cuda.syncthreads()
                add_product(out, out_at, wide_out, at, wide_out, at, now, narrowing, width, m, now)
            cuda.syncthreads()
            for j in range(later * width + cuda.threadIdx.x, now * width, BLOCK):
                last[start_at + j] = out[out_at + j]
            held, before, old_at = now, out_at, at

    return lstm


def lstm(gates, out, wide_out, cells, last, last_cell, h0, c0, weight, narrow, starts, reverse):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 2000).

    gates (N, 4 m): what the input, forget, cell and output gates are given, and then these gates.
    out (N, p), cells (N, m): h and c of each step; last, h0 (n, p), last_cell, c0 (n, m): after and
    before; weight (4 m, p), by which h enters the gates; narrow (p, m): what the m numbers of
    wide_out (N, m) are multiplied by to be h (Sak et al., 2014). Without any numbers in narrow p is
    m and wide_out is not touched. All C.
    """
    n, m = c0.shape
    arrays = gates, out, wide_out, cells, last, last_cell, h0, c0
    turned = weight.T.copy(), narrow.T.copy(), starts
    sizes = int(narrow.size > 0), reverse, starts.size - 1, n, m, out.shape[1]
    _start(_lstm, out, n, *arrays, *turned, *sizes)


def _lstm_grad(real: Any, together: int) -> Any:
    add_product = _product(real, together)

    def lstm_grad(
        ggates, gh0, gc0, gout, widened, g, glast, glast_cell, gates, cells, c0, weight, narrow,
        starts, narrowed, reverse, steps, n, m, width,
    ):  # fmt: skip
        """widened (n, m): the gradient of what is narrowed to be h."""
        one = real(1)
        first = cuda.blockIdx.x * together
        rows, base, start_at = min(together, n - first), first * m, first * width
        for j in range(cuda.threadIdx.x, rows * m, BLOCK):
            gc0[base + j] = glast_cell[base + j]
        for j in range(cuda.threadIdx.x, rows * width, BLOCK):
            gh0[start_at + j] = glast[start_at + j]
        cuda.syncthreads()
        for s in range(steps):
            t = s if reverse else steps - 1 - s
            earlier = t + 1 if reverse else t - 1
            now, kept = (
                _active(starts, steps, t, first, rows),
                _active(starts, steps, earlier, first, rows),
            )
            at, out_at = (starts[t] + first) * m, (starts[t] + first) * width
            before = (starts[earlier] + first) * m if kept else 0
            if narrowed:
                for j in range(cuda.threadIdx.x, now * width, BLOCK):
                    gout[out_at + j] = g[out_at + j] + gh0[start_at + j]
                for j in range(cuda.threadIdx.x, now * m, BLOCK):
                    widened[base + j] = real(0)
                cuda.syncthreads()
                add_product(widened, base, gout, out_at, gout, out_at, now, narrow, m, width, now)
                cuda.syncthreads()
            for j in range(cuda.threadIdx.x, now * m, BLOCK):
                gate = 4 * at + j // m * 4 * m + j % m
                enter, keep = gates[gate], gates[gate + m]
                new, leave = gates[gate + 2 * m], gates[gate + 3 * m]
                old = cells[before + j] if j < kept * m else c0[base + j]
                squashed = real(math.tanh(cells[at + j]))
                if narrowed:
                    gh = widened[base + j]
                else:
                    gh = g[at + j] + gh0[base + j]
                gc = gc0[base + j] + gh * leave * (one - squashed * squashed)
                ggates[gate] = gc * new * (enter * (one - enter))
                ggates[gate + m] = gc * old * (keep * (one - keep))
                ggates[gate + 2 * m] = gc * enter * (one - new * new)
                ggates[gate + 3 * m] = gh * squashed * (leave * (one - leave))
                gc0[base + j] = gc * keep
            cuda.syncthreads()
            for j in range(cuda.threadIdx.x, now * width, BLOCK):
                gh0[start_at + j] = real(0)
            cuda.syncthreads()
            four = 4 * at
            add_product(gh0, start_at, ggates, four, ggates, four, now, weight, width, 4 * m, now)
            cuda.syncthreads()

    return lstm_grad


def lstm_grad(
    ggates, gh0, gc0, gout, g, glast, glast_cell, gates, cells, c0, weight, narrow, starts, reverse
):  # fmt: skip
    """Gradients of ``lstm`` with respect to what gates were given, h0 and c0.

    ggates (N, 4 m), gh0, glast (n, p), gc0, glast_cell (n, m), g, gout (N, p): the gradient of each
    h, alone and with what comes through later steps; the rest as there: all C. Without any numbers
    in narrow gout is not touched.
    """
    n, m = gc0.shape
    narrowed = int(narrow.size > 0)
    widened = device.empty((n, m), cells.dtype, cells.device) if narrowed else gc0
    arrays = ggates, gh0, gc0, gout, widened, g, glast, glast_cell, gates, cells, c0
    sizes = narrowed, reverse, starts.size - 1, n, m, g.shape[1]
    _start(_lstm_grad, cells, n, *arrays, weight, narrow, starts, *sizes)


# -- gated recurrent unit --------------------------------------------------------------------------


def _gru(real: Any, together: int) -> Any:
    add_product, fill, sigmoid = _product(real, together), _filled(real), _squashed(real)

    def gru(
        gates, out, held, last, mixed, h0, turned, bias, starts, biased, reverse, steps, n, m,
    ):  # fmt: skip
        """mixed (n, 3 m): the product of the state; turned: the weight transposed."""
        first = cuda.blockIdx.x * together
        rows, base = min(together, n - first), first * m
        earlier, before = 0, 0
        for s in range(steps):
            t = steps - 1 - s if reverse else s
            now = _active(starts, steps, t, first, rows)
            later = _active(starts, steps, t - 1 if reverse else t + 1, first, rows)
            kept, at = min(now, earlier), (starts[t] + first) * m
            fill(mixed, 3 * base, 3 * m, now, bias, biased)
            add_product(mixed, 3 * base, out, before, h0, base, kept, turned, 3 * m, m, now)
            cuda.syncthreads()
            for j in range(cuda.threadIdx.x, now * m, BLOCK):
                place = j // m * 3 * m + j % m
                gate, own = 3 * at + place, 3 * base + place
                reset = sigmoid(gates[gate] + mixed[own])
                update = sigmoid(gates[gate + m] + mixed[own + m])
                part = mixed[own + 2 * m]
                new = real(math.tanh(gates[gate + 2 * m] + reset * part))
                old = out[before + j] if j < kept * m else h0[base + j]
                h = new + update * (old - new)
                gates[gate], gates[gate + m], gates[gate + 2 * m] = reset, update, new
                held[at + j], out[at + j] = part, h
                if j >= later * m:
                    last[base + j] = h
            earlier, before = now, at
            cuda.syncthreads()

    return gru


def gru(gates, out, held, last, h0, weight, bias, starts, biased, reverse):
    """A gated recurrent unit (Cho et al., 2014), reset after the product of the state.

    gates (N, 3 m): what the reset, update and new gates are given, and then these gates. out, held
    (N, m): h of each step, and its product for the new gate; last, h0 (n, m): h after and before;
    weight (3 m, m), bias (3 m): all C. Without ``biased`` bias may be any array of rank 1.
    """
    n, m = h0.shape
    mixed = device.empty((n, 3 * m), out.dtype, out.device)
    arrays = gates, out, held, last, mixed, h0, weight.T.copy(), bias, starts
    _start(_gru, out, n, *arrays, biased, reverse, starts.size - 1, n, m)


def _gru_grad(real: Any, together: int) -> Any:
    add_product = _product(real, together)

    def gru_grad(
        ggates, gheld, gh0, g, glast, gates, held, out, h0, weight, starts, reverse, steps, n, m,
    ):  # fmt: skip
        one = real(1)
        first = cuda.blockIdx.x * together
        rows, base = min(together, n - first), first * m
        for j in range(cuda.threadIdx.x, rows * m, BLOCK):
            gh0[base + j] = glast[base + j]
        cuda.syncthreads()
        for s in range(steps):
            t = s if reverse else steps - 1 - s
            earlier = t + 1 if reverse else t - 1
            now, kept = (
                _active(starts, steps, t, first, rows),
                _active(starts, steps, earlier, first, rows),
            )
            at = (starts[t] + first) * m
            before = (starts[earlier] + first) * m if kept else 0
            for j in range(cuda.threadIdx.x, now * m, BLOCK):
                gate = 3 * at + j // m * 3 * m + j % m
                reset, update, new = gates[gate], gates[gate + m], gates[gate + 2 * m]
                old = out[before + j] if j < kept * m else h0[base + j]
                gh = g[at + j] + gh0[base + j]
                gupdate = gh * (old - new) * (update * (one - update))
                gnew = gh * (one - update) * (one - new * new)
                greset = gnew * held[at + j] * (reset * (one - reset))
                ggates[gate], gheld[gate] = greset, greset
                ggates[gate + m], gheld[gate + m] = gupdate, gupdate
                ggates[gate + 2 * m], gheld[gate + 2 * m] = gnew, gnew * reset
                gh0[base + j] = gh * update
            cuda.syncthreads()
            add_product(gh0, base, gheld, 3 * at, gheld, 3 * at, now, weight, m, 3 * m, now)
            cuda.syncthreads()

    return gru_grad


def gru_grad(ggates, gheld, gh0, g, glast, gates, held, out, h0, weight, starts, reverse):
    """Gradients of ``gru`` with respect to what gates were given, the state's product, and h0.

    ggates, gheld (N, 3 m), gh0, glast (n, m), g (N, m); the rest as there: all C.
    """
    n, m = h0.shape
    arrays = ggates, gheld, gh0, g, glast, gates, held, out, h0, weight, starts
    _start(_gru_grad, out, n, *arrays, reverse, starts.size - 1, n, m)
