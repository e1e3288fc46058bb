"""Optimisers that users write: what of them can be compiled, and that the rest is refused."""

from __future__ import annotations

import pytest

import numbagrad as ng
from numbagrad.errors import RecordingError


class Momentum(ng.optim.Optimizer):
    """Heavy ball with a bias correction; ``number`` makes the count of steps."""

    def __init__(self, params, number, lr=0.1, mu=0.9):
        super().__init__(params, {"lr": lr, "mu": mu})
        self.number = number

    @ng.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = self.number()
                    state["buffer"] = ng.zeros_like(p, memory_format=ng.preserve_format)
                state["step"] += 1
                state["buffer"].mul_(group["mu"]).add_(p.grad)
                p.sub_(state["buffer"] * (group["lr"] / (1 - group["mu"] ** state["step"])))


class InGroups(ng.optim.Optimizer):
    """Counts its steps in its groups."""

    @ng.no_grad()
    def step(self):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for p in group["params"]:
                p.sub_(p.grad * (0.1 / group["step"]))


class InItself(ng.optim.Optimizer):
    """Counts its steps in an attribute."""

    count = 0

    @ng.no_grad()
    def step(self):
        self.count += 1
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad * (0.1 / self.count))


def training(make):
    ng.manual_seed(0)
    model = ng.nn.Linear(3, 1)
    optimizer = make(model.parameters())
    x = ng.randn(4, 3)

    def step():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return optimizer, step


def test_state_in_tensors_is_compiled_after_a_first_step():
    losses = []
    for compiled in (False, True):
        optimizer, step = training(lambda ps: Momentum(ps, lambda: ng.tensor(0.0)))
        found = [step().item()]
        again = ng.compile(step) if compiled else step
        found += [again().item() for _ in range(4)]
        assert [s["step"].item() for s in optimizer.state.values()] == [5, 5]
        losses.append(found)
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda ps: Momentum(ps, lambda: 0), "state 'step'"),
        (lambda ps: InGroups(ps, {}), "option 'step'"),
        (lambda ps: InItself(ps, {}), "Python value 'count'"),
    ],
    ids=["state", "group", "attribute"],
)
def test_python_numbers_that_a_compiled_step_would_not_count_are_refused(make, told, first):
    optimizer, step = training(make)
    for _ in range(first):
        step()
    held = [dict(s) for s in optimizer.state.values() if s]
    groups = [{n: v for n, v in g.items() if n != "params"} for g in optimizer.param_groups]
    with pytest.raises(RecordingError, match=told):
        ng.compile(step)()
    assert [dict(s) for s in optimizer.state.values() if s] == held
    assert [{n: v for n, v in g.items() if n != "params"} for g in optimizer.param_groups] == groups
    assert getattr(optimizer, "count", 0) == (first if isinstance(optimizer, InItself) else 0)


def test_a_rate_that_is_set_inside_is_refused():
    optimizer, step = training(lambda ps: ng.optim.SGD(ps, lr=0.1))

    @ng.compile
    def with_rate(rate):
        optimizer.param_groups[0]["lr"] = rate
        return step()

    with pytest.raises(RecordingError, match=r"option 'lr': .*each call reads it"):
        with_rate(0.3)
    assert type(optimizer.param_groups[0]["lr"]) is float


gain = 2.0


@ng.no_grad()
def amplified(x):
    return x * gain


def test_numbers_that_a_decorated_function_reads_are_noticed():
    global gain
    function = ng.compile(lambda x: amplified(x) + 1.0)
    assert function(ng.ones(2)).tolist() == [3.0, 3.0]
    gain = 5.0
    assert function(ng.ones(2)).tolist() == [6.0, 6.0]
