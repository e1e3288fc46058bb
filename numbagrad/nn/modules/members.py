"""``Members``: the table of what a module has registered, which may be written to by hand."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from ...item_dict import ItemDict

__all__ = ["TABLES", "Members", "renewed"]

TABLES = ("_parameters", "_buffers", "_modules")
"""The attributes of a module that are tables."""


class Members(ItemDict):
    """Parameters, buffers or children of a module by name.

    A module has them as ordinary attributes too, which are quick to read. Who writes here, as code
    does that exchanges weights, changes those. A copy is a plain dict.
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: Any, members: Any = ()):
        dict.__init__(self, members)
        self._owner = weakref.ref(owner)

    @property
    def owner(self) -> Any:
        """The module, or None once it is gone."""
        return self._owner()

    def __setitem__(self, name: str, value: Any) -> None:
        dict.__setitem__(self, name, value)
        owner = self._owner()
        if owner is not None:
            owner._show(name, value)

    def pop(self, name: str, *default: Any) -> Any:
        """Take a member out and return it."""
        held = name in self
        value = dict.pop(self, name, *default)
        owner = self._owner()
        if held and owner is not None:
            owner._hide(name, value)
        return value

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)


def renewed(owner: Any, own: dict[str, Any], tables: Iterable[str] = TABLES) -> None:
    """Let dicts that stand as tables among a module's attributes be ``Members`` of its own."""
    for table in tables:
        held = own.get(table)
        if isinstance(held, dict) and not (type(held) is Members and held.owner is owner):
            own[table] = Members(owner, held)
