"""Methods that a class gets in the place of others, class methods and those that no code names."""

from __future__ import annotations

import dataclasses
import math
import types

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn, optim
from numbagrad.errors import RecordingError


class Reading:
    @classmethod
    def scaled(cls, x):
        return x * 2.0

    @staticmethod
    def shifted(x):
        return x + 2.0

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return 2.0

    def __iter__(self):
        return iter((2.0,))

    def __contains__(self, x):
        return False

    def __bool__(self):
        return True

    def __float__(self):
        return 2.0

    def __neg__(self):
        return 2.0

    def __mul__(self, x):
        return x * 2.0

    def __enter__(self):
        return 2.0

    def __exit__(self, *error):
        pass

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return 2.0


class Derived(Reading):
    """What it has is another's."""


def entered(x, reading):
    with reading as scale:
        return x * scale


USES = {
    "scaled": (lambda x, r: r.scaled(x), lambda cls, x: x * 7.0),
    "scaled of the class": (lambda x, r: type(r).scaled(x), lambda cls, x: x * 7.0),
    "shifted": (lambda x, r: r.shifted(x), lambda x: x * 7.0),
    "__len__": (lambda x, r: x * len(r), lambda self: 7),
    "__getitem__": (lambda x, r: x * r[0], lambda self, index: 7.0),
    "__iter__": (lambda x, r: x * sum(r), lambda self: iter((3.0, 4.0))),
    "__contains__": (lambda x, r: x * (7.0 if 1 in r else 2.0), lambda self, x: True),
    "__bool__": (lambda x, r: x * (2.0 if r else 7.0), lambda self: False),
    "__float__": (lambda x, r: x * float(r), lambda self: 7.0),
    "__neg__": (lambda x, r: x * -r, lambda self: 7.0),
    "__mul__": (lambda x, r: r * x, lambda self, x: x * 7.0),
    "__enter__": (entered, lambda self: 7.0),
    "__getattr__": (lambda x, r: x * r.anything, lambda self, name: 7.0),
}


@pytest.mark.parametrize("kind", [Reading, Derived])
@pytest.mark.parametrize("use", USES)
def test_a_method_that_is_set_anew_is_noticed(monkeypatch, use, kind):
    function, other = USES[use]
    name, reading, x = use.partition(" ")[0], kind(), ng.ones(2)
    compiled = ng.compile(lambda x: function(x, reading))
    before = [compiled(x).tolist() for _ in range(2)]
    assert before == [function(x, reading).tolist()] * 2
    whose = {"scaled": classmethod, "shifted": staticmethod}.get(name)
    monkeypatch.setattr(Reading, name, other if whose is None else whose(other))
    assert [compiled(x).tolist() for _ in range(2)] == [[7.0, 7.0]] * 2
    monkeypatch.undo()
    assert compiled(x).tolist() == before[0]


def test_a_class_method_of_its_own_is_noticed(monkeypatch):
    reading, x = Derived(), ng.ones(2)
    compiled = ng.compile(lambda x: reading.scaled(x))
    assert compiled(x).tolist() == [2.0, 2.0]
    own = classmethod(lambda cls, x: x * 7.0)
    monkeypatch.setattr(Derived, "scaled", own, raising=False)
    assert compiled(x).tolist() == [7.0, 7.0]


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam])
def test_groups_that_exchange_their_lists_of_parameters_are_noticed(kind):
    def trained(compile):
        a, b, c = (nn.Parameter(ng.ones(2)) for _ in range(3))
        rates = 0.0, 1.0, 0.5
        groups = [{"params": [p], "lr": r} for p, r in zip((a, b, c), rates, strict=True)]
        optimizer = kind(groups, lr=0.1)

        @compile
        def step(x):
            optimizer.zero_grad()
            loss = ((a + b + c) * x).sum()
            loss.backward()
            optimizer.step()
            return loss

        losses, groups = [], optimizer.param_groups
        for _ in range(3):
            losses += [step(ng.ones(2)).item() for _ in range(2)]
            lists = [group["params"] for group in groups]
            for group, params in zip(groups, lists[1:] + lists[:1], strict=True):
                group["params"] = params
        return losses, [n for p in (a, b, c) for n in p.tolist()]

    expected = trained(lambda function: function)
    losses, parameters = trained(ng.compile)
    assert losses == pytest.approx(expected[0])
    assert parameters == pytest.approx(expected[1])


class First:
    factor = 2.0

    def scaled(self, x):
        return x * self.factor


class Second:
    factor = 7.0

    def scaled(self, x):
        return x * self.factor + 1.0


class Constant:
    def __init__(self, value):
        self.value = value

    def __get__(self, instance, owner=None):
        return self.value


def test_an_object_of_another_class_is_noticed():
    for use in (
        lambda x, each: x * each.factor,
        lambda x, each: each.scaled(x),
        lambda x, each: x * (2.0 if isinstance(each, First) else 7.0),
    ):
        each = First()
        compiled = ng.compile(lambda x, use=use, each=each: use(x, each))
        expected = use(ng.ones(1), each).item()
        assert [compiled(ng.ones(1)).item() for _ in range(2)] == [expected] * 2
        each.__class__ = Second  # as a reload in a notebook does
        assert compiled(ng.ones(1)).item() == use(ng.ones(1), each).item() != expected


def test_a_dict_of_another_class_is_noticed_and_what_an_object_says_of_itself_is_not_asked():
    class One(dict):
        factor = 2.0

    class Other(One):
        factor = 7.0

    each = One()
    compiled = ng.compile(lambda x: x * each.factor)
    assert compiled(ng.ones(1)).item() == 2.0
    each.__class__ = Other
    assert compiled(ng.ones(1)).item() == 7.0

    class Proxy:
        asked, factor = 0, 3.0

        @property
        def __class__(self):
            Proxy.asked += 1
            return type(f"Made{Proxy.asked}", (), {})

    proxy = Proxy()
    compiled = ng.compile(lambda x: x * proxy.factor)
    assert [compiled(ng.ones(1)).item() for _ in range(3)] == [3.0] * 3
    assert len(compiled.recordings) == 1


def test_a_module_in_an_attribute_is_noticed():
    one, other = types.ModuleType("one"), types.ModuleType("other")
    one.factor, other.factor = 2.0, 5.0
    whole = types.ModuleType("whole")
    for settings in (types.SimpleNamespace(), First(), whole, type("Settings", (), {})):
        settings.backend = one
        compiled = ng.compile(lambda x, settings=settings: x * settings.backend.factor)
        assert compiled(ng.ones(1)).item() == 2.0
        settings.backend = other
        assert compiled(ng.ones(1)).item() == 5.0


def test_a_module_in_a_global_is_noticed():
    space = {"one": types.ModuleType("one"), "other": types.ModuleType("other"), "ng": ng}
    space["one"].factor, space["other"].factor = 2.0, 5.0
    exec("backend = one\n\ndef scaled(x):\n    return x * backend.factor\n", space)
    compiled = ng.compile(space["scaled"])
    assert compiled(ng.ones(1)).item() == 2.0
    space["backend"] = space["other"]
    assert compiled(ng.ones(1)).item() == 5.0


def test_a_descriptor_that_is_replaced_is_noticed(monkeypatch):
    monkeypatch.setattr(First, "factor", Constant(3.0))
    each = First()
    compiled = ng.compile(lambda x: x * each.factor)
    assert compiled(ng.ones(1)).item() == 3.0
    monkeypatch.setattr(First, "factor", Constant(4.0))
    assert compiled(ng.ones(1)).item() == 4.0
    monkeypatch.setattr(First, "factor", 5.0)
    assert compiled(ng.ones(1)).item() == 5.0


def test_the_sign_of_a_zero_is_noticed():
    settings = {"k": 0.0}
    compiled = ng.compile(lambda x: x * math.copysign(1.0, settings["k"]))
    assert compiled(ng.ones(1)).item() == 1.0
    settings["k"] = -0.0
    assert compiled(ng.ones(1)).item() == -1.0
    settings["k"] = np.float64(0.0)
    assert compiled(ng.ones(1)).item() == 1.0
    settings["k"] = np.float64(-0.0)
    assert compiled(ng.ones(1)).item() == -1.0


@pytest.mark.parametrize("values", [(True, False), (None, 1.0), (False, None)])
def test_a_flag_among_slots_is_carried_or_refused(values):
    @dataclasses.dataclass(slots=True)
    class State:
        flag: object

    state = State(values[0])

    def step(x):
        out = x * (2.0 if state.flag == values[0] else 3.0)
        state.flag = values[1] if state.flag == values[0] else values[0]
        return out

    compiled = ng.compile(step)
    with pytest.raises(RecordingError, match="changes the Python value 'flag'"):
        for _ in range(3):  # the first call may make what a call keeps
            compiled(ng.ones(1))
    assert state.flag in values
