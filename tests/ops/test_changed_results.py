"""Results that are changed in place before backward, where PyTorch's gradient reads none."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import VersionError
from numbagrad.nn import functional as F


def given(*shape):
    x = np.random.default_rng(0).standard_normal(shape)
    return ng.tensor(np.abs(x) + 0.5, requires_grad=True)


LAYERS = {
    "rnn": nn.RNN(3, 3).double(),
    "gru": nn.GRU(3, 3).double(),
    "lstm": nn.LSTM(3, 3).double(),
    "reversed": nn.GRU(3, 3, bidirectional=True).double(),
}
RESULTS = {
    "x ** 0.5": lambda x: x**0.5,
    "x ** -0.5": lambda x: x**-0.5,
    "x ** -1": lambda x: x**-1,
    "float_power": lambda x: ng.float_power(x, 0.5),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(0) * 2, dim=-1),
    **{name: lambda x, layer=layer: layer(x)[0] for name, layer in LAYERS.items()},
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", RESULTS)
def test_gradients_are_those_of_what_was_made(name, compiled):
    x = given(4, 2, 3)

    def step(x, change):
        x.grad = None
        out = RESULTS[name](x)
        if change:
            out *= 3
            out += 0.1
            out.sin().sum().backward()
        else:
            (out * 3 + 0.1).sin().sum().backward()
        return x.grad

    call = ng.compile(step) if compiled else step
    expected = step(x, False).clone()
    for _ in range(2):
        np.testing.assert_allclose(call(x, True).numpy(), expected.numpy(), 1e-12, 1e-14)


def test_what_is_made_again_is_made_of_what_was_given():
    x = given(4, 2, 3)
    y = x * 1
    out = LAYERS["gru"](y)[0]
    out += 1
    y.mul_(2)
    with pytest.raises(VersionError, match="GruBackward"):
        out.sum().backward()


def test_a_second_gradient_does_not_go_through_what_is_made_again():
    x = given(3)
    out = F.normalize(x, dim=0)
    out += 1
    with pytest.raises(VersionError, match="NormalizeBackward"):
        ng.autograd.grad(out.sum(), x, create_graph=True)


@pytest.mark.parametrize("exponent", [0.5, -0.5, -1])
def test_powers_of_both_orders(exponent):
    x = given(3)
    assert ng.autograd.gradcheck(lambda x: x**exponent, (x,))
    assert ng.autograd.gradgradcheck(lambda x: x**exponent, (x,))
    assert ng.tensor([0.0, -1.0]).pow(exponent).isfinite().tolist() == [
        exponent == 0.5,
        exponent == -1,
    ]
