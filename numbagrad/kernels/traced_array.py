"""``TracedArray``: an array that stands for memory whose elements must not be looked at.

While a step is recorded its arrays have no values yet; inside of ``vmap`` they have as many as
there are elements. NumPy may make views of them, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numba.core.typing.typeof import typeof_impl

from . import machine
from .blocks import Block

__all__ = ["TracedArray", "beneath", "root_of_host"]

# What NumPy may do with a traced array: make views of it.
_VIEWS = frozenset(
    getattr(np, name)
    for name in "transpose broadcast_to expand_dims squeeze moveaxis swapaxes reshape shape ndim "
    "size".split()
)


class TracedArray(np.ndarray):
    """An array whose elements cannot be looked at: ``refuse(what)`` raises."""

    memory: Any = None
    __numba_array_subtype_dispatch__ = True  # Numba asks what it is instead of taking the memory

    def refuse(self, what: str) -> NoReturn:
        """Raise, for Python was about to do ``what``."""
        raise NotImplementedError(what)

    def __array_finalize__(self, parent: Any) -> None:
        self.memory = getattr(parent, "memory", None)

    def element_view(self, shape: Any, strides: Any, offset: int) -> Any:
        """``machine.view`` of this array."""
        root, step = root_of_host(self), self.itemsize
        start = 0
        if 0 not in shape:
            start = machine.address_of(self) - machine.address_of(root) + offset * step
        steps = [s * step for s in strides]
        found = np.ndarray.__new__(type(self), shape, self.dtype, root, start, steps)
        found.memory = self.memory
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> NoReturn:
        self.refuse(f"numpy.{ufunc.__name__}")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _VIEWS:
            return super().__array_function__(function, types, args, kwargs)
        self.refuse(f"numpy.{function.__name__}")

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if not isinstance(found, np.ndarray):
            self.refuse("reading an element")
        return found

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self.refuse("writing an element")


@typeof_impl.register(TracedArray)
def _typeof_traced(array: TracedArray, context: Any) -> Any:
    array.refuse("calling compiled code on an array; launch(kernel, out, x) can be recorded")


def _refusing(name: str) -> Callable[..., NoReturn]:
    def method(self: TracedArray, *args: Any, **kwargs: Any) -> NoReturn:
        self.refuse(name)

    return method


for _name in """
    item tolist tobytes copy astype fill sort argsort nonzero dot __bool__ __int__ __float__
    __index__ __iter__ __contains__
""".split():
    setattr(TracedArray, _name, _refusing(_name.strip("_")))


def beneath(array: Any) -> Any:
    """The array that ``array`` is a view of; None where it owns its memory, or has a block."""
    base = getattr(array, "base", None)
    return base if isinstance(base, np.ndarray) and type(base) is not Block else None


def root_of_host(array: Any) -> Any:
    """The array that owns the memory of ``array``."""
    while (base := beneath(array)) is not None:
        array = base
    return array
