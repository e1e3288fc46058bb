"""Arguments that are neither tensors nor lists: deques, arrays, tuples of a class of their own."""

from __future__ import annotations

import array
import collections

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import RecordingError


class Pair(tuple):
    """Two of something."""


class Made(tuple):
    """With a ``__new__`` of its own."""

    def __new__(cls, x, y):
        return super().__new__(cls, (x, y))


class Named(tuple):
    """It has attributes too."""


def test_a_deque_of_numbers_or_tensors():
    mean = ng.compile(lambda x, recent: x * sum(recent) / len(recent))
    x = ng.ones(1)
    for make in (float, lambda k: ng.tensor([float(k)])):
        recent = collections.deque([make(1), make(2)], maxlen=2)
        assert mean(x, recent).item() == 1.5
        recent.append(make(9))
        assert mean(x, recent).item() == 5.5
        assert mean(x, collections.deque([make(4)] * 3)).item() == 4.0
    inside = ng.compile(lambda x, given: x * sum(given["recent"]))
    for k in (1.0, 2.0):
        assert inside(x, {"recent": collections.deque([k, k])}).item() == 2 * k


def test_a_deque_keeps_its_length_and_is_not_changed():
    last = ng.compile(lambda x, recent: recent.maxlen * recent[-1] * x)
    recent = collections.deque([1.0, 2.0], maxlen=5)
    assert last(ng.ones(1), recent).item() == 10.0
    append = ng.compile(lambda x, recent: recent.append(x))
    with pytest.raises(RecordingError, match="changes a list or dict"):
        append(ng.ones(1), recent)
    assert list(recent) == [1.0, 2.0]


def test_a_deque_is_returned():
    both = ng.compile(lambda x: collections.deque([x * 2, x * 3], maxlen=2))
    for k in (1.0, 2.0):
        out = both(ng.full((1,), k))
        assert type(out) is collections.deque and out.maxlen == 2
        assert [y.item() for y in out] == [2 * k, 3 * k]


def test_a_tuple_of_a_class_of_its_own():
    product = ng.compile(lambda pair: (type(pair) is Pair) * pair[0] * pair[1])
    for k in (1.0, 2.0, 3.0):
        assert product(Pair([ng.full((1,), k), ng.ones(1)])).item() == k
    made = ng.compile(lambda pair: (type(pair) is Made) * pair[0] * pair[1])
    for k in (1.0, 2.0):
        assert made(Made(ng.full((3,), k), ng.ones(3))).tolist() == [k] * 3
    scaled = ng.compile(lambda x, pair: x * pair[0])
    for k in (1.0, 2.0, 1.0):
        assert scaled(ng.ones(1), Pair([k, 0.0])).item() == k
    named = Named([ng.ones(1)])
    named.name = "a"
    with pytest.raises(RecordingError, match="an argument is a Named"):
        product(named)


def read(a):
    return ng.from_numpy(a) * 2.0


def write(a):
    ng.from_numpy(a).add_(1.0)
    return ng.tensor(1.0)


def same_memory(a):
    return ng.from_numpy(a)


def part(a):
    return ng.from_numpy(a[1:]) * 2.0


@pytest.mark.parametrize("make", [lambda a: a, lambda a: [a], lambda a: {"a": a}])
@pytest.mark.parametrize("function", [read, write, same_memory, part])
def test_a_tensor_lies_in_the_array_that_was_given(function, make):
    def of_one(given):
        a = given
        if not isinstance(given, np.ndarray):
            a = given["a"] if isinstance(given, dict) else given[0]
        return function(a)

    compiled = ng.compile(of_one)
    mine, theirs = np.zeros(3, np.float32), np.zeros(3, np.float32)
    for k, a in enumerate((mine, theirs, np.zeros(3, np.float32), mine, mine)):
        if k == 1:
            mine.fill(5.0)
        expected_in = a.copy()
        expected = of_one(expected_in)
        out = compiled(make(a))
        assert out.tolist() == expected.tolist() and a.tolist() == expected_in.tolist()
        if function is same_memory:
            a[0] += 1.0
            assert out[0].item() == a[0]


def test_arrays_of_python_and_views_of_memory():
    doubled = ng.compile(lambda x, a: x * sum(a))
    for make in (lambda *k: array.array("d", k), lambda *k: memoryview(array.array("d", k))):
        kept = make(1.0, 2.0)
        assert doubled(ng.ones(1), kept).item() == 3.0
        kept[0] = 5.0
        assert doubled(ng.ones(1), kept).item() == 7.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.array([(1.0, 2)], [("a", "f4"), ("b", "i4")]),
        lambda: np.array([1.0, None], object),
        lambda: np.array([(1.0, 2)], np.dtype([("b", "i1"), ("a", "f8")], align=True)[["a", "b"]]),
    ],
)
def test_arrays_in_a_closure(make):
    kept = make()

    def first(x):
        value = kept[0]
        return x * float(value["a"] if kept.dtype.names else value)

    compiled = ng.compile(first)
    assert compiled(ng.ones(1)).item() == 1.0
    kept[0] = (4.0, 2) if kept.dtype.names else 4.0
    assert compiled(ng.ones(1)).item() == 4.0
