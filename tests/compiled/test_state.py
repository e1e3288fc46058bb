"""Compiled steps change state as eager ones do, and follow what is done to it in between."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn, optim

from .following import World, assert_same, batches, follow, snapshot

OPTIMISERS = {
    "sgd": ("SGD", {"weight_decay": 0.1}),
    "maximize": ("SGD", {"maximize": True}),
    "momentum": ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "dampening": ("SGD", {"momentum": 0.9, "dampening": 0.3}),  # its first step runs as it is
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


OF_THE_OPTIMIZER = "load optimizer/learning rate/momentum/group/state/optimizer".split("/")


@pytest.mark.interpreted
@pytest.mark.parametrize("row", BETWEEN)
@pytest.mark.parametrize("step", ["train", "differentiate"])
def test_between(row, step):
    between = BETWEEN[row]
    if (row, step) == ("held gradient arrays", "differentiate"):
        pytest.skip("gradients are added to in place")
    if step == "differentiate" and row in OF_THE_OPTIMIZER:
        pytest.skip("only an optimizer would notice")
    if row in ("scaled gradients", "gradients of zeros") and step == "train":
        pytest.skip("the version of a gradient that is overwritten goes on, instead of from 0")
    if step == "differentiate" and 0 in between:
        pytest.skip("its gradients exist from the start")
    follow(lambda: World(momentum=0.9), step, between)


# -- other steps -----------------------------------------------------------------------------------


class Variants(World):
    """Steps that differ from the usual one."""

    def clipped(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()
        return loss, norm

    def clipped_by_value(self, x, y):
        self.optimizer.zero_grad(set_to_none=False)
        self.loss(x, y).backward()
        nn.utils.clip_grad_value_(self.net.parameters(), 0.1)
        self.optimizer.step()

    def zeroed_by_net(self, x, y):
        self.net.zero_grad()
        self.loss(x, y).backward()
        with ng.no_grad():
            for p in self.net.parameters():
                p -= 0.1 * p.grad

    def twice(self, x, y):
        self.optimizer.zero_grad()
        self.loss(x, y).backward()
        self.loss(x * 2.0, y).backward()
        self.optimizer.step()

    def ended_without_gradients(self, x, y):
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def ended_with_zeros(self, x, y):
        self.loss(x, y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)

    def functional(self, x, y):
        params = list(self.net.parameters())
        grads = ng.autograd.grad(self.loss(x, y), params)
        with ng.no_grad():
            for p, g in zip(params, grads, strict=True):
                p.sub_(g, alpha=0.1)
        return grads

    def penalised(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        grads = ng.autograd.grad(loss, list(self.net.parameters()), create_graph=True)
        (loss + sum((g * g).sum() for g in grads)).backward()
        self.optimizer.step()

    def closure(self, x, y):
        def evaluate():
            self.optimizer.zero_grad()
            loss = self.loss(x, y)
            loss.backward()
            return loss

        return self.optimizer.step(evaluate)

    def assigned(self, x, y):
        self.loss(x, y).backward()
        for p in self.net.parameters():
            p.grad = p.grad * 0.5
        self.optimizer.step()

    def returned_gradients(self, x, y):
        self.optimizer.zero_grad()
        self.loss(x, y).backward()
        self.optimizer.step()
        return [p.grad for p in self.net.parameters()]

    def eager_optimizer(self, x, y):
        self.loss(x, y).backward()

    def retained(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward(retain_graph=True)
        loss.backward()
        self.optimizer.step()


STEPS = [name for name, f in vars(Variants).items() if callable(f)]


@pytest.mark.parametrize("step", STEPS)
def test_step(step):
    def eagerly(world):
        world.optimizer.step()
        if step == "eager_optimizer":
            world.optimizer.zero_grad()

    follow(lambda: Variants(momentum=0.9), step, {2: eagerly, 3: go_on_eagerly, 5: drop_gradients})


def test_accumulate_over_calls():
    def step_and_zero(world):
        world.optimizer.step()
        world.optimizer.zero_grad()

    def step_only(world):
        world.optimizer.step()

    function = follow(
        step="differentiate", between={2: step_and_zero, 4: step_only, 6: step_and_zero}, calls=8
    )
    assert function.cache_info().compilations == 2  # without gradients before, and with


SCHEDULERS = {
    "step": lambda o: optim.lr_scheduler.StepLR(o, 2, 0.5),
    "cosine": lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 5),
    "cycle": lambda o: optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_between_steps(name):
    def make():
        world = World(momentum=0.9, groups=True)
        world.scheduler = SCHEDULERS[name](world.optimizer)
        return world

    def move(world):
        world.scheduler.step()

    function = follow(make, between=dict.fromkeys(range(1, 6), move))
    assert function.cache_info().compilations == 1


# -- modules ---------------------------------------------------------------------------------------


class Running(nn.Module):
    """Subtracts a running mean that it keeps in buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", ng.zeros(3))
        self.register_buffer("count", ng.tensor(0))

    def forward(self, x):
        if self.training:
            with ng.no_grad():
                self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
                self.count += 1
        return x - self.mean


class Replacing(nn.Module):
    """Keeps a buffer that each call replaces by a new tensor."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", ng.zeros(3))

    def forward(self, x):
        self.mean.data = (self.mean * 0.9 + x.mean(0)).data
        return x - self.mean


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(3, 2), nn.Linear(3, 2)
        self.out.weight = self.into.weight

    def forward(self, x):
        return self.into(x) + self.out(x * 2.0)


class SameMemory(nn.Module):
    """Two parameters on the same memory."""

    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(3, 2), nn.Linear(3, 2)
        self.out.weight = nn.Parameter(self.into.weight.data)

    def forward(self, x):
        return self.into(x) + self.out(x * 2.0)


class Repeated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.last(self.layer(self.layer(x).relu()))


def dropping():
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))


def stop_training(world):
    world.net.eval()


def start_training(world):
    world.net.train()


def halve(module, args):
    return (args[0] * 0.5,)


def shift(module, args, output):
    return output + 1.0


def hook_modules(world):
    world.net[0].register_forward_pre_hook(halve)
    world.handle = world.net[1].register_forward_hook(shift)


def unhook(world):
    world.handle.remove()


def hook_tensors(world):
    world.handle = world.net[0].weight.register_hook(lambda g: g * 2.0)
    world.net[2].bias.register_hook(lambda g: -g)


NETS = {
    "running mean": (Running, {3: stop_training, 5: start_training}),
    "replaced buffer": (Replacing, {3: go_on_eagerly}),
    "tied": (Tied, {2: go_on_eagerly}),
    "same memory": (SameMemory, {2: go_on_eagerly}),
    "repeated": (Repeated, {}),
    "dropout": (dropping, {2: stop_training, 4: start_training}),
}


@pytest.mark.parametrize("name", NETS)
def test_net(name):
    make, between = NETS[name]

    def world():
        net = make()
        tail = [] if name in ("tied", "same memory", "repeated", "dropout") else [nn.Linear(3, 2)]
        return World(net=nn.Sequential(net, *tail), momentum=0.5)

    follow(world, between=between)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("hook", [hook_modules, hook_tensors])
def test_hooks(hook, before):
    follow(between={0: hook, 3: unhook} if before else {2: hook, 4: unhook})


def test_generator_goes_on_as_eagerly():
    class Noisy(World):
        def noisy(self, x, y):
            self.optimizer.zero_grad()
            loss = self.loss(x + ng.randn_like(x), y) + ng.rand(2).sum()
            loss.backward()
            self.optimizer.step()
            return loss, ng.randint(0, 10, (3,))

    def draw(world):
        world.drawn = ng.rand(3)

    def seed(world):
        ng.manual_seed(5)

    def restore(world):
        ng.set_rng_state(world.held)

    def hold(world):
        world.held = ng.get_rng_state()

    follow(Noisy, "noisy", {1: hold, 2: draw, 3: seed, 4: restore})


def values(world):
    return [[p.detach().numpy(), p.grad.numpy()] for p in world.net.parameters()]


def test_two_functions_share_a_model():
    ng.manual_seed(0)
    model = World(momentum=0.9)
    ng.manual_seed(0)
    eager = World(momentum=0.9)
    train = ng.compile(model.train)
    accumulate = ng.compile(model.differentiate)
    predict = ng.compile(model.forward)
    for x, y in batches(5):
        for eager_step, step in (
            (eager.train, train),
            (eager.differentiate, accumulate),
            (eager.forward, predict),
            (eager.differentiate, accumulate),
            (eager.differentiate, model.differentiate),
            (eager.differentiate, accumulate),
        ):
            assert_same(snapshot(step(x, y).detach()), snapshot(eager_step(x, y).detach()))
            assert_same(snapshot(values(model)), snapshot(values(eager)))
    recorded = [f.cache_info().recordings for f in (train, accumulate, predict)]
    assert recorded == [1, 1, 1]


def test_gradients_of_no_elements_have_their_shape():
    weight, bias = nn.Parameter(ng.zeros(0, 3)), nn.Parameter(ng.ones(2))
    optimizer = ng.optim.SGD([weight, bias], lr=0.5)

    @ng.compile
    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = weight.square().sum() + bias.sum()
        loss.backward()
        optimizer.step()
        return loss

    assert [step().item() for _ in range(3)] == [2.0, 1.0, 0.0]
    assert weight.grad.shape == (0, 3)


def test_tensors_that_the_collector_was_told_to_forget_are_followed(whole_heap):
    weight = ng.ones(3)
    gc.freeze()
    try:

        @ng.compile
        def step(x):
            weight.add_(x)
            return weight * 2

        assert [step(ng.ones(3)).tolist() for _ in range(2)] == [[4.0] * 3, [6.0] * 3]
        assert weight.tolist() == [3.0] * 3
    finally:
        gc.unfreeze()
