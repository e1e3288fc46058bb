"""Options of optimisers that a compiled function reads and sets: ``group["lr"] = lr``."""

from __future__ import annotations

import math

import pytest

import numbagrad as ng
from numbagrad import optim
from numbagrad.errors import RecordingError

from .following import World, assert_same, snapshot

OPTIMIZERS = "SGD Adam AdamW Adagrad RMSprop Adadelta Adamax NAdam RAdam ASGD Rprop Lion".split()


class Own(optim.Optimizer):
    """One whose step is Python."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @ng.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p -= group["lr"] * p.grad


def world(name, **options):
    ng.manual_seed(0)
    made = World("SGD", **options)
    if name == "Own":
        made.optimizer = Own(made.net.parameters(), 0.1)
    elif name != "SGD":
        made.optimizer = getattr(optim, name)(made.net.parameters(), lr=0.1)
    return made


def given(w, x, y, lr):
    for group in w.optimizer.param_groups:
        group["lr"] = lr
    return w.train(x, y)


def of_the_number(w, x, y, lr):
    warm = min(1.0, lr * 7)
    w.optimizer.param_groups[0]["lr"] = 0.1 * warm * 0.5 * (1 + math.cos(math.pi * lr))
    return w.train(x, y)


def decayed(w, x, y, lr):
    loss = w.train(x, y)
    for group in w.optimizer.param_groups:
        group["lr"] *= 0.9
    return loss


def constant(w, x, y, lr):
    w.optimizer.param_groups[0]["lr"] = 0.05
    return w.train(x, y)


def twice(w, x, y, lr):
    group = w.optimizer.param_groups[0]
    group["lr"] = 5.0
    group["lr"] = group["lr"] * lr
    loss = w.train(x, y)
    group["lr"] = lr / 2
    return loss * group["lr"]


def put_back(w, x, y, lr):
    group = w.optimizer.param_groups[0]
    before = group["lr"]
    group["lr"] = before * lr
    loss = w.train(x, y)
    group["lr"] = before
    return loss


def read(w, x, y, lr):
    return w.train(x, y) * w.optimizer.param_groups[0]["lr"]


def conditional(w, x, y, lr):
    if lr > 0.12:
        w.optimizer.param_groups[0]["lr"] = lr / 3
    return w.train(x, y)


STEPS = {
    f.__name__: f
    for f in (given, of_the_number, decayed, constant, twice, put_back, read, conditional)
}


def run(name, step, compiled, calls=6, **options):
    """What every call leaves, with one that an eager step and a change from outside follow."""
    w = world(name, **options)
    w.net.double()  # a rate of 5 makes much of the last digits of float32
    x, y = ng.randn(4, 3, dtype=ng.float64), ng.randn(4, 2, dtype=ng.float64)
    f = ng.compile(lambda x, y, lr: step(w, x, y, lr)) if compiled else step
    found = []
    for k in range(calls):
        rate = 0.1 + 0.01 * k
        loss = f(x, y, rate) if compiled else f(w, x, y, rate)
        found.append(snapshot([loss, list(w.net.parameters())]))
        found.append([group["lr"] for group in w.optimizer.param_groups])
        if k == 3:
            w.train(x, y)
            w.optimizer.param_groups[0]["lr"] = 0.02
    return found, f


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ["SGD", "Adam", "Own"])
def test_as_eagerly(name, step):
    expected, _ = run(name, STEPS[step], False)
    found, f = run(name, STEPS[step], True)
    for e, g in zip(expected, found, strict=True):
        if isinstance(e[0], float):
            assert g == pytest.approx(e, rel=1e-12)
            assert [type(n) for n in g] == [float] * len(g)
        else:
            assert_same(g, e, tolerance=1e-12)
    assert f.cache_info().recordings <= (3 if step == "conditional" else 2), f.recordings


@pytest.mark.parametrize("option", ["weight_decay", "momentum", "dampening"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_a_float_takes_the_place_of_a_default_of_0(name, option):
    def step(w, x, y, lr):
        w.optimizer.param_groups[0][option] = lr
        loss = w.train(x, y)
        w.optimizer.param_groups[0][option] *= 0.5
        return loss

    if option not in world(name).optimizer.param_groups[0]:
        return
    expected, _ = run(name, step, False)
    found, f = run(name, step, True)
    assert_same(found[::2], expected[::2], tolerance=2e-6)
    assert f.cache_info().recordings <= 2, f.recordings


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if hasattr(optim, n)])
def test_each_optimizer_takes_the_rate_of_each_call(name):
    expected, _ = run(name, given, False)
    found, f = run(name, given, True)
    assert_same(found[::2], expected[::2], tolerance=2e-6)
    assert found[1::2] == expected[1::2]
    assert f.cache_info().recordings <= 2, f.recordings


def test_of_several_groups():
    expected, _ = run("SGD", given, False, groups=True, momentum=0.9)
    found, f = run("SGD", given, True, groups=True, momentum=0.9)
    assert_same(found[::2], expected[::2], tolerance=1e-6)
    assert found[1::2] == expected[1::2]
    assert f.cache_info().recordings == 1


def test_other_functions_see_what_was_set():
    """Two functions on one optimiser: the one that keeps the numbers of native code is told."""
    w, v = world("SGD"), world("SGD")
    x, y = ng.ones(4, 3), ng.ones(4, 2)
    setting = ng.compile(lambda lr: decayed(w, x, y, lr))
    plain = ng.compile(lambda x, y: w.train(x, y))
    for _ in range(4):
        assert plain(x, y).item() == pytest.approx(v.train(x, y).item(), rel=1e-6)
        assert setting(0.1).item() == pytest.approx(decayed(v, x, y, 0.1).item(), rel=1e-6)
    assert w.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.9**4)
    assert (plain.cache_info().recordings, setting.cache_info().recordings) == (1, 1)


def test_what_was_set_for_another_recording_is_taken_back():
    """A call for which a recording is not leaves the rate as it was before it looks at others."""
    w = world("SGD")
    x, y = ng.ones(4, 3), ng.ones(4, 2)
    f = ng.compile(lambda x, y, lr: conditional(w, x, y, lr))
    for rate in (0.2, 0.1, 0.3, 0.1):
        before = w.optimizer.param_groups[0]["lr"]
        f(x, y, rate)
        assert w.optimizer.param_groups[0]["lr"] == (rate / 3 if rate > 0.12 else before)


S = optim.lr_scheduler
SCHEDULERS = {
    "lambda": lambda o: S.LambdaLR(o, lambda k: min(1.0, (k + 1) / 3) * math.cos(k / 10)),
    "cosine": lambda o: S.CosineAnnealingLR(o, 5),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 2, 2),
    "one cycle": lambda o: S.OneCycleLR(o, 0.1, total_steps=10),
    "cyclic": lambda o: S.CyclicLR(o, 0.01, 0.1, 3),
    "chained": lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9)]),
    "sequential": lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1), S.StepLR(o, 2, 0.5)], [3]),
    "swa": lambda o: optim.swa_utils.SWALR(o, 0.5, 5),
    "own": lambda o: OwnSchedule(o),
}


class OwnSchedule(S.LRScheduler):
    """One that counts its steps."""

    def __init__(self, optimizer):
        self.calls = 0
        super().__init__(optimizer)

    def get_lr(self):
        return [base / (1 + self.last_epoch) for base in self.base_lrs]

    def step(self):
        self.calls += 1
        super().step()


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "Own"])
def test_a_scheduler_steps_when_the_rest_is_done(name, optimizer):
    def run(compiled):
        w, found = world(optimizer, momentum=0.9), []
        if optimizer == "Own" and name in ("one cycle", "cyclic"):
            return [], None  # they want a momentum
        schedule = SCHEDULERS[name](w.optimizer)

        def step(x, y, due):
            last = schedule.get_last_lr()[0]
            loss = w.train(x, y)
            if due:
                schedule.step()
            w.net.zero_grad()
            return loss, last

        step = ng.compile(step) if compiled else step
        for k in range(7):
            found += [*step(ng.ones(4, 3), ng.ones(4, 2), k != 3), getattr(schedule, "calls", 0)]
            found += [schedule.get_last_lr()[0], w.optimizer.param_groups[0]["lr"]]
        return list(map(float, found)), step

    found, step = run(True)
    assert found == pytest.approx(run(False)[0], rel=1e-5, abs=1e-6)
    assert step is None or step.cache_info().recordings <= 4, step.recordings


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_rates_after_a_step_of_a_scheduler_are_those_that_it_sets(name):
    def run(compiled):
        w, found = world("SGD", momentum=0.9), []
        schedule = SCHEDULERS[name](w.optimizer)

        def step(x, y):
            before = schedule.get_last_lr()
            loss = w.train(x, y)
            schedule.step()
            return {"loss": loss, "rates": [before, schedule.get_last_lr()]}

        step = ng.compile(step) if compiled else step
        for _ in range(7):
            told = step(ng.ones(4, 3), ng.ones(4, 2))
            found += [told["loss"].item(), *told["rates"][0], *told["rates"][1]]
        return found

    assert run(True) == pytest.approx(run(False), rel=1e-5, abs=1e-6)


METRICS = {
    "the loss": lambda w, loss, given: loss,
    "one that is changed": lambda w, loss, given: loss.detach().mul_(0.5),
    "an argument": lambda w, loss, given: given,
    "a number": lambda w, loss, given: 1.0,
    "of the weights": lambda w, loss, given: next(w.net.parameters()).abs().sum(),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "Own"])
def test_a_scheduler_that_looks_at_a_metric_does_so_in_the_end(metric, optimizer):
    def run(compiled):
        w, found = world(optimizer), []
        schedule = S.ReduceLROnPlateau(w.optimizer, factor=0.5, patience=1, mode="max")
        w.calls = 0

        def step(x, y, given):
            w.calls += 1
            loss = w.train(x, y)
            value = METRICS[metric](w, loss, given)
            schedule.step(value)
            if metric == "one that is changed":
                value.zero_()
            return loss, schedule.get_last_lr()

        step = ng.compile(step) if compiled else step
        for k in range(7):
            loss, rates = step(ng.ones(4, 3), ng.ones(4, 2), 3.0 / (1 + k))
            found += [loss.item(), *rates, schedule.num_bad_epochs, schedule.best, w.calls]
        return found, step

    found, step = run(True)
    assert found == pytest.approx(run(False)[0], rel=1e-5, abs=1e-6)
    assert len({tuple(found[k + 1 : k + 4]) for k in range(0, len(found), 5)}) > 1
    assert step.cache_info().recordings == 1


def test_what_is_read_of_a_scheduler_of_a_metric_is_read_by_each_call():
    w = world("SGD")
    schedule = S.ReduceLROnPlateau(w.optimizer, patience=10)
    step = ng.compile(lambda x: x * (2.0 if schedule.num_bad_epochs else 1.0))
    schedule.step(1.0)
    assert step(ng.ones(1)).item() == 1.0
    schedule.step(2.0)
    assert step(ng.ones(1)).item() == 2.0


def test_schedulers_of_two_optimizers():
    def run(compiled):
        worlds = [world("SGD"), world("AdamW")]
        schedules = [S.ExponentialLR(w.optimizer, 0.5) for w in worlds]

        def step(x, y):
            for w, schedule in zip(worlds, schedules, strict=True):
                w.train(x, y)
                schedule.step()

        step = ng.compile(step) if compiled else step
        for _ in range(3):
            step(ng.ones(4, 3), ng.ones(4, 2))
        return snapshot([*worlds[0].net.parameters(), *[w.optimizer for w in worlds]])

    assert_same(run(True), run(False), tolerance=1e-6)


def test_a_call_that_fails_is_no_step_of_the_scheduler():
    w = world("SGD")
    schedule = S.ExponentialLR(w.optimizer, 0.5)

    @ng.compile
    def step(x, labels):
        loss = ng.nn.functional.cross_entropy(w.net(x), labels)
        loss.backward()
        w.optimizer.step()
        schedule.step()

    step(ng.ones(2, 3), ng.tensor([0, 1]))
    with pytest.raises(IndexError):
        step(ng.ones(2, 3), ng.tensor([0, 7]))
    assert schedule.last_epoch == 1


def scheduled(then):
    def step(w, x, y, lr):
        w.train(x, y)
        w.schedule.step()
        return then(w, x, y, w.schedule)

    return step


def between(w, x, y, lr):
    w.optimizer.param_groups[0]["lr"] = lr
    w.train(x, y)
    w.optimizer.param_groups[0]["lr"] = lr / 2
    return w.train(x, y)


REFUSED = {
    "between two steps": (between, r"option 'lr'.*test_settings.py:\d+.*between two steps"),
    "to a string": (
        lambda w, x, y, lr: w.optimizer.param_groups[0].update(lr="high"),
        "option 'lr'.*before the call",
    ),
    "to be read": (
        scheduled(lambda w, x, y, schedule: w.optimizer.param_groups[0]["lr"]),
        r"lr_scheduler.step.*test_settings.py:\d+.*what it changes.*test_settings.py:\d+.*last",
    ),
    "to be computed with": (
        scheduled(lambda w, x, y, s: s.get_last_lr()[0] * 2.0),
        r"get_last_lr: not possible.*test_settings.py:\d+.*compute.*mul.*Return it as it is",
    ),
    "to be computed with from the right": (
        scheduled(lambda w, x, y, s: x * s.get_last_lr()[0]),
        "get_last_lr: not possible.*Return it as it is",
    ),
    "to be shown": (
        scheduled(lambda w, x, y, s: f"{s.get_last_lr()[0]:.3f}"),
        "get_last_lr: not possible.*format.*Return it as it is",
    ),
    "of a scheduler made here": (
        lambda w, x, y, lr: S.StepLR(w.optimizer, 1).step(),
        "StepLR: not possible.*Make it before",
    ),
    "before a step": (scheduled(lambda w, x, y, s: w.train(x, y)), "lr_scheduler.step.*last"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_leaves_all_as_it_was(name):
    step, words = REFUSED[name]
    w = world("SGD")
    w.schedule = S.StepLR(w.optimizer, 1)
    before = snapshot([w, {k: v for k, v in w.optimizer.param_groups[0].items() if k != "params"}])
    with pytest.raises(RecordingError, match=words):
        ng.compile(lambda x, y, lr: step(w, x, y, lr))(ng.ones(4, 3), ng.ones(4, 2), 0.3)
    after = snapshot([w, {k: v for k, v in w.optimizer.param_groups[0].items() if k != "params"}])
    assert_same(after, before, tolerance=0)


def test_what_is_read_of_a_scheduler_is_read_by_each_call():
    """Its count decides whether it steps; a warm-up of two steps, then none."""
    w = world("SGD")
    schedule = S.ExponentialLR(w.optimizer, 0.5)

    @ng.compile
    def step(x, y):
        count = schedule.last_epoch
        loss = w.train(x, y)
        if schedule.last_epoch < 2:
            schedule.step()
        return loss * 0 + count

    x, y = ng.ones(4, 3), ng.ones(4, 2)
    assert [step(x, y).item() for _ in range(5)] == [0, 1, 2, 2, 2]
    assert schedule.last_epoch == 2

    @ng.compile
    def late(x, y):
        loss = w.train(x, y)
        schedule.step()
        return loss * schedule.last_epoch

    with pytest.raises(RecordingError, match="before something that asks for what it changes"):
        late(x, y)
    assert schedule.last_epoch == 2
