"""What ``ng.compile`` makes of a Module: a Module that runs the compiled function."""

from __future__ import annotations

from typing import Any, ClassVar

from .module import Module

__all__ = ["CompiledModule"]


class CompiledModule(Module):
    """A module whose call is compiled; parameters, buffers and options are the given module's.

    run: the compiled function. As PyTorch's: the module is ``_orig_mod``, and so begin the names in
    ``state_dict()``. Other attributes are read from it and set on it; ``program``, ``source``,
    ``explain``, ``relies_on``, ``cache_info`` and ``recordings`` are those of a compiled function.
    """

    _orig_mod: Module
    _hooks = None  # those of all modules run for the given one
    _hooks_of_all: ClassVar = {}

    def __init__(self, module: Module, run: Any):
        super().__init__()
        self.__dict__["training"] = module.training
        super().__setattr__("_orig_mod", module)
        self.__dict__["forward"] = run

    def __getattr__(self, name: str) -> Any:
        if "_orig_mod" in self.__dict__:
            for owner in (self._orig_mod, self.forward):
                # What begins with an underscore is of one object alone.
                if hasattr(owner, name) and (name[:1] != "_" or owner is self._orig_mod):
                    return getattr(owner, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in self.__dict__ or hasattr(Module, name)
        if own or "_orig_mod" not in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __reduce__(self) -> Any:
        return CompiledModule, (self._orig_mod, self.__dict__["forward"])
