"""Kernels that put arrays side by side."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels.cpu import join


def test_four_arrays_in_one_launch_are_as_four_launches():
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((3, v)) for v in (2, 0, 5, 1)]
    out = np.full((3, 11), 7.0)
    join.place_four(out, *parts, 2)
    expected = np.full((3, 11), 7.0)
    expected[:, 2:10] = np.concatenate(parts, 1)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("widths", [(1, 64, 3, 200), (16,) * 9, (5000, 7)])
def test_rows_are_joined_from_anywhere(widths):
    rng = np.random.default_rng(1)
    whole = rng.integers(0, 256, (37, 2 * sum(widths)), np.uint8)
    places = np.cumsum([0, *widths[:-1]]) * 2
    parts = [whole[:, p : p + v] for p, v in zip(places, widths, strict=True)]
    table = np.array([(p.ctypes.data, p.strides[0], p.shape[1]) for p in parts], np.int64)
    guarded = np.full((39, sum(widths)), 7, np.uint8)
    join.place_rows(guarded[1:-1], table)
    np.testing.assert_array_equal(guarded[1:-1], np.concatenate(parts, 1))
    assert (guarded[[0, -1]] == 7).all()


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("dtype", [ng.int8, ng.bfloat16, ng.float32, ng.float64])
def test_many_parts_of_a_tensor_are_joined(dtype, dim):
    x = ng.rand(20, 160, 64).mul(100).to(dtype)
    assert ng.cat(x.split(16, dim), dim).equal(x)
    assert ng.cat(x.transpose(0, 1).split(16, dim), dim).equal(x.transpose(0, 1))
    assert ng.cat([x, x[:, :0], x], 1)[:, 160:].equal(x)


@pytest.mark.parametrize("dtype", [ng.uint8, ng.bfloat16, ng.float32, ng.float64, ng.bool])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_columns_of_single_numbers(dtype, count):
    ng.manual_seed(0)
    whole = ng.randint(0, 2 if dtype is ng.bool else 100, (20001, count)).to(dtype)
    columns = [column.contiguous() for column in whole.unbind(1)]
    assert ng.equal(ng.stack(columns, 1), whole)
    assert ng.equal(ng.cat([c[:, None] for c in columns], 1), whole)
    wide = ng.cat([whole[:, :2].contiguous(), whole[:, :0], whole[:, 2:].contiguous()], 1)
    assert ng.equal(wide, whole)
