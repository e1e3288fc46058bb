"""Views of no dimensions, with gaps, and what must not be a view."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng


def test_ravel_has_no_gaps():
    x = ng.arange(6.0).view(2, 3)
    column = x[:, 0].ravel()
    column[0] = 7.0
    assert column.tolist() == [7.0, 3.0] and x[0, 0].item() == 0.0
    row = x[1].ravel()
    row[0] = 9.0
    assert x[1, 0].item() == 9.0
    assert x.t().ravel().tolist() == [0.0, 9.0, 1.0, 4.0, 2.0, 5.0]
    assert ng.zeros(2, 0).ravel().shape == (0,) and ng.tensor(3.0).ravel().tolist() == [3.0]
    y = ng.ones(3, 2, requires_grad=True)
    (y.t().ravel() * ng.arange(6.0)).sum().backward()
    assert y.grad.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


def test_broadcast_to_takes_sizes_one_by_one():
    x = ng.tensor([[1.0], [2.0]])
    for wide in (
        x.broadcast_to(3, 2, 2),
        x.broadcast_to((3, 2, 2)),
        ng.broadcast_to(x, [3, 2, 2]),
        ng.broadcast_to(x, size=(3, 2, 2)),
    ):
        assert wide.tolist() == [[[1.0, 1.0], [2.0, 2.0]]] * 3


def test_of_no_dimensions():
    x = ng.tensor(2.0, requires_grad=True)
    (x.movedim(0, -1) * 3 + x.flip(0) * 4 + x.moveaxis(-1, 0)).backward()
    assert x.grad.item() == 8.0
    with pytest.raises(IndexError):
        x.movedim(1, 0)


@pytest.mark.parametrize("compiled", [False, True])
def test_diagonals_of_views_are_filled(compiled):
    def filled(x):
        y = x * 1
        y[1:].fill_diagonal_(2.0)
        y[..., 1:].fill_diagonal_(3.0)
        y.t()[:, 1:].fill_diagonal_(4.0)
        return y

    expected = np.ones((3, 4))
    np.fill_diagonal(expected[1:], 2.0)
    np.fill_diagonal(expected[:, 1:], 3.0)
    np.fill_diagonal(expected.T[:, 1:], 4.0)
    x = ng.ones(3, 4, requires_grad=True)
    out = (ng.compile(filled) if compiled else filled)(x)
    assert out.tolist() == expected.tolist()
    out.sum().backward()
    assert x.grad.tolist() == (expected == 1).astype(float).tolist()


def test_diagonals_that_wrap_and_of_more_dimensions():
    tall = np.zeros((7, 3))
    np.fill_diagonal(tall, 1.0, wrap=True)
    assert ng.zeros(7, 3).fill_diagonal_(1.0, wrap=True).tolist() == tall.tolist()
    assert ng.zeros(8, 3)[1:].fill_diagonal_(1.0, True).tolist() == tall.tolist()
    cube = np.zeros((3, 3, 3))
    np.fill_diagonal(cube, 1.0)
    assert ng.zeros(3, 3, 3).fill_diagonal_(1.0).tolist() == cube.tolist()
