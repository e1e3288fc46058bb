"""parametrizations.orthogonal: orthonormal matrices by three maps, as PyTorch's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.nn.utils.parametrizations import orthogonal

SHAPES = [(3, 3), (5, 2), (2, 4)]
HOW = [
    (shape, name, trivial)
    for shape, name, trivial in itertools.product(
        SHAPES, ("matrix_exp", "cayley", "householder"), (True, False)
    )
    if trivial or name == "householder"
]
ids = [f"{s[0]}x{s[1]}-{n}-{t}" for s, n, t in HOW]


def layers(shape, name, trivial):
    """Layers of both libraries with equal originals and bases."""
    torch = pytest.importorskip("torch")
    start = np.random.default_rng(5).standard_normal(shape)
    made = []
    for lib, make in ((ng, orthogonal), (torch, torch.nn.utils.parametrizations.orthogonal)):
        layer = lib.nn.Linear(shape[1], shape[0], bias=False, dtype=lib.float64)
        layer.weight.data.copy_(lib.tensor(start))
        made.append(make(layer, "weight", name, use_trivialization=trivial))
    if trivial:
        base = made[1].parametrizations.weight[0].base.numpy()
        made[0].parametrizations.weight[0].base.copy_(ng.tensor(base))
    return made


def far_from_orthonormal(w):
    w = w if w.shape[0] >= w.shape[1] else w.T
    return (w.T @ w - ng.eye(w.shape[1], dtype=w.dtype)).abs().max().item()


@pytest.mark.parametrize(("shape", "name", "trivial"), HOW, ids=ids)
def test_weights_and_gradients_are_torchs(shape, name, trivial):
    mine, his = layers(shape, name, trivial)
    assert list(mine.state_dict()) == list(his.state_dict())
    assert far_from_orthonormal(mine.weight) < 1e-12
    original = np.random.default_rng(6).standard_normal(shape)
    signs = np.sign(original.diagonal())
    original[range(len(signs)), range(len(signs))] = signs
    factor = np.arange(6.0, 6.0 + original.size).reshape(shape)
    grads = []
    for lib, layer in ((ng, mine), (pytest.importorskip("torch"), his)):
        held = layer.parametrizations.weight.original
        held.data.copy_(lib.tensor(original))
        (layer.weight * lib.tensor(factor)).sum().backward()
        grads.append(held.grad.numpy())
    np.testing.assert_allclose(
        mine.weight.detach().numpy(), his.weight.detach().numpy(), atol=1e-13
    )
    np.testing.assert_allclose(*grads, rtol=1e-9, atol=1e-10)
    assert far_from_orthonormal(mine.weight) < 1e-12


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "trivial"), [("cayley", True), ("householder", False)])
def test_an_orthonormal_matrix_can_be_assigned(shape, name, trivial):
    layer = ng.nn.Linear(shape[1], shape[0], dtype=ng.float64)
    orthogonal(layer, "weight", name, use_trivialization=trivial)
    wanted = ng.nn.init.orthogonal_(ng.empty(*shape, dtype=ng.float64))
    layer.weight = wanted
    assert layer.weight.allclose(wanted, atol=1e-12)
    layer.weight = ng.eye(*shape, dtype=ng.float64)
    assert layer.weight.allclose(ng.eye(*shape, dtype=ng.float64))


def test_a_compiled_step_stays_orthonormal():
    ng.manual_seed(0)
    layer = orthogonal(ng.nn.Linear(4, 2, bias=False))
    optimizer = ng.optim.SGD(layer.parameters(), 0.1)
    x = ng.randn(3, 4)

    @ng.compile
    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x).item() for _ in range(5)]
    assert losses[-1] < losses[0] and far_from_orthonormal(layer.weight) < 1e-5


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: orthogonal(m, "scale"), ValueError, "no parameter or buffer 'scale'"),
        (lambda m: orthogonal(m, "bias"), ValueError, "must be a matrix"),
        (lambda m: orthogonal(m, "weight", "qr"), ValueError, "must be one of"),
        (
            lambda m: orthogonal(m, "weight", "cayley", use_trivialization=False),
            NotImplementedError,
            "only the map 'householder'",
        ),
    ],
)
def test_mistakes_are_named(call, error, words):
    layer = ng.nn.Linear(2, 2)
    with pytest.raises(error, match=words):
        call(layer)
    assert type(layer) is ng.nn.Linear
