"""Options of optimisers that a compiled function reads and sets: ``group["lr"] = lr``."""

from __future__ import annotations

import math

import pytest

import numbagrad as ng
from numbagrad import optim
from numbagrad.errors import RecordingError

from .following import World, assert_same, snapshot

OPTIMIZERS = "SGD Adam AdamW Adagrad RMSprop Adadelta Adamax NAdam RAdam ASGD Rprop Lion".split()


class Own(optim.Optimizer):
    """One whose step is Python."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @ng.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p -= group["lr"] * p.grad


def world(name, **options):
    ng.manual_seed(0)
    made = World("SGD", **options)
    if name == "Own":
        made.optimizer = Own(made.net.parameters(), 0.1)
    elif name != "SGD":
        made.optimizer = getattr(optim, name)(made.net.parameters(), lr=0.1)
    return made


def given(w, x, y, lr):
    for group in w.optimizer.param_groups:
        group["lr"] = lr
    return w.train(x, y)


def of_the_number(w, x, y, lr):
    warm = min(1.0, lr * 7)
    w.optimizer.param_groups[0]["lr"] = 0.1 * warm * 0.5 * (1 + math.cos(math.pi * lr))
    return w.train(x, y)


def decayed(w, x, y, lr):
    loss = w.train(x, y)
    for group in w.optimizer.param_groups:
        group["lr"] *= 0.9
    return loss


def constant(w, x, y, lr):
    w.optimizer.param_groups[0]["lr"] = 0.05
    return w.train(x, y)


def twice(w, x, y, lr):
    group = w.optimizer.param_groups[0]
    group["lr"] = 5.0
    group["lr"] = group["lr"] * lr
    loss = w.train(x, y)
    group["lr"] = lr / 2
    return loss * group["lr"]


def put_back(w, x, y, lr):
    group = w.optimizer.param_groups[0]
    before = group["lr"]
    group["lr"] = before * lr
    loss = w.train(x, y)
    group["lr"] = before
    return loss


def read(w, x, y, lr):
    return w.train(x, y) * w.optimizer.param_groups[0]["lr"]


def conditional(w, x, y, lr):
    if lr > 0.12:
        w.optimizer.param_groups[0]["lr"] = lr / 3
    return w.train(x, y)


STEPS = {
    f.__name__: f
    for f in (given, of_the_number, decayed, constant, twice, put_back, read, conditional)
}


def run(name, step, compiled, calls=6, **options):
    """What every call leaves, with one that an eager step and a change from outside follow."""
    w = world(name, **options)
    x, y = ng.randn(4, 3), ng.randn(4, 2)
    f = ng.compile(lambda x, y, lr: step(w, x, y, lr)) if compiled else step
    found = []
    for k in range(calls):
        rate = 0.1 + 0.01 * k
        loss = f(x, y, rate) if compiled else f(w, x, y, rate)
        found.append(snapshot([loss, list(w.net.parameters())]))
        found.append([group["lr"] for group in w.optimizer.param_groups])
        if k == 3:
            w.train(x, y)
            w.optimizer.param_groups[0]["lr"] = 0.02
    return found, f


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ["SGD", "Adam", "Own"])
def test_as_eagerly(name, step):
    expected, _ = run(name, STEPS[step], False)
    found, f = run(name, STEPS[step], True)
    for e, g in zip(expected, found, strict=True):
        if isinstance(e[0], float):
            assert g == pytest.approx(e, rel=1e-12)
            assert [type(n) for n in g] == [float] * len(g)
        else:
            assert_same(g, e, tolerance=1e-6)
    assert f.cache_info().recordings <= (3 if step == "conditional" else 2), f.recordings


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if hasattr(optim, n)])
def test_each_optimizer_takes_the_rate_of_each_call(name):
    expected, _ = run(name, given, False)
    found, f = run(name, given, True)
    assert_same(found[::2], expected[::2], tolerance=2e-6)
    assert found[1::2] == expected[1::2]
    assert f.cache_info().recordings <= 2, f.recordings


def test_of_several_groups():
    expected, _ = run("SGD", given, False, groups=True, momentum=0.9)
    found, f = run("SGD", given, True, groups=True, momentum=0.9)
    assert_same(found[::2], expected[::2], tolerance=1e-6)
    assert found[1::2] == expected[1::2]
    assert f.cache_info().recordings == 1


def test_other_functions_see_what_was_set():
    """Two functions on one optimiser: the one that keeps the numbers of native code is told."""
    w, v = world("SGD"), world("SGD")
    x, y = ng.ones(4, 3), ng.ones(4, 2)
    setting = ng.compile(lambda lr: decayed(w, x, y, lr))
    plain = ng.compile(lambda x, y: w.train(x, y))
    for _ in range(4):
        assert plain(x, y).item() == pytest.approx(v.train(x, y).item(), rel=1e-6)
        assert setting(0.1).item() == pytest.approx(decayed(v, x, y, 0.1).item(), rel=1e-6)
    assert w.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.9**4)
    assert (plain.cache_info().recordings, setting.cache_info().recordings) == (1, 1)


def test_what_was_set_for_another_recording_is_taken_back():
    """A call for which a recording is not leaves the rate as it was before it looks at others."""
    w = world("SGD")
    x, y = ng.ones(4, 3), ng.ones(4, 2)
    f = ng.compile(lambda x, y, lr: conditional(w, x, y, lr))
    for rate in (0.2, 0.1, 0.3, 0.1):
        before = w.optimizer.param_groups[0]["lr"]
        f(x, y, rate)
        assert w.optimizer.param_groups[0]["lr"] == (rate / 3 if rate > 0.12 else before)


def between(w, x, y, lr):
    w.optimizer.param_groups[0]["lr"] = lr
    w.train(x, y)
    w.optimizer.param_groups[0]["lr"] = lr / 2
    return w.train(x, y)


REFUSED = {
    "between two steps": (between, r"option 'lr'.*test_settings.py:\d+.*between two steps"),
    "to a string": (
        lambda w, x, y, lr: w.optimizer.param_groups[0].update(lr="high"),
        "option 'lr'.*before the call",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_leaves_all_as_it_was(name):
    step, words = REFUSED[name]
    w = world("SGD")
    before = snapshot([w, {k: v for k, v in w.optimizer.param_groups[0].items() if k != "params"}])
    with pytest.raises(RecordingError, match=words):
        ng.compile(lambda x, y, lr: step(w, x, y, lr))(ng.ones(4, 3), ng.ones(4, 2), 0.3)
    after = snapshot([w, {k: v for k, v in w.optimizer.param_groups[0].items() if k != "params"}])
    assert_same(after, before, tolerance=0)
