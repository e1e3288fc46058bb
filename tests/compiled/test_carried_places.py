"""Where a function may keep what it sets anew in each call: objects, dicts, lists, variables."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError

from .following import assert_same, snapshot
from .test_carried import batch, follow


def on_an_object():
    keeper = SimpleNamespace(steps=ng.tensor(0), name="a", total=0.0)

    def step(x):
        keeper.steps = keeper.steps + 1
        keeper.total = keeper.total + x.sum()
        return x * keeper.steps

    return step, keeper.__dict__


def in_a_dict():
    state = {"mean": ng.zeros(3), "scale": 2.0}

    def step(x):
        state["mean"] = 0.5 * state["mean"] + x.mean(0)
        return x * state["scale"] - state["mean"]

    return step, state


def in_a_dict_made_anew():
    keeper = SimpleNamespace(state={"a": ng.zeros(3), "b": [ng.ones(1), 3]})

    def step(x):
        a, (b, n) = keeper.state["a"], keeper.state["b"]
        keeper.state = {"a": a + x.mean(0), "b": [b * 2.0, n]}
        return x + a * n

    return step, keeper.__dict__


def in_a_list():
    states = [ng.zeros(3), ng.ones(3)]

    def step(x):
        for k, h in enumerate(states):
            states[k] = h * 0.5 + x[k]
        return states[0] + states[1]

    return step, states


def in_an_enclosing_variable():
    hidden, seen = ng.zeros(3), {}

    def step(x):
        nonlocal hidden
        hidden = hidden * 0.5 + x.mean(0)
        return hidden * 2.0

    seen["hidden"] = lambda: hidden
    return step, seen


def in_a_global():
    global HIDDEN
    HIDDEN = ng.zeros(3)

    def step(x):
        global HIDDEN
        HIDDEN = HIDDEN * 0.5 + x.mean(0)
        return HIDDEN * 2.0

    return step, {"hidden": lambda: HIDDEN}


HIDDEN = None


def under_computed_names():
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.h0, self.h1 = ng.zeros(3), ng.ones(3)

        def forward(self, x):
            for k in range(2):
                setattr(self, f"h{k}", getattr(self, f"h{k}") * 0.5 + x.mean(0))
            return x + self.h0

    layers = Layers()
    return layers, {"h": lambda: [layers.h0, layers.h1]}


Pair = namedtuple("Pair", "h c")


def in_a_named_tuple():
    keeper = SimpleNamespace(pair=Pair(ng.zeros(3), ng.ones(3)))

    def step(x):
        h, c = keeper.pair
        keeper.pair = Pair(c + x[0], h)
        return h + c

    return step, keeper.__dict__


def what_is_written_there_only():
    keeper = SimpleNamespace(last=None, again=None)

    def step(x):
        y = x * 2.0
        keeper.last, keeper.again = y, y
        return y, y[0]

    return step, keeper.__dict__


def an_argument():
    keeper = SimpleNamespace(before=ng.zeros(5, 3))

    def step(x):
        difference, keeper.before = x - keeper.before, x
        return difference

    return step, keeper.__dict__


def changed_in_place_too():
    keeper = SimpleNamespace(h=ng.zeros(3), same=None)

    def step(x):
        keeper.h.add_(x[0])
        keeper.same = keeper.h
        keeper.h = keeper.h * 0.5
        return keeper.h + 1.0

    return step, keeper.__dict__


PLACES = {
    on_an_object: 2,  # a total that begins as a number
    in_a_dict: 1,
    in_a_dict_made_anew: 1,
    in_a_list: 1,
    in_an_enclosing_variable: 1,
    in_a_global: 1,
    under_computed_names: 1,
    in_a_named_tuple: 1,
    what_is_written_there_only: 2,
    an_argument: 1,
    changed_in_place_too: 2,
}


@pytest.mark.parametrize("make", PLACES, ids=lambda make: make.__name__)
def test_where_it_may_stand(make):
    def scenario(compiled):
        step, place = make()
        step, seen = compiled(step), []
        for _ in range(6):
            result = step(batch())
            found = [*(place.values() if isinstance(place, dict) else place)]
            seen.append(snapshot([result, [f() if callable(f) else f for f in found]]))
        return seen, [step]

    follow(scenario, PLACES[make])


def test_a_list_that_is_filled_stays_the_list():
    keeper = SimpleNamespace(states=None)

    @ng.compile
    def step(x):
        if keeper.states is None:
            keeper.states = [x * 0.0]
        keeper.states[0] = keeper.states[0] + x
        return x

    step(ng.ones(2)), step(ng.ones(2))
    held = keeper.states
    step(ng.ones(2)), step(ng.ones(2))
    assert keeper.states is held and held[0].tolist() == [4.0, 4.0]
    assert step.cache_info().recordings == 2


class Layers(nn.Module):
    """Keeps what its layers give, for the loss: in lists and dicts that begin empty."""

    def __init__(self, way):
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
        self.way, self.hidden, self.named = way, [], {}

    def forward(self, x):
        if self.way == "anew":
            self.hidden, self.named = [], {}
        elif self.way == "cleared":
            self.hidden.clear()
        for name, layer in (("one", self.one), ("two", self.two)):
            x = layer(x).tanh()
            self.hidden.append(x)
            self.named[name] = x
        return x


@pytest.mark.parametrize("way", ["anew", "cleared"])
def test_lists_that_forward_fills(way):
    found = []
    for compiled in (lambda f: f, ng.compile):
        ng.manual_seed(0)
        model = Layers(way)
        optimizer = ng.optim.SGD(model.parameters(), lr=0.1)

        @compiled
        def step(x, model=model, optimizer=optimizer):
            loss = model(x).square().mean() + sum([h.abs().mean() for h in model.hidden])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        seen = []
        for k in range(5):
            held = model.hidden
            seen.append(snapshot([step(batch()), model]))
            seen.append([(model.hidden is held) == (way == "cleared"), len(model.hidden)])
            seen.append(snapshot([model.hidden, model.named]))
            if k == 3:
                model.hidden = []  # from outside
        found.append(seen)
    assert_same(found[1], found[0])
    assert step.cache_info().recordings <= 3, step.recordings


def test_a_list_that_grows_is_refused_and_stays_as_it_was():
    model = nn.Linear(2, 2)
    model.history = [ng.ones(1)]

    def step(x):
        model.history.append(model(x).sum())
        return x

    held = model.history
    with pytest.raises(RecordingError, match=r"kept outside|history"):
        ng.compile(step)(ng.ones(2))
    assert model.history is held and len(held) == 1
