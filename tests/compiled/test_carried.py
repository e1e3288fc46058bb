"""What a function sets anew in each call is recorded once, and is there after each call.

A scenario is a function of ``compiled``, which is ``ng.compile`` or does nothing; it returns what
can be seen, and the compiled functions. Start reading at ``follow``.
"""

from __future__ import annotations

import copy
import gc
import weakref
from types import SimpleNamespace

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import GraphFreedError, NonFiniteError, RecordingError

from .following import assert_same, snapshot


def follow(scenario, *recordings):
    """Assert that compiled calls do what eager ones do, with so many recordings of each."""
    __tracebackhide__ = True
    found = []
    for compiled in (lambda f: f, ng.compile):
        ng.manual_seed(5)
        seen, functions = scenario(compiled)
        found.append(seen)
    assert_same(found[1], found[0])
    assert tuple(f.cache_info().recordings for f in functions) == recordings


def batch(rows=5):
    return ng.randn(rows, 3)


class Recurrent(nn.Module):
    """Carries the state of its cell from call to call. None at first, or zeros."""

    def __init__(self, cell=nn.GRUCell, state=None):
        super().__init__()
        self.cell, self.out, self.state = cell(3, 4), nn.Linear(4, 2), state

    def forward(self, x):
        state = self.cell(x, self.state)
        if isinstance(state, tuple):
            self.state = tuple(part.detach() for part in state)
            return self.out(state[0])
        self.state = state.detach()
        return self.out(state)


def training(model):
    """A step that trains a model to give zeros."""
    optimizer = ng.optim.SGD(model.parameters(), lr=0.5)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("cell", [nn.GRUCell, nn.LSTMCell])
@pytest.mark.parametrize("given", [True, False])
def test_truncated_backpropagation(cell, given):
    def scenario(compiled):
        state = ng.zeros(5, 4)
        if cell is nn.LSTMCell:
            state = (state, ng.ones(5, 4))
        model, seen = Recurrent(cell, state if given else None), []
        step = compiled(training(model))
        for _ in range(10):
            seen.append(snapshot([step(batch()), model, model.state]))
        return seen, [step]

    follow(scenario, 1 if given else 2)


class Stacked(nn.Module):
    """Cells one on the other, whose states are pairs in a list, set one by one."""

    def __init__(self, given):
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTMCell(3, 4), nn.LSTMCell(4, 2)])
        self.states = self.zeros() if given else None

    def zeros(self):
        return [(ng.zeros(5, c.hidden_size), ng.zeros(5, c.hidden_size)) for c in self.cells]

    def forward(self, x):
        if self.states is None:
            self.states = self.zeros()
        for k, cell in enumerate(self.cells):
            self.states[k] = cell(x, self.states[k])
            x = self.states[k][0]
        self.states = [tuple(part.detach() for part in state) for state in self.states]
        return x


@pytest.mark.parametrize("given", [True, False])
def test_a_list_of_pairs_that_are_set_and_then_cut(given):
    def scenario(compiled):
        model, seen = Stacked(given), []
        step = compiled(training(model))
        for k in range(6):
            before = model.states
            seen.append(snapshot([step(batch()), model, model.states]))
            if k > 1:  # the list before holds what the cells gave
                seen.append(snapshot([[part.detach() for part in state] for state in before]))
                assert before is not model.states
        return seen, [step]

    follow(scenario, 1 if given else 2)


class Noting(nn.Module):
    """Sets an entry of a dict of pairs, and of a list in it."""

    def __init__(self):
        super().__init__()
        self.held = {"pair": (ng.zeros(3), ng.ones(3)), "list": [ng.zeros(3), (ng.ones(3),)]}

    def forward(self, x):
        first, second = self.held["pair"]
        self.held["pair"] = (first + x, second * 2)
        self.held["list"][1] = (self.held["list"][1][0] - x,)
        return first * 1


def test_pairs_in_a_dict_are_set_where_they_stand():
    def scenario(compiled):
        model, seen = Noting(), []
        held, inner = model.held, model.held["list"]
        step = compiled(model)
        for _ in range(4):
            seen.append(snapshot([step(ng.randn(3)), held["pair"], inner[0], inner[1]]))
            assert model.held is held and held["list"] is inner
        return seen, [step]

    follow(scenario, 1)


def test_what_is_put_there_from_outside_is_seen():
    def scenario(compiled):
        model, seen = Recurrent(state=ng.zeros(5, 4)), []
        step = compiled(training(model))
        for k in range(8):
            if k == 3:
                model.state = ng.ones(5, 4)
            if k == 5:
                model.state.zero_()
            if k == 6:
                model.state = model.state[:2]
            seen.append(snapshot([step(batch(5 if k < 6 else 2)), model.state]))
        return seen, [step]

    follow(scenario, 2)  # for another number of rows


def test_what_a_call_left_stays_what_it_is():
    model, held = Recurrent(state=ng.zeros(5, 4)), []
    step = ng.compile(training(model))
    for _ in range(5):
        step(batch())
        held.append((model.state, model.state.tolist()))
    assert len({id(t) for t, _ in held}) == 5
    assert all(t.tolist() == then for t, then in held)


class Normaliser(nn.Module):
    """Statistics kept in buffers that each call replaces."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", ng.zeros(3))
        self.register_buffer("count", ng.tensor(0))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            self.count = self.count + 1
        return x - self.mean


def test_buffers_that_are_replaced():
    def scenario(compiled):
        model, seen = nn.Sequential(Normaliser(), nn.Linear(3, 2)), []
        run = compiled(model)
        for k in range(6):
            if k == 3:
                model.load_state_dict({n: t + 1 for n, t in model.state_dict().items()})
            seen.append(snapshot([run(batch()), model, model.state_dict(), model[0].mean]))
        return seen, [run]

    follow(scenario, 1)


def test_functions_that_train_and_look_share_the_state():
    def scenario(compiled):
        model, seen = nn.Sequential(Normaliser(), nn.Linear(3, 2)), []
        train = compiled(training(model))
        plain = compiled(lambda x: x * 2.0)

        @compiled
        def look(x):
            with ng.no_grad():
                return model(x)

        for _ in range(4):
            x = batch()
            plain(x)
            model.eval()
            before = look(x)
            model.train()
            loss = train(x)
            model.eval()
            seen.append(snapshot([before, loss, look(x), model]))
            model.train()
        return seen, [train, look, plain]

    follow(scenario, 1, 2, 2)


def test_one_function_in_both_modes():
    def scenario(compiled):
        model, seen = Normaliser(), []
        run = compiled(model)
        for k in range(8):
            model.train(k % 2 == 0)
            seen.append(snapshot([run(batch()), model]))
        return seen, [run]

    follow(scenario, 2)


def test_an_average_of_weights_by_data():
    def scenario(compiled):
        fast, slow = nn.Linear(3, 2), nn.Linear(3, 2)
        optimizer, seen, held = ng.optim.Adam(fast.parameters(), lr=0.1), [], []

        def step(x):
            optimizer.zero_grad()
            with ng.no_grad():
                target = slow(x)
            (fast(x) - target).square().mean().backward()
            optimizer.step()
            for p, q in zip(fast.parameters(), slow.parameters(), strict=True):
                q.data = 0.9 * q.data + 0.1 * p.data
                p.data = p.data.clamp(-0.4, 0.4)
            return target

        step, look = compiled(step), compiled(lambda x: slow(x).detach())
        for k in range(6):
            if k == 3:
                slow.weight.data = ng.ones(2, 3)
            x = batch()
            seen.append(snapshot([look(x), step(x), look(x), fast, slow, slow.state_dict()]))
            held.append((slow.weight.data, slow.weight.tolist()))
        assert all(t.tolist() == then for t, then in held)
        return seen, [step, look]

    follow(scenario, 1, 2)


# -- gradients -------------------------------------------------------------------------------------


def test_a_graph_that_goes_on_over_calls():
    def scenario(compiled):
        cell, keeper, seen = nn.RNNCell(3, 4), SimpleNamespace(h=ng.zeros(5, 4)), []

        @compiled
        def step(x):
            keeper.h = cell(x, keeper.h)
            return keeper.h.sum()

        for _ in range(3):
            loss = step(batch()) + step(batch()) + step(batch())
            cell.zero_grad()
            loss.backward()
            seen.append(snapshot([loss, cell]))
            keeper.h = keeper.h.detach()
        return seen, [step]

    follow(scenario, 2)


def test_a_graph_that_is_cut_at_the_beginning_of_a_call():
    def scenario(compiled):
        cell, keeper, seen = nn.RNNCell(3, 4), SimpleNamespace(h=ng.zeros(5, 4)), []

        @compiled
        def step(x):
            h = keeper.h.detach()
            keeper.h = cell(x, h)
            keeper.h.sum().backward()

        for _ in range(4):
            step(batch())
            seen.append(snapshot([keeper.h, cell]))
        return seen, [step]

    follow(scenario, 2)


def test_a_graph_that_is_used_up_is_refused():
    cell, keeper = nn.RNNCell(3, 4), SimpleNamespace(h=ng.zeros(5, 4))

    @ng.compile
    def step(x):
        keeper.h = cell(x, keeper.h)
        keeper.h.sum().backward()

    step(batch())
    for _ in range(2):
        then = snapshot([keeper.h, cell])
        with pytest.raises(GraphFreedError):
            step(batch())
        assert_same(snapshot([keeper.h, cell]), then, tolerance=0)
    keeper.h = keeper.h.detach()
    step(batch())


# -- what is refused, and errors -------------------------------------------------------------------


class Setting(nn.Module):
    """Sets attributes under computed names, then raises, or does what cannot be done."""

    def __init__(self, then):
        super().__init__()
        self.register_buffer("b0", ng.zeros(2))
        self.h0, self.n0, self.then = ng.ones(2), 3, then

    def forward(self, x):
        for k in range(2):
            setattr(self, f"h{k}", x * 2.0)
            setattr(self, f"n{k}", 5)
        setattr(self, f"b{0}", x)
        self.eval()
        return self.then(x)


@pytest.mark.parametrize("then", [lambda x: x.sum().item(), lambda x: {}[x]])
def test_what_was_set_under_a_computed_name_is_put_back(then):
    model, other = Setting(then), nn.Linear(2, 2)
    once = ng.compile(lambda x: other(x))
    once(ng.ones(2))
    held = {k: v for k, v in vars(model).items() if k != "_watched"}
    with pytest.raises((RecordingError, KeyError)):
        ng.compile(model)(ng.ones(2))
    now = {k: v for k, v in vars(model).items() if k != "_watched"}
    assert now.keys() == held.keys() and all(now[k] is held[k] for k in held)
    assert model._buffers == {"b0": held["b0"]} and model.training
    once(ng.ones(2))
    assert once.cache_info().recordings == 1


def grows(keeper, x):
    keeper.kept = [*keeper.kept, x * 1.0]


def shrinks(keeper, x):
    keeper.kept, keeper.h = [], x * 2.0


def is_of_a_class(keeper, x):
    keeper.h = nn.Parameter(x * 1.0)


def holds_an_object(keeper, x):
    keeper.h = {"h": x * 1.0, "by": keeper}


@pytest.mark.parametrize(
    "change", [grows, shrinks, is_of_a_class, holds_an_object], ids=lambda f: f.__name__
)
def test_refused(change):
    keeper = SimpleNamespace(kept=[ng.ones(2)], h=None, n=0)
    then = {name: copy.copy(value) for name, value in vars(keeper).items()}

    @ng.compile
    def step(x):
        change(keeper, x)
        return x

    with pytest.raises(RecordingError, match=r"changes|kept outside"):
        step(ng.ones(2))
    assert vars(keeper).keys() == then.keys() and keeper.n == 0 and keeper.h is None
    assert len(keeper.kept) == 1 and keeper.kept[0] is then["kept"][0]


def test_a_call_that_raises_leaves_the_state():
    keeper = SimpleNamespace(h=ng.zeros(3))

    @ng.compile
    def step(x, index):
        keeper.h = keeper.h + x[index].sum(0)
        return keeper.h * 2.0

    for k in range(4):
        held, then = keeper.h, keeper.h.tolist()
        with pytest.raises(IndexError):
            step(batch(), ng.tensor([9]))
        assert keeper.h is held and held.tolist() == then
        step(batch(), ng.tensor([k]))
        assert keeper.h is not held
    assert step.cache_info().recordings == 1


def test_a_bad_value_is_found_where_it_stands():
    keeper, weight = SimpleNamespace(h=(ng.ones(2), ng.ones(3))), ng.ones(3)

    @ng.compile(check_finite=True)
    def step(x):
        h, c = keeper.h
        keeper.h = h, c + x * weight
        weight.data = weight.data * 2.0

    step(ng.ones(3))
    held = keeper.h
    keeper.h[1][1] = float("nan")
    with pytest.raises(NonFiniteError, match=r"met nan at index \[1\] of h "):
        step(ng.ones(3))
    assert keeper.h[0] is held[0] and keeper.h[1] is held[1]
    keeper.h = ng.ones(2), ng.ones(3)
    weight.data = ng.tensor([1.0, 1.0, float("inf")])
    with pytest.raises(
        NonFiniteError, match=r"met inf at index \[2\] of a tensor whose data is set"
    ):
        step(ng.ones(3))
    assert keeper.h[1].tolist() == [1.0] * 3 and step.cache_info().recordings == 1


# -- copies, and what is left behind ---------------------------------------------------------------


def test_copies_of_a_module_have_states_of_their_own():
    model = Normaliser()
    run = ng.compile(model)
    run(batch())
    other = copy.deepcopy(model)
    look = ng.compile(other)
    other.eval()
    x = batch()
    for value in (1.0, 2.0, 3.0):
        other.mean = ng.full((3,), value)
        assert ng.allclose(look(x), x - value)
    assert look.cache_info().recordings == 1
    held = model.mean.clone()
    run(x)
    assert ng.allclose(model.mean, 0.9 * held + 0.1 * x.mean(0))


def test_a_method_of_several_objects():
    class Counter:
        def __init__(self):
            self.count = ng.tensor(0.0)

        @ng.compile
        def step(self, x):
            self.count = self.count + x
            return self.count * 2.0

    counters = [Counter() for _ in range(3)]
    for k in range(9):
        assert counters[k % 3].step(ng.tensor(1.0)).item() == 2.0 * (k // 3 + 1)
    assert [c.count.item() for c in counters] == [3.0, 3.0, 3.0]


def test_nothing_is_held_for_good():
    class Keeper:
        h = None

    def scenario():
        keeper = Keeper()
        keeper.h = ng.zeros(3)

        @ng.compile
        def step(x):
            keeper.h = keeper.h + x

        step(ng.ones(3))
        first = weakref.ref(keeper.h)
        step(ng.ones(3)), step(ng.ones(3))
        gc.collect()
        assert first() is None
        return weakref.ref(keeper)

    last = scenario()
    gc.collect()
    assert last() is None


def test_why_it_is_recorded_again():
    keeper = SimpleNamespace(h=None)

    @ng.compile
    def step(x):
        keeper.h = x if keeper.h is None else keeper.h + x
        return keeper.h

    step(ng.ones(2)), step(ng.ones(2))
    keeper.h = keeper.h.double()
    step(ng.ones(2))
    keeper.h = ng.ones(1, 2)
    step(ng.ones(2))
    of = "Tensor [2] of ng.float32", "Tensor [2] of ng.float64", "Tensor [1, 2] of ng.float32"
    assert step.recordings[1:] == (
        f"'h', which the function sets: {of[0]}, was None",
        f"'h', which the function sets: {of[1]}, was {of[0]}",
        f"'h', which the function sets: {of[2]}, was {of[1]}",
    )
