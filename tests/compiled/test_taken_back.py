"""What eager code changes and takes back, or makes anew, lets compiled steps be; what a refused
recording has changed is taken back."""

from __future__ import annotations

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError


def squares(model):
    """A compiled loss of the model, with its gradient."""

    @ng.compile
    def loss(x):
        value = model(x).square().mean()
        value.backward()
        return value

    return loss


def test_other_weights_for_one_call():
    model = nn.Linear(3, 2)
    loss, x = squares(model), ng.randn(4, 3)
    for _ in range(3):
        model.zero_grad()
        assert ng.allclose(loss(x), model(x).square().mean())
        moved = {name: p + 1.0 for name, p in model.named_parameters()}
        out = ng.func.functional_call(model, moved, (x,))
        assert ng.allclose(out, x @ moved["weight"].t() + moved["bias"])
    assert loss.cache_info().recordings == 1


def test_a_compiled_layer_sees_other_weights_while_they_are_there():
    inner = nn.Linear(3, 3)
    double = ng.compile(lambda x: inner(x) * 2.0)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return double(x)

    outer, x = Outer(), ng.randn(4, 3)
    with ng.no_grad():
        for scale in (1.0, 2.0, 3.0):
            given = {"inner.weight": ng.eye(3) * scale, "inner.bias": ng.zeros(3)}
            assert ng.allclose(ng.func.functional_call(outer, given, (x,)), 2.0 * scale * x)
            assert ng.allclose(outer(x), 2.0 * inner(x))


def test_a_function_that_calls_with_other_weights_lets_the_others_be():
    model = nn.Linear(3, 2)
    loss, x = squares(model), ng.randn(4, 3)

    @ng.compile
    def moved(x):
        given = {name: p * 0.5 for name, p in model.named_parameters()}
        return ng.func.functional_call(model, given, (x,)).sum()

    for _ in range(3):
        model.zero_grad()
        loss(x)
        moved(x)
    assert loss.cache_info().recordings == moved.cache_info().recordings == 1


def test_the_first_step_of_an_optimiser_with_groups():
    model = nn.Linear(3, 2)
    optimizer = ng.optim.Adam([{"params": [model.weight]}, {"params": [model.bias], "lr": 1e-2}])
    loss, x = squares(model), ng.randn(4, 3)

    @ng.compile
    def step():
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        loss(x)
        step()
    assert loss.cache_info().recordings == step.cache_info().recordings == 1


def test_gradients_that_are_off_for_a_while():
    model = nn.Linear(3, 2)
    loss, x = squares(model), ng.randn(4, 3)
    for _ in range(3):
        model.zero_grad()
        loss(x)
        for p in model.parameters():
            p.requires_grad = False
        model(x)
        model.requires_grad_(True)
    assert loss.cache_info().recordings == 1


class Recurrent(nn.Module):
    """Registers what it replaces in each call, some of it by what cannot be put back."""

    def __init__(self):
        super().__init__()
        self.register_buffer("first", ng.ones(2))
        self.register_buffer("state", ng.zeros(3))
        self.register_buffer("unused", None)
        self.weight = nn.Parameter(ng.ones(3))
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        self.state = self.state + x
        self.unused = x * 2.0
        self.weight = nn.Parameter(ng.zeros(3))
        self.inner = nn.Linear(3, 3)
        return self.inner(self.state) * self.weight


def test_what_a_module_registers_after_a_refused_recording():
    model, x = Recurrent(), ng.ones(3)
    tables = "_parameters", "_buffers", "_modules", "__dict__"
    then = [dict(getattr(model, table)) for table in tables]
    values = {name: t.tolist() for name, t in model.state_dict().items()}
    with pytest.raises(RecordingError, match=r"kept outside|changes"):
        ng.compile(model)(x)
    for table, held in zip(tables, then, strict=True):
        now = {k: v for k, v in getattr(model, table).items() if k != "_watched"}
        held.pop("_watched", None)
        assert now.keys() == held.keys() and all(now[k] is held[k] for k in now), table
    assert {name: t.tolist() for name, t in model.state_dict().items()} == values
    model(x)
    assert model.state.tolist() == [1.0, 1.0, 1.0]
