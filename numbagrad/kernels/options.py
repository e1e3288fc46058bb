"""``Options``: numbers that kernels are given, in a dict that tells when one of them changes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import machine

__all__ = ["Options", "telling"]


def telling(method: Any, tell: Callable[[], None]) -> Any:
    """``method`` of a container, which then calls ``tell`` if the container is ``recorded``."""

    @functools.wraps(method)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        finally:
            if self.recorded:
                tell()

    return told


class Options(dict):
    """Options by name, such as an optimiser's group. A recorded step that reads them keeps the
    numbers, and sets ``recorded``: then each change is announced, and it reads them again.
    """

    recorded = False

    def __setitem__(self, name: str, value: Any) -> None:
        if machine.recording and self.get(name) is not value:
            machine.outside(f"option {name!r}", "Set it before the call: each call reads it.")
        super().__setitem__(name, value)


for _name in "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update".split():
    setattr(Options, _name, telling(getattr(Options, _name), machine.retold))
