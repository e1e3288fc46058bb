"""Parts of a package that are imported when they are first asked for, and which files are ours."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from .collector import paused

__all__ = ["OUR_FILES", "asked_for"]

_FOLDER = os.path.dirname(__file__) + os.sep


class _Files(dict[str, bool]):
    """Of each source file that was asked for whether it is ours."""

    def __missing__(self, name: str) -> bool:
        ours = self[name] = name.startswith(_FOLDER)
        return ours


OUR_FILES = _Files({str(module.__file__): True for module in (contextlib, copy, functools)})
"""Whether a source file is of this package, or of Python's where nobody wrote the line; the user's
line is the first frame outside of them."""


def asked_for(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of ``package``. places: of each name the module in it that has it.

    A name that is its own module stands for the module.
    """

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with paused():
            module = import_module(f"{package}.{places[name]}")
        found = module if name == places[name] else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return find
