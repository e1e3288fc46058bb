"""Parts of a package that are imported when they are first asked for, and which files are ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from .collector import paused

__all__ = ["OUR_FILES", "asked_for", "register_files"]

OUR_FILES: set[str] = set()
"""The source files of this package; the user's line is the first frame outside of them."""


def register_files() -> None:
    """Note which source files are ours; called when the package or a part has been imported."""
    package = __name__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(package + "."):
            file = getattr(module, "__file__", None)
            if file:
                OUR_FILES.add(file)


def asked_for(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of ``package``. places: of each name the module in it that has it.

    A name that is its own module stands for the module.
    """

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with paused():
            module = import_module(f"{package}.{places[name]}")
        register_files()
        found = module if name == places[name] else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return find
