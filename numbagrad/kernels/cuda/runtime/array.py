"""DeviceArray: an array in GPU memory, with the arithmetic of views that ops use on ndarrays.

It holds a pointer, a shape and strides, and keeps the memory alive. Computing is done by kernels;
reading its elements copies them to the host.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

__all__ = ["Borrowed", "Captured", "DeviceArray", "Lasting", "Memory", "Traced"]


class Memory:
    """A block of device memory, which goes back to its cache with the last array on it.

    asked: the bytes that were asked for; size: those of the block. others: streams that have worked
    on it, beside the one it was taken for.
    """

    __slots__ = ("address", "asked", "block", "cache", "others", "size", "stream")
    traced = lasting = False

    def __init__(self, cache: Any, size: int, stream: Any):
        self.asked = size
        self.block = cache.take(size, stream)
        self.address = self.block.address
        self.size = self.block.size
        self.cache = cache
        self.stream = stream
        self.others: set[Any] | None = None

    def __del__(self) -> None:
        if hasattr(self, "others"):  # taking the block may have failed
            self.cache.give(self.block, tuple(self.others) if self.others else ())


class Lasting(Memory):
    """A block that is never written again, and the same for all who ask for its content."""

    __slots__ = ()
    lasting = True


class Captured(list):
    """The memory that launches of one graph work on; the graph keeps it.

    workspace: an array that its launches, which run in order, share for what they compute on the
    way; None until one asks for it.
    """

    workspace: Any = None


class Borrowed:
    """Device memory that belongs to another library; ``owner`` keeps it alive."""

    __slots__ = ("address", "owner", "size", "stream")
    traced = lasting = False

    def __init__(self, address: int, size: int, owner: Any):
        self.address, self.size, self.owner = address, size, owner
        self.stream = None

    @property
    def asked(self) -> int:
        """Bytes that belong to the array."""
        return self.size


class Traced:
    """Stands for memory while a step is recorded: nothing may be read of it.

    memory: what the recorder knows of it; refuse: raises, told what was tried.
    """

    __slots__ = ("memory", "refuse", "size", "stream")
    traced, lasting = True, False

    def __init__(self, memory: Any, refuse: Any):
        self.memory, self.refuse = memory, refuse
        self.stream, self.size = None, 0


class DeviceArray:
    """An n-dimensional array in device memory. strides: in bytes; pointer: of the first element."""

    __slots__ = ("c_contiguous", "device", "dtype", "memory", "pointer", "shape", "size", "strides")

    def __init__(
        self,
        memory: Any,
        pointer: int,
        shape: tuple[int, ...],
        dtype: np.dtype,
        device: Any,
        strides: tuple[int, ...] | None = None,
    ):
        self.memory = memory
        self.pointer = pointer
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.size, dense = _dense(shape, dtype.itemsize)
        if strides is None or strides == dense:
            self.strides, self.c_contiguous = dense, True
        else:
            self.strides = strides
            self.c_contiguous = self.size == 0 or all(
                [s == d or n == 1 for s, d, n in zip(strides, dense, shape, strict=True)]
            )

    def elsewhere(self, memory: Any, pointer: int) -> DeviceArray:
        """An array as this one, at another place."""
        out = _new(DeviceArray)
        out.memory, out.pointer, out.c_contiguous = memory, pointer, self.c_contiguous
        out.shape, out.strides, out.size = self.shape, self.strides, self.size
        out.dtype, out.device = self.dtype, self.device
        return out

    # -- what it is, in ndarray's words ----------------------------------------------------------

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def flags(self) -> DeviceArray:
        """What has ``c_contiguous``: the array itself."""
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{self.dtype} array {self.shape} on {self.device}>"

    # -- views -------------------------------------------------------------------------------------

    def _seen(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> DeviceArray:
        """The same memory; strides and offset in bytes."""
        return DeviceArray(
            self.memory, self.pointer + offset, shape, self.dtype, self.device, strides
        )

    def element_view(
        self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> DeviceArray:
        """The elements at ``offset + index . strides``, both in elements."""
        step = self.dtype.itemsize
        return self._seen(tuple(shape), tuple([s * step for s in strides]), offset * step)

    def reshape(self, *shape: Any) -> DeviceArray:
        """The same elements in another shape; -1 once for what is left. Never copies."""
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        if -1 in shape:
            known = -math.prod(shape)
            shape = tuple([self.size // known if n == -1 else n for n in shape])
        if self.c_contiguous:
            if math.prod(shape) != self.size:
                raise ValueError(f"cannot reshape {self.shape} to {shape}")
            return DeviceArray(self.memory, self.pointer, shape, self.dtype, self.device)
        stand_in = self._stand_in().reshape(shape, copy=False)
        return self._seen(shape, stand_in.strides, 0)

    def _stand_in(self) -> np.ndarray:
        """An ndarray of these shape and strides to compute views with; it must not be read."""
        return np.lib.stride_tricks.as_strided(np.empty((), self.dtype), self.shape, self.strides)

    def __getitem__(self, key: Any) -> Any:
        """A view for slices; the number itself if every dimension has an index."""
        keys = key if isinstance(key, tuple) else (key,)
        view = bool(keys) and keys[-1] is Ellipsis  # which is never a number
        first = keys[:-1] if view else keys
        if len(first) <= len(self.shape) and all([type(k) in (int, slice) for k in first]):
            found = self._part(first)
            return found if view or found.shape or len(first) < self.ndim else found.item()
        whole = self._stand_in()
        part = whole[keys if Ellipsis in keys else (*keys, ...)]
        found = self._seen(part.shape, part.strides, _address(part) - _address(whole))
        one = len(keys) == self.ndim and all([isinstance(k, int) for k in keys])
        return found.item() if one else found

    def _part(self, keys: tuple[Any, ...]) -> DeviceArray:
        """The view for ints and slices, one for each of the first dims."""
        shape, strides, offset = [], [], 0
        for n, s, k in zip(self.shape, self.strides, keys, strict=False):
            if type(k) is slice:
                start, stop, step = k.indices(n)
                length = len(range(start, stop, step))
                shape.append(length)
                strides.append(s * step)
                offset += start * s if length else 0
            elif -n <= k < n:
                offset += (k + n if k < 0 else k) * s
            else:
                raise IndexError(f"index {k} is out of bounds for axis with size {n}")
        rest = len(keys)
        shape += self.shape[rest:]
        return self._seen(tuple(shape), (*strides, *self.strides[rest:]), offset)

    def transpose(self, *dims: Any) -> DeviceArray:
        """The dims in another order, reversed by default."""
        if len(dims) == 1 and isinstance(dims[0], (tuple, list)):
            dims = tuple(dims[0])
        dims = dims or tuple(range(self.ndim))[::-1]
        shape, strides = self.shape, self.strides
        return self._seen(tuple([shape[d] for d in dims]), tuple([strides[d] for d in dims]), 0)

    def squeeze(self, dims: Any = None) -> DeviceArray:
        """Without the dims of size 1: all of them, one, or several."""
        shape, strides = self.shape, self.strides
        if dims is None:
            dims = [d for d, n in enumerate(shape) if n == 1]
        gone = {d % self.ndim for d in ([dims] if isinstance(dims, int) else dims)}
        kept = [d for d in range(self.ndim) if d not in gone]
        return self._seen(tuple([shape[d] for d in kept]), tuple([strides[d] for d in kept]), 0)

    def swapaxes(self, dim0: int, dim1: int) -> DeviceArray:
        """Two dims exchanged."""
        dims = list(range(self.ndim))
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
        return self.transpose(dims)

    @property
    def T(self) -> DeviceArray:
        """The dims reversed."""
        return self.transpose()

    # -- elements on the host ----------------------------------------------------------------------

    def get(self) -> np.ndarray:
        """The elements in a fresh ndarray."""
        from .device import to_host

        if self.memory.traced:
            self.memory.refuse("reading elements")
        return to_host(self)

    def item(self) -> Any:
        """The only element as a Python number."""
        return self.get().item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self.get().tolist()

    def any(self) -> bool:
        """Whether any element is not zero."""
        return bool(self.get().any())

    def copy(self) -> DeviceArray:
        """The elements in fresh contiguous memory of the same device."""
        from .device import duplicate

        if self.memory.traced:
            self.memory.refuse("copy")
        return duplicate(self)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy "
            f"the tensor to host memory first."
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """How CuPy, Numba and PyTorch see the array without a copy (version 3)."""
        from .device import stream_number

        if self.memory.traced:
            self.memory.refuse("__cuda_array_interface__")
        return {
            "shape": self.shape,
            "strides": None if self.c_contiguous else self.strides,
            "typestr": self.dtype.str,
            "data": (self.pointer if self.size else 0, False),
            "version": 3,
            "stream": stream_number(),
        }


_new = object.__new__


@functools.lru_cache(maxsize=4096)
def _dense(shape: tuple[int, ...], itemsize: int) -> tuple[int, tuple[int, ...]]:
    """Number of elements and strides in bytes of a C-contiguous array."""
    strides = []
    step = itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n or 1
    return math.prod(shape), tuple(reversed(strides))


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
