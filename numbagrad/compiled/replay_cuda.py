"""When the launches of a compiled step on a GPU are captured into a graph, and replayed.

A graph has addresses of its own: inputs are copied into memory that stays where it is, results out
of it, and what is both, such as a gradient that is added to, goes in and out. Its numbers lie in
device memory, where each call writes its own before the replay: learning rates, float arguments,
positions of the random generator. What a graph cannot hold is started one by one, and ``why`` says
so. Start reading at ``Replay.run``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..kernels.cuda.runtime import device
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.cuda.runtime.copies import copy_all
from ..kernels.cuda.runtime.graph import Graph
from ..kernels.cuda.runtime.launch import note_use
from ..kernels.cuda.runtime.numbers import DeviceNumber, Numbers
from ..kernels.cuda.runtime.twins import is_cuda, of_a_user
from .emit_cuda import Template, operands, place_of
from .program import Buffer
from .traced import extent

MOST = 8
"""Graphs that one program is captured into, one after the other, before it stays with launches."""

MOST_COUNTERS = 1024
"""Numbers of the host that a graph reads; more would be an array."""


def reason(template: Template) -> str:
    """Why the launches cannot be a graph; "" if nothing is known against it."""
    if os.environ.get("NUMBAGRAD_CUDA_GRAPHS", "1") == "0":
        return "NUMBAGRAD_CUDA_GRAPHS=0 is set"
    given = {a.buffer for a in template.arguments}
    hosted: set[Buffer] = set()
    for i in template.launches:
        if i.kind == "host":
            made = {o.buffer for o in operands(i.args)} & set(template.counters)
            if made & hosted:
                return f"{i.told}: the host writes what it has written"
            hosted |= made
        if i.kind == "twin" and (is_cuda(i.what) or of_a_user(i.what)):
            return f"{i.told}: a kernel of your own chooses its stream"
        if i.kind == "look":
            return "the host looks at every value"
    count = sum([b.size for b in template.counters])
    if set(template.counters) - hosted - given or count > MOST_COUNTERS:
        return "kernels read an array of the host"
    return ""


class Replay:
    """The graph of a program, if there is one.

    start: runs the launches on the arrays and numbers given; ended: what follows a replay; tally:
    has ``graphs``, which counts captures.
    """

    def __init__(
        self,
        template: Template,
        start: Callable[..., None],
        ended: Callable[[], None],
        tally: Any,
    ):
        self.template, self.start, self.ended, self.tally = template, start, ended, tally
        self.why = reason(template)
        self.graph: Graph | None = None
        self.replays = 0
        self._left = MOST
        self._key: Any = None  # what the graph depends on
        self._last: Any = None  # what the launches before depended on
        self._numbers: Numbers | None = None
        self._fixed: list[DeviceArray | None] = []  # None: of the host, such as saved counters
        buffers = [a.buffer for a in template.arguments]
        here = [place_of(b) is not None for b in buffers]
        read = [b.kind == "input" for b in buffers]
        written = [b.kind != "input" or b in template.written for b in buffers]
        self._inward = [r and h for r, h in zip(read, here, strict=True)]
        self._outward = [w and h for w, h in zip(written, here, strict=True)]
        self._both = [k for k, i in enumerate(self._inward) if i and self._outward[k]]

    def run(self, given: Sequence[Any], values: Sequence[Any], counters: Sequence[int]) -> None:
        """Compute for the arrays of a call.

        values: its floats and hyper-parameters; counters: what the host has counted for it.
        """
        if self.why or device.capturing():
            self.start(given, values)
            return
        if any([not given[k].c_contiguous for k in self._both]):  # what lies between is not ours
            self.start(given, values)
            return
        numbers = self._numbers
        together = (*values, *counters)
        if numbers is None or not numbers.fits(together):
            numbers = self._numbers = Numbers(together, len(values), self.template.device)
            self.graph, self._last, self._fixed = None, None, []
        numbers.put(together)
        key = numbers.fixed()
        if self.graph is not None and key == self._key:
            self._copy(given, self._inward, inward=True)
            self.graph.replay()
            self._copy(given, self._outward, inward=False)
            self.replays += 1
            self.ended()
        elif key == self._last:
            self._capture(given, numbers)
        else:
            self._start(given, numbers)

    def _start(self, given: Sequence[Any], numbers: Numbers) -> None:
        """Start the launches one by one, on the numbers in device memory."""
        count = numbers.counted
        self.start(given, numbers.each[:count], numbers.each[count:])
        self._last = numbers.fixed()
        if any([type(x) is DeviceNumber and x.looked for x in numbers.each[count:]]):
            self.why = "a kernel's launch depends on what the host counts"

    def _capture(self, given: Sequence[Any], numbers: Numbers) -> None:
        """Run on the graph's own memory, then capture the same launches."""
        if not self._fixed:
            self._fixed = [
                None
                if place_of(a.buffer) is None
                else device.empty((a.buffer.size,), a.buffer.dtype, self.template.device)
                for a in self.template.arguments
            ]
        seen = [self._seen(k, array) for k, array in enumerate(given)]
        self._copy(given, self._inward, inward=True)
        self._start(seen, numbers)
        self._copy(given, self._outward, inward=False)
        self.graph, self._key = None, None
        self._left -= 1
        if self._left < 0:
            self.why = "streams, or numbers that launches depend on, changed too often"
            return
        try:
            self.graph = Graph(lambda: self._start(seen, numbers))
        except Exception as error:  # this call has been computed already: later ones go without
            self.why = f"capture failed: {type(error).__name__}: {error}"
            return
        self._key = self._last
        self.tally.graphs += 1

    def _seen(self, k: int, given: Any) -> Any:
        """The fixed memory of argument ``k``, from where its first element lies."""
        fixed, argument = self._fixed[k], self.template.arguments[k]
        if fixed is None:
            return given
        return fixed.element_view((argument.buffer.size,), (1,), argument.offset)

    def _copy(self, given: Sequence[Any], chosen: list[bool], inward: bool) -> None:
        """The chosen arguments to the graph's memory, or from there."""
        pairs = []
        for array, fixed, wanted in zip(given, self._fixed, chosen, strict=True):
            if not wanted or fixed is None or not array.size:
                continue
            note_use(array)
            low, high = extent(array)
            pair = (fixed.pointer, low) if inward else (low, fixed.pointer)
            pairs.append((*pair, high - low))
        copy_all(pairs)
