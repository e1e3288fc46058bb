"""Kernels that put arrays side by side."""

from __future__ import annotations

import numpy as np

from numbagrad.kernels.cpu import join


def test_four_arrays_in_one_launch_are_as_four_launches():
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((3, v)) for v in (2, 0, 5, 1)]
    out = np.full((3, 11), 7.0)
    join.place_four(out, *parts, 2)
    expected = np.full((3, 11), 7.0)
    expected[:, 2:10] = np.concatenate(parts, 1)
    np.testing.assert_array_equal(out, expected)
