"""Operands that are no tensors: arrays, two numbers, lists of slices; and NumPy's functions."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import DTypeError


def test_arrays_as_operands():
    x, y = ng.tensor([1.0, 2.0], requires_grad=True), np.array([3.0, 4.0])
    for found in (x * y, y * x):
        assert found.dtype is ng.float64 and found.tolist() == [3.0, 8.0]
    assert (x + y.astype(np.float32)).dtype is ng.float32 and (x > y).tolist() == [False, False]
    (y - x).sum().backward()
    assert x.grad.tolist() == [-1.0, -1.0]


def test_functions_of_numpy_give_tensors():
    x = ng.tensor([0.0, 1.0])
    assert isinstance(np.exp(x), ng.Tensor) and np.exp(x).tolist() == pytest.approx([1, np.e])
    assert np.isnan(x).dtype is ng.bool and np.add(x, np.ones(2)).dtype is ng.float64
    with pytest.raises(RuntimeError, match="requires grad"):
        np.exp(x.requires_grad_())


def test_two_numbers():
    assert ng.add(1, 2).item() == 3 and ng.add(1, 2).dtype is ng.int64
    assert ng.div(7, 2).item() == 3.5 and ng.div(7, 2, rounding_mode="trunc").item() == 3
    assert ng.mul(2.0, 3).dtype is ng.float32
    assert ng.add(1, 2, alpha=3).item() == 7 and ng.sub(5, 1, 2).item() == 3
    with pytest.raises(TypeError, match=r"sqrt\(\): at least one argument must be a Tensor"):
        ng.sqrt(4.0)


def test_a_list_of_slices_is_a_tuple():
    x = ng.arange(12).view(3, 4)
    assert x[[slice(None), slice(0, 1)]].tolist() == [[0], [4], [8]]
    assert x[[None, slice(0, 1)]].shape == (1, 1, 4) and x[[0, 2]].shape == (2, 4)
    x[[slice(0, 1), ...]] = 0
    assert x[0].tolist() == [0, 0, 0, 0] and x[1, 0].item() == 4


def test_reversed():
    assert reversed(ng.arange(3)).tolist() == [2, 1, 0] and reversed(ng.tensor(2)).item() == 2


def test_an_empty_index_has_any_rank():
    x, index = ng.ones(6, requires_grad=True), ng.zeros(0, 1, 1, dtype=ng.long)
    out = x.gather(0, index)
    assert out.shape == (0, 1, 1)
    out.sum().backward()
    assert x.grad.tolist() == [0.0] * 6
    for function in (ng.scatter, ng.scatter_add):
        assert function(x, 0, index, ng.zeros(0, 1, 1)).tolist() == [1.0] * 6


def test_a_condition_of_bytes():
    condition = ng.tensor([1, 0], dtype=ng.uint8)
    with pytest.warns(UserWarning, match="where: a condition of uint8 is deprecated"):
        assert ng.where(condition, 1.0, 2.0).tolist() == [1.0, 2.0]


def test_sizes_that_are_none_name_the_op():
    with pytest.raises(TypeError, match="split: expected an int or a list of ints, got 'a'"):
        ng.ones(4).split(split_size="a")
    for n in (0, 10**6, "2"):
        with pytest.raises(ValueError, match="set_num_threads: expected an int from 1 to"):
            ng.set_num_threads(n)


@pytest.mark.parametrize(
    "name", "neg diag flipud nan_to_num exp_ xlogy_ clamp_ relu_ square_".split()
)
@pytest.mark.parametrize("given", [np.ones(3, np.float32), [1.0, 2.0]], ids=["ndarray", "list"])
def test_a_function_that_does_not_look_says_what_it_takes(name, given):
    before = np.copy(given)
    more = {"xlogy_": (1.0,), "clamp_": (0.0, 1.0)}.get(name, ())
    kind = type(given).__name__
    with pytest.raises(TypeError, match=rf"^{name}\(\): argument 1 must be Tensor, not {kind}\."):
        getattr(ng.nn.functional if name == "relu_" else ng, name)(given, *more)
    assert np.array_equal(given, before)


def test_what_another_object_lacks_is_its_own():
    class Mine(ng.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone().exp_() * object().shape

    with pytest.raises(AttributeError, match="'object' object has no attribute 'shape'"):
        Mine.apply(ng.ones(3))
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'nothing'"):
        ng.ones(3).nothing()


@pytest.mark.parametrize("operator", ["and", "or", "xor"])
def test_bits_beside_numbers_that_come_first(operator):
    f = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}[operator]
    mask, ints = ng.tensor([True, False]), ng.tensor([1, 6])
    for first, second in ((True, mask), (False, mask), (np.bool_(True), mask), (3, ints)):
        assert ng.equal(f(first, second), f(second, first))
    with pytest.raises(DTypeError, match=f"bitwise_{operator}"):
        f(1, ng.tensor([1.0]))
