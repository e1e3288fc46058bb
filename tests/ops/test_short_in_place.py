"""``add_`` and its kin where no history is kept: one launch, with the effects of the long way."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.ops import inplace

NAMES = "add_ sub_ mul_ div_".split()


@pytest.fixture
def short(monkeypatch):
    """Whether each call so far went the short way."""
    seen, original = [], inplace._written

    def noted(op, x, y):
        seen.append(original(op, x, y))
        return seen[-1]

    monkeypatch.setattr(inplace, "_written", noted)
    return seen


def pair(*shape, dtype=ng.float32):
    return [ng.rand(*shape, dtype=dtype) + 0.5 for _ in range(2)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [ng.float32, ng.float64])
def test_as_the_op_itself(name, dtype, short):
    x, y = pair(3, 4, dtype=dtype)
    for other in (y, 1.5, 2, True, x):
        expected = getattr(x, name[:-1])(other)
        memory, version = x.data_ptr(), x._version
        assert getattr(x, name)(other) is x
        assert x.tolist() == expected.tolist()
        assert (x.data_ptr(), x._version) == (memory, version + 1)
    assert short == [True] * 5


def test_integers_count(short):
    count = ng.zeros(3, dtype=ng.int64)
    count.add_(1)
    count += ng.tensor([1, 2, 3])
    assert count.tolist() == [2, 3, 4] and short == [True, True]
    with pytest.raises(ng.errors.DTypeError):
        count.add_(1.5)
    with pytest.raises(ng.errors.DTypeError):
        count.div_(2)
    with pytest.raises(ng.errors.DTypeError):
        ng.ones(2, dtype=ng.bool).sub_(ng.ones(2, dtype=ng.bool))
    assert count.tolist() == [2, 3, 4] and not any(short[2:])


def test_what_overlaps_is_computed_first(short):
    x = ng.arange(6.0)
    x[1:].add_(x[:-1])
    assert x.tolist() == [0, 1, 3, 5, 7, 9]
    square = ng.arange(9.0).view(3, 3)
    square.add_(square.t())
    assert square.tolist() == [[0, 4, 8], [4, 8, 12], [8, 12, 16]]
    assert not any(short)


def test_other_operands_go_the_long_way(short):
    x, y = pair(3, 4)
    whole = x.clone()
    x.add_(y[0]).add_(y.double()).add_(y, alpha=2).t().add_(y.t())
    np.testing.assert_allclose(x.numpy(), (whole + y[0] + 4 * y).numpy(), rtol=1e-6)
    assert not any(short)


def test_histories_are_kept(short):
    x, y = pair(3)
    weight = ng.ones(3, requires_grad=True)
    x.add_(weight)
    x.mul_(2.0)
    x.sum().backward()
    assert weight.grad.tolist() == [2, 2, 2] and not any(short)
    with pytest.raises(ng.errors.GradError, match="leaf"):
        weight.add_(1.0)
    with ng.no_grad():
        weight.add_(y)
    assert short[-1] and weight.requires_grad and weight.is_leaf
    product = weight * weight
    with ng.no_grad():
        weight.mul_(0.5)
    with pytest.raises(ng.errors.GradError, match="inplace operation"):
        product.sum().backward()
