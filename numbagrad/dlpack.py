"""Memory shared with other libraries by DLPack: a C struct in a Python capsule, without a copy.

The struct says where the elements are and how they lie, and has a function that the taker calls
when it is done (github.com/dmlc/dlpack, version 1). ``export`` lends an array, ``taken`` borrows
one. Until the taker is done the struct is kept here, and it keeps the array.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .kernels import machine
from .kernels.cuda.runtime import foreign
from .kernels.cuda.runtime.array import DeviceArray

__all__ = ["device_of", "export", "taken"]

CPU, CUDA, PINNED, MANAGED = 1, 2, 3, 13
VERSION = (1, 0)
READ_ONLY, COPIED = 1, 2
CODES = {"i": 0, "u": 1, "f": 2, "V": 4, "b": 6}
"""DLPack's number for each kind of NumPy dtype that tensors have; "V2" stands for bfloat16."""


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


KINDS: dict[bytes, type[Any]] = {b"dltensor_versioned": _Versioned, b"dltensor": _Managed}
USED = {name: b"used_" + name for name in KINDS}


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C interface; a capsule that dies is an address to it."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_rename = _python("PyCapsule_SetName", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)


# -- lending ---------------------------------------------------------------------------------------

_lent: dict[int, tuple[Any, ...]] = {}
"""What takers have not given back: by the address of its struct, the struct and all it needs."""


@_Deleter
def _given_back(address: Any, lent: dict[int, tuple[Any, ...]] = _lent) -> None:
    """What a taker calls, from any thread."""
    lent.pop(address, None)


@_Deleter
def _dropped(capsule: Any) -> None:
    """A capsule dies; if nobody has taken what is in it, it is given back."""
    for name in KINDS:
        if _is_valid(capsule, name):
            _given_back(_pointer(capsule, name))


# Other libraries call them until the process ends, when Python may have cleared this module.
for _function in (_given_back, _dropped):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_function))


def device_of(array: Any) -> tuple[int, int]:
    """DLPack's type and number of the device of ``array``."""
    return (CUDA, 0) if type(array) is DeviceArray else (CPU, 0)


def export(array: Any, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    """A capsule with ``array``, or with a copy of it; the arguments are those of ``__dlpack__``.

    Raises BufferError where what is asked for is not possible.
    """
    here, copied = device_of(array), bool(copy)
    wanted = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if wanted != here:
        if wanted != (CPU, 0) or copy is False:
            raise BufferError(
                f"__dlpack__: a tensor on device {here} cannot be exported to {wanted} without a "
                f"copy. Move it with .to(device) first."
            )
        array, copied = array.get(), True
    elif copied:
        array = array.copy()
    if wanted[0] == CUDA:
        _make_ready(stream)
    elif stream is not None and here[0] == CPU:
        raise BufferError("__dlpack__: stream must be None for a tensor on the CPU.")
    versioned = max_version is not None and max_version[0] >= VERSION[0]
    if array.dtype.kind not in CODES:
        raise BufferError(f"__dlpack__: {array.dtype} cannot be exported. Convert with .to(dtype).")
    writable = type(array) is DeviceArray or array.flags.writeable
    if not (writable or versioned):
        raise BufferError("__dlpack__: read-only memory needs max_version=(1, 0) or newer.")
    flags = (0 if writable else READ_ONLY) | (COPIED if copied else 0)
    return _capsule(array, wanted, flags, versioned)


def _make_ready(stream: Any) -> None:
    """Let the work that the taker starts on ``stream`` wait for ours."""
    if stream is None:
        stream = 1
    if isinstance(stream, bool) or not isinstance(stream, (int, np.integer)):
        raise TypeError(f"__dlpack__: stream must be an int or None, got {type(stream).__name__}.")
    if stream == 0 or stream < -1:
        raise BufferError(
            f"__dlpack__: stream {stream} is not allowed: 1 is the default stream, 2 that of the "
            f"thread, -1 asks for no ordering, and larger numbers are handles."
        )
    if stream != -1:
        foreign.order_after(int(stream))


def _capsule(array: Any, device: tuple[int, int], flags: int, versioned: bool) -> Any:
    sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
    steps = (ctypes.c_int64 * array.ndim)(*[s // array.itemsize for s in array.strides])
    name = b"dltensor_versioned" if versioned else b"dltensor"
    managed = KINDS[name]()
    t = managed.tensor
    t.data = machine.address_of(array) if array.size else None
    t.device_type, t.device_id = device
    t.ndim, t.lanes, t.byte_offset = array.ndim, 1, 0
    t.code, t.bits = CODES[array.dtype.kind], 8 * array.itemsize
    t.shape = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
    t.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_given_back, ctypes.c_void_p)
    if versioned:
        managed.major, managed.minor = VERSION
        managed.flags = flags
    address = ctypes.addressof(managed)
    _lent[address] = managed, sizes, steps, array
    return _new(address, name, ctypes.cast(_dropped, ctypes.c_void_p))


# -- borrowing -------------------------------------------------------------------------------------


class _Lender:
    """What was taken out of a capsule; given back with the last reference."""

    def __init__(self, address: int, deleter: int | None):
        self.address, self.deleter = address, deleter

    def __del__(self) -> None:
        if self.deleter and _Deleter is not None:  # it is None when the process ends
            _Deleter(self.deleter)(self.address)


def taken(source: Any, to_host: bool = False) -> tuple[Any, bool]:
    """The array that ``source`` lends, which may be read-only on the host, and whether it is that
    and no copy.

    source: an object with ``__dlpack__``, or a capsule that nobody has used. to_host: ask a GPU's
    for a copy in memory of the host. Raises TypeError for other objects, and BufferError for
    devices, dtypes and versions that are unknown here.
    """
    capsule = source if type(source).__name__ == "PyCapsule" else _asked(source, to_host)
    me = id(capsule)
    name = next((n for n in KINDS if _is_valid(me, n)), None)
    if name is None:
        raise BufferError("from_dlpack: the capsule is not DLPack's, or has been used already.")
    address = _pointer(me, name)
    managed = KINDS[name].from_address(address)
    versioned = name == b"dltensor_versioned"
    if versioned and managed.major != VERSION[0]:
        raise BufferError(f"from_dlpack: DLPack {managed.major} is not known here, only 1.")
    t, dtype = managed.tensor, _dtype_of(managed.tensor)
    on_gpu = _is_on_gpu(t)
    _rename(me, USED[name])
    lender = _Lender(address, managed.deleter)
    shape = tuple(t.shape[: t.ndim])
    steps = tuple([s * dtype.itemsize for s in t.strides[: t.ndim]]) if t.strides else None
    start = (t.data or 0) + t.byte_offset
    read_only = versioned and bool(managed.flags & READ_ONLY)
    if on_gpu:
        machine.open_cuda()
        away = foreign.lent_to_us(lender, start, shape, dtype, steps, read_only)
        return away, away.pointer == start
    array = _on_host(lender, start, shape, dtype, steps)
    array.flags.writeable = not read_only
    return array, True


def _asked(source: Any, to_host: bool) -> Any:
    """The capsule that ``source`` makes for us; older libraries know fewer arguments."""
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise TypeError(
            f"from_dlpack: expected an object with __dlpack__, got {type(source).__name__}. "
            f"ng.as_tensor takes numbers, lists and NumPy's arrays."
        )
    asked: dict[str, Any] = {}
    if source.__dlpack_device__()[0] in (CUDA, MANAGED):
        if to_host:
            return source.__dlpack__(max_version=VERSION, dl_device=(CPU, 0))
        asked["stream"] = machine.open_cuda().stream_number()
    try:
        return source.__dlpack__(max_version=VERSION, **asked)
    except TypeError:
        return source.__dlpack__(**asked)


def _dtype_of(t: Any) -> np.dtype:
    """NumPy's dtype of a struct."""
    letter = {code: kind for kind, code in CODES.items()}.get(t.code)
    bits = (16,) if letter == "V" else (8, 16, 32, 64)
    if letter is None or t.lanes != 1 or t.bits not in bits:
        raise BufferError(
            f"from_dlpack: elements of DLPack's kind {t.code} with {t.bits} bits and {t.lanes} "
            f"lanes have no counterpart. Convert the array first."
        )
    return np.dtype(f"{letter}{t.bits // 8}")


def _is_on_gpu(t: Any) -> bool:
    if t.device_type in (CPU, PINNED):
        return False
    if t.device_type in (CUDA, MANAGED) and t.device_id == 0:
        return True
    raise BufferError(
        f"from_dlpack: device {t.device_type}:{t.device_id} is not one that numbagrad uses: the "
        f"CPU, or the first visible GPU. Move the array first."
    )


def _on_host(lender: Any, start: int, shape: Any, dtype: np.dtype, steps: Any) -> np.ndarray:
    if 0 in shape:
        return np.empty(shape, dtype)
    dense = steps
    if dense is None:
        dense, reach = (), dtype.itemsize
        for n in reversed(shape):
            dense, reach = (reach, *dense), reach * n
    moves = [(n - 1) * s for n, s in zip(shape, dense, strict=True)]
    low = sum([m for m in moves if m < 0])
    count = sum(map(abs, moves)) + dtype.itemsize
    memory: Any = (ctypes.c_uint8 * count).from_address(start + low)
    memory.lender = lender  # the array keeps the memory, and the memory its lender
    return np.ndarray(shape, dtype, memory, -low, dense)
