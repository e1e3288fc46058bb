"""Marks in streams, by which work on the GPU is waited for and timed."""

from __future__ import annotations

from typing import Any

from ....errors import DeviceError
from .device import Stream, _raise_flags, _refuse_capture, current_stream, driver

__all__ = ["Event"]


class Event:
    """A mark in a stream.

    enable_timing: keep the time at which the GPU passes it, for ``elapsed_time``.
    """

    def __init__(self, enable_timing: bool = False) -> None:
        self.timing = bool(enable_timing)
        self._mark: Any = None

    def _recorded(self, what: str) -> Any:
        if self._mark is None:
            raise DeviceError(f"Event.{what}: the event was never recorded; call record() first.")
        return self._mark

    def record(self, stream: Stream | None = None) -> None:
        """Mark what ``stream``, by default the current one, has been given so far."""
        mark = self._mark or driver().event(self.timing)
        mark.record((current_stream() if stream is None else stream).queue)
        self._mark = mark

    def query(self) -> bool:
        """Whether the GPU has passed the mark; True if there is none."""
        return self._mark is None or self._mark.query()

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work on ``stream``, by default the current one, wait for the mark."""
        if self._mark is not None:
            self._mark.wait((current_stream() if stream is None else stream).queue)

    def synchronize(self) -> None:
        """Wait until the GPU has passed the mark; raises what kernels have found wrong."""
        _refuse_capture("synchronize")
        if self._mark is not None:
            self._mark.synchronize()
            _raise_flags()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to that of ``end_event``, once the GPU has passed both.

        Raises DeviceError for events that do not keep time, were not recorded or not yet passed.
        """
        for event in (self, end_event):
            if not event.timing:
                raise DeviceError(
                    "Event.elapsed_time: both events need to be made with enable_timing=True."
                )
        start, end = self._recorded("elapsed_time"), end_event._recorded("elapsed_time")
        if not (start.query() and end.query()):
            raise DeviceError(
                "Event.elapsed_time: the GPU has not passed both events yet; call "
                "end_event.synchronize() first."
            )
        return float(start.elapsed_time(end))
