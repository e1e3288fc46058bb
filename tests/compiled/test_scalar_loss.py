"""A compiled loss, of no dimensions, is differentiated from outside."""

from __future__ import annotations

import numbagrad as ng


@ng.compile
def loss(x):
    return (x * x).sum()


def test_backward_from_a_compiled_loss():
    x = ng.randn(5, dtype=ng.double, requires_grad=True)
    loss(x).backward()
    assert ng.allclose(x.grad, 2.0 * x.detach())
    assert ng.autograd.gradcheck(loss, (x,))


def test_a_gradient_of_any_layout_is_taken():
    @ng.compile
    def double(x):
        return x * 2.0

    x = ng.randn(3, 2, requires_grad=True)
    g = ng.randn(2, 3).t()
    double(x).backward(g)
    assert ng.equal(x.grad, g * 2.0)
