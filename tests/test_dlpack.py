"""DLPack: memory shared with NumPy and PyTorch both ways, and how long it lives."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import dlpack
from numbagrad.errors import DTypeError, RecordingError, ShapeError

DTYPES = [ng.float32, ng.float64, ng.int64, ng.int32, ng.int16, ng.int8, ng.uint8, ng.bool]


def numpy_takes(x):
    return np.from_dlpack(x)


def torch_takes(x):
    return pytest.importorskip("torch").from_dlpack(x).numpy()


TAKERS = [numpy_takes, pytest.param(torch_takes, marks=pytest.mark.peer)]


def numpy_lends(array):
    return array


def torch_lends(array):
    return pytest.importorskip("torch").from_numpy(array)


LENDERS = [numpy_lends, pytest.param(torch_lends, marks=pytest.mark.peer)]


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_others_see_our_memory(take, dtype):
    x = ng.arange(24).reshape(4, 6).to(dtype)
    for view in (x, x.t(), x[1:, ::2], x[2], x[3, 4], x[:0], x.reshape(2, 2, 6)[:, 1]):
        seen = take(view)
        assert seen.dtype == dtype.numpy and seen.tolist() == view.tolist()
        if view.numel():
            assert seen.ctypes.data == view.data_ptr()
    take(x)[1, 1] = 0
    assert x[1, 1].item() == 0


@pytest.mark.parametrize("lend", LENDERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_we_see_the_memory_of_others(lend, dtype):
    array = np.arange(24).reshape(4, 6).astype(dtype.numpy)
    for view in (array, array.T, array[1:, ::2], array[2], array[3, 4:5], array[:0]):
        x = ng.from_dlpack(lend(view))
        assert x.dtype is dtype and x.tolist() == view.tolist()
        assert not view.size or x.data_ptr() == view.ctypes.data
    x = ng.from_dlpack(lend(array))
    x[1, 1] = 0
    assert array[1, 1] == 0
    assert ng.from_dlpack(lend(np.array(2.5))).item() == 2.5


@pytest.mark.parametrize("take", TAKERS)
def test_our_memory_lives_as_long_as_the_taker(take):
    x = ng.arange(5.0)
    root = weakref.ref(x._array)
    seen = take(x)
    del x
    gc.collect()
    assert root() is not None and seen.tolist() == [0, 1, 2, 3, 4] and len(dlpack._lent) == 1
    del seen
    gc.collect()
    assert root() is None and not dlpack._lent


def test_the_memory_of_others_lives_as_long_as_we_do():
    array = np.arange(6.0)
    lender = weakref.ref(array)
    x = ng.from_dlpack(array)[2:]
    del array
    gc.collect()
    assert lender() is not None and (x * 2).tolist() == [4, 6, 8, 10]
    del x
    gc.collect()
    assert lender() is None


def test_a_capsule_that_nobody_takes_is_given_back():
    x = ng.ones(3)
    for version in (None, (1, 0)):
        capsule = x.__dlpack__(max_version=version)
        assert len(dlpack._lent) == 1
        del capsule
        assert not dlpack._lent
    capsule = x.__dlpack__(max_version=(1, 2))
    assert ng.from_dlpack(capsule).data_ptr() == x.data_ptr()
    with pytest.raises(BufferError, match="used already"):
        ng.from_dlpack(capsule)
    gc.collect()
    assert not dlpack._lent


def test_a_taker_may_give_back_from_another_thread():
    seen = [np.from_dlpack(ng.ones(3))]
    thread = threading.Thread(target=seen.clear)
    thread.start()
    thread.join()
    assert not dlpack._lent


def test_devices_streams_and_versions():
    x = ng.ones(3)
    assert x.__dlpack_device__() == (1, 0)
    assert '"dltensor"' in repr(x.__dlpack__()) or "dltensor" in repr(x.__dlpack__())
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 0), dl_device=(1, 0)))
    assert "versioned" not in repr(x.__dlpack__(max_version=(0, 8)))
    with pytest.raises(BufferError, match="stream must be None"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"to \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="detach"):
        np.from_dlpack(ng.ones(3, requires_grad=True))
    assert np.from_dlpack(ng.ones(3, requires_grad=True).detach()).tolist() == [1, 1, 1]


def test_copies():
    x = ng.arange(3.0)
    copied = np.from_dlpack(x, copy=True)
    copied[0] = 5
    assert x.tolist() == [0, 1, 2] and copied.tolist() == [5, 1, 2]
    assert ng.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert ng.from_dlpack(x, copy=False).data_ptr() == x.data_ptr()
    assert ng.from_dlpack(x, device="cpu").data_ptr() == x.data_ptr()


def test_read_only_and_repeated_memory_is_copied():
    fixed = np.arange(3.0)
    fixed.flags.writeable = False
    for array in (fixed, np.lib.stride_tricks.as_strided(np.ones(1), (3,), (0,))):
        x = ng.from_dlpack(array)
        x += 1
        assert x.tolist() == (array + 1).tolist()
        with pytest.raises(BufferError, match="copy=False"):
            ng.from_dlpack(array, copy=False)
    x = ng.from_dlpack(np.arange(3.0))
    x._array.flags.writeable = False
    assert not np.from_dlpack(x).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        x.__dlpack__()


def test_what_cannot_be_taken():
    with pytest.raises(TypeError, match="__dlpack__, got list"):
        ng.from_dlpack([1.0])
    with pytest.raises(ShapeError, match="negative"):
        ng.from_dlpack(np.arange(3.0)[::-1])
    with pytest.raises(DTypeError, match="uint16"):
        ng.from_dlpack(np.zeros(2, np.uint16))
    with pytest.raises(BufferError, match="kind 5 with 128 bits"):
        ng.from_dlpack(np.zeros(2, complex))


class Odd:
    """Lends a tensor in a struct that has been changed; knows the arguments of old libraries."""

    def __init__(self, change):
        self.change, self.tensor = change, ng.arange(4.0)

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, stream=None):
        capsule = self.tensor.__dlpack__(max_version=(1, 0))
        address = dlpack._pointer(id(capsule), b"dltensor_versioned")
        self.change(dlpack._Versioned.from_address(address))
        return capsule


def test_odd_structs():
    def moved(managed):
        managed.tensor.byte_offset, managed.tensor.shape[0] = 4, 3
        managed.tensor.strides = ctypes.POINTER(ctypes.c_int64)()

    assert ng.from_dlpack(Odd(moved)).tolist() == [1, 2, 3]

    cases = {
        "DLPack 2 is not known": ("major", 2),
        "device 2:3": ("device", (2, 3)),
        "2 lanes": ("lanes", 2),
    }
    for words, (name, value) in cases.items():

        def change(managed, name=name, value=value):
            if name == "major":
                managed.major = value
            elif name == "device":
                managed.tensor.device_type, managed.tensor.device_id = value
            else:
                managed.tensor.lanes = value

        with pytest.raises(BufferError, match=words):
            ng.from_dlpack(Odd(change))
    gc.collect()
    assert not dlpack._lent


def test_inside_a_compiled_function():
    with pytest.raises(RecordingError, match="__dlpack__"):
        ng.compile(lambda x: np.from_dlpack(x * 2))(ng.ones(2))
