"""Deep copies and pickles: which tensors share memory, and how they lie there."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import numbagrad as ng


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64, ng.bfloat16, ng.int64, ng.bool])
def test_deep_copies_share_memory_as_the_originals_do(dtype):
    x = (ng.arange(12) % 5).to(dtype).view(3, 4)
    given = [x[1:], x.t(), x, x[:, ::2], x.detach(), x[:0], x[2, 3]]
    found = copy.deepcopy(given)
    for one, two in zip(given, found, strict=True):
        assert one.tolist() == two.tolist() and one.dtype is two.dtype
        assert one.stride() == two.stride() and one.is_contiguous() == two.is_contiguous()
    before = x.tolist()
    found[2].zero_()
    assert not any(bool(each.any()) for each in found)
    assert x.tolist() == before


def test_deep_copies_of_arrays_and_tensors_on_them():
    array = np.arange(6.0)
    first, second = copy.deepcopy([array, ng.from_numpy(array[::2])])
    first[0] = 5.0
    assert second.tolist() == [5.0, 2.0, 4.0] and array[0] == 0.0


def test_deep_copies_of_expanded_and_strided_tensors():
    x = ng.arange(3)
    wide = copy.deepcopy(x.expand(2, 3))
    assert wide.stride() == (0, 1) and wide.tolist() == [[0, 1, 2]] * 2
    apart = np.zeros(8, np.float32)[::2]
    assert copy.deepcopy(ng.from_numpy(apart)).stride() == (2,)


def test_a_deep_copy_of_a_module_shares_as_the_module():
    class Model(ng.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = ng.nn.Linear(3, 3)
            self.second = ng.nn.Linear(3, 3)
            self.second.weight = self.first.weight
            self.register_buffer("whole", ng.arange(6).float())
            self.register_buffer("part", self.whole[2:4])

    copied = copy.deepcopy(Model())
    copied.whole.add_(1)
    assert copied.part.tolist() == [3.0, 4.0]
    assert copied.first.weight is copied.second.weight


def test_deep_copies_of_parameters_have_memory_of_their_own():
    flat = ng.zeros(6)
    found, memory = copy.deepcopy([ng.nn.Parameter(flat[:4].view(2, 2).t()), flat])
    memory.add_(1)
    assert found.tolist() == [[0.0, 0.0]] * 2
    assert found.requires_grad and found.stride() == (1, 2)


def test_a_leaf_and_its_data_stay_on_one_memory():
    x = ng.zeros(2, requires_grad=True)
    (x * ng.tensor([2.0, 3.0])).sum().backward()
    leaf, data, grad = copy.deepcopy([x, x.detach(), x.grad])
    with ng.no_grad():
        leaf.add_(1)
    assert data.tolist() == [1.0, 1.0] and leaf.requires_grad and not data.requires_grad
    assert leaf.grad is grad and grad.tolist() == [2.0, 3.0]


def test_pickles_keep_columns_and_take_results():
    x = ng.arange(6).float().view(2, 3).t()
    twin = pickle.loads(pickle.dumps(x))
    assert twin.stride() == (1, 3) and twin.tolist() == x.tolist() and not twin.is_contiguous()
    assert (twin + 1).tolist() == (x + 1).tolist()
    assert twin.reshape(-1).tolist() == [0, 3, 1, 4, 2, 5]
    result = ng.ones(2, requires_grad=True) * 2
    twin = pickle.loads(pickle.dumps(result))
    assert twin.is_leaf and twin.requires_grad and twin.tolist() == [2.0, 2.0]


def test_memory_in_any_order_is_copied_as_it_lies():
    root = np.sqrt(np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0))
    t = ng.from_numpy(root)
    assert copy.deepcopy(t[1]).tolist() == t[1].tolist()
    whole, part, array = copy.deepcopy([t, t[1], root])
    part.zero_()
    assert whole.stride() == t.stride() and whole[1].sum().item() == 0.0 and t[1].sum().item() > 0
    assert isinstance(array, np.ndarray) and array.shape == root.shape


def test_repeated_entries_have_memory_of_their_own():
    x = ng.arange(3.0)
    for y in (x.repeat_interleave(1), x.expand(2, 3).repeat_interleave(2, 0)):
        y.zero_()
        assert x.tolist() == [0.0, 1.0, 2.0]
