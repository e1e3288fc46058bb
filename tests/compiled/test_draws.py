"""Numbers that Python or NumPy draw inside a compiled function are refused, not frozen."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.compiled import trace
from numbagrad.errors import RecordingError

OWN, OLDER, NEWER = random.Random(0), np.random.RandomState(0), np.random.default_rng(0)

DRAWS = {
    "random": (lambda x: x * random.random(), random.random),
    "numpy": (lambda x: x + ng.tensor(np.random.randn(3)), np.random.random_sample),  # noqa: NPY002
    "generator": (lambda x: x * float(NEWER.beta(0.4, 0.4)), NEWER.random),
    "state": (lambda x: x[OLDER.permutation(3)], OLDER.random_sample),
    "own": (lambda x: x * 2.0 if OWN.random() < 0.5 else x, OWN.random),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_is_refused_and_taken_back(name):
    draws, look = DRAWS[name]
    function = ng.compile(lambda x: draws(x))
    reset = {"random": random.seed, "numpy": np.random.seed, "own": OWN.seed, "state": OLDER.seed}
    if name in reset:
        reset[name](3)
        expected = look()
        reset[name](3)
    with pytest.raises(RecordingError, match="draws random numbers from"):
        function(ng.ones(3))
    if name in reset:
        assert look() == expected


def test_one_that_is_an_argument():
    with pytest.raises(RecordingError, match="a Generator of NumPy"):
        ng.compile(lambda x, rng: x * float(rng.random()))(ng.ones(3), np.random.default_rng(1))


def test_numbers_drawn_before_the_call_are_followed():
    mixed = ng.compile(lambda x, y, part: part * x + (1.0 - part) * y)
    for part in (random.random(), random.betavariate(0.4, 0.4)):
        assert ng.allclose(mixed(ng.ones(3), ng.zeros(3), part), ng.full((3,), part))
    assert mixed.cache_info().recordings == 1


@pytest.fixture
def another_thread():
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    yield
    done.set()
    other.join()


def test_who_drew_is_told_by_recording_again(another_thread, monkeypatch):
    with pytest.raises(RecordingError, match="draws random numbers from random"):
        ng.compile(lambda x: x * random.random())(ng.ones(3))
    looks, check = [], trace.check_undrawn

    def check_after_a_draw(generators):
        looks.append(generators)
        if len(looks) == 1:  # as the other thread might
            random.random()
        check(generators)

    monkeypatch.setattr(trace, "check_undrawn", check_after_a_draw)
    assert ng.compile(lambda x: x * 2.0)(ng.ones(3)).tolist() == [2.0] * 3
    assert len(looks) == 2


def test_what_came_of_a_draw_is_told_as_one():
    order, x = list(range(6)), ng.arange(6.0)

    @ng.compile
    def shuffled(x):
        random.shuffle(order)
        return x[order]

    state = random.getstate()
    with pytest.raises(RecordingError, match="draws random numbers from random"):
        shuffled(x)
    assert order == list(range(6)) and random.getstate() == state

    @ng.compile
    def wrong(x):
        random.random()
        raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        wrong(x)
