"""Every CPU kernel has a GPU twin of the same name and parameters, or a row in ``KNOWN_GAPS``."""

from __future__ import annotations

import pytest

from benchmarks.cuda_gaps import KNOWN_GAPS, kernels_of, pairs
from numbagrad.kernels.cuda.runtime.elementwise import DeviceWriter
from numbagrad.kernels.expr import call, constant, expr, symbol
from numbagrad.kernels.simd_math import OF_TWO
from numbagrad.kernels.writer import SIMD


def test_every_kernel_has_a_twin_or_a_reason():
    without, with_twin = pairs()
    assert sorted(without) == sorted(KNOWN_GAPS), "benchmarks/cuda_gaps.py is out of date"
    assert len(with_twin) > 80


def test_the_reader_finds_kernels(tmp_path):
    path = tmp_path / "pair.py"
    path.write_text(
        "@kernel\ndef relu(out, x):\n    pass\n\n\n@kernel(grain=2)\ndef big(out):\n    pass\n\n\n"
        "@device\ndef part(x):\n    pass\n"
    )
    assert kernels_of(path) == {"relu": ["out", "x"], "big": ["out"]}


@pytest.mark.parametrize("name", sorted(SIMD - {"falling_exp"}))
def test_every_function_of_formulas_has_a_text_for_a_gpu(name):
    arguments = [symbol("x"), symbol("y")][: 1 + (name in OF_TWO)]
    written = DeviceWriter([call(name, *arguments)], False)
    assert not written.simd


def test_a_root_written_as_a_power_has_one_too():
    root = expr("pow", symbol("x"), constant(0.5))
    assert DeviceWriter([root], False).names[root] == "(math.sqrt(x_i))"
