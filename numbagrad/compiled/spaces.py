"""Where names stand for which a recording puts stand-ins: modules, and objects with ``math``."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from ..kernels.traced_math import has_math
from .places import Place
from .whose import FOREIGN, package_of

__all__ = ["namespaces"]


def namespaces(
    function: Callable[..., Any], places: Iterable[Place], objects: Iterable[Any]
) -> list[dict[str, Any]]:
    """What the modules hold in which a function, and what it reaches, is written; and objects that
    have ``math`` or one of its functions."""
    found: dict[int, dict[str, Any]] = {}
    for each in (function, *[place.value for place in places]):
        each = inspect.unwrap(getattr(each, "__func__", each)) if callable(each) else each
        if isinstance(each, types.FunctionType):
            found[id(each.__globals__)] = each.__globals__
    for each in objects:
        own = getattr(each, "__dict__", None)
        if type(own) is dict and has_math(own):
            found[id(own)] = own
    for each in (*objects, getattr(function, "__self__", None), function):
        for kind in each.__mro__ if isinstance(each, type) else type(each).__mro__:
            module = sys.modules.get(kind.__module__)
            if module is not None and package_of(kind) not in (*FOREIGN, "builtins"):
                found[id(vars(module))] = vars(module)
    return list(found.values())
