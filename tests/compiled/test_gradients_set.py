"""Gradients that a compiled function sets to views of what it has made."""

from __future__ import annotations

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError


def test_gradients_are_parts_of_one_vector():
    """As methods that combine the gradients of several tasks set them."""

    def step(net, x):
        parameters = list(net.parameters())
        tasks = [ng.autograd.grad(net(x)[:, k].sin().sum(), parameters) for k in range(2)]
        flat = [ng.cat([g.reshape(-1) for g in grads]) for grads in tasks]
        both = flat[0] + flat[1] - flat[0].dot(flat[1]).clamp(max=0) * flat[1]
        begin = 0
        for p in parameters:
            p.grad = both[begin : begin + p.numel()].view_as(p)
            begin += p.numel()
        return both.norm()

    nets = [nn.Linear(3, 2).double() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    compiled = ng.compile(step)
    for _ in range(3):
        x = ng.randn(4, 3, dtype=ng.float64)
        assert ng.allclose(step(nets[0], x), compiled(nets[1], x))
        for p, q in zip(*[net.parameters() for net in nets], strict=True):
            assert ng.allclose(p.grad, q.grad)
            p.grad.mul_(2)
            q.grad.mul_(2)
    assert compiled.cache_info().recordings <= 2


def to_a_part_of_a_result(p, x):
    flat = x * 2
    p.grad = flat[:2]
    return flat


def to_a_part_of_an_argument(p, x):
    p.grad = x[:2]
    return x.sum()


def to_parts_that_meet(p, x):
    flat = x * 2
    p.grad, SECOND.grad = flat[:2], flat[1:3]


SECOND = nn.Parameter(ng.ones(2))


@pytest.mark.parametrize(
    "function", [to_a_part_of_a_result, to_a_part_of_an_argument, to_parts_that_meet]
)
def test_parts_that_others_share_are_refused(function):
    p, x = nn.Parameter(ng.ones(2)), ng.ones(4)
    with pytest.raises(RecordingError, match=r"is a view of it: set that to a clone\(\)"):
        ng.compile(lambda x: function(p, x))(x)
    assert p.grad is None and SECOND.grad is None
