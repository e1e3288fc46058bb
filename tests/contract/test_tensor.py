"""Contract lines T1 to T6: making tensors, their methods, printing, promotion, indexing."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import DTypeError, GradError

from .functions import MulConstant


def leaf(*values):
    return ng.tensor(list(values), requires_grad=True)


# T1 -------------------------------------------------------------------------------------------


def test_T1_tensor_class_makes_uninitialised_float32():
    x = ng.Tensor(3, 4)
    assert x.shape == (3, 4)
    assert x.dtype is ng.float32
    assert not x.requires_grad and x.is_leaf
    x.fill_(2.0)
    assert x.sum().item() == 24.0


def test_T1_tensor_class_takes_values_too():
    assert ng.Tensor([1, 2]).tolist() == [1.0, 2.0]
    assert ng.Tensor([1, 2]).dtype is ng.float32
    assert ng.Tensor().shape == (0,)


def test_T1_tensor_function():
    x = ng.tensor([1.0], requires_grad=True)
    assert x.tolist() == [1.0] and x.requires_grad and x.is_leaf and x.dtype is ng.float32
    assert ng.tensor([1, 2]).dtype is ng.int64
    assert ng.tensor([True]).dtype is ng.bool
    assert ng.tensor(2.5).shape == ()
    assert ng.tensor([[1, 2], [3, 4]]).shape == (2, 2)
    assert ng.tensor([1.0, 2], dtype=ng.double).dtype is ng.float64
    assert ng.tensor(np.arange(3)).dtype is ng.int64


def test_T1_tensor_function_copies():
    array = np.ones(2, np.float32)
    x, shared = ng.tensor(array), ng.from_numpy(array)
    array[0] = 5.0
    assert x.tolist() == [1.0, 1.0]
    assert shared.tolist() == [5.0, 1.0]


def test_T1_randn_takes_a_tuple_or_sizes():
    x = ng.randn((10, 4), dtype=ng.float, requires_grad=True)
    assert x.shape == (10, 4) and x.dtype is ng.float32 and x.requires_grad and x.is_leaf
    y = ng.randn(20, 20, dtype=ng.double)
    assert y.shape == (20, 20) and y.dtype is ng.float64 and not y.requires_grad
    assert abs(y.mean().item()) < 0.3 and 0.8 < y.std().item() < 1.2


def test_T1_aliases():
    assert ng.float is ng.float32
    assert ng.double is ng.float64
    assert ng.long is ng.int64


# T2 -------------------------------------------------------------------------------------------


def test_T2_mm_t_times_and_add():
    x = ng.tensor([[1.0, 2.0], [3.0, 4.0]])
    y = ng.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])
    assert x.mm(y).tolist() == [[1.0, 2.0, 4.0], [3.0, 4.0, 10.0]]
    assert x.t().tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert x.t().mm(x.t()).tolist() == [[7.0, 15.0], [10.0, 22.0]]
    assert (x * x).tolist() == [[1.0, 4.0], [9.0, 16.0]]
    assert (x * 2).tolist() == (2 * x).tolist() == [[2.0, 4.0], [6.0, 8.0]]
    same = x
    x += ng.tensor([10.0, 20.0])
    assert x is same and x.tolist() == [[11.0, 22.0], [13.0, 24.0]]


def test_T2_t_of_a_vector_is_itself_and_of_three_dimensions_an_error():
    assert ng.ones(3).t().shape == (3,)
    with pytest.raises(RuntimeError, match="2"):
        ng.ones(2, 3, 4).t()


def test_T2_unsqueeze_and_expand_as():
    bias = ng.tensor([1.0, 2.0], requires_grad=True)
    row = bias.unsqueeze(0)
    assert row.shape == (1, 2)
    assert bias.unsqueeze(-1).shape == (2, 1)
    wide = row.expand_as(ng.ones(3, 2))
    assert wide.tolist() == [[1.0, 2.0]] * 3
    assert wide.stride() == (0, 1)
    wide.sum().backward()
    assert bias.grad.tolist() == [3.0, 3.0]


def test_T2_sum_and_squeeze():
    x = ng.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.sum(0).tolist() == [4.0, 6.0]
    assert x.sum(1).tolist() == [3.0, 7.0]
    assert x.sum().item() == 10.0
    assert x.squeeze(0).shape == (2, 2)  # size 2: nothing happens
    assert ng.ones(1, 3).squeeze(0).shape == (3,)
    assert ng.ones(1, 3, 1).squeeze().shape == (3,)


def test_T2_uniform():
    x = ng.zeros(1000)
    assert x.uniform_(-0.1, 0.1) is x
    assert -0.1 <= x.min().item() < -0.08 and 0.08 < x.max().item() <= 0.1
    assert abs(x.mean().item()) < 0.01


def test_T2_size_is_a_tuple_subclass():
    x = ng.ones(10, 3)
    assert repr(x.size()) == "ng.Size([10, 3])"
    assert str(x.size()) == repr(x.size())
    assert type(x.size()) is ng.Size and type(x.shape) is ng.Size
    assert issubclass(ng.Size, tuple)
    assert x.size() == (10, 3)
    assert x.size(0) == 10 and x.size(-1) == 3
    assert x.size().numel() == 30
    assert type(x.size()[:1]) is ng.Size
    longer = x.size() + x.size()
    assert type(longer) is ng.Size and longer == (10, 3, 10, 3)


# T3 -------------------------------------------------------------------------------------------


def test_T3_attributes_of_a_leaf_and_of_a_result():
    x = leaf(1.0, 2.0)
    y = x * 2.0
    assert x.is_leaf and x.grad_fn is None and x.requires_grad and x.grad is None
    assert not y.is_leaf and y.grad_fn is not None and y.requires_grad
    constant = ng.ones(2)
    assert constant.is_leaf and not constant.requires_grad
    constant.requires_grad = True
    assert constant.requires_grad
    with pytest.raises(RuntimeError, match="leaf"):
        y.requires_grad = False


def test_T3_data_shares_storage_without_history_or_version():
    x = leaf(1.0, 2.0)
    before = x._version
    data = x.data
    assert not data.requires_grad and data.grad_fn is None
    data.add_(1.0)
    assert x.tolist() == [2.0, 3.0]
    assert x._version == before
    assert data.data_ptr() == x.data_ptr()


def test_T3_data_of_a_saved_tensor_may_be_written_unnoticed():
    x = leaf(1.0, 2.0)
    inner = x * 1.0
    y = inner * inner
    inner.data.fill_(5.0)
    y.sum().backward()
    assert x.grad.tolist() == [10.0, 10.0]


def test_T3_data_can_be_assigned():
    x = leaf(1.0, 2.0)
    x.data = ng.tensor([7.0, 8.0, 9.0])
    assert x.tolist() == [7.0, 8.0, 9.0]
    assert x.requires_grad and x.is_leaf


def test_T3_detach_shares_storage_and_the_version_counter():
    x = leaf(1.0, 2.0)
    inner = x * 1.0
    alias = inner.detach()
    assert not alias.requires_grad and alias.grad_fn is None and alias.is_leaf
    assert alias.data_ptr() == inner.data_ptr()
    before = inner._version
    alias.add_(1.0)
    assert inner._version == alias._version == before + 1
    assert inner.tolist() == [2.0, 3.0]


def test_T3_writing_through_detach_leaves_the_history_alone():
    x = leaf(1.0, 2.0)
    for inner in (x * 3.0, (x * 3.0)[:], (x * 3.0).unsqueeze(0)):
        x.grad = None
        inner.detach().mul_(10.0)
        inner.sum().backward()
        assert inner.flatten().tolist() == [30.0, 60.0]
        assert x.grad.tolist() == [3.0, 3.0]
    x.unsqueeze(0).detach().zero_()
    assert x.tolist() == [0.0, 0.0] and x.is_leaf


def test_T3_copy_makes_a_node_of_its_own():
    x = leaf(1.0, 2.0)
    copied = ng.zeros(2)
    copied.copy_(x)
    assert not copied.is_leaf and copied.grad_fn is not None
    inner = x * 1.0
    twin = ng.zeros(2).copy_(inner)
    twin.retain_grad()
    (copied + inner * 2.0 + twin * 5.0).sum().backward()
    assert twin.grad.tolist() == [5.0, 5.0]
    assert x.grad.tolist() == [8.0, 8.0]


def test_T3_views_share_the_version_counter():
    x = ng.zeros(2, 3)
    before = x._version
    x[0].add_(1.0)
    x.t()[2, 1] = 5.0
    assert x._version == before + 2
    assert x.tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 5.0]]


def test_T3_grad_must_have_the_shape_of_the_tensor():
    x = leaf(1.0, 2.0)
    x.grad = ng.tensor([3.0, 4.0])
    assert x.grad.tolist() == [3.0, 4.0]
    with pytest.raises((RuntimeError, TypeError), match="size"):
        x.grad = ng.ones(3)
    assert x.grad.tolist() == [3.0, 4.0]
    x.grad = None
    assert x.grad is None


def test_T3_in_place_on_a_leaf_that_needs_a_gradient():
    x = leaf(1.0, 2.0)
    with pytest.raises(GradError, match=r"leaf .*in-place operation"):
        x.add_(1.0)
    with pytest.raises(GradError, match=r"leaf .*in-place operation"):
        x[0].mul_(2.0)
    with pytest.raises(GradError, match=r"leaf .*in-place operation"):
        x.uniform_(0.0, 1.0)
    assert x.tolist() == [1.0, 2.0]
    with ng.no_grad():
        x.add_(1.0)
    assert x.tolist() == [2.0, 3.0] and x.is_leaf


def test_T3_in_place_on_a_result_is_differentiated():
    x = leaf(1.0, 2.0)
    y = x * 3.0
    y.mul_(2.0)
    y[0] = 10.0
    y[1:].add_(x[:1])
    y.sum().backward()
    assert y.tolist() == [10.0, 13.0]
    assert x.grad.tolist() == [1.0, 6.0]


def test_T3_deepcopy_of_a_leaf_and_of_a_result():
    x = leaf(1.0, 2.0)
    x.grad = ng.ones(2)
    twin = copy.deepcopy(x)
    twin.data.add_(1.0)
    assert x.tolist() == [1.0, 2.0] and twin.requires_grad and twin.is_leaf
    assert twin.grad.tolist() == [1.0, 1.0] and twin.grad is not x.grad
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(x * 2.0)


def test_T3_copies_share_memory_and_pickles_keep_shapes_and_attributes():
    for x in (ng.tensor(2.5), ng.arange(6.0).reshape(2, 3).t(), ng.nn.Parameter(ng.ones(2))):
        x.label = "x"
        twin, kept = copy.copy(x), pickle.loads(pickle.dumps(x))
        for other in (twin, kept):
            assert type(other) is type(x) and other.label == "x"
            assert other.shape == x.shape and other.requires_grad is x.requires_grad
        twin.data.zero_()
        assert not x.detach().any() and kept.detach().any()
    with pytest.raises(RuntimeError, match="copy"):
        copy.copy(leaf(1.0) * 2.0)


# T4 -------------------------------------------------------------------------------------------

LONG = "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"
ZEROS = "[0., 0., 0.,  ..., 0., 0., 0.]"
PRINTED = [
    (lambda: ng.tensor([1.0, 2.0], requires_grad=True), "tensor([1., 2.], requires_grad=True)"),
    (lambda: MulConstant.apply(leaf(1.0), 2.0), "tensor([2.], grad_fn=<MulConstantBackward>)"),
    (lambda: ng.tensor(3.5), "tensor(3.5000)"),
    (lambda: ng.tensor(2), "tensor(2)"),
    (lambda: ng.tensor(True), "tensor(True)"),
    (lambda: ng.tensor(1.0, requires_grad=True), "tensor(1., requires_grad=True)"),
    (lambda: ng.tensor([]), "tensor([])"),
    (lambda: ng.zeros(0, 3), "tensor([], size=(0, 3))"),
    (lambda: ng.zeros(0, 3, dtype=ng.long), "tensor([], size=(0, 3), dtype={int64})"),
    (lambda: ng.tensor([1, 2]), "tensor([1, 2])"),
    (lambda: ng.tensor([True, False]), "tensor([ True, False])"),
    (lambda: ng.tensor([1.0], dtype=ng.double), "tensor([1.], dtype={float64})"),
    (lambda: ng.tensor([1, 2], dtype=ng.int32), "tensor([1, 2], dtype={int32})"),
    (lambda: ng.tensor([1.5, math.nan, math.inf]), "tensor([1.5000,    nan,    inf])"),
    (lambda: ng.tensor([0.1, 100.0]), "tensor([  0.1000, 100.0000])"),
    (lambda: ng.tensor([-1.5, 20.25]), "tensor([-1.5000, 20.2500])"),
    (lambda: ng.tensor([1e-5, 1.0]), "tensor([1.0000e-05, 1.0000e+00])"),
    (lambda: ng.tensor([1e10, 1.0]), "tensor([1.0000e+10, 1.0000e+00])"),
    (lambda: ng.tensor([123456789.0, 1.0]), "tensor([1.2346e+08, 1.0000e+00])"),
    (lambda: ng.tensor([[1.0, 2.0], [3.0, 4.0]]), "tensor([[1., 2.],\n        [3., 4.]])"),
    (
        lambda: ng.zeros(2, 2, 2),
        "tensor([[[0., 0.],\n         [0., 0.]],\n\n        [[0., 0.],\n         [0., 0.]]])",
    ),
    (lambda: ng.arange(2000), LONG),
    (
        lambda: ng.zeros(100, 30),
        "tensor([" + f"{ZEROS},\n        " * 3 + "...,\n        " + f"{ZEROS},\n        " * 2
        + f"{ZEROS}])",
    ),
]  # fmt: skip


@pytest.mark.parametrize("make, text", PRINTED, ids=[text[:40] for _, text in PRINTED])
def test_T4_repr(make, text):
    for name in ("int32", "int64", "float64"):
        text = text.replace(f"{{{name}}}", repr(getattr(ng, name)))
    assert repr(make()) == text
    assert str(make()) == text


def test_T4_a_result_shows_its_node_and_the_dtype_comes_first():
    x = ng.tensor([1.0], dtype=ng.double, requires_grad=True)
    y = MulConstant.apply(x, 2.0)
    assert repr(y) == f"tensor([2.], dtype={ng.float64!r}, grad_fn=<MulConstantBackward>)"
    assert repr(y.detach()) == f"tensor([2.], dtype={ng.float64!r})"


# T5 -------------------------------------------------------------------------------------------

PROMOTED = [
    (lambda: ng.tensor([1]) + 1.5, ng.float32, [2.5]),
    (lambda: ng.ones(2) + ng.tensor(1.0, dtype=ng.double), ng.float32, [2.0, 2.0]),
    (lambda: ng.ones(2) + ng.tensor([1.0], dtype=ng.double), ng.float64, [2.0, 2.0]),
    (lambda: ng.tensor([3]) / ng.tensor([2]), ng.float32, [1.5]),
    (lambda: ng.tensor([3]) / 2, ng.float32, [1.5]),
    (lambda: ng.tensor([1, 2]).sum(), ng.int64, 3),
    (lambda: ng.tensor([1, 2], dtype=ng.int32).sum(), ng.int64, 3),
    (lambda: ng.tensor([True, True]).sum(), ng.int64, 2),
    (lambda: ng.tensor([2], dtype=ng.int32) * ng.tensor([3]), ng.int64, [6]),
    (lambda: ng.tensor(1) + ng.tensor([1], dtype=ng.int8), ng.int8, [2]),
    (lambda: ng.tensor(1.0) + ng.tensor([1], dtype=ng.int8), ng.float32, [2.0]),
    (lambda: ng.tensor([1], dtype=ng.uint8) + ng.tensor([1], dtype=ng.int8), ng.int16, [2]),
    (lambda: ng.tensor([1], dtype=ng.uint8) - 2, ng.uint8, [255]),
    (lambda: ng.tensor([True]) + ng.tensor([True]), ng.bool, [True]),
    (lambda: ng.tensor([True]) * 2, ng.int64, [2]),
    (lambda: ng.tensor([-3]) // 2, ng.int64, [-2]),
    (lambda: ng.tensor([-3]) % 2, ng.int64, [1]),
    (lambda: ng.tensor([3.0]) // 2, ng.float32, [1.0]),
    (lambda: 2 ** ng.tensor([1, 2]), ng.int64, [2, 4]),
    (lambda: ng.tensor([1]) == ng.tensor([1.0]), ng.bool, [True]),
]


@pytest.mark.parametrize("make, dtype, values", PROMOTED, ids=range(len(PROMOTED)))
def test_T5_promotion(make, dtype, values):
    out = make()
    assert out.dtype is dtype
    assert out.tolist() == values


def test_T5_what_would_lose_values_raises_and_changes_nothing():
    x = ng.tensor([1, 2])
    with pytest.raises(DTypeError, match="can't be cast"):
        x.add_(1.5)
    with pytest.raises(DTypeError, match="mean"):
        x.mean()
    with pytest.raises(RuntimeError, match="negative integer powers"):
        _ = x**-1
    assert x.tolist() == [1, 2] and x._version == 0


def gradient(function, *values):
    x = leaf(*values)
    function(x).sum().backward()
    return x.grad.tolist()


def test_T5_gradients_at_ties():
    assert gradient(lambda x: x.max(), 1.0, 3.0, 3.0) == [0.0, 0.5, 0.5]
    assert gradient(lambda x: x.min(), 1.0, 1.0, 3.0) == [0.5, 0.5, 0.0]
    assert gradient(lambda x: x.max(0)[0], 1.0, 3.0, 3.0) == [0.0, 1.0, 0.0]
    x, y = leaf(1.0, 3.0, 3.0), leaf(3.0, 3.0, 1.0)
    ng.maximum(x, y).sum().backward()
    assert x.grad.tolist() == [0.0, 0.5, 1.0]
    assert y.grad.tolist() == [1.0, 0.5, 0.0]


def test_T5_gradients_at_zero_and_at_edges():
    assert gradient(lambda x: x.abs(), 0.0) == [0.0]
    assert gradient(lambda x: x.relu(), 0.0) == [0.0]
    assert gradient(lambda x: x.sqrt(), 0.0) == [math.inf]
    assert gradient(lambda x: x.clamp(0.0, 1.0), 0.0, 1.0, 2.0, -1.0) == [1.0, 1.0, 0.0, 0.0]
    assert gradient(lambda x: x.norm(), 0.0, 0.0) == [0.0, 0.0]


# T6 -------------------------------------------------------------------------------------------


def test_T6_iteration_and_len():
    x = ng.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    rows = list(x)
    assert [row.tolist() for row in rows] == [[1.0, 2.0], [3.0, 4.0]]
    assert len(x) == 2
    first, second = x
    (first * second).sum().backward()
    assert x.grad.tolist() == [[3.0, 4.0], [1.0, 2.0]]


def test_T6_zero_dimensions_cannot_be_iterated():
    with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
        iter(ng.tensor(1.0))
    with pytest.raises(TypeError, match=r"len\(\) of a 0-d tensor"):
        len(ng.tensor(1.0))


INDICES = {
    "integer": lambda i: 1,
    "negative": lambda i: -1,
    "slice": lambda i: slice(0, 3, 2),
    "two": lambda i: (1, 2),
    "slices": lambda i: (slice(1, None), slice(None, 2)),
    "ellipsis": lambda i: (..., 0),
    "none": lambda i: (None, 1, None),
    "list": lambda i: [0, 0, 2],
    "tensor": lambda i: i([2, 0, 0]),
    "negative tensor": lambda i: i([-1, 0]),
    "matrix of indices": lambda i: i([[0, 1], [2, 0]]),
    "pairs": lambda i: (i([0, 1, 0]), i([2, 3, 2])),
    "broadcast pairs": lambda i: (i([[0], [2]]), i([1, 3])),
    "slice and tensor": lambda i: (slice(None), i([3, 3, 0])),
    "tensor and slice": lambda i: (i([1, 1]), slice(1, 3)),
    "boolean rows": lambda i: i([True, False, True]),
    "boolean elements": lambda i: i(
        [[True, False, False, True], [False] * 4, [False, True, True, False]]
    ),
    "boolean nothing": lambda i: i([False, False, False]),
    "empty slice": lambda i: slice(2, 2),
}


@pytest.mark.parametrize("make", INDICES.values(), ids=INDICES.keys())
def test_T6_indexing_and_its_gradient(make):
    array = np.arange(12.0).reshape(3, 4)
    x = ng.tensor(array, requires_grad=True)
    out = x[make(ng.tensor)]
    expected = array[make(np.array)]
    assert out.shape == expected.shape
    assert out.tolist() == expected.tolist()
    weights = np.arange(1.0, expected.size + 1).reshape(expected.shape)
    (out * ng.tensor(weights)).sum().backward()
    wanted = np.zeros_like(array)
    np.add.at(wanted, make(np.array), weights)
    assert x.grad.tolist() == wanted.tolist()


@pytest.mark.parametrize("make", INDICES.values(), ids=INDICES.keys())
def test_T6_assignment_and_its_gradient(make):
    array = np.arange(12.0).reshape(3, 4)
    leaf_ = ng.tensor(array, requires_grad=True)
    value = ng.tensor(100.0, dtype=ng.double, requires_grad=True)
    x = leaf_ * 1.0
    x[make(ng.tensor)] = value
    expected = array.copy()
    expected[make(np.array)] = 100.0
    assert x.tolist() == expected.tolist()
    x.sum().backward()
    assert leaf_.grad.tolist() == (expected != 100.0).astype(float).tolist()
    written = int((expected == 100.0).sum())
    if written and written == array[make(np.array)].size:  # no index twice
        assert value.grad.item() == written


def test_T6_basic_indexing_is_a_view_and_advanced_indexing_a_copy():
    x = ng.zeros(3, 4)
    x[1, 1:3].fill_(5.0)
    x[[0, 2]].fill_(7.0)
    x[x > 1.0].fill_(9.0)
    assert x.tolist() == [[0.0] * 4, [0.0, 5.0, 5.0, 0.0], [0.0] * 4]


def test_T6_index_out_of_range():
    x = ng.zeros(2, 3)
    with pytest.raises(IndexError, match=r"index 5 is out of bounds for dimension 0 with size 2"):
        x[5]
    with pytest.raises(IndexError, match="too many indices for tensor of dimension 2"):
        x[0, 0, 0]
    with pytest.raises(IndexError, match=r"index 3 is out of bounds"):
        x[ng.tensor([0, 3])]
    with pytest.raises(IndexError, match=r"index -3 is out of bounds"):
        x[ng.tensor([0, -3])] = 1.0
    assert x.tolist() == [[0.0] * 3] * 2
