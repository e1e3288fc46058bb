"""Memory of the device shared with other libraries, by DLPack and ``__cuda_array_interface__``."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import dlpack
from numbagrad.errors import DeviceError
from numbagrad.kernels.cuda.runtime import device

pytestmark = pytest.mark.cuda


class Lends:
    """An array of another library: lends by DLPack, and notes what it was asked."""

    def __init__(self, tensor):
        self.tensor, self.asked = tensor, []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **asked):
        self.asked.append(asked)
        return self.tensor.__dlpack__(**asked)


class Shows:
    """An array of another library, seen through its interface."""

    def __init__(self, tensor, **changes):
        self.kept = tensor
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, **changes}


@pytest.fixture
def waits(monkeypatch):
    """The waits that the driver is told of: (who waits, for whom)."""
    found = []
    driver = device.driver()
    if not device.simulating():
        pytest.skip("needs a driver that can be watched")
    monkeypatch.setattr(driver, "known_stream", lambda n: f"stream {n}")
    monkeypatch.setattr(driver, "wait", lambda stream, other: found.append((stream, other)))
    return found


def test_dlpack_shares_memory_both_ways():
    x = ng.arange(24.0).reshape(4, 6).cuda()
    for view in (x, x.t(), x[1:, ::2], x[2], x[3, 4], x[:0]):
        lender = Lends(view)
        y = ng.from_dlpack(lender)
        assert y.is_cuda and y.tolist() == view.tolist()
        assert not view.numel() or y.data_ptr() == view.data_ptr()
        assert lender.asked == [{"max_version": (1, 0), "stream": device.stream_number()}]
    ng.from_dlpack(x)[0, 0] = 7
    assert x[0, 0].item() == 7 and x.__dlpack_device__() == (2, 0)
    for dtype in (ng.int64, ng.uint8, ng.bool, ng.float64):
        assert ng.from_dlpack(x.to(dtype)).dtype is dtype


def test_memory_lives_as_long_as_the_taker():
    gc.collect()
    before = ng.cuda.memory_allocated()
    y = ng.from_dlpack(ng.ones(300, device="cuda"))
    held = ng.cuda.memory_allocated()
    gc.collect()
    assert held > before and (y + 1).sum().item() == 600 and len(dlpack._lent) == 1
    del y
    gc.collect()
    assert ng.cuda.memory_allocated() == before and not dlpack._lent


def test_the_stream_of_the_taker_waits_for_ours(waits):
    x = ng.ones(3, device="cuda")
    queue = device.current_queue()
    for stream, name in ((None, 1), (1, 1), (2, 2), (12345, 12345)):
        x.__dlpack__(stream=stream)
        assert waits.pop() == (f"stream {name}", queue)
    x.__dlpack__(stream=-1)
    for stream, error in ((0, BufferError), (-2, BufferError), (True, TypeError), ("1", TypeError)):
        with pytest.raises(error, match="stream"):
            x.__dlpack__(stream=stream)
    assert not waits and not dlpack._lent


def test_copies_to_other_devices():
    x = ng.arange(3.0).cuda()
    seen = np.from_dlpack(x, device="cpu")
    assert seen.tolist() == [0, 1, 2]
    assert ng.from_dlpack(x, device="cpu").tolist() == [0, 1, 2]
    assert not ng.from_dlpack(x, device="cpu").is_cuda
    assert ng.from_dlpack(np.ones(2), device="cuda").is_cuda
    assert ng.from_dlpack(x, device="cuda", copy=False).data_ptr() == x.data_ptr()
    assert ng.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    for source, place in ((x, "cpu"), (ng.ones(2), "cuda")):
        with pytest.raises(BufferError, match="copy"):
            ng.from_dlpack(source, device=place, copy=False)
    with pytest.raises(BufferError, match="without a copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match=r"to \(2, 1\)"):
        x.__dlpack__(dl_device=(2, 1))


def test_read_only_memory_of_the_device_is_copied(monkeypatch):
    x = ng.arange(3.0).cuda()
    monkeypatch.setattr(dlpack, "COPIED", dlpack.READ_ONLY)  # what our own capsule says of a copy
    capsule = x.__dlpack__(max_version=(1, 0), copy=True)
    with pytest.raises(BufferError, match="copy=False"):
        ng.from_dlpack(capsule, copy=False)
    y = ng.from_dlpack(x.__dlpack__(max_version=(1, 0), copy=True))
    y += 1
    assert y.tolist() == [1, 2, 3]


def test_the_interface_of_others():
    x = ng.arange(6.0).cuda().reshape(2, 3)
    y = ng.as_tensor(Shows(x.t()))
    assert y.data_ptr() == x.data_ptr() and y.tolist() == x.t().tolist()
    read_only = ng.as_tensor(Shows(x, data=(x.data_ptr(), True)))
    repeated = ng.as_tensor(Shows(x, shape=(3, 2), strides=(0, 4)))
    read_only += 1
    repeated += 1
    assert repeated.tolist() == [[1, 2]] * 3 and read_only.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    empty = x[:0].__cuda_array_interface__
    assert empty["data"] == (0, False) and empty["shape"] == (0, 3)
    assert ng.as_tensor(Shows(x[:0])).shape == (0, 3)
    wrong = {
        "masked": {"mask": Shows(x)},
        "negative": {"strides": (12, -4)},
        "ambiguous": {"stream": 0},
        "whole elements": {"strides": (12, 2)},
    }
    for words, changes in wrong.items():
        with pytest.raises(DeviceError, match=words):
            ng.as_tensor(Shows(x, **changes))
    with pytest.raises(TypeError, match="complex64"):
        ng.as_tensor(Shows(x, typestr="<c8", shape=(1, 3)))


def test_our_work_waits_for_that_of_the_lender(waits):
    x = ng.ones(3, device="cuda")
    ng.as_tensor(Shows(x, stream=None))
    assert not waits
    ng.as_tensor(Shows(x, stream=99))
    assert waits == [(device.current_queue(), "stream 99")]
