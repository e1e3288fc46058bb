"""``Options``: numbers that kernels are given, in a dict that tells when one of them changes.

Lists that tell are here too: an optimiser's groups, and the parameters of each.
"""

from __future__ import annotations

import functools
from typing import Any

from ..errors import StateMadeError
from ..item_dict import ItemDict
from . import machine
from .traced_float import TracedFloat

__all__ = ["Options", "TellingList", "carried", "telling"]


def telling(method: Any) -> Any:
    """``method`` of a container, which then tells compiled functions if it is ``recorded``."""

    @functools.wraps(method)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        finally:
            if self.recorded:
                machine.changed()

    return told


class TellingList(list):
    """A list that tells of its changes once it is ``recorded``."""

    recorded = False


_CHANGES = """__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove
    reverse sort"""
for _name in _CHANGES.split():
    setattr(TellingList, _name, telling(getattr(list, _name)))


class Options(ItemDict):
    """Options by name, such as an optimiser's group. A recorded step that reads them keeps the
    numbers, and sets ``recorded``: then each change is announced, and it reads them again. A list
    of parameters becomes one that tells of its own changes.
    """

    recorded = False
    watched = False  # whether a user's optimiser has read them while it was recorded
    counts: frozenset[str] = frozenset()  # what recorded functions set

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "params" and isinstance(value, list) and self.get(name) is not value:
            value, old = TellingList(value) if type(value) is list else value, self.get(name)
            if type(old) is TellingList and old.recorded:
                if type(value) is TellingList:  # that of another group perhaps
                    value.recorded = True
                machine.changed()
        if machine.recording and type(value) in _NUMBERS and type(self.get(name)) in _NUMBERS:
            number = value.value if type(value) is TracedFloat else value
            if type(number) is float and type(self[name]) is int and machine.is_compiling():
                dict.__setitem__(self, name, float(self[name]))  # a default of 0, which stays equal
            if carried(self, name):
                old = self[name]
                if isinstance(old, float) and isinstance(value, int):
                    value = value * 1.0
                machine.recorder.current.setting(self, name, value)
                dict.__setitem__(self, name, value)
                return
        if name not in self and machine.recording and machine.is_compiling():
            raise StateMadeError(
                f"option {name!r}: made inside a compiled function, which a compiled call would "
                f"not do. Make it before, or call the function once."
            )
        if machine.recording and self.get(name) is not value:
            machine.outside(f"option {name!r}", "Set it before the call: each call reads it.")
        kinds = type(value), type(self.get(name))
        super().__setitem__(name, value)
        if self.watched and name not in self.counts and kinds != (float, float):
            machine.changed()  # floats alone are read at each call
        if self.recorded:
            machine.retold()

    def pop(self, name: str, *default: Any) -> Any:
        """Take an option out and return it."""
        value = super().pop(name, *default)
        if self.watched:
            machine.changed()
        if self.recorded:
            machine.retold()
        return value


_NUMBERS = frozenset((float, int, TracedFloat))
"""Types of what recorded functions may set anew in each call."""


def carried(container: Any, name: str) -> bool:
    """Whether a recorded function sets an entry of an optimiser's dict that is there, as compiled
    calls do too. The recording is told of it."""
    if not machine.recording or not machine.is_compiling() or name not in container:
        return False
    container.counts |= {name}
    machine.recorder.current.carrying(container, name)
    return True
