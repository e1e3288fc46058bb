"""What a convolution sees, as tables for ``sight.py``: places, taps, and what lies outside.

In each dimension a place has a position in the source and a tap a shift, and what is seen is at
their sum. For the gradient of the input, whose source is that of the result, the places fall into
phases: those which have the same rest by the stride see the same taps, and only those. So no number
is gathered in vain. Start reading at ``geometry``.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import DeviceError
from . import device
from .sight import FORM, TAPS

__all__ = ["Geometry", "geometry"]

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """taps, lines, form: the tables, see ``patches.patched``. order: where in the weight a step is,
    from the first of a row on, or -1. places of an image and steps: of the phase that has most;
    row: steps of all phases. before, after: zeros that the source needs around it, where taps are
    more than there are bits.
    """

    taps: Any
    lines: Any
    form: Any
    order: Any
    phases: int
    places: int
    steps: int
    row: int
    before: Sizes
    after: Sizes


@dataclass(frozen=True)
class _Phase:
    """In one dimension: targets, places of the result; where they are in the source; the taps that
    they see, and by how much further they do."""

    targets: np.ndarray
    positions: np.ndarray
    taps: np.ndarray
    shifts: np.ndarray

    def reach(self, size: int) -> tuple[int, int]:
        """How many places before and after the source are seen."""
        if not self.taps.size:
            return 0, 0
        first = int(self.positions.min() + self.shifts.min())
        last = int(self.positions.max() + self.shifts.max())
        return max(-first, 0), max(last - size + 1, 0)

    def outside(self, size: int) -> np.ndarray:
        """The taps, by number here, that look outside of the source from some place."""
        first, last = self.positions.min(), self.positions.max()
        return np.flatnonzero((self.shifts + first < 0) | (self.shifts + last >= size))


def _forward(count: int, kernel: int, stride: int, padding: int, dilation: int) -> list[_Phase]:
    places, taps = np.arange(count), np.arange(kernel)
    return [_Phase(places, places * stride - padding, taps, taps * dilation)]


def _backward(count: int, kernel: int, stride: int, padding: int, dilation: int) -> list[_Phase]:
    places, taps = np.arange(count), np.arange(kernel)
    phases = []
    for first in range(min(stride, count)):
        targets = places[first::stride]
        seen = taps[taps * dilation % stride == (first + padding) % stride]
        shifts = -(seen * dilation // stride)
        phases.append(_Phase(targets, (targets + padding) // stride, seen, shifts))
    return phases


@functools.lru_cache(maxsize=256)
def geometry(
    forward: bool, source: Sizes, result: Sizes, kernel: Sizes, channels: int, inputs: int,
    strides: Sizes, paddings: Sizes, dilations: Sizes, multiple: int,
) -> Geometry:  # fmt: skip
    """source, result, kernel: sizes of space; channels: of the source in a group, that are summed
    over; inputs: of the weight, that lie between its taps in the gradient of the input; multiple:
    what the numbers of steps are made to divide by, with steps that see nothing."""
    make = _forward if forward else _backward
    along = [
        make(*numbers) for numbers in zip(result, kernel, strides, paddings, dilations, strict=True)
    ]
    bits = max(
        sum(phase.outside(size).size for phase, size in zip(phases, source, strict=True))
        for phases in itertools.product(*along)
    )
    before: Sizes = (0, 0, 0)
    after: Sizes = before
    if bits > TAPS:
        reaches = [
            [phase.reach(size) for phase in phases]
            for phases, size in zip(along, source, strict=True)
        ]
        before = tuple([max(first for first, _ in reach) for reach in reaches])
        after = tuple([max(last for _, last in reach) for reach in reaches])
    whole = tuple([b + n + a for b, n, a in zip(before, source, after, strict=True)])
    taps: list[np.ndarray] = []
    lines: list[np.ndarray] = []
    order, rows = [], []
    tap, at_line = 0, 0
    for phases in itertools.product(*along):
        masks = _masks(phases, source, bits <= TAPS)
        width, height = phases[2].targets.size, phases[1].targets.size
        offsets, seen, index = [], [], []
        row_lines: list[np.ndarray] = []
        for d, (phase, (of_places, of_taps)) in enumerate(zip(phases, masks, strict=True)):
            unit = math.prod(whole[d + 1 :])
            line = np.zeros((phase.targets.size, 4), np.int64)
            line[:, 0] = (phase.positions + before[d]) * unit
            line[:, 1] = of_places | 1 << 31
            line[:, 2] = phase.targets * math.prod(result[d + 1 :])
            row_lines.insert(0, line)
            offsets.append(phase.shifts * unit)
            seen.append(of_taps | 1 << 30)
            index.append(phase.taps * math.prod(kernel[d + 1 :]))
        places = phases[0].targets.size * height * width
        here = _outer(np.add, np.arange(channels) * math.prod(whole), *offsets)
        words = _outer(np.bitwise_or, np.zeros(channels, np.int64), *seen)
        apart = math.prod(kernel) * (1 if forward else inputs)
        missing = -here.size % multiple
        nothing = np.full((missing, 2), (0, -1))
        taps.append(np.concatenate([np.stack([here, words], 1), nothing]))
        order.append(_outer(np.add, np.arange(channels) * apart, *index))
        order.append(np.full(missing, -1))
        rows.append((places, here.size + missing, tap, at_line, width, height))
        lines.extend(row_lines)
        tap, at_line = tap + here.size + missing, at_line + sum(map(len, row_lines))
    form = np.array(rows, np.int64)
    assert form.shape[1] == FORM
    return Geometry(
        _words(np.concatenate(taps)), _words(np.concatenate(lines)), device.table(form),
        device.table(np.concatenate(order)), len(rows), int(form[:, 0].max()),
        int(form[:, 1].max()), int(form[:, 1].sum()), before, after,
    )  # fmt: skip


def _outer(how: Any, *along: np.ndarray) -> np.ndarray:
    """All combinations, the last of ``along`` fastest."""
    return functools.reduce(how.outer, along).reshape(-1)


def _masks(
    phases: tuple[_Phase, ...], source: Sizes, enough: bool
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each dimension the bits of places and those of taps; enough: whether there are enough,
    otherwise none is set."""
    used, masks = 0, []
    for phase, size in zip(phases, source, strict=True):
        places = np.zeros(phase.positions.size, np.int64)
        taps = np.zeros(phase.shifts.size, np.int64)
        for tap in phase.outside(size) if enough else ():
            there = phase.positions + phase.shifts[tap]
            places |= np.where((there < 0) | (there >= size), 1 << used, 0)
            taps[tap] = 1 << used
            used += 1
        masks.append((places, taps))
    return masks


def _words(table: np.ndarray) -> Any:
    """``table`` on the device, in 32 bits of which the last may be set."""
    offsets = table[:, ::2]
    if offsets.size and np.abs(offsets).max() >= 1 << 31:
        raise DeviceError(
            "convolution: an image has 2**31 elements or more, which no kernel on the GPU takes. "
            "Cut it into parts."
        )
    return device.table(table.astype(np.uint32).view(np.int32))
