"""When the launches of a compiled step on a GPU are captured into a graph, and replayed.

A graph has addresses and numbers of its own: inputs are copied into memory that stays where it is,
results out of it, and another learning rate needs another graph. So the launches are captured when
two calls in a row have had the same numbers. What a graph cannot hold is started one by one, and
``why`` says so. Start reading at ``Replay.run``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..kernels.cuda.runtime import device
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.cuda.runtime.graph import Graph
from ..kernels.cuda.runtime.launch import note_use
from ..kernels.cuda.runtime.twins import is_cuda
from .emit_cuda import Template, place_of
from .record import extent

MOST = 8
"""Graphs that one program is captured into, one after the other, before it stays with launches."""


def reason(template: Template) -> str:
    """Why the launches cannot be a graph; "" if nothing is known against it."""
    if os.environ.get("NUMBAGRAD_CUDA_GRAPHS", "1") == "0":
        return "NUMBAGRAD_CUDA_GRAPHS=0 is set"
    for i in template.launches:
        if i.kind == "host":
            return f"{i.told}: the host counts"
        if i.kind == "twin" and (is_cuda(i.what) or getattr(i.what, "twin", None) is not None):
            return f"{i.told}: a kernel of your own chooses its stream"
    for a in template.arguments:
        if place_of(a.buffer) is None:
            return f"{a.buffer.name}: lies on the CPU"
        if a.buffer.kind == "input" and a.buffer in template.written:
            return f"{a.buffer.name}: an input is written, or a gradient added to"
    return ""


class Replay:
    """The graph of a program, if there is one.

    start: runs the launches on the arrays given; ended: what follows a replay.
    """

    def __init__(
        self,
        template: Template,
        start: Callable[[Sequence[DeviceArray]], None],
        ended: Callable[[], None],
    ):
        self.template, self.start, self.ended = template, start, ended
        self.why = reason(template)
        self.graph: Graph | None = None
        self.replays = 0
        self._left = MOST
        self._key: Any = None  # of the graph
        self._last: Any = None  # of the call before
        self._fixed: list[DeviceArray] = []

    def run(self, given: Sequence[DeviceArray], numbers: tuple[Any, ...]) -> None:
        """Compute for the arrays of a call. numbers: floats and hyper-parameters of it."""
        key = numbers, device.current_queue()
        if self.why or (key not in (self._key, self._last)) or device.capturing():
            self._last = key
            self.start(given)
            return
        if key == self._key and self.graph is not None:
            self._copy(given, inward=True)
            self.graph.replay()
            self._copy(given, inward=False)
            self.replays += 1
            self.ended()
            return
        self._capture(given, key)

    def _capture(self, given: Sequence[DeviceArray], key: Any) -> None:
        """Run on the graph's own memory, then capture the same launches."""
        if not self._fixed:
            self._fixed = [
                device.empty((a.buffer.size,), a.buffer.dtype, self.template.device)
                for a in self.template.arguments
            ]
        seen = [self._seen(k) for k in range(len(given))]
        self._copy(given, inward=True)
        self.start(seen)
        self._copy(given, inward=False)
        self.graph, self._key = None, None
        self._left -= 1
        if self._left < 0:
            self.why = "hyper-parameters or float arguments changed too often"
            return
        try:
            self.graph, self._key = Graph(lambda: self.start(seen)), key
        except Exception as error:  # this call has been computed already: later ones go without
            self.why = f"capture failed: {type(error).__name__}: {error}"

    def _seen(self, k: int) -> DeviceArray:
        """The fixed memory of argument ``k``, from where its first element lies."""
        fixed, argument = self._fixed[k], self.template.arguments[k]
        return fixed.element_view((argument.buffer.size,), (1,), argument.offset)

    def _copy(self, given: Sequence[DeviceArray], inward: bool) -> None:
        """Inputs to the graph's memory, or results from there."""
        driver, queue = device.driver(), device.current_queue()
        for a, fixed, array in zip(self.template.arguments, self._fixed, given, strict=True):
            if (a.buffer.kind == "input") is not inward or not array.size:
                continue
            note_use(array)
            low, high = extent(array)
            pair = (fixed.pointer, low) if inward else (low, fixed.pointer)
            driver.copy_within(*pair, high - low, queue)
