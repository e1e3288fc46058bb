"""Tables of registered members that are written to by hand, and names that are methods'."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections import OrderedDict

import pytest

import numbagrad as ng
from numbagrad import nn


def test_what_is_written_into_a_table_is_the_attribute():
    layer, weight = nn.Linear(2, 2), nn.Parameter(ng.zeros(2, 2))
    layer._parameters["weight"] = weight
    assert layer.weight is weight and layer(ng.ones(1, 2)).tolist() == [layer.bias.tolist()]
    del layer._parameters["weight"]
    assert not hasattr(layer, "weight")
    layer._parameters.update(weight=weight)
    assert layer.weight is weight and layer._parameters.setdefault("weight") is weight
    layer._parameters = {"weight": weight, "bias": None}
    assert layer.bias is None and [k for k, _ in layer.named_parameters()] == ["weight"]
    layer._parameters |= {"more": weight}
    assert layer.more is weight and layer._parameters.pop("more") is weight
    assert not hasattr(layer, "more") and layer._parameters.pop("more", 3) == 3
    norm, mean = nn.BatchNorm1d(2), ng.ones(2)
    norm._buffers["running_mean"] = mean
    assert norm.running_mean is mean
    model, tanh = nn.Sequential(nn.ReLU()), nn.Tanh()
    model._modules["0"] = tanh
    assert model[0] is tanh and getattr(model, "0") is tanh


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_has_tables_of_its_own(copied):
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    other = copied(model)
    other._modules["1"] = nn.ReLU()
    assert type(getattr(model, "1")) is nn.Tanh and type(getattr(other, "1")) is nn.ReLU
    assert other[0].weight is other[0]._parameters["weight"] is not model[0].weight


def test_tables_are_emptied_and_shallow_copies_have_their_own():
    layer = nn.Linear(2, 2)
    other, weight = copy.copy(layer), nn.Parameter(ng.zeros(2, 2))
    other._parameters["weight"] = weight
    assert other.weight is weight is not layer.weight
    assert layer._parameters["weight"] is layer.weight
    name, bias = layer._parameters.popitem()
    assert name == "bias" and bias is other.bias and not hasattr(layer, "bias")
    layer._parameters.clear()
    assert not hasattr(layer, "weight") and not list(layer.parameters())


def test_tables_do_not_keep_a_module():
    layer = nn.Linear(2, 2)
    reference = weakref.ref(layer)
    gc.disable()
    try:
        del layer
        assert reference() is None
    finally:
        gc.enable()


def test_a_compiled_function_follows_a_table():
    layer = nn.Linear(2, 2, bias=False)
    compiled = ng.compile(lambda x: layer(x))
    compiled(ng.ones(1, 2))
    layer._parameters["weight"] = nn.Parameter(ng.full((2, 2), 3.0))
    assert compiled(ng.ones(1, 2)).tolist() == [[6.0, 6.0]]


def test_a_member_does_not_hide_a_method():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parameters = nn.ParameterList([ng.ones(2)])

    net = Net()
    assert [p.tolist() for p in net.parameters()] == [[1.0, 1.0]]
    assert list(net.state_dict()) == ["parameters.0"]


def test_getattr_of_a_wrapper():
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

    wrapper = Wrapper(nn.Linear(2, 3))
    assert wrapper.in_features == 2
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'nothing'"):
        _ = wrapper.nothing


def test_a_list_of_modules_holds_none_too():
    layers = nn.ModuleList([nn.Linear(1, 1), None])
    layers.append(None)
    layers.insert(0, None)
    assert [type(layer).__name__ for layer in layers] == ["NoneType", "Linear", *2 * ["NoneType"]]
    assert list(layers.state_dict()) == ["1.weight", "1.bias"] and len(list(layers.modules())) == 2
    layers[0] = nn.ReLU()
    layers[1] = None
    assert layers[1] is None and not list(layers.parameters())
    with pytest.raises(TypeError, match="ModuleList: int is not a Module"):
        layers.append(3)


def test_parameters_of_a_plain_dict_are_in_the_order_of_their_names():
    one = nn.Parameter(ng.ones(1))
    held = nn.ParameterDict({"w": one, "b": one})
    held.update({"z": one, "a": one})
    held.update([("y", one), ("c", one)])
    assert list(held) == ["b", "w", "a", "z", "y", "c"] == list(held.copy())
    assert list(nn.ParameterDict(OrderedDict(w=one, b=one))) == ["w", "b"]
    assert list(nn.ModuleDict({"w": nn.ReLU(), "b": nn.ReLU()})) == ["w", "b"]
