"""Kernels over lists of arrays: how addresses reach them, and gradient norms."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

from numbagrad.kernels.cpu import optim as kernels
from numbagrad.kernels.lists import DATA_FIELD
from numbagrad.kernels.machine import address_of, launch, set_threads, threads
from numbagrad.optim import rules
from numbagrad.optim.rules import kernel_of


def test_the_data_pointer_is_where_kernels_read_it():
    for array in (np.zeros(3), np.zeros((), "float32"), np.zeros((2, 3))[:, 1:]):
        read = ctypes.c_void_p.from_address(id(array) + DATA_FIELD).value
        assert read == address_of(array)


def test_all_arrays_of_a_list_are_changed():
    params = [np.arange(n, dtype="float32").reshape(-1) for n in (3, 0, 8192, 8193, 1)]
    grads = [np.full_like(p, 2) for p in params]
    launch(kernel_of(rules.sgd), params, grads, lambda: (1.0, 0.5, 0.0))
    for param in params:
        np.testing.assert_array_equal(param, np.arange(param.size) - 1)


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_norms(power, dtype):
    draw = np.random.default_rng(0)
    arrays = [np.asarray(draw.normal(size=s), dtype) for s in [(300, 300), (3,), (), (0,), (5, 7)]]
    most = threads()
    found = []
    try:
        for count in (1, most):
            set_threads(count)
            sums, norm = np.zeros(1), np.zeros(1)
            launch(kernels.power_sums, sums, arrays, lambda: (power,))
            launch(kernels.norm_of_sums, norm, sums, power)
            found.append(norm[0])
    finally:
        set_threads(most)
    assert found[0] == found[1]
    whole = np.concatenate([a.reshape(-1).astype("float64") for a in arrays])
    np.testing.assert_allclose(found[0], np.linalg.norm(whole, power), rtol=1e-12)


@pytest.mark.parametrize("power", [1.0, 2.0, np.inf])
def test_norms_keep_nan(power):
    sums, norm = np.zeros(1), np.zeros(1)
    launch(kernels.power_sums, sums, [np.array([1.0, np.nan, 3.0]), np.ones(2)], lambda: (power,))
    launch(kernels.norm_of_sums, norm, sums, power)
    assert np.isnan(norm[0])


def test_the_kernels_run_as_plain_python_too():
    code = (
        "import numpy as np\n"
        "from numbagrad.optim import rules\n"
        "from numbagrad.kernels.machine import launch\n"
        "x, g, steps = np.ones(3), np.full(3, 2.0), np.zeros((), 'float32')\n"
        "m, v = np.zeros(3), np.zeros(3)\n"
        "scalars = lambda: (1.0, 0.5, 0.9, 0.999, 0.0, 0.0, 0.0)\n"
        "launch(rules.kernel_of(rules.adam), [x], [steps], [m], [v], [g], scalars)\n"
        "np.testing.assert_allclose(x, 0.5)\n"
        "assert steps == 1\n"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
