"""One step of a recurrent layer, and the steps of sequences of different lengths: ``Form``."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..kernels import machine
from ..tensor import Tensor
from .activation import relu
from .elementwise import sigmoid, tanh
from .join import cat, chunk, stack
from .part import narrow, select

__all__ = ["Form", "form_of", "gru_step", "lstm_step", "rnn_step", "states_before"]


def lstm_step(given: Tensor, held: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The next h and c, of what input and state give to the four gates."""
    enter, keep, new, leave = chunk(given + held, 4, -1)
    c = sigmoid(keep) * c + sigmoid(enter) * tanh(new)
    return sigmoid(leave) * tanh(c), c


def gru_step(given: Tensor, held: Tensor, h: Tensor) -> Tensor:
    """The next h, of what input and state give to the three gates."""
    reset, update, new = chunk(given, 3, -1)
    reset_held, update_held, new_held = chunk(held, 3, -1)
    new = tanh(new + sigmoid(reset + reset_held) * new_held)
    return new + sigmoid(update + update_held) * (h - new)


def rnn_step(given: Tensor, held: Tensor, is_relu: bool) -> Tensor:
    """The next h, of what input and state give."""
    return relu(given + held) if is_relu else tanh(given + held)


@dataclasses.dataclass(frozen=True, eq=False)
class Form:
    """Which rows take part in each step; one of a kind, see ``form_of``.

    sizes: how many, for each step; they never grow. lead: the leading sizes of what has a row for
    each: (t, n), or (N,) where sequences of different lengths are packed.
    """

    sizes: tuple[int, ...]
    lead: tuple[int, ...]

    @property
    def packed(self) -> bool:
        return len(self.lead) == 1

    def starts(self, beside: Any) -> Any:
        """Where each step begins, and the number of rows, on the device of an array."""
        return machine.table(_starts(self.sizes), beside)

    def part(self, x: Tensor, t: int) -> Tensor:
        """Step t of ``x``."""
        if not self.packed:
            return select(x, 0, t)
        starts = _starts(self.sizes)
        return narrow(x, 0, int(starts[t]), self.sizes[t])

    def walk(self, step: Callable[..., tuple], states: tuple, reverse: bool) -> tuple:
        """``step(t, *states)``, the output and next states, in order: all outputs, and the last
        states."""
        outs, ended = {}, []
        beginnings, steps = states, len(self.sizes)
        for t in range(steps - 1, -1, -1) if reverse else range(steps):
            held, now = states[0]._array.shape[0], self.sizes[t]
            if t == steps - 1 and reverse:
                states = tuple([narrow(s, 0, 0, now) for s in states])
            elif now < held:  # these have ended
                ended.append([narrow(s, 0, now, held - now) for s in states])
                states = tuple([narrow(s, 0, 0, now) for s in states])
            elif now > held:  # these begin
                pairs = zip(states, beginnings, strict=True)
                states = tuple([cat([s, narrow(b, 0, held, now - held)]) for s, b in pairs])
            outs[t], *rest = step(t, *states)
            states = tuple(rest)
        parts = zip(states, *reversed(ended), strict=True)
        last = [cat(list(part)) if ended else part[0] for part in parts]
        join = cat if self.packed else stack
        return join([outs[t] for t in range(steps)]), *last


@functools.lru_cache(256)
def form_of(sizes: tuple[int, ...], lead: tuple[int, ...]) -> Form:
    """The form of these sizes: the same each time, so that what is remembered knows it again."""
    return Form(sizes, lead)


@functools.lru_cache(256)
def _starts(sizes: tuple[int, ...]) -> np.ndarray:
    return np.cumsum((0, *sizes), dtype=np.int64)


@functools.lru_cache(8)
def states_before(sizes: tuple[int, ...], reverse: bool) -> np.ndarray:
    """For each row which of the n beginnings and, after them, N states its step started from."""
    starts, many = _starts(sizes), np.array(sizes, np.int64)
    rows = np.arange(starts[-1]) - np.repeat(starts[:-1], many)
    shift = -1 if reverse else 1  # to the step before
    held, begin = np.roll(many, shift), np.roll(starts[:-1], shift)
    held[-1 if reverse else 0] = 0
    kept = rows < np.repeat(held, many)
    return rows + np.where(kept, sizes[0] + np.repeat(begin, many), 0)
