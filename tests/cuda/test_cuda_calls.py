"""Launches by the driver's call, with a C function in its place that notes what it is given."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from numba import types

from numbagrad.kernels.cuda.runtime.calls import launcher

POINTER, UINT = ctypes.c_void_p, ctypes.c_uint
KIND = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, *[UINT] * 7, POINTER, POINTER, POINTER)


class Driver:
    """What a launch hands to the driver: handles, sizes, and the words of the arguments."""

    def __init__(self, count, status=0):
        self.calls, self.count, self.status = [], count, status
        self.function = KIND(self.launched)

    @property
    def address(self):
        return ctypes.cast(self.function, POINTER).value

    def launched(self, kernel, *rest):
        *sizes, stream, places, extra = rest
        found = ctypes.cast(places, ctypes.POINTER(POINTER)) if self.count else []
        words = [ctypes.c_uint64.from_address(found[k]).value for k in range(self.count)]
        self.calls.append((kernel, tuple(sizes), stream, extra, words))
        return self.status


def test_a_launch_hands_over_every_argument():
    signature = (types.CPointer(types.float32), types.int64, types.float64, types.int64)
    driver = Driver(len(signature))
    launch = launcher(
        driver.address, 7, signature, (3, 2, 1), (32, 4, 1), 512, 9, lambda status: None
    )
    launch(0x7F0000000200, -5, 2.5, True)
    launch(1, 2**63 + 1, np.float32(0.5), np.int32(4))  # an unsigned one, NumPy's numbers
    half = [int(np.float64(x).view(np.uint64)) for x in (2.5, 0.5)]
    sizes = (3, 2, 1, 32, 4, 1, 512)
    assert driver.calls == [
        (7, sizes, 9, None, [0x7F0000000200, 2**64 - 5, half[0], 1]),
        (7, sizes, 9, None, [1, 2**63 + 1, half[1], 4]),
    ]


def test_a_kernel_without_arguments_on_the_default_stream():
    driver = Driver(0)
    launcher(driver.address, 1, (), (1, 1, 1), (1, 1, 1), 0, 0, lambda status: None)()
    assert driver.calls == [(1, (1, 1, 1, 1, 1, 1, 0), None, None, [])]


def test_a_launch_that_fails_says_so():
    driver, seen = Driver(1, status=700), []
    launcher(driver.address, 1, (types.int64,), (1, 1, 1), (1, 1, 1), 0, 0, seen.append)(4)
    assert seen == [700]
    with pytest.raises(ValueError, match="invalid literal"):
        launcher(driver.address, 1, (types.int64,), (1,) * 3, (1,) * 3, 0, 0, seen.append)("x")
