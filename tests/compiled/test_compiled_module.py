"""``ng.compile`` of a Module is a Module: it can be trained, saved, switched and nested."""

import copy
import pickle

import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 3)
        self.drop = nn.Dropout(0.5)
        self.scale = 2.0
        self.register_buffer("shift", ng.ones(3))

    def forward(self, x):
        return self.drop(self.inner(x)) * self.scale + self.shift


@pytest.fixture
def pair():
    ng.manual_seed(0)
    net = Net()
    return net, ng.compile(net)


def test_it_is_a_module_of_the_same_parameters(pair):
    net, fast = pair
    assert isinstance(fast, nn.Module) and fast._orig_mod is net
    assert [id(p) for p in fast.parameters()] == [id(p) for p in net.parameters()]
    assert list(fast.state_dict()) == [f"_orig_mod.{name}" for name in net.state_dict()]
    assert fast.inner is net.inner and fast.shift is net.shift
    assert repr(fast).startswith("CompiledModule(\n  (_orig_mod): Net(")
    with pytest.raises(AttributeError, match="'CompiledModule' object has no attribute 'missing'"):
        _ = fast.missing


def test_train_and_eval_and_attributes_are_followed(pair):
    net, fast = pair
    x = ng.randn(4, 2)
    assert fast.eval() is fast and not net.training
    assert fast(x).allclose(net(x))
    fast.scale = 3.0
    assert net.scale == 3.0 and "scale" not in vars(fast)
    assert fast(x).allclose(net.inner(x) * 3.0 + 1)
    net.train()
    assert (fast(x) == 1).any() and fast.training is False  # as in PyTorch: told to net alone
    assert fast.train().training
    assert fast.cache_info().recordings >= 2 and "program" in str(fast.program)


def test_a_step_on_it_is_that_of_the_module(pair):
    net, fast = pair
    other = copy.deepcopy(net)
    losses = []
    for model in (fast, other):
        model.eval()
        optimizer = ng.optim.SGD(model.parameters(), lr=0.1)
        ng.manual_seed(1)
        x = ng.randn(4, 2)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_inside_of_modules_and_of_compiled_functions(pair):
    net, fast = pair
    fast.eval()
    model = nn.Sequential(fast, nn.Tanh())
    assert len(list(model.parameters())) == 2

    @ng.compile
    def run(x):
        return model(x)

    x = ng.randn(4, 2)
    assert run(x).allclose(net(x).tanh())
    net.scale = 5.0
    assert run(x).allclose(net(x).tanh())


def test_hooks_copies_and_files(pair):
    net, fast = pair
    fast.eval()
    x = ng.randn(4, 2)
    seen = []
    handle = fast.register_forward_hook(lambda module, args, out: seen.append(out.shape))
    fast(x)
    handle.remove()
    assert seen == [(4, 3)]
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert type(other) is type(fast) and other._orig_mod is not net
        assert other(x).allclose(net(x))
        other.inner.weight.data.zero_()
        assert not other(x).allclose(net(x))
        assert other(x).allclose(other._orig_mod(x))


def test_a_decorated_class_method_stays_a_function():
    class Other(nn.Module):
        @ng.compile
        def forward(self, x):
            return x * 2

    assert Other()(ng.ones(2)).tolist() == [2.0, 2.0]


def test_what_is_made_in_a_step_says_where_to_make_it():
    layer = nn.Linear(2, 1)
    scaler = ng.amp.GradScaler("cpu")
    for function, words in (
        (
            lambda x: copy.deepcopy(layer)(x),
            "deepcopy of a Parameter.*test_compiled_module.py",
        ),
        (lambda x: ng.optim.SGD(layer.parameters(), lr=0.1) and x, "SGD.*before the compiled step"),
        (lambda x: scaler.scale(layer(x).sum()), "GradScaler.scale.*Compile what gives the loss"),
    ):
        with pytest.raises(RecordingError, match=words):
            ng.compile(function)(ng.ones(1, 2))


def test_tensors_are_deeply_copied_in_a_step():
    weight = ng.ones(3)
    call = ng.compile(lambda x: copy.deepcopy({"w": [weight, x]})["w"][0].mul_(2) + x)
    assert call(ng.ones(3)).tolist() == [3.0] * 3
    weight.add_(1)
    assert call(ng.ones(3)).tolist() == [5.0] * 3 and weight.tolist() == [2.0] * 3
