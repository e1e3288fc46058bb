"""``follow``: run the same scenario eagerly and compiled, and compare all that it can reach.

A scenario is a *world* (an object whose attributes are models, optimisers and tensors), a step on
it, and work done eagerly between the steps. Start reading at ``follow``.
"""

from __future__ import annotations

import numpy as np

import numbagrad as ng
from numbagrad import nn, optim


class World:
    """A small net and its optimiser; its methods are steps that many scenarios share."""

    def __init__(self, optimizer="SGD", groups=False, net=None, **options):
        self.net = net or nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        params = list(self.net.parameters())
        if groups:
            params = [{"params": params[:2]}, {"params": params[2:], "lr": 0.02}]
        options = {"lr": 0.1, **options}
        self.optimizer = getattr(optim, optimizer)(params, **options)

    def loss(self, x, y):
        return ((self.net(x) - y) ** 2).mean()

    def train(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss

    def differentiate(self, x, y):
        loss = self.loss(x, y)
        loss.backward()
        return loss

    def forward(self, x, y):
        return self.net(x) - y


def batches(count, size=5):
    """The data of ``count`` steps."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        x, y = rng.standard_normal((size, 3)), rng.standard_normal((size, 2))
        yield ng.tensor(x, dtype=ng.float32), ng.tensor(y, dtype=ng.float32)


def snapshot(thing, seen=None):
    """What can be seen of ``thing``: tensors with gradients, versions and history, nested."""
    seen = {} if seen is None else seen
    if isinstance(thing, np.ndarray):
        return thing.copy()
    if isinstance(thing, ng.Tensor):
        if id(thing) in seen:
            return f"the same as tensor {seen[id(thing)]}"
        seen[id(thing)] = len(seen)
        return {
            "value": thing.detach().numpy().copy(),
            "dtype": str(thing.dtype),
            "requires_grad": thing.requires_grad,
            "is_leaf": thing.is_leaf,
            "version": thing._version,
            "stride": thing.stride(),
            "grad": snapshot(thing._grad, seen),
        }
    if isinstance(thing, nn.Module):
        named = [*thing.named_parameters(), *thing.named_buffers()]
        return {name: snapshot(t, seen) for name, t in named}
    if isinstance(thing, optim.Optimizer):
        state = [[snapshot(p, seen), snapshot(held, seen)] for p, held in thing.state.items()]
        groups = [{k: v for k, v in g.items() if k != "params"} for g in thing.param_groups]
        return {"state": state, "groups": repr(groups)}
    if isinstance(thing, dict):
        return {k: snapshot(v, seen) for k, v in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [type(thing).__name__, *[snapshot(v, seen) for v in thing]]
    if isinstance(thing, World):
        return snapshot(vars(thing), seen)
    return thing if isinstance(thing, (int, float, str, bool, type(None))) else type(thing).__name__


def assert_same(found, expected, where="", tolerance=3e-6):
    """Compare two snapshots; values may differ by the order of sums only."""
    __tracebackhide__ = True
    if isinstance(expected, np.ndarray):
        assert found.shape == expected.shape and found.dtype == expected.dtype, where
        atol = 0 if tolerance == 0 else tolerance * np.abs(expected).max(initial=1e-30)
        np.testing.assert_allclose(found, expected, tolerance, atol, err_msg=where)
    elif isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key in expected:
            assert_same(found[key], expected[key], f"{where}.{key}", tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert_same(a, b, f"{where}[{k}]", tolerance)
    else:
        assert type(found) is type(expected) and found == expected, f"{where}: {found}, {expected}"


def run(make, step, between, calls, compiled, data):
    """One run of a scenario: what could be seen after each call, and the compiled function."""
    ng.manual_seed(3)
    world = make()
    bound = step if callable(step) else getattr(type(world), step)

    def call(x, y):
        return bound(world, x, y)

    function = ng.compile(call) if compiled else call
    seen = []
    for k, (x, y) in enumerate(data(calls)):
        if k in between:
            between[k](world)
        result = function(x, y)
        seen.append(snapshot([result, world, x, y, ng.get_rng_state()]))
        del result
    return seen, function


def follow(make=World, step="train", between=None, calls=6, data=batches):
    """Assert that compiled calls do what eager ones do; returns the compiled function."""
    between = between or {}
    expected, _ = run(make, step, between, calls, False, data)
    found, function = run(make, step, between, calls, True, data)
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert_same(a, b, f"call {k}: ")
    return function


def recordings_of(make, count):
    """How often each function of a scenario is recorded in so many calls, each as without compile.

    make: takes what compiles, or does not, and returns a function of the number of the call.
    """
    compiled = []

    def compile_and_keep(function):
        compiled.append(ng.compile(function))
        return compiled[-1]

    calls = []
    for wrap in (lambda function: function, compile_and_keep):
        ng.manual_seed(0)
        calls.append(make(wrap))
    for k in range(count):
        expected, got = (snapshot(call(k)) for call in calls)
        assert_same(got, expected, f"call {k}: ")
    return [each.cache_info().recordings for each in compiled]
