"""Launches captured once and started together: what the driver calls a graph.

A graph works on the memory that its launches were captured with, and keeps all of it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from ....errors import DeviceError
from . import device
from .array import Captured
from .launch import note_memory

__all__ = ["Graph"]


class Graph:
    """What ``run`` launches, to be replayed on the current stream. ``run`` must have run before:
    kernels are loaded then, and tables lie on the device.

    Raises DeviceError if it does what cannot be captured, such as waiting for the device.
    """

    def __init__(self, run: Callable[[], None]):
        queue, side = device.current_queue(), _side()
        with _one_at_a_time:
            self._memory = device.captures[side.queue] = Captured()
            try:
                with device.stream(side):
                    self._graph = _captured(run, side.queue)
            finally:
                del device.captures[side.queue]
        for memory in self._memory:
            note_memory(memory, queue)

    def replay(self) -> None:
        """Start everything on the current stream."""
        device.driver().replay(self._graph, device.current_queue())


_one_at_a_time = threading.Lock()


@functools.cache
def _side() -> device.Stream:
    """The stream on which launches are captured: one, for memory goes back to its stream."""
    return device.Stream()


def _captured(run: Callable[[], None], queue: Any) -> Any:
    """The driver's graph of what ``run`` launches on ``queue``."""
    driver = device.driver()
    driver.begin_capture(queue)
    try:
        run()
    except BaseException:
        try:
            driver.end_capture(queue)
        except DeviceError:
            pass  # the driver has ended it by itself; the first error is the one to show
        raise
    return driver.end_capture(queue)
