"""Ctrl-C while something is made that must not stay half made: it waits for the end of that.

Numba's registries, a module of generated text and the state that a recording has changed and puts
back are each in pieces for a while. An interrupt in between would leave them so for the life of the
process. Start reading at ``held``.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["held", "interruptible"]

_waiting = False
"""Whether an interrupt has come that nobody has been told of."""

_holding = False
"""Whether the main thread is in ``held``, and not in what is interruptible there."""


@contextmanager
def held() -> Iterator[None]:
    """Within, a first interrupt waits, and is raised at the end; a second one is raised at once.

    Where Python's own handler is in place, which raises KeyboardInterrupt in the main thread.
    """
    if not _raises_here():
        yield
        return
    _begin()
    try:
        yield
    finally:
        _end()


def interruptible(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call ``function`` inside of ``held``: interrupts are raised in it as ever."""
    if not _holds_here():
        return function(*args, **kwargs)
    _end()
    try:
        return function(*args, **kwargs)
    finally:
        if _raises_here():  # not where the function has put in another handler
            _begin()


def _raises_here() -> bool:
    there = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return there and threading.get_ident() == threading.main_thread().ident


def _holds_here() -> bool:
    return _holding and threading.get_ident() == threading.main_thread().ident


def _begin() -> None:
    global _waiting, _holding
    _waiting, _holding = False, True
    signal.signal(signal.SIGINT, _wait)


def _end() -> None:
    """As outside again; raise what has waited. Another handler that was put in meanwhile stays."""
    global _waiting, _holding
    _holding = False  # from now on ``_wait`` does what Python's handler does
    if signal.getsignal(signal.SIGINT) is _wait:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    waited, _waiting = _waiting, False
    if waited:
        raise KeyboardInterrupt


def _wait(number: int, frame: Any) -> None:
    """The handler within ``held``, and in the place of Python's wherever else it was put."""
    global _waiting
    if _waiting or not _holding:
        _waiting = False
        raise KeyboardInterrupt
    _waiting = True


def _in_child() -> None:
    """In the child of a fork that another thread made meanwhile nobody is in ``held``."""
    global _waiting, _holding
    _waiting = _holding = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
