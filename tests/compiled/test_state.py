"""Compiled steps change state as eager ones do, and follow what is done to it in between."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn, optim

from .following import World, follow

OPTIMISERS = {
    "sgd": ("SGD", {"weight_decay": 0.1}),
    "maximize": ("SGD", {"maximize": True}),
    "momentum": ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    "adamw": ("AdamW", {"lr": 0.01}),
    "amsgrad": ("Adam", {"lr": 0.01, "amsgrad": True}),
    "rmsprop": ("RMSprop", {"lr": 0.01}),
    "rmsprop-centered": ("RMSprop", {"lr": 0.01, "eps": 1e-4, "centered": True, "momentum": 0.5}),
    "adagrad": ("Adagrad", {"lr": 0.05}),
    "groups": ("SGD", {"momentum": 0.9, "groups": True}),
    "groups-adam": ("Adam", {"groups": True}),
}


@pytest.mark.parametrize("row", OPTIMISERS)
def test_optimiser(row):
    name, options = OPTIMISERS[row]
    function = follow(lambda: World(name, **options))
    assert function.cache_info().compilations == 1


def test_dampening_after_one_eager_step():
    def make():
        world = World(momentum=0.9, dampening=0.3)
        world.train(ng.ones(5, 3), ng.ones(5, 2))
        return world

    follow(make)


# -- work in between -------------------------------------------------------------------------------


def go_on_eagerly(world):
    for _ in range(2):
        world.train(ng.ones(4, 3), ng.zeros(4, 2))


def hold_gradients(world):
    world.held = [p.grad for p in world.net.parameters()]


def hold_gradient_memory(world):
    world.held = [p.grad.detach() for p in world.net.parameters()]


def hold_gradient_arrays(world):
    world.arrays = [p.grad.numpy() for p in world.net.parameters()]
    world.copies = [a.copy() for a in world.arrays]


def arrays_are_kept(world):
    for a, b in zip(world.arrays, world.copies, strict=True):
        np.testing.assert_array_equal(a, b)


def drop_gradients(world):
    for p in world.net.parameters():
        p.grad = None


def drop_one_gradient(world):
    world.net[0].weight.grad = None


def set_gradients(world):
    for p in world.net.parameters():
        p.grad = ng.ones_like(p)


def share_a_gradient(world):
    world.shared = ng.ones(2)
    world.net[2].bias.grad = world.shared


def zero_gradients(world):
    world.optimizer.zero_grad(set_to_none=False)


def scale_gradients(world):
    with ng.no_grad():
        for p in world.net.parameters():
            p.grad.mul_(2.0)


def load_model(world):
    other = World().net
    world.net.load_state_dict({k: v * 0.5 for k, v in other.state_dict().items()})


def load_optimizer(world):
    world.optimizer.load_state_dict(world.saved)


def save_optimizer(world):
    world.saved = world.optimizer.state_dict()


def save_and_load(world):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        ng.save({"net": world.net.state_dict(), "optimizer": world.optimizer.state_dict()}, path)
        go_on_eagerly(world)
        found = ng.load(path)
    world.net.load_state_dict(found["net"])
    world.optimizer.load_state_dict(found["optimizer"])


def freeze(world):
    world.net[0].requires_grad_(False)


def freeze_and_drop(world):
    world.net[0].requires_grad_(False)
    world.net[0].weight.grad = world.net[0].bias.grad = None


def unfreeze(world):
    world.net[0].requires_grad_(True)


def set_rate(world):
    for group in world.optimizer.param_groups:
        group["lr"] *= 0.3


def set_momentum(world):
    world.optimizer.param_groups[0]["momentum"] = 0.5


def no_momentum(world):
    world.optimizer.param_groups[0]["momentum"] = 0.0


def replace_data(world):
    world.net[0].weight.data = ng.full((4, 3), 0.1)


def change_in_place(world):
    with ng.no_grad():
        world.net[0].weight.mul_(0.5)
        world.net[2].bias.data.fill_(0.25)


def to_double(world):
    world.net = nn.Sequential(Cast(), world.net).to(ng.float64)
    world.optimizer = optim.SGD(world.net.parameters(), lr=0.1)
    drop_gradients(world)


class Cast(nn.Module):
    def forward(self, x):
        return x.double()


def replace_layer(world):
    world.net[2] = nn.Linear(4, 2)
    world.optimizer = optim.SGD(world.net.parameters(), lr=0.05)


def replace_activation(world):
    world.net[1] = nn.ReLU()


def replace_bias(world):
    world.net[2].bias = nn.Parameter(ng.ones(2))


def remove_bias(world):
    world.net[2].bias = None


def add_group(world):
    world.extra = ng.ones(2, requires_grad=True)
    world.optimizer.add_param_group({"params": [world.extra], "lr": 0.01})


def forget_optimizer_state(world):
    world.optimizer.state.clear()


def new_optimizer(world):
    world.optimizer = optim.Adam(world.net.parameters(), lr=0.01)


BETWEEN = {
    "eager steps": {2: go_on_eagerly, 4: go_on_eagerly},
    "held gradients": {2: hold_gradients, 4: hold_gradients},
    "held gradient memory": {3: hold_gradient_memory},
    "held gradient arrays": {2: hold_gradient_arrays, 4: arrays_are_kept},
    "no gradients": {1: drop_gradients, 3: drop_gradients},
    "one gradient less": {3: drop_one_gradient},
    "other gradients": {0: set_gradients, 3: set_gradients},
    "a gradient that is held": {3: share_a_gradient},
    "gradients of zeros": {1: zero_gradients, 4: zero_gradients},
    "scaled gradients": {2: scale_gradients},
    "load model": {3: load_model},
    "load optimizer": {2: save_optimizer, 4: load_optimizer},
    "save and load": {3: save_and_load},
    "freeze": {2: freeze, 4: unfreeze},
    "freeze and drop": {2: freeze_and_drop, 4: unfreeze},
    "learning rate": {2: set_rate, 3: set_rate},
    "momentum": {2: set_momentum, 4: no_momentum},
    "data": {3: replace_data},
    "in place": {2: change_in_place, 4: change_in_place},
    "double": {3: to_double},
    "layer": {3: replace_layer},
    "activation": {3: replace_activation},
    "bias": {3: replace_bias},
    "no bias": {3: remove_bias},
    "group": {3: add_group},
    "state": {3: forget_optimizer_state},
    "optimizer": {3: new_optimizer},
}


@pytest.mark.parametrize("row", BETWEEN)
@pytest.mark.parametrize("step", ["train", "differentiate"])
def test_between(row, step):
    between = BETWEEN[row]
    if (row, step) == ("held gradient arrays", "differentiate"):
        pytest.skip("gradients are added to in place")
    if (row, step) == ("scaled gradients", "train"):
        pytest.skip("the version of a gradient that is overwritten goes on, instead of from 0")
    if step == "differentiate" and 0 in between:
        pytest.skip("its gradients exist from the start")
    follow(lambda: World(momentum=0.9), step, between)
