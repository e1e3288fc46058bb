"""Numbers that are known when a call has ended: what a scheduler has set, say.

Where a function returns one, the call puts the number there. Start reading at ``known``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import RecordingError
from ..tape import show_location, user_location
from ..tree import flatten, rebuild

__all__ = ["Late", "known"]


class Late:
    """Stands for the number that ``read`` gives in the end. name: what errors call it."""

    def __init__(self, name: str, read: Callable[[], Any]):
        self.name, self.read = name, read


def _refused(operation: str) -> Callable[..., Any]:
    def refuse(late: Any, *others: Any) -> Any:
        late = late if isinstance(late, Late) else others[0]
        raise RecordingError(
            f"{late.name}: not possible inside a compiled function, at "
            f"{show_location(user_location())}, to compute with what it gives ({operation}), which "
            f"is known when the call has ended. Return it as it is, or ask for it after the "
            f"compiled step."
        )

    return refuse


_OPERATIONS = """add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow
    neg pos abs float int bool index round lt le gt ge eq ne str repr format hash"""
for _name in _OPERATIONS.split():
    setattr(Late, f"__{_name}__", _refused(_name))


def known(value: Any) -> Any:
    """``value``, what a call returns, with the numbers themselves."""
    leaves: list[Any] = []
    spec = flatten(value, leaves)
    return rebuild(spec, [leaf.read() if type(leaf) is Late else leaf for leaf in leaves])
