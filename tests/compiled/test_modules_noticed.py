"""Compiled functions notice Python values that code looks at which runs without being named:
modules in modules, hooks, methods behind ``super()``, functions that a layer was given."""

from __future__ import annotations

import functools
import weakref
from collections import UserDict
from types import SimpleNamespace

import pytest

import numbagrad as ng
from numbagrad import nn


class Scaled(nn.Module):
    """Multiplies by a number of its own and by one that its forward closes over."""

    def __init__(self, outside):
        super().__init__()
        self.outside, self.table, self.values = outside, {"scale": 1.0}, [1.0]

    def forward(self, x):
        return x * self.outside.scale * self.table["scale"] * self.values[0]


class Further(Scaled):
    def forward(self, x):
        return super().forward(x) + 1.0


class Listed(nn.Module):
    """Calls what it holds, under no name."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


NESTS = {
    "alone": lambda layer: layer,
    "sequential": lambda layer: nn.Sequential(nn.Identity(), nn.Sequential(layer)),
    "list": lambda layer: nn.Sequential(Listed(layer)),
}


@pytest.mark.parametrize("kind", [Scaled, Further])
@pytest.mark.parametrize("nest", NESTS)
def test_what_modules_in_modules_look_at(nest, kind):
    outside = SimpleNamespace(scale=1.0)
    layer = kind(outside)
    model = NESTS[nest](layer)
    compiled = ng.compile(lambda x: model(x))
    x = ng.ones(2)
    assert compiled(x).equal(model(x))
    outside.scale = 2.0
    assert compiled(x).equal(model(x))
    layer.table["scale"] = 3.0
    assert compiled(x).equal(model(x))
    layer.values[0] = 5.0
    assert compiled(x).equal(model(x)) and model(x)[0].item() >= 30.0


class Hook:
    """Called as a hook, or its method is."""

    def __init__(self, factors):
        self.factors = factors

    def __call__(self, module, args, out):
        return out * self.factors.scale

    def method(self, module, args, out):
        return out * self.factors.scale


def scaled_by(factors, module, args, out):
    return out * factors.scale


def replaced(parameter, scale):
    parameter.grad.mul_(scale)


def scaled_arguments(module, args, kwargs, scale):
    return (args[0] * scale,), kwargs


HOOKS = {
    "forward": lambda m, f: m.register_forward_hook(lambda _, a, out: out * f.scale),
    "object": lambda m, f: m.register_forward_hook(Hook(f)),
    "method": lambda m, f: m.register_forward_hook(Hook(f).method),
    "partial": lambda m, f: m.register_forward_hook(functools.partial(scaled_by, f)),
    "keywords": lambda m, f: m.register_forward_pre_hook(
        lambda *given: scaled_arguments(*given, f.scale), with_kwargs=True
    ),
    "backward": lambda m, f: m.register_full_backward_hook(lambda _, gx, g: (gx[0] * f.scale,)),
    "gradient": lambda m, f: m.weight.register_hook(lambda g: g * f.scale),
    "accumulated": lambda m, f: m.weight.register_post_accumulate_grad_hook(
        lambda p: replaced(p, f.scale)
    ),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_what_hooks_look_at(hook):
    factors = SimpleNamespace(scale=1.0)
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    model = nn.Sequential(first, second)
    HOOKS[hook](second, factors)

    def gradients(x):
        model.zero_grad()
        model(x).square().sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    compiled = ng.compile(gradients)
    for factors.scale in (1.0, 2.0, 5.0):
        x = ng.ones(3, 2)
        for ours, expected in zip(compiled(x), gradients(x), strict=True):
            assert ours.allclose(expected)


def test_a_hook_keeps_what_each_call_gives():
    model, kept = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), {}
    model[0].register_forward_hook(lambda module, args, out: kept.update(out=out.detach()))
    compiled = ng.compile(lambda x: model(x))
    for k in range(3):
        x = ng.full((1, 2), float(k))
        compiled(x)
        ours = kept["out"].clone()
        model(x)
        assert ours.allclose(kept["out"])


class Base:
    def factor(self):
        return self.held.scale


class Derived(Base):
    def __init__(self, held):
        self.held = held

    def factor(self):
        return super().factor() * 2


def test_what_a_method_behind_super_looks_at():
    held = SimpleNamespace(scale=1.0)
    derived = Derived(held)
    compiled = ng.compile(lambda x: x * derived.factor())
    for held.scale in (1.0, 3.0):
        assert compiled(ng.ones(1)).item() == 2 * held.scale


def test_what_a_function_that_a_layer_was_given_looks_at():
    held = SimpleNamespace(scale=1.0)

    def distance(x, y):
        return (x - y).abs().sum(1) * held.scale

    loss = nn.TripletMarginWithDistanceLoss(distance_function=distance)
    compiled = ng.compile(lambda x: loss(x, x + 1, x + 1.25))
    for held.scale in (1.0, 2.0):
        assert compiled(ng.ones(2, 2)).item() == 1 - 0.5 * held.scale


class Stretched(ng.distributions.transforms.Transform):
    """``x`` times a number outside."""

    domain = codomain = ng.distributions.constraints.real
    bijective = True

    def __init__(self, held):
        super().__init__()
        self.held = held

    def _inverse(self, y):
        return y / self.held.scale

    def log_abs_det_jacobian(self, x, y):
        return ng.full_like(x, self.held.scale)


def test_what_a_transform_in_a_distribution_looks_at():
    held = SimpleNamespace(scale=1.0)
    normal = ng.distributions.Normal(ng.zeros(2), 1.0)
    made = ng.distributions.TransformedDistribution(normal, [Stretched(held)])
    compiled = ng.compile(lambda x: made.log_prob(x))
    for held.scale in (1.0, 2.0):
        assert compiled(ng.ones(2)).allclose(made.log_prob(ng.ones(2)))


class Seen(ng.autograd.Function):
    factors = SimpleNamespace(scale=1.0)

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = Seen.factors.scale

    @staticmethod
    def backward(ctx, g):
        return g * ctx.scale


def test_what_setup_context_looks_at():
    seen, w = Seen.apply, ng.ones(2, requires_grad=True)
    compiled = ng.compile(lambda x: ng.autograd.grad(seen(w * x).sum(), w)[0])
    for Seen.factors.scale in (1.0, 3.0):
        assert compiled(ng.ones(2)).tolist() == [Seen.factors.scale] * 2


class OfClass(type):
    @property
    def scale(cls):
        return cls.held.scale


class Indirect(metaclass=OfClass):
    held = SimpleNamespace(scale=1.0)


def test_what_python_itself_calls():
    held = Further(None)
    weak, mapped = weakref.ref(held), UserDict(scale=1.0)
    looks = {
        "property": lambda: held.scale,
        "metaclass": lambda: Indirect.scale,
        "weak reference": lambda: weak().scale,
        "mapping": lambda: mapped["scale"],
    }
    for kind, look in looks.items():
        compiled = ng.compile(lambda x, look=look: x * look())
        for scale in (1.0, 4.0):
            held.scale = Indirect.held.scale = mapped["scale"] = scale
            assert compiled(ng.ones(1)).item() == scale, kind
