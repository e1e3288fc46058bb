"""The generator, and the distributions and gradients of the public random functions."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import numbagrad as ng


def test_seed_decides_everything():
    ng.manual_seed(5)
    first = [ng.rand(3), ng.randn(7), ng.randint(0, 100, (4,)), ng.randperm(9), ng.rand(2)]
    ng.manual_seed(5)
    again = [ng.rand(3), ng.randn(7), ng.randint(0, 100, (4,)), ng.randperm(9), ng.rand(2)]
    assert all(a.tolist() == b.tolist() for a, b in zip(first, again, strict=True))
    assert first[0].tolist() != ng.rand(3).tolist()


def test_generators_are_apart_and_can_go_back():
    a, b = ng.Generator(1), ng.Generator().manual_seed(1)
    assert ng.rand(3, generator=a).tolist() == ng.rand(3, generator=b).tolist()
    state = a.get_state()
    drawn = ng.randn(5, generator=a)
    a.set_state(state)
    assert ng.randn(5, generator=a).tolist() == drawn.tolist()
    for twin in (pickle.loads(pickle.dumps(b)), copy.deepcopy(b)):
        assert twin.get_state().tolist() == b.get_state().tolist()
    assert a.initial_seed() == 1 and a.seed() == a.initial_seed()
    assert ng.Generator(-1).initial_seed() == 2**64 - 1
    with pytest.raises(RuntimeError, match="wrong size"):
        a.set_state(ng.zeros(3, dtype=ng.uint8))
    with pytest.raises(RuntimeError, match="Overflow"):
        a.manual_seed(2**64)
    with pytest.raises(TypeError, match="Generator"):
        ng.rand(3, generator=7)


def test_threads_never_share_counters():
    generator = ng.Generator(0)
    drawn = []

    def draw():
        for _ in range(200):
            drawn.append(ng.randint(0, 2**62, (3,), generator=generator).tolist())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = np.array(drawn).ravel()
    assert len(set(numbers.tolist())) == len(numbers) == 2400


def test_dropout_keeps_its_mask_for_every_gradient():
    x = ng.ones(50, dtype=ng.double, requires_grad=True)
    state = ng.get_rng_state()

    def drop(x):
        ng.set_rng_state(state)
        return ng.dropout(x, 0.3) ** 2

    assert ng.autograd.gradcheck(drop, (x,)) and ng.autograd.gradgradcheck(drop, (x,))
    y = ng.dropout(x, 0.3)
    y.sum().backward()
    assert np.array_equal(x.grad.numpy(), y.detach().numpy())
    assert set(y.tolist()) <= {0.0, 1 / 0.7}


def test_dropout_leaves_alone_when_told():
    x = ng.ones(3, requires_grad=True)
    assert ng.dropout(x, 0.5, training=False) is x and ng.dropout(x, 0.0) is x
    assert ng.dropout(x, 1.0).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="between 0 and 1"):
        ng.dropout(x, 1.5)
    y = ng.ones(1000)
    assert ng.dropout(y, 0.5, inplace=True) is y and 300 < (y == 0).sum().item() < 700


def test_moments():
    x = ng.empty(100_000)
    assert x.normal_(3, 2).mean().item() == pytest.approx(3, abs=0.05)
    assert x.numpy().std() == pytest.approx(2, abs=0.05)
    assert x.uniform_(-1, 3).mean().item() == pytest.approx(1, abs=0.05)
    assert x.exponential_(4).mean().item() == pytest.approx(0.25, abs=0.01)
    assert x.bernoulli_(0.2).mean().item() == pytest.approx(0.2, abs=0.01)
    assert ng.normal(ng.zeros(50_000), 3.0).numpy().std() == pytest.approx(3, abs=0.1)
    assert ng.bernoulli(ng.full((100_000,), 0.7)).mean().item() == pytest.approx(0.7, abs=0.02)
    assert (ng.zeros(1000, dtype=ng.uint8).random_().numpy() > 200).any()
    strided = ng.zeros(10, 10).t()[::2]
    assert (strided.uniform_(1, 2).numpy() >= 1).all()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: ng.rand(3, dtype=ng.long), "not implemented"),
        (lambda: ng.randint(5, 5, (2,)), "less than 'to'"),
        (lambda: ng.zeros(2).uniform_(1, 0), "expects to return"),
        (lambda: ng.zeros(2).normal_(0, -1), "std >= 0"),
        (lambda: ng.zeros(2).bernoulli_(2.0), r"in \[0, 1\]"),
        (lambda: ng.bernoulli(ng.tensor([0.5, 1.5])), "p_in"),
        (lambda: ng.multinomial(ng.zeros(3), 1), "sum of probabilities"),
        (lambda: ng.multinomial(ng.tensor([1.0, 0, 0]), 2), "not enough"),
        (lambda: ng.zeros(2, dtype=ng.long).normal_(), "not implemented"),
    ],
)
def test_messages(wrong, words):
    with pytest.raises(RuntimeError, match=words):
        wrong()


def test_determinism_is_always_given():
    assert not ng.are_deterministic_algorithms_enabled()
    ng.use_deterministic_algorithms(True, warn_only=True)
    assert ng.are_deterministic_algorithms_enabled()
    ng.use_deterministic_algorithms(False)
    assert not ng.are_deterministic_algorithms_enabled()
    with pytest.raises(TypeError, match="mode must be a bool, not str"):
        ng.use_deterministic_algorithms("yes")


def test_a_forked_generator_returns():
    ng.manual_seed(5)
    first = ng.rand(3)
    ng.manual_seed(5)
    with pytest.raises(KeyError), ng.random.fork_rng():
        ng.rand(7)
        raise KeyError
    assert ng.equal(ng.rand(3), first)
    with ng.random.fork_rng(enabled=False):
        ng.manual_seed(5)
    assert ng.equal(ng.rand(3), first)
