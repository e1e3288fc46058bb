"""What goes in and out of a compiled function: containers, aliases, in-place changes, errors."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import threading
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn, optim
from numbagrad.errors import GradError, RecordingError, VersionError

from .following import World, assert_same, batches, snapshot

Pair = namedtuple("Pair", "first second")


@dataclass
class Batch:
    """What a loader gives, or a model; tests make one of each call."""

    inputs: ng.Tensor
    extra: dict
    name: str = "train"


def agree(function, make, calls=3, before=None):
    """Assert that ``function`` does compiled what it does eagerly, to its arguments too."""
    compiled = ng.compile(function)
    for k in range(calls):
        seen = []
        for f in (function, compiled):
            args = make(k)
            result = f(*args)
            seen.append(snapshot([result, *args]))
        assert_same(seen[1], seen[0], f"call {k}: ")
    return compiled


def vector(k=0, **options):
    return ng.tensor([1.0 + k, 2.0, 3.0], **options)


# name: (function, how to make its arguments for call k)
ARGUMENTS = {
    "dict": (
        lambda d: {"sum": d["x"] + d["y"], "x": d["x"]},
        lambda k: [{"x": vector(k), "y": vector()}],
    ),
    "tuple": (lambda p: (p[0] * 2.0, [p[1]]), lambda k: [(vector(k), vector())]),
    "named tuple": (
        lambda p: Pair(p.first + p.second, p.first),
        lambda k: [Pair(vector(k), vector())],
    ),
    "nested": (
        lambda x: {"a": [x + 1.0, (x * 2.0,)], "b": None, "c": "text"},
        lambda k: [vector(k)],
    ),
    "nothing": (lambda x: None, lambda k: [vector(k)]),
    "input returned": (lambda x: x, lambda k: [vector(k)]),
    "input returned twice": (lambda x: (x, x), lambda k: [vector(k)]),
    "result returned twice": (lambda x: [x + 1.0] * 2, lambda k: [vector(k)]),
    "view of an input": (lambda x: x[1:], lambda k: [vector(k)]),
    "views of one result": (lambda x: ((y := x * 2.0), y[1:], y.view(3, 1)), lambda k: [vector(k)]),
    "transposed": (lambda x: (x.t() + 1.0, x.t()), lambda k: [ng.ones(2, 3) * (k + 1.0)]),
    "in place": (lambda x: x.mul_(2.0), lambda k: [vector(k)]),
    "in place on a view": (lambda x: x[1:].add_(1.0), lambda k: [vector(k)]),
    "set item": (lambda x, y: x.__setitem__(0, y[1]), lambda k: [vector(k), vector()]),
    "in place twice": (lambda x: (x.add_(1.0), x.mul_(2.0))[1].sum(), lambda k: [vector(k)]),
    "constant": (lambda x: (ng.tensor([1.0, 2.0]), x), lambda k: [vector(k)]),
    "constant changed": (lambda x: ng.zeros(3).add_(x), lambda k: [vector(k)]),
    "constant written": (
        lambda x: ((c := ng.tensor([1.0, 2.0, 3.0])).add_(x), c[1:], c * 2.0),
        lambda k: [vector(k)],
    ),
    "constant written and multiplied": (
        lambda x: (c := ng.tensor([[1.0, 2.0], [3.0, 4.0]])).mul_(x) @ c,
        lambda k: [ng.tensor(k + 1.0)],
    ),
    "no tensors": (lambda: ng.arange(3).float() * 2.0, lambda k: []),
    "strided": (lambda x: x * 2.0, lambda k: [ng.ones(3, 4)[:, 1 : 2 + k]]),
    "strided in place": (lambda x: x.mul_(2.0), lambda k: [ng.ones(3, 4)[:, ::2]]),
    "expanded": (lambda x: x + 1.0, lambda k: [ng.ones(1, 3).expand(2, 3)]),
    "empty": (lambda x: (x * 2.0, x.sum()), lambda k: [ng.ones(0, 3)]),
    "scalar": (lambda x: x * 2.0 + 1, lambda k: [ng.tensor(float(k))]),
    "ints": (lambda x: (x + 1, x * 0.5, x == 1), lambda k: [ng.tensor([k, 1, 2])]),
    "requires grad": (lambda x: (x * 2.0).detach(), lambda k: [vector(k, requires_grad=True)]),
    "backward inside": (
        lambda x: (x * x).sum().backward(),
        lambda k: [vector(k, requires_grad=True)],
    ),
    "gradient returned": (
        lambda x: ((x * x).sum().backward(), x.grad)[1],
        lambda k: [vector(k, requires_grad=True)],
    ),
    "requires_grad_": (lambda x: (x * 2.0).requires_grad_(), lambda k: [vector(k)]),
}  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name):
    function, make = ARGUMENTS[name]
    agree(function, make)


def test_dataclasses_of_tensors():
    def function(batch, scale):
        inputs, (more,) = batch.inputs, batch.extra["more"]
        return Batch(inputs * scale + more, {"sum": more.sum()}, batch.name + "ed")

    compiled = ng.compile(function)
    for k in range(3):
        batch = Batch(vector(k), {"more": [vector()]})
        given, found = function(batch, 0.5), compiled(batch, 0.5)
        assert type(found) is Batch and found.name == "trained"
        assert found.inputs.tolist() == given.inputs.tolist()
        assert found.extra["sum"].item() == given.extra["sum"].item()
    assert compiled.cache_info().recordings == 1
    with pytest.raises(RecordingError, match="changes a list or dict"):
        ng.compile(lambda batch: setattr(batch, "inputs", batch.inputs * 2.0))(batch)


def test_results_are_fresh():
    double = ng.compile(lambda x: x * 2.0)
    first = double(vector())
    kept = first.tolist()
    second = double(vector(5))
    assert first.tolist() == kept and second.tolist() != kept
    assert first.data_ptr() != second.data_ptr()


def test_views_share_memory_and_version():
    part = ng.compile(lambda x: x[1:])
    x = vector()
    y = part(x)
    assert y.data_ptr() == x[1:].data_ptr()
    with ng.no_grad():
        y.mul_(2.0)
    assert x.tolist() == [1.0, 4.0, 6.0] and x._version == y._version == 1
    assert part(x)._base is x


def test_gradients_of_a_lasting_argument_add_up():
    def work(x):
        (x * x).sum().backward()
        return x.grad

    seen = []
    for f in (work, ng.compile(work)):
        x = vector(requires_grad=True)
        for _ in range(5):
            found = f(x)
            assert found is x.grad
            seen.append(found.tolist())
    assert seen[:5] == seen[5:]


# -- aliases ---------------------------------------------------------------------------------------


def test_arguments_may_be_the_same():
    def add_to(x, y):
        x.add_(y)
        return x + y

    def make(k):
        x = vector(k)
        return [(x, x), (x, vector()), (x[:2], x[1:]), (x, x.clone()), (x, x.detach())][k]

    agree(add_to, make, 5)


def test_reading_the_same_argument_twice():
    agree(lambda x, y: x * y + x, lambda k: [x := vector(k), x])


def test_argument_is_a_parameter():
    weight = ng.tensor([1.0, 1.0, 1.0])

    def shift(x):
        weight.add_(x)
        return weight * x

    shifted = ng.compile(shift)
    for f in (shift, shifted):
        weight.fill_(1.0)
        seen = [
            f(vector()).tolist(),
            f(weight).tolist(),
            f(vector()).tolist(),
            f(weight[:]).tolist(),
        ]
        if f is shift:
            expected = seen
    assert seen == expected


def test_argument_overlaps_what_is_written():
    memory = ng.arange(6).float()

    def shift(x):
        memory[1:4] = x
        return memory.sum()

    shifted = ng.compile(shift)
    seen = []
    for f in (shift, shifted):
        memory.copy_(ng.arange(6).float())
        for x in (vector(), memory[0:3], memory[2:5], vector(1)):
            seen.append((f(x).item(), memory.tolist()))
    assert seen[:4] == seen[4:]


# -- ways to call ----------------------------------------------------------------------------------


def test_keywords_and_defaults():
    @ng.compile
    def affine(x, scale=2.0, *rest, shift=1.0, negate=False):
        y = x * scale + shift
        return -y if negate else y

    x = vector()
    assert affine(x).tolist() == (x * 2.0 + 1.0).tolist()
    assert affine(x, 3.0).tolist() == (x * 3.0 + 1.0).tolist()
    assert affine(x, scale=4.0).tolist() == (x * 4.0 + 1.0).tolist()
    assert affine(x, shift=0.5, negate=True).tolist() == (-(x * 2.0 + 0.5)).tolist()
    assert affine(x=x, shift=-1.0).tolist() == (x * 2.0 - 1.0).tolist()


class Scaler:
    def __init__(self, factor):
        self.factor = ng.tensor(factor)

    @ng.compile
    def __call__(self, x):
        return x * self.factor

    @ng.compile
    def scale(self, x):
        """Scale x."""
        return x * self.factor


def test_method():
    two, three = Scaler(2.0), Scaler(3.0)
    for k in range(3):
        assert two.scale(vector(k)).tolist() == (vector(k) * 2.0).tolist()
        assert three.scale(vector(k)).tolist() == (vector(k) * 3.0).tolist()
        assert two(vector(k)).tolist() == (vector(k) * 2.0).tolist()
    two.factor = ng.tensor(5.0)
    assert two.scale(vector()).tolist() == (vector() * 5.0).tolist()
    two.factor.fill_(6.0)
    assert two.scale(vector()).tolist() == (vector() * 6.0).tolist()
    assert Scaler.scale.__doc__ == "Scale x."


def test_compiled_inside_compiled():
    inner = ng.compile(lambda x: x * 2.0)
    outer = ng.compile(lambda x: inner(x) + inner(x + 1.0))
    for k in range(2):
        assert outer(vector(k)).tolist() == (vector(k) * 4.0 + 2.0).tolist()
        assert inner(vector(k)).tolist() == (vector(k) * 2.0).tolist()


def test_threads_share_a_compiled_function():
    def work(x, y):
        return (x @ y).tanh().sum(1)

    compiled = ng.compile(work)
    sizes = [(4, 3), (6, 3), (4, 3), (5, 3)]
    inputs = [(ng.rand(n, m), ng.rand(m, 2)) for n, m in sizes]
    expected = [work(*pair).numpy() for pair in inputs]
    failures = []

    def call(number):
        try:
            for _ in range(50):
                found = compiled(*inputs[number]).numpy()
                np.testing.assert_allclose(found, expected[number], 1e-5)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(len(sizes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_two_threads_train_two_models():
    ng.manual_seed(0)
    worlds = [World(), World()]
    data = list(batches(20))
    expected = []
    for world in worlds:
        other = World()
        other.net.load_state_dict(world.net.state_dict())
        for x, y in data:
            other.train(x, y)
        expected.append(snapshot([p.data for p in other.net.parameters()]))
    failures = []

    def train(world):
        try:
            step = ng.compile(world.train)
            for x, y in data:
                step(x, y)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=train, args=(world,)) for world in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    for world, values in zip(worlds, expected, strict=True):
        assert_same(snapshot([p.data for p in world.net.parameters()]), values, tolerance=1e-5)


def test_compiled_optimizer_after_eager_backward():
    ng.manual_seed(0)
    world = World(momentum=0.9)
    ng.manual_seed(0)
    other = World(momentum=0.9)

    def update(which):
        nn.utils.clip_grad_norm_(which.net.parameters(), 0.5)
        which.optimizer.step()

    compiled = ng.compile(lambda: update(world))
    for x, y in batches(6):
        for each, step in ((world, compiled), (other, lambda: update(other))):
            each.optimizer.zero_grad()
            each.loss(x, y).backward()
            step()
        assert_same(snapshot(world), snapshot(other))
    assert compiled.cache_info().recordings == 1


def test_two_steps_of_a_game_share_a_network():
    """As a GAN trains: each step leaves gradients in the net that the other one owns."""

    def make():
        ng.manual_seed(1)
        players = [nn.Linear(3, 3), nn.Linear(3, 1)]
        return players, [optim.SGD(p.parameters(), lr=0.1, momentum=0.5) for p in players]

    def steps(players, optimizers):
        def judge(x):
            optimizers[1].zero_grad()
            loss = players[1](players[0](x).detach()).mean() - players[1](x).mean()
            loss.backward()
            optimizers[1].step()
            return loss

        def play(x):
            optimizers[0].zero_grad()
            loss = -players[1](players[0](x)).mean()
            loss.backward()
            optimizers[0].step()
            return loss

        return judge, play

    eager, worlds = steps(*(one := make())), (one, two := make())
    compiled = [ng.compile(f) for f in steps(*two)]
    for x, _ in batches(6):
        for a, b in zip(eager, compiled, strict=True):
            assert_same(snapshot(b(x).detach()), snapshot(a(x).detach()))
            found, expected = (
                [
                    [p.data, p.grad is not None and p.grad.numpy()]
                    for m in w[0]
                    for p in m.parameters()
                ]
                for w in (worlds[1], worlds[0])
            )
            assert_same(snapshot(found), snapshot(expected))
    assert [f.cache_info().recordings for f in compiled] == [1, 1]


# -- what cannot be recorded -----------------------------------------------------------------------

KEPT: list = []


class Holder:
    kept = None


def keep_in_list(x):
    KEPT.append(x * 2.0)


def keep_over_a_collection(x):
    KEPT.append(x * 2.0)
    gc.collect()
    return x


def keep_on_object(x):
    setattr(Holder, "".join(["made_", "here"]), x * 2.0)


def keep_argument(x):
    KEPT.append(x)


def read_after_writing(x):
    STATE.mul_(2.0)
    STATE.grad = x * 2.0
    return STATE.sum().item()


STATE = ng.tensor([1.0, 2.0, 3.0], requires_grad=False)
OUTER = ng.tensor([1.0, 2.0, 3.0], requires_grad=True)
NON_LEAF = OUTER * 2.0
SCHEDULED = World()


def train_and_read(x):
    loss = SCHEDULED.train(ng.ones(2, 3), ng.ones(2, 2))
    return float(loss)


REFUSED = {
    "item": (lambda x: x.sum().item(), "item"),
    "float": (lambda x: float(x.sum()), "float|item"),
    "int": (lambda x: int(x.sum()), "int|item"),
    "bool": (lambda x: x if x.sum() > 0 else -x, "bool"),
    "tolist": (lambda x: x.tolist(), "tolist"),
    "numpy": (lambda x: x.numpy(), "numpy"),
    "numpy of a result": (lambda x: (x * 2.0).numpy(), "numpy"),
    "array": (lambda x: np.asarray(x), "numpy|array"),
    "numpy function": (lambda x: np.sin(x), "numpy|array"),
    "print": (lambda x: print(x), "print|repr|str"),
    "format": (lambda x: f"{x.sum():.2f}", "format|item|print"),
    "mask": (lambda x: len(x[x > 0]), "mask"),
    "nonzero": (lambda x: x.nonzero().numel(), "what a mask selects"),
    "bincount": (lambda x: x.long().bincount(), "bincount"),
    "unique": (lambda x: x.unique(), "numpy"),
    "python index": (lambda x: [1, 2, 3][x.sum().long()], "index|item|int"),
    "in": (lambda x: 2.0 in x, "in|contains|bool|item"),
    "address": (lambda x: x if x.data_ptr() == x.clone().data_ptr() else -x, "data_ptr"),
    "math": (lambda x: math.sqrt(x.sum()), "float|item"),
    "constant read": (lambda x: (c := ng.tensor([1.0, 2.0, 3.0])).add_(x) * c[0].item(), "item"),
    "state read": (read_after_writing, "item"),
    "kept in a list": (keep_in_list, "kept outside"),
    "kept over a collection": (keep_over_a_collection, "kept outside"),
    "kept on an object": (keep_on_object, "kept"),
    "argument kept": (keep_argument, "kept"),
    "non-leaf changed": (lambda x: NON_LEAF.mul_(x), "history"),
    "loss read": (train_and_read, "float|item"),
    "seed": (lambda x: ng.manual_seed(1), "seed"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    function, words = REFUSED[name]
    world = [STATE, OUTER, NON_LEAF.detach(), SCHEDULED]
    x = vector()
    expected = snapshot([*world, x, ng.get_rng_state()])
    KEPT.clear()
    with pytest.raises(RecordingError, match=f"(?i){words}") as caught:
        ng.compile(function)(x)
    assert_same(snapshot([*world, x, ng.get_rng_state()]), expected, tolerance=0)
    assert NON_LEAF.grad_fn.name() == "MulBackward"
    if "kept" not in words and words != "history":
        assert "test_arguments.py" in str(caught.value)
    KEPT.clear()
    Holder.kept = None


def test_an_error_of_the_function_leaves_everything_as_it_was():
    world = World("Adam")
    expected = snapshot(world)

    def step(x):
        world.train(ng.ones(5, 3), ng.ones(5, 2))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ng.compile(step)(vector())
    assert_same(snapshot(world), expected, tolerance=0)
    assert not world.optimizer.state


def test_the_same_errors_as_eagerly():
    def version(x):
        w = x.clone().requires_grad_()
        y = w * w
        with ng.no_grad():
            w.mul_(2.0)
        y.sum().backward()

    def leaf(x):
        OUTER.mul_(2.0)

    def shape(x):
        return x @ ng.ones(4)

    def twice(x):
        y = (x.clone().requires_grad_() * 2.0).exp().sum()
        y.backward()
        y.backward()

    for function, error in ((version, VersionError), (leaf, GradError), (shape, ValueError),
                            (twice, GradError)):  # fmt: skip
        for f in (function, ng.compile(function)):
            with pytest.raises(error) as caught:
                f(vector())
            if f is function:
                expected = str(caught.value)
        assert str(caught.value).split(":")[0] == expected.split(":")[0]


def test_an_error_found_while_running():
    table = ng.ones(3, 2)
    index = ng.compile(lambda i: table[i] * 2.0)
    assert index(ng.tensor([0, 2])).shape == (2, 2)
    with pytest.raises(IndexError, match="3"):
        index(ng.tensor([0, 3]))
    assert index(ng.tensor([1, 1])).shape == (2, 2)


def test_version_error_after_a_compiled_step():
    weight = ng.ones(3, requires_grad=True)

    @ng.compile
    def move(x):
        with ng.no_grad():
            weight.add_(x)

    move(vector())
    y = (weight * weight).sum()
    move(vector())
    assert weight._version == 2
    with pytest.raises(VersionError, match=r"test_arguments\.py"):
        y.backward()


def test_a_gradient_of_an_argument_that_is_dropped_inside_starts_anew():
    def renew(x):
        x.grad = None
        (x * x).sum().backward()

    def drop(x):
        x.grad = None
        return x * 2.0

    renewing, dropping = ng.compile(renew), ng.compile(drop)
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        renewing(x)
        assert x.grad.tolist() == [2.0, 4.0]
    kept = x.grad
    renewing(x)
    assert x.grad is not kept and kept.tolist() == [2.0, 4.0]
    dropping(x)
    assert x.grad is None


def test_hooks_of_an_argument_run_on_its_gradient():
    seen = []
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    step = ng.compile(lambda x: (x * x).sum().backward())
    step(x)
    assert seen == [[2.0, 4.0]] and x.grad.tolist() == [2.0, 4.0]


def test_many_changed_arguments_are_compared_in_one_loop():
    """A line for each pair of thirty would be compiled for a minute."""

    def function(*tensors):
        for x in tensors:
            x.add_(1.0)

    run = ng.compile(function)
    apart = [ng.zeros(2) for _ in range(30)]
    run(*apart)
    assert run.source.count("meet(table") == 1 and "if overlaps(" not in run.source
    run(*apart)
    assert all(x.tolist() == [2.0, 2.0] for x in apart)
    memory = ng.zeros(31)
    run(*[memory[k : k + 2] for k in range(30)])
    assert memory.tolist() == [1.0, *[2.0] * 29, 1.0]


def asks_for_types(x, k):
    if type(k) is float:
        return x * (len(repr(k)) + len(f"{[k]}")) * copy.deepcopy({"k": k})["k"]
    kind = type("Made", (), {"number": 3})
    return x * (kind.number if isinstance(kind, type) and type(k) in (int, str) else 7)


def test_numbers_among_the_arguments_are_numbers():
    compiled, x = ng.compile(asks_for_types), ng.tensor([1.0, -2.0])
    for k in (0.5, 1.25, 0.5, 2, "a", 3, None):
        assert ng.equal(compiled(x, k), asks_for_types(x, k)), k
    assert "type" not in globals()
    pickled = ng.compile(lambda x, k: x * pickle.loads(pickle.dumps([k]))[0])
    assert [pickled(ng.ones(1), k).item() for k in (1.0, 2.0)] == [1.0, 2.0]


OF_TYPES = {float: 2.0, int: 3.0}


@pytest.mark.parametrize(
    "function",
    [
        lambda x, k: x * (2.0 if type(k).__name__ == "float" else 3.0),
        lambda x, k: x * OF_TYPES[type(k)],
        lambda x, k: x * OF_TYPES.get(type(k), 7.0),
        lambda x, k: x * (2.0 if str(type(k)) == "<class 'float'>" else 3.0),
        lambda x, k: x * (2.0 if isinstance(0.5, type(k)) else 3.0),
        lambda x, k: x * (2.0 if type(k) == float else 3.0),  # noqa: E721
        lambda x, k: x * (2.0 if [type(each) for each in (k, 1)] == [float, int] else 3.0),
        lambda x, k: x * (2.0 if (lambda v: type(v) is float)(k) else 3.0),
    ],
)
def test_the_type_of_a_number_is_that_of_numbers(function):
    compiled, x = ng.compile(function), ng.ones(1)
    for k in (0.5, 0.75, 1, 2, 0.25):
        assert compiled(x, k).item() == (2.0 if isinstance(k, float) else 3.0)
    assert compiled.cache_info().recordings <= 3  # one for floats, and ints are compared
    assert not [name for name in globals() if "numbagrad_type" in name]


def uses_type_as_an_object(x, k):
    kind: type[int] = int
    made = type("Made", (), {"number": 3.0})
    plain = type(int) is type and type(type(k)) is type and float.__class__ is type
    shown = str(type) == "<class 'type'>" and type.__name__ == "type" and copy.copy(type) is type
    return x * k * (made.number if plain and shown and isinstance(kind, type) else 0.0)


def test_type_itself_stays_what_it_is():
    compiled, x = ng.compile(uses_type_as_an_object), ng.ones(1)
    for k in (1.0, 2.0, 0.5):
        assert compiled(x, k).item() == uses_type_as_an_object(x, k).item() == 3 * k
    assert compiled.cache_info().recordings == 1
