"""Every CPU kernel has a GPU twin of the same name and parameters, or a row in ``KNOWN_GAPS``."""

from __future__ import annotations

from benchmarks.cuda_gaps import KNOWN_GAPS, kernels_of, pairs


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
