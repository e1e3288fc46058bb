"""How a tensor prints: the text of ``repr(x)``, character for character PyTorch's.

Start at `tensor_repr`. Three steps: keep the elements that will be seen (`_shown`), write each of
them in one common style (`_texts`), stack them in brackets (`_stack`). Only what is shown is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .dtypes import DType, bool_, get_default_dtype, int64

__all__ = ["set_printoptions"]


class PrintOptions(NamedTuple):
    """What `set_printoptions` sets; the defaults are PyTorch's."""

    precision: int = 4  # digits after the decimal point
    threshold: float = 1000  # more elements than this are summarised
    edgeitems: int = 3  # kept at either end of a summarised axis
    linewidth: int = 80  # characters
    sci_mode: bool | None = None  # None: decided by the values shown


PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=math.inf),
}

_options = PROFILES["default"]


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Choose how tensors print from now on; what is left out keeps its value.

    precision: digits after the point. threshold: summarise above so many elements. edgeitems:
    elements kept at each end of an axis then. linewidth: characters per line. sci_mode: always
    (True) or never (False) scientific; as in PyTorch every call sets it, and leaving it out
    returns the choice to the values. profile: "default", "short" or "full", applied first.
    Raises ValueError for another profile or a negative size.

    >>> set_printoptions(precision=2)
    >>> set_printoptions(profile="default")
    """
    global _options
    base = _options
    if profile is not None:
        if profile not in PROFILES:
            raise ValueError(
                f"set_printoptions: profile must be one of {', '.join(PROFILES)}, got {profile!r}."
            )
        base = PROFILES[profile]
    sizes: dict[str, Any] = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    given = {name: size for name, size in sizes.items() if size is not None}
    for name, size in given.items():
        if size < 0:
            raise ValueError(f"set_printoptions: {name} must be 0 or more, got {size}.")
    _options = base._replace(sci_mode=sci_mode, **given)


def tensor_repr(
    array: np.ndarray, dtype: DType, *, prefix: str = "tensor(", suffix_parts: Sequence[str] = ()
) -> str:
    """The text of a tensor that holds ``array``: prefix, elements, what needs saying, ``)``.

    array: any shape, any strides. dtype: named unless the elements already tell it.
    suffix_parts: notes after size and dtype, such as ``requires_grad=True``.

    >>> from numbagrad.dtypes import float64
    >>> tensor_repr(np.array([1.0, 2.5]), float64, suffix_parts=["requires_grad=True"])
    'tensor([1.0000, 2.5000], dtype=ng.float64, requires_grad=True)'
    """
    if array.size:
        untold_size = _options.edgeitems == 0  # a summary is then "[...]" and no more
        evident: tuple[DType, ...] = (int64, bool_)
    else:
        untold_size = array.ndim != 1  # "[]" reads as shape (0,)
        evident = ()
    notes = [f"size={array.shape}"] if untold_size else []
    if dtype is not get_default_dtype() and dtype not in evident:
        notes.append(f"dtype={dtype!r}")
    text = prefix + _body(array, dtype, len(prefix))
    return _annotate(text, [*notes, *suffix_parts], len(prefix))


def _body(array: np.ndarray, dtype: DType, indent: int) -> str:
    """The elements in their brackets; every line after the first stands ``indent`` further in."""
    if array.size == 0:
        return "[]"
    shown, cut = _shown(array)
    if shown.size == 0:  # edgeitems is 0
        return "[...]"
    texts, width = _texts(shown.ravel().tolist(), dtype)
    return _stack(texts, width, shown.shape, cut, indent)


def _shown(array: np.ndarray) -> tuple[np.ndarray, list[bool]]:
    """The elements that will be printed, and for each axis whether its middle was left out."""
    edge = _options.edgeitems
    if array.ndim == 0 or array.size <= _options.threshold:
        return array, [False] * array.ndim
    cut = [n > 2 * edge for n in array.shape]
    kept = [
        [*range(edge), *range(n - edge, n)] if is_cut else range(n)
        for n, is_cut in zip(array.shape, cut, strict=True)
    ]
    return array[np.ix_(*kept)], cut


def _texts(values: list, dtype: DType) -> tuple[list[str], int]:
    """Each value as text, and the width they were aligned to."""
    if dtype.is_floating_point:
        style, width = _float_style([v for v in values if v != 0 and math.isfinite(v)])
    else:
        style, width = str, max(len(str(value)) for value in values)
    return [style(value).rjust(width) for value in values], width


def _float_style(values: list[float]) -> tuple[Callable[[float], str], int]:
    """One style for all, chosen from the finite values other than zero, and its width.

    Zeros, NaN and infinities do not count, so that they may stand out of line as in PyTorch.
    """
    digits = _options.precision

    def scientific(value: float) -> str:
        return f"{value:.{digits}e}"

    def whole(value: float) -> str:
        return f"{value:.0f}." if math.isfinite(value) else str(value)

    def fixed(value: float) -> str:
        return f"{value:.{digits}f}"

    if not values:
        return whole, 1
    exponents = _options.sci_mode
    if exponents is None:
        smallest, largest = min(map(abs, values)), max(map(abs, values))
        exponents = largest / smallest > 1000 or largest > 1e8 or smallest < 1e-4
    plain = whole if all(value.is_integer() for value in values) else fixed
    style = scientific if exponents else plain
    return style, max(len(style(value)) for value in values)


def _stack(blocks: list[str], width: int, shape: tuple, cut: list[bool], indent: int) -> str:
    """Join the flat ``blocks`` along the last axis, then the one before it, up to the first."""
    innermost = len(shape) - 1
    for axis in reversed(range(len(shape))):
        if axis == innermost:
            per_line = max(1, (_options.linewidth - indent - axis) // (width + 2))
            gap, ellipsis = "\n", " ..."
        else:  # a sub-tensor starts on a line of its own, after more blank ones the larger it is
            per_line = 1
            gap, ellipsis = "\n" * (innermost - axis), "..."
        n = shape[axis]
        groups = [blocks[i : i + n] for i in range(0, len(blocks), n)]
        if cut[axis]:
            groups = [[*group[: n // 2], ellipsis, *group[n // 2 :]] for group in groups]
        newline = "," + gap + " " * (indent + axis + 1)
        blocks = [f"[{newline.join(_lines(group, per_line))}]" for group in groups]
    return blocks[0]


def _lines(items: list[str], per_line: int) -> list[str]:
    return [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]


def _annotate(text: str, notes: list[str], indent: int) -> str:
    """``text`` with its notes and the closing parenthesis; a note too long starts a new line."""
    used = len(text) - text.rfind("\n") + 1  # two more than the line holds, as PyTorch counts
    for note in notes:
        used += len(note) + 2
        if used > _options.linewidth:
            text += ",\n" + " " * indent + note
            used = indent + len(note)
        else:
            text += ", " + note
    return text + ")"
