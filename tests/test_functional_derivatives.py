"""autograd.functional and checkpoint: against torch and against the plain way."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.autograd import functional
from numbagrad.utils.checkpoint import checkpoint

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(2, 3)), DRAW.normal(size=3)


def both(x, y):
    return x.sin() * y, (x * x).sum(0) + y.exp()


def one(x):
    return x.exp() * x.sum()


def loss(x, y):
    return (x.sin() * y).sum() + (y * y * y).sum() * x[0, 0]


def alone(x):
    return (x * x * x).sum().exp()


CALLS = {
    "jacobian": ("jacobian", both, (X, Y)),
    "jacobian-one": ("jacobian", one, X),
    "jacobian-scalar": ("jacobian", alone, Y),
    "jacobian-unused": ("jacobian", lambda x, y: (x * 2, y), (X, Y)),
    "hessian": ("hessian", loss, (X, Y)),
    "hessian-one": ("hessian", alone, Y),
    "vjp": ("vjp", both, (X, Y), (X + 1, Y - 1)),
    "vjp-scalar": ("vjp", alone, Y),
    "jvp": ("jvp", both, (X, Y), (X + 1, Y - 1)),
    "jvp-one": ("jvp", one, X, X * 2),
    "hvp": ("hvp", loss, (X, Y), (X + 1, Y - 1)),
    "hvp-one": ("hvp", alone, Y, Y + 1),
    "vhp": ("vhp", loss, (X, Y), (X + 1, Y - 1)),
}


def convert(value, make):
    if isinstance(value, tuple):
        return tuple(convert(v, make) for v in value)
    return make(value) if isinstance(value, np.ndarray) else value


def flat(value):
    if isinstance(value, tuple):
        return [f for v in value for f in flat(v)]
    return [value.detach().numpy()]


@pytest.mark.peer
@pytest.mark.parametrize("name", CALLS)
def test_derivatives_are_torchs(name):
    torch = pytest.importorskip("torch")
    function, *args = CALLS[name]
    found = flat(getattr(functional, function)(*convert(tuple(args), ng.tensor)))
    peer = getattr(torch.autograd.functional, function)
    expected = flat(peer(*convert(tuple(args), torch.tensor)))
    assert [f.shape for f in found] == [e.shape for e in expected]
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-12, atol=1e-12)


def test_create_graph_goes_on():
    x = ng.tensor(Y, requires_grad=True)
    functional.jacobian(lambda x: x * x * x, x, create_graph=True).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * Y)
    product = functional.jvp(lambda x: x * x * x, x, ng.tensor(Y), create_graph=True)[1]
    (again,) = ng.autograd.grad(product.sum(), x)
    np.testing.assert_allclose(again.numpy(), 6 * Y * Y)
    assert not functional.jacobian(lambda x: x * x, x).requires_grad
    with ng.no_grad():
        assert functional.vjp(alone, x)[1].shape == x.shape


def test_what_makes_no_sense_is_refused():
    x = ng.tensor(Y)
    with pytest.raises(RuntimeError, match="single element"):
        functional.hessian(lambda x: x * x, x)
    with pytest.raises(RuntimeError, match="independent of input 0"):
        functional.jacobian(lambda x: ng.ones(2), x, strict=True)
    assert functional.jacobian(lambda x: ng.ones(2), x).tolist() == [[0.0] * 3] * 2
    with pytest.raises(RuntimeError, match="jacobian of the user-provided function is indep"):
        functional.jacobian(lambda x: x * 2, x, strict=True, create_graph=True)
    with pytest.raises(ValueError, match="Expected strategy"):
        functional.jacobian(lambda x: x * 2, x, strategy="sideways")
    with pytest.raises(TypeError, match="not float"):
        functional.vjp(lambda x: 1.0, x)
    with pytest.raises(RuntimeError, match="v can only be None"):
        functional.vjp(lambda x: x * 2, x)
    with pytest.raises(RuntimeError, match="invalid size"):
        functional.jvp(lambda x: x * 2, x, ng.ones(2))
    with pytest.raises(TypeError, match="must be Tensors"):
        functional.jvp(lambda x: x, 1.0, 1.0)


def net():
    ng.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 2)).double()


@pytest.mark.parametrize("needs", [True, False])
def test_checkpoint_changes_nothing(needs):
    results = []
    for wrapped in (False, True):
        model = net()
        x = ng.tensor(X, requires_grad=needs)
        ng.manual_seed(5)
        out = checkpoint(model, x, use_reentrant=False) if wrapped else model(x)
        after = ng.rand(2)
        (out * out).sum().backward()
        grads = [p.grad for p in model.parameters()] + ([x.grad] if needs else [])
        results.append([out.detach(), after, ng.rand(2), *grads])
    for plain, again in zip(*results, strict=True):
        assert plain.tolist() == again.tolist()


@pytest.mark.parametrize("function", [nn.functional.cosine_similarity, ng.cdist])
def test_checkpoint_runs_the_same_op_again(function):
    x = ng.tensor(X, requires_grad=True)
    function(x, x.sin() + 1).sum().backward()
    expected, x.grad = x.grad, None
    checkpoint(lambda x: function(x, x.sin() + 1), x, use_reentrant=False).sum().backward()
    assert x.grad.tolist() == expected.tolist()


def test_checkpoint_keeps_no_intermediates_and_takes_other_arguments():
    calls = []

    def function(x, scale, *, shift):
        calls.append(1)
        return x * scale + shift, x.exp()

    x = ng.tensor(Y, requires_grad=True)
    first, second = checkpoint(function, x, 2.0, shift=1.0)
    assert len(calls) == 1
    (first + second).sum().backward()
    assert len(calls) == 2
    np.testing.assert_allclose(x.grad.numpy(), 2 + np.exp(Y))
    with ng.no_grad():
        assert not checkpoint(alone, x).requires_grad
    step = ng.compile(lambda x: checkpoint(alone, x))
    np.testing.assert_allclose(step(x).item(), alone(x).item())
