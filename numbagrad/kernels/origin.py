"""Whose a function is that Numba compiles: ours, whose text stays as it is, or a user's."""

from __future__ import annotations

import os
from pathlib import Path
from types import FunctionType

__all__ = ["lasts", "ours"]

_KERNELS = os.path.join(Path(__file__).parent, "")


def ours(function: FunctionType) -> bool:
    """Whether a function is of the kernels that come with numbagrad."""
    return function.__code__.co_filename.startswith(_KERNELS)


def lasts(function: FunctionType) -> bool:
    """Whether a function is ours, or of a text that ``store.load_source`` has made a module of."""
    return ours(function) or function.__code__.co_filename.startswith("<numbagrad_")
