"""Gradients that a compiled function sets to views of what it has made."""

from __future__ import annotations

import numbagrad as ng
from numbagrad import nn


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
