"""Tensors on the device: moving, memory, streams, errors, and training as on the CPU."""

from __future__ import annotations

import copy
import gc
import math
import pickle

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import DeviceError, NoTwinError, OutOfMemoryError
from numbagrad.kernels.cuda.runtime import device
from numbagrad.nn import functional as F

pytestmark = pytest.mark.cuda
SIMULATED = device.simulating()


def close(got, expected, rtol=1e-5):
    np.testing.assert_allclose(
        got.detach().cpu().numpy(), expected.detach().cpu().numpy(), rtol=rtol, atol=1e-6
    )


# ---------------------------------------------------------------- moving


def test_the_chain_of_the_issue():
    x = ng.randn(3, 4, device="cuda", requires_grad=True)
    y = (x * 2 + 1).exp().sum()
    y.backward()
    z = x.detach().cpu().requires_grad_()
    out = (z * 2 + 1).exp().sum()
    out.backward()
    assert y.is_cuda and str(y.device) == "cuda:0" and x.grad.is_cuda
    close(y, out)
    close(x.grad, z.grad)


def test_there_and_back():
    x = ng.arange(12).reshape(3, 4)
    y = x.cuda()
    assert y.is_cuda and not x.is_cuda
    assert y.cuda() is y and x.cpu() is x
    assert (y.cpu() == x).all()
    assert (y.t()[1:, ::2].cpu() == x.t()[1:, ::2]).all()
    assert y.to("cpu", ng.float32).dtype is ng.float32
    assert x.to(y).is_cuda


def test_the_gradient_goes_back_too():
    x = ng.ones(3, requires_grad=True)
    (x.cuda() * 2).sum().backward()
    assert not x.grad.is_cuda and x.grad.tolist() == [2.0] * 3


def test_device_argument_of_creating_functions():
    for make in (ng.zeros, ng.ones, ng.empty, ng.rand, ng.randn):
        assert make(2, 3, device="cuda").is_cuda
    assert ng.full((2,), 3, device="cuda").tolist() == [3, 3]
    assert ng.tensor([1, 2], device="cuda").tolist() == [1, 2]
    assert ng.arange(3, device="cuda").tolist() == [0, 1, 2]
    assert ng.zeros_like(ng.ones(2, device="cuda")).is_cuda
    assert ng.ones(2, device="cuda").new_zeros(3).is_cuda


def test_reading_elements():
    x = ng.tensor([1.5, 2.5]).cuda()
    assert x.tolist() == [1.5, 2.5] and x[1].item() == 2.5 and float(x[0]) == 1.5
    assert bool(x[0] > 1) and list(x)[1].item() == 2.5 and 2.5 in x
    assert repr(x) == "tensor([1.5000, 2.5000], device='cuda:0')"
    with pytest.raises(TypeError, match="Use Tensor"):
        x.numpy()
    with pytest.raises(TypeError, match="Use Tensor"):
        np.asarray(x)


def test_copies_and_pickles():
    x = ng.tensor([1.0, 2.0], device="cuda")
    assert copy.deepcopy(x).is_cuda
    assert pickle.loads(pickle.dumps(x)).tolist() == [1.0, 2.0]
    y = ng.zeros(2)
    y.copy_(x)
    assert y.tolist() == [1.0, 2.0] and not y.is_cuda
    assert ng.zeros(2, device="cuda").copy_(y).tolist() == [1.0, 2.0]


def test_pinned_memory():
    x = ng.arange(5).pin_memory()
    assert x.tolist() == [0, 1, 2, 3, 4] and x.is_pinned() is not SIMULATED
    assert not ng.arange(5).is_pinned()
    assert x.to("cuda", non_blocking=True).tolist() == [0, 1, 2, 3, 4]


def test_in_place_and_views():
    x = ng.zeros(3, 4, device="cuda")
    x[1] += 2
    x.t()[0].fill_(7)
    assert x.cpu().tolist() == [[7, 0, 0, 0], [7, 2, 2, 2], [7, 0, 0, 0]]


# ---------------------------------------------------------------- errors


def test_devices_do_not_mix():
    with pytest.raises(DeviceError, match="same device"):
        ng.ones(2).cuda() + ng.ones(2)
    with pytest.raises(RuntimeError, match="device"):
        ng.ones(2, 2).cuda() @ ng.ones(2, 2)


def test_other_gpus_are_refused():
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES=1"):
        ng.ones(2).to("cuda:1")


def test_a_kernel_without_a_twin_says_so():
    with pytest.raises(NoTwinError, match=r"no GPU kernel .* x.cpu()"):
        ng.linalg.det(ng.ones(2, 2, device="cuda"))


def test_a_bad_index_is_found_when_the_host_next_waits():
    x = ng.arange(5, device="cuda")
    y = x[ng.tensor([1, 9], device="cuda")]
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        y.cpu()
    ng.cuda.synchronize()  # it was said once
    x[ng.tensor([7], device="cuda")]
    with pytest.raises(IndexError, match="index 7"):
        ng.cuda.synchronize()


def test_many_checks_are_looked_at_together(monkeypatch):
    """One copy to the host for all that wait: each takes longer than a launch."""
    x, good = ng.arange(5, device="cuda"), ng.tensor([1, 4], device="cuda")
    ng.cuda.synchronize()
    driver, copies = device.driver(), []
    copy_out = driver.copy_out
    monkeypatch.setattr(driver, "copy_out", lambda *a: copies.append(copy_out(*a)))
    for _ in range(3 * device.MOST_FLAGS):
        y = x[good]
    assert len(copies) == 3
    y = x[ng.tensor([3, 8], device="cuda")]
    for _ in range(20):
        x[good]
    with pytest.raises(IndexError, match="index 8"):
        y.cpu()
    assert x[good].tolist() == [1, 4]


@pytest.mark.parametrize(
    "weights,words",
    [([0.0, 0.0], "sum of prob"), ([1.0, -1.0], "element < 0"), ([1, 0.0], "not enough")],
)
def test_bad_weights_are_found(weights, words):
    with pytest.raises(RuntimeError, match=words):
        ng.tensor(weights).cuda().multinomial(2).cpu()


def test_a_bad_target_is_found():
    loss = F.cross_entropy(ng.zeros(2, 3, device="cuda"), ng.tensor([1, 5], device="cuda"))
    with pytest.raises(IndexError, match="Target 5"):
        loss.item()


def test_a_gradient_that_is_a_view_is_not_taken_over():
    seen = []
    x = ng.ones(3, device="cuda", requires_grad=True)
    y = x.unsqueeze(0)
    y.register_hook(seen.append)
    (y * 2).sum().backward()
    x.grad.add_(1.0)
    assert seen[0].tolist() == [[2.0] * 3]


def test_nan_is_traced_to_its_line():
    with ng.autograd.detect_anomaly(), pytest.raises(FloatingPointError, match="log"):
        ng.log(ng.full((2,), -1.0, device="cuda", requires_grad=True)).sum().backward()


# ---------------------------------------------------------------- memory and streams


def test_memory_is_counted_and_reused():
    gc.collect()
    before = ng.cuda.memory_allocated()
    x = ng.zeros(1000, device="cuda")
    assert ng.cuda.memory_allocated() == before + 4096
    address = x.data_ptr()
    del x
    assert ng.cuda.memory_allocated() == before
    assert ng.zeros(1000, device="cuda").data_ptr() == address
    assert ng.cuda.memory_reserved() >= ng.cuda.memory_allocated()
    assert "in use by tensors" in ng.cuda.memory_summary()
    ng.cuda.empty_cache()


def test_out_of_memory():
    _, total = device.driver().memory_info()
    with pytest.raises(OutOfMemoryError, match="out of memory"):
        ng.empty(total // 4 + 1, 2, device="cuda")
    assert ng.ones(2, device="cuda").tolist() == [1.0, 1.0]


def test_two_streams():
    first, second = ng.cuda.Stream(), ng.cuda.Stream()
    x = ng.arange(1000, dtype=ng.float32).cuda()
    ng.cuda.synchronize()
    with ng.cuda.stream(first):
        y = x * 2
    second.wait_stream(first)
    with ng.cuda.stream(second):
        z = y + 1
        del y  # its memory must not be reused before second has read it
        w = ng.zeros(1000, device="cuda")
    assert ng.cuda.current_stream() is not second
    second.synchronize()
    assert z[10].item() == 21.0 and w.sum().item() == 0.0


def test_events():
    first, second = ng.cuda.Stream(), ng.cuda.Stream()
    start, end = (ng.cuda.Event(enable_timing=True) for _ in range(2))
    assert start.query()
    with pytest.raises(DeviceError, match="never recorded"):
        start.elapsed_time(end)
    with ng.cuda.stream(first):
        start.record()
        y = ng.ones(1000, device="cuda") * 2
        end.record()
    second.wait_event(end)
    with ng.cuda.stream(second):
        z = y + 1
        marked = second.record_event()
    end.synchronize()
    marked.synchronize()
    assert start.query() and marked.query() and first.query()
    assert start.elapsed_time(end) >= 0.0
    assert z[10].item() == 3.0
    with pytest.raises(DeviceError, match="enable_timing=True"):
        start.elapsed_time(marked)
    marked.wait()  # on the current stream
    assert ng.cuda.default_stream().query()


def test_an_event_tells_what_a_kernel_found():
    x, event = ng.zeros(3, device="cuda"), ng.cuda.Event()
    x.index_select(0, ng.tensor([5], device="cuda"))
    event.record()
    with pytest.raises(IndexError, match="index_select"):
        event.synchronize()


def test_what_is_known_of_the_gpu():
    known = ng.cuda.get_device_properties(0)
    assert ng.cuda.current_device() == 0 and ng.cuda.is_initialized()
    assert known.name == ng.cuda.get_device_name() == ng.cuda.get_device_name("cuda:0")
    assert (known.major, known.minor) == ng.cuda.get_device_capability(ng.device("cuda"))
    free, total = ng.cuda.mem_get_info()
    assert 0 < free <= total == known.total_memory and known.multi_processor_count > 0
    assert ng.cuda.is_bf16_supported() is (known.major >= 8)
    assert ng.cuda.max_memory_reserved() >= ng.cuda.memory_reserved()
    ng.cuda.set_device(0)
    for wrong in (1, "cuda:1"):
        with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES=1"):
            ng.cuda.set_device(wrong)
    with pytest.raises(DeviceError, match="expected a GPU"):
        ng.cuda.get_device_name("cpu")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ng.hann_window(4),
        lambda: ng.kaiser_window(1),
        lambda: ng.range(1, 3),
        lambda: ng.scalar_tensor(2.0),
    ],
)
def test_the_default_device_holds_for_rarer_creators(make):
    with ng.device("cuda"):
        assert make().is_cuda


def test_lists_index_where_the_tensor_is():
    x, y = ng.arange(3), ng.arange(3, device="cuda")
    with ng.device("cuda"):
        assert x[[0, 2]].tolist() == y[[0, 2]].tolist() == [0, 2]
        x[[1, 2]] = [5, 6]
        assert x.tolist() == [0, 5, 6]


def test_default_device():
    """Creating functions, random numbers and layers follow it, and nothing else."""
    made = {
        "zeros": lambda: ng.zeros(2),
        "empty": lambda: ng.empty(2),
        "full": lambda: ng.full((2,), 3.0),
        "tensor": lambda: ng.tensor([1.0, 2.0]),
        "as_tensor": lambda: ng.as_tensor([1.0, 2.0]),
        "arange": lambda: ng.arange(3),
        "linspace": lambda: ng.linspace(0, 1, 3),
        "logspace": lambda: ng.logspace(0, 1, 3),
        "eye": lambda: ng.eye(2),
        "triu_indices": lambda: ng.triu_indices(2, 2),
        "rand": lambda: ng.rand(2),
        "randn": lambda: ng.randn(2),
        "randint": lambda: ng.randint(0, 3, (2,)),
        "randperm": lambda: ng.randperm(3),
        "Linear": lambda: nn.Linear(2, 3).weight,
        "BatchNorm1d": lambda: nn.BatchNorm1d(2).running_mean,
    }
    host = ng.ones(2)
    for name, make in made.items():
        with ng.device("cuda"):
            assert make().is_cuda, name
            with ng.device("cpu"):
                assert not make().is_cuda, name
        assert not make().is_cuda, name
    with ng.device("cuda"):
        assert not ng.zeros_like(host).is_cuda and not host.new_zeros(2).is_cuda
        assert not ng.from_numpy(np.ones(2)).is_cuda and not ng.as_tensor(host).is_cuda
        assert not ng.zeros(2, device="cpu").is_cuda
        assert str(ng.get_default_device()) == "cuda:0"
    ng.set_default_device("cuda")
    try:
        assert ng.zeros(2).is_cuda and nn.LSTM(2, 3)(ng.randn(4, 1, 2))[0].is_cuda
    finally:
        ng.set_default_device(None)
    assert ng.get_default_device() == ng.device("cpu")


# ---------------------------------------------------------------- training


def trained(place, optimizer, model, steps=3):
    """Losses and parameters of a small classifier after some steps on ``place``."""
    ng.manual_seed(0)
    net = model()
    net = net.cuda() if place == "cuda" else net
    update = optimizer(net.parameters())
    x, target = ng.randn(6, 5).to(place), ng.tensor([0, 1, 2, 2, 1, 0]).to(place)
    losses = []
    for _ in range(steps):
        update.zero_grad()
        loss = F.cross_entropy(net(x), target)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        update.step()
        losses.append(loss)
    return ng.stack([v.detach() for v in losses]), list(net.parameters())


def mlp():
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


@ng.optim.elementwise
def Scaled(p, g, square, step, *, lr=0.1, beta=0.99, eps=1e-8):
    """A rule of a user's."""
    square = max(beta * square, abs(g) ** 1.5) + (1 - beta) * g * g
    return p - lr * g / (math.sqrt(square / (1 - beta**step)) + eps), square


OPTIMIZERS = {
    "sgd": lambda p: ng.optim.SGD(p, 0.1),
    "momentum": lambda p: ng.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda p: ng.optim.Adam(p, 0.01),
    "adamw": lambda p: ng.optim.AdamW(p, 0.01, amsgrad=True),
    "rmsprop": lambda p: ng.optim.RMSprop(p, 0.01, centered=True, momentum=0.5),
    "adagrad": lambda p: ng.optim.Adagrad(p, 0.1),
    "adadelta": lambda p: ng.optim.Adadelta(p, 1.0, weight_decay=0.01),
    "adamax": lambda p: ng.optim.Adamax(p, 0.01, weight_decay=0.01),
    "nadam": lambda p: ng.optim.NAdam(p, 0.01, weight_decay=0.01),
    "radam": lambda p: ng.optim.RAdam(p, 0.01, betas=(0.5, 0.9), weight_decay=0.01),
    "radam short": lambda p: ng.optim.RAdam(p, 0.01, decoupled_weight_decay=True),
    "asgd": lambda p: ng.optim.ASGD(p, 0.1, t0=1, weight_decay=0.01),
    "rprop": lambda p: ng.optim.Rprop(p, 0.01),
    "adafactor": lambda p: ng.optim.Adafactor(p, 0.1, weight_decay=0.01),
    "lion": lambda p: ng.optim.Lion(p, 0.01, weight_decay=0.01),
    "own": lambda p: Scaled(p, 0.01, maximize=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_gives_the_numbers_of_the_cpu(name):
    steps = 7 if name == "radam" else 3  # the seventh is rectified
    losses, parameters = trained("cpu", OPTIMIZERS[name], mlp, steps)
    gpu_losses, gpu_parameters = trained("cuda", OPTIMIZERS[name], mlp, steps)
    close(gpu_losses, losses)
    for got, expected in zip(gpu_parameters, parameters, strict=True):
        assert got.is_cuda
        close(got, expected, 1e-4)


def test_a_deeper_model_trains_too():
    def model():
        return nn.Sequential(
            nn.Linear(5, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.25), nn.Linear(8, 3)
        )

    losses, _ = trained("cpu", OPTIMIZERS["adamw"], model, 2)
    gpu_losses, _ = trained("cuda", OPTIMIZERS["adamw"], model, 2)
    close(gpu_losses, losses, 1e-4)


@pytest.mark.parametrize("columns", [3, 40 if SIMULATED else 2000])
def test_rows_that_do_not_fill_a_block(columns):
    """Three rows: some teams of the last block have none, and must still meet the others."""
    x, target = ng.randn(3, columns), ng.tensor([0, 2, 1])
    weight = ng.rand(columns)
    results = []
    for place in ("cpu", "cuda"):
        y = x.to(place).detach().requires_grad_()
        w = weight.to(place)
        loss = F.cross_entropy(y, target.to(place), label_smoothing=0.1, weight=w)
        parts = [F.softmax(y, 1), F.log_softmax(y, 1), F.layer_norm(y, (columns,), w, w)]
        parts += [y.sum(1), y.argmax(1), y.var(1), ng.logsumexp(y, 1)]
        total = loss + sum(p.sum() * k for k, p in enumerate(parts) if p.requires_grad)
        total.backward()
        results.append([loss, *parts, y.grad])
    for expected, got in zip(*results, strict=True):
        close(got, expected, 1e-4)


def test_state_dicts_cross_devices():
    net, other = mlp().cuda(), mlp()
    other.load_state_dict(net.state_dict())
    close(other[0].weight, net[0].weight)
    net.load_state_dict(other.state_dict())
    assert net[0].weight.is_cuda


def test_models_are_saved_from_and_loaded_to_a_gpu(tmp_path):
    net = mlp().cuda()
    ng.save(net.state_dict(), tmp_path / "net.safetensors")
    close(ng.load(tmp_path / "net.safetensors")["0.weight"], net[0].weight)
    assert ng.load(tmp_path / "net.safetensors", map_location="cuda")["2.bias"].is_cuda


def test_batches_of_a_loader_stay_on_the_gpu():
    data = ng.data.TensorDataset(ng.arange(8, device="cuda"))
    batches = [batch for (batch,) in ng.data.DataLoader(data, batch_size=3, shuffle=True)]
    assert all(b.is_cuda for b in batches) and sorted(ng.cat(batches).tolist()) == [*range(8)]


def test_random_numbers_are_those_of_the_cpu():
    for make in (
        lambda d: ng.randn(20, device=d),
        lambda d: ng.rand(20, device=d, dtype=ng.double),
        lambda d: ng.randint(0, 1000, (20,), device=d),
        lambda d: F.dropout(ng.ones(20, device=d), 0.3),
        lambda d: ng.randperm(20, device=d),
        lambda d: ng.rand(2, 9, device=d).multinomial(4),
        lambda d: ng.rand(2, 9, device=d).multinomial(4, True),
    ):
        ng.manual_seed(3)
        expected = make("cpu")
        ng.manual_seed(3)
        close(make("cuda"), expected)


# ---------------------------------------------------------------- other people's code


class Foreign:
    """Stands for an array of another library on the same device."""

    def __init__(self, tensor):
        self.kept = tensor
        self.__cuda_array_interface__ = dict(tensor.__cuda_array_interface__, stream=None)


def test_the_memory_of_another_library_is_shared():
    x = ng.arange(6, dtype=ng.float32).cuda().reshape(2, 3)
    y = ng.as_tensor(Foreign(x.t()))
    assert y.shape == (3, 2) and y.data_ptr() == x.data_ptr()
    y += 1
    assert x.cpu().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert not hasattr(ng.ones(2), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="detach"):
        _ = x.clone().requires_grad_().__cuda_array_interface__


cuda = pytest.importorskip("numba.cuda")  # the simulator wants it as a global name


@cuda.jit
def halves(out, x):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] / 2


@ng.kernel
def each_halved(out, x):
    """out, x (n,): half of each element."""
    for i in range(x.size):
        out[i] = x[i] / 2


@each_halved.cuda
def each_halved_on_gpu(out, x):
    halves[2, 4](out, x)


def test_a_kernel_of_the_user():
    x = ng.arange(7, dtype=ng.float32)
    for value in (x, x.cuda()):
        out = ng.empty_like(value)
        ng.launch(each_halved, out, value)
        assert out.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    out = ng.empty_like(x.cuda())
    ng.launch(halves[2, 4], out, x.cuda())
    assert out.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]
