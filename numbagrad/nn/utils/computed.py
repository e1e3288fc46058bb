"""Attributes of one module that are computed when they are read.

``compute`` gives the module a class of its own, below the class it has, with a property: so the
attribute is always that of the parameters as they are, and what a compiled step records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..modules.module import Module

__all__ = ["compute", "computed_from", "forget", "is_computed", "plain_class", "refuse_writing"]


class _Computing(Module):
    """A mark, and what assigns to computed attributes."""

    _computed: dict[str, Callable[[Any, Any], None]]

    def __setattr__(self, name: str, value: Any) -> None:
        put = type(self)._computed.get(name)
        if put is None:
            super().__setattr__(name, value)
        else:
            put(self, value)


def is_computed(module: Module) -> bool:
    """Whether an attribute of ``module`` is computed."""
    return isinstance(module, _Computing)


def computed_from(module: Module, parameter: str) -> bool:
    """Whether attributes of ``module`` are computed, and it has a parameter of this name."""
    return is_computed(module) and parameter in module._parameters


def refuse_writing(name: str, parts: str, because: str) -> Callable[[Any, Any], None]:
    """What assigns to ``name`` where nobody can: raises, and says what it is computed from."""

    def write(module: Any, value: Any) -> None:
        raise AttributeError(
            f"{name} is computed from {parts}, because of {because}. Set those, or call "
            f"remove_{because} first."
        )

    return write


def plain_class(module: Module) -> type:
    """The class of ``module`` before any attribute was computed."""
    return type(module).__mro__[2] if is_computed(module) else type(module)


def compute(
    module: Module,
    name: str,
    get: Callable[[Any], Any],
    put: Callable[[Any, Any], None],
    prefix: str = "",
) -> None:
    """Let ``module.name`` be ``get(module)`` from now on; ``put(module, value)`` assigns to it.

    prefix: of the name of the module's class.
    """
    if not is_computed(module):
        kind = type(module)
        space: dict[str, Any] = {
            "__module__": kind.__module__,
            "__doc__": kind.__doc__,
            "_computed": {},
        }
        module.__class__ = type(kind.__name__, (_Computing, kind), space)
    kind = type(module)
    kind.__name__ = prefix + plain_class(module).__name__
    setattr(kind, name, property(get))
    kind._computed[name] = put  # type: ignore[attr-defined]


def forget(module: Module, name: str) -> None:
    """Let ``name`` be an ordinary attribute again, which is to be assigned anew."""
    kind: Any = type(module)
    delattr(kind, name)
    del kind._computed[name]
    if not kind._computed:
        module.__class__ = plain_class(module)
