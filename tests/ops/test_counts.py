"""``ng.poisson`` and ``ng.binomial``: arguments, errors, gradients; kernels have their tests."""

from __future__ import annotations

import math

import pytest

import numbagrad as ng
from numbagrad.errors import DTypeError, GradError


def test_poisson_counts():
    rates = ng.tensor([[0.0, 4.0], [30.0, 1e6]], dtype=ng.float64)
    x = ng.poisson(rates, generator=ng.Generator().manual_seed(3))
    assert x.dtype is ng.float64 and x.shape == (2, 2) and x[0, 0] == 0
    assert (x == x.round()).all() and 9e5 < x[1, 1] < 1.1e6
    assert ng.equal(x, ng.poisson(rates, ng.Generator().manual_seed(3)))


def test_gradient_of_poisson_is_zero():
    rates = ng.ones(3, requires_grad=True)
    ng.poisson(rates).sum().backward()
    assert rates.grad.tolist() == [0, 0, 0]


def test_binomial_broadcasts():
    x = ng.binomial(ng.tensor([[10.0], [0.0]]), ng.tensor([0.0, 0.5, 1.0]))
    assert x.shape == (2, 3) and x[:, 0].tolist() == [0, 0] and x[:, 2].tolist() == [10, 0]
    bad = ng.binomial(ng.tensor([-1.0, 3.0]), ng.tensor([0.5, 1.5]))
    assert all(math.isnan(v) for v in bad.tolist())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ng.poisson(ng.tensor([1])), DTypeError, "poisson: not implemented for ng.int64"),
        (lambda: ng.poisson(2.0), TypeError, "must be Tensor"),
        (lambda: ng.poisson(ng.tensor([-1.0])), RuntimeError, "non-negative"),
        (lambda: ng.poisson(ng.tensor([math.nan])), RuntimeError, "non-negative"),
        (lambda: ng.poisson(ng.ones(1), generator=3), TypeError, "expected a Generator"),
        (lambda: ng.binomial(ng.tensor([1]), ng.ones(1)), ValueError, "floating-point dtypes"),
        (lambda: ng.binomial(ng.ones(1), ng.tensor([1])), ValueError, "floating-point dtypes"),
        (lambda: ng.binomial(ng.ones(1), ng.ones(1).double()), RuntimeError, "Found dtype"),
        (lambda: ng.binomial(ng.ones(2), ng.ones(3)), RuntimeError, "must match"),
        (lambda: ng.binomial(3.0, ng.ones(3)), TypeError, "must be Tensor"),
    ],
)
def test_what_is_refused_draws_nothing(call, error, words):
    before = ng.get_rng_state()
    with pytest.raises(error, match=words):
        call()
    assert ng.equal(ng.get_rng_state(), before)


def test_binomial_has_no_gradient():
    p = ng.full((3,), 0.5, requires_grad=True)
    with pytest.raises(GradError, match="binomial: the derivative"):
        ng.binomial(ng.full((3,), 10.0), p).sum().backward()
