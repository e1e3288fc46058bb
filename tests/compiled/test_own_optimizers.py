"""Optimisers that users write: what of them can be compiled, and that the rest is refused."""

from __future__ import annotations

import math

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


class Adam(ng.optim.Optimizer):
    """As public code writes it: whole numbers of steps, and roots by ``math``."""

    def __init__(self, params, lr=0.05, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas})

    @ng.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["mean"], state["square"] = ng.zeros_like(p), ng.zeros_like(p)
                state["step"] += 1
                state["mean"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["square"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                root = math.sqrt(1 - beta2 ** state["step"])
                denominator = (state["square"].sqrt() / root).add_(1e-8)
                rate = group["lr"] / (1 - beta1 ** state["step"])
                p.addcdiv_(state["mean"], denominator, value=-rate)


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize(
    "make",
    [
        lambda ps: Adam(ps),
        lambda ps: Momentum(ps, lambda: 0),
        lambda ps: InGroups(ps, {}),
        lambda ps: InItself(ps, {}),
    ],
    ids=["adam", "state", "group", "attribute"],
)
def test_python_numbers_are_counted(make, first):
    """A compiled step goes on where an eager one was, and the other way round."""
    found = []
    for compiled in (False, True):
        optimizer, step = training(make)
        losses = [step().item() for _ in range(first)]
        again = ng.compile(step) if compiled else step
        losses += [again().item() for _ in range(5)]
        losses += [step().item(), again().item()]
        optimizer.param_groups[0]["lr"] = 0.01
        losses += [again().item() for _ in range(2)]
        counts = [s["step"] for s in optimizer.state.values() if "step" in s]
        counts += [optimizer.param_groups[0].get("step", 0), getattr(optimizer, "count", 0)]
        assert all([type(count) is int for count in counts])
        found.append((losses, counts))
        if compiled:
            assert again.cache_info().recordings <= 2, again.recordings
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5) and found[1][1] == found[0][1]


class Late(Adam):
    """Asks its count something."""

    @ng.no_grad()
    def step(self):
        super().step()
        for state in self.state.values():
            if state["step"] > 4:
                state["mean"].mul_(0.5)


class Replacing(ng.optim.Optimizer):
    """Sets its state to other tensors and numbers, and a rate."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1, "scale": 1.0})

    @ng.no_grad()
    def step(self):
        for group in self.param_groups:
            group["scale"] = group["scale"] * 0.5
            for p in group["params"]:
                state = self.state[p]
                if "last" not in state:
                    state["last"], state["weight"] = ng.zeros_like(p), 0.0
                state["weight"] = 1 + 0.9 * state["weight"]
                p.sub_((p.grad + state["last"]) * (group["lr"] * group["scale"] / state["weight"]))
                state["last"] = p.grad * 0.5
                state["last"] = state["last"] * 2.0


@pytest.mark.parametrize("make", [Late, Replacing])
def test_counts_decide_and_entries_are_replaced(make):
    found = []
    for compiled in (False, True):
        optimizer, step = training(make)
        run = ng.compile(step) if compiled else step
        losses = [run().item() for _ in range(8)]
        state = [v for s in optimizer.state.values() for v in s.values()]
        numbers = [v.sum().item() if isinstance(v, ng.Tensor) else v for v in state]
        found.append([*losses, *numbers, optimizer.param_groups[0].get("scale", 0)])
        if compiled:
            assert run.cache_info().recordings == (2 if make is Late else 1)
    assert found[1] == pytest.approx(found[0], rel=1e-5)


class Indexed(Adam):
    """Takes its count for an index."""

    @ng.no_grad()
    def step(self):
        super().step()
        for state in self.state.values():
            state["mean"].mul_([0.5, 1.0, 2.0][state["step"] % 3])


def test_a_count_that_is_an_index_is_refused():
    optimizer, step = training(Indexed)
    step()
    held = [dict(s) for s in optimizer.state.values() if s]
    with pytest.raises(RecordingError, match=r"counts 'step', and the count decides something"):
        ng.compile(step)()
    assert [dict(s) for s in optimizer.state.values() if s] == held


class Forgetful(ng.optim.Optimizer):
    """Makes its state anew each time."""

    @ng.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            self.state[p] = {}
            self.state[p]["last"] = p.grad.clone()
            p.sub_(p.grad)


def test_state_that_is_made_in_each_step_is_refused():
    _, step = training(lambda ps: Forgetful(ps, {}))
    compiled = ng.compile(step)
    compiled()
    with pytest.raises(RecordingError, match="state 'last': set inside a compiled function"):
        compiled()


class Switched(ng.optim.Optimizer):
    """Reads an option that is no float, and a tensor of its state."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1, "nesterov": False, "power": 1})

    @ng.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "mean" not in state:
                    state["mean"] = ng.zeros_like(p)
                state["mean"].mul_(0.9).add_(p.grad)
                used = p.grad + 0.9 * state["mean"] if group["nesterov"] else state["mean"]
                p.sub_(used * group["lr"] ** group["power"])


def new_means(optimizer):
    for state in optimizer.state.values():
        state["mean"] = ng.zeros_like(state["mean"])


@pytest.mark.parametrize(
    "change",
    [
        lambda o: o.param_groups[0].update(nesterov=True),
        lambda o: o.param_groups[0].__ior__({"power": 2}),
        lambda o: o.param_groups[0].__setitem__("lr", 1),
        lambda o: setattr(o, "param_groups", [dict(o.param_groups[0], lr=0.05)]),
        new_means,
        lambda o: o.state.clear(),
    ],
)
def test_what_changes_between_calls_is_noticed(change):
    found = []
    for compiled in (False, True):
        optimizer, step = training(Switched)
        run = ng.compile(step) if compiled else step
        losses = [run().item() for _ in range(3)]
        change(optimizer)
        found.append(losses + [run().item() for _ in range(3)])
    assert found[1] == pytest.approx(found[0], rel=1e-5)


def test_a_rate_that_is_set_to_a_tensor_inside_is_refused():
    """Numbers may be set: test_settings.py."""
    optimizer, step = training(lambda ps: ng.optim.SGD(ps, lr=0.1))

    @ng.compile
    def with_rate(rate):
        optimizer.param_groups[0]["lr"] = rate
        return step()

    with pytest.raises(RecordingError, match=r"option 'lr': .*each call reads it"):
        with_rate(ng.tensor(0.3))
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
