"""Arrays of a recording, which have no values yet, and how launches name their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from .. import devices
from ..errors import RecordingError
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.machine import Kernel
from ..kernels.traced_array import TracedArray, root_of_host
from ..tape import Location, show_location, user_location


@dataclass(eq=False)
class Memory:
    """A piece of memory that a recording meets.

    kind: "input" (an argument's), "state" (lives before and after the call), "constant" (made from
    Python values while recording) or "made" (by ``empty``). start: its address while recording;
    size: in elements. array: the whole of it, for state and constants. name: what people
    call an input that is no argument of theirs. device: None on the host.
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


def is_pure(kernel: object) -> bool:
    """Whether a kernel is one of ours that computes its outputs from its inputs alone."""
    home = getattr(getattr(kernel, "function", None), "__module__", "")
    ours = isinstance(kernel, Kernel) and home.startswith(_KERNELS)
    return ours and not home.endswith((".random", ".optim"))


_KERNELS = __name__.rpartition(".compiled")[0] + ".kernels.cpu."


class Traced(TracedArray):
    """An array whose elements do not exist yet: looking at them is an error."""

    memory: Memory | None

    def refuse(self, what: str) -> NoReturn:
        """Raise because Python looked at values that are only computed later."""
        refuse(what)


class Gone:
    """Stands for the array of a tensor whose recording has failed: what looks at it raises."""

    def __getattr__(self, name: str) -> Any:
        raise RecordingError(
            "this tensor was made while ng.compile recorded a function, which did not succeed, and "
            "has no values. What holds it, such as a default argument or an attribute of a class, "
            "was filled by that function: set it anew, or fill it before the function is compiled."
        )


def root_of(array: Any) -> Any:
    """What owns the memory of ``array``: an array, on a GPU the memory itself."""
    return array.memory if type(array) is DeviceArray else root_of_host(array)


def place_of(array: Any) -> devices.Device:
    """The device of an array."""
    return array.device if type(array) is DeviceArray else devices.cpu


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
