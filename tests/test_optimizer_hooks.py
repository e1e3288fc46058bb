"""Hooks of optimisers: around steps, saving and loading; of one optimiser and of all."""

from __future__ import annotations

import copy
import gc
import importlib
import pickle
import weakref

import pytest

import numbagrad as ng
from numbagrad import nn, optim
from numbagrad.errors import RecordingError


def made(library, kind="SGD", **options):
    """A parameter of ones with a gradient of ones, and an optimiser of it."""
    x = library.ones(2, requires_grad=True)
    x.grad = library.ones(2)
    return x, getattr(library.optim, kind)([x], **{"lr": 0.5, **options})


def told(function):
    """The type of error that ``function`` raises, or its value."""
    try:
        return function()
    except (RuntimeError, TypeError) as error:
        return "TypeError" if isinstance(error, TypeError) else "RuntimeError"


def step_hooks(library):
    x, optimizer = made(library)
    seen = []

    def note(name):
        return lambda o, args, kwargs: seen.append([name, o is args[0], len(args), [*kwargs]])

    def scale(o, args, kwargs):
        x.grad.mul_(2.0)
        return (*args, lambda: 7.0), {}

    handle = optimizer.register_step_pre_hook(note("before"))
    optimizer.register_step_post_hook(note("after"))
    found = [optimizer.step(), x.tolist(), optimizer.step(closure=lambda: 5.0)]
    handle.remove()
    handle = optimizer.register_step_pre_hook(scale)
    found += [optimizer.step(), x.tolist(), x.grad.tolist()]
    handle.remove()
    optimizer.register_step_pre_hook(lambda o, args, kwargs: args)
    return [*found, told(optimizer.step), x.tolist(), seen]


def steps_of_all(library):
    seen = []

    def note(name):
        return lambda o, args, kwargs: seen.append(name)

    where = importlib.import_module(f"{library.__name__}.optim.optimizer")
    _, optimizer = made(library)
    optimizer.register_step_pre_hook(note("own before"))
    optimizer.register_step_post_hook(note("own after"))
    handles = [
        where.register_optimizer_step_pre_hook(note("all before")),
        where.register_optimizer_step_post_hook(note("all after")),
    ]
    try:
        optimizer.step()
        for each in (made(library, "Adam")[1], copy.deepcopy(made(library, "RMSprop")[1])):
            each.step()
    finally:
        for handle in handles:
            handle.remove()
    optimizer.step()
    return seen


def step_hooks_of_lbfgs(library):
    x, optimizer = made(library, "LBFGS")
    seen = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(x.tolist() != [1.0, 1.0]))

    def closure():
        optimizer.zero_grad()
        loss = (x * x).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return seen


def hooks_of_a_subclass(library):
    seen = []

    class Twice(library.optim.SGD):
        def step(self, closure=None):
            super().step()
            return super().step(closure)

    x = library.ones(1, requires_grad=True)
    x.grad = library.ones(1)
    optimizer = Twice([x], lr=0.25)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append(x.tolist()))
    optimizer.step()
    return [x.tolist(), seen[0]]


def saving_hooks(library):
    _, optimizer = made(library, momentum=0.5)
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("second"))
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("first"), prepend=True)
    replace = optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    optimizer.register_state_dict_post_hook(lambda o, state: seen.append([*state]))
    optimizer.register_state_dict_post_hook(lambda o, state: seen.append([*state]), prepend=True)
    found = [sorted(optimizer.state_dict())]
    replace.remove()
    return [*found, sorted(optimizer.state_dict()), seen]


def loading_hooks(library):
    _, optimizer = made(library, momentum=0.5)
    optimizer.step()
    state, seen = optimizer.state_dict(), []
    _, other = made(library)

    def rename(o, state):
        seen.append(sorted(state))
        state["param_groups"] = state.pop("groups")

    def faster(o, state):
        group = dict(state["param_groups"][0], lr=2.0)
        return {**state, "param_groups": [group]}

    other.register_load_state_dict_pre_hook(faster)
    other.register_load_state_dict_pre_hook(rename, prepend=True)
    other.register_load_state_dict_post_hook(lambda o: seen.append(o.param_groups[0]["lr"]))
    other.register_load_state_dict_post_hook(lambda o: seen.append(len(o.state)), prepend=True)
    given = {"state": state["state"], "groups": state["param_groups"]}
    other.load_state_dict(given)
    return [seen, sorted(given), other.param_groups[0]["lr"], other.param_groups[0]["momentum"]]


def copies(library):
    _, optimizer = made(library)
    seen = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("step"))
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("save"))
    for twin in (copy.deepcopy(optimizer), copy.copy(optimizer)):
        twin.step()
        twin.state_dict()
    twin = pickle.loads(pickle.dumps(optimizer))
    twin.register_step_pre_hook(lambda o, args, kwargs: seen.append(o is twin))
    twin.step()
    return seen


STORIES = {
    step_hooks: [
        *[None, [0.5, 0.5], 5.0],
        *[7.0, [-1.0, -1.0], [2.0, 2.0]],
        *["RuntimeError", [-1.0, -1.0]],
        [
            ["before", True, 1, []],
            ["after", True, 1, []],
            ["before", True, 1, ["closure"]],
            ["after", True, 1, ["closure"]],
            ["after", True, 2, []],
        ],
    ],
    steps_of_all: [
        *["all before", "own before", "own after", "all after"],
        *["all before", "all after"] * 2,
        *["own before", "own after"],
    ],
    step_hooks_of_lbfgs: ["before", True],
    hooks_of_a_subclass: [[0.5], [1.0]],
    saving_hooks: [
        ["more", "param_groups", "state"],
        ["param_groups", "state"],
        [
            *["first", "second", ["state", "param_groups"], ["state", "param_groups", "more"]],
            *["first", "second", ["state", "param_groups"], ["state", "param_groups"]],
        ],
    ],
    loading_hooks: [[["groups", "state"], 1, 2.0], ["groups", "state"], 2.0, 0.5],
    copies: [True],
}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story):
    assert story(ng) == STORIES[story]


@pytest.mark.peer
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story_is_torchs(story):
    assert story(pytest.importorskip("torch")) == STORIES[story]


# -- what is ours alone ----------------------------------------------------------------------------


def test_a_hook_is_a_function():
    _, optimizer = made(ng)
    names = [n for n in dir(optimizer) if n.startswith("register_")]
    assert len(names) == 6
    for name in names:
        with pytest.raises(TypeError, match=f"{name}: expected a function, got NoneType"):
            getattr(optimizer, name)(None)
    with pytest.raises(TypeError, match="register_optimizer_step_pre_hook: expected a function"):
        optim.optimizer.register_optimizer_step_pre_hook("hook")
    assert "step" not in vars(optimizer)


def test_a_subclass_that_steps_twice_has_its_hooks_once():
    seen = []

    class Twice(optim.SGD):
        def step(self, closure=None):
            super().step()
            return super().step(closure)

    optimizer = Twice([ng.ones(1, requires_grad=True)], lr=0.25)
    optimizer.register_step_pre_hook(lambda *args: seen.append("before"))
    optimizer.register_step_post_hook(lambda *args: seen.append("after"))
    optimizer.step()
    assert seen == ["before", "after"]


class Training:
    """A compiled step of a small net."""

    def __init__(self):
        self.net = nn.Linear(2, 1)
        self.optimizer = optim.SGD(self.net.parameters(), lr=0.25)

        @ng.compile
        def step(x):
            self.optimizer.zero_grad()
            loss = self.net(x).sum()
            loss.backward()
            self.optimizer.step()
            return loss

        self.step = step


REGISTER = [
    lambda o, hook: o.register_step_pre_hook(hook),
    lambda o, hook: o.register_step_post_hook(hook),
    lambda o, hook: optim.optimizer.register_optimizer_step_pre_hook(hook),
    lambda o, hook: optim.optimizer.register_optimizer_step_post_hook(hook),
]


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize("register", REGISTER)
def test_what_hooks_do_to_tensors_is_a_part_of_a_compiled_step(register, later):
    """Hooks that come and go are noticed."""

    def run(compiled):
        ng.manual_seed(0)
        training, found = Training(), []
        average, calls = ng.zeros(2), 0
        step = training.step if compiled else training.step._function

        def hook(optimizer, args, kwargs):
            nonlocal calls
            calls += 1
            for parameter in optimizer.param_groups[0]["params"]:
                parameter.grad.mul_(optimizer.param_groups[0]["lr"])
            average.mul_(0.5).add_(training.net.weight.detach()[0], alpha=calls)

        def note():
            step(ng.tensor([[1.0, 2.0]]))
            found.extend([*average.tolist(), *training.net.weight[0].tolist(), calls])

        if later:
            note(), note()
        with register(training.optimizer, hook):
            for _ in range(3):
                note()
            training.optimizer.param_groups[0]["lr"] = 0.5
            note()
        note()
        return found, training.step

    found, step = run(True)
    assert found == pytest.approx(run(False)[0])
    assert step.cache_info().recordings <= 4


def test_the_arguments_that_a_hook_gives_a_compiled_step():
    training = Training()
    training.optimizer.register_step_pre_hook(lambda o, args, kwargs: ((*args, lambda: 7.0), {}))

    @ng.compile
    def step():
        return training.optimizer.step()

    assert step() == step() == 7.0


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize("register", REGISTER)
def test_a_compiled_step_refuses_hooks_that_change_python_values(register, later):
    training, seen = Training(), []
    if later:
        for _ in range(3):
            training.step(ng.ones(1, 2))
    before = training.net.bias.tolist()
    with register(training.optimizer, lambda *args: seen.append(1)):
        for _ in range(2):
            with pytest.raises(RecordingError, match=r"changes the Python value 'seen'.*outside"):
                training.step(ng.ones(1, 2))
        assert not seen and training.net.bias.tolist() == before
        training.optimizer.step()
        assert len(seen) == 1
    before = training.net.bias.tolist()[0]
    for k in range(3):
        training.step(ng.ones(1, 2))
        assert training.net.bias.tolist() == pytest.approx([before - 0.25 * (k + 1)])
    assert len(seen) == 1


@pytest.mark.parametrize("kind", ["state_dict_pre", "load_state_dict_post"])
def test_compiled_functions_refuse_hooks_of_saving(kind):
    _, optimizer = made(ng)
    state = optimizer.state_dict()

    @ng.compile
    def step(x):
        optimizer.state_dict()
        optimizer.load_state_dict(state)
        return x + 1.0

    getattr(optimizer, f"register_{kind}_hook")(lambda o: None)
    words = f"a {kind.rpartition('_')[0]} hook of SGD: not possible inside"
    with pytest.raises(RecordingError, match=words):
        step(ng.ones(1))


def test_hooks_of_all_keep_no_optimiser():
    with optim.optimizer.register_optimizer_step_pre_hook(lambda *args: None):
        _, optimizer = made(ng)
        optimizer.step()
        held = weakref.ref(optimizer)
        del optimizer
        gc.collect()
        assert held() is None


class Extended(optim.SGD):
    """As optimisers written for PyTorch that have got another option since."""

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("extra", 1)


def test_what_a_subclass_adds_to_a_state():
    weight = nn.Parameter(ng.ones(1))
    optimizer = Extended([weight], 0.1, momentum=0.5)
    weight.grad = ng.ones(1)
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups[0]["extra"] == 1 and optimizer.param_groups[0]["lr"] == 0.1
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert other.param_groups[0]["extra"] == 1
        moved = other.param_groups[0]["params"][0]
        moved.grad = ng.ones(1)
        other.step()
        assert moved.item() == pytest.approx(0.9 - 0.15)
