"""Recurrent layers on the device: both directions, biases or none, few rows of a batch and many."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng

pytestmark = pytest.mark.cuda

OPTIONS = {
    "RNN": {},
    "RNN relu": {"nonlinearity": "relu"},
    "LSTM": {},
    "LSTM projected": {"proj_size": 2},
    "GRU": {},
}


@pytest.mark.parametrize("n,bias", [(2, True), (3, False)], ids=["few", "many"])
@pytest.mark.parametrize("kind", OPTIONS)
def test_layer_on_the_device_is_that_of_the_cpu(kind, n, bias):
    ng.manual_seed(0)
    options, name = OPTIONS[kind], kind.split()[0]
    layer = getattr(ng.nn, name)(2, 3, bias=bias, bidirectional=True, **options)
    x = ng.randn(3, n, 2)
    states = [ng.randn(2, n, width) for width in (options.get("proj_size", 3), 3)]
    found = []
    for place in ("cpu", "cuda"):
        layer.to(place)
        layer.zero_grad()
        inputs = [t.to(place).detach().requires_grad_() for t in (x, *states)]
        hx = tuple(inputs[1:]) if name == "LSTM" else inputs[1]
        out, last = layer(inputs[0], hx)
        lasts = last if name == "LSTM" else (last,)
        sum([(t * t).sum() for t in (out, *lasts)]).backward()
        grads = [t.grad for t in (*inputs, *layer.parameters()) if t.grad is not None]
        found.append([t.detach().cpu().numpy() for t in (out, *lasts, *grads)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=2e-5, atol=2e-6)
