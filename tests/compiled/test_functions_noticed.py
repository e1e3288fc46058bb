"""Functions, methods and classes that are written anew, as in a notebook, are noticed."""

import functools
import importlib
import math
import operator
import sys
import types
from dataclasses import dataclass

import numba
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.compiled.finder import reach_of
from numbagrad.errors import RecordingError

TWICE = """
def helper(x, scale=2.0):
    return (x * scale).sum()

def outer(x):
    return helper(x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(ng.full((3,), 2.0))

    def forward(self, x):
        return (self.weight * x).sum()

    def other(self, x):
        return x.sum() * 2.0

    @property
    def factor(self):
        return 2.0

    @staticmethod
    def fixed(x):
        return x.sum() * 2.0

    @classmethod
    def of_class(cls, x):
        return x.sum() * 2.0

class Plain:
    def __call__(self, x):
        return x.sum() * 2.0

    def __getitem__(self, x):
        return x.sum() * 2.0

class Twice(ng.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2.0

    @staticmethod
    def backward(ctx, g):
        return g * 2.0

@numba.njit
def kernel(out, x):
    for i in range(x.size):
        out[i] = x[i] * 2.0

class ByKernel(ng.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = ng.empty_like(x)
        ng.launch(kernel, out, x)
        return out

model, plain = Model(), Plain()
"""
THRICE = TWICE.replace("2.0", "3.0")
"""The same cell, edited."""

USES = {
    "a function": "lambda x: helper(x)",
    "a function that a function calls": "lambda x: outer(x)",
    "forward": "lambda x: model(x)",
    "a method": "lambda x: model.other(x)",
    "a property": "lambda x: x.sum() * model.factor",
    "a static method": "lambda x: model.fixed(x)",
    "a class method": "lambda x: model.of_class(x)",
    "a method of a class": "lambda x: Model.fixed(x)",
    "__call__": "lambda x: plain(x)",
    "__getitem__": "lambda x: plain[x]",
    "a Function": "lambda x: Twice.apply(x).sum()",
    "a kernel": "lambda x: ByKernel.apply(x).sum()",
}


def notebook(text):
    """A namespace in which a cell has run."""
    space = {"ng": ng, "nn": nn, "numba": numba, "__name__": "notebook"}
    exec(compile(text, "<cell 1>", "exec"), space)
    return space


@pytest.mark.parametrize("use", USES)
def test_a_cell_that_is_run_again_is_noticed(use):
    space = notebook(TWICE)
    step = ng.compile(eval(USES[use], space))
    x = ng.ones(3)
    assert step(x).item() == step(x).item() == 6.0
    exec(compile(THRICE, "<cell 2>", "exec"), space)
    assert step(x).item() == step(x).item() == 9.0
    assert step.cache_info().recordings == 2


def edited(old, new):
    """What autoreload does: the functions that are there get other code."""
    for name, value in vars(new).items() if isinstance(new, type) else new.items():
        there = getattr(old, name, None) if isinstance(old, type) else old.get(name)
        if isinstance(value, types.FunctionType) and isinstance(there, types.FunctionType):
            there.__code__, there.__defaults__ = value.__code__, value.__defaults__
        elif isinstance(value, (property, staticmethod, classmethod)):
            setattr(old, name, value)
        elif isinstance(value, type) and isinstance(there, type):
            edited(there, value)


@pytest.mark.parametrize("use", [u for u in USES if u not in ("a kernel", "a Function")])
def test_a_module_that_is_reloaded_is_noticed(use):
    space = notebook(TWICE)
    step = ng.compile(eval(USES[use], space))
    space["model"].weight.data.fill_(1.0)
    x = ng.ones(3)
    before = step(x).item()
    new = THRICE.replace("self.weight * x", "self.weight * x * 3.0")
    edited(space, notebook(new))
    after = step(x).item()
    assert (before, after) == ((3.0, 9.0) if use == "forward" else (6.0, 9.0))


def test_the_compiled_function_itself_is_noticed():
    space = notebook(TWICE)
    step = ng.compile(space["helper"])
    assert step(ng.ones(3)).item() == 6.0
    space["helper"].__defaults__ = (5.0,)
    assert step(ng.ones(3)).item() == 15.0
    assert step.recordings[-1].startswith("the defaults of the function 'helper'")
    space["helper"].__code__ = notebook(TWICE.replace("x * scale", "x * scale * 2"))[
        "helper"
    ].__code__
    assert step(ng.ones(3)).item() == 30.0
    assert step.recordings[-1].startswith("the code of the function 'helper'")


def test_a_cell_that_is_run_again_as_it_was_records_nothing():
    text = "def helper(x):\n    return x.sum() * 2.0\n"
    space = notebook(text)
    step = ng.compile(eval("lambda x: helper(x)", space))
    for _ in range(3):
        assert step(ng.ones(3)).item() == 6.0
        exec(compile(text, "<cell 1>", "exec"), space)
    assert step.cache_info().recordings == 1


def test_it_is_said_which_function():
    space = notebook(TWICE)
    step = ng.compile(eval("lambda x: helper(x)", space))
    step(ng.ones(3))
    exec(compile("\n\n" + THRICE, "<cell 2>", "exec"), space)
    step(ng.ones(3))
    words = "the function 'helper' is helper at <cell 2>:4, was helper at <cell 1>:2"
    assert step.recordings[-1] == words


def test_a_function_that_replaces_a_function_is_refused():
    space = notebook(TWICE)
    text = """
def f(x):
    global helper
    helper = len
    return x * 2.0
"""
    exec(text, space)
    before = space["helper"]
    with pytest.raises(RecordingError, match="changes the function 'helper'"):
        ng.compile(space["f"])(ng.ones(3))
    assert space["helper"] is before


def test_models_that_a_function_does_not_know_do_not_concern_it():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    optimizer = ng.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    compiled, other = ng.compile(step), nn.Sequential(nn.Linear(2, 2))
    compiled(ng.ones(1, 3))
    other.eval()
    other[0].scale = 3
    other.append(nn.Linear(2, 2))
    later = ng.optim.Adam(nn.Linear(4, 4).parameters())
    later.add_param_group({"params": nn.Linear(5, 5).parameters()})
    later.load_state_dict(later.state_dict())
    compiled(ng.ones(1, 3))
    assert compiled.cache_info().recordings == 1
    model[1].p = 0.25
    compiled(ng.ones(1, 3))
    assert compiled.cache_info().recordings == 2
    model.eval()
    compiled(ng.ones(1, 3))
    assert compiled.cache_info().recordings == 3
    optimizer.add_param_group({"params": other.parameters()})
    compiled(ng.ones(1, 3))
    assert compiled.cache_info().recordings == 4
    model[0] = nn.Linear(3, 3)
    compiled(ng.ones(1, 3))
    assert compiled.cache_info().recordings == 5


def test_of_a_frozen_dataclass_what_is_named_is_looked_at():
    @dataclass(frozen=True)
    class Config:
        scale: float = 2.0
        layers: int = 3
        name: str = "small"

    config = Config()

    def scaled(x):
        return x * config.scale

    places = [(id(p.holder), p.name) for p in reach_of(scaled, []).places]
    assert len(places) == len(set(places))
    assert not {"layers", "name", "__setattr__", "__eq__"} & {name for _, name in places}
    compiled = ng.compile(scaled)
    assert compiled(ng.ones(1)).item() == 2
    object.__setattr__(config, "layers", 4)
    assert compiled(ng.ones(1)).item() == 2 and compiled.cache_info().recordings == 1
    object.__setattr__(config, "scale", 5.0)
    assert compiled(ng.ones(1)).item() == 5
    config = Config(scale=7.0)
    assert compiled(ng.ones(1)).item() == 7


def test_fields_count_that_an_unnamed_method_of_a_dataclass_compares():
    @dataclass
    class Config:
        layers: int = 3
        kind: str = "small"

    config, usual = Config(), Config()

    compiled = ng.compile(lambda x: x * 2 if config == usual else x * 3)
    assert compiled(ng.ones(1)).item() == 2
    config.layers = 4
    assert compiled(ng.ones(1)).item() == 3
    config.layers, config.kind = 3, "large"
    assert compiled(ng.ones(1)).item() == 3
    config = Config()
    assert compiled(ng.ones(1)).item() == 2


def test_operators_that_a_dataclass_defines_are_looked_at():
    @dataclass
    class Config:
        scale: float = 2.0

        def __mul__(self, x):
            return x * self.scale + bias

    bias, config = 1.0, Config()
    compiled = ng.compile(lambda x: config * x)
    assert compiled(ng.ones(1)).item() == 3
    bias = 2.0
    assert compiled(ng.ones(1)).item() == 4


def gained(x):
    return x * gained.gain * gained.more["k"][0]


class Gained(nn.Module):
    def forward(self, x):
        return x * Gained.forward.gain


def test_attributes_of_functions():
    gained.gain, gained.more = 1.0, {"k": [1.0]}
    compiled, x = ng.compile(gained), ng.ones(1)
    assert compiled(x).item() == 1.0
    gained.gain = 2.0
    assert [compiled(x).item(), compiled(x).item()] == [2.0, 2.0]
    gained.more["k"][0] = 3.0
    assert compiled(x).item() == 6.0
    Gained.forward.gain = 1.0
    model = Gained()
    compiled = ng.compile(lambda x: model(x))
    assert compiled(x).item() == 1.0
    Gained.forward.gain = 2.0
    assert compiled(x).item() == 2.0


IMPORTING = """
def step(x):
    from .values import Setting, scale
    from . import values
    import {package}.inner.deep
    return x * scale * Setting.rate * values.held[0] * {package}.inner.deep.factor

def looks_up(x):
    import importlib, sys
    values = importlib.import_module("{package}.values")
    return x * values.scale * sys.modules["{package}.inner.deep"].factor
"""


def test_a_function_with_many_names_before_an_import():
    lines = [f"    a{k} = {k}.5" for k in range(300)]
    space = notebook(
        "\n".join(["def step(x):", *lines, "    from math import pi", "    return x * pi"])
    )
    assert ng.compile(space["step"])(ng.ones(1)).item() == pytest.approx(math.pi)


def test_modules_that_are_imported_inside(tmp_path, monkeypatch):
    package = "imported_inside"
    inner = tmp_path / package / "inner"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner):
        (folder / "__init__.py").write_text("")
    (inner.parent / "values.py").write_text(
        "scale, held = 1.0, [1.0]\nclass Setting:\n    rate = 1.0\n"
    )
    (inner / "deep.py").write_text("factor = 1.0\n")
    (inner.parent / "steps.py").write_text(IMPORTING.format(package=package))
    monkeypatch.syspath_prepend(tmp_path)
    steps = importlib.import_module(f"{package}.steps")
    compiled, x = ng.compile(steps.step), ng.ones(1)
    assert compiled(x).item() == 1.0  # which imports them
    values, deep = [sys.modules[f"{package}.{each}"] for each in ("values", "inner.deep")]
    looked_up = ng.compile(steps.looks_up)
    assert looked_up(x).item() == 1.0
    values.scale = 2.0
    assert compiled(x).item() == 2.0 and looked_up(x).item() == 2.0
    values.Setting.rate = 3.0
    assert compiled(x).item() == 6.0
    values.held[0] = 5.0
    assert compiled(x).item() == 30.0
    deep.factor = 7.0
    assert compiled(x).item() == 210.0 and looked_up(x).item() == 14.0
    assert compiled.cache_info().recordings <= 5


def test_attributes_of_a_namespace_by_names_that_are_made():
    inner = types.SimpleNamespace(b=1.0)
    held, k = types.SimpleNamespace(rate_a=1.0, rate_b=2.0, a=inner), "a"
    getter, dotted = operator.attrgetter("rate_b"), operator.attrgetter("a.b")
    functions = [
        lambda x: x * getattr(held, "rate_" + k),
        lambda x: x * sum([v for v in vars(held).values() if v is not inner]),
        lambda x: x * sum(v for v in vars(held).values() if type(v) is float),
        lambda x: x * getter(held) + dotted(held),
        lambda x: x * functools.reduce(getattr, "a.b".split("."), held),
        lambda x: x * (2 if hasattr(held, "rate_" + k * 2) else 3),
    ]
    compiled = [ng.compile(function) for function in functions]
    x = ng.ones(1)
    for step in range(5):
        found = [function(x).item() for function in compiled]
        assert found == [function(x).item() for function in functions]
        held.rate_a += 3
        held.rate_b += 1
        inner.b += 0.5
        if step == 3:
            held.rate_aa = 1.0


def test_a_number_that_others_read_is_asked_for_its_type():
    """Read at each call by one function, and by value where ``type`` is asked."""
    held = types.SimpleNamespace(rate=1.0, calls=0)

    def counts(x):
        held.calls += 1
        return x * held.calls * (held.rate if type(held.rate) is float else 0.0)

    plain = ng.compile(lambda x: x * held.rate)
    asking = ng.compile(lambda x: x * (held.rate if type(held.rate) is float else 0.0))
    counting = ng.compile(counts)
    x = ng.ones(1)
    for k in range(1, 6):
        assert plain(x).item() == asking(x).item() == held.rate == k
        assert counting(x).item() == k * k and held.calls == k
        held.rate += 1
    assert plain.cache_info().recordings == 2


def test_a_namespace_that_gets_its_attribute_in_the_first_call():
    held = types.SimpleNamespace()

    def step(x):
        if not hasattr(held, "calls"):
            held.calls = 0
        held.calls += 1
        return x * held.calls

    compiled = ng.compile(step)
    assert [compiled(ng.ones(1)).item() for _ in range(4)] == [1, 2, 3, 4]


class Trainer:
    """Its loss may be another one for one of them alone."""

    act = staticmethod(ng.abs)

    def __init__(self):
        self.step = ng.compile(self._step)

    def loss(self, x):
        return x * 1.0

    @classmethod
    def shifted(cls, x):
        return x

    def _step(self, x):
        return self.act(self.shifted(self.loss(x)))


def test_an_object_that_gets_a_method_of_its_own_is_noticed():
    trainer, x = Trainer(), ng.ones(2)
    assert trainer.step(x).tolist() == [1.0, 1.0]
    trainer.loss = lambda x: x * -10.0
    assert trainer.step(x).tolist() == [10.0, 10.0]
    trainer.act = ng.neg
    assert trainer.step(x).tolist() == [10.0, 10.0]
    trainer.shifted = types.MethodType(lambda self, x: x + 1.0, trainer)
    assert trainer.step(x).tolist() == [9.0, 9.0]
    del trainer.loss, trainer.act
    assert trainer.step(x).tolist() == [2.0, 2.0]
    assert Trainer().step(x).tolist() == [1.0, 1.0]


def test_an_optimiser_whose_step_is_wrapped_is_noticed():
    p = nn.Parameter(ng.ones(2))
    optimizer = ng.optim.SGD([p], lr=0.5)

    @ng.compile
    def step():
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.step()

    step()
    assert p.tolist() == [0.5, 0.5]
    whole = optimizer.step

    def frozen():
        p.grad.zero_()
        return whole()

    optimizer.step = frozen
    step()
    assert p.tolist() == [0.5, 0.5]
    del optimizer.step
    step()
    assert p.tolist() == [0.0, 0.0]


class Inherited:
    gain, flag = 1.0, False


class Settings(Inherited):
    """Has its data from another class, until it gets its own."""


def test_data_that_a_class_gets_in_the_place_of_what_it_inherits():
    settings, x = Settings(), ng.ones(1)
    by_object = ng.compile(lambda x: x * settings.gain * (5 if settings.flag else 1))
    by_class = ng.compile(lambda x: x * Settings.gain)
    assert by_object(x).item() == by_class(x).item() == 1.0
    Settings.gain, Settings.flag = 3.0, True
    assert (by_object(x).item(), by_class(x).item()) == (15.0, 3.0)
    for gain in (4.0, 5.0):
        Settings.gain = gain
        assert (by_object(x).item(), by_class(x).item()) == (5 * gain, gain)
    del Settings.gain, Settings.flag
    assert by_object(x).item() == by_class(x).item() == 1.0


def test_what_is_deleted_is_noticed():
    module, x = types.ModuleType("settings"), ng.ones(1)
    module.GAIN = 3.0

    class Held:
        gain = 2.0

    space = {"GAIN": 5.0}
    exec(
        "def reads(x):\n    try:\n        return x * GAIN\n"
        "    except NameError:\n        return x * 100",
        space,
    )
    functions = [
        ng.compile(lambda x: x * getattr(module, "GAIN", 1.0)),
        ng.compile(lambda x: x * getattr(Held, "gain", 1.0)),
        ng.compile(space["reads"]),
    ]
    assert [f(x).item() for f in functions] == [3.0, 2.0, 5.0]
    del module.GAIN, Held.gain, space["GAIN"]
    assert [f(x).item() for f in functions] == [1.0, 1.0, 100.0]
    module.GAIN, space["GAIN"] = 7.0, 9.0
    assert [f(x).item() for f in functions] == [7.0, 1.0, 9.0]


def test_a_variable_that_is_deleted_is_noticed():
    scale = 2.0

    def reads(x):
        try:
            return x * scale
        except NameError:
            return x * 100

    def delete():
        nonlocal scale
        del scale

    compiled, x = ng.compile(reads), ng.ones(1)
    assert [compiled(x).item() for _ in range(2)] == [2.0, 2.0]
    delete()
    assert compiled(x).item() == 100.0


def test_an_attribute_that_stood_in_a_table_and_then_in_the_object():
    class Table:
        def __init__(self):
            self.table = {"gain": 1.0}

        def __getattr__(self, name):
            return self.table[name]

    held, x = Table(), ng.ones(1)
    compiled = ng.compile(lambda x: x * held.gain)
    assert compiled(x).item() == 1.0
    held.gain = 9.0
    assert compiled(x).item() == 9.0
    del held.gain
    held.table["gain"] = 4.0
    assert compiled(x).item() == 4.0


class Doubling:
    """Gives another function each time that it is asked."""

    def __get__(self, instance, owner):
        return lambda x: x * 2


def test_descriptors_of_the_user_stay_where_they_are():
    class Holder:
        go = Doubling()

    holder, x = Holder(), ng.ones(1)
    assert ng.compile(lambda x: holder.go(x))(x).item() == 2.0
    assert type(vars(Holder)["go"]) is Doubling and holder.go(x).item() == 2.0


def test_a_global_that_comes_later_for_a_function_inside():
    space = {}
    exec(
        "def reads(x):\n    def inner():\n        try:\n            return x * later\n"
        "        except NameError:\n            return x\n    return inner()",
        space,
    )
    reads, x = ng.compile(space["reads"]), ng.ones(1)
    assert reads(x).item() == 1.0
    space["later"] = 3.0
    assert reads(x).item() == 3.0
