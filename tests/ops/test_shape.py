"""Views and joining beyond the op table: memory, strides, generated shapes, messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import numbagrad as ng

arrays = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    elements=st.floats(-9, 9, width=16),
)  # fmt: skip


def tensor(array):
    return ng.from_numpy(np.array(array))


def same(x, array):
    assert tuple(x.shape) == array.shape
    assert np.array_equal(x.detach().numpy(), array)


@st.composite
def turned(draw):
    """An array and a tensor of any layout: permuted, sliced with steps, expanded."""
    array = draw(arrays)
    x = tensor(array)
    order = draw(st.permutations(range(array.ndim)))
    array, x = array.transpose(order), x.permute(*order) if order else x
    key = tuple(slice(draw(st.integers(0, 2)), None, draw(st.integers(1, 2))) for _ in array.shape)
    return array[key], x[key]


@settings(max_examples=150, deadline=None)
@given(turned(), st.data())
def test_reshape_of_any_layout(pair, data):
    array, x = pair
    same(x, array)
    sizes = [array.size]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(sizes) - 1))
        divisors = [d for d in range(1, sizes[at] + 1) if sizes[at] % d == 0] or [1]
        d = data.draw(st.sampled_from(divisors))
        sizes[at : at + 1] = [d, sizes[at] // d]
    same(x.reshape(sizes), array.reshape(sizes))
    try:
        viewed = x.view(*sizes)
    except RuntimeError as error:
        assert "view size is not compatible" in str(error) and array.size
        assert not np.shares_memory(array.reshape(sizes), array)
    else:
        same(viewed, array.reshape(sizes))
        assert not array.size or np.shares_memory(viewed.numpy(), x.numpy())


@settings(max_examples=60, deadline=None)
@given(turned(), st.data())
def test_joining_and_splitting_any_layout(pair, data):
    array, x = pair
    if not array.ndim:
        return
    dim = data.draw(st.integers(-array.ndim, array.ndim - 1))
    same(ng.cat([x, x, x], dim), np.concatenate([array] * 3, dim))
    same(ng.stack([x, x], dim), np.stack([array] * 2, dim))
    same(ng.cat(x.split(2, dim), dim), array)
    same(x.roll(3, dim), np.roll(array, 3, dim))
    same(x.flip(dim), np.flip(array, dim))
    if array.shape[dim]:
        same(ng.stack(x.unbind(dim), dim), array)


def test_a_view_writes_through_and_follows():
    x = ng.zeros(2, 3)
    x.t()[1] = 5
    x.view(-1)[0] = 1
    x.narrow(1, 2, 1).fill_(7)
    x.diagonal()[1] = 9
    assert x.tolist() == [[1, 5, 7], [0, 9, 7]]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x.view(6),
        lambda x: x.reshape(3, 2),
        lambda x: x[1],
        lambda x: x[:, ::2],
        lambda x: x.unsqueeze(0),
        lambda x: x.squeeze(),
        lambda x: x.expand(2, 2, 3),
        lambda x: x.diagonal(),
        lambda x: x.split(2, 1)[0],
        lambda x: x.unbind(1)[2],
        lambda x: x.unfold(1, 2, 1),
        lambda x: x.as_strided((2, 2), (1, 1)),
    ],
)
def test_views_share_memory_and_version(view):
    x = ng.arange(6.0).reshape(2, 3).clone()
    y = view(x)
    assert np.shares_memory(x.numpy(), y.numpy()) and y._base is x
    before = y._version
    x.add_(1)
    assert y._version == before + 1


def test_unfold_adds_up_overlaps():
    x = ng.arange(5.0, requires_grad=True)
    x.unfold(0, 3, 1).sum().backward()
    assert x.grad.tolist() == [1, 2, 3, 2, 1]


def test_gradients_of_split_join_in_one_piece():
    x = ng.arange(6.0, requires_grad=True)
    a, _, c = x.chunk(3)
    (2 * a.sum() + 3 * c.sum()).backward()
    assert x.grad.tolist() == [2, 2, 0, 0, 3, 3]


def test_cat_skips_empty_vectors_and_promotes():
    out = ng.cat([ng.zeros(0), ng.ones(2, 2), ng.arange(2).reshape(1, 2)])
    assert out.dtype is ng.float32 and out.tolist() == [[1, 1], [1, 1], [0, 1]]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x: x.view(2, 2), r"shape '\[2, 2\]' is invalid for input of size 6"),
        (lambda x: x.reshape(0, -1), "invalid for input of size 6"),
        (lambda x: x.view(-2, 3), "invalid shape dimension -2"),
        (lambda x: ng.zeros(0, 2).reshape(-1, 0), "ambiguous"),
        (lambda x: x.t().view(6), r"use .reshape\(|Use .reshape\("),
        (lambda x: x.expand(3), "must be greater or equal to the number of dimensions"),
        (lambda x: x.expand(-1, 2, 3), "isn't allowed in a leading"),
        (lambda x: x.as_strided((4, 4), (3, 1)), "out of bounds for storage of 6"),
        (lambda x: x.split([1, 1], 1), "sum exactly to 3"),
        (lambda x: ng.cat([x, ng.zeros(())]), "Sizes of tensors|zero-dimensional"),
        (lambda x: x.permute(0), "number of dimensions"),
        (lambda x: x.permute(0, 0), "duplicate|repeated"),
    ],
)
def test_messages(wrong, words):
    with pytest.raises(RuntimeError, match=words):
        wrong(ng.zeros(2, 3))
