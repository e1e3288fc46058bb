"""Updates of large parameters beside the products that make their gradients."""

from itertools import pairwise

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.compiled import updates
from numbagrad.nn.functional import cross_entropy, relu

SIZES = (300, 260, 10)  # the first weight is large: 78,000 elements
BATCH = 24


def network(seed=0):
    ng.manual_seed(seed)
    layers = [ng.nn.Linear(a, b, dtype=ng.float64) for a, b in pairwise(SIZES)]
    x, labels = ng.randn(BATCH, SIZES[0], dtype=ng.float64), ng.randint(0, 10, (BATCH,))
    return layers, x, labels


def training_step(layers, optimizer, between=lambda layers: None):
    def step(x, labels):
        optimizer.zero_grad()
        loss = cross_entropy(layers[1](relu(layers[0](x))), labels)
        loss.backward()
        between(layers)
        optimizer.step()
        return loss

    return step


OPTIMIZERS = {
    "sgd": lambda p: ng.optim.SGD(p, lr=0.1),
    "momentum": lambda p: ng.optim.SGD(p, lr=0.1, momentum=0.9),
    "nesterov with decay": lambda p: ng.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "ascent": lambda p: ng.optim.SGD(p, lr=0.01, maximize=True),
    "Adam": lambda p: ng.optim.Adam(p, lr=0.01),
}


def trained(compiled, make, threads=1, between=lambda layers: None, steps=5):
    """Losses, weights and gradients after some steps, and the step."""
    before = ng.get_num_threads()
    ng.set_num_threads(threads)
    try:
        layers, x, labels = network()
        parameters = [p for layer in layers for p in layer.parameters()]
        step = training_step(layers, make(parameters), between)
        if compiled:
            step = ng.compile(step)
        losses = [step(x, labels).item() for _ in range(steps)]
        state = [a.numpy().copy() for p in parameters for a in (p.detach(), p.grad)]
        return losses, state, step
    finally:
        ng.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_same_as_eager(name, threads):
    if threads > ng.get_num_threads():
        pytest.skip("one core")
    losses, state, step = trained(True, OPTIMIZERS[name], threads)
    plain_losses, plain_state, _ = trained(False, OPTIMIZERS[name], threads)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-10)
    for mine, theirs in zip(state, plain_state, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-10)
    assert ("for block in" in step.source) is (name != "Adam")  # Adam counts its steps in each call


def test_the_program_shows_both_updates():
    _, _, step = trained(True, OPTIMIZERS["momentum"])
    names = [getattr(i, "kernel", None) for i in step.program.instructions]
    found = [
        k for k, kernel in enumerate(names) if getattr(kernel, "__name__", "") == "momentum_sgd"
    ]
    assert len(found) == 2
    assert updates.in_step(*step.program.instructions[found[0] - 1 : found[0] + 1])


def test_a_gradient_that_is_changed_first_is_not_taken_from_its_product():
    def clip(layers):
        ng.nn.utils.clip_grad_norm_([p for layer in layers for p in layer.parameters()], 0.01)

    losses, state, step = trained(True, OPTIMIZERS["momentum"], between=clip)
    plain_losses, plain_state, _ = trained(False, OPTIMIZERS["momentum"], between=clip)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-10)
    for mine, theirs in zip(state, plain_state, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-10)
    assert "for block in" not in step.source


def test_a_weight_that_is_read_later_is_updated_later():
    """The gradient of x reads the first weight after the gradient of that weight is made."""
    layers, x, labels = network()
    x.requires_grad_()
    optimizer = ng.optim.SGD([p for layer in layers for p in layer.parameters()], lr=0.5)

    def step(x, labels):
        optimizer.zero_grad()
        loss = cross_entropy(layers[1](relu(layers[0](x))), labels)
        loss.backward()
        size = (layers[0].weight * layers[0].weight).sum()
        optimizer.step()
        return loss, size

    compiled = ng.compile(step)
    _, size = compiled(x, labels)
    mine = [x.grad.numpy().copy(), size.item(), layers[0].weight.detach().numpy().copy()]
    layers, x, labels = network()
    x.requires_grad_()
    optimizer = ng.optim.SGD([p for layer in layers for p in layer.parameters()], lr=0.5)
    _, size = step(x, labels)
    for a, b in zip(mine, [x.grad.numpy(), size.item(), layers[0].weight.detach()], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_a_bad_label_leaves_every_parameter_as_it_was():
    layers, x, labels = network()
    parameters = [p for layer in layers for p in layer.parameters()]
    step = ng.compile(training_step(layers, ng.optim.SGD(parameters, lr=0.1, momentum=0.9)))
    step(x, labels)
    before = [p.detach().numpy().copy() for p in parameters]
    labels[3] = 99
    with pytest.raises(IndexError):
        step(x, labels)
    for p, old in zip(parameters, before, strict=True):
        assert np.array_equal(p.detach().numpy(), old)


def test_the_learning_rate_is_followed():
    layers, x, labels = network()
    optimizer = ng.optim.SGD([p for layer in layers for p in layer.parameters()], lr=0.1)
    step = ng.compile(training_step(layers, optimizer))
    step(x, labels)
    weight = layers[0].weight
    before = weight.detach().numpy().copy()
    optimizer.param_groups[0]["lr"] = 0.0
    step(x, labels)
    assert np.array_equal(weight.detach().numpy(), before)
    optimizer.param_groups[0]["lr"] = 0.25
    step(x, labels)
    np.testing.assert_allclose(weight.detach(), before - 0.25 * weight.grad.numpy(), rtol=1e-10)
