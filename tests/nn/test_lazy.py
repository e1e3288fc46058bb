"""Lazy layers: what they become, what can be done before, what is refused."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError, UninitializedError

LAYERS = {
    "LazyLinear": (lambda: nn.LazyLinear(3), lambda: nn.Linear(4, 3), (2, 5, 4)),
    "LazyLinear without bias": (
        *(lambda: nn.LazyLinear(3, bias=False), lambda: nn.Linear(4, 3, bias=False), (2, 4)),
    ),
    "LazyConv1d": (lambda: nn.LazyConv1d(4, 3), lambda: nn.Conv1d(2, 4, 3), (2, 2, 5)),
    "LazyConv2d": (
        lambda: nn.LazyConv2d(4, 3, stride=2, padding=1, groups=2),
        lambda: nn.Conv2d(6, 4, 3, stride=2, padding=1, groups=2),
        (6, 5, 5),
    ),
    "LazyConv3d": (lambda: nn.LazyConv3d(2, 2), lambda: nn.Conv3d(3, 2, 2), (1, 3, 4, 4, 4)),
    "LazyBatchNorm1d": (lambda: nn.LazyBatchNorm1d(), lambda: nn.BatchNorm1d(4), (6, 4)),
    "LazyBatchNorm2d": (
        lambda: nn.LazyBatchNorm2d(0.1, 0.5),
        lambda: nn.BatchNorm2d(4, 0.1, 0.5),
        (2, 4, 3, 3),
    ),
    "LazyBatchNorm3d": (
        lambda: nn.LazyBatchNorm3d(affine=False, track_running_stats=False),
        lambda: nn.BatchNorm3d(4, affine=False, track_running_stats=False),
        (2, 4, 2, 2, 2),
    ),
    "LazyConvTranspose1d": (
        lambda: nn.LazyConvTranspose1d(2, 3, 2, bias=False),
        lambda: nn.ConvTranspose1d(4, 2, 3, 2, bias=False),
        (2, 4, 3),
    ),
    "LazyConvTranspose2d": (
        lambda: nn.LazyConvTranspose2d(4, 3, 2, 1, 1, 2),
        lambda: nn.ConvTranspose2d(6, 4, 3, 2, 1, 1, 2),
        (6, 4, 3),
    ),
    "LazyConvTranspose3d": (
        lambda: nn.LazyConvTranspose3d(2, 2, dilation=2),
        lambda: nn.ConvTranspose3d(3, 2, 2, dilation=2),
        (1, 3, 2, 2, 2),
    ),
    "LazyInstanceNorm1d": (
        lambda: nn.LazyInstanceNorm1d(),
        lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
        (2, 4, 5),
    ),
    "LazyInstanceNorm2d": (
        lambda: nn.LazyInstanceNorm2d(0.1, 0.5, affine=False),
        lambda: nn.InstanceNorm2d(3, 0.1, 0.5, track_running_stats=True),
        (3, 4, 2),
    ),
    "LazyInstanceNorm3d": (
        lambda: nn.LazyInstanceNorm3d(track_running_stats=False),
        lambda: nn.InstanceNorm3d(2, affine=True),
        (2, 2, 2, 3, 2),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_first_call_makes_the_ordinary_layer(name):
    make, ordinary, shape = LAYERS[name]
    x = ng.tensor(np.random.default_rng(0).standard_normal(shape).astype("float32"))
    ng.manual_seed(4)
    expected = ordinary()
    ng.manual_seed(4)
    layer = make()
    assert isinstance(layer, type(expected)) and type(layer).__name__ == name.split()[0]
    before = list(layer.parameters())
    assert list(layer.state_dict()) == list(expected.state_dict())
    out = layer(x)
    assert type(layer) is type(expected) and repr(layer) == repr(expected)
    assert all(a is b for a, b in zip(before, layer.parameters(), strict=True))
    assert all(type(p) is nn.Parameter for p in layer.parameters())
    assert ng.allclose(out, expected(x))
    for a, b in zip(layer.state_dict().values(), expected.state_dict().values(), strict=True):
        assert a.dtype is b.dtype and ng.allclose(a, b)


@pytest.mark.peer
def test_keys_and_prints_are_torchs():
    torch = pytest.importorskip("torch")
    for make in (
        lambda layers: layers.LazyLinear(3),
        lambda layers: layers.LazyConv2d(3, 2),
        lambda layers: layers.LazyBatchNorm1d(),
        lambda layers: layers.LazyConvTranspose2d(4, 3, 2, groups=2, dilation=2),
        lambda layers: layers.LazyInstanceNorm3d(),
    ):
        ours, theirs = make(nn), make(torch.nn)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        assert repr(ours).split(",")[0] == repr(theirs).split(",")[0]
        assert repr(next(ours.parameters())) == repr(next(theirs.parameters()))


def test_the_first_call_may_say_the_output_size():
    layer = nn.LazyConvTranspose2d(2, 3, 2)
    assert layer(ng.ones(4, 4, 4), output_size=(10, 10)).shape == (2, 10, 10)
    assert layer(ng.ones(4, 4, 4), (9, 9)).shape == (2, 9, 9)
    with pytest.raises(ValueError, match=r"LazyConvTranspose2d: Expected 3D .* size \[2, 2\]"):
        nn.LazyConvTranspose2d(2, 2)(ng.ones(2, 2))
    with pytest.raises(ValueError, match="LazyInstanceNorm2d: expected 3D or 4D"):
        nn.LazyInstanceNorm2d()(ng.ones(2, 2))


def test_an_optimiser_is_given_the_parameters_before():
    net = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(1))
    optimizer = ng.optim.SGD(net.parameters(), lr=0.1)
    x, y = ng.randn(8, 3), ng.randn(8, 1)
    net(x)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = ng.compile(step)
    losses = [float(run(x, y)) for _ in range(20)]
    assert losses[-1] < losses[0]


def test_moving_copying_and_loading_before_the_first_call():
    layer = nn.LazyLinear(3).double()
    assert layer.weight.dtype is ng.float64
    twin = copy.deepcopy(pickle.loads(pickle.dumps(layer)))
    assert layer(ng.randn(2, 4, dtype=ng.float64)).dtype is ng.float64
    assert twin.has_uninitialized_params() and twin.weight.requires_grad
    twin.load_state_dict(layer.state_dict())
    assert not twin.has_uninitialized_params() and type(twin) is nn.LazyLinear
    x = ng.randn(2, 4, dtype=ng.float64)
    assert ng.allclose(twin(x), layer(x)) and twin.in_features == 4
    other = nn.LazyLinear(3)
    assert not any(other.load_state_dict(nn.LazyLinear(3).state_dict()))
    assert other.has_uninitialized_params()
    with pytest.raises(UninitializedError, match="no shape"):
        layer.load_state_dict(other.state_dict())


def test_what_needs_a_shape_is_refused():
    layer = nn.LazyLinear(3)
    for use in (
        lambda: layer.weight.shape,
        lambda: layer.weight + 1,
        lambda: nn.init.ones_(layer.weight),
        lambda: layer.weight.numel(),
        lambda: layer.weight.tolist(),
    ):
        with pytest.raises(ValueError, match=r"UninitializedParameter: .* Call its module once"):
            use()
    with pytest.raises(RecordingError, match=r"LazyLinear: .* Call the module once before"):
        ng.compile(lambda x: layer(x))(ng.ones(2, 2))
    with pytest.raises(ValueError, match=r"LazyConv2d: Expected 3D .* size \[2, 2\]"):
        nn.LazyConv2d(2, 2)(ng.ones(2, 2))
    with pytest.raises(ValueError, match="divisible by groups, got 3 and 2"):
        nn.LazyConv1d(2, 2, groups=2)(ng.ones(1, 3, 4))
    with pytest.raises(ValueError, match="LazyBatchNorm2d: expected 4D"):
        nn.LazyBatchNorm2d()(ng.ones(2, 2))


def test_materialize_by_hand():
    parameter = nn.UninitializedParameter(dtype=ng.float64)
    parameter.materialize((2, 3))
    assert type(parameter) is nn.Parameter and parameter.shape == (2, 3)
    assert parameter.requires_grad and parameter.is_leaf and parameter.dtype is ng.float64
    (parameter * 0 + 2).sum().backward()
    assert parameter.grad.shape == (2, 3)
    buffer = nn.UninitializedBuffer()
    buffer.materialize((2,), dtype=ng.int64)
    assert type(buffer) is ng.Tensor and buffer.dtype is ng.int64
