"""Objects with tensors in their attributes as arguments and results of compiled functions."""

from __future__ import annotations

import copy
import functools
import gc
from collections import OrderedDict, UserDict
from dataclasses import dataclass, fields
from enum import Enum
from types import SimpleNamespace

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError


class Data:
    """A graph: nodes, and pairs of them."""

    def __init__(self, x=None, edge_index=None, y=None, **others):
        self.x, self.edge_index, self.y = x, edge_index, y
        self.__dict__.update(others)

    @property
    def num_nodes(self):
        return self.x.shape[0]

    def gathered(self, scale=1.0):
        start, end = self.edge_index
        return ng.zeros_like(self.x).index_add(0, end, self.x[start]) * scale

    def __getitem__(self, name):
        return getattr(self, name)


class Output(OrderedDict):
    """As ModelOutput: what is set are its attributes and its items."""

    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self.values())


@dataclass
class Logits(Output):
    """Of a classifier."""

    loss: ng.Tensor | None = None
    logits: ng.Tensor | None = None
    states: tuple | None = None


class Attributes(dict):
    """A dict whose items are its attributes."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Named(dict):
    """A dict with a name."""

    name = "none"


class Encoding(UserDict):
    """As BatchEncoding: holds a dict, and finds attributes there."""

    def __getattr__(self, name):
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None


class Split(Enum):
    """Which part of the data."""

    TRAIN = 1


EDGES = ng.tensor([[0, 1, 2], [1, 2, 0]])


def graph(k, **others):
    return Data(ng.full((3, 2), 1.0 + k), EDGES.clone(), ng.tensor([0, 1, k % 2]), **others)


def named(k):
    found = Named(x=ng.ones(2) * k, n=3)
    found.name = f"{found['n']} numbers"
    return found


# name: (function, how to make its argument for call k)
OBJECTS = {
    "namespace": (
        lambda b: b.x * b.scale + b.more["y"],
        lambda k: SimpleNamespace(x=ng.ones(2) * k, scale=0.5 + k, more={"y": ng.ones(2)}),
    ),
    "plain": (lambda d: d.x[d.edge_index[0]].sum(0) + d.y.sum(), graph),
    "methods": (lambda d: d.gathered(0.5) * d.num_nodes + d["x"], graph),
    "text, None, enumeration": (
        lambda d: d.x * 2.0 if d.name == "a" and d.split is Split.TRAIN else d.missing,
        lambda k: graph(k, name="a", split=Split.TRAIN, missing=None, sizes=[1, 2]),
    ),
    "nested": (
        lambda d: d.parts[0].gathered() + d.more.inner.x * d.weight,
        lambda k: Data(
            parts=[graph(k), graph(k + 1)], more=Data(inner=graph(k)), weight=float(k)
        ),
    ),
    "subclass of dict": (lambda d: d["x"] * d["n"] + len(d.name), named),
    "output": (
        lambda o: o.logits * o.loss + o["logits"] + o.to_tuple()[1].sum() + o.states[0],
        lambda k: Logits(ng.tensor(float(k)), ng.ones(3) * k, (ng.ones(3),)),
    ),
    "dict that is its attributes": (
        lambda d: d.x + d["y"],
        lambda k: Attributes(x=ng.ones(2) * k, y=ng.ones(2)),
    ),
    "dict in an object": (
        lambda d: d.ids * d["mask"],
        lambda k: Encoding({"ids": ng.tensor([k, 2]), "mask": ng.tensor([1, 0])}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OBJECTS)
def test_new_objects_of_one_kind_run_one_recording(name):
    function, make = OBJECTS[name]
    compiled = ng.compile(function)
    for k in range(5):
        assert compiled(make(k)).tolist() == function(make(k)).tolist()
    assert compiled.cache_info().recordings == 1, compiled.recordings


# name: (function of a number tensor, what to look at of its result)
RESULTS = {
    "namespace": (
        lambda x: SimpleNamespace(h=x * 2.0, both=[x + 1.0], name="a"),
        lambda r: (r.h.tolist(), r.both[0].tolist(), r.name),
    ),
    "plain": (
        lambda x: Data(x, EDGES, x * 2.0),
        lambda r: (r.x.tolist(), r.y.tolist(), r.num_nodes, r.gathered().tolist()),
    ),
    "output": (
        lambda x: Logits(loss=x.sum(), logits=x * 2.0),
        lambda r: (list(r), r.loss is r["loss"], r.logits is r["logits"], r.states,
                   r.logits.tolist(), len(r.to_tuple()), next(reversed(r))),
    ),
    "dict that is its attributes": (
        lambda x: Attributes(x=x, y=x * 2.0),
        lambda r: (r.x.tolist(), r.y is r["y"], vars(r) is r),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_results(name):
    function, look = RESULTS[name]
    compiled = ng.compile(function)
    before = None
    for k in range(4):
        x = ng.ones(3, 2) * k
        found, expected = compiled(x), function(x)
        assert type(found) is type(expected) and found is not before
        assert look(found) == look(expected)
        before = found
    assert compiled.cache_info().recordings == 1


def test_what_attributes_are_belongs_to_the_signature():
    step = ng.compile(lambda d: d.x * 2.0 if d.mode == "double" else d.x)
    for mode in ("double", "single", "double"):
        assert step(graph(1, mode=mode)).sum().item() == (24.0 if mode == "double" else 12.0)
    assert step.cache_info().recordings == 2


def test_a_training_step_on_graphs():
    def make():
        ng.manual_seed(0)
        net = nn.Linear(2, 2)
        optimizer = ng.optim.SGD(net.parameters(), lr=0.1)

        def step(data):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(data.gathered()), data.y)
            loss.backward()
            optimizer.step()
            return SimpleNamespace(loss=loss.detach())

        return step

    eager, compiled = make(), ng.compile(make())
    for k in range(5):
        assert ng.allclose(compiled(graph(k)).loss, eager(graph(k)).loss)
    assert compiled.cache_info().recordings == 1


CHANGES = {
    "other tensor": lambda d: setattr(d, "x", d.x * 2.0),
    "new tensor": lambda d: setattr(d, "h", d.x * 2.0),
    "new number": lambda d: setattr(d, "count", 1),
    "deleted": lambda d: delattr(d, "y"),
    "inside": lambda d: d.more.append(d.x),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_attributes_are_refused(name):
    data = graph(1, more=[ng.ones(2)])
    held = dict(vars(data))
    with pytest.raises(RecordingError, match=r"attribute of an object.*copy\.copy"):
        ng.compile(CHANGES[name])(data)
    assert vars(data) == held and len(data.more) == 1


def test_changed_items_are_refused():
    for make in (lambda: Attributes(x=ng.ones(2)), lambda: Logits(logits=ng.ones(2))):
        given = make()
        with pytest.raises(RecordingError, match="changes a list or dict"):
            ng.compile(lambda d: d.__setitem__("h", ng.ones(2)))(given)
        assert "h" not in given


def test_a_copy_may_be_changed():
    @ng.compile
    def step(data):
        data = copy.copy(data)
        data.h = data.x * 2.0
        return data

    for k in range(3):
        data = graph(k)
        found = step(data)
        assert found.x is data.x and found.h.tolist() == (data.x * 2.0).tolist()
        assert not hasattr(data, "h")
    assert step.cache_info().recordings == 1


def test_tensors_may_be_changed_in_place():
    step = ng.compile(lambda d: d.x.mul_(2.0).sum())
    for k in range(3):
        data = graph(k)
        assert step(data).item() == 12.0 * (k + 1)
        assert data.x.tolist() == [[2.0 * (k + 1)] * 2] * 3
    assert step.cache_info().recordings == 1


class Wrapped:
    """Holds a model."""

    def __init__(self, model, scale):
        self.model, self.scale = model, scale


def test_what_holds_a_model_is_known_by_itself():
    step = ng.compile(lambda w, x: w.model(x) * w.scale)
    leaf = ng.compile(lambda w, x: (x * w.scale).sum().backward())
    for k in range(2):
        wrapped = Wrapped(nn.Linear(2, 2), ng.ones(2) * k)
        trained = Wrapped(None, ng.ones(2, requires_grad=True))
        for _ in range(3):
            x = ng.randn(3, 2)
            assert ng.allclose(step(wrapped, x), wrapped.model(x) * wrapped.scale)
            leaf(trained, ng.ones(2))
        assert trained.scale.grad.tolist() == [3.0, 3.0]
    assert step.cache_info().recordings == 2


class Slotted:
    """Has no dict."""

    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


class Cyclic:
    """Knows itself."""

    def __init__(self, x):
        self.x, self.me = x, self


class Closing:
    """Does something when it dies."""

    closed = 0

    def __init__(self, x):
        self.x = x

    def __del__(self):
        type(self).closed += 1


@pytest.mark.parametrize("kind", [Slotted, Cyclic, Closing])
def test_kinds_that_are_known_by_themselves(kind):
    step = ng.compile(lambda d: d.x * 2.0)
    for k in range(2):
        given = kind(ng.ones(2) * k)
        for _ in range(2):
            assert step(given).tolist() == [2.0 * k] * 2
    assert step.cache_info().recordings == 2
    gc.collect()


class Model:
    """Its step is compiled as a method."""

    def __init__(self, factor):
        self.factor, self.calls = ng.tensor(factor), 0

    @ng.compile
    def scaled(self, x):
        return x * self.factor

    @ng.compile
    def counted(self, x):
        self.calls += 1
        return x


def test_the_object_of_a_method_is_known_by_itself():
    two, three = Model(2.0), Model(3.0)
    for _ in range(2):
        assert two.scaled(ng.ones(1)).item() == 2.0 and three.scaled(ng.ones(1)).item() == 3.0
    assert Model.scaled.cache_info().recordings == 2
    for _ in range(3):
        two.counted(ng.ones(1))
    three.counted(ng.ones(1))
    assert (two.calls, three.calls) == (3, 1)
    assert Model.counted.cache_info().recordings == 2


SCALE = [2.0]


class Scaled(Data):
    """What its methods find elsewhere is noticed."""

    def scaled(self):
        return self.x * SCALE[0]

    def __add__(self, other):
        return self.x * SCALE[0] + other


def test_what_methods_look_at_is_noticed(monkeypatch):
    for function in (lambda d: d.scaled(), lambda d: d + 1.0):
        step = ng.compile(function)
        for scale in (2.0, 3.0):
            monkeypatch.setitem(globals(), "SCALE", [scale])
            given = Scaled(ng.ones(2))
            assert step(given).tolist() == function(given).tolist()


class Counted(Data):
    """Keeps what it has found."""

    @functools.cached_property
    def count(self):
        return self.x.shape[0]

    @functools.cached_property
    def doubled(self):
        return self.x * 2.0


def test_cached_properties():
    @ng.compile
    def step(given, others):
        return given.doubled * given.count + others[0].doubled

    for k in range(3):
        given, other = Counted(ng.ones(2) * k), Counted(ng.ones(2))
        assert step(given, [other]).tolist() == [4.0 * k + 2.0] * 2
        assert "doubled" not in vars(given)
    assert step.cache_info().recordings == 1
    stale = Counted(ng.ones(2))
    assert stale.doubled.tolist() == [2.0, 2.0]
    stale.x = ng.zeros(2)
    assert step(stale, [Counted(ng.ones(2))]).tolist() == [6.0, 6.0]


KNOWN = Data(ng.ones(2))


def test_an_object_that_was_there_is_returned_itself():
    def step(x):
        KNOWN.x.mul_(x)
        return KNOWN, [KNOWN]

    compiled = ng.compile(step)
    for _ in range(2):
        found, (again,) = compiled(ng.full((), 2.0))
        assert found is again is KNOWN
    assert KNOWN.x.tolist() == [4.0, 4.0]
