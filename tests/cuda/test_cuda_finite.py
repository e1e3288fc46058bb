"""``check_finite`` and ``detect_anomaly`` on the device say what they say on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import NonFiniteError
from numbagrad.kernels import machine
from numbagrad.kernels.cpu import finite

pytestmark = pytest.mark.cuda

NAN, INF = float("nan"), float("inf")


def caught(function, *args):
    with pytest.raises(NonFiniteError) as error:
        function(*args)
    return str(error.value)


def on_both(make, *args):
    """What the function of ``make(place)`` says for ``args`` on the CPU and on the device."""
    said = [caught(make(p), *[a.to(p) for a in args]) for p in ("cpu", "cuda")]
    assert said[0] == said[1]
    return said[1]


@pytest.mark.parametrize("shape", [(40,), (3, 5), (1,)])
@pytest.mark.parametrize("values", [{}, {0: NAN}, {-1: INF}, {7: -INF, 3: NAN, 12: INF}])
@pytest.mark.parametrize("only_nan", [False, True])
def test_the_kernels_find_what_those_of_the_cpu_find(shape, values, only_nan):
    x = np.ones(shape)
    for at, value in values.items():
        x.reshape(-1)[at % x.size] = value
    for host in (x, x.T):
        found = []
        for place in ("cpu", "cuda"):
            array = ng.from_numpy(host).to(place)
            flag = ng.empty(1, dtype=ng.int64, device=place)
            machine.launch(finite.first_bad, flag._array, array._array, only_nan)
            found.append(flag.item())
            dense = array.contiguous()._array.reshape((x.size,))
            machine.launch(finite.first_outside, flag._array, dense, -0.5, 1.0)
            found.append(flag.item())
            for given in ([-1, -1], [-1, 5], [4, 7]):
                bad = ng.tensor(given, device=place)
                machine.launch(finite.first_made, flag._array, array._array, bad._array, only_nan)
                found.append(flag.item())
        assert found[:5] == found[5:]


def chain(x, y):
    a = x * 2.0
    return ((a - y).log() + 1.0).exp().sum(0)


def step_of(place, seed=0):
    """A training step with everything that is fused otherwise."""
    ng.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 2)).to(place)
    optimizer = ng.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @ng.compile(check_finite=True)
    def step(x, target):
        optimizer.zero_grad()
        loss = ((model(x) - target).abs() ** 1.5).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def test_what_would_be_fused_is_named():
    x, y = ng.full((3, 4), 4.0), ng.ones(4)
    checked = ng.compile(chain, check_finite=True)
    for _ in range(3):
        assert ng.allclose(checked(x.cuda(), y.cuda()).cpu(), chain(x, y))
    assert "the host looks at every value" in repr(checked.explain())
    x[1, 2] = 0.0
    text = on_both(lambda place: ng.compile(chain, check_finite=True), x, y)
    assert "log at" in text and "test_cuda_finite.py:" in text and "nan at index [1, 2]" in text
    y[3] = INF
    text = on_both(lambda place: ng.compile(chain, check_finite=True), x, y)
    assert "sub at" in text and "met inf at index [3]" in text and "argument 1" in text
    only_nan = ng.compile(lambda x: x.log(), check_finite="nan")
    assert only_nan(ng.zeros(2, device="cuda")).tolist() == [-INF] * 2


def test_a_training_step():
    x, target = ng.randn(5, 3), ng.randn(5, 2)
    models, losses = [], []
    for place in ("cpu", "cuda"):
        model, step = step_of(place)
        losses.append([step(x.to(place), target.to(place)).item() for _ in range(3)])
        models.append(model)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    bad = x.clone()
    bad[4, 1] = NAN
    assert "met nan at index [4, 1] of argument 0 (shape [5, 3])" in caught(
        step, bad.cuda(), target.cuda()
    )
    for name, value in model.state_dict().items():
        assert ng.equal(value, before[name])
    assert all(p.grad is None for p in model.parameters())  # zero_grad had been called
    model[0].weight.data[3, 1] = INF
    text = caught(step, x.cuda(), target.cuda())
    assert "met inf at index [3, 1] of weight (shape [4, 3])" in text


def root_step(place):
    weight = ng.tensor([1.0, 0.0, 4.0]).to(place).requires_grad_()

    def step(x):
        weight.grad = None
        (weight.sqrt() * x).sum().backward()

    return step


def test_a_backward_operation_is_named_with_the_line_of_its_forward():
    x = ng.ones(3)
    text = on_both(lambda place: ng.compile(root_step(place), check_finite=True), x)
    assert text.startswith("backward: SqrtBackward") and "test_cuda_finite.py:" in text
    assert "inf at index [1]" in text

    def outside(place):
        root = ng.compile(lambda x: x.sqrt(), check_finite=True)
        return lambda x: root(x.requires_grad_()).sum().backward()

    assert "backward: Sqrt" in on_both(outside, ng.tensor([4.0, 0.0]))


@pytest.mark.parametrize("compiled", [False, True])
def test_detect_anomaly(compiled):
    def under(function):
        run = ng.compile(function) if compiled else function

        def watched(*args):
            with ng.autograd.detect_anomaly(check_inf=True):
                return run(*args)

        return watched

    x, y = ng.full((3, 4), 4.0), ng.ones(4)
    assert ng.allclose(under(chain)(x.cuda(), y.cuda()).cpu(), chain(x, y))
    x[2, 1] = 0.0
    assert "log at" in on_both(lambda place: under(chain), x, y)
    assert "backward: SqrtBackward" in on_both(lambda p: under(root_step(p)), ng.ones(3))


def test_memory_that_a_kernel_leaves_is_not_found():
    with ng.autograd.detect_anomaly(check_inf=True):
        for dtype in (ng.float32, ng.float64):
            assert ng.empty(9, dtype=dtype, device="cuda").tolist() == [0.0] * 9
