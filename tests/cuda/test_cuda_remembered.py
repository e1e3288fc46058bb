"""Functions and ops that remember what they launched on the GPU, and CPU ops beside a GPU."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.kernels import machine
from numbagrad.kernels.cuda.runtime import device
from numbagrad.ops import device_memory, remembered

F = ng.nn.functional
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(device.simulating(), reason="the simulator launches every time anew"),
]


@pytest.fixture(autouse=True)
def fresh():
    remembered.forget()
    yield
    remembered.forget()


def data(*shape, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return ng.tensor(values, device="cuda")


def close(got, expected):
    np.testing.assert_allclose(got.detach().cpu().numpy(), expected, rtol=2e-5, atol=2e-5)


def plans(function):
    """How many plans for a GPU a function has."""
    return sum(
        type(plan) is device_memory.DevicePlan
        for memory in remembered._memories
        if memory.function.__name__ == function.__name__
        for plan in memory.away.plans.values()
    )


CALLS = {
    "sum": (ng.sum, lambda f, x, i: f(x, 1)),
    "softmax": (F.softmax, lambda f, x, i: f(x, 1)),
    "layer_norm": (F.layer_norm, lambda f, x, i: f(x, (8,), x[0], x[1])),
    "matmul": (ng.matmul, lambda f, x, i: f(x, x.t())),
    "cat": (ng.cat, lambda f, x, i: f([x, x[1:3], x, x[:1], x], 0)),
    "cat of columns": (ng.cat, lambda f, x, i: f([x, x[:, :0].contiguous(), x], 1)),
    "stack": (ng.stack, lambda f, x, i: f((x, x), 1)),
    "max": (ng.max, lambda f, x, i: f(x, 1)),
    "sort": (ng.sort, lambda f, x, i: f(x, 1)),
    "gather": (ng.gather, lambda f, x, i: f(x, 0, i)),
    "index_select": (ng.index_select, lambda f, x, i: f(x, 0, i[0])),
    "cross_entropy": (F.cross_entropy, lambda f, x, i: f(x, i[:, 0].contiguous())),
    "max_pool1d": (F.max_pool1d, lambda f, x, i: f(x[None], 2)),
    "logsumexp": (ng.logsumexp, lambda f, x, i: f(x, 0)),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_numbers_of_the_same_kind(name):
    function, call = CALLS[name]
    for seed in range(4):
        x = data(6, 8, seed=seed)
        i = ng.tensor(np.random.default_rng(seed).integers(0, 6, (6, 8)), device="cuda")
        got, expected = call(function, x, i), call(function, x.cpu(), i.cpu())
        several = [[g] if isinstance(g, ng.Tensor) else g for g in (got, expected)]
        for a, b in zip(*several, strict=True):
            assert a.dtype is b.dtype and a.is_contiguous() == b.is_contiguous()
            close(a, b.numpy())
        assert type(got) is type(expected)
    assert plans(function) == 1


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "matmul", "cat", "gather"])
def test_gradients_of_what_came_now(name):
    function, call = CALLS[name]
    for seed in range(4):
        x, weight = data(6, 8, seed=seed), data(64, seed=9)
        i = ng.tensor(np.random.default_rng(seed).integers(0, 6, (6, 8)), device="cuda")
        grads = []
        for leaf, index, w in ((x, i, weight), (x.cpu(), i.cpu(), weight.cpu())):
            leaf.requires_grad_()
            out = call(function, leaf, index).reshape(-1)
            w = w.repeat(4)[: out.numel()]
            (out * w).sum().backward()
            grads.append(leaf.grad)
        close(grads[0], grads[1].numpy())


def test_results_have_memory_of_their_own():
    kept = []
    for seed in range(5):
        x = data(5, 8, seed=seed)
        kept.append((x.cpu().numpy(), x.sum(0), *x.max(1), F.layer_norm(x, (8,))))
    for a, total, largest, at, normal in kept:
        close(total, a.sum(0))
        close(largest, a.max(1))
        assert at.tolist() == a.argmax(1).tolist()
        close(normal, (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5))


def test_the_same_tensor_twice_and_views_of_one():
    whole = data(6, 4, 4)
    a = whole.cpu().numpy()
    for _ in range(4):
        close(whole[0] @ whole[0], a[0] @ a[0])
        close(whole[0] @ whole[1], a[0] @ a[1])
        close(whole[1] @ whole[0], a[1] @ a[0])
        close(whole[2] @ whole[4], a[2] @ a[4])


def test_a_bad_index_is_named_with_the_value_of_its_call():
    x, index = data(6, 8), ng.zeros(2, 8, dtype=ng.int64, device="cuda")
    for _ in range(4):
        x.gather(0, index)
    device.synchronize()
    for bad in (6, 17):
        index[1, 3] = bad
        x.gather(0, index)
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds for dimension 0"):
            device.synchronize()
    assert plans(ng.gather) == 1


def test_what_is_written_counts_and_is_written():
    x, index, y = data(6, 8), ng.zeros(2, 8, dtype=ng.int64, device="cuda"), data(2, 8, seed=1)
    truth = x.cpu()
    for _ in range(4):
        version = x._version
        x.scatter_(0, index, y)
        truth.scatter_(0, index.cpu(), y.cpu())
        assert x._version == version + 1
    close(x, truth.numpy())


def test_in_place_forms_write_where_they_read():
    x, y, row = data(6, 8), data(6, 8, seed=1), data(8, seed=2)
    truth, view = x.cpu(), x[1:3]
    for _ in range(3):
        for other, beside in ((y, y.cpu()), (row, row.cpu()), (x, truth), (2.0, 2.0)):
            before = x._version
            for each, value in ((x, other), (truth, beside)):
                each.add_(value)
                each.mul_(value)
            assert x._version == before + 2
        x /= 64.0
        truth /= 64.0
    close(x, truth.numpy())
    close(view, truth[1:3].numpy())
    for _ in range(3):  # memory that is read elsewhere than it is written
        x[1:].add_(x[:-1])
        truth[1:].add_(truth[:-1])
    close(x, truth.numpy())
    whole = ng.tensor([1, 2], device="cuda")
    for _ in range(3):
        with pytest.raises(RuntimeError, match="can't be cast"):
            whole.mul_(0.5)
        whole.mul_(2)
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            row.add_(x)
    assert whole.tolist() == [8, 16]
    leaf = data(3).requires_grad_()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="leaf"):
            leaf.add_(1.0)
        with ng.no_grad():
            leaf.add_(1.0)
    grown = data(3)
    for _ in range(2):
        grown.add_(grown)
    grown.mul_(leaf)
    grown.sum().backward()
    close(leaf.grad, 4 * data(3).cpu().numpy())


def test_zeros_of_two_signs_and_numbers_of_other_types_are_others():
    x = ng.tensor([[1.0, -2.0]], device="cuda")
    for _ in range(3):
        for zero in (0.0, -0.0):
            got = x.masked_fill(x < 0, zero).cpu().numpy()
            assert np.signbit(got[0, 1]) == np.signbit(zero)
        assert x.sum(0, True).shape == (1, 2) and x.sum(0, False).shape == (2,)
        assert x.sum(False).shape == (2,)


def test_a_history_a_stream_and_a_step_see_their_own():
    x = data(6, 8)
    a = x.cpu().numpy()
    for _ in range(3):
        x.sum(1)
    taped = x.clone().requires_grad_()
    taped.sum(1).sum().backward()
    assert taped.grad.cpu().numpy().tolist() == np.ones((6, 8)).tolist()
    other = ng.cuda.Stream()
    with ng.cuda.stream(other):
        close(x.sum(1), a.sum(1))
    other.synchronize()
    step = ng.compile(lambda x: x.sum(1) + x.softmax(1).sum(1))
    for _ in range(3):
        close(step(x), a.sum(1) + 1)
    close(x.sum(1), a.sum(1))


def test_the_default_dtype_and_mixed_devices():
    x = ng.ones(4, dtype=ng.int64, device="cuda")
    for _ in range(3):
        assert x.float().mean().dtype is ng.float32 and x.logit().dtype is ng.float32
    ng.set_default_dtype(ng.float64)
    try:
        assert x.logit().dtype is ng.float64
    finally:
        ng.set_default_dtype(ng.float32)
    y = data(4, 4)
    for _ in range(3):
        y @ y
    for call in (lambda: y @ y.cpu(), lambda: y.cpu() @ y, lambda: ng.cat([y, y.cpu()])):
        for _ in range(3):
            with pytest.raises(RuntimeError, match="same device"):
                call()


def test_what_is_remembered_keeps_no_memory():
    for _ in range(4):
        x = data(64, 64)
        x.sum(0), x @ x, F.layer_norm(x, (64,)), x.gather(0, x.argmax(0, keepdim=True))
    device.synchronize()
    del x
    gc.collect()
    before = ng.cuda.memory_allocated()
    for _ in range(4):
        x = data(64, 64)
        x.sum(0), x @ x, F.layer_norm(x, (64,)), x.gather(0, x.argmax(0, keepdim=True))
    device.synchronize()
    del x
    gc.collect()
    assert ng.cuda.memory_allocated() == before


# -- operations on the CPU while a GPU is in use ---------------------------------------------------


def test_on_the_cpu_the_short_ways_stay_open(monkeypatch):
    data(2)
    assert machine.recording and not machine.closed
    x, y = ng.rand(4, 5), ng.rand(4, 5)
    row, calls, launch = ng.rand(5), [], machine.launch
    monkeypatch.setattr(machine, "launch", lambda *args: calls.append(args) or launch(*args))
    x + y, x * 2.0, -x, ng.where(x > 0, x, y), x.add_(y), x.zero_(), x.copy_(y)
    assert not calls
    x + row
    assert len(calls) == 1
    with monkeypatch.context() as patch:
        for memory in remembered._memories:
            if memory.function.__name__ in ("sum", "softmax", "matmul"):
                for _ in range(20):
                    x.sum(1), F.softmax(x, 1), x @ y.t()
                patch.setattr(memory, "function", None)
        x.sum(1), F.softmax(x, 1)


def test_cpu_ops_see_that_another_operand_is_elsewhere():
    x, z = ng.rand(4, 5), data(4, 5)
    for _ in range(20):
        x + x, x * 2.0, -x, x.sum(1), F.softmax(x, 1), x @ x.t(), ng.where(x > 0, x, x)
    for call in (
        lambda: x + z,
        lambda: z + x,
        lambda: ng.where(x > 0, x, z),
        lambda: x @ z.t(),
        lambda: x.add_(z),
        lambda: ng.lerp(x, x, z),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            call()
    number = ng.tensor(2.0)
    close(z * number, z.cpu().numpy() * 2)
    close(number * z, z.cpu().numpy() * 2)
    assert (ng.zeros_like(z).is_cuda, ng.ones_like(x).is_cuda) == (True, False)
    kept = x.clone()
    x.copy_(z)
    close(z, x.numpy())
    z.copy_(kept)
    close(z, kept.numpy())


def test_the_default_device_decides_where_nothing_else_does():
    for _ in range(20):
        assert not ng.arange(5).is_cuda and not ng.eye(3).is_cuda
    with ng.device("cuda"):
        for _ in range(4):
            assert ng.arange(5).is_cuda and ng.eye(3).is_cuda and ng.zeros(3).is_cuda
            assert not ng.ones(2, device="cpu").add(1).is_cuda
    assert not ng.arange(5).is_cuda


def test_a_step_on_the_cpu_is_recorded_as_before():
    data(2)
    x = ng.rand(4, 5)
    step = ng.compile(lambda x: F.softmax(x * 2 + 1, 1).sum(0))
    for _ in range(20):
        expected = F.softmax(x * 2 + 1, 1).sum(0)
    for _ in range(3):
        np.testing.assert_allclose(step(x).numpy(), expected.numpy(), rtol=1e-6)
    assert "softmax" in str(step.program)


def test_one_tensor_twice_is_not_two_that_share_memory():
    """What the backward pass keeps of each: second gradients go to the right one."""

    def second(x, y):
        (first,) = ng.autograd.grad((x @ y).sum(), [y], create_graph=True)
        return ng.autograd.grad((first * first).sum(), [x, y], allow_unused=True)

    x = data(3, 3).requires_grad_()
    for _ in range(4):
        (x @ x).sum().backward()
    of_x, of_y = second(x, x.detach().requires_grad_())
    expected, _ = second(x, data(3, 3).requires_grad_())
    assert of_y is None
    close(of_x, expected.cpu().numpy())
