"""Optimisers against torch, step by step; their state, groups and errors; schedulers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import optim
from numbagrad.kernels import machine
from numbagrad.optim import rules
from numbagrad.optim.rules import kernel_of

SHAPES = [(3, 4), (4,), (), (0,), (2, 3, 2)]

# name: (class, options)
ROWS = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd-decay": ("SGD", {"lr": 0.1, "weight_decay": 0.05}),
    "sgd-maximize": ("SGD", {"lr": 0.01, "maximize": True}),
    "momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "momentum-decay": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}),
    "dampening": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "adam-options": ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-4}),
    "adam-decay": ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    "adam-maximize": ("Adam", {"lr": 0.01, "maximize": True}),
    "amsgrad": ("Adam", {"lr": 0.01, "amsgrad": True}),
    "adamw": ("AdamW", {"lr": 0.01}),
    "adamw-decay": ("AdamW", {"lr": 0.01, "weight_decay": 0.3}),
    "adam-decoupled": (
        "Adam",
        {"lr": 0.01, "weight_decay": 0.3, "decoupled_weight_decay": True},
    ),
    "rmsprop": ("RMSprop", {}),
    "rmsprop-decay": ("RMSprop", {"lr": 0.02, "alpha": 0.9, "weight_decay": 0.1}),
    "rmsprop-centered": ("RMSprop", {"centered": True, "eps": 1e-4}),
    "rmsprop-momentum": ("RMSprop", {"momentum": 0.9, "maximize": True}),
    "rmsprop-both": ("RMSprop", {"momentum": 0.5, "centered": True, "eps": 1e-4}),
    "adagrad": ("Adagrad", {}),
    "adagrad-options": (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5},
    ),
    "adadelta": ("Adadelta", {}),
    "adadelta-options": ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1}),
    "asgd": ("ASGD", {}),
    "asgd-options": (
        "ASGD",
        {"lr": 0.1, "lambd": 0.05, "alpha": 0.6, "t0": 10, "weight_decay": 0.1},
    ),
    "asgd-maximize": ("ASGD", {"lr": 0.05, "t0": 5, "maximize": True}),
    "rprop": ("Rprop", {}),
    "rprop-options": ("Rprop", {"lr": 0.1, "etas": (0.4, 1.5), "step_sizes": (0.01, 0.5)}),
    "rprop-maximize": ("Rprop", {"maximize": True}),
    "adamax": ("Adamax", {}),
    "adamax-options": ("Adamax", {"lr": 0.02, "betas": (0.8, 0.95), "weight_decay": 0.1}),
    "nadam": ("NAdam", {}),
    "nadam-options": ("NAdam", {"lr": 0.01, "momentum_decay": 0.1, "weight_decay": 0.1}),
    "nadam-decoupled": (
        "NAdam",
        {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
    ),
    "radam": ("RAdam", {"lr": 0.01}),
    "radam-options": ("RAdam", {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    "radam-decoupled": (
        "RAdam",
        {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
    ),
    "adamw-amsgrad": ("AdamW", {"lr": 0.01, "amsgrad": True}),
}


ROUNDED = {"asgd": 3}
"""PyTorch rounds p times a factor next to 1 before it subtracts; a fused product does not."""


def arrays(dtype, seed=0, shapes=SHAPES):
    draw = np.random.default_rng(seed)
    return [np.asarray(draw.normal(size=shape), dtype) for shape in shapes]


def parameters(dtype="float32", seed=0, shapes=SHAPES):
    return [ng.tensor(a).requires_grad_() for a in arrays(dtype, seed, shapes)]


def give_gradients(params, seed):
    for param, grad in zip(params, arrays("float64", seed, [p.shape for p in params]), strict=True):
        param.grad = ng.tensor(grad).to(param.dtype)


def values(params):
    return [p.detach().numpy() for p in params]


def train(optimizer, params, steps, start=1):
    for step in range(start, start + steps):
        give_gradients(params, step)
        optimizer.step()
    return [v.copy() for v in values(params)]


def same(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.peer
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-6)])
@pytest.mark.parametrize("name", ROWS)
def test_fifty_steps_are_torchs(name, dtype, tolerance):
    torch = pytest.importorskip("torch")
    kind, options = ROWS[name]
    ours = parameters(dtype)
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays(dtype)]
    optimizer = getattr(optim, kind)(ours, **options)
    peer = getattr(torch.optim, kind)(theirs, foreach=False, **options)
    tolerance *= ROUNDED.get(name, 1)
    for step in range(1, 51):
        give_gradients(ours, step)
        for x, y in zip(ours, theirs, strict=True):
            y.grad = torch.tensor(x.grad.numpy())
        optimizer.step()
        peer.step()
        for x, y in zip(values(ours), theirs, strict=True):
            scale = np.maximum(np.abs(y.detach().numpy()), 1)
            assert np.all(np.abs(x - y.detach().numpy()) <= tolerance * scale), step


ADDED_UP = {"adagrad", "adagrad-options"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*sorted(ROWS.keys() - ADDED_UP), "lion"])
def test_the_moments_of_a_dead_unit_become_zero(name, dtype):
    """A denormal times 0.9 stays one for ever, and takes 20 times as long as another number."""
    kind, options = ROWS.get(name, ("Lion", {}))
    (param,) = parameters(dtype, shapes=[(40,)])
    optimizer = getattr(optim, kind)([param], **options)
    train(optimizer, [param], 1)
    kept = optimizer.state[param].items()
    moments = [s for n, s in kept if s.shape == param.shape and n != "max_exp_avg_sq"]
    least = np.finfo(dtype).tiny
    for moment in moments:
        moment.fill_(least / 8)
    param.data.zero_()
    param.grad = ng.zeros_like(param)
    optimizer.step()
    for moment in moments:
        assert not ((moment.numpy() != 0) & (np.abs(moment.numpy()) < least)).any()


@pytest.mark.parametrize("name", ["sgd", "dampening", "adam", "amsgrad"])
def test_results_do_not_depend_on_the_number_of_threads(name):
    kind, options = ROWS[name]
    shapes = [(300, 300), (7,), (50, 1000)]
    most = machine.threads()
    results = []
    try:
        for count in {1, most}:
            machine.set_threads(count)
            params = parameters("float32", shapes=shapes)
            results.append(train(getattr(optim, kind)(params, **options), params, 3))
    finally:
        machine.set_threads(most)
    same(results[0], results[-1])


@pytest.mark.parametrize("name", ROWS)
def test_state_goes_on_where_it_was_saved(name):
    kind, options = ROWS[name]
    params = parameters()
    whole = train(getattr(optim, kind)(params, **options), params, 6)

    params = parameters()
    optimizer = getattr(optim, kind)(params, **options)
    train(optimizer, params, 3)
    resumed = [p.detach().clone().requires_grad_() for p in params]
    second = getattr(optim, kind)(resumed, **options)
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    same(train(second, resumed, 3, start=4), whole)


def test_state_dict_has_torchs_layout():
    params = parameters()
    optimizer = optim.Adam([{"params": params[:2]}, {"params": params[2:], "lr": 0.5}])
    train(optimizer, params, 1)
    saved = optimizer.state_dict()
    assert list(saved) == ["state", "param_groups"]
    assert sorted(saved["state"]) == [0, 1, 2, 3, 4]
    assert sorted(saved["state"][0]) == ["exp_avg", "exp_avg_sq", "step"]
    assert saved["state"][0]["step"].item() == 1.0
    assert [g["params"] for g in saved["param_groups"]] == [[0, 1], [2, 3, 4]]
    assert [g["lr"] for g in saved["param_groups"]] == [1e-3, 0.5]


@pytest.mark.peer
def test_a_state_dict_of_torch_loads():
    torch = pytest.importorskip("torch")
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays("float64")]
    peer = torch.optim.Adam(theirs, lr=0.01)
    for step in range(1, 4):
        for y, grad in zip(theirs, arrays("float64", step), strict=True):
            y.grad = torch.tensor(grad)
        peer.step()
    saved = copy.deepcopy(peer.state_dict())
    for held in saved["state"].values():
        for key, value in held.items():
            held[key] = ng.tensor(value.numpy())
    ours = [ng.tensor(y.detach().numpy()).requires_grad_() for y in theirs]
    optimizer = optim.Adam(ours)
    optimizer.load_state_dict(saved)
    found = train(optimizer, ours, 1, start=9)
    for y, grad in zip(theirs, arrays("float64", 9), strict=True):
        y.grad = torch.tensor(grad)
    peer.step()
    for x, y in zip(found, theirs, strict=True):
        np.testing.assert_allclose(x, y.detach().numpy(), rtol=1e-12)


def test_groups_have_their_own_options():
    first, second = parameters(shapes=[(2,), (2,)])
    before = values([first])[0].copy(), values([second])[0].copy()
    optimizer = optim.SGD([{"params": [first], "lr": 0.0}, {"params": second}], lr=1.0)
    first.grad = second.grad = ng.tensor([1.0, 1.0])
    optimizer.step()
    np.testing.assert_array_equal(values([first])[0], before[0])
    np.testing.assert_array_equal(values([second])[0], before[1] - np.float32(1))
    third = parameters(shapes=[(2,)])[0]
    optimizer.add_param_group({"params": [third], "weight_decay": 0.5})
    assert optimizer.param_groups[2]["lr"] == 1.0
    assert optimizer.param_groups[2]["weight_decay"] == 0.5


def test_a_changed_rate_counts_at_the_next_step():
    (param,) = parameters(shapes=[(3,)])
    optimizer = optim.SGD([param], lr=1.0)
    optimizer.param_groups[0]["lr"] = 0.25
    before = values([param])[0].copy()
    param.grad = ng.tensor([1.0, 2.0, 4.0])
    optimizer.step()
    np.testing.assert_allclose(values([param])[0], before - [0.25, 0.5, 1.0], rtol=1e-6)


def test_dtypes_may_be_mixed():
    single, double = parameters("float32", shapes=[(4,)]) + parameters("float64", shapes=[(4,)])
    optimizer = optim.Adam([single, double], lr=0.1)
    train(optimizer, [single, double], 5)
    np.testing.assert_allclose(single.tolist(), arrays("float64", 0, [(4,)])[0], atol=0.6)
    assert single.dtype is ng.float32 and double.dtype is ng.float64
    assert optimizer.state[double]["exp_avg"].dtype is ng.float64


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "amsgrad"])
def test_strided_parameters_and_gradients(name):
    kind, options = ROWS[name]
    base = arrays("float32", 0, [(4, 3)])[0]
    dense = ng.tensor(np.ascontiguousarray(base.T)).requires_grad_()
    strided = ng.tensor(base).t().detach().requires_grad_()
    assert not strided.is_contiguous()
    results = []
    for param in (dense, strided):
        optimizer = getattr(optim, kind)([param], **options)
        for seed in (1, 2):
            grad = arrays("float32", seed, [(4, 3)])[0]
            param.grad = ng.tensor(grad).t()
            optimizer.step()
        results.append(values([param])[0])
    np.testing.assert_array_equal(results[0], results[1])


def test_a_step_moves_the_version_once():
    params = parameters()
    optimizer = optim.Adam(params)
    train(optimizer, params, 1)
    before = [p._version for p in params]
    train(optimizer, params, 1)
    assert [p._version for p in params] == [v + 1 for v in before]


def test_a_step_between_forward_and_backward_is_found():
    (param,) = parameters(shapes=[(3,)])
    loss = (param * param).sum()
    param.grad = ng.tensor([1.0, 1.0, 1.0])
    optim.SGD([param], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_parameters_without_gradient_stay():
    params = parameters(shapes=[(2,), (2,)])
    before = values(params)[1].copy()
    optimizer = optim.Adam(params)
    params[0].grad = ng.tensor([1.0, 1.0])
    optimizer.step()
    np.testing.assert_array_equal(values(params)[1], before)
    assert list(optimizer.state) == [params[0]]


def test_zero_grad():
    params = parameters(shapes=[(2,), (2,)])
    optimizer = optim.SGD(params, lr=1.0)
    params[0].grad = ng.tensor([1.0, 1.0])
    held = params[0].grad
    optimizer.zero_grad(set_to_none=False)
    assert held.tolist() == [0.0, 0.0] and params[1].grad is None
    optimizer.zero_grad()
    assert params[0].grad is None


def test_a_closure_records_and_its_loss_comes_back():
    (param,) = parameters(shapes=[(3,)])
    optimizer = optim.SGD([param], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (param * param).sum()
        loss.backward()
        return loss

    with ng.no_grad():
        first = optimizer.step(closure)
        second = optimizer.step(closure)
    assert second.item() < first.item()


def test_nan_gradients_reach_the_parameters():
    (param,) = parameters(shapes=[(2,)])
    param.grad = ng.tensor([float("nan"), 0.0])
    optim.Adam([param]).step()
    assert np.isnan(param.tolist()[0]) and not np.isnan(param.tolist()[1])


class Recorder:
    """Runs every launch at once and notes it."""

    def __init__(self):
        self.seen = []

    def empty(self, shape, dtype, device):
        self.seen.append(("empty", shape))
        return np.empty(shape, dtype)

    def launch(self, kernel, args):
        self.seen.append((kernel.__name__, args))
        kernel(*args)

    def depends(self, read, value):
        assert read() == value

    def undo(self, function):
        assert callable(function)

    def adopt(self, tensor, *undo):
        assert tensor._array.size


@pytest.fixture
def recorder(monkeypatch):
    found = Recorder()
    monkeypatch.setattr(machine, "recording", True)
    monkeypatch.setattr(machine.recorder, "current", found, raising=False)
    return found


def test_a_recorder_sees_one_launch_and_no_state_being_made(recorder):
    machine.recorder.current = None
    params = parameters(shapes=[(2,), (3,)])
    give_gradients(params, 1)
    optimizer = optim.Adam(params, lr=0.5)
    machine.recorder.current = recorder
    optimizer.step()
    machine.recorder.current = None
    ((name, args),) = recorder.seen
    assert name == "adam"
    *lists, scalars = args
    assert [len(arrays) for arrays in lists] == [2, 2, 2, 2, 2]
    written = lists[: kernel_of(rules.adam).outputs]
    assert written[0][0] is params[0]._array
    assert written[1][1] is optimizer.state[params[1]]["step"]._array
    assert lists[-1][1] is params[1].grad._array
    optimizer.param_groups[0]["lr"] = 0.25
    assert scalars()[1] == 0.25  # read anew at each run of a recorded step


def test_a_first_step_with_dampening_is_not_recorded(recorder):
    machine.recorder.current = None
    params = parameters(shapes=[(2,)])
    give_gradients(params, 1)
    optimizer = optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.5)
    machine.recorder.current = recorder
    with pytest.raises(RuntimeError, match="Take one step before you compile"):
        optimizer.step()


def test_errors():
    (param,) = parameters(shapes=[(2,)])
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        optim.SGD([], lr=0.1)
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        optim.SGD([param], lr=-1)
    with pytest.raises(ValueError, match="Invalid learning rate"):
        optim.Adam([param], lr=float("nan"))
    with pytest.raises(ValueError, match=r"Invalid beta parameter at index 1: 1\.0"):
        optim.Adam([param], betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="Nesterov momentum requires"):
        optim.SGD([param], lr=0.1, nesterov=True)
    with pytest.raises(TypeError, match="iterable of Tensors"):
        optim.SGD(param, lr=0.1)
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        optim.SGD([1.0], lr=0.1)
    with pytest.raises(ValueError, match="non-leaf"):
        optim.SGD([param * 2], lr=0.1)
    with pytest.raises(ValueError, match="stands twice in one parameter group"):
        optim.SGD([param, param], lr=0.1)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optim.SGD([{"params": [param]}, {"params": [param]}], lr=0.1)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optim.SGD([param], lr=0.1).load_state_dict({"state": {}, "param_groups": []})


def test_repr_and_copies():
    (param,) = parameters(shapes=[(2,)])
    optimizer = optim.SGD([param], lr=0.5)
    assert repr(optimizer).startswith("SGD (\nParameter Group 0\n    dampening: 0\n    lr: 0.5\n")
    for twin in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert twin.param_groups[0]["lr"] == 0.5


SCHEDULES = {
    "step": ("StepLR", {"step_size": 3, "gamma": 0.5}),
    "multistep": ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.3}),
    "exponential": ("ExponentialLR", {"gamma": 0.9}),
    "cosine": ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
    "linear": ("LinearLR", {"start_factor": 0.25, "end_factor": 0.75, "total_iters": 6}),
    "lambda": ("LambdaLR", {"lr_lambda": lambda epoch: 1 / (1 + epoch)}),
    "onecycle": ("OneCycleLR", {"max_lr": 2.0, "total_steps": 110}),
    "onecycle-linear": (
        "OneCycleLR",
        {"max_lr": 2.0, "epochs": 22, "steps_per_epoch": 5, "anneal_strategy": "linear"},
    ),
    "restarts": ("CosineAnnealingWarmRestarts", {"T_0": 7, "eta_min": 0.01}),
    "restarts-longer": ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    "onecycle-three": ("OneCycleLR", {"max_lr": 2.0, "total_steps": 110, "three_phase": True}),
    "constant": ("ConstantLR", {"factor": 0.25, "total_iters": 7}),
    "polynomial": ("PolynomialLR", {"total_iters": 40, "power": 2.0}),
    "multiplicative": ("MultiplicativeLR", {"lr_lambda": lambda epoch: 1 - 1 / (5 + epoch)}),
    "cyclic": ("CyclicLR", {"base_lr": 0.1, "max_lr": [1.0, 2.0], "step_size_up": 7}),
    "cyclic-halved": (
        "CyclicLR",
        {
            "base_lr": [0.1, 0.2],
            "max_lr": 1.0,
            "step_size_up": 9,
            "step_size_down": 4,
            "mode": "triangular2",
            "max_momentum": 0.95,
        },
    ),
    "cyclic-exponential": (
        "CyclicLR",
        {
            "base_lr": 0.1,
            "max_lr": 1.0,
            "step_size_up": 5,
            "mode": "exp_range",
            "gamma": 0.98,
            "cycle_momentum": False,
        },
    ),
    "cyclic-function": (
        "CyclicLR",
        {
            "base_lr": 0.1,
            "max_lr": 1.0,
            "step_size_up": 5,
            "scale_fn": lambda x: 1 / (1 + x),
            "scale_mode": "iterations",
        },
    ),
}


@pytest.mark.peer
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_torchs(name):
    torch = pytest.importorskip("torch")
    kind, options = SCHEDULES[name]
    rates = []
    for library, tensors in ((optim, parameters(shapes=[(2,), (3,)])), (torch.optim, None)):
        tensors = tensors or [
            torch.zeros(2, requires_grad=True),
            torch.zeros(3, requires_grad=True),
        ]
        groups = [{"params": tensors[:1], "lr": 0.5}, {"params": tensors[1:]}]
        optimizer = library.SGD(groups, lr=0.1, momentum=0.9)
        scheduler = getattr(library.lr_scheduler, kind)(optimizer, **options)
        seen = []
        for _ in range(100):
            seen.append([*scheduler.get_last_lr(), optimizer.param_groups[0]["momentum"]])
            optimizer.step()
            scheduler.step()
        rates.append(seen)
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-12)


@pytest.mark.peer
@pytest.mark.parametrize("mode", ["min", "max"])
def test_plateau_is_torchs(mode):
    torch = pytest.importorskip("torch")
    metrics = [3, 2, 2, 2.1, 2, 1.5, 1.5, 1.6, 1.7, 1.8, 1.5, 1.5, 1.5, 1.5]
    rates = []
    for library, tensor in (
        (optim, parameters(shapes=[(2,)])[0]),
        (torch.optim, torch.zeros(2, requires_grad=True)),
    ):
        optimizer = library.SGD([tensor], lr=0.1)
        scheduler = library.lr_scheduler.ReduceLROnPlateau(
            optimizer, mode, factor=0.5, patience=1, cooldown=1
        )
        seen = []
        for metric in metrics:
            scheduler.step(metric)
            seen.append(optimizer.param_groups[0]["lr"])
        rates.append(seen)
    assert rates[0] == rates[1]


def test_a_scheduler_resumes():
    optimizer = optim.SGD(parameters(shapes=[(2,)]), lr=1.0)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    for _ in range(4):
        scheduler.step()
    resumed = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
    resumed.load_state_dict(scheduler.state_dict())
    scheduler.step()
    expected = scheduler.get_last_lr()
    optimizer.param_groups[0]["lr"] = resumed.get_last_lr()[0]
    resumed.step()
    assert resumed.get_last_lr() == expected


def test_chained_schedulers_step_together_and_resume():
    def made():
        optimizer = optim.SGD(parameters(shapes=[(2,)]), lr=1.0)
        first = optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2)
        second = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
        return optimizer, optim.lr_scheduler.ChainedScheduler([first, second])

    optimizer, chain = made()
    seen = [chain.get_last_lr()[0]]
    for _ in range(4):
        chain.step()
        seen.append(chain.get_last_lr()[0])
    np.testing.assert_allclose(seen, [0.1, 0.09, 0.81, 0.729, 0.6561])
    other, resumed = made()
    other.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(chain.state_dict())
    chain.step(), resumed.step()
    assert resumed.get_last_lr() == chain.get_last_lr()
    with pytest.raises(ValueError, match="same optimizer, but got another one at index 0"):
        optim.lr_scheduler.ChainedScheduler(chain._schedulers, other)
    with pytest.raises(ValueError, match="ChainedScheduler expects at least one scheduler"):
        optim.lr_scheduler.ChainedScheduler([])


@pytest.mark.parametrize(
    "kind, options, words",
    [
        ("ConstantLR", {"factor": 1.5}, r"expected in \[0, 1\], got 1.5"),
        ("CyclicLR", {"base_lr": 1, "max_lr": 2, "mode": "square"}, "not 'square'"),
        ("CyclicLR", {"base_lr": 1, "max_lr": [2, 3]}, "expected 1 values for max_lr, got 2"),
        ("CyclicLR", {"base_lr": 1, "max_lr": 2, "step_size_up": 0}, "must be positive, got 0"),
        ("CyclicLR", {"base_lr": 1, "max_lr": 2, "scale_mode": "x"}, "scale_mode is 'cycle' or"),
        ("CyclicLR", {"base_lr": 1, "max_lr": 2}, "must support momentum or beta1"),
    ],
)
def test_schedulers_refuse_what_makes_no_sense(kind, options, words):
    optimizer = optim.Adagrad(parameters(shapes=[(2,)]), lr=0.1)
    with pytest.raises(ValueError, match=words):
        getattr(optim.lr_scheduler, kind)(optimizer, **options)
    assert optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize(
    "make",
    [
        lambda ps: ng.optim.SGD(ps, lr=0.1, momentum=0.9),
        lambda ps: ng.optim.AdamW(ps, lr=0.1),
        lambda ps: ng.optim.RMSprop(ps, lr=0.1),
    ],
)
def test_state_of_another_size_than_its_parameter_is_refused(make):
    p = ng.nn.Parameter(ng.ones(3))
    optimizer = make([p])

    def step():
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()

    step()
    p.grad = None
    p.data = ng.ones(1000)
    with pytest.raises(RuntimeError, match=r"parameter of size \[1000\] has size \[3\]"):
        step()
    assert p.tolist() == [1] * 1000
    optimizer.state.pop(p)
    step()
    assert p.max().item() < 1


def test_the_step_of_an_optimiser_of_ones_own_is_loaded_as_it_was():
    class Counting(optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                state = self.state[p]
                state.setdefault("step", ng.zeros((), dtype=ng.float64)).add_(1.0)
                state.setdefault("mean", ng.zeros_like(p))

    optimizer = Counting([ng.ones(2, requires_grad=True)])
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    (state,) = optimizer.state.values()
    assert state["step"].dtype is ng.float64 and state["mean"].dtype is ng.float32
