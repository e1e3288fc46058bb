"""Ctrl-C while something is made that must not stay half made: it waits for the end of that.

Numba's registries, a module of generated text and the state that a recording has changed and puts
back are each in pieces for a while. An interrupt in between would leave them so for the life of the
process. Start reading at ``held``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["held", "interruptible"]

_waiting = False
"""Whether an interrupt has come that nobody has been told of."""


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


def _main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _raises_here() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler and _main()


def _holds_here() -> bool:
    return signal.getsignal(signal.SIGINT) is _wait and _main()


def _begin() -> None:
    signal.signal(signal.SIGINT, _wait)


def _end() -> None:
    """As outside again; raise what has waited."""
    global _waiting
    if signal.getsignal(signal.SIGINT) is _wait:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if _waiting:
        _waiting = False
        raise KeyboardInterrupt


def _wait(number: int, frame: Any) -> None:
    """The handler within ``held``."""
    global _waiting
    if _waiting:
        _waiting = False
        raise KeyboardInterrupt
    _waiting = True
