"""Tests that need a device: a GPU, or Numba's simulator (NUMBA_ENABLE_CUDASIM=1) in its place."""

from __future__ import annotations

import sys

import pytest

import numbagrad as ng
from numbagrad.kernels.cuda.runtime import device

if device.simulating():
    sys.setswitchinterval(1e-5)  # its threads wait for one another by looking


def pytest_collection_modifyitems(items):
    if not ng.cuda.is_available():
        skip = pytest.mark.skip(reason=f"no GPU: {device.problem()}")
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(skip)
