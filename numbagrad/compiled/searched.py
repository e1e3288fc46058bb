"""A recording of a function with all that it looks at, by whatever names.

``finder.py`` knows the names in the code before anything runs. By which others objects were asked
for tells the recording (``asked.py``): then the search begins anew with these, and the function is
recorded again. Start reading at ``Search.recorded``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import RecordingError
from .carried import Recorded, recorded
from .finder import Reach, reach_of
from .places import Place, check_unchanged
from .slots import Slot

__all__ = ["Search"]

_MOST = 64
"""Recordings until no name is new: each may find objects of which others are asked for next."""


class Search:
    """What ``function`` may look at. looked_into: arguments that may hold something of the user.

    learned: names that recordings of the function have asked for; it is added to. places: all that
    were found last.
    """

    def __init__(
        self, function: Callable[..., Any], looked_into: list[Any], learned: set[str]
    ) -> None:
        self.function, self.looked_into, self.learned = function, looked_into, learned
        self.reach = self._reach()

    @property
    def places(self) -> list[Place]:
        """All places that were found."""
        return self.reach.places

    def _reach(self, without: Iterable[Any] = ()) -> Reach:
        return reach_of(self.function, self.looked_into, self.learned, without)

    def recorded(
        self, leaves: list[Any], spec: Any, slots: list[Slot], tied: bool = False
    ) -> Recorded:
        """Record the function, taking ``slots``, and those that turn up, for arguments."""
        for _ in range(_MOST):
            given = self.reach.places, self.reach.objects, slots, tied
            found = recorded(self.function, leaves, spec, *given)
            asked = found.recording.recorder.asked
            more = asked.names_beside(self.reach.names)
            if not more and self.reach.missing.isdisjoint(sys.modules):
                break
            self.learned |= more
            self.reach = self._reach()
        else:
            raise RecordingError(
                f"compile: each of {_MOST} recordings asked objects for names made at run time "
                f"that no other had, the last of them {', '.join(sorted(more)[:3])}. Name the "
                "attributes in the code, or pass the values as arguments."
            )
        kernels, others = found.recording.recorder.python_kernels, list(asked.places())
        check_unchanged(others)
        bound = {id(found.leaves[k]) for k in found.bound}
        others += [place for place in self.reach.given if id(place.holder) in bound]
        if kernels:
            self.reach = self._reach(kernels)
        return found.with_places([*self.places, *others]) if kernels or others else found
