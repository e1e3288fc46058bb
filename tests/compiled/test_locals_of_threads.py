"""``threading.local``: each thread has values of its own, and an attribute may come later."""

from __future__ import annotations

import threading

import pytest

import numbagrad as ng
from numbagrad.errors import RecordingError


def in_a_thread(function):
    """What ``function`` gives in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_an_attribute_that_appears_later_is_noticed():
    local, x = threading.local(), ng.ones(2)
    local.scale = 1.0

    @ng.compile
    def f(x):
        return x * local.scale + (1 if getattr(local, "flag", False) else 0)

    assert [f(x).tolist() for _ in range(2)] == [[1.0, 1.0]] * 2
    local.flag = True
    assert f(x).tolist() == [2.0, 2.0]
    for scale in (3.0, 4.0, 5.0):
        local.scale = scale
        assert f(x).tolist() == [scale + 1.0] * 2
    del local.flag
    assert f(x).tolist() == [5.0, 5.0]


def test_an_attribute_that_is_asked_for_in_vain_is_noticed():
    local, x = threading.local(), ng.ones(2)

    @ng.compile
    def f(x):
        try:
            return x * local.gain
        except AttributeError:
            return x

    assert f(x).tolist() == [1.0, 1.0]
    local.gain = 2.0
    assert f(x).tolist() == [2.0, 2.0]


def test_each_thread_has_its_own_values():
    local, x = threading.local(), ng.ones(2)
    local.scale = 2.0

    @ng.compile
    def f(x):
        return x * local.scale

    def other():
        found = []
        for scale in (50.0, 51.0):
            local.scale = scale
            found.append(f(x).tolist())
        return found

    assert f(x).tolist() == [2.0, 2.0]
    assert in_a_thread(other) == [[50.0, 50.0], [51.0, 51.0]]
    assert f(x).tolist() == [2.0, 2.0]


class Counter(threading.local):
    """Counts the calls of each thread."""

    def __init__(self):
        self.calls = 0

    def count(self, x):
        self.calls += 1
        return x * self.calls


def test_each_thread_counts_its_own_calls():
    counter, x = Counter(), ng.ones(1)
    f = ng.compile(lambda x: counter.count(x))
    assert [f(x).item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert in_a_thread(lambda: [f(x).item() for _ in range(3)]) == [1.0, 2.0, 3.0]
    assert f(x).item() == 4.0 and counter.calls == 4


def test_what_is_set_there_is_recorded_once_in_each_thread():
    local, x = threading.local(), ng.ones(1)
    local.last, local.mode = None, "a"

    @ng.compile
    def keeps(x, k):
        local.last = k
        local.made = x * k
        return local.made * local.last

    assert [keeps(x, float(k)).item() for k in range(10)] == [float(k * k) for k in range(10)]
    assert local.last == 9.0 and local.made.item() == 9.0
    assert keeps.cache_info().recordings <= 4

    @ng.compile
    def changes(x):
        local.mode = "b" if local.mode == "a" else "a"
        return x

    with pytest.raises(RecordingError, match="changes the Python value 'mode'"):
        changes(x)
    assert local.mode == "a"
    counter = Counter()
    count = ng.compile(lambda x: counter.count(x))
    assert [count(x).item() for _ in range(20)] == [float(k) for k in range(1, 21)]
    assert count.cache_info().recordings <= 3


def test_one_recording_counts_for_all_threads():
    counter, bare, x = Counter(), threading.local(), ng.ones(1)

    @ng.compile
    def made_there(x):
        bare.calls = getattr(bare, "calls", 0) + 1
        return x * bare.calls

    for f in (ng.compile(lambda x: counter.count(x)), made_there):
        expected = [1.0, 2.0, 3.0]
        assert [f(x).item() for _ in range(3)] == expected
        once = f.cache_info().compilations
        for _ in range(30):
            assert in_a_thread(lambda f=f: [f(x).item() for _ in range(3)]) == expected
        assert f.cache_info().compilations == once == 1
        assert f(x).item() == 4.0
