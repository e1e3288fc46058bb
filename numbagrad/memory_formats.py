"""Names of the layouts that PyTorch's programs ask for: ``memory_format=ng.channels_last``.

They are hints. Operations lay their results out as suits them, so that a name is checked, and
changes nothing but what ``is_contiguous`` is asked for.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "MemoryFormat",
    "channels_last",
    "channels_last_3d",
    "check",
    "contiguous_format",
    "preserve_format",
]


class MemoryFormat:
    """The name of a layout. order: the dims from the outermost to the innermost, if it tells."""

    __slots__ = ("name", "order")

    def __init__(self, name: str, order: tuple[int, ...] | None = None):
        self.name, self.order = name, order

    def __repr__(self) -> str:
        return f"ng.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format = MemoryFormat("contiguous_format")
preserve_format = MemoryFormat("preserve_format")
channels_last = MemoryFormat("channels_last", (0, 2, 3, 1))
channels_last_3d = MemoryFormat("channels_last_3d", (0, 2, 3, 4, 1))


def check(name: str, memory_format: Any) -> None:
    """Raise TypeError if ``memory_format``, given to the function ``name``, is none (or None)."""
    if memory_format is not None and not isinstance(memory_format, MemoryFormat):
        raise TypeError(
            f"{name}: memory_format must be ng.contiguous_format, ng.preserve_format, "
            f"ng.channels_last or ng.channels_last_3d, got {memory_format!r}."
        )
