"""What is inside of arguments and objects, and what happens to it, is noticed or refused."""

import copy
import os
import pickle
import signal
import threading
from collections import OrderedDict, defaultdict

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError

pytestmark = pytest.mark.interpreted


@pytest.mark.parametrize("kind", [OrderedDict, lambda **given: defaultdict(list, given)])
def test_kinds_of_dicts(kind):
    def doubled(given):
        found = copy.copy(given)
        found["y"] = found["x"] * 2
        return found

    step = ng.compile(doubled)
    given = kind(x=ng.ones(2))
    for value in (1.0, 3.0):
        given["x"] = ng.full((2,), value)
        found = step(given)
        assert type(found) is type(given) and found["y"].tolist() == [2 * value] * 2
        assert getattr(found, "default_factory", list) is list
    assert step.cache_info().recordings == 1


def test_keys_of_results_may_be_anything():
    class Key:
        pass

    key = Key()
    found = ng.compile(lambda x: {key: x * 2, None: x, (1, "a"): x})(ng.ones(1))
    assert list(found) == [key, None, (1, "a")] and found[key].tolist() == [2.0]


def test_other_dicts_are_refused():
    class Batch(defaultdict):
        pass

    with pytest.raises(RecordingError, match=r"an argument is a Batch.* Pass a dict"):
        ng.compile(lambda given: given["x"] * 2)(Batch(list, x=ng.ones(1)))


def grow_list(given):
    given.append(given[0] * 2)


def put_into_list(given):
    given[0] = given[0] * 2


def grow_dict(given):
    given["more"] = 1


CHANGES = {
    grow_list: lambda: [ng.ones(1)],
    put_into_list: lambda: [ng.ones(1)],
    grow_dict: lambda: {"x": ng.ones(1)},
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_container_that_the_function_changes_is_refused(change):
    given = CHANGES[change]()
    with pytest.raises(RecordingError, match="changes a list or dict that it was given"):
        ng.compile(change)(given)
    assert len(given) == 1


@pytest.mark.parametrize(
    "given, change",
    [
        (np.ones(2), lambda given: given.fill(3.0)),
        ({1.0}, lambda given: given.add(2.0)),
        (bytearray(b"1"), lambda given: given.extend(b"2")),
    ],
    ids=["array", "set", "bytearray"],
)
def test_an_argument_that_changes_is_another(given, change):
    step = ng.compile(lambda x, given: x * float(sum(given)))
    for _ in range(2):
        assert step(ng.ones(1), given).tolist() == [float(sum(given))]
        change(given)


def test_an_attribute_that_hides_that_of_the_class():
    class Scaled:
        factor = 2.0
        weight = ng.ones(1)

        def step(self, x):
            return x * self.factor * self.weight

    scaled = Scaled()
    step = ng.compile(scaled.step)

    def check():
        assert step(ng.ones(1)).tolist() == scaled.step(ng.ones(1)).tolist()

    check()
    scaled.factor = 3.0
    check()
    assert "'factor' is 3.0, was not there" in step.recordings[-1]
    scaled.weight = ng.zeros(1)
    check()
    del scaled.factor, scaled.weight
    check()


def test_an_attribute_that_the_function_sets_is_refused_and_taken_back():
    class Naming:
        name = "before"

        def step(self, x):
            self.name = self.name + "!"
            return x * 2.0

    naming = Naming()
    step = ng.compile(naming.step)
    step(ng.ones(1))  # makes the attribute
    assert vars(naming) == {"name": "before!"}
    with pytest.raises(RecordingError, match="changes the Python value 'name'"):
        step(ng.ones(1))
    assert vars(naming) == {"name": "before!"}


@pytest.mark.parametrize("way", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_copies_of_compiled_functions(way):
    module = nn.Linear(2, 1)
    step = ng.compile(module)
    wanted = step(ng.ones(2)).tolist()
    other = way(step)
    module.weight.data.zero_()
    assert other(ng.ones(2)).tolist() == wanted != step(ng.ones(2)).tolist()
    assert other.cache_info().recordings == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_fork_while_another_thread_records():
    begun, go_on = threading.Event(), threading.Event()

    def slow(x):
        begun.set()
        go_on.wait(10)
        return x * 2

    thread = threading.Thread(target=lambda: ng.compile(slow)(ng.ones(1)))
    thread.start()
    begun.wait(10)
    threading.Timer(0.2, go_on.set).start()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(ng.compile(lambda x: x * 3)(ng.ones(1)).tolist() != [3.0])
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
