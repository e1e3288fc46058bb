"""Assertions for the tests of what is built on numbagrad: ``assert_close``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dtypes import float64, promote_types
from .ops.from_data import as_tensor
from .tensor import Tensor

__all__ = ["assert_close"]

TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}
"""rtol and atol by dtype; anything else must be equal."""

_NUMBERS = (bool, int, float)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless ``|actual - expected| <= atol + rtol |expected|`` everywhere.

    actual, expected: tensors, arrays or numbers, or sequences and mappings of them. Infinities are
    close to themselves only, NaN to nothing, or to NaN with ``equal_nan``.

    rtol, atol: both or neither; by default of the dtype, the larger of two: 1.3e-6 and 1e-5 for
    float32, 1e-7 and 1e-7 for float64, 1e-3 and 1e-5 for float16, 1.6e-2 and 1e-5 for bfloat16, and
    0 for whole numbers. check_device, check_dtype, check_stride: whether these must be equal, as
    shapes must; without the first two the sides are brought together. allow_subclasses: whether a
    Parameter may stand for a Tensor. check_layout: for PyTorch's sake, all are strided here. msg:
    what is said instead, or a function of what would be said.

    Raises TypeError for what cannot be compared, and ValueError for one tolerance without the
    other or a negative one.
    """
    if (rtol is None) != (atol is None):
        given, missing = ("rtol", "atol") if atol is None else ("atol", "rtol")
        raise ValueError(f"assert_close: {given} was given without {missing}; give both or none.")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not value >= 0:
            raise ValueError(f"assert_close: {name} is not negative, got {value}.")
    rules = _Rules(
        *(allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_stride)
    )
    wrong = _difference(actual, expected, rules, ())
    if wrong is not None:
        if msg is not None:
            wrong = msg if isinstance(msg, str) else msg(wrong)
        raise AssertionError(wrong)


@dataclass(frozen=True)
class _Rules:
    subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    device: bool
    dtype: bool
    stride: bool


def _difference(actual: Any, expected: Any, rules: _Rules, path: tuple[Any, ...]) -> str | None:
    """What differs, or None. path: indices and keys that lead to the two."""
    where = f"\n\nIt is item {''.join(f'[{key!r}]' for key in path)}." if path else ""
    if actual is None and expected is None:
        return None
    if all(isinstance(x, _NUMBERS) for x in (actual, expected)):
        wrong = _of_numbers(actual, expected, rules)
    elif all(isinstance(x, (Tensor, np.ndarray, np.generic)) for x in (actual, expected)):
        _check_related(actual, expected, rules, where)
        wrong = _of_tensors(_tensor(actual), _tensor(expected), rules)
    elif all(isinstance(x, Mapping) for x in (actual, expected)):
        return _of_items(actual, expected, list(expected), list(actual), rules, path, where)
    elif all(isinstance(x, Sequence) and not isinstance(x, str) for x in (actual, expected)):
        if len(actual) != len(expected):
            return f"The sequences have {len(actual)} and {len(expected)} items.{where}"
        keys = list(range(len(expected)))
        return _of_items(actual, expected, keys, keys, rules, path, where)
    else:
        raise TypeError(
            f"assert_close: cannot compare {type(actual).__name__} with "
            f"{type(expected).__name__}; both are tensors, arrays, numbers, or sequences or "
            f"mappings of them.{where}"
        )
    return None if wrong is None else wrong + where


def _of_items(
    actual: Any,
    expected: Any,
    wanted: list[Any],
    found: list[Any],
    rules: _Rules,
    path: tuple[Any, ...],
    where: str,
) -> str | None:
    missing = [key for key in wanted if key not in found]
    more = [key for key in found if key not in wanted]
    if missing or more:
        return f"The keys of the mappings differ: missing {missing}, unexpected {more}.{where}"
    for key in wanted:
        wrong = _difference(actual[key], expected[key], rules, (*path, key))
        if wrong is not None:
            return wrong
    return None


def _check_related(actual: Any, expected: Any, rules: _Rules, where: str) -> None:
    kinds = type(actual), type(expected)
    related = issubclass(kinds[0], kinds[1]) or issubclass(kinds[1], kinds[0])
    if not (related if rules.subclasses else kinds[0] is kinds[1]):
        names = " with ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"assert_close: cannot compare {names}; both are of one type.{where}")


def _tensor(value: Any) -> Tensor:
    return value.detach() if isinstance(value, Tensor) else as_tensor(value)


def _of_tensors(actual: Tensor, expected: Tensor, rules: _Rules) -> str | None:
    compared: list[tuple[str, Any, Any]] = [("shape", actual.shape, expected.shape)]
    if rules.device:
        compared.append(("device", actual.device, expected.device))
    if rules.dtype:
        compared.append(("dtype", actual.dtype, expected.dtype))
    if rules.stride:
        compared.append(("stride", actual.stride(), expected.stride()))
    for name, mine, theirs in compared:
        if mine != theirs:
            return f"The values for attribute '{name}' do not match: {mine} != {theirs}."
    rtol, atol = rules.rtol, rules.atol
    if rtol is None or atol is None:
        pairs = [TOLERANCES.get(t.dtype.name, (0.0, 0.0)) for t in (actual, expected)]
        rtol, atol = (max(each) for each in zip(*pairs, strict=True))
    dtype = promote_types(actual.dtype, expected.dtype)
    if dtype.is_floating_point:
        dtype = float64  # the difference is exact then
    x, y = (t.cpu().to(dtype).numpy() for t in (actual, expected))
    return _unequal("Tensor-likes", x, y, rtol, atol, rules.equal_nan)


def _unequal(
    what: str, x: np.ndarray, y: np.ndarray, rtol: float, atol: float, equal_nan: bool
) -> str | None:
    """What is wrong with arrays of one shape and dtype."""
    exact = rtol == 0 and atol == 0
    with np.errstate(all="ignore"):
        distance = _distance(x, y)
        size = np.abs(y.astype(np.float64))
        close = (x == y) | (np.isfinite(distance) & (distance <= atol + rtol * size))
        relative = np.where(distance == 0, 0.0, distance / size)
    if equal_nan:
        close |= (x != x) & (y != y)
    if close.all():
        return None
    bad = close.size - int(close.sum())
    lines = [f"{what} are not {'equal' if exact else 'close'}!", ""]
    if x.ndim == 0:
        lines.append(f"Expected {y[()]} but got {x[()]}.")
    else:
        lines.append(f"Mismatched elements: {bad} / {close.size} ({bad / close.size:.1%})")
    for name, amounts, allowed in (
        ("absolute", distance, atol),
        ("relative", relative, rtol),
    ):
        amounts = np.where(close, -1.0, amounts)
        worst = int(np.argmax(np.where(np.isnan(amounts), math.inf, amounts)))
        limit = "" if exact else f" (up to {allowed:g} allowed)"
        amount = f"{amounts.flat[worst]:g}"
        if x.ndim == 0:
            lines.append(f"{name.capitalize()} difference: {amount}{limit}")
        else:
            index = tuple(map(int, np.unravel_index(worst, x.shape)))
            mine, theirs = x[index], y[index]
            at = f"at index {index}: {mine} for {theirs}"
            lines.append(f"Greatest {name} difference: {amount} {at}{limit}")
    return "\n".join(lines)


def _distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``|x - y|`` in float64, of whole numbers without wrapping around."""
    if x.dtype == np.bool_:
        return (x != y).astype(np.float64)
    if x.dtype.kind in "iu":
        unsigned = np.dtype(f"u{x.dtype.itemsize}")
        low, high = np.minimum(x, y), np.maximum(x, y)
        return (high.view(unsigned) - low.view(unsigned)).astype(np.float64)
    return np.abs(x - y)


def _of_numbers(actual: Any, expected: Any, rules: _Rules) -> str | None:
    kinds = type(actual), type(expected)
    if rules.dtype and kinds[0] is not kinds[1]:
        return f"The (d)types do not match: {kinds[0].__name__} != {kinds[1].__name__}."
    rtol, atol = rules.rtol, rules.atol
    if rtol is None or atol is None:
        rtol, atol = TOLERANCES["float64"] if float in kinds else (0.0, 0.0)
    if float not in kinds and not (rtol or atol) and actual == expected:
        return None  # of any size
    x, y = (np.asarray(v, np.float64) for v in (actual, expected))
    return _unequal("Scalars", x, y, rtol, atol, rules.equal_nan)
