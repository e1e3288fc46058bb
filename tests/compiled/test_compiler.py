"""``ng.compiler``, and ``Module.compile``: a module that runs compiled and stays itself."""

import copy
import pickle

import pytest

import numbagrad as ng
from numbagrad import compiler, nn
from numbagrad.errors import RecordingError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 3)
        self.drop = nn.Dropout(0.5)
        self.scale = 2.0

    def forward(self, x, bias=None):
        out = self.drop(self.inner(x)) * self.scale
        return out if bias is None else out + bias


def recordings(net):
    return net._hooks["compiled"][0].cache_info().recordings


@pytest.fixture
def net():
    ng.manual_seed(0)
    made = Net()
    made.drop.eval()
    return made


def test_a_module_runs_compiled_and_keeps_its_names(net):
    names, x = list(net.state_dict()), ng.randn(4, 2)
    plain = net(x)
    assert net.compile() is None
    assert net(x).allclose(plain) and net(x, bias=ng.ones(3)).allclose(plain + 1)
    assert recordings(net) == 2 and list(net.state_dict()) == names
    net(x)
    assert recordings(net) == 2
    net.scale = 4.0
    assert net(x).allclose(2 * plain) and recordings(net) == 3
    net.drop.train()
    assert (net(x) == 0).any()


def test_a_step_of_a_compiled_module_is_the_same(net):
    other, x = copy.deepcopy(net), ng.randn(4, 2)
    net.compile(fastmath=False)
    for model in (net, other):
        optimizer = ng.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    assert net.inner.weight.allclose(other.inner.weight)


def test_hooks_are_compiled_and_compile_can_be_taken_back(net):
    x = ng.randn(4, 2)
    plain = net(x)
    net.compile()
    handle = net.register_forward_hook(lambda module, args, out: out * 10)
    assert net(x).allclose(10 * plain)
    handle.remove()
    assert net(x).allclose(plain)
    net.compile(disable=True)
    assert net(x).equal(plain)


def test_copies_compile_on_their_own(net):
    x = ng.randn(4, 2)
    net.compile()
    plain = net(x)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        with ng.no_grad():
            other.inner.weight.zero_()
            other.inner.bias.fill_(1.0)
        assert (other(x) == 2).all() and net(x).allclose(plain)
        assert recordings(other) == 1


def test_a_compiled_module_in_a_compiled_step(net):
    x = ng.randn(4, 2)
    net.compile()
    assert ng.compile(lambda x: net(x) + 1)(x).allclose(net(x) + 1)


def test_disabled_functions():
    @compiler.disable(reason="it prints")
    def shown(x):
        return x * float(x.sum())

    x = ng.ones(2)
    assert compiler.compile(shown) is shown and shown(x).tolist() == [2.0, 2.0]
    with pytest.raises(RecordingError, match=r"shown is kept from .* \(it prints\)"):
        ng.compile(lambda x: shown(x) + 1)(x)
    only = compiler.disable(lambda x: x + 1, recursive=False)
    assert ng.compile(lambda x: only(x) * 2)(x).tolist() == [4.0, 4.0]


def test_reset_forgets_recordings():
    function = ng.compile(lambda x: x + 1)
    function(ng.ones(2))
    compiler.reset()
    assert function(ng.ones(2)).tolist() == [2.0, 2.0] and len(function.recordings) == 2
    assert compiler.is_exporting() is compiler.is_dynamo_compiling() is False
