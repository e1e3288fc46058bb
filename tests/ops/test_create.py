"""Creation beyond the op table: dtypes of data, memory, sizes, messages."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import numbagrad as ng


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1, ng.int64),
        (1.0, ng.float32),
        (True, ng.bool),
        ([1, 2.0], ng.float32),
        ([True, 2], ng.int64),
        ([], ng.float32),
        ([[], []], ng.float32),
        (np.float64(1), ng.float64),
        (np.ones(2), ng.float64),
        ([np.ones(2)], ng.float64),
        (np.int32(1), ng.int32),
        (range(3), ng.int64),
    ],
)
def test_dtype_follows_the_data(data, dtype):
    torch = pytest.importorskip("torch")
    x = ng.tensor(data)
    assert x.dtype is dtype
    theirs = torch.tensor(data)
    assert str(theirs.dtype).endswith(dtype.name) and tuple(theirs.shape) == tuple(x.shape)


def test_lists_of_tensors():
    assert ng.tensor([ng.tensor(1.0), ng.tensor(2.0)]).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ([[1, 2], [1, 2, 3]], ValueError, r"expected sequence of length 2 at dim 1 \(got 3\)"),
        ([[1, 2], 3], TypeError, "expected a sequence at dim 1"),
        ([1, [2]], ValueError, "expected a number at dim 1|expected sequence"),
        (["a"], TypeError, "invalid data type 'str'"),
        ("abc", TypeError, "invalid data type 'str'"),
        ([None], TypeError, "NoneType"),
        ([1j], TypeError, "complex"),
        ([2**64], RuntimeError, "Overflow"),
        (2**63, RuntimeError, "Overflow"),
    ],
)
def test_data_that_is_no_tensor(data, error, words):
    with pytest.raises(error, match=words):
        ng.tensor(data)


def test_tensor_copies_and_from_numpy_shares():
    array = np.zeros(3, np.float32)
    copied, shared, also = ng.tensor(array), ng.from_numpy(array), ng.as_tensor(array)
    array[0] = 1
    assert copied.tolist() == [0, 0, 0] and shared.tolist() == also.tolist() == [1, 0, 0]
    shared[1] = 2
    assert array.tolist() == [1, 2, 0]
    assert ng.as_tensor(shared) is shared


@pytest.mark.parametrize(
    "array",
    [np.zeros((4, 4))[::2, 1:], np.zeros((4, 4)).T, np.zeros(()), np.zeros((0, 3))],
)
def test_from_numpy_takes_any_layout(array):
    x = ng.from_numpy(array)
    assert x.shape == array.shape
    x.add_(1)
    assert (array == 1).all()


def test_from_numpy_copies_what_must_not_be_written():
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    ng.from_numpy(frozen).fill_(1)
    ng.from_numpy(np.broadcast_to(frozen, (3, 2))).fill_(1)
    assert (frozen == 0).all()
    with pytest.raises(ValueError, match="negative"):
        ng.from_numpy(np.zeros(3)[::-1])
    with pytest.raises(TypeError, match="counterpart"):
        ng.from_numpy(np.zeros(3, complex))


def test_sizes_and_options():
    for made in (ng.zeros, ng.ones, ng.empty, ng.rand, ng.randn):
        assert made(2, 3).shape == made((2, 3)).shape == made([2, 3]).shape == (2, 3)
        assert made(ng.zeros(2, 3).shape).shape == (2, 3) and made(()).shape == ()
        x = made(2, dtype=ng.double, requires_grad=True, device="cpu")
        assert x.dtype is ng.double and x.requires_grad and x.is_leaf
        with pytest.raises(RuntimeError, match="negative dimension"):
            made(-1)
        with pytest.raises(TypeError, match="expected ints"):
            made(2.5)
    with pytest.raises(RuntimeError, match="not available"):
        ng.zeros(2, device="cuda")
    with pytest.raises(RuntimeError, match="floating"):
        ng.zeros(2, dtype=ng.long, requires_grad=True)


@pytest.mark.parametrize("arguments", [(10,), (2, 9, 3), (5, -5, -3), (0, 1, 0.1), (1, 2, 0.3)])
def test_arange_as_pytorch(arguments):
    torch = pytest.importorskip("torch")
    ours, theirs = ng.arange(*arguments), torch.arange(*arguments)
    assert np.array_equal(ours.numpy(), theirs.numpy()) and str(theirs.dtype)[6:] == ours.dtype.name


def test_linspace_is_symmetric_and_ends_where_it_should():
    x = ng.linspace(-1, 1, 1000).numpy()
    assert x[-1] == 1 and np.array_equal(x, -x[::-1])


def test_overwriting_keeps_the_rules_of_the_tape():
    x = ng.ones(2, requires_grad=True)
    for write in (ng.Tensor.zero_, lambda x: x.fill_(2), lambda x: x.uniform_()):
        with pytest.raises(RuntimeError, match="leaf Variable"):
            write(x)
        y = x * 3
        write(y)
        y.sum().backward()
        assert x.grad.tolist() == [0, 0] and y._version == 1
    x.data.uniform_(-0.1, 0.1)
    assert x._version == 0 and x.detach().abs().max().item() <= 0.1
    y = ng.zeros(2, 3)
    y.t().copy_(ng.arange(6).reshape(3, 2))
    assert y.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_new_tensors_take_dtype_from_the_old():
    x = ng.zeros(1, dtype=ng.double)
    for made in (x.new_zeros(2, 2), x.new_full((2, 2), 3), x.new_tensor([[1, 2], [3, 4]])):
        assert made.dtype is ng.double and made.shape == (2, 2)
    assert ng.full_like(x, 7, dtype=ng.long).tolist() == [7]


def test_any_sequence_is_taken():
    queue = collections.deque([1.0, 2.0])
    assert ng.tensor(queue).tolist() == [1.0, 2.0] and ng.as_tensor(queue).dtype is ng.float32
    assert ng.tensor([collections.deque([1, 2]), range(2)]).tolist() == [[1, 2], [0, 1]]
    assert ng.tensor(collections.deque([ng.tensor(1), ng.tensor(2)])).tolist() == [1, 2]
    assert ng.tensor(collections.UserList([ng.tensor(1.0)])).tolist() == [1.0]
    for wrong in ("a", b"a", {1: 2}, {1}):
        with pytest.raises(TypeError, match="invalid data type"):
            ng.tensor(wrong)


@pytest.mark.parametrize("value", ["abc", 3, None])
def test_frombuffer_of_what_shows_no_memory(value):
    with pytest.raises(ValueError, match=r"frombuffer: .* does not implement Python buffer"):
        ng.frombuffer(value, dtype=ng.uint8)


MIXED = [
    ([np.float32(1.5), 2.0], ng.float32),
    ([np.int64(1), 2.5], ng.float32),
    ([[np.bool_(True)], [1.0]], ng.float32),
    ([np.float64(1.0), np.float32(2.0)], ng.float64),
    ([0, np.float64(0.5)], ng.float64),
    ([[1.0, 2.0], [1, np.float64(0.5)]], ng.float64),
    ([np.array([1.0, 2.0]), [3.0, 4.0]], ng.float64),
    ([np.int32(1), 2], ng.int64),
    ([ng.tensor(1), 2.5], ng.float32),
    ([ng.tensor(1.0, dtype=ng.float64), 2], ng.float64),
    ([ng.tensor([1.0]), ng.tensor([[2.0]]), 3.0], ng.float32),
]


@pytest.mark.parametrize("row", MIXED, ids=lambda row: str(row[0]))
def test_python_numbers_leave_the_dtype_to_the_others(row):
    data, dtype = row
    x = ng.tensor(data)
    assert x.dtype is dtype and x.shape[0] == len(data)
    assert ng.as_tensor(data).dtype is dtype


def test_pythons_float_as_a_dtype_is_float64():
    assert ng.ones(2, dtype=float).dtype is ng.float64
    assert ng.ones(2).to(float).dtype is ng.float64
    assert ng.tensor([1.0]).dtype is ng.float32


def test_asarray_shares_copies_and_asks_for_gradients():
    a = np.zeros(3, np.float32)
    x = ng.asarray(a, copy=False)
    a[0] = 1
    assert x.tolist() == [1.0, 0.0, 0.0]
    assert ng.asarray(np.zeros(0), copy=False).shape == (0,)
    assert ng.asarray(x) is x and ng.asarray(x, copy=True) is not x
    for data, options in (([1.0], {}), (a, {"dtype": ng.float64})):
        with pytest.raises(ValueError, match="asarray: can't alias"):
            ng.asarray(data, copy=False, **options)
    leaf = ng.ones(2, requires_grad=True)
    y = leaf * 3
    assert ng.asarray(y) is y and ng.asarray(y, requires_grad=True) is y
    apart = ng.asarray(y, requires_grad=False)
    assert not apart.requires_grad and apart.data_ptr() == y.data_ptr()
    assert ng.asarray([1.0], requires_grad=True).is_leaf


def test_as_strided_scatter_counts_from_the_start_of_the_memory():
    x = ng.arange(12.0).reshape(3, 4)[1:]
    out = ng.as_strided_scatter(x, ng.tensor([-1.0, -2.0]), (2,), (2,), 4)
    assert out[0].tolist() == [-1.0, 5.0, -2.0, 7.0] and x[0, 0].item() == 4.0


def test_a_negative_zero_keeps_its_sign():
    for x in (ng.full((2,), -0.0), ng.full_like(ng.ones(2), -0.0), ng.ones(2).new_full((2,), -0.0)):
        assert x.reciprocal().tolist() == [-float("inf")] * 2
