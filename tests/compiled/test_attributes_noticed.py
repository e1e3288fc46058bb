"""What a compiled function reads of objects, tensors and the process by any name is noticed."""

import contextvars
import copy
import operator
import os
import types
from dataclasses import dataclass, field

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError

pytestmark = pytest.mark.interpreted


class Slotted:
    __slots__ = ("factors", "scale", "use")

    def __init__(self):
        self.scale, self.factors, self.use = 2.0, [1.0, 2.0], lambda x: x * 2.0

    def scaled(self, x):
        return x * self.scale


class Below(Slotted):
    """With a ``__dict__`` beside the slots of its base."""


@dataclass(frozen=True, slots=True)
class Setting:
    scale: float = 2.0


class Plain:
    def __init__(self):
        self.scale, self.factors, self.use = 2.0, [1.0, 2.0], lambda x: x * 2.0

    def scaled(self, x):
        return x * self.scale


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.factors, self.use = [1.0, 2.0], lambda x: x * 2.0

    def forward(self, x):
        return getattr(self, made("u", "se"))(x) * getattr(self, made("fac", "tors"))[1]


def made(first, *others):
    """A name of parts, that stands in no code."""
    return "".join([first, *others])


CHAIN = [f"part{k}" for k in range(9)]


def chain():
    """Objects of which each holds the next, by a name of its own."""
    held = first = Plain()
    for name in CHAIN:
        setattr(held, name, Plain())
        held = getattr(held, name)
    return first


def last(held):
    for name in CHAIN:
        held = getattr(held, made(name))
    return held


def down_the_chain(x, held):
    return x * last(held).scale


def in_a_module():
    module = types.ModuleType("settings_of_user")
    module.scale = 2.0
    return module


def parameter():
    found = nn.Parameter(ng.ones(2))
    found.scale = 2.0
    return found


def layer():
    found = nn.Linear(2, 2)
    found.weight.skip = True
    return found


def skipping(x, held):
    kept = [p for p in held.parameters() if not getattr(p, "skip", False)]
    return x * float(len(kept))


def scale_to(value):
    return lambda held: object.__setattr__(held, "scale", value)


def second_factor(held):
    held.factors[1] = 5.0


def another_use(held):
    held.use = lambda x: x * 7.0


reading = operator.attrgetter("scale")
by_name = operator.attrgetter(made("sca", "le"))

CASES = {
    "a slot": (Slotted, lambda x, held: held.scaled(x), scale_to(3.0)),
    "a list in a slot": (Slotted, lambda x, held: x * held.factors[1], second_factor),
    "a function in a slot": (Slotted, lambda x, held: held.use(x), another_use),
    "a slot of a base": (Below, lambda x, held: held.scaled(x), scale_to(3.0)),
    "a slot that is frozen": (Setting, lambda x, held: x * held.scale, scale_to(3.0)),
    "a slot that is emptied": (
        Slotted,
        lambda x, held: x * getattr(held, "scale", 5.0),
        lambda held: delattr(held, "scale"),
    ),
    "an attribute of a tensor": (parameter, lambda x, held: x * held.scale, scale_to(3.0)),
    "one that a tensor loses": (
        parameter,
        lambda x, held: x * getattr(held, "scale", 5.0),
        lambda held: delattr(held, "scale"),
    ),
    "one that a tensor gets": (
        lambda: ng.ones(2),
        lambda x, held: x * getattr(held, "scale", 1.0),
        scale_to(3.0),
    ),
    "of a parameter inside": (layer, skipping, lambda held: setattr(held.weight, "skip", False)),
    "a name made at run time": (
        Plain,
        lambda x, h: x * getattr(h, made("sca", "le")),
        scale_to(3.0),
    ),
    "of a slot": (Slotted, lambda x, h: x * getattr(h, made("sca", "le")), scale_to(3.0)),
    "of a list": (Plain, lambda x, h: x * getattr(h, made("fac", "tors"))[1], second_factor),
    "of a function": (Plain, lambda x, h: getattr(h, made("u", "se"))(x), another_use),
    "of a method": (Plain, lambda x, h: getattr(h, made("sca", "led"))(x), scale_to(3.0)),
    "of a module of Python": (
        in_a_module,
        lambda x, h: x * getattr(h, made("sca", "le")),
        scale_to(3),
    ),
    "what a module of Python gets": (
        in_a_module,
        lambda x, h: x * getattr(h, "more", 1.0),
        lambda h: setattr(h, "more", 3.0),
    ),
    "of objects in one another": (chain, down_the_chain, lambda held: scale_to(3.0)(last(held))),
    "of a function of a layer": (Layers, lambda x, held: held(x), another_use),
    "of a list of a layer": (Layers, lambda x, held: held(x), second_factor),
    "vars": (Plain, lambda x, held: x * vars(held)[made("sca", "le")], scale_to(3.0)),
    "a function in vars": (Plain, lambda x, held: vars(held)[made("u", "se")](x), another_use),
    "__dict__": (Plain, lambda x, held: x * held.__dict__[made("sca", "le")], scale_to(3.0)),
    "all of vars": (Plain, lambda x, held: x * len(vars(held)), lambda h: setattr(h, "more", 1)),
    "a copy": (Plain, lambda x, held: x * copy.copy(held).scale, scale_to(3.0)),
    "attrgetter": (Plain, lambda x, held: x * reading(held), scale_to(3.0)),
    "attrgetter of a made name": (Plain, lambda x, held: x * by_name(held), scale_to(3.0)),
    "what is not there": (
        Plain,
        lambda x, held: x * (2.0 if hasattr(held, "flag") else 1.0),
        lambda held: setattr(held, "flag", True),
    ),
    "nor is it by a made name": (
        Plain,
        lambda x, held: x * getattr(held, made("la", "ter"), 1.0),
        lambda held: setattr(held, "later", 3.0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_is_noticed(case):
    make, use, change = CASES[case]
    held, x = make(), ng.tensor([1.0, -2.0])

    def function(x):
        return use(x, held)

    compiled = ng.compile(function)
    for _ in range(3):
        assert ng.equal(compiled(x), function(x))
    recordings = compiled.cache_info().recordings
    before = function(x)
    change(held)
    for _ in range(3):
        assert ng.equal(compiled(x), function(x))
    assert not ng.equal(before, function(x))
    assert compiled.cache_info().recordings == recordings + 1 == 2
    assert not compiled.recordings[-1].startswith("a guard")


@pytest.mark.parametrize("make", [parameter, Slotted, Setting])
def test_what_an_argument_has_is_noticed(make):
    held = make()
    compiled = ng.compile(lambda x, held: x * held.scale * getattr(held, "flag", 1.0))
    assert compiled(ng.ones(1), held).item() == 2
    object.__setattr__(held, "scale", 3.0)
    assert compiled(ng.ones(1), held).item() == 3
    if make is parameter:
        held.flag = 2.0
        assert compiled(ng.ones(1), held).item() == 6
        assert "'flag' of argument 1 is 2.0, was not there" in compiled.recordings[-1]
        del held.flag, held.scale
        with pytest.raises(AttributeError, match="'Parameter' object has no attribute 'scale'"):
            compiled(ng.ones(1), held)


def test_of_an_argument_that_is_closed_over_too_it_is_noticed():
    weight = parameter()

    @ng.compile
    def function(given):
        weight.grad = None
        (weight.sum() * given.scale).backward()
        return given.sum() * 1.0

    for scale in (2.0, 3.0):
        weight.scale = scale
        for _ in range(2):
            function(weight)
            assert weight.grad.tolist() == [scale] * 2
    assert function.cache_info().recordings == 2


READINGS = {
    "environ": lambda x: x * float(os.environ["NUMBAGRAD_TESTED"]),
    "get": lambda x: x * float(os.environ.get("NUMBAGRAD_TESTED", "5")),
    "getenv": lambda x: x * float(os.getenv("NUMBAGRAD_TESTED", "5")),
    "in": lambda x: x * (2.0 if "NUMBAGRAD_TESTED" in os.environ else 1.0),
}


@pytest.mark.parametrize("way", READINGS)
def test_the_environment_is_noticed(way, monkeypatch):
    function = READINGS[way]
    compiled = ng.compile(function)
    for value in ("2", "3", None):
        if value is not None:
            monkeypatch.setenv("NUMBAGRAD_TESTED", value)
        elif way == "environ":
            break
        else:
            monkeypatch.delenv("NUMBAGRAD_TESTED")
        for _ in range(2):
            assert compiled(ng.ones(1)).item() == function(ng.ones(1)).item()
    assert compiled.cache_info().recordings == (2 if way == "environ" else 3)
    monkeypatch.setenv("NUMBAGRAD_TESTED", "7")
    compiled(ng.ones(1))
    was = "'3'" if way == "environ" else "not there"
    assert f"variable 'NUMBAGRAD_TESTED' is '7', was {was}" in compiled.recordings[-1]


def test_a_variable_of_the_environment_that_is_read_and_set_is_refused(monkeypatch):
    monkeypatch.setenv("NUMBAGRAD_TESTED", "2")

    def counting(x):
        os.environ["NUMBAGRAD_TESTED"] += "1"
        return x * 2.0

    with pytest.raises(RecordingError, match="changes the environment variable 'NUMBAGRAD_TESTED'"):
        ng.compile(counting)(ng.ones(1))
    assert os.environ["NUMBAGRAD_TESTED"] == "2"


@pytest.mark.parametrize("given", [{}, {"default": 2.0}], ids=["set", "default"])
def test_a_context_variable_is_noticed(given):
    scale = contextvars.ContextVar("scale", **given)
    token = None if given else scale.set(2.0)
    holder = types.SimpleNamespace(scale=scale)
    recordings = []
    for function in (lambda x: x * scale.get(), lambda x: x * holder.scale.get()):
        compiled = ng.compile(function)
        assert compiled(ng.ones(1)).item() == 2.0
        inner = scale.set(3.0)
        assert compiled(ng.ones(1)).item() == 3.0
        recordings += compiled.recordings[1:]
        found = contextvars.copy_context().run(lambda c: [scale.set(4.0), c(ng.ones(1))], compiled)
        assert found[1].item() == 4.0
        scale.reset(inner)
        assert compiled(ng.ones(1)).item() == 2.0
    assert "the context variable 'scale' is 3.0, was " in recordings[0]
    assert token is None or token.old_value is contextvars.Token.MISSING


def test_a_context_variable_may_be_set_for_a_while():
    scale = contextvars.ContextVar("scale", default=1.0)

    def inner(x):
        return x * scale.get()

    @ng.compile
    def function(x):
        token = scale.set(2.0)
        try:
            return inner(x)
        finally:
            scale.reset(token)

    assert [function(ng.ones(1)).item() for _ in range(2)] == [2.0, 2.0]
    assert function.cache_info().recordings == 1 and scale.get() == 1.0


class Log:
    __slots__ = ("calls", "last", "lines", "mean")

    def __init__(self):
        self.lines, self.calls, self.last, self.mean = [], 0, "", ng.zeros(1)


def test_a_log_in_a_slot_is_neither_refused_nor_recorded_for():
    log = Log()

    @ng.compile
    def function(x):
        log.lines.append(f"{x.shape}")
        log.last = f"{len(log.lines)} {x.shape}"
        return x * 2.0

    for _ in range(4):
        for n in (1, 2, 3):
            assert function(ng.ones(n)).tolist() == [2.0] * n
    assert function.cache_info().recordings == 3 == len(log.lines)


def test_numbers_and_tensors_in_slots_are_set_by_each_call():
    log = Log()

    @ng.compile
    def function(x):
        log.calls += 1
        log.mean = 0.5 * (log.mean + x)
        return x * log.calls

    for call in range(1, 4):
        assert function(ng.ones(1)).item() == call
    log.calls, log.mean = 10, ng.zeros(1)
    assert function(ng.ones(1)).item() == 11
    assert (log.calls, log.mean.item()) == (11, 0.5)
    assert function.cache_info().recordings == 1


def test_numbers_of_tensors_are_set_by_each_call():
    weight = parameter()

    @ng.compile
    def function(x):
        weight.scale *= 0.5
        return x * weight.scale

    assert [function(ng.ones(1)).item() for _ in range(3)] == [1.0, 0.5, 0.25]
    assert weight.scale == 0.25 and function.cache_info().recordings == 1


def test_objects_classes_and_modules_are_as_before_the_recording():
    plain, module = Plain(), in_a_module()
    ng.compile(lambda x: x * plain.scale * module.scale)(ng.ones(1))
    assert type(module) is types.ModuleType and "__getattribute__" not in vars(Plain)
    assert "__getattr__" not in vars(ng.Tensor)
    with pytest.raises(ZeroDivisionError):
        ng.compile(lambda x: x * plain.scale * module.scale * (1 / 0))(ng.ones(1))
    assert type(module) is types.ModuleType and "__getattribute__" not in vars(Plain)
    assert type(os.environ).__getitem__.__qualname__ == "_Environ.__getitem__"


def test_a_class_that_looks_up_its_attributes_itself():
    @dataclass
    class Config:
        inner: dict = field(default_factory=lambda: {"scale": 2.0})

        def __getattribute__(self, name):
            inner = object.__getattribute__(self, "inner")
            return inner[name] if name in inner else object.__getattribute__(self, name)

    config, way = Config(), vars(Config)["__getattribute__"]
    compiled = ng.compile(lambda x: x * config.scale)
    assert compiled(ng.ones(1)).item() == 2.0
    config.inner["scale"] = 3.0
    assert compiled(ng.ones(1)).item() == 3.0
    assert vars(Config)["__getattribute__"] is way
