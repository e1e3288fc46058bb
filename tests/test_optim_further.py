"""LBFGS, Muon, Lion and sequences of schedulers, which have no row among the other optimisers."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
from test_optim import arrays, give_gradients, parameters, train, values

import numbagrad as ng
from numbagrad import optim
from numbagrad.kernels import machine


def minimise(library, optimizer, x, y, steps):
    """The losses of ``steps`` steps on a curved valley of two parameters."""

    def closure():
        optimizer.zero_grad()
        loss = ((1 - x) ** 2).sum() + 10 * ((y - x * x) ** 2).sum() + (x * x * x * x).sum()
        loss.backward()
        return loss

    return [optimizer.step(closure).item() for _ in range(steps)]


LBFGS = {
    "fixed": {"lr": 0.05, "max_iter": 4},
    "history": {"lr": 0.05, "max_iter": 5, "history_size": 2},
    "wolfe": {"max_iter": 3, "line_search_fn": "strong_wolfe"},
    "wolfe-short": {"lr": 0.1, "max_iter": 10, "max_eval": 4, "line_search_fn": "strong_wolfe"},
}


@pytest.mark.peer
@pytest.mark.parametrize("name", LBFGS)
def test_lbfgs_is_torchs(name):
    torch = pytest.importorskip("torch")
    start = [a.reshape(-1) for a in arrays("float64", shapes=[(3,), (3, 1)])]
    found = []
    for library, make in ((optim, ng.tensor), (torch.optim, torch.tensor)):
        x, y = (make(a).requires_grad_() for a in start)
        optimizer = library.LBFGS([x, y], **LBFGS[name])
        losses = minimise(library, optimizer, x, y, 50)
        found.append([*losses, *x.tolist(), *y.tolist()])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-9)
    assert found[0][49] < found[0][0]


def test_lbfgs_resumes_and_refuses():
    x, y = parameters("float64", shapes=[(3,), (3,)])
    optimizer = optim.LBFGS([x, y], lr=0.05, max_iter=3)
    minimise(optim, optimizer, x, y, 3)
    twins = [t.detach().clone().requires_grad_() for t in (x, y)]
    second = optim.LBFGS(twins, lr=0.05, max_iter=3)
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert minimise(optim, optimizer, x, y, 3) == minimise(optim, second, *twins, 3)
    with pytest.raises(TypeError, match="closure"):
        optimizer.step()
    with pytest.raises(ValueError, match="per-parameter options"):
        optim.LBFGS([{"params": [x]}, {"params": [y]}])
    with pytest.raises(ValueError, match="strong_wolfe"):
        optim.LBFGS([x], line_search_fn="weak")
    with pytest.raises(RuntimeError, match="LBFGS"):
        ng.compile(lambda: minimise(optim, optimizer, x, y, 1))()


def test_lion_is_the_papers():
    start = arrays("float64")
    params = parameters("float64")
    options = {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}
    found = train(optim.Lion(params, **options), params, 50)
    for k, x in enumerate(start):
        momentum = np.zeros_like(x)
        for step in range(1, 51):
            g = arrays("float64", step)[k]
            x = x * (1 - 0.01 * 0.1) - 0.01 * np.sign(0.8 * momentum + (1 - 0.8) * g)
            momentum = 0.95 * momentum + (1 - 0.95) * g
        np.testing.assert_allclose(found[k], x, rtol=1e-12, atol=1e-12)


MATRICES = [(4, 3), (3, 5), (4, 3), (1, 2)]
MUON = {
    "muon": {"lr": 0.02},
    "plain": {"lr": 0.02, "nesterov": False, "momentum": 0.8, "weight_decay": 0.0},
    "matched": {"lr": 0.01, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3},
}


def muon_in_numpy(x, grads, lr, weight_decay=0.1, momentum=0.95, nesterov=True, **options):
    rows, columns = x.shape
    factor = np.sqrt(max(1, rows / columns))
    if options.get("adjust_lr_fn") == "match_rms_adamw":
        factor = 0.2 * np.sqrt(max(rows, columns))
    buffer = np.zeros_like(x)
    for g in grads:
        buffer = momentum * buffer + (1 - momentum) * g
        step = momentum * buffer + (1 - momentum) * g if nesterov else buffer
        u, s, v = np.linalg.svd(step, full_matrices=False)
        s = s / max(np.linalg.norm(s), 1e-7)
        for _ in range(options.get("ns_steps", 5)):
            s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
        x = x * (1 - lr * weight_decay) - lr * factor * (u * s) @ v
    return x


@pytest.mark.parametrize("name", MUON)
def test_muon_moves_singular_values(name):
    params = parameters("float64", shapes=MATRICES)
    optimizer = optim.Muon(params, **MUON[name])
    found = train(optimizer, params, 50)
    for k, x in enumerate(arrays("float64", shapes=MATRICES)):
        grads = [arrays("float64", step, MATRICES)[k] for step in range(1, 51)]
        np.testing.assert_allclose(found[k], muon_in_numpy(x, grads, **MUON[name]), rtol=1e-9)


@pytest.mark.peer
def test_muon_is_nearly_torchs():
    """PyTorch rounds the directions to bfloat16, eight bits."""
    torch = pytest.importorskip("torch")
    ours = parameters("float32", shapes=MATRICES)
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays("float32", shapes=MATRICES)]
    optimizer, peer = optim.Muon(ours, lr=0.02), torch.optim.Muon(theirs, lr=0.02)
    for step in range(1, 4):
        give_gradients(ours, step)
        for x, y in zip(ours, theirs, strict=True):
            y.grad = torch.tensor(x.grad.numpy())
        optimizer.step()
        peer.step()
    for x, y in zip(values(ours), theirs, strict=True):
        np.testing.assert_allclose(x, y.detach().numpy(), atol=0.02 * 3 * 0.05)


def test_muon_and_the_others_refuse():
    (vector,) = parameters(shapes=[(2,)])
    with pytest.raises(ValueError, match="only supports 2D"):
        optim.Muon([vector])
    with pytest.raises(ValueError, match="not supported"):
        optim.Muon(parameters(shapes=[(2, 2)]), adjust_lr_fn="other")
    for kind in (optim.Adamax, optim.NAdam, optim.RAdam, optim.Lion):
        with pytest.raises(ValueError, match="Invalid beta parameter at index 0"):
            kind([vector], betas=(1.0, 0.9))
    with pytest.raises(ValueError, match="Invalid rho"):
        optim.Adadelta([vector], rho=1.5)
    with pytest.raises(ValueError, match=r"Rprop: Invalid eta values: 0.5, 0.9"):
        optim.Rprop([vector], etas=(0.5, 0.9))
    with pytest.raises(ValueError, match="ASGD: Invalid learning rate"):
        optim.ASGD([vector], lr=-1)


@pytest.mark.peer
def test_asgd_keeps_torchs_average():
    torch = pytest.importorskip("torch")
    found = []
    for library, make in ((optim, ng.tensor), (torch.optim, torch.tensor)):
        x = make(np.ones(3)).requires_grad_()
        optimizer = library.ASGD([x], lr=0.1, t0=2)
        for step in range(6):
            x.grad = make(np.array([1.0, -0.5, 0.1 * step]))
            optimizer.step()
        state = optimizer.state[x]
        assert list(state) == ["step", "eta", "mu", "ax"]
        found.append([np.asarray(state[name]).tolist() for name in state])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_rprop_passes_nan_on():
    (x,) = parameters(shapes=[(2,)])
    optimizer = optim.Rprop([x])
    for _ in range(2):
        x.grad = ng.tensor([float("nan"), 1.0])
        optimizer.step()
    assert x.isnan().tolist() == [True, False]


ADAFACTOR = {
    "plain": {},
    "options": {"lr": 0.3, "beta2_decay": -0.5, "eps": (1e-5, 0.1), "weight_decay": 0.1},
    "maximize": {"lr": 0.1, "d": 2.0, "maximize": True},
}


@pytest.mark.peer
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-6)])
@pytest.mark.parametrize("name", ADAFACTOR)
def test_adafactor_is_torchs(name, dtype, tolerance):
    torch = pytest.importorskip("torch")
    shapes = [(3, 4), (4,), (), (2, 3, 5), (3, 4), (1, 6), (50, 70), (5000,)]
    ours = parameters(dtype, shapes=shapes)
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays(dtype, shapes=shapes)]
    optimizer = optim.Adafactor(ours, **ADAFACTOR[name])
    peer = torch.optim.Adafactor(theirs, foreach=False, **ADAFACTOR[name])
    for step in range(1, 51):
        give_gradients(ours, step)
        for x, y in zip(ours, theirs, strict=True):
            y.grad = torch.tensor(x.grad.numpy())
        optimizer.step()
        peer.step()
    for x, y in zip(values(ours), theirs, strict=True):
        np.testing.assert_allclose(x, y.detach().numpy(), rtol=tolerance, atol=tolerance)
    for x, y in zip(ours, theirs, strict=True):
        state = peer.state[y]
        assert list(optimizer.state[x]) == list(state)
        for key, value in state.items():
            assert optimizer.state[x][key].shape == value.shape


def test_adafactor_resumes_on_any_number_of_threads():
    shapes, results = [(300, 300), (0, 3), (7,), (0,), (50, 1000)], []
    most = machine.threads()
    for count in (1, most):
        machine.set_threads(count)
        try:
            params = parameters(shapes=shapes)
            optimizer = optim.Adafactor(params, lr=0.1)
            train(optimizer, params, 2)
            twins = [p.detach().clone().requires_grad_() for p in params]
            second = optim.Adafactor(twins, lr=0.1)
            second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            results += [train(optimizer, params, 2, 3), train(second, twins, 2, 3)]
        finally:
            machine.set_threads(most)
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_adafactor_refuses():
    (vector,) = parameters(shapes=[(2,)])
    for options, words in (
        ({"beta2_decay": 0.1}, "beta2_decay should be <= 0"),
        ({"eps": (None, -1.0)}, "epsilon2 should be >= 0"),
        ({"d": 0.5}, "d should be >= 1"),
        ({"lr": -1.0}, "Invalid learning rate"),
    ):
        with pytest.raises(ValueError, match=words):
            optim.Adafactor([vector], **options)


COMPILED = {
    "Adafactor": {"lr": 0.1},
    "ASGD": {"lr": 0.01, "t0": 3},
    "Rprop": {"lr": 0.01},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {"lr": 0.01},
    "Lion": {"lr": 0.01},
    "Muon": {"lr": 0.02},
}


def test_compiled_steps_follow_the_rate():
    """One compiled function steps all of them; a scheduler moves the rates between calls."""
    worlds = []
    for compiled in (False, True):
        params = {k: parameters("float64", shapes=[(3, 2), (3, 2)]) for k in COMPILED}
        optimizers = [getattr(optim, k)(params[k], **o) for k, o in COMPILED.items()]
        schedulers = [
            optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3) for optimizer in optimizers
        ]

        def step(x, params=params, optimizers=optimizers):
            total = 0
            for optimizer, both in zip(optimizers, params.values(), strict=True):
                optimizer.zero_grad()
                loss = sum(((p * x) ** 2).sum() for p in both)
                loss.backward()
                optimizer.step()
                total = total + loss
            return total

        run = ng.compile(step) if compiled else step
        losses = []
        for k in range(8):
            losses.append(run(ng.full((2,), 1.0 + k, dtype=ng.double)).item())
            for scheduler in schedulers:
                scheduler.step()
        worlds.append([*losses, *[p.detach().numpy() for both in params.values() for p in both]])
    for eager, made in zip(*worlds, strict=True):
        np.testing.assert_allclose(made, eager, rtol=1e-9)


def sequence(library, optimizer):
    kinds = library.lr_scheduler
    parts = [
        kinds.LinearLR(optimizer, start_factor=0.1, total_iters=10),
        kinds.StepLR(optimizer, 7, gamma=0.5),
        kinds.CosineAnnealingLR(optimizer, T_max=30, eta_min=0.01),
        kinds.CosineAnnealingWarmRestarts(optimizer, T_0=8),
        kinds.ExponentialLR(optimizer, 0.9),
    ]
    return kinds.SequentialLR(optimizer, parts, milestones=[10, 31, 55, 80])


@pytest.mark.peer
def test_sequences_are_torchs():
    torch = pytest.importorskip("torch")
    rates = []
    for library, make in ((optim, ng.zeros), (torch.optim, torch.zeros)):
        tensors = [make(2).requires_grad_(), make(3).requires_grad_()]
        groups = [{"params": tensors[:1], "lr": 0.5}, {"params": tensors[1:]}]
        optimizer = library.SGD(groups, lr=0.1)
        scheduler = sequence(library, optimizer)
        seen = []
        for _ in range(100):
            seen.append(scheduler.get_last_lr())
            optimizer.step()
            scheduler.step()
        rates.append(seen)
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-12)


SCHEDULES = {
    "exponential": lambda kinds, o: kinds.ExponentialLR(o, 0.9, last_epoch=4),
    "linear": lambda kinds, o: kinds.LinearLR(o, 0.3, 1.0, 5, last_epoch=2),
    "polynomial": lambda kinds, o: kinds.PolynomialLR(o, 8, 2.0, last_epoch=2),
    "cosine": lambda kinds, o: kinds.CosineAnnealingLR(o, 5, last_epoch=4),
    "steps": lambda kinds, o: kinds.StepLR(o, 3, last_epoch=4),
    "factors": lambda kinds, o: kinds.MultiplicativeLR(o, lambda e: 1 - e / 20, last_epoch=4),
    "factors after": lambda kinds, o: kinds.SequentialLR(
        o, [kinds.StepLR(o, 1, 0.5), kinds.MultiplicativeLR(o, lambda e: 0.8 - e / 20)], [3]
    ),
    "cycle": lambda kinds, o: kinds.OneCycleLR(
        o, [1.0, 0.2], 12, base_momentum=[0.8, 0.7], max_momentum=[0.95, 0.9]
    ),
    "second": lambda kinds, o: kinds.SequentialLR(
        o, [kinds.LinearLR(o, 0.1, 1.0, 3), kinds.StepLR(o, 2)], [0]
    ),
    "chain": lambda kinds, o: kinds.ChainedScheduler(
        [
            kinds.SequentialLR(o, [kinds.ConstantLR(o, 0.1, 2), kinds.ExponentialLR(o, 0.9)], [3]),
            kinds.StepLR(o, 2, 0.5),
        ]
    ),
}


@pytest.mark.peer
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_begin_and_resume_as_torchs(name):
    torch = pytest.importorskip("torch")
    seen = []
    for library in (ng, torch):
        groups = [{"params": [library.ones(2).requires_grad_()], "lr": lr} for lr in (0.5, 0.1)]
        optimizer = library.optim.SGD(groups, lr=1.0, momentum=0.9)
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        scheduler = SCHEDULES[name](library.optim.lr_scheduler, optimizer)
        for _ in range(9):
            seen.append([g[key] for g in optimizer.param_groups for key in ("lr", "momentum")])
            optimizer.step()
            scheduler.step()
    np.testing.assert_allclose(seen[:9], seen[9:], rtol=1e-12)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", ["SequentialLR", "ChainedScheduler"])
def test_a_sequence_of_what_is_made_of_others(kind, first):
    optimizer = optim.SGD(parameters(shapes=[(2,)]), lr=1.0)
    kinds = optim.lr_scheduler
    parts = [kinds.ConstantLR(optimizer, 0.1, 2), kinds.ExponentialLR(optimizer, 0.5)]
    if kind == "SequentialLR":
        both, expected = kinds.SequentialLR(optimizer, parts, [2]), [0.1, 0.1, 1.0, 0.5]
    else:
        both, expected = kinds.ChainedScheduler(parts), [0.1, 0.05, 0.25, 0.125]
    other = kinds.StepLR(optimizer, 2, 0.1)
    order, at = ([both, other], 4) if first else ([other, both], 3)
    expected = [*expected, 1.0, 1.0, 0.1] if first else [1.0, 1.0, 0.1, *expected]
    scheduler, rates = kinds.SequentialLR(optimizer, order, [at]), []
    for _ in range(7):
        rates += scheduler.get_last_lr()
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(rates, expected, rtol=1e-12)


def test_a_sequence_resumes_and_refuses():
    optimizer = optim.SGD(parameters(shapes=[(2,)]), lr=1.0)
    scheduler = sequence(optim, optimizer)
    for _ in range(33):
        scheduler.step()
    saved, rate = copy.deepcopy(scheduler.state_dict()), optimizer.param_groups[0]["lr"]
    expected = []
    for _ in range(30):
        scheduler.step()
        expected.append(scheduler.get_last_lr())
    resumed = sequence(optim, optimizer)
    resumed.load_state_dict(saved)
    optimizer.param_groups[0]["lr"] = rate
    for rates in expected:
        resumed.step()
        assert resumed.get_last_lr() == rates
    kinds = optim.lr_scheduler
    parts = [kinds.StepLR(optimizer, 2), kinds.StepLR(optimizer, 3)]
    with pytest.raises(ValueError, match="one milestone fewer"):
        kinds.SequentialLR(optimizer, parts, [1, 2])
    with pytest.raises(TypeError, match="takes a metric"):
        kinds.SequentialLR(optimizer, [parts[0], kinds.ReduceLROnPlateau(optimizer)], [3])
    with pytest.raises(ValueError, match="T_0"):
        kinds.CosineAnnealingWarmRestarts(optimizer, 0)


def test_warm_restarts_jump_to_a_fraction():
    optimizer = optim.SGD(parameters(shapes=[(2,)]), lr=1.0)
    scheduler = optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=4, T_mult=2)
    scheduler.step(6.0)
    assert scheduler.get_last_lr() == [pytest.approx((1 + np.cos(np.pi * 2 / 8)) / 2)]
    scheduler.step(12.5)
    assert scheduler.get_last_lr() == [pytest.approx((1 + np.cos(np.pi * 0.5 / 16)) / 2)]


def test_a_scheduler_before_its_optimizer_warns():
    optimizer = optim.SGD([ng.ones(2, requires_grad=True)], lr=1.0)
    make = optim.lr_scheduler
    scheduler = make.SequentialLR(
        optimizer, [make.ConstantLR(optimizer), make.StepLR(optimizer, 1)], [3]
    )
    with pytest.warns(UserWarning, match=r"`lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        scheduler.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()
        ng.compile(optimizer.step)()
        later = make.ExponentialLR(optimizer, 0.5)
        later.step()
        assert make.ExponentialLR(optimizer, 0.5).state_dict()["_step_count"] == 1


def test_a_plateau_lowers_groups_that_came_later():
    p, q = ng.nn.Parameter(ng.ones(2)), ng.nn.Parameter(ng.ones(2))
    optimizer = ng.optim.SGD([p], lr=0.1)
    plateau = ng.optim.lr_scheduler.ReduceLROnPlateau
    alike, own = (plateau(optimizer, patience=0, factor=0.5, min_lr=low) for low in (0.0, [0.0]))
    optimizer.add_param_group({"params": [q], "lr": 0.2})
    for _ in range(4):
        alike.step(1.0)
    assert alike.get_last_lr() == [0.0125, 0.025]
    own.step(1.0)
    with pytest.raises(RuntimeError, match="has 2 param groups and there are 1 min_lrs"):
        own.step(1.0)
    with pytest.raises(ValueError, match="expected 2 min_lrs, got 1"):
        plateau(optimizer, min_lr=[0.0])


@pytest.mark.peer
@pytest.mark.parametrize("name", ["SequentialLR", "ChainedScheduler"])
def test_the_state_of_torchs_combined_schedulers_fits(name):
    torch = pytest.importorskip("torch")

    def made(library):
        parameter = library.nn.Parameter(library.ones(2))
        optimizer = library.optim.SGD([parameter], lr=1.0)
        kinds = library.optim.lr_scheduler
        parts = [kinds.ConstantLR(optimizer, 0.1, 3), kinds.ExponentialLR(optimizer, 0.9)]
        if name == "SequentialLR":
            return optimizer, kinds.SequentialLR(optimizer, parts, [2])
        return optimizer, kinds.ChainedScheduler(parts)

    theirs, their_scheduler = made(torch)
    ours, our_scheduler = made(ng)
    for _ in range(3):
        theirs.step(), their_scheduler.step()
    our_scheduler.load_state_dict(their_scheduler.state_dict())
    ours.param_groups[0]["lr"] = theirs.param_groups[0]["lr"]
    for _ in range(5):
        for optimizer, scheduler in ((theirs, their_scheduler), (ours, our_scheduler)):
            optimizer.step(), scheduler.step()
        assert our_scheduler.get_last_lr() == pytest.approx(their_scheduler.get_last_lr())


@pytest.mark.peer
@pytest.mark.parametrize(
    "kind, options",
    [
        ("LinearLR", {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 4}),
        ("LinearLR", {"start_factor": 0.5, "end_factor": 0.0, "total_iters": 1}),
        ("ConstantLR", {"factor": 0.0, "total_iters": 20}),
    ],
)
def test_a_rate_of_zero_stays_as_torchs(kind, options):
    torch, seen = pytest.importorskip("torch"), []
    for library in (ng, torch):
        optimizer = library.optim.SGD([library.ones(2).requires_grad_()], lr=0.1)
        scheduler = getattr(library.optim.lr_scheduler, kind)(optimizer, **options)
        for _ in range(9):
            optimizer.step()
            scheduler.step()
            seen += scheduler.get_last_lr()
    np.testing.assert_allclose(seen[:9], seen[9:], rtol=1e-12)


def test_a_rate_comes_back_from_zero():
    optimizer = optim.SGD(parameters(shapes=[(2,)]), lr=0.1)
    scheduler = optim.lr_scheduler.ConstantLR(optimizer, 0.0, 2)
    seen = scheduler.get_last_lr()
    for _ in range(3):
        optimizer.step()
        scheduler.step()
        seen += scheduler.get_last_lr()
    assert seen == [0.0, 0.0, 0.1, 0.1]
