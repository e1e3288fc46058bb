"""``next(batches)`` in a compiled function would run once, while it is recorded: it is refused."""

from __future__ import annotations

import io
import itertools
import os
import tempfile
import weakref

import pytest

import numbagrad as ng
from numbagrad import data
from numbagrad.errors import RecordingError


def endless():
    while True:
        yield 1.0


def counting():
    for k in range(9):
        yield float(k)


def through():
    yield from counting()


def opened():
    """A file that is read."""
    descriptor, name = tempfile.mkstemp(text=True)
    with open(descriptor, "w") as file:
        file.write("1\n2\n3\n")
    OPENED.append(open(name))
    return OPENED[-1]


@pytest.fixture(autouse=True)
def closed_in_the_end():
    yield
    while OPENED:
        file = OPENED.pop()
        file.close()
        os.remove(file.name)


OPENED: list = []


def number(value):
    if isinstance(value, ng.Tensor):
        return value
    return number(value[0]) if isinstance(value, (tuple, list)) else float(value)


ITERATORS = {
    "accumulate": lambda: itertools.accumulate([1.0, 2.0, 3.0]),
    "chain": lambda: itertools.chain([1.0], [2.0, 3.0]),
    "count": itertools.count,
    "cycle": lambda: itertools.cycle([1.0, 2.0]),
    "dict": lambda: iter({1: 2, 3: 4, 5: 6}),
    "endless generator": endless,
    "enumerate": lambda: enumerate([1, 2, 3, 4]),
    "expression": lambda: (float(i) for i in [1, 2, 3, 4]),
    "file": lambda: opened(),
    "filter": lambda: filter(None, [1.0, 2.0, 3.0]),
    "generator": counting,
    "islice": lambda: itertools.islice([1.0, 2.0, 3.0, 4.0], 4),
    "items": lambda: iter({1: 2.0, 3: 4.0}.items()),
    "list": lambda: iter([1.0, 2.0, 3.0, 4.0]),
    "lines": lambda: iter(opened().readline, ""),
    "loader": lambda: iter(data.DataLoader(ng.arange(12.0).view(4, 3), 1)),
    "map": lambda: map(float, [1, 2, 3, 4]),
    "pairwise": lambda: itertools.pairwise([1.0, 2.0, 3.0]),
    "product": lambda: itertools.product([1.0, 2.0], [3.0]),
    "range": lambda: iter(range(5)),
    "repeat": lambda: itertools.repeat(2.0, 10),
    "reversed": lambda: reversed([1.0, 2.0, 3.0]),
    "set": lambda: iter({1, 2, 3}),
    "started": lambda: [it := counting(), next(it)][0],
    "stream": lambda: iter(data.DataLoader(Stream(), 2)),
    "tensor": lambda: iter(ng.arange(4.0)),
    "through": through,
    "zip": lambda: zip([1.0, 2.0, 3.0, 4.0], counting(), strict=False),
}


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(range(6))


@pytest.mark.parametrize("name", ITERATORS)
def test_what_takes_the_next_is_refused(name):
    make = ITERATORS[name]
    closed_over, within, given = make(), {"batches": [make()]}, make()
    for function, arguments in (
        (lambda x: x + number(next(closed_over)), ()),
        (lambda x: x + number(next(within["batches"][0])), ()),
        (lambda x, it: x + number(next(it)), (given,)),
    ):
        step = ng.compile(function)
        for _ in range(2 - (name in ("endless generator", "file"))):  # which tell the first alone
            with pytest.raises(RecordingError, match="Take it outside"):
                step(ng.zeros(1), *arguments)


def test_a_bound_next_and_the_reading_of_a_file():
    file, numbers = opened(), itertools.count().__next__
    for function in (lambda x: x + float(file.readline()), lambda x: x + numbers()):
        with pytest.raises(RecordingError, match="takes the next of"):
            ng.compile(function)(ng.zeros(1))


@pytest.mark.parametrize("workers", [0, 1])
def test_no_batch_is_lost(workers):
    loader = data.DataLoader(ng.arange(4.0), 2, num_workers=workers)
    batches = iter(loader)
    with pytest.raises(RecordingError, match="taking the next batch of a DataLoader"):
        ng.compile(lambda x: x + next(batches))(ng.zeros(2))
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]


def test_iterators_that_are_made_inside_or_left_alone():
    batches, weights = counting(), [1.0, 2.0]

    def step(x, it):
        for k, weight in enumerate(iter(weights)):
            x = x + weight * next(itertools.count(k))
        return x * (1 if batches is not None and it is not None else 0)

    compiled = ng.compile(step)
    assert compiled(ng.zeros(1), batches).item() == step(ng.zeros(1), batches).item() == 2
    next(batches)
    assert compiled(ng.ones(1), batches).item() == 3
    assert compiled.cache_info().recordings == 1


def test_what_is_reached_and_left_alone():
    ended = itertools.zip_longest([1, 2, 3], [1])
    next(ended)
    next(ended)
    deep = iter([1])
    for _ in range(9):
        deep = itertools.accumulate(deep)
    log = io.StringIO()
    held = [itertools.repeat(2), ended, deep, zip([1], itertools.repeat(1), strict=False), log]

    def step(x):
        print("a line", file=log)
        log.write("another")
        return x + len(held)

    assert ng.compile(step)(ng.ones(1)).item() == 6
    assert log.getvalue() == "a line\nanother"
    assert list(deep) == [1] and next(ended) == (3, None)


def test_no_variable_of_a_generator_lives_longer():
    def batches():
        for k in range(3):
            batch = ng.full((2,), float(k))
            yield batch

    it = batches()
    first = weakref.ref(next(it))
    compiled = ng.compile(lambda x: x if it is not None else x + 1)
    compiled(ng.ones(1))
    assert first() is not None
    next(it)
    assert first() is None


def test_an_iterator_of_ones_own_counts():
    class Own:
        k = 0

        def __next__(self):
            self.k += 1
            return self.k * 1.0

    own = Own()
    step = ng.compile(lambda x: x + next(own))
    assert [step(ng.zeros(1)).item() for _ in range(4)] == [1, 2, 3, 4]
