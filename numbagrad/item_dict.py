"""``ItemDict``: a dict that is written to in two ways, so that a subclass can tell of both."""

from __future__ import annotations

from typing import Any

__all__ = ["ItemDict"]


class ItemDict(dict):
    """A dict whose methods all write by ``__setitem__`` and ``pop``.

    >>> class Told(ItemDict):
    ...     def __setitem__(self, key, value):
    ...         print("set", key)
    ...         super().__setitem__(key, value)
    >>> Told().update(a=1, b=2)
    set a
    set b
    """

    __slots__ = ()

    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    def clear(self) -> None:
        """Take all out."""
        for key in list(self):
            self.pop(key)

    def popitem(self) -> tuple[Any, Any]:
        """Take the last item out."""
        if not self:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self))
        return key, self.pop(key)

    def update(self, *others: Any, **named: Any) -> None:
        """Set several items."""
        for key, value in dict(*others, **named).items():
            self[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of ``key``; ``default`` becomes it where there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self
