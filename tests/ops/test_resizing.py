"""``resize_``, ``resize_as_``, ``as_strided_``: other sizes for a tensor in place."""

from __future__ import annotations

import pytest

import numbagrad as ng
from numbagrad.errors import GradError, RecordingError, ShapeError


@pytest.mark.parametrize("size", [((2, 2),), (2, 2), (4,), (3, 1), (0,), ((),)])
def test_smaller_is_the_start_of_the_memory(size):
    torch = pytest.importorskip("torch")
    x, y = ng.arange(6.0).reshape(2, 3).clone(), torch.arange(6.0).reshape(2, 3)
    version = x._version
    assert x.resize_(*size) is x
    assert x.tolist() == y.resize_(*size).tolist() and x._version > version


def test_larger_keeps_what_there_was():
    x = ng.tensor([[0, 1, 2], [3, 4, 5]]).t_()
    assert not x.is_contiguous()
    x.resize_(3, 3)
    assert x.is_contiguous() and x.reshape(-1)[:6].tolist() == [0, 1, 2, 3, 4, 5]
    x += 1
    assert x[0, 0] == 1
    template = ng.zeros(2, 5)
    assert ng.resize_as_(x, template) is x and x.shape == (2, 5)
    assert x.resize_as_(template.t()).shape == (5, 2)


def test_the_same_size_changes_nothing():
    x = ng.ones(2, 3).t()
    assert x.resize_(3, 2) is x and x.stride() == (1, 3)


def test_a_view_reaches_the_memory_behind_it():
    base = ng.arange(6)
    view = base[2:3]
    assert view.resize_(2, 2).tolist() == [[2, 3], [4, 5]]
    view.zero_()
    assert base.tolist() == [0, 1, 0, 0, 0, 0]
    with pytest.raises(GradError, match=r"resize_: .* the memory of this view has 4"):
        view.resize_(5)


def test_as_strided_in_place():
    x = ng.arange(6.0)
    assert x.as_strided_((2, 2), (1, 2)) is x and x.tolist() == [[0, 2], [1, 3]]
    y = ng.arange(6.0, requires_grad=True) * 2
    ng.as_strided_(y, (2, 2), (1, 1), 1)
    assert y.tolist() == [[2, 4], [4, 6]]
    leaf = ng.ones(4, requires_grad=True)
    z = leaf * 1
    z.as_strided_((2,), (2,)).sum().backward()
    assert leaf.grad.tolist() == [1, 0, 1, 0]


def test_what_cannot_be_resized_stays():
    x = ng.ones(4)
    part = x[1:]
    for call in (lambda: x.resize_(2), lambda: x.as_strided_((2,), (1,), 1)):
        with pytest.raises(GradError, match="views of this tensor live"):
            call()
    assert x.shape == (4,) and part.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        ng.ones(4, requires_grad=True).resize_(2)
    with pytest.raises(ShapeError, match=r"must not be negative, got \[-2\]"):
        ng.ones(4).resize_(-2)
    with pytest.raises(RecordingError, match="resize_: not possible"):
        ng.compile(lambda x: x.resize_(2).sum())(ng.ones(4))
