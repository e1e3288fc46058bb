"""Tests that need a device: a GPU, or Numba's simulator (NUMBA_ENABLE_CUDASIM=1) in its place."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from manual_cublaslt import ManualLibrary

import numbagrad as ng
from numbagrad.errors import DeviceError
from numbagrad.kernels.cuda.runtime import cublaslt, device

if device.simulating():
    sys.setswitchinterval(1e-5)  # its threads wait for one another by looking
elif os.environ.get("NUMBAGRAD_PTX", "0") not in ("", "0"):
    from ptx.device import PTX, WatchedCache
    from ptx.users import take_over

    machine = PTX()
    device.stand_in(machine, WatchedCache)
    take_over(machine)


def pytest_collection_modifyitems(config, items):
    if not ng.cuda.is_available():
        left = [item for item in items if item.get_closest_marker("cuda")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("cuda")]


@pytest.fixture(autouse=True)
def _launches_are_new(request: Any) -> Any:
    """What a test changes of a kernel's choices holds for that test alone."""
    if "monkeypatch" not in request.fixturenames or not ng.cuda.is_available():
        yield
        return
    from numbagrad.kernels.cuda.runtime import again
    from numbagrad.ops import device_memory

    for memory in (again, device_memory):
        memory.forget()
    yield
    for memory in (again, device_memory):
        memory.forget()


@pytest.fixture
def wgmma(monkeypatch: Any) -> None:
    """A device that has the instruction."""
    if device.simulating():
        pytest.skip("the simulator has no copies that end later")
    from numbagrad.kernels.cuda.runtime import halves

    there = device.driver()
    if there.name == "ptx":  # which knows wgmma, and is asked as an older device
        monkeypatch.setattr(there, "capability", (9, 0))
    elif not halves.has_groups():
        pytest.skip("wgmma is of compute capability 9.0")


@pytest.fixture
def lib(monkeypatch: Any) -> Any:
    """cuBLASLt, chosen for products of all sizes; in the simulator the manual's, which is given."""
    from numbagrad.kernels.cuda.runtime import cublas, epilogue

    epilogue.relu_keeps_nan.cache_clear()
    monkeypatch.setattr(cublas, "_plans", {})
    monkeypatch.setattr(cublas, "LARGE_PRODUCT", 1)
    if device.simulating():
        manual = ManualLibrary()
        monkeypatch.setattr(cublaslt, "find", lambda: manual)
        monkeypatch.setattr(cublas, "_library", None)
    else:
        manual = None
        try:
            cublaslt.find()
        except DeviceError as error:
            pytest.skip(str(error))
    ng.cuda.set_matmul_backend("cublaslt")
    yield manual
    ng.cuda.set_matmul_backend("numba")
    epilogue.relu_keeps_nan.cache_clear()
    assert manual is None or manual.problems == []
