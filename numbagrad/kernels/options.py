"""``Options``: numbers that kernels are given, in a dict that tells when one of them changes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..errors import StateMadeError
from . import machine
from .traced_float import TracedFloat

__all__ = ["Options", "carried", "telling"]


def telling(method: Any, tell: Callable[[], None], flag: str = "recorded") -> Any:
    """``method`` of a container, which then calls ``tell`` if its attribute ``flag`` is true."""

    @functools.wraps(method)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        finally:
            if getattr(self, flag):
                tell()

    return told


class Options(dict):
    """Options by name, such as an optimiser's group. A recorded step that reads them keeps the
    numbers, and sets ``recorded``: then each change is announced, and it reads them again.
    """

    recorded = False
    watched = False  # whether a user's optimiser has read them while it was recorded
    counts: frozenset[str] = frozenset()  # what recorded functions set

    def _is_counted(self, name: str, value: Any) -> bool:
        """Whether a number is set to one that a kernel does not read: whole, or of a step that is
        the user's."""
        old = self.get(name)
        if type(old) is TracedFloat or (type(old) is int and type(value) is int):
            return True
        ours = not machine.recording or not machine.is_compiling()
        return not ours and machine.recorder.current.passes(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        if self._is_counted(name, value) and carried(self, name):
            dict.__setitem__(self, name, value)
            return
        if name not in self and machine.recording and machine.is_compiling():
            raise StateMadeError(
                f"option {name!r}: made inside a compiled function, which a compiled call would "
                f"not do. Make it before, or call the function once."
            )
        if machine.recording and self.get(name) is not value:
            machine.outside(f"option {name!r}", "Set it before the call: each call reads it.")
        if self.watched and name not in self.counts:
            if type(value) is not float or type(self.get(name)) is not float:
                machine.changed()  # floats alone are read at each call
        super().__setitem__(name, value)

    def update(self, *others: Any, **named: Any) -> None:
        """As a dict does."""
        for name, value in dict(*others, **named).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        """As a dict does."""
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self


def carried(container: Any, name: str) -> bool:
    """Whether a recorded function sets an entry of an optimiser's dict that is there, as compiled
    calls do too. The recording is told of it."""
    if not machine.recording or not machine.is_compiling() or name not in container:
        return False
    container.counts |= {name}
    if type(container[name]) is not TracedFloat:
        machine.recorder.current.carrying(container, name)
    return True


for _name in "__setitem__ __delitem__ clear pop popitem".split():
    setattr(Options, _name, telling(getattr(Options, _name), machine.retold))
    if _name != "__setitem__":
        setattr(Options, _name, telling(getattr(Options, _name), machine.changed, "watched"))
