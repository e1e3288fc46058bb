"""Names of the layouts that PyTorch's programs ask for: ``memory_format=ng.channels_last``.

They are hints. Elementwise results lie as their operands do, others as suits the operation: a name
is checked, and changes nothing but what ``is_contiguous`` is asked for. ``contiguous_format`` asks
``clone``, ``to`` and the likes of ``zeros_like`` for a contiguous result.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "Layout",
    "MemoryFormat",
    "channels_last",
    "channels_last_3d",
    "check",
    "check_layout",
    "contiguous_format",
    "preserve_format",
    "sparse_coo",
    "strided",
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


class Layout:
    """How elements are kept: ``ng.strided``, in an array; others are names to compare with."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"ng.{self.name}"

    def __reduce__(self) -> str:
        return self.name


strided = Layout("strided")
sparse_coo = Layout("sparse_coo")


def check_layout(name: str, layout: Any) -> None:
    """Raise TypeError if ``layout``, given to the function ``name``, is not ``strided`` (or None).

    NotImplementedError if it is another of PyTorch's.
    """
    if layout is None or layout is strided:
        return
    if isinstance(layout, Layout):
        raise NotImplementedError(f"{name}: there are dense tensors only, not {layout}.")
    raise TypeError(
        f"{name}: argument 'layout' must be ng.layout, not {type(layout).__name__}. It may be "
        f"ng.strided."
    )


def check(name: str, memory_format: Any) -> None:
    """Raise TypeError if ``memory_format``, given to the function ``name``, is none (or None)."""
    if memory_format is not None and not isinstance(memory_format, MemoryFormat):
        raise TypeError(
            f"{name}: memory_format must be ng.contiguous_format, ng.preserve_format, "
            f"ng.channels_last or ng.channels_last_3d, got {memory_format!r}."
        )
