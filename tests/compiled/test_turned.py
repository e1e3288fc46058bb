"""What is turned on and off inside of a compiled function: ``requires_grad``, modes of modules."""

from __future__ import annotations

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.nn import functional as F

from .following import recordings_of


def requires_grad(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


def adversaries(compiled):
    """Two steps that freeze each other's network."""
    maker, judge = nn.Linear(2, 3), nn.Linear(3, 1)
    steps = [ng.optim.SGD(net.parameters(), lr=0.1) for net in (maker, judge)]

    @compiled
    def judged(z, real):
        requires_grad(maker, False)
        requires_grad(judge, True)
        loss = (F.softplus(judge(maker(z))) + F.softplus(-judge(real))).mean()
        steps[1].zero_grad()
        loss.backward()
        steps[1].step()
        return loss

    @compiled
    def made(z):
        requires_grad(maker, True)
        requires_grad(judge, False)
        loss = F.softplus(-judge(maker(z))).mean()
        steps[0].zero_grad()
        loss.backward()
        steps[0].step()
        return loss

    def call(k):
        z = ng.full((4, 2), 0.3 + k)
        flags = [maker.weight.requires_grad, judge.weight.requires_grad]
        return [judged(z, z[:, [0, 1, 1]]), *flags, judge.bias.grad.clone(), made(z)]

    return call


def unmet(compiled):
    """A network that is frozen, and otherwise not looked at."""
    net, other = nn.Linear(2, 2), nn.Linear(2, 2)

    @compiled
    def frozen(x):
        requires_grad(other, False)
        return net(x).sum()

    def call(k):
        requires_grad(other, k != 1)
        return [frozen(ng.ones(1, 2)), other.weight.requires_grad]

    return call


def argument(compiled):
    """An input whose gradient is wanted, as for adversarial examples."""

    @compiled
    def attacked(x):
        x.requires_grad = True
        x.pow(3).sum().backward()
        return x.detach() + 0.1 * x.grad.sign()

    def call(k):
        x = ng.full((3,), k - 1.0)
        found = [attacked(x), x.requires_grad, x.grad]
        x.grad = None
        return [*found, attacked(x), x.grad]

    return call


def for_a_while(compiled):
    @compiled
    def gradient(x):
        x.requires_grad_()
        x.exp().sum().backward()
        x.requires_grad_(False)

    def call(k):
        x = ng.full((3,), float(k))
        gradient(x)
        return [x.requires_grad, x.grad]

    return call


def results(compiled):
    """Graphs that lead to what has been turned on, and to what is turned off afterwards."""
    weight = ng.ones(3)

    @compiled
    def scaled(x):
        weight.requires_grad_()
        return (x * weight * weight).sum()

    @compiled
    def left(x):
        y = x * weight
        x.requires_grad_(False)
        return y

    def call(k):
        scaled(ng.full((3,), k + 1.0)).backward()
        x = ng.ones(3, requires_grad=True)
        found = [weight.grad.clone(), weight.requires_grad, left(x), x.requires_grad]
        weight.requires_grad_(k == 1)
        return found

    return call


def modes(compiled):
    """A step and a test that see to the mode themselves."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))

    @compiled
    def trained(x):
        net.train()
        return net(x)

    @compiled
    def tested(x):
        net.eval()
        return net(x)

    def call(k):
        x = ng.ones(5, 3) * k
        return [trained(x), net[2].training, net.training, trained(x), tested(x), net[1].training]

    return call


def toggle(compiled):
    class Alternating(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = True

        def forward(self, x):
            self.first = not self.first
            return -x if self.first else x

    net = Alternating()
    run = compiled(net.forward)
    return lambda k: [run(ng.ones(2)), net.first]


RECORDINGS = {
    adversaries: [2, 1],
    unmet: [2],
    argument: [2],
    for_a_while: [1],
    results: [2, 1],
    modes: [2, 1],
    toggle: [2],
}
"""Each state that the functions meet is recorded once."""


@pytest.mark.parametrize("make", RECORDINGS)
def test_each_call_sets_it(make):
    assert recordings_of(make, 4) == RECORDINGS[make]
