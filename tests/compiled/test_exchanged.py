"""Numbers and tensors that others set between calls: read at each call once they have changed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.nn import functional as F

from .following import recordings_of


class Tempered(nn.Module):
    def __init__(self):
        super().__init__()
        self.tau, self.drop = 2.0, nn.Dropout(0.0)

    def forward(self, x):
        return self.drop(x) / self.tau


def attribute(compiled):
    model = Tempered()
    run = compiled(lambda x: model(x).exp())

    def call(k):
        model.tau = max(0.5, 2.0 * 0.7**k)
        return run(ng.ones(3))

    return call


def settings(compiled):
    config = {"beta": 0.0, "name": "kl"}
    run = compiled(lambda x: (x * x).sum() * config["beta"] + x.sum())

    def call(k):
        config["beta"] = k / 4
        return run(ng.ones(3))

    return call


def batch(compiled):
    """What is set as an attribute before each step, as a trainer's method does."""

    class Trainer:
        def __init__(self):
            self.net = nn.Linear(3, 2)
            self.optimizer = ng.optim.SGD(self.net.parameters(), lr=0.1)

        def step(self):
            self.loss = F.cross_entropy(self.net(self.x), self.y)
            self.optimizer.zero_grad()
            self.loss.backward()
            self.optimizer.step()

    trainer = Trainer()
    step = compiled(trainer.step)

    def call(k):
        trainer.x, trainer.y = ng.ones(4, 3) * k, ng.tensor([k % 2] * 4)
        step()
        return [trainer.loss, trainer.net.weight]

    return call


def epoch(compiled):
    """A count of others that decides what is run."""
    trainer = SimpleNamespace(epoch=0)
    held = [trainer]

    def weighed(x):
        now = held[0].epoch
        return x * now if now % 2 == 0 else x + now

    run = compiled(weighed)

    def call(k):
        trainer.epoch = k
        return run(ng.ones(2))

    return call


def value(compiled):
    """Python that takes no number to come: each value is recorded."""
    model = Tempered()
    run = compiled(lambda x: x * len(float.hex(model.tau)))

    def call(k):
        model.tau = 2.0 + k / 8
        return run(ng.ones(2))

    return call


RECORDINGS = {attribute: 2, settings: 2, batch: 2, epoch: 3, value: 6}


@pytest.mark.parametrize("make", RECORDINGS)
def test_it_is_read_at_each_call(make):
    assert recordings_of(make, 6) == [RECORDINGS[make]]


def test_another_signature_reads_it_from_the_first_call_on():
    model = Tempered()
    run = ng.compile(lambda x: model(x))
    for k, x in enumerate((ng.ones(2), ng.ones(2), ng.ones(2, dtype=ng.float64), ng.ones(2))):
        for tau in (k + 1.0, k + 5.0) if k else (2.0,):
            model.tau = tau
            assert run(x).tolist() == pytest.approx([1 / tau] * 2)
    assert run.cache_info().recordings == 3


def test_other_compiled_functions_notice_too():
    """One that has taken the number for what it is, and is not called meanwhile."""
    model = Tempered()
    first, second = ng.compile(lambda x: model(x)), ng.compile(lambda x: model(x) + 1.0)
    assert [first(ng.ones(1)).item(), second(ng.ones(1)).item()] == [0.5, 1.5]
    for tau in (4.0, 8.0, 2.0):
        model.tau = tau
        assert first(ng.ones(1)).item() == 1 / tau
    assert second(ng.ones(1)).item() == 1.5
    model.tau = 1.0
    assert second(ng.ones(1)).item() == 2.0


def test_an_error_is_told_once():
    model = Tempered()
    run = ng.compile(lambda x: model(x) @ ng.ones(3))
    run(ng.ones(3))
    model.tau = 4.0
    with pytest.raises(RuntimeError, match="matmul") as caught:
        run(ng.ones(4))
    assert caught.value.__context__ is None
    assert run(ng.ones(3)).item() == 0.75
