"""Whatever a compiled function reads, a list, an array or a function: changes are noticed."""

import argparse
import contextlib
import functools
import math
import re
import threading
import types
import weakref
from array import array
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.compiled.places import under
from numbagrad.errors import RecordingError


@dataclass
class Setting:
    scale: float = 1.0


def twice(x):
    return x * 2.0


def seven(x):
    return x * 7.0


class Items(dict):
    """As those of configurations that are read from a file: even what is not there raises."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Steps(list):
    def last(self):
        return self[-1]


Pair = namedtuple("Pair", "first second")


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = [1.0, 2.0]

    def forward(self, x):
        return x * self.scales[1]


held = {
    "numbers": [1.0, 2.0],
    "tensors": [ng.ones(3), ng.ones(3)],
    "modules": [nn.ReLU(), nn.Tanh()],
    "functions": [twice, twice],
    "by word": {"a": ng.ones(3)},
    "nested": {"more": {"k": [1.0, 2.0]}},
    "in a tuple": ([1.0], [2.0]),
    "deque": deque([1.0, 2.0]),
    "ordered": OrderedDict(k=2.0),
    "default": defaultdict(float, k=2.0),
    "namespace": types.SimpleNamespace(scale=1.0),
    "arguments": argparse.Namespace(scale=1.0),
    "objects": [Setting()],
    "of a module": Layers(),
    "of a class of dicts": Items(scale=2.0),
    "an attribute of it": Items(scale=2.0, inner=Items(scale=3.0)),
    "of a class of lists": Steps([1.0, 2.0]),
    "a counter": Counter("aab"),
    "in a named tuple": Pair([1.0], [2.0]),
    "shown": types.MappingProxyType({"scale": 1.0}),
    "an array": np.ones(3),
    "a whole array": np.ones((2, 3)),
    "a number in an array": np.array(1.0),
    "an array in a dict": {"scales": np.ones(3, np.int64)},
    "of an object": types.SimpleNamespace(scales=np.array([1, 2])),
    "of module array": array("d", [1.0]),
    "by name": weakref.WeakValueDictionary({"scaled": twice}),
    "many in many": {i: dict.fromkeys(range(5), 1.0) for i in range(50)},
    "beside a long one": {"scale": 1.0, "words": list(range(10_000))},
    "of a default": [1.0],
    "of a helper's default": {"scale": 1.0},
    "of a default by name": ([1.0], 2.0),
    "of a method's default": [1.0],
    "of a partial": [1.0],
    "by name of a partial": {"scale": 1.0},
}


def by_default(x, scales=held["of a default"]):
    return x * scales[0]


def helper(x, found=held["of a helper's default"]):
    return x * found["scale"]


def by_name(x, *, scales=held["of a default by name"]):
    return x * scales[0][0]


class Scaled:
    def scaled(self, x, scales=held["of a method's default"]):
        return x * scales[0]


def each_layer(x):
    for layer in held["modules"]:
        x = layer(x)
    return x


CASES = {
    "numbers": (lambda x: x * held["numbers"][1], lambda h: h.__setitem__(1, 5.0)),
    "tensors": (lambda x: x * held["tensors"][0], lambda h: h.__setitem__(0, ng.zeros(3))),
    "modules": (each_layer, lambda h: h.append(nn.Sigmoid())),
    "functions": (lambda x: held["functions"][0](x), lambda h: h.__setitem__(0, seven)),
    "by word": (lambda x: x * held["by word"]["a"], lambda h: h.update(a=ng.zeros(3))),
    "nested": (
        lambda x: x * held["nested"]["more"]["k"][1],
        lambda h: h["more"]["k"].__setitem__(1, 9.0),
    ),
    "in a tuple": (lambda x: x * held["in a tuple"][1][0], lambda h: h[1].__setitem__(0, 9.0)),
    "deque": (lambda x: x * held["deque"][0], lambda h: h.rotate()),
    "ordered": (lambda x: x * held["ordered"]["k"], lambda h: h.update(k=3.0)),
    "default": (lambda x: x * held["default"]["k"], lambda h: h.update(k=3.0)),
    "namespace": (lambda x: x * held["namespace"].scale, lambda h: setattr(h, "scale", 4.0)),
    "arguments": (lambda x: x * held["arguments"].scale, lambda h: setattr(h, "scale", 4.0)),
    "objects": (lambda x: x * held["objects"][0].scale, lambda h: setattr(h[0], "scale", 4.0)),
    "of a module": (lambda x: held["of a module"](x), lambda h: h.scales.__setitem__(1, 4.0)),
    "of a class of dicts": (
        lambda x: x * held["of a class of dicts"]["scale"],
        lambda h: h.update(scale=4.0),
    ),
    "an attribute of it": (
        lambda x: x * held["an attribute of it"].inner.scale,
        lambda h: setattr(h.inner, "scale", 4.0),
    ),
    "of a class of lists": (
        lambda x: x * held["of a class of lists"].last(),
        lambda h: h.append(5.0),
    ),
    "a counter": (lambda x: x * held["a counter"]["a"], lambda h: h.update("a")),
    "in a named tuple": (
        lambda x: x * held["in a named tuple"].second[0],
        lambda h: h.second.__setitem__(0, 5.0),
    ),
    "shown": (
        lambda x: x * held["shown"]["scale"],
        lambda h: under(h).__setitem__("scale", 5.0),
    ),
    "an array": (lambda x: x * float(held["an array"][0]), lambda h: h.__setitem__(0, 5.0)),
    "a whole array": (lambda x: x * held["a whole array"].sum(), lambda h: h.fill(5.0)),
    "a number in an array": (
        lambda x: x * held["a number in an array"].item(),
        lambda h: h.fill(2.0),
    ),
    "an array in a dict": (
        lambda x: x * max(held["an array in a dict"]["scales"].tolist()),
        lambda h: h["scales"].__setitem__(2, 5),
    ),
    "of an object": (
        lambda x: x if held["of an object"].scales[0] > 1 else -x,
        lambda h: h.scales.fill(3),
    ),
    "of module array": (lambda x: x * held["of module array"][0], lambda h: h.__setitem__(0, 2.0)),
    "by name": (lambda x: held["by name"]["scaled"](x), lambda h: h.update(scaled=seven)),
    "many in many": (lambda x: x * held["many in many"][49][4], lambda h: h[49].update({4: 2.0})),
    "beside a long one": (
        lambda x: x * held["beside a long one"]["scale"],
        lambda h: h.update(scale=2.0),
    ),
    "of a default": (by_default, lambda h: h.__setitem__(0, 5.0)),
    "of a helper's default": (lambda x: helper(x), lambda h: h.update(scale=5.0)),
    "of a default by name": (by_name, lambda h: h[0].__setitem__(0, 5.0)),
    "of a method's default": (Scaled().scaled, lambda h: h.__setitem__(0, 5.0)),
    "of a partial": (
        functools.partial(lambda scales, x: x * scales[0], held["of a partial"]),
        lambda h: h.__setitem__(0, 5.0),
    ),
    "by name of a partial": (
        functools.partial(lambda x, found: x * found["scale"], found=held["by name of a partial"]),
        lambda h: h.update(scale=5.0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_is_noticed(case):
    function, change = CASES[case]
    compiled = ng.compile(function)
    x = ng.tensor([1.0, -2.0, 3.0])
    for _ in range(2):
        assert ng.equal(compiled(x), function(x))
    assert compiled.cache_info().recordings == 1
    before = function(x)
    change(held[case])
    for _ in range(2):
        assert ng.equal(compiled(x), function(x))
    assert compiled.cache_info().recordings == 2
    assert not ng.equal(before, function(x))
    assert not compiled.recordings[-1].startswith("a guard")


def test_equal_elements_are_no_change():
    sizes = [1000.5, 2000.5]
    compiled = ng.compile(lambda x: x * sizes[0])
    compiled(ng.ones(2))
    sizes[:] = [float("1000.5"), float("2000.5")]
    compiled(ng.ones(2))
    assert compiled.cache_info().recordings == 1


def test_what_the_function_puts_into_a_container_is_refused_and_taken_out():
    kept, named = [1.0], {}

    def appends(x):
        kept.append(x * 2.0)
        return x * kept[0]

    def names(x):
        named[len(named)] = nn.Parameter(x * 2.0)
        return x

    for function in (appends, names):
        with pytest.raises(RecordingError, match=r"kept outside of it|changes"):
            ng.compile(function)(ng.ones(2))
        assert kept == [1.0] and named == {}

    def counts(x):
        named["calls"] = named.get("calls", 0) + 1
        return x

    compiled = ng.compile(counts)
    for _ in range(3):
        compiled(ng.ones(2))
    assert named == {"calls": 3}


def test_an_array_that_is_memory_of_a_tensor_is_read_there():
    scales = np.ones(3, np.float32)
    shared = ng.from_numpy(scales)
    compiled = ng.compile(lambda x: x * shared * (2.0 if len(scales) == 3 else 1.0))
    for k in range(4):
        scales[:] = k
        assert compiled(ng.ones(3)).tolist() == [2.0 * k] * 3
    assert compiled.cache_info().recordings == 1


def test_an_array_that_the_function_writes_is_refused_and_put_back():
    counts = np.zeros(3)

    def function(x):
        counts[1] += 1.0
        return x * counts[1]

    with pytest.raises(RecordingError, match="changes the Python value 'counts'"):
        ng.compile(function)(ng.ones(2))
    assert counts.tolist() == [0.0, 0.0, 0.0]


def test_an_array_that_another_thread_writes_meanwhile_keeps_what_it_got():
    counts, going, stop = np.zeros(3), threading.Event(), threading.Event()

    def count():
        while not stop.is_set():
            counts[0] += 1.0
            going.set()

    thread = threading.Thread(target=count)
    thread.start()
    going.wait()
    try:
        compiled = ng.compile(lambda x: x * 2.0 if len(counts) == 3 else x)
        for _ in range(3):
            before = counts[0]
            assert compiled(ng.ones(2)).tolist() == [2.0, 2.0]
            assert before > 0.0 and counts[0] >= before  # and is not what it was at the beginning
    finally:
        stop.set()
        thread.join()


def test_the_dict_of_a_class_is_left_alone():
    class Setting:
        scale = 2.0

    shown = vars(Setting)
    compiled = ng.compile(lambda x: setattr(Setting, "flag", object()) or x * shown["scale"])
    for _ in range(2):
        with contextlib.suppress(RecordingError):
            compiled(ng.ones(1))
        assert hasattr(Setting, "flag") is ("flag" in vars(Setting))
        assert Setting.scale == 2.0


def test_what_is_dispatched_by_type():
    @functools.singledispatch
    def scaled(x):
        return x

    compiled = ng.compile(lambda x: scaled(x))
    for factor in (1.0, 2.0):
        scaled.register(ng.Tensor, lambda x: x * factor)  # noqa: B023
        for _ in range(2):
            assert compiled(ng.ones(1)).item() == factor


def test_attributes_of_an_optimizer():
    optimizer = ng.optim.SGD([ng.ones(1, requires_grad=True)], lr=1.0)
    optimizer.scale = 1.0
    compiled = ng.compile(lambda x: x * optimizer.scale * optimizer.defaults["lr"])
    for scale, rate in ((1.0, 1.0), (2.0, 1.0), (2.0, 3.0)):
        optimizer.scale, optimizer.defaults["lr"] = scale, rate
        for _ in range(2):
            assert compiled(ng.ones(1)).item() == scale * rate


def test_a_count_in_a_default_goes_on():
    def counts(x, memo={"calls": 0}):  # noqa: B006
        memo["calls"] += 1
        return x * memo["calls"]

    compiled = ng.compile(counts)
    assert [compiled(ng.ones(1)).item() for _ in range(4)] == [1, 2, 3, 4]
    assert counts.__defaults__ == ({"calls": 4},)

    def keeps(x, memo={}):  # noqa: B006
        memo["x"] = x * 2.0
        return x

    compiled = ng.compile(keeps)
    for k in range(4):
        compiled(ng.full((2,), float(k)))
        assert keeps.__defaults__[0]["x"].tolist() == [2.0 * k] * 2
    assert compiled.cache_info().recordings == 2


def test_numbers_in_a_dict_of_the_user_are_set_by_each_call():
    kept = Items(calls=0, scale=2.0)

    @ng.compile
    def counting(x):
        kept.calls += 1
        return x * kept.scale * kept.calls

    assert [counting(ng.ones(1)).item() for _ in range(3)] == [2.0, 4.0, 6.0]
    assert kept == {"calls": 3, "scale": 2.0} and counting.cache_info().recordings == 1


@pytest.mark.parametrize("replaces", [True, False])
def test_an_optimiser_with_a_state_of_its_own(replaces):
    moments, parameter = [ng.zeros(2)], ng.ones(2)

    def replacing(g):
        moments[0] = 0.9 * moments[0] + g
        parameter.sub_(moments[0])

    def in_place(g):
        moments[0].mul_(0.9).add_(g)
        parameter.sub_(moments[0])

    step = ng.compile(replacing if replaces else in_place)
    step(ng.ones(2)), step(ng.ones(2))
    assert ng.allclose(parameter, ng.tensor([-1.9, -1.9]))
    assert step.cache_info().recordings == 1


def test_a_list_of_the_same_name_as_an_attribute_is_nothing_to_it():
    space = {"losses": [], "ng": ng}
    step = eval("lambda x: (x.losses if hasattr(x, 'losses') else x) * 2.0", space)
    compiled = ng.compile(step)
    for _ in range(3):
        space["losses"].append(compiled(ng.ones(1)).item())
    assert compiled.cache_info().recordings == 1


REPLACED = {
    "a NumPy number": (np.float64(2.0), np.float64(3.0), lambda x, v: x * float(v)),
    "an array": (np.ones(3), np.full(3, 2.0), lambda x, v: x * ng.tensor(v)),
    "an array as memory": (np.ones(3), np.full(3, 2.0), lambda x, v: x * ng.from_numpy(v)),
    "a fraction": (Fraction(1, 2), Fraction(3, 2), lambda x, v: x * float(v)),
    "a set": ({1}, {1, 2}, lambda x, v: x * len(v)),
    "a frozen set": (frozenset({1}), frozenset({1, 2}), lambda x, v: x * len(v)),
    "bytes": (bytearray(b"a"), bytearray(b"ab"), lambda x, v: x * len(v)),
    "a slice": (slice(0, 2), slice(1, 3), lambda x, v: x[v]),
    "a range": (range(2), range(3), lambda x, v: sum((x * i for i in v), x)),
    "a pattern": (re.compile("a"), re.compile("b"), lambda x, v: x * (2 if v.match("a") else 3)),
    "a function of Python": (math.sin, math.cos, lambda x, v: x * v(1.0)),
    "an operation": (ng.tanh, ng.sigmoid, lambda x, v: v(x)),
    "a functional": (nn.functional.relu, nn.functional.gelu, lambda x, v: v(x)),
    "a layer's class": (nn.ReLU, nn.Sigmoid, lambda x, v: v()(x)),
    "a tuple": ((1.0, (2.0, 3.0)), (1.0, (2.0, 4.0)), lambda x, v: x * v[1][1]),
    "a dtype": (ng.float32, ng.float64, lambda x, v: x.to(v) * 2),
}


@pytest.mark.parametrize("kind", REPLACED)
@pytest.mark.parametrize("place", ["global", "closure", "attribute", "element"])
def test_a_replaced_value_is_noticed(kind, place):
    first, second, use = REPLACED[kind]
    value, space = first, {"use": use, "value": first}
    holder = types.SimpleNamespace(value=first)
    held = [first]
    functions = {
        "global": eval("lambda x: use(x, value)", space),
        "closure": lambda x: use(x, value),
        "attribute": lambda x: use(x, holder.value),
        "element": lambda x: use(x, held[0]),
    }
    compiled = ng.compile(functions[place])
    x = ng.tensor([1.0, -2.0, 3.0])
    for given in (first, first, second):
        value = space["value"] = holder.value = held[0] = given
        found, expected = compiled(x), use(x, given)
        assert ng.equal(found, expected) and found.dtype is expected.dtype
    assert compiled.cache_info().recordings == 2


def test_what_is_written_into_a_copied_array_is_noticed():
    values = np.ones(3)
    compiled = ng.compile(lambda x: x * ng.tensor(values))
    for factor in (1.0, 2.0, 2.0):
        values[:] = factor
        assert compiled(ng.ones(3)).tolist() == [factor] * 3
    assert compiled.cache_info().recordings == 2
