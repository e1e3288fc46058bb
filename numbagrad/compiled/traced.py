"""Arrays of a recording, which have no values yet, and how launches name their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numba.core.typing.typeof import typeof_impl

from .. import devices
from ..errors import RecordingError
from ..kernels import machine
from ..kernels.cuda.runtime.array import DeviceArray
from ..tape import Location, show_location, user_location

# What NumPy may do with a traced array: make views of it.
_VIEWS = frozenset(
    getattr(np, name)
    for name in "transpose broadcast_to expand_dims squeeze moveaxis swapaxes reshape shape ndim "
    "size".split()
)


@dataclass(eq=False)
class Memory:
    """A piece of memory that a recording meets.

    kind: "input" (an argument's), "state" (lives before and after the call), "constant" (made from
    Python values while recording) or "made" (by ``empty``). start: its address while recording;
    size: in elements. array: the whole of it, for state and constants. device: None on the host.
    """

    kind: str
    dtype: np.dtype
    size: int
    start: int
    array: Any = None
    position: int = -1  # of an input
    name: str = ""
    device: Any = None


@dataclass(frozen=True)
class Ref:
    """An array argument of a launch: elements of ``memory`` at ``offset + index . strides``."""

    memory: Memory
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments: Refs, lists of Refs, numbers, TracedFloats, a callable."""

    kernel: Any
    args: tuple[Any, ...]
    where: Location | None
    op: str


@dataclass(frozen=True)
class Check:
    """The place of a flag, and the function that raises when it is not negative."""

    flag: Ref
    fail: Callable[[int], None]
    where: Location | None
    op: str


def refs_of(event: Launch) -> Iterator[Ref]:
    """Every array argument of a launch."""
    for arg in event.args:
        for each in arg if isinstance(arg, list) else (arg,):
            if isinstance(each, Ref):
                yield each


class Traced(np.ndarray):
    """An array whose elements do not exist yet: looking at them is an error."""

    memory: Memory | None = None
    __numba_array_subtype_dispatch__ = True  # Numba asks what it is instead of taking the memory

    def __array_finalize__(self, parent: Any) -> None:
        self.memory = getattr(parent, "memory", None)

    def element_view(self, shape: Any, strides: Any, offset: int) -> Traced:
        """``machine.view`` of this array."""
        step = self.itemsize
        found = (
            np.ndarray.__new__(
                Traced, shape, self.dtype, root_of(self), 0, [s * step for s in strides]
            )
            if 0 in shape
            else _placed(self, shape, strides, offset)
        )
        found.memory = self.memory
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> NoReturn:
        refuse(f"numpy.{ufunc.__name__}")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _VIEWS:
            return super().__array_function__(function, types, args, kwargs)
        refuse(f"numpy.{function.__name__}")

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if not isinstance(found, np.ndarray):
            refuse("reading an element")
        return found

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        refuse("writing an element")


@typeof_impl.register(Traced)
def _typeof_traced(array: Traced, context: Any) -> NoReturn:
    refuse("calling compiled code on an array; launch(kernel, out, x) can be recorded")


def _refusing(name: str) -> Callable[..., NoReturn]:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(name)

    return method


for _name in """
    item tolist tobytes copy astype fill sort argsort nonzero dot __bool__ __int__ __float__
    __index__ __iter__ __contains__
""".split():
    setattr(Traced, _name, _refusing(_name.strip("_")))


def root_of(array: Any) -> Any:
    """What owns the memory of ``array``: an array, on a GPU the memory itself."""
    if type(array) is DeviceArray:
        return array.memory
    while isinstance(base := getattr(array, "base", None), np.ndarray):
        array = base
    return array


def place_of(array: Any) -> devices.Device:
    """The device of an array."""
    return array.device if type(array) is DeviceArray else devices.cpu


def _placed(array: Traced, shape: Any, strides: Any, offset: int) -> Traced:
    root, step = root_of(array), array.itemsize
    start = machine.address_of(array) - machine.address_of(root) + offset * step
    return np.ndarray.__new__(Traced, shape, array.dtype, root, start, [s * step for s in strides])


def traced(array: Any) -> bool:
    """Whether ``array`` is one of a recording, on the host or on a GPU."""
    return type(array) is Traced or (type(array) is DeviceArray and array.memory.traced)


def extent(array: Any) -> tuple[int, int]:
    """The first address of an array's elements, and the one past the last."""
    if type(array) is not DeviceArray:
        return np.lib.array_utils.byte_bounds(array)
    low = high = array.pointer
    for n, s in zip(array.shape, array.strides, strict=True):
        low, high = low + min(0, (n - 1) * s), high + max(0, (n - 1) * s)
    return low, high + array.itemsize


def refuse(what: str) -> NoReturn:
    """Raise because Python looked at, or changed, values that are only computed later."""
    line = show_location(user_location(2))
    raise RecordingError(
        f"{what}: not possible inside a compiled function, at {line}: while a step is recorded its "
        f"tensors have no values yet. Return the tensor and look at it outside, or keep this line "
        f"out of the compiled function; ng.where(condition, x, y) chooses between values."
    )
