"""Parametrizations: what is computed, learned, saved, assigned and removed, eager and compiled."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.nn import utils
from numbagrad.nn.utils import parametrizations, parametrize

LAYERS = {
    "Linear": (lambda lib: lib.Linear(4, 3), "weight", (2, 4)),
    "Conv2d": (lambda lib: lib.Conv2d(2, 3, 3), "weight", (2, 2, 5, 5)),
    "ConvTranspose1d": (lambda lib: lib.ConvTranspose1d(2, 3, 3), "weight", (2, 2, 5)),
    "LSTM": (lambda lib: lib.LSTM(3, 2), "weight_hh_l0", (4, 2, 3)),
}
HOW = {
    "weight_norm": lambda lib, m, name: lib.utils.parametrizations.weight_norm(m, name),
    "one length": lambda lib, m, name: lib.utils.parametrizations.weight_norm(m, name, dim=None),
    "spectral_norm": lambda lib, m, name: lib.utils.parametrizations.spectral_norm(m, name),
    "old weight_norm": lambda lib, m, name: lib.utils.weight_norm(m, name),
    "old, of columns": lambda lib, m, name: lib.utils.weight_norm(m, name, dim=1),
    "old spectral_norm": lambda lib, m, name: lib.utils.spectral_norm(m, name),
}


def first(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("layer", LAYERS)
def test_keys_values_and_gradients_are_torchs(layer, how):
    torch = pytest.importorskip("torch")
    # From some weights two rounds of power iteration end far off, and magnify rounding.
    torch.manual_seed(0)
    make, name, shape = LAYERS[layer]
    theirs, ours = make(torch.nn), make(nn)
    for lib, module in ((torch.nn, theirs), (nn, ours)):
        HOW[how](lib, module, name)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict({key: ng.tensor(value.numpy()) for key, value in state.items()})
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    for _ in range(2):  # the second one has moved the vectors of spectral_norm again
        a, b = first(theirs(torch.tensor(x))), first(ours(ng.tensor(x)))
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=1e-4, atol=1e-5)
    (a * a).sum().backward()
    (b * b).sum().backward()
    pairs = zip(theirs.named_parameters(), ours.named_parameters(), strict=True)
    for (their_name, p), (our_name, q) in pairs:
        assert our_name == their_name
        np.testing.assert_allclose(q.grad.numpy(), p.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("how", HOW)
def test_in_a_compiled_step(how):
    x, y = ng.randn(8, 4), ng.randn(8, 3)
    results = []
    for compiled in (False, True):
        ng.manual_seed(3)
        net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
        HOW[how](nn, net[0], "weight")
        optimizer = ng.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x, y, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = ng.compile(step) if compiled else step
        losses = [float(run(x, y)) for _ in range(5)]
        net.eval()
        results.append([losses, *[t.numpy().tolist() for t in net.state_dict().values()]])
        results[-1].append(net(x).tolist())
    for eager, other in zip(*results, strict=True):
        np.testing.assert_allclose(other, eager, rtol=1e-4, atol=1e-5)
    assert results[0][0][-1] < results[0][0][0]


class Symmetric(nn.Module):
    """The upper triangle and its mirror image."""

    def forward(self, x):
        return x.triu() + x.triu(1).mT


class Exponential(nn.Module):
    """Positive numbers."""

    def forward(self, x):
        return x.exp()

    def right_inverse(self, y):
        return y.log()


def test_one_is_registered_read_and_removed():
    layer = nn.Linear(3, 3)
    weight, before = layer.weight, layer.weight.detach().clone()
    assert not parametrize.is_parametrized(layer)
    assert parametrize.register_parametrization(layer, "weight", Symmetric()) is layer
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, nn.Linear)
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    assert parametrize.is_parametrized(layer) and parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert layer.parametrizations.weight.original is weight
    assert (layer.weight == layer.weight.mT).all() and "weight" not in layer._parameters
    assert [n for n, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    with pytest.raises(RuntimeError, match="Symmetric does not implement right_inverse"):
        layer.weight = ng.zeros(3, 3)
    shown = layer.weight.detach()
    parametrize.remove_parametrizations(layer, "weight")
    assert layer.weight is weight and (layer.weight == shown).all()
    assert type(layer) is nn.Linear and not hasattr(layer, "parametrizations")
    weight.data = before
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is weight and (layer.weight == before).all()


def test_several_in_order_and_assignment():
    layer = nn.Linear(2, 2)
    with ng.no_grad():
        layer.weight.abs_().add_(0.1)
    before = layer.weight.detach().clone()
    parametrize.register_parametrization(layer, "weight", Exponential())
    assert ng.allclose(layer.weight, before)
    layer.weight = nn.Parameter(before * 2)
    assert ng.allclose(layer.weight, before * 2)
    assert ng.allclose(layer.parametrizations.weight.original, (before * 2).log())
    parametrize.register_parametrization(layer, "weight", Exponential())
    assert ng.allclose(layer.weight, (before * 2).exp()) and len(layer.parametrizations.weight) == 2
    layer.weight.sum().backward()
    assert layer.parametrizations.weight.original.grad is not None


def test_a_buffer_and_two_tensors_of_one_module():
    norm = nn.BatchNorm1d(2)
    parametrize.register_parametrization(norm, "running_var", Exponential())
    parametrizations.weight_norm(norm, "weight")
    keys = list(norm.state_dict())
    assert "parametrizations.running_var.original" in keys and "running_var" not in keys
    assert not isinstance(norm.parametrizations.running_var.original, nn.Parameter)
    assert parametrize.is_parametrized(norm, "weight")
    parametrize.remove_parametrizations(norm, "running_var")
    assert "running_var" in norm._buffers and type(norm).__name__ == "ParametrizedBatchNorm1d"
    with pytest.raises(ValueError, match="Cannot leave unparametrized"):
        parametrize.remove_parametrizations(norm, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(norm, "weight")
    assert type(norm) is nn.BatchNorm1d and isinstance(norm.weight, nn.Parameter)


def test_what_is_refused():
    layer = nn.Linear(3, 2)
    with pytest.raises(ValueError, match=r"does not have a parameter.* with name 'wait'"):
        parametrize.register_parametrization(layer, "wait", Exponential())
    with pytest.raises(ValueError, match=r"may not change the shape, from \[2, 3\] to \[1, 3\]"):
        parametrize.register_parametrization(layer, "weight", Shorter())
    assert type(layer) is nn.Linear and "weight" in layer._parameters
    parametrize.register_parametrization(layer, "weight", Shorter(), unsafe=True)
    assert layer.weight.shape == (1, 3)
    with pytest.raises(ValueError, match="does not have a parametrization on bias"):
        parametrize.remove_parametrizations(layer, "bias")
    with pytest.raises(ValueError, match="no parameter or buffer with name 'wait'"):
        parametrizations.spectral_norm(layer, "wait")
    with pytest.raises(ValueError, match="n_power_iterations to be positive"):
        parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)
    with pytest.raises(IndexError, match="Dimension out of range"):
        parametrizations.spectral_norm(nn.Linear(2, 2), dim=2)


class Shorter(nn.Module):
    """One row."""

    def forward(self, x):
        return x[:1]


def test_a_copy_goes_its_own_way():
    layer = parametrizations.weight_norm(nn.Linear(3, 2))
    twin = copy.deepcopy(layer)
    with ng.no_grad():
        twin.parametrizations.weight.original0.mul_(2)
    assert ng.allclose(twin.weight, layer.weight * 2)
    assert layer.double().weight.dtype is ng.float64 and twin.weight.dtype is ng.float32


def test_spectral_norm_has_norm_one_and_rests_in_eval():
    layer = parametrizations.spectral_norm(nn.Linear(6, 5), n_power_iterations=50)
    assert abs(float(ng.linalg.matrix_norm(layer.weight, 2)) - 1) < 1e-3
    layer.eval()
    u = layer.parametrizations.weight[0]._u.clone()
    assert (layer.weight == layer.weight).all()
    assert (layer.parametrizations.weight[0]._u == u).all()
    vector = parametrizations.spectral_norm(nn.LayerNorm(4))
    assert abs(float(vector.weight.norm()) - 1) < 1e-6


def test_the_older_weight_norm():
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    assert utils.weight_norm(layer) is layer and type(layer).__name__ == "Linear"
    assert ng.allclose(layer.weight, before) and repr(layer).startswith("Linear(in_features=3")
    with pytest.raises(RuntimeError, match="two weight_norm hooks"):
        utils.weight_norm(layer)
    with pytest.raises(AttributeError, match="computed from weight_g and weight_v"):
        layer.weight = ng.zeros(2, 3)
    with ng.no_grad():
        layer.weight_g.mul_(3)
    utils.remove_weight_norm(layer)
    assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter)
    assert ng.allclose(layer.weight, before * 3)
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        utils.remove_weight_norm(layer)
    with pytest.raises(ValueError, match="no parameter 'wait'"):
        utils.weight_norm(layer, "wait")


def test_the_older_spectral_norm():
    layer = nn.Linear(6, 5)
    before = layer.weight
    assert utils.spectral_norm(layer, n_power_iterations=50) is layer
    assert layer.weight_orig is before and type(layer).__name__ == "Linear"
    layer(ng.ones(1, 6))
    assert abs(float(ng.linalg.matrix_norm(layer.weight, 2)) - 1) < 1e-3
    u = layer.weight_u.clone()
    assert (layer.weight == layer.weight).all() and (layer.weight_u == u).all()
    layer.eval()
    layer(ng.ones(1, 6))
    assert (layer.weight_u == u).all()
    twin = copy.deepcopy(layer).train()
    with ng.no_grad():
        twin.weight_orig.mul_(ng.rand(5, 6) + 0.5)
    twin(ng.ones(1, 6))
    assert (layer.weight_u == u).all() and not (twin.weight_u == u).all()
    with pytest.raises(RuntimeError, match="two spectral_norm hooks"):
        utils.spectral_norm(layer)
    with pytest.raises(AttributeError, match="computed from weight_orig, weight_u"):
        layer.weight = ng.zeros(5, 6)
    shown = layer.weight.detach()
    utils.remove_spectral_norm(layer)
    assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter)
    assert sorted(layer.state_dict()) == ["bias", "weight"] and (layer.weight == shown).all()
    layer.train()(ng.ones(1, 6))  # its hook is gone too
    for name, error, words in (
        ("weight", ValueError, "spectral_norm of 'weight' not found"),
        ("wait", ValueError, "not found"),
    ):
        with pytest.raises(error, match=words):
            utils.remove_spectral_norm(layer, name)
    with pytest.raises(ValueError, match="no parameter 'wait'"):
        utils.spectral_norm(layer, "wait")
    with pytest.raises(ValueError, match="n_power_iterations to be positive"):
        utils.spectral_norm(layer, n_power_iterations=0)
    with pytest.raises(IndexError, match="out of range"):
        utils.spectral_norm(layer, dim=2)
    assert sorted(layer.state_dict()) == ["bias", "weight"]


def test_cached_tensors_are_computed_once():
    layer = parametrizations.weight_norm(nn.Linear(3, 2))
    assert layer.weight is not layer.weight
    with parametrize.cached():
        weight = layer.weight
        with parametrize.cached():
            assert layer.weight is weight
        assert layer.weight is weight
        with ng.no_grad():
            assert not layer.weight.requires_grad and layer.weight is layer.weight
            layer.weight = weight * 2
        assert ng.allclose(layer.weight, weight * 2)
        (layer.weight + layer.weight).sum().backward()
    assert layer.parametrizations.weight.original0.grad is not None
    assert layer.weight is not layer.weight


@pytest.mark.parametrize("within", [False, True])
def test_cached_and_a_compiled_step(within):
    layer = parametrizations.weight_norm(nn.Linear(3, 2))
    x = ng.randn(4, 3)

    def call(x):
        if within:
            with parametrize.cached():
                return layer(x) + layer(x)
        return layer(x) + layer(x)

    run = ng.compile(call)
    for factor in (1, 3):
        with ng.no_grad():
            layer.parametrizations.weight.original0.mul_(factor)
        with parametrize.cached():
            assert ng.allclose(layer(x) * 2, run(x))
