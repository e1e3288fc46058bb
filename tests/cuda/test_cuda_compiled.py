"""Compiled steps on the device: the numbers of eager code and of the CPU, and the same effects."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import NoTwinError, RecordingError
from numbagrad.nn import functional as F

pytestmark = pytest.mark.cuda


@ng.kernel
def halved(out, x):
    """A kernel that has no twin."""
    for i in range(x.size):
        out[i] = x[i] / 2


def close(got, expected, words="", rtol=5e-5):
    assert got.shape == expected.shape and got.dtype is expected.dtype, words
    a, b = (t.detach().cpu().numpy() for t in (got, expected))
    np.testing.assert_allclose(a, b, rtol=rtol, atol=2e-6, err_msg=words)


def data(*shape, seed=0):
    ng.manual_seed(seed)
    return ng.randn(*shape)


def wide(x):
    """Both forms of loops: flat by vectors, and a broadcast row."""
    return (x * 2 + 1).exp() * 0.5, x - x[0], x.t() + x.t()[:1], (x > 0), x.long()


def sums(x):
    """Every form of sums: rows, columns, all, several at a time, in the middle."""
    y = x * x
    return (
        y.sum(1),
        y.sum(0),
        y.mean(),
        x.sum((0, 1)),
        x.reshape(2, -1, 4).mean((0, 2)),
        (x > 0).sum(),
    )


def mixed(x):
    """A loop that stores and sums at once, for rows and for columns."""
    y = x.exp()
    return y, y.sum(0), (y + 1).sum(1)


def softmax(x):
    return F.softmax(x, 1), F.log_softmax(x, 0)


def by_hand(x):
    shifted = (x - x.amax(1, keepdim=True)).exp()
    return shifted / shifted.sum(1, keepdim=True)


def norm(x):
    return F.layer_norm(x, x.shape[1:])


def helpers(x):
    return ng.maximum(x, x * 0.5), x.sign(), x.floor(), x.clamp(-0.5, 0.5), ng.where(x > 0, x, 0.0)


@pytest.mark.parametrize("function", [wide, sums, mixed, softmax, by_hand, norm, helpers])
@pytest.mark.parametrize("shape", [(6, 8), (10, 12), (2, 140)])
def test_numbers(function, shape):
    x = data(*shape)
    step = ng.compile(function)
    expected = function(x)
    for _ in range(2):
        got = step(x.cuda())
        outs = got if isinstance(got, tuple) else (got,)
        for out, truth in zip(
            outs, expected if isinstance(got, tuple) else (expected,), strict=True
        ):
            assert out.is_cuda
            close(out, truth, function.__name__)
    assert step.cache_info().recordings == 1


def test_floats_strides_and_offsets():
    x = data(7, 9)
    step = ng.compile(lambda x, s: (x * s).tanh().sum(0))
    for s in (0.5, -1.0):
        close(step(x.cuda(), s), (x * s).tanh().sum(0))
    assert step.cache_info().recordings == 1
    for part in (lambda x: x[1:, ::2], lambda x: x.t(), lambda x: x[2]):
        close(step(part(x.cuda()), 0.5), (part(x) * 0.5).tanh().sum(0))


def test_fastmath():
    def polynomial(x, y):
        return x * y + x * y * y + x * x * y

    x, y = data(7, 9), data(7, 9)
    step, written = ng.compile(polynomial, fastmath=True), ng.compile(polynomial)
    for each in (step, written):
        close(each(x.cuda(), y.cuda()), polynomial(x, y))
    assert str(step.program).count(" * ") < str(written.program).count(" * ")


def test_parts_of_a_gradient_share_factors():
    def slope(x):
        return ng.autograd.grad((((x * x + 0.5) * x - 0.25) * x * x).sum(), x)[0]

    x = data(7, 9).requires_grad_()
    step = ng.compile(slope)
    close(step(x.detach().cuda().requires_grad_()), slope(x))
    assert str(step.program).count(" * ") == 7  # one by one 8


def test_misaligned_memory():
    x = data(33).cuda()
    close(ng.compile(lambda x: x * 2)(x[1:]), x[1:].cpu() * 2)


class Net(nn.Module):
    """Linear layers, layer norm, dropout."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(3, 4), nn.LayerNorm(4)
        self.drop, self.last = nn.Dropout(0.25), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.drop(F.relu(self.norm(self.first(x)))))


OPTIMISERS = {
    "momentum": lambda p: ng.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: ng.optim.Adam(p, 0.01),
}


def train(place, compiled, make, accumulate):
    """Losses, the model, the optimiser and the step after some steps with a changing rate."""
    ng.manual_seed(1)
    model = Net().to(place)
    optimizer = make(model.parameters())
    schedule = ng.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def step(x, y):
        if not accumulate:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    x, y = data(3, 3).to(place), ng.tensor([0, 2, 1]).to(place)
    run = ng.compile(step) if compiled else step
    ng.manual_seed(3)
    losses = []
    for _ in range(3):
        losses.append(run(x, y))
        schedule.step()
    losses.append(run(x[:2], y[:2]))
    return losses, model, optimizer, run


@pytest.mark.parametrize(("name", "accumulate"), [("momentum", False), ("adam", True)])
def test_training(name, accumulate):
    make = OPTIMISERS[name]
    cpu = train("cpu", True, make, accumulate)
    eager = train("cuda", False, make, accumulate)
    got = train("cuda", True, make, accumulate)
    for a, b in zip(got[0], cpu[0], strict=True):
        close(a, b, "loss")
    rows = zip(got[1].named_parameters(), eager[1].parameters(), cpu[1].parameters(), strict=True)
    for (words, p), e, c in rows:
        close(p, c, words)
        close(p, e, words)
        close(p.grad, c.grad, f"grad of {words}")
        assert p.is_cuda and p.grad.is_cuda
        assert p._version == e._version and p.grad._version == e.grad._version, words
    for held, truth in zip(got[2].state.values(), eager[2].state.values(), strict=True):
        for key in truth:
            close(held[key], truth[key], key)
    assert got[3].cache_info().recordings <= 3


def test_results_and_gradients_are_fresh():
    weight = data(4).cuda().requires_grad_()

    @ng.compile
    def step(x):
        weight.grad = None
        loss = (weight * x).sum()
        loss.backward()
        return loss

    first = step(ng.ones(4, device="cuda"))
    grad = weight.grad
    second = step(ng.full((4,), 2.0, device="cuda"))
    assert first.item() * 2 == pytest.approx(second.item())
    assert grad.tolist() == [1.0] * 4 and weight.grad.tolist() == [2.0] * 4


def test_dropout_and_the_generator():
    drop = nn.Dropout(0.5)
    x = ng.ones(40)
    step = ng.compile(lambda x: drop(x) * 2)
    ng.manual_seed(5)
    expected = [drop(x) * 2 for _ in range(3)]
    after = ng.get_rng_state().tolist()
    ng.manual_seed(5)
    for truth in expected:
        close(step(x.cuda()), truth)
    assert ng.get_rng_state().tolist() == after


def test_gradients_from_outside():
    net = Net().eval()
    other = copy.deepcopy(net).cuda()
    fast = ng.compile(other)
    x = data(4, 3)
    y = x.cuda().requires_grad_()
    for _ in range(2):
        out = fast(y)
        assert out.grad_fn.name() == "CompiledBackward"
        (out * out).sum().backward()
        x.requires_grad_()
        truth = net(x)
        (truth * truth).sum().backward()
    close(y.grad, x.grad)
    for p, q in zip(other.parameters(), net.parameters(), strict=True):
        close(p.grad, q.grad)


def test_an_input_that_is_state():
    weight = data(5).cuda()

    @ng.compile
    def step(x):
        weight.mul_(2.0)
        return x + 1

    x = ng.ones(5, device="cuda")
    before = weight.cpu()
    close(step(x), x.cpu() + 1)
    close(step(weight), before * 4 + 1)
    close(weight, before * 4)


def test_views_of_state_and_arguments():
    weight = data(4, 3).cuda()
    step = ng.compile(lambda x: (x.t(), weight[1:], x))
    x = data(2, 3).cuda()
    a, b, c = step(x)
    close(a, x.cpu().t())
    close(b, weight.cpu()[1:])
    assert c is x and b.data_ptr() == weight[1:].data_ptr()


def test_a_step_without_arguments_and_moved_state():
    counter = ng.zeros(3, device="cuda")

    @ng.compile
    def count():
        counter.add_(1.0)

    count()
    count()
    assert counter.tolist() == [2.0] * 3
    counter.data = ng.zeros(3, device="cuda")
    count()
    assert counter.tolist() == [1.0] * 3 and count.cache_info().recordings == 2


def test_state_that_is_set_anew():
    layer, mean = nn.RNNCell(3, 4).cuda(), ng.ones(4, device="cuda")
    state, seen = {"h": ng.zeros(2, 4, device="cuda")}, []

    def step(x):
        state["h"] = layer(x, state["h"]).detach()
        mean.data = 0.5 * mean.data + state["h"].mean(0)
        return mean * 2

    for function in (step, ng.compile(step)):
        state["h"] = ng.zeros(2, 4, device="cuda")
        mean.data = ng.ones(4, device="cuda")
        seen.append([function(ng.ones(2, 3, device="cuda") * k) for k in range(4)])
        seen[-1] += state["h"], mean
        close(seen[-1][-1] * 2, seen[-1][-3])
        mean = ng.ones(4, device="cuda")
    for expected, got in zip(*seen, strict=True):
        close(got, expected)
    assert function.cache_info().recordings == 1


def test_another_stream():
    step = ng.compile(lambda x: (x * 2).exp().sum(0).sum())
    x = data(9, 4)
    with ng.cuda.stream(ng.cuda.Stream()):
        moved = x.cuda()
        for _ in range(3):
            close(step(moved), (x * 2).exp().sum(0).sum())
    close(step(moved), (x * 2).exp().sum(0).sum())


def test_compiled_inside_compiled():
    inner = ng.compile(lambda x: x * 2)
    x = ng.ones(3, device="cuda")
    inner(x)
    outer = ng.compile(lambda x: inner(x) + 1)
    assert outer(x).tolist() == [3.0] * 3


def test_errors_come_late_and_once():
    step = ng.compile(lambda x, y: F.cross_entropy(x, y))
    x = ng.zeros(2, 3, device="cuda")
    bad, good = ng.tensor([1, 5], device="cuda"), ng.tensor([1, 2], device="cuda")
    step(x, bad)
    loss = step(x, good)
    with pytest.raises(IndexError, match="Target"):
        loss.item()
    assert loss.item() == pytest.approx(float(np.log(3)), rel=1e-5)


def test_what_is_refused():
    x = ng.ones(3, device="cuda")
    weight = ng.ones(3)
    cases = {
        "tensor of the CPU in a compiled step": lambda x: (x * 2, weight * 2),
        "not possible inside": lambda x: x * x.sum().item(),
        "to: not possible": lambda x: x.cpu() * 2,
    }
    for words, function in cases.items():
        with pytest.raises(RecordingError, match=words):
            ng.compile(function)(x)

    def alone(x):
        out = ng.empty_like(x)
        ng.launch(halved, out, x)
        return out

    with pytest.raises(NoTwinError, match=r"register one with @halved.cuda"):
        ng.compile(alone)(x)
    assert x.tolist() == [1.0] * 3


def test_a_constant_that_is_written_begins_anew():
    @ng.compile
    def step(x):
        c = ng.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda")
        return c.mul_(x) @ c

    for factor in (1.0, 1.0, 2.0):
        got = step(ng.tensor(factor, device="cuda"))
        assert got.is_cuda
        close(got, ng.tensor([[7.0, 10.0], [15.0, 22.0]]) * factor**2)


def test_cpu_steps_go_on_beside():
    step = ng.compile(lambda x: x * 2)
    assert step(ng.ones(2)).tolist() == [2.0, 2.0]
    assert step(ng.ones(2, device="cuda")).is_cuda
    assert not step(ng.ones(2)).is_cuda
    assert step.cache_info().recordings == 2


def test_looking_inside():
    step = ng.compile(lambda x: (x * 2).exp().sum(1))
    step(ng.ones(4, 4, device="cuda"))
    assert "for (4, 4):" in repr(step.program)
    assert "from numba import cuda" in step.source and "The launches of a call" in step.source
    table = step.explain()
    assert table.count("loop") == 1 and "GPU" in repr(table) and table.seconds == 0


def test_a_mask_on_the_device_decides_nothing():
    with pytest.raises(RecordingError, match="not possible inside a compiled function"):
        ng.compile(lambda x: x[ng.tensor([True, False], device="cuda")])(ng.ones(2, device="cuda"))
