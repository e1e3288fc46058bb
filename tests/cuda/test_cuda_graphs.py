"""Compiled steps as graphs: numbers that change without a new capture, and what graphs keep."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import DeviceError
from numbagrad.kernels.cuda.runtime import device, launch
from numbagrad.kernels.cuda.runtime.numbers import SLOTS, DeviceNumber, Numbers
from numbagrad.kernels.cuda.runtime.product import product_tile
from numbagrad.kernels.cuda.runtime.shape import SINGLES
from numbagrad.nn import functional as F

pytestmark = pytest.mark.cuda


def close(got, expected, words=""):
    assert got.shape == expected.shape and got.dtype is expected.dtype, words
    a, b = (t.detach().cpu().numpy() for t in (got, expected))
    np.testing.assert_allclose(a, b, rtol=5e-5, atol=2e-6, err_msg=words)


def data(*shape, seed=0):
    ng.manual_seed(seed)
    return ng.randn(*shape)


OPTIMISERS = {
    "momentum": lambda p: ng.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: ng.optim.Adam(p, 0.01),
}


def trained(place, compiled, rates, make=OPTIMISERS["adam"], drop=0.0, micro=1):
    """A training step, with clipping, at each of ``rates``; micro: calls between updates."""
    ng.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(3, 4), nn.LayerNorm(4), nn.Dropout(drop), nn.ReLU(), nn.Linear(4, 3)
    ).to(place)
    optimizer = make(model.parameters())

    def step(x, y, scale):
        if micro == 1:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * scale
        loss.backward()
        if micro == 1:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return loss

    run = ng.compile(step) if compiled else step
    xs = [data(3, 3, seed=k).to(place) for k in range(len(rates))]
    losses, grads, y = [], [], ng.tensor([0, 2, 1]).to(place)
    ng.manual_seed(7)
    for k, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate
        losses.append(run(xs[k], y, 1.0 / (k + 1)))
        grads.append(model[0].weight.grad.clone() if micro > 1 else model[0].weight.grad)
        if micro > 1 and k % micro == micro - 1:
            optimizer.step()
            optimizer.zero_grad()
        _ = [ng.full((n,), 7.0, device=place) for n in (48, 40, 24, 8, 5, 3, 1)]  # reuses memory
    state = [v for held in optimizer.state.values() for v in held.values()]
    return losses, grads, list(model.parameters()), state, run, ng.get_rng_state().tolist()


def agree(got, expected):
    for mine, theirs in zip(got[:4], expected[:4], strict=True):
        for a, b in zip(mine, theirs, strict=True):
            close(a, b)
    assert got[5] == expected[5]


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_new_rate_needs_no_new_graph(name):
    rates = [0.01, 0.02, 0.02, 0.005]
    make = OPTIMISERS[name]
    expected, got = trained("cpu", False, rates, make), trained("cuda", True, rates, make)
    agree(got, expected)
    assert "captured into a graph, replayed 2 times" in repr(got[4].explain())
    info = got[4].cache_info()
    assert (info.recordings, info.graphs) == (1, 1)


def test_dropout_in_a_graph():
    rates = [0.01] * 4
    expected, got = trained("cpu", False, rates, drop=0.4), trained("cuda", True, rates, drop=0.4)
    agree(got, expected)
    assert got[4].cache_info().graphs == 1
    assert "replayed 2 times" in repr(got[4].explain())


def test_products_in_shares_in_a_graph():
    """What blocks have made apart lies in memory that is the graph's as long as it lives."""
    n, k, m = 3, 640, 4
    assert product_tile(SINGLES, 4, n, m, k, 1)[1] > 1
    step = ng.compile(lambda x, y, bias: (x @ y, F.linear(x, y.mT, bias) * 2))
    for seed in range(4):
        args = [data(*shape, seed=seed) for shape in ((n, k), (k, m), (m,))]
        got = step(*[a.cuda() for a in args])
        _ = [ng.full((size,), 7.0, device="cuda") for size in (240, 120, 60, 30, 15) * 3]
        x, y, bias = args
        for mine, theirs in zip(got, (x @ y, F.linear(x, y.mT, bias) * 2), strict=True):
            np.testing.assert_allclose(mine.cpu().numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4)
    assert step.cache_info().graphs == 1 and "replayed 2 times" in repr(step.explain())


def test_every_draw_in_a_graph():
    p = ng.tensor([0.2, 0.5, 0.3])

    def draw(x, p):
        noise = ng.rand_like(x) + ng.randn_like(x) * 2
        return noise, ng.bernoulli(x * 0 + 0.5), p.multinomial(2), p.multinomial(4, True)

    x = ng.zeros(7)
    ng.manual_seed(2)
    expected = [draw(x, p) for _ in range(4)]
    after = ng.get_rng_state().tolist()
    step = ng.compile(draw)
    ng.manual_seed(2)
    for truth in expected:
        for a, b in zip(step(x.cuda(), p.cuda()), truth, strict=True):
            close(a, b)
    assert ng.get_rng_state().tolist() == after
    assert step.cache_info().graphs == 1 and "replayed 2 times" in repr(step.explain())


def test_dropout_in_graphs_of_forward_and_backward():
    made = []
    for place in ("cpu", "cuda"):
        ng.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, 2))
        fast = ng.compile(model.to(place))
        x = data(3, 4).to(place).requires_grad_()
        ng.manual_seed(4)
        found = []
        for _ in range(4):
            out = fast(x)
            out.square().sum().backward()
            found += [out, x.grad.clone(), model[0].weight.grad.clone()]
        made.append(found)
    for mine, truth in zip(made[1], made[0], strict=True):
        close(mine, truth)
    assert fast.cache_info().graphs == 2
    assert repr(fast.explain()).count("replayed 2 times") == 2


def test_gradients_added_up_in_a_graph():
    rates = [0.01] * 12
    expected = trained("cpu", False, rates, micro=4)
    got = trained("cuda", True, rates, micro=4)
    agree(got, expected)
    info = got[4].cache_info()
    assert (info.recordings, info.graphs) == (2, 2)  # without .grad, and with it
    assert "replayed" in repr(got[4].explain())


def test_an_argument_that_is_written_in_a_graph():
    step = ng.compile(lambda x, s: x.mul_(s).add_(1.0))
    x = ng.ones(6, device="cuda")
    for k in range(4):
        step(x, 2.0 + k)
    assert x.tolist() == [2 * 3 * 4 * 5 + 3 * 4 * 5 + 4 * 5 + 5 + 1.0] * 6
    assert step.cache_info().graphs == 1
    wide = ng.ones(6, 2, device="cuda")
    step = ng.compile(lambda x: x.mul_(2.0))
    for _ in range(4):
        step(wide[:, 0])
    assert wide[:, 0].tolist() == [16.0] * 6 and wide[:, 1].tolist() == [1.0] * 6
    assert step.cache_info().graphs == 0


def test_a_mode_that_changes_makes_another_graph():
    weight = ng.ones(3, device="cuda", requires_grad=True)
    optimizer = ng.optim.SGD([weight], 0.5, momentum=0.5)

    @ng.compile
    def step(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    other = ng.ones(3, requires_grad=True)
    truth = ng.optim.SGD([other], 0.5, momentum=0.5)
    for nesterov in (False, False, False, True, True, True):
        optimizer.param_groups[0]["nesterov"] = truth.param_groups[0]["nesterov"] = nesterov
        step(ng.ones(3, device="cuda"))
        truth.zero_grad()
        other.sum().backward()
        truth.step()
        close(weight, other)


# ---------------------------------------------------------------- numbers in device memory


class LateCopies:
    """The simulator's driver, but copies to the device wait until ``finish``."""

    def __init__(self, real):
        self.real, self.waiting, self.done, self.asked = real, [], 0, 0

    def __getattr__(self, name):
        return getattr(self.real, name)

    def copy_in(self, address, source, stream):
        self.asked += 1
        self.waiting.append((address, source))

    def record(self, stream):
        mine = self.asked
        return lambda: self.done >= mine

    def finish(self, count):
        for address, source in self.waiting[:count]:
            ctypes.memmove(address, source.ctypes.data, source.nbytes)
        self.done += count
        del self.waiting[:count]

    def synchronize(self, stream=None):
        self.finish(len(self.waiting))


@pytest.mark.skipif(not device.simulating(), reason="needs a driver that can be replaced")
def test_a_copy_under_way_never_sees_later_values(monkeypatch):
    late = LateCopies(device.driver())
    monkeypatch.setattr(device, "_driver", late)
    numbers = Numbers((1.0, True, 3, 4), 2, ng.device("cuda"))
    rate, mode, *counters = numbers.each
    assert mode is True and [n.kind for n in (rate, *counters)] == ["float64", "int64", "int64"]
    for k in range(1, 5):
        numbers.put((k / 2, True, k, 2**62 + k))
    for k in range(1, 5):
        late.finish(1)
        assert rate.read() == k / 2 and [n.read() for n in counters] == [k, 2**62 + k]
    numbers.put((2.0, True, 4, 2**62 + 4))
    assert numbers.copies == 4 and not late.waiting  # the same values are there already
    for k in range(3 * SLOTS):
        numbers.put((0.5, True, k, 0))
        assert len(late.waiting) <= SLOTS
    late.synchronize()
    assert counters[0].read() == 3 * SLOTS - 1


def test_numbers_that_are_looked_at_are_noted():
    numbers = Numbers((1.5, 2, 0.25), 3, ng.device("cuda"))
    numbers.put((1.5, 2, 0.25))
    assert numbers.fixed() == ((1, 2),)
    first, _, last = numbers.each
    assert type(first) is DeviceNumber and 1 - last == 0.75 and first > 1
    assert numbers.fixed() == ((0, 1.5), (1, 2), (2, 0.25))
    assert numbers.fits((2.5, 7, 0.1)) and not numbers.fits((2, 7, 0.1))


def test_host_memory_is_refused():
    def twice(out, x):
        out[0] = 2 * x[0]

    out = ng.zeros(1, device="cuda")._array
    for args in ((out, np.ones(1)), (np.ones(1), out)):
        with pytest.raises(DeviceError, match="host memory"):
            launch.start(twice, 1, 1, *args)
    with pytest.raises(TypeError, match="not list"):
        launch.start(twice, 1, 1, out, [1.0])


# ---------------------------------------------------------------- what a graph keeps


def test_a_flag_in_a_graph():
    step = ng.compile(lambda x, y: F.cross_entropy(x, y))
    x = ng.zeros(2, 3, device="cuda")
    good = ng.tensor([1, 2], device="cuda")
    for _ in range(4):
        step(x, good)
    assert "captured into a graph, replayed 2 times" in repr(step.explain())
    step(x, ng.tensor([1, 5], device="cuda"))
    loss = step(x, good)
    with pytest.raises(IndexError, match="Target"):
        loss.item()
    assert step(x, good).item() == pytest.approx(float(np.log(3)), rel=1e-5)


def test_why_there_is_no_graph(monkeypatch):
    x = ng.ones(4, device="cuda")
    monkeypatch.setenv("NUMBAGRAD_CUDA_GRAPHS", "0")
    step = ng.compile(lambda x: x * 2)
    assert step(x).tolist() == step(x).tolist() == step(x).tolist() == [2.0] * 4
    assert "one by one (NUMBAGRAD_CUDA_GRAPHS=0" in repr(step.explain())


def test_what_cannot_be_captured():
    def meets_the_host(out, x):
        x.get()
        ng.kernels.cuda.runtime.elementwise.copy(out, x)

    from numbagrad.kernels.cuda.runtime.graph import Graph

    x = ng.ones(3, device="cuda")
    with pytest.raises(ng.errors.DeviceError, match="while a graph is captured"):
        Graph(lambda: meets_the_host(x._array, x._array))
    assert (x + 1).tolist() == [2.0] * 3


def test_a_graph_keeps_its_temporaries():
    from numbagrad.kernels.cuda import reduce
    from numbagrad.kernels.cuda.runtime.graph import Graph
    from numbagrad.kernels.cuda.runtime.shape import PART

    n = 3 * PART + 1
    x, out = ng.ones(1, n, 1, device="cuda"), ng.zeros(1, 1, 1, device="cuda")
    reduce.sum(out._array, x._array)  # in parts, through a temporary
    gc.collect()
    before = ng.cuda.memory_allocated()
    graph = Graph(lambda: reduce.sum(out._array, x._array))
    assert ng.cuda.memory_allocated() > before
    ng.cuda.empty_cache()
    others = [ng.full((k,), 7.0, dtype=ng.double, device="cuda") for k in range(1, 9)]
    x.fill_(2.0)
    graph.replay()
    assert out.item() == 2.0 * n
    assert all((o == 7).all().item() for o in others)
    del graph, others
    gc.collect()
    assert ng.cuda.memory_allocated() == before
