"""Recurrent layers on the device: both directions, biases or none, few rows of a batch and many."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

pytestmark = pytest.mark.cuda

OPTIONS = {
    "RNN": {},
    "RNN relu": {"nonlinearity": "relu"},
    "LSTM": {},
    "LSTM projected": {"proj_size": 2},
    "GRU": {},
}


@pytest.mark.parametrize(
    "n,bias,lengths",
    [(2, True, None), (3, False, None), (2, True, [3, 1]), (5, False, [1, 3, 2, 3, 1])],
    ids=["few", "many", "few packed", "many packed"],
)
@pytest.mark.parametrize("kind", OPTIONS)
def test_layer_on_the_device_is_that_of_the_cpu(kind, n, bias, lengths):
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
        given = inputs[0]
        if lengths:
            given = pack_padded_sequence(given, lengths, enforce_sorted=False)
            assert given.is_cuda == (place == "cuda")
        out, last = layer(given, hx)
        if lengths:
            out, _ = pad_packed_sequence(out)
        lasts = last if name == "LSTM" else (last,)
        sum([(t * t).sum() for t in (out, *lasts)]).backward()
        grads = [t.grad for t in (*inputs, *layer.parameters()) if t.grad is not None]
        found.append([t.detach().cpu().numpy() for t in (out, *lasts, *grads)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=2e-5, atol=2e-6)
