"""Recurrent layers: a whole sequence of one layer in one direction, forward and backward.

One launch for a sequence. The rows of a batch never meet, so a block owns some rows and goes with
them through all steps, between barriers of the block: no block waits for another, and the sums are
added in one order. A launch for each step would put more multiprocessors to work on a small batch
of a wide layer, but costs a hundred launches where this costs one. In each step the threads share
out first the columns of the product, then the units. Start reading at ``lstm``.
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


def _product(real: Any, together: int) -> Any:
    """The function that adds ``state @ weight`` to rows of ``to``."""

    @inlined
    def add_product(to, at, state, before, weight, m, k, rows):
        """to: rows of m from ``at`` on; state: rows of k from ``before`` on; weight (k, m)."""
        total = cuda.local.array(together, real)
        for j in range(cuda.threadIdx.x, m, BLOCK):
            for i in range(together):
                total[i] = to[at + i * m + j] if i < rows else real(0)
            for h in range(k):
                factor = weight[h * m + j]
                for i in range(together):
                    if i < rows:
                        total[i] += state[before + i * k + h] * factor
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

    def rnn(out, last, h0, turned, relu, reverse, steps, n, m):
        """turned: the weight transposed."""
        first = cuda.blockIdx.x * together
        rows = min(together, n - first)
        for s in range(steps):
            t = steps - 1 - s if reverse else s
            at = (t * n + first) * m
            if s == 0:
                add_product(out, at, h0, first * m, turned, m, m, rows)
            else:
                before = at + (n if reverse else -n) * m
                add_product(out, at, out, before, turned, m, m, rows)
            cuda.syncthreads()
            for j in range(cuda.threadIdx.x, rows * m, BLOCK):
                x = out[at + j]
                value = real(math.tanh(x))
                if relu:
                    value = real(0) if x <= real(0) else x
                out[at + j] = value
                if s == steps - 1:
                    last[first * m + j] = value
            cuda.syncthreads()

    return rnn


def rnn(out, last, h0, weight, relu, reverse):
    """``h = tanh(given + h weight.T)``, or relu, from step to step (Elman, 1990).

    out (t, n, m): given, and then h; last, h0 (n, m): h after and before; weight (m, m): all C.
    """
    steps, n, m = out.shape
    _start(_rnn, out, n, out, last, h0, weight.T.copy(), relu, reverse, steps, n, m)


def _rnn_grad(real: Any, together: int) -> Any:
    add_product = _product(real, together)

    def rnn_grad(ggiven, gh0, g, glast, out, weight, relu, reverse, steps, n, m):
        first = cuda.blockIdx.x * together
        rows, base = min(together, n - first), first * m
        for s in range(steps):
            t = s if reverse else steps - 1 - s
            at = (t * n + first) * m
            for j in range(cuda.threadIdx.x, rows * m, BLOCK):
                grad = g[at + j] + (glast[base + j] if s == 0 else gh0[base + j])
                h = out[at + j]
                value = grad * (real(1) - h * h)
                if relu:
                    value = grad if h > real(0) else real(0)
                ggiven[at + j] = value
                gh0[base + j] = real(0)
            cuda.syncthreads()
            add_product(gh0, base, ggiven, at, weight, m, m, rows)
            cuda.syncthreads()

    return rnn_grad


def rnn_grad(ggiven, gh0, g, glast, out, weight, relu, reverse):
    """Gradients of ``rnn`` with respect to given and h0.

    ggiven, g, out (t, n, m); gh0, glast (n, m); weight (m, m): all C.
    """
    steps, n, m = out.shape
    arrays = ggiven, gh0, g, glast, out, weight
    _start(_rnn_grad, out, n, *arrays, relu, reverse, steps, n, m)


# -- long short-term memory ------------------------------------------------------------------------


def _lstm(real: Any, together: int) -> Any:
    add_product, sigmoid = _product(real, together), _squashed(real)

    def lstm(
        gates, out, wide_out, cells, last, last_cell, h0, c0, turned, narrowing, narrowed, reverse,
        steps, n, m, width,
    ):  # fmt: skip
        """turned, narrowing: weight and narrow transposed."""
        first = cuda.blockIdx.x * together
        rows, base, start_at = min(together, n - first), first * m, first * width
        for s in range(steps):
            t = steps - 1 - s if reverse else s
            at, out_at = (t * n + first) * m, (t * n + first) * width
            back = n if reverse else -n
            if s == 0:
                add_product(gates, 4 * at, h0, start_at, turned, 4 * m, width, rows)
            else:
                before = out_at + back * width
                add_product(gates, 4 * at, out, before, turned, 4 * m, width, rows)
            cuda.syncthreads()
            for j in range(cuda.threadIdx.x, rows * m, BLOCK):
                gate = 4 * at + j // m * 4 * m + j % m
                enter, keep = sigmoid(gates[gate]), sigmoid(gates[gate + m])
                new = real(math.tanh(gates[gate + 2 * m]))
                leave = sigmoid(gates[gate + 3 * m])
                old = c0[base + j] if s == 0 else cells[at + back * m + j]
                c = keep * old + enter * new
                h = leave * real(math.tanh(c))
                gates[gate], gates[gate + m] = enter, keep
                gates[gate + 2 * m], gates[gate + 3 * m] = new, leave
                cells[at + j] = c
                if narrowed:
                    wide_out[at + j] = h
                else:
                    out[at + j] = h
                if s == steps - 1:
                    last_cell[base + j] = c
            if narrowed:
                for j in range(cuda.threadIdx.x, rows * width, BLOCK):
                    out[out_at + j] = real(0)
                cuda.syncthreads()
                add_product(out, out_at, wide_out, at, narrowing, width, m, rows)
            cuda.syncthreads()
            if s == steps - 1:
                for j in range(cuda.threadIdx.x, rows * width, BLOCK):
                    last[start_at + j] = out[out_at + j]

    return lstm


def lstm(gates, out, wide_out, cells, last, last_cell, h0, c0, weight, narrow, reverse):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 2000).

    gates (t, n, 4 m): what the input, forget, cell and output gates are given, and then these
    gates. out (t, n, p), cells (t, n, m): h and c of each step; last, h0 (n, p), last_cell, c0
    (n, m): after and before; weight (4 m, p), by which h enters the gates; narrow (p, m): what
    the m numbers of wide_out (t, n, m) are multiplied by to be h (Sak et al., 2014). Without any
    numbers in narrow p is m and wide_out is not touched. All C.
    """
    steps, n, m = cells.shape
    arrays = gates, out, wide_out, cells, last, last_cell, h0, c0
    turned = weight.T.copy(), narrow.T.copy()
    sizes = int(narrow.size > 0), reverse, steps, n, m, out.shape[2]
    _start(_lstm, out, n, *arrays, *turned, *sizes)


def _lstm_grad(real: Any, together: int) -> Any:
    add_product = _product(real, together)

    def lstm_grad(
        ggates, gh0, gc0, gout, widened, g, glast, glast_cell, gates, cells, c0, weight, narrow,
        narrowed, reverse, steps, n, m, width,
    ):  # fmt: skip
        """widened (n, m): the gradient of what is narrowed to be h."""
        one = real(1)
        first = cuda.blockIdx.x * together
        rows, base, start_at = min(together, n - first), first * m, first * width
        for s in range(steps):
            t = s if reverse else steps - 1 - s
            at, out_at = (t * n + first) * m, (t * n + first) * width
            before = at + (n if reverse else -n) * m
            if narrowed:
                for j in range(cuda.threadIdx.x, rows * width, BLOCK):
                    later = glast[start_at + j] if s == 0 else gh0[start_at + j]
                    gout[out_at + j] = g[out_at + j] + later
                for j in range(cuda.threadIdx.x, rows * m, BLOCK):
                    widened[base + j] = real(0)
                cuda.syncthreads()
                add_product(widened, base, gout, out_at, narrow, m, width, rows)
                cuda.syncthreads()
            for j in range(cuda.threadIdx.x, rows * m, BLOCK):
                gate = 4 * at + j // m * 4 * m + j % m
                enter, keep = gates[gate], gates[gate + m]
                new, leave = gates[gate + 2 * m], gates[gate + 3 * m]
                old = c0[base + j] if s == steps - 1 else cells[before + j]
                squashed = real(math.tanh(cells[at + j]))
                if narrowed:
                    gh = widened[base + j]
                else:
                    gh = g[at + j] + (glast[base + j] if s == 0 else gh0[base + j])
                gc = glast_cell[base + j] if s == 0 else gc0[base + j]
                gc += gh * leave * (one - squashed * squashed)
                ggates[gate] = gc * new * (enter * (one - enter))
                ggates[gate + m] = gc * old * (keep * (one - keep))
                ggates[gate + 2 * m] = gc * enter * (one - new * new)
                ggates[gate + 3 * m] = gh * squashed * (leave * (one - leave))
                gc0[base + j] = gc * keep
            cuda.syncthreads()
            for j in range(cuda.threadIdx.x, rows * width, BLOCK):
                gh0[start_at + j] = real(0)
            cuda.syncthreads()
            add_product(gh0, start_at, ggates, 4 * at, weight, width, 4 * m, rows)
            cuda.syncthreads()

    return lstm_grad


def lstm_grad(
    ggates, gh0, gc0, gout, g, glast, glast_cell, gates, cells, c0, weight, narrow, reverse
):  # fmt: skip
    """Gradients of ``lstm`` with respect to what gates were given, h0 and c0.

    ggates (t, n, 4 m), gh0, glast (n, p), gc0, glast_cell (n, m), g, gout (t, n, p): the gradient
    of each h, alone and with what comes through later steps; the rest as there: all C. Without any
    numbers in narrow gout is not touched.
    """
    steps, n, m = cells.shape
    narrowed = int(narrow.size > 0)
    widened = device.empty((n, m), cells.dtype, cells.device) if narrowed else gc0
    arrays = ggates, gh0, gc0, gout, widened, g, glast, glast_cell, gates, cells, c0
    sizes = narrowed, reverse, steps, n, m, g.shape[2]
    _start(_lstm_grad, cells, n, *arrays, weight, narrow, *sizes)


# -- gated recurrent unit --------------------------------------------------------------------------


def _gru(real: Any, together: int) -> Any:
    add_product, fill, sigmoid = _product(real, together), _filled(real), _squashed(real)

    def gru(
        gates, out, held, last, mixed, h0, turned, bias, biased, reverse, steps, n, m,
    ):  # fmt: skip
        """mixed (n, 3 m): the product of the state; turned: the weight transposed."""
        first = cuda.blockIdx.x * together
        rows, base = min(together, n - first), first * m
        for s in range(steps):
            t = steps - 1 - s if reverse else s
            at = (t * n + first) * m
            before = at + (n if reverse else -n) * m
            fill(mixed, 3 * base, 3 * m, rows, bias, biased)
            if s == 0:
                add_product(mixed, 3 * base, h0, base, turned, 3 * m, m, rows)
            else:
                add_product(mixed, 3 * base, out, before, turned, 3 * m, m, rows)
            cuda.syncthreads()
            for j in range(cuda.threadIdx.x, rows * m, BLOCK):
                place = j // m * 3 * m + j % m
                gate, own = 3 * at + place, 3 * base + place
                reset = sigmoid(gates[gate] + mixed[own])
                update = sigmoid(gates[gate + m] + mixed[own + m])
                part = mixed[own + 2 * m]
                new = real(math.tanh(gates[gate + 2 * m] + reset * part))
                old = h0[base + j] if s == 0 else out[before + j]
                h = new + update * (old - new)
                gates[gate], gates[gate + m], gates[gate + 2 * m] = reset, update, new
                held[at + j], out[at + j] = part, h
                if s == steps - 1:
                    last[base + j] = h
            cuda.syncthreads()

    return gru


def gru(gates, out, held, last, h0, weight, bias, biased, reverse):
    """A gated recurrent unit (Cho et al., 2014), reset after the product of the state.

    gates (t, n, 3 m): what the reset, update and new gates are given, and then these gates. out,
    held (t, n, m): h of each step, and its product for the new gate; last, h0 (n, m): h after and
    before; weight (3 m, m), bias (3 m): all C. Without ``biased`` bias may be any array of rank 1.
    """
    steps, n, m = out.shape
    mixed = device.empty((n, 3 * m), out.dtype, out.device)
    arrays = gates, out, held, last, mixed, h0, weight.T.copy(), bias
    _start(_gru, out, n, *arrays, biased, reverse, steps, n, m)


def _gru_grad(real: Any, together: int) -> Any:
    add_product = _product(real, together)

    def gru_grad(
        ggates, gheld, gh0, g, glast, gates, held, out, h0, weight, reverse, steps, n, m,
    ):  # fmt: skip
        one = real(1)
        first = cuda.blockIdx.x * together
        rows, base = min(together, n - first), first * m
        for s in range(steps):
            t = s if reverse else steps - 1 - s
            at = (t * n + first) * m
            before = at + (n if reverse else -n) * m
            for j in range(cuda.threadIdx.x, rows * m, BLOCK):
                gate = 3 * at + j // m * 3 * m + j % m
                reset, update, new = gates[gate], gates[gate + m], gates[gate + 2 * m]
                old = h0[base + j] if s == steps - 1 else out[before + j]
                gh = g[at + j] + (glast[base + j] if s == 0 else gh0[base + j])
                gupdate = gh * (old - new) * (update * (one - update))
                gnew = gh * (one - update) * (one - new * new)
                greset = gnew * held[at + j] * (reset * (one - reset))
                ggates[gate], gheld[gate] = greset, greset
                ggates[gate + m], gheld[gate + m] = gupdate, gupdate
                ggates[gate + 2 * m], gheld[gate + 2 * m] = gnew, gnew * reset
                gh0[base + j] = gh * update
            cuda.syncthreads()
            add_product(gh0, base, gheld, 3 * at, weight, m, 3 * m, rows)
            cuda.syncthreads()

    return gru_grad


def gru_grad(ggates, gheld, gh0, g, glast, gates, held, out, h0, weight, reverse):
    """Gradients of ``gru`` with respect to what gates were given, the state's product, and h0.

    ggates, gheld (t, n, 3 m), gh0, glast (n, m), g (t, n, m); the rest as there: all C.
    """
    steps, n, m = out.shape
    arrays = ggates, gheld, gh0, g, glast, gates, held, out, h0, weight
    _start(_gru_grad, out, n, *arrays, reverse, steps, n, m)
