"""What PyTorch does where another answer is as plausible: lists as keys, views of leaves, limits.

The numbers are PyTorch 2.13's.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import distributions as D
from numbagrad.errors import DimError, GradError, ShapeError

T = ng.tensor


def cube():
    return ng.arange(12).reshape(2, 2, 3)


LISTS = {
    "lists": (lambda: [[0, 1], [1, 0]], (2, 3), [3, 4, 5, 6, 7, 8]),
    "one list": (lambda: [[0, 1]], (2, 2, 3), list(range(12))),
    "three lists": (lambda: [[0], [1], [2]], (1,), [5]),
    "ints": (lambda: [0, 1], (2, 2, 3), list(range(12))),
    "slices": (lambda: [slice(0, 1), slice(1, 2)], (1, 1, 3), [3, 4, 5]),
    "tensors": (lambda: [T([0, 1]), T([1, 0])], (2, 3), [3, 4, 5, 6, 7, 8]),
    "tensors without dims": (lambda: [T(1), T(0)], (3,), [6, 7, 8]),
    "an int and a tensor": (lambda: [0, T(1)], (3,), [3, 4, 5]),
    "a list and an int": (lambda: [[0, 1], 1], (2, 3), [3, 4, 5, 9, 10, 11]),
    "masks": (lambda: [[True, False], [False, True]], (1, 3), [3, 4, 5]),
    "arrays": (lambda: [np.array([0, 1]), np.array([1, 1])], (2, 3), [3, 4, 5, 9, 10, 11]),
    "tuples": (lambda: [(0, 1), (1, 0)], (2, 3), [3, 4, 5, 6, 7, 8]),
    "a range": (lambda: [range(2), [0, 1]], (2, 3), [0, 1, 2, 9, 10, 11]),
    "deeper": (lambda: [[[0, 1]]], (1, 2, 2, 3), list(range(12))),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_list_of_sequences_is_a_tuple(name, compiled):
    key, shape, values = LISTS[name]
    read = ng.compile(lambda x: x[key()]) if compiled else lambda x: x[key()]
    found = read(cube())
    assert found.shape == shape and found.flatten().tolist() == values


def test_a_long_list_is_not():
    rows = [[k % 2] for k in range(32)]
    assert cube()[rows].shape == (32, 1, 2, 3)


def test_written_by_such_lists():
    x = cube()
    x[[[0, 1], [1, 0]]] = -1
    assert x.flatten().tolist() == [0, 1, 2, -1, -1, -1, -1, -1, -1, 9, 10, 11]
    y = ng.zeros(2, 3)
    y[[T(1), T(2)]] = 5.0
    assert y.tolist() == [[0, 0, 0], [0, 0, 5]]


WRITES = {
    "row": lambda a: a[0].mul_(2),
    "augmented": lambda a: a.__setitem__(0, a[0].__imul__(2)),
    "view": lambda a: a.view(6).add_(1),
    "transposed": lambda a: a.t().__setitem__(0, 3.0),
    "item": lambda a: a.__setitem__(0, 3.0),
    "itself": lambda a: a.mul_(2),
    "zeros": lambda a: a.view(-1).zero_(),
    "square": lambda a: a[..., 0].square_(),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_leaf_that_is_a_view_is_not_changed_in_place(name):
    a = ng.arange(6.0).reshape(2, 3).requires_grad_()
    with pytest.raises(GradError, match="leaf Variable that requires grad"):
        WRITES[name](a)
    assert a.is_leaf and a.tolist() == [[0, 1, 2], [3, 4, 5]]
    (a * a).sum().backward()
    assert a.grad.tolist() == [[0, 2, 4], [6, 8, 10]]


def test_a_leaf_that_is_a_view_is_changed_without_gradients():
    a = ng.nn.Parameter(ng.arange(6.0).reshape(2, 3))
    with ng.no_grad():
        a[0] *= 2
    a.data[1] += 1
    a.detach()[0, 0] = 7.0
    (a * a).sum().backward()
    assert a.grad.tolist() == [[14, 4, 8], [8, 10, 12]]


def test_what_is_made_of_such_a_leaf_is_changed():
    a = ng.ones(2, 3)[0].requires_grad_()
    c = a * 2
    c[0] = 5
    c[1:].mul_(3)
    c.sum().backward()
    assert a.grad.tolist() == [0, 6, 6]


def test_a_part_of_a_plain_tensor_takes_a_history():
    w = ng.ones(3, requires_grad=True)
    base = ng.zeros(2, 3)
    part = base[0]
    part.add_(w)
    part[:2].mul_(2)
    base.sum().backward()
    assert w.grad.tolist() == [2, 2, 1]


@pytest.mark.parametrize("shape", [(0, 2), (0, 2, 3), (0, 2, 3, 3)])
@pytest.mark.parametrize("compiled", [False, True])
def test_averages_of_no_batch(shape, compiled):
    kind = ng.nn.BatchNorm2d if len(shape) == 4 else ng.nn.BatchNorm1d
    norm = kind(2, momentum=None)
    call = ng.compile(norm) if compiled else norm
    assert call(ng.zeros(*shape)).shape == shape
    assert norm.running_mean.tolist() == [0, 0] and norm.running_var.tolist() == [1, 1]
    assert norm.num_batches_tracked.item() == 1


def test_a_cdf_needs_a_function_that_rises_or_falls():
    folded = D.TransformedDistribution(D.Normal(0.0, 1.0), [D.AbsTransform()])
    for function in (folded.cdf, folded.icdf):
        with pytest.raises(NotImplementedError, match="AbsTransform has no sign"):
            function(T([0.5]))
    falls = D.TransformedDistribution(D.Normal(0.0, 1.0), [D.AffineTransform(0.0, -2.0)])
    assert falls.cdf(T(0.0)).item() == 0.5
    for rises in (D.ExpTransform(), D.SigmoidTransform(), D.TanhTransform(), D.SoftplusTransform()):
        middle = rises(T(0.0))
        assert D.TransformedDistribution(D.Normal(0.0, 1.0), [rises]).cdf(middle).item() == 0.5


def test_signs_of_numbers_that_do_not_fit():
    most = T(2**31 - 1, dtype=ng.int32)
    assert ng.copysign(T([127], dtype=ng.int8), most).tolist() == [127.0]
    assert ng.copysign(T([5.0]), T(-(2**40))).tolist() == [-5.0]


@pytest.mark.parametrize("dtype", [ng.float16, ng.bfloat16])
def test_decimals_of_halves(dtype):
    x = T([60000.0, 1000.0, 3.14159, -2.5], dtype=dtype)
    assert ng.isfinite(x.round(decimals=2)).all()
    expected = (x.float().round(decimals=2)).to(dtype)
    assert x.round(decimals=2).tolist() == expected.tolist()


def test_logaddexp2_keeps_digits():
    inf = math.inf
    x = T([1.0, 3.0, inf, -inf, inf, -inf, -1e30], requires_grad=True)
    y = T([500.0, 3.0, inf, -inf, -inf, 2.0, 5.0], requires_grad=True)
    found = ng.logaddexp2(x, y)
    assert found.tolist() == [500.0, 4.0, inf, -inf, inf, 2.0, 5.0]
    gx, gy = ng.autograd.grad(found[:2].sum(), (x, y))
    assert gx.tolist()[:2] == [0, 0.5] and gy.tolist()[:2] == [1, 0.5]
    half = T([3.0, -1.0], dtype=ng.bfloat16)
    assert ng.logaddexp2(half, half)[0].item() == 4.0
    assert abs(ng.logaddexp2(half, half)[1].item()) < 1e-7


def test_logaddexp2_is_differentiable_twice():
    x = T([0.3, -2.0, 1.5], dtype=ng.float64, requires_grad=True)
    y = T([0.1, 2.0, 1.4], dtype=ng.float64, requires_grad=True)
    assert ng.autograd.gradcheck(ng.logaddexp2, (x, y))
    assert ng.autograd.gradgradcheck(ng.logaddexp2, (x, y))


A = [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]
B = [1.0, 2.0, 4.0]


@pytest.mark.parametrize("driver", [None, "gelsd", "gels", "gelss"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_least_squares_of_vectors(driver, batch):
    x, y = (
        ng.tensor(v, dtype=ng.float64).expand(*batch, *shape)
        for v, shape in ((A, (3, 2)), (B, (3,)))
    )
    found = ng.linalg.lstsq(x, y, driver=driver)
    assert found.solution.shape == (*batch, 2)
    assert np.allclose(found.solution.tolist(), np.linalg.lstsq(A, B, rcond=None)[0])
    assert found.residuals.shape in ((*batch, 1), (0,))


def test_a_vector_of_another_length_is_named():
    with pytest.raises(ShapeError, match=r"got A \[3, 2\] and B \[2\]"):
        ng.linalg.lstsq(T(A), T([1.0, 2.0]))


def test_least_squares_of_vectors_have_gradients():
    x = ng.tensor(A, dtype=ng.float64, requires_grad=True)
    y = ng.tensor(B, dtype=ng.float64, requires_grad=True)
    assert ng.autograd.gradcheck(lambda a, b: ng.linalg.lstsq(a, b).solution, (x, y))


def test_limits_of_a_pseudo_inverse():
    x = ng.tensor(A, dtype=ng.float64)
    least = np.linalg.svd(A)[1][1]
    one = np.linalg.pinv(A, rcond=0.5)
    assert np.allclose(ng.linalg.pinv(x, atol=least / 2).numpy(), np.linalg.pinv(A))
    assert np.allclose(ng.linalg.pinv(x, atol=least * 2).numpy(), one)
    assert np.allclose(ng.linalg.pinv(x, atol=least / 2, rtol=0.5).numpy(), one)
    both = ng.stack([x, x / 100])
    found = ng.linalg.pinv(both, atol=least * 2)
    assert np.allclose(found[0].numpy(), one)
    small = np.linalg.svd(np.array(A) / 100)
    kept = small[1] > least * 2
    assert np.allclose(
        found[1].numpy(), (small[2].T[:, kept] / small[1][kept]) @ small[0].T[: kept.sum()]
    )
    x.requires_grad_()
    assert ng.autograd.gradcheck(lambda a: ng.linalg.pinv(a, atol=least / 2), (x,))
    equal = ng.eye(3, dtype=ng.float64).requires_grad_()  # whose singular values are equal
    ng.linalg.pinv(equal, atol=1e-3).sum().backward()
    assert np.allclose(equal.grad.numpy(), -1)
    with pytest.raises(TypeError, match="atol must be a number, got Tensor"):
        ng.linalg.pinv(x, atol=T([0.1]))


def test_norms_of_another_dtype():
    x = T(A)
    for norm in (ng.linalg.norm, ng.linalg.matrix_norm, ng.linalg.vector_norm):
        assert norm(x, dtype=ng.float64).dtype is ng.float64
    nuclear = ng.linalg.matrix_norm(x, "nuc", dtype=ng.float64)
    assert math.isclose(nuclear.item(), np.linalg.norm(A, "nuc"), rel_tol=1e-12)
    with pytest.raises(DimError, match="must be 1D or 2D"):
        ng.linalg.norm(ng.zeros(2, 3, 4), 2)


def test_largest_distances():
    x = T([[0.0, 0.0, 5.0]], requires_grad=True)
    y = T([[1.0, -1.0, 5.0]], requires_grad=True)
    found = ng.cdist(x, y, p=math.inf)
    found.sum().backward()
    assert found.tolist() == [[1.0]]
    assert x.grad.tolist() == [[-1, 1, 0]] and y.grad.tolist() == [[1, -1, 0]]
    assert ng.cdist(ng.zeros(2, 0), ng.zeros(3, 0), p=math.inf).tolist() == [[0, 0, 0]] * 2
    z = ng.randn(3, 4, dtype=ng.float64, requires_grad=True)
    w = ng.randn(2, 4, dtype=ng.float64, requires_grad=True)
    assert ng.autograd.gradcheck(lambda a, b: ng.cdist(a, b, p=math.inf), (z, w))
    expected = (z.unsqueeze(1) - w).abs().amax(-1)
    assert ng.equal(ng.cdist(z, w, p=math.inf), expected)
    far = ng.cdist(T([[2.0, math.inf], [1.0, math.nan]]), T([[0.0, 1.0]]), p=math.inf)
    assert far[0].tolist() == [math.inf] and far[1].isnan().all()
