"""Launches captured once and started together: what the driver calls a graph.

A graph works on the memory that its launches were captured with, and keeps all of it.
"""

from __future__ import annotations

from collections.abc import Callable

from . import device
from .launch import note_memory

__all__ = ["Graph"]


class Graph:
    """What ``run`` launches, to be replayed on the current stream. ``run`` must have run before:
    kernels are loaded then, and tables lie on the device.

    Raises DeviceError if it does what cannot be captured, such as waiting for the device.
    """

    def __init__(self, run: Callable[[], None]):
        queue, side = device.current_queue(), device.Stream()
        driver = device.driver()
        self._memory = device.captures[side.queue] = []
        try:
            with device.stream(side):
                driver.begin_capture(side.queue)
                try:
                    run()
                except BaseException:
                    _abandon(side)
                    raise
                self._graph = driver.end_capture(side.queue)
        finally:
            del device.captures[side.queue]
        for memory in self._memory:
            note_memory(memory, queue)

    def replay(self) -> None:
        """Start everything on the current stream."""
        device.driver().replay(self._graph, device.current_queue())


def _abandon(side: device.Stream) -> None:
    """End a capture that failed."""
    try:
        device.driver().end_capture(side.queue)
    except device.DeviceError:
        pass  # the driver has ended it by itself; the first error is the one to show
