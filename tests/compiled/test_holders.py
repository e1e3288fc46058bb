"""Python values that a compiled function finds in places that are seldom thought of."""

from __future__ import annotations

import copy
import functools
import math
import pickle
import types
from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError

X = ng.tensor([0.5, 1.5])


def check(function, *changes, recordings=None, x=X):
    """The same as without compile, before and after each change; how often it was recorded."""
    compiled = ng.compile(function)
    for change in (lambda: None, *changes):
        change()
        for _ in range(2):
            expected, found = function(x), compiled(x)
            assert found.dtype is expected.dtype and found.tolist() == expected.tolist()
    if recordings is not None:
        assert compiled.cache_info().recordings == recordings


class Task:
    def __init__(self, weight):
        self.weight = weight


class Fake:
    pi = 7.0

    @staticmethod
    def relu(x):
        return x * 9.0


XP, F, COUNT = np, nn.functional, 3


def set_global(name, value):
    def change():
        globals()[name] = value

    return change


def test_a_module_in_a_global_is_replaced():
    try:
        check(lambda x: x * XP.pi, set_global("XP", Fake), set_global("XP", math))
        check(lambda x: F.relu(x), set_global("F", Fake))
        check(lambda x: x * (2.0 if XP is np else 3.0), set_global("XP", np))
    finally:
        set_global("XP", np)(), set_global("F", nn.functional)()


def test_a_module_in_a_class_is_replaced():
    class Config:
        xp = np

    check(lambda x: x * Config.xp.pi, lambda: setattr(Config, "xp", Fake))


def test_names_that_are_none_in_python():
    module = types.ModuleType("odd")
    vars(module).update({"@math": math, "class": np, "scale": 2.0})

    class Odd:
        pass

    setattr(Odd, "@math", math)
    check(
        lambda x: x * getattr(module, "@math").pi * getattr(module, "class").e * module.scale,
        lambda: vars(module).update({"@math": Fake}),
        lambda: setattr(module, "class", math),
    )
    check(lambda x: x * getattr(Odd, "@math").pi)


def test_the_library_itself_is_no_guard():
    check(lambda x: ng.relu(x), recordings=1)


@pytest.mark.parametrize(
    "holder", ["a dict's keys", "a tuple as a key", "a frozenset", "in a list"]
)
def test_attributes_of_objects_that_are_keys(holder):
    a = Task(1.0)
    held = {
        "a dict's keys": {a: 2.0},
        "a tuple as a key": {(a, 1): 2.0},
        "a frozenset": frozenset([a]),
        "in a list": [frozenset([a])],
    }[holder]

    def tasks():
        found = held[0] if type(held) is list else held
        return [each[0] if type(each) is tuple else each for each in found]

    check(
        lambda x: x * sum([task.weight for task in tasks()]),
        lambda: setattr(a, "weight", 5.0),
        lambda: setattr(a, "weight", 1.0),
    )


def test_the_code_of_a_function_that_is_a_key():
    def twice(x):
        return x * 2

    def thrice(x):
        return x * 3

    table = {twice: 1.0}

    def change():
        twice.__code__ = thrice.__code__

    check(lambda x: sum([f(x) * k for f, k in table.items()]), change)


def optimizer():
    return ng.optim.SGD([nn.Parameter(ng.ones(2))], lr=0.1)


def test_what_the_user_keeps_in_groups():
    opt = optimizer()
    (group,) = opt.param_groups
    group["scales"] = [1.0, 2.0]
    check(
        lambda x: x * sum(opt.param_groups[0]["scales"]),
        lambda: group["scales"].append(3.0),
        lambda: group.update(scales=[4.0]),
    )
    group["by"] = {"name": 2.0}
    check(lambda x: x * opt.param_groups[0]["by"]["name"], lambda: group["by"].update(name=3.0))


def test_what_the_user_keeps_in_the_state():
    opt = optimizer()
    (p,) = opt.param_groups[0]["params"]
    held = opt.state[p]
    held["trust"], held["kind"] = 1.0, "a"
    check(
        lambda x: x * opt.state[p]["trust"] * len(opt.state[p]["kind"]),
        lambda: held.update(trust=5.0),
        lambda: held.update(kind="abc"),
    )


def test_groups_and_states_cost_no_recordings():
    p = nn.Parameter(ng.ones(2))
    opt = ng.optim.Adam([p], lr=0.1)

    @ng.compile
    def step(x):
        opt.zero_grad()
        loss = (p * x).square().sum()
        loss.backward()
        opt.step()
        return loss

    for k in range(5):
        opt.param_groups[0]["lr"] = 0.1 / (k + 1)
        step(X)
    assert step.cache_info().recordings == 1


def test_functions_of_math_are_themselves():
    held = types.SimpleNamespace(module=math, function=math.sqrt)
    check(lambda x: x * (3.0 if held.module is math else 2.0), recordings=1)
    check(lambda x: x * (3.0 if held.function is math.sqrt else 2.0), recordings=1)
    table = {math.sqrt: 2.0, math.exp: 5.0}
    check(lambda x: x * table[math.sqrt] * (math.sqrt in table) * (math.sin in table) + x)
    assert held.module is math and held.function is math.sqrt


def test_functions_of_math_in_objects_take_numbers_of_a_call():
    held = types.SimpleNamespace(function=math.sqrt)
    step = ng.compile(lambda x, k: x * held.function(k))
    for k in (4.0, 9.0, 2.0, 0.25):
        assert step(X, k).tolist() == (X * math.sqrt(k)).tolist()
    assert step.cache_info().recordings == 1


def test_functions_of_math_that_a_step_takes_away():
    held = types.SimpleNamespace(function=math.sqrt)

    def replaces(x):
        held.function = math.cos
        return x * held.function(0.0)

    def deletes(x):
        found = held.function(4.0)
        del held.function
        return x * found

    for step in (replaces, deletes):
        with pytest.raises(RecordingError, match="function"):
            ng.compile(step)(X)
        assert held.function is math.sqrt


def test_a_function_of_math_in_a_recording():
    named = "sqrt", math.sqrt.__qualname__, math.sqrt.__doc__, math.sqrt.__module__

    def step(x):
        f = math.sqrt
        x = x * (named == (f.__name__, f.__qualname__, f.__doc__, f.__module__))
        kept = pickle.loads(pickle.dumps(math.sqrt)), copy.deepcopy(math.exp)
        return x * kept[0](4.0) * (math.sqrt == mock.ANY) * (math.sqrt != math.exp)

    assert ng.compile(step)(X).tolist() == (X * 2).tolist()


def test_what_no_code_names_in_groups_is_no_guard():
    opt = optimizer()
    (group,) = opt.param_groups
    group["history"] = []
    step = ng.compile(lambda x: x * opt.param_groups[0]["lr"])
    for _ in range(5):
        group["history"].append(step(X).sum().item())
    assert step.cache_info().recordings == 1


def test_whole_numbers_in_lists_stay_whole():
    try:
        check(lambda x: ng.tensor([COUNT, 1]), *[set_global("COUNT", k) for k in (4, 5, 6)])
        check(lambda x: ng.as_tensor([[COUNT]]), *[set_global("COUNT", k) for k in (7, 8)])
        places = ng.compile(lambda x: ng.arange(9)[ng.tensor([COUNT, 1])])
        for k in (2, 4, 5):
            set_global("COUNT", k)()
            assert places(X).tolist() == [k, 1]
        check(lambda x: ng.tensor([COUNT, 0.5]), *[set_global("COUNT", k) for k in (1, 2)])
    finally:
        set_global("COUNT", 3)()


def test_objects_without_a_dict_may_be_asked_for_one():
    class Slotted:
        __slots__ = ("k",)

        def __init__(self):
            self.k = 2.0

    held = types.SimpleNamespace(value=Slotted())
    check(
        lambda x: x * (sum(vars(held.value).values()) if hasattr(held.value, "__dict__") else 1.0),
        lambda: setattr(held, "value", Task(3.0)),
    )


def test_objects_that_answer_for_every_name():
    class Prefixed:
        def __getattribute__(self, name):
            return object.__getattribute__(self, "_" + name)

    each = Prefixed()
    each._k = 2.0
    check(lambda x: x * each.k)


def test_keys_of_a_dict_stay_cheap():
    @dataclass(frozen=True)
    class Key:
        name: str

    table = {Key("a"): 2.0, "b": 3.0, 4: 5.0, None: 1.0, functools.partial: 2.0}
    check(lambda x: x * table[Key("a")], lambda: table.update({Key("a"): 4.0}))
