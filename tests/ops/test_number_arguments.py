"""Numbers among the arguments: NumPy's as Python's, and those that a dtype does not hold."""

import numpy as np
import pytest

import numbagrad as ng

F = ng.nn.functional

OF_NUMPY = {
    "scatter": lambda f, i: ng.ones(2).scatter(0, ng.tensor([0]), f(0.5)),
    "index_fill": lambda f, i: ng.ones(2).index_fill(0, ng.tensor([0]), f(0.5)),
    "masked_fill": lambda f, i: ng.ones(2, dtype=ng.int32).masked_fill(ng.eye(2)[0] > 0, i(3)),
    "x[0] = y": lambda f, i: setting(ng.ones(2), f(0.5)),
    "x[0] = k": lambda f, i: setting(ng.ones(2, dtype=ng.int8), i(-3)),
    "pad": lambda f, i: F.pad(ng.ones(2), (i(1), i(1)), value=f(0.5)),
    "isin": lambda f, i: ng.isin(ng.tensor([1.0, 2.5]), f(2.5)),
    "searchsorted": lambda f, i: ng.searchsorted(ng.tensor([1.0, 5.0]), f(2.5)),
    "quantile": lambda f, i: ng.quantile(ng.tensor([1.0, 2.0, 4.0]), f(0.75)),
    "copy_": lambda f, i: ng.ones(2).copy_(f(3.0)),
    "fill_": lambda f, i: ng.ones(2).fill_(f(3.0)),
    "full": lambda f, i: ng.full((2,), f(2.5)),
    "full of ints": lambda f, i: ng.full((i(2),), i(2)),
    "result_type": lambda f, i: ng.zeros(1, dtype=ng.result_type(ng.tensor([1]), f(1.5))),
    "clamp": lambda f, i: ng.ones(2).clamp(f(-0.5), f(0.5)),
    "sum": lambda f, i: ng.ones(2, 3).sum(i(0)),
    "norm": lambda f, i: F.normalize(ng.ones(2, 3), f(2.0), i(1)),
    "conv1d": lambda f, i: F.conv1d(ng.ones(1, 1, 4), ng.ones(1, 1, 2), stride=i(2)),
    "max_pool1d": lambda f, i: F.max_pool1d(ng.ones(1, 1, 4), i(2)),
}


def setting(x, value):
    x[0] = value
    return x


@pytest.mark.parametrize("name", OF_NUMPY)
def test_numbers_of_numpy_are_taken_as_pythons(name):
    expected = OF_NUMPY[name](float, int)
    for f, i in ((np.float32, np.int64), (np.float64, np.int8)):
        found = OF_NUMPY[name](f, i)
        assert found.dtype is expected.dtype and ng.equal(found, expected)


BEYOND = {
    "full": lambda n, kind: ng.full((2,), n, dtype=kind),
    "full_like": lambda n, kind: ng.full_like(ng.zeros(2, dtype=kind), n),
    "new_full": lambda n, kind: ng.zeros(2, dtype=kind).new_full((2,), n),
    "tensor": lambda n, kind: ng.tensor([n, 0], dtype=kind),
    "fill_": lambda n, kind: kept(kind, lambda x: x.fill_(n)),
    "masked_fill": lambda n, kind: ng.zeros(2, dtype=kind).masked_fill(ng.eye(2)[0] > 0, n),
    "scatter": lambda n, kind: ng.zeros(2, dtype=kind).scatter(0, ng.tensor([0]), n),
    "index_fill": lambda n, kind: ng.zeros(2, dtype=kind).index_fill(0, ng.tensor([0]), n),
    "x[0] = n": lambda n, kind: kept(kind, lambda x: x.__setitem__(0, n)),
    "x[index] = n": lambda n, kind: kept(kind, lambda x: x.__setitem__(ng.tensor([0]), n)),
    "x[mask] = n": lambda n, kind: kept(kind, lambda x: x.__setitem__(x == 0, n)),
    "pad": lambda n, kind: F.pad(ng.zeros(2, dtype=kind), (1, 1), value=n),
    "fill_diagonal_": lambda n, kind: ng.zeros(2, 2, dtype=kind).fill_diagonal_(n),
}


def kept(kind, change):
    x = ng.zeros(2, dtype=kind)
    try:
        change(x)
    except RuntimeError:
        assert x.tolist() == [0, 0] and x._version == 0
        raise
    return x


@pytest.mark.parametrize("name", BEYOND)
def test_a_number_that_the_dtype_does_not_hold_is_refused(name):
    for number, kind in ((300, ng.uint8), (128, ng.int8), (-129, ng.int8), (2**40, ng.int32)):
        with pytest.raises(RuntimeError, match=r"cannot be converted to ng\.\w+ without overflow"):
            BEYOND[name](number, kind)
    for number, kind in ((255, ng.uint8), (-128, ng.int8), (2**31 - 1, ng.int32)):
        assert number in BEYOND[name](number, kind).flatten().tolist()
    # what is below 0 begins again from above, as in PyTorch
    assert 255 in BEYOND[name](-1, ng.uint8).flatten().tolist()
    for number in (float("nan"), float("inf")):
        with pytest.raises(RuntimeError, match="cannot be converted"):
            BEYOND[name](number, ng.int32)


def test_numbers_of_calls_are_looked_at_where_a_dtype_may_not_hold_them():
    compiled = ng.compile(lambda n: ng.full((2,), n, dtype=ng.uint8))
    assert [compiled(n).tolist()[0] for n in (3.0, 4.0, 5.0)] == [3, 4, 5]
    with pytest.raises(RuntimeError, match="without overflow"):
        compiled(300.0)
    assert ng.zeros(1, dtype=ng.float64).copy_(0.1).item() == 0.1


def test_halves_and_fills():
    for make in (BEYOND["full"], BEYOND["fill_"], BEYOND["masked_fill"], BEYOND["scatter"]):
        with pytest.raises(RuntimeError, match=r"converted to ng\.float16"):
            make(1e6, ng.float16)
        assert make(float("inf"), ng.float16).flatten()[0].item() == float("inf")


def test_least_common_multiples_of_mixed_dtypes():
    x, y = ng.tensor([120], dtype=ng.uint8), ng.tensor([-128], dtype=ng.int8)
    assert ng.lcm(x, y).tolist() == [1920] and ng.lcm(y, x).tolist() == [1920]


def test_hinge_of_an_infinite_distance():
    x = ng.tensor([float("inf"), 2.0], requires_grad=True)
    loss = F.hinge_embedding_loss(x, ng.tensor([-1, 1]), reduction="none")
    assert loss.tolist() == [0.0, 2.0]
    loss.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]
